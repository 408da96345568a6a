from __future__ import annotations

import hashlib
import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fastgrl.datasets import block_model, rmat, synthetic
from fastgrl.datasets.synthetic import overlapping_blocks
from fastgrl.errors import ArgumentError
from fastgrl.graph import Graph
from fastgrl.parallel import use_threads


def drawn(scale: int, edge_factor: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """All edges of an unshuffled R-MAT graph, drawn piece by piece and held."""
    count, piece = edge_factor << scale, synthetic._PIECE
    pieces = [
        synthetic._draw(synthetic._stream(seed, number), scale, min(piece, count - number * piece))
        for number in range(-(-count // piece))
    ]
    sources, targets = (np.concatenate([[], *sides]).astype(int) for sides in zip(*pieces, strict=True))
    return sources, targets


def same(a: Graph, b: Graph) -> bool:
    return (
        np.array_equal(a.indptr, b.indptr)
        and np.array_equal(a.indices, b.indices)
        and np.array_equal(a.node_ids, b.node_ids)
        and a.repeats == b.repeats
    )


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 9), st.integers(1, 20), st.integers(0, 2**64 - 1))
def test_streamed_rows_are_those_of_the_edges_that_were_drawn(scale, edge_factor, seed):
    found = rmat(scale, edge_factor=edge_factor, seed=seed, shuffle=False)
    expected = Graph.from_codes(*drawn(scale, edge_factor, seed), num_nodes=1 << scale)
    assert same(found, expected)
    assert found.num_edges + found.repeats == edge_factor << scale
    Graph(found.indptr, found.indices, None, found.node_ids)  # passes every check of rows from outside


@pytest.mark.parametrize("shuffle", [True, False])
def test_neither_chunk_nor_threads_change_the_result(shuffle):
    graphs = []
    for chunk in (1, 1 << 17, 1 << 30):
        for threads in (1, 3):
            with use_threads(threads):
                graphs.append(rmat(14, edge_factor=20, seed=5, shuffle=shuffle, chunk=chunk))
    assert all(same(graph, graphs[0]) for graph in graphs)
    expected = Graph.from_codes(*drawn(14, 20, 5), num_nodes=1 << 14)
    assert shuffle or same(graphs[0], expected)
    assert graphs[0].num_edges == expected.num_edges


@pytest.mark.parametrize("shuffle", [True, False])
def test_the_edges_that_are_named_are_those_of_the_graph(shuffle):
    edges = synthetic.rmat_edges(13, edge_factor=20, seed=5, shuffle=shuffle)
    pieces = [edges.piece(number) for number in range(edges.num_pieces)]
    sources, targets = map(np.concatenate, zip(*pieces, strict=True))
    assert len(sources) == edges.num_edges == 20 << 13
    graph = Graph.from_codes(sources, targets, num_nodes=1 << 13)
    assert same(graph, rmat(13, edge_factor=20, seed=5, shuffle=shuffle))


def test_the_drawing_of_a_seed_never_changes():
    graph = rmat(10, edge_factor=8, seed=7)
    assert (graph.num_edges, graph.repeats) == (5973, 2219)
    assert hashlib.sha256(graph.indices.tobytes()).hexdigest()[:16] == "347054d646f86a76"


def test_shuffling_renumbers_and_changes_nothing_else():
    plain, shuffled = rmat(11, seed=3, shuffle=False), rmat(11, seed=3)
    assert not same(plain, shuffled)
    assert (plain.num_edges, plain.num_self_loops) == (shuffled.num_edges, shuffled.num_self_loops)
    assert np.array_equal(np.sort(plain.degrees), np.sort(shuffled.degrees))


def test_another_seed_draws_another_graph():
    assert not same(rmat(8, seed=1), rmat(8, seed=2))
    assert same(rmat(8, seed=1), rmat(8, seed=1))


def test_quadrants_have_the_probabilities_of_the_benchmark():
    sources, targets = drawn(10, 200, 0)
    for level in range(10):
        quadrant = 2 * (sources >> level & 1) + (targets >> level & 1)
        shares = np.bincount(quadrant, minlength=4) / len(sources)
        assert np.abs(shares - [0.57, 0.19, 0.19, 0.05]).max() < 4 * np.sqrt(0.25 / len(sources))


def test_memory_peaks_below_twice_the_rows():
    rmat(4)
    tracemalloc.start()
    graph = rmat(18, chunk=1)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    rows = graph.indptr.nbytes + graph.indices.nbytes
    assert rows > 30_000_000
    assert peak < 2 * rows


def test_one_node_and_no_edges_are_graphs():
    assert rmat(0).num_edges == 1
    assert rmat(0).repeats == 15
    assert rmat(3, edge_factor=0).num_edges == 0
    assert rmat(3, edge_factor=0).num_nodes == 8


@pytest.mark.parametrize(
    "wrong", [{"scale": -1}, {"scale": 31}, {"scale": 2.5}, {"edge_factor": -1}, {"seed": -1}, {"chunk": 0}]
)
def test_wrong_arguments_of_rmat_are_named(wrong):
    with pytest.raises(ArgumentError, match=next(iter(wrong))):
        rmat(**{"scale": 3} | wrong)


@settings(max_examples=30, deadline=None)
@given(
    st.integers(1, 300),
    st.integers(1, 6),
    st.floats(0, 12),
    st.floats(0, 1),
    st.integers(0, 2**64 - 1),
)
def test_a_block_model_is_a_whole_dataset(num_nodes, num_classes, mean_degree, mixing, seed):
    num_classes = min(num_classes, num_nodes)
    data = block_model(
        num_nodes,
        num_classes=num_classes,
        mean_degree=mean_degree,
        mixing=mixing,
        num_features=30,
        train_per_class=2,
        validation_per_class=3,
        seed=seed,
    )
    assert data.graph.num_nodes == len(data.y) == num_nodes
    assert data.graph.num_self_loops == 0
    assert data.graph.num_edges <= round(num_nodes * mean_degree / 2)
    assert data.X.shape == (num_nodes, 30)
    assert set(data.X.data.tolist()) <= {1.0}
    assert data.X.dtype == np.float32
    data.X.check_format(full_check=True)
    sizes = np.bincount(data.y, minlength=num_classes)
    assert sizes.max() - sizes.min() <= 1
    assert sorted(np.concatenate([data.train, data.validation, data.test])) == list(range(num_nodes))


@pytest.mark.parametrize("mixing", [0.0, 0.3, 1.0])
def test_edges_leave_their_class_as_often_as_asked(mixing):
    data = block_model(20_000, num_classes=4, mean_degree=10, mixing=mixing, seed=2)
    u, v = data.graph.edge_codes().T
    expected = mixing * (1 - 1 / 4)
    assert abs((data.y[u] != data.y[v]).mean() - expected) < 0.02


def test_degrees_follow_a_power_law_around_the_mean_asked_for():
    data = block_model(50_000, mean_degree=12, degree_exponent=2.2, seed=0)
    degrees = data.graph.degrees
    assert 0.93 * 12 < degrees.mean() <= 12
    assert degrees.max() > 20 * 12
    even = block_model(50_000, mean_degree=12, degree_exponent=50, seed=0).graph.degrees
    assert even.max() < 4 * 12


def test_words_tell_the_classes_apart_as_much_as_asked():
    plain, own = (block_model(3000, topic_share=share, seed=4) for share in (0.0, 1.0))
    classes = np.eye(5)[own.y]
    counts = (own.X.T @ classes) > 0
    assert (counts.sum(axis=1) <= 1).all()
    assert ((plain.X.T @ classes) > 0).all(axis=1).sum() > 300


def test_the_same_seed_gives_the_same_dataset():
    a, b, c = block_model(500, seed=1), block_model(500, seed=1), block_model(500, seed=2)
    assert same(a.graph, b.graph)
    assert (a.X != b.X).nnz == 0
    assert np.array_equal(a.train, b.train)
    assert not same(a.graph, c.graph)


@pytest.mark.parametrize(
    "wrong",
    [
        {"num_nodes": 0},
        {"num_classes": 0},
        {"num_classes": 101},
        {"mean_degree": -1},
        {"mean_degree": float("nan")},
        {"degree_exponent": 1.0},
        {"mixing": 1.5},
        {"topic_share": -0.1},
        {"num_features": 4},
        {"words_per_node": -1},
        {"train_per_class": -1},
        {"seed": 2**64},
    ],
)
def test_wrong_arguments_of_the_block_model_are_named(wrong):
    with pytest.raises(ArgumentError, match=next(iter(wrong))):
        block_model(**{"num_nodes": 100} | wrong)


# Blocks that overlap.


@settings(max_examples=30, deadline=None)
@given(
    st.integers(1, 300),
    st.integers(1, 6),
    st.floats(0, 1),
    st.floats(0, 12),
    st.floats(0, 1),
    st.integers(0, 2**64 - 1),
)
def test_overlapping_blocks_are_a_whole_dataset(num_nodes, num_labels, share, mean_degree, mixing, seed):
    num_labels = min(num_labels, num_nodes)
    data = overlapping_blocks(
        num_nodes,
        num_labels=num_labels,
        labels_per_node=1 + share * (num_labels - 1),
        mean_degree=mean_degree,
        mixing=mixing,
        num_features=30,
        train_per_label=2,
        validation_per_label=3,
        seed=seed,
    )
    assert data.y.shape == (num_nodes, num_labels)
    assert set(data.y.flat) <= {0, 1}
    assert (data.y.sum(1) >= 1).all()
    assert data.graph.num_nodes == num_nodes
    assert data.graph.num_self_loops == 0
    assert data.graph.num_edges <= round(num_nodes * mean_degree / 2)
    assert data.X.shape == (num_nodes, 30)
    assert set(data.X.data.tolist()) <= {1.0}
    data.X.check_format(full_check=True)
    assert sorted(np.concatenate([data.train, data.validation, data.test])) == list(range(num_nodes))
    assert (data.y[data.train].sum(0) >= np.minimum(2, num_nodes // num_labels)).all()


@pytest.mark.parametrize("labels_per_node", [1, 1.5, 4])
def test_nodes_have_as_many_labels_as_asked_and_labels_as_many_nodes(labels_per_node):
    y = overlapping_blocks(20_000, num_labels=4, labels_per_node=labels_per_node, seed=1).y
    assert abs(y.sum(1).mean() - labels_per_node) < 0.03
    assert abs(y.mean(0) - labels_per_node / 4).max() < 0.02


def test_without_mixing_every_edge_joins_nodes_that_share_a_label():
    data = overlapping_blocks(5000, num_labels=6, labels_per_node=1.7, mixing=0, seed=3)
    u, v = data.graph.edge_codes().T
    assert ((data.y[u] * data.y[v]).sum(1) > 0).all()


def test_edges_within_labels_and_anywhere_are_as_many_as_asked():
    data = overlapping_blocks(20_000, num_labels=4, labels_per_node=1, mixing=0.3, seed=2)
    u, v = data.graph.edge_codes().T
    assert abs(((data.y[u] * data.y[v]).sum(1) == 0).mean() - 0.3 * 3 / 4) < 0.02


def test_a_nodes_own_words_are_those_of_its_labels():
    data = overlapping_blocks(3000, num_labels=5, labels_per_node=2, topic_share=1, seed=4)
    nodes, words = data.X.nonzero()
    assert (data.y[nodes, words % 5] == 1).all()
    held = np.zeros((3000, 5), bool)
    held[nodes, words % 5] = True
    assert (held == data.y).mean() > 0.99  # twenty words and rarely a label without one


def test_the_same_seed_gives_the_same_overlapping_blocks():
    a, b, c = (overlapping_blocks(500, seed=seed) for seed in (1, 1, 2))
    assert same(a.graph, b.graph)
    assert (a.X != b.X).nnz == 0
    assert (a.y == b.y).all()
    assert not same(a.graph, c.graph)


@pytest.mark.parametrize(
    "wrong",
    [
        {"num_nodes": 0},
        {"num_labels": 101},
        {"labels_per_node": 0.5},
        {"labels_per_node": 6},
        {"labels_per_node": float("nan")},
        {"mean_degree": -1},
        {"mixing": 1.5},
        {"num_features": 4},
        {"words_per_node": -1},
        {"train_per_label": -1},
        {"validation_per_label": -1},
        {"seed": 2**64},
    ],
)
def test_wrong_arguments_of_overlapping_blocks_are_named(wrong):
    with pytest.raises(ArgumentError, match=next(iter(wrong))):
        overlapping_blocks(**{"num_nodes": 100} | wrong)
