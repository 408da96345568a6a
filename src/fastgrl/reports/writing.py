"""The report as files: tables in Markdown and LaTeX, figures as PNG and SVG, and one page with all of it."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fastgrl.checks import shown
from fastgrl.errors import ArgumentError, UnavailableError
from fastgrl.io.atomic import named, whole_files
from fastgrl.reports.curves import Plot, plot_of
from fastgrl.reports.figures import COLUMN, WIDE, drawn
from fastgrl.reports.page import Picture, page
from fastgrl.reports.summary import FIGURE, TABLE, Selection, Summary, select, summarise
from fastgrl.reports.tables import dataset_sheet, latex, markdown, table_sheet

if TYPE_CHECKING:
    from fastgrl.experiments.specs import Spec


@dataclass(frozen=True)
class Report:
    """The files of a report."""

    page: Path
    tables: tuple[Path, ...]
    figures: tuple[Path, ...]


def write_report(
    records: Sequence[Mapping[str, Any]], specs: Sequence[Spec], folder: str | os.PathLike[str]
) -> Report:
    """Write `report.html`, `tables/NAME.md` and `.tex`, and `figures/NAME.png` and `.svg` into a folder.

    All files are written, or none. What has no records is left out; quick records are used only when there
    are no others, and the report then says so. Figures come in the width of a page and, as `NAME-column`, in
    that of a printed column. Needs the extra `plots`.
    """
    chosen, place = select(records), Path(folder)
    summaries, plots = _found(chosen, specs)
    pictures = [_picture(plot) for plot in plots]
    tables = _table_files(chosen, specs, summaries)
    figures = {name: data for picture in pictures for name, data in picture.files.items()}
    html = page(chosen, specs, summaries, pictures)
    files = {"report.html": html.encode("utf-8", "replace"), **tables, **figures}
    _make_folders(place, files)
    with whole_files(*(place / name for name in files)) as targets:
        for target, data in zip(targets, files.values(), strict=True):
            target.write(data)
    return Report(place / "report.html", _under(place, tables), _under(place, figures))


def _found(chosen: Selection, specs: Sequence[Spec]) -> tuple[list[Summary], list[Plot]]:
    summaries = [summarise(chosen, spec) for spec in specs if spec.kind == TABLE]
    plots = [plot_of(chosen, spec) for spec in specs if spec.kind == FIGURE]
    summaries = [summary for summary in summaries if summary.measured]
    plots = [plot for plot in plots if not plot.empty]
    if not summaries and not plots:
        names = ", ".join(shown(spec.name) for spec in specs)
        raise ArgumentError(
            f"none of the {len(chosen.records)} records belongs to {names or 'any specification'}"
        )
    return summaries, plots


def _picture(plot: Plot) -> Picture:
    wide, column = drawn(plot, width=WIDE), drawn(plot, width=COLUMN)
    return Picture(
        plot, wide=wide[1], column=column[1], files=dict(_figure_files(plot.spec.name, wide, column))
    )


def _figure_files(
    name: str, wide: tuple[bytes, bytes], column: tuple[bytes, bytes]
) -> Iterable[tuple[str, bytes]]:
    for stem, (png, svg) in ((name, wide), (f"{name}-column", column)):
        yield f"figures/{stem}.png", png
        yield f"figures/{stem}.svg", svg


def _table_files(chosen: Selection, specs: Sequence[Spec], summaries: list[Summary]) -> dict[str, bytes]:
    sheets = [table_sheet(summary) for summary in summaries] + [dataset_sheet(chosen, specs)]
    files = {}
    for sheet in sheets:
        files[f"tables/{sheet.name}.md"] = markdown(sheet).encode("utf-8", "replace")
        files[f"tables/{sheet.name}.tex"] = latex(sheet).encode("ascii")
    return files


def _make_folders(place: Path, files: Iterable[str]) -> None:
    for folder in sorted({(place / name).parent for name in files}):
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except (FileExistsError, NotADirectoryError):
            raise ArgumentError(f"{named(folder)} is a file; give the name of a folder") from None
        except OSError as error:
            raise UnavailableError(f"{named(folder)} could not be made: {error.strerror}") from error


def _under(place: Path, names: Iterable[str]) -> tuple[Path, ...]:
    return tuple(place / name for name in names)
