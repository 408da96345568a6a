from __future__ import annotations

import csv
import sys

import numpy as np
import pyarrow.parquet
import pytest
import scipy.sparse
from graph_cases import relaxed
from hypothesis import example, given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from writer_cases import contents, graph_of, vectors_of

from fastgrl.errors import ArgumentError, MissingExtraError, NotFiniteError, ShapeError
from fastgrl.graph import Graph
from fastgrl.io.writers import embedding_files, write_embedding, write_graph, write_table

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=6)
BLANKS = [" a", "a ", "\ta", "a\tb", "a\nb", "a\r\nb", "\r", "\u2028", "\ufeffa", "a\0b", ""]
SIGNS = ["#a", "%", "//", "a,b", 'a"b', '"', "'", "a;b", "a|b", "ä", "名", "\u202eab", "=1+1", "-"]
HARD_TEXT = st.sampled_from([*BLANKS, *SIGNS, "007", "7", "1e5", "NaN", "null"])
DISTINCT_TEXT = st.lists(TEXT | HARD_TEXT, unique=True, max_size=8)
INTEGERS = st.lists(st.integers(-(2**63), 2**63 - 1), unique=True, max_size=8)


def test_standard_output_gets_csv(capsysbinary, tmp_path):
    write_embedding("-", np.float32([[0.1, 2]]), node_ids=["a b"])
    assert capsysbinary.readouterr().out == b"id,e0,e1\na b,0.1,2.0\n"
    write_graph(graph_of(1), "-", nodes=tmp_path / "n.csv")
    assert capsysbinary.readouterr().out == b"source,target,weight\nn0,n1,1.0\n"
    assert (tmp_path / "n.csv").read_text() == "id\nn0\nn1\nn2\n"


def read_embedding(path):
    """Ids and vectors, by readers that are not ours."""
    if path.suffix == ".parquet":
        table = pyarrow.parquet.read_table(path)
        columns = [table.column(k).to_numpy() for k in range(1, table.num_columns)]
        return table.column("id").to_pylist(), np.array(columns).T
    if path.suffix == ".csv":
        with path.open(newline="", encoding="utf-8") as file:
            rows = list(csv.reader(file))[1:]
        return [row[0] for row in rows], [row[1:] for row in rows]
    if path.suffix == ".npz":
        with np.load(path) as arrays:
            return arrays["ids"].tolist(), arrays["embedding"]
    if path.suffix == ".npy":
        with path.with_suffix(".ids.csv").open(newline="", encoding="utf-8") as file:
            return [row[0] for row in list(csv.reader(file))[1:]], np.load(path)
    (n, k), *lines = (line.split(" ") for line in path.read_text("utf-8").rstrip("\n").split("\n"))
    assert len(lines) == int(n)
    assert all(len(line) == int(k) + 1 for line in lines)
    return [line[0] for line in lines], [line[1:] for line in lines]


def vectors_for(n, dtype, width=32):
    return hnp.arrays(dtype, (n, 2), elements=st.floats(allow_nan=False, allow_infinity=False, width=width))


@relaxed
@pytest.mark.parametrize("ending", [".parquet", ".csv", ".npz", ".npy", ".txt"])
@given(data=st.data(), ids=DISTINCT_TEXT | INTEGERS, single=st.booleans())
def test_ids_and_numbers_come_back_exactly_from_every_format(tmp_path, ending, data, ids, single):
    dtype = np.float32 if single else np.float64
    vectors = data.draw(vectors_for(len(ids), dtype, 32 if single else 64))
    path = tmp_path / f"e{ending}"
    text = ids and isinstance(ids[0], str)
    refused = (ending == ".txt" and text and any(item.split() != [item] for item in ids)) or (
        ending == ".npz" and text and any(item.endswith("\0") for item in ids)
    )
    if refused:
        with pytest.raises(ArgumentError, match=r"write \.csv or \.parquet"):
            write_embedding(path, vectors, node_ids=ids, force=True)
        return
    write_embedding(path, vectors, node_ids=ids, force=True)
    found, rows = read_embedding(path)
    assert found == (ids if ending in (".parquet", ".npz") else list(map(str, ids)))
    back = np.array(rows, dtype).reshape(-1, 2)
    assert np.array_equal(back.view(f"i{back.itemsize}"), vectors.view(f"i{back.itemsize}"))
    if ending in (".parquet", ".npz", ".npy"):
        assert np.asarray(rows).dtype == dtype or not ids


@relaxed
@given(st.lists(HARD_TEXT | TEXT, max_size=8))
@example(["plain", "ä b", "a-b"])
def test_text_is_quoted_only_where_it_must_be(tmp_path, texts):
    write_table(tmp_path / "t.tsv", {"a": texts, "b": texts}, force=True)
    with (tmp_path / "t.tsv").open(newline="", encoding="utf-8") as file:
        assert list(csv.reader(file, delimiter="\t"))[1:] == [[text, text] for text in texts]
    plain = [text for text in texts if text.replace(" ", "").isalnum() and text == text.strip()]
    write_table(tmp_path / "p.csv", {"a": plain}, force=True)
    assert '"' not in (tmp_path / "p.csv").read_text("utf-8")


def test_blocks_of_rows_make_no_difference(monkeypatch, tmp_path):
    columns = {"id": [f"n{i}" for i in range(50)], "x": np.arange(50) / 7, "b": np.arange(50) % 2 == 0}
    for name in ("a.csv", "a.parquet"):
        write_table(tmp_path / name, columns)
    for limit in ("_TEXT_CHUNK_CELLS", "_ROW_GROUP_CELLS"):
        monkeypatch.setattr(f"fastgrl.io.writers.{limit}", 20)
    for name in ("b.csv", "b.parquet"):
        write_table(tmp_path / name, columns)
    assert (tmp_path / "a.csv").read_bytes() == (tmp_path / "b.csv").read_bytes()
    first, second = (pyarrow.parquet.read_table(tmp_path / name) for name in ("a.parquet", "b.parquet"))
    assert first.equals(second)
    assert first.to_pydict() == {name: list(column) for name, column in columns.items()}


@pytest.mark.parametrize("ending", [".parquet", ".csv", ".npz", ".npy", ".txt"])
def test_the_same_content_is_the_same_file(tmp_path, ending):
    for name in ("a", "b"):
        write_embedding(tmp_path / f"{name}{ending}", vectors_of(0), node_ids=range(9))
    assert (tmp_path / f"a{ending}").read_bytes() == (tmp_path / f"b{ending}").read_bytes()


@pytest.mark.parametrize("ending", [".parquet", ".csv", ".npz", ".npy", ".txt"])
def test_no_rows_and_no_columns_are_written_as_such(tmp_path, ending):
    for shape in ((0, 3), (2, 0), (0, 0)):
        write_embedding(tmp_path / f"a{ending}", np.empty(shape), node_ids=["a", "b"][: shape[0]], force=True)
        ids = read_embedding(tmp_path / f"a{ending}")[0] if shape[0] else []
        assert ids == ["a", "b"][: shape[0]]


def test_integers_beyond_64_bits_are_text_or_refused(tmp_path):
    ids = [2**70, -(2**70)]
    write_embedding(tmp_path / "a.csv", [[1.0], [2.0]], node_ids=ids)
    assert (tmp_path / "a.csv").read_text() == f"id,e0\n{2**70},1.0\n{-(2**70)},2.0\n"
    for name in ("a.parquet", "a.npz"):
        with pytest.raises(ArgumentError, match="64 bits"):
            write_embedding(tmp_path / name, [[1.0], [2.0]], node_ids=ids)
    write_embedding(tmp_path / "b.parquet", [[1.0]], node_ids=[2**64 - 1])
    assert read_embedding(tmp_path / "b.parquet")[0] == [2**64 - 1]


@pytest.mark.parametrize("ending", [".parquet", ".csv", ".npz", ".npy", ".txt"])
@pytest.mark.parametrize(
    ("ids", "says"),
    [
        (["a", 7], "id 7 .int, row 2"),
        ([7, "7"], "id '7' .str, row 2"),
        ([("a", 1), "b"], "tuple, row 1"),
        (["a", "\udc80"], r"row 2"),
        ([None, "a"], "NoneType"),
        ([b"a", b"b"], "bytes"),
    ],
)
def test_an_id_that_a_file_cannot_hold_is_named(tmp_path, ending, ids, says):
    with pytest.raises(ArgumentError, match=says):
        write_embedding(tmp_path / f"a{ending}", [[1.0], [2.0]], node_ids=ids)
    assert contents(tmp_path) == {}


def test_wrong_calls_are_named(tmp_path):
    path = tmp_path / "a.csv"
    with pytest.raises(ShapeError, match="3 node_ids for 2"):
        write_embedding(path, [[1.0], [2.0]], node_ids=range(3))
    with pytest.raises(NotFiniteError, match="vectors"):
        write_embedding(path, [[np.nan]], node_ids=[1])
    with pytest.raises(ShapeError, match="one length"):
        write_table(path, {"a": [1], "b": [1, 2]})
    with pytest.raises(ArgumentError, match="column 'a'"):
        write_table(path, {"a": [1, object()]})
    assert contents(tmp_path) == {}


def test_one_long_id_does_not_fill_the_memory(tmp_path, monkeypatch):
    monkeypatch.setattr("fastgrl.io.writers._PADDED_BYTES", 1 << 20)
    ids = [str(i) for i in range(1000)] + ["x" * 10_000]
    with pytest.raises(ArgumentError, match="10000 characters"):
        write_embedding(tmp_path / "a.npz", np.zeros((1001, 1)), node_ids=ids)


def test_a_missing_pyarrow_is_named_before_anything_is_written(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", None)
    with pytest.raises(MissingExtraError, match=r"Parquet needs pyarrow: pip install 'fastgrl\[io\]'"):
        write_table(tmp_path / "a.parquet", {"a": [1]})
    assert contents(tmp_path) == {}


def test_the_files_of_an_embedding_are_known_beforehand(tmp_path):
    assert embedding_files(tmp_path / "a.npy") == (tmp_path / "a.npy", str(tmp_path / "a.ids.csv"))
    (tmp_path / "a.ids.csv").write_text("mine")
    with pytest.raises(ArgumentError, match="already exists"):
        write_embedding(tmp_path / "a.npy", [[1.0]], node_ids=[1])
    assert contents(tmp_path) == {"a.ids.csv": b"mine"}


def test_nodes_without_edges_are_never_lost_in_silence(tmp_path):
    with pytest.raises(ArgumentError, match=r"1 nodes have no edges \(the first is 'n4'\).*nodes="):
        write_graph(graph_of(3), tmp_path / "g.csv")
    write_graph(Graph.from_edges([("a", "b")]), tmp_path / "g.csv")
    assert (tmp_path / "g.csv").read_text() == "source,target\na,b\n"


@pytest.mark.parametrize("directed", [True, False])
@pytest.mark.parametrize("weights", [None, [0.5, 2.0, 3.0]])
def test_a_graph_as_npz_holds_everything_and_scipy_reads_it(tmp_path, directed, weights):
    graph = Graph.from_edges(
        [("a", "b"), ("b", "c"), ("c", "c")], weights=weights, nodes=list("dcba"), directed=directed
    )
    write_graph(graph, tmp_path / "g.npz")
    matrix = scipy.sparse.load_npz(tmp_path / "g.npz")
    assert (matrix != graph.to_scipy()).nnz == 0
    with np.load(tmp_path / "g.npz", allow_pickle=False) as arrays:
        assert arrays["node_ids"].tolist() == list("dcba")
        assert arrays["directed"] == directed
