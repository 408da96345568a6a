from __future__ import annotations

import numpy as np
import pytest
from graph_cases import dataset
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from split_cases import graphs, path, star

import fastgrl as fg
from fastgrl.errors import ArgumentError, DtypeError, FastgrlError, NotFiniteError, ShapeError
from fastgrl.graph import Graph
from fastgrl.metrics import hits_at_k, roc_auc
from fastgrl.spectra import select_shrunken, shrunken_factors
from fastgrl.splits import EdgeSplit, split_edges
from fastgrl.sweeps import (
    WalkSubspace,
    cumulative_scores,
    rank_sweep,
    select_walk,
)
from fastgrl.walks import degree_power, degree_walk, factorise, walk

relaxed = settings(max_examples=25, deadline=None)


def links(name):
    return fg.load_dataset(name, folder=dataset("asymproj").parent, download=False)


def random_pairs(rng, n, count):
    return rng.integers(0, n, (count, 2))


@relaxed
@given(st.integers(1, 9), st.integers(1, 5), st.integers(0, 40), st.integers(0, 99))
def test_one_pass_scores_every_rank(n, rank, count, seed):
    rng = np.random.default_rng(seed)
    left, right = rng.standard_normal((2, n, rank))
    pairs = random_pairs(rng, n, count)
    scores = cumulative_scores(left, right, pairs=pairs)
    for k in range(1, rank + 1):
        expected = (left[:, :k] @ right[:, :k].T)[pairs[:, 0], pairs[:, 1]]
        assert np.allclose(scores[:, k - 1], expected)
    assert (cumulative_scores(left, right, pairs=pairs, ranks=[rank]) == scores[:, -1:]).all()


@relaxed
@given(st.integers(2, 9), st.integers(1, 4), st.booleans(), st.integers(0, 99))
def test_a_rank_sweep_is_the_metric_of_each_rank(n, rank, both_ways, seed):
    rng = np.random.default_rng(seed)
    left, right = rng.standard_normal((2, n, rank))
    positives, negatives = random_pairs(rng, n, 7), random_pairs(rng, n, 8)
    found = rank_sweep(left, right, positives=positives, negatives=negatives, both_ways=both_ways)
    for k in range(1, rank + 1):
        S = left[:, :k] @ right[:, :k].T
        S = S + S.T if both_ways else S
        assert found[k - 1] == pytest.approx(roc_auc(S[*positives.T], S[*negatives.T]), abs=1e-9)


def test_blocks_of_pairs_change_nothing(monkeypatch):
    rng = np.random.default_rng(0)
    left, right = rng.standard_normal((2, 20, 3))
    pairs = random_pairs(rng, 20, 50)
    whole = cumulative_scores(left, right, pairs=pairs)
    monkeypatch.setattr(fg.sweeps, "_BLOCK_PAIRS", 7)
    assert (cumulative_scores(left, right, pairs=pairs) == whole).all()


@relaxed
@given(
    graphs(least_nodes=2),
    st.sampled_from(["walk", "degree-walk"]),
    st.integers(1, 6),
    st.sampled_from([0.0, 0.1, 3.0]),
    st.integers(0, 99),
)
def test_in_a_full_basis_the_shared_scores_are_exact(graph, design, window, negative, seed):
    n = graph.num_nodes
    Q, R = (np.linalg.qr(np.random.default_rng(s).standard_normal((n, n)))[0] for s in (seed, seed + 1))
    shared = WalkSubspace.of(graph, Q, R, design=design, window=6)
    left, right = shared.factors(window=window, negative=negative, rank=n)
    make = walk if design == "walk" else degree_walk
    M = make(graph, window=window, negative=negative, dtype="float64") @ np.eye(n)
    assert np.allclose(left @ right.T, M, atol=1e-9 * (1 + np.abs(M).max()))
    s = np.linalg.svd(M, compute_uv=False)
    one = shared.factors(window=window, negative=negative, rank=1)
    rest = np.linalg.norm(M - one[0] @ one[1].T)
    assert rest == pytest.approx(np.sqrt((s[1:] ** 2).sum()), abs=1e-7 * (1 + s[0]))


def test_with_all_vectors_kept_selection_scores_are_those_of_exact_fits():
    rng = np.random.default_rng(3)
    graph = Graph.from_codes(*rng.integers(0, 14, (2, 40)), num_nodes=14)
    split = split_edges(graph, fraction=0.2, keep_forest=True)
    choice = select_walk(split, rank=7, windows=(1, 3), negatives=(0.1, 1.0))
    approximate = {(r["window"], r["negative"]): r["roc_auc"] for r in choice.table if not r["exact"]}
    exact = [r for r in choice.table if r["exact"]]
    assert len(exact) == 3
    for row in exact:
        assert row["roc_auc"] == pytest.approx(approximate[row["window"], row["negative"]], abs=0.03)
    assert max(exact, key=lambda r: r["roc_auc"])["window"] == choice.window


@pytest.mark.parametrize("design", ["walk", "degree-walk", "as-released"])
def test_selection_on_real_edges_does_as_well_as_the_published_setting(design):
    data = links("ppi")
    split = split_edges(data.graph, fraction=0.2, keep_forest=True)
    calls = []
    grid = {"windows": (5, 10), "negatives": (0.02, 1.0)}
    choice = select_walk(split, design, rank=16, **grid, progress=lambda *call: calls.append(call))
    assert calls == [(i, 11) for i in range(1, 12)]
    table = {(r["window"], r["negative"]): r["roc_auc"] for r in choice.table if r["exact"]}
    published = factorise(split.train, design, rank=16, window=5)
    auc = rank_sweep(
        published.left,
        published.right,
        positives=split.held_out,
        negatives=split.negatives,
        ranks=[16],
    )[0]
    assert table[choice.window, choice.negative] == max(table.values()) >= auc - 0.03


def test_selection_sees_only_the_training_graph_and_repeats_itself():
    graph = fg.load_dataset("digits").graph
    split = split_edges(graph, fraction=0.2, keep_forest=True)
    how = {"rank": 8, "windows": (2, 5), "negatives": (0.1, 1.0), "ranks": [2, 4, 8]}
    one, other = (select_walk(split, "degree-walk", **how, n_threads=k) for k in (1, 2))
    assert one.table == other.table
    assert one.rank in (2, 4, 8)
    blind = EdgeSplit(split.train, split.negatives, split.held_out)
    swapped = select_walk(blind, "degree-walk", **how)
    assert swapped.table[0]["roc_auc"] == pytest.approx(1 - one.table[0]["roc_auc"])


def dense_shrunken(graph, power, outer, shrinkage, rank):
    d = graph.degrees
    M = degree_power(graph, power=power, dtype="float64") @ np.eye(graph.num_nodes)
    values, V = np.linalg.eigh(M)
    keep = np.argsort(-np.abs(values), kind="stable")[:rank]
    values, V = values[keep], V[:, keep]
    mu = shrinkage * (d.mean() or 1.0) ** (-4 * power)
    f = np.where(np.abs(values) > 1e-12, values**3 / (values**2 + mu + 1e-300), 0)
    D = np.where(d > 0, d, 0) ** outer * (d > 0)
    return D[:, None] * (V * f) @ V.T * D, np.sort(np.abs(values))[::-1]


@relaxed
@given(
    graphs(least_nodes=2),
    st.sampled_from([0.25, 0.5]),
    st.sampled_from([0.0, 0.375]),
    st.sampled_from([0.1, 1.0, 100.0]),
)
def test_shrunken_factors_equal_the_dense_formula(graph, power, outer, shrinkage):
    assume(not graph.directed)
    n = graph.num_nodes
    expected, sizes = dense_shrunken(graph, power, outer, shrinkage, n)
    found = shrunken_factors(graph, power=power, outer=outer, shrinkage=shrinkage)
    assert np.allclose(found.left @ found.right.T, expected, atol=1e-4 * (1 + np.abs(expected).max()))
    assert np.allclose(found.svd.s, sizes, atol=1e-5 * (1 + sizes[0]))


def test_eigenvalues_of_both_signs_come_apart_in_a_bipartite_graph():
    found = shrunken_factors(star(6), power=0.5, outer=0.0, shrinkage=0.0, rank=2)
    U, s, Vt = found.svd
    assert np.allclose(s, 1, atol=1e-6)
    assert np.allclose(np.sort((U * Vt.T).sum(0)), [-1, 1], atol=1e-5)
    assert np.allclose(found.left @ found.right.T, dense_shrunken(star(6), 0.5, 0.0, 0.0, 2)[0], atol=1e-5)
    assert fg.certificate(found.operator, found.svd).left_residuals.max() < 1e-5


@relaxed
@given(graphs(least_nodes=4), st.integers(0, 99))
def test_every_swept_value_is_that_of_the_factors(graph, seed):
    assume(not graph.directed and graph.num_edges > 1)
    rng = np.random.default_rng(seed)
    positives, negatives = random_pairs(rng, graph.num_nodes, 5), random_pairs(rng, graph.num_nodes, 6)

    def metric(p, n):
        return float(np.mean(p) - np.mean(n))

    choice = select_shrunken(
        graph,
        positives=positives,
        negatives=negatives,
        powers=[0.25, 0.5],
        outers=[0.0, 0.25],
        shrinkages=[1.0, 10.0],
        ranks=[graph.num_nodes],
        metric=metric,
    )
    assert len(choice.table) == 8
    assert choice.value == max(row["value"] for row in choice.table) == choice.near[0]["value"]
    row = choice.table[seed % 8]
    setting = {name: row[name] for name in ("power", "outer", "shrinkage", "rank")}
    factors = shrunken_factors(graph, **setting)
    S = factors.left.astype(float) @ factors.right.T
    assert row["value"] == pytest.approx(
        metric(S[*positives.T], S[*negatives.T]), abs=1e-4 * (1 + abs(S).max())
    )


def test_smooth_shrinkage_finds_links_between_drugs():
    data = fg.load_dataset("ogbl-ddi", folder=dataset("ogbl-ddi").parent, download=False)
    found = select_shrunken(
        data.graph,
        positives=data.validation,
        negatives=data.validation_negatives,
        powers=[0.4375],
        outers=[0.375],
        shrinkages=[0.0, 1000.0],
        ranks=[256],
        metric=lambda p, n: hits_at_k(p, n, k=20),
    )
    assert found.shrinkage == 1000
    assert found.value > 0.78


def test_wrong_calls_are_named():
    L, graph = np.ones((4, 2)), path(6)
    split = split_edges(Graph.from_codes([0, 1, 2, 3, 0], [1, 2, 3, 4, 4]))
    for wrong, kind in (([[0, 4]], ArgumentError), ([0, 1], ShapeError), ([[0.5, 1]], DtypeError)):
        with pytest.raises(kind, match="pairs"):
            cumulative_scores(L, L, pairs=wrong)
    for ranks in ([], [0], [3]):
        with pytest.raises(ArgumentError, match="ranks"):
            cumulative_scores(L, L, pairs=[[0, 1]], ranks=ranks)
    for wrong in ({"rank": 0}, {"rank": 6}, {"windows": ()}, {"windows": (0,)}, {"negatives": (-1.0,)}):
        with pytest.raises(ArgumentError, match=next(iter(wrong))):
            select_walk(split, **{"rank": 2, **wrong})
    with pytest.raises(ArgumentError, match="design"):
        select_walk(split, "drunk", rank=2)
    arrows = Graph.from_codes([0, 1], [1, 2], directed=True)
    with pytest.raises(ArgumentError, match="undirected"):
        shrunken_factors(arrows, power=0.5, outer=0.0, shrinkage=1.0)
    for wrong in ({"power": np.nan}, {"outer": np.inf}, {"shrinkage": -1.0}, {"rank": 7}):
        with pytest.raises(ArgumentError, match=next(iter(wrong))):
            shrunken_factors(graph, **{"power": 0.5, "outer": 0.0, "shrinkage": 1.0, **wrong})
    for empty in ("powers", "outers", "shrinkages", "ranks"):
        with pytest.raises(ArgumentError, match=empty):
            select_shrunken(graph, positives=[[0, 1]], negatives=[[0, 2]], **{empty: []})


@pytest.mark.parametrize("weight", [1e-300, 1e-100, 1e100, 1e300])
def test_extreme_weights_are_finite_or_refused(weight):
    graph = Graph.from_codes([0, 1, 2], [1, 2, 3], weights=[weight, weight, weight])
    for power, outer in ((0.5, 0.0), (0.4375, 0.375), (0.25, 1.0), (1.0, -1.0)):
        try:
            found = shrunken_factors(graph, power=power, outer=outer, shrinkage=1.0)
        except (ArgumentError, NotFiniteError):
            continue
        assert np.isfinite(found.left).all()
        assert np.isfinite(found.right).all()


def test_a_graph_without_edges_scores_nothing():
    graph = Graph.from_codes([], [], num_nodes=3)
    found = shrunken_factors(graph, power=0.5, outer=0.25, shrinkage=1.0)
    assert not found.left.any()
    with pytest.raises(FastgrlError):
        shrunken_factors(Graph.from_codes([], [], num_nodes=0), power=0.5, outer=0.25, shrinkage=1.0)
