"""The paper's node classifiers: equal to dense algebra on small graphs, then real data, then bad input."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import fastgrl as fg
from fastgrl import jkn, jkn_solves, jkn_sweeps
from fastgrl.errors import ArgumentError, ShapeError
from fastgrl.jkn import JknModel, fit_jkn
from fastgrl.jkn_features import propagation, structure_factors, structure_of
from fastgrl.jkn_sweeps import Grid, trials_of
from fastgrl.linear_parts import relabelled, solve
from fastgrl.node_models import PAPER_DESIGNS, NodeInputs, NodeSettings, Targets, Validation

FIXED = {"hops": 2, "rank": 6, "window": 2, "negative": 0.3}


def a_graph(n=24, seed=0, edges=3):
    random = np.random.Generator(np.random.Philox(seed))
    ends = random.integers(0, n, size=(2, edges * n))
    return fg.Graph.from_codes(*ends, num_nodes=n)


def some_features(n=24, d=7, seed=0, sparse=True):
    X = np.random.Generator(np.random.Philox(seed + 1)).standard_normal((n, d)) + 0.3
    X[np.abs(X) < 0.5] = 0
    return sp.csr_array(X) if sparse else X


def known(n, nodes, classes=3, *, seed=0, weights=None):
    nodes = np.sort(np.asarray(nodes))
    y = np.random.Generator(np.random.Philox(seed + 2)).integers(0, classes, size=n)
    labels = np.zeros((n, classes))
    labels[nodes] = np.eye(classes)[y[nodes]]
    w = np.ones(len(nodes)) if weights is None else weights
    return Targets(np.arange(classes), labels, nodes, w / w.sum())


def a_problem(seed=0, *, n=24, d=7, labelled=10, sparse=True, weights=None):
    nodes = np.random.Generator(np.random.Philox(seed + 3)).permutation(n)[:labelled]
    inputs = NodeInputs(a_graph(n, seed), some_features(n, d, seed, sparse))
    return inputs, known(n, nodes, seed=seed, weights=weights)


def dense_matrix(inputs, design, *, hops, window, negative, rank=None):
    """[Z, ÂZ, …] by its definition; nothing is dropped on graphs as small as these."""
    del rank
    n = inputs.num_nodes
    structure = structure_of(structure_factors(inputs.graph, design, window=window, negative=negative).svd)
    X = np.zeros((n, 0)) if inputs.features is None else inputs.features
    F = np.hstack([X.toarray() if sp.issparse(X) else X, structure])
    Z, loop = F - F.mean(0), 1.0
    if design == "jkn-as-released":
        Z, loop = np.hstack([Z, structure]), 1.5
    A = inputs.graph.to_scipy().toarray() + loop * np.eye(n)
    S = A / np.sqrt(np.outer(A.sum(0), A.sum(0)))
    blocks = [np.linalg.matrix_power(S, hop) @ Z for hop in range(hops + 1)]
    return np.hstack([*blocks, np.ones((n, 1))] if design == "jkn-as-released" else blocks)


def dense_scores(inputs, targets, design, fixed, *, ridge=None):
    M, k, nodes = dense_matrix(inputs, design, **fixed), fixed["rank"], targets.labelled
    Y, w = targets.labels[nodes], targets.weights
    if design != "jkn-text":
        root = np.sqrt(w * len(w))[:, None]
        U, s, Vt = np.linalg.svd(root * M[nodes], full_matrices=False)
        assume(len(s) <= k or s[k] < 0.99 * s[k - 1])
        return M @ Vt[:k].T @ (U[:, :k].T @ (root * Y) / s[:k, None])
    U, s, _ = np.linalg.svd(M, full_matrices=False)
    assume(len(s) <= k or s[k] < 0.99 * s[k - 1])
    U, s = U[:, :k], s[:k]
    if ridge is None:
        return U @ (U[nodes].T @ (w[:, None] * len(w) * Y))
    Z = U * s / np.sqrt((s**2).sum() / len(U))
    X, mean, bias = Z[nodes], w @ Z[nodes], w @ Y
    C = (X - mean).T @ (w[:, None] * (X - mean)) + ridge * np.eye(k)
    return (Z - mean) @ np.linalg.solve(C, (X - mean).T @ (w[:, None] * (Y - bias))) + bias


@given(st.sampled_from(PAPER_DESIGNS), st.integers(0, 60), st.integers(0, 3), st.booleans(), st.booleans())
@settings(max_examples=25, deadline=None)
def test_scores_are_those_of_dense_algebra_however_they_are_computed(design, seed, hops, sparse, weighted):
    weights = np.linspace(1, 3, 10) if weighted else None
    inputs, targets = a_problem(seed, sparse=sparse, weights=weights)
    fixed = FIXED | {"hops": hops}
    wanted = dense_scores(inputs, targets, design, fixed)
    dual = fit_jkn(inputs, targets, NodeSettings(design, **fixed))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(jkn_solves, "DUAL_LABELS", 0)
        primal = fit_jkn(inputs, targets, NodeSettings(design, **fixed))
    np.testing.assert_allclose(dual.scores, wanted, atol=2e-5 * np.abs(wanted).max())
    np.testing.assert_allclose(primal.scores, wanted, atol=2e-5 * np.abs(wanted).max())
    assert dual.chosen == fixed


@given(st.integers(0, 40), st.sampled_from([0.01, 1.0]))
@settings(max_examples=8, deadline=None)
def test_text_with_a_ridge_is_a_weighted_ridge_on_the_left_vectors(seed, ridge):
    inputs, targets = a_problem(seed, weights=np.linspace(1, 2, 10))
    wanted = dense_scores(inputs, targets, "jkn-text", FIXED, ridge=ridge)
    fitted = fit_jkn(inputs, targets, NodeSettings("jkn-text", ridge=ridge, **FIXED))
    np.testing.assert_allclose(fitted.scores, wanted, atol=1e-5 * np.abs(wanted).max())
    assert fitted.chosen["ridge"] == ridge


def test_with_every_direction_the_labels_are_met_with_the_least_norm():
    inputs, targets = a_problem(3)
    scores = fit_jkn(inputs, targets, NodeSettings("jkn", **FIXED | {"rank": 10})).scores
    np.testing.assert_allclose(scores[targets.labelled], targets.known, atol=1e-6)


CASES = [(design, None) for design in PAPER_DESIGNS] + [("jkn-text", 0.1)]


@pytest.mark.parametrize(("design", "ridge"), CASES)
@given(seed=st.integers(0, 30))
@settings(max_examples=6, deadline=None)
def test_scores_are_the_sum_of_the_parts_and_of_every_column_at_every_hop(design, ridge, seed):
    inputs, targets = a_problem(seed, weights=np.linspace(1, 2, 10))
    fitted = fit_jkn(inputs, targets, NodeSettings(design, ridge=ridge, **FIXED))
    model = fitted.model
    (part,) = model.parts(replace(inputs, structure=model.structure))
    assert model.exact
    np.testing.assert_allclose(solve(part).scores(), fitted.scores, atol=1e-6)
    kinds, F = part.basis.kinds, part.basis.features
    assert (kinds.count("feature"), kinds.count("structure"), kinds.count("constant")) == (7, 48, 1)
    S, total = propagation(inputs.graph, design) @ np.eye(24), np.zeros_like(part.Z)
    for hop in range(3):
        total += np.linalg.matrix_power(S, hop) @ (F @ part.basis.projection_of(hop))
    np.testing.assert_allclose(total, part.Z, atol=1e-8 * np.abs(total).max())


@pytest.mark.parametrize(("design", "ridge"), CASES)
def test_leaving_one_out_is_a_refit_without_it(design, ridge):
    inputs, targets = a_problem(4)
    chosen = NodeSettings(design, ridge=ridge, **FIXED)
    fitted = fit_jkn(inputs, targets, chosen)
    for place, node in enumerate(targets.labelled):
        labels = targets.labels.copy()
        labels[node] = 0
        nodes = np.delete(targets.labelled, place)
        # The paper's product is a sum over labels; its terms keep their size.
        rest = replace(targets, labels=labels, labelled=nodes, weights=np.full(9, 1 / 9))
        refitted = fit_jkn(inputs, rest, chosen).scores[node]
        np.testing.assert_allclose(fitted.loo_scores[place], refitted, atol=2e-5)


@pytest.mark.parametrize("ridge", [None, 0.1])
def test_a_label_that_changes_is_a_refit_where_the_basis_ignores_labels(ridge):
    inputs, targets = a_problem(5)
    asked = NodeSettings("jkn-text", ridge=ridge, **FIXED)
    model = fit_jkn(inputs, targets, asked).model
    node = int(targets.labelled[3])
    row = np.roll(targets.labels[node], 1)
    (part,) = model.parts(inputs)
    _, solution = relabelled(part, {node: row})
    changed, scores = model.resolved([solution])
    labels = targets.labels.copy()
    labels[node] = row
    refitted = fit_jkn(inputs, replace(targets, labels=labels), asked)
    assert model.basis_ignores_labels
    np.testing.assert_allclose(scores, refitted.scores, atol=1e-8)
    np.testing.assert_allclose(changed.scores(inputs), refitted.scores, atol=1e-8)


@pytest.mark.parametrize("design", PAPER_DESIGNS)
def test_what_is_stored_gives_the_same_scores(design):
    inputs, targets = a_problem(5)
    model = fit_jkn(inputs, targets, NodeSettings(design, **FIXED)).model
    facts = json.loads(json.dumps(model.facts()))
    again = JknModel.of_stored({name: np.array(array) for name, array in model.arrays().items()}, facts)
    np.testing.assert_array_equal(again.scores(inputs), model.scores(inputs))
    assert (again.hops, again.rank, again.design) == (2, 6, design)


@pytest.mark.parametrize("design", PAPER_DESIGNS)
def test_nodes_that_come_later_leave_those_they_do_not_touch_alone(design):
    inputs, targets = a_problem(6)
    model = fit_jkn(inputs, targets, NodeSettings(design, **FIXED)).model
    # One new node without edges, and one that is linked to node 0.
    new = sp.csr_array(([1.0], ([1], [0])), shape=(2, 24))
    vectors, trust = model.fold_in(inputs.graph, new)
    assert vectors.shape == (2, 48)
    assert not vectors[0].any()
    assert 0 < trust[1] <= 1
    edges = np.vstack([inputs.graph.edge_codes(), [[0, 25]]])
    graph = fg.Graph.from_codes(*edges.T, num_nodes=26)
    X = sp.csr_array(sp.vstack([inputs.features, inputs.features[:2]]))
    grown = model.scores(NodeInputs(graph, X, np.vstack([model.structure, vectors])))
    assert grown.shape == (26, 3)
    assert np.isfinite(grown).all()
    apart = sp.csgraph.shortest_path(graph.to_scipy(), unweighted=True)[25] > 4
    np.testing.assert_allclose(grown[:24][apart[:24]], model.scores(inputs)[apart[:24]], atol=1e-10)


def test_a_copy_of_a_node_has_its_vectors():
    inputs, targets = a_problem(7)
    for design in ("jkn", "jkn-as-released"):
        model = fit_jkn(inputs, targets, NodeSettings(design, **FIXED)).model
        vectors, _ = model.fold_in(inputs.graph, inputs.graph.to_scipy()[[5]])
        r = model.structure.shape[1] // 2
        wanted = model.structure[5, :r]
        np.testing.assert_allclose(vectors[0, :r], wanted, atol=1e-3 * np.abs(wanted).max())


def test_every_design_sees_the_same_walks():
    graph = a_graph(60, 5)
    fitted = [structure_factors(graph, d, window=2, negative=2.0) for d in ("jkn", "jkn-as-released")]
    products = [U * s @ Vt for U, s, Vt in (factors.svd for factors in fitted)]
    np.testing.assert_allclose(*products, atol=2e-3 * np.abs(products[0]).max())


@given(st.integers(0, 30))
@settings(max_examples=8, deadline=None)
def test_the_columns_of_y_do_not_know_each_other(seed):
    inputs, targets = a_problem(seed)
    both = replace(targets, multilabel=True)
    one = replace(both, classes=np.arange(1), labels=targets.labels[:, :1])
    chosen = NodeSettings("jkn", **FIXED)
    np.testing.assert_allclose(
        fit_jkn(inputs, both, chosen).scores[:, :1], fit_jkn(inputs, one, chosen).scores, atol=1e-10
    )


SMALL = Grid((0, 1, 3), (2, 5), (1, 2), (0.2, 1.0))


@pytest.mark.parametrize("judged_by", ["validation", "folds", "many labels"])
@pytest.mark.parametrize(("design", "ridge"), CASES)
def test_the_sweep_finds_what_fits_of_every_setting_find(monkeypatch, design, ridge, judged_by):
    monkeypatch.setitem(jkn_sweeps._GRIDS, design, SMALL)
    if judged_by == "many labels":
        monkeypatch.setattr(jkn_sweeps, "DUAL_LABELS", 0)
    monkeypatch.setattr(jkn_sweeps, "NEAR_BEST", 99)
    monkeypatch.setattr(jkn, "NEAR_BEST", 99)
    inputs, targets = a_problem(8, n=32, labelled=15)
    others = np.setdiff1d(np.arange(32), targets.labelled)
    y = np.random.Generator(np.random.Philox(1)).integers(0, 3, len(others))
    validation = None if judged_by == "folds" else Validation(others, np.eye(3)[y])
    asked = NodeSettings(design, ridge=ridge)
    fitted = fit_jkn(inputs, targets, asked, validation=validation)
    assert len(fitted.near_best) == SMALL.size
    labels = targets.labels.copy()
    if validation is not None:
        labels[others] = validation.labels
    for record in fitted.near_best[::6]:
        one = {name: record[name] for name in ("hops", "rank", "window", "negative")}
        right = []
        for trial in trials_of(targets, validation, seed=0):
            mask = np.zeros((32, 1))
            mask[trial.train] = 1
            rest = replace(
                targets,
                labels=targets.labels * mask,
                labelled=trial.train,
                weights=np.full(len(trial.train), 1 / len(trial.train)),
            )
            scores = fit_jkn(inputs, rest, replace(asked, **one)).scores[trial.judged]
            right += list(scores.argmax(1) == labels[trial.judged].argmax(1))
        assert record["accuracy"] == pytest.approx(np.mean(right), abs=1.5 / len(right))
    order = [(-r["accuracy"], r["hops"], r["rank"]) for r in fitted.near_best]
    assert order == sorted(order)
    assert fitted.chosen.items() <= (fitted.near_best[0] | {"ridge": ridge}).items()
    if validation is not None:
        assert fitted.validation["nodes"] == len(others)


@given(st.integers(0, 99), st.integers(10, 60), st.integers(2, 5))
@settings(max_examples=30, deadline=None)
def test_folds_cut_the_labelled_nodes_and_every_class_evenly(seed, count, classes):
    targets = known(80, np.arange(count), classes, seed=seed)
    trials = trials_of(targets, None, seed=seed)
    np.testing.assert_array_equal(np.sort(np.concatenate([t.judged for t in trials])), targets.labelled)
    for trial in trials:
        np.testing.assert_array_equal(np.union1d(trial.train, trial.judged), targets.labelled)
        held, share = targets.labels[trial.judged].sum(0), targets.labels.sum(0) / 5
        assert (np.abs(held - share) <= 2).all()


def test_many_labels_hold_some_out_once(monkeypatch):
    monkeypatch.setattr(jkn_sweeps, "DUAL_LABELS", 20)
    monkeypatch.setattr(jkn_sweeps, "_HELD_OUT", 4)
    (trial,) = trials_of(known(80, np.arange(40)), None, seed=0)
    assert len(trial.judged) == 4
    assert len(trial.train) == 36


@pytest.mark.parametrize("design", PAPER_DESIGNS)
@pytest.mark.parametrize(
    "odd",
    ["no features", "zero features", "no edges", "one class", "one label", "one label per class", "tiny"],
)
def test_odd_inputs_give_finite_scores(design, odd):
    n = 3 if odd == "tiny" else 20
    graph = a_graph(n, edges=0 if odd == "no edges" else 2)
    X = None if odd == "no features" else some_features(n, 4)
    if odd == "zero features":
        X = sp.csr_array((n, 4))
    classes = 1 if odd == "one class" else 2
    labels = np.zeros((n, classes))
    nodes = {"one label": [1], "one label per class": [0, 2], "tiny": [0, 1]}.get(odd, np.arange(12))
    labels[nodes, np.arange(len(nodes)) % classes] = 1
    targets = Targets(np.arange(classes), labels, np.asarray(nodes), np.full(len(nodes), 1 / len(nodes)))
    for chosen in ({}, {"rank": 50, "hops": 3, "window": 2, "negative": 0.5}):
        fitted = fit_jkn(NodeInputs(graph, X), targets, NodeSettings(design, **chosen))
        assert fitted.scores.shape == (n, classes)
        assert np.isfinite(fitted.scores).all()
        assert np.isfinite(fitted.loo_scores).all()
        (part,) = fitted.model.parts(NodeInputs(graph, X))
        assert np.isfinite(part.Z).all()


def test_too_few_labels_to_choose_by_are_told():
    inputs, targets = a_problem(1, labelled=5)
    fitted = fit_jkn(inputs, targets, NodeSettings("jkn"))
    assert fitted.chosen == {"hops": 6, "rank": 30, "window": 1, "negative": 1.0}
    assert "too few to choose settings by" in fitted.notices[0]
    assert "5 directions were used" in fitted.notices[1]


def test_several_labels_are_chosen_by_the_order_of_scores():
    inputs, targets = a_problem(2, n=40, labelled=20)
    several = replace(targets, multilabel=True)
    others = np.setdiff1d(np.arange(40), targets.labelled)
    validation = Validation(others, np.eye(3)[others % 3])
    fitted = fit_jkn(inputs, several, NodeSettings("jkn", window=1, negative=1.0), validation=validation)
    assert set(fitted.validation) == {"accuracy", "roc_auc", "nodes"}
    assert 0 <= fitted.near_best[0]["accuracy"] <= 1


def test_the_same_seed_gives_the_same_bits_and_progress_reaches_the_end():
    inputs, targets = a_problem(9)
    told = []
    first = fit_jkn(
        inputs, targets, NodeSettings("jkn"), progress=lambda done, total: told.append(done / total)
    )
    second = fit_jkn(inputs, targets, NodeSettings("jkn"))
    np.testing.assert_array_equal(first.scores, second.scores)
    assert told == sorted(told)
    assert told[-1] == 1
    assert first.certificate.complete


def test_digits_are_told_apart():
    data = fg.load_dataset("digits")
    labels = np.zeros((data.graph.num_nodes, 10))
    labels[data.train, data.y[data.train]] = 1
    nodes = np.sort(data.train)
    targets = Targets(np.arange(10), labels, nodes, np.full(len(nodes), 1 / len(nodes)))
    validation = Validation(data.validation, np.eye(10)[data.y[data.validation]])
    asked = NodeSettings("jkn", window=1, negative=0.2)
    fitted = fit_jkn(NodeInputs(data.graph, data.X), targets, asked, validation=validation)
    assert fitted.validation["accuracy"] > 0.9
    assert len(fitted.near_best) == 8


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"design": "gcn"}, "design must be one of"),
        ({"hops": -1}, "hops must be an integer of at least 0"),
        ({"rank": 0}, "rank must be an integer of at least 1"),
        ({"window": 0}, "window must be an integer of at least 1"),
        ({"negative": -1.0}, "negative must be a finite number of at least 0"),
        ({"ridge": 0.1}, 'only "jkn-text" takes one'),
        ({"design": "jkn-text", "ridge": 0.0}, "above 0"),
    ],
)
def test_settings_out_of_range_are_refused(asked, message):
    inputs, targets = a_problem()
    with pytest.raises(ArgumentError, match=message):
        fit_jkn(inputs, targets, NodeSettings(**{"design": "jkn"} | asked))


def test_inputs_of_another_size_are_refused():
    inputs, targets = a_problem()
    model = fit_jkn(inputs, targets, NodeSettings("jkn", **FIXED)).model
    with pytest.raises(ShapeError, match="fold new nodes in first"):
        model.scores(replace(inputs, structure=np.ones((23, 48))))
    with pytest.raises(ShapeError, match="features have 5 columns, but 7 were fitted"):
        model.scores(replace(inputs, features=inputs.features[:, :5]))
