"""How well nodes are classified, in Python."""

from __future__ import annotations

import dataclasses
import json
import sys

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linear_sum_assignment
from scipy.sparse.linalg import eigsh
from sklearn.base import BaseEstimator
from sklearn.cluster import KMeans

import fastgrl as fg
from fastgrl.baselines import gcn
from fastgrl.datasets import block_model, load_dataset
from fastgrl.datasets.synthetic import overlapping_blocks
from fastgrl.errors import ArgumentError, MissingExtraError, ShapeError
from fastgrl.metrics import accuracy
from fastgrl.node_evaluation import evaluate_nodes, known_only, random_node_split
from fastgrl.summaries import plain

PROMISED = {
    *("task", "dataset", "design", "seed", "validation", "test", "chosen", "near_best", "seconds"),
    *("peak_memory_bytes", "notices"),
}
relaxed = settings(max_examples=60, deadline=None)


class Spread(BaseEstimator):
    """Labels handed on to neighbours, three times: nothing to choose, and quick. Keeps what it was given."""

    design = "spread"
    validation_, chosen_, near_best_, notices_ = {}, {"steps": 3}, (), ("odd",)

    def __init__(self, *, random_state=0):
        self.random_state = random_state

    def fit(self, graph, y, *, features=None, validation=None, progress=None):
        self.graph_, self.y_, self.features_, self.held_ = graph, y, features, validation
        known = (y if y.ndim == 1 else y[:, 0]) >= 0
        H = np.where(known[:, None], np.eye(y.max() + 1)[y] if y.ndim == 1 else y, 0.0)
        noise = np.random.default_rng(self.random_state).random(H.shape)
        for _ in range(3):
            H = H + graph.to_scipy() @ H
        self.scores_ = H / np.maximum(H.sum(1, keepdims=True), 1) + 0.1 * noise
        self.seconds_ = {"select": 0.0, "fit": 0.01}
        if progress is not None:
            progress(3, 3)
        return self

    def predict(self, nodes=None):
        scores = self.scores_[self.graph_.index_of(nodes)]
        return scores.argmax(1) if self.y_.ndim == 1 else (scores > 0.4).astype(int)


@pytest.fixture(scope="module")
def small():
    return block_model(400, num_classes=3, validation_per_class=20, train_per_class=10, seed=1)


# Splits.

labels = st.lists(st.integers(-1, 3), min_size=12, max_size=200).map(np.array)


@relaxed
@given(labels, st.integers(0, 2**64 - 1), st.integers(1, 5), st.integers(1, 30), st.integers(1, 30))
def test_a_random_split_is_of_labelled_nodes_apart_and_of_every_class(y, seed, per_class, validation, test):
    y[:8] = np.arange(8) % 4
    parts = random_node_split(y, seed=seed, per_class=per_class, validation=validation, test=test)
    together = np.concatenate(parts)
    assert len(set(together)) == len(together)
    assert (y[together] >= 0).all()
    assert all((np.diff(part) > 0).all() for part in parts)
    assert all(len(part) >= 1 for part in parts)
    assert [len(parts[1]) <= validation, len(parts[2]) <= test] == [True, True]
    counts, sizes = (np.bincount(labels, minlength=4) for labels in (y[parts[0]], y[y >= 0]))
    assert (counts >= 1).all()
    assert (counts <= np.minimum(per_class, -(-sizes // 2))).all()


@relaxed
@given(st.integers(2, 6), st.integers(1, 9), st.integers(1, 60), st.integers(1, 60), st.integers(0, 50))
def test_a_split_that_the_nodes_suffice_for_has_the_sizes_asked_for(
    classes, per_class, validation, test, seed
):
    y = np.arange(2 * classes * per_class + validation + test) % classes
    train, held, tested = random_node_split(
        y, seed=seed, per_class=per_class, validation=validation, test=test
    )
    assert (np.bincount(y[train]) == per_class).all()
    assert (len(held), len(tested)) == (validation, test)


def test_too_few_nodes_are_shared_out_in_proportion():
    assert [len(part) for part in random_node_split(np.arange(810) % 3)] == [60, 250, 500]
    assert [len(part) for part in random_node_split(np.arange(45) % 3)] == [24, 7, 14]


def test_each_label_of_many_has_its_nodes_to_learn_from():
    y = overlapping_blocks(5000, num_labels=6, labels_per_node=2, seed=3).y
    y[:1000] = -1
    parts = random_node_split(y, seed=2)
    assert [len(part) for part in parts] == [120, 500, 1000]
    assert (y[parts[0]].sum(0) >= 20).all()
    assert min(part.min() for part in parts) >= 1000


def test_names_of_classes_may_be_text():
    names = np.array(["", "ann", "bob"])[np.arange(6000) % 3]
    train, held, tested = random_node_split(names)
    assert (len(train), len(held), len(tested)) == (40, 500, 1000)
    assert "" not in names[np.concatenate([train, held, tested])]
    assert set(known_only(names, train)) == {"", "ann", "bob"}


def test_the_same_seed_draws_the_same_split_and_another_another():
    y = load_dataset("cora").y
    a, b, c = (random_node_split(y, seed=seed)[0] for seed in (0, 0, 1))
    assert (a == b).all()
    assert (a != c).any()
    assert [len(part) for part in random_node_split(y)] == [140, 500, 1000]


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"per_class": 0}, "per_class"),
        ({"validation": 0}, "validation"),
        ({"test": 1.5}, "test"),
        ({"seed": -1}, "seed"),
        ({"y": np.full(30, -1)}, "0 labelled nodes of 0 classes"),
        ({"y": np.array([0, 1, -1])}, "2 labelled nodes of 2 classes"),
    ],
)
def test_a_split_that_cannot_be_is_refused(wrong, words):
    with pytest.raises(ArgumentError, match=words):
        random_node_split(**{"y": np.arange(100) % 4} | wrong)


def test_labels_have_one_dimension_or_two():
    with pytest.raises(ShapeError, match="1-D"):
        random_node_split(np.zeros((4, 2, 2)))


# Evaluations.


@pytest.mark.parametrize("random_split", [False, True])
def test_an_evaluation_has_the_promised_figures(random_split, small):
    found = evaluate_nodes(small, Spread(), seed=3, random_split=random_split)
    assert found.keys() >= PROMISED
    assert (found["task"], found["dataset"], found["design"], found["seed"]) == (
        *("nodes", "block-model", "spread", 3),
    )
    assert found["split"] == ("random" if random_split else "official")
    assert found["test"].keys() == {"accuracy", "macro_f1"}
    assert found["seconds"].keys() == {"select", "fit", "score"}
    assert found["validation"] == {"accuracy": None}
    assert found["notices"] == ["odd"]
    assert 0.6 < found["test"]["accuracy"] <= 1
    assert json.loads(json.dumps(plain(found), allow_nan=False)) == found


def test_no_label_of_validation_or_test_is_learnt_from(small, monkeypatch):
    seen = []
    fit = Spread.fit
    monkeypatch.setattr(Spread, "fit", lambda self, *a, **k: seen.append((a, k)) or fit(self, *a, **k))
    before = small.y.copy()
    evaluate_nodes(small, Spread())
    (((graph, y), more),) = seen
    assert graph is small.graph
    assert (np.flatnonzero(y >= 0) == small.train).all()
    assert (y[small.train] == small.y[small.train]).all()
    ids, held = more["validation"]
    assert (graph.index_of(ids) == small.validation).all()
    assert (held == small.y[small.validation]).all()
    assert more["features"] is small.X
    assert (small.y == before).all()


def test_what_the_test_says_cannot_change_what_is_predicted(small):
    other = small.y.copy()
    other[small.test] = (other[small.test] + 1) % 3
    right = evaluate_nodes(small, Spread())["test"]["accuracy"]
    wrong = evaluate_nodes(dataclasses.replace(small, y=other), Spread())["test"]["accuracy"]
    assert right + wrong <= 1


@pytest.mark.parametrize("random_split", [False, True])
def test_repeats_are_runs_of_consecutive_seeds_their_mean_and_the_worst(random_split, small):
    found = evaluate_nodes(small, Spread(), seed=3, repeat=3, random_split=random_split)
    runs = found["repeats"]
    assert [run["seed"] for run in runs] == [3, 4, 5]
    values = [run["test"]["accuracy"] for run in runs]
    assert found["test"]["accuracy"] == pytest.approx(np.mean(values))
    assert found["test"]["accuracy_std"] == pytest.approx(np.std(values, ddof=1))
    assert found["test"]["accuracy_worst"] == min(values)
    assert len(set(values)) > 1
    assert evaluate_nodes(small, Spread(), seed=4, random_split=random_split)["test"] == runs[1]["test"]
    assert found["notices"] == ["odd"]


def test_nodes_with_several_labels_are_measured_by_f1():
    data = overlapping_blocks(500, num_labels=4, labels_per_node=1.4, validation_per_label=20, seed=1)
    found = evaluate_nodes(data, Spread(), repeat=2, random_split=True)
    assert set(found["test"]) == {
        f"{kind}_f1{end}" for kind in ("micro", "macro") for end in ("", "_std", "_worst")
    }
    assert 0.3 < found["test"]["micro_f1"] < 1


def test_the_estimator_given_is_left_as_it_was(small):
    model = Spread(random_state=7)
    evaluate_nodes(small, model, seed=1)
    assert model.random_state == 7
    assert not hasattr(model, "scores_")


def test_progress_runs_through_all_repeats(small):
    told = []
    evaluate_nodes(small, Spread(), repeat=2, progress=lambda done, total: told.append((done, total)))
    assert told == [(3, 6), (6, 6)]


@pytest.mark.parametrize("columns", [None, 0])
def test_without_features_or_validation_nodes_none_are_given(columns, small, monkeypatch):
    X = None if columns is None else small.X[:, :columns]
    bare = dataclasses.replace(small, X=X, validation=np.array([], int))
    seen = {}
    fit = Spread.fit
    monkeypatch.setattr(Spread, "fit", lambda self, *a, **k: seen.update(k) or fit(self, *a, **k))
    evaluate_nodes(bare, Spread())
    assert (seen["features"], seen["validation"]) == (None, None)


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"repeat": 0}, "repeat"),
        ({"seed": 2**64 - 1, "repeat": 2}, "largest seed"),
        ({"seed": -1}, "seed"),
        ({"baselines": ["gat"]}, "'gat'"),
        ({"baselines": "gat"}, "'gat'"),
    ],
)
def test_wrong_arguments_are_named(wrong, words, small):
    with pytest.raises(ArgumentError, match=words):
        evaluate_nodes(small, Spread(), **wrong)


@pytest.mark.parametrize("part", ["train", "test"])
def test_a_dataset_without_nodes_to_learn_from_or_to_test_is_refused(part, small):
    with pytest.raises(ArgumentError, match=f"no {part} nodes"):
        evaluate_nodes(dataclasses.replace(small, **{part: np.array([], int)}), Spread())


def test_a_missing_extra_is_told_of_before_anything_is_fitted(small, monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    gcn.packages.cache_clear()
    monkeypatch.setattr(Spread, "fit", lambda *_, **__: pytest.fail("it was fitted"))
    with pytest.raises(MissingExtraError, match=r"fastgrl\[baselines\]"):
        evaluate_nodes(small, Spread(), baselines=["gcn"])


# The classifier itself, on real data.


def test_cora_is_classified_as_well_as_was_measured():
    found = evaluate_nodes(load_dataset("cora"), fg.NodeClassifier(select=False))
    assert found["design"] == "co-ridge"
    assert found["test_nodes"] == 1000
    assert found["test"]["accuracy"] > 0.83


def test_several_labels_are_found_as_they_were_drawn():
    data = overlapping_blocks(1500, num_labels=4, labels_per_node=1.4, mixing=0.1, seed=1)
    found = evaluate_nodes(data, fg.NodeClassifier())["test"]
    assert min(found["micro_f1"], found["macro_f1"]) > 0.7


# Structure alone: a degree-corrected block model against an oracle that knows its kind.


def spectral_rows(graph, count):
    """Leading eigenvectors of (D + τ)^-½ A (D + τ)^-½, τ the mean degree, with rows of unit length."""
    A = graph.to_scipy().astype(float)
    scale = sp.diags_array(1 / np.sqrt(graph.degrees + graph.degrees.mean()))
    U = eigsh(scale @ A @ scale, k=count, which="LA", v0=np.ones(graph.num_nodes))[1]
    return U / np.maximum(np.linalg.norm(U, axis=1, keepdims=True), 1e-12)


def clustered(U, y, classes):
    """k-means, each cluster named by the truth about all nodes: no labels could do better with it."""
    groups = KMeans(classes, n_init=10, random_state=0).fit_predict(U)
    counts = np.zeros((classes, classes))
    np.add.at(counts, (groups, y), 1)
    return linear_sum_assignment(-counts)[1][groups]


def regressed(U, y, train, classes):
    """A ridge regression on the same vectors from the labels that everyone gets."""
    Z, Y = U - U[train].mean(0), np.eye(classes)[y[train]]
    W = np.linalg.solve(Z[train].T @ Z[train] + 0.01 * len(train) * np.eye(classes), Z[train].T @ Y)
    return (Z @ W + Y.mean(0)).argmax(1)


@pytest.mark.parametrize(
    "model",
    [
        {"num_classes": 4, "mean_degree": 10, "mixing": 0.3},
        {"num_classes": 4, "mean_degree": 10, "mixing": 0.4},
        {"num_classes": 5, "mean_degree": 12, "mixing": 0.4, "degree_exponent": 3.0},
    ],
)
def test_structure_alone_is_within_two_points_of_a_spectral_oracle(model):
    ours, oracles = [], []
    for seed in range(3):
        data = block_model(1500, num_features=5, words_per_node=0, **model, seed=seed)
        bare, classes = dataclasses.replace(data, X=data.X[:, :0]), model["num_classes"]
        ours.append(evaluate_nodes(bare, fg.NodeClassifier())["test"]["accuracy"])
        U = spectral_rows(data.graph, classes)
        guesses = clustered(U, data.y, classes), regressed(U, data.y, data.train, classes)
        oracles.append([accuracy(data.y[data.test], guess[data.test]) for guess in guesses])
    assert np.mean(ours) > np.mean(oracles, axis=0).max() - 0.02
