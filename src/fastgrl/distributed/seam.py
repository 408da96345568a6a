"""The seam of a cluster: what `fsvd` and the operators need, on blocks whose rows lie on workers.

Everything k×k is computed by the caller and travels as an argument of the next tasks. Every product over a
chunk and the order of every sum are those of NumPy's seam, so that results have the same bits.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fastgrl.checks import FLOATS, Array, size
from fastgrl.distributed import tasks
from fastgrl.distributed.clusters import Cluster
from fastgrl.distributed.engines import Pending
from fastgrl.distributed.plans import RowPlan
from fastgrl.distributed.talls import Tall, Wide
from fastgrl.errors import DtypeError, FastgrlError, NotFiniteError, ShapeError
from fastgrl.linalg import PROBES, mixing, used_columns
from fastgrl.seams import Host, Seam


@dataclass(frozen=True, eq=False)
class Basis:
    """Orthonormal columns as they came, stored by columns within each chunk, and a few mixtures of them."""

    plan: RowPlan
    stored: tuple[list[Any], ...]  # of every block of columns a future for every block of rows
    columns: int
    combinations: Tall

    def of_rows(self, number: int) -> list[Any]:
        """What is stored of one block of rows."""
        return [block[number] for block in self.stored]


@dataclass(frozen=True, eq=False)
class BlockBasis:
    """A block whose columns are orthonormal, as a basis."""

    block: Tall

    @property
    def columns(self) -> int:
        """How many there are."""
        return int(self.block.shape[1])


def seam_on(cluster: Cluster) -> Seam:
    """The seam of blocks that lie on a cluster."""
    use = functools.partial
    return Seam(
        name=f"a cluster ({cluster.engine.name})",
        random=use(_random, cluster),
        basis=use(_no_columns, cluster),
        append=_append,
        as_basis=BlockBasis,
        columns=_columns,
        grams=_grams,
        probes=lambda basis, Y: _sums(Y, tasks.probe_pieces, basis.combinations),
        combine=_combine,
        span=_span,
        cross=_cross,
        times=_times,
        by_panels=_by_panels,
        peak=_peak,
        signs=_signs,
        unit_peaks=_unit_peaks,
        scaled=lambda Y, d: Y.of(Y.each(tasks.scaled, d), Y.columns),
        sync=_sync,
        matmul=_matmul,
        inner=lambda X, Y: _cross(X, Y).astype(np.result_type(X.dtype, Y.dtype)),
        column_sums=_column_sums,
        repeat_row=_repeat_row,
        take_rows=_take_rows,
        spread_rows=_spread_rows,
        concatenate=_concatenate,
        transposed=lambda a: a.T,
        is_dense=lambda a: isinstance(a, Tall | Wide),
        kind=lambda a: a.dtype,
        checked=_checked,
        like=_like,
        put=lambda a, dtype: np.asarray(a).astype(dtype, copy=False),
        put_sparse=_no_place,
        host=use(_host, cluster),
        began=use(_began, cluster),
        remembered=use(_remembered, cluster),
        elementwise=lambda function, Y: Y.map(function, columns=Y.columns, dtype=Y.dtype),
    )


def _random(cluster: Cluster, rows: int, columns: int, dtype: Any, seed: int, stream: int) -> Tall:
    plan, kind = cluster.plan(rows), np.dtype(dtype)
    parts: list[Any] = [
        Pending(tasks.random_rows, (begin, end, columns, kind, seed, stream)) for begin, end in plan.bounds
    ]
    return Tall(cluster, plan, parts, columns, kind)


def _no_columns(cluster: Cluster, rows: int, capacity: int, dtype: Any) -> Basis:
    del capacity
    plan, kind = cluster.plan(rows), np.dtype(dtype)
    parts: list[Any] = [Pending(tasks.zero_rows, (end - begin, PROBES, kind)) for begin, end in plan.bounds]
    return Basis(plan, (), 0, Tall(cluster, plan, parts, PROBES, kind))


def _append(basis: Basis, block: Tall) -> Basis:
    if not block.shape[1]:
        return basis
    _sync(block)
    gamma = mixing(basis.columns, block.shape[1]).astype(block.dtype)
    before = basis.combinations
    combinations = _sync(before.of(before.each(tasks.mixed_rows, block, gamma), PROBES))
    stored = block.of(list(block.each(tasks.stored_by_columns, basis.plan.height)), block.columns).futures
    return Basis(basis.plan, (*basis.stored, stored), basis.columns + block.shape[1], combinations)


def _sums(Y: Tall, function: Callable[..., Any], *blocks: Tall) -> Host:
    """The sum over chunks of what `function(*blocks, Y)` makes of each."""
    calls = [
        Pending(function, (*(block.futures[i] for block in blocks), future, first, Y.plan.chunks))
        for i, (future, first) in enumerate(zip(Y.futures, Y.first_chunks, strict=True))
    ]
    return Y.cluster.total(calls, Y.plan)


def _grams(basis: Basis | BlockBasis, Y: Tall) -> Host:
    if isinstance(basis, BlockBasis):
        return _sums(Y, tasks.probe_pieces, basis.block)
    calls = [
        Pending(tasks.gram_pieces, (basis.of_rows(i), future, first, Y.plan.chunks))
        for i, (future, first) in enumerate(zip(Y.futures, Y.first_chunks, strict=True))
    ]
    return Y.cluster.total(calls, Y.plan)


def _cross(X: Tall, Y: Tall) -> Host:
    return _sums(Y, tasks.cross_pieces, X)


def _column_sums(X: Tall) -> Host:
    return _sums(X, tasks.column_sum_pieces)


def _combine(basis: Basis, C: Host, Y: Tall, D: Host, *, overwrite: bool = False) -> Tall:
    del overwrite
    C, D = C.astype(Y.dtype, copy=False), D.astype(Y.dtype, copy=False)
    used = [list(pair) for pair in used_columns(C)]
    parts: list[Any] = [
        Pending(tasks.combined_rows, (basis.of_rows(i) if used else [], C, future, D, used))
        for i, future in enumerate(Y.futures)
    ]
    return _sync(Y.of(parts, D.shape[1]))


def _span(basis: Basis | BlockBasis, C: Host) -> Tall:
    if isinstance(basis, BlockBasis):
        return _times(basis.block, C)
    like = basis.combinations
    C = C.astype(like.dtype, copy=False)
    parts: list[Any] = [
        Pending(tasks.spanned_rows, (basis.of_rows(i), C, end - begin))
        for i, (begin, end) in enumerate(basis.plan.bounds)
    ]
    return _sync(like.of(parts, C.shape[1]))


def _columns(basis: Basis, first: int, last: int) -> Tall:
    parts: list[Any] = [
        Pending(tasks.taken_columns, (basis.of_rows(i), first, last, end - begin))
        for i, (begin, end) in enumerate(basis.plan.bounds)
    ]
    return _sync(basis.combinations.of(parts, last - first))


def _times(Y: Tall, D: Host, *, overwrite: bool = False) -> Tall:
    del overwrite
    D = D.astype(Y.dtype, copy=False)
    return _sync(Y.of(Y.each(tasks.product_of_rows, D), D.shape[1]))


def _by_panels(product: Callable[[Tall], Tall], X: Tall, rows: int, width: int, consume: bool) -> Tall:
    del rows, consume
    assert X.columns is not None
    return _concatenate([product(X[:, begin : begin + width]) for begin in range(0, X.columns, width)], 1)


def _extremes(Y: Tall) -> tuple[Array, Array]:
    found = Y.cluster.gather([Pending(tasks.extremes, (future,)) for future in Y.futures])
    largest, smallest = zip(*found, strict=True)
    return np.max(largest, axis=0), np.min(smallest, axis=0)


def _peak(Y: Tall) -> float:
    largest, smallest = _extremes(Y)
    return float(max(largest.max(initial=0.0), -smallest.min(initial=0.0)))


def _signs(U: Tall) -> Host:
    largest, smallest = _extremes(U)
    return np.where(largest < -smallest, -1.0, 1.0)


def _unit_peaks(Y: Tall, dtype: Any) -> Tall:
    largest, smallest = _extremes(Y)
    peaks = np.maximum(np.maximum(largest, -smallest), 0)
    unit: Tall = Y / np.where(peaks > 0, peaks, 1).astype(Y.dtype)
    return unit.astype(np.dtype(dtype))


def _sync(block: Tall) -> Tall:
    """Hand over what is pending: the block is going to be read more than once."""
    _ = block.futures
    return block


def _matmul(a: Any, X: Any) -> Any:
    """A tall or wide block times a small array or a tall block."""
    if isinstance(a, Wide):
        return a.tall.cluster.spread(_cross(a.tall, X).astype(np.result_type(a.dtype, X.dtype)))
    small = X if isinstance(X, np.ndarray) else _host(a.cluster, X)
    return _times(a, small)


def _repeat_row(rows: int, row: Host, like: Tall) -> Tall:
    plan, row = like.cluster.plan(rows), row.astype(like.dtype, copy=False)
    parts: list[Any] = [Pending(tasks.repeated_row, (end - begin, row)) for begin, end in plan.bounds]
    return Tall(like.cluster, plan, parts, like.columns, like.dtype)


def _take_rows(Y: Tall, rows: Array) -> Tall:
    plan, futures = Y.cluster.plan(len(rows)), Y.futures
    parts: list[Any] = []
    for begin, end in plan.bounds:
        wanted = rows[begin:end]
        some = [
            [Pending(tasks.picked_rows, (futures[i], wanted[here] - first)), np.flatnonzero(here)]
            for i, (first, last) in enumerate(Y.plan.bounds)
            if (here := (wanted >= first) & (wanted < last)).any()
        ]
        parts.append(Pending(tasks.placed_rows, (some, end - begin, Y.columns, Y.dtype)))
    return _sync(Tall(Y.cluster, plan, parts, Y.columns, Y.dtype))


def _spread_rows(Y: Tall, rows: Array, count: int) -> Tall:
    plan, futures = Y.cluster.plan(count), Y.futures
    parts: list[Any] = []
    for begin, end in plan.bounds:
        some = []
        for i, (first, last) in enumerate(Y.plan.bounds):
            here = np.flatnonzero((rows[first:last] >= begin) & (rows[first:last] < end))
            if len(here):
                places = rows[first:last][here] - begin
                some.append([Pending(tasks.picked_rows, (futures[i], here)), places])
        parts.append(Pending(tasks.placed_rows, (some, end - begin, Y.columns, Y.dtype)))
    return _sync(Tall(Y.cluster, plan, parts, Y.columns, Y.dtype))


def _concatenate(blocks: Sequence[Tall], axis: int) -> Tall:
    first = blocks[0]
    if len(blocks) == 1:
        return first
    if axis == 0:
        return first.cluster.rows_of([(block, 0, block.plan.rows) for block in blocks])
    columns = sum(block.columns or 0 for block in blocks)
    return first.of(list(first.each(tasks.side_by_side, *blocks[1:])), columns)


def _checked(a: Any, name: str, ndim: int) -> Any:
    if a.ndim != ndim:
        raise ShapeError(f"{name} must have {ndim} dimension{'s' * (ndim > 1)}, got shape {a.shape}")
    if a.dtype.kind in "bui":
        return a.astype(np.float64)
    if a.dtype not in FLOATS:
        raise DtypeError(f"{name} of {a.dtype} is not supported; use float32 or float64")
    if isinstance(a, Tall) and not a.finite:
        raise NotFiniteError(f"{name} contains NaN or Inf")
    return a


def _like(returned: Any, block: Tall) -> Tall:
    if not isinstance(returned, Tall):
        raise DtypeError(
            f"a product of a distributed block must be one too, but its function returned "
            f"{type(returned).__name__}"
        )
    return returned.astype(block.dtype)


def _began(cluster: Cluster, facts: dict[str, Any]) -> None:
    if cluster.checkpoint is not None:
        cluster.checkpoint.begin(facts)


def _remembered(cluster: Cluster, number: int, product: Callable[[], Tall]) -> Tall:
    if cluster.checkpoint is None:
        return product()
    return cluster.checkpoint.block(f"product-{number:04}", product, cluster)


def _no_place(*_: Any) -> Any:
    raise FastgrlError("sparse matrices come to a cluster as rows that workers load")


def _host(cluster: Cluster, block: Any) -> Array:
    """A block as an array of the caller's, unless that would be larger than it may be."""
    if isinstance(block, Wide):
        return _host(cluster, block.tall).T
    if not isinstance(block, Tall):
        return np.asarray(block)
    wanted = int(np.prod(block.shape)) * block.dtype.itemsize
    if cluster.most_bytes is not None and wanted > cluster.most_bytes:
        raise FastgrlError(
            f"{size(block.shape)} numbers ({wanted:,} bytes) would come back from the cluster, but "
            f"{cluster.most_bytes:,} bytes are allowed: write them from there, or raise the limit"
        )
    return np.concatenate(cluster.gather(block.futures))
