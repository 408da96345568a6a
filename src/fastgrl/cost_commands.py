"""What a fit would cost, before it is run: inspect, estimate."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fastgrl import terminal
from fastgrl.command_files import STDOUT, NodeFiles, read_edges, read_node_files
from fastgrl.options import (
    Dtype,
    Edges,
    FitOptions,
    NodeFileOptions,
    PrintingOptions,
    ReadingOptions,
    Select,
    grouped,
)

if TYPE_CHECKING:
    from fastgrl.estimate import Estimate
    from fastgrl.graph import Graph
    from fastgrl.memory_plans import MemoryPlan
    from fastgrl.node_costs import NodeEstimate
    from fastgrl.rates import Rates


@grouped
def inspect(
    edges: Edges,
    reading: ReadingOptions,
    fit: FitOptions,
    printing: PrintingOptions,
    dtype: Dtype = "float32",
    select: Select = True,
) -> None:
    """Say what was understood of a file, what the graph looks like, and what a fit would cost."""
    from fastgrl.errors import UnavailableError

    found = read_edges(edges, reading, printing)
    cost, plan, over = _cost(found.graph, fit, dtype, select), None, None
    try:
        plan = _plan(found.graph, cost, fit, edges)
    except UnavailableError as error:
        over = str(error)
    cost = cost if plan is None else plan.cost
    lonely = (
        "there is one node alone: a fit has nothing to learn from" if found.graph.num_nodes == 1 else None
    )
    notices = [*found.notices, *filter(None, (lonely, over))]
    terminal.print_notes(notices, quiet=printing.quiet)
    facts, threads = terminal.graph_facts(found), _threads(reading)
    rates = _rates(found.graph, cost, threads)
    value = {"file": edges, **facts, "notices": notices, "cost": cost.as_dict(threads=threads, rates=rates)}
    value["plan"] = None if plan is None else plan.as_dict()
    value["next"] = None if edges == STDOUT else f"fastgrl link {shlex.quote(edges)} -o MODEL"
    *sections, (title, figures) = terminal.inspection(edges, facts, cost, threads, rates)
    shown = [*sections, (title, {**figures, **_plan_row(plan)})]
    same = ", with the same options" * (reading != ReadingOptions(threads=reading.threads))
    shown += [("next", {"fit": value["next"] + same})] if value["next"] else []
    terminal.show(value, shown, as_json=printing.json)


@grouped
def estimate(
    edges: Edges,
    reading: ReadingOptions,
    fit: FitOptions,
    files: NodeFileOptions,
    printing: PrintingOptions,
    labels: Annotated[
        str | None, typer.Option(metavar="FILE", help="What `classify` would cost, not `link`.")
    ] = None,
    validation: Annotated[str | None, typer.Option(metavar="FILE", help="As of `classify`.")] = None,
    dtype: Dtype = "float32",
    select: Select = True,
) -> None:
    """Say what a fit would cost; with --max-memory also how it stays within it, or exit with 1."""
    from fastgrl.estimate import check_memory

    threads, plan = _threads(reading), None
    if labels is None:
        found = read_edges(edges, reading, printing)
        quoted = _cost(found.graph, fit, dtype, select)
        graph, notices = found.graph, found.notices
        plan = _plan(graph, quoted, fit, edges)
        cost: Estimate | NodeEstimate = quoted if plan is None else plan.cost
    else:
        given = read_node_files(edges, labels, validation, reading=reading, files=files, printing=printing)
        cost = _node_cost(given, fit.rank, select, threads)
        graph, notices = given.graph, given.notices
    terminal.print_notes(notices, quiet=printing.quiet)
    if fit.max_memory is not None and labels is not None:
        check_memory(cost, fit.max_memory)
    rates = _rates(graph, cost, threads)
    value = {"file": edges, **cost.as_dict(threads=threads, rates=rates)}
    value["plan"] = None if plan is None else plan.as_dict()
    words = terminal.quotation(cost, threads, rates) | _plan_row(plan)
    terminal.show(value, [(edges, words)], as_json=printing.json)


def _plan(graph: Graph, cost: Estimate, fit: FitOptions, edges: str) -> MemoryPlan | None:
    """How a fit would stay within --max-memory, as the process is now; None without a limit."""
    from fastgrl.memory_plans import held_beside, plan_for
    from fastgrl.push import mean_row_length
    from fastgrl.spilling import scratch_folder

    if fit.max_memory is None:
        return None
    return plan_for(
        cost,
        fit.max_memory,
        held=held_beside(graph),
        folder=scratch_folder(edges),
        row_length=lambda keep: mean_row_length(graph, damping=0.85, keep=keep, sample=512),
    )


def _plan_row(plan: MemoryPlan | None) -> dict[str, str]:
    from fastgrl.estimate import format_bytes

    if plan is None:
        return {}
    total, held = format_bytes(plan.peak_bytes), format_bytes(plan.held)
    return {"plan": f"{plan.words()}; the process would hold {total}, {held} of it already"}


def _threads(options: ReadingOptions) -> int:
    from fastgrl.parallel import available_cpus

    return options.threads or available_cpus()


def _rates(graph: Graph, cost: Estimate | NodeEstimate, threads: int) -> Rates:
    """How fast this machine is at such a fit, measured for a second at most."""
    from fastgrl.calibration import calibrate

    return calibrate(graph, cost, threads=threads)


def _cost(graph: Graph, fit: FitOptions, dtype: str, select: bool) -> Estimate:
    """What `link` with the same options would cost; a few rows are pushed to see how long they get."""
    from fastgrl.estimate import estimate_links
    from fastgrl.push import mean_row_length

    diffused = fit.design == "log-diffusion"
    return estimate_links(
        graph,
        design=fit.design,
        rank=fit.rank,
        window=fit.window,
        row_length=mean_row_length(graph, damping=0.85) if diffused else None,
        select=select,
        dtype=dtype,
        negative=fit.negative,
    )


def _node_cost(files: NodeFiles, rank: int | None, select: bool, threads: int) -> NodeEstimate:
    """What `classify` with these files would cost."""
    from fastgrl.node_classification import NodeClassifier

    classifier = NodeClassifier(n_components=rank, select=select, n_jobs=threads)
    classes, labelled = len(files.labels.classes), files.labels.count
    how: dict[str, Any] = {"classes": classes, "labelled": labelled, "validation": files.held is not None}
    return classifier.cost(files.graph, files.matrix, **how)
