"""What a dataset is once it is loaded."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp

from fastgrl.checks import Array
from fastgrl.graph import Graph


@dataclass(frozen=True, eq=False, repr=False)
class NodeDataset:
    """A graph whose nodes have features and classes, as `load_dataset` gives it.

    Attributes:
        name: the name of the dataset.
        graph: a `Graph`.
        X: features, an n×d CSR array of float32; None: no features.
        y: a class number per node, −1 where none is known; or n×C of 0 and 1, where a node may have several.
        train: numbers of the nodes to learn from.
        validation: numbers of the nodes to choose settings by.
        test: numbers of the nodes to test on.
        class_names: names of the classes by number; None: they have none.

    >>> fg.load_dataset("digits")
    <digits: 1797 nodes, 6309 edges, 64 features, 10 classes, 200 train, 500 validation, 1097 test>
    """

    name: str
    graph: Graph
    X: sp.csr_array | None
    y: Array
    train: Array
    validation: Array
    test: Array
    class_names: tuple[str, ...] | None = None

    @property
    def counts(self) -> dict[str, int]:
        """Sizes by name, as the catalogue and `datasets info` give them."""
        return _graph_counts(self.graph) | {
            "features": 0 if self.X is None else int(self.X.shape[1]),
            "classes": self.y.shape[1] if self.y.ndim == 2 else int(self.y.max(initial=-1)) + 1,
            "train": len(self.train),
            "validation": len(self.validation),
            "test": len(self.test),
        }

    def __repr__(self) -> str:
        return _summary(self.name, self.counts)


@dataclass(frozen=True, eq=False, repr=False)
class LinkDataset:
    """A training graph, and pairs of nodes to be told apart: edges held out, and non-edges.

    Attributes:
        name: the name of the dataset.
        graph: a `Graph` of the training edges.
        validation: edges held out to choose settings by, an (m, 2) array of node numbers; None: there are
            none.
        validation_negatives: non-edges to tell them from, likewise.
        test: edges held out to test on, an (m, 2) array of node numbers.
        test_negatives: non-edges to tell them from.

    >>> from fastgrl.datasets import LinkDataset
    >>> path, edge, none = fg.Graph.from_codes([0, 1, 2], [1, 2, 3]), [[3, 0]], [[0, 2]]
    >>> LinkDataset("square", path, None, None, np.array(edge), np.array(none))
    <square: 4 nodes, 3 edges, 4 all edges, 1 test, 1 test negatives>
    """

    name: str
    graph: Graph
    validation: Array | None
    validation_negatives: Array | None
    test: Array
    test_negatives: Array

    @property
    def counts(self) -> dict[str, int]:
        """Sizes by name, as the catalogue and `datasets info` give them."""
        held_out = _length(self.validation) + len(self.test)
        return _graph_counts(self.graph) | {
            "all_edges": self.graph.num_edges + held_out,
            "validation": _length(self.validation),
            "validation_negatives": _length(self.validation_negatives),
            "test": len(self.test),
            "test_negatives": len(self.test_negatives),
        }

    def __repr__(self) -> str:
        return _summary(self.name, self.counts)


Dataset = NodeDataset | LinkDataset


def _graph_counts(graph: Graph) -> dict[str, int]:
    lengths = np.diff(graph.indptr)
    alone = np.flatnonzero(lengths == 1)
    alone = alone[graph.indices[graph.indptr[alone]] == alone]
    return {
        "nodes": graph.num_nodes,
        "edges": graph.num_edges,
        "self_loops": graph.num_self_loops,
        "isolated": int(np.count_nonzero(lengths == 0)) + len(alone),  # or joined to itself only
    }


def _length(pairs: Array | None) -> int:
    return 0 if pairs is None else len(pairs)


def _summary(name: str, counts: dict[str, int]) -> str:
    words = (f"{count} {word.replace('_', ' ')}" for word, count in counts.items() if count)
    return f"<{name}: {', '.join(words)}>"


def stratified_split(y: Array, *, train: int, validation: int, seed: int) -> tuple[Array, Array, Array]:
    """Node numbers for training, validation and testing, in increasing order.

    Each class gives `train` and `validation` of its nodes, chosen at random, and the rest to the test.

    >>> a, b, c = stratified_split(np.array([0, 0, 0, 1, 1, 1]), train=1, validation=1, seed=0)
    >>> len(a), len(b), len(c)
    (2, 2, 2)
    """
    rng = np.random.Generator(np.random.Philox(seed))
    order = rng.permutation(len(y))
    order = order[np.argsort(y[order], kind="stable")]
    sizes = np.bincount(y)
    place = np.arange(len(y)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    kind = (place >= train).astype(int) + (place >= train + validation)
    return np.sort(order[kind == 0]), np.sort(order[kind == 1]), np.sort(order[kind == 2])
