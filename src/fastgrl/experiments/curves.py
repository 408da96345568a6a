"""The figures' curves: accuracy against depth and ROC-AUC against rank, all of a curve from one pass."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from fastgrl.checks import Array
from fastgrl.datasets import LinkDataset, NodeDataset
from fastgrl.diffusion_links import LEAST_WITH_DEGREES, DiffusionModel
from fastgrl.graph import Graph
from fastgrl.jkn_features import Features, propagation
from fastgrl.jkn_sweeps import Grid, Sweep, Trial, sweep
from fastgrl.link_models import Settings, dot_products
from fastgrl.metrics import roc_auc
from fastgrl.node_evaluation import known_only
from fastgrl.node_inputs import known_classes
from fastgrl.node_models import NodeInputs, NodeSettings
from fastgrl.parallel import single_threaded_blas
from fastgrl.scorers import Scorer
from fastgrl.selection import HoldOut, fit_dot_scorer, hold_out, node_weights
from fastgrl.spaces import Space, build_space
from fastgrl.walks import factorise

Progress = Callable[[int, int], None]
Curve = dict[str, Any]
Vectors = tuple[Array, Array]


def depth_curve(
    dataset: NodeDataset,
    *,
    most: int,
    rank: int,
    design: str,
    window: int,
    negative: float,
    seed: int = 0,
    progress: Progress | None = None,
) -> Curve:
    """Test accuracy with features from 0 to L hops away, for L = 0, …, `most`; nothing is chosen.

    One pass over the hops gives the scores of every L (see `jkn_sweeps`).
    """
    ids, y = dataset.graph.node_ids, dataset.y
    known = known_classes(
        dataset.graph, known_only(y, dataset.train), validation=(ids[dataset.test], y[dataset.test])
    )
    assert known.validation is not None
    labels = np.array(known.targets.labels)
    labels[known.validation.nodes] = known.validation.labels
    inputs = NodeInputs(dataset.graph, dataset.X)
    asked = Sweep(
        inputs=inputs,
        targets=known.targets,
        settings=NodeSettings(design, seed=seed),
        trials=(Trial(known.targets.labelled, known.validation.nodes),),
        labels=labels,
        features=Features.of(dataset.X, inputs.num_nodes, seed=seed),
        S=propagation(dataset.graph, design),
    )
    depths = tuple(range(most + 1))
    with single_threaded_blas():
        found = sweep(asked, Grid(depths, (rank,), (window,), (negative,)), progress=progress)
    accuracies = {row["hops"]: row["accuracy"] for row in found}
    return {"over": "hops", "x": list(depths), "y": [accuracies[hops] for hops in depths]}


def rank_curve(
    dataset: LinkDataset,
    *,
    design: str,
    ranks: Sequence[int],
    apart: Sequence[int],
    window: int = 5,
    negative: float | None = None,
    seed: int = 0,
    progress: Progress | None = None,
) -> tuple[Curve, float]:
    """Test ROC-AUC of left_u · right_v with the first k columns of one fit, and the seconds of that fit.

    "separate" holds the same of fits of their own, with the ranks `apart`.
    """

    def fitted(rank: int) -> Callable[[int], Vectors]:
        with single_threaded_blas():
            if design == "log-diffusion":
                return _diffusion_vectors(dataset.graph, rank, seed)
            factors = factorise(dataset.graph, design, rank=rank, window=window, negative=negative, seed=seed)  # type: ignore[arg-type]
        return lambda k: (factors.left[:, :k], factors.right[:, :k])

    def report(done: int) -> None:
        if progress is not None:
            progress(done, 1 + len(apart))

    begin = time.perf_counter()
    whole = fitted(max(ranks))
    seconds = time.perf_counter() - begin
    report(1)
    curve = [_tested(whole(rank), dataset) for rank in ranks]
    separate = []
    for rank in apart:
        separate.append(_tested(fitted(rank)(rank), dataset))
        report(1 + len(separate))
    beside = {"x": list(apart), "y": separate}
    return {"over": "rank", "x": list(ranks), "y": curve, "separate": beside}, seconds


def _diffusion_vectors(graph: Graph, rank: int, seed: int) -> Callable[[int], Vectors]:
    """The vectors of every rank up to this one, from one space of the graph and one of a hold-out."""
    held, damping = hold_out(graph, seed=seed), Settings("log-diffusion", rank).damping
    assert held is not None
    spaces = [
        build_space(part, rank=_directions(rank), damping=damping, seed=seed) for part in (graph, held.train)
    ]

    def vectors(rank: int) -> Vectors:
        space, judged = (_first_columns(space, _directions(rank)) for space in spaces)
        scorer = _dot_scorer(judged, held)
        terms = node_weights(scorer) if rank >= LEAST_WITH_DEGREES else None
        model = DiffusionModel(space, scorer, damping, terms, rank)
        return model.left, model.right

    return vectors


def _dot_scorer(space: Space, held: HoldOut) -> Scorer:
    return fit_dot_scorer(space.features(held.pairs), held.truth)


def _directions(rank: int) -> int:
    """Columns that are left when two of them hold degrees."""
    return rank - 2 if rank >= LEAST_WITH_DEGREES else rank


def _first_columns(space: Space, rank: int) -> Space:
    return replace(
        space,
        left=space.left[:, :rank],
        right=space.right[:, :rank],
        singular_values=space.singular_values[:rank],
    )


def _tested(vectors: Vectors, dataset: LinkDataset) -> float:
    return roc_auc(*(dot_products(*vectors, pairs) for pairs in (dataset.test, dataset.test_negatives)))
