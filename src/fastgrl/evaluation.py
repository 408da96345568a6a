"""How well links are predicted: split, fit, test, over as many seeds as asked for."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.base import clone

from fastgrl.bipartite import checked_sides, sample_across
from fastgrl.checks import Array, integer, shown
from fastgrl.datasets import DatasetInfo, LinkDataset, NodeDataset, describe, list_datasets
from fastgrl.errors import ArgumentError
from fastgrl.fsvd import LARGEST_SEED
from fastgrl.graph import Graph
from fastgrl.link_prediction import LinkPredictor
from fastgrl.metrics import average_precision, hits_at_k, roc_auc
from fastgrl.spectra import select_shrunken
from fastgrl.splits import split_edges
from fastgrl.summaries import Progress, peak_memory, share, together
from fastgrl.summaries import plain as plain
from fastgrl.walks import DEFAULT_NEGATIVE

# The designs of the paper, which a walk's window belongs to, and those that score (u, v) and (v, u) apart.
WALKS = ("walk", "degree-walk", "as-released")
ONE_WAY = ("walk", "as-released")
HELD_OUT, _LEAST_EDGES = 0.2, 3
_PAIRS_AT_ONCE = 1 << 16


@dataclass(frozen=True, eq=False)
class Question:
    """A graph to fit, and what to test it on: (m, 2) arrays of node numbers; validation is optional."""

    graph: Graph
    positives: Array
    negatives: Array
    validation: tuple[Array, Array] | None = None


def evaluate_links(
    source: LinkDataset | NodeDataset | Graph,
    estimator: LinkPredictor | None = None,
    *,
    seed: int = 0,
    repeat: int = 1,
    random_split: bool = False,
    metric: str | None = None,
    sweep: bool = False,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Fit a link predictor and test it; a dictionary of plain numbers, lists and text.

    A links dataset is tested on its official split, anything else (or with `random_split`) on 20 % of the
    edges, held out, against as many non-edges. `seed` replaces the estimator's own, and the split's; with
    `repeat` the figures are means over seeds `seed`, `seed + 1`, …, with standard deviations beside them and
    every run under "repeats". `metric` adds "hits@K" to ROC-AUC and average precision. The paper's
    designs take the window that was published for a dataset, and their own λ, unless the estimator has others
    or `sweep` lets them be chosen on held-out edges.

    >>> ring = fg.Graph.from_edges([(i, (i + step) % 40) for i in range(40) for step in (1, 2, 3)])
    >>> found = evaluate_links(ring, fg.LinkPredictor(select=False, n_components=8))
    >>> found["task"], found["split"], found["test"]["roc_auc"] > 0.8
    ('links', 'random', True)
    """
    repeat, official = (
        integer("repeat", repeat, least=1),
        isinstance(source, LinkDataset) and not random_split,
    )
    if seed + repeat - 1 > LARGEST_SEED:
        raise ArgumentError(f"seed {seed} with repeat {repeat} goes beyond the largest seed, {LARGEST_SEED}")
    name = None if isinstance(source, Graph) else source.name
    known = describe(name) if name in list_datasets() else None
    model = LinkPredictor() if estimator is None else estimator
    model = model if sweep else _as_published(model, known)
    own = "roc_auc" if known is None else known.metric
    metric = own if metric is None else metric.replace("-", "_")
    runs: list[dict[str, Any]] = []
    for number in range(repeat):
        question = (
            official_question(source)
            if official
            else random_question(source, seed=seed + number, bipartite=model.bipartite)
        )
        model = clone(model).set_params(random_state=seed + number)
        bar = None if progress is None else share(progress, number, repeat)
        runs.append({"seed": seed + number} | _run(model, question, metric, bar))
    graph = question.graph
    return {
        "task": "links",
        "dataset": name,
        "split": "official" if official else "random",
        "nodes": graph.num_nodes,
        "edges": graph.num_edges,
        "test_pairs": len(question.positives) + len(question.negatives),
        "design": model.design,
        "metric": metric,
        **(runs[0] if repeat == 1 else together(runs)),
        "peak_memory_bytes": peak_memory(),
    }


def official_question(dataset: Any) -> Question:
    """A links dataset as it comes."""
    held = None
    if dataset.validation is not None and dataset.validation_negatives is not None:
        held = dataset.validation, dataset.validation_negatives
    return Question(dataset.graph, dataset.test, dataset.test_negatives, held)


def random_question(
    source: LinkDataset | NodeDataset | Graph, *, seed: int, bipartite: bool = False
) -> Question:
    """20 % of all edges held out, of the whole graph of a dataset, and as many non-edges."""
    graph = whole_graph(source)
    n, distinct = graph.num_nodes, graph.num_edges - graph.num_self_loops
    if distinct < _LEAST_EDGES:
        raise ArgumentError(f"{graph!r} has too few edges to hold out {HELD_OUT:.0%} of them; it takes 3")
    if n * (n - 1) // (1 if graph.directed else 2) - distinct < HELD_OUT * distinct:
        raise ArgumentError(f"{graph!r} has too few pairs without an edge to test against; it is too dense")
    split = split_edges(graph, fraction=HELD_OUT, seed=seed)
    if not bipartite:
        return Question(split.train, split.held_out, split.negatives)
    across = sample_across(graph, checked_sides(graph), len(split.held_out), seed=seed)
    return Question(split.train, split.held_out, across)


def whole_graph(source: LinkDataset | NodeDataset | Graph) -> Graph:
    """Every edge that there is: of a links dataset also those for validation and test."""
    if isinstance(source, Graph):
        return source
    if isinstance(source, NodeDataset):
        return source.graph
    parts = [
        source.graph.edge_codes(),
        source.test,
        *([] if source.validation is None else [source.validation]),
    ]
    return source.graph.with_edges(np.concatenate(parts))


def _as_published(model: LinkPredictor, known: DatasetInfo | None) -> LinkPredictor:
    if model.design not in WALKS or known is None or known.window is None:
        return model
    window = known.window if model.window is None else model.window
    negative = DEFAULT_NEGATIVE[model.design] if model.negative is None else model.negative
    fixed: LinkPredictor = clone(model).set_params(window=window, negative=negative)
    return fixed


def _run(model: LinkPredictor, question: Question, metric: str, progress: Progress | None) -> dict[str, Any]:
    ids = question.graph.node_ids
    held = None if question.validation is None else tuple(ids[codes] for codes in question.validation)
    model.fit(question.graph, validation=held, progress=progress)
    begin = time.perf_counter()
    scores = [model.score_pairs(ids[codes]) for codes in (question.positives, question.negatives)]
    seconds = {**model.seconds_, "score": time.perf_counter() - begin}
    return {
        "validation": {"roc_auc": None} | plain(model.validation_),
        "test": _figures(scores, metric),
        "chosen": plain(model.chosen_),
        "seconds": {name: round(value, 3) for name, value in seconds.items()},
        **_alternatives(model, question, scores, metric),
        "notices": list(model.notices_),
    }


def _alternatives(
    model: LinkPredictor, question: Question, scores: Sequence[Array], metric: str
) -> dict[str, Any]:
    """The same fit read in other ways: the plain dot product, both directions, settings nearly as good."""
    tests, ids = (question.positives, question.negatives), question.graph.node_ids
    found: dict[str, Any] = {}
    if model.design == "log-diffusion":
        found["dot"] = _figures([_dots(model, codes) for codes in tests], metric)
    if model.design in ONE_WAY:
        back = [model.score_pairs(ids[codes[:, ::-1]]) for codes in tests]
        found["both_ways"] = _figures([(a + b) / 2 for a, b in zip(scores, back, strict=True)], metric)
    return found | ({"near_best": _near_best(model, question, metric)} if model.near_best_ else {})


def _near_best(model: LinkPredictor, question: Question, metric: str) -> dict[str, Any]:
    """What the settings that did nearly as well in validation do in the test: how far the choice is luck."""
    rows = [dict(row) for row in model.near_best_]
    for power in sorted({row["power"] for row in rows}):
        same = [row for row in rows if row["power"] == power]
        tested = select_shrunken(
            question.graph,
            positives=question.positives,
            negatives=question.negatives,
            powers=[power],
            outers=sorted({row["outer"] for row in same}),
            shrinkages=sorted({row["shrinkage"] for row in same}),
            ranks=sorted({row["rank"] for row in same}),
            metric=lambda p, n: _figures((p, n), metric)[metric],
            seed=model.random_state,
        ).table
        known = {(row["outer"], row["shrinkage"], row["rank"]): row["value"] for row in tested}
        for row in same:
            row["test"] = known[row["outer"], row["shrinkage"], row["rank"]]
    values = [row["test"] for row in rows]
    spread = {
        "mean": float(np.mean(values)),
        "std": float(np.std(values)),
        "min": min(values),
        "max": max(values),
    }
    return {"metric": metric, "count": len(rows), "test": spread, "settings": plain(rows)}


def _dots(model: LinkPredictor, codes: Array) -> Array:
    """L_u·R_v for pairs of node numbers."""
    parts = [codes[i : i + _PAIRS_AT_ONCE] for i in range(0, len(codes), _PAIRS_AT_ONCE)]
    dots = [np.einsum("ij,ij->i", model.left_[part[:, 0]], model.right_[part[:, 1]]) for part in parts]
    return np.concatenate(dots).astype(np.float64)


def _figures(scores: Sequence[Array], metric: str) -> dict[str, float]:
    positives, negatives = scores
    found = {
        "roc_auc": roc_auc(positives, negatives),
        "average_precision": average_precision(positives, negatives),
    }
    return found if metric in found else found | {metric: _hits(positives, negatives, metric)}


def _hits(positives: Array, negatives: Array, metric: str) -> float:
    kind, _, count = metric.partition("@")
    if kind != "hits" or not count.isdecimal():
        raise ArgumentError(f"metric must be roc_auc, average_precision or hits@K, got {shown(metric)}")
    return hits_at_k(positives, negatives, k=int(count))
