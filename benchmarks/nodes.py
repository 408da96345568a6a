"""Node classification side by side: test accuracy and seconds, ours and a GCN's, in one run.

    FASTGRL_DATA=<folder> python benchmarks/nodes.py [--dataset NAME ...] [--quick] [--full-search]

One configuration: `NodeClassifier(select=False)` fitted and asked for all classes, against one training of a
GCN of 200 epochs without early stopping. The GCN gets its best form: features stay sparse, its matrices are
normalised, transposed and turned into torch's before the clock starts, and it is tried with one thread and
with two, the faster of which counts. Ours gets the `Graph` and the features as they come.

The whole search: `NodeClassifier()` with the validation nodes, against as many trainings of a GCN as ours
tried settings. Unless told `--full-search`, three of these, with a small, the published and a large network,
are timed and their mean multiplied; the table says so. All contenders of a dataset are timed in turn, best
and median; the noise is median over best.

The third table sets our seconds beside those of the prototype that the method was tried out with.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from importlib import metadata
from typing import Any

from common import Neighbours, Timing, header, race

import fastgrl as fg
from fastgrl.baselines import gcn
from fastgrl.co_ridge_grids import RESTARTS, ROUNDS, recipe_for
from fastgrl.metrics import accuracy
from fastgrl.node_evaluation import known_only
from fastgrl.parallel import available_cpus

DATASETS = ("cora", "citeseer", "pubmed")
ONE_TARGET, SEARCH_TARGET, PROTOTYPE_TARGET = 2.0, 50.0, 2.0
# Seconds of the whole search and of one configuration, on one core.
PROTOTYPE = {"cora": (3.2, 0.34), "citeseer": (4.2, 0.41), "pubmed": (10.3, 2.0)}
OURS, OURS_SELECTED = "fastgrl, one configuration", "fastgrl, whole search"
# What people search over: hidden columns, dropout, weight decay, learning rate.
HIDDEN, DROPOUT, DECAY, RATE = (8, 16, 32, 64), (0.2, 0.5, 0.8), (5e-5, 5e-4, 5e-3), (0.005, 0.01, 0.05)
SAMPLE = ({"hidden": 8, "dropout": 0.2}, {}, {"hidden": 32, "dropout": 0.8})


@dataclass(frozen=True)
class Row:
    """What a contender reached on one dataset: accuracy in percent, and seconds."""

    dataset: str
    name: str
    accuracy: float
    timing: Timing
    runs: int


@dataclass(frozen=True)
class Table:
    """All that was measured on one dataset."""

    rows: list[Row]
    settings: int  # that our search tried
    search: float  # seconds of as many trainings of a GCN
    searched: int  # trainings that were really timed
    best: float  # test accuracy of the training that was best on validation, in percent

    def seconds(self, name: str) -> float:
        return next(row.timing.best for row in self.rows if row.name == name)

    @property
    def gcn_seconds(self) -> float:
        return min(row.timing.best for row in self.rows if row.name.startswith("GCN"))


# The contenders.


def ours(data: Any, *, select: bool) -> fg.NodeClassifier:
    held = (data.graph.node_ids[data.validation], data.y[data.validation])
    model = fg.NodeClassifier(select=select, random_state=0)
    model.fit(
        data.graph, known_only(data.y, data.train), features=data.X, validation=held if select else None
    )
    model.predict()
    return model


def contenders(data: Any, problem: gcn.Problem) -> dict[str, Callable[[], Any]]:
    found: dict[str, Callable[[], Any]] = {
        OURS: partial(ours, data, select=False),
        OURS_SELECTED: partial(ours, data, select=True),
    }
    for threads in sorted({1, min(2, available_cpus())}):
        found[f"GCN, {threads} thread{'s' * (threads > 1)}"] = partial(
            gcn.run, problem, patience=None, threads=threads
        )
    return found


def test_accuracy(data: Any, result: Any) -> float:
    predictions = result.predictions if isinstance(result, gcn.Outcome) else result.predict()
    return 100 * accuracy(data.y[data.test], predictions[data.test])


def settings_tried(data: Any) -> int:
    """How many settings our search compares."""
    recipe = recipe_for(data.graph.num_nodes)
    return math.prod(map(len, (recipe.view_sets, RESTARTS, recipe.ridges, recipe.balances, ROUNDS)))


def grid(count: int) -> list[dict[str, Any]]:
    """`count` settings of a GCN, those of the cheap networks and the dear ones mixed."""
    names = ("weight_decay", "learning_rate", "dropout", "hidden")
    every = [
        dict(zip(names, values, strict=True)) for values in itertools.product(DECAY, RATE, DROPOUT, HIDDEN)
    ]
    return [every[number % len(every)] | {"seed": number // len(every)} for number in range(count)]


def search(
    data: Any, problem: gcn.Problem, count: int, *, threads: int, full: bool
) -> tuple[float, int, float]:
    """Seconds of a search over `count` settings, how many were trained, and what the best of them reached."""
    trials = []
    for setting in grid(count) if full else SAMPLE:
        begin = time.perf_counter()
        trials.append(
            (gcn.run(problem, patience=None, threads=threads, **setting), time.perf_counter() - begin)
        )
    best = max((outcome for outcome, _ in trials), key=lambda outcome: outcome.validation or 0.0)
    mean = statistics.mean(seconds for _, seconds in trials)
    return count * mean, len(trials), test_accuracy(data, best)


# The race.


def compare(name: str, *, rounds: int, full: bool) -> Table:
    data = fg.load_dataset(name)
    print(f"\n{data!r}", flush=True)
    neighbours, problem, results = Neighbours(), gcn.prepare(data), {}
    timings = race(contenders(data, problem), rounds, seconds=0, check=results.__setitem__)
    rows = [
        Row(name, who, test_accuracy(data, results[who]), timing, rounds) for who, timing in timings.items()
    ]
    fastest = min((row for row in rows if row.name.startswith("GCN")), key=lambda row: row.timing.best)
    threads, count = int(fastest.name.split()[1]), settings_tried(data)
    table = Table(rows, count, *search(data, problem, count, threads=threads, full=full))
    print_rows(table)
    print(neighbours)
    return table


# What is printed.


def print_rows(table: Table) -> None:
    print(f"{'':30}{'accuracy':>9}{'best s':>10}{'median s':>10}{'noise':>8}{'runs':>6}")
    for row in table.rows:
        times = f"{row.timing.best:10.3f}{row.timing.median:10.3f}{row.timing.noise:8.2f}"
        print(f"{row.name:30}{row.accuracy:9.1f}{times}{row.runs:6d}")
    kind = (
        "all of them trained"
        if table.searched == table.settings
        else f"{table.searched} trained, the rest reckoned"
    )
    print(
        f"{'GCN, whole search':30}{table.best:9.1f}{table.search:10.1f}   {table.settings} settings, {kind}"
    )


def verdict(ratio: float, target: float) -> str:
    return f"{ratio:.1f} × as fast, target {target:g}: {'met' if ratio >= target else 'MISSED'}"


def print_targets(tables: dict[str, Table]) -> None:
    print("\ntargets, by the best of each")
    for name, table in tables.items():
        one, whole = table.seconds(OURS), table.seconds(OURS_SELECTED)
        print(f"{name}: one configuration against one GCN: {verdict(table.gcn_seconds / one, ONE_TARGET)}")
        print(f"{name}: whole search against a GCN's: {verdict(table.search / whole, SEARCH_TARGET)}")
        for what, before, now in zip(
            ("whole search", "one configuration"), PROTOTYPE[name], (whole, one), strict=True
        ):
            ratio = verdict(before / now, PROTOTYPE_TARGET)
            print(f"{name}: {what} {now:.2f} s, the prototype {before:g} s: {ratio}")


def as_records(table: Table) -> list[dict[str, Any]]:
    rows = [
        {
            "dataset": row.dataset,
            "method": row.name,
            "test_accuracy": row.accuracy / 100,
            "best_seconds": row.timing.best,
            "median_seconds": row.timing.median,
            "runs": row.runs,
        }
        for row in table.rows
    ]
    whole = {"dataset": rows[0]["dataset"], "method": "GCN, whole search", "test_accuracy": table.best / 100}
    return [*rows, whole | {"best_seconds": table.search, "settings": table.settings, "runs": table.searched}]


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--dataset", action="append", choices=DATASETS, help="repeatable; default: all three")
    parser.add_argument("--rounds", type=int, default=5, help="timed runs of each contender")
    parser.add_argument("--quick", action="store_true", help="one timed run of each")
    parser.add_argument("--full-search", action="store_true", help="train every GCN of the search")
    parser.add_argument("--json", metavar="FILE", help="write the rows as a JSON list")
    return parser.parse_args()


def main() -> None:
    options = arguments()
    gcn.packages()  # importing is not on the clock
    print(header() + f"torch_geometric {metadata.version('torch_geometric')}")
    rounds = 1 if options.quick else options.rounds
    tables = {
        name: compare(name, rounds=rounds, full=options.full_search) for name in options.dataset or DATASETS
    }
    print_targets(tables)
    if options.json:
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump([record for table in tables.values() for record in as_records(table)], file, indent=1)


if __name__ == "__main__":
    main()
