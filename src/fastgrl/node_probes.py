"""How long the steps of a node classifier take: each probe runs the step itself, on a part of the graph."""

from __future__ import annotations

import functools
from collections import deque
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import scipy.sparse as sp

from fastgrl.checks import Array
from fastgrl.filters import smoothed
from fastgrl.graph import Graph
from fastgrl.jkn_features import propagation
from fastgrl.kernels import CSR
from fastgrl.node_costs import NodeEstimate
from fastgrl.node_models import NodeInputs, Targets
from fastgrl.node_times import FILTER_STEPS, cells_of, round_units
from fastgrl.probes import affordable, distance, part_of, shortest
from fastgrl.rates import Rate
from fastgrl.self_training import Run, Trainer
from fastgrl.similarity import similar_nodes
from fastgrl.view_bases import Surroundings
from fastgrl.views import STRUCTURE, FeatureMap

_STEPS = (2, 6)
_HOP_COLUMNS, _LARGEST_PROBLEM, _ROWS_COMPARED = 64, 384, 512


@dataclass(eq=False)
class NodeBench:
    """A graph and what is to be done with it."""

    graph: Graph
    cost: NodeEstimate

    @functools.cached_property
    def rng(self) -> np.random.Generator:
        """For made-up features and labels."""
        return np.random.Generator(np.random.Philox(0))

    def part(self, step: str, units: float, budget: float) -> tuple[Graph, CSR]:
        """As much of the graph as the budget allows for."""
        return part_of(self.graph, affordable(step, units, budget))

    def block(self, nodes: int) -> Array:
        """Made-up coordinates of so many nodes."""
        return self.rng.standard_normal((nodes, max(1, self.cost.kept)), dtype=np.float32)

    def sized(self, nodes: int, entries: int) -> NodeEstimate:
        """The same fit of a smaller graph."""
        share = nodes / max(1, self.cost.num_nodes)
        cells = None if self.cost.entries is None else int(share * self.cost.entries)
        return replace(self.cost, num_nodes=nodes, num_stored=max(0, entries - nodes), entries=cells)


def matrices(bench: NodeBench, budget: float) -> Rate:
    """The adjacency matrix and its two normalised forms."""
    entries = len(bench.graph.indices) + bench.graph.num_nodes
    part, _ = bench.part("matrices", entries, budget)

    def make() -> None:
        around = _around(part)
        _ = around.operator("l"), around.averaging

    made = len(part.indices) * (1 + part.directed) + 2 * part.num_nodes
    return Rate(shortest(make, budget) / made, serial=True)


def _around(part: Graph) -> Surroundings:
    """What smooths along a part of the graph, whatever the features are."""
    return Surroundings(NodeInputs(part), FeatureMap(STRUCTURE, np.zeros(0), np.zeros(0)))


def filtering(bench: NodeBench, budget: float) -> Rate:
    """Steps of a filter with a block of the rank's width: what one adds to a few, and what these take."""
    k, (few, some) = max(1, bench.cost.kept), _STEPS
    units = float(bench.cost.graph_entries + bench.cost.num_nodes) * k * (few + some)
    part, rows = bench.part("filter", units, budget / 2)
    S, B = _around(part).operator("l"), bench.block(part.num_nodes)

    def timed(steps: int) -> float:
        return shortest(lambda: smoothed(S, B, restart=0.1, steps=steps), budget / 4)

    one, other = timed(few), timed(some)
    step = max((other - one) / (some - few), one / (4 * few))
    entries = len(part.indices) * (1 + part.directed) + 2 * part.num_nodes
    far = distance(part, rows, columns=k, budget=budget / 4)
    return Rate(far * (one + (FILTER_STEPS - few) * step) / (entries * k * FILTER_STEPS))


def view(bench: NodeBench, budget: float) -> Rate:
    """Features of some nodes made into those of a view, and projected."""
    cost, k = bench.cost, max(1, bench.cost.kept)
    share = affordable("view", cells_of(cost) * (k + 8), budget / 2)
    nodes = max(2, min(cost.num_nodes, int(share * cost.num_nodes)))
    inputs = _made_up_inputs(bench, nodes)
    around = Surroundings(inputs, FeatureMap.of(inputs))
    V = np.eye(cost.width, dtype=np.float32) if k == cost.width else np.ones((cost.width, k), np.float32)
    took = shortest(lambda: around.projected("i" if cost.columns else "s", V), budget / 2)
    return Rate(took / (cells_of(bench.sized(nodes, nodes)) * (k + 8)))


def _made_up_inputs(bench: NodeBench, nodes: int) -> NodeInputs:
    cost = bench.cost
    graph = Graph.from_codes([0], [1], num_nodes=nodes)
    if not cost.columns:
        return NodeInputs(graph, None, bench.rng.standard_normal((nodes, cost.width)))
    if cost.entries is None:
        return NodeInputs(graph, bench.rng.standard_normal((nodes, cost.columns), dtype=np.float32))
    return NodeInputs(graph, _words(bench, nodes))


def _words(bench: NodeBench, nodes: int) -> Any:
    cost = bench.cost
    length = max(1, round((cost.entries or 0) / max(1, cost.num_nodes)))
    length = min(length, cost.columns)
    columns = np.sort(bench.rng.integers(0, cost.columns, (nodes, length)), axis=1)
    indptr = np.arange(nodes + 1) * length
    shape = (nodes, cost.columns)
    return sp.csr_array((np.ones(nodes * length, np.float32), columns.ravel(), indptr), shape=shape)


def training(bench: NodeBench, budget: float) -> Rate:
    """A round of self-training with the views of the fit: ridges, beliefs, and their smoothing."""
    cost = bench.cost
    units = round_units(cost, cost.views)
    part, rows = bench.part("round", 2 * units, budget / 2)
    n, C = part.num_nodes, cost.classes
    views = [bench.block(n) for _ in range(cost.views)]
    labelled = np.arange(min(max(2 * C, min(cost.labelled, n // 4)), n))
    labels = np.zeros((n, C))
    labels[labelled, labelled % C] = 1
    targets = Targets(np.arange(C), labels, labelled, np.full(len(labelled), 1 / len(labelled)))
    trainer = Trainer(views, targets, _around(part).averaging)
    runs = [Run(0.01, balance) for balance in ((0.5, 1.0) if cost.sweeps else (0.75,))]
    # The round on labels alone counts half, as it does in the formula.
    took = shortest(lambda: deque(trainer.together(runs, 1), maxlen=0), budget / 2) / (1.5 * len(runs))
    entries = len(part.indices) * (1 + part.directed)
    far = distance(part, rows, columns=C, budget=budget / 4)
    return Rate(far**0.5 * took / round_units(bench.sized(n, entries + n), cost.views))


def similar(bench: NodeBench, budget: float) -> Rate:
    """The most similar nodes of a few rows: all of them, as graphs with that view are small."""
    cost = bench.cost
    nodes = cost.num_nodes
    inputs = _made_up_inputs(bench, nodes)
    F = FeatureMap.of(inputs).features(inputs, "i")
    some = F[: min(nodes, _ROWS_COMPARED)]
    took = shortest(lambda: similar_nodes(some), budget)
    rows = some.shape[0]
    return Rate(took / (rows * (cells_of(cost) * rows / nodes + 12 * rows)))


def hop(bench: NodeBench, budget: float) -> Rate:
    """A product of the normalised adjacency matrix in float64."""
    graph = bench.graph
    part, rows = bench.part("hop", (len(graph.indices) + graph.num_nodes) * _HOP_COLUMNS, budget / 2)
    S = propagation(part, bench.cost.design)
    H = np.ones((part.num_nodes, _HOP_COLUMNS))
    took = shortest(lambda: S @ H, budget / 2)
    entries = len(part.indices) * (1 + part.directed) + 2 * part.num_nodes
    far = distance(part, rows, columns=_HOP_COLUMNS, budget=budget / 4)
    return Rate(far * took / (entries * _HOP_COLUMNS))


def decomposition(bench: NodeBench, budget: float) -> Rate:
    """Eigenvectors of a small symmetric matrix, by its side cubed."""
    side = min(_LARGEST_PROBLEM, max(16, bench.cost.labelled, bench.cost.width))
    G = bench.rng.standard_normal((side, side))
    gram = G @ G.T
    return Rate(shortest(lambda: np.linalg.eigh(gram), budget) / side**3, serial=True)
