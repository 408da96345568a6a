from __future__ import annotations

import ctypes
import dataclasses

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastgrl import linalg, seams
from fastgrl.linalg import CHUNK_ROWS, NUMPY, chunk_bounds, chunk_product, sum_over_chunks, tree_sum
from fastgrl.parallel import use_threads


def block(rows: int, columns: int, dtype: object = np.float64, seed: int = 0) -> np.ndarray:
    return NUMPY.random(rows, columns, dtype, seed, 0)


@given(st.integers(0, 30_000))
def test_chunks_cover_every_row_once(rows):
    covered = [row for begin, end in chunk_bounds(rows) for row in (begin, end)]
    assert covered[0] == 0
    assert covered[-1] == rows
    assert covered[1:-1:2] == covered[2::2]


@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=70), st.integers(0, 6))
def test_aligned_groups_sum_to_the_same_bits_as_the_whole_tree(values, level):
    terms = [np.float64(value) for value in values]
    size = 2**level
    groups = [terms[i : i + size] for i in range(0, len(terms), size)]
    assert tree_sum([tree_sum(group) for group in groups]) == tree_sum(terms)


@pytest.mark.parametrize("work", [0, 10**9])
@pytest.mark.parametrize("threads", [1, 2, 4])
def test_the_sum_over_chunks_is_the_tree_over_chunk_numbers(work, threads):
    X = block(40_000, 3)
    expected = tree_sum([X[a:b].T @ X[a:b] for a, b in chunk_bounds(len(X))])
    with use_threads(threads):
        found = sum_over_chunks(lambda a, b: X[a:b].T @ X[a:b], len(X), work)
    assert np.array_equal(found, expected)


def test_random_chunks_have_streams_of_their_own():
    X = block(3 * CHUNK_ROWS, 2)
    assert np.array_equal(X[:CHUNK_ROWS], block(CHUNK_ROWS, 2))
    pieces = [X[a:b].tobytes() for a, b in chunk_bounds(len(X))]
    assert len(set(pieces)) == 3
    others = [NUMPY.random(10, 2, np.float64, seed, stream) for seed, stream in [(0, 1), (1, 0), (1, 1)]]
    assert len({other.tobytes() for other in [X[:10], *others]}) == 4


def test_the_random_stream_is_pinned():
    expected = np.random.Generator(np.random.Philox(key=[7, 1], counter=[0, 0, 0, 5])).standard_normal(4)
    assert np.array_equal(NUMPY.random(CHUNK_ROWS + 2, 2, np.float64, 7, 5)[CHUNK_ROWS:].ravel(), expected)


def test_random_numbers_are_standard_normal():
    X = block(20_000, 10)
    assert abs(X.mean()) < 0.01
    assert abs(X.std() - 1) < 0.01
    assert np.abs(X.T @ X / len(X) - np.eye(10)).max() < 0.05


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_grams_of_a_block_are_float64_sums(dtype):
    X = block(9000, 3, dtype)
    exact = X.astype(np.float64).T @ X.astype(np.float64)
    basis = NUMPY.append(NUMPY.basis(9000, 3, dtype), X)
    G = NUMPY.grams(basis, X[:, :2].copy())
    assert G.dtype == np.float64
    assert np.allclose(G[:3], exact[:, :2], atol=9000 * 10 * np.finfo(dtype).eps)
    assert np.allclose(NUMPY.cross(X, X), exact, rtol=1e-13, atol=1e-11)
    assert np.allclose(G[3:], exact[:2, :2], rtol=1e-13, atol=1e-11)
    assert NUMPY.column_sums(X).dtype == np.float64


def test_a_basis_grows_beyond_its_capacity():
    basis = NUMPY.basis(5, 1, np.float64)
    for i in range(4):
        basis = NUMPY.append(basis, np.full((5, 1), float(i)))
    assert np.array_equal(basis.filled, np.tile(np.arange(4.0), (5, 1)))


def test_a_registered_seam_serves_its_arrays(monkeypatch):
    class Tensor:
        pass

    seam = dataclasses.replace(NUMPY, peak=lambda Y: 1.0)
    monkeypatch.setattr(seams, "_seams", dict(seams._seams))
    seams.register_seam(Tensor, lambda tensor: seam)
    assert linalg.seam_of(None, Tensor()) is seam
    assert linalg.seam_of(None, "text") is NUMPY


class Garbage(ctypes.Structure):
    _fields_ = (("words", ctypes.c_uint64 * 8192),)


def leave_on_the_stack(word: int) -> None:
    forget = ctypes.CDLL(None).getpid
    forget.argtypes = [Garbage]
    forget(Garbage((ctypes.c_uint64 * 8192)(*[word] * 8192)))


SIGNALLING = {np.float32: 0x7FA0_0000_7FA0_0000, np.float64: 0x7FF4_0000_0000_0000}


@pytest.mark.parametrize("dtype", SIGNALLING)
@pytest.mark.parametrize("rows", range(1, 18))
def test_a_product_says_nothing_of_numbers_that_are_not_in_it(rows, dtype):
    a, b = block(rows, 7, dtype), block(rows, 1, dtype, seed=1)
    for columns in range(1, 8):
        left = np.ascontiguousarray(a[:, :columns].T)
        leave_on_the_stack(SIGNALLING[dtype])
        np.testing.assert_allclose(chunk_product(left, b), np.einsum("ij,jk", left, b), rtol=1e-4, atol=1e-5)
