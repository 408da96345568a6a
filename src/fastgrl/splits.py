"""Training and test sets that share nothing: held-out edges, non-edges, nodes per class, a check for leaks.

A pair of nodes is numbered by its distance around the circle 0, 1, …, n-1, 0: the pair (u, u + d mod n) is
`d n + u`. Loops are the first n numbers, directed pairs are all n², and unordered pairs are exactly the
first n(n+1)/2 when the shorter way round is taken. So both directions of the map are exact integer
arithmetic, and one mechanism serves directed and undirected, sparse and dense graphs.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
from scipy.sparse.csgraph import minimum_spanning_tree

from fastgrl.checks import Array, integer, shown
from fastgrl.errors import ArgumentError, DtypeError, LeakError, ShapeError
from fastgrl.graph import Graph

# Degree-matched pairs are drawn until there are enough, or listed one and all when there are few.
_MOST_ROUNDS = 64
_LISTED_PAIRS = 1 << 16


@dataclass(frozen=True, eq=False)
class EdgeSplit:
    """A training graph `train`, and the pairs to test it on, (m, 2) arrays of node numbers.

    `held_out` were edges, `negatives` never were.
    """

    train: Graph
    held_out: Array
    negatives: Array


@dataclass(frozen=True, eq=False)
class NodeSplit:
    """Node numbers for `train`, `validation` and `test`, in increasing order; no node is in two of them."""

    train: Array
    validation: Array
    test: Array


def split_edges(
    graph: Graph, *, fraction: float = 0.2, keep_forest: bool = False, seed: int = 0
) -> EdgeSplit:
    """Hold out a random `fraction` of the connected pairs, and draw as many non-edges of the whole graph.

    A pair is held out with every edge between its two nodes: (u, v) is never in training while (v, u) is in
    the test, also in a directed graph, where `held_out` lists both. Self loops stay in training. With
    `keep_forest` a random spanning forest (the minimum one under random weights) stays in training too, so
    that no component falls apart. Weights stay with their edges. The same `seed` gives the same split.

    >>> from fastgrl.splits import split_edges
    >>> graph = fg.Graph.from_edges([(0, 1), (1, 2), (2, 3), (3, 4), (4, 0)])
    >>> split = split_edges(graph, fraction=0.2)
    >>> split.train.num_edges, split.held_out.shape, split.negatives.shape
    (4, (1, 2), (1, 2))
    """
    rng, codes, n = _generator(seed), graph.edge_codes(), graph.num_nodes
    numbers = pair_numbers(codes, n, directed=False)
    connected = _distinct(numbers[numbers >= n])
    out = _among(numbers, _held_out(connected, n, fraction=fraction, keep_forest=keep_forest, rng=rng))
    weights = graph.edge_weights()
    train = graph.with_edges(codes[~out], weights=None if weights is None else weights[~out])
    negatives = _uniform_non_edges(_NonEdges.of(graph), int(out.sum()), rng)
    return EdgeSplit(train, codes[out].astype(np.int64), negatives)


def _held_out(
    connected: Array, num_nodes: int, *, fraction: float, keep_forest: bool, rng: np.random.Generator
) -> Array:
    """Some of the sorted numbers of connected pairs, sorted."""
    count = _count(fraction, len(connected))
    forest = _random_forest(connected, num_nodes, rng) if keep_forest else np.empty(0, np.int64)
    free = np.delete(connected, forest)
    if count > len(free):
        raise ArgumentError(
            f"fraction={fraction} of {len(connected)} pairs is {count}, but at most {len(free)} can be held "
            "out beside a spanning forest; use a smaller fraction, or keep_forest=False"
        )
    return np.sort(rng.choice(free, count, replace=False, shuffle=False))


def _count(fraction: float, total: int) -> int:
    if not isinstance(fraction, int | float | np.floating) or not 0 < fraction < 1:
        raise ArgumentError(f"fraction must be a number between 0 and 1, got {shown(fraction)}")
    if (count := round(float(fraction) * total)) < 1:
        raise ArgumentError(f"fraction={fraction} of {total} pairs is less than one pair; use a larger one")
    return count


def _random_forest(connected: Array, num_nodes: int, rng: np.random.Generator) -> Array:
    """The positions of a spanning forest: the minimum one when the pairs weigh 1, 2, 3, … in random order."""
    order = rng.permutation(len(connected))
    ends = pairs_of_numbers(connected[order], num_nodes, directed=False)
    weights = np.arange(1.0, len(order) + 1)
    graph = sp.coo_array((weights, tuple(ends.T)), shape=(num_nodes, num_nodes)).tocsr()
    kept: Array = order[minimum_spanning_tree(graph).data.astype(np.int64) - 1]
    return kept


def sample_non_edges(
    graph: Graph,
    count: int,
    *,
    seed: int = 0,
    degree_matched: bool = False,
    exclude: Any = None,
    loops: bool = False,
) -> Array:
    """`count` different pairs of nodes without an edge, in random order: a (count, 2) array of node numbers.

    Exact on every graph, however dense: every set of `count` non-edges is as likely as any other. Pairs are
    unordered, with u < v, or ordered if the graph is directed. `exclude` lists further pairs to leave out,
    `loops` lets (u, u) in. With `degree_matched` pairs are drawn one after another with chances in
    proportion to the numbers of neighbours of their two ends (out of the first, in of the second).

    >>> from fastgrl.splits import sample_non_edges
    >>> clique_but_one = fg.Graph.from_edges([(0, 1), (0, 2), (0, 3), (1, 2), (1, 3)])
    >>> sample_non_edges(clique_but_one, 1)
    array([[2, 3]])
    """
    space = _NonEdges.of(graph, exclude=exclude, loops=loops)
    draw = _degree_matched_non_edges if degree_matched else _uniform_non_edges
    return draw(space, integer("count", count, least=0), _generator(seed))


@dataclass(frozen=True, eq=False)
class _NonEdges:
    """The pairs of a graph that are not taken, in the order of their numbers."""

    graph: Graph
    first: int  # loops, if they do not count, are the numbers below this one
    taken: Array  # sorted distinct pair numbers, less `first`
    available: int

    @classmethod
    def of(cls, graph: Graph, *, exclude: Any = None, loops: bool = False) -> _NonEdges:
        n = graph.num_nodes
        first = 0 if loops else n
        edges = (
            [graph.edge_codes()] if exclude is None else [graph.edge_codes(), _pairs(exclude, "exclude", n)]
        )
        numbers = np.concatenate([pair_numbers(codes, n, directed=graph.directed) for codes in edges])
        taken = _distinct(numbers[numbers >= first] - first)
        total = n * n if graph.directed else n * (n + 1) // 2
        return cls(graph, first, taken, total - first - len(taken))

    def at(self, ranks: Array) -> Array:
        """The pairs with the given ranks among the non-edges, in the order of the ranks."""
        # taken[i] has taken[i] - i non-edges below it, so a rank passes every i with taken[i] - i ≤ rank.
        below = self.taken - np.arange(len(self.taken))
        return ranks + np.searchsorted(below, ranks, side="right")

    def pairs(self, numbers: Array) -> Array:
        return pairs_of_numbers(numbers + self.first, self.graph.num_nodes, directed=self.graph.directed)

    def check(self, count: int, available: int, what: str = "") -> None:
        if count > available:
            raise ArgumentError(
                f"{count} non-edges were asked for, but this graph of {self.graph.num_nodes} nodes and "
                f"{self.graph.num_edges} edges has only {available}{what}; ask for fewer"
            )


def _uniform_non_edges(space: _NonEdges, count: int, rng: np.random.Generator) -> Array:
    space.check(count, space.available)
    numbers = space.at(_distinct_integers(space.available, count, rng))
    return space.pairs(rng.permutation(numbers))


def _distinct_integers(total: int, count: int, rng: np.random.Generator) -> Array:
    """A uniform random set of `count` integers below `total`, sorted."""
    if 4 * count >= total:
        return np.sort(rng.permutation(total)[:count])
    found = np.empty(0, np.int64)
    while (missing := count - len(found)) > 0:
        # Enough to make up for the repeats to be expected, and a few more.
        surplus = missing * count // total + 10 * math.isqrt(missing * count // total + 1)
        found = _distinct(np.concatenate([found, rng.integers(total, size=missing + surplus)]))
    return np.delete(found, rng.choice(len(found), len(found) - count, replace=False, shuffle=False))


def _distinct(numbers: Array) -> Array:
    # np.unique takes many times as long for integers.
    ordered = np.sort(numbers)
    return ordered[np.append(True, ordered[1:] != ordered[:-1])] if len(ordered) else ordered


def _degree_matched_non_edges(space: _NonEdges, count: int, rng: np.random.Generator) -> Array:
    space.check(count, space.available)
    if space.available <= _LISTED_PAIRS + 4 * count:
        return _from_all_listed(space, count, rng)
    found = np.empty(0, np.int64)
    for _ in range(_MOST_ROUNDS):
        if len(found) >= count:
            return space.pairs(found[:count])
        fresh = _draw_by_degree(space, 2 * (count - len(found)) + 1000, rng)
        found = _first_occurrences(np.concatenate([found, fresh]))
    raise ArgumentError(
        f"only {len(found)} of {count} degree-matched non-edges turned up in {_MOST_ROUNDS} rounds: nearly "
        "all likely pairs are edges; ask for fewer, or use degree_matched=False"
    )


def _draw_by_degree(space: _NonEdges, size: int, rng: np.random.Generator) -> Array:
    """Numbers of free pairs whose ends are ends of two random edges."""
    graph = space.graph
    if not len(graph.indices):
        return np.empty(0, np.int64)
    out, into = rng.integers(len(graph.indices), size=(2, size))
    sources = np.searchsorted(graph.indptr, out, side="right") - 1
    codes = np.stack([sources, graph.indices[into].astype(np.int64)], axis=1)
    numbers = pair_numbers(codes, graph.num_nodes, directed=graph.directed) - space.first
    numbers = numbers[numbers >= 0]
    return numbers[~_among(numbers, space.taken)]


def _first_occurrences(numbers: Array) -> Array:
    order = np.argsort(numbers, kind="stable")
    ordered = numbers[order]
    return numbers[np.sort(order[np.append(True, ordered[1:] != ordered[:-1])])] if len(numbers) else numbers


def _from_all_listed(space: _NonEdges, count: int, rng: np.random.Generator) -> Array:
    """The same draws one after another: the order of exponential times whose rates are the pairs' weights."""
    pairs = space.pairs(space.at(np.arange(space.available)))
    out = np.diff(space.graph.indptr)
    into = np.bincount(space.graph.indices, minlength=len(out))
    rates = (out[pairs[:, 0]] * into[pairs[:, 1]]).astype(np.float64)
    if not space.graph.directed:
        rates[pairs[:, 0] == pairs[:, 1]] /= 2  # other unordered pairs can be drawn both ways round
    pairs, rates = pairs[rates > 0], rates[rates > 0]
    space.check(count, len(pairs), " between nodes with neighbours")
    return pairs[np.argsort(rng.standard_exponential(len(rates)) / rates, kind="stable")[:count]]


def pair_numbers(codes: Array, num_nodes: int, *, directed: bool) -> Array:
    """The number `d n + u` of each pair (u, u + d mod n), d being at most n/2 for unordered pairs."""
    u, v = (codes[:, side].astype(np.int64) for side in (0, 1))
    d = v - u
    d += num_nodes * (d < 0)
    if not directed:
        turned = (2 * d > num_nodes) | ((2 * d == num_nodes) & (u > v))
        u, d = np.where(turned, v, u), np.where(turned, num_nodes - d, d)
    return d * num_nodes + u


def pairs_of_numbers(numbers: Array, num_nodes: int, *, directed: bool) -> Array:
    """The inverse of `pair_numbers`: an (m, 2) array, the smaller node first unless `directed`."""
    d, u = np.divmod(numbers, num_nodes)
    v = u + d
    v -= num_nodes * (v >= num_nodes)
    return np.stack([u, v] if directed else [np.minimum(u, v), np.maximum(u, v)], axis=1)


def assert_no_leak(
    train: Graph, positives: Any, negatives: Any = None, *, graph: Graph | None = None
) -> None:
    """Raise `LeakError` if test pairs, (m, 2) arrays of node numbers, are not what they should be.

    No positive may be an edge of `train`; no negative an edge of `train`, an edge of `graph` (the whole
    graph, if given) or a positive; no pair may occur twice. Pairs are unordered unless `train` is directed.
    The message counts the offending pairs and names the first by its ids.

    >>> from fastgrl.splits import assert_no_leak
    >>> graph = fg.Graph.from_edges([("ann", "bob"), ("bob", "eve")])
    >>> assert_no_leak(graph, [[0, 1]])
    Traceback (most recent call last):
    fastgrl.errors.LeakError: 1 of 1 positives is in train, first ('ann', 'bob'); leave them out
    """
    whole = train if graph is None else graph
    if (whole.num_nodes, whole.directed) != (train.num_nodes, train.directed):
        raise ShapeError(f"train ({train!r}) and graph ({whole!r}) must have the same nodes and direction")
    tests = {"positives": positives} | ({} if negatives is None else {"negatives": negatives})
    pairs = {name: _pairs(values, name, train.num_nodes) for name, values in tests.items()}
    numbers = {
        name: pair_numbers(codes, train.num_nodes, directed=train.directed) for name, codes in pairs.items()
    }
    for name, codes in pairs.items():
        _refuse(train, name, codes, train.has_edges(*codes.T), "in train")
        _refuse(train, name, codes, _is_repeat(numbers[name]), "there twice")
    if negatives is not None:
        codes = pairs["negatives"]
        _refuse(train, "negatives", codes, whole.has_edges(*codes.T), "in graph")
        known = _among(numbers["negatives"], np.sort(numbers["positives"]))
        _refuse(train, "negatives", codes, known, "among the positives")


def _refuse(graph: Graph, name: str, codes: Array, wrong: Array, what: str) -> None:
    if count := int(np.count_nonzero(wrong)):
        one, other = (shown(graph.node_ids[node]) for node in codes[int(np.argmax(wrong))])
        verb = "is" if count == 1 else "are"
        raise LeakError(
            f"{count} of {len(codes)} {name} {verb} {what}, first ({one}, {other}); leave them out"
        )


def _is_repeat(numbers: Array) -> Array:
    repeat = np.ones(len(numbers), bool)
    order = np.argsort(numbers, kind="stable")
    repeat[order] = np.append(False, numbers[order][1:] == numbers[order][:-1])[: len(numbers)]
    return repeat


def _among(numbers: Array, ordered: Array) -> Array:
    """Whether each number is in the sorted array."""
    place = np.searchsorted(ordered, numbers)
    found = place < len(ordered)
    found[found] = ordered[place[found]] == numbers[found]
    return found


def _pairs(values: Any, name: str, num_nodes: int) -> Array:
    pairs = np.asarray(values)
    if pairs.size == 0:
        return np.empty((0, 2), np.int64)
    if pairs.ndim != 2 or pairs.shape[1] != 2:
        raise ShapeError(f"{name} must be pairs of node numbers, an (m, 2) array, got shape {pairs.shape}")
    if pairs.dtype.kind not in "ui":
        raise DtypeError(
            f"{name} must be node numbers, not {pairs.dtype}; graph.index_of turns ids into them"
        )
    outside = (pairs < 0) | (pairs >= num_nodes)
    if outside.any():
        row, column = np.argwhere(outside)[0]
        raise ArgumentError(
            f"{name}: {pairs[row, column]} in row {row} is outside a graph of {num_nodes} nodes"
        )
    return pairs.astype(np.int64)


def split_nodes(
    y: Any, *, per_class: int = 20, validation: int = 500, test: int = 1000, seed: int = 0
) -> NodeSplit:
    """Draw `per_class` training nodes of every class, then validation and test nodes from the rest.

    `y` holds one label per node, integers or text; −1 is unlabelled and never drawn. `validation` and `test`
    are how many nodes, whatever their classes.

    >>> from fastgrl.splits import split_nodes
    >>> split = split_nodes([0, 0, 0, 1, 1, 1, -1], per_class=1, validation=1, test=2)
    >>> len(split.train), len(split.validation), len(split.test)
    (2, 1, 2)
    """
    per_class = integer("per_class", per_class, least=1)
    validation, test = integer("validation", validation, least=0), integer("test", test, least=0)
    labels = _labels(y)
    known = np.ones(len(labels), bool) if labels.dtype.kind == "U" else labels != -1
    nodes = _generator(seed).permutation(np.flatnonzero(known))
    chosen = _rank_within_class(labels[nodes], per_class) < per_class
    rest = nodes[~chosen]
    if len(rest) < validation + test:
        raise ArgumentError(
            f"{len(rest)} labelled nodes are left after training takes {int(chosen.sum())}, fewer than "
            f"validation={validation} and test={test} together; lower one of the three"
        )
    parts = nodes[chosen], rest[:validation], rest[validation : validation + test]
    return NodeSplit(*map(np.sort, parts))


def _rank_within_class(labels: Array, per_class: int) -> Array:
    """How many earlier nodes have the same label."""
    classes, codes, counts = np.unique(labels, return_inverse=True, return_counts=True)
    if not len(classes):
        raise ArgumentError("y has no labelled node; -1 means unlabelled")
    few = int(np.argmin(counts))
    if counts[few] < per_class:
        raise ArgumentError(
            f"class {shown(classes[few])} has {counts[few]} labelled nodes, fewer than per_class={per_class}"
        )
    starts = np.cumsum(counts) - counts
    rank = np.empty(len(codes), np.int64)
    rank[np.argsort(codes, kind="stable")] = np.arange(len(codes)) - np.repeat(starts, counts)
    return rank


def _labels(y: Any) -> Array:
    labels = np.asarray(y)
    if labels.dtype.kind == "O" and all(isinstance(label, str) for label in labels.flat):
        labels = labels.astype(np.str_)
    if labels.ndim != 1:
        raise ShapeError(f"y must hold one label per node (1-D), got shape {labels.shape}")
    if labels.size and labels.dtype.kind not in "buiU":
        raise DtypeError(f"y of {labels.dtype} holds no labels; use integers (-1 for unlabelled) or text")
    return labels


def _generator(seed: int) -> np.random.Generator:
    return np.random.Generator(np.random.Philox(integer("seed", seed, least=0)))
