"""Labels of nodes from files: two columns, id and label, in any order of rows.

A label is the text of its cell, exactly: 3 and 03 are two classes, and so is a class called NaN. A blank cell
says nothing. In arrays of integers (NPZ), where no cell can be blank, −1 says nothing.
"""

from __future__ import annotations

import io
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from fastgrl.checks import Array, shown
from fastgrl.errors import InputError
from fastgrl.graph import Graph
from fastgrl.ids import as_ids, objects
from fastgrl.io import parquet
from fastgrl.io.reading import _Job
from fastgrl.io.sources import Progress
from fastgrl.io.tables import (
    ID_NAMES,
    Finder,
    Place,
    TextTable,
    column_number,
    first_of,
    id_column_of,
    line_places,
    npz_arrays,
    opened_table,
    plain_name,
    row_place,
    text_table,
)

_LABEL_NAMES = (
    *("label", "labels", "class", "classes", "y", "target", "category", "topic", "subject", "community"),
    *("group", "type", "kind", "field", "predicted"),
)
# Words that other programs write where nothing is known.
_ODD_WORDS = frozenset(("nan", "null", "none", "na", "n/a", "-1", "?"))


@dataclass(frozen=True, eq=False)
class Labels:
    """Labels as a file gives them: node numbers and the text of each label, a node once unless multi-label.

    `listed` are all nodes that the file names, also those whose cell is blank, and `place` says where a node
    is named first.
    """

    name: str
    num_nodes: int
    nodes: Array
    texts: Array
    listed: Array
    place: Place
    multilabel: bool = False
    notices: tuple[str, ...] = ()

    @property
    def classes(self) -> list[str]:
        """The names of the classes, sorted."""
        return sorted(set(self.texts.tolist()))

    @property
    def count(self) -> int:
        """How many nodes have a label."""
        return len(np.unique(self.nodes))

    @property
    def y(self) -> Array:
        """What a classifier learns from: a text or None for each node; multi-label: n×C, −1 where unknown.

        >>> graph = fg.Graph.from_edges([("a", "b"), ("b", "c")])
        >>> read_labels(io.BytesIO(b"node,label\\nb,red\\na,blue\\n"), graph).y.tolist()
        ['blue', 'red', None]
        """
        if not self.multilabel:
            y = np.full(self.num_nodes, None, object)
            y[self.nodes] = self.texts
            return y
        number = {name: i for i, name in enumerate(self.classes)}
        table = np.full((self.num_nodes, len(number)), -1, np.int64)
        table[self.nodes] = 0
        table[self.nodes, [number[text] for text in self.texts.tolist()]] = 1
        return table


@dataclass(frozen=True, eq=False)
class _Cells:
    """A file's rows: ids, and the text of each label, None where there is none."""

    name: str
    ids: Array
    texts: list[str | None]
    place: Place
    notices: tuple[str, ...] = ()


def read_labels(
    source: Any,
    graph: Graph,
    *,
    id_column: str | int | None = None,
    label_column: str | int | None = None,
    multilabel: bool = False,
    ignore_unknown: bool = False,
    encoding: str | None = None,
    n_threads: int | None = None,
    progress: Progress | None = None,
) -> Labels:
    """Labels of the nodes of `graph` from text (plain or packed), Parquet or NPZ (arrays ids and labels).

    Columns are found by their names, or are the first two; with one column alone every label is blank. An id
    that is not a node is an error with its line unless `ignore_unknown`; so are two labels of one node unless
    `multilabel`.
    """
    finder = Finder(graph.node_ids, ignore_unknown)
    columns = (id_column, label_column)
    with opened_table(source, encoding=encoding, n_threads=n_threads, progress=progress) as (kind, job):
        if kind not in _READERS:
            raise InputError(
                f"{job.source.name}: labels are read from text, Parquet or NPZ, not from {kind.upper()}"
            )
        cells = _READERS[kind](job, finder, columns)
        numbers, notes = finder.find(cells.name, cells.ids, cells.place)
    return _merged(cells, numbers, multilabel, notes, graph.num_nodes)


def _from_text(job: _Job, finder: Finder, columns: tuple[Any, Any]) -> _Cells:
    # A column that is asked for by name says that there is a header.
    named = any(isinstance(c, str) and not c.isdigit() for c in columns)
    table = text_table(
        job,
        lambda first, rest: _is_header(first, rest, finder),
        what="labels",
        header=True if named else None,
    )
    at, label = _columns_of(table.name, table.layout.names, table.columns, columns)
    if (fields := _plain_fields(table)) is not None and "" not in (quick := fields[at :: table.columns]):
        said = [text or None for text in fields[label :: table.columns]] if label is not None else []
        first = table.layout.first_line + 1
        places = line_places(list(range(first, first + len(quick))))
        return _Cells(table.name, objects(quick), said or [None] * len(quick), places)
    ids: list[str] = []
    texts: list[str | None] = []
    lines: list[int] = []
    for line, fields in table.rows():
        if not fields[at]:
            raise InputError(f"{table.name}, line {line}, {table.layout.column(at)}: the id is empty")
        ids.append(table.text(fields[at], line, at))
        texts.append(_label(table, fields, line, label))
        lines.append(line)
    if not ids:
        raise InputError(f"{table.name} is empty: it has no labels, only a header")
    return _Cells(table.name, objects(ids), texts, line_places(lines))


def _plain_fields(table: TextTable) -> list[str] | None:
    """All fields in a row, where lines are as simple as can be: ASCII, no blank, equally many in each.

    None where they are not: those are read with more care, and more slowly.
    """
    body, columns = table.body.removesuffix("\n"), table.columns
    delimiter = table.layout.dialect.delimiter
    blanks = "\r \t".replace(delimiter or "\0", "")
    if len(delimiter) != 1 or columns < 2 or not body.isascii() or not table.is_plain:
        return None
    if any(blank in body for blank in blanks):
        return None
    signs = np.frombuffer(f"{body}\n".encode("ascii"), np.uint8)
    signs = signs[(signs == ord(delimiter)) | (signs == ord("\n"))]
    if len(signs) % columns or not (signs.reshape(-1, columns) == _line_signs(delimiter, columns)).all():
        return None
    return body.replace("\n", delimiter).split(delimiter)


def _line_signs(delimiter: str, columns: int) -> Array:
    return np.array([ord(delimiter)] * (columns - 1) + [ord("\n")], np.uint8)


def _label(table: TextTable, fields: list[str], line: int, label: int | None) -> str | None:
    return None if label is None or not fields[label] else table.text(fields[label], line, label)


def _is_header(first: tuple[str, ...], rest: list[list[str]], finder: Finder) -> bool:
    """No label is lost to a guess: a line that begins with a node is never a header."""
    at = id_column_of(first)
    if finder.is_node(first[at]) or finder.is_node(first[0]):
        return False
    names = [plain_name(name) for name in first]
    if names[0] in (*ID_NAMES, ""):
        return True
    numbers = bool(rest) and all(_whole(fields[0]) for fields in rest) and not _whole(first[0])
    again = {field for fields in rest for field in fields[1:]}
    # Where all others begin with nodes and are labelled alike, the one that does neither names the columns.
    alone = len(rest) > len(again) and all(finder.is_node(fields[0]) for fields in rest)
    return again.isdisjoint(first[1:]) and (
        numbers or alone or any(name in (*_LABEL_NAMES, *ID_NAMES) for name in names[1:])
    )


def _whole(text: str) -> bool:
    return text.removeprefix("-").isdecimal()


def _columns_of(
    name: str, names: tuple[str, ...] | None, columns: int, wanted: tuple[Any, Any]
) -> tuple[int, int | None]:
    if columns == 1:
        return 0, None
    at = column_number(name, "--label-columns", wanted[0], names, columns)
    label = column_number(name, "--label-columns", wanted[1], names, columns)
    at = (0 if id_column_of(names) == label else id_column_of(names)) if at is None else at
    if label is None:
        label = _label_column(name, names, columns, at)
    if at == label:
        raise InputError(f"{name}: ids and labels cannot both be in column {at + 1}")
    return at, label


def _label_column(name: str, names: tuple[str, ...] | None, columns: int, at: int) -> int:
    if columns == 2:
        return 1 - at
    plain = [plain_name(n) for n in names or ()]
    if found := [plain.index(word) for word in _LABEL_NAMES if word in plain and plain.index(word) != at]:
        return found[0]
    listed = f" ({', '.join(shown(n, 20) for n in (names or ())[:5])}…)" if names else ""
    raise InputError(
        f"{name} has {columns} columns{listed}; say which hold ids and labels with --label-columns ID,LABEL"
    )


def _from_parquet(job: _Job, finder: Finder, columns: tuple[Any, Any]) -> _Cells:  # noqa: ARG001
    name = job.source.name
    table = parquet._opened(name, io.BytesIO(job.all_bytes()))
    names = tuple(table.schema_arrow.names)
    if not names or table.metadata.num_rows == 0:
        raise InputError(f"{name} is empty: it has no labels")
    at, label = _columns_of(name, names, len(names), columns)
    found = parquet._ids(name, names[at], parquet._column(name, table, names[at]))
    ids = as_ids(found if isinstance(found, np.ndarray) else found.to_pylist(), name)
    texts: list[str | None] = [None] * len(ids)
    if label is not None:
        texts = _parquet_texts(name, names[label], table)
    return _Cells(name, ids, texts, row_place)


def _parquet_texts(name: str, column: str, table: Any) -> list[str | None]:
    import pyarrow as pa

    try:
        values = table.read([column]).column(0)
        values.validate(full=True)
        items = values.to_pylist()
    except (pa.ArrowException, OSError, ValueError, NotImplementedError) as error:
        raise InputError(f"{name}, column {shown(column)}: damaged: {shown(str(error), 120)[1:-1]}") from None
    return [_as_text(name, row, item) for row, item in enumerate(items)]


def _as_text(name: str, row: int, item: Any) -> str | None:
    """A value as it would stand in a text; nothing, NaN and an empty text are no label."""
    if item is None or item == "" or item != item:
        return None
    if isinstance(item, bool):
        return str(item).lower()
    if isinstance(item, float) and item.is_integer():
        return str(int(item))  # what is left of whole numbers beside a gap
    if isinstance(item, str | int | float):
        return str(item)
    raise InputError(
        f"{name}, {row_place(row)}: {shown(item)} is not a label; expected text or whole numbers"
    )


def _from_npz(job: _Job, finder: Finder, columns: tuple[Any, Any]) -> _Cells:  # noqa: ARG001
    name = job.source.name
    arrays = npz_arrays(name, job.all_bytes())
    ids, values = (
        first_of(arrays, "ids", "node_ids", "node"),
        first_of(arrays, "labels", "y", "label", "class"),
    )
    notices: tuple[str, ...] = ()
    if values is None:
        raise InputError(
            f"{name} has no array called labels or y; it holds {', '.join(shown(key) for key in arrays)}"
        )
    if ids is None:
        ids = finder.node_ids
        notices = (f"{name} has no array of ids: its labels were taken to be in the order of the nodes",)
    if values.ndim != 1 or values.dtype.kind not in "uifUb" or len(values) != len(ids):
        raise InputError(
            f"{name}: labels must be {len(ids)} texts or whole numbers, one for each "
            f"{'node' if notices else 'id'}, got {values.dtype} of shape {values.shape}"
        )
    whole = values.dtype.kind == "i"
    items = [None if whole and item == -1 else item for item in values.tolist()]
    texts = [_as_text(name, row, item) for row, item in enumerate(items)]
    return _Cells(name, as_ids(ids, name), texts, row_place, notices)


_READERS: Any = {"text": _from_text, "parquet": _from_parquet, "npz": _from_npz}


def _merged(
    cells: _Cells, numbers: Array, multilabel: bool, notes: tuple[str, ...], num_nodes: int
) -> Labels:
    """Every label once; of two that differ one would be lost, so they are refused unless both are wanted."""
    times = np.bincount(numbers[numbers >= 0], minlength=num_nodes)
    if times.max(initial=0) <= 1:
        told = np.fromiter((text is not None for text in cells.texts), bool, len(cells.texts))
        rows, repeats = np.flatnonzero((numbers >= 0) & told), 0
    else:
        rows, repeats = _first_of_each(cells, numbers, multilabel)
    texts = objects([cells.texts[row] for row in rows.tolist()])
    merged = (f"{cells.name}: {repeats} labels that are given twice were merged",) * bool(repeats)
    notices = (*cells.notices, *notes, *merged, *_odd_words(cells.name, texts))
    listed = np.flatnonzero(times)

    def place(node: int) -> str:
        return cells.place(int(np.argmax(numbers == node)))

    return Labels(cells.name, num_nodes, numbers[rows], texts, listed, place, multilabel, notices)


def _first_of_each(cells: _Cells, numbers: Array, multilabel: bool) -> tuple[Array, int]:
    """The rows where each label stands first, and how many others repeat one."""
    kept: dict[Any, int] = {}
    repeats = 0
    for row, (number, text) in enumerate(zip(numbers.tolist(), cells.texts, strict=True)):
        if number < 0 or text is None:
            continue
        first = kept.setdefault((number, text) if multilabel else number, row)
        if cells.texts[first] != text:
            raise InputError(
                f"{cells.name}, {cells.place(row)}: the node {shown(cells.ids[row])} has the label "
                f"{shown(text)} here and {shown(cells.texts[first])} in {cells.place(first)}; "
                "--multi-label takes both"
            )
        repeats += first != row
    return np.fromiter(kept.values(), np.int64, len(kept)), repeats


def with_validation(labels: Labels, held: Labels, graph: Graph) -> tuple[Labels, Array]:
    """Labels together with those of a file of nodes to choose settings by, and the numbers of its nodes.

    The second file may hold labels of its own; a node without one takes it from the first.
    """
    known = dict(zip(labels.nodes.tolist(), labels.texts.tolist(), strict=True))
    own = dict(zip(held.nodes.tolist(), held.texts.tolist(), strict=True))
    for node in held.listed.tolist():
        where = f"{held.name}, {held.place(node)}: the node {shown(graph.node_ids[node])}"
        if node not in known and node not in own:
            raise InputError(f"{where} has no label, neither here nor in {labels.name}")
        if not labels.multilabel and known.get(node, own.get(node)) != own.get(node, known.get(node)):
            raise InputError(
                f"{where} has the label {shown(own[node])} here and {shown(known[node])} in {labels.name}"
            )
    pairs = dict.fromkeys(
        (node, text)
        for part in (labels, held)
        for node, text in zip(part.nodes.tolist(), part.texts.tolist(), strict=True)
    )
    nodes, texts = (list(column) for column in zip(*pairs, strict=True))
    both = replace(labels, nodes=np.array(nodes, np.int64), texts=objects(texts))
    return replace(both, notices=(*labels.notices, *held.notices)), held.listed


def _odd_words(name: str, texts: Array) -> list[str]:
    given = texts.tolist()
    odd = sorted(text for text in set(given) if text.casefold() in _ODD_WORDS)
    return [
        f"{name}: {shown(word)} was taken as the name of a class ({given.count(word)} nodes); "
        "leave a cell blank where no label is known"
        for word in odd[:3]
    ]
