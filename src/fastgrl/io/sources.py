"""Where bytes come from: files, compressed files, standard input, open files."""

from __future__ import annotations

import bz2
import codecs
import difflib
import errno
import gzip
import io
import lzma
import os
import sys
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Protocol

from fastgrl.checks import shown
from fastgrl.errors import (
    ArgumentError,
    DtypeError,
    InputError,
    MissingExtraError,
    NotFiniteError,
    ShapeError,
    UnavailableError,
)

Progress = Callable[[int, int | None], None]


class Readable(Protocol):
    """The one thing asked of a stream."""

    def read(self, size: int, /) -> bytes: ...


@dataclass(frozen=True, eq=False)
class Source:
    """An open source: its name for messages, its bytes after decompression, and how they were packed."""

    name: str
    path: Path | None
    stream: Readable
    compression: str | None
    size: int | None
    position: Callable[[], int]

    def read(self, size: int) -> bytes:
        """The next bytes, fewer only at the end."""
        parts: list[bytes] = []
        # read() would go on reading a pipe inside C, where Ctrl-C waits for more data to come.
        some = getattr(self.stream, "read1", self.stream.read)
        with reading_errors(self.name, self.compression):
            while size > 0 and (part := some(size)):
                parts.append(part)
                size -= len(part)
        return parts[0] if len(parts) == 1 else b"".join(parts)


_MAGIC = {b"\x1f\x8b": "gzip", b"BZh": "bzip2", b"\x28\xb5\x2f\xfd": "zstd", b"\xfd7zXZ\x00": "xz"}
_LONGEST_MAGIC = 6
_DAMAGE = (EOFError, zlib.error, gzip.BadGzipFile, lzma.LZMAError)


@contextmanager
def opened(source: Any) -> Iterator[Source]:
    """Open a path, "-" for standard input, or a binary file object, and unpack it if it is compressed."""
    if hasattr(source, "read"):
        yield _unpacked(_buffered(source), str(getattr(source, "name", "the open file")), None)
        return
    if source == "-":
        yield _unpacked(_buffered(sys.stdin.buffer), "standard input", None)
        return
    path = existing_file(source)
    with _open(path) as file:
        yield _unpacked(file, str(path), path)


def existing_file(source: Any) -> Path:
    """`source` as the path of a file that is there; otherwise an error that says what is."""
    text = os.fspath(source) if isinstance(source, str | os.PathLike) else None
    if not isinstance(text, str):
        raise ArgumentError(f"a graph is read from a path, '-' or a binary file, not from {shown(source)}")
    if "://" in text:
        raise InputError(f"{shown(text, 80)} is an address, not a file; download it first")
    if "\0" in text:
        raise InputError(f"{shown(text)} is not a file name")
    path = Path(text)
    try:
        if path.is_dir():
            raise InputError(f"{_shown_path(path)} is a folder, not an edge list")
        path.stat()
    except FileNotFoundError:
        raise InputError(f"{_shown_path(path)}: no such file{_nearest(path)}") from None
    except OSError as error:
        raise InputError(f"{_shown_path(path)}: {_reason(error)}") from None
    return path


def _shown_path(path: Path) -> str:
    return shown(str(path), 200)[1:-1]


def _nearest(path: Path) -> str:
    try:
        names = [item.name for item in path.parent.iterdir()] if path.parent.is_dir() else []
    except OSError:
        return ""
    close = difflib.get_close_matches(path.name, names, 1)
    return f"; did you mean {shown(close[0])}?" if close else ""


def _open(path: Path) -> BinaryIO:
    try:
        return path.open("rb")
    except OSError as error:
        raise InputError(f"{_shown_path(path)}: {_reason(error)}") from None


def _reason(error: OSError) -> str:
    if error.errno == errno.ELOOP:
        return "is a link that leads back to itself"
    return (error.strerror or str(error)).lower()


def _buffered(stream: Any) -> Any:
    if isinstance(stream, io.TextIOBase):
        raise ArgumentError('an edge list is read from a binary file: open it with "rb"')
    return stream if hasattr(stream, "peek") else io.BufferedReader(_Raw(stream))


class _Raw(io.RawIOBase):
    """Any object with read(), for BufferedReader."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        data = self._stream.read(len(buffer))
        buffer[: len(data)] = data
        return len(data)


def _unpacked(file: Any, name: str, path: Path | None) -> Source:
    with reading_errors(name, None):
        head = file.peek(_LONGEST_MAGIC)
        size = path.stat().st_size if path is not None and path.is_file() else None
    compression = next((kind for magic, kind in _MAGIC.items() if head.startswith(magic)), None)
    stream = file if compression is None else _UNPACK[compression](file)
    seekable = path is not None and size is not None
    return Source(name, path, stream, compression, size, file.tell if seekable else lambda: 0)


@contextmanager
def reading_errors(name: str, compression: str | None) -> Iterator[None]:
    """Errors of the operating system and of damaged archives, with the file's name."""
    try:
        yield
    except _DAMAGE as error:
        raise InputError(f"{name}: the {compression} data are damaged or cut short ({error})") from None
    except OSError as error:
        if compression is not None and error.errno is None:
            raise InputError(f"{name}: the {compression} data are damaged ({error})") from None
        raise UnavailableError(f"{name}: cannot be read: {_reason(error)}") from None


@contextmanager
def naming(name: str) -> Iterator[None]:
    """Put the file's name before what its contents were refused for."""
    try:
        yield
    except (ArgumentError, DtypeError, NotFiniteError, ShapeError) as error:
        if name in str(error):
            raise
        raise InputError(f"{name}: {error}") from None


class _Zstd:
    """A zstd stream that notices when it is cut short."""

    def __init__(self, file: BinaryIO) -> None:
        try:
            import zstandard
        except ImportError:
            raise MissingExtraError("zstd files need zstandard: pip install 'fastgrl[io]'") from None
        self._file, self._new = file, zstandard.ZstdDecompressor().decompressobj
        self._damage: type[Exception] = zstandard.ZstdError
        self._frame: Any = self._new()
        self._left = b""
        self._begun = False

    def read(self, size: int, /) -> bytes:
        while len(self._left) < size and (packed := self._file.read(1 << 13)):
            self._left += self._decompress(packed)
        if not self._left and self._begun:
            raise EOFError("the last frame is not complete")
        part, self._left = self._left[:size], self._left[size:]
        return part

    def _decompress(self, packed: bytes) -> bytes:
        out = b""
        while packed:
            try:
                out += self._frame.decompress(packed)
            except self._damage as error:
                raise EOFError(str(error)) from None
            self._begun = not self._frame.eof
            packed = self._frame.unused_data if self._frame.eof else b""
            if self._frame.eof:
                self._frame = self._new()
        return out


_UNPACK: dict[str, Callable[[Any], Readable]] = {
    "gzip": lambda file: gzip.GzipFile(fileobj=file),
    "bzip2": bz2.BZ2File,
    "xz": lzma.LZMAFile,
    "zstd": _Zstd,
}


def decoded(source: Source, head: bytes, encoding: str | None) -> tuple[str, Callable[[int], bytes]]:
    """The encoding of a text and a function that reads it on as UTF-8, `head` (already read) first."""
    name, skip = _encoding_of(source.name, head, encoding)
    raw = _Rejoined(head[skip:], source)
    if name == "utf-8":
        return name, raw.read
    return name, _Transcoded(raw, source.name, name).read


def _encoding_of(name: str, head: bytes, encoding: str | None) -> tuple[str, int]:
    if encoding is not None:
        try:
            " ".encode(encoding)  # refuses codecs that are not for text
            known = codecs.lookup(encoding).name
        except (LookupError, TypeError, ValueError):
            raise ArgumentError(
                f"encoding {shown(encoding)} is not known; try utf-8, latin-1 or utf-16"
            ) from None
        return known, 3 if known == "utf-8" and head.startswith(codecs.BOM_UTF8) else 0
    if head.startswith(codecs.BOM_UTF8):
        return "utf-8", 3
    if head.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return "utf-16", 0
    for parity, guess in ((1, "utf-16-le"), (0, "utf-16-be")):
        zeros = head[parity:2000:2]
        if len(zeros) > 8 and zeros.count(0) > 0.9 * len(zeros) and head[1 - parity : 2000 : 2].count(0) == 0:
            raise InputError(f"{name} looks like UTF-16 without a byte order mark; pass encoding {guess}")
    return "utf-8", 0


class _Rejoined:
    def __init__(self, head: bytes, source: Source) -> None:
        self._head, self._source = head, source

    def read(self, size: int) -> bytes:
        if not self._head:
            return self._source.read(size)
        part, self._head = self._head[:size], self._head[size:]
        return part if len(part) == size else part + self._source.read(size - len(part))


class _Transcoded:
    def __init__(self, raw: _Rejoined, name: str, encoding: str) -> None:
        self._raw, self._name = raw, name
        self._decoder = codecs.getincrementaldecoder(encoding)()
        self._encoding = encoding

    def read(self, size: int) -> bytes:
        raw = self._raw.read(size)
        try:
            text = self._decoder.decode(raw, final=not raw)
        except UnicodeError as error:
            raise InputError(f"{self._name} is not {self._encoding} text: {error}") from None
        # A few bytes may be no whole character yet: an empty answer would mean the end.
        return text.encode() if text or not raw else self.read(size)
