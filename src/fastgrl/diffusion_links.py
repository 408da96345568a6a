"""Link prediction by the logarithm of a diffusion: the default design."""

from __future__ import annotations

import functools
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from fastgrl.checks import Array
from fastgrl.costs import DIFFUSION_ROUNDS, diffusion_block
from fastgrl.diffusion import log_matrix
from fastgrl.fsvd import SVD
from fastgrl.graph import Graph
from fastgrl.leaves import Matrix
from fastgrl.link_models import (
    BlockScorer,
    Fit,
    Known,
    LinkModel,
    Regrown,
    Settings,
)
from fastgrl.operators import Operator
from fastgrl.progress import Progress, portions
from fastgrl.push import KEEP
from fastgrl.regrowth import regrown_diffusion, with_new_nodes
from fastgrl.scorers import Scorer
from fastgrl.selection import DAMPINGS, Choice, choose, fixed_choice, hold_outs, node_weights
from fastgrl.spaces import FEATURE_SETS, Space, build_space, space_of
from fastgrl.stopwatch import Stopwatch

LEAST_WITH_DEGREES = 4
# Of a quick fit: entries per row, and rounds of its factorisation after the first.
QUICK_KEEP, QUICK_ROUNDS = 16, 4
NO_HOLD_OUT = (
    "no edges could be held out to learn from (a tree, a clique or a tiny graph): the score has fixed weights"
)


@dataclass(frozen=True, eq=False)
class DiffusionModel(LinkModel):
    """score(u, v) is a fitted combination of features of a diffusion and of its embedding.

    `node_weights` are those of the plain dot product cos(u, v) + f_u + g_v that `left` and `right` serve,
    where f and g are sums of what is known of a node alone; None if they are the bare unit vectors. `keep` is
    how many entries a row of the diffusion has at most, `rounds` those of the factorisation after the first.
    """

    space: Space
    scorer: Scorer
    damping: float
    node_weights: Array | None
    n_components: int
    keep: int = KEEP
    rounds: int = DIFFUSION_ROUNDS

    @property
    def singular_values(self) -> Array:
        return self.space.singular_values

    @functools.cached_property
    def left(self) -> Array:
        """Unit vectors; then f, and a column of ones."""
        return self._with_terms(self.space.smooth_left, side=0)

    @functools.cached_property
    def right(self) -> Array:
        """Unit vectors; then a column of ones, and g."""
        return self._with_terms(self.space.smooth_right, side=1)

    def _with_terms(self, vectors: Array, *, side: int) -> Array:
        result = np.zeros((len(vectors), self.n_components), np.float32)
        norms = self.space.smooth_norms[side][:, None]
        np.divide(vectors, norms, out=result[:, : vectors.shape[1]], casting="same_kind")
        if self.node_weights is not None:
            result[:, -2:] = 1
            result[:, -2 + side] = self.space.node_terms[side] @ self.node_weights
        return result

    def score(self, pairs: Array) -> Array:
        """The fitted log-odds."""
        return self.scorer(self.space.features(pairs, len(self.scorer.weights)))

    def block_scorer(self) -> BlockScorer:
        features = self.space.block_features(len(self.scorer.weights))
        return lambda rows, columns: self.scorer.combine(features(rows, columns), np.dtype(np.float32))

    @property
    def feature_set(self) -> str:
        """The name of the features in use, such as F3."""
        return next(name for name, count in FEATURE_SETS.items() if count == len(self.scorer.weights))

    @property
    def largest_rank(self) -> int:
        return self.n_components - (0 if self.node_weights is None else 2)

    @property
    def fit_columns(self) -> int:
        return 2 * (self.rounds + 1) * diffusion_block(len(self.singular_values))

    def factorised(self, graph: Graph) -> tuple[Operator, SVD]:
        del graph  # its diffusion says all
        return Matrix(log_matrix(self.space.diffusion)), self.space.svd

    def fold_in(self, graph: Graph, out: Any, into: Any) -> tuple[DiffusionModel, Array]:
        space, trust = with_new_nodes(self.space, graph, out, into, damping=self.damping, keep=self.keep)
        return replace(self, space=space), trust

    def regrown(self, graph: Graph, changed: Array) -> Regrown:
        diffusion, rows = regrown_diffusion(
            self.space.diffusion, graph, changed, damping=self.damping, keep=self.keep
        )

        def model(svd: SVD) -> DiffusionModel:
            return replace(self, space=space_of(graph, diffusion, svd))

        return Regrown(Matrix(log_matrix(diffusion)), model, rows)


def fit_diffusion(
    graph: Graph,
    settings: Settings,
    *,
    known: Known | None,
    sides: Array | None,
    progress: Progress | None,
) -> Fit:
    """Choose damping and features on held-out edges, or only fit the scorer there; refit on all edges."""
    with_degrees = settings.n_components >= LEAST_WITH_DEGREES
    rank = settings.n_components - 2 * with_degrees
    keep = settings.keep or (QUICK_KEEP if settings.quick else KEEP)
    rounds = QUICK_ROUNDS if settings.quick else DIFFUSION_ROUNDS
    watch = Stopwatch()
    dampings = DAMPINGS if settings.select else (settings.damping,)
    count = 2 if settings.select else 1
    held = [] if settings.quick else hold_outs(graph, settings, known, sides, count=count)
    choosing, fitting = portions(progress, [len(dampings) * len(held) or 1e-9, 1])
    choice: Choice | None = None
    if held:
        sets = tuple(FEATURE_SETS) if settings.select else ("F4",)
        choice = choose(
            held,
            rank=rank,
            dampings=dampings,
            feature_sets=sets,
            keep=keep,
            seed=settings.seed,
            progress=choosing,
        )
    watch.stop("select")
    damping = settings.damping if choice is None else choice.damping
    space = build_space(
        graph,
        rank=rank,
        damping=damping,
        keep=keep,
        rounds=rounds,
        seed=settings.seed,
        progress=fitting,
    )
    notices = [] if choice or settings.quick else [NO_HOLD_OUT]
    notices += [] if settings.keep is None or keep >= KEEP else [_fewer_kept(keep)]
    choice = choice or fixed_choice(graph, space, damping=damping)
    terms = node_weights(choice.dot_scorer) if with_degrees else None
    model = DiffusionModel(space, choice.scorer, damping, terms, settings.n_components, keep, rounds)
    watch.stop("fit")
    chosen = {"damping": damping, "features": model.feature_set, "rank": rank}
    chosen |= {} if keep == KEEP else {"keep": keep}
    return Fit(model, chosen, choice.validation, watch.seconds, tuple(notices))


def _fewer_kept(keep: int) -> str:
    return (
        f"{keep} entries were kept in each row of the diffusion instead of {KEEP}, because of max_memory: "
        "a little accuracy for less memory and time"
    )
