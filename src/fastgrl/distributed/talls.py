"""Tall blocks whose rows lie on workers, with the arithmetic that operators do on blocks."""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable
from dataclasses import dataclass
from numbers import Real
from typing import Any

import numpy as np

from fastgrl.checks import Array, size
from fastgrl.distributed import tasks
from fastgrl.distributed.clusters import Cluster
from fastgrl.distributed.engines import Pending, handed_over
from fastgrl.distributed.plans import RowPlan
from fastgrl.errors import ArgumentError, ShapeError
from fastgrl.linalg import CHUNK_ROWS
from fastgrl.seams import Host, register_seam


@dataclass(frozen=True, eq=False, repr=False)
class Tall:
    """A block of `columns` columns (None: a vector) in row blocks, each a future or a call that is pending.

    Element-wise arithmetic makes pending calls and no tasks: they run where they are used, inside the next
    task. Who reads a block more than once asks for its `futures`, which hands over what is pending.
    """

    cluster: Cluster
    plan: RowPlan
    parts: list[Any]
    columns: int | None
    dtype: np.dtype[Any]

    __array_ufunc__ = None  # ndarray * block: NumPy leaves it to us

    @property
    def shape(self) -> tuple[int, ...]:
        """Rows, and columns if it is no vector."""
        return (self.plan.rows,) if self.columns is None else (self.plan.rows, self.columns)

    @property
    def ndim(self) -> int:
        """1 or 2."""
        return len(self.shape)

    def __len__(self) -> int:
        return self.plan.rows

    def __repr__(self) -> str:
        where = f"in {len(self.parts)} blocks on {self.cluster.engine.name}"
        return f"<Tall: {size(self.shape)} {self.dtype} {where}>"

    @property
    def futures(self) -> list[Any]:
        """The blocks of rows, handed over if they were pending."""
        return handed_over(self.cluster.engine, self.parts)

    @functools.cached_property
    def finite(self) -> bool:
        """Whether no number is NaN or infinite, looked at once."""
        return all(self.cluster.gather([Pending(tasks.is_finite, (part,)) for part in self.futures]))

    def of(self, parts: list[Any], columns: int | None, dtype: Any = None) -> Tall:
        """Another block with the same rows."""
        return Tall(self.cluster, self.plan, parts, columns, np.dtype(dtype or self.dtype))

    def each(self, function: Callable[..., Any], *arguments: Any) -> list[Pending]:
        """A call for every block: blocks among the arguments give the part of the same rows."""
        self._check(arguments)
        return [
            Pending(function, (part, *(one.parts[i] if isinstance(one, Tall) else one for one in arguments)))
            for i, part in enumerate(self.parts)
        ]

    def _check(self, arguments: tuple[Any, ...]) -> None:
        for one in arguments:
            if isinstance(one, Tall) and one.plan != self.plan:
                raise ShapeError(f"{self!r} and {one!r} do not have the same rows")

    def map(self, function: Callable[..., Array], *others: Tall, columns: int | None, dtype: Any) -> Tall:
        """Rows that a function of the rows of each chunk gives, of this block and others."""
        blocks = (self, *others)
        parts = [
            Pending(tasks.mapped_rows, (function, [block.parts[i] for block in blocks]))
            for i in range(len(self.parts))
        ]
        return self.of(parts, columns, dtype)

    def sum(self, function: Callable[..., Host], *others: Tall) -> Host:
        """The sum of a function of the rows of each chunk."""
        blocks, total = (self, *others), self.plan.chunks
        calls = [
            Pending(tasks.summed_pieces, (function, [block.parts[i] for block in blocks], first, total))
            for i, first in enumerate(self.first_chunks)
        ]
        return self.cluster.total(calls, self.plan)

    @property
    def first_chunks(self) -> list[int]:
        """The number of the first chunk of every block."""
        return [begin // CHUNK_ROWS for begin, _ in self.plan.bounds]

    def _with(self, function: Callable[..., Any], other: Any, *, swapped: bool = False) -> Any:
        if not isinstance(other, Tall | np.ndarray | Real):
            return NotImplemented
        here = np.empty((0,) * self.ndim, self.dtype)
        there: Any = other if isinstance(other, Real) else np.empty(0, other.dtype)
        kind = np.result_type(here, there)
        columns = self.columns
        if isinstance(other, Tall) and other.columns is not None and self.columns is not None:
            columns = max(self.columns, other.columns)
        calls = self.each(function, other)
        if swapped:
            calls = [Pending(call.function, call.arguments[::-1]) for call in calls]
        return self.of(calls, columns, kind)

    def __add__(self, other: Any) -> Any:
        return self._with(operator.add, other)

    def __sub__(self, other: Any) -> Any:
        return self._with(operator.sub, other)

    def __mul__(self, other: Any) -> Any:
        return self._with(operator.mul, other)

    def __truediv__(self, other: Any) -> Any:
        return self._with(operator.truediv, other)

    def __radd__(self, other: Any) -> Any:
        return self._with(operator.add, other, swapped=True)

    def __rmul__(self, other: Any) -> Any:
        return self._with(operator.mul, other, swapped=True)

    def __neg__(self) -> Tall:
        return self.of(self.each(operator.neg), self.columns)

    def __getitem__(self, key: Any) -> Tall:
        if isinstance(key, slice):
            begin, end, stride = key.indices(self.plan.rows)
            if stride != 1:
                raise ArgumentError("rows of a distributed block are taken one after another")
            whole = (begin, end) == (0, self.plan.rows)
            return self if whole else self.cluster.rows_of([(self, begin, end)])
        rows, columns = key
        if rows != slice(None):
            return self[rows][:, columns]
        if columns is None:
            return self.of(self.each(tasks.as_column), 1)
        assert self.columns is not None
        first, last, _ = columns.indices(self.columns)
        if (first, last) == (0, self.columns):
            return self
        return self.of(self.each(tasks.some_columns, first, last), max(0, last - first))

    def astype(self, dtype: Any, copy: bool = False) -> Tall:
        """The same numbers in another type."""
        del copy
        return self if self.dtype == dtype else self.of(self.each(tasks.typed, dtype), self.columns, dtype)

    @property
    def T(self) -> Wide:
        """The transpose."""
        return Wide(self)


@dataclass(frozen=True, eq=False, repr=False)
class Wide:
    """The transpose of a tall block: `Vt` of a factorisation."""

    tall: Tall

    @property
    def shape(self) -> tuple[int, int]:
        """Columns of the tall block, and its rows."""
        rows, columns = self.tall.shape
        return columns, rows

    @property
    def dtype(self) -> np.dtype[Any]:
        """The type of the numbers."""
        return self.tall.dtype

    @property
    def ndim(self) -> int:
        """2."""
        return 2

    @property
    def T(self) -> Tall:
        """The tall block."""
        return self.tall

    def __getitem__(self, rows: slice) -> Wide:
        return Wide(self.tall[:, rows])

    def __repr__(self) -> str:
        return f"<Wide: {size(self.shape)} {self.dtype} on {self.tall.cluster.engine.name}>"


register_seam(Tall, lambda block: block.cluster.seam)
register_seam(Wide, lambda block: block.tall.cluster.seam)
