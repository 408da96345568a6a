from __future__ import annotations

import numpy as np
import pytest
from graph_cases import collaborations
from hypothesis import given, settings
from hypothesis import strategies as st

import fastgrl as fg
from fastgrl.errors import ArgumentError, DtypeError, FastgrlError, NotFiniteError, ShapeError
from fastgrl.parallel import single_threaded_blas
from fastgrl.ranking import Best, Recommendations, as_recommendations, best_candidates, dot_block, leading

relaxed = settings(max_examples=150, deadline=None)


def from_matrix(matrix):
    return lambda rows, columns: matrix[rows][:, columns]


def brute_force(matrix, queries, *, k, known, candidates=None, symmetric=True):
    """The whole matrix, masked and sorted by (−score, node)."""
    n = len(matrix)
    hidden = np.eye(n, dtype=bool)
    if known is not None:
        adjacency = known.to_scipy().toarray() != 0
        hidden |= adjacency | adjacency.T if symmetric else adjacency
    if candidates is not None:
        hidden[:, np.setdiff1d(np.arange(n), candidates)] = True
    codes, scores = np.full((len(queries), k), -1), np.full((len(queries), k), -np.inf)
    for place, query in enumerate(queries):
        row = np.where(hidden[query], -np.inf, matrix[query])
        order = np.lexsort([np.arange(n), -row])[:k]
        order = order[row[order] > -np.inf]
        codes[place, : len(order)], scores[place, : len(order)] = order, row[order]
    return codes, scores


def equal(best, expected):
    assert (best.codes == expected[0]).all()
    assert (best.scores == expected[1]).all()


@st.composite
def searches(draw):
    """A score matrix with many ties, a graph of any kind, queries with repeats, candidates or none."""
    n = draw(st.integers(1, 14))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    levels = draw(st.sampled_from([1, 2, 3, 50]))
    scores = rng.integers(-levels, levels, (n, n)).astype(draw(st.sampled_from([np.float32, np.float64])))
    if draw(st.booleans()):
        scores[rng.random((n, n)) < 0.3] = draw(st.sampled_from([np.inf, -np.inf, -0.0]))
    nodes = st.integers(0, n - 1)
    edges = draw(st.lists(st.tuples(nodes, nodes), max_size=30))
    sources, targets = np.array(edges, np.int64).reshape(-1, 2).T
    graph = fg.Graph.from_codes(sources, targets, num_nodes=n, directed=draw(st.booleans()))
    return {
        "scores": scores,
        "queries": draw(st.lists(nodes, max_size=12)),
        "k": draw(st.integers(1, n + 3)),
        "known": draw(st.sampled_from([None, graph])),
        "candidates": draw(st.none() | st.lists(nodes, max_size=n)),
        "symmetric": draw(st.booleans()),
    }


@given(searches(), st.integers(1, 5000), st.integers(1, 3))
@relaxed
def test_blocks_and_threads_give_what_sorting_the_whole_matrix_gives(search, block_bytes, n_threads):
    matrix, queries = search.pop("scores"), search.pop("queries")
    before = matrix.copy()
    best = best_candidates(
        from_matrix(matrix),
        queries,
        num_nodes=len(matrix),
        block_bytes=block_bytes,
        n_threads=n_threads,
        **search,
    )
    equal(best, brute_force(matrix, queries, **search))
    assert best.codes.dtype == np.int64
    assert best.scores.dtype == np.float64
    assert (matrix == before).all()


@given(st.integers(1, 9), st.integers(1, 12), st.integers(0, 2**32), st.sampled_from([1, 3, 1000]))
@relaxed
def test_among_equal_scores_the_first_columns_lead(rows, width, seed, levels):
    scores = np.random.default_rng(seed).integers(0, levels, (rows, width)).astype(float)
    for k in (1, width // 2 + 1, width, width + 3):
        expected = np.sort(np.argsort(-scores, axis=1, kind="stable")[:, :k], axis=1)
        assert (leading(scores, k) == expected).all()


def test_a_constant_score_recommends_the_smallest_missing_numbers():
    graph = fg.Graph.from_edges([(0, 1), (0, 3), (5, 2)], nodes=range(30_000))
    best = best_candidates(
        lambda rows, columns: np.zeros((len(rows), columns.stop - columns.start)),
        [0, 2, 29_999],
        num_nodes=30_000,
        k=4,
        known=graph,
    )
    assert best.codes.tolist() == [[2, 4, 5, 6], [0, 1, 3, 4], [0, 1, 2, 3]]


def test_a_pair_has_the_same_bits_whatever_else_is_asked():
    rng = np.random.default_rng(0)
    for dimension, dtype in ((3, np.float64), (32, np.float32), (64, np.float64), (700, np.float32)):
        left, right = (rng.standard_normal((2000, dimension)).astype(dtype) for _ in range(2))
        right[1000:] = right[:1000]
        block = dot_block(left, right)
        with single_threaded_blas():
            whole = block(np.arange(100), slice(0, 2000))
            assert (whole[:, :1000] == whole[:, 1000:]).all()
            for rows, columns in ((slice(0, 1), slice(0, 2000)), (slice(7, 12), slice(3, 1000))):
                assert (block(np.arange(100)[rows], columns) == whole[rows, columns]).all()
            some = rng.permutation(2000)[:333]
            assert (block(np.array([99, 3]), some) == whole[[99, 3]][:, some]).all()
        exact = left[:100].astype(np.float64) @ right.astype(np.float64).T
        assert np.allclose(whole, exact, rtol=0, atol=1e-11)


def test_no_recommendation_is_the_node_itself_or_a_known_link_in_a_real_graph():
    graph = collaborations()
    n, rng = graph.num_nodes, np.random.default_rng(0)
    x = np.round(rng.standard_normal((n, 6)), 1).astype(np.float32)
    queries = np.r_[rng.integers(0, n, 150), graph.degrees.argmax(), graph.degrees.argmin()]
    score = dot_block(x, x)
    search = {"num_nodes": n, "k": 10, "known": graph}
    best = best_candidates(score, queries, **search)
    assert not graph.has_edges(np.repeat(queries, 10), best.codes.ravel()).any()
    assert (best.codes != queries[:, None]).all()
    with single_threaded_blas():
        matrix = score(np.arange(n)[queries], slice(0, n))
    for place in range(0, len(queries), 10):
        row = matrix[place].copy()
        row[
            [queries[place], *graph.indices[slice(*graph.indptr[queries[place] + np.array([0, 1])])]]
        ] = -np.inf
        assert (best.codes[place] == np.lexsort([np.arange(n), -row])[:10]).all()
    for other in ({"block_bytes": 100_000}, {"n_threads": 1}, {"block_bytes": 3_000_000, "n_threads": 3}):
        again = best_candidates(score, queries, **search, **other)
        equal(again, (best.codes, best.scores))


def test_progress_counts_every_query_once_and_only_rises():
    seen = []
    best_candidates(
        from_matrix(np.eye(200)),
        np.arange(200).repeat(3),
        num_nodes=200,
        k=2,
        known=None,
        progress=lambda done, total: seen.append((done, total)),
        n_threads=2,
        block_bytes=200 * 24 * 50,
    )
    assert [done for done, _ in seen] == sorted({done for done, _ in seen})
    assert seen[-1] == (600, 600)


def test_blocks_stay_within_their_bytes():
    sizes = []

    def score(rows, columns):
        sizes.append((len(rows), columns.stop - columns.start))
        return np.zeros(sizes[-1])

    best_candidates(score, np.arange(5000), num_nodes=40_000, k=3, known=None, block_bytes=10_000_000)
    assert max(rows * columns for rows, columns in sizes) * 24 <= 10_000_000
    assert sum(rows * columns for rows, columns in sizes) == 5000 * 40_000


def test_recommendations_keep_ids_order_and_drop_the_padding():
    best = Best(np.array([[2, 0], [1, -1], [-1, -1]]), np.array([[0.9, 0.5], [0.1, -np.inf], [-np.inf] * 2]))
    ids = np.array(["ann", "bob", "eve"], dtype=object)
    found = as_recommendations(best, ids[[1, 2, 0]], ids)
    assert list(found) == [("bob", "eve", 0.9), ("bob", "ann", 0.5), ("eve", "bob", 0.1)]
    assert len(found) == 3
    assert found.as_dict() == {"bob": [("eve", 0.9), ("ann", 0.5)], "eve": [("bob", 0.1)]}
    assert [type(part) for part in next(iter(as_recommendations(best, [1, 2, 0], [7, 8, 9])))] == [
        int,
        int,
        float,
    ]


def test_a_node_asked_twice_is_listed_twice_and_mapped_once():
    best = Best(np.array([[1, 2], [1, 2]]), np.array([[2.0, 1.0], [2.0, 1.0]]))
    found = as_recommendations(best, [0, 0], [0, 1, 2])
    assert len(found) == 4
    assert found.as_dict() == {0: [(1, 2.0), (2, 1.0)]}


def test_a_long_answer_is_shown_short_and_without_control_characters():
    text = repr(Recommendations(np.array(["\x1b[2J" + "x" * 500] * 50), np.arange(50), np.zeros(50)))
    assert text.startswith("<Recommendations: 50 links for 1 node>\n")
    assert len(text.splitlines()) == 7
    assert text.replace("\n", "").isprintable()
    assert (
        repr(Recommendations(np.array([]), np.array([]), np.array([])))
        == "<Recommendations: 0 links for 0 nodes>"
    )


def test_nan_is_refused_and_its_pair_is_named():
    matrix = np.zeros((5, 5))
    matrix[2, 4] = np.nan
    with pytest.raises(NotFiniteError, match="NaN for node 2 and candidate 4"):
        best_candidates(from_matrix(matrix), [0, 2], num_nodes=5, k=1, known=None, candidates=[1, 4])


def test_wrong_calls_are_named():
    good = {
        "score_block": from_matrix(np.zeros((5, 5))),
        "queries": [0],
        "num_nodes": 5,
        "k": 1,
        "known": None,
    }
    graph = fg.Graph.from_edges([(0, 1)])
    wrong: list[tuple[dict[str, object], type[FastgrlError], str]] = [
        ({"queries": [5]}, ArgumentError, "queries: 5 is outside 0..4"),
        ({"queries": [-1]}, ArgumentError, "queries: -1"),
        ({"queries": [0.5]}, DtypeError, "queries"),
        ({"queries": [True]}, DtypeError, "queries"),
        ({"queries": ["a"]}, DtypeError, "queries"),
        ({"queries": [[0]]}, ShapeError, "queries"),
        ({"candidates": [9]}, ArgumentError, "candidates: 9"),
        ({"candidates": 3}, ShapeError, "candidates"),
        ({"k": 0}, ArgumentError, "k must"),
        ({"k": 2.5}, ArgumentError, "k must"),
        ({"num_nodes": -1}, ArgumentError, "num_nodes"),
        ({"block_bytes": 0}, ArgumentError, "block_bytes"),
        ({"n_threads": 0}, ArgumentError, "n_threads"),
        ({"known": graph}, ShapeError, "known has 2 nodes, but num_nodes is 5"),
        ({"score_block": lambda rows, columns: np.zeros(3)}, ShapeError, "score_block returned shape"),
        ({"score_block": lambda rows, columns: np.zeros((1, 5), complex)}, DtypeError, "score_block"),
    ]
    for change, error, message in wrong:
        with pytest.raises(error, match=message):
            best_candidates(**(good | change))
    with pytest.raises(ShapeError, match="differ in their columns"):
        dot_block(np.zeros((3, 2)), np.zeros((3, 4)))
    with pytest.raises(NotFiniteError, match="right"):
        dot_block(np.zeros((3, 2)), np.full((3, 2), np.nan))
    with pytest.raises(ShapeError, match="2 query ids for 1 queries"):
        as_recommendations(Best(np.zeros((1, 1), int), np.zeros((1, 1))), ["a", "b"], ["a"])
    with pytest.raises(ShapeError, match="1 nodes, 2 targets"):
        Recommendations(np.zeros(1), np.zeros(2), np.zeros(1))


def test_nothing_asked_or_nothing_allowed_is_answered():
    empty = from_matrix(np.zeros((0, 0)))
    assert best_candidates(empty, [], num_nodes=0, k=3, known=None).codes.shape == (0, 3)
    nobody = best_candidates(from_matrix(np.zeros((2, 2))), [0], num_nodes=2, k=3, known=None, candidates=[])
    assert nobody.codes.tolist() == [[-1, -1, -1]]
    assert np.isneginf(nobody.scores).all()
