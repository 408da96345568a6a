"""Features from files: every number arrives at its node and column, and whatever is wrong is named."""

from __future__ import annotations

import csv
import io
import zipfile

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import scipy.sparse as sp
from graph_cases import relaxed
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from fastgrl.errors import InputError
from fastgrl.io import number_tables
from fastgrl.io.features import FeatureTable, read_features
from fastgrl.io.writers import write_embedding

IDS = np.array([f"n{i}" for i in range(5)], object)
NUMBERS = st.floats(allow_nan=False, allow_infinity=False)
TABLES = hnp.arrays(np.float64, st.tuples(st.just(5), st.integers(1, 4)), elements=NUMBERS)
GOOD = "node,f0,f1\nn0,1,2\nn1,3,4\nn2,5,6\nn3,7,8\nn4,9,10\n"


def read(text: str | bytes, ids=IDS, **options) -> FeatureTable:
    return read_features(io.BytesIO(text.encode() if isinstance(text, str) else text), ids, **options)


@relaxed
@given(X=TABLES, order=st.permutations(range(5)))
def test_every_number_comes_back_exactly_from_every_format_in_any_order(X, order, tmp_path_factory):
    folder = tmp_path_factory.mktemp("features")
    for ending in (".csv", ".parquet", ".npz", ".npy"):
        write_embedding(folder / f"X{ending}", X[order], node_ids=IDS[order])
        found = read_features(folder / f"X{ending}", IDS)
        np.testing.assert_array_equal(found.matrix, X)
    sp.save_npz(folder / "S.npz", sp.csc_array(X))
    found = read_features(folder / "S.npz", IDS)
    np.testing.assert_array_equal(found.matrix.toarray(), X)
    assert "in the order of the nodes" in found.notices[0]


CELLS = st.sampled_from(
    ["1", "-2.5", "1e3", ".5", "3.", " 4 ", "+6", "1e-320", "0x1", "1_0", "nan", "", "a", "1e999"]
)


@relaxed
@given(
    st.lists(st.tuples(CELLS, CELLS), min_size=5, max_size=5),
    st.sampled_from([",", "\t", ";"]),
    st.sampled_from(["\n", "\r\n", "\r"]),
    st.booleans(),
)
def test_the_quick_reader_and_the_careful_one_agree(rows, delimiter, end, quotes):
    lines = [delimiter.join([f'"n{i}"' if quotes else f"n{i}", *row]) for i, row in enumerate(rows)]
    text = end.join([delimiter.join(["node", "f0", "f1"]), *lines, ""])
    quick = outcome(text)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(number_tables, "_by_arrow", lambda _: None)
        assert outcome(text) == quick
        patch.setattr(number_tables, "_quickly", lambda *_: None)
        assert outcome(text) == quick


def outcome(text: str) -> str:
    try:
        return str(read(text).matrix.tolist())
    except InputError as error:
        return str(error)


def test_large_tables_are_not_read_cell_by_cell(monkeypatch):
    monkeypatch.setattr(number_tables, "_carefully", None)
    assert read(GOOD).matrix[4].tolist() == [9, 10]
    assert read(GOOD.replace("n0", '"n0"').replace("f0", '"f0"')).names == ("f0", "f1")


@pytest.mark.parametrize(
    ("header", "names"),
    [
        ("node,f0,f1\n", ("f0", "f1")),
        ("paper,height,width\n", ("height", "width")),
        (",0,1\n", ("0", "1")),
        ("node,0,1\n", ("0", "1")),
        ("whatever,0,1\n", ("0", "1")),
        ("", None),
    ],
)
def test_headers_are_seen_and_no_row_is_lost_to_one(header, names):
    found = read(header + GOOD.partition("\n")[2])
    assert found.names == names
    assert found.matrix.tolist() == [[1, 2], [3, 4], [5, 6], [7, 8], [9, 10]]


def test_a_node_called_node_is_a_node():
    ids = np.array(["node", "x"], object)
    assert read("node,1,2\nx,3,4\n", ids).matrix.tolist() == [[1, 2], [3, 4]]


def test_the_column_of_ids_can_be_named():
    text = "f0,who,f1\n1,n0,2\n3,n1,4\n"
    found = read(text, IDS[:2], id_column="who")
    assert (found.names, found.matrix.tolist()) == (("f0", "f1"), [[1, 2], [3, 4]])
    assert read(text, IDS[:2], id_column="2").matrix.tolist() == [[1, 2], [3, 4]]


def test_decimal_commas_are_read_beside_semicolons():
    assert read("id;a;b\nn0;0,5;1\nn1;-2,25;3\n", IDS[:2]).matrix.tolist() == [[0.5, 1], [-2.25, 3]]


def test_columns_may_be_separated_by_blanks():
    assert read("n0 1 2\nn1  3 4\n", IDS[:2]).matrix.tolist() == [[1, 2], [3, 4]]


def test_tiny_numbers_stay_numbers():
    assert read("n0,1e-300\nn1,-5e-324\n", IDS[:2]).matrix.tolist() == [[1e-300], [-5e-324]]


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("n3,7,8", "n3,7,inf", ["line 5", "column 3 ('f1')", "'inf' is not finite"]),
        ("n3,7,8", "n3,,8", ["line 5", "column 2 ('f0')", "the value is missing"]),
        ("n3,7,8", "n3,seven,8", ["line 5", "column 2 ('f0')", "'seven' is not a number"]),
        ("n3,7,8", "n3,1e999,8", ["line 5", "'1e999' is not finite"]),
        ("n3,7,8", "n3,\x1b[2J,8", ["line 5", "\\x1b[2J"]),
        ("n3,7,8", "n3,7", ["line 5: 2 columns, where the first line has 3"]),
        ("n3,7,8", "n3,7,8,9", ["line 5: 4 columns, where the first line has 3"]),
        ("n3,7,8", ",7,8", ["line 5", "the id is empty"]),
        ("n3,7,8", "n1,7,8", ["line 5: the node 'n1' has features already, in line 3"]),
        ("n3,7,8", "ghost,7,8", ["line 5: no node has the id 'ghost'", "--ignore-unknown"]),
        ("n3,7,8\n", "", ["1 of 5 nodes have no features, the first is 'n3'", "--missing-features zero"]),
    ],
)
def test_what_is_wrong_is_named_with_line_column_and_value(old, new, words):
    with pytest.raises(InputError) as error:
        read(GOOD.replace(old, new))
    assert all(word in str(error.value) for word in words), error.value


def test_unknown_ids_and_missing_nodes_can_be_allowed():
    found = read(GOOD.replace("n3", "ghost"), ignore_unknown=True, missing="zero")
    assert found.matrix[3].tolist() == [0, 0]
    assert found.matrix[4].tolist() == [9, 10]
    assert len(found.notices) == 2


def test_sparse_rows_can_be_missing_too(tmp_path):
    X = sp.csr_array(np.array([[0, 2.0], [3, 0]]))
    sp.save_npz(tmp_path / "X.npz", X)
    with zipfile.ZipFile(tmp_path / "X.npz", "a") as archive, archive.open("node_ids.npy", "w") as part:
        np.save(part, np.array(["n4", "n1"]))
    found = read_features(tmp_path / "X.npz", IDS, missing="zero").matrix
    assert found.format == "csr"
    assert found.toarray().tolist() == [[0, 0], [3, 0], [0, 0], [0, 0], [0, 2]]
    with pytest.raises(InputError, match="3 of 5 nodes have no features, the first is 'n0'"):
        read_features(tmp_path / "X.npz", IDS)


def test_integer_ids_of_a_graph_are_found_by_their_text():
    assert read("7,1\n3,2\n", np.array([3, 7])).matrix.tolist() == [[2], [1]]


@pytest.mark.parametrize(
    ("arrays", "words"),
    [
        ({"X": np.full((5, 2), np.nan)}, "row 1, feature 1: nan is not finite"),
        ({"X": np.ones((4, 2))}, "4 rows and no ids, where there are 5 nodes"),
        ({"X": np.ones(5)}, "shape (5,)"),
        ({"X": np.ones((5, 2)), "ids": np.arange(4)}, "ids of shape (4,) for 5 rows"),
        ({"other": np.ones(3)}, "neither an array X nor a sparse matrix"),
        ({"X": np.array([[{}]], object)}, "unpickled"),
    ],
)
def test_arrays_that_are_no_features_are_refused(arrays, words, tmp_path):
    np.savez(tmp_path / "X.npz", **arrays)
    with pytest.raises(InputError) as error:
        read_features(tmp_path / "X.npz", IDS)
    assert words in str(error.value)


@pytest.mark.parametrize(
    "change",
    [
        {"indptr": np.array([0, 9, 2, 3, 4, 5])},
        {"indptr": np.array([0, 1])},
        {"indices": np.array([0, 1, 2, 3, 99])},
        {"indices": np.array([0, 1, -2, 3, 4])},
        {"data": np.array([1.0, np.inf, 1, 1, 1])},
        {"data": np.ones(4)},
        {"shape": np.array([5, 2**60])},
        {"shape": np.array([5, -1])},
    ],
)
def test_indices_from_outside_are_checked_before_they_are_followed(change, tmp_path):
    X = sp.csr_array(np.eye(5))
    parts = {"format": np.array(b"csr"), "shape": np.array(X.shape), "data": X.data}
    parts |= {"indices": X.indices, "indptr": X.indptr}
    np.savez(tmp_path / "X.npz", **parts)
    assert read_features(tmp_path / "X.npz", IDS).matrix.toarray().tolist() == np.eye(5).tolist()
    np.savez(tmp_path / "X.npz", **(parts | change))
    with pytest.raises(InputError, match=r"X\.npz"):
        read_features(tmp_path / "X.npz", IDS)


def test_parquet_columns_must_be_numbers(tmp_path):
    path = tmp_path / "X.parquet"
    pq.write_table(pa.table({"a": [1, 2], "id": ["n1", "n0"], "b": [0.5, None]}), path)
    with pytest.raises(InputError, match="row 2, column 'b': the value is missing"):
        read_features(path, IDS[:2])
    pq.write_table(pa.table({"a": [1, 2], "id": ["n1", "n0"], "b": [0.5, float("nan")]}), path)
    with pytest.raises(InputError, match="row 2, feature 2 \\('b'\\): nan is not finite"):
        read_features(path, IDS[:2])
    pq.write_table(pa.table({"id": ["n1", "n0"], "b": ["x", "y"]}), path)
    with pytest.raises(InputError, match="column 'b': string values are not numbers"):
        read_features(path, IDS[:2])
    pq.write_table(pa.table({"a": [1, 2], "id": ["n1", "n0"], "b": [True, False]}), path)
    found = read_features(path, IDS[:2])
    assert (found.names, found.matrix.tolist()) == (("a", "b"), [[2, 0], [1, 1]])


def test_other_formats_and_empty_files_are_refused(tmp_path):
    with pytest.raises(InputError, match="is empty: it has no features"):
        read("")
    with pytest.raises(InputError, match="only a header"):
        read("node,f0\n")
    with pytest.raises(InputError, match="has one column"):
        read("n0\nn1\n")
    with pytest.raises(InputError, match="not from MTX"):
        read(b"%%MatrixMarket matrix coordinate real general\n1 1 1\n1 1 1\n")


def test_what_pythons_own_reader_finds_is_what_is_read(tmp_path):
    rng = np.random.Generator(np.random.Philox(0))
    X = rng.normal(size=(300, 20))
    write_embedding(tmp_path / "X.csv", X, node_ids=[f"v{i}" for i in range(300)])
    with (tmp_path / "X.csv").open(newline="") as file:
        _, *rows = csv.reader(file)
    found = read_features(tmp_path / "X.csv", np.array([row[0] for row in rows], object))
    np.testing.assert_array_equal(found.matrix, np.array([row[1:] for row in rows], float))
