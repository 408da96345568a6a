from __future__ import annotations

import gc
import mmap
import os
import pickle
import shutil
import sys
import threading
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st

from fastgrl import kernels, spilling, transposition
from fastgrl.errors import ArgumentError, UnavailableError
from fastgrl.kernels import CSR, csr_from_scipy, multiply, transpose
from fastgrl.parallel import use_threads
from fastgrl.polynomials import polynomial
from fastgrl.spilling import (
    gathered,
    is_mapped,
    panel_columns,
    release,
    row_ranges,
    scratch_array,
    scratch_folder,
    scratch_zeros,
    use_panels,
    use_scratch,
)

linux = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the kernel's figures are Linux's")


def resident():
    return int(Path("/proc/self/statm").read_text().split()[1]) * mmap.PAGESIZE


def open_files():
    return len(os.listdir("/proc/self/fd"))


def mapped(array, folder, name="array"):
    array.tofile(folder / name)
    return np.memmap(folder / name, array.dtype, "r", shape=array.shape)


def mapped_csr(matrix, folder):
    csr = csr_from_scipy(matrix)
    values = None if csr.values is None else mapped(csr.values, folder, "values")
    return CSR(csr.indptr, mapped(csr.indices, folder, "indices"), values, csr.shape, csr.dtype)


@pytest.fixture
def narrow(monkeypatch):
    """Ranges of a few rows where a real graph has some of 32 MB."""

    def ranges(indptr, entry_bytes):
        return row_ranges(indptr, entry_bytes, at_once=40)

    for module in (kernels, transposition):
        monkeypatch.setattr(module, "row_ranges", ranges)


@given(st.lists(st.integers(0, 50), max_size=40), st.integers(1, 16), st.integers(1, 400))
def test_ranges_cover_every_row_once_and_stay_small(counts, entry, at_once):
    indptr = np.concatenate([[0], np.cumsum(counts, dtype=np.int64)]).astype(np.int64)
    ranges = list(row_ranges(indptr, entry, at_once=at_once))
    assert [row for begin, end in ranges for row in range(begin, end)] == list(range(len(counts)))
    for begin, end in ranges:
        stored = entry * (indptr[end] - indptr[begin])
        assert stored <= max(at_once, entry) or end == begin + 1


@given(
    st.sampled_from(["float32", "float64", "int64", "int8"]),
    st.lists(st.integers(0, 20), min_size=1, max_size=3),
    st.integers(0, 30),
    st.integers(0, 30),
)
def test_a_scratch_array_keeps_what_is_written_whatever_is_released(dtype, shape, begin, end):
    values = np.random.default_rng(0).integers(-100, 100, shape).astype(dtype)
    with use_scratch("."):
        array = scratch_array(tuple(shape), dtype)
        assert is_mapped(array) == (array.size > 0)
        assert not scratch_zeros(tuple(shape), dtype).any()
    array[...] = values
    release(array, begin, end)
    release(array)
    assert type(array) is np.ndarray
    assert np.array_equal(array, values)
    assert np.array_equal(pickle.loads(pickle.dumps(array)), values)


def test_arrays_are_in_memory_unless_told(tmp_path):
    assert not is_mapped(scratch_array((3, 3), "float32"))
    assert not scratch_zeros((3, 3), "float32").any()
    with use_scratch(str(tmp_path)):
        with use_scratch(None):
            assert not is_mapped(scratch_array((3, 3), "float32"))
        assert is_mapped(scratch_array((3, 3), "float32"))
    assert not is_mapped(scratch_array((3, 3), "float32"))


@linux
def test_pages_are_given_back_and_the_content_stays(tmp_path):
    with use_scratch(str(tmp_path)):
        array = scratch_array((64, 1 << 17), "float32")
    before = resident()
    for row in range(len(array)):
        array[row] = row
    assert resident() - before > 0.9 * array.nbytes
    for row in range(len(array)):
        release(array, row, row + 1)
    assert resident() - before < 0.1 * array.nbytes
    for row in range(len(array)):
        assert (array[row] == row).all()
        release(array, row, row + 1)
    assert resident() - before < 0.1 * array.nbytes


@linux
def test_files_have_no_name_and_go_with_the_array(tmp_path):
    gc.collect()
    before = open_files()
    with use_scratch(str(tmp_path)):
        array = scratch_array((1000,), "float64")
    assert list(tmp_path.iterdir()) == []
    assert open_files() == before + 1
    del array
    gc.collect()
    assert open_files() == before


def test_a_private_map_keeps_what_was_written_to_it(tmp_path):
    np.zeros(4096).tofile(tmp_path / "zeros")
    private = np.memmap(tmp_path / "zeros", np.float64, "c")
    private[:] = 1
    release(private)
    assert not is_mapped(private)
    assert (private == 1).all()


def test_release_takes_any_array():
    for array in (np.arange(5), np.arange(6).reshape(2, 3).T, np.empty(0), None, [1, 2], np.float64(1)):
        release(array, 0, 1)
        assert not is_mapped(array)


def test_a_strided_part_is_left_alone(tmp_path):
    array = mapped(np.arange(10_000.0).reshape(100, 100), tmp_path)
    release(array[:, :50], 0, 100)
    release(array[::-1], 0, 100)
    assert (array == np.arange(10_000.0).reshape(100, 100)).all()


def test_threads_may_release_side_by_side(tmp_path):
    with use_scratch(str(tmp_path)):
        array = scratch_array((400, 1000), "float32")

    def fill(first):
        for row in range(first, 400, 4):
            array[row] = row
            release(array, row, row + 1)

    threads = [threading.Thread(target=fill, args=(first,)) for first in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (array == np.arange(400)[:, None]).all()


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_child_reads_what_the_parent_wrote(tmp_path):
    with use_scratch(str(tmp_path)):
        array = scratch_array((1000,), "float64")
    array[:] = 7
    release(array)
    if (child := os.fork()) == 0:
        os._exit(0 if (array == 7).all() else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_a_full_disk_is_an_error_with_a_quote(tmp_path, monkeypatch):
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=10**6))
    with (
        use_scratch(str(tmp_path)),
        pytest.raises(UnavailableError, match=r"8 MB of scratch .* 1 MB are free"),
    ):
        scratch_array((10**6,), "float64")


def test_a_disk_that_fills_up_meanwhile_is_an_error_too(tmp_path, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", full, raising=False)
    gc.collect()
    before = open_files()
    with (
        use_scratch(str(tmp_path)),
        pytest.raises(UnavailableError, match="No space left on device; set TMPDIR"),
    ):
        scratch_array((10**6,), "float64")
    assert open_files() == before
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_is_not_there_is_named(tmp_path):
    with use_scratch(str(tmp_path / "nowhere")), pytest.raises(UnavailableError, match="nowhere"):
        scratch_array((10,), "float64")


def test_scratch_avoids_file_systems_in_memory(tmp_path, monkeypatch):
    usual, beside = tmp_path / "usual", tmp_path / "beside"
    for folder in (usual, beside):
        folder.mkdir()
    monkeypatch.setattr(spilling.tempfile, "gettempdir", lambda: str(usual))
    monkeypatch.setattr(spilling, "_mounts", lambda: (("/", "ext4"), (str(usual), "tmpfs")))
    assert scratch_folder() == str(usual)
    assert scratch_folder(None, "-", beside / "out.npy") == str(beside)
    assert scratch_folder(beside) == str(beside)
    monkeypatch.setattr(spilling, "_mounts", lambda: (("/", "ext4"),))
    assert scratch_folder(beside) == str(usual)


def test_panels_are_at_most_as_wide_as_told():
    assert panel_columns(16) == 16
    with use_panels(4):
        assert panel_columns(16) == 4
        assert panel_columns(2) == 2
        with use_panels(None):
            assert panel_columns(16) == 16
    with pytest.raises(ArgumentError, match="at least one column"), use_panels(0):
        pass


def test_rows_are_gathered_in_any_order(tmp_path, monkeypatch):
    monkeypatch.setattr(spilling, "RANGE_BYTES", 50)
    rows = np.arange(60.0).reshape(20, 3)
    order = np.random.default_rng(0).permutation(20)
    assert np.array_equal(gathered(rows, order), rows[order])
    with use_scratch(str(tmp_path)):
        found = gathered(mapped(rows, tmp_path), order)
    assert is_mapped(found)
    assert np.array_equal(found, rows[order])


def sparse(kind, shape=(90, 70), density=0.1):
    matrix = sp.random_array(shape, density=density, rng=np.random.default_rng(0), format="csr")
    return (matrix != 0) if kind == "pattern" else matrix.astype(kind)


@pytest.mark.parametrize("kind", ["pattern", "float32", "float64"])
@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.usefixtures("narrow")
def test_a_mapped_matrix_multiplies_bit_for_bit_alike(kind, threads, tmp_path, monkeypatch):
    monkeypatch.setattr(kernels, "WORTH_A_THREAD", 1)
    matrix = sparse(kind, (90, 90))
    X = (
        np.random.default_rng(1)
        .standard_normal((90, 5))
        .astype("float64" if kind == "float64" else "float32")
    )
    scale, c = np.linspace(1, 2, 90).astype(X.dtype), np.array([3.0, 2.0, 1.0])
    plain, on_disk = csr_from_scipy(matrix), mapped_csr(matrix, tmp_path)
    assert on_disk.mapped
    with use_threads(threads):
        assert np.array_equal(multiply(on_disk, X, row_scale=scale), multiply(plain, X, row_scale=scale))
        assert np.array_equal(
            polynomial(on_disk, X, c, row_scale=scale), polynomial(plain, X, c, row_scale=scale)
        )


@pytest.mark.parametrize("kind", ["pattern", "float32", "float64"])
@pytest.mark.usefixtures("narrow")
def test_a_mapped_matrix_is_transposed_on_disk(kind, tmp_path):
    plain, on_disk = csr_from_scipy(sparse(kind)), mapped_csr(sparse(kind), tmp_path)
    wanted = transpose(plain)
    with use_scratch(str(tmp_path)):
        found = on_disk.transposed
    assert is_mapped(found.indices)
    assert found.shape == wanted.shape
    assert np.array_equal(found.indptr, wanted.indptr)
    assert np.array_equal(found.indices, wanted.indices)
    assert wanted.values is None or np.array_equal(found.values, wanted.values)
    assert found.transposed is on_disk


@pytest.mark.usefixtures("narrow")
def test_a_symmetric_matrix_on_disk_is_found_to_be_its_own_transpose(tmp_path):
    half = sparse("float32", (60, 60))
    with use_scratch(str(tmp_path)):
        csr = mapped_csr((half + half.T).tocsr(), tmp_path)
        assert csr.transposed is csr


@given(st.integers(0, 40), st.integers(1, 40), st.floats(0, 1), st.integers(1, 200), st.booleans())
def test_transposing_in_parts_of_any_size_is_transposing(rows, columns, density, at_once, valued):
    matrix = sp.random_array((rows, columns), density=density, rng=np.random.default_rng(0), format="csr")
    values = matrix.data if valued else None
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(transposition, "row_ranges", lambda p, e: row_ranges(p, e, at_once=at_once))
        indptr, indices, kept = transposition.transposed_rows(
            matrix.indptr.astype(np.int64), matrix.indices, values, num_columns=columns
        )
    other = sp.csr_array(matrix.T)
    assert np.array_equal(indptr, other.indptr)
    assert np.array_equal(indices, other.indices)
    assert (kept is None) == (not valued)
    assert kept is None or np.array_equal(kept, other.data)
