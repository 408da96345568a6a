"""The verb `import`: an edge list of any size as a graph on disk, which every other verb takes."""

from __future__ import annotations

import dataclasses
import shlex
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fastgrl import terminal
from fastgrl.command_files import STDOUT, bar
from fastgrl.errors import FastgrlError
from fastgrl.options import Edges, Force, PrintingOptions, ReadingOptions, _amount, grouped

if TYPE_CHECKING:
    from fastgrl.io.importing import Imported

_COUNTS = ("rows", "nodes", "edges", "self_loops", "repeats")

Folder = Annotated[str, typer.Argument(metavar="GRAPH", help="The folder to write.")]
MaxMemory = Annotated[
    int | None, typer.Option(metavar="1GB", parser=_amount, help="For ids and sorting.", show_default=False)
]


@grouped
def import_command(
    edges: Edges,
    folder: Folder,
    reading: ReadingOptions,
    printing: PrintingOptions,
    max_memory: MaxMemory = None,
    force: Force = False,
) -> None:
    """Write an edge list of any size as a folder that is mapped, not read; every verb takes it for EDGES."""
    from fastgrl.io.importing import import_graph

    if folder == STDOUT:
        raise FastgrlError("a graph on disk is a folder and cannot go to standard output; give it a name")
    how = dataclasses.asdict(reading)
    threads = how.pop("threads")
    with bar(f"importing {edges}", printing) as progress:
        found = import_graph(
            edges, folder, max_memory=max_memory, force=force, n_threads=threads, progress=progress, **how
        )
    terminal.print_notes(found.notices, quiet=printing.quiet)
    value = {"file": edges, **dataclasses.asdict(found), "next": _next(found)}
    terminal.show(value, _report(edges, found), as_json=printing.json)


def _next(found: Imported) -> str:
    return f"fastgrl inspect {shlex.quote(found.folder)}"


def _report(edges: str, found: Imported) -> list[terminal.Section]:
    from fastgrl.estimate import format_bytes

    facts: dict[str, Any] = {name.replace("_", " "): f"{getattr(found, name):,}" for name in _COUNTS}
    facts["on disk"] = format_bytes(found.bytes)
    return [(edges, found.layout), (found.folder, facts), ("next", {"try": _next(found)})]
