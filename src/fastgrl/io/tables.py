"""Tables whose rows are nodes, by id: text, Parquet and NPZ files, each row with its place in the file."""

from __future__ import annotations

import io
import os
import re
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from fastgrl.checks import Array, shown
from fastgrl.errors import FastgrlError, InputError
from fastgrl.ids import IdIndex
from fastgrl.io.arrays import _BAD_ZIP, _refuse_bomb, array_from_npy
from fastgrl.io.layout import (
    Layout,
    Options,
    _column,
    _comment_of,
    _delimiter_of,
    _lines_before,
    _records,
    _refuse_first_record,
    _utf8,
    explanation,
)
from fastgrl.io.pairs import retyped
from fastgrl.io.reading import _HEAD, _format_of, _Job
from fastgrl.io.records import Dialect, Fault, RecordError, Tokenizer
from fastgrl.io.sources import Progress, decoded, naming, opened
from fastgrl.io.text import _inner_ending
from fastgrl.parallel import use_threads

ID_NAMES = ("node", "nodeid", "nodes", "id", "ids", "vertex", "vertexid", "name", "user", "userid", "key")
_BLOCK, _SAMPLE = 1 << 22, 1 << 18
_LINE_END = re.compile(r"\r\n|\n|\r")

# Whether a first line names the columns, from its fields and those of the lines that follow.
IsHeader = Callable[[tuple[str, ...], list[list[str]]], bool]
Place = Callable[[int], str]


@contextmanager
def opened_table(
    source: Any, *, encoding: str | None, n_threads: int | None, progress: Progress | None
) -> Iterator[tuple[str, _Job]]:
    """The format of a file, and the file itself, ready to be read."""
    if isinstance(source, str | os.PathLike) and os.path.isdir(source):
        raise InputError(f"{shown(os.fspath(source), 200)} is a folder, not a table")
    with use_threads(n_threads), opened(source) as file:
        head = file.read(_HEAD)
        job = _Job(file, head, Options(), True, encoding, None, progress)
        with naming(file.name):
            yield _format_of(file, head), job


def plain_name(name: str) -> str:
    """A column's name without case and signs.

    >>> plain_name("Node_ID")
    'nodeid'
    """
    return "".join(c for c in name.casefold() if c.isalnum())


@dataclass(frozen=True, eq=False)
class TextTable:
    """The rows of a text below its header; `body` is UTF-8 with one character per byte."""

    name: str
    body: str
    layout: Layout

    @property
    def columns(self) -> int:
        """How many each row has."""
        return self.layout.dialect.columns

    @property
    def is_plain(self) -> bool:
        """Whether rows are lines and fields what stands between delimiters: no quotes, no comments."""
        signs = f'"\0{self.layout.dialect.comment}'
        return bool(self.layout.dialect.delimiter) and not any(sign in self.body for sign in signs)

    def rows(self) -> Iterator[tuple[int, list[str]]]:
        """Every row with the number of its line; one with too few or too many columns is an error."""
        for line, fields in self._lines() if self.is_plain else self._records():
            if len(fields) != self.columns:
                raise self.fault(Fault.COLUMNS, line, len(fields), self.layout.dialect.delimiter.join(fields))
            yield line, fields

    def lines(self) -> Iterator[tuple[int, str]]:
        """Every line that is not blank, with its number."""
        for number, line in enumerate(_LINE_END.split(self.body), self.layout.first_line + 1):
            if line.strip(" \t"):
                yield number, line

    def _lines(self) -> Iterator[tuple[int, list[str]]]:
        delimiter = self.layout.dialect.delimiter
        blanks = " \t".replace(delimiter, "")
        for number, line in self.lines():
            yield number, [field.strip(blanks) for field in line.split(delimiter)]

    def _records(self) -> Iterator[tuple[int, list[str]]]:
        first = self.layout.first_line + 1
        try:
            for record in Tokenizer(self.body, self.layout.dialect):
                yield first + record.line, record.fields
        except RecordError as error:
            raise self.fault(error.fault, first + error.line, error.column, error.value) from None

    def text(self, field: str, line: int, column: int) -> str:
        """A field as text; one that is not UTF-8 is an error with its place."""
        try:
            return field if field.isascii() else field.encode("latin-1").decode("utf-8")
        except UnicodeDecodeError:
            raise self.fault(Fault.NOT_TEXT, line, column, field) from None

    def fault(self, fault: Fault, line: int, column: int, value: str) -> InputError:
        """What is wrong with a row."""
        shown_value = value.encode("latin-1").decode("utf-8", "backslashreplace")
        return InputError(f"{self.name}, line {line}{explanation(fault, self.layout, column, shown_value)}")


def text_table(job: _Job, is_header: IsHeader, *, what: str, header: bool | None = None) -> TextTable:
    """The table in a text: its delimiter is found out; the first line is a header if `is_header` says so."""
    name, text = job.source.name, _whole_text(job)
    sample = text if len(text) <= _SAMPLE else text[: text.rfind("\n", 0, _SAMPLE) + 1] or text
    comment, _ = _comment_of(sample, None)
    # A later line that begins with # is a row: whether it is a node is known soon enough.
    base = Dialect("", 0, comment=comment, ask_about_hash=False)
    ending = "" if job.source.path is None else _inner_ending(job.source.path.name)
    dialect = replace(base, delimiter=_delimiter_of(sample, base, None, ending, nodes=False))
    records = _records(sample, dialect)
    if not records:
        _refuse_first_record(name, sample, dialect)
        raise InputError(f"{name} is empty: it has no {what}")
    first = tuple(map(_utf8, records[0].fields))
    named = is_header(first, [record.fields for record in records[1:]]) if header is None else header
    begin = records[0].end if named else 0
    dialect = replace(dialect, columns=len(first))
    layout = Layout(dialect, first if named else None, begin, _lines_before(text, begin))
    return TextTable(name, text[begin:], layout)


def _whole_text(job: _Job) -> str:
    _, read = decoded(job.source, job.head, job.encoding)
    parts = []
    while part := read(_BLOCK):
        parts.append(part)
        if job.progress is not None:
            job.progress(job.source.position(), job.source.size)
    return b"".join(parts).decode("latin-1")


def column_number(
    name: str, option: str, wanted: str | int | None, names: tuple[str, ...] | None, columns: int
) -> int | None:
    """The number (from 0) of a column that was asked for by its name, or by its number from 1."""
    return None if wanted is None else _column(name, option, wanted, names, columns)


def id_column_of(names: tuple[str, ...] | None) -> int:
    """The first column whose name says that it holds ids, or the first of all.

    >>> id_column_of(("label", "Node ID")), id_column_of(None)
    (1, 0)
    """
    plain = [plain_name(name) for name in names or ()]
    return next((plain.index(name) for name in ID_NAMES if name in plain), 0)


def npz_arrays(name: str, data: bytes) -> dict[str, Array]:
    """The arrays of an NPZ file; nothing is unpickled, and no more is unpacked than its size allows."""
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            _refuse_bomb(name, archive, len(data))
            keys = [member.filename for member in archive.infolist() if member.filename.endswith(".npy")]
            return {
                key.removesuffix(".npy"): array_from_npy(f"{name}: {key[:-4]}", archive.read(key))
                for key in keys
            }
    except FastgrlError:
        raise
    except _BAD_ZIP as error:
        raise InputError(f"{name}: not a whole NPZ file: {shown(str(error), 80)[1:-1]}") from None


def first_of(arrays: dict[str, Array], *keys: str) -> Array | None:
    """The first of the arrays that is there."""
    return next((arrays[key] for key in keys if key in arrays), None)


@dataclass(frozen=True, eq=False)
class Finder:
    """Finds the rows of a table among nodes; how ids that are no nodes are met is said once, here."""

    node_ids: Array
    ignore_unknown: bool = False

    def is_node(self, text: str) -> bool:
        """Whether a text is the id of a node."""
        return bool(self._find(np.array([text], object))[0] >= 0)

    def _find(self, ids: Array) -> Array:
        return IdIndex.of(self.node_ids).find(retyped(ids, self.node_ids))

    def find(self, name: str, ids: Array, place: Place) -> tuple[Array, tuple[str, ...]]:
        """Node numbers of ids, −1 for those that are no nodes, if they may be left out."""
        numbers = self._find(ids)
        unknown = np.flatnonzero(numbers < 0)
        if not len(unknown):
            return numbers, ()
        first, where = shown(ids[unknown[0]]), place(int(unknown[0]))
        if len(unknown) == len(numbers):
            nodes = ", ".join(shown(item) for item in self.node_ids[:2])
            raise InputError(
                f"{name}: no id of it is a node: the first is {first} ({where}), and nodes are {nodes}, …"
            )
        count = f"{len(unknown)} of {len(numbers)} ids are no nodes"
        if self.ignore_unknown:
            return numbers, (f"{name}: {count} and were left out, the first is {first} ({where})",)
        raise InputError(
            f"{name}, {where}: no node has the id {first}; {count}. Nodes without edges are listed by "
            "--nodes FILE; --ignore-unknown leaves such rows out"
        )


def row_place(row: int) -> str:
    """Where a row of a file without lines stands."""
    return f"row {row + 1}"


def line_places(lines: list[int]) -> Place:
    """Where the rows of a text stand, by their lines."""
    return lambda row: f"line {lines[row]}"
