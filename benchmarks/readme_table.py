"""The compact results table of README.md and docs/accuracy.md, from the records of the full run.

    python benchmarks/readme_table.py            # prints it
    python benchmarks/readme_table.py --write    # puts it between the markers of those two files

A number comes from docs/results/paper/records.jsonl or, where it was published, from the specifications of
the experiments; tests/test_results_table.py fails when a file says something else.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path

from fastgrl.experiments.records import read_records
from fastgrl.experiments.specs import load_spec
from fastgrl.reports.grids import factor, published_figure
from fastgrl.reports.summary import OURS, Cell, Row, Summary, select, summarise

ROOT = Path(__file__).parents[1]
RECORDS = ROOT / "docs" / "results" / "paper" / "records.jsonl"
PAGES = (ROOT / "README.md", ROOT / "docs" / "accuracy.md")
BEGIN, END = "<!-- results -->", "<!-- /results -->"

# What a reader compares first; all rows are in docs/results/paper/tables.
SHOWN = {
    "table-links": (
        "wys",
        "node2vec",
        "netmf",
        "paper-32",
        "paper-100",
        "log-diffusion",
        "log-diffusion-defaults",
        "log-diffusion-dot",
    ),
    "table-nodes": ("planetoid", "gcn", "gat", "mixhop", "gcnii", "paper", "co-ridge", "co-ridge-defaults"),
}
READING = (
    "Measured by us, mean of {seeds} seeds; in brackets what was published. Bold: ours. Time: training "
    "seconds on one thread of the same CPU, as a multiple of one fit of ours with default settings "
    "(`select=False`), geometric mean over the datasets. It includes a search for settings, which ours do "
    "unless told otherwise, in these rows: {choosers}."
)
# The rows whose seconds hold a search; those of the others are one training with settings that are given.
CHOOSERS = ("log-diffusion", "log-diffusion-dot", "paper", "co-ridge")


def compact_tables(records: Path = RECORDS) -> str:
    """Both tables as Markdown, and how to read them."""
    chosen = select(read_records(records))
    tables = {name: summarise(chosen, load_spec(name)) for name in SHOWN}
    rows = [row for name, table in tables.items() for row in table.rows if row.method.name in SHOWN[name]]
    runs = [len(cell.records) for row in rows for cell in row.cells]
    choosers = "; ".join(row.method.label for row in rows if row.method.name in CHOOSERS)
    reading = READING.format(seeds=f"{min(runs)} to {max(runs)}", choosers=choosers)
    return "\n\n".join([*(_table(table) for table in tables.values()), reading])


def with_table(text: str, table: str) -> str:
    """A page with the table between its markers; without both markers the page as it is."""
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    return f"{before}{begin}\n{table}\n{end}{after}" if end else text


def _table(summary: Summary) -> str:
    headings = [summary.spec.title, *(dataset.label for dataset in summary.spec.datasets), "time"]
    marks = ["---", *("---:" for _ in headings[1:])]
    return "\n".join(f"| {' | '.join(line)} |" for line in (headings, marks, *_lines(summary)))


def _lines(summary: Summary) -> Iterator[list[str]]:
    rows = {row.method.name: row for row in summary.rows}
    for name in SHOWN[summary.spec.name]:
        yield _line(rows[name])


def _line(row: Row) -> list[str]:
    ours = row.method.kind == OURS
    time = "" if row.speedup is None else factor(row.speedup)
    return [_strong(row.method.label, ours), *(_strong(_score(cell), ours) for cell in row.cells), time]


def _strong(text: str, ours: bool) -> str:
    return f"**{text}**" if ours else text


def _score(cell: Cell) -> str:
    measured = "–" if cell.mean is None else f"{cell.mean:.1f}"
    return measured if cell.published is None else f"{measured} ({published_figure(cell.published)})"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--write", action="store_true", help="put it between the markers of the pages")
    table = compact_tables()
    if not parser.parse_args().write:
        print(table)
        return
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        page.write_text(with_table(text, table), encoding="utf-8")


if __name__ == "__main__":
    main()
