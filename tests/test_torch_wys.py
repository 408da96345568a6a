from __future__ import annotations

import dataclasses
import json
import pickle
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fastgrl.baselines import wys
from fastgrl.datasets import block_model, load_dataset
from fastgrl.datasets.records import LinkDataset
from fastgrl.errors import ArgumentError, MissingExtraError
from fastgrl.graph import Graph
from fastgrl.metrics import roc_auc
from fastgrl.splits import split_edges
from fastgrl.summaries import plain

torch = pytest.importorskip("torch", reason="PyTorch is not installed")


def link_dataset(graph):
    split = split_edges(graph, fraction=0.2, seed=0)
    return LinkDataset("links", split.train, None, None, split.held_out, split.negatives)


@pytest.fixture(scope="module")
def small():
    return link_dataset(block_model(300, num_classes=6, mean_degree=16, mixing=0.05, seed=1).graph)


def auc(outcome, data):
    m = len(data.test)
    return roc_auc(outcome.scores[:m], outcome.scores[m:])


# The gradient.


@st.composite
def graphs(draw):
    n, rng = draw(st.integers(1, 11)), np.random.default_rng(draw(st.integers(0, 2**32)))
    edges = rng.integers(0, n, (draw(st.integers(0, 2 * n)), 2))  # loops and isolated nodes among them
    weights = rng.uniform(0.5, 2, len(edges)) if draw(st.booleans()) else None
    return Graph.from_codes(edges[:, 0], edges[:, 1], num_nodes=n, weights=weights)


def dense_powers(graph, window):
    """D T, D T², … as they are written."""
    A, d = graph.to_scipy().toarray().astype(float), graph.degrees
    T = np.divide(A, d[:, None], out=np.zeros_like(A), where=d[:, None] > 0)
    return [np.diag(d) @ np.linalg.matrix_power(T, k + 1) for k in range(window)]


def dense_objective(graph, model, *, walks_per_node, context_penalty):
    """The mean that the module's first paragraphs speak of, all n² pairs at once in float64."""
    L, R = model.vectors
    n, context = len(L), model.logits.softmax(0)
    powers = torch.from_numpy(np.stack(dense_powers(graph, len(context))))
    M = walks_per_node * n * (context[:, None, None] * powers).sum(0)
    apart = torch.from_numpy(graph.to_scipy().toarray() == 0).double()
    chances = torch.sigmoid(L @ R.T)
    pairs = -M * torch.log(chances + 1e-5) - apart * torch.log(1 - chances + 1e-5)
    penalties = context_penalty * (model.logits**2).mean() + 1e-6 * ((L**2).mean() + (R**2).mean())
    return pairs.mean() + penalties


@pytest.fixture
def tiny_tiles(monkeypatch):
    monkeypatch.setattr(wys, "_SIDE", 4)


@pytest.mark.parametrize("window", [1, 3])
def test_the_gradient_is_that_of_the_published_objective(window, tiny_tiles):
    @settings(max_examples=40, deadline=None)
    @given(graphs(), st.integers(0, 2**32))
    def check(graph, seed):
        start = wys._Model.random(graph.num_nodes, 3, window, seed)
        start = wys._Model(10 * start.vectors, torch.linspace(-1, 2, window))
        exact = wys._Model(*(part.double().requires_grad_() for part in (start.vectors, start.logits)))
        dense_objective(graph, exact, walks_per_node=2, context_penalty=0.3).backward()
        found = wys._Objective.of(graph, window, 2, 0.3).gradient(start)
        for one, other in ((found.vectors, exact.vectors.grad), (found.logits, exact.logits.grad)):
            assert torch.allclose(one.double(), other, rtol=1e-4, atol=1e-5 * (1 + float(other.abs().max())))

    check()


@settings(max_examples=25, deadline=None)
@given(graphs())
def test_tiles_hold_the_powers_of_the_transition_matrix(graph):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(wys, "_SIDE", 4)
        rows = wys._tile_rows(graph, 3)
    powers = np.stack(dense_powers(graph, 3))
    covered = np.zeros((graph.num_nodes, graph.num_nodes))
    for tile in (tile for row in rows for tile in row):
        exact = powers[:, tile.rows, tile.columns].reshape(3, -1)
        np.testing.assert_allclose(tile.powers.numpy(), exact, rtol=1e-5, atol=1e-6)
        covered[tile.rows, tile.columns] += tile.share
    np.testing.assert_array_equal(covered + covered.T, np.ones_like(covered))


def test_the_first_step_changes_entries_by_the_learning_rate_on_average(small):
    before = wys._Model.random(small.graph.num_nodes, 4, 2, seed=0)
    after = wys._Model(before.vectors.clone(), before.logits.clone())
    wys._descend(after, wys._Objective.of(small.graph, 2, 80, 0.1), 0.2, 1, None)
    for old, new in zip(before.parts, after.parts, strict=True):
        change = (new - old).abs() / (old.abs() + 1e-5)
        assert float(change.mean()) == pytest.approx(0.2, rel=0.01)


def test_the_rate_falls_in_a_line_to_a_hundredth(monkeypatch):
    model = wys._Model(torch.ones(2, 1, 1), torch.ones(1))

    class Constant:
        def gradient(self, _model):
            return wys._Model(torch.full((2, 1, 1), -1e4), torch.full((1,), -1e4))

    monkeypatch.setattr(wys, "_off_zero", lambda values: values)
    path = []
    wys._descend(model, Constant(), 0.5, 4, lambda *_: path.append(float(model.logits[0])))
    rates = np.divide(path, [1, *path[:-1]]) - 1
    np.testing.assert_allclose(rates, 0.5 * (1 - 0.99 * np.arange(4) / 4), rtol=1e-5)


# Runs.


def test_held_out_edges_of_a_block_model_score_above_non_edges(small):
    assert auc(wys.run(small, rank=8, steps=60), small) > 0.8


def test_ppi_is_far_above_chance_after_a_few_steps():
    data = load_dataset("ppi")
    assert auc(wys.run(data, rank=8, window=2, steps=6, learning_rate=2.0), data) > 0.8


def test_the_outcome_says_what_was_run(small):
    calls = []
    found = wys.run(small, seed=3, rank=4, steps=5, threads=1, progress=lambda *done: calls.append(done))
    assert found.scores.shape == (len(small.test) + len(small.test_negatives),)
    assert found.scores.dtype == np.float32
    assert found.predictions is found.validation is None
    assert 0 < found.seconds["train"] < found.seconds["total"]
    assert found.epochs == 5
    assert calls == [(step, 5) for step in range(1, 6)]
    assert found.peak_memory_bytes is None or found.peak_memory_bytes > 10**7
    assert json.loads(json.dumps(plain(found.settings))) == {
        "seed": 3,
        "rank": 4,
        "window": 5,
        "walks_per_node": 80,
        "context_penalty": 0.1,
        "learning_rate": 0.2,
        "steps": 5,
    }


def test_the_same_seed_gives_the_same_bits_for_any_number_of_threads(small):
    one, again, two = (wys.run(small, rank=4, steps=5, threads=threads).scores for threads in (1, 1, 2))
    np.testing.assert_array_equal(one, again)
    np.testing.assert_array_equal(one, two)
    assert not np.array_equal(one, wys.run(small, seed=1, rank=4, steps=5).scores)


def global_state():
    return pickle.dumps(np.random.get_state())  # noqa: NPY002


def test_random_states_and_threads_are_left_alone(small):
    numpy_state, torch_state = global_state(), torch.random.get_rng_state()
    threads = torch.get_num_threads()
    try:
        torch.set_num_threads(3)
        wys.run(small, rank=2, steps=2)
        assert torch.get_num_threads() == 3
    finally:
        torch.set_num_threads(threads)
    assert torch.equal(torch_state, torch.random.get_rng_state())
    assert numpy_state == global_state()


def test_test_pairs_are_only_scored(small):
    other = dataclasses.replace(small, test=small.test[:5], test_negatives=small.test[::-1])
    whole, some = wys.run(small, rank=4, steps=5).scores, wys.run(other, rank=4, steps=5).scores
    np.testing.assert_array_equal(some[:5], whole[:5])
    np.testing.assert_array_equal(some[5:], whole[: len(small.test)][::-1])


def test_isolated_nodes_and_graphs_without_edges_are_trained_on():
    pairs = np.array([[0, 2], [1, 3]])
    for edges in ([(0, 1), (1, 2), (2, 2)], np.empty((0, 2), int)):
        graph = Graph.from_edges(edges, nodes=[0, 1, 2, 3])
        found = wys.run(LinkDataset("few", graph, None, None, pairs, pairs[:0]), rank=2, steps=10)
        assert found.scores.shape == (2,)
        assert np.isfinite(found.scores).all()


# What is refused.


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"rank": 0}, "rank must be an integer of at least 1, got 0"),
        ({"window": 1.5}, "window must be an integer"),
        ({"walks_per_node": 0}, "walks_per_node must be an integer"),
        ({"steps": 0}, "steps must be an integer"),
        ({"seed": -1}, "seed must be an integer of at least 0"),
        ({"learning_rate": float("nan")}, "learning_rate must be a number of at least 0, got nan"),
        ({"context_penalty": "much"}, "context_penalty must be a number of at least 0, got 'much'"),
        ({"threads": 0}, "threads must be an integer of at least 1"),
        ({"max_memory": 1000}, r"take .*max_memory is .*raise max_memory"),
    ],
)
def test_bad_arguments_are_named(small, arguments, message):
    with pytest.raises(ArgumentError, match=message):
        wys.run(small, **arguments)


def test_graphs_that_are_directed_or_empty_are_refused():
    none = np.empty((0, 2), int)
    for graph, message in (
        (Graph.from_edges([(0, 1)], directed=True), "directed=False"),
        (Graph.from_edges(none), "no nodes"),
    ):
        with pytest.raises(ArgumentError, match=message):
            wys.run(LinkDataset("none", graph, None, None, none, none))


def test_a_missing_package_is_told_of_by_the_extra_that_brings_it(monkeypatch, small):
    monkeypatch.setitem(sys.modules, "torch", None)
    wys.packages.cache_clear()
    with pytest.raises(MissingExtraError, match=r"fastgrl\[baselines\]"):
        wys.run(small)
    wys.packages.cache_clear()
