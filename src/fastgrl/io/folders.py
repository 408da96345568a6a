"""A graph as a folder of plain arrays that are mapped into memory, not read: as large as the disk.

`graph.json` says what there is; `indptr.i64`, `indices.i32` and `weights.f64` are the compressed rows,
`ids.utf8` with `ids.offsets.i64` the ids if they are text, and such as `ids.i64` if they are numbers; all
little-endian. Nodes are in the order of their ids, so that a fit need not sort them. A folder is written
under another name and renamed when it is complete; nobody may change its files in place.
"""

from __future__ import annotations

import os
import secrets
import shutil
import stat
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from fastgrl.checks import Array, shown
from fastgrl.errors import ArgumentError, InputError, UnavailableError
from fastgrl.graph import Graph
from fastgrl.io.atomic import StrPath, _insist, _reason, _sync_folder, check_parent, named
from fastgrl.io.folder_checks import Opened, digest_of
from fastgrl.io.folder_index import (
    CODES,
    FORMAT,
    INDEX_FILE,
    INDPTR,
    OFFSETS,
    TEXT,
    WEIGHTS,
    FolderIndex,
    damaged,
)
from fastgrl.ordering import canonical_order_of, reordered

_LONGEST_INDEX = 1 << 20
_OURS = {
    INDEX_FILE,
    INDPTR,
    "indices.i32",
    "indices.i64",
    WEIGHTS,
    TEXT,
    OFFSETS,
    *(f"ids.{code}" for code in CODES),
}
_WRITTEN_AT_ONCE = 1 << 22


@dataclass(frozen=True, eq=False)
class GraphFolder:
    """A graph on disk, ready for use, and what graph.json says of it."""

    graph: Graph
    index: FolderIndex


def open_graph(folder: StrPath) -> Graph:
    """The graph in a folder that `fastgrl import` wrote: mapped, not read, but looked at from end to end.

    One that is not whole, was changed or is too new is an InputError that names the file.

    >>> import tempfile
    >>> from fastgrl.io.folders import open_graph, save_graph
    >>> with tempfile.TemporaryDirectory() as here:
    ...     save_graph(fg.Graph.from_edges([("eve", "bob"), ("ann", "bob")]), f"{here}/graph")
    ...     graph = open_graph(f"{here}/graph")
    >>> graph.mapped, graph.node_ids.tolist()
    (True, ['ann', 'bob', 'eve'])
    """
    return open_folder(folder).graph


def open_folder(folder: StrPath) -> GraphFolder:
    """`open_graph`, with what graph.json says."""
    path = Path(folder)
    index = _read_index(path)
    opened = Opened(path, index, {name: _mapped(path / name, size) for name, size in index.sizes.items()})
    opened.check()
    graph = Graph._stored(
        opened.rows,
        opened.ids,
        directed=index.directed,
        repeats=index.repeats,
        num_self_loops=index.self_loops,
    )
    return GraphFolder(graph, index)


def save_graph(graph: Graph, folder: StrPath, *, force: bool = False) -> None:
    """Write a graph as a folder that `read_graph` maps, its nodes in the order of their ids.

    The ids must be text or numbers. A graph in `folder` is replaced with `force` only.

    >>> import tempfile
    >>> from fastgrl.io.folders import save_graph
    >>> with tempfile.TemporaryDirectory() as here:
    ...     save_graph(fg.Graph.from_edges([("eve", "bob"), ("ann", "bob")]), f"{here}/graph")
    ...     fg.read_graph(f"{here}/graph").node_ids.tolist()
    ['ann', 'bob', 'eve']
    """
    with new_folder(folder, force=force) as draft:
        store(graph, draft, rows=graph.num_edges + graph.repeats, layout={"format": "graph in memory"})


def store(graph: Graph, draft: Path, *, rows: int, layout: dict[str, str]) -> FolderIndex:
    """Write all files of a graph into `draft`."""
    order = canonical_order_of(graph)
    sorted_graph = graph if order is None else reordered(graph, order)
    kind = write_ids(draft, sorted_graph.node_ids)
    arrays = {
        INDPTR: sorted_graph.indptr,
        f"indices.i{8 * sorted_graph.indices.itemsize}": sorted_graph.indices,
    }
    if sorted_graph.weights is not None:
        arrays[WEIGHTS] = sorted_graph.weights
    for name, array in arrays.items():
        write_array(draft / name, array)
    return seal(
        draft,
        nodes=graph.num_nodes,
        edges=graph.num_edges,
        stored=len(graph.indices),
        self_loops=graph.num_self_loops,
        repeats=graph.repeats,
        rows=rows,
        directed=graph.directed,
        weighted=graph.weights is not None,
        ids=kind,
        layout=layout,
    )


def write_ids(draft: Path, ids: Array) -> str:
    """Write ids that are in order; what kind they are is returned."""
    if ids.dtype.kind != "O":
        code = f"{ids.dtype.kind}{8 * ids.dtype.itemsize}"
        if code not in CODES:
            raise ArgumentError(f"ids of {ids.dtype} cannot be stored; use integers or text")
        write_array(draft / f"ids.{code}", ids)
        return code
    items = ids.tolist()
    if odd := [item for item in items if not isinstance(item, str)]:
        raise ArgumentError(
            f"the id {shown(odd[0])} cannot be stored; ids of a graph on disk are text or numbers"
        )
    try:
        texts = [item.encode() for item in items]
    except UnicodeEncodeError as error:
        raise ArgumentError(f"an id is not text that UTF-8 can hold: {shown(error.object)}") from None
    offsets = np.zeros(len(texts) + 1, np.int64)
    np.cumsum([len(text) for text in texts], out=offsets[1:])
    write_array(draft / OFFSETS, offsets)
    write_array(draft / TEXT, np.frombuffer(b"".join(texts), np.uint8))
    return "text"


def write_array(path: Path, array: Array) -> None:
    """Write an array as little-endian bytes."""
    with path.open("wb") as file:
        for begin in range(0, len(array), _WRITTEN_AT_ONCE):
            part = np.ascontiguousarray(array[begin : begin + _WRITTEN_AT_ONCE])
            file.write(part.astype(part.dtype.newbyteorder("<"), copy=False).data)


def seal(draft: Path, **facts: Any) -> FolderIndex:
    """Bring all files of `draft` to disk and write the graph.json that says what they are."""
    text = facts["ids"] == "text"
    index = FolderIndex(**facts, ids_bytes=(draft / TEXT).stat().st_size if text else 0, digests={})
    files = {name: _mapped(draft / name, size) for name, size in index.sizes.items()}
    index = replace(index, digests={name: digest_of(array) for name, array in files.items()})
    for name in files:
        _sync(draft / name)
    (draft / INDEX_FILE).write_bytes(index.to_bytes())
    _sync(draft / INDEX_FILE)
    return index


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDWR)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def new_folder(folder: StrPath, *, force: bool = False) -> Iterator[Path]:
    """A new folder beside `folder` that takes its place when the body ends well, and else is gone."""
    target = check_graph_folder(folder, force=force)
    mark = f".fastgrl-{os.getpid()}-{secrets.token_hex(8)}"
    draft, aside = target.with_name(f"{mark}.tmp"), target.with_name(f"{mark}.old")
    with ExitStack() as stack:
        stack.enter_context(_explained(target))
        stack.callback(_insist, lambda: _remove(draft))
        os.mkdir(draft)
        yield draft
        check_graph_folder(folder, force=force)
        _put_in_place(draft, target, aside)
        _sync_folder(target.parent)


def _put_in_place(draft: Path, target: Path, aside: Path) -> None:
    with ExitStack() as undo:
        if target.exists():
            undo.callback(_insist, lambda: None if target.exists() else os.rename(aside, target))
            os.rename(target, aside)
        os.rename(draft, target)
    _insist(lambda: _remove(aside))


def _remove(folder: Path) -> None:
    if folder.exists():
        shutil.rmtree(folder)


@contextmanager
def _explained(target: Path) -> Iterator[None]:
    """Errors of the disk as ours, about the folder and not about one with a temporary name."""
    try:
        yield
    except UnavailableError:
        raise
    except OSError as error:
        raise _reason(error, named(target)) from error


def check_graph_folder(folder: StrPath, *, force: bool = False) -> Path:
    """The folder that a graph would be written to, links followed; an error says why it must not be.

    >>> check_graph_folder("nowhere/graph")
    Traceback (most recent call last):
    fastgrl.errors.ArgumentError: the folder '...nowhere' does not exist; make it first
    """
    try:
        target = Path(os.path.realpath(folder))
        names = sorted(os.listdir(target))
    except FileNotFoundError:
        names = []
        check_parent(target, folder)
    except NotADirectoryError:
        raise ArgumentError(f"{named(folder)} is not a folder, as a graph is; give another name") from None
    except (OSError, ValueError) as error:
        raise _reason(error, named(folder)) from error
    _refuse_present(target, names, force=force)
    if not os.access(target.parent, os.W_OK | os.X_OK):
        raise UnavailableError(f"{named(target)} cannot be written: there is no permission to write there")
    return target


def _refuse_present(folder: Path, names: list[str], *, force: bool) -> None:
    ours = INDEX_FILE in names and _is_ours(folder / INDEX_FILE)
    others = [name for name in names if not (ours and name in _OURS)]
    if others:
        what = "" if ours else " and no graph"
        raise ArgumentError(
            f"the folder {named(folder)} holds other files (such as {shown(others[0])}){what}, and is never "
            "replaced; give the name of a new folder"
        )
    if names and not force:
        raise ArgumentError(f"{named(folder)} already exists; --force (force=True) overwrites it")


def is_folder(source: Any) -> bool:
    """Whether `source` names a folder: a graph on disk, or one of Parquet files."""
    return isinstance(source, str | os.PathLike) and "\0" not in os.fspath(source) and os.path.isdir(source)


def _is_ours(index_file: Path) -> bool:
    with suppress(OSError), index_file.open("rb") as file:
        return f'"{FORMAT}"'.encode() in file.read(200)
    return False


def _read_index(folder: Path) -> FolderIndex:
    path = folder / INDEX_FILE
    try:
        if not stat.S_ISREG(os.stat(path).st_mode):  # to open a pipe would wait for ever
            raise InputError(f"{named(path)}: it is not a file")
        with path.open("rb") as file:
            raw = file.read(_LONGEST_INDEX + 1)
    except (FileNotFoundError, NotADirectoryError):
        raise InputError(
            f"{named(folder)} is a folder without {INDEX_FILE}: neither an edge list nor a graph that "
            "`fastgrl import` wrote"
        ) from None
    except OSError as error:
        raise UnavailableError(f"{named(path)} could not be read: {error.strerror or error}") from error
    try:
        if len(raw) > _LONGEST_INDEX:
            raise damaged(f"it is longer than any {INDEX_FILE}")
        return FolderIndex.of(raw)
    except InputError as error:
        raise InputError(f"{named(path)}: {error}") from None


def _mapped(path: Path, size: int) -> Array:
    """A file of `size` bytes as an array of the type that its name ends in."""
    code = path.suffix[1:]
    dtype = np.dtype(np.uint8 if code == "utf8" else CODES[code])
    try:
        found = os.stat(path)
        if not stat.S_ISREG(found.st_mode) or found.st_size != size:
            raise damaged(f"{named(path)} has {found.st_size} bytes where {size} were written")
        # A plain array over the map: it pickles and prints as any other. An empty file cannot be mapped.
        return np.asarray(np.memmap(path, dtype, "r")) if size else np.empty(0, dtype)
    except FileNotFoundError:
        raise damaged(f"{named(path)} is missing") from None
    except OSError as error:
        raise UnavailableError(f"{named(path)} could not be read: {error.strerror or error}") from error
