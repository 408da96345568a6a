"""Node classification on R-MAT graphs of growing size: seconds and memory, and how they grow with edges.

    python benchmarks/node_scale.py [--edges 1e5,1e6,1e7] [--kinds words,none] [--select] [--json FILE]

About 24 draws of an edge per node; five classes, found by letting random seeds spread a few steps; one node
in a hundred labelled; six words per node of a hundred, some of them telling, or no features at all. Each size
runs in a process of its own, where the graph is made: that is neither timed nor counted. The peak is that of
resident memory above what was held before the fit, beside what `NodeClassifier.cost` says the fit takes. Last
come the exponents that seconds and memory grow by with edges.
"""

from __future__ import annotations

import argparse
import json
import math
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from common import Neighbours, header

import fastgrl as fg
from fastgrl.datasets import rmat
from fastgrl.estimate import format_bytes
from fastgrl.node_evaluation import known_only
from fastgrl.normalisations import transition
from fastgrl.parallel import thread_count

SIZES = "1e5,1e6,1e7"
KINDS = ("words", "none")
EDGE_FACTOR, CLASSES, COLUMNS, WORDS, TELLING, LABELLED, STEPS = 24, 5, 100, 6, 0.3, 0.01, 3


def classify_problem(num_edges: int, seed: int = 0) -> tuple[fg.Graph, Any, sp.csr_array]:
    """A graph of about so many edges, the class of every node, and sparse features of 100 columns."""
    scale = max(4, round(math.log2(num_edges / EDGE_FACTOR)))
    graph = rmat(scale, edge_factor=max(1, round(num_edges / 2**scale)), seed=seed)
    rng = np.random.Generator(np.random.Philox(seed))
    y = _spread(graph, rng.integers(0, CLASSES, graph.num_nodes))
    return graph, y, _words(rng, y)


def _spread(graph: fg.Graph, seeds: Any) -> Any:
    """The class that the surroundings of a node have more of than others' have."""
    H = np.zeros((len(seeds), CLASSES), np.float32)
    H[np.arange(len(seeds)), seeds] = 1
    T = transition(graph, dtype=np.float32)
    for _ in range(STEPS):
        H += T @ H
    H -= H.mean(axis=0)
    H /= H.std(axis=0)
    return H.argmax(axis=1)


def _words(rng: np.random.Generator, y: Any) -> sp.csr_array:
    share = COLUMNS // CLASSES
    words = rng.integers(0, COLUMNS, (len(y), WORDS), dtype=np.int32)
    own = rng.random(words.shape, dtype=np.float32) < TELLING
    np.copyto(words, y[:, None].astype(np.int32) * share + words % share, where=own)
    starts = np.arange(0, words.size + 1, WORDS)
    X = sp.csr_array((np.ones(words.size, np.float32), words.ravel(), starts), shape=(len(y), COLUMNS))
    X.sum_duplicates()
    return X


def status(field: str) -> int:
    """A field of /proc/self/status in bytes: VmHWM is the most that was resident, VmRSS what is now."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(1024 * int(line.split()[1]) for line in lines if line.startswith(f"{field}:"))


def forget_peak() -> None:
    """Let VmHWM begin anew from what is resident now."""
    Path("/proc/self/clear_refs").write_text("5")


def measure(
    num_edges: int, *, select: bool = False, kind: str = "words", seed: int = 0, threads: int | None = None
) -> dict[str, Any]:
    """Fit once in this process: seconds, bytes above what was there, and what was quoted."""
    graph, y, X = classify_problem(num_edges, seed)
    n, order = graph.num_nodes, np.random.default_rng(seed).permutation(graph.num_nodes)
    count = max(50, round(LABELLED * n))
    train, held, rest = np.split(order, [count, count + count // 2])
    given = X if kind == "words" else None
    del X
    model = fg.NodeClassifier(select=select, n_jobs=threads)
    cost = model.cost(graph, given, classes=CLASSES, labelled=count, validation=select)
    judged = (graph.node_ids[held], y[held]) if select else None
    known = known_only(y, train)
    forget_peak()
    before, begin, spent = status("VmRSS"), time.perf_counter(), time.process_time()
    model.fit(graph, known, features=given, validation=judged)
    end, cpu, peak = time.perf_counter(), time.process_time() - spent, status("VmHWM")
    return {
        "nodes": n,
        "edges": graph.num_edges,
        "kind": kind,
        "accuracy": float(np.mean(model.predict()[rest] == y[rest])),
        "seconds": end - begin,
        "cpu_seconds": cpu,
        "estimate_seconds": cost.seconds(threads or thread_count()),
        "bytes": peak - before,
        "estimate_bytes": cost.work_bytes,
        "peak_bytes": peak,
    }


def in_a_process(num_edges: int, *, select: bool, kind: str, threads: int | None) -> dict[str, Any]:
    with tempfile.NamedTemporaryFile("r") as out:
        more = ["--select"] * select + (["--threads", str(threads)] if threads else [])
        size = ["--edges", str(num_edges), "--kinds", kind, "--out", out.name]
        subprocess.run([sys.executable, __file__, *size, *more], check=True)
        found: dict[str, Any] = json.loads(Path(out.name).read_text())
        return found


def exponent(rows: list[dict[str, Any]], name: str) -> float:
    """The slope of log value against log edges."""
    edges, values = (np.log([row[key] for row in rows]) for key in ("edges", name))
    return float(np.polyfit(edges, values, 1)[0])


def print_row(row: dict[str, Any]) -> None:
    spent, reckoned = row["seconds"], row["estimate_seconds"]
    times = f"{spent:10.1f}{row['cpu_seconds']:10.1f}{spent / reckoned:8.2f}"
    sizes = f"{format_bytes(row['bytes']):>12}{format_bytes(row['estimate_bytes']):>12}"
    ratio = f"{row['bytes'] / row['estimate_bytes']:8.2f}"
    counts = f"{row['kind']:>6}{row['nodes']:>11,}{row['edges']:>13,}{row['accuracy']:10.1%}"
    print(f"{counts}{times}{sizes}{ratio}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--edges", default=SIZES, help="sizes, with commas")
    parser.add_argument("--kinds", default=",".join(KINDS), help="words (sparse features), none, or both")
    parser.add_argument("--select", action="store_true", help="with the whole search")
    parser.add_argument("--threads", type=int)
    parser.add_argument("--json", metavar="FILE", help="write the rows as a JSON list")
    parser.add_argument("--out", help=argparse.SUPPRESS)
    given = parser.parse_args()
    sizes, how = [round(float(size)) for size in given.edges.split(",")], {"select": given.select}
    if given.out:
        found = measure(sizes[0], kind=given.kinds, threads=given.threads, **how)
        Path(given.out).write_text(json.dumps(found))
        return
    print(header())
    neighbours, rows = Neighbours(), []
    print(
        f"{CLASSES} classes, {LABELLED:.0%} of the nodes labelled; {given.threads or thread_count()} threads"
    )
    columns = f"{'seconds':>10}{'CPU':>10}{'÷ est.':>8}{'memory':>12}{'estimate':>12}{'ratio':>8}"
    print(f"{'':>6}{'nodes':>11}{'edges':>13}{'accuracy':>10}{columns}")
    for kind in given.kinds.split(","):
        own = []
        for num_edges in sizes:
            own.append(in_a_process(num_edges, kind=kind, threads=given.threads, **how))
            print_row(own[-1])
        if len(own) > 1:
            growth = {name: exponent(own, name) for name in ("seconds", "cpu_seconds", "bytes")}
            print(
                f"{kind}: seconds grow as edges to the power {growth['seconds']:.2f} "
                f"(CPU {growth['cpu_seconds']:.2f}), memory {growth['bytes']:.2f}"
            )
        rows += own
    print(neighbours)
    if given.json:
        Path(given.json).write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
