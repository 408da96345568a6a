"""What came out: one line of JSON per run, in a file that is only ever appended to."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from fastgrl.errors import InputError, UnavailableError
from fastgrl.experiments.locks import locked_byte

Record = dict[str, Any]
FILE = "records.jsonl"
_NEEDED = ("key", "task", "method", "dataset", "seed", "metric", "value", "seconds")
# The byte that is locked by whoever appends: beyond the file, for some systems let nobody read a locked one.
_APPENDING = 2**31 - 2


def read_records(path: Path) -> list[Record]:
    """Every record of a file, in the order in which they were written; none if there is no file.

    What a killed program left of a last line is no record, and of lines with one key (two files that were put
    together) the first is.
    """
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return []
    except OSError as error:
        raise UnavailableError(f"{path} could not be read: {error.strerror}") from error
    whole, rest = _cut(data)
    found: dict[str, Record] = {}
    for number, line in _lines(whole + rest):
        record = _parsed(line, path, number)
        found.setdefault(record["key"], record)
    return list(found.values())


def append_record(path: Path, record: Mapping[str, Any]) -> bool:
    """Write a record, on disk when this returns; False if its key is there already, and then nothing is done.

    Several programs may append to one file at once.
    """
    line = json.dumps(dict(record), ensure_ascii=False, allow_nan=False, sort_keys=True).encode() + b"\n"
    with _opened(path) as file, locked_byte(file, _APPENDING):
        whole, rest = _cut(_contents(file))
        if str(record["key"]) in _keys(whole + rest):
            return False
        os.ftruncate(file, len(whole) + len(rest))
        _write(file, (b"\n" if rest else b"") + line)
        os.fsync(file)
    return True


def _keys(data: bytes) -> Iterator[str]:
    """The keys of all records; a line that is none is for readers to complain of, and costs no record."""
    for _, line in _lines(data):
        with suppress(ValueError, TypeError, KeyError):
            yield json.loads(line)["key"]


@contextmanager
def _opened(path: Path) -> Iterator[int]:
    try:
        file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | getattr(os, "O_BINARY", 0), 0o666)
    except OSError as error:
        raise UnavailableError(f"{path} could not be written: {error.strerror}") from error
    try:
        yield file
    except OSError as error:
        raise UnavailableError(f"{path} could not be written: {error.strerror}") from error
    finally:
        os.close(file)


def _contents(file: int) -> bytes:
    """All of an open file. Opening it anew and closing that would give the lock away."""
    os.lseek(file, 0, os.SEEK_SET)
    return b"".join(iter(lambda: os.read(file, 1 << 20), b""))


def _write(file: int, data: bytes) -> None:
    left = memoryview(data)
    while left:
        left = left[os.write(file, left) :]


def _cut(data: bytes) -> tuple[bytes, bytes]:
    """The lines that were ended, and a last one that was not if it is whole all the same."""
    end = data.rfind(b"\n") + 1
    whole, rest = data[:end], data[end:]
    try:
        json.loads(rest)
    except ValueError:
        rest = b""
    return whole, rest


def _lines(data: bytes) -> Iterator[tuple[int, bytes]]:
    return ((number, line) for number, line in enumerate(data.split(b"\n"), 1) if line.strip())


def _parsed(line: bytes, path: Path, number: int) -> Record:
    try:
        record = json.loads(line)
    except ValueError:
        raise InputError(f"{path}, line {number} is not JSON; take the line away and run again") from None
    missing = [name for name in _NEEDED if not isinstance(record, dict) or name not in record]
    if missing:
        raise InputError(f"{path}, line {number} is no record: it has no {missing[0]!r}; take the line away")
    if not isinstance(record["key"], str):
        raise InputError(f"{path}, line {number} is no record: its key is no text; take the line away")
    found: Record = record
    return found
