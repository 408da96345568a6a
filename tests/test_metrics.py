from __future__ import annotations

import os
import subprocess
import sys
from itertools import product

import numpy as np
import pytest
import sklearn.metrics
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from fastgrl.errors import ArgumentError, DtypeError, NotFiniteError, ShapeError
from fastgrl.metrics import accuracy, average_precision, f1, hits_at_k, mean_reciprocal_rank, roc_auc

# Four values for up to 40 scores: nearly everything is tied.
tied = arrays(np.int64, st.integers(1, 40), elements=st.integers(0, 3))
spread = arrays(
    st.sampled_from([np.float32, np.float64]), st.integers(1, 40), elements=st.floats(-8, 8, width=32)
)
scores = tied | spread
classes = st.integers(1, 40).flatmap(
    lambda n: st.tuples(*[arrays(np.int64, n, elements=st.integers(-1, 5))] * 2)
)
tables = st.tuples(st.integers(1, 20), st.integers(2, 5)).flatmap(
    lambda shape: st.tuples(*[arrays(np.int8, shape, elements=st.integers(0, 1))] * 2)
)


def labelled(positives, negatives):
    truth = np.r_[np.ones(len(positives)), np.zeros(len(negatives))]
    return truth, np.r_[positives, negatives]


def looped_hits(positives, negatives, k):
    if len(negatives) < k:
        return 1.0
    bar = sorted(negatives, reverse=True)[k - 1]
    return sum(score > bar for score in positives) / len(positives)


def looped_mrr(positives, negatives):
    total = 0.0
    for score, row in zip(positives, negatives, strict=True):
        optimistic = sum(other > score for other in row)
        pessimistic = sum(other >= score for other in row)
        total += 1 / (0.5 * (optimistic + pessimistic) + 1)
    return total / len(positives)


@given(scores, scores)
@settings(max_examples=150, deadline=None)
def test_roc_auc_and_average_precision_are_those_of_scikit_learn(positives, negatives):
    truth, score = labelled(positives, negatives)
    assert roc_auc(positives, negatives) == pytest.approx(
        sklearn.metrics.roc_auc_score(truth, score), abs=1e-12
    )
    assert average_precision(positives, negatives) == pytest.approx(
        sklearn.metrics.average_precision_score(truth, score), abs=1e-12
    )


@given(scores, scores)
@settings(deadline=None)
def test_roc_auc_counts_won_pairs_and_half_of_the_tied_ones(positives, negatives):
    won = sum(1.0 if p > n else 0.5 if p == n else 0.0 for p, n in product(positives, negatives))
    assert roc_auc(positives, negatives) == won / (len(positives) * len(negatives))


@given(scores, scores)
@settings(deadline=None)
def test_roc_auc_of_exchanged_roles_adds_up_to_one(positives, negatives):
    assert roc_auc(positives, negatives) + roc_auc(negatives, positives) == pytest.approx(1, abs=1e-15)


@given(scores, scores, st.integers(1, 45))
@settings(deadline=None)
def test_hits_follow_the_definition_of_ogb(positives, negatives, k):
    assert hits_at_k(positives, negatives, k=k) == looped_hits(positives.tolist(), negatives.tolist(), k)


@given(st.integers(1, 8), st.integers(1, 8), st.integers(0, 2**32))
@settings(deadline=None)
def test_reciprocal_ranks_follow_the_definition_of_ogb(rows, columns, seed):
    rng = np.random.default_rng(seed)
    positives, negatives = rng.integers(4, size=rows), rng.integers(4, size=(rows, columns))
    expected = looped_mrr(positives.tolist(), negatives.tolist())
    assert mean_reciprocal_rank(positives, negatives) == pytest.approx(expected, abs=1e-14)
    weak = mean_reciprocal_rank(positives.astype(np.float32), negatives.astype(np.float64))
    assert weak == pytest.approx(expected, abs=1e-14)


@given(tied, tied, st.integers(1, 45), st.sampled_from([np.exp, np.cbrt, lambda x: 7 * x - 100, np.float32]))
@settings(deadline=None)
def test_only_the_order_of_the_scores_counts(positives, negatives, k, rising):
    p, n = rising(positives), rising(negatives)
    assert roc_auc(p, n) == roc_auc(positives, negatives)
    assert average_precision(p, n) == average_precision(positives, negatives)
    assert hits_at_k(p, n, k=k) == hits_at_k(positives, negatives, k=k)
    rows = np.broadcast_to(negatives, (len(positives), len(negatives)))
    assert mean_reciprocal_rank(p, rising(rows)) == mean_reciprocal_rank(positives, rows)


@given(scores, scores, st.integers(0, 2**32))
@settings(deadline=None)
def test_the_order_of_the_arguments_entries_does_not_count(positives, negatives, seed):
    rng = np.random.default_rng(seed)
    p, n = rng.permutation(positives), rng.permutation(negatives)
    assert roc_auc(p, n) == roc_auc(positives, negatives)
    assert average_precision(p, n) == average_precision(positives, negatives)
    assert hits_at_k(p, n, k=3) == hits_at_k(positives, negatives, k=3)


@given(scores, scores)
@settings(deadline=None)
def test_every_link_metric_lies_between_zero_and_one(positives, negatives):
    rows = np.broadcast_to(negatives, (len(positives), len(negatives)))
    for value in (
        roc_auc(positives, negatives),
        average_precision(positives, negatives),
        hits_at_k(positives, negatives, k=2),
        mean_reciprocal_rank(positives, rows),
    ):
        assert type(value) is float
        assert 0 <= value <= 1


@given(scores)
@settings(deadline=None)
def test_perfect_and_constant_scores_get_the_values_they_must(negatives):
    best = np.full(5, negatives.max() + 1, negatives.dtype)
    assert roc_auc(best, negatives) == average_precision(best, negatives) == 1
    assert hits_at_k(best, negatives, k=1) == 1
    constant = np.zeros(3), np.zeros(9)
    assert roc_auc(*constant) == 0.5
    assert average_precision(*constant) == 0.25
    assert hits_at_k(*constant, k=9) == 0


@given(classes)
@settings(max_examples=100, deadline=None)
def test_class_metrics_are_those_of_scikit_learn(pair):
    truth, predicted = pair
    assert accuracy(truth, predicted) == pytest.approx(sklearn.metrics.accuracy_score(truth, predicted))
    for average in ("macro", "micro"):
        expected = sklearn.metrics.f1_score(truth, predicted, average=average, zero_division=0)
        assert f1(truth, predicted, average=average) == pytest.approx(expected, abs=1e-12)
        names = np.array(["none", *"abcdef"])
        renamed = f1(names[truth + 1], names[predicted + 1], average=average)
        assert renamed == pytest.approx(expected, abs=1e-12)  # classes are added in another order


@given(tables)
@settings(max_examples=100, deadline=None)
def test_multi_label_metrics_are_those_of_scikit_learn(pair):
    truth, predicted = pair
    assert accuracy(truth, predicted) == pytest.approx(sklearn.metrics.accuracy_score(truth, predicted))
    for average in ("macro", "micro"):
        expected = sklearn.metrics.f1_score(truth, predicted, average=average, zero_division=0)
        assert f1(truth, predicted, average=average) == pytest.approx(expected, abs=1e-12)
        assert f1(truth.astype(bool), predicted.astype(float), average=average) == pytest.approx(expected)


@given(classes)
@settings(deadline=None)
def test_micro_f1_of_one_label_per_node_is_the_accuracy(pair):
    assert f1(*pair, average="micro") == pytest.approx(accuracy(*pair), abs=1e-15)


def test_infinite_scores_are_ordered_like_others():
    positives, negatives = [np.inf, 1.0, -np.inf], [np.inf, 0.0, -np.inf]
    finite = [9.0, 1.0, -9.0], [9.0, 0.0, -9.0]
    for metric in (roc_auc, average_precision):
        assert metric(positives, negatives) == metric(*finite)
    assert hits_at_k(positives, negatives, k=1) == 0
    rows = np.tile(negatives, (3, 1)), np.tile(finite[1], (3, 1))
    assert mean_reciprocal_rank(positives, rows[0]) == mean_reciprocal_rank(finite[0], rows[1])


def test_a_million_scores_agree_with_scikit_learn():
    rng = np.random.default_rng(0)
    positives = rng.normal(1, 1, 400_000).round(2).astype(np.float32)
    negatives = rng.normal(0, 1, 600_000).round(2).astype(np.float32)
    truth, score = labelled(positives, negatives)
    expected = sklearn.metrics.roc_auc_score(truth, score)
    assert roc_auc(positives, negatives) == pytest.approx(expected, abs=1e-12)
    expected = sklearn.metrics.average_precision_score(truth, score)
    assert average_precision(positives, negatives) == pytest.approx(expected, abs=1e-12)


def test_nothing_given_is_changed():
    positives, negatives = np.array([2.0, 1.0, 3.0]), np.array([3.0, 0.0, 1.0])
    for array in (positives, negatives):
        array.flags.writeable = False
    roc_auc(positives, negatives)
    average_precision(positives, negatives)
    hits_at_k(positives, negatives, k=2)


@pytest.mark.parametrize("metric", [roc_auc, average_precision, lambda p, n: hits_at_k(p, n, k=1)])
def test_bad_scores_are_refused_by_name(metric):
    good = [1.0, 2.0]
    for name, call in (
        ("positives", lambda bad: metric(bad, good)),
        ("negatives", lambda bad: metric(good, bad)),
    ):
        with pytest.raises(ArgumentError, match=f"{name} is empty"):
            call([])
        with pytest.raises(NotFiniteError, match=rf"{name} contains NaN at \[1\], one of 1"):
            call([0.0, np.nan])
        with pytest.raises(ShapeError, match=rf"{name} must hold one score per pair .* \(2, 1\)"):
            call([[1.0], [2.0]])
        with pytest.raises(ShapeError, match=name):
            call(3.0)
        with pytest.raises(DtypeError, match=f"{name} of <U1"):
            call(["a", "b"])
        with pytest.raises(DtypeError, match=f"{name} of complex128"):
            call([1j, 2])


@pytest.mark.parametrize("k", [0, -1, 1.0, True, None, "2"])
def test_k_must_be_a_whole_number(k):
    with pytest.raises(ArgumentError, match="k must be an integer of at least 1"):
        hits_at_k([1.0], [1.0], k=k)


def test_bad_candidate_rows_are_refused_by_name():
    with pytest.raises(ShapeError, match=r"negatives .* one row of scores per positive"):
        mean_reciprocal_rank([1.0], [1.0])
    with pytest.raises(ShapeError, match=r"negatives .3×2. must have one row for each of the 2 positives"):
        mean_reciprocal_rank([1.0, 2.0], np.zeros((3, 2)))
    with pytest.raises(ArgumentError, match="negatives is empty"):
        mean_reciprocal_rank([1.0], np.zeros((1, 0)))
    with pytest.raises(NotFiniteError, match=r"negatives contains NaN at \[0, 1\]"):
        mean_reciprocal_rank([1.0], [[0.0, np.nan]])


@pytest.mark.parametrize("metric", [accuracy, f1])
def test_bad_labels_are_refused_by_name(metric):
    for name, call in (("truth", lambda bad: metric(bad, bad)), ("predicted", lambda bad: metric([1], bad))):
        with pytest.raises(ArgumentError, match=f"{name} is empty"):
            call([])
        with pytest.raises(ShapeError, match=f"{name} must be 1-D labels"):
            call(5)
        with pytest.raises(NotFiniteError, match=f"{name} contains NaN"):
            call([np.nan])
        with pytest.raises(DtypeError, match=f"{name} of object"):
            call([None])
        with pytest.raises(ArgumentError, match=rf"{name} is 2-D .* got '-1' at \[0, 1\]"):
            call([[0, -1]])
        with pytest.raises(ArgumentError, match=f"{name} is 2-D"):
            call([["0", "1"]])
    with pytest.raises(ShapeError, match=r"truth has shape \(2,\) and predicted \(1,\)"):
        metric([1, 2], [1])
    with pytest.raises(DtypeError, match="text never equals numbers"):
        metric(["1"], [1])


def test_labels_of_tables_and_frames_are_read_as_text():
    column = np.array(["cat", "dog", "cat"], dtype=object)
    assert accuracy(column, ["cat", "dog", "dog"]) == pytest.approx(2 / 3)


def test_the_average_must_be_one_of_two():
    with pytest.raises(ArgumentError, match="average must be"):
        f1([1], [1], average="weighted")


def test_importing_the_metrics_does_not_import_those_of_scikit_learn():
    code = "import sys, fastgrl.metrics; sys.exit('sklearn.metrics' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], env=os.environ).returncode == 0
