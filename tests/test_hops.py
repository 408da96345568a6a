"""The implicit [Z, SZ, …, S^L Z]: laws, then the functional SVD of it."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

import fastgrl as fg
from fastgrl.errors import ArgumentError, DtypeError, ShapeError
from fastgrl.hops import hop_grams, hop_matrix
from fastgrl.operators import leaves

SIZES = st.tuples(st.integers(1, 9), st.integers(1, 5), st.integers(0, 4))


def case(size, dtype=np.float64, seed=0, sparse=False):
    n, d, L = size
    random = np.random.Generator(np.random.Philox(seed))
    S = sp.random_array((n, n), density=0.5, rng=random, dtype=dtype, format="csr")
    Z = random.standard_normal((n, d)).astype(dtype)
    dense = np.hstack([np.linalg.matrix_power(S.toarray(), hop) @ Z for hop in range(L + 1)])
    return hop_matrix(S, sp.csr_array(Z) if sparse else Z, L), dense, random


@given(SIZES, st.integers(0, 99), st.sampled_from([np.float32, np.float64]), st.booleans())
@settings(max_examples=60, deadline=None)
def test_it_equals_the_dense_matrix_and_so_does_its_transpose(size, seed, dtype, sparse):
    M, dense, _ = case(size, dtype, seed, sparse)
    close = {"rtol": 1e-4, "atol": 1e-4} if dtype == np.float32 else {"rtol": 1e-10, "atol": 1e-12}
    assert M.shape == dense.shape
    assert M.dtype == dtype
    product, transposed = M @ np.eye(dense.shape[1], dtype=dtype), M.T @ np.eye(len(dense), dtype=dtype)
    assert product.dtype == transposed.dtype == dtype
    np.testing.assert_allclose(product, dense, **close)
    np.testing.assert_allclose(transposed, dense.T, **close)
    np.testing.assert_allclose(M.T.T @ np.eye(dense.shape[1], dtype=dtype), dense, **close)


@given(SIZES, st.integers(0, 99))
@settings(max_examples=40, deadline=None)
def test_the_two_products_belong_together(size, seed):
    M, _, random = case(size, seed=seed)
    u, v = random.standard_normal((M.shape[1], 2)), random.standard_normal((M.shape[0], 2))
    np.testing.assert_allclose((M @ u).T @ v, u.T @ (M.T @ v), rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(M @ (2 * u), 2 * (M @ u), rtol=1e-12, atol=1e-12)


def test_a_block_costs_one_product_with_s_for_each_hop():
    counts = {"forward": 0, "backward": 0}

    def counted(name):
        def product(X):
            counts[name] += 1
            return 0.5 * X

        return product

    S = fg.Function((6, 6), counted("forward"), counted("backward"))
    M = hop_matrix(S, np.ones((6, 2)), 4)
    M @ np.ones((10, 3))
    assert counts == {"forward": 4, "backward": 0}
    M.T @ np.ones((6, 3))
    assert counts == {"forward": 4, "backward": 4}


def test_nothing_as_wide_as_the_matrix_is_kept():
    n, d, L = 500, 40, 30
    M = hop_matrix(fg.Identity(n, np.float64), np.ones((n, d)), L)
    held = [value for leaf in leaves(M) for value in vars(leaf).values() if isinstance(value, np.ndarray)]
    assert sum(value.size for value in held) < n * d * (L + 1)


def test_its_functional_svd_is_the_dense_one():
    M, dense, _ = case((60, 6, 3), seed=5)
    U, s, Vt = fg.fsvd(M, 5, n_iter=12)
    np.testing.assert_allclose(s, np.linalg.svd(dense)[1][:5], rtol=1e-8)
    np.testing.assert_allclose(U @ np.diag(s) @ Vt, _truncated(dense, 5), atol=1e-6 * s[0])
    rows = np.arange(0, 60, 7)
    np.testing.assert_allclose(fg.fsvd(M[rows], 3).s, np.linalg.svd(dense[rows])[1][:3], rtol=1e-8)


def _truncated(dense, k):
    U, s, Vt = np.linalg.svd(dense, full_matrices=False)
    return U[:, :k] @ np.diag(s[:k]) @ Vt[:k]


@given(SIZES, st.integers(0, 99))
@settings(max_examples=40, deadline=None)
def test_grams_of_every_number_of_hops_come_from_one_pass(size, seed):
    n, d, L = size
    random = np.random.Generator(np.random.Philox(seed))
    S, Z = random.standard_normal((n, n)), random.standard_normal((n, d))
    rows = random.integers(0, n, size=3)
    hops = sorted({0, L, (L + 1) // 2})
    blocks = [(Z[:, : d // 2], 1.0), (Z[:, d // 2 :], 1.0), (Z, 1.0), (Z, -1.0)]
    grams = hop_grams(fg.Matrix(S), blocks, reduce=lambda H: H[rows], lead=2, hops=hops)
    for gram, hop in zip(grams, hops, strict=True):
        M = hop_matrix(S, Z, hop) @ np.eye((hop + 1) * d)
        whole = M[rows] @ M[rows[:2]].T
        np.testing.assert_allclose(gram, whole, rtol=1e-7, atol=1e-7 * max(1.0, np.abs(whole).max()))


def test_what_does_not_fit_is_refused():
    Z = np.ones((3, 2))
    with pytest.raises(ShapeError, match="square S"):
        hop_matrix(np.ones((3, 4)), Z, 1)
    with pytest.raises(ShapeError, match="row for each row of Z"):
        hop_matrix(np.eye(4), Z, 1)
    with pytest.raises(ArgumentError, match="hops must be an integer of at least 0"):
        hop_matrix(np.eye(3), Z, -1)
    with pytest.raises(DtypeError, match="different types"):
        hop_matrix(np.eye(3, dtype=np.float32), Z, 1)


def test_the_formula_names_the_hops():
    names = [repr(hop_matrix(np.eye(3), np.ones((3, 2)), L)) for L in (0, 1, 2, 7)]
    assert [name.split(":")[0][1:] for name in names] == [
        "[Z]",
        "[Z, SZ]",
        "[Z, SZ, S²Z]",
        "[Z, SZ, …, S^7 Z]",
    ]
