"""Orthonormal columns by Gram matrices alone, measured rather than assumed.

Gram matrices are small, sum over rows in any library and on any number of workers, and leave the same bits
behind everywhere; Householder reflections do none of that.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from fastgrl.linalg import GROUP, PROBES
from fastgrl.seams import Basis, Block, Host, Seam

# What is left of a column after projection is rounding, and no direction, below this many eps.
_LOST = 32.0
# Inner products that are off by no more than this many eps, as measured, are not worth another round.
_ORTHONORMAL = 4.0
# A block that a round would magnify by more than this is taken apart instead, strongest directions first;
# directions are taken together while they are within the second factor of each other.
_LARGEST_GROWTH = 100.0
_TOGETHER = 1e4


def orthonormalise(
    seam: Seam, Y: Block, basis: Basis, *, width: int, fresh: Callable[[int], Block] | None
) -> tuple[Block, Host]:
    """`width` orthonormal columns, orthogonal to the basis Q, that span Y as far as it is independent of Q.

    Returns `(B, K)` with `Y = [Q, B] K`. A round of block Gram-Schmidt is one Gram of `[Q, Y]` against `Y`
    and one combination; the Gram of the remainder follows by Pythagoras. A second round is done unless
    B'B and a few random combinations of Q against B show nothing to mend. Columns that turn out to
    depend on Q or on each other are replaced by `fresh(count)` random ones, or dropped when it is None.
    """
    eps = float(np.finfo(seam.kind(Y)).eps)
    with np.errstate(over="ignore"):  # looked at right below
        C, G = _split_grams(seam, basis, Y)
    if not np.isfinite(G).all():
        raise FloatingPointError("the block contains NaN or Inf, or its squares overflow")
    size = np.sqrt(np.diag(G))
    R = _triangular(C, G, size, growth=_LARGEST_GROWTH)
    if R is None or width < Y.shape[1]:
        return _orthonormalise_carefully(seam, Y, basis, width=width, fresh=fresh, size=size.max(initial=0))
    inverse = np.linalg.inv(R)
    C = _without_rounding(C, inverse, _ORTHONORMAL * eps)
    B = seam.combine(basis, -C @ inverse, Y, inverse)
    against, own = np.split(seam.probes(basis, B), [PROBES])
    if _mean_square(against) <= basis.columns * (_ORTHONORMAL * eps) ** 2:
        if np.abs(own - np.eye(width)).max(initial=0) <= _ORTHONORMAL * eps:
            return B, np.concatenate([C, R])
        R2 = np.linalg.cholesky(own).T
        return seam.times(B, np.linalg.inv(R2), overwrite=True), np.concatenate([C, R2 @ R])
    C2, G2 = _split_grams(seam, basis, B)
    R2 = np.linalg.cholesky(G2 - C2.T @ C2).T
    inverse = np.linalg.inv(R2)
    B = seam.combine(basis, -C2 @ inverse, B, inverse, overwrite=True)
    return B, np.concatenate([C + C2 @ R, R2 @ R])


def orthonormalise_blindly(seam: Seam, Y: Block, basis: Basis, *, width: int) -> tuple[Block, Host]:
    """As `orthonormalise`, by reflections and without a look at a number: three rounds, whatever is needed.

    Reflections make columns of directions that are not there, so nothing is replaced. The third round is for
    those: the first leaves them in the span of the basis.
    """
    assert seam.qr is not None
    small = seam.small
    total = small.zeros((basis.columns, Y.shape[1])), small.eye(Y.shape[1])
    for _ in range(3):
        C = seam.grams(basis, Y)[: basis.columns]
        B, R = seam.qr(seam.combine(basis, -C, Y, small.eye(Y.shape[1])))
        total, Y = (total[0] + C @ total[1], R @ total[1]), B
    return Y[:, :width], small.concatenate([total[0], total[1][:width]])


def _split_grams(seam: Seam, basis: Basis, Y: Block) -> tuple[Host, Host]:
    """Q'Y and Y'Y."""
    both = seam.grams(basis, Y)
    return both[: basis.columns], both[basis.columns :]


def _without_rounding(C: Host, inverse: Host, rounding: float) -> Host:
    """C with zeros for groups of columns of Q that (Y - Q C) R⁻¹ is orthogonal to anyway, to rounding.

    In exact arithmetic a Krylov block meets only the last blocks before it. What it has in common with the
    others is rounding, mostly of the size that is not worth another round; subtracting it doubles the work.
    """
    share = np.abs(C @ inverse).max(axis=1, initial=0)
    starts = np.arange(0, len(C), GROUP)
    negligible = np.maximum.reduceat(share, starts) <= rounding if len(C) else np.zeros(0, bool)
    return np.where(np.repeat(negligible, GROUP)[: len(C), None], 0.0, C)


def _mean_square(values: Host) -> float:
    return float((values**2).sum() / max(1, values.size))


def _triangular(C: Host, G: Host, size: Host, *, growth: float) -> Host | None:
    """R with R'R = G - C'C, or None when R⁻¹ would magnify columns of that size by more than `growth`."""
    if not (size > 0).all():
        return None
    try:
        L = np.linalg.cholesky((G - C.T @ C) / np.outer(size, size))
    except np.linalg.LinAlgError:
        return None
    return L.T * size if np.linalg.norm(np.linalg.inv(L)) <= growth else None


def _orthonormalise_carefully(
    seam: Seam, Y: Block, basis: Basis, *, width: int, fresh: Callable[[int], Block] | None, size: float
) -> tuple[Block, Host]:
    """As `orthonormalise`, for blocks that are dependent or nearly so: strongest directions first."""
    before, wanted, original = basis, width, Y
    # Energies are those of a Gram, and rounding where that was summed in single precision.
    together = max(_TOGETHER**-2, _LARGEST_GROWTH * float(np.finfo(seam.sums).eps))
    floor = (_LOST * np.finfo(seam.kind(Y)).eps * size) ** 2
    while wanted and Y.shape[1]:
        Y = _project(seam, _project(seam, Y, basis), basis)
        energies, W = np.linalg.eigh(seam.cross(Y, Y))
        energies, W = energies[::-1], W[:, ::-1]
        strong = int((energies > max(floor, energies[0] * together)).sum())
        if not strong:
            break
        kept = min(strong, wanted)
        basis = _append_well_conditioned(seam, seam.times(Y, W[:, :kept] / np.sqrt(energies[:kept])), basis)
        Y, wanted = seam.times(Y, W[:, kept:]), wanted - kept
    if wanted and fresh is not None:
        basis = _append_well_conditioned(seam, fresh(wanted), basis)
    B = seam.columns(basis, before.columns, basis.columns)
    return B, np.concatenate([seam.grams(before, original)[: before.columns], seam.cross(B, original)])


def _project(seam: Seam, Y: Block, basis: Basis) -> Block:
    """Y - Q Q'Y."""
    if not basis.columns:
        return Y
    C = seam.grams(basis, Y)[: basis.columns]
    return seam.combine(basis, -C, Y, np.eye(Y.shape[1]))


def _append_well_conditioned(seam: Seam, Y: Block, basis: Basis) -> Basis:
    for _ in range(2):
        Y = _project(seam, Y, basis)
        Y = seam.times(Y, np.linalg.inv(np.linalg.cholesky(seam.cross(Y, Y)).T))
    return seam.append(basis, Y)
