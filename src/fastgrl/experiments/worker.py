"""One run in a process of its own, so that its memory is its own: `python -m fastgrl.experiments.worker`.

The run is a line of JSON on stdin; lines of JSON on stdout tell of progress, and at last of the record or of
what went wrong. When stdin is closed nobody waits for the answer any more, and the process ends.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
import warnings
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any, TextIO

from fastgrl.datasets import load_dataset
from fastgrl.errors import FastgrlError
from fastgrl.experiments import surroundings
from fastgrl.experiments.methods import import_engine, measure
from fastgrl.experiments.plans import Run
from fastgrl.experiments.records import Record
from fastgrl.parallel import use_threads
from fastgrl.summaries import peak_memory

_REPORTS_PER_SECOND = 5


def perform(run: Run, progress: Any = None) -> Record:
    """Load the dataset, measure, and put down all that is known about it."""
    dataset = load_dataset(run.dataset)
    import_engine(run.engine)  # before any clock runs
    started, load, cpu = datetime.now(UTC), surroundings.load_average(), time.process_time()
    found = measure(run.engine, dataset, seed=run.seed, progress=progress, **run.settings)
    facts = asdict(run)
    facts.pop("spec")
    return {
        "key": run.key,
        **facts,
        **asdict(found),
        "cpu_seconds": time.process_time() - cpu,
        "peak_memory_bytes": peak_memory(),
        "started": started.isoformat(timespec="seconds"),
        "load": load,
        "command": run.command,
        "machine": surroundings.machine(),
        "versions": surroundings.versions(),
        "git": surroundings.git_state(),
        "data": surroundings.data_digest(run.dataset),
        "counts": dataset.counts,
    }


def main(given: TextIO, told: TextIO) -> int:
    """Read a run, perform it, and tell."""
    line = given.readline()
    if not line.endswith("\n"):
        return 1
    asked = json.loads(line)
    threading.Thread(target=_leave_when_closed, args=(given,), daemon=True).start()

    def tell(**message: Any) -> None:
        line = json.dumps(message, allow_nan=False) + "\n"
        try:
            told.write(line)
            told.flush()
        except BrokenPipeError:
            os._exit(1)

    last = 0.0

    def progress(done: int, total: int) -> None:
        nonlocal last
        if time.monotonic() - last > 1 / _REPORTS_PER_SECOND:
            last = time.monotonic()
            tell(progress=[int(done), int(total)])

    try:
        with use_threads(asked["threads"]):
            tell(record=perform(Run(**asked["run"]), progress))
    except FastgrlError as error:
        tell(error=str(error))
    except MemoryError:
        tell(error="not enough memory")
    except Exception as error:
        tell(error=f"{type(error).__name__}: {error}")
    return 0


def _leave_when_closed(given: TextIO) -> None:
    while given.readline():
        pass
    os._exit(1)


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the program that started this one
    warnings.simplefilter("ignore")
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # whatever else is printed is no answer
    # Leaving by the front door would wait for the thread that reads stdin.
    os._exit(main(sys.stdin, answers))
