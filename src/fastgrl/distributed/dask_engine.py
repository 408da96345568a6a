"""Dask as an engine: the address of a scheduler, or workers of this machine's own."""

from __future__ import annotations

import itertools
import re
import signal
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from importlib import import_module
from importlib.util import find_spec
from multiprocessing import resource_tracker
from tempfile import TemporaryDirectory
from typing import Any

from fastgrl.checks import integer, shown
from fastgrl.distributed.addresses import Address
from fastgrl.distributed.checkpoints import Checkpoint
from fastgrl.distributed.clusters import Cluster
from fastgrl.distributed.engines import Engine
from fastgrl.errors import ArgumentError, FastgrlError, MissingExtraError, UnavailableError

MISSING = "a cluster needs Dask: pip install 'fastgrl[dask]'"
_LOCAL = re.compile(r"local(?::(\d+))?")
_CONNECT_SECONDS = 10
# How often a cluster that is waited for is looked at, and how long nothing may go on there.
_LOOK_SECONDS, _PATIENCE_SECONDS = 2.0, 30.0


@contextmanager
def connected(
    address: Any,
    *,
    blocks: int | None = None,
    memory_limit: Any = "auto",
    most_bytes: int | None = None,
    checkpoint: Any = None,
) -> Iterator[Cluster]:
    """The workers of a Dask scheduler: "tcp://host:8786", "local", "local:4", or a `distributed.Client`.

    "local:4" starts four worker processes here and ends them with the body; `memory_limit` is theirs.
    `blocks` is into how many blocks rows are cut (None: two for each thread of the workers); results do not
    depend on it. `most_bytes` is the largest array that a caller may be sent back. `checkpoint` is a folder
    that all machines share, or an address that fsspec knows, in which the results of a long run are kept: the
    same call goes on where an earlier one ended. What goes wrong with the cluster is one `UnavailableError`
    that says what, and what to do. Needs the extra `dask`.

        with connected("local:4") as cluster:
            embed_folder(cluster, "edges", "vectors", design="degree-walk", rank=32)
    """
    distributed = _dask()
    kept = None if checkpoint is None else Checkpoint.at(checkpoint)
    with (
        _scratch(kept) as storage,
        _clear_errors(address),
        _client(distributed, address, memory_limit) as client,
    ):
        yield Cluster(engine_of(client), blocks, most_bytes, storage, kept)


@contextmanager
def _scratch(kept: Checkpoint | None) -> Iterator[Address]:
    """A folder for what a caller sends to workers, beside what is kept; it is removed in the end."""
    if kept is None:
        with TemporaryDirectory(prefix="fastgrl-") as here:
            yield Address.of(here)
        return
    folder = kept.folder / f"fastgrl-{uuid.uuid4().hex[:8]}"
    try:
        yield folder
    finally:
        with suppress(OSError):
            folder.remove()


def _dask() -> Any:
    try:
        return import_module("distributed")
    except ImportError as error:
        raise MissingExtraError(MISSING) from error


@contextmanager
def _client(distributed: Any, address: Any, memory_limit: Any) -> Iterator[Any]:
    if isinstance(address, distributed.Client):
        yield address
        return
    if not isinstance(address, str):
        raise ArgumentError(f'cluster must be "local", "local:N" or an address, got {shown(address)}')
    if (local := _LOCAL.fullmatch(address)) is not None:
        with _own_workers(distributed, local.group(1), memory_limit) as client:
            yield client
        return
    if "://" not in address:
        raise ArgumentError(
            f'cluster must be "local", "local:N" or an address such as tcp://host:8786, got {shown(address)}'
        )
    with _connection(distributed, address) as client:
        yield client


@contextmanager
def _own_workers(distributed: Any, count: str | None, memory_limit: Any) -> Iterator[Any]:
    from fastgrl.parallel import available_cpus

    workers = available_cpus() if count is None else integer("cluster", int(count), least=1)
    with _deaf_to_interrupts():
        own = distributed.LocalCluster(
            n_workers=workers,
            threads_per_worker=1,
            processes=True,
            memory_limit=memory_limit,
            dashboard_address="127.0.0.1:0",
            silence_logs=50,
        )
    with own, distributed.Client(own) as client:
        yield client


@contextmanager
def _deaf_to_interrupts() -> Iterator[None]:
    """Threads that begin here, and the processes they start, never see Ctrl-C: it is for the caller alone.

    Signals that a thread does not take are passed on to what it starts. One that comes now waits for the end.
    """
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    resource_tracker.ensure_running()  # to start it, Python would let signals through again
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextmanager
def _connection(distributed: Any, address: str) -> Iterator[Any]:
    try:
        client = distributed.Client(address, timeout=_CONNECT_SECONDS)
    except (OSError, ValueError) as error:
        reason = str(error).split("\n", 1)[0]
        raise UnavailableError(f"no Dask scheduler answers at {address}: {reason}") from error
    try:
        yield client
    finally:
        client.close()


def engine_of(client: Any) -> Engine:
    """Tasks on the workers of a `distributed.Client`."""
    from distributed import Future

    def each(
        function: Callable[..., Any], calls: Sequence[Any], futures: Sequence[Sequence[Any]]
    ) -> list[Any]:
        # Keys of their own: equal calls are not taken for one, and the dashboard tells kinds of work apart.
        keys = [f"{getattr(call.function, '__name__', 'call')}-{uuid.uuid4().hex}" for call in calls]
        beside = itertools.zip_longest(*futures)
        with _lost_if_not_running(client):
            return list(client.map(function, list(calls), *map(list, beside), key=keys, pure=False))

    def gather(futures: Sequence[Any]) -> list[Any]:
        with _lost_if_not_running(client):
            _wait(client, futures)
            return list(client.gather(list(futures)))

    def slots() -> int:
        with _lost_if_not_running(client):
            return max(1, int(sum(client.nthreads().values())))

    page = str(client.dashboard_link) if find_spec("bokeh") else ""
    return Engine("Dask", each, gather, Future, slots, page)


@contextmanager
def _lost_if_not_running(client: Any) -> Iterator[None]:
    """One error for a connection that is lost: Dask has another for every moment and every call."""
    from distributed.comm.core import CommClosedError

    try:
        yield
    except FastgrlError:
        raise
    except Exception as error:
        if client.status == "running":
            raise
        raise CommClosedError("the connection was lost") from error


def _wait(client: Any, futures: Sequence[Any]) -> None:
    """Until all are done; workers that are all gone, or out of memory, would let us wait for ever."""
    wait: Any = import_module("distributed").wait
    begin = _Look()
    while True:
        try:
            wait(list(futures), timeout=_LOOK_SECONDS)
            return
        except TimeoutError:
            if client.status == "closed":
                raise ConnectionError("the scheduler did not come back") from None
            # While a connection is made anew nothing is known; a scheduler that is gone cancels its futures.
            workers = client.scheduler_info(n_workers=-1).get("workers", {})
            paused = [name for name, worker in workers.items() if worker.get("status") == "paused"]
            if paused:
                client.run(give_back_memory, workers=paused, on_error="ignore")
            now = _Look.at(workers)
            if now.goes_on_from(begin, paused):
                begin = now
            elif now.is_too_long_after(begin):
                raise UnavailableError(_stuck(len(workers), len(paused))) from None


@dataclass(frozen=True)
class _Look:
    """What is known of every worker at a moment: when it was heard of last, and how many tasks it has."""

    moment: float = field(default_factory=time.monotonic)
    heard: dict[str, Any] = field(default_factory=dict)
    tasks: dict[str, dict[str, int]] = field(default_factory=dict)

    @classmethod
    def at(cls, workers: dict[str, Any]) -> _Look:
        """What a scheduler says now."""
        heard = {name: worker.get("last_seen") for name, worker in workers.items()}
        told = {name: worker.get("metrics", {}) for name, worker in workers.items()}
        return cls(heard=heard, tasks={name: one.get("task_counts", {}) for name, one in told.items()})

    def goes_on_from(self, before: _Look, paused: Sequence[str]) -> bool:
        """Whether waiting is worth it: a worker executes a task, or has other tasks than before."""
        if not self.tasks:
            return False
        busy = any(tasks.get("executing") for tasks in self.tasks.values())
        return not paused or busy or self.tasks != before.tasks

    def is_too_long_after(self, before: _Look) -> bool:
        """Whether patience is over: all were heard of since, for one that is not moves things to its disk."""
        silent = any(heard == before.heard.get(name) for name, heard in self.heard.items())
        return not silent and self.moment - before.moment > _PATIENCE_SECONDS


def give_back_memory() -> None:
    """On a worker: return to the system what the allocators of C and of Arrow keep for later.

    A worker is paused for all that its process holds, and what is only kept would keep it paused.
    """
    import ctypes
    import gc
    import sys

    gc.collect()
    if "pyarrow" in sys.modules:
        sys.modules["pyarrow"].default_memory_pool().release_unused()
    with suppress(OSError, AttributeError):  # a C library that has no such function
        ctypes.CDLL("libc.so.6").malloc_trim(0)


def _stuck(workers: int, paused: int) -> str:
    if not workers:
        return "the cluster has no workers any more: start some, and run again"
    return (
        f"{paused} of {workers} workers paused because their memory is full, and nothing goes on: give them "
        "more, start more of them, or cut rows into more blocks (--blocks)"
    )


@contextmanager
def _clear_errors(address: Any) -> Iterator[None]:
    """What Dask says of a cluster in trouble, as one line that says what to do."""
    from distributed.client import FutureCancelledError, FuturesCancelledError
    from distributed.comm.core import CommClosedError
    from distributed.scheduler import KilledWorker, NoValidWorkerError

    where = address if isinstance(address, str) else "the cluster"
    try:
        yield
    except KilledWorker as error:
        raise UnavailableError(
            f"a worker of {where} died again and again in the task {_name(error.task)}: a block of rows is "
            "probably larger than its memory. Cut rows into more blocks (--blocks), or give workers more"
        ) from error
    except NoValidWorkerError as error:
        raise UnavailableError(f"{where} has no worker that can run the work: start some") from error
    except (FutureCancelledError, FuturesCancelledError, CommClosedError) as error:
        raise UnavailableError(
            f"the scheduler of {where} is gone, and with it what was computed there ({_first(error)}); "
            "with --checkpoint DIR a run goes on where it stopped"
        ) from error


def _name(task: Any) -> str:
    return str(task).rsplit("-", 1)[0]


def _first(error: BaseException) -> str:
    return (str(error).strip() or type(error).__name__).split("\n", 1)[0][:200]
