from __future__ import annotations

import functools
import hashlib
import sys

import numpy as np
import pytest
from graph_cases import collaborations
from hypothesis import given, settings
from hypothesis import strategies as st

import fastgrl as fg
from fastgrl.errors import ArgumentError, InputError, MissingExtraError, NotFiniteError, ShapeError
from fastgrl.neighbours import (
    approximate_candidates,
    build_index,
    load_index,
    measured_recall,
    save_index,
    search,
)
from fastgrl.ranking import best_candidates, dot_block


@functools.cache
def embedding():
    """A rank-32 walk embedding of ca-HepTh, its index, and the graph."""
    graph = collaborations()
    n, adjacency = graph.num_nodes, fg.Matrix(graph.to_scipy().astype(np.float32))
    walks = fg.Polynomial(fg.transition(graph, dtype=np.float32), [3, 2, 1])
    U, s, Vt = fg.fsvd(walks - 0.02 * (fg.Ones((n, n)) - adjacency), 32, seed=0)
    left, right = U * np.sqrt(s), Vt.T * np.sqrt(s)
    return graph, left, right, build_index(right)


def exact(left, right, nodes, **arguments):
    return best_candidates(dot_block(left, right), nodes, num_nodes=len(right), **arguments)


def test_nine_in_ten_of_the_best_are_found_on_real_vectors():
    _, left, right, index = embedding()
    recall = measured_recall(index, left, right, k=10)
    assert 0.9 <= recall <= 1
    assert measured_recall(index, left, right, k=10) == recall
    assert measured_recall(index, left, right, k=10, sample=10**6) >= 0.9


def test_known_links_are_left_out_and_scores_are_dot_products():
    graph, left, right, index = embedding()
    hubs, rng = np.argsort(-graph.degrees)[:20], np.random.default_rng(0)
    nodes = np.r_[hubs, rng.integers(0, graph.num_nodes, 100), hubs[:3]]
    best = approximate_candidates(index, nodes, left=left, right=right, k=10, known=graph)
    assert (best.codes >= 0).all()
    assert not graph.has_edges(np.repeat(nodes, 10), best.codes.ravel()).any()
    assert (best.codes != nodes[:, None]).all()
    dots = np.einsum("qd,qkd->qk", left[nodes].astype(np.float64), right[best.codes].astype(np.float64))
    assert np.allclose(best.scores, dots, rtol=1e-14, atol=1e-16)
    assert (np.diff(best.scores, axis=1) <= 0).all()
    truth = exact(left, right, nodes, k=10, known=graph)
    shared = [len(np.intersect1d(a, b)) for a, b in zip(best.codes, truth.codes, strict=True)]
    assert np.mean(shared) >= 9


def test_one_thread_builds_the_same_index_and_any_number_finds_the_same():
    graph, left, right, index = embedding()
    again = build_index(right[:2000])
    assert build_index(right[:2000]).save() == again.save()
    nodes = np.arange(300)
    search_with = functools.partial(
        approximate_candidates, index, nodes, left=left, right=right, k=5, known=graph
    )
    one, three = search_with(n_threads=1), search_with(n_threads=3)
    assert (one.codes == three.codes).all()
    assert (one.scores == three.scores).all()


@given(st.integers(0, 2**32), st.booleans(), st.booleans())
@settings(max_examples=20, deadline=None)
def test_small_graphs_and_full_rows_are_ranked_exactly(seed, directed, symmetric):
    rng = np.random.default_rng(seed)
    n = int(rng.integers(1, 40))
    left, right = np.round(rng.standard_normal((2, n, 3)), 1)
    sources, targets = rng.integers(0, n, (2, 4 * n))
    graph = fg.Graph.from_codes(sources, targets, num_nodes=n, directed=directed)
    nodes, asked = rng.integers(0, n, 7), {"k": 6, "known": graph, "symmetric": symmetric}
    best = approximate_candidates(build_index(right), nodes, left=left, right=right, **asked)
    truth = exact(left, right, nodes, **asked)
    assert (best.codes == truth.codes).all()
    assert (best.scores == truth.scores).all()


@pytest.mark.parametrize("symmetric", [False, True])
def test_links_into_a_node_are_known_only_to_symmetric_scores(symmetric):
    _, left, right, index = embedding()
    n = len(right)
    plain = approximate_candidates(index, [5], left=left, right=right, k=3, known=None)
    inward = fg.Graph.from_codes(plain.codes[0, :1], [5], num_nodes=n, directed=True)
    best = approximate_candidates(index, [5], left=left, right=right, k=3, known=inward, symmetric=symmetric)
    assert (plain.codes[0, 0] in best.codes[0]) is not symmetric


def test_an_index_survives_its_file(tmp_path):
    _, left, right, index = embedding()
    path = tmp_path / "links.usearch"
    digest = save_index(index, path)
    loaded = load_index(path, shape=right.shape, sha256=digest)
    assert (search(loaded, left[:200], count=20) == search(index, left[:200], count=20)).all()
    assert save_index(loaded, tmp_path / "again.usearch") == digest
    assert sorted(file.name for file in tmp_path.iterdir()) == ["again.usearch", "links.usearch"]


@pytest.mark.parametrize("damage", ["flip", "cut", "empty"])
def test_a_damaged_file_is_refused_before_it_is_followed(tmp_path, damage):
    path = tmp_path / "links.usearch"
    digest = save_index(build_index(np.eye(50)), path)
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 255
    path.write_bytes({"flip": bytes(content), "cut": bytes(content[:-9]), "empty": b""}[damage])
    with pytest.raises(InputError, match=r"links\.usearch.*SHA-256 differs"):
        load_index(path, shape=(50, 50), sha256=digest)


def test_other_files_and_other_shapes_are_named(tmp_path):
    path = tmp_path / "links.usearch"
    digest = save_index(build_index(np.eye(50)), path)
    with pytest.raises(InputError, match="an index of 50×50 vectors, not 40×50"):
        load_index(path, shape=(40, 50), sha256=digest)
    text = b"no index at all" * 100
    path.write_bytes(text)
    with pytest.raises(InputError, match="is not an index"):
        load_index(path, shape=(50, 50), sha256=hashlib.sha256(text).hexdigest())
    with pytest.raises(InputError, match="there is no file"):
        load_index(tmp_path / "none", shape=(50, 50), sha256=digest)


def test_without_usearch_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "usearch.index", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'fastgrl\[ann\]'"):
        build_index(np.eye(3))


def test_wrong_calls_are_named():
    index = build_index(np.eye(4))
    for change in ({"connectivity": 1}, {"expansion": 0}, {"n_threads": 0}):
        with pytest.raises(ArgumentError, match=next(iter(change))):
            build_index(np.eye(4), **change)
    with pytest.raises(NotFiniteError, match="right"):
        build_index(np.full((2, 2), np.nan))
    with pytest.raises(ArgumentError, match="float32 cannot hold"):
        build_index(np.full((2, 2), 1e300))
    with pytest.raises(ShapeError, match="at least one column"):
        build_index(np.zeros((3, 0)))
    with pytest.raises(ShapeError, match="vectors of 4 numbers, got 1×3"):
        search(index, np.ones((1, 3)), count=2)
    sides = {"left": np.eye(4), "right": np.eye(4), "k": 1, "known": None}
    with pytest.raises(ShapeError, match="right 5×5, and the index holds 4×4"):
        approximate_candidates(index, [0], **(sides | {"left": np.eye(5), "right": np.eye(5)}))
    with pytest.raises(ShapeError, match="known has 2 nodes"):
        approximate_candidates(index, [0], **(sides | {"known": fg.Graph.from_edges([(0, 1)])}))
    with pytest.raises(ArgumentError, match="queries: 4"):
        approximate_candidates(index, [4], **sides)
    with pytest.raises(ArgumentError, match="sample"):
        measured_recall(index, np.eye(4), np.eye(4), k=1, sample=0)


def test_nothing_is_found_in_an_empty_index():
    nothing = np.zeros((0, 3))
    index = build_index(nothing)
    assert search(index, np.ones((2, 3)), count=2).tolist() == [[-1, -1], [-1, -1]]
    assert search(build_index(np.eye(3)), np.zeros((0, 3)), count=2).shape == (0, 2)
    assert measured_recall(index, nothing, nothing, k=3) == 1.0
