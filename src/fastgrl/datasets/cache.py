"""Files on this machine: where they lie, whether they are the right ones, and how they get there.

A file is read once, hashed, and only then parsed, from the same bytes: nothing can change it in between.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import secrets
import stat
import urllib.parse
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Literal

from fastgrl.datasets.catalogue import DatasetInfo, FileInfo, describe, list_datasets
from fastgrl.errors import InputError, UnavailableError

Progress = Callable[[int, int], None]
Downloader = Callable[[str, "Sink"], None]
Folder = str | os.PathLike[str] | None

_TIMEOUT = 30
_CHUNK = 1 << 16


def data_folder() -> Path:
    """Where datasets lie: the environment variable FASTGRL_DATA if it is set, else this user's cache folder.

    >>> from fastgrl.datasets import data_folder
    >>> data_folder().name != ""
    True
    """
    chosen = os.environ.get("FASTGRL_DATA")
    if chosen:
        return Path(chosen).expanduser()
    import pooch

    return Path(pooch.os_cache("fastgrl"))


@dataclass(frozen=True)
class Content:
    """A file whose checksum was found right."""

    path: Path
    data: bytes


@dataclass(frozen=True)
class FileStatus:
    """How a file of a dataset was found; `sha256` is None unless it could be read."""

    dataset: str
    file: str
    path: Path
    state: Literal["ok", "missing", "wrong"]
    sha256: str | None


def verify(names: Iterable[str] | None = None, *, folder: Folder = None) -> tuple[FileStatus, ...]:
    """Look at every file of the datasets called `names` (None: all): is it there, is it the right one.

    `folder` is where to look, by default `data_folder()`.

    >>> from fastgrl.datasets import verify
    >>> [status.state for status in verify(["digits"])]  # has no files of its own
    []
    """
    names = [names] if isinstance(names, str) else list_datasets() if names is None else names
    infos = [describe(name) for name in names]
    return tuple(_status(info, file, path) for info in infos for file, path in _paths(info, folder).items())


def _status(info: DatasetInfo, file: FileInfo, path: Path) -> FileStatus:
    try:
        found = hashlib.sha256(_read(file, path)).hexdigest()
    except FileNotFoundError:
        return FileStatus(info.name, file.name, path, "missing", None)
    except (InputError, UnavailableError):
        return FileStatus(info.name, file.name, path, "wrong", None)
    return FileStatus(info.name, file.name, path, "ok" if found == file.sha256 else "wrong", found)


def read_files(
    info: DatasetInfo, *, folder: Folder, download: bool, progress: Progress | None
) -> dict[str, Content]:
    """Every file of a dataset by name, all of them checked; with `download` missing ones are fetched."""
    paths = _paths(info, folder)
    try:
        return {file.name: _checked(info, file, path) for file, path in paths.items()}
    except _Missing:
        if not download:
            raise
    fetch_missing(info, folder=folder, progress=progress)
    return {file.name: _checked(info, file, path) for file, path in paths.items()}


class _Missing(UnavailableError):
    pass


def _paths(info: DatasetInfo, folder: Folder) -> dict[FileInfo, Path]:
    place = Path(data_folder() if folder is None else folder) / info.folder
    return {file: place / file.name for file in info.files}


def _checked(info: DatasetInfo, file: FileInfo, path: Path) -> Content:
    try:
        data = _read(file, path)
    except FileNotFoundError:
        raise _Missing(_by_hand(info, file, path, "has not been downloaded")) from None
    found = hashlib.sha256(data).hexdigest()
    if found != file.sha256:
        raise InputError(
            f"{path} is not the file that dataset {info.name} consists of: its SHA-256 begins with "
            f"{found[:12]}, not {file.sha256[:12]}; delete it and run: fastgrl datasets download {info.name}"
        )
    return Content(path, data)


def _read(file: FileInfo, path: Path) -> bytes:
    try:
        # Not to wait for the other end of a pipe, nor to read from a device that never ends.
        descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
        with open(descriptor, "rb", buffering=0) as stream:
            facts = os.fstat(descriptor)
            if not stat.S_ISREG(facts.st_mode) or facts.st_size > file.bytes:
                raise InputError(
                    f"{path} is no file of {file.bytes} bytes, so it is the wrong one; delete it"
                )
            return stream.read()
    except (FileNotFoundError, NotADirectoryError):
        raise FileNotFoundError from None
    except OSError as error:
        raise UnavailableError(f"{path} cannot be read: {error.strerror}") from None


def fetch_missing(
    info: DatasetInfo,
    *,
    folder: Folder = None,
    progress: Progress | None = None,
    downloader: Downloader | None = None,
) -> tuple[Path, ...]:
    """Download the files of a dataset that are not there yet; a file that is there is not touched."""
    paths = _paths(info, folder)
    missing = [file for file, path in paths.items() if not os.path.lexists(path)]
    total, done = sum(file.bytes for file in missing), 0
    for file in missing:
        report = None if progress is None else _shifted(progress, done, total)
        _fetch(info, file, paths[file], report, downloader or over_https)
        done += file.bytes
    return tuple(paths.values())


def _shifted(progress: Progress, before: int, total: int) -> Callable[[int], None]:
    return lambda done: progress(before + done, total)


class Sink:
    """Where a downloader writes: keeps count, hashes, and refuses more bytes than the file has."""

    def __init__(
        self, stream: IO[bytes], *, path: Path, limit: int, report: Callable[[int], None] | None
    ) -> None:
        self.size, self.digest = 0, hashlib.sha256()
        self._stream, self._path, self._limit, self._report = stream, path, limit, report

    def write(self, chunk: bytes) -> None:
        self.size += len(chunk)
        if self.size > self._limit:
            raise _WrongFile
        self.digest.update(chunk)
        try:
            self._stream.write(chunk)
        except OSError as error:
            raise _unwritable(self._path, error) from None
        if self._report is not None:
            self._report(self.size)

    def flush(self) -> None:
        """Nothing: it is asked for after every chunk."""


class _WrongFile(Exception):
    pass


def _fetch(
    info: DatasetInfo,
    file: FileInfo,
    path: Path,
    report: Callable[[int], None] | None,
    downloader: Downloader,
) -> None:
    if file.url is None:
        raise UnavailableError(OGB_INSTRUCTIONS.format(name=info.name, folder=path.parent))
    with written_whole(path) as stream:
        sink = Sink(stream, path=path, limit=file.bytes, report=report)
        try:
            downloader(file.url, sink)
            if sink.digest.hexdigest() != file.sha256:
                raise _WrongFile
        except _WrongFile:
            reason = f"what came is not that file ({min(sink.size, file.bytes)} of {file.bytes} bytes)"
            raise UnavailableError(_by_hand(info, file, path, reason)) from None
        except UnavailableError:
            raise
        except (OSError, ValueError) as error:
            raise UnavailableError(_by_hand(info, file, path, _reason(error))) from None


@contextlib.contextmanager
def written_whole(path: Path) -> Iterator[IO[bytes]]:
    """A stream to a name of its own beside `path`, renamed to it at the end, or removed after an error."""
    part = path.with_name(f".{path.name}.{secrets.token_hex(8)}.part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with part.open("xb") as stream:
            yield stream
        part.replace(path)
    except UnavailableError:
        raise
    except OSError as error:
        raise _unwritable(path, error) from None
    finally:
        with contextlib.suppress(OSError):
            part.unlink()


def _unwritable(path: Path, error: OSError) -> UnavailableError:
    why = error.strerror or type(error).__name__
    return UnavailableError(
        f"{path.name} is missing, and nothing can be written to {path.parent}: {why}; "
        "FASTGRL_DATA can name another folder"
    )


def over_https(url: str, sink: Sink) -> None:
    """Fetch an https address, whose redirections must stay with https."""
    fetch(url, sink, refuse=_refuse_plain)


def _refuse_plain(url: str) -> None:
    if not url.startswith("https://"):
        raise UnavailableError(f"{url} is not an https address: refused")


def fetch(url: str, sink: Sink, *, refuse: Callable[[str], None]) -> None:
    """Write what is at an address to `sink`; `refuse` may raise for it and for each one it redirects to."""
    import pooch

    responses: list[Any] = []

    def follow(response: Any, **_options: Any) -> None:
        responses.append(response)
        refuse(urllib.parse.urljoin(str(response.url), str(response.headers.get("location", ""))))

    refuse(url)
    try:
        options = {"timeout": _TIMEOUT, "hooks": {"response": follow}}
        pooch.HTTPDownloader(chunk_size=_CHUNK, **options)(url, sink, None)
    finally:
        for response in responses:
            response.close()


def _reason(error: Exception) -> str:
    response = getattr(error, "response", None)
    if response is not None:
        return f"the server answered {response.status_code}"
    return f"there is no connection ({type(error).__name__})"


def _by_hand(info: DatasetInfo, file: FileInfo, path: Path, reason: str) -> str:
    if file.url is None:
        return OGB_INSTRUCTIONS.format(name=info.name, folder=path.parent)
    return (
        f"{file.name} of dataset {info.name} is missing: {reason}.\n"
        f"  from  {file.url}\n"
        f"  to    {path}\n"
        f"Run: fastgrl datasets download {info.name}\n"
        f"or put the file there by hand, or point FASTGRL_DATA to a folder with {info.folder}/{file.name}."
    )


OGB_INSTRUCTIONS = """\
{name} is not in {folder}.
It cannot be downloaded as it is: OGB's archive holds PyTorch pickles, which fastgrl does not open.
Make the files once with OGB's own package, which does; fastgrl checks them before it writes them:
  pip install ogb 'torch<2.6'
  python -c "from ogb.linkproppred import LinkPropPredDataset as D; from fastgrl.datasets import \
convert_ogbl_ddi; convert_ogbl_ddi(D('ogbl-ddi').get_edge_split())\""""
