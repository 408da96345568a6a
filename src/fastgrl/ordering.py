"""One numbering of the nodes for every order in which their edges may come.

A fit numbers nodes by their ids, so that shuffling the rows of a file changes nothing: not the random
numbers, not the edges that are held out, not a bit of the result.
"""

from __future__ import annotations

import numpy as np

from fastgrl.checks import Array
from fastgrl.graph import Graph


def canonical_order(node_ids: Array) -> Array | None:
    """The order that sorts the ids: numbers by value, text by character, others by type and repr.

    None if they are in that order already.

    >>> canonical_order(np.array([30, 10, 20]))
    array([1, 2, 0])
    """
    if node_ids.dtype.kind != "O":
        order = np.argsort(node_ids, kind="stable")
    else:
        keys = node_ids.tolist()
        if not all(type(key) is str for key in keys):
            keys = [(type(key).__name__, repr(key)) for key in keys]
        order = np.array(sorted(range(len(keys)), key=keys.__getitem__), np.int64)
    return None if (order == np.arange(len(order))).all() else order


def canonical_order_of(graph: Graph) -> Array | None:
    """`canonical_order` of the graph's ids; those of a graph on disk are in that order, and stay there.

    >>> canonical_order_of(fg.Graph.from_edges([("eve", "bob")]))
    array([1, 0])
    """
    return None if graph.lazy_ids is not None else canonical_order(graph.node_ids)


def reordered(graph: Graph, order: Array) -> Graph:
    """The same graph with node `order[i]` as its i-th."""
    place = np.empty(len(order), np.int64)
    place[order] = np.arange(len(order))
    codes = place[graph.edge_codes()]
    return Graph.from_codes(
        codes[:, 0],
        codes[:, 1],
        weights=graph.edge_weights(),
        num_nodes=graph.num_nodes,
        node_ids=graph.node_ids[order],
        directed=graph.directed,
    )
