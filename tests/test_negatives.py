from __future__ import annotations

from collections import Counter
from itertools import combinations, permutations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from split_cases import (
    all_pairs,
    as_set,
    clique,
    graphs,
    is_plausible,
    link_dataset,
    non_edges,
    num_distinct,
    path,
    star,
)

import fastgrl.splits as splits
from fastgrl.errors import ArgumentError
from fastgrl.graph import Graph
from fastgrl.splits import pair_numbers, pairs_of_numbers, sample_non_edges


@pytest.mark.parametrize("directed", [False, True])
@pytest.mark.parametrize("n", range(12))
def test_pairs_are_numbered_from_zero_without_gaps_and_loops_come_first(n, directed):
    pairs = np.array(sorted(all_pairs(n, directed=directed, loops=True)), dtype=np.int32).reshape(-1, 2)
    numbers = pair_numbers(pairs, n, directed=directed)
    assert sorted(numbers) == list(range(len(pairs)))
    assert (np.sort(numbers[pairs[:, 0] == pairs[:, 1]]) == np.arange(n)).all()
    assert (pairs_of_numbers(numbers, n, directed=directed) == pairs).all()
    assert (pair_numbers(pairs[:, ::-1], n, directed=False) == pair_numbers(pairs, n, directed=False)).all()


@pytest.mark.parametrize("directed", [False, True])
@pytest.mark.parametrize("n", [2**31 - 1, 2**31, 3_000_000_000, 3_000_000_001])
def test_pair_numbers_are_exact_for_three_thousand_million_nodes(n, directed):
    rng = np.random.default_rng(0)
    pairs = np.concatenate([rng.integers(n, size=(1000, 2)), n - 1 - rng.integers(3, size=(50, 2))])
    pairs = np.concatenate([pairs, [[0, n - 1], [0, n // 2], [n // 2 - 1, n - 1], [n // 2, n - 1], [0, 0]]])
    pairs = pairs if directed else np.sort(pairs, axis=1)
    numbers = pair_numbers(pairs, n, directed=directed)
    assert 0 <= numbers.min() <= numbers.max() < (n * n if directed else n * (n + 1) // 2)
    assert (pairs_of_numbers(numbers, n, directed=directed) == pairs).all()


@given(graphs(), st.integers(0, 2**32), st.booleans(), st.floats(0, 1))
@settings(max_examples=60, deadline=None)
def test_sampled_pairs_are_different_non_edges(graph, seed, loops, share):
    free = non_edges(graph, loops=loops)
    count = round(share * len(free))
    sample = sample_non_edges(graph, count, seed=seed, loops=loops)
    assert sample.shape == (count, 2)
    assert sample.dtype == np.int64
    assert len(as_set(sample)) == count
    assert as_set(sample) <= free


@given(graphs(), st.integers(0, 2**32), st.booleans())
@settings(max_examples=60, deadline=None)
def test_asking_for_all_non_edges_gives_all_and_for_one_more_says_how_many(graph, seed, loops):
    free = non_edges(graph, loops=loops)
    assert as_set(sample_non_edges(graph, len(free), seed=seed, loops=loops)) == free
    with pytest.raises(ArgumentError, match=f"{len(free) + 1} non-edges .* has only {len(free)};"):
        sample_non_edges(graph, len(free) + 1, seed=seed, loops=loops)


@given(graphs(least_nodes=1), st.integers(0, 2**32), st.data())
@settings(max_examples=60, deadline=None)
def test_excluded_pairs_are_not_sampled(graph, seed, data):
    node = st.integers(0, graph.num_nodes - 1)
    exclude = data.draw(st.lists(st.tuples(node, node), max_size=20))
    banned = set(exclude) | (set() if graph.directed else {(v, u) for u, v in exclude})
    free = non_edges(graph) - banned
    assert as_set(sample_non_edges(graph, len(free), seed=seed, exclude=exclude)) == free
    with pytest.raises(ArgumentError, match=f"has only {len(free)};"):
        sample_non_edges(graph, len(free) + 1, exclude=exclude)


@given(graphs(), st.integers(0, 2**32), st.booleans())
@settings(max_examples=60, deadline=None)
def test_degree_matched_pairs_are_different_non_edges_between_nodes_with_neighbours(graph, seed, loops):
    out, into = np.diff(graph.indptr), np.bincount(graph.indices, minlength=graph.num_nodes)
    free = {(u, v) for u, v in non_edges(graph, loops=loops) if out[u] and into[v]}
    sample = sample_non_edges(graph, len(free), seed=seed, degree_matched=True, loops=loops)
    assert as_set(sample) == free
    with pytest.raises(ArgumentError, match=f"has only {len(free)}( between nodes with neighbours)?;"):
        sample_non_edges(graph, len(free) + 1, degree_matched=True, loops=loops)


# 2 of 10 are drawn with rejection of repeats, 3 of 5 from a permutation.
@pytest.mark.parametrize(("num_free", "count"), [(10, 2), (5, 3), (9, 1)])
@pytest.mark.parametrize("directed", [False, True])
def test_every_set_of_non_edges_is_equally_likely(num_free, count, directed):
    whole = clique(7, directed=directed)
    rng = np.random.default_rng(3)
    removed = rng.choice(whole.num_edges, num_free, replace=False)
    graph = whole.with_edges(np.delete(whole.edge_codes(), removed, axis=0))
    sets = [frozenset(chosen) for chosen in combinations(sorted(non_edges(graph)), count)]
    seen = Counter(frozenset(as_set(sample_non_edges(graph, count, seed=seed))) for seed in range(1000))
    assert set(seen) <= set(sets)
    assert is_plausible([seen[chosen] for chosen in sets], np.full(len(sets), 1000 / len(sets)))


def test_every_order_of_the_same_non_edges_is_equally_likely():
    graph = clique(5, without=3)
    seen = Counter(tuple(map(tuple, sample_non_edges(graph, 3, seed=seed).tolist())) for seed in range(1200))
    assert len(seen) == 6
    assert is_plausible(list(seen.values()), np.full(6, 200))


def successive_chances(graph):
    """The chance of each ordered couple of different non-edges when weights are products of degrees."""
    weight = {(u, v): graph.degrees[u] * graph.degrees[v] for u, v in non_edges(graph)}
    total = sum(weight.values())
    return {
        (a, b): weight[a] / total * weight[b] / (total - weight[a])
        for a, b in permutations([pair for pair in weight if weight[pair]], 2)
    }


@pytest.mark.parametrize("listed", [-(10**9), 10**9])
def test_degree_matched_pairs_come_in_proportion_to_degrees(monkeypatch, listed):
    monkeypatch.setattr(splits, "_LISTED_PAIRS", listed)
    graph = Graph.from_codes([0, 0, 0, 1, 2], [1, 2, 3, 2, 4], num_nodes=6)
    chances = successive_chances(graph)
    samples = (sample_non_edges(graph, 2, seed=seed, degree_matched=True) for seed in range(2000))
    seen = Counter(tuple(map(tuple, sample.tolist())) for sample in samples)
    assert set(seen) <= set(chances)
    assert is_plausible([seen[couple] for couple in chances], 2000 * np.array(list(chances.values())))


@pytest.mark.parametrize("listed", [-(10**9), 10**9])
def test_degree_matched_loops_come_in_proportion_too(monkeypatch, listed):
    monkeypatch.setattr(splits, "_LISTED_PAIRS", listed)
    draws = [sample_non_edges(star(2), 1, seed=s, degree_matched=True, loops=True)[0] for s in range(1000)]
    seen = Counter(tuple(pair.tolist()) for pair in draws)
    # Ends are the hub with chance ½ and each leaf with ¼: the loops have ¼, 1/16, 1/16, the leaves 2/16.
    expected = 1000 * np.array([4, 1, 1, 2]) / 8
    assert is_plausible([seen[pair] for pair in ((0, 0), (1, 1), (2, 2), (1, 2))], expected)


def test_degree_matching_gives_up_in_words_when_likely_pairs_are_all_edges():
    inner = clique(10).edge_codes()
    graph = Graph.from_codes(*inner.T, num_nodes=1000)
    with pytest.raises(ArgumentError, match=r"only 0 of 5 degree-matched .* degree_matched=False"):
        sample_non_edges(graph, 5, degree_matched=True)
    with pytest.raises(ArgumentError, match="only 0 of 1 degree-matched"):
        sample_non_edges(Graph.from_codes([], [], num_nodes=1000), 1, degree_matched=True)


@pytest.mark.parametrize("directed", [False, True])
def test_the_one_missing_edge_of_a_large_clique_is_found(directed):
    graph = clique(300, without=1, directed=directed)
    for degree_matched in (False, True):
        assert sample_non_edges(graph, 1, degree_matched=degree_matched).tolist() == [[0, 1]]


def test_the_leaves_of_a_star_are_its_only_non_edges():
    assert as_set(sample_non_edges(star(4), 6)) == set(combinations(range(1, 5), 2))
    with pytest.raises(ArgumentError, match="has only 6"):
        sample_non_edges(star(4), 7)


@pytest.mark.parametrize("n", [0, 1, 2])
def test_tiny_graphs_have_the_non_edges_they_have(n):
    graph = Graph.from_codes([], [], num_nodes=n)
    assert sample_non_edges(graph, 0).shape == (0, 2)
    assert len(sample_non_edges(graph, n * (n - 1) // 2)) == n * (n - 1) // 2
    assert as_set(sample_non_edges(graph, n * (n + 1) // 2, loops=True)) >= {(u, u) for u in range(n)}


@given(graphs(), st.integers(0, 2**64 - 1))
@settings(max_examples=60, deadline=None)
def test_the_same_seed_gives_the_same_pairs_and_global_randomness_is_left_alone(graph, seed):
    count = len(non_edges(graph)) // 2
    before = np.random.get_state()  # noqa: NPY002
    first, second = (sample_non_edges(graph, count, seed=seed) for _ in range(2))
    assert (first == second).all()
    np.testing.assert_equal(np.random.get_state(), before)  # noqa: NPY002


def test_different_seeds_give_different_pairs():
    graph = path(500)
    assert len({sample_non_edges(graph, 5, seed=seed).tobytes() for seed in range(50)}) == 50


def test_a_million_non_edges_of_a_real_graph_are_a_million_non_edges():
    graph, _, _ = link_dataset("ca-AstroPh")
    sample = sample_non_edges(graph, 10**6)
    assert (sample[:, 0] < sample[:, 1]).all()
    assert not graph.has_edges(*sample.T).any()
    assert num_distinct(sample) == 10**6
    # Under uniform draws each node occurs 2·10⁶/n ≈ 112 times, give or take √112.
    share = np.bincount(sample.ravel(), minlength=graph.num_nodes) / (2e6 / graph.num_nodes)
    assert 0.5 < share.min() < share.max() < 1.6


def test_degree_matched_non_edges_of_a_real_graph_have_the_degrees_of_random_edge_ends():
    graph, _, _ = link_dataset("ca-AstroPh")
    sample = sample_non_edges(graph, 100_000, degree_matched=True)
    assert not graph.has_edges(*sample.T).any()
    assert num_distinct(sample) == 100_000
    expected = (graph.degrees**2).sum() / graph.degrees.sum()
    assert graph.degrees[sample].mean() == pytest.approx(expected, rel=0.05)
