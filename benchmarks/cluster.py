"""What a cluster costs on one machine: two workers beside two threads, and the bytes that a product moves.

    python benchmarks/cluster.py [--quick] [--edges 1e6,1e7] [--account]

R-MAT graphs, written as Parquet and loaded by the workers. A rank-32 factorisation of the degree-walk matrix,
16 columns at a time, four rounds, of the same graph in the same order of nodes: in one process with two
threads, and on a local cluster of two workers with one thread each, for several numbers of blocks. Results
are compared bit for bit before anything is timed.

Bytes: a product with b columns must bring to every worker what the others hold of X, (W − 1) n b 4 bytes for
all W workers together; beside it what workers have really sent each other. `--account` measures the rest of
the account in docs/cluster.md instead: seconds of a product, and the most that a worker has held.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from cluster_account import Job, Machine
from common import Neighbours, header, race

import fastgrl as fg
from fastgrl.datasets import rmat
from fastgrl.distributed import Cluster, connected
from fastgrl.distributed.dask_engine import give_back_memory
from fastgrl.distributed.graphs import DistributedGraph
from fastgrl.distributed.loading import load_graph
from fastgrl.walks import degree_walk

WORKERS, RANK, COLUMNS, ROUNDS = 2, 32, 16, 4
BLOCKS = (2, 4, 8)
FILES, EDGE_FACTOR = 4, 16


def factorise(graph: Any) -> fg.SVD:
    return fg.fsvd(degree_walk(graph), RANK, block_size=COLUMNS, n_iter=ROUNDS)


def on_workers(graph: DistributedGraph) -> fg.SVD:
    """Until all that is returned is there."""
    svd = factorise(graph)
    graph.cluster.gather([size for block in (svd.U, svd.Vt.T) for size in block.each(len)])
    return svd


def written(graph: fg.Graph, folder: Path) -> str:
    folder.mkdir()
    table = pd.DataFrame(graph.edge_codes(), columns=["source", "target"])
    for number, some in enumerate(np.array_split(np.arange(len(table)), FILES)):
        table.iloc[some].to_parquet(folder / f"{number}.parquet")
    return str(folder)


def bytes_sent() -> int:
    """What workers have sent each other so far."""
    from distributed import get_client

    sent = get_client().run(lambda dask_worker: dask_worker.transfer_outgoing_bytes_total)
    return sum(sent.values())


def moved_by_a_product(graph: DistributedGraph, times: int = 4) -> float:
    """Bytes that workers send each other for A X with 16 columns, X being new each time."""
    A, cluster = fg.Matrix(graph.csr), graph.cluster
    found = []
    for number in range(times):
        X = cluster.seam.random(graph.num_nodes, COLUMNS, np.float32, 0, number)
        cluster.gather(X.each(len))
        before = bytes_sent()
        cluster.gather((A @ X).each(len))
        found.append(bytes_sent() - before)
    return float(np.median(found))


def table(edges: float, cluster: Cluster, folder: Path, rounds: int) -> None:
    scale = int(np.ceil(np.log2(edges / EDGE_FACTOR)))
    drawn = rmat(scale, edge_factor=EDGE_FACTOR)
    source = written(drawn, folder / f"{edges:g}")
    isolated = drawn.degrees == 0
    numbers = np.cumsum(~isolated) - 1
    ours = fg.Graph.from_codes(*numbers[drawn.edge_codes()].T, num_nodes=int((~isolated).sum()))
    size = f"{ours.num_nodes:,} nodes, {ours.num_edges:,} edges"
    print(f"\n{size}; rank {RANK}, {COLUMNS} columns, {ROUNDS} rounds")
    graphs = {blocks: load_graph(replace(cluster, blocks=blocks), source) for blocks in BLOCKS}
    alone = factorise(ours)
    for graph in graphs.values():
        there, host = factorise(graph), graph.cluster.seam.host
        assert all(np.array_equal(a, host(b)) for a, b in zip(alone, there, strict=True)), "bits differ"
    contenders: dict[str, Any] = {"one process, 2 threads": partial(factorise, ours)}
    contenders |= {
        f"2 workers, {blocks} blocks": partial(on_workers, graph) for blocks, graph in graphs.items()
    }
    neighbours = Neighbours()
    timings = race(contenders, rounds, seconds=0)
    base = timings["one process, 2 threads"].best
    print(f"{'':26}{'best s':>9}{'med/best':>10}{'ratio':>8}{'moved / n b 4':>15}")
    for name, timing in timings.items():
        blocks = next((b for b in BLOCKS if name.endswith(f" {b} blocks")), None)
        moved = "" if blocks is None else f"{share_moved(graphs[blocks]):15.2f}"
        print(f"{name:26}{timing.best:9.2f}{timing.noise:10.2f}{timing.best / base:8.2f}{moved}", flush=True)
    print(f"{neighbours}, our own workers among them")


def peaks_forgotten() -> None:
    """Give back what allocators keep, and count the most that is held from here on."""
    from distributed import get_client

    def forget() -> None:
        give_back_memory()
        Path("/proc/self/clear_refs").write_text("5")

    get_client().run(forget)


def peak_bytes() -> int:
    """The most that any worker has held since then."""
    from distributed import get_client

    def peak() -> int:
        lines = Path("/proc/self/status").read_text().splitlines()
        return 1024 * int(next(line.split()[1] for line in lines if line.startswith("VmHWM")))

    return int(max(get_client().run(peak).values()))


def account(edges: float, folder: Path, blocks: int = 4) -> None:
    """Seconds of a product and memory of a worker, beside what the account says."""
    scale = int(np.ceil(np.log2(edges / EDGE_FACTOR)))
    source = written(rmat(scale, edge_factor=EDGE_FACTOR), folder / f"{edges:g}")
    with connected(f"local:{WORKERS}", blocks=blocks) as cluster:
        cluster.gather(cluster.seam.random(4096, 1, np.float32, 0, 0).each(len))  # all modules are loaded
        peaks_forgotten()
        before = peak_bytes()
        graph = load_graph(cluster, source)
        loading = peak_bytes() - before
        A, seconds = fg.Matrix(graph.csr), []
        for number in range(5):
            X = cluster.seam.random(graph.num_nodes, COLUMNS, np.float32, 0, number)
            cluster.gather(X.each(len))
            begin = time.perf_counter()
            cluster.gather((A @ X).each(len))
            seconds.append(time.perf_counter() - begin)
        del X
        peaks_forgotten()
        factorise(graph)
        held = peak_bytes() - before
    job = Job(graph.num_nodes, graph.num_edges, WORKERS, blocks, COLUMNS, rounds=ROUNDS)
    arithmetic = 2 * job.edges / WORKERS * Machine().row_seconds
    size = f"{job.nodes:,} nodes, {job.edges:,} edges; {WORKERS} workers, {blocks} blocks"
    print(f"\n{size}, {COLUMNS} columns, {ROUNDS} rounds")
    print(f"{'':34}{'measured':>10}{'account':>10}")
    print(f"{'a product, s':34}{min(seconds):10.2f}{arithmetic:10.2f}")
    print(f"{'held while multiplying, MB':34}{held / 1e6:10.0f}{job.held / 1e6:10.0f}")
    print(f"{'held while loading, MB':34}{loading / 1e6:10.0f}{job.loading / 1e6:10.0f}")


def share_moved(graph: DistributedGraph) -> float:
    return moved_by_a_product(graph) / ((WORKERS - 1) * graph.num_nodes * COLUMNS * 4)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--edges", default="1e6,1e7", help="sizes, with commas between")
    parser.add_argument("--account", action="store_true", help="seconds and memory beside the account")
    parser.add_argument("--quick", action="store_true", help="10⁵ edges, one round")
    given = parser.parse_args()
    sizes = [1e5] if given.quick else [float(size) for size in given.edges.split(",")]
    print(header())
    if given.account:
        with tempfile.TemporaryDirectory() as folder:
            for size in sizes:
                account(size, Path(folder))
        return
    with tempfile.TemporaryDirectory() as folder, connected(f"local:{WORKERS}") as cluster:
        for size in sizes:
            table(size, cluster, Path(folder), 1 if given.quick else 3)


if __name__ == "__main__":
    main()
