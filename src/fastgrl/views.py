"""Views of the same nodes: how their features are scaled, and along which edges they are smoothed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp

from fastgrl.checks import Array
from fastgrl.node_models import NodeInputs, row_norms

WORDS, NUMBERS, STRUCTURE = "words", "numbers", "structure"
VIEWS = ("l", "i", "k", "s")
_DENSEST_WORDS = 0.5
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
            return _unit_rows(np.asarray(inputs.structure, dtype))
        if self.kind == WORDS:
            return _unit_rows(_binarised(inputs.features, self.factor if view == "i" else None), dtype)
        standard = _standardised(_dense(inputs.features), self.shift, self.factor, dtype)
        return _unit_rows(standard) if view == "i" else standard


def is_bag_of_words(X: Any) -> bool:
    """Whether features are non-negative and mostly zero."""
    values = X if isinstance(X, np.ndarray) else X.data
    cells = X.shape[0] * X.shape[1]
    return bool((values >= 0).all()) and np.count_nonzero(values) <= _DENSEST_WORDS * cells


def _of_words(X: Any) -> FeatureMap:
    pattern = _binarised(X, None)
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
    blocks = (X[begin : begin + 4096] for begin in range(0, len(X), 4096))
    sums: Array = sum((of(block).sum(axis=0, dtype=np.float64) for block in blocks), np.zeros(X.shape[1]))
    return sums / max(len(X), 1)


def _standardised(X: Array, shift: Array, factor: Array, dtype: Any) -> Array:
    """(X − shift) factor, a few rows at a time in float64; what lies absurdly far out lies at the limit."""
    out = np.empty(X.shape, dtype)
    for begin in range(0, len(X), 4096):
        with np.errstate(over="ignore"):
            rows = (X[begin : begin + 4096] - shift) * factor
        out[begin : begin + 4096] = np.clip(rows, -_FARTHEST, _FARTHEST, out=rows)
    return out


def _dense(X: Any) -> Array:
    return np.asarray(X if isinstance(X, np.ndarray) else X.toarray())


def _binarised(X: Any, factor: Array | None) -> Any:
    sparse = sp.csr_array(X)
    kept = sparse.data != 0
    if not kept.all():
        sparse = sparse.copy()
        sparse.eliminate_zeros()
    data = np.ones(sparse.nnz) if factor is None else factor[sparse.indices]
    return sp.csr_array((data, sparse.indices, sparse.indptr), shape=sparse.shape)


def _unit_rows(F: Any, dtype: Any = None) -> Any:
    norms = row_norms(F)
    if isinstance(F, np.ndarray):
        return F / norms[:, None].astype(F.dtype)
    data = (F.data / np.repeat(norms, np.diff(F.indptr))).astype(dtype)
    return sp.csr_array((data, F.indices, F.indptr), shape=F.shape)
