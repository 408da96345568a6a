"""Bytes and passes of a run before it runs, by formula; `costs` holds the formulas and their constants."""

from __future__ import annotations

import dataclasses
import functools
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from fastgrl.checks import checked_dtype, integer, shown
from fastgrl.costs import (
    DEGREE_COLUMNS,
    DIFFUSION_ROUNDS,
    ENTRY_BYTES,
    LONGEST_ROW,
    PRODUCT_PANELS,
    ROUNDS,
    SUM_PANELS,
    DiffusionCost,
    Factorisation,
    diffusion_block,
)
from fastgrl.errors import ArgumentError, UnavailableError
from fastgrl.link_times import link_work
from fastgrl.node_costs import NodeEstimate, usual_rank
from fastgrl.node_costs import estimate_nodes as estimate_nodes
from fastgrl.rates import Rates, Work
from fastgrl.spilling import RANGE_BYTES, is_mapped

METHODS = ("krylov", "subspace")
DEFAULT_RANK, DEFAULT_WINDOW = 64, 5

# Columns that a design has unless told, and what it factorises.
DEFAULT_RANKS = {"log-diffusion": 64, "walk": 32, "degree-walk": 32, "as-released": 32, "shrunken": 512}
_MATRICES = {"log-diffusion": "the logarithm of a diffusion", "shrunken": "the adjacency matrix"}
_RELEASED_ROUNDS, _SHRUNKEN_ROUNDS = 20, 12
# Windows that the selection of a walk tries.
WINDOWS = (1, 2, 3, 5, 10, 20)
_FLOAT64 = 8

_UNITS = {"": 1, "B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}
_UNITS |= {"K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12}
_UNITS |= {"KIB": 2**10, "MIB": 2**20, "GIB": 2**30, "TIB": 2**40}


@dataclass(frozen=True)
class Estimate:
    """What fitting a design to a graph costs; every figure follows from the fields.

    `row_length` and `select` matter to log-diffusion only, `window` to walks. Equal singular values can add
    rounds, and with them time and memory, beyond what is said here.
    """

    num_nodes: int
    num_stored: int
    rank: int
    window: int
    method: str
    n_iter: int
    block_size: int
    itemsize: int
    weighted: bool
    directed: bool
    design: str = "walk"
    row_length: float = 0.0
    select: bool = False
    mapped: bool = False
    panel_columns: int | None = None
    spilled: bool = False
    keep: int = LONGEST_ROW
    windows: tuple[int, ...] = ()

    @property
    def graph_bytes(self) -> int:
        """Row pointers, columns and weights (twice for a directed graph: its transpose), ids and degrees.

        A walk over weights has them once more, divided by degrees. Of a graph on disk a range of rows at a
        time is in memory.
        """
        scaled = self.num_stored * self.itemsize * self._weighted_walk
        if self.mapped:
            stored = min(4 * self.num_stored + scaled, RANGE_BYTES)
        else:
            stored = self.num_stored * (4 + _FLOAT64 * self.weighted) * (1 + self.directed)
            stored += min(scaled, RANGE_BYTES) if self.spilled else scaled
        pointers = _FLOAT64 * (self.num_nodes + 1) * (1 + self.directed)
        return pointers + stored + 2 * _FLOAT64 * self.num_nodes

    @property
    def _weighted_walk(self) -> bool:
        return self.weighted and self.design not in _MATRICES

    @property
    def work_bytes(self) -> int:
        """What a fit holds at its peak, the answer included."""
        return self._svd.work_bytes if self._diffusion is None else self._diffusion.work_bytes

    @property
    def peak_bytes(self) -> int:
        """The graph and the work together."""
        return self.graph_bytes + self.work_bytes

    @property
    def scratch_bytes(self) -> int:
        """What is held on disk meanwhile."""
        return self._svd.scratch_bytes

    @property
    def fits(self) -> int:
        """Factorisations in all: more than one if settings are selected."""
        return 1 if self._diffusion is None else self._diffusion.fits

    @property
    def products(self) -> int:
        """Products of one factorisation with the matrix and its transpose, a block at a time."""
        return self._svd.products

    @property
    def product_columns(self) -> int:
        """Columns multiplied by the matrix or its transpose, over the whole run."""
        return self.fits * self._svd.columns

    @property
    def passes(self) -> int:
        """Times that the graph (log-diffusion: its logarithm) is read from end to end, panel by panel."""
        return round(self.fits * self._svd.passes * self._steps)

    @property
    def panel(self) -> int:
        """Columns that go through one product together."""
        return self._svd.panel

    @property
    def matrix(self) -> str:
        """What is factorised, in words."""
        return _MATRICES.get(self.design, f"the walk matrix, window {self.window}")

    @property
    def _steps(self) -> float:
        """Sparse products in one product: one for each step of a walk, and as released λA now and then."""
        if self.design in _MATRICES:
            return 1
        return self.window + (0.5 if self.design == "as-released" else 0)

    @functools.cached_property
    def _svd(self) -> Factorisation:
        k = _factorised(self.rank, self.design)
        return Factorisation(
            num_nodes=self.num_nodes,
            rank=k,
            method=self.method,
            n_iter=self.n_iter,
            block_size=self.block_size,
            itemsize=self.itemsize,
            panel_columns=self.panel_columns,
            spilled=self.spilled,
            product_panels=SUM_PANELS if self.design == "as-released" else PRODUCT_PANELS,
        )

    @functools.cached_property
    def _diffusion(self) -> DiffusionCost | None:
        if self.design != "log-diffusion":
            return None
        return DiffusionCost(self.row_length, self.directed, self.select, self._svd)

    @property
    def factorisation(self) -> Factorisation:
        """The functional SVD that the fit ends with."""
        return self._svd

    def work(self, rates: Rates | None = None) -> tuple[Work, ...]:
        """What the fit does, step by step; `rates` know how long pushed rows get."""
        return link_work(self, {} if rates is None else rates.row_lengths)

    def seconds(self, threads: int, rates: Rates | None = None) -> float:
        """Time on so many threads, without reading the file.

        With the rates of `calibrate` expect it to be right within a factor of two, else within about three.
        """
        return (rates or Rates()).seconds(self.work(rates), threads=threads)

    def as_dict(self, *, threads: int, rates: Rates | None = None) -> dict[str, Any]:
        """The fields and the figures, for programs."""
        figures = ("graph_bytes", "work_bytes", "peak_bytes", "fits", "passes", "product_columns")
        computed = {name: getattr(self, name) for name in figures}
        return dataclasses.asdict(self) | computed | {"seconds": round(self.seconds(threads, rates), 3)}


def estimate(
    num_nodes: int,
    num_stored: int,
    *,
    design: str = "walk",
    rank: int | None = None,
    window: int | None = None,
    method: str | None = None,
    n_iter: int | None = None,
    block_size: int | None = None,
    dtype: Any = np.float32,
    weighted: bool = False,
    directed: bool = False,
    row_length: float | None = None,
    select: bool = False,
    mapped: bool = False,
    negative: float | None = None,
) -> Estimate:
    """Cost of fitting a design to a graph with `num_stored` stored entries.

    An undirected edge is stored twice, a self loop once. What is None is the design's own. `row_length` is
    the mean number of entries that forward push keeps of a row, over both directions of a directed graph (at
    most 400, the default); `select` adds the fits that choose the settings of a log-diffusion. The entries of
    a `mapped` graph stay on disk.

    >>> from fastgrl.estimate import estimate
    >>> cost = estimate(100_000, 10_000_000, rank=32)
    >>> cost.passes, round(cost.work_bytes / 1e6)
    (90, 168)
    >>> round(estimate(100_000, 10_000_000, design="log-diffusion", row_length=300).peak_bytes / 1e6)
    984
    """
    n = integer("num_nodes", num_nodes, least=1)
    k = _rank(design, rank, n)
    method = ("subspace" if design == "as-released" else "krylov") if method is None else method
    if method not in METHODS:
        raise ArgumentError(f'method must be "krylov" or "subspace", got {shown(method)}')
    rounds = _rounds(design, method) if n_iter is None else integer("n_iter", n_iter, least=0)
    usual = _usual_block(_factorised(k, design), method, rounds, design)
    width = usual if block_size is None else integer("block_size", block_size, least=1)
    return Estimate(
        num_nodes=n,
        num_stored=integer("num_stored", num_stored, least=0),
        rank=k,
        window=integer("window", DEFAULT_WINDOW if window is None else window, least=1),
        method=method,
        n_iter=rounds,
        block_size=min(width, n),
        itemsize=_itemsize(design, dtype),
        weighted=weighted,
        directed=directed,
        design=design,
        row_length=_row_length(design, row_length, n),
        select=select,
        mapped=mapped,
        windows=_windows(design, window, negative) if select else (),
    )


def estimate_links(
    graph: Any,
    *,
    design: str = "log-diffusion",
    rank: int | None = None,
    window: int | None = None,
    row_length: float | None = None,
    select: bool = True,
    dtype: Any = np.float32,
    negative: float | None = None,
) -> Estimate:
    """Cost of `LinkPredictor(design=…).fit(graph)`: `estimate` with the figures of a `Graph`.

    >>> from fastgrl.estimate import estimate_links
    >>> estimate_links(fg.Graph.from_edges([(0, 1), (1, 2)])).fits
    9
    """
    return estimate(
        graph.num_nodes,
        len(graph.indices),
        design=design,
        rank=rank,
        window=window,
        dtype=dtype,
        weighted=graph.weights is not None,
        directed=graph.directed,
        row_length=row_length,
        select=select,
        mapped=is_mapped(graph.indices),
        negative=negative,
    )


def _windows(design: str, window: int | None, negative: float | None) -> tuple[int, ...]:
    """What the selection of a walk tries: nothing if window and λ are given."""
    if design not in ("walk", "degree-walk") or None not in (window, negative):
        return ()
    return WINDOWS if window is None else (window,)


def _rank(design: str, rank: int | None, num_nodes: int) -> int:
    k = usual_rank(design, rank, DEFAULT_RANKS)
    if rank is None:
        return min(k, num_nodes)
    if k > num_nodes:
        raise ArgumentError(
            f"rank {k} is above the number of nodes, {num_nodes}; ask for at most {num_nodes}"
        )
    return k


def _factorised(rank: int, design: str) -> int:
    """The rank of the factorisation: log-diffusion spends two columns on degrees if there are four."""
    spent = design == "log-diffusion" and rank >= 2 * DEGREE_COLUMNS
    return rank - DEGREE_COLUMNS if spent else rank


def _rounds(design: str, method: str) -> int:
    own = {"log-diffusion": DIFFUSION_ROUNDS, "as-released": _RELEASED_ROUNDS, "shrunken": _SHRUNKEN_ROUNDS}
    return own.get(design, ROUNDS[method])


def _usual_block(rank: int, method: str, rounds: int, design: str) -> int:
    if design == "log-diffusion":
        return diffusion_block(rank)
    if design == "shrunken":
        return max(8, -(-rank // 4))
    return max(8, -(-rank // min(2, rounds + 1))) if method == "krylov" else 2 * rank


def _itemsize(design: str, dtype: Any) -> int:
    itemsize = (checked_dtype(dtype) or np.dtype(np.float64)).itemsize
    if design == "log-diffusion" and itemsize != ENTRY_BYTES // 2:
        raise ArgumentError(f'design "log-diffusion" works in float32, not in {np.dtype(dtype)}')
    return itemsize


def _row_length(design: str, given: float | None, num_nodes: int) -> float:
    longest = float(min(LONGEST_ROW, num_nodes))
    if design != "log-diffusion":
        return 0.0
    if given is None:
        return longest
    real = isinstance(given, int | float | np.integer | np.floating) and not isinstance(given, bool)
    if not real or not 0 < given <= longest:
        raise ArgumentError(f"row_length must be above 0 and at most {longest:g}, got {shown(given)}")
    return float(given)


def check_memory(cost: Estimate | NodeEstimate, limit: int) -> None:
    """Raise `UnavailableError` with a quote if `cost` is above `limit` bytes; say which rank would fit.

    >>> from fastgrl.estimate import check_memory, estimate
    >>> check_memory(estimate(1000, 5000, rank=8), 10**9)
    """
    if reason := refusal(cost, limit):
        raise UnavailableError(reason)


def refusal(cost: Estimate | NodeEstimate, limit: int) -> str | None:
    """What is to be said about a run that needs more than `limit` bytes; None about one that does not."""
    if cost.peak_bytes <= limit:
        return None
    what = "log-diffusion of rank" if cost.design == "log-diffusion" else "rank"
    needs = f"{what} {cost.rank} needs about {format_bytes(cost.peak_bytes)}"
    return f"{needs}, the limit is {format_bytes(limit)}; {_way_out(cost, limit)}"


def _way_out(cost: Estimate | NodeEstimate, limit: int) -> str:
    for words, other in _lighter(cost, limit):
        if other.peak_bytes <= limit:
            return f"{words} would need {format_bytes(other.peak_bytes)}"
    least = _replaced(cost, rank=1)
    given = f"the graph alone takes {format_bytes(cost.graph_bytes)}"
    if isinstance(cost, NodeEstimate):
        given = f"graph, features and labels take {format_bytes(cost.graph_bytes + cost.features_bytes)}"
    return f"even rank 1 would need {format_bytes(least.peak_bytes)} ({given})"


def _lighter(cost: Estimate | NodeEstimate, limit: int) -> Iterator[tuple[str, Estimate | NodeEstimate]]:
    """What to try instead. The memory of a log-diffusion is in its rows, so a lower rank comes last."""
    if isinstance(cost, Estimate) and cost.design == "log-diffusion":
        yield 'design "degree-walk"', _replaced(cost, design="degree-walk", rank=None)
    if best := largest_rank(cost, limit):
        yield f"rank {best}", _replaced(cost, rank=best)


def largest_rank(cost: Estimate | NodeEstimate, limit: int) -> int:
    """The largest rank up to that of `cost` whose peak is within `limit` bytes; 0 when there is none.

    >>> from fastgrl.estimate import estimate, largest_rank
    >>> largest_rank(estimate(1000, 5000, rank=8), 10)
    0
    """
    low, high = 0, cost.rank
    while low < high:
        middle = (low + high + 1) // 2
        fits = _replaced(cost, rank=middle).peak_bytes <= limit
        low, high = (middle, high) if fits else (low, middle - 1)
    return low


def _replaced(cost: Estimate | NodeEstimate, **changes: Any) -> Estimate | NodeEstimate:
    """The same call with other arguments and their usual block."""
    if isinstance(cost, NodeEstimate):
        return cost.replaced(**changes)
    same = ("design", "rank", "window", "weighted", "directed", "select", "mapped")
    arguments = {name: getattr(cost, name) for name in same} | changes
    if arguments["design"] == cost.design:
        arguments |= {"method": cost.method, "n_iter": cost.n_iter, "row_length": cost.row_length or None}
    return estimate(cost.num_nodes, cost.num_stored, dtype=f"f{cost.itemsize}", **arguments)


def parse_bytes(text: str) -> int:
    """A number of bytes as people write it: "8GB" is 8·10⁹, "8GiB" 8·2³⁰, "8G" the same as "8GB".

    >>> from fastgrl.estimate import parse_bytes
    >>> parse_bytes("8GB"), parse_bytes("1.5 MiB"), parse_bytes("512")
    (8000000000, 1572864, 512)
    """
    found = re.fullmatch(r"\s*(\d{1,18}(?:\.\d{1,9})?)\s*([A-Za-z]*)\s*", text, re.ASCII)
    if found is None or found[2].upper() not in _UNITS or float(found[1]) == 0:
        raise ArgumentError(
            f"an amount of memory is a number above 0 with a unit, such as 8GB, got {shown(text)}"
        )
    return max(1, int(float(found[1]) * _UNITS[found[2].upper()]))


def format_bytes(count: float) -> str:
    """Bytes with three digits and a decimal unit.

    >>> from fastgrl.estimate import format_bytes
    >>> format_bytes(999), format_bytes(12_345_678), format_bytes(8e9)
    ('999 bytes', '12.3 MB', '8 GB')
    """
    if count < 1000:
        return f"{count:.0f} bytes"
    for unit in ("kB", "MB", "GB", "TB"):
        count /= 1000
        if count < 999.5 or unit == "TB":
            break
    return f"{count:.0f} {unit}" if count >= 99.95 else f"{float(f'{count:.3g}'):g} {unit}"
