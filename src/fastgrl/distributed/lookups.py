"""Ids of nodes whose rows lie on workers, found by value: nodes are in the order of their ids."""

from __future__ import annotations

from typing import Any

import numpy as np

from fastgrl.checks import Array
from fastgrl.distributed.engines import Pending
from fastgrl.distributed.graphs import DistributedGraph
from fastgrl.ids import as_ids
from fastgrl.io.pairs import retyped


def like_the_nodes(graph: DistributedGraph, ids: Any) -> Array:
    """Ids in the type of the graph's own, as far as nothing is lost."""
    (first,) = graph.cluster.gather([Pending(first_ids, (graph.ids[0],))])
    return retyped(as_ids(ids, "ids"), first)


def first_ids(ids: Array) -> Array:
    """A few ids, to see what they are."""
    return ids[:1]


def numbers_of(graph: DistributedGraph, ids: Array) -> Array:
    """The number of the node with each id; −1 where there is none."""
    begins = [begin for begin, _ in graph.csr.plan.bounds]
    calls = [Pending(places_in, (block, begin, ids)) for block, begin in zip(graph.ids, begins, strict=True)]
    found = np.full(len(ids), -1, np.int64)
    for at, numbers in graph.cluster.gather(calls):
        found[at] = numbers
    return found


def places_in(block: Array, begin: int, wanted: Array) -> tuple[Array, Array]:
    """Which of the wanted ids are in a block, and their numbers."""
    if not len(block) or (block.dtype == object) != (wanted.dtype == object):
        return np.empty(0, np.int64), np.empty(0, np.int64)
    if wanted.dtype == object:
        places = {name: number for number, name in enumerate(block.tolist())}
        pairs = [(at, places[name]) for at, name in enumerate(wanted.tolist()) if name in places]
        at, numbers = np.array(pairs, np.int64).reshape(-1, 2).T
        return at, numbers + begin
    place = np.minimum(np.searchsorted(block, wanted), len(block) - 1)
    at = np.flatnonzero(block[place] == wanted)
    return at, place[at] + begin
