"""The transpose of compressed rows that lie on disk, in memory that does not grow with them.

Entries are dealt into ranges of columns first, one pass over the rows, and each range is put in order then,
so that both passes write from beginning to end.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from fastgrl.spilling import release, row_ranges, scratch_array

Array = NDArray[Any]
Rows = tuple[Array, Array, Array | None]


def transposed_rows(indptr: Array, indices: Array, values: Array | None, *, num_columns: int) -> Rows:
    """Row pointers, columns and values of the transpose; tall ones are `scratch_array`s.

    >>> pointers, columns, _ = transposed_rows(np.array([0, 2, 3]), np.array([0, 1, 0]), None, num_columns=2)
    >>> pointers, columns
    (array([0, 2, 3]), array([0, 1, 0]))
    """
    pointers = _pointers(indptr, indices, num_columns)
    entry = 2 * indices.itemsize + (0 if values is None else values.itemsize)
    cuts = list(row_ranges(pointers, 2 * entry))
    dealt = _dealt(indptr, indices, values, pointers, cuts)
    columns = scratch_array(indices.shape, indices.dtype)
    kept = None if values is None else scratch_array(values.shape, values.dtype)
    for first, last in cuts:
        stored = slice(int(pointers[first]), int(pointers[last]))
        ordered = _ordered(
            [None if part is None else part[stored] for part in dealt], first, last, len(indptr)
        )
        columns[stored] = ordered.indices
        if kept is not None:
            kept[stored] = ordered.data
        for array in (*dealt, columns, kept):
            release(array, stored.start, stored.stop)
    return pointers, columns, kept


def _pointers(indptr: Array, indices: Array, num_columns: int) -> Array:
    counts = np.zeros(num_columns + 1, np.int64)
    for first, last in row_ranges(indptr, 4 * indices.itemsize):
        begin, end = int(indptr[first]), int(indptr[last])
        counts[1:] += np.bincount(indices[begin:end], minlength=num_columns)
        release(indices, begin, end)
    return np.cumsum(counts)


def _dealt(
    indptr: Array, indices: Array, values: Array | None, pointers: Array, cuts: list[tuple[int, int]]
) -> tuple[Array, Array, Array | None]:
    """Columns, rows and values of all entries, by range of columns and within it in the order of the rows."""
    columns, rows = (scratch_array(indices.shape, indices.dtype) for _ in range(2))
    kept = None if values is None else scratch_array(values.shape, values.dtype)
    ends = np.array([last for _, last in cuts])
    free = pointers[np.array([first for first, _ in cuts], np.int64)].copy()
    for first, last in row_ranges(indptr, 8 * indices.itemsize):
        stored = slice(int(indptr[first]), int(indptr[last]))
        part = indices[stored]
        which = np.searchsorted(ends, part, side="right").astype(np.int16 if len(ends) < 2**15 else np.int64)
        order = np.argsort(which, kind="stable")
        counts = np.bincount(which, minlength=len(ends))
        own = np.repeat(np.arange(first, last, dtype=rows.dtype), np.diff(indptr[first : last + 1]))
        done = 0
        for number in np.flatnonzero(counts):
            chosen, place = (
                order[done : done + counts[number]],
                slice(free[number], free[number] + counts[number]),
            )
            columns[place], rows[place] = part[chosen], own[chosen]
            if kept is not None and values is not None:
                kept[place] = values[stored][chosen]
            done, free[number] = done + counts[number], place.stop
        for array in (indices, values):
            release(array, stored.start, stored.stop)
        for array in (columns, rows, kept):
            release(array)
    return columns, rows, kept


def _ordered(parts: list[Array | None], first: int, last: int, num_rows: int) -> sp.csr_array:
    """The entries of columns `first` to `last` as rows; their order within each stays."""
    columns, rows, values = parts
    assert columns is not None
    assert rows is not None
    data = np.ones(len(columns), np.int8) if values is None else values
    return sp.coo_array((data, (columns - first, rows)), shape=(last - first, num_rows)).tocsr()
