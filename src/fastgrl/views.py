"""Views of the same nodes: how their features are scaled, and along which edges they are smoothed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp

from fastgrl.checks import Array
from fastgrl.node_models import NodeInputs, row_norms
from fastgrl.spilling import row_ranges

WORDS, NUMBERS, STRUCTURE = "words", "numbers", "structure"
VIEWS = ("l", "i", "k", "s")
_DENSEST_WORDS = 0.5
# Bytes of words that are scaled at a time.
_AT_ONCE = 1 << 21
# Later nodes may have any features; squares of these fit into float32.
_FARTHEST = 1e15
_SMALLEST = float(np.finfo(np.float64).tiny)


@dataclass(frozen=True, eq=False)
class FeatureMap:
    """How columns are scaled, learnt from the features of all nodes.

    `kind` is "words" for non-negative features that are mostly zero: binarised (view l), and times
    log((1+n)/(1+df)) (view i), rows to unit norm. "numbers": standardised columns (l), and those with rows to
    unit norm (i). "structure": there are no features, and the one view (s) is the walk embedding.
    """

    kind: str
    shift: Array
    factor: Array

    @classmethod
    def of(cls, inputs: NodeInputs) -> FeatureMap:
        """Learn the scaling."""
        X = inputs.features
        if X is None:
            assert inputs.structure is not None
            return cls(STRUCTURE, np.zeros(0), np.zeros(0))
        return _of_words(X) if is_bag_of_words(X) else _of_numbers(X)

    @property
    def views(self) -> tuple[str, ...]:
        """The views that such features have, k among them though not for every number of nodes."""
        return ("s",) if self.kind == STRUCTURE else ("k", "l", "i")

    def features(self, inputs: NodeInputs, view: str, *, dtype: Any = np.float32) -> Any:
        """F of a view, n×d: sparse for words, dense otherwise."""
        if self.kind == STRUCTURE:
            return _to_unit_rows(np.array(inputs.structure, dtype, order="C"))
        if self.kind == WORDS:
            return _unit_words(inputs.features, self.factor if view == "i" else None, dtype)
        standard = _standardised(_dense(inputs.features), self.shift, self.factor, dtype)
        return _to_unit_rows(standard) if view == "i" else standard


def is_bag_of_words(X: Any) -> bool:
    """Whether features are non-negative and mostly zero."""
    values = X if isinstance(X, np.ndarray) else X.data
    cells = X.shape[0] * X.shape[1]
    return bool((values >= 0).all()) and np.count_nonzero(values) <= _DENSEST_WORDS * cells


def _of_words(X: Any) -> FeatureMap:
    pattern = _without_zeros(X)
    n, d = pattern.shape
    frequency = np.bincount(pattern.indices, minlength=d)
    return FeatureMap(WORDS, np.zeros(d), np.log((1 + n) / (1 + frequency)))


def _of_numbers(X: Any) -> FeatureMap:
    dense = _dense(X)
    largest = np.maximum(np.abs(dense.max(axis=0)), np.abs(dense.min(axis=0))).astype(np.float64)
    peak = np.where(largest > 0, largest, 1.0)  # squares of what is divided by it neither overflow nor vanish
    means = _mean(dense, lambda rows: rows / peak)
    deviations = np.sqrt(_mean(dense, lambda rows: (rows / peak - means) ** 2))
    told_apart = (deviations > 1e-7 * np.abs(means)) & (deviations * peak > _SMALLEST)  # else it is rounding
    factor = np.divide(1.0, deviations * peak, out=np.zeros_like(deviations), where=told_apart)
    return FeatureMap(NUMBERS, means * peak, factor)


def _mean(X: Array, of: Callable[[Array], Array]) -> Array:
    """The mean over rows of a function of them, a few rows at a time in float64."""
    blocks = (X[begin : begin + 1024] for begin in range(0, len(X), 1024))
    sums: Array = sum((of(block).sum(axis=0, dtype=np.float64) for block in blocks), np.zeros(X.shape[1]))
    return sums / max(len(X), 1)


def _standardised(X: Array, shift: Array, factor: Array, dtype: Any) -> Array:
    """(X − shift) factor, a few rows at a time in float64; what lies absurdly far out lies at the limit."""
    out = np.empty(X.shape, dtype)
    for begin in range(0, len(X), 512):
        with np.errstate(over="ignore"):
            rows = X[begin : begin + 512] - shift
            rows *= factor
        out[begin : begin + 512] = np.clip(rows, -_FARTHEST, _FARTHEST, out=rows)
    return out


def _dense(X: Any) -> Array:
    return np.asarray(X if isinstance(X, np.ndarray) else X.toarray())


def _without_zeros(X: Any) -> Any:
    """The pattern of what is not zero, as CSR."""
    sparse = sp.csr_array(X)
    if not (sparse.data != 0).all():
        sparse = sparse.copy()
        sparse.eliminate_zeros()
    return sparse


def _unit_words(X: Any, factor: Array | None, dtype: Any) -> Any:
    """1 for each word, or its factor, rows to unit norm; some rows at a time in float64."""
    words = _without_zeros(X)
    data = np.empty(words.nnz, dtype)
    for begin, end in row_ranges(words.indptr, 8, at_once=_AT_ONCE):
        entries = slice(int(words.indptr[begin]), int(words.indptr[end]))
        counts = np.diff(words.indptr[begin : end + 1])
        values = np.ones(entries.stop - entries.start) if factor is None else factor[words.indices[entries]]
        squares = np.bincount(np.repeat(np.arange(end - begin), counts), values**2, end - begin)
        data[entries] = values / np.repeat(np.where(squares > 0, np.sqrt(squares), 1.0), counts)
    return sp.csr_array((data, words.indices, words.indptr), shape=words.shape)


def _to_unit_rows(F: Array) -> Array:
    """F with its rows scaled in place, rows of zeros excepted."""
    for begin in range(0, len(F), 4096):
        rows = F[begin : begin + 4096]
        rows /= row_norms(rows)[:, None].astype(F.dtype)
    return F
