"""Text to graph: as a naive parser reads it, compiled or not, for any pieces and any threads."""

from __future__ import annotations

import bz2
import csv
import gzip
import io
import itertools
import lzma

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import fastgrl as fg
from fastgrl.errors import ArgumentError, FastgrlWarning, InputError
from fastgrl.io import read, text
from fastgrl.io.records import PlainScanner

QUICK = settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@pytest.fixture(params=["as installed", "plain"])
def engine(request, monkeypatch):
    if request.param == "plain":
        monkeypatch.setattr("fastgrl.io.text.compiled_module", lambda: None)
        monkeypatch.setattr("fastgrl.assembly.compiled_module", lambda: None)
    return request.param


def read_bytes(data: bytes, **options):
    return read(io.BytesIO(data), **options)


def pairs_of(reading) -> list[tuple[str, str]]:
    ids = reading.graph.node_ids
    return [tuple(ids[list(pair)]) for pair in reading.graph.edge_codes()]


ID = st.text(
    st.sampled_from(list("ab01 9.,;|\t\"'#%\n\r-é北\u200b")) | st.characters(exclude_categories=["Cs", "Cc"]),
    min_size=1,
    max_size=12,
)
ROWS = st.lists(st.tuples(ID, ID), min_size=1, max_size=12)


def written(rows, delimiter: str, line_end: str) -> bytes:
    def quoted(field: str) -> str:
        return '"' + field.replace('"', '""') + '"'

    return line_end.join(delimiter.join(map(quoted, row)) for row in rows).encode()


@given(ROWS, st.sampled_from(",;|\t "), st.sampled_from(["\n", "\r\n", "\r"]), st.integers(3, 40))
@QUICK
def test_any_text_in_quotes_comes_back_exactly(engine, rows, delimiter, line_end, piece):
    data = written(rows, delimiter, line_end)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(text, "_PIECE", piece)
        reading = read_bytes(data, delimiter=delimiter, header=False, directed=True, unweighted=True)
    assert reading.graph.node_ids.tolist() == list(dict.fromkeys(itertools.chain(*rows)))
    assert sorted(pairs_of(reading)) == sorted(set(rows))
    assert reading.rows == len(rows)
    assert reading.graph.repeats == len(rows) - len(set(rows))


def has_stray_quotes(body: str) -> bool:
    try:
        list(csv.reader(io.StringIO(body, newline=""), strict=True))
    except csv.Error:
        return True
    return False


LINE = st.text(st.sampled_from(list('ab7",;# \t')), max_size=10)


@given(st.lists(LINE, max_size=10), st.sampled_from(["\n", "\r\n", "\r"]))
@QUICK
def test_counts_agree_with_the_standard_library_parser(engine, lines, line_end):
    # Without blanks and signs of comments, csv.reader reads the same language, except for what we refuse.
    body = line_end.join(line.replace(" ", "").replace("\t", "").replace("#", "") for line in lines)
    naive = [row for row in csv.reader(io.StringIO(body, newline="")) if row]
    try:
        reading = read_bytes(body.encode(), delimiter=",", header=False, comment="none", directed=True)
    except InputError:
        assert has_stray_quotes(body) or not naive or any(len(row) != 2 or "" in row for row in naive)
        return
    assert reading.rows == len(naive)
    assert sorted({tuple(row[:2]) for row in naive}) == sorted(pairs_of(reading))


def outcome(data: bytes, **options):
    """Everything a caller can see."""
    try:
        reading = read_bytes(data, **options)
    except (InputError, ArgumentError) as error:
        return "refused", str(error).split(":")[0].split(",")[:2]
    graph = reading.graph
    weights = None if graph.weights is None else graph.weights.tolist()
    return reading.rows, graph.node_ids.tolist(), graph.edge_codes().tolist(), weights, reading.notices


ANYTHING = st.binary(max_size=80) | st.text(st.sampled_from(list('ab01.,;| \t"#%\n\r-+e')), max_size=80).map(
    str.encode
)


@given(ANYTHING, st.integers(2, 30), st.sampled_from([None, ",", "tab", "space"]))
@settings(max_examples=400, deadline=None)
def test_any_bytes_are_read_alike_or_refused_by_both_readers(data, piece, delimiter):
    results = []
    for plain in (False, True):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(text, "_PIECE", piece)
            if plain:
                patch.setattr("fastgrl.io.text.compiled_module", lambda: None)
                patch.setattr("fastgrl.assembly.compiled_module", lambda: None)
            results.append(outcome(data, delimiter=delimiter))
    assert results[0] == results[1]


@given(ANYTHING.map(lambda data: data.replace(b"\0", b"")), st.integers(2, 30))
@settings(max_examples=200, deadline=None)
def test_pieces_and_threads_change_nothing(data, piece):
    whole = outcome(data, n_threads=1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(text, "_PIECE", piece)
        assert all(outcome(data, n_threads=threads) == whole for threads in (1, 3))


def test_a_large_file_has_the_same_graph_for_any_threads_and_reader(tmp_path, monkeypatch):
    rng = np.random.default_rng(0)
    pairs = rng.integers(0, 3000, (20_000, 2))
    path = tmp_path / "edges.csv"
    path.write_text("".join(f"n{u},{v},{w}\n" for (u, v), w in zip(pairs, rng.random(20_000), strict=True)))
    monkeypatch.setattr(text, "_PIECE", 10_000)
    graphs = [read(path, n_threads=threads, header=False).graph for threads in (1, 2, 4)]
    monkeypatch.setattr("fastgrl.io.text.compiled_module", lambda: None)
    graphs.append(read(path, header=False).graph)
    for graph in graphs[1:]:
        assert graph.node_ids.tolist() == graphs[0].node_ids.tolist()
        np.testing.assert_array_equal(graph.indices, graphs[0].indices)
        np.testing.assert_array_equal(graph.weights, graphs[0].weights)


@pytest.mark.parametrize("pack", [gzip.compress, bz2.compress, lzma.compress, "zstd"])
def test_packed_files_are_read_by_their_content(engine, pack, tmp_path):
    if pack == "zstd":
        zstandard = pytest.importorskip("zstandard", reason="zstd needs the extra [io]")
        pack = zstandard.compress
    data = b"a,b\n" * 5 + b"b,c\n"
    path = tmp_path / "edges.anything"
    path.write_bytes(pack(data))
    assert fg.read_graph(path).num_edges == 2
    packed = pack(data * 1000)
    for cut in (len(packed) // 2, len(packed) - 1):
        with pytest.raises(InputError, match="damaged"):
            read_bytes(packed[:cut])


ACCEPTED = {
    "header by name": (b"weight,target,source\n2,b,a\n", {}, [("a", "b")], [2.0]),
    "header by content": (b"x,y\n1,2\n2,3\n", {}, [("1", "2"), ("2", "3")], None),
    "snake case header": (b"user_id,friend_id\nann,bob\n", {}, [("ann", "bob")], None),
    "numbered names are ids": (
        b"node1,node2\nnode3,node4\n",
        {},
        [("node1", "node2"), ("node3", "node4")],
        None,
    ),
    "names seen again are ids": (
        b"left\tright\nright\tleft\nleft\tup\n",
        {},
        [("left", "right"), ("left", "up")],
        None,
    ),
    "u and v above numbers": (b"u,v\n0,1\n1,2\n", {}, [("0", "1"), ("1", "2")], None),
    "i, j and weight": (b"i,j,weight\n1,2,0.5\n", {}, [("1", "2")], [0.5]),
    "decimal comma, no header": (b"a;b;0,5\nb;c;1,25\n", {}, [("a", "b"), ("b", "c")], [0.5, 1.25]),
    "no header": (b"ann,bob\nbob,eve\n", {}, [("ann", "bob"), ("bob", "eve")], None),
    "letters are ids": (b"u,v\nv,w\n", {}, [("u", "v"), ("v", "w")], None),
    "header forced": (b"ann,bob\nbob,eve\n", {"header": True}, [("bob", "eve")], None),
    "third column": (b"1 2 .5\n2 3 1e-3\n", {}, [("1", "2"), ("2", "3")], [0.5, 0.001]),
    "unweighted": (b"1 2 .5\n2 3 1e-3\n", {"unweighted": True}, [("1", "2"), ("2", "3")], None),
    "comments": (b"% a\n% b\na b\n%x\n", {}, [("a", "b")], None),
    "columns by number": (b"9,a,b\n8,b,c\n", {"columns": "2,3"}, [("a", "b"), ("b", "c")], None),
    "columns with weight": (b"9,a,b\n8,b,c\n", {"columns": "2,3,1"}, [("a", "b"), ("b", "c")], [9.0, 8.0]),
    "hash is an id": (b"#a,#b\n", {"comment": "none"}, [("#a", "#b")], None),
    "decimal comma": (b"source;target;weight\na;b;0,5\n", {}, [("a", "b")], [0.5]),
    "colon": (b"a:b\nb:c\n", {"delimiter": ":"}, [("a", "b"), ("b", "c")], None),
    "latin-1": ("é,b\n".encode("latin-1"), {"encoding": "latin-1"}, [("é", "b")], None),
    "utf-16": ("é,b\n".encode("utf-16"), {}, [("é", "b")], None),
    "byte order mark": ("\ufeffsource,target\na,b\n".encode(), {}, [("a", "b")], None),
    "arrows": (b"a -> b\nb -> c\n", {"columns": (1, 3)}, [("a", "b"), ("b", "c")], None),
    "one line, no end": (b"a b", {}, [("a", "b")], None),
}


@pytest.mark.parametrize("name", ACCEPTED)
def test_layouts_are_understood(engine, name):
    data, options, pairs, weights = ACCEPTED[name]
    reading = read_bytes(data, **options)
    assert pairs_of(reading) == pairs
    found = reading.graph.edge_weights()
    assert (None if found is None else found.tolist()) == weights


REFUSED = {
    "ragged": (b"a,b\nb,c\nc\n", {}, "line 3: 1 column"),
    "empty id": (b"source,target\na,b\n,c\n", {}, r"line 3, column 1 \('source'\): the id is empty"),
    "not a number": (b"source,target,weight\na,b,x\n", {}, r"line 2, column 3 \('weight'\): the weight 'x'"),
    "negative": (b"source,target,weight\na,b,-1\n", {}, "negative"),
    "infinite": (b"source,target,weight\na,b,1e999\n", {}, "not finite"),
    "hexadecimal": (b"source,target,weight\na,b,0x10\n", {}, "not a number"),
    "unclosed": (b'a,b\n"b,c\nc,d\n', {}, "line 2, column 1: a quote is never closed"),
    "after a quote": (b'a,b\n"b"x,c\n', {}, "line 2, column 1: more follows"),
    "nul": (b"a,b\nb\0,c\n", {}, "line 2, column 1: a NUL"),
    "not utf-8": (b"a,b\n\xe9,c\n", {}, "line 2, column 1: not UTF-8"),
    "maybe a comment after blanks": (b"a,b\n #b,c\n", {}, "line 2 begins with #"),
    "digit as delimiter": (b"152\n", {"delimiter": "5"}, "delimiter must be"),
    "comment as delimiter": (b"a;b\n", {"delimiter": ";", "comment": ";"}, "delimiter must be"),
    "codec for no text": (b"a,b\n", {"encoding": "hex"}, "not known"),
    "number for a delimiter": (b"a,b\n", {"delimiter": 5}, "delimiter must be text"),
    "number for columns": (b"a,b\n", {"columns": 5}, "columns must be"),
    "maybe a comment": (b"a,b\n#b,c\n", {}, "line 2 begins with #"),
    "no such column": (b"source,target,wieght\na,b,1\n", {"weight": "weight"}, "did you mean 'wieght'"),
    "name without header": (b"1,2,3\n", {"weight": "w"}, "no header"),
    "contradiction": (b"a,b,1\n", {"weight": "3", "unweighted": True}, "contradict"),
    "same column": (b"a,b\n", {"columns": "1,1"}, "same column"),
    "only a header": (b"source,target\n", {}, "only a header"),
    "delimiter": (b"a,b\n", {"delimiter": "::"}, "delimiter must be"),
    "encoding": (b"a,b\n", {"encoding": "klingon"}, "not known"),
    "arrows": (b"a -> b\nb -> c\n", {}, "--columns 1,3"),
    "json": (b'{"source": "a", "target": "b"}\n', {}, "looks like JSON"),
    "binary": (b"\x01\x02\0\x03", {}, "NUL"),
    "html": (b"<!DOCTYPE html><html>", {}, "web page"),
    "unlisted node": (b"a,b\nb,c\n", {"nodes": ["a", "b"]}, "names 'c'"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_read_is_refused_with_its_place(engine, name):
    data, options, message = REFUSED[name]
    with pytest.raises((InputError, ArgumentError), match=message):
        read_bytes(data, **options)


def test_the_line_of_a_late_error_counts_every_line(engine, monkeypatch):
    monkeypatch.setattr(text, "_PIECE", 50)
    data = b"# head\nsource,target\n\n" + b'"a\nb",c\n' * 30 + b"x\n"
    with pytest.raises(InputError, match="line 64: 1 column"):
        read_bytes(data)


def test_a_record_without_end_is_refused_before_memory_is_spent(engine, monkeypatch):
    monkeypatch.setattr(text, "LONGEST_RECORD", 1000)
    monkeypatch.setattr(text, "_PIECE", 100)
    with pytest.raises(InputError, match="line 2"):
        read_bytes(b'a,b\n"' + b"x" * 10_000)
    with pytest.raises(InputError, match="line 2"):
        read_bytes(b"a,b\n" + b"x" * 400_000)


def test_what_is_odd_is_warned_of():
    cases = {
        b"source,target,weight\na,b,1\nb,a,2\n": "1 repeat",
        b"source,target,weight\na,b,0\n": "weight 0",
        b"a, b\nb, c\n": "blanks around 2 fields",
        b"a,b\n# note\nb,c\n": "counted as comments",
        b"1,2,-3,7\n": "not used: 3, 4",
    }
    for data, message in cases.items():
        with pytest.warns(FastgrlWarning, match=message):
            fg.read_graph(io.BytesIO(data))


def test_a_time_is_not_a_weight():
    reading = read_bytes(b"1 2 1318272000\n2 3 1318272001\n")
    assert reading.graph.weights is None
    assert "not used" in reading.notices[0]


def test_nodes_come_from_a_file_or_a_list(tmp_path, engine):
    nodes = tmp_path / "nodes.csv"
    nodes.write_text("id,colour\nlone,red\nb,blue\na,red\n")
    for listed in (nodes, ["lone", "b", "a"]):
        graph = fg.read_graph(io.BytesIO(b"a,b\n"), nodes=listed)
        assert graph.node_ids.tolist() == ["lone", "b", "a"]
        assert graph.degrees.tolist() == [0, 1, 1]
    nodes.write_text("New York\nRome\n")
    assert fg.read_graph(io.BytesIO(b"New York,Rome\n"), nodes=nodes).num_nodes == 2


def test_progress_reaches_the_end(tmp_path, monkeypatch):
    monkeypatch.setattr(text, "_PIECE", 100)
    path = tmp_path / "edges.txt"
    path.write_text("a b\n" * 1000)
    calls = []
    fg.read_graph(path, progress=lambda done, total: calls.append((done, total)))
    assert calls[-1] == (4000, 4000)
    assert calls == sorted(calls)


def test_matrices_are_read_with_their_direction(tmp_path):
    upper = sp.csr_array(([2.0, 3.0], ([0, 1], [1, 2])), shape=(3, 3))
    sp.save_npz(tmp_path / "upper.npz", upper)
    with pytest.warns(FastgrlWarning, match="not symmetric"):
        graph = fg.read_graph(tmp_path / "upper.npz")
    assert (graph.directed, graph.num_edges, graph.edge_weights().tolist()) == (False, 2, [2.0, 3.0])
    assert fg.read_graph(tmp_path / "upper.npz", directed=True).directed
    sp.save_npz(tmp_path / "both.npz", upper + upper.T)
    graph = fg.read_graph(tmp_path / "both.npz")
    assert (graph.directed, graph.edge_weights().tolist()) == (False, [2.0, 3.0])


BAD_MATRICES = {
    "index too large": {"indices": [1, 7]},
    "negative index": {"indices": [1, -1]},
    "falling pointer": {"indptr": [0, 2, 1, 2]},
    "pointer too long": {"indptr": [0, 1, 2, 9]},
    "pointer too short": {"indptr": [0, 2]},
    "objects": {"data": np.array([1, "x"], object)},
    "not finite": {"data": [1.0, np.nan]},
    "negative weight": {"data": [1.0, -1.0]},
    "two-dimensional": {"indices": [[1, 0]]},
    "shape of three": {"shape": [3, 3, 3]},
    "huge shape": {"shape": [2**61, 2**61]},
    "fractions": {"indices": [0.5, 1.0]},
}


@pytest.mark.parametrize("name", BAD_MATRICES)
def test_a_damaged_matrix_is_a_clean_error(tmp_path, name):
    parts = {"format": b"csr", "shape": [3, 3], "indptr": [0, 1, 2, 2], "indices": [1, 0], "data": [1.0, 1.0]}
    path = tmp_path / "graph.npz"
    np.savez(path, **{key: np.asarray(value) for key, value in (parts | BAD_MATRICES[name]).items()})
    with pytest.raises(InputError, match=r"graph\.npz"):
        fg.read_graph(path)


def test_a_header_that_lies_about_its_size_asks_for_no_memory(tmp_path):
    buffer = io.BytesIO()
    np.save(buffer, np.zeros((2, 2), np.int64))
    whole = buffer.getvalue()
    huge = whole.replace(b"(2, 2), }" + b" " * 9, b"(999999999, 2), }" + b" ")
    assert huge != whole
    assert len(huge) == len(whole)
    for data in (huge, whole.replace(b"(2, 2)", b"(2, (("), whole[:-1]):
        (tmp_path / "edges.npy").write_bytes(data)
        with pytest.raises(InputError, match=r"edges\.npy"):
            fg.read_graph(tmp_path / "edges.npy")


@pytest.mark.parametrize(
    "size_line", [b"3 3 999999999", b"999999999 999999999 1", b"-3 3 1", b"3 3", b"3 4 1"]
)
def test_a_matrix_market_file_cannot_promise_more_than_it_holds(tmp_path, size_line):
    path = tmp_path / "graph.mtx"
    path.write_bytes(b"%%MatrixMarket matrix coordinate pattern general\n% note\n" + size_line + b"\n1 2\n")
    with pytest.raises(InputError, match=r"graph\.mtx"):
        fg.read_graph(path)


MARKET = b"%%MatrixMarket matrix coordinate "
MATRICES = {
    "pattern": (b"pattern symmetric\n3 3 2\n2 1\n% note\n3 3\n", {}, [(0, 1), (2, 2)], None, 0),
    "real": (b"real general\n\n3 3 2\n1 2 .5\n2 1 .5\n", {}, [(0, 1)], [0.5], 0),
    "directed": (b"integer general\n3 3 1\n1 2 4\n", {"directed": True}, [(0, 1)], [4.0], 0),
    "repeats": (b"pattern general\n2 2 4\n1 2\n1 2\n2 1\n2 1\n", {}, [(0, 1)], None, 2),
}


@pytest.mark.parametrize("name", MATRICES)
def test_matrix_market_entries_are_edges(tmp_path, name, engine):
    body, options, pairs, weights, repeats = MATRICES[name]
    (tmp_path / "graph.mtx").write_bytes(MARKET + body)
    graph = read(tmp_path / "graph.mtx", **options).graph
    assert list(map(tuple, graph.edge_codes().tolist())) == pairs
    assert (None if graph.weights is None else graph.edge_weights().tolist()) == weights
    assert graph.repeats == repeats


@pytest.mark.parametrize(
    "body",
    [
        b"integer general\n3 3 1\n1 2 0.5\n",
        b"pattern general\n3 3 1\n1 2 5\n",
        b"real general\n3 3 1\n1 2 3 4\n",
        b"real general\n3 3 1\n1 4 1\n",
        b"real general\n3 3 1\n0 1 1\n",
        b"real general\n3 3 1\n1 x 1\n",
        b"real general\n3 3 2\n1 2 1\n",
        b"complex general\n3 3 1\n1 2 1 1\n",
        b"real skew-symmetric\n3 3 1\n2 1 1\n",
    ],
)
def test_matrix_market_entries_that_do_not_fit_are_refused(tmp_path, body):
    (tmp_path / "graph.mtx").write_bytes(MARKET + body)
    with pytest.raises(InputError, match=r"graph\.mtx"):
        fg.read_graph(tmp_path / "graph.mtx")


def test_an_archive_that_unpacks_to_a_thousand_times_its_size_is_refused(tmp_path):
    path = tmp_path / "graph.npz"
    np.savez_compressed(path, indices=np.zeros(20_000_000, np.int64))
    with pytest.raises(InputError, match="would unpack to"):
        fg.read_graph(path)


def test_options_that_a_format_cannot_honour_are_refused(tmp_path):
    np.save(tmp_path / "edges.npy", np.array([[0, 1]]))
    sp.save_npz(tmp_path / "graph.npz", sp.csr_array(np.ones((2, 2))))
    for options in ({"weight": "w"}, {"columns": "1,2"}, {"delimiter": ","}, {"header": True}):
        for name in ("edges.npy", "graph.npz"):
            with pytest.raises(InputError, match="cannot be chosen"):
                fg.read_graph(tmp_path / name, **options)
    with pytest.raises(ArgumentError, match="once"):
        fg.read_graph("-", nodes="-")


def test_integers_that_a_float_cannot_tell_apart_are_refused(tmp_path):
    for dtype, largest in ((np.float16, 2**11), (np.float32, 2**24), (np.float64, 2**53)):
        np.save(tmp_path / "edges.npy", np.array([[largest, 1]], dtype))
        with pytest.raises(InputError, match="not an integer id"):
            fg.read_graph(tmp_path / "edges.npy")
        np.save(tmp_path / "edges.npy", np.array([[largest - 1, 1]], dtype))
        assert fg.read_graph(tmp_path / "edges.npy").node_ids.tolist() == [largest - 1, 1]


def test_two_parquet_columns_of_one_name_are_refused(tmp_path):
    pyarrow = pytest.importorskip("pyarrow", reason="Parquet needs the extra [io]")
    parquet = pytest.importorskip("pyarrow.parquet", reason="Parquet needs the extra [io]")
    table = pyarrow.Table.from_arrays([pyarrow.array([1, 2]), pyarrow.array([3, 4])], names=["a", "a"])
    parquet.write_table(table, tmp_path / "edges.parquet")
    with pytest.raises(InputError, match="several columns called 'a'"):
        fg.read_graph(tmp_path / "edges.parquet")


def test_plain_and_compiled_scanners_find_the_same_last_record():
    compiled = text.compiled_module()
    dialect = {
        "delimiter": ",",
        "quoting": True,
        "comment": "",
        "ask_about_hash": True,
        "columns": 2,
        "source": 0,
        "target": 1,
        "weight": -1,
        "decimal": ".",
    }
    make = PlainScanner if compiled is None else compiled.Scanner
    for data in (b'a,"b\n', b'a,b\n"c', b"a,b\r\nc,d\r", b"a,b\rc", b"", b'a,b\n"c"x,d\ne,f\ng'):
        assert make(**dialect).last_record_end(data) == PlainScanner(**dialect).last_record_end(data)


@pytest.mark.parametrize(
    ("data", "options", "said"),
    [
        (b"person,friend\nann,bob\nbob,eve\neve,ann\nann,joe\n", {}, True),
        (b"person,friend\nann,bob\nbob,eve\neve,ann\nann,joe\n", {"header": False}, False),
        (b"ann,bob\nbob,eve\neve,ann\nann,joe\njoe,eve\n", {}, False),
        (b"ann,ann\nbob,eve\neve,bob\nbob,joe\njoe,eve\n", {}, False),
        (b"900,901\n1,2\n2,3\n3,1\n1,4\n", {}, False),
        (b"a,b\nnew,ann\nnew,bob\n", {}, True),
        (b"ann,bob\neve,joe\nkim,lee\n", {}, False),
    ],
)
def test_a_first_line_that_may_be_a_header_is_kept_as_an_edge_and_said(data, options, said):
    reading = read_bytes(data, **options)
    assert any("is it a header (--header)?" in notice for notice in reading.notices) is said
    assert reading.rows == data.count(b"\n")
