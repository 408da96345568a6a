from __future__ import annotations

import dataclasses
import json
import time

import numpy as np
import pytest
from graph_cases import collaborations
from hypothesis import given
from hypothesis import strategies as st

import fastgrl as fg
from fastgrl import calibration, kernels, link_times, node_times, probes, selection, spectra, sweeps
from fastgrl.calibration import calibrate, expected_seconds
from fastgrl.cli import run
from fastgrl.costs import DAMPINGS, Factorisation
from fastgrl.errors import ArgumentError
from fastgrl.estimate import DEFAULT_RANKS, WINDOWS, estimate, estimate_links, estimate_nodes
from fastgrl.jkn_sweeps import _GRIDS
from fastgrl.kernels import multiply
from fastgrl.node_costs import JKN_RANKS
from fastgrl.push import mean_row_length
from fastgrl.rates import USUAL, Rate, Rates, Work, usual_rate
from fastgrl.spaces import FEATURE_SETS

LINK_DESIGNS = tuple(DEFAULT_RANKS)
NODE_DESIGNS = ("co-ridge", *JKN_RANKS)
# A probe of 0.2 s may end late by one call of a step, on a machine that is busy with other things.
PROBE, SLACK = 0.2, 5.0

FLAT = Rates(1, {name: Rate(1.0, 1.0) for name in USUAL} | {f"push {a:g}": Rate(1.0) for a in DAMPINGS})


def random_graph(num_nodes, num_edges, **how):
    rng = np.random.default_rng(0)
    ends = rng.integers(0, num_nodes, (2, num_edges))
    weights = rng.uniform(0.5, 2.0, num_edges) if how.pop("weighted", False) else None
    return fg.Graph.from_codes(*ends, num_nodes=num_nodes, weights=weights, **how)


GRAPHS = {
    "one edge": lambda: fg.Graph.from_codes([0], [1]),
    "a node alone": lambda: fg.Graph.from_codes([], [], num_nodes=1),
    "no edges": lambda: fg.Graph.from_codes([], [], num_nodes=40),
    "empty rows": lambda: random_graph(300, 40),
    "directed": lambda: random_graph(300, 900, directed=True),
    "weighted": lambda: random_graph(300, 900, weighted=True),
    "loops": lambda: fg.Graph.from_codes(np.arange(30), np.arange(30)),
    "directed and weighted": lambda: random_graph(300, 900, directed=True, weighted=True),
}


@pytest.mark.parametrize("design", LINK_DESIGNS)
@pytest.mark.parametrize("kind", GRAPHS)
def test_every_graph_can_be_probed_for_every_design(kind, design):
    graph = GRAPHS[kind]()
    cost = estimate_links(graph, design=design, select=True)
    rates = calibrate(graph, cost, threads=1, seconds=0.05)
    assert 0 < cost.seconds(1, rates) < np.inf
    assert all(rate.unit >= 0 and rate.call >= 0 for rate in rates.measured.values())
    assert set(rates.measured) <= {work.step for work in cost.work()}


@pytest.mark.parametrize("design", NODE_DESIGNS)
@pytest.mark.parametrize("features", [None, (30, None), (1500, 6000)])
def test_every_graph_can_be_probed_for_every_design_of_nodes(design, features):
    for kind in ("one edge", "empty rows", "directed and weighted"):
        graph = GRAPHS[kind]()
        cost = estimate_nodes(graph, features=features, classes=3, labelled=2, design=design)
        rates = calibrate(graph, cost, threads=1, seconds=0.05)
        assert 0 < cost.seconds(1, rates) < np.inf
        assert set(rates.measured) <= {work.step for work in cost.work()}


def test_a_probe_works_without_the_compiled_kernel(monkeypatch):
    monkeypatch.setattr(kernels, "_chosen_kernel", lambda: "scipy")
    graph = random_graph(500, 2000)
    assert kernels.compiled_module() is None
    for design in ("log-diffusion", "degree-walk"):
        cost = estimate_links(graph, design=design, select=False)
        assert calibrate(graph, cost, seconds=0.05).measured
    assert calibrate(graph, estimate_nodes(graph), seconds=0.05).measured


@pytest.mark.parametrize("design", ["log-diffusion", "degree-walk", "shrunken"])
def test_a_probe_ends_in_time(design):
    graph = collaborations()
    cost = estimate_links(graph, design=design)
    begin = time.perf_counter()
    calibrate(graph, cost, threads=1, seconds=PROBE)
    assert time.perf_counter() - begin < SLACK * PROBE + 1


def test_a_probe_without_time_measures_nothing_and_keeps_the_usual_rates():
    graph = collaborations()
    cost = estimate_links(graph, design="walk", select=False)
    rates = calibrate(graph, cost, threads=1, seconds=0.0)
    assert not rates.measured
    assert cost.seconds(1, rates) == cost.seconds(1)


def test_a_probe_measures_what_matters_to_the_cost_and_nothing_else():
    graph = random_graph(600, 3000)

    def measured(cost):
        return sorted(calibrate(graph, cost, threads=1, seconds=60).measured)

    assert measured(estimate_links(graph, design="degree-walk", select=False)) == ["dense", "product"]
    found = measured(estimate_links(graph, select=False))
    assert {"push 0.85", "logarithm", "log product", "dense"} <= set(found)
    assert not {"push 0.5", "push 0.92", "product"} & set(found)
    assert {"round", "filter"} <= set(measured(estimate_nodes(graph, features=(100, None))))


def test_what_is_measured_is_decided_by_the_cost_alone():
    graph = random_graph(1000, 5000)
    cost = estimate_links(graph, design="walk", select=True)
    assert expected_seconds(cost) == expected_seconds(dataclasses.replace(cost))
    one, other = (calibrate(graph, cost, threads=1, seconds=60) for _ in range(2))
    assert set(one.measured) == set(other.measured)


def test_rows_are_as_long_as_they_were_pushed():
    graph = random_graph(600, 3000)
    cost = estimate_links(graph, row_length=100.0, select=False)
    rates = calibrate(graph, cost, threads=1, seconds=10)
    assert rates.row_lengths[0.85] == pytest.approx(mean_row_length(graph, damping=0.85))


def test_measured_rates_are_for_the_threads_they_were_measured_on():
    work = [Work("product", 8.0), Work("split", 8.0)]
    rates = Rates(2, {"product": Rate(1.0), "split": Rate(1.0, serial=True)})
    assert rates.seconds(work, threads=2) == 16
    assert rates.seconds(work, threads=4) == 12
    assert rates.seconds(work, threads=1) == 24


@pytest.mark.parametrize("step", sorted(USUAL))
def test_every_step_has_a_usual_rate_and_most_have_a_probe(step):
    assert usual_rate(step).unit > 0
    probed = {*calibration._LINK_PROBES, *calibration._NODE_PROBES, "push", "survey"}
    assert step in probed


def test_a_step_that_is_none_is_named():
    with pytest.raises(ArgumentError, match="no step called 'jump'"):
        usual_rate("jump")


sizes = st.tuples(st.integers(2, 10**7), st.integers(0, 10**9), st.integers(1, 300), st.integers(1, 20))


@given(st.sampled_from(LINK_DESIGNS), sizes, st.booleans(), st.booleans())
def test_more_of_anything_never_takes_less_time_at_the_same_rates(design, size, select, directed):
    n, stored, rank, window = size

    def seconds(n, stored, rank, window):
        how = {"rank": min(rank, n), "window": window, "select": select, "directed": directed}
        return estimate(n, stored, design=design, **how).seconds(1, FLAT)

    base = seconds(n, stored, rank, window)
    assert seconds(n, 2 * stored, rank, window) >= base
    assert seconds(n, stored, rank, window + 1) >= base
    assert seconds(2 * n, stored, min(rank, n), window) >= base
    # Blocks come in packs of eight or more: past such a step the rank costs more, within it as much.
    assert seconds(n, stored, min(2 * rank + 64, n), window) >= base


@given(
    st.sampled_from(NODE_DESIGNS),
    st.integers(2, 10**6),
    st.integers(0, 10**8),
    st.integers(1, 3000),
    st.booleans(),
)
def test_more_of_anything_never_takes_less_time_for_nodes(design, n, stored, columns, dense):
    class Counts:
        num_nodes, indices, weights, directed = n, range(stored), None, False

    def seconds(stored=stored, rank=50, classes=3, select=False):
        Counts.indices = range(stored)
        how = {"features": (columns, None if dense else 10 * n), "classes": classes, "rank": rank, "views": 2}
        return estimate_nodes(Counts, design=design, select=select, **how).seconds(1, FLAT)

    base = seconds()
    assert seconds(stored=2 * stored) >= base
    assert seconds(classes=5) >= base
    assert seconds(select=True) >= base


def test_a_selection_of_walks_costs_as_long_as_window_or_negative_are_open():
    def seconds(**how):
        return estimate(10**4, 10**5, design="walk", **how).seconds(1)

    once = seconds(window=5)
    assert seconds(window=5, select=True) > 3 * once
    assert seconds(negative=1.0, select=True) > 3 * once
    assert seconds(window=5, negative=1.0, select=True) == once


def test_constants_are_those_of_the_fits():
    assert sweeps.WINDOWS == WINDOWS
    tried = sweeps._walk_settings(sweeps.WINDOWS, sweeps.NEGATIVES)
    assert round(len(tried) / len(sweeps.WINDOWS)) == link_times._NEGATIVES
    assert (sweeps._FINALISTS, sweeps._WARM_ROUNDS) == (link_times._FINALISTS, link_times._WARM_ROUNDS)
    assert tuple(FEATURE_SETS.values()) == link_times._FEATURE_SETS
    assert (selection.FRACTIONS[0], selection.MOST_PAIRS) == (link_times._HELD_OUT, link_times._MOST_PAIRS)
    assert tuple(link_times._LENGTHS) == DAMPINGS
    grid = (spectra.POWERS, spectra.OUTERS, spectra.SHRINKAGES)
    assert tuple(map(len, grid)) == (link_times._POWERS, link_times._OUTERS, link_times._SHRINKAGES)
    for design, (pairs, _, tried, hops) in node_times._SWEEPS.items():
        own = _GRIDS[design]
        assert (len(own.windows) * len(own.negatives), len(own.hops), own.hops[-1]) == (pairs, tried, hops)


def test_work_of_a_factorisation_is_that_of_its_rounds():
    svd = Factorisation(1000, 32, "krylov", 8, 16, 4)
    product, dense = link_times.factorised(svd, 5000, steps=5)
    assert product == Work("product", 6000 * 18 * 16 * 5, 18 * 5)
    assert dense.units == link_times.dense_units(svd) > 1000 * 16 * 16 * 81


@pytest.mark.parametrize("directed", [False, True])
def test_a_part_stands_for_the_whole_graph(directed):
    graph = random_graph(20_000, 100_000, directed=directed, weighted=directed)
    part, rows = probes.part_of(graph, 0.1)
    assert part.num_nodes == rows.shape[0] == 2000
    assert len(part.indices) / 2000 == pytest.approx(len(graph.indices) / 20_000, rel=0.1)
    assert part.indices.max() < 2000
    assert multiply(rows, np.ones((20_000, 2))).shape == (2000, 2)
    assert probes.distance(part, rows, columns=4, budget=0.01) >= 1
    assert probes.part_of(graph, 1.0)[0] is graph
    assert probes.folded(rows, 500).shape == (2000, 500)


def test_estimate_quotes_links_or_with_labels_classes(tmp_path, capsys):
    edges, labels = tmp_path / "edges.csv", tmp_path / "labels.csv"
    edges.write_text("a,b\n1,2\n2,3\n3,1\n3,4\n4,5\n")
    labels.write_text("id,label\n1,x\n2,y\n4,x\n")
    assert run(["estimate", str(edges), "--threads", "1"]) == 0
    shown = capsys.readouterr().out
    assert "log-diffusion" in shown
    assert "on 1 thread beside reading the file, within a factor of two" in shown
    assert run(["estimate", str(edges), "--labels", str(labels), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["design"], found["classes"], found["labelled"]) == ("co-ridge", 2, 3)
    assert found["seconds"] >= 0
