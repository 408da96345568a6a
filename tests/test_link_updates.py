"""New nodes by `transform`, new edges by `partial_fit`: near a refit, for less."""

import functools

import numpy as np
import pytest
from test_link_prediction import pairs_of, small

import fastgrl as fg
from fastgrl.errors import ArgumentError, FastgrlError
from fastgrl.evaluation import whole_graph
from fastgrl.growth import grow
from fastgrl.link_fits import DESIGNS
from fastgrl.metrics import roc_auc

FEW = {"n_components": 8, "select": False}


@functools.cache
def fitted(design, **how):
    return fg.LinkPredictor(design=design, **FEW, **how).fit(small())


def held_out_nodes(graph, *, share=0.05, seed=0):
    """A graph without some of its nodes, half of the edges of these, and the other half to be predicted."""
    rng = np.random.default_rng(seed)
    new = np.zeros(graph.num_nodes, bool)
    new[rng.choice(np.flatnonzero(graph.degrees >= 4), int(share * graph.num_nodes), replace=False)] = True
    codes = graph.edge_codes().astype(np.int64)
    ends = new[codes].sum(1)
    touching = codes[ends == 1]
    touching = np.where(new[touching[:, :1]], touching, touching[:, ::-1])
    known = rng.random(len(touching)) < 0.5
    others = np.column_stack([touching[:, 0], rng.permutation(np.flatnonzero(~new))[: len(touching)]])
    others = others[~graph.has_edges(*others.T)]
    # Ids as they were; nodes that lost all their edges stay.
    old = graph.node_ids[~new]
    train = fg.Graph.from_edges(graph.node_ids[codes[ends == 0]], nodes=old)
    return train, touching[known], touching[~known], others


@pytest.mark.parametrize("design", DESIGNS)
def test_a_new_node_is_placed_by_its_links(design):
    links = fitted(design)
    new = links.transform([("new", "n0"), ("n4", "new"), ("new", "n8"), ("other", "n1")])
    assert new.node_ids.tolist() == ["new", "other"]
    assert new.left.shape == new.right.shape == (2, 8)
    assert ((new.trust >= 0) & (new.trust <= 1)).all()
    mine, strange = new.score_pairs([("new", "n12"), ("new", "n13")])  # n0, n4, n8, n12 are of one community
    assert mine > strange
    found = new.recommend(k=5)
    assert found.nodes.tolist() == ["new"] * 5 + ["other"] * 5
    assert not set(found.targets[:5]) & {"n0", "n4", "n8", "new"}


@pytest.mark.parametrize("design", DESIGNS)
def test_transform_leaves_the_model_alone(design):
    links = fitted(design)
    before = links.score_pairs(pairs_of(small())).tobytes()
    new = links.transform([("new", "n0")])
    assert links.score_pairs(pairs_of(small())).tobytes() == before
    np.testing.assert_allclose(
        new.score_pairs(pairs_of(small())), links.score_pairs(pairs_of(small())), rtol=1e-6
    )


def test_a_copy_of_a_node_gets_nearly_its_vector():
    links = fg.LinkPredictor(select=False).fit(fg.load_dataset("digits").graph)
    graph = links.graph_
    node = 7
    neighbours = graph.indices[graph.indptr[node] : graph.indptr[node + 1]]
    new = links.transform([(10_000, int(v)) for v in neighbours])
    cosine = new.left[0, :-2] @ links.left_[node, :-2]
    assert cosine > 0.9
    assert new.trust[0] > 0.2


def test_new_nodes_of_a_directed_graph_have_both_sides():
    rng = np.random.default_rng(0)
    edges = rng.integers(0, 60, (600, 2))
    links = fg.LinkPredictor(**FEW).fit(fg.Graph.from_codes(*edges.T, num_nodes=60, directed=True))
    new = links.transform([(100, 3), (5, 100), (100, 9), (200, 4)])
    forth, back = new.score_pairs([(100, 20), (20, 100)])
    assert np.isfinite([forth, back]).all()
    assert forth != back


@pytest.mark.parametrize(
    ("edges", "words"),
    [
        ([("n0", "n1")], "two nodes the model knows"),
        ([("new", "other")], "two new nodes"),
        ([("new", "n1", 2.0)], "unweighted"),
    ],
)
def test_edges_that_transform_cannot_use_are_named(edges, words):
    with pytest.raises(ArgumentError, match=words):
        fitted("log-diffusion").transform(edges)


def test_links_of_new_nodes_are_predicted_nearly_as_well_as_by_a_refit():
    graph = whole_graph(fg.load_dataset("ca-HepTh"))
    train, given, wanted, others = held_out_nodes(graph)
    ids = graph.node_ids
    links = fg.LinkPredictor(select=False).fit(train)
    new = links.transform(ids[given])
    seen = np.isin(wanted[:, 0], given[:, 0])
    wanted, others = wanted[seen], others[np.isin(others[:, 0], given[:, 0])]
    folded = roc_auc(new.score_pairs(ids[wanted]), new.score_pairs(ids[others]))
    again = fg.LinkPredictor(select=False).fit(grow(train, ids[given]).graph)
    refitted = roc_auc(again.score_pairs(ids[wanted]), again.score_pairs(ids[others]))
    assert folded >= 0.95 * refitted
    assert folded > 0.8


@pytest.mark.parametrize("design", DESIGNS)
def test_an_update_is_near_a_refit(design):
    graph = small()
    codes = graph.edge_codes()
    late = np.random.default_rng(0).permutation(len(codes)) < 15
    links = fg.LinkPredictor(design=design, **FEW).fit(graph.with_edges(codes[~late]))
    links.partial_fit(graph.node_ids[codes[late]])
    refit = fg.LinkPredictor(design=design, **FEW).fit(graph)
    assert links.graph_.num_edges == graph.num_edges
    assert links.update_["captured_after"] >= 0.98 * links.update_["captured_before"]
    assert abs(links.update_["captured_after"] - links.certificate_.captured) < 0.05
    assert links.update_["product_columns"] > 0
    one, two = (m.score_pairs(pairs_of(graph, 1000)) for m in (links, refit))
    assert np.corrcoef(one, two)[0, 1] > 0.95


def test_an_update_takes_new_nodes_in():
    links = fg.LinkPredictor(**FEW).fit(small())
    links.partial_fit([("new", "n0"), ("new", "n4"), ("new", "newer")])
    assert links.node_ids_.tolist()[-2:] == ["new", "newer"]
    assert links.left_.shape == (122, 8)
    assert len(links.recommend(["newer"], k=3)) == 3
    assert links.update_["new_nodes"] == 2
    assert links.update_["new_edges"] == 3


def test_pushing_only_the_rows_that_reach_a_change_is_enough():
    graph = fg.load_dataset("digits").graph
    codes = graph.edge_codes()
    links = fg.LinkPredictor(**FEW).fit(graph.with_edges(codes[:-3]))
    links.partial_fit(codes[-3:])
    assert 0 < links.update_["rows_pushed"] < graph.num_nodes
    whole = fg.LinkPredictor(**FEW).fit(graph)
    one, two = (m._run.fit.model.space.diffusion.left.as_scipy for m in (links, whole))
    assert abs(one - two).max() < 5e-3  # a residual near its threshold may go either way


def test_an_update_can_be_saved_and_goes_on(tmp_path):
    links = fg.LinkPredictor(**FEW).fit(small())
    links.partial_fit([("new", "n0")])
    links.save(tmp_path / "model")
    other = fg.load(tmp_path / "model").partial_fit([("newer", "new")])
    links.partial_fit([("newer", "new")])
    pairs = [("newer", "n0"), ("n3", "n7")]
    assert (other.score_pairs(pairs) == links.score_pairs(pairs)).all()


def test_partial_fit_of_nothing_fitted_is_a_fit():
    edges = small().node_ids[small().edge_codes()]
    one = fg.LinkPredictor(**FEW).partial_fit(edges)
    assert (
        one.score_pairs(pairs_of(small())) == fitted("log-diffusion").score_pairs(pairs_of(small()))
    ).all()


def test_an_edge_that_is_known_changes_nothing():
    grown = grow(small(), [("n0", "n0"), *small().node_ids[small().edge_codes()[:2]]])
    assert grown.graph.num_edges == small().num_edges + 1
    assert len(grown.new_ids) == 0


def test_a_small_model_grows_to_its_full_rank():
    links = fg.LinkPredictor(n_components=16, select=False).fit(
        fg.Graph.from_edges([("n0", "n4"), ("n4", "n8")])
    )
    assert len(links.singular_values_) == 3
    links.partial_fit(small().node_ids[small().edge_codes()])
    assert len(links.singular_values_) == 14
    assert links.update_["refit_product_columns"] == 2 * 11 * 8
    fresh = fg.LinkPredictor(n_components=16, select=False).fit(small())
    assert links.update_["captured_after"] > 0.8 * fresh.certificate_.captured
    assert any("fit again" in line for line in links.notices_)


def test_new_ids_of_any_size_and_bad_weights_are_told():
    ids = fg.LinkPredictor(**FEW).fit(small().with_edges(small().edge_codes()))
    ids.partial_fit([(2**70, "n0")])
    assert 2**70 in ids.node_ids_.tolist()
    weighted = fg.LinkPredictor(**FEW).fit(
        small().with_edges(small().edge_codes(), weights=np.ones(small().num_edges))
    )
    for weights, words in (
        ([1.0], "1 weights for 2"),
        ([1.0, np.nan], r"at \[1\]"),
        ([1.0, -2], "new edge 2"),
    ):
        with pytest.raises(FastgrlError, match=words):
            weighted.partial_fit([("n0", "x"), ("n1", "x")], weights=weights)


def test_new_nodes_are_shown_in_a_line():
    assert repr(fitted("log-diffusion").transform([("new", "n0")])).startswith(
        "<NewNodes: 1 beside 120 known"
    )


def test_weights_go_with_weighted_graphs():
    weighted = small().with_edges(small().edge_codes(), weights=np.ones(small().num_edges))
    links = fg.LinkPredictor(**FEW).fit(weighted)
    links.partial_fit([("n0", "new", 3.0)])
    assert links.graph_.weights.max() == 3.0
    with pytest.raises(FastgrlError, match="weight"):
        links.partial_fit([("n0", "new", -1.0)])
