"""Whether anything has become slower: ratios to plain references, beside the stored ones.

    FASTGRL_DATA=<folder> python benchmarks/check.py [--update] [--only TEXT]

Each line sets a part of fastgrl against what one would write in NumPy and SciPy (references.py), both
on one thread and in turn, in CPU seconds, best of several: a ratio that a busy machine hardly moves. It fails
when a ratio is below the stored one by more than the line's tolerance three times over, and names the line.
Ratios are stored for each kind of processor, whose caches they depend on. `--update` stores what was
measured, and keeps the tolerances. Under three minutes.
"""

from __future__ import annotations

import argparse
import datetime
import gc
import json
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import references
from common import _cpu_name, header, run_child

import fastgrl as fg
from fastgrl.parallel import single_threaded_blas, use_threads

STORED = Path(__file__).with_name("ratios.json")
TRIES, ROUNDS, TURN, TOLERANCE = 3, 5, 0.03, 1.35


class Pair(NamedTuple):
    """The plain reference, ours, and how both are timed."""

    reference: Callable[[], Any]
    ours: Callable[[], Any]
    seconds: Callable[[Callable[[], Any]], float]


def cpu_seconds(run: Callable[[], Any]) -> float:
    """The least CPU time of a call, of those that fit in a turn."""
    gc.collect()
    times: list[float] = []
    while sum(times) < TURN:
        begin = time.process_time()
        run()
        times.append(time.process_time() - begin)
    return min(times)


def child_seconds(run: Callable[[], Any]) -> float:
    """CPU time of the process that the call ran."""
    return float(run().cpu_seconds)


def lines(folder: Path) -> Iterator[tuple[str, Pair]]:
    for name, reference, ours in references.inside(folder):
        yield name, Pair(reference, ours, cpu_seconds)
    for name, reference, ours in references.commands(folder):
        yield name, Pair(_process(reference), _process(ours), child_seconds)


def _process(command: list[str]) -> Callable[[], Any]:
    def run() -> Any:
        child = run_child(command)
        assert child.status == 0, child.errors
        return child

    return run


def ratio(pair: Pair) -> float:
    """Reference over ours: larger is better."""
    times: dict[bool, list[float]] = {True: [], False: []}
    for number in range(ROUNDS):
        for ours in (number % 2 == 0, number % 2 == 1):
            times[ours].append(pair.seconds(pair.ours if ours else pair.reference))
    return min(times[False]) / min(times[True])


def best_ratio(pair: Pair, enough: float) -> tuple[float, int]:
    """The first ratio that is enough, or the best of all tries, and how many there were."""
    found: list[float] = []
    while len(found) < TRIES and (not found or max(found) < enough):
        found.append(ratio(pair))
    return max(found), len(found)


def compare(stored: dict[str, Any], only: str) -> dict[str, float]:
    """Measure every line and print it beside its stored ratio."""
    print(f"{'reference / ours':52}{'ratio':>8}{'stored':>8}{'least':>8}{'tries':>7}")
    found: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as name, use_threads(1), single_threaded_blas():
        for line, pair in lines(Path(name)):
            if only in line:
                before = stored["lines"].get(line)
                least = before["ratio"] / before["tolerance"] if before else 0.0
                found[line], tries = best_ratio(pair, least)
                known = f"{before['ratio']:8.2f}{least:8.2f}" if before else f"{'new':>8}{'':8}"
                verdict = "  SLOWER" if found[line] < least else ""
                print(f"{line:52}{found[line]:8.2f}{known}{tries:7}{verdict}", flush=True)
    return found


def slower(found: dict[str, float], stored: dict[str, Any]) -> list[str]:
    known = {name: line for name, line in stored["lines"].items() if name in found}
    return [name for name, line in known.items() if found[name] < line["ratio"] / line["tolerance"]]


def store(found: dict[str, float], stored: dict[str, Any]) -> None:
    processor = processor_kind()
    before = stored.get(processor, {"lines": {}})["lines"]
    new = {
        name: {
            "ratio": round(value, 3),
            "tolerance": before[name]["tolerance"] if name in before else TOLERANCE,
        }
        for name, value in found.items()
    }
    made = {"date": str(datetime.date.today()), "kernel": fg.kernel_info().kernel, "lines": before | new}
    STORED.write_text(json.dumps(stored | {processor: made}, indent=1) + "\n")
    print(f"stored in {STORED.name} for {processor}")


def processor_kind() -> str:
    """The name of the processor, and whether it has the wide instructions that BLAS makes use of."""
    facts = Path("/proc/cpuinfo").read_text() if Path("/proc/cpuinfo").exists() else ""
    return f"{_cpu_name()} {'with' if ' avx512f' in facts else 'without'} AVX-512"


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--update", action="store_true", help="store what is measured")
    parser.add_argument("--only", default="", metavar="TEXT", help="the lines with this in their names")
    return parser.parse_args()


def main() -> None:
    given = arguments()
    print(header())
    stored = json.loads(STORED.read_text()) if STORED.exists() else {}
    known, kernel = stored.get(processor_kind()), fg.kernel_info().kernel
    if known is None and not given.update:
        sys.exit(
            f"no ratios are stored for {processor_kind()}: run it with --update on the last good version"
        )
    known = known or {"lines": {}, "kernel": kernel}
    if not given.update and known["kernel"] != kernel:
        sys.exit(f"the ratios were stored with the {known['kernel']} kernel; this one is {kernel}")
    begin = time.perf_counter()
    found = compare(known, given.only)
    print(f"{time.perf_counter() - begin:.0f} s")
    if given.update:
        return store(found, stored)
    if lost := slower(found, known):
        sys.exit(f"slower than stored: {', '.join(lost)}")


if __name__ == "__main__":
    main()
