"""The scorer of pairs, the hold-outs it learns from, and the two small helpers beside them."""

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings
from sklearn.linear_model import LogisticRegression
from test_link_prediction import bipartite_edges, digits, small
from test_push import graphs

import fastgrl as fg
from fastgrl.bipartite import sample_across, two_sides
from fastgrl.errors import ArgumentError
from fastgrl.ordering import canonical_order, reordered
from fastgrl.progress import portions
from fastgrl.scorers import fit_scorer, fixed_scorer
from fastgrl.selection import MOST_PAIRS, hold_out, node_weights
from fastgrl.spaces import FEATURE_SETS, FEATURES, build_space
from fastgrl.splits import assert_no_leak


def problem(seed, count=300, features=4, noise=1.0):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((count, features)) * 10.0 ** rng.integers(-3, 4, features)
    odds = (X / X.std(0)) @ rng.standard_normal(features) + noise * rng.standard_normal(count)
    return X, (odds > 0).astype(float)


@settings(deadline=None, max_examples=30)
@given(st.integers(0, 1000), st.sampled_from([0.01, 1.0, 100.0]), st.sampled_from([0.0, 1.0]))
def test_the_optimum_is_that_of_scikit_learn(seed, ridge, noise):
    X, y = problem(seed, noise=noise)
    if len(set(y)) < 2:
        return
    scorer = fit_scorer(X, y, ridge=ridge)
    Z = (X - X.mean(0)) / X.std(0)
    other = LogisticRegression(C=1 / ridge, tol=1e-10, max_iter=10_000).fit(Z, y)
    np.testing.assert_allclose(scorer(X), other.decision_function(Z), rtol=1e-3, atol=1e-3)


@given(st.integers(0, 1000))
@settings(deadline=None, max_examples=30)
def test_the_slope_vanishes_at_the_optimum(seed):
    X, y = problem(seed)
    scorer = fit_scorer(X, y)
    Z = (X - X.mean(0)) / X.std(0)
    wrong = 1 / (1 + np.exp(-scorer(X))) - y
    # Steps end when they promise 1e-12 of the loss; of the thousand problems the worst then has 1.1e-4 left.
    np.testing.assert_allclose(Z.T @ wrong + scorer.weights, 0, atol=2e-4)
    assert abs(wrong.sum()) < 2e-4


def test_constant_and_equal_columns_do_no_harm():
    X, y = problem(0)
    odd = np.column_stack([X, X[:, 0], np.full(len(X), 7.0), np.zeros(len(X))])
    scores = fit_scorer(odd, y)(odd)
    assert np.isfinite(scores).all()
    assert np.corrcoef(scores, fit_scorer(X, y)(X))[0, 1] > 0.999


def test_features_one_by_one_give_the_same_score():
    X, y = problem(3)
    scorer = fit_scorer(X, y)
    np.testing.assert_allclose(scorer.combine(iter(X.T), np.dtype(np.float64)), scorer(X), rtol=1e-9)


def test_fixed_weights_are_one_and_one_half():
    X, _ = problem(1)
    scorer = fixed_scorer(X)
    assert scorer.weights.tolist() == [1, 0.5]
    assert np.isfinite(scorer(X[:, :2])).all()


def test_weights_beside_a_cosine_of_weight_one():
    X, y = problem(5, features=6)
    scorer = fit_scorer(X, y)
    slopes = scorer.weights / scorer.deviations
    wanted = slopes[1:] / slopes[0] if slopes[0] > 0 else np.zeros(5)
    np.testing.assert_allclose(node_weights(scorer), wanted)


def test_held_out_pairs_do_not_leak():
    held = hold_out(digits(), seed=0)
    links, others = held.pairs[: held.num_links], held.pairs[held.num_links :]
    assert_no_leak(held.train, links, negatives=others)
    assert not digits().has_edges(*others.T).any()
    assert held.truth.sum() == held.num_links == len(held.pairs) // 2 <= MOST_PAIRS


@pytest.mark.parametrize("n", [4, 30, 200])
def test_trees_and_cliques_have_nothing_to_hold_out(n):
    tree = fg.Graph.from_codes(np.arange(1, n) // 2, np.arange(1, n), num_nodes=n)
    clique = fg.Graph.from_codes(*np.triu_indices(min(n, 40), 1))
    assert hold_out(tree, seed=0) is None
    assert hold_out(clique, seed=0) is None


@given(graphs(), st.sampled_from([0.5, 0.85]))
@settings(deadline=None, max_examples=30)
def test_features_of_pairs_and_of_blocks_agree(graph, damping):
    space = build_space(graph, rank=3, damping=damping)
    n = graph.num_nodes
    pairs = np.stack(np.meshgrid(np.arange(n), np.arange(n), indexing="ij"), -1).reshape(-1, 2)
    for count in (len(FEATURES), FEATURE_SETS["F3"]):
        wanted = space.features(pairs, count)
        assert np.isfinite(wanted).all()
        blocks = space.block_features(count)(np.arange(n), slice(0, n))
        for j, block in zip(range(count), blocks, strict=False):
            found = np.broadcast_to(block, (n, n)).ravel()
            scale = max(1.0, np.abs(wanted[:, j]).max())
            np.testing.assert_allclose(found / scale, wanted[:, j] / scale, atol=2e-3, err_msg=FEATURES[j])


def test_feature_sets_are_first_parts_of_one_list():
    assert list(FEATURE_SETS.values()) == sorted(FEATURE_SETS.values())
    assert FEATURE_SETS["F4"] == len(FEATURES) == len(set(FEATURES))


@given(st.integers(1, 6), st.integers(1, 6), st.data())
def test_every_edge_of_a_bipartite_graph_runs_across(a, b, data):
    edges = data.draw(
        st.lists(st.tuples(st.integers(0, a - 1), st.integers(0, b - 1)), min_size=1, max_size=20)
    )
    graph = fg.Graph.from_edges([(f"u{u}", f"i{v}") for u, v in edges])
    sides = two_sides(graph)
    codes = graph.edge_codes()
    assert (sides[codes[:, 0]] != sides[codes[:, 1]]).all()
    assert all(sides[i] == (name[0] == "i") for i, name in enumerate(graph.node_ids))


def test_odd_cycles_have_no_sides():
    assert two_sides(fg.Graph.from_edges([(0, 1), (1, 2), (2, 0)])) is None
    assert two_sides(fg.Graph.from_edges([(0, 0), (0, 1)])) is None


def test_pairs_across_are_distinct_and_no_edges():
    graph = fg.Graph.from_edges(bipartite_edges())
    sides = two_sides(graph)
    pairs = sample_across(graph, sides, 300, seed=1)
    assert (sides[pairs[:, 0]] == 0).all()
    assert (sides[pairs[:, 1]] == 1).all()
    assert len({tuple(pair) for pair in pairs.tolist()}) == 300
    assert not graph.has_edges(*pairs.T).any()
    with pytest.raises(ArgumentError, match="across"):
        sample_across(graph, sides, 10**6)


@given(st.permutations([f"n{i}" for i in range(12)]))
def test_one_order_for_all_numberings(names):
    graph = fg.Graph.from_codes(np.arange(11), np.arange(1, 12), node_ids=names)
    order = canonical_order(graph.node_ids)
    same = graph if order is None else reordered(graph, order)
    assert same.node_ids.tolist() == sorted(names)
    back = same.node_ids[same.edge_codes()].tolist()
    assert {frozenset(pair) for pair in back} == {
        frozenset(pair) for pair in graph.node_ids[graph.edge_codes()].tolist()
    }


def test_ids_of_many_kinds_have_an_order():
    ids = fg.Graph.from_edges([(1, "1"), ((2, "a"), 1.5), ("b", (2, "a"))]).node_ids
    order = canonical_order(ids)
    assert sorted(order.tolist()) == list(range(5))
    assert canonical_order(ids[order]) is None


def test_parts_of_a_computation_fill_one_bar():
    seen = []
    bars = portions(lambda done, total: seen.append(done / total), [1, 2, 1])
    for bar in bars:
        bar(1, 2)
        bar(2, 2)
    assert seen == [0.125, 0.25, 0.5, 0.75, 0.875, 1.0]
    assert portions(None, [1, 1]) == [None, None]


def test_small_communities_are_told_apart():
    links = fg.LinkPredictor(n_components=16).fit(small())
    assert links.validation_["roc_auc"] > 0.75
