"""Records and a specification become cells: what was published, what was measured, and how fast."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeAlias

from fastgrl.errors import ArgumentError

if TYPE_CHECKING:
    from fastgrl.experiments.specs import DatasetSpec, MethodSpec, Spec

Record: TypeAlias = Mapping[str, Any]

PER_CENT = 100
TABLE, FIGURE = "table", "figure"
RIVAL, OURS = "published", "ours"
_PROCESSOR = ("cpu", "cpus", "threads")


@dataclass(frozen=True)
class Selection:
    """The records a report is made of: all of them full runs, or all of them quick ones."""

    records: tuple[Record, ...]
    quick: bool
    left_out: int


@dataclass(frozen=True)
class Cell:
    """One method on one dataset; shares are in per cent, and None is what nobody published or measured."""

    published: float | None
    published_seconds: float | None
    mean: float | None
    deviation: float | None
    seconds: float | None
    seconds_total: float | None
    records: tuple[Record, ...]
    speedup: float | None = None
    best: bool = False

    @property
    def difference(self) -> float | None:
        """Measured minus published."""
        return None if self.mean is None or self.published is None else self.mean - self.published


@dataclass(frozen=True)
class Row:
    """One method on every dataset of a table.

    `speedup` is the geometric mean of the cells' over datasets, and `speedup_chosen` the same against ours
    with the choice of its settings.
    """

    method: MethodSpec
    cells: tuple[Cell, ...]
    speedup: float | None = None
    speedup_chosen: float | None = None


@dataclass(frozen=True)
class Summary:
    """A table, in numbers; `ours` is the row of the first method of kind "ours", None if there is none.

    `pace` is the row whose seconds are the measure of the others': the one the specification names, or ours.
    """

    spec: Spec
    rows: tuple[Row, ...]
    quick: bool

    @property
    def ours(self) -> Row | None:
        return _ours(self.rows)

    @property
    def pace(self) -> Row | None:
        return _pace(self.spec, self.rows)

    @property
    def measured(self) -> bool:
        return any(cell.records for row in self.rows for cell in row.cells)


def select(records: Iterable[Record]) -> Selection:
    """The latest record of every run, full ones alone where there are any: quick runs are never mixed in.

    A run is a method on a dataset with one seed and, in figures, one axis.

    >>> run = {"task": "links", "method": "wys", "dataset": "ppi", "seed": 0, "quick": False, "value": 0.5}
    >>> select([run, run | {"value": 0.75}, run | {"quick": True}]).records[0]["value"]
    0.75
    """
    given = list(records)
    if not given:
        raise ArgumentError("there are no records to report; run `fastgrl reproduce` first")
    full = [record for record in given if not record.get("quick")]
    kept = {_run(record): record for record in full or given}
    return Selection(tuple(kept.values()), quick=not full, left_out=len(given) - len(full) if full else 0)


def _run(record: Record) -> tuple[Any, ...]:
    names = ("task", "metric", "method", "dataset", "seed")
    return (*(record.get(name) for name in names), axis(record))


def axis(record: Record) -> str | None:
    """What a record's curve runs over; None for a record of a single fit."""
    return (record.get("curve") or {}).get("over")


def belonging(chosen: Selection, spec: Spec, dataset: DatasetSpec, method: MethodSpec) -> tuple[Record, ...]:
    """The records of one method on one dataset, by seed; curves belong to figures alone."""
    wanted = None if spec.axis in (None, "seconds") else spec.axis
    found = [
        record
        for record in chosen.records
        if (record.get("task"), record.get("metric")) == (spec.task, spec.metric)
        and (record.get("dataset"), record.get("method")) == (dataset.name, method.name)
        and axis(record) == wanted
        and _as_specified(record, method)
    ]
    return tuple(sorted(found, key=lambda record: number(record.get("seed")) or 0))


def _as_specified(record: Record, method: MethodSpec) -> bool:
    """Whether it was run with what the specification has now; other settings are another experiment."""
    told = method.settings_for(record["dataset"], quick=bool(record.get("quick")))
    return (record.get("settings", told), record.get("revision", 1)) == (told, method.revision)


def number(value: Any) -> float | None:
    """A finite number, or None.

    >>> number(2), number(float("nan")), number("2"), number(True)
    (2.0, None, None, None)
    """
    real = isinstance(value, int | float) and not isinstance(value, bool)
    return float(value) if real and math.isfinite(value) else None


def figures(records: Iterable[Record], name: str) -> list[float]:
    """The finite values of one field."""
    return [value for record in records if (value := number(record.get(name))) is not None]


def summarise(chosen: Selection, spec: Spec) -> Summary:
    """The table that `spec` describes, as far as there are records for it."""
    rows = tuple(_row(chosen, spec, method) for method in spec.methods)
    ours, pace = _ours(rows), _pace(spec, rows)
    rows = tuple(_compared(row, pace, ours) for row in rows)
    return Summary(spec, _with_best(rows, range(len(spec.datasets))), chosen.quick)


def _ours(rows: tuple[Row, ...]) -> Row | None:
    return next((row for row in rows if row.method.kind == OURS), None)


def _pace(spec: Spec, rows: tuple[Row, ...]) -> Row | None:
    return next((row for row in rows if row.method.name == spec.pace), _ours(rows))


def _row(chosen: Selection, spec: Spec, method: MethodSpec) -> Row:
    cells = (
        _cell(method, dataset.name, belonging(chosen, spec, dataset, method)) for dataset in spec.datasets
    )
    return Row(method, tuple(cells))


def _cell(method: MethodSpec, dataset: str, records: tuple[Record, ...]) -> Cell:
    values = [PER_CENT * value for value in figures(records, "value")]
    return Cell(
        published=method.published.get(dataset),
        published_seconds=method.published_seconds.get(dataset),
        mean=statistics.fmean(values) if values else None,
        deviation=statistics.stdev(values) if len(values) > 1 else None,
        seconds=median(spent(records, "seconds")),
        seconds_total=median(spent(records, "seconds_total")),
        records=records,
    )


def median(values: Sequence[float]) -> float | None:
    """The median, None of nothing."""
    return statistics.median(values) if values else None


def spent(records: Iterable[Record], name: str = "seconds") -> list[float]:
    """Seconds as the clock had them, but no more than the CPU time of all threads together.

    Where one thread computed, what other programs took does not count; where several did, some of it does.

    >>> spent([{"seconds": 9.0, "cpu_seconds": 5.0}, {"seconds": 2.0, "cpu_seconds": 4.0}, {"seconds": 3.0}])
    [5.0, 2.0, 3.0]
    """
    timed = [record for record in records if number(record.get(name)) is not None]
    return [min(figures([record], name) + figures([record], "cpu_seconds")) for record in timed]


def _compared(row: Row, pace: Row | None, ours: Row | None) -> Row:
    ratios = _ratios(row, pace)
    cells = tuple(replace(cell, speedup=ratio) for cell, ratio in zip(row.cells, ratios, strict=True))
    return Row(row.method, cells, _geometric_mean(ratios), _geometric_mean(_ratios(row, ours)))


def _ratios(row: Row, unit: Row | None) -> list[float | None]:
    if unit is None:
        return [None] * len(row.cells)
    return [_speedup(cell, own) for cell, own in zip(row.cells, unit.cells, strict=True)]


def _geometric_mean(ratios: Iterable[float | None]) -> float | None:
    known = [ratio for ratio in ratios if ratio is not None]
    return statistics.geometric_mean(known) if known else None


def _speedup(cell: Cell, ours: Cell) -> float | None:
    """How many times longer than ours it trained; only what ran on the same machine is compared."""
    if not cell.seconds or not ours.seconds or processors(cell.records) != processors(ours.records):
        return None
    return cell.seconds / ours.seconds


def processors(records: Iterable[Record]) -> frozenset[tuple[Any, ...]]:
    """The processors that the records were made on, with their number and that of threads."""
    machines = (record.get("machine") or {} for record in records)
    return frozenset(tuple(machine.get(name) for name in _PROCESSOR) for machine in machines)


def _with_best(rows: tuple[Row, ...], columns: Iterable[int]) -> tuple[Row, ...]:
    tops = [
        max((mean for row in rows if (mean := row.cells[i].mean) is not None), default=None) for i in columns
    ]
    return tuple(
        replace(row, cells=tuple(_marked(cell, top) for cell, top in zip(row.cells, tops, strict=True)))
        for row in rows
    )


def _marked(cell: Cell, top: float | None) -> Cell:
    if cell.mean is None or top is None:
        return cell
    # Means that are printed alike are equally good.
    return replace(cell, best=f"{cell.mean:.2f}" == f"{top:.2f}")
