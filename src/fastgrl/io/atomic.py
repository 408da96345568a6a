"""Files are written whole or not at all: under a temporary name beside the target, then renamed.

Every step goes through `os`, one call at a time, and whatever stops it (a full disk, Ctrl-C) removes the
temporary file and leaves the old one as it was. Only a kill or a power cut can leave a temporary file behind:
its name begins with `.fastgrl-` and nothing reads it.
"""

from __future__ import annotations

import errno
import io
import os
import secrets
import stat
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO, TypeAlias, cast, final

from fastgrl.checks import shown
from fastgrl.errors import ArgumentError, FastgrlError, UnavailableError

StrPath: TypeAlias = str | os.PathLike[str]

STDOUT = "-"
_BUFFER_BYTES = 1 << 20
_LONGEST_NAME_SHOWN = 100

_REASONS = {
    errno.ENOSPC: "no space left on its disk",
    errno.EDQUOT: "the disk quota is used up",
    errno.EFBIG: "the file size limit is reached (see ulimit -f)",
    errno.EIO: "the disk reports an input/output error",
    errno.EROFS: "its file system is read-only",
    errno.EACCES: "there is no permission to write there",
    errno.EPERM: "there is no permission to write there",
}


def check_output(*paths: StrPath, force: bool = False, inputs: tuple[StrPath, ...] = ()) -> None:
    """Refuse, before any work is done, output files that could not or must not be written.

    That is a folder or a device, a name in a folder that is not there, a file that exists unless `force`, and
    with or without `force` one of `inputs` and two outputs with one name. "-" is standard output and passes.
    """
    targets = [target_of(path) for path in paths if os.fspath(path) != STDOUT]
    for target in targets:
        _refuse_inputs(target, inputs)
        if target.exists() and not force:
            raise ArgumentError(f"{named(target)} already exists; --force (force=True) overwrites it")
        if not os.access(target.parent, os.W_OK | os.X_OK):
            raise UnavailableError(f"{named(target)} cannot be written: {_REASONS[errno.EACCES]}")
    if len(set(targets)) < len(targets):
        raise ArgumentError(f"two outputs have the name {named(max(targets, key=targets.count))}")


@contextmanager
def whole_file(path: StrPath) -> Iterator[BinaryIO]:
    """A new binary file that takes the place of `path` when the body ends well; "-" is standard output.

    An existing file is overwritten (`check_output` is the place to refuse that); a link stays a link and its
    target is replaced.
    """
    with whole_files(path) as [file]:
        yield file


@contextmanager
def whole_files(*paths: StrPath) -> Iterator[list[BinaryIO]]:
    """Several new files that take the places of `paths` together when the body ends well.

    All are complete on disk before the first is renamed. Files that are to be replaced step aside first and
    come back if anything goes wrong, so that old and new never stand side by side; a kill between two renames
    leaves some of the names without a file. "-" is standard output.
    """
    drafts = {path: _Draft(target_of(path)) for path in paths if os.fspath(path) != STDOUT}
    with ExitStack() as stack:
        if len(drafts) < len(paths):
            stack.enter_context(_explained("standard output"))
        for draft in drafts.values():
            stack.callback(draft.discard)  # before it is opened: Ctrl-C may strike right after
            draft.open()
        yield [cast(BinaryIO, drafts[path]) if path in drafts else sys.stdout.buffer for path in paths]
        for draft in drafts.values():
            draft.finish()
        if len(drafts) < len(paths):
            sys.stdout.buffer.flush()
        _put_in_place([*drafts.values()])


def target_of(path: StrPath) -> Path:
    """The file that writing to `path` would replace, links followed; an error says why it cannot be.

    >>> target_of(".")
    Traceback (most recent call last):
    fastgrl.errors.ArgumentError: '.' is a folder; give the name of a file in it
    """
    name = os.fspath(path)
    try:
        target = Path(os.path.realpath(name))
        mode = os.stat(target).st_mode
    except FileNotFoundError:
        return _checked_parent(target, name)
    except (OSError, ValueError) as error:
        raise _reason(error, named(name)) from error
    if stat.S_ISDIR(mode) or name.endswith(os.sep):
        raise ArgumentError(f"{named(name)} is a folder; give the name of a file in it")
    if not stat.S_ISREG(mode):
        raise ArgumentError(f"{named(name)} is a device or a pipe, not a file; - writes to standard output")
    return target


def named(path: StrPath) -> str:
    """A file's name as messages show it."""
    return shown(os.fspath(path), limit=_LONGEST_NAME_SHOWN)


def _checked_parent(target: Path, name: str) -> Path:
    if name.endswith(os.sep):
        raise ArgumentError(f"{named(name)} names a folder; give the name of a file in it")
    check_parent(target, name)
    return target


def check_parent(target: Path, given: StrPath) -> None:
    """Refuse what would lie in no folder; `given` is how the caller named it."""
    if target.parent.is_dir():
        return
    if "://" in os.fspath(given):
        raise ArgumentError(f"{named(given)} is an address; name a file or folder of this machine") from None
    raise ArgumentError(f"the folder {named(target.parent)} does not exist; make it first") from None


def _refuse_inputs(target: Path, inputs: tuple[StrPath, ...]) -> None:
    for path in inputs:
        with suppress(OSError):
            if os.path.samefile(target, path):
                raise ArgumentError(f"{named(target)} is also read as input, and is never overwritten")


@final
class _Draft(io.BufferedIOBase):
    """A file under a temporary name. Its buffer is its own: Python's would write again while it is closed."""

    def __init__(self, target: Path) -> None:
        mark = f".fastgrl-{os.getpid()}-{secrets.token_hex(8)}"
        self.target = target
        self.path, self._aside = target.with_name(f"{mark}.tmp"), target.with_name(f"{mark}.old")
        self._descriptor = -1
        self._pending = bytearray()
        self._failure: BaseException | None = None

    def open(self) -> None:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0)
        with _explained(self.target):
            self._descriptor = os.open(self.path, flags, _mode_of(self.target))

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        self._pending += data
        if len(self._pending) >= _BUFFER_BYTES:
            self.flush()
        return memoryview(data).nbytes

    def flush(self) -> None:
        pending, self._pending = memoryview(self._pending), bytearray()
        try:
            with _explained(self.target):
                while len(pending) and self._failure is None:
                    pending = pending[os.write(self._descriptor, pending) :]
        except BaseException as error:
            self._failure = error
            raise

    def finish(self) -> None:
        if self._failure is not None:  # a library that was handed the file kept it to itself
            raise self._failure
        self.flush()
        with _explained(self.target):
            os.fsync(self._descriptor)
            self._release()

    def _release(self) -> None:
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)

    def close(self) -> None:
        """Nothing: libraries that are handed a file may close it, but only `finish` completes this one."""

    def step_aside(self) -> None:
        with suppress(FileNotFoundError):
            os.replace(self.target, self._aside)

    def come_in(self) -> None:
        os.replace(self.path, self.target)

    def step_back(self) -> None:
        if os.path.exists(self._aside):
            os.replace(self._aside, self.target)
        elif not os.path.exists(self.path):
            _unlink(self.target)

    def discard(self) -> None:
        """Remove what is left; after a good end that is nothing."""
        with ExitStack() as stack:
            stack.callback(_insist, lambda: _unlink(self.path))
            _insist(self._release)

    def forget(self) -> None:
        _insist(lambda: _unlink(self._aside))


def _put_in_place(drafts: list[_Draft]) -> None:
    with ExitStack() as undo:
        for draft in drafts if len(drafts) > 1 else []:
            undo.callback(_insist, draft.step_back)
            with _explained(draft.target):
                draft.step_aside()
        for draft in drafts:
            with _explained(draft.target):
                draft.come_in()
        undo.pop_all()
    with ExitStack() as stack:
        for draft in drafts if len(drafts) > 1 else []:
            stack.callback(draft.forget)
        for folder in {draft.target.parent for draft in drafts}:
            with _explained(folder):
                _sync_folder(folder)


def _sync_folder(folder: Path) -> None:
    try:
        descriptor = os.open(folder, os.O_RDONLY)
    except PermissionError:  # Windows, and folders that may be written to but not read
        return
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):  # some network file systems know no such thing
            raise
    finally:
        os.close(descriptor)


def _mode_of(target: Path) -> int:
    """What the old file allowed, so that a private file stays private."""
    try:
        return stat.S_IMODE(os.stat(target).st_mode) & 0o666
    except FileNotFoundError:
        return 0o666


def _unlink(path: Path) -> None:
    with suppress(FileNotFoundError):
        os.unlink(path)


def _insist(step: Callable[[], None]) -> None:
    """Clean up, up to three times when Ctrl-C or an error gets in between; only then pass Ctrl-C on."""
    stopped: BaseException | None = None
    for _ in range(3):
        try:
            step()
            break
        except OSError:
            continue
        except BaseException as error:
            stopped = error
    if stopped is not None:
        raise stopped


@contextmanager
def _explained(path: StrPath) -> Iterator[None]:
    """An OSError of the body as an error of ours; a reader that went away is for the caller to judge."""
    try:
        yield
    except (FastgrlError, BrokenPipeError):
        raise
    except OSError as error:
        raise _reason(error, named(path)) from error


def _reason(error: OSError | ValueError, name: str) -> FastgrlError:
    if not isinstance(error, OSError):
        return ArgumentError(f"{name} cannot be a file's name: {error}")
    if error.errno == errno.ENAMETOOLONG:
        return ArgumentError(f"the name {name} is too long for a file")
    if error.errno in (errno.ENOTDIR, errno.ENOENT, errno.ELOOP, errno.EISDIR):
        return ArgumentError(f"{name} is not a file in a folder: {error.strerror}")
    return UnavailableError(f"{name} could not be written: {_REASONS.get(error.errno or 0, error.strerror)}")
