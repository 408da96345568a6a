"""Graphs on disk: what is written is what is opened, and whatever was changed is refused."""

from __future__ import annotations

import json
import os
import pickle
import shutil
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fastgrl as fg
from fastgrl.assembly import Rows
from fastgrl.errors import ArgumentError, InputError, NotFiniteError, UnavailableError
from fastgrl.graph import Graph
from fastgrl.io import read
from fastgrl.io.folder_checks import examined
from fastgrl.io.folder_index import INDEX_FILE, FolderIndex
from fastgrl.io.folders import check_graph_folder, new_folder, open_graph, save_graph
from fastgrl.io.writers import write_embedding, write_graph
from fastgrl.kernels import compiled_module
from fastgrl.lazy_ids import LazyIds
from fastgrl.ordering import canonical_order, canonical_order_of, reordered

IDS = st.one_of(
    st.lists(
        st.text(st.characters(exclude_categories=["Cs"]), max_size=4), min_size=1, max_size=12, unique=True
    ),
    st.lists(st.integers(-(2**40), 2**40), min_size=1, max_size=12, unique=True),
)


@st.composite
def graphs(draw):
    ids = draw(IDS)
    ends = st.integers(0, len(ids) - 1)
    edges = draw(st.lists(st.tuples(ends, ends), max_size=30))
    u, v = np.array(edges, np.int64).reshape(-1, 2).T
    weights = draw(st.one_of(st.none(), st.lists(st.floats(0, 1e6), min_size=len(u), max_size=len(u))))
    return Graph.from_codes(u, v, weights=weights, node_ids=ids, directed=draw(st.booleans()))


def in_order(graph):
    order = canonical_order(graph.node_ids)
    return graph if order is None else reordered(graph, order)


def assert_same(found, wanted, repeats):
    assert np.array_equal(found.indptr, wanted.indptr)
    assert np.array_equal(found.indices, wanted.indices)
    assert found.indices.dtype == wanted.indices.dtype
    assert (found.weights is None) == (wanted.weights is None)
    assert found.weights is None or found.weights.tobytes() == wanted.weights.tobytes()
    assert found.node_ids.tolist() == wanted.node_ids.tolist()
    assert found.node_ids.dtype == wanted.node_ids.dtype
    assert (found.directed, found.repeats) == (wanted.directed, repeats)
    assert found.num_self_loops == wanted.num_self_loops
    assert np.array_equal(found.degrees, wanted.degrees)
    assert np.array_equal(found.edge_codes(), wanted.edge_codes())


@pytest.fixture
def stored(tmp_path):
    u, v = np.random.default_rng(5).integers(0, 40, (2, 150))
    weights = np.random.default_rng(6).random(150)
    ids = [f"n{i}é" for i in range(40)]
    save_graph(Graph.from_codes(u, v, weights=weights, node_ids=ids), tmp_path / "graph")
    return tmp_path / "graph"


@given(graphs())
@settings(max_examples=25, deadline=None)
def test_a_stored_graph_is_the_graph_in_the_order_of_its_ids(tmp_path_factory, graph):
    folder = tmp_path_factory.mktemp("stored") / "graph"
    save_graph(graph, folder)
    assert_same(open_graph(folder), in_order(graph), graph.repeats)


def test_numbers_keep_their_type(tmp_path):
    for dtype in ("int8", "uint64", "int32", "float32", "float64"):
        ids = np.array([9, 3, 5], dtype)
        save_graph(Graph.from_codes([0, 1], [1, 2], node_ids=ids), tmp_path / dtype)
        found = open_graph(tmp_path / dtype)
        assert found.node_ids.dtype == ids.dtype
        assert found.node_ids.tolist() == [3, 5, 9]


def test_ids_are_decoded_only_when_asked_for(stored):
    graph = open_graph(stored)
    assert graph.mapped
    assert canonical_order_of(graph) is None
    assert graph.ids_slice(3, 5).tolist() == sorted(f"n{i}é" for i in range(40))[3:5]
    assert isinstance(graph.ids, LazyIds)
    assert "node_ids" not in graph.__dict__
    assert graph.node_ids.tolist() == graph.ids_slice(0, 40).tolist()
    assert graph.index_of(["n7é"]) == graph.node_ids.tolist().index("n7é")
    assert "ids" in repr(graph.lazy_ids)


def test_lazy_ids_are_cut_in_runs():
    ids = LazyIds(np.arange(5))
    assert ids[1:3].tolist() == [1, 2]
    assert (len(ids), ids.dtype) == (5, np.int64)
    with pytest.raises(IndexError, match="runs"):
        ids[::2]


def test_a_graph_in_memory_has_its_ids_at_hand():
    graph = Graph.from_edges([("b", "a")])
    assert (graph.mapped, graph.lazy_ids) == (False, None)
    assert graph.ids.tolist() == ["b", "a"]
    with pytest.raises(AttributeError, match="no attribute 'nodeids'"):
        graph.nodeids  # noqa: B018


def test_a_stored_graph_can_be_pickled(stored):
    graph = open_graph(stored)
    assert_same(pickle.loads(pickle.dumps(graph)), in_order(graph), graph.repeats)


def test_nothing_can_be_written_into_a_stored_graph(stored):
    graph = open_graph(stored)
    for array in (graph.indptr, graph.indices, graph.weights, graph.node_ids):
        with pytest.raises(ValueError, match="read-only"):
            array[:1] = array[:1]


def test_reading_a_folder_says_what_is_known_of_it(stored):
    found = read(stored)
    assert found.layout["format"] == "graph on disk"
    assert found.rows == found.graph.num_edges + found.graph.repeats
    assert fg.read_graph(str(stored)).num_nodes == 40
    bare = fg.read_graph(stored, unweighted=True)
    assert bare.weights is None
    assert np.array_equal(bare.indices, found.graph.indices)
    assert np.array_equal(bare.degrees, np.diff(bare.indptr))


@pytest.mark.parametrize(
    "options",
    [
        *({"weight": 3}, {"delimiter": ","}, {"header": True}, {"columns": "1,2"}, {"comment": "#"}),
        *({"encoding": "utf-8"}, {"nodes": ["a"]}, {"directed": True}),
    ],
)
def test_options_about_files_are_refused_for_a_folder(stored, options):
    with pytest.raises(ArgumentError, match=r"graph on disk|imported without directions"):
        fg.read_graph(stored, **options)


def changed(stored, name, at, to):
    path = stored / name
    data = bytearray(path.read_bytes())
    data[at] = to
    path.write_bytes(data)


def opened_or_refused(folder):
    try:
        return open_graph(folder), ""
    except InputError as error:
        return None, str(error)


def test_any_changed_byte_is_refused_or_harmless(stored, tmp_path):
    whole = open_graph(stored)
    contents = {path.name: path.read_bytes() for path in stored.iterdir()}
    random = np.random.default_rng(0)
    for name, data in contents.items():
        places = random.choice(len(data), min(len(data), 25), False)
        for at in places:
            flipped = data[:at] + bytes([data[at] ^ (1 << int(random.integers(8)))]) + data[at + 1 :]
            (stored / name).write_bytes(flipped)
            found, said = opened_or_refused(stored)
            # What is harmless are blanks between the fields of the index.
            assert (name in said or INDEX_FILE in said) if found is None else name == INDEX_FILE
            if found is not None:
                assert_same(found, whole, whole.repeats)
        (stored / name).write_bytes(data)


def test_cut_and_lengthened_files_are_refused(stored):
    for path in sorted(stored.iterdir()):
        data = path.read_bytes()
        for other in (b"", data[:-2], data[: len(data) // 2], data + b"\0"):
            path.write_bytes(other)
            with pytest.raises(InputError, match=path.name):
                open_graph(stored)
        path.unlink()
        with pytest.raises(InputError, match=path.name):
            open_graph(stored)
        path.mkdir()
        with pytest.raises(InputError, match=path.name):
            open_graph(stored)
        path.rmdir()
        path.write_bytes(data)
    open_graph(stored)


def test_exchanged_files_are_refused(stored, tmp_path):
    graph = open_graph(stored)
    weights = graph.weights[::-1].copy()
    other = Graph.from_codes(*np.array([[0, 1], [1, 2]]), node_ids=graph.node_ids[:3])
    save_graph(other, tmp_path / "other")
    (stored / "weights.f64").write_bytes(weights.tobytes())
    with pytest.raises(InputError, match=r"weights\.f64|indices\.i32"):
        open_graph(stored)
    shutil.copy(tmp_path / "other" / INDEX_FILE, stored / INDEX_FILE)
    with pytest.raises(InputError, match="bytes where"):
        open_graph(stored)


def resealed(stored, **changes):
    """A graph.json that contradicts nothing, with the digests of the files that are there."""
    from fastgrl.io.folders import seal

    raw = json.loads((stored / INDEX_FILE).read_text())
    names = (
        "nodes",
        "edges",
        "stored",
        "self_loops",
        "repeats",
        "rows",
        "directed",
        "weighted",
        "ids",
        "layout",
    )
    seal(stored, **{name: raw[name] for name in names} | changes)


def rewritten(stored, name, change):
    dtype = {"i64": "<i8", "i32": "<i4", "f64": "<f8", "utf8": "u1"}[name.rsplit(".", 1)[1]]
    values = np.fromfile(stored / name, dtype)
    change(values)
    values.tofile(stored / name)
    resealed(stored)


def put(at, value):
    def change(values):
        values[at] = value

    return change


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        ("indptr.i64", put(0, 1), "row pointers"),
        ("indptr.i64", put(5, 10**9), "row pointers"),
        ("indptr.i64", put(-1, 10**9), "row pointers"),
        ("indices.i32", put(0, -1), "no node"),
        ("indices.i32", put(-1, 40), "no node"),
        ("indices.i32", put(1, 0), "do not increase"),
        ("weights.f64", put(3, np.nan), "negative or not finite"),
        ("weights.f64", put(3, -1.0), "negative or not finite"),
        ("weights.f64", put(3, 0.25), "same weight"),
        ("weights.f64", put(slice(None), 1e308), "more than a 64-bit float"),
        ("ids.offsets.i64", put(1, -1), "offsets"),
        ("ids.offsets.i64", put(-1, 10**9), "offsets"),
        ("ids.offsets.i64", put(1, 3), "not UTF-8"),
        ("ids.utf8", put(0, 255), "not UTF-8"),
        ("ids.utf8", put(0, ord("z")), "above the one before"),
    ],
)
def test_forged_arrays_are_refused_with_the_file_and_the_fault(stored, name, change, message):
    rewritten(stored, name, change)
    with pytest.raises(InputError, match=message) as caught:
        open_graph(stored)
    assert str(stored.name) in str(caught.value)


def test_an_undirected_graph_needs_both_directions(stored):
    indices = np.fromfile(stored / "indices.i32", "<i4")
    indptr = np.fromfile(stored / "indptr.i64", "<i8")
    row = int(np.argmax(np.diff(indptr) == 1)) if (np.diff(indptr) == 1).any() else 0
    last = indptr[row + 1] - 1
    indices[last] = indices[last] + 1 if indices[last] < 39 else indices[last] - 1
    indices.tofile(stored / "indices.i32")
    resealed(stored)
    with pytest.raises(InputError, match=r"\(v, u\) for every \(u, v\)|do not increase"):
        open_graph(stored)


def test_repeated_numbers_are_no_ids(tmp_path):
    save_graph(Graph.from_codes([0, 1], [1, 2]), tmp_path / "graph")
    rewritten(tmp_path / "graph", "ids.i64", put(1, 0))
    with pytest.raises(InputError, match="increasing order"):
        open_graph(tmp_path / "graph")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"format": "other"}, "not a graph of fastgrl"),
        ({"version": 2}, "newer fastgrl"),
        ({"version": "1"}, "not a format version"),
        ({"nodes": -1}, "not those of a graph"),
        ({"nodes": True}, "not those of a graph"),
        ({"edges": 10**9}, "not those of a graph"),
        ({"ids": "i128"}, "not those of a graph"),
        ({"layout": {"a": 1}}, "not those of a graph"),
        ({"files": {}}, "not those of a graph"),
        ({"sorted_ids": False}, "contradict"),
        ({"fingerprint": "00"}, "contradict"),
        ({"more": 1}, "contradict"),
    ],
)
def test_a_forged_index_is_refused(stored, change, message):
    from fastgrl.io.folder_index import _checksum

    fields = json.loads((stored / INDEX_FILE).read_text()) | change
    del fields["checksum"]
    (stored / INDEX_FILE).write_text(json.dumps(fields | {"checksum": _checksum(fields)}))
    with pytest.raises(InputError, match=message):
        open_graph(stored)


def test_an_edited_index_is_refused(stored):
    text = (stored / INDEX_FILE).read_text()
    (stored / INDEX_FILE).write_text(text.replace('"repeats": ', '"repeats": 1'))
    with pytest.raises(InputError, match="checksum does not match"):
        open_graph(stored)
    (stored / INDEX_FILE).write_text("{" * 2000)
    with pytest.raises(InputError, match="JSON"):
        open_graph(stored)
    (stored / INDEX_FILE).write_bytes(b" " * (1 << 21))
    with pytest.raises(InputError, match="longer"):
        open_graph(stored)


def test_the_index_reads_back():
    digests = dict.fromkeys(("indptr.i64", "indices.i32", "ids.i64"), "0")
    index = FolderIndex(3, 2, 4, 0, 1, 3, False, False, "i64", 0, {"format": "text"}, digests)
    assert FolderIndex.of(index.to_bytes()) == index


def test_other_folders_are_no_graphs(tmp_path):
    with pytest.raises(InputError, match=r"without graph\.json"):
        fg.read_graph(tmp_path)
    with pytest.raises(InputError, match=r"without graph\.json"):
        open_graph(tmp_path / "nowhere")


def test_only_a_graph_is_replaced_and_only_with_force(stored, tmp_path):
    graph = Graph.from_codes([0], [1])
    with pytest.raises(ArgumentError, match="already exists"):
        save_graph(graph, stored)
    save_graph(graph, stored, force=True)
    assert open_graph(stored).num_nodes == 2
    (stored / "notes.txt").write_text("mine")
    with pytest.raises(ArgumentError, match=r"notes\.txt.*never replaced"):
        save_graph(graph, stored, force=True)
    (tmp_path / "other").mkdir()
    save_graph(graph, tmp_path / "other", force=True)  # an empty folder is nobody's
    (tmp_path / "file").write_text("")
    with pytest.raises(ArgumentError, match="not a folder"):
        check_graph_folder(tmp_path / "file", force=True)
    assert sorted(os.listdir(tmp_path)) == ["file", "graph", "other"]


def test_a_graph_that_is_replaced_while_it_is_open_stays_readable(stored):
    graph = open_graph(stored)
    edges = graph.edge_codes()
    save_graph(Graph.from_codes([0], [1]), stored, force=True)
    assert np.array_equal(graph.edge_codes(), edges)


def write_half(folder, error):
    with new_folder(folder, force=True) as draft:
        (draft / "indptr.i64").write_bytes(b"half")
        raise error(28, "No space left on device")


@pytest.mark.parametrize("error", [KeyboardInterrupt, OSError, ValueError])
def test_whatever_stops_writing_leaves_what_was_there(stored, tmp_path, error):
    before = {path.name: path.read_bytes() for path in stored.iterdir()}
    expected = UnavailableError if error is OSError else error
    with pytest.raises(expected):
        write_half(stored, error)
    assert os.listdir(tmp_path) == ["graph"]
    assert {path.name: path.read_bytes() for path in stored.iterdir()} == before


def test_a_rename_that_fails_puts_the_old_graph_back(stored, tmp_path, monkeypatch):
    rename, calls = os.rename, []

    def failing(source, target):
        calls.append(target)
        if len(calls) == 2:
            raise OSError(5, "Input/output error")
        rename(source, target)

    monkeypatch.setattr(os, "rename", failing)
    with pytest.raises(UnavailableError):
        save_graph(Graph.from_codes([0], [1]), stored, force=True)
    monkeypatch.undo()
    assert os.listdir(tmp_path) == ["graph"]
    assert open_graph(stored).num_nodes == 40


def test_ids_that_are_neither_text_nor_numbers_are_refused(tmp_path):
    for ids in ([("a", 1), "b"], ["a", 1], ["\ud800", "b"]):
        graph = Graph.from_codes([0], [1], node_ids=np.fromiter(ids, object, 2))
        with pytest.raises(ArgumentError, match=r"text or numbers|UTF-8"):
            save_graph(graph, tmp_path / "graph")
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("ending", ["csv", "parquet", "npz", "npy", "txt"])
def test_an_embedding_of_a_stored_graph_is_written_as_of_one_in_memory(stored, tmp_path, ending, monkeypatch):
    monkeypatch.setattr("fastgrl.io.writers._TEXT_CHUNK_CELLS", 20)
    monkeypatch.setattr("fastgrl.io.writers._PART_BYTES", 64)
    graph = open_graph(stored)
    vectors = np.random.default_rng(0).normal(size=(40, 3)).astype(np.float32)
    vectors.tofile(tmp_path / "vectors")
    mapped = np.memmap(tmp_path / "vectors", np.float32, "r", shape=(40, 3))
    write_embedding(tmp_path / f"a.{ending}", mapped, node_ids=graph.ids)
    assert "node_ids" not in graph.__dict__
    write_embedding(tmp_path / f"b.{ending}", vectors, node_ids=graph.node_ids)
    assert (tmp_path / f"a.{ending}").read_bytes() == (tmp_path / f"b.{ending}").read_bytes()
    if ending == "npy":
        assert (tmp_path / "a.ids.csv").read_bytes() == (tmp_path / "b.ids.csv").read_bytes()
        assert np.array_equal(np.load(tmp_path / "a.npy"), vectors)


def test_mapped_vectors_are_checked_like_others(stored, tmp_path):
    vectors = np.memmap(tmp_path / "vectors", np.float32, "w+", shape=(40, 3))
    vectors[7, 1] = np.nan
    with pytest.raises(NotFiniteError, match=r"\[7, 1\]"):
        write_embedding(tmp_path / "a.csv", vectors, node_ids=open_graph(stored).ids)


def test_a_stored_graph_is_written_as_an_edge_list(stored, tmp_path):
    write_graph(open_graph(stored), tmp_path / "edges.csv", nodes=tmp_path / "nodes.csv")
    found = fg.read_graph(tmp_path / "edges.csv", nodes=tmp_path / "nodes.csv")
    assert_same(open_graph(stored), in_order(found), open_graph(stored).repeats)


@given(graphs(), st.integers(0, 2**64 - 1), st.integers(0, 2), st.data())
@settings(max_examples=25, deadline=None)
def test_the_compiled_check_and_its_twin_see_the_same(graph, seed, fault, data):
    compiled = compiled_module()
    weights = None if graph.weights is None else np.array(graph.weights)
    rows = Rows(np.array(graph.indptr), np.array(graph.indices), weights)
    if len(rows.indices) and fault:
        at = data.draw(st.integers(0, len(rows.indices) - 1))
        if fault == 1 or weights is None:
            rows.indices[at] = data.draw(st.integers(-3, len(rows.indptr) + 2))
        else:
            weights[at] = data.draw(st.sampled_from([np.nan, np.inf, -1.0, 0.5]))
    end = len(rows.indices)
    plain = examined(rows, 0, end, seed)
    if compiled is None:
        return
    fast = compiled.check_entries(rows.indptr, rows.indices, rows.weights, 0, end, seed)
    assert plain[:2] == fast[:2] or (plain[1] == fast[1] and plain[0] and fast[0])
    if not plain[0]:
        assert (plain[2] == plain[3]) == (fast[2] == fast[3])
        assert plain[4] == fast[4]
        assert plain[5] == pytest.approx(fast[5])


def test_opening_reads_nothing_beyond_the_folder(stored):
    link = Path(f"{stored}-link")
    link.symlink_to(stored)
    assert open_graph(link).num_nodes == 40
