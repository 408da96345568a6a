"""The caller's ids as arrays of numbers and bytes, and back with their types.

Numbers are stored as they are. Text is stored as UTF-8, end to end, with the byte at which each id begins and
the last one ends; other ids are stored likewise, each as the JSON text of its own, with tuples as lists.
"""

from __future__ import annotations

import json
from typing import Any

import numpy as np

from fastgrl.checks import Array, shown
from fastgrl.errors import ArgumentError
from fastgrl.ids import as_ids, distinct_ids, objects
from fastgrl.lazy_ids import decoded_texts

IDS = "node_ids"
_BYTES, _OFFSETS = f"{IDS}.utf8", f"{IDS}.offsets"


def pack_ids(node_ids: Any) -> tuple[str, dict[str, Array]]:
    """What kind of ids these are ("numbers", "text" or "json"), and the arrays that hold them.

    >>> kind, arrays = pack_ids(["ann", "bob"])
    >>> kind, arrays["node_ids.offsets"].tolist(), arrays["node_ids.utf8"].tobytes()
    ('text', [0, 3, 6], b'annbob')
    """
    ids = as_ids(node_ids, IDS)
    if len(distinct_ids(ids)) < len(ids):
        raise ArgumentError(f"{IDS} has repeated ids; each node needs one of its own")
    if ids.dtype.kind != "O":
        return "numbers", {IDS: ids}
    items = ids.tolist()
    if all(isinstance(item, str) for item in items):
        return "text", _joined([item.encode("utf-8", "surrogatepass") for item in items])
    return "json", _joined([_json_of(item) for item in items])


def unpack_ids(kind: str, arrays: dict[str, Array]) -> Array:
    """The ids that `pack_ids` packed; ValueError says why they cannot be read."""
    try:
        ids = as_ids(_unpacked(kind, arrays), "ids")
        repeated = len(distinct_ids(ids)) < len(ids)
    except (LookupError, TypeError, RecursionError) as error:
        raise ValueError(shown(str(error))) from error
    if repeated:
        raise ValueError("some are there twice")
    return ids


def _unpacked(kind: str, arrays: dict[str, Array]) -> Array:
    if kind == "numbers":
        return arrays[IDS]
    return objects(_READERS[kind](arrays[_BYTES], arrays[_OFFSETS]))


def is_packed_ids(name: str) -> bool:
    """Whether an array of this name belongs to the ids."""
    return name in (IDS, _BYTES, _OFFSETS)


def _joined(pieces: list[bytes]) -> dict[str, Array]:
    offsets = np.zeros(len(pieces) + 1, np.int64)
    np.cumsum([len(piece) for piece in pieces], out=offsets[1:])
    return {_BYTES: np.frombuffer(b"".join(pieces), np.uint8), _OFFSETS: offsets}


def _json_of(item: Any) -> bytes:
    try:
        text = json.dumps(item, allow_nan=False, default=_plain_number, separators=(",", ":"))
        if _tuples(json.loads(text)) != item:
            raise ValueError
    except (TypeError, ValueError, RecursionError):
        raise ArgumentError(
            f"the node id {described(item)} cannot be stored; use text or integers as ids"
        ) from None
    return text.encode()


def described(value: Any) -> str:
    """A value and its type as messages show them, also one whose text has no end.

    >>> described(b"x"), described(10**5000)
    ("b'x' (a bytes)", '(a int)')
    """
    try:
        text = shown(value) + " "
    except (ValueError, RecursionError):
        text = ""
    return f"{text}(a {type(value).__name__})"


def _plain_number(item: Any) -> Any:
    if isinstance(item, np.integer | np.floating | np.bool_):
        return item.item()
    raise TypeError


def _texts(utf8: Array, offsets: Array) -> list[str]:
    if utf8.dtype != np.uint8 or offsets.dtype != np.int64 or (utf8.ndim, offsets.ndim) != (1, 1):
        raise TypeError("they are not bytes and offsets")
    return decoded_texts(utf8, offsets)


def _values(utf8: Array, offsets: Array) -> list[Any]:
    return [_tuples(json.loads(text)) for text in _texts(utf8, offsets)]


def _tuples(value: Any) -> Any:
    return tuple(map(_tuples, value)) if isinstance(value, list) else value


_READERS = {"text": _texts, "json": _values}
