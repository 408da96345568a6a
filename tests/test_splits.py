from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from graph_cases import dataset
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse.csgraph import connected_components
from split_cases import as_set, clique, graphs, is_plausible, link_dataset, non_edges, path

from fastgrl.errors import ArgumentError, DtypeError, LeakError, ShapeError
from fastgrl.graph import Graph
from fastgrl.splits import assert_no_leak, sample_non_edges, split_edges, split_nodes


def components(graph):
    return connected_components(graph.to_scipy(), directed=graph.directed, connection="weak")[1]


def split_or_none(graph, **options):
    """The split, or None where the call says that there is nothing to hold out or no non-edges."""
    try:
        return split_edges(graph, **options)
    except ArgumentError as error:
        assert any(text in str(error) for text in ("less than one pair", "at most", "non-edges"))  # noqa: PT017
        return None


options = st.fixed_dictionaries(
    {
        "fraction": st.sampled_from([0.1, 0.2, 0.5]),
        "keep_forest": st.booleans(),
        "seed": st.integers(0, 2**32),
    }
)


@given(graphs(), options)
@settings(max_examples=100, deadline=None)
def test_training_and_held_out_edges_are_the_graph_and_share_no_pair(graph, options):
    split = split_or_none(graph, **options)
    if split is None:
        return
    train, held = as_set(split.train.edge_codes()), as_set(split.held_out)
    assert train | held == as_set(graph.edge_codes())
    assert len(split.train.edge_codes()) + len(split.held_out) == graph.num_edges
    assert not held & (train | {(v, u) for u, v in train})
    assert split.train.num_self_loops == graph.num_self_loops
    assert (split.train.node_ids == graph.node_ids).all()
    assert split.train.directed == graph.directed


@given(graphs(), options)
@settings(max_examples=100, deadline=None)
def test_the_fraction_counts_unordered_pairs_and_negatives_are_as_many_as_held_out_edges(graph, options):
    split = split_or_none(graph, **options)
    if split is None:
        return
    pairs = {frozenset(edge) for edge in as_set(graph.edge_codes()) if len(set(edge)) == 2}
    assert len({frozenset(edge) for edge in as_set(split.held_out)}) == round(
        options["fraction"] * len(pairs)
    )
    assert len(split.negatives) == len(as_set(split.negatives)) == len(split.held_out)
    assert as_set(split.negatives) <= non_edges(graph)
    assert_no_leak(split.train, split.held_out, split.negatives, graph=graph)


@given(graphs(), options)
@settings(max_examples=100, deadline=None)
def test_weights_stay_with_their_edges(graph, options):
    split = split_or_none(graph, **options)
    if split is None:
        return
    assert (split.train.weights is None) == (graph.weights is None)
    if graph.weights is not None:
        weight = dict(zip(map(tuple, graph.edge_codes().tolist()), graph.edge_weights(), strict=True))
        codes = map(tuple, split.train.edge_codes().tolist())
        assert [weight[code] for code in codes] == split.train.edge_weights().tolist()


@given(graphs(), options)
@settings(max_examples=100, deadline=None)
def test_a_kept_forest_keeps_the_components(graph, options):
    split = split_or_none(graph, **options | {"keep_forest": True})
    if split is not None:
        assert (components(split.train) == components(graph)).all()


@given(graphs(), options)
@settings(max_examples=60, deadline=None)
def test_the_same_seed_gives_the_same_split(graph, options):
    first, second = (split_or_none(graph, **options) for _ in range(2))
    assert (first is None) == (second is None)
    if first is not None:
        assert (first.train.indices == second.train.indices).all()
        assert (first.held_out == second.held_out).all()
        assert (first.negatives == second.negatives).all()


@pytest.mark.parametrize("keep_forest", [False, True])
def test_every_edge_of_a_ring_is_held_out_equally_often(keep_forest):
    ring = Graph.from_codes(np.arange(8), (np.arange(8) + 1) % 8)
    held = [
        split_edges(ring, fraction=1 / 8, keep_forest=keep_forest, seed=s).held_out[0] for s in range(480)
    ]
    seen = Counter(tuple(edge.tolist()) for edge in held)
    assert len(seen) == 8
    assert is_plausible(list(seen.values()), np.full(8, 60))


def test_reciprocal_edges_are_held_out_together():
    graph = Graph.from_codes([0, 1, 2, 3, 4, 0], [1, 0, 3, 2, 5, 0], num_nodes=6, directed=True)
    for seed in range(30):
        split = split_edges(graph, fraction=1 / 3, seed=seed)
        assert {(v, u) for u, v in as_set(split.held_out)} in (as_set(split.held_out), {(5, 4)})
        assert split.train.num_self_loops == 1


def test_a_tree_has_nothing_to_hold_out_beside_its_forest():
    assert len(split_edges(path(11), fraction=0.2).held_out) == 2
    with pytest.raises(ArgumentError, match=r"fraction=0.2 of 10 pairs is 2, but at most 0 can be held out"):
        split_edges(path(11), fraction=0.2, keep_forest=True)


def test_a_clique_has_no_negatives():
    with pytest.raises(ArgumentError, match="has only 0; ask for fewer"):
        split_edges(clique(6))


@pytest.mark.parametrize("graph", [Graph.from_codes([], [], num_nodes=5), Graph.from_codes([1, 2], [1, 2])])
def test_a_graph_without_pairs_has_nothing_to_hold_out(graph):
    for keep_forest in (False, True):
        with pytest.raises(ArgumentError, match="of 0 pairs is less than one pair"):
            split_edges(graph, keep_forest=keep_forest)


@pytest.mark.parametrize("name", ["soc-facebook", "ppi", "ca-HepTh", "ca-AstroPh"])
def test_published_link_splits_do_not_leak_and_a_planted_leak_is_seen(name):
    train, positives, negatives = link_dataset(name)
    assert_no_leak(train, positives, negatives)
    planted = positives.copy()
    planted[7] = train.edge_codes()[100][::-1]
    with pytest.raises(LeakError, match=f"1 of {len(positives)} positives is in train"):
        assert_no_leak(train, planted, negatives)


def test_a_dense_real_graph_is_split_with_its_components():
    codes = np.load(dataset("ogbl-ddi") / "train.npy")
    graph = Graph.from_codes(*codes.T, num_nodes=4267)
    split = split_edges(graph, keep_forest=True)
    assert len(split.held_out) == round(0.2 * graph.num_edges)
    assert_no_leak(split.train, split.held_out, split.negatives, graph=graph)
    assert components(split.train).max() == components(graph).max()


@pytest.mark.parametrize("directed", [False, True])
def test_every_kind_of_leak_is_named_by_ids_and_counted(directed):
    whole = Graph.from_edges([("a", "b"), ("b", "c"), ("c", "d"), ("d", "e")], directed=directed)
    train = whole.with_edges([[0, 1], [1, 2]])
    good = [[2, 3]], [[0, 2], [0, 3]]
    assert_no_leak(train, *good, graph=whole)
    for positives, negatives, message in (
        ([[2, 3], [0, 1]], None, r"1 of 2 positives is in train, first \('a', 'b'\)"),
        ([[1, 2], [0, 1]], None, r"2 of 2 positives are in train, first \('b', 'c'\)"),
        ([[2, 3], [3, 4], [2, 3]], None, r"1 of 3 positives is there twice, first \('c', 'd'\)"),
        ([[2, 3]], [[0, 3], [1, 2]], r"1 of 2 negatives is in train, first \('b', 'c'\)"),
        ([[2, 3]], [[0, 3], [3, 4]], r"1 of 2 negatives is in graph, first \('d', 'e'\)"),
        ([[0, 4]], [[0, 3], [0, 4]], r"1 of 2 negatives is among the positives, first \('a', 'e'\)"),
        ([[2, 3]], [[0, 3], [0, 3]], r"1 of 2 negatives is there twice, first \('a', 'd'\)"),
    ):
        with pytest.raises(LeakError, match=message):
            assert_no_leak(train, positives, negatives, graph=whole)


def test_turned_pairs_leak_in_undirected_graphs_only():
    for directed in (False, True):
        train = Graph.from_codes([0], [1], num_nodes=4, directed=directed)
        cases = (
            ([[1, 0]], None),
            ([[1, 2], [2, 1]], None),
            ([[1, 2]], [[2, 1]]),
            ([[1, 2]], [[3, 0], [0, 3]]),
        )
        for positives, negatives in cases:
            if directed:
                assert_no_leak(train, positives, negatives)
            else:
                with pytest.raises(LeakError):
                    assert_no_leak(train, positives, negatives)


def test_ids_in_leak_messages_are_short_and_printable():
    train = Graph.from_edges([("\x1b[2J", "x" * 1000)])
    with pytest.raises(LeakError) as caught:
        assert_no_leak(train, [[0, 1]])
    assert "\x1b" not in str(caught.value)
    assert len(str(caught.value)) < 150


labels = st.tuples(st.integers(1, 4), st.integers(1, 5), st.integers(0, 2**32))


@given(labels, st.data())
@settings(max_examples=60, deadline=None)
def test_node_splits_are_disjoint_exact_per_class_and_never_touch_unlabelled_nodes(sizes, data):
    per_class, num_classes, seed = sizes
    rng = np.random.default_rng(seed)
    extra = rng.integers(-1, num_classes, size=data.draw(st.integers(0, 30)))
    y = rng.permutation(np.r_[np.repeat(np.arange(num_classes), per_class), extra])
    left = int((y >= 0).sum()) - per_class * num_classes
    validation = data.draw(st.integers(0, left))
    test = data.draw(st.integers(0, left - validation))
    split = split_nodes(y, per_class=per_class, validation=validation, test=test, seed=seed)
    assert (np.bincount(y[split.train], minlength=num_classes) == per_class).all()
    assert (len(split.validation), len(split.test)) == (validation, test)
    everyone = np.concatenate([split.train, split.validation, split.test])
    assert len(np.unique(everyone)) == len(everyone)
    assert (y[everyone] >= 0).all()
    again = split_nodes(
        y.astype(str) if (y >= 0).all() else y,
        per_class=per_class,
        validation=validation,
        test=test,
        seed=seed,
    )
    assert all(
        (getattr(split, part) == getattr(again, part)).all() for part in ("train", "validation", "test")
    )


def test_every_node_of_a_class_is_drawn_equally_often():
    y = np.array([0] * 4 + [1] * 6 + [-1] * 3)
    draws = [split_nodes(y, per_class=1, validation=2, test=3, seed=seed) for seed in range(600)]
    for part, expected in (
        ("train", [150] * 4 + [100] * 6),
        ("validation", [112.5] * 4 + [125] * 6),
        ("test", [168.75] * 4 + [187.5] * 6),
    ):
        seen = np.bincount(np.concatenate([getattr(draw, part) for draw in draws]), minlength=13)
        assert (seen[10:] == 0).all()
        assert is_plausible(seen[:10], expected)


def test_too_few_nodes_of_a_class_are_named_and_counted():
    y = [0] * 30 + [1] * 12 + [-1] * 50
    with pytest.raises(ArgumentError, match="class 1 has 12 labelled nodes, fewer than per_class=20"):
        split_nodes(y)
    with pytest.raises(ArgumentError, match="22 labelled nodes are left after training takes 20, fewer than"):
        split_nodes(y, per_class=10, validation=11, test=12)
    with pytest.raises(ArgumentError, match="class 'b' has 1 labelled"):
        split_nodes(np.array(["a", "a", "b"], object), per_class=2)
    for nobody in ([], [-1, -1]):
        with pytest.raises(ArgumentError, match="no labelled node"):
            split_nodes(nobody)


def test_labels_of_the_wrong_kind_are_refused():
    with pytest.raises(ShapeError, match="y must hold one label per node"):
        split_nodes(np.eye(3, dtype=int))
    for wrong in ([0.5, 1.0], [None, 1]):
        with pytest.raises(DtypeError, match="holds no labels"):
            split_nodes(wrong)
    for option in ({"per_class": 0}, {"validation": -1}, {"test": 1.5}, {"seed": -1}, {"seed": None}):
        with pytest.raises(ArgumentError, match=next(iter(option))):
            split_nodes([0, 1], **option)


@pytest.mark.parametrize("fraction", [0, 1, 1.5, -0.1, np.nan, np.inf, True, "0.2", None, 1j])
def test_the_fraction_lies_between_zero_and_one(fraction):
    with pytest.raises(ArgumentError, match="fraction must be a number between 0 and 1, got"):
        split_edges(path(30), fraction=fraction)


@pytest.mark.parametrize("call", ["exclude", "positives", "negatives"])
def test_pairs_of_the_wrong_kind_are_refused_by_name(call):
    def run(pairs):
        if call == "exclude":
            sample_non_edges(path(5), 1, exclude=pairs)
        elif call == "positives":
            assert_no_leak(path(5), pairs)
        else:
            assert_no_leak(path(5), [[0, 2]], pairs)

    run([])
    with pytest.raises(ShapeError, match=rf"{call} must be pairs .* shape \(2,\)"):
        run([0, 2])
    with pytest.raises(DtypeError, match=f"{call} must be node numbers, not float64"):
        run([[0.0, 2.0]])
    for wrong in (-1, 5, 2**62):
        with pytest.raises(ArgumentError, match=f"{call}: {wrong} in row 1 is outside a graph of 5 nodes"):
            run([[0, 3], [1, wrong]])


def test_wrong_counts_seeds_and_graphs_are_refused():
    for count in (-1, 2.0, None, True):
        with pytest.raises(ArgumentError, match="count must be an integer"):
            sample_non_edges(path(5), count)
    for seed in (-1, 0.5, None):
        with pytest.raises(ArgumentError, match="seed must be an integer"):
            sample_non_edges(path(5), 1, seed=seed)
        with pytest.raises(ArgumentError, match="seed must be an integer"):
            split_edges(path(30), seed=seed)
    for other in (path(6), Graph.from_codes([0], [1], num_nodes=5, directed=True)):
        with pytest.raises(ShapeError, match="must have the same nodes and direction"):
            assert_no_leak(path(5), [[0, 2]], graph=other)
