from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fastgrl.linalg import NUMPY
from fastgrl.orthonormal import orthonormalise


@settings(max_examples=80, deadline=None)
@given(
    st.sampled_from([np.float32, np.float64]),
    st.integers(5, 60),
    st.integers(0, 6),
    st.integers(1, 6),
    st.lists(st.sampled_from([0, 1, 1e-3, 1e-9, 1e-14, 1e8]), min_size=6, max_size=6),
    st.booleans(),
    st.integers(0, 50),
)
def test_orthonormalise_spans_the_block_whatever_its_condition(dtype, rows, old, new, sizes, repeat, seed):
    old, new = min(old, rows), min(new, rows)
    rng = np.random.default_rng(seed)
    basis = NUMPY.append(
        NUMPY.basis(rows, old, dtype), np.linalg.qr(rng.standard_normal((rows, old)))[0].astype(dtype)
    )
    Y = rng.standard_normal((rows, new)) * sizes[:new] + basis.filled @ rng.standard_normal((old, new))
    if repeat:
        Y[:, -1] = Y[:, 0]
    Y, width, eps = Y.astype(dtype), min(new, rows - old), np.finfo(dtype).eps
    fresh = lambda columns: rng.standard_normal((rows, columns)).astype(dtype)  # noqa: E731
    B, K = orthonormalise(NUMPY, Y, basis, width=width, fresh=fresh)
    both = np.hstack([basis.filled, B]).astype(np.float64)
    assert B.shape == (rows, width)
    assert B.dtype == dtype
    assert np.abs(both.T @ both - np.eye(old + width)).max() < 50 * eps
    assert np.abs(both @ K - Y).max() <= 200 * eps * max(np.abs(Y).max(), np.finfo(dtype).tiny)


def test_without_fresh_columns_dependent_ones_are_dropped():
    Y = NUMPY.random(50, 4, np.float64, 0, 0)
    Y[:, 3] = Y[:, 0] + Y[:, 1]
    B, K = orthonormalise(NUMPY, Y, NUMPY.basis(50, 0, np.float64), width=4, fresh=None)
    assert B.shape == (50, 3)
    assert np.allclose(B @ K, Y)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_orthogonality_does_not_fade_over_many_blocks(dtype):
    # Each block lies almost within those before it, so every round magnifies: departures must not add up.
    rng, rows, width = np.random.default_rng(0), 3000, 8
    first = np.linalg.qr(rng.standard_normal((rows, width)))[0].astype(dtype)
    basis = NUMPY.append(NUMPY.basis(rows, 400, dtype), first)
    for _ in range(40):
        Y = basis.filled @ rng.standard_normal((basis.columns, width)) + 0.01 * rng.standard_normal(
            (rows, width)
        )
        B, _ = orthonormalise(NUMPY, Y.astype(dtype), basis, width=width, fresh=None)
        basis = NUMPY.append(basis, B)
    Q = basis.filled.astype(np.float64)
    assert np.abs(Q.T @ Q - np.eye(basis.columns)).max() < 50 * np.finfo(dtype).eps
