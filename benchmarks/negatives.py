"""How fast a million non-edges of a real graph are drawn, beside PyTorch Geometric, and what is drawn.

    FASTGRL_DATA=<folder> python benchmarks/negatives.py [--count 1000000] [--rounds 5]

Wanted are different unordered pairs, none an edge and none a loop. "undirected" asks PyTorch Geometric for
both directions of each pair and keeps one, which needs no filter; "ordered" asks for ordered pairs, the
default, and "ordered, filtered" turns them, drops repeats, and draws again until there are enough. Both are
given the prepared graph in their own form.
"""

from __future__ import annotations

import argparse
import importlib
from collections.abc import Callable
from importlib import metadata
from types import ModuleType
from typing import Any

import numpy as np
from common import Neighbours, Timing, header, link_dataset, load_torch, race
from numpy.typing import NDArray

from fastgrl.graph import Graph
from fastgrl.splits import assert_no_leak, sample_non_edges

OURS = "fastgrl"
DATASET = "ca-AstroPh"
Pairs = NDArray[np.int64]


def load_pyg() -> ModuleType | None:
    """`torch_geometric.utils`, or None when it or torch is not installed."""
    if load_torch() is None:
        return None
    try:
        module = importlib.import_module("torch_geometric.utils")
    except ImportError as error:
        print(f"not installed: torch_geometric ({error})")
        return None
    print(f"torch_geometric {metadata.version('torch_geometric')}")
    return module


def pyg_contenders(graph: Graph, count: int, pyg: ModuleType) -> dict[str, Callable[[], Pairs]]:
    torch = load_torch()
    assert torch is not None
    codes = graph.edge_codes().astype(np.int64)
    edges = torch.from_numpy(np.concatenate([codes, codes[:, ::-1]]).T.copy())

    def draw(size: int, **options: Any) -> Any:
        return pyg.negative_sampling(edges, graph.num_nodes, size, **options)

    def undirected(method: str) -> Pairs:
        both = draw(2 * count, method=method, force_undirected=True)
        return both[:, : both.shape[1] // 2].T.numpy()

    def filtered(method: str) -> Pairs:
        numbers = torch.empty(0, dtype=torch.int64)
        while len(numbers) < count:
            fresh = draw(int(1.02 * (count - len(numbers))) + 100, method=method).sort(0).values
            numbers = torch.unique(torch.cat([numbers, fresh[0] * graph.num_nodes + fresh[1]]))
        numbers = numbers[torch.randperm(len(numbers))[:count]]
        return torch.stack([numbers // graph.num_nodes, numbers % graph.num_nodes], 1).numpy()

    return {
        "PyG undirected, sparse": lambda: undirected("sparse"),
        "PyG undirected, dense": lambda: undirected("dense"),
        "PyG ordered, sparse": lambda: draw(count, method="sparse").T.numpy(),
        "PyG ordered, dense": lambda: draw(count, method="dense").T.numpy(),
        "PyG ordered, filtered, sparse": lambda: filtered("sparse"),
        "PyG ordered, filtered, dense": lambda: filtered("dense"),
    }


def faults(graph: Graph, pairs: Pairs) -> tuple[int, int, int]:
    """How many pairs came back, how many are edges, and how many repeat an earlier unordered pair."""
    numbers = np.sort(np.sort(pairs, axis=1) @ [graph.num_nodes, 1])
    repeats = np.count_nonzero(numbers[1:] == numbers[:-1])
    return len(pairs), int(np.count_nonzero(graph.has_edges(*pairs.T))), int(repeats)


def line(name: str, timing: Timing, found: tuple[int, int, int], ours: float) -> str:
    returned, edges, repeats = found
    times = f"{timing.best:9.3f}{timing.median:9.3f}{timing.best / ours:8.1f}"
    return f"{name:<30}{times} |{returned:10,d}{edges:8,d}{repeats:10,d}"


def measure(graph: Graph, count: int, rounds: int) -> None:
    runs: dict[str, Callable[[], Pairs]] = {OURS: lambda: sample_non_edges(graph, count)}
    if (pyg := load_pyg()) is not None:
        runs |= pyg_contenders(graph, count, pyg)
    found: dict[str, tuple[int, int, int]] = {}

    def check(name: str, pairs: Pairs) -> None:
        found[name] = faults(graph, pairs)
        if name == OURS:
            assert_no_leak(graph, [], pairs)

    neighbours = Neighbours()
    timings = race(runs, rounds, check=check)
    print(f"\n{count:,} non-edges of {DATASET}: {graph!r}")
    print(
        f"{'seconds':<30}{'best':>9}{'median':>9}{'/ ours':>8} |{'returned':>10}{'edges':>8}{'repeats':>10}"
    )
    for name, timing in timings.items():
        print(line(name, timing, found[name], timings[OURS].best))
    print(neighbours)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--count", type=int, default=10**6, help="non-edges to draw (default 10⁶)")
    parser.add_argument("--rounds", type=int, default=5, help="rounds of timing (default 5)")
    options = parser.parse_args()
    print(header())
    measure(Graph.from_scipy(link_dataset(DATASET)), options.count, options.rounds)


if __name__ == "__main__":
    main()
