"""How fast a sparse matrix times a dense block is, beside SciPy, MKL and torch, and beside a memory copy.

    python benchmarks/kernels.py [--largest 1e7] [--quick]

Random power-law graphs of 2·10⁵, 10⁷ and 10⁸ stored non-zeros, float32 blocks of 16 to 200 columns.
"pattern" is fastgrl on a graph whose stored values are all 1, "values" fastgrl with a float32 value per
non-zero; the others always read values. The largest graph takes about 10 GB of memory.
"""

from __future__ import annotations

import argparse
import itertools
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
from common import Neighbours, Timing, chung_lu, header, load_mkl, load_torch, peer_threads, race, torch_csr
from numpy.typing import NDArray

from fastgrl.kernels import CSR, csr_from_scipy, multiply
from fastgrl.parallel import thread_count

Block = NDArray[np.float32]

# Nodes, undirected edges, rounds.
SIZES = ((18_000, 100_000, 7), (500_000, 5_000_000, 5), (2_000_000, 50_000_000, 3))
COLUMNS = (16, 32, 64, 200)
OURS, PEERS = ("pattern", "values"), ("scipy", "mkl", "torch")
RATIOS = tuple(itertools.product(("scipy", "mkl"), OURS))
CHECKED_ROWS, WIDTH = 1000, 10


@dataclass(frozen=True)
class Graph:
    """One graph in the forms that the contenders take, all sharing the index arrays."""

    adjacency: sp.csr_array
    weighted: sp.csr_array
    pattern: CSR
    values: CSR
    tensor: Any

    @property
    def num_stored(self) -> int:
        """Stored non-zeros."""
        return self.pattern.num_stored


def make_graph(num_nodes: int, num_edges: int) -> Graph:
    adjacency = chung_lu(num_nodes, num_edges, seed=0)
    weights = np.random.default_rng(1).random(adjacency.nnz, dtype=np.float32)
    weighted = sp.csr_array((weights, adjacency.indices, adjacency.indptr), shape=adjacency.shape)
    torch = load_torch()
    tensor = None if torch is None else torch_csr(torch, weighted)
    return Graph(adjacency, weighted, csr_from_scipy(adjacency), csr_from_scipy(weighted), tensor)


def contenders(graph: Graph, X: Block) -> dict[str, Callable[[], Any]]:
    mkl, torch = load_mkl(), load_torch()
    runs: dict[str, Callable[[], Any]] = {
        "pattern": lambda: multiply(graph.pattern, X),
        "values": lambda: multiply(graph.values, X),
        "scipy": lambda: graph.weighted @ X,
    }
    if mkl is not None:
        runs["mkl"] = lambda: mkl.dot_product_mkl(graph.weighted, X)
    if torch is not None:
        block = torch.from_numpy(X)
        runs["torch"] = lambda: graph.tensor @ block
    return runs


def checker(graph: Graph, X: Block) -> Callable[[str, Any], None]:
    """Compare the first rows of every product with SciPy's in float64."""
    wide = X.astype(np.float64)
    weighted, plain = (A[:CHECKED_ROWS] @ wide for A in (graph.weighted, graph.adjacency))

    def check(name: str, Y: Any) -> None:
        right = plain if name == "pattern" else weighted
        error = np.abs(np.asarray(Y[:CHECKED_ROWS]) - right).max() / np.abs(right).max()
        assert error < 1e-5, f"{name} is off by {error:.1e}"

    return check


def bytes_moved(matrix: CSR, columns: int) -> int:
    """Read a row of X, an index and a value for every non-zero; a pointer for every row; write Y."""
    value = 0 if matrix.values is None else matrix.values.itemsize
    per_stored = 4 * columns + matrix.indices.itemsize + value
    return matrix.num_stored * per_stored + matrix.shape[0] * (4 * columns + matrix.indptr.itemsize)


def copy_bandwidth(num_bytes: int) -> float:
    """Bytes read and written per second by np.copyto on all threads."""
    source, target = np.ones(num_bytes // 8), np.zeros(num_bytes // 8)
    parts = [np.array_split(array, thread_count()) for array in (target, source)]
    with ThreadPoolExecutor(thread_count()) as pool:
        timing = race({"copy": lambda: list(pool.map(np.copyto, *parts))}, 5)["copy"]
    return 2 * source.nbytes / timing.best


@dataclass(frozen=True)
class Cell:
    """One line of the table."""

    columns: int
    timings: dict[str, Timing]
    bandwidths: dict[str, float]

    def ratio(self, peer: str, ours: str) -> float | None:
        """How many times longer the peer takes."""
        return self.timings[peer].best / self.timings[ours].best if peer in self.timings else None

    def __str__(self) -> str:
        times = [_cell(1e3 * self.timings[n].best if n in self.timings else None) for n in (*OURS, *PEERS)]
        ratios = [_cell(self.ratio(*pair)) for pair in RATIOS]
        speeds = [_cell(self.bandwidths[name] / 1e9) for name in OURS]
        noise = max(timing.noise for timing in self.timings.values())
        return f"{self.columns:4d} |{''.join(times)} |{''.join(ratios)} |{''.join(speeds)} |{_cell(noise)}"


def _cell(number: float | None) -> str:
    if number is None:
        return f"{'-':>{WIDTH}}"
    digits = ".0f" if number >= 1000 else ".1f" if number >= 100 else ".3g"
    return f"{number:{WIDTH}{digits}}"


def titles() -> str:
    ratios = [f"{peer}/{ours[:3]}" for peer, ours in RATIOS]
    groups = [(*OURS, *PEERS), ratios, OURS, ["noise"]]
    heads = ("milliseconds", "SciPy and MKL / ours", "ours, GB/s", "med/best")
    above = " |".join(f"{text:>{WIDTH * len(group)}}" for text, group in zip(heads, groups, strict=True))
    below = " |".join("".join(f"{name:>{WIDTH}}" for name in group) for group in groups)
    return f"     |{above}\n   k |{below}"


def measure(graph: Graph, columns: int, rounds: int) -> Cell:
    X = np.random.default_rng(2).standard_normal((graph.adjacency.shape[1], columns), dtype=np.float32)
    timings = race(contenders(graph, X), rounds, check=checker(graph, X))
    moved = {name: bytes_moved(getattr(graph, name), columns) for name in OURS}
    return Cell(columns, timings, {name: moved[name] / timings[name].best for name in OURS})


def table(num_nodes: int, num_edges: int, rounds: int) -> Iterator[Cell]:
    graph = make_graph(num_nodes, num_edges)
    degree = int(np.diff(graph.pattern.indptr).max())
    print(f"\n{graph.num_stored:,} stored non-zeros, {num_nodes:,} nodes, largest degree {degree:,}")
    print(titles())
    neighbours = Neighbours()
    for columns in COLUMNS:
        cell = measure(graph, columns, rounds)
        print(cell, flush=True)
        yield cell
    print(neighbours)


def print_worst(cells: list[Cell]) -> None:
    print()
    for peer, ours in itertools.product(PEERS, OURS):
        ratios = [ratio for cell in cells if (ratio := cell.ratio(peer, ours)) is not None]
        if ratios:
            print(f"worst {peer} / fastgrl with {ours}: {min(ratios):.2f}")


def print_legend(bandwidth: float) -> None:
    print(peer_threads())
    print(f"np.copyto on {thread_count()} threads: {bandwidth / 1e9:.3g} GB/s, read and written")
    print("GB/s of ours = (stored (4k + 4 index + 4 value, if any) + rows (4k written + 8 pointer)) / time,")
    print("rows of X gathered from a cache counting as much as those from memory")


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--largest", type=float, default=1e8, help="most stored non-zeros (default 1e8)")
    parser.add_argument("--quick", action="store_true", help="the smallest graph, two rounds")
    return parser.parse_args()


def main() -> None:
    options = arguments()
    print(header())
    print_legend(copy_bandwidth(1 << (26 if options.quick else 30)))
    sizes = [size for size in SIZES if 2 * size[1] <= options.largest]
    if options.quick:
        sizes = [(*SIZES[0][:2], 2)]
    print_worst([cell for size in sizes for cell in table(*size)])


if __name__ == "__main__":
    main()
