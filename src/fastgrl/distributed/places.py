"""A cluster as the place where models do their large products, for graphs that a caller has in memory.

What is sent there is written to storage that workers read; results come back as arrays. Models are not aware
of it, and nothing about them changes. Folders of files that no caller could hold go through `embedding`.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np

from fastgrl.checks import Array
from fastgrl.devices import Place, working_at
from fastgrl.distributed.addresses import Address
from fastgrl.distributed.clusters import Cluster
from fastgrl.distributed.engines import Pending
from fastgrl.distributed.shards import (
    read_rows,
    read_whole_block,
    share_block,
    share_rows,
    write_block,
    write_rows,
)
from fastgrl.frameworks.moving import Mover
from fastgrl.kernels import CSR
from fastgrl.push import Walker, joined
from fastgrl.walks import _Walk


@contextmanager
def used(cluster: Cluster) -> Iterator[None]:
    """Fit the models of the body on a cluster: its workers multiply, push and factorise.

    The caller holds the graph and what is learnt, as without a cluster. Links come out with the same bits,
    classes with the same predictions but for ties.

        with connected("local:4") as cluster, used(cluster):
            links = fg.LinkPredictor().fit(graph)
    """
    with working_at(place_on(cluster)):
        yield


def place_on(cluster: Cluster, usual: Any = np.float32) -> Place:
    """A cluster as a place; `usual` is the type of a pattern that stands alone."""
    seam = cluster.seam
    sending = replace(
        seam,
        put=lambda array, dtype: share_block(cluster, np.asarray(array).astype(dtype, copy=False)),
        put_sparse=functools.partial(_send_sparse, cluster),
    )
    mover = Mover(sending, np.dtype(usual), (_Walk,))
    return Place(
        seam,
        mover.moved,
        send=functools.partial(share_block, cluster),
        near=seam.host,
        push=functools.partial(_push, cluster),
    )


def _send_sparse(cluster: Cluster, rows: CSR, dtype: Any) -> Any:
    del dtype  # patterns stay patterns, numbers keep their type
    return share_rows(cluster, rows, symmetric=rows.transposed is rows)


def _push(cluster: Cluster, walker: Walker, sources: Array) -> CSR:
    """`walker.rows(sources)`, in as many tasks as there are blocks."""
    path = _stored(cluster, walker)
    bounds = cluster.plan(len(sources) * 4096).bounds  # a block for each task, however few the nodes are
    parts = np.array_split(sources, len(bounds)) if len(sources) else [sources]
    how = (walker.damping, walker.epsilon, walker.keep)
    found = cluster.gather([Pending(pushed_rows, (path, part, *how)) for part in parts if len(part)])
    counts = np.concatenate([np.zeros(1, np.int64), *(np.diff(rows.indptr) for rows in found)])
    columns, values = joined({number: (rows.indices, rows.values) for number, rows in enumerate(found)})
    return CSR(np.cumsum(counts), columns, values, (len(sources), len(walker.degrees)), np.dtype(np.float32))


def _stored(cluster: Cluster, walker: Walker) -> Address:
    """The graph as a file, written once for each walker."""
    known = walker.__dict__.get("_stored_at")
    if known is None:
        path = cluster.new_folder() / "graph.npz"
        values = walker.shares
        kind = None if values is None else values.dtype
        write_rows(
            path, CSR(walker.pattern.indptr, walker.pattern.indices, values, walker.pattern.shape, kind)
        )
        write_block(path.beside("degrees.npy"), walker.degrees)
        known = walker.__dict__["_stored_at"] = path
    return known


def pushed_rows(path: Address, sources: Array, damping: float, epsilon: float, keep: int) -> CSR:
    """The diffusion rows of some nodes of a graph in a file."""
    pattern, shares, degrees = _opened(path)
    return Walker(pattern, shares, degrees, damping, epsilon, keep).rows(sources)


@functools.lru_cache(maxsize=2)
def _opened(path: Address) -> tuple[CSR, Array | None, Array]:
    stored = read_rows(path)
    degrees = read_whole_block(path.beside("degrees.npy"))
    return CSR(stored.indptr, stored.indices, None, stored.shape, None), stored.values, degrees
