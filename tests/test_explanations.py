"""Explanations: two sums of the same score, whatever the graph and the features are."""

import json
import tracemalloc
from dataclasses import replace

import hypothesis.strategies as st
import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings

import fastgrl as fg
from fastgrl.errors import ArgumentError, ShapeError
from fastgrl.explanations import explain, linear_scores
from fastgrl.linear_parts import solve
from fastgrl.node_models import HopBasis, LinearPart, NodeInputs, Targets

CLOSE = {"rel": 1e-6, "abs": 1e-6}
N, D, C = 12, 7, 3
LAST = N - 1  # without edges
EMPTY = 2  # without features


def a_graph(rng, directed=False):
    pairs = rng.integers(0, LAST, (20, 2))
    return fg.Graph.from_codes(pairs[:, 0], pairs[:, 1], num_nodes=N, directed=directed)


def a_basis(graph, rng, *, sparse=True, unit_rows=True, own_projections=False, hops=3, dtype=np.float64):
    F = rng.standard_normal((N, D)) * (rng.random((N, D)) < 0.4)
    F[EMPTY] = 0
    F = F.astype(dtype)
    shape = (hops + 1, D, 5) if own_projections else (D, 5)
    basis = HopBasis(
        fg.renormalised(graph, dtype=dtype),
        sp.csr_array(F) if sparse else F,
        rng.uniform(0.1, 1, hops + 1),
        rng.standard_normal(shape).astype(dtype),
        unit_rows=unit_rows,
    )
    centre = basis.rows.mean(0)
    return replace(basis, centre=centre, scale=float(np.linalg.norm(basis.rows - centre) / N**0.5))


def a_problem(seed, *, pseudo=True, multilabel=False, ridge=0.05, views=1, ids=None, **options):
    """Parts (views of the same words), inputs and targets."""
    rng = np.random.default_rng(seed)
    graph = a_graph(rng, directed=options.pop("directed", False))
    labelled = np.sort(rng.permutation(N)[:5])
    labels = np.zeros((N, C))
    labels[labelled] = rng.integers(0, 2, (5, C)) if multilabel else np.eye(C)[rng.integers(0, C, 5)]
    Q, w = labels.copy(), np.zeros(N)
    w[labelled] = 0.2
    if pseudo:
        others = np.setdiff1d(np.arange(N), labelled)[:4]
        Q[others], w[others] = rng.dirichlet(np.ones(C), 4), rng.uniform(0, 0.5, 4)
    w /= w.sum()
    targets = Targets(np.array(["ant", "bee", "cow"]), labels, labelled, np.full(5, 0.2), multilabel)
    bases = [a_basis(graph, rng, **options) for _ in range(views)]
    parts = [LinearPart(basis, w, Q, ridge, share=1 / views) for basis in bases]
    return parts, NodeInputs(graph), targets


def sums(found):
    features = sum(share.contribution for share in found.features)
    labelled = sum(share.contribution for share in found.labelled)
    return {
        "hops": found.bias + sum(found.hops),
        "features": found.bias + features + found.other_features,
        "labelled": labelled + found.other_labelled + found.pseudo_labelled,
    }


options = st.fixed_dictionaries(
    {
        "sparse": st.booleans(),
        "unit_rows": st.booleans(),
        "own_projections": st.booleans(),
        "directed": st.booleans(),
        "pseudo": st.booleans(),
        "hops": st.integers(0, 4),
        "views": st.integers(1, 3),
        "ridge": st.sampled_from([1e-3, 0.1, None]),
        "dtype": st.sampled_from([np.float32, np.float64]),
    }
)


@settings(deadline=None, max_examples=150)
@given(st.integers(0, 10_000), options, st.integers(0, LAST), st.integers(0, C - 1), st.integers(0, 40))
def test_hops_features_and_labels_each_sum_to_the_score(seed, options, node, column, top):
    parts, inputs, targets = a_problem(seed, **options)
    found = explain(parts, node, inputs=inputs, targets=targets, column=column, top=top)
    expected = linear_scores(parts)[node, column]
    assert found.score == pytest.approx(expected, rel=1e-12, abs=1e-12)
    for total in sums(found).values():
        assert total == pytest.approx(expected, **CLOSE)
    assert max(len(found.features), len(found.labelled)) <= top


@settings(deadline=None, max_examples=30)
@given(st.integers(0, 10_000), options)
def test_isolated_and_empty_nodes_are_explained(seed, options):
    parts, inputs, targets = a_problem(seed, **options)
    for node in (LAST, EMPTY):
        found = explain(parts, node, inputs=inputs, targets=targets, top=100)
        assert found.bias + sum(found.hops) == pytest.approx(found.score, **CLOSE)
    parts, inputs, targets = a_problem(seed, **{**options, "hops": 0})
    alone = explain(parts, EMPTY, inputs=inputs, targets=targets)
    assert alone.features == ()
    assert alone.score == pytest.approx(alone.bias, **CLOSE)


@settings(deadline=None, max_examples=30)
@given(st.integers(0, 10_000), st.booleans(), st.integers(0, LAST))
def test_a_contribution_is_what_the_score_loses_without_the_column(seed, sparse, node):
    (part,), inputs, targets = a_problem(seed, sparse=sparse, unit_rows=False)
    solution = solve(part)
    found = explain([part], node, inputs=inputs, targets=targets, column=0, top=1000)
    for column in range(D):
        F = part.basis.features.toarray() if sparse else part.basis.features.copy()
        F[:, column] = 0
        z = replace(part.basis, features=F).rows[node]
        lost = found.score - ((z - solution.mean) @ solution.coefficients + solution.bias)[0]
        listed = sum(share.contribution for share in found.features if share.feature == column)
        assert lost == pytest.approx(listed, **CLOSE)


def test_sparse_and_dense_features_are_explained_alike():
    found = []
    for sparse in (True, False):
        parts, inputs, targets = a_problem(3, sparse=sparse)
        found.append(explain(parts, 4, inputs=inputs, targets=targets, top=5))
    for a, b in zip(found[0].features, found[1].features, strict=True):
        assert (a.hop, a.feature) == (b.hop, b.feature)
        assert a.contribution == pytest.approx(b.contribution)


def test_the_same_word_in_two_views_counts_as_one():
    (part,), inputs, targets = a_problem(1)
    halves = [replace(part, share=0.3), replace(part, share=0.7)]
    whole = explain([part], 5, inputs=inputs, targets=targets)
    parts = explain(halves, 5, inputs=inputs, targets=targets)
    assert [(s.hop, s.feature) for s in parts.features] == [(s.hop, s.feature) for s in whole.features]
    np.testing.assert_allclose(
        [s.contribution for s in parts.features], [s.contribution for s in whole.features]
    )


def test_columns_of_other_kinds_are_counted_on_their_own():
    (part,), inputs, targets = a_problem(2)
    kinds = ("feature",) * 4 + ("structure",) * 2 + ("constant",)
    mixed = replace(part, basis=replace(part.basis, kinds=kinds))
    words = a_problem(8)[0][0].basis
    other = replace(part, basis=replace(words, operator=part.basis.operator), share=0.5)
    found = explain([replace(mixed, share=0.5), other], 0, inputs=inputs, targets=targets, top=1000)
    largest = {kind: max(s.feature for s in found.features if s.kind == kind) for kind in set(kinds)}
    assert largest == {"feature": 6, "structure": 1, "constant": 0}
    assert found.bias + sum(found.hops) == pytest.approx(found.score, **CLOSE)


def test_the_largest_contributions_come_first():
    parts, inputs, targets = a_problem(4)
    everything = explain(parts, 1, inputs=inputs, targets=targets, top=1000)
    sizes = [abs(share.contribution) for share in everything.features]
    assert sizes == sorted(sizes, reverse=True)
    few = explain(parts, 1, inputs=inputs, targets=targets, top=3)
    assert few.features == everything.features[:3]
    assert few.labelled == everything.labelled[:3]


def test_labels_without_pseudo_labels_carry_the_whole_score():
    parts, inputs, targets = a_problem(5, pseudo=False)
    found = explain(parts, 0, inputs=inputs, targets=targets, top=100)
    assert found.pseudo_labelled == 0
    assert sum(share.contribution for share in found.labelled) == pytest.approx(found.score)
    known = {inputs.graph.node_ids[i]: targets.classes[targets.labels[i].argmax()] for i in targets.labelled}
    assert all(known[share.node] == share.label == found.label for share in found.labelled)


def test_the_class_is_the_models_own_unless_told():
    parts, inputs, targets = a_problem(6)
    linear = linear_scores(parts)[3]
    found = explain(parts, 3, inputs=inputs, targets=targets)
    assert found.label == found.predicted == targets.classes[linear.argmax()]
    own = np.array([0.1, 0.2, 0.7])
    found = explain(parts, 3, inputs=inputs, targets=targets, own=own, exact=False, difference=0.02)
    assert (found.label, found.own, found.exact, found.difference) == ("cow", 0.7, False, 0.02)
    found = explain(parts, 3, inputs=inputs, targets=targets, own=own, column=0)
    assert (found.label, found.predicted, found.own) == ("ant", "cow", 0.1)


def test_multi_label_models_predict_all_classes_above_one_half():
    parts, inputs, targets = a_problem(7, multilabel=True)
    found = explain(parts, 3, inputs=inputs, targets=targets, own=np.array([0.6, 0.2, 0.7]), top=100)
    assert found.predicted == ("ant", "cow")
    assert all(isinstance(share.label, tuple) for share in found.labelled)


def test_an_explanation_goes_to_json_with_names():
    parts, inputs, targets = a_problem(8)
    found = explain(parts, 0, inputs=inputs, targets=targets, feature_names=list("abcdefg"))
    facts = json.loads(json.dumps(found.as_dict()))
    assert facts["node"] == inputs.graph.node_ids[0]
    assert facts["features"][0]["feature"] in "abcdefg"
    assert facts["bias"] + sum(facts["hops"]) == pytest.approx(facts["score"])
    assert {"hop", "kind", "feature", "contribution"} == set(facts["features"][0])
    assert {"node", "label", "contribution"} == set(facts["labelled"][0])


def test_ids_stay_as_they_are():
    parts, inputs, targets = a_problem(9)
    ids = np.empty(N, object)
    ids[:] = [("node", i) for i in range(N)]
    inputs = NodeInputs(fg.Graph(inputs.graph.indptr, inputs.graph.indices, None, ids))
    found = explain(parts, 3, inputs=inputs, targets=targets)
    assert found.node == ("node", 3)
    assert all(share.node[0] == "node" for share in found.labelled)


def test_solutions_at_hand_give_the_same():
    parts, inputs, targets = a_problem(10, views=2)
    solutions = [solve(part) for part in parts]
    assert np.array_equal(linear_scores(parts, solutions=solutions), linear_scores(parts))
    found = explain(parts, 3, inputs=inputs, targets=targets, solutions=solutions)
    assert found == explain(parts, 3, inputs=inputs, targets=targets)


def test_cora_adds_up_over_25_hops_in_float32():
    cora = fg.load_dataset("cora")
    n, X = cora.graph.num_nodes, sp.csr_array(cora.X, dtype=np.float32)
    V = np.random.default_rng(0).standard_normal((X.shape[1], 60)).astype(np.float32)
    c = np.append(0.15 * 0.85 ** np.arange(25), 0.85**25).astype(np.float32)
    basis = HopBasis(fg.renormalised(cora.graph, dtype=np.float32), X, c, V, unit_rows=True)
    basis = replace(basis, centre=basis.rows.mean(0), scale=0.5)
    labels, weights = np.zeros((n, 7)), np.zeros(n)
    labels[cora.train, cora.y[cora.train]] = 1
    weights[cora.train] = 1 / len(cora.train)
    targets = Targets(np.arange(7), labels, np.sort(cora.train), weights[cora.train])
    part = LinearPart(
        replace(basis, computed=(basis.rows.astype(np.float32), basis.norms)), weights, labels, 0.01
    )
    for node in cora.test[:5]:
        found = explain([part], int(node), inputs=NodeInputs(cora.graph), targets=targets)
        for total in sums(found).values():
            assert total == pytest.approx(found.score, abs=1e-6)


def test_sparse_features_never_become_dense():
    n, d = 2000, 30_000
    graph = fg.Graph.from_codes(np.arange(n), (np.arange(n) + 1) % n)
    columns = np.random.default_rng(0).integers(0, d, 3 * n)
    F = sp.csr_array((np.ones(3 * n), (np.arange(3 * n) % n, columns)), shape=(n, d))
    basis = HopBasis(fg.renormalised(graph), F, np.ones(4), np.ones((d, 2)))
    labels = np.eye(2)[np.arange(n) % 2]
    targets = Targets(np.arange(2), labels, np.arange(n), np.full(n, 1 / n))
    part = LinearPart(basis, targets.weights, labels, 0.1)
    assert part.Z.shape == (n, 2)
    tracemalloc.start()
    explain([part], 0, inputs=NodeInputs(graph), targets=targets)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 8 * n * d / 20


def test_what_is_wrong_is_said():
    parts, inputs, targets = a_problem(0)
    given = {"inputs": inputs, "targets": targets}
    with pytest.raises(ArgumentError, match="no linear parts"):
        linear_scores([])
    with pytest.raises(ArgumentError, match="solutions are not those of the parts"):
        explain(parts, 0, **given, solutions=[])
    with pytest.raises(ArgumentError, match="node must be an integer"):
        explain(parts, N, **given)
    with pytest.raises(ArgumentError, match="column must be an integer of at least 0 and at most 2, got 3"):
        explain(parts, 0, **given, column=3)
    with pytest.raises(ShapeError, match="own must hold 3 scores"):
        explain(parts, 0, **given, own=np.zeros(2))
    with pytest.raises(ShapeError, match="feature_names has 1 names"):
        explain(parts, 0, **given, feature_names=["a"], top=1000)
