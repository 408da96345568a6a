from __future__ import annotations

import dataclasses
import inspect
import tracemalloc

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from operator_cases import CASES, built, dense, dense_product, expressions, pattern
from scipy.sparse.linalg import LinearOperator

import fastgrl as fg
from fastgrl import leaves, operators
from fastgrl.errors import ArgumentError, DtypeError, FastgrlError, NotFiniteError, ShapeError

every_case = pytest.mark.parametrize("name", CASES)
both_dtypes = pytest.mark.parametrize("dtype", [np.float32, np.float64])


def close(a: np.ndarray, b: np.ndarray, dtype: object) -> bool:
    """Equal to a hundred roundings of the largest number involved."""
    size = max(1.0, np.abs(b).max(initial=0.0))
    return a.shape == b.shape and np.abs(a - b).max(initial=0.0) <= 200 * np.finfo(dtype).eps * size


@every_case
@both_dtypes
@pytest.mark.parametrize("columns", [0, 1, 3, 17])
def test_equals_its_dense_matrix(name, dtype, columns):
    A, a = built(name, dtype)
    X = dense(a.shape[1], columns, dtype, 5)
    Y = A @ X
    assert A.shape == a.shape
    assert Y.dtype == dtype
    assert close(Y, dense_product(a, X), dtype)


@every_case
@both_dtypes
def test_transpose_equals_the_transposed_matrix(name, dtype):
    A, a = built(name, dtype)
    X = dense(a.shape[0], 3, dtype, 5)
    assert A.T.shape == a.T.shape
    assert close(A.T @ X, a.T @ X, dtype)


@every_case
@both_dtypes
def test_dot_test(name, dtype):
    A, _ = built(name, dtype)
    u, v = dense(A.shape[1], 1, dtype, 1), dense(A.shape[0], 1, dtype, 2)
    Au, Atv = A @ u, A.T @ v
    scale = np.linalg.norm(Au) * np.linalg.norm(v) + np.linalg.norm(u) * np.linalg.norm(Atv)
    assert abs(float((Au.T @ v - u.T @ Atv)[0, 0])) <= 50 * np.finfo(dtype).eps * max(scale, 1)


@every_case
@both_dtypes
def test_transposed_twice_is_itself(name, dtype):
    A, a = built(name, dtype)
    X = dense(a.shape[1], 2, dtype, 5)
    assert A.T.T.shape == A.shape
    assert close(A.T.T @ X, a @ X, dtype)


@every_case
@both_dtypes
def test_linear(name, dtype):
    A, a = built(name, dtype)
    X, Y = dense(a.shape[1], 2, dtype, 1), dense(a.shape[1], 2, dtype, 2)
    assert close(A @ (X + 2 * Y), a @ X + 2 * (a @ Y), dtype)


@every_case
def test_products_leave_the_block_and_the_operator_alone(name):
    A, a = built(name, np.float64)
    X = dense(a.shape[1], 3, np.float64)
    X.setflags(write=False)
    assert np.array_equal(A @ X, A @ X)


@every_case
def test_repr_shows_formula_and_shape(name):
    A, a = built(name, np.float32)
    assert f"{a.shape[0]}×{a.shape[1]}" in repr(A)
    assert A.formula in repr(A)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@settings(max_examples=150, deadline=None)
@given(data=st.data())
def test_random_expressions_obey_every_law(dtype, data):
    A, a = data.draw(expressions(dtype))
    X, Y = dense(a.shape[1], 2, dtype, 1), dense(a.shape[0], 2, dtype, 2)
    size = max(1.0, np.abs(a).max()) ** 2 * 100
    eps = np.finfo(dtype).eps
    assert A.shape == a.shape
    assert np.abs(A @ X - a @ X).max() <= 1e3 * eps * size
    assert np.abs(A.T @ Y - a.T @ Y).max() <= 1e3 * eps * size
    assert np.abs(A.T.T @ X - a @ X).max() <= 1e3 * eps * size
    assert np.abs((A @ X).T @ Y - X.T @ (A.T @ Y)).max() <= 1e4 * eps * size
    Z = dense(a.shape[1], 2, dtype, 3)
    assert np.abs(A @ (X - 2 * Z) - (A @ X - 2 * (A @ Z))).max() <= 1e4 * eps * size


def test_every_operator_class_is_in_the_registry():
    def parts(op):
        yield type(op)
        for field in dataclasses.fields(op):
            value = getattr(op, field.name)
            for part in value if isinstance(value, tuple) else (value,):
                if isinstance(part, fg.Operator):
                    yield from parts(part)

    seen = {
        kind for name in CASES for op in (built(name, np.float64)[0],) for kind in (*parts(op), *parts(op.T))
    }
    classes = {
        kind
        for module in (operators, leaves)
        for _, kind in inspect.getmembers(module, inspect.isclass)
        if issubclass(kind, fg.Operator) and kind is not fg.Operator
    }
    assert classes <= seen


def test_no_square_array_is_allocated_for_twenty_thousand_nodes():
    n = 20_000
    graph = sp.random_array((n, n), density=2e-4, rng=0, format="csr") + sp.eye_array(n, format="csr")
    A = fg.Matrix((graph + graph.T).astype(bool))
    T = fg.Matrix((graph + graph.T).astype(bool), row_scale=np.ones(n))
    M = (
        fg.Polynomial(T, [3, 2, 1])
        - 0.02 * (fg.Ones((n, n)) - A)
        + fg.LowRank(np.ones((n, 2)), np.ones((n, 2)))
    )
    M = fg.HStack([M, M.T])[::2]
    X = np.ones((2 * n, 4))
    tracemalloc.start()
    Y = M @ X
    Z = M.T @ Y
    fg.fsvd(M, 4, n_iter=2)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert Z.shape == X.shape
    assert peak < 8 * n * n / 20


@both_dtypes
def test_float32_in_float32_out_and_nothing_mixed_in_silence(dtype):
    other = np.float64 if dtype == np.float32 else np.float32
    A, B = fg.Matrix(dense(3, 3, dtype)), fg.Matrix(dense(3, 3, other))
    for combine in (lambda: A + B, lambda: A @ B, lambda: fg.HStack([A, B]), lambda: fg.LowRank(A.a, B.a)):
        with pytest.raises(DtypeError, match=r"float32.*float64|float64.*float32"):
            combine()
    assert (A + fg.Ones((3, 3)) - fg.Identity(3)).dtype == dtype


@pytest.mark.parametrize(
    ("build", "shapes"),
    [
        (lambda A, B: A + B, ("3×4", "5×2")),
        (lambda A, B: A - B, ("3×4", "5×2")),
        (lambda A, B: A @ B, ("3×4", "5×2")),
        (lambda A, B: fg.HStack([A, B]), ("3×4", "5×2")),
        (lambda A, B: fg.VStack([A, B]), ("3×4", "5×2")),
        (lambda A, B: A @ np.ones((5, 2)), ("3×4", "5×2")),
        (lambda A, B: fg.LowRank(np.ones((3, 4)), np.ones((5, 2))), ("3×4", "5×2")),
        (lambda A, B: A**2, ("3×4",)),
        (lambda A, B: fg.Polynomial(A, [1]), ("3×4",)),
        (lambda A, B: fg.Matrix(np.ones((3, 4)), row_scale=np.ones(5)), ("3×4", "5")),
    ],
)
def test_shapes_that_do_not_fit_raise_at_once_and_are_named(build, shapes):
    with pytest.raises(ShapeError) as error:
        build(fg.Matrix(np.ones((3, 4))), fg.Matrix(np.ones((5, 2))))
    assert all(shape in str(error.value) for shape in shapes)


@pytest.mark.parametrize(
    ("build", "kind", "says"),
    [
        (lambda: fg.Matrix(np.ones(3)), ShapeError, "2 dimensions"),
        (lambda: fg.Matrix(np.ones((2, 2)) * 1j), DtypeError, "complex"),
        (lambda: fg.Matrix(sp.csr_array(np.eye(2) * 1j)), DtypeError, "complex"),
        (lambda: fg.Matrix(np.ones((2, 2), np.float16)), DtypeError, "float16"),
        (lambda: fg.Matrix(np.array([[1, np.nan]])), NotFiniteError, r"nan at \[0, 1\]"),
        (lambda: fg.Matrix(sp.csr_array([[1, np.inf]])), NotFiniteError, "NaN or Inf"),
        (lambda: fg.Diagonal([1.0, np.inf]), NotFiniteError, "inf"),
        (lambda: fg.Identity(2) * np.nan, NotFiniteError, "nan"),
        (lambda: fg.Identity(2) * "x", DtypeError, "str"),
        (lambda: fg.Identity(2) / 0, ArgumentError, "divided by 0"),
        (lambda: fg.Identity(2) + "x", DtypeError, "str"),
        (lambda: fg.Identity(2) ** -1, ArgumentError, "-1"),
        (lambda: fg.Identity(2) ** 1.5, ArgumentError, "1.5"),
        (lambda: fg.Identity(-1), ShapeError, "negative"),
        (lambda: fg.Ones(3), ShapeError, r"\(rows, columns\)"),
        (lambda: fg.Ones((3, 3), np.int32), DtypeError, "int32"),
        (lambda: fg.Polynomial(fg.Identity(2), []), ArgumentError, "at least one"),
        (lambda: fg.HStack([]), ArgumentError, "at least one"),
        (lambda: fg.Identity(2)[[5]], ArgumentError, "row 5"),
        (lambda: fg.Identity(2)[[True]], ShapeError, "mask"),
        (lambda: fg.Identity(2)[["a"]], DtypeError, "integers"),
        (lambda: fg.Identity(2)[0, 1], ShapeError, r"\(0, 1\)"),
        (lambda: fg.Identity(2) @ np.ones(2), ShapeError, r"x\[:, None\]"),
        (lambda: fg.Identity(2) @ np.array([["a"], ["b"]]), DtypeError, "<U1"),
        (lambda: fg.as_operator([[1]]), DtypeError, "list"),
        (
            lambda: fg.as_operator(LinearOperator((2, 2), matvec=lambda x: x, dtype=complex)),
            DtypeError,
            "complex",
        ),
    ],
)
def test_mistakes_are_named(build, kind, says):
    with pytest.raises(kind, match=says):
        build()


@pytest.mark.parametrize("returned", [np.ones((2, 1)), np.ones(3), 1.0, np.ones((3, 2)) * 1j])
def test_a_function_that_returns_the_wrong_thing_is_named(returned):
    op = fg.Function((3, 3), lambda X: returned, lambda X: X, name="my product")
    with pytest.raises((ShapeError, DtypeError), match="my product"):
        op @ np.ones((3, 2))


def test_a_linear_operator_without_transpose_is_named():
    op = fg.as_operator(LinearOperator((2, 2), matvec=lambda x: x, dtype=float))
    assert (op @ np.ones((2, 1))).shape == (2, 1)
    with pytest.raises(FastgrlError, match="rmatvec"):
        op.T @ np.ones((2, 1))


def test_an_object_with_dot_T_and_shape_is_an_operator():
    class Wrapped:
        def __init__(self, a):
            self.a, self.shape = a, a.shape

        @property
        def T(self):
            return Wrapped(self.a.T)

        def dot(self, X):
            return self.a @ X

    a = dense(4, 3, np.float64)
    op = fg.as_operator(Wrapped(a))
    assert np.allclose(op @ np.eye(3), a)
    assert np.allclose(op.T @ np.eye(4), a.T)


@pytest.mark.parametrize(
    "convert", [sp.coo_array, sp.csc_array, sp.bsr_array, sp.lil_array, sp.dok_array, sp.csr_matrix]
)
def test_every_sparse_format_is_read(convert):
    a = np.array([[0, 2.0, 0, 1], [3, 0, 0, 4]])
    assert np.array_equal(fg.as_operator(convert(a)) @ np.eye(4), a)


def test_numpy_and_scipy_on_the_left_give_operators():
    a = np.arange(4.0).reshape(2, 2)
    I = fg.Identity(2)  # noqa: E741
    for left in (a, sp.csr_array(a)):
        for op in (left @ I, left + I, left - I):
            assert isinstance(op, fg.Operator)
    assert np.allclose((a - I) @ np.eye(2), a - np.eye(2))
    assert np.allclose((a @ (2 * I)) @ np.eye(2), 2 * a)


def test_ones_of_a_number_type_keep_it_although_their_values_are_dropped():
    for dtype in (np.float32, np.float64):
        A = fg.Matrix(pattern(9, 9).astype(dtype))
        assert A.a.values is None
        assert A.dtype == A.T.dtype == dtype
        assert fg.fsvd(A, 2).U.dtype == dtype
    assert fg.Matrix(pattern(9, 9)).dtype is None


@pytest.mark.parametrize("build", [lambda: fg.Identity(3), lambda: fg.Matrix(np.eye(3)) ** 0])
def test_a_product_is_never_the_block_itself(build):
    X = np.ones((3, 2))
    Y = build() @ X
    Y += 1
    assert (X == 1).all()
    function = fg.Function((3, 3), lambda X: X, lambda X: X)
    assert not np.shares_memory(function @ X, X)


def test_operators_without_rows_or_columns_multiply():
    low = fg.LowRank(np.ones((3, 2)), np.ones((0, 2)))
    assert np.array_equal(low @ np.ones((0, 1)), np.zeros((3, 1)))
    assert np.array_equal(fg.Ones((2, 0)) @ np.ones((0, 1)), np.zeros((2, 1)))
    assert (fg.Matrix(sp.csr_array((0, 4))) @ np.ones((4, 2))).shape == (0, 2)


def test_integer_blocks_take_the_operators_type():
    assert (fg.Matrix(np.eye(2, dtype=np.float32)) @ np.array([[1], [2]])).dtype == np.float32
    assert (fg.Identity(2) @ np.array([[1], [2]])).dtype == np.float64


def test_a_symmetric_pattern_shares_its_arrays_with_its_transpose():
    a = pattern(50, 50)
    symmetric = fg.Matrix((a + a.T).astype(bool))
    assert symmetric.T.a is symmetric.a
    lopsided = fg.Matrix(a)
    assert lopsided.T.a is not lopsided.a


def test_formulas_read_like_mathematics():
    A, T = fg.Matrix(np.eye(2)), fg.Matrix(np.eye(2), name="T")
    I = fg.Identity(2)  # noqa: E741
    assert (2 * A + T @ (A - I) ** 2).formula == "2A + T (A − I)²"
    assert fg.Polynomial(T, [5, 4, 3, 2, 1]).formula == "5T + 4T² + … + T⁵"
    assert fg.Polynomial(T, [3, -2, -1]).formula == "3T − 2T² − T³"
    assert (A - 0.5 * (fg.Ones((2, 2)) - A)).formula == "A − 0.5·(11' − A)"
    assert fg.VStack([A, A.T])[[0]].formula == "[A; A'][rows]"
