"""Fewer entries per row of a diffusion: what a fit within a memory limit keeps, and goes on keeping."""

import copy
import functools

import numpy as np
import pytest
import scipy.sparse as sp

import fastgrl as fg
from fastgrl import link_storage
from fastgrl.diffusion_links import QUICK_KEEP, QUICK_ROUNDS
from fastgrl.errors import InputError
from fastgrl.link_fits import fit_links
from fastgrl.link_models import Settings, dot_products
from fastgrl.link_storage import Parts
from fastgrl.metrics import roc_auc
from fastgrl.parallel import use_threads
from fastgrl.push import KEEP
from fastgrl.splits import split_edges

FEW = 20


def graph():
    return fg.load_dataset("digits").graph


@functools.cache
def fitted(keep=FEW):
    return fit_links(graph(), Settings("log-diffusion", 8, select=False, keep=keep))


def longest(rows):
    return int(np.diff(rows.indptr).max())


def stored(fit):
    parts = Parts(fg.LinkPredictor().get_params(), graph(), None, fit, None)
    return copy.deepcopy(link_storage._stored(parts))


def test_rows_have_at_most_the_kept_entries_and_a_notice_says_so():
    fit = fitted()
    assert longest(fit.model.space.diffusion.left) == FEW
    assert fit.chosen["keep"] == FEW
    assert any("max_memory" in notice and f"{FEW} entries" in notice for notice in fit.notices)


def test_the_usual_number_of_entries_is_no_news():
    fit = fitted(keep=None)
    assert fit.model.keep == KEEP
    assert "keep" not in fit.chosen
    assert not any("max_memory" in notice for notice in fit.notices)


def test_new_nodes_and_late_edges_keep_as_many():
    model = fitted().model
    known = graph()
    edges = sp.csr_array((np.ones(3), ([0, 0, 0], [1, 500, 900])), shape=(1, known.num_nodes))
    grown, _ = model.fold_in(known, edges, edges)
    assert grown.keep == FEW
    assert longest(grown.space.diffusion.left) == FEW
    changed = known.with_edges(np.concatenate([known.edge_codes(), [[0, 1000]]]))
    again = model.regrown(changed, np.array([0, 1000])).model(model.space.svd)
    whole = fit_links(changed, Settings("log-diffusion", 8, select=False, keep=FEW)).model
    one, other = (m.space.diffusion.left for m in (again, whole))
    assert again.keep == FEW
    assert longest(one) == FEW
    assert np.array_equal(one.indptr, other.indptr)


def test_a_saved_model_remembers_what_it_keeps():
    assert link_storage.parts_of(stored(fitted()), "model").fit.model.keep == FEW


def test_a_model_saved_without_the_number_kept_the_usual_one():
    earlier = stored(fitted(keep=None))
    del earlier.facts["model"]["keep"]
    assert link_storage.parts_of(earlier, "model").fit.model.keep == KEEP


@pytest.mark.parametrize("value", [0, -3, "many", None])
def test_a_damaged_number_is_named(value):
    damaged = stored(fitted())
    damaged.facts["model"]["keep"] = value
    with pytest.raises(InputError, match="keep"):
        link_storage.parts_of(damaged, "model")


def quick_fit(known):
    return fit_links(known, Settings("log-diffusion", 64, select=False, quick=True))


def test_a_quick_fit_holds_nothing_out_and_says_nothing_about_it():
    fit = quick_fit(graph())
    assert not fit.validation
    assert not fit.notices
    assert fit.model.keep == QUICK_KEEP
    assert fit.model.fit_columns == 2 * (QUICK_ROUNDS + 1) * 16
    assert np.isfinite(fit.model.left).all()
    again = link_storage.parts_of(stored(fit), "model").fit.model
    assert (again.keep, again.rounds) == (QUICK_KEEP, QUICK_ROUNDS)


def test_a_quick_fit_is_the_same_on_any_number_of_threads():
    found = []
    for threads in (1, 2, 3):
        with use_threads(threads):
            model = quick_fit(graph()).model
            found.append(model.left.tobytes() + model.right.tobytes())
    assert found[0] == found[1] == found[2]


@pytest.mark.slow
@pytest.mark.parametrize(("name", "least"), [("ca-HepTh", 0.92), ("ppi", 0.90), ("soc-facebook", 0.975)])
def test_a_quick_dot_product_finds_held_out_edges(name, least):
    split = split_edges(fg.load_dataset(name).graph, fraction=0.2, keep_forest=True, seed=7)
    model = quick_fit(split.train).model
    links, others = (dot_products(model.left, model.right, p) for p in (split.held_out, split.negatives))
    assert roc_auc(links, others) > least


@pytest.mark.slow
@pytest.mark.parametrize("name", ["ca-HepTh", "ppi"])
def test_a_quarter_of_the_entries_cost_less_than_half_a_point(name):
    split = split_edges(fg.load_dataset(name).graph, fraction=0.2, keep_forest=True, seed=7)
    areas = []
    for keep in (KEEP, KEEP // 4):
        model = fit_links(split.train, Settings("log-diffusion", 64, select=False, keep=keep)).model
        areas.append(roc_auc(model.score(split.held_out), model.score(split.negatives)))
    assert areas[1] > areas[0] - 0.005


def test_quick_vectors_are_those_of_a_fit_that_holds_nothing_out():
    graph = fg.load_dataset("digits").graph
    vectors = fg.embed(graph, 16, quick=True)
    assert vectors.shape == (graph.num_nodes, 16)
    assert (vectors == fg.embed(graph, 16, quick=True, n_threads=1)).all()
    assert not np.array_equal(vectors, fg.embed(graph, 16))


@pytest.mark.parametrize("asked", [{"design": "degree-walk"}, {"select": True}])
def test_quick_is_refused_where_it_means_nothing(asked):
    graph = fg.Graph.from_edges([(0, 1), (1, 2), (2, 0)])
    with pytest.raises(fg.FastgrlError, match="without selection"):
        fg.embed(graph, 2, quick=True, **asked)
    with pytest.raises(fg.FastgrlError, match="True or False"):
        fg.embed(graph, 2, quick="yes")
