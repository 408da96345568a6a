"""Edges that are held out of a graph on workers, to learn how much the degrees of two nodes say of a link.

Which edges is found out by one worker, which holds the whole graph as those that push do, with the function
that one process uses: the same seed holds out the same edges.
"""

from __future__ import annotations

import functools
import itertools
from typing import Any

import numpy as np

from fastgrl.checks import Array
from fastgrl.distributed.diffusions import (
    DistributedSpace,
    Pushed,
    build_space,
    graph_of,
    near_means,
    small_space,
    whole_graph,
)
from fastgrl.distributed.engines import Pending
from fastgrl.distributed.graphs import DistributedGraph, RowFacts, row_facts
from fastgrl.distributed.rows import DistributedRows
from fastgrl.distributed.talls import Tall
from fastgrl.distributed.transposing import exchanged, row_range
from fastgrl.kernels import CSR
from fastgrl.progress import Progress
from fastgrl.scorers import Scorer, fit_scorer
from fastgrl.selection import HoldOut, hold_out
from fastgrl.spaces import DOT_FEATURES, dot_features


def fitted_dot_scorer(
    graph: DistributedGraph,
    *,
    rank: int,
    damping: float,
    keep: int,
    rounds: int,
    seed: int,
    progress: Progress | None = None,
) -> Scorer | None:
    """What `selection.choose` fits for plain dot products; None if no edges can be held out."""
    cluster = graph.cluster
    (held,) = cluster.submit([Pending(held_out, (whole_graph(graph), graph.directed, seed))])
    (judged,) = cluster.gather([Pending(pairs_of, (held,))])
    if judged is None:
        return None
    pairs, truth = judged
    train = _train(graph, held)
    del held
    how: dict[str, Any] = {"rank": rank, "damping": damping, "keep": keep, "rounds": rounds}
    named = f"what is left beside edges held out with seed {seed}"
    space = build_space(train, seed=seed, named=named, progress=progress, **how)
    return fit_scorer(_dot_features(space, pairs), truth)


def held_out(whole: CSR, directed: bool, seed: int) -> HoldOut | None:
    """The hold-out of a graph."""
    return hold_out(graph_of(whole, directed), seed=seed)


def pairs_of(held: HoldOut | None) -> tuple[Array, Array] | None:
    """The pairs of a hold-out, and which of them are links."""
    return None if held is None else (held.pairs, held.truth)


def cut_train(held: HoldOut, cuts: tuple[int, ...]) -> list[CSR]:
    """The rows of its graph, by blocks."""
    rows = held.train.csr
    return [row_range(rows, begin, end) for begin, end in itertools.pairwise(cuts)]


def _train(graph: DistributedGraph, held: Any) -> DistributedGraph:
    """The graph without what is held out."""
    cluster, plan, n = graph.cluster, graph.csr.plan, graph.num_nodes
    cut = cluster.submit([Pending(cut_train, (held, plan.cuts))])
    parts = [part for (part,) in exchanged(cluster, cut, len(plan.bounds))]
    rows = DistributedRows(cluster, plan, parts, (n, n), graph.csr.dtype, graph.csr.symmetric)
    counted = cluster.gather(
        [Pending(row_facts, (part, a)) for part, (a, _) in zip(parts, plan.bounds, strict=True)]
    )
    return DistributedGraph(rows, graph.ids, graph.directed, graph.weighted, RowFacts.of_all(counted))


def _dot_features(space: DistributedSpace, pairs: Array) -> Array:
    """The features of pairs that a plain dot product can follow."""
    seam, ends = space.graph.cluster.seam, _ends(space)
    x, y = seam.take_rows(space.left, pairs[:, 0]), seam.take_rows(space.right, pairs[:, 1])
    one, other = (seam.take_rows(ends, side) for side in pairs.T)
    features = functools.partial(dot_features, s=space.singular_values)
    made = x.map(features, y, one, other, columns=len(DOT_FEATURES), dtype=np.float64)
    return np.asarray(seam.host(made))


def _ends(space: DistributedSpace) -> Tall:
    """What is known of a node alone, at either end of a pair."""
    near, how = near_means(space), (space.singular_values, space.graph.num_nodes)
    parts: list[Any] = [
        Pending(ends_of, (one, space.left.parts[i], space.right.parts[i], near[0][i], near[1][i], *how))
        for i, one in enumerate(space.pushed)
    ]
    return space.left.of(parts, 10, np.float64)


def ends_of(
    pushed: Pushed, x: Array, y: Array, near_out: Array, near_in: Array, s: Array, size: int
) -> Array:
    """The same of the nodes of a block."""
    return small_space(pushed, x, y, (near_out, near_in), s, size).ends
