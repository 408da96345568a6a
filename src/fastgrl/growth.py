"""Graphs that grow: new edges, and nodes that come with them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from fastgrl.checks import Array, finite_array
from fastgrl.errors import ArgumentError
from fastgrl.graph import Graph
from fastgrl.ids import IdIndex, as_ids, distinct_ids, iterable_of_pairs, objects
from fastgrl.ordering import canonical_order


@dataclass(frozen=True, eq=False)
class Grown:
    """A graph with further edges; nodes that come with them are numbered after the old ones."""

    graph: Graph
    new_ids: Array
    sources: Array
    targets: Array


def grow(graph: Graph, new_edges: Any, weights: Any = None, *, nodes: Any = ()) -> Grown:
    """Add edges, pairs of ids or triples with a weight, to a graph. An unweighted edge it has stays one edge.

    `nodes` lists ids that may come without an edge.

    >>> grow(fg.Graph.from_edges([("ann", "bob")]), [("ann", "eve")]).graph
    <Graph: 3 nodes, 2 edges>
    """
    sources, targets, thirds = iterable_of_pairs(new_edges)
    both = objects([*sources.tolist(), *targets.tolist(), *nodes])
    unknown = distinct_ids(both[IdIndex.of(graph.node_ids).find(both) < 0])
    order = canonical_order(unknown)
    unknown = unknown if order is None else unknown[order]
    node_ids = _joined(graph.node_ids, as_ids(unknown.tolist(), "new ids"))
    finder = IdIndex.of(node_ids)
    u, v = finder.find(objects(sources.tolist())), finder.find(objects(targets.tolist()))
    w = _weights(graph, thirds if weights is None else weights, len(u))
    old, old_weights = graph.edge_codes(), graph.edge_weights()
    joined = Graph.from_codes(
        np.concatenate([old[:, 0], u]),
        np.concatenate([old[:, 1], v]),
        weights=None if w is None or old_weights is None else np.concatenate([old_weights, w]),
        num_nodes=len(node_ids),
        node_ids=node_ids,
        directed=graph.directed,
    )
    return Grown(joined, unknown, u, v)


def _joined(old: Array, new: Array) -> Array:
    if old.dtype.kind == "i" and new.dtype.kind == "i":
        return np.concatenate([old, new])
    return objects([*old.tolist(), *new.tolist()])


def _weights(graph: Graph, given: Any, count: int) -> Array | None:
    if given is None:
        return None if graph.weights is None else np.ones(count)
    if graph.weights is None:
        raise ArgumentError("the model was fitted to an unweighted graph: leave the weights of new edges out")
    weights = finite_array(given, "weights of new edges", ndim=1)
    if len(weights) != count:
        raise ArgumentError(f"there are {len(weights)} weights for {count} new edges")
    if count and weights.min() < 0:
        at = int(weights.argmin())
        raise ArgumentError(f"weights must not be negative, but new edge {at + 1} has {weights[at]}")
    return weights
