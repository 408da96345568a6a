"""What a table shows, in sentences: who is ahead, what was reproduced, how much faster."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fastgrl.reports.grids import factor, percentage, signed
from fastgrl.reports.summary import OURS, RIVAL, Cell, Summary

if TYPE_CHECKING:
    from fastgrl.experiments.specs import DatasetSpec, MethodSpec


@dataclass(frozen=True)
class _Rival:
    value: float
    name: str
    deviation: float | None = None


def verdicts(summary: Summary) -> tuple[str, ...]:
    """One sentence per dataset: is ours ahead of every measured and published number, and by how much."""
    columns = enumerate(summary.spec.datasets)
    return tuple(_verdict(summary, number, dataset) for number, dataset in columns)


def _verdict(summary: Summary, column: int, dataset: DatasetSpec) -> str:
    start = f"{dataset.label}: ours ahead of every measured and published number:"
    margin, rival = _lead(summary, column), _best_rival(summary, column)
    if margin is None:
        return f"{start} not known, ours has not been measured."
    if rival is None:
        return f"{start} not known, there is no other number."
    answer = "yes" if margin > 0 else "no"
    side = "ahead of" if margin > 0 else "behind" if margin < 0 else "level with"
    noise = ", within the spread of the runs" if abs(margin) <= _spread(summary, column, rival) else ""
    return f"{start} {answer}, by {signed(margin)} ({side} {rival.name}, {percentage(rival.value)}{noise})."


def _spread(summary: Summary, column: int, rival: _Rival) -> float:
    """The larger standard deviation of ours and of what ours is compared with."""
    own = None if summary.ours is None else summary.ours.cells[column].deviation
    return max(own or 0.0, rival.deviation or 0.0)


def _lead(summary: Summary, column: int) -> float | None:
    """Ours minus the best of the others, infinite without others, None while ours is not measured."""
    own = None if summary.ours is None else summary.ours.cells[column].mean
    if own is None:
        return None
    rival = _best_rival(summary, column)
    return float("inf") if rival is None else own - rival.value


def _best_rival(summary: Summary, column: int) -> _Rival | None:
    rivals = [
        rival
        for row in summary.rows
        if row.method.kind != OURS
        for rival in _numbers(row.method, row.cells[column])
    ]
    return max(rivals, key=lambda rival: rival.value, default=None)


def _numbers(method: MethodSpec, cell: Cell) -> Iterator[_Rival]:
    if cell.mean is not None:
        yield _Rival(cell.mean, f"{method.label}, measured", cell.deviation)
    if cell.published is not None:
        yield _Rival(cell.published, f"{method.label}, published")


def unreached(summary: Summary) -> tuple[str, ...]:
    """A sentence for every dataset with a published number above everything measured here."""
    return tuple(
        f"{dataset.label}: the published {percentage(top.value)} of {top.name.removesuffix(', published')} "
        f"is above every number measured here."
        for column, dataset in enumerate(summary.spec.datasets)
        if (top := _top_published(summary, column)) is not None
    )


def _top_published(summary: Summary, column: int) -> _Rival | None:
    cells = [(row.method.label, row.cells[column]) for row in summary.rows]
    means = [cell.mean for _, cell in cells if cell.mean is not None]
    published = [_Rival(cell.published, label) for label, cell in cells if cell.published is not None]
    top = max(published, key=lambda rival: rival.value, default=None)
    return top if top is not None and means and top.value > max(means) else None


def reproductions(summary: Summary) -> tuple[str, ...]:
    """A sentence for every method that was published and run: reproduced, above or below, by how much."""
    sentences = []
    for row in summary.rows:
        parts = [
            f"{dataset.label} {_reproduction(row.method, cell)}"
            for dataset, cell in zip(summary.spec.datasets, row.cells, strict=True)
            if cell.difference is not None
        ]
        if parts:
            sentences.append(f"{row.method.label}: {', '.join(parts)}.")
    return tuple(sentences)


def _reproduction(method: MethodSpec, cell: Cell) -> str:
    difference = cell.difference or 0.0
    if abs(difference) <= method.tolerance:
        return f"reproduced ({signed(difference)})"
    return f"{'above' if difference > 0 else 'below'} by {percentage(abs(difference))}"


def headline(summary: Summary) -> str:
    """The table in two or three sentences: the score, the speed, and how many baselines were reproduced."""
    return " ".join(filter(None, (_score(summary), _speed(summary), _reproduced(summary))))


def _score(summary: Summary) -> str:
    leads = [_lead(summary, column) for column in range(len(summary.spec.datasets))]
    known = [lead for lead in leads if lead is not None]
    if summary.ours is None or not known:
        return "Ours has not been measured yet."
    ahead = sum(lead > 0 for lead in known)
    return (
        f"{summary.ours.method.label} is ahead of every measured and published number "
        f"on {ahead} of {len(known)} dataset{'s' * (len(known) > 1)}."
    )


def _speed(summary: Summary) -> str:
    """One training of those we compare with against one fit, and against ours with all that it tries."""
    others = [row for row in summary.rows if row.method.kind == RIVAL and row.speedup is not None]
    if not others or summary.pace is None:
        return ""
    ends = _ends([(row.speedup or 0.0, row.method.label) for row in others])
    said = f"On the same CPU, one training takes {ends} the seconds of {summary.pace.method.label}"
    if summary.ours is not None and summary.ours is not summary.pace:
        ends = _ends([(row.speedup_chosen or 0.0, row.method.label) for row in others])
        said += f", and {ends} those of {summary.ours.method.label} with all settings that it tries"
    return f"{said} (geometric means over datasets)."


def _ends(ratios: list[tuple[float, str]]) -> str:
    (least, quickest), (most, slowest) = min(ratios), max(ratios)
    last = f"{factor(most)} ({slowest})"
    return last if quickest == slowest else f"from {factor(least)} ({quickest}) to {last}"


def _reproduced(summary: Summary) -> str:
    found = [
        cell.difference >= -row.method.tolerance
        for row in summary.rows
        if row.method.kind != OURS
        for cell in row.cells
        if cell.difference is not None
    ]
    if not found:
        return ""
    return f"{sum(found)} of {len(found)} published results were reached within their tolerance."
