from __future__ import annotations

import decimal
import sys

import duckdb
import igraph
import networkx
import numpy as np
import pandas
import polars
import pyarrow
import pytest
from graph_cases import LARGE, OTHER_OBJECTS, PLAIN, collaborations, graphs, relaxed, same
from hypothesis import given, settings
from hypothesis import strategies as st

from fastgrl import interchange
from fastgrl.errors import ArgumentError, InputError, MissingExtraError
from fastgrl.graph import Graph
from fastgrl.io import read
from fastgrl.io.writers import write_graph


@relaxed
@given(graphs())
def test_networkx_gives_back_the_same_graph(graph):
    there = graph.to_networkx()
    assert there.number_of_nodes() == graph.num_nodes
    assert there.number_of_edges() == graph.num_edges
    same(graph, Graph.from_networkx(there))


@relaxed
@given(graphs())
def test_igraph_gives_back_the_same_graph(graph):
    there = graph.to_igraph()
    assert (there.vcount(), there.ecount()) == (graph.num_nodes, graph.num_edges)
    same(graph, Graph.from_igraph(there))


@relaxed
@given(graphs())
def test_scipy_gives_back_the_same_graph(graph):
    same(
        graph,
        Graph.from_scipy(graph.to_scipy(), node_ids=graph.node_ids, directed=graph.directed),
    )


def through_frame(graph, frame):
    return Graph.from_frame(frame, weight="weight", nodes=graph.node_ids, directed=graph.directed)


@relaxed
@given(graphs())
def test_pandas_gives_back_the_same_edges_between_ids_of_any_type(graph):
    same(graph, through_frame(graph, graph.to_frame()))


TABLES = {
    "pandas": lambda graph: graph.to_frame("pandas"),
    "polars": lambda graph: graph.to_frame("polars"),
    "polars lazy": lambda graph: graph.to_frame("polars").lazy(),
    "pyarrow": lambda graph: graph.to_frame("pyarrow"),
    "pyarrow dictionary": lambda graph: dictionary_encoded(graph.to_frame("pyarrow")),
    "pandas categories": lambda graph: graph.to_frame("pandas").astype(
        {"source": "category", "target": "category"}
    ),
    "pandas nullable": lambda graph: graph.to_frame("pandas").convert_dtypes(),
    "duckdb": lambda graph: duckdb.from_arrow(graph.to_frame("pyarrow")),
}


def dictionary_encoded(table):
    for k, name in enumerate(("source", "target")):
        table = table.set_column(k, name, table[name].dictionary_encode())
    return table


@settings(relaxed, max_examples=20)
@pytest.mark.parametrize("table", TABLES)
@given(graph=graphs(PLAIN))
def test_every_table_gives_back_the_same_edges(table, graph):
    same(graph, through_frame(graph, TABLES[table](graph)))


@relaxed
@given(graphs(st.lists(LARGE, unique=True, max_size=6)))
def test_integers_beyond_64_bits_pass_through_polars_and_duckdb(graph):
    same(graph, through_frame(graph, graph.to_frame("polars")))
    ids = sorted(graph.node_ids.tolist())
    if ids and ids[-1] >= 2**64:
        with pytest.raises(ArgumentError, match="pyarrow table"):
            Graph.from_edges([(ids[-1], ids[-1])]).to_frame("pyarrow")
    relation = duckdb.sql(f"select {2**100}::hugeint as u, 7::hugeint as v, sum(3)::hugeint as weight")
    assert Graph.from_frame(relation, weight="weight").node_ids.tolist() == [2**100, 7]


@pytest.mark.parametrize("backend", ["polars", "pyarrow"])
@pytest.mark.parametrize("ids", [["a", 7], [("a", 1), ("b", 2)], [True, "a"]])
def test_ids_that_a_typed_table_cannot_hold_are_named(backend, ids):
    with pytest.raises(ArgumentError, match=r"id .* row \d"):
        Graph.from_edges([ids]).to_frame(backend)


@relaxed
@given(
    graph=graphs(PLAIN).filter(lambda graph: graph.num_edges), ending=st.sampled_from([".parquet", ".npz"])
)
def test_typed_files_give_back_the_same_graph(tmp_path, graph, ending):
    if ending == ".npz" and any(str(item).endswith("\0") for item in graph.node_ids):
        return
    path, nodes = tmp_path / f"g{ending}", tmp_path / "n.parquet"
    write_graph(graph, path, nodes=None if ending == ".npz" else nodes, force=True)
    again = read(path, nodes=None if ending == ".npz" else nodes, directed=graph.directed)
    same(graph, again.graph)


@settings(relaxed, max_examples=80)
@given(
    graph=graphs(PLAIN | st.lists(LARGE, unique=True, max_size=6)).filter(lambda graph: graph.num_edges),
    ending=st.sampled_from([".csv", ".tsv"]),
    listed=st.booleans(),
)
def test_text_files_give_back_the_same_graph_with_ids_as_text(tmp_path, graph, ending, listed):
    if "" in graph.node_ids:  # written as "", but an empty cell is more often a missing value: refused
        return
    path, nodes = tmp_path / f"g{ending}", tmp_path / f"n{ending}"
    codes = graph.edge_codes()
    if not listed:
        used = np.unique(codes)
        graph = Graph.from_codes(
            *np.searchsorted(used, codes).T,
            weights=graph.edge_weights(),
            node_ids=graph.node_ids[used],
            directed=graph.directed,
        )
    write_graph(graph, path, nodes=nodes if listed else None, force=True)
    again = read(path, nodes=nodes if listed else None, directed=graph.directed)
    text = Graph.from_codes(
        *graph.edge_codes().T,
        weights=graph.edge_weights(),
        node_ids=[str(item) for item in graph.node_ids.tolist()],
        directed=graph.directed,
    )
    same(text, again.graph, ordered=listed)


def test_the_published_collaborations_survive_every_way_out_and_back(tmp_path):
    graph = collaborations()
    write_graph(graph, tmp_path / "g.parquet", nodes=tmp_path / "n.parquet")
    write_graph(graph, tmp_path / "g.npz")
    for again in (
        Graph.from_networkx(graph.to_networkx()),
        Graph.from_igraph(graph.to_igraph()),
        through_frame(graph, graph.to_frame("polars")),
        read(tmp_path / "g.parquet", nodes=tmp_path / "n.parquet").graph,
        read(tmp_path / "g.npz").graph,
    ):
        assert np.array_equal(again.node_ids, graph.node_ids)
        assert np.array_equal(again.edge_codes(), graph.edge_codes())


def test_parallel_edges_of_other_libraries_are_merged_and_counted():
    multi = networkx.MultiGraph([("a", "b"), ("a", "b"), ("b", "a"), ("c", "c")])
    graph = Graph.from_networkx(multi)
    assert (graph.num_edges, graph.repeats) == (2, 2)
    multi.add_edge("a", "c", weight=2.0)
    for u, v, key in multi.edges(keys=True):
        multi.edges[u, v, key]["weight"] = 2.0
    weights = dict(
        zip(
            map(tuple, Graph.from_networkx(multi).edge_codes().tolist()),
            Graph.from_networkx(multi).edge_weights(),
            strict=True,
        )
    )
    assert weights[0, 1] == 6.0
    directed = networkx.MultiDiGraph([("a", "b"), ("b", "a"), ("b", "a")])
    assert Graph.from_networkx(directed).num_edges == 2


def test_a_weight_attribute_is_used_if_it_is_there():
    for weight, expected in (("weight", [2.5]), ("cost", [4.0]), (None, None)):
        one = networkx.Graph()
        one.add_edge("a", "b", weight=2.5, cost=np.int32(4))
        other = igraph.Graph(edges=[(0, 1)], edge_attrs={"weight": [2.5], "cost": [4]})
        frame = pandas.DataFrame({"a": [1], "b": [2], "weight": [2.5], "cost": [4]})
        for found in (
            interchange.from_networkx(one, weight=weight),
            interchange.from_igraph(other, weight=weight),
            interchange.from_frame(frame, weight=weight),
        ):
            assert (found.weights is None) if expected is None else found.weights.tolist() == expected


@pytest.mark.parametrize(
    ("values", "weight", "says"),
    [
        ([1.0, None], "weight", "'a' → 'c' has no attribute 'weight', other edges have it"),
        ([None, None], "cost", "'a' → 'b' has no attribute 'cost', no edges have it"),
        ([1.0, "2"], "weight", "'a' → 'c' is '2', which is not a number"),
        ([True, 1.0], "weight", "is True, which is not a number"),
        ([1.0, float("nan")], "weight", "'a' → 'c' is nan; it must be finite"),
        ([1.0, -2], "weight", "is -2.0; it must be finite and not negative"),
        ([10**400, 1], "weight", "is inf"),
    ],
)
def test_a_wrong_weight_is_named_with_its_edge(values, weight, says):
    one = networkx.Graph()
    for end, value in zip("bc", values, strict=True):
        one.add_edge("a", end, **({} if value is None else {"weight": value}))
    other = igraph.Graph(edges=[(0, 1), (0, 2)], vertex_attrs={"name": list("abc")})
    other.es["weight"] = values
    for read_, graph in ((interchange.from_networkx, one), (interchange.from_igraph, other)):
        with pytest.raises(InputError, match=says):
            read_(graph, weight=weight)


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (["target", "x", "source"], ("source", "target")),
        (["weight", "dst", "src"], ("src", "dst")),
        (["to", "from"], ("from", "to")),
        (["v", "u"], ("u", "v")),
        (["follower", "followed", "source"], ("follower", "followed")),
    ],
)
def test_columns_are_found_by_name_else_the_first_two(names, expected):
    frame = polars.DataFrame({name: [k] for k, name in enumerate(names)})
    found = interchange.from_frame(frame)
    assert (found.sources[0], found.targets[0]) == tuple(names.index(name) for name in expected)
    swapped = interchange.from_frame(frame, source=expected[1], target=expected[0])
    assert (swapped.targets[0], swapped.sources[0]) == (found.sources[0], found.targets[0])


def test_columns_may_have_numbers_for_names():
    found = interchange.from_frame(pandas.DataFrame([[1, 2], [3, 4]]))
    assert found.sources.tolist() == [1, 3]


FRAMES = {
    "null text": (polars.DataFrame({"u": ["a", None], "v": ["b", "c"]}), "column 'u', row 2 is empty"),
    "null integer": (polars.DataFrame({"u": [1, 2], "v": [None, 2]}), "column 'v', row 1 is empty"),
    "pandas NaN": (pandas.DataFrame({"u": [1, np.nan], "v": [1, 2]}), "column 'u', row 2 is empty"),
    "pandas NA": (pandas.DataFrame({"u": pandas.array([1, None], "Int64"), "v": [1, 2]}), "row 2 is empty"),
    "NaN": (polars.DataFrame({"u": [1.0, float("nan")], "v": [1, 2]}), "column 'u', row 2 is nan"),
    "infinite": (pandas.DataFrame({"u": [1.0, np.inf], "v": [1, 2]}), "column 'u', row 2 is inf"),
    "lists": (polars.DataFrame({"u": [[1]], "v": [2]}), "column 'u' holds List"),
    "structs": (polars.DataFrame({"u": [{"a": 1}], "v": [2]}), "column 'u' holds Struct"),
    "booleans": (polars.DataFrame({"u": [True], "v": [2]}), "column 'u' holds Boolean"),
    "binary": (pyarrow.table({"u": [b"a"], "v": [2]}), "column 'u' holds Binary"),
    "dates": (pandas.DataFrame({"u": pandas.to_datetime(["2020"]), "v": [2]}), "column 'u' holds Datetime"),
    "object lists": (pandas.DataFrame({"u": [[1], "a"], "v": [2, 3]}), r"column 'u', row 1 holds \[1\]"),
    "object booleans": (pandas.DataFrame({"u": ["a", True], "v": [2, 3]}), "column 'u', row 2 holds True"),
    "fractions": (pandas.DataFrame({"u": [decimal.Decimal("1.5")], "v": [2]}), "column 'u', row 1 holds"),
    "text weight": (polars.DataFrame({"u": [1], "v": [2], "weight": ["3"]}), "column 'weight' holds String"),
    "null weight": (polars.DataFrame({"u": [1], "v": [2], "weight": [None]}), "column 'weight'"),
    "negative weight": (polars.DataFrame({"u": [1], "v": [2], "weight": [-1]}), "'weight', row 1 is -1.0"),
    "NaN weight": (
        polars.DataFrame({"u": [1], "v": [2], "weight": [float("nan")]}),
        "'weight', row 1 is nan",
    ),
    "one column": (polars.DataFrame({"u": [1]}), "at least two columns, this one has 1"),
    "twins": (pandas.DataFrame([[1, 2]], columns=["a", "a"]), "same name"),
}


@pytest.mark.parametrize("case", FRAMES)
def test_a_bad_cell_is_named_with_column_and_row(case):
    frame, says = FRAMES[case]
    with pytest.raises(InputError, match=says) as caught:
        interchange.from_frame(frame)
    assert str(caught.value).isprintable()


def test_columns_that_are_not_there_are_named():
    frame = polars.DataFrame({"a": [1], "b": [2]})
    with pytest.raises(InputError, match="no column 'x'; the columns are 'a', 'b'"):
        interchange.from_frame(frame, source="x", target="b")
    with pytest.raises(InputError, match="no column 'cost'"):
        interchange.from_frame(frame, weight="cost")
    with pytest.raises(ArgumentError, match="together"):
        interchange.from_frame(frame, source="a")
    with pytest.raises(ArgumentError, match="different columns"):
        interchange.from_frame(frame, source="a", target="a")


@pytest.mark.parametrize("value", OTHER_OBJECTS)
def test_other_objects_are_refused_by_type(value):
    for reader in (interchange.from_networkx, interchange.from_igraph, interchange.from_frame):
        with pytest.raises(ArgumentError, match=type(value).__name__):
            reader(value)


def test_two_vertices_with_one_name_are_refused():
    with pytest.raises(InputError, match="two nodes have the id 'a'"):
        interchange.from_igraph(igraph.Graph(n=3, vertex_attrs={"name": ["b", "a", "a"]}))


TRIANGLE = Graph.from_edges([(1, 2), (2, 3), (3, 1)])
CALLS = {
    "networkx": [TRIANGLE.to_networkx, lambda: Graph.from_networkx(None)],
    "igraph": [TRIANGLE.to_igraph, lambda: Graph.from_igraph(None)],
    "torch": [TRIANGLE.to_pyg],
    "torch_geometric": [lambda: Graph.from_pyg(None)],
    "pandas": [lambda: TRIANGLE.to_frame("pandas")],
    "polars": [lambda: TRIANGLE.to_frame("polars")],
    "pyarrow": [lambda: TRIANGLE.to_frame("pyarrow")],
    "narwhals": [lambda: Graph.from_frame(None)],
}


@pytest.mark.parametrize("name", CALLS)
def test_a_missing_library_is_named(monkeypatch, name):
    for module in (name, f"{name}.data"):
        monkeypatch.setitem(sys.modules, module, None)
    for call in CALLS[name]:
        with pytest.raises(MissingExtraError, match=rf"\b{name}\b.*pip install"):
            call()


def test_an_unknown_table_library_is_refused():
    with pytest.raises(ArgumentError, match="pandas, polars, pyarrow"):
        Graph.from_edges([(1, 2)]).to_frame("excel")
    with pytest.raises(ArgumentError, match="nodes= and codes="):
        interchange.to_networkx(interchange.Edges(np.array([1]), np.array([2])))
