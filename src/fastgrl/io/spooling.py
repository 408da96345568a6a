"""Edges on their way to a graph on disk: any number of them in bounded memory.

Edges come as pairs of numbers of ids that are still being met, and go to a file as they are. When all ids are
known, and so how long every row will be, the pairs are read again, numbered in the order of the ids, and laid
into a second file by buckets of rows; each bucket is then sorted in memory and appended to the graph. Memory
holds a table of the ids, a few numbers per node, and one block of edges or one bucket.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from fastgrl.assembly import assemble
from fastgrl.checks import Array
from fastgrl.errors import NotFiniteError, UnavailableError
from fastgrl.estimate import format_bytes
from fastgrl.io.folder_index import INDPTR, OFFSETS, TEXT, WEIGHTS
from fastgrl.io.folders import write_array
from fastgrl.io.text import Part
from fastgrl.kernels import compiled_module
from fastgrl.spilling import row_ranges

Step = Callable[[float], None]

_PAIRS, _PAIR_WEIGHTS = "pairs.tmp", "pair-weights.tmp"
_ROWS, _COLUMNS, _VALUES = "rows.tmp", "columns.tmp", "values.tmp"
_IDS_AT_ONCE = 1 << 18
_USUAL_MEMORY = 1 << 30


@dataclass(frozen=True)
class Plan:
    """How much is held at once: bytes of text, bytes of id tables, edges of a block, bytes of a bucket."""

    limit: int | None
    piece: int
    tables: int | None
    block: int
    bucket: int

    @classmethod
    def within(cls, limit: int | None, threads: int) -> Plan:
        """A plan for at most `limit` bytes; without a limit, for what any machine has."""
        room = _USUAL_MEMORY if limit is None else limit
        return cls(
            limit,
            piece=min(max(room // (100 * threads), 1 << 16), 1 << 22),
            # A table that grows holds its old self for a moment, of half its size.
            tables=None if limit is None else 2 * room // 5,
            block=min(max(room // 400, 1 << 10), 1 << 22),
            bucket=room // 4,
        )


@dataclass(frozen=True)
class Counts:
    """What became of the edges."""

    stored: int
    edges: int
    self_loops: int
    repeats: int


class Spool:
    """Edges as they come, in a file, with the length that every row will have."""

    def __init__(self, draft: Path, plan: Plan, *, weighted: bool, directed: bool) -> None:
        self.draft, self.plan, self.weighted, self.directed = draft, plan, weighted, directed
        self.edges = self.loops = self.zeros = 0
        self._total = 0.0
        self._parts: list[tuple[int, int]] = []
        self._counts: list[Array] = []
        self._pairs = (draft / _PAIRS).open("w+b")
        self._weights = (draft / _PAIR_WEIGHTS).open("w+b") if weighted else None

    def close(self) -> None:
        """Remove the file of pairs."""
        for file in filter(None, (self._pairs, self._weights)):
            file.close()
            Path(file.name).unlink(missing_ok=True)

    def take(self, part: Part) -> bool:
        """Write a part; True when the ids, if several scanners go on collecting them, may take too much."""
        for side in (part.sources, part.targets):
            self._pairs.write(side.data)
        if self._weights is not None:
            self._weights.write(part.weights.data)
            self.zeros += int(np.count_nonzero(part.weights == 0))
            with np.errstate(over="ignore"):
                self._total += float(part.weights.sum())
        self._parts.append((part.scanner, len(part.sources)))
        self.edges += len(part.sources)
        self.loops += _count_ends(part, not self.directed, self._counts_of(part))
        return self._check_memory(part.ids, part.memory)

    def _counts_of(self, part: Part) -> Array:
        while len(self._counts) <= part.scanner:
            self._counts.append(np.zeros(0, np.int64))
        if len(self._counts[part.scanner]) < part.ids:
            longer = np.zeros(part.ids + part.ids // 2, np.int64)
            longer[: len(self._counts[part.scanner])] = self._counts[part.scanner]
            self._counts[part.scanner] = longer
        return self._counts[part.scanner]

    def _check_memory(self, ids: int, held: int) -> bool:
        most = self.plan.tables
        if most is None or self.plan.limit is None:
            return False
        if held > most:
            raise UnavailableError(
                f"the ids alone need more than the {format_bytes(self.plan.limit)} that are allowed: the "
                f"first {ids:,} of them take {format_bytes(held)}, and as much again while they grow; allow "
                f"at least {format_bytes(5 * held)}"
            )
        return 2 * held > most and len(self._counts) > 1

    def check_sum(self) -> None:
        """Refuse weights that no row could hold the sum of."""
        if not np.isfinite(2 * self._total):
            raise NotFiniteError(
                "the weights add up to more than a 64-bit float holds; divide them by a constant"
            )

    def row_lengths(self, maps: list[Array], num_nodes: int) -> Array:
        """Entries of each row before repeats are merged; `maps[s]` numbers the ids of scanner s."""
        lengths = np.zeros(num_nodes, np.int64)
        for numbers, counts in zip(maps, self._counts, strict=False):
            lengths[numbers] += counts[: len(numbers)]
        self._counts.clear()
        return lengths

    def blocks(self, maps: list[Array]) -> Iterator[tuple[Array, Array, Array | None]]:
        """All edges in the order given, as node numbers, in blocks."""
        self._pairs.seek(0)
        if self._weights is not None:
            self._weights.seek(0)
        block: list[tuple[Array, Array]] = []
        size = 0
        for scanner, count in self._parts:
            u, v = (np.take(maps[scanner], _read(self._pairs, count)) for _ in range(2))
            block.append((u, v))
            size += count
            if size >= self.plan.block:
                yield self._joined(block, size)
                block, size = [], 0
        if size:
            yield self._joined(block, size)

    def _joined(self, block: list[tuple[Array, Array]], size: int) -> tuple[Array, Array, Array | None]:
        u, v = (np.concatenate(sides) for sides in zip(*block, strict=True))
        return u, v, None if self._weights is None else _read(self._weights, size, np.float64)


def _read(file: BinaryIO, count: int, dtype: Any = np.int32) -> Array:
    return np.frombuffer(file.read(count * np.dtype(dtype).itemsize), dtype)


def _count_ends(part: Part, mirrored: bool, counts: Array) -> int:
    compiled = compiled_module()
    if compiled is not None:
        return int(compiled.count_ends(part.sources, part.targets, mirrored, counts))
    proper = part.sources != part.targets
    np.add.at(counts, part.sources, 1)
    if mirrored:
        np.add.at(counts, part.targets[proper], 1)
    return int(np.count_nonzero(~proper))


def sort_ids(table: Any, maps: list[Array], draft: Path) -> int:
    """Write the ids of a table in order, and let `maps` lead to their places; returns how many there are."""
    table.forget_places()
    order = table.order()
    end = np.zeros(1, np.int64)
    with (draft / TEXT).open("wb") as texts, (draft / OFFSETS).open("wb") as offsets:
        offsets.write(end.astype("<i8").data)
        for begin in range(0, len(order), _IDS_AT_ONCE):
            data, lengths = table.joined(order[begin : begin + _IDS_AT_ONCE])
            ends = end[-1] + np.cumsum(lengths)
            end = ends if len(ends) else end
            texts.write(data.data)
            offsets.write(ends.astype("<i8").data)
    places = np.empty(len(order), np.int32)
    places[order] = np.arange(len(order), dtype=np.int32)
    maps[:] = [places[numbers] for numbers in maps]
    return len(order)


def assemble_on_disk(spool: Spool, maps: list[Array], num_nodes: int, *, step: Step) -> Counts:
    """Write indptr, indices and weights from all edges of the spool, which is then closed."""
    lengths = spool.row_lengths(maps, num_nodes)
    with_loop = np.zeros(num_nodes, bool)
    with closing(_Buckets.of(spool, lengths)) as buckets:
        _check_disk(spool, buckets)
        placed = 0
        for u, v, w in spool.blocks(maps):
            with_loop[u[u == v]] = True
            buckets.add(u, v, w)
            placed += len(u)
            step(0.5 * placed / spool.edges)
        spool.close()
        maps.clear()
        stored = buckets.sorted_into(spool.draft, num_nodes, lambda part: step(0.5 + 0.5 * part))
    return _counts(spool, int(np.count_nonzero(with_loop)), stored)


def _counts(spool: Spool, self_loops: int, stored: int) -> Counts:
    if spool.directed:
        return Counts(stored, stored, self_loops, spool.edges - stored)
    edges = (stored + self_loops) // 2
    return Counts(stored, edges, self_loops, spool.edges - edges)


@dataclass(frozen=True, eq=False)
class _Buckets:
    """Entries in files, by bucket of rows: bucket b begins at starts[b] and with the row bounds[b]."""

    bounds: list[int]
    starts: Array
    bucket_of: Array
    filled: Array
    files: tuple[BinaryIO, ...]
    mirrored: bool

    @classmethod
    def of(cls, spool: Spool, lengths: Array) -> _Buckets:
        """Buckets of about the planned size."""
        entry = _entry_bytes(spool.weighted)
        indptr = np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths)])
        ranges = list(row_ranges(indptr, entry, at_once=max(entry, spool.plan.bucket)))
        bounds = [0, *(last for _, last in ranges)]
        _check_longest(int(np.diff(indptr[bounds]).max(initial=0)) * entry, spool.plan.limit)
        bucket_of = np.repeat(np.arange(len(ranges), dtype=np.int32), np.diff(bounds))
        names = (_ROWS, _COLUMNS, _VALUES)[: 2 + spool.weighted]
        files = tuple((spool.draft / name).open("w+b") for name in names)
        starts = indptr[bounds]
        return cls(bounds, starts, bucket_of, starts[:-1].copy(), files, not spool.directed)

    def add(self, u: Array, v: Array, w: Array | None) -> None:
        """Lay edges into the buckets of their rows, behind those that are there."""
        starts, arrays = _scattered(u, v, w, self.bucket_of, len(self.filled), self.mirrored)
        for bucket in np.flatnonzero(np.diff(starts)).tolist():
            begin, end = int(starts[bucket]), int(starts[bucket + 1])
            for file, array in zip(self.files, arrays, strict=True):
                file.seek(int(self.filled[bucket]) * array.itemsize)
                file.write(array[begin:end].data)
            self.filled[bucket] += end - begin

    def sorted_into(self, draft: Path, num_nodes: int, step: Step) -> int:
        """Sort bucket after bucket, merge repeats, append; how many entries were stored."""
        indptr = np.zeros(num_nodes + 1, np.int64)
        with ExitStack() as stack:
            names = ("indices.i32", WEIGHTS)[: len(self.files) - 1]
            outputs = [stack.enter_context((draft / name).open("wb")) for name in names]
            for bucket in range(len(self.filled)):
                first, last = self.bounds[bucket : bucket + 2]
                rows, columns, *values = self._entries(bucket)
                own, weights = rows - np.int32(first), values[0] if values else None
                found = assemble(own, columns, weights, num_nodes=last - first, mirrored=False)
                indptr[first + 1 : last + 1] = indptr[first] + found.indptr[1:]
                for output, array in zip(outputs, (found.indices, found.weights), strict=False):
                    output.write(np.ascontiguousarray(array).data)
                step((bucket + 1) / len(self.filled))
        write_array(draft / INDPTR, indptr)
        return int(indptr[-1])

    def close(self) -> None:
        """Remove the files."""
        for file in self.files:
            file.close()
            Path(file.name).unlink(missing_ok=True)

    def _entries(self, bucket: int) -> list[Array]:
        begin, end = (int(place) for place in self.starts[bucket : bucket + 2])
        found = []
        for file, dtype in zip(self.files, (np.int32, np.int32, np.float64), strict=False):
            file.seek(begin * np.dtype(dtype).itemsize)
            found.append(_read(file, end - begin, dtype))
        return found


def _entry_bytes(weighted: bool) -> int:
    """Memory per entry while a bucket is sorted."""
    return 56 if weighted else 28


def _scattered(
    u: Array, v: Array, w: Array | None, bucket_of: Array, buckets: int, mirrored: bool
) -> tuple[Array, list[Array]]:
    compiled = compiled_module()
    if compiled is None:
        return _scattered_by_sorting(u, v, w, bucket_of, buckets, mirrored)
    entries = len(u) * (1 + mirrored)
    starts = np.empty(buckets + 1, np.int64)
    rows, columns = np.empty(entries, np.int32), np.empty(entries, np.int32)
    values = None if w is None else np.empty(entries, np.float64)
    compiled.scatter_by_bucket(u, v, w, bucket_of, mirrored, starts, rows, columns, values)
    return starts, [rows, columns] if values is None else [rows, columns, values]


def _scattered_by_sorting(
    u: Array, v: Array, w: Array | None, bucket_of: Array, buckets: int, mirrored: bool
) -> tuple[Array, list[Array]]:
    rows, columns = np.stack([u, v], axis=1).ravel(), np.stack([v, u], axis=1).ravel()
    kept = np.ones(len(rows), bool)
    kept[1::2] = mirrored & (u != v)
    order = np.flatnonzero(kept)
    order = order[np.argsort(bucket_of[rows[order]], kind="stable")]
    starts = np.zeros(buckets + 1, np.int64)
    np.cumsum(np.bincount(bucket_of[rows[order]], minlength=buckets), out=starts[1:])
    arrays = [rows[order], columns[order]]
    return starts, arrays if w is None else [*arrays, w[order // 2]]


def _check_longest(needed: int, limit: int | None) -> None:
    if limit is not None and needed > limit:
        raise UnavailableError(
            f"the node with most edges needs {format_bytes(needed)} to sort them, and "
            f"{format_bytes(limit)} are allowed; allow more"
        )


def _check_disk(spool: Spool, buckets: _Buckets) -> None:
    """Refuse what the disk cannot hold: the buckets beside the pairs, and the graph beside the buckets."""
    entries, width = int(buckets.starts[-1]), 8 if spool.weighted else 0
    pairs, laid, final = spool.edges * (8 + width), entries * (8 + width), entries * (4 + width)
    check_room(spool.draft, laid + max(0, final - pairs) + 8 * len(buckets.bucket_of))


def check_room(folder: Path, needed: int) -> None:
    """Refuse to begin what a full disk would end."""
    free = shutil.disk_usage(folder).free
    if free < needed:
        raise UnavailableError(
            f"{format_bytes(needed)} more are needed on the disk of {str(folder.parent)!r}, and "
            f"{format_bytes(free)} are free; make room, or import to another disk"
        )
