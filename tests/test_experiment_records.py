"""Records: appended by many, read by all, whole whatever is killed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fastgrl.errors import InputError, UnavailableError
from fastgrl.experiments import records
from fastgrl.experiments.records import FILE, append_record, read_records

WRITER = """
import sys
from pathlib import Path
from fastgrl.experiments.records import append_record
path, name, keys = Path(sys.argv[1]), sys.argv[2], sys.argv[3].split(",")
sys.stdin.readline()
for key in keys:
    new = append_record(path, {"key": key, "task": "links", "method": name, "dataset": "ppi", "seed": 0,
                               "metric": "roc_auc", "value": 0.5, "seconds": 1.0, "long": "é" * 5000})
    print(key if new else "", flush=True)
"""

plain_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**9), 10**9) | st.floats(-1e9, 1e9) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)


def record(key: str, **more: object) -> dict[str, object]:
    known = {"task": "links", "method": "walk", "dataset": "ppi", "seed": 0, "metric": "roc_auc"}
    return {"key": key, **known, "value": 0.875, "seconds": 1.5, **more}


several = st.lists(
    st.builds(
        lambda key, more: more | record(key),
        st.text("0123456789abcdef", min_size=1, max_size=16),
        st.dictionaries(st.text(max_size=8), plain_values, max_size=3),
    ),
    min_size=1,
    max_size=4,
    unique_by=lambda found: found["key"],
)


def written(folder: str, found: list[dict[str, object]]) -> Path:
    path = Path(folder) / FILE
    assert all(append_record(path, each) for each in found)
    return path


@settings(max_examples=25, deadline=None)
@given(several)
def test_what_is_appended_is_read_in_order_and_no_key_is_taken_twice(found):
    with tempfile.TemporaryDirectory() as folder:
        path = written(folder, found)
        assert read_records(path) == found
        before = path.read_bytes()
        assert not any(append_record(path, {**each, "value": 0.1}) for each in found)
        assert path.read_bytes() == before
        assert before.count(b"\n") == len(found)


@settings(max_examples=6, deadline=None)
@given(several)
def test_a_line_cut_anywhere_loses_no_whole_record_and_can_be_written_again(found):
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(records.os, "fsync", lambda file: None)  # thousands of them take minutes
        path = written(folder, found)
        data = path.read_bytes()
        start = data.rfind(b"\n", 0, -1) + 1
        for end in range(start, len(data) + 1):
            path.write_bytes(data[:end])
            whole = end >= len(data) - 1  # all but the end of the line
            assert read_records(path) == (found if whole else found[:-1])
            assert append_record(path, found[-1]) is not whole
            assert append_record(path, record("another"))
            assert read_records(path) == [*found, record("another")]
            assert path.read_bytes().startswith(data)


def test_a_file_of_any_length_survives_a_cut_at_every_byte(tmp_path):
    path = tmp_path / FILE
    found = [record(f"{number:x}", note="naïve\n北京") for number in range(4)]
    data = written(str(tmp_path), found).read_bytes()
    for end in range(len(data) + 1):
        path.write_bytes(data[:end])
        left = read_records(path)
        assert left == found[: len(left)]
        assert len(left) >= data[:end].count(b"\n")


def test_no_file_holds_no_records(tmp_path):
    assert read_records(tmp_path / FILE) == []
    (tmp_path / FILE).write_bytes(b"\n\n")
    assert read_records(tmp_path / FILE) == []


def test_of_two_lines_with_one_key_the_first_counts(tmp_path):
    path = written(str(tmp_path), [record("a"), record("b")])
    path.write_bytes(path.read_bytes() * 2)
    assert [found["key"] for found in read_records(path)] == ["a", "b"]


def test_programs_that_append_at_once_write_every_key_once_and_every_line_whole(tmp_path):
    path = tmp_path / FILE
    shares = [[f"{number:04x}" for number in range(5 * i, 5 * i + 15)] for i in range(4)]
    command = [sys.executable, "-c", WRITER, str(path)]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    programs = [
        subprocess.Popen([*command, f"p{i}", ",".join(keys)], **pipes) for i, keys in enumerate(shares)
    ]
    for program in programs:
        program.stdin.write("go\n")
        program.stdin.flush()
    claimed = Counter(key for program in programs for key in program.communicate(timeout=60)[0].split())
    assert [program.returncode for program in programs] == [0] * 4
    expected = {key for keys in shares for key in keys}
    assert claimed == Counter(expected)
    lines = path.read_bytes().splitlines(keepends=True)
    assert all(line.endswith(b"\n") for line in lines)
    assert Counter(json.loads(line)["key"] for line in lines) == claimed


def test_writers_that_are_killed_leave_the_file_to_others(tmp_path):
    path = tmp_path / FILE
    keys = ",".join(f"{number:04x}" for number in range(1000))
    for round_ in range(3):
        program = subprocess.Popen(
            [sys.executable, "-c", WRITER, str(path), f"p{round_}", keys],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        with program:
            program.stdin.write("go\n")
            program.stdin.flush()
            told = [program.stdout.readline().strip() for _ in range(10 * round_ + 5)]
            program.kill()
            told += program.stdout.read().split()
        found = {each["key"] for each in read_records(path)}
        assert {key for key in told if key} <= found
        assert append_record(path, record(f"mine-{round_}"))


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (b"{oops", "is not JSON"),
        (b"\xff\xfe\x00", "is not JSON"),
        (b"[1, 2]", "has no 'key'"),
        (b"17", "has no 'key'"),
        (b'{"key": "b"}', "has no 'task'"),
        (json.dumps(record("b") | {"key": 5}).encode(), "its key is no text"),
        (json.dumps(record("b") | {"key": []}).encode(), "its key is no text"),
    ],
)
def test_a_bad_line_in_the_middle_is_named(line, words, tmp_path):
    path = written(str(tmp_path), [record("a")])
    path.write_bytes(path.read_bytes() + line + b"\n" + json.dumps(record("c")).encode() + b"\n")
    with pytest.raises(InputError, match=words) as caught:
        read_records(path)
    assert f"{path}, line 2" in str(caught.value)


def test_a_bad_line_in_the_middle_costs_no_later_record(tmp_path):
    path = written(str(tmp_path), [record("a")])
    path.write_bytes(path.read_bytes() + b'{oops\n["b"]\n')
    before = path.read_bytes()
    assert append_record(path, record("d"))
    assert not append_record(path, record("a"))
    assert path.read_bytes() == before + json.dumps(record("d"), sort_keys=True).encode() + b"\n"


def test_a_number_that_is_none_is_refused_before_the_file_is_touched(tmp_path):
    with pytest.raises(ValueError, match="JSON"):
        append_record(tmp_path / FILE, record("a", value=float("nan")))
    assert not (tmp_path / FILE).exists()


def test_a_folder_that_cannot_be_written_or_read_is_named(tmp_path):
    missing = tmp_path / "missing" / FILE
    with pytest.raises(UnavailableError, match="could not be written: No such file"):
        append_record(missing, record("a"))
    (tmp_path / FILE).mkdir()
    with pytest.raises(UnavailableError, match="could not be written: Is a directory"):
        append_record(tmp_path / FILE, record("a"))
    with pytest.raises(UnavailableError, match="could not be read: Is a directory"):
        read_records(tmp_path / FILE)


def test_no_permission_to_write_is_said(tmp_path, monkeypatch):
    def refused(*_: object) -> int:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(records.os, "open", refused)
    with pytest.raises(UnavailableError, match="could not be written: Permission denied"):
        append_record(tmp_path / FILE, record("a"))


def test_a_full_disk_is_said_and_leaves_what_was_there(tmp_path, monkeypatch):
    path = written(str(tmp_path), [record("a")])
    write = os.write

    def full(file: int, data: bytes) -> int:
        if len(data) < 60:
            raise OSError(28, "No space left on device")
        return write(file, bytes(data)[:50])

    monkeypatch.setattr(records.os, "write", full)
    with pytest.raises(UnavailableError, match="No space left"):
        append_record(path, record("b"))
    monkeypatch.undo()
    assert read_records(path) == [record("a")]
    assert append_record(path, record("b"))
    assert read_records(path) == [record("a"), record("b")]
