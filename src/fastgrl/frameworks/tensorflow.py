"""TensorFlow: eager tensors, variables and sparse tensors in and out of `fsvd`, with derivatives."""

from __future__ import annotations

import functools
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from fastgrl.errors import FastgrlError, MissingExtraError, ShapeError
from fastgrl.frameworks.blocks import Library, seam_from
from fastgrl.frameworks.derivatives import (
    MOST_STEPS,
    Arithmetic,
    Factorised,
    product_cotangents,
    refuse_second_derivative,
)
from fastgrl.fsvd import SVD
from fastgrl.kernels import CSR
from fastgrl.linalg import CHUNK_ROWS
from fastgrl.operators import Operator
from fastgrl.seams import Host, Seam, register_seam

try:
    import tensorflow as tf
except ImportError as missing:
    raise MissingExtraError("tensors of TensorFlow need it: pip install 'fastgrl[tensorflow]'") from missing

_DTYPES = {
    np.dtype(name): getattr(tf, name)
    for name in ("float32", "float64", "bool", "uint8", "int8", "int16", "int32", "int64")
}
_KINDS = {dtype: kind for kind, dtype in _DTYPES.items()}
_DENSE = (tf.Tensor, tf.Variable)
# What `tf.matmul` calls in the end, at a third of the cost of a call: most of it for a few thousand rows.
_product = tf.raw_ops.MatMul
# Rows that are summed in single precision. TensorFlow's products of several chunks at once are slow, so these
# go one by one, and there should not be many; sums of so many are as good as those of 4096.
_CHUNK_ROWS = 4 * CHUNK_ROWS
# Columns that the derivative of a sparse product looks at together: it needs two numbers of each for every
# entry that is stored.
_PANEL = 8


def seam_for(tensor: Any) -> Seam:
    """The seam of tensors on the device of this one, if their numbers are known."""
    held = tensor if isinstance(tensor, _DENSE) else tensor.values
    if not tf.executing_eagerly() or tf.is_symbolic_tensor(held):
        raise FastgrlError(
            "tensors have no numbers yet while tf.function traces: call fastgrl outside of it, or in it "
            "through tf.py_function"
        )
    if isinstance(tensor, tf.Variable) and not tensor.shape.is_fully_defined():
        raise ShapeError(
            f"a variable must have a shape that cannot change, got {tensor.shape}: pass its value()"
        )
    return _seam_on(held.device)


@functools.cache
def _seam_on(device: str) -> Seam:
    def put(array: Host, dtype: Any) -> tf.Tensor:
        # A copy, because TensorFlow may keep the memory of an array as its own.
        with tf.device(device):
            return tf.convert_to_tensor(np.array(array, np.dtype(dtype), order="C"))

    def put_sparse(matrix: CSR, dtype: Any) -> Sparse:
        values = np.ones(len(matrix.indices)) if matrix.values is None else matrix.values
        rows = np.repeat(np.arange(matrix.shape[0]), np.diff(matrix.indptr))
        where = put(np.stack([rows, matrix.indices], axis=1), np.int64)
        return Sparse(where, put(values, dtype), matrix.shape)

    return seam_from(
        Library(
            name=_name(device),
            normal=functools.partial(_normal, device),
            matmul=_matmul,
            gram=_gram,
            rough_gram=_rough_gram,
            column_sums=lambda X: tf.reduce_sum(_wide(X), 0),
            extremes=_extremes,
            concatenate=lambda blocks, axis: tf.concat(list(blocks), axis),
            transposed=lambda a: a.transposed if isinstance(a, Sparse) else tf.transpose(a),
            take_rows=tf.gather,
            spread_rows=tf.math.unsorted_segment_sum,
            broadcast=lambda row, rows: tf.broadcast_to(row, (rows, row.shape[0])),
            cast=lambda array, dtype: tf.cast(array, _DTYPES[np.dtype(dtype)]),
            put=put,
            put_sparse=put_sparse,
            host=lambda tensor: tensor.numpy(),
            kind=lambda tensor: _KINDS.get(tensor.dtype),
            is_dense=lambda value: isinstance(value, _DENSE),
            is_finite=lambda tensor: bool(tf.reduce_all(tf.math.is_finite(_numbers(tensor)))),
            constant=tf.stop_gradient,
            stored=_stored,
            widened=_widened,
            working=functools.partial(tf.device, device),
            detached=functools.partial(_detached, device),
            attached=functools.partial(_attached, device),
        )
    )


@contextmanager
def _detached(device: str) -> Iterator[None]:
    # It lifts out of everything that is built or recorded around it; here only tapes are.
    with tf.init_scope(), tf.device(device):
        yield


def _name(device: str) -> str:
    place = tf.DeviceSpec.from_string(device)
    on_host = place.device_type in (None, "CPU")
    return "TensorFlow" if on_host else f"TensorFlow on {place.device_type}:{place.device_index}"


def _normal(device: str, rows: int, columns: int, dtype: Any, seed: int, stream: int) -> tf.Tensor:
    key = np.random.SeedSequence([seed, stream]).generate_state(2, np.uint64).view(np.int64)
    kind = _DTYPES[np.dtype(dtype)]
    with tf.device(device):
        return tf.random.stateless_normal((rows, columns), key, dtype=kind, alg="philox")


def _wide(X: tf.Tensor) -> tf.Tensor:
    return X if X.dtype == tf.float64 else tf.raw_ops.Cast(x=X, DstT=tf.float64)


def _widened(array: Any, dtype: Any) -> Any:
    if isinstance(array, tf.Variable):
        array = tf.convert_to_tensor(array)
    return _wide(array) if dtype == np.float64 and array.dtype == tf.float32 else array


def _matmul(a: Any, X: tf.Tensor) -> tf.Tensor:
    if isinstance(a, Sparse):
        kind = np.promote_types(_KINDS[a.dtype], _KINDS[X.dtype])
        return a.widened(kind).product(_widened(X, kind))
    return _product(a=_widened(a, _KINDS[X.dtype]), b=_widened(X, _KINDS[a.dtype]))


def _gram(X: tf.Tensor, Y: tf.Tensor) -> tf.Tensor:
    wide = _wide(Y)
    return _product(a=wide if X is Y else _wide(X), b=wide, transpose_a=True)


def _rough_gram(X: tf.Tensor, Y: tf.Tensor) -> tf.Tensor:
    """X'Y, chunks of rows in the tensors' own precision and their sum in double precision."""
    rows = Y.shape[0]
    if rows <= _CHUNK_ROWS:
        return _wide(_product(a=X, b=Y, transpose_a=True))
    sizes = [min(_CHUNK_ROWS, rows - begin) for begin in range(0, rows, _CHUNK_ROWS)]
    chunks = zip(tf.split(X, sizes), tf.split(Y, sizes), strict=True)
    return tf.add_n([_wide(_product(a=x, b=y, transpose_a=True)) for x, y in chunks])


def _extremes(Y: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    if not Y.shape[0]:
        none = tf.zeros(Y.shape[1], Y.dtype)
        return none, none
    return tf.reduce_max(Y, 0), tf.reduce_min(Y, 0)


def _numbers(tensor: Any) -> Any:
    """What a tensor stores."""
    return tensor if isinstance(tensor, _DENSE) else tensor.values


def _stored(array: Any) -> Any:
    """A sparse tensor by rows, if its coordinates are within its shape; a dense one as it is."""
    if not isinstance(array, tf.SparseTensor):
        return array
    shape = tuple(map(int, array.shape))
    if len(shape) != 2:
        raise ShapeError(f"a sparse tensor must be a matrix, got shape {shape}: use tf.sparse.to_dense")
    if not bool(tf.reduce_all((array.indices >= 0) & (array.indices < shape))):
        raise ShapeError(f"a sparse tensor of shape {shape} has indices outside of it")
    return Sparse(array.indices, array.values, (shape[0], shape[1]))


@dataclass(frozen=True, eq=False)
class Sparse:
    """A sparse matrix of coordinates and values, with the same by rows for products.

    TensorFlow's products by rows take a tenth of the time of those by coordinates when blocks are wide, but
    have no derivatives: those are here, for the stored values and for the block.
    """

    indices: tf.Tensor
    values: tf.Tensor
    shape: tuple[int, int]

    @property
    def dtype(self) -> Any:
        return self.values.dtype

    @functools.cached_property
    def by_rows(self) -> Any:
        """TensorFlow's compressed rows, which trust that coordinates come in the order of rows."""
        with tf.init_scope(), tf.device(self.values.device):
            rows, parts = self.indices[:, 0], (self.indices, self.values)
            if not bool(tf.reduce_all(rows[1:] >= rows[:-1])):
                parts = tuple(tf.gather(part, tf.argsort(rows, stable=True)) for part in parts)
            shape = tf.constant(self.shape, tf.int64)
            return tf.raw_ops.SparseTensorToCSRSparseMatrix(
                indices=parts[0], values=parts[1], dense_shape=shape
            )

    @functools.cached_property
    def transposed(self) -> Sparse:
        """The transpose, whose own is this one."""
        flipped = Sparse(self.indices[:, ::-1], self.values, self.shape[::-1])
        vars(flipped)["transposed"] = self
        if all(self.shape):
            with tf.init_scope():
                by_rows = tf.raw_ops.SparseMatrixTranspose(input=self.by_rows, type=self.dtype)
            vars(flipped)["by_rows"] = by_rows
        return flipped

    def widened(self, kind: Any) -> Sparse:
        """In the wider of its own type and this one."""
        if kind == _KINDS[self.dtype]:
            return self
        return Sparse(self.indices, _widened(self.values, kind), self.shape)

    def product(self, X: tf.Tensor) -> tf.Tensor:
        """The matrix times a block."""

        @tf.custom_gradient
        def multiply(values: tf.Tensor, X: tf.Tensor) -> Any:
            del values
            with tf.init_scope():
                Y = self._product(X)

            def gradient(Y_bar: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
                with tf.device(self.values.device):
                    return self._sampled(Y_bar, X), self.transposed.product(Y_bar)

            return Y, gradient

        return multiply(self.values, X)

    def _product(self, X: tf.Tensor) -> tf.Tensor:
        if not (all(self.shape) and X.shape[1]):  # which TensorFlow would divide by
            return tf.zeros((self.shape[0], X.shape[1]), X.dtype)
        return tf.raw_ops.SparseMatrixMatMul(a=self.by_rows, b=X)

    def _sampled(self, Y: tf.Tensor, X: tf.Tensor) -> tf.Tensor:
        """Y X' where something is stored."""
        rows, columns = self.indices[:, 0], self.indices[:, 1]
        total = tf.zeros_like(self.values)
        for begin in range(0, X.shape[1], _PANEL):
            panel = slice(begin, begin + _PANEL)
            total += tf.reduce_sum(tf.gather(Y[:, panel], rows) * tf.gather(X[:, panel], columns), 1)
        return total


def _repeat(unfinished: Any, step: Any, state: Any) -> Any:
    for _ in range(MOST_STEPS):
        if not bool(unfinished(state)):
            break
        state = step(state)
    return state


ARITHMETIC = Arithmetic(
    matmul=tf.matmul,
    transposed=tf.transpose,
    where=tf.where,
    sums=lambda block: tf.reduce_sum(block, 0),
    largest=lambda values: tf.reduce_max(values) if values.shape.num_elements() else tf.reduce_sum(values),
    peaks=lambda block: tf.reduce_max(abs(block), 0),
    diagonal=tf.linalg.diag,
    repeat=_repeat,
)


def _attached(device: str, operator: Operator, svd: SVD) -> SVD:
    """The SVD as a function of whatever the operator's products depend on."""
    with tf.device(device):
        return _as_function(operator, svd)


def _as_function(operator: Operator, svd: SVD) -> SVD:
    U, s, V = svd.U, svd.s, tf.transpose(svd.Vt)
    if not _is_watched(operator @ V[:, :1]):
        return svd
    at = Factorised(U, s, V, operator.__matmul__, operator.T.__matmul__, np.finfo(_KINDS[s.dtype]).eps)

    @tf.custom_gradient
    def factors(Z: tf.Tensor, Zt: tf.Tensor) -> Any:
        return (U, s, V), lambda *cotangents: _cotangents(at, Z, Zt, *cotangents)

    left, values, right = factors(operator @ V, operator.T @ U)
    return SVD(left, values, tf.transpose(right), svd.rounds)


def _is_watched(tensor: tf.Tensor) -> bool:
    """Whether a tape has recorded how the tensor came about: nobody but it keeps this function's gradient."""

    def identity(x: tf.Tensor) -> Any:
        def gradient(x_bar: tf.Tensor) -> tf.Tensor:
            return x_bar

        kept.append(weakref.ref(gradient))
        return x, gradient

    kept: list[Any] = []
    copy = tf.custom_gradient(identity)(tensor)
    watched = kept[0]() is not None
    del copy  # not before: with the last reference to it a tape forgets
    return watched


def _cotangents(at: Factorised, Z: tf.Tensor, Zt: tf.Tensor, *cotangents: tf.Tensor) -> Any:
    """The rule, which has no derivative of its own."""
    if any(map(tf.is_symbolic_tensor, cotangents)):
        raise FastgrlError(
            "the derivative of fsvd needs numbers: use a persistent tape, and "
            "tape.jacobian(…, experimental_use_pfor=False)"
        )
    with _detached(Z.device):
        found = product_cotangents(ARITHMETIC, at, *cotangents)

    def refuse(*_: tf.Tensor) -> Any:
        refuse_second_derivative()

    @tf.custom_gradient
    def only_once(*_: tf.Tensor) -> Any:
        return found, refuse

    return only_once(Z, Zt, *cotangents)


for kind in (tf.Tensor, tf.Variable, tf.SparseTensor, Sparse):
    register_seam(kind, seam_for)
