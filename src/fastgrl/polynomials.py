"""Polynomials of a sparse matrix times a block: Horner's rule, with all that is added, in as few passes."""

from __future__ import annotations

from typing import Any

import numpy as np

from fastgrl.checks import Array
from fastgrl.kernels import CSR, RowsElsewhere, compiled_module, multiply, pass_over
from fastgrl.row_orders import Added, sorted_by_degree


def polynomial(
    matrix: CSR | RowsElsewhere,
    X: Any,
    coefficients: Array,
    *,
    row_scale: Any = None,
    walked: bool = True,
    extra: Any = None,
    post: Any = None,
    shift: Array | None = None,
) -> Any:
    """`diag(post) (Σ c_i T^(i-1) + diag(extra)) B + 1 shift'`, where T = diag(row_scale) matrix is square.

    B is T X, or X itself if not `walked`. By Horner's rule with one pass over the matrix for each power; all
    that is added goes along in these passes.

    >>> eye = fg.Matrix(scipy.sparse.eye_array(2, format="csr")).a
    >>> polynomial(eye, np.array([[1.0], [2.0]]), np.array([3.0, 2.0]), shift=np.array([-1.0]))
    array([[4.], [9.]])
    """
    if isinstance(matrix, RowsElsewhere):
        how = {"row_scale": row_scale, "walked": walked, "extra": extra, "post": post, "shift": shift}
        return matrix.polynomial(X, coefficients, **how)
    dtypes = [part.dtype for part in (X, matrix, row_scale) if part is not None and part.dtype is not None]
    dtype = np.result_type(*dtypes)
    X = np.ascontiguousarray(X, dtype=dtype)
    scale, extra, post, shift = (
        None if part is None else np.ascontiguousarray(part, dtype=dtype)
        for part in (row_scale, extra, post, shift)
    )
    added = Added(extra, post, shift)
    c = np.ascontiguousarray(coefficients, dtype=np.float64)
    if compiled_module() is None:
        B = multiply(matrix, X, row_scale=scale) if walked else X
        return _horner_by_scipy(matrix, B, c, scale, added)

    def by_rows(matrix: CSR, X: Array, scale: Array | None, added: Added) -> Array:
        B = multiply(matrix, X, row_scale=scale) if walked else X
        return _horner_by_rows(matrix, B, c, scale, added)

    return sorted_by_degree(matrix, X, scale, added, by_rows)


def _horner_by_rows(matrix: CSR, B: Array, c: Array, scale: Array | None, added: Added) -> Array:
    *lower, highest = c.tolist()
    if not lower:
        return finished(highest * B, B, added)
    Z: Array = highest * B
    work = np.empty_like(B)
    for power, coefficient in reversed(list(enumerate(lower))):
        step(matrix, scale, Z, B, coefficient, added if power == 0 else None, out=work)
        Z, work = work, Z
    return Z


def _horner_by_scipy(matrix: CSR, B: Array, c: Array, scale: Array | None, added: Added) -> Array:
    *lower, highest = c.tolist()
    Z = highest * B
    for coefficient in reversed(lower):
        Z = step(matrix, scale, Z, B, coefficient, None)
    return finished(Z, B, added)


def step(
    matrix: CSR,
    scale: Array | None,
    Z: Array,
    B: Array,
    coefficient: float,
    added: Added | None,
    out: Array | None = None,
) -> Array:
    """One step of Horner's rule, `T Z + coefficient B`, and after the last what is `added` besides.

    Some rows of T will do, with the same rows of B, of the scale and of what is added.
    """
    if compiled_module() is None:
        Y: Array = multiply(matrix, Z, row_scale=scale)
        Y += coefficient * B
        return Y if added is None else finished(Y, B, added)
    Y = np.empty((matrix.shape[0], Z.shape[1]), Z.dtype) if out is None else out
    last = {} if added is None else added.columns(0, B.shape[1])
    pass_over(matrix, scale, Z, Y, b=B, coefficient=coefficient, **last)
    return Y


def finished(Z: Array, B: Array, added: Added) -> Array:
    """`diag(post) (Z + diag(extra) B) + 1 shift'`, in the memory of Z."""
    if added.extra is not None:
        Z += added.extra[:, None] * B
    if added.post is not None:
        Z *= added.post[:, None]
    if added.shift is not None:
        Z += added.shift
    return Z
