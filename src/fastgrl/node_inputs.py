"""What callers of node classification give, in the forms it works with."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp

from fastgrl.checks import Array, finite_array, shown, size
from fastgrl.class_weights import label_weights
from fastgrl.errors import ArgumentError, DtypeError, FastgrlError, NotFiniteError, ShapeError, UnknownIdError
from fastgrl.graph import Graph
from fastgrl.ids import as_ids, objects
from fastgrl.kernels import csr_from_scipy
from fastgrl.node_models import Targets, Validation

UNLABELLED = -1
# np.array(["cat", -1]) makes text of the number.
_NUMBERS_AS_TEXT = ("-1", "-1.0", "nan")


@dataclass(frozen=True, eq=False)
class Known:
    """What is known of classes before settings are chosen, and what is odd about it."""

    targets: Targets
    validation: Validation | None
    notices: tuple[str, ...]


def as_features(features: Any, num_nodes: int, what: str = "features") -> Any:
    """n×d numbers, one row per node: a CSR array or a dense one of float32 or float64, checked; None stays.

    >>> as_features([[1, 0], [0, 1]], 2).dtype
    dtype('float64')
    """
    if features is None:
        return None
    X: Any = _sparse(features, what) if sp.issparse(features) else _dense(features, what)
    if X.shape[0] != num_nodes:
        raise ShapeError(f"{what} have {X.shape[0]} rows for {num_nodes} nodes; give one row per node")
    return X


def _sparse(features: Any, what: str) -> Any:
    if features.ndim != 2:
        raise ShapeError(f"{what} must have two dimensions, got shape {features.shape}")
    if features.dtype.kind not in "fiub":
        raise DtypeError(f"{what} must be real numbers, got {features.dtype}")
    try:
        checked = csr_from_scipy(features).as_scipy
    except NotFiniteError:
        raise NotFiniteError(f"{what} hold NaN or Inf; every value must be finite") from None
    X: Any = sp.csr_array(checked, dtype=_float_of(features.dtype), copy=True)
    X.sum_duplicates()
    return X


def _dense(features: Any, what: str) -> Array:
    array = np.asarray(features)
    if array.dtype.kind not in "fiub":
        raise DtypeError(f"{what} must be real numbers, got {array.dtype}")
    if array.ndim != 2:
        raise ShapeError(f"{what} must have two dimensions (nodes × features), got shape {array.shape}")
    wrong = ~np.isfinite(array).all(axis=1) if array.dtype.kind == "f" else np.zeros(len(array), bool)
    if wrong.any():
        row = int(np.argmax(wrong))
        column = int(np.argmax(~np.isfinite(array[row])))
        raise NotFiniteError(f"{what}: row {row}, column {column} is {array[row, column]}; it must be finite")
    return np.ascontiguousarray(array, _float_of(array.dtype))


def _float_of(dtype: np.dtype[Any]) -> Any:
    return np.float32 if dtype in (np.float16, np.float32) else np.float64


def by_index(values: Any, graph: Graph, what: str) -> Any:
    """A pandas Series as a dictionary from ids, a frame in the order of the nodes; anything else as it is.

    Theirs is an index of ids unless it is the one that pandas counts by itself.
    """
    kind = type(values)
    indexed = kind.__module__.partition(".")[0] == "pandas" and kind.__name__ in ("Series", "DataFrame")
    if not indexed or type(values.index).__name__ == "RangeIndex":
        return values
    ids = as_ids(values.index.tolist(), what)
    try:
        numbers = graph.index_of(ids)
    except UnknownIdError as error:
        hint = "give it in the order of the nodes, by .to_numpy()"
        raise ArgumentError(f"the index of {what} is not that of the nodes: {error}; or {hint}") from error
    if kind.__name__ == "Series":
        return dict(zip(ids.tolist(), values.tolist(), strict=True))
    if len(np.unique(numbers)) != len(numbers) or len(numbers) != graph.num_nodes:
        raise ArgumentError(f"{what} must have one row for each of the {graph.num_nodes} nodes")
    return values.iloc[np.argsort(numbers)]


def known_classes(graph: Graph, y: Any, *, validation: Any = None, class_weight: Any = None) -> Known:
    """Labels in the order of the graph's nodes, as numbers.

    `y` has one entry per node (−1, None, NaN and "" are unlabelled), or is a dictionary from ids to
    labels, or is n×C of 0 and 1 for several labels per node, rows of −1 unlabelled. `validation` lists ids
    that are labelled in `y` and shall not be trained on, or is a pair (ids, labels).
    """
    if _is_several(y):
        return _known_several(graph, y, validation, class_weight)
    labels, notices = _labels(graph, y)
    held, held_labels = _held_out(graph, labels, validation)
    training = labels.copy()
    if held is not None:
        training[held] = None
    classes = _sorted_classes(training)
    if not len(classes):
        raise ArgumentError("no node is labelled: y is −1, None, NaN or empty everywhere it is trained on")
    place = {label: number for number, label in enumerate(classes)}
    numbers = np.full(graph.num_nodes, -1, np.int64)
    labelled = _given(training)
    numbers[labelled] = [place[label] for label in training[labelled].tolist()]
    weights = label_weights(numbers[labelled], classes, class_weight)
    labelled, weights = labelled[weights > 0], weights[weights > 0]
    one_hot = np.zeros((graph.num_nodes, len(classes)))
    one_hot[labelled, numbers[labelled]] = 1.0
    targets = Targets(_as_array(classes), one_hot, labelled, weights)
    found = None
    if held is not None and held_labels is not None:
        rows = np.zeros((len(held), len(classes)))
        strange = [label for label in held_labels if label not in place]
        for row, label in enumerate(held_labels):
            if label in place:
                rows[row, place[label]] = 1.0
        if strange:
            notices.append(
                f"validation has the class {shown(strange[0])}, which no training node has; "
                f"{len(strange)} such nodes count as wrong"
            )
        found = Validation(held, rows)
    once = np.flatnonzero(np.bincount(numbers[labelled], minlength=len(classes)) == 1)
    if len(once) and len(classes) > 1:
        notices.append(
            f"{len(once)} of {len(classes)} classes, such as {shown(classes[once[0]])}, have one labelled "
            "node; without it they cannot be predicted: leave-one-out figures say little"
        )
    if len(classes) == 1:
        notices.append(f"there is only one class, {shown(classes[0])}: every node is predicted to be of it")
    if (numbers >= 0).all():
        notices.append("every node is labelled: there is nothing left to predict")
    return Known(targets, found, tuple(notices))


def _labels(graph: Graph, y: Any) -> tuple[Array, list[str]]:
    """One label or None per node, as objects, and what is odd."""
    if isinstance(y, Mapping):
        out = np.full(graph.num_nodes, None, object)
        numbers = graph.index_of(as_ids(list(y), "y")) if y else np.empty(0, np.int64)
        out[numbers] = objects([label_of(value) for value in y.values()])
        return out, []
    if y is None:
        raise ArgumentError("y is missing: a label for each node, −1 where it is not known")
    array = _column(y)
    if array.ndim != 1:
        raise ShapeError(f"y must have one entry per node, or be n×C of 0 and 1; got shape {array.shape}")
    if len(array) != graph.num_nodes:
        raise ShapeError(
            f"y has {len(array)} entries for {graph.num_nodes} nodes: give one per node in the order of "
            "graph.node_ids, or a dictionary from ids to labels"
        )
    if array.dtype.kind in "fc" and np.isinf(array).any():
        raise NotFiniteError("y holds an infinite value; unlabelled is −1 or NaN")
    labels = _as_labels(array)
    notices = []
    for word in _NUMBERS_AS_TEXT if array.dtype.kind == "U" else ():
        same = np.asarray(array == word)
        if same.any():
            labels[same] = None
            notices.append(f'"{word}" in y, which holds text, is taken for unlabelled ({same.sum()} nodes)')
    return labels, notices


def _as_labels(array: Array) -> Array:
    """`labels_of` as objects: of a large graph few nodes are labelled, and only these are looked at."""
    labels = np.full(len(array), None, object)
    if array.dtype.kind in "iufb":
        unknown = array == UNLABELLED if array.dtype.kind != "b" else np.zeros(len(array), bool)
        given = np.flatnonzero(~(unknown | (array != array)))
    elif array.dtype.kind == "O":
        given = _given(array)
    else:
        given = np.arange(len(array))
    labels[given] = objects(labels_of(array[given]))
    return labels


def _given(labels: Array) -> Array:
    """Where there is something other than None."""
    return np.flatnonzero(np.fromiter((label is not None for label in labels.tolist()), bool, len(labels)))


def _is_several(y: Any) -> bool:
    """Whether y has a row of 0 and 1 for each node; tuples of anything else are names of classes."""
    if sp.issparse(y):
        return True
    if not isinstance(y, list | tuple):
        return not isinstance(y, Mapping) and np.ndim(y) == 2
    return bool(y) and all(isinstance(row, list | np.ndarray) or _is_row(row) for row in y)


def row_of_labels(label: Any, count: int) -> Array | None:
    """`count` numbers 0 and 1, or None for None, −1 and a row of −1.

    >>> row_of_labels([1, 0], 2)
    array([1., 0.])
    """
    scalar = np.ndim(label) == 0
    if label is None or (scalar and label_of(label) is None):
        return None
    row = np.zeros(0) if scalar else np.asarray(label, np.float64)
    if row.shape != (count,) or not (np.isin(row, (0, 1)).all() or (row == UNLABELLED).all()):
        raise ArgumentError(f"the labels of a node are {count} numbers 0 or 1, got {shown(label)}")
    return None if (row == UNLABELLED).all() else row


def _is_row(label: Any) -> bool:
    return isinstance(label, tuple) and all(isinstance(one, int) and one in (-1, 0, 1) for one in label)


def _column(y: Any) -> Array:
    return objects(list(y)) if isinstance(y, list | tuple) else np.asarray(y)


def labels_of(y: Any) -> list[Any]:
    """A label, or None where there is none, for every entry of a list or an array.

    >>> labels_of(["cat", -1, float("nan"), ""])
    ['cat', None, None, None]
    """
    column = _column(y)
    return [label_of(value) for value in (list(column) if column.dtype.kind in "mM" else column.tolist())]


def label_of(value: Any) -> Any:
    """A label, or None where there is none: for None, NaN, −1 and ""."""
    if isinstance(value, np.generic):
        plain = value.item()
        finer = isinstance(value, np.datetime64) and isinstance(plain, int)  # dates that only NumPy has
        value = value if finer else plain
    try:
        hash(value)
    except TypeError:
        raise ArgumentError(f"y holds {shown(value)}, which cannot be the name of a class") from None
    if value is None or type(value).__name__ == "NAType" or value != value:
        return None
    if isinstance(value, str) and value == "":
        return None
    if isinstance(value, int | float) and not isinstance(value, bool) and value == UNLABELLED:
        return None
    return value


def _sorted_classes(labels: Array) -> list[Any]:
    distinct = list(dict.fromkeys(labels[_given(labels)].tolist()))
    try:
        return sorted(distinct)
    except TypeError:
        return sorted(distinct, key=lambda label: (type(label).__name__, repr(label)))


def _as_array(classes: list[Any]) -> Array:
    kinds = {type(label) for label in classes}
    if kinds <= {int} and all(abs(label) < 2**63 for label in classes):
        return np.array(classes, np.int64)
    if kinds <= {bool} or kinds <= {float}:
        return np.array(classes)
    return objects(classes)


def _held_out(graph: Graph, labels: Array, validation: Any) -> tuple[Array | None, list[Any] | None]:
    if validation is None:
        return None, None
    if _is_pair(validation):
        ids, given = validation
        nodes = graph.index_of(_distinct(ids))
        known = labels_of(given)
        if len(known) != len(nodes):
            raise ArgumentError(f"validation has {len(nodes)} ids and {len(known)} labels; give one for each")
        _refuse_contradiction(graph, labels, nodes, known)
    else:
        nodes = graph.index_of(_distinct(validation))
        known = labels[nodes].tolist()
    missing = [i for i, label in enumerate(known) if label is None]
    if missing:
        raise ArgumentError(
            f"validation: node {shown(graph.node_ids[nodes[missing[0]]])} has no label, one of "
            f"{len(missing)}; validation nodes are labelled ones that are not trained on"
        )
    if not len(nodes):
        raise ArgumentError("validation lists no node; leave it out to choose by leave-one-out")
    return nodes, known


def _refuse_contradiction(graph: Graph, labels: Array, nodes: Array, known: list[Any]) -> None:
    for node, label in zip(nodes, known, strict=True):
        if label is not None and labels[node] is not None and labels[node] != label:
            raise ArgumentError(
                f"node {shown(graph.node_ids[node])} is {shown(label)} in validation and "
                f"{shown(labels[node])} in y; it can have one class only"
            )


def _is_pair(validation: Any) -> bool:
    return (
        isinstance(validation, tuple)
        and len(validation) == 2
        and all(np.iterable(part) and not isinstance(part, str | bytes) for part in validation)
    )


def _distinct(ids: Any) -> Array:
    wanted = as_ids(ids, "validation")
    if len(set(wanted.tolist())) < len(wanted):
        raise ArgumentError("validation lists a node twice; give every node once")
    return wanted


def _known_several(graph: Graph, y: Any, validation: Any, class_weight: Any) -> Known:
    """n×C of 0 and 1, rows of −1 unlabelled."""
    if class_weight is not None:
        raise ArgumentError("class_weight is for one class per node; with several labels leave it out")
    dense: Any = y.toarray() if hasattr(y, "toarray") else y
    labels = _zeros_and_ones(dense, graph.num_nodes)
    unknown: Array = np.asarray((labels < 0).any(axis=1))
    held: Validation | None = None
    if validation is not None:
        if _is_pair(validation) and _is_several(validation[1]):
            ids, given = validation
            nodes = graph.index_of(_distinct(ids))
            rows = _zeros_and_ones(given, len(nodes))
        else:
            nodes = graph.index_of(_distinct(validation))
            rows = labels[nodes]
        if not len(nodes) or (rows < 0).any():
            raise ArgumentError("validation nodes must be labelled, and there must be one at least")
        held = Validation(nodes, rows.astype(np.float64))
        unknown[nodes] = True
    labelled = np.flatnonzero(~unknown)
    if not len(labelled):
        raise ArgumentError("no node is labelled: every row of y is −1 where it is trained on")
    known = np.where(unknown[:, None], 0.0, labels)
    weights = np.full(len(labelled), 1 / len(labelled))
    notices = ("every node is labelled: there is nothing left to predict",) if not unknown.any() else ()
    return Known(
        Targets(np.arange(labels.shape[1]), known, labelled, weights, multilabel=True), held, notices
    )


def _zeros_and_ones(y: Any, rows: int) -> Array:
    try:
        array = finite_array(y, "y", ndim=2)
    except ValueError as error:
        if isinstance(error, FastgrlError):
            raise
        raise ShapeError("y with several labels per node has rows of different lengths") from None
    if array.shape[0] != rows or array.shape[1] == 0:
        raise ShapeError(
            f"y is {size(array.shape)}; with several labels it has {rows} rows and a column for each"
        )
    if not np.isin(array, (-1, 0, 1)).all():
        wrong = array[~np.isin(array, (-1, 0, 1))][0]
        raise ArgumentError(
            f"y with several labels per node holds 0 and 1 (or −1 in unlabelled rows), got {wrong:g}"
        )
    mixed = (array < 0).any(axis=1) & ~(array < 0).all(axis=1)
    if mixed.any():
        raise ArgumentError(
            f"row {int(np.argmax(mixed))} of y is −1 in some columns only; a row is unlabelled as a whole"
        )
    return array
