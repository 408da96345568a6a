"""Nodes that come after the fit, with edges and features."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import scipy.sparse as sp

from fastgrl.checks import Array, shown, size
from fastgrl.errors import ArgumentError, ShapeError
from fastgrl.graph import Graph
from fastgrl.growth import grow
from fastgrl.ids import as_ids
from fastgrl.node_inputs import as_features
from fastgrl.node_models import NodeInputs, NodeModel, is_sparse


@dataclass(frozen=True, eq=False)
class Grown:
    """Inputs with the new nodes numbered after the old ones, and their ids."""

    inputs: NodeInputs
    new_ids: Array


def new_ids(graph: Graph, edges: Any, features: Any = None) -> Array:
    """The nodes of `edges`, and of a dictionary of features, that the graph does not have."""
    return grow(graph, _pairs(edges), nodes=_listed(features)).new_ids


def grown_inputs(inputs: NodeInputs, model: NodeModel, edges: Any, features: Any) -> Grown:
    """The inputs with new nodes: rows of features after the old ones, walk vectors folded in."""
    n = inputs.num_nodes
    grown = grow(inputs.graph, _pairs(edges), nodes=_listed(features))
    rows = _new_features(inputs, grown.new_ids, features)
    X = inputs.features
    if rows is not None:
        X = _stacked([X, rows])
    structure = model.structure
    if structure is not None and len(grown.new_ids):
        A: Any = grown.graph.to_scipy().astype(np.float64)
        out, into = sp.csr_array(A[n:, :n]), sp.csr_array(A[:n, n:].T)
        incoming = into if inputs.graph.directed else None
        structure = np.concatenate([structure, model.fold_in(inputs.graph, out, incoming=incoming)[0]])
    return Grown(replace(inputs, graph=grown.graph, features=X, structure=structure), grown.new_ids)


def _stacked(blocks: list[Any]) -> Any:
    if not is_sparse(blocks[0]):
        return np.concatenate(blocks)
    stack: Any = sp.vstack
    return sp.csr_array(stack(blocks, format="csr"))


def _pairs(edges: Any) -> Any:
    return np.empty((0, 2), np.int64) if edges is None else edges


def _listed(features: Any) -> Any:
    return as_ids(list(features), "features").tolist() if isinstance(features, Mapping) else ()


def _new_features(inputs: NodeInputs, new: Array, features: Any) -> Any:
    X, p = inputs.features, len(new)
    if X is None:
        if features is not None:
            raise ArgumentError("the model was fitted without features: leave those of new nodes out")
        return None
    if not p and features is None:
        return None
    if features is None:
        raise ArgumentError(
            f"the model was fitted with features: give those of the {p} new nodes, such as {shown(new[0])}"
        )
    rows = _rows_by_id(features, new, X) if isinstance(features, Mapping) else features
    checked = as_features(rows, p, "features of new nodes")
    if checked.shape[1] != X.shape[1]:
        raise ShapeError(f"new nodes have {checked.shape[1]} features where the model has {X.shape[1]}")
    if is_sparse(X):
        return sp.csr_array(checked).astype(X.dtype)
    return np.asarray(checked.toarray() if is_sparse(checked) else checked, X.dtype)


def _refuse_known(features: Mapping[Any, Any], new: Array) -> None:
    known = set(features) - set(new.tolist())
    if known:
        first = shown(min(known, key=repr))
        raise ArgumentError(
            f"features of {first}, which the model knows already; give those of new nodes only"
        )


def _rows_by_id(features: Mapping[Any, Any], new: Array, X: Any) -> Any:
    _refuse_known(features, new)
    missing = [node for node in new.tolist() if node not in features]
    if missing:
        raise ArgumentError(
            f"features of the new node {shown(missing[0])} are missing, one of {len(missing)}"
        )
    rows = [_row(features[node]) for node in new.tolist()]
    for node, row in zip(new.tolist(), rows, strict=True):
        if row.shape != (1, X.shape[1]):
            raise ShapeError(
                f"new node {shown(node)} has {size(row.shape)} features where the model has {X.shape[1]}"
            )
    if any(is_sparse(row) for row in rows):
        return _stacked([sp.csr_array(row) for row in rows])
    return np.concatenate([np.empty((0, X.shape[1])), *rows])


def _row(features: Any) -> Any:
    """One row, whether it came as a list, an array or a sparse row."""
    if is_sparse(features) and features.ndim == 2:
        return features
    return np.atleast_2d(features.toarray() if is_sparse(features) else np.asarray(features))
