"""Link prediction by the paper's walk matrices: "walk", "degree-walk" and "as-released"."""

from __future__ import annotations

import functools
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from fastgrl.checks import Array
from fastgrl.fsvd import SVD
from fastgrl.graph import Graph
from fastgrl.link_models import (
    FactorModel,
    Fit,
    Known,
    Regrown,
    Settings,
    figures,
    product_columns,
    scaled_columns,
)
from fastgrl.operators import Operator
from fastgrl.progress import Progress, portions
from fastgrl.selection import HoldOut, hold_outs
from fastgrl.splits import EdgeSplit
from fastgrl.stopwatch import Stopwatch
from fastgrl.sweeps import select_walk
from fastgrl.walks import (
    DEFAULT_NEGATIVE,
    Design,
    Factors,
    as_released,
    degree_walk,
    fold_in,
    walk,
    walk_svd,
)

WINDOW = 5
_MATRICES = {"walk": walk, "degree-walk": degree_walk, "as-released": as_released}


@dataclass(frozen=True, eq=False)
class WalkModel(FactorModel):
    """M ≈ U diag(s) V'. left = U s^½ and right = V s^½, or U s and V as released."""

    svd: SVD
    design: Design
    window: int
    negative: float
    n_components: int

    @functools.cached_property
    def left(self) -> Array:
        power = 1.0 if self.design == "as-released" else 0.5
        return scaled_columns(self.svd.U, self.svd.s**power, self.n_components)

    @functools.cached_property
    def right(self) -> Array:
        power = 0.0 if self.design == "as-released" else 0.5
        return scaled_columns(self.svd.Vt.T, self.svd.s**power, self.n_components)

    @property
    def fit_columns(self) -> int:
        # The released program runs 20 rounds of Algorithm 1 with twice as many columns.
        return (
            2 * 21 * 2 * len(self.svd.s) if self.design == "as-released" else product_columns(len(self.svd.s))
        )

    def factorised(self, graph: Graph) -> tuple[Operator, SVD]:
        return self._matrix(graph), self.svd

    def _matrix(self, graph: Graph) -> Operator:
        return _MATRICES[self.design](graph, window=self.window, negative=self.negative)

    def fold_in(self, graph: Graph, out: Any, into: Any) -> tuple[WalkModel, Array]:
        factors = Factors(self._matrix(graph), self.svd, self.left, self.right)
        left, right, trust = fold_in(
            factors,
            graph,
            new=out,
            incoming=into if graph.directed else None,
            design=self.design,
            window=self.window,
            negative=self.negative,
        )
        s, power = self.svd.s, 1.0 if self.design == "as-released" else 0.5
        U = np.concatenate([self.svd.U, _divided(left, s**power)])
        V = np.concatenate([self.svd.Vt.T, _divided(right, s ** (1 - power))])
        return replace(self, svd=SVD(U, s, V.T)), trust

    def regrown(self, graph: Graph, changed: Array) -> Regrown:
        del changed  # every row is implicit: none is computed
        return Regrown(self._matrix(graph), lambda svd: replace(self, svd=svd), 0)


def _divided(vectors: Array, scale: Array) -> Array:
    safe = np.where(scale > 0, scale, 1)
    return (vectors[:, : len(scale)] / safe).astype(scale.dtype)


def fit_walk(
    graph: Graph,
    settings: Settings,
    *,
    known: Known | None,
    sides: Array | None,
    progress: Progress | None,
) -> Fit:
    """Choose window and λ in a shared subspace if they are left open, then factorise once."""
    watch, design = Stopwatch(), settings.design
    open_ = None in (settings.window, settings.negative) and design != "as-released"
    selecting = settings.select and open_
    held = hold_outs(graph, settings, known, sides, count=1) if selecting or known else []
    choosing, fitting = portions(progress, [1 if held and selecting else 1e-9, 1])
    window, negative = settings.window, settings.negative
    if held and selecting:
        window, negative = _chosen(held[0], settings, choosing)
    watch.stop("select")
    model = _fitted(
        graph,
        settings,
        window=WINDOW if window is None else window,
        negative=DEFAULT_NEGATIVE[design] if negative is None else negative,
        progress=fitting,
    )
    chosen = {"window": model.window, "negative": model.negative, "rank": len(model.svd.s)}
    watch.stop("fit")
    validation = _validation(model, held[0], settings, given=known is not None) if held else {}
    return Fit(model, chosen, validation, watch.seconds)


def _chosen(held: HoldOut, settings: Settings, progress: Progress | None) -> tuple[int, float]:
    split = EdgeSplit(held.train, held.pairs[: held.num_links], held.pairs[held.num_links :])
    fixed: dict[str, Any] = {}
    if settings.window is not None:
        fixed["windows"] = (settings.window,)
    if settings.negative is not None:
        fixed["negatives"] = (settings.negative,)
    rank = min(settings.n_components, held.train.num_nodes)
    design: Any = settings.design
    found = select_walk(split, design, rank=rank, seed=settings.seed, progress=progress, **fixed)
    return found.window, found.negative


def _fitted(
    graph: Graph, settings: Settings, *, window: int, negative: float, progress: Progress | None = None
) -> WalkModel:
    rank = min(settings.n_components, graph.num_nodes)
    design: Any = settings.design
    _, svd = walk_svd(
        graph, design, rank=rank, window=window, negative=negative, seed=settings.seed, progress=progress
    )
    return WalkModel(svd, design, window, negative, settings.n_components)


def _validation(model: WalkModel, held: HoldOut, settings: Settings, *, given: bool) -> dict[str, Any]:
    """How the setting does on pairs held out, learning from the rest (all of it, if they were given)."""
    judged = model
    if not given:
        judged = _fitted(held.train, settings, window=model.window, negative=model.negative)
    return figures(judged.score(held.pairs), held.num_links)
