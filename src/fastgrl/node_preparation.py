"""What a node classifier is fitted to: nodes in one order, with features that say something."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from fastgrl.checks import Array
from fastgrl.errors import ArgumentError
from fastgrl.graph import Graph
from fastgrl.ids import as_ids
from fastgrl.node_inputs import Known
from fastgrl.node_models import NodeInputs, is_sparse
from fastgrl.ordering import canonical_order_of, reordered


def in_order(graph: Graph, X: Any, known: Known) -> tuple[NodeInputs, Known, Array | None]:
    """Nodes numbered by their ids, so that their order in the caller's files changes nothing."""
    order = canonical_order_of(graph)
    if order is None:
        return NodeInputs(graph, X), known, None
    position = np.argsort(order)
    targets, validation = known.targets, known.validation
    labelled = position[targets.labelled]
    sorting = np.argsort(labelled)
    moved = replace(
        targets,
        labels=targets.labels[order],
        labelled=labelled[sorting],
        weights=targets.weights[sorting],
    )
    if validation is not None:
        validation = replace(validation, nodes=position[validation.nodes])
    inputs = NodeInputs(reordered(graph, order), None if X is None else X[order])
    return inputs, replace(known, targets=moved, validation=validation), position


def named_classes(known: Known, names: Any) -> Known:
    """With names for the columns of a 2-D y."""
    if names is None:
        return known
    given = as_ids(names, "class_names")
    if not known.targets.multilabel or len(given) != len(known.targets.classes):
        columns = f"{len(known.targets.classes)} columns" if known.targets.multilabel else "one dimension"
        raise ArgumentError(
            f"class_names name the columns of a 2-D y: {len(given)} names, but y has {columns}"
        )
    return replace(known, targets=replace(known.targets, classes=given))


def feature_names_of(names: Any, X: Any) -> tuple[str, ...] | None:
    """One name per column of features, or None."""
    given = None if names is None else tuple(map(str, names))
    columns = 0 if X is None else X.shape[1]
    if given is not None and len(given) != columns:
        raise ArgumentError(f"there are {len(given)} feature_names for {columns} columns of features")
    return given


def telling_inputs(inputs: NodeInputs) -> tuple[NodeInputs, tuple[str, ...]]:
    """Without features that say nothing."""
    X = inputs.features
    if X is None or (X.shape[1] and (X.data if is_sparse(X) else X).any()):
        return inputs, ()
    what = "there are no columns of features" if not X.shape[1] else "all features are zero"
    return NodeInputs(inputs.graph), (f"{what}: the graph alone is used",)
