from __future__ import annotations

import dataclasses
import itertools
import sys

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from fastgrl.baselines import node_problems, planetoid
from fastgrl.datasets import block_model, load_dataset
from fastgrl.datasets.synthetic import overlapping_blocks
from fastgrl.errors import ArgumentError, MissingExtraError
from fastgrl.graph import Graph
from fastgrl.metrics import accuracy

# The import warns of torch's own deprecations; importorskip ignores warnings while it lasts.
pytest.importorskip("torch_geometric.nn", reason="PyTorch Geometric is not installed")
torch = pytest.importorskip("torch", reason="PyTorch is not installed")

QUICK = {"epochs": 15, "label_steps": 20, "graph_steps": 5, "walk_batch": 20, "window": 3, "threads": 1}
EASY = {"epochs": 200, "label_steps": 200, "graph_steps": 300, "walk_batch": 20, "window": 3, "threads": 1}
SIZES = {"walk_steps": 6, "window": 2, "walk_batch": 40, "label_batch": 30, "negatives": 3, "seed": 0}


@pytest.fixture(scope="module")
def small():
    return block_model(300, num_classes=3, validation_per_class=20, seed=1)


def contexts_of(data, **others):
    chosen = SIZES | {"rank": 4, "feature_scale": 1.0, "context_learning_rate": 0.05} | others
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        network = planetoid._build(node_problems.prepare(data), data, chosen)
        return network, planetoid._Contexts.of(data, network, chosen)


def cost(contexts, batch, E, C, b):
    """The sum over contexts and negatives, one after another."""
    total = torch.zeros(())
    for u, row, counts, against in zip(
        batch.nodes, batch.contexts, batch.counts, batch.negatives, strict=True
    ):
        for v, counted, others in zip(row, counts, against, strict=True):
            if counted and contexts.softmax:
                total = total - (C @ E[u] + b).log_softmax(0)[v]
            elif counted:
                total = total - torch.nn.functional.logsigmoid(E[u] @ C[v])
                total = total - sum(torch.nn.functional.logsigmoid(-E[u] @ C[w]) for w in others)
    return total


@pytest.mark.parametrize(
    ("negatives", "kind"), list(itertools.product([0, 2], ["by_walk", "by_label"])), ids=str
)
def test_a_step_on_contexts_is_one_of_gradient_descent(small, negatives, kind):
    _, contexts = contexts_of(small, negatives=negatives, walk_batch=8)
    contexts.biases.add_(torch.linspace(-1, 1, 300))
    contexts.vectors.mul_(100)
    batch = next(getattr(contexts, kind))
    parts = [part.clone().requires_grad_() for part in (contexts.vectors, contexts.partners, contexts.biases)]
    slopes = torch.autograd.grad(cost(contexts, batch, *parts), parts, allow_unused=True)
    contexts.step(batch)
    for before, slope, now in zip(
        parts, slopes, (contexts.vectors, contexts.partners, contexts.biases), strict=True
    ):
        expected = before if slope is None else before - 0.05 * slope
        assert torch.allclose(now, expected.detach(), atol=1e-5)


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 8), st.integers(1, 4), st.integers(0, 3))
def test_contexts_are_near_in_the_walk_and_each_counts_once(seed, steps, window, negatives):
    rng = np.random.default_rng(seed)
    walks = rng.permutation(7 * (steps + 1)).reshape(7, steps + 1)  # every node in one place only
    chosen = {"window": window, "negatives": negatives}
    batch = planetoid._of_walks(walks, 500, chosen, rng)
    rows = np.broadcast_to(batch.nodes[:, None], batch.contexts.shape)[batch.counts]
    found = set(zip(rows.tolist(), batch.contexts[batch.counts].tolist(), strict=True))
    expected = {
        (int(walk[i]), int(walk[j]))
        for walk in walks
        for i in range(steps + 1)
        for j in range(max(0, i - window), min(steps, i + window) + 1)
    }
    assert found == expected
    assert len(rows) == len(expected)
    assert batch.negatives.shape == (*batch.contexts.shape, negatives)
    assert ((batch.negatives >= 0) & (batch.negatives < 500)).all()


def test_a_pass_walks_from_every_node_that_has_neighbours(small):
    codes = small.graph.edge_codes()
    graph = small.graph.with_edges(codes[(codes >= 20).all(1)])
    alone = np.flatnonzero(np.diff(graph.indptr) == 0)
    batches = planetoid._walk_batches(graph, SIZES, np.random.default_rng(0))
    walks = [batch.nodes.reshape(-1, 7) for batch in itertools.islice(batches, 8)]  # of 40 of 300 nodes
    starts = np.concatenate([rows[:, 0] for rows in walks])
    assert sorted([*starts, *alone]) == list(range(300))
    for rows in walks:
        assert graph.has_edges(rows[:, :-1].ravel(), rows[:, 1:].ravel()).all()


@settings(max_examples=40, deadline=None)
@given(st.lists(st.sampled_from([0, 1, 3]), min_size=2, max_size=30), st.integers(0, 4))
def test_contexts_by_label_are_of_the_same_class_and_negatives_of_others(classes, negatives):
    nodes = 5 * np.arange(len(classes)) + 2
    targets = np.full(200, -1)
    targets[nodes] = classes

    class Stub:
        train, targets = torch.from_numpy(nodes), None

    Stub.targets = torch.from_numpy(targets)
    chosen = SIZES | {"negatives": negatives}
    batch = next(planetoid._Labels.of(Stub).batches(chosen, np.random.default_rng(0)))
    if len(set(classes)) == 1:
        assert not len(batch.nodes)
        return
    assert batch.negatives.shape == (30, 1, negatives)
    assert set(batch.nodes) <= set(nodes)
    own = targets[batch.nodes]
    assert (targets[batch.contexts[:, 0]] == own).all()
    assert (targets[batch.negatives[:, 0]] != own[:, None]).all()
    assert (targets[batch.negatives] >= 0).all()


def test_rates_are_batches_on_average(small, monkeypatch):
    _, contexts = contexts_of(small)
    seen = []
    monkeypatch.setattr(planetoid._Contexts, "step", lambda _self, batch: seen.append(batch))
    for _ in range(400):
        contexts.follow(itertools.repeat(None), 1.25)
    assert 450 < len(seen) < 550
    seen.clear()
    contexts.follow(itertools.repeat(None), 0.0)
    contexts.follow(itertools.repeat(None), 2.0)
    assert len(seen) == 2


def test_scores_of_some_rows_are_those_of_all(small):
    network, _ = contexts_of(small)
    for name in ("train", "validation"):
        nodes = getattr(network.problem, name)
        some = network.parts(network.rows[name], network.vectors[nodes])[2]
        assert torch.allclose(some, network.scores()[nodes], atol=1e-6)
    scores = network.scores().detach().numpy()
    shares = accuracy(small.y[small.validation], scores[small.validation].argmax(1))
    assert network.validated() == shares


def test_the_first_of_the_best_epochs_makes_the_scores(small, monkeypatch):
    seen = []

    def told(network, whole=planetoid._Network.validated):
        seen.append(whole(network))
        return seen[-1]

    monkeypatch.setattr(planetoid._Network, "validated", told)
    quick = QUICK | {"graph_rate": 0.5, "label_rate": 0.5}
    found = planetoid.run(small, **(quick | {"epochs": 40}))
    best = seen.index(max(seen)) + 1
    assert (found.epochs, found.validation) == (len(seen), max(seen))
    assert (planetoid.run(small, **(quick | {"epochs": best})).scores == found.scores).all()


@pytest.mark.parametrize("negatives", [0, 5])
def test_an_easy_graph_is_learnt_and_the_outcome_is_whole(small, negatives):
    found = planetoid.run(small, negatives=negatives, **EASY)
    assert accuracy(small.y[small.test], found.predictions[small.test]) > 0.7
    assert found.validation == accuracy(small.y[small.validation], found.predictions[small.validation])
    assert found.scores.shape == (300, 3)
    assert (found.predictions == found.scores.argmax(1)).all()
    assert 0 < found.seconds["train"] < found.seconds["total"]
    assert found.epochs == 200
    assert found.peak_memory_bytes is None or found.peak_memory_bytes > 10**7
    assert found.settings["negatives"] == negatives
    assert found.settings["rank"] == 50


def test_cora_is_classified_after_a_few_steps():
    cora = load_dataset("cora")
    found = planetoid.run(cora, label_steps=500, window=5, epochs=400, threads=1)
    assert accuracy(cora.y[cora.test], found.predictions[cora.test]) > 0.6


@pytest.mark.parametrize("negatives", [0, 5])
def test_the_same_seed_gives_the_same_bits_and_leaves_torch_as_it_was(small, negatives):
    torch.manual_seed(5)
    state, threads = torch.random.get_rng_state(), torch.get_num_threads()
    a, b, c = (planetoid.run(small, seed=seed, negatives=negatives, **QUICK) for seed in (1, 1, 2))
    assert (a.scores == b.scores).all()
    assert (a.scores != c.scores).any()
    assert torch.equal(torch.random.get_rng_state(), state)
    assert torch.get_num_threads() == threads


def test_test_labels_are_never_used(small):
    hidden = small.y.copy()
    hidden[small.test] = -1
    one, other = (planetoid.run(dataclasses.replace(small, y=y), **QUICK) for y in (small.y, hidden))
    assert (one.scores == other.scores).all()


def test_classes_may_be_any_numbers(small):
    found = planetoid.run(dataclasses.replace(small, y=10 * small.y + 7), **QUICK)
    assert (found.predictions == 10 * planetoid.run(small, **QUICK).predictions + 7).all()


def test_without_validation_nodes_the_last_epoch_counts(small):
    found = planetoid.run(dataclasses.replace(small, validation=np.array([], int)), **QUICK)
    assert (found.epochs, found.validation) == (15, None)


def test_isolated_nodes_and_nodes_without_words_get_scores_too(small):
    words = sp.csr_array(small.X.toarray() * (np.arange(300) % 5 > 0)[:, None])
    codes = small.graph.edge_codes()
    graph = small.graph.with_edges(codes[(codes >= 20).all(1)])
    found = planetoid.run(dataclasses.replace(small, X=words, graph=graph), **QUICK)
    assert np.isfinite(found.scores).all()


@pytest.mark.parametrize("negatives", [0, 5])
def test_a_graph_without_edges_is_classified_by_its_words(small, negatives):
    alone = dataclasses.replace(small, graph=small.graph.with_edges(np.empty((0, 2), int)))
    found = planetoid.run(alone, negatives=negatives, **(QUICK | {"epochs": 100}))
    assert accuracy(small.y[small.test], found.predictions[small.test]) > 0.4


@pytest.mark.parametrize("negatives", [0, 5])
def test_training_nodes_of_one_class_have_no_contexts_by_label(small, negatives):
    one = dataclasses.replace(small, train=small.train[small.y[small.train] == 0])
    found = planetoid.run(one, negatives=negatives, label_rate=1.0, **QUICK)
    assert np.isfinite(found.scores).all()


def test_nodes_without_features_are_told_apart_by_their_neighbours(small):
    found = planetoid.run(dataclasses.replace(small, X=None), **EASY)
    assert accuracy(small.y[small.test], found.predictions[small.test]) > 0.5


@pytest.mark.parametrize("negatives", [0, 5])
def test_a_descent_that_diverges_is_told_of(small, negatives):
    with pytest.raises(ArgumentError, match=r"diverged.*context_learning_rate below 1e\+20"):
        planetoid.run(small, negatives=negatives, context_learning_rate=1e20, **QUICK)


def test_progress_is_told_after_every_step(small):
    told = []
    planetoid.run(
        small,
        progress=lambda done, total: told.append((done, total)),
        **(QUICK | {"epochs": 3, "label_steps": 2, "graph_steps": 1}),
    )
    assert told == [(done, 6) for done in range(1, 7)]


@pytest.mark.parametrize(
    "wrong",
    [
        {"seed": -1},
        {"epochs": 0},
        {"rank": 0},
        {"label_steps": -1},
        {"graph_steps": 1.5},
        {"graph_rate": -0.1},
        {"label_rate": "often"},
        {"walk_steps": 0},
        {"window": 0},
        {"walk_batch": 0},
        {"label_batch": 0},
        {"negatives": -1},
        {"context_learning_rate": float("inf")},
        {"learning_rate": float("nan")},
        {"feature_scale": -2},
        {"threads": 0},
    ],
)
def test_wrong_arguments_are_named(wrong, small):
    with pytest.raises(ArgumentError, match=next(iter(wrong))):
        planetoid.run(small, **wrong)


def test_directed_graphs_and_several_labels_are_refused(small):
    codes = small.graph.edge_codes().T
    directed = dataclasses.replace(small, graph=Graph.from_codes(*codes, num_nodes=300, directed=True))
    with pytest.raises(ArgumentError, match="undirected"):
        planetoid.run(directed)
    with pytest.raises(ArgumentError, match="one class per node"):
        planetoid.run(overlapping_blocks(100, num_labels=4, seed=2))


def test_a_missing_package_is_told_of_by_the_extra_that_brings_it(small, monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    node_problems.packages.cache_clear()
    with pytest.raises(MissingExtraError, match=r"fastgrl\[baselines\]"):
        planetoid.run(small)
    node_problems.packages.cache_clear()
