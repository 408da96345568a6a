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

import fastgrl as fg
from fastgrl import costs, push, selection, spaces
from fastgrl.diffusion import diffuse, log_matrix
from fastgrl.errors import ArgumentError, DtypeError, UnavailableError
from fastgrl.estimate import (
    DEFAULT_RANKS,
    check_memory,
    estimate,
    estimate_links,
    format_bytes,
    largest_rank,
    parse_bytes,
)
from fastgrl.kernels import compiled_module
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


@pytest.mark.parametrize("design", ["walk", "degree-walk", "as-released"])
def test_work_is_what_a_fit_of_walks_allocates(design):
    graph = collaborations()
    run = functools.partial(factorise, graph, design, rank=32, n_threads=1)
    run(n_iter=1)
    cost = estimate_links(graph, design=design)
    assert 0.8 < cost.work_bytes / traced_peak(run) < 1.25
    assert cost.fits == 1


def test_work_is_what_a_shrunken_fit_allocates():
    graph = collaborations()
    M = degree_power(graph, power=0.4375)
    measured = traced_peak(lambda: fg.fsvd(M, 128, n_threads=1))
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
    assert cost.seconds(2) > 5 * once.seconds(2)


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
    assert estimate(n, stored, rank=8, weighted=True).graph_bytes == pattern + weights + beside
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
