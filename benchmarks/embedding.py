"""Embeddings of dimension 64 side by side: seconds against test ROC-AUC, ours and the peers', in one run.

    FASTGRL_DATA=<folder> python benchmarks/embedding.py [--quick] [--dataset NAME ...] [--plot FILE.png]

Every contender gets the training graph as a `fastgrl.Graph` and gives 64 numbers per node. Peers are tried
with each of their settings; those that no other setting of the same peer beats in both time and AUC are
timed again, in turn with ours. Their vectors score by dot product or by cosine, whichever is better on the
test pairs, and their best setting is the best on the test pairs: kinder than a user could be, who cannot see
them. Ours have settings from training edges alone, and score by left · right.

For every peer it says how much faster ours is: the fastest of ours whose AUC is at least the peer's.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

from common import DATASETS, Neighbours, Timing, header, race
from link_peers import (
    DIMENSIONS,
    WINDOWS,
    Entry,
    Scores,
    cleora_entries,
    dot_product,
    installed,
    netmf_entries,
    network_entries,
    node2vec_entries,
    projection_entries,
    test_auc,
    truncated_entries,
)

import fastgrl as fg
from fastgrl.link_fits import fit_links
from fastgrl.link_models import Settings

OURS, SLOW, QUICK = "fastgrl", 10.0, ("ppi",)
KEPT = (25, 50, 100, 400)


@dataclass(frozen=True)
class Row:
    """What a setting reached on one dataset, in percent and seconds."""

    entry: Entry
    score: str
    auc: float
    timing: Timing
    runs: int = 1

    @property
    def own(self) -> bool:
        return self.entry.name.startswith(OURS)

    @property
    def label(self) -> str:
        return f"{self.entry.name}, {self.entry.setting}"

    def beats(self, other: Row) -> bool:
        """Faster and no worse, or better and no slower."""
        ours, theirs = (self.timing.best, -self.auc), (other.timing.best, -other.auc)
        return ours[0] <= theirs[0] and ours[1] <= theirs[1] and ours != theirs


def ours(graph: fg.Graph, *, design: str, **settings: Any) -> Scores:
    fit = fit_links(graph, Settings(design, DIMENSIONS, select=False, **settings))
    return {"left · right": partial(dot_product, fit.model.left, fit.model.right)}


def our_entries(name: str) -> Iterator[Entry]:
    for design in ("walk", "degree-walk"):
        fit = partial(ours, design=design, window=WINDOWS[name])
        yield Entry(f"{OURS} {design}", f"C = {WINDOWS[name]}", fit)
    yield Entry(f"{OURS} log-diffusion", "quick", partial(ours, design="log-diffusion", quick=True))
    for keep in KEPT:
        fit = partial(ours, design="log-diffusion", keep=keep)
        yield Entry(f"{OURS} log-diffusion", f"{keep} entries per row", fit)


def entries(name: str, *, without_slow: bool) -> list[Entry]:
    optional = (
        ("pycleora", cleora_entries),
        ("sknetwork.embedding", network_entries),
        ("sknetwork.embedding", projection_entries),
        ("sklearn.decomposition", truncated_entries),
        ("gensim.models", partial(node2vec_entries, name)),
    )
    found = [*our_entries(name), *netmf_entries(name), *installed(optional)]
    return [entry for entry in found if not (entry.slow and without_slow)]


# The race.


def compare(name: str, *, without_slow: bool, rounds: int) -> list[Row]:
    data = fg.load_dataset(name)
    print(f"\n{name}, {data.graph.num_nodes:,} nodes, {data.graph.num_edges:,} edges", flush=True)
    fg.LinkPredictor(select=False).fit(data.graph)  # so that nobody pays for first calls
    tried = [trial(entry, data) for entry in entries(name, without_slow=without_slow)]
    neighbours = Neighbours()
    rows = timed(list(unbeaten_in_their_family(tried)), data.graph, rounds)
    print_rows(rows)
    print(neighbours, flush=True)
    return rows


def trial(entry: Entry, data: Any) -> Row:
    """One fit; of dot product and cosine the better one."""
    begin = time.perf_counter()
    scores = entry.fit(data.graph)
    seconds = time.perf_counter() - begin
    auc, score = max((test_auc(function, data), score) for score, function in scores.items())
    return Row(entry, score, auc, Timing(seconds, seconds))


def unbeaten_in_their_family(rows: list[Row]) -> Iterator[Row]:
    """All of ours; of a peer's settings those that none of its others beats."""
    for row in rows:
        family = [other for other in rows if other.entry.name == row.entry.name]
        if row.own or not any(other.beats(row) for other in family):
            yield row


def timed(rows: list[Row], graph: fg.Graph, rounds: int) -> list[Row]:
    again = {row.label: partial(row.entry.fit, graph) for row in rows if row.timing.best < SLOW}
    timings = race(again, rounds, seconds=0)
    return [
        dataclasses.replace(row, timing=timings[row.label], runs=rounds) if row.label in timings else row
        for row in rows
    ]


# What is said about it.


def frontier(rows: list[Row]) -> list[Row]:
    """Those that nobody beats, the fastest first."""
    found = [row for row in rows if not any(other.beats(row) for other in rows)]
    return sorted(found, key=lambda row: row.timing.best)


def answer(peer: Row, rows: Iterable[Row]) -> Row | None:
    """The fastest of ours that is no worse than `peer`."""
    equal = [row for row in rows if row.own and row.auc >= peer.auc]
    return min(equal, key=lambda row: row.timing.best, default=None)


def print_rows(rows: list[Row]) -> None:
    best = frontier(rows)
    print(f"{'':26}{'setting':30}{'score':14}{'AUC':>7}{'best s':>10}{'median s':>10}{'runs':>6}")
    for row in rows:
        text = f"{row.entry.name:26}{row.entry.setting:30}{row.score:14}{row.auc:7.2f}"
        times = f"{row.timing.best:10.3f}{row.timing.median:10.3f}{row.runs:6d}"
        print(f"{text}{times}{'  frontier' if row in best else ''}")


def print_answers(tables: dict[str, list[Row]]) -> None:
    """For every peer at its best AUC, and for all its settings, who of ours is faster and no worse."""
    print("\nagainst every peer at its best AUC: the fastest of ours that is no worse, by best times")
    at_best: list[str] = []
    anywhere: list[str] = []
    for name, rows in tables.items():
        print(name)
        for peer in dict.fromkeys(row.entry.name for row in rows if not row.own):
            settings = [row for row in rows if row.entry.name == peer]
            print(f"  {verdict(settings, rows)}")
            unbeaten = [row for row in settings if not is_beaten(row, rows)]
            anywhere += [f"{name}: {row.label}" for row in unbeaten]
            at_best += [f"{name}: {peer}"] if best_of(settings) in unbeaten else []
    print(f"every peer at its best AUC: {said(at_best)}")
    print(f"every peer at every setting that its others do not beat: {said(anywhere)}")


def said(missed: list[str]) -> str:
    return f"MISSED for {'; '.join(missed)}" if missed else "met"


def best_of(settings: list[Row]) -> Row:
    return max(settings, key=lambda row: row.auc)


def is_beaten(peer: Row, rows: list[Row]) -> bool:
    found = answer(peer, rows)
    return found is not None and found.timing.best < peer.timing.best


def verdict(settings: list[Row], rows: list[Row]) -> str:
    best = best_of(settings)
    beaten = sum(is_beaten(row, rows) for row in settings)
    text = f"{best.entry.name:26}{best.auc:6.2f} in {best.timing.best:8.3f} s"
    found = answer(best, rows)
    if found is None:
        return f"{text}: MISSED, none of ours is as good"
    ratio = best.timing.best / found.timing.best
    mark = "" if ratio > 1 else "MISSED, "
    how = f"{found.label.removeprefix(OURS + ' ')}, {found.auc:.2f} in {found.timing.best:.3f} s"
    return f"{text}: {mark}{ratio:6.1f} × ({how}); {beaten} of {len(settings)} settings beaten"


def as_record(dataset: str, row: Row) -> dict[str, Any]:
    times = {"best_seconds": row.timing.best, "median_seconds": row.timing.median, "runs": row.runs}
    what = {"dataset": dataset, "method": row.entry.name, "setting": row.entry.setting, "score": row.score}
    return what | {"test_roc_auc": row.auc / 100} | times


def plot(tables: dict[str, list[Row]], file: str) -> None:
    """Time against AUC, a panel for each dataset; the line is the frontier of all."""
    import matplotlib

    matplotlib.use("agg")
    import matplotlib.pyplot as plt
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    figure, axes = plt.subplots(1, len(tables), figsize=(1 + 4.2 * len(tables), 5), squeeze=False)
    names = list(dict.fromkeys(row.entry.name for rows in tables.values() for row in rows))
    peers = [name for name in names if not name.startswith(OURS)]
    for axis, (dataset, rows) in zip(axes[0], tables.items(), strict=True):
        best = frontier(rows)
        axis.plot([row.timing.best for row in best], [row.auc for row in best], color="0.75", zorder=1)
        for name in names:
            some = [row for row in rows if row.entry.name == name]
            mine = name.startswith(OURS)
            style = {"marker": "*", "s": 130, "zorder": 3} if mine else {"marker": "o", "s": 26, "zorder": 2}
            colour = _OUR_COLOURS[name] if mine else _PEER_COLOURS[peers.index(name) % len(_PEER_COLOURS)]
            points = [row.timing.best for row in some], [row.auc for row in some]
            axis.scatter(*points, label=name, color=colour, linewidths=0, **style)
        axis.set(xscale="log", title=dataset, xlabel="seconds", ylim=(_lowest(rows), 100))
        axis.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axis.xaxis.set_major_formatter(FuncFormatter(lambda seconds, _: f"{seconds:g}"))
        axis.xaxis.set_minor_formatter(NullFormatter())
        axis.grid(color="0.93", zorder=0)
        if below := sum(row.auc < axis.get_ylim()[0] for row in rows):
            axis.text(0.98, 0.02, f"{below} below", transform=axis.transAxes, ha="right", color="0.5")
    axes[0][0].set_ylabel(f"test ROC-AUC × 100, {DIMENSIONS} numbers per node")
    handles, labels = axes[0][0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="lower center", ncols=5, frameon=False)
    figure.tight_layout(rect=(0, 0.13, 1, 1))
    figure.savefig(file, dpi=130)
    print(f"{file} written")


# Peers in anything but reds.
_PEER_COLOURS = (
    "#1f77b4",
    "#17becf",
    "#2ca02c",
    "#98df8a",
    "#9467bd",
    "#8c564b",
    "#7f7f7f",
    "#bcbd22",
    "#393b79",
)
_OUR_COLOURS = {
    f"{OURS} walk": "#f4a582",
    f"{OURS} degree-walk": "#d6604d",
    f"{OURS} log-diffusion": "#b2182b",
}


def _lowest(rows: list[Row]) -> float:
    """Where an axis begins: below the frontier and whatever is near it, not at the worst of all."""
    return max(50.0, min(row.auc for row in frontier(rows)) - 5)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--dataset", action="append", choices=DATASETS, help="repeatable; default: all four")
    parser.add_argument("--quick", action="store_true", help="the smallest dataset, one round, no slow peers")
    parser.add_argument("--without-slow", action="store_true", help="leave out node2vec and large NetMF")
    parser.add_argument("--rounds", type=int, default=5, help="timed runs of all but slow peers")
    parser.add_argument("--plot", metavar="FILE.png", help="draw time against AUC")
    parser.add_argument("--json", metavar="FILE", help="write the rows as a JSON list")
    return parser.parse_args()


def main() -> None:
    options = arguments()
    print(header())
    names = options.dataset or (QUICK if options.quick else DATASETS)
    rounds = 1 if options.quick else options.rounds
    without = options.without_slow or options.quick
    tables = {name: compare(name, without_slow=without, rounds=rounds) for name in names}
    print_answers(tables)
    if options.plot:
        plot(tables, options.plot)
    if options.json:
        records = [as_record(name, row) for name, rows in tables.items() for row in rows]
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump(records, file, indent=1)


if __name__ == "__main__":
    main()
