"""Link prediction by a ridge-shrunken spectrum, for dense graphs.

With S = D^-a A D^-a ≈ V diag(λ) V', the score of (u, v) is [D^b V f(λ) V' D^b]_uv, where f(λ) = λ³ / (λ² + μ)
and μ = c · mean(d)^(-4a): small eigenvalues count less and less, and none is cut off.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from fastgrl.checks import Array
from fastgrl.errors import ArgumentError
from fastgrl.fsvd import SVD
from fastgrl.graph import Graph
from fastgrl.link_models import (
    FactorModel,
    Fit,
    Known,
    Regrown,
    Settings,
    figures,
    padded,
    product_columns,
)
from fastgrl.metrics import hits_at_k, roc_auc
from fastgrl.operators import Operator
from fastgrl.progress import Progress, portions
from fastgrl.selection import hold_outs
from fastgrl.spectra import select_shrunken, shrunken_factors
from fastgrl.stopwatch import Stopwatch
from fastgrl.walks import degree_power

DEFAULTS = {"power": 0.4375, "outer": 0.375, "shrinkage": 1000.0}
_ENOUGH_FOR_HITS = 1000


@dataclass(frozen=True, eq=False)
class ShrunkenModel(FactorModel):
    """left = D^b V f(λ), right = D^b V."""

    svd: SVD
    degrees: Array
    power: float
    outer: float
    shrinkage: float
    n_components: int
    mean_degree: float

    @functools.cached_property
    def eigenvalues(self) -> Array:
        """λ: singular values with the sign of u_j · v_j."""
        U, s, Vt = self.svd
        return np.asarray(s * np.where(np.einsum("ij,ji->j", U, Vt) < 0, -1, 1))

    @functools.cached_property
    def right(self) -> Array:
        scale = np.where(self.degrees > 0, self.degrees, 0.0) ** self.outer
        return padded((self.svd.Vt.T * scale[:, None]).astype(np.float32), self.n_components)

    @functools.cached_property
    def left(self) -> Array:
        values = self.eigenvalues.astype(np.float64)
        mu = self.shrinkage * self.mean_degree ** (-4 * self.power)
        shrunken = np.zeros(self.n_components)
        shrunken[: len(values)] = values**3 / (values**2 + mu)
        return np.asarray(self.right * shrunken.astype(np.float32))

    @property
    def fit_columns(self) -> int:
        return product_columns(len(self.svd.s))

    def factorised(self, graph: Graph) -> tuple[Operator, SVD]:
        return degree_power(graph, power=self.power), self.svd

    def fold_in(self, graph: Graph, out: Any, into: Any) -> tuple[ShrunkenModel, Array]:
        del into  # undirected only
        degrees = np.asarray(out.sum(axis=1), np.float64).ravel()
        scale = np.where(graph.degrees > 0, graph.degrees, 1.0) ** -self.power
        own = np.where(degrees > 0, degrees, 1.0) ** -self.power
        rows = (out * scale[None, :]).tocsr() * own[:, None]  # the new rows of S
        inside = np.asarray(rows @ self.svd.Vt.T)
        vectors = inside / np.where(self.eigenvalues != 0, self.eigenvalues, 1)
        energy = np.asarray(rows.multiply(rows).sum(axis=1)).ravel()
        trust = (inside**2).sum(1) / np.where(energy > 0, energy, 1)
        s, sign = self.svd.s, np.sign(self.eigenvalues)
        V = np.concatenate([self.svd.Vt.T, vectors.astype(s.dtype)])
        U = np.concatenate([self.svd.U, (vectors * sign).astype(s.dtype)])
        grown = replace(self, svd=SVD(U, s, V.T), degrees=np.concatenate([self.degrees, degrees]))
        return grown, np.minimum(trust, 1.0)

    def regrown(self, graph: Graph, changed: Array) -> Regrown:
        del changed
        model = functools.partial(_model, graph, setting=self._setting, n_components=self.n_components)
        return Regrown(degree_power(graph, power=self.power), model, 0)

    @property
    def _setting(self) -> dict[str, float]:
        return {"power": self.power, "outer": self.outer, "shrinkage": self.shrinkage}


def _model(graph: Graph, svd: SVD, *, setting: dict[str, float], n_components: int) -> ShrunkenModel:
    d = graph.degrees
    mean = float(d.mean()) if d.any() else 1.0
    return ShrunkenModel(svd, d, **setting, n_components=n_components, mean_degree=mean)


def fit_shrunken(
    graph: Graph,
    settings: Settings,
    *,
    known: Known | None,
    sides: Array | None,
    progress: Progress | None,
) -> Fit:
    """Choose powers and shrinkage on held-out pairs, by Hits@20 where the caller gave enough of them."""
    if graph.directed:
        raise ArgumentError(f'"shrunken" knows undirected graphs only, not {graph!r}; use "log-diffusion"')
    watch, rank = Stopwatch(), min(settings.n_components, graph.num_nodes)
    held = hold_outs(graph, settings, known, sides, count=1) if settings.select or known else []
    choosing, fitting = portions(progress, [5 if held and settings.select else 1e-9, 1])
    setting: dict[str, float] = dict(DEFAULTS)
    near: list[dict[str, Any]] = []
    validation: dict[str, Any] = {}
    if held and settings.select:
        by_hits = known is not None and len(held[0].pairs) - held[0].num_links >= _ENOUGH_FOR_HITS
        found = select_shrunken(
            held[0].train,
            positives=held[0].pairs[: held[0].num_links],
            negatives=held[0].pairs[held[0].num_links :],
            metric=_hits_at_20 if by_hits else roc_auc,
            ranks=[rank],
            seed=settings.seed,
            progress=choosing,
        )
        setting = {name: getattr(found, name) for name in DEFAULTS}
        validation = {"hits@20" if by_hits else "roc_auc": found.value, "pairs": len(held[0].pairs)}
        near = found.near
    watch.stop("select")
    wanted: dict[str, Any] = setting | {"rank": rank}
    svd = shrunken_factors(graph, **wanted, seed=settings.seed, progress=fitting).svd
    model = _model(graph, svd, setting=setting, n_components=settings.n_components)
    watch.stop("fit")
    if held and known is not None:
        scores = model.score(held[0].pairs)
        links = held[0].num_links
        validation = figures(scores, links) | {"hits@20": _hits_at_20(scores[:links], scores[links:])}
    return Fit(model, wanted, validation, watch.seconds, near_best=tuple(near))


def _hits_at_20(positives: Array, negatives: Array) -> float:
    return hits_at_k(positives, negatives, k=20)
