"""The graph: a frozen sparse pattern with optional weights, and the caller's own node ids."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp

from fastgrl import interchange
from fastgrl.assembly import Rows, assemble
from fastgrl.checks import Array, finite_array, integer, shown, size
from fastgrl.errors import ArgumentError, DtypeError, InputError, NotFiniteError, ShapeError, UnknownIdError
from fastgrl.ids import Encoded, IdIndex, as_ids, distinct_ids, encode, iterable_of_pairs
from fastgrl.kernels import CSR, checked_coordinates, csr_from_scipy
from fastgrl.lazy_ids import LazyIds
from fastgrl.spilling import is_mapped, release, row_ranges


@dataclass(frozen=True, eq=False, repr=False)
class Graph:
    """Nodes with ids of any hashable kind, and edges, weighted or not, directed or not.

    Build a graph with one of the `from_` methods or with `read_graph`; arrays given to the constructor are
    checked in full. A graph is never changed: its arrays are read-only. Nodes have ids, which are yours, and
    numbers 0 … n-1, which are their places in `node_ids`.

    Attributes:
        node_ids: the id of every node, in order.
        directed: whether an edge from u to v says nothing about one from v to u.
        repeats: how many of the edges given were repeats, which were merged.
        indptr: row pointers of the adjacency matrix, n+1 integers; row u has the columns
            `indices[indptr[u]:indptr[u + 1]]`.
        indices: columns, strictly increasing in each row. An undirected edge is stored in both directions, a
            self loop once.
        weights: one number for each of `indices`, finite and not negative; None: unweighted.

    >>> names = ["ann", "bob", "eve", "tom"]
    >>> graph = fg.Graph.from_edges([("ann", "bob"), ("bob", "eve")], nodes=names)
    >>> graph
    <Graph: 4 nodes, 2 edges>
    >>> graph.node_ids.tolist(), graph.degrees.tolist()
    (['ann', 'bob', 'eve', 'tom'], [1.0, 2.0, 1.0, 0.0])
    """

    indptr: Array
    indices: Array
    weights: Array | None
    node_ids: Array
    directed: bool = False
    repeats: int = 0

    def __post_init__(self) -> None:
        arrays = {name: np.asarray(getattr(self, name)) for name in ("indptr", "indices")}
        weights = None if self.weights is None else finite_array(self.weights, "weights", ndim=1)
        self.__dict__.update(arrays, weights=weights, node_ids=as_ids(self.node_ids, "node_ids"))
        _check_rows(self)
        self.__dict__.update(_read_only_fields(self.indptr, self.indices, self.weights, self.node_ids))

    @classmethod
    def _built(cls, rows: Rows, node_ids: Array, *, directed: bool, repeats: int) -> Graph:
        """A graph from rows that were built here and need no checks."""
        graph = object.__new__(cls)
        graph.__dict__.update(_read_only_fields(rows.indptr, rows.indices, rows.weights, node_ids))
        graph.__dict__.update(directed=directed, repeats=repeats)
        return graph

    @classmethod
    def _stored(cls, rows: Rows, ids: LazyIds, *, directed: bool, repeats: int, num_self_loops: int) -> Graph:
        """A graph on disk that was checked; its ids are sorted, and decoded when somebody asks."""
        graph = object.__new__(cls)
        graph.__dict__.update(indptr=rows.indptr, indices=rows.indices, weights=rows.weights, _lazy_ids=ids)
        graph.__dict__.update(directed=directed, repeats=repeats, num_self_loops=num_self_loops)
        return graph

    def _without_weights(self) -> Graph:
        graph = object.__new__(Graph)
        graph.__dict__.update(
            {k: v for k, v in self.__dict__.items() if k not in ("degrees", "csr")}, weights=None
        )
        return graph

    if not TYPE_CHECKING:  # a type checker would take any misspelt name for an attribute

        def __getattr__(self, name: str) -> Any:
            if name != "node_ids" or "_lazy_ids" not in self.__dict__:
                raise AttributeError(f"'Graph' object has no attribute {name!r}", name=name, obj=self)
            self.__dict__["node_ids"] = _read_only(self.__dict__["_lazy_ids"][:])
            return self.__dict__["node_ids"]

    @classmethod
    def from_edges(
        cls, edges: Iterable[Any], *, weights: Any = None, nodes: Any = None, directed: bool = False
    ) -> Graph:
        """Build a graph from pairs of ids: an (m, 2) array or an iterable of pairs (or triples with weights).

        Ids are of any hashable kind. Repeated edges are merged and their weights added; `repeats` counts
        them. `nodes` lists all nodes, isolated ones too, in the order wanted; without it nodes come in order
        of first appearance. `weights` has one number per edge. An edge runs both ways unless `directed`.

        >>> fg.Graph.from_edges([(1, 2), (2, 1), (2, 2)]).num_edges
        2
        """
        sources, targets, thirds = iterable_of_pairs(edges)
        if thirds is not None and weights is not None:
            raise ArgumentError("weights are given twice: as the third item of each edge and by weights=")
        listed = None if nodes is None else as_ids(nodes, "nodes")
        encoded = encode(sources, targets, nodes=listed)
        return cls._from_encoded(encoded, weights=thirds if weights is None else weights, directed=directed)

    @classmethod
    def from_codes(
        cls,
        sources: Any,
        targets: Any,
        *,
        weights: Any = None,
        num_nodes: int | None = None,
        node_ids: Any = None,
        directed: bool = False,
    ) -> Graph:
        """Build a graph from node numbers 0 … n-1; `node_ids[i]` is the id of node i, by default i itself.

        `sources` and `targets` are the two ends of every edge, `weights` their weights if they have any;
        `num_nodes` is n, by default one more than the largest number. An edge runs both ways unless
        `directed`.

        >>> fg.Graph.from_codes([0, 1], [1, 2], num_nodes=5).num_nodes
        5
        """
        u, v = _codes(sources, "sources"), _codes(targets, "targets")
        ids = None if node_ids is None else as_ids(node_ids, "node_ids")
        n = _count_nodes(u, v, num_nodes, ids)
        _check_numbers(u, v, n)
        if ids is not None:
            _one_id_each(ids, n)
        encoded = Encoded(u, v, np.arange(n) if ids is None else ids)
        return cls._from_encoded(encoded, weights=weights, directed=directed)

    @classmethod
    def _from_encoded(cls, edges: Encoded, *, weights: Any, directed: bool) -> Graph:
        """A graph from node numbers that were given here and need no checks."""
        u, v, n = edges.sources, edges.targets, len(edges.node_ids)
        w = None if weights is None else _checked_weights(weights, len(u))
        rows = assemble(u, v, w, num_nodes=n, mirrored=not directed)
        given = len(u) if directed else 2 * len(u) - int(np.count_nonzero(u == v))
        merged = given - int(rows.indptr[-1])
        loops = _loop_repeats(u, v, n) if merged and not directed else 0
        repeats = merged if directed else (merged - loops) // 2 + loops
        return cls._built(rows, edges.node_ids, directed=directed, repeats=repeats)

    @classmethod
    def from_scipy(cls, matrix: Any, *, node_ids: Any = None, directed: bool | None = None) -> Graph:
        """Build a graph from a square sparse (or dense) adjacency matrix, checked in full.

        Stored entries are edges; all equal to 1 means unweighted. Without `directed`, the graph is
        undirected exactly if the matrix is symmetric. `node_ids` are the ids of its rows, by default their
        numbers.

        >>> fg.Graph.from_scipy(scipy.sparse.csr_array([[0, 2], [2, 0]])).edge_weights()
        array([2.])
        """
        sparse: Any = matrix if sp.issparse(matrix) else sp.csr_array(finite_array(matrix, "matrix", ndim=2))
        if sparse.ndim != 2 or sparse.shape[0] != sparse.shape[1]:
            raise ShapeError(f"an adjacency matrix is square, got {size(sparse.shape)}")
        csr = csr_from_scipy(_with_repeats(sparse))
        n = csr.shape[0]
        ids = np.arange(n) if node_ids is None else _one_id_each(as_ids(node_ids, "node_ids"), n)
        weights = None if csr.values is None else csr.values.astype(np.float64)
        if weights is not None:
            _checked_weights(weights, len(weights))
        rows = np.repeat(np.arange(n), np.diff(csr.indptr))
        merged = assemble(rows, csr.indices, weights, num_nodes=n, mirrored=False)
        graph = cls._built(merged, ids, directed=True, repeats=csr.num_stored - int(merged.indptr[-1]))
        if directed or (directed is None and not _is_symmetric(graph)):
            return graph
        if _is_symmetric(graph):
            return cls._built(merged, ids, directed=False, repeats=graph.repeats)
        raise InputError(
            "the matrix is not symmetric, so it is not an undirected graph; pass directed=True, "
            "or matrix + matrix.T"
        )

    @classmethod
    def from_networkx(cls, graph: Any, *, weight: str | None = "weight") -> Graph:
        """Build a graph from a networkx graph, directed or not; parallel edges are merged.

        `weight` is the edge attribute that holds weights, None to ignore them.

        >>> import networkx
        >>> fg.Graph.from_networkx(networkx.path_graph(3))
        <Graph: 3 nodes, 2 edges>
        """
        return cls._from_library(interchange.from_networkx(graph, weight=weight))

    @classmethod
    def from_igraph(cls, graph: Any, *, weight: str | None = "weight") -> Graph:
        """Build a graph from an igraph graph; the vertex attribute `name`, if there is one, holds the ids.

        `weight` is the edge attribute that holds weights, None to ignore them.

        >>> import igraph
        >>> fg.Graph.from_igraph(igraph.Graph.Ring(4))
        <Graph: 4 nodes, 4 edges>
        """
        return cls._from_library(interchange.from_igraph(graph, weight=weight))

    @classmethod
    def from_pyg(cls, data: Any, *, node_ids: Any = None, directed: bool | None = None) -> Graph:
        """Build a graph from a PyTorch Geometric `Data` object, `graph = Graph.from_pyg(data)`.

        `node_ids` are ids for its nodes, by default their numbers. Without `directed` the graph is undirected
        exactly if every edge occurs in both directions.
        """
        return cls._from_library(interchange.from_pyg(data, node_ids=node_ids, directed=directed))

    @classmethod
    def from_frame(
        cls,
        frame: Any,
        *,
        source: str | None = None,
        target: str | None = None,
        weight: str | None = "weight",
        nodes: Any = None,
        directed: bool = False,
    ) -> Graph:
        """Build a graph from a table of edges.

        `frame` is a table of pandas, polars, pyarrow, duckdb, or what else narwhals knows.
        `source` and `target` name the two columns of ids; without them they are called source and target, src
        and dst, from and to, u and v, or come first. A column "weight" holds weights if it is there;
        `weight=None` ignores it. `nodes` lists all nodes, isolated ones too. An edge runs both ways unless
        `directed`. Needs the extra `io`.

        >>> import pandas
        >>> table = pandas.DataFrame({"from": ["ann", "bob"], "to": ["bob", "eve"]})
        >>> fg.Graph.from_frame(table)
        <Graph: 3 nodes, 2 edges>
        """
        edges = interchange.from_frame(frame, source=source, target=target, weight=weight)
        listed = None if nodes is None else as_ids(nodes, "nodes")
        encoded = encode(as_ids(edges.sources, "sources"), as_ids(edges.targets, "targets"), nodes=listed)
        return cls._from_encoded(encoded, weights=edges.weights, directed=directed)

    @classmethod
    def _from_library(cls, edges: interchange.Edges) -> Graph:
        nodes, codes = edges.numbered()
        return cls._from_encoded(
            Encoded(codes[:, 0], codes[:, 1], nodes), weights=edges.weights, directed=edges.directed
        )

    def __repr__(self) -> str:
        kind = "directed " * self.directed + "weighted " * (self.weights is not None)
        return f"<Graph: {self.num_nodes} nodes, {self.num_edges} {kind}edges>"

    @property
    def mapped(self) -> bool:
        """Whether the rows lie in a file, which is read as they are used, and not in memory."""
        return is_mapped(self.indices)

    @property
    def lazy_ids(self) -> LazyIds | None:
        """The ids of a graph on disk, in sorted order; None if they are in memory in whatever order."""
        return self.__dict__.get("_lazy_ids")

    @property
    def ids(self) -> Array | LazyIds:
        """`node_ids`, or what takes their place in a writer until somebody has decoded them all."""
        return self.node_ids if self.lazy_ids is None or "node_ids" in self.__dict__ else self.lazy_ids

    def ids_slice(self, begin: int, end: int) -> Array:
        """`node_ids[begin:end]`, of a graph on disk without decoding the others.

        >>> fg.Graph.from_edges([("ann", "bob"), ("bob", "eve")]).ids_slice(1, 3).tolist()
        ['bob', 'eve']
        """
        return self.ids[begin:end]

    @property
    def num_nodes(self) -> int:
        """How many nodes there are, isolated ones too."""
        return len(self.indptr) - 1

    @property
    def num_edges(self) -> int:
        """How many distinct edges there are, self loops included; an undirected edge counts once."""
        stored = int(self.indptr[-1])
        return stored if self.directed else (stored + self.num_self_loops) // 2

    @functools.cached_property
    def num_self_loops(self) -> int:
        """How many edges run from a node to itself."""
        return sum(int(np.count_nonzero(u == v)) for u, v in self._blocks())

    @functools.cached_property
    def degrees(self) -> Array:
        """Sum of the weights in each row of the adjacency matrix; a self loop counts once."""
        counts = np.diff(self.indptr)
        if self.weights is None:
            return _read_only(counts.astype(np.float64))
        sums = np.zeros(self.num_nodes)
        for first, last in row_ranges(self.indptr, 8):
            begin, end = int(self.indptr[first]), int(self.indptr[last])
            rows = np.repeat(np.arange(last - first), counts[first:last])
            sums[first:last] = np.bincount(rows, self.weights[begin:end], last - first)
            release(self.weights, begin, end)
        return _read_only(sums)

    @property
    def in_degrees(self) -> Array:
        """Sum of the weights in each column of the adjacency matrix."""
        if not self.directed:
            return self.degrees
        return np.bincount(self.indices, self.weights, self.num_nodes).astype(np.float64)

    @property
    def degree_span(self) -> tuple[float, float]:
        """The smallest degree above 0 (infinity if there is none), and the largest."""
        d = self.degrees
        return float(d[d > 0].min(initial=np.inf)), float(d.max(initial=0))

    @property
    def largest_weight(self) -> float:
        """The largest weight; 1 for an unweighted graph."""
        return 1.0 if self.weights is None else float(self.weights.max(initial=0))

    @functools.cached_property
    def csr(self) -> CSR:
        """The adjacency matrix as the sparse kernel reads it, sharing every array."""
        dtype = None if self.weights is None else self.weights.dtype
        csr = CSR(self.indptr, self.indices, self.weights, (self.num_nodes, self.num_nodes), dtype)
        return csr if self.directed else csr.known_symmetric()

    def _blocks(self) -> Iterator[tuple[Array, Array]]:
        for first, last in row_ranges(self.indptr, 8):
            counts = np.diff(self.indptr[first : last + 1])
            begin, end = int(self.indptr[first]), int(self.indptr[last])
            columns = self.indices[begin:end]
            yield np.repeat(np.arange(first, last, dtype=columns.dtype), counts), columns
            release(self.indices, begin, end)

    def edge_codes(self) -> Array:
        """Every edge once, as an (m, 2) array of node numbers in increasing order; u ≤ v if undirected.

        >>> fg.Graph.from_edges([("ann", "bob"), ("eve", "ann")]).edge_codes().tolist()
        [[0, 1], [0, 2]]
        """
        parts = [
            np.stack([u, v], axis=1) if self.directed else np.stack([u[u <= v], v[u <= v]], axis=1)
            for u, v in self._blocks()
        ]
        return np.concatenate([np.empty((0, 2), self.indices.dtype), *parts])

    def edge_weights(self) -> Array | None:
        """The weight of every edge of `edge_codes`, or None for an unweighted graph.

        >>> fg.Graph.from_edges([("ann", "bob", 2.5), ("eve", "ann", 1.0)]).edge_weights()
        array([2.5, 1. ])
        """
        if self.weights is None or self.directed:
            return self.weights
        kept = np.concatenate([np.empty(0, bool), *(u <= v for u, v in self._blocks())])
        return np.asarray(self.weights[kept])

    def has_edges(self, sources: Any, targets: Any) -> Array:
        """Whether each pair of node numbers, `sources[i]` and `targets[i]`, is an edge.

        >>> fg.Graph.from_codes([0], [1], num_nodes=3).has_edges([1, 1], [0, 2])
        array([ True, False])
        """
        u, v = _codes(sources, "sources"), _codes(targets, "targets")
        _check_numbers(u, v, self.num_nodes)
        low, high = self.indptr[u], self.indptr[u + 1]
        end = high.copy()
        while (open_ := low < high).any():  # a binary search in each row, all at once
            middle = (low + high) // 2
            below = open_ & (self.indices[np.minimum(middle, len(self.indices) - 1)] < v)
            low, high = np.where(below, middle + 1, low), np.where(open_ & ~below, middle, high)
        found: Array = low < end
        found[found] = self.indices[low[found]] == v[found]
        return found

    @functools.cached_property
    def _index(self) -> IdIndex:
        return IdIndex.of(self.node_ids)

    def index_of(self, ids: Any) -> Array:
        """Node numbers of the given ids, one or several; `UnknownIdError` names one that is not there.

        >>> fg.Graph.from_edges([("ann", "bob")]).index_of(["bob"])
        array([1])
        """
        one = isinstance(ids, str | bytes) or not np.iterable(ids)
        wanted = as_ids([ids] if one else ids, "ids")
        found = self._index.find(wanted)
        if (found < 0).any():
            raise UnknownIdError(self._unknown(wanted[int(np.argmax(found < 0))]))
        return found

    def _unknown(self, item: Any) -> str:
        other = self._index.find(as_ids([_other_type(item)], "ids"))[0]
        hint = f"; there is a node {shown(self.node_ids[other])}, of another type" if other >= 0 else ""
        return f"no node has the id {shown(item)} in this graph of {self.num_nodes} nodes{hint}"

    def with_edges(self, codes: Any, *, weights: Any = None) -> Graph:
        """The same nodes with other edges: `codes`, an (m, 2) array of node numbers, and their `weights`.

        >>> fg.Graph.from_edges([("ann", "bob"), ("bob", "eve")]).with_edges([[0, 2]])
        <Graph: 3 nodes, 1 edges>
        """
        pairs = np.asarray(codes)
        pairs = pairs.reshape(0, 2).astype(np.int64) if pairs.size == 0 else pairs
        if pairs.ndim != 2 or pairs.shape[1] != 2:
            raise ShapeError(f"edges must have two columns, got shape {pairs.shape}")
        u, v = _codes(pairs[:, 0], "edges"), _codes(pairs[:, 1], "edges")
        _check_numbers(u, v, self.num_nodes)
        return Graph._from_encoded(Encoded(u, v, self.node_ids), weights=weights, directed=self.directed)

    def to_scipy(self) -> sp.csr_array:
        """The adjacency matrix as a SciPy array (of its own; unweighted: ones of int8).

        >>> fg.Graph.from_edges([("ann", "bob")]).to_scipy().toarray().tolist()
        [[0, 1], [1, 0]]
        """
        n = self.num_nodes
        values = np.ones(len(self.indices), np.int8) if self.weights is None else self.weights.copy()
        return sp.csr_array((values, self.indices.copy(), self.indptr.copy()), shape=(n, n))

    def _to_interchange(self) -> interchange.Edges:
        codes = self.edge_codes()
        ids = self.node_ids
        return interchange.Edges(
            ids[codes[:, 0]], ids[codes[:, 1]], self.edge_weights(), ids, self.directed, codes
        )

    def to_networkx(self) -> Any:
        """A networkx Graph or DiGraph with the same ids; weights in the edge attribute `weight`.

        >>> fg.Graph.from_edges([("ann", "bob")]).to_networkx().edges
        EdgeView([('ann', 'bob')])
        """
        return interchange.to_networkx(self._to_interchange())

    def to_igraph(self) -> Any:
        """An igraph Graph with the ids in the vertex attribute `name`.

        >>> fg.Graph.from_edges([("ann", "bob")]).to_igraph().vs["name"]
        ['ann', 'bob']
        """
        return interchange.to_igraph(self._to_interchange())

    def to_pyg(self) -> Any:
        """A PyTorch Geometric `Data` object, `data = graph.to_pyg()`; undirected edges occur both ways."""
        return interchange.to_pyg(self._to_interchange())

    def to_frame(self, backend: str = "pandas") -> Any:
        """A table with columns source, target and, if weighted, weight: "pandas", "polars" or "pyarrow".

        `backend` names the library. Isolated nodes, and whether the graph is directed, do not fit into it.

        >>> fg.Graph.from_edges([("ann", "bob")]).to_frame("pyarrow").to_pylist()
        [{'source': 'ann', 'target': 'bob'}]
        """
        return interchange.to_frame(self._to_interchange(), backend=backend)


def _read_only(array: Array) -> Array:
    view = array.view()
    view.flags.writeable = False
    return view


def _read_only_fields(*arrays: Array | None) -> dict[str, Array | None]:
    views = [None if array is None else _read_only(array) for array in arrays]
    return dict(zip(("indptr", "indices", "weights", "node_ids"), views, strict=True))


def _codes(values: Any, name: str) -> Array:
    codes = np.asarray(values)
    if codes.ndim != 1:
        raise ShapeError(f"{name} must be one-dimensional, got shape {codes.shape}")
    if codes.size and codes.dtype.kind not in "ui":
        raise DtypeError(f"{name} must be node numbers, not {codes.dtype}; from_edges takes ids of any kind")
    if codes.dtype == np.uint64 and codes.size and codes.max() >= 2**63:
        raise ArgumentError(f"{name}: {codes.max()} is too large for a node number")
    return codes if codes.dtype in (np.int32, np.int64) else codes.astype(np.int64)


def _check_numbers(u: Array, v: Array, num_nodes: int) -> None:
    if len(u) != len(v):
        raise ShapeError(f"there are {len(u)} sources and {len(v)} targets")
    for codes in (u, v):
        if codes.size and (codes.min() < 0 or codes.max() >= num_nodes):
            bad = codes[(codes < 0) | (codes >= num_nodes)][0]
            raise ArgumentError(
                f"node number {bad} is outside 0..{num_nodes - 1}, a graph of {num_nodes} nodes"
            )


def _count_nodes(u: Array, v: Array, num_nodes: int | None, ids: Array | None) -> int:
    if num_nodes is not None:
        return integer("num_nodes", num_nodes, least=0)
    if ids is not None:
        return len(ids)
    return max(int(codes.max(initial=-1)) for codes in (u, v)) + 1


def _one_id_each(ids: Array, n: int) -> Array:
    if len(ids) != n:
        raise ShapeError(f"there are {len(ids)} node ids for {n} nodes")
    if len(distinct_ids(ids)) != n:
        raise ArgumentError("two nodes have the same id")
    return ids


def _checked_weights(weights: Any, count: int) -> Array:
    values = finite_array(weights, "weights", ndim=1).astype(np.float64, copy=False)
    if len(values) != count:
        raise ShapeError(f"there are {len(values)} weights for {count} edges")
    if values.size and values.min() < 0:
        raise ArgumentError(
            f"weights must not be negative, but edge {int(values.argmin()) + 1} has {values.min()}"
        )
    _check_sum(values)
    return values


def _check_sum(weights: Array) -> None:
    with np.errstate(over="ignore"):
        total = 2 * weights.sum()
    if not np.isfinite(total):
        raise NotFiniteError(
            "the weights add up to more than a 64-bit float holds; divide them by a constant"
        )


def _loop_repeats(u: Array, v: Array, n: int) -> int:
    loops = u[u == v]
    return len(loops) - int(np.count_nonzero(np.bincount(loops, minlength=n))) if len(loops) else 0


def _with_repeats(matrix: Any) -> Any:
    """Coordinates as rows with every entry, where SciPy would add up repeated ones and so make weights."""
    if matrix.format in ("csr", "csc"):
        return matrix
    entries = checked_coordinates(matrix)
    order = np.argsort(entries.row, kind="stable")
    indptr = np.zeros(matrix.shape[0] + 1, np.int64)
    np.cumsum(np.bincount(entries.row, minlength=matrix.shape[0]), out=indptr[1:])
    return sp.csr_array(
        (entries.data[order], entries.col[order].astype(np.int64), indptr), shape=matrix.shape
    )


def _is_symmetric(graph: Graph) -> bool:
    csr = CSR(graph.indptr, graph.indices, graph.weights, (graph.num_nodes,) * 2, None)
    return csr.transposed is csr


def _other_type(item: Any) -> Any:
    if isinstance(item, str):
        return int(item) if item.lstrip("-").isdecimal() and len(item) < 19 else item
    return str(item)


def _check_rows(graph: Graph) -> None:
    """Row pointers, range, order and symmetry, before compiled code follows them."""
    n = len(graph.indptr) - 1
    values = np.ones(len(graph.indices), np.int8) if graph.weights is None else graph.weights
    try:
        matrix = sp.csr_array((n, n), dtype=values.dtype)
        matrix.data, matrix.indices, matrix.indptr = values, graph.indices, graph.indptr
        csr = csr_from_scipy(matrix)
    except (ValueError, IndexError) as error:
        raise ShapeError(f"not a graph's rows: {error}") from None
    if len(graph.indices) != csr.num_stored or len(values) != csr.num_stored:
        raise ShapeError(f"indptr ends at {csr.num_stored}, but there are {len(graph.indices)} indices")
    if graph.weights is not None:
        _checked_weights(graph.weights, csr.num_stored)
    inner = np.ones(csr.num_stored, bool)
    inner[csr.indptr[:-1][np.diff(csr.indptr) > 0]] = False
    if (np.diff(csr.indices, prepend=-1)[inner] <= 0).any():
        raise ShapeError("every row must be strictly increasing; from_codes sorts and merges")
    _one_id_each(graph.node_ids, n)
    if not graph.directed and not _is_symmetric(graph):
        raise ShapeError("an undirected graph needs (v, u) for every (u, v), with the same weight")
