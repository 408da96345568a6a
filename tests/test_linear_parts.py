"""The closed form: every shortcut equals the refit that it saves."""

import warnings
from dataclasses import replace

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings
from scipy.optimize import minimize_scalar
from sklearn.datasets import load_digits
from sklearn.linear_model import Ridge

import fastgrl as fg
from fastgrl.errors import ArgumentError, NotFiniteError, ShapeError
from fastgrl.linear_parts import (
    TEMPERATURE_RANGE,
    leave_one_out,
    relabelled,
    smoother,
    solve,
    temperature,
)
from fastgrl.node_models import HopBasis, LinearPart

CLOSE = {"rtol": 1e-8, "atol": 1e-8}
KINDS = ("uniform", "classes", "any")


def part_of(Z, weights, targets, ridge):
    n, k = Z.shape
    basis = HopBasis(fg.Identity(n), Z, np.ones(1), np.eye(k), computed=(Z, np.ones(n)))
    return LinearPart(basis, weights, targets, ridge)


def class_weights(labels, kind, rng):
    """Weights of labelled nodes that sum to 1."""
    w = np.ones(len(labels))
    if kind == "classes":
        w = (1.0 + np.arange(labels.shape[1]))[labels.argmax(1)]
    elif kind == "any":
        w = rng.uniform(0.1, 2, len(labels))
    return w / w.sum()


def a_part(seed, *, n=14, k=4, m=6, kind="uniform", ridge=0.05, repeat=False, dtype=np.float64):
    rng = np.random.default_rng(seed)
    Z = rng.standard_normal((n, k)).astype(dtype)
    if repeat:
        Z[: n // 2] = Z[0]
    nodes = rng.permutation(n)[:m]
    targets = np.zeros((n, 3))
    targets[nodes, rng.integers(0, 3, m)] = 1
    weights = np.zeros(n)
    weights[nodes] = class_weights(targets[nodes], kind, rng)
    return part_of(Z, weights, targets, ridge)


def by_the_book(part):
    """P as the equations say it, without a thought for speed or memory."""
    Z, w, Q = part.Z.astype(np.float64), part.weights, part.targets
    if part.ridge is None:
        return Z @ (Z[w > 0].T @ Q[w > 0])
    mean, bias = Z.T @ w, Q.T @ w
    scatter = (Z.T * w) @ Z - np.outer(mean, mean)
    cross = (Z.T * w) @ Q - np.outer(mean, bias)
    return (Z - mean) @ np.linalg.solve(scatter + part.ridge * np.eye(Z.shape[1]), cross) + bias


def without(part, node):
    weights = part.weights.copy()
    weights[node] = 0
    return replace(part, weights=weights / weights.sum() if weights.any() else weights)


ridges = st.sampled_from([1e-3, 0.05, 1.0, 100.0, None])
shapes = st.tuples(st.integers(2, 12), st.sampled_from([1, 3, 8, 20]))  # labelled nodes, coordinates


@settings(deadline=None, max_examples=60)
@given(st.integers(0, 10_000), shapes, st.sampled_from(KINDS), ridges, st.booleans())
def test_the_solution_is_that_of_the_equations(seed, shape, kind, ridge, repeat):
    part = a_part(seed, m=shape[0], k=shape[1], kind=kind, ridge=ridge, repeat=repeat)
    np.testing.assert_allclose(solve(part).scores(), by_the_book(part), **CLOSE)


@given(st.integers(0, 10_000), st.sampled_from(KINDS))
@settings(deadline=None, max_examples=20)
def test_it_is_the_ridge_regression_of_scikit_learn(seed, kind):
    part = a_part(seed, m=9, kind=kind, ridge=0.1)
    rows = part.weights > 0
    other = Ridge(alpha=0.1).fit(part.Z[rows], part.targets[rows], sample_weight=part.weights[rows])
    np.testing.assert_allclose(solve(part).scores(), other.predict(part.Z), **CLOSE)


@settings(deadline=None, max_examples=150)
@given(st.integers(0, 10_000), shapes, st.sampled_from(KINDS), ridges, st.booleans())
def test_leaving_one_out_is_a_refit_without_it(seed, shape, kind, ridge, repeat):
    part = a_part(seed, m=shape[0], k=shape[1], kind=kind, ridge=ridge, repeat=repeat)
    nodes = np.arange(len(part.weights))
    refits = np.array([by_the_book(without(part, i))[i] for i in nodes])
    np.testing.assert_allclose(leave_one_out(part, nodes), refits, **CLOSE)


@pytest.mark.parametrize("light", [1e-14, 1e-7, 0.01, 0.03])
def test_one_heavy_node_is_left_out_exactly(light):
    part = a_part(3, m=6, kind="any")
    heavy = int(part.weights.argmax())
    weights = np.where(part.weights > 0, light * np.arange(1, 15), 0.0)
    weights[heavy] = 0
    weights[heavy] = 1 - weights.sum()
    part = replace(part, weights=weights)
    expected = by_the_book(without(part, heavy))[[heavy, heavy]]
    np.testing.assert_allclose(leave_one_out(part, [heavy, heavy]), expected, **CLOSE)


def test_weights_count_by_their_ratios():
    part = a_part(8, kind="any")
    heavier = replace(part, weights=7 * part.weights)
    np.testing.assert_allclose(solve(heavier).scores(), by_the_book(part), **CLOSE)
    nodes, changes = np.arange(14), {0: np.eye(3)[0], 1: None}
    np.testing.assert_allclose(leave_one_out(heavier, nodes), leave_one_out(part, nodes), **CLOSE)
    expected = relabelled(part, changes)[1].scores()
    np.testing.assert_allclose(relabelled(heavier, changes)[1].scores(), expected, **CLOSE)


@pytest.mark.parametrize("ridge", [0.1, None])
def test_the_only_label_left_out_leaves_zeros(ridge):
    part = a_part(0, m=1, ridge=ridge)
    (node,) = np.flatnonzero(part.weights)
    np.testing.assert_allclose(leave_one_out(part, [node, node]), 0, atol=1e-12)


def test_leaving_out_nothing_gives_no_rows():
    assert leave_one_out(a_part(0), []).shape == (0, 3)


def test_a_solution_at_hand_gives_the_same_bits():
    part = a_part(5)
    solution, nodes = solve(part), np.flatnonzero(part.weights)
    assert np.array_equal(leave_one_out(part, nodes, solution=solution), leave_one_out(part, nodes))
    assert np.array_equal(smoother(part, 2, solution=solution), smoother(part, 2))
    assert np.array_equal(solution.scores([3, 1]), solution.scores()[[3, 1]])


@settings(deadline=None, max_examples=60)
@given(st.integers(0, 10_000), shapes, st.sampled_from(KINDS), ridges)
def test_scores_are_the_shares_of_the_labels(seed, shape, kind, ridge):
    part = a_part(seed, m=shape[0], k=shape[1], kind=kind, ridge=ridge)
    shares = np.array([smoother(part, i) for i in range(len(part.weights))])
    np.testing.assert_allclose(shares @ part.targets, by_the_book(part), **CLOSE)
    assert not shares[:, part.weights == 0].any()
    if ridge is not None:
        np.testing.assert_allclose(shares.sum(1), 1, **CLOSE)


def refitted(part, changes):
    """The part fitted afresh: uniform weights over whoever has a label now."""
    weights, targets = part.weights.copy(), part.targets.copy()
    for node, row in changes.items():
        weights[node], targets[node] = (0, 0) if row is None else (1, row)
    labelled = weights > 0
    return replace(part, weights=labelled / max(labelled.sum(), 1), targets=targets)


def some_changes(part, rng, count):
    nodes = rng.permutation(len(part.weights))[:count]
    rows = [None if rng.random() < 0.4 else np.eye(3)[rng.integers(3)] for _ in nodes]
    return {int(node): row for node, row in zip(nodes, rows, strict=True)}


@settings(deadline=None, max_examples=150)
@given(
    st.integers(0, 10_000), st.sampled_from([1, 3, 8, 20]), ridges, st.lists(st.integers(0, 3), max_size=5)
)
def test_relabelling_is_a_refit_also_of_a_relabelling(seed, k, ridge, counts):
    part, rng = a_part(seed, m=8, k=k, ridge=ridge), np.random.default_rng(seed)
    solution = solve(part)
    for count in counts:
        changes = some_changes(part, rng, count)
        expected = refitted(part, changes) if changes else part
        if not expected.weights.sum() > 0:
            return
        part, solution = relabelled(part, changes, solution=solution)
        np.testing.assert_allclose(part.weights, expected.weights, rtol=1e-12, atol=1e-15)
        np.testing.assert_allclose(solution.scores(), by_the_book(expected), **CLOSE)
        assert solution.part is part


@settings(deadline=None, max_examples=40)
@given(st.integers(0, 10_000), st.integers(1, 4), ridges)
def test_changes_at_once_and_one_after_another_agree(seed, count, ridge):
    part = a_part(seed, m=9, k=12, ridge=ridge)
    changes = some_changes(part, np.random.default_rng(seed), count)
    _, once = relabelled(part, changes)
    solution = solve(part)
    for node, row in changes.items():
        part, solution = relabelled(part, {node: row}, solution=solution)
    np.testing.assert_allclose(solution.scores(), once.scores(), **CLOSE)


@settings(deadline=None, max_examples=40)
@given(st.integers(0, 10_000))
def test_a_label_weighs_what_its_class_weighs(seed):
    part, rng = a_part(seed, n=30, m=20, k=9, kind="classes"), np.random.default_rng(seed)
    present = np.unique(part.targets[part.weights > 0].argmax(1))
    changes = {int(node): np.eye(3)[rng.choice(present)] for node in rng.permutation(30)[:5]}
    after, solution = relabelled(part, changes)
    expected = refitted(part, changes)
    weights = np.where(expected.weights > 0, 1.0 + expected.targets.argmax(1), 0.0)
    expected = replace(expected, weights=weights / weights.sum())
    np.testing.assert_allclose(after.weights, expected.weights, **CLOSE)
    np.testing.assert_allclose(solution.scores(), by_the_book(expected), **CLOSE)


@settings(deadline=None, max_examples=40)
@given(st.integers(0, 10_000), st.sampled_from([0.01, 0.9]))
def test_any_weights_are_relabelled_as_the_new_part_says(seed, unequal):
    part, rng = a_part(seed, n=30, m=20, k=15), np.random.default_rng(seed)
    weights = part.weights * (1 + unequal * rng.uniform(-1, 1, 30))
    part = replace(part, weights=weights / weights.sum())
    after, solution = relabelled(part, some_changes(part, rng, 6))
    np.testing.assert_allclose(solution.scores(), by_the_book(after), **CLOSE)


def test_soft_targets_keep_their_weight_beside_a_new_label():
    part = a_part(1, n=10, m=4, k=3)
    rng = np.random.default_rng(1)
    soft = np.flatnonzero(part.weights == 0)[:3]
    targets, weights = part.targets.copy(), part.weights.copy() * 0.3
    targets[soft], weights[soft] = rng.dirichlet(np.ones(3), 3), [0.1, 0.2, 0.4]
    part = replace(part, targets=targets, weights=weights)
    free = int(np.flatnonzero(weights == 0)[0])
    after, solution = relabelled(part, {free: np.array([0.0, 1.0, 0.0])})
    assert after.weights[free] == pytest.approx(0.075 / 1.075)
    np.testing.assert_allclose(after.weights[soft], weights[soft] / 1.075)
    np.testing.assert_allclose(solution.scores(), by_the_book(after), **CLOSE)


def test_the_first_label_of_a_class_weighs_what_other_labels_weigh():
    targets = np.array([[1.0, 0, 0], [1, 0, 0], [0, 1, 0], [0.3, 0.4, 0.3], [0, 0, 0]])
    part = part_of(np.eye(5), np.array([0.1, 0.2, 0.3, 0.4, 0.0]), targets, 0.1)
    assert relabelled(part, {4: np.eye(3)[2]})[0].weights[4] == pytest.approx(0.2 / 1.2)
    assert relabelled(part, {4: np.eye(3)[0]})[0].weights[4] == pytest.approx(0.15 / 1.15)
    soft = replace(part, weights=np.array([0, 0, 0, 1.0, 0]))
    np.testing.assert_allclose(relabelled(soft, {4: np.eye(3)[2]})[0].weights, [0, 0, 0, 0.5, 0.5])


def test_the_last_node_of_a_class_can_go_and_come_back():
    part = a_part(2, m=5, k=6)
    targets = part.targets.copy()
    *others, last = np.flatnonzero(part.weights)
    targets[others], targets[last] = np.eye(3)[[0, 1, 0, 1]], np.eye(3)[2]
    part = replace(part, targets=targets)
    gone, first = relabelled(part, {last: None})
    np.testing.assert_allclose(first.scores()[:, 2], 0, atol=1e-12)
    _, second = relabelled(gone, {last: np.eye(3)[2]}, solution=first)
    np.testing.assert_allclose(second.scores(), by_the_book(part), **CLOSE)


def test_a_relabelling_can_be_left_out_and_explained():
    part, solution = relabelled(a_part(4, k=8), {0: np.eye(3)[0], 1: None})
    np.testing.assert_allclose(
        leave_one_out(part, [0], solution=solution), by_the_book(without(part, 0))[[0]], **CLOSE
    )
    np.testing.assert_allclose(
        smoother(part, 1, solution=solution) @ part.targets, by_the_book(part)[1], **CLOSE
    )


def test_a_relabelling_leaves_the_part_alone():
    part = a_part(6)
    weights, targets = part.weights.copy(), part.targets.copy()
    part.weights.flags.writeable = part.targets.flags.writeable = False
    solution = solve(part)
    relabelled(part, {0: np.eye(3)[1], 1: None}, solution=solution)
    assert np.array_equal(part.weights, weights)
    assert np.array_equal(part.targets, targets)
    assert relabelled(part, {}, solution=solution) == (part, solution)


def test_a_refit_comes_from_the_eigenvectors_of_the_fit_until_more_than_k_nodes_changed():
    part = a_part(7, n=30, m=20, k=4)
    solution = solve(part)
    after, few = relabelled(part, {i: np.eye(3)[0] for i in range(4)}, solution=solution)
    assert few.moments is solution.moments
    _, many = relabelled(after, {9: np.eye(3)[0]}, solution=few)
    assert many.moments is not solution.moments


def test_digits_hold_the_laws_in_float32_over_several_chunks():
    X, y = load_digits(return_X_y=True)
    Z = np.tile((X - X.mean(0)) / X.std(), (5, 1)).astype(np.float32)
    Z += 0.01 * np.random.default_rng(0).standard_normal(Z.shape).astype(np.float32)
    targets = np.eye(10)[np.tile(y, 5)]
    part = part_of(Z, np.full(len(Z), 1 / len(Z)), targets, 0.01)
    np.testing.assert_allclose(solve(part).scores(), by_the_book(part), atol=1e-8)
    left = leave_one_out(part, np.arange(len(Z)))
    refits = [solve(without(part, i)).scores([i])[0] for i in range(0, len(Z), 3000)]
    np.testing.assert_allclose(left[::3000], refits, atol=1e-8)


def loss(scores, labels, T):
    shifted = scores / T - (scores / T).max(1, keepdims=True)
    return -np.mean((labels * (shifted - np.log(np.exp(shifted).sum(1, keepdims=True)))).sum(1))


def logistic_loss(scores, labels, T):
    margins = (scores - 0.5) / T
    return np.mean(np.logaddexp(0, margins) - labels * margins)


def scored_labels(seed, multilabel, noise):
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, 2, (40, 4)) if multilabel else np.eye(4)[rng.integers(0, 4, 40)]
    return labels * 0.5 + 0.2 + noise * rng.standard_normal((40, 4)), labels


@settings(deadline=None, max_examples=60)
@given(st.integers(0, 10_000), st.booleans(), st.sampled_from([0.05, 0.3, 1.0, 5.0]))
def test_no_temperature_within_the_range_is_likelier(seed, multilabel, noise):
    scores, labels = scored_labels(seed, multilabel, noise)
    T = temperature(scores, labels, multilabel=multilabel)
    margins = scores - (0.5 if multilabel else scores.mean(1, keepdims=True))
    spread = np.sqrt(np.mean(margins**2))
    value = logistic_loss if multilabel else loss
    bounds = np.log(spread / TEMPERATURE_RANGE), np.log(spread * TEMPERATURE_RANGE)
    best = minimize_scalar(lambda t: value(scores, labels, np.exp(t)), bounds=bounds, method="bounded")
    assert bounds[0] - 1e-9 <= np.log(T) <= bounds[1] + 1e-9
    assert value(scores, labels, T) <= best.fun + 1e-9


@given(st.integers(0, 1000), st.sampled_from([1e-6, 0.1, 30.0, 1e9]))
@settings(deadline=None, max_examples=30)
def test_temperature_follows_the_scale_of_the_scores(seed, factor):
    scores, labels = scored_labels(seed, False, 0.5)
    shift = np.random.default_rng(seed).standard_normal((len(scores), 1))
    expected = factor * temperature(scores, labels)
    assert temperature(factor * (scores + shift), labels) == pytest.approx(expected, rel=1e-6)


DEGENERATE = {
    "one node": (np.array([[0.3, 0.7]]), np.array([[0, 1]])),
    "separable": (np.eye(3)[[0, 1, 2, 0]], np.eye(3)[[0, 1, 2, 0]]),
    "always wrong": (np.eye(3)[[1, 2, 0]], np.eye(3)[[0, 1, 2]]),
    "all equal": (np.full((5, 3), 1 / 3), np.eye(3)[[0, 1, 2, 0, 1]]),
    "zeros": (np.zeros((5, 3)), np.eye(3)[[0, 1, 2, 0, 1]]),
    "one class": (np.array([[0.9], [0.8]]), np.ones((2, 1))),
    "one class of many": (np.array([[0.9, 0.1], [0.8, 0.3]]), np.array([[1, 0], [1, 0]])),
    "no nodes": (np.empty((0, 3)), np.empty((0, 3))),
    "tiny": (1e-200 * np.eye(2), np.eye(2)),
    "huge": (1e200 * np.eye(2)[[0, 1, 0]], np.eye(2)[[0, 1, 1]]),
    "an outlier": (np.array([[1e9, 0], [0.1, 0], [0, 0.2]]), np.eye(2)[[0, 0, 0]]),
    "no labels": (np.array([[0.3, 0.7], [0.1, 0.2]]), np.zeros((2, 2))),
}


@pytest.mark.parametrize("multilabel", [False, True])
@pytest.mark.parametrize("case", DEGENERATE)
def test_degenerate_scores_have_a_finite_temperature_without_a_warning(case, multilabel):
    scores, labels = DEGENERATE[case]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        T = temperature(scores, labels, multilabel=multilabel)
    assert np.isfinite(T)
    assert T > 0


def test_scores_that_are_always_right_or_wrong_give_the_ends_of_the_range():
    spread = np.sqrt(2 / 9)
    assert temperature(*DEGENERATE["separable"]) == pytest.approx(spread / TEMPERATURE_RANGE)
    assert temperature(*DEGENERATE["always wrong"]) == pytest.approx(spread * TEMPERATURE_RANGE)
    assert temperature(*DEGENERATE["all equal"]) == 1.0


def test_what_is_wrong_is_said():
    part = a_part(0)
    with pytest.raises(ArgumentError, match="ridge must be finite and above 0, or None, got 0"):
        solve(replace(part, ridge=0))
    with pytest.raises(ArgumentError, match="solution is that of another part"):
        smoother(part, 0, solution=solve(a_part(1)))
    with pytest.raises(ArgumentError, match="no label would be left"):
        relabelled(part, {int(i): None for i in np.flatnonzero(part.weights)})
    with pytest.raises(ShapeError, match="labels of node 3 are 2 numbers for 3 classes"):
        relabelled(part, {3: [0.0, 1.0]})
    with pytest.raises(NotFiniteError, match="labels of node 3"):
        relabelled(part, {3: [0.0, 1.0, np.nan]})
    with pytest.raises(ArgumentError, match="node must be an integer"):
        relabelled(part, {14: None})
    with pytest.raises(ArgumentError, match="row 99"):
        leave_one_out(part, [99])
    with pytest.raises(ShapeError, match="they must agree"):
        temperature(np.eye(3), np.eye(2))
