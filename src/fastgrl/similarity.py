"""Edges between nodes whose features are alike."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp

from fastgrl.checks import Array
from fastgrl.operators import as_operator
from fastgrl.parallel import parallel_map

NEIGHBOURS = 5
_ROWS_AT_ONCE = 512


def similar_nodes(F: Any, count: int = NEIGHBOURS) -> sp.csr_array:
    """The symmetrised graph of each node's `count` nearest by cosine, for rows of unit norm.

    >>> similar_nodes(np.array([[1.0, 0.0], [0.8, 0.6], [0.0, 1.0]]), 1).toarray()
    array([[0., 1., 0.], [1., 0., 1.], [0., 1., 0.]])
    """
    n, everyone = F.shape[0], as_operator(F)

    def nearest(begin: int) -> tuple[Array, Array]:
        rows = F[begin : begin + _ROWS_AT_ONCE].T
        dense = np.ascontiguousarray(rows) if isinstance(rows, np.ndarray) else rows.toarray(order="C")
        return _largest(np.ascontiguousarray((everyone @ dense).T), begin, count)

    return _symmetrised(parallel_map(nearest, range(0, n, _ROWS_AT_ONCE)), n)


def _largest(close: Array, begin: int, count: int) -> tuple[Array, Array]:
    rows = np.arange(len(close))
    close[rows, begin + rows] = 0.0
    sources, targets = [], []
    for _ in range(count):  # a few passes for the largest are quicker than a partial sort
        best = close.argmax(axis=1)
        alike = close[rows, best] > 0
        sources.append((begin + rows)[alike])
        targets.append(best[alike])
        close[rows, best] = 0.0
    return np.concatenate([rows[:0], *sources]), np.concatenate([rows[:0], *targets])


def _symmetrised(pairs: list[tuple[Array, Array]], n: int) -> sp.csr_array:
    u, v = (np.concatenate(ends) for ends in zip(*pairs, strict=True))
    K = sp.csr_array((np.ones(len(u)), (u, v)), shape=(n, n))
    return sp.csr_array(K.maximum(K.T))
