"""Edges as pairs of node numbers → compressed sparse rows, sorted and without repeats."""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import numpy as np

from fastgrl.checks import Array
from fastgrl.kernels import compiled_module
from fastgrl.parallel import parallel_map

_SMALL = 2**31
_PIECE = 1 << 20
_MOST_BUCKETS = 1024
_ROWS_PER_BUCKET = 1 << 12


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
    compiled = compiled_module()
    if compiled is None or num_nodes >= _SMALL:
        return _assemble_by_sorting(sources, targets, weights, num_nodes, mirrored)
    sources, targets = (np.ascontiguousarray(side, dtype=np.int32) for side in (sources, targets))
    values = None if weights is None else np.ascontiguousarray(weights, dtype=np.float64)
    shift = _bucket_shift(num_nodes)
    pieces = [(a, min(a + _PIECE, len(sources))) for a in range(0, len(sources), _PIECE)]
    buckets = (num_nodes >> shift) + 1
    counts = np.zeros((len(pieces), buckets), np.int64)

    def count(piece: int) -> None:
        compiled.count_buckets(sources, targets, *pieces[piece], shift, mirrored, counts[piece])

    parallel_map(count, range(len(pieces)))
    starts = np.zeros(buckets + 1, np.int64)
    np.cumsum(counts.sum(axis=0), out=starts[1:])
    offsets = starts[:-1] + np.cumsum(counts, axis=0) - counts
    rows, columns = np.empty(starts[-1], np.int32), np.empty(starts[-1], np.int32)
    scattered = None if values is None else np.empty(starts[-1], np.float64)

    def scatter(piece: int) -> None:
        compiled.scatter_edges(
            sources,
            targets,
            values,
            *pieces[piece],
            shift,
            mirrored,
            offsets[piece],
            rows,
            columns,
            scattered,
        )

    parallel_map(scatter, range(len(pieces)))
    lengths = np.zeros(num_nodes + 1, np.int64)  # lengths[1 + row] after merging

    def sort(bucket: int) -> None:
        first, last = bucket << shift, min((bucket + 1) << shift, num_nodes)
        compiled.sort_bucket(
            rows, columns, scattered, int(starts[bucket]), int(starts[bucket + 1]), first, last, lengths
        )

    parallel_map(sort, range(buckets))
    del rows
    indptr = np.cumsum(lengths)
    if indptr[-1] == len(columns):
        return Rows(indptr, columns, scattered)
    return _compacted(columns, scattered, starts, indptr, shift)


def _bucket_shift(num_nodes: int) -> int:
    shift = _ROWS_PER_BUCKET.bit_length() - 1
    while (num_nodes >> shift) >= _MOST_BUCKETS:
        shift += 1
    return shift


def _compacted(columns: Array, weights: Array | None, starts: Array, indptr: Array, shift: int) -> Rows:
    """Close the gaps that merged repeats left at the end of each bucket."""
    indices = np.empty(indptr[-1], np.int32)
    kept = None if weights is None else np.empty(indptr[-1], np.float64)
    ends = indptr[np.minimum(np.arange(len(starts)) << shift, len(indptr) - 1)]
    for start, (begin, end) in zip(starts[:-1], itertools.pairwise(ends), strict=True):
        indices[begin:end] = columns[start : start + end - begin]
        if kept is not None and weights is not None:
            kept[begin:end] = weights[start : start + end - begin]
    return Rows(indptr, indices, kept)


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
    summed = None if values is None else np.bincount(np.cumsum(first) - 1, values[order], int(first.sum()))
    return Rows(indptr, columns[first], summed)


def _mirrored(rows: Array, columns: Array, weights: Array | None) -> tuple[Array, Array, Array | None]:
    """Each edge followed by its mirror image, so that repeats keep their order in both directions."""
    proper = rows != columns
    at = np.repeat(np.arange(len(rows)), 1 + proper)
    flipped = np.zeros(len(at), bool)
    flipped[1:] = at[1:] == at[:-1]
    u, v = rows[at], columns[at]
    return np.where(flipped, v, u), np.where(flipped, u, v), None if weights is None else weights[at]
