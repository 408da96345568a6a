"""How much memory the SVD of an implicit matrix takes above the graph itself: the paper's example.

    python benchmarks/memory.py [--quick]

100 000 nodes of average degree 100, the walk matrix 5 T + 4 T² + … + T⁵ - 0.02 (11' - A), rank 32, float32,
each method at its defaults and in a process of its own. The peak is that of the resident memory during
`fsvd`, less what was resident just before, with the graph and its transpose (the same arrays) in place.
The answer itself, U and V, is part of it, and so are the buffers that a process's first call to BLAS makes.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import gc
import json
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from common import chung_lu, header, inverse_degrees

import fastgrl as fg

RANK, WINDOW, NON_EDGE, DEGREE = 32, 5, 0.02, 100
METHODS = ("krylov", "subspace")
_STATUS, _CLEAR = Path("/proc/self/status"), Path("/proc/self/clear_refs")


def walk_operator(num_nodes: int) -> fg.Operator:
    """Both leaves read one pattern; the transpose is found to be the same and kept."""
    graph = chung_lu(num_nodes, num_nodes * DEGREE // 2, seed=0)
    A = fg.Matrix(graph)
    T = fg.Matrix(A.a, row_scale=inverse_degrees(graph), name="T")
    assert A.a.transposed is A.a
    return fg.Polynomial(T, range(WINDOW, 0, -1)) - NON_EDGE * (fg.Ones(A.shape) - A)


def status(field: str) -> int:
    """A field of /proc/self/status, in bytes."""
    lines = _STATUS.read_text().splitlines()
    return next(1024 * int(line.split()[1]) for line in lines if line.startswith(f"{field}:"))


def give_back_free_memory() -> None:
    """So that `fsvd` cannot run in what building the graph has left over."""
    gc.collect()
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)


@contextlib.contextmanager
def peak_above_now() -> Iterator[dict[str, Any]]:
    """How far resident memory rises in the body: by the kernel's mark, or by looking every 2 ms."""
    give_back_free_memory()
    found: dict[str, Any] = {"how": "kernel's high-water mark"}
    try:
        _CLEAR.write_text("5")
    except OSError:
        found["how"] = "sampled every 2 ms"
        with _sampled(found):
            yield found
        return
    before = status("VmRSS")
    yield found
    found["bytes"] = status("VmHWM") - before


@contextlib.contextmanager
def _sampled(found: dict[str, Any]) -> Iterator[None]:
    before, done = status("VmRSS"), threading.Event()
    seen = [before]

    def look() -> None:
        while not done.wait(0.002):
            seen.append(status("VmRSS"))

    thread = threading.Thread(target=look)
    thread.start()
    yield
    done.set()
    thread.join()
    found["bytes"] = max(seen) - before


def measure(method: Any, num_nodes: int) -> dict[str, Any]:
    operator = walk_operator(num_nodes)
    begin = time.perf_counter()
    with peak_above_now() as found:
        svd = fg.fsvd(operator, RANK, method=method)
    return found | {"seconds": time.perf_counter() - begin, "rounds": svd.rounds, "dtype": str(svd.s.dtype)}


def in_fresh_process(method: str, num_nodes: int) -> dict[str, Any]:
    command = [sys.executable, __file__, "--measure", method, "--nodes", str(num_nodes)]
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--nodes", type=int, default=100_000, help="number of nodes (default 100 000)")
    parser.add_argument("--quick", action="store_true", help="10 000 nodes")
    parser.add_argument("--measure", choices=METHODS, help=argparse.SUPPRESS)
    return parser.parse_args()


def print_table(num_nodes: int) -> None:
    print(f"{num_nodes:,} nodes, {num_nodes * DEGREE:,} stored, C = {WINDOW}, rank {RANK}, MB = 10⁶ bytes")
    for method in METHODS:
        found = in_fresh_process(method, num_nodes)
        details = f"{found['rounds']} rounds in {found['seconds']:.2f} s, {found['dtype']}, {found['how']}"
        print(f"fsvd, {method:20}{found['bytes'] / 1e6:12,.1f} MB   {details}", flush=True)
    print(f"{'U and V alone':26}{8 * num_nodes * RANK / 1e6:12,.1f} MB")
    print(f"{'the matrix, if formed':26}{4 * num_nodes**2 / 1e6:12,.1f} MB   4 n² bytes")
    print("for 100 000 nodes the paper says about 40 MB, beside 40 GB for the matrix")


def main() -> None:
    options = arguments()
    num_nodes = 10_000 if options.quick else options.nodes
    if options.measure:
        print(json.dumps(measure(options.measure, num_nodes)))
    else:
        print(header())
        print_table(num_nodes)


if __name__ == "__main__":
    main()
