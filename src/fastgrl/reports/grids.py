"""Tables before they are Markdown, LaTeX or HTML: columns, and cells with their text and their value."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fastgrl.reports.summary import Cell, Record, Row, Selection, Summary, number

if TYPE_CHECKING:
    from fastgrl.experiments.specs import DatasetSpec, Spec

MISSING = "–"
_NAMES = {
    "edges": "to learn from",
    "test": "to test",
    "train": "to train",
    "test_negatives": "test non-edges",
}


@dataclass(frozen=True)
class Entry:
    """What a cell says, with a detail in small print, and what it is sorted by.

    `value` is a number, a text, or None, which comes last.
    """

    text: str
    value: float | str | None = None
    detail: str = ""
    strong: bool = False
    code: bool = False

    @property
    def full(self) -> str:
        """The text with its detail."""
        return f"{self.text} {self.detail}".strip()


@dataclass(frozen=True)
class Grid:
    """A table; `groups` are headings over several columns each, and are empty when there are none.

    `right` says for every column whether it holds numbers and is set to the right.
    """

    name: str
    title: str
    columns: tuple[str, ...]
    right: tuple[bool, ...]
    rows: tuple[tuple[Entry, ...], ...]
    groups: tuple[tuple[str, int], ...] = ()

    @property
    def headings(self) -> tuple[str, ...]:
        """Every column's full name, that of its group in front."""
        above = [label for label, span in self.groups for _ in range(span)] or [""] * len(self.columns)
        return tuple(f"{group} {column}".strip() for group, column in zip(above, self.columns, strict=True))


def words(text: str, *, code: bool = False) -> Entry:
    """A cell of text.

    >>> words("").text
    '–'
    """
    return Entry(text or MISSING, text or None, code=code and bool(text))


def percentage(value: float) -> str:
    """A share in per cent, without the sign.

    >>> percentage(97.0), percentage(97.126)
    ('97.00', '97.13')
    """
    return f"{value:.2f}"


def published_figure(value: float) -> str:
    """A published number with as many digits as it was given, one at least.

    >>> published_figure(97.0), published_figure(97.25)
    ('97.0', '97.25')
    """
    text = f"{value:.10g}"
    return text if "." in text else f"{text}.0"


def signed(value: float) -> str:
    """A difference with its sign, a true minus.

    >>> signed(-0.25), signed(0.0), signed(1.5)
    ('−0.25', '0.00', '+1.50')
    """
    text = f"{value:+.2f}"
    return text[1:] if float(text) == 0 else text.replace("-", "−")


def seconds(value: float) -> str:
    """Seconds with the digits that matter.

    >>> seconds(0.0123), seconds(1.234), seconds(45.67), seconds(1234.5)
    ('0.012', '1.23', '45.7', '1,234')
    """
    if value < 1:
        return f"{value:.3f}"
    return f"{value:.2f}" if value < 10 else f"{value:.1f}" if value < 100 else f"{value:,.0f}"


def factor(value: float) -> str:
    """How many times, in about three digits.

    >>> factor(0.5), factor(12.34), factor(1234.5)
    ('0.50×', '12.3×', '1,234×')
    """
    text = f"{value:.2f}" if value < 10 else f"{value:.1f}" if value < 100 else f"{value:,.0f}"
    return f"{text}×"


def _given(value: float) -> str:
    return f"{value:,.10g}"


def score_grid(summary: Summary) -> Grid:
    """Published, measured (mean ± sample standard deviation, runs) and difference for every dataset."""
    spec = summary.spec
    columns = ("published", "measured", "diff.") * len(spec.datasets)
    return Grid(
        name=f"{spec.name}-scores",
        title=spec.title,
        columns=("method", *columns),
        right=(False, *(True for _ in columns)),
        rows=tuple(
            (words(row.method.label), *(e for cell in row.cells for e in _scores(cell)))
            for row in summary.rows
        ),
        groups=(("", 1), *((dataset.label, 3) for dataset in spec.datasets)),
    )


def _scores(cell: Cell) -> tuple[Entry, Entry, Entry]:
    return (_entry(cell.published, published_figure), _measured(cell), _entry(cell.difference, signed))


def _measured(cell: Cell) -> Entry:
    if cell.mean is None:
        return Entry(MISSING)
    spread = "" if cell.deviation is None else f"± {percentage(cell.deviation)} "
    return Entry(percentage(cell.mean), cell.mean, detail=f"{spread}({len(cell.records)})", strong=cell.best)


def _entry(value: float | None, form: Any) -> Entry:
    return Entry(MISSING) if value is None else Entry(form(value), value)


def speed_grid(summary: Summary) -> Grid:
    """Seconds of training and end to end, and how many times those of ours, for every dataset."""
    spec = summary.spec
    shown = any(cell.published_seconds is not None for row in summary.rows for cell in row.cells)
    each = (*("published s",) * shown, "training s", "end to end s", "× ours")
    means = ("× ours", "× ours, chosen") if summary.pace is not summary.ours else ("× ours",)
    return Grid(
        name=f"{spec.name}-speed",
        title=f"{spec.title.partition(':')[0]}: seconds",
        columns=("method", *each * len(spec.datasets), *means),
        right=(False, *(True for _ in each * len(spec.datasets)), *(True for _ in means)),
        rows=tuple((*_speeds(row, published=shown), *_means(row)[: len(means)]) for row in summary.rows),
        groups=(
            ("", 1),
            *((dataset.label, len(each)) for dataset in spec.datasets),
            ("geometric mean", len(means)),
        ),
    )


def _speeds(row: Row, *, published: bool) -> tuple[Entry, ...]:
    entries = [words(row.method.label)]
    for cell in row.cells:
        entries += [_entry(cell.published_seconds, _given)] * published
        entries += [_entry(cell.seconds, seconds), _entry(cell.seconds_total, seconds)]
        entries.append(_entry(cell.speedup, factor))
    return tuple(entries)


def _means(row: Row) -> tuple[Entry, Entry]:
    return _entry(row.speedup, factor), _entry(row.speedup_chosen, factor)


def dataset_grid(chosen: Selection, specs: Sequence[Spec]) -> Grid:
    """The datasets as the paper counts them beside the counts of the data; differences are marked."""
    datasets = {dataset.name: dataset for spec in specs for dataset in spec.datasets}
    rows = [
        (dataset, counts) for name, dataset in datasets.items() if (counts := _counts(chosen.records, name))
    ]
    return Grid(
        name="datasets",
        title="Datasets",
        columns=("dataset", *("paper", "data", "difference") * 2, "also in the data"),
        right=(False, *(True,) * 6, False),
        rows=tuple(_dataset_row(dataset, counts) for dataset, counts in rows),
        groups=(("", 1), ("nodes", 3), ("edges", 3), ("", 1)),
    )


def _counts(records: Iterable[Record], dataset: str) -> dict[str, Any]:
    found = [dict(record.get("counts") or {}) for record in records if record.get("dataset") == dataset]
    return next((counts for counts in reversed(found) if counts), {})


def _dataset_row(dataset: DatasetSpec, counts: dict[str, Any]) -> tuple[Entry, ...]:
    pairs = (
        (dataset.published_nodes, counts.get("nodes")),
        # Of links, the graph has the edges to learn from alone; the paper counts those held out too.
        (dataset.published_edges, counts.get("all_edges", counts.get("edges"))),
    )
    others = {name: value for name, value in counts.items() if name not in ("nodes", "all_edges") and value}
    if "all_edges" not in counts:
        others.pop("edges", None)
    text = " · ".join(
        f"{_whole(value)} {_NAMES.get(name, name.replace('_', ' '))}" for name, value in others.items()
    )
    return (words(dataset.label), *(e for pair in pairs for e in _count(*pair)), words(text))


def _count(published: float | None, counted: Any) -> tuple[Entry, Entry, Entry]:
    found = number(counted)
    difference = None if published is None or found is None else found - published
    mark = (
        Entry(MISSING)
        if difference is None
        else Entry("same", 0.0)
        if not difference
        else Entry(f"{difference:+,.0f}".replace("-", "−"), difference, strong=True)
    )
    return _entry(published, _whole), _entry(found, _whole), mark


def _whole(value: Any) -> str:
    return MISSING if (figure := number(value)) is None else f"{figure:,.0f}"
