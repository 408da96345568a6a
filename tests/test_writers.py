from __future__ import annotations

import csv
import errno
import io
import itertools
import os
import stat
import subprocess
import sys
import textwrap
from contextlib import suppress

import numpy as np
import pyarrow.parquet
import pytest
import scipy.sparse
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from fastgrl.errors import (
    ArgumentError,
    MissingExtraError,
    NotFiniteError,
    ShapeError,
    UnavailableError,
)
from fastgrl.graph import Graph
from fastgrl.io import atomic
from fastgrl.io.atomic import check_output, whole_file, whole_files
from fastgrl.io.writers import embedding_files, write_embedding, write_graph, write_table

STEPS = ("open", "write", "fsync", "close", "replace", "unlink")
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=6)
BLANKS = [" a", "a ", "\ta", "a\tb", "a\nb", "a\r\nb", "\r", "\u2028", "\ufeffa", "a\0b", ""]
SIGNS = ["#a", "%", "//", "a,b", 'a"b', '"', "'", "a;b", "a|b", "ä", "名", "\u202eab", "=1+1", "-"]
HARD_TEXT = st.sampled_from([*BLANKS, *SIGNS, "007", "7", "1e5", "NaN", "null"])
DISTINCT_TEXT = st.lists(TEXT | HARD_TEXT, unique=True, max_size=8)
INTEGERS = st.lists(st.integers(-(2**63), 2**63 - 1), unique=True, max_size=8)
relaxed = settings(
    max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


class FaultyOs:
    """`os`, of whose steps that touch the disk some fail: `faults` maps the number of a call to its error.

    A late fault strikes when the step is done, as Ctrl-C may. A `dead` one fails all later steps: a kill.
    """

    def __init__(self, faults, *, late=False, dead=False):
        self.faults, self.late, self.dead, self.calls = faults, late, dead, 0

    def __getattr__(self, name):
        real = getattr(os, name)
        return self._step(name, real) if name in STEPS else real

    def _step(self, name, real):
        def step(*args):
            self.calls += 1
            error = self.faults.get(self.calls)
            if error is None and self.dead and self.calls > min(self.faults):
                error = self.faults[min(self.faults)]
            if error is None:
                return real(*args)
            if name == "close":
                real(*args)  # the kernel takes the number back even if closing fails
            elif self.late:
                result = real(*args)
                if name == "open":
                    os.close(result)
            raise error

        return step


def graph_of(count):
    edges = [(f"n{i}", f"n{i + 1}") for i in range(count)]
    return Graph.from_edges(
        edges, weights=np.arange(1.0, count + 1), nodes=[f"n{i}" for i in range(count + 2)]
    )


def vectors_of(seed, rows=9):
    return np.random.Generator(np.random.Philox(seed)).standard_normal((rows, 3))


def embedding_writer(name):
    return lambda folder, seed: write_embedding(
        folder / name, vectors_of(seed), node_ids=[f"n{seed}{i}" for i in range(9)], force=True
    )


WRITERS = {name: embedding_writer(name) for name in ("e.csv", "e.parquet", "e.npz", "e.npy", "e.txt")} | {
    "table": lambda folder, seed: write_table(folder / "t.tsv", {"a": [seed] * 9}, force=True),
    "edges and nodes": lambda folder, seed: write_graph(
        graph_of(3 + seed), folder / "g.csv", nodes=folder / "n.csv", force=True
    ),
    "graph": lambda folder, seed: write_graph(graph_of(3 + seed), folder / "g.npz", force=True),
}


def contents(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def open_files():
    return len(os.listdir("/proc/self/fd"))


FAULTS = {
    "full": (lambda: OSError(errno.ENOSPC, "x"), UnavailableError, "no space left"),
    "broken": (lambda: OSError(errno.EIO, "x"), UnavailableError, "input/output error"),
    "interrupted": (lambda: KeyboardInterrupt("x"), KeyboardInterrupt, "x"),
}


def attempts(monkeypatch, tmp_path, writer, *, old, make_faults, **how):
    """Run `writer` with a fault at its first step, its second …, until one run meets none."""
    monkeypatch.setattr(atomic, "_BUFFER_BYTES", 200)
    before, new = tmp_path / "before", tmp_path / "new"
    before.mkdir()
    new.mkdir()
    writer(new, 2)
    if old:
        writer(before, 1)
    for k in itertools.count(1):
        folder = tmp_path / str(k)
        folder.mkdir()
        for name, data in contents(before).items():
            (folder / name).write_bytes(data)
        faulty = FaultyOs(make_faults(k), **how)
        files, raised = open_files(), None
        with monkeypatch.context() as patch:
            patch.setattr(atomic, "os", faulty)
            try:
                writer(folder, 2)
            except BaseException as error:
                raised = error
        yield k, folder, raised, contents(before), contents(new), open_files() - files
        if faulty.calls < k:
            assert raised is None
            assert contents(folder) == contents(new)
            return


@pytest.mark.parametrize("writer", WRITERS)
@pytest.mark.parametrize("old", [True, False], ids=["replaces", "new"])
@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("late", [False, True], ids=["early", "late"])
def test_a_fault_at_any_step_leaves_the_old_or_the_new_and_nothing_else(
    monkeypatch, tmp_path, writer, old, fault, late
):
    make, expected, says = FAULTS[fault]
    runs = attempts(
        monkeypatch, tmp_path, WRITERS[writer], old=old, make_faults=lambda k: {k: make()}, late=late
    )
    for k, folder, raised, before, new, leaked in runs:
        assert contents(folder) in (before, new), k
        assert leaked == 0, k
        if raised is None:
            assert contents(folder) == new
        else:
            assert type(raised) is expected, k
            assert says in str(raised), k
    assert k > 6


@pytest.mark.parametrize("writer", WRITERS)
@pytest.mark.parametrize("old", [True, False], ids=["replaces", "new"])
@pytest.mark.parametrize("distance", [1, 2, 3])
def test_an_interrupt_during_the_clean_up_leaves_nothing_behind_either(
    monkeypatch, tmp_path, writer, old, distance
):
    def faults(k):
        return {k: OSError(errno.ENOSPC, "x"), k + distance: KeyboardInterrupt()}

    for k, folder, _, before, new, leaked in attempts(
        monkeypatch, tmp_path, WRITERS[writer], old=old, make_faults=faults
    ):
        assert contents(folder) in (before, new), k
        assert leaked == 0, k


class Killed(BaseException):
    pass


@pytest.mark.parametrize("writer", WRITERS)
@pytest.mark.parametrize("late", [False, True], ids=["early", "late"])
def test_a_kill_at_any_step_never_mixes_old_and_new_and_the_next_run_works(
    monkeypatch, tmp_path, writer, late
):
    runs = attempts(
        monkeypatch,
        tmp_path,
        WRITERS[writer],
        old=True,
        make_faults=lambda k: {k: Killed()},
        late=late,
        dead=True,
    )
    for k, folder, _, before, new, _ in runs:
        left = {name: data for name, data in contents(folder).items() if not name.startswith(".fastgrl-")}
        assert left.items() <= before.items() or left.items() <= new.items(), k
        if len(new) == 1:
            assert left in (before, new), k
        WRITERS[writer](folder, 2)
        assert contents(folder).items() >= new.items()


def test_short_writes_are_continued(monkeypatch, tmp_path):
    monkeypatch.setattr(atomic, "os", short := FaultyOs({}))
    short.write = lambda descriptor, data: os.write(descriptor, data[:7])
    with whole_file(tmp_path / "a") as file:
        file.write(bytes(range(256)) * 5)
    assert (tmp_path / "a").read_bytes() == bytes(range(256)) * 5


def test_a_library_that_hides_a_failed_write_completes_nothing(monkeypatch, tmp_path):
    monkeypatch.setattr(atomic, "os", FaultyOs({2: OSError(errno.ENOSPC, "x")}))

    def write():
        with whole_file(tmp_path / "a") as file, suppress(UnavailableError):
            file.write(b"x" * (1 << 21))

    with pytest.raises(UnavailableError, match="no space"):
        write()
    assert list(tmp_path.iterdir()) == []


def test_an_error_of_the_body_passes_through_and_undoes_everything(tmp_path):
    (tmp_path / "a").write_text("old")

    def write():
        with whole_files(tmp_path / "a", tmp_path / "b") as (first, _):
            first.write(b"new")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        write()
    assert contents(tmp_path) == {"a": b"old"}


def test_a_link_stays_a_link_and_its_target_is_replaced(tmp_path):
    (tmp_path / "target.csv").write_text("OLD")
    (tmp_path / "out.csv").symlink_to("target.csv")
    write_table(tmp_path / "out.csv", {"a": [1]}, force=True)
    assert (tmp_path / "out.csv").is_symlink()
    assert (tmp_path / "target.csv").read_text() == "a\n1\n"
    (tmp_path / "dangling.csv").symlink_to("later.csv")
    write_table(tmp_path / "dangling.csv", {"a": [2]})
    assert (tmp_path / "later.csv").read_text() == "a\n2\n"


def test_a_private_file_stays_private_and_a_new_one_obeys_the_umask(tmp_path):
    (tmp_path / "a.csv").touch(mode=0o600)
    mask = os.umask(0o027)
    try:
        for name in ("a.csv", "b.csv"):
            write_table(tmp_path / name, {"a": [1]}, force=True)
    finally:
        os.umask(mask)
    modes = [stat.S_IMODE((tmp_path / name).stat().st_mode) for name in ("a.csv", "b.csv")]
    assert modes == [0o600, 0o640]


def test_a_name_as_long_as_the_disk_allows_can_be_written(tmp_path):
    path = tmp_path / ("x" * 251 + ".csv")
    write_table(path, {"a": [1]})
    assert path.read_text() == "a\n1\n"


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("folder.csv", "is a folder"),
        ("folder.csv/", "is a folder"),
        ("nothing.csv/", "names a folder"),
        ("plain/emb.csv", "folder"),
        ("nowhere/emb.csv", "'.*nowhere' does not exist"),
        ("x" * 300 + ".csv", "too long"),
        ("loop.csv", "not a file"),
        ("there.csv", "already exists; --force"),
        ("a\0.csv", "null"),
        ("emb.xlsx", r"\.parquet \.csv"),
        ("emb", r"\.parquet \.csv"),
        ("emb.csv.gz", r"\.parquet \.csv"),
    ],
)
def test_an_output_that_cannot_be_is_refused_and_nothing_is_written(tmp_path, name, says):
    (tmp_path / "folder.csv").mkdir()
    (tmp_path / "plain").write_text("x")
    (tmp_path / "there.csv").write_text("x")
    (tmp_path / "loop.csv").symlink_to("loop.csv")
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(ArgumentError, match=says) as caught:
        write_embedding(f"{tmp_path}/{name}", [[1.0]], node_ids=["a"])
    assert len(str(caught.value)) < 300
    assert str(caught.value).isprintable()
    assert sorted(tmp_path.rglob("*")) == before


def test_a_device_is_never_replaced():
    with pytest.raises(ArgumentError, match="device"):
        check_output("/dev/null", force=True)
    with pytest.raises(ArgumentError, match="device"), whole_file("/dev/null"):
        pass
    assert stat.S_ISCHR(os.stat("/dev/null").st_mode)


def test_an_input_is_never_overwritten_even_by_force(tmp_path):
    edges = tmp_path / "edges.csv"
    edges.write_text("a,b\n")
    (tmp_path / "link.csv").symlink_to(edges)
    for path in (edges, tmp_path / "link.csv", f"{tmp_path}/../{tmp_path.name}/edges.csv"):
        with pytest.raises(ArgumentError, match="never overwritten"):
            check_output(path, force=True, inputs=(edges,))
    check_output(tmp_path / "other.csv", "-", inputs=(edges, "-", tmp_path / "missing"))
    with pytest.raises(ArgumentError, match="two outputs"):
        check_output(tmp_path / "o.csv", f"{tmp_path}/./o.csv")


@pytest.mark.parametrize(
    ("number", "says"),
    [
        (errno.EFBIG, "file size limit"),
        (errno.EACCES, "permission"),
        (errno.EROFS, "read-only"),
        (errno.EDQUOT, "quota"),
        (errno.EMFILE, "many"),
    ],
)
def test_faults_of_the_surroundings_are_named(monkeypatch, tmp_path, number, says):
    monkeypatch.setattr(atomic, "os", FaultyOs({1: OSError(number, "too many files")}))
    with pytest.raises(UnavailableError, match=says) as caught:
        write_table(tmp_path / "a.csv", {"a": [1]})
    assert "a.csv" in str(caught.value)


def test_a_folder_that_may_not_be_written_to_is_refused_at_once(monkeypatch, tmp_path):
    monkeypatch.setattr(os, "access", lambda *_: False)
    with pytest.raises(UnavailableError, match="permission"):
        check_output(tmp_path / "a.csv")


def run(script, cwd, **more):
    header = "import resource, numpy as np\nfrom fastgrl.io.writers import *\nfrom fastgrl.errors import *\n"
    command = [sys.executable, "-c", header + textwrap.dedent(script)]
    return subprocess.Popen(command, cwd=cwd, stderr=subprocess.PIPE, text=True, **more)


def test_a_limit_on_file_sizes_is_named_and_nothing_is_left(tmp_path):
    process = run(
        """
        resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
        vectors = np.random.default_rng(0).random((5000, 32))
        for ending in ("csv", "parquet", "npz", "npy", "txt"):
            try:
                write_embedding("a." + ending, vectors, node_ids=range(5000))
            except UnavailableError as error:
                assert "file size limit" in str(error)
            else:
                raise SystemExit(ending)
        """,
        tmp_path,
    )
    assert process.communicate()[1] == ""
    assert process.returncode == 0
    assert contents(tmp_path) == {}


def test_four_writers_of_one_file_at_once_all_end_well_without_a_temporary_folder(tmp_path):
    script = """
        for _ in range(5):
            write_embedding("a.csv", np.arange(6000.).reshape(-1, 3), node_ids=range(2000), force=True)
            write_embedding("a.npy", np.arange(6000.).reshape(-1, 3), node_ids=range(2000), force=True)
        """
    processes = [run(script, tmp_path, env={**os.environ, "TMPDIR": "/nonexistent"}) for _ in range(4)]
    assert [process.communicate()[1] for process in processes] == [""] * 4
    assert sorted(contents(tmp_path)) == ["a.csv", "a.ids.csv", "a.npy"]
    assert len((tmp_path / "a.csv").read_text().splitlines()) == 2001


def test_standard_output_gets_csv(capsysbinary, tmp_path):
    write_embedding("-", np.float32([[0.1, 2]]), node_ids=["a b"])
    assert capsysbinary.readouterr().out == b"id,e0,e1\na b,0.1,2.0\n"
    write_graph(graph_of(1), "-", nodes=tmp_path / "n.csv")
    assert capsysbinary.readouterr().out == b"source,target,weight\nn0,n1,1.0\n"
    assert (tmp_path / "n.csv").read_text() == "id\nn0\nn1\nn2\n"


@pytest.mark.parametrize(
    ("number", "expected"), [(errno.ENOSPC, UnavailableError), (errno.EPIPE, BrokenPipeError)]
)
def test_a_full_standard_output_is_named_and_a_closed_one_is_left_to_the_caller(
    monkeypatch, number, expected
):
    class Failing(io.RawIOBase):
        def writable(self):
            return True

        def write(self, data):
            raise OSError(number, "x")

    stream = io.TextIOWrapper(Failing())
    monkeypatch.setattr(sys, "stdout", stream)
    with pytest.raises(expected):
        write_table("-", {"a": [1]})
    monkeypatch.undo()


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
