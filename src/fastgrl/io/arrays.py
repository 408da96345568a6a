"""Graphs in NPY, NPZ and MatrixMarket files. Nothing is unpickled, and every index is checked."""

from __future__ import annotations

import io
import re
import zipfile
import zlib
from typing import Any

import numpy as np
import scipy.sparse as sp

from fastgrl.checks import Array, native, shown, size
from fastgrl.errors import FastgrlError, InputError
from fastgrl.graph import Graph

# A few bytes can promise any number of rows, and memory would be asked for all of them.
_MOST_NODES, _NODES_PER_ENTRY = 10_000_000, 100
_BAD_ZIP = (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError, OSError, ValueError)


def array_from_npy(name: str, data: bytes) -> Array:
    """The array of an NPY file, if its header tells the truth and it holds no Python objects."""
    file = io.BytesIO(data)
    try:
        version = np.lib.format.read_magic(file)
        read_header = {
            (1, 0): np.lib.format.read_array_header_1_0,
            (2, 0): np.lib.format.read_array_header_2_0,
        }.get(version)
        if read_header is None:
            raise InputError(f"{name}: NPY format version {version} is not known")
        shape, fortran, dtype = read_header(file)
    except FastgrlError:
        raise
    except Exception as error:  # NumPy hands the header to Python's own parser, which can fail in many ways
        raise InputError(f"{name}: not a whole NPY file: {shown(str(error), 80)}") from None
    if dtype.hasobject:
        raise InputError(
            f"{name} holds Python objects, which would have to be unpickled; save plain numbers or text"
        )
    count = int(np.prod([int(n) for n in shape], dtype=object)) if shape else 1
    left = len(data) - file.tell()
    if dtype.itemsize == 0 or count * dtype.itemsize != left:
        raise InputError(f"{name}: the header promises {count * dtype.itemsize} bytes, but {left} follow")
    values = np.frombuffer(data, dtype, count, file.tell())
    return native(values.reshape(shape, order="F" if fortran else "C"))


def graph_from_npy(name: str, data: bytes, *, nodes: Any, directed: bool) -> Graph:
    """A graph from an (m, 2) array of integer ids, or (m, 3) with weights."""
    return _graph_from_pairs(name, array_from_npy(name, data), nodes, directed)


def _graph_from_pairs(name: str, table: Array, nodes: Any, directed: bool) -> Graph:
    if table.ndim != 2 or table.shape[1] not in (2, 3):
        raise InputError(
            f"{name} holds an array of {size(table.shape)}; edges have two columns, or three with weights"
        )
    if len(table) == 0:
        raise InputError(f"{name} is empty: it has no edges")
    weights = table[:, 2] if table.shape[1] == 3 else None
    return Graph.from_edges(
        _whole_numbers(name, table[:, :2]), weights=weights, nodes=nodes, directed=directed
    )


def _whole_numbers(name: str, ids: Array) -> Array:
    if ids.dtype.kind in "uiUS":
        return ids
    if ids.dtype.kind != "f":
        raise InputError(f"{name} holds {ids.dtype} values; ids must be integers or text")
    with np.errstate(invalid="ignore"):
        bad = ~np.isfinite(ids) | (ids != np.trunc(ids)) | (np.abs(ids) > 2.0**53)
    if bad.any():
        row, column = np.argwhere(bad)[0]
        raise InputError(
            f"{name}, row {row + 1}, column {column + 1}: {ids[row, column]} is not an integer id"
        )
    return ids.astype(np.int64)


def graph_from_npz(name: str, file: Any, *, nodes: Any, directed: bool) -> tuple[Graph, str | None]:
    """A graph from a sparse matrix in an NPZ file, and what was odd about it."""
    try:
        with zipfile.ZipFile(file) as archive:
            arrays = {
                member.filename.removesuffix(".npy"): array_from_npy(
                    f"{name}: {member.filename}", archive.read(member)
                )
                for member in archive.infolist()
                if member.filename.removesuffix(".npy") in _KEYS
            }
            found = [member.filename for member in archive.infolist()]
    except FastgrlError:
        raise
    except _BAD_ZIP as error:
        raise InputError(f"{name}: not a whole NPZ file: {error}") from None
    if "edges" in arrays:
        return _graph_from_pairs(name, arrays["edges"], nodes, directed), None
    ids = arrays.get("node_ids", nodes)
    directed = bool(arrays["directed"].any()) if "directed" in arrays else directed
    return graph_from_matrix(name, _sparse(name, arrays, found), node_ids=ids, directed=directed)


_KEYS = {"format", "shape", "indptr", "indices", "data", "row", "col", "edges", "node_ids", "directed"}


def _sparse(name: str, arrays: dict[str, Array], found: list[str]) -> Any:
    kind = _text(arrays.get("format", np.array("csr")))
    needed = ("row", "col", "shape") if kind == "coo" else ("indptr", "indices", "shape")
    missing = [key for key in needed if key not in arrays]
    if missing or kind not in ("csr", "csc", "coo"):
        what = f"has no {', '.join(missing)}" if missing else f"is a {shown(kind)} matrix"
        raise InputError(
            f"{name} {what}; expected a sparse matrix as scipy.sparse.save_npz writes it (csr, csc or coo). "
            f"It holds {shown(', '.join(found))}"
        )
    shape = arrays["shape"]
    if shape.shape != (2,) or shape.dtype.kind not in "ui" or (shape < 0).any() or (shape > 2**62).any():
        raise InputError(f"{name}: shape must be two integers, got {shown(shape.tolist())}")
    return _filled(name, kind, arrays, (int(shape[0]), int(shape[1])))


def _text(value: Array) -> str:
    item = value.item() if value.size == 1 else ""
    return item.decode("ascii", "replace") if isinstance(item, bytes) else str(item)


def _filled(name: str, kind: str, arrays: dict[str, Array], shape: tuple[int, int]) -> Any:
    """The matrix with its arrays as they are; `Graph.from_scipy` checks them before anything follows them."""
    index = arrays["row"] if kind == "coo" else arrays["indices"]
    data = arrays.get("data", np.ones(len(index) if index.ndim == 1 else 0, np.int8))
    parts = {"coo": ("row", "col")}.get(kind, ("indptr", "indices"))
    for key in parts:
        if arrays[key].ndim != 1 or arrays[key].dtype.kind not in "ui":
            raise InputError(
                f"{name}: {key} must be a row of integers, got {arrays[key].dtype} {arrays[key].shape}"
            )
    if data.ndim != 1 or data.dtype.kind not in "buif" or len(data) != len(index):
        raise InputError(
            f"{name}: data must be {len(index)} real numbers, got {data.dtype} of shape {data.shape}"
        )
    if kind == "coo":
        if len(arrays["row"]) != len(arrays["col"]):
            raise InputError(f"{name}: row and col have different lengths")
        for key, limit in zip(parts, shape, strict=True):
            if arrays[key].size and not 0 <= int(arrays[key].min()) <= int(arrays[key].max()) < limit:
                raise InputError(f"{name}: {key} has values outside 0..{limit - 1}")
        return sp.coo_array((data, (arrays["row"], arrays["col"])), shape=shape)
    matrix: Any = {"csr": sp.csr_array, "csc": sp.csc_array}[kind]((1, 1), dtype=data.dtype)
    matrix.data, matrix.indices, matrix.indptr = data, arrays["indices"], arrays["indptr"]
    matrix._shape = shape
    return matrix


def graph_from_matrix(name: str, matrix: Any, *, node_ids: Any, directed: bool) -> tuple[Graph, str | None]:
    """A graph from an adjacency matrix; if not symmetric, of undirected edges unless told otherwise."""
    if matrix.shape[0] != matrix.shape[1]:
        raise InputError(f"{name}: an adjacency matrix is square, this one is {size(matrix.shape)}")
    if matrix.shape[0] > _MOST_NODES + _NODES_PER_ENTRY * matrix.nnz:
        raise InputError(
            f"{name} promises {matrix.shape[0]} nodes for {matrix.nnz} entries; that cannot be meant"
        )
    try:
        graph = Graph.from_scipy(matrix, node_ids=node_ids, directed=True if directed else None)
    except FastgrlError as error:
        raise InputError(f"{name}: {error}") from None
    if graph.num_edges == 0:
        raise InputError(f"{name} is empty: it has no edges")
    if directed or not graph.directed:
        return graph, None
    codes = graph.edge_codes()
    both = Graph.from_codes(codes[:, 0], codes[:, 1], weights=graph.weights, node_ids=graph.node_ids)
    return (
        both,
        "the matrix is not symmetric: its entries were read as undirected edges; --directed keeps them",
    )


_BANNER = re.compile(
    rb"%%MatrixMarket\s+matrix\s+coordinate\s+(real|integer|pattern)\s+(general|symmetric)\s*$", re.IGNORECASE
)


def graph_from_matrix_market(
    name: str, data: bytes, *, nodes: Any, directed: bool
) -> tuple[Graph, str | None]:
    """A graph from a MatrixMarket coordinate file, whose counts are checked before memory is asked for."""
    banner, _, rest = data.partition(b"\n")
    if not _BANNER.match(banner.rstrip()):
        raise InputError(
            f"{name}, line 1: {shown(banner.decode('latin-1'), 80)} is no graph: expected a "
            "coordinate matrix, real, integer or pattern, general or symmetric"
        )
    line = 2
    while rest.lstrip(b" \t\r")[:1] in (b"%", b"\n"):
        rest = rest.partition(b"\n")[2]
        line += 1
    counts, _, body = rest.partition(b"\n")
    numbers = counts.split()
    if len(numbers) != 3 or not all(part.isdigit() and len(part) < 19 for part in numbers):
        raise InputError(
            f"{name}, line {line}: expected rows, columns and entries, got {shown(counts.decode('latin-1'))}"
        )
    lines = body.count(b"\n") + (not body.endswith(b"\n"))
    if int(numbers[2]) > lines:
        raise InputError(
            f"{name}, line {line}: {int(numbers[2])} entries are promised, but {lines} lines follow"
        )
    from scipy.io import mmread  # slow to import, and seldom needed

    try:
        matrix = mmread(io.BytesIO(data), spmatrix=False)
    except (ValueError, OverflowError, MemoryError, TypeError) as error:
        raise InputError(f"{name}: not a whole MatrixMarket file: {error}") from None
    return graph_from_matrix(name, matrix, node_ids=nodes, directed=directed)
