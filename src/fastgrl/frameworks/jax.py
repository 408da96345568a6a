"""JAX: arrays in and out of `fsvd`, with derivatives, under `jit` and `vmap` as well.

Where numbers are there, as outside of `jit`, k×k matrices are looked at on the host like those of every other
library. While a program is traced they are not: then columns are made orthonormal by reflections, nothing is
replaced or begun anew, and products are not checked.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

import numpy as np

from fastgrl.errors import ArgumentError, DtypeError, MissingExtraError, ShapeError
from fastgrl.frameworks.blocks import Library, in_chunks, seam_from
from fastgrl.frameworks.derivatives import (
    MOST_STEPS,
    Arithmetic,
    Factorised,
    product_cotangents,
    refuse_second_derivative,
)
from fastgrl.fsvd import SVD
from fastgrl.kernels import CSR
from fastgrl.leaves import Function
from fastgrl.linalg import CHUNK_ROWS
from fastgrl.operators import Operator, leaves
from fastgrl.seams import Host, Seam, register_seam

try:
    import jax
    import jax.numpy as jnp
    from jax.experimental import sparse
except ImportError as missing:
    raise MissingExtraError("arrays of JAX need it: pip install 'fastgrl[jax]'") from missing

_NOTE = "sums in single precision, because JAX's x64 is off: jax.enable_x64(True) has them in double"


def seam_for(array: Any) -> Seam:
    """The seam of concrete arrays, or of those that are traced; sums as precise as JAX is told to be."""
    known = _known(array)
    return _seam(known is None, None if known is None else _device(known), bool(jax.config.jax_enable_x64))


def _refuse_layout(array: Any) -> NoReturn:
    raise DtypeError(f"{type(array).__name__} of JAX is not supported: use BCOO or BCSR")


def _known(array: Any) -> Any:
    """The numbers of an array, None while they are unknown: under `jit` all are, under `vmap` some."""
    held = array.data if isinstance(array, sparse.JAXSparse) else array
    if isinstance(held, jax.core.Tracer):
        held = jax.lax.stop_gradient(held)  # under `grad` alone this is enough
        return None if isinstance(held, jax.core.Tracer) else held
    return None if isinstance(jnp.zeros(()), jax.core.Tracer) else held


def _device(array: Any) -> Any:
    """The device that an array was put on; None where JAX chooses, or where there are several."""
    devices = array.devices() if array.committed else ()
    return next(iter(devices)) if len(devices) == 1 else None


@functools.cache
def _seam(traced: bool, device: Any, double: bool) -> Seam:
    def put(array: Any, dtype: Any) -> Any:
        if traced:
            return jnp.asarray(array, _own(dtype))
        return jax.device_put(np.array(array, _own(dtype)), device)  # a copy, whose memory JAX may keep

    return seam_from(
        Library(
            name="JAX",
            normal=functools.partial(_normal, device),
            matmul=_matmul,
            gram=_gram,
            rough_gram=_rough_gram,
            rough_grams=_rough_grams,
            sum_of_products=_sum_of_products,
            column_sums=lambda X: X.sum(0, dtype=_sums()),
            extremes=_extremes,
            concatenate=_concatenate,
            transposed=_transposed,
            stored=_by_rows,
            take_rows=lambda Y, rows: Y[jnp.asarray(rows)],
            spread_rows=lambda Y, rows, count: jnp.zeros((count, Y.shape[1]), Y.dtype).at[rows].add(Y),
            broadcast=lambda row, rows: jnp.broadcast_to(row, (rows, row.shape[0])),
            cast=_cast,
            put=put,
            put_sparse=functools.partial(_put_sparse, put),
            host=(lambda array: array) if traced else _host,
            kind=_kind,
            is_dense=lambda value: isinstance(value, jax.Array),
            is_finite=_is_finite,
            constant=jax.lax.stop_gradient if traced else _constant,
            small=jnp if traced else np,
            sums=np.float64 if double else np.float32,
            qr=jnp.linalg.qr if traced else None,
            attached=_attached,
            note="" if double else _NOTE,
        )
    )


def _own(dtype: Any) -> Any:
    """The type, or single precision where JAX has no double."""
    return jax.dtypes.canonicalize_dtype(dtype)


def _sums() -> Any:
    return _own(np.float64)


def _host(array: Any) -> Host:
    return np.asarray(jax.lax.stop_gradient(array))


def _kind(array: Any) -> np.dtype[Any] | None:
    kind = array.dtype
    return kind if isinstance(kind, np.dtype) and kind.kind in "fiub" else None


def _constant(block: Any) -> Any:
    constant = jax.lax.stop_gradient(block)
    if isinstance(constant, jax.core.Tracer):
        raise ArgumentError(
            "a function closes over an array that vmap maps over, whose numbers are not known yet: "
            "pass that array as like="
        )
    return constant


def _cast(array: Any, dtype: Any) -> Any:
    kind = _own(dtype)
    if isinstance(array, sparse.BCSR):  # which cannot be asked to
        return sparse.BCSR((array.data.astype(kind), array.indices, array.indptr), shape=array.shape)
    return array.astype(kind)


def _normal(device: Any, rows: int, columns: int, dtype: Any, seed: int, stream: int) -> Any:
    first, second = np.random.SeedSequence([seed, stream]).generate_state(2, np.uint32)
    key = jax.random.key(first)
    key = jax.random.fold_in(key if device is None else jax.device_put(key, device), second)
    return jax.random.normal(key, (rows, columns), _own(dtype))


@jax.jit
def _gram(X: Any, Y: Any) -> Any:
    return jnp.matmul(X.astype(_sums()).T, Y.astype(_sums()), precision="highest")


@jax.jit
def _rough_gram(X: Any, Y: Any) -> Any:
    """X'Y, chunks of rows in the arrays' own precision, added up as precisely as JAX is told to."""
    total = jnp.zeros((X.shape[1], Y.shape[1]), _sums())
    for begin, end in in_chunks(len(Y)):
        height = min(CHUNK_ROWS, end - begin)
        x, y = (part[begin:end].reshape(-1, height, part.shape[1]) for part in (X, Y))
        total += jnp.einsum("chi,chj->cij", x, y, precision="highest").sum(0, dtype=_sums())
    return total


# A call takes longer than what it does with a small block, and each number of blocks would be compiled for.
_AT_ONCE = 4


def _rough_grams(blocks: Sequence[Any], Y: Any) -> list[Any]:
    return [gram for some in _in_groups(list(blocks)) for gram in _some_grams(some, Y)]


@jax.jit
def _some_grams(blocks: Sequence[Any], Y: Any) -> list[Any]:
    return [_rough_gram(block, Y) for block in blocks]


def _sum_of_products(blocks: Sequence[Any], factors: Sequence[Any]) -> Any:
    kind = blocks[0].dtype
    own = [factor.astype(kind) for factor in factors]
    groups = [_some_products(*group) for group in zip(_in_groups(list(blocks)), _in_groups(own), strict=True)]
    return functools.reduce(_added, groups)


@jax.jit
def _some_products(blocks: Sequence[Any], factors: Sequence[Any]) -> Any:
    products = (jnp.matmul(*pair, precision="highest") for pair in zip(blocks, factors, strict=True))
    return functools.reduce(lambda a, b: a + b, products)


@jax.jit
def _added(X: Any, Y: Any) -> Any:
    return X + Y


def _in_groups(parts: list[Any]) -> list[list[Any]]:
    """By fours, and what is left one by one: two shapes to compile for."""
    whole = len(parts) - len(parts) % _AT_ONCE
    fours = [parts[begin : begin + _AT_ONCE] for begin in range(0, whole, _AT_ONCE)]
    return [*fours, *([part] for part in parts[whole:])]


def _extremes(Y: Any) -> tuple[Any, Any]:
    return (Y.max(0), Y.min(0)) if len(Y) else (jnp.zeros(Y.shape[1], Y.dtype),) * 2


def _concatenate(blocks: Sequence[Any], axis: int) -> Any:
    return jnp.concatenate(list(blocks), axis=axis)


def _transposed(a: Any) -> Any:
    return _by_rows(a.to_bcoo().T) if isinstance(a, sparse.BCSR) else a.T


def _by_rows(a: Any) -> Any:
    """A sparse matrix by rows: the one layout whose products are more than a sum over gathered rows."""
    if not isinstance(a, sparse.JAXSparse):
        return a
    if a.ndim != 2 or a.n_batch or a.n_dense:
        raise ShapeError(
            f"a sparse array must be one matrix of numbers, got shape {a.shape} with {a.n_batch} batch and "
            f"{a.n_dense} dense dimensions: use todense()"
        )
    return sparse.BCSR.from_bcoo(_within_shape(a if isinstance(a, sparse.BCOO) else a.to_bcoo()))


@jax.jit
def _within_shape(a: Any) -> Any:
    """The matrix sorted, with zeros for entries outside of its shape: padding to JAX, not to its products."""
    inside = ((a.indices >= 0) & (a.indices < jnp.asarray(a.shape))).all(axis=1)
    where = jnp.where(inside[:, None], a.indices, jnp.asarray(a.shape, a.indices.dtype))
    return sparse.BCOO((jnp.where(inside, a.data, 0), where), shape=a.shape).sort_indices()


def _put_sparse(put: Callable[[Any, Any], Any], matrix: CSR, dtype: Any) -> Any:
    values = np.ones(len(matrix.indices)) if matrix.values is None else matrix.values
    indices, indptr = (put(part, np.int32) for part in (matrix.indices, matrix.indptr))
    return sparse.BCSR((put(values, dtype), indices, indptr), shape=matrix.shape)


def _matmul(a: Any, X: Any) -> Any:
    if isinstance(a, sparse.JAXSparse):
        kind = jnp.promote_types(a.dtype, X.dtype)
        return _sparse_product(a if a.dtype == kind else _cast(a, kind), X.astype(kind))
    return _dense_product(a, X)


@jax.jit
def _dense_product(a: Any, X: Any) -> Any:
    return jnp.matmul(a, X, precision="highest")


@jax.jit
def _sparse_product(a: Any, X: Any) -> Any:
    return a @ X


def _is_finite(array: Any) -> bool:
    known = _known(array)
    return known is None or bool(jnp.isfinite(known).all())


# Derivatives.


def _repeat(unfinished: Callable[[Any], Any], step: Callable[[Any], Any], state: Any) -> Any:
    if _known(state[0]) is None:

        def go_on(counted: Any) -> Any:
            return (counted[0] < MOST_STEPS) & unfinished(counted[1])

        return jax.lax.while_loop(go_on, lambda counted: (counted[0] + 1, step(counted[1])), (0, state))[1]
    for _ in range(MOST_STEPS):
        if not unfinished(state):
            break
        state = step(state)
    return state


ARITHMETIC = Arithmetic(
    matmul=functools.partial(jnp.matmul, precision="highest"),
    transposed=lambda block: block.T,
    where=jnp.where,
    sums=lambda block: block.sum(0),
    largest=lambda values: values.max(initial=0),
    peaks=lambda block: abs(block).max(0),
    diagonal=jnp.diag,
    repeat=_repeat,
)

Products = tuple[Callable[..., Any], Callable[..., Any]]


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _factors(products: Products, known: Any, held: Any, Z: Any, Zt: Any) -> Any:
    """U, s and V as functions of Z = M V and Z' = M'U; `held` is what the products close over."""
    del products, held, Z, Zt
    return known


def _factors_forward(products: Products, known: Any, held: Any, Z: Any, Zt: Any) -> Any:
    del products
    return known, (known, held, Z, Zt)


def _factors_backward(products: Products, kept: Any, cotangents: Any) -> Any:
    (U, s, V), held, Z, Zt = kept
    forward, backward = (functools.partial(_applied, f, h) for f, h in zip(products, held, strict=True))
    at = Factorised(U, s, V, forward, backward, float(jnp.finfo(s.dtype).eps))
    bars = product_cotangents(ARITHMETIC, at, *cotangents)
    nothing = jax.tree.map(jnp.zeros_like, ((U, s, V), held))
    return (*nothing, bars[0] + _no_second_derivative(Z), bars[1] + _no_second_derivative(Zt))


_factors.defvjp(_factors_forward, _factors_backward)


def _applied(product: Callable[..., Any], held: Any, X: Any) -> Any:
    return product(X, *held)


@jax.custom_jvp
def _no_second_derivative(Z: Any) -> Any:
    """Zeros that cannot be differentiated: the rule above knows first derivatives only."""
    return jnp.zeros_like(Z)


@_no_second_derivative.defjvp
def _(*_: Any) -> Any:
    refuse_second_derivative()


def _attached(operator: Operator, svd: SVD) -> SVD:
    """The SVD as a function of whatever the operator's products depend on."""
    if not _may_be_differentiated(operator):
        return svd
    known = jax.lax.stop_gradient((svd.U, svd.s, svd.Vt.T))
    U, _, V = known
    transpose = operator.T
    converted = (
        jax.closure_convert(lambda X: operator @ X, V),
        jax.closure_convert(lambda Y: transpose @ Y, U),
    )
    products, held = zip(*converted, strict=True)
    U, s, V = _factors(products, known, held, operator @ V, transpose @ U)
    return SVD(U, s, V.T, svd.rounds)


def _may_be_differentiated(operator: Operator) -> bool:
    """Whether a tracer is in sight; what a function closes over is not."""
    held = [value for leaf in leaves(operator) for value in vars(leaf).values()]
    tracers = any(isinstance(x, jax.core.Tracer) for x in jax.tree.leaves(held))
    return tracers or any(isinstance(leaf, Function) for leaf in leaves(operator))


def _svd_of(rounds: int, parts: tuple[Any, Any, Any]) -> SVD:
    U, s, Vt = parts
    return SVD(U, s, Vt, rounds)


jax.tree_util.register_pytree_node(SVD, lambda svd: (tuple(svd), svd.rounds), _svd_of)
for kind in (jax.Array, jax.core.Tracer, sparse.BCOO, sparse.BCSR):
    register_seam(kind, seam_for)
register_seam(sparse.JAXSparse, _refuse_layout)
