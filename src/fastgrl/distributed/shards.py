"""Blocks of rows as files on storage that all machines of a cluster share.

A block that is lost is read again: what lies in a caller's memory goes to the workers by way of such files,
never by messages that nobody could repeat.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np

from fastgrl.checks import Array
from fastgrl.distributed.clusters import Cluster
from fastgrl.distributed.engines import Pending
from fastgrl.distributed.rows import DistributedRows
from fastgrl.distributed.talls import Tall
from fastgrl.distributed.transposing import row_range
from fastgrl.errors import UnavailableError
from fastgrl.kernels import CSR


def share_rows(cluster: Cluster, rows: CSR, *, symmetric: bool = False) -> DistributedRows:
    """Write the blocks of a sparse matrix to storage, for workers to load."""
    folder = cluster.new_folder()
    plan = cluster.plan(rows.shape[0])
    parts: list[Any] = []
    for number, (begin, end) in enumerate(plan.bounds):
        path = folder / f"rows-{number:05}.npz"
        write_rows(path, row_range(rows, begin, end))
        parts.append(Pending(read_rows, (str(path),)))
    return DistributedRows(cluster, plan, parts, rows.shape, rows.dtype, symmetric)


def share_block(cluster: Cluster, block: Array) -> Tall:
    """Write a dense block, or a vector, to storage, for workers to load."""
    plan, path = cluster.plan(len(block)), cluster.new_folder() / "block.npy"
    _whole(path, lambda file: np.save(file, np.ascontiguousarray(block)))
    parts: list[Any] = [Pending(read_block, (str(path), begin, end)) for begin, end in plan.bounds]
    return Tall(cluster, plan, parts, block.shape[1] if block.ndim == 2 else None, block.dtype)


def write_rows(path: Path, rows: CSR) -> None:
    """A block of sparse rows as a file, whole or not at all."""
    arrays: dict[str, Any] = {"indptr": rows.indptr, "indices": rows.indices, "shape": np.array(rows.shape)}
    arrays |= {} if rows.values is None else {"values": rows.values}
    kind = "" if rows.dtype is None else rows.dtype.str
    arrays["kind"] = np.array(kind)
    _whole(path, lambda file: np.savez(file, **arrays))


def write_rows_to(path: str, rows: CSR) -> str:
    """The same as a task; where it is."""
    write_rows(Path(path), rows)
    return path


def read_rows(path: str) -> CSR:
    """A block of sparse rows from its file."""
    with np.load(_there(path), allow_pickle=False) as stored:
        rows, columns = map(int, stored["shape"])
        values = stored.get("values")
        kind = str(stored["kind"])
        dtype = np.dtype(kind) if kind else None
        return CSR(stored["indptr"], stored["indices"], values, (rows, columns), dtype)


def read_block(path: str, begin: int, end: int) -> Array:
    """Some rows of a dense block from its file."""
    return np.array(np.load(_there(path), mmap_mode="r", allow_pickle=False)[begin:end])


def write_block(path: str, block: Array) -> str:
    """A block of dense rows as a file, whole or not at all; where it is."""
    _whole(Path(path), lambda file: np.save(file, np.ascontiguousarray(block)))
    return path


def read_whole_block(path: str) -> Array:
    """A block of dense rows from its file."""
    return np.asarray(np.load(_there(path), allow_pickle=False))


def _there(path: str) -> str:
    if not os.path.exists(path):
        raise UnavailableError(
            f"{path} cannot be read by a worker: name a folder that all machines share with --checkpoint DIR"
        )
    return path


def _whole(path: Path, write: Any) -> None:
    """Write beside the target, then rename: a retry or a second worker does no harm."""
    beside = path.with_name(f".{path.name}.{os.getpid()}.{id(write)}")
    try:
        with open(beside, "wb") as file:
            write(file)
        os.replace(beside, path)
    finally:
        beside.unlink(missing_ok=True)
