"""The paper's node classifiers: the pseudo-inverse of [Z, ÂZ, …, Â^L Z] applied to the known labels.

"jkn" factorises the labelled rows of that matrix, "jkn-text" the whole of it, "jkn-as-released" does what the
published program does: L and R once more after the PCA, self loops of 1.5, a column of ones, Algorithm 1.

Reference: Abu-El-Haija, Crespi, Ver Steeg, Galstyan, *Fast Graph Learning with Unique Optimal Solutions*,
2021.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from fastgrl.checks import Array, integer, shown, size
from fastgrl.devices import applied, current_place
from fastgrl.errors import ArgumentError, ShapeError
from fastgrl.fsvd import SVD
from fastgrl.graph import Graph
from fastgrl.hops import hop_matrix
from fastgrl.jkn_features import (
    Features,
    columns_of,
    fold_structure,
    propagation,
    structure_factors,
    structure_of,
)
from fastgrl.jkn_solves import Problem, Solved, solve_jkn
from fastgrl.jkn_sweeps import NEAR_BEST, Grid, Record, Sweep, figure_of_merit, grid_of, sweep, trials_of
from fastgrl.linear_parts import Solution
from fastgrl.node_models import (
    PAPER_DESIGNS,
    Fitted,
    HopBasis,
    LinearPart,
    NodeInputs,
    NodeModel,
    NodeSettings,
    Targets,
    Validation,
    shaped,
)
from fastgrl.operators import Operator
from fastgrl.progress import Progress, portions
from fastgrl.walks import finite_number

_STORED = ("projection", "coefficients", "bias", "labelled", "weights", "targets")
_FACTS = ("design", "window", "negative", "ridge", "exact")


@dataclass(frozen=True, eq=False)
class JknModel(NodeModel):
    """P = Σ_l Â^l F Π_l β + 1b' over F = [X, L, R, 1]: `projection` Π (L+1, d', k), `coefficients` β (k, C).

    Z = Σ_l Â^l F Π_l is M V_k S_k⁻¹, whose labelled rows are U_k: β = Z_𝒱'Y_𝒱 and b = 0, the paper's product.
    With a `ridge`, Z is U_k S_k over the root mean square of its rows, and β and b are the ridge solve's.
    `walk` is the SVD that L and R of the fitted nodes come from, made with `window` and `negative`.
    """

    design: str
    window: int
    negative: float
    ridge: float | None
    projection: Array
    coefficients: Array
    bias: Array
    labelled: Array
    weights: Array
    targets: Array
    walk: SVD
    exact: bool = True

    @property
    def size(self) -> tuple[int, int]:
        """Nodes and classes."""
        return len(self.walk.U), int(self.coefficients.shape[1])

    @property
    def hops(self) -> int:
        """The number of hops, L."""
        return len(self.projection) - 1

    @property
    def rank(self) -> int:
        """The rank, k."""
        return int(self.projection.shape[2])

    @property
    def basis_ignores_labels(self) -> bool:
        """Whether Z would be the same with other labels: then leaving out and relabelling equal a refit."""
        return self.design == "jkn-text"

    @functools.cached_property
    def structure(self) -> Array:
        """[L, R] of the fitted nodes, n×2r."""
        return structure_of(self.walk)

    def fold_in(self, graph: Graph, new: Any, *, incoming: Any = None) -> tuple[Array, Array]:
        """[L, R] of nodes that come later, p×2r, and how far to trust each; `new` is sparse p×n.

        `graph` is the fitted one. Put the rows below `structure` and pass both as `NodeInputs.structure`.
        """
        how: dict[str, Any] = {"window": self.window, "negative": self.negative}
        return fold_structure(self.walk, graph, self.design, new=new, incoming=incoming, **how)

    def resolved(self, solutions: Sequence[Solution]) -> tuple[JknModel, Array]:
        """The model with another solution of its one part, and the scores that come of it."""
        (solution,) = solutions
        part, W = solution.part, solution.coefficients
        labelled = np.flatnonzero(part.weights > 0)
        changed = replace(
            self,
            coefficients=W,
            bias=solution.bias - solution.mean @ W,
            labelled=labelled,
            weights=part.weights[labelled],
            targets=part.targets[labelled],
        )
        return changed, solution.scores()

    def scores(self, inputs: NodeInputs) -> Array:
        """n×C scores; only C columns are carried over the hops."""
        S, F = propagation(inputs.graph, self.design), self._columns(inputs)
        weights = self.projection @ self.coefficients
        if current_place() is not None:
            P = applied(hop_matrix(S, F, self.hops), np.concatenate(weights))
            return np.asarray(P + self.bias)
        P = np.asarray(F @ weights[-1])
        for hop in reversed(range(self.hops)):
            P = S @ P + F @ weights[hop]
        return np.asarray(P + self.bias)

    def parts(self, inputs: NodeInputs) -> tuple[LinearPart, ...]:
        """The product Z Z_𝒱'Y_𝒱, or the ridge solve on Z, whose scores are those of the model."""
        n, classes = inputs.num_nodes, self.targets.shape[1]
        weights, targets = np.zeros(n), np.zeros((n, classes))
        weights[self.labelled], targets[self.labelled] = self.weights, self.targets
        return (LinearPart(self._basis(inputs), weights, targets, self.ridge),)

    def _basis(self, inputs: NodeInputs) -> HopBasis:
        S, F = propagation(inputs.graph, self.design), self._columns(inputs)
        walk_columns = self.structure.shape[1]
        kinds = ("feature",) * (F.shape[1] - walk_columns - 1) + ("structure",) * walk_columns
        c = np.ones(self.hops + 1)
        return HopBasis(S, F, c, self.projection, kinds=(*kinds, "constant"))

    def _columns(self, inputs: NodeInputs) -> Any:
        structure = self.structure if inputs.structure is None else inputs.structure
        if structure.shape != (inputs.num_nodes, self.structure.shape[1]):
            raise ShapeError(
                f"structure is {size(structure.shape)}, but {inputs.num_nodes} nodes need "
                f"{inputs.num_nodes}×{self.structure.shape[1]}: fold new nodes in first"
            )
        F = columns_of(_usable(inputs.features), np.asarray(structure, np.float64))
        if F.shape[1] != self.projection.shape[1]:
            known = self.projection.shape[1] - self.structure.shape[1] - 1
            raise ShapeError(
                f"features have {F.shape[1] - structure.shape[1] - 1} columns, but {known} were fitted"
            )
        return F

    def arrays(self) -> dict[str, Array]:
        """Arrays to store."""
        U, s, Vt = self.walk
        stored = {name: np.asarray(getattr(self, name)) for name in _STORED}
        return stored | {"walk_left": U, "walk_values": s, "walk_right": np.ascontiguousarray(Vt.T)}

    def facts(self) -> dict[str, Any]:
        """Everything else, as JSON has it."""
        return {name: getattr(self, name) for name in _FACTS}

    @classmethod
    def of_stored(cls, arrays: dict[str, Array], facts: dict[str, Any]) -> JknModel:
        """The model that was stored."""
        walk = SVD(arrays["walk_left"], arrays["walk_values"], arrays["walk_right"].T)
        own: dict[str, Any] = {name: arrays[name] for name in _STORED}
        model = cls(**{name: facts[name] for name in _FACTS}, **own, walk=walk)
        _check_stored(model)
        return model


def _check_stored(model: JknModel) -> None:
    """That everything a stored model is made of fits together."""
    r, m = len(shaped(model.walk.s, None)), len(model.labelled)
    n = shaped(model.walk.U, None, r).shape[0]
    shaped(model.walk.Vt, r, n)
    _, columns, k = shaped(model.projection, None, None, None).shape
    C = shaped(model.coefficients, k, None).shape[1]
    shaped(model.bias, C), shaped(model.weights, m), shaped(model.targets, m, C)
    nodes = model.labelled
    within = nodes.dtype.kind == "i" and nodes.ndim == 1 and m and nodes.min() >= 0 and nodes.max() < n
    known = model.design in PAPER_DESIGNS and isinstance(model.exact, bool)
    if not within or not known or columns < 2 * r + 1 or not len(model.projection):
        raise ShapeError("labelled nodes, design and columns do not belong together")
    integer("window", model.window, least=1)
    finite_number("negative", model.negative, least=0.0)
    if model.ridge is not None:
        finite_number("ridge", model.ridge, least=0.0)


def fit_jkn(
    inputs: NodeInputs,
    targets: Targets,
    settings: NodeSettings,
    *,
    validation: Validation | None = None,
    progress: Progress | None = None,
) -> Fitted:
    """Choose hops L, rank k, window C and λ where they are left open, and fit once.

    Judged by the validation nodes, or without any by five folds of the labelled ones, each refitted exactly;
    `select=False` takes L = 6, k = 30 and C = λ = 1, from the paper. L and R are made here, for each C and λ
    (`inputs.structure` is not looked at). Up to a thousand labelled nodes are factorised exactly, more by the
    functional SVD of the implicit rows. Leave-one-out scores are exact for "jkn-text"; for the others groups
    of labelled nodes, fifty at most, are left out together.
    """
    _check(settings)
    start = time.perf_counter()
    choosing, walking, fitting = portions(progress, [8, 1, 1])
    features = Features.of(_usable(inputs.features), inputs.num_nodes, seed=settings.seed)
    S = propagation(inputs.graph, settings.design)
    grid, records, notices = _select(inputs, targets, settings, validation, (features, S), choosing)
    chosen = records[0] if records else _record_of(grid)
    selected = time.perf_counter()
    factors = structure_factors(
        inputs.graph,
        settings.design,
        window=chosen["window"],
        negative=chosen["negative"],
        seed=settings.seed,
        progress=walking,
    )
    space = features.space(structure_of(factors.svd), settings.design)
    problem = Problem(S, space, targets, settings)
    solved = solve_jkn(problem, hops=chosen["hops"], rank=chosen["rank"])
    model = _model(settings, chosen, problem, solved, factors.svd)
    scores = model.scores(NodeInputs(inputs.graph, inputs.features, model.structure))
    if fitting is not None:
        fitting(1, 1)
    if model.rank < chosen["rank"]:
        notices += (f"rank {chosen['rank']} is above what there is: {model.rank} directions were used",)
    seconds = {"select": selected - start, "fit": time.perf_counter() - selected}
    return Fitted(
        model,
        scores,
        solved.left_out,
        {name: chosen[name] for name in ("hops", "rank", "window", "negative")} | _ridge_of(settings),
        _validation_figures(scores, validation, targets),
        tuple(records[:NEAR_BEST]),
        {name: round(value, 4) for name, value in seconds.items()},
        notices,
        solved.certificate,
    )


def _check(settings: NodeSettings) -> None:
    if settings.design not in PAPER_DESIGNS:
        names = ", ".join(f'"{name}"' for name in PAPER_DESIGNS)
        raise ArgumentError(f"design must be one of {names}, got {shown(settings.design)}")
    for name, least in (("hops", 0), ("rank", 1), ("window", 1)):
        if (value := getattr(settings, name)) is not None:
            integer(name, value, least=least)
    for name in ("negative", "ridge"):
        if (value := getattr(settings, name)) is not None:
            finite_number(name, value, least=0.0)
    if settings.ridge is not None and (settings.design != "jkn-text" or settings.ridge == 0):
        raise ArgumentError(
            f'ridge = {settings.ridge:g} with "{settings.design}": only "jkn-text" takes one, above 0'
        )


def _usable(features: Any) -> Any:
    return None if features is None or features.shape[1] == 0 else features


def _record_of(grid: Grid) -> Record:
    names = ("hops", "rank", "window", "negative")
    values = (grid.hops[0], grid.ranks[0], grid.windows[0], grid.negatives[0])
    return dict(zip(names, values, strict=True))


def _ridge_of(settings: NodeSettings) -> dict[str, Any]:
    return {} if settings.ridge is None else {"ridge": settings.ridge}


def _select(
    inputs: NodeInputs,
    targets: Targets,
    settings: NodeSettings,
    validation: Validation | None,
    made: tuple[Features, Operator],
    progress: Progress | None,
) -> tuple[Grid, list[Record], tuple[str, ...]]:
    """The grid, what it gave (nothing if there was no choice), and what there is to say about that."""
    grid = grid_of(settings, select=settings.select)
    if grid.size == 1 or not len(targets.labelled):
        return grid, [], ()
    trials = trials_of(targets, validation, seed=settings.seed)
    if not trials:
        count = len(targets.labelled)
        notice = f"{count} labelled nodes are too few to choose settings by: the paper's own were used"
        return grid_of(settings, select=False), [], (notice,)
    labels = np.array(targets.labels, np.float64)
    if validation is not None:
        labels[validation.nodes] = validation.labels
    plan = Sweep(inputs, targets, settings, trials, labels, *made)
    return grid, sweep(plan, grid, progress=progress), ()


def _model(settings: NodeSettings, chosen: Record, problem: Problem, solved: Solved, walk: SVD) -> JknModel:
    return JknModel(
        design=settings.design,
        window=chosen["window"],
        negative=float(chosen["negative"]),
        ridge=settings.ridge,
        # As it is stored: sums of another layout may be rounded otherwise, by some processors' routines.
        projection=np.ascontiguousarray(solved.projection),
        coefficients=solved.coefficients,
        bias=solved.bias,
        labelled=problem.targets.labelled,
        weights=np.asarray(problem.targets.weights, np.float64),
        targets=problem.known,
        walk=walk,
        exact=solved.exact,
    )


def _validation_figures(scores: Array, validation: Validation | None, targets: Targets) -> dict[str, Any]:
    if validation is None or not len(validation.nodes):
        return {}
    judged, truth = scores[validation.nodes], validation.labels
    if not targets.multilabel:
        figure = figure_of_merit(judged, truth, multilabel=False)
        return {"accuracy": figure, "nodes": len(truth)}
    auc = figure_of_merit(judged, truth, multilabel=True)
    return {
        "accuracy": float(np.mean((judged > 0.5) == (truth > 0))),
        "roc_auc": auc,
        "nodes": len(truth),
    }
