"""Choosing window, λ and rank of a walk for little more than one fit.

One fit of rank K holds every smaller rank. One pair of bases Q, R shared by all settings turns the SVD of
each walk matrix M into that of the small Q'M R, which is linear in what was measured once: Q'T^iR, Q'A R and
Q'11'R.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fastgrl import walks
from fastgrl.checks import Array, integer, size
from fastgrl.errors import ArgumentError, DtypeError, ShapeError
from fastgrl.fsvd import Progress, fsvd
from fastgrl.graph import Graph
from fastgrl.linalg import seam_of
from fastgrl.metrics import roc_auc
from fastgrl.normalisations import transition
from fastgrl.orthonormal import orthonormalise
from fastgrl.parallel import single_threaded_blas, use_threads
from fastgrl.splits import EdgeSplit
from fastgrl.walks import Design, checked_design, finite_number, window_weights

Metric = Callable[[Array, Array], float]

WINDOWS = (1, 2, 3, 5, 10, 20)
NEGATIVES = (0.0, 0.02, 0.1, 0.3, 1.0, 3.0)

_BLOCK_PAIRS = 1 << 14
# Long walks and short ones with much of A in them: what lies between is nearly in the span of both.
_SHORT = (2, 1.0)
_LONG_NEGATIVE = 0.1
_FINALISTS, _WARM_ROUNDS = 3, 4


def cumulative_scores(left: Array, right: Array, *, pairs: Any, ranks: Any = None) -> Array:
    """Scores of all ranks in one pass: column j holds Σ_{i ≤ ranks[j]} left_ui right_vi, m×len(ranks).

    `pairs` is an (m, 2) array of node numbers; `ranks` None is every rank from 1 to that of the fit.

    >>> L = np.array([[1.0, 10.0], [2.0, 20.0]])
    >>> cumulative_scores(L, L, pairs=[[0, 1]])
    array([[  2., 202.]])
    """
    u, v = checked_pairs(pairs, "pairs", len(left))
    kept = checked_ranks(ranks, left.shape[1]) - 1
    scores = np.empty((len(u), len(kept)), np.result_type(left, right))
    for rows in pair_blocks(len(u)):
        products = left[u[rows]] * right[v[rows]]
        scores[rows] = np.cumsum(products, axis=1)[:, kept]
    return scores


def rank_sweep(
    left: Array,
    right: Array,
    *,
    positives: Any,
    negatives: Any,
    ranks: Any = None,
    metric: Metric = roc_auc,
    both_ways: bool = False,
) -> Array:
    """The metric of every rank of one fit, from the scores of (m, 2) arrays of positive and negative pairs.

    With `both_ways` the pair (u, v) scores left_u·right_v + left_v·right_u.

    >>> L = np.array([[1.0, 0.0], [1.0, 1.0], [1.0, -1.0]])
    >>> rank_sweep(L, L, positives=[[1, 1]], negatives=[[1, 2]])
    array([0.5, 1. ])
    """
    scores = []
    for pairs, name in ((positives, "positives"), (negatives, "negatives")):
        forth = np.stack(checked_pairs(pairs, name, len(left)), axis=1)
        ways = [forth, forth[:, ::-1]] if both_ways else [forth]
        found = [cumulative_scores(left, right, pairs=way, ranks=ranks) for way in ways]
        scores.append(np.sum(found, axis=0))
    return np.array([metric(p, n) for p, n in zip(scores[0].T, scores[1].T, strict=True)])


@dataclass(frozen=True, eq=False)
class WalkSubspace:
    """Two orthonormal bases and the parts of Q'M R that all walk matrices M share.

    `steps[i]` is Q'T^(i+1) R (Q'D T^(i+1) R for "degree-walk"), `edges` is Q'A R and `ones` is Q'11'R.
    """

    Q: Array
    R: Array
    steps: Array
    edges: Array
    ones: Array

    @classmethod
    def of(cls, graph: Graph, Q: Array, R: Array, *, design: str, window: int) -> WalkSubspace:
        """Measure the parts with `window` sparse products of R."""
        T, d, seam = transition(graph, dtype=R.dtype), graph.degrees.astype(Q.dtype)[:, None], seam_of(R)
        QD, P = Q * d, T @ R
        start, edges = Q if design == "walk" else QD, seam.cross(QD, P)  # A = D T
        steps = [seam.cross(start, P)]
        for _ in range(window - 1):
            P = T @ P
            steps.append(seam.cross(start, P))
        ones = np.outer(seam.column_sums(Q), seam.column_sums(R))
        return cls(Q, R, np.array(steps), edges, ones)

    def factors(self, *, window: int, negative: float, rank: int) -> tuple[Array, Array]:
        """The factors of QQ'M RR', left and right: those of M itself if the bases are full."""
        c = window_weights(window)
        small = np.tensordot(c, self.steps[:window], 1) - negative * (self.ones - self.edges)
        B, s, Wt = np.linalg.svd(small)
        root, seam = np.sqrt(s[:rank]), seam_of(self.Q)
        return seam.times(self.Q, B[:, :rank] * root), seam.times(self.R, Wt[:rank].T * root)


def _shared_subspace(graph: Graph, design: str, rank: int, window: int, seed: int) -> WalkSubspace:
    """Bases for all windows and λ: the vector of ones, 2 rank vectors of a long and of a short walk."""
    make = walks.walk if design == "walk" else walks.degree_walk
    columns, settings = min(2 * rank, graph.num_nodes), ((window, _LONG_NEGATIVE), _SHORT)
    fits = [fsvd(make(graph, window=w, negative=lam), columns, seed=seed) for w, lam in settings]
    Q, R = _orthonormal([fit.U for fit in fits]), _orthonormal([fit.Vt.T for fit in fits])
    return WalkSubspace.of(graph, Q, R, design=design, window=window)


def _orthonormal(blocks: list[Array]) -> Array:
    n, kind = len(blocks[0]), blocks[0].dtype
    return basis_of([np.full((n, 1), n**-0.5, kind), *blocks])


def basis_of(blocks: list[Array]) -> Array:
    """Orthonormal columns that span those of all blocks together."""
    n, kind, together = len(blocks[0]), blocks[0].dtype, np.hstack(blocks)
    seam, width = seam_of(together), min(together.shape)
    Q: Array = orthonormalise(seam, together, seam.basis(n, 0, kind), width=width, fresh=None)[0]
    return Q


@dataclass(frozen=True, eq=False)
class WalkChoice:
    """The setting with the best ROC-AUC on the held-out pairs.

    `table` has a dict per setting tried: window, negative, rank, roc_auc, and whether the fit was `exact` or
    that of the shared subspace.
    """

    window: int
    negative: float
    rank: int
    table: list[dict[str, Any]]


def select_walk(
    split: EdgeSplit,
    design: Design = "walk",
    *,
    rank: int,
    ranks: Any = None,
    windows: Sequence[int] = WINDOWS,
    negatives: Sequence[float] = NEGATIVES,
    both_ways: bool = False,
    seed: int = 0,
    progress: Progress | None = None,
    n_threads: int | None = None,
) -> WalkChoice:
    """Choose window and λ (and the rank among `ranks`, if given) by the held-out pairs of `split`.

    Every λ of `negatives` is tried for the weights c as they are and for c normalised to sum 1, which is
    λ Σc. All settings are scored in a shared subspace; the best three are refitted in truth, and the best of
    those is chosen. Only `split.train` is fitted. "as-released" is screened by its relative "degree-walk".

    >>> graph = fg.load_dataset("digits").graph
    >>> split = fg.splits.split_edges(graph, keep_forest=True)
    >>> choice = select_walk(split, rank=8, windows=(1, 5), negatives=(0.1, 1.0))
    >>> choice.window, len(choice.table)
    (5, 9)
    """
    if checked_design(design) == "as-released":
        walks.as_released(split.train)  # refuses what it cannot do before any work is done
    settings, report = _walk_settings(windows, negatives), progress or (lambda *_: None)
    rank = integer("rank", rank, least=1, most=split.train.num_nodes)
    tried = checked_ranks([rank] if ranks is None else ranks, rank)
    rounds = None if design == "as-released" else _WARM_ROUNDS
    table: list[dict[str, Any]] = []

    def judge(left: Array, right: Array, setting: tuple[int, float], exact: bool) -> None:
        pairs: dict[str, Any] = {"positives": split.held_out, "negatives": split.negatives}
        found = rank_sweep(left, right, **pairs, ranks=tried, both_ways=both_ways)
        known = {"window": setting[0], "negative": setting[1], "exact": exact}
        for k, value in zip(tried.tolist(), found.tolist(), strict=True):
            table.append({**known, "rank": k, "roc_auc": value})
        report(len(table) // len(tried), len(settings) + min(_FINALISTS, len(settings)))

    with use_threads(n_threads), single_threaded_blas():
        shared = _shared_subspace(split.train, design, rank, max(windows), seed)
        for window, lam in settings:
            judge(*shared.factors(window=window, negative=lam, rank=rank), (window, lam), False)
        for window, lam in _leading_settings(table):
            settled: dict[str, Any] = {"rank": rank, "window": window, "negative": lam, "seed": seed}
            start = shared.factors(window=window, negative=lam, rank=rank)[1]
            fit = walks.factorise(split.train, design, **settled, start=start, n_iter=rounds)
            judge(fit.left, fit.right, (window, lam), True)
    best = max((row for row in table if row["exact"]), key=lambda row: row["roc_auc"])
    return WalkChoice(best["window"], best["negative"], best["rank"], table)


def _leading_settings(table: list[dict[str, Any]]) -> list[tuple[int, float]]:
    ordered = sorted(table, key=lambda row: -row["roc_auc"])
    return list(dict.fromkeys((row["window"], row["negative"]) for row in ordered))[:_FINALISTS]


def _walk_settings(windows: Sequence[int], negatives: Sequence[float]) -> list[tuple[int, float]]:
    if not len(windows) or not len(negatives):
        raise ArgumentError("windows and negatives must hold at least one value each")
    plain = [finite_number("negatives", x, least=0.0) for x in negatives]
    scales = {integer("windows", window, least=1): float(window_weights(window).sum()) for window in windows}
    both = [(w, lam * scale) for w, total in scales.items() for scale in (1.0, total) for lam in plain]
    return list(dict.fromkeys(both))


def pair_blocks(count: int) -> Iterator[slice]:
    """Slices of a list of pairs, small enough to gather the vectors of both ends."""
    return (slice(first, first + _BLOCK_PAIRS) for first in range(0, count, _BLOCK_PAIRS))


def checked_ranks(ranks: Any, most: int) -> Array:
    """Ranks from 1 to `most`; None is all of them."""
    given = range(1, most + 1) if ranks is None else np.atleast_1d(ranks).tolist()
    checked = [integer("ranks", rank, least=1, most=most) for rank in given]
    if not checked:
        raise ArgumentError("ranks must hold at least one rank")
    return np.array(checked)


def checked_pairs(pairs: Any, name: str, num_nodes: int) -> tuple[Array, Array]:
    """The two columns of an (m, 2) array of node numbers."""
    array = np.asarray(pairs)
    if array.ndim != 2 or array.shape[1] != 2:
        raise ShapeError(f"{name} must be an (m, 2) array of node numbers, got {size(array.shape)}")
    if array.dtype.kind not in "ui":
        raise DtypeError(f"{name} must be node numbers, not {array.dtype}")
    if array.size and not 0 <= array.min() <= array.max() < num_nodes:
        wrong = array[(array < 0) | (array >= num_nodes)][0]
        raise ArgumentError(f"{name}: node number {wrong} is outside 0..{num_nodes - 1}")
    return array[:, 0], array[:, 1]
