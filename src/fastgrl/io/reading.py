"""`read_graph`: any file to a graph, with what was understood on the way."""

from __future__ import annotations

import io
import os
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from fastgrl.checks import Array, shown
from fastgrl.errors import ArgumentError, FastgrlWarning, InputError
from fastgrl.graph import Graph
from fastgrl.ids import Encoded, IdIndex, as_ids, distinct_ids, objects
from fastgrl.io.arrays import array_from_npy, graph_from_npy, graph_from_npz
from fastgrl.io.folder_index import INDEX_FILE
from fastgrl.io.folders import is_folder, open_folder
from fastgrl.io.layout import Layout, Options
from fastgrl.io.matrix_market import graph_from_matrix_market
from fastgrl.io.parquet import (
    graph_from_parquet,
    graph_from_parquet_folder,
    ids_from_parquet,
    parquet_files_below,
)
from fastgrl.io.sources import Progress, Source, naming, opened
from fastgrl.io.text import TextEdges, read_text
from fastgrl.parallel import use_threads

_HEAD = 4096
# Of fewer lines than this nothing can be said.
_FEW_LINES = 3


@dataclass(frozen=True, eq=False)
class Reading:
    """A `graph`, what was understood of its file (`layout`, `rows`), and what was odd in it (`notices`)."""

    graph: Graph
    layout: dict[str, str]
    rows: int
    notices: tuple[str, ...] = ()


def read_graph(
    source: Any,
    *,
    directed: bool = False,
    weight: str | int | None = None,
    unweighted: bool = False,
    delimiter: str | None = None,
    header: bool | None = None,
    columns: Any = None,
    comment: str | None = None,
    encoding: str | None = None,
    nodes: Any = None,
    n_threads: int | None = None,
    progress: Progress | None = None,
) -> Graph:
    """Read a graph from an edge list in text (plain or packed), Parquet, NPZ, NPY or MatrixMarket.

    What is not said is found out; `fastgrl inspect` shows what was understood. Ids from text are text,
    exactly as written: 007 and 7 are two nodes. What was odd is a `FastgrlWarning`, what is wrong an
    `InputError` with file, line, column and value.

    Args:
        source: a path, "-" for standard input, an open binary file, a folder of Parquet files, or a folder
            that `fastgrl import` wrote (mapped into memory, not read; its nodes in the order of their ids).
        directed: whether edges run from the first node to the second only.
        weight: the column of weights, by name or by number from 1.
        unweighted: leave weights out, though there are some.
        delimiter: what stands between columns, such as "," or "\\t".
        header: whether the first line names the columns.
        columns: (source, target) or (source, target, weight), by name or by number from 1.
        comment: what lines to be left out begin with; "none" if there are none, though it looks so.
        encoding: of text, such as "latin-1".
        nodes: all nodes, isolated ones too, in the order wanted: a file or a list of ids.
        n_threads: threads to read with (None: all there are).
        progress: called as `progress(bytes_done, bytes_total)` now and then; the total is None where it is
            not known.

    >>> from io import BytesIO
    >>> graph = fg.read_graph(BytesIO(b"source,target,weight\\n007,7,2\\n7,008,1\\n"))
    >>> graph.node_ids.tolist(), graph.edge_weights().tolist()
    (['007', '7', '008'], [2.0, 1.0])
    """
    options = Options(delimiter, header, columns, weight, unweighted, comment)
    reading = _read(source, options, directed, encoding, nodes, n_threads, progress)
    for notice in reading.notices:
        warnings.warn(notice, FastgrlWarning, stacklevel=2)
    return reading.graph


def read(
    source: Any,
    *,
    directed: bool = False,
    encoding: str | None = None,
    nodes: Any = None,
    n_threads: int | None = None,
    progress: Progress | None = None,
    **options: Any,
) -> Reading:
    """`read_graph`, with what was understood and what was odd as a value; it takes the same arguments.

    >>> from io import BytesIO
    >>> from fastgrl.io import read
    >>> read(BytesIO(b"ann;bob\\nbob;eve\\n")).layout["delimiter"]
    'semicolon'
    """
    return _read(source, Options(**options), directed, encoding, nodes, n_threads, progress)


def _read(
    source: Any,
    options: Options,
    directed: bool,
    encoding: str | None,
    nodes: Any,
    n_threads: int | None,
    progress: Progress | None,
) -> Reading:
    check_options(source, options, nodes)
    with use_threads(n_threads):
        tables = is_parquet_folder(source)
        if is_folder(source) and not tables:
            return _from_folder(source, options, directed, encoding, nodes)
        listed = None if nodes is None else read_nodes(nodes)
        if tables:
            return _from_parquet_folder(Path(source), options, directed, encoding, listed)
        with opened(source) as file:
            head = file.read(_HEAD)
            reader = _READERS[_format_of(file, head)]
            with naming(file.name):
                return reader(_Job(file, head, options, directed, encoding, listed, progress))


def check_options(source: Any, options: Options, nodes: Any) -> None:
    """Refuse options that contradict each other."""
    if options.unweighted and options.weight is not None:
        raise ArgumentError("weight and unweighted contradict each other; give one of them")
    if isinstance(nodes, str) and source == nodes == "-":
        raise ArgumentError("standard input can be read once: as edges or as nodes")


@dataclass(frozen=True, eq=False)
class _Job:
    source: Source
    head: bytes
    options: Options
    directed: bool
    encoding: str | None
    nodes: Array | None
    progress: Progress | None

    def all_bytes(self) -> bytes:
        parts = [self.head]
        while part := self.source.read(1 << 24):
            parts.append(part)
        return b"".join(parts)


def read_nodes(nodes: Any) -> Array:
    """Distinct ids from a list or array of ids, or from the first column of a file.

    >>> from fastgrl.io import read_nodes
    >>> read_nodes(["ann", "bob", "ann"]).tolist()
    ['ann', 'bob']
    """
    if not isinstance(nodes, str | os.PathLike):
        return distinct_ids(as_ids(nodes, "nodes"))
    with opened(nodes) as source:
        head = source.read(_HEAD)
        job = _Job(source, head, Options(), False, None, None, None)
        kind = _format_of(source, head)
        if kind == "parquet":
            return distinct_ids(ids_from_parquet(source.name, io.BytesIO(job.all_bytes())))
        if kind == "npy":
            return distinct_ids(as_ids(array_from_npy(source.name, job.all_bytes()), source.name))
        if kind != "text":
            raise InputError(f"{source.name}: a list of nodes is text, Parquet or NPY, not {kind}")
        return objects(read_text(source, head, Options(), encoding=None, progress=None, nodes=True).ids)


_SIGNATURES = {b"PAR1": "parquet", b"\x93NUMPY": "npy", b"%%MatrixMarket": "mtx", b"PK": "npz"}
_ENDINGS = {".parquet": "parquet", ".pq": "parquet", ".npy": "npy", ".mtx": "mtx", ".npz": "npz"}
_STRANGERS = {
    b"version https://git-lfs": "is a Git LFS pointer, not the file itself; fetch it with: git lfs pull",
    b"<!doctype html": "is a web page, not an edge list; was the download an error page?",
    b"<html": "is a web page, not an edge list; was the download an error page?",
    b"<?xml": "is XML; GraphML is read by networkx: Graph.from_networkx(networkx.read_graphml(...))",
    b"graph [": "looks like GML, which networkx reads: Graph.from_networkx(networkx.read_gml(...))",
    b'{"': "looks like JSON; write the edges as CSV, one pair per line",
    b"[{": "looks like JSON; write the edges as CSV, one pair per line",
    b"sqlite format 3": "is an SQLite database; export the table of edges as CSV",
    b"%pdf": "is a PDF document",
    b"\xd0\xcf\x11\xe0": "is an old spreadsheet or document; save it as CSV",
    b"arrow1": "is an Arrow file; save it as Parquet",
    b"\x89hdf": "is an HDF5 file; export the edges as CSV or Parquet",
}


def _format_of(source: Source, head: bytes) -> str:
    ending = "" if source.path is None else source.path.suffix.lower()
    kind = next((k for magic, k in _SIGNATURES.items() if head.startswith(magic)), "text")
    wanted = _ENDINGS.get(ending)
    if kind == "npz" and wanted != "npz":
        raise InputError(f"{source.name} is a zip archive, perhaps a spreadsheet; save it as CSV")
    if wanted is not None and wanted != kind:
        raise InputError(f"{source.name} is named {ending}, but it is not such a file{_found(head)}")
    start = head.lstrip()[:32].lower()
    stranger = next((say for magic, say in _STRANGERS.items() if start.startswith(magic)), None)
    if stranger:
        raise InputError(f"{source.name} {stranger}")
    return kind


def _found(head: bytes) -> str:
    if not head:
        return ": it is empty"
    return f"; it begins with {shown(head[:16].decode('latin-1'))}"


def _from_text(job: _Job) -> Reading:
    edges = read_text(job.source, job.head, job.options, encoding=job.encoding, progress=job.progress)
    encoded = _among(job, edges)
    graph = Graph._from_encoded(encoded, weights=edges.weights, directed=job.directed)
    layout = {"format": f"text{_packed(job)}", "encoding": edges.encoding} | edges.layout.described()
    odd = _text_notices(edges.layout, edges.comments, edges.trimmed)
    if job.nodes is None and job.options.header is None and edges.layout.names is None:
        odd += _lonely_first_line(edges)
    notices = (*edges.layout.notices, *odd, *_graph_notices(graph, edges.weights))
    return Reading(graph, layout | _direction(job), len(edges.sources), notices)


def _packed(job: _Job) -> str:
    return f", {job.source.compression}" if job.source.compression else ""


def _among(job: _Job, edges: TextEdges) -> Encoded:
    ids = objects(edges.ids)
    if job.nodes is None:
        return Encoded(edges.sources, edges.targets, ids)
    numbers = IdIndex.of(job.nodes).find(ids)
    if (numbers < 0).any():
        missing = ids[numbers < 0]
        others = f" and {len(missing) - 1} other ids" if len(missing) > 1 else ""
        raise InputError(
            f"{job.source.name} names {shown(missing[0])}{others} not among the {len(job.nodes)} "
            f"nodes listed ({', '.join(map(shown, job.nodes[:2]))}, …); list all of them, or none"
        )
    return Encoded(numbers[edges.sources], numbers[edges.targets], job.nodes)


def _text_notices(layout: Layout, comments: int, trimmed: int) -> list[str]:
    notices = []
    if comments and not layout.dialect.comment:
        notices.append(f"{_count(comments, 'line')} that began with # counted as comments")
    if trimmed:
        notices.append(f"blanks around {_count(trimmed, 'field')} were removed; quote an id to keep them")
    return notices


def _lonely_first_line(edges: TextEdges) -> list[str]:
    """A first line whose two words stand nowhere else may be a header; it is kept as an edge all the same."""
    others = len(edges.sources) - 1
    if others + 1 < _FEW_LINES or len(edges.ids) - 2 >= 2 * others:  # no other id stands twice either
        return []
    ends = (edges.sources[0], edges.targets[0])
    once = [
        np.count_nonzero(edges.sources == end) + np.count_nonzero(edges.targets == end) == 1 for end in ends
    ]
    if not all(once) or any(edges.ids[end].isdigit() for end in ends):
        return []
    names = " and ".join(shown(edges.ids[end], 30) for end in ends)
    return [f"the first line was read as an edge, and {names} stand nowhere else: is it a header (--header)?"]


def _graph_notices(graph: Graph, weights: Array | None) -> list[str]:
    zeros = 0 if weights is None else int(np.count_nonzero(weights == 0))
    return _weight_notices(weights is not None, graph.repeats, zeros)


def _weight_notices(weighted: bool, repeats: int, zeros: int) -> list[str]:
    notices = []
    if weighted and repeats:
        notices.append(f"weights were added up where an edge is repeated ({_count(repeats, 'repeat')})")
    if zeros:
        notices.append(f"{_count(zeros, 'edge')} of weight 0: kept as edges, but no walk uses them")
    return notices


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'s' * (number != 1)}"


def _direction(job: _Job) -> dict[str, str]:
    return {"direction": "directed" if job.directed else "undirected"}


def _from_parquet(job: _Job) -> Reading:
    file = job.source.path if job.source.path and not job.source.compression else io.BytesIO(job.all_bytes())
    job.options.refuse("Parquet", "delimiter", "header", "comment")
    graph, columns, notices = graph_from_parquet(
        job.source.name, file, job.options, nodes=job.nodes, directed=job.directed
    )
    return _typed_reading(job, graph, "Parquet", columns, notices)


def is_parquet_folder(source: Any) -> bool:
    """Whether a source is a folder of Parquet files, and not a graph on disk."""
    if not is_folder(source) or os.path.lexists(os.path.join(source, INDEX_FILE)):
        return False
    return any(True for _ in parquet_files_below(Path(source)))


def _from_parquet_folder(
    folder: Path, options: Options, directed: bool, encoding: str | None, nodes: Array | None
) -> Reading:
    options.refuse("Parquet", "delimiter", "header", "comment")
    if encoding is not None:
        raise ArgumentError("encoding cannot be chosen for Parquet; leave it out")
    graph, columns, notices = graph_from_parquet_folder(folder, options, nodes=nodes, directed=directed)
    layout = {"format": "Parquet, a folder of files"} | columns
    direction = {"direction": "directed" if directed else "undirected"}
    odd = (*notices, *_graph_notices(graph, graph.weights))
    return Reading(graph, layout | direction, graph.num_edges + graph.repeats, odd)


def _from_npy(job: _Job) -> Reading:
    job.options.refuse("NPY", *_LAYOUT)
    graph = graph_from_npy(job.source.name, job.all_bytes(), nodes=job.nodes, directed=job.directed)
    return _typed_reading(job, graph, "NPY array of edges", {}, ())


def _from_npz(job: _Job) -> Reading:
    job.options.refuse("NPZ", *_LAYOUT)
    data = io.BytesIO(job.all_bytes())
    graph, notice = graph_from_npz(job.source.name, data, nodes=job.nodes, directed=job.directed)
    return _typed_reading(job, graph, "NPZ sparse matrix", {}, notice)


_LAYOUT = ("weight", "columns", "delimiter", "header", "comment")


def _from_matrix_market(job: _Job) -> Reading:
    job.options.refuse("MatrixMarket", *_LAYOUT)
    graph, notice = graph_from_matrix_market(
        job.source, job.all_bytes(), nodes=job.nodes, directed=job.directed
    )
    return _typed_reading(job, graph, "MatrixMarket", {}, notice)


def _typed_reading(
    job: _Job, graph: Graph, kind: str, columns: dict[str, str], odd: tuple[str, ...]
) -> Reading:
    if job.options.unweighted and graph.weights is not None:
        graph = graph.with_edges(graph.edge_codes())
    weights = {"weights": "none" if graph.weights is None else columns.get("weights", "the stored values")}
    layout = {"format": kind} | columns | weights
    direction = {"direction": "directed" if graph.directed else "undirected"}
    notices = (*odd, *_graph_notices(graph, graph.weights))
    return Reading(graph, layout | direction, graph.num_edges + graph.repeats, notices)


def _from_folder(source: Any, options: Options, directed: bool, encoding: str | None, nodes: Any) -> Reading:
    """A graph on disk: how its file was read was said when it was imported."""
    options.refuse("a graph on disk", *_LAYOUT)
    for name, given in (("encoding", encoding), ("nodes", nodes)):
        if given is not None:
            raise ArgumentError(f"{name} cannot be chosen for a graph on disk; give it to `fastgrl import`")
    found = open_folder(source)
    graph, index = found.graph, found.index
    if directed and not graph.directed:
        raise ArgumentError(
            f"{os.fspath(source)} was imported without directions; --directed belongs to `fastgrl import`"
        )
    if options.unweighted and graph.weights is not None:
        graph = graph._without_weights()
    weights = {} if graph.weights is not None else {"weights": "none"}
    layout = {"format": "graph on disk"} | {
        f"imported {k}" if k == "format" else k: v for k, v in index.layout.items()
    }
    return Reading(graph, layout | weights, index.rows)


_READERS: dict[str, Callable[[_Job], Reading]] = {
    "text": _from_text,
    "parquet": _from_parquet,
    "npy": _from_npy,
    "npz": _from_npz,
    "mtx": _from_matrix_market,
}
