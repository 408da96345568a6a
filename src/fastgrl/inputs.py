"""What callers of an estimator give, in the forms it works with."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import scipy.sparse as sp

from fastgrl.checks import Array, integer, shown
from fastgrl.errors import ArgumentError
from fastgrl.fsvd import LARGEST_SEED
from fastgrl.graph import Graph
from fastgrl.ids import as_ids


def as_graph(source: Any) -> Graph:
    """A `Graph` as it is, a square adjacency matrix, a graph of another library, or pairs of ids.

    >>> as_graph([("ann", "bob")])
    <Graph: 2 nodes, 1 edges>
    """
    if isinstance(source, Graph):
        return source
    if isinstance(source, str | os.PathLike):
        raise ArgumentError(f"{shown(str(source))} is a name; fg.read_graph reads a file")
    if isinstance(source, np.ndarray) and (source.dtype.kind in "OUST" or _is_edge_list(source)):
        return Graph.from_edges(source)
    if sp.issparse(source) or isinstance(source, np.ndarray):
        return Graph.from_scipy(source)
    home = type(source).__module__.partition(".")[0]
    if home == "networkx":
        return Graph.from_networkx(source)
    if home == "igraph":
        return Graph.from_igraph(source)
    if home == "torch_geometric":
        return Graph.from_pyg(source)
    return Graph.from_edges(source)


def _is_edge_list(array: Array) -> bool:
    """Two columns of integers and not a square: a 2×2 array is an adjacency matrix."""
    return array.ndim == 2 and array.shape[1] == 2 and array.shape[0] != 2 and array.dtype.kind in "ui"


def threads_of(n_jobs: Any) -> int | None:
    """None for all there are, which −1 means as well."""
    return None if n_jobs is None or n_jobs == -1 else integer("n_jobs", n_jobs, least=1)


def seed_of(random_state: Any) -> int:
    """An integer, drawn from a generator or from the system if need be."""
    if random_state is None:
        return int(np.random.SeedSequence().generate_state(1, np.uint64)[0])
    if isinstance(random_state, np.random.Generator):
        return int(random_state.integers(0, 2**63))
    if isinstance(random_state, np.random.RandomState):
        return int(random_state.randint(0, 2**31))
    return integer("random_state", random_state, least=0, most=LARGEST_SEED)


def ids_of(values: Any, what: str) -> Array:
    """One id or several as an array."""
    one = isinstance(values, str | bytes) or not np.iterable(values)
    return as_ids([values] if one else values, what)
