"""The seam: the few dense primitives that `fsvd` and the operators need, one value per array library.

A *block* is a tall dense array, a *basis* a growing set of orthonormal columns. Everything small
(k×k) is a float64 NumPy array on the host.

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

from fastgrl.parallel import parallel_map

CHUNK_ROWS = 4096
PROBES = 4

# Below this many multiply-adds a dense pass takes less time than waking a thread.
_WORTH_A_THREAD = 30_000_000

Array = NDArray[Any]
Host = NDArray[np.floating[Any]]
Block = Any
Basis = Any


@dataclass(frozen=True)
class Seam:
    """What an array library must offer; `Q` is a basis, `Y` a block, capitals otherwise k×k on the host."""

    random: Callable[..., Block]  # (rows, columns, dtype, seed, stream): standard normal numbers
    basis: Callable[..., Basis]  # (rows, capacity, dtype): no columns yet
    append: Callable[[Basis, Block], Basis]
    as_basis: Callable[[Block], Basis]  # orthonormal columns, taken over
    columns: Callable[[Basis, int, int], Block]
    grams: Callable[[Basis, Block], Host]  # [Q, Y]'Y
    probes: Callable[[Basis, Block], Host]  # [QΓ, Y]'Y for a few random columns Γ
    combine: Callable[..., Block]  # (Q, C, Y, D): Q C + Y D; `overwrite` allows it to go to Y's memory
    span: Callable[[Basis, Host], Block]  # Q C
    cross: Callable[[Block, Block], Host]  # X'Y
    times: Callable[..., Block]  # (Y, D): Y D, with `overwrite` likewise
    matmul: Callable[[Any, Block], Block]  # a dense matrix times a block
    by_panels: Callable[..., Block]  # (product, X, rows, width, consume): `width` columns at a time
    column_sums: Callable[[Block], Host]
    repeat_row: Callable[[int, Host, Block], Block]  # 1 row', of the block's kind
    stack_rows: Callable[[Sequence[Block]], Block]
    peak: Callable[[Block], float]  # largest absolute entry
    signs: Callable[[Block], Host]  # sign of each column's largest entry
    sync: Callable[[Block], Block]  # the block must exist now


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


def sum_over_chunks(term: Callable[[int, int], Host], rows: int, work: int) -> Host:
    """`tree_sum` of `term(begin, end)` over all chunks, a few terms in memory at a time.

    A thread takes an aligned group of 2^j chunks and sums that subtree alone: the same tree, so the
    same bits, whatever j is.
    """
    bounds = chunk_bounds(rows)
    size = _group_size(len(bounds), work)
    groups = [bounds[i : i + size] for i in range(0, len(bounds), size)]
    return tree_sum(parallel_map(lambda group: tree_sum([term(*chunk) for chunk in group]), groups))


def map_chunks(function: Callable[[int, int], None], rows: int, work: int) -> None:
    """`function(begin, end)` for every chunk, in parallel when `work` multiply-adds are worth it."""
    bounds = chunk_bounds(rows)
    size = _group_size(len(bounds), work)
    groups = [bounds[i : i + size] for i in range(0, len(bounds), size)]

    def run(group: list[tuple[int, int]]) -> None:
        for chunk in group:
            function(*chunk)

    parallel_map(run, groups)


def _group_size(chunks: int, work: int) -> int:
    """A power of two: all chunks when threads are not worth waking, at most 8 otherwise."""
    if work < _WORTH_A_THREAD:
        return 1 << max(0, chunks - 1).bit_length()
    return min(8, 1 << max(0, (chunks // 16)).bit_length())


@dataclass(frozen=True, eq=False)
class NumpyBasis:
    """The first `columns` columns of an array stored by columns, and a few random combinations of them."""

    array: Array
    columns: int
    combinations: Array

    @property
    def filled(self) -> Array:
        """The orthonormal columns, without a copy."""
        return self.array[:, : self.columns]


def _random(rows: int, columns: int, dtype: Any, seed: int, stream: int) -> Array:
    """Standard normal numbers; chunk c draws from Philox(key=(seed, c), counter=stream)."""
    block = np.empty((rows, columns), dtype)

    def fill(begin: int, end: int) -> None:
        key = np.array([seed, begin // CHUNK_ROWS], np.uint64)
        bits = np.random.Philox(key=key, counter=[0, 0, 0, stream])
        np.random.Generator(bits).standard_normal(dtype=block.dtype.type, out=block[begin:end])

    map_chunks(fill, rows, 8 * block.size)
    return block


def _append(basis: NumpyBasis, block: Array) -> NumpyBasis:
    total = basis.columns + block.shape[1]
    array = basis.array
    if total > array.shape[1]:
        array = np.empty((array.shape[0], max(total, 2 * array.shape[1])), array.dtype, order="F")
        array[:, : basis.columns] = basis.filled
    array[:, basis.columns : total] = block
    gamma = _gamma(basis.columns, block.shape[1]).astype(block.dtype)
    return NumpyBasis(array, total, basis.combinations + _matmul(block, gamma))


@functools.cache
def _gamma(begin: int, count: int) -> Host:
    """Random coefficients for columns `begin` to `begin` + `count` of a basis."""
    return np.random.Generator(np.random.Philox(key=begin)).standard_normal((count, PROBES))


def _grams(Q: Array, Y: Array) -> Host:
    """[Q, Y]'Y: Y'Y in float64; Q'Y in the block's own precision within a chunk, as it corrects itself."""

    def term(begin: int, end: int) -> Host:
        y = Y[begin:end]
        wide = _as_float64(y, "right")
        return np.concatenate([Q[begin:end].T @ y, wide.T @ wide])

    return sum_over_chunks(term, Y.shape[0], Y.size * (Q.shape[1] + Y.shape[1]))


def _cross(X: Array, Y: Array) -> Host:
    def term(begin: int, end: int) -> Host:
        return _as_float64(X[begin:end], "left").T @ _as_float64(Y[begin:end], "right")

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
    Q = basis.filled
    C, D = C.astype(Y.dtype, copy=False), D.astype(Y.dtype, copy=False)
    out = Y if overwrite else np.empty((Y.shape[0], D.shape[1]), Y.dtype)

    def rows(begin: int, end: int) -> None:
        out[begin:end] = Y[begin:end] @ D
        if Q.shape[1]:
            out[begin:end] += Q[begin:end] @ C

    map_chunks(rows, out.shape[0], out.size * (Q.shape[1] + Y.shape[1]))
    return out


def _matmul(a: Array, X: Array) -> Array:
    out = np.empty((a.shape[0], X.shape[1]), np.result_type(a, X))

    def rows(begin: int, end: int) -> None:
        np.matmul(a[begin:end], X, out=out[begin:end])

    map_chunks(rows, out.shape[0], a.size * X.shape[1])
    return out


def _times(Y: Array, D: Host, *, overwrite: bool = False) -> Array:
    D = D.astype(Y.dtype, copy=False)
    if not overwrite:
        return _matmul(Y, D)

    def rows(begin: int, end: int) -> None:
        Y[begin:end] = Y[begin:end] @ D

    map_chunks(rows, Y.shape[0], Y.size * D.shape[1])
    return Y


def _by_panels(product: Callable[[Array], Array], X: Array, rows: int, width: int, consume: bool) -> Array:
    Y = X if consume and rows == X.shape[0] else np.empty((rows, X.shape[1]), X.dtype)
    for begin in range(0, X.shape[1], width):
        Y[:, begin : begin + width] = product(X[:, begin : begin + width])
    return Y


def _column_sums(X: Array) -> Host:
    return sum_over_chunks(lambda begin, end: X[begin:end].sum(0, dtype=np.float64), X.shape[0], X.size)


def _repeat_row(rows: int, row: Host, like: Array) -> Array:
    return np.repeat(row.astype(like.dtype, copy=False)[None], rows, axis=0)


def _peak(Y: Array) -> float:
    return float(max(Y.max(initial=0.0), -Y.min(initial=0.0)))


def _signs(U: Array) -> Host:
    """±1: the sign of the entry of largest absolute value in each column, plus if both signs have it."""
    return np.where(U.max(0) < -U.min(0), -1.0, 1.0)


NUMPY = Seam(
    random=_random,
    basis=lambda rows, capacity, dtype: NumpyBasis(
        np.empty((rows, capacity), dtype, order="F"), 0, np.zeros((rows, PROBES), dtype)
    ),
    append=_append,
    as_basis=lambda block: NumpyBasis(block, block.shape[1], np.empty((0, PROBES), block.dtype)),
    columns=lambda basis, begin, end: np.ascontiguousarray(basis.array[:, begin:end]),
    grams=lambda basis, Y: _grams(basis.filled, Y),
    probes=lambda basis, Y: _grams(basis.combinations, Y),
    combine=_combine,
    span=lambda basis, C: _matmul(basis.filled, C.astype(basis.array.dtype, copy=False)),
    cross=_cross,
    times=_times,
    matmul=_matmul,
    by_panels=_by_panels,
    column_sums=_column_sums,
    repeat_row=_repeat_row,
    stack_rows=lambda blocks: np.concatenate(blocks, axis=0),
    peak=_peak,
    signs=_signs,
    sync=lambda block: block,
)

_seams: dict[type, Seam] = {np.ndarray: NUMPY}


def register_seam(array_type: type, seam: Seam) -> None:
    """Make blocks of `array_type` go through `seam`."""
    _seams[array_type] = seam


def seam_of(*values: Any) -> Seam:
    """The seam of the first array among `values`; NumPy's when none is of a registered type.

    >>> seam_of(None, np.ones(2)) is NUMPY
    True
    """
    kinds = (kind for value in values for kind in type(value).__mro__ if kind in _seams)
    return _seams[next(kinds, np.ndarray)]
