"""The shrunken spectrum of D^-a A D^-a, and choosing its settings: one factorisation holds all but a."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fastgrl import walks
from fastgrl.checks import Array, integer
from fastgrl.errors import ArgumentError, NotFiniteError
from fastgrl.fsvd import SVD, Progress, fsvd
from fastgrl.graph import Graph
from fastgrl.linalg import seam_of
from fastgrl.metrics import roc_auc
from fastgrl.operators import Operator
from fastgrl.parallel import single_threaded_blas, use_threads
from fastgrl.sweeps import Metric, basis_of, checked_pairs, checked_ranks, pair_blocks
from fastgrl.walks import Factors, finite_number

POWERS = (0.3125, 0.375, 0.4375, 0.5)
OUTERS = (0.0, 0.125, 0.25, 0.3125, 0.375, 0.4375, 0.5)
SHRINKAGES = (0.0, 10.0, 100.0, 300.0, 1000.0, 3000.0, 10000.0)
_SHRUNKEN_RANK, _NEAR = 512, 0.01


def shrunken_factors(
    graph: Graph,
    *,
    power: float,
    outer: float,
    shrinkage: float,
    rank: int | None = None,
    seed: int = 0,
    progress: Progress | None = None,
    n_threads: int | None = None,
) -> Factors:
    """Factors left = D^b V f(λ) and right = D^b V of the leading eigenpairs of D^-a A D^-a.

    a is `power`, b `outer`, c `shrinkage`; f(λ) = λ³ / (λ² + μ) with μ = c mean(d)^(-4a) damps small
    eigenvalues instead of cutting them off. The result's `svd` has s = |λ| and U = V sign(λ). `rank` None is
    512, or all there are. Undirected graphs only.

    >>> graph = fg.Graph.from_edges([(0, 1), (1, 2), (2, 0), (2, 3)])
    >>> shrunken_factors(graph, power=0.5, outer=0.25, shrinkage=1.0, rank=2).left.shape
    (4, 2)
    """
    with use_threads(n_threads), single_threaded_blas():
        found = _Spectrum.of(graph, power, rank, seed, progress)
    V, f, kind = found.vectors, found.shrunken(graph, shrinkage), found.vectors.dtype
    d, signs = _outer_column(graph, outer)[:, None], np.where(found.values < 0, -1, 1)
    if not d.max(initial=0) ** 2 * np.abs(f).max(initial=0) < float(np.finfo(kind).max):
        raise NotFiniteError(f"scores with outer = {outer:g} are too large; divide the weights by a constant")
    svd = SVD(V * signs.astype(kind), np.abs(found.values).astype(kind), V.T, found.rounds)
    return Factors(found.operator, svd, (d * V * f).astype(kind), (d * V).astype(kind))


@dataclass(frozen=True, eq=False)
class _Spectrum:
    """Eigenpairs of D^-a A D^-a, the largest eigenvalues in size first."""

    operator: Operator
    power: float
    values: Array
    vectors: Array
    rounds: int

    @classmethod
    def of(cls, graph: Graph, power: float, rank: int | None, seed: int, progress: Any) -> _Spectrum:
        if graph.directed:
            raise ArgumentError(f'the shrunken spectrum needs an undirected graph, not {graph!r}; use "walk"')
        M, n = walks.degree_power(graph, power=power), graph.num_nodes
        rank = min(_SHRUNKEN_RANK, n) if rank is None else integer("rank", rank, least=1, most=n)
        # Rounds enough for the answer not to depend on the seed: every direction kept counts in the score.
        svd = fsvd(M, rank, block_size=max(8, -(-rank // 4)), n_iter=12, seed=seed, progress=progress)
        values, V = _eigenpairs(M, svd)
        return cls(M, float(power), values, V, svd.rounds)

    def shrunken(self, graph: Graph, shrinkage: float) -> Array:
        """f(λ) = λ / (1 + μ / λ²)."""
        shrinkage = finite_number("shrinkage", shrinkage, least=0.0)
        mean = float(graph.degrees.mean()) or 1.0
        with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
            mu = shrinkage * np.float64(mean) ** (-4 * self.power)
            f = np.where(self.values == 0, 0.0, self.values / (1 + mu / self.values**2))
        if not (np.isfinite(mu) and np.isfinite(f).all()):
            raise NotFiniteError(
                f"μ = {mu:g} is out of range: degrees are {mean:.3g} on average, rescale them"
            )
        return f


def _eigenpairs(M: Operator, svd: SVD) -> tuple[Array, Array]:
    """Eigenpairs of a symmetric M, as many as there are singular triplets, the largest first.

    Singular vectors of λ and −λ come mixed, u + v and u − v do not: Rayleigh and Ritz in the span of both.
    """
    U, s, Vt = svd
    seam = seam_of(U)
    B = basis_of([U, Vt.T])
    small = seam.cross(B, M @ B)
    values, W = np.linalg.eigh((small + small.T) / 2)
    order = np.argsort(-np.abs(values), kind="stable")[: len(s)]
    V = seam.times(B, W[:, order])
    signs = seam.signs(V) * np.where(values[order] < 0, -1, 1)  # as `SVD` has them: U = V sign(λ)
    return values[order], V * signs.astype(V.dtype)


def _outer_column(graph: Graph, outer: float) -> Array:
    power, d = finite_number("outer", outer), graph.degrees
    with np.errstate(over="ignore"):
        column = np.power(d, power, out=np.zeros_like(d), where=d > 0)
    if not column.max(initial=0) < 1e18:  # so that products of two fit float32
        raise NotFiniteError(
            f"degrees up to {d.max():.3g} to the power outer = {power:g} are too large; "
            "divide the weights by a constant"
        )
    return column


@dataclass(frozen=True, eq=False)
class ShrunkenChoice:
    """The setting with the best validation metric, `value`.

    `table` holds all settings, best first: dicts of power, outer, shrinkage, rank and value; `near` those
    within one percentage point of the best, and at least ten.
    """

    power: float
    outer: float
    shrinkage: float
    rank: int
    value: float
    near: list[dict[str, Any]]
    table: list[dict[str, Any]]


def select_shrunken(
    graph: Graph,
    *,
    positives: Any,
    negatives: Any,
    powers: Sequence[float] = POWERS,
    outers: Sequence[float] = OUTERS,
    shrinkages: Sequence[float] = SHRINKAGES,
    ranks: Any = None,
    metric: Metric = roc_auc,
    seed: int = 0,
    progress: Progress | None = None,
    n_threads: int | None = None,
) -> ShrunkenChoice:
    """Choose a, b, c and the rank of `shrunken_factors` by a metric of (positive, negative) scores.

    One fsvd of the largest rank for each power; the rest is free, since a pair scores d_u^b d_v^b
    Σ_j f(λ_j) V_uj V_vj: the products over j times one matrix with a column per shrinkage and rank.

    >>> graph = fg.Graph.from_edges([(0, 1), (1, 2), (2, 3), (3, 0), (3, 4)])
    >>> choice = select_shrunken(graph, positives=[[0, 4]], negatives=[[1, 4]], ranks=[2], powers=[0.5])
    >>> choice.power, choice.rank
    (0.5, 2)
    """
    if not (len(powers) and len(outers) and len(shrinkages)):
        raise ArgumentError("powers, outers and shrinkages must hold at least one value each")
    nodes, report = graph.num_nodes, progress or (lambda *_: None)
    tried = checked_ranks([min(_SHRUNKEN_RANK, nodes)] if ranks is None else ranks, nodes)
    pairs = [checked_pairs(positives, "positives", nodes), checked_pairs(negatives, "negatives", nodes)]
    columns = [(float(c), int(r)) for c in shrinkages for r in tried]
    table: list[dict[str, Any]] = []
    for done, power in enumerate(powers, 1):
        with use_threads(n_threads), single_threaded_blas():
            found = _Spectrum.of(graph, power, int(tried.max()), seed, None)
            filters = np.stack([found.shrunken(graph, c) * (np.arange(tried.max()) < r) for c, r in columns])
            scores = [_filtered(found.vectors, u, v, filters) for u, v in pairs]
        for b in outers:
            d = _outer_column(graph, b)
            p, n = (s * (d[u] * d[v])[:, None] for s, (u, v) in zip(scores, pairs, strict=True))
            table += [
                {"power": float(power), "outer": float(b), "shrinkage": c, "rank": r, "value": metric(x, y)}
                for (c, r), x, y in zip(columns, p.T, n.T, strict=True)
            ]
        report(done, len(powers))
    table.sort(key=lambda row: -row["value"])
    near = [row for i, row in enumerate(table) if i < 10 or row["value"] >= table[0]["value"] - _NEAR]
    return ShrunkenChoice(**table[0], near=near, table=table)


def _filtered(V: Array, u: Array, v: Array, filters: Array) -> Array:
    """Σ_j F_ij V_uj V_vj for every filter i: m×len(filters)."""
    scores, F = np.empty((len(u), len(filters)), V.dtype), filters.T.astype(V.dtype)
    for rows in pair_blocks(len(u)):
        scores[rows] = (V[u[rows]] * V[v[rows]]) @ F
    return scores
