"""How time and memory grow with the graph: from 10⁵ to 10⁸ edges on one machine, and the fitted exponents.

    python benchmarks/growth.py [--quick] [--edges 1e5,3e5,1e6,3e6,1e7,3e7,1e8]
        [--designs degree-walk,log-diffusion,classify] [--max-memory 10GB]
        [--cache FOLDER] [--out FILE.jsonl] [--plot FILE.png]

`embed` at rank 32 with the designs degree-walk and log-diffusion, on R-MAT graphs of 20 to 40 edges per node;
log-diffusion is told `--max-memory`, which the kept entries of a row follow. `classify` is the question of
node_scale.py: an R-MAT graph too, five classes, sparse features, one node in a hundred labelled.

Each fit runs in a process of its own, which has fitted a tiny graph before, so that no imports are timed.
The graph lies in `--cache` and is opened there before the clock starts; classify makes its own, likewise
uncounted. Seconds are those of the fit, best of up to three; CPU seconds those of all threads in it; memory
is the most that was resident in the process, by the kernel's count. The exponent is the slope of log seconds
over log edges, by least squares.
With `--out`, a size that is in the file already is not run again, so long runs can be made one by one.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import math
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import node_scale
import numpy as np
from common import Neighbours, header, run_child
from growth_plot import draw
from large_graphs import make_rmat, open_graph

import fastgrl as fg
from fastgrl.datasets import rmat
from fastgrl.estimate import format_bytes, parse_bytes

SIZES = "1e5,3e5,1e6,3e6,1e7,3e7,1e8"
QUICK = "1e5,3e5,1e6"
RANK, EDGES_PER_NODE = 32, 24
ROUNDS, ENOUGH_SECONDS = 3, 20.0


@dataclass(frozen=True)
class Fit:
    """One design on one graph: the figures of its best run, and the most memory of any."""

    design: str
    asked: int
    edges: int
    nodes: int
    seconds: float
    cpu_seconds: float
    process_seconds: float
    peak_bytes: int
    runs: int
    note: str


# In the process of a fit.


def embed(folder: Path, design: str, max_memory: int | None) -> dict[str, Any]:
    model = fg.LinkPredictor(design=design, n_components=RANK, select=False, max_memory=max_memory)
    warm = rmat(8, edge_factor=8)
    fg.LinkPredictor(design=design, n_components=RANK, select=False).fit(warm).left_.sum()
    graph = open_graph(folder)
    figures = timed(lambda: model.fit(graph).left_)
    kept = f"{model.chosen_['keep']} kept per row" if "keep" in model.chosen_ else ""
    peak = node_scale.status("VmHWM")
    return {"edges": graph.num_edges, "nodes": graph.num_nodes, "peak_bytes": peak, "note": kept, **figures}


def timed(run: Callable[[], Any]) -> dict[str, float]:
    begin, cpu = time.perf_counter(), time.process_time()
    run()
    return {"seconds": time.perf_counter() - begin, "cpu_seconds": time.process_time() - cpu}


def classify(edges: int) -> dict[str, Any]:
    node_scale.measure(5000)
    found = node_scale.measure(edges)
    fields = ("edges", "nodes", "seconds", "cpu_seconds", "peak_bytes")
    return {name: found[name] for name in fields} | {"note": f"{found['accuracy']:.1%} right"}


DESIGNS = ("degree-walk", "log-diffusion", "classify")


def stage(given: argparse.Namespace) -> dict[str, Any]:
    if given.stage == "make":
        make_rmat(given.folder, given.size, per_node=EDGES_PER_NODE)
        return {}
    if given.stage == "classify":
        return classify(given.size)
    return embed(given.folder, given.stage, given.limit)


# In the process that runs them.


def measure(design: str, asked: int, cache: Path, max_memory: int) -> Fit:
    limit = ["--limit", str(max_memory)] if design == "log-diffusion" else []
    folder = cache / f"rmat-{asked}"
    if design != "classify" and not folder.exists():
        in_a_process("--stage", "make", "--folder", str(folder), "--size", str(asked))
    runs: list[dict[str, Any]] = []
    while len(runs) < ROUNDS and (not runs or sum(run["seconds"] for run in runs) < ENOUGH_SECONDS):
        place = ["--folder", str(folder), "--size", str(asked)]
        runs.append(in_a_process("--stage", design, *place, *limit))
    best = min(runs, key=lambda run: run["seconds"])
    peak = max(run["peak_bytes"] for run in runs)
    return Fit(**best | {"design": design, "asked": asked, "peak_bytes": peak, "runs": len(runs)})


def in_a_process(*arguments: str) -> dict[str, Any]:
    child = run_child([sys.executable, __file__, *arguments])
    if child.status:
        sys.exit(f"{' '.join(arguments)}: exit code {child.status}\n{child.errors}")
    return {"process_seconds": child.seconds, **json.loads(child.text.splitlines()[-1])}


def exponent(fits: Iterable[Fit], field: str = "seconds") -> float:
    """The slope of log seconds over log edges; NaN where a size is missing."""
    points = np.log([(fit.edges, getattr(fit, field)) for fit in fits])
    if len(points) < 2 or not np.isfinite(points).all():
        return math.nan
    return float(np.polyfit(*points.T, 1)[0])


def known(path: Path | None) -> dict[tuple[str, int], Fit]:
    if path is None or not path.exists():
        return {}
    fits = [Fit(**json.loads(line)) for line in path.read_text().splitlines()]
    return {(fit.design, fit.asked): fit for fit in fits}


def remember(fit: Fit, path: Path | None) -> None:
    if path is not None:
        with path.open("a") as file:
            file.write(json.dumps(dataclasses.asdict(fit)) + "\n")


def table(design: str, sizes: list[int], cache: Path, given: argparse.Namespace) -> list[Fit]:
    print(f"\n{design}, rank {RANK}" if design != "classify" else f"\n{design}")
    columns = f"{'seconds':>10}{'CPU':>10}{'process':>10}{'memory':>12}{'ns / edge':>11}{'runs':>6}"
    print(f"{'edges':>13}{'nodes':>12}{columns}")
    before, fits = known(given.out), []
    for size in sizes:
        fit = before.get((design, size))
        if fit is None:
            remember(fit := measure(design, size, cache, given.max_memory), given.out)
        times = f"{fit.seconds:10.3f}{fit.cpu_seconds:10.3f}{fit.process_seconds:10.2f}"
        cost = f"{format_bytes(fit.peak_bytes):>12}{1e9 * fit.seconds / fit.edges:11.0f}{fit.runs:6}"
        print(f"{fit.edges:13,}{fit.nodes:12,}{times}{cost}  {fit.note}", flush=True)
        fits.append(fit)
    print(exponents(fits))
    return fits


def exponents(fits: list[Fit]) -> str:
    """Over all sizes, and over the larger ones, where nothing that is paid once flatters it."""
    spans = {fits[0].asked: fits} | {1_000_000: [fit for fit in fits if fit.asked >= 1_000_000]}
    texts = [
        f"{exponent(span):.2f} (CPU seconds {exponent(span, 'cpu_seconds'):.2f}) from {span[0].edges:,} edges"
        for span in spans.values()
        if len(span) > 1
    ]
    if not texts:
        return "one size has no exponent"
    return f"seconds grow as edges to the power {', '.join(texts)} to {fits[-1].edges:,}"


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--edges", help="sizes, with commas between")
    parser.add_argument("--designs", default=",".join(DESIGNS))
    parser.add_argument("--max-memory", type=parse_bytes, default=parse_bytes("10GB"))
    parser.add_argument("--cache", type=Path, help="where the graphs are kept (else nowhere)")
    parser.add_argument("--out", type=Path, help="append a line of JSON for every fit")
    parser.add_argument("--plot", type=Path, help="draw time and memory over edges")
    parser.add_argument("--quick", action="store_true", help="up to a million edges")
    parser.add_argument("--stage", help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--size", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--limit", type=int, help=argparse.SUPPRESS)
    return parser.parse_args()


def main() -> None:
    given = arguments()
    if given.stage:
        print(json.dumps(stage(given)))
        return
    print(header())
    sizes = [round(float(size)) for size in (given.edges or (QUICK if given.quick else SIZES)).split(",")]
    neighbours = Neighbours()
    with tempfile.TemporaryDirectory() as scratch:
        cache = given.cache or Path(scratch)
        cache.mkdir(parents=True, exist_ok=True)
        tables = {name: table(name, sizes, cache, given) for name in given.designs.split(",")}
    print(f"\nlog-diffusion within {format_bytes(given.max_memory)}; {neighbours}")
    if given.plot:
        draw(tables, {name: exponent(fits) for name, fits in tables.items()}, given.plot)


if __name__ == "__main__":
    main()
