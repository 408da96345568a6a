"""Two runs at once on the same cores, beside one alone; and whether anybody waits busily.

    FASTGRL_DATA=… python benchmarks/pairs.py [--quick]

A run is a process that repeats one fit until it has taken about five seconds by itself. Alone it has all
cores; of two at once both must finish, and the aim is at most 2.2 times the time of one. If one run keeps
only one core busy, two may take as long as one; if it keeps all busy, twice as long is the best there is.
Threads that wait busily show as CPU seconds: two runs at once then use more of them, per run, than one.
The last line is NumPy with its BLAS left as it is, for comparison.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import NamedTuple

from common import Neighbours, header

from fastgrl.parallel import available_cpus

ALLOWED = 2.2
SETUPS = {
    "embed, degree-walk, ca-AstroPh": """
graph = fg.load_dataset("ca-AstroPh").graph
run = lambda: fg.embed(graph, 32, design="degree-walk")""",
    "embed, log-diffusion, ca-AstroPh": """
graph = fg.load_dataset("ca-AstroPh").graph
run = lambda: fg.embed(graph, 64)""",
    "link with selection, ppi": """
graph = fg.load_dataset("ppi").graph
run = lambda: fg.LinkPredictor(select=True).fit(graph)""",
    "classify with selection, pubmed": """
data = fg.load_dataset("pubmed")
y = np.full(data.graph.num_nodes, -1)
y[data.train] = data.y[data.train]
run = lambda: fg.NodeClassifier().fit(data.graph, y, features=data.X)""",
    "NumPy: A @ A and its SVD": """
A = np.random.default_rng(0).standard_normal((600, 600))
run = lambda: np.linalg.svd(A @ A)""",
}
PROGRAM = """
import json, sys, time
import numpy as np
import fastgrl as fg
{setup}
run()
print("ready", flush=True)
repeats = int(sys.stdin.readline())
begin, used = time.perf_counter(), time.process_time()
for _ in range(repeats):
    run()
print(json.dumps([time.perf_counter() - begin, time.process_time() - used]), flush=True)
"""


class Run(NamedTuple):
    """Wall and CPU seconds."""

    seconds: float
    cpu_seconds: float


def runs_at_once(setup: str, repeats: int, number: int) -> list[Run]:
    """Start that many processes, wait until all are warm, and let them run at the same moment."""
    program = [sys.executable, "-c", PROGRAM.format(setup=setup)]
    started = [
        subprocess.Popen(program, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for _ in range(number)
    ]
    for process in started:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
    time.sleep(0.3)  # threads that still wait busily for the first fit fall asleep
    for process in started:
        assert process.stdin is not None
        process.stdin.write(f"{repeats}\n")
        process.stdin.flush()
    return [Run(*json.loads(process.communicate()[0])) for process in started]


def enough_repeats(setup: str, seconds: float) -> int:
    return max(1, round(seconds / runs_at_once(setup, 1, 1)[0].seconds))


def measured(setup: str, repeats: int, rounds: int) -> Iterator[tuple[Run, list[Run]]]:
    for _ in range(rounds):
        yield runs_at_once(setup, repeats, 1)[0], runs_at_once(setup, repeats, 2)


def print_line(name: str, setup: str, rounds: int, seconds: float) -> None:
    repeats = enough_repeats(setup, seconds)
    found = list(measured(setup, repeats, rounds))
    alone = min(one.seconds for one, _ in found)
    both = min(max(run.seconds for run in two) for _, two in found)
    busy = statistics.median(one.cpu_seconds / one.seconds for one, _ in found)
    one_cpu = min(one.cpu_seconds for one, _ in found)
    two_cpu = min(statistics.mean(run.cpu_seconds for run in two) for _, two in found)
    over = both / alone > ALLOWED and not name.startswith("NumPy")
    print(
        f"{name:34}{repeats:8}{alone:9.2f}{both:9.2f}{both / alone:8.2f}{busy:12.2f}{two_cpu / one_cpu:12.2f}"
        f"{f'  MORE THAN {ALLOWED} TIMES' * over}",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="one round of runs of two seconds")
    quick = parser.parse_args().quick
    print(header())
    print(f"{'':34}{'':8}{'one':>9}{'two at':>9}{'':8}{'cores busy':>12}{'CPU s, two':>12}")
    print(f"{'':34}{'repeats':>8}{'alone, s':>9}{'once, s':>9}{'ratio':>8}{'by one':>12}{'over one':>12}")
    neighbours = Neighbours()
    for name, setup in SETUPS.items():
        print_line(name, setup, rounds=1 if quick else 3, seconds=2 if quick else 5)
    print(f"on {available_cpus()} CPUs; {neighbours}")


if __name__ == "__main__":
    main()
