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
import importlib
import json
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import scipy.sparse as sp
from common import DATASETS, Neighbours, Timing, header, race
from numpy.typing import NDArray

import fastgrl as fg
from fastgrl.baselines import netmf, node2vec
from fastgrl.metrics import roc_auc
from fastgrl.parallel import thread_count

Array = NDArray[Any]
Score = Callable[[Array], Array]  # node numbers of pairs → one number each
Scores = dict[str, Score]  # by the name of the score

DIMENSIONS, NEAR, SLOW = 64, 2.0, 10.0
WINDOWS = {"soc-facebook": 5, "ppi": 5, "ca-HepTh": 20, "ca-AstroPh": 20}
OURS, OURS_SELECTED = "fastgrl", "fastgrl, selected"
NUMBA, NUMBA_SELECTED = "numba, one core", "numba, one core, selected"
CLEORA_ITERATIONS = (1, 2, 3, 4, 5, 8, 10, 20, 40)
NUMBA_TARGETS = {(OURS, NUMBA): 7.0, (OURS_SELECTED, NUMBA_SELECTED): 6.0}
NUMBA_DATASET = "ca-AstroPh"


@dataclass(frozen=True)
class Entry:
    """One setting of one contender."""

    name: str
    setting: str
    fit: Callable[[fg.Graph], Scores]
    slow: bool = False


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


# The peers.


def dot_product(left: Array, right: Array, pairs: Array) -> Array:
    return np.einsum("ij,ij->i", left[pairs[:, 0]], right[pairs[:, 1]])


def vector_scores(vectors: Array) -> Scores:
    units = vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)
    return {"dot": partial(dot_product, vectors, vectors), "cosine": partial(dot_product, units, units)}


def cleora(graph: fg.Graph, *, iterations: int, whiten: bool, propagation: str) -> Scores:
    from pycleora import SparseMatrix, embed

    lines = (f"{u} {v}" for u, v in graph.edge_codes().tolist())
    matrix = SparseMatrix.from_iterator(lines, "complex::reflexive::node")
    found = embed(matrix, DIMENSIONS, iterations, propagation=propagation, whiten=whiten)
    vectors = np.zeros((graph.num_nodes, DIMENSIONS), np.float32)
    vectors[[int(node) for node in matrix.entity_ids]] = found
    return vector_scores(vectors)


def cleora_entries() -> Iterator[Entry]:
    """Whitening after every iteration is what its documentation recommends; without it is far faster."""
    for whiten, name in ((True, "pycleora"), (False, "pycleora, unwhitened")):
        for propagation in ("left", "symmetric"):
            for count in CLEORA_ITERATIONS:
                fit = partial(cleora, iterations=count, whiten=whiten, propagation=propagation)
                yield Entry(name, f"{propagation}, {count} iterations", fit)


def network(graph: fg.Graph, *, kind: str, **settings: Any) -> Scores:
    import sknetwork.embedding

    model = getattr(sknetwork.embedding, kind)(DIMENSIONS, **settings)
    return vector_scores(model.fit_transform(sp.csr_matrix(graph.to_scipy())))


def network_entries() -> Iterator[Entry]:
    for kind in ("Spectral", "GSVD"):
        # Of unit length as recommended, where dot and cosine are the same, and of their own length.
        for normalized in (True, False):
            fit = partial(network, kind=kind, normalized=normalized)
            yield Entry(f"scikit-network {kind}", "unit length" if normalized else "own length", fit)


def node2vec_entries(name: str) -> Iterator[Entry]:
    for epochs in (1, 2, 5, 10):
        settings = {"window": WINDOWS[name], "epochs": epochs, "n_threads": thread_count()}
        yield Entry(
            "gensim node2vec", f"C = {WINDOWS[name]}, {epochs} epochs", vectors_of(node2vec, **settings), True
        )


def netmf_entries(name: str) -> Iterator[Entry]:
    for variant in ("exact", "eigen"):
        fit = vectors_of(netmf, window=WINDOWS[name], variant=variant)
        yield Entry(f"NetMF {variant}", f"C = {WINDOWS[name]}", fit, name != "ppi")


def vectors_of(method: Callable[..., Array], **settings: Any) -> Callable[[fg.Graph], Scores]:
    return lambda graph: vector_scores(method(graph, DIMENSIONS, **settings))


def numba_entries() -> Iterator[Entry]:
    import numba_push

    numba_push.warm_up()  # compilation is not on the clock
    for name, fit in ((NUMBA, numba_push.fit), (NUMBA_SELECTED, numba_push.select_and_fit)):
        yield Entry(name, "rank 64, log-diffusion", lambda graph, fit=fit: {"score": fit(graph)})


def entries(name: str, *, without_slow: bool) -> list[Entry]:
    optional: dict[str, Callable[[], Iterator[Entry]]] = {
        "pycleora": cleora_entries,
        "sknetwork.embedding": network_entries,
        "gensim.models": partial(node2vec_entries, name),
        "numba": numba_entries,
    }
    found = [*our_entries(name), *netmf_entries(name)]
    for package, make in optional.items():
        try:
            importlib.import_module(package)  # importing is not on the clock
        except ImportError:
            print(f"not installed: {package}")
        else:
            found += make()
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


def test_auc(score: Score, data: Any) -> float:
    return 100 * roc_auc(score(data.test), score(data.test_negatives))


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
