"""Every byte of a graph on disk, looked at once and given back: its digest, and whether it is a graph's.

The digest of a file is the SHA-256 of the column sums of each 16 MB of it. The symmetry of an undirected
graph is seen without a transpose: Σ h(u, v, w) over all entries equals Σ h(v, u, w), for a hash h with a
random key.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from fastgrl.assembly import Rows
from fastgrl.checks import Array
from fastgrl.io.atomic import named
from fastgrl.io.folder_index import FolderIndex, damaged
from fastgrl.kernels import compiled_module
from fastgrl.lazy_ids import LazyIds, decoded_texts
from fastgrl.parallel import parallel_map
from fastgrl.spilling import release
from fastgrl.stored_tensors import sha256_of, sums_of

_SPAN = 1 << 24  # bytes; part of the format
_ENTRIES = 1 << 22  # a whole number of spans for every width
_PIECE = 1 << 19
_IDS = 1 << 20

_FAULTS = (
    "",
    "a column that is no node",
    "columns that do not increase",
    "a weight that is negative or not finite",
)


def digest_of(array: Array) -> str:
    """The digest of the bytes of an array, whose pages are given back if it is mapped."""
    return Digest().fed(_parts(array)).value


def _parts(array: Array) -> Iterator[Array]:
    step = _SPAN // array.itemsize
    for begin in range(0, len(array), step):
        yield array[begin : begin + step]
        release(array, begin, begin + step)


class Digest:
    """The digest of a file that is met part by part; all parts but the last are whole spans."""

    def __init__(self) -> None:
        self._spans: list[str] = []

    def fed(self, parts: Iterable[Array]) -> Digest:
        """Take up the next parts."""
        for part in parts:
            data = part.view(np.uint8)
            self._spans += [sums_of([data[at : at + _SPAN]]) for at in range(0, len(data), _SPAN)]
        return self

    @property
    def value(self) -> str:
        """As graph.json has it."""
        return sha256_of(span.encode() for span in self._spans)


@dataclass(frozen=True, eq=False)
class Opened:
    """The mapped arrays of a folder, by the names of their files."""

    folder: Path
    index: FolderIndex
    arrays: dict[str, Array]

    @property
    def rows(self) -> Rows:
        """The compressed rows."""
        return Rows(
            self.arrays["indptr.i64"], self.arrays[self.index.indices_file], self.arrays.get("weights.f64")
        )

    @property
    def ids(self) -> LazyIds:
        """The ids, still on disk."""
        return LazyIds(self.arrays[self.index.ids_file], self.arrays.get("ids.offsets.i64"))

    def check(self) -> None:
        """Refuse whatever is not the graph that was written."""
        self._check_indptr()
        self._check_entries()
        self._check_ids()

    def refuse(self, file: str, what: str) -> None:
        raise damaged(f"{named(self.folder / file)}: {what}")

    def _expect(self, file: str, digest: Digest) -> None:
        if digest.value != self.index.digests[file]:
            self.refuse(file, "it was damaged or exchanged: its contents are not those that were written")

    def _check_indptr(self) -> None:
        indptr = self.rows.indptr
        if indptr[0] != 0 or indptr[-1] != self.index.stored or not _never_falls(indptr):
            self.refuse("indptr.i64", f"row pointers must rise from 0 to {self.index.stored}")
        self._expect("indptr.i64", Digest().fed(_parts(indptr)))

    def _check_entries(self) -> None:
        rows, index, found = self.rows, self.index, _Sums()
        digests = {index.indices_file: Digest(), "weights.f64": Digest()}
        for begin in range(0, index.stored, _ENTRIES):
            end = min(begin + _ENTRIES, index.stored)
            for sums in parallel_map(_Examiner(rows, found.seed), _pieces(begin, end)):
                self._take(found, sums)
            for file, digest in digests.items():
                if file in self.arrays:
                    digest.fed([self.arrays[file][begin:end]])
                    release(self.arrays[file], begin, end)
        release(rows.indptr)
        for file in (index.indices_file, "weights.f64"):
            if file in self.arrays:
                self._expect(file, digests[file])
        if found.loops != index.self_loops or not (index.directed or found.forward == found.backward):
            self.refuse(
                index.indices_file, "an undirected graph needs (v, u) for every (u, v), with the same weight"
            )
        if not np.isfinite(2 * found.total):
            self.refuse("weights.f64", "the weights add up to more than a 64-bit float holds")

    def _take(self, found: _Sums, sums: tuple[int, int, int, int, int, float]) -> None:
        fault, where = sums[:2]
        if fault:
            row = int(np.searchsorted(self.rows.indptr, where, side="right"))
            self.refuse(
                "weights.f64" if fault == 3 else self.index.indices_file, f"row {row} has {_FAULTS[fault]}"
            )
        found.add(*sums[2:])

    def _check_ids(self) -> None:
        file, ids = self.index.ids_file, self.ids
        if ids.offsets is None:
            if not _rises(ids.data):
                self.refuse(file, "the ids are not finite numbers in increasing order")
        else:
            if ids.offsets[0] != 0 or ids.offsets[-1] != len(ids.data) or not _never_falls(ids.offsets):
                self.refuse("ids.offsets.i64", f"offsets must rise from 0 to {len(ids.data)}")
            self._expect("ids.offsets.i64", Digest().fed(_parts(ids.offsets)))
            self._check_texts(ids.data, ids.offsets)
        self._expect(file, Digest().fed(_parts(ids.data)))

    def _check_texts(self, data: Array, offsets: Array) -> None:
        for begin in range(0, len(offsets) - 1, _IDS):
            end = min(begin + _IDS, len(offsets) - 1)
            bad = _first_bad_text(data, offsets, begin, end)
            if bad >= 0:
                self.refuse("ids.utf8", f"id {bad + 1} is not UTF-8, or not above the one before it")
            release(data, int(offsets[begin]), int(offsets[end]))


class _Sums:
    """What the entries add up to."""

    def __init__(self) -> None:
        self.seed = secrets.randbits(64)
        self.forward = self.backward = self.loops = 0
        self.total = 0.0

    def add(self, forward: int, backward: int, loops: int, total: float) -> None:
        """Add those of one piece."""
        self.forward = (self.forward + forward) % 2**64
        self.backward = (self.backward + backward) % 2**64
        self.loops += loops
        self.total += total


def _pieces(begin: int, end: int) -> list[tuple[int, int]]:
    return [(a, min(a + _PIECE, end)) for a in range(begin, end, _PIECE)]


@dataclass(frozen=True, eq=False)
class _Examiner:
    """What is wrong with a range of entries and where, and what they add up to."""

    rows: Rows
    seed: int

    def __call__(self, bounds: tuple[int, int]) -> Any:
        compiled, rows = compiled_module(), self.rows
        if compiled is None:
            return examined(rows, *bounds, self.seed)
        return compiled.check_entries(rows.indptr, rows.indices, rows.weights, *bounds, self.seed)


def examined(rows: Rows, begin: int, end: int, seed: int) -> tuple[int, int, int, int, int, float]:
    """The compiled `check_entries` in NumPy, with a hash of its own."""
    n = len(rows.indptr) - 1
    columns = rows.indices[begin:end].astype(np.int64)
    row = np.searchsorted(rows.indptr, np.arange(begin, end), side="right") - 1
    before = np.concatenate([rows.indices[begin - 1 : begin] if begin else [-1], columns[:-1]])
    weights = None if rows.weights is None else rows.weights[begin:end]
    with np.errstate(all="ignore"):
        faults = [
            (columns < 0) | (columns >= n),
            (np.arange(begin, end) > rows.indptr[row]) & (before >= columns),
            np.zeros(len(row), bool) if weights is None else ~(np.isfinite(weights) & (weights >= 0)),
        ]
        bad = [(int(np.argmax(fault)) + begin, kind) for kind, fault in enumerate(faults, 1) if fault.any()]
        where, kind = min(bad, default=(-1, 0))
        key = np.uint64(seed) if weights is None else _mixed(weights.view(np.uint64) ^ np.uint64(seed))
        u, v = row.astype(np.uint64), columns.astype(np.uint64)
        forward, backward = (_mixed(_mixed(a + key) * np.uint64(3) + b).sum() for a, b in ((u, v), (v, u)))
        total = 0.0 if weights is None else float(weights.sum())
    return kind, where, int(forward), int(backward), int(np.count_nonzero(row == columns)), total


def _mixed(x: Any) -> Any:
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


def _never_falls(values: Array) -> bool:
    return all((part[1:] >= part[:-1]).all() for part in _overlapping(values))


def _rises(values: Array) -> bool:
    return all(
        (part[1:] > part[:-1]).all() and (values.dtype.kind != "f" or np.isfinite(part).all())
        for part in _overlapping(values)
    )


def _overlapping(values: Array) -> Iterator[Array]:
    for begin in range(0, max(1, len(values)), _IDS):
        yield values[begin : begin + _IDS + 1]
        release(values, begin, begin + _IDS)


def _first_bad_text(data: Array, offsets: Array, begin: int, end: int) -> int:
    compiled = compiled_module()
    if compiled is not None:
        return int(compiled.check_texts(data, offsets, begin, end))
    first = max(0, begin - 1)
    places = offsets[first : end + 1]
    part = data[places[0] : places[-1]]
    try:
        part.tobytes().decode()  # no surrogates
        texts = decoded_texts(part, places - places[0])
    except ValueError:
        return _first_undecodable(data, offsets, begin, end)
    return next((first + i for i in range(1, len(texts)) if texts[i - 1] >= texts[i]), -1)


def _first_undecodable(data: Array, offsets: Array, begin: int, end: int) -> int:
    for i in range(begin, end):
        try:
            data[offsets[i] : offsets[i + 1]].tobytes().decode()
        except UnicodeDecodeError:
            return i
    return begin
