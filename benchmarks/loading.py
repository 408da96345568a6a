"""What loading a dataset costs beside reading the same files without any check, and what R-MAT needs.

    FASTGRL_DATA=… python benchmarks/loading.py [--quick]
    python benchmarks/loading.py --rmat 22

`load_dataset` reads every file, compares its SHA-256, scans the opcodes, unpickles with stand-ins for all
names, checks every index, and builds the graph, the features and the split. Beside it stands a plain
`pickle.load` of the same files, which only makes Python objects (for the link datasets: `numpy.load`).
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


def print_table(rounds: int) -> None:
    print(
        f"{'dataset':14}{'load_dataset':>14}{'plain load':>12}{'ratio':>8}   of pickle.load, or of numpy.load"
    )
    neighbours = Neighbours()
    for name in NODES + LINKS:
        paths = [path for path in datasets.download(name) if path.suffix != ".index"]
        contenders: dict[str, Callable[[], Any]] = {
            "ours": lambda name=name: datasets.load_dataset(name, download=False),
            "plain": plain(paths),
        }
        times = race(contenders, rounds)
        ratio = times["ours"].best / times["plain"].best
        verdict = "pickle.load" if name in NODES else "numpy.load"
        verdict += f", MORE THAN {ALLOWED:.0f} TIMES" if name in NODES and ratio > ALLOWED else ""
        ours, theirs = (f"{1000 * times[key].best:.2f} ms" for key in ("ours", "plain"))
        print(f"{name:14}{ours:>14}{theirs:>12}{ratio:8.2f}   {verdict}", flush=True)
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
