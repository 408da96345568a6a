"""Which runs a table or figure is made of."""

from __future__ import annotations

import difflib
import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from fastgrl.checks import shown
from fastgrl.errors import ArgumentError
from fastgrl.experiments.specs import DatasetSpec, MethodSpec, Spec


@dataclass(frozen=True)
class Run:
    """One method on one dataset with one seed."""

    spec: str
    task: str
    metric: str
    method: str
    engine: str
    dataset: str
    seed: int
    quick: bool
    settings: dict[str, Any]
    revision: int = 1

    @property
    def key(self) -> str:
        """The same for the same computation, whatever table or figure it is made for.

        >>> from fastgrl.experiments.plans import Run
        >>> run = Run("table-nodes", "nodes", "accuracy", "gcn", "gcn", "cora", 0, False, {"hidden": 16})
        >>> len(run.key), run.key == Run(**{**vars(run), "spec": "another"}).key
        (16, True)
        """
        facts = {name: value for name, value in asdict(self).items() if name != "spec"}
        return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:16]

    @property
    def title(self) -> str:
        """For people."""
        return f"{self.method} on {self.dataset}, seed {self.seed}"

    @property
    def command(self) -> str:
        """What repeats this run, and those of the seeds before it."""
        words = ["fastgrl", "reproduce", self.spec, "--only", self.method, "--dataset", self.dataset]
        return " ".join(
            [*words, "--seeds", str(self.seed + 1), *(["--quick"] if self.quick else []), "-o DIR"]
        )


def plan(
    specs: Sequence[Spec],
    *,
    only: Sequence[str] = (),
    datasets: Sequence[str] = (),
    seeds: int | None = None,
    quick: bool = False,
) -> list[Run]:
    """The runs of some tables and figures, each once; first seeds first, so that a part tells of all.

    `only` and `datasets` name methods and datasets that are wanted, all if empty; `seeds` replaces the number
    that a spec asks for. `quick` takes one seed, one dataset of each spec and short trainings.

    >>> from fastgrl.experiments.plans import plan
    >>> from fastgrl.experiments.specs import load_spec
    >>> len(plan([load_spec("table-nodes")], only=["gcn"], datasets=["cora"]))
    5
    """
    _check_names("method", only, {method.name for spec in specs for method in spec.methods})
    _check_names("dataset", datasets, {dataset.name for spec in specs for dataset in spec.datasets})
    found = [
        run
        for spec in specs
        for dataset in spec.datasets
        if (dataset.name in datasets if datasets else dataset.quick or not quick)
        for method in spec.methods
        if not only or method.name in only
        for run in _runs(spec, method, dataset, seeds, quick)
    ]
    if not found:
        raise ArgumentError(
            "nothing is to be run: no method that was named goes with a dataset that was named"
        )
    unique: dict[str, Run] = {}
    for run in found:
        unique.setdefault(run.key, run)
    return sorted(unique.values(), key=lambda run: run.seed)


def _runs(
    spec: Spec, method: MethodSpec, dataset: DatasetSpec, seeds: int | None, quick: bool
) -> Iterator[Run]:
    usual = 1 if quick else method.seeds.get(dataset.name, spec.seeds)
    settings = method.settings_for(dataset.name, quick=quick)
    for seed in range(usual if seeds is None else seeds):
        name = spec.shared or spec.name
        yield Run(
            name, spec.task, spec.metric, method.name, method.engine, dataset.name, seed, quick, settings
        )


def _check_names(kind: str, asked: Sequence[str], known: set[str]) -> None:
    for name in asked:
        if name not in known:
            close = difflib.get_close_matches(name[:40], sorted(known), 1)
            hint = f"did you mean {close[0]}?" if close else f"choose from {', '.join(sorted(known))}"
            raise ArgumentError(f"no {kind} {shown(name)} is part of this; {hint}")
