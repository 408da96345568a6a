"""A fit of link prediction, from what a caller gives to what was learnt, without scikit-learn.

`LinkPredictor` is a scikit-learn estimator over them. Commands that need no estimator call them directly:
importing scikit-learn takes longer than NumPy, SciPy's sparse arrays and a small fit together.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from fastgrl.bipartite import checked_sides
from fastgrl.checks import Array, integer, shown
from fastgrl.devices import refuse_both, working_on
from fastgrl.errors import ArgumentError
from fastgrl.estimate import DEFAULT_RANKS, Estimate, estimate_links
from fastgrl.graph import Graph
from fastgrl.inputs import as_graph, seed_of, threads_of
from fastgrl.link_fits import DESIGNS, fit_links
from fastgrl.link_inputs import known_pairs
from fastgrl.link_models import Fit, Settings
from fastgrl.memory_plans import MemoryPlan, held_beside, plan_for
from fastgrl.ordering import canonical_order_of, reordered
from fastgrl.parallel import single_threaded_blas, use_threads
from fastgrl.progress import Progress
from fastgrl.push import mean_row_length
from fastgrl.selection import DAMPINGS
from fastgrl.spilling import gathered

_MOST_COMPONENTS = 4096


@dataclass(frozen=True, kw_only=True)
class Parameters:
    """What a caller asks for, unchecked; `LinkPredictor` has the same names and says what they mean."""

    design: str = "log-diffusion"
    n_components: int | None = None
    select: bool = True
    window: int | None = None
    negative: float | None = None
    damping: float = 0.85
    bipartite: bool = False
    random_state: Any = 0
    n_jobs: int | None = None
    max_memory: int | None = None
    device: Any = None


@dataclass(frozen=True, eq=False)
class LinkRun:
    """What was learnt, and the graph in the order it was learnt in.

    `position[i]` is where the i-th node of the caller's graph stands in `graph`; None if they agree.
    """

    graph: Graph
    position: Array | None
    fit: Fit
    plan: MemoryPlan | None = None

    @property
    def left(self) -> Array:
        """The vectors of the model, in the caller's order: those of the first node of a pair."""
        with single_threaded_blas(), self.planned():
            return self.in_given_order(self.fit.model.left)

    @property
    def right(self) -> Array:
        """Those of the second."""
        with single_threaded_blas(), self.planned():
            return self.in_given_order(self.fit.model.right)

    def in_given_order(self, rows: Array) -> Array:
        """Rows of the model, one per node, in the caller's order."""
        return rows if self.position is None else gathered(rows, self.position)

    def planned(self) -> AbstractContextManager[None]:
        """The body computes as the fit did, within the same limit on memory."""
        return nullcontext() if self.plan is None else self.plan.applied()


def fit_graph(
    graph: Any,
    parameters: Parameters,
    *,
    validation: Any = None,
    progress: Progress | None = None,
    scratch: str | None = None,
    quick: bool = False,
) -> LinkRun:
    """Fit to a `Graph`, or to anything `as_graph` takes.

    `validation` lists pairs of ids that are known to be links though the graph does not have them, or is a
    tuple (links, others); settings are then chosen on them. `scratch` is the folder for what `max_memory`
    sends to disk, by default that of temporary files. `quick` is a log-diffusion for its vectors alone, with
    short rows and nothing held out: a point or two less accurate, several times faster.

    >>> fit_graph([("ann", "bob"), ("bob", "cy"), ("cy", "ann")], Parameters(n_components=2)).left.shape
    (3, 2)
    """
    graph = as_graph(graph)
    settings = settings_of(parameters, graph)
    plan = None if parameters.max_memory is None else plan_of(parameters, graph, scratch=scratch)
    settings = settings if plan is None else replace(settings, keep=plan.keep)
    settings = replace(settings, quick=_checked_quick(quick, parameters))
    order = canonical_order_of(graph)
    position = None if order is None else np.argsort(order)
    known_order = graph if order is None else reordered(graph, order)
    known = None if validation is None else known_pairs(known_order, validation)
    # Found in the caller's order: with edges written "user, item", users are side 0.
    sides = checked_sides(graph) if settings.bipartite else None
    sides = sides if sides is None or order is None else sides[order]
    limited = nullcontext() if plan is None else plan.applied()
    with calm_threads(parameters.n_jobs), limited, working_on(parameters.device):
        fit = fit_links(known_order, settings, known=known, sides=sides, progress=progress)
    return LinkRun(known_order, position, fit, plan)


@contextmanager
def calm_threads(n_jobs: Any) -> Iterator[None]:
    """As many threads as `n_jobs` asks for, which sleep when idle; BLAS, whose threads do not, has one."""
    with use_threads(threads_of(n_jobs)), single_threaded_blas():
        yield


def settings_of(parameters: Parameters, graph: Graph) -> Settings:
    """What is to be fitted to a graph, from parameters that are checked first."""
    design, given = parameters.design, parameters.n_components
    if design not in DESIGNS:
        near = difflib.get_close_matches(str(design), DESIGNS, 1)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        raise ArgumentError(f"design must be one of {', '.join(DESIGNS)}, got {shown(design)}{hint}")
    if graph.num_nodes < 2:
        raise ArgumentError(f"{graph!r} has no two nodes to predict a link between")
    if graph.num_edges == 0:
        raise ArgumentError(f"{graph!r} has no edges to learn from")
    _check_numbers(parameters)
    rank = DEFAULT_RANKS[design] if given is None else given
    rank = integer("n_components", rank, least=1, most=max(_MOST_COMPONENTS, graph.num_nodes))
    if parameters.max_memory is not None:
        integer("max_memory", parameters.max_memory, least=1)
    refuse_both(parameters.device, parameters.max_memory)
    window = None if parameters.window is None else integer("window", parameters.window, least=1)
    return Settings(
        design=design,
        n_components=rank,
        select=bool(parameters.select),
        window=window,
        negative=parameters.negative,
        damping=parameters.damping,
        bipartite=bool(parameters.bipartite),
        seed=seed_of(parameters.random_state),
    )


def _check_numbers(parameters: Parameters) -> None:
    select, damping, negative = parameters.select, parameters.damping, parameters.negative
    if not isinstance(select, bool | np.bool_):
        raise ArgumentError(f"select must be True or False, got {shown(select)}")
    if not isinstance(damping, int | float | np.floating) or not 0 < damping < 1:
        raise ArgumentError(f"damping must be between 0 and 1, got {shown(damping)}")
    real = isinstance(negative, int | float | np.number | None)
    if not real or (negative is not None and not 0 <= negative < np.inf):
        raise ArgumentError(f"negative must be a finite number of at least 0, got {shown(negative)}")
    threads_of(parameters.n_jobs)


def _checked_quick(quick: Any, parameters: Parameters) -> bool:
    if not isinstance(quick, bool | np.bool_):
        raise ArgumentError(f"quick must be True or False, got {shown(quick)}")
    if quick and (parameters.design != "log-diffusion" or parameters.select):
        raise ArgumentError('quick is for the design "log-diffusion" without selection; leave it out')
    return bool(quick)


def cost_of(parameters: Parameters, graph: Graph) -> Estimate:
    """What a fit would cost; for log-diffusion a sample of rows is pushed to see how long they get."""
    design, rank = parameters.design, None
    if parameters.n_components is not None:
        rank = min(integer("n_components", parameters.n_components, least=1), graph.num_nodes)
    length = mean_row_length(graph, damping=_widest(parameters)) if design == "log-diffusion" else None
    return estimate_links(
        graph,
        design=design,
        rank=rank,
        window=parameters.window,
        select=parameters.select,
        row_length=length,
    )


def plan_of(parameters: Parameters, graph: Graph, *, scratch: str | None = None) -> MemoryPlan:
    """How to fit within `max_memory`, which is what the whole process may hold; refused if none is."""
    limit = integer("max_memory", parameters.max_memory, least=1)

    def row_length(keep: int) -> float:
        return mean_row_length(graph, damping=_widest(parameters), keep=keep, sample=512)

    with calm_threads(parameters.n_jobs):
        cost = cost_of(parameters, graph)
        return plan_for(cost, limit, held=held_beside(graph), folder=scratch, row_length=row_length)


def _widest(parameters: Parameters) -> float:
    """The damping with the longest rows that a fit tries."""
    return max(DAMPINGS) if parameters.select else parameters.damping


def embed(
    graph: Any,
    rank: int = 64,
    *,
    design: str = "log-diffusion",
    select: bool = False,
    quick: bool = False,
    seed: int = 0,
    progress: Progress | None = None,
    n_threads: int | None = None,
) -> Array:
    """One vector per node, n×rank, in the order of `graph.node_ids`: the `embedding_` of a `LinkPredictor`.

    `graph` is whatever `LinkPredictor.fit` takes, and `design` one of its designs. `select` chooses settings
    on edges that are held out, which takes several times as long. `quick` keeps 16 entries of each row of a
    log-diffusion and holds nothing out: several times faster, a point or two less accurate. The same `seed`
    gives the same bits for any `n_threads`; `progress(done, total)` is called now and then.

    >>> fg.embed(fg.Graph.from_edges([(0, 1), (1, 2), (2, 0), (2, 3)]), 2).shape
    (4, 2)
    """
    asked = Parameters(design=design, n_components=rank, select=select, random_state=seed, n_jobs=n_threads)
    return fit_graph(graph, asked, progress=progress, quick=quick).left
