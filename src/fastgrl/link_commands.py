"""The verbs of link prediction: embed, link, score, recommend, update, evaluate links."""

from __future__ import annotations

import dataclasses
import time
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fastgrl import completion, link_reports, terminal
from fastgrl.command_files import (
    STDOUT,
    bar,
    check_embedding,
    check_is_model,
    check_model,
    check_table,
    dataset_or_graph,
    fitted_on,
    ids_of,
    is_for_workers,
    known_ids,
    known_pairs,
    on_cluster,
    read_edges,
    read_table,
    refuse_for_folders,
    refuse_mixed_output,
    write_table,
)
from fastgrl.errors import ArgumentError, FastgrlError
from fastgrl.options import (
    METRICS,
    WALK_DESIGNS,
    ClusterOptions,
    Edges,
    FitOptions,
    Force,
    Model,
    PrintingOptions,
    ReadingOptions,
    Select,
    SelectIfAsked,
    Source,
    TableOptions,
    grouped,
    metric,
    named,
    whole,
)

if TYPE_CHECKING:
    from fastgrl.checks import Array
    from fastgrl.graph import Graph
    from fastgrl.link_prediction import LinkPredictor
    from fastgrl.link_runs import LinkRun, Parameters

_TABLES = "Table: .csv .tsv .parquet .npz, or - for stdout."


def _out(help: str, metavar: str = "OUT") -> Any:
    return typer.Option("-o", "--out", metavar=metavar, help=help, show_default=False)


@grouped
def embed(
    edges: Edges,
    reading: ReadingOptions,
    fit: FitOptions,
    workers: ClusterOptions,
    printing: PrintingOptions,
    out: Annotated[str, _out("File: .parquet .csv .npz .npy .txt, or - (CSV).")],
    side: Annotated[
        str,
        typer.Option(
            metavar="left|right", **named("side", ("left", "right")), help="Of a directed graph (left)."
        ),
    ] = "left",
    select: SelectIfAsked = False,
    quick: Annotated[bool, typer.Option("--quick", help="Rows of log-diffusion are cut short.")] = False,
    force: Force = False,
) -> None:
    """Write a vector for every node, with its id; the same seed gives the same bits."""
    from fastgrl.io.writers import write_embedding

    if workers.cluster is not None and is_for_workers(edges):
        if select:
            raise FastgrlError("--select cannot be chosen for a folder of Parquet files; leave it out")
        _embed_folder(edges, out, reading, fit, workers, printing, side=side, quick=quick, force=force)
        return
    refuse_mixed_output(out, printing)
    files = check_embedding(out, force=force, inputs=(edges, reading.nodes))
    found = read_edges(edges, reading, printing)
    asked = _parameters(fit, select=select, threads=reading.threads)
    with fitted_on(workers, fit.max_memory, printing):
        run = _fitted(found.graph, edges, asked, printing, out=out, quick=quick)
    vectors = run.left if side == "left" else run.right
    # Checked before the work; a file that has come since is no reason to lose it.
    write_embedding(out, vectors, node_ids=found.graph.ids, force=True)
    value = {
        "file": edges,
        "files": files,
        "side": side,
        **link_reports.fitted(run.fit, found.graph, fit.seed),
    }
    # What a fit says of itself is about scores, which nobody sees here.
    terminal.print_notes(found.notices, quiet=printing.quiet)
    if out != STDOUT:
        terminal.show(value, link_reports.embedding(value), as_json=printing.json)


def _embed_folder(
    edges: str,
    out: str,
    reading: ReadingOptions,
    fit: FitOptions,
    workers: ClusterOptions,
    printing: PrintingOptions,
    *,
    side: str,
    quick: bool,
    force: bool,
) -> None:
    """From a folder of Parquet files to another, on workers all the way."""
    from fastgrl.distributed.embedding import embed_folder
    from fastgrl.distributed.writing import Result
    from fastgrl.io.layout import Options

    refuse_for_folders(reading)
    if fit.bipartite:
        raise FastgrlError("--bipartite cannot be chosen for a folder of Parquet files; leave it out")
    Result(out, force, inputs=(edges,)).check()  # before workers are started
    options = Options(columns=reading.columns, weight=reading.weight, unweighted=reading.unweighted)
    with on_cluster(workers, printing) as cluster, bar(f"embedding {edges}", printing) as progress:
        value = embed_folder(
            dataclasses.replace(cluster, most_bytes=fit.max_memory),
            edges,
            out,
            design=fit.design,
            rank=fit.rank,
            window=fit.window,
            negative=fit.negative,
            seed=fit.seed,
            side=side,
            quick=quick,
            directed=reading.directed,
            options=options,
            force=force,
            progress=progress,
        )
    terminal.show({"file": edges} | value, link_reports.folder_embedding(value), as_json=printing.json)


@grouped
def link(
    edges: Edges,
    reading: ReadingOptions,
    fit: FitOptions,
    workers: ClusterOptions,
    printing: PrintingOptions,
    out: Annotated[str, _out("The folder of the model.", "MODEL")],
    validation: Annotated[
        str | None, typer.Option(metavar="FILE", help="Pairs that are links, to choose settings by.")
    ] = None,
    select: Select = True,
    force: Force = False,
) -> None:
    """Fit a link predictor and save it as a folder, with how good it is."""
    from fastgrl.link_runs import calm_threads
    from fastgrl.link_storage import Parts, save_parts
    from fastgrl.link_updates import certify

    check_model(out, force=force)
    found = read_edges(edges, reading, printing)
    table = TableOptions(encoding=reading.encoding, threads=reading.threads)
    held = None if validation is None else known_pairs(validation, found.graph, table, printing)
    asked = _parameters(fit, select=select, threads=reading.threads)
    with fitted_on(workers, fit.max_memory, printing):
        run = _fitted(found.graph, edges, asked, printing, out=out, validation=held)
        with bar("measuring how good it is", printing), calm_threads(reading.threads), run.planned():
            measured = certify(run.graph, run.fit)
    save_parts(Parts(dataclasses.asdict(asked), run.graph, run.position, run.fit, measured), out, force=force)
    value = {"file": edges, "model": out, **link_reports.fitted(run.fit, found.graph, fit.seed)}
    value["certificate"] = link_reports.certificate_figures(measured)
    _say(value, found.notices, printing)
    terminal.show(value, link_reports.model(value, found.graph, measured), as_json=printing.json)


@grouped
def score(
    model: Model,
    table: TableOptions,
    printing: PrintingOptions,
    pairs: Annotated[str, typer.Option(metavar="PAIRS", help="Two columns of ids; - is stdin.")],
    out: Annotated[str, _out(_TABLES)],
    force: Force = False,
) -> None:
    """Score given pairs, in their order: larger is likelier."""
    from fastgrl.parallel import use_threads
    from fastgrl.summaries import plain

    refuse_mixed_output(out, printing)
    check_table(out, force=force, inputs=(pairs,))
    predictor = _loaded(model)
    asked = read_table(pairs, table, printing)
    begin = time.perf_counter()
    with use_threads(table.threads):
        scores = predictor.score_pairs(predictor.graph_.node_ids[asked.numbers_in(predictor.graph_)])
    spent = round(time.perf_counter() - begin, 3)
    sources, targets = asked.columns
    write_table(out, {"source": sources, "target": targets, "score": scores})
    spread = terminal.figures(scores)
    value = {"model": model, "pairs": len(scores), "scores": plain(spread), "out": out, "seconds": spent}
    if out != STDOUT:
        terminal.show(value, link_reports.scores(value), as_json=printing.json)


@grouped
def recommend(
    model: Model,
    table: TableOptions,
    printing: PrintingOptions,
    node: Annotated[list[str] | None, typer.Option(metavar="ID", help="A node; may be repeated.")] = None,
    nodes_file: Annotated[
        str | None, typer.Option("--for", metavar="FILE", help="A list of nodes; - is stdin.")
    ] = None,
    everyone: Annotated[bool, typer.Option("--all", help="Every node.")] = False,
    k: Annotated[
        int, typer.Option("-k", metavar="N", parser=whole("-k", 1), help="Links for each node (10).")
    ] = 10,
    among: Annotated[
        str | None, typer.Option(metavar="FILE", help="A list of nodes: links to these only.")
    ] = None,
    approximate: Annotated[
        bool, typer.Option("--approximate", help="Faster, by an index that may miss some.")
    ] = False,
    out: Annotated[str | None, _out(_TABLES)] = None,
    force: Force = False,
) -> None:
    """Show the best missing links of nodes; links that are known are left out."""
    from fastgrl.parallel import use_threads

    if sum((bool(node), nodes_file is not None, everyone)) != 1:
        raise FastgrlError("say for which nodes, once: --node ID (may be repeated), --for FILE or --all")
    if out is not None:
        refuse_mixed_output(out, printing)
        check_table(out, force=force, inputs=(nodes_file, among))
    predictor = _loaded(model)
    wanted = ids_of(predictor.graph_, node) if node else None
    if nodes_file is not None:
        wanted = known_ids(nodes_file, predictor.graph_, table, printing)
    candidates = None if among is None else known_ids(among, predictor.graph_, table, printing)
    begin = time.perf_counter()
    with use_threads(table.threads), bar(f"ranking for {model}", printing) as progress:
        found = predictor.recommend(
            wanted,
            k=min(k, predictor.graph_.num_nodes),
            candidates=candidates,
            approximate=approximate,
            progress=progress,
        )
    if out is not None:
        value = {"model": model, "k": k, "out": out, "links": len(found.scores)}
        value["nodes"] = predictor.graph_.num_nodes if wanted is None else len(wanted)
        value["seconds"] = round(time.perf_counter() - begin, 3)
        write_table(out, {"node": found.nodes, "target": found.targets, "score": found.scores})
        if out != STDOUT:
            terminal.show(value, link_reports.recommendations_written(value), as_json=printing.json)
    elif printing.json:
        terminal.print_json({"model": model, "k": k, "recommendations": link_reports.recommended(found)})
    elif node and len(node) == 1:
        terminal.print_sections(link_reports.best_links(node[0], found))
    else:
        write_table(STDOUT, {"node": found.nodes, "target": found.targets, "score": found.scores})


@grouped
def update(
    model: Model,
    table: TableOptions,
    printing: PrintingOptions,
    edges: Annotated[str, typer.Option(metavar="NEW", help="New edges, also of new nodes; - is stdin.")],
    weight: Annotated[str | None, typer.Option(metavar="COLUMN", help="Column of weights.")] = None,
    unweighted: Annotated[bool, typer.Option("--unweighted", help="Leave weights out.")] = False,
    out: Annotated[str | None, _out("Another folder for the result (MODEL itself).", "OTHER")] = None,
    force: Force = False,
) -> None:
    """Take new edges and nodes into a model without a refit, with how far the answer can be off."""
    from fastgrl.io.pairs import retyped
    from fastgrl.parallel import use_threads
    from fastgrl.summaries import plain

    if out is not None:
        check_model(out, force=force)
    predictor = _loaded(model)
    directed, how = predictor.graph_.directed, dataclasses.asdict(table)
    reading = ReadingOptions(directed=directed, weight=weight, unweighted=unweighted, **how)
    found = read_edges(edges, reading, printing)
    ids = retyped(found.graph.node_ids, predictor.graph_.node_ids)
    with use_threads(table.threads), bar(f"updating {model}", printing) as progress:
        predictor.partial_fit(
            ids[found.graph.edge_codes()], weights=found.graph.edge_weights(), progress=progress
        )
    predictor.save(model if out is None else out, force=out is None or force)
    value = {"model": out or model, "edges_file": edges, "update": plain(predictor.update_)}
    value |= {"nodes": predictor.graph_.num_nodes, "edges": predictor.graph_.num_edges}
    notices = predictor.notices_
    if predictor.graph_.weights is not None and found.graph.weights is None:
        notices = [*notices, f"the model is weighted and {edges} is not: every new edge weighs 1"]
    if not value["update"]["new_nodes"] and not value["update"]["new_edges"]:
        notices = [*notices, f"the model knows every edge of {edges} already"]
    _say({"notices": notices}, found.notices, printing)
    terminal.show(value, link_reports.update(value), as_json=printing.json)


@grouped
def evaluate_links(
    source: Source,
    reading: ReadingOptions,
    fit: FitOptions,
    workers: ClusterOptions,
    printing: PrintingOptions,
    repeat: Annotated[
        int, typer.Option(metavar="N", parser=whole("repeat", 1), help="Seeds to try, from --seed on (1).")
    ] = 1,
    random_split: Annotated[bool, typer.Option("--random-split", help="Hold out 20 % of all edges.")] = False,
    measure: Annotated[
        str | None,
        typer.Option(
            "--metric",
            metavar="hits@K",
            parser=metric,
            autocompletion=completion.words(METRICS),
            help="A measure besides ROC-AUC, such as hits@20.",
        ),
    ] = None,
    select: Select = True,
    sweep: Annotated[
        bool, typer.Option("--sweep", help="Choose window and λ of a walk; not the published ones.")
    ] = False,
) -> None:
    """Fit on one part of a graph and test on the other; a dataset's own split unless told otherwise."""
    from fastgrl.evaluation import evaluate_links as evaluate
    from fastgrl.link_prediction import LinkPredictor
    from fastgrl.parallel import use_threads

    graph, notices = dataset_or_graph(source, reading, printing)
    _refuse_rank(fit.rank, getattr(graph, "graph", graph))
    asked = dataclasses.asdict(_parameters(fit, select=select))
    with (
        fitted_on(workers, fit.max_memory, printing),
        use_threads(reading.threads),
        bar(f"evaluating {source}", printing) as progress,
    ):
        found = evaluate(
            graph,
            LinkPredictor(**asked),
            seed=fit.seed,
            repeat=repeat,
            random_split=random_split,
            metric=measure,
            sweep=sweep,
            progress=progress,
        )
    found["dataset"] = source
    _say(found, notices, printing)
    terminal.show(found, link_reports.evaluation(found), as_json=printing.json)


def _say(value: Any, notices: tuple[str, ...], printing: PrintingOptions) -> None:
    terminal.print_notes([*notices, *value["notices"]], quiet=printing.quiet)


def _parameters(fit: FitOptions, *, select: bool, threads: int | None = None) -> Parameters:
    from fastgrl.link_runs import Parameters

    for name in ("window", "negative"):
        if getattr(fit, name) is not None and fit.design not in WALK_DESIGNS:
            raise FastgrlError(
                f"--{name} is about the designs {', '.join(WALK_DESIGNS)}; {fit.design} has none: leave it "
                "out, or name one of these with --design"
            )
    return Parameters(
        design=fit.design,
        n_components=fit.rank,
        select=select,
        window=fit.window,
        negative=fit.negative,
        bipartite=fit.bipartite,
        random_state=fit.seed,
        n_jobs=threads,
        max_memory=fit.max_memory,
    )


def _fitted(
    graph: Graph,
    edges: str,
    asked: Parameters,
    printing: PrintingOptions,
    *,
    out: str,
    validation: Array | None = None,
    quick: bool = False,
) -> LinkRun:
    # Not by a LinkPredictor: without scikit-learn a command starts in half the time.
    from fastgrl.link_runs import fit_graph
    from fastgrl.spilling import scratch_folder

    _refuse_rank(asked.n_components, graph)
    with bar(f"fitting {edges}", printing) as progress:
        place = scratch_folder(out, edges)
        return fit_graph(graph, asked, validation=validation, progress=progress, scratch=place, quick=quick)


def _refuse_rank(rank: int | None, graph: Graph) -> None:
    if rank is not None and rank > graph.num_nodes:
        n = graph.num_nodes
        raise ArgumentError(f"rank {rank} is above the number of nodes, {n}; ask for at most {n}")


def _loaded(folder: str) -> LinkPredictor:
    from fastgrl.models import load_links

    check_is_model(folder)
    return load_links(folder)
