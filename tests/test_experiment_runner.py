"""Runs that are stopped go on, runners side by side share the work, workers end with their runner."""

from __future__ import annotations

import io
import json
import os
import random
import signal
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path

import pytest

from fastgrl.errors import ArgumentError, InputError, MissingExtraError, UnavailableError
from fastgrl.experiments import runner, worker
from fastgrl.experiments.locks import lock_byte, locked_byte, unlock_byte
from fastgrl.experiments.plans import Run
from fastgrl.experiments.records import FILE, append_record, read_records
from fastgrl.experiments.runner import Event, Ran, perform_all

# A worker that starts in no time: what it does and how long it takes is in the settings of the run.
STAND_IN = """
import hashlib, json, os, sys, threading, time
asked = json.loads(sys.stdin.readline())["run"]
threading.Thread(target=lambda: (sys.stdin.read(), os._exit(1)), daemon=True).start()
facts = {name: value for name, value in asked.items() if name != "spec"}
key = hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:16]
record = {"key": key, **facts, "value": asked["seed"] / 8, "seconds": 0.1, "process": os.getpid()}
def tell(**message):
    os.write(1, json.dumps(message).encode() + b"\\n")
tell(progress=[1, 2])
time.sleep(facts["settings"]["sleep"])
ending = facts["settings"].get("ending", "well")
if ending == "well":
    tell(record=record)
elif ending == "error":
    tell(error="the graph is directed")
elif ending == "cut":
    os.write(1, json.dumps({"record": record}).encode()[:-20])
elif ending == "code":
    os._exit(7)
else:
    os.kill(os.getpid(), 9)
os._exit(0)
"""
GONE = "/proc/{}/stat"


@pytest.fixture
def stand_in(monkeypatch) -> None:
    monkeypatch.setattr(runner, "WORKER", (sys.executable, "-I", "-S", "-c", STAND_IN))


def light(seed: int = 0, *, sleep: float = 0.02, **settings: object) -> Run:
    told = {"sleep": sleep, **settings}
    return Run("table-links", "links", "roc_auc", "light", "link-predictor", "ppi", seed, False, told)


def walk(seed: int = 0) -> Run:
    """A fit of a second or less."""
    told = {"design": "walk", "rank": 4}
    return Run("table-links", "links", "roc_auc", "walk-4", "link-predictor", "ppi", seed, False, told)


def long() -> Run:
    """A fit of several seconds that tells of its progress on the way."""
    told = {"design": "log-diffusion"}
    return Run("table-links", "links", "roc_auc", "log-diffusion", "link-predictor", "ppi", 0, False, told)


@contextmanager
def forked(runs: list[Run], folder: Path, *, tell: Callable[[Event], None] | None = None) -> Iterator[int]:
    """A runner in a process and a session of its own, without the seconds that imports take."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of forks beside threads, which stay idle here
        process = os.fork()
    if process == 0:
        code = 99
        try:
            os.setsid()
            ran = perform_all(runs, folder, threads=1, tell=tell)
            (folder / f"ran-{os.getpid()}.json").write_text(json.dumps(asdict(ran)))
            code = 0
        finally:
            os._exit(code)
    try:
        yield process
    finally:
        end(process)


def end(process: int) -> None:
    try:
        os.kill(process, signal.SIGKILL)
        os.waitpid(process, 0)
    except (ProcessLookupError, ChildProcessError):
        pass


def ran(process: int, folder: Path) -> Ran:
    """What a forked runner found when it has ended by itself."""
    assert os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]) == 0
    found = json.loads((folder / f"ran-{process}.json").read_text())
    return Ran(**{name: tuple(value) if isinstance(value, list) else value for name, value in found.items()})


def is_gone(process: int) -> bool:
    try:
        return Path(GONE.format(process)).read_text().rpartition(")")[2].split()[0] in "ZX"
    except OSError:
        return True


def children(process: int) -> list[int]:
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            if int(fields[1]) == process and fields[0] not in "ZX":
                found.append(int(entry.name))
    return found


def wait_for(happened: Callable[[], object], seconds: float = 120.0) -> None:
    limit = time.monotonic() + seconds
    while not happened():
        assert time.monotonic() < limit, "waited in vain"
        time.sleep(0.02)


def keys(folder: Path) -> list[str]:
    return [record["key"] for record in read_records(folder / FILE)]


def lines(folder: Path) -> list[str]:
    return [json.loads(line)["key"] for line in (folder / FILE).read_text().splitlines()]


def test_each_run_becomes_a_record_and_is_not_performed_again(stand_in, tmp_path):
    runs, events = [light(seed) for seed in range(3)], []
    found = perform_all(runs, tmp_path / "deep" / "folder", tell=events.append)
    assert found == Ran(done=tuple(run.title for run in runs))
    assert keys(tmp_path / "deep" / "folder") == [run.key for run in runs]
    assert [event.kind for event in events] == ["begin", "progress", "end"] * 3
    assert [(event.number, event.runs) for event in events[::3]] == [(1, 3), (2, 3), (3, 3)]
    assert (events[1].done, events[1].total) == (1, 2)
    assert events[2].record["value"] == 0
    assert perform_all([*runs, light(3)], tmp_path / "deep" / "folder") == Ran((light(3).title,), known=3)


@pytest.mark.parametrize(
    ("ending", "words"),
    [
        ("error", "the graph is directed"),
        ("kill", "it was killed by signal 9; if memory ran out"),
        ("code", "it ended with code 7"),
        ("cut", "it ended with code 0"),
    ],
)
def test_a_run_that_fails_is_told_of_and_the_next_goes_on(ending, words, stand_in, tmp_path):
    events: list[Event] = []
    bad = light(0, ending=ending)
    found = perform_all([bad, light(1)], tmp_path, tell=events.append)
    assert found.done == (light(1).title,)
    assert found.failures.keys() == {bad.title}
    assert words in found.failures[bad.title]
    assert [event.reason for event in events if event.kind == "failed"] == list(found.failures.values())
    assert keys(tmp_path) == [light(1).key]
    assert perform_all([light(1)], tmp_path).known == 1


def test_a_worker_that_cannot_start_is_a_failure(monkeypatch, tmp_path):
    monkeypatch.setattr(runner, "WORKER", (sys.executable, "-I", "-S", "-c", "raise SystemExit(3)"))
    found = perform_all([light()], tmp_path)
    assert "ended with code 3" in found.failures[light().title]


def test_a_worker_killed_from_outside_is_a_failure_and_the_next_run_goes_on(stand_in, tmp_path):
    def kill(event: Event) -> None:
        if event.kind == "progress" and event.number == 1:
            for process in children(os.getpid()):
                os.kill(process, signal.SIGKILL)

    found = perform_all([light(sleep=60.0), light(1)], tmp_path, tell=kill)
    assert found.done == (light(1).title,)
    assert "killed by signal 9" in found.failures[light(sleep=60.0).title]


def test_runners_that_are_killed_at_any_moment_lose_and_repeat_nothing(stand_in, tmp_path):
    runs, chance = [light(seed) for seed in range(8)], random.Random(0)
    known: list[str] = []
    for _ in range(6):
        with forked(runs, tmp_path):
            time.sleep(chance.uniform(0.0, 0.5))
        found = keys(tmp_path)
        assert found[: len(known)] == known
        known = found
    found = perform_all(runs, tmp_path)
    assert len(found.done) + found.known == 8
    assert sorted(lines(tmp_path)) == sorted(run.key for run in runs)


def test_runners_side_by_side_perform_every_run_once(stand_in, tmp_path):
    runs = [light(seed, sleep=0.1) for seed in range(9)]
    with forked(runs, tmp_path) as one, forked(runs, tmp_path) as two, forked(runs, tmp_path) as three:
        found = [ran(each, tmp_path) for each in (one, two, three)]
    assert sorted(lines(tmp_path)) == sorted(run.key for run in runs)
    assert sorted(title for each in found for title in each.done) == sorted(run.title for run in runs)
    assert all(len(each.done) + each.known + len(each.elsewhere) == 9 for each in found)


def test_a_run_of_another_runner_is_left_to_it(stand_in, tmp_path):
    with forked([light(sleep=60.0)], tmp_path) as other:
        wait_for(lambda: children(other))
        found = perform_all([light(sleep=60.0), light(1)], tmp_path)
    assert found == Ran(done=(light(1).title,), elsewhere=(light(sleep=60.0).title,))


def test_an_interrupt_ends_the_worker_and_leaves_a_folder_to_go_on_with(stand_in, tmp_path):
    def interrupt(event: Event) -> None:
        if event.kind == "progress" and event.number == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        perform_all([light(0), light(1, sleep=60.0)], tmp_path, tell=interrupt)
    assert not children(os.getpid())
    assert perform_all([light(0), light(2)], tmp_path) == Ran((light(2).title,), known=1)


def test_a_worker_never_hears_of_control_c(monkeypatch, tmp_path):
    monkeypatch.setattr(
        runner, "WORKER", ("/bin/sh", "-c", 'read line; kill -INT $$; echo \'{"error": "alive"}\'')
    )
    assert perform_all([light()], tmp_path).failures == {light().title: "alive"}
    assert signal.SIGINT not in signal.pthread_sigmask(signal.SIG_BLOCK, [])


def test_what_is_not_installed_is_said_before_anything_is_run(monkeypatch, tmp_path):
    monkeypatch.setattr(runner, "find_spec", lambda name: None)
    run = Run("table-nodes", "nodes", "accuracy", "gcn", "gcn", "cora", 0, False, {})
    with pytest.raises(MissingExtraError, match=r"gcn needs torch.*pip install 'fastgrl\[baselines\]'"):
        perform_all([run], tmp_path / "new")
    assert not (tmp_path / "new").exists()
    record = {"key": run.key, "value": 0.8, "seconds": 1.0, **asdict(run)}
    append_record(tmp_path / FILE, record)
    assert perform_all([run], tmp_path).known == 1  # nothing is needed to read what is on record


def test_a_folder_that_cannot_be_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(ArgumentError, match="is no folder"):
        perform_all([light()], tmp_path / "file")
    with pytest.raises(UnavailableError, match="could not be read: Not a directory"):
        perform_all([light()], tmp_path / "file" / "below")
    (tmp_path / FILE).write_text("{oops\n")
    with pytest.raises(InputError, match=r"records\.jsonl, line 1 is not JSON"):
        perform_all([light()], tmp_path)


def test_a_locked_byte_is_another_programs_until_that_ends(tmp_path):
    path = tmp_path / "locks"
    path.write_bytes(b"")
    holder = (
        "import os, sys; from fastgrl.experiments.locks import lock_byte; "
        "file = os.open(sys.argv[1], os.O_RDWR); print(lock_byte(file, 5), flush=True); sys.stdin.read()"
    )
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    file = os.open(path, os.O_RDWR)
    with subprocess.Popen([sys.executable, "-c", holder, str(path)], **pipes) as program:
        assert program.stdout.readline() == "True\n"
        assert not lock_byte(file, 5)
        assert lock_byte(file, 6)
        unlock_byte(file, 6)
        program.kill()
    with locked_byte(file, 5):
        pass
    os.close(file)


# From here on with the true worker, each of which takes its seconds to start.


@pytest.fixture(scope="module")
def alone(tmp_path_factory) -> Path:
    """What one runner records, stopped once on the way with kill -9."""
    folder = tmp_path_factory.mktemp("alone")
    begun = folder / "begun"
    with forked([walk(0), long()], folder, tell=lambda event: marked(begun, event)) as process:
        wait_for(begun.exists)
        (child,) = children(process)
        os.kill(process, signal.SIGKILL)
        os.waitpid(process, 0)
        wait_for(lambda: is_gone(child), 20.0)
    assert keys(folder) == [walk(0).key]
    assert perform_all([walk(0), walk(1)], folder, threads=1) == Ran((walk(1).title,), known=1)
    assert lines(folder) == [walk(0).key, walk(1).key]
    return folder


def marked(begun: Path, event: Event) -> None:
    """Leave a mark when the second run is under way."""
    if event.kind == "progress" and event.number == 2:
        begun.touch()


def test_a_killed_runner_takes_its_worker_along_and_goes_on_later(alone):
    for record in read_records(alone / FILE):
        assert 0.8 < record["value"] < 0.9
        assert record["seconds"] <= record["seconds_total"]
        assert record["peak_memory_bytes"] > 1 << 20
        assert (record["machine"]["threads"], record["counts"]["nodes"]) == (1, 3852)
        assert {"started", "load", "command", "versions", "git", "data", "cpu_seconds"} <= record.keys()


def test_two_runners_find_what_one_finds(alone, tmp_path):
    runs = [walk(0), walk(1)]
    with forked(runs, tmp_path) as one, forked(runs[::-1], tmp_path) as two:
        found = [ran(each, tmp_path) for each in (one, two)]
    assert sorted(lines(tmp_path)) == sorted(run.key for run in runs)
    assert sum(len(each.done) for each in found) == 2
    values = [
        {record["key"]: record["value"] for record in read_records(folder / FILE)}
        for folder in (alone, tmp_path)
    ]
    assert values[0] == values[1]


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (UnavailableError("no space left"), "no space left"),
        (MemoryError(), "not enough memory"),
        (ZeroDivisionError("by zero"), "ZeroDivisionError: by zero"),
        (None, "ValueError: Out of range float values are not JSON compliant"),
    ],
)
def test_a_worker_says_what_went_wrong(error, words, monkeypatch):
    def perform(run: Run, progress: object) -> dict[str, float]:
        if error is not None:
            raise error
        return {"value": float("nan")}

    monkeypatch.setattr(worker, "perform", perform)
    monkeypatch.setattr(worker, "_leave_when_closed", lambda given: None)
    told = io.StringIO()
    assert worker.main(io.StringIO(json.dumps({"run": asdict(walk()), "threads": 1}) + "\n"), told) == 0
    (answer,) = map(json.loads, told.getvalue().splitlines())
    assert answer["error"].startswith(words)


@pytest.mark.parametrize("given", ["", '{"run":'])
def test_a_worker_that_is_not_asked_to_the_end_leaves_without_a_word(given):
    told = io.StringIO()
    assert worker.main(io.StringIO(given), told) == 1
    assert told.getvalue() == ""


def test_a_worker_whose_answers_nobody_reads_leaves_without_a_word():
    pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    with subprocess.Popen(runner.WORKER, text=True, **pipes) as program:
        program.stdin.write(json.dumps({"run": asdict(walk()), "threads": 1}) + "\n")
        program.stdin.flush()
        program.stdout.close()
        assert program.wait(120) == 1
        assert program.stderr.read() == ""


def test_a_worker_ends_with_the_pipe_from_its_runner():
    pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    with subprocess.Popen(runner.WORKER, text=True, **pipes) as program:
        program.stdin.write(json.dumps({"run": asdict(long()), "threads": 1}) + "\n")
        program.stdin.flush()
        assert "progress" in program.stdout.readline()
        program.stdin.close()
        assert program.wait(60) == 1
        assert "record" not in program.stdout.read()
        assert program.stderr.read() == ""
