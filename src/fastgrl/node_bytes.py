"""What fitting a node classifier holds in memory at its peak.

n is the number of nodes, d the columns of the features, k the rank, C the number of classes. A *block* is
n×k: co-ridge holds one for each view and restart it tries, and makes it in place with three *panels* of a few
columns beside it. On a small graph every thread makes blocks, and later runs settings, of its own: memory
grows with threads there.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from fastgrl.costs import ORTHONORMAL_BLOCKS, ROUNDS, SINGLE_COLUMNS, Factorisation
from fastgrl.node_times import (
    DIMENSIONS,
    EXACT_COLUMNS,
    MANY_LABELS,
    PROJECTION_ROUNDS,
    RESTARTS,
    WALK_RANK,
    walks_of,
)

if TYPE_CHECKING:
    from fastgrl.node_costs import NodeEstimate

# co-ridge: how many bytes of coordinates stay, and settings that are averaged.
KEPT_BYTES, AVERAGED = 1 << 29, 5
# Up to how many numbers in a block threads have views and settings of their own, and do not share rows.
SMALL_VIEW = 1 << 23
# Similar nodes: rows compared at once, and edges of each in both directions.
SIMILAR_ROWS, SIMILAR_EDGES = 512, 10
# jkn: the bytes of a panel, and columns of a sweep.
PANEL_BYTES, SWEEP_COLUMNS = 32 << 20, 1500

# Bytes per stored entry of an adjacency matrix in float64, and while two of them are added; an undirected
# graph without weights needs no matrix but its own. Bytes per node of the scales beside it.
ADJACENCY_ENTRY, ADDING_ENTRY, SCALES = 16, 42, 40
# Panels that a filter holds, the bytes of a row of each on small and on large graphs, and where these begin.
PANELS, NARROW, WIDE, MOST_WIDE = 3, 64, 256, 1 << 16
# Rows of which a Gram matrix takes two copies in float64, on each thread.
CHUNK_ROWS = 4096
# Columns of beliefs that are smoothed together, unless a model has more.
TOGETHER = 48
# Bytes per stored entry of sparse features: one view, its transpose beside it.
VIEW_ENTRY, TRANSPOSED_ENTRY = 6, 13

_F32, _F64 = 4, 8


def co_ridge_bytes(cost: NodeEstimate) -> float:
    """The largest of its phases: walk vectors, matrices, views, and training."""
    n, block = cost.num_nodes, _F32 * cost.num_nodes * cost.kept
    walks = 0.0 if cost.columns else 2.0 * _F32 * n * cost.width
    making, operators = _operator_bytes(cost)
    _, most = _coordinates_held(cost, block)
    phases = [
        0.0 if cost.columns else walks_of(cost).work_bytes - walks,
        making,
        operators + _views_bytes(cost, block),
        operators + most * block + _training_bytes(cost),
    ]
    return walks + max(phases)


def _operator_bytes(cost: NodeEstimate) -> tuple[float, float]:
    """Matrices that filters go along: while they are made, and for the rest of the fit."""
    n, entries = cost.num_nodes, cost.graph_entries
    own = (2 * _F32 * cost.directed + _F32 * (cost.weighted and not cost.directed)) * entries
    added = entries + SIMILAR_EDGES * n
    making = (ADDING_ENTRY * cost.directed + (_F64 + _F32) * cost.weighted) * entries
    making = max(making, (ADJACENCY_ENTRY + ADDING_ENTRY) * added * cost.similar)
    return SCALES * n + making, SCALES * n + own + 2 * _F32 * added * cost.similar


def _panels_bytes(cost: NodeEstimate, columns: int) -> float:
    row = WIDE if cost.num_nodes <= MOST_WIDE else NARROW
    return PANELS * cost.num_nodes * min(row, NARROW // 2 * math.ceil(columns * _F32 / (NARROW // 2)))


def _views_bytes(cost: NodeEstimate, block: int) -> float:
    """Making projections and coordinates: first of all on a small graph, else when a setting needs them."""
    F, V, T = _view_bytes(cost), cost.views, cost.at_once
    held, _ = _coordinates_held(cost, block)
    projection = _projection_bytes(cost, F)
    # Features that are kept as they are become the block.
    beside = F * (cost.entries is not None or cost.width > cost.rank)
    coordinates = block + max(beside, _panels_bytes(cost, cost.kept))
    if cost.small:
        found = (V - cost.similar) * (cost.width > cost.rank)  # else features are their own projection
        together = sum(sorted([projection] * found + [_similar_bytes(cost, F)])[-T:])
        return max(together, held * block + min(T, cost.blocks_made) * coordinates)
    # A sweep makes coordinates when beliefs have been kept; leave-one-out keeps the features of each view.
    kept = _rounds_bytes(cost) if cost.sweeps else (V - 1) * F * cost.select
    return kept + max((V - 1) * block + max(projection, _similar_bytes(cost, F)), held * block + coordinates)


def _rounds_bytes(cost: NodeEstimate) -> float:
    """Rounds that are kept: weights, targets and beliefs of each."""
    return (AVERAGED if cost.sweeps else 1) * _round_bytes(cost)


def _round_bytes(cost: NodeEstimate) -> float:
    return float(cost.num_nodes * (_F64 + 2 * _F32 * cost.classes))


def _training_bytes(cost: NodeEstimate) -> float:
    """Rounds that are kept and those under way, several of them going along in a sweep.

    Of each that is under way there are the latest round, its beliefs beside those of the others while they
    are smoothed, new targets, and then the next round; the solve takes a few numbers for each node.
    """
    n, C = cost.num_nodes, cost.classes
    runs = cost.runs_together
    beliefs = _F32 * n * C * runs
    smoothing = 2 * beliefs + _panels_bytes(cost, C * runs)
    solving = beliefs + (_F64 + _F32 * C) * n * runs + (2 * _F64 + _F32 + _F32 * C) * n
    under_way = runs * _round_bytes(cost) + max(smoothing, solving)
    if cost.sweeps:
        under_way *= min(cost.at_once, cost.fits)
    averaging = 3 * _F64 * n * C
    return _rounds_bytes(cost) * (cost.sweeps or 0) + max(under_way, averaging)


def _coordinates_held(cost: NodeEstimate, block: int) -> tuple[int, int]:
    """The most blocks there are while another is made, and the most there are at all."""
    if cost.small:
        return max(0, cost.blocks_made - cost.at_once), cost.blocks_made
    held, most, before = 0, 0, 0
    for _ in range(RESTARTS if cost.sweeps else 1):
        for made in range(cost.views):
            held = made if held * block > KEPT_BYTES else held
            before, held = max(before, held), held + 1
            most = max(most, held)
    return before, most


def _view_bytes(cost: NodeEstimate) -> float:
    if cost.entries is None:
        return _F32 * cost.num_nodes * cost.width
    return VIEW_ENTRY * cost.entries


def _projection_bytes(cost: NodeEstimate, F: float) -> float:
    """An exact projection filters all columns of F in place; others take the bases of the functional SVD."""
    n, d, k = cost.num_nodes, cost.width, cost.kept
    if d <= cost.rank:
        return 0.0
    if d <= EXACT_COLUMNS:
        gram = 2 * _F64 * min(n, CHUNK_ROWS) * d * (1 if cost.small else cost.workers)
        return _F32 * n * d + max(gram, _panels_bytes(cost, d), 0 if cost.entries is None else F)
    b = max(8, -(-k // 2))
    left = (PROJECTION_ROUNDS + 1) * b + SINGLE_COLUMNS + max(ORTHONORMAL_BLOCKS * b, 2 * k)
    right = (PROJECTION_ROUNDS + 2) * b
    transposed = TRANSPOSED_ENTRY * (cost.entries or 0)
    return F + transposed + _F32 * (n * left + d * right)


def _similar_bytes(cost: NodeEstimate, F: float) -> float:
    """Features, two tables of some nodes with all others and one of their features, and the edges found."""
    if not cost.similar:
        return 0.0
    tables = SIMILAR_ROWS * (2 * cost.num_nodes + cost.width)
    return F + _F32 * max(tables, 10 * SIMILAR_EDGES * cost.num_nodes)


def jkn_bytes(cost: NodeEstimate) -> float:
    """The same of the paper's designs."""
    n, r = cost.num_nodes, 2 * min(WALK_RANK, cost.num_nodes)
    wide = _F64 * n * cost.columns if cost.entries is None else 2 * _F64 * cost.entries
    operator = ADJACENCY_ENTRY * cost.graph_entries
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
