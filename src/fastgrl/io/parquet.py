"""Edge tables in Parquet files: ids keep the type they have there."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import Any, NoReturn

import numpy as np

from fastgrl.checks import Array, shown
from fastgrl.errors import InputError, MissingExtraError
from fastgrl.graph import Graph
from fastgrl.ids import Encoded, as_ids, encode, first_appearance, objects
from fastgrl.io.layout import Options, choose_columns, unused_columns
from fastgrl.kernels import compiled_module

PARQUET_ENDINGS = (".parquet", ".pq")


def graph_from_parquet(
    name: str, file: Any, options: Options, *, nodes: Any, directed: bool
) -> tuple[Graph, dict[str, str], tuple[str, ...]]:
    """A graph from two columns of a Parquet file (three with weights), which they were, and what was odd."""
    found = opened_table(name, file, options)
    encoded = _encoded(*found.ends(), nodes)
    graph = Graph._from_encoded(encoded, weights=found.weights(), directed=directed)
    return graph, found.described(), found.notices


def graph_from_parquet_folder(
    folder: Path, options: Options, *, nodes: Any, directed: bool
) -> tuple[Graph, dict[str, str], tuple[str, ...]]:
    """A graph from all Parquet files below a folder, one after another; those without rows are left out."""
    files = list(parquet_files_below(folder))
    parts = [part for path in sorted(files) if (part := _part_in(path, options)) is not None]
    if not parts:
        raise InputError(f"{shown(str(folder), 200)}: none of its {len(files)} Parquet files has edges")
    for part in parts:
        check_alike(parts[0].traits, part.traits)
    sources, targets = (_one_below_another([part.ends[side] for part in parts]) for side in range(2))
    weights = [part.weights for part in parts if part.weights is not None]
    encoded = _encoded(sources, targets, nodes)
    graph = Graph._from_encoded(
        encoded, weights=np.concatenate(weights) if weights else None, directed=directed
    )
    return graph, {"files": f"{len(files)}"} | parts[0].described, parts[0].notices


@dataclass(frozen=True)
class Traits:
    """What files must have in common to be parts of one table of edges."""

    name: str
    columns: tuple[str, str]
    ids: str
    weighted: bool


@dataclass(frozen=True, eq=False)
class _Part:
    traits: Traits
    ends: tuple[Any, Any]
    weights: Array | None
    described: dict[str, str]
    notices: tuple[str, ...]


def _part_in(path: Path, options: Options) -> _Part | None:
    """The edges of one file, which is closed again; None if it has no rows."""
    table = opened_table(str(path), path, options, may_be_empty=True)
    try:
        if not table.rows:
            return None
        sources, targets = map(whole_ids, table.ends())
        traits = Traits(
            str(path), table.id_columns, kind_of_ids(str(path), sources, targets), table.weight >= 0
        )
        return _Part(traits, (sources, targets), table.weights(), table.described(), table.notices)
    finally:
        table.file.close()


def whole_ids(ids: Any) -> Any:
    """Integers as int64 wherever they fit; other ids as they are."""
    if not isinstance(ids, np.ndarray) or ids.dtype.kind not in "ui":
        return ids
    return ids if ids.dtype.kind == "u" and ids.max(initial=0) >= 2**63 else ids.astype(np.int64)


_KINDS = {"i": "integers", "u": "integers above 2⁶³", "f": "numbers with a fraction"}


def kind_of_ids(name: str, sources: Any, targets: Any) -> str:
    """What the ids of a file are, in words; two kinds are never brought to one: some ids would be lost."""
    ends = (sources, targets)
    one, other = (_KINDS[side.dtype.kind] if isinstance(side, np.ndarray) else "text" for side in ends)
    if one != other:
        raise InputError(f"{name}: one column of ids holds {one}, the other {other}; make them alike")
    return one


def parquet_files_below(folder: Path) -> Iterator[Path]:
    """The Parquet files of a folder and the folders in it; none that is hidden or begins with _."""
    for path in folder.rglob("*"):
        if (
            path.suffix in PARQUET_ENDINGS
            and not is_hidden(path.relative_to(folder).parts)
            and path.is_file()
        ):
            yield path


def is_hidden(parts: Iterable[str]) -> bool:
    """Whether a name or that of a folder above it is one that programs keep for themselves."""
    return any(part.startswith((".", "_")) for part in parts)


def check_alike(first: Traits, other: Traits) -> None:
    """Refuse two files that are not parts of one table."""
    names = [shown(PurePath(one.name).name, 100) for one in (first, other)]
    if other.columns != first.columns:
        pairs = [" and ".join(map(shown, one.columns)) for one in (first, other)]
        raise InputError(
            f"ids are in the columns {pairs[0]} of {names[0]}, and in {pairs[1]} of {names[1]}: name them "
            "with --columns, or take files that hold no edges away"
        )
    if other.ids != first.ids:
        raise InputError(f"ids are {first.ids} in {names[0]} and {other.ids} in {names[1]}; make them alike")
    if other.weighted != first.weighted:
        with_, without = names if first.weighted else names[::-1]
        raise InputError(f"{with_} has weights and {without} has none; pass unweighted, or add them")


def _one_below_another(columns: list[Any]) -> Any:
    import pyarrow as pa

    if isinstance(columns[0], np.ndarray):
        return np.concatenate(columns)
    return pa.chunked_array([chunk for column in columns for chunk in column.chunks])


@dataclass(frozen=True, eq=False)
class Table:
    """A Parquet file of edges, open, and which of its columns (from 0; weight −1: none) hold what."""

    name: str
    file: Any
    names: tuple[str, ...]
    source: int
    target: int
    weight: int
    notices: tuple[str, ...]

    @property
    def rows(self) -> int:
        """As many edges."""
        return int(self.file.metadata.num_rows)

    @property
    def kind(self) -> str:
        """What both ids are: "text", "i" or "u" for integers with and without a sign, or "other"."""
        kinds = {_kind_of(self.file.schema_arrow.field(i).type) for i in (self.source, self.target)}
        return kinds.pop() if len(kinds) == 1 else "other"

    @property
    def id_columns(self) -> tuple[str, str]:
        """The names of the two columns of ids."""
        return self.names[self.source], self.names[self.target]

    def ends(self) -> tuple[Any, Any]:
        """Both columns of ids: an array of numbers, or an Arrow array of text."""
        source, target = self.id_columns
        return (
            _ids(self.name, source, _column(self.name, self.file, source)),
            _ids(self.name, target, _column(self.name, self.file, target)),
        )

    def weights(self) -> Array | None:
        """The weights, if there are any."""
        if self.weight < 0:
            return None
        column = self.names[self.weight]
        return _weights(self.name, column, _column(self.name, self.file, column))

    def described(self) -> dict[str, str]:
        """Which columns are used, for people."""
        weights = self.names[self.weight] if self.weight >= 0 else "none"
        used = {"source": self.names[self.source], "target": self.names[self.target], "weights": weights}
        return {key: shown(value)[1:-1] for key, value in used.items()}

    def batches(self, rows: int) -> Iterator[tuple[Any, Any, Array | None]]:
        """The edges in pieces: integers as arrays, text as offsets and bytes, weights if there are any."""
        import pyarrow as pa

        chosen = [self.names[i] for i in (self.source, self.target, self.weight) if i >= 0]
        before = 0
        try:
            for batch in self.file.iter_batches(batch_size=rows, columns=chosen):
                columns = [self._checked(batch.column(column), column, before) for column in chosen]
                ends = [
                    self._ids(values, column) for values, column in zip(columns, chosen[:2], strict=False)
                ]
                weights = _weights(self.name, chosen[2], columns[2], before) if len(chosen) > 2 else None
                before += len(batch)
                yield ends[0], ends[1], weights
        except (pa.ArrowException, OSError, NotImplementedError) as error:
            raise InputError(f"{self.name}: damaged: {_brief(error)}") from None

    def _checked(self, values: Any, column: str, before: int) -> Any:
        values.validate(full=True)
        if values.null_count:
            _refuse_null(self.name, column, values, before)
        return values

    def _ids(self, values: Any, column: str) -> Any:
        found = _ids(self.name, column, values)
        return found if isinstance(found, np.ndarray) else _buffers(found)


def _kind_of(kind: Any) -> str:
    import pyarrow as pa

    kind = kind.value_type if pa.types.is_dictionary(kind) else kind
    if pa.types.is_integer(kind):
        return "i" if pa.types.is_signed_integer(kind) else "u"
    texts = (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view)
    return "text" if any(is_text(kind) for is_text in texts) else "other"


def opened_table(name: str, file: Any, options: Options, *, may_be_empty: bool = False) -> Table:
    """Open a Parquet file of edges and choose its columns."""
    table = _opened(name, file)
    names = tuple(table.schema_arrow.names)
    if len(names) < 2:
        raise InputError(f"{name} has {len(names)} column; an edge list needs two, source and target")
    source, target, weight = choose_columns(name, names, options)
    if twice := [names[i] for i in (source, target, weight) if i >= 0 and names.count(names[i]) > 1]:
        raise InputError(f"{name} has several columns called {shown(twice[0])}; rename them")
    if table.metadata.num_rows == 0 and not may_be_empty:
        raise InputError(f"{name} is empty: it has no edges")
    unused = unused_columns(names, len(names), {source, target, weight}, options)
    return Table(name, table, names, source, target, weight, unused)


def ids_from_parquet(name: str, file: Any) -> Array:
    """The first column of a Parquet file as ids."""
    table = _opened(name, file)
    first = table.schema_arrow.names[0]
    values = _ids(name, first, _column(name, table, first))
    return as_ids(values if isinstance(values, np.ndarray) else values.to_pylist(), name)


def _opened(name: str, file: Any) -> Any:
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError:
        raise MissingExtraError("Parquet files need pyarrow: pip install 'fastgrl[io]'") from None
    try:
        return pq.ParquetFile(file)
    except (pa.ArrowException, OSError, ValueError) as error:
        raise InputError(f"{name}: not a whole Parquet file: {_brief(error)}") from None


def _brief(error: Exception) -> str:
    return shown(str(error), 120)[1:-1]


def _column(name: str, table: Any, column: str) -> Any:
    import pyarrow as pa

    try:
        values = table.read([column]).column(0)
        values.validate(full=True)
    except (pa.ArrowException, OSError, ValueError, NotImplementedError) as error:
        raise InputError(f"{name}, column {shown(column)}: damaged: {_brief(error)}") from None
    if values.null_count:
        _refuse_null(name, column, values, 0)
    return values


def _refuse_null(name: str, column: str, values: Any, before: int) -> NoReturn:
    row = before + int(np.argmax(values.is_null().to_numpy(zero_copy_only=False)))
    raise InputError(f"{name}, row {row + 1}, column {shown(column)}: the value is missing")


def _ids(name: str, column: str, values: Any) -> Any:
    """Integers and floats as a NumPy array; text as an Arrow array."""
    import pyarrow as pa

    kind = values.type.value_type if pa.types.is_dictionary(values.type) else values.type
    if pa.types.is_dictionary(values.type):
        values = values.cast(kind)
    if pa.types.is_integer(kind):
        return values.to_numpy()
    if pa.types.is_floating(kind):
        numbers = values.to_numpy().astype(np.float64)
        if not np.isfinite(numbers).all():
            row = int(np.argmin(np.isfinite(numbers)))
            raise InputError(f"{name}, row {row + 1}, column {shown(column)}: {numbers[row]} is not an id")
        return numbers
    if pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
        return values.cast(pa.large_string())
    raise InputError(f"{name}, column {shown(column)}: {kind} values are not ids; expected integers or text")


def _encoded(sources: Any, targets: Any, nodes: Any) -> Encoded:
    if isinstance(sources, np.ndarray) or isinstance(targets, np.ndarray) or nodes is not None:
        ends = [as_ids(e if isinstance(e, np.ndarray) else e.to_pylist(), "ids") for e in (sources, targets)]
        return encode(ends[0], ends[1], nodes=None if nodes is None else as_ids(nodes, "nodes"))
    texts, codes = _numbered(sources, targets)
    order, numbers = first_appearance(codes.ravel())
    return Encoded(numbers[0::2], numbers[1::2], objects([texts[i] for i in order]))


def _numbered(sources: Any, targets: Any) -> tuple[list[str], Array]:
    """The distinct texts of two columns, and for each row the two numbers of its texts among them."""
    compiled = compiled_module()
    if compiled is None:
        import pyarrow as pa

        both = pa.chunked_array([*sources.chunks, *targets.chunks]).combine_chunks().dictionary_encode()
        return both.dictionary.to_pylist(), both.indices.to_numpy().reshape(2, -1).T
    table = compiled.IdTable()
    columns = [
        np.concatenate([table.number(*_buffers(c)) for c in side.chunks]) for side in (sources, targets)
    ]
    return table.texts(), np.stack(columns, axis=1)


def _buffers(chunk: Any) -> tuple[Array, Array]:
    """Offsets and bytes of an Arrow array of large strings, without copying them."""
    _, offsets, data = chunk.buffers()
    places = np.frombuffer(offsets, np.int64)[chunk.offset : chunk.offset + len(chunk) + 1]
    return places, np.frombuffer(b"" if data is None else data, np.uint8)


def _weights(name: str, column: str, values: Any, before: int = 0) -> Array:
    import pyarrow as pa

    if not (pa.types.is_integer(values.type) or pa.types.is_floating(values.type)):
        raise InputError(f"{name}, column {shown(column)}: {values.type} values are not weights")
    weights: Array = values.to_numpy().astype(np.float64)
    bad = ~np.isfinite(weights) | (weights < 0)
    if bad.any():
        row = int(np.argmax(bad))
        raise InputError(
            f"{name}, row {before + row + 1}, column {shown(column)}: weight {weights[row]} is negative "
            "or not finite"
        )
    return weights
