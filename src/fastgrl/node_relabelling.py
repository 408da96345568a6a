"""Other labels without another fit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from fastgrl.checks import Array
from fastgrl.class_weights import label_weights
from fastgrl.co_ridge import CoRidgeModel
from fastgrl.co_ridge_fits import refitted
from fastgrl.errors import ArgumentError
from fastgrl.jkn import fit_jkn
from fastgrl.linear_parts import Solution, leave_one_out, relabelled, solve
from fastgrl.node_fits import calibrated, predicted_labels, thresholds
from fastgrl.node_models import Fitted, LinearPart, NodeFit, NodeInputs, NodeModel, NodeSettings, Targets

Linear = tuple[Sequence[LinearPart], Sequence[Solution]]


@dataclass(frozen=True, eq=False)
class Relabelled:
    """A fit with other labels; `difference`: the share of nodes that a refit predicts otherwise, if known."""

    fit: NodeFit
    targets: Targets
    linear: Linear
    exact: bool
    difference: float | None


def relabel_fit(
    fit: NodeFit,
    inputs: NodeInputs,
    targets: Targets,
    changes: dict[int, Array | None],
    *,
    linear: Linear,
    settings: NodeSettings,
    class_weight: Any,
    measure: bool,
) -> Relabelled:
    """Update the last solves of a fit, O(k²) for each change of a node number to a row of labels or None.

    Class weights may weigh every label anew; the solves are then made afresh.
    """
    changed = _changed_targets(targets, changes, class_weight)
    fitted, model = fit.fitted, fit.fitted.model
    exact = model.basis_ignores_labels
    if exact and class_weight is not None and changes:
        done = [_solved_afresh(part, changed) for part in linear[0]]
    else:
        done = [relabelled(part, changes, solution=solved) for part, solved in zip(*linear, strict=True)]
    parts, solutions = [part for part, _ in done], [solved for _, solved in done]
    model, scores = model.resolved(solutions)
    loo = (
        leave_one_out(parts[0], changed.labelled, solution=solutions[0])
        if exact
        else _left_out_before(fit.fitted, targets, changed)
    )
    fitted = replace(fitted, model=model, scores=scores, loo_scores=loo)
    # Without exact leaving out, co-ridge finds another temperature when asked; the paper's keep theirs.
    kept = None if isinstance(model, CoRidgeModel) else fit.temperature
    renewed = calibrated(fitted, inputs, changed) if exact else NodeFit(fitted, kept, None)
    difference: float | None = 0.0 if exact else None
    if measure and not exact:
        again = _refit(model, inputs, changed, settings)
        limits = thresholds(renewed.fitted.loo_scores, changed)
        other = predicted_labels(again, limits) != predicted_labels(scores, limits)
        difference = float(other.any(axis=1).mean())
    return Relabelled(renewed, changed, (parts, solutions), exact, difference)


def _left_out_before(fitted: Fitted, targets: Targets, changed: Targets) -> Array | None:
    """What nodes that are labelled now scored without their own label before; None if co-ridge asks later."""
    if fitted.loo_scores is None or isinstance(fitted.model, CoRidgeModel):
        return None
    scores = fitted.scores.copy()
    scores[targets.labelled] = fitted.loo_scores
    return np.asarray(scores[changed.labelled])


def _refit(model: NodeModel, inputs: NodeInputs, targets: Targets, settings: NodeSettings) -> Array:
    if isinstance(model, CoRidgeModel):
        return refitted(model, inputs, targets)
    return fit_jkn(inputs, targets, replace(settings, select=False)).scores


def _solved_afresh(part: LinearPart, targets: Targets) -> tuple[LinearPart, Solution]:
    weights, Q = np.zeros(len(targets.labels)), targets.labels.astype(np.float64)
    weights[targets.labelled] = targets.weights
    if part.ridge is None:  # the paper's product has the weights in its targets
        Q *= len(targets.labelled) * weights[:, None]
    renewed = replace(part, weights=weights, targets=Q)
    return renewed, solve(renewed)


def _changed_targets(targets: Targets, changes: dict[int, Array | None], class_weight: Any) -> Targets:
    """The targets with other labels, weighed as a fit weighs them."""
    labels = targets.labels.copy()
    has_label = np.zeros(len(labels), bool)
    has_label[targets.labelled] = True
    for node, row in changes.items():
        labels[node] = 0.0 if row is None else row
        has_label[node] = row is not None
    labelled = np.flatnonzero(has_label)
    if not len(labelled):
        raise ArgumentError("no label would be left; at least one node must keep its label")
    weights = np.full(len(labelled), 1 / len(labelled))
    if class_weight is not None:
        weights = label_weights(labels[labelled].argmax(axis=1), targets.classes.tolist(), class_weight)
    labels[labelled[weights == 0]] = 0.0
    return replace(targets, labels=labels, labelled=labelled[weights > 0], weights=weights[weights > 0])
