"""PyTorch: tensors on any device, dense or sparse, in and out of `fsvd`, with derivatives."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch

from fastgrl.frameworks.blocks import Library, in_chunks, seam_from
from fastgrl.frameworks.derivatives import MOST_STEPS, Arithmetic, Factorised, product_cotangents
from fastgrl.fsvd import SVD
from fastgrl.kernels import CSR
from fastgrl.linalg import CHUNK_ROWS
from fastgrl.operators import Operator
from fastgrl.seams import Host, Seam, register_seam

_DTYPES = {
    np.dtype(name): getattr(torch, name)
    for name in ("float32", "float64", "bool", "uint8", "int8", "int16", "int32", "int64")
}
_KINDS = {dtype: kind for kind, dtype in _DTYPES.items()}


def seam_for(tensor: torch.Tensor) -> Seam:
    """The seam of tensors on the device of this one."""
    return _seam_on(tensor.device)


@functools.cache
def _seam_on(device: torch.device) -> Seam:
    def put(array: Host, dtype: Any) -> torch.Tensor:
        return torch.as_tensor(np.ascontiguousarray(array), dtype=_DTYPES[np.dtype(dtype)], device=device)

    def put_sparse(matrix: CSR, dtype: Any) -> torch.Tensor:
        values = np.ones(len(matrix.indices)) if matrix.values is None else matrix.values
        parts = (torch.as_tensor(np.asarray(part, np.int64)) for part in (matrix.indptr, matrix.indices))
        with _quiet():
            sparse = torch.sparse_csr_tensor(*parts, put(values, dtype).cpu(), matrix.shape)
        return sparse.to(device)

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
            take_rows=lambda Y, rows: Y[torch.as_tensor(rows, device=device)],
            spread_rows=_spread_rows,
            broadcast=lambda row, rows: row.expand(rows, -1),
            cast=lambda array, dtype: array.to(_DTYPES[np.dtype(dtype)]),
            put=put,
            put_sparse=put_sparse,
            host=lambda tensor: tensor.detach().cpu().numpy(),
            kind=lambda tensor: _KINDS.get(tensor.dtype),
            is_own=lambda value: isinstance(value, torch.Tensor),
            is_dense=lambda value: isinstance(value, torch.Tensor) and value.layout == torch.strided,
            is_finite=lambda tensor: bool(torch.isfinite(_numbers(tensor)).all()),
            constant=lambda block: block,
            detached=torch.no_grad,
            attached=_attached,
        )
    )


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
    return (a if a.dtype == kind else a.to(kind)) @ (X if X.dtype == kind else X.to(kind))


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


def _numbers(tensor: torch.Tensor) -> torch.Tensor:
    """What a tensor stores."""
    if tensor.layout == torch.strided:
        return tensor
    return tensor.coalesce().values() if tensor.layout == torch.sparse_coo else tensor.values()


def _transposed(a: torch.Tensor) -> torch.Tensor:
    """A view of a dense tensor; a sparse one by rows, which is what products are fast with."""
    if a.layout == torch.strided:
        return a.T
    with _quiet():
        return a.t().to_sparse_csr()


@contextmanager
def _quiet() -> Iterator[None]:
    """Without the remark that sparse tensors are in beta: nobody asked for one here."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Sparse CSR tensor support is in beta", UserWarning)
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
    diagonal=torch.diag,
    repeat=_repeat,
)


class _Factors(torch.autograd.Function):  # type: ignore[misc]
    """U, s and V as functions of M V and M'U."""

    @staticmethod
    def forward(ctx: Any, *inputs: Any) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        _, _, operator, U, s, V = inputs
        ctx.operator = operator
        ctx.save_for_backward(U, s, V)
        return U.clone(), s.clone(), V.clone()

    @staticmethod
    @torch.autograd.function.once_differentiable  # type: ignore[untyped-decorator]
    def backward(ctx: Any, *cotangents: torch.Tensor) -> tuple[Any, ...]:
        U, s, V = ctx.saved_tensors
        M, transpose = ctx.operator, ctx.operator.T
        at = Factorised(U, s, V, M.__matmul__, transpose.__matmul__, torch.finfo(s.dtype).eps)
        return (*product_cotangents(ARITHMETIC, at, *cotangents), None, None, None, None)


def _attached(operator: Operator, svd: SVD) -> SVD:
    """The SVD as a function of whatever the operator's products depend on."""
    if not torch.is_grad_enabled() or not (operator @ svd.Vt[:1].T).requires_grad:
        return svd
    U, s, V = svd.U, svd.s, svd.Vt.T
    U, s, V = _Factors.apply(operator @ V, operator.T @ U, operator, U, s, V)
    return SVD(U, s, V.T, svd.rounds)


register_seam(torch.Tensor, seam_for)
