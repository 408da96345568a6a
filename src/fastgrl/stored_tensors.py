"""Named arrays as one safetensors file, and the two digests of its bytes.

The file is the length of the header (8 bytes, little-endian), the header (JSON, filled up with blanks) and
the arrays, those of wider numbers first, without gaps: every array begins at a multiple of its item size. The
header follows from the names, types and shapes alone, so who knows them knows every byte of it.

SHA-256 of everything takes several times as long as reading it, so that is for those who ask. What every load
can afford are sums: the data are cut into blocks of 256 rows of 521 little-endian 64-bit words (the last one
filled up with zeros), each column of a block is summed modulo 2^64, the sums of each block are hashed, and so
are these hashes, in order (SHA-256). One changed bit always changes a sum; it is no defence against forgery.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from fastgrl.checks import Array, shown
from fastgrl.errors import ArgumentError, DtypeError, NotFiniteError
from fastgrl.parallel import parallel_map

CODES = {
    **{f"float{bits}": f"F{bits}" for bits in (16, 32, 64)},
    **{f"int{bits}": f"I{bits}" for bits in (8, 16, 32, 64)},
    **{f"uint{bits}": f"U{bits}" for bits in (8, 16, 32, 64)},
    "bool": "BOOL",
}
SUMS = "sums-256x521"
_MOST_DIMENSIONS = 32
# 521 is prime: pages and sectors that changed places come to lie in other columns.
_ROWS, _COLUMNS = 256, 521
_BLOCK = 8 * _ROWS * _COLUMNS


@dataclass(frozen=True)
class Tensor:
    """An array in the file: from byte `begin` to byte `end` of what follows the header."""

    name: str
    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    begin: int
    end: int

    def of(self, data: Array) -> Array:
        """The array as a view of `data`, all bytes after the header."""
        return data[self.begin : self.end].view(self.dtype).reshape(self.shape)

    def is_sound(self, data: Array, begin: int, end: int) -> bool:
        """Whether those of its numbers that lie between two bytes (multiples of 8) are finite, or 0 or 1."""
        part = data[max(begin, self.begin) : min(end, self.end)]
        if self.dtype.kind == "f":
            return bool(np.isfinite(part.view(self.dtype)).all())
        return self.dtype.kind != "b" or not (part > 1).any()


def lay_out(table: Mapping[str, tuple[str, tuple[int, ...]]]) -> tuple[Tensor, ...]:
    """Where arrays of these types and shapes come to lie; ValueError if there can be no such arrays.

    >>> tensors = lay_out({"a": ("bool", (3,)), "b": ("int32", (2, 5))})
    >>> [(tensor.name, tensor.begin, tensor.end) for tensor in tensors]
    [('b', 0, 40), ('a', 40, 43)]
    """
    kinds = {name: np.dtype(dtype).newbyteorder("<") for name, (dtype, _) in table.items() if dtype in CODES}
    if len(kinds) < len(table):
        raise ValueError("an array of an unknown type")
    tensors: list[Tensor] = []
    for name in sorted(table, key=lambda name: (-kinds[name].itemsize, name)):
        shape, begin = table[name][1], tensors[-1].end if tensors else 0
        # Also an array without items must have a shape that NumPy can count.
        if len(shape) > _MOST_DIMENSIONS or math.prod(max(1, length) for length in shape) >= 1 << 56:
            raise ValueError("an array of an impossible shape")
        end = begin + math.prod(shape) * kinds[name].itemsize
        tensors.append(Tensor(name, kinds[name], shape, begin, end))
    return tuple(tensors)


def packed(arrays: Mapping[str, Any]) -> tuple[tuple[Tensor, ...], list[Array]]:
    """The layout of `arrays` and the bytes of each, in the order of the file."""
    plain = {name: _storable(name, np.asarray(array)) for name, array in arrays.items()}
    tensors = lay_out({name: (array.dtype.name, array.shape) for name, array in plain.items()})
    return tensors, [plain[tensor.name].reshape(-1).view(np.uint8) for tensor in tensors]


def _storable(name: str, array: Array) -> Array:
    if array.dtype.name not in CODES:
        raise DtypeError(f"the array {shown(name)} of {array.dtype} cannot be stored; use {', '.join(CODES)}")
    if array.dtype.kind == "f" and not np.isfinite(array).all():
        raise NotFiniteError(f"the array {shown(name)} contains {array[~np.isfinite(array)][0]}")
    if array.ndim > _MOST_DIMENSIONS:
        raise ArgumentError(f"the array {shown(name)} has more than {_MOST_DIMENSIONS} dimensions")
    return array.astype(array.dtype.newbyteorder("<"), order="C", copy=False)


def header_of(tensors: Iterable[Tensor]) -> bytes:
    """The beginning of a file of these tensors, its length in front; the data begin at a multiple of 64."""
    entries = {
        tensor.name: {
            "dtype": CODES[tensor.dtype.name],
            "shape": list(tensor.shape),
            "data_offsets": [tensor.begin, tensor.end],
        }
        for tensor in tensors
    }
    text = json.dumps(entries, separators=(",", ":")).encode()
    text += b" " * (-(len(text) + 8) % 64)
    return len(text).to_bytes(8, "little") + text


def sha256_of(parts: Iterable[Any]) -> str:
    """SHA-256 of the bytes of `parts`, end to end."""
    digest = hashlib.sha256()
    for part in parts:
        digest.update(part)
    return digest.hexdigest()


def sums_of(parts: list[Array]) -> str:
    """The digest of the column sums of the bytes of `parts`, end to end."""
    return _sums_and_unsound(parts, ())[0]


def sums_and_unsound(data: Array, tensors: tuple[Tensor, ...]) -> tuple[str, str | None]:
    """The digest of the sums of `data`, and the name of a tensor with numbers that cannot be, in one pass."""
    return _sums_and_unsound([data], tensors)


def _sums_and_unsound(parts: list[Array], tensors: tuple[Tensor, ...]) -> tuple[str, str | None]:
    begins = range(0, sum(map(len, parts)), _BLOCK)
    found = parallel_map(partial(_examined, parts, tensors), begins)
    unsound = (name for _, name in found if name is not None)
    return sha256_of(digest for digest, _ in found), next(unsound, None)


def _examined(parts: list[Array], tensors: tuple[Tensor, ...], begin: int) -> tuple[bytes, str | None]:
    # Sums first and soundness right after, while the block is still in the cache.
    block, end = _between(parts, begin, begin + _BLOCK), begin + _BLOCK
    digest = hashlib.sha256(_column_sums(block).data).digest()
    within = (tensor for tensor in tensors if tensor.begin < end and begin < tensor.end)
    return digest, next((t.name for t in within if not t.is_sound(parts[0], begin, end)), None)


def _column_sums(block: Array) -> Array:
    if len(block) < _BLOCK:
        block = np.append(block, np.zeros(_BLOCK - len(block), np.uint8))
    sums: Array = np.add.reduce(block.view("<u8").reshape(_ROWS, _COLUMNS), axis=0)
    return sums.astype("<u8", copy=False)


def _between(parts: list[Array], begin: int, end: int) -> Array:
    """Bytes `begin` to `end` of all parts end to end: a view where one part holds them."""
    pieces = []
    for part in parts:
        if begin < len(part) and end > 0:
            pieces.append(part[max(begin, 0) : end])
        begin, end = begin - len(part), end - len(part)
    return pieces[0] if len(pieces) == 1 else np.concatenate(pieces)
