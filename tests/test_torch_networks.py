"""What holds for every network that classifies nodes, and for what they share."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import roc_auc_score

from fastgrl.baselines import gat, gcnii, node_problems, reach
from fastgrl.datasets import block_model
from fastgrl.datasets.synthetic import overlapping_blocks
from fastgrl.errors import ArgumentError
from fastgrl.graph import Graph
from fastgrl.metrics import accuracy

# The import warns of torch's own deprecations; importorskip ignores warnings while it lasts.
pytest.importorskip("torch_geometric.nn", reason="PyTorch Geometric is not installed")
torch = pytest.importorskip("torch", reason="PyTorch is not installed")

METHODS = {gat: {"learning_rate": 0.02}, gcnii: {"layers": 6, "hidden": 16, "dropout": 0.5}}


@pytest.fixture(scope="module")
def small():
    return block_model(300, num_classes=3, validation_per_class=20, seed=1)


@pytest.fixture(params=METHODS, ids=lambda method: method.__name__.rpartition(".")[2])
def run(request):
    def quickly(dataset, **others):
        return request.param.run(dataset, **(METHODS[request.param] | {"epochs": 15, "threads": 1} | others))

    return quickly


def test_an_easy_graph_is_learnt_and_the_outcome_is_whole(run, small):
    found = run(small, epochs=100)
    assert accuracy(small.y[small.test], found.predictions[small.test]) > 0.8
    assert found.validation == accuracy(small.y[small.validation], found.predictions[small.validation])
    assert found.scores.shape == (300, 3)
    assert (found.predictions == found.scores.argmax(1)).all()
    assert 0 < found.seconds["train"] < found.seconds["total"]
    assert found.epochs == 100
    assert found.peak_memory_bytes is None or found.peak_memory_bytes > 10**7


def test_the_same_seed_gives_the_same_bits_and_leaves_torch_as_it_was(run, small):
    torch.manual_seed(5)
    state, threads = torch.random.get_rng_state(), torch.get_num_threads()
    a, b, c = (run(small, seed=seed) for seed in (1, 1, 2))
    assert (a.scores == b.scores).all()
    assert (a.scores != c.scores).any()
    assert torch.equal(torch.random.get_rng_state(), state)
    assert torch.get_num_threads() == threads


def test_a_dataset_prepared_once_gives_what_the_dataset_gives(run, small):
    one, other = (run(data) for data in (small, node_problems.prepare(small)))
    assert (one.scores == other.scores).all()


def test_test_labels_are_never_used(run, small):
    hidden = small.y.copy()
    hidden[small.test] = -1
    one, other = (run(dataclasses.replace(small, y=y)) for y in (small.y, hidden))
    assert (one.scores == other.scores).all()


def test_classes_may_be_any_numbers(run, small):
    found, expected = run(dataclasses.replace(small, y=10 * small.y + 7)), run(small)
    assert (found.predictions == 10 * expected.predictions + 7).all()


def test_without_validation_nodes_all_epochs_are_run(run, small):
    found = run(dataclasses.replace(small, validation=np.array([], int)), patience=1, learning_rate=1.0)
    assert (found.epochs, found.validation) == (15, None)


def test_isolated_nodes_and_nodes_without_words_get_scores_too(run, small):
    words = sp.csr_array(small.X.toarray() * (np.arange(300) % 5 > 0)[:, None])
    codes = small.graph.edge_codes()
    graph = small.graph.with_edges(codes[(codes >= 20).all(1)])
    found = run(dataclasses.replace(small, X=words, graph=graph))
    assert np.isfinite(found.scores).all()


def test_a_graph_without_edges_is_classified_by_its_words(run, small):
    found = run(dataclasses.replace(small, graph=small.graph.with_edges(np.empty((0, 2), int))), epochs=60)
    assert accuracy(small.y[small.test], found.predictions[small.test]) > 0.4


def test_without_features_the_nodes_themselves_are_features(run, small):
    found = run(dataclasses.replace(small, X=None), epochs=60)
    assert accuracy(small.y[small.test], found.predictions[small.test]) > 0.5


def test_several_labels_at_once(run):
    data = overlapping_blocks(600, num_labels=4, labels_per_node=1.3, validation_per_label=30, seed=2)
    found = run(data, epochs=200, learning_rate=0.03)
    assert found.predictions.shape == (600, 4)
    assert (found.predictions == (found.scores > 0)).all()
    assert roc_auc_score(data.y[data.test], found.scores[data.test]) > 0.8


def test_progress_is_told_after_every_epoch(run, small):
    told = []
    run(small, epochs=3, progress=lambda done, total: told.append((done, total)))
    assert told == [(1, 3), (2, 3), (3, 3)]


@pytest.mark.parametrize(
    ("method", "wrong"),
    [
        *((method, wrong) for method in METHODS for wrong in ({"seed": -1}, {"epochs": 0}, {"hidden": 0})),
        *((method, wrong) for method in METHODS for wrong in ({"dropout": 1.0}, {"learning_rate": "fast"})),
        *((method, wrong) for method in METHODS for wrong in ({"patience": 0}, {"threads": 0})),
        (gat, {"heads": 0}),
        (gat, {"output_heads": 1.5}),
        (gat, {"weight_decay": -1}),
        (gcnii, {"layers": 0}),
        (gcnii, {"alpha": 1.0}),
        (gcnii, {"theta": float("nan")}),
        (gcnii, {"layer_decay": -1}),
        (gcnii, {"dense_decay": None}),
    ],
)
def test_wrong_arguments_are_named(method, wrong, small):
    with pytest.raises(ArgumentError, match=next(iter(wrong))):
        method.run(small, **wrong)


def test_directed_graphs_are_refused(run, small):
    codes = small.graph.edge_codes().T
    directed = dataclasses.replace(small, graph=Graph.from_codes(*codes, num_nodes=300, directed=True))
    with pytest.raises(ArgumentError, match="undirected"):
        run(directed)


@settings(max_examples=60, deadline=None)
@given(st.floats(0, 0.99), st.lists(st.integers(0, 40), min_size=1, max_size=3), st.integers(0, 99))
def test_dropout_keeps_its_share_and_nothing_else(dropout, shape, seed):
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        found = node_problems.kept(shape, dropout)
    assert found.shape == tuple(shape)
    assert set(found.unique().tolist()) <= {0.0, 1.0}
    count = found.numel()
    slack = 6 * np.sqrt(dropout * (1 - dropout) * count) + 1e-4 * count
    assert abs(float(found.sum()) - (1 - dropout) * count) <= slack + (dropout == 0)


def test_dropped_values_stay_the_same_on_average():
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        values = torch.arange(1.0, 11.0)
        found = torch.stack([node_problems.dropped(values, 0.6) for _ in range(2000)])
    assert torch.allclose(found.mean(0), values, rtol=0.1)
    assert torch.allclose(found.max(0).values, values / 0.4)
    assert node_problems.dropped(values, 0.0) is values


def test_the_best_epoch_is_kept_until_hope_is_gone():
    weight = torch.zeros(1)
    best = node_problems.BestEpoch([weight], patience=2)
    for value, is_best, hopeful, over in [
        (1, True, True, False),
        (2, False, True, False),
        (3, False, False, False),
    ]:
        weight.fill_(value)
        assert best.passed(best=is_best, hopeful=hopeful) is over
    assert best.passed(best=False, hopeful=False)
    best.restore()
    assert float(weight) == 1


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 5), st.integers(1, 4))
def test_rows_within_reach_give_the_same_powers(seed, layers, wanted):
    """Â^L X on some nodes, of a graph with far-away parts."""
    rng = np.random.default_rng(seed)
    small = block_model(40, num_classes=2, validation_per_class=2, train_per_class=3, num_features=10, seed=0)
    graph = Graph.from_codes(*rng.integers(0, 40, (2, 35)), num_nodes=40)
    problem = node_problems.prepare(dataclasses.replace(small, graph=graph))
    nodes = torch.from_numpy(np.sort(rng.choice(40, wanted, replace=False)))
    found = reach.Reach.of(problem, nodes, layers=layers)
    H, expected = (X.matrix.to_dense().numpy() for X in (found.features, problem.features))
    for part in found.parts:
        H, expected = part @ H, problem.adjacency.to_dense().numpy() @ expected
    assert sorted(found.nodes.tolist()) == nodes.tolist()
    assert np.allclose(H, expected[found.nodes], atol=1e-6)
    assert [part.shape[0] for part in found.parts] == [part.shape[1] for part in found.parts[1:]] + [wanted]
