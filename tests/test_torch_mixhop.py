from __future__ import annotations

import dataclasses
import sys

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.metrics import roc_auc_score

from fastgrl.baselines import mixhop, node_problems
from fastgrl.datasets import block_model, load_dataset
from fastgrl.datasets.synthetic import overlapping_blocks
from fastgrl.errors import ArgumentError, MissingExtraError
from fastgrl.graph import Graph
from fastgrl.metrics import accuracy

# The import warns of torch's own deprecations; importorskip ignores warnings while it lasts.
pyg = pytest.importorskip("torch_geometric.nn", reason="PyTorch Geometric is not installed")
torch = pytest.importorskip("torch", reason="PyTorch is not installed")

QUICK = {"epochs": 15, "threads": 1}


@pytest.fixture(scope="module")
def small():
    return block_model(300, num_classes=3, validation_per_class=20, seed=1)


def network_of(data, **others):
    settings = {"hidden": [5, 5, 5], "groups": [1, 1, 1], "input_dropout": 0.0, "dropout": 0.0} | others
    problem = dataclasses.replace(node_problems.prepare(data), features=mixhop._words(data))
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return mixhop._Network.of(problem, settings)


def scattered(data):
    """A weighted graph with loops, far-away parts, and no neighbours for some."""
    rng = np.random.default_rng(0)
    codes, weights = rng.integers(0, 250, (2, 260)), rng.random(260) + 0.1
    return dataclasses.replace(data, graph=Graph.from_codes(*codes, weights=weights, num_nodes=300))


def pygs_own(layer, counts):
    """PyG's layer with weights in the places that it has for them, all powers alike."""
    own = pyg.MixHopConv(len(layer.weights), counts[0], list(range(len(counts))), bias=False)
    with torch.no_grad():
        for lin, part in zip(own.lins, layer.weights.split(counts, 1), strict=True):
            lin.weight.copy_(part.T)
    return own


@pytest.mark.parametrize("change", [lambda data: data, scattered])
def test_scores_and_gradients_are_those_of_pygs_layers_on_dense_features(small, change):
    data = change(small)
    network = network_of(data)
    A = data.graph.to_scipy().tocoo()
    edges = torch.from_numpy(np.stack(A.coords).astype(np.int64)), torch.from_numpy(A.data.astype(np.float32))
    words = (data.X.toarray() != 0).astype(np.float32)
    X = torch.from_numpy(words / np.maximum(np.sqrt(words.sum(1, keepdims=True)), 1))
    first, second = pygs_own(network.first, [5, 5, 5]), pygs_own(network.second, [3, 3, 3])
    H = first(X, *edges)
    H = torch.relu((H - H.mean(0)) / (H.var(0, unbiased=False) + 1e-3).sqrt())
    expected = torch.stack(second(H, *edges).split(3, 1)).mean(0)
    found = network.scores()
    assert torch.allclose(found, expected, atol=1e-5)
    for scores in (found, expected):
        torch.nn.functional.cross_entropy(scores, network.problem.targets).backward()
    for layer, own in ((network.first, first), (network.second, second)):
        gradient = torch.cat([lin.weight.grad.T for lin in own.lins], 1)
        assert torch.allclose(layer.weights.grad, gradient, atol=1e-6)


def test_powers_have_as_many_columns_as_they_are_given(small):
    layer = mixhop._Layer.of(4, [3, 0, 2])
    A = node_problems.prepare(small).adjacency
    H = torch.randn(300, 4)
    A_dense, (W0, W2) = A.to_dense(), layer.weights.split([3, 2], 1)
    expected = torch.cat([H @ W0, A_dense @ (A_dense @ (H @ W2))], 1)
    assert torch.allclose(layer(H @ layer.weights, A), expected, atol=1e-5)


def test_groups_are_summed_by_the_shares_learnt(small):
    network = network_of(small, groups=[0, 2, 1])
    with torch.no_grad():
        network.shares.copy_(torch.tensor([0.0, 40.0, 0.0]))
        chosen = network.scores()
        network.second.weights[:, 3:6] += 1
        assert (chosen != network.scores()).any()
        chosen = network.scores()
        network.second.weights[:, :3] += 1
        network.second.weights[:, 6:] += 1
        assert torch.equal(chosen, network.scores())


def test_rows_have_length_one_whatever_is_dropped(small):
    features = mixhop._words(small)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        X, T = (matrix.to_dense() for matrix in mixhop._dropped_features(features, 0.9))
    assert torch.equal(X, T.T)
    lengths = X.norm(dim=1)
    assert torch.allclose(lengths[lengths > 0], torch.ones(()), atol=1e-5)
    assert 0.05 < float((X != 0).sum() / (features.matrix.to_dense() != 0).sum()) < 0.15
    whole = features.matrix.to_dense().norm(dim=1)
    assert torch.allclose(whole[whole > 0], torch.ones(()), atol=1e-5)


def test_the_rate_falls_as_often_as_asked_and_never_below_0(small):
    settings = {"learning_rate": 2.0, "weight_decay": 0.1, "decline": 0.4, "decline_every": 2}
    sgd, rates = mixhop._optimiser(network_of(small), settings), []
    for _ in range(9):
        rates.append(sgd.param_groups[-1]["lr"])
        sgd.step()
    assert np.allclose(rates, [2.0, 2.0, 2.0, 1.2, 1.2, 0.4, 0.4, 0.0, 0.0])


def test_the_descent_is_on_the_squares_of_the_weights_too(small):
    """One step, beside a step down the whole cost written out."""
    network = network_of(small)
    sgd = mixhop._optimiser(
        network, {"learning_rate": 0.5, "weight_decay": 0.01, "decline": 0, "decline_every": 1}
    )
    with torch.no_grad():
        network.shares.copy_(torch.tensor([0.5, -0.2, 0.1]))
    squares = sum((part**2).sum() for part in (network.first.weights, network.second.weights))
    cost = network.training_loss() + 0.01 * squares + 1e-3 * (network.shares**2).mean()
    expected = [
        part.detach() - 0.5 * slope
        for part, slope in zip(network.parameters, torch.autograd.grad(cost, network.parameters), strict=True)
    ]
    network.training_loss().backward()
    sgd.step()
    for part, other in zip(network.parameters, expected, strict=True):
        assert torch.allclose(part, other, atol=1e-6)


def test_the_best_epoch_on_validation_nodes_makes_the_scores(small, monkeypatch):
    seen = []

    def told(network, whole=mixhop._Network.validated):
        seen.append(whole(network))
        return seen[-1]

    monkeypatch.setattr(mixhop._Network, "validated", told)
    found = mixhop.run(small, patience=5, epochs=200, threads=1)
    best = seen.index(max(seen)) + 1
    assert found.epochs == len(seen) == best + 5
    seen.clear()
    again = mixhop.run(small, patience=None, epochs=best, threads=1)
    assert (again.scores == found.scores).all()


def test_an_easy_graph_is_learnt_and_the_outcome_is_whole(small):
    found = mixhop.run(small, epochs=100, threads=1)
    assert accuracy(small.y[small.test], found.predictions[small.test]) > 0.8
    assert found.validation == accuracy(small.y[small.validation], found.predictions[small.validation])
    assert found.scores.shape == (300, 3)
    assert (found.predictions == found.scores.argmax(1)).all()
    assert 0 < found.seconds["train"] < found.seconds["total"]
    assert found.epochs <= 100
    assert found.peak_memory_bytes is None or found.peak_memory_bytes > 10**7
    assert found.settings["hidden"] == [24, 18, 18]
    assert found.settings["seed"] == 0


def test_cora_is_classified_after_some_epochs():
    cora = load_dataset("cora")
    found = mixhop.run(cora, epochs=40, threads=1)
    assert accuracy(cora.y[cora.test], found.predictions[cora.test]) > 0.7


def test_the_same_seed_gives_the_same_bits_and_leaves_torch_as_it_was(small):
    torch.manual_seed(5)
    state, threads = torch.random.get_rng_state(), torch.get_num_threads()
    a, b, c = (mixhop.run(small, seed=seed, **QUICK) for seed in (1, 1, 2))
    assert (a.scores == b.scores).all()
    assert (a.scores != c.scores).any()
    assert torch.equal(torch.random.get_rng_state(), state)
    assert torch.get_num_threads() == threads


def test_test_labels_are_never_used(small):
    hidden = small.y.copy()
    hidden[small.test] = -1
    one, other = (mixhop.run(dataclasses.replace(small, y=y), **QUICK) for y in (small.y, hidden))
    assert (one.scores == other.scores).all()


def test_classes_may_be_any_numbers(small):
    found = mixhop.run(dataclasses.replace(small, y=10 * small.y + 7), **QUICK)
    assert (found.predictions == 10 * mixhop.run(small, **QUICK).predictions + 7).all()


def test_without_validation_nodes_all_epochs_are_run(small):
    found = mixhop.run(dataclasses.replace(small, validation=np.array([], int)), patience=1, **QUICK)
    assert (found.epochs, found.validation) == (15, None)


def test_isolated_nodes_and_nodes_without_words_get_scores_too(small):
    words = sp.csr_array(small.X.toarray() * (np.arange(300) % 5 > 0)[:, None])
    codes = small.graph.edge_codes()
    graph = small.graph.with_edges(codes[(codes >= 20).all(1)])
    found = mixhop.run(dataclasses.replace(small, X=words, graph=graph), **QUICK)
    assert np.isfinite(found.scores).all()


def test_without_features_the_nodes_themselves_are_features(small):
    found = mixhop.run(dataclasses.replace(small, X=None), epochs=60, threads=1)
    assert accuracy(small.y[small.test], found.predictions[small.test]) > 0.5


def test_several_labels_at_once():
    data = overlapping_blocks(600, num_labels=4, labels_per_node=1.3, validation_per_label=30, seed=2)
    found = mixhop.run(data, epochs=60, dropout=0.5, learning_rate=0.25, threads=1)
    assert (found.predictions == (found.scores > 0)).all()
    assert roc_auc_score(data.y[data.test], found.scores[data.test]) > 0.7


def test_progress_is_told_after_every_epoch(small):
    told = []
    mixhop.run(small, epochs=3, progress=lambda done, total: told.append((done, total)), threads=1)
    assert told == [(1, 3), (2, 3), (3, 3)]


@pytest.mark.parametrize(
    "wrong",
    [
        {"seed": -1},
        {"epochs": 0},
        {"hidden": 20},
        {"hidden": (0, 0)},
        {"hidden": (20, -1)},
        {"hidden": ()},
        {"groups": "111"},
        {"groups": (1.5, 1)},
        {"input_dropout": 1.0},
        {"dropout": -0.1},
        {"weight_decay": -1},
        {"learning_rate": float("nan")},
        {"decline": "slowly"},
        {"decline_every": 0},
        {"patience": 0},
        {"threads": 0},
    ],
)
def test_wrong_arguments_are_named(wrong, small):
    with pytest.raises(ArgumentError, match=next(iter(wrong))):
        mixhop.run(small, **wrong)


def test_directed_graphs_are_refused(small):
    codes = small.graph.edge_codes().T
    directed = dataclasses.replace(small, graph=Graph.from_codes(*codes, num_nodes=300, directed=True))
    with pytest.raises(ArgumentError, match="undirected"):
        mixhop.run(directed)


def test_a_missing_package_is_told_of_by_the_extra_that_brings_it(small, monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    node_problems.packages.cache_clear()
    with pytest.raises(MissingExtraError, match=r"fastgrl\[baselines\]"):
        mixhop.run(small)
    node_problems.packages.cache_clear()
