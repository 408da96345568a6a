"""How to compute a fit within a limit on memory: as usual, in narrower panels, with tall arrays on disk.

A limit is on what the whole process holds, by the kernel's figure: the interpreter, the libraries and all
that the caller has are part of it. None of the first three ways changes a bit of the result. A log-diffusion
may further keep fewer entries of each row, which does change it, and is said.
"""

from __future__ import annotations

import ctypes
import dataclasses
import functools
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fastgrl.costs import LONGEST_ROW
from fastgrl.errors import UnavailableError
from fastgrl.estimate import Estimate, estimate, format_bytes, largest_rank
from fastgrl.spilling import is_mapped, release, scratch_folder, use_panels, use_scratch
from fastgrl.summaries import peak_memory

FEWEST_KEPT = 8
_PANELS = (256, 128, 64, 32, 16, 8, 4)
_PLANNED = ("walk", "degree-walk", "log-diffusion")
_STATM = Path("/proc/self/statm")
# glibc's name for the size from which an array has a map of its own, and the size.
_MMAP_THRESHOLD, _RETURNED_BYTES = -3, 1 << 20


@dataclass(frozen=True)
class MemoryPlan:
    """A way to compute a fit: `cost` with what was chosen in it, beside `held` bytes of the process.

    `folder` is where tall arrays go if `cost.spilled`.
    """

    cost: Estimate
    limit: int
    held: int = 0
    folder: str | None = None

    @property
    def peak_bytes(self) -> int:
        """What the process will hold at most."""
        return self.held + self.cost.peak_bytes

    @property
    def scratch_bytes(self) -> int:
        """What will be on disk meanwhile."""
        return self.cost.scratch_bytes

    @property
    def panel_columns(self) -> int | None:
        """Columns in one product; None is as many as usual."""
        return self.cost.panel_columns

    @property
    def keep(self) -> int | None:
        """Entries in a row of a diffusion; None is as many as usual."""
        return None if self.cost.keep == LONGEST_ROW else self.cost.keep

    @contextmanager
    def applied(self) -> Iterator[None]:
        """Compute this way inside the body."""
        return_freed_memory()
        with use_scratch(self.folder if self.cost.spilled else None), use_panels(self.panel_columns):
            yield

    def words(self) -> str:
        """What was chosen, for people."""
        chosen = []
        if self.cost.spilled:
            chosen.append(f"bases on disk, {format_bytes(self.scratch_bytes)} of scratch in {self.folder}")
        if self.panel_columns is not None:
            chosen.append(f"panels of {self.cost.panel} columns")
        if self.keep is not None:
            chosen.append(f"{self.keep} entries kept in each row of the diffusion instead of {LONGEST_ROW}")
        return "; ".join(chosen) or "as usual"

    def as_dict(self) -> dict[str, Any]:
        """The figures, for programs."""
        return {
            "limit": self.limit,
            "held_bytes": self.held,
            "peak_bytes": self.peak_bytes,
            "scratch_bytes": self.scratch_bytes,
            "scratch_folder": self.folder if self.cost.spilled else None,
            "panel_columns": self.panel_columns,
            "keep": self.keep,
        }


# A fit that kept fewer entries was seen to hold a fifth more than reckoned, on a hundred million edges.
_CAUTION = 0.8


def plan_for(
    cost: Estimate,
    limit: int,
    *,
    held: int = 0,
    folder: str | None = None,
    row_length: Callable[[int], float] | None = None,
) -> MemoryPlan:
    """The fastest way to compute what `cost` describes within `limit` bytes; `UnavailableError` if none is.

    `held` is what the process has beside the graph. `row_length(keep)` is the mean length of the rows of a
    diffusion of which `keep` entries are kept; at most `keep` without it.

    >>> from fastgrl.estimate import estimate
    >>> usual = estimate(10**6, 10**7, design="degree-walk")
    >>> plan_for(usual, 4 * 10**9).words()
    'as usual'
    >>> plan_for(usual, 3 * 10**8, folder="/var/tmp").words()
    'bases on disk, 1.74 GB of scratch in /var/tmp; panels of 8 columns'
    """
    place = scratch_folder() if folder is None else folder
    for way in _ways(cost, limit - held, row_length):
        if held + way.peak_bytes <= limit:
            return MemoryPlan(way, limit, held, place)
    raise UnavailableError(_refusal(cost, limit, held, row_length))


def refusal(cost: Estimate, limit: int, **given: Any) -> str | None:
    """What `plan_for` would refuse with; None if there is a plan."""
    try:
        plan_for(cost, limit, **given)
    except UnavailableError as error:
        return str(error)
    return None


def _ways(cost: Estimate, room: int, row_length: Callable[[int], float] | None) -> Iterator[Estimate]:
    """From the fastest to the most sparing."""
    ways = [cost]
    if cost.design in _PLANNED:
        on_disk = dataclasses.replace(cost, spilled=True)
        ways += [*_narrower(cost), on_disk, *_narrower(on_disk)]
    yield from ways
    if cost.design == "log-diffusion":
        wanted = int(_CAUTION * room)
        yield max((_with_fewer_kept(way, wanted, row_length) for way in ways), key=lambda way: way.keep)


def _narrower(cost: Estimate) -> Iterator[Estimate]:
    for columns in _PANELS:
        if columns < cost.panel:
            yield dataclasses.replace(cost, panel_columns=columns)


def _with_fewer_kept(cost: Estimate, room: int, row_length: Callable[[int], float] | None) -> Estimate:
    """The most kept entries that fit, or the fewest there are."""

    def kept(keep: int) -> Estimate:
        length = min(cost.row_length, float(keep) if row_length is None else row_length(keep))
        return dataclasses.replace(cost, keep=keep, row_length=length)

    low, high = FEWEST_KEPT, LONGEST_ROW
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if kept(middle).peak_bytes <= room else (low, middle - 1)
    return kept(low)


def _refusal(cost: Estimate, limit: int, held: int, row_length: Callable[[int], float] | None) -> str:
    *_, lightest = _ways(cost, limit - held, row_length)
    what = "log-diffusion of rank" if cost.design == "log-diffusion" else "rank"
    beside = f", {format_bytes(held)} of them held already" if held else ""
    needs = f"{what} {cost.rank} needs about {format_bytes(held + lightest.peak_bytes)}{beside}"
    return f"{needs}, the limit is {format_bytes(limit)}; {_way_out(cost, limit, held)}"


def _way_out(cost: Estimate, limit: int, held: int) -> str:
    for words, other in _lighter(cost, limit - held):
        *_, lightest = _ways(other, limit - held, None)
        if held + lightest.peak_bytes <= limit:
            return f"{words} would need {format_bytes(held + lightest.peak_bytes)}"
    *_, least = _ways(_like(cost, rank=1), 0, None)
    graph = f"the graph alone takes {format_bytes(cost.graph_bytes)}"
    return f"even rank 1 would need {format_bytes(held + least.peak_bytes)} ({graph})"


def _lighter(cost: Estimate, room: int) -> Iterator[tuple[str, Estimate]]:
    """What to try instead; a walk with its bases on disk takes the same memory for every rank."""
    if not cost.mapped:
        yield "the graph imported to a folder (`fastgrl import`)", dataclasses.replace(cost, mapped=True)
    if cost.design == "log-diffusion":
        yield 'design "degree-walk"', _like(cost, design="degree-walk", rank=None)
        on_disk = dataclasses.replace(cost, mapped=True)
        yield 'an imported folder with design "degree-walk"', _like(on_disk, design="degree-walk", rank=None)
    if cost.design not in _PLANNED and (best := largest_rank(cost, room)):
        yield f"rank {best}", _like(cost, rank=best)


def _like(cost: Estimate, **changes: Any) -> Estimate:
    same = ("design", "rank", "window", "weighted", "directed", "select", "mapped")
    arguments = {name: getattr(cost, name) for name in same} | changes
    return estimate(cost.num_nodes, cost.num_stored, dtype=f"f{cost.itemsize}", **arguments)


@functools.cache
def _allocator() -> Any:
    """The C library of glibc; None of any other."""
    try:
        library = ctypes.CDLL(None)
        return library if hasattr(library, "malloc_trim") and hasattr(library, "mallopt") else None
    except (OSError, TypeError):
        return None


def return_freed_memory() -> None:
    """Give freed memory back to the system now, and from now on arrays at once when they are freed.

    By default glibc keeps freed arrays of up to 32 MB for later, and a process holds more than it uses.
    """
    if (library := _allocator()) is not None:
        library.mallopt(_MMAP_THRESHOLD, _RETURNED_BYTES)
        library.malloc_trim(0)


def held_beside(graph: Any) -> int:
    """What this process holds now beside the arrays of a graph, by the kernel's figure."""
    arrays = [getattr(graph, name) for name in ("indptr", "indices", "weights")]
    arrays = [array for array in arrays if array is not None]
    for array in arrays:
        release(array)
    return_freed_memory()
    own = sum(int(array.nbytes) for array in arrays if not is_mapped(array))
    return max(0, resident_memory() - own)


def resident_memory() -> int:
    """Bytes of memory that this process has now; the most it ever had where the system says no more."""
    try:
        return int(_STATM.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):
        return peak_memory() or 0
