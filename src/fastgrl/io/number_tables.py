"""Tables of numbers in text: all at once where nothing is odd, else cell by cell, with places of faults."""

from __future__ import annotations

import io
import re
from dataclasses import replace

import numpy as np

from fastgrl.checks import Array, shown
from fastgrl.errors import InputError
from fastgrl.io.layout import _decimal_of
from fastgrl.io.records import _NOT_FINITE, _NUMBER, Record
from fastgrl.io.tables import TextTable

# Ids, the lines that they stand on, and a row of numbers for each.
NumberRows = tuple[list[str], list[int], Array]


def numbers_by_id(table: TextTable, at: int) -> NumberRows:
    """The rows of a table with ids in column `at` (from 0) and finite numbers in all others."""
    return _quickly(table, at) or _carefully(table, at)


def _quickly(table: TextTable, at: int) -> NumberRows | None:
    """All rows by another library's reader; None where anything is odd, which is then looked at closely."""
    delimiter = table.layout.dialect.delimiter
    if at != 0 or not delimiter:
        return None
    table = replace(table, body=_without_quoted_ids(table.body, delimiter))
    if not table.is_plain:
        return None
    blanks = " \t".replace(delimiter, "")
    numbered = list(table.lines())
    lines, texts = [line for line, _ in numbered], [text for _, text in numbered]
    if any(text.count(delimiter) != table.columns - 1 for text in texts):
        return None
    ids = [text[: text.index(delimiter)].strip(blanks) for text in texts]
    if not ids or not all(ids):
        return None
    matrix = _by_arrow(table) if "\n" in table.body else None
    if matrix is None or len(matrix) != len(ids):
        matrix = _by_numpy(texts, delimiter)
    if matrix is None or len(matrix) != len(ids) or not np.isfinite(matrix).all():
        return None
    return [table.text(item, line, 0) for item, line in zip(ids, lines, strict=True)], lines, matrix


def _by_arrow(table: TextTable) -> Array | None:
    try:
        import pyarrow as pa
        from pyarrow import csv
    except ImportError:
        return None
    names = [str(i) for i in range(table.columns)]
    numbers = dict.fromkeys(names[1:], pa.float64())
    try:
        found = csv.read_csv(
            io.BytesIO(table.body.encode("latin-1")),
            read_options=csv.ReadOptions(column_names=names),
            parse_options=csv.ParseOptions(delimiter=table.layout.dialect.delimiter, quote_char=False),
            convert_options=csv.ConvertOptions(
                column_types={names[0]: pa.binary()} | numbers, include_columns=names[1:], null_values=[]
            ),
        )
    except pa.ArrowException:
        return None
    matrix = np.empty((found.num_rows, len(numbers)))
    for i, column in enumerate(found.columns):
        matrix[:, i] = column.to_numpy()
    return matrix


def _by_numpy(texts: list[str], delimiter: str) -> Array | None:
    # Without the ids: an array of texts would be as wide as the longest of them.
    rows = (text[text.index(delimiter) + 1 :] for text in texts)
    try:
        return np.loadtxt(rows, delimiter=delimiter, comments=None, ndmin=2)
    except ValueError:
        return None


def _without_quoted_ids(body: str, delimiter: str) -> str:
    """Rows whose ids are quoted without need, as some programs write all text."""
    if '"' not in body:
        return body
    sign = re.escape(delimiter)
    inner = rf'[^"\r\n \t{sign}]'
    return re.sub(rf'(?m)^"({inner}(?:[^"\r\n{sign}]*{inner})?)"(?={sign})', r"\1", body)


def _carefully(table: TextTable, at: int) -> NumberRows:
    decimal, others = _decimal(table, at), [i for i in range(table.columns) if i != at]
    ids: list[str] = []
    lines: list[int] = []
    rows: list[Array] = []
    for line, fields in table.rows():
        if not fields[at]:
            raise InputError(f"{table.name}, line {line}, {table.layout.column(at)}: the id is empty")
        ids.append(table.text(fields[at], line, at))
        lines.append(line)
        rows.append(np.array([_number(table, fields[i], line, i, decimal) for i in others]))
    return ids, lines, np.array(rows) if rows else np.empty((0, len(others)))


def _decimal(table: TextTable, at: int) -> str:
    delimiter = table.layout.dialect.delimiter
    sample = [Record(0, 0, line, fields) for (line, fields), _ in zip(table.rows(), range(100), strict=False)]
    found = (_decimal_of(sample, i, delimiter) for i in range(table.columns) if i != at)
    return "," if "," in found else "."


def _number(table: TextTable, field: str, line: int, column: int, decimal: str) -> float:
    text = field if decimal == "." else field.replace(".", "?").replace(",", ".")
    if _NUMBER.fullmatch(text) and abs(value := float(text)) != float("inf"):
        return value
    if not field:
        what = "the value is missing"
    else:
        fault = "finite" if _NUMBER.fullmatch(text) or _NOT_FINITE.fullmatch(text) else "a number"
        what = f"{shown(field.encode('latin-1').decode('utf-8', 'backslashreplace'))} is not {fault}"
    raise InputError(f"{table.name}, line {line}, {table.layout.column(column)}: {what}")
