"""What the fit of a node classifier does, step by step, in units whose rates can be measured.

n is the number of nodes, d the columns of the features, k the rank, C the number of classes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Protocol

from fastgrl.costs import ROUNDS, Factorisation
from fastgrl.link_times import dense_units, factorised
from fastgrl.rates import Work

# co-ridge: steps of a filter and of the one for projections, up to how many columns these are exact, rounds
# of the functional SVD beyond; restarts, rounds of self-training, and steps that smooth beliefs.
FILTER_STEPS, PROJECTION_STEPS, EXACT_COLUMNS, PROJECTION_ROUNDS = 25, 8, 600, 2
RESTARTS, SELF_TRAINING, BELIEF_STEPS = 2, 5, 6
# jkn: the rank of its walks, and dimensions that the PCA of features leaves.
WALK_RANK, DIMENSIONS, HOPS, MANY_LABELS = 32, 1064, 6, 1000

# Multiply-adds that cost as much as what is done to a number of a view, and to a belief, beside them.
_VIEW_COLUMNS, _BELIEF_COLUMNS, _SIMILAR_COLUMNS = 8, 60, 12
_WALK_WINDOW, _RIDGES, _WARM_ROUNDS, _LEFT_OUT = 5, 4, 4, 50
# jkn, by design: pairs of window and λ, their mean window, hops that are tried and the most of them.
_SWEEPS = {"jkn": (12, 3, 8, 16), "jkn-text": (6, 2, 4, 8), "jkn-as-released": (15, 3, 4, 16)}
_COMPRESSED, _RELEASED_COLUMNS, _RELEASED_ROUNDS, _JUDGED = 120, 62, 20, 500


class NodeCost(Protocol):
    """As much of a `NodeEstimate` as its time depends on."""

    @property
    def num_nodes(self) -> int: ...

    @property
    def num_stored(self) -> int: ...

    @property
    def design(self) -> str: ...

    @property
    def rank(self) -> int: ...

    @property
    def columns(self) -> int: ...

    @property
    def entries(self) -> int | None: ...

    @property
    def classes(self) -> int: ...

    @property
    def labelled(self) -> int: ...

    @property
    def select(self) -> bool: ...

    @property
    def validation(self) -> bool: ...

    @property
    def views(self) -> int: ...

    @property
    def width(self) -> int: ...

    @property
    def kept(self) -> int: ...

    @property
    def graph_entries(self) -> int: ...

    @property
    def blocks_made(self) -> int: ...

    @property
    def similar(self) -> bool: ...

    @property
    def sweeps(self) -> bool: ...

    @property
    def fits(self) -> int: ...


def node_work(cost: NodeCost) -> tuple[Work, ...]:
    """All that fitting the design does."""
    return tuple(_co_ridge(cost) if cost.design == "co-ridge" else _jkn(cost))


def walks_of(cost: NodeCost) -> Factorisation:
    """The factorisation of walks behind structural features."""
    rank = min(WALK_RANK, cost.num_nodes)
    block = min(cost.num_nodes, max(8, -(-rank // 2)))
    return Factorisation(cost.num_nodes, rank, "krylov", ROUNDS["krylov"], block, itemsize=4)


def cells_of(cost: NodeCost) -> float:
    """Numbers of the features that are stored, or of the walk vectors that take their place."""
    return float(cost.num_nodes * cost.width if cost.entries is None else cost.entries)


def round_units(cost: NodeCost, views: float) -> float:
    """Multiply-adds of a round of self-training: a ridge for each view, and beliefs that are smoothed."""
    n, k, C = cost.num_nodes, cost.kept, cost.classes
    smoothing = BELIEF_STEPS * C * float(cost.graph_entries + n)
    return n * (views * k * (k + 2 * C) + float(_BELIEF_COLUMNS) * C * views) + smoothing


def _co_ridge(cost: NodeCost) -> Iterator[Work]:
    n, k, blocks = cost.num_nodes, cost.kept, cost.blocks_made
    if not cost.columns:
        yield from factorised(walks_of(cost), cost.num_stored, steps=_WALK_WINDOW)
    yield Work("matrices", float(cost.graph_entries + n), 1)
    yield Work("view", (blocks + cost.views) * cells_of(cost) * (k + _VIEW_COLUMNS), blocks)
    yield Work("filter", float(cost.graph_entries + n) * FILTER_STEPS * blocks * k, FILTER_STEPS * blocks)
    if cost.similar:
        yield Work("similar", n * (cells_of(cost) + _SIMILAR_COLUMNS * n))
    if cost.width > cost.rank:
        yield from _projections(cost)
    if cost.sweeps:
        rounds, views = cost.fits * (SELF_TRAINING + 0.5), (cost.views + 1) / 2
    else:
        rounds, views = SELF_TRAINING + 1.0, float(cost.views)
        if cost.select:
            yield Work("round", _RIDGES * views * float(cost.labelled) * k * (k + 2 * cost.classes), _RIDGES)
    yield Work("round", rounds * round_units(cost, views), rounds)


def _projections(cost: NodeCost) -> Iterator[Work]:
    """Exact ones by a Gram matrix of all columns, others by a functional SVD of the smoothed features."""
    n, d, k = cost.num_nodes, cost.width, cost.kept
    count = max(1, cost.views - cost.similar)
    if d <= EXACT_COLUMNS:
        columns, calls = float(count * d), float(count)
        yield Work("dense", 2 * columns * n * d)
        yield Work("decomposition", columns * d**2, calls)
    else:
        b = max(8, -(-k // 2))
        svd = Factorisation(n, k, "krylov", PROJECTION_ROUNDS, min(b, n), itemsize=4)
        columns, calls = float(count * svd.columns), float(count * svd.products)
        yield Work("dense", count * (dense_units(svd) + dense_units(replace(svd, num_nodes=d))) / 2)
        yield Work("view", columns * cells_of(cost), calls)
    filtered = float(cost.graph_entries + n) * PROJECTION_STEPS
    yield Work("filter", filtered * columns, PROJECTION_STEPS * calls)


def _jkn(cost: NodeCost) -> Iterator[Work]:
    n, d = cost.num_nodes, cost.columns
    pairs, window, _, hops = _SWEEPS[cost.design] if cost.select else (0, 1, 1, HOPS)
    yield Work("matrices", float(cost.graph_entries + n), 1)
    walks = _released(cost) if cost.design == "jkn-as-released" else walks_of(cost)
    yield from factorised(walks, cost.num_stored, steps=window)
    if min(n, d + 2 * WALK_RANK) > DIMENSIONS - 2 * WALK_RANK and d:
        yield from _reduction(cost, pairs)
    if pairs:
        yield from _sweep(cost, walks)
    yield from _solution(cost, hops if not pairs else hops / 2)


def _released(cost: NodeCost) -> Factorisation:
    block = min(_RELEASED_COLUMNS, cost.num_nodes)
    return replace(walks_of(cost), method="subspace", n_iter=_RELEASED_ROUNDS, block_size=block)


def _reduction(cost: NodeCost, pairs: int) -> Iterator[Work]:
    """The PCA of features, and for each pair what L and R change of it."""
    n, d = cost.num_nodes, cost.columns
    q = float(min(DIMENSIONS, n, d))
    if d > DIMENSIONS:
        yield Work("decomposition", 0.5 * float(min(n, d, 4096)) ** 3)
    yield Work("dense", 2 * n * q**2 + 2 * cells_of(cost) * q)
    spare = 4 * WALK_RANK
    yield Work("decomposition", (pairs + 1) * 0.4 * (q + spare / 2) ** 3, pairs + 1)
    yield Work("dense", (pairs + 1) * 2 * cells_of(cost) * spare)


def _sweep(cost: NodeCost, walks: Factorisation) -> Iterator[Work]:
    """One pass over the hops for the features, one for each pair of window and λ, and small problems."""
    n, m = cost.num_nodes, cost.labelled
    pairs, window, tried, hops = _SWEEPS[cost.design]
    many = cost.design == "jkn-text" or m > MANY_LABELS
    lead = float(min(2 * _COMPRESSED if many else m, n))
    warm = replace(walks, n_iter=_WARM_ROUNDS, block_size=walks.rank, method="krylov")
    again = walks if cost.design == "jkn-as-released" else warm
    for _ in range(pairs):
        yield from factorised(again, cost.num_stored, steps=window)
    wide = cost.columns + 2 * WALK_RANK > DIMENSIONS
    columns = min(cost.columns, DIMENSIONS) + pairs * 2.0 * WALK_RANK * (3 if wide else 1)
    yield Work("hop", (cost.graph_entries + n) * columns * hops, hops * (pairs + 1))
    if many:
        yield from _compression(cost, hops)
    kept = n * lead if many else lead * (lead + min(n, _JUDGED))
    yield Work("dense", 2 * columns * hops * kept, 0)
    trials = 1 if cost.validation or many else 5
    yield Work("decomposition", pairs * tried * trials * lead**3, pairs * tried * trials)


def _compression(cost: NodeCost, hops: float) -> Iterator[Work]:
    """Functional SVDs of few hops and of many, of a block of float64 columns."""
    n = cost.num_nodes
    svd = Factorisation(n, min(_COMPRESSED, n), "krylov", 4, min(_COMPRESSED // 2, n), itemsize=8)
    yield Work("hop", (cost.graph_entries + n) * svd.columns * (hops + 1.0), svd.products * (hops + 1.0))
    cells = cells_of(cost) + 2.0 * n * WALK_RANK
    yield Work("dense", 2 * dense_units(svd) + 2 * cells * svd.columns * (hops + 3.0), 2)


def _solution(cost: NodeCost, hops: float) -> Iterator[Work]:
    """The labelled rows by columns if they are few, else a functional SVD; and what each scores left out."""
    n, m = cost.num_nodes, float(cost.labelled)
    cells = cells_of(cost) + 2.0 * n * WALK_RANK
    if m <= MANY_LABELS and cost.design != "jkn-text":
        columns = m + cost.classes
        yield Work("dense", 6 * m**2 * (hops + 1) * min(cost.columns + 2 * WALK_RANK, DIMENSIONS))
        yield Work("decomposition", _LEFT_OUT * m**3, _LEFT_OUT)
    else:
        block = max(8, -(-cost.rank // 2))
        svd = Factorisation(n, min(cost.rank, n), "krylov", ROUNDS["krylov"], min(block, n), itemsize=8)
        columns = svd.columns + 2.0 * cost.rank + cost.classes
        yield Work("dense", 2 * dense_units(svd))
    yield Work("hop", (cost.graph_entries + n) * columns * hops, 3 * hops)
    yield Work("dense", 2 * columns * (hops + 1) * cells)
