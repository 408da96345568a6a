"""What comes from outside is checked once, here, and named in the error."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fastgrl.errors import ArgumentError, DtypeError, NotFiniteError, ShapeError

Array = NDArray[Any]
Dtype = np.dtype[Any] | None
Shape = tuple[int, int]

FLOATS = (np.float32, np.float64)
_PASSWORD = re.compile(r"(://[^/@:\s]*:)[^/@\s]*@")


def size(shape: tuple[int, ...]) -> str:
    """A shape as people write it.

    >>> size((3, 4))
    '3×4'
    """
    return "×".join(map(str, shape))


def shown(value: Any, limit: int = 40) -> str:
    """A value from outside as a message may show it: quoted, short, no passwords, no raw control characters.

    >>> print(shown("\x1b[2J"))
    '\\x1b[2J'
    """
    text = value if isinstance(value, str) else str(value) if isinstance(value, np.generic) else repr(value)
    text = without_passwords(text)
    cut = text if len(text) <= limit else text[:limit] + "…"
    printable = "".join(c if c.isprintable() else _escaped(c) for c in cut)
    return f"'{printable}'" if isinstance(value, str) else printable


def without_passwords(text: str) -> str:
    """A text in which addresses keep the names of users but not their passwords.

    >>> without_passwords("sftp://me:secret@host/edges cannot be read")
    'sftp://me:***@host/edges cannot be read'
    """
    return _PASSWORD.sub(r"\1***@", text) if "://" in text else text


def _escaped(character: str) -> str:
    return character.encode("unicode_escape", "surrogatepass").decode("ascii")


def native(array: Array) -> Array:
    """The same numbers in this machine's byte order."""
    return array if array.dtype.isnative else array.astype(array.dtype.newbyteorder("="))


def integer(name: str, value: Any, *, least: int, most: int | None = None) -> int:
    """`value` as a Python integer between `least` and `most`.

    >>> integer("rank", np.uint8(5), least=1)
    5
    """
    whole = isinstance(value, int | np.integer) and not isinstance(value, bool)
    if not whole or value < least or (most is not None and value > most):
        limit = "" if most is None else f" and at most {most}"
        raise ArgumentError(f"{name} must be an integer of at least {least}{limit}, got {value!r}")
    return int(value)


def finite_array(values: ArrayLike, name: str, *, ndim: int) -> Array:
    """A float32 or float64 array of `ndim` dimensions without NaN or Inf; integers become float64."""
    try:
        array = native(np.asarray(values))
    except (RuntimeError, TypeError) as error:  # tensors that are differentiated, or traced
        raise DtypeError(f"{name} cannot be read as constant numbers: {error}") from error
    if array.ndim != ndim:
        raise ShapeError(f"{name} must have {ndim} dimension{'s' * (ndim > 1)}, got shape {array.shape}")
    if array.dtype.kind in "bui":
        array = array.astype(np.float64)
    if array.dtype not in FLOATS:
        raise DtypeError(f"{name} of {array.dtype} is not supported; use float32 or float64")
    if not np.isfinite(array).all():
        where = tuple(map(int, np.argwhere(~np.isfinite(array))[0]))
        raise NotFiniteError(f"{name} contains {array[where]} at {list(where)}")
    return array


def checked_shape(shape: Any) -> Shape:
    """`(rows, columns)` as two integers of at least 0."""
    try:
        rows, columns = map(int, shape)
    except (TypeError, ValueError):
        raise ShapeError(f"a shape is (rows, columns), got {shape!r}") from None
    if rows < 0 or columns < 0:
        raise ShapeError(f"a shape cannot be negative, got {shape!r}")
    return rows, columns


def checked_dtype(dtype: Any) -> Dtype:
    """float32, float64, or None for "whatever it meets"."""
    if dtype is None:
        return None
    kind: np.dtype[Any] = np.dtype(dtype)
    if kind not in FLOATS:
        raise DtypeError(f"operators hold float32 or float64, not {kind}")
    return kind


def real_dtype(dtype: Any) -> Dtype:
    """float32 stays, other real types become float64, complex is refused."""
    kind = np.dtype(np.float64 if dtype is None else dtype)
    if kind.kind not in "buif":
        raise DtypeError(f"a matrix of {kind} is not supported; use float32 or float64")
    return np.dtype(np.float32 if kind == np.float32 else np.float64)


def common_dtype(what: str, *dtypes: Dtype) -> Dtype:
    """The one type among `dtypes`; two different ones are refused, not promoted."""
    kinds = {dtype for dtype in dtypes if dtype is not None}
    if len(kinds) > 1:
        names = " and ".join(str(dtype) for dtype in dtypes if dtype is not None)
        raise DtypeError(f"{what} have different types ({names}); convert one with .astype or dtype=")
    return kinds.pop() if kinds else None


def row_numbers(rows: Any, count: int, what: str) -> Array:
    """A slice, a boolean mask or a list of rows as row numbers from 0 to `count` - 1."""
    if isinstance(rows, slice):
        return np.arange(count)[rows]
    index = np.asarray(rows)
    if index.ndim != 1 or isinstance(rows, tuple):
        raise ShapeError(f"{what}[rows] takes a slice or a list of rows, got {rows!r}")
    if index.dtype == bool:
        if len(index) != count:
            raise ShapeError(f"the mask has {len(index)} values for {what}")
        return np.flatnonzero(index)
    if index.size and index.dtype.kind not in "ui":
        raise DtypeError(f"rows are chosen by integers or a boolean mask, not by {index.dtype}")
    outside = (index < -count) | (index >= count)
    if outside.any():
        raise ArgumentError(f"row {index[outside][0]} is outside {what}")
    return index.astype(np.intp) % max(count, 1)
