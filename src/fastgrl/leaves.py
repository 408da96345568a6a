"""The operators that hold something: an array, two functions, or only a shape."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
from scipy.sparse.linalg import LinearOperator

from fastgrl import kernels
from fastgrl.checks import (
    Dtype,
    Shape,
    checked_dtype,
    checked_shape,
    common_dtype,
    real_dtype,
    shown,
    size,
)
from fastgrl.errors import DtypeError, FastgrlError, ShapeError
from fastgrl.linalg import checked_array, seam_of
from fastgrl.operators import Operator, as_operator, dense_array, horner, settle
from fastgrl.polynomials import polynomial
from fastgrl.seams import known_seam

_FLOAT64 = np.dtype(np.float64)
_SPARSE = (kernels.CSR, kernels.RowsElsewhere)


@dataclass(frozen=True, eq=False, repr=False)
class Matrix(Operator):
    """A dense array or a SciPy sparse array, scaled if asked: diag(row_scale) a diag(column_scale).

    `a` is r×c, `row_scale` has r numbers and `column_scale` c; `name` is what formulas call it. A sparse
    array whose stored values are all 1 keeps its pattern only, so that the transition matrix D⁻¹A needs no
    second copy of the graph: `Matrix(pattern, row_scale=1 / degrees)`.

    >>> pattern = scipy.sparse.csr_array([[0, 1], [1, 1]])
    >>> fg.Matrix(pattern, row_scale=np.array([1.0, 0.5]), name="T") @ np.ones((2, 1))
    array([[1.], [1.]])
    """

    a: Any
    row_scale: Any = None
    name: str | None = None
    column_scale: Any = None

    def __post_init__(self) -> None:
        a: Any = kernels.csr_from_scipy(self.a) if sp.issparse(self.a) else self.a
        if not isinstance(a, _SPARSE):
            a = checked_array(a, "matrix", ndim=2)
        left = _scale_of(a, self.row_scale, 0, "row_scale")
        right = _scale_of(a, self.column_scale, 1, "column_scale")
        kinds = [None if values is None else kind_of(values) for values in (a, left, right)]
        dtype, shape = common_dtype("the matrix and its scales", *kinds), checked_shape(a.shape)
        formula = self.name or _scaled_formula("A", left is not None, right is not None)
        settle(self, a=a, row_scale=left, column_scale=right, shape=shape, dtype=dtype, formula=formula)

    def _multiply(self, X: Any) -> Any:
        X = X if self.column_scale is None else _rows_scaled(self.column_scale, X)
        if isinstance(self.a, _SPARSE):
            return kernels.multiply(self.a, X, row_scale=self.row_scale)
        Y = seam_of(X).matmul(self.a, X)
        return Y if self.row_scale is None else _rows_scaled(self.row_scale, Y)

    def _polynomial(self, coefficients: Sequence[float], X: Any) -> Any:
        if not isinstance(self.a, _SPARSE):
            return horner(self, coefficients, X)
        left, right, c = self.row_scale, self.column_scale, np.asarray(coefficients)
        if right is None:
            return polynomial(self.a, X, c, row_scale=left)
        # (L a R)^i = L a (R L a)^(i-1) R
        inner = right if left is None else right * left
        Z = polynomial(self.a, right[:, None] * X, c, row_scale=inner, walked=False)
        return kernels.multiply(self.a, Z, row_scale=left)

    @property
    def T(self) -> Operator:
        a = self.a.transposed if isinstance(self.a, _SPARSE) else seam_of(self.a).transposed(self.a)
        return Matrix(a, self.column_scale, self._transposed_name(a is self.a), self.row_scale)

    def _transposed_name(self, symmetric: bool) -> str:
        left, right = self.row_scale is not None, self.column_scale is not None
        if not left and not right:
            return self.formula if symmetric else _prime(self.formula)
        if self.formula == _scaled_formula("A", left, right):
            return _scaled_formula("A" if symmetric else "A'", right, left)
        return _prime(self.formula)


def kind_of(array: Any) -> Dtype:
    """The type of an array's numbers, of any library; None for a pattern without values."""
    return checked_dtype(seam_of(array).kind(array))


def _scale_of(a: Any, scale: Any, axis: int, name: str) -> Any:
    if scale is None:
        return None
    d = checked_array(scale, name, ndim=1)
    if d.shape[0] != a.shape[axis]:
        raise ShapeError(f"{name} has {d.shape[0]} values for a {size(a.shape)} matrix")
    return d


def _rows_scaled(d: Any, X: Any) -> Any:
    """diag(d) X."""
    seam = seam_of(X)
    return seam.widened(d, seam.kind(X))[:, None] * X


def _scaled_formula(symbol: str, left: bool, right: bool) -> str:
    parts = ["diag(d)"] * left + [symbol] + ["diag(d)"] * right
    return parts[0] if len(parts) == 1 else f"({' '.join(parts)})"


@dataclass(frozen=True, eq=False, repr=False)
class Function(Operator):
    """The paper's f and t∘f: a matrix given by two functions on blocks, X ↦ M X and X ↦ M'X.

    `shape` is (rows, columns) of M; `forward` takes a block of `columns` rows to one of `rows` rows,
    `backward` the other way. Blocks are NumPy arrays of type `dtype`, or arrays of the library, device and
    type of the array `like`. `name` is what formulas call it. `fsvd` checks by random probes that the two
    belong together.

    >>> def forward(X):
    ...     return np.roll(X, 1, axis=0)
    >>> def backward(X):
    ...     return np.roll(X, -1, axis=0)
    >>> shift = fg.Function((3, 3), forward, backward)
    >>> (shift @ np.arange(3.0)[:, None]).ravel()
    array([2., 0., 1.])
    """

    shape: Shape
    forward: Callable[[Any], Any]
    backward: Callable[[Any], Any]
    dtype: Dtype = _FLOAT64
    name: str = "f"
    like: Any = None

    def __post_init__(self) -> None:
        if self.like is not None and known_seam(self.like) is None:
            raise DtypeError(f"like must be an array such as the functions take, got {shown(self.like)}")
        dtype = checked_dtype(self.dtype) if self.like is None else kind_of(self.like)
        settle(self, shape=checked_shape(self.shape), dtype=dtype, formula=self.name)

    def _multiply(self, X: Any) -> Any:
        try:
            Y = seam_of(X).like(self.forward(X), X)
        except DtypeError as error:
            raise DtypeError(f"{self!r}: {error}") from None
        if tuple(Y.shape) != (self.shape[0], X.shape[1]):
            raise ShapeError(
                f"the product of {self!r} with a {size(X.shape)} block must be "
                f"{self.shape[0]}×{X.shape[1]}, but its function returned {size(Y.shape) or 'a scalar'}"
            )
        return Y

    @property
    def T(self) -> Operator:
        shape, name = self.shape[::-1], _prime(self.name)
        return Function(shape, self.backward, self.forward, self.dtype, name, self.like)


@dataclass(frozen=True, eq=False, repr=False)
class Ones(Operator):
    """11', every entry one: `shape` is (rows, columns). Without a `dtype` it takes that of what it meets.

    >>> fg.Ones((2, 3)) @ np.array([[1.0], [2.0], [3.0]])
    array([[6.], [6.]])
    """

    shape: Shape
    dtype: Dtype = None

    def __post_init__(self) -> None:
        settle(self, shape=checked_shape(self.shape), dtype=checked_dtype(self.dtype), formula="11'")

    def _multiply(self, X: Any) -> Any:
        seam = seam_of(X)
        return seam.repeat_row(self.shape[0], seam.column_sums(X), X)

    @property
    def T(self) -> Operator:
        return Ones(self.shape[::-1], self.dtype)


@dataclass(frozen=True, eq=False, repr=False)
class LowRank(Operator):
    """UV', for tall dense `U` and `V` with as many columns each.

    >>> fg.LowRank(np.ones((2, 1)), np.array([[1.0], [2.0]])) @ np.eye(2)
    array([[1., 2.], [1., 2.]])
    """

    U: Any
    V: Any

    def __post_init__(self) -> None:
        U, V = dense_array(self.U, "U", ndim=2), dense_array(self.V, "V", ndim=2)
        if U.shape[1] != V.shape[1]:
            raise ShapeError(f"U V' needs equally many columns, got U {size(U.shape)} and V {size(V.shape)}")
        dtype = common_dtype("U and V", kind_of(U), kind_of(V))
        settle(self, U=U, V=V, shape=(U.shape[0], V.shape[0]), dtype=dtype, formula="UV'")

    def _multiply(self, X: Any) -> Any:
        seam = seam_of(X)
        return seam.matmul(self.U, seam.inner(self.V, X))

    @property
    def T(self) -> Operator:
        return LowRank(self.V, self.U)


@dataclass(frozen=True, eq=False, repr=False)
class Diagonal(Operator):
    """diag(d), a square matrix with the numbers `d` on its diagonal.

    >>> fg.Diagonal(np.array([2.0, 3.0])) @ np.ones((2, 1))
    array([[2.], [3.]])
    """

    d: Any

    def __post_init__(self) -> None:
        d = checked_array(self.d, "d", ndim=1)
        settle(self, d=d, shape=(d.shape[0], d.shape[0]), dtype=kind_of(d), formula="diag(d)")

    def _multiply(self, X: Any) -> Any:
        return _rows_scaled(self.d, X)

    @property
    def T(self) -> Operator:
        return self


@dataclass(frozen=True, eq=False, repr=False)
class Identity(Operator):
    """I, the identity of `n` rows. Without a `dtype` it takes that of what it meets.

    >>> fg.Identity(2) @ np.array([[1.0], [2.0]])
    array([[1.], [2.]])
    """

    n: int
    dtype: Dtype = None

    def __post_init__(self) -> None:
        shape, dtype = checked_shape((self.n, self.n)), checked_dtype(self.dtype)
        settle(self, shape=shape, dtype=dtype, formula="I")

    def _multiply(self, X: Any) -> Any:
        return X

    @property
    def T(self) -> Operator:
        return self


@as_operator.register(np.ndarray)
@as_operator.register(sp.sparray)
@as_operator.register(sp.spmatrix)
def _from_array(matrix: Any) -> Operator:
    return Matrix(matrix)


@as_operator.register
def _from_linear_operator(matrix: LinearOperator) -> Operator:
    return Function(matrix.shape, matrix.matmat, _rmatmat(matrix), real_dtype(matrix.dtype), "L")


_refuse = as_operator.dispatch(object)


@as_operator.register(object)
def _from_products(matrix: Any) -> Operator:
    if known_seam(matrix) is not None:
        return Matrix(matrix)
    try:
        shape, dot, transposed_dot = matrix.shape, matrix.dot, matrix.T.dot
    except AttributeError:
        return _refuse(matrix)
    return Function(shape, dot, transposed_dot, real_dtype(getattr(matrix, "dtype", None)), "L")


def _rmatmat(operator: Any) -> Callable[[Any], Any]:
    def backward(X: Any) -> Any:
        try:
            return operator.rmatmat(X)
        except (NotImplementedError, TypeError) as error:
            raise FastgrlError(
                f"the {size(operator.shape)} LinearOperator has no product with its transpose: "
                f"give it rmatvec or rmatmat ({error or type(error).__name__})"
            ) from error

    return backward


def _prime(name: str) -> str:
    return name[:-1] if name.endswith("'") else name + "'"
