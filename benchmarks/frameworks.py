"""How long a rank-32 SVD takes in PyTorch, JAX and TensorFlow: `fsvd` on their tensors, and what they offer.

    FASTGRL_DATA=<folder> python benchmarks/frameworks.py [--quick] [--dataset D] [--peers]

The adjacency matrices A of four link prediction datasets, float32, as in (a) of `svd.py`, by its rules:
every contender runs at the cheapest of its settings with which Σ σᵢ², i = 2…32, comes within 0.001 of the
converged value; settings are found first, with seed 0; then the chosen ones are timed in turn, and the
first call, which compiles, is not timed. "/ ours" is the time over that of `fsvd` on the SciPy array.

On the clock: the call, until all that it returns is there. Off the clock: tensors of the framework's own
type, which are made beforehand, and whatever jit compiles.

- fastgrl: `fsvd` on a SciPy array, a torch CSR tensor, a JAX BCOO and a `tf.SparseTensor`; U, s and V'.
  Within the frameworks the search begins where the NumPy path sufficed. "Jitted" is `jax.jit` of the
  whole call, tried with two block sizes only.
- `torch.svd_lowrank` on the CSR tensor; U, s and V.
- `torch.lobpcg` takes no product, only a tensor: it gets A² as a CSR tensor, formed off the clock. The
  time that takes is printed. It returns s² and one side of the singular vectors.
- `jax.experimental.sparse.linalg.lobpcg_standard` on X ↦ A (A X) with A as BCSR, the fastest of JAX's
  sparse products here. It compiles itself, the product with it; s² and one side as well, and its random
  start is made off the clock.
- `tf.linalg.svd` of the dense matrix, all of it, where that takes no more than about 20 s.

TensorFlow gets as many threads as fastgrl; torch the same or one, JAX as many BLAS threads as there are
or one, whatever is faster: threads that wait for each other suffer when a neighbour takes a core.
"""

from __future__ import annotations

import argparse
import functools
import importlib
import os
import time
from collections.abc import Callable
from functools import partial
from types import ModuleType
from typing import Any

import numpy as np
import scipy.sparse as sp
from common import DATASETS, header, link_dataset, load_torch, torch_csr
from svd import (
    BLOCK_SIZES,
    OURS,
    RANK,
    Array,
    Choice,
    Family,
    Result,
    choices,
    compare,
    converged_energy,
    describe,
    fastest,
    fastgrl_on,
    on_one_blas_thread,
    print_means,
    print_results,
    torch_on,
)

import fastgrl as fg
from fastgrl.parallel import thread_count

Contenders = dict[str, list[Family]]
Settings = dict[int, int]  # block size: n_iter

COLUMNS = (32, 42, 64)  # of the blocks of LOBPCG
MOST_ROUNDS = 12
LARGEST_FULL = 4100  # rows: full SVDs of TensorFlow take 20 s there, and eight times that for twice as many
TORCH, JAX, JITTED, TENSORFLOW = (f"fastgrl in {where}" for where in ("torch", "JAX", "JAX, jitted", "TF"))
FULL = "tf.linalg.svd, full"


# The frameworks.


@functools.cache
def load_jax() -> ModuleType | None:
    """`jax` with its sparse matrices; None when not installed."""
    jax = optional("jax")
    if jax is not None:
        importlib.import_module("jax.experimental.sparse.linalg")
    return jax


@functools.cache
def load_tensorflow() -> ModuleType | None:
    """`tensorflow` on as many threads as fastgrl, without its greetings; None when not installed."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    module = optional("tensorflow")
    if module is not None:
        module.config.threading.set_intra_op_parallelism_threads(thread_count())
    return module


def optional(name: str) -> ModuleType | None:
    try:
        return importlib.import_module(name)
    except ImportError:
        return None


def versions() -> str:
    modules = {"torch": load_torch(), "jax": load_jax(), "tensorflow": load_tensorflow()}
    there = ", ".join(f"{name} {module.__version__}" for name, module in modules.items() if module)
    missing = ", ".join(name for name, module in modules.items() if module is None)
    return f"frameworks: {there or 'none'}" + (f"; not installed and left out: {missing}" if missing else "")


# The tensors.


def jax_bcoo(jax: Any, matrix: sp.csr_array) -> Any:
    rows, columns = matrix.tocoo().coords
    indices = jax.numpy.asarray(np.column_stack([rows, columns]), np.int32)
    parts = (jax.numpy.asarray(matrix.data), indices)
    return jax.experimental.sparse.BCOO(parts, shape=matrix.shape, indices_sorted=True, unique_indices=True)


def jax_bcsr(jax: Any, matrix: sp.csr_array) -> Any:
    parts = tuple(jax.numpy.asarray(part) for part in (matrix.data, matrix.indices, matrix.indptr))
    return jax.experimental.sparse.BCSR(parts, shape=matrix.shape)


def tensorflow_sparse(tensorflow: Any, matrix: sp.csr_array) -> Any:
    rows, columns = matrix.tocoo().coords
    indices = np.column_stack([rows, columns]).astype(np.int64)
    return tensorflow.SparseTensor(indices, matrix.data, matrix.shape)


# Their threads.


def on_one_torch_thread(run: Callable[[], Array]) -> Array:
    torch = load_torch()
    assert torch is not None
    torch.set_num_threads(1)
    try:
        return run()
    finally:
        torch.set_num_threads(thread_count())


def or_on_one(alone: Callable[[Callable[[], Array]], Array], families: list[Family]) -> list[Family]:
    """The same settings, and all of them once more on one thread."""
    return families + [
        [(f"{setting}, 1 thread", partial(alone, run)) for setting, run in family] for family in families
    ]


torch_threads = partial(or_on_one, on_one_torch_thread)
jax_threads = partial(or_on_one, on_one_blas_thread)  # XLA factorises with the LAPACK that SciPy brings


# fastgrl on them.


def sufficient(families: list[Family], converged: float) -> list[Choice]:
    """The cheapest sufficient choice of every family that has one."""
    return [choice for family in families for choice in choices(family, converged) if choice.enough]


def settings_of(found: list[Choice]) -> Settings:
    return dict(choice.run.args for choice in found)  # type: ignore[attr-defined]  # all are partials


def fastgrl_near(settings: Settings, run: Callable[[int, int], Array]) -> list[Family]:
    """From the n_iter that sufficed with NumPy on: other random numbers may need a little more."""
    return [
        [(f"block {b}, n_iter {i}", partial(run, b, i)) for i in range(first, first + 4)]
        for b, first in settings.items()
    ]


def fastgrl_in(
    tensor: Any, settings: Settings, wait: Callable[[Any], Any] = lambda parts: parts
) -> list[Family]:
    def run(block_size: int, n_iter: int) -> Array:
        return singular_values(wait(decompose(tensor, block_size, n_iter)))

    return fastgrl_near(settings, run)


def fastgrl_jitted(jax: Any, tensor: Any, settings: Settings) -> list[Family]:
    compiled = jax.jit(decompose, static_argnums=(1, 2))

    def run(block_size: int, n_iter: int) -> Array:
        return singular_values(jax.block_until_ready(compiled(tensor, block_size, n_iter)))

    return fastgrl_near(settings, run)


def decompose(tensor: Any, block_size: int, n_iter: int) -> tuple[Any, Any, Any]:
    """All three parts: of a compiled call that returned s alone, XLA would drop the products for U and V'."""
    svd = fg.fsvd(tensor, RANK, block_size=block_size, n_iter=n_iter)
    return svd.U, svd.s, svd.Vt


def singular_values(parts: tuple[Any, Any, Any]) -> Array:
    values = np.asarray(parts[1])
    assert values.dtype == np.float32, "all contenders work in float32"
    return values


def few(settings: Settings, chosen: Choice) -> Settings:
    """The block size of the NumPy path's choice and the largest: each setting is compiled for seconds."""
    return {b: i for b, i in settings.items() if b in (settings_of([chosen]).keys() | {BLOCK_SIZES[-1]})}


def fastgrl_contenders(graph: sp.csr_array, settings: Settings, chosen: Choice) -> Contenders:
    torch, jax, tensorflow = load_torch(), load_jax(), load_tensorflow()
    contenders: Contenders = {}
    if torch is not None:
        contenders[TORCH] = torch_threads(fastgrl_in(torch_csr(torch, graph), settings))
    if jax is not None:
        tensor, fewer = jax_bcoo(jax, graph), few(settings, chosen)
        contenders[JAX] = jax_threads(fastgrl_in(tensor, fewer, jax.block_until_ready))
        contenders[JITTED] = jax_threads(fastgrl_jitted(jax, tensor, fewer))
    if tensorflow is not None:
        contenders[TENSORFLOW] = fastgrl_in(tensorflow_sparse(tensorflow, graph), settings)
    return contenders


# What the frameworks offer.


def roots(eigenvalues: Any) -> Array:
    """Singular values from the eigenvalues of A²; a run that broke down counts as zeros."""
    return np.sqrt(np.maximum(np.nan_to_num(np.asarray(eigenvalues)), 0))


def torch_lobpcg_on(torch: Any, graph: sp.csr_array) -> list[Family]:
    tensor = torch_csr(torch, squared(graph))

    def run(method: str, n: int, niter: int) -> Array:
        torch.manual_seed(0)
        try:
            return roots(torch.lobpcg(tensor, RANK, n=n, niter=niter, method=method)[0])
        except torch.linalg.LinAlgError:  # "basic" factorises Gram matrices that may become singular
            return np.zeros(RANK, np.float32)

    return [
        [(f"{method}, n {n}, niter {i}", partial(run, method, n, i)) for i in range(1, MOST_ROUNDS + 1)]
        for method in ("basic", "ortho")
        for n in COLUMNS
    ]


def squared(graph: sp.csr_array) -> sp.csr_array:
    begin = time.perf_counter()
    square = graph @ graph
    square.sort_indices()
    seconds = time.perf_counter() - begin
    print(f"A² for torch.lobpcg: {square.nnz:,} stored, formed off the clock in {1e3 * seconds:.1f} ms")
    return square


def jax_lobpcg_on(jax: Any, graph: sp.csr_array) -> list[Family]:
    tensor = jax_bcsr(jax, graph)
    starts = {k: jax.random.normal(jax.random.key(0), (graph.shape[0], k)) for k in COLUMNS}

    def product(X: Any) -> Any:
        return tensor @ (tensor @ X)

    def run(k: int, m: int) -> Array:
        lobpcg = jax.experimental.sparse.linalg.lobpcg_standard
        return roots(jax.block_until_ready(lobpcg(product, starts[k], m))[0])

    return [[(f"k {k}, m {m}", partial(run, k, m)) for m in range(2, MOST_ROUNDS + 1)] for k in COLUMNS]


def tensorflow_svd_on(tensorflow: Any, graph: sp.csr_array) -> list[Family]:
    tensor = tensorflow.constant(graph.toarray())
    return [[("dense, all singular values", lambda: tensorflow.linalg.svd(tensor)[0].numpy())]]


def peer_contenders(graph: sp.csr_array) -> Contenders:
    torch, jax, tensorflow = load_torch(), load_jax(), load_tensorflow()
    contenders: Contenders = {}
    if torch is not None:
        contenders["torch svd_lowrank"] = torch_threads(torch_on(torch, graph))
        contenders["torch lobpcg, A² given"] = torch_threads(torch_lobpcg_on(torch, graph))
    if jax is not None:
        contenders["JAX lobpcg_standard"] = jax_threads(jax_lobpcg_on(jax, graph))
    if tensorflow is not None and graph.shape[0] <= LARGEST_FULL:
        contenders[FULL] = tensorflow_svd_on(tensorflow, graph)
    elif tensorflow is not None:
        print(f"{FULL}: left out, {graph.shape[0]:,} rows would take much longer than 20 s")
    return contenders


# The tables.


def table(name: str, rounds: int, peers_only: bool) -> dict[str, Result]:
    graph = link_dataset(name)
    converged = converged_energy(graph.astype(np.float64))
    print(f"\n{describe(name, graph)}")
    found = sufficient(fastgrl_on(graph), converged)
    chosen = fastest({choice.setting: choice for choice in found})
    contenders: Contenders = {OURS: [[(chosen.setting, chosen.run)]]}
    contenders |= {} if peers_only else fastgrl_contenders(graph, settings_of(found), chosen)
    results = compare(contenders | peer_contenders(graph), converged, rounds)
    print_results(f"A of {describe(name, graph)}", results)
    return results


def print_group(title: str, tables: list[dict[str, Result]], names: list[str]) -> None:
    if names:
        print_means(title, [{name: table[name] for name in names} for table in tables])


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="ppi only, two rounds")
    parser.add_argument("--dataset", choices=DATASETS, help="this one only")
    parser.add_argument("--peers", action="store_true", help="fastgrl with NumPy only, and the peers")
    return parser.parse_args()


def main() -> None:
    options = arguments()
    names = (options.dataset,) if options.dataset else ("ppi",) if options.quick else DATASETS
    print(header() + versions())
    tables = [table(name, 2 if options.quick else 5, options.peers) for name in names]
    own = [name for name in tables[0] if name in (TORCH, JAX, JITTED, TENSORFLOW)]
    # The full SVD is missing where it takes too long, and no mean with it in would say anything.
    others = [name for name in tables[0] if name not in (OURS, FULL, *own)]
    print_group("fastgrl within the frameworks", tables, own)
    print_group("what the frameworks offer, but for the full SVD", tables, others)


if __name__ == "__main__":
    main()
