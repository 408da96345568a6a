"""Other libraries' graphs as plain arrays, and back.

Each function imports its library when it is called. Ids are never retyped, an undirected edge is given once,
and weights are checked here, where the edge can still be named as its owner knows it.
"""

from __future__ import annotations

import numbers
import warnings
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from fastgrl.checks import Array, shown
from fastgrl.errors import ArgumentError, InputError, ShapeError
from fastgrl.frames import Edges as Edges
from fastgrl.frames import from_frame as from_frame
from fastgrl.frames import library, sound, type_name
from fastgrl.frames import to_frame as to_frame
from fastgrl.ids import as_ids, distinct_ids


def from_networkx(graph: Any, *, weight: str | None = "weight") -> Edges:
    """The nodes and edges of a networkx graph; parallel edges are given as often as they occur.

    The edge attribute `weight` holds the weights. If no edge has the attribute "weight", the graph is
    unweighted; any other name must be there. `weight=None` ignores weights.
    """
    if not isinstance(graph, library("networkx").Graph):
        raise ArgumentError(f"from_networkx takes a networkx graph, got {type_name(graph)}")
    number = {node: position for position, node in enumerate(graph)}
    rows = list(graph.edges(data=True))
    ends = (number[node] for u, v, _ in rows for node in (u, v))
    weights = None
    if weight is not None:
        values = [attributes.get(weight) for _, _, attributes in rows]
        weights = _attribute(values, weight, lambda i: _edge(rows[i][0], rows[i][1]))
    codes = np.fromiter(ends, np.int64, 2 * len(rows)).reshape(-1, 2)
    return Edges.between(
        as_ids(list(number), "nodes"), codes, weights=weights, directed=bool(graph.is_directed())
    )


def to_networkx(edges: Edges) -> Any:
    """A networkx Graph or DiGraph; weights are in the edge attribute "weight"."""
    networkx = library("networkx")
    graph = networkx.DiGraph() if edges.directed else networkx.Graph()
    nodes, _ = edges.numbered()
    graph.add_nodes_from(nodes.tolist())
    pairs = edges.sources.tolist(), edges.targets.tolist()
    if edges.weights is None:
        graph.add_edges_from(zip(*pairs, strict=True))
    else:
        graph.add_weighted_edges_from(zip(*pairs, edges.weights.tolist(), strict=True))
    return graph


def from_igraph(graph: Any, *, weight: str | None = "weight") -> Edges:
    """The vertices and edges of an igraph graph.

    The vertex attribute "name" holds the ids; without it they are 0, 1, …, n-1. `weight` is an edge
    attribute, treated as by `from_networkx`.
    """
    if not isinstance(graph, library("igraph").Graph):
        raise ArgumentError(f"from_igraph takes an igraph graph, got {type_name(graph)}")
    nodes = np.arange(graph.vcount())
    if "name" in graph.vs.attributes():
        nodes = _distinct(as_ids(graph.vs["name"], "the vertex attribute 'name'"))
    codes = np.array(graph.get_edgelist(), np.int64).reshape(-1, 2)
    weights = None
    if weight is not None:
        values = graph.es[weight] if weight in graph.es.attributes() else [None] * len(codes)
        weights = _attribute(values, weight, lambda i: _edge(*nodes[codes[i]].tolist()))
    return Edges.between(nodes, codes, weights=weights, directed=bool(graph.is_directed()))


def to_igraph(edges: Edges) -> Any:
    """An igraph Graph; ids other than 0, 1, …, n-1 are in the vertex attribute "name"."""
    nodes, codes = edges.numbered()
    graph = library("igraph").Graph(n=len(nodes), edges=codes, directed=edges.directed)
    if not _is_range(nodes):
        graph.vs["name"] = nodes.tolist()
    if edges.weights is not None:
        graph.es["weight"] = edges.weights.tolist()
    return graph


def from_pyg(data: Any, *, node_ids: Any = None, directed: bool | None = None) -> Edges:
    """The nodes and edges of a PyTorch Geometric `Data` object.

    Weights are `edge_weight`, or an `edge_attr` of one column. Such data hold an undirected edge in both
    directions: without `directed`, edges are undirected exactly if each has its twin of the same weight,
    and one of the two is given. Ids are `node_ids`, else `data.node_ids`, else 0, 1, …, n-1.
    """
    if not isinstance(data, library("torch_geometric.data").Data) or data.edge_index is None:
        raise ArgumentError(f"from_pyg takes a Data object with edge_index, got {type_name(data)}")
    codes = data.edge_index.detach().cpu().numpy().T.astype(np.int64)
    if codes.ndim != 2 or codes.shape[1] != 2:
        raise ShapeError(f"edge_index must have two rows, got shape {codes.T.shape}")
    nodes = _pyg_nodes(data, codes, node_ids)
    weights = _pyg_weights(data, codes)
    if not directed and _is_symmetric(codes, weights):
        once = codes[:, 0] <= codes[:, 1]
        weights = None if weights is None else weights[once]
        return Edges.between(nodes, codes[once], weights=weights, directed=False)
    return Edges.between(nodes, codes, weights=weights, directed=directed is not False)


def to_pyg(edges: Edges) -> Any:
    """A PyTorch Geometric `Data` object with `edge_index`, `num_nodes` and, if weighted, `edge_weight`.

    An undirected edge occurs in both directions, a self loop once, sorted by source and target. Weights stay
    float64. Ids other than 0, 1, …, n-1 are kept as `node_ids`.
    """
    torch, Data = library("torch"), library("torch_geometric.data").Data
    nodes, codes = edges.numbered()
    rows = np.arange(len(codes))
    if not edges.directed:
        mirrored = rows[codes[:, 0] != codes[:, 1]]
        codes, rows = np.concatenate([codes, codes[mirrored, ::-1]]), np.concatenate([rows, mirrored])
    order = np.lexsort((codes[:, 1], codes[:, 0]))
    index = np.ascontiguousarray(codes[order].T, np.int64)
    data = Data(edge_index=torch.from_numpy(index), num_nodes=len(nodes))
    if edges.weights is not None:
        data.edge_weight = torch.from_numpy(edges.weights[rows[order]])
    if not _is_range(nodes):
        data.node_ids = torch.from_numpy(nodes.copy()) if nodes.dtype == np.int64 else nodes.tolist()
    return data


def _pyg_nodes(data: Any, codes: Array, node_ids: Any) -> Array:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # without num_nodes or features the largest number counts
        count = int(data.num_nodes or 0)
    if codes.size and not 0 <= codes.min() <= codes.max() < count:
        outside = codes[(codes < 0) | (codes >= count)][0]
        raise InputError(f"edge_index holds {outside}, but nodes are numbered from 0 to {count - 1}")
    given = data.node_ids if node_ids is None and "node_ids" in data else node_ids
    if given is None:
        return np.arange(count)
    nodes = _distinct(as_ids(given, "node_ids"))
    if len(nodes) != count:
        raise ShapeError(f"there are {len(nodes)} node_ids for {count} nodes")
    return nodes


def _pyg_weights(data: Any, codes: Array) -> Array | None:
    values = data.edge_weight if "edge_weight" in data else data.edge_attr
    if values is None or ("edge_weight" not in data and values.dim() == 2 and values.shape[1] != 1):
        return None
    if values.numel() != len(codes):
        raise ShapeError(f"there are {values.numel()} edge weights for {len(codes)} edges")
    array = values.detach().cpu().double().numpy().reshape(-1)
    return sound(array, lambda i: f"the weight of {_edge(*codes[i].tolist())}")


def _is_symmetric(codes: Array, weights: Array | None) -> bool:
    rest = [] if weights is None else [weights]
    forth, back = [*rest, codes[:, 1], codes[:, 0]], [*rest, codes[:, 0], codes[:, 1]]
    sort, mirror = np.lexsort(forth), np.lexsort(back)
    return all(np.array_equal(a[sort], b[mirror]) for a, b in zip(forth, back, strict=True))


def _attribute(values: Sequence[Any], name: str, place: Callable[[int], str]) -> Array | None:
    missing = [value is None for value in values]
    if all(missing) and (name == "weight" or not values):
        return None
    if any(missing):
        edge, others = place(missing.index(True)), "no" if all(missing) else "other"
        hint = f"{others} edges have it; mend that, or pass weight=None"
        raise InputError(f"{edge} has no attribute {shown(name)}, {hint}")
    for position, value in enumerate(values):
        if isinstance(value, bool) or not isinstance(value, numbers.Real):
            raise InputError(f"the weight of {place(position)} is {shown(value)}, which is not a number")
    return sound(np.array(list(map(_float, values))), lambda i: f"the weight of {place(i)}")


def _float(value: Any) -> float:
    try:
        return float(value)
    except OverflowError:
        return np.inf


def _distinct(nodes: Array) -> Array:
    if len(distinct_ids(nodes)) < len(nodes):
        [(twice, _)] = Counter(nodes.tolist()).most_common(1)
        raise InputError(f"two nodes have the id {shown(twice)}")
    return nodes


def _is_range(nodes: Array) -> bool:
    return nodes.dtype.kind in "ui" and np.array_equal(nodes, np.arange(len(nodes)))


def _edge(source: Any, target: Any) -> str:
    return f"the edge {shown(source)} → {shown(target)}"
