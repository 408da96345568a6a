"""Models on disk: a folder of model.json and one safetensors file, whole or not at all, never unpickled.

model.json says what is in the tensor file, and carries a SHA-256 of itself. The tensor file is named after
its own SHA-256 and is complete on disk before model.json, by one rename, begins to speak of it: a reader
finds the old model or the new one, whenever it comes and wherever a save is killed.
"""

from __future__ import annotations

import errno
import mmap as memory_map
import os
import secrets
import shutil
import stat
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from fastgrl.checks import Array, native, shown, size
from fastgrl.errors import ArgumentError, InputError, UnavailableError
from fastgrl.io.atomic import (
    StrPath,
    _insist,
    _mode_of,
    _reason,
    _sync_folder,
    _unlink,
    check_parent,
    named,
    whole_file,
)
from fastgrl.stored_ids import is_packed_ids, pack_ids, unpack_ids
from fastgrl.stored_index import FORMAT, LONGEST, TENSOR_FILE, Index, damaged
from fastgrl.stored_tensors import header_of, packed, sha256_of, sums_and_unsound, sums_of

if sys.platform != "win32":
    import fcntl

INDEX_FILE = "model.json"
_PIECE = 1 << 20


@dataclass(frozen=True, eq=False)
class Stored:
    """What a model is on disk: its kind, its settings, what is known of it, its arrays and its node ids.

    `parameters` and `facts` hold what JSON holds: None, booleans, integers, finite floats, text, lists, and
    dictionaries by text. `arrays` are of booleans, integers or finite floats; loaded ones are read-only.
    """

    kind: str
    parameters: dict[str, Any]
    facts: dict[str, Any]
    arrays: dict[str, Array]
    node_ids: Array


def save_model(stored: Stored, folder: StrPath, *, force: bool = False) -> None:
    """Write `stored` as the folder `folder`, which is made if need be; its parent must be there.

    A model in the folder is replaced only with `force`, and is whole until the new one is. Files of other
    names in the folder are left alone, and a folder with such files and no model is refused.

    >>> import tempfile
    >>> model = Stored("example", {"rank": 2}, {}, {"left": np.eye(2)}, np.array([7, 9]))
    >>> with tempfile.TemporaryDirectory() as here:
    ...     save_model(model, f"{here}/model")
    ...     load_model(f"{here}/model", mmap=False).arrays["left"].tolist()
    [[1.0, 0.0], [0.0, 1.0]]
    """
    target, content = check_model_folder(folder, force=force), _Content.of(stored)
    with _naming(target):
        # Where the folder comes into being meanwhile, another saver was quicker.
        if target.exists() or not _create(target, content):
            _replace(target, content, force=force)


def load_model(folder: StrPath, *, mmap: bool = True, check: bool = True) -> Stored:
    """Read the model in `folder`; one that is not whole, was changed, or is too new is an InputError.

    With `mmap` the arrays are views of the file, which `save_model` may replace meanwhile but nobody may
    change in place. `check=False` leaves out what reads all the data: checksum, and that floats are finite.
    """
    index, data = _opened(Path(folder), mmap=mmap)
    with _about(Path(folder) / index.tensor_file):
        if check:
            _check_data(index, data)
        arrays = {tensor.name: native(tensor.of(data)) for tensor in index.tensors}
        node_ids = _ids_of(index, arrays)
    own = {name: array for name, array in arrays.items() if not is_packed_ids(name)}
    return Stored(index.kind, index.parameters, index.facts, own, node_ids)


def verify_model(folder: StrPath) -> None:
    """Load the model with every check, and compare the SHA-256 of the tensor file besides."""
    load_model(folder)
    index, data = _opened(Path(folder), mmap=True)
    with _about(Path(folder) / index.tensor_file):
        if sha256_of([header_of(index.tensors), data]) != index.sha256:
            raise damaged(f"its SHA-256 is not the one in {INDEX_FILE}")


def check_model_folder(folder: StrPath, *, force: bool = False) -> Path:
    """The folder that `save_model` would write, links followed; an error says why it could not or must not.

    >>> check_model_folder("nowhere/model")
    Traceback (most recent call last):
    fastgrl.errors.ArgumentError: the folder '...nowhere' does not exist; make it first
    """
    try:
        target = Path(os.path.realpath(folder))
        names = sorted(os.listdir(target))
    except FileNotFoundError:
        check_parent(target, folder)
        return _writable(target, target.parent)
    except NotADirectoryError:
        raise ArgumentError(f"{named(folder)} is not a folder, as a model is; give another name") from None
    except (OSError, ValueError) as error:
        raise _reason(error, named(folder)) from error
    _refuse_present(target, names, force=force)
    return _writable(target, target)


def expect(
    stored: Stored,
    shapes: Mapping[str, Sequence[str | int]],
    *,
    kinds: Mapping[str, str] | None = None,
    name: StrPath | None = None,
) -> dict[str, int]:
    """Check that the arrays named in `shapes` fit together, and return the length each letter stands for.

    A length is a letter ("n" is the number of nodes), a letter plus a number, or a number. `kinds` has the
    kind ("f", "i", "u" or "b") of each array that is not of floats; `name` names the model in errors.

    >>> model = Stored("example", {}, {}, {"left": np.eye(2, 3), "indptr": np.arange(3)}, np.array([7, 9]))
    >>> expect(model, {"left": ("n", "k"), "indptr": ("n+1",)}, kinds={"indptr": "i"})
    {'n': 2, 'k': 3}
    """
    lengths = {"n": len(stored.node_ids)}
    with _about("the model" if name is None else name):
        for key, wanted in shapes.items():
            if key not in stored.arrays:
                raise damaged(f"the array {shown(key)} is missing")
            array, kind = stored.arrays[key], (kinds or {}).get(key, "f")
            if array.dtype.kind != kind:
                raise damaged(f"the array {shown(key)} is of {array.dtype}, not of kind {kind!r}")
            if not _fits(array.shape, wanted, lengths):
                known = ", ".join(f"{letter} = {length}" for letter, length in lengths.items())
                form = "×".join(map(str, wanted))
                raise damaged(f"the array {shown(key)} is {size(array.shape)}, not {form} ({known})")
    return lengths


def data_digest(arrays: Mapping[str, Array], node_ids: Any) -> str:
    """SHA-256 of arrays and ids, by which two models can be told to be of the same data.

    >>> rows = {"indices": np.arange(3)}
    >>> data_digest(rows, ["a", "b"]) == data_digest(rows, ["a", "c"])
    False
    """
    tensors, parts = packed(dict(arrays) | pack_ids(node_ids)[1])
    return sha256_of([header_of(tensors), *parts])


def _fits(shape: tuple[int, ...], wanted: Sequence[str | int], lengths: dict[str, int]) -> bool:
    """Whether `shape` is what is wanted; letters that are new become known."""
    if len(shape) != len(wanted):
        return False
    for length, letter in zip(shape, wanted, strict=True):
        name, _, more = str(letter).partition("+")
        rest = length - int(more or 0)
        if rest < 0 or rest != (letter if isinstance(letter, int) else lengths.setdefault(name, rest)):
            return False
    return True


@dataclass(frozen=True, eq=False)
class _Content:
    """The two files of a model, ready to be written."""

    index: Index
    raw_index: bytes
    parts: list[Array]

    @classmethod
    def of(cls, stored: Stored) -> _Content:
        ids_kind, ids = pack_ids(stored.node_ids)
        tensors, parts = packed(_checked_names(stored.arrays) | ids)
        parts = [np.frombuffer(header_of(tensors), np.uint8), *parts]
        facts = (stored.parameters, stored.facts, ids_kind, len(stored.node_ids))
        index = Index(stored.kind, *facts, tensors, sums_of(parts[1:]), sha256_of(parts))
        return cls(index, index.to_bytes(), parts)

    def write(self, folder: Path) -> None:
        """Make both files in `folder`, the one that speaks of the other last."""
        index_file, tensor_file = folder / INDEX_FILE, folder / self.index.tensor_file
        # A new tensor file is as private as the model that it belongs to.
        os.close(os.open(tensor_file, os.O_CREAT | os.O_WRONLY, _mode_of(index_file)))
        _write(tensor_file, self.parts)
        _write(index_file, [np.frombuffer(self.raw_index, np.uint8)])


def _checked_names(arrays: dict[str, Array]) -> dict[str, Array]:
    for name in arrays:
        if not isinstance(name, str) or is_packed_ids(name) or name == "__metadata__":
            raise ArgumentError(f"{shown(name)} cannot be the name of an array; choose another")
    return arrays


def _write(path: Path, parts: list[Array]) -> None:
    with whole_file(path) as file:
        for part in parts:
            for begin in range(0, len(part), _PIECE):
                file.write(part[begin : begin + _PIECE].data)


def _writable(target: Path, folder: Path) -> Path:
    if not os.access(folder, os.W_OK | os.X_OK):
        raise UnavailableError(f"{named(target)} cannot be written: there is no permission to write there")
    return target


def _refuse_present(folder: Path, names: list[str], *, force: bool) -> None:
    if INDEX_FILE in names and _is_ours(folder / INDEX_FILE):
        if not force:
            raise ArgumentError(f"{named(folder)} already exists; --force (force=True) overwrites it")
        return
    others = [name for name in names if not (TENSOR_FILE.fullmatch(name) or name.startswith(".fastgrl-"))]
    if others:
        raise ArgumentError(
            f"the folder {named(folder)} holds other files (such as {shown(others[0])}) and no model; "
            "give the name of a new folder"
        )


def _is_ours(index_file: Path) -> bool:
    """Whether this is a model.json of fastgrl, however damaged, and not another program's."""
    with suppress(OSError), index_file.open("rb") as file:
        return f'"{FORMAT}"'.encode() in file.read(200)
    return False


def _create(target: Path, content: _Content) -> bool:
    """Make a new folder under another name and rename it; False if `target` is there by then."""
    draft = target.with_name(f".fastgrl-{os.getpid()}-{secrets.token_hex(8)}.tmp")
    with ExitStack() as stack:
        stack.callback(_insist, lambda: shutil.rmtree(draft) if draft.exists() else None)
        os.mkdir(draft)
        content.write(draft)
        try:
            os.rename(draft, target)
        except OSError as error:
            if error.errno not in (errno.EEXIST, errno.ENOTEMPTY, errno.ENOTDIR):
                raise
            return False
        _sync_folder(target.parent)
    return True


def _replace(folder: Path, content: _Content, *, force: bool) -> None:
    with _only_saver(folder) as alone, ExitStack() as stack:
        check_model_folder(folder, force=force)  # a saver that was quicker may have put a model here
        known = {content.index.tensor_file}
        with suppress(InputError):
            known |= _spoken_of(folder)
        stack.callback(_insist, lambda: _sweep(folder, among=None if alone else known))
        content.write(folder)


@contextmanager
def _only_saver(folder: Path) -> Iterator[bool]:
    """Wait until no other process saves into `folder`; False where that cannot be known."""
    if sys.platform == "win32":
        yield False
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        yield _locked(descriptor)
    finally:
        os.close(descriptor)


def _locked(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
    except OSError:  # some network file systems have no locks
        return False
    return True


def _sweep(folder: Path, *, among: set[str] | None) -> None:
    """Remove the tensor files that model.json does not speak of; when it cannot be read, none."""
    with suppress(InputError):
        current = _spoken_of(folder)
        for name in os.listdir(folder):
            if TENSOR_FILE.fullmatch(name) and name not in current and (among is None or name in among):
                _unlink(folder / name)


def _spoken_of(folder: Path) -> set[str]:
    return {Index.of(_read_index(folder)[0]).tensor_file} if (folder / INDEX_FILE).exists() else set()


@contextmanager
def _naming(folder: Path) -> Iterator[None]:
    """Errors of the disk as ours, about the folder and not about a file with a temporary name."""
    try:
        yield
    except OSError as error:
        cause = error.__cause__ if isinstance(error.__cause__, OSError) else error
        if isinstance(cause, UnavailableError):
            raise
        raise _reason(cause, named(folder)) from cause


@contextmanager
def _about(path: StrPath) -> Iterator[None]:
    try:
        yield
    except FileNotFoundError:
        raise
    except InputError as error:
        raise InputError(f"{named(path)}: {error}") from error
    except OSError as error:
        raise UnavailableError(f"{named(path)} could not be read: {error.strerror or error}") from error


def _opened(folder: Path, *, mmap: bool) -> tuple[Index, Array]:
    """model.json and the data it speaks of; read anew when a save comes between the two."""
    raw, version = _read_index(folder)
    while True:
        with _about(folder / INDEX_FILE):
            index = Index.of(raw)
        try:
            with _about(path := folder / index.tensor_file):
                return index, _data_of(path, index, mmap=mmap)
        except (FileNotFoundError, InputError) as error:
            raw, later = _read_index(folder)
            if version == later:
                raise (
                    error if isinstance(error, InputError) else damaged(f"{named(path)} is missing")
                ) from None
            version = later


def _read_index(folder: Path) -> tuple[bytes, tuple[int, int]]:
    """The text of model.json, and what tells it from a later one, even one of the same text."""
    path = folder / INDEX_FILE
    if not os.path.isdir(folder):
        raise InputError(f"{named(folder)} is not a model: there is no such folder")
    try:
        with _about(path), _file(path) as file:
            raw, status = file.read(LONGEST + 1), os.fstat(file.fileno())
    except FileNotFoundError:
        raise InputError(f"{named(folder)} is not a model: it has no {INDEX_FILE}") from None
    if len(raw) > LONGEST:
        raise damaged(f"{named(path)} is longer than any {INDEX_FILE}")
    return raw, (status.st_ino, status.st_mtime_ns)


def _file(path: Path) -> BinaryIO:
    if not stat.S_ISREG(os.stat(path).st_mode):  # to open a pipe would wait for ever
        raise damaged("it is not a file")
    return path.open("rb")


def _data_of(path: Path, index: Index, *, mmap: bool) -> Array:
    header = header_of(index.tensors)
    with _file(path) as file:
        length = os.fstat(file.fileno()).st_size
        if length != index.num_bytes:
            raise damaged(f"it has {length:,} bytes where {INDEX_FILE} says {index.num_bytes:,}")
        whole = _mapped(file) if mmap else np.fromfile(file, np.uint8, length)
    if len(whole) < length or whole[: len(header)].tobytes() != header:
        raise damaged(f"its header does not agree with {INDEX_FILE}")
    whole.flags.writeable = False
    return whole[len(header) :]


def _mapped(file: BinaryIO) -> Array:
    return np.frombuffer(memory_map.mmap(file.fileno(), 0, access=memory_map.ACCESS_READ), np.uint8)


def _check_data(index: Index, data: Array) -> None:
    sums, unsound = sums_and_unsound(data, index.tensors)
    if sums != index.sums:
        raise damaged("its bytes are not the ones that were saved: their checksum does not match")
    if unsound is not None:
        raise damaged(f"the array {shown(unsound)} holds what is not a number")


def _ids_of(index: Index, arrays: dict[str, Array]) -> Array:
    try:
        node_ids = unpack_ids(index.ids_kind, arrays)
    except ValueError as error:
        raise damaged(f"the node ids cannot be read: {error}") from error
    if len(node_ids) != index.ids_count:
        raise damaged(f"it holds {len(node_ids)} node ids where {INDEX_FILE} says {index.ids_count}")
    node_ids.flags.writeable = False
    return node_ids
