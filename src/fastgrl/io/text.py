"""Edge lists in text: cut at record ends, scanned on all threads, ids numbered as they first appear."""

from __future__ import annotations

import io
import threading
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Any, NoReturn, TypeAlias

import numpy as np

from fastgrl.checks import Array
from fastgrl.errors import InputError
from fastgrl.io.layout import LONGEST_RECORD, Layout, Options, explanation, layout_of
from fastgrl.io.records import Fault, PlainScanner, merge_plain_ids
from fastgrl.io.sources import Progress, Source, decoded
from fastgrl.kernels import compiled_module
from fastgrl.parallel import parallel_map, thread_count

# What is done with a part; True says that memory is short.
Take: TypeAlias = "Callable[[Part], bool] | None"
_Scanned: TypeAlias = tuple[int, int, int, tuple[Any, ...]]

_SAMPLE = 1 << 18
_PIECE = 1 << 22


@dataclass(frozen=True, eq=False)
class TextEdges:
    """What a text holds: edges as numbers of `ids`, weights if any, and how it was read."""

    ids: list[str]
    sources: Array
    targets: Array
    weights: Array | None
    layout: Layout
    encoding: str
    comments: int
    trimmed: int


def read_text(
    source: Source,
    head: bytes,
    options: Options,
    *,
    encoding: str | None,
    progress: Progress | None,
    nodes: bool = False,
) -> TextEdges:
    """Read an edge list (or, with `nodes`, a list of ids) from a text whose first bytes are `head`."""
    work = begin_text(source, head, options, encoding=encoding, progress=progress, nodes=nodes)
    work.run()
    ids, sources, targets, weights = work.joined()
    return TextEdges(ids, sources, targets, weights, work.layout, work.encoding, work.comments, work.trimmed)


def begin_text(
    source: Source,
    head: bytes,
    options: Options,
    *,
    encoding: str | None,
    progress: Progress | None,
    nodes: bool = False,
) -> Work:
    """Find out the layout of a text whose first bytes are `head`; what follows is up to the caller."""
    encoding, read = decoded(source, head, encoding)
    sample, rest = _sample(read)
    ending = "" if source.path is None else _inner_ending(source.path.name)
    layout = layout_of(source.name, sample.decode("latin-1"), options, ending=ending, nodes=nodes)
    what = f"{'ids' if nodes else 'edges'}, only a header"
    return Work(source, layout, read, progress, sample[layout.begin :] + rest, encoding, what)


def scan_body(source: Source, body: bytes, layout: Layout) -> tuple[list[str], Array, Array, Array | None]:
    """Ids, sources, targets and weights of a text in memory whose layout is known."""
    work = Work(source, layout, io.BytesIO(body).read, None, b"", "utf-8", "edges")
    work.run()
    return work.joined()


def _inner_ending(name: str) -> str:
    parts = name.lower().split(".")
    packed = len(parts) > 2 and parts[-1] in ("gz", "bz2", "zst", "xz")
    return "." + parts[-2 if packed else -1]


def _sample(read: Callable[[int], bytes]) -> tuple[bytes, bytes]:
    """The first whole lines, and what was read beyond them."""
    data = read(_SAMPLE)
    if len(data) < _SAMPLE:
        return data, b""
    while b"\n" not in data and b"\r" not in data and len(data) < LONGEST_RECORD:
        more = read(len(data))
        if not more or b"\0" in data:
            break
        data += more
    end = max(data.rfind(b"\n"), data.rfind(b"\r", 0, -1)) + 1 or len(data)
    return data[:end], data[end:]


@dataclass(frozen=True, eq=False)
class Part:
    """The edges of one piece of a text, as numbers of the ids of the scanner that read it.

    `ids` is how many the scanner had met by then, and `memory` the bytes that all scanners held theirs in.
    """

    scanner: int
    sources: Array
    targets: Array
    weights: Array
    ids: int
    memory: int


class Work:
    """One pass over a text. Threads scan pieces; results are taken up in the order of the text."""

    def __init__(
        self,
        source: Source,
        layout: Layout,
        read: Callable[[int], bytes],
        progress: Progress | None,
        beginning: bytes,
        encoding: str,
        what: str,
    ) -> None:
        self.source, self.layout, self.read, self.progress = source, layout, read, progress
        self.encoding = encoding
        self.lines = layout.first_line
        self.comments = self.trimmed = self.records = 0
        self.parts: list[Part] = []
        self.scanners: list[Any] = []
        self._gathered: dict[int, Array] = {}
        self._memory: dict[int, int] = {}
        self._beginning, self._what = beginning, what
        self._own = threading.local()
        self._lock = threading.Lock()

    def run(self, take: Take = None, *, piece: int = _PIECE) -> None:
        """Scan the text and hand its parts to `take`, or else keep them all in `parts`.

        When `take` says that memory is short, the rest is scanned by the first scanner alone, so that ids
        that several have met are not all held several times.
        """
        threads = thread_count() if compiled_module() is not None else 1
        waiting: deque[Future[_Scanned]] = deque()
        alone = False
        with _pool(threads) as pool:
            for text, position, whole in self._pieces(self._beginning, piece):
                if alone:
                    self._drain(waiting, take)
                    self._gather()
                    self._take(self._scan(text, position), take)
                else:
                    waiting.append(pool.submit(self._scan, text, position))
                    if len(waiting) > 2 * threads:
                        alone = self._take(waiting.popleft().result(), take)
                if not whole:
                    self._drain(waiting, take)
                    self._fail(Fault.TOO_LONG, 0, 0, b"")
            self._drain(waiting, take)
        if not self.records:
            raise InputError(f"{self.source.name} is empty: it has no {self._what}")

    def _drain(self, waiting: deque[Future[_Scanned]], take: Take) -> None:
        while waiting:
            self._take(waiting.popleft().result(), take)

    def _gather(self) -> None:
        """Let the first scanner, and the calling thread, have the ids of all."""
        self._own.number = 0
        for number in range(1, len(self.scanners)):
            if number not in self._gathered:
                self._gathered[number] = self.scanners[0].absorb(self.scanners[number])
        self._memory = {0: self.scanners[0].memory()}

    def maps_into(self, table: Any) -> list[Array]:
        """Give all ids to a table; for each scanner, the numbers that its own ids have there."""
        first = table.absorb(self.scanners[0])
        others = enumerate(self.scanners[1:], 1)
        return [first, *(self._map_of(number, scanner, table, first) for number, scanner in others)]

    def _map_of(self, number: int, scanner: Any, table: Any, first: Array) -> Array:
        found: Array = first[self._gathered[number]] if number in self._gathered else table.absorb(scanner)
        return found

    def _pieces(self, data: bytes, size: int) -> Iterator[tuple[bytes, int, bool]]:
        """Pieces that end where records end, with their positions; False after a record that never ends."""
        position, last = 0, False
        cutter = self._new_scanner()
        while not last:
            block = self.read(size - len(data) if len(data) < size else size)
            last, data = not block, data + block
            end = len(data) if last else _last_record_end(cutter, data)
            if end:
                yield data[:end], position, True
                position, data = position + end, data[end:]
            elif len(data) > LONGEST_RECORD:
                yield b"", position, False
                return
            if self.progress is not None:
                self.progress(self.source.position(), self.source.size)

    def _new_scanner(self) -> Any:
        compiled = compiled_module()
        make = PlainScanner if compiled is None else compiled.Scanner
        return make(**asdict(self.layout.dialect))

    def _scan(self, piece: bytes, position: int) -> _Scanned:
        # One scanner per thread: it meets its pieces in the order of the text, so its ids do too.
        if not hasattr(self._own, "number"):
            with self._lock:
                self._own.number = len(self.scanners)
                self.scanners.append(self._new_scanner())
        scanner = self.scanners[self._own.number]
        found = scanner.scan(piece, position)
        return self._own.number, len(scanner), scanner.memory(), found

    def _take(self, scanned: _Scanned, take: Take) -> bool:
        number, ids, memory, (sources, targets, weights, lines, comments, trimmed, *fault) = scanned
        if fault[0]:
            self._fail(*fault)
        self.lines += lines
        self.comments += comments
        self.trimmed += trimmed
        self.records += len(sources)
        self._memory[number] = memory
        part = Part(number, sources, targets, weights, ids, sum(self._memory.values()))
        if take is not None:
            return take(part)
        if len(sources):
            self.parts.append(part)
        return False

    def _fail(self, fault: int, line: int, column: int, value: bytes) -> NoReturn:
        what = explanation(Fault(fault), self.layout, column, value.decode("utf-8", "backslashreplace"))
        raise InputError(f"{self.source.name}, line {self.lines + line + 1}{what}")

    def joined(self) -> tuple[list[str], Array, Array, Array | None]:
        """All ids in order of first appearance, and all edges in the order of the text."""
        compiled = compiled_module()
        merge = merge_plain_ids if compiled is None else compiled.merge_ids
        ids, maps = merge(self.scanners)
        ends = np.cumsum([len(part.sources) for part in self.parts])
        sources, targets = np.empty(ends[-1], np.int32), np.empty(ends[-1], np.int32)

        def renumber(i: int) -> None:
            part, place = self.parts[i], slice(ends[i] - len(self.parts[i].sources), ends[i])
            np.take(maps[part.scanner], part.sources, out=sources[place], mode="clip")
            np.take(maps[part.scanner], part.targets, out=targets[place], mode="clip")

        parallel_map(renumber, range(len(self.parts)))
        weighted = self.layout.dialect.weight >= 0
        weights = np.concatenate([part.weights for part in self.parts]) if weighted else None
        return ids, sources, targets, weights


def _last_record_end(scanner: Any, data: bytes) -> int:
    if b'"' in data:
        return int(scanner.last_record_end(data))
    return data.rfind(b"\n") + 1 or data.rfind(b"\r", 0, -1) + 1


@contextmanager
def _pool(threads: int) -> Iterator[ThreadPoolExecutor]:
    pool = ThreadPoolExecutor(threads, "fastgrl-read")
    try:
        yield pool
    finally:
        pool.shutdown(wait=True, cancel_futures=True)
