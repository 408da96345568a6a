"""Blocks of rows as files on storage that all machines of a cluster share.

A block that is lost is read again: what lies in a caller's memory goes to the workers by way of such files,
never by messages that nobody could repeat.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import IO, Any

import numpy as np

from fastgrl.checks import Array
from fastgrl.distributed.addresses import Address
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
        parts.append(Pending(read_rows, (path,)))
    return DistributedRows(cluster, plan, parts, rows.shape, rows.dtype, symmetric)


def share_block(cluster: Cluster, block: Array) -> Tall:
    """Write a dense block, or a vector, to storage, for workers to load."""
    plan, path = cluster.plan(len(block)), cluster.new_folder() / "block.npy"
    write_block(path, block)
    parts: list[Any] = [Pending(read_block, (path, begin, end)) for begin, end in plan.bounds]
    return Tall(cluster, plan, parts, block.shape[1] if block.ndim == 2 else None, block.dtype)


def write_rows(path: Address, rows: CSR) -> Address:
    """A block of sparse rows as a file, whole or not at all; where it is."""
    arrays: dict[str, Any] = {"indptr": rows.indptr, "indices": rows.indices, "shape": np.array(rows.shape)}
    arrays |= {} if rows.values is None else {"values": rows.values}
    kind = "" if rows.dtype is None else rows.dtype.str
    arrays["kind"] = np.array(kind)
    return _written(path, lambda file: np.savez(file, **arrays))


def read_rows(path: Address) -> CSR:
    """A block of sparse rows from its file."""
    with _opened(path) as file, np.load(file, allow_pickle=False) as stored:
        rows, columns = map(int, stored["shape"])
        values = stored.get("values")
        kind = str(stored["kind"])
        dtype = np.dtype(kind) if kind else None
        return CSR(stored["indptr"], stored["indices"], values, (rows, columns), dtype)


def write_block(path: Address, block: Array) -> Address:
    """A block of dense rows as a file, whole or not at all; where it is."""
    return _written(path, lambda file: np.save(file, np.ascontiguousarray(block)))


def read_block(path: Address, begin: int, end: int) -> Array:
    """Some rows of a dense block from its file, of which no others are read."""
    with _opened(path) as file:
        np.lib.format.read_magic(file)
        shape, _, dtype = np.lib.format.read_array_header_1_0(file)
        rows = np.empty((end - begin, *shape[1:]), dtype)
        file.seek(begin * (rows.nbytes // max(end - begin, 1)), 1)
        if file.readinto(rows.reshape(-1).view(np.uint8).data) != rows.nbytes:  # type: ignore[attr-defined]
            raise OSError("it is cut short")
        return rows


def read_whole_block(path: Address) -> Array:
    """A block of dense rows from its file."""
    with _opened(path) as file:
        return np.asarray(np.load(file, allow_pickle=False))


def _written(path: Address, write: Callable[[IO[bytes]], Any]) -> Address:
    try:
        path.write(write)
    except OSError as error:
        raise UnavailableError(f"{path} cannot be written by a worker: {error}") from error
    return path


@contextmanager
def _opened(path: Address) -> Iterator[IO[bytes]]:
    try:
        with path.opened() as file:
            yield file
    except OSError as error:
        raise UnavailableError(
            f"{path} cannot be read by a worker ({error}): name a folder that all machines share with "
            "--checkpoint DIR"
        ) from error
