"""co-ridge and its pieces: filters, views, the ridge and self-training against their formulas."""

import json

import hypothesis.strategies as st
import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from scipy.special import softmax

import fastgrl as fg
from fastgrl.co_ridge import CoRidgeModel, combined
from fastgrl.co_ridge_fits import fit_co_ridge
from fastgrl.datasets.synthetic import block_model
from fastgrl.filters import (
    averaging_matrix,
    filter_coefficients,
    filtered,
    renormalised_matrix,
    smoothed,
    undirected,
)
from fastgrl.node_models import NodeInputs, NodeSettings, Targets, Validation
from fastgrl.ridge import weighted_ridge
from fastgrl.self_training import Trainer
from fastgrl.similarity import similar_nodes
from fastgrl.view_bases import Surroundings, projection_of
from fastgrl.views import FeatureMap, is_bag_of_words

N, D, C = 30, 14, 3
few_examples = settings(max_examples=20, deadline=None)
seeds = st.integers(0, 10**6)


def a_graph(seed, *, directed=False, weighted=False, n=N):
    rng = np.random.default_rng(seed)
    pairs = rng.integers(0, n - 2, (2 * n, 2))  # the last two nodes are isolated
    weights = rng.uniform(0.5, 2.0, len(pairs)) if weighted else None
    return fg.Graph.from_codes(*pairs.T, num_nodes=n, directed=directed, weights=weights)


def some_words(seed, n=N, d=D):
    X = (np.random.default_rng(seed).random((n, d)) < 0.2).astype(float)
    X[1] = 0
    return X


def some_numbers(seed, n=N, d=D):
    return np.random.default_rng(seed).standard_normal((n, d)) * np.logspace(-3, 3, d)


def some_targets(seed, n=N, per_class=3):
    rng = np.random.default_rng(seed)
    labelled = np.sort(rng.permutation(n)[: per_class * C])
    labels = np.zeros((n, C))
    labels[labelled, rng.permutation(np.arange(len(labelled)) % C)] = 1
    weights = rng.uniform(0.5, 1.5, len(labelled))
    return Targets(np.arange(C), labels, labelled, weights / weights.sum())


# Filters.


@few_examples
@given(seeds, st.booleans(), st.booleans())
def test_the_matrices_are_the_formulas(seed, directed, weighted):
    graph = a_graph(seed, directed=directed, weighted=weighted)
    A = undirected(graph)
    dense = graph.to_scipy().toarray()
    dense = dense + dense.T if directed else dense
    if weighted:
        dense = dense / dense[dense > 0].mean()
    np.testing.assert_allclose(A.toarray(), dense, rtol=1e-12)
    looped = dense + np.eye(N)
    root = looped.sum(1) ** -0.5
    eye = np.eye(N)
    np.testing.assert_allclose(
        renormalised_matrix(A, dtype=np.float64) @ eye, root[:, None] * looped * root, rtol=1e-12
    )
    averages = averaging_matrix(A) @ eye.astype(np.float32)
    np.testing.assert_allclose(averages, looped / looped.sum(1)[:, None], rtol=1e-5, atol=1e-7)
    np.testing.assert_allclose(averages.sum(1), 1, rtol=1e-5)


@few_examples
@given(seeds, st.floats(0.01, 1.0), st.integers(1, 30))
def test_a_filter_is_its_polynomial(seed, restart, steps):
    S = renormalised_matrix(undirected(a_graph(seed)), dtype=np.float64)
    B = np.random.default_rng(seed).standard_normal((N, 3))
    kept = B.copy()
    H = smoothed(S, B, restart=restart, steps=steps)
    c = filter_coefficients(restart, steps)
    power, total = B, c[0] * B
    for coefficient in c[1:]:
        power = S @ power
        total = total + coefficient * power
    np.testing.assert_allclose(H, total, atol=1e-10)
    assert (kept == B).all()
    assert c.sum() == pytest.approx(1)
    assert (c >= 0).all()


def test_a_filter_keeps_the_leading_eigenvector_and_shrinks_the_rest():
    graph = a_graph(0)
    S = renormalised_matrix(undirected(graph), dtype=np.float64)
    leading = np.sqrt(graph.degrees + 1)[:, None]
    np.testing.assert_allclose(smoothed(S, leading, restart=0.1), leading, rtol=1e-10)
    B = np.random.default_rng(0).standard_normal((N, 2))
    assert (np.linalg.norm(smoothed(S, B, restart=0.1), axis=0) <= np.linalg.norm(B, axis=0)).all()
    np.testing.assert_allclose(smoothed(S, B, restart=1.0), B, rtol=1e-12)


@few_examples
@given(seeds)
def test_filtered_features_are_an_operator_with_its_transpose(seed):
    S = renormalised_matrix(undirected(a_graph(seed)), dtype=np.float64)
    X = some_words(seed)
    M = filtered(S, X, restart=0.15)
    rng = np.random.default_rng(seed)
    x, y = rng.standard_normal((D, 2)), rng.standard_normal((N, 2))
    np.testing.assert_allclose(M @ x, smoothed(S, X @ x, restart=0.15), atol=1e-10)
    np.testing.assert_allclose(y.T @ (M @ x), (M.T @ y).T @ x, atol=1e-9)


# Views.


def rows_to_unit(X):
    norms = np.linalg.norm(X, axis=1, keepdims=True)
    return X / np.where(norms > 0, norms, 1)


def view(X, name, dtype=np.float64):
    inputs = NodeInputs(a_graph(0), X)
    found = FeatureMap.of(inputs).features(inputs, name, dtype=dtype)
    return found.toarray() if sp.issparse(found) else found


@few_examples
@given(seeds, st.floats(1e-30, 1e30))
def test_words_are_counted_once_and_rare_ones_more(seed, unit):
    X = some_words(seed)
    frequency = X.sum(0)
    for form in (X * unit, sp.csr_array(X * unit), sp.csc_array(X)):
        np.testing.assert_allclose(view(form, "l"), rows_to_unit(X), atol=1e-12)
        rare = rows_to_unit(X * np.log((1 + N) / (1 + frequency)))
        np.testing.assert_allclose(view(form, "i"), rare, atol=1e-12)


@few_examples
@given(seeds, st.integers(-30, 30), st.floats(-3, 3))
def test_numbers_are_standardised_whatever_their_unit_and_origin(seed, exponent, origin):
    X = some_numbers(seed)
    standard = (X - X.mean(0)) / X.std(0)
    moved = (X + origin * X.std(0)) * 10.0**exponent
    np.testing.assert_allclose(view(moved, "l"), standard, atol=1e-9)
    np.testing.assert_allclose(view(moved, "i"), rows_to_unit(standard), atol=1e-9)
    np.testing.assert_allclose(view(sp.csr_array(moved), "l"), standard, atol=1e-9)


def test_a_constant_column_of_numbers_says_nothing():
    X = np.column_stack([np.full(N, 0.1), some_numbers(0, d=2), np.full(N, 1e30)])
    assert (view(X, "l")[:, [0, 3]] == 0).all()
    assert np.isfinite(view(X, "i")).all()


def test_what_is_a_bag_of_words():
    assert is_bag_of_words(some_words(0))
    assert is_bag_of_words(sp.csr_array(some_words(0)))
    assert not is_bag_of_words(-some_words(0))
    assert not is_bag_of_words(np.ones((3, 3)))
    explicit = sp.csr_array((np.zeros(9), (np.repeat(range(3), 3), np.tile(range(3), 3))))
    assert is_bag_of_words(explicit)


def test_explicit_zeros_are_no_words():
    X = some_words(0)
    stored = sp.csr_array((X.ravel(), (np.repeat(np.arange(N), D), np.tile(np.arange(D), N))), shape=(N, D))
    assert stored.nnz == N * D
    np.testing.assert_allclose(view(stored, "i"), view(X, "i"))


@few_examples
@given(seeds, st.integers(1, 6), st.booleans())
def test_similar_nodes_are_those_of_the_largest_cosines(seed, count, sparse):
    F = rows_to_unit(np.abs(some_numbers(seed, d=5)) * (np.random.default_rng(seed).random((N, 5)) < 0.6))
    K = similar_nodes(sp.csr_array(F) if sparse else F, count).toarray()
    cosines = F @ F.T
    np.fill_diagonal(cosines, 0)
    wanted = np.zeros((N, N))
    for i, row in enumerate(cosines):
        best = np.argsort(-row, kind="stable")[:count]
        wanted[i, best[row[best] > 0]] = 1
    assert (np.maximum(wanted, wanted.T) == K).all()


def test_no_node_is_similar_to_itself_or_to_one_without_features():
    F = np.zeros((6, 3))
    F[:3] = [1, 0, 0]
    K = similar_nodes(F, 5).toarray()
    assert (K.diagonal() == 0).all()
    assert K[:3, :3].sum() == 6
    assert K[3:].sum() == 0
    assert similar_nodes(np.eye(2), 5).nnz == 0


# Coordinates.


@pytest.mark.parametrize("name", ["l", "i", "k"])
@pytest.mark.parametrize("make", [some_words, some_numbers])
def test_coordinates_have_mean_zero_and_unit_root_mean_square(name, make):
    inputs = NodeInputs(a_graph(1), make(1))
    around = Surroundings(inputs, FeatureMap.of(inputs), np.float64)
    V = projection_of(around, name, rank=6, seed=0)
    assert V.shape == (D, 6)
    np.testing.assert_allclose(V.T @ V, np.eye(6), atol=1e-5)
    found = around.coordinates(name, around.projected(name, V), restart=0.1)
    np.testing.assert_allclose(found.Z.mean(0), 0, atol=1e-10)
    assert np.mean(np.sum(found.Z**2, axis=1)) == pytest.approx(1, abs=1e-6)
    basis = around.basis(name, V, 0.1, found.frame)
    np.testing.assert_allclose(basis.rows, found.Z, atol=1e-9)  # hop by hop as in one go
    np.testing.assert_allclose(basis.norms, found.norms, rtol=1e-9)
    again = around.coordinates(name, around.projected(name, V), restart=0.1, frame=found.frame)
    assert (again.Z == found.Z).all()


@pytest.mark.parametrize("columns", [150, 300, 700])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_projections_hold_most_of_what_there_is(columns, dtype):
    inputs = NodeInputs(a_graph(0, n=80), some_words(0, n=80, d=columns))
    around = Surroundings(inputs, FeatureMap.of(inputs), dtype)
    V = projection_of(around, "l", rank=40, seed=0)
    H = smoothed(around.operator("l"), around.of("l").toarray(), restart=0.15)
    best = np.sum(np.linalg.svd(H, compute_uv=False)[:40] ** 2)
    assert np.linalg.norm(H @ V.astype(dtype)) ** 2 > 0.99 * best


# The ridge.


@few_examples
@given(seeds, st.floats(1e-4, 10.0), st.booleans())
def test_the_ridge_is_the_minimum_of_its_objective(seed, ridge, single):
    rng = np.random.default_rng(seed)
    Z, Q = rng.standard_normal((N, 5)), rng.random((N, C))
    w = rng.random(N) * (rng.random(N) < 0.7)
    w[0] = 1.0
    kind = np.float32 if single else np.float64
    found = weighted_ridge(Z.astype(kind), w, Q, ridge=ridge)
    P = found.scores(Z.astype(kind))
    assert P.dtype == kind
    w = w / w.sum()
    W, bias = found.coefficients, found.bias - found.mean @ found.coefficients
    residual = Z @ W + bias - Q
    slack = 1e-4 if single else 1e-9
    np.testing.assert_allclose(Z.T @ (w[:, None] * residual) + ridge * W, 0, atol=slack)
    np.testing.assert_allclose(w @ residual, 0, atol=slack)
    np.testing.assert_allclose(P, Z @ W + bias, atol=slack)


@few_examples
@given(seeds, st.floats(1e-6, 1e6))
def test_only_ratios_of_weights_matter_and_weightless_nodes_play_no_part(seed, unit):
    rng = np.random.default_rng(seed)
    Z, Q, w = rng.standard_normal((N, 4)), rng.random((N, C)), rng.random(N)
    w[::3] = 0
    one = weighted_ridge(Z, w, Q, ridge=0.1).scores(Z)
    Z2, Q2 = Z.copy(), Q.copy()
    Z2[::3], Q2[::3] = 1e6, -7
    np.testing.assert_allclose(weighted_ridge(Z2, w * unit, Q2, ridge=0.1).scores(Z), one, atol=1e-9)
    twice = np.concatenate([Z, Z])
    both = weighted_ridge(twice, np.concatenate([w, w]), np.concatenate([Q, Q]), ridge=0.1)
    np.testing.assert_allclose(both.scores(Z), one, atol=1e-9)


@few_examples
@given(seeds)
def test_targets_that_sum_to_one_give_scores_that_sum_to_one(seed):
    rng = np.random.default_rng(seed)
    Z, Q = rng.standard_normal((N, 4)), rng.dirichlet(np.ones(C), N)
    np.testing.assert_allclose(weighted_ridge(Z, rng.random(N), Q, ridge=0.01).scores(Z).sum(1), 1, atol=1e-9)


def test_coordinates_that_say_nothing_give_the_mean():
    Q = np.eye(C)[np.arange(N) % C]
    found = weighted_ridge(np.zeros((N, 4)), np.ones(N), Q, ridge=0.1).scores(np.zeros((N, 4)))
    np.testing.assert_allclose(found, np.tile(Q.mean(0), (N, 1)))
    same = np.repeat(np.random.default_rng(0).random((N, 1)), 3, axis=1)
    assert np.isfinite(weighted_ridge(same, np.ones(N), Q, ridge=1e-300).scores(same)).all()


# Self-training.


def believed(P, targets):
    """softmax(4 (P − row mean) / mean over unlabelled nodes of the row's maximum above its mean)."""
    centred = P - P.mean(1, keepdims=True)
    free = np.setdiff1d(np.arange(len(P)), targets.labelled)
    return softmax(4 * centred / centred[free].max(1).mean(), axis=1)


def rounds_written_out(views, targets, T, *, ridge, balance, rounds, smoothing):
    clamped = np.zeros(len(views[0]), bool)
    clamped[targets.labelled] = True
    w = np.zeros(len(clamped))
    w[targets.labelled] = targets.weights
    Q, g = targets.labels, ridge
    for number in range(rounds + 1):
        if number:
            Q = np.where(clamped[:, None], targets.labels, beliefs)  # noqa: F821
            start = Q
            for _ in range(6):
                Q = (1 - smoothing) * T @ Q + smoothing * start
            Q = np.where(clamped[:, None], targets.labels, Q)
            w = np.where(clamped, 0, (Q.max(1) - 1 / C) / (1 - 1 / C))
            w *= 0.7 / w.sum()
            w[targets.labelled] = 0.3 * targets.weights
            w *= Q @ (Q.T @ w) ** -balance
            w, g = w / w.sum(), 0.3 * ridge
        beliefs = 0
        for Z in views:
            mean, bias = Z.T @ w, Q.T @ w
            gram = Z.T @ (w[:, None] * Z) - np.outer(mean, mean) + g * np.eye(Z.shape[1])
            W = np.linalg.solve(gram, Z.T @ (w[:, None] * Q) - np.outer(mean, bias))
            beliefs = beliefs + believed((Z - mean) @ W + bias, targets) / len(views)
        yield w, Q, beliefs


@few_examples
@given(seeds, st.floats(0.003, 0.3), st.floats(0.0, 1.0), st.integers(1, 2))
def test_rounds_are_the_formulas(seed, ridge, balance, count):
    graph, targets = a_graph(seed), some_targets(seed)
    rng = np.random.default_rng(seed)
    views = [targets.labels @ rng.standard_normal((C, 4)) + rng.standard_normal((N, 4)) for _ in range(count)]
    averaging = averaging_matrix(undirected(graph))
    T = averaging @ np.eye(N, dtype=np.float32)
    how = {"ridge": ridge, "balance": balance, "rounds": 3}
    trainer = Trainer([Z.astype(np.float32) for Z in views], targets, averaging)
    wanted = list(rounds_written_out(views, targets, T.astype(float), smoothing=0.7, **how))
    found = list(trainer.rounds(**how))
    assert len(found) == len(wanted) == 4
    for one, (w, Q, beliefs) in zip(found, wanted, strict=True):
        np.testing.assert_allclose(one.weights, w, atol=2e-3)
        np.testing.assert_allclose(one.targets, Q, atol=5e-3)
        np.testing.assert_allclose(one.beliefs, beliefs, atol=5e-3)


@few_examples
@given(seeds, st.floats(0, 2))
def test_every_round_has_weights_and_beliefs_that_are_shares(seed, balance):
    targets = some_targets(seed, per_class=1)
    rng = np.random.default_rng(seed)
    averaging = averaging_matrix(undirected(a_graph(seed)))
    trainer = Trainer([rng.standard_normal((N, 6)).astype(np.float32)], targets, averaging)
    for latest in trainer.rounds(ridge=0.01, balance=balance, rounds=5):
        assert latest.weights.sum() == pytest.approx(1)
        assert (latest.weights >= 0).all()
        np.testing.assert_allclose(latest.beliefs.sum(1), 1, atol=1e-5)
        assert (latest.targets[targets.labelled] == targets.known).all()


def test_classes_are_balanced_so_that_none_swallows_the_others():
    data = block_model(400, num_classes=4, mixing=0.45, topic_share=0.2, train_per_class=5, seed=3)
    y = np.full(400, -1)
    y[data.train] = data.y[data.train]
    sizes = [
        np.bincount(
            fg.NodeClassifier(select=False, balance=b, rounds=8)
            .fit(data.graph, y, features=data.X)
            .predict(),
            minlength=4,
        )
        for b in (0.0, 1.0)
    ]
    assert sizes[1].min() > sizes[0].min()
    assert sizes[1].min() > 40


# The whole.


def a_problem(seed=0, features=True):
    data = block_model(
        150, num_classes=C, num_features=80, train_per_class=6, validation_per_class=10, seed=seed
    )
    labels = np.zeros((150, C))
    labels[data.train] = np.eye(C)[data.y[data.train]]
    targets = Targets(np.arange(C), labels, data.train, np.full(len(data.train), 1 / len(data.train)))
    held = Validation(data.validation, np.eye(C)[data.y[data.validation]])
    return NodeInputs(data.graph, data.X if features else None), targets, held


@pytest.mark.parametrize("features", [True, False])
@pytest.mark.parametrize("select", [True, False])
def test_a_model_scores_as_its_fit_did(features, select):
    inputs, targets, held = a_problem(features=features)
    fitted = fit_co_ridge(inputs, targets, NodeSettings(select=select), validation=held)
    np.testing.assert_allclose(fitted.model.scores(inputs), fitted.scores, atol=1e-3)
    assert (fitted.model.scores(inputs).argmax(1) == fitted.scores.argmax(1)).all()
    np.testing.assert_allclose(np.exp(fitted.scores).sum(1), 1, atol=1e-5)
    assert fitted.chosen["averaged"] == (5 if select else 1)
    parts = fitted.model.parts(inputs)
    assert sum(part.share for part in parts) == pytest.approx(1)
    for part in parts:
        assert part.weights.sum() == pytest.approx(1)


@pytest.mark.parametrize("features", [True, False])
def test_what_is_stored_is_the_model(features):
    inputs, targets, held = a_problem(features=features)
    model = fit_co_ridge(inputs, targets, NodeSettings(), validation=held).model
    facts = json.loads(json.dumps(model.facts()))
    again = CoRidgeModel.of_stored(model.arrays(), facts)
    assert (again.scores(inputs) == model.scores(inputs)).all()
    assert again.exact == model.exact
    one, two = (m.parts(inputs) for m in (model, again))
    assert all((a.targets == b.targets).all() and a.ridge == b.ridge for a, b in zip(one, two, strict=True))


def test_the_best_settings_are_reported_best_first():
    inputs, targets, held = a_problem()
    fitted = fit_co_ridge(inputs, targets, NodeSettings(), validation=held)
    assert 5 <= len(fitted.near_best) <= 10
    errors = [one["brier"] for one in fitted.near_best]
    assert errors == sorted(errors)
    best = fitted.near_best[0]
    assert all(fitted.chosen[name] == best[name] for name in ("views", "restart", "ridge", "rounds"))


def test_what_the_caller_fixes_is_not_chosen():
    inputs, targets, held = a_problem()
    fixed = {"views": ("i",), "restart": 0.33, "ridge": 0.07, "balance": 0.6, "rounds": 1}
    for validation in (held, None):
        chosen = fit_co_ridge(inputs, targets, NodeSettings(**fixed), validation=validation).chosen
        assert {**fixed, "views": ["i"]} == {name: chosen[name] for name in fixed}
    some = fit_co_ridge(inputs, targets, NodeSettings(ridge=0.07), validation=held)
    assert {one["ridge"] for one in some.near_best} == {0.07}


def test_scores_are_logarithms_of_mean_beliefs():
    beliefs = np.array([[0.5, 0.5], [1.0, 0.0]])
    np.testing.assert_allclose(np.exp(combined(beliefs, False)), beliefs, atol=1e-11)
    assert np.isfinite(combined(beliefs, False)).all()
    assert (combined(beliefs, True) == beliefs).all()
