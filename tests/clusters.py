"""Clusters for tests: real schedulers and workers, as users start them, and graphs in Parquet folders."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import cloudpickle
import numpy as np

import fastgrl as fg
from fastgrl.ordering import canonical_order_of, reordered

PATIENCE = 60.0
STARTED: list[subprocess.Popen[bytes]] = []

# Schedulers do not know this module: what is run on them travels with the call.
cloudpickle.register_pickle_by_value(sys.modules[__name__])


def until(happened: Callable[[], Any], *, seconds: float = PATIENCE) -> Any:
    """Wait for something, and return it."""
    end = time.monotonic() + seconds
    while not (found := happened()):
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.05)
    return found


@dataclass
class External:
    """A scheduler and its workers in processes of their own, started from the command line."""

    folder: Path
    address: str = ""
    processes: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def start(self, module: str, *options: str) -> subprocess.Popen[bytes]:
        program = [sys.executable, "-m", f"distributed.cli.{module}", *options]
        with open(self.folder / f"log-{len(self.processes)}.txt", "wb") as log:
            self.processes.append(subprocess.Popen(program, cwd=self.folder, stdout=log, stderr=log))
        return self.processes[-1]

    def worker(self, *options: str) -> subprocess.Popen[bytes]:
        usual = ("--nthreads", "1", "--death-timeout", "10", "--no-dashboard", "--local-directory", "scratch")
        return self.start("dask_worker", self.address, *usual, *options)


@contextlib.contextmanager
def external(folder: Path, workers: int = 2, *options: str) -> Iterator[External]:
    """A scheduler with so many workers; nothing of it is left behind."""
    folder.mkdir(parents=True, exist_ok=True)
    found = External(folder)
    try:
        file = folder / "scheduler.json"
        found.start("dask_scheduler", "--port", "0", "--no-dashboard", "--scheduler-file", str(file))
        found.address = until(lambda: address_in(file))
        for _ in range(workers):
            found.worker(*options)
        yield found
    finally:
        for process in reversed(found.processes):
            process.terminate()
        for process in found.processes:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(10)
            process.kill()
            process.wait()


def address_in(file: Path) -> str:
    import json

    with contextlib.suppress(OSError, ValueError):
        return str(json.loads(file.read_text())["address"])
    return ""


@contextlib.contextmanager
def watching(address: str, workers: int) -> Iterator[Any]:
    """A client beside the one that works, once all workers are there."""
    from distributed import Client

    with Client(address, timeout=PATIENCE) as client:
        client.wait_for_workers(workers, timeout=PATIENCE)
        yield client


def worker_pids(client: Any) -> list[int]:
    return sorted(client.run(os.getpid).values())


def tasks_done(client: Any) -> int:
    """How many tasks the scheduler has seen the end of."""
    return int(client.run_on_scheduler(_transitions))


def _transitions(dask_scheduler: Any) -> int:
    return sum(prefix.state_counts["memory"] for prefix in dask_scheduler.task_prefixes.values())


def kill(pid: int) -> None:
    os.kill(pid, signal.SIGKILL)


def fastgrl(*arguments: str, cwd: Path) -> subprocess.Popen[bytes]:
    """The program as a user runs it in a terminal, with all that it starts in one group."""
    command, pipe = [sys.executable, "-m", "fastgrl", *map(str, arguments)], subprocess.PIPE
    program = subprocess.Popen(command, cwd=cwd, stdout=pipe, stderr=pipe, start_new_session=True)
    STARTED.append(program)
    return program


def interrupt(program: subprocess.Popen[bytes]) -> None:
    """What Ctrl-C does: every process of the group hears of it."""
    os.killpg(program.pid, signal.SIGINT)


def end_programs() -> None:
    """End what a test that failed has left running."""
    while STARTED:
        program = STARTED.pop()
        program.kill()
        program.communicate()


def edge_folder(
    folder: Path, nodes: int, edges: int, *, files: int = 4, text: bool = True, weighted: bool = False
) -> Any:
    """A folder of Parquet edge lists of a random graph, and all of it as one table."""
    import pandas as pd

    rng = np.random.default_rng(7)
    ends = (nodes * rng.random((edges, 2)) ** 2).astype(np.int64)
    name = (lambda column: [f"n{number:07}" for number in column]) if text else (lambda column: column)
    table = pd.DataFrame({"source": name(ends[:, 0]), "target": name(ends[:, 1])})
    if weighted:
        table["weight"] = 0.5 + rng.random(edges)
    folder.mkdir(parents=True)
    for number, some in enumerate(np.array_split(np.arange(edges), files)):
        table.iloc[some].to_parquet(folder / f"part-{number}.parquet")
    return table


def in_one_process(table: Any, *, directed: bool = False) -> fg.Graph:
    """The graph of a table with its nodes in the order of their ids."""
    graph = fg.Graph.from_frame(table, directed=directed)
    order = canonical_order_of(graph)
    return graph if order is None else reordered(graph, order)


def vectors_in(folder: Path) -> tuple[np.ndarray, np.ndarray]:
    """Ids and vectors of a folder that was written."""
    import pandas as pd

    table = pd.concat([pd.read_parquet(file) for file in sorted(folder.glob("*.parquet"))])
    return table["id"].to_numpy(), table.drop(columns="id").to_numpy()


def write_digits(folder: Path) -> None:
    """The digits graph and the labels of its training nodes, as files."""
    import pandas as pd

    digits = fg.load_dataset("digits")
    pairs = digits.graph.edge_codes()
    pd.DataFrame(pairs, columns=["source", "target"]).to_csv(folder / "edges.csv", index=False)
    rows = {"id": digits.train, "label": digits.y[digits.train]}
    pd.DataFrame(rows).to_csv(folder / "labels.csv", index=False)
