"""What stands behind the numbers: certificates, commands, machines and versions, all from records."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from fastgrl.estimate import format_bytes
from fastgrl.reports.grids import MISSING, Entry, Grid, percentage, words
from fastgrl.reports.summary import PER_CENT, Record, Selection, belonging, figures, number

if TYPE_CHECKING:
    from fastgrl.experiments.specs import DatasetSpec, MethodSpec, Spec

_Found = tuple["Spec", "MethodSpec", "DatasetSpec", tuple[Record, ...]]


def found_runs(chosen: Selection, specs: Sequence[Spec]) -> Iterator[_Found]:
    """Every method and dataset with its records, each once: figures that share a table's have none."""
    for spec in specs:
        for method in spec.methods if spec.shared is None else ():
            for dataset in spec.datasets:
                if records := belonging(chosen, spec, dataset, method):
                    yield spec, method, dataset, records


def certificate_grid(chosen: Selection, specs: Sequence[Spec]) -> Grid:
    """The least favourable figures of all certificates of a method on a dataset, one row for each."""
    rows = [
        (words(method.label), words(dataset.label), words(spec.name), *_certified(certificates))
        for spec, method, dataset, records in found_runs(chosen, specs)
        if (certificates := [record["certificate"] for record in records if record.get("certificate")])
    ]
    columns = ("fits", "largest relative residual", "captured energy", "standard error", "smallest gap")
    missed = "fits that missed nothing larger"
    return Grid(
        name="certificates",
        title="Certificates",
        columns=("method", "dataset", "of", *columns, missed),
        right=(False, False, False, *(True for _ in columns), True),
        rows=tuple(rows),
    )


def _certified(certificates: list[Mapping[str, Any]]) -> tuple[Entry, ...]:
    least = min(certificates, key=lambda c: number(c.get("captured")) or 0.0)
    return (
        Entry(str(len(certificates)), len(certificates)),
        _scientific(max(figures(certificates, "worst_residual"), default=None)),
        _share(number(least.get("captured"))),
        _share(number(least.get("captured_error"))),
        _scientific(min(figures(certificates, "gap"), default=None)),
        words(_complete(certificates)),
    )


def _complete(certificates: list[Mapping[str, Any]]) -> str:
    said = [bool(c["complete"]) for c in certificates if c.get("complete") is not None]
    return f"{sum(said)} of {len(said)}" if said else ""


def _scientific(value: float | None) -> Entry:
    return Entry(MISSING) if value is None else Entry(f"{value:.2g}".replace("-", "−"), value)


def _share(value: float | None) -> Entry:
    return Entry(MISSING) if value is None else Entry(f"{percentage(PER_CENT * value)} %", value)


def command_grid(chosen: Selection, spec: Spec) -> Grid:
    """How each number was made: what to type, with which seeds, and what was chosen on validation data."""
    columns = ("method", "dataset", "seeds", "command", "settings", "chosen", "memory")
    return Grid(
        name=f"{spec.name}-commands",
        title=spec.title,
        columns=columns,
        right=(*(False for _ in columns[:-1]), True),
        rows=tuple(_command_row(*found[1:]) for found in found_runs(chosen, [spec])),
    )


def _command_row(method: MethodSpec, dataset: DatasetSpec, records: tuple[Record, ...]) -> tuple[Entry, ...]:
    memory = max(figures(records, "peak_memory_bytes"), default=None)
    return (
        words(method.label),
        words(dataset.label),
        words(", ".join(str(record.get("seed")) for record in records)),
        # Of several, that of the last seed: it makes those before as well.
        words("".join(_distinct(records, "command")[-1:]), code=True),
        words("; ".join(_distinct(records, "settings"))),
        words("; ".join(_distinct(records, "chosen"))),
        Entry(MISSING) if memory is None else Entry(format_bytes(int(memory)), memory),
    )


def _distinct(records: Sequence[Record], name: str) -> list[str]:
    """The different values of a field in the order they came; seeds have a column of their own."""
    return list(dict.fromkeys(text for record in records if (text := _said(record.get(name)))))


def _said(value: Any) -> str:
    if isinstance(value, Mapping):
        inner = {name: item for name, item in value.items() if name not in ("seed", "random_state")}
        return ", ".join(f"{name} {_said(item)}" for name, item in inner.items() if item is not None)
    if isinstance(value, list | tuple):
        return " ".join(map(_said, value))
    return "" if value is None else f"{value:.4g}" if isinstance(value, float) else str(value)


def machine_grid(chosen: Selection) -> Grid:
    """What the records were made with and on; where they differ, every value with its number of runs."""
    facts: dict[str, dict[str, int]] = {}
    for record in chosen.records:
        for name, value in _surroundings(record).items():
            runs = facts.setdefault(name, {})
            runs[value] = runs.get(value, 0) + 1
    return Grid(
        name="machines",
        title="Machine and versions",
        columns=("what", "which"),
        right=(False, False),
        rows=tuple((words(name), words(_values(runs, len(chosen.records)))) for name, runs in facts.items()),
    )


def _values(runs: Mapping[str, int], total: int) -> str:
    everywhere = [value for value, count in runs.items() if count == total]
    return (
        everywhere[0]
        if everywhere
        else ", ".join(f"{value} ({count} run{'s' * (count != 1)})" for value, count in runs.items())
    )


def _surroundings(record: Record) -> dict[str, str]:
    machine, git = dict(record.get("machine") or {}), record.get("git") or {}
    memory = number(machine.pop("memory_bytes", None))
    facts = {name: _said(value) for name, value in machine.items()}
    if memory is not None:
        facts["memory"] = format_bytes(int(memory))
    facts |= {name: _said(value) for name, value in (record.get("versions") or {}).items()}
    if git:
        facts["source"] = _said(git.get("commit"))[:12] + " with changes" * bool(git.get("dirty"))
    return facts
