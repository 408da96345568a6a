from __future__ import annotations

import functools
import importlib
import tracemalloc

import numpy as np
import pytest
import scipy.sparse as sp
from graph_cases import collaborations
from hypothesis import given
from hypothesis import strategies as st
from memory_probe import random_graph

import fastgrl as fg
from fastgrl import (
    co_ridge_fits,
    co_ridge_grids,
    co_ridge_workshop,
    costs,
    filter_panels,
    filters,
    jkn_features,
    jkn_sweeps,
    linalg,
    node_bytes,
    node_costs,
    push,
    selection,
    self_training,
    spaces,
    view_bases,
)
from fastgrl.diffusion import diffuse, log_matrix
from fastgrl.errors import ArgumentError, DtypeError, UnavailableError
from fastgrl.estimate import (
    DEFAULT_RANKS,
    check_memory,
    estimate,
    estimate_links,
    estimate_nodes,
    format_bytes,
    largest_rank,
    parse_bytes,
)
from fastgrl.kernels import compiled_module
from fastgrl.linalg import CHUNK_ROWS
from fastgrl.node_fits import fit_nodes
from fastgrl.node_models import NODE_DESIGNS, PAPER_DESIGNS, NodeInputs, NodeSettings, Targets, Validation
from fastgrl.parallel import thread_count
from fastgrl.spilling import RANGE_BYTES
from fastgrl.walks import degree_power, factorise

fsvd_module = importlib.import_module("fastgrl.fsvd")  # the package has the function under this name

METHODS = ("krylov", "subspace")
WINDOW = 3


def walk_matrix(num_nodes, dtype):
    rng = np.random.default_rng(0)
    rows, columns = rng.integers(0, num_nodes, (2, 5 * num_nodes))
    one_way = sp.csr_array((np.ones(len(rows)), (rows, columns)), shape=(num_nodes, num_nodes))
    A = fg.Matrix((one_way + one_way.T) > 0)
    degrees = np.maximum(np.diff(A.a.indptr), 1).astype(dtype)
    T = fg.Matrix(A.a, row_scale=1 / degrees, name="T")
    return fg.Polynomial(T, range(WINDOW, 0, -1)) - 0.02 * (fg.Ones(A.shape) - A), A.a.num_stored


def traced_peak(call):
    tracemalloc.start()
    try:
        call()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(("num_nodes", "rank"), [(3000, 64), (16_000, 16), (16_000, 40)])
def test_work_is_what_a_run_allocates(method, dtype, num_nodes, rank):
    M, stored = walk_matrix(num_nodes, dtype)
    run = functools.partial(fg.fsvd, M, rank, method=method, n_threads=1)
    run(n_iter=1)  # the scratch memory that a thread keeps is not part of it
    measured = traced_peak(run)
    cost = estimate(num_nodes, stored, rank=rank, window=WINDOW, method=method, dtype=dtype)
    assert 0.8 < cost.work_bytes / measured < 1.25


def whole_chunks():
    """Bases are cut into whole chunks of rows: what is allocated beyond the last row is never touched."""
    return random_graph(2 * CHUNK_ROWS, 25_000)


@pytest.mark.parametrize("design", ["walk", "degree-walk", "as-released"])
def test_work_is_what_a_fit_of_walks_allocates(design):
    graph = whole_chunks()
    run = functools.partial(factorise, graph, design, rank=32, n_threads=1)
    run(n_iter=1)
    cost = estimate_links(graph, design=design)
    assert 0.8 < cost.work_bytes / traced_peak(run) < 1.25
    assert cost.fits == 1


def test_work_is_what_a_shrunken_fit_allocates():
    graph = whole_chunks()
    M = degree_power(graph, power=0.4375)
    measured = traced_peak(lambda: fg.fsvd(M, 128, block_size=32, n_iter=12, n_threads=1))
    assert 0.8 < estimate_links(graph, design="shrunken", rank=128).work_bytes / measured < 1.25


def diffusion_case(*, directed=False, damping=0.85):
    """A graph, and the mean length of the rows that forward push keeps of it."""
    codes = collaborations().edge_codes()
    both = np.concatenate([codes, codes[::3, ::-1]])
    graph = fg.Graph.from_codes(*both.T, num_nodes=collaborations().num_nodes, directed=directed)
    walker = push.Walker.of(graph, damping=damping)
    sample = np.random.default_rng(0).choice(graph.num_nodes, 500, replace=False).astype(np.int32)
    return graph, np.mean([side.rows(sample).num_stored for side in (walker, walker.backward)]) / 500


@pytest.mark.parametrize("directed", [False, True])
def test_work_is_what_a_log_diffusion_allocates(directed):
    graph, row_length = diffusion_case(directed=directed)
    run = functools.partial(spaces.build_space, graph, rank=62, damping=0.85)
    spaces.build_space(graph, rank=8, damping=0.5)
    cost = estimate_links(graph, row_length=row_length, select=False)
    # Without the compiled kernel SciPy holds several copies of the rows while it merges them.
    least = 0.25 if compiled_module() is None else 0.8
    assert least < cost.work_bytes / traced_peak(run) < 1.25


def test_selection_makes_one_fit_after_another():
    graph, row_length = diffusion_case(damping=0.5)
    cost, once = (estimate_links(graph, row_length=row_length, select=select) for select in (True, False))
    assert cost.work_bytes == once.work_bytes
    assert cost.fits == 1 + 2 * len(selection.DAMPINGS)
    assert cost.seconds(2) > 3 * once.seconds(2)  # one space to learn the scorer by, one of all edges


def test_constants_are_those_of_the_fit():
    assert costs.LONGEST_ROW == push.KEEP
    assert costs.DAMPINGS == selection.DAMPINGS


def test_the_logarithm_has_no_more_entries_than_are_allowed_for():
    graph, _ = diffusion_case()
    rows = diffuse(graph, damping=0.85)
    assert log_matrix(rows).num_stored <= costs.BOTH_DIRECTIONS * rows.left.num_stored


@given(
    st.sampled_from(sorted(DEFAULT_RANKS)),
    st.integers(1, 10**7),
    st.integers(0, 10**9),
    st.booleans(),
    st.booleans(),
)
def test_every_design_has_an_estimate_with_its_own_settings(design, num_nodes, num_stored, directed, select):
    cost = estimate(num_nodes, num_stored, design=design, directed=directed, select=select)
    assert cost.rank == min(DEFAULT_RANKS[design], num_nodes)
    assert (cost.method, cost.n_iter) == {
        "as-released": ("subspace", 20),
        "log-diffusion": ("krylov", 10),
        "shrunken": ("krylov", 12),
    }.get(design, ("krylov", 8))
    assert cost.fits == (9 if select and design == "log-diffusion" else 1)
    figures = cost.as_dict(threads=2)
    assert figures["peak_bytes"] == figures["graph_bytes"] + figures["work_bytes"]
    assert figures["seconds"] >= 0
    assert figures["passes"] >= figures["fits"] * cost.products
    larger = estimate(num_nodes + 1, 2 * num_stored, design=design, directed=directed, select=select)
    assert larger.peak_bytes >= cost.peak_bytes - narrower_panels(num_nodes)
    assert larger.seconds(1) >= cost.seconds(1)


@given(st.integers(2, 10**6), st.floats(0.1, 400), st.floats(0.1, 400), st.booleans())
def test_longer_rows_and_selection_never_cost_less(num_nodes, one, other, directed):
    shorter, longer = (min(length, num_nodes) for length in sorted((one, other)))
    costs_of = functools.partial(estimate, num_nodes, 0, design="log-diffusion", directed=directed)
    light, heavy = costs_of(row_length=shorter), costs_of(row_length=longer)
    assert light.peak_bytes <= heavy.peak_bytes <= costs_of(row_length=longer, select=True).peak_bytes
    assert light.seconds(1) <= heavy.seconds(1) <= costs_of(row_length=longer, select=True).seconds(1)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("rank", [1, 7, 40, 200])
def test_columns_and_products_are_those_of_a_run(method, rank):
    columns = []
    T = sp.random_array((300, 300), density=0.02, rng=np.random.default_rng(0), format="csr")

    def counted(matrix):
        def product(X):
            columns.append(X.shape[1])
            return matrix @ X

        return product

    op = fg.Function((300, 300), counted(T), counted(T.T.tocsr()))
    cost = estimate(300, T.nnz, rank=rank, method=method, n_iter=2)
    fg.fsvd(op, rank, method=method, n_iter=2, check=False, refill=False)
    assert len(columns) <= cost.products
    assert sum(columns) <= cost.product_columns
    if rank < 40:
        assert (len(columns), sum(columns)) == (cost.products, cost.product_columns)


@pytest.mark.parametrize("method", METHODS)
@given(rank=st.integers(1, 500), rounds=st.none() | st.integers(0, 20))
def test_block_and_rounds_are_the_defaults_of_fsvd(method, rank, rounds):
    plan = fsvd_module._plan(fg.Identity(500), rank, method=method, n_iter=rounds, block_size=None, tol=None)
    cost = estimate(500, 0, rank=rank, method=method, n_iter=rounds)
    assert (cost.block_size, cost.n_iter) == (plan.block_size, plan.n_iter)


def test_panels_are_those_of_fsvd():
    assert (costs.PANEL_BYTES, costs.PANEL_COLUMNS) == (
        fsvd_module._PANEL_BYTES,
        fsvd_module._PANEL_COLUMNS,
    )


def test_graph_bytes_are_those_of_its_arrays():
    n, stored = 1000, 8000
    pattern = np.zeros(n + 1, np.int64).nbytes + np.zeros(stored, np.int32).nbytes
    beside = 2 * np.zeros(n).nbytes
    weights = np.zeros(stored).nbytes
    assert estimate(n, stored, rank=8).graph_bytes == pattern + beside
    assert estimate(n, stored, rank=8, weighted=True).graph_bytes == pattern + 1.5 * weights + beside
    one_range = estimate(n, 10**9, rank=8, mapped=True)
    assert one_range.graph_bytes == np.zeros(n + 1).nbytes + beside + RANGE_BYTES
    assert estimate(n, stored, rank=8, directed=True).graph_bytes == 2 * pattern + beside


def narrower_panels(num_nodes, dtype=np.float32):
    """What a larger graph may save: from a certain size on its panels are one step narrower."""
    return costs.PRODUCT_PANELS * costs.PANEL_COLUMNS * num_nodes * np.dtype(dtype).itemsize


@given(
    st.integers(1, 10**9),
    st.integers(0, 10**11),
    st.integers(1, 1000),
    st.sampled_from(METHODS),
    st.sampled_from([np.float32, np.float64]),
)
def test_more_of_anything_never_costs_less(num_nodes, num_stored, rank, method, dtype):
    rank = min(rank, num_nodes)

    def figures(n, stored, k):
        cost = estimate(n, stored, rank=k, method=method, dtype=dtype)
        return np.array([cost.graph_bytes, cost.peak_bytes, cost.product_columns, cost.seconds(2)])

    base = figures(num_nodes, num_stored, rank)
    assert (figures(num_nodes, 2 * num_stored, rank) >= base).all()
    larger = figures(num_nodes + 1, num_stored, min(rank + 1, num_nodes + 1))
    assert (larger >= base - [0, narrower_panels(num_nodes, dtype), 0, 0]).all()


@given(st.integers(2, 10**7), st.integers(0, 10**9), st.integers(1, 200), st.floats(0.01, 2))
def test_the_largest_rank_fits_and_the_next_does_not(num_nodes, num_stored, rank, share):
    cost = estimate(num_nodes, num_stored, rank=min(rank, num_nodes))
    limit = int(share * cost.peak_bytes)
    best = largest_rank(cost, limit)
    if best:
        assert estimate(num_nodes, num_stored, rank=best).peak_bytes <= limit
    if best < cost.rank:
        assert estimate(num_nodes, num_stored, rank=best + 1).peak_bytes > limit


def test_a_run_above_the_limit_is_refused_with_a_quote():
    cost = estimate(10**6, 10**7, rank=64)
    check_memory(cost, cost.peak_bytes)
    with pytest.raises(
        UnavailableError, match=r"rank 64 needs about .* GB, the limit is 1 GB; rank \d+ would"
    ):
        check_memory(cost, 10**9)
    with pytest.raises(UnavailableError, match=r"even rank 1 would need .*the graph alone takes 64 MB"):
        check_memory(cost, 10**6)


def test_a_log_diffusion_above_the_limit_is_told_what_is_lighter():
    cost = estimate(10**6, 10**7, design="log-diffusion", select=True)
    walks = estimate(10**6, 10**7, design="degree-walk")
    with pytest.raises(UnavailableError, match='design "degree-walk" would need'):
        check_memory(cost, walks.peak_bytes)
    with pytest.raises(UnavailableError, match="even rank 1 would need"):
        check_memory(cost, 10**6)
    assert largest_rank(cost, walks.peak_bytes) <= cost.rank


@given(st.integers(1, 10**17))
def test_bytes_survive_being_written_and_read(count):
    assert parse_bytes(format_bytes(count).replace("bytes", "B")) == pytest.approx(count, rel=6e-3)


@pytest.mark.parametrize(
    ("text", "count"),
    [("8GB", 8 * 10**9), ("8 gb", 8 * 10**9), ("2G", 2 * 10**9), ("1.5GiB", 3 * 2**29), ("4096", 4096)],
)
def test_amounts_are_read_as_people_write_them(text, count):
    assert parse_bytes(text) == count


@pytest.mark.parametrize(
    "text", ["", "GB", "-1GB", "0", "8XB", "1e9", "nan", "8GB\x1b[2J", "٨GB", "9" * 5000]
)
def test_what_is_no_amount_is_named_and_escaped(text):
    with pytest.raises(ArgumentError, match="such as 8GB") as caught:
        parse_bytes(text)
    assert str(caught.value).isprintable()
    assert len(str(caught.value)) < 200


def test_wrong_calls_are_named():
    for rank in (0, -1, 2.5, True, "8"):
        with pytest.raises(ArgumentError, match="rank"):
            estimate(100, 500, rank=rank)
    with pytest.raises(ArgumentError, match="rank 101 is above the number of nodes, 100"):
        estimate(100, 500, rank=101)
    for wrong in ({"window": 0}, {"method": "power"}, {"n_iter": -1}, {"block_size": 0}):
        with pytest.raises(ArgumentError, match=next(iter(wrong))):
            estimate(100, 500, rank=8, **wrong)
    with pytest.raises(ArgumentError, match=r'design must be one of "log-diffusion", .* got'):
        estimate(100, 500, design="deep\x1b[2J")
    for length in (0, -1.0, 101, float("nan"), "many", True):
        with pytest.raises(ArgumentError, match="row_length must be above 0 and at most 100"):
            estimate(100, 500, design="log-diffusion", row_length=length)
    with pytest.raises(ArgumentError, match="works in float32, not in float64"):
        estimate(100, 500, design="log-diffusion", dtype=np.float64)
    with pytest.raises(DtypeError, match="float16"):
        estimate(100, 500, rank=8, dtype=np.float16)
    assert estimate(100, 500, rank=100).rank == 100


def node_case(kind, num_nodes, num_columns):
    rng = np.random.default_rng(0)
    sources, targets = rng.integers(0, num_nodes, (2, 5 * num_nodes))
    graph = fg.Graph.from_codes(sources, targets, num_nodes=num_nodes)
    X = rng.standard_normal((num_nodes, num_columns), dtype=np.float32) if kind == "dense" else None
    if kind == "sparse":
        X = sp.random_array((num_nodes, num_columns), density=30 / num_columns, rng=rng, dtype=np.float32)
    labels = np.zeros((num_nodes, 8))
    labels[:80] = np.tile(np.eye(8), (10, 1))
    known = Targets(np.arange(8), labels, np.arange(80), np.full(80, 1 / 80))
    return NodeInputs(graph, None if X is None else sp.csr_array(X) if kind == "sparse" else X), known


@pytest.mark.parametrize(
    ("kind", "num_columns", "rank", "num_nodes", "select"),
    [
        ("dense", 100, None, 30_000, True),
        ("dense", 100, None, 30_000, False),
        ("dense", 300, 100, 12_000, True),
        ("dense", 300, 60, 12_000, False),
        ("sparse", 2000, 60, 12_000, True),
        ("sparse", 2000, 60, 12_000, False),
        ("none", 0, None, 12_000, True),
    ],
)
def test_work_is_what_a_fit_of_nodes_allocates(kind, num_columns, rank, num_nodes, select):
    inputs, known = node_case(kind, num_nodes, num_columns)
    judged = Validation(np.arange(80, 160), known.labels[:80]) if select else None
    # With eight classes four settings go along: those of one balance take as much memory as all.
    how = NodeSettings(rank=rank, select=select, ridge=None if select else 0.03, balance=0.5)
    vars(linalg._scratch).clear()  # what an earlier test has left would be missed here
    measured = traced_peak(lambda: fit_nodes(inputs, known, how, validation=judged))
    X = inputs.features
    shape = None if X is None else (X.shape[1], X.nnz if kind == "sparse" else None)
    given_ = {"features": shape, "classes": 8, "rank": rank, "select": select, "validation": select}
    cost = estimate_nodes(inputs.graph, workers=thread_count(), **given_)
    # SciPy's products make new blocks where the compiled filter works in place.
    least = 0.3 if compiled_module() is None else 0.75
    assert least < cost.work_bytes / measured < 1.35


def test_constants_are_those_of_the_fit_of_nodes():
    for mine in node_costs.RECIPES:
        theirs = co_ridge_grids.recipe_for(min(mine.most_nodes, 10**9) - 1)
        per_view = len(theirs.ridges) * len(theirs.balances) * len(co_ridge_grids.RESTARTS)
        assert node_costs.recipe_for(min(mine.most_nodes, 10**9) - 1) is mine
        assert mine.rank == theirs.rank
        assert mine.views == len(set().union(*theirs.view_sets))
        assert mine.usual_views == len(theirs.default_views)
        assert mine.fits == per_view * len(theirs.view_sets)
        assert mine.similar == any("k" in views for views in theirs.view_sets)
    assert [recipe.most_nodes for recipe in node_costs.RECIPES[:2]] == [
        co_ridge_grids.FEW_NODES,
        co_ridge_grids.SOME_NODES,
    ]
    assert set(node_costs.JKN_RANKS) == set(PAPER_DESIGNS)
    assert set(node_costs.JKN_RANKS.values()) == set(jkn_sweeps.DEFAULTS.ranks)
    assert node_costs.FILTER_STEPS == filters.STEPS
    assert view_bases.PROJECTION["steps"] == node_costs.PROJECTION_STEPS
    assert node_costs.EXACT_COLUMNS == view_bases.MOST_EXACT_COLUMNS
    assert len(co_ridge_grids.RESTARTS) == node_costs.RESTARTS
    assert node_costs.SELF_TRAINING == max(co_ridge_grids.ROUNDS) == co_ridge_grids.DEFAULT_ROUNDS
    assert self_training.SMOOTHING["steps"] == node_costs.BELIEF_STEPS
    assert node_bytes.AVERAGED == co_ridge_fits.AVERAGED
    assert node_bytes.KEPT_BYTES == co_ridge_workshop.KEPT_BYTES
    assert node_bytes.TOGETHER == co_ridge_fits.TOGETHER
    assert node_bytes.PANELS == filter_panels.PANELS
    assert node_bytes.CHUNK_ROWS == linalg.CHUNK_ROWS
    assert node_bytes.SMALL_VIEW == self_training.SMALL_VIEW
    assert node_costs.WALK_RANK == jkn_features.WALK_RANK
    assert node_bytes.MANY_LABELS == jkn_sweeps.DUAL_LABELS
    assert jkn_sweeps.DEFAULTS.hops == (node_costs.HOPS,)


class Counts:
    """As much of a graph as an estimate looks at."""

    def __init__(self, num_nodes, num_stored):
        self.num_nodes, self.indices, self.weights, self.directed = num_nodes, range(num_stored), None, False


@given(
    st.sampled_from(NODE_DESIGNS),
    st.integers(2, 10**8),
    st.integers(0, 10**10),
    st.integers(1, 5000),
    st.integers(1, 100),
    st.booleans(),
    st.booleans(),
)
def test_more_of_anything_never_costs_less_for_nodes(design, n, stored, columns, classes, dense, select):
    def cost_of(n, stored, columns, classes, select):
        shape = (columns, None if dense else 10 * n)
        return estimate_nodes(
            Counts(n, stored), features=shape, classes=classes, design=design, select=select, views=2
        )

    def figures(*sizes):
        cost = cost_of(*sizes)
        return np.array([cost.peak_bytes, cost.passes, cost.seconds(2)])

    base = figures(n, stored, columns, classes, False)
    room = [node_bytes.KEPT_BYTES, 0, 0]  # past a certain size, coordinates of one restart are dropped
    assert (figures(n, 2 * stored, columns, classes, False) >= base).all()
    assert (figures(n, stored, columns, classes + 1, False) >= base).all()
    assert (figures(n, stored, columns, classes, True) >= base).all()
    # Where another recipe begins, or threads share rows and not settings, a larger graph may cost less.
    one, other = (cost_of(nodes, stored, columns, classes, False) for nodes in (n, n + 1))
    if (one.rank, one.small, one.similar) == (other.rank, other.small, other.similar):
        assert (figures(n + 1, stored, columns, classes, False) >= base - room).all()


def test_threads_cost_memory_on_small_graphs_only():
    def peak(num_nodes, workers):
        given_ = {"features": (128, None), "classes": 40, "labelled": num_nodes // 100}
        return estimate_nodes(Counts(num_nodes, 10 * num_nodes), workers=workers, **given_).peak_bytes

    assert peak(50_000, 1) < peak(50_000, 2) < peak(50_000, 8)
    assert peak(200_000, 1) == peak(200_000, 8)


def test_a_fit_of_nodes_above_the_limit_is_refused_with_a_quote():
    cost = estimate_nodes(Counts(10**6, 10**7), features=(2000, 3 * 10**7), classes=10)
    check_memory(cost, cost.peak_bytes)
    limit = int(0.9 * cost.peak_bytes)
    with pytest.raises(
        UnavailableError, match=r"rank 100 needs about .* GB, the limit is .*; rank \d+ would"
    ):
        check_memory(cost, limit)
    with pytest.raises(UnavailableError, match=r"even rank 1 would need .*graph, features and labels take"):
        check_memory(cost, 10**6)
    best = largest_rank(cost, limit)
    assert cost.replaced(rank=best).peak_bytes <= limit < cost.replaced(rank=best + 1).peak_bytes
    figures = cost.as_dict(threads=2)
    assert figures["design"] == "co-ridge"
    assert figures["peak_bytes"] == cost.peak_bytes


def test_wrong_estimates_of_nodes_are_named():
    graph = Counts(100, 500)
    with pytest.raises(ArgumentError, match=r'design must be one of "co-ridge", .* got'):
        estimate_nodes(graph, design="deep\x1b[2J")
    for wrong in (
        {"classes": 0},
        {"rank": 0},
        {"features": (-1, None)},
        {"labelled": -1},
        {"views": 0},
        {"workers": 0},
    ):
        with pytest.raises(ArgumentError, match=next(iter(wrong))):
            estimate_nodes(graph, **wrong)
