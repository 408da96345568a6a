"""Derivatives of singular values and scores, against finite differences, in PyTorch and JAX."""

from __future__ import annotations

import libraries
import numpy as np
import pytest
import scipy.sparse as sp
from operator_cases import dense, sparse
from spectra import with_spectrum

import fastgrl as fg
from fastgrl.errors import ArgumentError, DtypeError, FastgrlError, ShapeError

pytestmark = pytest.mark.frameworks
MANY = {"n_iter": 20}


@pytest.fixture
def torch():
    with libraries.opened("torch"):
        yield pytest.importorskip("torch")


@pytest.fixture
def jax():
    with libraries.opened("jax"):
        yield pytest.importorskip("jax")


def scores(a, rank=3, **how):
    U, s, Vt = fg.fsvd(a, rank, **MANY | how)
    return (U * s) @ Vt


def values(a, rank=3, **how):
    return fg.fsvd(a, rank, **MANY | how).s


# ---- PyTorch


@pytest.mark.parametrize("shape", [(7, 5), (5, 7), (6, 6)])
@pytest.mark.parametrize("method", ["krylov", "subspace"])
@pytest.mark.parametrize("wanted", [values, scores], ids=["values", "scores"])
def test_torch_differentiates_values_and_scores(torch, shape, method, wanted):
    a = torch.tensor(dense(*shape, np.float64), requires_grad=True)
    assert torch.autograd.gradcheck(lambda a: wanted(a, method=method), a)


def test_torch_differentiates_the_vectors_themselves(torch):
    a = torch.tensor(dense(7, 5, np.float64), requires_grad=True)
    assert torch.autograd.gradcheck(lambda a: tuple(fg.fsvd(a, 3, **MANY)), a)


@pytest.mark.parametrize("rank", [1, 5])
def test_torch_differentiates_any_rank(torch, rank):
    a = torch.tensor(dense(8, 5, np.float64), requires_grad=True)
    assert torch.autograd.gradcheck(lambda a: scores(a, rank), a)


def test_torch_scores_have_derivatives_where_values_are_equal(torch):
    a = torch.tensor(with_spectrum(7, 6, np.array([3.0, 2, 2, 0.5, 0.2])), requires_grad=True)
    assert torch.autograd.gradcheck(scores, a)


@pytest.mark.parametrize("layout", ["csr", "coo"])
def test_torch_differentiates_what_a_sparse_tensor_stores(torch, layout):
    a = sparse(9, 7, np.float64)
    stored = torch.tensor(a.data, requires_grad=True)
    coo = sp.coo_array(a)
    places = torch.tensor(np.stack([coo.row, coo.col]))

    def made(stored):
        if layout == "coo":
            return torch.sparse_coo_tensor(places, stored, a.shape, check_invariants=True)
        indptr, indices = torch.tensor(a.indptr), torch.tensor(a.indices)
        return torch.sparse_csr_tensor(indptr, indices, stored, a.shape, check_invariants=True)

    libraries.torch_library().sparse(a)  # the remark that this is new comes once
    assert torch.autograd.gradcheck(lambda stored: scores(made(stored), 2), stored)


def test_torch_differentiates_through_the_algebra(torch):
    a, d = (torch.tensor(dense(6, columns, np.float64), requires_grad=True) for columns in (6, 1))

    def loss(a, d):
        M = fg.Diagonal(d[:, 0]) @ fg.Polynomial(fg.Matrix(a / 3), [2.0, 1.0]) - 0.5 * fg.Ones((6, 6))
        return scores(M, 2)

    assert torch.autograd.gradcheck(loss, (a, d))


def test_torch_differentiates_what_a_function_closes_over(torch):
    a, d = torch.tensor(dense(7, 5, np.float64)), torch.ones(7, dtype=torch.float64, requires_grad=True)

    def loss(d):
        return values(
            fg.Function((7, 5), lambda X: d[:, None] * (a @ X), lambda Y: a.T @ (d[:, None] * Y), like=a)
        )

    assert torch.autograd.gradcheck(loss, d)


def test_torch_says_that_there_is_no_second_derivative(torch):
    a = torch.tensor(dense(6, 5, np.float64), requires_grad=True)
    loss = values(a).sum() + (a**3).sum()
    (first,) = torch.autograd.grad(loss, a, create_graph=True)
    with pytest.raises(FastgrlError, match="first derivatives only"):
        torch.autograd.grad(first.sum(), a)


def test_torch_tensors_without_gradients_stay_without(torch):
    a = torch.tensor(dense(6, 5, np.float64))
    assert not fg.fsvd(a, 2).U.requires_grad
    with torch.no_grad():
        assert not fg.fsvd(a.clone().requires_grad_(), 2).U.requires_grad


def test_torch_needs_no_square_of_the_nodes_for_a_gradient(torch):
    n = 60_000  # n² numbers are 29 GB
    a = sp.random_array((n, n), density=2 / n, rng=0, format="csr")
    rows = np.repeat(np.arange(n), np.diff(a.indptr))
    stored, places = torch.tensor(a.data, requires_grad=True), torch.tensor(np.stack([rows, a.indices]))
    A = torch.sparse_coo_tensor(places, stored, a.shape, check_invariants=True)
    svd = fg.fsvd(A, 2, n_iter=2)
    svd.s.sum().backward()
    U, Vt = svd.U.detach().numpy(), svd.Vt.detach().numpy()
    assert np.allclose(stored.grad.numpy(), np.einsum("ij,ji->i", U[rows], Vt[:, a.indices]), atol=1e-8)


def solution(a, y, rank):
    return fg.pinv_apply(fg.fsvd(a, rank, **MANY), y)


def orthogonal(n):
    return np.linalg.qr(dense(n, n, np.float64))[0]


MATRICES = {"tall": dense(7, 5, np.float64), "wide": dense(5, 7, np.float64), "equal values": orthogonal(6)}
every_matrix = pytest.mark.parametrize("name", MATRICES)


@every_matrix
def test_torch_differentiates_the_pseudo_inverse(torch, name):
    a, y = (
        torch.tensor(x, requires_grad=True)
        for x in (MATRICES[name], dense(len(MATRICES[name]), 2, np.float64))
    )
    weights = torch.tensor(dense(a.shape[1], 2, np.float64))
    ours = torch.autograd.grad((solution(a, y, min(a.shape)) * weights).sum(), (a, y))
    theirs = torch.autograd.grad((torch.linalg.pinv(a) @ y * weights).sum(), (a, y))
    for one, other in zip(ours, theirs, strict=True):
        assert torch.allclose(one, other, atol=1e-11)


def test_torch_differentiates_the_pseudo_inverse_of_the_leading_triplets(torch):
    a = torch.tensor(with_spectrum(7, 6, np.array([3.0, 2, 2, 0.5, 0.2])), requires_grad=True)
    y = torch.tensor(dense(7, 2, np.float64), requires_grad=True)
    assert torch.autograd.gradcheck(lambda a, y: solution(a, y, 3), (a, y))


@pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated")  # of PyTorch, by PyTorch
def test_torch_refuses_tangents(torch):
    a = torch.tensor(dense(7, 5, np.float64))
    with torch.autograd.forward_ad.dual_level():
        dual = torch.autograd.forward_ad.make_dual(a, torch.ones_like(a))
        for recorded in (True, False):
            with torch.set_grad_enabled(recorded), pytest.raises(FastgrlError, match="reverse mode only"):
                fg.fsvd(dual, 2)
        assert torch.allclose(fg.fsvd(a, 2).s, torch.linalg.svdvals(a)[:2])


def gradient_of_vectors(torch, a, *, size=1.0, loss=1.0):
    """The gradient of a function of single vectors of `size` a, as it would be for a."""
    a = (a * size).requires_grad_()
    svd = fg.fsvd(a, 3, **MANY)
    weights = torch.arange(3 * len(a), dtype=a.dtype).reshape(-1, 3).cos()
    (found,) = torch.autograd.grad((svd.U * weights).sum() * loss, a)
    return found / loss * size


@pytest.mark.parametrize(("kind", "sizes"), [("float32", (1e25, 1e-25)), ("float64", (1e160, 1e-160))])
def test_torch_gradients_do_not_depend_on_the_size_of_matrix_or_loss(torch, kind, sizes):
    a = torch.tensor(dense(9, 7, np.float64)).to(getattr(torch, kind))
    expected, close = gradient_of_vectors(torch, a), 1000 * torch.finfo(a.dtype).eps
    for how in [*({"size": size} for size in sizes), {"loss": 1e20}, {"loss": 1e-25}]:
        found = gradient_of_vectors(torch, a, **how)
        assert (found - expected).abs().max() < close * expected.abs().max(), how


@pytest.mark.parametrize("gap", [1e-3, 1e-4])
def test_torch_single_vectors_of_near_values_have_derivatives_in_single_precision(torch, gap):
    a = torch.tensor(with_spectrum(30, 20, np.r_[1, 1 - gap, 0.5, 0.3, np.linspace(0.2, 0.1, 16)]))
    found, expected = gradient_of_vectors(torch, a.float()), gradient_of_vectors(torch, a)
    eps = torch.finfo(torch.float32).eps
    assert (found - expected).abs().max() < 10 * eps / gap * expected.abs().max()


@pytest.mark.parametrize("gap", [1e-3, 1e-4, 1e-5, 1e-6, 0])
def test_torch_scores_of_near_values_have_derivatives_to_rounding(torch, gap):
    a = torch.tensor(with_spectrum(30, 20, np.r_[1, 1 - gap, 0.5, 0.3, np.linspace(0.2, 0.1, 16)]))
    weights, gradients = torch.tensor(dense(30, 20, np.float64)), []
    for held in (a.clone().requires_grad_(), a.float().requires_grad_()):
        (found,) = torch.autograd.grad((scores(held) * weights.to(held.dtype)).sum(), held)
        gradients.append(found)
    assert (gradients[0] - gradients[1]).abs().max() < 1e-5 * gradients[0].abs().max()


# ---- JAX


def check(jax, function, *at):
    from jax.test_util import check_grads

    check_grads(function, at, order=1, modes=["rev"])


@pytest.mark.parametrize("compiled", [False, True], ids=["as it is", "jit"])
@pytest.mark.parametrize("wanted", [values, scores], ids=["values", "scores"])
def test_jax_differentiates_values_and_scores(jax, wanted, compiled):
    a = jax.numpy.asarray(dense(7, 5, np.float64))
    check(jax, jax.jit(wanted) if compiled else wanted, a)


def test_jax_scores_have_derivatives_where_values_are_equal(jax):
    check(jax, scores, jax.numpy.asarray(with_spectrum(7, 6, np.array([3.0, 2, 2, 0.5, 0.2]))))


@every_matrix
@pytest.mark.parametrize("compiled", [False, True], ids=["as it is", "jit"])
def test_jax_differentiates_the_pseudo_inverse(jax, name, compiled):
    jnp, a = jax.numpy, jax.numpy.asarray(MATRICES[name])
    y, weights = jnp.asarray(dense(a.shape[0], 2, np.float64)), jnp.asarray(dense(a.shape[1], 2, np.float64))
    ours = jax.grad(lambda a, y: (solution(a, y, min(a.shape)) * weights).sum(), (0, 1))
    theirs = jax.grad(lambda a, y: (jnp.linalg.pinv(a) @ y * weights).sum(), (0, 1))
    for one, other in zip((jax.jit(ours) if compiled else ours)(a, y), theirs(a, y), strict=True):
        assert np.abs(one - other).max() < 1e-11


def test_jax_differentiates_what_a_sparse_array_stores(jax):
    from jax.experimental.sparse import BCOO

    a = BCOO.from_scipy_sparse(sp.coo_array(sparse(9, 7, np.float64)))
    check(jax, lambda stored: scores(BCOO((stored, a.indices), shape=a.shape), 2), a.data)


@pytest.mark.parametrize("compiled", [False, True], ids=["as it is", "jit"])
def test_jax_differentiates_what_a_function_closes_over(jax, compiled):
    a, d = jax.numpy.asarray(dense(7, 5, np.float64)), jax.numpy.ones(7)

    def loss(d):
        return values(
            fg.Function((7, 5), lambda X: d[:, None] * (a @ X), lambda Y: a.T @ (d[:, None] * Y), like=a)
        )

    check(jax, jax.jit(loss) if compiled else loss, d)


def test_jax_says_that_there_is_no_second_derivative(jax):
    def first(a):
        return jax.grad(lambda a: values(a).sum())(a).sum()

    with pytest.raises(FastgrlError, match="first derivatives only"):
        jax.grad(first)(jax.numpy.asarray(dense(6, 5, np.float64)))


@pytest.mark.parametrize("method", ["krylov", "subspace"])
def test_jax_compiles_with_a_static_rank_to_the_same_answer(jax, method):
    a = jax.numpy.asarray(with_spectrum(60, 40, 2.0 ** -np.arange(40.0)))
    compiled = jax.jit(fg.fsvd, static_argnames=("rank", "method", "n_iter"))
    found = compiled(a, rank=4, method=method, n_iter=20)
    assert isinstance(found, fg.SVD)
    exact = np.linalg.svd(a, compute_uv=False)[:4]
    assert np.abs(found.s - exact).max() < 1e-13
    plain = fg.fsvd(a, 4, method=method, n_iter=20)
    assert np.abs((found.U * found.s) @ found.Vt - (plain.U * plain.s) @ plain.Vt).max() < 1e-12


@pytest.mark.parametrize("a", [np.zeros((9, 7)), np.ones((9, 7)), np.eye(9), dense(2, 9, np.float64)])
def test_jax_compiled_answers_degenerate_matrices(jax, a):
    U, s, Vt = jax.jit(lambda a: fg.fsvd(a, 2, n_iter=4))(jax.numpy.asarray(a))
    assert np.abs(s - np.linalg.svd(a, compute_uv=False)[:2]).max() < 1e-12
    assert np.abs(U.T @ U - np.eye(2)).max() < 1e-12
    assert np.abs(Vt @ Vt.T - np.eye(2)).max() < 1e-12


def test_jax_maps_over_a_stack_of_matrices(jax):
    stack = np.stack([dense(12, 9, np.float64, seed) for seed in range(3)])
    found = jax.vmap(lambda a: fg.fsvd(a, 3, n_iter=10).s)(jax.numpy.asarray(stack))
    assert np.allclose(found, np.linalg.svd(stack, compute_uv=False)[:, :3])


def test_jax_refuses_to_look_at_numbers_that_are_not_there_yet(jax):
    a = jax.numpy.asarray(dense(9, 7, np.float64))
    with pytest.raises(ArgumentError, match="set n_iter"):
        jax.jit(lambda a: fg.fsvd(a, 2, tol=1e-3))(a)
    with pytest.raises(ArgumentError, match="outside of what is traced"):
        jax.jit(lambda a: fg.certificate(a, fg.fsvd(a, 2)).captured)(a)


def test_jax_can_look_at_numbers_under_grad_alone(jax):
    a, seen = jax.numpy.asarray(dense(9, 7, np.float64)), []

    def loss(a):
        svd = fg.fsvd(a, 2, tol=1e-3)
        seen.extend([fg.certificate(a, svd).next_value, repr(svd)])
        return svd.s.sum()

    jax.grad(loss)(a)
    assert seen == [fg.certificate(a, fg.fsvd(a, 2, tol=1e-3)).next_value, repr(fg.fsvd(a, 2, tol=1e-3))]


def test_jax_maps_the_pseudo_inverse_over_a_stack(jax):
    stack = jax.numpy.asarray(np.stack([dense(5, 4, np.float64, seed) for seed in range(3)]))
    found = jax.vmap(lambda a: solution(a, a, 4))(stack)
    assert np.abs(found - np.eye(4)).max() < 1e-12


@pytest.mark.parametrize("check", [True, False])
def test_jax_names_a_function_that_is_mapped_over_without_its_blocks(jax, check):
    def scaled(w, like):
        M = fg.Function((4, 4), lambda X: w[:, None] * X, lambda X: w[:, None] * X, like=like)
        return fg.fsvd(M, 2, check=check).s

    w = jax.numpy.asarray(np.arange(1.0, 9).reshape(2, 4))
    with pytest.raises(ArgumentError, match="pass that array as like="):
        jax.vmap(lambda w: scaled(w, jax.numpy.zeros(1)))(w)
    assert np.allclose(jax.vmap(lambda w: scaled(w, w))(w), [[4, 3], [8, 7]])


def test_jax_in_single_precision_says_so_in_the_certificate(jax):
    a = dense(60, 40, np.float32)
    with jax.enable_x64(False):
        held = jax.numpy.asarray(a)
        found = fg.fsvd(held, 4, n_iter=20)
        note = fg.certificate(held, found).note
    assert found.s.dtype == np.float32
    assert np.abs(found.s - np.linalg.svd(a, compute_uv=False)[:4]).max() < 1e-4
    assert "x64 is off" in note
    assert not fg.certificate(jax.numpy.asarray(a), fg.fsvd(jax.numpy.asarray(a), 4)).note


@pytest.mark.parametrize("method", ["krylov", "subspace"])
def test_jax_in_single_precision_answers_degenerate_matrices(jax, method):
    one = np.zeros((6, 5), np.float32)
    one[0, 1] = 1
    deficient = with_spectrum(40, 60, np.where(np.arange(40) < 13, 1 - np.arange(40) / 40, 0.0))
    with jax.enable_x64(False):
        for a, rank in [(one, 2), (deficient.astype(np.float32), 20)]:
            U, s, _ = fg.fsvd(jax.numpy.asarray(a), rank, method=method)
            assert np.abs(s - np.linalg.svd(a, compute_uv=False)[:rank]).max() < 1e-5
            assert np.abs(U.T @ U - np.eye(rank)).max() < 1e-5


def test_jax_sparse_arrays_of_integers_and_of_another_precision_are_widened(jax):
    from jax.experimental.sparse import BCSR

    whole = BCSR.fromdense(jax.numpy.diag(jax.numpy.array([3, 2, 1])))
    assert np.allclose(fg.fsvd(whole, 2).s, [3, 2])
    single = BCSR.fromdense(jax.numpy.eye(3, dtype=np.float32))
    assert (fg.Matrix(single) @ jax.numpy.ones((3, 2))).dtype == np.float64


def test_jax_arrays_that_are_no_matrix_of_numbers_are_refused(jax):
    from jax.experimental import sparse

    eye = jax.numpy.eye(3)
    for kind in (sparse.COO, sparse.CSR, sparse.CSC):
        with pytest.raises(DtypeError, match="use BCOO or BCSR"):
            fg.fsvd(kind.fromdense(eye), 1)
    for parts in ({"n_dense": 1}, {"n_batch": 1}):
        with pytest.raises(ShapeError, match="one matrix of numbers"):
            fg.fsvd(sparse.BCOO.fromdense(eye, **parts), 1)
    with pytest.raises(ShapeError, match="one matrix of numbers"):
        fg.Diagonal(sparse.BCOO.fromdense(eye[0]))
    with pytest.raises(DtypeError, match="key"):
        fg.fsvd(jax.random.split(jax.random.key(0), (3, 3)), 1)


def test_jax_a_stack_of_svds_says_so(jax):
    stack = jax.numpy.asarray(np.stack([np.eye(4), np.eye(4)]))
    assert "a stack of U 2×4×2" in repr(jax.vmap(lambda a: fg.fsvd(a, 2))(stack))


def test_jax_compiles_for_sparse_arrays(jax):
    from jax.experimental.sparse import BCOO

    a = sparse(60, 40, np.float64)
    found = jax.jit(lambda a: fg.fsvd(a, 3, n_iter=15).s)(BCOO.from_scipy_sparse(sp.coo_array(a)))
    assert np.allclose(found, np.linalg.svd(a.toarray(), compute_uv=False)[:3])
