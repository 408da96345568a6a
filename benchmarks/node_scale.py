"""Node classification on graphs of up to a million nodes: seconds and memory, beside what was estimated.

    python benchmarks/node_scale.py [--nodes 100000 300000 1000000] [--select] [--json FILE]

A degree-corrected block model with 40 classes and ten edges per node, 128 dense features (the mean of the
class and noise), labels for one node in a hundred. Each size runs in a process of its own, so that the peak
is its own: that of its resident memory, less what it held before the fit, is set against what
`NodeClassifier.cost` says beforehand. Making the graph is neither timed nor counted. Last comes the exponent
that seconds grow by with nodes.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from common import Neighbours, header

import fastgrl as fg
from fastgrl.datasets import block_model
from fastgrl.estimate import format_bytes
from fastgrl.metrics import accuracy
from fastgrl.node_evaluation import known_only
from fastgrl.parallel import thread_count

SIZES = (100_000, 300_000, 1_000_000)
CLASSES, EDGES, FEATURES, LABELLED, NOISE = 40, 10, 128, 0.01, 3.0


def question(num_nodes: int) -> tuple[Any, Any]:
    """A dataset without words, and dense features of its nodes."""
    data = block_model(
        num_nodes,
        num_classes=CLASSES,
        mean_degree=2 * EDGES,
        mixing=0.4,
        num_features=CLASSES,
        words_per_node=0,
        train_per_class=max(1, round(LABELLED * num_nodes / CLASSES)),
        validation_per_class=max(1, round(LABELLED * num_nodes / CLASSES / 2)),
    )
    rng = np.random.default_rng(0)
    X = rng.standard_normal((num_nodes, FEATURES), dtype=np.float32)
    X *= NOISE
    means = rng.standard_normal((CLASSES, FEATURES), dtype=np.float32)
    for first in range(0, num_nodes, 1 << 16):  # no second matrix of this size
        rows = slice(first, first + (1 << 16))
        X[rows] += means[data.y[rows]]
    return data, X


def status(field: str) -> int:
    """A field of /proc/self/status in bytes: VmHWM is the most that was resident, VmRSS what is now."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(1024 * int(line.split()[1]) for line in lines if line.startswith(f"{field}:"))


def forget_peak() -> None:
    """Let VmHWM begin anew from what is resident now."""
    Path("/proc/self/clear_refs").write_text("5")


def measure(num_nodes: int, *, select: bool) -> dict[str, Any]:
    data, X = question(num_nodes)
    model = fg.NodeClassifier(select=select)
    held = (data.graph.node_ids[data.validation], data.y[data.validation]) if select else None
    y = known_only(data.y, data.train)
    cost = model.cost(data.graph, features=X, classes=CLASSES)
    forget_peak()
    before, begin = status("VmRSS"), time.perf_counter()
    model.fit(data.graph, y, features=X, validation=held)
    fitted = time.perf_counter()
    predicted = model.predict()
    end, peak = time.perf_counter(), status("VmHWM")
    # The estimate counts the graph and the features, which were there before the fit.
    given = data.graph.indptr.nbytes + data.graph.indices.nbytes + X.nbytes
    return {
        "nodes": num_nodes,
        "edges": data.graph.num_edges,
        "accuracy": accuracy(data.y[data.test], predicted[data.test]),
        "seconds": end - begin,
        "fit_seconds": fitted - begin,
        "estimate_seconds": cost.seconds(thread_count()),
        "bytes": peak - before + given,
        "estimate_bytes": cost.peak_bytes,
    }


def in_a_process(num_nodes: int, *, select: bool) -> dict[str, Any]:
    with tempfile.NamedTemporaryFile("r") as out:
        more = ["--select"] * select
        command = [sys.executable, __file__, "--nodes", str(num_nodes), "--out", out.name, *more]
        subprocess.run(command, check=True)
        found: dict[str, Any] = json.loads(Path(out.name).read_text())
        return found


def exponent(rows: list[dict[str, Any]], name: str) -> float:
    """The slope of log value against log nodes."""
    nodes, values = (np.log([row[key] for row in rows]) for key in ("nodes", name))
    return float(np.polyfit(nodes, values, 1)[0])


def print_row(row: dict[str, Any]) -> None:
    spent, reckoned = row["seconds"], row["estimate_seconds"]
    times = f"{spent:10.1f}{reckoned:10.1f}{spent / reckoned:8.2f}"
    sizes = f"{format_bytes(row['bytes']):>12}{format_bytes(row['estimate_bytes']):>12}"
    ratio = f"{row['bytes'] / row['estimate_bytes']:8.2f}"
    print(f"{row['nodes']:>10,}{row['edges']:>12,}{row['accuracy']:10.1%}{times}{sizes}{ratio}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--nodes", type=int, nargs="+", default=SIZES)
    parser.add_argument("--select", action="store_true", help="with the whole search")
    parser.add_argument("--json", metavar="FILE", help="write the rows as a JSON list")
    parser.add_argument("--out", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.out:
        Path(given.out).write_text(json.dumps(measure(given.nodes[0], select=given.select)))
        return
    print(header())
    neighbours, rows = Neighbours(), []
    print(
        f"{CLASSES} classes, {FEATURES} features, {LABELLED:.0%} of the nodes labelled; "
        f"{thread_count()} threads"
    )
    columns = f"{'seconds':>10}{'estimate':>10}{'ratio':>8}{'memory':>12}{'estimate':>12}{'ratio':>8}"
    print(f"{'nodes':>10}{'edges':>12}{'accuracy':>10}{columns}")
    for num_nodes in given.nodes:
        rows.append(in_a_process(num_nodes, select=given.select))
        print_row(rows[-1])
    if len(rows) > 1:
        print(
            f"seconds grow as nodes to the power {exponent(rows, 'seconds'):.2f}, "
            f"memory to the power {exponent(rows, 'bytes'):.2f}"
        )
    print(neighbours)
    if given.json:
        Path(given.json).write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
