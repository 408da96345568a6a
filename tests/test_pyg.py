from __future__ import annotations

import sys

import numpy as np
import pytest
from graph_cases import OTHER_OBJECTS, collaborations, graphs, relaxed, same
from hypothesis import given

from fastgrl import interchange
from fastgrl.errors import ArgumentError, InputError, MissingExtraError, ShapeError
from fastgrl.graph import Graph

# The import warns of torch's own deprecations; importorskip ignores warnings while it lasts.
pyg = pytest.importorskip("torch_geometric.data", reason="PyTorch Geometric is not installed")
torch = pytest.importorskip("torch", reason="PyTorch is not installed")


@relaxed
@given(graphs())
def test_pyg_gives_back_the_same_graph(graph):
    there = graph.to_pyg()
    assert there.num_nodes == graph.num_nodes
    assert there.num_edges == len(graph.indices)
    same(graph, Graph.from_pyg(there, directed=graph.directed))


@relaxed
@given(graphs())
def test_pyg_data_are_undirected_exactly_if_each_edge_has_its_twin(graph):
    matrix = graph.to_scipy()
    symmetric = (matrix != matrix.T).nnz == 0 and graph.weights is None
    found = Graph.from_pyg(graph.to_pyg())
    if not graph.directed or symmetric:
        assert not found.directed
    if not graph.directed:
        same(graph, found)


def test_the_published_collaborations_survive_pyg_and_back():
    graph = collaborations()
    again = Graph.from_pyg(graph.to_pyg())
    assert np.array_equal(again.node_ids, graph.node_ids)
    assert np.array_equal(again.edge_codes(), graph.edge_codes())


def test_a_weight_of_an_undirected_pyg_edge_is_not_doubled():
    index = torch.tensor([[0, 1, 1, 2, 2], [1, 0, 2, 1, 2]])
    weights = torch.tensor([3.0, 3.0, 5.0, 5.0, 7.0])
    for data in (
        pyg.Data(edge_index=index, edge_weight=weights, num_nodes=4),
        pyg.Data(edge_index=index, edge_attr=weights[:, None], num_nodes=4),
        pyg.Data(edge_index=index, edge_attr=weights, x=torch.zeros(4, 2)),
    ):
        graph = Graph.from_pyg(data)
        assert graph.edge_weights().tolist() == [3.0, 5.0, 7.0]
        assert (graph.num_nodes, graph.directed, graph.repeats) == (4, False, 0)


def test_pyg_data_with_one_direction_are_directed_unless_told_otherwise():
    data = pyg.Data(edge_index=torch.tensor([[0, 1], [1, 2]]), edge_attr=torch.zeros(2, 3))
    assert Graph.from_pyg(data).directed
    assert Graph.from_pyg(data, directed=False).num_edges == 2
    twins = pyg.Data(edge_index=torch.tensor([[0, 1], [1, 0]]), edge_weight=torch.tensor([1.0, 2.0]))
    assert Graph.from_pyg(twins).directed
    assert Graph.from_pyg(twins, node_ids=["a", "b"]).node_ids.tolist() == ["a", "b"]


@pytest.mark.parametrize("value", OTHER_OBJECTS)
def test_objects_that_are_not_pyg_data_are_refused_by_type(value):
    with pytest.raises(ArgumentError, match=type(value).__name__):
        interchange.from_pyg(value)


def test_damaged_pyg_data_are_named():
    index = torch.tensor([[0, 1], [1, 2]])
    with pytest.raises(ArgumentError, match="edge_index"):
        interchange.from_pyg(pyg.Data(x=torch.zeros(3, 1)))
    with pytest.raises(ArgumentError, match="HeteroData"):
        interchange.from_pyg(pyg.HeteroData())
    with pytest.raises(InputError, match="holds 2, but nodes are numbered from 0 to 1"):
        interchange.from_pyg(pyg.Data(edge_index=index, num_nodes=2))
    with pytest.raises(InputError, match="holds -1"):
        interchange.from_pyg(pyg.Data(edge_index=index - 1, num_nodes=3))
    with pytest.raises(ShapeError, match="two rows"):
        interchange.from_pyg(pyg.Data(edge_index=torch.zeros((3, 2), dtype=torch.int64), num_nodes=3))
    with pytest.raises(ShapeError, match="3 edge weights for 2 edges"):
        interchange.from_pyg(pyg.Data(edge_index=index, edge_weight=torch.ones(3), num_nodes=3))
    with pytest.raises(InputError, match=r"the edge 1 → 2 is -1\.0"):
        interchange.from_pyg(pyg.Data(edge_index=index, edge_weight=torch.tensor([1.0, -1.0]), num_nodes=3))
    with pytest.raises(ShapeError, match="2 node_ids for 3 nodes"):
        interchange.from_pyg(pyg.Data(edge_index=index, num_nodes=3), node_ids=["a", "b"])


def test_torch_without_torch_geometric_is_not_enough(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch_geometric.data", None)
    with pytest.raises(MissingExtraError, match="torch_geometric is not installed: pip install"):
        Graph.from_edges([(1, 2)]).to_pyg()
