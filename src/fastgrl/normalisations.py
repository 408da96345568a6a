"""The graph's matrices as operators. All of them share the graph's one pattern.

Rows of nodes without edges are zero, as if 1/0 were 0. Weighted graphs get scaled values of their own (in
one step, so that weights of any size stay in range), unweighted ones only a diagonal.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from fastgrl.checks import Array, checked_dtype
from fastgrl.errors import ArgumentError
from fastgrl.graph import Graph
from fastgrl.kernels import CSR, RowsElsewhere
from fastgrl.leaves import Diagonal, Identity, Matrix
from fastgrl.linalg import seam_of
from fastgrl.operators import Operator
from fastgrl.spilling import release, row_ranges, scratch_array


def adjacency(graph: Graph, *, dtype: Any = np.float64) -> Operator:
    """A, the adjacency matrix.

    >>> adjacency(fg.Graph.from_codes([0], [1])) @ np.eye(2)
    array([[0., 1.], [1., 0.]])
    """
    if graph.weights is None:
        return Matrix(graph.csr, name="A")
    return _valued(graph, dtype, "A")


def transition(graph: Graph, *, dtype: Any = np.float64) -> Operator:
    """T = D⁻¹A, the matrix of one step of a random walk, as an operator of type `dtype`.

    D holds the row sums of A; rows of nodes without edges are zero.

    >>> graph = fg.Graph.from_edges([("a", "b"), ("b", "c")])
    >>> fg.transition(graph) @ np.eye(3)
    array([[0. , 1. , 0. ], [0.5, 0. , 0.5], [0. , 1. , 0. ]])
    """
    inverse = _power(graph.degrees, -1.0)
    if graph.weights is None:
        return Matrix(graph.csr, row_scale=inverse.astype(_float(dtype)), name="T")
    return _valued(graph, dtype, "T", left=inverse)


def symmetric(graph: Graph, *, dtype: Any = np.float64) -> Operator:
    """S = D^-½ A D^-½, the symmetrically normalised adjacency matrix, as an operator of type `dtype`.

    A directed graph has row degrees on the left and column degrees on the right. Rows of nodes without edges
    are zero.

    >>> fg.symmetric(fg.Graph.from_edges([("a", "b"), ("b", "c")])) @ np.eye(3)[:, :1]
    array([[0.        ], [0.70710678], [0.        ]])
    """
    left, right = _power(graph.degrees, -0.5), _power(graph.in_degrees, -0.5)
    return _two_sided(graph, left, right, dtype)


def renormalised(graph: Graph, *, dtype: Any = np.float64) -> Operator:
    """Â = (D+I)^-½ (A+I) (D+I)^-½, as S but with a self loop added to every node, of type `dtype`.

    A directed graph has row degrees on the left and column degrees on the right.

    >>> fg.renormalised(fg.Graph.from_codes([0], [1])) @ np.eye(2)
    array([[0.5, 0.5], [0.5, 0.5]])
    """
    left, right = (1 + graph.degrees) ** -0.5, (1 + graph.in_degrees) ** -0.5
    kind = _float(dtype)
    if graph.weights is None:
        outer, inner = Diagonal(left.astype(kind)), Diagonal(right.astype(kind))
        product: Operator = outer @ (Matrix(graph.csr, name="A") + Identity(graph.num_nodes)) @ inner
        return product
    return _two_sided(graph, left, right, dtype) + Diagonal((left * right).astype(kind))


def degree_scaling(graph: Graph, power: float, *, dtype: Any = np.float64) -> Operator:
    """D^power as a diagonal operator; nodes without edges give 0.

    >>> degree_scaling(fg.Graph.from_codes([0, 0], [1, 2]), -0.5) @ np.ones((3, 1))
    array([[0.70710678], [1.        ], [1.        ]])
    """
    if not np.isfinite(power):
        raise ArgumentError(f"power must be finite, got {power!r}")
    return Diagonal(_power(graph.degrees, power).astype(_float(dtype)))


def _float(dtype: Any) -> np.dtype[Any]:
    kind = checked_dtype(dtype)
    if kind is None:
        raise ArgumentError("dtype must be float32 or float64")
    return kind


def _power(degrees: Any, power: float) -> Any:
    """degrees^power, where zero gives zero."""
    return seam_of(degrees).elementwise(functools.partial(power_or_zero, power=power), degrees)


def power_or_zero(values: Array, power: float) -> Array:
    """values^power, where zero gives zero.

    >>> power_or_zero(np.array([4.0, 0.0]), -0.5)
    array([0.5, 0. ])
    """
    return np.power(values, power, out=np.zeros_like(values), where=values > 0)


def _two_sided(graph: Graph, left: Array, right: Array, dtype: Any) -> Operator:
    kind = _float(dtype)
    if graph.weights is None:
        product: Operator = Matrix(graph.csr, row_scale=left.astype(kind), name="(D^-½A)") @ Diagonal(
            right.astype(kind)
        )
        return product
    return _valued(graph, dtype, "S", left=left, right=right)


def _valued(
    graph: Graph, dtype: Any, name: str, *, left: Array | None = None, right: Array | None = None
) -> Operator:
    kind, n = _float(dtype), graph.num_nodes
    rows: CSR | RowsElsewhere = graph.csr
    if isinstance(rows, RowsElsewhere):
        return Matrix(rows.scaled(kind, left=left, right=right), name=name)
    values = scaled_weights(graph, kind, left=left, right=right)
    return Matrix(CSR(graph.indptr, graph.indices, values, (n, n), kind), name=name)


def scaled_weights(
    graph: Graph, kind: np.dtype[Any], *, left: Array | None = None, right: Array | None = None
) -> Array:
    """The weights of `diag(left) A diag(right)`, a range of rows at a time and on disk if those of A are."""
    assert graph.weights is not None
    if left is None and right is None and graph.weights.dtype == kind:
        return graph.weights
    values = scratch_array(graph.weights.shape, kind)
    for first, last in row_ranges(graph.indptr, 3 * graph.weights.itemsize):
        begin, end = int(graph.indptr[first]), int(graph.indptr[last])
        part = graph.weights[begin:end]
        if left is not None:
            part = part * np.repeat(left[first:last], np.diff(graph.indptr[first : last + 1]))
        values[begin:end] = part if right is None else part * right[graph.indices[begin:end]]
        for array in (graph.weights, graph.indices, values):
            release(array, begin, end)
    return values
