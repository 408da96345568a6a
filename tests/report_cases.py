"""Records as experiments write them, with plausible values that nobody measured."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from fastgrl.experiments.specs import DatasetSpec, MethodSpec, Spec, load_spec, load_specs

_MACHINE = {
    "cpu": "AMD EPYC 7B13",
    "cpus": 2,
    "threads": 2,
    "memory_bytes": 8 << 30,
    "system": "Linux 6.1 x86_64",
}
_VERSIONS = {"python": "3.12.4", "fastgrl": "0.6.0", "numpy": "2.1.0", "scipy": "1.14.1", "torch": "2.5.1"}
_PACE = {"published": 60.0, "paper": 0.8, "ours": 2.0}


def demo_records(*, seeds: int = 3, quick: bool = False) -> list[dict[str, Any]]:
    """Every run of every table and figure; figures that share a table's runs have none of their own."""
    return [
        record(spec, method, dataset, seed, quick=quick)
        for spec in load_specs()
        if spec.shared is None
        for method in spec.methods
        for dataset in spec.datasets
        for seed in range(seeds)
    ]


def one_dataset(name: str, *, dataset: int = 0, methods: int | None = None) -> Spec:
    """A specification cut down to one of its datasets, so that it is quickly drawn."""
    spec = load_spec(name)
    return replace(
        spec, datasets=(spec.datasets[dataset],), methods=spec.methods[-methods if methods else 0 :]
    )


def relabelled(spec: Spec, label: str) -> Spec:
    """The same with every label, note, title and reference replaced by `label`."""
    methods = tuple(replace(m, label=label, note=label, reference=label) for m in spec.methods)
    datasets = tuple(replace(d, label=label) for d in spec.datasets)
    return replace(spec, methods=methods, datasets=datasets, title=label, about=label)


def record(
    spec: Spec, method: MethodSpec, dataset: DatasetSpec, seed: int, *, quick: bool = False
) -> dict[str, Any]:
    chance = _chance(spec.task, method.name, dataset.name, seed)
    value = (_level(spec, method, dataset) + chance.normal(0, 0.25)) / 100
    nodes = dataset.published_nodes or 1000
    seconds = (
        _PACE[method.kind]
        * nodes
        / 4000
        * float(_chance(method.name).uniform(0.2, 4))
        * chance.uniform(0.9, 1.1)
    )
    return {
        "key": f"{chance.integers(1 << 62):016x}",
        "task": spec.task,
        "method": method.name,
        "dataset": dataset.name,
        "seed": seed,
        "quick": quick,
        "metric": spec.metric,
        "value": value,
        "validation": value - 0.002,
        "seconds": seconds,
        "seconds_total": 1.3 * seconds,
        "cpu_seconds": 1.9 * seconds,
        "peak_memory_bytes": 400_000_000 + 20_000 * nodes,
        "settings": method.settings_for(dataset.name, quick=quick),
        "chosen": {"rank": 128, "restart": 0.15} if method.kind == "ours" else {},
        "epochs": 100 if method.kind == "published" else None,
        "certificate": _certificate(chance) if method.kind == "ours" else None,
        "curve": _curve(spec, value, chance),
        "started": f"2026-01-0{1 + seed}T11:02:03+00:00",
        "load": 0.1 * seed,
        "command": f"fastgrl reproduce {spec.name} --only {method.name} --dataset {dataset.name}",
        "machine": _MACHINE,
        "versions": _VERSIONS,
        "git": {"commit": "0123456789abcdef0123456789abcdef01234567", "dirty": False},
        "data": "ab" * 32,
        "counts": {"nodes": nodes, "edges": (dataset.published_edges or 5000) - 3, "test": nodes // 2},
    }


def _chance(*parts: Any) -> np.random.Generator:
    return np.random.Generator(
        np.random.Philox(sum(b << (i % 48) for i, b in enumerate(repr(parts).encode())))
    )


def _level(spec: Spec, method: MethodSpec, dataset: DatasetSpec) -> float:
    known = [
        float(m.published[dataset.name])
        for s in load_specs()
        if s.task == spec.task
        for m in s.methods
        if dataset.name in m.published
    ]
    return float(method.published.get(dataset.name, min(max(known, default=85.0) + 0.5, 99.6)))


def _certificate(chance: np.random.Generator) -> dict[str, Any]:
    return {
        "rank": 8,
        "largest": 9.0,
        "last": 1.0,
        "next": 0.9,
        "gap": float(chance.uniform(0.05, 0.2)),
        "worst_residual": 2e-4,
        "captured": 0.91,
        "captured_error": 0.002,
        "orthogonality": 1e-6,
        "complete": True,
    }


def _curve(spec: Spec, value: float, chance: np.random.Generator) -> dict[str, Any] | None:
    if spec.axis == "hops":
        x = list(range(16))
        y = [value - 0.2 * 0.5**depth + chance.normal(0, 0.003) for depth in x]
        return {"over": "hops", "x": x, "y": y}
    if spec.axis == "rank":
        x = [2, 4, 8, 16, 32, 64, 128]
        y = [value - 0.3 / rank + chance.normal(0, 0.001) for rank in x]
        return {"over": "rank", "x": x, "y": y, "separate": {"x": [4, 16, 64], "y": [y[1], y[3], y[5]]}}
    return None
