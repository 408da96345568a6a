"""A graph's diffusion and its embedding side by side, and the features of pairs of nodes made of both."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from fastgrl.checks import Array
from fastgrl.costs import DIFFUSION_ROUNDS, diffusion_block
from fastgrl.diffusion import PMI_FLOOR, Diffusion, diffuse, log_matrix, overlap_block, overlaps
from fastgrl.fsvd import SVD, fsvd
from fastgrl.graph import Graph
from fastgrl.kernels import transpose
from fastgrl.leaves import Matrix
from fastgrl.progress import Progress, portions

# The features of a pair, in the order in which they are computed; a set is a first part of the list.
FEATURES = (
    *("pmi", "p+q"),
    *("|p-q|", "pq", "cos", "dot"),
    *("cos1", "log norms", "pmi|pmi|", "pmi(p+q)", "cos(p+q)"),
)
FEATURE_SETS = {"F1": 2, "F2": 6, "F3": 11}
_TINY = 1e-12
_PAIRS_AT_ONCE = 1 << 14


@dataclass(frozen=True, eq=False)
class Space:
    """Diffusion rows, and vectors whose products left_u · right_v approximate log(1 + n G)."""

    diffusion: Diffusion
    left: Array
    right: Array
    singular_values: Array

    @property
    def num_nodes(self) -> int:
        return len(self.left)

    @property
    def svd(self) -> SVD:
        """The factorisation that the vectors came from."""
        roots = np.where(self.singular_values > 0, np.sqrt(self.singular_values), 1)
        return SVD(self.left / roots, self.singular_values, (self.right / roots).T)

    @functools.cached_property
    def log_out(self) -> Array:
        """The p = log d_u of the first node of a pair."""
        return np.log(self.diffusion.out_degrees)

    @functools.cached_property
    def log_in(self) -> Array:
        """The q = log d_v of the second."""
        return np.log(self.diffusion.in_degrees)

    @functools.cached_property
    def norms(self) -> tuple[Array, Array]:
        """Lengths of the left and of the right vectors."""
        return _lengths(self.left), _lengths(self.right)

    @functools.cached_property
    def norms_but_first(self) -> tuple[Array, Array]:
        """Lengths without the first component."""
        return _lengths(self.left[:, 1:]), _lengths(self.right[:, 1:])

    def features(self, pairs: Array, count: int = len(FEATURES)) -> Array:
        """The first `count` features of (m, 2) pairs of node numbers, an m×count array."""
        parts = [np.empty((0, count))]
        met = overlaps(self.diffusion.left, self.diffusion.right, pairs)
        for first in range(0, len(pairs), _PAIRS_AT_ONCE):
            some = slice(first, first + _PAIRS_AT_ONCE)
            u, v = pairs[some].T
            products = self.left[u].astype(np.float64) * self.right[v]
            ends = _Ends(self, u, v, met[some], products.sum(1), products[:, 0])
            parts.append(np.stack([f for f, _ in zip(ends.features(), range(count), strict=False)], axis=1))
        return np.concatenate(parts)

    def block_features(self) -> Callable[[Array, slice], Iterator[Array]]:
        """A function that gives the features of all pairs of `rows` × `columns`, in float32, one by one."""
        transposed = transpose(self.diffusion.right)
        _ = self.norms, self.norms_but_first, self.log_out, self.log_in  # once, not in every thread

        def features(rows: Array, columns: slice) -> Iterator[Array]:
            first, last, _ = columns.indices(self.num_nodes)
            met = overlap_block(self.diffusion.left, transposed, rows, (first, last))
            left, right = self.left[rows], self.right[first:last]
            products = np.outer(left[:, 0], right[:, 0])
            v = np.arange(first, last)[None, :]
            return _Ends(self, rows[:, None], v, met, left @ right.T, products).features()

        return features


@dataclass(frozen=True, eq=False)
class _Ends:
    """The two ends of pairs, in shapes that broadcast against each other, and what they have in common."""

    space: Space
    u: Array
    v: Array
    overlap: Array
    dot: Array
    first: Array  # the part of `dot` that its first component makes

    def features(self) -> Iterator[Array]:
        kind = self.dot.dtype
        p, q = self.space.log_out[self.u].astype(kind), self.space.log_in[self.v].astype(kind)
        volume: Any = kind.type(self.space.diffusion.volume)
        pmi = np.log(volume * self.overlap.astype(kind, copy=False) + kind.type(PMI_FLOOR))
        cosine = self.dot / self._norms(self.space.norms, kind)
        yield pmi
        yield p + q
        yield np.abs(p - q)
        yield p * q
        yield cosine
        yield self.dot
        yield (self.dot - self.first) / self._norms(self.space.norms_but_first, kind)
        yield np.log(self._norms(self.space.norms, kind))
        yield pmi * np.abs(pmi)
        yield pmi * (p + q)
        yield cosine * (p + q)

    def _norms(self, sides: tuple[Array, Array], kind: np.dtype[np.floating]) -> Array:
        return np.asarray(sides[0][self.u].astype(kind) * sides[1][self.v].astype(kind))


def _lengths(vectors: Array) -> Array:
    squares = np.einsum("ij,ij->i", vectors, vectors, dtype=np.float64)
    return np.asarray(np.maximum(np.sqrt(squares), _TINY))


def build_space(
    graph: Graph,
    *,
    rank: int,
    damping: float,
    seed: int = 0,
    progress: Progress | None = None,
) -> Space:
    """Push, take logarithms, factorise.

    With M = log(1 + nG) ≈ U diag(s) V', left = U s^½ and right = V s^½.
    """
    pushing, factorising = portions(progress, [1, 1])
    diffusion = diffuse(graph, damping=damping, progress=pushing)
    svd = fsvd(
        Matrix(log_matrix(diffusion)),
        min(rank, graph.num_nodes),
        n_iter=DIFFUSION_ROUNDS,
        block_size=diffusion_block(rank),
        seed=seed,
        progress=factorising,
    )
    return space_of(diffusion, svd)


def space_of(diffusion: Diffusion, svd: SVD) -> Space:
    """The space of a factorised log matrix."""
    roots = np.sqrt(svd.s)
    return Space(diffusion, svd.U * roots, svd.Vt.T * roots, svd.s)
