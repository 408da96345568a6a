"""node2vec: skip-gram with negative sampling over random walks; with p = q = 1 also known as DeepWalk.

Reference: Grover, Leskovec, *node2vec: Scalable Feature Learning for Networks*, 2016; Perozzi, Al-Rfou,
Skiena, *DeepWalk: Online Learning of Social Representations*, 2014.

`run` follows the program behind the published row of *Fast Graph Learning with Unique Optimal Solutions*
(2021), which is PyTorch Geometric's `Node2Vec`: walks as long as the window, paired with the node they start
from, fresh ones in each epoch; negatives that are any nodes alike; one set of vectors instead of two; Adam
with learning rate 0.01 on batches of 128 nodes; z_u·z_v scores a pair. It differs in two ways. Vectors begin
with deviation 0.1 and not 1, so that ten epochs do what took from thirty to a hundred, and further epochs
change little: none has to be chosen by its score. And all rows take Adam's step, also the few that a batch
does not touch.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import numpy as np

from fastgrl.baselines.link_vectors import Score, VectorRun
from fastgrl.baselines.outcomes import Outcome, Progress
from fastgrl.baselines.skip_gram import skip_gram
from fastgrl.checks import Array, integer, shown
from fastgrl.datasets.records import LinkDataset
from fastgrl.errors import ArgumentError
from fastgrl.frames import library
from fastgrl.graph import Graph
from fastgrl.parallel import use_threads

# Walkers whose proposal is refused this often (all neighbours are unlikely by p and q) choose among all of
# their neighbours listed, some millions of them at a time.
_MOST_PROPOSALS = 16
_LISTED = 1 << 22


def run(
    dataset: LinkDataset,
    *,
    seed: int = 0,
    rank: int = 64,
    window: int = 5,
    walks_per_node: int = 20,
    p: float = 1.0,
    q: float = 1.0,
    negative: int = 1,
    epochs: int = 10,
    learning_rate: float = 0.01,
    batch_size: int = 128,
    scale: float = 0.1,
    score: Score = "dot",
    threads: int | None = None,
    progress: Progress | None = None,
) -> Outcome:
    """Score the test pairs of a dataset by node2vec, engine "numpy" of `node2vec`.

    Vectors begin with deviation `scale`; `learning_rate` and `batch_size` are Adam's. A pair scores the
    product of its vectors; `score="cosine"` divides it by their lengths. Nothing is chosen by looking at any
    pair. `progress(done, total)` is called after each epoch. The same seed gives the same bits for any number
    of threads.
    """
    settings: dict[str, Any] = {
        "seed": integer("seed", seed, least=0),
        "rank": integer("rank", rank, least=1),
        "window": integer("window", window, least=1),
        "walks_per_node": integer("walks_per_node", walks_per_node, least=1),
        "p": _positive("p", p),
        "q": _positive("q", q),
        "negative": integer("negative", negative, least=1),
        "epochs": integer("epochs", epochs, least=1),
        "learning_rate": _positive("learning_rate", learning_rate),
        "batch_size": integer("batch_size", batch_size, least=1),
        "scale": _positive("scale", scale),
    }
    vectors = partial(_by_numpy, dataset.graph, length=max(2, window), progress=progress, **settings)
    return VectorRun(vectors, score, settings | {"score": score}, epochs).on(dataset, threads=threads)


def random_walks(
    graph: Graph, *, length: int, walks_per_node: int, p: float = 1.0, q: float = 1.0, seed: int = 0
) -> Array:
    """Walks of `length` nodes, `walks_per_node` from each node: an (n · walks_per_node, length) array.

    The first n walks start at nodes 0, 1, …, n−1, and so do the next n. A step goes to a neighbour x with
    chances in proportion to the weight of the edge, times 1/p if x is where the walk came from, 1 if x is a
    neighbour of where it came from, and 1/q otherwise. After a node without neighbours the row holds −1.

    >>> graph = fg.Graph.from_edges([(0, 1)], nodes=[0, 1, 2])
    >>> fg.baselines.random_walks(graph, length=3, walks_per_node=1)
    array([[ 0,  1,  0], [ 1,  0,  1], [ 2, -1, -1]])
    """
    length = integer("length", length, least=1)
    repeats = integer("walks_per_node", walks_per_node, least=1)
    rng = np.random.Generator(np.random.Philox(integer("seed", seed, least=0)))
    step = _Step.of(graph, _positive("p", p), _positive("q", q))
    walks = np.full((length, graph.num_nodes * repeats), -1, np.int64)
    walks[0] = np.tile(np.arange(graph.num_nodes), repeats)
    walking = np.flatnonzero(step.open[walks[0]])
    for i in range(1, length):
        came_from = walks[i - 2, walking] if i > 1 and not step.first_order else None
        walks[i, walking] = step(walks[i - 1, walking], came_from, rng)
        walking = walking[step.open[walks[i, walking]]]
    return np.ascontiguousarray(walks.T)


def node2vec(
    graph: Graph,
    rank: int = 64,
    *,
    window: int = 5,
    walks_per_node: int = 20,
    length: int | None = None,
    p: float = 1.0,
    q: float = 1.0,
    negative: int = 1,
    epochs: int = 5,
    engine: Literal["gensim", "numpy"] = "gensim",
    seed: int = 0,
    n_threads: int = 1,
    progress: Progress | None = None,
) -> Array:
    """Node vectors by skip-gram with negative sampling over random walks; n×k, float32.

    Vectors z and contexts c maximise Σ log σ(z_u·c_v) over pairs at most `window` steps apart in a walk, and
    log σ(−z_u·c_w) over `negative` random nodes w for each. Walks have `length` nodes (default: the window,
    and at least 2). Nodes without edges get zero vectors. `progress(done, total)` is called after each epoch.

    The engine "gensim" is its Word2Vec: the extra [baselines]. With one thread the same seed gives the same
    bits; several threads update the vectors without locks. "numpy" needs no extra, has c = z, pairs only the
    first node of a walk with those that follow, draws w from all nodes alike, and gives the same bits for
    any number of threads.
    """
    if engine not in ("gensim", "numpy"):
        raise ArgumentError(f'engine must be "gensim" or "numpy", got {shown(engine)}')
    window = integer("window", window, least=1)
    rank, epochs = integer("rank", rank, least=1), integer("epochs", epochs, least=1)
    negative, workers = integer("negative", negative, least=1), integer("n_threads", n_threads, least=1)
    nodes = max(2, window) if length is None else integer("length", length, least=2)
    settings: dict[str, Any] = {
        "rank": rank,
        "window": window,
        "negative": negative,
        "epochs": epochs,
        "seed": seed,
        "length": nodes,
        "walks_per_node": walks_per_node,
        "p": p,
        "q": q,
    }
    if engine == "gensim":
        return _by_gensim(graph, workers=workers, progress=progress, **settings)
    with use_threads(workers):
        return _by_numpy(graph, progress=progress, **settings)


def _by_gensim(
    graph: Graph,
    *,
    rank: int,
    window: int,
    negative: int,
    epochs: int,
    seed: int,
    workers: int,
    progress: Progress | None,
    **walking: Any,
) -> Array:
    gensim = library("gensim.models", "node2vec needs gensim: pip install 'fastgrl[baselines]'")
    vectors = np.zeros((graph.num_nodes, rank), np.float32)
    sentences = _sentences(random_walks(graph, seed=seed, **walking))
    if not sentences:
        return vectors
    model = gensim.Word2Vec(
        sentences,
        vector_size=rank,
        window=window,
        negative=negative,
        epochs=epochs,
        workers=workers,
        seed=seed % 2**32,  # all that its generator takes
        callbacks=[] if progress is None else [_EpochReport(progress, epochs)],
        sg=1,
        min_count=1,
        sample=0,  # frequent nodes are not thinned out
        hashfxn=int,
    )
    vectors[[int(token) for token in model.wv.index_to_key]] = model.wv.vectors
    return vectors


def _by_numpy(
    graph: Graph,
    *,
    window: int,
    length: int,
    walks_per_node: int,
    p: float,
    q: float,
    **settings: Any,
) -> Array:
    n = graph.num_nodes

    def contexts(rng: np.random.Generator) -> Array:
        seed = int(rng.integers(2**63))
        walks = random_walks(graph, length=length, walks_per_node=walks_per_node, p=p, q=q, seed=seed)
        followers = walks.reshape(walks_per_node, n, length)[:, :, 1 : window + 1]
        return followers.transpose(1, 0, 2).reshape(n, -1)

    vectors = skip_gram(contexts, n, **settings)
    alone = np.diff(graph.indptr) == 0
    alone[graph.indices] = False
    vectors[alone] = 0
    return vectors


def _sentences(walks: Array) -> list[list[str]]:
    """Walks of at least two nodes as lists of tokens, one and the same object for each node."""
    tokens = np.array([str(node) for node in range(int(walks.max(initial=-1)) + 1)], object)
    lengths = (walks >= 0).sum(1)
    whole, cut = walks[lengths == walks.shape[1]], (lengths > 1) & (lengths < walks.shape[1])
    short = zip(walks[cut], lengths[cut], strict=True)
    sentences: list[list[str]] = tokens[whole].tolist()
    return sentences + [tokens[walk[:count]].tolist() for walk, count in short]


@dataclass
class _EpochReport:
    """What gensim calls back: the progress of the training, by epochs."""

    progress: Progress
    total: int
    done: int = 0

    def on_train_begin(self, _model: Any) -> None: ...

    def on_train_end(self, _model: Any) -> None: ...

    def on_epoch_begin(self, _model: Any) -> None: ...

    def on_epoch_end(self, _model: Any) -> None:
        self.done += 1
        self.progress(self.done, self.total)


@dataclass(frozen=True, eq=False)
class _Step:
    """One step of many walkers at once."""

    graph: Graph
    cumulative: Array | None  # of the chances, over all rows one after another; None: all neighbours alike
    open: Array  # nodes that a walk can leave
    p: float
    q: float

    @classmethod
    def of(cls, graph: Graph, p: float, q: float) -> _Step:
        if graph.weights is None:
            return cls(graph, None, np.diff(graph.indptr) > 0, p, q)
        # Each row's chances sum to 1 before rows are joined, so that small weights survive beside large.
        rows = np.repeat(np.arange(graph.num_nodes), np.diff(graph.indptr))
        peaks = np.zeros(graph.num_nodes)
        np.maximum.at(peaks, rows, graph.weights)
        shares = graph.weights / np.where(peaks > 0, peaks, 1)[rows]
        sums = np.bincount(rows, shares, graph.num_nodes)
        return cls(graph, np.cumsum(shares / np.where(sums > 0, sums, 1)[rows]), sums > 0, p, q)

    @property
    def first_order(self) -> bool:
        return self.p == self.q == 1

    def __call__(self, at: Array, came_from: Array | None, rng: np.random.Generator) -> Array:
        if came_from is None:
            return self._propose(at, rng)
        found, waiting = np.empty(len(at), np.int64), np.arange(len(at))
        most = max(1 / self.p, 1.0, 1 / self.q)
        for _ in range(_MOST_PROPOSALS):
            proposed = self._propose(at[waiting], rng)
            bias = self._bias(came_from[waiting], proposed)
            accepted = rng.random(len(waiting)) * most < bias
            found[waiting[accepted]] = proposed[accepted]
            waiting = waiting[~accepted]
        if len(waiting):
            found[waiting] = self._choose_listed(at[waiting], came_from[waiting], rng)
        return found

    def _propose(self, at: Array, rng: np.random.Generator) -> Array:
        """A neighbour of each node by the weights of the edges alone."""
        first, last, chance = self.graph.indptr[at], self.graph.indptr[at + 1] - 1, rng.random(len(at))
        if self.cumulative is None:
            edges = first + (chance * (last - first + 1)).astype(np.int64)
        else:
            before = np.where(first > 0, self.cumulative[first - 1], 0.0)
            edges = np.searchsorted(self.cumulative, before + chance, side="right")
        return np.asarray(self.graph.indices[np.clip(edges, first, last)], np.int64)

    def _bias(self, came_from: Array, proposed: Array) -> Array:
        near = self.graph.has_edges(came_from, proposed)
        return np.where(proposed == came_from, 1 / self.p, np.where(near, 1.0, 1 / self.q))

    def _choose_listed(self, at: Array, came_from: Array, rng: np.random.Generator) -> Array:
        counts = self.graph.indptr[at + 1] - self.graph.indptr[at]
        parts = np.cumsum(counts) // _LISTED
        cuts = np.flatnonzero(np.diff(parts)) + 1
        pieces = zip(np.split(at, cuts), np.split(came_from, cuts), strict=True)
        return np.concatenate([self._choose_among_all(*piece, rng) for piece in pieces])

    def _choose_among_all(self, at: Array, came_from: Array, rng: np.random.Generator) -> Array:
        """The same choice with every neighbour's chance at hand: the smallest of exponential times wins."""
        counts = self.graph.indptr[at + 1] - self.graph.indptr[at]
        starts = np.cumsum(counts) - counts
        edges = np.repeat(self.graph.indptr[at] - starts, counts) + np.arange(counts.sum())
        nodes = self.graph.indices[edges].astype(np.int64)
        rates = self._bias(np.repeat(came_from, counts), nodes)
        if self.graph.weights is not None:
            rates = rates * self.graph.weights[edges]
        times = rng.standard_exponential(len(edges))
        times = np.divide(times, rates, out=np.full(len(edges), np.inf), where=rates > 0)
        order = np.lexsort((times, np.repeat(np.arange(len(at)), counts)))
        return np.asarray(nodes[order[starts]])


def _positive(name: str, value: float) -> float:
    number = isinstance(value, int | float | np.floating) and not isinstance(value, bool)
    if not number or not 0 < value < math.inf:
        raise ArgumentError(f"{name} must be a number above 0, got {shown(value)}")
    return float(value)
