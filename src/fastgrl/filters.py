"""Low-pass filters of a graph: what nodes have, mixed with what their surroundings have."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from fastgrl.checks import Array
from fastgrl.devices import current_place
from fastgrl.filter_panels import Looped, smooth_columns
from fastgrl.graph import Graph
from fastgrl.kernels import CSR, csr_from_scipy
from fastgrl.operators import Operator, as_operator, settle
from fastgrl.spilling import release, row_ranges

STEPS = 25


def undirected(graph: Graph) -> Any:
    """The adjacency matrix as features flow: both ways, with weights of mean 1, whatever their unit."""
    A: Any = graph.to_scipy().astype(np.float64)
    if graph.directed:
        A = A + A.T
    if graph.weights is not None and A.nnz and (mean := np.abs(A.data).mean()) > 0:
        A.data /= mean
    return A


def flows(graph: Graph) -> CSR:
    """`undirected(graph)` as the kernels read it: the graph's own pattern wherever that will do."""
    if graph.directed:
        return csr_from_scipy(undirected(graph)).known_symmetric()
    if graph.weights is None:
        return graph.csr
    total = float(np.abs(graph.weights).sum())
    mean = total / len(graph.weights) if total > 0 else 1.0
    values = graph.weights / mean
    return CSR(graph.indptr, graph.indices, values, graph.csr.shape, values.dtype).known_symmetric()


def renormalised_matrix(A: Any, *, dtype: Any = np.float32) -> Looped:
    """Â = (D+I)^-½ (A+I) (D+I)^-½ of a symmetric A, a SciPy matrix or a `CSR`: one pass per product.

    >>> renormalised_matrix(scipy.sparse.csr_array([[0.0, 1.0], [1.0, 0.0]]), dtype="float64") @ np.eye(2)
    array([[0.5, 0.5], [0.5, 0.5]])
    """
    csr = A if isinstance(A, CSR) else csr_from_scipy(A)
    scale = looped_degrees(csr) ** -0.5
    return Looped(typed(csr, dtype), scale, scale, np.dtype(dtype), "Â")


def averaging_matrix(A: Any, *, dtype: Any = np.float32) -> Looped:
    """D̃⁻¹(A+I) of a symmetric A: the mean over a node and its neighbours.

    >>> averaging_matrix(scipy.sparse.csr_array([[0.0, 1.0], [1.0, 0.0]])) @ np.eye(2, dtype="float32")
    array([[0.5, 0.5], [0.5, 0.5]], dtype=float32)
    """
    csr = A if isinstance(A, CSR) else csr_from_scipy(A)
    return Looped(typed(csr, dtype), 1.0 / looped_degrees(csr), None, np.dtype(dtype), "T̃")


def looped_degrees(A: CSR) -> Array:
    """The row sums of A + I."""
    if A.values is None:
        return np.asarray(1.0 + np.diff(A.indptr))
    sums = np.empty(A.shape[0])
    for begin, end in row_ranges(A.indptr, A.values.itemsize):
        stored = slice(int(A.indptr[begin]), int(A.indptr[end]))
        rows = np.repeat(np.arange(end - begin), np.diff(A.indptr[begin : end + 1]))
        sums[begin:end] = np.bincount(rows, A.values[stored], end - begin)
        release(A.values, stored.start, stored.stop)
    return np.asarray(1.0 + sums)


def typed(A: CSR, dtype: Any) -> CSR:
    """A with values of that type, so that no product converts them."""
    if A.values is None or A.values.dtype == dtype:
        return A
    return CSR(A.indptr, A.indices, A.values.astype(dtype), A.shape, np.dtype(dtype)).known_symmetric()


def smoothed(S: Operator, B: Any, *, restart: float, steps: int = STEPS, overwrite: bool = False) -> Any:
    """g_a(S)B: H ← B, then `steps` times H ← (1−a) S H + aB, where a is `restart`.

    With `overwrite` the result may take the memory of B.

    >>> smoothed(fg.Identity(2), np.eye(2), restart=0.5, steps=3)
    array([[1., 0.], [0., 1.]])
    """
    place = current_place()
    if place is not None and isinstance(B, np.ndarray):
        there = place.put(B.astype(np.result_type(S.dtype or B.dtype, B.dtype), copy=False))
        return place.host(smoothed(place.moved(S), there, restart=restart, steps=steps))
    if isinstance(S, Looped) and isinstance(B, np.ndarray):
        kind = np.result_type(S.dtype, B.dtype)
        out = B if overwrite and B.dtype == kind and B.flags.c_contiguous else np.empty(B.shape, kind)
        return smooth_columns(S, B, restart=restart, steps=steps, out=out)
    kept = restart * B
    H = B
    for _ in range(steps):
        H = S @ H
        H *= 1 - restart
        H += kept
    return H


def filter_coefficients(restart: float, steps: int = STEPS) -> Array:
    """c_0..c_steps of g_a(S) = Σ c_l S^l: a(1−a)^l, and (1−a)^steps for the last.

    >>> filter_coefficients(0.5, 2)
    array([0.5 , 0.25, 0.25])
    """
    c = restart * (1 - restart) ** np.arange(steps + 1.0)
    c[steps] = (1 - restart) ** steps
    return c


@dataclass(frozen=True, eq=False, repr=False)
class Filter(Operator):
    """g_a(S) of a symmetric S, which is its own transpose.

    >>> Filter(fg.as_operator(np.eye(2)), 0.5, 3) @ np.ones((2, 1))
    array([[1.], [1.]])
    """

    S: Operator
    restart: float
    steps: int = STEPS

    def __post_init__(self) -> None:
        settle(self, shape=self.S.shape, dtype=self.S.dtype, formula=f"g({self.S.formula})")

    def _multiply(self, X: Any) -> Any:
        return smoothed(self.S, X, restart=self.restart, steps=self.steps)

    @property
    def T(self) -> Operator:
        return self


def filtered(S: Operator, F: Any, *, restart: float, steps: int = STEPS) -> Operator:
    """g_a(S)F as an operator, for a symmetric S: the filter is applied to blocks, never to F."""
    product: Operator = Filter(S, restart, steps) @ as_operator(F)
    return product
