"""How fast a CSV of edges becomes a graph, beside polars, pandas, igraph and networkx, and in what memory.

    python benchmarks/reading.py [--edges 10000000] [--quick] [--without-slow]

Columns source and target, one node to ten edges, ids that are numbers or "user_" and a number. The edges
are distinct, join any two nodes alike, and stand in random order, so that no cache helps to find an id.
"bare parse" makes a data frame and no graph. "CSR" is SciPy's symmetric matrix and the id of each row,
after numbering the ids with the library named. igraph's own reader gets the file as it wants it, separated
by spaces and without a header, and igraph is timed once, everyone else best of three; the first call is
never timed. Files are read from the page cache.

Peaks are the kernel's high-water mark of resident memory, which counts a file that is mapped rather than
read, for a process that makes one call; "imports" is that of a process that imports the same libraries and
makes none. `ru_maxrss` would not do: a process starts with that of the one that started it.
"""

from __future__ import annotations

import argparse
import gzip
import importlib
import importlib.util
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from common import Neighbours, Timing, header, race
from memory import status
from numpy.typing import NDArray

import fastgrl as fg

OURS, PARSE = "fastgrl.read_graph", "bare parse"
EDGES, QUICK_EDGES, SMALL_EDGES, EDGES_PER_NODE = 10**7, 10**6, 10**5, 10
ROUNDS, SLOW_ROUNDS = 3, 1
TARGET = 3.0
PACKAGES = ("polars", "pandas", "pyarrow", "igraph", "networkx")
Codes = NDArray[np.integer[Any]]
Matrix = tuple[sp.csr_array, Any]


def polars_csv(path: Path) -> Any:
    import polars as pl

    return pl.read_csv(path)


def polars_parquet(path: Path) -> Any:
    import polars as pl

    return pl.read_parquet(path)


def symmetric(codes: Codes, ids: Any) -> Matrix:
    """The adjacency matrix of edges whose sources fill the first half of `codes`, targets the second."""
    other = np.roll(codes, len(codes) // 2)
    ones = np.ones(len(codes), np.float32)
    return sp.coo_array((ones, (codes, other)), shape=(len(ids), len(ids))).tocsr(), ids


def pandas_codes(path: Path) -> tuple[Codes, Any]:
    import pandas as pd

    edges = pd.read_csv(path)
    codes, ids = pd.factorize(pd.concat([edges["source"], edges["target"]]))
    return codes, ids


def pandas_matrix(path: Path) -> Matrix:
    return symmetric(*pandas_codes(path))


def polars_join(path: Path) -> Matrix:
    import polars as pl

    edges = pl.read_csv(path)
    ids = pl.concat([edges["source"], edges["target"]]).unique().to_frame("id").with_row_index("number")
    numbered = (
        edges.lazy()
        .join(ids.lazy(), left_on="source", right_on="id")
        .join(ids.lazy(), left_on="target", right_on="id", suffix="_target")
        .select("number", "number_target")
        .collect()
    )
    return symmetric(np.concatenate([column.to_numpy() for column in numbered]), ids["id"])


def polars_ends(path: Path) -> Any:
    """All sources and then all targets, as one polars column."""
    import polars as pl

    edges = pl.read_csv(path)
    return pl.concat([edges["source"], edges["target"]], rechunk=True)


def polars_arrow(path: Path) -> Matrix:
    encoded = polars_ends(path).to_arrow().dictionary_encode()
    return symmetric(encoded.indices.to_numpy(), encoded.dictionary)


def polars_pandas(path: Path) -> Matrix:
    import pandas as pd

    return symmetric(*pd.factorize(polars_ends(path).to_pandas()))


def arrow_matrix(path: Path) -> Matrix:
    import pyarrow as pa
    from pyarrow import csv

    edges = csv.read_csv(path)
    ends = pa.chunked_array(edges["source"].chunks + edges["target"].chunks)
    encoded = ends.dictionary_encode().combine_chunks()
    return symmetric(encoded.indices.to_numpy(), encoded.dictionary)


def pandas_igraph(path: Path) -> Any:
    import igraph

    codes, ids = pandas_codes(path)
    graph = igraph.Graph(len(ids), np.ascontiguousarray(codes.reshape(2, -1).T))
    graph.vs["name"] = ids.tolist()
    return graph


def igraph_ncol(path: Path) -> Any:
    import igraph

    return igraph.Graph.Read_Ncol(str(path.with_suffix(".ncol")), weights=False, directed=False)


def networkx_edgelist(path: Path) -> Any:
    import networkx as nx

    with path.open("rb") as file:
        next(file)
        return nx.read_edgelist(file, delimiter=",")


Counts = Callable[[Any], tuple[int, int]]
COUNTS: dict[str, Counts] = {
    "graph": lambda graph: (graph.num_nodes, graph.num_edges),
    "matrix": lambda made: (made[0].shape[0], made[0].nnz // 2),
    "igraph": lambda graph: (graph.vcount(), graph.ecount()),
    "networkx": lambda graph: (graph.number_of_nodes(), graph.number_of_edges()),
}


@dataclass(frozen=True)
class Contender:
    """A way to read a file, what it makes, and what is to be imported for it."""

    read: Callable[[Path], Any]
    makes: str = "frame"
    libraries: tuple[str, ...] = ()
    slow: bool = False

    def check(self, result: Any, expected: tuple[int, int]) -> None:
        found = (expected[0], len(result)) if self.makes == "frame" else COUNTS[self.makes](result)
        assert found == expected, f"{found} nodes and edges instead of {expected}"

    @property
    def available(self) -> bool:
        return all(importlib.util.find_spec(library) for library in self.libraries)


FASTGRL = {OURS: Contender(fg.read_graph, "graph")}
POLARS = {f"polars.read_csv, {PARSE}": Contender(polars_csv, libraries=("polars",))}
CSV = {
    **FASTGRL,
    **POLARS,
    "polars, Arrow dictionary, CSR": Contender(polars_arrow, "matrix", ("polars", "pyarrow")),
    "polars, pandas.factorize, CSR": Contender(polars_pandas, "matrix", ("polars", "pandas", "pyarrow")),
    "polars, unique and join, CSR": Contender(polars_join, "matrix", ("polars",)),
    "pyarrow.csv, dictionary, CSR": Contender(arrow_matrix, "matrix", ("pyarrow.csv",)),
    "pandas, factorize, CSR": Contender(pandas_matrix, "matrix", ("pandas",)),
    "pandas, factorize, igraph.Graph": Contender(pandas_igraph, "igraph", ("pandas", "igraph"), slow=True),
    "igraph.Graph.Read_Ncol": Contender(igraph_ncol, "igraph", ("igraph",), slow=True),
}
SMALL = {
    **FASTGRL,
    **POLARS,
    "networkx.read_edgelist": Contender(networkx_edgelist, "networkx", ("networkx",)),
}
PARQUET = {
    OURS: Contender(fg.read_graph, "graph", ("pyarrow.parquet",)),
    f"polars.read_parquet, {PARSE}": Contender(polars_parquet, libraries=("polars",)),
}
TABLES: dict[str, dict[str, Contender]] = {
    "numbers.csv": CSV,
    "text.csv": CSV,
    "numbers.csv.gz": {**FASTGRL, **POLARS},
    "text.parquet": PARQUET,
    "small-numbers.csv": SMALL,
    "small-text.csv": SMALL,
}


def draw_edges(num_edges: int) -> Codes:
    """Distinct edges without loops in random order, as two rows of node numbers."""
    num_nodes = max(100, num_edges // EDGES_PER_NODE)
    edges = np.random.default_rng(0).integers(num_nodes, size=(2, num_edges + num_edges // 100 + 100))
    edges = edges[:, edges[0] != edges[1]]
    _, first = np.unique(edges.min(0) * num_nodes + edges.max(0), return_index=True)
    return edges[:, np.sort(first)[:num_edges]]


def write_files(folder: Path, prefix: str, edges: Codes) -> None:
    import polars as pl

    numbers = pl.DataFrame({"source": edges[0], "target": edges[1]})
    text = numbers.select(pl.format("user_{}", column).alias(column) for column in numbers.columns)
    for name, frame in {"numbers": numbers, "text": text}.items():
        frame.write_csv(folder / f"{prefix}{name}.csv")
        frame.write_csv(folder / f"{prefix}{name}.ncol", separator=" ", include_header=False)
        frame.write_parquet(folder / f"{prefix}{name}.parquet")


def pack(path: Path) -> None:
    with path.open("rb") as source, gzip.open(f"{path}.gz", "wb", compresslevel=6) as target:
        shutil.copyfileobj(source, target, 1 << 20)


def make_files(folder: Path, prefix: str, num_edges: int) -> tuple[int, int]:
    """Write an edge list in every form; how many nodes and edges it has."""
    edges = draw_edges(num_edges)
    write_files(folder, prefix, edges)
    return len(np.unique(edges)), edges.shape[1]


def peak_in_fresh_process(path: Path, name: str, *, call: bool) -> int:
    command = [sys.executable, __file__, "--peak", str(path), name, "call" if call else "import"]
    return int(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout)


def own_peak(path: Path, name: str, *, call: bool) -> int:
    contender = TABLES[path.name][name]
    for library in contender.libraries:
        importlib.import_module(library)
    result = contender.read(path) if call else None
    peak = status("VmHWM")
    del result
    return peak


def timings_of(path: Path, runs: dict[str, Contender], expected: tuple[int, int]) -> dict[str, Timing]:
    timings: dict[str, Timing] = {}
    for slow, rounds in ((False, ROUNDS), (True, SLOW_ROUNDS)):
        group = {name: partial(run.read, path) for name, run in runs.items() if run.slow == slow}
        timings |= race(group, rounds, check=lambda name, result: runs[name].check(result, expected))
    return {name: timings[name] for name in runs}


@dataclass(frozen=True)
class Line:
    """One contender's figures: seconds, and bytes at the peak of a call and of the imports alone."""

    name: str
    timing: Timing
    peak: int
    imports: int

    def show(self, parse: float, ours: float) -> str:
        best = self.timing.best
        times = f"{best:9.3f}{self.timing.median:9.3f}{best / parse:9.2f}{best / ours:8.2f}"
        return f"{self.name:<33}{times} |{_mb(self.peak)}{_mb(self.imports)}{_mb(self.peak - self.imports)}"


def _mb(number: int) -> str:
    return f"{number / 1e6:9,.0f}"


def measure(path: Path, expected: tuple[int, int], *, slow: bool) -> list[Line]:
    """Time and weigh the contenders on one file, those that take minutes if asked, and print the table."""
    runs = {name: run for name, run in TABLES[path.name].items() if run.available and slow >= run.slow}
    print(f"\n{path.name}: {expected[1]:,} edges, {expected[0]:,} nodes, {path.stat().st_size / 1e6:,.1f} MB")
    print(f"{'':<33}{'seconds':>18}{'best /':>9}{'best /':>8} |{'peak MB':>9}{'imports':>9}{'above':>9}")
    print(f"{'':<33}{'best':>9}{'median':>9}{'parse':>9}{'ours':>8} |{'':>9}{'alone':>9}{'imports':>9}")
    neighbours = Neighbours()
    timings = timings_of(path, runs, expected)
    quiet = str(neighbours)
    peaks = {name: [peak_in_fresh_process(path, name, call=call) for call in (True, False)] for name in runs}
    lines = [Line(name, timing, *peaks[name]) for name, timing in timings.items()]
    for line in lines:
        print(line.show(_best(lines, PARSE), _best(lines, OURS)))
    print(quiet, flush=True)
    return lines


def _best(lines: list[Line], wanted: str) -> float:
    return min(line.timing.best for line in lines if wanted in line.name)


def print_summary(tables: dict[str, list[Line]]) -> None:
    print()
    for name, lines in tables.items():
        ratio = _best(lines, OURS) / _best(lines, PARSE)
        others = [line for line in lines if line.name != OURS and PARSE not in line.name]
        next_best = min(others, key=lambda line: line.timing.best, default=None)
        beside = f"{name:<18} ours / bare parse {ratio:.2f}"
        if next_best is not None:
            beside += f"; {next_best.name} / ours {next_best.timing.best / _best(lines, OURS):.2f}"
        print(beside)
    print(
        f"wanted of the large CSV files: ours / bare parse at most {TARGET:g}, all other ways / ours above 1"
    )


def run(num_edges: int, *, slow: bool) -> None:
    with tempfile.TemporaryDirectory(prefix="fastgrl-reading-") as name:
        folder = Path(name)
        sizes = {"": make_files(folder, "", num_edges)}
        sizes["small-"] = make_files(folder, "small-", min(SMALL_EDGES, num_edges))
        pack(folder / "numbers.csv")
        tables = {
            file: measure(folder / file, sizes["small-" if file.startswith("small-") else ""], slow=slow)
            for file in TABLES
        }
    print_summary(tables)


def versions() -> str:
    found = {package: importlib.util.find_spec(package) for package in PACKAGES}
    return ", ".join(
        f"{name} {metadata.version(name) if spec else 'missing'}" for name, spec in found.items()
    )


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--edges", type=int, default=EDGES, help="edges of the large files (default 10⁷)")
    parser.add_argument("--quick", action="store_true", help="10⁶ edges")
    parser.add_argument("--without-slow", action="store_true", help="leave out igraph, which takes minutes")
    parser.add_argument("--peak", nargs=3, help=argparse.SUPPRESS)
    return parser.parse_args()


def main() -> None:
    options = arguments()
    if options.peak:
        path, name, what = options.peak
        print(own_peak(Path(path), name, call=what == "call"))
        return
    print(header(), versions(), sep="")
    run(QUICK_EDGES if options.quick else options.edges, slow=not options.without_slow)


if __name__ == "__main__":
    main()
