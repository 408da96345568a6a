"""Watch Your Step: node vectors by attention over the lengths of random walks, in plain PyTorch.

Reference: Abu-El-Haija, Perozzi, Al-Rfou, Alemi, *Watch Your Step: Learning Node Embeddings via Graph
Attention*, 2018.

Vectors L, R (n×d) and an attention q = softmax(a) over walks of 1 … C steps minimise the mean over all n²
pairs of −M∘log(σ(LR') + ε) − 1[A = 0]∘log(1 − σ(LR') + ε), where M = 80 n D Σ_k q_k T^k, T = D⁻¹A, ε = 1e-5,
with the mean of a² times 0.1 and those of L² and R² times 1e-6 added. This objective, the factor n included,
is that of the authors' program, and so is its descent: 100 steps by PercentDelta on the whole gradient, that
is, L, R and a each move so that the mean relative change of their entries is the learning rate, 0.2 at first
and falling in a line to a hundredth of it. Two things differ. The authors' program keeps the vectors of the
step that tells training edges from other pairs best, here the last step's are the answer; and its default are
4 numbers per vector, here 32. Nothing is held out.

Numbers are also kept elsewhere. D T^k is symmetric: tiles on and below the diagonal are stored, and
each serves the pairs (u, v) and (v, u) at once. The gradient is written out by hand, from one sigmoid, tile
by tile in buffers that stay in the cache; no n×n matrix is made on the way.
"""

from __future__ import annotations

import functools
import math
import time
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from fastgrl.baselines.node_problems import number
from fastgrl.baselines.outcomes import Outcome, Progress
from fastgrl.checks import Array, integer
from fastgrl.datasets.records import LinkDataset
from fastgrl.errors import ArgumentError
from fastgrl.estimate import format_bytes
from fastgrl.frames import library
from fastgrl.fsvd import LARGEST_SEED
from fastgrl.graph import Graph
from fastgrl.normalisations import transition
from fastgrl.parallel import parallel_map, use_threads
from fastgrl.summaries import peak_memory

DEFAULT_MAX_MEMORY = 8 * 10**9
_SIDE = 256  # of a tile: the seven buffers that its gradient needs fit a cache
_EPSILON = 1e-5  # in logarithms, and beside entries that something is divided by
_LAST_RATE = 0.01  # of the first learning rate
_SPREAD = 0.1  # of the first vectors
_VECTOR_PENALTY = 1e-6


def run(
    dataset: LinkDataset,
    *,
    seed: int = 0,
    rank: int = 32,
    window: int = 5,
    walks_per_node: int = 80,
    context_penalty: float = 0.1,
    learning_rate: float = 0.2,
    steps: int = 100,
    max_memory: int = DEFAULT_MAX_MEMORY,
    threads: int | None = None,
    progress: Progress | None = None,
) -> Outcome:
    """Train on the dataset's graph with the published settings, and score its test pairs by L_u·R_v.

    Every node has two vectors of `rank` numbers. Walks of up to `window` steps are attended to. The powers of
    the transition matrix take 2 `window` n² bytes; more than `max_memory` is refused. `progress(done, total)`
    is called after each step. The same seed gives the same bits for any number of threads. Needs the extra
    [baselines].
    """
    packages()
    begin = time.perf_counter()
    settings = {
        "seed": integer("seed", seed, least=0, most=LARGEST_SEED),
        "rank": integer("rank", rank, least=1),
        "window": integer("window", window, least=1),
        "walks_per_node": integer("walks_per_node", walks_per_node, least=1),
        "context_penalty": number("context_penalty", context_penalty),
        "learning_rate": number("learning_rate", learning_rate),
        "steps": integer("steps", steps, least=1),
    }
    _check(dataset.graph, window, max_memory)
    with _one_thread_each(threads):
        objective = _Objective.of(dataset.graph, window, walks_per_node, context_penalty)
        started = time.perf_counter()
        model = _Model.random(dataset.graph.num_nodes, rank, window, seed)
        _descend(model, objective, learning_rate, steps, progress)
        trained = time.perf_counter()
    scores = model.scores(dataset.test, dataset.test_negatives)
    seconds = {"train": trained - started, "total": time.perf_counter() - begin}
    return Outcome(
        scores=scores,
        predictions=None,
        validation=None,
        seconds=seconds,
        settings=settings,
        epochs=steps,
        peak_memory_bytes=peak_memory(),
    )


@functools.cache
def packages() -> Any:
    """`torch`, or an error that names the extra."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of torch's own deprecations, while it is imported
        return library("torch", "Watch Your Step needs torch: pip install 'fastgrl[baselines]'")


def _check(graph: Graph, window: int, max_memory: int) -> None:
    if graph.directed:
        raise ArgumentError(
            "Watch Your Step is here for undirected graphs; build the graph with directed=False "
            "to forget directions"
        )
    if not graph.num_nodes:
        raise ArgumentError("the graph has no nodes; Watch Your Step needs some")
    limit, needed = integer("max_memory", max_memory, least=1), 2 * window * graph.num_nodes**2
    if needed > limit:
        raise ArgumentError(
            f"{window} powers of the transition matrix of {graph.num_nodes} nodes take "
            f"{format_bytes(needed)}, max_memory is {format_bytes(limit)}; raise max_memory, or use a "
            "smaller window or fewer nodes"
        )


@contextmanager
def _one_thread_each(threads: int | None) -> Iterator[None]:
    """Tiles are shared out among threads; torch's own, which would cut each tile up, stay out of the way."""
    torch = packages()
    before = torch.get_num_threads()
    try:
        with use_threads(threads if threads is None else integer("threads", threads, least=1)):
            yield
    finally:
        torch.set_num_threads(before)


@dataclass(frozen=True, eq=False)
class _Model:
    """What is learnt; `vectors` is 2×n×d, L and then R, and `logits` are a."""

    vectors: Any
    logits: Any

    @classmethod
    def random(cls, num_nodes: int, rank: int, window: int, seed: int) -> _Model:
        torch, rng = packages(), np.random.Generator(np.random.Philox(seed))
        vectors = rng.uniform(-_SPREAD, _SPREAD, (2, num_nodes, rank)).astype(np.float32)
        return cls(torch.from_numpy(vectors), torch.ones(window))

    @property
    def parts(self) -> tuple[Any, Any, Any]:
        return (self.vectors[0], self.vectors[1], self.logits)

    def scores(self, *pairs: Array) -> Array:
        u, v = np.concatenate([some.reshape(-1, 2) for some in pairs]).T
        L, R = self.vectors.numpy()
        products: Array = np.einsum("ik,ik->i", L[u], R[v])
        return products


def _descend(
    model: _Model, objective: _Objective, learning_rate: float, steps: int, progress: Progress | None
) -> None:
    for step in range(steps):
        rate = learning_rate * (1 - (1 - _LAST_RATE) * step / steps)
        for values, gradient in zip(model.parts, objective.gradient(model).parts, strict=True):
            relative = _off_zero((gradient / _off_zero(values)).abs().mean())
            values.sub_(gradient, alpha=rate / float(relative))
        if progress is not None:
            progress(step + 1, steps)


def _off_zero(values: Any) -> Any:
    return packages().where(values < 0, values - _EPSILON, values + _EPSILON)


@dataclass(frozen=True, eq=False)
class _Tile:
    """Rows and columns of D T, …, D T^C: C×(rows · columns), with the places of edges among the latter."""

    rows: slice
    columns: slice
    powers: Any
    edges: Any

    @property
    def shape(self) -> tuple[int, int]:
        return self.rows.stop - self.rows.start, self.columns.stop - self.columns.start

    @property
    def share(self) -> float:
        """On the diagonal (u, v) and (v, u) are both in the tile, and count twice."""
        return 0.5 if self.rows == self.columns else 1.0


def _tile_rows(graph: Graph, window: int) -> list[list[_Tile]]:
    """Tiles on and below the diagonal. Long rows come first, so that threads end at about the same time."""
    n = graph.num_nodes
    blocks = [slice(first, min(first + _SIDE, n)) for first in range(0, n, _SIDE)]
    columns = [_tile_column(graph, window, blocks[i:]) for i in range(len(blocks))]
    return [[columns[j][i - j] for j in range(i + 1)] for i in reversed(range(len(blocks)))]


def _tile_column(graph: Graph, window: int, blocks: Sequence[slice]) -> list[_Tile]:
    torch, columns = packages(), blocks[0]
    step, X = transition(graph, dtype=np.float32).T, _adjacent(graph, columns)
    edges = [torch.from_numpy(np.flatnonzero(X[rows])) for rows in blocks]
    powers = [torch.empty(window, rows.stop - rows.start, X.shape[1]) for rows in blocks]
    for k in range(window):
        X = step @ X if k else X
        for rows, tile in zip(blocks, powers, strict=True):
            tile[k] = torch.from_numpy(X[rows])
    return [
        _Tile(rows, columns, tile.view(window, -1), found)
        for rows, tile, found in zip(blocks, powers, edges, strict=True)
    ]


def _adjacent(graph: Graph, columns: slice) -> Array:
    """Columns of A, which are rows of A; a graph is undirected here."""
    rows: Array = graph.to_scipy()[columns].toarray().T
    return np.ascontiguousarray(rows, np.float32)


@dataclass(frozen=True, eq=False)
class _Objective:
    """The function that is minimised, by its gradient."""

    tile_rows: list[list[_Tile]]
    walks_per_node: int
    context_penalty: float

    @classmethod
    def of(cls, graph: Graph, window: int, walks_per_node: int, context_penalty: float) -> _Objective:
        return cls(_tile_rows(graph, window), walks_per_node, context_penalty)

    def gradient(self, model: _Model) -> _Model:
        n, context = model.vectors.shape[1], model.logits.softmax(0)
        swapped, weights = model.vectors.flip(0), self.walks_per_node * n * context
        work = functools.partial(_row_gradient, vectors=model.vectors, swapped=swapped, weights=weights)
        vectors = 2 * _VECTOR_PENALTY / model.vectors[0].numel() * model.vectors
        logs = 0.0
        for part, logs_part in parallel_map(work, self.tile_rows):
            vectors[:, : part.shape[1]].add_(part, alpha=1 / n**2)
            logs = logs + logs_part
        return _Model(vectors, self._of_logits(model.logits, context, -self.walks_per_node / n * logs))

    def _of_logits(self, logits: Any, context: Any, of_context: Any) -> Any:
        """Back through the softmax."""
        passed = context * (of_context - (context * of_context).sum())
        return (passed + 2 * self.context_penalty / len(logits) * logits).float()


def _row_gradient(tiles: list[_Tile], *, vectors: Any, swapped: Any, weights: Any) -> tuple[Any, Any]:
    """n² times what a row of tiles adds to the gradient of L and R, and Σ D T^k∘log(σ + ε) for each k.

    `swapped` holds R and then L: the products are L_u·R_v of the tile's pairs and then R_u·L_v.
    """
    torch = packages()
    torch.set_num_threads(1)
    gradient = torch.zeros(2, tiles[0].rows.stop, vectors.shape[2])
    logs = torch.zeros(len(weights), dtype=torch.float64)
    buffer = torch.empty(7 * math.prod(tiles[0].shape))
    for tile in tiles:
        left, right = vectors[:, tile.rows], swapped[:, tile.columns]
        G, tile_logs = _product_gradient(tile, left, right, weights, buffer)
        logs += tile_logs
        gradient[:, tile.rows] += torch.bmm(G, right)
        gradient[:, tile.columns] += torch.bmm(G.mT, left).flip(0)
    return gradient, logs


def _product_gradient(tile: _Tile, left: Any, right: Any, weights: Any, buffer: Any) -> tuple[Any, Any]:
    """G = σ(1−σ) (1[A=0]/(1−σ+ε) − M/(σ+ε)) of the tile's pairs in both orders, and sums of logarithms."""
    torch, size = packages(), math.prod(tile.shape)
    s, u, w = buffer[: 6 * size].view(3, 2, *tile.shape)
    flat = buffer[6 * size : 7 * size]
    M = flat.view(tile.shape)
    torch.bmm(left, right.mT, out=s).sigmoid_()
    torch.add(s, _EPSILON, out=u)
    # One logarithm for two: the product of what are at least ε is far from underflow.
    torch.mul(u[0], u[1], out=M).log_()
    logs = tile.share * torch.mv(tile.powers, flat)
    torch.mv(tile.powers.T, weights, out=flat)
    torch.div(M, u, out=u)
    torch.sub(1, s, out=w)
    s.mul_(w)
    w.add_(_EPSILON).reciprocal_().view(2, -1).index_fill_(1, tile.edges, 0)
    return w.sub_(u).mul_(s).mul_(tile.share), logs
