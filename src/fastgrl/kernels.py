"""Sparse rows times a dense block: the compiled kernel, or SciPy where it was not built.

`CSR` holds what the kernel reads. Whatever comes from outside is checked in full on the way in: an index
out of range would otherwise end the process, or give a wrong sum in silence.
"""

from __future__ import annotations

import functools
import importlib
import itertools
import os
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from fastgrl.checks import FLOATS, native, size
from fastgrl.errors import ArgumentError, DtypeError, NotFiniteError, ShapeError
from fastgrl.parallel import parallel_map, thread_count
from fastgrl.spilling import is_mapped, release, row_ranges, spilling
from fastgrl.transposition import transposed_rows

Array = NDArray[Any]

# Below this many multiply-adds a product takes less time than waking a thread.
WORTH_A_THREAD = 4_000_000
_PIECES_PER_THREAD = 4


@dataclass(frozen=True, eq=False)
class CSR:
    """Compressed sparse rows with 64-bit row pointers.

    `values` None means that every entry is 1; `dtype` is then that of the ones it was made from, or None
    if they were integers or booleans.
    """

    indptr: Array
    indices: Array
    values: Array | None
    shape: tuple[int, int]
    dtype: np.dtype[Any] | None

    @property
    def num_stored(self) -> int:
        """Stored entries."""
        return int(self.indptr[-1])

    @property
    def mapped(self) -> bool:
        """Whether entries lie in a memory-mapped file, of which a range of rows at a time is to be used."""
        return is_mapped(self.indices) or is_mapped(self.values)

    @property
    def transposed(self) -> CSR:
        """The transpose, found once; the matrix itself when it is symmetric."""
        if "_transposed" not in self.__dict__:
            other = transpose(self)
            if _same(self, other):
                return self.known_symmetric()
            self.__dict__["_transposed"] = other
            other.__dict__["_transposed"] = self  # or transposing back would build a third copy
        # None stands for the matrix itself: a matrix that held itself would outlive its last user.
        found: CSR | None = self.__dict__["_transposed"]
        return self if found is None else found

    def known_symmetric(self) -> CSR:
        """Say that the matrix is its own transpose, so that nobody has to look."""
        self.__dict__["_transposed"] = None
        return self

    @functools.cached_property
    def as_scipy(self) -> sp.csr_array:
        """The same matrix for SciPy's own product."""
        values = np.ones(self.num_stored, np.float32) if self.values is None else self.values
        return sp.csr_array((values, self.indices, self.indptr), shape=self.shape)


class RowsElsewhere(ABC):
    """A sparse matrix whose rows lie on other machines, where they are multiplied by."""

    shape: tuple[int, int]
    dtype: np.dtype[Any] | None

    @property
    @abstractmethod
    def transposed(self) -> RowsElsewhere:
        """The transpose; the matrix itself when it is symmetric."""

    @abstractmethod
    def scaled(self, kind: np.dtype[Any], *, left: Any = None, right: Any = None) -> RowsElsewhere:
        """diag(left) A diag(right), with values of that type."""

    @abstractmethod
    def multiply(self, X: Any, *, row_scale: Any = None, shift: Any = None) -> Any:
        """As the function of the same name."""

    @abstractmethod
    def polynomial(
        self,
        X: Any,
        coefficients: Array,
        *,
        row_scale: Any,
        walked: bool,
        extra: Any,
        post: Any,
        shift: Any,
    ) -> Any:
        """As the function of the same name in `polynomials`."""


def transpose(matrix: CSR) -> CSR:
    """The transpose as a copy that is not remembered."""
    if matrix.mapped and spilling():
        return _transpose_on_disk(matrix)
    compiled = compiled_module()
    if compiled is not None and matrix.indices.dtype == np.int32 and _is_float32(matrix.values):
        return _transpose_by_threads(matrix, compiled)
    values = np.ones(matrix.num_stored, np.int8) if matrix.values is None else matrix.values
    # SciPy widens indices to the type of the row pointers, which would double what they take.
    short = matrix.indices.dtype == np.int32 and matrix.num_stored < 2**31
    indptr = matrix.indptr.astype(np.int32) if short else matrix.indptr
    columns = sp.csc_array((values, matrix.indices, indptr), shape=matrix.shape[::-1])
    rows = columns.tocsr()
    kept = None if matrix.values is None else rows.data
    return CSR(rows.indptr.astype(np.int64), rows.indices, kept, matrix.shape[::-1], matrix.dtype)


def _transpose_on_disk(matrix: CSR) -> CSR:
    rows, columns = matrix.shape
    parts = transposed_rows(matrix.indptr, matrix.indices, matrix.values, num_columns=columns)
    return CSR(*parts, (columns, rows), matrix.dtype)


def _is_float32(values: Array | None) -> bool:
    return values is not None and values.dtype == np.float32


def _transpose_by_threads(matrix: CSR, compiled: ModuleType) -> CSR:
    """Each thread counts, then places, the entries of its own range of rows."""
    rows, columns = matrix.shape
    pieces = min(thread_count(), max(1, rows))
    bounds = [(rows * i // pieces, rows * (i + 1) // pieces) for i in range(pieces)]
    counts = np.zeros((pieces, columns), np.int64)

    def count(piece: int) -> None:
        begin, end = (int(matrix.indptr[row]) for row in bounds[piece])
        compiled.count_columns(matrix.indices, counts[piece], begin, end)

    parallel_map(count, range(pieces))
    indptr = np.concatenate([np.zeros(1, np.int64), np.cumsum(counts.sum(0))])
    offsets = np.cumsum(counts, axis=0) - counts + indptr[:-1]
    indices, values = np.empty(matrix.num_stored, np.int32), np.empty(matrix.num_stored, np.float32)

    def place(piece: int) -> None:
        compiled.scatter_columns(
            matrix.indptr, matrix.indices, matrix.values, offsets[piece], indices, values, *bounds[piece]
        )

    parallel_map(place, range(pieces))
    return CSR(indptr, indices, values, (columns, rows), matrix.dtype)


def _same(a: CSR, b: CSR) -> bool:
    if a.shape != b.shape or not np.array_equal(a.indptr, b.indptr):
        return False
    return _same_entries(a.indices, b.indices) and _same_entries(a.values, b.values)


def _same_entries(a: Array | None, b: Array | None, at_once: int = 1 << 22) -> bool:
    if a is None or b is None:
        return a is b
    for begin in range(0, len(a), at_once):
        end = begin + at_once
        same = np.array_equal(a[begin:end], b[begin:end])
        release(a, begin, end)
        release(b, begin, end)
        if not same:
            return False
    return True


def csr_from_scipy(matrix: Any) -> CSR:
    """Check any SciPy sparse array or matrix in full and hold it as `CSR`, without copying float values.

    Values that are all 1 are dropped: the kernel then reads a third to a half fewer bytes.
    """
    _check_structure(matrix)
    rows = matrix.tocsr() if matrix.format in _COMPRESSED else checked_coordinates(matrix).tocsr()
    values = native(rows.data[: rows.indptr[-1]])
    if values.dtype.kind not in "bui" and values.dtype not in FLOATS:
        raise DtypeError(f"a sparse matrix of {values.dtype} is not supported; use float32 or float64")
    if not np.isfinite(values).all():
        raise NotFiniteError(f"the {size(rows.shape)} sparse matrix contains NaN or Inf")
    ones = bool((values == 1).all())
    if values.dtype.kind in "bui" and not ones:
        values = values.astype(np.float64)
    dtype = None if values.dtype.kind in "bui" else values.dtype
    index = rows.indices.dtype if rows.indices.dtype in (np.int32, np.int64) else np.int64
    indices = np.ascontiguousarray(rows.indices[: rows.indptr[-1]], dtype=index)
    shape = (int(rows.shape[0]), int(rows.shape[1]))
    kept = None if ones else np.ascontiguousarray(values)
    return CSR(rows.indptr.astype(np.int64), indices, kept, shape, dtype)


_COMPRESSED = ("csr", "csc", "bsr")


def _check_structure(matrix: Any) -> None:
    """Row pointers, lengths and index ranges of a compressed format, before compiled code follows them."""
    if matrix.ndim != 2:
        raise ShapeError(f"a sparse matrix has two dimensions, got shape {matrix.shape}")
    if matrix.format not in _COMPRESSED:
        return
    what = f"the {size(matrix.shape)} {matrix.format} matrix"
    major, minor = matrix.shape[::-1] if matrix.format == "csc" else matrix.shape
    if matrix.format == "bsr":
        major, minor = major // matrix.blocksize[0], minor // matrix.blocksize[1]
    indptr = _as_indices(matrix.indptr, f"{what}: indptr")
    if len(indptr) != major + 1 or indptr[0] != 0 or (indptr[1:] < indptr[:-1]).any():
        raise ShapeError(f"{what}: indptr must hold {major + 1} values that start at 0 and never fall")
    if len(matrix.indices) < indptr[-1] or len(matrix.data) < indptr[-1]:
        raise ShapeError(f"{what}: indptr ends at {indptr[-1]}, beyond the stored entries")
    _check_range(matrix.indices[: indptr[-1]], minor, f"{what}: index")


def checked_coordinates(matrix: Any) -> Any:
    """Any other format as coordinates within the shape."""
    what = f"the {size(matrix.shape)} {matrix.format} matrix"
    try:
        coordinates = matrix.tocoo()
    except ValueError as error:
        raise ShapeError(f"{what}: {error}") from None
    if not len(coordinates.row) == len(coordinates.col) == len(coordinates.data):
        raise ShapeError(f"{what}: row, col and data have different lengths")
    _check_range(coordinates.row, matrix.shape[0], f"{what}: row index")
    _check_range(coordinates.col, matrix.shape[1], f"{what}: column index")
    return coordinates


def _check_range(indices: Array, limit: int, what: str) -> None:
    numbers = _as_indices(indices, what)
    if numbers.size and (numbers.min() < 0 or numbers.max() >= limit):
        bad = numbers[(numbers < 0) | (numbers >= limit)][0]
        raise ShapeError(f"{what} {bad} is outside 0..{limit - 1}")


def _as_indices(values: Array, what: str) -> Array:
    if values.dtype.kind not in "ui":
        raise DtypeError(f"{what} must be integers, not {values.dtype}")
    return values if values.dtype in (np.int32, np.int64) else values.astype(np.int64)


def multiply(matrix: CSR | RowsElsewhere, X: Any, *, row_scale: Any = None, shift: Any = None) -> Any:
    """`diag(row_scale) matrix X + 1 shift'` for a two-dimensional float32 or float64 block `X`.

    >>> eye = csr_from_scipy(sp.eye_array(2, format="csr"))
    >>> multiply(eye, np.array([[1.0], [2.0]]), row_scale=np.array([10.0, 1.0]))
    array([[10.], [ 2.]])
    """
    if isinstance(matrix, RowsElsewhere):
        return matrix.multiply(X, row_scale=row_scale, shift=shift)
    parts = (matrix.dtype, None if row_scale is None else row_scale.dtype)
    dtype = np.result_type(X.dtype, *(part for part in parts if part is not None))
    X = np.ascontiguousarray(X, dtype=dtype)
    scale, shift = (
        None if part is None else np.ascontiguousarray(part, dtype=dtype) for part in (row_scale, shift)
    )
    if _chosen_kernel() == "scipy":
        return _finished(_multiply_by_scipy(matrix, X, dtype), scale, shift)
    Y = np.empty((matrix.shape[0], X.shape[1]), dtype)
    pass_over(matrix, scale, X, Y, **({} if shift is None else {"shift": shift}))
    return Y


def pass_over(matrix: CSR, scale: Array | None, X: Array, Y: Array, **added: Any) -> None:
    """Y ← diag(scale) matrix X, and what is `added` as the compiled kernel takes it, on all threads."""
    compiled, use_avx2 = compiled_kernel()

    def rows(bounds: tuple[int, int]) -> None:
        compiled.multiply_rows(
            matrix.indptr, matrix.indices, matrix.values, scale, X, Y, *bounds, use_avx2, **added
        )

    for part in mapped_parts(matrix):
        parallel_map(rows, _row_ranges(matrix, X.shape[1], *part))


def _finished(Y: Array, scale: Array | None, shift: Array | None) -> Array:
    Y = Y if scale is None else Y * scale[:, None]
    return Y if shift is None else Y + shift


def mapped_parts(matrix: CSR) -> Iterator[tuple[int, int]]:
    """Ranges of rows of a memory-mapped matrix, each given back when the next is asked for; else all rows."""
    if not matrix.mapped:
        yield 0, matrix.shape[0]
        return
    entry = matrix.indices.itemsize + (0 if matrix.values is None else matrix.values.itemsize)
    for begin, end in row_ranges(matrix.indptr, entry):
        yield begin, end
        stored = int(matrix.indptr[begin]), int(matrix.indptr[end])
        release(matrix.indices, *stored)
        release(matrix.values, *stored)


def _multiply_by_scipy(matrix: CSR, X: Array, dtype: np.dtype[Any]) -> Array:
    if not matrix.mapped:
        return np.asarray(matrix.as_scipy @ X, dtype=dtype)
    Y = np.empty((matrix.shape[0], X.shape[1]), dtype)
    for begin, end in mapped_parts(matrix):
        stored = slice(int(matrix.indptr[begin]), int(matrix.indptr[end]))
        values = None if matrix.values is None else matrix.values[stored]
        pointers = matrix.indptr[begin : end + 1] - matrix.indptr[begin]
        part = CSR(pointers, matrix.indices[stored], values, (end - begin, matrix.shape[1]), matrix.dtype)
        Y[begin:end] = part.as_scipy @ X
    return Y


def _row_ranges(matrix: CSR, columns: int, begin: int, end: int) -> list[tuple[int, int]]:
    """Rows `begin` to `end` in ranges with about equally many stored entries."""
    first, threads = int(matrix.indptr[begin]), thread_count()
    stored = int(matrix.indptr[end]) - first
    if threads == 1 or stored * columns < WORTH_A_THREAD:
        return [(begin, end)]
    pieces = threads * _PIECES_PER_THREAD
    cuts = np.searchsorted(matrix.indptr, first + stored * np.arange(1, pieces) // pieces)
    bounds = [begin, *map(int, cuts.clip(begin, end)), end]
    return [(a, b) for a, b in itertools.pairwise(bounds) if a < b]


def column_sums(X: Array) -> Array:
    """The sum of each column in float64, row after row.

    >>> column_sums(np.array([[1.0, 2.0], [3.0, 4.0]], np.float32))
    array([4., 6.])
    """
    compiled = compiled_module()
    if compiled is None or X.dtype not in FLOATS or X.strides[1] != X.itemsize:
        return np.asarray(X.sum(0, dtype=np.float64))
    sums = np.empty(X.shape[1])
    compiled.column_sums(X, sums)
    return sums


def transpose_block(X: Array, out: Array) -> None:
    """`out[:] = X.T`; rows of either lie together in memory.

    >>> out = np.empty((1, 2))
    >>> transpose_block(np.array([[1.0], [2.0]]), out)
    >>> out
    array([[1., 2.]])
    """
    compiled = compiled_module()
    plain = all(part.strides[1] == part.itemsize for part in (X, out)) and X.dtype == out.dtype
    if compiled is None or not plain or X.dtype not in FLOATS:
        out[:] = X.T
    else:
        compiled.transpose_block(X, out)


@functools.cache
def _compiled() -> ModuleType | None:
    return _import_kernel()[0]


def compiled_module() -> ModuleType | None:
    """The compiled module, or None where it was not built or FASTGRL_KERNEL=scipy turns it off."""
    return None if _chosen_kernel() == "scipy" else _compiled()


def compiled_kernel() -> tuple[ModuleType, bool]:
    """The compiled module, where there is one, and whether it is to use wide instructions."""
    compiled = _compiled()
    assert compiled is not None
    return compiled, _chosen_kernel() == "avx2"


def _import_kernel() -> tuple[ModuleType | None, str]:
    """The compiled module, or None and why."""
    try:
        return importlib.import_module("fastgrl._kernels"), ""
    except ModuleNotFoundError:
        return None, "the compiled kernel was not built"
    except ImportError as error:
        return None, f"the compiled kernel cannot be loaded: {error}"


@functools.cache
def _chosen_kernel() -> str:
    """The fastest kernel there is, "avx2", "portable" or "scipy", unless FASTGRL_KERNEL names another."""
    compiled = _compiled()
    available = ["scipy"] if compiled is None else ["avx2"] * compiled.has_avx2() + ["portable", "scipy"]
    wanted = os.environ.get("FASTGRL_KERNEL", "auto")
    if wanted in ("auto", ""):
        return available[0]
    if wanted not in available:
        raise ArgumentError(
            f"FASTGRL_KERNEL={wanted} is not available here; choose from {', '.join(available)}"
        )
    return wanted


@dataclass(frozen=True)
class KernelInfo:
    """Which sparse kernel runs: its name `kernel`, how many `threads` it has, and the `reason` for it."""

    kernel: str
    threads: int
    reason: str

    def __str__(self) -> str:
        return f"{self.kernel} kernel, {self.threads} threads ({self.reason})"


def kernel_info() -> KernelInfo:
    """Say which sparse kernel runs here, on how many threads, and why; `print` it for one line of words.

    "avx2" and "portable" are compiled, "scipy" is what runs where no compiler was at hand. The environment
    variable FASTGRL_KERNEL chooses one by name.

    >>> fg.kernel_info().kernel in {"avx2", "portable", "scipy"}
    True
    """
    kernel = _chosen_kernel()
    if kernel == "scipy":
        reason = _import_kernel()[1] or "FASTGRL_KERNEL=scipy"
        return KernelInfo(kernel, 1, f"{reason}; products go through SciPy on one thread")
    instructions = "AVX2 and FMA instructions" if kernel == "avx2" else "instructions every CPU has"
    return KernelInfo(kernel, thread_count(), f"compiled, {instructions}")
