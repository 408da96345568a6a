"""What models of every kind are stored with: a graph, sparse rows, a certificate."""

from __future__ import annotations

from typing import Any

import numpy as np

from fastgrl.certificates import Certificate
from fastgrl.checks import Array, shown
from fastgrl.errors import FastgrlError, InputError
from fastgrl.graph import Graph
from fastgrl.io.atomic import StrPath, named
from fastgrl.storage import Stored, data_digest, expect

_FIGURES = (
    *("orthogonality", "captured", "captured_error", "residual_norm", "residual_norm_error"),
    *("norm", "next_value"),
)
_SERIES = ("s", "left_residuals", "right_residuals")


def graph_parts(graph: Graph) -> tuple[dict[str, Array], dict[str, Any]]:
    """The arrays and the facts of a graph; its ids are stored by themselves."""
    arrays = {"graph.indptr": graph.indptr, "graph.indices": graph.indices}
    if graph.weights is not None:
        arrays["graph.weights"] = graph.weights
    return arrays, {"directed": graph.directed, "data_digest": data_digest(arrays, graph.node_ids)}


def graph_of(stored: Stored, name: StrPath) -> Graph:
    """The graph that `graph_parts` wrote down, checked."""
    arrays = stored.arrays
    try:
        return Graph(
            arrays["graph.indptr"],
            arrays["graph.indices"],
            arrays.get("graph.weights"),
            stored.node_ids,
            directed=bool(stored.facts["directed"]),
        )
    except FastgrlError as error:
        raise InputError(f"{named(name)}: its graph is damaged ({error}); fit it again") from error


def certificate_parts(certificate: Certificate | None) -> tuple[dict[str, Array], dict[str, Any]]:
    """The arrays and the facts of a certificate, if there is one."""
    if certificate is None:
        return {}, {}
    arrays = {f"certificate.{name}": np.asarray(getattr(certificate, name)) for name in _SERIES}
    return arrays, {"certificate": {name: float(getattr(certificate, name)) for name in _FIGURES}}


def certificate_of(stored: Stored, name: StrPath) -> Certificate | None:
    """The certificate that `certificate_parts` wrote down; None if there was none."""
    if "certificate" not in stored.facts:
        return None
    expect(stored, {f"certificate.{part}": ("c",) for part in _SERIES}, name=name)
    series: dict[str, Any] = {part: stored.arrays[f"certificate.{part}"] for part in _SERIES}
    series |= {part: number(stored.facts["certificate"][part], part, name) for part in _FIGURES}
    return Certificate(**series)


def position_of(stored: Stored, name: StrPath) -> Array | None:
    """Where each node of the caller's graph stands in the model's, checked; None if they agree."""
    if "position" not in stored.arrays:
        return None
    n = expect(stored, {"position": ("n",)}, kinds={"position": "i"}, name=name)["n"]
    position = stored.arrays["position"]
    if not (np.sort(position) == np.arange(n)).all():
        raise InputError(f"{named(name)}: its order of nodes is damaged; fit it again")
    return position


def number(value: Any, what: str, name: StrPath) -> float:
    """`value` of a model's facts as a float."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise InputError(f"{named(name)}: {what} is {shown(value)}, not a number; fit it again")
    return float(value)


def are_rows(indptr: Array, indices: Array, num_columns: int) -> bool:
    """Whether compiled code may follow these row pointers and column numbers."""
    rises = indptr[0] == 0 and indptr[-1] == len(indices) and (indptr[1:] >= indptr[:-1]).all()
    return bool(rises and (not len(indices) or (indices.min() >= 0 and indices.max() < num_columns)))
