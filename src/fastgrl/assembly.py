"""Edges as pairs of node numbers → compressed sparse rows, sorted and without repeats."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Any

import numpy as np

from fastgrl.checks import Array
from fastgrl.kernels import compiled_module
from fastgrl.parallel import parallel_map

_SMALL = 2**31
_PIECE = 1 << 20
_MOST_BUCKETS = 1024
_ROWS_PER_BUCKET = 1 << 12
_WORTH_KEEPING = 0.9


@dataclass(frozen=True, eq=False)
class Rows:
    """Compressed sparse rows; every row strictly increasing."""

    indptr: Array
    indices: Array
    weights: Array | None


def assemble(
    sources: Array, targets: Array, weights: Array | None, *, num_nodes: int, mirrored: bool
) -> Rows:
    """Sort the edges into rows and merge repeats, adding their weights in the order they were given.

    `mirrored` stores (u, v) and (v, u) for every edge, a self loop once.

    >>> assemble(np.array([1, 0]), np.array([0, 1]), None, num_nodes=2, mirrored=True).indices
    array([1, 0], dtype=int32)
    """
    if compiled_module() is None or num_nodes >= _SMALL:
        return _assemble_by_sorting(sources, targets, weights, num_nodes, mirrored)
    u, v = (np.ascontiguousarray(side, dtype=np.int32) for side in (sources, targets))
    w = None if weights is None else np.ascontiguousarray(weights, dtype=np.float64)
    shift = _bucket_shift(num_nodes)
    return _sorted_rows(_into_buckets(u, v, w, (num_nodes >> shift) + 1, shift, mirrored), num_nodes, shift)


@dataclass(frozen=True, eq=False)
class _Buckets:
    """Entries by bucket of 2^shift rows, in the order given; bucket b is starts[b]..starts[b+1]-1."""

    starts: Array
    rows: Array
    columns: Array
    weights: Array | None


def _into_buckets(u: Array, v: Array, w: Array | None, buckets: int, shift: int, mirrored: bool) -> _Buckets:
    compiled: Any = compiled_module()
    pieces = [(a, min(a + _PIECE, len(u))) for a in range(0, len(u), _PIECE)]
    counts = np.zeros((len(pieces), buckets), np.int64)

    def count(i: int) -> None:
        compiled.count_buckets(u, v, *pieces[i], shift, mirrored, counts[i])

    parallel_map(count, range(len(pieces)))
    starts = np.zeros(buckets + 1, np.int64)
    np.cumsum(counts.sum(axis=0), out=starts[1:])
    offsets = starts[:-1] + np.cumsum(counts, axis=0) - counts
    rows, columns = np.empty(starts[-1], np.int32), np.empty(starts[-1], np.int32)
    values = None if w is None else np.empty(starts[-1], np.float64)

    def scatter(i: int) -> None:
        compiled.scatter_edges(u, v, w, *pieces[i], shift, mirrored, offsets[i], rows, columns, values)

    parallel_map(scatter, range(len(pieces)))
    return _Buckets(starts, rows, columns, values)


def _sorted_rows(entries: _Buckets, num_nodes: int, shift: int) -> Rows:
    compiled: Any = compiled_module()
    starts, columns, weights = entries.starts, entries.columns, entries.weights
    lengths = np.zeros(num_nodes + 1, np.int64)  # lengths[1 + row] after merging

    def sort(bucket: int) -> None:
        first, last = bucket << shift, min((bucket + 1) << shift, num_nodes)
        begin, end = int(starts[bucket]), int(starts[bucket + 1])
        compiled.sort_bucket(entries.rows, columns, weights, begin, end, first, last, lengths)

    parallel_map(sort, range(len(starts) - 1))
    indptr = np.cumsum(lengths)
    if indptr[-1] == len(columns):
        return Rows(indptr, columns, weights)
    return _compacted(columns, weights, starts, indptr, shift)


def _bucket_shift(num_nodes: int) -> int:
    shift = _ROWS_PER_BUCKET.bit_length() - 1
    while (num_nodes >> shift) >= _MOST_BUCKETS:
        shift += 1
    return shift


def _compacted(columns: Array, weights: Array | None, starts: Array, indptr: Array, shift: int) -> Rows:
    """Close, in place, the gaps that merged repeats left at the end of each bucket."""
    ends = indptr[np.minimum(np.arange(len(starts)) << shift, len(indptr) - 1)]
    for start, (begin, end) in zip(starts[:-1], itertools.pairwise(ends), strict=True):
        for array in (columns, weights):
            if array is not None and start != begin:
                array[begin:end] = array[start : start + end - begin]
    return Rows(indptr, _cut(columns, ends[-1]), None if weights is None else _cut(weights, ends[-1]))


def _cut(array: Array, length: int) -> Array:
    """The first part of an array, in memory of its own if much would be wasted otherwise."""
    return array[:length].copy() if length < _WORTH_KEEPING * len(array) else array[:length]


def _assemble_by_sorting(
    sources: Array, targets: Array, weights: Array | None, num_nodes: int, mirrored: bool
) -> Rows:
    index = np.int32 if num_nodes < _SMALL else np.int64
    rows, columns = np.asarray(sources, index), np.asarray(targets, index)
    values = weights
    if mirrored:
        rows, columns, values = _mirrored(rows, columns, weights)
    order = np.lexsort((columns, rows))
    rows, columns = rows[order], columns[order]
    first = np.ones(len(rows), bool)
    first[1:] = (rows[1:] != rows[:-1]) | (columns[1:] != columns[:-1])
    indptr = np.zeros(num_nodes + 1, np.int64)
    np.cumsum(np.bincount(rows[first], minlength=num_nodes), out=indptr[1:])
    # bincount adds one by one in the order given, as the compiled loop does.
    groups = np.cumsum(first) - 1
    summed = (
        None if values is None else np.bincount(groups, values[order], int(first.sum())).astype(np.float64)
    )
    return Rows(indptr, columns[first], summed)


def _mirrored(rows: Array, columns: Array, weights: Array | None) -> tuple[Array, Array, Array | None]:
    """Each edge followed by its mirror image, so that repeats keep their order in both directions."""
    proper = rows != columns
    at = np.repeat(np.arange(len(rows)), 1 + proper)
    flipped = np.zeros(len(at), bool)
    flipped[1:] = at[1:] == at[:-1]
    u, v = rows[at], columns[at]
    return np.where(flipped, v, u), np.where(flipped, u, v), None if weights is None else weights[at]
