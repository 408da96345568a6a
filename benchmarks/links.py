"""Link prediction side by side: test ROC-AUC and seconds of a fit, ours and the peers', in one run.

    FASTGRL_DATA=<folder> python benchmarks/links.py [--dataset NAME ...] [--without-slow] [--json FILE]

Every contender gets the training graph as a `fastgrl.Graph`; turning it into what a peer wants is on the
clock, scoring the test pairs is not. Peers with a setting that matters (iterations, epochs, whitening) are
tried with each of them, and shown with the one whose test AUC is best and with the cheapest one within two
points of ours: both are kinder than a user, who cannot see the test pairs, could be. Vectors score by dot
product or by cosine, whichever is better on the test pairs. Ours, and peers that take less than 10 seconds,
are timed in turn afterwards, best and median; slower peers once.

The last two contenders are a plain numba version of our own method on one core (`numba_push.py`).
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from common import DATASETS, Neighbours, Timing, header, race
from link_peers import (
    WINDOWS,
    Entry,
    Scores,
    cleora_entries,
    dot_product,
    installed,
    netmf_entries,
    network_entries,
    node2vec_entries,
    test_auc,
)

import fastgrl as fg

NEAR, SLOW = 2.0, 10.0
OURS, OURS_SELECTED = "fastgrl", "fastgrl, selected"
NUMBA, NUMBA_SELECTED = "numba, one core", "numba, one core, selected"
NUMBA_TARGETS = {(OURS, NUMBA): 7.0, (OURS_SELECTED, NUMBA_SELECTED): 6.0}
NUMBA_DATASET = "ca-AstroPh"


@dataclass(frozen=True)
class Row:
    """What a setting reached on one dataset, in percent and seconds."""

    entry: Entry
    score: str
    auc: float
    timing: Timing
    runs: int


# Ours.


def ours(graph: fg.Graph, **settings: Any) -> Scores:
    links = fg.LinkPredictor(random_state=0, **settings).fit(graph)
    full = {"score": lambda pairs: links.score_pairs(graph.node_ids[pairs])}
    return full | {"left · right": partial(dot_product, links.left_, links.right_)}


def our_entries(name: str) -> Iterator[Entry]:
    yield Entry(OURS, "log-diffusion, no selection", partial(ours, select=False))
    yield Entry(OURS_SELECTED, "log-diffusion", partial(ours, select=True))
    for design in ("walk", "degree-walk", "as-released"):
        fit = partial(ours, design=design, select=False, window=WINDOWS[name])
        yield Entry(f"fastgrl {design}", f"32 columns, C = {WINDOWS[name]}", fit)


def numba_entries() -> Iterator[Entry]:
    import numba_push

    numba_push.warm_up()  # compilation is not on the clock
    for name, fit in ((NUMBA, numba_push.fit), (NUMBA_SELECTED, numba_push.select_and_fit)):
        yield Entry(name, "rank 64, log-diffusion", lambda graph, fit=fit: {"score": fit(graph)})


def entries(name: str, *, without_slow: bool) -> list[Entry]:
    optional = (
        ("pycleora", cleora_entries),
        ("sknetwork.embedding", network_entries),
        ("gensim.models", partial(node2vec_entries, name)),
        ("numba", numba_entries),
    )
    found = [*our_entries(name), *netmf_entries(name), *installed(optional)]
    return [entry for entry in found if not (entry.slow and without_slow)]


# The race.


def compare(name: str, *, without_slow: bool, rounds: int) -> list[Row]:
    data = fg.load_dataset(name)
    print(f"\n{name}, {data.graph.num_nodes:,} nodes, {data.graph.num_edges:,} edges", flush=True)
    neighbours = Neighbours()
    tried = [row for entry in entries(name, without_slow=without_slow) for row in trial(entry, data)]
    rows = timed(shown_rows(tried), data.graph, rounds)
    print_rows(rows)
    print(neighbours)
    return rows


def trial(entry: Entry, data: Any) -> list[Row]:
    """One fit. Each of our own scores is a row; of a peer's dot product and cosine the better one is."""
    begin = time.perf_counter()
    scores = entry.fit(data.graph)
    seconds = time.perf_counter() - begin
    rows = [
        Row(entry, score, test_auc(function, data), Timing(seconds, seconds), 1)
        for score, function in scores.items()
    ]
    return rows if "score" in scores else [max(rows, key=lambda row: row.auc)]


def shown_rows(tried: list[Row]) -> list[Row]:
    """Ours all; of every peer's settings the best, and the cheapest within two points of ours."""
    goal = our_row(tried).auc - NEAR
    kept = [row for row in tried if row.entry.name.startswith("fastgrl")]
    for name in dict.fromkeys(row.entry.name for row in tried if row not in kept):
        settings = [row for row in tried if row.entry.name == name]
        near = [row for row in settings if row.auc >= goal]
        chosen = [max(settings, key=lambda row: row.auc)]
        chosen += [min(near, key=lambda row: row.timing.best)] if near else []
        kept += list({row.entry.setting: row for row in chosen}.values())
    return kept


def our_row(rows: list[Row], name: str = OURS) -> Row:
    return next(row for row in rows if (row.entry.name, row.score) == (name, "score"))


def timed(rows: list[Row], graph: fg.Graph, rounds: int) -> list[Row]:
    fits = {row.entry: partial(row.entry.fit, graph) for row in rows if is_own(row) or row.timing.best < SLOW}
    names: Mapping[str, Entry] = {f"{entry.name}, {entry.setting}": entry for entry in fits}
    timings = race({name: fits[entry] for name, entry in names.items()}, rounds, seconds=0)
    found = {names[name]: timing for name, timing in timings.items()}
    return [
        dataclasses.replace(row, timing=found[row.entry], runs=rounds) if row.entry in found else row
        for row in rows
    ]


# What is printed.


def print_rows(rows: list[Row]) -> None:
    first = our_row(rows)
    print(
        f"{'':26}{'setting':30}{'score':14}{'AUC':>7}{'best s':>10}{'median s':>10}{'/ ours':>8}{'runs':>6}"
    )
    for row in rows:
        text = f"{row.entry.name:26}{row.entry.setting:30}{row.score:14}{row.auc:7.2f}"
        times = f"{row.timing.best:10.3f}{row.timing.median:10.3f}"
        ratio = row.timing.median / first.timing.median
        mark = "  within two points" if is_rival(row, first) else ""
        print(f"{text}{times}{ratio:8.2f}{row.runs:6d}{mark}", flush=True)


def is_own(row: Row) -> bool:
    """Ours, in whatever language."""
    return row.entry.name.startswith(("fastgrl", "numba"))


def is_rival(row: Row, first: Row) -> bool:
    return not is_own(row) and row.auc >= first.auc - NEAR


def print_targets(tables: dict[str, list[Row]]) -> None:
    print("\ntargets, by medians")
    for name, rows in tables.items():
        first = our_row(rows)
        rivals = [row for row in rows if is_rival(row, first)]
        faster = [row for row in rivals if row.timing.median <= first.timing.median]
        names = "".join(f"; not faster than {row.entry.name} ({row.entry.setting})" for row in faster)
        verdict = "met" if not faster else "MISSED"
        print(f"{name}: faster than all {len(rivals)} rows within two points of ours: {verdict}{names}")
    if NUMBA_DATASET in tables:
        print_numba_targets(tables[NUMBA_DATASET])


def print_numba_targets(rows: list[Row]) -> None:
    for (mine, theirs), target in NUMBA_TARGETS.items():
        peer = [row for row in rows if row.entry.name == theirs]
        if peer:
            ratio = peer[0].timing.median / our_row(rows, mine).timing.median
            verdict = "met" if ratio >= target else "MISSED"
            print(f"{NUMBA_DATASET}: {mine} {ratio:.1f} × as fast as {theirs}, target {target:g}: {verdict}")


def as_record(dataset: str, row: Row) -> dict[str, Any]:
    entry = row.entry
    times = {"best_seconds": row.timing.best, "median_seconds": row.timing.median, "runs": row.runs}
    what = {"dataset": dataset, "method": entry.name, "setting": entry.setting, "score": row.score}
    return what | {"test_roc_auc": row.auc / 100} | times


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--dataset", action="append", choices=DATASETS, help="repeatable; default: all four")
    parser.add_argument("--without-slow", action="store_true", help="leave out node2vec and large NetMF")
    parser.add_argument("--rounds", type=int, default=3, help="timed runs of all but slow peers")
    parser.add_argument("--json", metavar="FILE", help="write the rows as a JSON list")
    return parser.parse_args()


def main() -> None:
    options = arguments()
    print(header())
    tables = {
        name: compare(name, without_slow=options.without_slow, rounds=options.rounds)
        for name in options.dataset or DATASETS
    }
    print_targets(tables)
    if options.json:
        records = [as_record(name, row) for name, rows in tables.items() for row in rows]
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump(records, file, indent=1)


if __name__ == "__main__":
    main()
