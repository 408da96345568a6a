"""A graph's diffusion and its embedding side by side, and the features of pairs of nodes made of both.

With M = log(1 + nG) ≈ U diag(s) V', x = U s^½ and y = V s^½ are the vectors of the two ends of a pair. The
features that the scorer weighs, by name, with p = log d_u and q = log d_v:

pmi                log(vol ⟨Q_u, Q_v⟩ + 0.01), how much more often walks meet than by chance
cos, dot, cos1     of x_u and y_v; cos1 leaves the first component out
cos of rows        of m_u and m_v, the logarithms of the rows of the diffusion themselves
smooth cos         of U s^(5/4) and V s^(5/4), in which weak components count less
neighbours, rows   what is known of each end alone: the degrees around it, the size of its row
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from fastgrl.checks import Array
from fastgrl.costs import DIFFUSION_ROUNDS, diffusion_block
from fastgrl.diffusion import (
    PMI_FLOOR,
    Diffusion,
    LogRows,
    diffuse,
    log_matrix,
    log_rows,
    overlap_block,
    overlaps,
)
from fastgrl.fsvd import SVD, fsvd
from fastgrl.graph import Graph
from fastgrl.kernels import CSR, multiply, transpose
from fastgrl.leaves import Matrix
from fastgrl.progress import Progress, portions
from fastgrl.push import KEEP

# The features of a pair, in the order in which they are computed; a set is a first part of the list.
FEATURES = (
    *("pmi", "p+q"),
    *("|p-q|", "pq", "cos", "dot"),
    *("cos1", "log norms", "pmi|pmi|", "pmi(p+q)", "cos(p+q)"),
    *("cos of rows", "log of rows", "row lengths", "p²+q²", "neighbours", "row sums"),
    *("smooth cos", "smooth norms"),
)
FEATURE_SETS = {"F1": 2, "F2": 6, "F3": 11, "F4": 19}
# Those of which a plain dot product is made: a cosine, and terms of each end alone.
DOT_FEATURES = ("smooth cos", "p+q", "p²+q²", "smooth norms", "row lengths", "neighbours")
_TINY, _ROW_FLOOR, _SMOOTH = 1e-12, 0.1, 0.75
# Shares of a usual length: below the one a logarithm would run away, below the other all is rounding.
_SMALL, _ROUNDING = 0.03, 1e-4
_PAIRS_AT_ONCE = 1 << 14
Both = tuple[Array, Array]


@dataclass(frozen=True, eq=False)
class Space:
    """Diffusion rows, and vectors whose products left_u · right_v approximate log(1 + n G).

    `near` holds, for either side, the mean log degree of a node's neighbours; `size` is n as it was when the
    space was fitted.
    """

    diffusion: Diffusion
    left: Array
    right: Array
    singular_values: Array
    near: Both
    size: int

    @property
    def num_nodes(self) -> int:
        return len(self.left)

    @property
    def svd(self) -> SVD:
        """The factorisation that the vectors came from."""
        roots = np.where(self.singular_values > 0, np.sqrt(self.singular_values), 1)
        return SVD(self.left / roots, self.singular_values, (self.right / roots).T)

    @functools.cached_property
    def log_degrees(self) -> Both:
        """The p = log d_u of the first node of a pair, and the q = log d_v of the second."""
        return np.log(self.diffusion.out_degrees), np.log(self.diffusion.in_degrees)

    @functools.cached_property
    def norms(self) -> Both:
        """Lengths of the left and of the right vectors."""
        return self._lengths(self.left), self._lengths(self.right)

    @functools.cached_property
    def norms_but_first(self) -> Both:
        """Lengths without the first component."""
        return self._lengths(self.left[:, 1:]), self._lengths(self.right[:, 1:])

    def _lengths(self, vectors: Array, power: float = 1.0) -> Array:
        """Of vectors U s^(power/2); at least what rounding leaves of a usual one: noise stays small."""
        squares = np.einsum("ij,ij->i", vectors, vectors, dtype=np.float64)
        return np.asarray(np.maximum(np.sqrt(squares), _ROUNDING * self._usual_length(power)))

    def _usual_length(self, power: float) -> float:
        """The root mean square of the lengths: the columns of U are of unit length."""
        return max(
            float(np.sqrt((self.singular_values.astype(np.float64) ** power).sum() / self.size)), _TINY
        )

    @property
    def smooth_left(self) -> Array:
        """The rows of U s^(5/4)."""
        return smoothed(self.left, self.singular_values)

    @property
    def smooth_right(self) -> Array:
        """The rows of V s^(5/4)."""
        return smoothed(self.right, self.singular_values)

    @functools.cached_property
    def smooth_norms(self) -> Both:
        """Their lengths, but for nodes whose vectors are rounding: those of tiny components, and alone."""
        return self._lengths(self.smooth_left, 2.5), self._lengths(self.smooth_right, 2.5)

    @functools.cached_property
    def smooth_sizes(self) -> Both:
        """The same with a higher floor, to take logarithms of."""
        least = _SMALL * self._usual_length(2.5)
        one, other = (np.maximum(side, least) for side in self.smooth_norms)
        return one, other

    @functools.cached_property
    def logs(self) -> tuple[LogRows, LogRows]:
        """m_u = log(1 + n d_u^½ Q_u), on either side."""
        found, scales = self.diffusion, self._row_scales
        left = log_rows(found.left, row_scale=scales[0])
        return left, left if found.symmetric else log_rows(found.right, row_scale=scales[1])

    @property
    def _row_scales(self) -> Both:
        found = self.diffusion
        return self.size * found.out_degrees**0.5, self.size * found.in_degrees**0.5

    @functools.cached_property
    def row_lengths(self) -> Both:
        """The length of m_u."""
        return tuple(np.maximum(side.lengths, _ROW_FLOOR) for side in self.logs)  # type: ignore[return-value]

    @functools.cached_property
    def row_sums(self) -> Both:
        """log(1 + Σ m_u)."""
        return tuple(np.log1p(side.sums) for side in self.logs)  # type: ignore[return-value]

    @functools.cached_property
    def node_terms(self) -> Both:
        """What a dot product may add for either end alone: n×5, in the order of `DOT_FEATURES`."""
        terms = (
            (p, p**2, np.log(h), np.log(r), near)
            for p, h, r, near in zip(
                self.log_degrees, self.smooth_sizes, self.row_lengths, self.near, strict=True
            )
        )
        return tuple(np.column_stack(side) for side in terms)  # type: ignore[return-value]

    def smooth_cosines(self, pairs: Array) -> Array:
        """The cosines of which a plain dot product is made."""
        u, v = pairs.T
        met = _smooth_sums(self.left[u].astype(np.float64) * self.right[v], self.singular_values)
        return np.asarray(met / (self.smooth_norms[0][u] * self.smooth_norms[1][v]))

    @property
    def ends(self) -> Array:
        """What `dot_features` asks of each node, at the first end of a pair and then at the second: n×10."""
        known = (self.log_degrees, self.smooth_norms, self.smooth_sizes, self.row_lengths, self.near)
        return np.column_stack([sides[end] for end in (0, 1) for sides in known]).astype(np.float64)

    def features(self, pairs: Array, count: int = len(FEATURES)) -> Array:
        """The first `count` features of (m, 2) pairs of node numbers, an m×count array."""
        parts = [np.empty((0, count))]
        met = overlaps(self.diffusion.left, self.diffusion.right, pairs)
        logs_met = (
            overlaps(self.logs[0].rows, self.logs[1].rows, pairs) if count > FEATURE_SETS["F3"] else met
        )
        for first in range(0, len(pairs), _PAIRS_AT_ONCE):
            some = slice(first, first + _PAIRS_AT_ONCE)
            u, v = pairs[some].T
            products = self.left[u].astype(np.float64) * self.right[v]
            smooth = _smooth_sums(products, self.singular_values)
            dot = products.sum(1)
            ends = _Ends(self, u, v, met[some], logs_met[some], dot, dot - products[:, 0], smooth)
            parts.append(np.stack([f for f, _ in zip(ends.features(), range(count), strict=False)], axis=1))
        return np.concatenate(parts)

    def block_features(self, count: int) -> Callable[[Array, slice], Iterator[Array]]:
        """A function that gives the features of all pairs of `rows` × `columns`, in float32, one by one."""
        by_column = transpose(self.diffusion.right)
        logs_by_column, smooth = by_column, self.right
        if count > FEATURE_SETS["F3"]:
            logs_by_column = log_rows(by_column, column_scale=self._row_scales[1]).rows
            smooth = smoothed(self.right, self.singular_values, 2 * _SMOOTH)
            _ = self.node_terms, self.row_sums
        _ = self.norms, self.norms_but_first  # once, not in every thread

        def features(rows: Array, columns: slice) -> Iterator[Array]:
            first, last, _ = columns.indices(self.num_nodes)
            left, right = self.left[rows], self.right[first:last]
            met = overlap_block(self.diffusion.left, by_column, rows, (first, last))
            logs_met, weighed = met, met
            if count > FEATURE_SETS["F3"]:
                logs_met = overlap_block(self.logs[0].rows, logs_by_column, rows, (first, last))
                weighed = left @ smooth[first:last].T
            v = np.arange(first, last)[None, :]
            # In float32 a small rest would be lost if the first component were taken off the whole.
            rest = left[:, 1:] @ right[:, 1:].T
            dot = np.outer(left[:, 0], right[:, 0]) + rest
            return _Ends(self, rows[:, None], v, met, logs_met, dot, rest, weighed).features()

        return features


def smoothed(vectors: Array, s: Array, power: float = _SMOOTH) -> Array:
    """Columns times s^power."""
    return np.asarray(vectors * s**power)


def _smooth_sums(products: Array, s: Array) -> Array:
    """Products of smooth vectors, from those of the components of x and y."""
    # Not a matrix product: BLAS would let a score depend on what else is asked.
    return np.asarray(np.einsum("ij,j->i", products, s.astype(np.float64) ** (2 * _SMOOTH)))


def dot_features(x: Array, y: Array, one: Array, other: Array, s: Array) -> Array:
    """The `DOT_FEATURES` of pairs, of the vectors of both ends and their rows of `Space.ends`."""
    p, norm, size, length, near = one[:, :5].T
    q, other_norm, other_size, other_length, other_near = other[:, 5:].T
    return np.column_stack(
        [
            _smooth_sums(x.astype(np.float64) * y, s) / (norm * other_norm),
            p + q,
            p**2 + q**2,
            np.log(size * other_size),
            np.log(length * other_length),
            near + other_near,
        ]
    )


@dataclass(frozen=True, eq=False)
class _Ends:
    """The two ends of pairs, in shapes that broadcast against each other, and what they have in common."""

    space: Space
    u: Array
    v: Array
    overlap: Array
    log_overlap: Array
    dot: Array
    rest: Array  # the part of `dot` that all but its first component make
    smooth: Array

    def features(self) -> Iterator[Array]:
        space, kind = self.space, self.dot.dtype
        p, q = (side.astype(kind) for side in (space.log_degrees[0][self.u], space.log_degrees[1][self.v]))
        volume: Any = kind.type(space.diffusion.volume)
        pmi = np.log(volume * self.overlap.astype(kind, copy=False) + kind.type(PMI_FLOOR))
        cosine = self.dot / self._product(space.norms)
        yield pmi
        yield p + q
        yield np.abs(p - q)
        yield p * q
        yield cosine
        yield self.dot
        yield self.rest / self._product(space.norms_but_first)
        yield np.log(self._product(space.norms))
        yield pmi * np.abs(pmi)
        yield pmi * (p + q)
        yield cosine * (p + q)
        met = self.log_overlap.astype(kind, copy=False)
        lengths = self._product(space.row_lengths)
        yield met / lengths
        yield np.log(met + kind.type(_ROW_FLOOR))
        yield np.log(lengths)
        yield p**2 + q**2
        yield self._sum(space.near)
        yield self._sum(space.row_sums)
        yield self.smooth / self._product(space.smooth_norms)
        yield np.log(self._product(space.smooth_sizes))

    def _product(self, sides: Both) -> Array:
        kind = self.dot.dtype
        return np.asarray(sides[0][self.u].astype(kind) * sides[1][self.v].astype(kind))

    def _sum(self, sides: Both) -> Array:
        kind = self.dot.dtype
        return np.asarray(sides[0][self.u].astype(kind) + sides[1][self.v].astype(kind))


def build_space(
    graph: Graph,
    *,
    rank: int,
    damping: float,
    keep: int = KEEP,
    rounds: int = DIFFUSION_ROUNDS,
    seed: int = 0,
    progress: Progress | None = None,
) -> Space:
    """Push, take logarithms, factorise."""
    pushing, factorising = portions(progress, [1, 1])
    diffusion = diffuse(graph, damping=damping, keep=keep, progress=pushing)
    svd = fsvd(
        Matrix(log_matrix(diffusion)),
        min(rank, graph.num_nodes),
        n_iter=rounds,
        block_size=diffusion_block(rank),
        seed=seed,
        progress=factorising,
    )
    return space_of(graph, diffusion, svd)


def space_of(graph: Graph, diffusion: Diffusion, svd: SVD) -> Space:
    """The space of a graph whose log matrix is factorised."""
    roots = np.sqrt(svd.s)
    left, right = svd.U * roots, svd.Vt.T * roots
    return Space(diffusion, left, right, svd.s, near_degrees(graph, diffusion), graph.num_nodes)


def near_degrees(graph: Graph, diffusion: Diffusion) -> Both:
    """The mean of log d over the neighbours along the edges, and against them; 0 for a node without."""
    logs = np.log(diffusion.middle)[:, None]
    out = _mean_over(graph.csr, logs)
    return out, _mean_over(graph.csr.transposed, logs) if graph.directed else out


def _mean_over(csr: CSR, values: Array) -> Array:
    pattern = CSR(csr.indptr, csr.indices, None, csr.shape, None)
    return np.asarray(multiply(pattern, values)[:, 0] / np.maximum(np.diff(csr.indptr), 1))
