"""How good scores and predictions are: arrays in, float out.

Link metrics take the scores of true pairs and of false pairs, larger meaning likelier. Only the order of the
scores counts, so Inf and -Inf are scores like others; NaN has no place in an order and is refused. Equal
scores are tied (integers are compared as float64), and each function says what it makes of ties.

Class metrics take the true and the predicted labels: 1-D numbers or text, or 2-D 0/1 with a column per label.
"""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike

from fastgrl.checks import Array, integer, size
from fastgrl.errors import ArgumentError, DtypeError, NotFiniteError, ShapeError


def roc_auc(positives: ArrayLike, negatives: ArrayLike) -> float:
    """The chance that a random positive scores above a random negative: the area under the ROC curve.

    `positives` are the scores of pairs that are links, `negatives` those of pairs that are none; the same
    holds for the other link metrics. 0.5 is what chance gives.

    `(#{p > n} + ½ #{p = n}) / (#p #n)`, counted exactly: a tie is worth one half, as in scikit-learn.

    >>> from fastgrl.metrics import roc_auc
    >>> roc_auc([3, 1], [2, 1])
    0.625
    """
    p, n = _scores(positives, "positives"), np.sort(_scores(negatives, "negatives"))
    p = np.sort(p)  # neighbouring searches then touch the same memory
    below, up_to = (int(np.searchsorted(n, p, side=side).sum()) for side in ("left", "right"))
    return (below + up_to) / (2 * len(p) * len(n))


def average_precision(positives: ArrayLike, negatives: ArrayLike) -> float:
    """The precision at the score of each positive, averaged over the positives.

    `mean_i #{p ≥ p_i} / (#{p ≥ p_i} + #{n ≥ p_i})`. Tied scores enter together, as one threshold: the sum
    over steps of recall that scikit-learn calls average precision.

    >>> from fastgrl.metrics import average_precision
    >>> average_precision([3, 1], [2, 1])
    0.75
    """
    p, n = np.sort(_scores(positives, "positives")), np.sort(_scores(negatives, "negatives"))
    found = len(p) - np.searchsorted(p, p)
    false = len(n) - np.searchsorted(n, p)
    return float(np.mean(found / (found + false)))


def hits_at_k(positives: ArrayLike, negatives: ArrayLike, *, k: int) -> float:
    """Hits@K: the share of positives that score above the `k`-th best negative.

    Strictly above: a positive tied with that negative is no hit. With fewer than `k` negatives every
    positive is a hit, as in OGB's evaluator.

    >>> from fastgrl.metrics import hits_at_k
    >>> hits_at_k([5, 3, 2], [4, 2, 1], k=2)
    0.6666666666666666
    """
    p, n = _scores(positives, "positives"), _scores(negatives, "negatives")
    k = integer("k", k, least=1)
    if len(n) < k:
        return 1.0
    return float(np.mean(p > np.partition(n, len(n) - k)[len(n) - k]))


def mean_reciprocal_rank(positives: ArrayLike, negatives: ArrayLike) -> float:
    """MRR: the mean of 1 / rank, each positive ranked among the negatives of its own row.

    `rank_i = 1 + ½ (#{j: n_ij > p_i} + #{j: n_ij ≥ p_i})`: a tie moves the positive down by one half, as in
    OGB's evaluator. `positives` has length m, `negatives` shape m×c.

    >>> from fastgrl.metrics import mean_reciprocal_rank
    >>> mean_reciprocal_rank([2, 5], [[3, 1], [5, 4]])
    0.5833333333333333
    """
    p, n = _scores(positives, "positives"), _scores(negatives, "negatives", ndim=2)
    if len(p) != len(n):
        raise ShapeError(
            f"negatives ({size(n.shape)}) must have one row for each of the {len(p)} positives; "
            "give every positive its own candidates"
        )
    above, not_below = (n > p[:, None]).sum(1), (n >= p[:, None]).sum(1)
    return float(np.mean(1 / (1 + 0.5 * (above + not_below))))


def accuracy(truth: ArrayLike, predicted: ArrayLike) -> float:
    """The share of predictions that are right; of rows that are right in every column when 2-D.

    `truth` and `predicted` are labels in the same order. Every entry counts: leave unlabelled nodes (−1) out
    before the call.

    >>> from fastgrl.metrics import accuracy
    >>> accuracy(["a", "b", "b"], ["a", "b", "c"])
    0.6666666666666666
    """
    t, p = _labels(truth, predicted)
    return float(np.mean(t == p if t.ndim == 1 else (t == p).all(1)))


def f1(truth: ArrayLike, predicted: ArrayLike, *, average: Literal["macro", "micro"] = "macro") -> float:
    """F1: `2 #right / (#true + #predicted)` per class, averaged over classes or counted over all of them.

    `average="macro"` is the mean over classes, `"micro"` adds the counts first. The classes are the labels
    that occur in either array, or the columns when 2-D; a class with nothing true and nothing predicted gets
    0.

    >>> from fastgrl.metrics import f1
    >>> f1([0, 0, 1, 2], [0, 1, 1, 1])
    0.38888888888888884
    """
    if average not in ("macro", "micro"):
        raise ArgumentError(f'average must be "macro" or "micro", got {str(average)[:40]!r}')
    t, p = _labels(truth, predicted)
    right, total = _class_counts(t, p) if t.ndim == 1 else _column_counts(t, p)
    if average == "micro":
        right, total = right.sum(keepdims=True), total.sum(keepdims=True)
    return float(np.mean(np.divide(2 * right, total, out=np.zeros(len(total)), where=total > 0)))


def _class_counts(truth: Array, predicted: Array) -> tuple[Array, Array]:
    classes, codes = np.unique(np.concatenate([truth, predicted]), return_inverse=True)
    t, p = codes[: len(truth)], codes[len(truth) :]
    return np.bincount(t[t == p], minlength=len(classes)), np.bincount(codes)


def _column_counts(truth: Array, predicted: Array) -> tuple[Array, Array]:
    t, p = truth != 0, predicted != 0
    return (t & p).sum(0), t.sum(0) + p.sum(0)


def _scores(values: ArrayLike, name: str, *, ndim: int = 1) -> Array:
    array = np.asarray(values)
    if array.ndim != ndim:
        shape = "one score per pair" if ndim == 1 else "one row of scores per positive"
        raise ShapeError(f"{name} must hold {shape} ({ndim}-D), got shape {array.shape}")
    if array.size == 0:
        raise ArgumentError(f"{name} is empty (shape {array.shape}); give at least one score")
    return _without_nan(_real(array, name), name)


def _real(array: Array, name: str) -> Array:
    if array.dtype.kind in "bui":
        return array.astype(np.float64)
    if array.dtype.kind != "f":
        raise DtypeError(f"{name} of {array.dtype} cannot be ordered; give real numbers")
    return array


def _without_nan(array: Array, name: str) -> Array:
    wrong = np.isnan(array)
    if wrong.any():
        where = np.argwhere(wrong)[0].tolist()
        raise NotFiniteError(f"{name} contains NaN at {where}, one of {int(wrong.sum())}")
    return array


def _labels(truth: Any, predicted: Any) -> tuple[Array, Array]:
    t, p = _label_array(truth, "truth"), _label_array(predicted, "predicted")
    if t.shape != p.shape:
        raise ShapeError(f"truth has shape {t.shape} and predicted {p.shape}; they must be equal")
    if (t.dtype.kind == "U") != (p.dtype.kind == "U"):
        raise DtypeError(
            f"truth of {t.dtype} and predicted of {p.dtype}: convert one, text never equals numbers"
        )
    return t, p


def _label_array(values: Any, name: str) -> Array:
    array = np.asarray(values)
    if array.dtype.kind == "O" and all(isinstance(label, str) for label in array.flat):
        array = array.astype(np.str_)
    if array.ndim not in (1, 2):
        raise ShapeError(f"{name} must be 1-D labels or 2-D 0/1, got shape {array.shape}")
    if array.size == 0:
        raise ArgumentError(f"{name} is empty (shape {array.shape}); give at least one label")
    if array.dtype.kind not in "buifU":
        raise DtypeError(f"{name} of {array.dtype} is not supported; labels are numbers or text")
    if array.ndim == 2:
        return _zeros_and_ones(array, name)
    return _without_nan(array, name) if array.dtype.kind == "f" else array


def _zeros_and_ones(array: Array, name: str) -> Array:
    # Text is refused apart: NumPy would take "1" for 1.
    wrong = np.ones(array.shape, bool) if array.dtype.kind == "U" else ~np.isin(array, (0, 1))
    if wrong.any():
        where = tuple(np.argwhere(wrong)[0].tolist())
        raise ArgumentError(
            f"{name} is 2-D and may hold 0 and 1 only, got {str(array[where])[:40]!r} at {list(where)}; "
            "leave out rows that are unlabelled (-1)"
        )
    return array
