"""What loading a dataset costs beside reading the same files without any check, and what R-MAT needs.

    FASTGRL_DATA=… python benchmarks/loading.py [--quick]
    python benchmarks/loading.py --rmat 22

`load_dataset` reads every file, compares its SHA-256, scans the opcodes, unpickles with stand-ins for all
names, checks every index, and builds the graph, the features and the split. Beside it stands a plain
`pickle.load` of the same files, which only makes Python objects (for the link datasets: `numpy.load`).
CPU time is the mean over calls in a row, with what the garbage collector takes; the quickest call by the
clock is free of it, and suffers more from busy neighbours the longer it lasts. The aim is at most 3 times.
With --rmat the peak of resident memory while the graph is drawn is compared with the rows that remain.
"""

from __future__ import annotations

import argparse
import json
import pickle
import subprocess
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from common import Neighbours, header, race
from memory import peak_above_now

from fastgrl import datasets

NODES = ("cora", "citeseer", "pubmed")
LINKS = ("soc-facebook", "ca-AstroPh", "ca-HepTh", "ppi", "ogbl-ddi")
ALLOWED = 3.0


def plain(paths: list[Path]) -> Callable[[], list[Any]]:
    def load() -> list[Any]:
        found = []
        for path in paths:
            with path.open("rb") as stream:
                pickled = path.suffix != ".npy"
                found.append(pickle.load(stream, encoding="latin1") if pickled else np.load(stream))
        return found

    return load


def cpu_seconds(run: Callable[[], Any], calls: int) -> float:
    """CPU time of one call among `calls` in a row: what other processes take of the cores is not in it."""
    begin = time.process_time()
    for _ in range(calls):
        run()
    return (time.process_time() - begin) / calls


def print_table(rounds: int) -> None:
    print(f"{'':14}{'CPU time of a call':^35}   {'quickest call by the clock':^35}")
    columns = f"{'load_dataset':>14}{'plain':>12}{'ratio':>9}"
    print(f"{'dataset':14}{columns}   {columns}   plain is")
    neighbours = Neighbours()
    for name in NODES + LINKS:
        paths = [path for path in datasets.download(name) if path.suffix != ".index"]
        ours, theirs = lambda name=name: datasets.load_dataset(name, download=False), plain(paths)
        clock = race({"ours": ours, "plain": theirs}, rounds)
        calls = max(3, int(0.2 / clock["ours"].median))
        turns = [[cpu_seconds(run, calls) for run in (ours, theirs)] for _ in range(rounds)]
        pairs = [
            [min(times) for times in zip(*turns, strict=True)],
            [clock["ours"].best, clock["plain"].best],
        ]
        cells = "   ".join(f"{1000 * a:11.2f} ms{1000 * b:9.2f} ms{a / b:9.2f}" for a, b in pairs)
        over = name in NODES and any(a > ALLOWED * b for a, b in pairs)
        what = "pickle.load" if name in NODES else "numpy.load"
        print(f"{name:14}{cells}   {what}{f'; MORE THAN {ALLOWED:.0f} TIMES' * over}", flush=True)
    print(neighbours)


def measure_rmat(scale: int) -> dict[str, Any]:
    datasets.rmat(8)  # what the first call of all loads is no part of it
    begin = time.perf_counter()
    with peak_above_now() as found:
        graph = datasets.rmat(scale)
    rows = graph.indptr.nbytes + graph.indices.nbytes
    facts = {"rows": rows, "edges": graph.num_edges, "drawn": graph.num_edges + graph.repeats}
    return found | facts | {"seconds": time.perf_counter() - begin}


def print_rmat(scale: int) -> None:
    command = [sys.executable, __file__, "--measure", str(scale)]
    found = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    print(f"R-MAT, 2^{scale} nodes, {found['drawn']:,} edges drawn, {found['edges']:,} distinct")
    print(f"rows of the graph    {found['rows'] / 1e6:10,.1f} MB")
    print(f"peak while drawing   {found['bytes'] / 1e6:10,.1f} MB ({found['how']})")
    print(f"ratio                {found['bytes'] / found['rows']:10.2f}, in {found['seconds']:.1f} s")


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="fewer rounds")
    parser.add_argument("--rmat", type=int, metavar="SCALE", help="draw 2^SCALE nodes and 16 edges for each")
    parser.add_argument("--measure", type=int, help=argparse.SUPPRESS)
    return parser.parse_args()


def main() -> None:
    # The original pickles name a module that SciPy has moved.
    warnings.filterwarnings("ignore", category=DeprecationWarning)
    options = arguments()
    if options.measure is not None:
        print(json.dumps(measure_rmat(options.measure)))
        return
    print(header())
    if options.rmat is None:
        print_table(3 if options.quick else 15)
    else:
        print_rmat(options.rmat)


if __name__ == "__main__":
    main()
