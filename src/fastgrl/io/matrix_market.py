"""Graphs in MatrixMarket coordinate files, whose entries are scanned like any edge list."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import scipy.sparse as sp

from fastgrl.checks import Array, shown
from fastgrl.errors import InputError
from fastgrl.graph import Graph
from fastgrl.io.arrays import graph_from_matrix
from fastgrl.io.layout import Layout
from fastgrl.io.records import Dialect
from fastgrl.io.sources import Source
from fastgrl.io.text import scan_body

_BANNER = re.compile(
    rb"%%MatrixMarket\s+matrix\s+coordinate\s+(real|integer|pattern)\s+(general|symmetric)\s*", re.IGNORECASE
)


def graph_from_matrix_market(
    source: Source, data: bytes, *, nodes: Any, directed: bool
) -> tuple[Graph, tuple[str, ...]]:
    """A graph from a coordinate matrix, general or symmetric, and what was odd about it."""
    field, symmetry, size, begin, line = _head(source.name, data)
    weight = -1 if field == "pattern" else 2
    dialect = Dialect(
        "", 2 if weight < 0 else 3, 0, 1, weight, quoting=False, comment="%", ask_about_hash=False
    )
    names = ("row", "column", "value")[: dialect.columns]
    ids, u, v, weights = scan_body(source, data[begin:], Layout(dialect, names, 0, line))
    if len(u) != size[2]:
        raise InputError(f"{source.name}, line {line}: {size[2]} entries are promised, but {len(u)} follow")
    if field == "integer" and weights is not None and (weights != np.trunc(weights)).any():
        raise InputError(
            f"{source.name}: the matrix is of integers, but {weights[weights % 1 > 0][0]} is none"
        )
    numbers = _numbers(source.name, ids, size[0])
    entries = (np.ones(len(u), np.int8) if weights is None else weights, (numbers[u], numbers[v]))
    matrix = sp.coo_array(entries, shape=size[:2])
    if symmetry == "general":
        return graph_from_matrix(source.name, matrix, node_ids=nodes, directed=directed)
    return _from_one_triangle(matrix, weights, nodes, directed), ()


def _from_one_triangle(matrix: Any, weights: Array | None, nodes: Any, directed: bool) -> Graph:
    u, v, n = matrix.row, matrix.col, matrix.shape[0]
    graph = Graph.from_codes(u, v, weights=weights, num_nodes=n, node_ids=nodes)
    return Graph.from_scipy(graph.to_scipy(), node_ids=nodes, directed=True) if directed else graph


def _head(name: str, data: bytes) -> tuple[str, str, tuple[int, int, int], int, int]:
    """Field, symmetry, rows × columns and entries, where the entries begin, and on which line (from 0)."""
    banner, _, _ = data.partition(b"\n")
    match = _BANNER.fullmatch(banner)
    if not match:
        raise InputError(
            f"{name}, line 1: {shown(banner.decode('latin-1'), 80)} is no graph: expected a "
            "coordinate matrix, real, integer or pattern, general or symmetric"
        )
    at, line = len(banner) + 1, 1
    while True:
        end = data.find(b"\n", at)
        row = data[at : end if end >= 0 else len(data)].strip()
        at, line = (end if end >= 0 else len(data)) + 1, line + 1
        if (row and not row.startswith(b"%")) or end < 0:
            break
    parts = row.split()
    if len(parts) != 3 or not all(part.isdigit() and len(part) < 19 for part in parts):
        raise InputError(
            f"{name}, line {line}: expected rows, columns, entries, got {shown(row.decode('latin-1'))}"
        )
    rows, columns, entries = map(int, parts)
    if rows != columns:
        raise InputError(f"{name}, line {line}: an adjacency matrix is square, this one is {rows}×{columns}")
    field, symmetry = (group.decode().lower() for group in match.groups())
    return field, symmetry, (rows, columns, entries), at, line


def _numbers(name: str, ids: list[str], rows: int) -> Array:
    wrong = [text for text in ids if not (text.isascii() and text.isdigit() and len(text) < 19)]
    wrong = wrong or [text for text in ids if not 1 <= int(text) <= rows]
    if wrong:
        raise InputError(f"{name}: {shown(wrong[0])} is not a row from 1 to {rows}")
    return np.array([int(text) - 1 for text in ids], np.int64)
