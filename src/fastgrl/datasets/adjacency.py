"""The adjacency lists of Planetoid: a pickled dict of lists, decoded without running the pickle.

Such a pickle is a fixed beginning and then numbers, lists of numbers and nothing else. Making a hundred
thousand Python integers only to take them apart again would be most of the work of loading, so the opcodes
are found and decoded as arrays, and whatever does not follow the one grammar is refused.
"""

from __future__ import annotations

import re

import numpy as np
import scipy.sparse as sp

from fastgrl.checks import Array
from fastgrl.datasets.unpickle import refused_name
from fastgrl.errors import InputError

_NAMES = {("collections", "defaultdict"), ("__builtin__", "list")}
# That is defaultdict(list); what follows a q is the number under which the object is remembered.
_BEGINNING = re.compile(
    rb"\x80\x02ccollections\ndefaultdict\n(?:q.)?c__builtin__\nlist\n(?:q.)?\x85(?:q.)?R(?:q.)?", re.DOTALL
)
# Opcode → length and → token: i for integers of 1, 2 and 4 bytes, p for a number to remember the list by.
_LENGTHS, _TOKENS = bytearray(256), bytearray(b"?" * 256)
for _opcode, _length, _token in zip(
    b"KMJqr(]aeu.", (2, 3, 5, 2, 5, 1, 1, 1, 1, 1, 0), b"iiipp(]aeu.", strict=True
):
    _LENGTHS[_opcode], _TOKENS[_opcode] = _length, _token
_MASKS = np.zeros(256, np.uint32)
_MASKS[list(b"KMJ")] = 0xFF, 0xFFFF, 0xFFFFFFFF
# Batches of: a key, a new list, and its one number to append or its several to extend it with.
_GRAMMAR = re.compile(rb"(?:\((?:i\]p?+(?:ia|\(i++e)?+)++u)*+\.")
# Few enough bytes for the arrays of a window to stay in the cache and to be allocated cheaply.
_WINDOW = 1 << 14


def read_adjacency(data: bytes, *, file: str) -> tuple[Array, Array]:
    """Both ends of every entry of the pickled `{0: [neighbour, …], 1: […], …}`; `file` is named in errors.

    >>> one = b"\\x80\\x02ccollections\\ndefaultdict\\nc__builtin__\\nlist\\n\\x85R(K\\x00](K\\x00K\\x05eu."
    >>> read_adjacency(one, file="graph")
    (array([0, 0], dtype=int32), array([0, 5], dtype=int32))
    """
    beginning = _BEGINNING.match(data)
    at = np.empty(0, np.int32) if beginning is None else _opcodes(data, beginning.end())
    opcodes = np.frombuffer(data, np.uint8)[at]
    tokens = opcodes.tobytes().translate(_TOKENS)
    if not _GRAMMAR.fullmatch(tokens) or at[-1] != len(data) - 1:
        name = refused_name(data, admitted=_NAMES)
        why = (
            f"asks for {name}, which no dataset needs"
            if name
            else "is not a pickled dict of lists of numbers"
        )
        raise InputError(f"{file} {why}: refused")
    marks = np.frombuffer(tokens, np.uint8)
    place = np.flatnonzero(marks == ord("i"))
    # Four bytes from any place on; by the grammar at least as many follow each opcode of a number.
    words = np.ndarray(max(0, len(data) - 3), "<u4", data, strides=(1,))
    numbers = words[at[place] + 1] & _MASKS[opcodes[place]]
    return _ends(numbers, marks[place + 1] == ord("]"), file)


def _opcodes(data: bytes, begin: int) -> Array:
    """Where the opcodes stand, from `begin` on, as far as they are of the right kind.

    Each opcode tells where the next one begins. That is a graph over the bytes, and the opcodes are what a
    search reaches from the first one: a compiled call for each window instead of a step for each opcode.
    """
    # Not at the top: it takes longer to import than everything else here.
    from scipy.sparse.csgraph import breadth_first_order

    lengths = np.frombuffer(data.translate(_LENGTHS), np.uint8)
    places, ones = np.arange(_WINDOW + 2, dtype=np.int32), np.ones(_WINDOW + 1)
    found: list[Array] = []
    while begin < len(data):
        window = lengths[begin : begin + _WINDOW]
        n = len(window)
        following = np.append(np.minimum(places[:n] + window, n), np.int32(n))
        steps = sp.csr_array((ones[: n + 1], following, places[: n + 2]), shape=(n + 1, n + 1))
        reached = breadth_first_order(steps, 0, return_predecessors=False)
        if reached[-1] < n:
            return np.concatenate([*found, reached + np.int32(begin)])
        found.append(reached[:-1] + np.int32(begin))
        begin = int(found[-1][-1] + window[reached[-2]])
    return np.concatenate([np.empty(0, np.int32), *found])


def _ends(numbers: Array, is_key: Array, file: str) -> tuple[Array, Array]:
    keys = numbers[is_key]
    if numbers.max(initial=0) > np.iinfo(np.int32).max or not np.array_equal(keys, np.arange(len(keys))):
        raise InputError(f"{file} does not list the neighbours of nodes 0, 1, 2, … in this order: refused")
    others = ~is_key
    return np.cumsum(is_key, dtype=np.int32)[others] - 1, numbers[others].astype(np.int32)
