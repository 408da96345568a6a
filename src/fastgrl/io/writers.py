"""Embeddings, tables and graphs as files, chosen by the ending of the name; whole or not at all.

Ids come back exactly as they were, but for their type: text cannot tell the integer 7 from the text "7".
"""

from __future__ import annotations

import os
import re
import zipfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO, TypeAlias

import numpy as np

from fastgrl.checks import Array, finite_array, shown
from fastgrl.errors import ArgumentError, ShapeError
from fastgrl.frames import library, storable
from fastgrl.graph import Graph
from fastgrl.io.atomic import STDOUT, StrPath, check_output, named, whole_files
from fastgrl.lazy_ids import LazyIds
from fastgrl.spilling import is_mapped, release

Column: TypeAlias = Array | LazyIds
Columns: TypeAlias = Mapping[str, Column]
Content: TypeAlias = Callable[[BinaryIO], None]

EMBEDDING_ENDINGS = (".parquet", ".csv", ".npz", ".npy", ".txt")
TABLE_ENDINGS = (".csv", ".tsv", ".parquet")
GRAPH_ENDINGS = (*TABLE_ENDINGS, ".npz")

_TEXT_CHUNK_CELLS = 1 << 18
_PART_BYTES = 1 << 24
_ROW_GROUP_CELLS = 1 << 22
# NumPy pads every text to the longest: one long id must not fill the memory.
_PADDED_BYTES, _PADDED_TIMES = 1 << 30, 8
# Delimiters, quotes, line ends anywhere; blanks at either end; what may begin a comment or a quotation.
_NEEDS_QUOTES = re.compile(r"""[,;|"\x00-\x1f\x7f\x85\u2028\u2029]|^[\s#%'/\ufeff]|\s$|^$""")
_OTHERS = "write .csv or .parquet"
_ZIP_EPOCH = (1980, 1, 1, 0, 0, 0)  # the same content is the same file, whenever it is written


def write_embedding(
    path: StrPath, vectors: Any, *, node_ids: Any, force: bool = False, column_prefix: str = "e"
) -> None:
    """Write one row per node: its id and its vector, a row of the (n, k) array `vectors`.

    By the ending of `path`: .parquet and .csv have columns id, e0, …, e(k-1), e being the `column_prefix`;
    .npz has the arrays ids and embedding; .npy has the embedding alone, with the ids in NAME.ids.csv beside
    it; .txt is word2vec's text format. Text holds every number exactly, in as few digits as that takes. "-"
    is csv on standard output. An existing file is replaced with `force` only. `node_ids` may be the `ids` of
    a graph on disk: they and mapped vectors pass through memory in parts.

    >>> from fastgrl.io.writers import write_embedding
    >>> from pathlib import Path
    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     write_embedding(f"{folder}/v.csv", np.array([[0.5, 2.0]]), node_ids=["ann"])
    ...     Path(f"{folder}/v.csv").read_text()
    'id,e0,e1\\nann,0.5,2.0\\n'
    """
    ending = _ending(path, EMBEDDING_ENDINGS)
    array = _finite_vectors(vectors)
    ids = node_ids if isinstance(node_ids, LazyIds) else storable(node_ids, "id")
    if len(ids) != len(array):
        raise ShapeError(f"there are {len(ids)} node_ids for {len(array)} vectors")
    contents = _embedding_contents(ending, ids, array, column_prefix)
    _write(dict(zip(embedding_files(path), contents, strict=True)), force=force)


def embedding_files(path: StrPath) -> tuple[StrPath, ...]:
    """The files that `write_embedding` writes for `path`; an unknown ending is refused.

    >>> from fastgrl.io.writers import embedding_files
    >>> embedding_files("friends.csv"), embedding_files("friends.npy")
    (('friends.csv',), ('friends.npy', 'friends.ids.csv'))
    """
    ending = _ending(path, EMBEDDING_ENDINGS)
    return (path, os.fspath(Path(path).with_suffix(".ids.csv"))) if ending == ".npy" else (path,)


def write_table(path: StrPath, columns: Mapping[str, Any], *, force: bool = False) -> None:
    """Write columns of equal length as .csv, .tsv or .parquet, as `path` ends; "-" is csv on standard output.

    A column holds integers, floats, booleans or text. Text is quoted only where it must be, and comes back
    exactly from any reader of csv files. An existing file is replaced with `force` only.

    >>> from fastgrl.io.writers import write_table
    >>> from pathlib import Path
    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     write_table(f"{folder}/t.csv", {"node": ["ann", "bob"], "score": [0.5, 1.5]})
    ...     Path(f"{folder}/t.csv").read_text()
    'node,score\\nann,0.5\\nbob,1.5\\n'
    """
    ending = _ending(path, TABLE_ENDINGS)
    table = {name: storable(values, f"column {shown(name)}:") for name, values in columns.items()}
    lengths = {name: len(column) for name, column in table.items()}
    if len(set(lengths.values())) > 1:
        raise ShapeError(f"columns must have one length, got {lengths}")
    _write({path: _table(table, ending)}, force=force)


def write_graph(graph: Graph, path: StrPath, *, nodes: StrPath | None = None, force: bool = False) -> None:
    """Write a graph as .csv, .tsv or .parquet (source, target and, if weighted, weight), or as .npz.

    The ending of `path` says which. A table of edges has no place for nodes without edges: `nodes` names
    a table for all ids, in order, and without it such a graph is refused. The .npz file holds everything,
    also whether the graph is directed; `scipy.sparse.load_npz` reads its matrix. An existing file is replaced
    with `force` only.

    >>> from fastgrl.io.writers import write_graph
    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     write_graph(fg.Graph.from_edges([("ann", "bob")]), f"{folder}/g.npz")
    ...     fg.read_graph(f"{folder}/g.npz").node_ids.tolist()
    ['ann', 'bob']
    """
    ending = _ending(path, GRAPH_ENDINGS)
    contents: dict[StrPath, Content]
    if ending == ".npz":
        contents = {path: partial(_write_npz, arrays=_graph_arrays(graph))}
    else:
        if nodes is None:
            _refuse_lost_nodes(graph, path)
        contents = {path: _id_table(_edge_columns(graph), ending)}
    if nodes is not None:
        ids = storable(graph.node_ids, "id")
        contents[nodes] = _id_table({"id": ids}, _ending(nodes, TABLE_ENDINGS))
    _write(contents, force=force)


def _finite_vectors(vectors: Any) -> Array:
    if not is_mapped(vectors):
        return finite_array(vectors, "vectors", ndim=2)
    array = finite_array(vectors[:0], "vectors", ndim=vectors.ndim)
    if array.dtype != vectors.dtype or not all(np.isfinite(part).all() for part in _row_parts(vectors)):
        return finite_array(vectors, "vectors", ndim=2)
    return np.asarray(vectors)


def _row_parts(array: Array) -> Iterator[Array]:
    """Consecutive rows of an array, whose pages are given back if it is mapped."""
    step = max(1, _PART_BYTES // max(1, array[:1].nbytes))
    for begin in range(0, len(array), step):
        yield array[begin : begin + step]
        release(array, begin, begin + step)


@dataclass(frozen=True, eq=False)
class _Vectors(Mapping[str, Column]):
    """The table of an embedding: ids, and the columns of its array."""

    ids: Column
    array: Array
    prefix: str

    def __getitem__(self, name: str) -> Column:
        return self.ids if name == "id" else self.array[:, int(name[len(self.prefix) :])]

    def __iter__(self) -> Iterator[str]:
        return iter(["id", *(f"{self.prefix}{k}" for k in range(self.array.shape[1]))])

    def __len__(self) -> int:
        return 1 + int(self.array.shape[1])


def _embedding_contents(ending: str, ids: Column, array: Array, column_prefix: str) -> list[Content]:
    columns = _Vectors(ids, array, column_prefix)
    if ending == ".txt":
        return [partial(_write_word2vec, columns=_without_blanks(columns))]
    if ending == ".npz":
        return [partial(_write_npz, arrays={"ids": _fixed_width(ids), "embedding": array})]
    if ending == ".npy":
        return [partial(_write_array, array=array), _table({"id": ids}, ".csv")]
    return [_table(columns, ending)]


def _items(ids: Column) -> Iterator[Any]:
    """The items of a column of objects; of ids on disk some at a time."""
    for begin in range(0, len(ids) if ids.dtype.kind == "O" else 0, _TEXT_CHUNK_CELLS):
        yield from ids[begin : begin + _TEXT_CHUNK_CELLS].tolist()


def _refuse_unreadable(ids: Column) -> None:
    for item in _items(ids):
        if isinstance(item, str) and (not item or "\0" in item):
            raise ArgumentError(f"the id {shown(item)} cannot be read back from text; write .parquet")


def _write(contents: Mapping[StrPath, Content], *, force: bool) -> None:
    check_output(*contents, force=force)
    with whole_files(*contents) as files:
        for file, content in zip(files, contents.values(), strict=True):
            content(file)


def _ending(path: StrPath, allowed: tuple[str, ...]) -> str:
    ending = ".csv" if os.fspath(path) == STDOUT else Path(path).suffix.lower()
    if ending not in allowed:
        raise ArgumentError(f"{named(path)} must end in one of {' '.join(allowed)}, which says the format")
    return ending


def _id_table(columns: Columns, ending: str) -> Content:
    """A table whose columns of text are ids, which a reader of edge lists must take back."""
    if ending != ".parquet":
        for column in columns.values():
            _refuse_unreadable(column)
    return _table(columns, ending)


def _table(columns: Columns, ending: str) -> Content:
    if ending == ".parquet":
        library("pyarrow.parquet", "Parquet needs pyarrow: pip install 'fastgrl[io]'")
        return partial(_write_parquet, columns=columns)
    return partial(_write_text, columns=columns, delimiter="\t" if ending == ".tsv" else ",")


def _write_text(file: BinaryIO, *, columns: Columns, delimiter: str) -> None:
    file.write((delimiter.join(map(_quoted, columns)) + "\n").encode())
    for block in _blocks(columns, _TEXT_CHUNK_CELLS):
        cells = [_cells(column) for column in block.values()]
        file.write(_lines(cells, delimiter))


def _write_word2vec(file: BinaryIO, *, columns: Columns) -> None:
    file.write(f"{len(columns['id'])} {len(columns) - 1}\n".encode())
    for block in _blocks(columns, _TEXT_CHUNK_CELLS):
        ids, *numbers = block.values()
        file.write(_lines([list(map(str, ids.tolist())), *map(_cells, numbers)], " "))


def _lines(cells: list[list[str]], delimiter: str) -> bytes:
    return "".join(delimiter.join(row) + "\n" for row in zip(*cells, strict=True)).encode()


def _blocks(columns: Columns, cells: int) -> Iterator[Mapping[str, Array]]:
    """Consecutive rows of a table, of about `cells` cells at a time, so that memory stays bounded."""
    rows = len(next(iter(columns.values()), ()))
    step = max(1, cells // max(1, len(columns)))
    for start in range(0, rows, step):
        yield {name: column[start : start + step] for name, column in columns.items()}
        if isinstance(columns, _Vectors):
            release(columns.array, start, start + step)


def _cells(column: Array) -> list[str]:
    kind, values = column.dtype.kind, column.tolist()
    if kind == "O":
        return [_quoted(value) if isinstance(value, str) else str(value) for value in values]
    if kind == "f":
        # Both are the shortest text that reads back as the same number; each is the quicker for its type.
        return list(map(repr, values)) if column.dtype == np.float64 else column.astype("U32").tolist()
    return [str(value).lower() for value in values] if kind == "b" else list(map(str, values))


def _quoted(text: str) -> str:
    return '"' + text.replace('"', '""') + '"' if _NEEDS_QUOTES.search(text) else text


def _write_parquet(file: BinaryIO, *, columns: Columns) -> None:
    arrow, parquet = library("pyarrow"), library("pyarrow.parquet")
    types = {name: _arrow_type(arrow, column) for name, column in columns.items()}
    text = [name for name, column in columns.items() if column.dtype.kind == "O"]
    with parquet.ParquetWriter(file, arrow.schema(types.items()), use_dictionary=text) as writer:
        for block in _blocks(columns, _ROW_GROUP_CELLS):
            arrays = [arrow.array(_plain(column), types[name]) for name, column in block.items()]
            writer.write_table(arrow.table(arrays, names=list(block)))


def _plain(column: Array) -> Any:
    return column.tolist() if column.dtype.kind == "O" else column


def _arrow_type(arrow: Any, column: Column) -> Any:
    if column.dtype.kind == "O":
        _refuse_large_integers(column)
        return arrow.string()
    return arrow.from_numpy_dtype(column.dtype)


def _refuse_large_integers(column: Column) -> None:
    if len(column) and not isinstance(column[:1][0], str):
        largest = max(_items(column), key=abs)
        raise ArgumentError(f"the integer {shown(largest)} has more than 64 bits; only text (.csv) holds it")


def _write_npz(file: BinaryIO, *, arrays: Mapping[str, Array | _FixedWidth]) -> None:
    with zipfile.ZipFile(file, "w") as archive:
        for name, array in arrays.items():
            entry = zipfile.ZipInfo(f"{name}.npy", _ZIP_EPOCH)
            with archive.open(entry, "w", force_zip64=True) as part:
                _write_array(part, array=array)


def _write_array(file: Any, *, array: Array | _FixedWidth) -> None:
    if isinstance(array, np.ndarray) and (array.ndim == 0 or not array.flags.c_contiguous):
        np.lib.format.write_array(file, array, allow_pickle=False)
        return
    shape = {"descr": np.lib.format.dtype_to_descr(array.dtype), "fortran_order": False, "shape": array.shape}
    np.lib.format.write_array_header_1_0(file, shape)
    for part in _row_parts(array) if isinstance(array, np.ndarray) else array.parts():
        file.write(part.tobytes())


@dataclass(frozen=True, eq=False)
class _FixedWidth:
    """Texts as NumPy holds them, all padded to the longest."""

    ids: Column
    width: int

    @property
    def shape(self) -> tuple[int]:
        return (len(self.ids),)

    @property
    def dtype(self) -> np.dtype[Any]:
        return np.dtype(f"<U{max(1, self.width)}")

    def parts(self) -> Iterator[Array]:
        for begin in range(0, len(self.ids), _TEXT_CHUNK_CELLS):
            yield np.array(self.ids[begin : begin + _TEXT_CHUNK_CELLS].tolist(), self.dtype)


def _fixed_width(ids: Column) -> Array | _FixedWidth:
    if ids.dtype.kind != "O":
        return ids[:]
    _refuse_large_integers(ids)
    longest, characters = "", 0
    for text in _items(ids):
        longest, characters = max(longest, text, key=len), characters + len(text)
        if text.endswith("\0"):
            raise ArgumentError(f"the id {shown(text)} ends in NUL, which NumPy drops; {_OTHERS}")
    if 4 * len(ids) * len(longest) > max(_PADDED_BYTES, _PADDED_TIMES * 4 * characters):
        raise ArgumentError(
            f"NumPy would pad every id to the {len(longest)} characters of {shown(longest)}; {_OTHERS}"
        )
    return _FixedWidth(ids, len(longest))


def _without_blanks(columns: Columns) -> Columns:
    for item in _items(columns["id"]):
        if isinstance(item, str) and item.split() != [item]:
            what = "holds blanks" if item else "is empty"
            raise ArgumentError(
                f"the id {shown(item)} {what}, which word2vec's text format cannot hold; {_OTHERS}"
            )
    return columns


def _edge_columns(graph: Graph) -> Columns:
    ids, codes, weights = storable(graph.node_ids, "id"), graph.edge_codes(), graph.edge_weights()
    columns = {"source": ids[codes[:, 0]], "target": ids[codes[:, 1]]}
    return columns if weights is None else {**columns, "weight": weights}


def _graph_arrays(graph: Graph) -> dict[str, Array | _FixedWidth]:
    weights = np.ones(len(graph.indices), np.int8) if graph.weights is None else graph.weights
    return {
        "format": np.array(b"csr"),
        "shape": np.array([graph.num_nodes] * 2),
        "data": weights,
        "indices": graph.indices,
        "indptr": graph.indptr,
        "node_ids": _fixed_width(storable(graph.node_ids, "id")),
        "directed": np.array(graph.directed),
    }


def _refuse_lost_nodes(graph: Graph, path: StrPath) -> None:
    alone = np.ones(graph.num_nodes, bool)
    alone[graph.edge_codes()] = False
    if alone.any():
        first = (
            f"{int(alone.sum())} nodes have no edges (the first is {shown(graph.node_ids[alone.argmax()])})"
        )
        raise ArgumentError(f"{first} and would be lost in {named(path)}; pass nodes=FILE, or write .npz")
