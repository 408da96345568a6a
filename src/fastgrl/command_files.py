"""Files as commands read and write them: by the user's options, refused before any work is done."""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import os
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from fastgrl import completion, terminal
from fastgrl.errors import ArgumentError, FastgrlError, InputError, UnknownIdError
from fastgrl.options import (
    ClusterOptions,
    NodeFileOptions,
    PrintingOptions,
    ReadingOptions,
    TableOptions,
)

if TYPE_CHECKING:
    from fastgrl.checks import Array
    from fastgrl.graph import Graph
    from fastgrl.io import Reading
    from fastgrl.io.features import FeatureTable
    from fastgrl.io.labels import Labels
    from fastgrl.io.pairs import IdTable

STDOUT = "-"
_MOST_SIMILAR = 20_000
_TABLES = (".csv", ".tsv", ".parquet", ".npz")


@dataclasses.dataclass(frozen=True, eq=False)
class NodeFiles:
    """A graph with labels and features of its nodes; `held` are ids of nodes to choose settings by."""

    graph: Graph
    labels: Labels
    held: Array | None
    features: FeatureTable | None
    notices: tuple[str, ...]

    @property
    def matrix(self) -> Any:
        """The features, if there are any."""
        return None if self.features is None else self.features.matrix

    @property
    def feature_names(self) -> tuple[str, ...] | None:
        """The names of their columns, if they have any."""
        return None if self.features is None else self.features.names


def bar(what: str, printing: PrintingOptions) -> contextlib.AbstractContextManager[terminal.Progress | None]:
    """A progress bar, if there is to be one."""
    return terminal.progress_bar(what, shown=printing.bar)


@contextlib.contextmanager
def on_cluster(options: ClusterOptions, printing: PrintingOptions) -> Iterator[Any]:
    """The cluster that was asked for, with a word on where to watch it; None if none was."""
    if options.cluster is None:
        for name in ("blocks", "checkpoint"):
            if getattr(options, name) is not None:
                raise FastgrlError(f"--{name} is about a cluster: name one with --cluster, or leave it out")
        yield None
        return
    from fastgrl.distributed import connected

    with contextlib.ExitStack() as stack:
        how = connected(options.cluster, blocks=options.blocks, checkpoint=options.checkpoint)
        with bar(f"connecting to {options.cluster}", printing):  # workers of our own take seconds to start
            cluster = stack.enter_context(how)
        if cluster.engine.page:
            terminal.print_notes([f"workers can be watched at {cluster.engine.page}"], quiet=printing.quiet)
        yield cluster


@contextlib.contextmanager
def fitted_on(options: ClusterOptions, limit: int | None, printing: PrintingOptions) -> Iterator[None]:
    """Fits of the body are done on the cluster that was asked for, if one was."""
    if options.cluster is not None and limit is not None:
        raise FastgrlError(
            "--max-memory counts what this process holds; with --cluster it is for folders of Parquet files"
        )
    with on_cluster(options, printing) as cluster:
        if cluster is None:
            yield
            return
        from fastgrl.distributed.places import used

        with used(cluster):
            yield


def is_for_workers(source: str) -> bool:
    """Whether a name is one of a folder of files that workers read: an address, or a folder of no graph."""
    from fastgrl.io.folder_index import INDEX_FILE

    return "://" in source or (
        os.path.isdir(source) and not os.path.lexists(os.path.join(source, INDEX_FILE))
    )


def refuse_for_folders(reading: ReadingOptions) -> None:
    """Options that are about text, or about nodes without edges."""
    for name in ("nodes", "delimiter", "comment", "encoding", "header"):
        if getattr(reading, name) is not None:
            raise FastgrlError(f"--{name} cannot be chosen for a folder of Parquet files; leave it out")


def read_edges(edges: str, options: ReadingOptions, printing: PrintingOptions) -> Reading:
    """A graph from a file, with what was understood of it."""
    from fastgrl.io import read

    how = dataclasses.asdict(options)
    with bar(f"reading {edges}", printing) as progress:
        return read(edges, progress=progress, n_threads=how.pop("threads"), **how)


def dataset_or_graph(
    source: str, reading: ReadingOptions, printing: PrintingOptions
) -> tuple[Any, tuple[str, ...]]:
    """A dataset by its name, else the graph in a file; with what was odd about it."""
    from fastgrl.datasets import list_datasets, load_dataset

    if source in list_datasets():
        _refuse_reading(source, reading)
        with bar(f"loading {source}", printing) as progress:
            return load_dataset(source, progress=progress), ()
    if source != STDOUT and not os.path.lexists(source):
        hint = _nearest(source, list_datasets())
        raise ArgumentError(f"{terminal.quoted(source)} is neither a dataset nor a file{hint}")
    found = read_edges(source, reading, printing)
    return found.graph, found.notices


def _nearest(wanted: str, datasets: Sequence[str]) -> str:
    """The dataset that was meant, or the file beside it."""
    folder, name = os.path.split(wanted)
    try:
        files = os.listdir(folder or ".")
    except OSError:
        files = []
    hint = terminal.meant(wanted, datasets) or terminal.meant(name, files, quote=True)
    return hint or f"; datasets are {', '.join(datasets)}"


def _refuse_reading(name: str, reading: ReadingOptions) -> None:
    """Options about files that a dataset would silently ignore."""
    for field in dataclasses.fields(reading):
        if field.name != "threads" and getattr(reading, field.name) != field.default:
            raise FastgrlError(f"--{field.name} is about files, and {name} is a dataset; leave it out")


def read_table(file: str, options: TableOptions, printing: PrintingOptions, *, pairs: bool = True) -> IdTable:
    """Pairs of ids, or a list of ids, from a file."""
    from fastgrl.io.pairs import read_ids, read_pairs

    how, read = dataclasses.asdict(options), read_pairs if pairs else read_ids
    with bar(f"reading {file}", printing) as progress:
        return read(file, progress=progress, n_threads=how.pop("threads"), **how)


def known_pairs(file: str, graph: Graph, options: TableOptions, printing: PrintingOptions) -> Array:
    """Pairs of ids from a file, as the graph has them; one that it has not is named with its line."""
    return graph.node_ids[read_table(file, options, printing).numbers_in(graph)]


def known_ids(file: str, graph: Graph, options: TableOptions, printing: PrintingOptions) -> Array:
    """Ids from a file, likewise."""
    return graph.node_ids[read_table(file, options, printing, pairs=False).numbers_in(graph)[:, 0]]


def ids_of(graph: Graph, texts: list[str]) -> Array:
    """Ids as the graph has them, from what was typed."""
    from fastgrl.ids import as_ids
    from fastgrl.io.pairs import retyped

    try:
        return graph.node_ids[graph.index_of(retyped(as_ids(texts, "--node"), graph.node_ids))]
    except UnknownIdError as error:
        known = set(map(str, graph.node_ids))
        unknown = next((text for text in texts if text not in known), texts[0])
        raise UnknownIdError(
            f"{error}{terminal.meant(unknown, _similar(unknown, known), quote=True)}"
        ) from None


def _similar(text: str, ids: Iterable[str]) -> list[str]:
    """Ids of about the same length and with an end in common: among millions the nearest is slow to find."""
    first, last, low, high = text[:1].lower(), text[-1:].lower(), len(text) - 2, len(text) + 2
    likely = (
        id for id in ids if low <= len(id) <= high and (id[:1].lower() == first or id[-1:].lower() == last)
    )
    return sorted(itertools.islice(likely, _MOST_SIMILAR))


def refuse_mixed_output(out: str, printing: PrintingOptions) -> None:
    """Two kinds of output cannot share one stream."""
    if out == STDOUT and printing.json:
        raise FastgrlError("-o - and --json would both write to standard output; give -o a file")


def check_embedding(out: str, *, force: bool, inputs: tuple[str | None, ...]) -> list[str]:
    """The files that an embedding would be written to, if they may be."""
    from fastgrl.io.atomic import check_output
    from fastgrl.io.writers import embedding_files

    files = [os.fspath(file) for file in embedding_files(out)]
    check_output(*files, force=force, inputs=tuple(filter(None, inputs)))
    return files


def check_table(out: str, *, force: bool, inputs: tuple[str | None, ...]) -> None:
    """Refuse a table that could not or must not be written."""
    from fastgrl.io.atomic import check_output
    from fastgrl.io.pairs import check_table_name

    check_output(check_table_name(out), force=force, inputs=tuple(filter(None, inputs)))


def write_table(out: str, columns: dict[str, Array]) -> None:
    """Write a table that was checked before; one that has come since is no reason to lose it."""
    from fastgrl.io.pairs import write_columns

    write_columns(out, columns)


def check_model(folder: str, *, force: bool) -> None:
    """Refuse a folder that a model could not or must not be written to."""
    from fastgrl.storage import check_model_folder

    if folder == STDOUT:
        raise FastgrlError("a model is a folder and cannot go to standard output; give -o a name")
    check_model_folder(folder, force=force)


def check_is_model(folder: str) -> None:
    """Refuse a name that is no folder, with the model that was meant."""
    if os.path.isdir(folder):
        return
    shown = terminal.quoted(folder)
    if os.path.lexists(folder):
        raise InputError(f"{shown} is a file; a model is a folder that fastgrl link or classify wrote")
    place, name = os.path.split(folder)
    hint = terminal.meant(name, completion.models_in(place), quote=True)
    raise InputError(f"{shown} is not a model: there is no such folder{hint}")


def is_table(out: str) -> bool:
    """Whether a name is one of a table, not of a folder."""
    return out == STDOUT or os.path.splitext(out)[1].lower() in _TABLES


def read_node_files(
    edges: str,
    labels: str,
    validation: str | None,
    *,
    reading: ReadingOptions,
    files: NodeFileOptions,
    printing: PrintingOptions,
) -> NodeFiles:
    """A graph, labels and features from files; whatever is wrong with one of them is said with its place."""
    from fastgrl.io.labels import with_validation

    _refuse_two_streams(edges, labels, validation, files.features)
    found = read_edges(edges, reading, printing)
    known = _labels(labels, found.graph, reading, files, printing)
    if not known.classes:
        raise InputError(f"{labels} holds no label: every cell is blank")
    held = None
    if validation is not None:
        held_out = _labels(validation, found.graph, reading, files, printing)
        known, numbers = with_validation(known, held_out, found.graph)
        held = found.graph.node_ids[numbers]
    features = None
    if files.features is not None:
        features = read_feature_file(files.features, found.graph.node_ids, reading, files, printing)
    notices = (*found.notices, *known.notices, *(() if features is None else features.notices))
    return NodeFiles(found.graph, known, held, features, notices)


def _refuse_two_streams(*files: str | None) -> None:
    if files.count(STDOUT) > 1:
        raise FastgrlError("standard input can be read once; give files for the others")


def _labels(
    file: str, graph: Graph, reading: ReadingOptions, files: NodeFileOptions, printing: PrintingOptions
) -> Labels:
    from fastgrl.io.labels import read_labels

    id_column, label_column = files.id_and_label
    with bar(f"reading {file}", printing) as progress:
        return read_labels(
            file,
            graph,
            id_column=id_column,
            label_column=label_column,
            multilabel=files.multi_label,
            ignore_unknown=files.ignore_unknown,
            encoding=reading.encoding,
            n_threads=reading.threads,
            progress=progress,
        )


def read_feature_file(
    file: str,
    node_ids: Array,
    reading: ReadingOptions | TableOptions,
    files: NodeFileOptions,
    printing: PrintingOptions,
) -> FeatureTable:
    """Features of the nodes, in their order."""
    from fastgrl.io.features import read_features

    with bar(f"reading {file}", printing) as progress:
        return read_features(
            file,
            node_ids,
            id_column=files.id_column,
            ignore_unknown=files.ignore_unknown,
            missing=files.missing_features or "refuse",
            encoding=reading.encoding,
            n_threads=reading.threads,
            progress=progress,
        )
