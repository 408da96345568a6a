"""How much each labelled node weighs, by its class."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from fastgrl.checks import Array, shown
from fastgrl.errors import ArgumentError


def label_weights(numbers: Array, classes: list[Any], class_weight: Any) -> Array:
    """One weight per labelled node, whose classes are `numbers`, summing to 1."""
    counts = np.bincount(numbers, minlength=len(classes))
    if class_weight is None:
        by_class = np.ones(len(classes))
    elif isinstance(class_weight, str) and class_weight == "balanced":
        by_class = 1.0 / np.maximum(counts, 1)
    elif isinstance(class_weight, Mapping):
        _refuse_unknown(class_weight, classes)
        by_class = np.array([_class_weight(label, class_weight.get(label, 1.0)) for label in classes])
    else:
        raise ArgumentError(
            f'class_weight must be None, "balanced" or a dictionary, got {shown(class_weight)}'
        )
    weights = by_class[numbers].astype(np.float64)
    if weights.max() > 0:
        weights /= weights.max()  # so that the sum is finite
    else:
        raise ArgumentError("class_weight leaves no labelled node with a weight above 0")
    return np.asarray(weights / weights.sum())


def _refuse_unknown(class_weight: Mapping[Any, Any], classes: list[Any]) -> None:
    """A name that is no class, while a class has no weight, is misspelt."""
    strange = [name for name in class_weight if name not in classes]
    if strange and not all(label in class_weight for label in classes):
        raise ArgumentError(
            f"class_weight names {shown(strange[0])}, which is no class; the classes are "
            f"{', '.join(shown(label, 20) for label in classes[:5])}{'…' if len(classes) > 5 else ''}"
        )


def _class_weight(label: Any, weight: Any) -> float:
    real = isinstance(weight, int | float | np.number) and not isinstance(weight, bool)
    if not real or not 0 <= weight < np.inf:
        raise ArgumentError(
            f"class_weight of {shown(label)} must be a number of at least 0, got {shown(weight)}"
        )
    return float(weight)
