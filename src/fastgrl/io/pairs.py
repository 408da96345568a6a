"""Pairs of ids and lists of ids, in the order of their file; an unknown id is named with its line."""

from __future__ import annotations

import io
import itertools
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from fastgrl.checks import Array, shown
from fastgrl.errors import ArgumentError, InputError, UnknownIdError
from fastgrl.frames import storable
from fastgrl.graph import Graph
from fastgrl.ids import IdIndex, as_ids, encode, objects
from fastgrl.io import parquet
from fastgrl.io.arrays import array_from_npy
from fastgrl.io.atomic import STDOUT, StrPath, named, whole_file
from fastgrl.io.layout import Options, choose_columns
from fastgrl.io.reading import _HEAD, _format_of, _Job
from fastgrl.io.records import Tokenizer
from fastgrl.io.sources import Progress, decoded, naming, opened
from fastgrl.io.text import TextEdges, read_text
from fastgrl.io.writers import TABLE_ENDINGS, _fixed_width, _write_npz, write_table
from fastgrl.parallel import use_threads

_INTEGER = re.compile(r"0|-?[1-9][0-9]{0,17}", re.ASCII)
_BLOCK = 1 << 24


@dataclass(frozen=True, eq=False)
class IdTable:
    """Rows of one or two ids: `codes[i]` are positions in `ids`; `place(i)` says where row i stands."""

    name: str
    ids: Array
    codes: Array
    place: Callable[[int], str]

    @property
    def columns(self) -> list[Array]:
        """The ids of every row, a column at a time, as they were given."""
        return [self.ids[column] for column in self.codes.T]

    def numbers_in(self, graph: Graph) -> Array:
        """Node numbers of all rows; an id that is not in the graph is an error with its place."""
        found = find_ids(graph, self.ids)[self.codes]
        if (found < 0).any():
            row, column = np.argwhere(found < 0)[0]
            unknown = shown(self.ids[self.codes[row, column]])
            raise UnknownIdError(
                f"{self.name}, {self.place(int(row))}: no node has the id {unknown} in the graph of "
                f"{graph.num_nodes} nodes that was fitted"
            )
        return found


def find_ids(graph: Graph, ids: Array) -> Array:
    """Node numbers of ids, −1 where there is none; a text is also the integer that it spells, and vice versa.

    >>> find_ids(fg.Graph.from_edges([(7, 8)]), np.array(["8", "07"], object))
    array([ 1, -1])
    """
    return IdIndex.of(graph.node_ids).find(retyped(ids, graph.node_ids))


def retyped(ids: Array, like: Array) -> Array:
    """Ids as the type of `like`, where both are integers or text and nothing is lost.

    >>> retyped(np.array(["8", "07"], object), np.array([1, 2])).tolist()
    [8, '07']
    """
    texts = like.dtype.kind == "O" and len(like) > 0 and isinstance(like[0], str)
    if texts and ids.dtype.kind in "ui":
        return objects(list(map(str, ids.tolist())))
    if like.dtype.kind in "ui" and ids.dtype.kind == "O":
        return as_ids([_spelt(item) for item in ids.tolist()], "ids")
    return ids


def _spelt(item: Any) -> Any:
    return int(item) if isinstance(item, str) and _INTEGER.fullmatch(item) else item


def read_pairs(source: Any, **options: Any) -> IdTable:
    """Pairs of ids from text (plain or packed), Parquet or NPY; repeats and order are kept.

    >>> table = read_pairs(io.BytesIO(b"source,target\\nann,bob\\nbob,ann\\n"))
    >>> [column.tolist() for column in table.columns]
    [['ann', 'bob'], ['bob', 'ann']]
    """
    return _read(source, pairs=True, **options)


def read_ids(source: Any, **options: Any) -> IdTable:
    """Ids from the first column of a text (plain or packed), Parquet or NPY; repeats and order are kept."""
    return _read(source, pairs=False, **options)


def check_table_name(path: StrPath) -> StrPath:
    """`path` if its ending says how `write_columns` is to write it."""
    if os.fspath(path) != STDOUT and Path(path).suffix.lower() not in (*TABLE_ENDINGS, ".npz"):
        endings = " ".join((*TABLE_ENDINGS, ".npz"))
        raise ArgumentError(f"{named(path)} must end in one of {endings}, which says the format")
    return path


def write_columns(path: StrPath, columns: Mapping[str, Any]) -> None:
    """`write_table` that knows .npz too, an array for each column; what is there is overwritten."""
    if Path(check_table_name(path)).suffix.lower() != ".npz":
        write_table(path, columns, force=True)
        return
    arrays = {name: _fixed_width(storable(column, name)) for name, column in columns.items()}
    with whole_file(path) as file:
        _write_npz(file, arrays=arrays)


def _read(
    source: Any,
    *,
    pairs: bool,
    encoding: str | None = None,
    n_threads: int | None = None,
    progress: Progress | None = None,
    **options: Any,
) -> IdTable:
    kept = _standard_input() if source == "-" else source
    with use_threads(n_threads), opened(kept) as file:
        head = file.read(_HEAD)
        kind = _format_of(file, head)
        chosen = Options(**options, unweighted=pairs)
        job = _Job(file, head, chosen, True, encoding, None, progress)
        if kind not in _READERS:
            what = "pairs are" if pairs else "a list of ids is"
            raise InputError(f"{file.name}: {what} read from text, Parquet or NPY, not from {kind.upper()}")
        with naming(file.name):
            return _READERS[kind](job, pairs, kept)


class _Named(io.BytesIO):
    name = "standard input"


def _standard_input() -> _Named:
    """All of it, since the line of an unknown id is looked for in a second pass."""
    kept = _Named()
    with opened("-") as file:
        while part := file.read(_BLOCK):
            kept.write(part)
    kept.seek(0)
    return kept


def _from_text(job: _Job, pairs: bool, again: Any) -> IdTable:
    found = read_text(
        job.source, job.head, job.options, encoding=job.encoding, progress=job.progress, nodes=not pairs
    )
    codes = np.stack([found.sources, found.targets][: 1 + pairs], axis=1)
    return IdTable(job.source.name, objects(found.ids), codes, lambda row: _line(again, found, row))


def _line(source: Any, found: TextEdges, row: int) -> str:
    """The place of a record, by reading the text once more."""
    if isinstance(source, io.BytesIO):
        source.seek(0)
    with opened(source) as file:
        head = file.read(_HEAD)
        _, read = decoded(file, head, found.encoding)
        text = b"".join(iter(lambda: read(_BLOCK), b"")).decode("latin-1")
    records = iter(Tokenizer(text[found.layout.begin :], found.layout.dialect))
    record = next(itertools.islice(records, row, None), None)
    return f"row {row + 1}" if record is None else f"line {found.layout.first_line + record.line + 1}"


def _from_parquet(job: _Job, pairs: bool, again: Any) -> IdTable:  # noqa: ARG001
    name = job.source.name
    table = parquet._opened(name, io.BytesIO(job.all_bytes()))
    names = tuple(table.schema_arrow.names)
    if len(names) < 1 + pairs or table.metadata.num_rows == 0:
        raise InputError(
            f"{name} is empty or has too few columns; expected {'source, target' if pairs else 'ids'}"
        )
    places = choose_columns(name, names, job.options)[:2] if pairs else (0, 0)
    ends = [parquet._ids(name, names[i], parquet._column(name, table, names[i])) for i in places]
    found = parquet._encoded(ends[0], ends[1], None)
    codes = np.stack([found.sources, found.targets][: 1 + pairs], axis=1)
    return IdTable(name, found.node_ids, codes, lambda row: f"row {row + 1}")


def _from_npy(job: _Job, pairs: bool, again: Any) -> IdTable:  # noqa: ARG001
    name, table = job.source.name, array_from_npy(job.source.name, job.all_bytes())
    rows = table.reshape(-1, 1) if table.ndim == 1 else table
    if rows.ndim != 2 or rows.shape[1] != 1 + pairs or rows.dtype.kind not in "uiU" or not len(rows):
        expected = "an (m, 2) array" if pairs else "a row"
        raise InputError(f"{name} holds {table.dtype} of shape {table.shape}; expected {expected} of ids")
    found = encode(as_ids(rows[:, 0], name), as_ids(rows[:, -1], name))
    codes = np.stack([found.sources, found.targets][: 1 + pairs], axis=1)
    return IdTable(name, found.node_ids, codes, lambda row: f"row {row + 1}")


_READERS: dict[str, Callable[[_Job, bool, Any], IdTable]] = {
    "text": _from_text,
    "parquet": _from_parquet,
    "npy": _from_npy,
}
