from __future__ import annotations

import dataclasses
import json
import math
import tempfile
from dataclasses import dataclass

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from test_storage import FaultyOs, typed

import fastgrl as fg
from fastgrl import models, node_fits, storage
from fastgrl.certificates import Certificate
from fastgrl.cli import run
from fastgrl.errors import ArgumentError, FastgrlError, InputError
from fastgrl.io import atomic
from fastgrl.node_fits import fit_nodes
from fastgrl.node_models import (
    NODE_DESIGNS,
    Fitted,
    NodeFit,
    NodeInputs,
    NodeModel,
    NodeSettings,
    Targets,
    Validation,
)
from fastgrl.node_storage import KIND, NodeParts, node_parts_of, save_node_parts
from fastgrl.storage import Stored, load_model
from fastgrl.stored_values import coded, coded_names, decoded, decoded_names


@dataclass(frozen=True, eq=False)
class Toy(NodeModel):
    """Scores degrees by one weight for each class."""

    slopes: np.ndarray
    views: tuple[str, ...]
    exact = True

    @property
    def size(self):
        return NODES, len(self.slopes)

    def scores(self, inputs):
        return inputs.graph.degrees[:, None] * self.slopes

    def parts(self, inputs):
        return ()

    def arrays(self):
        return {"slopes": self.slopes}

    def facts(self):
        return {"views": self.views}

    @classmethod
    def of_stored(cls, arrays, facts):
        slopes, views = arrays["slopes"], facts["views"]
        if slopes.ndim != 1 or not isinstance(views, tuple):
            raise ValueError("no such slopes")
        return cls(slopes, views)


Toy.__abstractmethods__ = frozenset()  # toys neither grow nor are they relabelled


@pytest.fixture(autouse=True, scope="module")
def surroundings():
    """Toys can be stored, and no test waits for the disk."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(node_fits.MODELS, "toy", Toy)
        patch.setattr(storage, "os", FaultyOs())
        patch.setattr(atomic, "os", FaultyOs())
        yield


NODES = 12
PARAMETERS = {
    **{"design": "co-ridge", "n_components": None, "select": True, "views": ("l", "i"), "restart": 0.15},
    **{
        "class_weight": {0: 1.0, 2: 0.5},
        "random_state": 3,
        "n_jobs": None,
        "max_memory": None,
        "device": None,
    },
}
FLOATS = st.floats(allow_nan=False, allow_infinity=False)
SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary()
KEYS = st.booleans() | st.integers() | FLOATS | st.text() | st.sampled_from(["dict", "tuple"]) | st.binary()
VALUES = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.lists(inner, max_size=3).map(tuple)
        | st.dictionaries(KEYS | st.tuples(KEYS, KEYS), inner, max_size=3)
    ),
    max_leaves=8,
)
NAMES = [
    np.array([-3, 0, 7]),
    np.array([0, 1], np.uint8),
    np.array([False, True]),
    np.array([0.5, 1e300]),
    np.array(["no", "yes", "Zoë"]),
    np.array([b"no", b"yes"]),
    np.array(["text", b"bytes", 7, True, ("a", (1, b"x")), 2.5], object),
]


def exactly(value):
    """What tells a value from one of another type, and NaN from nothing."""
    if isinstance(value, dict):
        return (dict, *((exactly(key), exactly(item)) for key, item in value.items()))
    if isinstance(value, list | tuple):
        return (type(value), *map(exactly, value))
    return (type(value), repr(value))


@given(VALUES)
def test_values_come_back_from_json_with_their_types(value):
    text = json.dumps(coded(value, "it"), allow_nan=False)
    assert exactly(decoded(json.loads(text))) == exactly(value)


@pytest.mark.parametrize("names", NAMES, ids=lambda names: str(names.dtype))
def test_class_names_come_back_with_their_types(names):
    found = decoded_names(json.loads(json.dumps(coded_names(names, "classes"))))
    assert found.dtype == names.dtype
    assert list(map(typed, found.tolist())) == list(map(typed, names.tolist()))


@pytest.mark.parametrize(
    "value", [object(), 1j, {1, 2}, np.arange(3), [lambda: 0], np.datetime64("2020", "Y")]
)
def test_values_that_json_cannot_hold_are_named(value):
    with pytest.raises(ArgumentError, match=r"the parameter x .* cannot be stored"):
        coded(value, "the parameter x")


def test_numbers_of_numpy_become_plain_ones():
    assert exactly(coded([np.int8(3), np.float32(0.5), np.bool_(True), np.str_("a")], "it")) == exactly(
        [3, 0.5, True, "a"]
    )


@pytest.mark.parametrize(
    "stored",
    [
        {"kind": "O", "names": ["a", "a"]},
        {"kind": "O", "names": [["a"]]},
        {"kind": "O", "names": "ab"},
        {"kind": "int64", "names": ["a"]},
        {"kind": "uint8", "names": [300]},
        {"kind": "int64", "names": [2**70]},
        {"kind": "int64", "names": [0.5]},
        {"kind": "U", "names": [1]},
        {"kind": "M8[s]", "names": [1]},
        {"kind": "<U999999999", "names": ["a"]},
        {"kind": ["U"], "names": ["a"]},
        {"names": ["a"]},
        None,
    ],
    ids=str,
)
def test_names_that_were_never_coded_are_refused(stored):
    with pytest.raises((ValueError, TypeError, KeyError, OverflowError)):
        decoded_names(stored)


def features_of(rng, kind, num_nodes):
    if kind == "none":
        return None
    dense = (rng.random((num_nodes, 4)) * (rng.random((num_nodes, 4)) < 0.5)).astype(kind[-7:])
    return sp.csr_array(dense) if kind.startswith("sparse") else dense


FEATURES = ("none", "dense float32", "dense float64", "sparse float32", "sparse float64")


def parts(
    seed=0, *, features="sparse float32", classes=NAMES[4], multilabel=False, directed=False, **changes
):
    rng = np.random.default_rng(seed)
    n, C = NODES, len(classes)
    edges = np.unique(np.sort(rng.integers(0, n, (30, 2))), axis=0)
    ids = np.array([f"n{i}" for i in range(n)], object)
    weights = rng.random(len(edges)) + 0.5 if directed else None
    graph = fg.Graph.from_codes(*edges.T, weights=weights, num_nodes=n, node_ids=ids, directed=directed)
    X = features_of(rng, features, n)
    structure = rng.standard_normal((n, 3)).astype(np.float32) if X is None else None
    labelled = np.sort(rng.choice(n, 6, replace=False))
    labels = np.zeros((n, C))
    labels[labelled] = rng.random((6, C)) < 0.5 if multilabel else np.eye(C)[rng.integers(0, C, 6)]
    model = Toy(rng.standard_normal(C), ("l", "i"))
    inputs = NodeInputs(graph, X, structure)
    fitted = Fitted(
        model=model,
        scores=model.scores(inputs),
        loo_scores=rng.standard_normal((6, C)),
        chosen={"views": ("l", "i"), "ridge": np.float64(0.1)},
        validation={"accuracy": 0.5, "nodes": 2},
        near_best=({"ridge": 0.3},),
        seconds={"select": 0.25, "fit": 0.5},
        notices=("nothing odd",),
        certificate=Certificate(*rng.random((3, 2)), *rng.random(7).tolist()),
    )
    whole = NodeParts(
        parameters=PARAMETERS,
        inputs=inputs,
        targets=Targets(classes, labels, labelled, rng.dirichlet(np.ones(6)), multilabel),
        fit=NodeFit(fitted, 0.7, 0.5),
        validation=Validation(np.array([5, 2]), np.eye(C)[[0, C - 1]]),
        feature_names=None if X is None else ("a", "b", "Zoë", "\x1b"),
    )
    return dataclasses.replace(whole, **changes)


def after_saving(whole):
    with tempfile.TemporaryDirectory() as here:
        save_node_parts(whole, f"{here}/model")
        return node_parts_of(load_model(f"{here}/model"), "model")


def alike(one, other):
    """Whether two nests of dataclasses, arrays and values are equal, number types included."""
    if one is None or isinstance(one, str | int | float | dict | tuple):
        return type(one) is type(other) and one == other
    if sp.issparse(one):
        return alike(one.toarray(), other.toarray())
    if isinstance(one, np.ndarray):
        if one.dtype.kind == "O":
            return list(map(typed, one)) == list(map(typed, other))
        return one.dtype == other.dtype and np.array_equal(one, other)
    pairs = ((getattr(one, f.name), getattr(other, f.name)) for f in dataclasses.fields(one))
    return type(one) is type(other) and all(alike(*pair) for pair in pairs)


@given(
    st.integers(0, 2**32),
    st.sampled_from(FEATURES),
    st.sampled_from(NAMES),
    st.booleans(),
    st.booleans(),
)
@settings(max_examples=40, deadline=None)
def test_a_classifier_comes_back_as_it_was(seed, features, classes, multilabel, directed):
    whole = parts(seed, features=features, classes=classes, multilabel=multilabel, directed=directed)
    found = after_saving(whole)
    assert alike(whole, found)
    assert (found.fit.fitted.model.scores(found.inputs) == whole.fit.fitted.scores).all()


@pytest.mark.parametrize("design", NODE_DESIGNS)
@pytest.mark.parametrize("features", ["none", "dense float64", "sparse float32"])
@pytest.mark.parametrize("multilabel", [False, True])
def test_every_design_scores_alike_when_it_comes_back(design, features, multilabel):
    whole = parts(features=features, multilabel=multilabel)
    # Designs make walk vectors of their own.
    inputs = NodeInputs(whole.inputs.graph, whole.inputs.features)
    whole = dataclasses.replace(whole, inputs=inputs)
    settings_ = NodeSettings(design, rank=3, select=False)
    fit = fit_nodes(whole.inputs, whole.targets, settings_)
    whole = dataclasses.replace(whole, parameters=PARAMETERS | {"design": design}, fit=fit)
    found = after_saving(whole)
    model, other = fit.fitted.model, found.fit.fitted.model
    assert type(other) is type(model)
    assert other.exact == model.exact
    assert np.array_equal(other.scores(found.inputs), model.scores(whole.inputs))
    for one, two in zip(model.parts(whole.inputs), other.parts(found.inputs), strict=True):
        assert np.array_equal(one.Z, two.Z)
        assert np.array_equal(one.targets, two.targets)
        assert (one.ridge, one.share) == (two.ridge, two.share)


def test_what_there_is_not_comes_back_as_nothing():
    whole = parts(features="none", validation=None, feature_names=None)
    fitted = dataclasses.replace(whole.fit.fitted, loo_scores=None, certificate=None, near_best=())
    whole = dataclasses.replace(whole, fit=NodeFit(fitted, None, None))
    found = after_saving(whole)
    assert alike(whole, found)
    assert (found.inputs.features, found.validation, found.fit.fitted.certificate) == (None, None, None)


@pytest.mark.parametrize("given_", [None, "balanced", {"no": 2, "yes": 0.5}, {(1, b"x"): 1.0}])
def test_class_weights_come_back(given_):
    found = after_saving(parts(parameters=PARAMETERS | {"class_weight": given_}))
    assert exactly(found.parameters["class_weight"]) == exactly(given_)


def test_threads_memory_and_generators_stay_with_the_machine_that_fitted():
    machine = {"n_jobs": 4, "max_memory": 10**9, "device": "cuda", "random_state": np.random.default_rng(0)}
    found = after_saving(parts(parameters=PARAMETERS | machine)).parameters
    assert [found[name] for name in machine] == [None, None, None, 0]


def test_features_in_disorder_come_back_in_order_and_equal():
    n = 12
    indices, data = np.tile(np.array([3, 1, 3], np.int32), n), np.arange(3 * n, dtype=np.float32)
    X = sp.csr_array((data, indices, 3 * np.arange(n + 1, dtype=np.int32)), shape=(n, 4))
    whole = parts()
    found = after_saving(dataclasses.replace(whole, inputs=NodeInputs(whole.inputs.graph, X))).inputs.features
    assert np.array_equal(found.toarray(), X.toarray())
    assert found.has_canonical_format
    assert X.nnz == 3 * n
    (found @ np.eye(4)).sum()


def stored(**how):
    with tempfile.TemporaryDirectory() as here:
        save_node_parts(parts(**how), f"{here}/model")
        return load_model(f"{here}/model", mmap=False)


def loaded_with(model, tmp_path):
    """Save what may be wrong as a sound folder, and read it."""
    storage.save_model(model, tmp_path / "model", force=True)
    return node_parts_of(load_model(tmp_path / "model"), tmp_path / "model")


def refusal(model):
    """What is said of a model that may be wrong; None if all of it can be computed with."""
    try:
        usable(node_parts_of(model, "model"))
    except InputError as error:
        return str(error)
    return None


def is_clear(refused):
    return "fit" in refused and refused.isprintable()


def with_array(model, key, array):
    arrays = {name: other for name, other in model.arrays.items() if name != key}
    return dataclasses.replace(model, arrays=arrays | ({} if array is None else {key: array}))


def with_fact(model, value, *path):
    facts = json.loads(json.dumps(model.facts))
    place = facts
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = value
    if value is None:
        del place[path[-1]]
    return dataclasses.replace(model, facts=facts)


def wrong_arrays(array):
    yield None
    yield array[:-1]
    yield np.concatenate([array, array])
    yield array.reshape(-1, 1) if array.ndim == 1 else array.reshape(-1)
    yield array.T[None]
    yield array.astype(np.float16)
    yield array.astype(bool)
    yield array.astype(np.int8)
    yield array[::-1]
    for extreme in (-1, 1, 127, 2**31 - 1, 2**62, -(2**63)):
        if array.dtype.kind == "f" or np.iinfo(array.dtype).min <= extreme <= np.iinfo(array.dtype).max:
            yield np.full_like(array, extreme)
            changed = array.copy()
            changed.flat[changed.size // 2] = extreme
            yield changed


def usable(whole):
    """Compute with everything that was read."""
    graph, X = whole.inputs.graph, whole.inputs.features
    scores = whole.fit.fitted.model.scores(whole.inputs)
    assert scores.shape[0] == whole.fit.fitted.scores.shape[0] == graph.num_nodes
    assert whole.targets.labels.shape == whole.fit.fitted.scores.shape
    assert whole.targets.known.shape == (len(whole.targets.weights), len(whole.targets.classes))
    assert math.isclose(whole.targets.weights.sum(), 1, abs_tol=1e-5)
    assert whole.fit.temperature is None or 0 < whole.fit.temperature < math.inf
    if X is not None:
        assert (X @ np.ones((X.shape[1], 2))).shape == (graph.num_nodes, 2)
        assert (X.T @ np.ones(graph.num_nodes)).shape == (X.shape[1],)
    if whole.validation is not None:
        assert whole.fit.fitted.scores[whole.validation.nodes].shape == whole.validation.labels.shape


@pytest.mark.parametrize("how", [{}, {"features": "dense float32", "directed": True}, {"features": "none"}])
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_no_wrong_array_gets_beyond_the_door(how):
    model = stored(**how)
    said = [
        refusal(with_array(model, key, wrong))
        for key, array in model.arrays.items()
        for wrong in wrong_arrays(array)
    ]
    refused = [text for text in said if text is not None]
    assert all(map(is_clear, refused))
    assert len(refused) > 0.5 * len(said)


WRONG_FACTS = [
    5,
    -1,
    0.5,
    True,
    "x",
    "\x1b",
    [],
    {},
    [1],
    {"tuple": 3},
    {"dict": [1]},
    {"bytes": "zz"},
    10**30,
]


def test_no_wrong_fact_gets_beyond_the_door():
    model = stored()
    paths = [(key,) for key in model.facts]
    paths += [(key, part) for key, fact in model.facts.items() if isinstance(fact, dict) for part in fact]
    said = [refusal(with_fact(model, wrong, *path)) for path in paths for wrong in [*WRONG_FACTS, None]]
    refused = [text for text in said if text is not None]
    assert all(map(is_clear, refused))
    assert len(refused) > 0.5 * len(said)


@given(st.data())
@settings(max_examples=60, deadline=None)
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_flipped_bytes_are_refused_or_harmless(data):
    model = STORED.setdefault("model", stored())
    key = data.draw(st.sampled_from(sorted(model.arrays)))
    array = model.arrays[key].copy()
    raw = array.reshape(-1).view(np.uint8)
    raw[data.draw(st.integers(0, len(raw) - 1))] ^= data.draw(st.integers(1, 255))
    refused = refusal(with_array(model, key, array))
    assert refused is None or is_clear(refused)


STORED: dict[str, Stored] = {}


@pytest.mark.parametrize(
    ("key", "change", "says"),
    [
        ("features.indices", lambda a: np.where(a == a.max(), 4, a), "table of its features"),
        ("features.indices", lambda a: np.zeros_like(a), "order of its features"),
        ("features.indptr", lambda a: np.roll(a, 1), "table of its features"),
        ("features.data", lambda a: a[:-1], "features.data"),
        ("graph.indices", lambda a: a + 5, "its graph is damaged"),
        ("targets.labelled", lambda a: a[::-1], "order of targets.labelled"),
        ("targets.labelled", lambda a: a + 9, "list targets.labelled"),
        ("targets.labels", lambda a: 2 * a, "table targets.labels"),
        ("targets.labels", lambda a: 0 * a, "table targets.labels"),
        ("targets.labels", lambda a: a[:, :-1], "targets.labels"),
        ("targets.weights", lambda a: 2 * a, "weight of its labels"),
        ("targets.weights", lambda a: a - a.mean() + 1 / 6 - 2 * np.eye(6)[0] + 2 * np.eye(6)[1], "weight"),
        ("validation.nodes", lambda a: a + 12, "list validation.nodes"),
        ("scores", lambda a: a[:, 1:], "scores"),
        ("model.slopes", lambda a: a[None], "no such slopes"),
        ("certificate.s", lambda a: None, "certificate.s"),
    ],
)
def test_what_is_damaged_is_named(tmp_path, key, change, says):
    model = stored()
    with pytest.raises(InputError, match=says):
        loaded_with(with_array(model, key, change(model.arrays[key])), tmp_path)


@pytest.mark.parametrize(
    ("path", "value", "says"),
    [
        (("temperature",), 0, "temperature"),
        (("temperature",), -1.0, "temperature"),
        (("temperature",), {"float": "inf"}, "temperature"),
        (("loo_accuracy",), 1.5, "loo_accuracy"),
        (("model", "name"), "deep", "deep"),
        (("classes", "names"), ["no", "no", "yes"], "not distinct"),
        (("classes", "names"), ["no", "yes"], "targets.labels"),
        (("classes", "names"), [], "list of its classes"),
        (("features", "columns"), 1, "table of its features"),
        (("features", "columns"), -1, "size of its features"),
        (("features", "sparse"), False, "features"),
        (("feature_names",), ["a", "b"], "number of its feature names"),
        (("feature_names",), ["a", "b", "c", 4], "list of its feature names"),
        (("notices",), [1], "notices"),
        (("chosen",), [], "chosen"),
    ],
)
def test_a_damaged_fact_is_named(tmp_path, path, value, says):
    with pytest.raises(InputError, match=says):
        loaded_with(with_fact(stored(), value, *path), tmp_path)


def test_a_design_that_is_not_known_is_refused(tmp_path):
    model = stored()
    model = dataclasses.replace(model, parameters=model.parameters | {"design": "deep"})
    with pytest.raises(InputError, match="its design is damaged"):
        loaded_with(model, tmp_path)


def test_what_cannot_be_stored_is_named_and_nothing_is_written(tmp_path):
    class Other(Toy):
        pass

    whole = parts()
    soft = dataclasses.replace(whole.targets, labels=whole.targets.labels / 2)
    other = dataclasses.replace(whole.fit.fitted, model=Other(np.ones(3), ()))
    for change, says in [
        ({"targets": soft}, "stored as 0 and 1"),
        ({"fit": NodeFit(other, 1.0, None)}, "a Other is not a kind of model"),
        ({"parameters": PARAMETERS | {"views": object()}}, "the parameter views"),
        (
            {"targets": dataclasses.replace(whole.targets, classes=np.array(["a", 1j, 2], object))},
            "class names",
        ),
    ]:
        with pytest.raises(FastgrlError, match=says):
            save_node_parts(dataclasses.replace(whole, **change), tmp_path / "model")
    assert list(tmp_path.iterdir()) == []


def test_another_kind_of_model_is_not_read_as_a_classifier(tmp_path):
    storage.save_model(Stored("other", {}, {}, {}, np.arange(3)), tmp_path / "model")
    with pytest.raises(InputError, match=f"holds a other, not a {KIND}"):
        node_parts_of(load_model(tmp_path / "model"), tmp_path / "model")


class TestLoad:
    def test_links_are_loaded_by_their_kind(self, tmp_path):
        graph = fg.Graph.from_edges([(0, 1), (1, 2), (2, 0), (2, 3)])
        links = fg.LinkPredictor(n_components=2, select=False, design="degree-walk").fit(graph)
        links.save(tmp_path / "model")
        found = models.load(tmp_path / "model")
        assert type(found) is fg.LinkPredictor
        assert (found.score_pairs([(0, 3)]) == links.score_pairs([(0, 3)])).all()
        with pytest.raises(InputError, match="holds a link predictor; use fastgrl score"):
            models.load_nodes(tmp_path / "model")

    @pytest.mark.parametrize("design", NODE_DESIGNS)
    def test_classifiers_are_loaded_by_their_kind(self, tmp_path, design):
        whole = parts()
        order = np.random.default_rng(1).permutation(12)
        ids, y = whole.inputs.graph.node_ids[order], np.array(list("abab" + 8 * " "), object)
        y[y == " "] = None
        edges = whole.inputs.graph.node_ids[whole.inputs.graph.edge_codes()]
        graph = fg.Graph.from_edges(edges, nodes=ids)
        X = whole.inputs.features[order]
        nodes = fg.NodeClassifier(design=design, select=False, class_weight={"a": 2.0, "b": 1.0})
        nodes.fit(graph, y, features=X)
        nodes.save(tmp_path / "model")
        found = models.load(tmp_path / "model")
        assert type(found) is fg.NodeClassifier
        assert found.get_params() == nodes.get_params()
        assert found.node_ids_.tolist() == ids.tolist()
        assert np.array_equal(found.predict_proba(), nodes.predict_proba())
        assert found.predict().tolist() == nodes.predict().tolist()
        assert (found.chosen_, found.notices_) == (nodes.chosen_, nodes.notices_)
        with pytest.raises(InputError, match="holds a node classifier; use fastgrl predict"):
            models.load_links(tmp_path / "model")

    def test_parameters_that_are_not_known_are_named(self, tmp_path):
        save_node_parts(parts(), tmp_path / "model")
        with pytest.raises(InputError, match="other parameters than are known here, such as 'balance'"):
            models.load(tmp_path / "model")

    def test_an_order_that_is_none_is_refused(self, tmp_path):
        parameters = fg.NodeClassifier().get_params()
        save_node_parts(parts(parameters=parameters), tmp_path / "model", position=np.zeros(12, int))
        with pytest.raises(InputError, match="its order of nodes is damaged; fit it again"):
            models.load(tmp_path / "model")

    def test_an_unknown_kind_is_named(self, tmp_path):
        storage.save_model(Stored("new\x1bkind", {}, {}, {}, np.arange(3)), tmp_path / "model")
        with pytest.raises(InputError, match=r"kind 'new\\x1bkind'; .* upgrade fastgrl"):
            models.load(tmp_path / "model")
        with pytest.raises(InputError, match="not a link-predictor"):
            models.load_links(tmp_path / "model")

    @pytest.mark.parametrize("verb", [["recommend", "model", "--node", "n1"], ["update", "model"]])
    def test_commands_on_links_say_what_a_classifier_is_for(self, tmp_path, monkeypatch, capsys, verb):
        monkeypatch.chdir(tmp_path)
        save_node_parts(parts(), "model")
        (tmp_path / "new.csv").write_text("a,b\n")
        verb = [*verb, "--edges", "new.csv"] if verb[0] == "update" else verb
        assert run(verb) == 2
        assert "holds a node classifier; use fastgrl predict" in capsys.readouterr().err
