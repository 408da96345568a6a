"""What the command line prints and how: results on stdout; errors, notes and progress on stderr.

Text that comes from data is shown escaped, short, and never read as markup. Colours and progress bars go to
a terminal only; a pipe gets plain text that is not cut to any width.
"""

from __future__ import annotations

import contextlib
import difflib
import io
import json
import os
import re
import sys
import textwrap
import time
import traceback
import unicodedata
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, NoReturn, TextIO

import typer

from fastgrl.errors import FastgrlError, FastgrlWarning, MissingExtraError, UnavailableError

if TYPE_CHECKING:
    from fastgrl.datasets import DatasetInfo
    from fastgrl.estimate import Estimate
    from fastgrl.io import Reading
    from fastgrl.node_costs import NodeEstimate
    from fastgrl.rates import Rates

Progress = Callable[[int, int | None], None]
Section = tuple[str, Mapping[str, str]]
Line = Sequence[tuple[str, str]]  # texts with their styles

# All that a run says on stderr stays under 4 kB.
_MOST_LINES, _ERROR_BYTES, _MOST_NOTES, _NOTE_BYTES = 8, 3000, 8, 400
_NAME_WIDTH = 16
_NAME_PLACES, _BAR_PLACES = 28, 16  # of a progress bar, so that its times fit beside them
_FIRST_SECONDS, _FIRST_SHARE = 1.0, 0.02  # before them nobody can tell how long it will be
_DONE, _IMPOSSIBLE, _WRONG, INTERRUPTED, TERMINATED = 0, 1, 2, 130, 143
# Every way in which a command line can be misspelt; the class has no public name in all versions of typer.
_UsageError: type[Exception] = typer.BadParameter.__bases__[0]
# Marks that change the order in which a terminal shows what follows, and may hide what a text says.
_REORDERING = frozenset("\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")


class Terminated(BaseException):
    """SIGTERM, as an exception so that whatever is half done is undone."""


def terminate(*_: object) -> NoReturn:
    """What to do on SIGTERM."""
    raise Terminated


def clean(text: str) -> str:
    r"""The text with control characters, half surrogates and marks that reorder it escaped; lines stay.

    >>> print(clean("a\x1b[2Jb"))
    a\x1b[2Jb
    """
    return "".join(c if c == "\n" or _harmless(c) else ascii(c)[1:-1] for c in text)


def _harmless(character: str) -> bool:
    return unicodedata.category(character) not in ("Cc", "Cs", "Zl", "Zp") and character not in _REORDERING


def quoted(value: Any, limit: int = 40) -> str:
    """A value as messages show it."""
    from fastgrl.checks import shown  # and with it NumPy, which starting can do without

    return shown(value, limit)


def print_error(message: str) -> None:
    """`error: …` on stderr, in at most eight lines."""
    _say("error", "red", _shortened(message))


def print_notes(messages: Sequence[str], *, quiet: bool = False) -> None:
    """`note: …` on stderr, one for each message, the first few of them; nothing if `quiet`."""
    if quiet:
        return
    for message in messages[:_MOST_NOTES]:
        _say("note", "yellow", _cut(" ".join(clean(message).split()), _NOTE_BYTES))
    if len(messages) > _MOST_NOTES:
        _say("note", "yellow", f"and {len(messages) - _MOST_NOTES} more")


def _shortened(message: str) -> str:
    lines = [line for line in clean(message).splitlines() if line.strip()] or ["unknown"]
    return _cut("\n".join(lines[:_MOST_LINES]), _ERROR_BYTES)


def _cut(text: str, most_bytes: int) -> str:
    encoded = text.encode()
    return text if len(encoded) <= most_bytes else encoded[:most_bytes].decode(errors="ignore") + "…"


def _say(label: str, colour: str, text: str) -> None:
    words = rendered(sys.stderr, [[(f"{label}: ", f"bold {colour}"), (text, "")]])
    # When nobody listens to stderr there is nothing left to say it on.
    with contextlib.suppress(OSError, ValueError):
        sys.stderr.write(words)
        sys.stderr.flush()


def print_json(value: Mapping[str, Any]) -> None:
    """One JSON object on stdout, in ASCII, so that it is the same in every terminal and locale."""
    write(json.dumps(value, indent=2, allow_nan=False) + "\n")


def print_sections(sections: Iterable[Section]) -> None:
    """Titles with their names and values below; values are folded at the width of a terminal."""
    width, sections = _width(sys.stdout), list(sections)
    column = max([_NAME_WIDTH, *(_places(clean(name)) + 1 for _, values in sections for name in values)])
    lines: list[Line] = []
    for title, values in sections:
        lines += [[]] * bool(lines) + [[(clean(title), "bold")]]
        for name, value in values.items():
            first, *rest = _folded(clean(value), width, column)
            padding = " " * (column - _places(clean(name)))
            lines.append([("  ", ""), (clean(name) + padding, "cyan"), (first, "")])
            lines += [[(" " * (column + 2) + line, "")] for line in rest]
    write(rendered(sys.stdout, lines))


def show(value: Mapping[str, Any], sections: Iterable[Section], *, as_json: bool) -> None:
    """The one result of a command: for programs `value`, for people the same in sections."""
    print_json(value) if as_json else print_sections(sections)


def write(text: str) -> None:
    """Write to stdout now; a reader that has gone away (`| head -1`) is no error."""
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except BrokenPipeError:
        discard_stdout()


def discard_stdout() -> None:
    """Send what is still in the buffer nowhere, or Python would complain about it at its end."""
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


@contextlib.contextmanager
def progress_bar(what: str, *, shown: bool = True) -> Iterator[Progress | None]:
    """A bar on stderr for `progress(done, total)` in bytes or steps; None unless stderr is a terminal.

    It says how long it has been, and how long it will be once that can be told.
    """
    if not shown or not sys.stderr.isatty():
        yield None
        return
    from rich import progress
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Column

    name = Column(no_wrap=True, overflow="ellipsis", max_width=_NAME_PLACES)
    columns = (
        progress.TextColumn("{task.description}", table_column=name),
        progress.BarColumn(_BAR_PLACES),
        progress.TaskProgressColumn(),
        progress.TextColumn("{task.fields[clock]}", table_column=Column(no_wrap=True)),
    )
    console = Console(stderr=True, highlight=False)
    with progress.Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task(escape(clean(what)), total=None, clock=_Clock())
        clock: _Clock = bar.tasks[0].fields["clock"]

        def report(done: int, total: int | None) -> None:
            clock.share = done / total if total else 0
            bar.update(task, completed=done, total=total)

        yield report


class _Clock:
    """The time since the beginning, and what is left if it goes on as it did; read whenever it is drawn."""

    def __init__(self) -> None:
        self.begin, self.share = time.monotonic(), 0.0

    def __str__(self) -> str:
        return spent_and_left(time.monotonic() - self.begin, self.share)


def spent_and_left(seconds: float, share: float) -> str:
    """How long it has been, and about how long it will be; the first moments tell nothing of the rest.

    >>> spent_and_left(30, 0.25), spent_and_left(30, 0.07), spent_and_left(30, 0), spent_and_left(0.3, 0.5)
    ('30 s · about 90 s left', '30 s · about 7 min left', '30 s', '0 s')
    """
    spent = span(seconds)
    if seconds < _FIRST_SECONDS or not _FIRST_SHARE < share < 1:
        return spent
    left = seconds * (1 - share) / share
    # To the minute once there are some: nobody knows more than that.
    return f"{spent} · about {span(left) if left < 120 else span(60 * round(left / 60))} left"


def span(seconds: float) -> str:
    """A time as people say it.

    >>> span(99.4), span(150), span(8000)
    ('99 s', '2 min 30 s', '2 h 13 min')
    """
    whole = round(seconds)
    if whole < 120:
        return f"{whole} s"
    if whole < 7200:
        return f"{whole // 60} min" + f" {whole % 60} s" * (whole % 60 > 0)
    return f"{whole // 3600} h {whole % 3600 // 60} min"


def _width(stream: TextIO) -> int | None:
    """Columns of a terminal, at most 100 for the reader's sake; None for a pipe."""
    if not stream.isatty():
        return None
    from rich.console import Console

    return max(40, min(100, Console(file=stream).width))


def _places(text: str) -> int:
    """Columns of a terminal that a text takes: an ideograph takes two."""
    if text.isascii():
        return len(text)
    from rich.cells import cell_len

    return cell_len(text)


def _folded(text: str, width: int | None, column: int) -> list[str]:
    lines = text.splitlines() or [""]
    if width is None:
        return lines
    room = max(10, width - column - 2)
    return [part for line in lines for part in textwrap.wrap(line, room) or [""]]


def rendered(stream: TextIO, lines: Iterable[Line]) -> str:
    """Lines as `stream` wants them: with colours for a terminal (unless NO_COLOR is set), never wrapped."""
    if not stream.isatty():
        return "".join("".join(text for text, _ in line) + "\n" for line in lines)
    from rich.console import Console
    from rich.text import Text

    page = io.StringIO()
    console = Console(file=page, force_terminal=True, highlight=False)
    for line in lines:
        console.print(Text.assemble(*line), soft_wrap=True, markup=False, emoji=False)
    return page.getvalue()


def graph_facts(found: Reading) -> dict[str, Any]:
    """What a file holds, as `fastgrl inspect --json` gives it."""
    import numpy as np
    from scipy.sparse.csgraph import connected_components

    graph = found.graph
    neighbours = np.diff(graph.indptr)
    if graph.directed:
        neighbours = neighbours + np.bincount(graph.indices, minlength=graph.num_nodes)
    # The pattern of an undirected graph is symmetric: strong components are the components, at half the cost.
    kind: Literal["weak", "strong"] = "weak" if graph.directed else "strong"
    components, labels = connected_components(graph.to_scipy(), connection=kind)
    return {
        "nodes": graph.num_nodes,
        "rows": found.rows,
        "edges": graph.num_edges,
        "self_loops": graph.num_self_loops,
        "repeats": graph.repeats,
        "isolated": int(np.count_nonzero(neighbours == 0)),
        "components": int(components),
        "largest_component": int(np.bincount(labels).max()),
        "degrees": figures(neighbours),
        "weighted": graph.weights is not None,
        "weights": None if graph.weights is None else figures(graph.edge_weights()),
        "directed": graph.directed,
        "layout": dict(found.layout),
        "ids_sample": [str(item) for item in graph.ids_slice(0, 10)],
    }


def figures(values: Any) -> dict[str, float]:
    """Least, median, mean and largest."""
    import numpy as np

    figures = {"min": values.min(), "median": np.median(values), "mean": values.mean(), "max": values.max()}
    return {name: round(float(value), 6) for name, value in figures.items()}


def inspection(
    file: str, facts: Mapping[str, Any], cost: Estimate, threads: int, rates: Rates | None = None
) -> list[Section]:
    """What `fastgrl inspect` shows, from the same facts as its JSON."""
    counts = {name.replace("_", " "): f"{facts[name]:,}" for name in _COUNTS}
    counts["components"] += f", the largest of {counted(facts['largest_component'], 'node')}"
    counts["degrees"] = _spread(facts["degrees"]) + ", in and out together" * facts["directed"]
    counts["weights"] = _spread(facts["weights"]) if facts["weighted"] else "none"
    counts["first ids"] = ", ".join(quoted(item, 20) for item in facts["ids_sample"][:5])
    understood = {name: str(value) for name, value in facts["layout"].items()}
    return [(file, understood), ("graph", counts), ("a fit would cost", quotation(cost, threads, rates))]


_COUNTS = ("rows", "nodes", "edges", "self_loops", "repeats", "isolated", "components")


def counted(number: int, noun: str, nouns: str | None = None) -> str:
    """A number and what it counts.

    >>> counted(1, "node"), counted(1200, "node"), counted(2, "class", "classes")
    ('1 node', '1,200 nodes', '2 classes')
    """
    return f"{number:,} {noun if number == 1 else nouns or noun + 's'}"


def percent(share: float) -> str:
    """A share for people.

    >>> percent(0.9935)
    '99.35 %'
    """
    return f"{100 * share:.2f} %"


def _spread(figures: Mapping[str, float]) -> str:
    return " · ".join(f"{name} {value:,.4g}" for name, value in figures.items())


def quotation(cost: Estimate | NodeEstimate, threads: int, rates: Rates | None = None) -> dict[str, str]:
    """The figures of an estimate in words."""
    from fastgrl.estimate import Estimate, format_bytes

    known, work = "the graph", format_bytes(cost.work_bytes)
    given, what, passes = cost.graph_bytes, f"rank {cost.rank}", f"{cost.passes:,} over the graph"
    if isinstance(cost, Estimate):
        kind = "float32" if cost.itemsize == 4 else "float64"
        what = f"{what} of {cost.matrix}, {cost.method}, {kind}"
        passes = f"{passes}, {cost.product_columns:,} columns multiplied"
    else:
        known, given = "graph, features and labels", given + cost.features_bytes
    return {
        "design": cost.design + (f", settings chosen by {cost.fits - 1} fits" if cost.fits > 1 else ""),
        "factorisation": what,
        "memory": f"{format_bytes(cost.peak_bytes)}: {format_bytes(given)} for {known}, {work} for the work",
        "passes": passes,
        "time": _time(cost.seconds(threads, rates), threads, "two" if rates else "three"),
    }


def _time(seconds: float, threads: int, factor: str) -> str:
    time = f"about {seconds:,.0f} s" if seconds >= 1 else "under a second"
    on = f"on {threads} thread{'s' * (threads > 1)}"
    return f"{time} {on} beside reading the file, within a factor of {factor}"


def neighbours_alike(vectors: Any, y: Any) -> float:
    """The share of the 10 nearest rows, over all rows, with the same class."""
    from sklearn.neighbors import kneighbors_graph

    nearest = kneighbors_graph(vectors, 10).indices.reshape(len(vectors), 10)
    return float((y[nearest] == y[:, None]).mean())


def catalogue_entry(known: DatasetInfo) -> dict[str, Any]:
    """A dataset as the catalogue has it."""
    names = ("name", "title", "task", "bytes", "licence", "citation", "note")
    words = {name: getattr(known, name) for name in names}
    return words | {"files": [file.name for file in known.files], "expected": dict(known.expected)}


def catalogue_line(known: DatasetInfo) -> str:
    """A dataset in the list of all."""
    from fastgrl.estimate import format_bytes

    size = format_bytes(known.bytes) if known.files else "comes with scikit-learn"
    counts = ", ".join(f"{known.expected[what]:,} {what}" for what in ("nodes", "edges"))
    return f"evaluate {known.task} · {counts} · {size}"


def files_line(states: Mapping[str, str]) -> str:
    """How the files of a dataset were found, by their states."""
    wrong = [file for file, state in states.items() if state == "wrong"]
    missing = [file for file, state in states.items() if state == "missing"]
    if wrong:
        return f"wrong: {', '.join(wrong)}"
    if missing:
        return "not here" if len(missing) == len(states) else f"missing: {', '.join(missing)}"
    return f"right, {len(states)} file{'s' * (len(states) > 1)}"


def version(found: Mapping[str, Any]) -> Section:
    """What `fastgrl --version` shows."""
    rows = {"kernel": found["kernel"], "BLAS": ", ".join(found["blas"])}
    parts = {name: ", ".join(found[name]) or "nothing" for name in ("found", "missing")}
    return f"fastgrl {found['version']}, Python {found['python']}", rows | parts


def report_failure(error: BaseException, *, debug: bool) -> int:
    """Say what went wrong, and return the exit code."""
    code, message = explained(error)
    if debug and code:
        traceback.print_exception(error)
    if message:
        print_error(message)
    return code


def explained(error: BaseException) -> tuple[int, str]:
    """The exit code of an exception, and what to say about it."""
    match error:
        case KeyboardInterrupt() | typer.Abort():
            return INTERRUPTED, "interrupted"
        case Terminated():
            return TERMINATED, "terminated"
        case SystemExit() if isinstance(error.__context__, BrokenPipeError):
            discard_stdout()
            return _DONE, ""
        case SystemExit():  # how typer ends when a shell asks for completions
            return error.code if isinstance(error.code, int) else _DONE, ""
        case UnavailableError() | MissingExtraError():
            return _IMPOSSIBLE, str(error)
        case FastgrlError():
            return _WRONG, str(error)
        case MemoryError():
            return (
                _IMPOSSIBLE,
                "not enough memory; `fastgrl estimate` says what a run needs, a lower --rank needs less",
            )
        case OSError():
            return _IMPOSSIBLE, f"{error.strerror or error}" + f": {quoted(error.filename)}" * bool(
                error.filename
            )
    if isinstance(error, _UsageError):
        return _WRONG, _usage(error)
    what = f"{type(error).__name__}: {quoted(str(error), 200)}"
    return _IMPOSSIBLE, f"internal error: {what}\nrun it again with --debug and report what it shows"


def _usage(error: Any) -> str:
    """Typer's own words in our style, with the nearest name and where to read on."""
    text = re.sub(r"[ .]*(\(Possible options:|Did you mean).*$", "", error.format_message())
    command = error.ctx.command_path if error.ctx else "fastgrl"
    return f"{text[:1].lower()}{text[1:].rstrip('.')}{_nearest_word(error, text)}\nsee {command} --help"


def _nearest_word(error: Any, text: str) -> str:
    """The option or the verb that was meant, as far as can be told."""
    if error.ctx is None:
        return ""
    if verb := re.match(r"No such command '(.+)'", text):
        return meant(verb[1], error.ctx.command.commands)
    if option := re.match(r"No such option:? '?(--?[^' ]+)", text):
        known = error.ctx.command.get_params(error.ctx)
        return meant(option[1], [name for each in known for name in (*each.opts, *each.secondary_opts)])
    return ""


def meant(typed: str, names: Iterable[str], *, quote: bool = False) -> str:
    """`; did you mean …?` for the name nearest to what was typed, whatever its case; else nothing.

    >>> meant("Degre-walk", ["walk", "degree-walk"])
    '; did you mean degree-walk?'
    """
    lower = {name.lower(): name for name in names}
    close = difflib.get_close_matches(typed[:40].lower(), lower, 1)
    if not close:
        return ""
    name = lower[close[0]]
    return f"; did you mean {quoted(name) if quote else name}?"


def show_warnings(*, quiet: Any) -> None:
    """Show warnings about the input as notes and keep those of the libraries below to ourselves."""
    warnings.simplefilter("ignore")
    warnings.simplefilter("always", FastgrlWarning)
    shown_warnings = iter(range(_MOST_NOTES))

    def show(message: Warning | str, *_: Any, **__: Any) -> None:
        if next(shown_warnings, None) is not None:
            print_notes([str(message)], quiet=bool(quiet))

    warnings.showwarning = show


def mend_streams() -> None:
    """A closed stdout or stderr is a place where nobody reads; what a locale cannot show is escaped."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "w"))  # noqa: SIM115
        stream = getattr(sys, name)
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
