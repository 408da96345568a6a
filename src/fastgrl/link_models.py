"""What a fit of link prediction is asked for, and what every model it may leave behind can do."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from fastgrl.checks import Array
from fastgrl.fsvd import SVD
from fastgrl.graph import Graph
from fastgrl.linalg import map_chunks
from fastgrl.metrics import average_precision, roc_auc
from fastgrl.operators import Operator
from fastgrl.spilling import release, scratch_array

_PAIRS_AT_ONCE = 1 << 14
BlockScorer = Callable[[Array, slice], Array]


class LinkModel(ABC):
    """Scores pairs of node numbers. Frozen: what is learnt later makes another model."""

    n_components: int

    @property
    @abstractmethod
    def left(self) -> Array:
        """Vectors of the first node of a pair, n×n_components."""

    @property
    @abstractmethod
    def right(self) -> Array:
        """Vectors of the second: left_u · right_v is a score."""

    @property
    @abstractmethod
    def singular_values(self) -> Array:
        """Of the matrix that was factorised, largest first."""

    @abstractmethod
    def score(self, pairs: Array) -> Array:
        """The score of (m, 2) pairs of node numbers; larger means likelier."""

    @abstractmethod
    def block_scorer(self) -> BlockScorer:
        """A function of `rows`, `columns` that returns the scores of all their pairs, perhaps in float32."""

    @property
    @abstractmethod
    def largest_rank(self) -> int:
        """Triplets that the model has room for."""

    @property
    @abstractmethod
    def fit_columns(self) -> int:
        """Columns that were multiplied in the factorisation."""

    @abstractmethod
    def factorised(self, graph: Graph) -> tuple[Operator, SVD]:
        """The matrix that was factorised, and the factorisation."""

    @abstractmethod
    def fold_in(self, graph: Graph, out: Any, into: Any) -> tuple[LinkModel, Array]:
        """A model that knows p more nodes, and how far each can be trusted, from 0 to 1.

        `out` and `into` are sparse p×n: the edges of the new nodes to those of `graph`, and from them.
        """

    @abstractmethod
    def regrown(self, graph: Graph, changed: Array) -> Regrown:
        """The matrix of a larger graph, nodes of which from `changed` on have other edges than before."""


class FactorModel(LinkModel):
    """Scores left_u · right_v, from the factorisation `svd` of a matrix."""

    svd: SVD
    n_components: int

    @property
    def singular_values(self) -> Array:
        return np.asarray(self.svd.s)

    @property
    def largest_rank(self) -> int:
        return self.n_components

    def score(self, pairs: Array) -> Array:
        return dot_products(self.left, self.right, pairs)

    def block_scorer(self) -> BlockScorer:
        left, right = self.left, self.right
        return lambda rows, columns: np.asarray(left[rows] @ right[columns].T)


@dataclass(frozen=True, eq=False)
class Regrown:
    """A matrix to be factorised, what makes a model of that, and how many of its rows had to be computed."""

    operator: Operator
    model: Callable[[SVD], LinkModel]
    rows: int


@dataclass(frozen=True)
class Settings:
    """What is to be fitted; None is what the design or the selection chooses."""

    design: str
    n_components: int
    select: bool = True
    window: int | None = None
    negative: float | None = None
    damping: float = 0.85
    bipartite: bool = False
    seed: int = 0
    keep: int | None = None  # entries of a row of a diffusion; None for the usual number
    quick: bool = False  # a diffusion for its vectors: few entries and rounds, nothing held out


@dataclass(frozen=True, eq=False)
class Known:
    """Pairs of node numbers the caller knows to be links, and perhaps pairs known to be none."""

    links: Array
    others: Array | None = None


@dataclass(frozen=True, eq=False)
class Fit:
    """A model, what was chosen for it, and what there is to say about it."""

    model: LinkModel
    chosen: dict[str, Any]
    validation: dict[str, Any] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)
    notices: tuple[str, ...] = ()
    sides: Array | None = None
    near_best: tuple[dict[str, Any], ...] = ()


def product_columns(rank: int) -> int:
    """Columns that `fsvd` multiplies by M and M' for a rank, unless told otherwise.

    >>> product_columns(32)
    288
    """
    return 2 * 9 * max(8, -(-rank // 2))


def dot_products(left: Array, right: Array, pairs: Array) -> Array:
    """left_u · right_v for each pair, summed in float64.

    >>> dot_products(np.eye(2), np.array([[3.0, 4.0], [5.0, 6.0]]), np.array([[0, 1]]))
    array([5.])
    """
    parts = [np.empty(0)]
    for first in range(0, len(pairs), _PAIRS_AT_ONCE):
        u, v = pairs[first : first + _PAIRS_AT_ONCE].T
        parts.append(np.einsum("ij,ij->i", left[u], right[v], dtype=np.float64))
    return np.concatenate(parts)


def padded(vectors: Array, columns: int) -> Array:
    """With columns of zeros up to `columns`: beyond the number of nodes every singular value is zero."""
    missing = columns - vectors.shape[1]
    return np.pad(vectors, ((0, 0), (0, missing))) if missing > 0 else np.ascontiguousarray(vectors)


def scaled_columns(vectors: Array, scale: Array, columns: int) -> Array:
    """`vectors diag(scale)` with columns of zeros up to `columns`, made in parts and on disk if that is told.

    >>> scaled_columns(np.ones((2, 2)), np.array([2.0, 3.0]), 3)
    array([[2., 3., 0.],
           [2., 3., 0.]])
    """
    n, k = vectors.shape
    result = scratch_array((n, max(columns, k)), np.result_type(vectors, scale))

    def rows(begin: int, end: int) -> None:
        np.multiply(vectors[begin:end], scale, out=result[begin:end, :k])
        result[begin:end, k:] = 0
        release(vectors, begin, end)
        release(result, begin, end)

    map_chunks(rows, n, result.size)
    return result


def figures(scores: Array, num_links: int) -> dict[str, Any]:
    """How well scores tell the first `num_links` pairs from the others."""
    links, others = scores[:num_links], scores[num_links:]
    return {
        "roc_auc": roc_auc(links, others),
        "average_precision": average_precision(links, others),
        "pairs": len(scores),
    }
