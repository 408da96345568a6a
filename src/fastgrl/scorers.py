"""A scorer of pairs of nodes: logistic regression with ridge, which has one optimum and no step size."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from fastgrl.checks import Array

RIDGE = 1.0
_MOST_STEPS = 50
# The loss is a sum over pairs: what a step promises below this share of it is rounding.
_CONVERGED = 1e-12


@dataclass(frozen=True, eq=False)
class Scorer:
    """score = bias + Σ_j weights_j (feature_j − means_j) / deviations_j: a log-odds."""

    means: Array
    deviations: Array
    weights: Array
    bias: float

    def __call__(self, features: Array) -> Array:
        """The score of every row of `features`."""
        slopes = self.weights / self.deviations
        # Not a matrix product: BLAS would let a score depend on what else is asked.
        return np.asarray(self.bias - self.means @ slopes + np.einsum("ij,j->i", features, slopes))

    def combine(self, features: Iterable[Array], dtype: np.dtype[np.floating]) -> Array:
        """The same from features that come one after another, in any common shape; none of them is kept."""
        slopes = self.weights / self.deviations
        total: Array | None = None
        for slope, feature in zip(slopes.astype(dtype), features, strict=False):
            total = slope * feature if total is None else np.add(total, slope * feature)
        assert total is not None
        total += dtype.type(self.bias - self.means @ slopes)
        return total


def fit_scorer(features: Array, truth: Array, *, ridge: float = RIDGE) -> Scorer:
    """Logistic regression by iteratively reweighted least squares: a handful of weighted ridge solves.

    `features` is m×f, `truth` is 1 for links and 0 for others. The bias is not penalised.

    >>> scorer = fit_scorer(np.array([[0.0], [1.0], [2.0], [3.0]]), np.array([0, 0, 1, 1]))
    >>> bool(scorer(np.array([[3.0]])) > 0)
    True
    """
    means, deviations = features.mean(0), _deviations(features)
    Z = np.column_stack([(features - means) / deviations, np.ones(len(features))])
    penalty = np.diag([ridge] * features.shape[1] + [0.0])
    w = np.zeros(Z.shape[1])
    loss = _loss(Z, truth, w, penalty)
    for _ in range(_MOST_STEPS):
        step, promised = _newton_step(Z, truth, w, penalty)
        if promised <= _CONVERGED * loss:
            break
        w, loss = _shortened(Z, truth, w, step, penalty, loss)
    return Scorer(means, deviations, w[:-1], float(w[-1]))


def fixed_scorer(features: Array, *, share: float = 0.5) -> Scorer:
    """What is used where nothing is held out: the first two, standardised, with weights 1 and `share`."""
    first = features[:, :2]
    return Scorer(first.mean(0), _deviations(first), np.array([1.0, share]), 0.0)


def _deviations(features: Array) -> Array:
    spread = features.std(0)
    # A constant column is rounding noise around its mean: it must not be blown up to unit size.
    return np.where(spread > 1e-9 * np.maximum(1.0, np.abs(features).max(0, initial=0)), spread, 1.0)


def _newton_step(Z: Array, truth: Array, w: Array, penalty: Array) -> tuple[Array, float]:
    """A step of weighted least squares, and by how much it would lower a quadratic loss."""
    chance = _logistic(Z @ w)
    slope = Z.T @ (chance - truth) + penalty @ w
    curvature = (Z * np.maximum(chance * (1 - chance), 1e-12)[:, None]).T @ Z + penalty
    step = np.linalg.solve(curvature, -slope)
    return step, float(-slope @ step) / 2


def _shortened(
    Z: Array, truth: Array, w: Array, step: Array, penalty: Array, reached: float
) -> tuple[Array, float]:
    """A whole step, or the first half of it, of that, … that does not lose; and the loss there."""
    for halvings in range(30):
        tried = w + step * 0.5**halvings
        loss = _loss(Z, truth, tried, penalty)
        if loss <= reached:
            return tried, loss
    return w, reached


def _loss(Z: Array, truth: Array, w: Array, penalty: Array) -> float:
    odds = Z @ w
    return float(np.logaddexp(0, odds).sum() - truth @ odds + w @ penalty @ w / 2)


def _logistic(odds: Array) -> Array:
    return np.asarray(np.exp(-np.logaddexp(0, -odds)))
