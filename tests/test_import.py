"""Importing: the graph that reading gives, in any memory, and nothing left behind by what goes wrong."""

from __future__ import annotations

import csv
import gzip
import io
import os
import signal
import subprocess
import sys
import time
import warnings
from contextlib import suppress

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fastgrl as fg
from fastgrl.errors import ArgumentError, FastgrlWarning, InputError, UnavailableError
from fastgrl.io import spooling
from fastgrl.io.folders import open_graph
from fastgrl.io.importing import import_graph
from fastgrl.io.records import PlainIdTable, PlainScanner
from fastgrl.io.spooling import Plan
from fastgrl.io.writers import write_graph
from fastgrl.kernels import compiled_module
from fastgrl.ordering import canonical_order, reordered

ID = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1, max_size=3)


@st.composite
def edge_lists(draw):
    """A CSV text of edges, whether it has weights, and a list of nodes or None."""
    ids = draw(st.lists(ID, min_size=1, max_size=10, unique=True))
    edges = draw(st.lists(st.tuples(*[st.sampled_from(ids)] * 2), min_size=1, max_size=25))
    weights = draw(
        st.one_of(st.none(), st.lists(st.floats(0, 1e9), min_size=len(edges), max_size=len(edges)))
    )
    page = io.StringIO()
    writer = csv.writer(page, quoting=csv.QUOTE_ALL, lineterminator="\n")
    names = ["source", "target", "weight"][: 2 + (weights is not None)]
    writer.writerow(names)
    writer.writerows(
        [*edge, *(() if weights is None else (repr(weights[i]),))] for i, edge in enumerate(edges)
    )
    used = sorted({item for edge in edges for item in edge})
    nodes = draw(st.one_of(st.none(), st.permutations([*used, *(set(ids) - set(used)), "without edges"])))
    return page.getvalue().encode(), nodes


def read_in_order(source, **options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FastgrlWarning)
        graph = fg.read_graph(source, **options)
    order = canonical_order(graph.node_ids)
    return (graph if order is None else reordered(graph, order)), graph.repeats


def assert_same(found, wanted, repeats):
    assert np.array_equal(found.indptr, wanted.indptr)
    assert np.array_equal(found.indices, wanted.indices)
    assert (found.weights is None) == (wanted.weights is None)
    assert found.weights is None or found.weights.tobytes() == wanted.weights.tobytes()
    assert found.node_ids.tolist() == wanted.node_ids.tolist()
    assert found.node_ids.dtype == wanted.node_ids.dtype
    assert (found.directed, found.repeats) == (wanted.directed, repeats)
    assert (found.num_edges, found.num_self_loops) == (wanted.num_edges, wanted.num_self_loops)


def random_text(edges, nodes, seed=0):
    u, v = np.random.default_rng(seed).integers(0, nodes, (2, edges))
    return "".join(f"n{a},n{b}\n" for a, b in zip(u.tolist(), v.tolist(), strict=True)).encode()


@given(edge_lists(), st.booleans())
@settings(max_examples=30, deadline=None)
def test_an_imported_graph_is_the_one_that_is_read(tmp_path_factory, text_and_nodes, directed):
    text, nodes = text_and_nodes
    folder = tmp_path_factory.mktemp("imported") / "graph"
    found = import_graph(io.BytesIO(text), folder, directed=directed, nodes=nodes)
    graph, (wanted, repeats) = (
        open_graph(folder),
        read_in_order(io.BytesIO(text), directed=directed, nodes=nodes),
    )
    assert_same(graph, wanted, repeats)
    assert (found.nodes, found.edges, found.repeats) == (graph.num_nodes, graph.num_edges, repeats)
    assert found.rows == graph.num_edges + repeats
    assert os.listdir(folder.parent) == ["graph"]


@given(edge_lists(), st.booleans(), st.integers(1, 400), st.integers(1, 8), st.integers(1, 64))
@settings(max_examples=25, deadline=None)
def test_no_plan_changes_a_byte(tmp_path_factory, text_and_nodes, directed, bucket, block, piece):
    text, nodes = text_and_nodes
    place = tmp_path_factory.mktemp("plans")
    import_graph(io.BytesIO(text), place / "usual", directed=directed, nodes=nodes)
    plan = Plan(None, piece=piece, tables=None, block=block, bucket=bucket)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Plan, "within", lambda *_: plan)
        import_graph(io.BytesIO(text), place / "other", directed=directed, nodes=nodes, n_threads=2)
    for path in (place / "usual").iterdir():
        assert path.read_bytes() == (place / "other" / path.name).read_bytes()


def test_short_memory_goes_on_with_one_scanner(tmp_path, monkeypatch):
    text = random_text(60000, 3000)
    monkeypatch.setattr("fastgrl.io.text._SAMPLE", 1 << 12)
    monkeypatch.setattr(spooling.Spool, "_check_memory", lambda self, *_: len(self._parts) > 3)
    monkeypatch.setattr(
        Plan, "within", lambda *_: Plan(None, piece=1 << 13, tables=None, block=5000, bucket=10**5)
    )
    import_graph(io.BytesIO(text), tmp_path / "graph", n_threads=3)
    assert_same(open_graph(tmp_path / "graph"), *read_in_order(io.BytesIO(text)))


def test_every_reading_option_means_what_it_means_to_reading(tmp_path):
    texts = {
        "header": (b"a,b\nc,d\n", {"header": True}),
        "delimiter": (b"a|b c\nb c|d\n", {"delimiter": "|"}),
        "columns": (b"x,a,b\ny,b,c\n", {"columns": "2,3"}),
        "weight": (b"a,b,0.5\nb,c,2\n", {"weight": 3}),
        "unweighted": (b"a,b,0.5\nb,c,2\n", {"unweighted": True}),
        "comment": (b"% x\na b\nb c\n", {"comment": "%"}),
        "encoding": ("é,b\nb,ü\n".encode("latin-1"), {"encoding": "latin-1"}),
        "packed": (gzip.compress(b"a,b\nb,c\n"), {}),
        "windows": (b"\xef\xbb\xbfsource;target\r\na;b\r\n b;c\r\n", {}),
    }
    for name, (text, options) in texts.items():
        found = import_graph(io.BytesIO(text), tmp_path / name, **options)
        assert_same(open_graph(tmp_path / name), *read_in_order(io.BytesIO(text), **options))
        read = fg.io.read(io.BytesIO(text), **options)
        assert (found.layout, found.notices, found.rows) == (read.layout, read.notices, read.rows)


def test_notices_are_those_of_reading(tmp_path):
    text = b"source,target,weight\na,b,1\n# so\na,b,2\nb, c,0\n"
    found = import_graph(io.BytesIO(text), tmp_path / "graph")
    assert found.notices == fg.io.read(io.BytesIO(text)).notices
    assert len(found.notices) == 4


@pytest.mark.parametrize("kind", ["text", "int64", "int32", "uint64", "far apart", "mixed", "float64"])
@pytest.mark.parametrize("weighted", [False, True])
def test_parquet_is_read_in_pieces_with_the_types_it_has(tmp_path, monkeypatch, kind, weighted):
    arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    u, v = np.random.default_rng(1).integers(0, 30, (2, 200))
    columns = {"source": u, "target": v}
    if kind == "text":
        columns = {name: arrow.array([f"n{i}é" for i in side]) for name, side in columns.items()}
    elif kind == "far apart":
        columns = {name: side * 10**15 - 7 for name, side in columns.items()}
    elif kind == "mixed":
        columns = {"source": u.astype(np.int32), "target": v}
    else:
        columns = {name: side.astype(kind) for name, side in columns.items()}
    if weighted:
        columns["weight"] = np.random.default_rng(2).random(200)
    parquet.write_table(arrow.table(columns), tmp_path / "edges.parquet", row_group_size=70)
    monkeypatch.setattr(Plan, "within", lambda *_: Plan(None, piece=64, tables=None, block=50, bucket=3000))
    found = import_graph(tmp_path / "edges.parquet", tmp_path / "graph")
    assert_same(open_graph(tmp_path / "graph"), *read_in_order(tmp_path / "edges.parquet"))
    read = fg.io.read(tmp_path / "edges.parquet")
    assert (found.layout, found.notices, found.rows) == (read.layout, read.notices, read.rows)


def test_what_is_wrong_with_a_parquet_file_is_said_with_its_row(tmp_path, monkeypatch):
    arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    monkeypatch.setattr(Plan, "within", lambda *_: Plan(None, piece=64, tables=None, block=4, bucket=3000))
    source, weight = [*range(9), None], [1.0] * 8 + [-1.0] * 2
    for column, message in (
        ({"source": source}, "row 10.*missing"),
        ({"weight": weight}, "row 9.*-1.0 is negative"),
    ):
        table = {"source": list(range(10)), "target": list(range(10)), "weight": [1.0] * 10} | column
        parquet.write_table(arrow.table(table), tmp_path / "edges.parquet")
        with pytest.raises(InputError, match=message):
            import_graph(tmp_path / "edges.parquet", tmp_path / "graph")
    assert os.listdir(tmp_path) == ["edges.parquet"]


@pytest.mark.parametrize("ending", ["npz", "npy", "mtx"])
def test_other_formats_are_read_whole(tmp_path, ending):
    graph = fg.Graph.from_codes([5, 0, 1], [0, 2, 2], weights=[1.0, 2.0, 3.0] if ending == "npz" else None)
    path = tmp_path / f"edges.{ending}"
    if ending == "npz":
        write_graph(graph, path)
    elif ending == "npy":
        np.save(path, graph.edge_codes())
    else:
        path.write_text("%%MatrixMarket matrix coordinate pattern general\n6 6 3\n6 1\n1 3\n2 3\n")
    import_graph(path, tmp_path / "graph")
    assert_same(open_graph(tmp_path / "graph"), *read_in_order(path))
    with pytest.raises(UnavailableError, match="read as a whole"):
        import_graph(path, tmp_path / "other", max_memory=100)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b"a,b\nc\n", "line 2.*1 column"),
        (b"a,b\n" * 9000 + b"c,\n", "line 9001.*empty"),
        (b"source,target,weight\na,b,x\n", "line 2.*'x'"),
        (b"source,target,weight\na,b,-1\n", "line 2"),
        (b"source,target,weight\na,b,9e307\nb,c,9e307\n", "64-bit float"),
        (b"source,target\n", "it has no edges, only a header"),
        (b"", "empty"),
        (b"a\nb\n", "one column"),
    ],
)
def test_a_bad_file_is_refused_as_reading_refuses_it_and_leaves_nothing(tmp_path, text, message):
    (tmp_path / "edges.csv").write_bytes(text)
    with pytest.raises(InputError, match=message) as caught:
        import_graph(tmp_path / "edges.csv", tmp_path / "graph")
    with pytest.raises(InputError) as read:
        fg.read_graph(tmp_path / "edges.csv")
    assert str(caught.value) == str(read.value)
    assert os.listdir(tmp_path) == ["edges.csv"]


def test_nodes_may_be_listed_in_a_file_and_must_be_complete(tmp_path):
    (tmp_path / "nodes.csv").write_text("id\nzoe\nann\nbob\n")
    import_graph(io.BytesIO(b"bob,ann\n"), tmp_path / "graph", nodes=tmp_path / "nodes.csv")
    assert open_graph(tmp_path / "graph").node_ids.tolist() == ["ann", "bob", "zoe"]
    text = b"bob,ann\nann,tom\neve,bob\n"
    with pytest.raises(InputError) as caught:
        import_graph(io.BytesIO(text), tmp_path / "other", nodes=tmp_path / "nodes.csv")
    with pytest.raises(InputError) as read:
        fg.read_graph(io.BytesIO(text), nodes=tmp_path / "nodes.csv")
    assert str(caught.value) == str(read.value)
    with pytest.raises(InputError, match="node 3 that is listed"):
        import_graph(io.BytesIO(text), tmp_path / "other", nodes=[3])
    np.save(tmp_path / "nodes.npy", np.array(["bob", "ann", "tom", "eve"]))
    import_graph(io.BytesIO(text), tmp_path / "npy", nodes=tmp_path / "nodes.npy")
    assert open_graph(tmp_path / "npy").num_nodes == 4


def test_arguments_that_make_no_sense_are_refused_before_any_work(tmp_path):
    (tmp_path / "edges.csv").write_text("a,b\n")
    refused = [
        ({"weight": 3, "unweighted": True}, "contradict"),
        ({"max_memory": 0}, "max_memory"),
        ({"delimiter": 3}, "delimiter must be text"),
        ({"n_threads": 0}, "n_threads"),
    ]
    for options, message in refused:
        with pytest.raises(ArgumentError, match=message):
            import_graph(tmp_path / "edges.csv", tmp_path / "graph", **options)
    with pytest.raises(ArgumentError, match="does not exist; make it first"):
        import_graph(tmp_path / "edges.csv", tmp_path / "nowhere" / "graph")
    with pytest.raises(ArgumentError, match="need not be imported again"):
        import_graph(tmp_path, tmp_path / "graph")
    with pytest.raises(InputError, match=r"did you mean 'edges\.csv'"):
        import_graph(tmp_path / "edge.csv", tmp_path / "graph")
    assert os.listdir(tmp_path) == ["edges.csv"]


def test_ids_beyond_the_memory_are_refused_with_a_quote(tmp_path):
    text = random_text(20000, 10000)
    with pytest.raises(UnavailableError, match=r"the ids alone need more than the 200 kB that are allowed"):
        import_graph(io.BytesIO(text), tmp_path / "graph", max_memory=200_000)
    assert os.listdir(tmp_path) == []


def test_a_row_beyond_the_memory_is_refused_with_a_quote(tmp_path):
    text = b"".join(b"hub,%d\n" % (i % 50) for i in range(200_000))
    with pytest.raises(UnavailableError, match="the node with most edges needs"):
        import_graph(io.BytesIO(text), tmp_path / "graph", max_memory=4_000_000)
    assert os.listdir(tmp_path) == []


def test_a_disk_that_is_too_small_is_said_beforehand(tmp_path, monkeypatch):
    from collections import namedtuple

    monkeypatch.setattr("shutil.disk_usage", lambda _: namedtuple("Usage", "free")(10))
    with pytest.raises(UnavailableError, match=r"more are needed on the disk.*10 bytes are free"):
        import_graph(io.BytesIO(b"a,b\nb,c\n"), tmp_path / "graph")
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("stage", ["take", "blocks", "row_lengths"])
@pytest.mark.parametrize("error", [KeyboardInterrupt, OSError])
def test_whatever_stops_an_import_leaves_nothing(tmp_path, monkeypatch, stage, error):
    def fail(*_):
        raise error(28, "No space left on device")

    monkeypatch.setattr(spooling.Spool, stage, fail)
    expected = UnavailableError if error is OSError else error
    with pytest.raises(expected):
        import_graph(io.BytesIO(b"a,b\nb,c\n"), tmp_path / "graph")
    assert os.listdir(tmp_path) == []


def test_progress_runs_once_from_the_beginning_to_the_end(tmp_path):
    (tmp_path / "edges.csv").write_bytes(random_text(2000, 100))
    seen = []
    import_graph(
        tmp_path / "edges.csv", tmp_path / "graph", progress=lambda done, total: seen.append((done, total))
    )
    done, totals = zip(*seen, strict=True)
    assert list(done) == sorted(done)
    assert set(totals) == {2 * (tmp_path / "edges.csv").stat().st_size}
    assert seen[-1][0] == seen[-1][1]


@given(st.lists(ID, max_size=30))
@settings(max_examples=25, deadline=None)
def test_the_compiled_table_and_its_twin_agree(texts):
    compiled = compiled_module()
    parts = [text.encode() for text in texts]
    offsets = np.cumsum([0, *map(len, parts)], dtype=np.int64)
    data = np.frombuffer(b"".join(parts), np.uint8)
    plain = PlainIdTable()
    numbers = plain.number(offsets, data)
    distinct = list(dict.fromkeys(texts))
    assert [distinct[i] for i in numbers] == texts
    order = plain.order()
    assert [distinct[i] for i in order] == sorted(distinct)
    if compiled is None:
        return
    table = compiled.IdTable()
    assert np.array_equal(table.number(offsets, data), numbers)
    assert (len(table), table.memory() > 0) == (len(distinct), True)
    table.forget_places()
    assert np.array_equal(table.order(), order)
    for ours, theirs in zip(table.joined(order), plain.joined(order), strict=True):
        assert np.array_equal(ours, theirs)


def test_a_table_takes_the_ids_of_scanners(tmp_path):
    compiled = compiled_module()
    dialect = {"delimiter": ",", "quoting": True, "comment": "", "ask_about_hash": False, "columns": 2}
    dialect |= {"source": 0, "target": 1, "weight": -1, "decimal": "."}
    make, table = (
        (PlainScanner, PlainIdTable()) if compiled is None else (compiled.Scanner, compiled.IdTable())
    )
    first, second = make(**dialect), make(**dialect)
    first.scan(b"a,b\nc,d\n", 0)
    second.scan(b"d,e\nb,12\n", 100)
    assert table.absorb(first).tolist() == [0, 1, 2, 3]
    assert table.absorb(second).tolist() == [3, 4, 1, 5]
    assert (len(first), len(second)) == (0, 0)
    assert table.earliest(4) == 4


IMPORT = """
import resource, sys
from fastgrl.io.importing import import_graph
import fastgrl.io.folders
baseline = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
import_graph(sys.argv[1], sys.argv[2], max_memory=int(sys.argv[3]), n_threads=2)
print(1024 * (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - baseline))
fastgrl.io.folders.open_graph(sys.argv[2])
print(1024 * (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - baseline))
"""


@pytest.mark.slow
@pytest.mark.skipif(compiled_module() is None, reason="Python's own ids take more")
def test_memory_stays_within_its_limit(tmp_path):
    with (tmp_path / "edges.csv").open("wb") as file:
        for seed in range(10):
            file.write(random_text(200_000, 50_000, seed))
    limit = 48 << 20
    run = [sys.executable, "-c", IMPORT, str(tmp_path / "edges.csv"), str(tmp_path / "graph"), str(limit)]
    done = subprocess.run(run, capture_output=True, text=True, check=True)
    imported, opened = map(int, done.stdout.split())
    assert imported < limit
    assert opened < limit
    assert_same(open_graph(tmp_path / "graph"), *read_in_order(tmp_path / "edges.csv"))


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_command_that_is_stopped_leaves_nothing(tmp_path, number):
    (tmp_path / "edges.csv").write_bytes(random_text(400_000, 50_000))
    for delay in (0.5, 1.0, 1.5):
        run = subprocess.Popen(
            [sys.executable, "-m", "fastgrl", "import", "edges.csv", "graph"],
            cwd=tmp_path,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        time.sleep(delay)
        with suppress(ProcessLookupError):
            run.send_signal(number)
        code = run.wait(timeout=60)
        left = sorted(set(os.listdir(tmp_path)) - {"edges.csv"})
        assert left in ([], ["graph"])
        # The signal may come when the folder is in place and the process about to end.
        assert left == ["graph"] or code != 0
        if left:
            open_graph(tmp_path / "graph")
            break
