"""The verbs of node classification: classify, predict, explain, evaluate nodes."""

from __future__ import annotations

import dataclasses
import time
from importlib.util import find_spec
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fastgrl import node_reports, terminal
from fastgrl.command_files import (
    STDOUT,
    NodeFiles,
    bar,
    check_is_model,
    check_model,
    check_table,
    dataset_or_graph,
    fitted_on,
    ids_of,
    is_for_workers,
    is_table,
    known_ids,
    on_cluster,
    read_edges,
    read_feature_file,
    read_node_files,
    read_table,
    refuse_for_folders,
    refuse_mixed_output,
    write_table,
)
from fastgrl.errors import ArgumentError, FastgrlError, UnknownIdError
from fastgrl.options import (
    ClusterOptions,
    Edges,
    Force,
    MissingFeatures,
    NodeFileOptions,
    NodeFitOptions,
    NodeModel,
    PrintingOptions,
    ReadingOptions,
    SelectNodes,
    Source,
    TableOptions,
    grouped,
    named,
    whole,
)

if TYPE_CHECKING:
    from fastgrl.checks import Array
    from fastgrl.datasets import NodeDataset
    from fastgrl.graph import Graph
    from fastgrl.io.features import FeatureTable
    from fastgrl.node_classification import NodeClassifier

_TABLES = "Table: .csv .tsv .parquet .npz, or - for stdout."
_LIKELY = 0.5  # above it a node has a label, where it may have several


def _out(help: str, metavar: str = "OUT") -> Any:
    return typer.Option("-o", "--out", metavar=metavar, help=help, show_default=False)


@grouped
def classify(
    edges: Edges,
    reading: ReadingOptions,
    fit: NodeFitOptions,
    files: NodeFileOptions,
    workers: ClusterOptions,
    printing: PrintingOptions,
    labels: Annotated[str, typer.Option(metavar="FILE", help="Ids and labels; blank is unknown.")],
    out: Annotated[str, _out("Folder of the model; a table: the classes alone.", "MODEL")],
    predictions: Annotated[
        str | None, typer.Option(metavar="OUT", help="A table of the classes, besides.")
    ] = None,
    validation: Annotated[
        str | None, typer.Option(metavar="FILE", help="Ids, or ids and labels, to choose settings by.")
    ] = None,
    select: SelectNodes = True,
    force: Force = False,
) -> None:
    """Fit a node classifier and save it as a folder, with how good it is."""
    if workers.cluster is not None and is_for_workers(edges):
        fixed = None if select or validation is None else True  # nothing else would need validation nodes
        _refuse_unused({"--predictions": predictions, "--no-select": fixed})
        _classify_folder(edges, labels, validation, out, reading, fit, files, workers, printing, force=force)
        return
    folder, table = (None, out) if is_table(out) else (out, predictions)
    if folder is None and predictions is not None:
        raise FastgrlError(f"-o {terminal.quoted(out)} is a table and so is --predictions; -o is the model's")
    if folder is not None:
        check_model(folder, force=force)
    if table is not None:
        refuse_mixed_output(table, printing)
        check_table(table, force=force, inputs=(edges, reading.nodes, labels, files.features, validation))
    given = read_node_files(edges, labels, validation, reading=reading, files=files, printing=printing)
    with fitted_on(workers, fit.max_memory, printing):
        model = _fitted(given, edges, fit, reading, printing, select=select)
        columns = predicted(model)
        with bar("measuring how good it is", printing):
            measured = model.certificate_
    if folder is not None:
        model.save(folder, force=force)
    if table is not None:
        write_table(table, columns)
    value: dict[str, Any] = {"file": edges, "labels": labels, "features_file": files.features}
    value |= {"model": folder, "predictions": table} | node_reports.fitted(model, given)
    value["certificate"] = node_reports.certificate_figures(measured)
    value["predicted"] = node_reports.predicted_counts(columns["class"])
    terminal.print_notes([*given.notices, *value["notices"]], quiet=printing.quiet)
    if table != STDOUT:
        terminal.show(value, node_reports.model(value, given, measured), as_json=printing.json)


def _classify_folder(
    edges: str,
    labels: str,
    validation: str | None,
    out: str,
    reading: ReadingOptions,
    fit: NodeFitOptions,
    files: NodeFileOptions,
    workers: ClusterOptions,
    printing: PrintingOptions,
    *,
    force: bool,
) -> None:
    """From folders of Parquet files to one of classes, on workers all the way."""
    from fastgrl.distributed.classification import classify_folder
    from fastgrl.distributed.writing import Result
    from fastgrl.io.layout import Options

    refuse_for_folders(reading)
    _refuse_unused({"--views": fit.views, "--hops": fit.hops, "--window": fit.window})
    _refuse_unused({"--negative": fit.negative, "--class-weight": fit.class_weight})
    _refuse_unused({"--multi-label": files.multi_label or None})
    if fit.design != "co-ridge":
        raise FastgrlError(f"--design {fit.design} is not for folders of Parquet files; co-ridge is")
    Result(out, force, inputs=(edges, files.features)).check()  # before workers are started
    with on_cluster(workers, printing) as cluster, bar(f"classifying {edges}", printing) as progress:
        told = classify_folder(
            dataclasses.replace(cluster, most_bytes=fit.max_memory),
            edges,
            out,
            labels=labels,
            validation=validation,
            features=files.features,
            id_column=files.id_column,
            label_columns=files.id_and_label,
            missing_features=files.missing_features,
            directed=reading.directed,
            options=Options(columns=reading.columns, weight=reading.weight, unweighted=reading.unweighted),
            seed=fit.seed,
            force=force,
            progress=progress,
            rank=fit.rank,
            restart=fit.restart,
            ridge=fit.ridge,
            balance=fit.balance,
            rounds=fit.rounds,
        )
    terminal.print_notes(told["notices"], quiet=printing.quiet)
    terminal.show({"file": edges} | told, node_reports.folder_classes(told), as_json=printing.json)


def _refuse_unused(given: dict[str, Any]) -> None:
    for name, value in given.items():
        if value is not None:
            raise FastgrlError(f"{name} cannot be chosen for a folder of Parquet files; leave it out")


@grouped
def predict(
    model: NodeModel,
    table: TableOptions,
    printing: PrintingOptions,
    out: Annotated[str, _out(_TABLES)],
    nodes_file: Annotated[
        str | None, typer.Option("--for", metavar="FILE", help="A list of nodes; - is stdin.")
    ] = None,
    edges: Annotated[str | None, typer.Option(metavar="NEW", help="Edges of new nodes.")] = None,
    features: Annotated[str | None, typer.Option(metavar="NEW", help="Features of new nodes.")] = None,
    id_column: Annotated[
        str | None, typer.Option(metavar="COLUMN", help="Column of ids in the features (the first).")
    ] = None,
    missing_features: MissingFeatures = None,
    all_classes: Annotated[
        bool, typer.Option("--all-classes", help="A column of probabilities for each class.")
    ] = False,
    force: Force = False,
) -> None:
    """Write classes and probabilities of nodes, also of new ones with their edges."""
    from fastgrl.parallel import use_threads

    refuse_mixed_output(out, printing)
    check_table(out, force=force, inputs=(nodes_file, edges, features))
    if features is not None and edges is None:
        raise FastgrlError("--features are those of new nodes; give their edges with --edges as well")
    classifier = _loaded(model)
    begin = time.perf_counter()
    with use_threads(table.threads):
        if edges is None:
            nodes = None if nodes_file is None else known_ids(nodes_file, classifier.graph_, table, printing)
            ids, new = (classifier.graph_.node_ids if nodes is None else nodes), 0
            chances = classifier.predict_proba(nodes)
        else:
            files = NodeFileOptions(
                features, id_column, ignore_unknown=True, missing_features=missing_features
            )
            ids, new, chances = _of_new_nodes(classifier, edges, nodes_file, table, files, printing)
    columns = _columns(classifier, ids, chances, all_classes=all_classes)
    write_table(out, columns)
    value = {"model": model, "nodes": len(ids), "new_nodes": new, "out": out}
    value["predicted"] = node_reports.predicted_counts(_columns(classifier, ids, chances)["class"])
    value["seconds"] = round(time.perf_counter() - begin, 3)
    if out != STDOUT:
        terminal.show(value, node_reports.predictions(value), as_json=printing.json)


def _like_the_fitted(model: NodeClassifier, table: FeatureTable) -> Any:
    """Features with their columns in the order of the model's, where both have names."""
    known, given = model.feature_names_, table.names
    if known is None or given is None or tuple(given) == known:
        return table.matrix
    places = {name: place for place, name in enumerate(given)}
    missing = [name for name in known if name not in places]
    if missing or len(given) != len(known):
        odd = missing[0] if missing else next(name for name in given if name not in set(known))
        what = "lacks the column" if missing else "has a column that the model does not know,"
        raise ArgumentError(f"{table.name} {what} {terminal.quoted(odd)}; columns are matched by name")
    return table.matrix[:, [places[name] for name in known]]


def _of_new_nodes(
    model: NodeClassifier,
    edges: str,
    nodes_file: str | None,
    table: TableOptions,
    files: NodeFileOptions,
    printing: PrintingOptions,
) -> tuple[Array, int, Array]:
    """Ids, how many of them are new, and the probabilities of their classes."""
    from fastgrl.io.pairs import find_ids, retyped

    graph = model.graph_
    reading = ReadingOptions(directed=graph.directed, **dataclasses.asdict(table))
    found = read_edges(edges, reading, printing).graph
    pairs = retyped(found.node_ids, graph.node_ids)[found.edge_codes()]
    unknown = model.new_nodes(pairs)
    if not len(unknown):
        raise ArgumentError(f"{edges} names no new node; leave --edges out for the nodes that were fitted")
    rows = None
    if files.features is not None:
        rows = _like_the_fitted(model, read_feature_file(files.features, unknown, table, files, printing))
    elif model.n_features_in_:
        new = terminal.counted(len(unknown), "new node")
        raise ArgumentError(
            f"the model was fitted with features: give those of the {new} of {edges} with --features FILE"
        )
    wanted = unknown if nodes_file is None else _wanted(nodes_file, graph, unknown, table, printing)
    if graph.weights is not None or found.weights is not None:
        note = f"weights do not count for new nodes: every edge of {edges} weighs 1"
        terminal.print_notes([note], quiet=printing.quiet)
    chances = model.predict_proba(wanted, edges=pairs, features=rows)
    return wanted, int((find_ids(graph, wanted) < 0).sum()), chances


def _wanted(file: str, graph: Graph, new: Array, table: TableOptions, printing: PrintingOptions) -> Array:
    """The nodes of a list, each of which was fitted or is new."""
    from fastgrl.checks import shown
    from fastgrl.io.pairs import find_ids, retyped

    listed = read_table(file, table, printing, pairs=False)
    ids = retyped(listed.columns[0], graph.node_ids)
    known, fresh = find_ids(graph, ids), set(new.tolist())
    for row, (number, item) in enumerate(zip(known.tolist(), ids.tolist(), strict=True)):
        if number < 0 and item not in fresh:
            raise UnknownIdError(
                f"{file}, {listed.place(row)}: {shown(item)} is neither a node of the model nor a new one"
            )
    return ids


@grouped
def explain(
    model: NodeModel,
    printing: PrintingOptions,
    node: Annotated[str, typer.Option(metavar="ID", help="The node to explain.")],
    label: Annotated[
        str | None, typer.Option("--class", metavar="NAME", help="The class (the predicted one).")
    ] = None,
    top: Annotated[
        int, typer.Option(metavar="N", parser=whole("top", 0), help="Reasons of each kind (10).")
    ] = 10,
) -> None:
    """Show which hops, features and labelled nodes made the prediction of a node."""
    classifier = _loaded(model)
    asked = ids_of(classifier.graph_, [node])
    wanted = None if label is None else _class_of(classifier, label)
    found = classifier.explain(asked[0], label=wanted, top=top)
    place = [str(name) for name in classifier.classes_].index(str(found.label))
    value = node_reports.explained(found, float(classifier.predict_proba(asked)[0, place]))
    terminal.show({"model": model} | value, node_reports.explanation(value), as_json=printing.json)


def _class_of(model: NodeClassifier, text: str) -> Any:
    """A class as the model has it, from what was typed."""
    names = [str(name) for name in model.classes_]
    if text in names:
        return model.classes_[names.index(text)]
    hint = terminal.meant(text, names, quote=True) or f"; classes are {', '.join(names[:10])}"
    raise ArgumentError(f"the model knows no class {terminal.quoted(text)}{hint}")


@grouped
def evaluate_nodes(
    source: Source,
    reading: ReadingOptions,
    fit: NodeFitOptions,
    files: NodeFileOptions,
    workers: ClusterOptions,
    printing: PrintingOptions,
    labels: Annotated[str | None, typer.Option(metavar="FILE", help="Ids and labels, for a file.")] = None,
    repeat: Annotated[
        int, typer.Option(metavar="N", parser=whole("repeat", 1), help="Seeds to try, from --seed on (1).")
    ] = 1,
    random_split: Annotated[bool, typer.Option("--random-split", help="Draw the nodes anew.")] = False,
    leave_one_out: Annotated[
        bool, typer.Option("--leave-one-out", help="Choose without validation nodes.")
    ] = False,
    beside: Annotated[
        str | None,
        typer.Option(
            metavar="gcn|none",
            **named("beside", ("gcn", "none")),
            help="Trained on the same splits, for comparison.",
        ),
    ] = None,
    select: SelectNodes = True,
) -> None:
    """Fit on some nodes and test on others; a dataset's own split unless told otherwise."""
    from fastgrl.datasets import list_datasets
    from fastgrl.node_evaluation import evaluate_nodes as evaluate
    from fastgrl.parallel import use_threads

    named = source in list_datasets()
    data, notices = (
        _dataset(source, labels, reading, files, printing)
        if named or labels is None
        else _as_dataset(source, labels, reading, files, printing)
    )
    with (
        fitted_on(workers, fit.max_memory, printing),
        use_threads(reading.threads),
        bar(f"evaluating {source}", printing) as progress,
    ):
        found = evaluate(
            data,
            _classifier(fit, select=select),
            seed=fit.seed,
            repeat=repeat,
            random_split=random_split or not named,
            leave_one_out=leave_one_out,
            baselines=_beside(beside, random_split=random_split),
            progress=progress,
        )
    found["dataset"] = source
    terminal.print_notes([*notices, *found["notices"]], quiet=printing.quiet)
    terminal.show(found, node_reports.evaluation(found), as_json=printing.json)


def _beside(asked: str | None, *, random_split: bool) -> tuple[str, ...]:
    """What is trained besides: on random splits GCN, unless told otherwise or its packages are missing."""
    if asked is None:
        there = random_split and find_spec("torch") and find_spec("torch_geometric")
        return ("gcn",) if there else ()
    return () if asked == "none" else (asked,)


def _dataset(
    name: str, labels: str | None, reading: ReadingOptions, files: NodeFileOptions, printing: PrintingOptions
) -> tuple[NodeDataset, tuple[str, ...]]:
    from fastgrl.datasets import NodeDataset

    data, notices = dataset_or_graph(name, reading, printing)
    if not isinstance(data, NodeDataset) and not hasattr(data, "name"):
        raise FastgrlError(f"{terminal.quoted(name)} is a file of edges; name its classes with --labels FILE")
    if not isinstance(data, NodeDataset):
        raise FastgrlError(f"{name} is a dataset of links; use fastgrl evaluate links {name}")
    given = {"labels": labels, "features": files.features}
    if extra := [option for option, value in given.items() if value is not None]:
        raise FastgrlError(f"--{extra[0]} is about files, and {name} is a dataset; leave it out")
    return data, notices


def _as_dataset(
    edges: str, labels: str, reading: ReadingOptions, files: NodeFileOptions, printing: PrintingOptions
) -> tuple[NodeDataset, tuple[str, ...]]:
    """Files as a dataset, whose labelled nodes are yet to be split."""
    import numpy as np

    from fastgrl.datasets import NodeDataset

    given = read_node_files(edges, labels, None, reading=reading, files=files, printing=printing)
    none = np.empty(0, np.int64)
    names = given.labels.classes
    if given.labels.multilabel:
        y = given.labels.y
    else:
        y = np.full(given.graph.num_nodes, -1, np.int64)
        y[given.labels.nodes] = np.searchsorted(names, given.labels.texts.tolist())
    data = NodeDataset(edges, given.graph, given.matrix, y, none, none, none, tuple(names))
    return data, given.notices


def _classifier(fit: NodeFitOptions, *, select: bool) -> NodeClassifier:
    from fastgrl.node_classification import NodeClassifier

    views = None if fit.views is None else tuple(name.strip() for name in fit.views.split(","))
    return NodeClassifier(
        design=fit.design,
        n_components=fit.rank,
        select=select,
        views=views,
        restart=fit.restart,
        ridge=fit.ridge,
        balance=fit.balance,
        rounds=fit.rounds,
        hops=fit.hops,
        window=fit.window,
        negative=fit.negative,
        class_weight=fit.class_weight,
        random_state=fit.seed,
        max_memory=fit.max_memory,
    )


def _fitted(
    files: NodeFiles,
    edges: str,
    fit: NodeFitOptions,
    reading: ReadingOptions,
    printing: PrintingOptions,
    *,
    select: bool,
) -> NodeClassifier:
    from fastgrl.parallel import use_threads

    with use_threads(reading.threads), bar(f"fitting {edges}", printing) as progress:
        model = _classifier(fit, select=select).fit(
            files.graph,
            files.labels.y,
            features=files.matrix,
            validation=files.held,
            feature_names=files.feature_names,
            class_names=files.labels.classes if files.labels.multilabel else None,
            progress=progress,
        )
    return model


def predicted(model: NodeClassifier) -> dict[str, Array]:
    """The table of classes of all nodes that were fitted."""
    return _columns(model, model.graph_.node_ids, model.predict_proba())


def _columns(
    model: NodeClassifier, ids: Array, chances: Array, *, all_classes: bool = False
) -> dict[str, Array]:
    """Nodes with their class and its probability; where there may be several, a row for each likely one."""
    import numpy as np

    from fastgrl.ids import objects

    names = objects([str(name) for name in model.classes_.tolist()])
    each = {f"p({name})": chances[:, c] for c, name in enumerate(names)} if all_classes else {}
    best = chances.argmax(axis=1)
    if not model.multilabel_:
        own = {"node": ids, "class": names[best], "probability": chances[np.arange(len(best)), best]}
        return own | each
    if all_classes:
        return {"node": ids} | each
    likely = chances > _LIKELY
    nobody = np.flatnonzero(~likely.any(axis=1))
    likely[nobody, best[nobody]] = True
    rows, places = np.nonzero(likely)
    texts = names[places]
    texts[chances[rows, places] <= _LIKELY] = ""  # as in a file of labels: none
    return {"node": ids[rows], "class": texts, "probability": chances[rows, places]}


def _loaded(folder: str) -> NodeClassifier:
    from fastgrl.models import load_nodes

    check_is_model(folder)
    return load_nodes(folder)
