"""Features of nodes from a folder of Parquet files, as rows on workers, and how their columns are scaled."""

from __future__ import annotations

import functools
import re
from typing import Any

import numpy as np

from fastgrl.checks import Array, shown
from fastgrl.distributed.addresses import Address
from fastgrl.distributed.engines import Pending
from fastgrl.distributed.graphs import DistributedGraph
from fastgrl.distributed.loading import parquet_files
from fastgrl.distributed.rows import DistributedRows
from fastgrl.distributed.talls import Tall
from fastgrl.errors import InputError
from fastgrl.ids import as_ids
from fastgrl.io.features import _parquet_numbers
from fastgrl.io.pairs import retyped
from fastgrl.io.parquet import _column, _ids, _opened
from fastgrl.io.tables import column_number, id_column_of
from fastgrl.kernels import csr_from_scipy
from fastgrl.views import NUMBERS, WORDS, FeatureMap, _standardised, _unit_words

Given = tuple[Array, Array, tuple[str, ...]]  # ids, a row of numbers for each, names of the columns
_DENSEST_WORDS = 0.5
_INDEX = re.compile(r"__index_level_\d+__")  # pandas writes the numbers of rows as a column, and hides it


def load_features(
    graph: DistributedGraph, folder: str, *, id_column: str | None = None, missing: str | None = None
) -> Tall:
    """A row of numbers for every node, in float32; `missing="zero"` for nodes that no file names."""
    cluster, paths = graph.cluster, parquet_files(folder)
    files = cluster.submit([Pending(read_features, (path, id_column)) for path in paths])
    names = cluster.gather([Pending(names_of, (file,)) for file in files])
    if odd := next((i for i, some in enumerate(names) if some != names[0]), None):
        raise InputError(f"{paths[odd]} has other columns than {paths[0]}; make them alike")
    blocks = [
        Pending(features_of, (ids, [Pending(rows_within, (file, ids)) for file in files], len(names[0])))
        for ids in graph.ids
    ]
    made = cluster.submit(blocks)
    lacking = cluster.gather(
        [Pending(first_missing, (one, ids)) for one, ids in zip(made, graph.ids, strict=True)]
    )
    count = sum(number for number, _ in lacking)
    if count and missing != "zero":
        example = next(name for number, name in lacking if number)
        raise InputError(
            f"{shown(folder, 200)} has no row for {count} of {graph.num_nodes} nodes, such as "
            f"{shown(example)}; add them, or pass --missing-features zero"
        )
    parts: list[Any] = [Pending(filled, (one,)) for one in made]
    found = Tall(cluster, graph.csr.plan, parts, len(names[0]), np.dtype(np.float32))
    _ = found.futures
    return found


def read_features(path: Address, id_column: str | None) -> Given:
    """The ids and numbers of one file."""
    name = str(path)
    try:
        with path.opened() as file:
            table = _opened(name, file)
            names = tuple(table.schema_arrow.names)
            at = column_number(name, "--id-column", id_column, names, len(names))
            at = id_column_of(names) if at is None else at
            ids = _ids(name, names[at], _column(name, table, names[at]))
            others = tuple(
                column for i, column in enumerate(names) if i != at and not _INDEX.fullmatch(column)
            )
            numbers = _parquet_numbers(name, table, others).astype(np.float32)
    except OSError as error:
        raise InputError(f"{name} cannot be read: {error}") from None
    if not np.isfinite(numbers).all():
        row, column = (int(found[0]) for found in np.nonzero(~np.isfinite(numbers)))
        raise InputError(f"{name}, row {row + 1}, column {shown(others[column])}: not a finite number")
    return as_ids(ids if isinstance(ids, np.ndarray) else ids.to_pylist(), name), numbers, others


def names_of(file: Given) -> tuple[str, ...]:
    """The names of the columns."""
    return file[2]


def rows_within(file: Given, ids: Array) -> tuple[Array, Array]:
    """The rows of a file that belong to a block of nodes: where they go, and the numbers."""
    if not len(ids):
        return np.empty(0, np.int64), file[1][:0]
    places = {name: place for place, name in enumerate(ids.tolist())}
    found = [(places[name], row) for row, name in enumerate(retyped(file[0], ids).tolist()) if name in places]
    at, rows = np.array(found, np.int64).reshape(-1, 2).T
    return at, file[1][rows]


def features_of(ids: Array, pieces: list[tuple[Array, Array]], columns: int) -> tuple[Array, Array]:
    """The features of a block of nodes, and who has some."""
    out, there = np.zeros((len(ids), columns), np.float32), np.zeros(len(ids), bool)
    for at, rows in pieces:
        out[at], there[at] = rows, True
    return out, there


def first_missing(made: tuple[Array, Array], ids: Array) -> tuple[int, Any]:
    """How many nodes of a block have no features, and one of them."""
    lacking = np.flatnonzero(~made[1])
    return len(lacking), ids[lacking[0]] if len(lacking) else None


def filled(made: tuple[Array, Array]) -> Array:
    """The features of a block."""
    return made[0]


def feature_map(X: Tall) -> FeatureMap:
    """How columns are scaled, as `FeatureMap.of` learns it: sums over rows are all it takes."""
    n, d = X.shape
    counted = X.sum(signs_and_counts)
    negative, counts = int(counted[0]), counted[1:]
    if not negative and counts.sum() <= _DENSEST_WORDS * n * d:
        return FeatureMap(WORDS, np.zeros(d), np.log((1 + n) / (1 + counts)))
    peak = np.maximum(X.cluster.gather([Pending(peaks, (part,)) for part in X.futures]), 0).max(axis=0)
    peak = np.where(peak > 0, peak, 1.0).astype(np.float64)
    means = X.sum(functools.partial(sums_over, peak=peak)) / n
    deviations = np.sqrt(X.sum(functools.partial(squares_around, peak=peak, means=means)) / n)
    told_apart = deviations > 1e-7 * np.abs(means)
    factor = np.divide(1.0, deviations * peak, out=np.zeros_like(deviations), where=told_apart)
    return FeatureMap(NUMBERS, means * peak, factor)


def signs_and_counts(rows: Array) -> Array:
    """How many numbers are negative, and of each column how many are not zero."""
    return np.concatenate([[(rows < 0).sum()], (rows != 0).sum(axis=0)]).astype(np.float64)


def peaks(rows: Array) -> Array:
    """The largest absolute number of every column."""
    return np.asarray(np.abs(rows).max(axis=0, initial=0))


def sums_over(rows: Array, peak: Array) -> Array:
    """The sum of each column over its peak."""
    return np.asarray((rows / peak).sum(axis=0, dtype=np.float64))


def squares_around(rows: Array, peak: Array, means: Array) -> Array:
    """The squares of what is beside the means, summed."""
    return np.asarray(((rows / peak - means) ** 2).sum(axis=0, dtype=np.float64))


def scaled_features(X: Tall, scaling: FeatureMap) -> Tall | DistributedRows:
    """F of view l: binarised words as sparse rows of unit norm, or standardised columns."""
    if scaling.kind == WORDS:
        parts: list[Any] = [Pending(unit_words, (part,)) for part in X.futures]
        return DistributedRows(X.cluster, X.plan, parts, (X.shape[0], X.shape[1]), np.dtype(np.float32))
    how = functools.partial(standardised, shift=scaling.shift, factor=scaling.factor)
    return X.map(how, columns=X.columns, dtype=np.float32)


def unit_words(rows: Array) -> Any:
    """1 for each word, rows to unit norm, as sparse rows."""
    return csr_from_scipy(_unit_words(rows, None, np.float32))


def standardised(rows: Array, shift: Array, factor: Array) -> Array:
    """(X − shift) factor."""
    return _standardised(rows, shift, factor, np.float32)
