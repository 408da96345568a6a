"""A cluster over links of a speed that is set, beside what the simulation says: needs root, and iproute2.

    python benchmarks/cluster_network.py [--gbit 0.1,0.5,2] [--workers 2,3] [--edges 4e6]

Every worker lives in a network namespace of its own, with a link to a bridge that lets through so many bits
a second in each direction; the scheduler and the caller are at the bridge. Measured are a product with 16
columns (the median of five, the bytes that workers have sent) and a whole rank-32 factorisation of the
degree-walk matrix. All workers share the cores of this machine, so their arithmetic is not what is tested.
"""

from __future__ import annotations

import argparse
import contextlib
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from cluster import COLUMNS, EDGE_FACTOR, ROUNDS, bytes_sent, on_workers, written
from cluster_account import Job, Machine, product_seconds, run_seconds
from common import header

import fastgrl as fg
from fastgrl.datasets import rmat
from fastgrl.distributed import connected
from fastgrl.distributed.engines import Pending
from fastgrl.distributed.loading import load_graph
from fastgrl.distributed.rows import _stored

BRIDGE, NETWORK, PORT = "fgbridge", "10.77.0", 8786
WINDOW = 5


def told(command: str, *, strict: bool = True) -> None:
    subprocess.run(command.split(), check=strict, capture_output=not strict)


@contextlib.contextmanager
def network(workers: int, gbit: float) -> Iterator[None]:
    """A bridge, and so many namespaces with a link to it."""
    try:
        told(f"ip link add {BRIDGE} type bridge")
        told(f"ip addr add {NETWORK}.1/24 dev {BRIDGE}")
        told(f"ip link set {BRIDGE} up")
        for i in range(workers):
            inside = f"ip netns exec fg{i}"
            told(f"ip netns add fg{i}")
            told(f"ip link add fgv{i} type veth peer name fge{i} netns fg{i}")
            told(f"ip link set fgv{i} master {BRIDGE} up")
            told(f"{inside} ip addr add {NETWORK}.{10 + i}/24 dev fge{i}")
            told(f"{inside} ip link set fge{i} up")
            told(f"{inside} ip link set lo up")
            limit = f"root tbf rate {1000 * gbit:g}mbit burst 512kb latency 100ms"
            told(f"tc qdisc add dev fgv{i} {limit}")
            told(f"{inside} tc qdisc add dev fge{i} {limit}")
        yield
    finally:
        for i in range(workers):
            told(f"ip link del fgv{i}", strict=False)  # with its other end, at once
            told(f"ip netns del fg{i}", strict=False)
        told(f"ip link del {BRIDGE}", strict=False)


@contextlib.contextmanager
def started(workers: int, folder: Path) -> Iterator[str]:
    """A scheduler at the bridge, and a worker in each namespace; the scheduler's address."""
    address, python = f"tcp://{NETWORK}.1:{PORT}", [sys.executable, "-m"]
    scheduler = ["distributed.cli.dask_scheduler", "--host", f"{NETWORK}.1", "--port", str(PORT)]
    worker = ["distributed.cli.dask_worker", address, "--nthreads", "1", "--death-timeout", "60"]
    worker += ["--no-dashboard", "--local-directory", str(folder)]
    programs = [[*python, *scheduler, "--no-dashboard"]]
    programs += [["ip", "netns", "exec", f"fg{i}", *python, *worker] for i in range(workers)]
    quiet = subprocess.DEVNULL
    running = [subprocess.Popen(program, stdout=quiet, stderr=quiet) for program in programs]
    try:
        yield address
    finally:
        for process in reversed(running):
            process.terminate()
        for process in running:
            process.wait()


def measure(workers: int, gbit: float, source: str, folder: Path) -> None:
    """One line: what was measured, and what the simulation says."""
    with network(workers, gbit), started(workers, folder) as address:
        _wait_for(address, workers)
        with connected(address, blocks=2 * workers) as cluster:
            graph = load_graph(cluster, source)
            entries = cluster.gather([Pending(_stored, (rows,)) for rows in graph.csr.futures])
            A, seconds, moved = fg.Matrix(graph.csr), [], []
            for number in range(5):
                X = cluster.seam.random(graph.num_nodes, COLUMNS, np.float32, 0, number)
                cluster.gather(X.each(len))
                before, begin = bytes_sent(), time.perf_counter()
                cluster.gather((A @ X).each(len))
                seconds.append(time.perf_counter() - begin)
                moved.append(bytes_sent() - before)
            begin = time.perf_counter()
            on_workers(graph)
            run = time.perf_counter() - begin
    n, m = graph.num_nodes, graph.num_edges
    job = Job(n, m, workers, len(entries), COLUMNS, WINDOW, ROUNDS)
    machine = Machine(gbit=gbit)
    # What is measured of a product ends with a round trip.
    trip = machine.trip_seconds + job.blocks * machine.task_seconds
    said = product_seconds(job, machine, entries) + trip, run_seconds(job, machine, entries)
    figures = [np.median(seconds), said[0], np.median(seconds) / said[0], run, said[1], run / said[1]]
    cells = "".join(f"{figure:10.2f}" for figure in figures)
    print(f"{workers:7}{gbit:8g}{cells}{np.median(moved) / job.sent:10.2f}", flush=True)


def _wait_for(address: str, workers: int) -> None:
    from distributed import Client

    with Client(address, timeout=60) as client:
        client.wait_for_workers(workers, timeout=60)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--gbit", default="0.1,0.5,2", help="speeds of links, with commas between")
    parser.add_argument("--workers", default="2,3", help="numbers of workers")
    parser.add_argument("--edges", type=float, default=4e6)
    given = parser.parse_args()
    print(header())
    drawn = rmat(int(np.ceil(np.log2(given.edges / EDGE_FACTOR))), edge_factor=EDGE_FACTOR)
    print(f"\n{drawn.num_edges:,} edges; {COLUMNS} columns, {ROUNDS} rounds, window {WINDOW}")
    names = ("workers", "Gbit/s", "product s", "simul.", "ratio", "run s", "simul.", "ratio", "moved")
    print("".join(f"{name:>{width}}" for name, width in zip(names, (7, 8) + (10,) * 7, strict=True)))
    with tempfile.TemporaryDirectory() as folder:
        source = written(drawn, Path(folder) / "edges")
        for workers in map(int, given.workers.split(",")):
            for gbit in map(float, given.gbit.split(",")):
                measure(workers, gbit, source, Path(folder))


if __name__ == "__main__":
    main()
