"""What the machine can do, and how near to it the sparse product comes.

    FASTGRL_DATA=<folder> python benchmarks/roofline.py [--quick] [--threads 1,2]

(a) Bandwidth of copying and of reading, out of cache. (b) Random rows of 64 bytes out of arrays of growing
size: nanoseconds each when every address depends on the row before (latency) and when none does (throughput).
(c) float32 matrix products: square, and the skinny ones of an orthonormalisation.
(d) One product of the adjacency matrix with 16 columns. The roofline is the time in which the machine of (a)
and (b) could stream the rows and the result, and fetch one row of the block for each stored entry.
(e) profiles.py: where the time of whole commands goes.
"""

from __future__ import annotations

import argparse
import functools
import math
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import profiles
from common import DATASETS, Neighbours, header, link_dataset, load_numba, race
from large_graphs import rmat_shape
from numpy.typing import NDArray

from fastgrl.datasets import rmat
from fastgrl.kernels import CSR, csr_from_scipy, multiply
from fastgrl.parallel import available_cpus, single_threaded_blas, use_threads

Array = NDArray[Any]

LINE, COLUMNS, IN_CACHE = 64, 16, 1 << 19
GATHER_KB = (64, 256, 1 << 10, 4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20, 2 << 20)
QUICK_KB = (64, 256, 1 << 10, 16 << 10, 128 << 10)
FETCHES, CALLS = 1 << 16, 64
GEMMS = {
    "square 1024 × 1024 × 1024": (1024, 1024, 1024),
    "Q'Y, 200 × 4096 × 16": (200, 4096, 16),
    "Q C, 4096 × 200 × 16": (4096, 200, 16),
    "Y D, 4096 × 16 × 16": (4096, 16, 16),
}


def best_seconds(run: Callable[[], Any], rounds: int) -> float:
    return race({"": run}, rounds, seconds=0.2)[""].best


def on_threads(work: Callable[..., Any], *arrays: Array, threads: int) -> Callable[[], Any]:
    """The work on equal parts of the arrays, a thread for each."""
    if threads == 1:
        return partial(work, *arrays)
    parts = [np.array_split(array, threads) for array in arrays]
    return lambda: list(_pool(threads).map(work, *parts))


@functools.cache
def _pool(threads: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(threads)


# (a)


@dataclass(frozen=True)
class Bandwidth:
    """Bytes per second: read and written by a copy, read from memory, and read from the cache."""

    copy: float
    read: float
    cached: float

    def seconds(self, num_bytes: int) -> float:
        """To stream so many bytes, from the cache if they fit into it."""
        return num_bytes / (self.cached if num_bytes <= IN_CACHE else self.read)


def bandwidth(num_bytes: int, threads: int, rounds: int) -> Bandwidth:
    source, target = np.ones(num_bytes // 4, np.float32), np.zeros(num_bytes // 4, np.float32)
    copied = best_seconds(on_threads(np.copyto, target, source, threads=threads), rounds)

    def read(part: Array, times: int) -> None:
        for _ in range(times):
            np.dot(part, part)

    with single_threaded_blas():
        once = best_seconds(on_threads(partial(read, times=1), source, threads=threads), rounds)
        small = source[: IN_CACHE // 4]
        again = best_seconds(on_threads(partial(read, times=32), small, threads=threads), rounds)
    return Bandwidth(2 * num_bytes / copied, num_bytes / once, 32 * IN_CACHE / again)


# (b)


def gatherer() -> tuple[Callable[..., Any], Callable[..., Any]] | None:
    """Loops that add up rows: in a given order, and each telling which comes next; None without numba."""
    numba = load_numba()
    if numba is None:
        return None

    @numba.njit(nogil=True)
    def independent(order, rows):  # type: ignore[no-untyped-def]
        total = 0
        for row in order:
            total += rows[row, 0]  # one number brings the whole line
        return total

    @numba.njit(nogil=True)
    def chained(steps, rows, row):  # type: ignore[no-untyped-def]
        for _ in range(steps):
            row = rows[row, 0]
        return row

    return independent, chained


@dataclass(frozen=True)
class Gather:
    """Seconds for one random row of 64 bytes out of an array of so many bytes."""

    num_bytes: int
    latency: float
    throughput: float


def gathers(kilobytes: tuple[int, ...], threads: int) -> list[Gather]:
    loops = gatherer()
    return [] if loops is None else [gather(size << 10, threads, *loops) for size in kilobytes]


def gather(num_bytes: int, threads: int, independent: Any, chained: Any) -> Gather:
    """Many short calls on ever new rows: none is in the cache for the call before, few lose their core."""
    count, rng = num_bytes // LINE, np.random.default_rng(0)
    rows, cycle = np.empty((count, LINE // 4), np.int32), rng.permutation(count).astype(np.int32)
    rows[cycle, 0] = np.roll(cycle, -1)  # written, or all pages would be the one page of zeros
    parts = np.split(rng.integers(count, size=CALLS * FETCHES).astype(np.int32), CALLS)
    apart = [on_threads(partial(independent, rows=rows), part, threads=threads) for part in parts]
    steps = FETCHES // 8
    chain = [partial(chained, steps, rows, start) for start in cycle[:: max(1, count // CALLS)]]
    return Gather(num_bytes, least_seconds(chain) / steps, least_seconds(apart) / FETCHES)


def least_seconds(runs: list[Callable[[], Any]]) -> float:
    runs[0]()
    times = []
    for run in runs:
        begin = time.perf_counter()
        run()
        times.append(time.perf_counter() - begin)
    return min(times)


def seconds_per_line(table: list[Gather], num_bytes: float) -> float:
    """Between the measured sizes along the logarithm of the size, and as the last beyond them."""
    sizes = [math.log(entry.num_bytes) for entry in table]
    return float(np.interp(math.log(num_bytes), sizes, [entry.throughput for entry in table]))


# (c)


def gemm_rate(shape: tuple[int, int, int], rounds: int) -> float:
    """Multiply-adds, counted as two, per second on one thread."""
    m, k, n = shape
    rng = np.random.default_rng(0)
    A, B = rng.random((m, k), dtype=np.float32), rng.random((k, n), dtype=np.float32)
    out = np.empty((m, n), np.float32)
    with single_threaded_blas():
        return 2 * m * k * n / best_seconds(lambda: np.matmul(A, B, out=out), rounds)


# (d)


def graphs(sizes: tuple[int, ...], names: tuple[str, ...]) -> dict[str, CSR]:
    found = {name: csr_from_scipy(link_dataset(name)) for name in names}
    for edges in sizes:
        scale, edge_factor = rmat_shape(edges, per_node=24)
        graph = rmat(scale, edge_factor=edge_factor)
        shape = (graph.num_nodes, graph.num_nodes)
        found[f"R-MAT {edges:.0e}"] = CSR(graph.indptr, graph.indices, None, shape, None)
    return found


def streamed_bytes(matrix: CSR) -> int:
    """Indices, row pointers and the result; what is fetched from the block is counted by rows."""
    per_row = matrix.indptr.itemsize + 4 * COLUMNS
    return matrix.num_stored * matrix.indices.itemsize + matrix.shape[0] * per_row


def product_line(name: str, matrix: CSR, rate: Bandwidth, table: list[Gather], rounds: int) -> str:
    X = np.ones((matrix.shape[1], COLUMNS), np.float32)
    taken = best_seconds(lambda: multiply(matrix, X), rounds)
    streamed, fetched = streamed_bytes(matrix), LINE * matrix.num_stored
    text = f"{name:14}{matrix.shape[0]:12,}{matrix.num_stored:14,}{(streamed + fetched) / 1e6:10.1f}"
    text += f"{1e3 * taken:10.3f}{(streamed + fetched) / taken / 1e9:8.1f}"
    if not table:
        return f"{text}{'-':>12}{'-':>8}"
    least = rate.seconds(streamed) + matrix.num_stored * seconds_per_line(table, X.nbytes)
    return f"{text}{1e3 * least:12.3f}{least / taken:8.0%}"


# What is printed.


def machine_table(threads: int, rounds: int, *, quick: bool) -> tuple[Bandwidth, list[Gather]]:
    rate = bandwidth(1 << (26 if quick else 29), threads, rounds)
    print(
        f"\n{threads} threads: copy {rate.copy / 1e9:.1f} GB/s read and written, read {rate.read / 1e9:.1f}"
    )
    table = gathers(QUICK_KB if quick else GATHER_KB, threads)
    print(f"{'random 64-byte rows of':>24}{'latency ns':>12}{'apart ns':>10}{'GB/s':>8}")
    for entry in table:
        times = f"{1e9 * entry.latency:12.1f}{1e9 * entry.throughput:10.2f}"
        print(f"{entry.num_bytes / 2**20:21.2f} MB{times}{LINE / entry.throughput / 1e9:8.1f}")
    return rate, table


def product_table(found: dict[str, CSR], rate: Bandwidth, table: list[Gather], rounds: int) -> None:
    columns = f"{'MB':>10}{'ms':>10}{'GB/s':>8}{'roofline ms':>12}{'share':>8}"
    print(f"{f'A X, {COLUMNS} columns':14}{'nodes':>12}{'stored':>14}{columns}")
    for name, matrix in found.items():
        print(product_line(name, matrix, rate, table, rounds), flush=True)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="small arrays, one dataset, R-MAT 10⁶")
    parser.add_argument("--threads", default=f"1,{available_cpus()}", help="with commas between")
    parser.add_argument("--no-profiles", action="store_true", help="without (e)")
    return parser.parse_args()


def main() -> None:
    given = arguments()
    rounds, neighbours = 2 if given.quick else 5, Neighbours()
    print(header())
    sizes, names = ((10**6,), ("ppi",)) if given.quick else ((10**6, 10**7), DATASETS)
    found = graphs(sizes, names)
    for threads in dict.fromkeys(map(int, given.threads.split(","))):
        with use_threads(threads):
            rate, table = machine_table(threads, rounds, quick=given.quick)
            product_table(found, rate, table, rounds)
    print("\nfloat32 products on one thread")
    for name, shape in GEMMS.items():
        print(f"{name:28}{gemm_rate(shape, rounds) / 1e9:8.1f} GFlop/s", flush=True)
    print(neighbours)
    if not given.no_profiles:
        profiles.print_tables(quick=given.quick)


if __name__ == "__main__":
    main()
