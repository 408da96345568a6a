"""What is rerun: one file of `specs/` for each table and figure, with the published numbers in it."""

from __future__ import annotations

import difflib
import functools
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from importlib import resources
from types import MappingProxyType
from typing import Any

from fastgrl.checks import shown
from fastgrl.datasets import describe
from fastgrl.errors import ArgumentError

NAMES = ("table-nodes", "table-links", "figure-time", "figure-depth", "figure-rank")


@dataclass(frozen=True)
class DatasetSpec:
    """A column: `published_nodes` and `published_edges` are what the reference paper's table counts."""

    name: str
    label: str
    published_nodes: int | None = None
    published_edges: int | None = None
    quick: bool = False


@dataclass(frozen=True)
class MethodSpec:
    """A row: who computes it, with what, and what was published for it.

    `kind` is "published" for a method to compare with, "paper" for the reference paper's own, "ours" for
    what goes beyond it. `engine` names who computes it (see `methods`) and `settings` what it is told; `of`
    holds what differs by dataset, `brief` what differs in a quick run. With another `revision`, for a
    changed program, all runs are made anew. `published` are means × 100 by dataset, `published_seconds`
    were measured on the paper's GPU. A mean counts as reproduced if it is at most `tolerance` points below
    the published.
    """

    name: str
    label: str
    kind: str
    engine: str
    reference: str
    note: str = ""
    published: Mapping[str, float] = field(default_factory=dict)
    published_seconds: Mapping[str, float] = field(default_factory=dict)
    settings: Mapping[str, Any] = field(default_factory=dict)
    of: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    brief: Mapping[str, Any] = field(default_factory=dict)
    revision: int = 1
    seeds: Mapping[str, int] = field(default_factory=dict)
    tolerance: float = 1.5

    def settings_for(self, dataset: str, *, quick: bool = False) -> dict[str, Any]:
        """All that the engine is told of a dataset."""
        return dict(self.settings) | dict(self.of.get(dataset, {})) | (dict(self.brief) if quick else {})


@dataclass(frozen=True)
class Spec:
    """A table or a figure; `axis` is what a figure has from left to right: "seconds", "hops" or "rank".

    `pace` names the method whose seconds the others' are compared with, one fit with nothing chosen; `shared`
    says that the runs are those of another spec, whose methods these are.
    """

    name: str
    kind: str
    title: str
    about: str
    task: str
    metric: str
    seeds: int
    datasets: tuple[DatasetSpec, ...]
    methods: tuple[MethodSpec, ...]
    axis: str | None = None
    pace: str | None = None
    shared: str | None = None

    def method(self, name: str) -> MethodSpec:
        """The method of that name."""
        return next(method for method in self.methods if method.name == name)


def load_specs() -> tuple[Spec, ...]:
    """Every table and figure of the paper.

    >>> from fastgrl.experiments.specs import load_specs
    >>> [spec.name for spec in load_specs()]
    ['table-nodes', 'table-links', 'figure-time', 'figure-depth', 'figure-rank']
    """
    return tuple(load_spec(name) for name in NAMES)


@functools.cache
def load_spec(name: str) -> Spec:
    """One table or figure.

    >>> from fastgrl.experiments.specs import load_spec
    >>> load_spec("table-nodes").method("gcn").published["cora"]
    81.5
    """
    if name not in NAMES:
        close = difflib.get_close_matches(str(name)[:40], NAMES, 1)
        hint = f"did you mean {close[0]}?" if close else f"choose from {', '.join(NAMES)}"
        raise ArgumentError(f"nothing in the paper is called {shown(name)}; {hint}")
    text = resources.files("fastgrl.experiments").joinpath("specs", f"{name}.toml").read_text("utf-8")
    entry = tomllib.loads(text)
    shared = entry.get("shared")
    methods = [_method(item) for item in entry["methods"]] if shared is None else _picked(shared, entry)
    return Spec(
        name=name,
        kind=entry["kind"],
        title=entry["title"],
        about=entry["about"],
        task=entry["task"],
        metric=entry["metric"],
        seeds=entry["seeds"] if shared is None else load_spec(shared).seeds,
        datasets=tuple(_dataset(item) for item in entry["datasets"]),
        methods=tuple(methods),
        axis=entry.get("axis"),
        pace=entry.get("pace"),
        shared=shared,
    )


def _picked(shared: str, entry: dict[str, Any]) -> list[MethodSpec]:
    return [load_spec(shared).method(name) for name in entry["methods"]]


def _dataset(item: dict[str, Any]) -> DatasetSpec:
    published: Mapping[str, int] = describe(item["name"]).published or {}
    spec = DatasetSpec(**item)
    return replace(spec, published_nodes=published.get("nodes"), published_edges=published.get("edges"))


def _method(item: dict[str, Any]) -> MethodSpec:
    return MethodSpec(**{name: _frozen(value) for name, value in item.items()})


def _frozen(value: Any) -> Any:
    return MappingProxyType(value) if isinstance(value, dict) else value
