"""What a command costs on a graph of 1000 edges, beside importing what it rests on; and where that goes.

    python benchmarks/startup.py [--quick]

Every contender is a process of its own; they take turns. The yardstick is
`python -c 'import numpy, scipy.sparse, sklearn.base'`; the aim is at most twice its time for `embed`. CPU
seconds say the same on a busy machine. Below: imports by package (python -X importtime, which is slower
than a run without it, so shares count and not seconds), and the steps of a second run in the same process.
"""

from __future__ import annotations

import argparse
import collections
import json
import re
import statistics
import sys
import tempfile
from pathlib import Path

import numpy as np
from common import Child, Neighbours, header, run_child

BARE = [sys.executable, "-c", "import numpy, scipy.sparse, sklearn.base"]
DESIGNS = ("degree-walk", "log-diffusion")
ALLOWED = 2.0
NUM_EDGES, NUM_NODES = 1000, 300
_IMPORT = re.compile(r"import time:\s+(\d+) \|\s+\d+ \|\s+(\w+)")
STEPS = """
import contextlib, io, json, sys, time
from fastgrl import cli, link_commands, link_runs
from fastgrl.io import writers

seconds = {}
def timed(home, name, step):
    function = getattr(home, name)
    def run(*given, **named):
        begin = time.perf_counter()
        try:
            return function(*given, **named)
        finally:
            seconds[step] = time.perf_counter() - begin
    setattr(home, name, run)

timed(link_commands, "read_edges", "reading")
timed(link_runs, "fit_graph", "fitting")
timed(writers, "write_embedding", "writing")
for _ in range(5):
    begin = time.perf_counter()
    with contextlib.redirect_stdout(io.StringIO()):
        assert cli.run(sys.argv[1:]) == 0
    total = time.perf_counter() - begin
print(json.dumps(seconds | {"options and printing": total - sum(seconds.values())}))
"""


def small_graph(folder: Path) -> str:
    """An edge list with a header and text ids, about as skewed as a graph of people."""
    rng = np.random.Generator(np.random.Philox(0))
    ends = (NUM_NODES * rng.random((NUM_EDGES, 2)) ** 2).astype(int)
    lines = ["source,target", *(f"n{u},n{v}" for u, v in ends)]
    (folder / "small.csv").write_text("\n".join(lines) + "\n")
    return str(folder / "small.csv")


def commands(folder: Path) -> dict[str, list[str]]:
    edges, out = small_graph(folder), str(folder / "out.csv")
    found = {"--version": ["--version"], "inspect": ["inspect", edges]}
    for design in DESIGNS:
        found[f"embed, {design}"] = ["embed", edges, "--design", design, "-o", out, "--force"]
    return found


def timings(contenders: dict[str, list[str]], rounds: int) -> dict[str, list[Child]]:
    """Every contender in turn, forwards and backwards alternately; the first round is not counted."""
    found: dict[str, list[Child]] = {name: [] for name in contenders}
    for number in range(-1, rounds):
        for name in list(contenders)[:: -1 if number % 2 else 1]:
            child = run_child(contenders[name])
            assert child.status == 0, child.errors
            found[name] += [child] * (number >= 0)
    return found


def print_ratios(found: dict[str, list[Child]]) -> None:
    clock = {name: min(child.seconds for child in children) for name, children in found.items()}
    cpu = {name: min(child.cpu_seconds for child in children) for name, children in found.items()}
    print(f"{'':24}{'seconds':>9}{'ratio':>8}{'CPU s':>9}{'ratio':>8}{'noise':>8}")
    for name, children in found.items():
        noise = statistics.median(child.seconds for child in children) / clock[name]
        ratio, cpu_ratio = clock[name] / clock["imports"], cpu[name] / cpu["imports"]
        over = name.startswith("embed") and ratio > ALLOWED
        print(
            f"{name:24}{clock[name]:9.2f}{ratio:8.2f}{cpu[name]:9.2f}{cpu_ratio:8.2f}{noise:8.2f}"
            f"{f'  MORE THAN {ALLOWED:.0f} TIMES' * over}"
        )


def print_imports(contenders: dict[str, list[str]]) -> None:
    """Seconds by package: of a module's own code, without what it imports in turn."""
    print("\nimports by package, share of all that is imported")
    for name, command in contenders.items():
        listing = run_child([command[0], "-X", "importtime", *command[1:]]).errors
        own: collections.Counter[str] = collections.Counter()
        for microseconds, package in _IMPORT.findall(listing):
            own["Python's own" if package in sys.stdlib_module_names else package] += int(microseconds)
        total = own.total()
        parts = ", ".join(f"{package} {count / total:.0%}" for package, count in own.most_common(7))
        print(f"{name:24}{total / 1e6:6.2f} s: {parts}")


def print_steps(arguments: dict[str, list[str]]) -> None:
    print("\nsteps of a fifth run in the same process, milliseconds")
    for name, given in arguments.items():
        if name.startswith("embed"):
            child = run_child([sys.executable, "-c", STEPS, *given])
            assert child.status == 0, child.errors
            steps = json.loads(child.text).items()
            print(f"{name:24}" + ", ".join(f"{step} {1000 * seconds:.1f}" for step, seconds in steps))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="two rounds instead of seven")
    rounds = 2 if parser.parse_args().quick else 7
    print(header())
    neighbours = Neighbours()
    with tempfile.TemporaryDirectory() as folder:
        arguments = commands(Path(folder))
        program = [sys.executable, "-m", "fastgrl"]
        contenders = {"imports": BARE} | {name: program + given for name, given in arguments.items()}
        print_ratios(timings(contenders, rounds))
        print_imports(contenders)
        print_steps(arguments)
    print(f"\n{neighbours}")


if __name__ == "__main__":
    main()
