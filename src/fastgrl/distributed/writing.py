"""Tables that workers write, a file for every block of rows; their folder appears when all are there."""

from __future__ import annotations

import os
import shutil
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

from fastgrl.checks import Array, shown
from fastgrl.distributed.clusters import Cluster
from fastgrl.distributed.engines import Pending
from fastgrl.errors import ArgumentError, UnavailableError
from fastgrl.io.writers import write_embedding


def check_folder(out: str, *, force: bool) -> None:
    """Refuse a folder that must not be written."""
    if os.path.lexists(out) and not force:
        raise ArgumentError(f"{shown(out, 200)} exists; pass force (--force) to overwrite it")
    if os.path.lexists(out) and not os.path.isdir(out):
        raise ArgumentError(f"{shown(out, 200)} is a file, and a folder of files is to be written")
    if "://" in out:
        raise ArgumentError(
            f"{shown(out, 200)} is no folder: results are written to a path that workers share"
        )


def write_blocks(cluster: Cluster, out: str, calls: Callable[[int, str], Pending], count: int) -> list[str]:
    """`calls(number, path)` writes each part of the folder `out`, whole or not at all; the files' names."""
    target = Path(out).absolute()
    draft = target.with_name(f".{target.name}.{uuid.uuid4().hex[:8]}")
    names = [f"part-{number:05}.parquet" for number in range(count)]
    try:
        draft.mkdir(parents=True)
        cluster.gather([calls(number, str(draft / name)) for number, name in enumerate(names)])
        missing = [name for name in names if not (draft / name).exists()]
        if missing:
            raise UnavailableError(
                f"workers do not write to {target.parent} as seen from here: share the folder"
            )
        if target.exists():
            shutil.rmtree(target)
        os.replace(draft, target)
    except OSError as error:
        raise UnavailableError(f"{shown(out, 200)} cannot be written: {error}") from error
    finally:
        shutil.rmtree(draft, ignore_errors=True)
    return names


def write_vectors(path: str, ids: Array, vectors: Array) -> str:
    """A block of an embedding as a Parquet file with the columns id, e0, e1 and so on."""
    write_embedding(path, vectors, node_ids=ids, force=True)
    return path


def vectors_written(cluster: Cluster, out: str, ids: list[Any], blocks: list[Any]) -> list[str]:
    """Write an embedding whose blocks, and their ids, are futures."""
    return write_blocks(
        cluster, out, lambda i, path: Pending(write_vectors, (path, ids[i], blocks[i])), len(blocks)
    )
