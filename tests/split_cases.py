"""Graphs small enough to list every pair of nodes, and the published ones."""

from __future__ import annotations

from itertools import combinations, permutations

import numpy as np
import scipy.stats
from graph_cases import dataset
from hypothesis import strategies as st

from fastgrl.graph import Graph


@st.composite
def graphs(draw, least_nodes=0):
    """Sparse to complete, directed or not, weighted or not, with loops, reciprocal and isolated nodes."""
    n = draw(st.integers(least_nodes, 12))
    density = draw(st.sampled_from([0.0, 0.1, 0.3, 0.6, 0.9, 1.0]))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    u, v = np.nonzero(rng.random((n, n)) < density)
    return build(u, v, n, directed=draw(st.booleans()), weighted=draw(st.booleans()), rng=rng)


def build(u, v, n, *, directed=False, weighted=False, rng=None):
    keep = slice(None) if directed else u <= v
    weights = rng.permutation(len(u[keep])) + 1.0 if weighted else None
    return Graph.from_codes(u[keep], v[keep], weights=weights, num_nodes=n, directed=directed)


def clique(n, *, without=0, directed=False):
    u, v = np.nonzero(~np.eye(n, dtype=bool))
    edges = np.stack([u, v], 1) if directed else np.stack([u, v], 1)[u < v]
    return Graph.from_codes(*edges[without:].T, num_nodes=n, directed=directed)


def star(leaves):
    return Graph.from_codes(np.zeros(leaves, int), np.arange(1, leaves + 1), num_nodes=leaves + 1)


def path(n):
    return Graph.from_codes(np.arange(n - 1), np.arange(1, n), num_nodes=n)


def all_pairs(n, *, directed, loops):
    pairs = permutations(range(n), 2) if directed else combinations(range(n), 2)
    return set(pairs) | ({(u, u) for u in range(n)} if loops else set())


def as_set(pairs):
    return {(int(u), int(v)) for u, v in pairs}


def non_edges(graph, *, loops=False):
    return all_pairs(graph.num_nodes, directed=graph.directed, loops=loops) - as_set(graph.edge_codes())


def num_distinct(pairs):
    numbers = np.sort(pairs @ [int(pairs.max()) + 1, 1])
    return 1 + np.count_nonzero(np.diff(numbers))


def is_plausible(counts, expected):
    """A chi-square test that fails once in 10⁴; the seeds are fixed."""
    return scipy.stats.chisquare(counts, expected).pvalue > 1e-4


def link_dataset(name):
    parts = [
        np.load(dataset("asymproj") / name / f"{part}.txt.npy") for part in ("train", "test", "test.neg")
    ]
    n = 1 + max(int(part.max()) for part in parts)
    return Graph.from_codes(*parts[0].T, num_nodes=n), parts[1], parts[2]
