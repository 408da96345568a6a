"""A seam from the few functions in which array libraries differ: a basis is a list of blocks."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import numpy as np

from fastgrl.checks import FLOATS
from fastgrl.errors import DtypeError, NotFiniteError, ShapeError
from fastgrl.kernels import CSR
from fastgrl.linalg import PROBES, chunk_bounds
from fastgrl.seams import Block, Host, Seam


@dataclass(frozen=True)
class Library:
    """What an array library calls the things that a seam is made of; arrays stay on their device."""

    name: str
    normal: Callable[..., Block]  # (rows, columns, dtype, seed, stream)
    matmul: Callable[[Any, Block], Block]  # a dense or sparse matrix times a dense one
    gram: Callable[[Block, Block], Block]  # X'Y in the precision for sums
    rough_gram: Callable[[Block, Block], Block]  # the same, in the blocks' own precision within a chunk
    column_sums: Callable[[Block], Any]  # in the precision for sums
    extremes: Callable[[Block], tuple[Any, Any]]  # the largest and the smallest entry of every column
    concatenate: Callable[[Sequence[Block], int], Block]
    transposed: Callable[[Any], Any]
    take_rows: Callable[[Block, Any], Block]
    spread_rows: Callable[[Block, Any, int], Block]
    broadcast: Callable[[Any, int], Block]  # (row, rows): the row, so many times
    cast: Callable[[Any, Any], Any]  # (array, dtype), and from anything array-like
    put: Callable[[Host, Any], Any]  # (array, dtype): from the host
    put_sparse: Callable[[CSR, Any], Any]  # (matrix, dtype): likewise; a pattern without values holds ones
    host: Callable[[Any], Host]
    kind: Callable[[Any], np.dtype[Any] | None]  # None for types that NumPy does not have
    is_dense: Callable[[Any], bool]
    is_finite: Callable[[Any], bool]
    constant: Callable[[Block], Block]
    sum_of_products: Callable[[Sequence[Block], Sequence[Host]], Block] | None = None  # Σ Q_i C_i at once
    rough_grams: Callable[[Sequence[Block], Block], list[Any]] | None = None  # all Q_i'Y at once
    stored: Callable[[Any], Any] = lambda matrix: matrix  # as its products are fastest
    widened: Callable[[Any, Any], Any] = lambda array, _dtype: array
    small: Any = np
    sums: Any = np.float64
    qr: Callable[[Block], tuple[Block, Host]] | None = None
    working: Callable[[], AbstractContextManager[Any]] = nullcontext
    detached: Callable[[], AbstractContextManager[Any]] = nullcontext
    attached: Callable[[Any, Any], Any] = lambda _operator, svd: svd
    note: str = ""


@dataclass(frozen=True, eq=False)
class Blocks:
    """Orthonormal columns as they came, and a few random combinations of them."""

    blocks: tuple[Block, ...]
    columns: int
    combinations: Block


def seam_from(library: Library) -> Seam:
    """The seam of an array library."""
    use = functools.partial
    return Seam(
        name=library.name,
        random=library.normal,
        basis=use(_no_columns, library),
        append=use(_append, library),
        as_basis=lambda block: Blocks((block,), block.shape[1], None),
        columns=use(_columns, library),
        grams=use(_grams, library),
        probes=use(_probes, library),
        combine=use(_combine, library),
        span=use(_span, library),
        cross=lambda X, Y: _small(library, library.gram(X, Y)),
        times=use(_times, library),
        by_panels=use(_by_panels, library),
        peak=lambda Y: float(library.host(_peaks(library, Y)).max(initial=0.0)),
        signs=use(_signs, library),
        unit_peaks=use(_unit_peaks, library),
        scaled=use(_scaled, library),
        sync=library.constant,
        matmul=library.matmul,
        inner=lambda X, Y: library.cast(library.gram(X, Y), library.kind(Y)),
        column_sums=library.column_sums,
        repeat_row=lambda rows, row, like: library.broadcast(library.cast(row, library.kind(like)), rows),
        take_rows=library.take_rows,
        spread_rows=library.spread_rows,
        concatenate=library.concatenate,
        transposed=library.transposed,
        is_dense=library.is_dense,
        kind=use(_kind, library, "a block"),
        checked=use(_checked, library),
        like=use(_like, library),
        put=library.put,
        put_sparse=library.put_sparse,
        host=library.host,
        cast=library.cast,
        pseudo_inverse=use(_pseudo_inverse, library),
        widened=library.widened,
        small=library.small,
        sums=library.sums,
        qr=library.qr,
        working=library.working,
        detached=library.detached,
        attached=library.attached,
        note=library.note,
    )


def _no_columns(library: Library, rows: int, capacity: int, dtype: Any) -> Blocks:
    del capacity
    return Blocks((), 0, library.put(np.zeros((rows, PROBES)), dtype))


def _append(library: Library, basis: Blocks, block: Block) -> Blocks:
    if not block.shape[1]:
        return basis
    gamma = np.random.Generator(np.random.Philox(key=basis.columns)).standard_normal((block.shape[1], PROBES))
    mixed = library.matmul(block, library.put(gamma, library.kind(block)))
    # One block while tracing: a program's size, and the time to compile it, grows with the number of blocks.
    blocks = (library.concatenate([*basis.blocks, block], 1),) if library.qr else (*basis.blocks, block)
    return Blocks(blocks, basis.columns + int(block.shape[1]), basis.combinations + mixed)


def _columns(library: Library, basis: Blocks, first: int, last: int) -> Block:
    parts, begin = [], 0
    for block in basis.blocks:
        width = int(block.shape[1])
        parts.append(block[:, max(0, first - begin) : max(0, last - begin)])
        begin += width
    return library.concatenate(parts, 1) if parts else basis.combinations[:, :0]


def _grams(library: Library, basis: Blocks, Y: Block) -> Host:
    if library.rough_grams is None:
        rough = [library.rough_gram(Q, Y) for Q in basis.blocks]
    else:
        rough = library.rough_grams(basis.blocks, Y)
    return _stacked(library, [*rough, library.gram(Y, Y)])


def _probes(library: Library, basis: Blocks, Y: Block) -> Host:
    return _stacked(library, [library.rough_gram(basis.combinations, Y), library.gram(Y, Y)])


def _stacked(library: Library, parts: list[Any]) -> Host:
    """Small matrices, one above the other; not on the device, where each new shape may be compiled for."""
    stacked: Host = library.small.concatenate([_small(library, part) for part in parts])
    return stacked


def _small(library: Library, matrix: Any) -> Host:
    """A k×k matrix where k×k matrices are computed with: in double precision on the host."""
    small: Host = library.host(matrix)
    return small if library.qr is not None else small.astype(np.float64, copy=False)


def _combine(
    library: Library, basis: Blocks, C: Host, Y: Block, D: Host, *, overwrite: bool = False
) -> Block:
    del overwrite
    terms = [(Y, D), *_terms(library, basis, C)]
    return _sum_of_products(library, [block for block, _ in terms], [rows for _, rows in terms])


def _span(library: Library, basis: Blocks, C: Host) -> Block:
    ends = itertools.accumulate(int(block.shape[1]) for block in basis.blocks)
    return _sum_of_products(library, basis.blocks, library.small.split(C, list(ends)[:-1]))


def _terms(library: Library, basis: Blocks, C: Host) -> Iterator[tuple[Block, Host]]:
    """The blocks and their rows of C, without those that are zero."""
    begin = 0
    for block in basis.blocks:
        rows = C[begin : begin + block.shape[1]]
        begin += block.shape[1]
        if library.qr is not None or rows.any():
            yield block, rows


def _sum_of_products(library: Library, blocks: Sequence[Block], factors: Sequence[Host]) -> Block:
    if library.sum_of_products is not None:
        return library.sum_of_products(blocks, factors)
    products = (_times(library, block, rows) for block, rows in zip(blocks, factors, strict=True))
    return functools.reduce(lambda a, b: a + b, products)


def _times(library: Library, Y: Block, D: Host, *, overwrite: bool = False) -> Block:
    del overwrite
    return library.matmul(Y, library.put(D, library.kind(Y)))


def _by_panels(
    library: Library, product: Callable[[Block], Block], X: Block, rows: int, width: int, consume: bool
) -> Block:
    del rows, consume
    panels = [product(X[:, begin : begin + width]) for begin in range(0, X.shape[1], width)]
    return library.concatenate(panels, 1)


def _peaks(library: Library, Y: Block) -> Any:
    largest, smallest = library.extremes(Y)
    return library.concatenate([largest[None], -smallest[None]], 0)


def _signs(library: Library, U: Block) -> Host:
    largest, smallest = (library.host(values) for values in library.extremes(U))
    signs: Host = library.small.where(largest < -smallest, -1.0, 1.0)
    return signs


def _unit_peaks(library: Library, Y: Block, dtype: Any) -> Block:
    small = library.small
    peaks = small.max(library.host(_peaks(library, Y)), axis=0)
    return library.cast(_scaled(library, Y, 1 / small.where(peaks > 0, peaks, 1)), dtype)


def _scaled(library: Library, Y: Block, d: Any) -> Block:
    return Y * (library.put(d, library.kind(Y)) if np.ndim(d) else float(d))


def _pseudo_inverse(library: Library, U: Block, s: Any, V: Block, inverse: Host, Y: Block) -> Block:
    """V diag(inverse) U'Y as a function of M = UΣV' and of Y; `inverse` is 1/s, or 0 where s is left out.

    The factors that it is computed from are constants; what is added is zero and has the derivative

        −M† dM M†Y + (I − M†M) dM'(M†)'M†Y + M†(M†)'dM'(I − MM†)Y.

    Differentiated as it is written, it would need single vectors, which have no derivative for equal values.
    """
    gram, times, sums = library.gram, library.matmul, library.sums
    U0, s0, V0 = map(library.constant, (U, s, V))
    dU, dV, ds = U - U0, V - V0, library.cast(s - s0, sums)[:, None]
    values = library.cast(s0, sums)
    weights = library.constant(library.put(inverse, sums))[:, None]
    kept, seen = weights * values[:, None], gram(U0, Y)
    solution = weights * seen
    inside = gram(U0, dU) * values + values[:, None] * gram(dV, V0)
    change = gram(dU, Y) - times(gram(dU, U0), kept * seen) - times(inside, solution) - ds * solution
    both = solution + weights * change - kept * times(gram(V0, dV), solution)
    kind = library.kind(V)
    return times(V0, library.cast(both, kind)) + times(dV, library.cast(solution, kind))


def _kind(library: Library, name: str, array: Any) -> np.dtype[Any]:
    kind = library.kind(array)
    if kind is None:
        raise DtypeError(f"{name} of {array.dtype} is not supported; use float32 or float64")
    return kind


def _checked(library: Library, array: Any, name: str, ndim: int) -> Any:
    shape = tuple(array.shape)
    if len(shape) != ndim:
        raise ShapeError(f"{name} must have {ndim} dimension{'s' * (ndim > 1)}, got shape {shape}")
    kind = _kind(library, name, array)
    if kind.kind in "bui":
        array = library.cast(array, np.float64)
    elif kind not in FLOATS:
        raise DtypeError(f"{name} of {kind} is not supported; use float32 or float64")
    if not library.is_finite(array):
        raise NotFiniteError(f"{name} contains NaN or Inf")
    return library.stored(array)


def _like(library: Library, returned: Any, block: Block) -> Block:
    if not library.is_dense(returned):
        raise DtypeError(
            f"a product of a block of {library.name} must be a dense one too, but its function returned "
            f"{type(returned).__name__}"
        )
    kind = _kind(library, "a product", returned)
    if kind.kind not in "buif":
        raise DtypeError(f"a product must be real, but its function returned {kind}")
    return returned if kind == library.kind(block) else library.cast(returned, library.kind(block))


def in_chunks(rows: int) -> list[tuple[int, int]]:
    """The chunks of whole size as one range, and the rest: the row plan of NumPy's seam."""
    *whole, last = chunk_bounds(rows)
    return [*([(0, whole[-1][1])] if whole else []), last]
