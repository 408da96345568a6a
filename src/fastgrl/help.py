"""Help as it fits a screen: one line for an option, one example, and the options that few need elsewhere.

`--help` shows what most people need and `--help-all` everything, as curl and others do: a page that has to be
scrolled is not read. Nothing here loads NumPy.
"""

from __future__ import annotations

import shutil
import sys
import textwrap
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

import typer
from typer.core import TyperCommand, TyperGroup

from fastgrl import terminal

_Function = TypeVar("_Function", bound=Callable[..., Any])
_WIDTH = 80  # at most, also of a wider terminal: longer lines are harder to read
_EVERYTHING = "fastgrl.help.everything"  # under this key a context knows that all options are asked for

# A story, which the tests run from the first to the last; a command shows the one that begins with its name.
EXAMPLES = (
    "fastgrl demo -o demo",
    "fastgrl inspect friends.csv --weight strength",
    "fastgrl estimate friends.csv --max-memory 1GB",
    "fastgrl link friends.csv -o friends --weight strength",
    "fastgrl recommend friends --node ann -k 5",
    "fastgrl score friends --pairs pairs.csv -o scores.csv",
    "fastgrl update friends --edges new.csv",
    "fastgrl classify friends.csv --labels teams.csv -o teams",
    "fastgrl predict teams -o classes.csv",
    "fastgrl explain teams --node zoe",
    "fastgrl embed friends.csv -o vectors.csv",
    "fastgrl import friends.csv friends-graph",
    "fastgrl datasets list",
    "fastgrl datasets info digits",
    "fastgrl datasets download digits",
    "fastgrl datasets verify",
    "fastgrl datasets path",
    "fastgrl evaluate links friends.csv --repeat 3",
    "fastgrl evaluate nodes friends.csv --labels teams.csv",
    "fastgrl reproduce table-nodes --only paper --quick -o paper",
)
FIRST_EXAMPLE = EXAMPLES[3]
# The verbs by what people come for.
GROUPS = {
    "Start": ("demo", "inspect", "estimate"),
    "Links": ("link", "recommend", "score", "update"),
    "Classes": ("classify", "predict", "explain"),
    "Graphs": ("embed", "import", "datasets"),
    "Evidence": ("evaluate", "reproduce"),
}

# Options of `--help-all` alone. What is printed with an error, such as --delimiter, is found by the error.
RARE = frozenset(
    (
        *("--delimiter", "--comment", "--encoding", "--nodes", "--threads", "--blocks"),
        *("--checkpoint", "--window", "--negative", "--dtype", "--side", "--ridge", "--restart", "--views"),
        *("--rounds", "--balance", "--hops", "--class-weight", "--id-column", "--label-columns"),
        *("--ignore-unknown", "--missing-features", "--all-classes", "--approximate", "--no-progress"),
        *("--debug", "--sweep", "--leave-one-out", "--beside"),
    )
)
# Said in the last lines, or for programs alone.
_NEVER = frozenset(("--help", "--help-all", "--install-completion", "--show-completion"))


class Program(typer.Typer):
    """Commands whose help is ours."""

    def command(self, *names: Any, **how: Any) -> Callable[[_Function], _Function]:
        """As typer's, with our help."""
        return super().command(*names, **{"cls": Command, **how})


class Command(TyperCommand):
    """A verb."""

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Write all of its help."""
        formatter.write(terminal.rendered(sys.stdout, _verb(self, ctx)).rstrip("\n"))


class Group(TyperGroup):
    """The program itself, or a verb of several kinds."""

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Write what its verbs are."""
        formatter.write(terminal.rendered(sys.stdout, _verbs(self, ctx)).rstrip("\n"))


def show_everything(context: typer.Context, asked: bool) -> None:
    """What `--help-all` does."""
    if asked and not context.resilient_parsing:
        context.meta[_EVERYTHING] = True
        terminal.write(context.get_help() + "\n")
        raise typer.Exit


def example_of(command: str) -> str:
    """The example of a command, from its words.

    >>> example_of("fastgrl datasets")
    'fastgrl datasets list'
    """
    return next((text for text in EXAMPLES if f"{text} ".startswith(f"{command} ")), FIRST_EXAMPLE)


def _verbs(group: Any, ctx: Any) -> Iterator[terminal.Line]:
    """The page of a group: a line for each verb, with the name of its task before the first of them."""
    path, program = ctx.command_path, ctx.parent is None
    yield [("Usage: ", "bold"), (f"{path} VERB [options]", "")]
    yield []
    yield [(group.help or "", "")]
    yield []
    names = group.list_commands(ctx)
    tasks = [(task, [name for name in verbs if name in names]) for task, verbs in GROUPS.items()]
    tasks = tasks if program else []
    tasks.append(("More" if program else "", [name for name in names if not _listed(name, tasks)]))
    gutter = max(len(task) for task, verbs in tasks if verbs) + 2
    column = max(map(len, names)) + 2
    for task, verbs in tasks:
        for place, name in enumerate(verbs):
            told = group.get_command(ctx, name).get_short_help_str(_WIDTH)
            first = f"{task if place == 0 else '':{gutter}}"
            yield from _row([(first, "bold"), (f"{name:{column}}", "cyan")], told, gutter + column)
    yield []
    yield _last("Example", FIRST_EXAMPLE if program else example_of(path))
    yield _last("Options", f"{path} {'VERB' if program else names[0]} --help")
    if program:
        yield _last("Also", f"{path} --version · {path} --install-completion (of your shell)")


def _listed(name: str, tasks: Sequence[tuple[str, Sequence[str]]]) -> bool:
    return any(name in verbs for _, verbs in tasks)


def _verb(command: Any, ctx: Any) -> Iterator[terminal.Line]:
    """The page of a verb: how it is called, what it does, its options by group, one example."""
    everything = _EVERYTHING in ctx.meta
    known = [parameter for parameter in command.get_params(ctx) if _long(parameter) not in _NEVER]
    shown = [p for p in known if not p.hidden and (everything or p.required or _long(p) not in RARE)]
    shown.sort(key=_is_option)
    yield [("Usage: ", "bold"), (" ".join([ctx.command_path, *_usage(shown), "[options]"]), "")]
    yield []
    for line in textwrap.wrap(" ".join((command.help or "").split()), _width()):
        yield [(line, "")]
    column = max(len(_left(parameter)) for parameter in shown) + 4
    for panel in dict.fromkeys(map(_panel, shown)):
        yield []
        yield from [[(panel, "bold")]] * bool(panel)
        for parameter in shown:
            if _panel(parameter) == panel:
                yield from _row(
                    [(f"  {_left(parameter):{column - 2}}", "cyan")], parameter.help or "", column
                )
    yield []
    yield _last("Example", example_of(ctx.command_path))
    if len(shown) < len(known):
        yield _last("All options", f"{ctx.command_path} --help-all")


def _panel(parameter: Any) -> str:
    return parameter.rich_help_panel or ""


def _is_option(parameter: Any) -> bool:
    return bool(parameter.param_type_name == "option")


def _long(parameter: Any) -> str:
    """The name by which an option is known here: the longest, since it says most."""
    return max(parameter.opts, key=len) if _is_option(parameter) else ""


def _value(parameter: Any) -> str:
    return "" if getattr(parameter, "is_flag", False) else parameter.metavar or parameter.name.upper()


def _left(parameter: Any) -> str:
    """An option as it is typed, with its value."""
    if not _is_option(parameter):
        return _value(parameter)
    names = sorted(parameter.opts, key=len)
    text = ", ".join(names) + "".join(f"/{name}" for name in parameter.secondary_opts)
    return f"{text} {_value(parameter)}".rstrip()


def _usage(shown: Sequence[Any]) -> Iterator[str]:
    """What cannot be left out, arguments first."""
    for parameter in shown:
        value = _value(parameter)
        if parameter.required:
            yield f"{min(parameter.opts, key=len)} {value}" if _is_option(parameter) else value
        elif not _is_option(parameter):
            yield f"[{value}{'...' * (parameter.nargs == -1)}]"


def _row(left: Sequence[tuple[str, str]], text: str, column: int) -> Iterator[terminal.Line]:
    first, *rest = textwrap.wrap(text, max(20, _width() - column), break_on_hyphens=False) or [""]
    yield [*left, (first, "")]
    for line in rest:
        yield [(" " * column + line, "")]


def _last(name: str, text: str) -> terminal.Line:
    return [(f"{name}: ", "bold"), (text, "")]


def _width() -> int:
    return min(_WIDTH, shutil.get_terminal_size().columns)
