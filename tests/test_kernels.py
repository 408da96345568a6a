from __future__ import annotations

import itertools
import os
import subprocess
import sys

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from operator_cases import dense, pattern, sparse

import fastgrl as fg
from fastgrl import kernels
from fastgrl.errors import ArgumentError, DtypeError, ShapeError
from fastgrl.parallel import use_threads

AVAILABLE = ["scipy"]
if kernels._compiled() is not None:
    AVAILABLE += ["portable"] + ["avx2"] * kernels._compiled().has_avx2()


@pytest.fixture(params=AVAILABLE)
def kernel(request, monkeypatch):
    monkeypatch.setattr(kernels, "_chosen_kernel", lambda: request.param)
    return request.param


@settings(max_examples=60, deadline=None)
@given(
    st.integers(1, 40),
    st.integers(1, 40),
    st.integers(0, 70),
    st.sampled_from([np.float32, np.float64]),
    st.integers(0, 9),
)
def test_every_kernel_width_and_type_equals_scipy(rows, columns, width, dtype, seed):
    a, X = sparse(rows, columns, dtype, seed), dense(columns, width, dtype, seed)
    d = dense(rows, 1, dtype, 3)[:, 0]
    bare = a.astype(bool)
    for name, values, scale in itertools.product(AVAILABLE, (a, bare), (None, d)):
        csr = kernels.csr_from_scipy(values)
        expected = (values.astype(np.float64) @ X.astype(np.float64)) * (
            1 if scale is None else scale[:, None]
        )
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(kernels, "_chosen_kernel", lambda name=name: name)
            Y = kernels.multiply(csr, X, row_scale=scale)
        assert Y.dtype == dtype
        assert np.abs(Y - expected).max(initial=0) <= 100 * np.finfo(dtype).eps * max(
            1, np.abs(expected).max(initial=0)
        )


@pytest.mark.parametrize("index", [np.int32, np.int64])
def test_both_index_types_give_the_same_bits(kernel, index):
    a = sparse(200, 150, np.float32)
    other = a.copy()
    other.indices, other.indptr = a.indices.astype(index), a.indptr.astype(index)
    X = dense(150, 20, np.float32)
    assert np.array_equal(
        kernels.multiply(kernels.csr_from_scipy(a), X), kernels.multiply(kernels.csr_from_scipy(other), X)
    )


def test_float32_values_with_a_float64_block_give_float64(kernel):
    a, X = sparse(20, 20, np.float32), dense(20, 3, np.float64)
    Y = kernels.multiply(kernels.csr_from_scipy(a), X)
    assert Y.dtype == np.float64
    assert np.allclose(Y, a.astype(np.float64) @ X, atol=1e-14)


@pytest.mark.parametrize("layout", ["fortran", "strided", "reversed", "read-only"])
def test_any_memory_layout_of_the_block_is_read_right(kernel, layout):
    a, X = sparse(30, 20, np.float64), dense(20, 8, np.float64)
    blocks = {
        "fortran": np.asfortranarray(X),
        "strided": np.repeat(X, 2, axis=1)[:, ::2],
        "reversed": X[::-1][::-1],
        "read-only": X.copy(),
    }
    blocks["read-only"].setflags(write=False)
    assert np.allclose(kernels.multiply(kernels.csr_from_scipy(a), blocks[layout]), a @ X, atol=1e-14)


def test_strided_values_and_unusual_index_types_are_read_right(kernel):
    a, X = sparse(30, 20, np.float64), dense(20, 3, np.float64)
    strided = sp.csr_array((np.repeat(a.data, 2)[::2], a.indices, a.indptr), shape=a.shape)
    real = (a * (1 + 1j)).real
    for other in (strided, real):
        assert np.allclose(fg.Matrix(other) @ X, a @ X, atol=1e-14)
    for kind in (np.uint16, np.int16, np.uint64, ">i4", ">i8"):
        other = a.copy()
        other.indices, other.indptr = a.indices.astype(kind), a.indptr.astype(kind)
        assert np.allclose(fg.Matrix(other) @ X, a @ X, atol=1e-14)
    other = a.copy()
    other.data = a.data.astype(">f8")
    assert np.allclose(fg.Matrix(other) @ X.astype(">f8"), a @ X, atol=1e-14)


def test_compiled_kernels_convert_nothing_behind_our_back():
    a, X = kernels.csr_from_scipy(sparse(5, 5, np.float64)), dense(5, 2, np.float64)
    Y = np.empty((5, 2), np.float32)
    for name in AVAILABLE[1:]:
        with pytest.raises(TypeError):
            kernels._compiled().multiply_rows(a.indptr, a.indices, a.values, None, X, Y, 0, 5, name == "avx2")


def test_threads_do_not_change_a_bit(kernel):
    a = sp.random_array((30_000, 30_000), density=5e-4, rng=0, dtype=np.float32, format="csr")
    X = dense(30_000, 24, np.float32)
    csr = kernels.csr_from_scipy(a)
    results = []
    for threads in (1, 2, 4, 7):
        with use_threads(threads):
            results.append(kernels.multiply(csr, X))
    assert all(np.array_equal(results[0], other) for other in results[1:])


def test_the_input_is_not_changed_and_not_copied():
    a = sparse(40, 40, np.float32)
    before = a.copy()
    csr = kernels.csr_from_scipy(a)
    assert np.shares_memory(csr.indices, a.indices)
    assert np.shares_memory(csr.values, a.data)
    kernels.multiply(csr, dense(40, 2, np.float32))
    assert (a != before).nnz == 0


def test_all_ones_need_no_values():
    assert kernels.csr_from_scipy(pattern(9, 9)).values is None
    assert kernels.csr_from_scipy(pattern(9, 9).astype(np.float32)).values is None
    assert kernels.csr_from_scipy(pattern(9, 9).astype(int) * 2).values.dtype == np.float64


def test_transposing_back_builds_no_third_copy():
    A = fg.Matrix(sparse(9, 5, np.float64))
    assert A.T.T.a is A.a


def test_row_pointers_are_64_bit():
    csr = kernels.csr_from_scipy(sparse(5, 5, np.float64))
    assert csr.indptr.dtype == np.int64
    assert csr.transposed.indptr.dtype == np.int64


def damaged(**parts):
    a = sp.csr_array(np.eye(4))
    for name, value in parts.items():
        setattr(a, name, np.array(value))
    return a


@pytest.mark.parametrize(
    ("matrix", "says"),
    [
        (damaged(indices=[0, 1, 2, 99]), "index 99 is outside 0..3"),
        (damaged(indices=[0, -1, 2, 3]), "index -1 is outside"),
        (damaged(indptr=[0, 3, 1, 3, 4]), "never fall"),
        (damaged(indptr=[1, 2, 3, 4, 4]), "start at 0"),
        (damaged(indptr=[0, 1, 2, 3]), "5 values"),
        (damaged(indptr=[0, 1, 2, 3, 9]), "ends at 9"),
        (damaged(data=[1.0, 2.0]), "ends at 4"),
        (damaged(indptr=np.array([0, 2**31 - 1, -(2**31), 3, 4], np.int32)), "never fall"),
        (damaged(indptr=np.array([0, 99, 2, 3, 4], np.uint64)), "never fall"),
    ],
)
def test_a_damaged_matrix_is_refused_before_any_compiled_code_reads_it(matrix, says):
    for build in (fg.Matrix, fg.as_operator):
        with pytest.raises(ShapeError, match=says):
            build(matrix)


def test_damaged_coordinates_and_columns_are_refused_too():
    coo = sp.coo_array(np.eye(3))
    coo.coords = (np.array([0, 1, 7]), coo.col)
    with pytest.raises(ShapeError, match="row index 7"):
        fg.Matrix(coo)
    lil = sp.lil_array(np.eye(3))
    lil.rows[0] = [99]
    with pytest.raises(ShapeError, match="index 99"):
        fg.Matrix(lil)
    csc = sp.csc_array(np.eye(3))
    csc.indices = np.array([0, 1, 3])
    with pytest.raises(ShapeError, match="index 3 is outside"):
        fg.Matrix(csc)


def test_complex_and_half_precision_are_refused():
    for dtype in (complex, np.longdouble):
        with pytest.raises(DtypeError, match="float32 or float64"):
            kernels.csr_from_scipy(sp.eye_array(3, dtype=dtype, format="csr"))


def test_kernel_info_says_what_runs():
    info = fg.kernel_info()
    assert info.kernel == AVAILABLE[-1] or "FASTGRL_KERNEL" in os.environ
    assert info.kernel in str(info)


def kernel_info_of_a_new_process(**environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", "import fastgrl; print(fastgrl.kernel_info())"],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize("name", AVAILABLE)
def test_the_environment_chooses_among_the_kernels(name):
    run = kernel_info_of_a_new_process(FASTGRL_KERNEL=name)
    assert run.stdout.startswith(f"{name} kernel")


def test_a_kernel_that_cannot_be_loaded_says_why(monkeypatch):
    def broken(name):
        raise ImportError("wrong ELF class")

    monkeypatch.setattr(kernels.importlib, "import_module", broken)
    monkeypatch.setattr(kernels, "_chosen_kernel", lambda: "scipy")
    assert "wrong ELF class" in fg.kernel_info().reason


def test_an_unknown_kernel_is_named(monkeypatch):
    monkeypatch.setenv("FASTGRL_KERNEL", "warp")
    kernels._chosen_kernel.cache_clear()
    with pytest.raises(ArgumentError, match="FASTGRL_KERNEL=warp"):
        fg.kernel_info()
    monkeypatch.undo()
    kernels._chosen_kernel.cache_clear()
