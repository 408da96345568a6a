"""What a run consists of, as counts of steps, and how long one unit of each step takes.

The formulas of `link_times` and `node_times` turn a cost into `Work`; `calibration` measures the rates of the
steps that such a cost has on the machine and the graph at hand. Where nothing was measured, the constants
below are those of one thread of a common two-core machine.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from fastgrl.errors import ArgumentError


@dataclass(frozen=True)
class Work:
    """`calls` of a step, of `units` all together."""

    step: str
    units: float
    calls: float = 1.0


@dataclass(frozen=True)
class Rate:
    """Seconds for a unit of a step and for calling it; `serial` steps run on one thread whatever is asked."""

    unit: float
    call: float = 0.0
    serial: bool = False

    def seconds(self, work: Work, speed: float = 1.0) -> float:
        """Of some work, `speed` times as fast unless it is serial."""
        return work.calls * self.call + work.units * self.unit / (1.0 if self.serial else speed)


# By step. Units: multiply-adds of sparse rows and of dense blocks, rows pushed (times 1 − damping), entries
# of rows, pairs, edges, stored entries of the graph, numbers.
USUAL: dict[str, Rate] = {
    "product": Rate(9e-10, 2e-5),
    "dense": Rate(8e-11, 3e-3),
    "push": Rate(9e-6),
    "logarithm": Rate(6e-8),
    "log product": Rate(2e-10, 1e-4),
    "log rows": Rate(1.2e-8),
    "features": Rate(5e-6, serial=True),
    "scorer": Rate(1e-7, 1e-3, serial=True),
    "judge": Rate(8e-9, 1e-3, serial=True),
    "split": Rate(1e-6, 1e-3, serial=True),
    "survey": Rate(4e-9, 2e-3, serial=True),
    "matrices": Rate(1.2e-7, 2e-3, serial=True),
    "filter": Rate(8e-10, 1e-4),
    "view": Rate(6e-10, 1e-3),
    "round": Rate(8e-11, 1e-3),
    "similar": Rate(8e-10),
    "hop": Rate(7e-10, 1e-4),
    "decomposition": Rate(6e-10, 1e-4, serial=True),
}


def usual_rate(step: str) -> Rate:
    """The rate of a step where it was not measured; "push 0.85" is a push of that damping.

    >>> from fastgrl.rates import usual_rate
    >>> usual_rate("push 0.5").unit == 2 * usual_rate("push").unit
    True
    """
    name, _, damping = step.rpartition(" ") if step.startswith("push ") else (step, "", "")
    if name not in USUAL:
        raise ArgumentError(f"there is no step called {step!r}")
    rate = USUAL[name]
    return Rate(rate.unit / (1 - float(damping)), rate.call) if damping else rate


@dataclass(frozen=True)
class Rates:
    """Rates measured on `threads` threads, by step; the usual ones where a step was not measured.

    `row_lengths` are the entries that a pushed row keeps, by damping, as far as rows were pushed.
    """

    threads: int = 1
    measured: Mapping[str, Rate] = field(default_factory=dict)
    row_lengths: Mapping[float, float] = field(default_factory=dict)

    def seconds(self, work: Iterable[Work], *, threads: int) -> float:
        """What some work takes on so many threads.

        >>> from fastgrl.rates import Rate, Rates, Work
        >>> Rates(2, {"product": Rate(1e-9)}).seconds([Work("product", 1e9)], threads=2)
        1.0
        """
        return sum(self._seconds(one, threads) for one in work)

    def _seconds(self, work: Work, threads: int) -> float:
        rate = self.measured.get(work.step)
        if rate is None:
            return usual_rate(work.step).seconds(work, threads)
        return rate.seconds(work, threads / self.threads)
