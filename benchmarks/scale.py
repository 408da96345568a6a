"""Embed, save, load and recommend on a graph of a million nodes and ten million edges, with its memory.

    python benchmarks/scale.py [--scale 20] [--edge-factor 10]

An R-MAT graph (2^scale nodes). The fit runs in one process and the model is read in another; the peak of
each is that of its resident memory. That of the fit, less what the interpreter and its libraries take, is set
against what `fastgrl estimate` says beforehand.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from common import header

import fastgrl as fg
from fastgrl.datasets import rmat
from fastgrl.estimate import format_bytes

QUERIES, BEST = 1000, 10


def peak() -> int:
    return 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


class Clock:
    """Seconds by name, printed as they come."""

    def __init__(self) -> None:
        self.found: dict[str, Any] = {}
        self.last = time.perf_counter()

    def stop(self, name: str) -> None:
        now = time.perf_counter()
        self.found[name], self.last = now - self.last, now
        print(f"  {name:<12}{self.found[name]:8.1f} s   peak so far {format_bytes(peak())}", flush=True)


def fit(folder: str, scale: int, edge_factor: int) -> dict[str, Any]:
    links = fg.LinkPredictor(select=False)  # scikit-learn is loaded now
    clock, libraries = Clock(), peak()
    graph = rmat(scale, edge_factor=edge_factor, seed=0)
    clock.stop("graph")
    cost = links.cost(graph)
    clock.stop("estimate")
    links.fit(graph)
    clock.stop("fit")
    reached = peak()
    links.save(folder)
    clock.stop("save")
    return clock.found | {
        "nodes": graph.num_nodes,
        "edges": graph.num_edges,
        "estimate_bytes": cost.peak_bytes,
        "estimate_seconds": cost.seconds(2),
        "libraries_bytes": libraries,
        "peak_bytes": reached,
        "ratio": (reached - libraries) / cost.peak_bytes,
        "validation": links.validation_,
    }


def recommend(folder: str) -> dict[str, Any]:
    clock = Clock()
    links = fg.load(folder)
    clock.stop("load")
    found = links.recommend(links.node_ids_[:QUERIES], k=BEST)
    clock.stop("recommend")
    return clock.found | {"links": len(found), "reading_peak_bytes": peak()}


def in_a_process(*arguments: str) -> dict[str, Any]:
    with tempfile.NamedTemporaryFile("r") as out:
        subprocess.run([sys.executable, __file__, *arguments, "--out", out.name], check=True)
        found: dict[str, Any] = json.loads(Path(out.name).read_text())
        return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--scale", type=int, default=20)
    parser.add_argument("--edge-factor", type=int, default=10)
    parser.add_argument("--folder", help=argparse.SUPPRESS)
    parser.add_argument("--stage", help=argparse.SUPPRESS)
    parser.add_argument("--out", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.stage:
        part = (
            fit(given.folder, given.scale, given.edge_factor)
            if given.stage == "fit"
            else recommend(given.folder)
        )
        Path(given.out).write_text(json.dumps(part))
        return
    print(header())
    with tempfile.TemporaryDirectory() as folder:
        size = ["--scale", str(given.scale), "--edge-factor", str(given.edge_factor)]
        model = str(Path(folder) / "model")
        found = in_a_process("--stage", "fit", "--folder", model, *size)
        found |= in_a_process("--stage", "recommend", "--folder", model)
    print(f"{found['nodes']:,} nodes, {found['edges']:,} edges; validation {found['validation']}")
    before, wanted = format_bytes(found["libraries_bytes"]), format_bytes(found["estimate_bytes"])
    print(f"peak of the fit {format_bytes(found['peak_bytes'])}, {before} of it before the graph")
    print(f"estimate {wanted}: the rest is {found['ratio']:.2f} of it")
    print(f"estimated {found['estimate_seconds']:.0f} s, took {found['fit']:.0f} s")
    print(
        f"{found['links']:,} links for {QUERIES} nodes; that process peaked at "
        f"{format_bytes(found['reading_peak_bytes'])}"
    )


if __name__ == "__main__":
    main()
