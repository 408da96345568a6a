"""What the paper's classifiers see of a node: its features and walk vectors, [X, L, R], reduced by PCA.

The PCA of [X, L, R] to 1000 dimensions is done in two steps, because L and R change with every window and λ
and X does not: X alone to a few more dimensions than are kept, then the small problem with L and R.
Nothing is rotated where nothing is dropped: all that follows depends on Z Z' alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.linalg
import scipy.sparse as sp

from fastgrl.checks import Array
from fastgrl.filters import undirected
from fastgrl.fsvd import SVD, Progress, fsvd
from fastgrl.graph import Graph
from fastgrl.leaves import LowRank, Matrix
from fastgrl.operators import HStack, Operator
from fastgrl.walks import Factors, factorise, fold_in, walk

WALK_RANK = 32
DIMENSIONS = 1000
# X keeps this many dimensions more than [X, L, R] may: enough for those that L and R push out.
_SPARE = 64
# Up to here the Gram matrix of X's smaller side is decomposed exactly.
_EXACT_SIDE = 4096
_PANEL_BYTES = 32 << 20
_RELEASED_ROUNDS = 20


def released(design: str) -> bool:
    """Whether a design follows the published program rather than the paper's text."""
    return design == "jkn-as-released"


def released_columns(rank: int) -> int:
    """The columns that the published program iterates with for a rank: thirty more, or twice the rank.

    >>> released_columns(8), released_columns(100)
    (16, 130)
    """
    return rank + min(rank, 30)


def propagation(graph: Graph, design: str) -> Operator:
    """Â = (D+wI)^-½ (A+wI) (D+wI)^-½ with w = 1, or 1.5 as released; edges both ways, weights of mean 1.

    >>> propagation(fg.Graph.from_codes([0], [1]), "jkn") @ np.eye(2)
    array([[0.5, 0.5], [0.5, 0.5]])
    """
    A = undirected(graph)
    loops: Any = sp.csr_array(A + (1.5 if released(design) else 1.0) * sp.eye_array(A.shape[0], format="csr"))
    scale = np.asarray(loops.sum(axis=1)).ravel() ** -0.5
    loops.data = loops.data * np.repeat(scale, np.diff(loops.indptr)) * scale[loops.indices]
    return Matrix(loops, name="Â")


def structure_factors(
    graph: Graph,
    design: str,
    *,
    window: int,
    negative: float,
    seed: int = 0,
    start: SVD | None = None,
    n_iter: int | None = None,
    progress: Progress | None = None,
) -> Factors:
    """The factorisation of rank 32 (or n) of the walk matrix behind L and R; as released, by Algorithm 1.

    >>> structure_factors(fg.Graph.from_codes([0], [1]), "jkn", window=1, negative=1.0).svd.U.shape
    (2, 2)
    """
    rank = min(WALK_RANK, graph.num_nodes)
    how: dict[str, Any] = {"start": start, "n_iter": n_iter, "seed": seed, "progress": progress}
    if not released(design):
        return factorise(graph, "walk", rank=rank, window=window, negative=negative, **how)
    M = walk(graph, window=window, negative=negative)
    how["n_iter"] = _RELEASED_ROUNDS if n_iter is None else n_iter
    svd = fsvd(M, rank, method="subspace", block_size=released_columns(rank), check=False, **how)
    return Factors(M, svd, svd.U * np.sqrt(svd.s), svd.Vt.T * np.sqrt(svd.s))


def structure_of(svd: SVD, dtype: Any = np.float64) -> Array:
    """[L, R] = [U s^½, V s^½], n×2r, computed in float64."""
    U, s, Vt = svd
    root, r = np.sqrt(np.asarray(s, np.float64)), len(s)
    out = np.empty((len(U), 2 * r), dtype)
    for begin in range(0, len(U), 4096):
        rows = slice(begin, begin + 4096)
        out[rows, :r] = np.asarray(U[rows], np.float64) * root
        out[rows, r:] = np.asarray(Vt[:, rows].T, np.float64) * root
    return out


def fold_structure(
    svd: SVD, graph: Graph, design: str, *, window: int, negative: float, new: Any, incoming: Any = None
) -> tuple[Array, Array]:
    """[L, R] of new nodes, p×2r, and how far each can be trusted, from 0 to 1: see `walks.fold_in`.

    `new` is sparse p×n, the edges from the new nodes to those of `graph` (`incoming` as well if directed).
    """
    del design  # all of them factorise the same matrix
    M = walk(graph, window=window, negative=negative)
    factors = Factors(M, svd, svd.U, svd.Vt.T)
    how: dict[str, Any] = {"window": window, "negative": negative}
    left, right, trust = fold_in(factors, graph, new=new, incoming=incoming, **how)
    return np.concatenate([left, right], axis=1).astype(np.float64), trust


def columns_of(features: Any, structure: Array) -> Any:
    """F = [X, L, R, 1], sparse if X is."""
    rest = np.concatenate([structure, np.ones((len(structure), 1))], axis=1)
    if features is None:
        return rest
    if _is_sparse(features):
        blocks: Any = [features.astype(np.float64), sp.csr_array(rest)]
        return sp.csr_array(sp.hstack(blocks, format="csr"))
    return np.concatenate([np.asarray(features, np.float64), rest], axis=1)


@dataclass(frozen=True, eq=False)
class Space:
    """Z = [(F − 1m')V, F_again] as weights on F = [X, L, R]: `projection` V, or None for all of F.

    `again` says that L and R follow once more, as they are.
    """

    features: Any
    structure: Array
    mean: Array
    projection: Array | None
    again: bool

    @property
    def operator(self) -> Operator:
        """Z, n×p, implicit: X stays sparse."""
        F = Matrix(self.structure)
        whole: Operator = F if self.features is None else HStack([Matrix(self.features), F])
        Z: Operator = whole - LowRank(np.ones((len(self.structure), 1)), self.mean[:, None])
        if self.projection is not None:
            Z = Z @ Matrix(self.projection)
        return HStack([Z, F]) if self.again else Z

    def on_columns(self, weights: Array) -> Array:
        """Weights on [X, L, R, 1] of weights on Z: (p, k) becomes (d + 2r + 1, k)."""
        d, r = len(self.mean), self.structure.shape[1]
        inner = weights[: len(weights) - r] if self.again else weights
        outer = np.array(inner if self.projection is None else self.projection @ inner)
        constant = -(self.mean @ outer)
        if self.again:
            outer[d - r :] += weights[len(weights) - r :]
        return np.concatenate([outer, constant[None]])


@dataclass(frozen=True, eq=False)
class Features:
    """X with what the PCA of [X, L, R] needs of it, whatever L and R are.

    `mean` of the columns, `right` (d×q, orthonormal) the leading right singular vectors of X − 1m', or None
    for all, and `scatter` (q×q), X's own in those coordinates; only where the PCA drops something.
    """

    X: Any
    nodes: int
    mean: Array
    right: Array | None = None
    scatter: Array | None = None
    dimensions: int = DIMENSIONS

    @classmethod
    def of(cls, X: Any, nodes: int, *, dimensions: int = DIMENSIONS, seed: int = 0) -> Features:
        """Reduce X to `dimensions` and a few more, if it has more than that."""
        if X is None or X.shape[1] == 0:
            return cls(None, nodes, np.zeros(0))
        wide: Any = X.tocsr().astype(np.float64) if _is_sparse(X) else np.asarray(X, np.float64)
        mean = np.asarray(wide.mean(axis=0)).ravel()
        extra = 2 * min(WALK_RANK, nodes)
        if min(nodes, wide.shape[1] + extra) <= dimensions:
            return cls(wide, nodes, mean)
        kept = dimensions + _SPARE
        right = _leading_right(wide, mean, kept, seed) if kept < min(wide.shape) else None
        return cls(wide, nodes, mean, right, _scatter(wide, mean, right), dimensions)

    def space(self, structure: Array, design: str) -> Space:
        """Z for one L and R."""
        mean = np.concatenate([self.mean, structure.mean(axis=0)])
        projection = None
        if self.scatter is not None:
            dropped = self._dropped(structure)
            projection = self._widened(np.eye(len(dropped)) - dropped @ dropped.T)
        return Space(self.X, structure, mean, projection, released(design))

    def shared_blocks(self) -> Iterator[tuple[Array, float]]:
        """Columns of X − 1m' (projected), a few at a time: the part of Z Z' that L and R do not change."""
        if self.X is None:
            return
        count = self.X.shape[1] if self.right is None else self.right.shape[1]
        columns: Any = self.X.tocsc() if _is_sparse(self.X) and self.right is None else self.X
        width = max(16, _PANEL_BYTES // (8 * self.nodes))
        for begin in range(0, count, width):
            cut = slice(begin, begin + width)
            if self.right is None:
                yield np.ascontiguousarray(_dense(columns[:, cut]) - self.mean[cut]), 1.0
            else:
                yield self.X @ self.right[:, cut] - self.mean @ self.right[:, cut], 1.0

    def own_blocks(self, structure: Array, design: str) -> Iterator[tuple[Array, float]]:
        """What L and R add to Z Z', and what the PCA drops of it, subtracted."""
        centred = structure - structure.mean(axis=0)
        yield centred, 1.0
        if self.scatter is not None:
            dropped = self._widened(self._dropped(structure))
            d = len(self.mean)
            yield self.X @ dropped[:d] - self.mean @ dropped[:d] + centred @ dropped[d:], -1.0
        if released(design):
            yield structure, 1.0

    def _dropped(self, structure: Array) -> Array:
        """Directions of least variance of [X, L, R] in X's reduced coordinates, (q + 2r)×(q + 2r − p)."""
        assert self.scatter is not None
        centred = structure - structure.mean(axis=0)
        cross = self.X.T @ centred  # the mean of X meets columns that sum to zero
        cross = cross if self.right is None else self.right.T @ cross
        whole = np.block([[self.scatter, cross], [cross.T, centred.T @ centred]])
        last = len(whole) - min(self.dimensions, len(whole)) - 1
        if last < 0:
            return np.zeros((len(whole), 0))
        # Half the time in float32; what small errors let through is as small as what is dropped.
        vectors = scipy.linalg.eigh(whole.astype(np.float32), subset_by_index=[0, last])[1]
        return np.asarray(np.linalg.qr(vectors.astype(np.float64))[0])

    def _widened(self, block: Array) -> Array:
        """Coordinates in X's reduced space as weights on the columns of [X, L, R]."""
        if self.right is None:
            return block
        q = self.right.shape[1]
        return np.concatenate([self.right @ block[:q], block[q:]])


def _scatter(X: Any, mean: Array, right: Array | None) -> Array:
    projected, centre = (X, mean) if right is None else (X @ right, mean @ right)
    return np.asarray(_dense(projected.T @ projected) - X.shape[0] * np.outer(centre, centre))


def _leading_right(X: Any, mean: Array, rank: int, seed: int) -> Array:
    """The `rank` leading right singular vectors of X − 1m', d×rank."""
    n, d = X.shape
    if min(n, d) > _EXACT_SIDE:
        centred = Matrix(X) - LowRank(np.ones((n, 1)), mean[:, None])
        how: dict[str, Any] = {
            "method": "subspace",
            "n_iter": 2,
            "block_size": rank + rank // 8,
            "seed": seed,
        }
        return np.asarray(fsvd(centred, rank, **how).Vt.T)
    gram = _dense(X.T @ X if d <= n else X @ X.T)
    if d <= n:
        gram -= n * np.outer(mean, mean)
    else:
        along = X @ mean
        gram -= along[:, None] + along[None] - mean @ mean
    # Half the time, and vectors that only have to span: they are made orthonormal in float64 below.
    subset = [len(gram) - rank, len(gram) - 1]
    vectors = scipy.linalg.eigh(gram.astype(np.float32), subset_by_index=subset)[1].astype(np.float64)
    right = vectors if d <= n else X.T @ vectors - np.outer(mean, vectors.sum(axis=0))
    return np.asarray(np.linalg.qr(right)[0])


def _is_sparse(values: Any) -> bool:
    return bool(sp.issparse(values))


def _dense(values: Any) -> Array:
    return np.asarray(values.toarray() if _is_sparse(values) else values)
