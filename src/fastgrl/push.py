"""Forward push: the sparse rows of a diffusion, one node at a time.

With T = D⁻¹A and damping a, the row of node u is π_u = (1 − a) Σ_i a^i (T^i)_u. Rows are independent of each
other and cost O(1/(ε(1 − a))) each, whatever the size of the graph. Weights are divided by their mean first,
so that nothing here depends on their unit; degrees count at least ½, so that isolated nodes have logarithms.
The accuracy ε follows how many entries of a row are kept: entries that will be cut off need not be exact.

Reference: Andersen, Chung, Lang, *Local graph partitioning using PageRank vectors*, 2006.
"""

from __future__ import annotations

import functools
import itertools
import math
import mmap
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp

from fastgrl.checks import Array, integer
from fastgrl.devices import current_place
from fastgrl.errors import ArgumentError
from fastgrl.graph import Graph
from fastgrl.kernels import CSR, compiled_module
from fastgrl.parallel import parallel_map
from fastgrl.progress import Progress

EPSILON = 1e-4
KEEP = 400
LEAST_DEGREE = 0.5
_LARGEST_INDEX = 2**31
_CHUNK_ENTRIES = 1 << 22


def epsilon_for(keep: int) -> float:
    """The accuracy that goes with so many kept entries: 10⁻⁴ for 400, 8 times that for a quarter, at most ¼.

    >>> epsilon_for(400), epsilon_for(100)
    (0.0001, 0.0008)
    """
    return min(EPSILON * math.pow(KEEP / keep, 1.5), 0.25)


@dataclass(frozen=True, eq=False)
class Walker:
    """One direction of a graph, ready for forward push."""

    pattern: CSR
    shares: Array | None  # T by entry; None when every neighbour is as likely as another
    degrees: Array
    damping: float
    epsilon: float
    keep: int
    opposite: Callable[[], Walker] | None = None

    @classmethod
    def of(cls, graph: Graph, *, damping: float, epsilon: float | None = None, keep: int = KEEP) -> Walker:
        """Check the settings and normalise the weights; ε is that of `keep` unless given."""
        keep = integer("keep", keep, least=1)
        epsilon = epsilon_for(keep) if epsilon is None else epsilon
        if not 0 < damping < 1:
            raise ArgumentError(f"damping must be between 0 and 1, got {damping!r}")
        if not 0 < epsilon < 1:
            raise ArgumentError(f"epsilon must be between 0 and 1, got {epsilon!r}")
        if graph.num_nodes >= _LARGEST_INDEX:
            raise ArgumentError(f"diffusion rows are for at most {_LARGEST_INDEX - 1} nodes")

        def along(pattern: CSR, opposite: Callable[[], Walker] | None) -> Walker:
            return cls(pattern, _shares(pattern), _degrees(pattern), damping, epsilon, keep, opposite)

        forward = graph.csr
        return along(forward, (lambda: along(forward.transposed, None)) if graph.directed else None)

    @functools.cached_property
    def backward(self) -> Walker:
        """The same against the edges."""
        return self if self.opposite is None else self.opposite()

    @functools.cached_property
    def thresholds(self) -> Array:
        """A residual is pushed on while it is above ε d."""
        return (self.epsilon * self.degrees).astype(np.float32)

    def rows(self, sources: Array, *, progress: Progress | None = None) -> CSR:
        """The rows π_u of the given nodes, in chunks on all threads: never more than the answer in memory."""
        place = current_place()
        if place is not None and place.push is not None:
            return place.push(self, sources)  # type: ignore[no-any-return]
        n = len(self.degrees)
        # The same for any number of threads. Each chunk lays out the nodes of the graph anew, so that short
        # rows, which are soon done, go in larger ones, of up to 32 MB.
        chunk = int(np.clip(len(sources) // 16, 64, max(4096, _CHUNK_ENTRIES // self.keep)))
        starts = list(range(0, len(sources), chunk))
        done, lock = itertools.count(1), threading.Lock()

        def push(first: int) -> tuple[Array, Array, Array]:
            part = self._chunk(sources[first : first + chunk])
            if progress is not None:
                with lock:  # or a thread could report less than another has
                    progress(next(done), len(starts))
            return part

        parts = parallel_map(push, starts)
        counts = np.concatenate([np.zeros(1, np.int64), *(part[0] for part in parts)])
        columns, values = joined({number: parts.pop()[1:] for number in reversed(range(len(starts)))})
        return CSR(np.cumsum(counts), columns, values, (len(sources), n), np.dtype(np.float32))

    def _chunk(self, sources: Array) -> tuple[Array, Array, Array]:
        compiled = compiled_module()
        if compiled is None:
            return self._chunk_by_scipy(sources)
        most = len(sources) * min(self.keep, len(self.degrees))
        counts = np.empty(len(sources), np.int64)
        columns, values = scratch(most, np.int32), scratch(most, np.float32)
        compiled.push_rows(
            self.pattern.indptr,
            self.pattern.indices,
            self.shares,
            self.thresholds,
            sources,
            self.damping,
            self.keep,
            counts,
            columns,
            values,
        )
        kept = int(counts.sum())
        return counts, columns[:kept], values[:kept]

    def _chunk_by_scipy(self, sources: Array) -> tuple[Array, Array, Array]:
        """The same rounds with sparse matrices: R ← R − F + a F T, where F is what is above its threshold."""
        n, a = len(self.degrees), np.float32(self.damping)
        residual = sp.csr_array(
            (np.ones(len(sources), np.float32), (np.arange(len(sources)), sources)), shape=(len(sources), n)
        )
        settled = sp.csr_array(residual.shape, dtype=np.float32)
        while True:
            above = residual.data > self.thresholds[residual.indices]
            if not above.any():
                break
            pushed = residual.copy()  # of its own: zeros are taken out of its indices in place
            pushed.data[~above] = 0
            pushed.eliminate_zeros()
            residual.data[above] = 0
            residual = sp.csr_array(residual + a * (pushed @ self._transition))
            residual.eliminate_zeros()
            settled = settled + (1 - a) * pushed
        return _largest(sp.csr_array(settled + (1 - a) * residual), self.keep)

    @functools.cached_property
    def _transition(self) -> sp.csr_array:
        counts = np.diff(self.pattern.indptr)
        shares = np.repeat(1 / np.maximum(counts, 1), counts) if self.shares is None else self.shares
        return sp.csr_array(
            (shares.astype(np.float32), self.pattern.indices, self.pattern.indptr), shape=self.pattern.shape
        )


def scratch(count: int, dtype: Any) -> Array:
    """An array in memory of its own, which goes back to the system with it.

    The allocator would keep what many parts of some megabytes leave behind, up to twice the whole.
    """
    return np.frombuffer(mmap.mmap(-1, max(1, count * np.dtype(dtype).itemsize)), dtype, count)


def joined(parts: dict[int, tuple[Array, Array]]) -> tuple[Array, Array]:
    """Columns and values of parts 0, 1, …, one after another; each is taken out as soon as it is copied."""
    ends = np.cumsum([len(parts[number][0]) for number in range(len(parts))])
    length = int(ends[-1]) if len(parts) else 0
    columns, values = np.empty(length, np.int32), np.empty(length, np.float32)

    def copy(number: int) -> None:
        some_columns, some_values = parts.pop(number)
        place = slice(int(ends[number]) - len(some_columns), int(ends[number]))
        columns[place], values[place] = some_columns, some_values

    parallel_map(copy, range(len(ends)))
    return columns, values


def _shares(pattern: CSR) -> Array | None:
    """T = D⁻¹A by entry, without overflow: each row is divided by its largest weight first."""
    if pattern.values is None:
        return None
    rows = np.repeat(np.arange(pattern.shape[0]), np.diff(pattern.indptr))
    largest = np.zeros(pattern.shape[0])
    np.maximum.at(largest, rows, pattern.values)
    scaled = pattern.values / np.where(largest > 0, largest, 1)[rows]
    sums = np.bincount(rows, scaled, pattern.shape[0])
    return (scaled / np.where(sums > 0, sums, 1)[rows]).astype(np.float32)


def _degrees(pattern: CSR) -> Array:
    """Row sums of the weights over their mean, at least ½."""
    counts = np.diff(pattern.indptr)
    if pattern.values is None or not pattern.num_stored or not pattern.values.any():
        return np.maximum(counts.astype(np.float64), LEAST_DEGREE)
    weights = pattern.values / pattern.values.max()
    rows = np.repeat(np.arange(pattern.shape[0]), counts)
    return np.maximum(np.bincount(rows, weights / weights.mean(), pattern.shape[0]), LEAST_DEGREE)


def _largest(rows: sp.csr_array, keep: int) -> tuple[Array, Array, Array]:
    """The `keep` largest entries of each row, by column; of equal ones those with the smaller column."""
    rows.sort_indices()
    number = np.repeat(np.arange(rows.shape[0]), np.diff(rows.indptr))
    order = np.lexsort((rows.indices, -rows.data, number))
    place = np.arange(len(order)) - rows.indptr[number[order]]
    kept = np.sort(order[place < keep])
    kept = kept[rows.data[kept] > 0]
    counts = np.bincount(number[kept], minlength=rows.shape[0])
    return counts, rows.indices[kept].astype(np.int32), rows.data[kept].astype(np.float32)


def mean_row_length(graph: Graph, *, damping: float, keep: int = KEEP, sample: int = 2048) -> float:
    """Entries that a row keeps, on average over a sample of nodes: what the rows of all nodes would take.

    >>> mean_row_length(fg.Graph.from_edges([(0, 1), (1, 2), (2, 0)]), damping=0.5)
    3.0
    """
    sources = np.unique(np.linspace(0, graph.num_nodes - 1, min(sample, graph.num_nodes)).astype(np.int32))
    walker = Walker.of(graph, damping=damping, keep=keep)
    return max(1.0, walker.rows(sources).num_stored / max(len(sources), 1))
