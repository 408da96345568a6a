"""Fitting co-ridge: settings chosen on validation nodes, or by leave-one-out where there are none.

Views of the features are smoothed along the graph and projected once (`view_bases`); every setting is then a
few weighted ridges (`ridge`) that teach each other unlabelled nodes (`self_training`).
"""

from __future__ import annotations

import itertools
import threading
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from fastgrl.checks import Array
from fastgrl.co_ridge import STRUCTURE_WALK, CoRidgeModel, Member, Setting, combined, is_linear
from fastgrl.co_ridge_grids import Grid, recipe_for
from fastgrl.co_ridge_workshop import Workshop, each
from fastgrl.fsvd import SVD
from fastgrl.jkn_features import structure_factors, structure_of
from fastgrl.linear_parts import leave_one_out
from fastgrl.node_models import (
    Fitted,
    LinearPart,
    NodeInputs,
    NodeSettings,
    Targets,
    Validation,
)
from fastgrl.progress import Progress, portions
from fastgrl.self_training import Round, Run, Trainer
from fastgrl.stopwatch import Stopwatch
from fastgrl.view_bases import Surroundings
from fastgrl.views import FeatureMap

AVERAGED, REPORTED = 5, 8
TURNS = 5
# Columns of beliefs that are smoothed together: several cache lines, and less than coordinates take.
TOGETHER = 48


@dataclass(frozen=True, eq=False)
class Tried:
    """A setting with how it did, and what it left; `order` is its place in the grid.

    `error` is the Brier score of its beliefs, their mean squared distance from the truth: unlike the share
    that is right, it tells settings apart that differ little.
    """

    error: float
    accuracy: float
    order: int
    member: Member

    @property
    def rank(self) -> tuple[float, int]:
        """Best first; among equals the one that stands first in the grid."""
        return self.error, self.order

    def told(self) -> dict[str, Any]:
        """As users read it."""
        return {**self.member.setting.told(), "accuracy": self.accuracy, "brier": round(self.error, 5)}


class Podium:
    """The best few of what was tried, whichever thread tried it; only their arrays are kept."""

    def __init__(self, size: int) -> None:
        self._size, self._lock = size, threading.Lock()
        self.best: list[Tried] = []
        self._told: list[tuple[tuple[float, int], dict[str, Any]]] = []

    def enter(self, tried: Tried) -> None:
        """Take note of a setting."""
        with self._lock:
            self._told.append((tried.rank, tried.told()))
            self.best = sorted([*self.best, tried], key=lambda one: one.rank)[: self._size]

    def table(self) -> tuple[dict[str, Any], ...]:
        """The best settings with their figures; none if there was nothing to choose."""
        best = sorted(self._told, key=lambda one: one[0])[:REPORTED]
        return tuple(told for _, told in best) if len(best) > 1 else ()


def fit_co_ridge(
    inputs: NodeInputs,
    targets: Targets,
    settings: NodeSettings,
    *,
    validation: Validation | None = None,
    progress: Progress | None = None,
) -> Fitted:
    """Fit the design to a graph whose nodes are partly labelled."""
    watch = Stopwatch()
    walk = None
    if inputs.features is None:
        walk = structure_factors(inputs.graph, "jkn", seed=settings.seed, **STRUCTURE_WALK).svd
        inputs = replace(inputs, structure=structure_of(walk, np.float32))
    features = FeatureMap.of(inputs)
    grid = Grid.of(settings, features, inputs.num_nodes)
    swept = settings.select and validation is not None
    linear = grid.linear if swept else is_linear([grid.defaults()])
    kind = np.float64 if linear else np.float32
    if linear and walk is not None:
        inputs = replace(inputs, structure=structure_of(walk))
    shop = Workshop(
        Surroundings(inputs, features, kind),
        settings.rank or recipe_for(inputs.num_nodes).rank,
        settings.seed,
    )
    first, last = portions(progress, [9, 1])
    podium = Podium(AVERAGED if swept else 1)
    if swept and validation is not None:
        _sweep(shop, targets, grid, validation, podium, first)
        watch.stop("select")
    else:
        chosen = grid.defaults()
        if settings.select:
            chosen = _by_leave_one_out(shop, targets, grid)
            watch.stop("select")
        if shop.small:
            shop.prepare(chosen.views, [chosen.restart])
        latest = _trained(shop.trainer(chosen.views, chosen.restart, targets), chosen)
        podium.enter(Tried(0.0, 0.0, 0, Member(chosen, latest)))
    fitted = _fitted(shop, targets, podium, validation, walk)
    if last is not None:
        last(1, 1)
    watch.stop("fit")
    return replace(fitted, seconds=watch.seconds, notices=_unused_views(settings, features))


def _trained(trainer: Trainer, how: Setting) -> Round:
    """The last round; the others are not kept."""
    rounds = trainer.rounds(ridge=how.ridge, balance=how.balance, rounds=how.rounds)
    return deque(rounds, maxlen=1)[0]


def _unused_views(settings: NodeSettings, features: FeatureMap) -> tuple[str, ...]:
    if settings.views is None or set(settings.views) <= set(features.views):
        return ()
    return (f"there are no features: views are those of the graph, not {', '.join(settings.views)}",)


def _fitted(
    shop: Workshop, targets: Targets, podium: Podium, validation: Validation | None, walk: SVD | None
) -> Fitted:
    members = tuple(tried.member for tried in podium.best)
    used = {(view, m.setting.restart) for m in members for view in m.setting.views}
    model = CoRidgeModel(
        shop.around.features,
        {view: shop.projections[view] for view in shop.projections if view in {view for view, _ in used}},
        {key: frame for key, frame in shop.frames.items() if key in used},
        members,
        targets.multilabel,
        walk,
    )
    if model.exact:
        scores = members[0].round.solutions[0].scores(shop.coordinates(*next(iter(used))).Z)
    else:
        mean = sum(member.round.beliefs.astype(np.float64) for member in members) / len(members)
        scores = combined(np.asarray(mean), targets.multilabel)
    # Beliefs have gone into the scores; n×C for every member is much to keep.
    spared = tuple(
        replace(member, round=replace(member.round, beliefs=np.empty((0, 0)))) for member in members
    )
    model = replace(model, members=spared)
    chosen = {**members[0].setting.told(), "averaged": len(members)}
    figures: dict[str, Any] = {}
    if validation is not None:
        truth = _as_predicted(scores, targets.multilabel)[validation.nodes]
        figures = {"accuracy": _agreement(truth, validation.labels), "nodes": len(validation.nodes)}
    loo = _left_out_exactly(shop, targets, members[0]) if model.exact else None
    return Fitted(model, scores, loo, chosen, figures, podium.table())


def _left_out_exactly(shop: Workshop, targets: Targets, member: Member) -> Array:
    how, last = member.setting, member.round
    part = LinearPart(shop.basis(how.views[0], how.restart), last.weights, last.targets, last.ridge)
    return leave_one_out(part, targets.labelled)


def left_out(model: CoRidgeModel, inputs: NodeInputs, targets: Targets) -> Array:
    """What labelled nodes score, m×C, in fits of the best setting to the labels of others.

    After self-training a node's label is in its neighbours' targets, and leaving it out of the last solve
    would say little: a share of the labels is hidden from all rounds instead, in turns.
    """
    how = model.members[0].setting
    shop = Workshop.of(model, inputs)
    trainer = shop.trainer(how.views, how.restart, targets)
    out = np.zeros(targets.known.shape)

    hiding = [hidden for turn in range(TURNS) if not (hidden := _turns(targets) == turn).all()]

    def judge(some: Sequence[Array]) -> None:
        runs = [Run(how.ridge, how.balance, _without(targets, hidden)) for hidden in some]
        for hidden, latest in zip(some, deque(trainer.together(runs, how.rounds), maxlen=1)[0], strict=True):
            out[hidden] = combined(latest.beliefs[targets.labelled[hidden]], targets.multilabel)

    each(judge, groups_of(hiding, len(targets.classes)), shop)
    return out


def groups_of(runs: Sequence[Any], classes: int) -> list[Sequence[Any]]:
    """Runs whose beliefs are smoothed together: as many as there is room for, groups of about one size.

    >>> groups_of("abcdefgh", 7)
    ['abcd', 'efgh']
    """
    most = max(1, TOGETHER // classes)
    count = -(-len(runs) // most)
    size = -(-len(runs) // max(count, 1))
    return [runs[begin : begin + size] for begin in range(0, len(runs), max(size, 1))]


def _turns(targets: Targets) -> Array:
    """When each label is hidden: those of a class at times as different as can be."""
    order = np.lexsort((targets.labelled, targets.known.argmax(axis=1)))
    turns = np.empty(len(order), np.int64)
    turns[order] = np.arange(len(order)) % TURNS
    return turns


def _without(targets: Targets, hidden: Array) -> Targets:
    weights = targets.weights[~hidden]
    return replace(targets, labelled=targets.labelled[~hidden], weights=weights / weights.sum())


def _sweep(
    shop: Workshop,
    targets: Targets,
    grid: Grid,
    validation: Validation,
    podium: Podium,
    progress: Progress | None,
) -> None:
    """Run every setting; those that differ in rounds only are one run, and of the same views go along."""
    order = {setting: place for place, setting in enumerate(grid.settings())}
    pairs = [Run(ridge, balance) for ridge, balance in itertools.product(grid.ridges, grid.balances)]
    groups = groups_of(pairs, len(targets.classes))
    jobs = list(itertools.product(grid.restarts, grid.views, groups))
    done = itertools.count(1)

    def job(how: tuple[float, tuple[str, ...], Sequence[Run]]) -> None:
        restart, views, runs = how
        trainer = shop.trainer(views, restart, targets)
        for number, rounds in enumerate(trainer.together(runs, max(grid.rounds))):
            for run, latest in zip(runs, rounds if number in grid.rounds else (), strict=False):
                setting = Setting(views, restart, run.ridge, run.balance, number)
                figures = _judged(latest, validation, targets.multilabel)
                podium.enter(Tried(*figures, order[setting], Member(setting, latest)))
        finished = next(done)
        if progress is not None and threading.current_thread() is threading.main_thread():
            progress(finished, len(jobs))

    if shop.small:
        shop.prepare(dict.fromkeys(view for views in grid.views for view in views), grid.restarts)
    each(job, jobs, shop)


def _judged(latest: Round, validation: Validation, multilabel: bool) -> tuple[float, float]:
    """Brier score and accuracy on the validation nodes."""
    beliefs = latest.beliefs[validation.nodes].astype(np.float64)
    error = float(np.mean(np.sum((beliefs - validation.labels) ** 2, axis=1)))
    return error, _agreement(_as_predicted(beliefs, multilabel), validation.labels)


def _as_predicted(scores: Array, multilabel: bool) -> Array:
    return scores > 0.5 if multilabel else scores.argmax(axis=1)


def _agreement(predicted: Array, labels: Array) -> float:
    """The share of nodes, or of a node's labels, that are right."""
    if predicted.ndim == 2:
        return float(np.mean(predicted == (labels > 0.5)))
    return float(np.mean(labels[np.arange(len(predicted)), predicted] > 0.5))


def _by_leave_one_out(shop: Workshop, targets: Targets, grid: Grid) -> Setting:
    """The ridge whose round on labels alone predicts most labels that were left out; the rest by default."""
    default = grid.defaults()
    if shop.small:
        shop.prepare(default.views, [default.restart])
    bases = [shop.basis(view, default.restart) for view in default.views]
    weights = np.zeros(len(targets.labels))
    weights[targets.labelled] = targets.weights
    best: tuple[float, float, float] | None = None
    for ridge in grid.ridges:
        parts = [LinearPart(basis, weights, targets.labels, ridge) for basis in bases]
        P = sum(leave_one_out(part, targets.labelled) for part in parts) / len(parts)
        right = _agreement(_as_predicted(np.asarray(P), targets.multilabel), targets.known)
        error = float(np.mean((np.asarray(P) - targets.known) ** 2))
        candidate = (-right, error, ridge)
        best = candidate if best is None or candidate < best else best
    assert best is not None
    return replace(default, ridge=best[2])


def refitted(model: CoRidgeModel, inputs: NodeInputs, targets: Targets) -> Array:
    """The scores of a fit with other labels, its settings, projections and frames being those of `model`."""
    shop = Workshop.of(model, inputs)
    total: Array | float = 0.0
    for member in model.members:
        how = member.setting
        latest = _trained(shop.trainer(how.views, how.restart, targets), how)
        total = total + latest.beliefs.astype(np.float64) / len(model.members)
    return combined(np.asarray(total), targets.multilabel)
