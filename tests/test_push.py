"""Forward push: rows of a diffusion, and what is computed from them."""

import hypothesis.strategies as st
import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import example, given, settings

import fastgrl as fg
from fastgrl import diffusion, kernels, push
from fastgrl.diffusion import diffuse, keep_for, log_matrix, overlap_block, overlaps, pmi
from fastgrl.errors import ArgumentError
from fastgrl.parallel import use_threads
from fastgrl.push import KEEP, Walker, epsilon_for, mean_row_length

quick = settings(deadline=None, max_examples=40)


@st.composite
def graphs(draw, *, directed=None, weighted=None, most=12):
    n = draw(st.integers(2, most))
    node = st.integers(0, n - 1)
    edges = draw(st.lists(st.tuples(node, node), min_size=1, max_size=4 * n))
    weights = None
    if draw(st.booleans()) if weighted is None else weighted:
        weights = draw(st.lists(st.floats(0.125, 8), min_size=len(edges), max_size=len(edges)))
    way = draw(st.booleans()) if directed is None else directed
    return fg.Graph.from_codes(
        [u for u, _ in edges], [v for _, v in edges], weights=weights, num_nodes=n, directed=way
    )


def transition(graph, *, backward=False):
    A = graph.to_scipy().toarray().astype(float)
    A = A.T if backward else A
    sums = A.sum(1, keepdims=True)
    return A / np.where(sums > 0, sums, 1)


def exact_rows(graph, damping, *, backward=False):
    """(1 − a)(I − aT)⁻¹."""
    T = transition(graph, backward=backward)
    return (1 - damping) * np.linalg.inv(np.eye(len(T)) - damping * T)


@quick
@given(graphs(), st.sampled_from([0.5, 0.85]))
def test_rows_are_those_of_the_exact_diffusion(graph, damping):
    walker = Walker.of(graph, damping=damping, epsilon=1e-7)
    rows = walker.rows(np.arange(graph.num_nodes, dtype=np.int32)).as_scipy.toarray()
    np.testing.assert_allclose(rows, exact_rows(graph, damping), atol=2e-5)


@quick
@example(fg.Graph.from_codes([0, 0, 1], [0, 1, 1], weights=[6.0, 0.125, 5.0]), 1e-2)
@given(graphs(), st.sampled_from([1e-2, 1e-4]))
def test_what_is_left_unpushed_is_below_epsilon_times_the_degree(graph, epsilon):
    walker = Walker.of(graph, damping=0.85, epsilon=epsilon)
    rows = walker.rows(np.arange(graph.num_nodes, dtype=np.int32)).as_scipy.toarray()
    # p = π − a r T(…): each unpushed residual moves at most a r of mass on.
    error = np.abs(rows - exact_rows(graph, 0.85)).sum(1)
    assert (error <= 2 * epsilon * walker.degrees.sum() + 1e-5).all()


@quick
@given(graphs())
def test_compiled_and_scipy_rows_agree(graph):
    sources = np.arange(graph.num_nodes, dtype=np.int32)
    walker = Walker.of(graph, damping=0.7, epsilon=1e-5)
    counts, columns, values = walker._chunk_by_scipy(sources)
    found = sp.csr_array((values, columns, np.r_[0, np.cumsum(counts)]), shape=(graph.num_nodes,) * 2)
    np.testing.assert_allclose(found.toarray(), walker.rows(sources).as_scipy.toarray(), atol=1e-4)


@quick
@given(graphs(weighted=True), st.integers(-40, 40))
def test_the_unit_of_weights_does_not_matter(graph, exponent):
    scaled = graph.with_edges(graph.edge_codes(), weights=graph.edge_weights() * 2.0**exponent)
    one, other = (diffuse(g, damping=0.85) for g in (graph, scaled))
    assert (one.left.as_scipy != other.left.as_scipy).nnz == 0
    assert (one.out_degrees == other.out_degrees).all()


@quick
@given(graphs(directed=False), st.randoms(use_true_random=False))
def test_relabelling_permutes_the_rows(graph, random):
    order = list(range(graph.num_nodes))
    random.shuffle(order)
    place = np.argsort(order)
    codes = place[graph.edge_codes()]
    other = fg.Graph.from_codes(
        codes[:, 0], codes[:, 1], weights=graph.edge_weights(), num_nodes=graph.num_nodes
    )
    one = diffuse(graph, damping=0.85, epsilon=1e-6).left.as_scipy.toarray()
    two = diffuse(other, damping=0.85, epsilon=1e-6).left.as_scipy.toarray()
    np.testing.assert_allclose(two, one[np.ix_(order, order)], atol=1e-4)


@quick
@given(graphs(directed=False))
def test_an_isolated_node_and_a_second_copy_leave_the_rows_alone(graph):
    n, codes, weights = graph.num_nodes, graph.edge_codes(), graph.edge_weights()
    twice = fg.Graph.from_codes(
        *np.concatenate([codes, codes + n]).T,
        weights=None if weights is None else np.tile(weights, 2),
        num_nodes=2 * n + 1,
    )
    one = diffuse(graph, epsilon=1e-6).left.as_scipy.toarray()
    two = diffuse(twice, epsilon=1e-6).left.as_scipy.toarray()
    np.testing.assert_allclose(two[:n, :n], one, atol=1e-4)
    np.testing.assert_allclose(two[n : 2 * n, n : 2 * n], one, atol=1e-4)
    assert not two[:n, n:].any()
    assert np.flatnonzero(two[2 * n]).tolist() == [2 * n]


@quick
@given(graphs(), st.sampled_from([1e-300, 1e300]))
def test_extreme_weights_give_finite_rows(graph, extreme):
    codes = graph.edge_codes()
    weights = np.ones(len(codes))
    weights[0] = extreme
    odd = fg.Graph.from_codes(*codes.T, weights=weights, num_nodes=graph.num_nodes, directed=graph.directed)
    found = diffuse(odd)
    assert np.isfinite(found.left.values).all()
    assert np.isfinite(log_matrix(found).values).all()
    assert np.isfinite(pmi(found, codes.astype(np.int64))).all()


@quick
@given(graphs())
def test_walks_meet_in_the_middle(graph):
    """⟨Q_u, Q_v⟩ = Σ_x π_u(x) ρ_v(x) / d_x, ρ along the edges backwards."""
    found = diffuse(graph, damping=0.6, epsilon=1e-8)
    P, R = exact_rows(graph, 0.6), exact_rows(graph, 0.6, backward=graph.directed)
    wanted = P @ np.diag(1 / found.middle) @ R.T
    pairs = np.stack(np.meshgrid(*[np.arange(graph.num_nodes)] * 2, indexing="ij"), -1).reshape(-1, 2)
    met = overlaps(found.left, found.right, pairs).reshape(wanted.shape)
    np.testing.assert_allclose(met, wanted, atol=1e-4)
    rows = np.arange(graph.num_nodes)[::-1].copy()
    block = overlap_block(found.left, kernels.transpose(found.right), rows, (1, graph.num_nodes))
    np.testing.assert_allclose(block, met[rows, 1:], rtol=1e-5, atol=1e-7)


@quick
@given(graphs(directed=False))
def test_meeting_in_the_middle_is_a_diffusion_of_twice_the_length(graph):
    """For undirected graphs Q Q' = (1 − a)² Σ (i + 1) a^i T^i D⁻¹, where no degree is below ½."""
    degrees = graph.degrees
    if graph.weights is not None or (degrees < 0.5).any():
        return
    a, T = 0.6, transition(graph)
    kernel = (1 - a) ** 2 * np.linalg.matrix_power(np.linalg.inv(np.eye(len(T)) - a * T), 2)
    found = diffuse(graph, damping=a, epsilon=1e-8).left.as_scipy.toarray()
    np.testing.assert_allclose(found @ found.T, kernel / degrees, atol=1e-4)


@quick
@given(graphs())
def test_the_log_matrix_is_that_of_the_larger_direction(graph):
    found = diffuse(graph)
    n = graph.num_nodes
    d_out, d_in, d = found.out_degrees, found.in_degrees, found.middle
    P, R = (side.as_scipy.toarray() * d**0.5 for side in (found.left, found.right))
    one = d_out[:, None] ** 0.5 * P / d_in**0.5
    other = (d_in[:, None] ** 0.5 * R / d_out**0.5).T
    wanted = np.log1p(n * np.maximum(one, other))
    np.fill_diagonal(wanted, 0)
    for M in (log_matrix(found), _by_scipy(found)):
        np.testing.assert_allclose(M.as_scipy.toarray(), wanted, rtol=1e-4, atol=1e-5)


def _by_scipy(found):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(diffusion, "compiled_module", lambda: None)
        return log_matrix(found)


@quick
@given(graphs())
def test_overlaps_without_the_compiled_kernel_agree(graph):
    found = diffuse(graph)
    pairs = np.array([(u, v) for u in range(graph.num_nodes) for v in range(2)])
    transposed = kernels.transpose(found.right)
    rows = np.arange(graph.num_nodes)
    compiled = overlaps(found.left, found.right, pairs), overlap_block(found.left, transposed, rows, (0, 2))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(diffusion, "compiled_module", lambda: None)
        plain = overlaps(found.left, found.right, pairs), overlap_block(found.left, transposed, rows, (0, 2))
    for one, other in zip(compiled, plain, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-7)


def test_threads_do_not_change_a_bit():
    graph = fg.load_dataset("digits").graph
    found = []
    for threads in (1, 2, 3):
        with use_threads(threads):
            rows = diffuse(graph)
            found.append((rows.left.values.tobytes(), log_matrix(rows).values.tobytes()))
    assert found[0] == found[1] == found[2]


def test_a_row_keeps_its_largest_entries():
    graph = fg.load_dataset("digits").graph
    whole, cut = (diffuse(graph, epsilon=1e-4, keep=keep).left.as_scipy for keep in (1797, 20))
    assert np.diff(cut.indptr).max() == 20
    scale = diffuse(graph).middle ** 0.5
    for u in (0, 5, 900):
        row = whole[[u]].toarray()[0] * scale
        kept = cut[[u]].toarray()[0] * scale
        assert set(np.argsort(-row, kind="stable")[:20]) == set(np.flatnonzero(kept))


@quick
@given(graphs())
def test_the_mean_row_length_of_a_small_graph_is_exact(graph):
    stored = Walker.of(graph, damping=0.5).rows(np.arange(graph.num_nodes, dtype=np.int32)).num_stored
    assert mean_row_length(graph, damping=0.5) == max(1.0, stored / graph.num_nodes)


def test_fewer_kept_entries_are_pushed_less_exactly():
    graph = fg.load_dataset("digits").graph
    assert epsilon_for(KEEP) == push.EPSILON
    few = diffuse(graph, keep=25)
    same = diffuse(graph, keep=25, epsilon=epsilon_for(25))
    assert np.array_equal(few.left.values, same.left.values)
    assert few.left.num_stored <= 25 * graph.num_nodes
    assert mean_row_length(graph, damping=0.85, keep=25) <= 25


@given(st.integers(1, 10**7), st.integers(0, 10**11), st.booleans())
def test_the_kept_entries_are_the_most_that_fit(num_nodes, limit, directed):
    keep = keep_for(num_nodes, limit, directed=directed)
    assert 8 <= keep <= KEEP
    assert keep <= keep_for(num_nodes, limit + 10**9, directed=directed)
    exact = keep_for(num_nodes, limit, bytes_of=lambda entries: num_nodes * entries)
    assert exact == min(max(limit // num_nodes, 8), KEEP)


def test_progress_rises_to_the_end():
    seen = []
    graph = fg.load_dataset("digits").graph
    diffuse(graph, progress=lambda done, total: seen.append((done, total)))
    assert seen[-1][0] == seen[-1][1]
    assert [done for done, _ in seen] == sorted(done for done, _ in seen)


@pytest.mark.parametrize(
    ("name", "value"),
    [("damping", 0.0), ("damping", 1.0), ("damping", -1), ("epsilon", 0.0), ("epsilon", 2.0), ("keep", 0)],
)
def test_settings_outside_their_range_are_named(name, value):
    graph = fg.Graph.from_edges([(0, 1)])
    with pytest.raises(ArgumentError, match=name):
        diffuse(graph, **{"damping": 0.5, name: value})


def test_more_nodes_than_32_bit_numbers_are_refused(monkeypatch):
    monkeypatch.setattr(push, "_LARGEST_INDEX", 3)
    with pytest.raises(ArgumentError, match="at most 2 nodes"):
        diffuse(fg.Graph.from_edges([(0, 1), (1, 2)]))
