"""Sparse matrices whose rows lie on workers."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from fastgrl.checks import Array
from fastgrl.distributed import tasks, transposing
from fastgrl.distributed.clusters import Cluster
from fastgrl.distributed.engines import Pending, handed_over
from fastgrl.distributed.plans import RowPlan
from fastgrl.distributed.talls import Tall
from fastgrl.kernels import RowsElsewhere
from fastgrl.seams import register_seam


@dataclass(frozen=True, eq=False)
class DistributedRows(RowsElsewhere):
    """Blocks of the rows of a sparse matrix, each a future of a `CSR` with all columns.

    A product is one task for each block of rows, which needs all rows of the block that is multiplied: every
    worker holds a whole copy of that, so few columns at a time are right.
    """

    cluster: Cluster
    plan: RowPlan
    parts: list[Any]
    shape: tuple[int, int]
    dtype: np.dtype[Any] | None
    symmetric: bool = False
    _known: dict[str, DistributedRows] = field(default_factory=dict)

    @property
    def futures(self) -> list[Any]:
        """The blocks, handed over if they were pending."""
        return handed_over(self.cluster.engine, self.parts)

    @property
    def ndim(self) -> int:
        """2."""
        return len(self.shape)

    @property
    def transposed(self) -> DistributedRows:
        if self.symmetric:
            return self
        if "transposed" not in self._known:
            plan = self.cluster.plan(self.shape[1])
            parts = transposing.transposed_parts(self.cluster, self.futures, self.plan, plan)
            known = {"transposed": self}
            shape = self.shape[::-1]
            self._known["transposed"] = DistributedRows(
                self.cluster, plan, parts, shape, self.dtype, False, known
            )
        return self._known["transposed"]

    def scaled(self, kind: np.dtype[Any], *, left: Any = None, right: Any = None) -> DistributedRows:
        whole = None if right is None else list(right.futures)
        parts: list[Any] = [
            Pending(tasks.scaled_values, (rows, kind, _part(left, i), whole))
            for i, rows in enumerate(self.futures)
        ]
        even = self.symmetric and left is None and right is None
        return DistributedRows(self.cluster, self.plan, parts, self.shape, kind, even)

    def multiply(self, X: Tall, *, row_scale: Any = None, shift: Any = None) -> Tall:
        return self._product(X, None, self._kind(X, row_scale), row_scale, shift)

    def polynomial(
        self,
        X: Tall,
        coefficients: Array,
        *,
        row_scale: Any = None,
        walked: bool = True,
        extra: Any = None,
        post: Any = None,
        shift: Any = None,
    ) -> Tall:
        """As `polynomials.polynomial`: one task for every power and block of rows."""
        kind = self._kind(X, row_scale)
        *lower, highest = np.asarray(coefficients, np.float64).tolist()
        B = self._product(X, None, kind, row_scale, None) if walked else X.astype(kind)
        _ = B.futures
        added = [None if part is None else part.astype(kind) for part in (extra, post, shift)]
        if not lower:
            return B.of(
                [
                    Pending(tasks.finished_rows, (part, highest, _of_rows(added, i)))
                    for i, part in enumerate(B.parts)
                ],
                B.columns,
            )
        Z, factor = B, highest
        scale = None if row_scale is None else row_scale.astype(kind)
        for power, coefficient in reversed(list(enumerate(lower))):
            last = added if power == 0 else None
            Z, factor = self._step(Z, factor, scale, B, coefficient, last), None
        return Z

    def _kind(self, X: Tall, scale: Any) -> np.dtype[Any]:
        parts = (self.dtype, None if scale is None else scale.dtype)
        return np.result_type(X.dtype, *(part for part in parts if part is not None))

    def _product(self, X: Tall, factor: float | None, kind: Any, scale: Any, shift: Any) -> Tall:
        scale, shift = (None if part is None else part.astype(kind) for part in (scale, shift))
        whole = X.astype(kind).futures
        calls: list[Any] = [
            Pending(tasks.product_rows, (rows, list(whole), factor, _part(scale, i), shift))
            for i, rows in enumerate(self.futures)
        ]
        return self._made(calls, X.columns, kind)

    def _step(
        self, Z: Tall, factor: Any, scale: Any, B: Tall, coefficient: float, added: Sequence[Any] | None
    ) -> Tall:
        whole = Z.futures
        calls: list[Any] = [
            Pending(
                tasks.step_rows,
                (
                    rows,
                    list(whole),
                    factor,
                    _part(scale, i),
                    B.parts[i],
                    coefficient,
                    None if added is None else _of_rows(added, i),
                ),
            )
            for i, rows in enumerate(self.futures)
        ]
        return self._made(calls, Z.columns, Z.dtype)

    def _made(self, calls: list[Any], columns: int | None, kind: Any) -> Tall:
        made = Tall(self.cluster, self.plan, calls, columns, np.dtype(kind))
        _ = made.futures
        return made

    @functools.cached_property
    def num_stored(self) -> int:
        """Stored entries."""
        return sum(self.cluster.gather([Pending(_stored, (rows,)) for rows in self.futures]))


def _stored(rows: Any) -> int:
    return int(rows.num_stored)


def _part(value: Any, number: int) -> Any:
    """The part of some rows, of a vector with a number for each row; what has none is for all rows."""
    return value.futures[number] if isinstance(value, Tall) else value


def _of_rows(added: Sequence[Any], number: int) -> list[Any]:
    return [_part(value, number) for value in added]


register_seam(DistributedRows, lambda rows: rows.cluster.seam)
