"""A graph whose rows lie on workers: what the walk matrices and the diffusion ask of a graph."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fastgrl.checks import Array
from fastgrl.distributed.clusters import Cluster
from fastgrl.distributed.engines import Pending
from fastgrl.distributed.rows import DistributedRows
from fastgrl.distributed.talls import Tall
from fastgrl.kernels import CSR


@dataclass(frozen=True)
class RowFacts:
    """What is counted in some rows of an adjacency matrix, or in all of them."""

    stored: int
    loops: int
    forward: int  # entries on or right of the diagonal: undirected edges
    least_degree: float  # of those above 0; infinity if there are none
    most_degree: float
    most_weight: float

    @classmethod
    def of_all(cls, parts: Sequence[RowFacts]) -> RowFacts:
        """Of all rows, from those of the blocks."""
        return cls(
            sum(part.stored for part in parts),
            sum(part.loops for part in parts),
            sum(part.forward for part in parts),
            min(part.least_degree for part in parts),
            max(part.most_degree for part in parts),
            max(part.most_weight for part in parts),
        )


def row_facts(rows: CSR, begin: int) -> RowFacts:
    """Count what is in a block of rows that begins with row `begin`."""
    numbers = begin + np.repeat(np.arange(rows.shape[0]), np.diff(rows.indptr))
    degrees = degrees_of(rows)
    heaviest = 1.0 if rows.values is None else float(rows.values.max(initial=0))
    return RowFacts(
        rows.num_stored,
        int((rows.indices == numbers).sum()),
        int((rows.indices >= numbers).sum()),
        float(degrees[degrees > 0].min(initial=np.inf)),
        float(degrees.max(initial=0)),
        heaviest,
    )


def degrees_of(rows: CSR) -> Array:
    """The sum of the weights in each row."""
    counts = np.diff(rows.indptr)
    if rows.values is None:
        return counts.astype(np.float64)
    return np.bincount(np.repeat(np.arange(len(counts)), counts), rows.values, len(counts))


@dataclass(frozen=True, eq=False, repr=False)
class DistributedGraph:
    """Rows of the adjacency matrix on workers, and futures of the ids of every block of nodes."""

    csr: DistributedRows
    ids: list[Any]
    directed: bool
    weighted: bool
    facts: RowFacts

    @property
    def cluster(self) -> Cluster:
        """Where it lies."""
        return self.csr.cluster

    @property
    def num_nodes(self) -> int:
        """Nodes."""
        return self.csr.shape[0]

    @property
    def num_edges(self) -> int:
        """Distinct edges, self loops included; an undirected edge counts once."""
        return self.facts.stored if self.directed else self.facts.forward

    @property
    def weights(self) -> DistributedRows | None:
        """None for an unweighted graph; else the rows, which hold them."""
        return self.csr if self.weighted else None

    @functools.cached_property
    def degrees(self) -> Tall:
        """The sum of the weights in each row."""
        return _vector(self.csr)

    @functools.cached_property
    def in_degrees(self) -> Tall:
        """The sum of the weights in each column."""
        return _vector(self.csr.transposed) if self.directed else self.degrees

    @property
    def degree_span(self) -> tuple[float, float]:
        """The smallest degree above 0, and the largest."""
        return self.facts.least_degree, self.facts.most_degree

    @property
    def largest_weight(self) -> float:
        """The largest weight; 1 for an unweighted graph."""
        return self.facts.most_weight

    def __repr__(self) -> str:
        kind = "directed " * self.directed + "weighted " * self.weighted
        blocks = f"in {len(self.csr.parts)} blocks on {self.cluster.engine.name}"
        return f"<DistributedGraph: {self.num_nodes} nodes, {self.num_edges} {kind}edges {blocks}>"


def _vector(rows: DistributedRows) -> Tall:
    parts: list[Any] = [Pending(degrees_of, (block,)) for block in rows.futures]
    found = Tall(rows.cluster, rows.plan, parts, None, np.dtype(np.float64))
    _ = found.futures
    return found
