"""What probes have in common: short timings, and parts of a graph that stand for the whole of it."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np

from fastgrl.assembly import Rows
from fastgrl.checks import Array
from fastgrl.graph import Graph
from fastgrl.kernels import CSR, compiled_module, multiply
from fastgrl.rates import usual_rate

_PIECES, _MOST_CALLS, _WITHOUT_KERNEL = 16, 5, 8
clock: Callable[[], float] = time.perf_counter

# What a probe gathers rows from: larger than any cache, and no more than a fit would take.
_LARGEST_BLOCK = 128 << 20


def shortest(call: Callable[[], Any], budget: float) -> float:
    """Seconds of the shortest of a few calls, of one at least, that together stay within `budget`.

    >>> from fastgrl.probes import shortest
    >>> shortest(lambda: None, 0.0) >= 0
    True
    """
    end, best = clock() + budget, np.inf
    for _ in range(_MOST_CALLS):
        begin = clock()
        call()
        now = clock()
        best = min(best, now - begin)
        if 2 * now - begin > end:
            break
    return best


def affordable(step: str, units: float, budget: float) -> float:
    """The share of the units, up to 1, that a third of `budget` pays for at the usual rate."""
    slower = 1 if compiled_module() else _WITHOUT_KERNEL
    return min(1.0, budget / 3 / max(slower * usual_rate(step).unit * units, 1e-12))


def growing(call: Callable[[int], Any], *, least: int, most: int, budget: float) -> tuple[float, int]:
    """Seconds by which a call grows with its size, per unit of it; and the largest size that was called.

    Sizes double from `least` to `most`, or as long as the budget allows, so that nothing needs to be known
    beforehand. What a call takes whatever its size is left out, as far as two calls tell it apart.
    """
    end, size, before, per_unit = clock() + budget, max(1, min(least, most)), None, 0.0
    while True:
        begin = clock()
        call(size)
        now = clock()
        took = now - begin
        per_unit = took / size
        if before is not None:
            per_unit = max((took - before) * 2 / size, per_unit / 4)
        if size >= most or now + 3 * took > end:
            return per_unit, size
        size, before = 2 * size, took


def part_of(graph: Graph, share: float) -> tuple[Graph, CSR]:
    """A graph of a share of the nodes with rows as long as those of all, and these rows as they were.

    Rows are those of a few ranges; their columns are folded into as many as there are rows. The graph itself
    stands for all of it.
    """
    n, count = graph.num_nodes, max(2 * _PIECES, int(share * graph.num_nodes))
    if share >= 1 or count >= n:
        return graph, graph.csr
    length = count // _PIECES
    starts = np.linspace(0, n - length, _PIECES).astype(np.int64)
    rows = [slice(int(start), int(start) + length) for start in starts]
    entries = [slice(int(graph.indptr[row.start]), int(graph.indptr[row.stop])) for row in rows]
    lengths = np.concatenate([np.diff(graph.indptr[row.start : row.stop + 1]) for row in rows])
    indptr = np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths)])
    indices = np.concatenate([graph.indices[part] for part in entries])
    weights = None if graph.weights is None else np.concatenate([graph.weights[part] for part in entries])
    m = len(lengths)
    folded = Rows(indptr, indices % indices.dtype.type(m), weights)
    part = Graph._built(folded, np.arange(m), directed=graph.directed, repeats=0)
    return part, CSR(indptr, indices, weights, (m, n), None if weights is None else weights.dtype)


def distance(part: Graph, rows: CSR, *, columns: int, budget: float) -> float:
    """How much longer a product takes that gathers from as many rows as the whole graph has, 1 at least."""
    if rows.shape[0] == rows.shape[1]:
        return 1.0
    far = folded(rows, _LARGEST_BLOCK // (4 * columns))
    near = CSR(part.indptr, part.indices, None, (part.num_nodes, part.num_nodes), None)
    far = CSR(far.indptr, far.indices, None, far.shape, None)
    one, other = (np.ones((matrix.shape[1], columns), np.float32) for matrix in (near, far))
    here = shortest(lambda: multiply(near, one), budget / 2)
    there = shortest(lambda: multiply(far, other), budget / 2)
    return max(1.0, there / max(here, 1e-9))


def folded(rows: CSR, columns: int) -> CSR:
    """The same rows with their columns in a matrix of at most so many."""
    if rows.shape[1] <= columns:
        return rows
    indices = rows.indices % rows.indices.dtype.type(columns)
    return CSR(rows.indptr, indices, rows.values, (rows.shape[0], columns), rows.dtype)


def spread_nodes(num_nodes: int, count: int) -> Array:
    """Nodes from all over the graph, each once."""
    return np.unique(np.linspace(0, num_nodes - 1, min(count, num_nodes)).astype(np.int32))
