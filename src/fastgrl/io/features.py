"""Features of nodes from files: a row of numbers for each node, by id, in any order of rows."""

from __future__ import annotations

import io
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from fastgrl.checks import Array, shown, size
from fastgrl.errors import InputError
from fastgrl.ids import as_ids, objects
from fastgrl.io import parquet
from fastgrl.io.arrays import _MOST_NODES, _NODES_PER_ENTRY, _sparse, array_from_npy
from fastgrl.io.number_tables import numbers_by_id
from fastgrl.io.pairs import read_ids
from fastgrl.io.reading import _Job
from fastgrl.io.records import _NUMBER
from fastgrl.io.sources import Progress
from fastgrl.io.tables import (
    ID_NAMES,
    Finder,
    Place,
    column_number,
    first_of,
    id_column_of,
    line_places,
    npz_arrays,
    opened_table,
    plain_name,
    row_place,
    text_table,
)

_IN_ORDER = "{} has no ids: its rows were taken in the order of the nodes, {}"


@dataclass(frozen=True, eq=False)
class FeatureTable:
    """Features in the order of the nodes, n×d (dense or CSR), the names of the columns if they have any."""

    name: str
    matrix: Any
    names: tuple[str, ...] | None = None
    notices: tuple[str, ...] = ()


@dataclass(frozen=True, eq=False)
class _Given:
    """A file's rows in its own order: `ids` is None where they are those of the nodes."""

    name: str
    ids: Array | None
    matrix: Any
    names: tuple[str, ...] | None
    place: Place


def read_features(
    source: Any,
    node_ids: Array,
    *,
    id_column: str | int | None = None,
    ignore_unknown: bool = False,
    missing: str = "refuse",
    encoding: str | None = None,
    n_threads: int | None = None,
    progress: Progress | None = None,
) -> FeatureTable:
    """A row of numbers for each of `node_ids` from text (plain or packed), Parquet, NPZ or NPY.

    A table has ids in its first column (or in `id_column`) and numbers in all others. NPZ holds a matrix as
    scipy.sparse.save_npz writes it, or an array X, features or embedding, with ids beside it; NPY takes its
    ids from NAME.ids.csv. Without ids rows are in the order of the nodes, if there are as many. What is not a
    finite number is an error with its line and column; so is an id that is not a node, unless
    `ignore_unknown`, and a node without a row, unless `missing` is "zero".

    >>> read_features(io.BytesIO(b"id,a,b\\nv,3,4\\nu,1,2\\n"), np.array(["u", "v"], object)).matrix
    array([[1., 2.],
           [3., 4.]])
    """
    finder = Finder(node_ids, ignore_unknown)
    with opened_table(source, encoding=encoding, n_threads=n_threads, progress=progress) as (kind, job):
        if kind not in _READERS:
            formats = "text, Parquet, NPZ or NPY"
            raise InputError(f"{job.source.name}: features are read from {formats}, not from {kind.upper()}")
        given = _READERS[kind](job, finder, id_column)
        _refuse_not_finite(given)
        table = _in_order(given, node_ids) if given.ids is None else _joined(given, finder, missing)
    if given.ids is None and given.matrix.shape[0] != len(node_ids):
        raise InputError(
            f"{given.name} has {given.matrix.shape[0]} rows and no ids, where there are {len(node_ids)} "
            "nodes; add their ids"
        )
    return table


def _values(matrix: Any) -> Array:
    """All numbers of a matrix, or those of a sparse one that are stored."""
    return np.asarray(matrix if isinstance(matrix, np.ndarray) else matrix.data)


def _in_order(given: _Given, node_ids: Array) -> FeatureTable:
    first = ", ".join(shown(node) for node in node_ids[:3].tolist()) + ", …" * (len(node_ids) > 3)
    return FeatureTable(given.name, given.matrix, given.names, (_IN_ORDER.format(given.name, first),))


def _joined(given: _Given, finder: Finder, missing: str) -> FeatureTable:
    """The rows in the order of the nodes."""
    assert given.ids is not None
    numbers, notices = finder.find(given.name, given.ids, given.place)
    _refuse_repeats(given, numbers)
    rows = np.full(len(finder.node_ids), -1, np.int64)
    known = np.flatnonzero(numbers >= 0)
    rows[numbers[known]] = known
    absent = np.flatnonzero(rows < 0)
    if len(absent):
        count, first = f"{len(absent)} of {len(rows)}", shown(finder.node_ids[absent[0]])
        what = f"{given.name}: {count} nodes have no features, the first is {first}"
        if missing != "zero":
            raise InputError(f"{what}; --missing-features zero takes them as zeros")
        notices = (*notices, f"{what}: taken as zeros")
    return FeatureTable(given.name, _taken(given.matrix, rows), given.names, notices)


def _refuse_repeats(given: _Given, numbers: Array) -> None:
    assert given.ids is not None
    known = np.flatnonzero(numbers >= 0)
    order = known[np.argsort(numbers[known], kind="stable")]
    again = np.flatnonzero(numbers[order][1:] == numbers[order][:-1])
    if len(again):
        first, second = (int(order[again[0] + i]) for i in (0, 1))
        raise InputError(
            f"{given.name}, {given.place(second)}: the node {shown(given.ids[second])} has features already, "
            f"in {given.place(first)}"
        )


def _taken(matrix: Any, rows: Array) -> Any:
    if isinstance(matrix, np.ndarray):
        out = matrix[rows]
        out[rows < 0] = 0
        return out
    if (rows < 0).any():
        nothing: Any = sp.csr_array((1, matrix.shape[1]), dtype=matrix.dtype)
        matrix = sp.vstack([matrix, nothing], format="csr")
    return sp.csr_array(matrix[rows % matrix.shape[0]])


def _refuse_not_finite(given: _Given) -> None:
    """Of a matrix that did not come from text, where every number has been looked at."""
    if np.isfinite(_values(given.matrix)).all():
        return
    if isinstance(given.matrix, np.ndarray):
        row, column = map(int, np.argwhere(~np.isfinite(given.matrix))[0])
        value = given.matrix[row, column]
    else:
        entries = given.matrix.tocoo()
        at = int(np.argmin(np.isfinite(entries.data)))
        row, column, value = int(entries.row[at]), int(entries.col[at]), entries.data[at]
    raise InputError(
        f"{given.name}, {given.place(row)}, {_column_name(given.names, column)}: {value} is not finite"
    )


def _column_name(names: tuple[str, ...] | None, column: int) -> str:
    return f"feature {column + 1}" + (f" ({shown(names[column])})" if names else "")


def _from_text(job: _Job, finder: Finder, id_column: str | int | None) -> _Given:
    named = isinstance(id_column, str) and not id_column.isdigit()
    table = text_table(
        job,
        lambda first, rest: _is_header(first, rest, finder),
        what="features",
        header=True if named else None,
    )
    names = table.layout.names
    at = column_number(table.name, "--id-column", id_column, names, table.columns) or 0
    if table.columns < 2:
        raise InputError(f"{table.name} has one column; expected an id and at least one number in each row")
    ids, lines, matrix = numbers_by_id(table, at)
    if not ids:
        raise InputError(f"{table.name} is empty: it has no features, only a header")
    kept = None if names is None else tuple(n for i, n in enumerate(names) if i != at)
    return _Given(table.name, objects(ids), matrix, kept, line_places(lines))


def _is_header(first: tuple[str, ...], rest: list[list[str]], finder: Finder) -> bool:
    """No row is lost to a guess: one that begins with a node is never a header."""
    if finder.is_node(first[0]):
        return False
    counted = first[1:] in (tuple(map(str, range(len(first) - 1))), tuple(map(str, range(1, len(first)))))
    numbers = any(_NUMBER.fullmatch(text) for text in first[1:])
    names_a_node = plain_name(first[0]) in (*ID_NAMES, "") and all(fields[0] != first[0] for fields in rest)
    return not numbers or counted or names_a_node


def _from_parquet(job: _Job, finder: Finder, id_column: str | int | None) -> _Given:  # noqa: ARG001
    name = job.source.name
    table = parquet._opened(name, io.BytesIO(job.all_bytes()))
    names = tuple(table.schema_arrow.names)
    if len(names) < 2 or table.metadata.num_rows == 0:
        raise InputError(
            f"{name} is empty or has one column; expected ids and at least one column of numbers"
        )
    if twice := [n for n in names if names.count(n) > 1]:
        raise InputError(f"{name} has several columns called {shown(twice[0])}; rename them")
    at = column_number(name, "--id-column", id_column, names, len(names))
    at = id_column_of(names) if at is None else at
    found = parquet._ids(name, names[at], parquet._column(name, table, names[at]))
    ids = as_ids(found if isinstance(found, np.ndarray) else found.to_pylist(), name)
    others = tuple(n for i, n in enumerate(names) if i != at)
    return _Given(name, ids, _parquet_numbers(name, table, others), others, row_place)


def _parquet_numbers(name: str, table: Any, columns: tuple[str, ...]) -> Array:
    import pyarrow as pa

    kinds = [table.schema_arrow.field(column).type for column in columns]
    for column, kind in zip(columns, kinds, strict=True):
        if not (pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind)):
            raise InputError(f"{name}, column {shown(column)}: {kind} values are not numbers")
    single = all(kind in (pa.float32(), pa.float16()) for kind in kinds)
    out = np.empty((table.metadata.num_rows, len(columns)), np.float32 if single else np.float64)
    for i, column in enumerate(columns):
        out[:, i] = parquet._column(name, table, column).to_numpy()
    return out


def _from_npz(job: _Job, finder: Finder, id_column: str | int | None) -> _Given:  # noqa: ARG001
    name = job.source.name
    arrays = npz_arrays(name, job.all_bytes())
    ids = first_of(arrays, "ids", "node_ids", "node")
    dense = first_of(arrays, "X", "features", "embedding")
    matrix = _checked_sparse(name, arrays) if dense is None else _checked_dense(name, dense)
    return _Given(name, _ids(name, ids, matrix.shape[0]), matrix, None, row_place)


def _from_npy(job: _Job, finder: Finder, id_column: str | int | None) -> _Given:  # noqa: ARG001
    name, path = job.source.name, job.source.path
    matrix = _checked_dense(name, array_from_npy(name, job.all_bytes()))
    beside = None if path is None else Path(os.path.splitext(path)[0] + ".ids.csv")
    ids = read_ids(beside).columns[0] if beside is not None and beside.is_file() else None
    return _Given(name, _ids(name, ids, matrix.shape[0]), matrix, None, row_place)


def _ids(name: str, ids: Array | None, rows: int) -> Array | None:
    if ids is None:
        return None
    if ids.ndim != 1 or len(ids) != rows:
        raise InputError(f"{name} has ids of shape {ids.shape} for {rows} rows of features")
    return as_ids(ids, name)


def _checked_dense(name: str, array: Array) -> Array:
    if array.ndim != 2 or array.dtype.kind not in "buif" or not array.shape[1]:
        raise InputError(
            f"{name} holds {array.dtype} of shape {array.shape}; features are a row of numbers for each node"
        )
    return array if array.dtype in (np.float32, np.float64) else array.astype(np.float64)


def _checked_sparse(name: str, arrays: dict[str, Array]) -> Any:
    """A stored sparse matrix as CSR; its arrays are from outside, and nothing follows them unchecked."""
    if not {"shape", "data"} & set(arrays):
        raise InputError(
            f"{name} has neither an array X nor a sparse matrix as scipy.sparse.save_npz writes it; "
            f"it holds {', '.join(shown(key) for key in arrays)}"
        )
    matrix = _sparse(name, arrays, list(arrays))
    rows, columns = matrix.shape
    entries = len(matrix.data)
    if not columns or max(rows, columns) > _MOST_NODES + _NODES_PER_ENTRY * entries:
        raise InputError(f"{name} promises {size(matrix.shape)} for {entries} entries; that cannot be meant")
    if matrix.format != "coo":
        _check_compressed(name, matrix)
    kind = matrix.data.dtype if matrix.data.dtype in (np.float32, np.float64) else np.float64
    fresh: Any = {"csr": sp.csr_array, "csc": sp.csc_array, "coo": sp.coo_array}[matrix.format]
    where = matrix.coords if matrix.format == "coo" else (matrix.indices, matrix.indptr)
    data = matrix.data.astype(kind)
    parts = (data, where) if matrix.format == "coo" else (data, *where)
    csr = sp.csr_array(fresh(parts, shape=(rows, columns)))
    csr.sum_duplicates()
    return csr


def _check_compressed(name: str, matrix: Any) -> None:
    outer, inner = matrix.shape if matrix.format == "csr" else matrix.shape[::-1]
    indptr, indices = matrix.indptr, matrix.indices
    counted = len(indptr) == outer + 1 and int(indptr[0]) == 0 and int(indptr[-1]) == len(indices)
    if not counted or (indptr[1:] < indptr[:-1]).any():
        raise InputError(f"{name}: indptr does not count {len(indices)} entries in {outer} rows or columns")
    if len(indices) and not 0 <= int(indices.min()) <= int(indices.max()) < inner:
        raise InputError(f"{name}: indices has values outside 0..{inner - 1}")


_READERS: dict[str, Callable[[_Job, Finder, str | int | None], _Given]] = {
    "text": _from_text,
    "parquet": _from_parquet,
    "npz": _from_npz,
    "npy": _from_npy,
}
