"""Labels from files: every label arrives at its node, and whatever is wrong is named with its line."""

from __future__ import annotations

import gzip
import io
import random

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from graph_cases import relaxed
from hypothesis import given
from hypothesis import strategies as st

from fastgrl.errors import ArgumentError, InputError
from fastgrl.graph import Graph
from fastgrl.io.labels import Labels, read_labels, with_validation
from fastgrl.io.tables import npz_arrays
from fastgrl.io.writers import write_table

GRAPH = Graph.from_edges([(f"n{i}", f"n{(i + 1) % 8}") for i in range(8)])
WORDS = st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1, max_size=5).filter(str.strip)
HARD_WORDS = st.sampled_from(
    ["a,b", 'say "x"', "é", "北京", "003", "3", "NaN", "two\nlines", " x ", "#1", "a;b"]
)
LABELS = WORDS | HARD_WORDS


def read(text: str | bytes, graph: Graph = GRAPH, **options) -> Labels:
    return read_labels(io.BytesIO(text.encode() if isinstance(text, str) else text), graph, **options)


def as_dict(labels: Labels) -> dict[str, str]:
    return dict(zip(GRAPH.node_ids[labels.nodes], labels.texts, strict=True))


@relaxed
@given(known=st.dictionaries(st.sampled_from(GRAPH.node_ids.tolist()), LABELS, min_size=1), rng=st.randoms())
def test_any_label_comes_back_exactly_from_every_format_in_any_order(known, rng, tmp_path_factory):
    folder = tmp_path_factory.mktemp("labels")
    order = list(known)
    rng.shuffle(order)
    columns = {"node": order, "label": [known[node] for node in order]}
    for ending in (".csv", ".tsv", ".parquet"):
        write_table(folder / f"y{ending}", columns)
        assert as_dict(read_labels(folder / f"y{ending}", GRAPH)) == known
    np.savez(folder / "y.npz", ids=np.array(order), labels=np.array(columns["label"]))
    assert as_dict(read_labels(folder / "y.npz", GRAPH)) == known


@relaxed
@given(
    st.lists(st.tuples(st.integers(0, 7), st.sampled_from(["", "red", " blue ", "é"])), min_size=1),
    st.sampled_from([",", "\t", ";", "|"]),
    st.sampled_from(["\n", "\r\n", "\r"]),
)
def test_quoting_changes_nothing(rows, delimiter, end):
    plain = end.join(["node" + delimiter + "label", *(f"n{u}{delimiter}{text}" for u, text in rows), ""])
    quoted = plain.replace(f"n{rows[0][0]}{delimiter}", f'"n{rows[0][0]}"{delimiter}', 1)
    a, b = read(plain, multilabel=True), read(quoted, multilabel=True)
    assert (a.nodes.tolist(), a.texts.tolist()) == (b.nodes.tolist(), b.texts.tolist())
    assert {(int(u), text) for u, text in zip(a.nodes, a.texts, strict=True)} == {
        (u, text.strip()) for u, text in rows if text.strip()
    }


def test_a_blank_cell_is_no_class():
    labels = read("node,label\nn0,red\nn1,\nn2,blue\nn3,  \n")
    assert labels.classes == ["blue", "red"]
    assert labels.count == 2
    assert labels.y.tolist() == ["red", None, "blue", None, None, None, None, None]


def test_numbers_stay_the_text_that_they_are():
    assert read("n0,3\nn1,03\nn2,3.0\n").classes == ["03", "3", "3.0"]


@pytest.mark.parametrize(
    "header", ["node,label", "id,class", "paper_id,y", "source,target", ",label", "Node,x"]
)
def test_headers_are_seen(header):
    labels = read(f"{header}\nn0,red\nn1,blue\n")
    assert as_dict(labels) == {"n0": "red", "n1": "blue"}


def test_a_first_line_unlike_all_others_is_a_header():
    assert read("who,team\nn0,red\nn1,blue\nn2,red\n").classes == ["blue", "red"]
    with pytest.raises(InputError, match="line 1: no node has the id 'who'"):
        read("who,red\nn0,red\nn1,blue\nn2,red\n")
    with pytest.raises(InputError, match="line 1: no node has the id 'who'"):
        read("who,team\nn0,red\nghost,blue\nn2,red\n")


def test_no_label_is_lost_to_a_header():
    graph = Graph.from_edges([("node", "id"), ("id", "x")])
    labels = read("node,label\nid,red\n", graph)
    assert labels.texts.tolist() == ["label", "red"]
    assert as_dict(read("n0,label\nn1,class\n")) == {"n0": "label", "n1": "class"}
    numbers = Graph.from_codes([0, 1], [1, 2])
    assert read("paper,topic\n0,a\n2,b\n", numbers).nodes.tolist() == [0, 2]
    with pytest.raises(InputError, match="line 1: no node has the id '1x'"):
        read("1x,a\n0,a\n2,b\n", numbers)


def test_columns_are_found_by_name_or_asked_for():
    table = "colour,weight,node,label\nred,1,n0,x\nblue,2,n1,y\n"
    assert as_dict(read(table)) == {"n0": "x", "n1": "y"}
    assert as_dict(read(table, label_column="colour")) == {"n0": "red", "n1": "blue"}
    assert as_dict(read("n0,1,x\nn1,2,y\n", label_column=3)) == {"n0": "x", "n1": "y"}
    with pytest.raises(InputError, match=r"3 columns.*--label-columns"):
        read("n0,1,x\nn1,2,y\n")
    with pytest.raises((InputError, ArgumentError), match="colour"):
        read(table, label_column="coluor")


def test_integer_ids_of_a_graph_are_found_by_their_text():
    graph = Graph.from_codes([0, 1], [1, 2], node_ids=[10, 20, 30])
    assert read("30,a\n10,b\n", graph).nodes.tolist() == [2, 0]


def test_the_same_label_twice_is_merged_and_two_different_ones_are_refused():
    assert "1 labels that are given twice were merged" in read("n0,red\nn1,blue\nn0,red\n").notices[0]
    with pytest.raises(InputError) as error:
        read("node,label\nn0,red\n\nn1,blue\nn0,blue\n")
    for word in ("line 5", "'n0'", "'blue'", "'red'", "line 2", "--multi-label"):
        assert word in str(error.value)


def test_several_labels_of_a_node_make_rows_of_zeros_and_ones():
    labels = read("n0,red\nn1,blue\nn0,blue\nn2,\n", multilabel=True)
    assert labels.y[:3].tolist() == [[1, 1], [1, 0], [-1, -1]]
    assert (labels.classes, labels.count) == (["blue", "red"], 2)


def test_ids_that_are_no_nodes_are_named_with_their_line():
    with pytest.raises(InputError, match="no id of it is a node: the first is 'm0' \\(line 2\\)"):
        read("node,label\nm0,red\nm1,blue\n")
    with pytest.raises(InputError, match=r"line 3: no node has the id 'ghost'; 1 of 3 .*--ignore-unknown"):
        read("node,label\nn0,red\nghost,blue\nn1,blue\n")
    labels = read("node,label\nn0,red\nghost,blue\nn1,blue\n", ignore_unknown=True)
    assert as_dict(labels) == {"n0": "red", "n1": "blue"}
    assert "1 of 3 ids are no nodes and were left out, the first is 'ghost' (line 3)" in labels.notices[0]


@pytest.mark.parametrize("word", ["NaN", "null", "NA", "None", "-1"])
def test_words_for_nothing_are_classes_and_said_to_be(word):
    labels = read(f"n0,{word}\nn1,red\n")
    assert word in labels.classes
    assert f"'{word}' was taken as the name of a class" in labels.notices[0]


def test_arrays_without_ids_are_in_the_order_of_the_nodes(tmp_path):
    np.savez(tmp_path / "y.npz", y=np.array([0, 1, -1, -1, 0, 1, -1, 2]))
    labels = read_labels(tmp_path / "y.npz", GRAPH)
    assert labels.y.tolist() == ["0", "1", None, None, "0", "1", None, "2"]
    assert "in the order of the nodes" in labels.notices[0]
    np.savez(tmp_path / "y.npz", y=np.array([0, 1]))
    with pytest.raises(InputError, match="8 texts or whole numbers"):
        read_labels(tmp_path / "y.npz", GRAPH)
    np.savez(tmp_path / "y.npz", other=np.arange(8))
    with pytest.raises(InputError, match="no array called labels or y; it holds 'other'"):
        read_labels(tmp_path / "y.npz", GRAPH)


def test_gaps_in_parquet_are_blank_and_whole_numbers_beside_them_stay_whole(tmp_path):
    table = pa.table({"label": pa.array([3.0, None, 1.0]), "node": ["n0", "n1", "n2"]})
    pq.write_table(table, tmp_path / "y.parquet")
    assert as_dict(read_labels(tmp_path / "y.parquet", GRAPH)) == {"n0": "3", "n2": "1"}
    pq.write_table(pa.table({"node": ["n0", "n1"], "label": [[1], [2]]}), tmp_path / "y.parquet")
    with pytest.raises(InputError, match=r"row 1: .* is not a label"):
        read_labels(tmp_path / "y.parquet", GRAPH)


def test_packed_files_and_other_encodings_are_read(tmp_path):
    (tmp_path / "y.csv.gz").write_bytes(gzip.compress(b"n0,red\nn1,blue\n"))
    assert read_labels(tmp_path / "y.csv.gz", GRAPH).count == 2
    assert read("n0,caf\xe9\nn1,x\n".encode("latin-1"), encoding="latin-1").classes == ["café", "x"]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (b"", "is empty: it has no labels"),
        (b"node,label\n", "only a header"),
        (b"node,label\nn0,red\nn1\n", "line 3: 1 column, where the first line has 2"),
        (b"node,label\nn0,red\n,blue\n", "line 3, column 1 ('node'): the id is empty"),
        (b"n0,caf\xe9\nn1,x\n", "line 1, column 2: not UTF-8"),
        (b'n0,red\nn1,"blue\n', "a quote is never closed"),
        (b"n0,red\nn1,bl\0ue\n", "line 2, column 2: a NUL byte"),
        (b"PK\3\4", "zip archive"),
    ],
)
def test_what_is_wrong_with_a_file_is_said_with_its_place(text, words):
    with pytest.raises(InputError) as error:
        read(text)
    assert words in str(error.value)


def test_a_hostile_archive_is_refused(tmp_path):
    np.savez(tmp_path / "y.npz", labels=np.array([{"a": 1}], object))
    with pytest.raises(InputError, match="unpickled"):
        read_labels(tmp_path / "y.npz", GRAPH)
    whole = (tmp_path / "y.npz").read_bytes()
    rng = random.Random(0)
    for _ in range(50):
        broken = bytearray(whole)
        broken[rng.randrange(len(broken))] ^= 1 << rng.randrange(8)
        with pytest.raises(InputError):
            read(bytes(broken[: rng.randrange(1, len(broken))]) or b"")
    with pytest.raises(InputError, match="is a folder, not a table"):
        read_labels(tmp_path, GRAPH)
    with pytest.raises(InputError, match=r"no such file; did you mean 'y\.npz'"):
        read_labels(tmp_path / "yy.npz", GRAPH)
    with pytest.raises(InputError, match="not a whole NPZ file"):
        npz_arrays("y.npz", whole[:40])


def test_nodes_to_choose_by_take_their_labels_from_either_file():
    labels = read("n0,red\nn1,blue\nn2,red\nn3,blue\n")
    both, nodes = with_validation(labels, read("n2\nn3\n"), GRAPH)
    assert (nodes.tolist(), both.count) == ([2, 3], 4)
    both, nodes = with_validation(labels, read("node,label\nn2,red\nn5,blue\n"), GRAPH)
    assert (nodes.tolist(), both.y[5], both.count) == ([2, 5], "blue", 5)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("node\nn2\nn5\n", ["line 3", "'n5' has no label"]),
        ("n2,blue\n", ["line 1", "'n2'", "'blue' here and 'red'"]),
    ],
)
def test_nodes_to_choose_by_without_a_label_are_named(text, words):
    labels = read("n0,red\nn1,blue\nn2,red\nn3,blue\n")
    with pytest.raises(InputError) as error:
        with_validation(labels, read(text), GRAPH)
    assert all(word in str(error.value) for word in words)
