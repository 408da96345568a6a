from __future__ import annotations

import errno
import io
import itertools
import os
import stat
import subprocess
import sys
import textwrap
from contextlib import suppress

import pytest
from writer_cases import WRITERS, contents

from fastgrl.errors import ArgumentError, UnavailableError
from fastgrl.io import atomic
from fastgrl.io.atomic import check_output, whole_file, whole_files
from fastgrl.io.writers import write_embedding, write_table

STEPS = ("open", "write", "fsync", "close", "replace", "unlink")


class FaultyOs:
    """`os`, of whose steps that touch the disk some fail: `faults` maps the number of a call to its error.

    A late fault strikes when the step is done, as Ctrl-C may. A `dead` one fails all later steps: a kill.
    """

    def __init__(self, faults, *, late=False, dead=False):
        self.faults, self.late, self.dead, self.calls = faults, late, dead, 0

    def __getattr__(self, name):
        # What is written can be read before it is on the disk: to wait for that would show nothing here.
        real = os.fstat if name == "fsync" else getattr(os, name)
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


def open_files():
    return len(os.listdir("/proc/self/fd"))


FAULTS = {
    "full": (lambda: OSError(errno.ENOSPC, "x"), UnavailableError, "no space left"),
    "broken": (lambda: OSError(errno.EIO, "x"), UnavailableError, "input/output error"),
    "interrupted": (lambda: KeyboardInterrupt("x"), KeyboardInterrupt, "x"),
}


def written(folder, writer, seed):
    folder.mkdir()
    writer(folder, seed)
    return contents(folder)


def attempts(monkeypatch, tmp_path, writer, *, old, make_faults, **how):
    """Run `writer` with a fault at its first step, its second …, until one run meets none."""
    monkeypatch.setattr(atomic, "_BUFFER_BYTES", 400)
    monkeypatch.setattr(atomic, "os", FaultyOs({}))
    new = written(tmp_path / "new", writer, 2)
    before = written(tmp_path / "before", writer, 1) if old else {}
    folder = tmp_path / "folder"
    folder.mkdir()
    for k in itertools.count(1):
        for path in folder.iterdir():
            path.unlink()
        for name, data in before.items():
            (folder / name).write_bytes(data)
        faulty = FaultyOs(make_faults(k), **how)
        files, raised = open_files(), None
        with monkeypatch.context() as patch:
            patch.setattr(atomic, "os", faulty)
            try:
                writer(folder, 2)
            except BaseException as error:
                raised = error
        yield k, folder, raised, before, new, open_files() - files
        if faulty.calls < k:
            assert raised is None
            assert contents(folder) == new
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
        vectors = np.random.default_rng(0).random((1000, 32))
        for ending in ("csv", "parquet", "npz", "npy", "txt"):
            try:
                write_embedding("a." + ending, vectors, node_ids=range(1000))
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
        import os
        os.fork(), os.fork()  # four processes from here on, and one import for all
        for _ in range(5):
            write_embedding("a.csv", np.arange(6000.).reshape(-1, 3), node_ids=range(2000), force=True)
            write_embedding("a.npy", np.arange(6000.).reshape(-1, 3), node_ids=range(2000), force=True)
        """
    # Newer Pythons warn of forks beside the threads of a linear algebra library.
    surroundings = {"TMPDIR": "/nonexistent", "PYTHONWARNINGS": "ignore"}
    process = run(script, tmp_path, env={**os.environ, **surroundings})
    assert process.communicate()[1] == ""  # which waits until all four have closed it
    assert process.returncode == 0
    assert sorted(contents(tmp_path)) == ["a.csv", "a.ids.csv", "a.npy"]
    assert len((tmp_path / "a.csv").read_text().splitlines()) == 2001


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
