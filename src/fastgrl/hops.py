"""Features of a node's surroundings, hop by hop: [Z, SZ, …, S^L Z], never put side by side in memory."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from fastgrl.checks import Array, common_dtype, integer
from fastgrl.errors import ShapeError
from fastgrl.leaves import Function
from fastgrl.operators import Operator, as_operator

Reduce = Callable[[Array], Array]


def hop_matrix(S: Any, Z: Any, hops: int) -> Operator:
    """M = [Z, SZ, …, S^L Z] for an n×n S and an n×d Z, implicit both: n×(L+1)d, L = `hops`.

    M W = ZW₀ + S(ZW₁ + S(ZW₂ + …)) and M'Q = [Z'Q; Z'S'Q; Z'S'²Q; …], so that a block of k columns costs L
    products with S and L + 1 with Z, forwards and backwards.

    >>> swap = np.array([[0.0, 1.0], [1.0, 0.0]])
    >>> hop_matrix(swap, np.array([[1.0], [2.0]]), 2) @ np.eye(3)
    array([[1., 2., 1.], [2., 1., 2.]])
    """
    S, Z, L = as_operator(S), as_operator(Z), integer("hops", hops, least=0)
    if S.shape[0] != S.shape[1] or S.shape[1] != Z.shape[0]:
        raise ShapeError(f"hops need a square S with a row for each row of Z, got {S!r} and {Z!r}")
    (n, d), back, down = Z.shape, S.T, Z.T

    def forward(W: Array) -> Array:
        Y = Z @ W[L * d :]
        for hop in reversed(range(L)):
            Y = S @ Y + Z @ W[hop * d : (hop + 1) * d]
        return np.asarray(Y)

    def backward(Q: Array) -> Array:
        blocks = [down @ Q]
        for _ in range(L):
            Q = back @ Q
            blocks.append(down @ Q)
        return np.concatenate(blocks)

    dtype = common_dtype(f"{S!r} and {Z!r}", S.dtype, Z.dtype)
    return Function((n, (L + 1) * d), forward, backward, dtype, _formula(L))


def _formula(hops: int) -> str:
    names = ["Z", "SZ", *(["S²Z"] if hops < 3 else ["…", f"S^{hops} Z"])]
    return f"[{', '.join(names[: hops + 1] if hops < 3 else names)}]"


def hop_grams(
    S: Operator,
    blocks: Iterable[tuple[Array, float]],
    *,
    reduce: Reduce,
    lead: int,
    hops: Sequence[int],
) -> Array:
    """Σ_l (R S^l Z)(R S^l Z)' up to each L of the increasing `hops`, in one pass: len(hops)×r×`lead`.

    `reduce` is H ↦ R H, which leaves r rows of an n×c block (chosen nodes, or coordinates in a basis); of the
    r×r matrices the first `lead` columns are kept. Z comes in `blocks` of columns with the sign that
    their products are added with.

    >>> rows = lambda H: H[:1]
    >>> hop_grams(fg.Identity(2), [(np.eye(2), 1.0)], reduce=rows, lead=1, hops=(0, 2)).ravel()
    array([1., 3.])
    """
    grams: list[Array | float] = [0.0] * len(hops)
    for block, sign in blocks:
        H, done = block, -1
        for place, hop in enumerate(hops):
            while done < hop:
                H = S @ H if done >= 0 else H
                kept = reduce(H)
                grams[place] = grams[place] + sign * (kept @ kept[:lead].T)
                done += 1
    return np.cumsum(np.asarray(grams), axis=0)
