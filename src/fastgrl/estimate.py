"""Bytes and passes of a run before it runs, by formula.

n is the number of nodes, k the rank, b the columns of a block, q the rounds after the first. Krylov keeps
(q + 1) b columns on the left and (q + 2) b on the right, subspace one block of 2 k. Blocks above about 8 MB
are multiplied in panels, and a few panels more are held while a product with the walk matrix is made.
"""

from __future__ import annotations

import dataclasses
import re
from dataclasses import dataclass
from typing import Any

import numpy as np

from fastgrl.checks import checked_dtype, integer, shown
from fastgrl.errors import ArgumentError, UnavailableError

METHODS = ("krylov", "subspace")
DEFAULT_RANK, DEFAULT_WINDOW = 64, 5

# How `fsvd` cuts wide blocks, and how many rounds it does unless told; a test holds these to what it does.
PANEL_BYTES, PANEL_COLUMNS = 8 << 20, 16
ROUNDS = {"krylov": 8, "subspace": 10}

# Panels alive inside one product with Σ cᵢTⁱ − λ(11' − A), and blocks while columns are made orthonormal,
# some of them taken apart; Krylov keeps some single columns beside its bases.
_PRODUCT_PANELS, _ORTHONORMAL_BLOCKS, _SINGLE_COLUMNS = 4, 3.4, 20
_FLOAT64 = 8

# Multiply-adds per second and thread, of the order that the recorded benchmarks show.
_SPARSE_RATE, _DENSE_RATE = 2e9, 1e10

_UNITS = {"": 1, "B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}
_UNITS |= {"K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12}
_UNITS |= {"KIB": 2**10, "MIB": 2**20, "GIB": 2**30, "TIB": 2**40}


@dataclass(frozen=True)
class Estimate:
    """What the rank-k SVD of a graph's walk matrix costs; every figure follows from the fields.

    Equal singular values can add rounds, and with them time, beyond what is said here.
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

    @property
    def graph_bytes(self) -> int:
        """Row pointers, columns and weights (twice for a directed graph: its transpose), ids and degrees."""
        stored = self.num_stored * (4 + _FLOAT64 * self.weighted)
        pattern = _FLOAT64 * (self.num_nodes + 1) + stored
        return pattern * (1 + self.directed) + 2 * _FLOAT64 * self.num_nodes

    @property
    def work_bytes(self) -> int:
        """What the SVD holds at its peak, the answer included."""
        return max(self._product_bytes, self._orthonormal_bytes, self._answer_bytes)

    @property
    def peak_bytes(self) -> int:
        """The graph and the work together."""
        return self.graph_bytes + self.work_bytes

    @property
    def products(self) -> int:
        """Products with the matrix and its transpose, a block at a time."""
        return 2 * (self.n_iter + 1)

    @property
    def product_columns(self) -> int:
        """Columns multiplied by the matrix or its transpose, over the whole run."""
        return self.products * self.block_size

    @property
    def passes(self) -> int:
        """Times that the graph is read from end to end: for each step of the walk, for λA, for each panel."""
        return self.products * (self.window + 1) * -(-self.block_size // self.panel)

    @property
    def panel(self) -> int:
        """Columns that go through one product together."""
        column = max(self.num_nodes * self.itemsize * PANEL_COLUMNS, 1)
        return min(self.block_size, PANEL_COLUMNS * max(1, PANEL_BYTES // column))

    @property
    def _basis_columns(self) -> int:
        """Columns kept on both sides between products."""
        if self.method == "subspace":
            return 0
        kept = (self.n_iter + 1) * self.block_size
        return min(self.num_nodes, kept) + min(self.num_nodes, kept + self.block_size) + _SINGLE_COLUMNS

    @property
    def _column_bytes(self) -> int:
        return self.num_nodes * self.itemsize

    @property
    def _product_bytes(self) -> int:
        # Panels are put together in a block of their own.
        blocks = (2 if self.method == "krylov" else 1) + (self.panel < self.block_size)
        columns = blocks * self.block_size + _PRODUCT_PANELS * self.panel
        return (self._basis_columns + columns) * self._column_bytes

    @property
    def _orthonormal_bytes(self) -> int:
        columns = self._basis_columns + _ORTHONORMAL_BLOCKS * self.block_size
        return int(columns * self._column_bytes)

    @property
    def _answer_bytes(self) -> int:
        """The bases (or two blocks) with the small matrix, its two factors, and one side of the answer."""
        small = self._basis_columns // 2 or self.block_size
        held = self._basis_columns or 2 * self.block_size
        return (held + 2 * self.rank) * self._column_bytes + 3 * small**2 * _FLOAT64

    def seconds(self, threads: int) -> float:
        """Rough time on so many threads; expect it to be off by a factor of two or three."""
        width = self.itemsize / 4
        sparse = self.num_stored * (self.window + 1) * self.product_columns
        basis = self._basis_columns / 2 + 2 * self.block_size
        dense = 2.0 * self.num_nodes * self.product_columns * basis
        return width * (sparse / _SPARSE_RATE + dense / _DENSE_RATE) / threads

    def as_dict(self, *, threads: int) -> dict[str, Any]:
        """The fields and the figures, for programs."""
        figures = ("graph_bytes", "work_bytes", "peak_bytes", "passes", "product_columns")
        computed = {name: getattr(self, name) for name in figures}
        return dataclasses.asdict(self) | computed | {"seconds": round(self.seconds(threads), 3)}


def estimate(
    num_nodes: int,
    num_stored: int,
    *,
    rank: int,
    window: int = DEFAULT_WINDOW,
    method: str = "krylov",
    n_iter: int | None = None,
    block_size: int | None = None,
    dtype: Any = np.float32,
    weighted: bool = False,
    directed: bool = False,
) -> Estimate:
    """Cost of the rank-k SVD of M = Σ cᵢTⁱ − λ(11' − A) of a graph with `num_stored` stored entries.

    An undirected edge is stored twice, a self loop once. The other arguments are those of `fsvd`, with the
    same defaults.

    >>> from fastgrl.estimate import estimate
    >>> cost = estimate(100_000, 10_000_000, rank=32)
    >>> cost.passes, round(cost.work_bytes / 1e6)
    (108, 168)
    """
    n = integer("num_nodes", num_nodes, least=1)
    k = integer("rank", rank, least=1)
    if k > n:
        raise ArgumentError(f"rank {k} is above the number of nodes, {n}; ask for at most {n}")
    if method not in METHODS:
        raise ArgumentError(f'method must be "krylov" or "subspace", got {method!r}')
    rounds = ROUNDS[method] if n_iter is None else integer("n_iter", n_iter, least=0)
    usual = max(8, -(-k // min(2, rounds + 1))) if method == "krylov" else 2 * k
    width = usual if block_size is None else integer("block_size", block_size, least=1)
    return Estimate(
        num_nodes=n,
        num_stored=integer("num_stored", num_stored, least=0),
        rank=k,
        window=integer("window", window, least=1),
        method=method,
        n_iter=rounds,
        block_size=min(width, n),
        itemsize=(checked_dtype(dtype) or np.dtype(np.float64)).itemsize,
        weighted=weighted,
        directed=directed,
    )


def check_memory(cost: Estimate, limit: int) -> None:
    """Raise `UnavailableError` with a quote if `cost` is above `limit` bytes; say which rank would fit.

    >>> from fastgrl.estimate import check_memory, estimate
    >>> check_memory(estimate(1000, 5000, rank=8), 10**9)
    """
    if reason := refusal(cost, limit):
        raise UnavailableError(reason)


def refusal(cost: Estimate, limit: int) -> str | None:
    """What is to be said about a run that needs more than `limit` bytes; None about one that does not."""
    if cost.peak_bytes <= limit:
        return None
    quote = (
        f"rank {cost.rank} needs about {format_bytes(cost.peak_bytes)}, the limit is {format_bytes(limit)}"
    )
    return f"{quote}; {_way_out(cost, limit)}"


def _way_out(cost: Estimate, limit: int) -> str:
    smaller = _with_rank(cost, largest_rank(cost, limit))
    if smaller is not None:
        return f"rank {smaller.rank} would need {format_bytes(smaller.peak_bytes)}"
    least = _with_rank(cost, 1)
    assert least is not None
    graph = f"the graph alone takes {format_bytes(cost.graph_bytes)}"
    return f"even rank 1 would need {format_bytes(least.peak_bytes)} ({graph})"


def largest_rank(cost: Estimate, limit: int) -> int:
    """The largest rank up to that of `cost` whose peak is within `limit` bytes; 0 when there is none.

    >>> from fastgrl.estimate import estimate, largest_rank
    >>> largest_rank(estimate(1000, 5000, rank=8), 10)
    0
    """
    low, high = 0, cost.rank
    while low < high:
        middle = (low + high + 1) // 2
        tried = _with_rank(cost, middle)
        low, high = (middle, high) if tried and tried.peak_bytes <= limit else (low, middle - 1)
    return low


def _with_rank(cost: Estimate, rank: int) -> Estimate | None:
    """The same call with another rank and its usual block."""
    if not rank:
        return None
    usual = estimate(cost.num_nodes, 0, rank=rank, method=cost.method, n_iter=cost.n_iter)
    return dataclasses.replace(cost, rank=rank, block_size=usual.block_size)


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
