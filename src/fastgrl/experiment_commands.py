"""The verb reproduce: run what has not been run yet, and write the report."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fastgrl import completion, terminal
from fastgrl.errors import MissingExtraError, UnavailableError
from fastgrl.options import PrintingOptions, grouped, whole

if TYPE_CHECKING:
    from fastgrl.experiments.plans import Run
    from fastgrl.experiments.runner import Event, Ran
    from fastgrl.reports import Report

_ALL = "all"
_NEEDED = ("matplotlib", "jinja2")


@grouped
def reproduce(
    printing: PrintingOptions,
    out: Annotated[
        str, typer.Option("-o", "--out", metavar="DIR", help="Folder of the records and the report.")
    ],
    what: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="WHAT",
            help="table-nodes, table-links, figure-time, figure-depth, figure-rank, or all.",
            show_default=False,
            autocompletion=completion.words(completion.EXPERIMENTS),
        ),
    ] = None,
    only: Annotated[
        list[str] | None, typer.Option(metavar="METHOD", help="This method alone; may be repeated.")
    ] = None,
    dataset: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="This dataset alone; may be repeated.",
            autocompletion=completion.datasets,
        ),
    ] = None,
    seeds: Annotated[
        int | None, typer.Option(metavar="N", parser=whole("seeds", 1), help="Seeds of each method (3 to 5).")
    ] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="One seed, one dataset each, short trainings.")
    ] = False,
    threads: Annotated[
        int | None,
        typer.Option(metavar="N", parser=whole("threads", 1), help="Processors to use (all that are free)."),
    ] = None,
) -> None:
    """Rerun the paper: its table and its figures, with every method in them, into a page.

    What is in DIR/records.jsonl already is not run again: a run that was stopped goes on where it was.
    """
    from fastgrl.experiments.plans import plan
    from fastgrl.experiments.runner import check_extras, missing_runs, perform_all
    from fastgrl.experiments.specs import load_spec, load_specs

    named = [load_spec(name) for name in dict.fromkeys(what or ()) if name != _ALL]
    runs = plan(
        load_specs() if not what or _ALL in what else named,
        only=only or (),
        datasets=dataset or (),
        seeds=seeds,
        quick=quick,
    )
    _check_plots()
    missing = missing_runs(runs, Path(out))
    check_extras(missing)
    _load_all(missing, printing)
    with _telling(printing) as tell:
        ran = perform_all(runs, Path(out), threads=threads, tell=tell)
    written = _report(Path(out), load_specs())
    value = _value(out, runs, ran, written)
    terminal.show(value, _sections(value), as_json=printing.json)
    if ran.failures:
        first = [f"{title}: {reason}" for title, reason in list(ran.failures.items())[:3]]
        more = f"\nand {len(ran.failures) - 3} more" * (len(ran.failures) > 3)
        raise UnavailableError(
            f"{len(ran.failures)} of {len(runs)} runs could not be performed:\n" + "\n".join(first) + more
        )


def _check_plots() -> None:
    missing = [name for name in _NEEDED if find_spec(name) is None]
    if missing:
        raise MissingExtraError(f"a report needs {' and '.join(missing)}: pip install 'fastgrl[plots]'")


def _load_all(runs: Sequence[Run], printing: PrintingOptions) -> None:
    """Fetch and check every dataset before hours are spent."""
    from fastgrl.datasets import load_dataset

    for name in dict.fromkeys(run.dataset for run in runs):
        with terminal.progress_bar(f"loading {name}", shown=printing.bar) as progress:
            load_dataset(name, progress=progress)


@contextlib.contextmanager
def _telling(printing: PrintingOptions) -> Iterator[Any]:
    """A bar for the run that is on its way, on a terminal; a line for each that has ended."""
    with contextlib.ExitStack() as bars:
        shown: dict[str, terminal.Progress | None] = {}

        def tell(event: Event) -> None:
            if event.kind == "begin":
                what = f"{event.number} of {event.runs} · {event.run.title}"
                shown["bar"] = bars.enter_context(terminal.progress_bar(what, shown=printing.bar))
            elif event.kind == "progress":
                if (bar := shown["bar"]) is not None:
                    bar(event.done, event.total)
            else:
                bars.pop_all().close()
                if not printing.json and not printing.quiet:
                    terminal.write(_line(event) + "\n")

        yield tell


def _line(event: Event) -> str:
    title = f"{event.number} of {event.runs}  {event.run.title}"
    if event.record is None:
        return f"{title}: {terminal.clean(event.reason.splitlines()[0])}"
    value, seconds = event.record["value"], event.record["seconds"]
    return f"{title}: {event.run.metric} {100 * value:.2f}, {seconds:.4g} s"


def _report(folder: Path, specs: Sequence[Any]) -> Report | None:
    from fastgrl.experiments.records import FILE, read_records
    from fastgrl.reports import write_report

    records = read_records(folder / FILE)
    return write_report(records, specs, folder) if records else None


def _value(out: str, runs: Sequence[Run], ran: Ran, written: Report | None) -> dict[str, Any]:
    files: dict[str, Any] = {"page": None, "tables": [], "figures": []}
    if written is not None:
        files = {
            "page": str(written.page),
            "tables": [str(path) for path in written.tables],
            "figures": [str(path) for path in written.figures],
        }
    return {
        "folder": out,
        "runs": len(runs),
        "performed": len(ran.done),
        "on_record": ran.known,
        "elsewhere": list(ran.elsewhere),
        "failures": dict(ran.failures),
        **files,
    }


def _sections(value: dict[str, Any]) -> list[terminal.Section]:
    before = f"{value['on_record']:,} were on record"
    counts = {"performed": f"{value['performed']:,} of {value['runs']:,} runs, {before}"}
    if value["elsewhere"]:
        counts["elsewhere"] = f"{len(value['elsewhere'])} are being performed by another program"
    if value["page"]:
        counts |= {"page": value["page"]}
        counts |= {kind: _place(value[kind]) for kind in ("tables", "figures") if value[kind]}
    return [(value["folder"], counts)]


def _place(files: Sequence[str]) -> str:
    return f"{len(files)} files in {Path(files[0]).parent}"
