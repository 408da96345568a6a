"""`import_graph`: an edge list of any size → a graph on disk, in memory that grows with its nodes alone."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from fastgrl.checks import Array, integer, shown
from fastgrl.errors import ArgumentError, InputError, UnavailableError
from fastgrl.estimate import format_bytes
from fastgrl.io.atomic import StrPath, named
from fastgrl.io.folder_index import FolderIndex
from fastgrl.io.folders import check_graph_folder, is_folder, new_folder, seal, store, write_array
from fastgrl.io.layout import Options
from fastgrl.io.parquet import Table, opened_table
from fastgrl.io.reading import (
    _HEAD,
    _READERS,
    _direction,
    _format_of,
    _Job,
    _packed,
    _text_notices,
    _weight_notices,
    check_options,
    is_parquet_folder,
    read_nodes,
)
from fastgrl.io.records import PlainIdTable
from fastgrl.io.sources import Progress, naming, opened
from fastgrl.io.spooling import Counts, Plan, Spool, assemble_on_disk, check_room, sort_ids
from fastgrl.io.text import Part, begin_text
from fastgrl.kernels import compiled_module
from fastgrl.parallel import thread_count, use_threads

# Bytes of memory per byte of a file that has to be read as a whole.
_WHOLE = 6


@dataclass(frozen=True)
class Imported:
    """What was written, what was understood of the file, and what was odd about it."""

    folder: str
    nodes: int
    edges: int
    self_loops: int
    repeats: int
    rows: int
    directed: bool
    weighted: bool
    bytes: int
    layout: dict[str, str]
    notices: tuple[str, ...]


def import_graph(
    source: Any,
    folder: StrPath,
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
    max_memory: int | None = None,
    force: bool = False,
    n_threads: int | None = None,
    progress: Progress | None = None,
) -> Imported:
    """Write the graph in a file as a folder that `read_graph` maps into memory instead of reading it.

    `source` and the options up to `nodes` are those of `read_graph`, and so is the graph, with its nodes in
    the order of their ids. Text and Parquet are read in pieces: beside a table of the ids, memory holds no
    more than `max_memory` bytes allow (1 GB if it is not given); NPY, NPZ and MatrixMarket files are read
    whole. Meanwhile the disk of `folder` holds up to three times the graph. A graph in `folder` is replaced
    only with `force`, any other folder never; whatever stops an import leaves nothing behind.

    >>> import io, tempfile
    >>> from fastgrl.io.importing import import_graph
    >>> edges = io.BytesIO(b"eve,bob\\nann,bob\\nbob,ann\\n")
    >>> with tempfile.TemporaryDirectory() as here:
    ...     found = import_graph(edges, f"{here}/friends")
    ...     fg.read_graph(f"{here}/friends").node_ids.tolist(), found.edges, found.repeats
    (['ann', 'bob', 'eve'], 2, 1)
    """
    limit = None if max_memory is None else integer("max_memory", max_memory, least=1)
    options = Options(delimiter, header, columns, weight, unweighted, comment)
    check_options(source, options, nodes)
    if is_parquet_folder(source):
        raise ArgumentError(
            f"{named(source)} is a folder of Parquet files, which verbs that take EDGES read as it is; an "
            "import takes one file"
        )
    if is_folder(source):
        raise ArgumentError(f"{named(source)} is a folder; a graph on disk need not be imported again")
    check_graph_folder(folder, force=force)
    with use_threads(n_threads):
        plan = Plan.within(limit, thread_count() if compiled_module() is not None else 1)
        job = _Import(options, directed, encoding, nodes, plan, progress)
        with new_folder(folder, force=force) as draft:
            index, notices = job.run(source, draft)
    return Imported(
        os.fspath(folder),
        nodes=index.nodes,
        edges=index.edges,
        self_loops=index.self_loops,
        repeats=index.repeats,
        rows=index.rows,
        directed=index.directed,
        weighted=index.weighted,
        bytes=sum(index.sizes.values()),
        layout=index.layout,
        notices=notices,
    )


_Written = tuple[FolderIndex, tuple[str, ...]]


@dataclass(frozen=True, eq=False)
class _Import:
    options: Options
    directed: bool
    encoding: str | None
    nodes: Any
    plan: Plan
    progress: Progress | None

    def run(self, source: Any, draft: Path) -> _Written:
        with opened(source) as file:
            head = file.read(_HEAD)
            kind = _format_of(file, head)
            watch = _Watch(self.progress, file.size)
            job = _Job(file, head, self.options, self.directed, self.encoding, None, watch.reading)
            with naming(file.name):
                if kind == "text":
                    return self._from_text(job, draft, watch)
                if kind == "parquet" and (table := self._streamable(job)) is not None:
                    return self._from_parquet(job, table, draft, watch)
                return self._from_whole(job, kind, draft)

    def _from_text(self, job: _Job, draft: Path, watch: _Watch) -> _Written:
        table = self._listed()
        listed = None if table is None else len(table)
        table = _new_table() if table is None else table
        work = begin_text(job.source, job.head, job.options, encoding=job.encoding, progress=job.progress)
        weighted = work.layout.dialect.weight >= 0
        with closing(Spool(draft, self.plan, weighted=weighted, directed=self.directed)) as spool:
            work.run(spool.take, piece=self.plan.piece)
            spool.check_sum()
            maps = work.maps_into(table)
            if listed is not None and len(table) > listed:
                raise InputError(_not_listed(job.source.name, table, listed))
            count = sort_ids(table, maps, draft)
            del table
            counts = assemble_on_disk(spool, maps, count, step=watch.sorting)
        layout = {"format": f"text{_packed(job)}", "encoding": work.encoding} | work.layout.described()
        notices = (*work.layout.notices, *_text_notices(work.layout, work.comments, work.trimmed))
        return self._sealed(draft, spool, counts, count, "text", layout | _direction(job), notices)

    def _listed(self) -> Any:
        """A table of the ids that `nodes` lists; None if it does not."""
        if self.nodes is None:
            return None
        table = _new_table()
        if isinstance(self.nodes, str | os.PathLike):
            with opened(self.nodes) as source:
                head = source.read(_HEAD)
                if _format_of(source, head) == "text":
                    work = begin_text(source, head, Options(), encoding=None, progress=None, nodes=True)
                    work.run(lambda _: False, piece=self.plan.piece)
                    for scanner in work.scanners:
                        table.absorb(scanner)
                    return table
        _add_texts(table, read_nodes(self.nodes))
        return table

    def _streamable(self, job: _Job) -> Table | None:
        """A Parquet file that can be read in pieces: two columns of text, or two of integers."""
        if job.source.path is None or job.source.compression or self.nodes is not None:
            return None
        self.options.refuse("Parquet", "delimiter", "header", "comment")
        table = opened_table(job.source.name, job.source.path, job.options)
        return table if table.kind in ("text", "i", "u") else None

    def _from_parquet(self, job: _Job, table: Table, draft: Path, watch: _Watch) -> _Written:
        with closing(Spool(draft, self.plan, weighted=table.weight >= 0, directed=self.directed)) as spool:
            check_room(draft, table.rows * (8 + 8 * spool.weighted))
            ids = _Texts() if table.kind == "text" else _Integers(draft)
            with closing(ids):
                for number, (sources, targets, weights) in enumerate(table.batches(self.plan.block)):
                    ids.take(spool, sources, targets, weights)
                    watch.reading(min(table.rows, number * self.plan.block), table.rows)
                spool.check_sum()
                kind, maps, count = ids.finish(spool, draft)
            counts = assemble_on_disk(spool, maps, count, step=watch.sorting)
        layout = {"format": "Parquet"} | table.described() | _direction(job)
        return self._sealed(draft, spool, counts, count, kind, layout, table.notices)

    def _sealed(
        self,
        draft: Path,
        spool: Spool,
        counts: Counts,
        nodes: int,
        kind: str,
        layout: dict[str, str],
        notices: tuple[str, ...],
    ) -> _Written:
        index = seal(
            draft,
            nodes=nodes,
            edges=counts.edges,
            stored=counts.stored,
            self_loops=counts.self_loops,
            repeats=counts.repeats,
            rows=spool.edges,
            directed=self.directed,
            weighted=spool.weighted,
            ids=kind,
            layout=layout,
        )
        return index, (*notices, *_weight_notices(spool.weighted, counts.repeats, spool.zeros))

    def _from_whole(self, job: _Job, kind: str, draft: Path) -> _Written:
        size, limit = job.source.size, self.plan.limit
        if limit is not None and size is not None and _WHOLE * size > limit:
            raise UnavailableError(
                f"{job.source.name} has to be read as a whole, which takes about "
                f"{format_bytes(_WHOLE * size)}, and {format_bytes(limit)} are allowed; "
                "text and Parquet of text or integer ids are read in pieces"
            )
        listed = None if self.nodes is None else read_nodes(self.nodes)
        whole = _Job(job.source, job.head, job.options, job.directed, job.encoding, listed, job.progress)
        found = _READERS[kind](whole)
        return store(found.graph, draft, rows=found.rows, layout=found.layout), found.notices


@dataclass(frozen=True, eq=False)
class _Watch:
    """One progress for all passes: reading is the first half of the way, sorting the second."""

    progress: Progress | None
    size: int | None

    def reading(self, done: int, size: int | None) -> None:
        if self.progress is not None:
            self.progress(done, None if size is None else 2 * size)

    def sorting(self, share: float) -> None:
        if self.progress is not None and self.size:
            self.progress(int(self.size * (1 + share)), 2 * self.size)


def _new_table() -> Any:
    compiled = compiled_module()
    return PlainIdTable() if compiled is None else compiled.IdTable()


def _add_texts(table: Any, ids: Array) -> None:
    if odd := [item for item in ids.tolist() if not isinstance(item, str)]:
        raise InputError(
            f"the ids of a text file are text, and the node {shown(odd[0])} that is listed is not"
        )
    texts = [item.encode("utf-8", "replace") for item in ids.tolist()]
    offsets = np.concatenate(
        [np.zeros(1, np.int64), np.cumsum([len(text) for text in texts], dtype=np.int64)]
    )
    table.number(offsets, np.frombuffer(b"".join(texts), np.uint8))


def _not_listed(name: str, table: Any, listed: int) -> str:
    def text(code: int) -> str:
        return shown(table.joined(np.array([code], np.int32))[0].tobytes().decode())

    missing = len(table) - listed
    others = f" and {missing - 1} other ids" if missing > 1 else ""
    first = ", ".join(map(text, range(min(2, listed))))
    return (
        f"{name} names {text(table.earliest(listed))}{others} not among the {listed} nodes listed "
        f"({first}, …); list all of them, or none"
    )


class _Texts:
    """Ids that are text, numbered as they come."""

    def __init__(self) -> None:
        self._table = _new_table()

    def take(self, spool: Spool, sources: Any, targets: Any, weights: Array | None) -> None:
        u, v = (self._table.number(*side) for side in (sources, targets))
        spool.take(_part(u, v, weights, len(self._table), self._table.memory()))

    def finish(self, spool: Spool, draft: Path) -> tuple[str, list[Array], int]:  # noqa: ARG002  as _Integers
        maps = [np.arange(len(self._table), dtype=np.int32)]
        count = sort_ids(self._table, maps, draft)
        return "text", maps, count

    def close(self) -> None:
        self._table = None


class _Integers:
    """Ids that are integers: kept in a file until all are known, as their numbers follow from their order."""

    def __init__(self, draft: Path) -> None:
        self._path = draft / "integers.tmp"
        self._file = self._path.open("w+b")
        self._known: Array | None = None
        self._new: list[Array] = []
        self._lengths: list[int] = []
        self._weight_file = (draft / "integer-weights.tmp").open("w+b")

    def take(self, spool: Spool, sources: Any, targets: Any, weights: Array | None) -> None:  # noqa: ARG002
        dtype = np.result_type(sources, targets)
        for side in (sources, targets):
            self._file.write(np.ascontiguousarray(side, dtype).data)
        if weights is not None:
            self._weight_file.write(weights.data)
        self._lengths.append(len(sources))
        self._new.append(np.unique(np.concatenate([sources, targets])))
        if sum(map(len, self._new)) > max(1 << 20, 0 if self._known is None else len(self._known)):
            self._merge()

    def _merge(self) -> None:
        known = [] if self._known is None else [self._known]
        self._known, self._new = np.unique(np.concatenate([*known, *self._new])), []

    def finish(self, spool: Spool, draft: Path) -> tuple[str, list[Array], int]:
        self._merge()
        ids = self._known
        assert ids is not None
        place = _places(ids)
        for u, v, w in self._batches(ids.dtype, weighted=spool.weighted):
            spool.take(_part(place(u), place(v), w, len(ids), ids.nbytes))
        spool.check_sum()
        code = f"{ids.dtype.kind}{8 * ids.dtype.itemsize}"
        write_array(draft / f"ids.{code}", ids)
        return code, [np.arange(len(ids), dtype=np.int32)], len(ids)

    def _batches(self, dtype: Any, *, weighted: bool) -> Iterator[tuple[Array, Array, Array | None]]:
        self._file.seek(0)
        self._weight_file.seek(0)
        for count in self._lengths:
            u, v = (np.frombuffer(self._file.read(count * dtype.itemsize), dtype) for _ in range(2))
            w = np.frombuffer(self._weight_file.read(8 * count), np.float64) if weighted else None
            yield u, v, w

    def close(self) -> None:
        for file in (self._file, self._weight_file):
            file.close()
            Path(file.name).unlink(missing_ok=True)


def _places(ids: Array) -> Callable[[Array], Array]:
    """Where values are among sorted ids: by a table if they lie close together, else by search."""
    least, most = int(ids[0]), int(ids[-1])
    if most - least >= 4 * len(ids) + 1024:
        return lambda values: np.searchsorted(ids, values).astype(np.int32)
    table = np.zeros(most - least + 1, np.int32)
    table[(ids - ids[0]).astype(np.int64)] = np.arange(len(ids), dtype=np.int32)
    return lambda values: table[(values - ids[0]).astype(np.int64)]


def _part(u: Array, v: Array, weights: Array | None, ids: int, memory: int) -> Part:
    return Part(0, u, v, np.empty(0) if weights is None else weights, ids, memory)
