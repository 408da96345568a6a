"""Every design of node classification by name, and what all of them have in common once fitted."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from fastgrl.certificates import Certificate
from fastgrl.checks import Array
from fastgrl.co_ridge import CoRidgeModel
from fastgrl.co_ridge_fits import fit_co_ridge, left_out
from fastgrl.jkn import JknModel, fit_jkn
from fastgrl.linear_parts import temperature
from fastgrl.node_models import (
    CO_RIDGE,
    PAPER_DESIGNS,
    Fitted,
    NodeFit,
    NodeInputs,
    NodeModel,
    NodeSettings,
    Targets,
    Validation,
)
from fastgrl.progress import Progress
from fastgrl.view_bases import certify_projection

FITS: dict[str, Callable[..., Fitted]] = {CO_RIDGE: fit_co_ridge} | dict.fromkeys(PAPER_DESIGNS, fit_jkn)
MODELS: dict[str, type[NodeModel]] = {CO_RIDGE: CoRidgeModel, **dict.fromkeys(PAPER_DESIGNS, JknModel)}


def fit_nodes(
    inputs: NodeInputs,
    targets: Targets,
    settings: NodeSettings,
    *,
    validation: Validation | None = None,
    progress: Progress | None = None,
) -> NodeFit:
    """Fit a design, and calibrate it where that costs no further fits."""
    fitted = FITS[settings.design](inputs, targets, settings, validation=validation, progress=progress)
    if fitted.loo_scores is None:
        return NodeFit(fitted, None, None)
    return calibrated(fitted, inputs, targets, validation=validation)


def calibrated(
    fitted: Fitted, inputs: NodeInputs, targets: Targets, *, validation: Validation | None = None
) -> NodeFit:
    """Add the temperature and the leave-one-out accuracy, for which co-ridge fits its setting a few times.

    The temperature is that of validation nodes where there are any, unless leaving one out equals a refit.
    """
    loo = fitted.loo_scores
    if loo is None and isinstance(fitted.model, CoRidgeModel):
        loo = left_out(fitted.model, inputs, targets)
        fitted = replace(fitted, loo_scores=loo)
    if loo is None:
        return NodeFit(fitted, 1.0, None)
    limits = thresholds(loo, targets)
    right = predicted_labels(loo, limits) == (targets.known > 0.5)
    share = right.mean() if targets.multilabel else right.all(axis=1).mean()
    judged, truth = loo, targets.known
    if validation is not None and not fitted.model.basis_ignores_labels:
        judged, truth = fitted.scores[validation.nodes], validation.labels
    shifted = judged if limits is None else judged - limits
    T = temperature(shifted, _unsure(truth, targets.multilabel), multilabel=targets.multilabel, threshold=0.0)
    return NodeFit(fitted, T, float(share))


def _unsure(labels: Array, multilabel: bool) -> Array:
    """Labels as if one more node had been seen of which nothing is known: few nodes do not make certainty."""
    share = 1 / (len(labels) + 2)
    return np.asarray((1 - share) * labels + share / (2 if multilabel else labels.shape[1]))


def thresholds(loo_scores: Array | None, targets: Targets) -> Array | None:
    """Above which score a node is said to have each of several labels; None where it has one class.

    As many labelled nodes are to score above it, without their own label, as have the label.
    """
    if not targets.multilabel:
        return None
    if loo_scores is None:
        return np.full(len(targets.classes), 0.5)
    ordered = np.sort(loo_scores, axis=0)[::-1]
    counts = targets.known.sum(axis=0).astype(np.int64)
    edge = np.vstack([ordered[:1] + 1.0, ordered, ordered[-1:] - 1.0])
    columns = np.arange(edge.shape[1])
    return np.asarray((edge[counts, columns] + edge[counts + 1, columns]) / 2)


def predicted_labels(scores: Array, limits: Array | None) -> Array:
    """0/1 rows: the highest score of each, or with limits every score above its own."""
    if limits is not None:
        return np.asarray(scores > limits)
    return np.asarray(np.arange(scores.shape[1]) == scores.argmax(axis=1)[:, None])


def probabilities(scores: Array, temperature: float, *, limits: Array | None = None) -> Array:
    """softmax(scores / T), or with limits logistic((score − limit) / T) for each label.

    >>> probabilities(np.zeros((1, 2)), 1.0)
    array([[0.5, 0.5]])
    """
    if limits is not None:
        return np.asarray(1 / (1 + np.exp(-np.clip((scores - limits) / temperature, -700, 700))))
    E = np.exp((scores - scores.max(axis=1, keepdims=True)) / temperature)
    return np.asarray(E / E.sum(axis=1, keepdims=True))


def certified(inputs: NodeInputs, model: NodeModel) -> Certificate | None:
    """How good the factorisation behind a model is: of the features, or of the walks where there are none."""
    if isinstance(model, CoRidgeModel):
        view = model.members[0].setting.views[0]
        return certify_projection(model.surroundings(inputs), view, model.projections[view])
    return None
