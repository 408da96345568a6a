"""The command line: parse → call → print. Exit codes and error style are decided in one place, `run`."""

from __future__ import annotations

import dataclasses
import functools
import inspect as introspection
import os
import re
import signal
import sys
import time
import typing
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

from fastgrl import terminal
from fastgrl.errors import FastgrlError, UnavailableError

if TYPE_CHECKING:
    from fastgrl.estimate import Estimate
    from fastgrl.graph import Graph
    from fastgrl.io import Reading

_LARGEST_SEED = 2**64 - 1
_OPTIONAL = (
    *("pandas", "polars", "pyarrow", "narwhals", "zstandard", "networkx", "igraph", "matplotlib"),
    *("usearch", "dask", "torch", "torch_geometric", "jax", "tensorflow"),
)

app = typer.Typer(
    name="fastgrl",
    epilog="Example: fastgrl inspect friends.csv --weight strength",
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _whole(name: str, least: int, most: int | None = None) -> Callable[[str | int], int]:
    """A parser of whole numbers whose error names the option and the value."""

    def parse(given: str | int) -> int:
        text = str(given)  # typer sends defaults through as well
        value = int(text) if re.fullmatch(r"[+-]?[0-9]{1,40}", text) else None
        if value is None or value < least or (most is not None and value > most):
            limits = f"of at least {least}" if most is None else f"from {least} to {most}"
            # Not an ArgumentError: typer would take a ValueError for its own and reword it.
            raise FastgrlError(f"--{name} must be a whole number {limits}, got {terminal.quoted(text)}")
        return value

    return parse


def _precision(text: str) -> str:
    if text not in ("float32", "float64"):
        raise FastgrlError(f"--dtype must be float32 or float64, got {terminal.quoted(text)}")
    return text


def _amount(text: str) -> int:
    from fastgrl.estimate import parse_bytes

    try:
        return parse_bytes(text)
    except ValueError as error:
        raise FastgrlError(f"--max-memory: {error}") from None


_reading = functools.partial(typer.Option, rich_help_panel="How the file is read", show_default=False)
_fit = functools.partial(typer.Option, rich_help_panel="What would be fitted", show_default=False)
_printing = functools.partial(typer.Option, rich_help_panel="What is printed", show_default=False)


def _count(option: Any, name: str, help: str, *, least: int = 1, most: int | None = None) -> Any:
    return option(metavar="N", parser=_whole(name, least, most), help=help)


Edges = Annotated[str, typer.Argument(metavar="EDGES", help="Edge list, table or matrix; - is stdin.")]


@dataclass(frozen=True)
class ReadingOptions:
    """How an edge list is to be read; whatever is not said is found out."""

    directed: Annotated[bool, _reading("--directed", help="Edges have a direction.")] = False
    weight: Annotated[str | None, _reading(metavar="COLUMN", help="Column of weights.")] = None
    unweighted: Annotated[bool, _reading("--unweighted", help="Leave weights out.")] = False
    delimiter: Annotated[str | None, _reading(metavar="TEXT", help="Such as , ; | tab space.")] = None
    header: Annotated[bool | None, _reading("--header/--no-header", help="First line has names.")] = None
    columns: Annotated[str | None, _reading(metavar="SRC,DST[,WEIGHT]", help="By name or number.")] = None
    comment: Annotated[str | None, _reading(metavar="CHAR|none", help="Begins a comment line.")] = None
    encoding: Annotated[str | None, _reading(metavar="NAME", help="Of the text (utf-8).")] = None
    nodes: Annotated[str | None, _reading(metavar="FILE", help="Lists isolated ones too.")] = None
    threads: Annotated[int | None, _count(_reading, "threads", "All that are free.")] = None


@dataclass(frozen=True)
class FitOptions:
    """What a fit would be asked for; `inspect` and `estimate` quote its cost."""

    rank: Annotated[int | None, _count(_fit, "rank", "Columns in all (64).")] = None
    window: Annotated[int | None, _count(_fit, "window", "Steps of a walk (5).")] = None
    seed: Annotated[int, _count(_fit, "seed", "Same seed, same bits (0).", least=0, most=_LARGEST_SEED)] = 0
    dtype: Annotated[str, _fit(metavar="NAME", parser=_precision, help="float32 or float64.")] = "float32"
    max_memory: Annotated[int | None, _fit(metavar="8GB", parser=_amount, help="Refuse above this.")] = None


@dataclass(frozen=True)
class PrintingOptions:
    """What goes to stdout and stderr."""

    json: Annotated[bool, _printing("--json", help="One JSON object on stdout.")] = False
    quiet: Annotated[bool, _printing("--quiet", "-q", help="No notes, no progress.")] = False
    no_progress: Annotated[bool, _printing("--no-progress", help="No progress bar.")] = False
    debug: Annotated[bool, _printing("--debug", help="Show the traceback of an error.")] = False

    @property
    def bar(self) -> bool:
        """Whether a terminal gets a progress bar."""
        return not (self.quiet or self.no_progress)


def _grouped(command: Callable[..., None]) -> Callable[..., None]:
    """Let a command take groups of options: the fields of each become options of their own."""
    signature = introspection.signature(command, eval_str=True)
    kinds: dict[str, Any] = {name: p.annotation for name, p in signature.parameters.items()}
    groups: dict[str, Any] = {name: kind for name, kind in kinds.items() if dataclasses.is_dataclass(kind)}

    @functools.wraps(command)
    def run_command(**values: Any) -> None:
        built = {
            name: group(**{field.name: values.pop(field.name) for field in dataclasses.fields(group)})
            for name, group in groups.items()
        }
        command(**values, **built)

    flat = [p for p in signature.parameters.values() if p.name not in groups]
    flat += [parameter for group in groups.values() for parameter in _as_parameters(group)]
    keyword_only = [p.replace(kind=introspection.Parameter.KEYWORD_ONLY) for p in flat]
    vars(run_command)["__signature__"] = introspection.Signature(keyword_only)
    run_command.__annotations__ = {p.name: p.annotation for p in keyword_only}
    return run_command


def _as_parameters(group: Any) -> list[introspection.Parameter]:
    kinds = typing.get_type_hints(group, include_extras=True)
    keyword = introspection.Parameter.KEYWORD_ONLY
    return [
        introspection.Parameter(field.name, keyword, default=field.default, annotation=kinds[field.name])
        for field in dataclasses.fields(group)
    ]


@app.callback(invoke_without_command=True)
@_grouped
def top(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="And kernel, BLAS, optional parts.")] = False,
    json: Annotated[bool, typer.Option("--json", help="With --version: one JSON object.")] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,
) -> None:
    """Learn from graphs by solving linear problems."""
    del debug  # read from the arguments themselves, as they may fail to parse
    if version:
        found = _version()
        terminal.show(found, [terminal.version(found)], as_json=json)
        raise typer.Exit
    if context.invoked_subcommand is None:
        terminal.write(context.get_help() + "\n")


@app.command(short_help="What was understood of a file, and what it holds.")
@_grouped
def inspect(edges: Edges, reading: ReadingOptions, fit: FitOptions, printing: PrintingOptions) -> None:
    """Say what was understood of a file, what the graph looks like, and what a fit would cost."""
    from fastgrl.estimate import refusal

    found = _read(edges, reading, printing)
    cost = _cost(found.graph, fit)
    over = None if fit.max_memory is None else refusal(cost, fit.max_memory)
    lonely = (
        "there is one node alone: a fit has nothing to learn from" if found.graph.num_nodes == 1 else None
    )
    notices = [*found.notices, *filter(None, (lonely, over))]
    terminal.print_notes(notices, quiet=printing.quiet)
    facts, threads = terminal.graph_facts(found), _threads(reading)
    value = {"file": edges, **facts, "notices": notices, "cost": cost.as_dict(threads=threads)}
    terminal.show(value, terminal.inspection(edges, facts, cost, threads), as_json=printing.json)


@app.command(short_help="Bytes, passes and rough time before running.")
@_grouped
def estimate(edges: Edges, reading: ReadingOptions, fit: FitOptions, printing: PrintingOptions) -> None:
    """Say what a fit would cost; with --max-memory, exit with 1 if it would need more."""
    from fastgrl.estimate import check_memory

    found = _read(edges, reading, printing)
    cost = _cost(found.graph, fit)
    terminal.print_notes(found.notices, quiet=printing.quiet)
    if fit.max_memory is not None:
        check_memory(cost, fit.max_memory)
    value = {"file": edges, **cost.as_dict(threads=_threads(reading))}
    terminal.show(value, [(edges, terminal.quotation(cost, _threads(reading)))], as_json=printing.json)


@app.command(short_help="The digits graph from end to end, in a few seconds.")
@_grouped
def demo(
    printing: PrintingOptions,
    out: Annotated[str | None, typer.Option("-o", "--out", metavar="DIR", help="For the files.")] = None,
    force: Annotated[bool, typer.Option("--force", help="Overwrite what is there.")] = False,
) -> None:
    """Factorise the walk matrix of scikit-learn's digits, say how good that is, write the embedding."""
    import fastgrl as fg
    from fastgrl.datasets import NodeDataset, load_dataset
    from fastgrl.io.writers import write_embedding, write_graph

    targets = _demo_targets(out, force)
    digits = load_dataset("digits")
    assert isinstance(digits, NodeDataset)
    A = fg.Matrix(digits.graph.csr)
    T = fg.transition(digits.graph, dtype="float32")
    M = fg.Polynomial(T, [5, 4, 3, 2, 1]) - 0.02 * (fg.Ones(A.shape) - A)
    begin = time.perf_counter()
    svd = fg.fsvd(M, 32, seed=0)
    found = {"matrix": str(M), "rank": 32, "seconds": round(time.perf_counter() - begin, 3)}
    certificate, vectors = fg.certificate(M, svd), svd.U * svd.s**0.5
    if targets:
        write_graph(digits.graph, targets[0], force=force)
        write_embedding(targets[1], vectors, node_ids=digits.graph.node_ids, force=force)
    found |= {"nodes": digits.graph.num_nodes, "edges": digits.graph.num_edges, "files": targets}
    found |= {"singular_values": svd.s.tolist(), "captured_energy": float(certificate.captured)}
    found |= {"same_numeral": terminal.neighbours_alike(vectors[:, 1:], digits.y)}
    terminal.show(found, terminal.demonstration(found, str(certificate)), as_json=printing.json)


def _demo_targets(folder: str | None, force: bool) -> list[str]:
    from fastgrl.io.atomic import check_output

    if folder is None:
        return []
    os.makedirs(folder, exist_ok=True)
    targets = [os.path.join(folder, name) for name in ("digits.csv", "digits-embedding.csv")]
    check_output(*targets, force=force)
    return targets


datasets = typer.Typer(help="Graphs to try things on.", no_args_is_help=False)
app.add_typer(
    datasets, name="datasets", short_help="Graphs to try things on: list, info, download, verify, path."
)
Name = Annotated[str, typer.Argument(metavar="NAME", help="A dataset, as `list` shows it.")]


@datasets.callback(invoke_without_command=True)
def datasets_top(context: typer.Context) -> None:
    """Graphs to try things on."""
    if context.invoked_subcommand is None:
        terminal.write(context.get_help() + "\n")


@datasets.command("list")
@_grouped
def list_command(printing: PrintingOptions) -> None:
    """Show every dataset: what it is for and how large it is."""
    from fastgrl.datasets import describe, list_datasets

    known = [describe(name) for name in list_datasets()]
    value = {"datasets": [terminal.catalogue_entry(entry) for entry in known]}
    lines = {entry.name: terminal.catalogue_line(entry) for entry in known}
    terminal.show(value, [("datasets", lines)], as_json=printing.json)


@datasets.command()
@_grouped
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
@_grouped
def download(name: Name, printing: PrintingOptions) -> None:
    """Download what is missing of a dataset and check it."""
    from fastgrl.datasets import download as fetch

    with terminal.progress_bar(f"downloading {name}", shown=printing.bar) as progress:
        paths = [str(path) for path in fetch(name, progress=progress)]
    lines = {f"file {number}": path for number, path in enumerate(paths, 1)}
    terminal.show({"name": name, "files": paths}, [(name, lines)], as_json=printing.json)


@datasets.command()
@_grouped
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
@_grouped
def path(printing: PrintingOptions) -> None:
    """Print the folder where datasets lie; FASTGRL_DATA chooses another."""
    from fastgrl.datasets import data_folder

    terminal.show({"path": str(data_folder())}, [(str(data_folder()), {})], as_json=printing.json)


def _read(edges: str, options: ReadingOptions, printing: PrintingOptions) -> Reading:
    from fastgrl.io import read

    how = dataclasses.asdict(options)
    with terminal.progress_bar(f"reading {edges}", shown=printing.bar) as progress:
        return read(edges, progress=progress, n_threads=how.pop("threads"), **how)


def _threads(options: ReadingOptions) -> int:
    from fastgrl.parallel import available_cpus

    return options.threads or available_cpus()


def _cost(graph: Graph, fit: FitOptions) -> Estimate:
    from fastgrl.estimate import DEFAULT_RANK, DEFAULT_WINDOW, estimate

    return estimate(
        graph.num_nodes,
        len(graph.indices),
        rank=min(DEFAULT_RANK, graph.num_nodes) if fit.rank is None else fit.rank,
        window=fit.window or DEFAULT_WINDOW,
        dtype=fit.dtype,
        weighted=graph.weights is not None,
        directed=graph.directed,
    )


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
