"""GCN: two layers that average over neighbours, trained by gradient descent. Features stay sparse.

Reference: Kipf, Welling, *Semi-Supervised Classification with Graph Convolutional Networks*, 2017.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from fastgrl.baselines.node_problems import Problem as Problem
from fastgrl.baselines.node_problems import descend, loss, number, product, train
from fastgrl.baselines.node_problems import packages as packages
from fastgrl.baselines.node_problems import prepare as prepare
from fastgrl.baselines.outcomes import Outcome as Outcome
from fastgrl.baselines.outcomes import Progress
from fastgrl.checks import integer
from fastgrl.datasets.records import NodeDataset
from fastgrl.fsvd import LARGEST_SEED


def run(
    dataset: NodeDataset | Problem,
    *,
    seed: int = 0,
    epochs: int = 200,
    hidden: int = 16,
    dropout: float = 0.5,
    weight_decay: float = 5e-4,
    learning_rate: float = 0.01,
    patience: int | None = 10,
    threads: int | None = None,
    progress: Progress | None = None,
) -> Outcome:
    """Train a GCN on the dataset's training nodes, with the published settings unless told otherwise.

    Scores are Â relu(Â X W₁) W₂ with Â = D̃^-½(A + I)D̃^-½ and rows of X that sum to 1. As in the authors'
    program there are no biases (with PyG's, Pubmed loses a point), Adam minimises the cross-entropy with
    weight decay on the first layer, and stops when the validation loss is above its mean over the `patience`
    epochs before (None: after all `epochs`).
    Where `y` is 2-D the labels are independent. Of several trainings each can be given what `prepare` made
    once. The same seed and number of threads give the same bits; torch's own random state and threads are
    as before afterwards. Needs the extra [baselines].
    """
    settings = {
        "seed": integer("seed", seed, least=0, most=LARGEST_SEED),
        "epochs": integer("epochs", epochs, least=1),
        "hidden": integer("hidden", hidden, least=1),
        "dropout": number("dropout", dropout, below=1.0),
        "weight_decay": number("weight_decay", weight_decay),
        "learning_rate": number("learning_rate", learning_rate),
        "patience": None if patience is None else integer("patience", patience, least=1),
    }
    return train(
        dataset,
        lambda problem: _Network.of(problem, hidden, dropout, weight_decay),
        lambda network: _fit(network, epochs, learning_rate, patience, progress),
        settings=settings,
        threads=threads,
    )


@dataclass(frozen=True, eq=False)
class _Network:
    """Two of PyG's layers; W₁ stands before the first, which gets the product with the sparse features."""

    problem: Problem
    weights: Any
    first: Any
    second: Any
    dropout: float
    weight_decay: float

    @classmethod
    def of(cls, problem: Problem, hidden: int, dropout: float, weight_decay: float) -> _Network:
        torch, nn = packages()
        weights = torch.nn.Parameter(torch.empty(problem.features.width, hidden))
        nn.inits.glorot(weights)
        first, second = _layer(hidden, hidden), _layer(hidden, len(problem.classes))
        first.lin = torch.nn.Identity()
        return cls(problem, weights, first, second, dropout, weight_decay)

    @property
    def decayed(self) -> list[Any]:
        return [self.weights]

    def scores(self, *, training: bool = False) -> Any:
        F, A = packages()[0].nn.functional, self.problem.adjacency
        H = self.problem.features.times(self.weights, self.dropout if training else 0.0)
        H = F.dropout(F.relu(self.first(H, A)), self.dropout, training)
        return self.second(H, A)

    def training_loss(self) -> Any:
        return loss(self.problem, self.scores(training=True), self.problem.train)

    def validation_cost(self) -> float:
        """Weight decay included, as the authors' program has it."""
        with packages()[0].no_grad():
            decay = sum((part**2).sum() for part in self.decayed) * self.weight_decay / 2
            return float(loss(self.problem, self.scores(), self.problem.validation) + decay)


def _layer(columns: int, out: int) -> Any:
    layer = packages()[1].GCNConv(columns, out, bias=False, normalize=False)  # the matrix it gets is
    # Â is its own transpose.
    layer.propagate = lambda A, x, edge_weight: product(A, A, x)  # noqa: ARG005
    return layer


def _fit(
    network: _Network, epochs: int, learning_rate: float, patience: int | None, progress: Progress | None
) -> int:
    groups = [
        {"params": network.decayed, "weight_decay": network.weight_decay},
        {"params": list(network.second.parameters())},
    ]
    adam = packages()[0].optim.Adam(groups, lr=learning_rate)
    costs: list[float] = []

    def worse(window: int) -> bool:
        costs.append(network.validation_cost())
        return _got_worse(costs, window)

    stop = None if patience is None else lambda: worse(patience)
    return descend(network, adam, epochs=epochs, stop=stop, progress=progress)


def _got_worse(costs: list[float], window: int) -> bool:
    return len(costs) > window + 1 and costs[-1] > float(np.mean(costs[-window - 1 : -1]))
