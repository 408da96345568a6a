"""Who computes the rows: every method as a function of a dataset, measured in the same way.

"seconds" are those of the training alone, for ours the whole of `fit` with the choice of settings. The total
runs from the dataset in memory to scores of all that is tested.
"""

from __future__ import annotations

import importlib
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from fastgrl.baselines.outcomes import Outcome
from fastgrl.certificates import Certificate
from fastgrl.checks import Array
from fastgrl.datasets import LinkDataset, NodeDataset, describe
from fastgrl.experiments.curves import depth_curve, rank_curve
from fastgrl.link_models import dot_products
from fastgrl.link_prediction import LinkPredictor
from fastgrl.metrics import accuracy, roc_auc
from fastgrl.node_classification import NodeClassifier
from fastgrl.node_evaluation import known_only
from fastgrl.parallel import thread_count
from fastgrl.summaries import plain
from fastgrl.walks import DEFAULT_NEGATIVE

Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class Measured:
    """What a run found: `value` is on the test."""

    value: float
    seconds: float
    seconds_total: float
    validation: float | None = None
    chosen: Mapping[str, Any] = field(default_factory=dict)
    epochs: int | None = None
    certificate: Mapping[str, Any] | None = None
    curve: Mapping[str, Any] | None = None


Engine = Callable[..., Measured]

BASELINES = {
    "planetoid": "planetoid",
    "gcn": "gcn",
    "gat": "gat",
    "mixhop": "mixhop",
    "gcnii": "gcnii",
    "wys": "wys",
    "node2vec": "node2vec",
    "netmf": "netmf",
    "netmf-eigen": "netmf_eigen",
}
# What has to be there besides the library itself.
NEEDS = {
    **dict.fromkeys(("planetoid", "gcn", "gat", "mixhop", "gcnii"), ("torch", "torch_geometric")),
    "wys": ("torch",),
}


def measure(
    engine: str, dataset: LinkDataset | NodeDataset, *, seed: int, progress: Progress | None, **settings: Any
) -> Measured:
    """One run of an engine on a dataset."""
    if engine in BASELINES:
        return _baseline(engine, dataset, seed=seed, progress=progress, **settings)
    return _OURS[engine](dataset, seed=seed, progress=progress, **settings)


def import_engine(engine: str) -> Any:
    """The module of a baseline with all that it needs imported; None of ours, which is here already."""
    if engine not in BASELINES:
        return None
    module = importlib.import_module(f"fastgrl.baselines.{BASELINES[engine]}")
    if needed := getattr(module, "packages", None):
        needed()
    return module


def _baseline(
    engine: str, dataset: LinkDataset | NodeDataset, *, seed: int, progress: Progress | None, **settings: Any
) -> Measured:
    found: Outcome = import_engine(engine).run(
        dataset, seed=seed, threads=thread_count(), progress=progress, **settings
    )
    return Measured(
        value=_tested(dataset, found),
        validation=found.validation,
        seconds=found.seconds["train"],
        seconds_total=found.seconds["total"],
        chosen=plain(found.settings),
        epochs=found.epochs,
    )


def _tested(dataset: LinkDataset | NodeDataset, found: Outcome) -> float:
    if isinstance(dataset, LinkDataset):
        return roc_auc(found.scores[: len(dataset.test)], found.scores[len(dataset.test) :])
    assert found.predictions is not None
    return accuracy(dataset.y[dataset.test], found.predictions[dataset.test])


def _link_predictor(
    dataset: LinkDataset,
    *,
    seed: int,
    progress: Progress | None,
    design: str,
    rank: int | None = None,
    select: bool = True,
    read: str = "score",
) -> Measured:
    model = LinkPredictor(
        design=design,
        n_components=rank,
        select=select,
        window=describe(dataset.name).window if design in DEFAULT_NEGATIVE else None,
        negative=DEFAULT_NEGATIVE.get(design),
        random_state=seed,
    )
    begin = time.perf_counter()
    model.fit(dataset.graph, progress=progress)
    fitted = time.perf_counter()
    scored = _dots if read == "dot" else _scores
    value = roc_auc(scored(model, dataset.test), scored(model, dataset.test_negatives))
    return Measured(
        value=value,
        validation=None if read == "dot" else model.validation_.get("roc_auc"),
        seconds=fitted - begin,
        seconds_total=time.perf_counter() - begin,
        chosen=plain(model.chosen_),
        certificate=_certified(model.certificate_),
    )


def _scores(model: LinkPredictor, codes: Array) -> Array:
    return model.score_pairs(model.node_ids_[codes])


def _dots(model: LinkPredictor, codes: Array) -> Array:
    return dot_products(model.left_, model.right_, codes)


def _node_classifier(
    dataset: NodeDataset,
    *,
    seed: int,
    progress: Progress | None,
    leave_one_out: bool = False,
    **settings: Any,
) -> Measured:
    ids, held = dataset.graph.node_ids, dataset.validation
    model = NodeClassifier(random_state=seed, **settings)
    begin = time.perf_counter()
    model.fit(
        dataset.graph,
        known_only(dataset.y, dataset.train),
        features=dataset.X,
        validation=None if leave_one_out else (ids[held], dataset.y[held]),
        progress=progress,
    )
    fitted = time.perf_counter()
    predicted = model.predict(ids[dataset.test])
    return Measured(
        value=accuracy(dataset.y[dataset.test], predicted),
        validation=model.validation_.get("accuracy"),
        seconds=fitted - begin,
        seconds_total=time.perf_counter() - begin,
        chosen=plain(model.chosen_),
        certificate=_certified(model.certificate_),
    )


def _certified(found: Certificate | None) -> dict[str, Any] | None:
    if found is None:
        return None
    worst = max(float(found.left_residuals.max()), float(found.right_residuals.max()))
    figures = {
        "rank": len(found.s),
        "largest": float(found.s[0]),
        "last": float(found.s[-1]),
        "next": found.next_value,
        "gap": found.gap,
        "worst_residual": worst / max(float(found.s[0]), float(np.finfo(np.float64).tiny)),
        "captured": found.captured,
        "captured_error": found.captured_error,
        "orthogonality": found.orthogonality,
    }
    whole: dict[str, Any] = plain(figures)
    return whole | {"complete": bool(found.complete)}


def _depth(dataset: NodeDataset, *, seed: int, progress: Progress | None, **settings: Any) -> Measured:
    begin = time.perf_counter()
    curve = depth_curve(dataset, seed=seed, progress=progress, **settings)
    spent = time.perf_counter() - begin
    return Measured(curve["y"][-1], spent, spent, curve=curve)


def _rank(dataset: LinkDataset, *, seed: int, progress: Progress | None, **settings: Any) -> Measured:
    begin = time.perf_counter()
    curve, fitting = rank_curve(dataset, seed=seed, progress=progress, **settings)
    return Measured(curve["y"][-1], fitting, time.perf_counter() - begin, curve=curve)


_OURS: dict[str, Engine] = {
    "link-predictor": _link_predictor,
    "node-classifier": _node_classifier,
    "depth": _depth,
    "rank": _rank,
}
ENGINES = (*BASELINES, *_OURS)
