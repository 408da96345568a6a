"""A node classifier as arrays and JSON, and back."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp

from fastgrl import storage
from fastgrl.checks import FLOATS, Array, shown
from fastgrl.errors import ArgumentError, FastgrlError, InputError
from fastgrl.io.atomic import StrPath, named
from fastgrl.node_fits import MODELS
from fastgrl.node_models import NODE_DESIGNS, Fitted, NodeFit, NodeInputs, NodeModel, Targets, Validation
from fastgrl.storage import Stored, expect
from fastgrl.stored_parts import are_rows, certificate_of, certificate_parts, graph_of, graph_parts, number
from fastgrl.stored_values import coded, coded_names, decoded, decoded_names

KIND = "node-classifier"
_MODEL, _ROUNDING = "model.", 1e-6
# What was measured, with the type that it must have.
_FIT_FACTS: dict[str, type] = {
    "chosen": dict,
    "validation": dict,
    "near_best": list,
    "seconds": dict,
    "notices": list,
}
_DAMAGE = (
    *(KeyError, TypeError, ValueError, AttributeError, IndexError, OverflowError),
    *(AssertionError, ZeroDivisionError, RecursionError, FastgrlError),
)


@dataclass(frozen=True, eq=False)
class NodeParts:
    """What a fitted classifier is made of: its parameters, what it was fitted to, and what came of it."""

    parameters: dict[str, Any]
    inputs: NodeInputs
    targets: Targets
    fit: NodeFit
    validation: Validation | None = None
    feature_names: tuple[str, ...] | None = None


def save_node_parts(
    parts: NodeParts, folder: StrPath, *, force: bool = False, position: Array | None = None
) -> None:
    """Write a fitted classifier to a folder, which then holds all that predictions need.

    `position[i]` is where the i-th node of the caller's graph stands in the model's; None if they agree.
    """
    stored = _stored(parts)
    if position is not None:
        stored.arrays["position"] = np.asarray(position, np.int64)
    storage.save_model(stored, folder, force=force)


def _stored(parts: NodeParts) -> Stored:
    pieces = (
        graph_parts(parts.inputs.graph),
        _input_parts(parts.inputs, parts.feature_names),
        _target_parts(parts.targets, parts.validation),
        _fit_parts(parts.fit),
        _model_parts(parts.fit.fitted.model, parts.parameters["design"]),
        certificate_parts(parts.fit.fitted.certificate),
    )
    arrays = {name: array for some, _ in pieces for name, array in some.items()}
    facts = {name: fact for _, some in pieces for name, fact in some.items()}
    return Stored(KIND, _parameters(parts.parameters), facts, arrays, parts.inputs.graph.node_ids)


def _parameters(parameters: dict[str, Any]) -> dict[str, Any]:
    """The parameters as JSON has them; a generator cannot be written down, and the fit is over.

    Threads, memory and device are those of the machine that fitted: whoever loads the model has others.
    """
    kept = parameters | {"n_jobs": None, "max_memory": None, "device": None}
    if not isinstance(kept.get("random_state"), int | np.integer | None):
        kept["random_state"] = 0
    return {name: coded(value, f"the parameter {name}") for name, value in kept.items()}


def _input_parts(
    inputs: NodeInputs, names: tuple[str, ...] | None
) -> tuple[dict[str, Array], dict[str, Any]]:
    arrays: dict[str, Array] = {}
    facts: dict[str, Any] = {"features": None, "feature_names": None if names is None else list(names)}
    X: Any = None
    if sp.issparse(inputs.features):
        X = _canonical(inputs.features)
        arrays = {f"features.{part}": getattr(X, part) for part in ("indptr", "indices", "data")}
    elif inputs.features is not None:
        X = arrays["features"] = np.asarray(inputs.features)
    if X is not None:
        facts["features"] = {"sparse": sp.issparse(X), "columns": int(X.shape[1])}
    if inputs.structure is not None:
        arrays["structure"] = inputs.structure
    return arrays, facts


def _canonical(features: Any) -> Any:
    """Rows of increasing columns, as those who are given memory that is read-only cannot make them."""
    X = sp.csr_array(features)
    if not X.has_canonical_format:
        X = X.copy()
        X.sum_duplicates()
    return X


def _target_parts(targets: Targets, validation: Validation | None) -> tuple[dict[str, Array], dict[str, Any]]:
    labelled = np.asarray(targets.labelled, np.int64)
    arrays = {
        "targets.labelled": labelled,
        "targets.labels": _as_bits(targets.labels[labelled]),
        "targets.weights": np.asarray(targets.weights, np.float64),
    }
    if validation is not None:
        arrays["validation.nodes"] = np.asarray(validation.nodes, np.int64)
        arrays["validation.labels"] = _as_bits(validation.labels)
    classes = coded_names(np.asarray(targets.classes), "the class names")
    return arrays, {"classes": classes, "multilabel": bool(targets.multilabel)}


def _as_bits(labels: Array) -> Array:
    bits: Array = np.asarray(labels) != 0
    if not np.array_equal(bits, labels):
        raise ArgumentError("labels are stored as 0 and 1, and these are others")
    return bits.astype(np.uint8)


def _fit_parts(fit: NodeFit) -> tuple[dict[str, Array], dict[str, Any]]:
    fitted = fit.fitted
    arrays = {"scores": np.asarray(fitted.scores)}
    if fitted.loo_scores is not None:
        arrays["loo_scores"] = np.asarray(fitted.loo_scores)
    facts = {name: coded(kind(getattr(fitted, name)), name) for name, kind in _FIT_FACTS.items()}
    figures = {"temperature": fit.temperature, "loo_accuracy": fit.loo_accuracy}
    return arrays, facts | {name: coded(value, name) for name, value in figures.items()}


def _model_parts(model: NodeModel, design: str) -> tuple[dict[str, Array], dict[str, Any]]:
    names = [name for name, kind in MODELS.items() if kind is type(model)]
    if not names:
        raise ArgumentError(f"a {type(model).__name__} is not a kind of model that can be stored")
    name = design if design in names else names[0]
    arrays = {_MODEL + part: np.asarray(array) for part, array in model.arrays().items()}
    return arrays, {"model": {"name": name, "facts": coded(model.facts(), "the model's facts")}}


def node_parts_of(stored: Stored, name: StrPath) -> NodeParts:
    """What `save_node_parts` wrote, from the model as it was read; `name` is what errors call it.

    Everything is checked before anything computes with it. Large arrays stay on disk until they are used.
    """
    if stored.kind != KIND:
        raise InputError(f"{named(name)} holds a {stored.kind}, not a {KIND}")
    try:
        return _Reader(stored, name).parts()
    except InputError:
        raise
    except _DAMAGE as error:
        what = f"{type(error).__name__} {shown(str(error), limit=80)}"
        raise InputError(f"{named(name)} is not a whole {KIND}: {what}; fit it again") from error


@dataclass(frozen=True, eq=False)
class _Reader:
    """The parts of one stored model, each checked as it is read."""

    stored: Stored
    name: StrPath

    def parts(self) -> NodeParts:
        parameters = {key: decoded(value) for key, value in self.stored.parameters.items()}
        self.insist(parameters.get("design") in NODE_DESIGNS, "its design")
        inputs, targets = self.inputs(), self.targets()
        validation = self.validation(targets)
        return NodeParts(
            parameters, inputs, targets, self.fit(targets), validation, self.feature_names(inputs)
        )

    def insist(self, holds: Any, what: str) -> None:
        if not holds:
            raise InputError(f"{named(self.name)}: {what} is damaged; fit it again")

    def array(self, key: str, shape: Iterable[str | int], kind: str = "f") -> Array:
        expect(self.stored, {key: tuple(shape)}, kinds={key: kind}, name=self.name)
        return self.stored.arrays[key]

    def inputs(self) -> NodeInputs:
        structure = None
        if "structure" in self.stored.arrays:
            structure = self.array("structure", ("n", "r"))
        return NodeInputs(graph_of(self.stored, self.name), self.features(), structure)

    def features(self) -> Any:
        known = self.stored.facts["features"]
        if known is None:
            return None
        columns, sparse = known["columns"], known["sparse"]
        self.insist(
            type(columns) is int and columns >= 0 and type(sparse) is bool, "the size of its features"
        )
        X = self.sparse(columns) if sparse else self.array("features", ("n", columns))
        self.insist(X.dtype in FLOATS, "the number type of its features")
        return X

    def sparse(self, columns: int) -> sp.csr_array:
        """Rows of strictly increasing columns, checked before SciPy follows them."""
        indptr = self.array("features.indptr", ("n+1",), "i")
        indices = self.array("features.indices", ("e",), "i")
        data = self.array("features.data", (len(indices),))
        self.insist(are_rows(indptr, indices, columns), "the table of its features")
        rises = indices[1:] > indices[:-1]
        begins = indptr[1:-1][(indptr[1:-1] > 0) & (indptr[1:-1] < len(indices))]
        rises[begins - 1] = True
        self.insist(rises.all(), "the order of its features")
        X = sp.csr_array((data, indices, indptr), shape=(len(self.stored.node_ids), columns))
        X.has_canonical_format = True
        return X

    def feature_names(self, inputs: NodeInputs) -> tuple[str, ...] | None:
        names = self.stored.facts["feature_names"]
        if names is None:
            return None
        columns = 0 if inputs.features is None else inputs.features.shape[1]
        self.insist(isinstance(names, list) and len(names) == columns, "the number of its feature names")
        self.insist(all(isinstance(name, str) for name in names), "the list of its feature names")
        return tuple(names)

    def targets(self) -> Targets:
        facts, classes = self.stored.facts, decoded_names(self.stored.facts["classes"])
        multilabel, C = facts["multilabel"], len(classes)
        self.insist(C > 0 and type(multilabel) is bool, "the list of its classes")
        labelled = self.nodes("targets.labelled", increasing=True)
        self.insist(len(labelled), "the list of labelled nodes")
        known = self.bits("targets.labels", (len(labelled), C), single=not multilabel)
        weights = self.array("targets.weights", (len(labelled),))
        within = ((weights >= 0) & (weights <= 1 + _ROUNDING)).all()
        self.insist(within and abs(weights.sum() - 1) < _ROUNDING, "the weight of its labels")
        labels = np.zeros((len(self.stored.node_ids), C))
        labels[labelled] = known
        return Targets(classes, labels, labelled, weights, multilabel)

    def validation(self, targets: Targets) -> Validation | None:
        if "validation.nodes" not in self.stored.arrays:
            return None
        nodes, C = self.nodes("validation.nodes", increasing=False), len(targets.classes)
        labels = self.bits("validation.labels", (len(nodes), C), single=False)
        return Validation(nodes, labels.astype(np.float64))

    def nodes(self, key: str, *, increasing: bool) -> Array:
        nodes, n = self.array(key, ("m",), "i"), len(self.stored.node_ids)
        self.insist(((nodes >= 0) & (nodes < n)).all(), f"the list {key}")
        self.insist(not increasing or (nodes[1:] > nodes[:-1]).all(), f"the order of {key}")
        return nodes.astype(np.int64, copy=False)

    def bits(self, key: str, shape: tuple[int, int], *, single: bool) -> Array:
        labels = self.array(key, shape, "u")
        self.insist((labels <= 1).all(), f"the table {key}")
        self.insist(not single or (labels.sum(axis=1) == 1).all(), f"the table {key}")
        return labels

    def fit(self, targets: Targets) -> NodeFit:
        C = len(targets.classes)
        kept = {key: self.fact(key, kind) for key, kind in _FIT_FACTS.items()}
        self.insist(all(isinstance(row, dict) for row in kept["near_best"]), "what was nearly chosen")
        self.insist(all(isinstance(text, str) for text in kept["notices"]), "the list of notices")
        kept |= {key: tuple(kept[key]) for key in ("near_best", "notices")}
        loo = None
        if "loo_scores" in self.stored.arrays:
            loo = self.array("loo_scores", (len(targets.labelled), C))
        scores = self.array("scores", ("n", C))
        certificate = certificate_of(self.stored, self.name)
        fitted = Fitted(self.model(), scores, loo, certificate=certificate, **kept)
        temperature = self.figure("temperature", most=math.inf)
        self.insist(temperature is None or 0 < temperature < math.inf, "the temperature of its probabilities")
        return NodeFit(fitted, temperature, self.figure("loo_accuracy", most=1.0))

    def fact(self, key: str, kind: Callable[[Any], Any]) -> Any:
        value = decoded(self.stored.facts[key])
        self.insist(type(value) is kind, f"its record of {key}")
        return value

    def figure(self, key: str, *, most: float) -> float | None:
        value = self.stored.facts[key]
        if value is None:
            return None
        figure = number(value, key, self.name)
        self.insist(0 <= figure <= most, f"its {key}")
        return figure

    def model(self) -> NodeModel:
        known, arrays = self.stored.facts["model"], self.stored.arrays
        own = {key.removeprefix(_MODEL): array for key, array in arrays.items() if key.startswith(_MODEL)}
        return self.sized(MODELS[known["name"]].of_stored(own, decoded(known["facts"])))

    def sized(self, model: NodeModel) -> NodeModel:
        self.insist(model.size == self.stored.arrays["scores"].shape, "the size of its model")
        return model
