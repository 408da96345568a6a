"""Threads that sleep when idle: one pool for the sparse kernel and for the dense chunks.

BLAS and OpenMP pools spin while they wait, and two spinning pools on the same cores can slow each other
down many times over. So BLAS is held to one thread inside our calls, and given back, and all parallel
work is handed out here in pieces that do not depend on the number of threads.
"""

from __future__ import annotations

import functools
import os
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from pathlib import Path
from typing import Any, TypeVar

from threadpoolctl import ThreadpoolController

from fastgrl.checks import integer

Item = TypeVar("Item")
Result = TypeVar("Result")

_requested: ContextVar[int | None] = ContextVar("fastgrl_threads", default=None)


@contextmanager
def use_threads(n_threads: int | None) -> Iterator[None]:
    """Run the body with `n_threads` threads; None keeps what was in force."""
    threads = _requested.get() if n_threads is None else integer("n_threads", n_threads, least=1)
    token = _requested.set(threads)
    try:
        yield
    finally:
        _requested.reset(token)


def requested_threads() -> int | None:
    """What `n_threads=` asked for, if it did."""
    return _requested.get()


def thread_count() -> int:
    """Threads a product uses now: what `n_threads=` asked for, else the CPUs this process may use."""
    return _requested.get() or available_cpus()


@functools.cache
def available_cpus() -> int:
    """CPUs this process may use: its affinity mask, cut down to its cgroup's quota."""
    mask = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    quotas = [quota for folder in _cgroup_folders() if (quota := _cpu_quota(folder)) is not None]
    return max(1, min([mask, *quotas]))


def _cgroup_folders() -> list[Path]:
    root = Path("/sys/fs/cgroup")
    try:
        lines = Path("/proc/self/cgroup").read_text().splitlines()
    except OSError:
        return []
    own = [line.split("::", 1)[1].strip("/") for line in lines if line.startswith("0::")]
    nested = [
        folder for path in own for folder in (root / path, *(root / path).parents) if root in folder.parents
    ]
    return [*nested, root, root / "cpu"]


def _cpu_quota(folder: Path) -> int | None:
    """Whole CPUs that a cgroup (version 2 or 1) grants, rounded up; None without a limit."""
    try:
        if (folder / "cpu.max").exists():
            quota, period = (folder / "cpu.max").read_text().split()
        else:
            quota = (folder / "cpu.cfs_quota_us").read_text()
            period = (folder / "cpu.cfs_period_us").read_text()
        return None if quota.strip() in {"max", "-1"} else max(1, -(-int(quota) // int(period)))
    except (OSError, ValueError, ZeroDivisionError):
        return None


def parallel_map(function: Callable[[Item], Result], items: Sequence[Item]) -> list[Result]:
    """`[function(item) for item in items]` on `thread_count()` threads, the caller's among them.

    Threads claim the next item when they are free, so a core that another process keeps busy delays
    one item and not its share of all. The first exception stops the rest and is raised here.

    >>> parallel_map(abs, [-2, 3])
    [2, 3]
    """
    helpers = min(thread_count(), len(items)) - 1
    if helpers < 1:
        with single_threaded_blas():
            return [function(item) for item in items]
    results: dict[int, Result] = {}
    unclaimed = list(enumerate(items))[::-1]

    def work() -> None:
        _here.limits += 1  # the caller's limit holds until all are done
        try:
            while (claim := _pop(unclaimed)) is not None:
                results[claim[0]] = function(claim[1])
        except BaseException:
            unclaimed.clear()
            raise
        finally:
            _here.limits -= 1

    with single_threaded_blas():
        futures = [_pool(helpers).submit(work) for _ in range(helpers)]
        try:
            work()
        finally:
            started = [future for future in futures if not future.cancel()]
            wait(started)
    for future in started:
        future.result()
    return [results[index] for index in range(len(items))]


def _pop(unclaimed: list[Item]) -> Item | None:
    try:
        return unclaimed.pop()
    except IndexError:
        return None


@functools.cache
def _pool(workers: int) -> ThreadPoolExecutor:
    _watch_forks()
    return ThreadPoolExecutor(workers, "fastgrl", initializer=_limit_blas_of_this_thread)


class _Here(threading.local):
    """How many bodies of `single_threaded_blas` this thread is in."""

    limits = 0


_here = _Here()
_blas_lock = threading.Lock()
_blas_users = 0
_blas_threads: dict[str, int] = {}  # of every library that is limited now, what it had before
_modules_seen = 0


def single_threaded_blas() -> AbstractContextManager[None]:
    """Hold BLAS to one thread inside the body and give the caller's setting back afterwards.

    The setting belongs to the whole process, so overlapping bodies on several threads share one limit:
    the first sets it, the last gives it back. A body inside another on the same thread costs next to nothing.
    """
    if not _here.limits:
        return _limited_blas()
    if (
        len(sys.modules) != _modules_seen
    ):  # SciPy brings a BLAS of its own, with the first import that needs it
        with _blas_lock:
            _limit_blas()
    return _NOTHING


_NOTHING = nullcontext()


@contextmanager
def _limited_blas() -> Iterator[None]:
    global _blas_users
    _watch_forks()
    with _blas_lock:
        _blas_users += 1
        _limit_blas()
    _here.limits += 1
    try:
        yield
    finally:
        _here.limits -= 1
        with _blas_lock:
            _blas_users -= 1
            if _blas_users == 0:
                _free_blas()


@functools.cache
def _watch_forks() -> None:
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=_begin_anew)


def _begin_anew() -> None:
    """A forked child has none of its parent's threads, and holds none of its limits."""
    global _here, _blas_lock, _blas_users
    _pool.cache_clear()
    _here, _blas_lock, _blas_users = _Here(), threading.Lock(), 0
    _blas_threads.clear()


def _limit_blas() -> None:
    """One thread for every BLAS that is loaded by now and has more."""
    global _modules_seen
    _modules_seen = len(sys.modules)
    for library in _blas_libraries(_modules_seen):
        if library.filepath not in _blas_threads:
            _blas_threads[library.filepath] = library.num_threads
            _set_blas_threads(library, 1)


def _free_blas() -> None:
    for library in _blas_libraries(_modules_seen):
        _set_blas_threads(library, _blas_threads.pop(library.filepath))


@functools.lru_cache(maxsize=1)
def _blas_libraries(modules: int) -> list[Any]:
    """Looked for again whenever modules have been imported: that is what loads libraries."""
    del modules
    return list(ThreadpoolController().select(user_api="blas").lib_controllers)


def _set_blas_threads(library: Any, count: int) -> None:
    # Recent threadpoolctl obeys only the thread that set a limit first, but the last user here may run on
    # another thread than the first.
    release = getattr(library, "clear_controlling_thread", lambda **_: None)
    release(force=True)
    library.set_num_threads(count)
    release(force=True)


def _limit_blas_of_this_thread() -> None:
    """A BLAS on OpenMP keeps one setting per thread: a thread of the pool needs its own."""
    for library in _blas_libraries(_modules_seen):
        if getattr(library, "threading_layer", None) == "openmp":
            library.set_num_threads(1)
