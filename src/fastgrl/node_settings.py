"""The parameters of a node classifier, checked."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from typing import Any

import numpy as np

from fastgrl.checks import integer, shown
from fastgrl.devices import refuse_both
from fastgrl.errors import ArgumentError
from fastgrl.graph import Graph
from fastgrl.inputs import seed_of, threads_of
from fastgrl.node_models import CO_RIDGE, NODE_DESIGNS, NodeSettings
from fastgrl.views import VIEWS
from fastgrl.walks import finite_number

CO_RIDGE_SETTINGS = {"views", "restart", "ridge", "balance", "rounds"}
JKN_SETTINGS = {"hops", "window", "negative"}


def settings_of(parameters: Mapping[str, Any], graph: Graph) -> NodeSettings:
    """What an estimator's parameters ask for; an error names the one that is wrong."""
    design, select = parameters["design"], parameters["select"]
    if design not in NODE_DESIGNS:
        near = difflib.get_close_matches(str(design), NODE_DESIGNS, 1)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        raise ArgumentError(f"design must be one of {', '.join(NODE_DESIGNS)}, got {shown(design)}{hint}")
    if not isinstance(select, bool | np.bool_):
        raise ArgumentError(f"select must be True or False, got {shown(select)}")
    if graph.num_nodes < 2:
        raise ArgumentError(f"{graph!r} has no two nodes to tell apart")
    threads_of(parameters["n_jobs"])
    refuse_both(parameters["device"], parameters["max_memory"])
    _refuse_others(design, parameters)
    counts = {"rounds": 0, "hops": 0, "window": 1}
    return NodeSettings(
        design=design,
        rank=_count("n_components", parameters["n_components"], 1),
        select=bool(select),
        views=_views(parameters["views"]),
        restart=_number("restart", parameters["restart"], above=0.0, most=1.0),
        ridge=_number("ridge", parameters["ridge"], above=0.0),
        balance=_number("balance", parameters["balance"]),
        negative=_number("negative", parameters["negative"]),
        seed=seed_of(parameters["random_state"]),
        **{name: _count(name, parameters[name], least) for name, least in counts.items()},
    )


def _refuse_others(design: str, parameters: Mapping[str, Any]) -> None:
    """Settings that the design would silently ignore."""
    own = CO_RIDGE_SETTINGS if design == CO_RIDGE else JKN_SETTINGS
    own = own | {"ridge"} if design == "jkn-text" else own
    for name in sorted((CO_RIDGE_SETTINGS | JKN_SETTINGS) - own):
        if parameters[name] is not None:
            raise ArgumentError(f"{name} is not a setting of {design}; leave it out")


def _count(name: str, value: Any, least: int) -> int | None:
    return None if value is None else integer(name, value, least=least)


def _number(name: str, value: Any, *, above: float | None = None, most: float = np.inf) -> float | None:
    if value is None:
        return None
    number = finite_number(name, value, least=0.0)
    if (above is not None and number <= above) or number > most:
        limit = f" and at most {most:g}" if np.isfinite(most) else ""
        raise ArgumentError(f"{name} must be above {above or 0:g}{limit}, got {shown(value)}")
    return number


def _views(views: Any) -> tuple[str, ...] | None:
    if views is None:
        return None
    if isinstance(views, str):
        views = [view.strip() for view in views.split(",")]
    chosen = tuple(views) if np.iterable(views) else (views,)
    strange = [view for view in chosen if view not in VIEWS]
    if not chosen or strange or len(set(chosen)) < len(chosen):
        raise ArgumentError(f"views are some of {', '.join(VIEWS)}, each once; got {shown(views)}")
    return chosen
