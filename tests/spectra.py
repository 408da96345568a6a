"""Matrices with a prescribed singular value decomposition."""

from __future__ import annotations

from typing import Any

import numpy as np


def with_spectrum(
    rows: int, columns: int, s: np.ndarray, *, dtype: Any = np.float64, seed: int = 0
) -> np.ndarray:
    rng = np.random.default_rng(seed)
    k = len(s)
    U = np.linalg.qr(rng.standard_normal((rows, k)))[0]
    V = np.linalg.qr(rng.standard_normal((columns, k)))[0]
    return ((U * s) @ V.T).astype(dtype)


def spectra(k: int) -> dict[str, np.ndarray]:
    i = np.arange(k)
    clusters = 1.0 - 0.3 * (i // max(1, k // 4))
    return {
        "fast decay": 2.0**-i,
        "very fast decay": 10.0 ** -np.minimum(i, 15.0),
        "slow decay": 1.0 / (1 + i),
        "hardly any decay": 1.0 - 0.5 * i / k,
        "clusters": np.maximum(clusters, 0.05),
        "rank deficient": np.where(i < k // 3, 1.0 - i / k, 0.0),
        "one large, the rest equal": np.where(i == 0, 1000.0, 1.0),
    }
