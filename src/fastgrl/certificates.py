"""How good a factorisation is, measured: never a bare "converged"."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from fastgrl.checks import integer, size
from fastgrl.errors import ArgumentError, ShapeError
from fastgrl.fsvd import LARGEST_SEED, PROBE_STREAM, SVD, fsvd, taming_scale
from fastgrl.kernels import CSR
from fastgrl.leaves import LowRank, Matrix
from fastgrl.linalg import seam_of
from fastgrl.operators import Operator, as_operator
from fastgrl.parallel import single_threaded_blas, use_threads
from fastgrl.seams import Host

# A larger value in the complement counts as missed when it exceeds the last one kept by this share.
_MISSED_SHARE = 0.01


@dataclass(frozen=True, eq=False)
class Certificate:
    """Measured errors of M ≈ U diag(s) Vt; printed, they are a few lines for people.

    Norms ‖·‖ of matrices are Frobenius norms, Σ is diag(s).

    Attributes:
        s: the singular values that were kept, σ₁ ≥ … ≥ σₖ.
        left_residuals: ‖M vᵢ − σᵢuᵢ‖ for each i: some singular value lies that near to σᵢ, not necessarily
            the i-th.
        right_residuals: ‖M'uᵢ − σᵢvᵢ‖ for each i.
        orthogonality: the largest entry of |U'U − I| and |V'V − I|.
        captured: the share 1 − ‖M − UΣV'‖² / ‖M‖² of the matrix that the factorisation holds.
        captured_error: its standard error, since it rests on random probes.
        residual_norm: ‖M − UΣV'‖.
        residual_norm_error: its standard error.
        norm: ‖M‖.
        next_value: the largest singular value of M − UΣV' that was found: a lower bound of that matrix's
            spectral norm and, once the residuals are small, of the first singular value that was cut off.
        note: says if sums were made in less than double precision.

    >>> A = np.diag([3.0, 2.0, 1.0])
    >>> found = fg.certificate(A, fg.fsvd(A, 2))
    >>> found.complete, round(found.gap, 6)
    (True, 1.0)
    """

    s: Host
    left_residuals: Host
    right_residuals: Host
    orthogonality: float
    captured: float
    captured_error: float
    residual_norm: float
    residual_norm_error: float
    norm: float
    next_value: float
    note: str = ""

    @property
    def gap(self) -> float:
        """σₖ − σₖ₊₁ as measured; scores are unique only if it exceeds the residuals."""
        return float(self.s[-1]) - self.next_value

    @property
    def complete(self) -> bool:
        """Whether nothing found in M − UΣV' exceeds the last value kept: none missed, none unconverged."""
        noise = 1e-12 * float(self.s[0]) + self.rounding
        return self.next_value <= (1 + _MISSED_SHARE) * float(self.s[-1]) + noise

    @property
    def rounding(self) -> float:
        """What rounding alone may leave of the largest singular value."""
        eps = float(np.finfo(self.s.dtype).eps)
        return 10 * eps * float(self.s[0]) * math.sqrt(len(self.s))

    def __str__(self) -> str:
        largest = max(float(self.s[0]), np.finfo(np.float64).tiny)
        worst = float(max(self.left_residuals.max(), self.right_residuals.max())) / largest
        verdict = (
            "nothing larger was found"
            if self.complete
            else "LARGER ONES WERE MISSED OR ARE UNCONVERGED: raise n_iter"
        )
        lines = {
            "captured energy": f"{100 * self.captured:.4f} % ± {100 * self.captured_error:.4f}",
            "left over": f"{self.residual_norm:.4g} ± {self.residual_norm_error:.2g} of {self.norm:.4g}",
            "worst residual": f"{worst:.1e} of the largest singular value",
            "gap at the cut": f"{self.gap:.4g} ({self.s[-1]:.4g} is kept, {self.next_value:.4g} follows)",
            "complete": verdict,
            "orthogonality": f"{self.orthogonality:.1e} off",
        } | ({"note": self.note} if self.note else {})
        return "\n".join(f"{name:<17}{text}" for name, text in lines.items())


def certificate(
    operator: Any,
    svd: SVD | tuple[Any, Any, Any],
    *,
    n_probes: int = 16,
    n_iter: int = 6,
    seed: int = 0,
    n_threads: int | None = None,
) -> Certificate:
    """Measure how well `svd` fits the matrix, from products alone.

    `operator` is what `fsvd` takes, `svd` an `SVD` or a tuple (U, s, Vt) of any origin. Two products with the
    k vectors give the residuals of every triplet; `n_probes` Gaussian vectors ω give ‖M − UΣV'‖², squared
    entries summed up, as the mean of ‖(M − UΣV')ω‖²; a Krylov run of `n_iter` rounds on M − UΣV' looks for
    what was missed. The same `seed` gives the same figures, for any `n_threads`.

    >>> A = np.diag([3.0, 2.0, 1.0])
    >>> c = fg.certificate(A, fg.fsvd(A, 2))
    >>> round(c.next_value, 6), c.complete
    (1.0, True)
    """
    n_probes, seed = integer("n_probes", n_probes, least=2), integer("seed", seed, least=0, most=LARGEST_SEED)
    operator, (U, s, Vt) = as_operator(operator), svd
    if (U.shape[0], Vt.shape[1]) != operator.shape or not U.shape[1] == s.shape[0] == Vt.shape[0]:
        parts = f"U {size(U.shape)}, s {s.shape[0]}, Vt {size(Vt.shape)}"
        whole = size((U.shape[0], Vt.shape[1]))
        raise ShapeError(f"an SVD of a {whole} matrix ({parts}) cannot belong to {operator!r}")
    seam = seam_of(U)
    if seam.traces:
        raise ArgumentError(
            "a certificate measures, so it needs numbers: ask for it outside of what is traced"
        )
    with use_threads(n_threads), single_threaded_blas(), seam.detached():
        scale = taming_scale(float(seam.host(s)[0]), seam.kind(s))
        operator, values = operator if scale == 1 else scale * operator, seam.host(s) * scale
        return _measure(operator, U, values, seam.transposed(Vt), scale, n_probes, n_iter, seed)


def captured_energy(operator: Any, svd: SVD, *, n_probes: int = 16, seed: int = 0) -> float:
    """The share of ‖M‖² that `svd` holds, 1 − ‖M − UΣV'‖²/‖M‖², for little: M'U = VΣ as `fsvd` leaves it.

    Of a stored matrix ‖M‖² is known; of others ‖M − UΣV'‖² is estimated from `n_probes` Gaussian vectors.

    >>> A = np.diag([3.0, 2.0, 1.0])
    >>> round(captured_energy(A, fg.fsvd(A, 2)), 6)
    0.928571
    """
    operator, (U, s, Vt) = as_operator(operator), svd
    held = float((s.astype(np.float64) ** 2).sum())
    if (total := _stored_energy(operator)) is not None:
        return held / total if total > 0 else 1.0
    probes = seam_of(U).random(operator.shape[1], n_probes, U.dtype, seed, PROBE_STREAM)
    rest = float(_squares((operator - LowRank(U * s, Vt.T)) @ probes).mean())
    return held / (held + rest) if held + rest > 0 else 1.0


def _stored_energy(operator: Operator) -> float | None:
    """The sum of all squares of a stored matrix, and None for others."""
    if not isinstance(operator, Matrix) or operator.row_scale is not None:
        return None
    values = operator.a.values if isinstance(operator.a, CSR) else operator.a
    return (
        None
        if values is None
        else float(np.einsum("i,i->", values.ravel(), values.ravel(), dtype=np.float64))
    )


def _measure(
    M: Operator, U: Any, s: Any, V: Any, scale: float, n_probes: int, n_iter: int, seed: int
) -> Certificate:
    seam = seam_of(U)
    kind, weights = seam.kind(U), seam.put(s, seam.kind(U))
    rest, MV, MU = M - LowRank(U * weights, V), M @ V, M.T @ U
    probes = seam.random(M.shape[1], n_probes, kind, seed, PROBE_STREAM)
    samples = _squares(rest @ probes)
    energy, error = float(samples.mean()), float(samples.std(ddof=1) / math.sqrt(n_probes))
    # ‖M‖² = ‖UΣV'‖² + 2⟨UΣV', M − UΣV'⟩ + ‖M − UΣV'‖², and only the last term is estimated.
    known = float((s.astype(np.float64) * (2 * np.diag(seam.cross(U, MV)) - s)).sum())
    total = known + energy
    # A block of its own: the one that began the factorisation would miss again what it missed before.
    start = seam.random(M.shape[1], n_probes, kind, seed, PROBE_STREAM + 2)
    following = fsvd(rest, 1, block_size=n_probes, n_iter=n_iter, start=start, seed=seed, check=False)
    eye = np.eye(len(s))
    return Certificate(
        s=s / scale,
        left_residuals=np.sqrt(_squares(MV - U * weights)) / scale,
        right_residuals=np.sqrt(_squares(MU - V * weights)) / scale,
        orthogonality=float(max(np.abs(seam.cross(x, x) - eye).max() for x in (U, V))),
        captured=known / total if total > 0 else 1.0,
        captured_error=abs(known / total) * (error / total) if total > 0 else 0.0,
        residual_norm=math.sqrt(energy) / scale,
        residual_norm_error=error / (2 * math.sqrt(energy)) / scale if energy else 0.0,
        norm=math.sqrt(max(0.0, total)) / scale,
        next_value=float(seam.host(following.s)[0]) / scale,
        note=seam.note,
    )


def _squares(Y: Any) -> Host:
    """Squared length of every column."""
    return np.diag(seam_of(Y).cross(Y, Y))
