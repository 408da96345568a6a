"""What commands can be told: groups of options, and parsers whose errors name the option and the value."""

from __future__ import annotations

import dataclasses
import functools
import inspect
import re
import typing
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import typer

from fastgrl import completion, terminal
from fastgrl import help as help_pages
from fastgrl.errors import FastgrlError

# Named here as well as in the model, so that help is shown and a wrong name refused before NumPy is loaded.
DESIGNS = ("log-diffusion", "degree-walk", "walk", "as-released", "shrunken")
WALK_DESIGNS = ("degree-walk", "walk", "as-released")  # those with a window and a weight of non-edges
NODE_DESIGNS = ("co-ridge", "jkn", "jkn-text", "jkn-as-released")
METRICS = ("roc-auc", "average-precision", "hits@K")
_LARGEST_SEED = 2**64 - 1
_NUMBER = re.compile(r"[0-9]{1,20}(\.[0-9]{1,20})?([eE][+-]?[0-9]{1,2})?")


def whole(name: str, least: int, most: int | None = None) -> Callable[[str | int], int]:
    """A parser of whole numbers from `least` to `most`."""

    def parse(given: str | int) -> int:
        text = str(given)  # typer sends defaults through as well
        value = int(text) if re.fullmatch(r"[+-]?[0-9]{1,40}", text) else None
        if value is None or value < least or (most is not None and value > most):
            limits = f"of at least {least}" if most is None else f"from {least} to {most}"
            # Not an ArgumentError: typer would take a ValueError for its own and reword it.
            option = name if name.startswith("-") else f"--{name}"
            raise FastgrlError(f"{option} must be a whole number {limits}, got {terminal.quoted(text)}")
        return value

    return parse


def one_of(name: str, allowed: Sequence[str]) -> Callable[[str], str]:
    """A parser of names that suggests the nearest one."""

    def parse(text: str) -> str:
        if text in allowed:
            return text
        hint = terminal.meant(text, allowed) or f"; choose from {', '.join(allowed)}"
        raise FastgrlError(f"--{name} {terminal.quoted(text)} is not known{hint}")

    return parse


def named(name: str, allowed: Sequence[str]) -> dict[str, Any]:
    """What makes an option one of several names: how it is read, and how a shell completes it."""
    return {"parser": one_of(name, allowed), "autocompletion": completion.words(allowed)}


def metric(text: str) -> str:
    """A measure of links: roc-auc, average-precision or hits@K."""
    if re.fullmatch(r"hits@[1-9][0-9]{0,8}", text):
        return text
    return one_of("metric", (*METRICS[:2], "hits@20"))(text)


def number(name: str) -> Callable[[str | float], float]:
    """A parser of numbers of at least 0."""

    def parse(given: str | float) -> float:
        text = str(given)
        if not _NUMBER.fullmatch(text):
            raise FastgrlError(f"--{name} must be a number of at least 0, got {terminal.quoted(text)}")
        return float(text)

    return parse


def _amount(text: str) -> int:
    from fastgrl.estimate import parse_bytes

    try:
        return parse_bytes(text)
    except ValueError as error:
        raise FastgrlError(f"--max-memory: {error}") from None


_file = functools.partial(typer.Option, rich_help_panel="How the file is read", show_default=False)
_table = functools.partial(typer.Option, rich_help_panel="Labels and features", show_default=False)
_fit = functools.partial(typer.Option, rich_help_panel="What is fitted", show_default=False)
_running = functools.partial(typer.Option, rich_help_panel="How it is run", show_default=False)
_printing = functools.partial(typer.Option, rich_help_panel="What is printed", show_default=False)


def _count(option: Any, name: str, help: str, *, least: int = 1, most: int | None = None) -> Any:
    return option(metavar="N", parser=whole(name, least, most), help=help)


_Delimiter = Annotated[str | None, _file(metavar="TEXT", help="Between columns: , ; | tab space.")]
_Header = Annotated[bool | None, _file("--header/--no-header", help="Whether the first line has names.")]
_Comment = Annotated[str | None, _file(metavar="CHAR|none", help="Character that begins a comment line.")]
_Encoding = Annotated[str | None, _file(metavar="NAME", help="Of the text (utf-8).")]
_Threads = Annotated[int | None, _count(_running, "threads", "Processors to use (all that are free).")]

_MaxMemory = Annotated[int | None, _running(metavar="8GB", parser=_amount, help="Stay below, or refuse.")]

Edges = Annotated[str, typer.Argument(metavar="EDGES", help="Edge list, table, matrix or graph; - is stdin.")]
_model = functools.partial(typer.Argument, metavar="MODEL", autocompletion=completion.models)
Model = Annotated[str, _model(help="A folder that `fastgrl link` wrote.")]
NodeModel = Annotated[str, _model(help="A folder that `fastgrl classify` wrote.")]
Source = Annotated[
    str,
    typer.Argument(
        metavar="NAME|EDGES", help="A dataset, or a file of edges.", autocompletion=completion.datasets
    ),
]
Force = Annotated[bool, typer.Option("--force", help="Overwrite what is there.")]


@dataclass(frozen=True)
class ReadingOptions:
    """How an edge list is to be read; whatever is not said is found out."""

    directed: Annotated[bool, _file("--directed", help="Edges have a direction.")] = False
    weight: Annotated[str | None, _file(metavar="COLUMN", help="Column of weights.")] = None
    unweighted: Annotated[bool, _file("--unweighted", help="Leave weights out.")] = False
    delimiter: _Delimiter = None
    header: _Header = None
    columns: Annotated[
        str | None, _file(metavar="SRC,DST[,WEIGHT]", help="Columns to read, by name or number.")
    ] = None
    comment: _Comment = None
    encoding: _Encoding = None
    nodes: Annotated[
        str | None, _file(metavar="FILE", help="List of all nodes, also those without an edge.")
    ] = None
    threads: _Threads = None


@dataclass(frozen=True)
class TableOptions:
    """How a table of pairs or a list of ids is to be read."""

    delimiter: _Delimiter = None
    header: _Header = None
    columns: Annotated[str | None, _file(metavar="SRC,DST", help="Columns to read, by name or number.")] = (
        None
    )
    comment: _Comment = None
    encoding: _Encoding = None
    threads: _Threads = None


@dataclass(frozen=True)
class FitOptions:
    """What is asked of a fit; `inspect` and `estimate` quote its cost."""

    rank: Annotated[int | None, _count(_fit, "rank", "Columns of the embedding (by design).")] = None
    design: Annotated[
        str, _fit(metavar="NAME", **named("design", DESIGNS), help=", ".join(DESIGNS) + ".")
    ] = DESIGNS[0]
    window: Annotated[int | None, _count(_fit, "window", "Steps of a walk (designs with walk).")] = None
    negative: Annotated[
        float | None,
        _fit(metavar="X", parser=number("negative"), help="Weight λ of non-edges (designs with walk)."),
    ] = None
    seed: Annotated[int, _count(_fit, "seed", "Same seed, same bits (0).", least=0, most=_LARGEST_SEED)] = 0
    max_memory: _MaxMemory = None
    bipartite: Annotated[
        bool, _fit("--bipartite/--no-bipartite", help="Links go between two sides only (no).")
    ] = False


@dataclass(frozen=True)
class ClusterOptions:
    """Where the work is done, if not in this process."""

    cluster: Annotated[
        str | None, _running(metavar="ADDRESS|local[:N]", help="On the workers of a Dask scheduler.")
    ] = None
    blocks: Annotated[
        int | None, _count(_running, "blocks", "Blocks of rows (2 for each thread of a worker).")
    ] = None
    checkpoint: Annotated[
        str | None, _running(metavar="DIR", help="Shared folder to go on from after a stop.")
    ] = None


_number = functools.partial(_fit, metavar="X")


@dataclass(frozen=True)
class NodeFitOptions:
    """What is asked of a node classifier; settings that are not named are chosen."""

    rank: Annotated[int | None, _count(_fit, "rank", "Columns kept (by design).")] = None
    design: Annotated[
        str, _fit(metavar="NAME", **named("design", NODE_DESIGNS), help=", ".join(NODE_DESIGNS) + ".")
    ] = NODE_DESIGNS[0]
    ridge: Annotated[float | None, _number(parser=number("ridge"), help="Strength γ of the ridge.")] = None
    restart: Annotated[
        float | None, _number(parser=number("restart"), help="Chance that a walk starts anew, 0 to 1.")
    ] = None
    views: Annotated[str | None, _fit(metavar="l,i", help="Views of the features, out of l, i and k.")] = None
    rounds: Annotated[int | None, _count(_fit, "rounds", "Rounds of self-training.", least=0)] = None
    balance: Annotated[float | None, _number(parser=number("balance"), help="Balance κ of the classes.")] = (
        None
    )
    hops: Annotated[int | None, _count(_fit, "hops", "Hops of the jkn designs.", least=0)] = None
    window: Annotated[int | None, _count(_fit, "window", "Steps of a walk (jkn designs).")] = None
    negative: Annotated[
        float | None, _number(parser=number("negative"), help="Weight λ of non-edges (jkn designs).")
    ] = None
    class_weight: Annotated[
        str | None,
        _fit(metavar="balanced", **named("class-weight", ("balanced",)), help="Rare classes count more."),
    ] = None
    seed: Annotated[int, _count(_fit, "seed", "Same seed, same bits (0).", least=0, most=_LARGEST_SEED)] = 0
    max_memory: _MaxMemory = None


MissingFeatures = Annotated[
    str | None,
    _table(metavar="zero", **named("missing-features", ("zero",)), help="Zeros for nodes without a row."),
]


@dataclass(frozen=True)
class NodeFileOptions:
    """Files by node id, and how they are read."""

    features: Annotated[str | None, _table(metavar="FILE", help="A row of numbers per node, by id.")] = None
    id_column: Annotated[
        str | None, _table(metavar="COLUMN", help="Column of ids in the features (the first).")
    ] = None
    label_columns: Annotated[
        str | None, _table(metavar="ID,LABEL", help="Columns of the labels, by name or number.")
    ] = None
    multi_label: Annotated[bool, _table("--multi-label", help="A node may have several classes.")] = False
    ignore_unknown: Annotated[bool, _table("--ignore-unknown", help="Leave out ids that are no nodes.")] = (
        False
    )
    missing_features: MissingFeatures = None

    @property
    def id_and_label(self) -> tuple[str | None, str | None]:
        """The two columns of labels, as far as they are named."""
        names = [] if self.label_columns is None else self.label_columns.split(",")
        if len(names) > 2 or "" in names:
            text = terminal.quoted(self.label_columns)
            raise FastgrlError(f"--label-columns must be ID,LABEL or LABEL alone, got {text}")
        return (names[0] if len(names) == 2 else None), (names[-1] if names else None)


Dtype = Annotated[
    str, _fit(metavar="NAME", **named("dtype", ("float32", "float64")), help="float32 or float64.")
]
Select = Annotated[bool, _fit("--select/--no-select", help="Choose settings by held-out edges (yes).")]
SelectNodes = Annotated[bool, _fit("--select/--no-select", help="Choose settings by held-out labels (yes).")]
SelectIfAsked = Annotated[bool, _fit("--select/--no-select", help="Choose settings by held-out edges (no).")]


@dataclass(frozen=True)
class PrintingOptions:
    """What goes to stdout and stderr."""

    json: Annotated[bool, _printing("--json", help="One JSON object on stdout.")] = False
    quiet: Annotated[bool, _printing("--quiet", "-q", help="No notes, no progress.")] = False
    no_progress: Annotated[bool, _printing("--no-progress", help="No progress bar.")] = False
    debug: Annotated[bool, _printing("--debug", help="Show the traceback of an error.")] = False
    help_all: Annotated[
        bool,
        _printing("--help-all", is_eager=True, callback=help_pages.show_everything, help="Every option."),
    ] = False

    @property
    def bar(self) -> bool:
        """Whether a terminal gets a progress bar."""
        return not (self.quiet or self.no_progress)


def grouped(command: Callable[..., None]) -> Callable[..., None]:
    """Let a command take groups of options: the fields of each become options of their own."""
    signature = inspect.signature(command, eval_str=True)
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
    keyword_only = [p.replace(kind=inspect.Parameter.KEYWORD_ONLY) for p in flat]
    vars(run_command)["__signature__"] = inspect.Signature(keyword_only)
    run_command.__annotations__ = {p.name: p.annotation for p in keyword_only}
    return run_command


def _as_parameters(group: Any) -> list[inspect.Parameter]:
    kinds = typing.get_type_hints(group, include_extras=True)
    keyword = inspect.Parameter.KEYWORD_ONLY
    return [
        inspect.Parameter(field.name, keyword, default=field.default, annotation=kinds[field.name])
        for field in dataclasses.fields(group)
    ]
