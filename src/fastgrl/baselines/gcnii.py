"""GCNII: a deep GCN whose every layer sees the first one again and stays near the identity.

Reference: Chen, Wei, Huang, Ding, Li, *Simple and Deep Graph Convolutional Networks*, 2020.

This is the network of the authors' semi-supervised program, with PyG's `GCN2Conv` with shared weights for a
layer: their initial weights, their two weight decays, and at the end the epoch with the smallest validation
loss. What it computes is the same, how is not. A layer is one sparse product and one dense one, because
(1−β)P + βPW is P((1−β)I + βW). The last layers are computed only for nodes that the loss depends on: sorted
by their distance from the training (or validation) nodes these are the first so many rows of everything. And
the gradient of the layers is written out, so that their matrices are allocated once and not in each epoch.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from fastgrl.baselines.node_problems import (
    BestEpoch,
    Problem,
    SparseFeatures,
    cross_entropy,
    descend,
    dropped,
    kept,
    number,
    packages,
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
    epochs: int = 1500,
    layers: int = 64,
    hidden: int = 64,
    dropout: float = 0.6,
    alpha: float = 0.1,
    theta: float = 0.5,
    layer_decay: float = 0.01,
    dense_decay: float = 5e-4,
    learning_rate: float = 0.01,
    patience: int | None = 100,
    threads: int | None = None,
    progress: Progress | None = None,
) -> Outcome:
    """Train a GCNII on the dataset's training nodes, with the settings published for Cora unless told.

    H₀ = relu(X U + u), Hₗ = relu(((1−α)ÂHₗ₋₁ + αH₀)((1−βₗ)I + βₗWₗ)) with βₗ = ln(θ/l + 1), and scores
    are H V + v of the last of the `layers`; Â = D̃^-½(A + I)D̃^-½ and rows of X sum to 1. Adam minimises the
    cross-entropy with `layer_decay` on Wₗ and `dense_decay` on U, u, V and v, and stops when the validation
    loss has not fallen for `patience` epochs (None: after all `epochs`). The weights of the epoch with the
    smallest validation loss make the scores, or the last ones where there are no validation nodes. Where `y`
    is 2-D the labels are independent. The same seed and number of threads give the same bits. Needs the
    extra [baselines].
    """
    settings = {
        "seed": integer("seed", seed, least=0, most=LARGEST_SEED),
        "epochs": integer("epochs", epochs, least=1),
        "layers": integer("layers", layers, least=1),
        "hidden": integer("hidden", hidden, least=1),
        "dropout": number("dropout", dropout, below=1.0),
        "alpha": number("alpha", alpha, below=1.0),
        "theta": number("theta", theta),
        "layer_decay": number("layer_decay", layer_decay),
        "dense_decay": number("dense_decay", dense_decay),
        "learning_rate": number("learning_rate", learning_rate),
        "patience": None if patience is None else integer("patience", patience, least=1),
    }
    return train(
        dataset,
        lambda problem: _Network(problem, settings),
        lambda network: _fit(network, settings, progress),
        settings=settings,
        threads=threads,
    )


Pair = tuple[Any, Any]


@dataclass(frozen=True, eq=False)
class _Rows:
    """What the scores of `nodes` depend on; `steps` has each layer's rows of (1−α)Â, and their transpose."""

    nodes: Any
    features: SparseFeatures
    steps: list[Pair]

    @classmethod
    def of(cls, reach: Reach, *, alpha: float) -> _Rows:
        distinct = {part.shape: (1 - alpha) * part for part in reach.parts}  # most layers have the same rows
        pairs = {shape: (torch_csr(part), torch_csr(part.T.tocsr())) for shape, part in distinct.items()}
        return cls(reach.nodes, reach.features, [pairs[part.shape] for part in reach.parts])


class _Network:
    """The weights, and the rows that the training and the validation loss depend on."""

    def __init__(self, problem: Problem, settings: dict[str, Any]):
        torch = packages()[0]
        self.problem, self.settings = problem, settings
        layers, h, width = settings["layers"], settings["hidden"], problem.features.width
        self.first = torch.nn.Parameter(_uniform(width, h, scale=width))
        self.bias = torch.nn.Parameter(_uniform(h, scale=width))
        self.weights = torch.nn.Parameter(_uniform(layers, h, h, scale=h))
        self.last = torch.nn.Linear(h, len(problem.classes))
        self.betas = torch.log1p(settings["theta"] / torch.arange(1, layers + 1))[:, None, None]
        self.train_rows, self.validation_rows = map(self._rows, (problem.train, problem.validation))
        self.buffers = [tuple(torch.empty(2, len(A), h)) for A, _ in self.train_rows.steps]

    @property
    def dense(self) -> list[Any]:
        return [self.first, self.bias, *self.last.parameters()]

    def training_loss(self) -> Any:
        rows, dropout = self.train_rows, self.settings["dropout"]
        start = self._start(rows, dropout)
        stack = _Stack(rows.steps, self.buffers, self.settings["alpha"], dropout)
        mixers = self._mixers() / (1 - dropout)  # relu lets the factor through
        H = _differentiable()(stack, dropped(start, dropout), start, mixers)
        return cross_entropy(self.problem, self.last(H), rows.nodes)

    def validation_loss(self) -> float:
        rows = self.validation_rows
        with packages()[0].no_grad():
            return float(cross_entropy(self.problem, self._scores(rows), rows.nodes))

    def scores(self) -> Any:
        torch = packages()[0]
        rows = self._rows(torch.arange(len(self.problem.targets)))
        scores = self._scores(rows)
        return torch.empty_like(scores).index_copy_(0, rows.nodes, scores)

    def _scores(self, rows: _Rows) -> Any:
        start = self._start(rows, 0.0)
        spare = packages()[0].empty(3, *start.shape)
        buffers = [
            (spare[2, : len(A)], spare[layer % 2, : len(A)]) for layer, (A, _) in enumerate(rows.steps)
        ]
        stack = _Stack(rows.steps, buffers, self.settings["alpha"], 0.0)
        return self.last(stack.forward(start, start, self._mixers()))

    def _rows(self, nodes: Any) -> _Rows:
        return _Rows.of(
            Reach.of(self.problem, nodes, layers=self.settings["layers"]), alpha=self.settings["alpha"]
        )

    def _start(self, rows: _Rows, dropout: float) -> Any:
        return (rows.features.times(self.first, dropout) + self.bias).relu_()

    def _mixers(self) -> Any:
        """(1−βₗ)I + βₗWₗ of all layers."""
        return self.betas * self.weights + (1 - self.betas) * packages()[0].eye(self.weights.shape[1])


def _uniform(*shape: int, scale: int) -> Any:
    return packages()[0].empty(*shape).uniform_(-(scale**-0.5), scale**-0.5)


@dataclass(frozen=True, eq=False)
class _Stack:
    """All layers between the dense ones. Of each, two buffers keep P = (1−α)ÂH + αH₀ and the layer's H."""

    steps: list[Pair]
    buffers: list[Pair]
    alpha: float
    dropout: float

    def forward(self, H: Any, start: Any, mixers: Any) -> Any:
        torch = packages()[0]
        for (A, _), (P, out), mixer in zip(self.steps, self.buffers, mixers, strict=True):
            torch.addmm(start[: len(P)], A, H, beta=self.alpha, out=P)
            H = torch.mm(P, mixer, out=out).relu_()
            if self.dropout:
                H.mul_(kept(H.shape, self.dropout))
        return H

    def backward(self, gradient: Any, start: Any, mixers: Any) -> tuple[Any, Any, Any]:
        """Gradients for H, H₀ and the mixers; the buffers are written over."""
        torch = packages()[0]
        of_start, of_mixers = torch.zeros_like(start), torch.empty_like(mixers)
        for layer in reversed(range(len(mixers))):
            P, H = self.buffers[layer]
            H.sign_().mul_(gradient)  # what relu or dropout set to 0 lets nothing through
            torch.mm(P.T, H, out=of_mixers[layer])
            torch.mm(H, mixers[layer].T, out=P)
            of_start[: len(P)].add_(P, alpha=self.alpha)
            gradient = self.steps[layer][1] @ P
        return gradient, of_start, of_mixers


@functools.cache
def _differentiable() -> Callable[..., Any]:
    Function: Any = packages()[0].autograd.Function

    class Layers(Function):  # type: ignore[misc]
        @staticmethod
        def forward(context: Any, stack: _Stack, H: Any, start: Any, mixers: Any) -> Any:
            context.stack = stack
            context.save_for_backward(start, mixers)
            return stack.forward(H, start, mixers).clone()

        @staticmethod
        def backward(context: Any, gradient: Any) -> tuple[Any, ...]:
            return None, *context.stack.backward(gradient, *context.saved_tensors)

    apply: Callable[..., Any] = Layers.apply
    return apply


def _fit(network: _Network, settings: dict[str, Any], progress: Progress | None) -> int:
    groups = [
        {"params": [network.weights], "weight_decay": settings["layer_decay"]},
        {"params": network.dense, "weight_decay": settings["dense_decay"]},
    ]
    adam = packages()[0].optim.Adam(groups, lr=settings["learning_rate"])
    best, costs = BestEpoch([network.weights, *network.dense], settings["patience"]), [math.inf]

    def stop() -> bool:
        costs.append(network.validation_loss())
        lowest = costs[-1] < min(costs[:-1])
        return best.passed(best=lowest, hopeful=lowest)

    epochs = descend(network, adam, epochs=settings["epochs"], stop=stop, progress=progress)
    best.restore()
    return epochs
