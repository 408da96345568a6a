"""Edges as plain arrays, and as tables of pandas, polars, pyarrow and duckdb.

Ids are never retyped: integers stay integers, text stays text. What cannot be an id or a weight is refused
with its column and row.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import numpy as np

from fastgrl.checks import Array, shown
from fastgrl.errors import ArgumentError, InputError, MissingExtraError
from fastgrl.ids import as_ids, objects

_COLUMN_NAMES = (("source", "target"), ("src", "dst"), ("from", "to"), ("u", "v"))
_BACKENDS = ("pandas", "polars", "pyarrow")


@dataclass(frozen=True, eq=False)
class Edges:
    """Edges from `sources[i]` to `targets[i]`, arrays of ids, with `weights[i]` unless unweighted.

    `nodes` holds every id once and in order, isolated nodes too, and `codes` the same edges as an (m, 2)
    array of positions in `nodes`; a table of edges knows neither. An undirected edge occurs once.
    """

    sources: Array
    targets: Array
    weights: Array | None = None
    nodes: Array | None = None
    directed: bool = False
    codes: Array | None = None

    @classmethod
    def between(cls, nodes: Array, codes: Array, *, weights: Array | None, directed: bool) -> Edges:
        """Edges from positions in `nodes`."""
        return cls(nodes[codes[:, 0]], nodes[codes[:, 1]], weights, nodes, directed, codes)

    def numbered(self) -> tuple[Array, Array]:
        """`nodes` and `codes`, for libraries that count their nodes."""
        if self.nodes is None or self.codes is None:
            raise ArgumentError("edges without nodes= and codes= cannot be handed to another graph library")
        return self.nodes, self.codes


def from_frame(
    frame: Any, *, source: str | None = None, target: str | None = None, weight: str | None = "weight"
) -> Edges:
    """Edges from a table: pandas, polars, pyarrow, duckdb, or what else narwhals knows, lazy or not.

    `source` and `target` name columns of integers or text, kept as they are. Without them the columns are
    source and target, src and dst, from and to, u and v, else the first two. A column "weight" holds
    weights if it is there; any other name must be there; `weight=None` ignores weights.
    """
    table = _narwhal(frame)
    names = list(table.collect_schema().names())
    columns = [*_ends(names, source, target), *_weight_column(names, weight)]
    if len(set(columns)) < len(columns):
        raise ArgumentError(f"source, target and weight must be different columns, got {columns}")
    chosen = table.select(*map(library("narwhals").col, columns)).lazy().collect()
    source_ids, target_ids, *numbers = chosen.iter_columns()
    weights = _number_column(numbers[0]) if numbers else None
    return Edges(_id_column(source_ids), _id_column(target_ids), weights)


def to_frame(edges: Edges, *, backend: str = "pandas") -> Any:
    """A table with columns source, target and, if weighted, weight; `backend` is the library's name.

    Isolated nodes and the direction do not fit into it. pandas takes ids of any type, the others integers
    (polars up to 128 bits), floats or text, not mixed.
    """
    if backend not in _BACKENDS:
        raise ArgumentError(f"backend is one of {', '.join(_BACKENDS)}, got {shown(backend)}")
    package, (nodes, codes) = library(backend), edges.numbered()
    ids = nodes if backend == "pandas" else storable(nodes, "id")
    columns = {"source": ids[codes[:, 0]], "target": ids[codes[:, 1]]}
    if edges.weights is not None:
        columns["weight"] = edges.weights
    try:
        return _TABLES[backend](package, columns)
    except (OverflowError, UnicodeError) as error:
        raise ArgumentError(f"the ids do not fit into a {backend} table: {error}") from None


def _pandas_table(pandas: Any, columns: dict[str, Array]) -> Any:
    return pandas.DataFrame(columns)


def _polars_table(polars: Any, columns: dict[str, Array]) -> Any:
    return polars.DataFrame(
        [
            polars.Series(name, _plain(column), _object_type(column, polars.String, polars.Int128))
            for name, column in columns.items()
        ]
    )


def _arrow_table(pyarrow: Any, columns: dict[str, Array]) -> Any:
    return pyarrow.table(
        {
            name: pyarrow.array(_plain(column), _object_type(column, pyarrow.string(), None))
            for name, column in columns.items()
        }
    )


_TABLES: dict[str, Callable[[Any, dict[str, Array]], Any]] = {
    "pandas": _pandas_table,
    "polars": _polars_table,
    "pyarrow": _arrow_table,
}


def _plain(column: Array) -> Any:
    return column.tolist() if column.dtype.kind == "O" else column


def _object_type(column: Array, text: Any, integer: Any) -> Any:
    if column.dtype.kind != "O":
        return None
    return integer if len(column) and isinstance(column[0], int) else text


def storable(values: Any, what: str) -> Array:
    """`values` as a column that a file can hold: numbers as NumPy has them, or an object array of text.

    Python integers beyond 64 bits stay objects. Mixed and other types are refused and named.

    >>> storable(["7", "007"], "id")
    array(['7', '007'], dtype=object)
    """
    array = values if isinstance(values, np.ndarray) else objects(list(values))
    if array.dtype.kind in "buif":
        return array
    column = objects(array.tolist())
    kinds = [_storage(item) for item in column]
    if kinds and (None in kinds or len(set(kinds)) > 1):
        row = next(i for i, kind in enumerate(kinds) if kind is None or kind is not kinds[0])
        item = f"{what} {shown(column[row])} ({type(column[row]).__name__}, row {row + 1})"
        only = "a column holds integers, floats or valid text, and only one of them"
        raise ArgumentError(f"{item} cannot be stored: {only}")
    return column if not kinds or kinds[0] is str else _packed(column, kinds[0])


def _storage(item: Any) -> type[Any] | None:
    if isinstance(item, str):
        return str if item.isascii() or _is_unicode(item) else None
    if isinstance(item, bool | np.bool_):
        return bool
    if isinstance(item, int | np.integer):
        return int
    return float if isinstance(item, float | np.floating) else None


def _is_unicode(text: str) -> bool:
    return not any("\ud800" <= character <= "\udfff" for character in text)


def _packed(column: Array, kind: type[Any] | None) -> Array:
    for dtype in (np.int64, np.uint64) if kind is int else (np.dtype(kind),):
        try:
            return np.array(column.tolist(), dtype)
        except OverflowError:
            continue
    return column


def _narwhal(frame: Any) -> Any:
    narwhals = library("narwhals", "reading tables needs narwhals: pip install 'fastgrl[io]'")
    try:
        return narwhals.from_native(frame)
    except TypeError:
        raise ArgumentError(
            f"from_frame takes a pandas, polars, pyarrow or duckdb table, got {type_name(frame)}"
        ) from None
    except narwhals.exceptions.DuplicateError as error:
        raise InputError(f"two columns have the same name: {shown(str(error))}") from None


def _ends(names: list[Any], source: Any, target: Any) -> list[Any]:
    if (source is None) != (target is None):
        raise ArgumentError("give source= and target= together, or neither")
    if source is not None:
        return [_column_called(names, source), _column_called(names, target)]
    known = [pair for pair in _COLUMN_NAMES if set(pair) <= set(names)]
    pair = [*known[0]] if known else names[:2]
    if len(pair) < 2:
        raise InputError(f"a table of edges has at least two columns, this one has {len(names)}")
    return pair


def _weight_column(names: list[Any], weight: Any) -> list[Any]:
    if weight is None or (weight == "weight" and weight not in names):
        return []
    return [_column_called(names, weight)]


def _column_called(names: list[Any], name: Any) -> Any:
    if name not in names:
        listed = ", ".join(shown(other) for other in names[:10]) + ", …" * (len(names) > 10)
        raise InputError(f"there is no column {shown(name)}; the columns are {listed}")
    return name


def _id_column(series: Any) -> Array:
    narwhals, dtype = library("narwhals"), series.dtype
    if len(series) == 0:
        return np.empty(0, np.int64) if dtype.is_integer() else objects([])
    _refuse_nulls(series)
    if dtype.is_integer() and dtype not in (narwhals.Int128, narwhals.UInt128):
        return np.asarray(series.to_numpy())
    if dtype.is_float():
        values = np.asarray(series.to_numpy(), np.float64)
        return sound(values, lambda row: _cell(series, row), negative=True)
    if dtype.is_nested() or not (dtype.is_numeric() or dtype in _plain_types(narwhals)):
        raise InputError(f"column {shown(series.name)} holds {dtype}, not ids; cast it to integers or text")
    items = [_object_id(item, series, row) for row, item in enumerate(series.to_list())]
    return as_ids(items, f"column {shown(series.name)}")


def _plain_types(narwhals: Any) -> tuple[Any, ...]:
    return narwhals.String, narwhals.Categorical, narwhals.Enum, narwhals.Object


def _object_id(item: Any, series: Any, row: int) -> Any:
    if isinstance(item, Decimal) and item.is_finite() and item == item.to_integral_value():
        return int(item)  # what DuckDB makes of its largest integers
    if isinstance(item, Decimal | bool | np.bool_) or not isinstance(item, Hashable):
        raise InputError(f"{_cell(series, row)} holds {shown(item)}, which is not an id")
    return item


def _number_column(series: Any) -> Array:
    narwhals = library("narwhals")
    if len(series) and not series.dtype.is_numeric():
        raise InputError(f"column {shown(series.name)} holds {series.dtype}, but weights are numbers")
    _refuse_nulls(series)
    values = np.array(series.cast(narwhals.Float64).to_numpy() if len(series) else [], np.float64)
    return sound(values, lambda row: _cell(series, row))


def _refuse_nulls(series: Any) -> None:
    nulls = series.is_null().to_numpy()
    if nulls.any():
        raise InputError(f"{_cell(series, int(nulls.argmax()))} is empty")


def _cell(series: Any, row: int) -> str:
    return f"column {shown(series.name)}, row {row + 1}"


def sound(array: Array, place: Callable[[int], str], *, negative: bool = False) -> Array:
    """`array`, if it is finite and, unless allowed, not negative; the error names `place(row)`."""
    wrong = ~np.isfinite(array) if negative else ~(np.isfinite(array) & (array >= 0))
    if wrong.any():
        row = int(wrong.argmax())
        wanted = "finite" if negative else "finite and not negative"
        raise InputError(f"{place(row)} is {array[row]}; it must be {wanted}")
    return array


def type_name(value: Any) -> str:
    """The full name of a value's type, for messages."""
    return f"{type(value).__module__}.{type(value).__qualname__}"


def library(name: str, message: str | None = None) -> Any:
    """Import an optional package, or say how to get it."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        package = name.partition(".")[0]
        raise MissingExtraError(message or f"{package} is not installed: pip install {package}") from error
