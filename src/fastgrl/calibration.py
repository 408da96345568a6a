"""How fast this machine does the steps of a fit: a probe of at most about a second.

Every probe runs the step itself (a product of the design's own matrix, rows that are pushed, a round of
self-training), on as much of the graph as its share of the time allows for. So the rates follow the code, the
caches and the number of threads. Reading the file is not part of it.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from fastgrl import link_probes, node_probes, probes
from fastgrl.errors import FastgrlError
from fastgrl.estimate import Estimate
from fastgrl.graph import Graph
from fastgrl.link_probes import LinkBench
from fastgrl.node_costs import NodeEstimate
from fastgrl.node_probes import NodeBench
from fastgrl.node_times import walks_of
from fastgrl.parallel import single_threaded_blas, thread_count, use_threads
from fastgrl.push import KEEP
from fastgrl.rates import Rate as Rate
from fastgrl.rates import Rates as Rates
from fastgrl.rates import usual_rate

Probe = Callable[[float], Rate]

# Steps that would take less than this share of the run at the usual rates are not worth a probe.
_WORTH_MEASURING = 0.01
_LINK_PROBES: dict[str, Callable[[LinkBench, float], Rate]] = {
    "logarithm": link_probes.logarithm,
    "log product": link_probes.log_product,
    "log rows": link_probes.log_entries,
    "features": link_probes.features,
    "product": link_probes.product,
    "dense": link_probes.dense,
    "scorer": link_probes.scorer,
    "judge": link_probes.judge,
    "split": link_probes.split,
}
_NODE_PROBES: dict[str, Callable[[NodeBench, float], Rate]] = {
    "round": node_probes.training,
    "filter": node_probes.filtering,
    "view": node_probes.view,
    "hop": node_probes.hop,
    "matrices": node_probes.matrices,
    "similar": node_probes.similar,
    "decomposition": node_probes.decomposition,
}


_LEAST_SECONDS = 0.1


def calibrate(
    graph: Graph, cost: Estimate | NodeEstimate, *, threads: int | None = None, seconds: float = 1.0
) -> Rates:
    """Measure the rates that `cost.seconds(threads, rates)` needs, in about so many seconds.

    Only steps that matter to this cost are run, each for its share of the time; what the time does not
    suffice for keeps its usual rate.

    >>> from fastgrl.calibration import calibrate
    >>> from fastgrl.estimate import estimate_links
    >>> graph = fg.load_dataset("digits").graph
    >>> cost = estimate_links(graph, design="walk", select=False)
    >>> sorted(calibrate(graph, cost, seconds=0.1).measured)
    ['dense', 'product']
    """
    asked = thread_count() if threads is None else threads
    # Settings on threads of their own: each of them runs on one.
    used = 1 if isinstance(cost, NodeEstimate) and cost.small else asked
    lengths: dict[float, float] = {}
    available, expected = _probes_of(graph, cost, lengths), expected_seconds(cost)
    # To probe for a second what takes a tenth of one would be a bad joke.
    end = probes.clock() + min(seconds, _LEAST_SECONDS + sum(expected.values()) / 2)
    measured: dict[str, Rate] = {}
    wanted = [step for step in available if expected.get(step, 0) > _WORTH_MEASURING * sum(expected.values())]
    with use_threads(used), single_threaded_blas():
        for place, step in enumerate(wanted):
            left = end - probes.clock()
            if left <= 0:
                break
            shares = [expected[name] ** 0.5 for name in wanted[place:]]
            try:
                measured[step] = available[step](left * shares[0] / sum(shares))
            except FastgrlError:
                continue  # what cannot be run is what the fit itself will complain about
    return Rates(used, measured, lengths)


def expected_seconds(cost: Estimate | NodeEstimate) -> dict[str, float]:
    """Seconds of one thread by step, at the usual rates."""
    found: dict[str, float] = {}
    for work in cost.work():
        found[work.step] = found.get(work.step, 0.0) + usual_rate(work.step).seconds(work)
    return found


def _probes_of(graph: Graph, cost: Estimate | NodeEstimate, lengths: dict[float, float]) -> dict[str, Probe]:
    """Every probe by the step it measures; rows are pushed first, as others take them from there."""
    if isinstance(cost, NodeEstimate):
        walks = LinkBench(graph, "walk", walks_of(cost), 5)
        probes = {step: functools.partial(probe, walks) for step, probe in _LINK_PROBES.items()}
        own = NodeBench(graph, cost)
        nodes: dict[str, Any] = {step: functools.partial(probe, own) for step, probe in _NODE_PROBES.items()}
        return nodes | probes
    bench = LinkBench(graph, cost.design, cost.factorisation, cost.window, cost.keep or KEEP, lengths)
    pushes = [work.step for work in cost.work() if work.step.startswith("push ")]
    first: dict[str, Any] = {
        step: functools.partial(link_probes.push, bench, damping=float(step.split()[1]))
        for step in dict.fromkeys(pushes)
    }
    return first | {step: functools.partial(probe, bench) for step, probe in _LINK_PROBES.items()}
