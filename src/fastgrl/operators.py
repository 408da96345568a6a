"""Implicit matrices and their algebra.

An operator has `shape`, `dtype`, `op @ X` for a two-dimensional block `X`, and `op.T`. Python's own signs
build new ones: `A + B`, `A - B`, `2 * A`, `A @ B`, `A ** 3`, `A[rows]`. Nothing is multiplied out:

>>> T = fg.Matrix(np.array([[0.0, 1.0], [0.5, 0.5]]), name="T")
>>> M = fg.Polynomial(T, [2, 1]) - 0.5 * fg.Ones((2, 2))
>>> M
<2T + T² − 0.5·11': 2×2 float64>
>>> M @ np.array([[1.0], [2.0]])
array([[4. ], [3.25]])

`dtype` is None for operators without numbers of their own (ones, identity, a bare pattern): they take the
type of whatever they meet. Operators of two different types do not mix; a block of another type gives what
NumPy's rules give.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from numbers import Real
from typing import Any, ClassVar

import numpy as np

from fastgrl.checks import (
    FLOATS,
    Dtype,
    Shape,
    common_dtype,
    finite_array,
    native,
    row_numbers,
    size,
)
from fastgrl.errors import ArgumentError, DtypeError, NotFiniteError, ShapeError
from fastgrl.linalg import checked_array, seam_of
from fastgrl.seams import Seam, known_seam, only_seam

_SUM, _PRODUCT, _POWER, _ATOM = range(4)  # how tightly a formula binds


class Operator(ABC):
    """A matrix known by its products: `op @ X` for a two-dimensional block `X`, and `op.T`.

    Operators add, subtract, scale, multiply, raise to powers, transpose and take rows with Python's own
    signs; NumPy arrays and SciPy sparse arrays join in. Nothing is multiplied out before it meets a block: `A
    @ B` of two operators is an operator. A vector is `x[:, None]`. Concrete operators are final: combine
    them, do not subclass them; a matrix of your own is a `Function`.

    Attributes:
        shape: rows and columns.
        dtype: float32 or float64; None for operators without numbers of their own, such as `Ones`, which take
            the type of what they meet. Operators of two types do not mix.
        formula: the matrix as mathematics writes it, which `repr` shows.

    >>> A = fg.Matrix(np.array([[0.0, 1.0], [2.0, 0.0]]))
    >>> M = 3 * A @ A - fg.Ones((2, 2))
    >>> M
    <3A A − 11': 2×2 float64>
    >>> M.T @ np.eye(2)
    array([[ 5., -1.], [-1.,  5.]])
    """

    __array_ufunc__ = None  # ndarray + op, ndarray @ op: NumPy leaves them to us
    binds: ClassVar[int] = _ATOM

    shape: Shape
    dtype: Dtype
    formula: str  # the matrix as mathematics would write it

    @abstractmethod
    def _multiply(self, X: Any) -> Any:
        """The product with a block of the right number of rows, which stays as it is."""

    @property
    @abstractmethod
    def T(self) -> Operator:
        """The transpose, an operator too."""

    @functools.cached_property
    def _library(self) -> str | None:
        """The library whose arrays the operator holds, if it holds any."""
        seam = held_seam(self)
        return None if seam is None else seam.name

    def _polynomial(self, coefficients: Sequence[float], X: Any) -> Any:
        """c₁A X + … + c_C A^C X; a leaf that can do better than one product after another does."""
        return horner(self, coefficients, X)

    def __matmul__(self, other: Any) -> Any:
        seam = known_seam(other)
        if seam is None or not seam.is_dense(other):
            return Product(self, as_operator(other))
        if isinstance(other, np.ndarray):
            Y = self._multiply(_as_block(seam, other, self))
            return Y.copy() if np.may_share_memory(Y, other) else Y
        with seam.working():
            Y = self._multiply(_as_block(seam, other, self))
            return 1 * Y if Y is other else Y

    def __rmatmul__(self, other: Any) -> Operator:
        return Product(as_operator(other), self)

    def __add__(self, other: Any) -> Operator:
        return Sum(self, as_operator(other))

    def __radd__(self, other: Any) -> Operator:
        return Sum(as_operator(other), self)

    def __sub__(self, other: Any) -> Operator:
        return Sum(self, -as_operator(other))

    def __rsub__(self, other: Any) -> Operator:
        return Sum(as_operator(other), -self)

    def __mul__(self, factor: Any) -> Operator:
        return Scaled(factor, self)

    __rmul__ = __mul__

    def __truediv__(self, divisor: float) -> Operator:
        if not _real_number(divisor):
            raise ArgumentError(f"{self!r} cannot be divided by {divisor!r}")
        return Scaled(1 / divisor, self)

    def __neg__(self) -> Operator:
        return Scaled(-1.0, self)

    def __pow__(self, exponent: int) -> Operator:
        return Power(self, exponent)

    def __getitem__(self, rows: Any) -> Operator:
        return Rows(self, rows)

    def __repr__(self) -> str:
        kind = "" if self.dtype is None else f" {self.dtype}"
        return f"<{self.formula}: {size(self.shape)}{kind}>"


def horner(operator: Operator, coefficients: Sequence[float], X: Any) -> Any:
    """c₁A X + … + c_C A^C X by C products with A, one after another."""
    *lower, highest = coefficients
    Y = operator._multiply(highest * X)
    for c in reversed(lower):
        Y = operator._multiply(c * X + Y)
    return Y


def settle(operator: Operator, **facts: Any) -> None:
    """Set fields of a frozen operator while it is being made."""
    for name, value in facts.items():
        object.__setattr__(operator, name, value)


@dataclass(frozen=True, eq=False, repr=False)
class Sum(Operator):
    """A + B."""

    binds: ClassVar[int] = _SUM
    left: Operator
    right: Operator

    def __post_init__(self) -> None:
        if self.left.shape != self.right.shape:
            raise ShapeError(f"cannot add {self.left!r} and {self.right!r}: the shapes differ")
        dtype = common_dtype(f"{self.left!r} and {self.right!r}", self.left.dtype, self.right.dtype)
        sign, right = "+", self.right
        if isinstance(right, Scaled) and right.factor < 0:
            sign, right = "−", Scaled(-right.factor, right.operand)
        formula = f"{self.left.formula} {sign} {_bracketed(right, _PRODUCT)}"
        settle(self, shape=self.left.shape, dtype=dtype, formula=formula)

    def _multiply(self, X: Any) -> Any:
        return self.left._multiply(X) + self.right._multiply(X)

    @property
    def T(self) -> Operator:
        return Sum(self.left.T, self.right.T)


@dataclass(frozen=True, eq=False, repr=False)
class Scaled(Operator):
    """c A."""

    binds: ClassVar[int] = _PRODUCT
    factor: float
    operand: Operator

    def __post_init__(self) -> None:
        factor = _real_number(self.factor)
        if not math.isfinite(factor):
            raise NotFiniteError(f"{self.operand!r} cannot be scaled by {factor}")
        formula = _term(factor, _bracketed(self.operand, _POWER))
        settle(self, factor=factor, formula=formula)
        settle(self, shape=self.operand.shape, dtype=self.operand.dtype)

    def _multiply(self, X: Any) -> Any:
        return self.factor * self.operand._multiply(X)

    def __neg__(self) -> Operator:
        return Scaled(-self.factor, self.operand)

    @property
    def T(self) -> Operator:
        return Scaled(self.factor, self.operand.T)


@dataclass(frozen=True, eq=False, repr=False)
class Product(Operator):
    """A B."""

    binds: ClassVar[int] = _PRODUCT
    left: Operator
    right: Operator

    def __post_init__(self) -> None:
        if self.left.shape[1] != self.right.shape[0]:
            raise ShapeError(f"cannot multiply {self.left!r} by {self.right!r}: the inner sizes differ")
        dtype = common_dtype(f"{self.left!r} and {self.right!r}", self.left.dtype, self.right.dtype)
        formula = f"{_bracketed(self.left, _PRODUCT)} {_bracketed(self.right, _POWER)}"
        settle(self, shape=(self.left.shape[0], self.right.shape[1]), dtype=dtype, formula=formula)

    def _multiply(self, X: Any) -> Any:
        return self.left._multiply(self.right._multiply(X))

    @property
    def T(self) -> Operator:
        return Product(self.right.T, self.left.T)


@dataclass(frozen=True, eq=False, repr=False)
class Power(Operator):
    """A^p for a square A and p ≥ 0; A⁰ = I."""

    binds: ClassVar[int] = _POWER
    base: Operator
    exponent: int

    def __post_init__(self) -> None:
        _check_square(self.base, "powers")
        p = self.exponent
        if not isinstance(p, int | np.integer) or isinstance(p, bool) or p < 0:
            raise ArgumentError(f"the exponent must be an integer of at least 0, got {p!r}")
        formula = _bracketed(self.base, _ATOM) + _superscript(p)
        settle(self, shape=self.base.shape, dtype=self.base.dtype, formula=formula)

    def _multiply(self, X: Any) -> Any:
        for _ in range(self.exponent):
            X = self.base._multiply(X)
        return X

    @property
    def T(self) -> Operator:
        return Power(self.base.T, self.exponent)


@dataclass(frozen=True, eq=False, repr=False)
class Polynomial(Operator):
    """c₁A + c₂A² + … + c_C A^C by Horner's rule: C products with A, no more.

    `base` is A, a square operator or anything `as_operator` takes; `coefficients` are c₁ … c_C. There is no
    constant term: add `c * fg.Identity(n)`.

    >>> fg.Polynomial(fg.Identity(2), [3, 2, 1]) @ np.ones((2, 1))
    array([[6.], [6.]])
    """

    binds: ClassVar[int] = _SUM
    base: Operator
    coefficients: Sequence[float]

    def __post_init__(self) -> None:
        base = as_operator(self.base)
        _check_square(base, "polynomials")
        c = tuple(map(float, finite_array(self.coefficients, "coefficients", ndim=1)))
        if not c:
            raise ArgumentError("a polynomial needs at least one coefficient")
        symbol = _bracketed(base, _ATOM)
        terms = [_term(x, symbol + _superscript(i)) for i, x in enumerate(c, 1)]
        formula = " + ".join(_shortened(terms)).replace("+ −", "− ")
        settle(self, base=base, coefficients=c, shape=base.shape, dtype=base.dtype, formula=formula)

    def _multiply(self, X: Any) -> Any:
        return self.base._polynomial(self.coefficients, X)

    @property
    def T(self) -> Operator:
        return Polynomial(self.base.T, self.coefficients)


@dataclass(frozen=True, eq=False, repr=False)
class HStack(Operator):
    """[A B …], side by side: `parts` are operators, or what `as_operator` takes, with as many rows each.

    >>> fg.HStack([fg.Identity(2), fg.Ones((2, 1))]) @ np.ones((3, 1))
    array([[2.], [2.]])
    """

    parts: Sequence[Operator]

    def __post_init__(self) -> None:
        parts = _stackable(self.parts, 0, "side by side", "rows")
        dtype = common_dtype("the parts of a stack", *(part.dtype for part in parts))
        shape = (parts[0].shape[0], sum(part.shape[1] for part in parts))
        formula = f"[{', '.join(_shortened([part.formula for part in parts]))}]"
        settle(self, parts=parts, shape=shape, dtype=dtype, formula=formula)

    def _multiply(self, X: Any) -> Any:
        ends = list(itertools.accumulate(part.shape[1] for part in self.parts))
        slices = [X[a:b] for a, b in itertools.pairwise([0, *ends])]
        products = (part._multiply(x) for part, x in zip(self.parts, slices, strict=True))
        return functools.reduce(lambda a, b: a + b, products)

    @property
    def T(self) -> Operator:
        return VStack([part.T for part in self.parts])


@dataclass(frozen=True, eq=False, repr=False)
class VStack(Operator):
    """[A; B; …], one above the other: `parts` are operators, or what `as_operator` takes, of equal width.

    >>> fg.VStack([fg.Identity(1), 2 * fg.Identity(1)]) @ np.ones((1, 1))
    array([[1.], [2.]])
    """

    parts: Sequence[Operator]

    def __post_init__(self) -> None:
        parts = _stackable(self.parts, 1, "one above the other", "columns")
        dtype = common_dtype("the parts of a stack", *(part.dtype for part in parts))
        shape = (sum(part.shape[0] for part in parts), parts[0].shape[1])
        formula = f"[{'; '.join(_shortened([part.formula for part in parts]))}]"
        settle(self, parts=parts, shape=shape, dtype=dtype, formula=formula)

    def _multiply(self, X: Any) -> Any:
        return seam_of(X).concatenate([part._multiply(X) for part in self.parts], 0)

    @property
    def T(self) -> Operator:
        return HStack([part.T for part in self.parts])


@dataclass(frozen=True, eq=False, repr=False)
class Rows(Operator):
    """A[rows], for a slice, a boolean mask, or row numbers in any order."""

    operand: Operator
    rows: Any

    def __post_init__(self) -> None:
        rows = row_numbers(self.rows, self.operand.shape[0], repr(self.operand))
        formula = f"{_bracketed(self.operand, _ATOM)}[rows]"
        settle(self, rows=rows, shape=(len(rows), self.operand.shape[1]), formula=formula)
        settle(self, dtype=self.operand.dtype)

    def _multiply(self, X: Any) -> Any:
        Y = self.operand._multiply(X)
        return seam_of(Y).take_rows(Y, self.rows)

    @property
    def T(self) -> Operator:
        return Columns(self.operand.T, self.rows)


@dataclass(frozen=True, eq=False, repr=False)
class Columns(Operator):
    """A[:, columns], the transpose of `Rows`."""

    operand: Operator
    columns: Any

    def __post_init__(self) -> None:
        formula = f"{_bracketed(self.operand, _ATOM)}[:, columns]"
        settle(self, shape=(self.operand.shape[0], len(self.columns)), formula=formula)
        settle(self, dtype=self.operand.dtype)

    def _multiply(self, X: Any) -> Any:
        return self.operand._multiply(seam_of(X).spread_rows(X, self.columns, self.operand.shape[1]))

    @property
    def T(self) -> Operator:
        return Rows(self.operand.T, self.columns)


@functools.singledispatch
def as_operator(matrix: Any) -> Operator:
    """Make an operator of an array, a SciPy sparse array or LinearOperator, or what has dot, T and shape.

    Tensors of PyTorch, JAX and TensorFlow are arrays as well. A `matrix` that is an operator is returned as
    it is.

    >>> fg.as_operator(np.eye(2))
    <A: 2×2 float64>
    """
    raise DtypeError(
        f"cannot use {type(matrix).__name__} as a matrix: pass a NumPy array, a SciPy sparse array or "
        f"LinearOperator, an object with dot, T and shape, or a fastgrl operator"
    )


@as_operator.register
def _(matrix: Operator) -> Operator:
    return matrix


def leaves(operator: Operator) -> Iterator[Operator]:
    """The operators without parts that an expression is built from."""
    fields = [getattr(operator, field.name) for field in dataclasses.fields(operator)]  # type: ignore[arg-type]
    flat = itertools.chain.from_iterable(f if isinstance(f, tuple) else (f,) for f in fields)
    parts = [part for part in flat if isinstance(part, Operator)]
    if not parts:
        yield operator
    for part in parts:
        yield from leaves(part)


def held_seam(operator: Operator) -> Seam | None:
    """The one seam of the arrays that an operator holds; None if it holds none."""
    return only_seam((value for leaf in leaves(operator) for value in vars(leaf).values()), repr(operator))


def dense_array(values: Any, name: str, *, ndim: int) -> Any:
    """A dense array of any library, of floats that are finite (integers become that)."""
    array = checked_array(values, name, ndim=ndim)
    if not seam_of(array).is_dense(array):
        raise DtypeError(f"{name} must be dense, got a sparse {type(values).__name__}")
    return array


def _as_block(seam: Seam, X: Any, operator: Operator) -> Any:
    shape = tuple(X.shape)
    if len(shape) != 2:
        raise ShapeError(
            f"{operator!r} multiplies two-dimensional blocks, not shape {shape}; a vector is x[:, None]"
        )
    if shape[0] != operator.shape[1]:
        raise ShapeError(f"cannot multiply {operator!r} by a {size(shape)} block: the inner sizes differ")
    if operator._library not in (None, seam.name):
        raise DtypeError(
            f"{operator!r} holds arrays of {operator._library}, and the block is one of {seam.name}"
        )
    if isinstance(X, np.ndarray):
        X = np.asarray(native(X))
    kind = seam.kind(X)
    if kind in FLOATS:
        return seam.widened(X, operator.dtype)
    if kind.kind not in "bui":
        raise DtypeError(f"a block of {kind} is not supported; use float32 or float64")
    return seam.cast(X, operator.dtype or np.float64)


def _real_number(factor: Any) -> float:
    if isinstance(factor, bool) or not isinstance(factor, Real):
        raise DtypeError(f"an operator is scaled by a real number, not by {type(factor).__name__}")
    return float(factor)


def _check_square(operator: Operator, what: str) -> None:
    if operator.shape[0] != operator.shape[1]:
        raise ShapeError(f"{what} need a square matrix, got {operator!r}")


def _stackable(parts: Sequence[Any], axis: int, how: str, kind: str) -> tuple[Operator, ...]:
    operators = tuple(as_operator(part) for part in parts)
    if not operators:
        raise ArgumentError("a stack needs at least one operator")
    for part in operators[1:]:
        if part.shape[axis] != operators[0].shape[axis]:
            raise ShapeError(f"cannot put {operators[0]!r} and {part!r} {how}: the numbers of {kind} differ")
    return operators


def _bracketed(operator: Operator, binds: int) -> str:
    return operator.formula if operator.binds >= binds else f"({operator.formula})"


def _term(factor: float, inner: str) -> str:
    if factor in (1, -1):
        return inner if factor == 1 else f"−{inner}"
    joint = "" if inner[0].isalpha() and factor.is_integer() else "·"
    return f"{factor:g}{joint}{inner}".replace("-", "−", factor < 0)


def _superscript(exponent: int) -> str:
    return "" if exponent == 1 else str(exponent).translate(str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹"))


def _shortened(texts: list[str]) -> list[str]:
    return texts if len(texts) <= 4 else [*texts[:2], "…", texts[-1]]
