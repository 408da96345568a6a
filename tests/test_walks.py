from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from graph_cases import dataset
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from split_cases import build, graphs, path

import fastgrl as fg
from fastgrl import kernels, polynomials
from fastgrl.errors import ArgumentError, DtypeError, NotFiniteError, ShapeError
from fastgrl.graph import Graph
from fastgrl.metrics import roc_auc
from fastgrl.walks import as_released, degree_power, degree_walk, factorise, fold_in, walk, window_weights

relaxed = settings(max_examples=40, deadline=None)
WINDOWS = st.integers(1, 6)
NEGATIVES = st.sampled_from([0.0, 0.02, 1.0, 3.0])
DESIGNS = ["walk", "degree-walk"]
MAKERS = {"walk": walk, "degree-walk": degree_walk}


def parts(graph):
    """A, D and T of the graph as dense arrays."""
    A = graph.to_scipy().toarray().astype(float)
    d = A.sum(1)
    return A, np.diag(d), np.divide(A, d[:, None], out=np.zeros_like(A), where=d[:, None] > 0)


def links(name):
    return fg.load_dataset(name, folder=dataset("asymproj").parent, download=False)


def hops(T, window):
    return sum((window - i) * np.linalg.matrix_power(T, i + 1) if T.size else 0 * T for i in range(window))


def dense(graph, design, window, negative):
    A, D, T = parts(graph)
    rest = negative * (np.ones_like(A) - A)
    return (D if design == "degree-walk" else np.eye(len(A))) @ hops(T, window) - rest


def products(operator, X, monkeypatch):
    """Passes over the matrix, by whichever kernel makes them."""
    count = [0]

    def counted(function):
        def call(*args, **kwargs):
            count[0] += 1
            return function(*args, **kwargs)

        return call

    with monkeypatch.context() as patch:
        passes = counted(kernels.pass_over)
        patch.setattr(kernels, "pass_over", passes)
        patch.setattr(polynomials, "pass_over", passes)
        patch.setattr(kernels, "_multiply_by_scipy", counted(kernels._multiply_by_scipy))
        operator @ X
    return count[0]


@relaxed
@given(graphs(), st.sampled_from(DESIGNS), WINDOWS, NEGATIVES)
def test_every_operator_equals_its_formula_and_its_transpose(graph, design, window, negative):
    M = MAKERS[design](graph, window=window, negative=negative, dtype="float64")
    expected = dense(graph, design, window, negative)
    eye = np.eye(graph.num_nodes)
    assert np.allclose(M @ eye, expected)
    assert np.allclose(M.T @ eye, expected.T)
    assert M.shape == M.T.shape == expected.shape


@relaxed
@given(graphs(least_nodes=1), st.sampled_from(DESIGNS), WINDOWS, NEGATIVES, st.integers(0, 99))
def test_the_inner_product_law_holds_in_float32(graph, design, window, negative, seed):
    M = MAKERS[design](graph, window=window, negative=negative)
    u, v = np.random.default_rng(seed).standard_normal((2, graph.num_nodes, 1)).astype(np.float32)
    Mu, Mv = M @ u, M.T @ v
    size = np.abs(dense(graph, design, window, negative)).sum()
    assert Mu.dtype == Mv.dtype == np.float32
    assert abs(float((Mu.T @ v - u.T @ Mv).item())) <= 1e-5 * size * np.abs(u).max() * np.abs(v).max()


@relaxed
@given(graphs(), WINDOWS, NEGATIVES)
def test_degree_walk_is_symmetric_when_undirected(graph, window, negative):
    assume(not graph.directed)
    M = degree_walk(graph, window=window, negative=negative, dtype="float64")
    X = M @ np.eye(graph.num_nodes)
    assert np.allclose(X, X.T)


@relaxed
@given(graphs(), WINDOWS, NEGATIVES)
def test_as_released_has_the_two_published_products(graph, window, negative):
    assume(not graph.directed)
    A, D, T = parts(graph)
    rest, eye = negative * (np.ones_like(A) - A), np.eye(len(A))
    M = as_released(graph, window=window, negative=negative, dtype="float64")
    assert np.allclose(M @ eye, hops(T, window) @ D - rest)
    assert np.allclose(M.T @ eye, D @ hops(T, window) - rest)


@relaxed
@given(graphs(), st.sampled_from([0.0, 0.25, 0.5, 1.0]))
def test_degree_power_equals_its_formula(graph, power):
    A = parts(graph)[0]
    left, right = (np.where(d > 0, d, np.inf) ** -power * (d > 0) for d in (A.sum(1), A.sum(0)))
    M = degree_power(graph, power=power, dtype="float64")
    expected = left[:, None] * A * right
    assert np.allclose(M @ np.eye(len(A)), expected)
    assert np.allclose(M.T @ np.eye(len(A)), expected.T)


@relaxed
@given(graphs(least_nodes=1), st.integers(-100, 100), WINDOWS)
def test_weights_times_a_power_of_two_leave_the_walks_as_they_are(graph, exponent, window):
    assume(graph.weights is not None)
    scaled = graph.with_edges(graph.edge_codes(), weights=graph.edge_weights() * 2.0**exponent)
    X = np.eye(graph.num_nodes, dtype=np.float32)
    one, other = (walk(g, window=window, negative=0.0) @ X for g in (graph, scaled))
    assert (one == other).all()


@pytest.mark.parametrize("window", [1, 2, 5])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("directed", [False, True])
def test_a_window_of_c_costs_c_products(window, weighted, directed, monkeypatch):
    rng = np.random.default_rng(0)
    u, v = np.nonzero(rng.random((9, 9)) < 0.4)
    graph = build(u, v, 9, directed=directed, weighted=weighted, rng=rng)
    X = np.ones((9, 2), np.float32)
    for make in MAKERS.values():
        M = make(graph, window=window)
        assert products(M, X, monkeypatch) == window
        assert products(M.T, X, monkeypatch) == window
    if not directed:
        M = degree_walk(graph, window=window)
        assert (M @ X == M.T @ X).all()


def test_window_weights_fall_to_one():
    assert window_weights(4).tolist() == [4, 3, 2, 1]


@relaxed
@given(graphs(least_nodes=3), st.sampled_from(DESIGNS), WINDOWS, st.integers(1, 3))
def test_the_factors_are_those_of_the_best_approximation(graph, design, window, rank):
    M = dense(graph, design, window, 1.0)
    s = np.linalg.svd(M, compute_uv=False)
    factors = factorise(graph, design, rank=rank, window=window, negative=1.0, n_iter=20)
    assert factors.left.shape == factors.right.shape == (graph.num_nodes, rank)
    rest = np.linalg.norm(M - factors.left.astype(float) @ factors.right.T)
    assert rest <= np.sqrt((s[rank:] ** 2).sum()) + 1e-4 * s[0] + 1e-6


def test_a_warm_start_loses_nothing_in_fewer_rounds():
    graph = fg.load_dataset("digits").graph
    first = factorise(graph, "degree-walk", rank=6)
    again = factorise(graph, "degree-walk", rank=6, start=first.svd, n_iter=2)
    assert (again.svd.s >= (1 - 1e-5) * first.svd.s).all()
    assert fg.certificate(first.operator, first.svd).complete


@relaxed
@given(graphs(least_nodes=3), st.sampled_from(DESIGNS), WINDOWS, NEGATIVES, st.integers(1, 3))
def test_a_copy_of_a_node_folds_in_to_its_own_vectors(graph, design, window, negative, rank):
    M = dense(graph, design, window, negative)
    U, s, Vt = np.linalg.svd(M)
    keep = max(1, min(rank, int((s > 1e-8 * s[0]).sum())))
    root = np.sqrt(s[:keep])
    svd = fg.SVD(U[:, :keep], s[:keep], Vt[:keep])
    factors = fg.walks.Factors(fg.Matrix(M), svd, svd.U * root, svd.Vt.T * root)
    A = graph.to_scipy().astype(float)
    incoming = {"incoming": A.T.tocsr()} if graph.directed else {}
    left, right, trust = fold_in(
        factors, graph, new=A, design=design, window=window, negative=negative, **incoming
    )
    touched = (A.toarray().sum(1) + A.toarray().sum(0) > 0)[:, None]
    scale = np.abs(M).max() + 1
    assert np.allclose(left, touched * factors.left, atol=1e-5 * scale)
    assert np.allclose(right, touched * factors.right, atol=1e-5 * scale)
    assert ((trust >= 0) & (trust <= 1)).all()
    assert (trust[~touched[:, 0]] == 0).all()


@relaxed
@given(graphs(least_nodes=3), st.sampled_from(DESIGNS), WINDOWS, st.integers(0, 99))
def test_at_full_rank_a_new_node_gets_its_exact_row_and_column(graph, design, window, seed):
    n, rng = graph.num_nodes, np.random.default_rng(seed)
    M = dense(graph, design, window, 1.0)
    U, s, Vt = np.linalg.svd(M)
    assume(s[-1] > 1e-6 * s[0])
    factors = fg.walks.Factors(fg.Matrix(M), fg.SVD(U, s, Vt), U * np.sqrt(s), Vt.T * np.sqrt(s))
    a, back = (rng.integers(0, 3, (2, n)) * (rng.random((2, n)) < 0.5) for _ in range(2))
    _, D, T = parts(graph)
    incoming = {"incoming": sp.csr_array(back)} if graph.directed else {}
    into = back if graph.directed else a
    left, right, trust = fold_in(
        factors, graph, new=sp.csr_array(a), design=design, window=window, negative=1.0, **incoming
    )
    H = sum((window - i) * np.linalg.matrix_power(T, i) for i in range(window))
    inverse = np.divide(1, D.diagonal(), out=np.zeros(n), where=D.diagonal() > 0)
    for u in range(2):
        if not a[u].any() and not into[u].any():
            assert not left[u].any()
            assert not right[u].any()
            assert trust[u] == 0
            continue
        row, column = a[u] / max(a[u].sum(), 1) @ H, H @ (inverse * into[u])
        if design == "degree-walk":
            row = a[u].sum() * row
            column = D @ column if graph.directed else row
        assert np.allclose(left[u] @ factors.right.T, row - (1 - a[u]), atol=1e-5)
        assert np.allclose(factors.left @ right[u], column - (1 - into[u]), atol=1e-5)
        assert trust[u] == pytest.approx(1) or not (row - (1 - a[u])).any()


def test_panels_change_nothing(monkeypatch):
    graph = fg.load_dataset("digits").graph
    factors = factorise(graph, rank=6)
    new = graph.to_scipy()[:50]
    whole = fold_in(factors, graph, new=new)
    monkeypatch.setattr(fg.walks, "_PANEL_BYTES", 1)
    for one, other in zip(whole, fold_in(factors, graph, new=new), strict=True):
        assert np.allclose(one, other, rtol=1e-4, atol=1e-5)
    assert [part.shape for part in fold_in(factors, graph, new=new[:0])] == [(0, 6), (0, 6), (0,)]


@pytest.mark.parametrize("design", ["walk", "degree-walk", "as-released"])
def test_nodes_fold_in_near_their_own_vectors_on_a_real_graph(design):
    graph = links("ppi").graph
    factors = factorise(graph, design, rank=32)
    some = np.flatnonzero(graph.degrees)[:200]
    left, right, trust = fold_in(factors, graph, new=graph.to_scipy()[some], design=design)
    for found, own in ((left, factors.left[some]), (right, factors.right[some])):
        assert np.linalg.norm(found - own) < (0.15 if design == "as-released" else 0.01) * np.linalg.norm(own)
    assert 0 < trust.min() <= trust.max() <= 1


PUBLISHED = {
    ("soc-facebook", "walk"): (98.69, 98.9),
    ("soc-facebook", "degree-walk"): (98.83, 98.83),
    ("soc-facebook", "as-released"): (98.69, 98.9),
    ("ppi", "walk"): (84.63, 85.79),
    ("ppi", "degree-walk"): (84.26, 84.26),
    ("ppi", "as-released"): (88.01, 88.98),
}


@pytest.mark.parametrize(("name", "design"), PUBLISHED)
def test_the_published_rows_come_out(name, design):
    data = links(name)
    factors = factorise(data.graph, design, rank=32, window=5)

    def score(pairs):
        return (factors.left[pairs[:, 0]] * factors.right[pairs[:, 1]]).sum(1)

    def auc(scores):
        return 100 * roc_auc(scores(data.test), scores(data.test_negatives))

    found = auc(score), auc(lambda pairs: score(pairs) + score(pairs[:, ::-1]))
    assert found == pytest.approx(PUBLISHED[name, design], abs=0.3)


def outcome(function, *args, **kwargs):
    """What a function returns, or the message of its refusal."""
    try:
        return function(*args, **kwargs)
    except (ArgumentError, NotFiniteError) as error:
        return str(error)


@pytest.mark.parametrize(
    "weights", [(1e-300, 1e-290), (1e-300, 1.0), (1e-3, 1e300), (1e300, 1e300), (1e30, 1)]
)
@pytest.mark.parametrize("design", ["walk", "degree-walk", "as-released"])
@pytest.mark.parametrize("negative", [0.0, 1.0])
def test_extreme_weights_give_finite_answers_or_a_named_refusal(weights, design, negative):
    graph = Graph.from_codes([0, 1, 2, 3, 0], [1, 2, 3, 0, 2], weights=[*weights, min(weights), *weights])
    factors = outcome(factorise, graph, design, rank=2, negative=negative)
    if isinstance(factors, str):
        assert f"the largest weight is {max(weights):.3g}" in factors
        return
    assert np.isfinite(factors.left).all()
    assert np.isfinite(factors.right).all()
    for new in (sp.csr_array([[1.0, 1, 0, 0]]), sp.csr_array([[1e300, 1e-300, 0, 0]])):
        found = outcome(fold_in, factors, graph, new=new, design=design, negative=negative)
        if isinstance(found, str):
            assert f"{new.max():.3g}" in found
        else:
            assert all(np.isfinite(part).all() for part in found)


@pytest.mark.parametrize("weight", [1e-300, 1e-30, 1e30, 1e300])
@pytest.mark.parametrize("power", [0.0, 0.5, 1.0, 2.0])
def test_degree_power_of_extreme_weights_is_finite_or_refused(weight, power):
    graph = Graph.from_codes([0, 1], [1, 2], weights=[weight, 1.0])
    M = outcome(degree_power, graph, power=power)
    if isinstance(M, str):
        assert f"the largest weight is {max(weight, 1):.3g}" in M
    else:
        assert np.isfinite(M @ np.eye(3, dtype=np.float32)).all()


def test_walks_of_large_weights_are_those_of_small_ones():
    graph = fg.load_dataset("digits").graph
    weights = np.random.default_rng(0).random(graph.num_edges)
    small, large = (
        graph.with_edges(graph.edge_codes(), weights=weights * scale) for scale in (1.0, 2.0**900)
    )
    one, other = (factorise(g, rank=4, negative=0.0) for g in (small, large))
    assert (one.left == other.left).all()


def test_wrong_calls_are_named():
    graph, arrows = path(5), Graph.from_codes([0, 1], [1, 2], directed=True)
    for wrong in (
        {"window": 0},
        {"window": 2.5},
        {"negative": -1.0},
        {"negative": np.nan},
        {"negative": "1"},
    ):
        for make in (walk, degree_walk, as_released):
            with pytest.raises(ArgumentError, match=next(iter(wrong))):
                make(graph, **wrong)
    with pytest.raises(ArgumentError, match="too large for float32"):
        walk(graph, negative=1e38)
    with pytest.raises(ArgumentError, match="undirected"):
        as_released(arrows)
    with pytest.raises(ArgumentError, match="power"):
        degree_power(graph, power=np.inf)
    with pytest.raises(DtypeError):
        walk(graph, dtype="float16")
    with pytest.raises(ArgumentError, match="dtype"):
        degree_power(graph, power=1.0, dtype=None)
    with pytest.raises(ArgumentError, match='"degree-walk"'):
        factorise(graph, "drunk", rank=1)
    with pytest.raises(ArgumentError, match="rank"):
        factorise(graph, rank=6)


def test_wrong_new_rows_are_named():
    graph, factors = path(5), factorise(path(5), rank=2)
    with pytest.raises(DtypeError, match="SciPy sparse"):
        fold_in(factors, graph, new=np.ones((1, 5)))
    with pytest.raises(ShapeError, match="5 columns"):
        fold_in(factors, graph, new=sp.csr_array(np.ones((1, 4))))
    with pytest.raises(ArgumentError, match="above 0"):
        fold_in(factors, graph, new=sp.csr_array(-np.ones((1, 5))))
    with pytest.raises(NotFiniteError):
        fold_in(factors, graph, new=sp.csr_array(np.full((1, 5), np.nan)))
    with pytest.raises(ShapeError, match="do not belong"):
        fold_in(factors, path(6), new=sp.csr_array(np.ones((1, 6))))
    with pytest.raises(ArgumentError, match="takes new alone"):
        fold_in(factors, graph, new=sp.csr_array(np.ones((1, 5))), incoming=sp.csr_array(np.ones((1, 5))))
    arrows = Graph.from_codes([0, 1], [1, 2], directed=True)
    with pytest.raises(ArgumentError, match="needs both"):
        fold_in(factorise(arrows, rank=1), arrows, new=sp.csr_array(np.ones((1, 3))))
