"""Graphs with ids of every kind, and what must survive a way out and back."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

from fastgrl.graph import Graph

HARD = ["007", "7", "NaN", "null", "None", "true", "1e5", "source", "target", "ä", "名", "", " a", "a "]
HARD += ["\u2028", "a,b", "a;b", "a|b", "a\tb", "a\nb", "a\r\nb", 'a"b', "'", "#a", "%", "//", "-"]
SMALL = st.integers(-(2**63), 2**63 - 1) | st.integers(0, 9)
LARGE = st.integers(2**63, 2**70) | st.integers(-(2**70), -(2**63) - 1) | SMALL
TEXT = st.sampled_from(HARD) | st.text(st.characters(exclude_categories=["Cs", "Cc"]), max_size=4)
ANYTHING = SMALL | TEXT | st.tuples(st.integers(0, 3), st.text("ab", max_size=2)) | st.floats(1.5, 9.5)
PLAIN = st.one_of(st.lists(SMALL, unique=True, max_size=6), st.lists(TEXT, unique=True, max_size=6))
OTHER_OBJECTS = [5, None, [[1, 2]], np.eye(2), {"u": [1]}, "edges.csv"]
WEIGHTS = st.floats(0, 1e9) | st.just(1.0) | st.floats(0, 1, exclude_min=True)
relaxed = settings(
    max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
ANY = PLAIN | st.lists(LARGE, unique=True, max_size=6) | st.lists(ANYTHING, unique=True, max_size=6)


@st.composite
def graphs(draw, ids=ANY):
    nodes = draw(ids)
    ends = st.integers(0, len(nodes) - 1) if nodes else st.nothing()
    codes = draw(st.lists(st.tuples(ends, ends), max_size=10)) if nodes else []
    weights = draw(st.none() | st.lists(WEIGHTS, min_size=len(codes), max_size=len(codes)))
    sources, targets = (np.array([pair[k] for pair in codes], np.int64) for k in (0, 1))
    return Graph.from_codes(sources, targets, weights=weights, node_ids=nodes, directed=draw(st.booleans()))


def facts(graph, *, ordered=True):
    """What must survive: ids with their types, edges, weights, direction."""
    ids = graph.node_ids.tolist()
    weights = graph.edge_weights()
    pairs = [
        (ids[u], ids[v]) if graph.directed else frozenset((ids[u], ids[v])) for u, v in graph.edge_codes()
    ]
    edges = dict(zip(pairs, [1.0] * len(pairs) if weights is None else weights.tolist(), strict=True))
    typed = [(type(item), item) for item in ids]
    return typed if ordered else set(typed), edges, graph.directed


def same(graph, other, **how):
    expected, found = facts(graph, **how), facts(other, **how)
    assert found == expected, f"{found} instead of {expected}"
    assert (
        graph.weights is None
        or other.weights is not None
        or other.num_edges == 0
        or (graph.weights == 1).all()
    )
    assert other.weights is None or graph.weights is not None


def dataset(name):
    folder = Path(os.environ.get("FASTGRL_DATA", "../shared/data"), name)
    if not folder.is_dir():
        pytest.skip("FASTGRL_DATA does not name a folder with the datasets")
    return folder


def collaborations():
    """The published training edges of ca-HepTh."""
    return Graph.from_edges(np.load(dataset("asymproj") / "ca-HepTh" / "train.txt.npy"))
