"""Why a node scores as it does: the score as a sum over hops, features and labelled nodes.

Two sums of the same number. By columns, with r_l = S'^l e_i, so that (S^l F)_i = r_l'F:

    score = bias + Σ_l Σ_f c_l (S^l F)_if (V_l W)_f / (norm_i · scale),   bias = q − (centre/scale + μ)'W,

and by labels, with the smoother's shares s: score = Σ_j s_j Q_j. Nothing of size n×n is made, and nothing
dense of size n×d from sparse features.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fastgrl.checks import Array, integer
from fastgrl.errors import ArgumentError, ShapeError
from fastgrl.linalg import sum_over_chunks
from fastgrl.linear_parts import Solution, smoother, solve
from fastgrl.node_models import HopBasis, LinearPart, NodeInputs, Targets

THRESHOLD = 0.5  # above it a multi-label score or probability means that the node has the label
Blocks = dict[str, Array]


@dataclass(frozen=True)
class ColumnShare:
    """What one column of the inputs contributes from nodes that are `hop` steps away.

    `feature` is the name of the column, or its number among the columns of its `kind`.
    """

    hop: int
    kind: str
    feature: Any
    contribution: float


@dataclass(frozen=True)
class LabelShare:
    """What the label of one node contributes; `label` is its class, or its classes."""

    node: Any
    label: Any
    contribution: float


@dataclass(frozen=True)
class Explanation:
    """The linear score of one node for one class, taken apart in two ways, each of which sums to `score`.

        score = bias + Σ hops = bias + Σ features + other_features
              = Σ labelled + other_labelled + pseudo_labelled

    Attributes:
        node: the id of the node.
        label: the class that is explained.
        predicted: the class that the model predicts (classes, if there may be several).
        score: the linear score of the class.
        bias: what every node has in common.
        hops: what comes from nodes 0, 1, 2, … steps away.
        features: the largest contributions of a feature at a hop (`hop`, `kind`, `feature`, `contribution`),
            by absolute value, largest first; `kind` is "feature", "structure" for a walk
            vector, or "constant".
        other_features: the sum of those that are not listed.
        labelled: the largest contributions of labelled nodes (`node`, `label`, `contribution`), likewise.
        other_labelled: the sum of those that are not listed.
        pseudo_labelled: all that came from nodes that self-training had labelled.
        own: the model's own probability of the class, beside the linear `score`.
        exact: the model scores as its linear parts do.
        difference: where it does not, the share of nodes to which the linear parts give another class.

    >>> friends = [("ann", "bob"), ("bob", "cy"), ("cy", "dan"), ("dan", "eve")]
    >>> nodes = fg.NodeClassifier().fit(friends, {"ann": "tea", "eve": "coffee"})
    >>> why = nodes.explain("bob", label="tea")
    >>> labels = sum(share.contribution for share in why.labelled) + why.other_labelled
    >>> bool(np.isclose(why.score, labels + why.pseudo_labelled))
    True
    """

    node: Any
    label: Any
    predicted: Any
    score: float
    bias: float
    hops: tuple[float, ...]
    features: tuple[ColumnShare, ...]
    other_features: float
    labelled: tuple[LabelShare, ...]
    other_labelled: float
    pseudo_labelled: float
    own: float | None
    exact: bool
    difference: float

    def as_dict(self) -> dict[str, Any]:
        """The same as lists, dictionaries and plain numbers, for JSON."""
        shares = {name: [vars(share).copy() for share in getattr(self, name)] for name in _SHARES}
        return {**vars(self), "hops": list(self.hops), **shares}


_SHARES = ("features", "labelled")


def linear_scores(parts: Sequence[LinearPart], *, solutions: Sequence[Solution] | None = None) -> Array:
    """Σ share·P over the parts, n×C: what all nodes score."""
    solved = _solved(parts, solutions)
    total = solved[0].part.share * solved[0].scores()
    for solution in solved[1:]:
        total += solution.part.share * solution.scores()
    return np.asarray(total)


def explain(
    parts: Sequence[LinearPart],
    node: int,
    *,
    inputs: NodeInputs,
    targets: Targets,
    column: int | None = None,
    top: int = 10,
    feature_names: Sequence[Any] | None = None,
    own: Array | None = None,
    exact: bool = True,
    difference: float = 0.0,
    solutions: Sequence[Solution] | None = None,
) -> Explanation:
    """Take the score of a node number for a class apart, by hop and feature and by labelled node.

    `column` is the class (by default the one that the model, or else the parts, score highest), `top` how
    many features and how many labelled nodes are named, and `own` the model's own C scores or
    probabilities of the node. Parts are added up by their `share`; where several have a column of the same
    kind and number (a word in several views of a text) it counts as one. `solutions` are those of the
    parts, if they are at hand.

    >>> from fastgrl.node_models import HopBasis, LinearPart, NodeInputs, Targets
    >>> graph = fg.Graph.from_edges([("ann", "bob"), ("bob", "eve")])
    >>> basis = HopBasis(fg.symmetric(graph), np.eye(3), np.array([0.5, 0.5]), np.eye(3))
    >>> Q, w = np.array([[1.0, 0.0], [0.0, 0.0], [0.0, 1.0]]), np.array([0.5, 0.0, 0.5])
    >>> targets = Targets(np.array(["cat", "dog"]), Q, np.array([0, 2]), w[[0, 2]])
    >>> found = explain([LinearPart(basis, w, Q, 0.125)], 0, inputs=NodeInputs(graph), targets=targets)
    >>> found.label, round(found.score, 6), round(found.bias + sum(found.hops), 6)
    ('cat', 0.75, 0.75)
    """
    solved, top = _solved(parts, solutions), integer("top", top, least=0)
    node = integer("node", node, least=0, most=inputs.num_nodes - 1)
    linear = np.asarray(sum(s.part.share * s.scores([node])[0] for s in solved))
    figures = linear if own is None else _own_figures(own, linear)
    c = integer("column", int(figures.argmax()) if column is None else column, least=0, most=len(linear) - 1)
    blocks = _columns(solved, node, c)
    features = _largest_columns(blocks, top, feature_names)
    by_node = _by_label(solved, node, c)
    labelled = _largest_labels(by_node, top, inputs, targets)
    hops = sum(block.sum(1) for block in blocks.values())
    return Explanation(
        node=_plain(inputs.graph.node_ids[node]),
        label=_plain(targets.classes[c]),
        predicted=_named(figures > THRESHOLD if targets.multilabel else figures == figures.max(), targets),
        score=float(linear[c]),
        bias=float(sum(_bias(solution, c) for solution in solved)),
        hops=tuple(map(float, hops)),
        features=features,
        other_features=float(sum(hops)) - sum(share.contribution for share in features),
        labelled=labelled,
        other_labelled=float(by_node[targets.labelled].sum()) - sum(share.contribution for share in labelled),
        pseudo_labelled=float(np.delete(by_node, targets.labelled).sum()),
        own=None if own is None else float(figures[c]),
        exact=bool(exact),
        difference=float(difference),
    )


def _solved(parts: Sequence[LinearPart], solutions: Sequence[Solution] | None) -> list[Solution]:
    if not parts:
        raise ArgumentError("there are no linear parts to add up")
    if solutions is None:
        return [solve(part) for part in parts]
    if [id(solution.part) for solution in solutions] != [id(part) for part in parts]:
        raise ArgumentError("the solutions are not those of the parts; pass one for each, in order, or none")
    return list(solutions)


def _own_figures(own: Array, linear: Array) -> Array:
    figures = np.asarray(own, np.float64)
    if figures.shape != linear.shape:
        raise ShapeError(f"own must hold {len(linear)} scores, one for each class, got shape {figures.shape}")
    return figures


def _bias(solution: Solution, c: int) -> float:
    basis, W = solution.part.basis, solution.coefficients[:, c]
    centre = np.broadcast_to(np.asarray(basis.centre, np.float64) / basis.scale, W.shape)
    return float(solution.part.share * (solution.bias[c] - (centre + solution.mean) @ W))


def _columns(solved: Sequence[Solution], node: int, c: int) -> Blocks:
    """Contributions by kind of column, each (L+1)×(columns of that kind), over all parts."""
    depth = max(len(solution.part.basis.coefficients) for solution in solved)
    bases = {id(solution.part.basis): solution.part.basis for solution in solved}
    gathered = {key: _hop_features(basis, node) for key, basis in bases.items()}
    total: Blocks = {}
    for solution in solved:
        rows = gathered[id(solution.part.basis)]
        for kind, block in _columns_of(solution, node, c, rows).items():
            known = total.get(kind, np.zeros((depth, 0)))
            width = max(known.shape[1], block.shape[1])
            total[kind] = _widened(known, depth, width) + _widened(block, depth, width)
    return total


def _widened(block: Array, rows: int, columns: int) -> Array:
    return np.pad(block, ((0, rows - block.shape[0]), (0, columns - block.shape[1])))


def _columns_of(solution: Solution, node: int, c: int, rows: Array) -> Blocks:
    basis = solution.part.basis
    factor = solution.part.share / (float(basis.norms[node]) * basis.scale)
    effects = factor * rows * _hop_effects(basis, solution.coefficients[:, c])
    if basis.kinds is None:
        return {"feature": effects}
    kinds = np.array(basis.kinds)
    return {str(kind): effects[:, kinds == kind] for kind in dict.fromkeys(basis.kinds)}


def _hop_features(basis: HopBasis, node: int) -> Array:
    """c_l (S^l F)_i for every hop, (L+1)×d, in one pass over the rows of F that are reached."""
    reach = _reach(basis, node)
    reached = np.flatnonzero(reach.any(1))

    def term(begin: int, end: int) -> Array:
        rows = reached[begin:end]
        return np.asarray(basis.features[rows].T @ reach[rows]).T

    return sum_over_chunks(term, len(reached), len(reached) * basis.features.shape[1])


def _reach(basis: HopBasis, node: int) -> Array:
    """c_l S'^l e_i for every hop, n×(L+1)."""
    backward = basis.operator.T
    reach = np.zeros((backward.shape[0], len(basis.coefficients)))
    reach[node, 0] = 1.0
    for hop in range(1, reach.shape[1]):
        reach[:, hop] = (backward @ np.ascontiguousarray(reach[:, hop - 1 : hop]))[:, 0]
    return reach * np.asarray(basis.coefficients, np.float64)


def _hop_effects(basis: HopBasis, w: Array) -> Array:
    """V_l w for every hop, (L+1)×d; one row when the hops share V."""
    if basis.projection.ndim == 2:
        return np.asarray(basis.projection @ w)[None]
    return np.array([basis.projection_of(hop) @ w for hop in range(len(basis.coefficients))])


def _by_label(solved: Sequence[Solution], node: int, c: int) -> Array:
    """What the target of each node contributes, n numbers."""
    shares = (
        s.part.share * smoother(s.part, node, solution=s) * s.part.targets[:, c].astype(np.float64)
        for s in solved
    )
    return np.asarray(sum(shares))


def _largest(values: Array, top: int) -> Array:
    """Places of the largest absolute values that are not 0; of equal ones the first comes first."""
    order = np.argsort(-np.abs(values), kind="stable")[:top]
    return np.asarray(order[values[order] != 0])


def _largest_columns(blocks: Blocks, top: int, names: Sequence[Any] | None) -> tuple[ColumnShare, ...]:
    places = [(kind, *place) for kind, block in blocks.items() for place in _top_places(block, top)]
    best = _largest(np.array([blocks[kind][hop, j] for kind, hop, j in places]), top)
    return tuple(
        ColumnShare(hop, kind, _column_name(kind, j, names), float(blocks[kind][hop, j]))
        for kind, hop, j in (places[i] for i in best)
    )


def _top_places(block: Array, top: int) -> list[tuple[int, int]]:
    hops, columns = np.unravel_index(_largest(block.ravel(), top), block.shape)
    return [(int(hop), int(j)) for hop, j in zip(hops, columns, strict=True)]


def _column_name(kind: str, j: int, names: Sequence[Any] | None) -> Any:
    if kind != "feature" or names is None:
        return j
    if j >= len(names):
        raise ShapeError(f"feature_names has {len(names)} names, but there is a feature number {j}")
    return _plain(names[j])


def _largest_labels(
    contributions: Array, top: int, inputs: NodeInputs, targets: Targets
) -> tuple[LabelShare, ...]:
    known = contributions[targets.labelled]
    return tuple(
        LabelShare(
            _plain(inputs.graph.node_ids[targets.labelled[i]]),
            _named(targets.labels[targets.labelled[i]] > 0, targets),
            float(known[i]),
        )
        for i in _largest(known, top)
    )


def _named(chosen: Array, targets: Targets) -> Any:
    """The first class that is chosen; all of them when labels are many."""
    names = tuple(_plain(name) for name in targets.classes[chosen])
    return names if targets.multilabel else names[0]


def _plain(value: Any) -> Any:
    return value.item() if isinstance(value, np.generic) else value
