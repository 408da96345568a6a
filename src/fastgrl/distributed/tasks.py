"""What workers do with the blocks of rows they hold: chunk by chunk, as one process does with all of them.

Every function is pure. `first` is the number of a block's first chunk and `total` that of all chunks, so that
sums over rows can be put together in the one order that does not depend on how rows are cut into blocks.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from fastgrl.checks import Array
from fastgrl.kernels import CSR, column_sums, multiply, transpose_block
from fastgrl.linalg import (
    CHUNK_ROWS,
    Subtree,
    chunk_bounds,
    chunk_cross,
    chunk_grams,
    chunk_product,
    combine_chunk,
    draw_chunk,
    subtrees,
)
from fastgrl.polynomials import finished, step
from fastgrl.row_orders import Added
from fastgrl.seams import Host

Pieces = dict[Subtree, Host]
Stored = Sequence[Array]  # blocks of columns, each (chunks, columns, rows of a chunk)


# Rows that are made.


def random_rows(begin: int, end: int, columns: int, dtype: Any, seed: int, stream: int) -> Array:
    """Standard normal numbers, those of each chunk by itself."""
    block = np.empty((end - begin, columns), dtype)
    for first, last in chunk_bounds(end - begin):
        draw_chunk(block[first:last], seed, stream, (begin + first) // CHUNK_ROWS)
    return block


def zero_rows(rows: int, columns: int, dtype: Any) -> Array:
    """Zeros."""
    return np.zeros((rows, columns), dtype)


def repeated_row(rows: int, row: Array) -> Array:
    """The same row, so many times."""
    return np.repeat(row[None], rows, axis=0)


def joined_rows(parts: list[Any]) -> Array:
    """Rows of several blocks, one below the other; of each `[block, first, last]`."""
    found = [block[first:last] for block, first, last in parts]
    return found[0] if len(found) == 1 else np.concatenate(found)


def side_by_side(*blocks: Array) -> Array:
    """Columns of several blocks."""
    return np.concatenate(blocks, axis=1)


def as_column(vector: Array) -> Array:
    """A vector as a block of one column."""
    return vector[:, None]


def some_columns(block: Array, first: int, last: int) -> Array:
    """Columns `first` to `last` - 1."""
    return np.ascontiguousarray(block[:, first:last])


def scaled(block: Array, factor: Any) -> Array:
    """Times a number, or a number for each column, in the block's own type."""
    out = block.copy()
    out *= factor
    return out


def typed(block: Array, dtype: Any) -> Array:
    """The same numbers in another type."""
    return block.astype(dtype)


# Sparse rows times all rows of a block.


def stacked(parts: list[Array], factor: float | None = None) -> Array:
    """All rows of a block, perhaps times a number."""
    whole = np.ascontiguousarray(parts[0]) if len(parts) == 1 else np.concatenate(parts)
    return whole if factor is None else factor * whole


def scaled_values(rows: CSR, kind: Any, left: Array | None, right: list[Array] | None) -> CSR:
    """diag(left) A diag(right) for the rows of A that are here."""
    values = np.ones(rows.num_stored) if rows.values is None else rows.values
    if left is not None:
        values = values * np.repeat(left, np.diff(rows.indptr))
    values = values if right is None else values * np.concatenate(right)[rows.indices]
    return CSR(rows.indptr, rows.indices, values.astype(kind), rows.shape, np.dtype(kind))


def product_rows(
    rows: CSR, parts: list[Array], factor: float | None, scale: Array | None, shift: Array | None
) -> Array:
    """`diag(scale) A X + 1 shift'` for the rows of A that are here."""
    return np.asarray(multiply(rows, stacked(parts, factor), row_scale=scale, shift=shift))


def step_rows(
    rows: CSR,
    parts: list[Array],
    factor: float | None,
    scale: Array | None,
    b: Array,
    coefficient: float,
    added: list[Any] | None,
) -> Array:
    """One step of Horner's rule for the rows that are here."""
    last = None if added is None else Added(*added)
    return step(rows, scale, stacked(parts, factor), np.ascontiguousarray(b), coefficient, last)


def finished_rows(block: Array, factor: float, added: list[Any]) -> Array:
    """What a polynomial of one power adds."""
    return finished(factor * block, block, Added(*added))


# Dense work: every product is one of BLAS's for each chunk, every sum a subtree of the one tree.


def _chunks(rows: int, first: int) -> dict[int, tuple[int, int]]:
    return {first + number: bounds for number, bounds in enumerate(chunk_bounds(rows))}


def _pieces(rows: int, first: int, total: int, term: Callable[[int, int], Host]) -> Pieces:
    chunks = _chunks(rows, first)
    return subtrees(lambda chunk: term(*chunks[chunk]), first, first + len(chunks), total)


def stored_by_columns(block: Array, height: int) -> Array:
    """A block as bases are stored: by chunks, and by columns within each."""
    bounds = chunk_bounds(len(block))
    out = np.empty((len(bounds), block.shape[1], height), block.dtype)
    for number, (begin, end) in enumerate(bounds):
        transpose_block(np.ascontiguousarray(block[begin:end]), out[number, :, : end - begin])
    return out


def mixed_rows(before: Array, block: Array, gamma: Array) -> Array:
    """Random combinations of a basis, with those of a new block."""
    out = np.empty_like(before)
    for begin, end in chunk_bounds(len(block)):
        np.add(before[begin:end], chunk_product(block[begin:end], gamma), out=out[begin:end])
    return out


def _of_chunk(stored: Stored, begin: int, end: int, used: slice = slice(None)) -> Array:
    """The columns within a chunk, laid out as one process has them."""
    number = begin // CHUNK_ROWS
    parts = [block[number] for block in stored]
    together = parts[0] if len(parts) == 1 else np.concatenate(parts)
    return together[used, : end - begin].T


def gram_pieces(stored: list[Array], y: Array, first: int, total: int) -> Pieces:
    """[Q, Y]'Y."""

    def term(begin: int, end: int) -> Host:
        q = _of_chunk(stored, begin, end) if stored else np.empty((end - begin, 0), y.dtype)
        return chunk_grams(q, y[begin:end])

    return _pieces(len(y), first, total, term)


def probe_pieces(combinations: Array, y: Array, first: int, total: int) -> Pieces:
    """[QΓ, Y]'Y."""
    return _pieces(len(y), first, total, lambda a, b: chunk_grams(combinations[a:b], y[a:b]))


def cross_pieces(x: Array, y: Array, first: int, total: int) -> Pieces:
    """X'Y in float64."""
    return _pieces(len(y), first, total, lambda a, b: chunk_cross(x[a:b], y[a:b]))


def column_sum_pieces(x: Array, first: int, total: int) -> Pieces:
    """The sum of every column."""
    return _pieces(len(x), first, total, lambda a, b: column_sums(x[a:b]))


def summed_pieces(function: Callable[..., Host], blocks: list[Array], first: int, total: int) -> Pieces:
    """The sum of a function of the rows of each chunk."""
    return _pieces(len(blocks[0]), first, total, lambda a, b: function(*(block[a:b] for block in blocks)))


def mapped_rows(function: Callable[..., Array], blocks: list[Array]) -> Array:
    """A function of the rows of each chunk, one below the other."""
    bounds = chunk_bounds(len(blocks[0]))
    return np.concatenate([function(*(block[a:b] for block in blocks)) for a, b in bounds])


def combined_rows(stored: list[Array], C: Array, y: Array, D: Array, used: list[Any]) -> Array:
    """Q C + Y D."""
    out = np.empty((len(y), D.shape[1]), y.dtype)
    for begin, end in chunk_bounds(len(y)):
        q = _of_chunk(stored, begin, end) if stored else np.empty((end - begin, 0), y.dtype)
        combine_chunk(q, C, y[begin:end], D, [(first, last) for first, last in used], out[begin:end])
    return out


def spanned_rows(stored: list[Array], C: Array, rows: int) -> Array:
    """Q C."""
    out = np.empty((rows, C.shape[1]), C.dtype)
    for begin, end in chunk_bounds(rows):
        chunk_product(_of_chunk(stored, begin, end), C, out=out[begin:end])
    return out


def product_of_rows(block: Array, D: Array) -> Array:
    """Y D."""
    out = np.empty((len(block), D.shape[1]), np.result_type(block, D))
    for begin, end in chunk_bounds(len(block)):
        chunk_product(block[begin:end], D, out=out[begin:end])
    return out


def taken_columns(stored: list[Array], first: int, last: int, rows: int) -> Array:
    """Columns of a basis as a block."""
    parts = [_of_chunk(stored, *bounds)[:, first:last] for bounds in chunk_bounds(rows)]
    return np.ascontiguousarray(np.concatenate(parts))


def extremes(block: Array) -> tuple[Array, Array]:
    """The largest and the smallest entry of every column."""
    return block.max(0, initial=-np.inf), block.min(0, initial=np.inf)


def is_finite(block: Array) -> bool:
    """Whether no number is NaN or infinite."""
    return bool(np.isfinite(block).all())


# Rows picked out of all, and put back.


def picked_rows(block: Array, numbers: Array) -> Array:
    """Rows by their numbers."""
    return np.asarray(block[numbers])


def placed_rows(parts: list[Any], rows: int, columns: int, dtype: Any) -> Array:
    """Zeros, to which the rows of each `[block, numbers]` are added at their places."""
    out = np.zeros((rows, columns), dtype)
    for block, numbers in parts:
        np.add.at(out, numbers, block)
    return out
