"""The best missing links of a model, exactly or by an index."""

from __future__ import annotations

from typing import Any

import numpy as np

from fastgrl.checks import Array, integer
from fastgrl.graph import Graph
from fastgrl.link_models import LinkModel
from fastgrl.neighbours import approximate_candidates, build_index
from fastgrl.progress import Progress, portions
from fastgrl.ranking import Best, Recommendations, as_recommendations, best_candidates

# Blocks are scored in float32; so many more than asked for are scored again in float64 and ranked by that.
_SPARE = 16
# An index finds by the plain dot product, which is another score: as many are found and scored again.
_FOUND_BY_INDEX, _FACTOR = 200, 4


def recommend_links(
    model: LinkModel,
    graph: Graph,
    queries: Array,
    *,
    k: int,
    candidates: Array | None = None,
    sides: Array | None = None,
    approximate: bool = False,
    progress: Progress | None = None,
) -> Recommendations:
    """The `k` best links from each of `queries` that the graph does not have; node numbers in, ids out.

    With `sides` a node is recommended nodes of the other side only.
    """
    k = min(integer("k", k, least=1), graph.num_nodes)
    groups = [(np.arange(len(queries)), candidates)] if sides is None else _across(queries, candidates, sides)
    best = Best(np.full((len(queries), k), -1), np.full((len(queries), k), -np.inf))
    bars = portions(progress, [max(1, len(rows)) for rows, _ in groups])
    for (rows, among), bar in zip(groups, bars, strict=True):
        found = _found(model, graph, queries[rows], k, among, approximate, bar)
        best.codes[rows], best.scores[rows] = found.codes, found.scores
    return as_recommendations(best, graph.node_ids[queries], graph.node_ids)


def _across(queries: Array, candidates: Array | None, sides: Array) -> list[tuple[Array, Array]]:
    pool = np.arange(len(sides)) if candidates is None else candidates
    return [(np.flatnonzero(sides[queries] == side), pool[sides[pool] != side]) for side in (0, 1)]


def _found(
    model: LinkModel,
    graph: Graph,
    queries: Array,
    k: int,
    candidates: Array | None,
    approximate: bool,
    progress: Progress | None,
) -> Best:
    symmetric = not graph.directed
    if approximate and candidates is None:
        index = build_index(model.right)
        found = approximate_candidates(
            index,
            queries,
            left=model.left,
            right=model.right,
            k=max(_FACTOR * k, _FOUND_BY_INDEX),
            known=graph,
            symmetric=symmetric,
        )
    else:
        found = best_candidates(
            _block(model),
            queries,
            num_nodes=graph.num_nodes,
            k=k + _SPARE,
            known=graph,
            candidates=candidates,
            symmetric=symmetric,
            progress=progress,
        )
    return _rescored(model, queries, found, k)


def _block(model: LinkModel) -> Any:
    """The scores of a block; those of chosen columns are taken from the range that holds them."""
    score_block = model.block_scorer()

    def block(rows: Array, columns: slice | Array) -> Array:
        if isinstance(columns, slice):
            return score_block(rows, columns)
        first, last = int(columns[0]), int(columns[-1]) + 1
        return score_block(rows, slice(first, last))[:, columns - first]

    return block


def _rescored(model: LinkModel, queries: Array, found: Best, k: int) -> Best:
    """The k best by the score that `score_pairs` gives; equal ones by node number."""
    rows, places = np.nonzero(found.codes >= 0)
    nodes = found.codes[rows, places]
    scores = np.full(found.codes.shape, -np.inf)
    scores[rows, places] = model.score(np.column_stack([queries[rows], nodes]))
    order = np.lexsort((found.codes, -scores), axis=1)[:, :k]
    return Best(np.take_along_axis(found.codes, order, 1), np.take_along_axis(scores, order, 1))
