"""Labels of nodes whose rows lie on workers: read by the caller, who holds nothing else of the nodes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fastgrl.checks import Array, shown
from fastgrl.distributed.graphs import DistributedGraph
from fastgrl.distributed.lookups import like_the_nodes, numbers_of
from fastgrl.errors import ArgumentError, InputError
from fastgrl.graph import Graph
from fastgrl.io.labels import read_labels
from fastgrl.io.pairs import read_ids


@dataclass(frozen=True, eq=False)
class Known:
    """What is known: names of the C classes, numbers of the labelled nodes, and m×C labels of 0 and 1."""

    classes: tuple[str, ...]
    nodes: Array
    labels: Array

    def without(self, nodes: Array) -> Known:
        """The labels of all others; every class must still have one."""
        kept = ~np.isin(self.nodes, nodes)
        left = Known(self.classes, self.nodes[kept], self.labels[kept])
        if not left.labels.any(axis=0).all():
            lost = self.classes[int(np.argmin(left.labels.any(axis=0)))]
            raise ArgumentError(
                f"all nodes of the class {shown(lost)} are validation nodes: none is left to learn from"
            )
        return left


def read_known(graph: DistributedGraph, file: str, columns: tuple[str | None, str | None]) -> Known:
    """The labels of a file, by numbers of nodes; an id that is no node is an error with its line."""
    classes, nodes, texts = _labels_in(graph, file, columns)
    if len(classes) < 2:
        raise ArgumentError(
            f"{shown(file, 200)} has one class only, {shown(classes[0])}: nothing to tell apart"
        )
    return Known(classes, nodes, _one_hot(texts, classes))


def read_held_out(
    graph: DistributedGraph, file: str, columns: tuple[str | None, str | None], known: Known
) -> Known:
    """Validation nodes, whose classes must be among the known ones."""
    classes, nodes, texts = _labels_in(graph, file, columns)
    if strange := [name for name in classes if name not in known.classes]:
        raise ArgumentError(f"{shown(file, 200)} has the class {shown(strange[0])}, which no label has")
    return Known(known.classes, nodes, _one_hot(texts, known.classes))


def _labels_in(
    graph: DistributedGraph, file: str, columns: tuple[str | None, str | None]
) -> tuple[tuple[str, ...], Array, Array]:
    """The classes of a file; the numbers of its nodes in order; and the label of each."""
    listed = like_the_nodes(graph, np.unique(read_ids(file).columns[0]))
    numbers = numbers_of(graph, listed)
    there = numbers >= 0
    # The reader of labels wants a graph to look ids up in: these nodes will do.
    small = Graph.from_codes([], [], num_nodes=int(there.sum()), node_ids=listed[there])
    found = read_labels(file, small, id_column=columns[0], label_column=columns[1])
    if not found.classes:
        raise InputError(f"{shown(file, 200)} holds no label: every cell is blank")
    nodes = numbers[there][found.nodes]
    order = np.argsort(nodes, kind="stable")
    return tuple(found.classes), nodes[order], np.array(found.texts.tolist())[order]


def _one_hot(texts: Array, classes: tuple[str, ...]) -> Array:
    """m×C of 0 and 1; classes are sorted."""
    return np.eye(len(classes), dtype=np.float32)[np.searchsorted(np.array(classes), texts)]
