"""The grammar of an edge list in plain Python: the reference, and the reader where nothing was compiled.

A record ends at \\n, \\r\\n or \\r. Fields are separated by one character, or by runs of blanks and tabs.
A field that begins with a double quote ends at the next single one, may hold delimiters and line ends, and
writes a quote as two; blanks around it, and around any field, do not belong to it. Empty lines and comment
lines are skipped. Text is handled as latin-1, one character per byte, so that positions are those of the
file; ids are decoded as UTF-8 at the end.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

import numpy as np

from fastgrl.checks import Array


class Fault(IntEnum):
    """What can be wrong with a record; numbered as in the compiled scanner."""

    FINE = 0
    COLUMNS = 1
    EMPTY_ID = 2
    NUL = 3
    UNCLOSED = 4
    AFTER_QUOTE = 5
    NOT_TEXT = 6
    NOT_NUMBER = 7
    NOT_FINITE = 8
    NEGATIVE = 9
    HASH = 10
    TOO_MANY = 11
    TOO_LONG = 12


@dataclass(frozen=True)
class Dialect:
    """How the records of a text are written, and which columns hold what (from 0; weight −1: none)."""

    delimiter: str  # "" for runs of blanks and tabs
    columns: int
    source: int = 0
    target: int = 1
    weight: int = -1
    quoting: bool = True
    comment: str = ""  # lines that begin with it are skipped
    ask_about_hash: bool = True  # a line that begins with #, though comments are not known
    decimal: str = "."


class RecordError(Exception):
    """A record that cannot be read."""

    def __init__(self, fault: Fault, line: int, column: int, value: str) -> None:
        super().__init__(fault, line, column, value)
        self.fault, self.line, self.column, self.value = fault, line, column, value[:200]


@dataclass(frozen=True)
class Record:
    """One record: where it begins and ends, on which line (from 0), and its fields."""

    begin: int
    end: int
    line: int
    fields: list[str]


_BYTES_PER_ID = 150  # of a short text in a dictionary
_BLANKS = " \t"
_ANY_BLANKS = re.compile("[ \t]*")
_LINE_END = re.compile(r"\r\n|\n|\r")


class Tokenizer:
    """Cuts a text into records."""

    def __init__(self, text: str, dialect: Dialect) -> None:
        self.text, self.dialect = text, dialect
        self.at = self.line = self.comments = self.trimmed = 0
        blanks = _BLANKS.replace(dialect.delimiter, "") if dialect.delimiter else _BLANKS
        self._blanks = re.compile(f"[{blanks}]*")
        stops = re.escape(dialect.delimiter) if dialect.delimiter else _BLANKS
        self._plain = re.compile(f"[^{stops}\r\n\0]*")

    def __iter__(self) -> Iterator[Record]:
        while self.at < len(self.text):
            begin, line = self.at, self.line
            if self._skipped_line():
                continue
            if self.dialect.ask_about_hash and self.text[self._past_blanks(begin)] == "#":
                raise RecordError(Fault.HASH, line, 0, self.text[begin : self._line_end()])
            self.at = begin if self.dialect.delimiter else self._past_blanks(begin)
            fields = self._fields(line)
            if self.at < len(self.text) and self.text[self.at] == "\0":
                raise RecordError(Fault.NUL, line, len(fields) - 1, "")
            self._end_line()
            yield Record(begin, self.at, line, fields)

    def _fields(self, line: int) -> list[str]:
        fields = [self._field(0, line)]
        while self._next_field():
            fields.append(self._field(len(fields), line))
        return fields

    def _past_blanks(self, at: int) -> int:
        match = self._blanks.match(self.text, at)
        assert match is not None
        return match.end()

    def _line_end(self) -> int:
        match = _LINE_END.search(self.text, self.at)
        return match.start() if match else len(self.text)

    def _end_line(self) -> None:
        match = _LINE_END.match(self.text, self.at)
        if match:
            self.at, self.line = match.end(), self.line + 1

    def _skipped_line(self) -> bool:
        match = _ANY_BLANKS.match(self.text, self.at)
        assert match is not None
        empty = match.end() == len(self.text) or self.text[match.end()] in "\r\n"
        start = match.end() if empty else self._past_blanks(self.at)
        comment = not empty and self._is_comment(start)
        if empty or comment:
            self.at = start
            self.at = self._line_end()
            self._end_line()
            self.comments += comment
        return empty or comment

    def _is_comment(self, start: int) -> bool:
        if self.dialect.comment and self.text[start] == self.dialect.comment:
            return True
        if not self.dialect.ask_about_hash or self.text[start] != "#":
            return False
        after = self.text[start + 1 : start + 2]
        return after in ("", " ", "\t", "#") or not self._looks_like_data(start)

    def _looks_like_data(self, start: int) -> bool:
        kept = self.at, self.line, self.trimmed
        self.at = start
        try:
            return len(self._fields(self.line)) == self.dialect.columns
        except RecordError:
            return False
        finally:
            self.at, self.line, self.trimmed = kept

    def _field(self, column: int, line: int) -> str:
        before, self.at = self.at, self._past_blanks(self.at)
        if self.dialect.quoting and self.text[self.at : self.at + 1] == '"':
            return self._quoted(column, line)
        match = self._plain.match(self.text, self.at)
        assert match is not None
        found = match[0].rstrip(_BLANKS)
        if self.dialect.delimiter and found and (self.at != before or len(found) != len(match[0])):
            self.trimmed += 1
        self.at = match.end()
        return found

    def _quoted(self, column: int, line: int) -> str:
        opening = self.at
        at = opening + 1
        while True:
            closing = self.text.find('"', at)
            if closing < 0:
                nul = self.text.find("\0", opening)
                fault = Fault.UNCLOSED if nul < 0 else Fault.NUL
                raise RecordError(fault, self.line if nul < 0 else line, column, self.text[opening:])
            if self.text[closing + 1 : closing + 2] != '"':
                break
            at = closing + 2
        inside = self.text[opening + 1 : closing]
        if "\0" in inside:
            raise RecordError(Fault.NUL, line, column, inside)
        self.line += len(_LINE_END.findall(inside))
        self.at = self._past_blanks(closing + 1)
        separated = not self.dialect.delimiter and self.at > closing + 1
        stops = "\r\n\0" + self.dialect.delimiter
        if self.at < len(self.text) and not separated and self.text[self.at] not in stops:
            raise RecordError(Fault.AFTER_QUOTE, line, column, self.text[opening : self.at + 1])
        return inside.replace('""', '"')

    def _next_field(self) -> bool:
        if self.dialect.delimiter:
            more = self.text[self.at : self.at + 1] == self.dialect.delimiter
            self.at += more
            return more
        self.at = self._past_blanks(self.at)
        return self.at < len(self.text) and self.text[self.at] not in "\r\n\0"


_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)
_NOT_FINITE = re.compile(r"[+-]?(inf|infinity|nan)", re.IGNORECASE)


def parsed_number(text: str, decimal: str) -> tuple[float, Fault]:
    """A finite number that is not negative, or what is wrong with it."""
    if decimal != ".":
        text = text.replace(".", "?").replace(decimal, ".")
    if _NOT_FINITE.fullmatch(text):
        return 0.0, Fault.NOT_FINITE
    if not _NUMBER.fullmatch(text):
        return 0.0, Fault.NOT_NUMBER
    value = float(text)
    if value in (float("inf"), float("-inf")):
        return 0.0, Fault.NOT_FINITE
    return value, Fault.NEGATIVE if value < 0 else Fault.FINE


class PlainScanner:
    """The compiled scanner's work in plain Python, with the same results.

    Of a record with two faults each may name another one.
    """

    def __init__(self, **dialect: Any) -> None:
        self.dialect = Dialect(**dialect)
        self.ids: dict[str, int] = {}

    def scan(self, buffer: bytes, position: int) -> tuple[Any, ...]:  # noqa: ARG002  the compiled one's signature
        """Node numbers and weights of all records, with counts and the first fault."""
        sources: list[int] = []
        targets: list[int] = []
        weights: list[float] = []
        tokens = Tokenizer(buffer.decode("latin-1"), self.dialect)
        fault, line, column, value = Fault.FINE, 0, 0, ""
        try:
            for record in tokens:
                pair, weight = self._edge(record)
                sources.append(pair[0])
                targets.append(pair[1])
                weights += weight
        except RecordError as error:
            fault, line, column, value = error.fault, error.line, error.column, error.value
        arrays = np.array(sources, np.int32), np.array(targets, np.int32), np.array(weights, np.float64)
        counts = tokens.line, tokens.comments, tokens.trimmed
        return (*arrays, *counts, int(fault), line, column, value.encode("latin-1"))

    def _edge(self, record: Record) -> tuple[list[int], list[float]]:
        dialect, fields = self.dialect, record.fields
        # In the order of the columns, so that the first fault of a record is the leftmost.
        weight: list[float] = []
        texts: dict[int, str] = {}
        for column, field in enumerate(fields):
            if column in (dialect.source, dialect.target):
                texts[column] = self._text(field, column, record.line)
            elif column == dialect.weight:
                value, fault = parsed_number(field, dialect.decimal)
                if fault:
                    raise RecordError(fault, record.line, column, field)
                weight = [value]
        if len(fields) != dialect.columns:
            raise RecordError(Fault.COLUMNS, record.line, len(fields), dialect.delimiter.join(fields))
        ends = (dialect.source, dialect.target)
        return [self._number(texts[column], column, record.line) for column in ends], weight

    def _text(self, field: str, column: int, line: int) -> str:
        if not field:
            raise RecordError(Fault.EMPTY_ID, line, column, "")
        return field

    def _number(self, field: str, column: int, line: int) -> int:
        try:
            text = field if field.isascii() else field.encode("latin-1").decode("utf-8")
        except UnicodeDecodeError:
            raise RecordError(Fault.NOT_TEXT, line, column, field) from None
        return self.ids.setdefault(text, len(self.ids))

    def __len__(self) -> int:
        return len(self.ids)

    def memory(self) -> int:
        """Bytes that the ids take, about."""
        return _BYTES_PER_ID * len(self.ids)

    def last_record_end(self, buffer: bytes) -> int:
        """Where the last whole record of a text ends; 0 if there is none."""
        tokens = Tokenizer(buffer.decode("latin-1"), self.dialect)
        whole = 0
        while tokens.at < len(buffer):
            try:
                for _ in tokens:
                    whole = self._whole(buffer, tokens.at, whole)
                whole = self._whole(buffer, tokens.at, whole)
            except RecordError as error:
                if error.fault is Fault.UNCLOSED:
                    break
                tokens.at = tokens._line_end()
                tokens._end_line()
                whole = self._whole(buffer, tokens.at, whole)
        return whole

    @staticmethod
    def _whole(buffer: bytes, at: int, before: int) -> int:
        last = buffer[at - 1 : at]
        return at if last == b"\n" or (last == b"\r" and at < len(buffer)) else before


def merge_plain_ids(scanners: list[PlainScanner]) -> tuple[list[str], list[Array]]:
    """The ids of the one scanner that plain Python uses, and their numbers."""
    (scanner,) = scanners
    return list(scanner.ids), [np.arange(len(scanner.ids), dtype=np.int32)]


class PlainIdTable:
    """The compiled table of ids in plain Python, as far as an import needs it."""

    def __init__(self) -> None:
        self.ids: dict[str, int] = {}

    def __len__(self) -> int:
        return len(self.ids)

    def memory(self) -> int:
        """Bytes that the ids take, about."""
        return _BYTES_PER_ID * len(self.ids)

    def number(self, offsets: Array, data: Array) -> Array:
        """The numbers of texts that lie end to end as UTF-8; new ones are added."""
        raw, ends = data.tobytes(), offsets.tolist()
        return self._numbers([raw[a:b].decode() for a, b in itertools.pairwise(ends)])

    def absorb(self, scanner: PlainScanner) -> Array:
        """The numbers of a scanner's ids, which it gives away."""
        taken, scanner.ids = scanner.ids, {}
        return self._numbers(list(taken))

    def _numbers(self, texts: list[str]) -> Array:
        return np.array([self.ids.setdefault(text, len(self.ids)) for text in texts], np.int32)

    def order(self) -> Array:
        """The numbers of the ids in the order of their texts."""
        texts = list(self.ids)
        return np.array(sorted(range(len(texts)), key=texts.__getitem__), np.int32)

    def joined(self, codes: Array) -> tuple[Array, Array]:
        """The bytes of some ids end to end, and the length of each."""
        texts = list(self.ids)
        parts = [texts[code].encode() for code in codes.tolist()]
        return np.frombuffer(b"".join(parts), np.uint8), np.array([len(part) for part in parts], np.int64)

    def earliest(self, begin: int) -> int:
        """Of the ids from `begin` on the one that came first."""
        return begin

    def forget_places(self) -> None:
        """Nothing: a dictionary is both the ids and what finds them."""
