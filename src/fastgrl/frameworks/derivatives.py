"""The derivative of a truncated SVD, by one linear system instead of through the iteration.

With Z = M V and Z' = M'U, where U and V are held fixed, all that a change dM does to the factors is in
dZ = dM V and dZ' = dM'U. For cotangents Ū, s̄, V̄ the rule below gives those of Z and Z'; what M is made of
is left to the library that multiplied, so functions of the user's own are differentiated as well.

Within the kept subspace, with P = U'Ū, Q = V'V̄, A = P − P' and B = Q − Q', the cotangent of U'M V is

    diag(s̄) + ½ (A + B)_ij / (σ_j − σ_i) + ½ (A − B)_ij / (σ_j + σ_i)    for i ≠ j.

Of functions of UΣV', such as scores, A + B is (σ_j − σ_i) C with C_ij = (P + P' + Q + Q')_ij / (σ_j + σ_i),
so the first fraction is computed as C + (A + B − (σ_j − σ_i) C)_ij / (σ_j − σ_i), and its second part left
out where the numerator is rounding, or the denominator. The rule is then exact for scores and for sums of
singular values, equal or not; what equal values do to other functions is not in Ū and V̄.
Outside of the subspace, with N = (I − UU') M (I − VV'), each column of the remainder solves

    σ_i p − N q = (I − UU') ū_i,    σ_i q − N'p = (I − VV') v̄_i

by conjugate gradients on (σ_i² − NN') p = σ_i x + N y. That is positive definite if σ_i > σ_{k+1}: the
condition for a derivative, besides triplets that have converged. Squares are kept from overflow: M and σ are
divided by σ_1, as the results then are, and each column by its largest entries.

Reference: Townsend, *Differentiating the singular value decomposition*, 2016; Wan, Zhang, *Automatic
differentiation for complex valued SVD*, 2019.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, NoReturn

from fastgrl.errors import FastgrlError
from fastgrl.seams import Block

# Singular values, and differences of them, of no more than this many eps of the largest are zero.
_NOTHING = 100.0
# Sums of products are nothing but rounding below this many eps of the sum of absolute values.
_ROUNDING = 4.0
MOST_STEPS = 500


@dataclass(frozen=True)
class Arithmetic:
    """What the rule needs of a library, differentiated or not."""

    matmul: Callable[[Block, Block], Block]
    transposed: Callable[[Block], Block]
    where: Callable[[Any, Any, Any], Any]
    sums: Callable[[Block], Any]  # over rows, one number for each column
    largest: Callable[[Any], Any]  # of all entries, 0 of none
    peaks: Callable[[Block], Any]  # the largest absolute entry of each column
    diagonal: Callable[[Any], Any]  # a matrix
    # (unfinished, step, state): step while unfinished and at most `MOST_STEPS` times
    repeat: Callable[[Callable[[Any], Any], Callable[[Any], Any], Any], Any]


@dataclass(frozen=True)
class Factorised:
    """M ≈ U diag(s) V' and the two products of M, as constants."""

    U: Block
    s: Any
    V: Block
    forward: Callable[[Block], Block]
    backward: Callable[[Block], Block]
    eps: float


def refuse_second_derivative() -> NoReturn:
    """What is done when the rule itself is to be differentiated: it holds U, s and V fixed."""
    raise FastgrlError("fsvd has first derivatives only: its gradient cannot be differentiated again")


def refuse_forward_mode() -> NoReturn:
    """What is done with tangents, for which there is no rule."""
    raise FastgrlError(
        "fsvd has derivatives in reverse mode only: use backward, or grad, instead of tangents"
    )


def product_cotangents(
    ops: Arithmetic, at: Factorised, U_bar: Block, s_bar: Any, V_bar: Block
) -> tuple[Block, Block]:
    """The cotangents of Z = M V and of Z' = M'U."""
    size = ops.largest(at.s)
    size = ops.where(size > 0, size, 0 * size + 1)
    at = _divided(at, size)
    p, q = _outside(ops, at, _rest(ops, at.U, U_bar), _rest(ops, at.V, V_bar))
    inside = ops.diagonal(s_bar) + _within(ops, at, U_bar, V_bar) / size
    return ops.matmul(at.U, inside) + p / size, q / size


def _divided(at: Factorised, size: Any) -> Factorised:
    """The same of M / size."""
    return replace(
        at, s=at.s / size, forward=lambda X: at.forward(X) / size, backward=lambda X: at.backward(X) / size
    )


def _within(ops: Arithmetic, at: Factorised, U_bar: Block, V_bar: Block) -> Block:
    """The cotangent of U'M V beside its diagonal."""
    P, Q = ops.matmul(ops.transposed(at.U), U_bar), ops.matmul(ops.transposed(at.V), V_bar)
    A, B = (X - ops.transposed(X) for X in (P, Q))
    difference, total = at.s[None, :] - at.s[:, None], at.s[None, :] + at.s[:, None]
    together = _inverse(ops, total, _NOTHING * at.eps)
    shared = (P + Q + ops.transposed(P + Q)) * together * (1 - ops.diagonal(0 * at.s + 1))
    others = A + B - difference * shared
    noise = _ROUNDING * at.eps * (_absolute(ops, at.U, U_bar) + _absolute(ops, at.V, V_bar))
    others = ops.where(abs(others) <= noise, 0 * others, others)
    apart = shared + others * _inverse(ops, difference, _NOTHING * at.eps)
    return (apart + (A - B) * together) / 2


def _absolute(ops: Arithmetic, X: Block, Y: Block) -> Block:
    """X'Y + Y'X of absolute values."""
    product = ops.matmul(ops.transposed(abs(X)), abs(Y))
    return product + ops.transposed(product)


def _inverse(ops: Arithmetic, values: Any, floor: Any) -> Any:
    """1 / values, and 0 for those that are nothing but rounding."""
    nothing = abs(values) <= floor
    return ops.where(nothing, 0 * values, 1 / ops.where(nothing, 0 * values + 1, values))


def _rest(ops: Arithmetic, Q: Block, X: Block) -> Block:
    """(I − QQ')X."""
    return X - ops.matmul(Q, ops.matmul(ops.transposed(Q), X))


def _outside(ops: Arithmetic, at: Factorised, x: Block, y: Block) -> tuple[Block, Block]:
    """The p and q of the system above, all columns at once; zero for singular values that are zero."""
    inverse = _inverse(ops, at.s, _NOTHING * at.eps)
    peaks = ops.peaks(x) + ops.peaks(y)
    peaks = ops.where(peaks > 0, peaks, 0 * peaks + 1)
    x, y = x / peaks, y / peaks

    def N(X: Block) -> Block:
        return _rest(ops, at.U, at.forward(_rest(ops, at.V, X)))

    def Nt(X: Block) -> Block:
        return _rest(ops, at.V, at.backward(_rest(ops, at.U, X)))

    def apply(P: Block) -> Block:
        return P - N(Nt(P)) * (inverse * inverse)

    p = _solved(ops, apply, (x + N(y) * inverse) * inverse, at.eps)
    return p * peaks, (y + Nt(p)) * inverse * peaks


def _solved(ops: Arithmetic, apply: Callable[[Block], Block], right: Block, eps: float) -> Block:
    """Conjugate gradients, one system for each column, until every residual is at rounding."""
    scale = ops.sums(right * right)
    enough = scale * (10 * eps) ** 2

    def unfinished(state: Any) -> Any:
        return ops.largest(ops.where(state[3] > enough, 0 * enough + 1, 0 * enough)) > 0

    def step(state: Any) -> Any:
        p, residual, direction, rho = state
        image = apply(direction)
        curvature = ops.sums(direction * image)
        going = (rho > enough) & (curvature > 0)
        alpha = ops.where(going, rho / ops.where(going, curvature, 0 * rho + 1), 0 * rho)
        p, residual = p + alpha * direction, residual - alpha * image
        after = ops.where(going, ops.sums(residual * residual), 0 * rho)
        beta = ops.where(going, after / ops.where(going, rho, 0 * rho + 1), 0 * rho)
        return p, residual, residual + beta * direction, after

    return ops.repeat(unfinished, step, (0 * right, right, right, scale))[0]
