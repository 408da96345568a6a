"""Planetoid-T: node vectors that predict contexts, and with the features the classes; in plain PyTorch.

Reference: Yang, Cohen, Salakhutdinov, *Revisiting Semi-Supervised Learning with Graph Embeddings*, 2016.

The transductive variant, after the authors' program. Contexts of a node are those near by in a random walk
and, of training nodes, others of their class. Vectors first learn to predict contexts, by negative sampling
or by a softmax over all nodes: batches by label, then batches by walk. Then gradient descent on the classes
changes vectors and weights, with further batches of contexts between if asked for. Different are:

- The epoch is chosen on validation nodes, where theirs prints the best accuracy on test nodes.
- The walks of a pass over the nodes are made at once, and negatives and contexts of a batch in arrays.
- The paper has contexts within 3 steps on every dataset; the program, set for Citeseer, also has
  `negatives=0`. The defaults here are for Cora, with contexts within 10 steps, and were chosen on its
  validation nodes; so were Pubmed's on its own. The paper tells neither's numbers of steps.
- `feature_scale` is new: where features are far below 1, as in Pubmed, the vectors have learnt all training
  nodes before the features have begun.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp

from fastgrl.baselines.node2vec import random_walks
from fastgrl.baselines.node_problems import (
    BestEpoch,
    Problem,
    SparseFeatures,
    cross_entropy,
    descend,
    node_features,
    number,
    packages,
    train,
)
from fastgrl.baselines.outcomes import Outcome, Progress
from fastgrl.checks import Array, integer
from fastgrl.datasets.records import NodeDataset
from fastgrl.errors import ArgumentError
from fastgrl.fsvd import LARGEST_SEED
from fastgrl.graph import Graph


def run(
    dataset: NodeDataset,
    *,
    seed: int = 0,
    epochs: int = 1000,
    rank: int = 50,
    label_steps: int = 2000,
    graph_steps: int = 70,
    graph_rate: float = 0.0,
    label_rate: float = 0.0,
    walk_steps: int = 10,
    window: int = 10,
    walk_batch: int = 200,
    label_batch: int = 100,
    negatives: int = 5,
    context_learning_rate: float = 0.01,
    learning_rate: float = 0.1,
    feature_scale: float = 1.0,
    threads: int | None = None,
    progress: Progress | None = None,
) -> Outcome:
    """Learn n×`rank` vectors E that predict contexts, and classes from E and X together.

    Scores are [softmax(X W₁ + b₁), softmax(E W₂ + b₂)] W₃ + b₃. First come `label_steps` batches of contexts
    by label (`label_batch` training nodes with another of their class each), then `graph_steps` by walk
    (`walk_batch` walks of `walk_steps` steps; contexts are at most `window` steps away), each a step down
    Σ −log σ(e_u·c_v) − Σ log σ(−e_u·c_w), with `negatives` nodes w for every context v: of other classes, or
    any; 0 stands for a softmax over all nodes instead. Then `epochs` of descent on the cross-entropy of the
    scores and of both their parts; after each come `graph_rate` and `label_rate` further batches on average.
    X is multiplied by `feature_scale` beforehand. The first epoch with the best validation accuracy counts
    (without validation nodes, the last). Steps are down sums, not means: small graphs need a smaller
    `walk_batch`. The same seed and number of threads give the same bits; torch's own random state and
    threads are as before afterwards. Needs the extra [baselines].
    """
    settings = {
        "seed": integer("seed", seed, least=0, most=LARGEST_SEED),
        "epochs": integer("epochs", epochs, least=1),
        "rank": integer("rank", rank, least=1),
        "label_steps": integer("label_steps", label_steps, least=0),
        "graph_steps": integer("graph_steps", graph_steps, least=0),
        "graph_rate": number("graph_rate", graph_rate),
        "label_rate": number("label_rate", label_rate),
        "walk_steps": integer("walk_steps", walk_steps, least=1),
        "window": integer("window", window, least=1),
        "walk_batch": integer("walk_batch", walk_batch, least=1),
        "label_batch": integer("label_batch", label_batch, least=1),
        "negatives": integer("negatives", negatives, least=0),
        "context_learning_rate": number("context_learning_rate", context_learning_rate),
        "learning_rate": number("learning_rate", learning_rate),
        "feature_scale": number("feature_scale", feature_scale),
    }
    packages()
    if dataset.y.ndim == 2:
        raise ArgumentError(
            "Planetoid is defined for one class per node, and y has several labels; choose a column of it"
        )
    return train(
        dataset,
        lambda problem: _build(problem, dataset, settings),
        lambda network: _fit(network, _Contexts.of(dataset, network, settings), settings, progress),
        settings=settings,
        threads=threads,
    )


def _build(problem: Problem, dataset: NodeDataset, settings: dict[str, Any]) -> _Network:
    X = sp.csr_array(node_features(dataset), dtype=np.float32) * np.float32(settings["feature_scale"])
    problem = dataclasses.replace(problem, features=SparseFeatures.of(X))
    return _Network.of(problem, X, settings["rank"])


# Contexts.


@dataclass(frozen=True, eq=False)
class _Batch:
    """Nodes, contexts of each (a row per node), which of them count, and negatives of each context."""

    nodes: Array
    contexts: Array
    counts: Array
    negatives: Array

    @property
    def columns(self) -> Array:
        return np.concatenate([self.contexts, self.negatives.reshape(len(self.nodes), -1)], axis=1)

    @property
    def signs(self) -> Array:
        """1 for contexts, −1 for negatives, 0 for what does not count."""
        counts = self.counts.astype(np.float32)
        return np.concatenate([counts, -np.repeat(counts, self.negatives.shape[2], axis=1)], axis=1)


def _walk_batches(graph: Graph, settings: dict[str, Any], rng: np.random.Generator) -> Iterator[_Batch]:
    """Walks from all nodes in random order, pass after pass; a graph without edges has empty batches."""
    size = settings["walk_batch"]
    while True:
        seed = int(rng.integers(2**63))
        walks = random_walks(graph, length=settings["walk_steps"] + 1, walks_per_node=1, seed=seed)
        order = rng.permutation(graph.num_nodes)
        for first in range(0, len(order), size):
            rows = walks[order[first : first + size]]
            yield _of_walks(rows[rows[:, 1] >= 0], graph.num_nodes, settings, rng)


def _of_walks(walks: Array, num_nodes: int, settings: dict[str, Any], rng: np.random.Generator) -> _Batch:
    places = np.arange(walks.shape[1])[:, None] + np.arange(-settings["window"], settings["window"] + 1)
    inside = (places >= 0) & (places < walks.shape[1])
    contexts = walks[:, np.clip(places, 0, walks.shape[1] - 1)].reshape(-1, places.shape[1])
    negatives = rng.integers(0, num_nodes, (*contexts.shape, settings["negatives"]))
    return _Batch(walks.ravel(), contexts, np.tile(inside, (len(walks), 1)), negatives)


@dataclass(frozen=True, eq=False)
class _Labels:
    """Training nodes by class: class c has `sizes[c]` of them from `starts[c]` on."""

    nodes: Array
    classes: Array
    sizes: Array
    starts: Array

    @classmethod
    def of(cls, problem: Problem) -> _Labels:
        nodes = problem.train.numpy()
        classes = problem.targets.numpy()[nodes]
        order, sizes = np.argsort(classes, kind="stable"), np.bincount(classes)
        return cls(nodes[order], classes[order], sizes, np.cumsum(sizes) - sizes)

    def batches(self, settings: dict[str, Any], rng: np.random.Generator) -> Iterator[_Batch]:
        # A class without others says nothing.
        size = settings["label_batch"] if np.count_nonzero(self.sizes) > 1 else 0
        counts = np.ones((size, 1), bool)
        while True:
            chosen = rng.integers(0, len(self.nodes), size)
            same = self._same(self.classes[chosen], rng)
            others = self._others(np.tile(self.classes[chosen], (settings["negatives"], 1)).T, rng)
            yield _Batch(self.nodes[chosen], same[:, None], counts, others[:, None])

    def _same(self, classes: Array, rng: np.random.Generator) -> Array:
        return np.asarray(self.nodes[self.starts[classes] + _below(self.sizes[classes], rng)])

    def _others(self, classes: Array, rng: np.random.Generator) -> Array:
        places = _below(len(self.nodes) - self.sizes[classes], rng)
        return np.asarray(
            self.nodes[np.where(places < self.starts[classes], places, places + self.sizes[classes])]
        )


def _below(limits: Array, rng: np.random.Generator) -> Array:
    return (rng.random(limits.shape) * limits).astype(np.int64)


@dataclass(frozen=True, eq=False)
class _Contexts:
    """The descent on contexts, which changes the vectors and what they are multiplied with."""

    vectors: Any
    partners: Any
    biases: Any
    learning_rate: float
    softmax: bool
    by_label: Iterator[_Batch]
    by_walk: Iterator[_Batch]
    rng: np.random.Generator

    @classmethod
    def of(cls, dataset: NodeDataset, network: _Network, settings: dict[str, Any]) -> _Contexts:
        torch, nn = packages()
        rng = np.random.Generator(np.random.Philox(settings["seed"]))
        partners = torch.randn(network.vectors.shape) / 100
        if not settings["negatives"]:
            nn.inits.glorot(partners)
        return cls(
            vectors=network.vectors.detach(),
            partners=partners,
            biases=torch.zeros(len(partners)),
            learning_rate=settings["context_learning_rate"],
            softmax=not settings["negatives"],
            by_label=_Labels.of(network.problem).batches(settings, rng),
            by_walk=_walk_batches(dataset.graph, settings, rng),
            rng=rng,
        )

    def follow(self, batches: Iterator[_Batch], rate: float) -> None:
        """As many steps as `rate` says, on average."""
        for _ in range(int(rate + self.rng.random())):
            self.step(next(batches))

    def step(self, batch: _Batch) -> None:
        if len(batch.nodes):
            (self._softmax_step if self.softmax else self._sampled_step)(batch)

    def _sampled_step(self, batch: _Batch) -> None:
        torch, columns = packages()[0], batch.columns
        nodes, signs = torch.from_numpy(batch.nodes), torch.from_numpy(batch.signs)
        E = self.vectors.index_select(0, nodes)
        C = self.partners.index_select(0, torch.from_numpy(columns.ravel())).view(*columns.shape, -1)
        push = signs * torch.sigmoid(-signs * (C @ E[:, :, None])[:, :, 0]) * self.learning_rate
        ends = np.arange(0, columns.size + 1, columns.shape[1])
        S = sp.csr_array((push.numpy().ravel(), columns.ravel(), ends), shape=(len(E), len(self.partners)))
        self.partners.add_(torch.from_numpy(S.T @ E.numpy()))
        self.vectors.index_add_(0, nodes, (push[:, None] @ C)[:, 0])

    def _softmax_step(self, batch: _Batch) -> None:
        torch = packages()[0]
        nodes, rows = np.unique(batch.nodes, return_inverse=True)
        times = np.bincount(rows, batch.counts.sum(1)).astype(np.float32)
        pairs = (rows[:, None] * len(self.partners) + batch.contexts)[batch.counts]
        at = torch.from_numpy(nodes)
        E = self.vectors.index_select(0, at)
        G = torch.addmm(self.biases, E, self.partners.T).softmax(1).mul_(torch.from_numpy(times)[:, None])
        G.view(-1).index_add_(0, torch.from_numpy(pairs), torch.full((len(pairs),), -1.0))
        self.vectors.index_add_(0, at, G @ self.partners, alpha=-self.learning_rate)
        self.partners.addmm_(G.T, E, alpha=-self.learning_rate)
        self.biases.sub_(G.sum(0), alpha=self.learning_rate)


# Classes.


@dataclass(frozen=True, eq=False)
class _Network:
    problem: Problem
    vectors: Any
    of_features: Any  # these three are affine maps to the classes
    of_vectors: Any
    of_both: Any
    rows: dict[str, SparseFeatures]  # features of the training and the validation nodes

    @classmethod
    def of(cls, problem: Problem, X: sp.csr_array, rank: int) -> _Network:
        torch, classes = packages()[0], len(problem.classes)
        vectors = torch.nn.Parameter(torch.randn(X.shape[0], rank) / 100)
        one, other, both = (_affine(columns, classes) for columns in (X.shape[1], rank, 2 * classes))
        rows = {
            name: SparseFeatures.of(X[getattr(problem, name).numpy()]) for name in ("train", "validation")
        }
        return cls(problem, vectors, one, other, both, rows)

    @property
    def parameters(self) -> list[Any]:
        maps = (self.of_features, self.of_vectors, self.of_both)
        return [self.vectors, *(part for affine in maps for part in affine.parameters())]

    def parts(self, features: SparseFeatures, vectors: Any) -> tuple[Any, Any, Any]:
        """Scores by features, by vectors, and by both."""
        one = features.times(self.of_features.weight.T, 0.0) + self.of_features.bias
        other = self.of_vectors(vectors)
        both = packages()[0].cat([one.softmax(1), other.softmax(1)], 1)
        return one, other, self.of_both(both)

    def scores(self) -> Any:
        return self.parts(self.problem.features, self.vectors)[2]

    def training_loss(self) -> Any:
        nodes = self.problem.train
        parts = self.parts(self.rows["train"], self.vectors[nodes])
        return sum(cross_entropy(self.problem, part, nodes) for part in parts)

    def validated(self) -> float:
        nodes = self.problem.validation
        with packages()[0].no_grad():
            scores = self.parts(self.rows["validation"], self.vectors[nodes])[2]
        return float((scores.argmax(1) == self.problem.targets[nodes]).double().mean())


def _affine(columns: int, classes: int) -> Any:
    torch, nn = packages()
    affine = torch.nn.Linear(columns, classes)
    nn.inits.glorot(affine.weight)
    nn.inits.zeros(affine.bias)
    return affine


def _fit(network: _Network, contexts: _Contexts, settings: dict[str, Any], progress: Progress | None) -> int:
    tell = _Told(progress, settings["label_steps"] + settings["graph_steps"] + settings["epochs"])
    for batches, steps in (
        (contexts.by_label, settings["label_steps"]),
        (contexts.by_walk, settings["graph_steps"]),
    ):
        for _ in range(steps):
            contexts.step(next(batches))
            tell()
    sgd = packages()[0].optim.SGD(network.parameters, lr=settings["learning_rate"])
    best, found = BestEpoch(network.parameters, None), [-1.0]

    def between(*_: Any) -> None:
        contexts.follow(contexts.by_walk, settings["graph_rate"])
        contexts.follow(contexts.by_label, settings["label_rate"])

    def stop() -> bool:
        now = network.validated()
        better = now > max(found)
        found.append(now)
        return best.passed(best=better, hopeful=True)

    sgd.register_step_post_hook(between)
    made = descend(network, sgd, epochs=settings["epochs"], stop=stop, progress=tell)
    best.restore()
    if not np.isfinite(contexts.vectors.numpy()).all():
        raise ArgumentError(
            f"the descent on contexts diverged; try a context_learning_rate below "
            f"{settings['context_learning_rate']:g}, or a smaller walk_batch or label_batch"
        )
    return made


@dataclass
class _Told:
    """Progress over all steps, those on contexts included."""

    progress: Progress | None
    total: int
    done: int = 0

    def __call__(self, *_: int) -> None:
        self.done += 1
        if self.progress is not None:
            self.progress(self.done, self.total)
