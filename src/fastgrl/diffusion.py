"""Pairs of nodes whose walks meet, and the logarithm of a diffusion: what link prediction is made of.

The rows π_u of forward push are held as Q = P D^-½, so that ⟨Q_u, Q_v⟩ = Σ_x π_u(x) π_v(x) / d_x is the
diffusion of twice the length between u and v, though only rows were ever computed.
"""

from __future__ import annotations

import bisect
import functools
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp

from fastgrl.checks import Array
from fastgrl.costs import DEGREE_COLUMNS, DIFFUSION_ROUNDS, DiffusionCost, Factorisation, diffusion_block
from fastgrl.graph import Graph
from fastgrl.kernels import CSR, compiled_module, transpose
from fastgrl.parallel import parallel_map, thread_count
from fastgrl.progress import Progress, portions
from fastgrl.push import KEEP, Walker, joined, scratch

PMI_FLOOR = 0.01
FEWEST_KEPT = 8


@dataclass(frozen=True, eq=False)
class Diffusion:
    """Sparse rows Q = P D^-½ of every node, and the degrees that go with them.

    `left` holds walks that leave a node along its edges, `right` walks against them; an undirected graph has
    one and the same for both. ⟨left_u, right_v⟩ = Σ_x π_u(x) π_v(x) / d_x: walks from u and v that meet.
    """

    left: CSR
    right: CSR
    out_degrees: Array
    in_degrees: Array
    volume: float

    @classmethod
    def of(cls, left: CSR, right: CSR, out_degrees: Array, in_degrees: Array) -> Diffusion:
        """With vol = Σ d."""
        return cls(left, right, out_degrees, in_degrees, float((out_degrees + in_degrees).sum() / 2))

    @functools.cached_property
    def middle(self) -> Array:
        """d: the mean of the degrees out and in."""
        return (self.out_degrees + self.in_degrees) / 2

    @property
    def symmetric(self) -> bool:
        """Whether both sides are the same rows."""
        return self.left is self.right


def diffuse(
    graph: Graph,
    *,
    damping: float = 0.85,
    epsilon: float | None = None,
    keep: int = KEEP,
    progress: Progress | None = None,
) -> Diffusion:
    """The diffusion rows of all nodes: at most `keep` entries each, accurate to `epsilon` times the degree.

    Unless `epsilon` is given, it follows `keep`.

    >>> path = fg.Graph.from_edges([("ann", "bob"), ("bob", "eve")])
    >>> diffuse(path, damping=0.5).left.as_scipy.toarray().round(2)
    array([[0.58, 0.24, 0.08],
           [0.17, 0.47, 0.17],
           [0.08, 0.24, 0.58]], dtype=float32)
    """
    walker = Walker.of(graph, damping=damping, epsilon=epsilon, keep=keep)
    sources = np.arange(graph.num_nodes, dtype=np.int32)
    bars = portions(progress, [1, 1] if graph.directed else [1])
    scale = ((walker.degrees + walker.backward.degrees) / 2) ** -0.5
    left = scaled_rows(walker.rows(sources, progress=bars[0]), scale)
    right = left
    if graph.directed:
        right = scaled_rows(walker.backward.rows(sources, progress=bars[1]), scale)
    return Diffusion.of(left, right, walker.degrees, walker.backward.degrees)


def keep_for(
    num_nodes: int,
    limit_bytes: int,
    *,
    rank: int = 64,
    directed: bool = False,
    bytes_of: Callable[[int], int] | None = None,
) -> int:
    """The most entries per row, from 8 to 400, with which a fit stays within `limit_bytes` beside its graph.

    `bytes_of(keep)` says what a fit takes; by formula it is rows of `keep` entries each, their transpose,
    the logarithm and its factorisation. Whether even 8 are too many is for the caller to see.

    >>> keep_for(10**6, 20 * 10**9), keep_for(10**6, 3 * 10**9), keep_for(10**6, 10**6)
    (400, 43, 8)
    """

    def formula(keep: int) -> int:
        k = rank - DEGREE_COLUMNS if rank >= 2 * DEGREE_COLUMNS else rank
        svd = Factorisation(num_nodes, k, "krylov", DIFFUSION_ROUNDS, diffusion_block(k), itemsize=4)
        return DiffusionCost(min(keep, num_nodes), directed, False, svd).work_bytes

    tried = range(FEWEST_KEPT, KEEP + 1)
    return max(
        FEWEST_KEPT, FEWEST_KEPT - 1 + bisect.bisect_right(tried, limit_bytes, key=bytes_of or formula)
    )


def scaled_rows(rows: CSR, scale: Array, at_once: int = 1 << 22) -> CSR:
    """Multiply the columns of freshly made rows by `scale`, in place."""
    assert rows.values is not None
    factor = scale.astype(np.float32)
    for first in range(0, rows.num_stored, at_once):
        part = slice(first, first + at_once)
        rows.values[part] *= factor[rows.indices[part]]
    return rows


def log_matrix(diffusion: Diffusion) -> CSR:
    """log(1 + n G) on the non-zeros of G, where G = D_out^½ P D_in^-½ is the larger of both directions.

    Exact rows would be symmetric, d_u π_u(v) = d_v π_v(u) in an undirected graph; the larger of the two mends
    what was cut off in one of them. The diagonal is left out.
    """
    merged = merged_logs(
        diffusion.left, transpose(diffusion.right), diffusion.out_degrees, diffusion.in_degrees
    )
    return merged.known_symmetric() if diffusion.symmetric else merged


def merged_logs(left: CSR, right: CSR, out_degrees: Array, in_degrees: Array) -> CSR:
    """log(1 + n G), from the rows of one direction and the transpose of those of the other.

    Rows that are empty in both are empty in the result, so that some rows can be merged by themselves.
    """
    n, half = len(out_degrees), ((out_degrees + in_degrees) / 2) ** 0.5
    root_out, root_in = out_degrees**0.5, in_degrees**0.5
    a = _Scaled(left, n * root_out, half / root_in)
    b = _Scaled(right, half / root_out, n * root_in)
    return _merged_logs(a, b)


@dataclass(frozen=True, eq=False)
class _Scaled:
    """diag(row) matrix diag(column)."""

    matrix: CSR
    row: Array
    column: Array

    @property
    def arrays(self) -> tuple[Array, Array, Array | None]:
        return self.matrix.indptr, self.matrix.indices, self.matrix.values

    @property
    def scales(self) -> tuple[Array, Array]:
        return self.row.astype(np.float32), self.column.astype(np.float32)


def _merged_logs(a: _Scaled, b: _Scaled) -> CSR:
    compiled, n = compiled_module(), a.matrix.shape[0]
    if compiled is None:
        return _merged_logs_by_scipy(a, b)
    (ar, ac), (br, bc), counts = a.scales, b.scales, np.empty(n, np.int64)

    def part(rows: tuple[int, int]) -> tuple[Array, Array]:
        most = sum(int(side.matrix.indptr[rows[1]] - side.matrix.indptr[rows[0]]) for side in (a, b))
        indices, values = scratch(most, np.int32), scratch(most, np.float32)
        compiled.merge_logs(*a.arrays, ar, ac, *b.arrays, br, bc, counts, indices, values, *rows)
        kept = int(counts[slice(*rows)].sum())
        return indices[:kept], values[:kept]

    indices, values = joined(dict(enumerate(parallel_map(part, _row_ranges(n)))))
    indptr = np.concatenate([np.zeros(1, np.int64), np.cumsum(counts)])
    return CSR(indptr, indices, values, (n, n), np.dtype(np.float32))


def _merged_logs_by_scipy(a: _Scaled, b: _Scaled) -> CSR:
    one, other = (
        sp.diags_array(side.row) @ side.matrix.as_scipy @ sp.diags_array(side.column) for side in (a, b)
    )
    larger = sp.csr_array(one.maximum(other))
    larger.setdiag(0)
    larger.eliminate_zeros()
    larger.sort_indices()
    values = np.log1p(larger.data).astype(np.float32)
    n = a.matrix.shape[0]
    return CSR(larger.indptr.astype(np.int64), larger.indices, values, (n, n), np.dtype(np.float32))


def _row_ranges(rows: int, *, least: int = 1) -> list[tuple[int, int]]:
    step = max(least, -(-rows // (8 * thread_count())))
    return [(first, min(first + step, rows)) for first in range(0, rows, step)]


@dataclass(frozen=True, eq=False)
class LogRows:
    """log(1 + entries) of sparse rows, and of each row the sum and the length."""

    rows: CSR
    sums: Array
    lengths: Array


def log_rows(rows: CSR, *, row_scale: Array | None = None, column_scale: Array | None = None) -> LogRows:
    """log(1 + diag(row_scale) rows diag(column_scale)) on the entries that are there.

    >>> rows = CSR(np.array([0, 1]), np.array([0], np.int32), np.ones(1, "f4"), (1, 1), np.dtype("f4"))
    >>> log_rows(rows, row_scale=np.array([np.e - 1])).sums.round(6)
    array([1.])
    """
    m, n = rows.shape
    a = np.ones(m, np.float32) if row_scale is None else row_scale.astype(np.float32)
    b = np.ones(n, np.float32) if column_scale is None else column_scale.astype(np.float32)
    compiled = compiled_module()
    if compiled is None:
        return _log_rows_by_numpy(rows, a, b)
    values, sums, squares = np.empty(rows.num_stored, np.float32), np.empty(m), np.empty(m)

    def part(bounds: tuple[int, int]) -> None:
        compiled.log_rows(rows.indptr, rows.indices, rows.values, a, b, values, sums, squares, *bounds)

    parallel_map(part, _row_ranges(m))
    return LogRows(CSR(rows.indptr, rows.indices, values, rows.shape, rows.dtype), sums, np.sqrt(squares))


def _log_rows_by_numpy(rows: CSR, row_scale: Array, column_scale: Array) -> LogRows:
    m, number = rows.shape[0], np.repeat(np.arange(rows.shape[0]), np.diff(rows.indptr))
    scaled: Array = row_scale[number] * column_scale[rows.indices] * np.asarray(rows.values)
    logs = np.log1p(scaled).astype(np.float32)
    sums, squares = (np.bincount(number, logs.astype(np.float64) ** power, m) for power in (1, 2))
    return LogRows(CSR(rows.indptr, rows.indices, logs, rows.shape, rows.dtype), sums, np.sqrt(squares))


def pmi(diffusion: Diffusion, pairs: Array) -> Array:
    """log(vol ⟨left_u, right_v⟩ + 0.01) for (m, 2) pairs of node numbers: how much nearer than by chance."""
    return np.asarray(np.log(diffusion.volume * overlaps(diffusion.left, diffusion.right, pairs) + PMI_FLOOR))


def overlaps(left: CSR, right: CSR, pairs: Array) -> Array:
    """⟨row u of left, row v of right⟩ for each pair."""
    compiled = compiled_module()
    if compiled is None:
        return _overlaps_by_scipy(left, right, pairs)
    order = np.argsort(
        pairs[:, 0], kind="stable"
    )  # pairs with the same u share the work of laying out its row
    u = np.ascontiguousarray(pairs[order, 0], np.int64)
    v = np.ascontiguousarray(pairs[order, 1], np.int64)
    found = np.empty(len(pairs), np.float32)

    def part(rows: tuple[int, int]) -> None:
        piece = slice(*rows)
        compiled.overlap_pairs(
            left.indptr,
            left.indices,
            left.values,
            right.indptr,
            right.indices,
            right.values,
            u[piece],
            v[piece],
            found[piece],
            left.shape[1],
        )

    # Each piece lays rows out in an array as long as there are nodes: not for a few pairs.
    parallel_map(part, _row_ranges(len(pairs), least=2048))
    result = np.empty(len(pairs))
    result[order] = found
    return result


def _overlaps_by_scipy(left: CSR, right: CSR, pairs: Array, at_once: int = 4096) -> Array:
    parts = [np.zeros(0)]
    for first in range(0, len(pairs), at_once):
        u, v = pairs[first : first + at_once].T
        products = left.as_scipy[u].multiply(right.as_scipy[v])
        parts.append(np.asarray(products.sum(axis=1), np.float64).ravel())
    return np.concatenate(parts)


def overlap_block(left: CSR, transposed: CSR, rows: Array, columns: tuple[int, int]) -> Array:
    """⟨row u of left, row v of right⟩ for each u in `rows` and every v from columns[0] to columns[1] − 1.

    `transposed` is the transpose of right.
    """
    compiled = compiled_module()
    if compiled is None:
        return np.asarray((left.as_scipy[rows] @ transposed.as_scipy).toarray()[:, slice(*columns)])
    block = np.empty((len(rows), columns[1] - columns[0]), np.float32)
    compiled.overlap_block(
        left.indptr,
        left.indices,
        left.values,
        transposed.indptr,
        transposed.indices,
        transposed.values,
        np.ascontiguousarray(rows, np.int64),
        block,
        columns[0],
    )
    return block
