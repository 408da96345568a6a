"""The designs of link prediction by name."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from fastgrl.bipartite import has_odd_cycle_at_hub, two_sides
from fastgrl.checks import Array
from fastgrl.diffusion_links import fit_diffusion
from fastgrl.graph import Graph
from fastgrl.link_models import Fit, Known, Settings
from fastgrl.progress import Progress
from fastgrl.shrunken_links import fit_shrunken
from fastgrl.walk_links import fit_walk

_FITS: dict[str, Callable[..., Fit]] = {
    "log-diffusion": fit_diffusion,
    "walk": fit_walk,
    "degree-walk": fit_walk,
    "as-released": fit_walk,
    "shrunken": fit_shrunken,
}
DESIGNS = tuple(_FITS)
TWO_SIDED = (
    "every cycle of this graph is even: if it joins two kinds of nodes, such as users and items, "
    "bipartite=True (--bipartite) learns and recommends links between the two only"
)


def fit_links(
    graph: Graph,
    settings: Settings,
    *,
    known: Known | None = None,
    sides: Array | None = None,
    progress: Progress | None = None,
) -> Fit:
    """Fit the design that `settings` names; `sides` are those of a bipartite graph."""
    fit = _FITS[settings.design](graph, settings, known=known, sides=sides, progress=progress)
    hints = () if settings.bipartite or not _looks_two_sided(graph) else (TWO_SIDED,)
    chosen = {"design": settings.design, **fit.chosen}
    return replace(fit, sides=sides, notices=fit.notices + hints, chosen=chosen)


def _looks_two_sided(graph: Graph) -> bool:
    if graph.directed or graph.num_edges < graph.num_nodes or has_odd_cycle_at_hub(graph):
        return False
    # Of a graph on disk the division would take more memory than the fit: a hint is not worth that.
    return not graph.mapped and two_sides(graph) is not None
