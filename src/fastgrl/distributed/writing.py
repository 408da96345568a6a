"""Tables that workers write, a file for every block of rows; their folder appears when all are there."""

from __future__ import annotations

import os
import re
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from fastgrl.checks import Array, shown
from fastgrl.distributed.addresses import Address
from fastgrl.distributed.clusters import Cluster
from fastgrl.distributed.engines import Pending
from fastgrl.errors import ArgumentError, UnavailableError
from fastgrl.io.writers import write_embedding, write_table

# The files of a table that was written here, and marks that other programs leave beside such.
_OURS = re.compile(r"part-\d{5,}\.parquet|_SUCCESS|_metadata|_common_metadata|\..*\.crc")


def check_folder(out: str, *, force: bool, inputs: tuple[str | None, ...] = ()) -> None:
    """Refuse a folder that must not be written; what is replaced must be such a table of files itself."""
    target, name = Address.of(out), shown(out, 200)
    if target.is_root:
        raise ArgumentError(f"{name} is a whole store, and would be replaced: name a folder in it")
    if any(target.is_same(Address.of(given)) for given in inputs if given is not None):
        raise ArgumentError(f"{name} is read from, and cannot be written: name another folder")
    try:
        if not target.is_there():
            return
        if not force:
            raise ArgumentError(f"{name} exists; pass force (--force) to overwrite it")
        if not target.is_folder():
            raise ArgumentError(f"{name} is a file, and a folder of files is to be written")
        others = [file for file in target.files() if not _OURS.fullmatch("/".join(file.within(target)))]
    except OSError as error:
        raise UnavailableError(f"{name} cannot be written: {error}") from error
    if others:
        found = shown("/".join(others[0].within(target)), 200)
        raise ArgumentError(
            f"{name} holds more than the Parquet files of a result, such as {found}: it is not deleted; "
            "name another folder"
        )


def write_blocks(
    cluster: Cluster, out: str, calls: Callable[[int, Address], Pending], count: int
) -> list[str]:
    """`calls(number, path)` writes each part of the folder `out`, whole or not at all; the files' names."""
    target = Address.of(out)
    draft = target.beside(f".{target.name}.{uuid.uuid4().hex[:8]}")
    names = [f"part-{number:05}.parquet" for number in range(count)]
    try:
        draft.make_folder()
        cluster.gather([calls(number, draft / name) for number, name in enumerate(names)])
        if [file.name for file in draft.files()] != names:
            raise UnavailableError(f"workers do not write to {draft} as seen from here: share the folder")
        target.remove()
        draft.move(target)
    except UnavailableError:
        raise
    except OSError as error:
        raise UnavailableError(f"{shown(out, 200)} cannot be written: {error}") from error
    finally:
        with suppress(OSError):
            draft.remove()
    return names


def write_vectors(path: Address, ids: Array, vectors: Array) -> None:
    """A block of an embedding as a Parquet file with the columns id, e0, e1 and so on."""
    with _file_for(path) as file:
        write_embedding(file, vectors, node_ids=ids, force=True)


def write_columns(path: Address, columns: dict[str, Any]) -> None:
    """A block of a table as a Parquet file."""
    with _file_for(path) as file:
        write_table(file, columns, force=True)


@contextmanager
def _file_for(path: Address) -> Iterator[str]:
    """A file of this machine's whose contents go to an address after the body: itself, if that is a path."""
    if path.is_path:
        yield path.text
        return
    with TemporaryDirectory(prefix="fastgrl-") as folder:
        file = os.path.join(folder, path.name)
        yield file
        path.write(lambda there: there.write(Path(file).read_bytes()))


def vectors_written(cluster: Cluster, out: str, ids: list[Any], blocks: list[Any]) -> list[str]:
    """Write an embedding whose blocks, and their ids, are futures."""
    return write_blocks(
        cluster, out, lambda i, path: Pending(write_vectors, (path, ids[i], blocks[i])), len(blocks)
    )
