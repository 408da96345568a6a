from __future__ import annotations

import itertools
import sys
import warnings

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from operator_cases import CASES, built, dense, pattern
from scipy.sparse.linalg import ArpackError, svds
from spectra import spectra, with_spectrum

import fastgrl as fg
from fastgrl.errors import ArgumentError, FastgrlError, NotFiniteError, ShapeError, TransposeError

methods = pytest.mark.parametrize("method", ["krylov", "subspace"])
SHAPES = [(60, 40), (40, 60), (50, 50), (1, 30), (30, 1)]


def spectral_error(a: np.ndarray, svd: fg.SVD) -> float:
    U, s, Vt = svd
    return float(np.linalg.norm(a - (U * s) @ Vt, 2))


def lapack_ratios(a: np.ndarray, svd: fg.SVD) -> list[float]:
    """‖A−USV'‖/(‖A‖ max(m,n) ulp), ‖I−U'U‖/(m ulp), ‖I−V'V‖/(n ulp), as LAPACK's tests print them."""
    U, s, Vt = svd
    (m, n), ulp = a.shape, np.finfo(a.dtype).eps
    size = max(np.linalg.norm(a, 1), np.finfo(a.dtype).tiny)
    return [
        np.linalg.norm(a - (U * s) @ Vt, 1) / size / (max(m, n) * ulp),
        np.linalg.norm(np.eye(U.shape[1]) - U.T @ U, 1) / (m * ulp),
        np.linalg.norm(np.eye(U.shape[1]) - Vt @ Vt.T, 1) / (n * ulp),
    ]


# ---- against numpy.linalg.svd


@methods
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("name", spectra(30))
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_full_rank_runs_pass_lapacks_own_test_ratios(method, shape, name, seed):
    k = min(shape)
    a = with_spectrum(*shape, spectra(k)[name], seed=seed)
    svd = fg.fsvd(a, k, method=method, seed=seed)
    assert max(lapack_ratios(a, svd)) < 30
    exact = np.linalg.svd(a, compute_uv=False)
    assert np.abs(svd.s - exact).max() <= 100 * np.finfo(np.float64).eps * exact[0]


@pytest.mark.parametrize("shape", [(200, 120), (120, 200), (150, 150)])
@pytest.mark.parametrize("name", ["fast decay", "very fast decay", "slow decay", "rank deficient"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_truncated_values_equal_numpys(shape, name, dtype, seed):
    a = with_spectrum(*shape, spectra(min(shape))[name], dtype=dtype, seed=seed)
    svd = fg.fsvd(a, 12, n_iter=12, seed=seed)
    exact = np.linalg.svd(a.astype(np.float64), compute_uv=False)[:12]
    assert svd.s.dtype == svd.U.dtype == svd.Vt.dtype == dtype
    assert np.abs(svd.s - exact).max() <= 100 * np.finfo(dtype).eps * exact[0]


@pytest.mark.parametrize("name", ["hardly any decay", "clusters", "one large, the rest equal"])
@pytest.mark.parametrize("seed", range(5))
def test_truncated_error_is_the_best_possible_to_one_percent(name, seed):
    s = spectra(150)[name]
    a = with_spectrum(200, 150, s, seed=seed)
    assert spectral_error(a, fg.fsvd(a, 12, n_iter=20, seed=seed)) <= 1.01 * np.sort(s)[::-1][12] + 1e-12


@methods
@pytest.mark.parametrize("scale", [1e-200, 1e-30, 1e30, 1e200, 1e300, 1e-300])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_scale_does_not_matter(method, scale, dtype):
    if not 1e-30 <= scale <= 1e30 and dtype == np.float32:
        dtype = np.float64
    a = with_spectrum(40, 30, spectra(30)["slow decay"])
    one = fg.fsvd(a.astype(dtype), 5, method=method, n_iter=20)
    scaled = fg.fsvd((a * scale).astype(dtype), 5, method=method, n_iter=20)
    assert np.allclose(scaled.s.astype(np.float64) / scale, one.s, rtol=100 * np.finfo(dtype).eps)
    assert np.abs(scaled.U.T @ scaled.U - np.eye(5)).max() < 100 * np.finfo(dtype).eps


@methods
@pytest.mark.parametrize("scale", [1e-36, 1e-30, 1e-20, 1e20, 1e30, 1e36])
@pytest.mark.parametrize("name", ["very fast decay", "rank deficient", "clusters"])
def test_float32_keeps_its_digits_at_any_scale(method, scale, name):
    a = with_spectrum(60, 40, spectra(40)[name])
    one = fg.fsvd(a.astype(np.float32), 8, method=method)
    scaled = fg.fsvd((a * scale).astype(np.float32), 8, method=method)
    assert np.abs(scaled.s.astype(np.float64) / scale - one.s).max() < 1e-5
    assert np.abs(scaled.U.T @ scaled.U - np.eye(8)).max() < 1e-5


def test_subnormal_numbers_are_answered():
    assert fg.fsvd(np.full((3, 3), 1e-310), 1).s[0] == pytest.approx(3e-310, rel=1e-3)


@methods
@pytest.mark.parametrize(
    "a",
    [
        np.eye(30),
        np.outer(np.arange(1.0, 31), np.arange(1.0, 21)),
        np.zeros((20, 30)),
        np.arange(1.0, 31)[None, :],
        np.full((20, 20), 1e200),
        np.full((20, 20), 1e-200),
    ],
    ids=["identity", "rank one", "zero", "1×n", "1e200", "1e-200"],
)
def test_answers_where_svds_raises_or_worse(method, a):
    k = min(*a.shape, 6)
    svd = fg.fsvd(a, k, method=method)
    exact = np.linalg.svd(a, compute_uv=False)[:k]
    assert np.abs(svd.s - exact).max() <= 100 * np.finfo(np.float64).eps * exact[0]
    assert np.abs(svd.U.T @ svd.U - np.eye(k)).max() < 1e-13
    assert np.abs(svd.Vt @ svd.Vt.T - np.eye(k)).max() < 1e-13


@pytest.mark.parametrize(
    "a",
    [np.arange(1.0, 31)[None, :], np.zeros((20, 30)), np.full((20, 20), 1e200), np.full((20, 20), 1e-200)],
    ids=["1×n", "zero", "1e200", "1e-200"],
)
def test_svds_really_refuses_some_of_them(a):
    with np.errstate(all="ignore"), pytest.raises((ValueError, ArpackError)):
        svds(a, min(*a.shape, 6))


@methods
def test_exact_when_rank_reaches_the_numerical_rank(method):
    a = dense(80, 6, np.float64) @ dense(6, 50, np.float64, 1)
    svd = fg.fsvd(a, 6, method=method, n_iter=1)
    assert spectral_error(a, svd) < 1e-12 * svd.s[0]


# ---- the theorems


def test_algorithm_1_to_the_letter():
    a = with_spectrum(60, 40, spectra(40)["slow decay"])
    k, rounds = 5, 2
    from fastgrl.linalg import NUMPY

    Q = NUMPY.random(40, 2 * k, np.float64, 0, 0)
    for _ in range(rounds):
        Q = np.linalg.qr(a @ Q)[0]
        Q = np.linalg.qr(a.T @ Q)[0]
    Q = np.linalg.qr(a @ Q)[0]
    U, s, Vt = np.linalg.svd(Q.T @ a, full_matrices=False)
    expected = (Q @ U)[:, :k] * s[:k] @ Vt[:k]
    ours = fg.fsvd(a, k, method="subspace", n_iter=rounds)
    assert np.abs((ours.U * ours.s) @ ours.Vt - expected).max() < 1e-13
    assert np.abs(ours.s - s[:k]).max() < 1e-14


def test_subspace_multiplies_2k_columns_and_krylov_a_small_block():
    widths = {"krylov": [], "subspace": []}
    for method, seen in widths.items():
        a = dense(200, 100, np.float64)

        def forward(X, a=a, seen=seen):
            seen.append(X.shape[1])
            return a @ X

        fg.fsvd(
            fg.Function(a.shape, forward, lambda X, a=a: a.T @ X), 20, method=method, n_iter=3, check=False
        )
    assert widths == {"krylov": [10] * 4, "subspace": [40] * 4}


def test_theorem_3_mean_error_tends_to_at_most_twice_the_next_value():
    k, s = 5, spectra(40)["hardly any decay"]
    a = with_spectrum(60, 40, s)
    means = [
        np.mean(
            [spectral_error(a, fg.fsvd(a, k, method="subspace", n_iter=q, seed=seed)) for seed in range(50)]
        )
        for q in (0, 1, 2, 4, 8)
    ]
    assert all(later <= earlier * (1 + 1e-9) for earlier, later in itertools.pairwise(means))
    assert means[-1] <= 2 * s[k]
    assert means[-1] <= 1.2 * s[k]


def test_theorem_1_the_pseudo_inverse_gives_the_least_norm_fit():
    rng = np.random.default_rng(0)
    M, Y = rng.standard_normal((12, 40)), rng.standard_normal((12, 3))
    W = fg.pinv_apply(fg.fsvd(M, 12), Y)
    assert np.abs(M @ W - Y).max() < 1e-12
    null = np.linalg.svd(M)[2][12:].T
    for seed in range(5):
        other = W + null @ dense(28, 3, np.float64, seed)
        assert np.abs(M @ other - Y).max() < 1e-12
        assert np.linalg.norm(W) < np.linalg.norm(other)
    assert np.abs(np.linalg.pinv(M) @ Y - W).max() < 1e-12


def test_the_pseudo_inverse_keeps_small_singular_values_of_large_matrices():
    U = np.zeros((200_000, 2), np.float32)
    U[0, 0] = U[1, 1] = 1
    svd = fg.SVD(U, np.array([1, 0.01], np.float32), np.eye(2, dtype=np.float32))
    W = fg.pinv_apply(svd, np.ones((200_000, 1), np.float32))
    assert np.allclose(W.ravel(), [1, 100])
    assert np.allclose(fg.pinv_apply(svd, np.ones((200_000, 1), np.float32), rcond=0.1).ravel(), [1, 0])


def test_zero_singular_values_give_zero_in_the_pseudo_inverse():
    a = with_spectrum(20, 10, np.array([2.0, 1.0, 0, 0, 0]))
    W = fg.pinv_apply(fg.fsvd(a, 5), np.ones((20, 2)))
    assert np.allclose(W, np.linalg.pinv(a, rcond=1e-10) @ np.ones((20, 2)))
    assert np.array_equal(fg.pinv_apply(fg.fsvd(np.zeros((4, 3)), 2), np.ones((4, 1))), np.zeros((3, 1)))


def test_pinv_apply_names_a_wrong_block():
    with pytest.raises(ShapeError, match="20 rows"):
        fg.pinv_apply(fg.fsvd(np.eye(20), 5), np.ones((10, 2)))


@methods
@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_error_does_not_grow_with_more_iterations(method, name, dtype):
    A, a = built(name, dtype)
    k = max(1, min(a.shape) // 3)
    best = np.linalg.norm(np.linalg.svd(a.astype(np.float64), compute_uv=False)[k:])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        errors = []
        for n_iter in range(21):
            U, s, Vt = fg.fsvd(A, k, method=method, n_iter=n_iter)
            errors.append(np.linalg.norm(a.astype(np.float64) - (U * s).astype(np.float64) @ Vt))
    rounding = 100 * np.finfo(dtype).eps * max(1.0, np.linalg.norm(a))
    assert all(later <= earlier + rounding for earlier, later in itertools.pairwise(errors))
    assert errors[-1] <= 1.01 * best + rounding


# ---- repeated singular values


def cliques(sizes):
    return sp.block_diag([np.ones((n, n)) - np.eye(n) for n in sizes], format="csr")


def two_copies_of_a_graph():
    a = pattern(60, 60)
    a = (a + a.T).astype(float)
    return sp.block_diag([a, a], format="csr")


REPEATED = {
    "identity": sp.eye_array(200, format="csr"),
    "cliques": cliques([5] * 30 + [4] * 20),
    "100 triangles": cliques([3] * 100),
    "two copies of a graph": two_copies_of_a_graph(),
    "stars": sp.block_diag(
        [sp.csr_array(np.eye(6)[[0] * 6] + np.eye(6)[[0] * 6].T - 2 * np.eye(6)[:1].T @ np.eye(6)[:1])] * 40,
        format="csr",
    ),
    "40 copies above a slow tail": sp.diags_array(
        np.r_[np.full(40, 2.0), np.linspace(1.9, 0.1, 400)]
    ).tocsr(),
    "six values, fifty copies each": sp.diags_array(np.repeat([6.0, 5, 4, 3, 2, 1], 50)).tocsr(),
}


@methods
@pytest.mark.parametrize("name", REPEATED)
@pytest.mark.parametrize(("rank", "block_size"), [(10, 5), (32, None), (64, None)])
@pytest.mark.parametrize(("n_iter", "tol"), [(20, None), (40, 1e-6)])
def test_all_copies_of_a_repeated_singular_value_are_found(method, name, rank, block_size, n_iter, tol):
    a = REPEATED[name]
    block_size = None if method == "subspace" else block_size
    svd = fg.fsvd(a, rank, method=method, block_size=block_size, n_iter=n_iter, tol=tol)
    exact = np.linalg.svd(a.toarray(), compute_uv=False)[:rank]
    assert np.abs(svd.s - exact).max() < 0.01 * exact[0]
    assert fg.certificate(a, svd).complete


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("seed", range(4))
def test_all_copies_are_found_with_the_default_settings(dtype, seed):
    for name in (
        "identity",
        "cliques",
        "100 triangles",
        "two copies of a graph",
        "40 copies above a slow tail",
    ):
        a = REPEATED[name].astype(dtype)
        exact = np.linalg.svd(a.toarray(), compute_uv=False)[:32]
        assert np.abs(fg.fsvd(a, 32, seed=seed).s - exact).max() < 0.02 * exact[0]


def test_the_certificate_catches_missing_copies_when_refilling_is_off():
    a = REPEATED["100 triangles"]
    wrong = fg.fsvd(a, 10, block_size=5, refill=False)
    assert np.allclose(wrong.s, [2] * 5 + [1] * 5)
    found = fg.certificate(a, wrong)
    assert max(found.left_residuals.max(), found.right_residuals.max()) < 1e-12
    assert found.next_value == pytest.approx(2)
    assert not found.complete
    assert "MISSED" in str(found)
    assert fg.certificate(a, fg.fsvd(a, 10, block_size=5)).complete


@methods
@pytest.mark.parametrize("a", [np.zeros((5, 4)), np.ones((20, 20))], ids=["zero", "rank one"])
def test_too_few_directions_without_refilling_is_an_error(method, a):
    with pytest.raises(ArgumentError, match="refill"):
        fg.fsvd(a, 2, method=method, refill=False)


# ---- options


@methods
def test_tol_stops_early_on_the_measured_change(method):
    a = with_spectrum(300, 200, 2.0 ** -np.arange(200.0))
    seen = []
    svd = fg.fsvd(
        a, 8, method=method, n_iter=30, tol=1e-10, progress=lambda done, total: seen.append((done, total))
    )
    assert svd.rounds < 10
    assert len(seen) == 2 * (svd.rounds + 1)
    assert {total for _, total in seen} == {62}
    assert np.allclose(svd.s, 2.0 ** -np.arange(8.0), rtol=1e-9)


@methods
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_tol_is_reached_beyond_the_numerical_rank_too(method, dtype):
    a = with_spectrum(60, 40, np.array([3.0, 2, 1]), dtype=dtype)
    assert fg.fsvd(a, 5, method=method, tol=1e-6, n_iter=20).rounds <= 5


@methods
def test_progress_counts_every_product_to_the_end(method):
    seen = []
    fg.fsvd(dense(100, 80, np.float64), 10, method=method, n_iter=3, progress=lambda *x: seen.append(x))
    assert seen == [(i, 8) for i in range(1, 9)]


@methods
def test_a_warm_start_needs_fewer_rounds(method):
    a = with_spectrum(300, 200, spectra(200)["slow decay"])
    cold = fg.fsvd(a, 10, method=method, n_iter=0)
    good = fg.fsvd(a, 10, method=method, n_iter=20)
    for start in (good, tuple(good), good.Vt.T, 1e200 * good.Vt.T):
        warm = fg.fsvd(a, 10, method=method, n_iter=0, start=start)
        assert np.abs(warm.s - good.s).max() < 1e-3 * np.abs(cold.s - good.s).max()
    few = fg.fsvd(a, 10, method=method, start=good.Vt[:3].T)
    assert few.s.shape == (10,)


@methods
def test_wide_blocks_go_through_in_panels_with_the_same_answer(method, monkeypatch):
    a = dense(300, 300, np.float64)
    whole = fg.fsvd(a, 40, method=method, n_iter=2)
    monkeypatch.setattr(sys.modules["fastgrl.fsvd"], "_PANEL_BYTES", 1)
    start = whole.Vt.T.copy()
    kept = start.copy()
    panels = fg.fsvd(a, 40, method=method, n_iter=2)
    assert np.allclose(panels.s, whole.s, rtol=1e-12)
    fg.fsvd(a, 40, method=method, n_iter=1, start=start)
    assert np.array_equal(start, kept)


@methods
def test_signs_are_fixed_by_the_largest_entry(method):
    for seed in range(5):
        U = fg.fsvd(dense(50, 40, np.float64), 5, method=method, seed=seed, n_iter=30).U
        assert (U[np.abs(U).argmax(0), range(5)] > 0).all()


def test_result_is_frozen_and_unpackable():
    svd = fg.fsvd(np.eye(5), 2)
    U, s, Vt = svd
    assert (U.shape, s.shape, Vt.shape) == ((5, 2), (2,), (2, 5))
    with pytest.raises(AttributeError):
        svd.s = s
    assert "5×5, rank 2" in repr(svd)


@settings(max_examples=60, deadline=None)
@given(
    st.integers(1, 12),
    st.integers(1, 12),
    st.integers(1, 12),
    st.integers(0, 3),
    st.integers(1, 9),
    st.integers(0, 9),
)
def test_any_shape_rank_and_block_give_orthonormal_vectors(rows, columns, rank, n_iter, block_size, seed):
    rank = min(rank, rows, columns)
    a = dense(rows, columns, np.float64, seed)
    if block_size * (n_iter + 1) < rank:
        block_size = rank
    U, s, Vt = fg.fsvd(a, rank, n_iter=n_iter, block_size=block_size, seed=seed)
    assert np.abs(U.T @ U - np.eye(rank)).max() < 1e-12
    assert np.abs(Vt @ Vt.T - np.eye(rank)).max() < 1e-12
    assert (np.diff(s) <= 0).all()
    assert (s <= np.linalg.svd(a, compute_uv=False)[:rank] + 1e-12).all()


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"rank": 0}, "rank .* at least 1, got 0"),
        ({"rank": 2.5}, "rank .* got 2.5"),
        ({"rank": True}, "rank"),
        ({"rank": 31}, "rank 31 is above min.shape. = 30"),
        ({"rank": 3, "method": "magic"}, "krylov.*magic"),
        ({"rank": 3, "n_iter": -1}, "n_iter .* got -1"),
        ({"rank": 3, "block_size": 0}, "block_size"),
        ({"rank": 20, "block_size": 2, "n_iter": 3}, "8 columns for rank 20"),
        ({"rank": 3, "tol": 0}, "tol"),
        ({"rank": 3, "seed": -1}, "seed"),
        ({"rank": 3, "seed": 2**64}, "seed"),
        ({"rank": 3, "n_threads": 2.7}, "n_threads"),
        ({"rank": 3, "n_threads": 0}, "n_threads"),
    ],
)
def test_wrong_arguments_are_named(arguments, says):
    with pytest.raises(ArgumentError, match=says):
        fg.fsvd(np.ones((40, 30)), arguments.pop("rank"), **arguments)


def test_small_numpy_integers_are_integers():
    a = dense(60, 50, np.float64)
    for kind in (np.uint8, np.int8, np.uint64):
        svd = fg.fsvd(a, kind(5), seed=kind(3), n_iter=kind(2), block_size=kind(9))
        assert np.array_equal(svd.s, fg.fsvd(a, 5, seed=3, n_iter=2, block_size=9).s)
    assert fg.fsvd(a, np.int8(40), method="subspace").s.shape == (40,)


def test_numbers_too_far_apart_are_a_clear_error():
    with pytest.raises(FastgrlError, match="orders of magnitude"):
        fg.fsvd(np.diag([1e200, 1, 1, 1.0]), 2, block_size=1, start=np.eye(4)[:, 1:2])


def test_a_start_of_the_wrong_shape_is_named():
    with pytest.raises(ShapeError, match="30 rows"):
        fg.fsvd(np.ones((40, 30)), 3, start=np.ones((40, 3)))
    with pytest.raises(NotFiniteError, match="start"):
        fg.fsvd(np.ones((40, 30)), 3, start=np.full((30, 3), np.nan))


# ---- products that lie


@methods
@pytest.mark.parametrize("bad", [np.nan, np.inf])
@pytest.mark.parametrize("check", [True, False])
@pytest.mark.parametrize("side", ["M X", "M'X"])
def test_nan_and_inf_from_a_product_are_reported_by_its_name(method, bad, check, side):
    a = dense(30, 20, np.float64)

    def poisoned(Y):
        Y[3, 0] = bad
        return Y

    forward = (lambda X: poisoned(a @ X)) if side == "M X" else (lambda X: a @ X)
    backward = (lambda X: poisoned(a.T @ X)) if side == "M'X" else (lambda X: a.T @ X)
    op = fg.Function(a.shape, forward, backward)
    with pytest.raises(NotFiniteError, match=f"product {side}"):
        fg.fsvd(op, 3, method=method, check=check)


def test_overflow_inside_a_float32_product_is_reported():
    op = fg.Function((20, 20), lambda X: X * np.float32(1e38) * np.float32(1e38), lambda X: X, np.float32)
    with np.errstate(over="ignore"), pytest.raises(NotFiniteError, match="M X"):
        fg.fsvd(op, 3)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_product_pair_that_is_no_transpose_pair_is_detected(dtype):
    a = dense(30, 30, dtype)
    wrong = fg.Function(a.shape, lambda X: a @ X, lambda X: a @ X, dtype)
    slightly = fg.Function(a.shape, lambda X: a @ X, lambda X: a.T @ X + dtype(1e-3) * X, dtype)
    for op in (wrong, slightly, fg.Identity(30) + wrong, fg.HStack([wrong, fg.Ones((30, 2))])):
        with pytest.raises(TransposeError, match="check=False"):
            fg.fsvd(op, 3)
    assert fg.fsvd(wrong, 3, check=False).s.shape == (3,)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("scale", [1e-170, 1e-20, 1, 1e20, 1e170])
def test_true_transpose_pairs_pass_the_check_at_any_scale(dtype, scale):
    if not 1e-30 < scale < 1e30:
        dtype = np.float64
    a = (scale * dense(3000, 50, np.float64)).astype(dtype)
    op = fg.Function(a.shape, lambda X: a @ X, lambda X: a.T @ X, dtype) + fg.Matrix(a)
    for seed in range(20):
        fg.fsvd(op, 1, n_iter=0, seed=seed)


def test_the_released_programs_product_pair_is_caught():
    a = pattern(80, 80)
    a = (a + a.T).astype(float).toarray()
    d = np.maximum(a.sum(1), 1)
    T = a / d[:, None]
    forward = lambda X: 2 * T @ (d[:, None] * X) + T @ T @ (d[:, None] * X)  # noqa: E731
    backward = lambda X: d[:, None] * (2 * T @ X + T @ T @ X)  # noqa: E731
    with pytest.raises(TransposeError):
        fg.fsvd(fg.Function(a.shape, forward, backward), 4)
