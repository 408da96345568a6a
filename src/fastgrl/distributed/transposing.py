"""The transpose of sparse rows on workers: every block is cut by columns, and the pieces change places."""

from __future__ import annotations

import itertools
import operator
from typing import Any

import numpy as np

from fastgrl.distributed.clusters import Cluster
from fastgrl.distributed.engines import Pending
from fastgrl.distributed.plans import RowPlan
from fastgrl.kernels import CSR, transpose


def transposed_parts(cluster: Cluster, rows: list[Any], plan: RowPlan, onto: RowPlan) -> list[Any]:
    """Calls for the blocks of the transpose; rows keep their entries in the order of columns."""
    cut = cluster.submit([Pending(cut_transposed, (block, onto.cuts)) for block in rows])
    pieces = exchanged(cluster, cut, len(onto.bounds))
    return [Pending(side_by_side, (some, plan.rows)) for some in pieces]


def exchanged(cluster: Cluster, cut: list[Any], count: int) -> list[list[Any]]:
    """Of futures of lists the futures of their items: for every place, the items that stand there.

    Each is a task of its own, done where the list lies, so that no more than the item travels.
    """
    items = cluster.submit([Pending(operator.getitem, (one, i)) for i in range(count) for one in cut])
    return [items[i * len(cut) : (i + 1) * len(cut)] for i in range(count)]


def cut_transposed(rows: CSR, cuts: tuple[int, ...]) -> list[CSR]:
    """The transpose of a block, cut into blocks of its own rows."""
    whole = transpose(rows)
    return [row_range(whole, begin, end) for begin, end in itertools.pairwise(cuts)]


def row_range(rows: CSR, begin: int, end: int) -> CSR:
    """Rows `begin` to `end` - 1, as a copy."""
    first, last = int(rows.indptr[begin]), int(rows.indptr[end])
    values = None if rows.values is None else rows.values[first:last].copy()
    indptr, indices = rows.indptr[begin : end + 1] - first, rows.indices[first:last].copy()
    return CSR(indptr, indices, values, (end - begin, rows.shape[1]), rows.dtype)


def side_by_side(pieces: list[CSR], columns: int) -> CSR:
    """Blocks with the same rows, one beside the other."""
    first = pieces[0]
    if len(pieces) == 1:
        return first
    kind = np.result_type(*(piece.indices.dtype for piece in pieces))
    counts = np.array([np.diff(piece.indptr) for piece in pieces])
    indptr = np.concatenate([np.zeros(1, np.int64), np.cumsum(counts.sum(0))])
    indices = np.empty(indptr[-1], kind)
    values = None if first.values is None else np.empty(indptr[-1], first.values.dtype)
    starts, offset = indptr[:-1].copy(), 0
    for piece, count in zip(pieces, counts, strict=True):
        places = np.arange(piece.num_stored) + np.repeat(starts - piece.indptr[:-1], count)
        indices[places] = piece.indices + offset
        if values is not None:
            values[places] = piece.values
        starts, offset = starts + count, offset + piece.shape[1]
    return CSR(indptr, indices, values, (first.shape[0], columns), first.dtype)
