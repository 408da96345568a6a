"""Soft self-training: what the model believes of unlabelled nodes becomes the target of the next solve.

Every round averages the views' beliefs, smooths them along the graph, and solves again with every node
weighted by how sure the belief is. Without the balance of classes a large class swallows the others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fastgrl.checks import Array
from fastgrl.devices import carried
from fastgrl.filters import smoothed
from fastgrl.linalg import map_chunks, sum_over_chunks
from fastgrl.node_models import Targets
from fastgrl.operators import Operator
from fastgrl.parallel import parallel_map
from fastgrl.ridge import RidgeFit, weighted_ridge

SHARPNESS = 4.0
LABELLED_SHARE = 0.3
LATER_RIDGE = 0.3
SMOOTHING: dict[str, Any] = {"restart": 0.7, "steps": 6}
_LEAST_SCALE = 1e-6
# With fewer numbers than this in a view, views and settings are worth a thread each; with more, rows are.
SMALL_VIEW = 1 << 23


@dataclass(frozen=True)
class Squash:
    """Makes probabilities of scores: softmax(4 P / scale).

    With a centre, where a node may have several labels, it is logistic(4 (P − centre) / scale) for each.

    >>> Squash(1.0)(np.array([[1.0, 1.0]]))
    array([[0.5, 0.5]])
    """

    scale: float
    centre: tuple[float, ...] | None = None

    def __call__(self, P: Array) -> Array:
        return self.into(np.array(P))

    def into(self, P: Array) -> Array:
        """The same in the memory of P."""
        by_rows(P, self._of_columns, 8)
        return P

    def _of_columns(self, E: Array) -> None:
        """In place for a few nodes, one in each column: sums over classes are then sums of long rows."""
        if self.centre is not None:
            E -= np.asarray(self.centre, E.dtype)[:, None]
            E *= -SHARPNESS / self.scale
            np.exp(np.clip(E, -60, 60, out=E), out=E)
            E += 1
            np.reciprocal(E, out=E)
            return
        E -= E.max(axis=0)
        E *= SHARPNESS / self.scale
        np.exp(E, out=E)
        E /= E.sum(axis=0)


def by_rows(P: Array, change: Callable[[Array], None], passes: int) -> None:
    """`change` some rows of P at a time, given as columns, in place."""

    def rows(begin: int, end: int) -> None:
        columns = np.ascontiguousarray(P[begin:end].T)
        change(columns)
        P[begin:end] = columns.T

    map_chunks(rows, len(P), passes * P.size)


def squash_of(P: Array, targets: Targets) -> Squash:
    """How the scores of a round become beliefs.

    The scale is the mean over unlabelled nodes (all, if there are none) of the row's maximum above its mean.
    Several labels: each is centred where as large a share of all nodes lies above as of the labelled ones
    have it, and the scale is the mean distance from there.
    """
    if targets.multilabel:
        shares = np.clip(targets.weights @ targets.known, 0.0, 1.0)
        centre = [float(np.quantile(P[:, c], 1 - share)) for c, share in enumerate(shares)]
        spread = np.abs(P - np.asarray(centre, P.dtype)).mean(dtype=np.float64)
        return Squash(max(float(spread), _LEAST_SCALE), tuple(centre))
    total = sum_over_chunks(lambda begin, end: _above_mean(P[begin:end]), len(P), 4 * P.size)
    labelled = _above_mean(P[targets.labelled])
    free = len(P) - len(targets.labelled)
    mean = float((total - labelled)[0]) / free if free else float(total[0]) / len(P)
    return Squash(max(mean, _LEAST_SCALE))


def _above_mean(P: Array) -> Array:
    """How far the maximum of each row lies above its mean, summed over rows, as an array of one."""
    columns = np.ascontiguousarray(P.T)
    return np.array([(columns.max(axis=0) - columns.mean(axis=0)).sum(dtype=np.float64)])


@dataclass(frozen=True, eq=False)
class Round:
    """What a round solved, `weights` and n×C `targets` with `ridge`, and what came of it.

    One solution and one `Squash` per view; `beliefs` are n×C
    probabilities, the mean over the views.
    """

    weights: Array
    targets: Array
    ridge: float
    solutions: tuple[RidgeFit, ...]
    squashes: tuple[Squash, ...]
    beliefs: Array


@dataclass(frozen=True, eq=False)
class Run:
    """How a model is trained: γ, κ, and what is known if not all that the trainer knows."""

    ridge: float
    balance: float
    targets: Targets | None = None


@dataclass(frozen=True, eq=False)
class Trainer:
    """Views of the nodes (n×k each), what is known of them, and the matrix beliefs are averaged along."""

    views: Sequence[Array]
    targets: Targets
    averaging: Operator

    def start(self, ridge: float, targets: Targets | None = None) -> Round:
        """Round 0, on the labels alone."""
        targets = self.targets if targets is None else targets
        weights = np.zeros(len(targets.labels))
        weights[targets.labelled] = targets.weights
        return self._solved(weights, targets.labels.astype(np.float32), ridge, targets)

    def rounds(self, *, ridge: float, balance: float, rounds: int) -> Iterator[Round]:
        """Round 0, then as many as asked for."""
        for (latest,) in self.together([Run(ridge, balance)], rounds):
            yield latest

    def together(self, runs: Sequence[Run], rounds: int) -> Iterator[tuple[Round, ...]]:
        """Round 0 of all runs, then as many as asked for; in each, beliefs of all are smoothed at once."""
        latest = self._starts(runs)
        yield latest
        for _ in range(rounds):
            targets = self._smoothed([one.beliefs for one in latest], runs)
            latest = tuple(self._next(run, Q) for run, Q in zip(runs, targets, strict=True))
            yield latest

    def _starts(self, runs: Sequence[Run]) -> tuple[Round, ...]:
        """Runs that differ in their balance only begin alike."""
        made: dict[tuple[float, int], Round] = {}
        for run in runs:
            key = run.ridge, id(run.targets)
            made[key] = made.get(key) or self.start(run.ridge, run.targets)
        return tuple(made[run.ridge, id(run.targets)] for run in runs)

    def _next(self, run: Run, Q: Array) -> Round:
        targets = run.targets or self.targets
        return self._solved(_weights(Q, run.balance, targets), Q, LATER_RIDGE * run.ridge, targets)

    def _solved(self, weights: Array, Q: Array, ridge: float, targets: Targets) -> Round:
        def of_view(Z: Array) -> tuple[RidgeFit, Squash, Array]:
            solution = weighted_ridge(Z, weights, Q, ridge=ridge)
            P = solution.scores(Z)
            squash = squash_of(P, targets)
            return solution, squash, squash.into(P)

        small = self.views[0].size <= SMALL_VIEW
        solved: Iterable[Any] = (
            parallel_map(carried(of_view), self.views) if small else map(of_view, self.views)
        )
        solutions, squashes, beliefs = [], [], None
        for solution, squash, believed in solved:
            solutions.append(solution)
            squashes.append(squash)
            beliefs = believed if beliefs is None else np.add(beliefs, believed, out=beliefs)
        assert beliefs is not None
        beliefs /= len(solutions)
        return Round(weights, Q, ridge, tuple(solutions), tuple(squashes), beliefs)

    def _smoothed(self, beliefs: Sequence[Array], runs: Sequence[Run]) -> list[Array]:
        """Targets of each run: its beliefs, known labels in their place, smoothed, and these once more."""
        C = beliefs[0].shape[1]
        stack = np.concatenate(beliefs, axis=1)
        parts = [stack[:, C * place : C * (place + 1)] for place in range(len(runs))]
        self._clamp(parts, runs)
        stack = smoothed(self.averaging, stack, **SMOOTHING, overwrite=True)
        # Each run's are its own: a round that is kept would keep all others with it.
        targets = [np.array(stack[:, C * place : C * (place + 1)], order="C") for place in range(len(runs))]
        self._clamp(targets, runs)
        return targets

    def _clamp(self, parts: Sequence[Array], runs: Sequence[Run]) -> None:
        for Q, run in zip(parts, runs, strict=True):
            targets = run.targets or self.targets
            Q[targets.labelled] = targets.known


def _weights(Q: Array, balance: float, targets: Targets) -> Array:
    """.7 for all unlabelled nodes together, by how sure they are, .3 for the labelled; then the balance.

    w_i ← w_i Σ_c Q_ic N_c^-κ with N = Q'w, so that classes come to weigh more alike.
    """
    labelled = targets.labelled
    w = _sureness(Q, targets.multilabel)
    w[labelled] = 0.0
    total = w.sum()
    share = LABELLED_SHARE if total > 0 else 1.0
    if total > 0:
        w *= (1 - share) / total
    w[labelled] = share * targets.weights
    if not targets.multilabel and balance > 0:
        sizes = sum_over_chunks(lambda a, b: w[a:b] @ Q[a:b].astype(np.float64), len(Q), Q.size)
        factors = np.where(sizes > 0, np.maximum(sizes, 1e-12) ** -balance, 0.0)

        def rows(begin: int, end: int) -> None:
            w[begin:end] *= Q[begin:end] @ factors

        map_chunks(rows, len(Q), Q.size)
    w /= w.sum()
    return w


def _sureness(Q: Array, multilabel: bool) -> Array:
    n, C = Q.shape
    sure = np.ones(n)

    def rows(begin: int, end: int) -> None:
        columns = np.ascontiguousarray(Q[begin:end].T)
        if multilabel:
            sure[begin:end] = np.abs(2 * columns - 1).mean(axis=0, dtype=np.float64)
        else:
            largest = columns.max(axis=0).astype(np.float64)
            sure[begin:end] = np.maximum((largest - 1 / C) / (1 - 1 / C), 0.0)

    if C > 1 or multilabel:
        map_chunks(rows, n, 4 * Q.size)
    return sure
