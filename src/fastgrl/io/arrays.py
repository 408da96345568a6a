"""Graphs in NPY and NPZ files. Nothing is unpickled, and every index is checked."""

from __future__ import annotations

import io
import zipfile
import zlib
from typing import Any

import numpy as np
import scipy.sparse as sp

from fastgrl.checks import Array, native, shown, size
from fastgrl.errors import ArgumentError, FastgrlError, InputError
from fastgrl.graph import Graph

# A few bytes can promise any number of rows, and memory would be asked for all of them.
_MOST_NODES, _NODES_PER_ENTRY = 10_000_000, 100
_MOST_UNPACKED, _UNPACKED_PER_BYTE = 1 << 26, 100
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
    exact = 2.0 ** (np.finfo(ids.dtype).nmant + 1)  # beyond it two integers are one float
    with np.errstate(invalid="ignore"):
        bad = ~np.isfinite(ids) | (ids != np.trunc(ids)) | (np.abs(ids) >= exact)
    if bad.any():
        row, column = np.argwhere(bad)[0]
        raise InputError(
            f"{name}, row {row + 1}, column {column + 1}: {ids[row, column]} is not an integer id"
        )
    return ids.astype(np.int64)


def graph_from_npz(name: str, file: Any, *, nodes: Any, directed: bool) -> tuple[Graph, tuple[str, ...]]:
    """A graph from a sparse matrix in an NPZ file, and what was odd about it."""
    try:
        with zipfile.ZipFile(file) as archive:
            _refuse_bomb(name, archive, len(file.getbuffer()))
            found = [member.filename for member in archive.infolist()]
            arrays = {
                key: array_from_npy(f"{name}: {key}", archive.read(f"{key}.npy"))
                for key in sorted(_KEYS & {member.removesuffix(".npy") for member in found})
            }
    except FastgrlError:
        raise
    except _BAD_ZIP as error:
        raise InputError(f"{name}: not a whole NPZ file: {error}") from None
    if "node_ids" in arrays and nodes is not None:
        raise ArgumentError(f"{name} holds node ids of its own; leave the list of nodes out")
    stored = arrays.get("directed", np.array(False))
    if stored.size != 1 or stored.dtype != bool:
        raise InputError(f"{name}: directed must be one boolean, got {stored.dtype} of shape {stored.shape}")
    return graph_from_matrix(
        name,
        _sparse(name, arrays, found),
        node_ids=arrays.get("node_ids", nodes),
        directed=directed or bool(stored.item()),
    )


def _refuse_bomb(name: str, archive: zipfile.ZipFile, packed: int) -> None:
    unpacked = sum(member.file_size for member in archive.infolist())
    if unpacked > _MOST_UNPACKED + _UNPACKED_PER_BYTE * packed:
        raise InputError(f"{name}: {packed} bytes would unpack to {unpacked}; that cannot be a graph")


_KEYS = {"format", "shape", "indptr", "indices", "data", "row", "col", "node_ids", "directed"}


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
    data = data.astype(np.float64) if data.dtype.kind == "f" and data.dtype.itemsize not in (4, 8) else data
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


def graph_from_matrix(
    name: str, matrix: Any, *, node_ids: Any, directed: bool
) -> tuple[Graph, tuple[str, ...]]:
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
        return graph, ()
    codes = graph.edge_codes()
    both = Graph.from_codes(codes[:, 0], codes[:, 1], weights=graph.weights, node_ids=graph.node_ids)
    return both, (_NOT_SYMMETRIC,)


_NOT_SYMMETRIC = (
    "the matrix is not symmetric: its entries were read as undirected edges, and weights of opposite entries "
    "added; --directed keeps directions"
)
