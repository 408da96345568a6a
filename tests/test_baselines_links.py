from __future__ import annotations

import importlib
import inspect
import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fastgrl.baselines
from fastgrl.baselines.link_vectors import pair_scores
from fastgrl.baselines.skip_gram import _Adam, _gradient, skip_gram
from fastgrl.datasets import block_model, load_dataset
from fastgrl.datasets.records import LinkDataset
from fastgrl.errors import ArgumentError
from fastgrl.graph import Graph
from fastgrl.metrics import roc_auc
from fastgrl.splits import split_edges
from fastgrl.summaries import plain

netmf, netmf_eigen, node2vec = (
    importlib.import_module(f"fastgrl.baselines.{name}") for name in ("netmf", "netmf_eigen", "node2vec")
)
METHODS = [netmf, netmf_eigen, node2vec]
each_method = pytest.mark.parametrize("method", METHODS, ids=["netmf", "netmf_eigen", "node2vec"])
quick = settings(max_examples=40, deadline=None)


def link_dataset(graph, *, seed=0):
    split = split_edges(graph, fraction=0.2, seed=seed)
    return LinkDataset("links", split.train, None, None, split.held_out, split.negatives)


@pytest.fixture(scope="module")
def small():
    return link_dataset(block_model(300, num_classes=6, mean_degree=16, mixing=0.05, seed=1).graph)


def auc(outcome, data):
    m = len(data.test)
    return 100 * roc_auc(outcome.scores[:m], outcome.scores[m:])


# The gradient and the steps of skip-gram.


def loss(Z, nodes, near, far):
    def mean_of(others, sign):
        known = others >= 0
        products = np.einsum("bk,bmk->bm", Z[nodes], Z[others])
        return (np.logaddexp(0, -sign * products) * known).sum() / max(1, known.sum())

    return mean_of(near, 1) + mean_of(far, -1)


@st.composite
def batches(draw):
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    n, count, m, negative = (draw(st.integers(low, high)) for low, high in ((3, 9), (1, 3), (1, 4), (1, 3)))
    Z = rng.standard_normal((n, 3)).astype(np.float32)
    near, far = rng.integers(-1, n, (count, m)), rng.integers(0, n, (count, m * negative))
    return Z, rng.permutation(n)[:count], near, far


@quick
@given(batches())
def test_the_gradient_is_that_of_the_mean_loss(batch):
    Z, *pairs = batch
    found, step = _gradient(Z, *pairs), 1e-5
    for at in np.ndindex(*Z.shape):
        up, down = Z.astype(np.float64), Z.astype(np.float64)
        up[at] += step
        down[at] -= step
        slope = (loss(up, *pairs) - loss(down, *pairs)) / (2 * step)
        assert found[at] == pytest.approx(slope, abs=2e-5)


def test_a_gradient_of_many_pairs_is_the_sum_of_its_pieces():
    rng = np.random.default_rng(0)
    Z, nodes = rng.standard_normal((50, 4)).astype(np.float32), np.arange(30)
    near, far = rng.integers(0, 50, (30, 700)), rng.integers(0, 50, (30, 700))
    whole = _gradient(Z, nodes, near, far)
    single = [_gradient(Z, nodes[[i]], near[[i]], far[[i]]) for i in range(30)]
    assert np.allclose(whole, np.mean(single, axis=0), atol=1e-6)


def test_steps_are_those_of_adam():
    rng = np.random.default_rng(0)
    Z, slopes = rng.standard_normal((5000, 2)), rng.standard_normal((4, 5000, 2))
    adam = _Adam.of(Z.astype(np.float32), 0.1)
    mean, square = np.zeros_like(Z), np.zeros_like(Z)
    for t, slope in enumerate(slopes, start=1):
        adam.step(slope.astype(np.float32))
        mean, square = 0.9 * mean + 0.1 * slope, 0.999 * square + 0.001 * slope**2
        Z = Z - 0.1 * (mean / (1 - 0.9**t)) / np.sqrt(square / (1 - 0.999**t))
    assert np.allclose(adam.vectors, Z, atol=1e-3)


def test_skip_gram_asks_for_contexts_once_an_epoch_and_pulls_them_together():
    asked, told = [], []
    pairs = np.array([[1], [0], [3], [2], [-1]])
    vectors = skip_gram(
        lambda rng: asked.append(rng) or pairs,
        5,
        rank=4,
        negative=2,
        epochs=60,
        learning_rate=0.05,
        seed=3,
        progress=lambda *at: told.append(at),
    )
    assert len(asked) == 60
    assert told == [(epoch, 60) for epoch in range(1, 61)]
    products = vectors @ vectors.T
    assert min(products[0, 1], products[2, 3]) > products[:2, 2:4].max()


# Scores of pairs.


@given(st.integers(0, 2**32))
def test_cosines_are_products_of_vectors_of_length_one(seed):
    rng = np.random.default_rng(seed)
    Z, pairs = rng.standard_normal((6, 3)), rng.integers(0, 6, (9, 2))
    Z[0] = 0
    unit = Z / np.maximum(np.linalg.norm(Z, axis=1, keepdims=True), 1e-300)
    assert np.allclose(pair_scores(Z, pairs), [Z[u] @ Z[v] for u, v in pairs])
    assert np.allclose(pair_scores(Z, pairs, score="cosine"), [unit[u] @ unit[v] for u, v in pairs])


# What the runs share.


def test_functions_and_modules_of_one_name_can_both_be_had():
    for module, name in ((netmf, "netmf"), (node2vec, "node2vec")):
        assert getattr(fastgrl.baselines, name) is getattr(module, name)
        assert callable(module.run)


@each_method
def test_a_run_scores_test_edges_before_test_non_edges(method, small):
    found = method.run(small)
    assert found.scores.shape == (len(small.test) + len(small.test_negatives),)
    assert np.isfinite(found.scores).all()
    assert auc(found, small) > 75
    assert found.predictions is None
    assert found.validation is None
    assert 0 < found.seconds["train"] <= found.seconds["total"]
    assert found.peak_memory_bytes > 10**7
    assert found.epochs == (10 if method is node2vec else None)


@each_method
def test_settings_are_all_of_a_runs_arguments(method, small):
    names = set(inspect.signature(method.run).parameters) - {"dataset", "threads", "progress"}
    kept = method.run(small, seed=4, rank=3).settings
    assert set(kept) == names
    assert (kept["seed"], kept["rank"]) == (4, 3)
    assert json.loads(json.dumps(plain(kept))) == kept


@each_method
def test_the_test_pairs_are_looked_at_for_nothing_but_their_scores(method, small):
    whole = method.run(small).scores
    fewer = LinkDataset("fewer", small.graph, None, None, small.test_negatives[:3], small.test[5:7, ::-1])
    m = len(small.test)
    assert (method.run(fewer).scores == np.concatenate([whole[m : m + 3], whole[5:7]])).all()


@each_method
def test_runs_give_the_same_bits_for_any_number_of_threads_and_touch_no_global_state(method, small):
    before = np.random.get_state()[1].copy()  # noqa: NPY002
    one, *others = (method.run(small, seed=5, threads=threads).scores for threads in (1, 1, 2, 3))
    assert all((one == other).all() for other in others)
    assert (np.random.get_state()[1] == before).all()  # noqa: NPY002


@each_method
def test_runs_report_their_progress(method, small):
    told = []
    method.run(small, progress=lambda *at: told.append(at))
    assert told[-1] == ((10, 10) if method is node2vec else (300, 300))


@each_method
def test_a_node_without_edges_scores_zero(method):
    graph = Graph.from_codes([0, 1, 2, 2], [1, 2, 0, 3], num_nodes=6)
    data = LinkDataset("lonely", graph, None, None, np.array([[0, 3]]), np.array([[4, 1], [5, 4]]))
    for score in ("dot", "cosine"):
        scores = method.run(data, rank=3, score=score).scores
        assert scores[0] != 0
        assert (scores[1:] == 0).all()


@each_method
def test_no_test_pairs_give_no_scores(method, small):
    none = np.empty((0, 2), np.int64)
    assert method.run(LinkDataset("none", small.graph, None, None, none, none), rank=2).scores.shape == (0,)


@each_method
@pytest.mark.parametrize(
    "wrong",
    [{"seed": -1}, {"rank": 0}, {"window": 0}, {"negative": 0}, {"score": "angle"}, {"threads": 0}],
    ids=lambda wrong: next(iter(wrong)),
)
def test_a_wrong_argument_is_refused(method, wrong, small):
    with pytest.raises(ArgumentError, match=next(iter(wrong))):
        method.run(small, **wrong)


@pytest.mark.parametrize(
    "wrong",
    [
        {"epochs": 0},
        {"walks_per_node": 0},
        {"p": 0},
        {"q": np.inf},
        {"learning_rate": 0},
        {"batch_size": 0},
        {"scale": "1"},
    ],
    ids=lambda wrong: next(iter(wrong)),
)
def test_a_wrong_argument_of_node2vec_is_refused(wrong, small):
    with pytest.raises(ArgumentError, match=next(iter(wrong))):
        node2vec.run(small, **wrong)


@pytest.mark.parametrize("method", [netmf, netmf_eigen])
def test_netmf_refuses_directions_and_too_large_a_matrix(method, small):
    directed = Graph.from_codes([0], [1], directed=True)
    pairs = np.array([[0, 1]])
    with pytest.raises(ArgumentError, match="directed=False"):
        method.run(LinkDataset("directed", directed, None, None, pairs, pairs), rank=1)
    with pytest.raises(ArgumentError, match="max_memory is 1 kB"):
        method.run(small, max_memory=1000)


# Each on its own.


def test_netmf_by_eigenpairs_is_the_same_from_a_sparse_matrix(small):
    settings = {"negative": 20.0, "eigenpairs": 40, "rank": 8}
    dense = netmf_eigen.run(small, **settings).scores
    limit = 4 * small.graph.num_nodes**2 - 1
    assert np.allclose(netmf_eigen.run(small, **settings, max_memory=limit).scores, dense, atol=1e-4)


def test_node2vec_by_numpy_needs_no_extra_and_is_what_a_run_trains(small):
    vectors = node2vec.node2vec(small.graph, engine="numpy", epochs=2, seed=3, n_threads=2)
    assert vectors.shape == (300, 64)
    assert vectors.dtype == np.float32
    scores = node2vec.run(small, epochs=2, seed=3).scores
    assert (pair_scores(vectors, small.test) == scores[: len(small.test)]).all()


def test_p_and_q_change_the_vectors(small):
    one, other = (node2vec.run(small, epochs=1, q=q).scores for q in (1.0, 0.1))
    assert (one != other).any()


def test_directed_walks_that_end_early_are_trained_on():
    chain = Graph.from_codes([0, 1, 2], [1, 2, 3], num_nodes=5, directed=True)
    vectors = node2vec.node2vec(chain, 4, window=3, length=5, engine="numpy")
    assert vectors.any(1).tolist() == [True] * 4 + [False]
    assert not node2vec.node2vec(Graph.from_codes([], [], num_nodes=3), 4, engine="numpy").any()


@pytest.mark.parametrize(
    ("method", "changed", "published"),
    [
        (netmf, {"rank": 128}, 73.6),
        (netmf_eigen, {"rank": 128, "eigenpairs": 64}, 63.6),
    ],
)
def test_netmf_as_released_has_its_published_score(method, changed, published):
    data = load_dataset("ppi")
    assert auc(method.run(data, **changed), data) == pytest.approx(published, abs=0.6)


def test_node2vec_reaches_its_published_score():
    data = load_dataset("ppi")
    assert auc(node2vec.run(data, threads=2), data) > 83.1 - 1.5
