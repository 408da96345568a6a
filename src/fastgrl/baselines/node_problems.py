"""What networks that classify nodes share: a dataset as torch wants it, sparse products, the descent."""

from __future__ import annotations

import functools
import math
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

import numpy as np
import scipy.sparse as sp

from fastgrl.baselines.outcomes import Outcome, Progress
from fastgrl.checks import Array, integer, shown
from fastgrl.datasets.records import NodeDataset
from fastgrl.errors import ArgumentError
from fastgrl.frames import library
from fastgrl.metrics import accuracy
from fastgrl.summaries import peak_memory

MISSING = "This baseline needs torch and torch_geometric: pip install 'fastgrl[baselines]'"


@functools.cache
def packages() -> tuple[Any, Any]:
    """`torch` and `torch_geometric.nn`, or an error that names the extra."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of torch's own deprecations, while it is imported
        return library("torch", MISSING), library("torch_geometric.nn", MISSING)


# The data.


@dataclass(frozen=True, eq=False)
class Problem:
    """A dataset as torch wants it: D̃^-½(A + I)D̃^-½ and sparse features with rows that sum to 1.

    `train` and `validation` are tensors of node numbers. `targets` are class numbers, which are places in
    `classes`, or 0/1 rows when `multilabel`; those of test nodes are there too and never looked at.
    """

    adjacency: Any
    features: SparseFeatures
    targets: Any
    train: Any
    validation: Any
    classes: Array
    multilabel: bool


def prepare(dataset: NodeDataset) -> Problem:
    """What every training on a dataset shares, made once."""
    torch = packages()[0]
    if dataset.graph.directed:
        raise ArgumentError(
            "this method is defined for undirected graphs; build the graph with directed=False "
            "to forget directions"
        )
    if not len(dataset.train):
        raise ArgumentError(f"{shown(dataset.name)} has no training nodes; give it some")
    classes, targets = known_targets(dataset)
    numbers = {
        name: torch.from_numpy(np.array(getattr(dataset, name), np.int64)) for name in ("train", "validation")
    }
    return Problem(
        adjacency=normalised_adjacency(dataset),
        features=SparseFeatures.of(rows_to_sum_one(node_features(dataset))),
        targets=torch.from_numpy(targets),
        classes=classes,
        multilabel=dataset.y.ndim == 2,
        **numbers,
    )


def known_targets(dataset: NodeDataset) -> tuple[Array, Array]:
    """The classes that are known, and the number of each node's class; any number where it is not known."""
    if dataset.y.ndim == 2:
        return np.arange(dataset.y.shape[1]), np.maximum(dataset.y, 0).astype(np.float32)
    classes = np.unique(dataset.y[np.concatenate([dataset.train, dataset.validation])])
    numbers = np.minimum(np.searchsorted(classes, dataset.y), len(classes) - 1)
    return classes, numbers.astype(np.int64)


def node_features(dataset: NodeDataset) -> Any:
    """The dataset's features; nodes without have themselves for one, as in Kipf's and Welling's program."""
    if dataset.X is None or not dataset.X.shape[1]:
        return sp.eye_array(dataset.graph.num_nodes, format="csr")
    return dataset.X


def rows_to_sum_one(X: Any) -> sp.csr_array:
    """Each row divided by its sum, in float32; rows that sum to 0 become 0."""
    X = sp.csr_array(X, dtype=np.float32)
    sums = np.asarray(X.sum(axis=1), np.float32)
    scale = np.divide(1, sums, out=np.zeros_like(sums), where=sums != 0)
    return sp.csr_array((X.data * np.repeat(scale, np.diff(X.indptr)), X.indices, X.indptr), shape=X.shape)


def normalised_adjacency(dataset: NodeDataset) -> Any:
    """Â = D̃^-½(A + I)D̃^-½ in torch's CSR. PyG computes it once here instead of once in each layer."""
    torch = packages()[0]
    A = dataset.graph.to_scipy().tocoo()
    edges = torch.from_numpy(np.stack(A.coords).astype(np.int64))
    weights = torch.from_numpy(A.data.astype(np.float32))
    normalise = library("torch_geometric.nn.conv.gcn_conv", MISSING).gcn_norm
    edges, weights = normalise(edges, weights, num_nodes=A.shape[0])
    return torch_csr(sp.coo_array((weights.numpy(), tuple(edges.numpy())), shape=A.shape).tocsr())


# Sparse products.


def torch_csr(matrix: sp.csr_array) -> Any:
    """A SciPy CSR matrix as torch's, with indices of 32 bits where they fit: MKL would convert others."""
    torch = packages()[0]
    index = np.int32 if max(matrix.nnz, *matrix.shape) < 2**31 else np.int64
    parts = (matrix.indptr.astype(index), matrix.indices.astype(index), matrix.data)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Sparse CSR tensor support is in beta")
        return torch.sparse_csr_tensor(*map(torch.from_numpy, parts), matrix.shape, check_invariants=False)


def with_values(matrix: Any, values: Any) -> Any:
    """A torch CSR matrix with the same pattern and these values."""
    torch = packages()[0]
    rows, columns = matrix.crow_indices(), matrix.col_indices()
    return torch.sparse_csr_tensor(rows, columns, values, matrix.shape, check_invariants=False)


def product(matrix: Any, transposed: Any, dense: Any) -> Any:
    """A sparse matrix times a dense one; gradients reach the dense one through the `transposed` given.

    Of itself torch would transpose the sparse matrix anew for every gradient.
    """
    return _product()(matrix, transposed, dense)


@functools.cache
def _product() -> Callable[[Any, Any, Any], Any]:
    Function: Any = packages()[0].autograd.Function

    class Product(Function):  # type: ignore[misc]
        @staticmethod
        def forward(context: Any, matrix: Any, transposed: Any, dense: Any) -> Any:
            context.transposed = transposed
            return matrix @ dense

        @staticmethod
        def backward(context: Any, gradient: Any) -> tuple[None, None, Any]:
            return None, None, context.transposed @ gradient

    apply: Callable[[Any, Any, Any], Any] = Product.apply
    return apply


@dataclass(frozen=True, eq=False)
class SparseFeatures:
    """Sparse features and their transpose, whose values are those of the features in another order."""

    matrix: Any
    transposed: Any
    order: Any

    @classmethod
    def of(cls, X: sp.csr_array) -> SparseFeatures:
        numbers = sp.csr_array((np.arange(X.nnz), X.indices, X.indptr), shape=X.shape).T.tocsr()
        transposed = sp.csr_array(
            (X.data[numbers.data], numbers.indices, numbers.indptr), shape=X.shape[::-1]
        )
        return cls(torch_csr(X), torch_csr(transposed), packages()[0].from_numpy(numbers.data))

    @property
    def width(self) -> int:
        return int(self.matrix.shape[1])

    def times(self, weights: Any, dropout: float) -> Any:
        """The product with dense weights; a share of the features' values is forgotten, the rest grows."""
        if not dropout:
            return product(self.matrix, self.transposed, weights)
        values = self.matrix.values()
        # Uniform numbers are drawn twice as fast here as coins are tossed.
        values = values * (packages()[0].rand(len(values)) >= dropout) / (1 - dropout)
        return product(
            with_values(self.matrix, values),
            with_values(self.transposed, values.index_select(0, self.order)),
            weights,
        )


# Dropout.


def kept(shape: Sequence[int], dropout: float) -> Any:
    """Floats that are 0 with probability `dropout` and else 1, drawn ten times as fast as torch's own do.

    One draw of 64 bits decides four numbers, so the probability is rounded to a multiple of 2^-16.
    """
    torch = packages()[0]
    count = math.prod(shape)
    draws = torch.empty(-(-count // 4), dtype=torch.int64).random_(-(2**63), None)
    numbers = draws.view(torch.int16)[:count].view(tuple(shape)).to(torch.float32)
    return numbers.ge_(round(dropout * 2**16) - 2**15)


def dropped(values: Any, dropout: float) -> Any:
    """Values forgotten with probability `dropout`, the rest scaled up so that the mean stays."""
    return values * kept(values.shape, dropout).div_(1 - dropout) if dropout else values


# The descent.


class Network(Protocol):
    """A network on a problem: `scores` is n×C, without dropout; `training_loss` is what is descended."""

    @property
    def problem(self) -> Problem: ...

    def scores(self) -> Any: ...

    def training_loss(self) -> Any: ...


AnyNetwork = TypeVar("AnyNetwork", bound=Network)


def loss(problem: Problem, scores: Any, nodes: Any) -> Any:
    """Cross-entropy of these nodes' rows of all scores, or of independent labels where there are several."""
    return cross_entropy(problem, scores[nodes], nodes)


def cross_entropy(problem: Problem, scores: Any, nodes: Any) -> Any:
    """The same, of scores that have a row for these nodes only."""
    F, targets = packages()[0].nn.functional, problem.targets[nodes]
    if problem.multilabel:
        # Summed over labels as cross-entropy is over classes: weight decay is as strong beside it.
        return F.binary_cross_entropy_with_logits(scores, targets) * targets.shape[1]
    return F.cross_entropy(scores, targets)


def descend(
    network: Network,
    optimiser: Any,
    *,
    epochs: int,
    stop: Callable[[], bool] | None = None,
    progress: Progress | None = None,
) -> int:
    """Make up to `epochs` steps down the training loss, and return how many were made.

    After each, `stop` is asked if that was the last, provided that there are validation nodes to ask about.
    """
    for epoch in range(1, epochs + 1):
        optimiser.zero_grad()
        network.training_loss().backward()
        optimiser.step()
        if progress is not None:
            progress(epoch, epochs)
        if stop is not None and len(network.problem.validation) and stop():
            return epoch
    return epochs


class BestEpoch:
    """The parameters as they were at the best epoch so far, and how long there has been no hope since."""

    def __init__(self, parameters: Iterable[Any], patience: int | None):
        self.parameters, self.patience = list(parameters), patience
        self.kept: list[Any] | None = None
        self.waited = 0

    def passed(self, *, best: bool, hopeful: bool) -> bool:
        """Note an epoch, kept if it was the `best`; True after `patience` epochs on end without hope."""
        if best:
            self.kept = [parameter.detach().clone() for parameter in self.parameters]
        self.waited = 0 if hopeful else self.waited + 1
        return self.waited == self.patience

    def restore(self) -> None:
        """Set the parameters to those kept, if any were."""
        with packages()[0].no_grad():
            for parameter, kept in zip(self.parameters, self.kept or self.parameters, strict=True):
                parameter.copy_(kept)


def train(
    dataset: NodeDataset | Problem,
    build: Callable[[Problem], AnyNetwork],
    fit: Callable[[AnyNetwork], int],
    *,
    settings: dict[str, Any],
    threads: int | None,
) -> Outcome:
    """Build a network on a dataset (or on what `prepare` made of it), fit it, and ask it about every node.

    `fit` returns the number of epochs. Random numbers come from `settings["seed"]`; torch's own random state
    and its number of threads are as before afterwards.
    """
    torch = packages()[0]
    begin = time.perf_counter()
    problem = dataset if isinstance(dataset, Problem) else prepare(dataset)
    with torch.random.fork_rng(devices=[]), torch_threads(threads):
        torch.manual_seed(settings["seed"])
        network = build(problem)
        started = time.perf_counter()
        epochs = fit(network)
        trained = time.perf_counter()
        with torch.no_grad():
            scores = network.scores().numpy()
    predictions = predicted(problem, scores)
    seconds = {"train": trained - started, "total": time.perf_counter() - begin}
    validation = validation_accuracy(problem, predictions)
    return Outcome(scores, predictions, validation, seconds, settings, epochs, peak_memory())


def predicted(problem: Problem, scores: Array) -> Array:
    """The class with the largest score, or all labels with positive ones."""
    return (scores > 0).astype(np.int64) if problem.multilabel else problem.classes[scores.argmax(1)]


def validation_accuracy(problem: Problem, predictions: Array) -> float | None:
    """The accuracy on the validation nodes, None where there are none."""
    nodes = problem.validation.numpy()
    if not len(nodes):
        return None
    targets = problem.targets.numpy()[nodes]
    return accuracy(targets if problem.multilabel else problem.classes[targets], predictions[nodes])


# The surroundings.


def number(name: str, value: Any, *, below: float = math.inf) -> float:
    """`value` as a number of at least 0 and below a limit.

    >>> number("dropout", 0.5, below=1.0)
    0.5
    """
    numeric = isinstance(value, int | float | np.floating) and not isinstance(value, bool)
    if not numeric or not 0 <= value < below:
        limit = "" if below == math.inf else f" and below {below:g}"
        raise ArgumentError(f"{name} must be a number of at least 0{limit}, got {shown(value)}")
    return float(value)


@contextmanager
def torch_threads(threads: int | None) -> Iterator[None]:
    """Run the body with this many threads of torch's; None keeps what was in force."""
    torch = packages()[0]
    before = torch.get_num_threads()
    torch.set_num_threads(before if threads is None else integer("threads", threads, least=1))
    try:
        yield
    finally:
        torch.set_num_threads(before)
