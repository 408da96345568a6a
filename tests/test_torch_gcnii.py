from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from fastgrl.baselines import gcnii, node_problems
from fastgrl.datasets import block_model, load_dataset
from fastgrl.graph import Graph
from fastgrl.metrics import accuracy

# The import warns of torch's own deprecations; importorskip ignores warnings while it lasts.
pyg = pytest.importorskip("torch_geometric.nn", reason="PyTorch Geometric is not installed")
torch = pytest.importorskip("torch", reason="PyTorch is not installed")

SMALL = {"layers": 8, "hidden": 16, "theta": 0.5, "alpha": 0.1}


@pytest.fixture(scope="module")
def small():
    return block_model(300, num_classes=3, validation_per_class=20, seed=1)


def network_of(data, *, dropout=0.0, **others):
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return gcnii._Network(node_problems.prepare(data), SMALL | {"dropout": dropout} | others)


def scattered(data):
    """A weighted graph with loops, far-away parts, and no neighbours for some."""
    rng = np.random.default_rng(0)
    codes, weights = rng.integers(0, 250, (2, 260)), rng.random(260) + 0.1
    return dataclasses.replace(data, graph=Graph.from_codes(*codes, weights=weights, num_nodes=300))


def scores_by_pyg(network, data):
    """The same network on PyG's layers, with dense features and every row."""
    A = data.graph.to_scipy().tocoo()
    edges = torch.from_numpy(np.stack(A.coords).astype(np.int64))
    weights = torch.from_numpy(A.data.astype(np.float32))
    X = torch.from_numpy(node_problems.rows_to_sum_one(data.X).toarray())
    start = torch.relu(X @ network.first + network.bias)
    H = start
    for number, weight in enumerate(network.weights, 1):
        layer = pyg.GCN2Conv(16, alpha=0.1, theta=0.5, layer=number)
        del layer.weight1
        layer.weight1 = weight
        H = torch.relu(layer(H, start, edges, weights))
    return network.last(H)


@pytest.mark.parametrize("change", [lambda data: data, scattered])
def test_scores_and_gradients_are_those_of_pygs_layers(small, change):
    data = change(small)
    network = network_of(data)
    parameters = [network.weights, *network.dense]
    expected = scores_by_pyg(network, data)
    with torch.no_grad():
        assert torch.allclose(network.scores(), expected, atol=1e-6)
    targets, train, held = network.problem.targets, data.train, data.validation
    loss = torch.nn.functional.cross_entropy(expected[train], targets[train])
    found = network.training_loss()
    assert torch.allclose(found, loss, rtol=1e-5)
    for _ in range(2):  # the buffers of the first time are used again
        mine = torch.autograd.grad(network.training_loss(), parameters)
    for a, b in zip(mine, torch.autograd.grad(loss, parameters), strict=True):
        assert torch.allclose(a, b, atol=1e-6)
        assert a.abs().max() > 0
    held_loss = torch.nn.functional.cross_entropy(expected[held], targets[held])
    assert abs(network.validation_loss() - float(held_loss.detach())) < 1e-5


def test_dropout_lets_no_gradient_through_what_it_forgot(small):
    """Against autograd's own gradients, with the same masks."""
    network = network_of(small, dropout=0.4)
    rows, start = network.train_rows, network._start(network.train_rows, 0.0)
    mixers = network._mixers().detach().requires_grad_()
    masks = [(torch.rand(len(P), 16) > 0.4).float() for P, _ in network.buffers]
    given = iter(masks)
    stack = gcnii._Stack(rows.steps, network.buffers, 0.1, 0.4)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(gcnii, "kept", lambda shape, dropout: next(given))
        found = gcnii._differentiable()(stack, start, start, mixers)
    H = start
    for (A, _), mask, mixer in zip(rows.steps, masks, mixers, strict=True):
        H = torch.relu((A.to_dense() @ H + 0.1 * start[: len(mask)]) @ mixer) * mask
    assert torch.allclose(found, H, atol=1e-6)
    wanted = (network.first, network.bias, mixers)
    mine, theirs = (torch.autograd.grad(out.square().sum(), wanted, retain_graph=True) for out in (found, H))
    for a, b in zip(mine, theirs, strict=True):
        assert torch.allclose(a, b, rtol=1e-4, atol=1e-6)


def test_the_weights_of_the_lowest_validation_loss_make_the_scores(small):
    """Epoch by epoch: a training that is stopped there gives the same."""
    quick = {"layers": 4, "hidden": 8, "learning_rate": 0.3, "threads": 1}
    found = gcnii.run(small, patience=5, epochs=100, **quick)
    assert found.epochs < 100
    assert (gcnii.run(small, epochs=found.epochs - 5, **quick).scores == found.scores).all()


def test_cora_is_classified_after_a_few_epochs():
    cora = load_dataset("cora")
    found = gcnii.run(cora, layers=4, epochs=100, learning_rate=0.05, threads=1)
    assert accuracy(cora.y[cora.test], found.predictions[cora.test]) > 0.75
    assert found.settings == {
        "seed": 0,
        "epochs": 100,
        "layers": 4,
        "hidden": 64,
        "dropout": 0.6,
        "alpha": 0.1,
        "theta": 0.5,
        "layer_decay": 0.01,
        "dense_decay": 5e-4,
        "learning_rate": 0.05,
        "patience": 100,
    }
