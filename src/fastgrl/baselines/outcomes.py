"""What a published method makes of a dataset, in one form for all methods."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from fastgrl.checks import Array

Progress = Callable[[int, int], None]


@dataclass(frozen=True, eq=False)
class Outcome:
    """A method's answer to a dataset, and what it cost.

    Of nodes, `scores` is n×C and `predictions` holds a class per node of the graph. Of links, `scores` are
    those of the test edges followed by those of the test non-edges, and `predictions` is None. `validation`
    is the accuracy or ROC-AUC on what the method was allowed to look at beside its training data, None if
    nothing. `seconds` has "train", the training alone, and "total", with what comes before and after it
    (data in memory to scores); `peak_memory_bytes` is the whole process's, None where the system does not
    say. `settings` are the hyper-parameters used, and `epochs` counts the passes made, None where there
    are none.
    """

    scores: Array
    predictions: Array | None
    validation: float | None
    seconds: dict[str, float]
    settings: dict[str, Any]
    epochs: int | None = None
    peak_memory_bytes: int | None = None
