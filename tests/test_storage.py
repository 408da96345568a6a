from __future__ import annotations

import errno
import itertools
import json
import os
import subprocess
import sys
import tempfile
import textwrap
from pathlib import Path

import numpy as np
import pytest
import safetensors.numpy
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays_of

from fastgrl import storage, stored_index, stored_tensors
from fastgrl.errors import (
    ArgumentError,
    DtypeError,
    FastgrlError,
    InputError,
    NotFiniteError,
    UnavailableError,
)
from fastgrl.io import atomic
from fastgrl.storage import (
    Stored,
    check_model_folder,
    data_digest,
    expect,
    load_model,
    save_model,
    verify_model,
)
from fastgrl.stored_ids import pack_ids, unpack_ids

DTYPES = ["<f4", ">f4", "<f8", "<f2", "<i4", "<i8", "|u1", "|i1", "<u2", ">u4", "<u8", "|b1"]
NAMES = st.text(max_size=8).filter(lambda name: not name.startswith(("node_ids", "__")))
ARRAYS = st.sampled_from(DTYPES).flatmap(
    lambda dtype: arrays_of.arrays(
        dtype,
        arrays_of.array_shapes(min_dims=0, min_side=0, max_side=5),
        elements=arrays_of.from_dtype(np.dtype(dtype), allow_nan=False, allow_infinity=False),
    )
)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)
ANY_TEXT = st.text(st.characters(exclude_categories=()))  # lone surrogates too
SCALARS = st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | ANY_TEXT
OBJECTS = st.recursive(SCALARS, lambda inner: st.tuples(inner, inner) | st.tuples(inner), max_leaves=4)
IDS = (
    arrays_of.arrays(
        st.sampled_from(["<i8", "<i2", "<u8", "|u1", "<f8", "<f4"]),
        st.integers(0, 9),
        elements={"allow_nan": False, "allow_infinity": False},
        unique=True,
    )
    | st.lists(ANY_TEXT, unique=True)
    | st.lists(OBJECTS, unique=True)
)


def model(seed=0, *, rows=40, kind="example"):
    rng = np.random.default_rng(seed)
    arrays = {
        "left": rng.standard_normal((rows, 3)).astype(np.float32),
        "right": rng.standard_normal((rows, 3)),
        "indices": rng.integers(0, rows, 77, dtype=np.int32),
        "indptr": np.arange(rows + 1),
        "bytes": rng.integers(0, 256, 13, dtype=np.uint8),
        "mask": rng.random(rows) < 0.5,
    }
    facts = {"auc": 0.1 + seed, "seconds": {"fit": 1e-05}, "name": "Zoë \ud800"}
    return Stored(
        kind, {"rank": 3, "seed": seed}, facts, arrays, np.array([f"né{i}" for i in range(rows)], object)
    )


def same(a, b):
    return (
        (a.kind, a.parameters, a.facts) == (b.kind, b.parameters, b.facts)
        and a.arrays.keys() == b.arrays.keys()
        and all(identical(a.arrays[name], b.arrays[name]) for name in a.arrays)
        and identical(a.node_ids, b.node_ids)
    )


def identical(a, b):
    if a.dtype.kind == "O":
        return b.dtype.kind == "O" and list(map(typed, a)) == list(map(typed, b))
    a = a.astype(a.dtype.newbyteorder("="))
    return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()


def typed(value):
    return (tuple, *map(typed, value)) if isinstance(value, tuple) else (type(value), value)


@given(st.dictionaries(NAMES, ARRAYS, max_size=5), st.dictionaries(st.text(), JSON, max_size=3), IDS)
@settings(max_examples=40, deadline=None)
def test_what_is_saved_is_loaded_bit_for_bit_and_type_for_type(arrays, values, ids):
    ids = ids if isinstance(ids, np.ndarray) else np.fromiter(ids, object, len(ids))
    stored = Stored("any", values, {"facts": values}, arrays, ids)
    with tempfile.TemporaryDirectory() as here:
        save_model(stored, f"{here}/model")
        for mmap, check in itertools.product((True, False), repeat=2):
            found = load_model(f"{here}/model", mmap=mmap, check=check)
            if all(type(item) is int and abs(item) < 2**63 for item in ids):
                assert found.node_ids.tolist() == ids.tolist()
                found = Stored(found.kind, found.parameters, found.facts, found.arrays, ids)
            assert same(stored, found)
        verify_model(f"{here}/model")


@given(IDS)
@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_ids_come_back_with_their_types(ids):
    found = unpack_ids(*pack_ids(ids))
    assert list(map(typed, found.tolist())) == list(
        map(typed, ids if isinstance(ids, list) else ids.tolist())
    )


@pytest.mark.parametrize("item", [1, "1", 1.0, True, ("1", 1), (1, (2.5, "x"), None), 10**30, -0.0, ""])
def test_an_id_keeps_its_type_among_others(item):
    found = unpack_ids(*pack_ids(np.fromiter([item, "other", ("t",)], object, 3)))
    assert typed(found[0]) == typed(item)


def test_neighbouring_halves_of_a_character_stay_two_ids():
    assert unpack_ids(*pack_ids(["\ud83d", "\ude00", "\U0001f600"])).tolist() == [
        "\ud83d",
        "\ude00",
        "\U0001f600",
    ]


def test_numpy_scalars_among_objects_become_python_values_that_are_equal():
    found = unpack_ids(*pack_ids(np.array([np.int64(5), "a", (np.float32(0.5), np.bool_(True))], object)))
    assert list(map(typed, found)) == list(map(typed, [5, "a", (0.5, True)]))


@pytest.mark.parametrize(
    "item",
    [
        b"x",
        frozenset([1]),
        1j,
        float("inf"),
        (1, float("nan")),
        object(),
        pytest.param(10**5000, id="long"),
        Path("a"),
        (1, b"x"),
    ],
)
def test_ids_that_json_cannot_hold_are_named_with_their_type(tmp_path, item):
    stored = Stored("any", {}, {}, {}, np.fromiter(["fine", item], object, 2))
    with pytest.raises(FastgrlError, match=r"use text or integers|not an id") as caught:
        save_model(stored, tmp_path / "model")
    if not isinstance(item, float):
        assert type(caught.value) is ArgumentError
        assert type(item).__name__ in str(caught.value)
    assert list(tmp_path.iterdir()) == []


def test_the_file_is_what_safetensors_reads(tmp_path):
    save_model(model(), tmp_path / "model")
    [path] = (tmp_path / "model").glob("tensors-*.safetensors")
    found = safetensors.numpy.load_file(path)
    for name, array in model().arrays.items():
        assert identical(array, found[name]), name
    digest = stored_tensors.sha256_of([path.read_bytes()])
    assert path.name == f"tensors-{digest[:16]}.safetensors"
    assert json.loads((tmp_path / "model/model.json").read_text())["tensors"]["sha256"] == digest


def test_mapped_arrays_are_plain_aligned_and_read_only(tmp_path):
    save_model(model(), tmp_path / "model")
    for mmap in (True, False):
        found = load_model(tmp_path / "model", mmap=mmap)
        for array in (*found.arrays.values(), found.node_ids):
            assert type(array) is np.ndarray
            assert array.flags.aligned
            assert array.flags.c_contiguous
            with pytest.raises(ValueError, match="read-only"):
                array[...] = 0
    assert load_model(tmp_path / "model").arrays["left"].base is not None


def test_the_same_model_is_the_same_files(tmp_path):
    for name in "ab":
        save_model(model(), tmp_path / name)
    assert contents(tmp_path / "a") == contents(tmp_path / "b")
    save_model(load_model(tmp_path / "a"), tmp_path / "a", force=True)  # onto the very file it is mapped from
    assert contents(tmp_path / "a") == contents(tmp_path / "b")


def test_a_mapped_model_outlives_its_replacement(tmp_path):
    save_model(model(1), tmp_path / "model")
    found = load_model(tmp_path / "model")
    save_model(model(2), tmp_path / "model", force=True)
    assert same(found, model(1))
    assert same(load_model(tmp_path / "model"), model(2))


def test_another_process_loads_the_same_bits(tmp_path):
    stored = model(rows=500)
    save_model(stored, tmp_path / "model")
    script = (
        "from fastgrl.storage import *; m = load_model('model'); print(data_digest(m.arrays, m.node_ids))"
    )
    found = subprocess.run(
        [sys.executable, "-c", script], cwd=tmp_path, check=True, capture_output=True, text=True
    )
    assert found.stdout.strip() == data_digest(stored.arrays, stored.node_ids)


def contents(folder):
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


STEPS = ("mkdir", "open", "write", "fsync", "close", "rename", "replace", "unlink")
FAULTS = {
    "full": (lambda: OSError(errno.ENOSPC, "x"), UnavailableError, "no space left"),
    "broken": (lambda: OSError(errno.EIO, "x"), UnavailableError, "input/output error"),
    "interrupted": (lambda: KeyboardInterrupt("x"), KeyboardInterrupt, "x"),
}


class FaultyOs:
    """`os`, whose `number`-th step that touches the disk fails; if `dead`, all later ones too."""

    def __init__(self, number=0, error=None, *, late=False, dead=False):
        self.number, self.error, self.late, self.dead, self.calls = number, error, late, dead, 0

    def __getattr__(self, name):
        real = os.fstat if name == "fsync" else getattr(os, name)
        return self._step(name, real) if name in STEPS else real

    def _step(self, name, real):
        def step(*args):
            self.calls += 1
            if self.calls != self.number and not (self.dead and self.calls > self.number):
                return real(*args)
            if (self.late and self.calls == self.number) or name == "close":
                result = real(*args)
                if name == "open":
                    os.close(result)
            raise self.error

        return step


def attempts(monkeypatch, tmp_path, make, *, old, **how):
    """Save model 2 (over model 1 if `old`) with a fault at the first step, the second …."""
    monkeypatch.setattr(atomic, "_BUFFER_BYTES", 4000)
    for k in itertools.count(1):
        folder = tmp_path / str(k) / "model"
        folder.parent.mkdir()
        faulty, raised = FaultyOs(k, make(), **how), None
        with monkeypatch.context() as patch:
            for module in (atomic, storage):
                patch.setattr(module, "os", FaultyOs())
            if old:
                save_model(model(1), folder)
            files = len(os.listdir("/proc/self/fd"))
            for module in (atomic, storage):
                patch.setattr(module, "os", faulty)
            try:
                save_model(model(2), folder, force=True)
            except BaseException as error:
                raised = error
        yield k, folder, raised, len(os.listdir("/proc/self/fd")) - files
        if faulty.calls < k:
            assert raised is None
            return


def state(folder):
    """0, 1 or 2: no model, the old one, the new one; every other state fails."""
    if not folder.exists():
        return 0
    found = load_model(folder)
    seed = found.parameters["seed"]
    assert same(found, model(seed))
    verify_model(folder)
    return seed


@pytest.mark.parametrize("old", [True, False], ids=["replaces", "new"])
@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("late", [False, True], ids=["early", "late"])
def test_a_fault_at_any_step_leaves_the_old_or_the_new_model_and_nothing_else(
    monkeypatch, tmp_path, old, fault, late
):
    make, expected, says = FAULTS[fault]
    for k, folder, raised, leaked in attempts(monkeypatch, tmp_path, make, old=old, late=late):
        found = state(folder)
        assert found in ({1, 2} if old else {0, 2}), k
        assert leaked == 0, k
        assert [path.name for path in folder.parent.iterdir()] == ["model"] * folder.exists(), k
        assert len(contents(folder)) == (2 if found else 0), k
        if raised is None:
            assert found == 2, k
        else:
            assert type(raised) is expected, (k, raised)
            assert says in str(raised), k
            assert ".fastgrl-" not in str(raised), k
    assert k > 15


class Killed(BaseException):
    pass


@pytest.mark.parametrize("old", [True, False], ids=["replaces", "new"])
@pytest.mark.parametrize("late", [False, True], ids=["early", "late"])
def test_a_kill_at_any_step_leaves_a_whole_model_and_the_next_save_works(monkeypatch, tmp_path, old, late):
    for k, folder, _, _ in attempts(monkeypatch, tmp_path, Killed, old=old, late=late, dead=True):
        assert state(folder) in ({1, 2} if old else {0, 2}), k
        save_model(model(2), folder, force=True)
        assert state(folder) == 2, k
        left = [name for name in contents(folder) if not name.startswith(".fastgrl-")]
        assert len(left) == 2, k


def test_without_locks_only_the_files_of_the_two_models_are_removed(monkeypatch, tmp_path):
    monkeypatch.setattr(storage, "_locked", lambda descriptor: False)
    save_model(model(1), tmp_path / "model")
    another = tmp_path / "model" / f"tensors-{'0' * 16}.safetensors"
    another.write_bytes(b"being written by somebody else")
    save_model(model(2), tmp_path / "model", force=True)
    assert state(tmp_path / "model") == 2
    assert another.exists()
    monkeypatch.undo()
    save_model(model(2), tmp_path / "model", force=True)
    assert not another.exists()


def run(script, folder):
    header = """
        import os, random, signal, sys, time
        sys.path.insert(0, os.environ["TESTS"])
        from test_storage import *
        storage.os = atomic.os = FaultyOs()  # waits for no disk: a killed process loses no writes
    """
    # Newer Pythons warn of forks beside the threads of a linear algebra library.
    surroundings = {"TESTS": os.path.dirname(__file__), "PYTHONWARNINGS": "ignore"}
    command = [sys.executable, "-c", textwrap.dedent(header) + textwrap.dedent(script)]
    done = subprocess.run(
        command, cwd=folder, env=os.environ | surroundings, capture_output=True, text=True, timeout=120
    )
    assert (done.returncode, done.stderr) == (0, "")
    return json.loads(done.stdout or "null")


def test_processes_killed_while_they_save_leave_a_whole_model(tmp_path):
    found = run(
        """
        random.seed(0)
        begin = time.perf_counter()
        save_model(model(1), Path("model"))
        one_save, found = time.perf_counter() - begin, []
        for _ in range(40):
            child = os.fork()
            if child == 0:
                for seed in itertools.cycle((2, 1)):
                    save_model(model(seed), Path("model"), force=True)
            time.sleep(random.uniform(0, 5 * one_save))
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            found.append(state(Path("model")))
        save_model(model(2), Path("model"), force=True)
        print(json.dumps([found, len(list(Path("model").glob("[!.]*")))]))
        """,
        tmp_path,
    )
    assert set(found[0]) <= {1, 2}
    assert found[1] == 2


def test_a_new_folder_appears_whole_when_its_saver_is_killed(tmp_path):
    run(
        """
        random.seed(1)
        for turn in range(40):
            folder = Path(f"model-{turn}")
            child = os.fork()
            if child == 0:
                save_model(model(2), folder)
                os._exit(0)
            time.sleep(random.uniform(0.0, 0.01))
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            assert state(folder) in (0, 2)
        """,
        tmp_path,
    )


def test_four_savers_at_once_leave_one_whole_model_and_readers_never_see_less(tmp_path):
    found = run(
        """
        children = []
        for seed in range(1, 5):
            children.append(os.fork())
            if children[-1] == 0:
                for turn in range(12):
                    save_model(model(seed + turn % 2), Path("model"), force=True)
                os._exit(0)
        loads = 0
        while children:
            done, code = os.waitpid(-1, os.WNOHANG)
            assert code == 0
            children = [child for child in children if child != done]
            if Path("model").exists():
                state(Path("model"))
                loads += 1
        print(json.dumps([loads, len(os.listdir("model")), len(os.listdir("."))]))
        """,
        tmp_path,
    )
    assert found[0] > 4
    assert found[1:] == [2, 1]


def test_of_savers_without_force_exactly_one_wins(tmp_path):
    (tmp_path / "empty").mkdir()
    codes = run(
        """
        codes = {"empty": [], "new": []}
        for name in codes:
            for seed in range(1, 5):
                if os.fork() == 0:
                    try:
                        save_model(model(seed), Path(name))
                    except ArgumentError as error:
                        os._exit(1 if "already exists" in str(error) else 2)
                    os._exit(0)
            for _ in range(4):
                codes[name].append(os.waitstatus_to_exitcode(os.wait()[1]))
            state(Path(name))
        print(json.dumps(codes))
        """,
        tmp_path,
    )
    assert {name: sorted(found) for name, found in codes.items()} == {
        "empty": [0, 1, 1, 1],
        "new": [0, 1, 1, 1],
    }


def test_a_reader_that_a_save_overtakes_reads_anew(monkeypatch, tmp_path):
    save_model(model(1), tmp_path / "model")
    real = storage._read_index

    def overtaken(folder):
        raw = real(folder)
        monkeypatch.setattr(storage, "_read_index", real)
        save_model(model(2), folder, force=True)
        return raw

    monkeypatch.setattr(storage, "_read_index", overtaken)
    assert state(tmp_path / "model") == 2


def test_a_model_is_replaced_only_by_force_and_other_files_stay(tmp_path):
    save_model(model(1), tmp_path / "model")
    (tmp_path / "model/notes.txt").write_text("mine")
    (tmp_path / "model/tensors-mine.safetensors").write_text("mine")
    with pytest.raises(ArgumentError, match="already exists; --force"):
        save_model(model(2), tmp_path / "model")
    assert load_model(tmp_path / "model").parameters["seed"] == 1
    save_model(model(2), tmp_path / "model", force=True)
    assert len(contents(tmp_path / "model")) == 4
    assert (tmp_path / "model/notes.txt").read_text() == "mine"


@pytest.mark.parametrize(
    "name", ["notes.txt", "model.json", "tensors-mine.safetensors", ".hidden", "folder/x"]
)
def test_a_folder_of_somebody_else_is_refused_even_by_force(tmp_path, name):
    path = tmp_path / "model" / name
    path.parent.mkdir(parents=True)
    path.write_text('{"format": "another"}')
    before = contents(tmp_path)
    with pytest.raises(
        ArgumentError, match=r"holds other files .* and no model; give the name of a new folder"
    ):
        save_model(model(), tmp_path / "model", force=True)
    assert contents(tmp_path) == before


def test_an_empty_folder_is_filled_and_a_damaged_model_can_be_replaced(tmp_path):
    folder = tmp_path / "model"
    folder.mkdir()
    save_model(model(1), folder)
    index = folder / "model.json"
    index.write_bytes(index.read_bytes()[:300])
    with pytest.raises(ArgumentError, match="already exists"):
        save_model(model(2), folder)
    save_model(model(2), folder, force=True)
    assert state(folder) == 2
    assert len(contents(folder)) == 2


def test_a_link_to_a_folder_stays_a_link(tmp_path):
    (tmp_path / "link").symlink_to("real")
    save_model(model(1), tmp_path / "link")
    save_model(model(2), tmp_path / "link/", force=True)
    assert (tmp_path / "link").is_symlink()
    assert state(tmp_path / "real") == 2


def test_a_private_model_stays_private(tmp_path):
    save_model(model(1), tmp_path / "model")
    (tmp_path / "model/model.json").chmod(0o600)
    save_model(model(2), tmp_path / "model", force=True)
    assert {path.stat().st_mode & 0o777 for path in (tmp_path / "model").iterdir()} == {0o600}


@pytest.mark.parametrize(
    ("name", "error", "says"),
    [
        ("nowhere/model", ArgumentError, "'.*nowhere' does not exist; make it first"),
        ("plain", ArgumentError, "is not a folder"),
        ("plain/model", ArgumentError, "is not a folder|does not exist"),
        ("x" * 300, ArgumentError, "too long"),
        ("a\0b", ArgumentError, "null"),
        ("loop", ArgumentError, "loop|is not a file|Too many"),
    ],
)
def test_a_place_that_cannot_be_is_refused_and_nothing_is_written(tmp_path, name, error, says):
    (tmp_path / "plain").write_text("x")
    (tmp_path / "loop").symlink_to("loop")
    before = sorted(tmp_path.rglob("*"))
    for act in (lambda path: save_model(model(), path), check_model_folder):
        with pytest.raises(error, match=says) as caught:
            act(f"{tmp_path}/{name}")
        assert str(caught.value).isprintable()
    assert sorted(tmp_path.rglob("*")) == before


def test_a_folder_that_may_not_be_written_to_is_refused_at_once(monkeypatch, tmp_path):
    save_model(model(), tmp_path / "model")
    monkeypatch.setattr(os, "access", lambda *_: False)
    for name in ("model", "new"):
        with pytest.raises(UnavailableError, match="permission"):
            save_model(model(), tmp_path / name, force=True)


@pytest.mark.parametrize(
    ("change", "error", "says"),
    [
        ({"arrays": {"a": np.array([1.0, np.nan])}}, NotFiniteError, "'a' contains nan"),
        ({"arrays": {"a": np.array([1j])}}, DtypeError, "'a' of complex128"),
        ({"arrays": {"a": np.array(["x"], object)}}, DtypeError, "'a' of object"),
        ({"arrays": {"node_ids": np.arange(3)}}, ArgumentError, "cannot be the name"),
        ({"arrays": {"__metadata__": np.arange(3)}}, ArgumentError, "cannot be the name"),
        ({"arrays": {3: np.arange(3)}}, ArgumentError, "cannot be the name"),
        ({"parameters": {"rank": np.int64(3)}}, ArgumentError, r"parameters\['rank'\] is 3"),
        ({"parameters": {"window": (1, 2)}}, ArgumentError, "JSON cannot hold"),
        ({"facts": {"auc": float("nan")}}, ArgumentError, r"facts\['auc'\] is nan"),
        ({"facts": {"by": {1: 2}}}, ArgumentError, "JSON cannot hold"),
        pytest.param({"facts": {"big": 10**5000}}, ArgumentError, "JSON cannot hold", id="long"),
        ({"facts": {1: "a"}}, ArgumentError, "JSON cannot hold"),
        ({"node_ids": np.array([1, 1])}, ArgumentError, "repeated"),
        ({"node_ids": np.array([1, 2], np.longdouble)}, DtypeError, "cannot be stored"),
    ],
)
def test_what_cannot_be_stored_is_named_and_nothing_is_written(tmp_path, change, error, says):
    with pytest.raises(error, match=says):
        save_model(Stored(**(vars(model()) | change)), tmp_path / "model")
    assert list(tmp_path.iterdir()) == []


def test_values_without_end_are_refused(tmp_path):
    deep = []
    for _ in range(100_000):
        deep = [deep]
    for stored in (
        Stored("any", {"deep": deep}, {}, {}, np.arange(2)),
        Stored("any", {}, {"long": "x" * (stored_index.LONGEST // 2)}, {}, np.arange(2)),
    ):
        with pytest.raises(ArgumentError):
            save_model(stored, tmp_path / "model")
    while deep:  # to free it all at once is too deep for some Pythons
        deep = deep[0]


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    folder = tmp_path_factory.mktemp("saved") / "model"
    save_model(model(rows=20_000), folder)
    return folder


def files_of(folder):
    return sorted(folder.iterdir())


class Altered:
    """Files whose bytes are other ones for a while."""

    def __init__(self, path, data):
        self.path, self.data, self.before = path, data, path.read_bytes()

    def __enter__(self):
        self.path.write_bytes(self.data)

    def __exit__(self, *_):
        self.path.write_bytes(self.before)


def refused(folder, **how):
    with pytest.raises(InputError) as caught:
        load_model(folder, **how)
    message = str(caught.value)
    assert type(caught.value) is InputError
    assert message.isprintable()
    assert len(message) < 500
    return message


@pytest.mark.parametrize("which", [0, 1], ids=["index", "tensors"])
def test_one_flipped_bit_anywhere_is_refused(saved, which):
    path = files_of(saved)[which]
    data, rng = path.read_bytes(), np.random.Generator(np.random.Philox(which))
    places = {*range(min(len(data), 60)), *rng.integers(0, len(data), 120).tolist(), len(data) - 1}
    for place in sorted(places):
        with path.open("r+b") as file:
            file.seek(place)
            file.write(bytes([data[place] ^ (1 << rng.integers(8))]))
        message = refused(saved, mmap=bool(place % 2))
        assert named_in(message, saved)
        with path.open("r+b") as file:
            file.seek(place)
            file.write(data[place : place + 1])
    assert same(load_model(saved), model(rows=20_000))


def named_in(message, folder):
    return message.startswith(f"'{folder}"[:90])


@pytest.mark.parametrize("which", [0, 1], ids=["index", "tensors"])
def test_every_flipped_bit_of_a_small_model_is_refused(tmp_path, which):
    save_model(
        Stored("any", {"x": 1e-05}, {"é": "\n"}, {"a": np.eye(2)}, np.array([3, 4])), tmp_path / "model"
    )
    path = files_of(tmp_path / "model")[which]
    data = path.read_bytes()
    for place in range(len(data)):
        bit = place % 8
        path.write_bytes(data[:place] + bytes([data[place] ^ (1 << bit)]) + data[place + 1 :])
        with pytest.raises(InputError):
            load_model(tmp_path / "model")


@pytest.mark.parametrize("which", [0, 1], ids=["index", "tensors"])
@pytest.mark.parametrize("check", [True, False])
def test_a_file_cut_short_or_made_longer_is_refused(saved, which, check):
    path = files_of(saved)[which]
    data, rng = path.read_bytes(), np.random.Generator(np.random.Philox(7))
    cuts = [0, 1, 7, 8, 9, len(data) - 1, *rng.integers(0, len(data), 20).tolist()]
    for changed in (*(data[:cut] for cut in cuts), data + b"\0", data + data, data + b" "):
        with Altered(path, changed):
            refused(saved, mmap=False, check=check)
            refused(saved, check=check)


def test_pages_and_words_that_changed_places_are_noticed(saved):
    path = files_of(saved)[1]
    data, rng = path.read_bytes(), np.random.Generator(np.random.Philox(3))
    for width in (8, 512, 4096, 65536):
        for _ in range(5):
            a, b = sorted((rng.choice(len(data) // width, 2, replace=False) * width).tolist())
            swapped = bytearray(data)
            swapped[a : a + width], swapped[b : b + width] = data[b : b + width], data[a : a + width]
            with Altered(path, swapped):
                if swapped != data:
                    refused(saved)


def test_a_pair_of_models_with_one_file_each_is_refused(tmp_path):
    for seed in (1, 2):
        save_model(model(seed), tmp_path / str(seed))
    (first, tensors), (_, others) = files_of(tmp_path / "1"), files_of(tmp_path / "2")
    with Altered(tensors, others.read_bytes()):
        assert "checksum" in refused(tmp_path / "1")
    tensors.unlink()
    assert "is missing" in refused(tmp_path / "1")
    first.unlink()
    assert "has no model.json" in refused(tmp_path / "1")


@pytest.mark.parametrize("name", ["nowhere", "plain", "a\0b", "x" * 300, "empty"])
def test_what_is_no_folder_of_a_model_is_refused(tmp_path, name):
    (tmp_path / "plain").write_text("x")
    (tmp_path / "empty").mkdir()
    assert "is not a model" in refused(f"{tmp_path}/{name}")


def test_a_pipe_or_a_folder_in_place_of_a_file_does_not_hang(tmp_path):
    save_model(model(), tmp_path / "model")
    for path in files_of(tmp_path / "model"):
        data = path.read_bytes()
        for make in (os.mkfifo, os.mkdir):
            path.unlink()
            make(path)
            assert "not a file" in refused(tmp_path / "model")
            path.rmdir() if path.is_dir() else path.unlink()
            path.write_bytes(data)


def test_no_permission_to_read_is_no_fault_of_the_model(monkeypatch, saved):
    def denied(self, *_):
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(Path, "open", denied)
    with pytest.raises(UnavailableError, match="could not be read: Permission denied"):
        load_model(saved)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "cannot be read as JSON"),
        ("[" * 1_000_000, "cannot be read as JSON"),
        ('{"format": "fastgrl-model", "version": NaN}', "NaN is not a number"),
        ('{"format": "fastgrl-model", "version": ' + "1" * 5000 + "}", "cannot be read as JSON"),
        ("[]", "not of fastgrl"),
        ('{"format": "another", "version": 1}', "not of fastgrl"),
        ('{"format": ["fastgrl-model"]}', "not of fastgrl"),
        ('{"format": "fastgrl-model"}', "None is not a format version"),
        ('{"format": "fastgrl-model", "version": 0}', "0 is not a format version"),
        ('{"format": "fastgrl-model", "version": true}', "True is not a format version"),
        ('{"format": "fastgrl-model", "version": 1}', "checksum does not match"),
        ('{"format": "fastgrl-model", "version": "\\u001b[2J"}', "not a format version"),
        ("\x1b[2J", "cannot be read as JSON"),
    ],
)
def test_another_text_in_place_of_the_index_is_refused(saved, text, says):
    with Altered(saved / "model.json", text.encode()):
        assert says in refused(saved)


def test_a_newer_format_asks_for_an_upgrade(saved):
    with Altered(saved / "model.json", b'{"format": "fastgrl-model", "version": 2}'):
        message = refused(saved)
    assert message.endswith("a newer fastgrl (format 2); this one reads format 1: upgrade fastgrl")


def test_an_index_without_end_is_refused(monkeypatch, saved):
    monkeypatch.setattr(storage, "LONGEST", 1000)
    assert "longer than any" in refused(saved)


def resealed(folder, change):
    """The text of the index with other fields and a checksum that fits them."""
    fields = json.loads((folder / "model.json").read_text())
    del fields["checksum"]
    change(fields)
    body = json.dumps(fields, indent=1).removesuffix("\n}").encode() + stored_index._SEAL
    return body + stored_index._seal_of(body)


LIES = {
    "no kind": lambda f: f.pop("kind"),
    "kind": lambda f: f.update(kind=3),
    "parameters": lambda f: f.update(parameters=[]),
    "facts": lambda f: f.update(facts=None),
    "arrays": lambda f: f.update(arrays=[]),
    "an array": lambda f: f["arrays"].update(left=[]),
    "dtype": lambda f: f["arrays"]["left"].update(dtype="int32"),
    "same size": lambda f: f["arrays"]["right"].update(dtype="int64"),
    "object": lambda f: f["arrays"]["left"].update(dtype="object"),
    "dtype 3": lambda f: f["arrays"]["left"].update(dtype=["float32"]),
    "transposed": lambda f: f["arrays"]["left"]["shape"].reverse(),
    "negative": lambda f: f["arrays"]["left"].update(shape=[-20_000, -3]),
    "fraction": lambda f: f["arrays"]["left"].update(shape=[20_000.0, 3]),
    "boolean": lambda f: f["arrays"]["left"].update(shape=[20_000, 3, True]),
    "huge": lambda f: f["arrays"]["left"].update(shape=[1 << 70, 3]),
    "huge and empty": lambda f: f["arrays"]["left"].update(shape=[0, 1 << 70]),
    "many": lambda f: f["arrays"]["left"].update(shape=[1] * 1000),
    "one more": lambda f: f["arrays"].update(more={"dtype": "int64", "shape": [0]}),
    "one less": lambda f: f["arrays"].pop("left"),
    "ids": lambda f: f.update(node_ids={}),
    "ids count": lambda f: f["node_ids"].update(count=19_999),
    "ids kind": lambda f: f["node_ids"].update(kind="numbers"),
    "ids json": lambda f: f["node_ids"].update(kind="json"),
    "ids unknown": lambda f: f["node_ids"].update(kind="pickle"),
    "file": lambda f: f["tensors"].update(file="../../etc/passwd"),
    "bytes": lambda f: f["tensors"].update(bytes=5),
    "sha256": lambda f: f["tensors"].update(sha256="../" + "0" * 61),
    "sums": lambda f: f["tensors"].update({stored_tensors.SUMS: "0" * 64}),
    "no tensors": lambda f: f.pop("tensors"),
}


@pytest.mark.parametrize("lie", LIES)
def test_an_index_that_lies_is_refused_even_with_the_right_checksum(saved, lie):
    with Altered(saved / "model.json", resealed(saved, LIES[lie])):
        for mmap in (True, False):
            assert "fit and save the model again" in refused(saved, mmap=mmap)


def test_an_unchanged_index_sealed_anew_is_the_same_index(saved):
    assert resealed(saved, lambda fields: None) == (saved / "model.json").read_bytes()


@pytest.mark.parametrize("mmap", [True, False])
def test_headers_that_lie_about_their_length_or_offsets_are_refused(saved, mmap):
    path = files_of(saved)[1]
    data = path.read_bytes()
    length = int.from_bytes(data[:8], "little")
    entries = data[8 : 8 + length]
    for head in (
        (2**63).to_bytes(8, "little") + entries,
        (length - 1).to_bytes(8, "little") + entries,
        data[:8] + entries.replace(b'"data_offsets":[0,', b'"data_offsets":[8,', 1),
        data[:8] + entries.replace(b'"F32"', b'"I32"', 1),
        data[:8] + b"[" * length,
    ):
        assert len(head) == 8 + length
        with Altered(path, head + data[8 + length :]):
            for check in (True, False):
                assert "header does not agree" in refused(saved, mmap=mmap, check=check)


@pytest.mark.parametrize(
    ("name", "value", "says"),
    [
        ("left", b"\x00\x00\xc0\x7f", "'left' holds what is not a number"),
        ("right", b"\x00\x00\x00\x00\x00\x00\xf0\xff", "'right' holds what is not a number"),
        ("mask", b"\x02", "'mask' holds what is not a number"),
        ("node_ids.utf8", b"\xff", "node ids cannot be read"),
        ("node_ids.offsets", b"\x01", "node ids cannot be read"),
    ],
)
def test_numbers_and_ids_that_cannot_be_are_refused_even_with_the_right_checksum(saved, name, value, says):
    path = files_of(saved)[1]
    data = bytearray(path.read_bytes())
    index = stored_index.Index.of((saved / "model.json").read_bytes())
    start = len(data) - index.tensors[-1].end
    begin = start + next(tensor.begin for tensor in index.tensors if tensor.name == name)
    data[begin : begin + len(value)] = value
    sums = stored_tensors.sums_of([np.frombuffer(data, np.uint8)[start:]])
    changed = resealed(saved, lambda f: f["tensors"].update({stored_tensors.SUMS: sums}))
    with Altered(path, data), Altered(saved / "model.json", changed):
        assert says in refused(saved)
        with pytest.raises(InputError):
            verify_model(saved)


def test_bytes_with_the_right_sums_are_refused_by_the_full_verification(saved):
    path = files_of(saved)[1]
    data = bytearray(path.read_bytes())
    index = stored_index.Index.of((saved / "model.json").read_bytes())
    begin = len(data) - index.tensors[-1].end
    data[begin + 7] ^= 0x80  # the highest bit of two words of one column
    data[begin + 7 + 521 * 8] ^= 0x80
    with Altered(path, data), pytest.raises(InputError, match="SHA-256"):
        verify_model(saved)


@pytest.mark.parametrize(
    ("kind", "arrays"),
    [
        ("text", {"node_ids.utf8": np.frombuffer(b"abc", np.uint8), "node_ids.offsets": np.array(offsets)})
        for offsets in (
            [],
            [0],
            [1, 3],
            [0, 2],
            [0, 2, 1, 3],
            [0, 4],
            [0, -1, 3],
            [-3, 3],
            [0.0, 3.0],
            [[0, 3]],
        )
    ]
    + [
        (
            "text",
            {"node_ids.utf8": np.frombuffer(b"\xc3\xa9", np.uint8), "node_ids.offsets": np.array([0, 1, 2])},
        ),
        ("text", {"node_ids.utf8": np.frombuffer(b"aa", np.uint8), "node_ids.offsets": np.array([0, 1, 2])}),
        ("json", {"node_ids.utf8": np.frombuffer(b"{}", np.uint8), "node_ids.offsets": np.array([0, 2])}),
        ("json", {"node_ids.utf8": np.frombuffer(b"null", np.uint8), "node_ids.offsets": np.array([0, 4])}),
        ("json", {"node_ids.utf8": np.frombuffer(b"NaN", np.uint8), "node_ids.offsets": np.array([0, 3])}),
        ("numbers", {"node_ids": np.array([1, 1])}),
        ("numbers", {"node_ids": np.array([[1]])}),
        ("numbers", {"node_ids": np.array([np.nan])}),
        ("numbers", {"node_ids": np.array([True])}),
        ("numbers", {}),
    ],
)
def test_packed_ids_that_were_never_packed_are_refused(kind, arrays):
    with pytest.raises((ValueError, DtypeError)):
        unpack_ids(kind, arrays)


def test_shapes_that_fit_together_are_named_and_others_refused():
    stored = model()
    shapes = {"left": ("n", "k"), "right": ("n", 3), "indptr": ("n+1",), "indices": ("m",)}
    kinds = {"indptr": "i", "indices": "i"}
    assert expect(stored, shapes, kinds=kinds) == {"n": 40, "k": 3, "m": 77}
    for wrong, says in [
        ({"left": ("k", "k")}, "'left' is 40×3, not k×k"),
        ({"left": ("n",)}, "'left' is 40×3, not n "),
        ({"left": ("n", 4)}, "'left' is 40×3, not n×4"),
        ({"indptr": ("n",)}, "'indptr' is of int64, not of kind 'f'"),
        ({"nothing": ("n",)}, "'nothing' is missing"),
    ]:
        with pytest.raises(InputError, match=says) as caught:
            expect(stored, wrong, name="models/a")
        assert str(caught.value).startswith("'models/a': ")


@given(st.lists(st.integers(0, 400_000), max_size=6), st.integers(0, 2**32))
@settings(max_examples=30, deadline=None)
def test_the_sums_do_not_depend_on_how_the_bytes_are_cut(lengths, seed):
    data = np.random.default_rng(seed).integers(0, 256, sum(lengths), dtype=np.uint8)
    parts = np.split(data, np.cumsum(lengths)[:-1]) if lengths else []
    whole = stored_tensors.sums_of([data])
    assert stored_tensors.sums_of(parts) == whole
    blocks = -(-len(data) // (8 * 256 * 521))
    padded = np.append(data, np.zeros(blocks * 8 * 256 * 521 - len(data), np.uint8)).view("<u8")
    sums = padded.reshape(blocks, 256, 521).sum(1) if blocks else np.empty((0, 521), "<u8")
    hashes = [bytes.fromhex(stored_tensors.sha256_of([row.tobytes()])) for row in sums]
    assert stored_tensors.sha256_of(hashes) == whole


def test_the_digest_of_data_tells_types_shapes_names_and_ids_apart():
    base = {"a": np.arange(6)}
    digests = [
        data_digest(base, [1, 2]),
        data_digest({"b": np.arange(6)}, [1, 2]),
        data_digest({"a": np.arange(6).reshape(2, 3)}, [1, 2]),
        data_digest({"a": np.arange(6).view(np.uint64)}, [1, 2]),
        data_digest(base, ["1", "2"]),
        data_digest(base, [2, 1]),
    ]
    assert len(set(digests)) == len(digests)
    assert data_digest({"a": np.arange(12)[::2] // 2}, np.array([1, 2])) == digests[0]
