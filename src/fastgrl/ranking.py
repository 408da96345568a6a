"""The best candidates of each node, exactly: every pair is scored, a block at a time, and the best are kept.

The order is by falling score and, among equal scores, by rising node number. It does not depend on how the
pairs were cut into blocks, nor on threads, as long as the score of a pair does not either. `dot_block` sees
to that for dot products, where a plain matrix product rounds differently in blocks of different shapes.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from fastgrl.checks import Array, finite_array, integer, shown, size
from fastgrl.errors import ArgumentError, DtypeError, NotFiniteError, ShapeError
from fastgrl.graph import Graph
from fastgrl.parallel import parallel_map, use_threads

ScoreBlock: TypeAlias = Callable[[Array, Any], Any]
Progress: TypeAlias = Callable[[int, int], None]

# A matrix product cut into tiles of one shape, whole numbers of the small tiles inside any BLAS, rounds a
# pair's score the same wherever it stands and whatever is asked beside it.
_TILE_ROWS, _TILE_COLUMNS = 48, 768

# Bytes for each score of a block: itself, as the caller made it, and where it is partly sorted.
_BYTES_PER_SCORE = 24
_PANEL_COLUMNS = 16 * _TILE_COLUMNS

# A few queries against many candidates are still several pieces of work.
_LEAST_ROWS, _PIECES = _TILE_ROWS, 8

_ROWS_SHOWN = 5


@dataclass(frozen=True, eq=False)
class Best:
    """The k best candidates of each query, best first: node numbers and scores, (q, k) each.

    Where a query has fewer than k candidates, the rest of its row is -1 with a score of -inf.
    """

    codes: Array
    scores: Array


@dataclass(frozen=True, eq=False, repr=False)
class Recommendations:
    """Missing links, as three arrays of one length: who, with whom, and how likely (larger is likelier).

    `nodes` and `targets` hold ids, `scores` numbers. Rows are grouped by node, in the order the nodes were
    asked for, with the best first. Iterate for triples.

    >>> from fastgrl.ranking import Recommendations
    >>> nodes, targets = np.array(["ann", "ann"]), np.array(["eve", "tom"])
    >>> found = Recommendations(nodes, targets, np.array([0.9, 0.25]))
    >>> found
    <Recommendations: 2 links for 1 node>
      'ann' → 'eve'  0.9
      'ann' → 'tom'  0.25
    >>> found.as_dict()
    {'ann': [('eve', 0.9), ('tom', 0.25)]}
    """

    nodes: Array
    targets: Array
    scores: Array

    def __post_init__(self) -> None:
        lengths = {name: len(getattr(self, name)) for name in ("nodes", "targets", "scores")}
        if len(set(lengths.values())) > 1:
            listed = ", ".join(f"{count} {name}" for name, count in lengths.items())
            raise ShapeError(f"recommendations are three arrays of one length, got {listed}")

    def __len__(self) -> int:
        return len(self.nodes)

    def __iter__(self) -> Iterator[tuple[Any, Any, float]]:
        return zip(self.nodes.tolist(), self.targets.tolist(), self.scores.tolist(), strict=True)

    def __repr__(self) -> str:
        asked, links = len(set(self.nodes.tolist())), len(self)
        head = f"<Recommendations: {links} link{'s' * (links != 1)} for {asked} node{'s' * (asked != 1)}>"
        first = self.nodes[:_ROWS_SHOWN], self.targets[:_ROWS_SHOWN], self.scores[:_ROWS_SHOWN]
        rows = [f"  {shown(u)} → {shown(v)}  {score:.4g}" for u, v, score in Recommendations(*first)]
        return "\n".join([head, *rows, *["  …"] * (links > _ROWS_SHOWN)])

    def as_dict(self) -> dict[Any, list[tuple[Any, float]]]:
        """For each node with recommendations, its (target, score) pairs, best first."""
        found: dict[Any, dict[Any, float]] = {}
        for node, target, score in self:
            found.setdefault(node, {})[target] = score
        return {node: list(targets.items()) for node, targets in found.items()}


def as_recommendations(best: Best, query_ids: Any, node_ids: Any) -> Recommendations:
    """Node numbers as ids: `query_ids[i]` is the id of row i of `best`, `node_ids[v]` that of node v.

    >>> from fastgrl.ranking import Best, as_recommendations
    >>> best = Best(np.array([[2, -1]]), np.array([[0.5, -np.inf]]))
    >>> list(as_recommendations(best, np.array(["ann"]), np.array(["ann", "bob", "eve"])))
    [('ann', 'eve', 0.5)]
    """
    queries, nodes = np.asarray(query_ids), np.asarray(node_ids)
    if len(queries) != len(best.codes):
        raise ShapeError(f"there are {len(queries)} query ids for {len(best.codes)} queries")
    rows, places = np.nonzero(best.codes >= 0)
    return Recommendations(queries[rows], nodes[best.codes[rows, places]], best.scores[rows, places])


def dot_block(left: Any, right: Any) -> ScoreBlock:
    """The score left_u · right_v in float64, for `best_candidates`; n×d arrays, float32 or float64.

    The score of a pair has the same bits whatever else is in its block.

    >>> from fastgrl.ranking import dot_block
    >>> dot_block(np.eye(3), 2 * np.eye(3))(np.array([1]), slice(0, 2))
    array([[0., 2.]])
    """
    L, R = finite_array(left, "left", ndim=2), finite_array(right, "right", ndim=2)
    if L.shape[1] != R.shape[1]:
        raise ShapeError(f"left ({size(L.shape)}) and right ({size(R.shape)}) differ in their columns")
    return lambda rows, columns: _tiled_product(L[rows], R[columns])


def _tiled_product(left: Array, right: Array) -> Array:
    product = np.empty((len(left), len(right)))
    tiles = [(i, _padded(left[i : i + _TILE_ROWS], _TILE_ROWS)) for i in range(0, len(left), _TILE_ROWS)]
    for j in range(0, len(right), _TILE_COLUMNS):
        columns = _padded(right[j : j + _TILE_COLUMNS], _TILE_COLUMNS).T
        for i, rows in tiles:
            target = product[i : i + _TILE_ROWS, j : j + _TILE_COLUMNS]
            target[:] = (rows @ columns)[: target.shape[0], : target.shape[1]]
    return product


def _padded(part: Array, count: int) -> Array:
    tile = np.zeros((count, part.shape[1]))
    tile[: len(part)] = part
    return tile


def best_candidates(
    score_block: ScoreBlock,
    queries: Any,
    *,
    num_nodes: int,
    k: int,
    known: Graph | None,
    candidates: Any = None,
    symmetric: bool = True,
    progress: Progress | None = None,
    n_threads: int | None = None,
    block_bytes: int = 64 << 20,
) -> Best:
    """For each query the k candidates with the largest scores, the query and its known links left out.

    score_block: `score_block(rows, columns)` returns the scores of node numbers `rows` (an array) against
        `columns` (a slice, or an array if `candidates` are given), len(rows) × len(columns). It is called
        from several threads. NaN is refused; a pair that scores -inf is never among the best.
    queries: node numbers; repeats are answered each time.
    known: the graph whose links are left out, or None.
    candidates: node numbers that may be recommended (default: all).
    symmetric: a score that knows no direction makes v → u known for u as well; False leaves out u → v only.
    progress: called as `progress(done, total)` with numbers of queries.
    block_bytes: about what each thread holds at a time.

    >>> from fastgrl.ranking import best_candidates, dot_block
    >>> graph = fg.Graph.from_edges([(0, 1), (1, 2), (2, 3)])
    >>> x = np.array([[1.0], [2.0], [3.0], [4.0]])
    >>> best_candidates(dot_block(x, x), [0, 2], num_nodes=4, k=2, known=graph).codes
    array([[ 3,  2], [ 0, -1]])
    """
    n, k = integer("num_nodes", num_nodes, least=0), integer("k", k, least=1)
    rows = node_numbers(queries, "queries", n)
    allowed = None if candidates is None else np.unique(node_numbers(candidates, "candidates", n))
    count = n if allowed is None else len(allowed)
    search = _Search(score_block, allowed, count, min(k, count), _known_rows(known, n, symmetric))
    plan = _plan(len(rows), count, integer("block_bytes", block_bytes, least=1))
    report = _Reporter(progress, len(rows))

    def work(begin: int) -> tuple[Array, Array]:
        block = rows[begin : begin + plan.rows]
        found = _best_of_rows(search, block, plan.columns)
        report(len(block))
        return found

    with use_threads(n_threads):
        parts = parallel_map(work, range(0, len(rows), plan.rows))
    return _gathered(parts, len(rows), k)


def node_numbers(values: Any, name: str, num_nodes: int) -> Array:
    """`values` as int64 node numbers from 0 to `num_nodes` - 1; anything else is named and refused.

    >>> from fastgrl.ranking import node_numbers
    >>> node_numbers([2, 0], "queries", 3)
    array([2, 0])
    """
    codes = np.asarray(values)
    if codes.ndim != 1:
        raise ShapeError(f"{name} must be a list of node numbers, got shape {codes.shape}")
    if codes.size and codes.dtype.kind not in "ui":
        raise DtypeError(f"{name} must be integer node numbers, not {codes.dtype}")
    outside = codes[(codes < 0) | (codes >= num_nodes)] if codes.size else codes
    if outside.size:
        raise ArgumentError(f"{name}: {outside[0]} is outside 0..{num_nodes - 1}, {num_nodes} nodes in all")
    return codes.astype(np.int64)


@dataclass(frozen=True, eq=False)
class _Search:
    """What is the same for all rows; candidates go by their position among the sorted ones."""

    score_block: ScoreBlock
    allowed: Array | None
    count: int
    k: int
    known: list[tuple[Array, Array]]

    def columns(self, begin: int, end: int) -> Any:
        return slice(begin, end) if self.allowed is None else self.allowed[begin:end]

    def codes(self, positions: Array) -> Array:
        return positions if self.allowed is None else self.allowed[positions]


@dataclass(frozen=True)
class _Plan:
    rows: int
    columns: int


@dataclass
class _Reporter:
    """Counts finished queries; threads report one at a time, so that the count only rises."""

    progress: Progress | None
    total: int
    done: int = 0

    def __post_init__(self) -> None:
        self.lock = threading.Lock()

    def __call__(self, count: int) -> None:
        if self.progress is not None:
            with self.lock:
                self.done += count
                self.progress(self.done, self.total)


def _known_rows(known: Graph | None, num_nodes: int, symmetric: bool) -> list[tuple[Array, Array]]:
    if known is None:
        return []
    if known.num_nodes != num_nodes:
        raise ShapeError(f"known has {known.num_nodes} nodes, but num_nodes is {num_nodes}")
    rows = [known.csr, known.csr.transposed] if known.directed and symmetric else [known.csr]
    return [(csr.indptr, csr.indices) for csr in rows]


def _plan(queries: int, candidates: int, block_bytes: int) -> _Plan:
    """Row blocks and column panels, whatever the number of threads."""
    scores = max(1, block_bytes // _BYTES_PER_SCORE)
    columns = max(1, min(candidates, _PANEL_COLUMNS, scores))
    return _Plan(max(1, min(scores // columns, max(_LEAST_ROWS, -(-queries // _PIECES)))), columns)


def _best_of_rows(search: _Search, rows: Array, width: int) -> tuple[Array, Array]:
    codes = np.full((len(rows), search.k), -1)
    scores = np.full((len(rows), search.k), -np.inf)
    masked_rows, masked = _masked_pairs(search, rows)
    for begin in range(0, search.count, width):
        end = min(begin + width, search.count)
        panel = _scored(search, rows, begin, end)
        first, last = np.searchsorted(masked, [begin, end])
        panel[masked_rows[first:last], masked[first:last] - begin] = -np.inf
        peaks = panel.max(axis=1)
        _refuse_nan(search, rows, begin, panel, peaks)
        # Positions only rise from panel to panel, so an equal score here comes after what is kept.
        hot = np.flatnonzero(peaks > scores[:, -1])
        if len(hot):
            fresh = panel[hot] if len(hot) < len(rows) else panel
            new = leading(fresh, search.k)
            gained, nodes = np.take_along_axis(fresh, new, axis=1), search.codes(new + begin)
            codes[hot], scores[hot] = _merged(codes[hot], scores[hot], nodes, gained, search.k)
    codes[np.isneginf(scores)] = -1
    return codes, scores


def _masked_pairs(search: _Search, rows: Array) -> tuple[Array, Array]:
    """Row in the block and candidate position of each pair that is left out, by rising position."""
    parts = [(np.arange(len(rows)), rows), *(_stored(*csr, rows) for csr in search.known)]
    where, nodes = (np.concatenate([part[side] for part in parts]) for side in (0, 1))
    if search.allowed is not None:
        nodes, given = np.searchsorted(search.allowed, nodes), nodes
        inside = nodes < search.count
        inside[inside] = search.allowed[nodes[inside]] == given[inside]
        where, nodes = where[inside], nodes[inside]
    order = np.argsort(nodes, kind="stable")
    return where[order], nodes[order]


def _stored(indptr: Array, indices: Array, rows: Array) -> tuple[Array, Array]:
    """Every stored entry of the given rows: its place among them, and its column."""
    begins, counts = indptr[rows], indptr[rows + 1] - indptr[rows]
    where = np.repeat(np.arange(len(rows)), counts)
    shifts = begins - (np.cumsum(counts) - counts)
    return where, indices[np.arange(len(where)) + shifts[where]].astype(np.int64)


def _scored(search: _Search, rows: Array, begin: int, end: int) -> Array:
    scores = np.asarray(search.score_block(rows, search.columns(begin, end)))
    if scores.shape != (len(rows), end - begin):
        raise ShapeError(
            f"score_block returned shape {scores.shape} for {len(rows)} rows and {end - begin} columns"
        )
    if scores.dtype.kind not in "buif":
        raise DtypeError(f"score_block returned {scores.dtype}; scores are real numbers")
    return scores.astype(np.float64)  # always a copy: the caller may keep the block, and we mask in ours


def _refuse_nan(search: _Search, rows: Array, begin: int, panel: Array, peaks: Array) -> None:
    if np.isnan(peaks).any():
        row, column = np.argwhere(np.isnan(panel))[0]
        node = search.codes(np.array([column + begin]))[0]
        raise NotFiniteError(f"score_block returned NaN for node {rows[row]} and candidate {node}")


def leading(scores: Array, k: int) -> Array:
    """Columns of the k largest scores in each row, in rising order; among equals the first columns.

    >>> from fastgrl.ranking import leading
    >>> leading(np.array([[1.0, 3.0, 1.0, 1.0]]), 2)
    array([[0, 1]])
    """
    rows, width = scores.shape
    if width <= k:
        return np.broadcast_to(np.arange(width), (rows, width))
    cut = np.partition(scores, width - k, axis=1)[:, width - k, None]
    kept = scores >= cut
    # A partition is free to choose among scores equal to the last one kept: here the first of them stay.
    crowded = np.flatnonzero(kept.sum(axis=1) > k)
    if len(crowded):
        kept[crowded] = _first_of_equals(scores[crowded], cut[crowded], k)
    places: Array = np.flatnonzero(kept).reshape(rows, k) % width
    return places


def _first_of_equals(scores: Array, cut: Array, k: int) -> Array:
    above, equal = scores > cut, scores == cut
    room = k - above.sum(axis=1, keepdims=True)
    kept: Array = above | (equal & (np.cumsum(equal, axis=1, dtype=np.int32) <= room))
    return kept


def _merged(codes: Array, scores: Array, more: Array, gained: Array, k: int) -> tuple[Array, Array]:
    """The k best of both; a stable sort keeps rising node numbers among equals."""
    all_codes, all_scores = np.hstack([codes, more]), np.hstack([scores, gained])
    order = np.argsort(-all_scores, axis=1, kind="stable")[:, :k]
    return np.take_along_axis(all_codes, order, axis=1), np.take_along_axis(all_scores, order, axis=1)


def _gathered(parts: list[tuple[Array, Array]], queries: int, k: int) -> Best:
    best = Best(np.full((queries, k), -1), np.full((queries, k), -np.inf))
    begin = 0
    for codes, scores in parts:
        best.codes[begin : begin + len(codes), : codes.shape[1]] = codes
        best.scores[begin : begin + len(codes), : codes.shape[1]] = scores
        begin += len(codes)
    return best
