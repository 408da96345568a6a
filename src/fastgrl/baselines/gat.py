"""GAT: two layers that average over neighbours, with weights that several heads of attention give them.

Reference: Veličković, Cucurull, Casanova, Romero, Liò, Bengio, *Graph Attention Networks*, 2018.

The parameters are those of PyG's `GATConv`, and so are scores and gradients; the training is that of the
authors' program, weight decay on everything and both early stopping rules included. Two of its dropouts are
done as PyG does: the heads of a layer share the mask of their inputs, and what comes out of a head's linear
map is not dropped again. Features stay sparse, and nodes that a loss does not depend on are left out of it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp

from fastgrl.baselines.node_problems import (
    BestEpoch,
    Problem,
    SparseFeatures,
    cross_entropy,
    descend,
    dropped,
    number,
    packages,
    product,
    torch_csr,
    train,
)
from fastgrl.baselines.outcomes import Outcome, Progress
from fastgrl.baselines.reach import Reach
from fastgrl.checks import integer
from fastgrl.datasets.records import NodeDataset
from fastgrl.fsvd import LARGEST_SEED


def run(
    dataset: NodeDataset | Problem,
    *,
    seed: int = 0,
    epochs: int = 100_000,
    hidden: int = 8,
    heads: int = 8,
    output_heads: int = 1,
    dropout: float = 0.6,
    weight_decay: float = 5e-4,
    learning_rate: float = 0.005,
    patience: int | None = 100,
    threads: int | None = None,
    progress: Progress | None = None,
) -> Outcome:
    """Train a GAT on the dataset's training nodes, with the settings published for Cora unless told.

    A head gives node i the mean of W hⱼ over itself and its neighbours j, weighted by the softmax over j of
    leaky_relu(a·W hᵢ + b·W hⱼ). The first layer joins `heads` heads of `hidden` columns each and an elu; the
    second has a column per class and its `output_heads` are averaged. `dropout` acts on the inputs of both
    layers and on the weights of neighbours; rows of X sum to 1; weights of edges do not count. Adam minimises
    the cross-entropy with weight decay, and stops when for `patience` epochs neither validation loss nor
    accuracy was at its best (None: after all `epochs`). The epoch that makes the scores is the last with both
    at their best, or the very last where there are no validation nodes: ask for fewer epochs then. Where `y`
    is 2-D the labels are independent. The same seed and number of threads give the same bits. Needs the
    extra [baselines].
    """
    settings = {
        "seed": integer("seed", seed, least=0, most=LARGEST_SEED),
        "epochs": integer("epochs", epochs, least=1),
        "hidden": integer("hidden", hidden, least=1),
        "heads": integer("heads", heads, least=1),
        "output_heads": integer("output_heads", output_heads, least=1),
        "dropout": number("dropout", dropout, below=1.0),
        "weight_decay": number("weight_decay", weight_decay),
        "learning_rate": number("learning_rate", learning_rate),
        "patience": None if patience is None else integer("patience", patience, least=1),
    }
    return train(
        dataset,
        lambda problem: _Network.of(problem, settings),
        lambda network: _fit(network, settings, progress),
        settings=settings,
        threads=threads,
    )


Pair = tuple[Any, Any]


@dataclass(frozen=True, eq=False)
class _Edges:
    """The edges into some nodes, each node's own among them, in the order of the nodes they lead to.

    `sources` and `targets` pick an edge's row from those of the nodes: 0/1 matrices, and their transposes,
    which sum edges up.
    """

    sources: Pair
    targets: Pair
    bounds: Any

    @classmethod
    def of(cls, part: sp.csr_array) -> _Edges:
        rows = np.repeat(np.arange(part.shape[0]), np.diff(part.indptr))
        bounds = packages()[0].from_numpy(part.indptr.astype(np.int64))
        return cls(_picking(part.indices, part.shape[1]), _picking(rows, part.shape[0]), bounds)

    def at_sources(self, values: Any) -> Any:
        return product(*self.sources, values)

    def at_targets(self, values: Any) -> Any:
        return product(*self.targets, values)

    def summed(self, values: Any) -> Any:
        return product(*self.targets[::-1], values)

    def largest(self, values: Any) -> Any:
        return packages()[0].segment_reduce(values, "max", offsets=self.bounds)


def _picking(columns: Any, width: int) -> Pair:
    count = len(columns)
    ones, ends = np.ones(count, np.float32), np.arange(count + 1)
    matrix = sp.csr_array((ones, columns, ends), shape=(count, width))
    return torch_csr(matrix), torch_csr(matrix.T.tocsr())


def _attended(layer: Any, X: Any, edges: _Edges, dropout: float) -> Any:
    """A `GATConv` from its linear map on: X has a row for each source, the first of which are targets."""
    torch = packages()[0]
    by_head = X.view(-1, layer.heads, layer.out_channels)
    from_source = (by_head * layer.att_src).sum(-1)
    from_target = (by_head[: len(edges.bounds) - 1] * layer.att_dst).sum(-1)
    logits = torch.nn.functional.leaky_relu(
        edges.at_sources(from_source) + edges.at_targets(from_target), layer.negative_slope
    )
    # A softmax does not change with a shift, nor does its gradient.
    weights = torch.exp(logits - edges.at_targets(edges.largest(logits.detach())))
    totals = edges.summed(weights)
    messages = edges.at_sources(X).view(-1, *by_head.shape[1:]) * dropped(weights, dropout)[:, :, None]
    out = edges.summed(messages.flatten(1)).view(-1, *by_head.shape[1:]) / totals[:, :, None]
    return (out.flatten(1) if layer.concat else out.mean(1)) + layer.bias


@dataclass(frozen=True, eq=False)
class _Rows:
    """What the scores of `nodes` depend on."""

    nodes: Any
    features: SparseFeatures
    first: _Edges
    second: _Edges

    @classmethod
    def of(cls, problem: Problem, nodes: Any) -> _Rows:
        reach = Reach.of(problem, nodes, layers=2)
        return cls(reach.nodes, reach.features, *map(_Edges.of, reach.parts))


@dataclass(frozen=True, eq=False)
class _Network:
    """Two of PyG's layers; the first one's linear map stands before it, where the features are sparse."""

    problem: Problem
    weights: Any
    first: Any
    second: Any
    dropout: float
    train_rows: _Rows
    validation_rows: _Rows

    @classmethod
    def of(cls, problem: Problem, settings: dict[str, Any]) -> _Network:
        torch, nn = packages()
        width, heads = settings["heads"] * settings["hidden"], settings["heads"]
        weights = torch.nn.Parameter(torch.empty(problem.features.width, width))
        nn.inits.glorot(weights)
        first = nn.GATConv(width, settings["hidden"], heads)
        first.lin = torch.nn.Identity()
        second = nn.GATConv(width, len(problem.classes), settings["output_heads"], concat=False)
        rows = (_Rows.of(problem, nodes) for nodes in (problem.train, problem.validation))
        return cls(problem, weights, first, second, settings["dropout"], *rows)

    @property
    def parameters(self) -> list[Any]:
        return [self.weights, *self.first.parameters(), *self.second.parameters()]

    def training_loss(self) -> Any:
        rows = self.train_rows
        return cross_entropy(self.problem, self._scores(rows, self.dropout), rows.nodes)

    def validation(self) -> tuple[float, float]:
        """Loss and accuracy."""
        rows = self.validation_rows
        with packages()[0].no_grad():
            scores, targets = self._scores(rows, 0.0), self.problem.targets[rows.nodes]
            right = ((scores > 0) == targets).all(1) if targets.ndim == 2 else scores.argmax(1) == targets
            return float(cross_entropy(self.problem, scores, rows.nodes)), float(right.float().mean())

    def scores(self) -> Any:
        torch = packages()[0]
        rows = _Rows.of(self.problem, torch.arange(len(self.problem.targets)))
        scores = self._scores(rows, 0.0)
        return torch.empty_like(scores).index_copy_(0, rows.nodes, scores)

    def _scores(self, rows: _Rows, dropout: float) -> Any:
        H = rows.features.times(self.weights, dropout)
        H = packages()[0].nn.functional.elu(_attended(self.first, H, rows.first, dropout))
        return _attended(self.second, self.second.lin(dropped(H, dropout)), rows.second, dropout)


def _fit(network: _Network, settings: dict[str, Any], progress: Progress | None) -> int:
    adam = packages()[0].optim.Adam(
        network.parameters, lr=settings["learning_rate"], weight_decay=settings["weight_decay"]
    )
    best, lowest, highest = BestEpoch(network.parameters, settings["patience"]), math.inf, 0.0

    def stop() -> bool:
        nonlocal lowest, highest
        cost, accuracy = network.validation()
        by_cost, by_accuracy = cost <= lowest, accuracy >= highest
        lowest, highest = min(cost, lowest), max(accuracy, highest)
        return best.passed(best=by_cost and by_accuracy, hopeful=by_cost or by_accuracy)

    epochs = descend(network, adam, epochs=settings["epochs"], stop=stop, progress=progress)
    best.restore()
    return epochs
