"""Graphs of two sides, such as users and items, where links run across only."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp
from scipy.sparse.csgraph import connected_components

from fastgrl.checks import Array
from fastgrl.errors import ArgumentError
from fastgrl.graph import Graph


def two_sides(graph: Graph) -> Array | None:
    """The side of every node, 0 or 1, so that every edge runs across; None if there is no such division.

    In every component the node that comes first is on side 0: with edges written "user, item", users are.

    >>> two_sides(fg.Graph.from_edges([("ann", "tea"), ("bob", "tea"), ("bob", "cake")])).tolist()
    [0, 1, 0, 1]
    """
    n = graph.num_nodes
    pattern = sp.csr_array((np.ones(len(graph.indices), np.int8), graph.indices, graph.indptr), shape=(n, n))
    # In the double cover (u, 0) – (v, 1) a component falls into two exactly if all its cycles are even.
    cover: Any = sp.block_array([[None, pattern], [pattern.T, None]], format="csr") if n else pattern
    _, label = connected_components(cover, directed=False)
    here, there = label[:n], label[n:]
    return None if (here == there).any() else (here > there).astype(np.int8)


def checked_sides(graph: Graph) -> Array:
    """The sides of a graph that must have them."""
    sides = two_sides(graph)
    if sides is None:
        raise ArgumentError(
            f"{graph!r} is not bipartite: it has a cycle of odd length; leave bipartite (--bipartite) out"
        )
    return sides


def sample_across(graph: Graph, sides: Array, count: int, *, seed: int = 0) -> Array:
    """`count` different pairs from side 0 to side 1 without an edge: a (count, 2) array of node numbers."""
    rng = np.random.Generator(np.random.Philox(seed))
    first, second = np.flatnonzero(sides == 0), np.flatnonzero(sides == 1)
    pairs = len(first) * len(second)
    if count > (pairs - graph.num_edges) // 2:
        raise ArgumentError(
            f"{count} pairs without an edge were wanted across the two sides, of {pairs} pairs"
        )
    found = np.empty(0, np.int64)
    while len(found) < count:
        drawn = rng.integers(0, pairs, 2 * (count - len(found)) + 16)
        u, v = first[drawn // len(second)], second[drawn % len(second)]
        fresh = drawn[~(graph.has_edges(u, v) | graph.has_edges(v, u))]
        both = np.concatenate([found, fresh])
        found = both[np.sort(np.unique(both, return_index=True)[1])]
    kept = found[:count]
    return np.column_stack([first[kept // len(second)], second[kept % len(second)]])
