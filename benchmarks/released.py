"""The published link prediction rows through an array library: Algorithm 1 as its program released it.

    FASTGRL_DATA=<folder> python benchmarks/released.py [--library tensorflow|torch|jax|numpy] [--rank 32|100]

M is the pair of products of the published program, `as_released`, its arrays moved to the library; 20 rounds
of Algorithm 1 with twice as many columns as the rank factorise it, and a test pair scores (U s)_u · V_v. The
window is that of the published commands: 5 for soc-facebook and ppi, 20 for the two collaboration graphs.
AUC in percent beside the published one; the seconds are those of the factorisation, arrays moved already.
"""

from __future__ import annotations

import argparse
import importlib
import os
import time
from typing import Any

import numpy as np

import fastgrl as fg
from fastgrl.frameworks.moving import moved
from fastgrl.linalg import seam_of
from fastgrl.metrics import roc_auc
from fastgrl.walks import as_released

WINDOWS = {"soc-facebook": 5, "ca-AstroPh": 20, "ca-HepTh": 20, "ppi": 5}
PUBLISHED = {
    32: {"soc-facebook": 98.7, "ca-AstroPh": 92.1, "ca-HepTh": 89.2, "ppi": 87.9},
    100: {"soc-facebook": 98.7, "ca-AstroPh": 96.0, "ca-HepTh": 90.5, "ppi": 86.2},
}
ROUNDS = 20


def an_array_of(library: str) -> Any:
    """Nothing, as an array of the library."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    module = importlib.import_module("jax.numpy" if library == "jax" else library)
    return module.zeros((0,), dtype=module.float32)


def score(svd: fg.SVD, pairs: Any) -> Any:
    """(U s)_u · V_v of every pair (u, v)."""
    U, s, Vt = (seam_of(part).host(part) for part in svd)
    return np.einsum("ij,ij->i", U[pairs[:, 0]] * s, Vt.T[pairs[:, 1]])


def measured(name: str, rank: int, like: Any) -> tuple[float, float]:
    """AUC in percent, and seconds."""
    data = fg.load_dataset(name)
    M = as_released(data.graph, window=WINDOWS[name])
    M = M if isinstance(like, np.ndarray) else moved(M, like)
    begin = time.perf_counter()
    svd = fg.fsvd(M, rank, method="subspace", n_iter=ROUNDS, block_size=2 * rank, check=False)
    positives, negatives = (score(svd, pairs) for pairs in (data.test, data.test_negatives))
    return 100 * roc_auc(positives, negatives), time.perf_counter() - begin


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--library", choices=["tensorflow", "torch", "jax", "numpy"], default="numpy")
    parser.add_argument("--rank", type=int, choices=list(PUBLISHED), default=32)
    args = parser.parse_args()
    like = an_array_of(args.library)
    print(f"rank {args.rank} through {seam_of(like).name}")
    print(f"{'dataset':<14}{'AUC':>8}{'published':>11}{'difference':>12}{'seconds':>10}")
    for name, published in PUBLISHED[args.rank].items():
        auc, seconds = measured(name, args.rank, like)
        print(f"{name:<14}{auc:>8.2f}{published:>11.1f}{auc - published:>+12.2f}{seconds:>10.2f}", flush=True)


if __name__ == "__main__":
    main()
