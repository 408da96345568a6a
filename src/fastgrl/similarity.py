"""Edges between nodes whose features are alike."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp

from fastgrl.checks import Array
from fastgrl.fsvd import fsvd
from fastgrl.node_models import row_norms
from fastgrl.operators import as_operator
from fastgrl.parallel import parallel_map

EXACT_NODES = 10_000
NEIGHBOURS, NEIGHBOURS_OF_MANY, DIRECTIONS = 5, 10, 100
_ROWS_AT_ONCE = 512
_GROUP = 64
_MOST_EXACT_COLUMNS = 600


def similarity_graph(F: Any, *, seed: int = 0) -> sp.csr_array:
    """The symmetrised graph of each node's nearest by cosine, for rows of unit norm.

    The 5 nearest, exactly, of fewer than ten thousand nodes; of more, 10 near ones by 100 principal
    coordinates, no two of them from one of many random groups of 64 nodes.
    """
    if F.shape[0] < EXACT_NODES:
        return similar_nodes(F, NEIGHBOURS)
    return nearly_similar_nodes(principal_rows(F, DIRECTIONS), NEIGHBOURS_OF_MANY, seed=seed)


def similar_nodes(F: Any, count: int) -> sp.csr_array:
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


def principal_rows(F: Any, rank: int) -> Array:
    """Rows of unit norm in the leading principal directions of F."""
    n, d = F.shape
    if d > rank:
        if d <= _MOST_EXACT_COLUMNS:
            gram: Any = F.T @ F
            dense = gram if isinstance(gram, np.ndarray) else gram.toarray()
            V = np.linalg.eigh(np.asarray(dense, np.float64))[1][:, ::-1][:, :rank]
        else:
            V = fsvd(as_operator(F), min(rank, n), n_iter=2).Vt.T
        F = as_operator(F) @ np.ascontiguousarray(V, np.float32)
    dense = np.asarray(F if isinstance(F, np.ndarray) else F.toarray(), np.float32)
    return dense / row_norms(dense)[:, None].astype(np.float32)


def nearly_similar_nodes(U: Array, count: int, *, seed: int = 0) -> sp.csr_array:
    """Like `similar_nodes`, but at most one neighbour out of every random group of 64 nodes.

    The largest of each group takes one pass over all pairs, and what follows is 64 times less.
    """
    n = len(U)
    order = np.random.Generator(np.random.Philox(seed)).permutation(n)
    groups = -(-n // _GROUP)
    shuffled = np.zeros((groups * _GROUP, U.shape[1]), U.dtype)
    shuffled[:n] = U[order]
    turned = np.ascontiguousarray(shuffled.T)
    place = np.empty(n, np.int64)
    place[order] = np.arange(n)

    def nearest(begin: int) -> tuple[Array, Array]:
        close = U[begin : begin + _ROWS_AT_ONCE] @ turned
        rows = np.arange(len(close))
        close[rows, place[begin + rows]] = 0.0
        grouped = close.reshape(len(close), groups, _GROUP)
        peaks = grouped.max(axis=2)
        sources, targets = [rows[:0]], [rows[:0]]
        for _ in range(min(count, groups)):
            best = peaks.argmax(axis=1)
            alike = peaks[rows, best] > 0
            inside = grouped[rows, best].argmax(axis=1)
            sources.append((begin + rows)[alike])
            targets.append(order[(best * _GROUP + inside)[alike]])
            peaks[rows, best] = 0.0
        return np.concatenate(sources), np.concatenate(targets)

    return _symmetrised(parallel_map(nearest, range(0, n, _ROWS_AT_ONCE)), n)


def _symmetrised(pairs: list[tuple[Array, Array]], n: int) -> sp.csr_array:
    u, v = (np.concatenate(ends) for ends in zip(*pairs, strict=True))
    K = sp.csr_array((np.ones(len(u)), (u, v)), shape=(n, n))
    return sp.csr_array(K.maximum(K.T))
