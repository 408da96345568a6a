"""MixHop: layers whose columns look 0, 1 and 2 steps far, side by side.

Reference: Abu-El-Haija, Perozzi, Kapoor, Alipourfard, Lerman, Harutyunyan, Ver Steeg, Galstyan, *MixHop:
Higher-Order Graph Convolutional Architectures via Sparsified Neighborhood Mixing*, 2019.

Two of PyG's `MixHopConv` with the numbers of columns per power that the authors found for each dataset, and
their training: features as 0 and 1, dropped and then scaled to rows of length 1; batch normalisation by the
present batch in training and after it; classes as a weighted sum of groups of columns; plain gradient descent
whose rate falls linearly. The epoch with the best validation accuracy counts. Of several the authors'
program takes the one with the best test accuracy, this one that with the least validation loss. Weights
stand before the powers, X W first and then Â(X W): the same numbers, and features stay sparse.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp

from fastgrl.baselines.node_problems import (
    BestEpoch,
    Problem,
    SparseFeatures,
    descend,
    dropped,
    loss,
    node_features,
    number,
    packages,
    predicted,
    product,
    train,
    validation_accuracy,
    with_values,
)
from fastgrl.baselines.outcomes import Outcome, Progress
from fastgrl.checks import integer, shown
from fastgrl.datasets.records import NodeDataset
from fastgrl.errors import ArgumentError
from fastgrl.fsvd import LARGEST_SEED

# The authors' constants, in no option of theirs: what batch normalisation adds to a variance, and the decay
# of what weighs the groups of columns.
_VARIANCE = 1e-3
_GROUP_DECAY = 1e-3


def run(
    dataset: NodeDataset,
    *,
    seed: int = 0,
    epochs: int = 400,
    hidden: Sequence[int] = (24, 18, 18),
    groups: Sequence[int] = (0, 1, 1),
    input_dropout: float = 0.5,
    dropout: float = 0.9,
    weight_decay: float = 5e-3,
    learning_rate: float = 1.0,
    decline: float = 0.01,
    decline_every: int = 40,
    patience: int | None = 200,
    threads: int | None = None,
    progress: Progress | None = None,
) -> Outcome:
    """Train MixHop on the dataset's training nodes, with the settings published for Cora unless told others.

    A layer is [H W₀, Â H W₁, Â² H W₂] with Â = D̃^-½(A + I)D̃^-½; `hidden` are the columns of the three powers
    in the first, and `groups` those in the second, in numbers of classes: each group of columns has one for
    every class, and the scores are their sum, weighted by a softmax that is learnt. Descent is on the
    cross-entropy and `weight_decay` times the squares of all W; every `decline_every` epochs its rate falls
    by `decline` times the first. The epoch with the best validation accuracy is kept, and the training ends
    `patience` epochs after it (None: after all `epochs`). The same seed and number of threads give the same
    bits; torch's own random state and threads are as before afterwards. Needs the extra [baselines].
    """
    settings = {
        "seed": integer("seed", seed, least=0, most=LARGEST_SEED),
        "epochs": integer("epochs", epochs, least=1),
        "hidden": _columns("hidden", hidden),
        "groups": _columns("groups", groups),
        "input_dropout": number("input_dropout", input_dropout, below=1.0),
        "dropout": number("dropout", dropout, below=1.0),
        "weight_decay": number("weight_decay", weight_decay),
        "learning_rate": number("learning_rate", learning_rate),
        "decline": number("decline", decline),
        "decline_every": integer("decline_every", decline_every, least=1),
        "patience": None if patience is None else integer("patience", patience, least=1),
    }
    packages()
    return train(
        dataset,
        lambda problem: _Network.of(dataclasses.replace(problem, features=_words(dataset)), settings),
        lambda network: _fit(network, settings, progress),
        settings=settings,
        threads=threads,
    )


def _columns(name: str, counts: Any) -> list[int]:
    """Columns per power, at least one of them above 0."""
    wrong = not isinstance(counts, Sequence | np.ndarray) or isinstance(counts, str) or not len(counts)
    if wrong or not all(isinstance(c, int | np.integer) and c >= 0 for c in counts) or not any(counts):
        raise ArgumentError(
            f"{name} must hold the number of columns for each power of the graph's matrix, such as "
            f"(20, 20, 20), got {shown(counts)}"
        )
    return [int(count) for count in counts]


def _words(dataset: NodeDataset) -> SparseFeatures:
    """Features as 0 and 1, in rows of length 1."""
    X = sp.csr_array(node_features(dataset), dtype=np.float32, copy=True)
    X.eliminate_zeros()
    lengths = np.diff(X.indptr)
    X.data = np.repeat(1 / np.sqrt(np.maximum(lengths, 1)), lengths).astype(np.float32)
    return SparseFeatures.of(X)


def _dropped_features(features: SparseFeatures, dropout: float) -> tuple[Any, Any]:
    """Features and their transpose with some forgotten, in rows of length 1 again."""
    torch, X = packages()[0], features.matrix
    values, rows = dropped(X.values(), dropout), X.crow_indices()
    counts = rows.diff()
    squares = torch.segment_reduce(values * values, "sum", lengths=counts, initial=0.0, unsafe=True)
    scale = squares.clamp(min=torch.finfo(squares.dtype).tiny).rsqrt()
    values = values * scale.repeat_interleave(counts)
    return with_values(X, values), with_values(features.transposed, values.index_select(0, features.order))


@dataclass(frozen=True)
class _Columns:
    """Stands where PyG's layer has the weights of a power: its columns have been multiplied by theirs."""

    first: int
    end: int

    def forward(self, H: Any) -> Any:
        return H[:, self.first : self.end]

    __call__ = forward


@dataclass(frozen=True, eq=False)
class _Layer:
    """The weights of all powers, side by side, and PyG's layer for what comes after them."""

    weights: Any
    mix: Any

    @classmethod
    def of(cls, columns: int, counts: Sequence[int]) -> _Layer:
        torch, nn = packages()
        parts = [torch.empty(columns, count) for count in counts]
        for part in parts:
            nn.inits.glorot(part)
        mix = nn.MixHopConv(1, 1, [power for power, count in enumerate(counts) if count], bias=False)
        del mix.lins
        mix.lins = [
            _Columns(int(end) - count, int(end)) for count, end in zip(counts, np.cumsum(counts), strict=True)
        ]
        # Â is its own transpose.
        mix.propagate = lambda A, x, edge_weight: product(A[0], A[0], x)  # noqa: ARG005
        return cls(torch.nn.Parameter(torch.cat(parts, 1)), mix)

    def __call__(self, weighted: Any, adjacency: Any) -> Any:
        return self.mix(weighted, (adjacency,))  # a bare tensor would be normalised again


@dataclass(frozen=True, eq=False)
class _Network:
    problem: Problem
    first: _Layer
    second: _Layer
    shift: Any  # of the batch normalisation
    shares: Any  # of the groups of columns, before their softmax
    input_dropout: float
    dropout: float

    @classmethod
    def of(cls, problem: Problem, settings: dict[str, Any]) -> _Network:
        torch = packages()[0]
        hidden, groups = settings["hidden"], settings["groups"]
        return cls(
            problem,
            _Layer.of(problem.features.width, hidden),
            _Layer.of(sum(hidden), [len(problem.classes) * count for count in groups]),
            torch.nn.Parameter(torch.zeros(sum(hidden))),
            torch.nn.Parameter(torch.zeros(sum(groups))),
            settings["input_dropout"],
            settings["dropout"],
        )

    @property
    def parameters(self) -> list[Any]:
        return [self.first.weights, self.second.weights, self.shift, self.shares]

    def scores(self, *, training: bool = False) -> Any:
        F, A, X = packages()[0].nn.functional, self.problem.adjacency, self.problem.features
        matrices = _dropped_features(X, self.input_dropout) if training else (X.matrix, X.transposed)
        H = self.first(product(*matrices, self.first.weights), A)
        H = F.relu(F.batch_norm(H, None, None, bias=self.shift, training=True, eps=_VARIANCE))
        H = dropped(H, self.dropout) if training else H
        H = self.second(H @ self.second.weights, A)
        return (H.view(len(H), len(self.shares), -1) * self.shares.softmax(0)[:, None]).sum(1)

    def training_loss(self) -> Any:
        return loss(self.problem, self.scores(training=True), self.problem.train)

    def validated(self) -> tuple[float, float]:
        """The accuracy on the validation nodes, and minus the loss: of equals, the surer is better."""
        with packages()[0].no_grad():
            scores, nodes = self.scores(), self.problem.validation
            cost = float(loss(self.problem, scores, nodes))
        return validation_accuracy(self.problem, predicted(self.problem, scores.numpy())) or 0.0, -cost


def _fit(network: _Network, settings: dict[str, Any], progress: Progress | None) -> int:
    sgd = _optimiser(network, settings)
    best = BestEpoch(network.parameters, settings["patience"])
    found = [(-1.0, 0.0)]

    def stop() -> bool:
        now = network.validated()
        better = now > max(found)
        found.append(now)
        return best.passed(best=better, hopeful=better)

    made = descend(network, sgd, epochs=settings["epochs"], stop=stop, progress=progress)
    best.restore()
    return made


def _optimiser(network: _Network, settings: dict[str, Any]) -> Any:
    """Plain descent. Squares are weighed without a half, so decays are doubled."""
    rate, weights = settings["learning_rate"], [network.first.weights, network.second.weights]
    shares = network.shares
    sgd = packages()[0].optim.SGD(
        [
            {"params": weights, "weight_decay": 2 * settings["weight_decay"]},
            {"params": [shares], "weight_decay": 2 * _GROUP_DECAY / len(shares)},
            {"params": [network.shift]},
        ],
        lr=rate,
    )
    epochs = itertools.count()

    def slow_down(*_: Any) -> None:
        share = 1 - settings["decline"] * (next(epochs) // settings["decline_every"])
        for group in sgd.param_groups:
            group["lr"] = rate * max(share, 0.0)

    sgd.register_step_post_hook(slow_down)
    return sgd
