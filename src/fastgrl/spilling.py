"""Tall arrays on disk: memory-mapped scratch files, and giving pages back when a part of one is done with.

The kernel counts every page of a mapped file that a process has touched as that process's memory, until it
is told otherwise. Whoever walks through a mapped array therefore calls `release` behind itself; the content
stays in the file, and in the system's cache as long as there is room. No value changes by any of this.
"""

from __future__ import annotations

import functools
import mmap
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastgrl.errors import ArgumentError, UnavailableError

Array = NDArray[Any]

_folder: ContextVar[str | None] = ContextVar("fastgrl_scratch", default=None)
_panel: ContextVar[int | None] = ContextVar("fastgrl_panel", default=None)

# Bytes of a mapped array that are walked through before they are given back.
RANGE_BYTES = 32 << 20
_CAN_RELEASE = hasattr(mmap, "MADV_DONTNEED")
# File systems that live in memory: spilling there would spare nothing.
_IN_MEMORY = ("tmpfs", "ramfs")


@contextmanager
def use_scratch(folder: str | None) -> Iterator[None]:
    """Inside the body `scratch_array` makes files in `folder`; None: arrays in memory, as outside.

    >>> with use_scratch("."):
    ...     is_mapped(scratch_array((2, 3), "float32"))
    True
    """
    token = _folder.set(folder)
    try:
        yield
    finally:
        _folder.reset(token)


@contextmanager
def use_panels(columns: int | None) -> Iterator[None]:
    """Inside the body products go through at most `columns` columns at a time; None: as many as usual."""
    if columns is not None and columns < 1:
        raise ArgumentError(f"a panel has at least one column, got {columns}")
    token = _panel.set(columns)
    try:
        yield
    finally:
        _panel.reset(token)


def panel_columns(usual: int) -> int:
    """Columns that may go through a product together: `usual`, or fewer inside `use_panels`."""
    return min(usual, _panel.get() or usual)


def limited() -> bool:
    """Whether a plan for little memory is in force."""
    return spilling() or _panel.get() is not None


def spilling() -> bool:
    """Whether tall arrays go to disk here."""
    return _folder.get() is not None


def scratch_array(shape: tuple[int, ...], dtype: Any) -> Array:
    """An array of undefined content: in memory, or inside `use_scratch` in a file that has no name.

    The file is gone when the array is, however the process ends. Room for it is taken at once, so that a
    full disk is an `UnavailableError` here and not the end of the process later.
    """
    folder, kind = _folder.get(), np.dtype(dtype)
    needed = kind.itemsize * int(np.prod(shape, dtype=np.int64))
    if folder is None or needed == 0:
        return np.empty(shape, kind)
    _check_room(folder, needed)
    try:
        with tempfile.TemporaryFile(dir=folder, prefix="fastgrl-") as file:
            _take_room(file.fileno(), needed)
            # A plain array over the map: it pickles and prints as any other.
            return np.asarray(np.memmap(file, kind, "r+", shape=shape))
    except OSError as error:
        raise UnavailableError(_no_room(folder, needed, error.strerror or str(error))) from error


def scratch_zeros(shape: tuple[int, ...], dtype: Any) -> Array:
    """As `scratch_array`, filled with zeros."""
    array = scratch_array(shape, dtype)
    if not is_mapped(array):  # a new file holds zeros
        array[...] = 0
    return array


def _check_room(folder: str, needed: int) -> None:
    try:
        free = shutil.disk_usage(folder).free
    except OSError as error:
        raise UnavailableError(_no_room(folder, needed, error.strerror or str(error))) from error
    if free < needed:
        raise UnavailableError(_no_room(folder, needed, f"{_size(free)} are free"))


def _no_room(folder: str, needed: int, why: str) -> str:
    return (
        f"{_size(needed)} of scratch are needed in {folder!r}, but {why}; "
        "set TMPDIR to a folder on a larger disk, or allow more memory"
    )


def _size(count: int) -> str:
    return f"{count / 1e9:.3g} GB" if count >= 10**9 else f"{count / 1e6:.3g} MB"


def _take_room(descriptor: int, needed: int) -> None:
    if hasattr(os, "posix_fallocate"):
        os.posix_fallocate(descriptor, 0, needed)
    else:
        os.ftruncate(descriptor, needed)


def is_mapped(array: Any) -> bool:
    """Whether the array is a part of a memory-mapped file."""
    return _map_of(array) is not None


def release(array: Any, begin: int = 0, end: int | None = None) -> None:
    """Give back the pages of rows `begin` to `end` of a mapped array; nothing happens to any other.

    Only whole pages go, and only of maps that share the file: a private copy would lose what was written.
    """
    found = _map_of(array)
    if found is None or not _CAN_RELEASE:
        return
    part = array[begin:end]
    if part.size == 0 or not part.flags.c_contiguous:
        return
    first = part.__array_interface__["data"][0] - _address(found)
    page = mmap.PAGESIZE
    start, stop = -(-first // page) * page, (first + part.nbytes) // page * page
    if first + part.nbytes == len(found):  # the last page belongs to nobody else
        stop = -(-len(found) // page) * page
    if stop > start:
        found.madvise(mmap.MADV_DONTNEED, start, min(stop, len(found)) - start)


def _map_of(array: Any) -> mmap.mmap | None:
    """The map below an array that shares its file with whoever maps it; None of any other array."""
    while isinstance(array, np.ndarray):
        found: Any = getattr(array, "_mmap", None)
        if isinstance(array, np.memmap) and array.mode != "c" and isinstance(found, mmap.mmap):
            return found
        array = array.base
    return None


def _address(found: mmap.mmap) -> int:
    address: int = np.frombuffer(found, np.uint8).__array_interface__["data"][0]
    return address


def gathered(rows: Array, numbers: Array) -> Array:
    """`rows[numbers]`, on disk if `rows` is and in parts."""
    if not is_mapped(rows) or not spilling():
        return np.asarray(rows[numbers])
    result = scratch_array((len(numbers), *rows.shape[1:]), rows.dtype)
    step = max(1, RANGE_BYTES // max(1, rows[:1].nbytes))
    for begin in range(0, len(numbers), step):
        result[begin : begin + step] = rows[numbers[begin : begin + step]]
        release(rows)
        release(result, begin, begin + step)
    return result


def row_ranges(indptr: Array, entry_bytes: int, *, at_once: int = RANGE_BYTES) -> Iterator[tuple[int, int]]:
    """Ranges of rows whose stored entries take about `at_once` bytes together, or single longer rows.

    >>> list(row_ranges(np.array([0, 2, 3, 9, 9]), 4, at_once=12))
    [(0, 2), (2, 3), (3, 4)]
    """
    rows, most = len(indptr) - 1, max(1, at_once // entry_bytes)
    begin = 0
    while begin < rows:
        # Row pointers of a damaged model may be of any integer type.
        end = int(np.searchsorted(indptr, np.int64(int(indptr[begin]) + most), side="right")) - 1
        end = min(max(end, begin + 1), rows)
        yield begin, end
        begin = end


def scratch_folder(*beside: Any) -> str:
    """The folder for scratch: that of temporary files, or else the first of `beside` that is on a disk.

    `TMPDIR` chooses the former. `beside` names files or folders, such as the graph's or the output's.
    """
    usual = tempfile.gettempdir()
    candidates = [usual, *(str(_folder_of(Path(path))) for path in beside if path not in (None, "-"))]
    usable = (folder for folder in candidates if not _in_memory(folder) and os.access(folder, os.W_OK))
    return next(usable, usual)


def _folder_of(path: Path) -> Path:
    return path if path.is_dir() else path.absolute().parent


def _in_memory(folder: str) -> bool:
    """Whether the folder is on a file system that Linux says lives in memory."""
    path = os.path.realpath(folder)
    best = max(_mounts(), key=lambda mount: len(mount[0]) if _below(path, mount[0]) else -1, default=("", ""))
    return best[1] in _IN_MEMORY


def _below(path: str, mount: str) -> bool:
    return path == mount or path.startswith(mount.rstrip("/") + "/")


@functools.cache
def _mounts() -> tuple[tuple[str, str], ...]:
    try:
        lines = Path("/proc/self/mounts").read_text(errors="replace").splitlines()
    except OSError:
        return ()
    rows = (line.split(" ") for line in lines)
    return tuple((row[1].replace("\\040", " "), row[2]) for row in rows if len(row) > 2)
