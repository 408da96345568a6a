"""A matrix with its rows in the order of their degrees, where that makes products faster.

A product gathers a row of the block for every stored entry. Rows of nodes with many neighbours are gathered
often; side by side they share pages, and the processor finds them sooner; and rows of equal length one after
another end where it expects them to. How much that saves depends on the
graph and on the order its nodes had, so it is measured: the first products are timed as the matrix is, the
next in the other order, and the faster one is taken from then on. Entries of a row keep their order, so
that sums keep their bits.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace

import numpy as np

from fastgrl.checks import Array
from fastgrl.kernels import CSR, compiled_module
from fastgrl.parallel import parallel_map, thread_count
from fastgrl.spilling import limited

LEAST_ROWS = 1 << 12
_TIMES = 2


@dataclass(frozen=True, eq=False)
class Added:
    """What the last pass of a polynomial adds or multiplies with."""

    extra: Array | None
    post: Array | None
    shift: Array | None

    def columns(self, begin: int, end: int) -> dict[str, Array | None]:
        """As the compiled kernel takes it, for some of the columns."""
        shift = None if self.shift is None else self.shift[begin:end]
        return {"extra": self.extra, "post": self.post, "shift": shift}

    def rows(self, order: Array) -> Added:
        """For rows in another order."""
        return replace(self, extra=_taken(self.extra, order), post=_taken(self.post, order))


Product = Callable[[CSR, Array, Array | None, Added], Array]


@dataclass(eq=False)
class _Trial:
    """Seconds for each column, of products with a matrix as it is and sorted, and what came of it."""

    as_it_is: list[float] = field(default_factory=list)
    sorted: list[float] = field(default_factory=list)
    rows: SortedRows | None = None

    @property
    def undecided(self) -> list[float] | None:
        """The times that are still to be taken."""
        return next((times for times in (self.as_it_is, self.sorted) if len(times) < _TIMES), None)


@dataclass(frozen=True, eq=False)
class SortedRows:
    """The matrix P A P' for a permutation: its i-th row and column are those of number `order[i]` in A."""

    matrix: CSR
    order: Array
    place: Array

    @classmethod
    def of(cls, matrix: CSR) -> SortedRows:
        """Rows with most entries first; a square matrix of ones."""
        lengths = np.diff(matrix.indptr)
        order = np.argsort(-lengths, kind="stable")
        place = np.empty(len(order), np.int32)
        place[order] = np.arange(len(order), dtype=np.int32)
        indptr = np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths[order])])
        indices, compiled = np.empty(matrix.num_stored, np.int32), compiled_module()
        assert compiled is not None

        def rename(bounds: tuple[int, int]) -> None:
            compiled.relabel_rows(matrix.indptr, matrix.indices, order, place, indptr, indices, *bounds)

        pieces = 8 * thread_count()
        cuts = np.searchsorted(indptr, matrix.num_stored * np.arange(1, pieces) // pieces).tolist()
        parallel_map(rename, list(zip([0, *cuts], [*cuts, len(order)], strict=True)))
        return cls(CSR(indptr, indices, None, matrix.shape, matrix.dtype), order, place)

    def multiply(self, X: Array, scale: Array | None, added: Added, product: Product) -> Array:
        """`product` with rows in this order, and the result in the order of A."""
        order = self.order
        Y = product(self.matrix, _gathered(X, order), _taken(scale, order), added.rows(order))
        return _gathered(Y, self.place)


def sorted_by_degree(matrix: CSR, X: Array, scale: Array | None, added: Added, product: Product) -> Array:
    """`product(matrix, X, scale, added)`, with rows in the order of their degrees where that pays."""
    if not _may_pay(matrix):
        return product(matrix, X, scale, added)
    trial: _Trial = matrix.__dict__.setdefault("_trial", _Trial())
    times = trial.undecided
    if times is trial.sorted and trial.rows is None:
        trial.rows = SortedRows.of(matrix)
    begin, rows = time.perf_counter(), trial.rows
    Y = product(matrix, X, scale, added) if rows is None else rows.multiply(X, scale, added, product)
    if times is not None:
        times.append((time.perf_counter() - begin) / X.shape[1])
        if trial.undecided is None and min(trial.sorted) >= min(trial.as_it_is):
            trial.rows = None
    return Y


def _may_pay(matrix: CSR) -> bool:
    """Large, of ones, in memory, and with memory to spare: the sorted rows are a second copy."""
    large = matrix.shape[0] >= LEAST_ROWS
    plain = matrix.values is None and matrix.indices.dtype == np.int32 and not matrix.mapped
    return large and plain and not limited()


def _gathered(X: Array, rows: Array, at_once: int = 1 << 15) -> Array:
    """X[rows], on all threads."""
    out = np.empty_like(X)

    def take(begin: int) -> None:
        part = slice(begin, begin + at_once)
        np.take(X, rows[part], axis=0, out=out[part], mode="clip")

    parallel_map(take, range(0, len(rows), at_once))
    return out


def _taken(values: Array | None, order: Array) -> Array | None:
    return None if values is None else values[order]
