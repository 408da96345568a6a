"""Soft self-training: what the model believes of unlabelled nodes becomes the target of the next solve.

Every round averages the views' beliefs, smooths them along the graph, and solves again with every node
weighted by how sure the belief is. Without the balance of classes a large class swallows the others.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fastgrl.checks import Array
from fastgrl.filters import smoothed
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
        if self.centre is not None:
            E = P - np.asarray(self.centre, P.dtype)
            E *= -SHARPNESS / self.scale
            np.exp(np.clip(E, -60, 60, out=E), out=E)
            E += 1
            return np.asarray(np.reciprocal(E, out=E))
        E = P - P.max(axis=1, keepdims=True)
        E *= SHARPNESS / self.scale
        np.exp(E, out=E)
        E /= E.sum(axis=1, keepdims=True)
        return np.asarray(E)


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
    largest = P.max(axis=1) - P.mean(axis=1)
    free = np.ones(len(P), bool)
    free[targets.labelled] = False
    return Squash(
        max(float(np.mean(largest[free] if free.any() else largest, dtype=np.float64)), _LEAST_SCALE)
    )


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
class Trainer:
    """Views of the nodes (n×k each), what is known of them, and the matrix beliefs are averaged along."""

    views: Sequence[Array]
    targets: Targets
    averaging: Operator

    def start(self, ridge: float) -> Round:
        """Round 0, on the labels alone."""
        weights = np.zeros(len(self.targets.labels))
        weights[self.targets.labelled] = self.targets.weights
        return self._solved(weights, self.targets.labels.astype(np.float32), ridge)

    def rounds(
        self, *, ridge: float, balance: float, rounds: int, start: Round | None = None
    ) -> Iterator[Round]:
        """Round 0, unless it is given, then as many as asked for."""
        latest = self.start(ridge) if start is None else start
        yield latest
        for _ in range(rounds):
            targets = self._smoothed(latest.beliefs)
            weights = self._weights(targets, balance)
            latest = self._solved(weights, targets, LATER_RIDGE * ridge)
            yield latest

    def _solved(self, weights: Array, targets: Array, ridge: float) -> Round:
        def of_view(Z: Array) -> tuple[RidgeFit, Squash, Array]:
            solution = weighted_ridge(Z, weights, targets, ridge=ridge)
            P = solution.scores(Z)
            squash = squash_of(P, self.targets)
            return solution, squash, squash(P)

        small = self.views[0].size <= SMALL_VIEW
        solved = parallel_map(of_view, self.views) if small else list(map(of_view, self.views))
        solutions, squashes, believed = zip(*solved, strict=True)
        beliefs = functools.reduce(lambda one, other: np.add(one, other, out=one), believed)
        beliefs /= len(solutions)
        return Round(weights, targets, ridge, solutions, squashes, beliefs)

    def _clamped(self, Q: Array) -> Array:
        Q[self.targets.labelled] = self.targets.known
        return Q

    def _smoothed(self, beliefs: Array) -> Array:
        start = self._clamped(beliefs.copy())
        return self._clamped(smoothed(self.averaging, start, **SMOOTHING))

    def _weights(self, Q: Array, balance: float) -> Array:
        """.7 for all unlabelled nodes together, by how sure they are, .3 for the labelled; then the balance.

        w_i ← w_i Σ_c Q_ic N_c^-κ with N = Q'w, so that classes come to weigh more alike.
        """
        labelled = self.targets.labelled
        sure = self._sureness(Q)
        sure[labelled] = 0.0
        total = sure.sum()
        share = LABELLED_SHARE if total > 0 else 1.0
        w = sure * ((1 - share) / total) if total > 0 else sure
        w[labelled] = share * self.targets.weights
        if not self.targets.multilabel and balance > 0:
            sizes = Q.T @ w
            w *= Q @ np.where(sizes > 0, np.maximum(sizes, 1e-12) ** -balance, 0.0)
        return np.asarray(w / w.sum())

    def _sureness(self, Q: Array) -> Array:
        if self.targets.multilabel:
            return np.asarray(np.abs(2 * Q - 1).mean(axis=1, dtype=np.float64))
        C = Q.shape[1]
        if C == 1:
            return np.ones(len(Q))
        return np.asarray(np.maximum((Q.max(axis=1).astype(np.float64) - 1 / C) / (1 - 1 / C), 0.0))
