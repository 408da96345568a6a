"""What one would write with numba: the log-diffusion link predictor, plainly, on one core.

Forward push and the dot products of sparse rows are compiled loops; everything else is NumPy, SciPy and
scikit-learn. It serves `links.py` as a contender.

P holds rows π_u = (1−a) Σ aⁱ(Tⁱ)_u by forward push; the embedding is the rank-64 eigendecomposition of
log(1 + n max(G, G')) without its diagonal, G = D^½PD^-½; the main feature of a pair is
log(vol · Q_u·Q_v + 0.01) for Q = P D^-½.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
from numba import njit
from numpy.typing import NDArray
from scipy.sparse.linalg import eigsh
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from threadpoolctl import threadpool_limits

import fastgrl as fg
from fastgrl.metrics import roc_auc
from fastgrl.splits import EdgeSplit, split_edges

Array = NDArray[Any]
Score = Callable[[Array], Array]

EPSILON, KEEP, RANK, HELD_OUT, FLOOR = 1e-4, 400, 64, 0.2, 0.01
DAMPINGS, FEATURE_SETS = (0.5, 0.7, 0.85, 0.92), (2, 6, 11)  # F1, F2 and F3 are the first so many features


@njit
def push_rows(indptr, indices, degrees, damping, epsilon, keep, counts, columns, values):  # type: ignore
    n = len(indptr) - 1
    residual, settled = np.zeros(n), np.zeros(n)
    seen, queued = np.zeros(n, np.bool_), np.zeros(n, np.bool_)
    touched, queue = np.empty(n, np.int64), np.empty(n, np.int64)
    for u in range(n):
        residual[u], seen[u], touched[0], num_touched = 1.0, True, u, 1
        head, length = 0, 0
        if indptr[u + 1] > indptr[u]:
            queue[0], queued[u], length = u, True, 1
        while length:
            x = queue[head]
            head = head + 1 if head + 1 < n else 0
            length -= 1
            queued[x] = False
            share = residual[x]
            settled[x] += (1 - damping) * share
            residual[x] = 0.0
            share *= damping / degrees[x]
            for edge in range(indptr[x], indptr[x + 1]):
                y = indices[edge]
                if not seen[y]:
                    seen[y], touched[num_touched] = True, y
                    num_touched += 1
                residual[y] += share
                if not queued[y] and residual[y] > epsilon * degrees[y]:
                    tail = head + length
                    queue[tail if tail < n else tail - n] = y
                    queued[y] = True
                    length += 1
        row = np.empty(num_touched)
        for i in range(num_touched):
            x = touched[i]
            row[i] = settled[x] + (1 - damping) * residual[x]
            settled[x], residual[x], seen[x] = 0.0, 0.0, False
        best = np.arange(num_touched)
        if num_touched > keep:
            best = np.argpartition(-row, keep)[:keep]
        counts[u] = len(best)
        for i in range(len(best)):
            columns[u, i], values[u, i] = touched[best[i]], row[best[i]]


@njit
def row_products(indptr, indices, values, pairs):  # type: ignore
    """Q_u·Q_v for every pair; rows are sorted."""
    products = np.zeros(len(pairs))
    for k in range(len(pairs)):
        i, j = indptr[pairs[k, 0]], indptr[pairs[k, 1]]
        i_end, j_end = indptr[pairs[k, 0] + 1], indptr[pairs[k, 1] + 1]
        while i < i_end and j < j_end:
            if indices[i] < indices[j]:
                i += 1
            elif indices[i] > indices[j]:
                j += 1
            else:
                products[k] += values[i] * values[j]
                i, j = i + 1, j + 1
    return products


@dataclass(frozen=True, eq=False)
class Diffusion:
    """What a fit learns from a graph, besides the scorer."""

    degrees: Array
    Q: sp.csr_array
    x: Array
    signs: Array


def diffuse(graph: fg.Graph, damping: float) -> Diffusion:
    d, n = np.maximum(graph.degrees, 0.5), graph.num_nodes
    P = pushed(graph, d, damping)
    roots = np.sqrt(d).astype(np.float32)
    Q = sp.csr_array((P.data / roots[P.indices], P.indices, P.indptr), shape=P.shape)  # rows stay sorted
    G = (sp.diags_array(roots) @ Q).tocsr()
    G = G.maximum(G.T).tocsr()
    G.setdiag(0)
    G.eliminate_zeros()
    G.data = np.log1p(n * G.data)
    start = np.random.default_rng(0).standard_normal(n).astype(np.float32)
    values, U = eigsh(G, min(RANK, n - 1), tol=1e-2, v0=start)
    first = np.argsort(-np.abs(values))
    return Diffusion(d, Q, U[:, first] * np.sqrt(np.abs(values[first])), np.sign(values[first]))


def pushed(graph: fg.Graph, degrees: Array, damping: float) -> sp.csr_array:
    n = graph.num_nodes
    counts, columns = np.zeros(n, np.int64), np.empty((n, KEEP), np.int32)
    values = np.empty((n, KEEP), np.float32)
    push_rows(graph.indptr, graph.indices, degrees, damping, EPSILON, KEEP, counts, columns, values)
    kept = np.arange(KEEP) < counts[:, None]
    P = sp.csr_array((values[kept], columns[kept], np.append(0, np.cumsum(counts))), shape=(n, n))
    P.sort_indices()
    return P


def features(model: Diffusion, pairs: Array) -> Array:
    """F3: a row of eleven numbers for every pair; F1 and F2 are the first two and six of them."""
    u, v = pairs.T
    Q, x = model.Q, model.x
    pmi = np.log(model.degrees.sum() * row_products(Q.indptr, Q.indices, Q.data, pairs) + FLOOR)
    p, q = np.log(model.degrees[u]), np.log(model.degrees[v])
    products = x[u] * x[v] * model.signs
    lengths, rest = (np.maximum(np.linalg.norm(part, axis=1), 1e-6) for part in (x, x[:, 1:]))
    dot, norms = products.sum(1), lengths[u] * lengths[v]
    cos, cos1 = dot / norms, products[:, 1:].sum(1) / (rest[u] * rest[v])
    columns = [pmi, p + q, np.abs(p - q), p * q, cos, dot, cos1, np.log(norms)]
    return np.stack([*columns, pmi * np.abs(pmi), pmi * (p + q), cos * (p + q)], axis=1)


def scorer(X: Array, is_link: Array) -> Score:
    model = make_pipeline(StandardScaler(), LogisticRegression(C=1.0))
    return model.fit(X, is_link).decision_function


def examples(model: Diffusion, split: EdgeSplit) -> tuple[Array, Array]:
    is_link = np.repeat([1, 0], [len(split.held_out), len(split.negatives)])
    return features(model, np.concatenate([split.held_out, split.negatives])), is_link


def fit(graph: fg.Graph, damping: float = 0.85) -> Score:
    """The default settings: one hold-out teaches the scorer, all edges the rest."""
    with threadpool_limits(1):
        split = split_edges(graph, fraction=HELD_OUT, keep_forest=True)
        score = scorer(*examples(diffuse(split.train, damping), split))
        model = diffuse(graph, damping)
    return lambda pairs: score(features(model, pairs))


def select_and_fit(graph: fg.Graph) -> Score:
    """Damping and features by AUC across two hold-outs, each scored by what the other taught."""
    with threadpool_limits(1):
        splits = [split_edges(graph, fraction=HELD_OUT, keep_forest=True, seed=seed) for seed in (0, 1)]
        tables = {a: [examples(diffuse(s.train, a), s) for s in splits] for a in DAMPINGS}
        damping, width = max(
            itertools.product(DAMPINGS, FEATURE_SETS), key=lambda c: two_fold_auc(tables[c[0]], c[1])
        )
        (one, y), (other, z) = tables[damping]
        score = scorer(np.concatenate([one, other])[:, :width], np.concatenate([y, z]))
        model = diffuse(graph, damping)
    return lambda pairs: score(features(model, pairs)[:, :width])


def two_fold_auc(folds: list[tuple[Array, Array]], width: int) -> float:
    (one, y), (other, z) = ((X[:, :width], is_link) for X, is_link in folds)
    scores = ((scorer(one, y)(other), z), (scorer(other, z)(one), y))
    return float(np.mean([roc_auc(s[is_link == 1], s[is_link == 0]) for s, is_link in scores]))


def warm_up() -> None:
    """Compile, on a graph that takes no time."""
    ends = np.random.default_rng(0).integers(0, 200, (2, 800))
    select_and_fit(fg.Graph.from_codes(*ends, num_nodes=200))
