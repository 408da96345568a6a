"""Where the time of whole commands goes, from the first import to the last byte written.

    FASTGRL_DATA=<folder> python benchmarks/profiles.py [--quick]

CPU seconds on one thread: of every command in a process of its own, and once more in a process that has run
it before, with a profiler that charges each moment to the innermost part named below. What the whole takes
beyond those parts is the start of the interpreter and the imports. The profiler watches calls of Python
functions, and makes what consists of many small ones look slower than it is.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections import defaultdict
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, NamedTuple

import numpy as np
from common import Neighbours, header, link_dataset, run_child
from edge_files import write_edge_list
from large_graphs import rmat_shape

from fastgrl.datasets.synthetic import rmat_edges

# A file of the package, or a function in one, and the part that its time belongs to. Functions come first.
FUNCTIONS = {
    ("kernels.py", "multiply"): "sparse product",
    ("kernels.py", "polynomial"): "sparse product",
    ("diffusion.py", "log_matrix"): "logarithm",
    ("diffusion.py", "log_rows"): "logarithm",
    ("diffusion.py", "overlaps"): "features of pairs",
    ("spaces.py", "features"): "features of pairs",
    ("node_inputs.py", "features_of"): "checks and order",
}
FILES = {
    "orthonormal.py": "orthonormalisation",
    "linalg.py": "orthonormalisation",
    "fsvd.py": "small SVDs",
    "push.py": "push",
    "scorers.py": "scorer",
    "selection.py": "hold-outs",
    "splits.py": "hold-outs",
    "ordering.py": "checks and order",
    "checks.py": "checks and order",
    "graph.py": "checks and order",
    "kernels.py": "checks and order",
    "normalisations.py": "checks and order",
    "certificates.py": "certificate",
    "ridge.py": "ridge",
    "co_ridge.py": "ridge",
    "co_ridge_fits.py": "ridge",
    "co_ridge_grids.py": "ridge",
    "linear_parts.py": "ridge",
    "self_training.py": "ridge",
    "co_ridge_workshop.py": "ridge",
    "views.py": "views",
    "filter_panels.py": "views",
    "view_bases.py": "views",
    "filters.py": "views",
    "similarity.py": "views",
    "hops.py": "views",
    "calibration.py": "estimate",
    "estimate.py": "estimate",
    "costs.py": "estimate",
    "writers.py": "writing",
    "storage.py": "writing",
    "atomic.py": "writing",
}
OTHER, READING, START, WHOLE = "everything else", "reading", "start and imports", "whole command"


class Place(NamedTuple):
    """Where a function is, the part it begins, and whether that is the part of all functions of its file."""

    path: str
    part: str | None
    usual: bool


def place_of(code: CodeType) -> Place:
    path = code.co_filename
    name = path.rsplit("/", 1)[-1]
    if "/fastgrl/" not in path:
        return Place(path, None, True)
    if (name, code.co_name) in FUNCTIONS:
        return Place(path, FUNCTIONS[name, code.co_name], False)
    inputs = "/io/" in path or "/datasets/" in path
    return Place(path, FILES.get(name, READING if inputs else None), True)


class Profile:
    """CPU seconds by part; a moment belongs to the innermost part that is running."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = defaultdict(float)
        self._places: dict[CodeType, Place] = {}
        self._running: list[tuple[FrameType | None, Place]] = [(None, Place("", OTHER, True))]
        self._last = time.process_time()

    def __call__(self, frame: FrameType, event: str, _argument: Any) -> None:
        if event == "call":
            code = frame.f_code
            if code not in self._places:
                self._places[code] = place_of(code)
            if self._begins(self._places[code]):
                self._charge()
                self._running.append((frame, self._places[code]))
        elif event == "return" and self._running[-1][0] is frame:
            self._charge()
            self._running.pop()

    def _begins(self, place: Place) -> bool:
        """A helper in the file of the part that is running belongs to it."""
        running = self._running[-1][1]
        helper = place.usual and place.path == running.path
        return place.part not in (None, running.part) and not helper

    def _charge(self) -> None:
        now = time.process_time()
        part = self._running[-1][1].part
        assert part is not None
        self.seconds[part] += now - self._last
        self._last = now

    def finish(self) -> dict[str, float]:
        self._charge()
        return dict(self.seconds)


def profiled(arguments: list[str]) -> dict[str, float]:
    """Run a command line in this process twice, the second time watched."""
    run_here(arguments)
    profile = Profile()
    sys.setprofile(profile)
    try:
        run_here(arguments)
    finally:
        sys.setprofile(None)
    return profile.finish()


def run_here(arguments: list[str]) -> None:
    from fastgrl.__main__ import main as command

    sys.argv = ["fastgrl", *arguments]
    try:
        command()
    except SystemExit as end:
        if end.code:
            raise


def measure(arguments: list[str]) -> dict[str, float]:
    plain = run_child([sys.executable, "-m", "fastgrl", *arguments])
    watched = run_child([sys.executable, __file__, "--profile", json.dumps(arguments)])
    if plain.status or watched.status:
        sys.exit(f"fastgrl {' '.join(arguments)}:\n{plain.errors}\n{watched.errors}")
    parts: dict[str, float] = json.loads(watched.text.splitlines()[-1])
    return {**parts, START: max(0.0, plain.cpu_seconds - sum(parts.values())), WHOLE: plain.cpu_seconds}


def commands(folder: Path, *, quick: bool) -> dict[str, list[str]]:
    """Titles and command lines; the edge lists are written first."""
    found: dict[str, list[str]] = {}
    common = ["--threads", "1", "--force"]
    dataset, edges = ("ppi", 10**5) if quick else ("ca-AstroPh", 10**6)
    drawn = f"R-MAT {edges:,}"
    paths = {dataset: folder / f"{dataset}.csv", drawn: folder / "rmat.csv"}
    u, v = link_dataset(dataset).nonzero()
    np.savetxt(paths[dataset], np.column_stack([u, v])[u < v], fmt="%d", delimiter=",")
    scale, edge_factor = rmat_shape(edges, per_node=24)
    write_edge_list(paths[drawn], rmat_edges(scale, edge_factor=edge_factor))
    for name, path in paths.items():
        for design in ("degree-walk", "log-diffusion"):
            out = ["--rank", "32", "-o", str(folder / f"{name}-{design}.npy")]
            found[f"embed {design}, {name}"] = ["embed", str(path), "--design", design, *out, *common]
    found[f"link, {dataset}"] = ["link", str(paths[dataset]), "-o", str(folder / "model"), *common]
    found["classify, cora"] = ["evaluate", "nodes", "cora", *common[:2]]
    return found


def print_tables(*, quick: bool) -> None:
    neighbours = Neighbours()
    with tempfile.TemporaryDirectory() as name:
        lines = commands(Path(name), quick=quick)
        tables = {title: measure(line) for title, line in lines.items()}
    print("\nCPU seconds on one thread, by part")
    print("\n".join(f"  {number}: {title}" for number, title in enumerate(tables, start=1)))
    print(f"{'':22}" + "".join(f"{number:>9}" for number in range(1, len(tables) + 1)))
    parts = {part for table in tables.values() for part in table} - {WHOLE}
    for part in [*sorted(parts, key=_weight(tables), reverse=True), WHOLE]:
        print(f"{part:22}" + "".join(f"{table.get(part, 0):9.3f}" for table in tables.values()))
    print(neighbours)


def _weight(tables: dict[str, dict[str, float]]) -> Any:
    return lambda part: sum(table.get(part, 0) / table[WHOLE] for table in tables.values())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="the smallest dataset, a tenth of the R-MAT")
    parser.add_argument("--profile", type=json.loads, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.profile:
        print(json.dumps(profiled(given.profile)))
        return
    print(header())
    print_tables(quick=given.quick)


if __name__ == "__main__":
    main()
