"""The one SVD behind a classifier of the paper's, and what follows from it for the labels."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from fastgrl.certificates import Certificate, certificate
from fastgrl.checks import Array
from fastgrl.devices import applied
from fastgrl.fsvd import fsvd
from fastgrl.hops import hop_matrix
from fastgrl.jkn_features import Space, released, released_columns
from fastgrl.jkn_sweeps import DUAL_LABELS, product_scores
from fastgrl.leaves import Diagonal, Identity, Matrix, Ones
from fastgrl.linear_parts import leave_one_out, solve
from fastgrl.node_models import HopBasis, LinearPart, NodeSettings, Targets
from fastgrl.operators import HStack, Operator

_PANEL_BYTES = 32 << 20
# Groups of labelled nodes that are left out in turn, each with a refit.
_REFITS = 50

_Answer = tuple[Array, Array, bool, Array]  # β, b, whether exact, scores without own labels


@dataclass(frozen=True, eq=False)
class Problem:
    """Â, Z and the labels to be explained by [Z, ÂZ, …, Â^L Z]."""

    S: Operator
    space: Space
    targets: Targets
    settings: NodeSettings

    def matrix(self, hops: int) -> Operator:
        """M, implicit; as released with a column of ones."""
        M = hop_matrix(self.S, self.space.operator, hops)
        return HStack([M, Ones((M.shape[0], 1))]) if self.space.again else M

    @property
    def of_all_rows(self) -> bool:
        """Whether the whole matrix is factorised, not only its labelled rows."""
        return self.settings.design == "jkn-text"

    @property
    def emphasis(self) -> Array:
        """One number per labelled node: 1 if all weigh the same."""
        return np.asarray(self.targets.weights * len(self.targets.labelled))

    @property
    def known(self) -> Array:
        """m×C labels; for the paper's product times the weight that a label has among the others."""
        Y = self.targets.known.astype(np.float64)
        return Y if self.settings.ridge is not None else self.emphasis[:, None] * Y

    def projection(self, V: Array, hops: int) -> Array:
        """Right vectors of M as weights on [X, L, R, 1] of each hop, (L+1, d', k)."""
        hop_rows = V[:-1] if self.space.again else V
        weights = np.stack([self.space.on_columns(block) for block in np.split(hop_rows, hops + 1)])
        if self.space.again:
            weights[0, -1] += V[-1]
        return weights


@dataclass(frozen=True, eq=False)
class Solved:
    """P = Zβ + 1b' with Z = Σ_l Â^l F Π_l over F = [X, L, R, 1].

    `exact` says whether the linear part that is kept gives the same scores, `left_out` is what labelled nodes
    score without their own label (m×C), and `certificate` is that of the SVD.
    """

    projection: Array
    coefficients: Array
    bias: Array
    exact: bool
    left_out: Array
    certificate: Certificate


def solve_jkn(problem: Problem, *, hops: int, rank: int) -> Solved:
    """Factorise M, or its labelled rows, and apply the pseudo-inverse (or a ridge) to the labels."""
    M = problem.matrix(hops)
    found = _factorised(problem, M, rank).trimmed()
    ridge, seed = problem.settings.ridge, problem.settings.seed
    scale = found.s if ridge is None else np.sqrt((found.s**2).sum() / M.shape[0])
    right = found.V / np.where(scale > 0, scale, 1.0)
    Z = _labelled_coordinates(problem, found, M, right)
    how = _by_ridge if ridge is not None else _by_text if problem.of_all_rows else _by_rows
    coefficients, bias, exact, left_out = how(problem, found, Z)
    measured = certificate(found.operator, (found.U, found.s, found.V.T), seed=seed)
    return Solved(problem.projection(right, hops), coefficients, bias, exact, left_out, measured)


@dataclass(frozen=True, eq=False)
class _Factorised:
    """M, or its labelled rows times the roots of their emphasis (`rows`, if they are few): ≈ U diag(s) V'."""

    operator: Operator
    U: Array
    s: Array
    V: Array
    rows: Array | None = None

    def trimmed(self) -> _Factorised:
        """Without directions that are zero, but with one at least, so that there is a column."""
        kept = self.s > 1e-7 * self.s.max(initial=0)
        kept[0] = True
        return replace(self, U=self.U[:, kept], s=self.s[kept], V=self.V[:, kept])


def _factorised(problem: Problem, M: Operator, rank: int) -> _Factorised:
    known, seed, design = problem.targets.labelled, problem.settings.seed, problem.settings.design
    if problem.of_all_rows:
        return _by_products(M, rank, seed=seed)
    root = np.sqrt(problem.emphasis)
    few = len(known) <= min(DUAL_LABELS, M.shape[1])
    rows = root[:, None] * _dense_rows(M, known) if few else None
    if rows is None or released(design):
        weighted: Operator = Diagonal(root) @ M[known] if rows is None else Matrix(rows)
        how: dict[str, Any] = {}
        if released(design):
            how = {"method": "subspace", "n_iter": 10, "block_size": released_columns(rank)}
        return replace(_by_products(weighted, rank, seed=seed, **how), rows=rows)
    U, s, Vt = np.linalg.svd(rows, full_matrices=False)
    return _Factorised(Matrix(rows), U[:, :rank], s[:rank], Vt[:rank].T, rows)


def _by_products(M: Operator, rank: int, **how: Any) -> _Factorised:
    U, s, Vt = fsvd(M, min(rank, *M.shape), check=False, **how)
    return _Factorised(M, U, s, Vt.T)


def _dense_rows(M: Operator, nodes: Array) -> Array:
    """M[nodes] as an array: M'E, a few columns of E at a time."""
    out = np.empty((len(nodes), M.shape[1]))
    width = max(16, _PANEL_BYTES // (8 * M.shape[0]))
    for begin in range(0, len(nodes), width):
        cut = nodes[begin : begin + width]
        unit = np.zeros((M.shape[0], len(cut)))
        unit[cut, np.arange(len(cut))] = 1
        out[begin : begin + width] = applied(M.T, unit).T
    return out


def _labelled_coordinates(problem: Problem, found: _Factorised, M: Operator, right: Array) -> Array:
    """(M W)[labelled], a few columns at a time where the rows are not at hand."""
    if found.rows is not None:
        return np.asarray(found.rows @ right / np.sqrt(problem.emphasis)[:, None])
    width = max(16, _PANEL_BYTES // (8 * M.shape[0]))
    cuts = [slice(begin, begin + width) for begin in range(0, right.shape[1], width)]
    labelled = problem.targets.labelled
    return np.concatenate([applied(M, np.ascontiguousarray(right[:, cut]))[labelled] for cut in cuts], axis=1)


def _by_ridge(problem: Problem, found: _Factorised, Z: Array) -> _Answer:
    del found
    basis = HopBasis(Identity(len(Z)), Z, np.ones(1), np.eye(Z.shape[1]), computed=(Z, np.ones(len(Z))))
    part = LinearPart(basis, problem.targets.weights, problem.known, problem.settings.ridge)
    solution = solve(part)
    W = solution.coefficients
    left_out = leave_one_out(part, np.arange(len(Z)), solution=solution)
    return W, solution.bias - solution.mean @ W, True, left_out


def _by_text(problem: Problem, found: _Factorised, Z: Array) -> _Answer:
    """U_𝒱'Y_𝒱: without its own label a node misses that term of the sum, and nothing else changes."""
    del found
    Y = problem.known
    W = Z.T @ Y
    own = np.einsum("ij,ij->i", Z, Z)[:, None] * Y
    return W, np.zeros(Y.shape[1]), True, Z @ W - own


def _by_rows(problem: Problem, found: _Factorised, Z: Array) -> _Answer:
    """U_k'Y_𝒱; Z_𝒱 is U_k as far as the SVD has converged."""
    Y, root = problem.known, np.sqrt(problem.emphasis)[:, None]
    W = found.U.T @ (Y / root)
    off = np.abs(Z @ (Z.T @ Y - W)).max(initial=0)
    exact = bool(off <= 1e-6 * max(1.0, np.abs(Y).max(initial=0)))
    return W, np.zeros(Y.shape[1]), exact, _left_out(problem, found, Y / root) / root


def _left_out(problem: Problem, found: _Factorised, Y: Array) -> Array:
    """Scores of rows without their labels: refits without the rows, or, of many rows, in the same directions.

    With h_i = ‖U_i‖² the latter is (P_i − h_i y_i) / (1 − h_i), the least-squares answer without row i.
    """
    if found.rows is None:
        share = np.einsum("ij,ij->i", found.U, found.U)[:, None]
        return np.asarray((found.U @ (found.U.T @ Y) - share * Y) / np.maximum(1 - share, 1e-6))
    K, rank, out = found.rows @ found.rows.T, len(found.s), np.zeros_like(Y)
    turns = np.random.Generator(np.random.Philox(problem.settings.seed)).permutation(len(Y)) % _REFITS
    for turn in np.unique(turns):
        away, rest = turns == turn, turns != turn
        if rest.any():
            out[away] = product_scores(K[np.ix_(rest, rest)], K[np.ix_(away, rest)], Y[rest], [rank])[0]
    return out
