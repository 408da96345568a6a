"""Polynomials of a sparse matrix by whatever way they go: the same numbers, and the same bits."""

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

import fastgrl as fg
from fastgrl import kernels, row_orders
from fastgrl.kernels import compiled_module, csr_from_scipy
from fastgrl.polynomials import polynomial
from fastgrl.spilling import use_panels

relaxed = settings(deadline=None, max_examples=60)


def pattern(size, seed, weighted=False):
    rng = np.random.default_rng(seed)
    upper = sp.random_array((size, size), density=min(1.0, 6 / size), rng=rng, format="csr")
    a = sp.csr_array(upper + upper.T)
    a.data[:] = rng.random(a.nnz) if weighted else 1
    return csr_from_scipy(a)


def problem(size, columns, seed, dtype, weighted=False):
    rng = np.random.default_rng(seed)
    X, scale, extra, post = (
        rng.standard_normal(s).astype(dtype) for s in ((size, columns), size, size, size)
    )
    matrix = pattern(size, seed, weighted)
    if weighted:
        matrix = kernels.CSR(
            matrix.indptr, matrix.indices, matrix.values.astype(dtype), matrix.shape, np.dtype(dtype)
        )
    shift = rng.standard_normal(columns).astype(dtype)
    return matrix, X, {"row_scale": scale, "extra": extra, "post": post, "shift": shift}


@relaxed
@given(
    st.integers(1, 40),
    st.integers(1, 20),
    st.integers(1, 6),
    st.booleans(),
    st.booleans(),
    st.integers(0, 999),
)
def test_a_polynomial_equals_its_formula(size, columns, degree, walked, weighted, seed):
    matrix, X, parts = problem(size, columns, seed, np.float64, weighted)
    c = np.random.default_rng(seed).standard_normal(degree)
    T = parts["row_scale"][:, None] * matrix.as_scipy.toarray()
    H = sum(x * np.linalg.matrix_power(T, i) for i, x in enumerate(c)) + np.diag(parts["extra"])
    expected = parts["post"][:, None] * (H @ (T @ X if walked else X)) + parts["shift"]
    found = polynomial(matrix, X, c, walked=walked, **parts)
    assert np.allclose(found, expected, rtol=1e-9, atol=1e-9 * (1 + np.abs(expected).max()))


@relaxed
@given(st.integers(1, 60), st.integers(2, 24), st.data(), st.sampled_from([np.float32, np.float64]))
def test_a_column_has_the_same_bits_beside_any_others(size, columns, data, dtype):
    matrix, X, parts = problem(size, columns, size, dtype)
    cut, c = data.draw(st.integers(1, columns - 1)), np.array([3.0, 2.0, 1.0])
    whole = polynomial(matrix, X, c, **parts)
    some = [
        polynomial(matrix, X[:, part], c, **parts | {"shift": parts["shift"][part]})
        for part in (slice(cut), slice(cut, None))
    ]
    assert (whole == np.hstack(some)).all()


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_threads_leave_the_bits_alone(threads, monkeypatch):
    matrix, X, parts = problem(500, 20, 0, np.float32)
    c = np.arange(5.0, 0, -1)
    expected = polynomial(matrix, X, c, **parts)
    monkeypatch.setattr(kernels, "WORTH_A_THREAD", 0)
    with fg.parallel.use_threads(threads):
        assert (polynomial(matrix, X, c, **parts) == expected).all()


def test_rows_in_the_order_of_their_degrees_give_the_same_bits(monkeypatch):
    matrix, X, parts = problem(300, 16, 1, np.float32)
    c = np.array([3.0, 2.0, 1.0])
    expected = polynomial(matrix, X, c, **parts)
    monkeypatch.setattr(row_orders, "LEAST_ROWS", 1)
    for faster in (False, True):
        matrix.__dict__.pop("_trial", None)
        for number in range(6):
            assert (polynomial(matrix, X, c, **parts) == expected).all()
            if compiled_module() is None:
                assert "_trial" not in matrix.__dict__
            elif number == 1:  # as if that had been measured
                matrix.__dict__["_trial"].as_it_is[:] = 2 * [1e9 if faster else 0.0]
        if compiled_module() is not None:
            assert (matrix.__dict__["_trial"].rows is not None) == faster


def test_no_second_copy_is_made_where_memory_is_short(monkeypatch):
    matrix, X, parts = problem(300, 16, 1, np.float32)
    monkeypatch.setattr(row_orders, "LEAST_ROWS", 1)
    with use_panels(8):
        polynomial(matrix, X, np.ones(3), **parts)
    assert "_trial" not in matrix.__dict__
