"""Features of a node's surroundings, hop by hop: [Z, SZ, …, S^L Z], never put side by side in memory."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fastgrl.checks import Array, common_dtype, integer
from fastgrl.devices import current_place
from fastgrl.errors import ShapeError
from fastgrl.linalg import seam_of
from fastgrl.operators import Operator, as_operator, settle

Reduce = Callable[[Array], Array]


def hop_matrix(S: Any, Z: Any, hops: int) -> Operator:
    """M = [Z, SZ, …, S^L Z] for an n×n S and an n×d Z, implicit both: n×(L+1)d, L = `hops`.

    M W = ZW₀ + S(ZW₁ + S(ZW₂ + …)) and M'Q = [Z'Q; Z'S'Q; Z'S'²Q; …], so that a block of k columns costs L
    products with S and L + 1 with Z, forwards and backwards.

    >>> swap = np.array([[0.0, 1.0], [1.0, 0.0]])
    >>> hop_matrix(swap, np.array([[1.0], [2.0]]), 2) @ np.eye(3)
    array([[1., 2., 1.], [2., 1., 2.]])
    """
    return _Hops(as_operator(S), as_operator(Z), integer("hops", hops, least=0))


@dataclass(frozen=True, eq=False, repr=False)
class _Hops(Operator):
    """[Z, SZ, …, S^L Z]."""

    S: Operator
    Z: Operator
    hops: int

    def __post_init__(self) -> None:
        S, Z = self.S, self.Z
        if S.shape[0] != S.shape[1] or S.shape[1] != Z.shape[0]:
            raise ShapeError(f"hops need a square S with a row for each row of Z, got {S!r} and {Z!r}")
        dtype = common_dtype(f"{S!r} and {Z!r}", S.dtype, Z.dtype)
        shape = (Z.shape[0], (self.hops + 1) * Z.shape[1])
        settle(self, shape=shape, dtype=dtype, formula=_formula(self.hops))

    def _multiply(self, W: Any) -> Any:
        d, L = self.Z.shape[1], self.hops
        Y = self.Z @ W[L * d :]
        for hop in reversed(range(L)):
            Y = self.S @ Y + self.Z @ W[hop * d : (hop + 1) * d]
        return Y

    @property
    def T(self) -> Operator:
        return _StackedHops(self.S.T, self.Z.T, self.hops)


@dataclass(frozen=True, eq=False, repr=False)
class _StackedHops(Operator):
    """[Z; ZS; …; ZS^L], the transpose of `_Hops` if S and Z are those of it transposed."""

    S: Operator
    Z: Operator
    hops: int

    def __post_init__(self) -> None:
        shape = ((self.hops + 1) * self.Z.shape[0], self.Z.shape[1])
        dtype = common_dtype(f"{self.S!r} and {self.Z!r}", self.S.dtype, self.Z.dtype)
        settle(self, shape=shape, dtype=dtype, formula=f"{_formula(self.hops)}'")

    def _multiply(self, Q: Any) -> Any:
        blocks = [self.Z @ Q]
        for _ in range(self.hops):
            Q = self.S @ Q
            blocks.append(self.Z @ Q)
        return seam_of(Q).concatenate(blocks, 0)

    @property
    def T(self) -> Operator:
        return _Hops(self.S.T, self.Z.T, self.hops)


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
    their products are added with. On another device the blocks that `reduce` gets, and returns, lie there.

    >>> rows = lambda H: H[:1]
    >>> hop_grams(fg.Identity(2), [(np.eye(2), 1.0)], reduce=rows, lead=1, hops=(0, 2)).ravel()
    array([1., 3.])
    """
    grams: list[Array | float] = [0.0] * len(hops)
    place = current_place()
    S = S if place is None else place.moved(S)
    for block, sign in blocks:
        H, done = block if place is None else place.put(block), -1
        for number, hop in enumerate(hops):
            while done < hop:
                H = S @ H if done >= 0 else H
                kept = reduce(H)
                gram = kept @ kept[:lead].T
                grams[number] = grams[number] + sign * (gram if place is None else place.host(gram))
                done += 1
    return np.cumsum(np.asarray(grams), axis=0)
