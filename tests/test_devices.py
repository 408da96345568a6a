"""Models that work on a device of PyTorch give what they give with NumPy, and do their work there.

All of it runs on "cpu"; where PyTorch finds a CUDA device, the models are fitted on that as well.
"""

import functools
import sys

import libraries
import numpy as np
import pytest
from sklearn.base import clone

import fastgrl as fg
from fastgrl import filters, leaves, polynomials, ridge
from fastgrl.datasets.synthetic import block_model
from fastgrl.devices import applied, carried, current_place, working_on
from fastgrl.errors import ArgumentError, MissingExtraError
from fastgrl.metrics import roc_auc
from fastgrl.node_models import NODE_DESIGNS
from fastgrl.parallel import parallel_map, use_threads
from fastgrl.splits import split_edges
from fastgrl.walks import walk

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
pytestmark = pytest.mark.frameworks
LINK_DESIGNS = ["walk", "degree-walk", "as-released", "log-diffusion", "shrunken"]
DEVICES = ["cpu", *(["cuda"] if torch.cuda.is_available() else [])]
every_link_design = pytest.mark.parametrize("design", LINK_DESIGNS)
every_node_design = pytest.mark.parametrize("design", NODE_DESIGNS)
every_device = pytest.mark.parametrize("device", DEVICES)


@pytest.fixture(autouse=True)
def _calm():
    with libraries.opened("torch"):
        yield


@functools.cache
def held_out():
    return split_edges(fg.load_dataset("digits").graph, seed=1)


@functools.cache
def communities():
    return block_model(600, num_classes=3, num_features=700, train_per_class=20, seed=2)


def linked(design, **how):
    how = {"design": design, "select": False, "n_components": 16, **how}
    return fg.LinkPredictor(**how).fit(held_out().train)


def scored(links):
    split, ids = held_out(), held_out().train.node_ids
    return [links.score_pairs(ids[pairs]) for pairs in (split.held_out, split.negatives)]


def classified(design, *, features=True, validated=False, **how):
    data = communities()
    y = np.full(data.graph.num_nodes, -1)
    y[data.train] = data.y[data.train]
    known = (data.graph.node_ids[data.validation], data.y[data.validation]) if validated else None
    model = fg.NodeClassifier(**{"design": design, "select": validated, **how})
    return model.fit(data.graph, y, features=data.X if features else None, validation=known)


class Sparse(torch.utils._python_dispatch.TorchDispatchMode):
    """Counts the operations of PyTorch that take a sparse matrix, on this thread."""

    def __init__(self):
        super().__init__()
        self.products = 0

    def __torch_dispatch__(self, function, types, arguments=(), named=None):
        sparse = any(isinstance(a, torch.Tensor) and a.layout == torch.sparse_csr for a in arguments)
        self.products += sparse and "mm" in function.__name__
        return function(*arguments, **(named or {}))


def forbidden(*_, **__):
    raise AssertionError("this is done on the device")


# ---- link prediction


@every_device
@every_link_design
def test_a_link_predictor_on_a_device_scores_as_it_does_with_numpy(design, device):
    here, there = linked(design), linked(design, device=device)
    a, b = scored(here), scored(there)
    assert roc_auc(*a) == pytest.approx(roc_auc(*b), rel=1e-4)
    one, other = np.concatenate(a), np.concatenate(b)
    assert np.linalg.norm(one - other) < 1e-3 * np.linalg.norm(one)
    assert there.left_.dtype == here.left_.dtype
    np.testing.assert_allclose(there.singular_values_, here.singular_values_, rtol=1e-4)


@pytest.mark.parametrize("design", ["walk", "shrunken", "log-diffusion"])
def test_settings_are_chosen_on_a_device_as_with_numpy(design):
    here, there = linked(design, select=True), linked(design, select=True, device="cpu")
    assert there.chosen_ == here.chosen_


@every_link_design
def test_the_products_of_a_link_predictor_are_pytorchs(design, monkeypatch):
    monkeypatch.setattr(polynomials, "pass_over", forbidden)
    if design != "shrunken":  # whose eigenpairs are made of singular vectors on the host
        monkeypatch.setattr(leaves.kernels, "multiply", forbidden)
    with Sparse() as sparse:
        linked(design, device="cpu", n_components=8)
    assert sparse.products >= 10


def test_new_edges_are_taken_in_on_the_device():
    split = held_out()
    ids = split.train.node_ids
    models = [linked("walk", device=device) for device in (None, "cpu")]
    for model in models:
        with Sparse() as sparse:
            model.partial_fit(ids[split.held_out[:50]])
        assert (sparse.products > 0) == (model.device is not None)
    a, b = (np.concatenate(scored(model)) for model in models)
    assert np.linalg.norm(a - b) < 1e-3 * np.linalg.norm(a)


# ---- node classification


@every_device
@every_node_design
@pytest.mark.parametrize("features", [True, False])
def test_a_classifier_on_a_device_predicts_as_it_does_with_numpy(design, features, device):
    here, there = (classified(design, features=features, device=d) for d in (None, device))
    assert (here.predict() == there.predict()).mean() >= 0.995
    assert there.decision_function().dtype == here.decision_function().dtype
    assert there.loo_accuracy_ == pytest.approx(here.loo_accuracy_, abs=0.02)


@every_node_design
def test_a_classifier_chooses_settings_on_a_device_as_with_numpy(design):
    few = {} if design == "co-ridge" else {"window": 1, "negative": 1.0}
    here, there = (classified(design, validated=True, device=d, **few) for d in (None, "cpu"))
    assert there.chosen_ == here.chosen_
    assert (here.predict() == there.predict()).mean() >= 0.995


@pytest.mark.parametrize("views", [None, "l"])
def test_filters_ridges_and_projections_are_pytorchs_on_every_thread(views, monkeypatch):
    monkeypatch.setattr(filters, "smooth_columns", forbidden)
    monkeypatch.setattr(ridge, "map_chunks", forbidden)
    with Sparse() as sparse:
        classified("co-ridge", device="cpu", n_jobs=2, views=views)
    assert sparse.products > 0


@pytest.mark.parametrize("design", ["jkn", "jkn-text", "jkn-as-released"])
def test_every_hop_of_the_papers_designs_is_a_product_of_pytorchs(design):
    counts = []
    for hops in (2, 5):
        with Sparse() as sparse:
            classified(design, device="cpu", hops=hops)
        counts.append(sparse.products)
    # Three hops more, at least in the rows that are factorised and in the scores.
    assert counts[1] - counts[0] >= 6


def test_many_labels_are_factorised_by_products_on_the_device():
    data = block_model(1500, num_classes=3, num_features=40, train_per_class=400, validation_per_class=20)
    y = np.full(data.graph.num_nodes, -1)
    y[data.train] = data.y[data.train]
    known = data.graph.node_ids[data.validation], data.y[data.validation]
    made = [
        fg.NodeClassifier(design="jkn", window=1, negative=1.0, hops=3, device=device).fit(
            data.graph, y, features=data.X, validation=known
        )
        for device in (None, "cpu")
    ]
    assert (made[0].predict() == made[1].predict()).mean() >= 0.995
    assert made[0].chosen_ == made[1].chosen_


def test_relabelling_and_new_nodes_follow_a_fit_on_a_device():
    here, there = (classified("co-ridge", device=device) for device in (None, "cpu"))
    node, ids = int(communities().train[0]), communities().graph.node_ids
    changes = {ids[node]: (here.predict([ids[node]])[0] + 1) % 3}
    assert (here.relabel(changes).predict() == there.relabel(changes).predict()).mean() >= 0.995
    row = communities().X[[node]].toarray()[0]
    new = [("new", ids[node]), ("new", ids[node + 1])]
    fresh = [model.predict(edges=new, features={"new": row}) for model in (here, there)]
    assert fresh[0] == fresh[1]


@every_device
def test_features_for_pipelines_are_made_on_the_device(device):
    data = communities()
    here, there = (fg.NodeFeatures(data.graph, features=data.X, device=d).fit() for d in (None, device))
    np.testing.assert_allclose(np.abs(there.embedding_), np.abs(here.embedding_), atol=1e-3)


# ---- the device


@pytest.mark.parametrize("make", [fg.LinkPredictor, fg.NodeClassifier, fg.NodeFeatures])
@pytest.mark.parametrize("device", [None, "cpu", torch.device("cpu"), "cuda:1"])
def test_a_device_is_kept_as_it_was_given_and_cloned(make, device):
    model = make(device=device)
    assert model.device is device
    assert clone(model).device == device


@pytest.mark.parametrize("device", ["cdua", "", "cpu:zero", 3, 2.5, ["cpu"]])
def test_an_unknown_device_is_refused_in_one_line_that_names_it(device):
    with pytest.raises(ArgumentError, match="device") as caught:
        linked("walk", device=device)
    assert "\n" not in str(caught.value)
    assert str(device) in str(caught.value)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")
def test_a_device_that_is_not_here_is_refused_in_one_line():
    for fit in (functools.partial(linked, "walk"), functools.partial(classified, "co-ridge")):
        with pytest.raises(ArgumentError, match=r"device 'cuda' cannot be used here") as caught:
            fit(device="cuda")
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize("device", ["hpu", "privateuseone"])
def test_a_device_whose_module_is_missing_is_refused_in_one_line(device):
    with pytest.raises(ArgumentError, match=f"device '{device}' cannot be used here") as caught:
        linked("walk", device=device)
    assert "\n" not in str(caught.value)


def test_a_device_without_numbers_is_refused():
    with pytest.raises(ArgumentError, match="no numbers"):
        linked("walk", device="meta")


def test_without_pytorch_a_device_is_refused_in_one_line_and_none_is_not(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    for fit in (functools.partial(linked, "walk"), functools.partial(classified, "co-ridge")):
        with pytest.raises(
            MissingExtraError, match=r"^device= needs PyTorch: pip install 'fastgrl\[torch\]'$"
        ):
            fit(device="cpu")
    assert linked("walk").left_.shape[1] == 16


def test_a_limit_on_memory_beside_a_device_is_refused():
    for fit in (functools.partial(linked, "walk"), functools.partial(classified, "co-ridge")):
        with pytest.raises(ArgumentError, match="max_memory"):
            fit(device="cpu", max_memory=1 << 40)


@pytest.mark.parametrize("device", ["cpu", torch.device("cpu")])
def test_a_saved_model_forgets_the_device_and_loads_without_pytorch(device, tmp_path, monkeypatch):
    links, nodes = linked("walk", device=device), classified("co-ridge", device=device)
    links.save(tmp_path / "links")
    nodes.save(tmp_path / "nodes")
    monkeypatch.setitem(sys.modules, "torch", None)
    for model, name in ((links, "links"), (nodes, "nodes")):
        assert fg.load(tmp_path / name).device is None
        assert type(fg.load(tmp_path / name)) is type(model)
    np.testing.assert_array_equal(fg.load(tmp_path / "nodes").predict(), nodes.predict())
    for one, other in zip(scored(fg.load(tmp_path / "links")), scored(links), strict=True):
        np.testing.assert_array_equal(one, other)
    ids = communities().graph.node_ids
    row = communities().X[[0]].toarray()[0]
    assert len(fg.load(tmp_path / "nodes").predict(edges=[("new", ids[0])], features={"new": row})) == 1


def failing():
    with working_on("cpu"):
        assert current_place() is not None
        raise ZeroDivisionError


def test_numpy_is_where_work_is_done_before_within_none_and_after_an_error():
    assert current_place() is None
    with working_on(None):
        assert current_place() is None
    with pytest.raises(ZeroDivisionError):
        failing()
    assert current_place() is None


def test_threads_work_where_their_caller_does():
    with working_on("cpu"), use_threads(3):
        places = parallel_map(carried(lambda _: current_place()), range(20))
        assert set(places) == {current_place()}
    assert parallel_map(carried(lambda _: current_place()), range(4)) == [None] * 4


def test_an_svd_comes_back_as_arrays_and_begins_from_one():
    M = walk(held_out().train)
    here = fg.fsvd(M, 5)
    with working_on("cpu"):
        there = fg.fsvd(M, 5)
        again = fg.fsvd(M, 5, start=there, n_iter=0)
        other = fg.fsvd(M, 5, start=np.ones((M.shape[1], 2)), tol=1e-3)
    for svd in (there, again, other):
        assert all(isinstance(part, np.ndarray) and part.dtype == np.float32 for part in svd)
    np.testing.assert_allclose(there.s, here.s, rtol=1e-5)
    np.testing.assert_allclose(np.abs(there.U), np.abs(here.U), atol=1e-4)


def test_tensors_stay_tensors_while_a_model_works_elsewhere():
    with working_on("cpu"):
        U, s, Vt = fg.fsvd(torch.diag(torch.tensor([3.0, 2.0, 1.0])), 2)
    assert all(isinstance(part, torch.Tensor) for part in (U, s, Vt))


def test_what_is_kept_there_goes_when_the_array_goes_and_when_work_is_done():
    with working_on("cpu"):
        place, array = current_place(), np.ones((3, 2))
        assert place.kept(array) is place.kept(array)
        del array
        assert not place._kept
        array = np.ones((3, 2))
        place.kept(array)
    assert not place._kept


def test_a_product_is_applied_where_work_is_done():
    M, X = fg.transition(held_out().train), np.random.default_rng(0).standard_normal((1797, 3))
    with working_on("cpu"), Sparse() as sparse:
        found = applied(M, X)
    assert sparse.products == 1
    np.testing.assert_allclose(found, M @ X, atol=1e-12)
