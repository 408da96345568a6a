"""NodeFeatures: rows of a table are ids, and everything scikit-learn does with rows works."""

import functools

import numpy as np
import pandas
import pytest
import scipy.sparse as sp
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import FeatureUnion, Pipeline, make_pipeline
from sklearn.utils import estimator_checks

import fastgrl as fg
from fastgrl.datasets.synthetic import block_model
from fastgrl.errors import ArgumentError, FastgrlError, UnknownIdError


@functools.cache
def data():
    return block_model(
        200, num_classes=3, mixing=0.2, num_features=60, topic_share=0.4, validation_per_class=15, seed=1
    )


@functools.cache
def graph():
    return fg.Graph.from_codes(*data().graph.edge_codes().T, num_nodes=200, node_ids=names().tolist())


def names():
    return np.array([f"node {i}" for i in range(200)], object)


def features(**options):
    return fg.NodeFeatures(graph(), features=data().X, **options)


def test_rows_follow_the_ids():
    found = features().fit()
    order = np.random.default_rng(0).permutation(200)
    every = found.transform(names())
    assert every.shape == (200, 60)
    assert np.isfinite(every).all()
    assert (found.transform(names()[order]) == every[order]).all()
    assert (found.transform(["node 7", "node 3", "node 7"]) == every[[7, 3, 7]]).all()
    assert (features().fit_transform(names()[order][:9]) == every[order][:9]).all()


def test_the_order_of_nodes_in_the_graph_does_not_matter_much():
    order = np.random.default_rng(0).permutation(200)
    edges = np.argsort(order)[graph().edge_codes()]
    other = fg.Graph.from_codes(*edges.T, num_nodes=200, node_ids=names()[order].tolist())
    one = features().fit().transform(names())
    two = fg.NodeFeatures(other, features=data().X[order]).fit().transform(names())
    np.testing.assert_allclose(one, two, atol=1e-5)


def test_a_column_of_a_table_is_a_list_of_ids():
    found = features().fit()
    wanted = found.transform(names()[:5])
    for ids in (names()[:5, None], pandas.DataFrame({"id": names()[:5]}), pandas.Series(names()[:5])):
        assert (found.transform(ids) == wanted).all()
    assert found.get_feature_names_out().shape == (60,)
    frame = found.set_output(transform="pandas").transform(names()[:5])
    assert frame.shape == (5, 60)


def test_which_ids_and_labels_fit_sees_changes_nothing():
    one = features().fit(names()[:10], data().y[:10])
    two = features().fit()
    assert (one.transform(names()) == two.transform(names())).all()


@pytest.mark.parametrize("options", [{}, {"view": "i"}, {"n_components": 5}, {"restart": 1.0}], ids=str)
def test_a_pipeline_learns_classes(options):
    model = make_pipeline(features(**options), LogisticRegression(max_iter=500))
    train, test = data().train, data().test
    model.fit(names()[train], data().y[train])
    least = 0.75 if options.get("restart") == 1.0 else 0.9
    assert model.score(names()[test], data().y[test]) > least


def test_more_is_known_of_a_node_with_its_surroundings():
    train, test = data().train, data().test
    alone, around = (
        make_pipeline(features(restart=a), LogisticRegression(max_iter=500))
        .fit(names()[train], data().y[train])
        .score(names()[test], data().y[test])
        for a in (1.0, 0.1)
    )
    assert around > alone + 0.02


def test_the_graph_alone_has_features_too():
    model = make_pipeline(fg.NodeFeatures(graph(), n_components=10), Ridge())
    labels = np.eye(3)[data().y]
    train, test = data().train, data().test
    predicted = model.fit(names()[train], labels[train]).predict(names()[test]).argmax(1)
    assert (predicted == data().y[test]).mean() > 0.75


def test_a_grid_search_over_ids_and_settings():
    pipeline = Pipeline([("nodes", features()), ("ridge", LogisticRegression(max_iter=500))])
    grid = {"nodes__restart": [0.1, 1.0], "nodes__n_components": [5, 20], "ridge__C": [1.0, 10.0]}
    search = GridSearchCV(pipeline, grid, cv=3)
    train = np.concatenate([data().train, data().validation[:30]])
    search.fit(names()[train], data().y[train])
    assert search.best_params_["nodes__restart"] == 0.1
    assert search.score(names()[data().test], data().y[data().test]) > 0.85
    assert cross_val_score(pipeline, names(), data().y, cv=3).min() > 0.9


def test_features_stand_beside_others():
    both = FeatureUnion([("l", features()), ("i", features(view="i", n_components=7))])
    assert both.fit_transform(names()[:4]).shape == (4, 67)


def test_clones_are_equal_and_unfitted():
    one = features(n_components=9).fit()
    other = clone(one)
    with pytest.raises(NotFittedError):
        other.transform(names()[:2])
    assert (other.fit().transform(names()) == one.transform(names())).all()


def test_the_same_seed_gives_the_same_bits_and_input_stays():
    X = data().X.copy()
    for array in (X.data, X.indices, X.indptr):
        array.flags.writeable = False
    runs = [fg.NodeFeatures(graph(), features=X, n_components=5).fit().transform(names()) for _ in range(2)]
    assert (runs[0] == runs[1]).all()
    runs[0][:] = 0
    assert (features(n_components=5).fit().transform(names()) == runs[1]).all()


@pytest.mark.parametrize(
    "X", [np.zeros((200, 3)), np.ones((200, 2)), np.full((200, 1), 1e30), sp.csr_array((200, 4))]
)
def test_features_that_say_nothing_are_finite(X):
    found = fg.NodeFeatures(graph(), features=X).fit().transform(names())
    assert np.isfinite(found).all()


def test_unknown_ids_are_named():
    with pytest.raises(UnknownIdError, match="nobody"):
        features().fit().transform(["node 1", "nobody"])


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"view": "x"}, "view"),
        ({"view": "k"}, "view"),
        ({"restart": 0}, "restart"),
        ({"restart": 1.5}, "restart"),
        ({"restart": "a"}, "restart"),
        ({"n_components": 0}, "n_components"),
        ({"random_state": -1}, "random_state"),
        ({"features": np.ones((3, 2))}, "3 rows for 200 nodes"),
        ({"features": np.full((200, 2), np.nan)}, "row 0, column 0"),
    ],
)
def test_bad_settings_are_named(options, words):
    with pytest.raises(FastgrlError, match=words):
        fg.NodeFeatures(**{"graph": graph(), "features": data().X, **options}).fit()


def test_a_graph_is_needed():
    with pytest.raises(ArgumentError, match="needs a graph"):
        fg.NodeFeatures().fit(["a"])


# The checks of scikit-learn that speak of estimators in general; the others give `fit` a table of numbers.
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
def test_the_applicable_checks_of_scikit_learn(check):
    function = getattr(estimator_checks, check, None)
    assert function is not None, f"scikit-learn has no {check}"
    function("NodeFeatures", fg.NodeFeatures())
