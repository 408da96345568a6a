"""PyTorch: tensors on any device, dense or sparse, in and out of `fsvd`, with derivatives."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, NoReturn

import numpy as np

from fastgrl.errors import ArgumentError, DtypeError, FastgrlError, MissingExtraError, ShapeError
from fastgrl.frameworks.blocks import Library, in_chunks, seam_from
from fastgrl.frameworks.derivatives import (
    MOST_STEPS,
    Arithmetic,
    Factorised,
    product_cotangents,
    refuse_forward_mode,
    refuse_second_derivative,
)
from fastgrl.fsvd import SVD
from fastgrl.kernels import CSR
from fastgrl.linalg import CHUNK_ROWS
from fastgrl.operators import Operator
from fastgrl.parallel import requested_threads
from fastgrl.seams import Host, Seam, register_seam

try:
    import torch
    from torch._subclasses import FakeTensor
    from torch.autograd import forward_ad
except ImportError as missing:
    raise MissingExtraError("tensors of PyTorch need it: pip install 'fastgrl[torch]'") from missing

_DTYPES = {
    np.dtype(name): getattr(torch, name)
    for name in ("float32", "float64", "bool", "uint8", "int8", "int16", "int32", "int64")
}
_KINDS = {dtype: kind for kind, dtype in _DTYPES.items()}
_BLOCKED = (torch.sparse_bsr, torch.sparse_bsc)
_LAYOUTS = (torch.strided, torch.sparse_csr, torch.sparse_coo, torch.sparse_csc, *_BLOCKED)


def seam_for(tensor: torch.Tensor) -> Seam:
    """The seam of tensors on the device of this one."""
    if tensor.is_meta or tensor.is_nested or tensor.layout not in _LAYOUTS or isinstance(tensor, FakeTensor):
        what = f"{type(tensor).__name__} of layout {tensor.layout} on {tensor.device}"
        raise DtypeError(f"a {what} is no matrix of numbers: use a dense or a sparse one")
    if torch._C._functorch.is_functorch_wrapped_tensor(tensor):
        _refuse_transforms()
    return _seam_on(tensor.device)


def _refuse_transforms() -> NoReturn:
    raise FastgrlError(
        "the transforms of torch.func (grad, vmap, jvp, …) hide the numbers of tensors: call fastgrl outside "
        "of them, and differentiate by backward() or torch.autograd.grad"
    )


@functools.cache
def _seam_on(device: torch.device) -> Seam:
    def put(array: Host, dtype: Any) -> torch.Tensor:
        # A copy: tensors do not walk backwards through memory as arrays may, and share none here.
        own = np.array(array, order="C", copy=True)
        return torch.as_tensor(own, dtype=_DTYPES[np.dtype(dtype)], device=device)

    def put_sparse(matrix: CSR, dtype: Any) -> torch.Tensor:
        values = np.ones(len(matrix.indices)) if matrix.values is None else matrix.values
        # 32 bits where they do: half of what a product reads.
        whole = np.int32 if max(*matrix.shape, len(values)) < 2**31 else np.int64
        indptr, indices = (put(part, whole) for part in (matrix.indptr, matrix.indices))
        return _csr(indptr, indices, put(values, dtype), matrix.shape)

    return seam_from(
        Library(
            name="PyTorch" if device.type == "cpu" else f"PyTorch on {device}",
            normal=functools.partial(_normal, device),
            matmul=_matmul,
            gram=lambda X, Y: X.double().T @ Y.double(),
            rough_gram=_rough_gram,
            column_sums=lambda X: X.sum(0, dtype=torch.float64),
            extremes=_extremes,
            concatenate=lambda blocks, axis: torch.cat(list(blocks), dim=axis),
            transposed=_transposed,
            stored=_by_rows,
            take_rows=lambda Y, rows: Y[torch.as_tensor(rows, device=device)],
            spread_rows=_spread_rows,
            broadcast=lambda row, rows: row.expand(rows, -1),
            cast=lambda array, dtype: array.to(_DTYPES[np.dtype(dtype)]),
            put=put,
            put_sparse=put_sparse,
            host=lambda tensor: tensor.detach().cpu().numpy(),
            kind=lambda tensor: _KINDS.get(tensor.dtype),
            is_dense=_is_dense,
            is_finite=lambda tensor: bool(torch.isfinite(_numbers(tensor)).all()),
            constant=lambda block: block.detach(),
            working=functools.partial(_own_precision, device),
            detached=functools.partial(_detached, device),
            attached=_attached,
        )
    )


def _own_precision(device: torch.device) -> AbstractContextManager[Any]:
    """Without autocast, which would multiply in half of it."""
    mixed = torch.is_autocast_enabled(device.type)
    return torch.autocast(device.type, enabled=False) if mixed else nullcontext()


@contextmanager
def _detached(device: torch.device) -> Iterator[None]:
    """Nothing in it is differentiated."""
    if torch._C._functorch.maybe_current_level() is not None:
        _refuse_transforms()
    fixed = torch.no_grad(), forward_ad._set_fwd_grad_enabled(False)
    with _requested_threads(), _own_precision(device), fixed[0], fixed[1]:
        yield


@contextmanager
def _requested_threads() -> Iterator[None]:
    """PyTorch has the threads that `n_threads=` asks for."""
    before, wanted = torch.get_num_threads(), requested_threads()
    if wanted is not None:
        torch.set_num_threads(wanted)
    try:
        yield
    finally:
        if wanted is not None:
            torch.set_num_threads(before)


def _normal(
    device: torch.device, rows: int, columns: int, dtype: Any, seed: int, stream: int
) -> torch.Tensor:
    generator = torch.Generator(device)
    mixed = np.random.SeedSequence([seed, stream]).generate_state(1, np.uint64)[0]
    generator.manual_seed(int(mixed) >> 1)  # it takes 63 bits
    kind = _DTYPES[np.dtype(dtype)]
    return torch.randn((rows, columns), generator=generator, dtype=kind, device=device)


def _matmul(a: torch.Tensor, X: torch.Tensor) -> torch.Tensor:
    kind = torch.promote_types(a.dtype, X.dtype)
    a, X = (a if a.dtype == kind else a.to(kind)), (X if X.dtype == kind else X.to(kind))
    if a.layout == torch.sparse_csr and a.requires_grad and torch.is_grad_enabled():
        return _Product.apply(a, X)
    return a @ X


class _Product(torch.autograd.Function):  # type: ignore[misc]
    """A X as a function of a sparse A and of X.

    PyTorch's own rule forms all n² entries of G X' to keep those that A stores; hence this and the next two,
    whose derivatives are sparse as well. What remains is that of `torch.sparse_csr_tensor`, which the caller
    made: where gradients of what is stored are wanted for many nodes, coordinates are the layout.
    """

    @staticmethod
    def forward(ctx: Any, A: torch.Tensor, X: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(A, X)
        return A @ X

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, G: torch.Tensor) -> tuple[Any, ...]:
        A, X = ctx.saved_tensors
        stored = through = None
        if ctx.needs_input_grad[0]:
            pattern = _csr(A.crow_indices(), A.col_indices(), torch.zeros_like(A.values()), A.shape)
            stored = torch.sparse.sampled_addmm(pattern, G.contiguous(), X.contiguous().t(), beta=0.0)
        if ctx.needs_input_grad[1]:
            through = _Transposed.of(A)[0] @ G
        return stored, through


class _Compressed(torch.autograd.Function):  # type: ignore[misc]
    """A by rows, as a function of A by coordinates."""

    @staticmethod
    def forward(ctx: Any, a: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(a.indices())
        rows, columns = a.indices()
        ends = torch.bincount(rows, minlength=a.shape[0]).cumsum(0)
        return _csr(torch.nn.functional.pad(ends, (1, 0)), columns, a.values(), a.shape)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, G: torch.Tensor) -> torch.Tensor:
        (where,) = ctx.saved_tensors
        return torch.sparse_coo_tensor(where, G.values(), G.shape, is_coalesced=True, check_invariants=False)


class _Transposed(torch.autograd.Function):  # type: ignore[misc]
    """A' by rows, as a function of A."""

    @staticmethod
    def of(a: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """A', and where its numbers stand in A."""
        columns, kind = a.col_indices(), a.col_indices().dtype
        order = torch.argsort(columns, stable=True)
        rows = torch.repeat_interleave(torch.arange(a.shape[0], device=a.device), a.crow_indices().diff())
        ends = torch.bincount(columns, minlength=a.shape[1]).cumsum(0)
        starts = torch.nn.functional.pad(ends, (1, 0)).to(kind)
        shape = (a.shape[1], a.shape[0])
        return _csr(starts, rows[order].to(kind), a.values()[order], shape), order

    @staticmethod
    def forward(ctx: Any, a: torch.Tensor) -> torch.Tensor:
        transpose, order = _Transposed.of(a)
        ctx.save_for_backward(a.crow_indices(), a.col_indices(), order)
        return transpose

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, G: torch.Tensor) -> torch.Tensor:
        indptr, indices, order = ctx.saved_tensors
        values = torch.empty_like(G.values())
        values[order] = G.values()
        return _csr(indptr, indices, values, (G.shape[1], G.shape[0]))


def _rough_gram(X: torch.Tensor, Y: torch.Tensor) -> torch.Tensor:
    """X'Y, chunks of rows in the tensors' own precision and their sum in double precision."""
    total = X.new_zeros((X.shape[1], Y.shape[1]), dtype=torch.float64)
    for begin, end in in_chunks(len(Y)):
        height = min(CHUNK_ROWS, end - begin)
        x, y = (part[begin:end].reshape(-1, height, part.shape[1]) for part in (X, Y))
        total += torch.bmm(x.transpose(1, 2), y).sum(0, dtype=torch.float64)
    return total


def _extremes(Y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    if not len(Y):
        none = Y.new_zeros(Y.shape[1])
        return none, none
    return Y.amax(0), Y.amin(0)


def _is_dense(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.layout == torch.strided and not value.is_meta


def _numbers(tensor: torch.Tensor) -> torch.Tensor:
    """What a tensor stores."""
    if tensor.layout == torch.strided:
        return tensor
    return tensor.coalesce().values() if tensor.layout == torch.sparse_coo else tensor.values()


def _transposed(a: torch.Tensor) -> torch.Tensor:
    """A view of a dense tensor; a sparse one by rows again, which is what products are fast with."""
    return a.T if a.layout == torch.strided else _Transposed.apply(a)


def _by_rows(a: torch.Tensor) -> torch.Tensor:
    """A sparse tensor by rows, whatever its layout: products are many times faster so."""
    if a.layout == torch.strided:
        return a
    if (a.sparse_dim(), a.dense_dim()) != (2, 0):
        raise ShapeError(
            f"a sparse tensor must be a matrix of numbers, got {a.sparse_dim()} sparse and {a.dense_dim()} "
            f"dense dimensions of shape {tuple(a.shape)}: use to_dense()"
        )
    if a.layout in _BLOCKED:
        a = a.to_sparse_coo()
    if a.layout == torch.sparse_coo:
        where, shape = a._indices(), torch.tensor(a.shape, device=a.device)[:, None]
        if not bool(((where >= 0) & (where < shape)).all()):
            raise _outside(a)
        return _Compressed.apply(a.coalesce())
    with _quiet():
        return _with_places_in_range(a.to_sparse_csr())


def _with_places_in_range(a: torch.Tensor) -> torch.Tensor:
    """The tensor, if no product with it reads beyond its block; PyTorch does not look unless asked to."""
    indptr, indices = a.crow_indices(), a.col_indices()
    count = len(indices)
    sound = len(indptr) == a.shape[0] + 1 and int(indptr[0]) == 0 and int(indptr[-1]) == count
    sound = sound and bool((indptr.diff() >= 0).all()) and len(a.values()) == count
    if not sound or (count and not 0 <= int(indices.min()) <= int(indices.max()) < a.shape[1]):
        raise _outside(a)
    return a


def _outside(a: torch.Tensor) -> ArgumentError:
    return ArgumentError(f"the sparse tensor of shape {tuple(a.shape)} has indices outside of it")


def _csr(indptr: Any, indices: Any, values: Any, shape: Any) -> torch.Tensor:
    with _quiet():
        return torch.sparse_csr_tensor(
            indptr, indices, values, tuple(shape), device=values.device, check_invariants=False
        )


@contextmanager
def _quiet() -> Iterator[None]:
    """Without PyTorch's remarks on sparse tensors: nobody asked for one here."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Sparse (CSR tensor support|invariant checks)", UserWarning)
        yield


def _spread_rows(Y: torch.Tensor, rows: Any, count: int) -> torch.Tensor:
    where = torch.as_tensor(rows, device=Y.device)
    return Y.new_zeros((count, Y.shape[1])).index_add(0, where, Y)


def _repeat(unfinished: Any, step: Any, state: Any) -> Any:
    for _ in range(MOST_STEPS):
        if not bool(unfinished(state)):
            break
        state = step(state)
    return state


ARITHMETIC = Arithmetic(
    matmul=torch.matmul,
    transposed=lambda block: block.T,
    where=torch.where,
    sums=lambda block: block.sum(0),
    largest=lambda values: values.max() if values.numel() else values.sum(),
    peaks=lambda block: block.abs().amax(0),
    diagonal=torch.diag,
    repeat=_repeat,
)


class _Factors(torch.autograd.Function):  # type: ignore[misc]
    """U, s and V as functions of M V and M'U."""

    @staticmethod
    def forward(ctx: Any, *inputs: Any) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        Z, Zt, operator, U, s, V = inputs
        ctx.operator = operator
        ctx.save_for_backward(Z, Zt, U, s, V)
        return U.clone(), s.clone(), V.clone()

    @staticmethod
    def backward(ctx: Any, *cotangents: torch.Tensor) -> tuple[Any, ...]:
        Z, Zt, U, s, V = ctx.saved_tensors
        M, transpose = ctx.operator, ctx.operator.T
        at = Factorised(U, s, V, M.__matmul__, transpose.__matmul__, torch.finfo(s.dtype).eps)
        with torch.no_grad(), _own_precision(s.device):
            bars = product_cotangents(ARITHMETIC, at, *cotangents)
        once = (_Once.apply(bar, of) for bar, of in zip(bars, (Z, Zt), strict=True))
        return (*once, None, None, None, None)


class _Once(torch.autograd.Function):  # type: ignore[misc]
    """A derivative, of which there is none: `of` is what it would depend on."""

    @staticmethod
    def forward(ctx: Any, derivative: torch.Tensor, of: torch.Tensor) -> torch.Tensor:
        del ctx, of
        return derivative.clone()

    @staticmethod
    def backward(*_: Any) -> tuple[Any, ...]:
        refuse_second_derivative()


def _attached(operator: Operator, svd: SVD) -> SVD:
    """The SVD as a function of whatever the operator's products depend on."""
    forward_mode = forward_ad._current_level >= 0
    if not forward_mode and not torch.is_grad_enabled():
        return svd
    with _requested_threads():
        return _as_function(operator, svd, forward_mode)


def _as_function(operator: Operator, svd: SVD, forward_mode: bool) -> SVD:
    product = operator @ svd.Vt[:1].T
    if forward_mode and forward_ad.unpack_dual(product).tangent is not None:
        refuse_forward_mode()
    if not product.requires_grad:
        return svd
    U, s, V = svd.U, svd.s, svd.Vt.T
    U, s, V = _Factors.apply(operator @ V, operator.T @ U, operator, U, s, V)
    return SVD(U, s, V.T, svd.rounds)


register_seam(torch.Tensor, seam_for)
