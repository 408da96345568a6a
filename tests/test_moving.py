"""Operators moved to another array library are the same matrices, and operators spelt out are too."""

import doctest
from dataclasses import replace

import hypothesis.strategies as st
import libraries
import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings

import fastgrl as fg
from fastgrl import filter_panels
from fastgrl.errors import ArgumentError
from fastgrl.filters import Filter, averaging_matrix, filtered, flows, renormalised_matrix, smoothed
from fastgrl.frameworks import moving
from fastgrl.frameworks.moving import Mover, moved
from fastgrl.hops import hop_matrix
from fastgrl.linalg import seam_of
from fastgrl.walks import as_released, degree_power, degree_walk, walk

pytestmark = pytest.mark.frameworks
N = 30
relaxed = settings(max_examples=25, deadline=None)
features = np.random.default_rng(3).standard_normal((N, 4))


@pytest.fixture(params=[name for name in libraries.NAMES if name != "numpy"])
def library(request):
    with libraries.opened(request.param) as opened:
        yield opened


def graph(seed=0, *, directed=False, weighted=False):
    rng = np.random.default_rng(seed)
    u, v = np.nonzero(np.triu(rng.random((N, N)) < 0.15, 1))
    weights = rng.uniform(0.5, 2, len(u)) if weighted else None
    return fg.Graph.from_codes(u, v, num_nodes=N, weights=weights, directed=directed)


OPERATORS = {
    "walk": lambda g: walk(g, window=4, negative=0.7, dtype="float64"),
    "degree-walk": lambda g: degree_walk(g, window=3, negative=2.0, dtype="float64"),
    "as-released": lambda g: as_released(g, window=5, dtype="float64"),
    "shrunken": lambda g: degree_power(g, power=0.4, dtype="float64"),
    "adjacency": lambda g: fg.Matrix(g.csr),
    "transition": lambda g: fg.transition(g)[[3, 1, 1]],
    "renormalised": lambda g: renormalised_matrix(flows(g), dtype=np.float64),
    "averaging": lambda g: averaging_matrix(flows(g), dtype=np.float64),
    "filter": lambda g: filtered(renormalised_matrix(flows(g), dtype=np.float64), features, restart=0.2),
    "hops": lambda g: hop_matrix(fg.symmetric(g), features, 3),
    "stack": lambda g: fg.HStack([fg.VStack([fg.transition(g), fg.Ones((2, N))]), fg.Ones((N + 2, 3))]),
}
every_operator = pytest.mark.parametrize("name", OPERATORS)


@every_operator
@pytest.mark.parametrize("weighted", [False, True])
def test_a_moved_operator_is_the_same_matrix_in_both_directions(library, name, weighted):
    M = OPERATORS[name](graph(weighted=weighted))
    there = moved(M, library.array(np.zeros(1)))
    for here, other in ((M, there), (M.T, there.T)):
        found = other @ library.array(np.eye(here.shape[1]))
        assert isinstance(found, library.kind)
        np.testing.assert_allclose(library.host(found), here @ np.eye(here.shape[1]), atol=1e-10)


@every_operator
def test_what_was_moved_factorises_there(library, name):
    M = OPERATORS[name](graph())
    how = {"rank": 3, "check": False, "n_iter": 20}
    here, there = fg.fsvd(M, **how), fg.fsvd(moved(M, library.array(np.zeros(1))), **how)
    assert isinstance(there.U, library.kind)
    np.testing.assert_allclose(library.host(there.s), here.s, rtol=1e-6, atol=1e-12)


def test_numbers_keep_their_type_and_bare_patterns_take_that_of_the_example(library):
    g, single = graph(), library.array(np.zeros(1, np.float32))
    assert moved(fg.transition(g), single).dtype == np.float64
    assert moved(fg.Matrix(g.csr), single).dtype == np.float32
    assert moved(fg.Matrix(g.csr), library.array(np.zeros(1))).dtype == np.float64


@pytest.mark.parametrize("make", [walk, degree_walk, fg.transition])
def test_what_jax_has_no_double_precision_for_is_single(make):
    with libraries.opened("jax") as library:
        import jax

        with jax.enable_x64(False):
            there = moved(make(graph(), dtype="float64"), library.array(np.zeros(1, np.float32)))
            assert there.dtype == np.float32
            assert fg.fsvd(there, 2).s.dtype == np.float32


def test_an_operator_that_holds_no_arrays_stays_itself(library):
    M = fg.Ones((3, 4)) @ fg.Identity(4)
    assert moved(M, library.array(np.zeros(1))) is M


def test_an_operator_made_of_functions_is_refused_by_name(library):
    f = fg.Function((3, 3), lambda X: X, lambda X: X, name="shift")
    with pytest.raises(ArgumentError, match=r"shift.* is made of functions.*like="):
        moved(2 * f, library.array(np.zeros(1)))


def test_functions_that_know_the_library_stay_as_they_are(library):
    like = library.array(np.zeros(1))
    f = fg.Function((3, 3), lambda X: 2 * X, lambda X: 2 * X, like=like)
    there = moved(f + fg.Diagonal(np.ones(3)), like)
    np.testing.assert_array_equal(library.host(there @ library.array(np.eye(3))), 3 * np.eye(3))


def test_one_pattern_is_put_there_once(library):
    g, puts = graph(), []
    seam = seam_of(library.array(np.zeros(1)))

    def put_sparse(matrix, dtype):
        puts.append(dtype)
        return seam.put_sparse(matrix, dtype)

    mover = Mover(replace(seam, put_sparse=put_sparse), np.dtype(np.float64))
    for make in (walk, degree_walk, as_released):
        mover.moved(make(g, dtype="float64"))
    assert len(puts) == 1


def test_moving_to_numpy_changes_no_product():
    M = OPERATORS["filter"](graph())
    np.testing.assert_allclose(moved(M, np.zeros(1)) @ np.eye(4), M @ np.eye(4), rtol=1e-12)


@relaxed
@given(
    st.integers(0, 99),
    st.booleans(),
    st.booleans(),
    st.integers(1, 6),
    st.sampled_from([0.0, 1.0, 2.5]),
    st.sampled_from([walk, degree_walk]),
)
def test_a_walk_spelt_out_is_the_walk(seed, directed, weighted, window, negative, make):
    M = make(graph(seed, directed=directed, weighted=weighted), window=window, negative=negative)
    X = np.random.default_rng(seed).standard_normal((N, 3)).astype(np.float32)
    for one, other in ((M, M.spelt_out), (M.T, M.spelt_out.T), (M.T, M.T.spelt_out)):
        np.testing.assert_allclose(other @ X, one @ X, rtol=1e-4, atol=1e-3)
        assert (other @ X).dtype == np.float32


@relaxed
@given(st.integers(0, 99), st.booleans(), st.sampled_from([renormalised_matrix, averaging_matrix]))
def test_a_matrix_with_loops_spelt_out_is_that_matrix(seed, weighted, make):
    S = make(flows(graph(seed, weighted=weighted)), dtype=np.float64)
    for one, other in ((S, S.spelt_out), (S.T, S.spelt_out.T), (S.T, S.T.spelt_out)):
        np.testing.assert_allclose(other @ np.eye(N), one @ np.eye(N), atol=1e-12)


def test_a_filter_is_its_own_transpose_and_what_smoothing_gives():
    S = renormalised_matrix(flows(graph()), dtype=np.float64)
    g = Filter(S, 0.3, 7)
    G = g @ np.eye(N)
    assert g.T is g
    np.testing.assert_allclose(G, G.T, atol=1e-14)
    np.testing.assert_array_equal(G, smoothed(S, np.eye(N), restart=0.3, steps=7))


def test_a_filter_on_arrays_of_numpy_still_runs_fused(monkeypatch):
    calls, smooth = [], filter_panels.smooth_columns
    monkeypatch.setattr(
        "fastgrl.filters.smooth_columns", lambda *args, **how: calls.append(0) or smooth(*args, **how)
    )
    OPERATORS["filter"](graph()) @ np.eye(4)
    assert len(calls) == 1


def test_sparse_features_move_with_their_filter(library):
    S = renormalised_matrix(flows(graph()), dtype=np.float64)
    F = sp.random_array((N, 6), density=0.3, rng=0, format="csr")
    M = filtered(S, F, restart=0.2, steps=5)
    found = moved(M, library.array(np.zeros(1))) @ library.array(np.eye(6))
    np.testing.assert_allclose(library.host(found), M @ np.eye(6), atol=1e-12)


def test_its_example_is_right():
    libraries.torch_library()
    found = doctest.testmod(moving, extraglobs={"fg": fg, "np": np}, optionflags=doctest.NORMALIZE_WHITESPACE)
    assert found.attempted
    assert not found.failed
