"""Graphs of two sides, such as users and items, where links run across only."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp
from scipy.sparse.csgraph import connected_components

from fastgrl.checks import Array, shown
from fastgrl.errors import ArgumentError
from fastgrl.graph import Graph
from fastgrl.spilling import release


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


def has_odd_cycle_at_hub(graph: Graph, *, most: int = 1000) -> bool:
    """Whether there is a self loop, or a triangle at the node of most edges: then there are no two sides.

    At most so many neighbours are looked at: a quick answer for most graphs, at no cost for the others.

    >>> has_odd_cycle_at_hub(fg.Graph.from_edges([(0, 1), (1, 2), (2, 0)]))
    True
    """
    if graph.num_self_loops or not graph.num_nodes:
        return graph.num_self_loops > 0
    hub = int(np.diff(graph.indptr).argmax())
    around = np.array(graph.indices[graph.indptr[hub] : graph.indptr[hub + 1]])
    near = np.zeros(graph.num_nodes, bool)
    near[around] = True
    rows = (graph.indices[graph.indptr[v] : graph.indptr[v + 1]] for v in around[:most])
    found = any(bool(near[row].any()) for row in rows)
    release(graph.indices)
    return found


def checked_sides(graph: Graph) -> Array:
    """The sides of a graph that must have them."""
    sides = two_sides(graph)
    if sides is None:
        raise ArgumentError(
            f"{graph!r} is not bipartite: it has a cycle of odd length; leave bipartite (--bipartite) out"
        )
    return sides


def extended_sides(sides: Array, graph: Graph, sources: Array, targets: Array) -> Array:
    """The sides of a graph that has grown, old nodes where they were; `sources` → `targets` are new edges.

    Components of new nodes alone have the source of their first edge on side 0.
    """
    n = len(sides)
    found = two_sides(graph)
    for u, v in zip(sources, targets, strict=True):
        same = u < n and v < n and sides[u] == sides[v]
        if same or (found is None and u == v):
            ends = f"{shown(graph.node_ids[u])} – {shown(graph.node_ids[v])}"
            raise ArgumentError(
                f"the edge {ends} joins two nodes of one side of a bipartite model; leave it out"
            )
    if found is None:
        raise ArgumentError("the new edges close a cycle of odd length, which a bipartite model cannot have")
    _, label = connected_components(graph.to_scipy(), directed=False)
    flipped = np.zeros(label.max(initial=-1) + 1, bool)
    first = sources[::-1]
    flipped[label[first]] = found[first] == 1  # of repeated labels the last assignment, the first edge, stays
    flipped[label[:n]] = found[:n] != sides
    result = np.asarray(found ^ flipped[label], np.int8)
    if (result[:n] != sides).any():
        wrong = graph.node_ids[int(np.argmax(result[:n] != sides))]
        raise ArgumentError(f"the new edges put {shown(wrong)} on the other side of a bipartite model")
    return result


def sample_across(
    graph: Graph, sides: Array, count: int, *, seed: int = 0, exclude: Array | None = None
) -> Array:
    """`count` different pairs from side 0 to side 1 without an edge: a (count, 2) array of node numbers.

    `exclude` lists further pairs to leave out, either way round.
    """
    rng = np.random.Generator(np.random.Philox(seed))
    first, second = np.flatnonzero(sides == 0), np.flatnonzero(sides == 1)
    pairs = len(first) * len(second)
    taken = graph if exclude is None else graph.with_edges(np.concatenate([graph.edge_codes(), exclude]))
    if count > (pairs - taken.num_edges) // 2:
        raise ArgumentError(
            f"{count} pairs without an edge were wanted across the two sides, of {pairs} pairs"
        )
    found = np.empty(0, np.int64)
    while len(found) < count:
        drawn = rng.integers(0, pairs, 2 * (count - len(found)) + 16)
        u, v = first[drawn // len(second)], second[drawn % len(second)]
        fresh = drawn[~(taken.has_edges(u, v) | taken.has_edges(v, u))]
        both = np.concatenate([found, fresh])
        found = both[np.sort(np.unique(both, return_index=True)[1])]
    kept = found[:count]
    return np.column_stack([first[kept // len(second)], second[kept % len(second)]])
