"""NetMF: the matrix that skip-gram over random walks factorises implicitly, factorised explicitly.

Reference: Qiu, Dong, Ma, Li, Wang, Tang, *Network Embedding as Matrix Factorization: Unifying DeepWalk, LINE,
PTE, and node2vec*, 2018 (Algorithms 3 and 4).

`run` has the rank that *Fast Graph Learning with Unique Optimal Solutions* (2021) states for its row "NetMF",
64, with windows of 5 or 20 and one negative. The script that was released with it sets the number of
eigenpairs to 64, which the exact matrix has no use for, and leaves the rank at its default, 128. How pairs
were scored it does not show; with `rank=128` and z_u·z_v the published figures come out within a tenth of a
point, with cosines they do not.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import numpy as np
import scipy.sparse as sp
from scipy.sparse.linalg import LinearOperator, eigsh

from fastgrl.baselines.link_vectors import Score, VectorRun
from fastgrl.baselines.outcomes import Outcome, Progress
from fastgrl.checks import Array, integer, shown
from fastgrl.datasets.records import LinkDataset
from fastgrl.errors import ArgumentError
from fastgrl.estimate import format_bytes
from fastgrl.fsvd import LARGEST_SEED, fsvd
from fastgrl.graph import Graph
from fastgrl.normalisations import degree_scaling, symmetric, transition
from fastgrl.operators import Polynomial
from fastgrl.parallel import single_threaded_blas

Rows = Callable[[slice], Array]  # some rows of M

DEFAULT_MAX_MEMORY = 8 * 10**9
_BLOCK_ROWS = 512
# Values and columns of a sparse matrix take twice the bytes of a dense one's values.
_SPARSE_ITEM, _DENSE_ITEM = 8, 4
_EIGEN_TOLERANCE = 1e-6  # vectors are rounded to float32 afterwards


def run(
    dataset: LinkDataset,
    *,
    seed: int = 0,
    rank: int = 64,
    window: int = 5,
    negative: float = 1.0,
    score: Score = "dot",
    max_memory: int = DEFAULT_MAX_MEMORY,
    threads: int | None = None,
    progress: Progress | None = None,
) -> Outcome:
    """Score the test pairs of a dataset by NetMF as it stands, variant "exact" of `netmf`.

    A pair scores the product of its vectors; `score="cosine"` divides it by their lengths. Nothing is chosen
    by looking at any pair. `progress(done, total)` counts rows of the matrix.
    """
    settings: dict[str, Any] = {
        "rank": rank,
        "window": window,
        "negative": negative,
        "max_memory": max_memory,
        "seed": seed,
    }
    vectors = partial(netmf, dataset.graph, progress=progress, **settings)
    return VectorRun(vectors, score, settings | {"score": score}).on(dataset, threads=threads)


def netmf(
    graph: Graph,
    rank: int = 64,
    *,
    window: int = 10,
    negative: float = 1.0,
    variant: Literal["exact", "eigen"] = "exact",
    eigenpairs: int = 256,
    seed: int = 0,
    max_memory: int = DEFAULT_MAX_MEMORY,
    progress: Progress | None = None,
) -> Array:
    """Node vectors U√s from the rank-k SVD of log max(1, M), M = vol/(b T) (Σ_{r≤T} (D⁻¹A)^r) D⁻¹.

    T is `window`, b is `negative`, and the vectors are n×k, float32. "exact" computes M as it stands: one
    dense n×n float32 matrix. "eigen" is the authors' approximation for large graphs: with the `eigenpairs`
    largest λ of D^-½AD^-½ (all of them if the graph has fewer nodes) and f(λ) = (λ + … + λ^T)/T clipped below
    at 0, M ≈ vol/b D^-½ U f(λ) U'D^-½, whose entries above 1 are kept in a sparse matrix where a dense one
    would take more than `max_memory`. Nodes without edges get zero vectors.

    A matrix of more than `max_memory` bytes is refused. `progress(done, total)` is called after each block of
    rows. The same seed gives the same bits.

    >>> graph = fg.Graph.from_edges([(0, 1), (1, 2), (2, 0), (2, 3)])
    >>> vectors = fg.baselines.netmf(graph, 2, window=2)
    >>> vectors.shape, bool(vectors[0] @ vectors[1] > vectors[0] @ vectors[3])
    ((4, 2), True)
    """
    _check(graph, variant, negative, max_memory)
    T, n = integer("window", window, least=1), graph.num_nodes
    rank = integer("rank", rank, least=1, most=n)
    h = min(integer("eigenpairs", eigenpairs, least=1), n)
    seed = integer("seed", seed, least=0, most=LARGEST_SEED)
    walks = _Walks(graph, T, graph.degrees.sum() / float(negative))
    if variant == "exact":
        _refuse_above(max_memory, _DENSE_ITEM * n * n, f"the {n}×{n} matrix")
    rows = walks.exact_rows() if variant == "exact" else walks.eigen_rows(h, seed)
    dense = _DENSE_ITEM * n * n <= max_memory  # of few eigenpairs most entries are above 1
    logarithms: Any = _dense(rows, n, progress) if dense else _sparse(rows, n, max_memory, progress)
    U, s, _ = fsvd(logarithms, rank, seed=seed)
    # What rounding leaves of rows of zeros is taken away.
    return np.where(graph.degrees[:, None] > 0, U * np.sqrt(s), np.float32(0))


def _check(graph: Graph, variant: str, negative: float, max_memory: int) -> None:
    if variant not in ("exact", "eigen"):
        raise ArgumentError(f'variant must be "exact" or "eigen", got {shown(variant)}')
    if graph.directed:
        raise ArgumentError(
            "NetMF is defined for undirected graphs; build the graph with directed=False to forget directions"
        )
    number = isinstance(negative, int | float | np.floating) and not isinstance(negative, bool)
    if not number or not 0 < negative < math.inf:
        raise ArgumentError(f"negative must be a number above 0, got {shown(negative)}")
    integer("max_memory", max_memory, least=1)


def _refuse_above(limit: int, needed: int, what: str) -> None:
    if needed > limit:
        raise ArgumentError(
            f"{what} of NetMF takes {format_bytes(needed)}, max_memory is {format_bytes(limit)}; "
            'raise max_memory, or use variant="eigen", fewer nodes or a larger negative'
        )


@dataclass(frozen=True, eq=False)
class _Walks:
    """The matrix M of a graph, row by row. It is symmetric: its rows are its columns."""

    graph: Graph
    window: int
    factor: float  # vol / b

    def exact_rows(self) -> Rows:
        walk = Polynomial(transition(self.graph, dtype=np.float32), [1.0] * self.window)
        scale = self.factor / self.window * _inverse_degrees(self.graph)

        def rows(block: slice) -> Array:
            start = np.zeros((self.graph.num_nodes, block.stop - block.start), np.float32)
            start[block] = np.diag(scale[block])
            return np.asarray((walk @ start).T)

        return rows

    def eigen_rows(self, eigenpairs: int, seed: int) -> Rows:
        values, U = _largest_eigenpairs(self.graph, eigenpairs, seed)
        scaled = degree_scaling(self.graph, -0.5) @ U
        half = (scaled * np.sqrt(self.factor * window_filter(values, self.window))).astype(np.float32)
        return lambda block: np.asarray(half[block] @ half.T)


def _inverse_degrees(graph: Graph) -> Array:
    d = graph.degrees
    return np.divide(1.0, d, out=np.zeros_like(d), where=d > 0)


def window_filter(values: Array, window: int) -> Array:
    """f(λ) = (λ + λ² + … + λ^T)/T for eigenvalues of a walk, clipped below at 0.

    >>> from fastgrl.baselines.netmf import window_filter
    >>> window_filter(np.array([1.0, 0.5, -0.5]), 2)
    array([1.   , 0.375, 0.   ])
    """
    x = np.clip(np.asarray(values, np.float64), -1.0, 1.0)  # rounding may put the largest above 1
    return np.maximum(np.polynomial.polynomial.polyval(x, [0.0] + [1.0 / window] * window), 0.0)


def _largest_eigenpairs(graph: Graph, count: int, seed: int) -> tuple[Array, Array]:
    """The algebraically largest eigenvalues of D^-½AD^-½, and their vectors as columns."""
    S, n = symmetric(graph), graph.num_nodes
    if 2 * count >= n:  # Lanczos is of no use for so many
        values, U = np.linalg.eigh(S @ np.eye(n))
        return values[-count:], U[:, -count:]
    start = np.random.Generator(np.random.Philox(seed)).standard_normal(n)
    product = LinearOperator((n, n), lambda x: S @ x.reshape(n, 1))
    # Half as many spare vectors as pairs take half the time of ARPACK's own choice on graphs.
    spare = count + max(20, count // 2)
    with single_threaded_blas():  # the same bits for any number of threads
        return eigsh(product, count, which="LA", v0=start, ncv=min(spare, n), tol=_EIGEN_TOLERANCE)


def _blocks(n: int, progress: Progress | None) -> Iterator[slice]:
    for first in range(0, n, _BLOCK_ROWS):
        last = min(first + _BLOCK_ROWS, n)
        yield slice(first, last)
        if progress is not None:
            progress(last, n)


def _dense(rows: Rows, n: int, progress: Progress | None) -> Array:
    logarithms = np.empty((n, n), np.float32)
    for block in _blocks(n, progress):
        np.log(np.maximum(rows(block), 1), out=logarithms[block])
    return logarithms


def _sparse(rows: Rows, n: int, max_memory: int, progress: Progress | None) -> sp.csr_array:
    """The logarithms of entries above 1. How many there are is seen only on the way."""
    values: list[Array] = []
    columns: list[Array] = []
    counts, found = np.zeros(n + 1, np.int64), 0
    for block in _blocks(n, progress):
        M = rows(block)
        kept = M > 1
        values.append(np.log(M[kept]))
        columns.append(np.nonzero(kept)[1].astype(np.int32))
        counts[block.start + 1 : block.stop + 1] = kept.sum(1)
        found += len(values[-1])
        _refuse_above(max_memory, _SPARSE_ITEM * found, f"the matrix up to row {block.stop} of {n}")
    return sp.csr_array((np.concatenate(values), np.concatenate(columns), np.cumsum(counts)), shape=(n, n))
