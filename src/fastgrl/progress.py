"""Telling how far a computation is: `progress(done, total)`, also of the parts of a whole."""

from __future__ import annotations

from collections.abc import Callable, Sequence

Progress = Callable[[int, int], None]
_WHOLE = 1000


def portions(progress: Progress | None, shares: Sequence[float]) -> list[Progress | None]:
    """One callback for each part of a computation, in proportion to what the parts cost.

    >>> first, second = portions(lambda done, total: print(f"{done} of {total}"), [1, 3])
    >>> first(1, 2); second(10, 10)
    125 of 1000
    1000 of 1000
    """
    if progress is None:
        return [None] * len(shares)
    report, whole, before, bars = progress, sum(shares), 0.0, []
    for share in shares:

        def bar(done: int, total: int, before: float = before, share: float = share) -> None:
            report(round(_WHOLE * (before + share * done / max(total, 1)) / whole), _WHOLE)

        bars.append(bar)
        before += share
    return list(bars)
