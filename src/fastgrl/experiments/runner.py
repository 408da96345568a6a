"""Running what has not been run: resumable, and safe beside other runners on the same folder.

Each run is performed by a process of its own and becomes one record. A byte of the file `runs.lock` is locked
while a run is on its way, so that another runner takes the next one instead; the lock ends with the process.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from fastgrl.checks import shown
from fastgrl.errors import ArgumentError, MissingExtraError, UnavailableError
from fastgrl.experiments.locks import lock_byte, unlock_byte
from fastgrl.experiments.methods import NEEDS
from fastgrl.experiments.plans import Run
from fastgrl.experiments.records import FILE, Record, append_record, read_records

LOCKS = "runs.lock"
WORKER = (sys.executable, "-P", "-m", "fastgrl.experiments.worker")  # -P: no module of the user's folder
# OpenMP's threads spin while they wait, and two of them on a busy machine take many times the time of one.
_SLEEPING_THREADS = {"OMP_WAIT_POLICY": "PASSIVE", "GOMP_SPINCOUNT": "0"}
_ENDED = 5.0
_OUT_OF_MEMORY = 9
_PLACE_DIGITS = 7  # of a key: some systems lock nothing beyond 2³¹ bytes


@dataclass(frozen=True)
class Event:
    """What a caller is told of while runs are performed.

    `kind` is "begin", "progress" (`done` of `total` steps of the run), "end" (with its `record`) or "failed"
    (with the `reason`); `number` of `runs` is the place of the run among those to be performed.
    """

    kind: str
    run: Run
    number: int
    runs: int
    done: int = 0
    total: int = 0
    record: Record | None = None
    reason: str = ""


@dataclass(frozen=True)
class Ran:
    """How it went: runs performed now, those that were on record before, those that another runner has."""

    done: tuple[str, ...] = ()
    known: int = 0
    elsewhere: tuple[str, ...] = ()
    failures: dict[str, str] = field(default_factory=dict)


def perform_all(
    runs: Sequence[Run],
    folder: Path,
    *,
    threads: int | None = None,
    tell: Callable[[Event], None] | None = None,
) -> Ran:
    """Perform every run that has no record in the folder yet, and append one for each."""
    missing = missing_runs(runs, folder)
    check_extras(missing)
    _make(folder)
    path, known = folder / FILE, len(runs) - len(missing)
    performed: list[str] = []
    elsewhere: list[str] = []
    failures: dict[str, str] = {}
    with _claims(folder / LOCKS) as claims:
        for number, run in enumerate(missing, 1):
            with _claimed(claims, run) as ours:
                if not ours:
                    elsewhere.append(run.title)
                elif any(record["key"] == run.key for record in read_records(path)):
                    known += 1  # another runner has been faster
                else:
                    event = Event("begin", run, number, len(missing))
                    reason = _recorded(event, path, threads, tell or _ignore)
                    if reason is None:
                        performed.append(run.title)
                    else:
                        failures[run.title] = reason
    return Ran(tuple(performed), known, tuple(elsewhere), failures)


def missing_runs(runs: Sequence[Run], folder: Path) -> list[Run]:
    """Those that have no record in the folder yet."""
    if folder.exists() and not folder.is_dir():
        raise ArgumentError(f"{shown(str(folder))} is no folder; name one, or one that is to be made")
    known = {record["key"] for record in read_records(folder / FILE)}
    return [run for run in runs if run.key not in known]


def _ignore(event: Event) -> None:
    del event


def _recorded(event: Event, path: Path, threads: int | None, tell: Callable[[Event], None]) -> str | None:
    """Perform a run and append its record; or say why there is none."""
    tell(event)

    def progress(done: int, total: int) -> None:
        tell(replace(event, kind="progress", done=done, total=total))

    found = _performed(event.run, threads, progress)
    if "record" not in found:
        reason = str(found["error"])
        tell(replace(event, kind="failed", reason=reason))
        return reason
    append_record(path, found["record"])
    tell(replace(event, kind="end", record=found["record"]))
    return None


def check_extras(runs: Sequence[Run]) -> None:
    """Say what is not installed before hours are spent."""
    for run in runs:
        missing = [name for name in NEEDS.get(run.engine, ()) if find_spec(name) is None]
        if missing:
            raise MissingExtraError(
                f"{run.method} needs {' and '.join(missing)}: pip install 'fastgrl[baselines]'; "
                "or name what to run with --only"
            )


def _make(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UnavailableError(f"{shown(str(folder))} could not be made: {error.strerror}") from error


@contextmanager
def _claims(path: Path) -> Iterator[int]:
    try:
        file = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
    except OSError as error:
        raise UnavailableError(f"{shown(str(path))} could not be written: {error.strerror}") from error
    try:
        yield file
    finally:
        os.close(file)


@contextmanager
def _claimed(claims: int, run: Run) -> Iterator[bool]:
    place = int(run.key[:_PLACE_DIGITS], 16)
    try:
        ours = lock_byte(claims, place)
    except OSError as error:
        raise UnavailableError(f"{LOCKS} could not be locked: {error.strerror}") from error
    try:
        yield ours
    finally:
        if ours:
            unlock_byte(claims, place)


def _performed(run: Run, threads: int | None, progress: Callable[[int, int], None]) -> dict[str, Any]:
    """The last that a worker told: a record or an error."""
    answer: dict[str, Any] | None = None
    with suppress(BrokenPipeError), _started() as worker:
        assert worker.stdin is not None
        assert worker.stdout is not None
        try:
            worker.stdin.write(json.dumps({"run": asdict(run), "threads": threads}) + "\n")
            worker.stdin.flush()
            answer = _answer(worker.stdout, progress)
            if answer is None:
                with suppress(subprocess.TimeoutExpired):
                    worker.wait(_ENDED)
        finally:
            worker.kill()
    return {"error": _how_it_ended(worker.returncode)} if answer is None else answer


def _started() -> subprocess.Popen[str]:
    """A worker that never hears of Ctrl-C, not even while it starts: that is for this program."""
    if not hasattr(signal, "pthread_sigmask"):
        return _open_worker()
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        return _open_worker()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _open_worker() -> subprocess.Popen[str]:
    told = os.environ | _SLEEPING_THREADS
    return subprocess.Popen(WORKER, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=told)


def _answer(lines: Iterable[str], progress: Callable[[int, int], None]) -> dict[str, Any] | None:
    """The first message that is not about progress; None if the worker ended before it was told whole."""
    for line in lines:
        if not line.endswith("\n"):
            break
        message: dict[str, Any] = json.loads(line)
        if "progress" not in message:
            return message
        progress(*message["progress"])
    return None


def _how_it_ended(code: int | None) -> str:
    if code is None or code >= 0:
        return f"it ended with code {code} and without an answer"
    hint = "; if memory ran out, close other programs or name less with --dataset and --only"
    return f"it was killed by signal {-code}" + hint * (-code == _OUT_OF_MEMORY)
