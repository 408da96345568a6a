"""How well nodes are classified: split, fit, test, over as many seeds and splits as asked for."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import clone

from fastgrl.baselines import gcn
from fastgrl.checks import Array, integer, shown
from fastgrl.datasets import NodeDataset
from fastgrl.errors import ArgumentError, ShapeError
from fastgrl.fsvd import LARGEST_SEED
from fastgrl.metrics import accuracy, f1
from fastgrl.node_classification import NodeClassifier
from fastgrl.parallel import thread_count
from fastgrl.summaries import Progress, peak_memory, plain, share, together

PER_CLASS, VALIDATION, TEST = 20, 500, 1000


def evaluate_nodes(
    dataset: NodeDataset,
    estimator: NodeClassifier | None = None,
    *,
    seed: int = 0,
    repeat: int = 1,
    random_split: bool = False,
    leave_one_out: bool = False,
    baselines: Sequence[str] = (),
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Fit a node classifier and test it; a dictionary of plain numbers, lists and text.

    The labels of the training nodes are learnt from, those of the validation nodes choose the settings, and
    accuracy and macro F1 are of the test nodes (micro and macro F1 where `y` is 2-D). `seed` replaces the
    estimator's own; with `repeat` the figures are means over seeds `seed`, `seed + 1`, …, with the standard
    deviation and the worst beside them and every run under "repeats". `random_split` draws the nodes anew
    with each seed (see `random_node_split`), `leave_one_out` chooses settings without the validation nodes.
    `baselines=("gcn",)` trains a GCN on the same splits, with the same seeds, and puts its figures under
    "beside"; that needs the extra [baselines].

    >>> data = fg.datasets.block_model(300, num_classes=3, validation_per_class=20)
    >>> found = evaluate_nodes(data, fg.NodeClassifier(select=False))
    >>> found["task"], found["split"], found["test"]["accuracy"] > 0.8
    ('nodes', 'official', True)
    """
    repeat = integer("repeat", repeat, least=1)
    if integer("seed", seed, least=0) + repeat - 1 > LARGEST_SEED:
        raise ArgumentError(f"seed {seed} with repeat {repeat} goes beyond the largest seed, {LARGEST_SEED}")
    methods = {name: _baseline(name) for name in ([baselines] if isinstance(baselines, str) else baselines)}
    model, asked = NodeClassifier() if estimator is None else estimator, dataset
    runs: list[dict[str, Any]] = []
    beside: dict[str, list[dict[str, Any]]] = {name: [] for name in methods}
    for number in range(seed, seed + repeat):
        dataset = _drawn(asked, number) if random_split else _whole(asked)
        model = clone(model).set_params(random_state=number)
        bar = None if progress is None else share(progress, number - seed, repeat)
        found = _run(model, dataset, leave_one_out=leave_one_out, progress=bar)
        runs.append({"seed": number} | found)
        for name, method in methods.items():
            beside[name].append(method(dataset, number))
    return {
        "task": "nodes",
        "dataset": dataset.name,
        "split": "random" if random_split else "official",
        **_sizes(dataset),
        "design": model.design,
        **_as_one(runs),
        **({"beside": {name: _as_one(found) for name, found in beside.items()}} if beside else {}),
        "peak_memory_bytes": peak_memory(),
    }


def random_node_split(
    y: ArrayLike,
    *,
    seed: int = 0,
    per_class: int = PER_CLASS,
    validation: int = VALIDATION,
    test: int = TEST,
) -> tuple[Array, Array, Array]:
    """Draw nodes to learn from, to choose by and to test on: three increasing arrays of node numbers.

    Nodes without a label (−1, or an empty text) are left out. Every class gives `per_class` nodes to learn
    from, but no more than half of its nodes, rounded up; of the rest `validation` and `test` are drawn at
    random, or where they are fewer, shared out in that proportion. In a 2-D `y` a class's nodes are those
    that have a 1 in its column: each gives `per_class` that no class before it has given.

    >>> parts = random_node_split(np.arange(9000) % 3, seed=1)
    >>> [len(part) for part in parts]
    [60, 500, 1000]
    >>> [len(part) for part in random_node_split(np.arange(90) % 3)]
    [45, 15, 30]
    """
    wanted = [
        integer("per_class", per_class, least=1),
        integer("validation", validation, least=1),
        integer("test", test, least=1),
    ]
    rng = np.random.Generator(np.random.Philox(integer("seed", seed, least=0, most=LARGEST_SEED)))
    labelled, holders = _labelled(np.asarray(y))
    each, choosing, testing = wanted
    train = _some_of_each(rng.permutation(labelled), holders, each)
    rest = rng.permutation(np.setdiff1d(labelled, train))
    if len(rest) < 2:
        raise ArgumentError(
            f"y has {len(labelled)} labelled nodes of {len(holders)} classes: "
            "too few to learn from, to choose by and to test on; label more"
        )
    if choosing + testing > len(rest):
        choosing = max(1, len(rest) * wanted[1] // (wanted[1] + wanted[2]))
    return train, np.sort(rest[:choosing]), np.sort(rest[choosing : choosing + testing])


def _labelled(y: Array) -> tuple[Array, list[Array]]:
    """Nodes with a label, and for each class whether a node has it."""
    if y.ndim not in (1, 2):
        raise ShapeError(f"y must be 1-D labels or 2-D 0/1, got shape {y.shape}")
    if y.ndim == 2:
        return np.flatnonzero((y >= 0).all(1)), list(y.T == 1)
    known = y != _unlabelled(y)
    return np.flatnonzero(known), [y == label for label in np.unique(y[known])]


def _unlabelled(y: Array) -> Any:
    return "" if y.dtype.kind in "UO" else -1


def _some_of_each(order: Array, holders: list[Array], count: int) -> Array:
    """The first `count` of every class in this order, but no more than half of the class."""
    taken = np.zeros(int(order.max(initial=-1)) + 1, bool)
    for held in holders:
        free = order[held[order] & ~taken[order]]
        taken[free[: min(count, -(-len(free) // 2))]] = True
    return np.flatnonzero(taken)


def _whole(dataset: NodeDataset) -> NodeDataset:
    for part in ("train", "test"):
        if not len(getattr(dataset, part)):
            raise ArgumentError(f"{shown(dataset.name)} has no {part} nodes; ask for a random split")
    return dataset


def _drawn(dataset: NodeDataset, seed: int) -> NodeDataset:
    train, validation, test = random_node_split(dataset.y, seed=seed)
    return dataclasses.replace(dataset, train=train, validation=validation, test=test)


def _sizes(dataset: NodeDataset) -> dict[str, int]:
    return {
        "nodes": dataset.graph.num_nodes,
        "edges": dataset.graph.num_edges,
        "train_nodes": len(dataset.train),
        "validation_nodes": len(dataset.validation),
        "test_nodes": len(dataset.test),
    }


def _run(
    model: NodeClassifier, dataset: NodeDataset, *, leave_one_out: bool, progress: Progress | None
) -> dict[str, Any]:
    ids, y, held = dataset.graph.node_ids, dataset.y, dataset.validation
    model.fit(
        dataset.graph,
        known_only(y, dataset.train),
        features=dataset.X if dataset.X is not None and dataset.X.shape[1] else None,
        validation=(ids[held], y[held]) if len(held) and not leave_one_out else None,
        progress=progress,
    )
    begin = time.perf_counter()
    predicted = model.predict(ids[dataset.test])
    seconds = {"select": 0.0, **model.seconds_, "score": time.perf_counter() - begin}
    return {
        "validation": {"accuracy": None} | plain(model.validation_),
        "test": _figures(y[dataset.test], predicted),
        "chosen": plain(model.chosen_),
        "near_best": plain(model.near_best_),
        "seconds": {name: round(value, 3) for name, value in seconds.items()},
        "notices": list(model.notices_),
    }


def known_only(y: Array, nodes: Array) -> Array:
    """`y` with the labels of all but these nodes taken away.

    >>> known_only(np.array([2, 0, 1]), np.array([1]))
    array([-1,  0, -1])
    """
    signed = y.astype(np.int64) if y.dtype.kind in "bu" else y
    hidden = np.full_like(signed, _unlabelled(y))
    hidden[nodes] = signed[nodes]
    return hidden


def _figures(truth: Array, predicted: Array) -> dict[str, float]:
    if truth.ndim == 2:
        return {f"{kind}_f1": f1(truth, predicted, average=kind) for kind in ("micro", "macro")}
    return {"accuracy": accuracy(truth, predicted), "macro_f1": f1(truth, predicted)}


def _as_one(runs: list[dict[str, Any]]) -> dict[str, Any]:
    if len(runs) == 1:
        return runs[0]
    found = together(runs)
    found["test"] |= {f"{name}_worst": min(run["test"][name] for run in runs) for name in runs[0]["test"]}
    return found


def _gcn(dataset: NodeDataset, seed: int) -> dict[str, Any]:
    # The published rule stops a network for several labels at its first plateau, where it predicts none.
    patience = 10 if dataset.y.ndim == 1 else None
    found = gcn.run(dataset, seed=seed, patience=patience, threads=thread_count())
    assert found.predictions is not None  # of links alone
    return {
        "seed": seed,
        "validation": {"accuracy": found.validation},
        "test": _figures(dataset.y[dataset.test], found.predictions[dataset.test]),
        "seconds": {name: round(value, 3) for name, value in found.seconds.items()},
        "epochs": found.epochs,
        "notices": [],
    }


_BASELINES: dict[str, Callable[[NodeDataset, int], dict[str, Any]]] = {"gcn": _gcn}


def _baseline(name: str) -> Callable[[NodeDataset, int], dict[str, Any]]:
    if name not in _BASELINES:
        raise ArgumentError(f"baselines may hold {', '.join(_BASELINES)}, got {shown(name)}")
    gcn.packages()  # a missing extra is told of before anything is fitted
    return _BASELINES[name]
