"""One page that opens from a folder without any network: tables, figures and the records themselves."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from fastgrl.reports.curves import Plot, described, plot_grid
from fastgrl.reports.documents import inline, rendered
from fastgrl.reports.evidence import certificate_grid, command_grid, machine_grid
from fastgrl.reports.grids import dataset_grid, score_grid, speed_grid
from fastgrl.reports.summary import Selection, Summary, figures
from fastgrl.reports.tables import QUICK, READING, SPEED_READING, notes
from fastgrl.reports.verdicts import headline, reproductions, unreached, verdicts

if TYPE_CHECKING:
    from fastgrl.experiments.specs import Spec


@dataclass(frozen=True)
class Picture:
    """A drawn figure: its numbers, its SVG in two widths, and its files by name."""

    plot: Plot
    wide: bytes
    column: bytes
    files: Mapping[str, bytes]


def page(
    chosen: Selection, specs: Sequence[Spec], summaries: Sequence[Summary], pictures: Sequence[Picture]
) -> str:
    """The whole report as one HTML document; every value in it is escaped."""
    return rendered(
        "page.html",
        "the report",
        quick=QUICK if chosen.quick else "",
        left_out=chosen.left_out,
        tables=[_table(summary) for summary in summaries],
        figures=[_figure(picture) for picture in pictures],
        datasets=dataset_grid(chosen, specs),
        certificates=certificate_grid(chosen, specs),
        commands=[grid for spec in specs if (grid := command_grid(chosen, spec)).rows],
        machines=machine_grid(chosen),
        runs=_runs(chosen),
        records=_link(chosen),
        reading=READING,
        speed_reading=SPEED_READING,
    )


def _table(summary: Summary) -> dict[str, Any]:
    spec = summary.spec
    return {
        "name": spec.name,
        "title": spec.title,
        "about": spec.about,
        "headline": headline(summary),
        "scores": score_grid(summary),
        "speed": speed_grid(summary),
        "verdicts": verdicts(summary) + unreached(summary),
        "reproductions": reproductions(summary),
        "notes": notes(spec),
    }


def _figure(picture: Picture) -> dict[str, Any]:
    spec, text = picture.plot.spec, described(picture.plot)
    return {
        "name": spec.name,
        "title": spec.title,
        "about": spec.about,
        "wide": inline(picture.wide, f"{spec.name}-wide", text),
        "column": inline(picture.column, f"{spec.name}-column", text),
        "data": plot_grid(picture.plot),
    }


def _runs(chosen: Selection) -> dict[str, Any]:
    started = sorted(str(record["started"]) for record in chosen.records if record.get("started"))
    load = figures(chosen.records, "load")
    return {
        "count": len(chosen.records),
        "first": _minute(started[0]) if started else "",
        "last": _minute(started[-1]) if started else "",
        "load": f"{max(load):.2g}" if load else "",
    }


def _minute(moment: str) -> str:
    """A moment as people write it; whatever is not a moment stays as it is.

    >>> _minute("2026-01-02T11:02:03+00:00")
    '2026-01-02 11:02 UTC'
    """
    with suppress(ValueError):
        return f"{datetime.fromisoformat(moment).astimezone(UTC):%Y-%m-%d %H:%M} UTC"
    return moment


def _link(chosen: Selection) -> str:
    lines = "".join(json.dumps(dict(record), default=str) + "\n" for record in chosen.records)
    return f"data:application/x-ndjson;base64,{base64.b64encode(lines.encode()).decode()}"
