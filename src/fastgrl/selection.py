"""Choosing settings from training edges alone: hold some of them out, predict them, refit on all."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from fastgrl.bipartite import sample_across
from fastgrl.checks import Array
from fastgrl.errors import ArgumentError
from fastgrl.graph import Graph
from fastgrl.link_models import Known, Settings
from fastgrl.metrics import average_precision, roc_auc
from fastgrl.progress import Progress, portions
from fastgrl.push import KEEP
from fastgrl.scorers import Scorer, fit_scorer, fixed_scorer
from fastgrl.spaces import DOT_FEATURES, FEATURE_SETS, FEATURES, Space, build_space
from fastgrl.splits import sample_non_edges, split_edges

DAMPINGS = (0.5, 0.7, 0.85, 0.92)
FRACTIONS = (0.2, 0.1, 0.05)
FEWEST_PAIRS, LEAST_GIVEN = 10, 2
MOST_PAIRS = 100_000
FIXED_SHARE = 0.7  # of degrees beside a cosine, where nothing is held out
_DOT_COLUMNS = [FEATURES.index(name) for name in DOT_FEATURES]


@dataclass(frozen=True, eq=False)
class HoldOut:
    """A graph to learn from, and pairs of its nodes of which the first `num_links` are links."""

    train: Graph
    pairs: Array
    num_links: int

    @property
    def truth(self) -> Array:
        """1 for links, 0 for the others."""
        return (np.arange(len(self.pairs)) < self.num_links).astype(np.float64)


def hold_out(graph: Graph, *, seed: int, sides: Array | None = None) -> HoldOut | None:
    """Hold out 20 % of the edges beside a spanning forest, with as many non-edges; less where it must be.

    None if fewer than ten edges can be spared or as many non-edges do not exist: trees, cliques, tiny graphs.
    """
    for fraction in FRACTIONS:
        if fraction * graph.num_edges < FEWEST_PAIRS:
            return None
        try:
            split = split_edges(graph, fraction=fraction, keep_forest=True, seed=seed)
            others = split.negatives
            if sides is not None:
                others = sample_across(graph, sides, len(split.held_out), seed=seed)
        except ArgumentError:
            continue
        return _judged(split.train, split.held_out, others, seed)
    return None


def _check_enough(links: Array, others: Array) -> None:
    for pairs, what in ((links, "links"), (others, "pairs that are none")):
        if len(pairs) < LEAST_GIVEN:
            raise ArgumentError(
                f"validation has {len(pairs)} {what}; give at least {LEAST_GIVEN}, better {FEWEST_PAIRS}"
            )


def _judged(train: Graph, links: Array, others: Array, seed: int) -> HoldOut:
    """Enough of the pairs: a scorer has a dozen weights."""
    rng = np.random.Generator(np.random.Philox(seed))
    if len(links) > MOST_PAIRS:
        links = links[np.sort(rng.choice(len(links), MOST_PAIRS, replace=False, shuffle=False))]
        others = others[:MOST_PAIRS]
    return HoldOut(train, np.concatenate([links, others]), len(links))


def hold_outs(
    graph: Graph, settings: Settings, known: Known | None, sides: Array | None, *, count: int
) -> list[HoldOut]:
    """The pairs to choose by: those the caller knows, or up to `count` hold-outs of the graph's own edges."""
    if known is not None:
        return [_given(graph, known, sides, settings.seed)]
    held = [hold_out(graph, seed=settings.seed + number, sides=sides) for number in range(count)]
    return [each for each in held if each is not None]


def _given(graph: Graph, known: Known, sides: Array | None, seed: int) -> HoldOut:
    links, others = known.links, known.others
    if others is None and sides is None:
        others = sample_non_edges(graph, len(links), seed=seed, exclude=links)
    elif others is None and sides is not None:
        others = sample_across(graph, sides, len(links), seed=seed, exclude=links)
    assert others is not None
    _check_enough(links, others)
    return HoldOut(graph, np.concatenate([links, others]), len(links))


@dataclass(frozen=True, eq=False)
class Choice:
    """The settings of a log-diffusion, its two scorers, and how they did on pairs they were not fitted on."""

    damping: float
    scorer: Scorer
    dot_scorer: Scorer
    validation: dict[str, float] = field(default_factory=dict)
    table: list[dict[str, Any]] = field(default_factory=list)


def choose(
    hold_outs: Sequence[HoldOut],
    *,
    rank: int,
    dampings: Sequence[float] = DAMPINGS,
    feature_sets: Sequence[str] = tuple(FEATURE_SETS),
    keep: int = KEEP,
    seed: int = 0,
    progress: Progress | None = None,
) -> Choice:
    """Try every damping with every set of features, keep the one with the best area under the ROC curve.

    A scorer is judged on pairs it was not fitted on: those of the other hold-out, or the other half of one.
    The scorer returned is fitted on all of them.
    """
    bars = iter(portions(progress, [1] * (len(dampings) * len(hold_outs))))
    truths = [each.truth for each in hold_outs]
    best: Choice | None = None
    table: list[dict[str, Any]] = []
    for damping in dampings:
        known = [
            build_space(
                each.train, rank=rank, damping=damping, keep=keep, seed=seed, progress=next(bars)
            ).features(each.pairs)
            for each in hold_outs
        ]
        for name in feature_sets:
            features = [one[:, : FEATURE_SETS[name]] for one in known]
            figures = _crosswise(features, truths)
            table.append({"damping": damping, "features": name, **figures})
            if best is None or figures["roc_auc"] > best.validation["roc_auc"]:
                best = _fitted(damping, features, known, truths, figures)
    assert best is not None
    return replace(best, table=table)


def _fitted(
    damping: float, features: list[Array], known: list[Array], truths: list[Array], figures: dict[str, float]
) -> Choice:
    truth = np.concatenate(truths)
    dots = fit_dot_scorer(np.concatenate(known), truth)
    return Choice(damping, fit_scorer(np.concatenate(features), truth), dots, figures)


def fit_dot_scorer(features: Array, truth: Array) -> Scorer:
    """The scorer that a plain dot product of vectors can follow, of all features of some pairs."""
    return fit_scorer(features[:, _DOT_COLUMNS], truth)


def _crosswise(features: list[Array], truths: list[Array]) -> dict[str, float]:
    """Fit on one part and judge on the other, both ways; a single hold-out is cut into two halves."""
    if len(features) == 1:
        halves = [slice(0, None, 2), slice(1, None, 2)]
        features, truths = [features[0][half] for half in halves], [truths[0][half] for half in halves]
    areas, precisions = [], []
    for i, (judged, truth) in enumerate(zip(features, truths, strict=True)):
        others = [j for j in range(len(features)) if j != i]
        scorer = fit_scorer(
            np.concatenate([features[j] for j in others]), np.concatenate([truths[j] for j in others])
        )
        scores = scorer(judged)
        areas.append(roc_auc(scores[truth == 1], scores[truth == 0]))
        precisions.append(average_precision(scores[truth == 1], scores[truth == 0]))
    pairs = sum(len(truth) for truth in truths)
    return {
        "roc_auc": float(np.mean(areas)),
        "average_precision": float(np.mean(precisions)),
        "pairs": pairs,
    }


def fixed_choice(graph: Graph, space: Space, *, damping: float) -> Choice:
    """Weights that need no hold-out, standardised on the graph's own edges and the pairs of their ends."""
    edges = graph.edge_codes().astype(np.int64)
    pairs = with_shifted_ends(edges[:: sampling_step(len(edges))])
    known = space.features(pairs, FEATURE_SETS["F1"])
    return Choice(damping, fixed_scorer(known), fixed_dot_scorer(space, pairs))


def sampling_step(edges: int) -> int:
    """Every how many-th edge fixed weights are standardised on: about two thousand of them.

    >>> sampling_step(2000), sampling_step(2001)
    (1, 2)
    """
    return -(-edges // 2_000) or 1


def with_shifted_ends(edges: Array) -> Array:
    """Edges, and pairs of the first end of one with the second end of another."""
    return np.concatenate([edges, np.column_stack([edges[:, 0], np.roll(edges[:, 1], 1)])])


def fixed_dot_scorer(space: Space, pairs: Array) -> Scorer:
    """The fixed scorer that a plain dot product follows: a cosine, and the degrees of both ends."""
    p, q = space.log_degrees
    sums = p[pairs[:, 0]] + q[pairs[:, 1]]
    return fixed_scorer(np.column_stack([space.smooth_cosines(pairs), sums]), share=FIXED_SHARE)


def node_weights(scorer: Scorer) -> Array:
    """The weights of each end's own terms beside a cosine of weight 1; 0 if the cosine says nothing."""
    slopes = scorer.weights / scorer.deviations
    weights = np.zeros(len(DOT_FEATURES) - 1)
    if slopes[0] > 0:
        weights[: len(slopes) - 1] = slopes[1:] / slopes[0]
    return weights
