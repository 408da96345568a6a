"""The logarithm of a diffusion on workers: rows are pushed block by block, and merged with their transpose.

A push may go anywhere, so every worker that pushes holds the whole graph (not its diffusion, which is many
times larger). The pieces of the transpose change places once; the matrix that is factorised lies in blocks.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from fastgrl.assembly import Rows
from fastgrl.checks import Array
from fastgrl.costs import diffusion_block
from fastgrl.diffusion import Diffusion, merged_logs, scaled_rows
from fastgrl.diffusion_links import DiffusionModel
from fastgrl.distributed.clusters import Cluster
from fastgrl.distributed.engines import Pending
from fastgrl.distributed.graphs import DistributedGraph, row_facts
from fastgrl.distributed.rows import DistributedRows
from fastgrl.distributed.talls import Tall
from fastgrl.distributed.transposing import cut_transposed, exchanged, row_range, side_by_side
from fastgrl.fsvd import fsvd
from fastgrl.graph import Graph
from fastgrl.kernels import CSR, multiply
from fastgrl.leaves import Matrix
from fastgrl.progress import Progress
from fastgrl.push import Walker
from fastgrl.scorers import Scorer
from fastgrl.selection import fixed_dot_scorer, node_weights, sampling_step, with_shifted_ends
from fastgrl.spaces import Space


@dataclass(frozen=True, eq=False)
class Pushed:
    """The diffusion rows Q = P D^-½ of a block of nodes, in both directions, and the nodes' degrees."""

    left: CSR
    right: CSR
    out_degrees: Array
    in_degrees: Array


@dataclass(frozen=True, eq=False)
class DistributedSpace:
    """What `spaces.Space` is in one process: diffusion rows and vectors of all nodes, block by block."""

    graph: DistributedGraph
    pushed: list[Any]
    logarithm: DistributedRows
    left: Tall
    right: Tall
    singular_values: Array


def build_space(
    graph: DistributedGraph,
    *,
    rank: int,
    damping: float,
    keep: int,
    rounds: int,
    seed: int = 0,
    named: str = "the whole graph",
    progress: Progress | None = None,
) -> DistributedSpace:
    """Push, take logarithms, factorise; `named` tells a checkpoint which edges these are."""
    cluster, n = graph.cluster, graph.num_nodes
    pushed = pushed_blocks(graph, damping=damping, keep=keep)

    def logarithm() -> DistributedRows:
        return _logarithm(graph, pushed)

    facts = {"stage": "diffusion", "of": named, "damping": damping, "keep": keep, "nodes": n}
    facts["edges"] = graph.num_edges
    rows = logarithm() if cluster.checkpoint is None else _remembered(cluster, logarithm, facts)
    svd = fsvd(
        Matrix(rows),
        min(rank, n),
        n_iter=rounds,
        block_size=diffusion_block(rank),
        seed=seed,
        progress=progress,
    )
    roots = np.sqrt(svd.s)
    left, right = svd.U * roots, svd.Vt.T * roots
    for block in (left, right):
        _ = block.futures
    return DistributedSpace(graph, pushed, rows, left, right, svd.s)


def _remembered(cluster: Cluster, make: Any, facts: dict[str, Any]) -> DistributedRows:
    assert cluster.checkpoint is not None
    cluster.checkpoint.begin(facts)
    return cluster.checkpoint.rows("logarithm", make, cluster)


def pushed_blocks(graph: DistributedGraph, *, damping: float, keep: int) -> list[Any]:
    """Futures of the diffusion rows of every block of nodes."""
    whole, how = whole_graph(graph), (graph.directed, damping, keep)
    bounds = graph.csr.plan.bounds
    return graph.cluster.submit([Pending(push_rows, (whole, begin, end, *how)) for begin, end in bounds])


def whole_graph(graph: DistributedGraph) -> Any:
    """A future of all rows of the graph."""
    (whole,) = graph.cluster.submit([Pending(whole_rows, (list(graph.csr.futures), graph.num_nodes))])
    return whole


def whole_rows(parts: list[CSR], n: int) -> CSR:
    """All rows of the graph in one place."""
    ends = np.cumsum([0] + [part.num_stored for part in parts])
    starts = [part.indptr[:-1] + end for part, end in zip(parts, ends[:-1], strict=True)]
    indptr = np.concatenate([*starts, ends[-1:]])
    values = None if parts[0].values is None else np.concatenate([part.values for part in parts])
    return CSR(indptr, np.concatenate([part.indices for part in parts]), values, (n, n), parts[0].dtype)


def graph_of(whole: CSR, directed: bool) -> Graph:
    """A graph in one place, its nodes called by their numbers."""
    rows = Rows(whole.indptr, whole.indices, whole.values)
    return Graph._built(rows, np.arange(whole.shape[0]), directed=directed, repeats=0)


def push_rows(whole: CSR, begin: int, end: int, directed: bool, damping: float, keep: int) -> Pushed:
    """The diffusion rows of nodes `begin` to `end` - 1."""
    walker = Walker.of(graph_of(whole, directed), damping=damping, keep=keep)
    sources = np.arange(begin, end, dtype=np.int32)
    scale = ((walker.degrees + walker.backward.degrees) / 2) ** -0.5
    left = scaled_rows(walker.rows(sources), scale)
    right = scaled_rows(walker.backward.rows(sources), scale) if directed else left
    return Pushed(left, right, walker.degrees[begin:end], walker.backward.degrees[begin:end])


def _logarithm(graph: DistributedGraph, pushed: list[Any]) -> DistributedRows:
    cluster, plan, n = graph.cluster, graph.csr.plan, graph.num_nodes
    cut = cluster.submit([Pending(cut_backward, (one, plan.cuts)) for one in pushed])
    pieces = exchanged(cluster, cut, len(plan.bounds))
    degrees = cluster.submit([Pending(degrees_of, (one,)) for one in pushed])
    parts: list[Any] = [
        Pending(merged_rows, (pushed[i], some, list(degrees), begin, end, n))
        for i, (some, (begin, end)) in enumerate(zip(pieces, plan.bounds, strict=True))
    ]
    return DistributedRows(cluster, plan, parts, (n, n), np.dtype(np.float32), not graph.directed)


def cut_backward(pushed: Pushed, cuts: tuple[int, ...]) -> list[CSR]:
    """The transpose of a block's rows against the edges, cut by blocks of its own rows."""
    return cut_transposed(pushed.right, cuts)


def degrees_of(pushed: Pushed) -> Array:
    """Degrees out and in, 2×n."""
    return np.stack([pushed.out_degrees, pushed.in_degrees])


def merged_rows(pushed: Pushed, pieces: list[CSR], degrees: list[Array], begin: int, end: int, n: int) -> CSR:
    """log(1 + n G) for the rows of a block."""
    out_degrees, in_degrees = np.concatenate(degrees, axis=1)
    other = side_by_side(pieces, n)
    merged = merged_logs(
        _in_place(pushed.left, begin, n), _in_place(other, begin, n), out_degrees, in_degrees
    )
    return row_range(merged, begin, end)


def _in_place(rows: CSR, begin: int, n: int) -> CSR:
    """Rows with empty ones before and after them, so that they stand where they do among all."""
    end = begin + rows.shape[0]
    indptr = np.zeros(n + 1, np.int64)
    indptr[begin : end + 1] = rows.indptr
    indptr[end + 1 :] = rows.indptr[-1]
    return CSR(indptr, rows.indices, rows.values, (n, n), rows.dtype)


def embedded(
    space: DistributedSpace, *, n_components: int, side: str, dot_scorer: Scorer | None = None
) -> Tall:
    """One vector per node as `DiffusionModel` has them; without a scorer, degrees have fixed weights."""
    terms = None
    if n_components > len(space.singular_values) + 1:
        terms = node_weights(dot_scorer or _fixed_scorer(space))
    near, how = near_means(space), (space.singular_values, space.graph.num_nodes, terms, n_components, side)
    parts: list[Any] = [
        Pending(vectors_of, (one, space.left.parts[i], space.right.parts[i], near[0][i], near[1][i], *how))
        for i, one in enumerate(space.pushed)
    ]
    made = space.left.of(parts, n_components, np.float32)
    _ = made.futures
    return made


def near_means(space: DistributedSpace) -> list[list[Any]]:
    """The mean log degree of the neighbours along the edges, and against them: calls for every block."""
    logs = space.graph.cluster.submit([Pending(log_middle, (one,)) for one in space.pushed])
    both = (space.graph.csr, space.graph.csr.transposed)
    return [[Pending(mean_over, (rows, list(logs))) for rows in side.futures] for side in both]


def log_middle(pushed: Pushed) -> Array:
    """The logarithm of the mean degree."""
    return np.log((pushed.out_degrees + pushed.in_degrees) / 2)[:, None]


def mean_over(rows: CSR, values: list[Array]) -> Array:
    """The mean over the neighbours of each node; 0 for a node without."""
    pattern = CSR(rows.indptr, rows.indices, None, rows.shape, None)
    sums = multiply(pattern, np.concatenate(values))[:, 0]
    return np.asarray(sums / np.maximum(np.diff(rows.indptr), 1))


def small_space(pushed: Pushed, x: Array, y: Array, near: tuple[Array, Array], s: Array, size: int) -> Space:
    """Some nodes of a space: all that is asked of them is a function of their own rows."""
    diffusion = Diffusion.of(pushed.left, pushed.right, pushed.out_degrees, pushed.in_degrees)
    return Space(diffusion, x, y, s, near, size)


def vectors_of(
    pushed: Pushed,
    x: Array,
    y: Array,
    near_out: Array,
    near_in: Array,
    s: Array,
    size: int,
    terms: Array | None,
    n_components: int,
    side: str,
) -> Array:
    """The vectors of a block of nodes."""
    space = small_space(pushed, x, y, (near_out, near_in), s, size)
    nothing = Scorer(np.zeros(0), np.ones(0), np.zeros(0), 0.0)
    model = DiffusionModel(space, nothing, 0.5, terms, n_components)
    return model.left if side == "left" else model.right


def _fixed_scorer(space: DistributedSpace) -> Scorer:
    """Fitted to nothing: standardised on every so many-th edge, and on the ends of these."""
    graph, cluster = space.graph, space.graph.cluster
    plan, rows = graph.csr.plan, graph.csr.futures
    counted = cluster.gather([Pending(row_facts, (rows[i], a)) for i, (a, _) in enumerate(plan.bounds)])
    counts = [one.stored if graph.directed else one.forward for one in counted]
    before, step = np.concatenate([[0], np.cumsum(counts)]), sampling_step(graph.num_edges)
    edges = cluster.gather(
        [
            Pending(some_edges, (rows[i], a, -int(before[i]) % step, step, graph.directed))
            for i, (a, _) in enumerate(plan.bounds)
        ]
    )
    pairs = with_shifted_ends(np.concatenate(edges))
    nodes, places = np.unique(pairs, return_inverse=True)
    seam = cluster.seam
    x, y = (seam.host(seam.take_rows(block, nodes)) for block in (space.left, space.right))
    degrees = np.concatenate(cluster.gather([Pending(degrees_of, (one,)) for one in space.pushed]), axis=1)
    empty = CSR(np.zeros(len(nodes) + 1, np.int64), np.empty(0, np.int32), None, (len(nodes), 1), None)
    pushed = Pushed(empty, empty, degrees[0][nodes], degrees[1][nodes])
    none = np.zeros(len(nodes))
    small = small_space(pushed, x, y, (none, none), space.singular_values, graph.num_nodes)
    return fixed_dot_scorer(small, places.reshape(pairs.shape))


def some_edges(rows: CSR, begin: int, first: int, step: int, directed: bool) -> Array:
    """Every `step`-th edge of a block, from the `first` on, as pairs of node numbers."""
    u = begin + np.repeat(np.arange(rows.shape[0]), np.diff(rows.indptr))
    v = rows.indices.astype(np.int64)
    kept = slice(None) if directed else np.flatnonzero(u <= v)
    return np.column_stack([u[kept], v[kept]])[first::step]
