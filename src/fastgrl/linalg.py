"""The seam of NumPy: the few dense primitives that `fsvd` and the operators need.

The same seed gives the same bits for any number of threads or workers, because nothing depends on them:
rows are cut into chunks of 4096, each chunk has its own random stream and its own matrix product, and
float64 Grams of chunks are summed in one fixed binary tree over chunk numbers.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from fastgrl.checks import finite_array
from fastgrl.errors import DtypeError
from fastgrl.kernels import CSR, column_sums, transpose_block
from fastgrl.parallel import parallel_map, single_threaded_blas
from fastgrl.seams import Host, Seam, known_seam, register_seam
from fastgrl.spilling import is_mapped, release, scratch_array, scratch_zeros

CHUNK_ROWS = 4096
PROBES = 4
GROUP = 8  # columns of a basis that are left out of a combination together, if their coefficients are zero

# Below this many multiply-adds a dense pass takes less time than waking a thread.
_WORTH_A_THREAD = 30_000_000

Array = NDArray[Any]


def chunk_bounds(rows: int) -> list[tuple[int, int]]:
    """The row plan: `(begin, end)` of every chunk.

    >>> chunk_bounds(5000)
    [(0, 4096), (4096, 5000)]
    """
    return [(begin, min(begin + CHUNK_ROWS, rows)) for begin in range(0, max(rows, 1), CHUNK_ROWS)]


def tree_sum(terms: Sequence[Host]) -> Host:
    """Sum neighbours, then neighbours of those: the order depends on the number of terms alone.

    >>> float(tree_sum([np.float64(1), np.float64(2), np.float64(3)]))
    6.0
    """
    level = list(terms)
    while len(level) > 1:
        pairs = [a + b for a, b in zip(level[::2], level[1::2], strict=False)]
        level = pairs + level[len(pairs) * 2 :]
    return level[0]


Subtree = tuple[int, int]  # its level and its place there: chunks place·2^level up to the next


def subtrees(term: Callable[[int], Host], first: int, last: int, total: int) -> dict[Subtree, Host]:
    """What chunks `first` to `last` - 1 add to `tree_sum` of all `total` chunks: sums of whole subtrees.

    >>> {node: float(value) for node, value in subtrees(np.float64, 1, 5, 5).items()}
    {(0, 1): 1.0, (1, 1): 5.0, (0, 4): 4.0}
    """

    def value(level: int, place: int) -> Host:
        begin, middle = place << level, (2 * place + 1) << max(level - 1, 0)
        if level == 0:
            return term(begin)
        left = value(level - 1, 2 * place)
        return left + value(level - 1, 2 * place + 1) if middle < total else left

    found, begin = {}, first
    while begin < last:
        level = 0
        while begin % (2 << level) == 0 and begin + (1 << level) < total:
            if min(begin + (2 << level), total) > last:
                break
            level += 1
        found[level, begin >> level] = value(level, begin >> level)
        begin += 1 << level
    return found


def sum_of_subtrees(found: dict[Subtree, Host], total: int) -> Host:
    """`tree_sum` of all chunks, from what `subtrees` found of ranges that make up all of them.

    >>> float(sum_of_subtrees({(0, 0): np.float64(7)} | subtrees(np.float64, 1, 5, 5), 5))
    17.0
    """

    def value(level: int, place: int) -> Host:
        if (level, place) in found:
            return found[level, place]
        left = value(level - 1, 2 * place)
        return left + value(level - 1, 2 * place + 1) if (2 * place + 1) << (level - 1) < total else left

    return value(max(total - 1, 0).bit_length(), 0)


def sum_over_chunks(term: Callable[[int, int], Host], rows: int, work: int) -> Host:
    """`tree_sum` of `term(begin, end)` over all chunks, a few terms in memory at a time.

    A thread takes an aligned group of 2^j chunks and sums that subtree alone: the same tree, so the
    same bits, whatever j is.
    """
    if rows <= CHUNK_ROWS:
        with single_threaded_blas():
            return term(0, rows)
    groups = _groups(rows, work)
    return tree_sum(parallel_map(lambda group: tree_sum([term(*chunk) for chunk in group]), groups))


def map_chunks(function: Callable[[int, int], None], rows: int, work: int) -> None:
    """`function(begin, end)` for every chunk, in parallel when `work` multiply-adds are worth it."""
    if rows <= CHUNK_ROWS:
        with single_threaded_blas():
            return function(0, rows)

    def run(group: list[tuple[int, int]]) -> None:
        for chunk in group:
            function(*chunk)

    parallel_map(run, _groups(rows, work))


def _groups(rows: int, work: int) -> list[list[tuple[int, int]]]:
    """The chunks in groups of a power of two: all when threads are not worth waking, at most 8 otherwise."""
    bounds = chunk_bounds(rows)
    if work < _WORTH_A_THREAD:
        return [bounds]
    size = min(8, 1 << (len(bounds) // 16).bit_length())
    return [bounds[i : i + size] for i in range(0, len(bounds), size)]


@dataclass(frozen=True, eq=False)
class NumpyBasis:
    """The first `columns` columns of a tall array, and a few random combinations of them.

    The array is stored by chunks of rows, and by columns within each: `array[chunk, column, row]`. What one
    chunk needs of all columns lies together, and can be given back together when it lies on disk.
    """

    array: Array
    rows: int
    columns: int
    combinations: Array

    @classmethod
    def empty(cls, rows: int, capacity: int, dtype: Any) -> NumpyBasis:
        """No columns yet."""
        height = min(CHUNK_ROWS, max(rows, 1))
        array = scratch_array((-(-rows // height), capacity, height), dtype)
        return cls(array, rows, 0, scratch_zeros((rows, PROBES), dtype))

    def chunk(self, begin: int, end: int) -> Array:
        """The columns within one chunk of rows, without a copy."""
        return self.array[begin // CHUNK_ROWS, : self.columns, : end - begin].T

    def release(self, begin: int) -> None:
        """Give the pages of the chunk that begins there back, if they are on disk."""
        release(self.array, begin // CHUNK_ROWS, begin // CHUNK_ROWS + 1)

    @property
    def filled(self) -> Array:
        """The columns as one array, a copy."""
        return _chunk_by_chunk(self.chunk, self.rows, self.columns, self.array.dtype)


@dataclass(frozen=True, eq=False)
class BlockBasis:
    """A block whose columns are orthonormal, as a basis."""

    block: Array

    @property
    def columns(self) -> int:
        """How many there are."""
        return int(self.block.shape[1])

    @property
    def rows(self) -> int:
        """How long they are."""
        return len(self.block)

    def chunk(self, begin: int, end: int) -> Array:
        """The rows of one chunk."""
        return self.block[begin:end]

    def release(self, begin: int) -> None:
        """Give the pages of a chunk back."""
        release(self.block, begin, begin + CHUNK_ROWS)


def _chunk_by_chunk(chunk: Callable[[int, int], Array], rows: int, columns: int, dtype: Any) -> Array:
    out = scratch_array((rows, columns), dtype)

    def copy(begin: int, end: int) -> None:
        out[begin:end] = chunk(begin, end)
        release(out, begin, end)

    map_chunks(copy, rows, 0)
    return out


def _random(rows: int, columns: int, dtype: Any, seed: int, stream: int) -> Array:
    """Standard normal numbers; chunk c draws from Philox(key=(seed, c), counter=stream)."""
    block = scratch_array((rows, columns), dtype)

    def fill(begin: int, end: int) -> None:
        draw_chunk(block[begin:end], seed, stream, begin // CHUNK_ROWS)
        release(block, begin, end)

    map_chunks(fill, rows, 8 * block.size)
    return block


def draw_chunk(out: Array, seed: int, stream: int, chunk: int) -> None:
    """Fill the rows of a chunk with its own standard normal numbers."""
    bits = np.random.Philox(key=np.array([seed, chunk], np.uint64), counter=[0, 0, 0, stream])
    np.random.Generator(bits).standard_normal(dtype=out.dtype.type, out=out)


def _append(basis: NumpyBasis, block: Array) -> NumpyBasis:
    begin, total, array = basis.columns, basis.columns + block.shape[1], basis.array
    if total > array.shape[1]:
        array = scratch_array((len(array), max(total, 2 * array.shape[1]), array.shape[2]), array.dtype)
        for number, (chunk, full) in enumerate(zip(array, basis.array, strict=True)):
            chunk[:begin] = full[:begin]
            basis.release(number * CHUNK_ROWS)
            release(array, number, number + 1)
    gamma = mixing(begin, block.shape[1]).astype(block.dtype)
    before, combinations = basis.combinations, scratch_array(basis.combinations.shape, block.dtype)

    def copy(first: int, last: int) -> None:
        number = first // CHUNK_ROWS
        transpose_block(block[first:last], array[number, begin:total, : last - first])
        np.add(before[first:last], chunk_product(block[first:last], gamma), out=combinations[first:last])
        release(array, number, number + 1)
        for tall in (block, before, combinations):
            release(tall, first, last)

    map_chunks(copy, basis.rows, 8 * block.size)
    return NumpyBasis(array, basis.rows, total, combinations)


def _columns(basis: NumpyBasis, first: int, last: int) -> Array:
    def chunk(begin: int, end: int) -> Array:
        return basis.chunk(begin, end)[:, first:last]

    return _chunk_by_chunk(chunk, basis.rows, last - first, basis.array.dtype)


@functools.cache
def mixing(begin: int, count: int) -> Host:
    """Random coefficients for columns `begin` to `begin` + `count` of a basis."""
    return np.random.Generator(np.random.Philox(key=begin)).standard_normal((count, PROBES))


def _grams(basis: NumpyBasis | BlockBasis, Y: Array) -> Host:
    """[Q, Y]'Y: Y'Y in float64; Q'Y in the block's own precision within a chunk, as it corrects itself."""

    def term(begin: int, end: int) -> Host:
        both = chunk_grams(basis.chunk(begin, end), Y[begin:end])
        basis.release(begin)
        release(Y, begin, end)
        return both

    return sum_over_chunks(term, Y.shape[0], Y.size * (basis.columns + Y.shape[1]))


def chunk_product(a: Array, b: Array, out: Array | None = None) -> Array:
    """A B of one chunk, without the warning of an invalid operation.

    OpenBLAS computes with numbers next to those it was given where a sum has five terms of float32: it drops
    the results, but the processor remembers if any was invalid.
    """
    with np.errstate(invalid="ignore"):
        ab: Array = np.matmul(a, b, out=out)
    return ab


def chunk_grams(q: Array, y: Array) -> Host:
    """[Q, Y]'Y of one chunk."""
    wide = _as_float64(y, "right")
    return np.concatenate([chunk_product(q.T, y), chunk_product(wide.T, wide)])


def chunk_cross(x: Array, y: Array) -> Host:
    """X'Y of one chunk, in float64."""
    return chunk_product(_as_float64(x, "left").T, _as_float64(y, "right"))


def _cross(X: Array, Y: Array) -> Host:
    def term(begin: int, end: int) -> Host:
        product = chunk_cross(X[begin:end], Y[begin:end])
        release(X, begin, end)
        release(Y, begin, end)
        return product

    return sum_over_chunks(term, Y.shape[0], Y.size * X.shape[1])


_scratch = threading.local()


def _as_float64(chunk: Array, use: str) -> Array:
    """The chunk in float64, float32 in memory that the thread keeps: fresh pages cost more than the copy."""
    if chunk.dtype == np.float64:
        return chunk
    buffer = getattr(_scratch, use, None)
    if buffer is None or buffer.size < chunk.size:
        buffer = np.empty(chunk.size)
        setattr(_scratch, use, buffer)
    order: Literal["C", "F"] = "F" if chunk.strides[0] < chunk.strides[1] else "C"
    wide: Array = buffer[: chunk.size].reshape(chunk.shape, order=order)
    np.copyto(wide, chunk)
    return wide


def _combine(basis: NumpyBasis, C: Host, Y: Array, D: Host, *, overwrite: bool = False) -> Array:
    C, D = C.astype(Y.dtype, copy=False), D.astype(Y.dtype, copy=False)
    out, used = Y if overwrite else scratch_array((Y.shape[0], D.shape[1]), Y.dtype), used_columns(C)

    def rows(begin: int, end: int) -> None:
        combine_chunk(basis.chunk(begin, end), C, Y[begin:end], D, used, out[begin:end])
        basis.release(begin)
        release(Y, begin, end)
        release(out, begin, end)

    columns = sum(last - first for first, last in used)
    map_chunks(rows, out.shape[0], out.size * (columns + Y.shape[1]))
    return out


def combine_chunk(q: Array, C: Host, y: Array, D: Host, used: list[tuple[int, int]], out: Array) -> None:
    """`out` ← Q C + Y D of one chunk, where only the `used` rows of C are not zero."""
    out[...] = chunk_product(y, D)
    for first, last in used:
        out += chunk_product(q[:, first:last], C[first:last])


def used_columns(C: Host) -> list[tuple[int, int]]:
    """Ranges of rows of C that are not all zero, by whole groups."""
    starts = np.arange(0, len(C), GROUP)
    used = np.maximum.reduceat(np.abs(C).max(axis=1, initial=0), starts) > 0 if len(C) else np.zeros(0, bool)
    edges = np.flatnonzero(np.diff(used, prepend=False, append=False))
    groups = zip(edges[::2].tolist(), edges[1::2].tolist(), strict=True)
    return [(GROUP * first, min(GROUP * last, len(C))) for first, last in groups]


def _span(basis: NumpyBasis | BlockBasis, C: Host) -> Array:
    C = C.astype(basis.chunk(0, 0).dtype, copy=False)
    out = scratch_array((basis.rows, C.shape[1]), C.dtype)

    def rows(begin: int, end: int) -> None:
        chunk_product(basis.chunk(begin, end), C, out=out[begin:end])
        basis.release(begin)
        release(out, begin, end)

    map_chunks(rows, basis.rows, out.size * basis.columns)
    return out


def _matmul(a: Array, X: Array) -> Array:
    out = scratch_array((a.shape[0], X.shape[1]), np.result_type(a, X))

    def rows(begin: int, end: int) -> None:
        chunk_product(a[begin:end], X, out=out[begin:end])
        release(a, begin, end)
        release(out, begin, end)

    map_chunks(rows, out.shape[0], a.size * X.shape[1])
    return out


def _times(Y: Array, D: Host, *, overwrite: bool = False) -> Array:
    D = D.astype(Y.dtype, copy=False)
    if not overwrite:
        return _matmul(Y, D)

    def rows(begin: int, end: int) -> None:
        Y[begin:end] = chunk_product(Y[begin:end], D)
        release(Y, begin, end)

    map_chunks(rows, Y.shape[0], Y.size * D.shape[1])
    return Y


def _by_panels(product: Callable[[Array], Array], X: Array, rows: int, width: int, consume: bool) -> Array:
    Y = X if consume and rows == X.shape[0] else scratch_array((rows, X.shape[1]), X.dtype)
    for begin in range(0, X.shape[1], width):
        part = slice(begin, begin + width)
        _copy_rows(Y[:, part], product(_in_memory(X, part)), Y)
    return Y


def _in_memory(X: Array, columns: slice) -> Array:
    """Some columns of a block: a view of them, or a copy if the block is on disk."""
    if not is_mapped(X):
        return X[:, columns]
    panel = np.empty((X.shape[0], len(range(*columns.indices(X.shape[1])))), X.dtype)
    return _copy_rows(panel, X[:, columns], X)


def _copy_rows(out: Array, rows: Array, on_disk: Array) -> Array:
    """`out[:] = rows`, giving back the pages of the array on disk that either is a part of."""
    for begin, end in chunk_bounds(len(out)) if is_mapped(on_disk) else [(0, len(out))]:
        out[begin:end] = rows[begin:end]
        release(on_disk, begin, end)
    return out


def _scaled(Y: Array, d: Any) -> Array:
    def rows(begin: int, end: int) -> None:
        Y[begin:end] *= d
        release(Y, begin, end)

    map_chunks(rows, Y.shape[0], Y.size)
    return Y


def _column_sums(X: Array) -> Host:
    def term(begin: int, end: int) -> Host:
        sums = column_sums(X[begin:end])
        release(X, begin, end)
        return sums

    return sum_over_chunks(term, X.shape[0], X.size)


def _repeat_row(rows: int, row: Host, like: Array) -> Array:
    return np.repeat(row.astype(like.dtype, copy=False)[None], rows, axis=0)


def _peak(Y: Array) -> float:
    largest, smallest = _extremes(Y)
    return float(max(largest.max(initial=0.0), -smallest.min(initial=0.0)))


def _extremes(Y: Array) -> tuple[Array, Array]:
    """The largest and the smallest entry of every column."""
    found = []
    for begin, end in chunk_bounds(len(Y)):
        found.append((Y[begin:end].max(0, initial=-np.inf), Y[begin:end].min(0, initial=np.inf)))
        release(Y, begin, end)
    largest, smallest = zip(*found, strict=True)
    return np.max(largest, axis=0), np.min(smallest, axis=0)


def _signs(U: Array) -> Host:
    """±1: the sign of the entry of largest absolute value in each column, plus if both signs have it."""
    largest, smallest = _extremes(U)
    return np.where(largest < -smallest, -1.0, 1.0)


def _inner(X: Array, Y: Array) -> Array:
    return _cross(X, Y).astype(np.result_type(X, Y), copy=False)


def _spread_rows(Y: Array, rows: Array, count: int) -> Array:
    spread = np.zeros((count, Y.shape[1]), Y.dtype)
    np.add.at(spread, rows, Y)  # adds, because a row may be asked for twice
    return spread


def _like(returned: Any, block: Array) -> Array:
    Y = np.asarray(returned)
    if Y.dtype.kind not in "buif":
        raise DtypeError(f"a product must be real, but its function returned {Y.dtype}")
    return Y.astype(block.dtype, copy=False)


def _unit_peaks(Y: Array, dtype: Any) -> Array:
    peaks = np.abs(Y).max(0, initial=0)
    return (Y / np.where(peaks > 0, peaks, 1)).astype(dtype)


NUMPY = Seam(
    name="NumPy",
    random=_random,
    basis=NumpyBasis.empty,
    append=_append,
    as_basis=BlockBasis,
    columns=_columns,
    grams=_grams,
    probes=lambda basis, Y: _grams(BlockBasis(basis.combinations), Y),
    combine=_combine,
    span=_span,
    cross=_cross,
    times=_times,
    by_panels=_by_panels,
    peak=_peak,
    signs=_signs,
    unit_peaks=_unit_peaks,
    scaled=_scaled,
    sync=lambda block: block,
    matmul=_matmul,
    inner=_inner,
    column_sums=_column_sums,
    repeat_row=_repeat_row,
    take_rows=lambda Y, rows: Y[rows],
    spread_rows=_spread_rows,
    concatenate=lambda blocks, axis: np.concatenate(blocks, axis=axis),
    transposed=lambda a: a.T,
    is_dense=lambda a: isinstance(a, np.ndarray),
    kind=lambda a: a.dtype,
    checked=lambda a, name, ndim: finite_array(a, name, ndim=ndim),
    like=_like,
    put=lambda a, dtype: a.astype(dtype, copy=False),
    put_sparse=lambda csr, _: csr,
    host=np.asarray,
)

register_seam(np.ndarray, lambda _: NUMPY)
register_seam(CSR, lambda _: NUMPY)


def seam_of(*values: Any) -> Seam:
    """The seam of the first array among `values`; NumPy's when none is of a registered type.

    >>> seam_of(None, np.ones(2)) is NUMPY
    True
    """
    return next(filter(None, map(known_seam, values)), NUMPY)


def checked_array(values: Any, name: str, *, ndim: int) -> Any:
    """An array of any library, if its numbers are finite and float32 or float64 (integers become that)."""
    return seam_of(values).checked(values, name, ndim)
