"""How long a rank-32 truncated SVD takes, beside the libraries that offer one, at equal quality.

    FASTGRL_DATA=<folder> python benchmarks/svd.py [--quick] [--load]

(a) The adjacency matrices of four link prediction datasets, float32.
(b) The implicit walk matrix C T + (C-1) T² + … + T^C - 3 (11' - A), never formed.

Every contender runs at the cheapest of its settings with which Σ σᵢ², i = 2…32, comes within 0.001 of the
converged value; the first singular value says little and is left out. Settings are found first, with
seed 0; then the chosen ones are timed in turn. Peers that call BLAS run with one BLAS thread where that
is faster than all. Matrices are made beforehand: in (a) SciPy arrays, which fastgrl checks and transposes
on the clock, or torch tensors; in (b) operators.

(c) `--load`: how much slower fastgrl becomes while other processes keep one core, or all, busy.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import functools
import math
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import scipy.sparse as sp
from common import (
    DATASETS,
    Neighbours,
    Timing,
    header,
    inverse_degrees,
    link_dataset,
    load_torch,
    race,
    torch_csr,
)
from numpy.typing import NDArray
from scipy.sparse.linalg import LinearOperator, svds
from sklearn.utils.extmath import randomized_svd
from threadpoolctl import ThreadpoolController

import fastgrl as fg
from fastgrl.parallel import thread_count
from fastgrl.walks import walk

Array = NDArray[Any]
Product = Callable[[Array], Array]
Setting = tuple[str, Callable[[], Array]]  # its name, and a run that returns the singular values
Family = Iterable[Setting]  # from cheap to dear

RANK, ENOUGH = 32, 0.001
BLOCK_SIZES = (8, 16, 24, 32)
WINDOWS = {"soc-facebook": 5, "ppi": 5, "ca-HepTh": 20, "ca-AstroPh": 20}
NON_EDGE = 3.0
OURS, FIXED = "fastgrl fsvd", "Algorithm 1, 20 rounds"
CALLS_BLAS = ("scipy svds", "sklearn randomized_svd", "Algorithm 1", FIXED)


# The contenders of (a).


def fastgrl_on(matrix: Any) -> list[Family]:
    def run(block_size: int, n_iter: int) -> Array:
        values = fg.fsvd(matrix, RANK, block_size=block_size, n_iter=n_iter).s
        assert values.dtype == np.float32, "all contenders work in float32"
        return values

    return [
        [(f"block {b}, n_iter {i}", partial(run, b, i)) for i in range(-(-RANK // b) - 1, 31)]
        for b in BLOCK_SIZES
    ]


def svds_on(matrix: Any) -> list[Family]:
    def run(tol: float) -> Array:
        return svds(matrix, RANK, tol=tol, solver="arpack", rng=0)[1]

    return [[(f"tol {tol:g}", partial(run, tol))] for tol in (0, 1e-2, 1e-1)]


def sklearn_on(matrix: sp.csr_array) -> list[Family]:
    def run(n_oversamples: int, n_iter: int) -> Array:
        return randomized_svd(matrix, RANK, n_oversamples=n_oversamples, n_iter=n_iter, random_state=0)[1]

    return [[(f"oversamples {p}, n_iter {i}", partial(run, p, i)) for i in range(21)] for p in (10, 32)]


def torch_on(torch: Any, matrix: sp.csr_array) -> list[Family]:
    tensor = torch_csr(torch, matrix)

    def run(q: int, niter: int) -> Array:
        torch.manual_seed(0)
        return torch.svd_lowrank(tensor, q, niter)[1].numpy()

    return [[(f"q {q}, niter {i}", partial(run, q, i)) for i in range(21)] for q in (42, 64)]


def adjacency_contenders(graph: sp.csr_array) -> dict[str, list[Family]]:
    torch = load_torch()
    families = {
        OURS: fastgrl_on(graph),
        "scipy svds": svds_on(graph),
        "sklearn randomized_svd": sklearn_on(graph),
    }
    return families if torch is None else families | {"torch svd_lowrank": torch_on(torch, graph)}


# The contenders of (b).


def walk_operator(graph: sp.csr_array, window: int, dtype: Any = np.float32) -> fg.Operator:
    """C T + … + T^C - 3 (11' - A) for T = D⁻¹A."""
    return walk(fg.Graph.from_scipy(graph), window=window, negative=NON_EDGE, dtype=dtype)


def walk_products(graph: sp.csr_array, window: int) -> tuple[Product, Product]:
    """X ↦ M X and X ↦ M'X by Horner's rule and SciPy's products."""
    T = sp.diags_array(inverse_degrees(graph)).tocsr() @ graph
    backwards = T.T.tocsr()

    def product(step: sp.csr_array, X: Array) -> Array:
        Y = step @ X
        for c in range(2, window + 1):
            Y = step @ (c * X + Y)
        return Y - NON_EDGE * (X.sum(axis=0) - graph @ X)

    return partial(product, T), partial(product, backwards)


def linear_operator(forward: Product, backward: Product, size: int) -> LinearOperator:
    return LinearOperator(
        (size, size), matvec=forward, rmatvec=backward, matmat=forward, rmatmat=backward, dtype=np.float32
    )


def algorithm_1(forward: Product, backward: Product, size: int, n_iter: int) -> tuple[Array, Array, Array]:
    """The paper's Algorithm 1 as one would write it in NumPy: 2 k columns, a QR after every product."""
    X = np.random.default_rng(0).standard_normal((size, 2 * RANK), dtype=np.float32)
    for _ in range(n_iter):
        Q, _ = np.linalg.qr(forward(X))
        X, _ = np.linalg.qr(backward(Q))
    Q, _ = np.linalg.qr(forward(X))
    B, s, Vt = np.linalg.svd(backward(Q).T, full_matrices=False)
    return Q @ B[:, :RANK], s[:RANK], Vt[:RANK]


def algorithm_1_on(forward: Product, backward: Product, size: int, n_iters: Iterable[int]) -> list[Family]:
    def run(n_iter: int) -> Array:
        return algorithm_1(forward, backward, size, n_iter)[1]

    return [[(f"n_iter {i}", partial(run, i)) for i in n_iters]]


def walk_contenders(graph: sp.csr_array, window: int) -> dict[str, list[Family]]:
    products, size = walk_products(graph, window), graph.shape[0]
    return {
        OURS: fastgrl_on(walk_operator(graph, window)),
        "scipy svds": svds_on(linear_operator(*products, size)),
        "Algorithm 1": algorithm_1_on(*products, size, range(41)),
        FIXED: algorithm_1_on(*products, size, [20]),
    }


# The search for settings, and the race.


@dataclass(frozen=True)
class Choice:
    """The setting a contender runs with, and the share of Σ σᵢ², i ≥ 2, that it reaches."""

    setting: str
    run: Callable[[], Array]
    share: float

    @property
    def enough(self) -> bool:
        """Within 0.001 of the converged value; singular values that are too large are wrong as well."""
        return abs(self.share - 1) <= ENOUGH


def energy(values: Array) -> float:
    return float((np.sort(values.astype(np.float64))[::-1][1:RANK] ** 2).sum())


def converged_energy(operator: Any) -> float:
    return energy(fg.fsvd(operator, RANK, block_size=32, n_iter=40).s)


def choices(family: Family, converged: float) -> Iterator[Choice]:
    """The family's settings up to the first that suffices."""
    for setting, run in family:
        choice = Choice(setting, run, energy(on_one_blas_thread(run)) / converged)
        yield choice
        if choice.enough:
            return


def on_one_blas_thread(run: Callable[[], Array]) -> Array:
    with blas_libraries().limit(limits=1):
        return run()


@functools.cache
def blas_libraries() -> ThreadpoolController:
    return ThreadpoolController().select(user_api="blas")


def with_one_blas_thread(choice: Choice) -> Choice:
    run = partial(on_one_blas_thread, choice.run)
    return dataclasses.replace(choice, setting=f"{choice.setting}, 1 BLAS thread", run=run)


def cheapest(name: str, families: list[Family], converged: float) -> Choice:
    """The fastest sufficient setting, or the closest one if none suffices."""
    tried = [choice for family in families for choice in choices(family, converged)]
    sufficient = [choice for choice in tried if choice.enough]
    if not sufficient:
        return min(tried, key=lambda choice: abs(choice.share - 1))
    if name in CALLS_BLAS:
        sufficient += [with_one_blas_thread(choice) for choice in sufficient]
    return fastest({choice.setting: choice for choice in sufficient})


def fastest(candidates: dict[str, Choice]) -> Choice:
    if len(candidates) == 1:
        return next(iter(candidates.values()))
    timings = race({setting: choice.run for setting, choice in candidates.items()}, 3)
    return candidates[min(timings, key=lambda setting: timings[setting].best)]


@dataclass(frozen=True)
class Result:
    """One contender on one dataset, and how many times longer than ours it takes."""

    choice: Choice
    timing: Timing
    ratio: float


def compare(contenders: dict[str, list[Family]], converged: float, rounds: int) -> dict[str, Result]:
    chosen = {name: cheapest(name, families, converged) for name, families in contenders.items()}
    neighbours = Neighbours()
    timings = race({name: choice.run for name, choice in chosen.items()}, rounds, seconds=0.2)
    print(f"\n{neighbours}")
    best = timings[OURS].best
    return {name: Result(chosen[name], timings[name], timings[name].best / best) for name in chosen}


# What is printed.


def print_results(title: str, results: dict[str, Result]) -> None:
    print(title)
    print(f"{'':24}{'setting':40}{'ms':>9}{'med/best':>10}{'captured':>10}{'/ ours':>8}")
    for name, result in results.items():
        choice, timing = result.choice, result.timing
        times = f"{1e3 * timing.best:9.1f}{timing.noise:10.2f}{choice.share:10.5f}{result.ratio:8.2f}"
        print(f"{name:24}{choice.setting:40}{times}{'' if choice.enough else '  not enough'}", flush=True)


def print_means(title: str, tables: list[dict[str, Result]]) -> None:
    """Geometric means of the ratios; runs that do not reach the quality are left out."""
    print(f"\n{title}: times as long as fastgrl, geometric mean")
    for name in [name for name in tables[0] if name != OURS]:
        print(f"{name:24}{_mean([t[name] for t in tables])}")
    peers = [result for table in tables for name, result in table.items() if name not in (OURS, FIXED)]
    print(f"{'all at their cheapest':24}{_mean(peers)}")


def _mean(results: list[Result]) -> str:
    ratios = [result.ratio for result in results if result.choice.enough]
    mean = f"{math.exp(np.log(ratios).mean()):.2f}" if ratios else "-"
    return f"{mean:>8}  ({len(ratios)} of {len(results)} reach the quality)"


def describe(name: str, graph: sp.csr_array) -> str:
    return f"{name}, {graph.shape[0]:,} nodes, {graph.nnz:,} stored"


def adjacency_table(name: str, rounds: int) -> dict[str, Result]:
    graph = link_dataset(name)
    converged = converged_energy(graph.astype(np.float64))
    results = compare(adjacency_contenders(graph), converged, rounds)
    print_results(f"(a) A of {describe(name, graph)}", results)
    return results


def walk_table(name: str, rounds: int) -> dict[str, Result]:
    graph, window = link_dataset(name), WINDOWS[name]
    converged = converged_energy(walk_operator(graph, window, np.float64))
    results = compare(walk_contenders(graph, window), converged, rounds)
    print_results(f"(b) walk matrix with C = {window} of {describe(name, graph)}", results)
    return results


# (c)


@contextlib.contextmanager
def busy_cores(count: int) -> Iterator[None]:
    """Keep `count` cores busy with processes that do nothing but count."""
    burners = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(count)]
    try:
        yield
    finally:
        for burner in burners:
            burner.kill()
            burner.wait()


def our_choices(name: str) -> dict[str, Callable[[], Array]]:
    """Our cheapest sufficient run on both matrices of a dataset."""
    graph, window = link_dataset(name), WINDOWS[name]
    exact = {"A": graph.astype(np.float64), "walk matrix": walk_operator(graph, window, np.float64)}
    ours = {"A": graph, "walk matrix": walk_operator(graph, window)}
    return {
        what: cheapest(OURS, fastgrl_on(matrix), converged_energy(exact[what])).run
        for what, matrix in ours.items()
    }


def load_table(name: str, rounds: int) -> None:
    runs = our_choices(name)
    print(f"(c) fastgrl on {name} beside busy cores; others % is what all other processes took of the CPUs")
    print(f"{'':14}{'busy cores':>12}{'others %':>10}{'best ms':>10}{'median ms':>11}{'times as long':>15}")
    quiet: dict[str, Timing] = {}
    for count in sorted({0, 1, thread_count()}):
        timings, others = timed_under_load(runs, rounds, count)
        quiet = quiet or timings
        for what, (best, median) in timings.items():
            times = f"{1e3 * best:10.1f}{1e3 * median:11.1f}{median / quiet[what].median:15.2f}"
            print(f"{what:14}{count:12d}{others:10.0f}{times}", flush=True)


def timed_under_load(
    runs: dict[str, Callable[[], Array]], rounds: int, count: int
) -> tuple[dict[str, Timing], float]:
    with busy_cores(count):
        neighbours = Neighbours()
        return race(runs, rounds, seconds=0.5), neighbours.percent()


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="the smallest dataset only, two rounds")
    parser.add_argument("--load", action="store_true", help="(c) instead of (a) and (b)")
    return parser.parse_args()


def main() -> None:
    options = arguments()
    names, rounds = (("ppi",), 2) if options.quick else (DATASETS, 5)
    print(header())
    if options.load:
        return load_table("ppi" if options.quick else "ca-AstroPh", rounds)
    for title, make in (("(a)", adjacency_table), ("(b)", walk_table)):
        print_means(title, [make(name, rounds) for name in names])


if __name__ == "__main__":
    main()
