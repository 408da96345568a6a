from __future__ import annotations

import numpy as np
import pytest
from operator_cases import CASES, built
from spectra import spectra, with_spectrum

import fastgrl as fg
from fastgrl.errors import ArgumentError, ShapeError


def truth(a: np.ndarray, svd: fg.SVD) -> tuple[float, float]:
    """Captured energy and Frobenius norm of what is left, computed densely."""
    U, s, Vt = svd
    rest = np.linalg.norm(a - (U * s) @ Vt)
    return 1 - (rest / np.linalg.norm(a)) ** 2, float(rest)


@pytest.mark.parametrize("name", ["slow decay", "hardly any decay", "clusters"])
@pytest.mark.parametrize("n_iter", [0, 8])
def test_reported_energy_agrees_with_the_truth_within_its_stated_error(name, n_iter):
    a = with_spectrum(90, 60, spectra(60)[name])
    deviations = []
    for seed in range(100):
        svd = fg.fsvd(a, 6, n_iter=n_iter, seed=seed)
        found = fg.certificate(a, svd, seed=1000 + seed)
        captured, rest = truth(a, svd)
        deviations.append((found.captured - captured) / found.captured_error)
        assert abs(found.residual_norm - rest) < 6 * found.residual_norm_error
        assert found.norm == pytest.approx(np.linalg.norm(a), rel=0.2)
    deviations = np.abs(deviations)
    # Sixteen probes: Student's t with 15 degrees of freedom puts 95 % within 2.13 standard errors.
    assert (deviations < 2.13).mean() > 0.88
    assert deviations.max() < 6
    assert abs(np.mean(deviations)) < 1.2


@pytest.mark.parametrize("seed", range(100))
def test_reported_residuals_are_the_residuals(seed):
    a = with_spectrum(50, 70, spectra(50)["slow decay"], seed=seed)
    U, s, Vt = fg.fsvd(a, 6, n_iter=1, seed=seed)
    found = fg.certificate(a, (U, s, Vt))
    assert np.allclose(found.left_residuals, np.linalg.norm(a @ Vt.T - U * s, axis=0), atol=1e-13)
    assert np.allclose(found.right_residuals, np.linalg.norm(a.T @ U - Vt.T * s, axis=0), atol=1e-13)
    exact = np.linalg.svd(a, compute_uv=False)
    nearest = np.abs(exact[:, None] - s).min(0)
    assert (nearest <= np.maximum(found.left_residuals, found.right_residuals) + 1e-13).all()
    assert found.next_value <= np.linalg.norm(a - (U * s) @ Vt, 2) + 1e-12


def test_next_value_and_gap_are_found():
    s = np.array([5.0, 4, 3, 2.5] + [0.1] * 20)
    a = with_spectrum(40, 30, s)
    found = fg.certificate(a, fg.fsvd(a, 3))
    assert found.next_value == pytest.approx(2.5)
    assert found.gap == pytest.approx(0.5)
    assert found.complete


def test_a_missing_triplet_is_seen():
    a = with_spectrum(40, 30, 2.0 ** -np.arange(30.0))
    U, s, Vt = np.linalg.svd(a, full_matrices=False)
    keep = [0, 2, 3]
    found = fg.certificate(a, (U[:, keep], s[keep], Vt[keep]))
    assert not found.complete
    assert found.next_value == pytest.approx(0.5)
    assert found.left_residuals.max() < 1e-14


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_every_operator_gets_a_finite_certificate(name, dtype):
    A, a = built(name, dtype)
    found = fg.certificate(A, fg.fsvd(A, min(2, *a.shape)))
    assert 0 <= found.captured <= 1 + 1e-6
    assert np.isfinite([found.gap, found.norm, found.residual_norm, found.captured_error]).all()
    assert "captured energy" in str(found)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("other", range(4))
def test_what_a_run_missed_is_seen_whatever_the_two_seeds(seed, other):
    a = np.diag(np.r_[np.full(40, 2.0), np.linspace(1.9, 0.1, 400)])
    wrong = fg.fsvd(a, 32, seed=seed, n_iter=20, refill=False)
    assert wrong.s[-1] < 1.9
    assert not fg.certificate(a, wrong, seed=other).complete


@pytest.mark.parametrize("scale", [1e-200, 1e-50, 1.0, 1e50, 1e200])
def test_scale_changes_nothing_but_the_scale(scale):
    a = scale * with_spectrum(40, 30, spectra(30)["slow decay"])
    found = fg.certificate(a, fg.fsvd(a, 5))
    assert found.captured == pytest.approx(
        1 - (1 / np.arange(6, 31.0) ** 2).sum() / (1 / np.arange(1, 31.0) ** 2).sum(), abs=0.02
    )
    assert found.next_value / scale == pytest.approx(1 / 6, rel=1e-3)


def test_a_zero_matrix_is_certified_without_warnings():
    found = fg.certificate(np.zeros((5, 4)), fg.fsvd(np.zeros((5, 4)), 2))
    assert found.next_value == 0
    assert found.captured == 1
    assert found.complete


def test_wrong_calls_are_named():
    svd = fg.fsvd(np.eye(5), 2)
    with pytest.raises(ShapeError, match="5×5"):
        fg.certificate(np.eye(6), svd)
    with pytest.raises(ShapeError, match="s 1"):
        fg.certificate(np.eye(5), (svd.U, svd.s[:1], svd.Vt))
    for wrong in ({"n_probes": 1}, {"n_probes": 2.5}, {"seed": -1}, {"seed": 2**64}):
        with pytest.raises(ArgumentError, match=next(iter(wrong))):
            fg.certificate(np.eye(5), svd, **wrong)
    assert fg.certificate(np.eye(5), svd, seed=2**64 - 1).complete
