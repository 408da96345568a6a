"""The rows of the graph that a network's scores of some nodes depend on, so that no others are computed."""

from __future__ import annotations

import functools
import itertools
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
from scipy.sparse.csgraph import reverse_cuthill_mckee

from fastgrl.baselines.node_problems import Problem, SparseFeatures, packages
from fastgrl.checks import Array


@dataclass(frozen=True, eq=False)
class Reach:
    """The nodes that scores of some nodes depend on, sorted by their distance from these.

    Each layer looks one hop further, so a layer needs the first so many rows of what is before it. `parts`
    holds for each layer these rows of Â, cut to the columns that they reach, and `features` has the rows that
    the first layer needs. `nodes` are the numbers of those asked for, in the order of the scores.
    """

    nodes: Any
    features: SparseFeatures
    parts: list[sp.csr_array]

    @classmethod
    def of(cls, problem: Problem, nodes: Any, *, layers: int) -> Reach:
        A, X = _scipy(problem.adjacency), _scipy(problem.features.matrix)
        hops = distances(A, nodes.numpy())
        near = reverse_cuthill_mckee(sp.csr_matrix(A), symmetric_mode=True)  # neighbours share a cache line
        order = near[np.argsort(hops[near], kind="stable")].astype(np.int64)
        sizes = [int(np.count_nonzero(hops <= layers - layer)) for layer in range(layers + 1)]
        return cls(
            nodes=packages()[0].from_numpy(order[: sizes[-1]]),
            features=SparseFeatures.of(X[order[: sizes[0]]]),
            parts=_parts(A[order][:, order], sizes),
        )


def _parts(A: sp.csr_array, sizes: list[int]) -> list[sp.csr_array]:
    @functools.cache
    def part(rows: int, columns: int) -> sp.csr_array:
        return A[:rows, :columns]

    return [part(rows, columns) for columns, rows in itertools.pairwise(sizes)]


def _scipy(matrix: Any) -> sp.csr_array:
    parts = (matrix.values(), matrix.col_indices(), matrix.crow_indices())
    return sp.csr_array(tuple(part.numpy() for part in parts), shape=tuple(matrix.shape))


def distances(A: sp.csr_array, nodes: Array) -> Array:
    """Hops from the nearest of the nodes; more than any network has layers where there is no way.

    >>> distances(sp.csr_array([[0, 1, 0], [1, 0, 1], [0, 1, 0]]), np.array([0]))
    array([0, 1, 2])
    """
    hops = np.full(A.shape[0], np.iinfo(np.int64).max)
    reached = np.zeros(A.shape[0], bool)
    reached[nodes] = True
    new, hop = reached, 0
    while new.any():
        hops[new] = hop
        new, hop = (A @ reached != 0) & ~reached, hop + 1
        reached = reached | new
    return hops
