"""Tables as Markdown and LaTeX, with the sentences and notes that belong to them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fastgrl.reports.grids import Entry, Grid, dataset_grid, score_grid, speed_grid
from fastgrl.reports.latex import escaped
from fastgrl.reports.summary import Selection, Summary
from fastgrl.reports.verdicts import reproductions, unreached, verdicts

if TYPE_CHECKING:
    from fastgrl.experiments.specs import Spec

QUICK = "Quick run: not the published protocol."
READING = "Measured: mean ± sample standard deviation (number of runs). Bold: the best measured."
SPEED_READING = (
    "Seconds: medians over runs, of the clock but no more than the CPU time of all threads; published "
    "seconds are the paper's, on its GPU. Training is a network's descent, a factorisation with the "
    "matrix it is of, and ours from the graph on. × ours: how many times the training seconds of one "
    "fit of ours on the same CPU with as many threads, nothing chosen; × ours, chosen: of ours with the "
    "choice of its settings."
)
# What Markdown might take for its own; HTML in a cell must stay text too.
_MARKDOWN = str.maketrans(
    {"<": "&lt;", ">": "&gt;", "&": "&amp;"} | {character: f"\\{character}" for character in "\\`*_{}[]#|~!$"}
)


@dataclass(frozen=True)
class Sheet:
    """One file of tables: grids, and lists of sentences by their heading."""

    name: str
    title: str
    about: str
    grids: tuple[Grid, ...]
    lists: tuple[tuple[str, tuple[str, ...]], ...]
    quick: bool


def table_sheet(summary: Summary) -> Sheet:
    """A table of the paper: scores, speed, what they mean, and where the rows come from."""
    spec = summary.spec
    lists = (
        ("Verdicts", verdicts(summary) + unreached(summary)),
        ("Published and measured", reproductions(summary)),
        ("Notes", notes(spec)),
        ("Reading", (READING, SPEED_READING)),
    )
    grids = (score_grid(summary), speed_grid(summary))
    return Sheet(spec.name, spec.title, spec.about, grids, lists, summary.quick)


def dataset_sheet(chosen: Selection, specs: Sequence[Spec]) -> Sheet:
    """The paper's table of datasets beside the data."""
    about = "The paper's counts beside those of the data; edges are distinct unordered pairs, loops included."
    return Sheet("datasets", "Datasets", about, (dataset_grid(chosen, specs),), (), chosen.quick)


def notes(spec: Spec) -> tuple[str, ...]:
    """What is to be said about the rows, and who published them."""
    texts = (
        (method.label, f"{method.note} {_reference(method.reference)}".strip()) for method in spec.methods
    )
    return tuple(f"{label}: {text}" for label, text in texts if text)


def _reference(reference: str) -> str:
    return f"({reference})" if reference else ""


def markdown(sheet: Sheet) -> str:
    """A sheet as Markdown; every row of a table has as many columns as its head."""
    blocks = [f"# {plain(sheet.title)}"]
    blocks += [f"**{QUICK}**"] * sheet.quick + [plain(sheet.about)] * bool(sheet.about)
    blocks += [_markdown_grid(grid) for grid in sheet.grids]
    for heading, sentences in sheet.lists:
        if sentences:
            blocks += [f"## {heading}", "\n".join(f"- {plain(sentence)}" for sentence in sentences)]
    return "\n\n".join(blocks) + "\n"


def plain(text: str) -> str:
    r"""Text that Markdown shows as it is, in one line.

    >>> print(plain("a|b\n<b>"))
    a\|b &lt;b&gt;
    """
    return " ".join(text.split()).translate(_MARKDOWN)


def _markdown_grid(grid: Grid) -> str:
    marks = ["---:" if right else "---" for right in grid.right]
    lines = [map(plain, grid.headings), marks, *(map(_markdown_entry, row) for row in grid.rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _markdown_entry(entry: Entry) -> str:
    return f"**{plain(entry.text)}** {plain(entry.detail)}".strip() if entry.strong else plain(entry.full)


def latex(sheet: Sheet) -> str:
    """A sheet as LaTeX to be `\\input`: one table* for each grid, with `booktabs` and `graphicx`."""
    head = "% \\usepackage{booktabs,graphicx,textcomp}\n"
    floats = [_float(sheet, grid, number) for number, grid in enumerate(sheet.grids)]
    sentences = [f"{heading}: {' '.join(items)}" for heading, items in sheet.lists if items]
    return head + "\n".join(floats) + "".join(f"\n{escaped(text)}\n" for text in sentences)


def _float(sheet: Sheet, grid: Grid, number: int) -> str:
    caption = " ".join([QUICK] * sheet.quick + [f"{grid.title}.", sheet.about if number == 0 else ""])
    lines = [
        r"\begin{table*}",
        r"\centering",
        rf"\caption{{{escaped(caption.strip())}}}",
        rf"\label{{tab:{_label(grid.name)}}}",
        r"\resizebox{\ifdim\width>\textwidth\textwidth\else\width\fi}{!}{%",
        rf"\begin{{tabular}}{{{''.join('r' if right else 'l' for right in grid.right)}}}",
        r"\toprule",
        *_group_lines(grid),
        _latex_row(map(escaped, grid.columns)),
        r"\midrule",
        *(_latex_row(map(_latex_entry, row)) for row in grid.rows),
        r"\bottomrule",
        r"\end{tabular}}",
        r"\end{table*}",
    ]
    return "\n".join(lines) + "\n"


def _label(name: str) -> str:
    return "".join(character if character.isascii() and character.isalnum() else "-" for character in name)


def _group_lines(grid: Grid) -> list[str]:
    if not grid.groups:
        return []
    heads = [rf"\multicolumn{{{span}}}{{c}}{{{escaped(label)}}}" for label, span in grid.groups]
    rules, start = [], 1
    for label, span in grid.groups:
        rules += [rf"\cmidrule(lr){{{start}-{start + span - 1}}}"] * bool(label)
        start += span
    return [_latex_row(heads), "".join(rules)]


def _latex_row(entries: Iterable[str]) -> str:
    return " & ".join(entries) + r" \\"


def _latex_entry(entry: Entry) -> str:
    text = rf"\textbf{{{escaped(entry.text)}}}" if entry.strong else escaped(entry.text)
    return f"{text} {escaped(entry.detail)}".strip()
