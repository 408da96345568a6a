"""Choosing hops, rank, window and λ of the paper's classifiers, with one pass for every L and k.

With the labelled rows M_𝒱 of M = [Z, ÂZ, …, Â^L Z], K = M M_𝒱' is all that is needed: K_𝒱𝒱 = U diag(σ²) U'
gives the scores K U_k σ_k⁻² U_k'Y_𝒱 of every k. K adds up over the hops, so that one pass gives every L; and
the part of X, the wide one, is the same for every window and λ. Where rows are many they are first written in
a common orthonormal basis Q; then the same holds of Q'M.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fastgrl.checks import Array
from fastgrl.devices import Place, current_place
from fastgrl.fsvd import SVD, fsvd
from fastgrl.hops import hop_grams, hop_matrix
from fastgrl.jkn_features import Features, Space, released, structure_factors, structure_of
from fastgrl.metrics import roc_auc
from fastgrl.node_models import NodeInputs, NodeSettings, Targets, Validation
from fastgrl.operators import Operator
from fastgrl.progress import Progress, portions

FOLDS = 5
# Above this many labelled nodes (or whenever all rows count) rows are compressed before the sweep.
DUAL_LABELS = 1000
NEAR_BEST = 8
_RANKS = (5, 10, 15, 20, 30, 40, 50, 60, 70, 80, 90, 100)
_COMPRESSED = 100
_HELD_OUT = 1000
_WARM_ROUNDS = 4

Record = dict[str, Any]


@dataclass(frozen=True)
class Grid:
    """Values of L, k, C and λ that are tried."""

    hops: tuple[int, ...]
    ranks: tuple[int, ...]
    windows: tuple[int, ...]
    negatives: tuple[float, ...]

    @property
    def size(self) -> int:
        """Settings in all."""
        return len(self.hops) * len(self.ranks) * len(self.windows) * len(self.negatives)


DEFAULTS = Grid((6,), (30,), (1,), (1.0,))
_GRIDS = {
    "jkn": Grid((1, 2, 3, 4, 6, 8, 12, 16), (*_RANKS, 120, 150, 200), (1, 3, 5), (0.01, 0.05, 0.2, 1.0)),
    "jkn-text": Grid((1, 2, 4, 8), _RANKS, (1, 3), (0.05, 0.2, 1.0)),
    "jkn-as-released": Grid((2, 4, 8, 16), _RANKS[1:2] + _RANKS[3:], (1, 2, 3, 4, 5), (1.0, 2.0, 3.0)),
}


def grid_of(settings: NodeSettings, *, select: bool) -> Grid:
    """What is tried: the design's own values where the caller gave none, one of each without selection.

    >>> grid_of(fg.node_models.NodeSettings("jkn", rank=7), select=False)
    Grid(hops=(6,), ranks=(7,), windows=(1,), negatives=(1.0,))
    """
    usual = _GRIDS[settings.design] if select else DEFAULTS
    return Grid(
        usual.hops if settings.hops is None else (settings.hops,),
        usual.ranks if settings.rank is None else (settings.rank,),
        usual.windows if settings.window is None else (settings.window,),
        usual.negatives if settings.negative is None else (settings.negative,),
    )


@dataclass(frozen=True, eq=False)
class Trial:
    """Nodes to learn from, and nodes to be judged by."""

    train: Array
    judged: Array


@dataclass(frozen=True, eq=False)
class Sweep:
    """A selection about to be made: the inputs, what is known, and who learns and who judges."""

    inputs: NodeInputs
    targets: Targets
    settings: NodeSettings
    trials: tuple[Trial, ...]
    labels: Array
    features: Features
    S: Operator

    @property
    def emphasis(self) -> Array:
        """One number per node: 1 for labelled ones with equal weights, more for heavier ones."""
        weights = np.zeros(self.inputs.num_nodes)
        weights[self.targets.labelled] = self.targets.weights * len(self.targets.labelled)
        return weights


def trials_of(targets: Targets, validation: Validation | None, *, seed: int) -> tuple[Trial, ...]:
    """The validation nodes as judges, or the labelled nodes in turn: five stratified folds, or one of many.

    With more than a thousand labelled nodes a fifth of them, a thousand at most, are held out once. Nothing
    if fewer than ten, or two per class, are labelled.
    """
    known, m = targets.labelled, len(targets.labelled)
    if validation is not None:
        return (Trial(known, validation.nodes),)
    if m < max(10, 2 * len(targets.classes)):
        return ()
    parts = FOLDS if m <= DUAL_LABELS else max(FOLDS, -(-m // _HELD_OUT))
    part = _stratified(targets, parts, seed)
    count = FOLDS if m <= DUAL_LABELS else 1
    return tuple(Trial(known[part != fold], known[part == fold]) for fold in range(count))


def _stratified(targets: Targets, parts: int, seed: int) -> Array:
    """A part for each labelled node, at random, with each class spread evenly over the parts."""
    m = len(targets.labelled)
    shuffled = np.random.Generator(np.random.Philox(seed)).permutation(m)
    classes = np.zeros(m) if targets.multilabel else targets.known.argmax(axis=1)
    part = np.empty(m, np.intp)
    part[shuffled[np.argsort(classes[shuffled], kind="stable")]] = np.arange(m) % parts
    return part


def sweep(plan: Sweep, grid: Grid, *, progress: Progress | None = None) -> list[Record]:
    """Every setting of the grid with its accuracy, best first; ties go to fewer hops, then a smaller rank."""
    pairs = list(itertools.product(grid.windows, grid.negatives))
    first, *bars = portions(progress, [len(pairs) / 2, *(1.0 for _ in pairs)])
    warm = _walks(plan, pairs[0], None)
    rows = _rows(plan, grid, structure_of(warm))
    how: dict[str, Any] = {"reduce": rows.reduce, "lead": rows.lead, "hops": grid.hops}
    shared = 0.0 if plan.features.X is None else hop_grams(plan.S, plan.features.shared_blocks(), **how)
    _tell(first)
    records: list[Record] = []
    for pair, bar in zip(pairs, bars, strict=True):
        warm = _walks(plan, pair, warm)
        own = plan.features.own_blocks(structure_of(warm), plan.settings.design)
        K = shared + hop_grams(plan.S, own, **how)
        if released(plan.settings.design):
            ones = rows.reduce(np.ones((plan.inputs.num_nodes, 1)))
            K = K + ones @ ones[: rows.lead].T
        for hops, gram in zip(grid.hops, K, strict=True):
            found = _figures(plan, rows, gram, grid.ranks)
            records += [_record(hops, rank, pair, figure) for rank, figure in found]
        _tell(bar)
    return sorted(records, key=lambda record: (-record["accuracy"], record["hops"], record["rank"]))


def _tell(bar: Progress | None) -> None:
    if bar is not None:
        bar(1, 1)


def _record(hops: int, rank: int, pair: tuple[int, float], figure: float) -> Record:
    window, negative = pair
    return {"hops": hops, "rank": rank, "window": window, "negative": negative, "accuracy": figure}


def _walks(plan: Sweep, pair: tuple[int, float], warm: SVD | None) -> SVD:
    """The walk factorisation of one window and λ, begun where the last one ended; as released, afresh."""
    if released(plan.settings.design):
        warm = None
    rounds = None if warm is None else _WARM_ROUNDS
    how: dict[str, Any] = {"window": pair[0], "negative": pair[1], "seed": plan.settings.seed}
    return structure_factors(plan.inputs.graph, plan.settings.design, start=warm, n_iter=rounds, **how).svd


@dataclass(frozen=True, eq=False)
class _Rows:
    """What is kept of n rows: coordinates in a `basis` (of all, or rows `within`), then rows of `nodes`."""

    nodes: Array
    lead: int
    basis: Array | None = None
    within: Array | None = None

    def reduce(self, H: Any) -> Any:
        """The rows that are kept, where H is."""
        place = current_place()
        if place is not None and not isinstance(H, np.ndarray):
            return self._reduced_at(place, H)
        if self.basis is None:
            return H[self.nodes]
        inner = self.basis.T @ (H if self.within is None else H[self.within])
        return np.concatenate([inner, H[self.nodes]])

    def _reduced_at(self, place: Place, H: Any) -> Any:
        seam = place.seam
        rows = place.near(seam.take_rows(H, self.nodes))
        if self.basis is None:
            return rows
        within = H if self.within is None else seam.take_rows(H, self.within)
        inner = seam.inner(place.kept(self.basis), within)
        return (
            np.concatenate([inner, rows])
            if isinstance(rows, np.ndarray)
            else seam.concatenate([inner, rows], 0)
        )

    def places(self, nodes: Array) -> Array:
        """Where rows of given nodes are kept."""
        order = np.argsort(self.nodes, kind="stable")
        offset = 0 if self.basis is None else self.basis.shape[1]
        return offset + order[np.searchsorted(self.nodes, nodes, sorter=order)]


def _rows(plan: Sweep, grid: Grid, structure: Array) -> _Rows:
    known, trials = plan.targets.labelled, plan.trials
    if plan.settings.design == "jkn-text":
        basis = _common_basis(plan, grid, structure, None)
        return _Rows(np.empty(0, np.intp), basis.shape[1], basis)
    if len(trials[0].train) > DUAL_LABELS:
        basis = _common_basis(plan, grid, structure, trials[0].train)
        basis = np.sqrt(plan.emphasis[trials[0].train])[:, None] * basis
        return _Rows(trials[0].judged, basis.shape[1], basis, trials[0].train)
    others = np.setdiff1d(np.concatenate([trial.judged for trial in trials]), known)
    return _Rows(np.concatenate([known, others]), len(known))


def _common_basis(plan: Sweep, grid: Grid, structure: Array, within: Array | None) -> Array:
    """Orthonormal columns for the leading left vectors of few hops and of many, without the PCA."""
    space = Space(
        plan.features.X, structure, np.concatenate([plan.features.mean, structure.mean(0)]), None, False
    )
    found = []
    for hops in sorted({grid.hops[0], grid.hops[-1]}):
        M = hop_matrix(plan.S, space.operator, hops)
        M = M if within is None else M[within]
        rank = min(*M.shape, _COMPRESSED + 20)
        found.append(fsvd(M, rank, n_iter=4, seed=plan.settings.seed, check=False).U)
    return np.asarray(np.linalg.qr(np.concatenate(found, axis=1))[0])


def _figures(plan: Sweep, rows: _Rows, gram: Array, ranks: Sequence[int]) -> list[tuple[int, float]]:
    """Accuracy by rank, over all trials together."""
    limit = min(rows.lead, *(len(trial.train) for trial in plan.trials))
    ranks = sorted({min(rank, limit) for rank in ranks})
    found = [_trial_scores(plan, rows, gram, trial, ranks) for trial in plan.trials]
    labels = np.concatenate([plan.labels[trial.judged] for trial in plan.trials])
    pooled = np.concatenate(found, axis=1)
    return [
        (rank, figure_of_merit(scores, labels, multilabel=plan.targets.multilabel))
        for rank, scores in zip(ranks, pooled, strict=True)
    ]


def figure_of_merit(scores: Array, labels: Array, *, multilabel: bool) -> float:
    """Accuracy, or the ROC-AUC over all places of a multi-label matrix, whose scale does not matter.

    >>> figure_of_merit(np.array([[0.9, 0.1], [0.8, 0.2]]), np.array([[1, 0], [0, 1]]), multilabel=False)
    0.5
    """
    if not multilabel:
        rows = np.arange(len(labels))  # a label that no training node has is in no column
        return float(np.mean(labels[rows, scores.argmax(axis=1)] > 0)) if len(labels) else 0.0
    true, false = scores[labels > 0], scores[labels <= 0]
    return roc_auc(true, false) if len(true) and len(false) else 0.0


def _trial_scores(plan: Sweep, rows: _Rows, gram: Array, trial: Trial, ranks: Sequence[int]) -> Array:
    emphasis, Y = plan.emphasis[trial.train], plan.targets.labels[trial.train].astype(np.float64)
    if plan.settings.design == "jkn-text":
        assert rows.basis is not None
        values, E = descending(gram)
        U, V = rows.basis[trial.judged] @ E, rows.basis[trial.train] @ E
        if plan.settings.ridge is not None:
            weights = plan.targets.weights[np.searchsorted(plan.targets.labelled, trial.train)]
            return _ridge_scores(plan, np.sqrt(values), (U, V), (Y, weights), ranks)
        return _cumulative(U, V.T @ (emphasis[:, None] * Y), ranks)
    root = np.sqrt(emphasis)
    if rows.basis is not None:
        inner, judged = gram[: rows.lead], gram[rows.lead :]
        return product_scores(inner, judged, rows.basis.T @ (root[:, None] * Y), ranks)
    train, judged = rows.places(trial.train), rows.places(trial.judged)
    inner = root[:, None] * gram[np.ix_(train, train)] * root
    return product_scores(inner, gram[np.ix_(judged, train)] * root, root[:, None] * Y, ranks)


def product_scores(inner: Array, outer: Array, Y: Array, ranks: Sequence[int]) -> Array:
    """K U_k σ_k⁻² U_k'Y for every k: `inner` is K_𝒱𝒱 = U diag(σ²) U', `outer` the rows of K to be scored."""
    values, U = descending(inner)
    kept = values > 1e-13 * len(values) * values.max(initial=0)
    inverse = np.divide(1.0, values, out=np.zeros_like(values), where=kept)
    return _cumulative(outer @ U, inverse[:, None] * (U.T @ Y), ranks)


def descending(gram: Array) -> tuple[Array, Array]:
    """Eigenvalues, at least 0 and largest first, and eigenvectors of a symmetric matrix."""
    values, vectors = np.linalg.eigh((gram + gram.T) / 2)
    return np.maximum(values[::-1], 0.0), vectors[:, ::-1]


def _cumulative(A: Array, B: Array, ranks: Sequence[int]) -> Array:
    """A[:, :k] B[:k] for every k, len(ranks)×rows×C."""
    total, out = np.zeros((len(A), B.shape[1])), []
    for begin, end in itertools.pairwise([0, *ranks]):
        total = total + A[:, begin:end] @ B[begin:end]
        out.append(total)
    return np.stack(out)


def _ridge_scores(
    plan: Sweep, s: Array, vectors: tuple[Array, Array], known: tuple[Array, Array], ranks: Sequence[int]
) -> Array:
    """A weighted ridge on U_k s_k over the root mean square of its rows, for each k."""
    (U, V), (Y, w), n, out = vectors, known, plan.inputs.num_nodes, []
    w = w / w.sum()
    for k in ranks:
        unit = s[:k] / (np.sqrt((s[:k] ** 2).sum() / n) or 1.0)
        X, mean, bias = V[:, :k] * unit, w @ (V[:, :k] * unit), w @ Y
        C = (X - mean).T @ (w[:, None] * (X - mean)) + (plan.settings.ridge or 0.0) * np.eye(k)
        W = np.linalg.solve(C, (X - mean).T @ (w[:, None] * (Y - bias)))
        out.append((U[:, :k] * unit - mean) @ W + bias)
    return np.stack(out)
