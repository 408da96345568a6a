"""What fitting a node classifier costs, by formula; the constants are those of the fits, and a test says so.

The bytes are reckoned in `node_bytes`, the work in `node_times`.
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from typing import Any

from fastgrl.checks import integer, shown
from fastgrl.costs import ROUNDS
from fastgrl.errors import ArgumentError
from fastgrl.node_bytes import SMALL_VIEW, TOGETHER, co_ridge_bytes, jkn_bytes
from fastgrl.node_times import (
    BELIEF_STEPS,
    EXACT_COLUMNS,
    FILTER_STEPS,
    HOPS,
    PROJECTION_ROUNDS,
    PROJECTION_STEPS,
    RESTARTS,
    SELF_TRAINING,
    WALK_RANK,
    node_work,
    walks_of,
)
from fastgrl.rates import Rates, Work


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

# What the allocator and the libraries hold beyond the arrays.
SLACK, SCRATCH_BYTES = 1.1, 8 << 20

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
        return int(SLACK * (co_ridge_bytes(self) if self.design == "co-ridge" else jkn_bytes(self)))

    @property
    def peak_bytes(self) -> int:
        """The graph, the features and the work, and what linear algebra libraries take for theirs."""
        scratch = min(SCRATCH_BYTES, self.work_bytes)
        return self.graph_bytes + self.features_bytes + self.work_bytes + scratch

    @property
    def fits(self) -> int:
        """Settings that are fitted: more than one if they are chosen on validation nodes."""
        if self.design != "co-ridge" or not self.sweeps:
            return 1
        return recipe_for(self.num_nodes).fits if self.columns else RESTARTS * 4

    @property
    def passes(self) -> int:
        """Times that the graph is read from end to end."""
        if self.design != "co-ridge":
            return 2 * HOPS * (ROUNDS["krylov"] + 1) + walks_of(self).passes
        beliefs = BELIEF_STEPS * SELF_TRAINING * self.fits
        projecting = PROJECTION_STEPS * self._projection_products
        return FILTER_STEPS * self.blocks_made + projecting + beliefs

    def work(self, rates: Rates | None = None) -> tuple[Work, ...]:
        """What the fit does, step by step, whatever the rates are."""
        del rates
        return node_work(self)

    def seconds(self, threads: int, rates: Rates | None = None) -> float:
        """Time on so many threads, without reading the files.

        With the rates of `calibrate` expect it to be right within a factor of two, else within about three.
        """
        return (rates or Rates()).seconds(self.work(), threads=threads)

    def as_dict(self, *, threads: int, rates: Rates | None = None) -> dict[str, Any]:
        """The fields and the figures, for programs."""
        figures = ("graph_bytes", "features_bytes", "work_bytes", "peak_bytes", "fits", "passes")
        computed = {name: getattr(self, name) for name in figures}
        return dataclasses.asdict(self) | computed | {"seconds": round(self.seconds(threads, rates), 3)}

    def replaced(self, *, rank: int) -> NodeEstimate:
        """The same fit with another rank."""
        return dataclasses.replace(self, rank=rank)

    @property
    def graph_entries(self) -> int:
        """Of the graph in both directions, with self loops."""
        return self.num_stored * (1 + self.directed) + self.num_nodes

    @property
    def width(self) -> int:
        """Columns of what is projected: features, or both halves of the walk vectors."""
        return self.columns or 2 * min(WALK_RANK, self.num_nodes)

    @property
    def kept(self) -> int:
        """Columns of a block: no more than there are."""
        return min(self.rank, self.width)

    @property
    def sweeps(self) -> bool:
        """Whether settings are tried on validation nodes."""
        return self.select and self.validation

    @property
    def at_once(self) -> int:
        """Threads that make blocks, or run settings, of their own."""
        return self.workers if self.small else 1

    @property
    def runs_together(self) -> int:
        """Settings of the same views whose beliefs are smoothed at once."""
        recipe = recipe_for(self.num_nodes)
        runs = max(1, recipe.fits // (RESTARTS * recipe.views)) if self.sweeps else 1
        groups = math.ceil(runs / max(1, TOGETHER // self.classes))
        return math.ceil(runs / groups)

    @property
    def small(self) -> bool:
        """Whether threads have views and settings of their own."""
        return self.num_nodes * self.rank <= SMALL_VIEW

    @property
    def similar(self) -> bool:
        """Whether a view has the edges of similar nodes besides."""
        recipe = recipe_for(self.num_nodes)
        return self.columns > 0 and recipe.similar and self.views > (recipe.usual_views == 1)

    @property
    def blocks_made(self) -> int:
        """Coordinates of a view that are made."""
        return self.views * (RESTARTS if self.sweeps else 1)

    @property
    def _projection_products(self) -> int:
        """Filters of a whole block of columns to find the projections."""
        if self.width <= self.rank:
            return 0
        exact = self.width <= EXACT_COLUMNS
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
