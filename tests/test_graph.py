from __future__ import annotations

import itertools
import os
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

import fastgrl as fg
from fastgrl.assembly import Rows, _assemble_by_sorting, assemble
from fastgrl.errors import ArgumentError, DtypeError, InputError, NotFiniteError, ShapeError, UnknownIdError
from fastgrl.normalisations import adjacency, degree_scaling

IDS = {
    "integers": st.integers(-(2**62), 2**62),
    "huge integers": st.integers(2**63, 2**70),
    "text": st.text(max_size=5),
    "tuples": st.tuples(st.integers(0, 3), st.text(max_size=2)),
    "mixed": st.integers(0, 5) | st.text(max_size=2) | st.tuples(st.integers(0, 3)),
}
EDGES = st.sampled_from(list(IDS)).flatmap(
    lambda kind: st.lists(st.tuples(IDS[kind], IDS[kind]), min_size=1, max_size=20)
)
CODES = st.integers(1, 12).flatmap(
    lambda n: st.tuples(
        st.just(n), st.lists(st.tuples(st.integers(0, n - 1), st.integers(0, n - 1)), max_size=40)
    )
)


def arrays(pairs) -> tuple[np.ndarray, np.ndarray]:
    table = np.array(pairs, np.int64).reshape(-1, 2)
    return table[:, 0], table[:, 1]


def dense(graph: fg.Graph) -> np.ndarray:
    return graph.to_scipy().toarray().astype(float)


@given(EDGES, st.booleans())
@settings(max_examples=150, deadline=None)
def test_the_same_ids_come_out_in_order_of_first_appearance(edges, directed):
    graph = fg.Graph.from_edges(edges, directed=directed)
    assert graph.node_ids.tolist() == list(dict.fromkeys(itertools.chain(*edges)))
    ids = graph.node_ids.tolist()
    found = {(ids[u], ids[v]) for u, v in graph.edge_codes()}
    wanted = set(edges) if directed else {frozenset(edge) for edge in edges}
    assert (found if directed else {frozenset(edge) for edge in found}) == wanted
    assert graph.num_edges == len(wanted)
    assert graph.repeats == len(edges) - len(wanted)
    assert graph.num_self_loops == len({u for u, v in edges if u == v})
    np.testing.assert_array_equal(graph.index_of(ids), np.arange(len(ids)))


@given(CODES, st.booleans(), st.booleans(), st.integers(0, 3))
@settings(max_examples=150, deadline=None)
def test_compiled_rows_equal_sorted_rows_to_the_bit(case, weighted, mirrored, seed):
    n, pairs = case
    u, v = arrays(pairs)
    weights = np.random.default_rng(seed).random(len(u)) if weighted else None
    rows = assemble(u, v, weights, num_nodes=n, mirrored=mirrored)
    plain = _assemble_by_sorting(u, v, weights, n, mirrored)
    for name in ("indptr", "indices", "weights"):
        np.testing.assert_array_equal(getattr(rows, name), getattr(plain, name))


def test_rows_of_many_buckets_and_pieces_equal_sorted_rows(monkeypatch):
    monkeypatch.setattr("fastgrl.assembly._PIECE", 1000)
    rng = np.random.default_rng(0)
    u, v = rng.integers(0, 50_000, (2, 30_000)) // rng.integers(1, 300, (2, 30_000))
    weights = rng.random(30_000)
    rows = assemble(u, v, weights, num_nodes=50_000, mirrored=True)
    plain = _assemble_by_sorting(u, v, weights, 50_000, True)
    for name in ("indptr", "indices", "weights"):
        np.testing.assert_array_equal(getattr(rows, name), getattr(plain, name))


@given(CODES, st.booleans())
@settings(max_examples=150, deadline=None)
def test_a_graph_equals_its_dense_matrix(case, directed):
    n, pairs = case
    u, v = arrays(pairs)
    weights = np.arange(1.0, len(u) + 1)
    graph = fg.Graph.from_codes(u, v, weights=weights, num_nodes=n, directed=directed)
    expected = np.zeros((n, n))
    np.add.at(expected, (u, v), weights)
    if not directed:
        expected = expected + expected.T - np.diag(np.diag(expected))
    np.testing.assert_array_equal(dense(graph), expected)
    np.testing.assert_array_equal(graph.degrees, expected.sum(axis=1))
    grid = np.indices((n, n)).reshape(2, -1)
    np.testing.assert_array_equal(graph.has_edges(*grid), (expected > 0).ravel())
    np.testing.assert_array_equal(graph.edge_weights(), expected[tuple(graph.edge_codes().T)])
    again = graph.with_edges(graph.edge_codes(), weights=graph.edge_weights())
    np.testing.assert_array_equal(dense(again), expected)
    np.testing.assert_array_equal(dense(fg.Graph.from_scipy(graph.to_scipy())), expected)


@given(CODES, st.booleans(), st.booleans(), st.sampled_from([np.float32, np.float64]))
@settings(max_examples=150, deadline=None)
def test_normalisations_equal_their_dense_formulas(case, directed, weighted, dtype):
    n, pairs = case
    u, v = arrays(pairs)
    weights = 1.0 + np.arange(len(u)) % 3 if weighted else None
    graph = fg.Graph.from_codes(u, v, weights=weights, num_nodes=n, directed=directed)
    A = dense(graph)
    rows, columns = A.sum(axis=1), A.sum(axis=0)
    with np.errstate(divide="ignore"):
        inverse = [np.where(d > 0, 1 / d, 0) for d in (rows, columns)]
    T, S = inverse[0][:, None] * A, np.sqrt(inverse[0])[:, None] * A * np.sqrt(inverse[1])
    hat = (1 + rows)[:, None] ** -0.5 * (A + np.eye(n)) * (1 + columns) ** -0.5
    X = np.random.default_rng(0).standard_normal((n, 3)).astype(dtype)
    cases = [(adjacency, A), (fg.transition, T), (fg.symmetric, S), (fg.renormalised, hat)]
    for normalise, expected in cases:
        operator = normalise(graph, dtype=dtype)
        for product, matrix in ((operator @ X, expected), (operator.T @ X, expected.T)):
            assert product.dtype == dtype
            np.testing.assert_allclose(product, matrix @ X, atol=1e-5 if dtype == np.float32 else 1e-12)
    scaled = degree_scaling(graph, -0.5, dtype=dtype) @ X
    np.testing.assert_allclose(scaled, np.sqrt(inverse[0])[:, None] * X, atol=1e-6)


def test_normalisations_share_the_pattern():
    graph = fg.Graph.from_codes([0, 1, 2], [1, 2, 3])
    weighted = fg.Graph.from_codes([0, 1, 2], [1, 2, 3], weights=[1, 2, 3])
    from fastgrl.operators import leaves

    for normalise in (adjacency, fg.transition, fg.symmetric, fg.renormalised):
        for each in (graph, weighted):
            matrices = [leaf.a for leaf in leaves(normalise(each)) if isinstance(leaf, fg.Matrix)]
            assert all(np.shares_memory(csr.indices, each.indices) for csr in matrices)
            assert matrices


@pytest.mark.parametrize("scale", [1e-300, 1e-30, 1e30, 1e300])
def test_weights_of_any_size_give_the_same_walk(scale):
    edges = [("a", "b", 1.0), ("b", "c", 3.0)]
    usual = fg.transition(fg.Graph.from_edges(edges)) @ np.eye(3)
    scaled = fg.Graph.from_edges([(u, v, w * scale) for u, v, w in edges])
    np.testing.assert_allclose(fg.transition(scaled) @ np.eye(3), usual)
    np.testing.assert_allclose(
        fg.transition(scaled, dtype=np.float32) @ np.eye(3, dtype=np.float32), usual, 1e-6
    )


def test_more_than_two_to_the_31_entries_do_not_overflow():
    stored = 2**33
    indptr = np.array([0, stored - 5, stored])
    rows = Rows(indptr, np.broadcast_to(np.int32(0), stored), None)
    graph = fg.Graph._built(rows, np.arange(2), directed=True, repeats=0)
    assert graph.num_edges == stored
    assert graph.degrees.tolist() == [stored - 5, 5]
    assert graph.csr.num_stored == stored
    assert repr(graph) == "<Graph: 2 nodes, 8589934592 directed edges>"


def test_row_pointers_count_beyond_32_bits():
    counts = np.full((3, 4), 2**31, np.int64)
    starts = np.zeros(5, np.int64)
    np.cumsum(counts.sum(axis=0), out=starts[1:])
    assert starts[-1] == 12 * 2**31
    assert fg.Graph.from_codes([0], [1]).indptr.dtype == np.int64


def test_a_graph_is_frozen_and_leaves_its_input_alone():
    edges = np.array([[0, 1], [1, 2]])
    nodes = np.arange(3)
    graph = fg.Graph.from_edges(edges, nodes=nodes)
    for array in (graph.indptr, graph.indices, graph.node_ids, graph.degrees):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 1
    edges[0] = nodes[0] = 7
    with pytest.raises(AttributeError):
        graph.directed = True


def test_types_of_ids_are_kept():
    assert fg.Graph.from_edges([("007", "7")]).node_ids.tolist() == ["007", "7"]
    assert fg.Graph.from_edges([(1, "1")]).num_nodes == 2
    assert fg.Graph.from_edges(np.array([[1, 2]], np.uint8)).node_ids.dtype == np.uint8
    assert fg.Graph.from_edges(np.array([["a", "b"]])).node_ids.tolist() == ["a", "b"]
    assert fg.Graph.from_edges([(2**64, 1)]).node_ids.tolist() == [2**64, 1]
    assert fg.Graph.from_edges(iter([((0, 1), (0, 2))])).node_ids.tolist() == [(0, 1), (0, 2)]


def test_sparse_integers_need_no_table_up_to_the_largest():
    graph = fg.Graph.from_edges(np.array([[0, 2**61], [2**61, -(2**62)]]))
    assert graph.node_ids.tolist() == [0, 2**61, -(2**62)]


def test_unknown_ids_are_named_with_what_they_may_be():
    graph = fg.Graph.from_edges([(1, 2)])
    with pytest.raises(UnknownIdError, match=r"no node has the id '1'.*of another type"):
        graph.index_of(["1"])
    with pytest.raises(UnknownIdError, match="no node has the id 9"):
        graph.index_of([9])
    assert graph.index_of(2).tolist() == [1]
    with pytest.raises(UnknownIdError, match="'x'"):
        fg.Graph.from_edges([("a", "b")]).index_of("x")


REFUSED = {
    "three columns": (lambda: fg.Graph.from_edges(np.zeros((3, 3), int)), ShapeError, "two columns"),
    "pairs and triples": (lambda: fg.Graph.from_edges([(1, 2), (1, 2, 3)]), ArgumentError, "item 1"),
    "text for a pair": (lambda: fg.Graph.from_edges(["ab"]), ArgumentError, "item 0"),
    "weights twice": (lambda: fg.Graph.from_edges([(1, 2, 3)], weights=[1]), ArgumentError, "twice"),
    "missing id": (lambda: fg.Graph.from_edges([(None, 2)]), InputError, "None"),
    "NaN id": (lambda: fg.Graph.from_edges([(float("nan"), 2)]), InputError, "nan"),
    "unhashable": (lambda: fg.Graph.from_edges([([1], 2)]), DtypeError, "hashable"),
    "boolean ids": (lambda: fg.Graph.from_edges(np.ones((2, 2), bool)), DtypeError, "not ids"),
    "not listed": (lambda: fg.Graph.from_edges([(1, 2)], nodes=[1]), InputError, "edge 1 names the node 2"),
    "few weights": (lambda: fg.Graph.from_edges([(1, 2)], weights=[1, 2]), ShapeError, "2 weights for 1"),
    "negative weight": (lambda: fg.Graph.from_edges([(1, 2, -1)]), ArgumentError, "edge 1 has -1"),
    "infinite weight": (lambda: fg.Graph.from_edges([(1, 2, np.inf)]), NotFiniteError, "inf"),
    "overflow": (lambda: fg.Graph.from_edges([(1, 2, 1e308)]), NotFiniteError, "add up"),
    "fractional codes": (lambda: fg.Graph.from_codes([0.5], [1]), DtypeError, "node numbers"),
    "negative code": (lambda: fg.Graph.from_codes([-1], [1]), ArgumentError, "-1 is outside"),
    "code too large": (lambda: fg.Graph.from_codes([0], [5], num_nodes=3), ArgumentError, "5 is outside"),
    "repeated id": (lambda: fg.Graph.from_codes([0], [1], node_ids=["a", "a"]), ArgumentError, "same id"),
    "lengths": (lambda: fg.Graph.from_codes([0], [1, 1]), ShapeError, "1 sources and 2 targets"),
    "not square": (lambda: fg.Graph.from_scipy(np.ones((2, 3))), ShapeError, "2×3"),
    "no edges at all": (lambda: fg.Graph.from_edges(None), ArgumentError, "pairs of ids"),
    "numbers for pairs": (lambda: fg.Graph.from_edges([1, 2]), ArgumentError, "item 0"),
    "array as an id": (lambda: fg.Graph.from_edges([(np.ones(2), 3)]), InputError, "not an id"),
    "asymmetric": (
        lambda: fg.Graph.from_scipy(np.array([[0, 1], [0, 0]]), directed=False),
        InputError,
        "not symmetric",
    ),
    "complex": (lambda: fg.Graph.from_scipy(sp.eye_array(2, dtype=complex)), DtypeError, "complex"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_bad_input_is_refused_by_name(name):
    build, error, message = REFUSED[name]
    with pytest.raises(error, match=message):
        build()


def parts(**changed):
    whole = {"indptr": [0, 1, 2], "indices": [1, 0], "weights": None, "node_ids": [0, 1]} | changed
    return {key: None if value is None else np.asarray(value) for key, value in whole.items()}


@pytest.mark.parametrize(
    "changed",
    [
        {"indices": [1, 2]},
        {"indices": [1, -1]},
        {"indptr": [0, 2, 1]},
        {"indptr": [0, 1, 3]},
        {"indptr": [0, 1]},
        {"indptr": [0, 2, 2], "indices": [1, 1]},
        {"indices": [1, 1]},
        {"weights": [1.0, 2.0]},
        {"weights": [1.0]},
        {"node_ids": [0, 0]},
        {"node_ids": [0]},
    ],
)
def test_the_constructor_checks_rows_from_outside_in_full(changed):
    fg.Graph(**parts())
    with pytest.raises(fg.FastgrlError):
        fg.Graph(**parts(**changed))


def test_repeated_entries_of_a_matrix_are_repeats_not_weights():
    ones = sp.coo_array((np.ones(3), ([0, 0, 1], [1, 1, 0])), shape=(2, 2))
    graph = fg.Graph.from_scipy(ones, directed=True)
    assert (graph.weights, graph.repeats, graph.num_edges) == (None, 1, 2)


def test_an_empty_graph_is_a_graph():
    for graph in (fg.Graph.from_edges([], nodes=["a", "b"]), fg.Graph.from_codes([], [], num_nodes=2)):
        assert (graph.num_nodes, graph.num_edges, graph.edge_codes().shape) == (2, 0, (0, 2))
        assert not graph.has_edges([0], [1]).any()
        np.testing.assert_array_equal(fg.transition(graph) @ np.ones((2, 1)), 0)
    assert fg.Graph.from_edges([]).num_nodes == 0


def test_the_published_edges_give_the_published_counts():
    folder = Path(os.environ.get("FASTGRL_DATA", "../shared/data")) / "asymproj"
    if not folder.is_dir():
        pytest.skip("FASTGRL_DATA does not name a folder with the datasets")
    graph = fg.Graph.from_edges(np.load(folder / "ca-AstroPh" / "train.txt.npy"), nodes=np.arange(17_903))
    assert (graph.num_nodes, graph.num_edges, graph.num_self_loops) == (17_903, 98_515, 30)
