"""The command line: parse → call → print. Exit codes and error style are decided in one place, `run`."""

from __future__ import annotations

import signal
import sys
import warnings
from collections.abc import Sequence
from typing import Annotated, Any, NoReturn

import typer

from fastgrl import (
    completion,
    cost_commands,
    demo_commands,
    experiment_commands,
    import_commands,
    link_commands,
    node_commands,
    terminal,
)
from fastgrl import help as help_pages
from fastgrl.errors import UnavailableError
from fastgrl.options import PrintingOptions, grouped

_OPTIONAL = (
    *("pandas", "polars", "pyarrow", "narwhals", "zstandard", "networkx", "igraph", "matplotlib"),
    *("usearch", "dask", "torch", "torch_geometric", "gensim", "jinja2", "jax", "tensorflow"),
)

app = help_pages.Program(
    name="fastgrl",
    cls=help_pages.Group,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


@app.callback(invoke_without_command=True)
@grouped
def top(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="With kernel and BLAS; --json too.")] = False,
    json: Annotated[bool, typer.Option("--json", hidden=True)] = False,
    debug: Annotated[bool, typer.Option("--debug", hidden=True)] = False,
) -> None:
    """Learn from graphs by solving linear problems."""
    del debug  # read from the arguments themselves, as they may fail to parse
    if version:
        found = _version()
        terminal.show(found, [terminal.version(found)], as_json=json)
        raise typer.Exit
    if context.invoked_subcommand is None:
        terminal.write(context.get_help() + "\n")


app.command(short_help="The digits graph from end to end, in well under a minute.")(demo_commands.demo)
app.command(short_help="What was understood of a file, and what it holds.")(cost_commands.inspect)
app.command("import", short_help="An edge list of any size as a graph on disk.")(
    import_commands.import_command
)
app.command(short_help="A vector for every node, as a file.")(link_commands.embed)
app.command(short_help="Fit a link predictor; prints how good it is.")(link_commands.link)
app.command(short_help="Scores for given pairs.")(link_commands.score)
app.command(short_help="Best missing links of nodes.")(link_commands.recommend)
app.command(short_help="New edges and nodes without a refit.")(link_commands.update)
app.command(short_help="Fit a node classifier; prints how good it is.")(node_commands.classify)
app.command(short_help="Classes of nodes, also of new ones.")(node_commands.predict)
app.command(short_help="What made the prediction of a node.")(node_commands.explain)

evaluate = help_pages.Program(help="Fit on one part and test on the other.", cls=help_pages.Group)
app.add_typer(evaluate, name="evaluate", short_help="Fit on one part and test on the other: links or nodes.")
evaluate.command("links", short_help="Of missing links, on a dataset or a file.")(
    link_commands.evaluate_links
)
evaluate.command("nodes", short_help="Of classes of nodes, on a dataset or files.")(
    node_commands.evaluate_nodes
)


@evaluate.callback(invoke_without_command=True)
def evaluate_top(context: typer.Context) -> None:
    """Fit on one part and test on the other."""
    if context.invoked_subcommand is None:
        terminal.write(context.get_help() + "\n")


app.command(short_help="The paper's table and figures, rerun into a page.")(experiment_commands.reproduce)


app.command(short_help="Bytes, passes and rough time before running.")(cost_commands.estimate)


datasets = help_pages.Program(help="Graphs to try things on.", cls=help_pages.Group)
app.add_typer(datasets, name="datasets", short_help="Graphs to try things on, by name.")
Name = Annotated[
    str,
    typer.Argument(metavar="NAME", help="A dataset, as `list` shows it.", autocompletion=completion.datasets),
]


@datasets.callback(invoke_without_command=True)
def datasets_top(context: typer.Context) -> None:
    """Graphs to try things on."""
    if context.invoked_subcommand is None:
        terminal.write(context.get_help() + "\n")


@datasets.command("list")
@grouped
def list_command(printing: PrintingOptions) -> None:
    """Show every dataset: what it is for and how large it is."""
    from fastgrl.datasets import describe, list_datasets

    known = [describe(name) for name in list_datasets()]
    value = {"datasets": [terminal.catalogue_entry(entry) for entry in known]}
    lines = {entry.name: terminal.catalogue_line(entry) for entry in known}
    following = {"look": f"fastgrl datasets info {known[0].name}"}
    terminal.show(value, [("datasets", lines), ("next", following)], as_json=printing.json)


@datasets.command(short_help="Show what is known about a dataset, and load it.")
@grouped
def info(name: Name, printing: PrintingOptions) -> None:
    """Show what is known about a dataset, and load it to see that it is so."""
    from fastgrl.datasets import describe, load_dataset

    known = terminal.catalogue_entry(describe(name))
    if not printing.json:
        words = {key: known[key] for key in ("title", "task", "licence", "citation", "note") if known[key]}
        terminal.print_sections([(name, words)])
    counts = load_dataset(name, download=False).counts
    words = {key.replace("_", " "): f"{count:,}" for key, count in counts.items()}
    terminal.show(known | {"counts": counts}, [("loaded, checksums right", words)], as_json=printing.json)


@datasets.command()
@grouped
def download(name: Name, printing: PrintingOptions) -> None:
    """Download what is missing of a dataset and check it."""
    from fastgrl.datasets import download as fetch

    with terminal.progress_bar(f"downloading {name}", shown=printing.bar) as progress:
        paths = [str(path) for path in fetch(name, progress=progress)]
    lines = {f"file {number}": path for number, path in enumerate(paths, 1)}
    terminal.show({"name": name, "files": paths}, [(name, lines)], as_json=printing.json)


@datasets.command(short_help="Check every file that is here.")
@grouped
def verify(printing: PrintingOptions) -> None:
    """Check every file that is here; exit with 1 if one of them is not the right one."""
    from fastgrl.datasets import verify as check

    found: dict[str, dict[str, str]] = {}
    for status in check():
        found.setdefault(status.dataset, {})[status.file] = status.state
    lines = {name: terminal.files_line(states) for name, states in found.items()}
    terminal.show({"datasets": found}, [("files", lines)], as_json=printing.json)
    if wrong := [name for name, states in found.items() if "wrong" in states.values()]:
        raise UnavailableError(
            f"files of {', '.join(wrong)} are not the right ones; delete and download them"
        )


@datasets.command()
@grouped
def path(printing: PrintingOptions) -> None:
    """Print the folder where datasets lie; FASTGRL_DATA chooses another."""
    from fastgrl.datasets import data_folder

    terminal.show({"path": str(data_folder())}, [(str(data_folder()), {})], as_json=printing.json)


def _version() -> dict[str, Any]:
    import platform
    from importlib.util import find_spec

    from threadpoolctl import threadpool_info

    import fastgrl as fg

    return {
        "version": fg.__version__,
        "python": platform.python_version(),
        "kernel": str(fg.kernel_info()),
        "blas": [f"{x['internal_api']} {x['version']}" for x in threadpool_info() if x["user_api"] == "blas"],
        "found": [name for name in _OPTIONAL if find_spec(name)],
        "missing": [name for name in _OPTIONAL if not find_spec(name)],
    }


def main() -> NoReturn:
    """Run the program and leave with its exit code."""
    signal.signal(signal.SIGTERM, terminal.terminate)
    code = run(sys.argv[1:])
    if code in (terminal.INTERRUPTED, terminal.TERMINATED):
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # a second Ctrl-C would only spoil the ending
    sys.exit(code)


def run(arguments: Sequence[str]) -> int:
    """Run one command line; whatever happens, return an exit code and say why in a few lines."""
    terminal.mend_streams()
    try:
        with warnings.catch_warnings():
            terminal.show_warnings(quiet={"--quiet", "-q"} & set(arguments))
            code = app(list(arguments), prog_name="fastgrl", standalone_mode=False)
        if code == terminal.INTERRUPTED:  # how some versions of typer hand a Ctrl-C on
            raise KeyboardInterrupt
        terminal.write("")
        return code or 0
    except BaseException as error:
        return terminal.report_failure(error, debug="--debug" in arguments)
