"""What an edge list looks like, found out from its first lines: delimiter, header, comments, columns.

Nothing is guessed about ids. A first line is a header only if it names its columns, or if it alone is not
a number where all others are; anything else would lose an edge.
"""

from __future__ import annotations

import difflib
import itertools
import re
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from fastgrl.checks import shown
from fastgrl.errors import ArgumentError, InputError
from fastgrl.io.records import Dialect, Fault, Record, RecordError, Tokenizer, parsed_number

DELIMITERS = {"tab": "\t", "comma": ",", "semicolon": ";", "pipe": "|", "space": "", "whitespace": ""}
_NAMES = {"\t": "tab", ",": "comma", ";": "semicolon", "|": "pipe", "": "blanks"}
_PAIRS = [
    *("source target", "src dst", "src dest", "source destination", "origin destination", "from to"),
    *("head tail", "start end", "node1 node2", "id1 id2", "sender receiver", "follower followee"),
    *("subject object", "left right", "row col", "row column", "user1 user2", "person1 person2"),
    *("nodea nodeb", "u v", "i j", "vertex1 vertex2", "source sink", "parent child"),
]
_NODE_NAMES = {"id", "ids", "node", "nodes", "nodeid", "name", "label", "vertex", "user", "userid", "key"}
_WEIGHTS = {"weight", "weights", "w", "wt", "edgeweight", "strength", "similarity"}
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)
LONGEST_RECORD = 1 << 26
_ENOUGH, _ENOUGH_TO_COMPARE = 400, 100  # records to learn the layout from, and to compare delimiters by
_LATEST_WEIGHT = 1e8  # whole numbers above it are more likely times in seconds


@dataclass(frozen=True)
class Options:
    """What the caller said about the layout; None is for us to find out."""

    delimiter: str | None = None
    header: bool | None = None
    columns: Any = None
    weight: Any = None
    unweighted: bool = False
    comment: str | None = None

    def __post_init__(self) -> None:
        for name in ("delimiter", "comment"):
            value = getattr(self, name)
            if value is not None and not isinstance(value, str):
                raise ArgumentError(f"{name} must be text, got {shown(value)}")

    def refuse(self, kind: str, *names: str) -> None:
        """Say that options were given which a format cannot honour."""
        given = [name for name in names if getattr(self, name) is not None]
        if given:
            raise ArgumentError(f"{' and '.join(given)} cannot be chosen for {kind}; leave it out")


@dataclass(frozen=True)
class Layout:
    """How to read a text, where its data begin, and what to tell the user about it."""

    dialect: Dialect
    names: tuple[str, ...] | None
    begin: int
    first_line: int
    notices: tuple[str, ...] = ()

    def column(self, number: int) -> str:
        """A column as messages name it."""
        named = f" ({shown(self.names[number])})" if self.names and number < len(self.names) else ""
        return f"column {number + 1}{named}"

    def described(self) -> dict[str, str]:
        """What was understood, for people."""
        dialect = self.dialect
        header = (
            "no" if self.names is None else "yes: " + ", ".join(shown(n, 20)[1:-1] for n in self.names[:6])
        )
        weights = "none" if dialect.weight < 0 else self.column(dialect.weight)
        decimal = " with decimal commas" if dialect.decimal == "," and dialect.weight >= 0 else ""
        return {
            "delimiter": _NAMES.get(dialect.delimiter, shown(dialect.delimiter)),
            "header": header,
            "source": self.column(dialect.source),
            "target": self.column(dialect.target),
            "weights": weights + decimal,
            "comments": f"lines that begin with {dialect.comment}" if dialect.comment else "none",
        }


def layout_of(name: str, sample: str, options: Options, *, ending: str = "", nodes: bool = False) -> Layout:
    """Find out the layout of a text from a `sample` of whole records (latin-1); `nodes`: a list of ids."""
    comment, ask = _comment_of(sample, options.comment)
    base = Dialect(delimiter="", columns=0, comment=comment, ask_about_hash=ask)
    delimiter = _delimiter_of(sample, base, options.delimiter, ending, nodes)
    records = _records(sample, replace(base, delimiter=delimiter))
    if not records:
        _refuse_first_record(name, sample, replace(base, delimiter=delimiter))
        hint = (
            f"; every line begins with {comment!r}: if those are ids, pass --comment none" if comment else ""
        )
        raise InputError(f"{name} is empty: it has no {'ids' if nodes else 'edges'}{hint}")
    columns = len(records[0].fields)
    if columns < 2 and not nodes:
        if "\0" in sample:
            raise InputError(f"{name} is not a text file: it holds NUL bytes")
        raise InputError(
            f"{name} has one column; an edge list needs two, source and target. "
            "If the columns are separated by something else, name it with --delimiter"
        )
    names = _header_of(records, options, nodes)
    body = records[names is not None :]
    source, target, weight = (
        (0, 0, -1) if nodes else _columns_of(name, names, columns, options, body, delimiter)
    )
    _refuse_arrows(name, body, target, columns)
    decimal = _decimal_of(body, weight, delimiter)
    dialect = Dialect(delimiter, columns, source, target, weight, True, comment, ask, decimal)
    begin, line = (records[0].end, _lines_before(sample, records[0].end)) if names else (0, 0)
    unused = () if nodes else unused_columns(names, columns, {source, target, weight}, options)
    return Layout(dialect, names, begin, line, unused)


def _lines_before(sample: str, end: int) -> int:
    return len(re.findall(r"\r\n|\n|\r", sample[:end]))


def _comment_of(sample: str, comment: str | None) -> tuple[str, bool]:
    if comment is not None:
        if comment.lower() in ("", "none"):
            return "", False
        if len(comment) != 1 or not comment.isascii() or comment.isalnum() or comment in '"\n\r\t\0 ':
            raise ArgumentError(f"comment must be one sign such as '#', or 'none', got {shown(comment)}")
        return comment, comment != "#"
    first = sample.lstrip()[:1]
    return (first, first != "#") if first and first in "#%" else ("", True)


def _records(sample: str, dialect: Dialect, *, most: int = _ENOUGH) -> list[Record]:
    """The records up to the first that cannot be cut: the scanner will say what is wrong with it."""
    found: list[Record] = []
    with suppress(RecordError):
        found.extend(itertools.islice(Tokenizer(sample, dialect), most))
    return found


def _refuse_first_record(name: str, sample: str, dialect: Dialect) -> None:
    try:
        next(iter(Tokenizer(sample, dialect)), None)
    except RecordError as error:
        value = error.value.encode("latin-1").decode("utf-8", "backslashreplace")
        what = explanation(error.fault, Layout(dialect, None, 0, 0), error.column, value)
        raise InputError(f"{name}, line {error.line + 1}{what}") from None


def _delimiter_of(sample: str, base: Dialect, wanted: str | None, ending: str, nodes: bool) -> str:
    if wanted is not None:
        delimiter = DELIMITERS.get(wanted.lower(), " ".join(wanted.split(" ")) if wanted != " " else "")
        if wanted == "\\t":
            delimiter = "\t"
        wrong = delimiter in ('"', "\n", "\r", "\0") or not delimiter.isascii() or delimiter.isalnum()
        if len(delimiter) > 1 or wrong or delimiter == base.comment != "":
            raise ArgumentError(
                f"delimiter must be one ASCII sign or one of {', '.join(DELIMITERS)}, got {shown(wanted)}"
            )
        return delimiter
    preferred = {".tsv": "\t", ".csv": ","}.get(ending, "\t")
    scores = {d: _consistency(sample, replace(base, delimiter=d)) for d in _candidates(nodes)}
    best = max(scores.values())
    if best[0] == 0:
        return preferred if nodes else ","
    good = [d for d, score in scores.items() if score[0] >= best[0] - 1e-9]
    return _preferred(good, scores, preferred)


def _candidates(nodes: bool) -> str | list[str]:
    return ["\t", ",", ";", "|"] if nodes else ["\t", ",", ";", "|", ""]


def _preferred(good: list[str], scores: dict[str, tuple[float, int]], preferred: str) -> str:
    if "\t" in good:
        return "\t"
    if "," in good and ";" in good:  # "a;b;0,5" has more columns by semicolons, "a,b;c" by commas
        return max((",", ";"), key=lambda d: (scores[d][1], d == preferred))
    return next(d for d in (",", ";", "|", "") if d in good)


def _consistency(sample: str, dialect: Dialect) -> tuple[float, int]:
    """The most common number of columns, if at least two, and the share of records that have it first."""
    plain = replace(dialect, ask_about_hash=False)
    counts = Counter(len(record.fields) for record in _records(sample, plain, most=_ENOUGH_TO_COMPARE))
    if not counts:
        return 0.0, 0
    columns, often = max(counts.items(), key=lambda item: (item[1], item[0]))
    return (often / counts.total(), columns) if columns >= 2 else (0.0, 0)


def _header_of(records: list[Record], options: Options, nodes: bool) -> tuple[str, ...] | None:
    first = tuple(_utf8(field) for field in records[0].fields)
    if options.header is None:
        is_header = _names_a_node(first, records[1:]) if nodes else _is_header(first, records[1:])
    else:
        is_header = options.header
    return first if is_header else None


def _utf8(field: str) -> str:
    return field.encode("latin-1").decode("utf-8", "replace")


def _plain(name: str) -> str:
    """A column name without case, signs, and the words that say no more than that it is an id."""
    bare = "".join(c for c in name.casefold() if c.isalnum())
    stem = re.sub(r"^(node|user|vertex)(?=source|target|from|to)|(node)?id$|node$|label$", "", bare)
    return stem or bare


def _is_header(first: tuple[str, ...], rest: list[Record]) -> bool:
    names = [_plain(name) for name in first]
    named = next((set(pair.split()) for pair in _PAIRS if set(pair.split()) <= set(names)), None)
    if {"source", "target"} <= set(first) or (named and not rest):  # what we write, and a table without rows
        return True
    if not rest or any(_NUMBER.fullmatch(field) for field in first):
        return False
    same = [record.fields for record in rest if len(record.fields) == len(first)]
    numeric = [bool(same) and all(_NUMBER.fullmatch(fields[i]) for fields in same) for i in range(len(first))]
    if all(numeric[:2]) or any(numeric[2:]) or any(name in _WEIGHTS for name in names[2:]):
        return True
    return bool(named or _sounds_like_ids(first[:2])) and not _may_be_ids(first, rest)


def _may_be_ids(first: tuple[str, ...], rest: list[Record]) -> bool:
    """Whether names are used, or could be, as ids: `node1,node2` above `node3,node4` is an edge."""
    ids = {_utf8(field) for record in rest for field in record.fields[:2]}
    shapes = {re.sub(r"\d+", "0", name) for name in ids}
    alike = any(re.sub(r"\d+", "0", name) in shapes for name in first[:2] if any(map(str.isdigit, name)))
    letters = all(len(name) == 1 for name in first[:2]) and all(len(name) == 1 for name in ids)
    return alike or letters or not ids.isdisjoint(first[:2])


_ID_WORDS = re.compile(
    r"(^|[^a-z])(source|target|src|dst|from|to|node|id|user|item|author|head|tail|name|ids?)([^a-z]|$)"
)


def _sounds_like_ids(names: tuple[str, ...]) -> bool:
    words = [re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).lower() for name in names]
    return all(_ID_WORDS.search(word) and not any(c.isdigit() for c in word) for word in words)


def _names_a_node(first: tuple[str, ...], rest: list[Record]) -> bool:
    return first[0].casefold().replace("_", "").replace(" ", "") in _NODE_NAMES and not any(
        _utf8(record.fields[0]) == first[0] for record in rest
    )


def choose_columns(name: str, names: tuple[str, ...], options: Options) -> tuple[int, int, int]:
    """Numbers (from 0) of the source, target and weight columns of a table with named columns."""
    return _columns_of(name, names, len(names), options, [], "")


def _columns_of(
    name: str,
    names: tuple[str, ...] | None,
    columns: int,
    options: Options,
    body: list[Record],
    delimiter: str,
) -> tuple[int, int, int]:
    source, target = _named_pair(names)
    weight = None if options.weight is None else _column(name, "weight", options.weight, names, columns)
    if options.columns is not None:
        given = options.columns
        parts = given.split(",") if isinstance(given, str) else list(given) if np.iterable(given) else []
        if len(parts) not in (2, 3):
            raise ArgumentError(
                f"columns must be SOURCE,TARGET or SOURCE,TARGET,WEIGHT, got {shown(options.columns)}"
            )
        source, target, *third = (_column(name, "columns", part, names, columns) for part in parts)
        weight = third[0] if third else weight
    if source == target:
        raise ArgumentError(f"{name}: source and target are the same column, {source + 1}")
    if options.unweighted:
        return source, target, -1
    if weight is None:
        weight = _sniffed_weight(names, columns, body, {source, target}, delimiter)
    elif weight in (source, target):
        raise ArgumentError(f"{name}: column {weight + 1} cannot be both an id and a weight")
    return source, target, weight


def _named_pair(names: tuple[str, ...] | None) -> tuple[int, int]:
    plain = [_plain(name) for name in names or ()]
    for pair in _PAIRS:
        source, target = pair.split()
        if source in plain and target in plain:
            return plain.index(source), plain.index(target)
    return 0, 1


def _column(name: str, option: str, wanted: Any, names: tuple[str, ...] | None, columns: int) -> int:
    text = str(wanted).strip() if not isinstance(wanted, str) or wanted.strip() else str(wanted)
    if names is not None and text in names:
        return names.index(text)
    if text.isascii() and text.isdigit() and 1 <= int(text) <= columns:
        return int(text) - 1
    if names is None:
        raise ArgumentError(
            f"{name} has no header, so {option} must be a number from 1 to {columns}, got {shown(text)} "
            "(--header says that the first line names the columns)"
        )
    close = difflib.get_close_matches(text, names, 1)
    hint = f"did you mean {shown(close[0])}? " if close else ""
    raise ArgumentError(
        f"{name} has no column {shown(text)}; {hint}its columns are {', '.join(shown(n) for n in names[:10])}"
    )


def _sniffed_weight(
    names: tuple[str, ...] | None, columns: int, body: list[Record], ids: set[int], delimiter: str
) -> int:
    if names is not None:
        return next((i for i, n in enumerate(names) if i not in ids and _plain(n) in _WEIGHTS), -1)
    if columns != 3 or len(ids | {2}) != 3:
        return -1
    texts = [record.fields[2] for record in body if len(record.fields) == 3]
    decimal = _decimal_of(body, 2, delimiter)
    values = [parsed_number(text, decimal) for text in texts]
    if not values or any(fault for _, fault in values):
        return -1
    times = all(value > _LATEST_WEIGHT and value == int(value) for value, _ in values)
    return -1 if times else 2


def unused_columns(
    names: tuple[str, ...] | None, columns: int, used: set[int], options: Options
) -> tuple[str, ...]:
    """A note about columns that hold something else."""
    spare = [i for i in range(columns) if i not in used]
    if not spare or options.unweighted or options.columns is not None or options.weight is not None:
        return ()
    listed = ", ".join(shown(names[i], 20) if names else str(i + 1) for i in spare[:5])
    more = " and others" if len(spare) > 5 else ""
    what = "columns were" if len(spare) > 1 else "column was"
    return (f"{what} not used: {listed}{more} (--weight COLUMN takes one as weights)",)


def _refuse_arrows(name: str, body: list[Record], target: int, columns: int) -> None:
    """`a -> b` has its target in the third column."""
    targets = {record.fields[target] for record in body if len(record.fields) == columns}
    if targets and targets <= {"->", "=>", "<->", "--", "-->"}:
        raise InputError(
            f"{name}: column {target + 1} holds nothing but {shown(min(targets))}; "
            "name the columns of source and target, for example --columns 1,3"
        )


def _decimal_of(body: list[Record], weight: int, delimiter: str) -> str:
    if weight < 0 or delimiter == ",":
        return "."
    values = [record.fields[weight] for record in body if len(record.fields) > weight]
    commas = [value for value in values if "," in value]
    one_comma = all(_NUMBER.fullmatch(value.replace(",", ".")) for value in commas)
    # Three digits after every comma could as well be thousands.
    clear = any(len(value.rpartition(",")[2]) != 3 for value in commas)
    return "," if commas and one_comma and clear and not any("." in value for value in values) else "."


def explanation(fault: Fault, layout: Layout, column: int, value: str) -> str:
    """What is wrong with a record, to follow "FILE, line N"."""
    place = f", {layout.column(column)}"
    columns = layout.dialect.columns
    if fault is Fault.COLUMNS:
        return (
            f": {column} column{'s' * (column != 1)}, where the first line has {columns}: {shown(value)}; "
            "ids that contain the delimiter must be quoted"
        )
    texts = {
        Fault.EMPTY_ID: "the id is empty",
        Fault.NUL: "a NUL byte, so this is not a text file or a damaged one",
        Fault.UNCLOSED: f"a quote is never closed: {shown(value)}",
        Fault.AFTER_QUOTE: f"more follows the closing quote: {shown(value)}; write quotes inside as two",
        Fault.NOT_TEXT: f"not UTF-8: {shown(value)}; name the encoding, for example --encoding latin-1",
        Fault.NOT_NUMBER: f"the weight {shown(value)} is not a number",
        Fault.NOT_FINITE: f"the weight {shown(value)} is not finite",
        Fault.NEGATIVE: f"the weight {shown(value)} is negative; leave weights out with --unweighted",
        Fault.TOO_MANY: "there are more than 2³¹ ids",
    }
    if fault is Fault.HASH:
        return (
            f" begins with #: {shown(value)}. If it is a comment, pass --comment '#'; "
            "if it is an id, --comment none"
        )
    if fault is Fault.TOO_LONG:
        return f": a record of more than {LONGEST_RECORD >> 20} MB; is a quote never closed?"
    return f"{place}: {texts[fault]}"
