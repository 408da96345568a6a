"""One set of laws and spectra for the functional SVD on arrays of NumPy, PyTorch, JAX and TensorFlow."""

from __future__ import annotations

import subprocess
import sys

import libraries
import numpy as np
import pytest
import scipy.sparse as sp
from operator_cases import CASES, built, dense, sparse
from spectra import spectra, with_spectrum

import fastgrl as fg
from fastgrl.errors import ArgumentError, DtypeError, FastgrlError, NotFiniteError, ShapeError, TransposeError
from fastgrl.fsvd import PROBE_STREAM
from fastgrl.linalg import seam_of

pytestmark = pytest.mark.frameworks
both_dtypes = pytest.mark.parametrize("dtype", [np.float32, np.float64])
methods = pytest.mark.parametrize("method", ["krylov", "subspace"])
MADE_OF_FUNCTIONS = {"function", "linear_operator"}
every_case = pytest.mark.parametrize("name", [name for name in CASES if name not in MADE_OF_FUNCTIONS])


@pytest.fixture(params=libraries.NAMES)
def library(request):
    with libraries.opened(request.param) as opened:
        yield opened


def there(library, name, dtype):
    """A case of the registry with its arrays in the library, and its dense matrix."""
    A, a = built(name, dtype)
    return library.moved(A, dtype), a


def close(a, b, dtype):
    size = max(1.0, np.abs(b).max(initial=0.0))
    return a.shape == b.shape and np.abs(a - b).max(initial=0.0) <= 200 * np.finfo(dtype).eps * size


def orthonormal(Q, dtype):
    return np.abs(Q.T @ Q - np.eye(Q.shape[1])).max() < 100 * np.finfo(dtype).eps


# ---- operators


@every_case
@both_dtypes
def test_a_product_is_that_of_the_dense_matrix(library, name, dtype):
    A, a = there(library, name, dtype)
    X = dense(a.shape[1], 3, dtype, 5)
    Y = A @ library.array(X)
    assert isinstance(Y, library.kind)
    assert A.shape == a.shape
    assert close(library.host(Y), a @ X, dtype)
    assert library.host(Y).dtype == dtype


@every_case
@both_dtypes
def test_a_transpose_is_that_of_the_dense_matrix_and_its_transpose_the_operator(library, name, dtype):
    A, a = there(library, name, dtype)
    Y, X = dense(a.shape[0], 3, dtype, 5), dense(a.shape[1], 3, dtype, 6)
    assert close(library.host(A.T @ library.array(Y)), a.T @ Y, dtype)
    assert close(library.host(A.T.T @ library.array(X)), a @ X, dtype)


@every_case
@both_dtypes
def test_dot_test(library, name, dtype):
    A, _ = there(library, name, dtype)
    u, v = dense(A.shape[1], 1, dtype, 1), dense(A.shape[0], 1, dtype, 2)
    Au, Atv = library.host(A @ library.array(u)), library.host(A.T @ library.array(v))
    scale = np.linalg.norm(Au) * np.linalg.norm(v) + np.linalg.norm(u) * np.linalg.norm(Atv)
    assert abs(float((Au.T @ v - u.T @ Atv)[0, 0])) <= 50 * np.finfo(dtype).eps * max(scale, 1)


@every_case
@both_dtypes
def test_products_are_linear(library, name, dtype):
    A, _ = there(library, name, dtype)
    x, y = (dense(A.shape[1], 2, dtype, seed) for seed in (3, 4))
    both, one, other = (library.host(A @ library.array(z)) for z in (2 * x - 3 * y, x, y))
    assert close(both, 2 * one - 3 * other, dtype)


# ---- spectra


@methods
@both_dtypes
@pytest.mark.parametrize("shape", [(60, 40), (1, 30)])
@pytest.mark.parametrize("name", spectra(30))
def test_full_rank_values_are_lapacks(library, method, dtype, shape, name):
    k = min(shape)
    a = with_spectrum(*shape, spectra(k)[name], dtype=dtype)
    U, s, Vt = (library.host(x) for x in fg.fsvd(library.array(a), k, method=method))
    exact = np.linalg.svd(a.astype(np.float64), compute_uv=False)
    assert np.abs(s - exact).max() <= 100 * np.finfo(dtype).eps * exact[0]
    assert orthonormal(U, dtype)
    assert orthonormal(Vt.T, dtype)


@both_dtypes
@pytest.mark.parametrize("name", ["fast decay", "very fast decay", "slow decay", "rank deficient"])
@pytest.mark.parametrize("made", ["dense", "sparse"])
def test_truncated_values_and_scores_are_numpys(library, dtype, name, made):
    a = with_spectrum(200, 120, spectra(120)[name], dtype=dtype)
    held = library.array(a) if made == "dense" else library.sparse(sp.csr_array(a))
    U, s, Vt = (library.host(x) for x in fg.fsvd(held, 12, n_iter=12))
    ours = fg.fsvd(a, 12, n_iter=12)
    exact = np.linalg.svd(a.astype(np.float64), compute_uv=False)[:12]
    tolerance = 100 * np.finfo(dtype).eps * exact[0]
    assert np.abs(s - exact).max() <= tolerance
    assert np.abs(s - ours.s).max() <= tolerance
    assert np.abs((U * s) @ Vt - (ours.U * ours.s) @ ours.Vt).max() <= 10 * tolerance


@methods
@both_dtypes
def test_the_walk_matrix_has_the_same_scores_everywhere(library, method, dtype):
    M, m = there(library, "the_papers_walk_matrix", dtype)
    U, s, Vt = (library.host(x) for x in fg.fsvd(M, 9, method=method))
    assert np.abs((U * s) @ Vt - m).max() <= 200 * np.finfo(dtype).eps * np.abs(m).max()
    assert np.abs(s - np.linalg.svd(m, compute_uv=False)).max() <= 200 * np.finfo(dtype).eps * s[0]


@pytest.mark.parametrize("a", [np.eye(30), np.zeros((20, 30)), np.full((20, 20), 1e200), np.ones((20, 20))])
@methods
def test_degenerate_matrices_are_answered(library, method, a):
    U, s, Vt = (library.host(x) for x in fg.fsvd(library.array(a), 6, method=method))
    exact = np.linalg.svd(a, compute_uv=False)[:6]
    assert np.abs(s - exact).max() <= 100 * np.finfo(np.float64).eps * exact[0]
    assert orthonormal(U, np.float64)
    assert orthonormal(Vt.T, np.float64)


def test_all_copies_of_a_repeated_value_are_found(library):
    triangles = sp.block_diag([np.ones((3, 3)) - np.eye(3)] * 100, format="csr")
    held = library.sparse(sp.csr_array(triangles))
    svd = fg.fsvd(held, 10, block_size=5)
    assert np.allclose(library.host(svd.s), 2)
    assert fg.certificate(held, svd).complete


def test_signs_are_fixed_by_the_largest_entry(library):
    for seed in range(3):
        U = library.host(fg.fsvd(library.array(dense(50, 40, np.float64)), 5, seed=seed, n_iter=30).U)
        assert (U[np.abs(U).argmax(0), range(5)] > 0).all()


# ---- what comes out


@both_dtypes
@pytest.mark.parametrize("made", ["dense", "sparse"])
def test_results_are_of_the_operators_library_device_and_type(library, dtype, made):
    a = sparse(40, 30, dtype)
    given = library.array(a.toarray())
    svd = fg.fsvd(given if made == "dense" else library.sparse(a), 4)
    for part in svd:
        assert isinstance(part, library.kind)
        assert library.place(part) == library.place(given)
        assert library.host(part).dtype == dtype
    assert (svd.U.shape, svd.s.shape, svd.Vt.shape) == ((40, 4), (4,), (4, 30))
    assert "40×30, rank 4" in repr(svd)


@methods
def test_the_same_seed_gives_the_same_bits_and_another_does_not(library, method):
    a = library.array(dense(80, 60, np.float64))
    one, two, other = (fg.fsvd(a, 5, method=method, n_iter=1, seed=seed) for seed in (3, 3, 4))
    assert all(np.array_equal(library.host(x), library.host(y)) for x, y in zip(one, two, strict=True))
    assert not np.array_equal(library.host(one.U), library.host(other.U))


def test_random_blocks_are_normal_and_differ_by_seed_and_stream(library):
    seam = seam_of(library.array(np.zeros(1)))
    blocks = [
        library.host(seam.random(5000, 4, np.float64, seed, stream))
        for seed, stream in [(0, 0), (0, 1), (1, 0), (2**64 - 1, PROBE_STREAM)]
    ]
    for number, block in enumerate(blocks):
        assert abs(block.mean()) < 0.05
        assert abs(block.std() - 1) < 0.05
        assert all(np.abs(np.corrcoef(block.ravel(), b.ravel())[0, 1]) < 0.05 for b in blocks[:number])


def test_the_certificate_is_measured_in_the_library(library):
    a = with_spectrum(80, 60, spectra(60)["slow decay"])
    found = fg.certificate(library.array(a), fg.fsvd(library.array(a), 6, n_iter=20))
    assert found.complete
    assert found.next_value == pytest.approx(1 / 7, rel=1e-3)
    assert found.norm == pytest.approx(np.linalg.norm(a), rel=0.1)
    assert max(found.left_residuals.max(), found.right_residuals.max()) < 1e-6
    assert not found.note


def test_the_pseudo_inverse_solves_in_the_library(library):
    M, Y = dense(12, 40, np.float64), dense(12, 3, np.float64, 1)
    W = fg.pinv_apply(fg.fsvd(library.array(M), 12), library.array(Y))
    assert isinstance(W, library.kind)
    assert np.abs(library.host(W) - np.linalg.pinv(M) @ Y).max() < 1e-11


@methods
def test_a_warm_start_is_taken_from_an_earlier_svd(library, method):
    a = library.array(with_spectrum(200, 150, spectra(150)["slow decay"]))
    cold, good = fg.fsvd(a, 10, method=method, n_iter=0), fg.fsvd(a, 10, method=method, n_iter=20)
    for start in (good, tuple(good)):
        warm = fg.fsvd(a, 10, method=method, n_iter=0, start=start)
        off, before = (np.abs(library.host(x.s) - library.host(good.s)).max() for x in (warm, cold))
        assert off < 1e-3 * before


def test_tol_and_progress_work_as_everywhere(library):
    a = library.array(with_spectrum(120, 100, 2.0 ** -np.arange(100.0)))
    seen = []
    svd = fg.fsvd(a, 8, n_iter=30, tol=1e-10, progress=lambda *done: seen.append(done))
    assert svd.rounds < 10
    assert len(seen) == 2 * (svd.rounds + 1)


# ---- functions and errors


def test_a_users_own_product_is_factorised(library):
    a = dense(30, 20, np.float64)
    held, turned = library.array(a), library.array(a.T.copy())
    like = library.array(np.zeros(1))
    multiply = fg.Matrix(held), fg.Matrix(turned)
    M = fg.Function((30, 20), lambda X: multiply[0] @ X, lambda X: multiply[1] @ X, like=like)
    svd = fg.fsvd(M, 4, n_iter=20)
    assert isinstance(svd.U, library.kind)
    assert np.allclose(library.host(svd.s), np.linalg.svd(a, compute_uv=False)[:4])


def test_a_wrong_transpose_is_found_out(library):
    held = fg.Matrix(library.array(dense(20, 20, np.float64)))
    M = fg.Function((20, 20), lambda X: held @ X, lambda X: held @ X, like=library.array(np.zeros(1)))
    with pytest.raises(TransposeError, match="not the transpose"):
        fg.fsvd(M, 2)


def test_a_product_of_the_wrong_shape_or_library_is_named(library):
    like = library.array(np.zeros(1))
    short = fg.Function((5, 5), lambda X: X[:2], lambda X: X, like=like)
    with pytest.raises(ShapeError, match="must be 5×"):
        fg.fsvd(short, 1)
    if library.name != "numpy":
        other = fg.Function((5, 5), lambda X: np.ones((5, X.shape[1])), lambda X: X, like=like)
        with pytest.raises(DtypeError, match="its function returned ndarray"):
            fg.fsvd(other, 1)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
@pytest.mark.parametrize("made", ["dense", "sparse"])
def test_numbers_that_are_not_finite_are_refused_at_the_door(library, bad, made):
    a = np.eye(4)
    a[1, 2] = bad
    with pytest.raises(NotFiniteError, match="matrix contains"):
        fg.fsvd(library.array(a) if made == "dense" else library.sparse(sp.csr_array(a)), 1)


def with_an_entry_outside(library):
    """A sparse 3×3 matrix with an entry in column 9."""
    rows, columns, values = np.array([0, 1, 2]), np.array([0, 9, 2]), np.ones(3)
    if library.name == "torch":
        import torch

        places = torch.tensor(np.stack([rows, columns]))
        return torch.sparse_coo_tensor(places, torch.tensor(values), (3, 3), check_invariants=False)
    if library.name == "tensorflow":
        import tensorflow as tf

        return tf.SparseTensor(np.stack([rows, columns], 1), values, (3, 3))
    from jax.experimental.sparse import BCOO

    return BCOO((library.array(values), library.array(np.stack([rows, columns], 1))), shape=(3, 3))


def test_entries_outside_of_a_sparse_matrix_are_refused_or_padding(library):
    if library.name in ("numpy", "cluster"):
        return  # SciPy's arrays, of which both are made, have tests of their own
    if library.name == "jax":
        assert np.allclose(fg.fsvd(with_an_entry_outside(library), 3).s, [1, 1, 0])
        return
    with pytest.raises((ArgumentError, ShapeError), match="outside"):
        fg.fsvd(with_an_entry_outside(library), 1)


def test_integers_become_numbers_and_half_precision_is_refused(library):
    svd = fg.fsvd(library.array(np.diag([3, 2, 1])), 2)
    assert np.allclose(library.host(svd.s), [3, 2])
    with pytest.raises(DtypeError, match="float16"):
        fg.fsvd(library.array(np.eye(3, dtype=np.float16)), 2)


@pytest.mark.parametrize("like", [3.0, "float64", [1.0], np.float64])
def test_like_is_an_array(like):
    with pytest.raises(DtypeError, match="like must be an array"):
        fg.Function((2, 2), lambda X: X, lambda X: X, like=like)


def test_a_matrix_has_two_dimensions(library):
    with pytest.raises(ShapeError, match="2 dimensions"):
        fg.fsvd(library.array(np.zeros((2, 2, 2))), 1)


def test_arrays_of_two_libraries_do_not_mix(library):
    if library.name == "numpy":
        return
    held, block = fg.Matrix(library.array(np.eye(3))), np.ones((3, 2))
    refused = [
        lambda: fg.fsvd(held + fg.Diagonal(np.ones(3)), 1),
        lambda: held @ block,
        lambda: fg.Matrix(np.eye(3)) @ library.array(block),
        lambda: fg.Matrix(sp.eye_array(3, format="csr")) @ library.array(block),
        lambda: fg.fsvd(held, 1, start=block),
        lambda: fg.pinv_apply(fg.fsvd(held, 1), block),
    ]
    for mixture in refused:
        with pytest.raises(DtypeError, match="NumPy"):
            mixture()


def test_sparse_matrices_are_refused_where_dense_ones_are_meant(library):
    if library.name == "numpy":
        return  # SciPy's arrays have tests of their own
    eye, held = library.array(np.eye(3)), library.sparse(sp.eye_array(3, format="csr"))
    svd = fg.fsvd(eye, 2)
    refused = [
        lambda: fg.fsvd(eye, 2, start=held),
        lambda: fg.fsvd(eye, 2, start=(svd.U, svd.s, held)),
        lambda: fg.pinv_apply(svd, held),
        lambda: fg.LowRank(held, eye),
        lambda: fg.LowRank(eye, held),
    ]
    for wrong in refused:
        with pytest.raises(DtypeError, match="must be dense, got a sparse"):
            wrong()


def test_settings_are_numbers_or_arrays_of_one(library):
    a = library.array(np.diag([3.0, 2.0, 1.0]))
    svd = fg.fsvd(a, 3, tol=library.array(np.array(1e-3)))
    solution = fg.pinv_apply(svd, a, rcond=library.array(np.array(0.5)))
    assert np.allclose(library.host(solution), np.diag([1, 1, 0]))
    for wrong in ({"tol": "small"}, {"tol": a}, {"start": (1, 2)}):
        with pytest.raises(ArgumentError, match=next(iter(wrong))):
            fg.fsvd(a, 2, **wrong)


def test_an_array_before_an_operator_makes_an_operator(library):
    a, b = library.array(np.eye(3)), fg.Matrix(library.array(np.ones((3, 3))))
    for made in (a @ b, a + b, a - b):
        assert isinstance(made, fg.Operator)


ON_THE_SECOND_DEVICE = {
    "jax": """
import os
os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=2"
import jax
from jax.experimental.sparse import BCOO
second = jax.devices()[1]
A = jax.device_put(jax.numpy.asarray(a), second)
S = BCOO.fromdense(A)
def is_there(x): return x.devices() == {second}
""",
    "tensorflow": """
import tensorflow as tf
config, two = tf.config, [tf.config.LogicalDeviceConfiguration()] * 2
config.set_logical_device_configuration(config.list_physical_devices("CPU")[0], two)
with tf.device("CPU:1"):
    A = tf.constant(a)
    S = tf.sparse.from_dense(A)
def is_there(x): return x.device.endswith("CPU:1")
""",
}


@pytest.mark.parametrize("name", ON_THE_SECOND_DEVICE)
def test_everything_stays_on_a_device_that_is_not_the_usual_one(name):
    program = f"""
import numpy as np
a = np.random.default_rng(0).standard_normal((9, 9)).astype(np.float32)
{ON_THE_SECOND_DEVICE[name]}
import fastgrl as fg
from fastgrl.frameworks.moving import moved
double = fg.Function((9, 9), lambda X: 2 * X, lambda X: 2 * X, like=A)
there = moved(2 * fg.Matrix(a) + fg.Ones((9, 9)), like=A)
parts = [part for M in (A, S, double, there) for part in fg.fsvd(M, 3)]
parts += [fg.pinv_apply(fg.fsvd(A, 3), A), (2 * fg.Matrix(S) + double) @ A, there @ A, there.T @ A]
print(len(parts), all(map(is_there, parts)))
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["16", "True"]


@pytest.mark.parametrize("name", ["torch", "jax", "tensorflow"])
def test_a_library_that_is_not_there_is_one_line(name):
    program = f"""
import sys
sys.modules[{name!r}] = None
try:
    import fastgrl.frameworks.{name}
except ImportError as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip().endswith(f"pip install 'fastgrl[{name}]'")
    assert len(done.stdout.splitlines()) == 1


@pytest.mark.parametrize("name", ["torch", "jax", "tensorflow"])
def test_factorising_numpy_arrays_imports_no_framework(name):
    program = f"import sys, numpy, fastgrl; fastgrl.fsvd(numpy.eye(3), 1); print({name!r} in sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False"]


@pytest.mark.parametrize("method", ["krylov", "subspace"])
def test_nothing_but_small_matrices_goes_to_the_host(method, monkeypatch):
    with libraries.opened("torch") as library:
        largest, numpy = [], library.kind.numpy
        a = library.sparse(sparse(5000, 4000, np.float32, density=0.001))
        monkeypatch.setattr(
            library.kind, "numpy", lambda tensor: (largest.append(tensor.numel()), numpy(tensor))[1]
        )
        fg.certificate(a, fg.fsvd(a, 8, method=method))
        fg.Matrix(a) @ library.array(np.ones((4000, 3), np.int64))
    assert largest
    assert max(largest) <= 100 * 100


def torch_matrix(how):
    """A 4×6 matrix of ones and a two in PyTorch, as dense or sparse as `how` makes it."""
    a = pytest.importorskip("torch").ones(4, 6)
    a[0, 0] = 2
    libraries.torch_library().sparse(sp.eye_array(2, format="csr"))  # the remark that this is new comes once
    return how(a)


@pytest.mark.parametrize("layout", ["coo", "csr", "csc", "bsr", "bsc"])
def test_torch_factorises_every_sparse_layout(layout):
    blocks = ((2, 2),) if layout in ("bsr", "bsc") else ()
    found = fg.fsvd(torch_matrix(lambda a: getattr(a, f"to_sparse_{layout}")(*blocks)), 2).s
    assert np.allclose(found, np.linalg.svd(torch_matrix(np.asarray), compute_uv=False)[:2], atol=1e-5)


def fake(a):
    from torch._subclasses import FakeTensorMode

    return FakeTensorMode().from_tensor(a)


@pytest.mark.parametrize(
    ("made", "error"),
    [
        (lambda a: a.to("meta"), DtypeError),
        (lambda a: a.to_mkldnn(), DtypeError),
        (fake, DtypeError),
        (lambda a: a.to_sparse(1), ShapeError),
        (lambda a: a.T.contiguous().to_sparse(1), ShapeError),
    ],
    ids=["meta", "mkldnn", "fake", "hybrid", "hybrid tall"],
)
def test_torch_tensors_that_are_no_matrix_of_numbers_are_refused(made, error):
    with pytest.raises(error, match="matrix of numbers"):
        fg.fsvd(torch_matrix(made), 1)


@pytest.mark.parametrize("made", [lambda X: X.to("meta"), lambda X: X.to_sparse()], ids=["meta", "sparse"])
def test_torch_functions_return_dense_tensors(made):
    M = fg.Function((6, 6), made, made, like=torch_matrix(lambda a: a))
    with pytest.raises(DtypeError, match="must be a dense one too"):
        fg.fsvd(M, 1)


def test_torch_computes_in_the_tensors_precision_under_autocast():
    import torch

    a = torch_matrix(lambda a: a).requires_grad_()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        svd = fg.fsvd(a, 2)
        solution, product = fg.pinv_apply(svd, a), 2 * fg.Matrix(a) @ a.T
    svd.U[0].sum().backward()
    inside, a.grad = a.grad, None
    fg.fsvd(a, 2).U[0].sum().backward()
    assert torch.equal(inside, a.grad)
    assert torch.allclose(product, 2 * a @ a.T)
    assert torch.allclose(solution, torch.linalg.pinv(a) @ a, atol=1e-4)


def test_torch_keeps_to_the_tensors_device_whatever_the_default_is():
    import torch

    held = torch_matrix(lambda a: a.to_sparse_csr())
    try:
        torch.set_default_device("meta")
        found = fg.fsvd(held, 2)
    finally:
        torch.set_default_device(None)
    assert found.U.device == held.device


def test_torch_transforms_are_refused_in_one_line():
    import torch

    a = torch_matrix(lambda a: a)

    def of_a_function(w):
        return fg.fsvd(fg.Function((6, 6), lambda X: w * X, lambda X: w * X, like=a), 2).s.sum()

    for loss, at in ((lambda a: fg.fsvd(a, 2).s.sum(), a), (of_a_function, torch.ones(()))):
        transformed = (
            lambda: torch.func.grad(loss)(at),  # noqa: B023
            lambda: torch.func.vmap(loss)(at[None]),  # noqa: B023
        )
        for call in transformed:
            with pytest.raises(FastgrlError, match=r"outside of them.*backward"):
                call()


def test_coefficients_are_constants():
    a = torch_matrix(lambda a: a[:, :4])
    with pytest.raises(DtypeError, match="coefficients cannot be read as constant numbers"):
        fg.Polynomial(fg.Matrix(a), a[0].clone().requires_grad_())


def test_torch_has_the_threads_that_are_asked_for_within_the_call_only():
    with libraries.opened("torch") as library:
        import torch

        torch.set_num_threads(2)
        held, seen = fg.Matrix(library.array(dense(20, 20, np.float64)).requires_grad_()), []

        def forward(X):
            seen.append(torch.get_num_threads())
            return held @ X

        M = fg.Function((20, 20), forward, lambda Y: held.T @ Y, like=library.array(np.zeros(1)))
        assert fg.fsvd(M, 2, n_threads=1, check=False).s.requires_grad
        assert set(seen) == {1}
        assert torch.get_num_threads() == 2
