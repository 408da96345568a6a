"""What `fastgrl estimate` says beforehand against what a fit takes: seconds and bytes, case by case.

    python benchmarks/estimates.py [--quick] [--threads 2] [--cpu] [--only TEXT]

The quote is made in one process, with its probe of a second, and the fit runs in a fresh one. Bytes are the
kernel's high-water mark of that process beyond what it held before it had the graph. `--cpu` compares CPU
seconds, in the probe as in the fit, for a machine that is busy with other things; take one thread then.
The last line says which share of the cases is within a factor of two, and within 20 %.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import re
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from common import DATASETS, header, run_child

import fastgrl as fg
from fastgrl import probes
from fastgrl.calibration import calibrate
from fastgrl.datasets import NodeDataset, rmat
from fastgrl.estimate import format_bytes

FACTOR, MARGIN = 2.0, 0.2
WALKS = ("walk", "degree-walk", "as-released")
RMAT = {"rmat 1e5": (13, 13), "rmat 1e6": (17, 8), "rmat 1e7": (20, 10)}


@dataclass(frozen=True)
class Case:
    """A graph, a design, and whether its settings are chosen."""

    graph: str
    design: str
    select: bool = False

    @property
    def name(self) -> str:
        return f"{self.graph}, {self.design}{', select' * self.select}"


QUICK = (
    Case("ppi", "degree-walk"),
    Case("ca-HepTh", "walk", select=True),
    Case("ca-HepTh", "log-diffusion"),
    Case("rmat 1e5", "log-diffusion"),
    Case("rmat 1e6", "degree-walk"),
    Case("cora", "co-ridge"),
    Case("cora", "co-ridge", select=True),
    Case("cora", "jkn"),
)
FULL = (
    *(Case(name, design) for name in DATASETS for design in (*WALKS, "log-diffusion")),
    *(Case(name, design, select=True) for name in DATASETS for design in ("walk", "log-diffusion")),
    *(Case("ppi", "shrunken", select=select) for select in (False, True)),
    *(Case(name, design) for name in RMAT for design in ("degree-walk", "log-diffusion")),
    *(Case(name, "degree-walk", select=True) for name in tuple(RMAT)[:2]),
    *(Case("rmat 1e5", "log-diffusion", select=True),),
    *(Case(name, "co-ridge", select=select) for name in ("cora", "pubmed") for select in (False, True)),
    *(Case(name, "jkn", select=select) for name in ("cora", "citeseer") for select in (False, True)),
    Case("cora", "jkn-text"),
)


@dataclass(frozen=True)
class Problem:
    """A graph with, for nodes, features, labels and validation nodes."""

    graph: Any
    X: Any = None
    y: Any = None
    validation: Any = None
    labelled: int = 0

    @classmethod
    def of(cls, name: str, folder: Path) -> Problem:
        if name in RMAT:
            return cls(_stored_rmat(name, folder))
        data = fg.load_dataset(name)
        if not isinstance(data, NodeDataset):
            return cls(data.graph)
        y = np.full(len(data.y), -1)
        for nodes in (data.train, data.validation):
            y[nodes] = data.y[nodes]
        return cls(data.graph, data.X, y, data.graph.node_ids[data.validation], len(data.train))

    def model(self, case: Case, threads: int) -> Any:
        kind = fg.LinkPredictor if self.y is None else fg.NodeClassifier
        return kind(design=case.design, select=case.select, n_jobs=threads)

    def cost(self, model: Any) -> Any:
        if self.y is None:
            return model.cost(self.graph)
        classes = len(np.unique(self.y[self.y >= 0]))
        return model.cost(self.graph, self.X, classes=classes, labelled=self.labelled)

    def fit(self, model: Any) -> None:
        if self.y is None:
            model.fit(self.graph)
        else:
            model.fit(self.graph, self.y, features=self.X, validation=self.validation)


def _stored_rmat(name: str, folder: Path) -> Any:
    """Drawn once and read afterwards: drawing takes more memory than some fits."""
    scale, factor = RMAT[name]
    file = folder / f"rmat{scale}.npz"
    if not file.exists():
        graph = rmat(scale, edge_factor=factor, seed=0)
        np.savez(file, indptr=graph.indptr, indices=graph.indices)
    with np.load(file) as arrays:
        return fg.Graph(arrays["indptr"], arrays["indices"], None, np.arange(2**scale))


def quote(case: Case, folder: Path, threads: int, cpu: bool) -> dict[str, float]:
    if cpu:
        probes.clock = time.process_time
    problem = Problem.of(case.graph, folder)
    cost = problem.cost(problem.model(case, threads))
    begin = time.perf_counter()
    rates = calibrate(problem.graph, cost, threads=threads)
    probe = time.perf_counter() - begin
    return {
        "seconds": cost.seconds(threads, rates),
        "usual": cost.seconds(threads),
        "bytes": cost.peak_bytes,
        "probe": probe,
    }


def measure(case: Case, folder: Path, threads: int, cpu: bool) -> dict[str, float]:
    fg.LinkPredictor(), fg.NodeClassifier()  # the libraries are loaded now
    before = _status("VmRSS")
    problem = Problem.of(case.graph, folder)
    model = problem.model(case, threads)
    _forget_the_past()
    clock = time.process_time if cpu else time.perf_counter
    begin = clock()
    problem.fit(model)
    return {"seconds": clock() - begin, "bytes": _status("VmHWM") - before}


def _status(field: str) -> int:
    """Bytes, from the kernel's own account of this process."""
    found = re.search(rf"{field}:\s+(\d+) kB", Path("/proc/self/status").read_text())
    assert found is not None
    return 1024 * int(found[1])


def _forget_the_past() -> None:
    """Give back what reading left behind, and begin the high-water mark anew."""
    ctypes.CDLL(None).malloc_trim(0)
    Path("/proc/self/clear_refs").write_text("5")


def in_a_process(stage: str, case: Case, folder: Path, given: argparse.Namespace) -> dict[str, float]:
    arguments = ["--stage", stage, "--case", json.dumps(asdict(case)), "--folder", str(folder)]
    arguments += ["--threads", str(given.threads), *(["--cpu"] if given.cpu else [])]
    child = run_child([sys.executable, __file__, *arguments])
    if child.status:
        raise SystemExit(f"{case.name}: {child.errors}")
    found: dict[str, float] = json.loads(child.text)
    return found


def row(case: Case, said: dict[str, float], took: dict[str, float]) -> tuple[str, float, float]:
    times, sizes = said["seconds"] / took["seconds"], said["bytes"] / max(took["bytes"], 1)
    usual = said["usual"] / took["seconds"]
    text = f"{case.name:<36}{said['seconds']:9.2f}{took['seconds']:9.2f}{times:7.2f}{usual:7.2f}"
    text += f"{format_bytes(said['bytes']):>10}{format_bytes(max(took['bytes'], 0)):>10}{sizes:7.2f}"
    return f"{text}{said['probe']:7.2f}", times, sizes


def table(given: argparse.Namespace, folder: Path) -> None:
    print(header())
    kind = "CPU s" if given.cpu else "s"
    print(f"{given.threads} thread(s); seconds are {kind}; ratios are what was said over what it took")
    print(
        f"{'':<36}{'said':>9}{'took':>9}{'ratio':>7}{'usual':>7}{'said':>10}{'took':>10}{'ratio':>7}{'probe':>7}"
    )
    times, sizes = [], []
    for case in QUICK if given.quick else FULL:
        if given.only and given.only not in case.name:
            continue
        said, took = (in_a_process(stage, case, folder, given) for stage in ("quote", "measure"))
        text, time_ratio, size_ratio = row(case, said, took)
        print(text, flush=True)
        times.append(max(time_ratio, 1 / time_ratio))
        sizes.append(abs(size_ratio - 1))
    near, tight = np.mean(np.array(times) <= FACTOR), np.mean(np.array(sizes) <= MARGIN)
    print(f"within a factor of {FACTOR:g}: {near:.0%} of times; within {MARGIN:.0%}: {tight:.0%} of bytes")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a few small cases, within a minute")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--cpu", action="store_true", help="compare CPU seconds, not those of the clock")
    parser.add_argument("--only", help="cases whose name has this in it")
    for hidden in ("--stage", "--case", "--folder"):
        parser.add_argument(hidden, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.stage:
        run = quote if given.stage == "quote" else measure
        case = Case(**json.loads(given.case))
        print(json.dumps(run(case, Path(given.folder), given.threads, given.cpu)))
        return
    with tempfile.TemporaryDirectory() as folder:
        table(given, Path(folder))


if __name__ == "__main__":
    main()
