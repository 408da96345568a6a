from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from fastgrl.baselines import gat, node_problems
from fastgrl.datasets import block_model, load_dataset
from fastgrl.graph import Graph
from fastgrl.metrics import accuracy

# The import warns of torch's own deprecations; importorskip ignores warnings while it lasts.
pyg = pytest.importorskip("torch_geometric.nn", reason="PyTorch Geometric is not installed")
torch = pytest.importorskip("torch", reason="PyTorch is not installed")


@pytest.fixture(scope="module")
def small():
    return block_model(300, num_classes=3, validation_per_class=20, seed=1)


def network_of(data, **others):
    settings = {"hidden": 5, "heads": 4, "output_heads": 1, "dropout": 0.0} | others
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return gat._Network.of(node_problems.prepare(data), settings)


def scattered(data):
    """A weighted graph with loops, far-away parts, and no neighbours for some."""
    rng = np.random.default_rng(0)
    codes, weights = rng.integers(0, 250, (2, 260)), rng.random(260) + 0.1
    return dataclasses.replace(data, graph=Graph.from_codes(*codes, weights=weights, num_nodes=300))


def scores_by_pyg(network, data):
    """The same parameters in PyG's own layers, with dense features and every row."""
    edges = torch.from_numpy(np.stack(data.graph.to_scipy().tocoo().coords).astype(np.int64))
    X = torch.from_numpy(node_problems.rows_to_sum_one(data.X).toarray())
    return network.second(torch.nn.functional.elu(network.first(X @ network.weights, edges)), edges)


@pytest.mark.parametrize("change", [lambda data: data, scattered])
@pytest.mark.parametrize("output_heads", [1, 3])
def test_scores_and_gradients_are_those_of_pygs_layers(small, change, output_heads):
    data = change(small)
    network = network_of(data, output_heads=output_heads)
    expected = scores_by_pyg(network, data)
    with torch.no_grad():
        assert torch.allclose(network.scores(), expected, atol=1e-6)
    targets, train, held = network.problem.targets, data.train, data.validation
    loss = torch.nn.functional.cross_entropy(expected[train], targets[train])
    found = network.training_loss()
    assert torch.allclose(found, loss, rtol=1e-5)
    mine, theirs = (torch.autograd.grad(cost, network.parameters) for cost in (found, loss))
    for a, b in zip(mine, theirs, strict=True):
        assert torch.allclose(a, b, atol=1e-6)
        assert a.abs().max() > 0
    cost, share = network.validation()
    assert abs(cost - float(torch.nn.functional.cross_entropy(expected[held], targets[held]).detach())) < 1e-5
    assert abs(share - accuracy(data.y[held], expected[held].argmax(1).numpy())) < 1e-6


def test_neighbours_are_forgotten_after_their_softmax(small):
    """The mean over masks is the layer without them: a node's weights then sum to 1 on average only."""
    network = network_of(small)
    X, edges = torch.rand(300, 20), gat._Rows.of(network.problem, torch.arange(300)).first
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        torch.manual_seed(0)
        found = torch.stack([gat._attended(network.first, X, edges, 0.3) for _ in range(600)])
        expected = gat._attended(network.first, X, edges, 0.0)
    assert (found.mean(0) - expected).abs().max() < 0.12
    assert found.std(0).min() > 0


def test_weights_of_edges_do_not_count(small):
    codes = small.graph.edge_codes()
    weighted = small.graph.with_edges(codes, weights=1.0 + np.arange(len(codes)))
    one, other = (
        gat.run(dataclasses.replace(small, graph=graph), epochs=5, threads=1)
        for graph in (small.graph, weighted)
    )
    assert (one.scores == other.scores).all()


def test_the_last_epoch_with_both_figures_at_their_best_makes_the_scores(small, monkeypatch):
    seen = []

    def told(network, whole=gat._Network.validation):
        seen.append(whole(network))
        return seen[-1]

    monkeypatch.setattr(gat._Network, "validation", told)
    quick = {"learning_rate": 0.05, "threads": 1}
    found = gat.run(small, patience=4, epochs=200, **quick)
    costs, shares = np.array(seen).T
    at_best = (costs <= np.minimum.accumulate(costs), shares >= np.maximum.accumulate(shares))
    assert not (at_best[0] | at_best[1])[-4:].any()
    assert found.epochs == len(seen) < 200
    kept = int(np.flatnonzero(at_best[0] & at_best[1])[-1]) + 1
    assert (gat.run(small, epochs=kept, patience=None, **quick).scores == found.scores).all()


def test_cora_is_classified_after_a_few_epochs():
    cora = load_dataset("cora")
    found = gat.run(cora, epochs=60, threads=1)
    assert accuracy(cora.y[cora.test], found.predictions[cora.test]) > 0.75
    assert found.settings == {
        "seed": 0,
        "epochs": 60,
        "hidden": 8,
        "heads": 8,
        "output_heads": 1,
        "dropout": 0.6,
        "weight_decay": 5e-4,
        "learning_rate": 0.005,
        "patience": 100,
    }
