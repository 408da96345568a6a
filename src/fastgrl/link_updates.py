"""New nodes and new edges without starting over."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import scipy.sparse as sp

from fastgrl.bipartite import extended_sides
from fastgrl.certificates import Certificate, captured_energy, certificate
from fastgrl.checks import Array, shown
from fastgrl.errors import ArgumentError
from fastgrl.fsvd import SVD, fsvd
from fastgrl.graph import Graph
from fastgrl.growth import Grown, grow
from fastgrl.ids import iterable_of_pairs
from fastgrl.link_models import Fit, LinkModel
from fastgrl.link_ranking import recommend_links
from fastgrl.operators import Operator
from fastgrl.progress import Progress, portions
from fastgrl.ranking import Recommendations

# An update ends when it captures as much of the new matrix as the fit did of the old one, but for this share.
LOSS_ALLOWED = 0.001
_MOST_ROUNDS = 10
# A matrix that has changed may be less compressible; beyond this share it is worth a word.
_SHORTFALL = 0.02
_SHORT = (
    "the update captures {:.2f} % of the new matrix, where the fit captured {:.2f} % of its own: fit again"
)


@dataclass(frozen=True, eq=False, repr=False)
class NewNodes:
    """Nodes that a model did not know: their vectors, and how much of them it can represent.

    What `LinkPredictor.transform` returns.

    Attributes:
        node_ids: the ids of the new nodes.
        left: their vectors as the first of a pair, one row for each.
        right: their vectors as the second of a pair.
        trust: the share of each new node's row that lies in the fitted subspace, from 0 to 1.
        model: the model that knows them.
        graph: the graph with them and their edges.
        sides: the side of every node, if the model has two.

    >>> links = fg.LinkPredictor(n_components=4).fit([(0, 1), (1, 2), (2, 0), (2, 3)])
    >>> new = links.transform([("zoe", 0), ("zoe", 1)])
    >>> new.node_ids.tolist(), new.left.shape, bool(0 <= new.trust[0] <= 1)
    (['zoe'], (1, 4), True)
    """

    node_ids: Array
    left: Array
    right: Array
    trust: Array
    model: LinkModel
    graph: Graph
    sides: Array | None = None

    def __repr__(self) -> str:
        trust = "" if not len(self.trust) else f", trust {self.trust.min():.2f} to {self.trust.max():.2f}"
        new = len(self.node_ids)
        return f"<NewNodes: {new} beside {self.graph.num_nodes - new} known{trust}>"

    def score_pairs(self, pairs: Any) -> Array:
        """A score for each of `pairs` of ids, new or known, as an array; larger means likelier."""
        sources, targets, _ = iterable_of_pairs(pairs)
        codes = np.column_stack([self.graph.index_of(sources), self.graph.index_of(targets)])
        return np.asarray(self.model.score(codes), np.float64)

    def recommend(self, nodes: Any = None, *, k: int = 10) -> Recommendations:
        """The `k` best missing links of each new node, or of each of `nodes`."""
        queries = self.graph.index_of(self.node_ids if nodes is None else nodes)
        return recommend_links(self.model, self.graph, queries, k=k, sides=self.sides)


def fold_in_nodes(graph: Graph, fit: Fit, new_edges: Any, weights: Any) -> NewNodes:
    """Place new nodes by their edges to known ones; nothing that was fitted changes."""
    grown, n = grow(graph, new_edges, weights), graph.num_nodes
    _check_one_new_end(grown, n)
    sides = _grown_sides(fit, grown)
    rows = grown.graph.to_scipy().astype(np.float64)
    out = sp.csr_array(rows[n:, :n])
    into = sp.csr_array(rows[:n, n:].T) if graph.directed else out
    model, trust = fit.model.fold_in(graph, out, into)
    return NewNodes(grown.new_ids, model.left[n:], model.right[n:], trust, model, grown.graph, sides)


def _grown_sides(fit: Fit, grown: Grown) -> Array | None:
    if fit.sides is None:
        return None
    return extended_sides(fit.sides, grown.graph, grown.sources, grown.targets)


def _check_one_new_end(grown: Grown, n: int) -> None:
    new_ends = (grown.sources >= n).astype(int) + (grown.targets >= n)
    for wrong, what, way in (
        (0, "is between two nodes the model knows", "partial_fit (fastgrl update) takes in new edges"),
        (
            2,
            "is between two new nodes",
            "new nodes are placed by links to known ones; partial_fit takes both",
        ),
    ):
        if (new_ends == wrong).any():
            at = int(np.argmax(new_ends == wrong))
            ends = grown.graph.node_ids[[grown.sources[at], grown.targets[at]]]
            raise ArgumentError(f"edge {at + 1}, {shown(ends[0])} – {shown(ends[1])}, {what}; {way}")


def certify(graph: Graph, fit: Fit) -> Certificate:
    """Measure the error of the factorisation behind a model."""
    return certificate(*fit.model.factorised(graph))


@dataclass(frozen=True, eq=False)
class Updated:
    """A larger graph, its model, and the figures of the update."""

    graph: Graph
    fit: Fit
    figures: dict[str, Any]


def update(
    graph: Graph,
    fit: Fit,
    new_edges: Any,
    *,
    weights: Any = None,
    seed: int = 0,
    progress: Progress | None = None,
) -> Updated:
    """Take in new edges and nodes: a new matrix, factorised from the old vectors on, a round at a time.

    A round is one product with M and one with M'. The last is that after which the captured energy is within
    0.1 % of what the fit captured of the old matrix, or after which it hardly grows any more.
    """
    grown = grow(graph, new_edges, weights)
    sides = _grown_sides(fit, grown)
    growing, iterating = portions(progress, [1, 1])
    old_operator, old = fit.model.factorised(graph)
    before = captured_energy(old_operator, old)
    del old_operator
    regrown = fit.model.regrown(grown.graph, np.unique(np.concatenate([grown.sources, grown.targets])))
    if growing is not None:
        growing(1, 1)
    # A graph that was small may have had fewer nodes than the model has columns.
    rank = max(len(old.s), min(fit.model.largest_rank, grown.graph.num_nodes))
    svd, captured, rounds = _warm(regrown.operator, old, rank, (1 - LOSS_ALLOWED) * before, seed, iterating)
    model = regrown.model(svd)
    figures = {
        "new_nodes": len(grown.new_ids),
        "new_edges": grown.graph.num_edges - graph.num_edges,
        "rows_pushed": regrown.rows,
        "captured_before": before,
        "captured_after": captured,
        "rounds": rounds,
        "product_columns": 2 * rounds * rank,
        "refit_product_columns": model.fit_columns,
    }
    short = () if captured >= (1 - _SHORTFALL) * before else (_SHORT.format(100 * captured, 100 * before),)
    return Updated(grown.graph, replace(fit, model=model, sides=sides, notices=short), figures)


def _warm(
    operator: Operator, old: SVD, rank: int, wanted: float, seed: int, progress: Progress | None
) -> tuple[SVD, float, int]:
    """Rounds from the vectors of an older, perhaps smaller, matrix on: the SVD, its energy, how many."""
    start = np.zeros((operator.shape[1], len(old.s)), old.Vt.dtype)
    start[: old.Vt.shape[1]] = old.Vt.T
    bars, captured, rounds = portions(progress, [1] * _MOST_ROUNDS), 0.0, 0
    while rounds < _MOST_ROUNDS:
        svd = fsvd(
            operator,
            rank,
            n_iter=0,
            block_size=rank,
            start=start,
            seed=seed,
            check=False,
            progress=bars[rounds],
        )
        rounds, last, captured = rounds + 1, captured, captured_energy(operator, svd)
        if captured >= wanted or captured - last < LOSS_ALLOWED * captured:
            break
        start = svd.Vt.T
    if progress is not None:
        progress(1, 1)
    return svd, captured, rounds
