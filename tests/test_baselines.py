from __future__ import annotations

import importlib.util
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from fastgrl.baselines import netmf, node2vec, random_walks
from fastgrl.baselines.netmf import _largest_eigenpairs, window_filter
from fastgrl.datasets import load_dataset
from fastgrl.errors import ArgumentError, MissingExtraError
from fastgrl.graph import Graph
from fastgrl.metrics import roc_auc

quick = settings(max_examples=40, deadline=None)
needs_gensim = pytest.mark.skipif(importlib.util.find_spec("gensim") is None, reason="gensim is an extra")


@st.composite
def graphs(draw, directed=None, max_nodes=9):
    n = draw(st.integers(2, max_nodes))
    codes = draw(st.lists(st.tuples(*[st.integers(0, n - 1)] * 2), min_size=1, max_size=20))
    weights = draw(st.none() | st.lists(st.floats(0.1, 10), min_size=len(codes), max_size=len(codes)))
    one, other = np.array(codes).T
    kind = draw(st.booleans()) if directed is None else directed
    return Graph.from_codes(one, other, weights=weights, num_nodes=n, directed=kind)


def random_graph(seed, n=30, m=80):
    rng = np.random.default_rng(seed)
    return Graph.from_codes(*rng.integers(0, n, (2, m)), num_nodes=n)


def lazy(graph):
    """The same graph with loops as heavy as all other edges: no eigenvalue of its walk is negative."""
    A = graph.to_scipy().toarray().astype(float)
    np.fill_diagonal(A, 0)
    A += np.diag(A.sum(1))
    return Graph.from_scipy(A * (A > 0))


def inverse(d):
    return np.divide(1.0, d, out=np.zeros_like(d), where=d > 0)


def dense_netmf(graph, window, negative):
    A, d = graph.to_scipy().toarray().astype(float), graph.degrees
    T = inverse(d)[:, None] * A
    total = sum(np.linalg.matrix_power(T, r) for r in range(1, window + 1))
    return np.log(np.maximum(1, d.sum() / (negative * window) * total * inverse(d)))


def products(M, rank):
    U, s, _ = np.linalg.svd(M)
    return (U[:, :rank] * s[:rank]) @ U[:, :rank].T


def dot(vectors, pairs):
    return (vectors[pairs[:, 0]] * vectors[pairs[:, 1]]).sum(1)


def auc_on_test(vectors, data):
    return 100 * roc_auc(dot(vectors, data.test), dot(vectors, data.test_negatives))


# Random walks.


@quick
@given(graphs(), st.integers(1, 6), st.sampled_from([(1, 1), (0.01, 1), (1, 0.05), (50, 100), (1e6, 1e9)]))
def test_walks_use_edges_only_and_end_only_where_no_edge_leaves(graph, length, biases):
    walks = random_walks(graph, length=length, walks_per_node=3, p=biases[0], q=biases[1])
    n = graph.num_nodes
    assert walks.shape == (3 * n, length)
    assert (walks[:, 0] == np.tile(np.arange(n), 3)).all()
    for here, there in zip(walks.T, walks.T[1:], strict=False):
        assert graph.has_edges(here[there >= 0], there[there >= 0]).all()
        assert (np.diff(graph.indptr)[here[(here >= 0) & (there < 0)]] == 0).all()
        assert (there[here < 0] == -1).all()


@quick
@given(graphs(), st.integers(0, 2**64), st.sampled_from([1.0, 0.25]))
def test_the_same_seed_gives_the_same_walks(graph, seed, q):
    one, other = (random_walks(graph, length=5, walks_per_node=2, q=q, seed=seed) for _ in range(2))
    assert (one == other).all()


def test_another_seed_gives_other_walks():
    graph = random_graph(0)
    one, other = (random_walks(graph, length=9, walks_per_node=2, seed=seed) for seed in (0, 1))
    assert (one != other).any()


def chances(graph, walks, at, came_from=None):
    """How often each neighbour of `at` came next, in walks that came from `came_from`."""
    i = 0 if came_from is None else 1
    chosen = walks[:, i] == at if came_from is None else (walks[:, 0] == came_from) & (walks[:, 1] == at)
    return np.bincount(walks[chosen, i + 1], minlength=graph.num_nodes)


def agree(counts, shares):
    """Pearson's test does not reject, and what cannot happen did not."""
    possible = shares > 0
    expected = shares[possible] / shares.sum() * counts.sum()
    assert counts[~possible].sum() == 0
    assert stats.chisquare(counts[possible], expected).pvalue > 1e-3


def test_the_first_step_is_uniform():
    graph = random_graph(1)
    walks = random_walks(graph, length=2, walks_per_node=2000)
    for node in np.flatnonzero(graph.degrees > 1):
        agree(chances(graph, walks, node), graph.to_scipy().toarray()[node].astype(float))


@pytest.mark.parametrize("scale", [1.0, 1e-290, 1e290])
def test_steps_follow_weights_of_any_size(scale):
    weights = np.array([3.0, 1.0, 0.5, 0.0, 2.0])
    graph = Graph.from_codes([0, 0, 0, 0, 5], [1, 2, 3, 4, 6], weights=weights * [*[scale] * 4, 1.0])
    walks = random_walks(graph, length=2, walks_per_node=20_000)
    agree(chances(graph, walks, 0), np.array([0, *weights[:4], 0, 0]))
    assert (chances(graph, walks, 5) > 0).tolist() == [False] * 6 + [True]
    assert chances(graph, walks[walks[:, 1] < 0][:, [0, 0]], 4)[4] == 20_000, "no weight leads away from 4"


# The last two make nearly every proposal fail, so that walkers choose from a list.
@pytest.mark.parametrize("biases", [(0.25, 4.0), (4.0, 0.5), (30.0, 60.0), (3000.0, 6000.0)])
@pytest.mark.parametrize("weighted", [False, True])
def test_the_second_step_follows_p_and_q(biases, weighted):
    p, q = biases
    pairs = np.array([(0, 1), (1, 2), (0, 2), (1, 3), (1, 4), (1, 5), (5, 0), (6, 1)])
    weights = np.arange(1.0, 9) if weighted else None
    graph = Graph.from_codes(*pairs.T, weights=weights)
    walks = random_walks(graph, length=3, walks_per_node=8_000, p=p, q=q)
    A = graph.to_scipy().toarray().astype(float)
    for came_from in (0, 3):
        bias = np.where(A[came_from] > 0, 1.0, 1 / q)
        bias[came_from] = 1 / p
        agree(chances(graph, walks, 1, came_from), A[1] * bias)


def test_a_graph_without_edges_has_walks_of_one_node():
    walks = random_walks(Graph.from_codes([], [], num_nodes=3), length=4, walks_per_node=2)
    assert (walks[:, 0] == [0, 1, 2, 0, 1, 2]).all()
    assert (walks[:, 1:] == -1).all()
    assert random_walks(Graph.from_codes([], []), length=4, walks_per_node=2).shape == (0, 4)


# node2vec.


@needs_gensim
def test_node2vec_is_reproducible_and_touches_no_global_state():
    graph = random_graph(2)
    before = np.random.get_state()[1].copy()  # noqa: NPY002
    one, other, third = (node2vec(graph, 8, epochs=2, seed=seed) for seed in (5, 5, 6))
    assert (one == other).all()
    assert (one != third).any()
    assert (np.random.get_state()[1] == before).all()  # noqa: NPY002


@needs_gensim
def test_node2vec_keeps_the_order_of_nodes_and_gives_lonely_ones_zeros():
    clique = np.array([(u, v) for u in range(6) for v in range(u)])
    codes = np.concatenate([clique, clique + 7])
    vectors = node2vec(Graph.from_codes(*codes.T, num_nodes=14), 8, window=4, epochs=30)
    assert vectors.shape == (14, 8)
    assert vectors.dtype == np.float32
    assert not vectors[[6, 13]].any()
    cosine = vectors[vectors.any(1)]
    cosine /= np.linalg.norm(cosine, axis=1, keepdims=True)
    inside, across = cosine[:6] @ cosine[:6].T, cosine[:6] @ cosine[6:].T
    assert inside.mean() > across.mean() + 0.1


@needs_gensim
def test_node2vec_reports_every_epoch():
    told = []
    node2vec(random_graph(3), 4, epochs=3, progress=lambda *at: told.append(at))
    assert told == [(1, 3), (2, 3), (3, 3)]


@needs_gensim
def test_node2vec_of_a_graph_without_edges_is_zero():
    assert not node2vec(Graph.from_codes([], [], num_nodes=3), 4).any()


@needs_gensim
def test_node2vec_walks_may_end_early():
    chain = Graph.from_codes([0, 1, 2], [1, 2, 3], directed=True)
    assert node2vec(chain, 4, window=3, length=5).any(1).all()


@needs_gensim
def test_node2vec_comes_near_its_published_score():
    data = load_dataset("ppi")
    assert abs(auc_on_test(node2vec(data.graph, window=5), data) - 83.1) < 3


def test_node2vec_without_gensim_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "gensim.models", None)
    with pytest.raises(MissingExtraError, match=r"fastgrl\[baselines\]"):
        node2vec(random_graph(0))


@pytest.mark.parametrize(
    "wrong",
    [{"length": 0}, {"walks_per_node": 0}, {"p": 0}, {"q": -1}, {"p": np.inf}, {"q": "2"}, {"seed": -1}],
)
def test_wrong_walks_are_refused(wrong):
    with pytest.raises(ArgumentError, match=next(iter(wrong))):
        random_walks(random_graph(0), **{"length": 3, "walks_per_node": 1} | wrong)


@pytest.mark.parametrize(
    "wrong",
    [
        {"rank": 0},
        {"window": 0},
        {"epochs": 0},
        {"negative": 0},
        {"n_threads": 0},
        {"length": 1},
        {"engine": "x"},
    ],
)
def test_a_wrong_node2vec_is_refused(wrong):
    if importlib.util.find_spec("gensim") is None and "length" in wrong:
        return
    with pytest.raises(ArgumentError, match=next(iter(wrong))):
        node2vec(random_graph(0), **wrong)


# NetMF.


@quick
@given(graphs(directed=False), st.integers(1, 6), st.sampled_from([0.5, 1.0, 5.0]))
def test_exact_netmf_factorises_the_formula(graph, window, negative):
    n = graph.num_nodes
    vectors = netmf(graph, n, window=window, negative=negative)
    assert vectors.dtype == np.float32
    M = dense_netmf(graph, window, negative)
    assert np.allclose(vectors @ vectors.T, products(M, n), atol=2e-4 * max(1, abs(M).max()))


@pytest.mark.parametrize("seed", range(5))
def test_exact_netmf_is_the_best_approximation_of_its_rank(seed):
    graph = random_graph(seed, n=60, m=200)
    M = dense_netmf(graph, 4, 1.0)
    vectors = netmf(graph, 8, window=4)
    exact = np.sqrt((np.linalg.svd(M, compute_uv=False)[8:] ** 2).sum())
    coded = vectors / np.maximum(np.linalg.norm(vectors, axis=0), 1e-12)
    assert np.linalg.norm(M - coded @ (coded.T @ M)) == pytest.approx(exact, rel=1e-3)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("window", [1, 2, 5])
def test_with_all_eigenpairs_the_variants_agree_if_none_is_negative(seed, window):
    graph = lazy(random_graph(seed))
    exact, eigen = (netmf(graph, 30, window=window, variant=variant) for variant in ("exact", "eigen"))
    assert np.allclose(exact @ exact.T, eigen @ eigen.T, atol=1e-3)


@quick
@given(graphs(directed=False), st.integers(1, 6))
def test_the_eigen_variant_clips_negative_eigenvalues(graph, window):
    n, d = graph.num_nodes, graph.degrees
    roots = np.sqrt(inverse(d))
    values, U = np.linalg.eigh(roots[:, None] * graph.to_scipy().toarray() * roots)
    kept = np.maximum(sum(values**r for r in range(1, window + 1)) / window, 0)
    half = roots[:, None] * U * np.sqrt(d.sum() * kept)
    M = half @ half.T
    found = netmf(graph, n, window=window, variant="eigen")
    assert np.allclose(
        found @ found.T, products(np.log(np.maximum(M, 1)), n), atol=2e-3 * max(1, abs(M).max())
    )


def test_few_eigenpairs_by_lanczos_are_the_largest():
    graph = random_graph(4, n=200, m=900)
    roots = np.sqrt(inverse(graph.degrees))
    values = np.linalg.eigvalsh(roots[:, None] * graph.to_scipy().toarray() * roots)
    found, U = _largest_eigenpairs(graph, 20, 0)
    assert np.allclose(np.sort(found), values[-20:], atol=1e-6)
    assert np.allclose(U.T @ U, np.eye(20), atol=1e-6)


@given(st.floats(-1, 1), st.integers(1, 30))
def test_the_window_filter_is_the_mean_of_powers_clipped(x, window):
    mean = sum(x**r for r in range(1, window + 1)) / window
    assert window_filter(np.array([x]), window)[0] == pytest.approx(max(mean, 0), abs=1e-12)


@pytest.mark.parametrize("variant", ["exact", "eigen"])
@pytest.mark.parametrize("seed", range(3))
def test_netmf_does_not_depend_on_node_numbers(variant, seed):
    graph = random_graph(seed)
    order = np.random.default_rng(seed).permutation(30)
    codes = graph.edge_codes()
    renamed = Graph.from_codes(order[codes[:, 0]], order[codes[:, 1]], num_nodes=30)
    one, other = (netmf(g, 30, window=3, variant=variant) for g in (graph, renamed))
    assert np.allclose(one @ one.T, (other @ other.T)[np.ix_(order, order)], atol=1e-3)


@pytest.mark.parametrize("variant", ["exact", "eigen"])
def test_netmf_is_reproducible_and_gives_lonely_nodes_zeros(variant):
    graph = Graph.from_codes([0, 1, 2, 2], [1, 2, 0, 3], num_nodes=6)
    one, other = (netmf(graph, 3, variant=variant, seed=7) for _ in range(2))
    assert (one == other).all()
    assert not one[[4, 5]].any()
    assert not netmf(Graph.from_codes([], [], num_nodes=3), 2, variant=variant).any()


def test_netmf_reports_its_rows():
    told = []
    netmf(random_graph(0, n=700, m=2000), 4, progress=lambda *at: told.append(at))
    assert told == [(512, 700), (700, 700)]


@pytest.mark.parametrize(("name", "least", "most"), [("soc-facebook", 96, 99), ("ppi", 70.6, 76.6)])
def test_exact_netmf_comes_near_its_published_score(name, least, most):
    data = load_dataset(name)
    assert least < auc_on_test(netmf(data.graph, window=5), data) < most


@pytest.mark.parametrize(
    "wrong",
    [
        {"rank": 0},
        {"rank": 31},
        {"window": 0},
        {"negative": 0},
        {"negative": np.nan},
        {"negative": "1"},
        {"variant": "large"},
        {"eigenpairs": 0},
        {"seed": -1},
        {"max_memory": 0},
    ],
)
def test_a_wrong_netmf_is_refused(wrong):
    with pytest.raises(ArgumentError, match=next(iter(wrong))):
        netmf(random_graph(0), **{"rank": 4} | wrong)


def test_netmf_refuses_directed_graphs():
    with pytest.raises(ArgumentError, match="directed=False"):
        netmf(Graph.from_codes([0], [1], directed=True), 1)


@pytest.mark.parametrize("variant", ["exact", "eigen"])
def test_netmf_refuses_a_matrix_that_is_too_large_and_says_its_size(variant):
    with pytest.raises(ArgumentError, match=r"takes [\d.]+ kB, max_memory is 1 kB"):
        netmf(random_graph(0), 2, variant=variant, max_memory=1000)


def test_netmf_exact_refuses_before_it_allocates():
    with pytest.raises(ArgumentError, match="40 TB"):
        netmf(Graph.from_codes([0], [1], num_nodes=3_162_278), 2)
