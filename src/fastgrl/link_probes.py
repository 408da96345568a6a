"""How long the steps of a link design take: each probe runs the step itself, on a part of the graph."""

from __future__ import annotations

import functools
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from fastgrl.checks import Array
from fastgrl.costs import USUAL_DAMPING, Factorisation
from fastgrl.diffusion import Diffusion, log_matrix, log_rows
from fastgrl.fsvd import fsvd
from fastgrl.graph import Graph
from fastgrl.kernels import CSR
from fastgrl.leaves import Diagonal, Matrix
from fastgrl.link_times import dense_units
from fastgrl.metrics import average_precision, roc_auc
from fastgrl.operators import Operator
from fastgrl.parallel import thread_count, use_threads
from fastgrl.probes import affordable, distance, folded, growing, part_of, shortest, spread_nodes
from fastgrl.push import KEEP, Walker
from fastgrl.rates import Rate
from fastgrl.scorers import fit_scorer
from fastgrl.selection import hold_out
from fastgrl.spaces import FEATURES, Space
from fastgrl.sweeps import rank_sweep
from fastgrl.walks import as_released, degree_power, degree_walk, walk

_FEWEST_ROWS, _MOST_ROWS, _PAIRS, _SCORED = 16, 4096, 1024, 4096
_POWER = 0.4375


@dataclass(eq=False)
class LinkBench:
    """A graph and what is to be done with it; rows that were pushed serve several probes."""

    graph: Graph
    design: str
    svd: Factorisation
    window: int
    keep: int = KEEP
    row_lengths: dict[float, float] = field(default_factory=dict)
    pushed: CSR | None = None

    def matrix(self, graph: Graph) -> tuple[Operator, int]:
        """The implicit matrix of the design, and how many times a product with it reads the graph."""
        kind: Any = np.dtype(f"f{self.svd.itemsize}")
        if self.design == "shrunken":
            return degree_power(graph, power=_POWER, dtype=kind), 1
        makers: dict[str, Callable[..., Operator]] = {"walk": walk, "as-released": as_released}
        make = degree_walk if graph.directed and self.design == "as-released" else makers.get(self.design)
        return (make or degree_walk)(graph, window=self.window, dtype=kind), self.window

    @functools.cached_property
    def walker(self) -> Walker:
        """The graph, ready to be pushed along."""
        return Walker.of(self.graph, damping=USUAL_DAMPING, keep=self.keep)

    @functools.cached_property
    def rows(self) -> CSR:
        """Some pushed rows of the usual damping."""
        if self.pushed is None:
            self.pushed = self.walker.rows(spread_nodes(self.graph.num_nodes, _FEWEST_ROWS))
        return self.pushed


def product(bench: LinkBench, budget: float) -> Rate:
    """Both products of the design's own matrix with a panel, by entry, column and step."""
    graph, columns, size = bench.graph, bench.svd.panel, bench.svd.itemsize / 4
    per_column = (len(graph.indices) + graph.num_nodes) * bench.window * size
    part, rows = part_of(graph, affordable("product", 2 * columns * per_column, budget))
    M, steps = bench.matrix(part)
    took = _both_ways(M, columns, budget / 2)
    empty = _both_ways(bench.matrix(Graph.from_codes([0], [1]))[0], columns, budget / 8)
    units = (len(part.indices) + part.num_nodes) * columns * steps * size
    far = distance(part, rows, columns=columns, budget=budget / 4)
    return Rate(far * max(took - empty, took / 4) / max(units, 1), empty / steps)


def _both_ways(M: Operator, columns: int, budget: float) -> float:
    X, back = np.ones((M.shape[0], columns), M.dtype), M.T
    return shortest(lambda: (M @ X, back @ X), budget) / 2


def dense(bench: LinkBench, budget: float) -> Rate:
    """A whole functional SVD of a diagonal matrix, whose products cost next to nothing."""
    svd = _smaller(bench.svd, budget)
    n = svd.num_nodes
    spectrum = np.random.Generator(np.random.Philox(0)).permutation((1.0 + np.arange(n)) ** -0.5)
    M = Diagonal(spectrum.astype(f"f{svd.itemsize}"))
    how: dict[str, Any] = {"method": svd.method, "n_iter": svd.n_iter, "block_size": svd.block_size}
    return Rate(shortest(lambda: fsvd(M, svd.rank, **how), budget) / dense_units(svd))


def _smaller(svd: Factorisation, budget: float) -> Factorisation:
    """Fewer rows, and only where these are few fewer columns, so that it fits the budget."""
    if svd.method == "subspace":
        svd = replace(svd, n_iter=min(svd.n_iter, 2))
    fewest = min(svd.num_nodes, max(4096, 2 * svd.block_size * (svd.n_iter + 2)))
    while True:
        share = affordable("dense", dense_units(svd), budget)
        rows = max(fewest, int(share * svd.num_nodes))
        found = replace(svd, num_nodes=min(rows, svd.num_nodes))
        if affordable("dense", dense_units(found), budget) > 0.5 or svd.rank <= 16:
            return found
        block = max(4, svd.block_size // 2)
        svd = replace(svd, rank=min(svd.rank // 2, block * (svd.n_iter + 1)), block_size=block)
        fewest = min(svd.num_nodes, max(4096, 2 * block * (svd.n_iter + 2)))


def push(bench: LinkBench, budget: float, damping: float) -> Rate:
    """Rows of some nodes from all over the graph."""
    walker, n, found = replace(bench.walker, damping=damping), bench.graph.num_nodes, deque[CSR](maxlen=1)

    def rows(count: int) -> None:
        found.append(walker.rows(spread_nodes(n, count)))

    rows(1)  # what all rows share is made now
    per_row, _ = growing(rows, least=_FEWEST_ROWS, most=min(n, _MOST_ROWS), budget=budget)
    pushed = found.pop()
    bench.row_lengths[damping] = max(1.0, pushed.num_stored / pushed.shape[0])
    if damping == USUAL_DAMPING or bench.pushed is None:
        bench.pushed = pushed
    return Rate(per_row)


def logarithm(bench: LinkBench, budget: float) -> Rate:
    """The logarithm of made-up rows, as long as those that were pushed."""
    n = bench.graph.num_nodes
    length = max(1, min(round(bench.rows.num_stored / bench.rows.shape[0]), n))
    took: dict[int, float] = {}

    def logs(count: int) -> None:
        rows, degrees = _made_up(count, length), np.ones(count)
        found = Diffusion.of(rows, rows, degrees, degrees)
        took[count] = shortest(lambda: log_matrix(found), 0.0)

    _, count = growing(logs, least=2 * length, most=n, budget=budget)
    return Rate(took[count] / (count * length))


def _made_up(nodes: int, length: int) -> CSR:
    """A square matrix with `length` columns in each row, about evenly apart."""
    gap = max(1, nodes // length)
    rng = np.random.Generator(np.random.Philox(0))
    columns = np.arange(length) * gap + rng.integers(0, gap, (nodes, 1))
    values = np.full(nodes * length, 0.5, np.float32)
    indptr = np.arange(nodes + 1, dtype=np.int64) * length
    return CSR(indptr, columns.ravel().astype(np.int32), values, (nodes, nodes), np.dtype(np.float32))


def log_product(bench: LinkBench, budget: float) -> Rate:
    """A product of the pushed rows themselves, on one thread as they are few."""
    columns = bench.svd.block_size
    rows = folded(bench.rows, (128 << 20) // (4 * columns))
    X = np.ones((rows.shape[1], columns), np.float32)
    with use_threads(1):
        took = shortest(lambda: Matrix(rows) @ X, budget)
    return Rate(took / thread_count() / ((rows.num_stored + rows.shape[0]) * columns), 1e-4)


def log_entries(bench: LinkBench, budget: float) -> Rate:
    """Logarithms of the entries of the pushed rows, on one thread."""
    with use_threads(1):
        took = shortest(lambda: log_rows(bench.rows), budget)
    return Rate(took / thread_count() / max(1, bench.rows.num_stored))


def features(bench: LinkBench, budget: float) -> Rate:
    """All features of some pairs of the pushed nodes."""
    rows, rank = bench.rows, max(1, bench.svd.rank)
    m, rng = rows.shape[0], np.random.Generator(np.random.Philox(0))
    vectors = rng.standard_normal((m, rank), dtype=np.float32)
    degrees, near = np.ones(m), np.ones(m)
    found = Diffusion.of(rows, rows, degrees, degrees)
    space = Space(found, vectors, vectors, np.ones(rank, np.float32), (near, near), m)
    pairs = rng.integers(0, m, (_PAIRS, 2))
    space.features(pairs[:2])  # what all pairs share
    return Rate(shortest(lambda: space.features(pairs), budget) / _PAIRS, serial=True)


def scorer(bench: LinkBench, budget: float) -> Rate:
    """A scorer fitted to pairs of which some are easily told apart, and judged."""
    del bench
    rng = np.random.Generator(np.random.Philox(0))
    values = rng.standard_normal((_SCORED, len(FEATURES)))
    truth = (values[:, 0] + 0.3 * rng.standard_normal(_SCORED) > 0).astype(np.float64)

    def fit() -> tuple[float, float]:
        scores = fit_scorer(values, truth)(values)
        true, false = scores[truth == 1], scores[truth == 0]
        return roc_auc(true, false), average_precision(true, false)

    return Rate(shortest(fit, budget) / values.size, serial=True)


def judge(bench: LinkBench, budget: float) -> Rate:
    """The area under the ROC curve of made-up pairs."""
    rng, rank = np.random.Generator(np.random.Philox(0)), max(1, min(bench.svd.rank, 64))
    nodes = min(bench.graph.num_nodes, 100_000)
    vectors = rng.standard_normal((nodes, rank), dtype=np.float32)
    pairs: list[Array] = list(rng.integers(0, nodes, (2, _SCORED, 2)))
    how: dict[str, Any] = {"positives": pairs[0], "negatives": pairs[1], "ranks": [rank]}
    took = shortest(lambda: rank_sweep(vectors, vectors, **how), budget)
    return Rate(took / (2 * _SCORED * (rank + 4)), serial=True)


def split(bench: LinkBench, budget: float) -> Rate:
    """Edges held out of the graph, or of a random one as dense if it is large."""
    graph = bench.graph
    share = affordable("split", graph.num_edges + graph.num_nodes, budget)
    if share < 1:
        rng, nodes = np.random.Generator(np.random.Philox(0)), max(16, int(share * graph.num_nodes))
        ends = rng.integers(0, nodes, (2, max(16, int(share * graph.num_edges))))
        graph = Graph.from_codes(*ends, num_nodes=nodes, directed=graph.directed)
    took = shortest(lambda: hold_out(graph, seed=0), budget)
    return Rate(took / max(1, graph.num_edges + graph.num_nodes), serial=True)
