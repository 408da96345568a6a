"""NodeClassifier: what is exact is exact, whatever comes in is taken or refused by name, and the figures."""

import functools

import hypothesis.strategies as st
import networkx
import numpy as np
import pandas
import pytest
import scipy.sparse as sp
from hypothesis import assume, given, settings
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.utils import estimator_checks

import fastgrl as fg
from fastgrl.datasets.records import stratified_split
from fastgrl.datasets.synthetic import block_model, overlapping_blocks
from fastgrl.errors import ArgumentError, FastgrlError, ShapeError, UnavailableError, UnknownIdError
from fastgrl.node_models import NODE_DESIGNS

N, CLASSES = 24, 3
LINEAR = {"design": "co-ridge", "select": False, "views": "l", "rounds": 0}
TEXT = {"design": "jkn-text", "ridge": 0.05, "hops": 3, "window": 2, "negative": 1.0, "n_components": 8}
EXACT = [LINEAR, {**TEXT, "select": False}, {**TEXT, "ridge": None, "select": False}]
FAST = {"select": False}
few_examples = settings(max_examples=8, deadline=None)
CLOSE = {"rtol": 0, "atol": 1e-6}


def groups(n=N, classes=CLASSES):
    return np.arange(n) % classes


def small(seed=0, ids=None, directed=False):
    """A graph of 24 nodes in three communities."""
    rng = np.random.default_rng(seed)
    chance = np.where(groups()[:, None] == groups(), 0.4, 0.05)
    u, v = np.nonzero(np.triu(rng.random((N, N)) < chance, 1))
    return fg.Graph.from_codes(u, v, num_nodes=N, node_ids=ids, directed=directed)


def words(seed=0, columns=12):
    rng = np.random.default_rng(seed)
    own = np.arange(columns) % CLASSES == groups()[:, None]
    return (rng.random((N, columns)) < np.where(own, 0.5, 0.1)).astype(np.float64)


def numbers(seed=0, columns=5):
    rng = np.random.default_rng(seed)
    return rng.standard_normal((N, columns)) + np.eye(columns)[groups()]


def features_of(kind, seed=0):
    made = {"words": words, "sparse": words, "numbers": numbers, "none": lambda seed: None}[kind](seed)
    return sp.csr_array(made) if kind == "sparse" else made


kinds = st.sampled_from(["words", "sparse", "numbers", "none"])


def labels(per_class=3):
    """The first few nodes of each class are labelled."""
    return np.where(np.arange(N) < per_class * CLASSES, groups(), -1)


def fit(how, y, graph=None, X=None, **options):
    return fg.NodeClassifier(**how).fit(small() if graph is None else graph, y, features=X, **options)


def assert_sane(nodes):
    """Finite scores, probabilities that agree with what is predicted, and an explanation."""
    scores, shares, predicted = nodes.decision_function(), nodes.predict_proba(), nodes.predict()
    assert np.isfinite(scores).all()
    assert np.isfinite(shares).all()
    if nodes.multilabel_:
        assert ((shares >= 0) & (shares <= 1)).all()
        assert ((shares > 0.5) == (predicted == 1)).all()
    else:
        np.testing.assert_allclose(shares.sum(1), 1, atol=1e-12)
        assert (nodes.classes_[shares.argmax(1)] == predicted).all()
    found = nodes.explain(nodes.node_ids_[0])
    assert np.isfinite([found.score, found.bias, *found.hops]).all()
    assert nodes.temperature_ > 0
    return nodes


# Leaving out, relabelling and explaining are exact.


@few_examples
@given(st.integers(0, 99), kinds, st.sampled_from(EXACT), st.sampled_from([None, {0: 3.0, 1: 0.5}]))
def test_leaving_one_out_equals_as_many_refits(seed, kind, how, class_weight):
    how = {**how, "class_weight": class_weight}
    assume(class_weight is None or how.get("ridge", 1) is not None)
    X, y, graph = features_of(kind, seed), labels(), small(seed)
    nodes = fit(how, y, graph, X)
    right = []
    for row, node in enumerate(np.flatnonzero(y >= 0)):
        hidden = y.copy()
        hidden[node] = -1
        scores = fit(how, hidden, graph, X).decision_function([node])[0]
        np.testing.assert_allclose(nodes._parts.fit.fitted.loo_scores[row], scores, **CLOSE)
        right.append(scores.argmax() == y[node])
    assert nodes.loo_accuracy_ == np.mean(right)


changes_of_labels = st.lists(
    st.dictionaries(
        st.integers(0, N - 1),
        st.sampled_from([0, 1, 2, -1, None, float("nan"), ""]),
        min_size=1,
        max_size=4,
    ),
    min_size=1,
    max_size=3,
)


@settings(max_examples=15, deadline=None)
@given(
    changes_of_labels,
    kinds,
    st.sampled_from(EXACT),
    st.sampled_from([None, "balanced", {0: 3.0, 1: 0.5, 2: 1.0}]),
)
def test_relabelling_in_sequence_equals_a_refit(sequence, kind, how, class_weight):
    how, X, y = {**how, "class_weight": class_weight}, features_of(kind), labels()
    nodes = fit(how, y, X=X)
    for changes in sequence:
        for node, label in changes.items():
            y[node] = label if label in (0, 1, 2) else -1
        assume(len(set(y[y >= 0])) == CLASSES)
        nodes.relabel(changes)
        again = fit(how, y, X=X)
        np.testing.assert_allclose(nodes.decision_function(), again.decision_function(), **CLOSE)
        np.testing.assert_allclose(nodes.temperature_, again.temperature_, rtol=1e-5)
        assert nodes.loo_accuracy_ == again.loo_accuracy_
        assert nodes.relabelled_ == {"exact": True, "difference": 0.0, "changes": len(changes)}


@few_examples
@given(st.integers(0, 99), kinds, st.sampled_from(EXACT))
def test_an_explanation_adds_up_to_the_score_in_two_ways(seed, kind, how):
    X = features_of(kind, seed)
    nodes = fit(how, labels(), small(seed), X)
    for node, label in [(0, 1), (13, 2), (23, 0)]:
        score = nodes.decision_function([node])[0, label]
        found = nodes.explain(node, label=label, top=5)
        by_column = sum(share.contribution for share in found.features) + found.other_features
        by_label = sum(share.contribution for share in found.labelled) + found.other_labelled
        sums = [found.score, found.bias + sum(found.hops), found.bias + by_column, by_label]
        np.testing.assert_allclose(sums, score, **CLOSE)
        assert found.exact
        assert found.difference == 0


def test_settings_that_were_chosen_are_as_exact_as_given_ones():
    nodes = fit({"views": "l", "rounds": 0}, labels(), X=words())
    assert nodes.decision_function().dtype == np.float64
    chosen = {name: nodes.chosen_[name] for name in ("restart", "ridge", "balance")}
    given_again = fit({**LINEAR, **chosen}, labels(), X=words())
    np.testing.assert_allclose(nodes.decision_function(), given_again.decision_function(), atol=1e-12)
    assert nodes.explain(3, label=1).score == pytest.approx(nodes.decision_function([3])[0, 1], abs=1e-9)
    assert nodes.relabel({0: 1}).relabelled_["exact"]


@pytest.mark.parametrize("how", [{}, {"design": "jkn"}, FAST], ids=str)
def test_what_is_not_exact_says_how_far_it_is_off(how):
    nodes = fit(how, labels(), X=words())
    before = nodes.temperature_
    nodes.relabel({0: 1, 20: 2})
    assert not nodes.relabelled_["exact"]
    assert 0 <= nodes.relabelled_["difference"] <= 1
    assert "design" not in how or nodes.temperature_ == before
    assert nodes.relabel({3: -1}, measure=False).relabelled_["difference"] is None
    assert 0 <= nodes.explain(0).difference <= 1
    assert_sane(nodes)


def test_relabelling_with_what_is_known_already_changes_no_prediction():
    nodes = fit(FAST, labels(), X=words())
    before = nodes.predict()
    assert (nodes.relabel({0: 0, 1: 1, 4: 1}).predict() == before).all()
    assert (nodes.relabel({}).predict() == before).all()


@pytest.mark.parametrize(
    ("changes", "words_"),
    [
        ({0: 99}, "99 is not a class"),
        ({0: [1]}, "cannot be the name of a class"),
        (dict.fromkeys(range(N), -1), "no label would be left"),
        ([0], "dictionary"),
        (None, "dictionary"),
    ],
)
def test_labels_that_cannot_be_changed_are_named_and_the_model_stays(changes, words_):
    nodes = fit(LINEAR, labels(), X=words())
    before = nodes.decision_function()
    with pytest.raises(ArgumentError, match=words_):
        nodes.relabel(changes)
    assert (nodes.decision_function() == before).all()


# The order of nodes, their names and the number of threads.


@few_examples
@given(
    st.permutations(range(N)),
    st.sampled_from(["words", "sparse", "none"]),
    st.sampled_from([*EXACT[:2], {}, FAST, {"design": "jkn"}, {"design": "jkn-as-released"}]),
    st.booleans(),
)
def test_the_order_of_nodes_and_edges_changes_not_a_bit(order, kind, how, held):
    order, names = np.array(order), np.array([f"n{i:02}" for i in range(N)], object)
    graph, X, y = small(ids=names), features_of(kind), labels(5 if held else 3)
    place = np.argsort(order)
    edges = place[graph.edge_codes()[::-1]]
    shuffled = fg.Graph.from_codes(edges[:, 1], edges[:, 0], num_nodes=N, node_ids=names[order])
    validation = names[9:15] if held else None
    one = fit(how, y, graph, X, validation=validation)
    two = fit(how, y[order], shuffled, None if X is None else X[order], validation=validation)
    assert (two.decision_function() == one.decision_function()[order]).all()
    assert (two.predict(names) == one.predict(names)).all()
    assert (two.predict_proba(names[:3]) == one.predict_proba(names[:3])).all()
    assert two.node_ids_.tolist() == names[order].tolist()
    assert two.graph_.node_ids.tolist() == names[order].tolist()
    assert two.validation_ == one.validation_
    assert two.chosen_ == one.chosen_
    assert two.explain("n07").as_dict() == one.explain("n07").as_dict()


@pytest.mark.parametrize("how", [*EXACT[:1], {}, {"design": "jkn"}], ids=str)
def test_other_names_in_the_same_order_change_not_a_bit(how):
    one = fit(how, labels(), X=words())
    for names in ([3 * i - 5 for i in range(N)], [f"x{i:03}" for i in range(N)]):
        two = fit(how, labels(), small(ids=names), words())
        assert two.decision_function().tobytes() == one.decision_function().tobytes()


@pytest.mark.parametrize("design", NODE_DESIGNS)
@pytest.mark.parametrize("kind", ["sparse", "none"])
def test_the_same_seed_gives_the_same_bits_for_any_number_of_threads(design, kind):
    def scores(jobs):
        nodes = fit(
            {"design": design, "n_jobs": jobs}, labels(6), X=features_of(kind), validation=range(12, 18)
        )
        return nodes.decision_function().tobytes(), nodes.temperature_

    assert len({scores(jobs) for jobs in (1, 2, 1)}) == 1


# Names of classes.

NAMES = {
    "integers": [5, 0, 9],
    "negative": [-2, -7, 3],
    "large": [2**70, -(2**70), 1],
    "text": ["b", "a", "c"],
    "unicode": ["é", "日本", "\U0001f600"],
    "truth": [True, False, True],
    "fractions": [0.5, -2.0, 1.5],
    "tuples": [("a", 1), ("b", 2), ("a", 2)],
    "tuples of 0 and 1": [(0, 1), (1, 0), (1, 1)],
    "mixed": ["a", 1, (2, 3)],
    "bytes": [b"a", b"b", b"c"],
}


@pytest.mark.parametrize("unlabelled", [-1, None, float("nan"), ""], ids=repr)
@pytest.mark.parametrize("kind", NAMES)
def test_names_of_classes_come_back_as_they_are(kind, unlabelled):
    names = NAMES[kind]
    y = [names[c] if known >= 0 else unlabelled for c, known in zip(groups(), labels(), strict=True)]
    nodes = fit(LINEAR, y, X=words())
    assert set(nodes.classes_.tolist()) == set(names)
    assert {type(name) for name in nodes.classes_.tolist()} == {type(name) for name in names}
    assert set(nodes.predict().tolist()) <= set(names)
    by_id = fit(LINEAR, dict(enumerate(y)), X=words())
    assert (by_id.decision_function() == nodes.decision_function()).all()
    truth = [names[c] for c in groups()]
    assert nodes.score(range(N), truth) > 0.8
    assert nodes.explain(0, label=names[2]).label == names[2]
    assert nodes.relabel({0: names[1], 1: unlabelled}).relabelled_["changes"] == 2
    held = fit(LINEAR, y, X=words(), validation=([20, 21], [names[2], names[0]]))
    assert held.validation_["nodes"] == 2


@pytest.mark.parametrize("kind", ["integers", "negative", "text", "fractions", "tuples"])
def test_classes_are_sorted_when_they_can_be(kind):
    y = [NAMES[kind][c] for c in groups()]
    assert fit(LINEAR, y, X=words()).classes_.tolist() == sorted(NAMES[kind])


def test_pandas_are_joined_by_their_index():
    ids = np.array([f"n{i}" for i in range(N)], object)
    graph, order = small(ids=ids), np.random.default_rng(0).permutation(N)
    y = pandas.Series(labels(), index=ids).iloc[order]
    X = pandas.DataFrame(words(), index=ids).iloc[order]
    wanted = fit(LINEAR, labels(), graph, words()).decision_function()
    np.testing.assert_array_equal(fit(LINEAR, y, graph, X).decision_function(), wanted)
    with pytest.raises(ArgumentError, match="index of features is not that of the nodes"):
        fit(LINEAR, y, graph, X.rename(index={"n3": "ghost"}))
    with pytest.raises(ArgumentError, match="one row for each"):
        fit(LINEAR, y, graph, X.iloc[:-1])


def test_validation_does_not_contradict_y():
    with pytest.raises(ArgumentError, match="node 0 is 1 in validation and 0 in y"):
        fit(LINEAR, labels(), X=words(), validation=([0], [1]))


def test_features_of_old_nodes_are_refused():
    nodes = fit(LINEAR, labels(), X=words())
    with pytest.raises(ArgumentError, match="features of 0, which the model knows"):
        nodes.predict(edges=[(99, 0)], features={99: words()[0], 0: words()[0]})


def test_missing_values_of_data_frames_are_unlabelled():
    known = labels() >= 0
    text = [f"c{c}" if k else pandas.NA for c, k in zip(groups(), known, strict=True)]
    wanted = ["c0", "c1", "c2"]
    for y in (pandas.array(text), pandas.Series(text, dtype="category"), pandas.Series(text, dtype="string")):
        assert fit(LINEAR, y, X=words()).classes_.tolist() == wanted
    whole = pandas.Series(
        [c if k else pandas.NA for c, k in zip(groups(), known, strict=True)], dtype="Int64"
    )
    assert fit(LINEAR, whole, X=words()).classes_.tolist() == [0, 1, 2]
    days = np.datetime64("2020-01-01", "ns") + groups() * np.timedelta64(1, "D")
    days[~known] = np.datetime64("NaT")
    assert set(fit(LINEAR, days, X=words()).predict()) <= set(days[known])


@pytest.mark.parametrize("missing", [-1, float("nan"), ""])
def test_numbers_that_numpy_made_text_of_are_unlabelled(missing):
    y = np.array([f"c{c}" if known >= 0 else missing for c, known in zip(groups(), labels(), strict=True)])
    nodes = fit(LINEAR, y, X=words())
    assert nodes.classes_.tolist() == ["c0", "c1", "c2"]
    assert len(nodes.notices_) == (missing != "")


# Awkward input: finite figures and no warning, or a refusal that names what is wrong.

NOT_A_WORD = np.zeros((N, 4))


def with_zero_rows(X):
    X = X.copy()
    X[::2] = 0
    return X


FEATURES = {
    "none": None,
    "zero": NOT_A_WORD,
    "zero, sparse": sp.csr_array(NOT_A_WORD),
    "no columns": NOT_A_WORD[:, :0],
    "zero rows": with_zero_rows(words()),
    "zero rows of numbers": with_zero_rows(numbers()),
    "duplicates": np.repeat(words()[:, :1], 5, axis=1),
    "constant": np.ones((N, 3)),
    "constant and not": np.column_stack([np.full(N, 7.0), numbers()]),
    "nearly constant": 1e8 + numbers() * 1e-3,
    "one column": words()[:, :1],
    "one column of numbers": numbers()[:, :1],
    "tiny words": words() * 1e-30,
    "huge words": words() * 1e30,
    "tiny": numbers() * 1e-30,
    "huge": numbers() * 1e30,
    "tiny beside huge": numbers() * np.array([1e-30, 1e30, 1, 1e-5, 1e5]),
    "huge, single precision": (numbers() * 1e30).astype(np.float32),
    "integers": (numbers() * 10).astype(int),
    "wide": words(columns=700),
    "truth": words() > 0,
    "not contiguous": np.asfortranarray(numbers()[::-1, ::-1]),
}


@pytest.mark.parametrize("design", NODE_DESIGNS)
@pytest.mark.parametrize("kind", FEATURES)
def test_awkward_features_give_finite_scores(design, kind):
    nodes = assert_sane(fit({"design": design, **FAST}, labels(), X=FEATURES[kind]))
    assert design != "co-ridge" or np.isfinite(nodes.certificate_.captured)
    said = any("the graph alone" in line for line in nodes.notices_)
    assert said == (kind in ("zero", "zero, sparse", "no columns"))


@pytest.mark.parametrize("exponent", [-320, -310, -300, 300])
def test_numbers_near_the_limits_of_double_precision_are_taken(exponent):
    assert_sane(fit(FAST, labels(), X=numbers() * 10.0**exponent))


EDGELESS = fg.Graph.from_codes([], [], num_nodes=N)
TWO = fg.Graph.from_edges([("a", "b")])
several = np.where((labels() >= 0)[:, None], np.eye(CLASSES)[groups()], -1)

CASES = {
    "one class": (small, np.where(np.arange(N) < 3, 0, -1), words()),
    "one label": (small, np.where(np.arange(N) < 1, 0, -1), words()),
    "one label per class": (small, labels(1), words()),
    "all labelled": (small, groups(), words()),
    "no edges": (lambda: EDGELESS, labels(), words()),
    "neither edges nor features": (lambda: EDGELESS, labels(), None),
    "two nodes": (lambda: TWO, ["x", None], np.eye(2)),
    "two nodes, both labelled": (lambda: TWO, ["x", "y"], np.eye(2)),
    "two nodes without features": (lambda: TWO, ["x", "y"], None),
    "isolated nodes": (lambda: fg.Graph.from_codes([0, 1], [1, 2], num_nodes=N), labels(), words()),
    "loops": (lambda: fg.Graph.from_codes(range(N), range(N)), labels(), words()),
    "several labels": (small, several, words()),
    "several labels, one column": (small, several[:, :1], words()),
    "several labels, all of them": (small, np.where(several < 0, -1, 1), words()),
    "several labels, none of them": (small, np.where(several < 0, -1, 0), words()),
    "several labels without features": (small, several, None),
}


@pytest.mark.parametrize("design", NODE_DESIGNS)
@pytest.mark.parametrize("case", CASES)
def test_awkward_graphs_and_labels_give_finite_scores(design, case):
    graph, y, X = CASES[case]
    for select in (False, True):
        nodes = assert_sane(fit({"design": design, "select": select}, y, graph(), X))
    said = " ".join(nodes.notices_)
    assert ("only one class" in said) == (case in ("one class", "one label", "two nodes"))
    assert ("every node is labelled" in said) == (case.startswith("two nodes ") or "labelled" in case)


@pytest.mark.parametrize("exponent", [-300, -30, 30])
@pytest.mark.parametrize("design", NODE_DESIGNS)
def test_weights_of_edges_are_taken_or_refused_by_name(design, exponent):
    graph = small()
    weights = np.ones(graph.num_edges)
    weights[::5] = 10.0**exponent
    nodes = fg.NodeClassifier(design=design, **FAST)
    try:
        nodes.fit(graph.with_edges(graph.edge_codes(), weights=weights), labels(), features=words())
    except FastgrlError as error:
        refusal = str(error)
        assert "weight" in refusal
    else:
        assert_sane(nodes)


@few_examples
@given(st.integers(-60, 60), st.sampled_from([FAST, LINEAR]))
def test_the_unit_of_weights_does_not_matter(exponent, how):
    graph = small()
    weights = np.random.default_rng(1).random(graph.num_edges) + 0.1
    one, two = (
        fit(how, labels(), graph.with_edges(graph.edge_codes(), weights=weights * unit), words())
        for unit in (1.0, 2.0**exponent)
    )
    assert (one.decision_function() == two.decision_function()).all()


def test_a_directed_graph_is_read_both_ways():
    one, two = (fit(FAST, labels(), small(directed=d), words()) for d in (False, True))
    np.testing.assert_allclose(one.decision_function(), two.decision_function(), atol=1e-5)
    assert_sane(fit(FAST, labels(), small(directed=True)))


@pytest.mark.parametrize("design", NODE_DESIGNS)
def test_a_validation_class_that_training_lacks_counts_as_wrong(design):
    y = np.where(np.arange(N) < 6, groups(N, 2), np.where(np.arange(N) < 9, 7, -1))
    nodes = assert_sane(fit({"design": design}, y, X=words(), validation=range(4, 9)))
    assert nodes.classes_.tolist() == [0, 1]
    assert any("validation has the class 7" in line for line in nodes.notices_)
    only = assert_sane(fit({"design": design}, y, X=words(), validation=range(6, 9)))
    if design == "co-ridge":
        assert nodes.validation_["accuracy"] <= 0.4
        assert only.validation_["accuracy"] == 0


def test_a_class_without_validation_nodes_can_still_be_predicted():
    nodes = fit({}, labels(5), X=words(), validation=[9, 10, 12, 13])
    assert nodes.classes_.tolist() == [0, 1, 2]
    assert (nodes.predict()[groups() == 2] == 2).mean() > 0.7


def test_validation_nodes_are_not_trained_on():
    y = labels(5)
    held, wrong = [9, 10, 11, 12], y.copy()
    wrong[held] = (wrong[held] + 1) % CLASSES
    how = {"views": "l", "restart": 0.1, "ridge": 0.03, "balance": 0.5, "rounds": 2}
    one, two = (fit(how, labels_, X=words(), validation=held) for labels_ in (y, wrong))
    pair = fit(how, np.where(np.isin(np.arange(N), held), -1, y), X=words(), validation=(held, y[held]))
    assert (one.decision_function() == two.decision_function()).all()
    assert (one.decision_function() == pair.decision_function()).all()
    assert one.validation_["accuracy"] > two.validation_["accuracy"]
    assert one.validation_ == pair.validation_


@pytest.mark.parametrize(
    ("y", "words_"),
    [
        (np.full(N, -1), "no node is labelled"),
        ({}, "no node is labelled"),
        (None, "y is missing"),
        (np.zeros(N - 1, int), "23 entries for 24 nodes"),
        (np.zeros((N, 2, 2)), "one entry per node"),
        (np.full((N, 2), -1), "no node is labelled"),
        (np.full((N, 2), 2), "holds 0 and 1"),
        (np.tile([0, -1], (N, 1)), "row 0 of y is −1 in some columns"),
        (np.zeros((N - 1, 2)), "23×2"),
        ([[1, 0], [1]] * (N // 2), "rows of different lengths"),
        ({0: [0, 1], 1: [1, 0]}, "cannot be the name of a class"),
        ({0: np.array([0, 1])}, "cannot be the name of a class"),
        (np.where(labels() < 0, np.inf, 1.0), "infinite"),
        (iter([0] * N), "one entry per node"),
        ("abc", "one entry per node"),
    ],
)
def test_labels_that_cannot_be_read_are_refused(y, words_):
    with pytest.raises(FastgrlError, match=words_):
        fit(LINEAR, y, X=words())


@pytest.mark.parametrize(
    ("validation", "words_"),
    [
        ([], "lists no node"),
        ([20], "node 20 has no label"),
        ([0, 0], "twice"),
        (([0, 1], [2]), "2 ids and 1 labels"),
        (range(9), "no node is labelled"),
    ],
)
def test_validation_that_cannot_judge_is_refused(validation, words_):
    with pytest.raises(ArgumentError, match=words_):
        fit({}, labels(), X=words(), validation=validation)


@pytest.mark.parametrize(
    ("X", "words_"),
    [
        (words()[:-1], "23 rows for 24 nodes"),
        (words()[0], "two dimensions"),
        (np.where(words() > 0, np.nan, 0), "row 0, column"),
        (sp.csr_array(np.where(words() > 0, np.inf, 0)), "features hold NaN or Inf"),
        (words().astype(str), "real numbers"),
        (words() + 1j, "real numbers"),
    ],
)
def test_features_that_cannot_be_read_are_refused(X, words_):
    with pytest.raises(FastgrlError, match=words_):
        fit(LINEAR, labels(), X=X)


def test_an_unknown_id_in_y_is_named():
    with pytest.raises(UnknownIdError, match="99"):
        fit(LINEAR, {0: 0, 99: 1}, X=words())


# Class weights.


def test_balanced_weights_are_those_a_dictionary_spells_out():
    y = np.where(np.arange(N) < 9, np.minimum(groups(), 1), -1)
    counts = np.bincount(y[y >= 0])
    for how in (LINEAR, FAST, {"design": "jkn", **FAST}):
        one = fit({**how, "class_weight": "balanced"}, y, X=words())
        two = fit({**how, "class_weight": {0: 1 / counts[0], 1: 1 / counts[1]}}, y, X=words())
        np.testing.assert_allclose(one.decision_function(), two.decision_function(), atol=1e-9)
        plain = fit(how, y, X=words())
        differs = np.abs(one.decision_function() - plain.decision_function()).max() > 1e-6
        assert differs == ("design" not in how or how["design"] == "co-ridge")  # "jkn" interpolates so few


@pytest.mark.parametrize("design", NODE_DESIGNS)
def test_a_label_without_weight_plays_no_part(design):
    how = {"design": design, **FAST}
    y = labels()
    nodes = assert_sane(fit({**how, "class_weight": {2: 0}}, y, X=words()))
    assert nodes.classes_.tolist() == [0, 1, 2]
    without = fit(how, np.where(y == 2, -1, y), X=words())
    if design == "co-ridge":
        assert (nodes.predict() != 2).mean() > 0.9
    else:
        np.testing.assert_allclose(nodes.decision_function()[:, :2], without.decision_function(), atol=1e-6)


@pytest.mark.parametrize("weights", [{0: 1e308, 1: 1e308}, {0: 1e-308}, {0: 1e-320, 1: 1e300}])
def test_the_unit_of_class_weights_is_free(weights):
    assert_sane(fit({**FAST, "class_weight": weights}, labels(), X=words()))


@pytest.mark.parametrize(
    ("weights", "words_"),
    [
        ("balance", "class_weight must be"),
        (5, "class_weight must be"),
        ([1, 2, 3], "class_weight must be"),
        ({0: -1}, "class_weight of 0"),
        ({0: "a"}, "class_weight of 0"),
        ({0: float("nan")}, "class_weight of 0"),
        ({0: True}, "class_weight of 0"),
        ({"cat": 2.0}, "class_weight names 'cat'"),
        ({0: 0, 1: 0, 2: 0}, "class_weight leaves no"),
    ],
)
def test_class_weights_that_make_no_sense_are_named(weights, words_):
    with pytest.raises(ArgumentError, match=words_):
        fit({**FAST, "class_weight": weights}, labels(), X=words())


def test_class_weights_are_for_one_class_per_node():
    with pytest.raises(ArgumentError, match="class_weight"):
        fit({**FAST, "class_weight": "balanced"}, several, X=words())


# Several labels per node.


@functools.cache
def overlapping(seed=0):
    how = {"topic_share": 0.8, "mixing": 0.1, "words_per_node": 40}
    return overlapping_blocks(
        500, num_labels=4, labels_per_node=1.3, validation_per_label=40, seed=seed, **how
    )


def micro_f1(predicted, truth):
    return 2 * (predicted & truth).sum() / (predicted.sum() + truth.sum())


@pytest.mark.parametrize("how", [FAST, LINEAR, {}], ids=str)
def test_several_labels_are_told_apart_where_it_is_easy(how):
    data = overlapping()
    y = np.full(data.y.shape, -1)
    y[data.train] = data.y[data.train]
    nodes = assert_sane(fg.NodeClassifier(**how).fit(data.graph, y, features=data.X))
    predicted, truth = nodes.predict()[data.test], data.y[data.test]
    commonest = np.zeros_like(truth)
    commonest[:, data.y[data.train].sum(0).argmax()] = 1
    assert micro_f1(predicted, truth) > max(0.9, micro_f1(commonest, truth) + 0.3)
    assert nodes.score(data.test, truth) > 0.8
    sparse = fg.NodeClassifier(**how).fit(data.graph, y.tolist(), features=data.X)
    assert (sparse.decision_function() == nodes.decision_function()).all()


def test_several_labels_are_chosen_by_validation():
    data = overlapping(1)
    y = np.full(data.y.shape, -1)
    known = np.concatenate([data.train, data.validation])
    y[known] = data.y[known]
    nodes = fg.NodeClassifier(rounds=2, views=("l", "i")).fit(
        data.graph, y, features=data.X, validation=data.validation
    )
    assert nodes.validation_["accuracy"] > 0.95
    assert micro_f1(nodes.predict()[data.test], data.y[data.test]) > 0.9


@pytest.mark.parametrize("nothing", [None, -1, [-1, -1, -1]])
def test_rows_of_several_labels_are_relabelled_exactly(nothing):
    nodes, y = fit(LINEAR, several, X=words()), several.copy()
    nodes.relabel({0: [1, 1, 0], 1: nothing, 20: (0, 1, 1)})
    y[[0, 1, 20]] = [1, 1, 0], [-1, -1, -1], [0, 1, 1]
    again = fit(LINEAR, y, X=words())
    np.testing.assert_allclose(nodes.decision_function(), again.decision_function(), **CLOSE)
    for wrong in (1, "a", [1, 0], [0.5, 0, 0], [-1, 0, 0]):
        with pytest.raises(ArgumentError, match="3 numbers 0 or 1"):
            nodes.relabel({0: wrong})


@pytest.mark.parametrize("design", NODE_DESIGNS)
def test_relabelling_several_labels_with_what_is_known_keeps_what_is_predicted(design):
    nodes = fit({"design": design, "n_components": 6, **FAST}, several, X=words())
    before = nodes.predict()
    assert (nodes.relabel({0: [1, 0, 0], 4: [0, 1, 0]}).predict() == before).mean() > 0.95


# How good it is where the truth is known.


@pytest.mark.parametrize(("mixing", "topics", "seed"), [(0.5, 0.2, 1), (0.6, 0.15, 0), (0.3, 0.3, 2)])
def test_confidence_is_near_the_accuracy(mixing, topics, seed):
    how = {"num_classes": 4, "mean_degree": 6.0, "mixing": mixing, "topic_share": topics, "seed": seed}
    data = block_model(600, **how)
    y = np.full(600, -1)
    y[data.train] = data.y[data.train]
    held = y.copy()
    held[data.validation] = data.y[data.validation]
    runs = [(FAST, y, None), (LINEAR, y, None), ({"views": "l", "rounds": 5}, held, data.validation)]
    for how, labels_, validation in runs:
        nodes = fg.NodeClassifier(**how).fit(data.graph, labels_, features=data.X, validation=validation)
        right = (nodes.predict() == data.y)[data.test].mean()
        assert abs(nodes.predict_proba()[data.test].max(1).mean() - right) < 0.1
        assert abs(nodes.loo_accuracy_ - right) < 0.12


def spectral_oracle(graph, y, train):
    """Nearest class mean among unit rows of the leading eigenvectors of the regularised adjacency matrix."""
    A, classes = graph.to_scipy().toarray(), len(set(y))
    degrees = A.sum(1)
    root = np.sqrt(degrees + degrees.mean())
    vectors = np.linalg.eigh((A + degrees.mean() / len(A)) / np.outer(root, root))[1][:, -classes:]
    rows = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    means = np.array([rows[train][y[train] == c].mean(0) for c in range(classes)])
    return ((rows[:, None] - means) ** 2).sum(-1).argmin(1)


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize("how", [FAST, {}], ids=str)
def test_the_graph_alone_is_as_good_as_its_spectrum(seed, how):
    data = block_model(600, num_classes=4, mixing=0.3, mean_degree=12, seed=seed)
    y = np.full(600, -1)
    y[data.train] = data.y[data.train]
    nodes = fg.NodeClassifier(**how).fit(data.graph, y)
    oracle = (spectral_oracle(data.graph, data.y, data.train) == data.y)[y < 0].mean()
    assert oracle > 0.9
    assert (nodes.predict() == data.y)[y < 0].mean() > oracle - 0.02


def accuracy(name, how, *, seed=None):
    data = fg.load_dataset(name)
    ids = data.graph.node_ids
    train, validation, test = data.train, data.validation, data.test
    if seed is not None:
        known = np.flatnonzero(data.y >= 0)
        parts = stratified_split(data.y[known], train=20, validation=80, seed=seed)
        train, validation, test = (known[part] for part in parts)
    y = np.full(len(ids), -1)
    y[train] = data.y[train]
    y[validation] = data.y[validation]
    nodes = fg.NodeClassifier(**how).fit(data.graph, y, features=data.X, validation=ids[validation])
    return nodes, (nodes.predict(ids[test]) == data.y[test]).mean()


def test_digits_are_told_apart():
    nodes, right = accuracy("digits", FAST)
    assert right > 0.94
    assert nodes.certificate_.captured > 0.9


def test_papers_of_cora_are_told_apart():
    nodes, right = accuracy("cora", {})
    assert nodes.validation_["accuracy"] >= 0.81
    assert right >= 0.845


def test_classes_do_not_collapse_on_a_random_split():
    nodes, right = accuracy("citeseer", FAST, seed=0)
    assert right > 0.68
    assert np.bincount(nodes.predict()).min() > 100


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(20))
def test_classes_do_not_collapse_on_any_random_split(seed):
    nodes, right = accuracy("citeseer", {}, seed=seed)
    assert right > 0.68
    assert np.bincount(nodes.predict()).min() > 100


# Nodes that come later.

STR = [f"n{i:02}" for i in range(N)]


@functools.cache
def grown_model(kind, linear=True):
    return fit(LINEAR if linear else FAST, labels(), small(ids=STR), features_of(kind))


def edges_like(node, name="new"):
    graph = small(ids=STR)
    return [(name, STR[other]) for other in graph.indices[graph.indptr[node] : graph.indptr[node + 1]]]


@pytest.mark.parametrize("kind", ["words", "sparse", "numbers", "none"])
@pytest.mark.parametrize("linear", [True, False])
def test_a_copy_of_a_node_is_predicted_like_it(kind, linear):
    nodes, X = grown_model(kind, linear), features_of(kind)
    before = nodes.decision_function()
    alike = []
    for node in range(N):
        edges = edges_like(node)
        if not edges:
            continue
        rows = None if X is None else X[[node]]
        found = nodes.predict(edges=edges, features=rows)
        by_id = nodes.predict_proba(edges=edges, features=None if X is None else {"new": rows})
        assert (nodes.classes_[by_id.argmax(1)] == found).all()
        alike.append(found[0] == nodes.predict([STR[node]])[0])
    assert np.mean(alike) > 0.9
    assert (nodes.decision_function() == before).all()


def test_without_new_edges_old_nodes_score_as_they_did():
    nodes = grown_model("words")
    again = nodes.decision_function(STR, edges=[], features={"alone": words()[0]})
    np.testing.assert_allclose(again, nodes.decision_function(), atol=1e-12)


def test_rows_of_new_nodes_follow_new_nodes():
    nodes, X = grown_model("words"), words()
    edges = [*edges_like(5, "zoe"), *edges_like(3, "ann"), ("zoe", "bob")]
    names = nodes.new_nodes(edges)
    assert names.tolist() == ["ann", "bob", "zoe"]
    by_id = {"zoe": X[5], "ann": X[3].tolist(), "bob": sp.csr_array(X[[1]])}
    rows = np.array([X[3], X[1], X[5]])
    by_order = nodes.decision_function(edges=edges, features=rows)
    assert (by_order == nodes.decision_function(edges=edges, features=by_id)).all()
    assert (by_order == nodes.decision_function(edges=edges[::-1], features=sp.csr_array(rows))).all()
    asked = nodes.decision_function(["zoe", "n03", "ann"], edges=edges, features=by_id)
    assert (asked[[2, 0]] == by_order[[0, 2]]).all()


def test_edges_between_old_nodes_bring_no_new_ones_but_change_scores():
    nodes = grown_model("words")
    edges = [("n00", STR[i]) for i in range(1, N, 3)]
    assert len(nodes.new_nodes(edges)) == 0
    assert nodes.predict(edges=edges).shape == (0,)
    assert nodes.predict_proba(edges=edges).shape == (0, CLASSES)
    changed = nodes.decision_function(["n00"], edges=edges)
    assert np.abs(changed - nodes.decision_function(["n00"])).max() > 1e-3


@pytest.mark.parametrize("design", NODE_DESIGNS)
@pytest.mark.parametrize("kind", ["numbers", "none"])
def test_new_nodes_of_any_kind_get_finite_scores(design, kind):
    nodes = fit({"design": design, **FAST}, labels(), small(ids=STR), features_of(kind))
    edges = [("a", "b"), ("c", "c"), ("d", "n00"), (("t", 1), "n01"), (7, "n02")]
    names = nodes.new_nodes(edges).tolist()
    assert len(names) == 6
    far = None if kind == "none" else {name: 10.0**i * numbers()[i] for i, name in enumerate(names)}
    assert np.isfinite(nodes.predict_proba(edges=edges, features=far)).all()
    if kind == "numbers" and design == "co-ridge":
        extreme = {"e": np.full(5, 1e300), "f": np.full(5, -1e-300)}
        assert np.isfinite(nodes.predict_proba(edges=[("e", "n00")], features=extreme)).all()


@pytest.mark.parametrize(
    ("options", "words_"),
    [
        ({}, "give those of the 1 new nodes, such as 'new'"),
        ({"features": words()[:2]}, "2 rows for 1 nodes"),
        ({"features": words()[:1, :5]}, "5 features where the model has 12"),
        ({"features": {"new": words()[0, :5]}}, "'new' has 1×5 features where the model has 12"),
        ({"features": {"new": sp.csr_array(words()[:1, :5])}}, "where the model has 12"),
        ({"features": {"other": words()[0]}}, "new node 'new' are missing"),
        ({"features": {"new": np.full(12, np.nan)}}, "nan"),
        ({"features": words()[0]}, "two dimensions"),
        ({"edges": 5, "features": {"new": words()[0]}}, "pairs"),
        ({"edges": [("new", "n00", 2.0)], "features": {"new": words()[0]}}, "unweighted"),
        ({"nodes": ["nobody"], "features": {"new": words()[0]}}, "nobody"),
    ],
)
def test_new_nodes_that_cannot_be_placed_are_named(options, words_):
    with pytest.raises(FastgrlError, match=words_):
        grown_model("words").predict(**{"edges": [("new", "n00")], **options})


def test_features_without_a_use_are_refused():
    with pytest.raises(ArgumentError, match="fitted without features"):
        grown_model("none").predict(edges=[("new", "n00")], features=words()[:1])


class TestManners:
    def test_clone_and_parameters(self):
        nodes = fg.NodeClassifier(design="jkn", hops=3, class_weight={0: 2.0}, random_state=3)
        other = clone(nodes)
        assert other.get_params() == nodes.get_params()
        assert other.set_params(window=7).window == 7
        with pytest.raises(ValueError, match="Invalid parameter"):
            nodes.set_params(windw=7)

    @pytest.mark.parametrize(
        "use",
        [
            lambda nodes: nodes.predict(),
            lambda nodes: nodes.predict_proba([0]),
            lambda nodes: nodes.decision_function(),
            lambda nodes: nodes.score([0], [0]),
            lambda nodes: nodes.explain(0),
            lambda nodes: nodes.relabel({0: 1}),
            lambda nodes: nodes.new_nodes([(0, 1)]),
            lambda nodes: nodes.graph_,
            lambda nodes: nodes.node_ids_,
            lambda nodes: nodes.certificate_,
            lambda nodes: nodes.save("nowhere"),
        ],
    )
    def test_before_fit_everything_says_so(self, use):
        with pytest.raises(NotFittedError):
            use(fg.NodeClassifier())

    @pytest.mark.parametrize("how", [FAST, LINEAR, {"design": "jkn"}], ids=str)
    @pytest.mark.parametrize("kind", ["words", "sparse", "numbers"])
    def test_input_is_neither_changed_nor_needed_to_be_writable(self, how, kind):
        graph, X, y = small(), features_of(kind), labels()
        arrays = [y, *((X.data, X.indices, X.indptr) if kind == "sparse" else (X,))]
        before = [array.tobytes() for array in arrays]
        for array in arrays:
            array.flags.writeable = False
        nodes = fit(how, y, graph, X)
        parameters = nodes.get_params()
        nodes.relabel({0: 1})
        nodes.predict(edges=[(99, 0)], features=X[[0]])
        assert [array.tobytes() for array in arrays] == before
        assert nodes.get_params() == parameters

    def test_what_is_given_out_can_be_changed_without_harm(self):
        nodes = fit(LINEAR, labels(), X=words())
        before = nodes.predict()
        nodes.decision_function()[:] = 0
        nodes.predict_proba()[:] = 0
        nodes.chosen_.clear()
        assert (nodes.predict() == before).all()

    def test_fitting_again_leaves_nothing_behind(self):
        nodes = fit(FAST, labels(), X=words()).relabel({0: 1})
        assert nodes.certificate_ is not None
        nodes.fit(small(1), labels(), features=numbers())
        fresh = fit(FAST, labels(), small(1), numbers())
        assert (nodes.decision_function() == fresh.decision_function()).all()
        assert nodes.explain(3).as_dict() == fresh.explain(3).as_dict()
        assert not hasattr(nodes, "relabelled_")

    def test_global_randomness_is_left_alone(self):
        np.random.seed(5)  # noqa: NPY002
        before = np.random.get_state()[1].tobytes()  # noqa: NPY002
        fit({}, labels(), X=words())
        assert np.random.get_state()[1].tobytes() == before  # noqa: NPY002

    def test_generators_and_none_are_random_states(self):
        for state in (None, np.random.default_rng(0), np.random.RandomState(0), np.int64(5)):
            assert len(fit({"random_state": state, **FAST}, labels()).predict()) == N

    # The checks of scikit-learn that speak of estimators in general; the others give `fit` a table of rows.
    @pytest.mark.parametrize(
        "check",
        [
            "check_no_attributes_set_in_init",
            "check_parameters_default_constructible",
            "check_get_params_invariance",
            "check_set_params",
            "check_estimator_repr",
            "check_estimator_cloneable",
            "check_estimator_tags_renamed",
            "check_valid_tag_types",
            "check_mixin_order",
        ],
    )
    def test_the_applicable_checks_of_scikit_learn(self, check):
        function = getattr(estimator_checks, check, None)
        assert function is not None, f"scikit-learn has no {check}"
        function("NodeClassifier", fg.NodeClassifier())

    @pytest.mark.parametrize(
        ("how", "words_"),
        [
            ({"design": "co-rigde"}, "did you mean 'co-ridge'"),
            ({"design": None}, "design"),
            ({"select": "no"}, "select"),
            ({"n_components": 0}, "n_components"),
            ({"n_components": 2.5}, "n_components"),
            ({"views": "x"}, "views"),
            ({"views": []}, "views"),
            ({"views": ["l", "l"]}, "views"),
            ({"views": [["l"]]}, "views"),
            ({"views": 3}, "views"),
            ({"views": "s"}, "views"),
            ({"restart": 0}, "restart"),
            ({"restart": 1.5}, "restart"),
            ({"restart": "a"}, "restart"),
            ({"ridge": 0}, "ridge"),
            ({"ridge": -1}, "ridge"),
            ({"ridge": float("nan")}, "ridge"),
            ({"balance": -0.5}, "balance"),
            ({"rounds": -1}, "rounds"),
            ({"rounds": 1.5}, "rounds"),
            ({"hops": 3}, "hops is not a setting of co-ridge"),
            ({"window": 3}, "window is not a setting of co-ridge"),
            ({"negative": 1.0}, "negative is not a setting of co-ridge"),
            ({"design": "jkn", "views": "l"}, "views is not a setting of jkn"),
            ({"design": "jkn", "ridge": 0.1}, "ridge is not a setting of jkn"),
            ({"design": "jkn-text", "rounds": 2}, "rounds is not a setting of jkn-text"),
            ({"design": "jkn", "hops": -1}, "hops"),
            ({"design": "jkn", "window": 0}, "window"),
            ({"design": "jkn", "negative": -1.0}, "negative"),
            ({"random_state": -1}, "random_state"),
            ({"random_state": "x"}, "random_state"),
            ({"n_jobs": 0}, "n_jobs"),
            ({"max_memory": 0}, "max_memory"),
            ({"max_memory": "1GB"}, "max_memory"),
        ],
    )
    def test_bad_settings_are_named(self, how, words_):
        with pytest.raises(FastgrlError, match=words_):
            fit({**FAST, **how}, labels(), X=words())

    def test_views_of_features_give_way_where_there_are_none(self):
        nodes = fit({**FAST, "views": ("l", "i")}, labels())
        assert nodes.chosen_["views"] == ["s"]
        assert any("no features" in line for line in nodes.notices_)
        assert {share.kind for share in nodes.explain(0).features} == {"structure"}

    def test_one_node_alone_cannot_be_fitted(self):
        with pytest.raises(ArgumentError, match="two nodes"):
            fit({}, ["x"], fg.Graph.from_edges([("a", "a")]))

    def test_unknown_ids_and_classes_are_named(self):
        nodes = grown_model("words")
        for use in (nodes.predict, nodes.predict_proba, lambda ids: nodes.explain(ids[0])):
            with pytest.raises(UnknownIdError, match="nobody"):
                use(["nobody"])
        with pytest.raises(ArgumentError, match="'9' is not a class"):
            nodes.explain("n00", label="9")

    def test_one_id_no_id_and_any_order(self):
        nodes = grown_model("words")
        assert nodes.predict("n07").shape == (1,)
        assert nodes.predict([]).shape == (0,)
        assert nodes.predict_proba([]).shape == (0, CLASSES)
        assert (nodes.predict(["n07", "n03", "n07"]) == nodes.predict()[[7, 3, 7]]).all()

    def test_score_is_the_share_of_right_predictions(self):
        nodes = grown_model("words")
        right = nodes.predict() == groups()
        assert nodes.score(STR, groups()) == right.mean()
        weights = np.arange(N)
        weighted = nodes.score(STR, groups(), sample_weight=weights)
        assert weighted == pytest.approx((right * weights).sum() / weights.sum())
        with pytest.raises(ShapeError, match="2 labels for 24 nodes"):
            nodes.score(STR, [0, 1])

    def test_more_memory_than_allowed_is_refused_before_any_work(self):
        with pytest.raises(UnavailableError, match="limit"):
            fit({"max_memory": 1000}, labels(), X=words())
        assert len(fit({"max_memory": 10**9, **FAST}, labels(), X=words()).predict()) == N

    @pytest.mark.parametrize("design", NODE_DESIGNS)
    def test_progress_rises_to_the_end(self, design):
        seen = []
        how = {"design": design, "n_jobs": 1}
        fit(how, labels(), X=words(), progress=lambda done, total: seen.append(done / total))
        assert seen == sorted(seen)
        assert seen[-1] == 1

    def test_graphs_of_other_kinds_are_taken(self):
        graph = small()
        wanted = fit(LINEAR, labels(), X=words()).decision_function()
        other = networkx.Graph()
        other.add_nodes_from(range(N))
        other.add_edges_from(graph.edge_codes().tolist())
        for source in (graph.to_scipy(), graph.to_scipy().toarray(), other):
            found = fit(LINEAR, labels(), source, words()).decision_function()
            np.testing.assert_allclose(found, wanted, atol=1e-12)
