"""Arrays and matrices in the Planetoid pickles, read without giving the pickles any power.

Three fences, of which either of the first two is enough against running code:

1. The opcodes are read first. Only those that the original files consist of pass, and few of them, so that
   no pickle can ask for memory or nesting that it does not pay for in bytes.
2. A name is looked up in an exact list of (module, name) pairs, and what it gives is a stand-in from this
   file that records its arguments: neither NumPy nor SciPy nor any other module is called by the pickle.
3. Arrays and matrices are built afterwards from the recorded parts, when types, lengths and indices fit.
"""

from __future__ import annotations

import io
import itertools
import math
import pickle
import pickletools
import re
from collections.abc import Callable, Container, Iterator
from dataclasses import dataclass
from typing import Any, NoReturn

import numpy as np

from fastgrl.checks import Array, shown
from fastgrl.errors import InputError


@dataclass(frozen=True, eq=False)
class Rows:
    """Compressed sparse rows, checked in full; the columns of each row are in increasing order."""

    indptr: Array
    indices: Array
    values: Array
    shape: tuple[int, int]


Unpickled = Array | Rows

_WORDS = (b"format", b"csr", b"_shape", b"indptr", b"indices", b"data", b"maxprint", b"i4", b"f4", b"<", b"b")
# Opcodes come at most 32 in a step, in at most 32 steps. That bounds the depth of tuples, whose hash the
# interpreter computes by unguarded recursion; and a memo number has one byte, because the unpickler makes a
# table as long as the largest one. The original files need 7 steps.
_MOST_STEPS = 32
_NUMBERS = {b"i4": np.dtype("<i4"), b"f4": np.dtype("<f4"), b"i8": np.dtype("<i8"), b"f8": np.dtype("<f8")}
_LITTLE_ENDIAN = (3, b"<", None, None, None, -1, -1, 0)


def unpickle(data: bytes, *, file: str) -> Unpickled:
    """Read a pickle of one NumPy array or one SciPy CSR matrix; `file` is named in errors.

    Anything else, and anything damaged, raises `InputError`; no code of the pickle's choosing runs.

    >>> unpickle(b"cposix\\nsystem\\n(S'id'\\ntR.", file="bad.pkl")
    Traceback (most recent call last):
    fastgrl.errors.InputError: bad.pkl asks for 'posix.system', which no dataset needs: refused
    """
    try:
        program, strings = _scan(data)
        unpickler = _Unpickler(io.BytesIO(program), encoding="bytes")
        unpickler.strings = strings
        return _built(unpickler.load())
    except _Refused as error:
        raise InputError(f"{file} {error}: refused") from None
    except Exception as error:
        # A damaged pickle may fail in any way; all of them mean the same to the reader.
        raise InputError(f"{file} is damaged, or not a pickle: {type(error).__name__}") from None


class _Refused(Exception):
    """Reads as the rest of a sentence that begins with the file's name."""


def _scan(data: bytes) -> tuple[bytes, list[memoryview]]:
    """Admit every opcode up to the STOP at the end, and take the long strings out, without copying them.

    In their place the pickle asks for string number i from outside, which is what persistent ids are for.
    """
    at = begin = 2 if data.startswith(b"\x80\x02") else 0
    program, strings = [data[:at]], list[memoryview]()
    for _ in range(_MOST_STEPS):
        match = _OPCODES.match(data, at)
        before, at = at, match.end() if match else at
        opcode = data[at : at + 1]
        if opcode == b"." and at + 1 == len(data):
            return b"".join([*program, data[begin:]]), strings
        if opcode == b"T":
            program += [data[begin:at], b"K", bytes([len(strings)]), b"Q"]
            begin = _end_of_string(data, at, 4)
            strings.append(memoryview(data)[at + 5 : begin])
            at = begin
        elif opcode == b"U":
            at = _end_of_string(data, at, 1)
        elif at == before:
            break
    raise _Refused(_complaint(data, at))


def _end_of_string(data: bytes, at: int, width: int) -> int:
    begin = at + 1 + width
    end = begin + int.from_bytes(data[at + 1 : begin], "little")
    if end > len(data):
        raise _Refused(f"holds {len(data) - begin} of the {end - begin} bytes that it announces")
    return end


def _complaint(data: bytes, at: int) -> str:
    name = refused_name(data, admitted=_STAND_INS)
    if name is not None:
        return f"asks for {name}, which no dataset needs"
    return f"holds what no dataset needs at byte {at} ({shown(data[at : at + 1])})"


def refused_name(data: bytes, *, admitted: Container[tuple[str, ...]]) -> str | None:
    """The first name that a pickle asks for without being admitted to it, for a message."""
    return next((shown(".".join(name)) for name in _names(data) if name not in admitted), None)


def _names(data: bytes) -> Iterator[tuple[str, ...]]:
    """The names that a pickle asks for, as far as it can be read; nothing is looked up."""
    texts: list[str] = []
    try:
        for opcode, value, _ in itertools.islice(pickletools.genops(data), 1000):
            if opcode.name in ("GLOBAL", "INST"):
                yield tuple(str(value).split(" ", 1))
            elif opcode.name == "STACK_GLOBAL":
                yield tuple(texts[-2:])
            elif isinstance(value, str):
                texts.append(value)
    except Exception:
        # The message then names the opcode instead.
        return


class _Unpickler(pickle.Unpickler):
    strings: list[memoryview]

    def find_class(self, module: str, name: str) -> Any:
        try:
            return _STAND_INS[module, name]
        except KeyError:
            raise _Refused(f"asks for {shown(f'{module}.{name}')}, which no dataset needs") from None

    def persistent_load(self, pid: int) -> memoryview:
        return self.strings[pid]  # the scan has put in these requests, and let no others pass


class _Name:
    """Stands for a callable: a pickle can call it, but has no way to change it."""

    __slots__ = ("_make",)

    def __init__(self, make: Callable[..., Any]) -> None:
        self._make = make

    def __call__(self, *arguments: Any) -> Any:
        return self._make(*arguments)

    def __setstate__(self, state: Any) -> NoReturn:
        raise _Refused("changes a name")


class _Dtype:
    __slots__ = ("dtype",)

    def __init__(self, code: Any, align: Any, copy: Any) -> None:
        if type(code) is not bytes or code not in _NUMBERS or (align, copy) != (0, 1):
            raise _Refused("holds an array that is not made of numbers")
        self.dtype = _NUMBERS[code]

    def __setstate__(self, state: Any) -> None:
        if state != _LITTLE_ENDIAN:
            raise _Refused("holds an array in an unknown layout")


class _Array:
    __slots__ = ("array",)
    array: Array

    def __setstate__(self, state: Any) -> None:
        version, shape, kind, fortran, content = state
        is_numbers = version == 1 and type(kind) is _Dtype and type(content) in (bytes, memoryview)
        if not is_numbers or not _is_shape(shape):
            raise _Refused("holds an array that is not made of numbers")
        if math.prod(shape) * kind.dtype.itemsize != len(content):
            raise _Refused(f"holds {len(content)} bytes for an array of {shown(shape)}")
        self.array = np.frombuffer(content, kind.dtype).reshape(shape, order="F" if fortran is True else "C")


def _is_shape(shape: Any) -> bool:
    return (
        type(shape) is tuple
        and 1 <= len(shape) <= 2
        and all(type(size) is int and size >= 0 for size in shape)
    )


class _Matrix:
    # Unlike the others a class, since the opcode that makes an object of it insists on one.
    __slots__ = ("parts",)
    parts: dict[Any, Any]

    def __setstate__(self, state: Any) -> None:
        if type(state) is not dict:
            raise _Refused("holds a matrix without parts")
        self.parts = state


def _refuse(*_arguments: Any) -> NoReturn:
    raise _Refused("calls what is not to be called")


_NDARRAY = _Name(_refuse)


def _reconstruct(kind: Any, shape: Any, code: Any) -> _Array:
    if kind is not _NDARRAY or (shape, code) != ((0,), b"b"):
        raise _Refused("holds an array of another kind")
    return _Array()


_STAND_INS: dict[tuple[str, ...], Any] = {
    ("numpy", "dtype"): _Name(_Dtype),
    ("numpy", "ndarray"): _NDARRAY,
    ("numpy.core.multiarray", "_reconstruct"): _Name(_reconstruct),
    ("scipy.sparse.csr", "csr_matrix"): _Matrix,
}

_OPCODES = re.compile(
    b"(?:%s|[tRb(}uN)\x81\x85-\x89]|[Kqh].|M..|J....){0,32}+"
    % b"|".join(
        [re.escape(f"c{module}\n{name}\n".encode()) for module, name in _STAND_INS]
        + [re.escape(b"U" + bytes([len(word)]) + word) for word in _WORDS]
    ),
    re.DOTALL,
)


def _built(found: Any) -> Unpickled:
    if type(found) is _Array:
        return found.array
    if type(found) is _Matrix:
        return _rows(found.parts)
    raise _Refused("holds neither an array nor a matrix")


def _rows(parts: dict[Any, Any]) -> Rows:
    """Every length, order and range is checked here, because compiled code will follow the indices."""
    shape = parts[b"_shape"]
    if not _is_shape(shape) or len(shape) != 2:
        raise _Refused("holds a matrix without a shape")
    indptr, indices, values = (parts[key].array for key in (b"indptr", b"indices", b"data"))
    if any(part.ndim != 1 for part in (indptr, indices, values)) or len(indptr) != shape[0] + 1:
        raise _Refused("holds a matrix whose parts do not fit together")
    _check_rows(indptr, indices, shape[1])
    if len(values) != len(indices) or values.dtype.kind != "f" or not np.isfinite(values).all():
        raise _Refused("holds a matrix whose values are not finite numbers, one for each index")
    return Rows(indptr, indices, values, shape)


def _check_rows(indptr: Array, indices: Array, columns: int) -> None:
    if indptr.dtype.kind != "i" or indices.dtype.kind != "i":
        raise _Refused("holds a matrix whose indices are not integers")
    if indptr[0] != 0 or indptr[-1] != len(indices) or (indptr[1:] < indptr[:-1]).any():
        raise _Refused("holds a matrix whose rows do not begin where the one before ends")
    if indices.size and (indices.min() < 0 or indices.max() >= columns):
        raise _Refused(f"holds a matrix with a column outside 0..{columns - 1}")
    rising = indices[1:] > indices[:-1]
    rising[indptr[(indptr > 0) & (indptr < len(indices))] - 1] = True  # from one row to the next
    if not rising.all():
        raise _Refused("holds a matrix whose rows are not in increasing order")
