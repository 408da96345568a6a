"""Laws of the simulated network: links are never overfull, and nobody could have more without taking it."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

FILE = Path(__file__).parents[1] / "benchmarks" / "cluster_account.py"
SPEC = importlib.util.spec_from_file_location("cluster_account", FILE)
assert SPEC is not None
assert SPEC.loader is not None
account = importlib.util.module_from_spec(SPEC)
sys.modules[SPEC.name] = account  # where its dataclasses look themselves up
SPEC.loader.exec_module(account)

workers = st.integers(2, 7)
flows = workers.flatmap(
    lambda count: st.tuples(
        st.just(count),
        st.lists(
            st.tuples(st.integers(0, count - 1), st.integers(0, count - 1)).filter(
                lambda pair: pair[0] != pair[1]
            ),
            min_size=1,
            max_size=30,
        ),
    )
)


@given(flows)
def test_rates_are_fair(drawn):
    count, pairs = drawn
    sources, targets = np.array(pairs).T
    rates = account.fair_rates(sources, targets, count, 1.0)
    loads = np.concatenate([np.bincount(side, rates, count) for side in (sources, targets)])
    assert loads.max() <= 1 + 1e-9
    for source, target, rate in zip(sources, targets, rates, strict=True):
        # One of its two links is full, and no flow there is faster.
        full = [
            loads[number] > 1 - 1e-9 and rate >= rates[side == end].max() - 1e-9
            for number, side, end in ((source, sources, source), (count + target, targets, target))
        ]
        assert any(full)


@given(workers, st.floats(1.0, 1e9), st.floats(1e3, 1e9))
def test_even_shares_arrive_when_the_links_allow_it(count, held, link):
    arrived = account.arrivals(np.full(count, held), link)
    assert np.allclose(arrived, (count - 1) * held / link)


@given(st.lists(st.integers(0, 10**6), min_size=2, max_size=6).filter(any))
def test_nobody_receives_faster_than_its_link(held):
    amounts = np.array(held, float)
    rounding = 1e-5 * amounts.max()  # so little may be left of a flow that has ended
    arrived = account.arrivals(amounts, 1e3)
    assert np.all(1e3 * arrived >= amounts.sum() - amounts - rounding)


def test_the_simulation_is_the_account_where_the_network_is_all():
    job, machine = account.Job(1e6, 1e6, 8, 16), account.Machine(gbit=0.001, task_seconds=0.0)
    assert account.product_seconds(job, machine) == pytest.approx(job.received / machine.link, rel=1e-3)


def test_the_account_of_the_documentation_is_what_the_command_prints():
    page = (FILE.parents[1] / "docs" / "cluster.md").read_text("utf-8")
    assert account.table(account.usual_jobs(), account.Machine(threads=8)) in page
