"""Where tasks run: Dask is one value of `Engine`, the process itself another."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, eq=False)
class Engine:
    """What a cluster must offer: futures, and no more.

    A task must be a pure function of its arguments: it may run twice, and what it made may be lost and made
    again. Nothing is handed over but arguments, so whatever is lost can be recomputed from them.
    """

    name: str
    # (function, calls, futures): a future of `function(call, *values of its futures)` for each call
    map: Callable[[Callable[..., Any], Sequence[Any], Sequence[Sequence[Any]]], list[Any]]
    gather: Callable[[Sequence[Any]], list[Any]]  # what the futures hold
    future: type  # of what `map` returns
    slots: Callable[[], int]  # how many tasks run at a time
    page: str = ""  # where people can watch it


@dataclass(frozen=True, eq=False)
class Done:
    """A future of this process: its value."""

    value: Any


def _at_once(
    function: Callable[..., Any], calls: Sequence[Any], futures: Sequence[Sequence[Any]]
) -> list[Any]:
    pairs = zip(calls, futures, strict=True)
    return [Done(function(call, *(one.value for one in some))) for call, some in pairs]


HERE = Engine("this process", _at_once, lambda futures: [one.value for one in futures], Done, lambda: 1)


@dataclass(frozen=True, eq=False)
class Pending:
    """A call that is not handed over yet; arguments may be pending too, futures, or lists of these.

    Element-wise work waits in here until somebody needs its result, and then runs inside that task.
    """

    function: Callable[..., Any]
    arguments: tuple[Any, ...]


@dataclass(frozen=True)
class Slot:
    """Stands for a future of a pending call, which travels beside it."""

    number: int


def submit(engine: Engine, calls: Sequence[Pending]) -> list[Any]:
    """Hand pending calls over, each with everything that waits in its arguments as one task."""
    emptied = [_emptied(engine, call) for call in calls]
    return engine.map(run, [call for call, _ in emptied], [futures for _, futures in emptied])


def _emptied(engine: Engine, call: Pending) -> tuple[Any, list[Any]]:
    """A call with slots where futures were, and the futures."""
    futures: list[Any] = []
    return _without(call, engine.future, futures), futures


# No closures that call themselves: they would be cycles, and keep what they saw until those are collected.


def _without(value: Any, kind: type, futures: list[Any]) -> Any:
    """A value with slots in the place of its futures, which are put at the end of a list."""
    if isinstance(value, kind):
        futures.append(value)
        return Slot(len(futures) - 1)
    if isinstance(value, Pending):
        return Pending(value.function, tuple(_without(one, kind, futures) for one in value.arguments))
    return [_without(one, kind, futures) for one in value] if isinstance(value, list) else value


def _filled(value: Any, values: Sequence[Any]) -> Any:
    """What a value is with those of its futures in their slots, calls being made."""
    if isinstance(value, Slot):
        return values[value.number]
    if isinstance(value, Pending):
        return value.function(*(_filled(one, values) for one in value.arguments))
    return [_filled(one, values) for one in value] if isinstance(value, list) else value


def handed_over(engine: Engine, parts: list[Any]) -> list[Any]:
    """The same list, with futures in the place of what was pending."""
    waiting = [number for number, part in enumerate(parts) if isinstance(part, Pending)]
    made = submit(engine, [parts[number] for number in waiting]) if waiting else []
    for number, future in zip(waiting, made, strict=True):
        parts[number] = future
    return parts


def run(call: Pending, *values: Any) -> Any:
    """What a worker does with a call and the values of its futures."""
    from fastgrl.devices import working_here
    from fastgrl.parallel import single_threaded_blas, use_threads

    with (
        use_threads(1),
        single_threaded_blas(),
        working_here(),
    ):  # a worker has other tasks for its other cores
        return _filled(call, values)
