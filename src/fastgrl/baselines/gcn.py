"""GCN: two layers that average over neighbours, trained by gradient descent. Features stay sparse.

Reference: Kipf, Welling, *Semi-Supervised Classification with Graph Convolutional Networks*, 2017.
"""

from __future__ import annotations

import functools
import math
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp

from fastgrl.checks import Array, integer, shown
from fastgrl.datasets.records import NodeDataset
from fastgrl.errors import ArgumentError
from fastgrl.frames import library
from fastgrl.fsvd import LARGEST_SEED
from fastgrl.metrics import accuracy

Progress = Callable[[int, int], None]

_MISSING = "GCN needs torch and torch_geometric: pip install 'fastgrl[baselines]'"


@dataclass(frozen=True, eq=False)
class Outcome:
    """A trained GCN: n×C `scores` and the `predictions` they make, one per node of the graph.

    `validation` is the accuracy on the dataset's validation nodes, None where it has none. `seconds` has
    "train", the descent alone, and "total", with what comes before and after it; `epochs` counts those run.
    """

    scores: Array
    predictions: Array
    validation: float | None
    seconds: dict[str, float]
    epochs: int
    settings: dict[str, Any]


@dataclass(frozen=True, eq=False)
class Problem:
    """A dataset as torch wants it: D̃^-½(A + I)D̃^-½ and sparse features with rows that sum to 1."""

    adjacency: Any
    features: _Sparse
    targets: Any  # class numbers, or 0/1 rows when multi-label
    train: Any
    validation: Any
    classes: Array
    multilabel: bool


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

    Scores are Â relu(Â X W₁ + b₁) W₂ + b₂ with Â = D̃^-½(A + I)D̃^-½ and rows of X that sum to 1. As in
    the authors' program, Adam minimises the cross-entropy with weight decay on the first layer, and stops
    when the validation loss is above its mean over the `patience` epochs before (None: after all `epochs`).
    Where `y` is 2-D the labels are independent. Of several trainings each can be given what `prepare` made
    once. The same seed and number of threads give the same bits; torch's own random state and threads are
    as before afterwards. Needs the extra [baselines].
    """
    begin, torch = time.perf_counter(), packages()[0]
    settings = {
        "seed": integer("seed", seed, least=0, most=LARGEST_SEED),
        "epochs": integer("epochs", epochs, least=1),
        "hidden": integer("hidden", hidden, least=1),
        "dropout": _number("dropout", dropout, below=1.0),
        "weight_decay": _number("weight_decay", weight_decay),
        "learning_rate": _number("learning_rate", learning_rate),
        "patience": None if patience is None else integer("patience", patience, least=1),
    }
    problem = dataset if isinstance(dataset, Problem) else prepare(dataset)
    with torch.random.fork_rng(devices=[]), _torch_threads(threads):
        torch.manual_seed(seed)
        network = _Network.of(problem, hidden, dropout, weight_decay)
        started = time.perf_counter()
        ran = _descend(network, epochs, learning_rate, patience, progress)
        trained = time.perf_counter()
        with torch.no_grad():
            scores = network.scores().numpy()
    predictions = (scores > 0).astype(np.int64) if problem.multilabel else problem.classes[scores.argmax(1)]
    seconds = {"train": trained - started, "total": time.perf_counter() - begin}
    return Outcome(scores, predictions, _validated(problem, predictions), seconds, ran, settings)


def prepare(dataset: NodeDataset) -> Problem:
    """What every training on a dataset shares, made once."""
    torch = packages()[0]
    if dataset.graph.directed:
        raise ArgumentError(
            "GCN is defined for undirected graphs; build the graph with directed=False to forget directions"
        )
    if not len(dataset.train):
        raise ArgumentError(f"{shown(dataset.name)} has no training nodes; give it some")
    classes, targets = _targets(dataset)
    numbers = {
        name: torch.from_numpy(np.array(getattr(dataset, name), np.int64)) for name in ("train", "validation")
    }
    return Problem(
        adjacency=_normalised(dataset),
        features=_Sparse.of(_rows_to_sum_one(_features(dataset))),
        targets=torch.from_numpy(targets),
        classes=classes,
        multilabel=dataset.y.ndim == 2,
        **numbers,
    )


@functools.cache
def packages() -> tuple[Any, Any]:
    """`torch` and `torch_geometric.nn`, or an error that names the extra."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of torch's own deprecations, while it is imported
        return library("torch", _MISSING), library("torch_geometric.nn", _MISSING)


def _number(name: str, value: Any, *, below: float = math.inf) -> float:
    number = isinstance(value, int | float | np.floating) and not isinstance(value, bool)
    if not number or not 0 <= value < below:
        limit = "" if below == math.inf else f" and below {below:g}"
        raise ArgumentError(f"{name} must be a number of at least 0{limit}, got {shown(value)}")
    return float(value)


def _targets(dataset: NodeDataset) -> tuple[Array, Array]:
    """The classes that are known, and the number of each node's class; any number where it is not known."""
    if dataset.y.ndim == 2:
        return np.arange(dataset.y.shape[1]), np.maximum(dataset.y, 0).astype(np.float32)
    classes = np.unique(dataset.y[np.concatenate([dataset.train, dataset.validation])])
    numbers = np.minimum(np.searchsorted(classes, dataset.y), len(classes) - 1)
    return classes, numbers.astype(np.int64)


def _features(dataset: NodeDataset) -> Any:
    """Nodes without features have themselves for one, as in the authors' program."""
    if dataset.X is None or not dataset.X.shape[1]:
        return sp.eye_array(dataset.graph.num_nodes, format="csr")
    return dataset.X


def _rows_to_sum_one(X: Any) -> sp.csr_array:
    X = sp.csr_array(X, dtype=np.float32)
    sums = np.asarray(X.sum(axis=1), np.float32)
    scale = np.divide(1, sums, out=np.zeros_like(sums), where=sums != 0)
    return sp.csr_array((X.data * np.repeat(scale, np.diff(X.indptr)), X.indices, X.indptr), shape=X.shape)


def _normalised(dataset: NodeDataset) -> Any:
    """Â as a torch CSR matrix. PyG computes it once here instead of once in each layer that caches it."""
    torch = packages()[0]
    A = dataset.graph.to_scipy().tocoo()
    edges = torch.from_numpy(np.stack(A.coords).astype(np.int64))
    weights = torch.from_numpy(A.data.astype(np.float32))
    normalise = library("torch_geometric.nn.conv.gcn_conv", _MISSING).gcn_norm
    edges, weights = normalise(edges, weights, num_nodes=A.shape[0])
    return _csr(sp.coo_array((weights.numpy(), tuple(edges.numpy())), shape=A.shape).tocsr())


def _csr(matrix: sp.csr_array) -> Any:
    torch = packages()[0]
    parts = (matrix.indptr.astype(np.int64), matrix.indices.astype(np.int64), matrix.data)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Sparse CSR tensor support is in beta")
        return torch.sparse_csr_tensor(*map(torch.from_numpy, parts), matrix.shape, check_invariants=False)


@functools.cache
def _product() -> Callable[[Any, Any, Any], Any]:
    """M times a dense matrix, M and its transpose given: torch would transpose anew for every gradient."""
    Function: Any = packages()[0].autograd.Function

    class Product(Function):  # type: ignore[misc]
        @staticmethod
        def forward(context: Any, M: Any, transposed: Any, dense: Any) -> Any:
            context.transposed = transposed
            return M @ dense

        @staticmethod
        def backward(context: Any, gradient: Any) -> tuple[None, None, Any]:
            return None, None, context.transposed @ gradient

    apply: Callable[[Any, Any, Any], Any] = Product.apply
    return apply


@dataclass(frozen=True, eq=False)
class _Sparse:
    """Sparse features and their transpose, whose values are those of the features in another order."""

    matrix: Any
    transposed: Any
    order: Any

    @classmethod
    def of(cls, X: sp.csr_array) -> _Sparse:
        numbers = sp.csr_array((np.arange(X.nnz), X.indices, X.indptr), shape=X.shape).T.tocsr()
        transposed = sp.csr_array(
            (X.data[numbers.data], numbers.indices, numbers.indptr), shape=X.shape[::-1]
        )
        return cls(_csr(X), _csr(transposed), packages()[0].from_numpy(numbers.data))

    @property
    def width(self) -> int:
        return int(self.matrix.shape[1])

    def times(self, weights: Any, dropout: float) -> Any:
        if not dropout:
            return _product()(self.matrix, self.transposed, weights)
        values = self.matrix.values()
        # Uniform numbers are drawn twice as fast here as coins are tossed.
        values = values * (packages()[0].rand(len(values)) >= dropout) / (1 - dropout)
        return _product()(
            _with_values(self.matrix, values),
            _with_values(self.transposed, values.index_select(0, self.order)),
            weights,
        )


def _with_values(matrix: Any, values: Any) -> Any:
    torch = packages()[0]
    rows, columns = matrix.crow_indices(), matrix.col_indices()
    return torch.sparse_csr_tensor(rows, columns, values, matrix.shape, check_invariants=False)


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
        return [self.weights, self.first.bias]

    def scores(self, *, training: bool = False) -> Any:
        F, A = packages()[0].nn.functional, self.problem.adjacency
        H = self.problem.features.times(self.weights, self.dropout if training else 0.0)
        H = F.dropout(F.relu(self.first(H, A)), self.dropout, training)
        return self.second(H, A)

    def loss(self, scores: Any, nodes: Any) -> Any:
        F, targets = packages()[0].nn.functional, self.problem.targets[nodes]
        if self.problem.multilabel:
            # Summed over labels as cross-entropy is over classes: weight decay is as strong beside it.
            return F.binary_cross_entropy_with_logits(scores[nodes], targets) * targets.shape[1]
        return F.cross_entropy(scores[nodes], targets)

    def validation_cost(self) -> float:
        """Weight decay included, as the authors' program has it."""
        with packages()[0].no_grad():
            decay = sum((part**2).sum() for part in self.decayed) * self.weight_decay / 2
            return float(self.loss(self.scores(), self.problem.validation) + decay)


def _layer(columns: int, out: int) -> Any:
    layer = packages()[1].GCNConv(columns, out, normalize=False)  # the matrix it gets is
    # Â is its own transpose.
    layer.propagate = lambda A, x, edge_weight: _product()(A, A, x)  # noqa: ARG005
    return layer


def _descend(
    network: _Network, epochs: int, learning_rate: float, patience: int | None, progress: Progress | None
) -> int:
    groups = [
        {"params": network.decayed, "weight_decay": network.weight_decay},
        {"params": list(network.second.parameters())},
    ]
    adam = packages()[0].optim.Adam(groups, lr=learning_rate)
    window = patience if len(network.problem.validation) else None
    costs: list[float] = []
    for epoch in range(1, epochs + 1):
        adam.zero_grad()
        network.loss(network.scores(training=True), network.problem.train).backward()
        adam.step()
        if progress is not None:
            progress(epoch, epochs)
        if window is not None:
            costs.append(network.validation_cost())
            if _got_worse(costs, window):
                return epoch
    return epochs


def _got_worse(costs: list[float], window: int) -> bool:
    return len(costs) > window + 1 and costs[-1] > float(np.mean(costs[-window - 1 : -1]))


def _validated(problem: Problem, predictions: Array) -> float | None:
    nodes = problem.validation.numpy()
    if not len(nodes):
        return None
    targets = problem.targets.numpy()[nodes]
    return accuracy(targets if problem.multilabel else problem.classes[targets], predictions[nodes])


@contextmanager
def _torch_threads(threads: int | None) -> Iterator[None]:
    torch = packages()[0]
    before = torch.get_num_threads()
    torch.set_num_threads(before if threads is None else integer("threads", threads, least=1))
    try:
        yield
    finally:
        torch.set_num_threads(before)
