"""LinkPredictor: laws of every design, the estimator's manners, and the figures on real data."""

import functools
import subprocess
import sys

import hypothesis.strategies as st
import networkx
import numpy as np
import pytest
from hypothesis import given, settings
from scipy.sparse.csgraph import connected_components
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.utils import estimator_checks

import fastgrl as fg
from fastgrl.bipartite import sample_across, two_sides
from fastgrl.errors import ArgumentError, FastgrlError, UnavailableError, UnknownIdError
from fastgrl.inputs import as_graph
from fastgrl.link_fits import DESIGNS
from fastgrl.link_models import dot_products
from fastgrl.metrics import roc_auc
from fastgrl.splits import split_edges

FEW = {"n_components": 8, "select": False}
few_examples = settings(max_examples=15, deadline=None)


@functools.cache
def digits():
    return fg.load_dataset("digits").graph


@functools.cache
def small():
    """A graph of 120 nodes with text ids and clear communities."""
    rng = np.random.default_rng(0)
    group = np.arange(120) % 4
    chance = np.where(group[:, None] == group, 0.25, 0.01)
    u, v = np.nonzero(np.triu(rng.random((120, 120)) < chance, 1))
    return fg.Graph.from_codes(u, v, node_ids=[f"n{i}" for i in range(120)])


def pairs_of(graph, count=200, seed=0):
    rng = np.random.default_rng(seed)
    return graph.node_ids[rng.integers(0, graph.num_nodes, (count, 2))]


def shuffled(graph, seed=1):
    rng = np.random.default_rng(seed)
    rows = graph.node_ids[graph.edge_codes()][rng.permutation(graph.num_edges)]
    flipped = rng.random(len(rows)) < 0.5
    rows[flipped] = rows[flipped][:, ::-1]
    return fg.Graph.from_edges(rows)


@pytest.mark.parametrize("design", DESIGNS)
@pytest.mark.parametrize("select", [False, True])
def test_shuffling_the_edge_file_changes_not_a_bit(design, select):
    graph, other = small(), shuffled(small())
    assert (graph.node_ids != other.node_ids).any()
    one, two = (fg.LinkPredictor(design=design, n_components=8, select=select).fit(g) for g in (graph, other))
    pairs = pairs_of(graph)
    assert one.score_pairs(pairs).tobytes() == two.score_pairs(pairs).tobytes()
    place = graph.index_of(other.node_ids)
    assert (two.embedding_ == one.embedding_[place]).all()
    assert two.recommend(["n3"], k=5).targets.tolist() == one.recommend(["n3"], k=5).targets.tolist()


@pytest.mark.parametrize("design", DESIGNS)
def test_the_same_seed_gives_the_same_bits_for_any_number_of_threads(design):
    found = [
        fg.LinkPredictor(design=design, n_jobs=jobs, **FEW)
        .fit(small())
        .score_pairs(pairs_of(small()))
        .tobytes()
        for jobs in (1, 2, 3)
    ]
    assert len(set(found)) == 1


@pytest.mark.parametrize("design", DESIGNS)
def test_rows_of_the_embedding_belong_to_the_callers_nodes(design):
    graph = shuffled(small())
    links = fg.LinkPredictor(design=design, **FEW).fit(graph)
    assert links.node_ids_.tolist() == graph.node_ids.tolist()
    assert links.graph_.node_ids.tolist() == graph.node_ids.tolist()
    assert (links.graph_.edge_codes() == graph.edge_codes()).all()
    assert links.left_.shape == links.right_.shape == links.embedding_.shape == (120, 8)
    if design != "log-diffusion":
        codes = np.random.default_rng(0).integers(0, 120, (50, 2))
        wanted = dot_products(links.left_, links.right_, codes)
        assert (links.score_pairs(graph.node_ids[codes]) == wanted).all()


def test_unit_vectors_and_two_degree_columns_make_the_plain_dot_product():
    links = fg.LinkPredictor(n_components=16, select=False).fit(digits())
    assert_unit(links.left_[:, :-2])
    assert_unit(links.right_[:, :-2])
    assert (links.left_[:, -1] == 1).all()
    assert (links.right_[:, -2] == 1).all()
    fitted = links.left_[:, -2] + links.right_[:, -1]
    assert np.corrcoef(fitted, np.log(digits().degrees))[0, 1] != 0
    np.testing.assert_allclose(links.left_[:, -2], links.right_[:, -1], rtol=1e-4)  # undirected


@pytest.mark.parametrize("count", [1, 2, 3])
def test_fewer_than_four_columns_have_no_degrees(count):
    links = fg.LinkPredictor(n_components=count, select=False).fit(digits())
    assert links.left_.shape == (1797, count)
    assert_unit(links.left_)


def assert_unit(vectors):
    """Of length 1, but for nodes in components too small to be among the leading vectors: those are 0."""
    lengths = np.linalg.norm(vectors, axis=1)
    _, label = connected_components(digits().to_scipy())
    large = np.bincount(label)[label] > 100
    np.testing.assert_allclose(lengths[large], 1, atol=1e-5)
    assert large.mean() > 0.95
    assert (lengths <= 1 + 1e-5).all()


@few_examples
@given(st.randoms(use_true_random=False), st.sampled_from(["walk", "degree-walk"]))
def test_relabelling_permutes_the_scores_of_a_walk(random, design):
    graph = small()
    names = [f"x{i}" for i in range(120)]
    random.shuffle(names)
    renamed = fg.Graph.from_codes(*graph.edge_codes().T, node_ids=names)
    one, two = (
        fg.LinkPredictor(design=design, n_components=4, select=False).fit(g) for g in (graph, renamed)
    )
    if one.certificate_.gap < 1e-2 * one.singular_values_[0]:
        return
    codes = random_codes(random, 120)
    scores = one.score_pairs(graph.node_ids[codes])
    scale = np.abs(scores).max()
    np.testing.assert_allclose(two.score_pairs(renamed.node_ids[codes]) / scale, scores / scale, atol=1e-3)


def random_codes(random, n):
    return np.array([[random.randrange(n), random.randrange(n)] for _ in range(50)])


@pytest.mark.parametrize("negative", [0.0])
def test_a_second_copy_doubles_every_value_and_leaves_the_scores_alone(negative):
    graph = small()
    codes = graph.edge_codes()
    twice = fg.Graph.from_codes(*np.concatenate([codes, codes + 120]).T, num_nodes=241)
    how = {"design": "walk", "window": 3, "negative": negative, "select": False}
    one = fg.LinkPredictor(n_components=4, **how).fit(graph.with_edges(codes))
    two = fg.LinkPredictor(n_components=8, **how).fit(twice)
    np.testing.assert_allclose(two.singular_values_, np.repeat(one.singular_values_, 2), rtol=1e-4)
    pairs = np.random.default_rng(0).integers(0, 120, (100, 2))
    scores = one.score_pairs(graph.node_ids[pairs])
    for offset in (0, 120):
        np.testing.assert_allclose(two.score_pairs(pairs + offset), scores, atol=1e-4 * np.abs(scores).max())
    assert np.abs(two.score_pairs([(0, 130), (0, 240)])).max() < 1e-4 * np.abs(scores).max()


@few_examples
@given(st.integers(-60, 60))
def test_the_unit_of_weights_does_not_change_log_diffusion(exponent):
    graph = small()
    weights = np.random.default_rng(2).random(graph.num_edges) + 0.1
    one, two = (
        fg.LinkPredictor(**FEW).fit(graph.with_edges(graph.edge_codes(), weights=weights * scale))
        for scale in (1.0, 2.0**exponent)
    )
    assert (one.score_pairs(pairs_of(graph)) == two.score_pairs(pairs_of(graph))).all()


@few_examples
@given(st.floats(-300, 300), st.sampled_from(DESIGNS))
def test_finite_in_finite_out_or_a_named_refusal(exponent, design):
    graph = small()
    weights = np.ones(graph.num_edges)
    weights[::7] = 10.0**exponent
    links = fg.LinkPredictor(design=design, **FEW)
    try:
        links.fit(graph.with_edges(graph.edge_codes(), weights=weights))
    except FastgrlError as error:
        refusal = str(error)
    else:
        refusal = None
    if refusal is not None:
        assert "weight" in refusal
        return
    assert np.isfinite(links.score_pairs(pairs_of(graph))).all()
    assert np.isfinite(links.embedding_).all()


SHAPES = {
    "one edge": [(0, 1)],
    "triangle": [(0, 1), (1, 2), (2, 0)],
    "path": [(i, i + 1) for i in range(30)],
    "star": [(0, i) for i in range(1, 40)],
    "clique": [(i, j) for i in range(12) for j in range(i)],
    "loops": [(i, i) for i in range(5)] + [(0, 1)],
    "triangles": [(3 * i + a, 3 * i + b) for i in range(30) for a, b in ((0, 1), (1, 2), (2, 0))],
    "two cliques": [(i + o, j + o) for o in (0, 20) for i in range(10) for j in range(i)],
}


@pytest.mark.parametrize("design", DESIGNS)
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("select", [False, True])
def test_awkward_graphs_give_finite_scores(shape, design, select):
    graph = fg.Graph.from_edges(SHAPES[shape])
    links = fg.LinkPredictor(design=design, n_components=6, select=select).fit(graph)
    assert links.embedding_.shape == (graph.num_nodes, 6)
    assert np.isfinite(links.score_pairs(pairs_of(graph))).all()
    found = links.recommend(k=3)
    assert not graph.has_edges(graph.index_of(found.nodes), graph.index_of(found.targets)).any()
    again = fg.LinkPredictor(design=design, n_components=6, select=select).fit(graph)
    assert (again.embedding_ == links.embedding_).all()


def test_where_nothing_can_be_held_out_it_says_so():
    links = fg.LinkPredictor().fit(fg.Graph.from_edges(SHAPES["path"]))
    assert any("fixed weights" in line for line in links.notices_)
    assert links.validation_ == {}
    near, far = links.score_pairs([(3, 5), (3, 25)])
    assert near > far


def test_isolated_nodes_are_kept_and_scored():
    graph = fg.Graph.from_codes(*small().edge_codes().T, num_nodes=123)
    links = fg.LinkPredictor(**FEW).fit(graph)
    assert np.isfinite(links.score_pairs([(0, 121), (121, 122), (121, 121)])).all()
    assert len(links.recommend([121], k=4)) == 4


@pytest.mark.parametrize("design", DESIGNS)
def test_recommendations_equal_brute_force(design):
    graph = small()
    links = fg.LinkPredictor(design=design, **FEW).fit(graph)
    found = links.recommend(k=10).as_dict()
    A = graph.to_scipy().toarray() + np.eye(120)
    for u in range(0, 120, 7):
        name = graph.node_ids[u]
        scores = links.score_pairs([(name, other) for other in graph.node_ids])
        scores[A[u] > 0] = -np.inf
        best = np.sort(scores)[::-1][:10]
        np.testing.assert_allclose([score for _, score in found[name]], best, rtol=1e-9, atol=1e-12)


@pytest.mark.slow
def test_recommending_to_all_of_a_real_graph_equals_brute_force():
    graph = fg.load_dataset("ca-AstroPh").graph
    links = fg.LinkPredictor(select=False).fit(graph)
    found = links.recommend(k=10).as_dict()
    assert len(found) == graph.num_nodes
    for u in range(0, graph.num_nodes, 200):
        scores = links.score_pairs(np.column_stack([np.full(graph.num_nodes, u), np.arange(graph.num_nodes)]))
        scores[[u, *graph.indices[graph.indptr[u] : graph.indptr[u + 1]]]] = -np.inf
        np.testing.assert_allclose([score for _, score in found[u]], np.sort(scores)[::-1][:10], rtol=1e-12)


def test_recommended_scores_are_those_of_score_pairs():
    links = fg.LinkPredictor(**FEW).fit(small())
    found = links.recommend(["n7", "n3", "n7"], k=4)
    assert found.nodes.tolist() == ["n7"] * 4 + ["n3"] * 4 + ["n7"] * 4
    again = links.score_pairs(np.column_stack([found.nodes, found.targets]))
    assert (again == found.scores).all()


def test_candidates_restrict_whom_to_recommend():
    links = fg.LinkPredictor(**FEW).fit(small())
    found = links.recommend(["n0"], k=10, candidates=["n50", "n51", "n52"])
    assert set(found.targets) <= {"n50", "n51", "n52"}


def test_an_index_finds_most_of_what_brute_force_finds():
    links = fg.LinkPredictor(select=False).fit(digits())
    nodes = list(range(0, 1797, 60))
    near = links.recommend(nodes, k=5, approximate=True)
    assert len(near) == 5 * len(nodes)
    assert not digits().has_edges(near.nodes, near.targets).any()


def directed_layers(n=400, seed=0):
    """Five layers, with links from each to the next: direction is all."""
    rng = np.random.default_rng(seed)
    layer, taste = np.arange(n) % 5, rng.random((n, 2))
    near = np.exp(-20 * ((taste[:, None] - taste) ** 2).sum(-1))
    chance = np.where(layer[None, :] == layer[:, None] + 1, near, 0.0)
    u, v = np.nonzero(rng.random((n, n)) < chance)
    return np.column_stack([u, v])


def test_direction_is_learnt():
    edges = directed_layers()
    graph = fg.Graph.from_codes(*edges.T, num_nodes=400, directed=True)
    split = split_edges(graph, fraction=0.2, seed=0)
    both = fg.Graph.from_codes(*split.train.edge_codes().T, num_nodes=400)
    areas = []
    for train in (split.train, both):
        links = fg.LinkPredictor(select=False).fit(train)
        areas.append(roc_auc(links.score_pairs(split.held_out), links.score_pairs(split.negatives)))
    assert areas[0] > areas[1] + 0.02
    links = fg.LinkPredictor(select=False).fit(split.train)
    forth, back = links.score_pairs(split.held_out), links.score_pairs(split.held_out[:, ::-1])
    assert (forth > back).mean() > 0.9
    assert (links.left_ != links.right_).any()


def bipartite_edges(seed=0):
    rng = np.random.default_rng(seed)
    users, items = rng.random((60, 2)), rng.random((80, 2))
    near = np.exp(-15 * ((users[:, None] - items) ** 2).sum(-1))
    u, v = np.nonzero(rng.random((60, 80)) < 0.8 * near)
    return [(f"user{a}", f"item{b}") for a, b in zip(u, v, strict=True)]


def test_items_are_recommended_to_users():
    edges = bipartite_edges()
    links = fg.LinkPredictor(bipartite=True, n_components=16).fit(fg.Graph.from_edges(edges))
    found = links.recommend(["user3", "user7", "item5"], k=5)
    assert all(name.startswith("item") for name in found.targets[:10])
    assert all(name.startswith("user") for name in found.targets[10:])
    assert links.validation_["roc_auc"] > 0.8
    assert not set(zip(found.nodes, found.targets, strict=True)) & set(edges)


def test_sides_of_many_components_follow_the_columns():
    edges = [("zoe", "apple"), ("yan", "apple"), ("ann", "tea"), ("bob", "tea"), ("bob", "cake")]
    links = fg.LinkPredictor(bipartite=True).fit(fg.Graph.from_edges(edges))
    assert set(links.recommend(["ann"], k=20).targets) == {"cake", "apple"}
    links.partial_fit([("zz user", "a item"), ("zz user", "cake")])
    assert set(links.recommend(["ann"], k=20).targets) == {"cake", "apple", "a item"}
    links.partial_fit([("someone", "something")])
    assert "something" in links.recommend(["ann"], k=20).targets
    with pytest.raises(ArgumentError, match="'ann' – 'bob' joins two nodes of one side"):
        links.partial_fit([("ann", "bob")])


def test_given_links_are_never_among_the_others():
    rng = np.random.default_rng(0)
    pairs = [(f"u{a}", f"i{b}") for a in range(12) for b in range(12) if rng.random() < 0.7]
    graph, held = fg.Graph.from_edges(pairs[:60]), pairs[60:75]
    held = [pair for pair in held if set(pair) <= set(graph.node_ids)]
    sides = two_sides(graph)
    codes = np.array([graph.index_of(pair) for pair in held])
    others = sample_across(graph, sides, len(held), exclude=codes)
    assert not {frozenset(p) for p in others.tolist()} & {frozenset(p) for p in codes.tolist()}


@pytest.mark.parametrize(
    ("validation", "words"),
    [
        ([], "0 links"),
        ([("n0", "n1")], "1 links"),
        ([("n0", "n0"), ("n0", "n2")], "itself"),
        (None, "edge of the graph"),
    ],
)
def test_validation_that_cannot_judge_is_refused(validation, words):
    if validation is None:
        validation = small().node_ids[small().edge_codes()[:5]]
    with pytest.raises(ArgumentError, match=words):
        fg.LinkPredictor(n_components=8).fit(small(), validation=validation)


def test_a_score_does_not_depend_on_what_else_is_asked():
    links = fg.LinkPredictor(select=False).fit(digits())
    pairs = pairs_of(digits(), 300)
    one_by_one = np.concatenate([links.score_pairs(pair[None]) for pair in pairs])
    assert (links.score_pairs(pairs) == one_by_one).all()


def test_a_graph_without_edges_is_refused():
    with pytest.raises(ArgumentError, match="no edges"):
        fg.LinkPredictor().fit(fg.Graph.from_codes([], [], num_nodes=5))


def test_more_links_than_there_are_nodes_can_be_asked_for():
    links = fg.LinkPredictor(**FEW).fit(small())
    assert len(links.recommend(["n0"], k=10**12)) == 119 - small().degrees[small().index_of(["n0"])][0]


def test_names_and_edge_arrays_are_told_from_matrices():
    with pytest.raises(ArgumentError, match="read_graph"):
        as_graph("friends.csv")
    assert as_graph(np.array([[0, 1], [1, 2], [2, 3]])).num_nodes == 4
    assert as_graph(np.array([["a", "b"], ["b", "c"]])).num_nodes == 3


def test_a_graph_of_two_sides_is_pointed_out_and_an_odd_cycle_refused():
    links = fg.LinkPredictor(**FEW).fit(fg.Graph.from_edges(bipartite_edges()))
    assert any("bipartite" in line for line in links.notices_)
    with pytest.raises(ArgumentError, match="odd"):
        fg.LinkPredictor(bipartite=True, **FEW).fit(small())


def test_pairs_the_caller_knows_choose_the_settings():
    split = split_edges(small(), fraction=0.2, keep_forest=True, seed=3)
    ids = small().node_ids
    links = fg.LinkPredictor(n_components=8).fit(split.train, validation=ids[split.held_out])
    assert links.validation_["pairs"] == 2 * len(split.held_out)
    both = fg.LinkPredictor(n_components=8).fit(
        split.train, validation=(ids[split.held_out], ids[split.negatives[:50]])
    )
    assert both.validation_["pairs"] == len(split.held_out) + 50


def test_the_scorer_never_sees_the_test_edges():
    """What is fitted depends on the graph it is given and on nothing else."""
    split = split_edges(small(), fraction=0.2, seed=0)
    one, two = (fg.LinkPredictor(**FEW).fit(g) for g in (split.train, shuffled(split.train)))
    assert (one.score_pairs(pairs_of(small())) == two.score_pairs(pairs_of(small()))).all()


def test_graphs_of_other_kinds_are_taken():
    edges = [(0, 1), (1, 2), (2, 0), (2, 3), (3, 4)]
    wanted = as_graph(edges)
    others = [
        wanted,
        wanted.to_scipy(),
        wanted.to_scipy().toarray(),
        networkx.Graph(edges),
        wanted.to_igraph(),
    ]
    for other in others:
        assert as_graph(other).num_edges == 5


class TestManners:
    def test_clone_and_parameters(self):
        links = fg.LinkPredictor(design="walk", n_components=5, random_state=3)
        other = clone(links)
        assert other.get_params() == links.get_params()
        assert other.set_params(window=7).window == 7
        with pytest.raises(ValueError, match="Invalid parameter"):
            links.set_params(windw=7)

    @pytest.mark.parametrize(
        "use",
        [
            lambda links: links.score_pairs([(0, 1)]),
            lambda links: links.recommend([0]),
            lambda links: links.transform([(9, 1)]),
            lambda links: links.embedding_,
            lambda links: links.certificate_,
            lambda links: links.node_ids_,
            lambda links: links.save("nowhere"),
        ],
    )
    def test_before_fit_everything_says_so(self, use):
        with pytest.raises(NotFittedError):
            use(fg.LinkPredictor())

    def test_fitting_does_not_change_the_input(self):
        graph = small()
        before = graph.indptr.tobytes(), graph.indices.tobytes(), graph.node_ids.tolist()
        links = fg.LinkPredictor(**FEW)
        parameters = links.get_params()
        links.fit(graph)
        assert (graph.indptr.tobytes(), graph.indices.tobytes(), graph.node_ids.tolist()) == before
        assert links.get_params() == parameters

    def test_global_randomness_is_left_alone(self):
        np.random.seed(5)  # noqa: NPY002
        before = np.random.get_state()[1].tobytes()  # noqa: NPY002
        fg.LinkPredictor(**FEW).fit(small())
        assert np.random.get_state()[1].tobytes() == before  # noqa: NPY002

    def test_generators_and_none_are_random_states(self):
        for state in (None, np.random.default_rng(0), np.random.RandomState(0), np.int64(5)):
            assert fg.LinkPredictor(random_state=state, **FEW).fit(small()).embedding_.shape == (120, 8)

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
        function("LinkPredictor", fg.LinkPredictor())

    @pytest.mark.parametrize(
        ("settings", "words"),
        [
            ({"design": "log-difusion"}, "did you mean 'log-diffusion'"),
            ({"design": None}, "design"),
            ({"n_components": 0}, "n_components"),
            ({"n_components": 2.5}, "n_components"),
            ({"n_components": 10**18}, "n_components"),
            ({"damping": 1.5}, "damping"),
            ({"random_state": -1}, "random_state"),
            ({"random_state": "x"}, "random_state"),
            ({"n_jobs": 0}, "n_jobs"),
            ({"select": "no"}, "select"),
            ({"select": True, "damping": 1.5}, "damping"),
            ({"design": "walk", "negative": -1}, "negative must"),
            ({"design": "walk", "window": 0}, "window"),
            ({"design": "walk", "negative": float("nan")}, "negative"),
        ],
    )
    def test_bad_settings_are_named(self, settings, words):
        with pytest.raises(FastgrlError, match=words):
            fg.LinkPredictor(**{"select": False, **settings}).fit(small())

    def test_one_node_alone_cannot_be_fitted(self):
        with pytest.raises(ArgumentError, match="two nodes"):
            fg.LinkPredictor().fit(fg.Graph.from_edges([("a", "a")]))

    def test_unknown_ids_are_named(self):
        links = fg.LinkPredictor(**FEW).fit(small())
        with pytest.raises(UnknownIdError, match="nobody"):
            links.score_pairs([("n1", "nobody")])
        with pytest.raises(UnknownIdError, match="nobody"):
            links.recommend(["nobody"])
        with pytest.raises(UnknownIdError, match="nobody"):
            links.recommend(["n1"], candidates=["nobody"])

    def test_more_memory_than_allowed_is_refused_before_any_work(self):
        with pytest.raises(UnavailableError, match="limit"):
            fg.LinkPredictor(max_memory=10_000).fit(digits())

    def test_progress_rises_to_the_end(self):
        seen = []
        fg.LinkPredictor(n_components=8).fit(small(), progress=lambda done, total: seen.append(done / total))
        assert seen == sorted(seen)
        assert seen[-1] == 1


def test_cross_validation_holds_out_edges():
    found = fg.cross_validate(fg.LinkPredictor(**FEW), digits(), n_splits=2)
    assert set(found) == {"test_roc_auc", "test_average_precision", "fit_seconds", "score_seconds"}
    assert found["test_roc_auc"].min() > 0.9


@pytest.mark.parametrize("design", DESIGNS)
def test_a_saved_model_scores_alike_in_another_process(design, tmp_path):
    graph = shuffled(small())
    links = fg.LinkPredictor(design=design, n_components=8).fit(graph)
    links.save(tmp_path / "model")
    program = (
        "import sys, numpy as np, fastgrl as fg; links = fg.load(sys.argv[1]); ids = links.node_ids_; "
        "pairs = ids[np.random.default_rng(0).integers(0, 120, (200, 2))]; "
        "sys.stdout.write(links.score_pairs(pairs).tobytes().hex() + links.left_.tobytes().hex())"
    )
    run = subprocess.run(
        [sys.executable, "-c", program, tmp_path / "model"], capture_output=True, text=True, check=True
    )
    assert run.stdout == links.score_pairs(pairs_of(graph)).tobytes().hex() + links.left_.tobytes().hex()


def test_a_loaded_model_has_everything(tmp_path):
    links = fg.LinkPredictor(n_components=8).fit(small())
    certificate = links.certificate_
    links.save(tmp_path / "model")
    other = fg.load(tmp_path / "model")
    assert other.get_params() == links.get_params()
    assert other.chosen_ == links.chosen_
    assert other.validation_ == links.validation_
    assert other.notices_ == links.notices_
    assert other.certificate_.captured == certificate.captured
    assert list(other.recommend(["n3"], k=4)) == list(links.recommend(["n3"], k=4))
    assert (other.transform([("new", "n1")]).left == links.transform([("new", "n1")]).left).all()
