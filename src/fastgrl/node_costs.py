"""What fitting a node classifier costs, by formula; the constants are those of the fits, and a test says so.

n is the number of nodes, d the columns of the features, k the rank, C the number of classes. A *block* is
n×k: co-ridge holds one for each view and restart it tries, and four (B, aB, H and ÂH) while one is made. On a
small graph every thread makes blocks, and later runs settings, of its own: memory grows with threads there.
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from typing import Any

from fastgrl.checks import integer, shown
from fastgrl.costs import (
    DENSE_RATE,
    ORTHONORMAL_BLOCKS,
    ROUNDS,
    SINGLE_COLUMNS,
    SPARSE_RATE,
    Factorisation,
)
from fastgrl.errors import ArgumentError


@dataclass(frozen=True)
class Recipe:
    """What co-ridge does for graphs of up to `most_nodes`, as far as it costs something."""

    most_nodes: float
    rank: int
    views: int
    usual_views: int
    fits: int
    similar: bool


RECIPES = (
    Recipe(10_000, 128, 3, 3, 48, similar=True),
    Recipe(100_000, 128, 2, 1, 32, similar=False),
    Recipe(math.inf, 100, 2, 1, 12, similar=False),
)
JKN_RANKS = {"jkn": 30, "jkn-text": 30, "jkn-as-released": 30}

# co-ridge: steps of a filter and of the one for projections, up to how many columns these are exact, rounds
# of the functional SVD beyond, how many bytes of coordinates stay; restarts, rounds of self-training, steps
# that smooth beliefs, and settings that are averaged.
FILTER_STEPS, PROJECTION_STEPS, EXACT_COLUMNS, PROJECTION_ROUNDS, KEPT_BYTES = 25, 8, 600, 2, 1 << 29
RESTARTS, SELF_TRAINING, BELIEF_STEPS, AVERAGED = 2, 5, 6, 5
# Up to how many numbers in a block threads have views and settings of their own, and do not share rows.
SMALL_VIEW = 1 << 23
# Similar nodes: rows compared at once, and edges of each in both directions.
SIMILAR_ROWS, SIMILAR_EDGES = 512, 10
# jkn: the rank of its walks, dimensions that the PCA of features leaves, and the bytes of a panel.
WALK_RANK, DIMENSIONS, PANEL_BYTES, HOPS = 32, 1064, 32 << 20, 6
MANY_LABELS, SWEEP_COLUMNS = 1000, 1500

# Bytes per stored entry of the adjacency matrix in float64 and of a normalised one, and while that is made.
ADJACENCY_ENTRY, OPERATOR_ENTRY, MAKING_ENTRY = 16, 12, 42
# Bytes per stored entry of sparse features: one view, while it is made, its transpose beside it.
VIEW_ENTRY, MAKING_VIEW_ENTRY, TRANSPOSED_ENTRY = 5, 24, 13
# What the allocator and the libraries hold beyond the arrays; numbers changed in place per second.
SLACK, SCRATCH_BYTES, CHANGE_RATE = 1.1, 8 << 20, 1e9

_F32, _F64 = 4, 8


@dataclass(frozen=True)
class NodeEstimate:
    """What fitting a node classifier costs; every figure follows from the fields.

    `columns` is 0 without features, and `entries` None where they are dense. `views` are those of co-ridge,
    and `workers` the threads that each try settings of their own on a small graph.
    """

    num_nodes: int
    num_stored: int
    rank: int
    columns: int
    entries: int | None
    classes: int
    labelled: int
    design: str = "co-ridge"
    select: bool = True
    validation: bool = True
    views: int = 2
    weighted: bool = False
    directed: bool = False
    workers: int = 2

    @property
    def graph_bytes(self) -> int:
        """Row pointers, columns and weights, ids and degrees."""
        stored = self.num_stored * (4 + _F64 * self.weighted)
        return 3 * _F64 * self.num_nodes + _F64 + stored

    @property
    def features_bytes(self) -> int:
        """Features in float32, and 0/1 labels."""
        n = self.num_nodes
        cells = _F32 * n * self.columns if self.entries is None else 2 * _F32 * self.entries + _F32 * n
        return cells + _F64 * n * self.classes

    @property
    def work_bytes(self) -> int:
        """What a fit holds at its peak beside the graph and the features, the answer included."""
        return int(SLACK * (_co_ridge_bytes(self) if self.design == "co-ridge" else _jkn_bytes(self)))

    @property
    def peak_bytes(self) -> int:
        """The graph, the features and the work, and what linear algebra libraries take for theirs."""
        scratch = min(SCRATCH_BYTES, self.work_bytes)
        return self.graph_bytes + self.features_bytes + self.work_bytes + scratch

    @property
    def fits(self) -> int:
        """Settings that are fitted: more than one if they are chosen on validation nodes."""
        if self.design != "co-ridge" or not self._sweeps:
            return 1
        return recipe_for(self.num_nodes).fits if self.columns else RESTARTS * 4

    @property
    def passes(self) -> int:
        """Times that the graph is read from end to end."""
        if self.design != "co-ridge":
            return 2 * HOPS * (ROUNDS["krylov"] + 1) + walks_of(self).passes
        beliefs = BELIEF_STEPS * SELF_TRAINING * self.fits
        projecting = PROJECTION_STEPS * self._projection_products
        return FILTER_STEPS * self._blocks_made + projecting + beliefs

    def seconds(self, threads: int) -> float:
        """Rough time on so many threads; expect it to be off by a factor of two or three."""
        return (_co_ridge_seconds(self) if self.design == "co-ridge" else _jkn_seconds(self)) / threads

    def as_dict(self, *, threads: int) -> dict[str, Any]:
        """The fields and the figures, for programs."""
        figures = ("graph_bytes", "features_bytes", "work_bytes", "peak_bytes", "fits", "passes")
        computed = {name: getattr(self, name) for name in figures}
        return dataclasses.asdict(self) | computed | {"seconds": round(self.seconds(threads), 3)}

    def replaced(self, *, rank: int) -> NodeEstimate:
        """The same fit with another rank."""
        return dataclasses.replace(self, rank=rank)

    @property
    def _entries(self) -> int:
        """Of the graph in both directions, with self loops."""
        return self.num_stored * (1 + self.directed) + self.num_nodes

    @property
    def _width(self) -> int:
        """Columns of what is projected: features, or both halves of the walk vectors."""
        return self.columns or 2 * min(WALK_RANK, self.num_nodes)

    @property
    def _kept(self) -> int:
        """Columns of a block: no more than there are."""
        return min(self.rank, self._width)

    @property
    def _sweeps(self) -> bool:
        return self.select and self.validation

    @property
    def _at_once(self) -> int:
        """Threads that make blocks, or run settings, of their own."""
        return self.workers if self._small else 1

    @property
    def _small(self) -> bool:
        return self.num_nodes * self.rank <= SMALL_VIEW

    @property
    def _similar(self) -> bool:
        """Whether a view has the edges of similar nodes besides."""
        recipe = recipe_for(self.num_nodes)
        return self.columns > 0 and recipe.similar and self.views > (recipe.usual_views == 1)

    @property
    def _blocks_made(self) -> int:
        return self.views * (RESTARTS if self._sweeps else 1)

    @property
    def _projection_products(self) -> int:
        """Filters of a whole block of columns to find the projections."""
        if self._width <= self.rank:
            return 0
        exact = self._width <= EXACT_COLUMNS
        return self.views * (1 if exact else 2 * (PROJECTION_ROUNDS + 1))


def estimate_nodes(
    graph: Any,
    *,
    features: tuple[int, int | None] | None = None,
    classes: int = 2,
    labelled: int | None = None,
    design: str = "co-ridge",
    rank: int | None = None,
    select: bool = True,
    validation: bool = True,
    views: int | None = None,
    workers: int = 2,
) -> NodeEstimate:
    """Cost of `NodeClassifier(design=…).fit(graph, …)`; of `graph` only the counts are looked at.

    `features` has the number of columns, and of stored entries or None for dense ones, in float32. With
    `validation` nodes a selection tries all settings; `views` is how many co-ridge has, if not all. On a
    small graph each of `workers` threads tries settings of its own.

    >>> from fastgrl.estimate import estimate_nodes
    >>> estimate_nodes(fg.Graph.from_edges([(0, 1), (1, 2)]), features=(128, None), classes=3).fits
    48
    """
    n, d, entries = graph.num_nodes, *(features or (0, None))
    recipe = recipe_for(n)
    usual = recipe.views if select and validation else recipe.usual_views
    ranks = {"co-ridge": recipe.rank} | JKN_RANKS
    return NodeEstimate(
        num_nodes=n,
        num_stored=len(graph.indices),
        rank=usual_rank(design, rank, ranks),
        columns=integer("features", d, least=0),
        entries=None if entries is None else integer("features", entries, least=0),
        classes=integer("classes", classes, least=1),
        labelled=n if labelled is None else integer("labelled", labelled, least=0),
        design=design,
        select=select,
        validation=validation,
        views=(usual if d else 1) if views is None else integer("views", views, least=1),
        weighted=graph.weights is not None,
        directed=graph.directed,
        workers=integer("workers", workers, least=1),
    )


def recipe_for(num_nodes: int) -> Recipe:
    """What co-ridge does for a graph of that size."""
    return next(recipe for recipe in RECIPES if num_nodes < recipe.most_nodes)


def usual_rank(design: str, rank: int | None, known: dict[str, int]) -> int:
    """`rank`, or where it is None what `known` has for the design."""
    if design not in known:
        names = ", ".join(f'"{name}"' for name in known)
        raise ArgumentError(f"design must be one of {names}, got {shown(design)}")
    return known[design] if rank is None else integer("rank", rank, least=1)


def walks_of(cost: NodeEstimate) -> Factorisation:
    """The factorisation of walks behind structural features."""
    rank = min(WALK_RANK, cost.num_nodes)
    block = max(8, -(-rank // 2))
    return Factorisation(cost.num_nodes, rank, "krylov", ROUNDS["krylov"], block, _F32)


def _co_ridge_bytes(cost: NodeEstimate) -> float:
    block, entries = _F32 * cost.num_nodes * cost._kept, cost._entries
    A, operator = ADJACENCY_ENTRY * entries, OPERATOR_ENTRY * entries
    again = OPERATOR_ENTRY * (entries + SIMILAR_EDGES * cost.num_nodes) * cost._similar
    walks = 0.0 if cost.columns else cost.num_nodes * cost._width * (_F32 + _F64)
    _, most = _coordinates_held(cost, block)
    phases = [
        0.0 if cost.columns else walks_of(cost).work_bytes - walks,
        A + operator + again + _views_bytes(cost, block, operator),
        block + A + MAKING_ENTRY * entries,
        A + 2 * operator + again + most * block + _training_bytes(cost),
    ]
    return walks + max(phases)


def _views_bytes(cost: NodeEstimate, block: int, operator: int) -> float:
    """Making projections and coordinates: first of all on a small graph, else when a setting needs them."""
    F, V, T = _view_bytes(cost), cost.views, cost._at_once
    held, _ = _coordinates_held(cost, block)
    projection = _projection_bytes(cost, F)
    coordinates = max(4 * block, 2 * F + _making_bytes(cost))
    if cost._small:
        found = (V - cost._similar) * (cost._width > cost.rank)  # else features are their own projection
        together = sum(sorted([projection] * found + [_similar_bytes(cost, F)])[-T:])
        return operator + max(together, held * block + min(T, cost._blocks_made) * coordinates)
    # A sweep makes coordinates when beliefs have been kept; leave-one-out keeps the features of each view.
    beside = operator + _rounds_bytes(cost) if cost._sweeps else (V - 1) * F * cost.select
    similar = _similar_bytes(cost, F)
    return beside + max((V - 1) * block + max(projection, similar), held * block + coordinates)


def _rounds_bytes(cost: NodeEstimate) -> float:
    """Rounds that are kept: weights, targets and beliefs of each."""
    return (AVERAGED if cost._sweeps else 1) * _F32 * cost.num_nodes * (2 * cost.classes + 2)


def _training_bytes(cost: NodeEstimate) -> float:
    """Rounds, those under way among them, and the mean of the beliefs that are kept.

    A round under way takes the four blocks of a filter, n×C each, or new targets, the beliefs of all views,
    and scores. In a sweep the first round and the latest of every thread are there besides.
    """
    beliefs = _F32 * cost.num_nodes * cost.classes
    under_way: float = max(4, cost.views + 2) * beliefs
    if cost._sweeps:
        under_way += 2 * _rounds_bytes(cost) / AVERAGED
        under_way *= min(cost._at_once, cost.fits)
    return _rounds_bytes(cost) + max(under_way, 6 * beliefs)


def _coordinates_held(cost: NodeEstimate, block: int) -> tuple[int, int]:
    """The most blocks there are while another is made, and the most there are at all."""
    if cost._small:
        return max(0, cost._blocks_made - cost._at_once), cost._blocks_made
    held, most, before = 0, 0, 0
    for _ in range(RESTARTS if cost._sweeps else 1):
        for made in range(cost.views):
            held = made if held * block > KEPT_BYTES else held
            before, held = max(before, held), held + 1
            most = max(most, held)
    return before, most


def _view_bytes(cost: NodeEstimate) -> float:
    if cost.entries is None:
        return _F32 * cost.num_nodes * cost._width
    return VIEW_ENTRY * cost.entries


def _making_bytes(cost: NodeEstimate) -> float:
    return 0.0 if cost.entries is None else MAKING_VIEW_ENTRY * cost.entries


def _projection_bytes(cost: NodeEstimate, F: float) -> float:
    """F, and for an exact projection aF, H and ÂH of all columns; beyond, the bases of the functional SVD."""
    n, d, k = cost.num_nodes, cost._width, cost._kept
    if d <= cost.rank:
        return 2 * F + _making_bytes(cost)
    if d <= EXACT_COLUMNS:
        return F + 4 * _F32 * n * d - (F if cost.entries is None else 0)
    b = max(8, -(-k // 2))
    left = (PROJECTION_ROUNDS + 1) * b + SINGLE_COLUMNS + max(ORTHONORMAL_BLOCKS * b, 2 * k)
    right = (PROJECTION_ROUNDS + 2) * b
    transposed = TRANSPOSED_ENTRY * (cost.entries or 0)
    return F + max(_making_bytes(cost), transposed + _F32 * (n * left + d * right))


def _similar_bytes(cost: NodeEstimate, F: float) -> float:
    """Features, two tables of some nodes with all others and one of their features, and the edges found."""
    if not cost._similar:
        return 0.0
    tables = SIMILAR_ROWS * (2 * cost.num_nodes + cost._width)
    return F + _F32 * max(tables, 10 * SIMILAR_EDGES * cost.num_nodes)


def _jkn_bytes(cost: NodeEstimate) -> float:
    n, r = cost.num_nodes, 2 * min(WALK_RANK, cost.num_nodes)
    wide = _F64 * n * cost.columns if cost.entries is None else 2 * _F64 * cost.entries
    operator = ADJACENCY_ENTRY * cost._entries
    walk, structure = 2 * _F32 * n * r, _F64 * n * r
    panels = 5 * max(PANEL_BYTES, 16 * _F64 * n)
    # [X, L, R, 1] in one piece is made at the end, of pieces that are there as well.
    cells = _F64 * n * (cost.columns + r) if cost.entries is None else 2 * _F64 * (cost.entries + n * r)
    many = cost.select and (cost.design == "jkn-text" or cost.labelled > MANY_LABELS)
    text = Factorisation(n, cost.rank, "krylov", ROUNDS["krylov"], max(8, -(-cost.rank // 2)), _F64)
    phases = [
        walks_of(cost).work_bytes,
        walk + structure + max(panels, text.work_bytes if cost.design == "jkn-text" else 0),
        walk + structure + _F64 * SWEEP_COLUMNS * n * many,
        walk + 2 * structure + operator + 2 * cells,
        _reduction_bytes(cost),
    ]
    return wide + operator + max(phases)


def _reduction_bytes(cost: NodeEstimate) -> float:
    """The PCA of wide features: their Gram matrix, and all rows in the directions that are kept."""
    d, n = cost.columns, cost.num_nodes
    if min(n, d + 2 * WALK_RANK) <= DIMENSIONS:
        return 0.0
    return _F64 * (2 * min(n, d, 4096) ** 2 + min(DIMENSIONS, d) * (n + 2 * d))


def _co_ridge_seconds(cost: NodeEstimate) -> float:
    n, k, C = cost.num_nodes, cost._kept, cost.classes
    projected = cost._width if cost._width <= EXACT_COLUMNS else k / 2
    columns: float = FILTER_STEPS * cost._blocks_made * k
    columns += PROJECTION_STEPS * cost._projection_products * projected
    smoothing = columns * (cost._entries / SPARSE_RATE + 2 * n / CHANGE_RATE)
    solves = cost.fits * SELF_TRAINING * cost.views
    ridges = n * (k * (k + C) / DENSE_RATE + 8 * C / CHANGE_RATE)
    beliefs = BELIEF_STEPS * C * cost._entries / SPARSE_RATE
    return smoothing + solves * (ridges + beliefs)


def _jkn_seconds(cost: NodeEstimate) -> float:
    columns = 2 * (ROUNDS["krylov"] + 1) * cost.rank / 2 + cost.columns * cost.select
    hops = HOPS * columns * (cost._entries + cost.num_nodes * cost._width) / SPARSE_RATE
    pairs = 12 if cost.select else 1
    return hops * (2 if cost.select else 1) + pairs * walks_of(cost).seconds(cost.num_stored)
