"""Pairs of ids, as callers of link prediction give them."""

from __future__ import annotations

from typing import Any

import numpy as np

from fastgrl.checks import Array, shown
from fastgrl.errors import ArgumentError
from fastgrl.graph import Graph
from fastgrl.ids import iterable_of_pairs
from fastgrl.link_models import Known


def codes_of(graph: Graph, pairs: Any) -> Array:
    """(m, 2) node numbers of pairs of ids."""
    sources, targets, weights = iterable_of_pairs(pairs)
    if weights is not None:
        raise ArgumentError("pairs to be scored are (source, target); leave the third column out")
    return np.column_stack([graph.index_of(sources), graph.index_of(targets)]).reshape(-1, 2)


def known_pairs(graph: Graph, validation: Any) -> Known:
    """Pairs of ids known to be links, or a tuple of these and of pairs known to be none."""
    both = isinstance(validation, tuple) and len(validation) == 2 and np.ndim(validation[0]) != 0
    if both and np.iterable(validation[0]) and not isinstance(validation[0], str):
        first = next(iter(validation[0]), None)
        if np.iterable(first) and not isinstance(first, str):
            links, others = (codes_of(graph, part) for part in validation)
            return Known(_refuse_known(graph, links), others)
    return Known(_refuse_known(graph, codes_of(graph, validation)))


def _refuse_known(graph: Graph, pairs: Array) -> Array:
    """Pairs held out of the graph; one that the graph has would be predicted by looking it up."""
    u, v = pairs.T
    wrong = graph.has_edges(u, v) | (u == v)
    if wrong.any():
        one, other = graph.node_ids[pairs[int(np.argmax(wrong))]]
        what = "a pair of a node with itself" if one == other else "an edge of the graph"
        raise ArgumentError(
            f"validation: {shown(one)} – {shown(other)} is {what}, one of {int(wrong.sum())}; "
            "validation lists links that were held out of it"
        )
    return pairs
