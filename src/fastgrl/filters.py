"""Low-pass filters of a graph: what nodes have, mixed with what their surroundings have."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp

from fastgrl.checks import Array
from fastgrl.graph import Graph
from fastgrl.leaves import Function, Matrix
from fastgrl.operators import Operator, as_operator

STEPS = 25


def undirected(graph: Graph) -> Any:
    """The adjacency matrix as features flow: both ways, with weights of mean 1, whatever their unit."""
    A: Any = graph.to_scipy().astype(np.float64)
    if graph.directed:
        A = A + A.T
    if graph.weights is not None and A.nnz and (mean := np.abs(A.data).mean()) > 0:
        A.data /= mean
    return A


def renormalised_matrix(A: Any, *, dtype: Any = np.float32) -> Operator:
    """Â = (D+I)^-½ (A+I) (D+I)^-½ with stored values: one pass per product.

    >>> renormalised_matrix(scipy.sparse.csr_array([[0.0, 1.0], [1.0, 0.0]])) @ np.eye(2, dtype="float32")
    array([[0.5, 0.5], [0.5, 0.5]], dtype=float32)
    """
    looped, degrees = _with_loops(A)
    scale = degrees**-0.5
    rows = np.repeat(scale, np.diff(looped.indptr))
    looped.data = (looped.data * rows * scale[looped.indices]).astype(dtype)
    return Matrix(looped, name="Â")


def averaging_matrix(A: Any) -> Operator:
    """D̃⁻¹(A+I): the mean over a node and its neighbours.

    >>> averaging_matrix(scipy.sparse.csr_array([[0.0, 1.0], [1.0, 0.0]])) @ np.eye(2, dtype="float32")
    array([[0.5, 0.5], [0.5, 0.5]], dtype=float32)
    """
    looped, degrees = _with_loops(A)
    looped.data = (looped.data / np.repeat(degrees, np.diff(looped.indptr))).astype(np.float32)
    return Matrix(looped, name="T̃")


def _with_loops(A: Any) -> tuple[Any, Array]:
    looped: Any = sp.csr_array(A + sp.eye_array(A.shape[0], format="csr"))
    looped.sort_indices()
    return looped, np.asarray(looped.sum(axis=1)).ravel()


def smoothed(S: Operator, B: Array, *, restart: float, steps: int = STEPS) -> Array:
    """g_a(S)B: H ← B, then `steps` times H ← (1−a) S H + aB, where a is `restart`.

    >>> smoothed(fg.Identity(2), np.eye(2), restart=0.5, steps=3)
    array([[1., 0.], [0., 1.]])
    """
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


def filtered(S: Operator, F: Any, *, restart: float, steps: int = STEPS) -> Operator:
    """g_a(S)F as an operator, for a symmetric S: the filter is applied to blocks, never to F."""
    base = as_operator(F)
    return Function(
        base.shape,
        lambda X: smoothed(S, base @ X, restart=restart, steps=steps),
        lambda Y: base.T @ smoothed(S, Y, restart=restart, steps=steps),
        S.dtype,
        f"g({S.formula}) X",
    )
