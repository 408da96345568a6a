"""Filters along a graph with a loop at every node, a few columns at a time in a compiled loop.

A panel is as many columns as a cache line holds, or four lines where all of it fits into the caches. Its
rows are gathered without waste, all steps of a filter are done before the next panel is begun, and beside the
graph's own pattern three panels are all it takes.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import numpy as np

from fastgrl.checks import Array
from fastgrl.fused import Fused
from fastgrl.kernels import CSR, compiled_module, kernel_info, mapped_parts, multiply
from fastgrl.leaves import Diagonal, Identity, Matrix
from fastgrl.operators import Operator, settle
from fastgrl.parallel import parallel_map, thread_count
from fastgrl.spilling import is_mapped

LINE_BYTES = 64
PANELS = 3
# Up to how many nodes a panel is four lines wide.
_FEW_NODES = 1 << 16
# With fewer multiply-adds in a step than this, threads have panels of their own instead of rows.
_WORTH_A_THREAD = 4_000_000
_PIECES_PER_THREAD = 4


@dataclass(frozen=True, eq=False, repr=False)
class Looped(Fused):
    """diag(left) (A + I) diag(right) for a symmetric A, which may be a pattern alone; `right` None is I.

    >>> A = fg.Graph.from_codes([0], [1]).csr
    >>> Looped(A, np.array([0.5, 0.5]), None, np.dtype("float64"), "T") @ np.eye(2)
    array([[0.5, 0.5], [0.5, 0.5]])
    """

    a: CSR
    left: Array
    right: Array | None
    dtype: Any
    name: str

    def __post_init__(self) -> None:
        settle(self, shape=self.a.shape, formula=self.name)

    def _multiply(self, X: Any) -> Any:
        out = np.empty(X.shape, np.result_type(self.dtype, X.dtype))
        if compiled_module() is None:
            return _step(self, X).astype(out.dtype)
        _by_panels(_Filter(self, 0.0, self.left, 1, None), X, out)
        return out

    @property
    def T(self) -> Operator:
        ones = np.ones(self.shape[0]) if self.right is None else self.right
        return Looped(self.a, ones, self.left, self.dtype, self.name + "'")

    @property
    def spelt_out(self) -> Operator:
        """diag(left) (A + I) diag(right)."""
        looped = Matrix(self.a, name="A") + Identity(self.shape[0])
        left: Operator = Diagonal(self.left.astype(self.dtype)) @ looped
        return left if self.right is None else left @ Diagonal(self.right.astype(self.dtype))


def smooth_columns(S: Looped, B: Array, *, restart: float, steps: int, out: Array) -> Array:
    """`steps` times H ← (1−a) S H + aB from H = B on, into `out`, which may be B itself.

    With S = diag(l)(A+I)diag(r) and G = diag(r)H a step is G ← (1−a) diag(lr)(A+I)G + a diag(r)B: one pass
    over the pattern, whatever the scales are.

    >>> S = Looped(fg.Graph.from_codes([0], [1]).csr, np.full(2, 0.5), None, np.dtype("float64"), "T")
    >>> smooth_columns(S, np.eye(2), restart=0.5, steps=1, out=np.empty((2, 2)))
    array([[0.75, 0.25], [0.25, 0.75]])
    """
    if compiled_module() is None:
        H = B
        for _ in range(steps):
            H = (1 - restart) * _step(S, H) + restart * B
        out[...] = H
        return out
    rate = (1 - restart) * S.left
    rate = rate if S.right is None else rate * S.right
    _by_panels(_Filter(S, restart, rate, steps, S.right), B, out)
    return out


def _step(S: Looped, X: Array) -> Array:
    """The product as SciPy does it."""
    scaled = X if S.right is None else X * S.right.astype(X.dtype)[:, None]
    Y = multiply(S.a, scaled).astype(X.dtype, copy=False)
    return np.asarray((Y + scaled) * S.left.astype(X.dtype)[:, None])


@dataclass(frozen=True, eq=False)
class _Filter:
    """What is done to each panel: scaled by `S.right`, `steps` steps, divided by `undo`."""

    S: Looped
    keep: float
    rate: Array
    steps: int
    undo: Array | None


def _by_panels(how: _Filter, B: Array, out: Array) -> None:
    """Few columns at a time, shared out by rows; those of a small graph are a thread's each."""
    kind, columns = out.dtype, B.shape[1]
    B = B if B.dtype == kind and B.strides[1] == B.itemsize else np.ascontiguousarray(B, kind)
    if not len(B) or not columns or not how.steps:
        out[...] = B
        return
    run, width = _Run.of(how, kind), panel_columns(len(B), kind)
    panels = [(begin, min(begin + width, columns)) for begin in range(0, columns, width)]
    small = run.matrix.num_stored * width < _WORTH_A_THREAD and not is_mapped(run.matrix.indices)
    if small:
        work = run.matrix.num_stored * width * how.steps * len(panels)
        each = parallel_map if work > _WORTH_A_THREAD else _one_by_one
        each(lambda panel: run.panel(B[:, slice(*panel)], out[:, slice(*panel)], small), panels)
    else:
        for panel in panels:
            run.panel(B[:, slice(*panel)], out[:, slice(*panel)], small)


def _one_by_one(function: Any, items: list[Any]) -> None:
    for item in items:
        function(item)


@dataclass(frozen=True, eq=False)
class _Run:
    """A filter with its arrays in one type."""

    matrix: CSR
    values: Array | None
    rate: Array
    scale: Array | None
    undo: Array | None
    keep: float
    steps: int
    compiled: ModuleType
    use_avx2: bool

    @classmethod
    def of(cls, how: _Filter, kind: Any) -> _Run:
        A, compiled = how.S.a, compiled_module()
        assert compiled is not None

        def typed(part: Array | None) -> Array | None:
            return None if part is None else np.ascontiguousarray(part, kind)

        scale = typed(how.S.right)
        undo = scale if how.undo is how.S.right else typed(how.undo)
        rate = np.ascontiguousarray(how.rate, kind)
        avx2 = kernel_info().kernel == "avx2"
        return cls(A, typed(A.values), rate, scale, undo, how.keep, how.steps, compiled, avx2)

    def panel(self, B: Array, out: Array, alone: bool) -> None:
        """`out` ← the filter of a few columns."""
        n, width = len(B), _width(B.shape[1], B.dtype)
        ranges = [(0, n)] if alone else _even_ranges(n)
        first, to = (aligned(n, width, B.dtype) for _ in range(2))
        self._each(lambda rows: self.compiled.load_panel(B, self.scale, first, *rows), ranges)
        x: Array = first
        if alone:
            self._steps(first, first, to, (0, n), 1)
            x, other = to, aligned(n, width, B.dtype) if self.steps > 1 else to
            self._steps(first, x, other, (0, n), self.steps - 1)
            x = other if self.steps % 2 == 0 else x
        else:
            spare = aligned(n, width, B.dtype) if self.steps > 1 else to
            for _ in range(self.steps):
                self._pass(first, x, to)
                x, to = to, spare if x is first else x
        self._each(lambda rows: self.compiled.store_panel(x, self.undo, out, *rows), ranges)

    def _pass(self, b: Array, x: Array, y: Array) -> None:
        for part in mapped_parts(self.matrix):
            ranges = _row_ranges(self.matrix.indptr, *part)
            parallel_map(lambda rows: self._steps(b, x, y, rows, 1), ranges)

    def _steps(self, b: Array, x: Array, y: Array, rows: tuple[int, int], steps: int) -> None:
        matrix = (self.matrix.indptr, self.matrix.indices, self.values)
        self.compiled.filter_panel(*matrix, self.rate, b, x, y, self.keep, *rows, steps, self.use_avx2)

    def _each(self, function: Any, ranges: list[tuple[int, int]]) -> None:
        (_one_by_one if len(ranges) == 1 else parallel_map)(function, ranges)


def panel_columns(rows: int, kind: Any) -> int:
    """The most columns that a panel of so many rows has.

    >>> panel_columns(1000, "float32"), panel_columns(10**6, "float32")
    (64, 16)
    """
    return (4 if rows <= _FEW_NODES else 1) * LINE_BYTES // int(np.dtype(kind).itemsize)


def _width(columns: int, kind: Any) -> int:
    """Columns that a panel has room for: half a line, or that times a power of two."""
    least = LINE_BYTES // 2 // int(np.dtype(kind).itemsize)
    return least << max(0, -(-columns // least) - 1).bit_length()


def aligned(rows: int, columns: int, kind: Any) -> Array:
    """An array of undefined content whose first row begins with a cache line.

    >>> aligned(3, 8, "float32").ctypes.data % 64
    0
    """
    count = rows * columns * np.dtype(kind).itemsize
    raw = np.empty(count + LINE_BYTES, np.uint8)
    begin = -raw.ctypes.data % LINE_BYTES
    return np.asarray(raw[begin : begin + count].view(kind).reshape(rows, columns))


def _even_ranges(rows: int) -> list[tuple[int, int]]:
    pieces = thread_count()
    return [(rows * i // pieces, rows * (i + 1) // pieces) for i in range(pieces)]


def _row_ranges(indptr: Array, begin: int, end: int) -> list[tuple[int, int]]:
    """Rows in ranges with about equally many entries."""
    if thread_count() == 1:
        return [(begin, end)]
    first, last = int(indptr[begin]), int(indptr[end])
    pieces = thread_count() * _PIECES_PER_THREAD
    cuts = np.searchsorted(indptr, first + (last - first) * np.arange(1, pieces) // pieces)
    bounds = [begin, *map(int, cuts.clip(begin, end)), end]
    return [(a, b) for a, b in itertools.pairwise(bounds) if a < b]
