"""A link predictor as arrays and JSON, and back."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

import numpy as np

from fastgrl import storage
from fastgrl.certificates import Certificate
from fastgrl.checks import Array
from fastgrl.costs import DIFFUSION_ROUNDS
from fastgrl.diffusion import Diffusion
from fastgrl.diffusion_links import DiffusionModel
from fastgrl.errors import InputError
from fastgrl.fsvd import SVD
from fastgrl.graph import Graph
from fastgrl.io.atomic import StrPath, named
from fastgrl.kernels import CSR
from fastgrl.link_models import Fit, LinkModel
from fastgrl.push import KEEP
from fastgrl.scorers import Scorer
from fastgrl.shrunken_links import ShrunkenModel
from fastgrl.spaces import DOT_FEATURES, FEATURE_SETS, Space
from fastgrl.storage import Stored, expect
from fastgrl.stored_parts import (
    are_rows,
    certificate_of,
    certificate_parts,
    graph_of,
    graph_parts,
    number,
    position_of,
)
from fastgrl.walk_links import WalkModel

KIND = "link-predictor"


@dataclass(frozen=True, eq=False)
class Parts:
    """What a fitted predictor is made of: its parameters, the graph in the model's order, and the rest.

    `position[i]` is where the i-th node of the caller's graph stands in the model's; None if they agree.
    """

    parameters: dict[str, Any]
    graph: Graph
    position: Array | None
    fit: Fit
    certificate: Certificate | None


def save_parts(parts: Parts, folder: StrPath, *, force: bool = False) -> None:
    """Write a fitted predictor to a folder; a certificate that was measured goes with it."""
    storage.save_model(_stored(parts), folder, force=force)


def _stored(parts: Parts) -> Stored:
    graph, fit = parts.graph, parts.fit
    arrays, model = _model_arrays(fit.model)
    graph_arrays, graph_facts = graph_parts(graph)
    series, figures = certificate_parts(parts.certificate)
    arrays |= graph_arrays | series
    if parts.position is not None:
        arrays["position"] = parts.position
    if fit.sides is not None:
        arrays["sides"] = fit.sides.astype(np.int32)
    facts = {
        "model": model,
        "chosen": fit.chosen,
        "validation": fit.validation,
        "seconds": fit.seconds,
        "notices": list(fit.notices),
        "near_best": list(fit.near_best),
    }
    facts |= graph_facts | figures
    return Stored(KIND, _plain(parts.parameters), facts, arrays, graph.node_ids)


def _plain(parameters: dict[str, Any]) -> dict[str, Any]:
    """The parameters as JSON has them; a generator cannot be written down, and the fit is over.

    Threads, memory and device are those of the machine that fitted: whoever loads the model has others.
    """
    kept, machine = (bool, int, float, str, type(None)), {"n_jobs": None, "max_memory": None, "device": None}
    return {
        name: value if isinstance(value, kept) else value.item() if isinstance(value, np.generic) else 0
        for name, value in (parameters | machine).items()
    }


def _model_arrays(model: LinkModel) -> tuple[dict[str, Array], dict[str, Any]]:
    if isinstance(model, DiffusionModel):
        space, diffusion = model.space, model.space.diffusion
        sides = {"left": diffusion.left} | ({} if diffusion.symmetric else {"right": diffusion.right})
        arrays = {
            f"rows.{side}.{part}": getattr(rows, part)
            for side, rows in sides.items()
            for part in ("indptr", "indices", "values")
        }
        arrays |= {"out_degrees": diffusion.out_degrees, "in_degrees": diffusion.in_degrees}
        arrays |= {"left": space.left, "right": space.right, "singular_values": space.singular_values}
        arrays |= {"near.left": space.near[0], "near.right": space.near[1]}
        if model.node_weights is not None:
            arrays["node_weights"] = model.node_weights
        scorer = model.scorer
        arrays |= {f"scorer.{name}": getattr(scorer, name) for name in ("means", "deviations", "weights")}
        facts = {"damping": model.damping, "bias": scorer.bias, "size": space.size}
        facts |= {"keep": model.keep, "rounds": model.rounds}
        return arrays, {"kind": "diffusion", "n_components": model.n_components} | facts
    assert isinstance(model, WalkModel | ShrunkenModel)
    arrays = {"U": model.svd.U, "s": np.asarray(model.svd.s), "V": np.ascontiguousarray(model.svd.Vt.T)}
    facts = {
        field.name: getattr(model, field.name)
        for field in dataclasses.fields(model)
        if field.name not in ("svd", "degrees")
    }
    kind = "walk"
    if isinstance(model, ShrunkenModel):
        kind, arrays["degrees"] = "shrunken", model.degrees
    return arrays, {"kind": kind} | facts


def parts_of(stored: Stored, name: StrPath) -> Parts:
    """What `save_parts` wrote, from the model as it was read; `name` is what errors call it."""
    if stored.kind != KIND:
        raise InputError(f"{named(name)} holds a {stored.kind}, not a {KIND}")
    try:
        graph = graph_of(stored, name)
        fit, position = _fit(stored, graph, name), position_of(stored, name)
        return Parts(stored.parameters, graph, position, fit, certificate_of(stored, name))
    except (KeyError, TypeError, AttributeError, IndexError, OverflowError) as error:
        raise InputError(
            f"{named(name)} is not a whole {KIND}: {type(error).__name__} {error}; fit it again"
        ) from error


def _fit(stored: Stored, graph: Graph, name: StrPath) -> Fit:
    facts = stored.facts
    known = dict(facts["model"])
    make = {"diffusion": _diffusion_model, "walk": _walk_model, "shrunken": _shrunken_model}
    model = make[known.pop("kind")](stored, known, name)
    return Fit(
        model,
        facts["chosen"],
        facts["validation"],
        facts["seconds"],
        tuple(facts["notices"]),
        _sides(stored, graph, name),
        tuple(facts["near_best"]),
    )


def _sides(stored: Stored, graph: Graph, name: StrPath) -> Array | None:
    if "sides" not in stored.arrays:
        return None
    expect(stored, {"sides": ("n",)}, kinds={"sides": "i"}, name=name)
    sides = stored.arrays["sides"]
    ends = sides[graph.edge_codes()]
    if not np.isin(sides, (0, 1)).all() or (ends[:, 0] == ends[:, 1]).any():
        raise InputError(f"{named(name)}: its two sides are damaged; fit it again")
    return sides


def _diffusion_model(stored: Stored, known: dict[str, Any], name: StrPath) -> DiffusionModel:
    arrays = stored.arrays
    shapes: dict[str, Any] = {"left": ("n", "k"), "right": ("n", "k"), "singular_values": ("k",)}
    shapes |= dict.fromkeys(("out_degrees", "in_degrees", "near.left", "near.right"), ("n",))
    shapes |= {"node_weights": (len(DOT_FEATURES) - 1,)} if "node_weights" in arrays else {}
    shapes |= {f"scorer.{part}": ("f",) for part in ("means", "deviations", "weights")}
    lengths = expect(stored, shapes, name=name)
    columns = lengths["k"] + 2 * ("node_weights" in arrays)
    wanted = int(number(known["n_components"], "n_components", name))
    if lengths["f"] not in FEATURE_SETS.values() or wanted < columns:
        raise InputError(f"{named(name)} has a scorer of {lengths['f']} features; fit it again")
    left = _rows(stored, "left", name)
    right = _rows(stored, "right", name) if "rows.right.indptr" in arrays else left
    diffusion = Diffusion.of(left, right, arrays["out_degrees"], arrays["in_degrees"])
    near = arrays["near.left"], arrays["near.right"]
    vectors = arrays["left"], arrays["right"], arrays["singular_values"]
    space = Space(diffusion, *vectors, near, int(number(known["size"], "size", name)))
    parts = {part: arrays[f"scorer.{part}"] for part in ("means", "deviations", "weights")}
    scorer = Scorer(**parts, bias=number(known["bias"], "bias", name))
    # Models of earlier versions kept the usual number of entries, in the usual rounds.
    usual = {"keep": KEEP, "rounds": DIFFUSION_ROUNDS}
    kept = {what: int(number(known.get(what, value), what, name)) for what, value in usual.items()}
    for what, value in kept.items():
        if value < 1:
            raise InputError(f"{named(name)}: {what} is {value}, which no fit has; fit it again")
    return DiffusionModel(space, scorer, known["damping"], arrays.get("node_weights"), wanted, **kept)


def _rows(stored: Stored, side: str, name: StrPath) -> CSR:
    """Diffusion rows, checked before compiled code follows their indices."""
    names = {part: f"rows.{side}.{part}" for part in ("indptr", "indices", "values")}
    lengths = expect(
        stored,
        {names["indptr"]: ("n+1",), names["indices"]: ("e",), names["values"]: ("e",)},
        kinds={names["indptr"]: "i", names["indices"]: "i"},
        name=name,
    )
    n = lengths["n"]
    indptr, indices, values = (stored.arrays[names[part]] for part in ("indptr", "indices", "values"))
    if not are_rows(indptr, indices, n) or indices.dtype != np.int32 or values.dtype != np.float32:
        raise InputError(f"{named(name)}: its diffusion rows are damaged; fit it again")
    return CSR(indptr.astype(np.int64, copy=False), indices, values, (n, n), np.dtype(np.float32))


def _svd(stored: Stored, name: StrPath) -> SVD:
    expect(stored, {"U": ("n", "k"), "V": ("n", "k"), "s": ("k",)}, name=name)
    return SVD(stored.arrays["U"], stored.arrays["s"], stored.arrays["V"].T)


def _walk_model(stored: Stored, known: dict[str, Any], name: StrPath) -> WalkModel:
    return WalkModel(_svd(stored, name), **known)


def _shrunken_model(stored: Stored, known: dict[str, Any], name: StrPath) -> ShrunkenModel:
    expect(stored, {"degrees": ("n",)}, name=name)
    return ShrunkenModel(_svd(stored, name), stored.arrays["degrees"], **known)
