"""Weighted ridge regression with an unpenalised bias, in closed form."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.linalg import lapack

from fastgrl.checks import Array
from fastgrl.devices import current_place
from fastgrl.linalg import map_chunks, sum_over_chunks


@dataclass(frozen=True, eq=False)
class RidgeFit:
    """P = (Z − 1μ')W + 1q' for coefficients W (k×C), mean μ (k) and bias q (C), in float64."""

    coefficients: Array
    mean: Array
    bias: Array

    def scores(self, Z: Array) -> Array:
        """P, n×C, in the type of Z."""
        W = self.coefficients.astype(Z.dtype)
        constant = (self.bias - self.mean @ self.coefficients).astype(Z.dtype)
        place = current_place()
        if place is not None:
            return place.host(place.seam.times(place.kept(Z), W) + place.small(constant))
        out = np.empty((len(Z), W.shape[1]), Z.dtype)

        def rows(begin: int, end: int) -> None:
            np.matmul(Z[begin:end], W, out=out[begin:end])
            out[begin:end] += constant

        map_chunks(rows, len(Z), Z.size * W.shape[1])
        return out


def weighted_ridge(Z: Array, weights: Array, Q: Array, *, ridge: float) -> RidgeFit:
    """W = (Z'diag(w)Z − μμ' + γI)⁻¹(Z'diag(w)Q − μq'), with μ = Z'w, q = Q'w and w made to sum to 1.

    Nodes of weight 0 play no part. Products of chunks are in the type of Z, their sums in float64.

    >>> solution = weighted_ridge(np.array([[0.0], [1.0]]), np.ones(2), np.array([[0.0], [1.0]]), ridge=0.0)
    >>> solution.scores(np.array([[3.0]]))
    array([[3.]])
    """
    used = np.flatnonzero(weights)
    if 2 * len(used) < len(weights):  # else a copy would cost more than the rows it spares
        Z, weights, Q = Z[used], weights[used], Q[used]
    w = np.asarray(weights / weights.sum(), np.float64)
    bias = sum_over_chunks(lambda a, b: w[a:b] @ Q[a:b].astype(np.float64), len(Q), Q.size)
    return solved(_moments(Z, w, Q), bias, ridge=ridge)


def solved(moments: Array, bias: Array, *, ridge: float) -> RidgeFit:
    """The fit from [Z'diag(w)Z, Z'w, Z'diag(w)Q] and Q'w, for weights that sum to 1."""
    k = len(moments)
    gram, mean, cross = moments[:, :k], moments[:, k], moments[:, k + 1 :]
    matrix = gram - np.outer(mean, mean)
    matrix[np.diag_indices(k)] += ridge
    return RidgeFit(_solve(matrix, cross - np.outer(mean, bias)), mean, bias)


def _moments(Z: Array, w: Array, Q: Array) -> Any:
    """[Z'diag(w)Z, Z'w, Z'diag(w)Q], k×(k+1+C)."""
    root = np.sqrt(w).astype(Z.dtype)[:, None]
    place = current_place()
    if place is not None:
        r = place.put(root)
        z, q = place.kept(Z) * r, place.put(Q.astype(Z.dtype, copy=False)) * r
        return place.seam.cross(z, place.seam.concatenate([z, r, q], 1))

    def term(begin: int, end: int) -> Array:
        return moments_of(Z[begin:end], root[begin:end], Q[begin:end])

    return sum_over_chunks(term, len(Z), Z.size * (Z.shape[1] // 2 + Q.shape[1]))


def moments_of(Z: Array, root: Array, Q: Array) -> Array:
    """The moments of some rows, weighted by the squares of `root`, a column."""
    z = Z * root
    right = np.concatenate([root, Q * root], axis=1, dtype=Z.dtype)
    return np.concatenate([z.T @ z, z.T @ right], axis=1).astype(np.float64)


def _solve(matrix: Array, right: Array) -> Array:
    """Cholesky, and least squares where rounding has left the matrix without a positive eigenvalue."""
    _, solved, failed = lapack.dposv(matrix, right, lower=1)
    if failed:
        return np.asarray(np.linalg.lstsq(matrix, right, rcond=None)[0])
    return np.asarray(solved)
