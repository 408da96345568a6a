"""A fit in a process of its own: what it was estimated to need, and the kernel's figure of what it took.

    python memory_probe.py '{"design": "walk", "num_nodes": 100000, "num_edges": 500000}'

Prints JSON: `estimated` and `measured` bytes above what the process held with the graph in place.
"""

from __future__ import annotations

import contextlib
import ctypes
import dataclasses
import gc
import hashlib
import json
import sys
import tempfile
from pathlib import Path

import numpy as np

import fastgrl as fg
from fastgrl.memory_plans import held_beside
from fastgrl.parallel import use_threads


def status(field):
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(1024 * int(line.split()[1]) for line in lines if line.startswith(f"{field}:"))


def random_graph(num_nodes, num_edges, *, weighted=False, directed=False):
    """Edges of a few popular nodes and many others."""
    rng = np.random.default_rng(0)
    ends = (num_nodes * rng.random((2, num_edges)) ** 2).astype(np.int64)
    ends = rng.permutation(num_nodes)[ends]
    weights = rng.integers(1, 9, num_edges).astype(float) if weighted else None
    return fg.Graph.from_codes(*ends, weights=weights, num_nodes=num_nodes, directed=directed)


def mapped(graph, folder):
    """The same graph with its arrays in files."""
    arrays = {}
    for name in ("indptr", "indices", "weights"):
        array = getattr(graph, name)
        if array is not None:
            array.tofile(Path(folder) / name)
            arrays[name] = np.memmap(Path(folder) / name, array.dtype, "r")
    return dataclasses.replace(graph, **arrays)


def give_back():
    gc.collect()
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)


def fingerprint(array):
    return hashlib.sha256(np.ascontiguousarray(array).tobytes()).hexdigest()


def main():
    case = json.loads(sys.argv[1])
    how = {name: case.get(name, False) for name in ("weighted", "directed")}
    share, on_disk, side = case.get("share"), case.get("mapped", False), case.get("side", "left_")
    options = {"select": False, "random_state": 0, "n_jobs": case.get("threads", 1)} | case.get("fit", {})
    with use_threads(1):  # whatever the first fit of a process loads is no part of what a fit needs
        fg.LinkPredictor(**options).fit(random_graph(300, 900, **how))
    graph = random_graph(case["num_nodes"], case["num_edges"], **how)
    with tempfile.TemporaryDirectory() as folder:
        if on_disk:
            graph = mapped(graph, folder)
        links = fg.LinkPredictor(**options)
        cost = links.cost(graph)
        give_back()
        held = held_beside(graph)
        plan = None
        if share is not None:
            limit = held + int(share * cost.peak_bytes)
            links.set_params(max_memory=limit)
            plan = links.plan(graph)
            cost = plan.cost
        Path("/proc/self/clear_refs").write_text("5")
        links.fit(graph)
        vectors = getattr(links, side)
        peak = status("VmHWM")
        print(
            json.dumps(
                {
                    "estimated": cost.peak_bytes,
                    "measured": peak - held,
                    "held": held,
                    "limit": None if plan is None else plan.limit - held,
                    "plan": None if plan is None else plan.words(),
                    "sha256": fingerprint(vectors) if case.get("fingerprint") else None,
                }
            )
        )


if __name__ == "__main__":
    main()
