"""Files that all machines of a cluster reach: paths that they share, and addresses that fsspec knows.

Whatever a store or its library makes of a failure, it is an `OSError` here, so that callers say what they
were about. On object stores a folder is a prefix of names, and is there as soon as a file is.
"""

from __future__ import annotations

import io
import os
import re
import shutil
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO, Any

from fastgrl.checks import shown, without_passwords
from fastgrl.errors import ArgumentError, FastgrlError, MissingExtraError

_LOCAL = ("file://", "local://")
_PATTERN = re.compile(r"[*?\[\]]")
# By what stores tell a file from one that has taken its place.
_VERSIONS = {"etag", "lastmodified", "last_modified", "mtime", "created", "modified", "generation", "md5"}
# Stores without folders; to make one there could make a bucket.
_PREFIXES = {"s3", "s3a", "gs", "gcs", "abfs", "abfss", "az", "adl", "oci", "oss", "memory"}


@dataclass(frozen=True)
class Address:
    """A file or a folder: an absolute path, or the address of one in a store, such as s3://bucket/folder."""

    text: str

    @classmethod
    def of(cls, given: Any) -> Address:
        """Of a path or an address.

        >>> Address.of("s3://bucket/edges/") / "part.parquet"
        Address(text='s3://bucket/edges/part.parquet')
        """
        text = os.fspath(given)
        for scheme in _LOCAL:
            text = text.removeprefix(scheme)
        scheme, _, inside = text.partition("://")
        if not text or ("://" in text and not inside.strip("/")):
            raise ArgumentError(f"{shown(os.fspath(given))} names no file or folder")
        if inside and _PATTERN.search(inside):
            raise ArgumentError(f"{shown(text, 200)} would be a pattern for a store: leave *, ?, [ and ] out")
        return cls(f"{scheme}://{inside.rstrip('/')}" if inside else _posix(os.path.abspath(text)))

    def __str__(self) -> str:
        """As messages show it."""
        return without_passwords(self.text)

    def __truediv__(self, name: str) -> Address:
        return Address(f"{self.text}/{name}")

    @property
    def is_path(self) -> bool:
        """Whether it is a path of this machine, and of all others."""
        return "://" not in self.text

    @property
    def is_root(self) -> bool:
        """Whether it is all of a store, such as a bucket.

        >>> Address.of("s3://bucket/").is_root, Address.of("s3://bucket/a").is_root, Address.of("/").is_root
        (True, False, True)
        """
        return "/" not in self.text.partition("://")[2] if not self.is_path else not self.name

    def is_within(self, folder: Address) -> bool:
        """Whether it is that folder or lies in it, links followed.

        >>> Address.of("s3://bucket/edges/new").is_within(Address.of("s3://bucket/edges"))
        True
        >>> Address.of("s3://bucket/edges-new").is_within(Address.of("s3://bucket/edges"))
        False
        """
        own, other = (
            os.path.realpath(one.text) + os.sep if one.is_path else f"{one.text}/" for one in (self, folder)
        )
        return own.startswith(other)

    @property
    def name(self) -> str:
        """The last part of it."""
        return PurePosixPath(self.text).name

    def beside(self, name: str) -> Address:
        """Another name in the same folder."""
        return Address(f"{self.text[: len(self.text) - len(self.name)]}{name}")

    def is_there(self) -> bool:
        """Whether a file or a folder has this name."""
        if self.is_path:
            return os.path.lexists(self.text)
        with self._store() as (fs, inside), suppress(FileNotFoundError):
            fs.info(inside)  # "exists" takes any failure for a no
            return True
        return bool(self.files())

    def is_folder(self) -> bool:
        """Whether it is a folder, or begins the name of a file in a store."""
        if self.is_path:
            return os.path.isdir(self.text)
        with self._store() as (fs, inside):
            return bool(fs.isdir(inside))

    def make_folder(self) -> None:
        """Make it a folder, if it is none."""
        if self.is_path:
            os.makedirs(self.text, exist_ok=True)
        elif self.text.partition("://")[0] not in _PREFIXES:
            with self._store() as (fs, inside):
                fs.makedirs(inside, exist_ok=True)

    def files(self) -> list[Address]:
        """All files of a folder and of those within it, in the order of their names."""
        if self.is_path:
            found = [os.path.join(folder, name) for folder, _, names in os.walk(self.text) for name in names]
            return [Address(_posix(path)) for path in sorted(found)]
        with self._store() as (fs, inside):
            names = [path[len(inside.rstrip("/")) :].lstrip("/") for path in sorted(fs.find(inside))]
            return [self / name for name in names if name]

    def within(self, folder: Address) -> tuple[str, ...]:
        """The names that lead to it from a folder.

        >>> Address.of("s3://bucket/edges/year/part.parquet").within(Address.of("s3://bucket/edges"))
        ('year', 'part.parquet')
        """
        return PurePosixPath(self.text[len(folder.text) :].lstrip("/")).parts

    def version(self) -> list[str]:
        """What tells a file from another that has taken its place."""
        if self.is_path:
            facts = os.stat(self.text)
            return [str(facts.st_size), str(facts.st_mtime_ns)]
        with self._store() as (fs, inside):
            known = fs.info(inside)
        marks = [str(known[name]) for name in sorted(known) if name.lower() in _VERSIONS]
        if not marks:
            raise OSError("its store does not tell when a file was changed")
        return [str(known.get("size")), *marks]

    @contextmanager
    def opened(self) -> Iterator[IO[bytes]]:
        """The file, to read from."""
        if self.is_path:
            with open(self.text, "rb") as file:
                yield file
            return
        with self._store() as (fs, inside), fs.open(inside, "rb") as file:
            yield file

    def write(self, write: Callable[[IO[bytes]], Any]) -> None:
        """Write the file, whole or not at all: a retry or a second worker does no harm."""
        if not self.is_path:
            contents = io.BytesIO()
            write(contents)
            with self._store() as (fs, inside):
                fs.pipe_file(inside, contents.getvalue())
            return
        beside = Path(self.text).with_name(f".{self.name}.{uuid.uuid4().hex[:8]}")
        try:
            with open(beside, "wb") as file:
                write(file)
            os.replace(beside, self.text)
        finally:
            beside.unlink(missing_ok=True)

    def replace(self, target: Address) -> None:
        """Give a folder the name of another, which is removed; a store copies its files one after another."""
        if self.is_path:
            aside = target.beside(f".{target.name}.{uuid.uuid4().hex[:8]}.old")
            if target.is_there():
                os.replace(target.text, aside.text)
            try:
                os.replace(self.text, target.text)
            except BaseException:
                if aside.is_there():
                    os.replace(aside.text, target.text)
                raise
            aside.remove()
            return
        target.remove()
        target.make_folder()
        for file in self.files():
            new = target / "/".join(file.within(self))
            with file._store() as (fs, inside):
                fs.cp_file(inside, fs._strip_protocol(new.text))
        self.remove()

    def remove(self) -> None:
        """Remove a folder, or a file, with all that is in it; none is fine."""
        if self.is_path and os.path.isdir(self.text):
            shutil.rmtree(self.text)
        elif self.is_path:
            Path(self.text).unlink(missing_ok=True)
        elif self.is_there():
            with self._store() as (fs, inside):
                fs.rm(inside, recursive=True)

    @contextmanager
    def _store(self) -> Iterator[tuple[Any, str]]:
        """The store and the name within it; a failure in the body is an `OSError` of one line."""
        try:
            yield _file_system(self)
        except (OSError, FastgrlError, MemoryError):
            raise
        except Exception as error:  # each store has exceptions of its own
            reason = without_passwords(" ".join(str(error).split()))
            raise OSError(f"{type(error).__name__}: {reason}") from error


def _posix(path: str) -> str:
    return path.replace(os.sep, "/")


def _file_system(address: Address) -> tuple[Any, str]:
    """The store of an address, and the name within it."""
    try:
        from fsspec.core import url_to_fs
    except ImportError:
        raise MissingExtraError(
            f"{shown(address.text, 200)} needs fsspec: pip install 'fastgrl[dask]'"
        ) from None
    try:
        fs, inside = url_to_fs(address.text)
    except (ValueError, ImportError) as error:
        raise ArgumentError(
            f"{shown(address.text, 200)} cannot be opened: {without_passwords(str(error))}"
        ) from None
    fs.invalidate_cache()  # others write there too
    return fs, inside
