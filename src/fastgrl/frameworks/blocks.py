"""A seam from the few functions in which array libraries differ: a basis is a list of blocks."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
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
    is_own: Callable[[Any], bool]
    is_dense: Callable[[Any], bool]
    is_finite: Callable[[Any], bool]
    constant: Callable[[Block], Block]
    small: Any = np
    qr: Callable[[Block], tuple[Block, Host]] | None = None
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
        cross=lambda X, Y: library.host(library.gram(X, Y)),
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
        small=library.small,
        qr=library.qr,
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
    return Blocks((*basis.blocks, block), basis.columns + int(block.shape[1]), basis.combinations + mixed)


def _columns(library: Library, basis: Blocks, first: int, last: int) -> Block:
    parts, begin = [], 0
    for block in basis.blocks:
        width = int(block.shape[1])
        parts.append(block[:, max(0, first - begin) : max(0, last - begin)])
        begin += width
    return library.concatenate(parts, 1) if parts else basis.combinations[:, :0]


def _grams(library: Library, basis: Blocks, Y: Block) -> Host:
    rough = [library.rough_gram(block, Y) for block in basis.blocks]
    return library.host(library.concatenate([*rough, library.gram(Y, Y)], 0))


def _probes(library: Library, basis: Blocks, Y: Block) -> Host:
    both = [library.rough_gram(basis.combinations, Y), library.gram(Y, Y)]
    return library.host(library.concatenate(both, 0))


def _combine(
    library: Library, basis: Blocks, C: Host, Y: Block, D: Host, *, overwrite: bool = False
) -> Block:
    del overwrite
    out, begin = _times(library, Y, D), 0
    for block in basis.blocks:
        rows = C[begin : begin + block.shape[1]]
        begin += block.shape[1]
        if library.qr is not None or rows.any():
            out = out + _times(library, block, rows)
    return out


def _span(library: Library, basis: Blocks, C: Host) -> Block:
    first, *others = basis.blocks
    none = Blocks(tuple(others), basis.columns - first.shape[1], None)
    return _combine(library, none, C[first.shape[1] :], first, C[: first.shape[1]])


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
    return array


def _like(library: Library, returned: Any, block: Block) -> Block:
    if not library.is_own(returned):
        raise DtypeError(
            f"a product of a block of {library.name} must be one too, but its function returned "
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
