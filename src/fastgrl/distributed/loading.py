"""A folder of Parquet edge lists as a graph whose rows lie on workers; the caller sees counts only.

Every file is read by a worker, which numbers the ids within it. Ids are cut into groups by value: each group
merges what all files have of it, so that nodes come in the order of their ids, whatever the number of
groups or files. With global numbers, edges are cut by blocks of rows, and change places once.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from fastgrl.assembly import assemble
from fastgrl.checks import Array, shown
from fastgrl.distributed.addresses import Address
from fastgrl.distributed.clusters import Cluster
from fastgrl.distributed.engines import Pending
from fastgrl.distributed.graphs import DistributedGraph, RowFacts, row_facts
from fastgrl.distributed.plans import RowPlan
from fastgrl.distributed.rows import DistributedRows
from fastgrl.distributed.transposing import exchanged
from fastgrl.errors import InputError, UnavailableError
from fastgrl.io.layout import Options
from fastgrl.io.parquet import (
    PARQUET_ENDINGS,
    Traits,
    _numbered,
    check_alike,
    is_hidden,
    kind_of_ids,
    opened_table,
    whole_ids,
)
from fastgrl.kernels import CSR

_SAMPLED = 1000  # ids of each file by which groups are cut


@dataclass(frozen=True, eq=False)
class EdgeFile:
    """The edges of a file, by numbers of its own distinct ids, which are sorted."""

    ids: Array
    sources: Array
    targets: Array
    weights: Array | None
    traits: Traits | None = None  # None: it has no rows


@dataclass(frozen=True, eq=False)
class FileFacts:
    """What the caller learns of a file: some of its ids, and what others must have in common with it."""

    sample: Array
    traits: Traits | None


def parquet_files(folder: str) -> list[Address]:
    """The Parquet files of a folder (a path, or an address that fsspec knows), in the order of names."""
    root = Address.of(folder)
    try:
        if not root.is_folder():
            raise InputError(f"{shown(folder, 200)} is no folder of Parquet files")
        found = [file for file in root.files() if file.text.endswith(PARQUET_ENDINGS)]
    except OSError as error:
        raise InputError(f"{shown(folder, 200)} cannot be read: {error}") from None
    found = [file for file in found if not is_hidden(file.within(root))]
    if not found:
        raise InputError(f"{shown(folder, 200)} has no files that end in .parquet")
    return found


def load_graph(
    cluster: Cluster, folder: str, *, options: Options | None = None, directed: bool = False
) -> DistributedGraph:
    """The graph in a folder of Parquet edge lists, its nodes in the order of their ids.

    Columns are found out as `read_graph` does. Repeated edges are merged and their weights added. Every
    block is a recipe that begins with the files: what a worker loses is read again.
    """
    paths = parquet_files(folder)
    if cluster.checkpoint is not None:
        files_now = _versions(Address.of(folder), paths)
        cluster.checkpoint.begin({"files": files_now, "directed": directed, "read as": repr(options)})
    files = cluster.submit([Pending(read_file, (path, options or Options())) for path in paths])
    told = cluster.gather([Pending(facts_of, (file,)) for file in files])
    files, told = _with_edges(folder, paths, files, told)
    weighted = told[0].traits is not None and told[0].traits.weighted
    pieces = _ids_by_group(cluster, files, told)
    groups = cluster.submit([Pending(merged_ids, (some,)) for some in pieces])
    counts = cluster.gather([Pending(len, (group,)) for group in groups])
    offsets = np.concatenate([[0], np.cumsum(counts)])
    edges = _numbered_edges(cluster, files, pieces, groups, offsets)
    del files, pieces  # workers let go of what nobody waits for
    plan = cluster.plan(int(offsets[-1]))

    rows = functools.partial(_rows, cluster, edges, plan, directed=directed, weighted=weighted)
    kept = rows() if cluster.checkpoint is None else cluster.checkpoint.rows("rows", rows, cluster)
    del edges, rows
    counted = cluster.gather(
        [Pending(row_facts, (part, a)) for part, (a, _) in zip(kept.futures, plan.bounds, strict=True)]
    )
    ids = _ids_by_block(cluster, groups, offsets, plan.bounds)
    return DistributedGraph(kept, ids, directed, weighted, RowFacts.of_all(counted))


def _versions(folder: Address, paths: list[Address]) -> list[list[str]]:
    """What a checkpoint knows of files, to tell whether they are still the same."""
    try:
        return [["/".join(path.within(folder)), *path.version()] for path in paths]
    except OSError as error:
        raise UnavailableError(f"no checkpoint can be kept of {folder}: {error}") from error


def _rows(
    cluster: Cluster, edges: list[Any], plan: RowPlan, *, directed: bool, weighted: bool
) -> DistributedRows:
    """Blocks of rows from the edges of every file."""
    cut = cluster.submit([Pending(cut_edges, (one, plan.cuts, not directed)) for one in edges])
    pieces, n = exchanged(cluster, cut, len(plan.bounds)), plan.rows
    parts: list[Any] = [
        Pending(rows_of, (some, begin, end, n))
        for some, (begin, end) in zip(pieces, plan.bounds, strict=True)
    ]
    kind = np.dtype(np.float64) if weighted else None
    return DistributedRows(cluster, plan, parts, (n, n), kind, symmetric=not directed)


def read_file(path: Address, options: Options) -> EdgeFile:
    """The edges of one file."""
    name = str(path)
    try:
        with path.opened() as file:
            table = opened_table(name, file, options, may_be_empty=True)
            if not table.rows:
                none = np.empty(0, np.int64)
                return EdgeFile(none, none, none, None)
            (sources, targets), weights = map(whole_ids, table.ends()), table.weights()
            traits = Traits(name, table.id_columns, kind_of_ids(name, sources, targets), weights is not None)
    except OSError as error:
        raise InputError(f"{name} cannot be read: {error}") from None
    ids, numbers = _sorted_numbers(sources, targets)
    return EdgeFile(ids, numbers[0], numbers[1], weights, traits)


def _sorted_numbers(sources: Any, targets: Any) -> tuple[Array, Array]:
    """The distinct ids of both columns, sorted, and where each edge's ends stand among them."""
    if isinstance(sources, np.ndarray):
        both = np.stack([sources, targets])
        ids, places = np.unique(both, return_inverse=True)
        return ids, places.reshape(both.shape).astype(_narrowest(len(ids)))
    texts, codes = _numbered(sources, targets)
    order = sorted(range(len(texts)), key=texts.__getitem__)
    place = np.empty(len(order), _narrowest(len(order)))
    place[order] = np.arange(len(order))
    ids = np.empty(len(order), object)
    ids[:] = [texts[i] for i in order]
    return ids, place[np.asarray(codes).T]


def facts_of(file: EdgeFile) -> FileFacts:
    """What the caller is told of a file."""
    step = max(1, len(file.ids) // _SAMPLED)
    return FileFacts(file.ids[step // 2 :: step], file.traits)


def _with_edges(
    folder: str, paths: list[Address], files: list[Any], facts: list[FileFacts]
) -> tuple[list[Any], list[FileFacts]]:
    """The files that have rows, which must be parts of one table."""
    kept = [i for i, one in enumerate(facts) if one.traits is not None]
    if not kept:
        raise InputError(f"{shown(folder, 200)}: none of its {len(paths)} Parquet files has edges")
    traits = [one.traits for one in facts if one.traits is not None]
    for one in traits:
        check_alike(traits[0], one)
    return [files[i] for i in kept], [facts[i] for i in kept]


def _ids_by_group(cluster: Cluster, files: list[Any], facts: list[FileFacts]) -> list[list[Any]]:
    """The ids of every file cut into groups by value: futures, for each group one of each file."""
    sample = np.sort(np.concatenate([one.sample for one in facts]))
    count = max(1, min(len(cluster.plan(1 << 62).bounds), len(sample)))
    splits = sample[[len(sample) * i // count for i in range(1, count)]]
    return exchanged(cluster, cluster.submit([Pending(cut_ids, (file, splits)) for file in files]), count)


def cut_ids(file: EdgeFile, splits: Array) -> list[Array]:
    """The ids of a file by groups."""
    return np.split(file.ids, np.searchsorted(file.ids, splits))


def merged_ids(pieces: list[Array]) -> Array:
    """All ids of a group, each once and sorted."""
    return np.unique(np.concatenate(pieces))


def _numbered_edges(
    cluster: Cluster, files: list[Any], pieces: list[list[Any]], groups: list[Any], offsets: Array
) -> list[Any]:
    """The edges of every file by global numbers; ids travel to their group, not the group to them."""
    starts, kind = [int(offset) for offset in offsets[:-1]], _narrowest(int(offsets[-1]))
    numbers = cluster.submit(
        [
            Pending(numbers_in, (piece, group, start, kind))
            for some, group, start in zip(pieces, groups, starts, strict=True)
            for piece in some
        ]
    )
    by_file = [numbers[place :: len(files)] for place in range(len(files))]
    return cluster.submit([Pending(renumbered, pair) for pair in zip(files, by_file, strict=True)])


def _narrowest(count: int) -> Any:
    """The type of numbers below `count`: most of what moves while a graph is loaded are such."""
    return np.int32 if count < 2**31 else np.int64


def numbers_in(ids: Array, group: Array, offset: int, kind: Any) -> Array:
    """Global numbers of ids that are in a group."""
    return (np.searchsorted(group, ids) + offset).astype(kind)


def renumbered(file: EdgeFile, numbers: list[Array]) -> tuple[Array, Array, Array | None]:
    """The edges of a file by global numbers."""
    number = np.concatenate(numbers)
    assert len(number) == len(file.ids)
    return number[file.sources], number[file.targets], file.weights


def cut_edges(
    edges: tuple[Array, Array, Array | None], cuts: tuple[int, ...], mirrored: bool
) -> list[tuple[Array, Array, Array | None]]:
    """The entries that edges make, by blocks of rows; undirected ones make two unless they are loops."""
    u, v, w = edges
    if mirrored:
        other = u != v
        u, v = np.concatenate([u, v[other]]), np.concatenate([v, u[other]])
        w = None if w is None else np.concatenate([w, w[other]])
    blocks = len(cuts) - 1
    kind = np.uint16 if blocks <= 1 << 16 else np.int64  # sorted without comparing
    block = np.searchsorted(cuts[1:-1], u, side="right").astype(kind)
    order, ends = np.argsort(block, kind="stable"), np.cumsum(np.bincount(block, minlength=blocks))
    return [(u[some], v[some], None if w is None else w[some]) for some in np.split(order, ends[:-1])]


def rows_of(pieces: list[tuple[Array, Array, Array | None]], begin: int, end: int, n: int) -> CSR:
    """A block of rows from its entries, repeats merged."""
    u, v = (np.concatenate([piece[i] for piece in pieces]) for i in range(2))
    w = (
        None
        if pieces[0][2] is None
        else np.concatenate([piece[2] for piece in pieces if piece[2] is not None])
    )
    rows = assemble(u - u.dtype.type(begin), v, w, num_nodes=max(n, end - begin), mirrored=False)
    indptr = rows.indptr[: end - begin + 1]
    kind = None if rows.weights is None else rows.weights.dtype
    return CSR(indptr, rows.indices, rows.weights, (end - begin, n), kind)


def _ids_by_block(
    cluster: Cluster, groups: list[Any], offsets: Array, bounds: Iterable[tuple[int, int]]
) -> list[Any]:
    """The ids of every block of rows."""
    spans = list(itertools.pairwise(offsets.tolist()))
    calls = []
    for begin, end in bounds:
        here = [
            [groups[g], max(begin, first) - first, min(end, last) - first]
            for g, (first, last) in enumerate(spans)
            if first < end and last > begin
        ]
        calls.append(Pending(joined_ids, (here,)))
    return cluster.submit(calls)


def joined_ids(parts: list[Any]) -> Array:
    """Ids of several groups, one after another."""
    return (
        np.concatenate([group[first:last] for group, first, last in parts]) if parts else np.empty(0, object)
    )
