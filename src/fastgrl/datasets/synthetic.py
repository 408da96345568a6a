"""Graphs of any size from a seed: two with classes and words, and the generator of the Graph500 benchmark."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import scipy.sparse as sp

from fastgrl.assembly import Rows
from fastgrl.checks import Array, integer
from fastgrl.datasets.records import NodeDataset, stratified_split
from fastgrl.errors import ArgumentError
from fastgrl.graph import Graph
from fastgrl.parallel import parallel_map

_LARGEST_SEED = 2**64 - 1
_LARGEST_SCALE = 30
# Edges are drawn in pieces, each from a stream of its own, whatever the chunk or the number of threads.
_PIECE = 1 << 16
_SHUFFLE_STREAM = 2**64 - 1
# Graph500: a quadrant is chosen with probability .57, .19, .19 or .05, here in units of 1/65536.
_QUADRANTS = np.array([0.57, 0.76, 0.95])
_THRESHOLDS = np.rint(_QUADRANTS * 65536).astype(np.uint16)


def block_model(
    num_nodes: int,
    *,
    num_classes: int = 5,
    mean_degree: float = 10.0,
    degree_exponent: float = 2.5,
    mixing: float = 0.2,
    num_features: int = 500,
    words_per_node: int = 20,
    topic_share: float = 0.3,
    train_per_class: int = 20,
    validation_per_class: int = 50,
    seed: int = 0,
) -> NodeDataset:
    """Draw a graph with classes and bags of words: a degree-corrected stochastic block model.

    An edge starts at a node drawn in proportion to its weight, a power law with `degree_exponent`, and ends
    likewise, with probability 1 − `mixing` within the class and otherwise anywhere. Loops are left out and
    repeats merged, so the mean degree is a little lower than `mean_degree`. Each node has `words_per_node`
    draws from `num_features` words: a word is one of the class's own with probability `topic_share`, else
    any, the i-th with probability proportional to 1/i. Of every class `train_per_class` nodes are for
    training and `validation_per_class` for validation, the rest for the test. Time O(m log n).

    >>> from fastgrl.datasets import block_model
    >>> data = block_model(1000, num_classes=3, seed=1)
    >>> data.X.shape, len(data.train), len(data.test)
    ((1000, 500), 60, 790)
    """
    n = integer("num_nodes", num_nodes, least=1)
    classes = integer("num_classes", num_classes, least=1, most=n)
    _check_model(mean_degree, degree_exponent, mixing, topic_share)
    words = integer("num_features", num_features, least=classes)
    draws = integer("words_per_node", words_per_node, least=0)
    rng = np.random.Generator(np.random.Philox(integer("seed", seed, least=0, most=_LARGEST_SEED)))
    y = np.sort(rng.permutation(np.arange(n) % classes))
    # Nodes of a class are neighbours until the end, so that a class is an interval of the cumulated weights.
    weights = rng.permuted(_power_law(n, degree_exponent, mean_degree))
    edges = _block_edges(rng, y, weights, round(n * mean_degree / 2), mixing)
    X = _bags(rng, np.repeat(y, draws), n, words, topic_share, classes)
    place = rng.permutation(n)
    y = y[np.argsort(place)]
    train, validation, test = stratified_split(
        y,
        train=integer("train_per_class", train_per_class, least=0),
        validation=integer("validation_per_class", validation_per_class, least=0),
        seed=seed,
    )
    graph = Graph.from_codes(place[edges[0]], place[edges[1]], num_nodes=n)
    return NodeDataset("block-model", graph, X[np.argsort(place)], y, train, validation, test)


def overlapping_blocks(
    num_nodes: int,
    *,
    num_labels: int = 5,
    labels_per_node: float = 1.5,
    mean_degree: float = 10.0,
    degree_exponent: float = 2.5,
    mixing: float = 0.2,
    num_features: int = 500,
    words_per_node: int = 20,
    topic_share: float = 0.3,
    train_per_label: int = 20,
    validation_per_label: int = 50,
    seed: int = 0,
) -> NodeDataset:
    """Draw a graph whose nodes have several labels each: a block model with blocks that overlap.

    `y` is n×C, 0/1. A node has one label that it is counted by in the split, as many nodes for each, and any
    other with a chance that makes `labels_per_node` the mean. An edge is drawn as in `block_model`, within
    one of the labels of the node it starts at, and a word of its own is one of a label's own; which of its
    labels is left to chance each time. All other parameters are those of `block_model`. Time O(m log n).

    >>> from fastgrl.datasets import overlapping_blocks
    >>> data = overlapping_blocks(1000, num_labels=4, seed=1)
    >>> data.y.shape, int(data.y.sum(1).min()), len(data.train)
    ((1000, 4), 1, 80)
    """
    n = integer("num_nodes", num_nodes, least=1)
    labels = integer("num_labels", num_labels, least=1, most=n)
    _check_model(mean_degree, degree_exponent, mixing, topic_share)
    if not 1 <= labels_per_node <= labels:
        raise ArgumentError(f"labels_per_node must be between 1 and {labels}, got {labels_per_node!r}")
    words = integer("num_features", num_features, least=labels)
    draws = integer("words_per_node", words_per_node, least=0)
    rng = np.random.Generator(np.random.Philox(integer("seed", seed, least=0, most=_LARGEST_SEED)))
    first = rng.permutation(np.arange(n) % labels)
    y = rng.random((n, labels)) < (labels_per_node - 1) / max(labels - 1, 1)
    y[np.arange(n), first] = True
    weights = rng.permuted(_power_law(n, degree_exponent, mean_degree))
    edges = _overlapping_edges(rng, y, weights, round(n * mean_degree / 2), mixing)
    X = _bags(rng, _one_label_each(rng, y, np.repeat(np.arange(n), draws)), n, words, topic_share, labels)
    train, validation, test = stratified_split(
        first,
        train=integer("train_per_label", train_per_label, least=0),
        validation=integer("validation_per_label", validation_per_label, least=0),
        seed=seed,
    )
    graph = Graph.from_codes(*edges, num_nodes=n)
    return NodeDataset("overlapping-blocks", graph, X, y.astype(np.int64), train, validation, test)


def _one_label_each(rng: np.random.Generator, y: Array, nodes: Array) -> Array:
    """For each of these nodes one of its labels, all alike."""
    _, labels = y.nonzero()  # node after node
    counts = y.sum(1)
    starts = np.cumsum(counts) - counts
    return np.asarray(labels[starts[nodes] + (rng.random(len(nodes)) * counts[nodes]).astype(np.int64)])


def _overlapping_edges(
    rng: np.random.Generator, y: Array, weights: Array, count: int, mixing: float
) -> tuple[Array, Array]:
    ends = np.cumsum(weights)
    sources = _locate(ends, rng.random(count) * ends[-1])
    label = _one_label_each(rng, y, sources)
    numbers, members = y.T.nonzero()  # label after label: each is an interval of the weights of its members
    member_ends = np.cumsum(weights[members])
    highs = member_ends[np.cumsum(np.bincount(numbers)) - 1]
    lows = np.append(0.0, highs[:-1])
    within = members[_locate(member_ends, lows[label] + rng.random(count) * (highs - lows)[label])]
    anywhere = _locate(ends, rng.random(count) * ends[-1])
    targets = np.where(rng.random(count) >= mixing, within, anywhere)
    proper = sources != targets
    return sources[proper], targets[proper]


def _check_model(mean_degree: float, degree_exponent: float, mixing: float, topic_share: float) -> None:
    if not 0 <= mean_degree < math.inf:
        raise ArgumentError(f"mean_degree must be at least 0, got {mean_degree!r}")
    if not degree_exponent > 1:
        raise ArgumentError(f"degree_exponent must be above 1, got {degree_exponent!r}")
    for name, share in (("mixing", mixing), ("topic_share", topic_share)):
        if not 0 <= share <= 1:
            raise ArgumentError(f"{name} must be between 0 and 1, got {share!r}")


def _power_law(count: int, exponent: float, mean_degree: float) -> Array:
    """Weights that sum to 1, none so large that its node would mostly meet the same neighbours again."""
    weights = np.arange(1.0, count + 1) ** (-1 / (exponent - 1))
    weights = np.minimum(weights / weights.sum(), max(1 / count, (count * max(mean_degree, 1)) ** -0.5))
    return np.asarray(weights / weights.sum())


def _block_edges(
    rng: np.random.Generator, y: Array, weights: Array, count: int, mixing: float
) -> tuple[Array, Array]:
    ends = np.cumsum(weights)
    class_ends = ends[np.cumsum(np.bincount(y)) - 1]
    class_starts = np.append(0.0, class_ends[:-1])
    sources = _locate(ends, rng.random(count) * ends[-1])
    within = rng.random(count) >= mixing
    low = np.where(within, class_starts[y[sources]], 0.0)
    high = np.where(within, class_ends[y[sources]], ends[-1])
    targets = _locate(ends, low + rng.random(count) * (high - low))
    proper = sources != targets
    return sources[proper], targets[proper]


def _locate(ends: Array, points: Array) -> Array:
    return np.minimum(np.searchsorted(ends, points, side="right"), len(ends) - 1)


def _bags(
    rng: np.random.Generator, topics: Array, num_nodes: int, words: int, topic_share: float, classes: int
) -> sp.csr_array:
    """0/1 features: one word for each topic, those of a node one after another.

    A class's own words are every C-th from its number on.
    """
    count = len(topics)
    rows = np.repeat(np.arange(num_nodes), count // num_nodes)
    common = _locate(np.cumsum(1 / np.arange(1.0, words + 1)), rng.random(count) * _harmonic(words))
    own = topics + classes * rng.integers(words // classes, size=count)
    columns = np.where(rng.random(count) < topic_share, own, common)
    keys = _distinct(rows * words + columns)
    starts = np.searchsorted(keys, np.arange(num_nodes + 1) * words)
    values = np.ones(len(keys), np.float32)
    return sp.csr_array((values, keys % words, starts), shape=(num_nodes, words))


def _harmonic(count: int) -> float:
    return float((1 / np.arange(1.0, count + 1)).sum())


def rmat(
    scale: int, *, edge_factor: int = 16, seed: int = 0, shuffle: bool = True, chunk: int = 1 << 19
) -> Graph:
    """Draw the undirected graph of the Graph500 benchmark: 2^`scale` nodes, `edge_factor` draws for each.

    Every edge falls, `scale` times over, into a quadrant of the adjacency matrix with probability .57, .19,
    .19 and .05. Self loops are kept, repeats merged and counted in `repeats`; `shuffle` renumbers the nodes
    at random. The edges are drawn twice, `chunk` at a time, once to count and once to store, and never held,
    so memory peaks below twice the finished rows once these are large. Neither `chunk` nor the number of
    threads changes the result.

    >>> from fastgrl.datasets import rmat
    >>> rmat(10, edge_factor=8).num_nodes
    1024
    """
    edges = rmat_edges(scale, edge_factor=edge_factor, seed=seed, shuffle=shuffle)
    source = _Source(edges, integer("chunk", chunk, least=1))
    n = 1 << edges.scale
    starts = np.zeros(n + 1, np.int64)
    for rows, lengths, _ in source.pieces():
        starts[rows + 1] += lengths
    np.cumsum(starts, out=starts)
    indices = _stored(source, starts)
    indptr, loops = _merge_rows(indices, starts, chunk)
    indices.resize(int(indptr[-1]), refcheck=False)  # gives the rest back without a second array
    repeats = edges.num_edges - (len(indices) + loops) // 2
    return Graph._built(Rows(indptr, indices, None), np.arange(n), directed=False, repeats=repeats)


def rmat_edges(scale: int, *, edge_factor: int = 16, seed: int = 0, shuffle: bool = True) -> RmatEdges:
    """Name the edges that `rmat` merges, in the order in which they are drawn; none is drawn yet.

    For what is too large to be held, or to be written to a file piece by piece.

    >>> from fastgrl.datasets.synthetic import rmat_edges
    >>> edges = rmat_edges(14, edge_factor=8)
    >>> edges.num_edges, edges.num_pieces, len(edges.piece(0)[0])
    (131072, 2, 65536)
    """
    n = 1 << integer("scale", scale, least=0, most=_LARGEST_SCALE)
    count = n * integer("edge_factor", edge_factor, least=0)
    numbering = _numbering(n, integer("seed", seed, least=0, most=_LARGEST_SEED), shuffle)
    return RmatEdges(scale, count, seed, numbering)


@dataclass(frozen=True, eq=False)
class RmatEdges:
    """Sources and targets of an R-MAT graph in pieces of 65536 edges, drawn anew whenever one is wanted."""

    scale: int
    num_edges: int
    seed: int
    numbering: Array | None

    @property
    def num_pieces(self) -> int:
        """How many pieces there are; the last may be short."""
        return -(-self.num_edges // _PIECE)

    def piece(self, number: int) -> tuple[Array, Array]:
        """Node numbers of both ends, int32."""
        size = min(_PIECE, self.num_edges - number * _PIECE)
        sources, targets = _draw(_stream(self.seed, number), self.scale, size)
        if self.numbering is None:
            return sources, targets
        return self.numbering[sources], self.numbering[targets]


def _numbering(n: int, seed: int, shuffle: bool) -> Array | None:
    return _stream(seed, _SHUFFLE_STREAM).permutation(np.arange(n, dtype=np.int32)) if shuffle else None


def _stream(seed: int, number: int) -> np.random.Generator:
    return np.random.Generator(np.random.Philox(key=np.array([seed, number], np.uint64)))


Piece = tuple[Array, Array, Array]
Item = TypeVar("Item")


@dataclass(frozen=True, eq=False)
class _Source:
    """The same edges as often as asked, each piece sorted."""

    edges: RmatEdges
    chunk: int

    def pieces(self) -> Iterator[Piece]:
        """Rows that occur in a piece, how many entries each has, and the columns of all of them."""
        for batch in _batches(range(self.edges.num_pieces), self.chunk):
            yield from parallel_map(self._piece, batch)

    def _piece(self, number: int) -> Piece:
        u, v = (side.astype(np.int64) for side in self.edges.piece(number))
        keys = _distinct(np.concatenate([u << 32 | v, (v << 32 | u)[u != v]]))
        begin = np.flatnonzero(_first_of_equals(keys >> 32))
        return keys[begin] >> 32, np.diff(begin, append=len(keys)), _columns(keys)


def _batches(pieces: Sequence[Item], chunk: int) -> Iterator[Sequence[Item]]:
    step = max(1, chunk // _PIECE)
    return (pieces[first : first + step] for first in range(0, len(pieces), step))


def _draw(rng: np.random.Generator, scale: int, size: int) -> tuple[Array, Array]:
    sides = np.zeros((2, size), np.int32)
    for level in range(0, scale, 8):  # eight bits at a time: a byte takes a quarter of the traffic
        levels = min(8, scale - level)
        sides <<= levels
        sides |= _bits(rng, levels, size)
    return sides[0], sides[1]


def _bits(rng: np.random.Generator, levels: int, size: int) -> Array:
    sides = np.zeros((2, size), np.uint8)
    a, b, c = _THRESHOLDS
    for _ in range(levels):
        r = rng.bit_generator.random_raw(-(-size // 4)).view(np.uint16)[:size]
        lower = r >= b
        sides += sides
        sides[0] += lower
        sides[1] += (r >= a) ^ lower ^ (r >= c)
    return sides


def _distinct(keys: Array) -> Array:
    keys.sort()
    return keys[_first_of_equals(keys)]


def _columns(keys: Array) -> Array:
    """The lower halves of keys row·2³² + column."""
    return keys.astype(np.int32)


def _first_of_equals(values: Array) -> Array:
    first = np.ones(len(values), bool)
    np.not_equal(values[1:], values[:-1], out=first[1:])
    return first


def _stored(source: _Source, starts: Array) -> Array:
    """The columns of every row, those of one piece after those of the one before."""
    indices = np.empty(int(starts[-1]), np.int32)
    ends = starts[:-1].copy()
    for rows, lengths, columns in source.pieces():
        offsets = ends[rows] - (np.cumsum(lengths) - lengths)
        indices[np.repeat(offsets, lengths) + np.arange(len(columns))] = columns
        ends[rows] += lengths
    return indices


def _merge_rows(indices: Array, starts: Array, chunk: int) -> tuple[Array, int]:
    """Sort every row and drop repeats, some rows at a time; what is left moves to the front of `indices`.

    Returns the row pointers and the number of self loops.
    """
    indptr = np.zeros(len(starts), np.int64)

    def merge(bounds: tuple[int, int]) -> tuple[Array, Array, int]:
        first, last = bounds
        rows = np.repeat(np.arange(last - first), np.diff(starts[first : last + 1]))
        keys = _distinct(rows << 32 | indices[starts[first] : starts[last]])
        columns = _columns(keys)
        ends = np.searchsorted(keys, np.arange(1, last - first + 1) << 32)
        return ends, columns, int(np.count_nonzero((keys >> 32) + first == columns))

    filled = loops = 0
    for batch in _batches(list(itertools.pairwise(_row_cuts(starts))), chunk):
        for (first, last), (ends, columns, own) in zip(batch, parallel_map(merge, batch), strict=True):
            indptr[first + 1 : last + 1] = filled + ends
            indices[filled : filled + len(columns)] = columns
            filled += len(columns)
            loops += own
    return indptr, loops


def _row_cuts(starts: Array) -> list[int]:
    """Row numbers between which there are no more entries than a piece may have, unless in a single row."""
    cuts = [0]
    while cuts[-1] < len(starts) - 1:
        following = int(np.searchsorted(starts, starts[cuts[-1]] + 2 * _PIECE, side="right")) - 1
        cuts.append(max(following, cuts[-1] + 1))
    return cuts
