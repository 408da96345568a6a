from __future__ import annotations

import dataclasses
import json
import sys

import numpy as np
import pytest
import scipy.sparse as sp

from fastgrl.baselines import gcn, node_problems
from fastgrl.datasets import block_model, load_dataset
from fastgrl.datasets.synthetic import overlapping_blocks
from fastgrl.errors import ArgumentError, MissingExtraError
from fastgrl.graph import Graph
from fastgrl.metrics import accuracy, f1
from fastgrl.node_classification import NodeClassifier
from fastgrl.node_evaluation import evaluate_nodes, random_node_split
from fastgrl.parallel import use_threads
from fastgrl.summaries import plain


def test_a_missing_package_is_told_of_by_the_extra_that_brings_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    gcn.packages.cache_clear()
    with pytest.raises(MissingExtraError, match=r"fastgrl\[baselines\]"):
        gcn.run(block_model(50))


# The import warns of torch's own deprecations; importorskip ignores warnings while it lasts.
pyg = pytest.importorskip("torch_geometric.nn", reason="PyTorch Geometric is not installed")
torch = pytest.importorskip("torch", reason="PyTorch is not installed")


@pytest.fixture(scope="module")
def small():
    return block_model(300, num_classes=3, validation_per_class=20, seed=1)


def test_cora_is_classified_as_published():
    cora = load_dataset("cora")
    found = gcn.run(cora, threads=1)
    assert 0.80 <= accuracy(cora.y[cora.test], found.predictions[cora.test]) <= 0.83
    assert found.validation == accuracy(cora.y[cora.validation], found.predictions[cora.validation])
    assert 0.76 <= found.validation <= 0.82
    assert found.scores.shape == (2708, 7)
    assert 0 < found.seconds["train"] < found.seconds["total"]
    assert 10 < found.epochs <= 200
    assert found.settings == {
        "seed": 0,
        "epochs": 200,
        "hidden": 16,
        "dropout": 0.5,
        "weight_decay": 5e-4,
        "learning_rate": 0.01,
        "patience": 10,
    }


def test_a_layer_on_sparse_features_is_pygs_on_dense_ones(small):
    """Scores and gradients, of a weighted graph with loops and without neighbours for some."""
    rng = np.random.default_rng(0)
    graph = Graph.from_codes(*rng.integers(0, 250, (2, 900)), weights=rng.random(900) + 0.1, num_nodes=300)
    problem = gcn.prepare(dataclasses.replace(small, graph=graph))
    network = gcn._Network.of(problem, 8, 0.5, 5e-4)
    A = graph.to_scipy().tocoo()
    edges = torch.from_numpy(np.stack(A.coords).astype(np.int64))
    weights = torch.from_numpy(A.data.astype(np.float32))
    X = torch.from_numpy(node_problems.rows_to_sum_one(small.X).toarray())
    first, second = pyg.GCNConv(500, 8, bias=False), pyg.GCNConv(8, 3, bias=False)
    with torch.no_grad():
        first.lin.weight.copy_(network.weights.T)
        second.lin.weight.copy_(network.second.lin.weight)
    expected = second(torch.relu(first(X, edges, weights)), edges, weights)
    found = network.scores()
    assert torch.allclose(found, expected, atol=1e-6)
    for scores in (found, expected):
        torch.nn.functional.cross_entropy(scores, problem.targets).backward()
    assert torch.allclose(network.weights.grad, first.lin.weight.grad.T, atol=1e-7)
    assert torch.allclose(network.second.lin.weight.grad, second.lin.weight.grad, atol=1e-6)


def test_dropout_keeps_the_features_on_average_and_their_transpose_the_same(small, monkeypatch):
    features, seen = gcn.prepare(small).features, []
    monkeypatch.setattr(node_problems, "product", lambda *matrices: seen.append(matrices[:2]))
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        for _ in range(300):
            features.times(None, 0.25)
    X, T = seen[0]
    assert torch.equal(X.to_dense(), T.to_dense().T)
    values = torch.stack([X.values() for X, _ in seen])
    assert abs(float((values == 0).float().mean()) - 0.25) < 0.01
    assert torch.allclose(values.mean(0), features.matrix.values(), rtol=0.2)


def test_the_same_seed_gives_the_same_bits_and_leaves_torch_as_it_was(small):
    torch.manual_seed(5)
    state, threads = torch.random.get_rng_state(), torch.get_num_threads()
    a, b, c = (gcn.run(small, seed=seed, epochs=20, threads=1) for seed in (1, 1, 2))
    assert (a.scores == b.scores).all()
    assert (a.scores != c.scores).any()
    assert torch.equal(torch.random.get_rng_state(), state)
    assert torch.get_num_threads() == threads


def test_a_dataset_prepared_once_gives_what_the_dataset_gives(small):
    one, other = (gcn.run(data, epochs=15, threads=1) for data in (small, gcn.prepare(small)))
    assert (one.scores == other.scores).all()


def test_training_stops_when_the_validation_loss_rises_above_its_recent_mean():
    assert not gcn._got_worse([3.0, 2.0, 1.0], 2)
    assert not gcn._got_worse([9.0, 1.0, 2.0], 2)
    assert gcn._got_worse([9.0, 3.0, 1.0, 2.5], 2)
    assert not gcn._got_worse([9.0, 3.0, 1.0, 2.0], 2)


def test_without_patience_or_validation_nodes_all_epochs_are_run(small):
    hasty = gcn.run(small, learning_rate=1.0, patience=2, epochs=60, threads=1)
    assert hasty.epochs < 60
    assert gcn.run(small, learning_rate=1.0, patience=None, epochs=60, threads=1).epochs == 60
    none = dataclasses.replace(small, validation=np.array([], int))
    found = gcn.run(none, learning_rate=1.0, patience=2, epochs=60, threads=1)
    assert (found.epochs, found.validation) == (60, None)


def test_test_labels_are_never_used(small):
    hidden = small.y.copy()
    hidden[small.test] = -1
    one, other = (gcn.run(dataclasses.replace(small, y=y), epochs=15, threads=1) for y in (small.y, hidden))
    assert (one.scores == other.scores).all()


def test_classes_may_be_any_numbers_and_features_dense(small):
    other = dataclasses.replace(small, y=10 * small.y + 7, X=small.X.toarray())
    found, expected = gcn.run(other, threads=1), gcn.run(small, threads=1)
    assert (found.predictions == 10 * expected.predictions + 7).all()
    assert accuracy(small.y[small.test], expected.predictions[small.test]) > 0.8


@pytest.mark.parametrize("X", [None, sp.csr_array((300, 0), dtype=np.float32)])
def test_without_features_the_nodes_themselves_are_features(X, small):
    found = gcn.run(dataclasses.replace(small, X=X), patience=None, threads=1)
    assert accuracy(small.y[small.test], found.predictions[small.test]) > 0.6


def test_nodes_without_words_are_classified_too(small):
    words = sp.csr_array(small.X.toarray() * (np.arange(300) % 5 > 0)[:, None])
    found = gcn.run(dataclasses.replace(small, X=words), epochs=30, threads=1)
    assert np.isfinite(found.scores).all()


def test_several_labels_at_once():
    data = overlapping_blocks(600, num_labels=4, labels_per_node=1.3, validation_per_label=30, seed=2)
    found = gcn.run(data, threads=1, patience=None)
    assert found.predictions.shape == (600, 4)
    assert f1(data.y[data.test], found.predictions[data.test], average="micro") > 0.5


def test_progress_is_told_after_every_epoch(small):
    told = []
    gcn.run(small, epochs=3, progress=lambda done, total: told.append((done, total)), threads=1)
    assert told == [(1, 3), (2, 3), (3, 3)]


@pytest.mark.parametrize(
    "wrong",
    [
        {"seed": -1},
        {"epochs": 0},
        {"hidden": 0},
        {"dropout": 1.0},
        {"weight_decay": -1},
        {"learning_rate": float("nan")},
        {"patience": 0},
        {"threads": 0},
    ],
)
def test_wrong_arguments_are_named(wrong, small):
    with pytest.raises(ArgumentError, match=next(iter(wrong))):
        gcn.run(small, **wrong)


def test_directed_graphs_and_datasets_without_training_nodes_are_refused(small):
    codes = small.graph.edge_codes().T
    directed = dataclasses.replace(small, graph=Graph.from_codes(*codes, num_nodes=300, directed=True))
    with pytest.raises(ArgumentError, match="undirected"):
        gcn.run(directed)
    with pytest.raises(ArgumentError, match="no training nodes"):
        gcn.run(dataclasses.replace(small, train=np.array([], int)))


def test_a_gcn_stands_beside_on_the_same_splits():
    small = block_model(300, num_classes=3, validation_per_class=20)
    ours = NodeClassifier(select=False)
    with use_threads(1):
        found = evaluate_nodes(small, ours, seed=2, repeat=2, random_split=True, baselines=("gcn",))
    beside = found["beside"]["gcn"]
    assert [run["seed"] for run in beside["repeats"]] == [2, 3]
    assert beside["test"].keys() == found["test"].keys()
    drawn = dict(zip(("train", "validation", "test"), random_node_split(small.y, seed=3), strict=True))
    again = gcn.run(dataclasses.replace(small, **drawn), seed=3, threads=1)
    assert beside["repeats"][1]["validation"]["accuracy"] == again.validation
    assert json.loads(json.dumps(plain(found), allow_nan=False)) == found
