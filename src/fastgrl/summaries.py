"""What evaluations of every task share: values as JSON holds them, means over runs, the memory used."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

Progress = Callable[[int, int | None], None]
_AVERAGED = ("validation", "test", "seconds", "dot", "both_ways")


def share(progress: Progress, number: int, repeat: int) -> Progress:
    """The part of a bar that run `number` of `repeat` runs fills.

    >>> share(lambda done, total: print(f"{done} of {total}"), 1, 3)(4, 10)
    14 of 30
    """

    def report(done: int, total: int | None) -> None:
        progress(done + number * (total or 0), None if total is None else repeat * total)

    return report


def together(runs: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Several runs as one: means, standard deviations of what was tested, and the runs under "repeats".

    A standard deviation is the sample's. What is no number, and all that is not averaged, is the first run's.

    >>> runs = [{"test": {"auc": value}, "notices": []} for value in (0.5, 0.75)]
    >>> found = together(runs)
    >>> found["test"]["auc"], round(found["test"]["auc_std"], 4), len(found["repeats"])
    (0.625, 0.1768, 2)
    """
    first = {name: value for name, value in runs[0].items() if name not in ("notices", "near_best")}
    means = {name: mean([run[name] for run in runs]) for name in _AVERAGED if name in first}
    spread = {f"{name}_std": sample_deviation([run["test"][name] for run in runs]) for name in first["test"]}
    notices = list(dict.fromkeys(notice for run in runs for notice in run["notices"]))
    return first | means | {"test": means["test"] | spread, "notices": notices, "repeats": list(runs)}


def mean(runs: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The mean of each figure over the runs."""
    names = dict.fromkeys(name for run in runs for name in run)
    return {name: _average([run.get(name) for run in runs]) for name in names}


def _average(values: list[Any]) -> Any:
    """The mean of numbers; anything else, and counts that are all the same, as it is."""
    if all(type(value) is int for value in values) and len(set(values)) == 1:
        return values[0]
    return float(np.mean(values)) if all(isinstance(value, int | float) for value in values) else values[0]


def sample_deviation(values: Sequence[float]) -> float:
    """The standard deviation of a sample: √(Σ (x − mean)² / (n − 1)).

    >>> sample_deviation([1.0, 3.0])
    1.4142135623730951
    """
    return float(np.std(values, ddof=1))


def plain(value: Any) -> Any:
    """A value as JSON can hold it: numbers, text, lists and dictionaries; NaN and Inf become None.

    >>> plain({"a": np.float64(0.5), "b": (np.int64(2), float("nan"))})
    {'a': 0.5, 'b': [2, None]}
    """
    if isinstance(value, Mapping):
        return {str(name): plain(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, np.ndarray | np.generic):
        return plain(value.tolist())
    if isinstance(value, float):
        return value if np.isfinite(value) else None
    return value if value is None or isinstance(value, str | int) else str(value)


def peak_memory() -> int | None:
    """The most memory that this process has held, in bytes; None where the system does not say."""
    if sys.platform == "win32":
        return None
    import resource

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return int(peak) if sys.platform == "darwin" else int(peak) * 1024
