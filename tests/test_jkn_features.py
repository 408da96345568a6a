"""The PCA of [X, L, R] behind the paper's classifiers, in two steps and implicit."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from fastgrl import jkn_features
from fastgrl.jkn_features import Features


def some_features(n, d, seed=0, sparse=True):
    X = np.random.Generator(np.random.Philox(seed + 1)).standard_normal((n, d)) + 0.3
    X[np.abs(X) < 0.5] = 0
    return sp.csr_array(X) if sparse else X


@given(st.integers(0, 40))
@settings(max_examples=20, deadline=None)
def test_the_pca_keeps_what_a_dense_pca_keeps(seed):
    X, B = some_features(40, 12, seed), some_features(40, 4, seed + 7, sparse=False)
    features = Features.of(X, 40, dimensions=9)
    Z = features.space(B, "jkn").operator @ np.eye(16)
    F = np.hstack([X.toarray(), B])
    U, s, _ = np.linalg.svd(F - F.mean(0), full_matrices=False)
    assume(s[9] < 0.98 * s[8])
    np.testing.assert_allclose(Z @ Z.T, (U[:, :9] * s[:9] ** 2) @ U[:, :9].T, atol=1e-3 * s[0] ** 2)
    blocks = [*features.shared_blocks(), *features.own_blocks(B, "jkn")]
    gram = sum(sign * block @ block.T for block, sign in blocks)
    np.testing.assert_allclose(gram, Z @ Z.T, atol=1e-6 * s[0] ** 2)


@pytest.mark.parametrize(("n", "d"), [(60, 40), (40, 60)])
@pytest.mark.parametrize("side", [4096, 10])
def test_the_pca_in_two_steps_holds_nearly_what_one_step_holds(monkeypatch, n, d, side):
    monkeypatch.setattr(jkn_features, "_SPARE", 4)
    monkeypatch.setattr(jkn_features, "_EXACT_SIDE", side)
    X = some_features(n, d, 1) @ np.diag(0.9 ** np.arange(d))
    B = some_features(n, 6, 2, sparse=False)
    Z = Features.of(sp.csr_array(X), n, dimensions=15).space(B, "jkn").operator
    F = np.hstack([X, B])
    best = (np.linalg.svd(F - F.mean(0))[1][:15] ** 2).sum()
    held = ((Z @ np.eye(Z.shape[1])) ** 2).sum()
    assert np.linalg.matrix_rank(Z @ np.eye(Z.shape[1]), tol=1e-5) == 15
    assert 0.99 * best < held <= best * (1 + 1e-6)
