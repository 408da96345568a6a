"""Tables that workers write, a file for every block of rows; their folder appears when all are there."""

from __future__ import annotations

import os
import re
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from fastgrl.checks import Array, shown
from fastgrl.distributed.addresses import Address
from fastgrl.distributed.clusters import Cluster
from fastgrl.distributed.engines import Pending
from fastgrl.errors import ArgumentError, FastgrlError, UnavailableError
from fastgrl.io.writers import write_embedding, write_table

# The files of a table that was written here, and marks that other programs leave beside such.
_OURS = re.compile(r"part-\d{5,}\.parquet|_SUCCESS|_metadata|_common_metadata|\..*\.crc")


@dataclass(frozen=True)
class Result:
    """A folder of files to be written: where, whether one that is there may go, what is read meanwhile."""

    out: str
    force: bool = False
    inputs: tuple[str | None, ...] = ()

    @property
    def target(self) -> Address:
        """The folder; a link to one stays a link."""
        found = Address.of(self.out)
        return Address.of(os.path.realpath(found.text)) if found.is_path else found

    def check(self) -> None:
        """Refuse a folder that must not be written; what is replaced must be such a table of files itself."""
        target, name = self.target, shown(self.out, 200)
        if target.is_root:
            raise ArgumentError(f"{name} is a whole store, and would be replaced: name a folder in it")
        for given in self.inputs:
            if given is not None and target.is_within(Address.of(given)):
                raise ArgumentError(
                    f"{name} cannot be written: {shown(given, 200)} is read from; name a folder elsewhere"
                )
        try:
            if not target.is_there():
                return
            if not self.force:
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
    cluster: Cluster, result: Result, calls: Callable[[int, Address], Pending], count: int
) -> list[str]:
    """`calls(number, path)` writes each part of the result, which appears when it is whole; the files' names.

    If it cannot take its place in the end, the parts stay where they were written, and the error says so.
    """
    draft = result.target.beside(f".{result.target.name}.{uuid.uuid4().hex[:8]}")
    names = [f"part-{number:05}.parquet" for number in range(count)]
    try:
        with _writing(result):
            draft.make_folder()
        cluster.gather([calls(number, draft / name) for number, name in enumerate(names)])
        with _writing(result):
            _keep_only(draft, set(names))
    except BaseException:
        with suppress(OSError):
            draft.remove()
        raise
    try:
        result.check()  # again: hours may have passed
        with _writing(result):
            draft.replace(result.target)
    except FastgrlError as error:
        raise type(error)(f"{error}; the results are in {draft}") from error
    return names


@contextmanager
def _writing(result: Result) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if isinstance(error, FastgrlError):
            raise
        raise UnavailableError(f"{shown(result.out, 200)} cannot be written: {error}") from error


def _keep_only(draft: Address, names: set[str]) -> None:
    """All parts must be there; what a worker that died has left beside them goes."""
    found = {file.name: file for file in draft.files()}
    if names - found.keys():
        raise UnavailableError(f"workers do not write to {draft} as seen from here: share the folder")
    for name in found.keys() - names:
        found[name].remove()


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


def vectors_written(cluster: Cluster, result: Result, ids: list[Any], blocks: list[Any]) -> list[str]:
    """Write an embedding whose blocks, and their ids, are futures."""
    return write_blocks(
        cluster, result, lambda i, path: Pending(write_vectors, (path, ids[i], blocks[i])), len(blocks)
    )
