"""R-MAT graphs of a wanted number of edges, drawn once and kept as plain arrays that open in no time."""

from __future__ import annotations

import itertools
import math
from pathlib import Path

import numpy as np

import fastgrl as fg
from fastgrl.assembly import Rows
from fastgrl.datasets import rmat


def rmat_shape(edges: int, *, per_node: int) -> tuple[int, int]:
    """`scale` and `edge_factor` with which that many edges are left, and few more, when repeats are merged.

    >>> rmat_shape(100_000_000, per_node=24)
    (22, 26)
    """
    scale = max(0, round(math.log2(edges / per_node)))
    factor = max(1, edges >> scale)
    while distinct_edges(scale, factor << scale) < edges and factor << scale < 8 * edges:
        factor += 1
    return scale, factor


def distinct_edges(scale: int, draws: int) -> float:
    """How many different edges to expect of so many draws.

    Cells of the matrix that are reached by as many steps into each quadrant have one probability p; an edge
    off the diagonal has two such cells, and is missed with probability exp(-2 p draws).
    """
    found = 0.0
    for off, lower in itertools.product(range(scale + 1), repeat=2):
        if off + lower <= scale:
            p = 0.57 ** (scale - off - lower) * 0.19**off * 0.05**lower
            cells = math.comb(scale, off) * 2**off * math.comb(scale - off, lower)
            both = 2 if off else 1
            found -= cells / both * math.expm1(-both * p * draws)
    return found


def make_rmat(folder: Path, edges: int, *, per_node: int) -> None:
    """Draw the graph and write its rows; the folder appears when it is complete."""
    scale, edge_factor = rmat_shape(edges, per_node=per_node)
    graph = rmat(scale, edge_factor=edge_factor)
    part = folder.with_name(f"{folder.name}.part")
    part.mkdir(parents=True, exist_ok=True)
    np.save(part / "indptr.npy", graph.indptr)
    np.save(part / "indices.npy", graph.indices)
    part.rename(folder)


def open_graph(folder: Path) -> fg.Graph:
    """The graph in memory, its nodes numbered from 0."""
    rows = Rows(np.load(folder / "indptr.npy"), np.load(folder / "indices.npy"), None)
    return fg.Graph._built(rows, np.arange(len(rows.indptr) - 1), directed=False, repeats=0)
