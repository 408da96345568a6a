"""How a run on a cluster grows, on paper and by simulation: bytes, memory and seconds for a given network.

    python benchmarks/cluster_account.py [--edges 1e10] [--nodes 5e8] [--workers 64] [--gbit 10] [--threads 8]

The account is arithmetic in n nodes, m edges, W workers and b columns at a time. The simulation lets every
worker fetch what it lacks of X from all others over links of one speed, which share them fairly, and then
multiply its blocks; a run is so many such products, and between them round trips of tasks. It needs three
figures of a machine, which are in `Machine` as measured by `cluster.py --account` and `cluster_network.py`;
the latter puts what is simulated beside runs over real links of a speed that is set.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Numbers = NDArray[np.float64]


@dataclass(frozen=True)
class Machine:
    """What a worker's machine does, and its link."""

    gbit: float = 10.0
    threads: int = 1
    row_seconds: float = 10e-9  # to fetch a row of 64 bytes from memory at random, and add it
    task_seconds: float = 2e-3  # of a scheduler, for each task
    trip_seconds: float = 10e-3  # until a caller knows what tasks of all workers have found

    @property
    def link(self) -> float:
        """Bytes per second, in each direction."""
        return self.gbit * 1e9 / 8


@dataclass(frozen=True)
class Job:
    """A factorisation of a walk matrix: `window` steps, `rounds` after the first, `columns` at a time."""

    nodes: float
    edges: float
    workers: int
    blocks: int
    columns: int = 16
    window: int = 5
    rounds: int = 4

    @property
    def block_of_columns(self) -> float:
        """Bytes of the n×b block that is multiplied."""
        return self.nodes * self.columns * 4

    @property
    def products(self) -> int:
        """A X and A'X, for every step of the walk."""
        return 2 * self.window * (self.rounds + 1)

    @property
    def trips(self) -> int:
        """Round trips: Grams and peaks when a block is made orthonormal, on both sides of every round."""
        return TRIPS_PER_ROUND * (self.rounds + 1)

    @property
    def sent(self) -> float:
        """Bytes that all workers send for a product."""
        return (self.workers - 1) * self.block_of_columns

    @property
    def received(self) -> float:
        """Bytes that each worker receives for a product."""
        return self.sent / self.workers

    @property
    def copies(self) -> float:
        """Bytes of whole X on each worker: received, stacked, and the one before until Dask drops it."""
        return 3 * self.block_of_columns

    @property
    def graph(self) -> float:
        """Bytes of the rows of an undirected graph without weights, on each worker."""
        return 8 * self.edges / self.workers

    @property
    def basis(self) -> float:
        """Bytes of both bases on each worker, and of five blocks that a round works with."""
        return (2 * (self.rounds + 1) + 5) * self.block_of_columns / self.workers

    @property
    def held(self) -> float:
        """The most that a worker holds while it multiplies."""
        return self.copies + self.graph + self.basis

    @property
    def loading(self) -> float:
        """The most that a worker holds while edges are numbered and change places."""
        return LOADING_BYTES * self.edges / self.workers


TRIPS_PER_ROUND = 9
LOADING_BYTES = 72  # for every edge: read, numbered, cut both ways, received, sorted


def fair_rates(sources: NDArray[np.int64], targets: NDArray[np.int64], workers: int, link: float) -> Numbers:
    """What each flow gets when links are shared fairly: the fullest link first, then what others leave."""
    rates = np.zeros(len(sources))
    left = np.full(2 * workers, link)  # out of every worker, then into every worker
    ends = np.stack([sources, targets + workers])
    open_ = np.ones(len(sources), bool)
    while open_.any():
        users = np.bincount(ends[:, open_].ravel(), minlength=2 * workers)
        share = np.where(users > 0, left / np.maximum(users, 1), np.inf)
        fullest = int(share.argmin())
        settled = open_ & (ends == fullest).any(axis=0)
        rates[settled] = share[fullest]
        left -= share[fullest] * np.bincount(ends[:, settled].ravel(), minlength=2 * workers)
        left = np.maximum(left, 0.0)
        open_ &= ~settled
    return rates


def arrivals(held: Numbers, link: float) -> Numbers:
    """When each worker has received what all others hold (bytes), every one sending to every other."""
    workers = len(held)
    sources, targets = (side.ravel() for side in np.meshgrid(np.arange(workers), np.arange(workers)))
    kept = (sources != targets) & (held[sources] > 0)
    sources, targets = sources[kept], targets[kept]
    left, now, done = held[sources].astype(float), 0.0, np.zeros(workers)
    while len(left):
        rates = fair_rates(sources, targets, workers, link)
        step = float((left / rates).min())
        now, left = now + step, left - step * rates
        ended = left <= 1e-6 * held.max()
        np.maximum.at(done, targets[ended], now)
        sources, targets, left = sources[~ended], targets[~ended], left[~ended]
    return done


def product_seconds(job: Job, machine: Machine, entries: Sequence[float] | None = None) -> float:
    """Until a product is there on all workers; `entries` are those of each block, even ones if not given."""
    each = np.full(job.blocks, 2 * job.edges / job.blocks) if entries is None else np.asarray(entries)
    homes = np.arange(job.blocks) % job.workers
    held = np.bincount(homes, minlength=job.workers) * job.block_of_columns / job.blocks
    work = np.zeros(job.workers)
    for worker in range(job.workers):
        work[worker] = _makespan(each[homes == worker] * machine.row_seconds, machine.threads)
    moved = arrivals(held, machine.link)
    return float((moved + work).max()) + job.blocks * machine.task_seconds


def _makespan(tasks: Numbers, threads: int) -> float:
    """When the last of some tasks ends, each given to the thread that is free first."""
    free = np.zeros(threads)
    for task in tasks:
        free[free.argmin()] += task
    return float(free.max())


def run_seconds(job: Job, machine: Machine, entries: Sequence[float] | None = None) -> float:
    """All products, and the round trips between them."""
    trip = machine.trip_seconds + job.blocks * machine.task_seconds
    return job.products * product_seconds(job, machine, entries) + job.trips * trip


def table(jobs: Sequence[Job], machine: Machine) -> str:
    """The account, a column for each job."""
    rows = {
        "products": [f"{job.products}" for job in jobs],
        "sent per product, by all": [_bytes(job.sent) for job in jobs],
        "received per product, by each": [_bytes(job.received) for job in jobs],
        f"  at {machine.gbit:g} Gbit/s": [_seconds(job.received / machine.link) for job in jobs],
        "X on each worker, three times": [_bytes(job.copies) for job in jobs],
        "graph on each worker": [_bytes(job.graph) for job in jobs],
        "bases on each worker": [_bytes(job.basis) for job in jobs],
        "held while multiplying": [_bytes(job.held) for job in jobs],
        "held while loading": [_bytes(job.loading) for job in jobs],
        f"a product, simulated, {machine.threads} threads": [
            _seconds(product_seconds(job, machine)) for job in jobs
        ],
        "a run, simulated": [_seconds(run_seconds(job, machine)) for job in jobs],
    }
    heads = [f"{job.edges:.1e} edges, W = {job.workers}" for job in jobs]
    lines = [f"{'':34}" + "".join(f"{head:>24}" for head in heads)]
    return "\n".join(
        lines + [f"{name:34}" + "".join(f"{c:>24}" for c in cells) for name, cells in rows.items()]
    )


def _bytes(count: float) -> str:
    for unit, size in (("TB", 1e12), ("GB", 1e9)):
        if count >= size:
            return f"{count / size:.2g} {unit}" if count < 10 * size else f"{count / size:.0f} {unit}"
    return f"{count / 1e6:.0f} MB"


def _seconds(seconds: float) -> str:
    if seconds >= 600:
        return f"{seconds / 60:.0f} min"
    return f"{seconds:.0f} s" if seconds >= 10 else f"{seconds:.2g} s"


def usual_jobs(
    nodes: float = 5e8, edges: float = 1e10, workers: int = 64, rounds: int = 8
) -> tuple[Job, ...]:
    """A small one that was measured, a large one, and that on four times the machines."""
    small = Job(645_867, 15_700_303, 2, 4)
    return small, *(Job(nodes, edges, w, 2 * w, rounds=rounds) for w in (workers, 4 * workers))


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--edges", type=float, default=1e10)
    parser.add_argument("--nodes", type=float, default=5e8)
    parser.add_argument("--workers", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--gbit", type=float, default=10.0)
    parser.add_argument("--threads", type=int, default=8)
    given = parser.parse_args()
    jobs = usual_jobs(given.nodes, given.edges, given.workers, given.rounds)
    print(table(jobs, Machine(gbit=given.gbit, threads=given.threads)))


if __name__ == "__main__":
    main()
