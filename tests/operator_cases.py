"""The registry every law is run over: each case is an operator beside the dense matrix it stands for.

A new operator joins every law test by adding one function here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.sparse as sp
from hypothesis import strategies as st
from scipy.sparse.linalg import aslinearoperator

import fastgrl as fg

Case = tuple[fg.Operator, np.ndarray]
CASES: dict[str, Callable[[Any], Case]] = {}


def case(build: Callable[[Any], Case]) -> Callable[[Any], Case]:
    CASES[build.__name__] = build
    return build


def dense(rows: int, columns: int, dtype: Any, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal((rows, columns)).astype(dtype)


def sparse(rows: int, columns: int, dtype: Any, seed: int = 0, density: float = 0.3) -> sp.csr_array:
    return sp.random_array((rows, columns), density=density, rng=seed, dtype=dtype, format="csr")


def pattern(rows: int, columns: int, seed: int = 0) -> sp.csr_array:
    matrix = sparse(rows, columns, np.float64, seed)
    matrix.data[:] = 1
    return matrix.astype(bool)


@case
def dense_matrix(dtype):
    a = dense(7, 5, dtype)
    return fg.Matrix(a), a


@case
def dense_matrix_in_fortran_order(dtype):
    a = np.asfortranarray(dense(5, 9, dtype))
    return fg.Matrix(a), a


@case
def dense_matrix_with_row_scale(dtype):
    a, d = dense(6, 4, dtype), dense(6, 1, dtype, 1)[:, 0]
    return fg.Matrix(a, row_scale=d), d[:, None] * a


@case
def sparse_matrix(dtype):
    a = sparse(9, 6, dtype)
    return fg.Matrix(a), a.toarray()


@case
def sparse_matrix_with_64_bit_indices(dtype):
    a = sparse(8, 8, dtype)
    a.indices, a.indptr = a.indices.astype(np.int64), a.indptr.astype(np.int64)
    return fg.Matrix(a), a.toarray()


@case
def sparse_matrix_with_repeats_and_disorder(dtype):
    a = sp.csr_array((np.array([1, 2, 3, 4], dtype), [2, 0, 2, 1], [0, 3, 4]), shape=(2, 3))
    return fg.Matrix(a), np.array([[2, 0, 4], [0, 4, 0]], dtype)


@case
def sparse_matrix_with_empty_columns_and_rows(dtype):
    a = sparse(8, 8, dtype).toarray()
    a[:, [0, 3, 7]] = 0
    a[[1, 7]] = 0
    return fg.Matrix(sp.csr_array(a)), a


@case
def csc_matrix_of_the_old_kind(dtype):
    a = sp.csc_matrix(sparse(6, 9, dtype))
    return fg.Matrix(a), a.toarray()


@case
def pattern_without_values(dtype):
    a = pattern(9, 5)
    return fg.Matrix(a), a.toarray().astype(dtype)


@case
def symmetric_pattern(dtype):
    a = pattern(9, 9)
    a = (a + a.T).astype(bool)
    return fg.Matrix(a), a.toarray().astype(dtype)


@case
def transition(dtype):
    a, d = pattern(8, 8), np.linspace(0.1, 1, 8).astype(dtype)
    return fg.Matrix(a, row_scale=d, name="T"), d[:, None] * a.toarray()


@case
def one_row(dtype):
    a = dense(1, 9, dtype)
    return fg.Matrix(a), a


@case
def one_column(dtype):
    a = sparse(9, 1, dtype, density=0.5)
    return fg.Matrix(a), a.toarray()


@case
def function(dtype):
    a = dense(6, 8, dtype)
    return fg.Function(a.shape, lambda X: a @ X, lambda X: a.T @ X, dtype), a


@case
def linear_operator(dtype):
    a = dense(6, 8, dtype)
    return fg.as_operator(aslinearoperator(a)), a


@case
def ones(dtype):
    return fg.Ones((4, 7)), np.ones((4, 7), dtype)


@case
def low_rank(dtype):
    U, V = dense(8, 2, dtype), dense(5, 2, dtype, 1)
    return fg.LowRank(U, V), U @ V.T


@case
def diagonal(dtype):
    d = dense(6, 1, dtype)[:, 0]
    return fg.Diagonal(d), np.diag(d)


@case
def identity(dtype):
    return fg.Identity(6), np.eye(6, dtype=dtype)


@case
def sum_and_difference(dtype):
    a, b = dense(6, 5, dtype), sparse(6, 5, dtype, 1)
    return fg.Matrix(a) + b - fg.Ones((6, 5)), a + b.toarray() - np.ones((6, 5), dtype)


@case
def scaled(dtype):
    a = dense(6, 5, dtype)
    return -(2.5 * fg.Matrix(a)) / 2, dtype(-1.25) * a


@case
def product(dtype):
    a, b = dense(6, 4, dtype), sparse(4, 7, dtype, 1)
    return a @ fg.Matrix(b), a @ b.toarray()


@case
def power(dtype):
    a = dense(5, 5, dtype)
    return fg.Matrix(a) ** 3, a @ a @ a


@case
def power_zero(dtype):
    return fg.Matrix(dense(5, 5, dtype)) ** 0, np.eye(5, dtype=dtype)


@case
def polynomial(dtype):
    a = dense(5, 5, dtype) / 2
    return fg.Polynomial(fg.Matrix(a), [3, 2, 1]), 3 * a + 2 * a @ a + a @ a @ a


@case
def side_by_side(dtype):
    a, b = dense(5, 3, dtype), sparse(5, 4, dtype, 1)
    return fg.HStack([a, b, fg.Identity(5)]), np.hstack([a, b.toarray(), np.eye(5, dtype=dtype)])


@case
def one_above_the_other(dtype):
    a, b = dense(3, 5, dtype), sparse(4, 5, dtype, 1)
    return fg.VStack([a, b]), np.vstack([a, b.toarray()])


@case
def some_rows(dtype):
    a = dense(7, 5, dtype)
    return fg.Matrix(a)[[5, 1, 1, -1]], a[[5, 1, 1, -1]]


@case
def masked_rows(dtype):
    a = dense(7, 5, dtype)
    return fg.Matrix(a)[a[:, 0] > 0], a[a[:, 0] > 0]


@case
def sliced_rows(dtype):
    a = dense(7, 5, dtype)
    return fg.Matrix(a)[1:6:2], a[1:6:2]


@case
def the_papers_walk_matrix(dtype):
    a = pattern(9, 9)
    a = (a + a.T).astype(bool)
    degree = np.maximum(a.sum(1), 1).astype(dtype)
    T = a.toarray() / degree[:, None]
    M = fg.Polynomial(fg.Matrix(a, row_scale=1 / degree, name="T"), [3, 2, 1]) - 0.02 * (fg.Ones((9, 9)) - a)
    walks = 3 * T + 2 * T @ T + T @ T @ T
    return M, (walks - 0.02 * (1 - a.toarray())).astype(dtype)


def built(name: str, dtype: Any) -> Case:
    operator, matrix = CASES[name](np.dtype(dtype).type)
    return operator, matrix


@st.composite
def expressions(draw: Any, dtype: Any, rows: int = 0, columns: int = 0, depth: int = 4) -> Case:
    """A random operator expression of at most `depth` levels, beside its dense matrix."""
    rows = rows or draw(st.integers(1, 6))
    columns = columns or draw(st.integers(1, 6))
    if depth == 0 or draw(st.integers(0, 4)) == 0:
        return draw(_leaves(dtype, rows, columns))
    kinds = ["sum", "scale", "product", "hstack", "vstack", "rows", "transpose"]
    kind = draw(st.sampled_from(kinds + ["power", "polynomial"] * (rows == columns)))
    return draw(_composites(kind, dtype, rows, columns, depth - 1))


@st.composite
def _leaves(draw: Any, dtype: Any, rows: int, columns: int) -> Case:
    seed = draw(st.integers(0, 99))
    a = dense(rows, columns, dtype, seed)
    s = sparse(rows, columns, dtype, seed)
    choices = [
        (fg.Matrix(a), a),
        (fg.Matrix(s), s.toarray()),
        (fg.Matrix(s.astype(bool)), s.toarray().astype(bool).astype(dtype)),
        (fg.Function(a.shape, a.__matmul__, a.T.__matmul__, dtype), a),
        (fg.Ones((rows, columns)), np.ones((rows, columns), dtype)),
        (fg.LowRank(a[:, :1], dense(columns, 1, dtype, seed)), a[:, :1] @ dense(columns, 1, dtype, seed).T),
    ]
    if rows == columns:
        choices += [(fg.Diagonal(a[0]), np.diag(a[0])), (fg.Identity(rows), np.eye(rows, dtype=dtype))]
    return draw(st.sampled_from(choices))


def dense_product(a: Any, b: Any) -> Any:
    """A B without BLAS, which may warn of numbers that are not in it."""
    return np.einsum("ij,jk", a, b)


@st.composite
def _composites(draw: Any, kind: str, dtype: Any, rows: int, columns: int, depth: int) -> Case:
    def part(r: int, c: int) -> Case:
        return draw(expressions(dtype, r, c, depth))

    if kind == "product":
        inner = draw(st.integers(1, 5))
        (A, a), (B, b) = part(rows, inner), part(inner, columns)
        return A @ B, dense_product(a, b)
    if kind in ("hstack", "vstack") and (columns if kind == "hstack" else rows) > 1:
        cut = draw(st.integers(1, (columns if kind == "hstack" else rows) - 1))
        if kind == "hstack":
            (A, a), (B, b) = part(rows, cut), part(rows, columns - cut)
            return fg.HStack([A, B]), np.hstack([a, b])
        (A, a), (B, b) = part(cut, columns), part(rows - cut, columns)
        return fg.VStack([A, B]), np.vstack([a, b])
    if kind == "rows":
        A, a = part(rows + 1, columns)
        chosen = draw(st.lists(st.integers(0, rows), min_size=rows, max_size=rows))
        return A[chosen], a[chosen]
    if kind == "transpose":
        A, a = part(columns, rows)
        return A.T, a.T
    A, a = part(rows, columns)
    if kind == "power":
        return A**2, a @ a
    if kind == "polynomial":
        return fg.Polynomial(A, [0.5, -2]), dtype(0.5) * a - 2 * a @ a
    if kind == "scale":
        return -1.5 * A, dtype(-1.5) * a
    B, b = part(rows, columns)
    return A - B, a - b
