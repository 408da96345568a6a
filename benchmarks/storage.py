"""What the checks of a load cost: checksum, finiteness, ids; from memory, from disk, and as a whole process.

    python benchmarks/storage.py [--quick] [--folder DIR]

Two models: the size of ca-AstroPh (18 000 nodes with text ids, 400 000 stored edges, two factors of 400
columns) and one of 1 GB (a million nodes numbered by integers, two factors of 128 columns). A share is what a
load would save without the checksum, as a part of the load: of CPU time, which other processes disturb less,
and of the quickest load by the clock. "Cold" drops the file from the page cache of this machine before each
load; on a virtual machine the host may still have it. SHA-256 is what `verify_model` adds to a load.
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from common import Neighbours, chung_lu, header

from fastgrl import storage, stored_ids, stored_tensors
from fastgrl.graph import Graph

PROCESS = (
    "import fastgrl as fg; from fastgrl.storage import load_model; load_model({folder!r}, check={check})"
)


def astroph_size() -> storage.Stored:
    n, rng = 18_000, np.random.default_rng(0)
    arrays = {name: rng.standard_normal((n, 400)).astype(np.float32) for name in ("left", "right")}
    return _model(arrays, chung_lu(n, 200_000, seed=0), np.array([f"author-{i}" for i in range(n)], object))


def one_gigabyte() -> storage.Stored:
    n, rng = 1_000_000, np.random.default_rng(0)
    arrays = {name: rng.standard_normal((n, 128), np.float32) for name in ("left", "right")}
    return _model(arrays, chung_lu(n, 1_000_000, seed=0), np.arange(n) * 3)


def _model(arrays: dict[str, Any], graph: Any, node_ids: Any) -> storage.Stored:
    rows = {"indptr": graph.indptr.astype(np.int64), "indices": graph.indices.astype(np.int32)}
    return storage.Stored("benchmark", {"rank": 1}, {}, arrays | rows, node_ids)


def load_with_graph(folder: str) -> Graph:
    """The load and what a predictor makes of it: the checked graph and the index of its ids."""
    found = storage.load_model(folder)
    graph = Graph(found.arrays["indptr"], found.arrays["indices"], None, found.node_ids)
    graph.index_of(found.node_ids[:1])
    return graph


@contextmanager
def without_checksum() -> Iterator[None]:
    """Everything else of a load, finiteness too."""
    sums, check = stored_tensors._column_sums, storage._check_data
    nothing = np.zeros(0, np.uint64)
    stored_tensors._column_sums = lambda _block: nothing
    storage._check_data = lambda index, data: stored_tensors.sums_and_unsound(data, index.tensors) and None
    try:
        yield
    finally:
        stored_tensors._column_sums, storage._check_data = sums, check


def omitting_checksum(run: Callable[[], Any]) -> Callable[[], Any]:
    def other() -> Any:
        with without_checksum():
            return run()

    return other


def drop_from_cache(folder: str) -> None:
    for path in Path(folder).iterdir():
        descriptor = os.open(path, os.O_RDONLY)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(descriptor)


class Cost(NamedTuple):
    """Seconds of the cheapest call: of all CPUs together, and by the clock."""

    cpu: float
    clock: float


def cost_of(run: Callable[[], Any]) -> Cost:
    before, begin = cpu_seconds(), time.perf_counter()
    run()
    return Cost(cpu_seconds() - before, time.perf_counter() - begin)


def cpu_seconds() -> float:
    """Of this process and of its children that have ended."""
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + children.ru_utime + children.ru_stime


def compare(
    contenders: dict[str, Callable[[], Any]], rounds: int, *, prepare: Callable[[], None]
) -> dict[str, Cost]:
    """The contenders in turn, forwards and backwards alternately."""
    costs: dict[str, list[Cost]] = {name: [] for name in contenders}
    for number in range(rounds):
        for name in list(contenders)[:: -1 if number % 2 else 1]:
            prepare()
            costs[name].append(cost_of(contenders[name]))
    return {name: Cost(*map(min, zip(*found, strict=True))) for name, found in costs.items()}


def process(folder: str, *, checksum: bool) -> Callable[[], Any]:
    """`import fastgrl` and the load, or the same with the work of the checksum left out."""
    load = "import fastgrl; from fastgrl import storage, stored_tensors as st; "
    less = (
        "n = st.np.zeros(0, 'u8'); st._column_sums = lambda b: n; "
        "storage._check_data = lambda i, d: st.sums_and_unsound(d, i.tensors); "
    )
    command = [sys.executable, "-c", f"{load}{'' if checksum else less}storage.load_model({folder!r})"]
    return lambda: subprocess.run(command, check=True)


def print_table(name: str, stored: storage.Stored, folder: str, rounds: int) -> None:
    begin = time.perf_counter()
    storage.save_model(stored, folder)
    saving = time.perf_counter() - begin
    size = sum(path.stat().st_size for path in Path(folder).iterdir())
    print(f"{name}: {size / 1e6:,.0f} MB, {len(stored.node_ids):,} ids; saved in {saving:.2f} s")
    print_parts(stored, folder, rounds)
    columns = f"{'checked':>12}{'no checksum':>14}{'share':>8}"
    print(f"  {'':42}{'CPU time':^34}   {'by the clock':^34}\n  {'load':42}{columns}   {columns}")
    loads = {
        "mapped": lambda: storage.load_model(folder),
        "mapped, with the graph made of it": lambda: load_with_graph(folder),
        "read into memory": lambda: storage.load_model(folder, mmap=False),
    }
    for label, run in loads.items():
        pair = {"all": run, "less": omitting_checksum(run)}
        print_share(label, compare(pair, 5 * rounds, prepare=lambda: None))
        print_share(f"{label}, cold", compare(pair, rounds, prepare=lambda: drop_from_cache(folder)))
    pair = {"all": process(folder, checksum=True), "less": process(folder, checksum=False)}
    print_share("as a process of its own", compare(pair, rounds, prepare=lambda: None))
    print(flush=True)


def print_parts(stored: storage.Stored, folder: str, rounds: int) -> None:
    index, data = storage._opened(Path(folder), mmap=True)
    kind, ids = stored_ids.pack_ids(stored.node_ids)
    parts = {
        "model.json, opening, mapping": lambda: storage._opened(Path(folder), mmap=True),
        "finiteness": omitting_checksum(lambda: stored_tensors.sums_and_unsound(data, index.tensors)),
        "checksum alone": lambda: stored_tensors.sums_of([data]),
        "checksum and finiteness": lambda: stored_tensors.sums_and_unsound(data, index.tensors),
        "ids": lambda: stored_ids.unpack_ids(kind, ids),
        "SHA-256 (not part of a load)": lambda: stored_tensors.sha256_of([data]),
    }
    for label, cost in compare(parts, 5 * rounds, prepare=lambda: None).items():
        print(f"  {label:42}{1000 * cost.cpu:9.2f} ms of CPU{1000 * cost.clock:9.2f} ms by the clock")


def print_share(label: str, found: dict[str, Cost]) -> None:
    pairs = zip(found["all"], found["less"], strict=True)
    cells = "   ".join(f"{1000 * a:9.2f} ms{1000 * b:11.2f} ms{100 * (1 - b / a):6.1f} %" for a, b in pairs)
    print(f"  {label:42}{cells}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="fewer rounds")
    parser.add_argument("--folder", help="where to put the models for the time being")
    options = parser.parse_args()
    print(header())
    neighbours = Neighbours()
    with tempfile.TemporaryDirectory(dir=options.folder) as here:
        for name, make in {"ca-AstroPh's size": astroph_size, "one gigabyte": one_gigabyte}.items():
            print_table(name, make(), f"{here}/{make.__name__}", 3 if options.quick else 9)
    print(neighbours)


if __name__ == "__main__":
    main()
