"""From the caller's node ids to node numbers 0..n-1, and back.

Ids are never retyped: integers stay integers, text stays text, and any other hashable object is kept as it
is. Nodes are numbered in order of first appearance (source before target, row by row), unless the caller
lists them.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from fastgrl.checks import Array, native, shown
from fastgrl.errors import ArgumentError, DtypeError, InputError, ShapeError

# A table over the range of the ids is quicker than sorting them while it is not much longer than they are.
_TABLE_PER_ID = 4


@dataclass(frozen=True, eq=False)
class Encoded:
    """Edges as node numbers, with the id of each number."""

    sources: Array
    targets: Array
    node_ids: Array


def as_ids(values: Any, what: str) -> Array:
    """A one-dimensional array of ids: integers or finite floats as NumPy has them, anything else as objects.

    >>> as_ids(["7", "007"], "nodes")
    array(['7', '007'], dtype=object)
    """
    array = native(values) if isinstance(values, np.ndarray) else _array_of(values)
    if array.ndim != 1:
        raise ShapeError(f"{what} must be one-dimensional, got shape {array.shape}")
    if array.dtype.kind in "UST":
        return array.astype(object)
    if array.dtype.kind == "O":
        return _checked_objects(array, what)
    if array.dtype.kind not in "uif":
        raise DtypeError(
            f"{what}: {array.dtype} values are not ids; use integers, text or other hashable objects"
        )
    if array.dtype.kind == "f" and not np.isfinite(array).all():
        raise InputError(f"{what}: {array[~np.isfinite(array)][0]} is not an id")
    return array


def _array_of(values: Any) -> Array:
    if hasattr(values, "__array__"):
        return np.asarray(values)
    items = list(values)
    # np.asarray would turn [1, "a"] into text and large integers into floats.
    if all(type(item) is int or isinstance(item, np.integer) for item in items):
        try:
            return np.array(items, np.int64)
        except OverflowError:
            pass
    return objects(items)


def objects(items: list[Any]) -> Array:
    """A one-dimensional object array, also of tuples and other sequences."""
    return np.fromiter(items, object, len(items))


def _checked_objects(array: Array, what: str) -> Array:
    for position, item in enumerate(array):
        if isinstance(item, np.ndarray) or item is None or item != item:
            raise InputError(f"{what}: item {position} is {shown(item)}, which is not an id")
    return array


def encode(sources: Array, targets: Array, *, nodes: Array | None = None) -> Encoded:
    """Number the nodes of the edges `sources[i]` → `targets[i]`.

    >>> encode(as_ids(["b", "a"], ""), as_ids(["a", "c"], "")).sources
    array([0, 1])
    """
    if nodes is not None:
        return _encode_among(sources, targets, nodes)
    if sources.dtype.kind == targets.dtype.kind and sources.dtype.kind in "uif":
        node_ids, codes = first_appearance(_interleaved(sources, targets))
    else:
        table: dict[Any, int] = {}
        codes = _codes_of(_interleaved(sources.astype(object), targets.astype(object)), table)
        node_ids = objects(list(table))
    return Encoded(codes[0::2], codes[1::2], node_ids)


def _interleaved(sources: Array, targets: Array) -> Array:
    both = np.empty(2 * len(sources), np.result_type(sources, targets))
    both[0::2], both[1::2] = sources, targets
    return both


def _codes_of(ids: Array, table: dict[Any, int]) -> Array:
    number = table.setdefault
    try:
        return np.fromiter((number(item, len(table)) for item in ids.tolist()), np.int64, len(ids))
    except TypeError as error:
        raise DtypeError(f"ids must be hashable: {error}") from None


def first_appearance(values: Array) -> tuple[Array, Array]:
    """The distinct numbers in order of first appearance, and each value's position among them.

    >>> first_appearance(np.array([30, 10, 30, 20]))
    (array([30, 10, 20]), array([0, 1, 0, 2]))
    """
    if values.size == 0:
        return values, np.empty(0, np.int64)
    if values.dtype.kind in "ui":
        least, most = int(values.min()), int(values.max())
        if most - least < _TABLE_PER_ID * values.size + 1024:
            return _first_appearance_by_table(values, least, most - least + 1)
    distinct, first, codes = np.unique(values, return_index=True, return_inverse=True)
    order = np.argsort(first)
    number = np.empty_like(order)
    number[order] = np.arange(len(order))
    return distinct[order], number[codes]


def _first_appearance_by_table(values: Array, least: int, length: int) -> tuple[Array, Array]:
    offsets = (values - values.dtype.type(least)).astype(np.int64)
    first = np.full(length, len(values))
    first[offsets[::-1]] = np.arange(len(values) - 1, -1, -1)  # of repeated indices the last assignment stays
    present = np.flatnonzero(first < len(values))
    present = present[np.argsort(first[present])]
    number = np.empty(length, np.int64)
    number[present] = np.arange(len(present))
    return values[first[present]], number[offsets]


def _encode_among(sources: Array, targets: Array, nodes: Array) -> Encoded:
    finder = IdIndex.of(distinct_ids(nodes))
    codes = [finder.find(side) for side in (sources, targets)]
    for ids, found in zip((sources, targets), codes, strict=True):
        if (found < 0).any():
            position = int(np.argmax(found < 0))
            raise InputError(
                f"edge {position + 1} names the node {shown(ids[position])}, which is not among the "
                f"{len(finder.node_ids)} nodes listed; add it to the list, or leave the list out"
            )
    return Encoded(codes[0], codes[1], finder.node_ids)


def distinct_ids(ids: Array) -> Array:
    """The ids without repeats, in order of first appearance."""
    if ids.dtype.kind != "O":
        return first_appearance(ids)[0]
    return objects(list(dict.fromkeys(ids.tolist())))


@dataclass(frozen=True, eq=False)
class IdIndex:
    """Finds node numbers by id."""

    node_ids: Array
    table: dict[Any, int] | None
    order: Array | None

    @classmethod
    def of(cls, node_ids: Array) -> IdIndex:
        """Index distinct `node_ids`."""
        if node_ids.dtype.kind == "O":
            return cls(node_ids, dict(zip(node_ids.tolist(), range(len(node_ids)), strict=True)), None)
        return cls(node_ids, None, np.argsort(node_ids, kind="stable"))

    def find(self, ids: Any) -> Array:
        """Node numbers of `ids`, −1 where there is no such node."""
        if self.table is not None:
            table = self.table
            wanted = ids.tolist() if isinstance(ids, np.ndarray) else list(ids)
            return np.fromiter((table.get(item, -1) for item in wanted), np.int64, len(wanted))
        return self._find_numbers(ids)

    def _find_numbers(self, ids: Any) -> Array:
        wanted = as_ids(ids, "ids")
        if wanted.dtype.kind == "O":
            numbers = dict(zip(self.node_ids.tolist(), range(len(self.node_ids)), strict=True))
            return IdIndex(self.node_ids, numbers, None).find(wanted)
        assert self.order is not None
        place = np.searchsorted(self.node_ids, wanted, sorter=self.order)
        number = self.order[np.minimum(place, len(self.order) - 1)] if len(self.order) else place * 0
        hit = self.node_ids[number] == wanted if len(self.order) else np.zeros(len(wanted), bool)
        return np.where(hit, number, -1)


def iterable_of_pairs(edges: Iterable[Any]) -> tuple[Array, Array, list[Any] | None]:
    """Split `edges`, an (m, 2) array or an iterable of pairs or triples, into sources, targets, weights."""
    if hasattr(edges, "__array__"):
        table = np.asarray(edges)
        if table.ndim != 2 or table.shape[1] != 2:
            raise ShapeError(
                f"edges must have two columns, got shape {table.shape}; weights go into weights="
            )
        return as_ids(table[:, 0], "edges"), as_ids(table[:, 1], "edges"), None
    if not np.iterable(edges):
        raise ArgumentError(f"edges must be pairs of ids, got {shown(edges)}")
    rows = [tuple(row) if np.iterable(row) and not isinstance(row, str) else (row,) for row in edges]
    lengths = {len(row) for row in rows}
    if lengths - {2} and lengths != {3}:
        bad = next(i for i, row in enumerate(rows) if len(row) != (2 if 2 in lengths else 3))
        raise ArgumentError(
            f"edges must be pairs (or all triples with a weight); item {bad} is {shown(rows[bad])}"
        )
    columns = list(zip(*rows, strict=True)) or [(), ()]
    weights = list(columns[2]) if len(columns) == 3 else None
    return as_ids(columns[0], "edges"), as_ids(columns[1], "edges"), weights
