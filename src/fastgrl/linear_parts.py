"""The weighted ridge behind node classification, and what its closed form gives for nothing.

The scores of all nodes are linear in the labels, so each of these is exact and none of them trains again:
what a node would score without its own label, the solution after labels were changed, the share of each
labelled node in a score. Everything small is float64, whatever the coordinates Z are.

Write x = z − μ for centred coordinates, C = Σ w x x' for their scatter and D = Σ w x (y − q)' for what
they have in common with the targets: W = (C + γI)⁻¹D.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from fastgrl.checks import Array, finite_array, integer, row_numbers, shown, size
from fastgrl.errors import ArgumentError, ShapeError
from fastgrl.linalg import CHUNK_ROWS, map_chunks, sum_over_chunks
from fastgrl.node_models import LinearPart

Changes = Mapping[int, Any]
Slope = Callable[[float], tuple[float, float]]

_HEAVY = 0.9  # of all weight; where one node has it, 1 − c h cancels, and one refit costs little
TEMPERATURE_RANGE = 25.0  # between the spread of the scores divided and multiplied by this


@dataclass(frozen=True, eq=False)
class Moments:
    """What a ridge solve needs of its weighted rows: μ, q, C (k×k) and D (k×C), with w and Q themselves."""

    weights: Array
    targets: Array
    mean: Array
    bias: Array
    scatter: Array
    cross: Array

    @functools.cached_property
    def spectrum(self) -> tuple[Array, Array]:
        """Eigenvalues (at least 0) and eigenvectors of C: one decomposition serves every ridge."""
        values, vectors = np.linalg.eigh(self.scatter)
        return np.maximum(values, 0.0), vectors


@dataclass(frozen=True, eq=False)
class Solution:
    """P = (Z − 1μ')W + 1q': `coefficients` W (k×C), `mean` μ and `bias` q of a `part`.

    `moments` are those of the fit that the solution comes from (None for the paper's product). After a
    relabelling, `changed` nodes differ from that fit and the weights of all others are `scale` times theirs.
    """

    part: LinearPart
    coefficients: Array
    mean: Array
    bias: Array
    moments: Moments | None = None
    changed: Array = field(default_factory=lambda: np.empty(0, np.intp))
    scale: float = 1.0

    def scores(self, nodes: Any = None) -> Array:
        """P of the given node numbers, of all nodes by default."""
        Z = self.part.Z
        rows = None if nodes is None else row_numbers(nodes, len(Z), "the nodes")
        P = np.empty((len(Z) if rows is None else len(rows), len(self.bias)))

        def fill(begin: int, end: int) -> None:
            chunk = Z[begin:end] if rows is None else Z[rows[begin:end]]
            np.matmul(chunk.astype(np.float64) - self.mean, self.coefficients, out=P[begin:end])

        map_chunks(fill, len(P), P.size * Z.shape[1])
        P += self.bias
        return P


def solve(part: LinearPart) -> Solution:
    """Solve a part: W = (C + γI)⁻¹D, μ = Z'w and q = Q'w, with rows of weight 0 left alone.

    Weights are divided by their sum; where there are none, W and q are zero. Without a ridge it is the
    paper's product, W = Z_𝒱'Q_𝒱 over the nodes of positive weight, μ = 0 and q = 0.

    >>> from fastgrl.node_models import HopBasis, LinearPart
    >>> basis = HopBasis(fg.Identity(3), np.array([[0.0], [1.0], [2.0]]), np.ones(1), np.eye(1))
    >>> part = LinearPart(basis, np.array([0.5, 0.5, 0.0]), np.array([[0.0], [1.0], [0.0]]), 0.25)
    >>> solve(part).scores()
    array([[0.25], [0.75], [1.25]])
    """
    if part.ridge is None:
        return _solve_product(part)
    if not (np.isfinite(part.ridge) and part.ridge > 0):
        raise ArgumentError(f"ridge must be finite and above 0, or None, got {shown(part.ridge)}")
    moments = _moments(part)
    W = np.linalg.solve(_penalised(moments.scatter, part.ridge), moments.cross)
    return Solution(part, W, moments.mean, moments.bias, moments)


def leave_one_out(part: LinearPart, nodes: Any, *, solution: Solution | None = None) -> Array:
    """What each of `nodes` would score had its own label not been used, m×C: equal to as many refits.

    The refit without i has the other weights over a = 1 − w_i and the same γ. With x = z_i − μ, r = y_i − q,
    c = w_i/a, K = (C + aγI)⁻¹ and h = x'Kx it gives

        P_i = q − c r + (x'KD − c h r) / (a (1 − c h)),

    and K is diagonal in the eigenvectors of C for all a at once. A node without weight scores as it does; a
    node that has all the weight scores zero, because nothing is left to learn from. The paper's product
    gives P_i − (z_i·z_i) y_i. `solution` is that of `solve`, if it is at hand.
    """
    nodes = row_numbers(nodes, len(part.weights), "the nodes")
    current = _unchanged(part, solution)
    one = _product_without if current.moments is None else _ridge_without
    pieces = [one(current, nodes[i : i + CHUNK_ROWS]) for i in range(0, len(nodes), CHUNK_ROWS)]
    return np.concatenate([np.empty((0, part.targets.shape[1])), *pieces])


def smoother(part: LinearPart, node: int, *, solution: Solution | None = None) -> Array:
    """The share of each node's target row in the score of `node`: P_node = Σ_j s_j Q_j, exactly.

    s_j = w_j (1 + x'(C + γI)⁻¹x_j) with x = z_node − μ; the paper's product has s_j = z_node·z_j. Nodes
    without weight have a share of 0. Length n; with a ridge the shares sum to 1.
    """
    node = integer("node", node, least=0, most=len(part.weights) - 1)
    current = _unchanged(part, solution)
    rows = np.flatnonzero(part.weights > 0)
    shares = np.zeros(len(part.weights))
    z = part.Z[node].astype(np.float64) - current.mean
    if current.moments is None:
        shares[rows] = _times_rows(part.Z, rows, z)
        return shares
    g = np.linalg.solve(_penalised(current.moments.scatter, part.ridge), z)
    shares[rows] = current.moments.weights[rows] * (1 - current.mean @ g + _times_rows(part.Z, rows, g))
    return shares


def relabelled(
    part: LinearPart, changes: Changes, *, solution: Solution | None = None
) -> tuple[LinearPart, Solution]:
    """The part after labels were changed, added or removed, with its solution: equal to a refit.

    `changes` maps node numbers to target rows of length C, or to None for a label that goes. Weights: a
    label that goes takes its weight with it; a new or changed label weighs what labels of its class weigh
    (the mean weight of the nodes with the same target row; if there are none, of those whose row holds only
    0 and 1; else of all); then all are divided by their sum. So uniform weights are uniform again over the
    new labelled nodes, and class weights stay the weight of one node of a class. γ stays.

    With s for what the other weights are multiplied by, d = v − s w for the changed nodes (v new, w old) and
    X for their rows about the old μ, the new matrix is s C + γI + X'(diag(d) − dd')X: Woodbury's identity
    over the eigenvectors of the fit's C makes each change cost O(k²), also when a relabelling is relabelled.
    Once more than k nodes have changed it is solved afresh. Nothing happens to a node that had no label and
    gets none; at least one label must remain.
    """
    before = solve(part) if solution is None else _of_part(part, solution)
    if not changes:
        return part, before
    nodes, rows, kept = _checked(part, changes)
    after, total = _with_labels(part, nodes, rows, kept)
    if before.moments is None:
        return after, _updated_product(before, after, nodes)
    changed = np.union1d(before.changed, nodes)
    if len(changed) > part.Z.shape[1]:
        return after, solve(after)
    scale = before.scale * float(part.weights.sum(dtype=np.float64)) / total
    return after, _updated(before.moments, after, changed, scale)


def temperature(scores: Array, labels: Array, *, multilabel: bool = False, threshold: float = 0.5) -> float:
    """The T > 0 at which softmax(scores / T) explains m×C `labels` of 0 and 1 best.

    It minimises the mean negative log-likelihood, which is convex in 1/T, over T from spread/25 to 25·spread,
    where the spread is the root mean square of the scores about their row means: T follows the scale of the
    scores, and scores that separate the classes perfectly, or point the wrong way, give an end of the range.
    Multi-label scores are those of a ridge on 0 and 1, so each is a logistic((score − threshold) / T) of its
    own, with the spread about the threshold. No scores, or scores without any spread: T = 1.

    >>> temperature(np.array([[0.9, 0.1], [0.2, 0.8], [0.6, 0.4]]), np.array([[1, 0], [0, 1], [0, 1]]))
    0.309...
    """
    scores = finite_array(scores, "scores", ndim=2).astype(np.float64)
    labels = finite_array(labels, "labels", ndim=2)
    if scores.shape != labels.shape:
        raise ShapeError(f"scores are {size(scores.shape)} and labels {size(labels.shape)}: they must agree")
    margins = scores - (threshold if multilabel else scores.mean(1, keepdims=True))
    largest = np.abs(margins).max(initial=0.0)
    if largest <= 1e-12 * np.abs(scores).max(initial=0.0):
        return 1.0
    spread = float(largest * np.sqrt(np.mean((margins / largest) ** 2)))  # so that no square underflows
    slope = _logistic_slope if multilabel else _softmax_slope
    return spread / _flattest(slope(margins / spread, labels))


def _moments(part: LinearPart) -> Moments:
    rows = np.flatnonzero(part.weights > 0)
    weights = np.asarray(part.weights, np.float64)
    weights = weights / (weights[rows].sum() or 1.0)
    w, k = weights[rows], part.Z.shape[1]
    bias = w @ part.targets[rows].astype(np.float64)
    mean = _sum_of_rows(part.Z, rows, w)

    def term(begin: int, end: int) -> Array:
        chosen = rows[begin:end]
        root = np.sqrt(w[begin:end])[:, None]
        X = root * (part.Z[chosen] - mean)
        return np.concatenate([X.T @ X, X.T @ (root * (part.targets[chosen] - bias))], axis=1)

    both = sum_over_chunks(term, len(rows), len(rows) * k * k)
    return Moments(weights, part.targets, mean, bias, both[:, :k], both[:, k:])


def _sum_of_rows(Z: Array, rows: Array, weights: Array) -> Array:
    def term(begin: int, end: int) -> Array:
        return np.asarray(weights[begin:end] @ Z[rows[begin:end]].astype(np.float64))

    return sum_over_chunks(term, len(rows), len(rows) * Z.shape[1])


def _times_rows(Z: Array, rows: Array, vector: Array) -> Array:
    bounds = range(0, len(rows), CHUNK_ROWS)
    pieces = [Z[rows[i : i + CHUNK_ROWS]].astype(np.float64) @ vector for i in bounds]
    return np.concatenate([np.empty(0), *pieces])


def _penalised(scatter: Array, ridge: float | None) -> Array:
    return scatter + (ridge or 0.0) * np.eye(len(scatter))


def _of_part(part: LinearPart, solution: Solution) -> Solution:
    if solution.part is not part:
        raise ArgumentError("the solution is that of another part; pass what solve(part) returns, or nothing")
    return solution


def _unchanged(part: LinearPart, solution: Solution | None) -> Solution:
    """A solution whose moments are those of its part."""
    if solution is None or len(_of_part(part, solution).changed):
        return solve(part)
    return solution


def _ridge_without(solution: Solution, nodes: Array) -> Array:
    moments, part = solution.moments, solution.part
    assert moments is not None
    values, E = moments.spectrum
    w = moments.weights[nodes]
    a = np.where(w < _HEAVY, 1 - w, 1.0)
    X = (part.Z[nodes] - moments.mean) @ E
    XK = X / (values + a[:, None] * part.ridge)
    c = w / a
    ch = c * np.einsum("ij,ij->i", X, XK)
    r = part.targets[nodes] - moments.bias
    change = (XK @ (E.T @ moments.cross) - ch[:, None] * r) / (a * (1 - ch))[:, None]
    P = moments.bias - c[:, None] * r + change
    for heavy in np.flatnonzero(w >= _HEAVY):
        P[heavy] = _refitted_without(part, nodes[heavy])
    return np.asarray(P)


def _refitted_without(part: LinearPart, node: int) -> Array:
    weights = np.array(part.weights, np.float64)
    weights[node] = 0.0
    return np.asarray(solve(replace(part, weights=weights)).scores([node])[0])


def _solve_product(part: LinearPart) -> Solution:
    rows = np.flatnonzero(part.weights > 0)
    k, classes = part.Z.shape[1], part.targets.shape[1]

    def term(begin: int, end: int) -> Array:
        chosen = rows[begin:end]
        return np.asarray(part.Z[chosen].T.astype(np.float64) @ part.targets[chosen])

    W = sum_over_chunks(term, len(rows), len(rows) * k * classes)
    return Solution(part, W, np.zeros(k), np.zeros(classes))


def _product_targets(part: LinearPart, nodes: Array) -> Array:
    return np.where(part.weights[nodes, None] > 0, part.targets[nodes], 0.0)


def _product_without(solution: Solution, nodes: Array) -> Array:
    Z = solution.part.Z[nodes].astype(np.float64)
    own = (Z**2).sum(1, keepdims=True) * _product_targets(solution.part, nodes)
    return np.asarray(Z @ solution.coefficients - own)


def _updated_product(before: Solution, after: LinearPart, nodes: Array) -> Solution:
    gained = _product_targets(after, nodes) - _product_targets(before.part, nodes)
    W = before.coefficients + after.Z[nodes].astype(np.float64).T @ gained
    return replace(before, part=after, coefficients=W)


def _checked(part: LinearPart, changes: Changes) -> tuple[Array, Array, Array]:
    """Node numbers in increasing order, their new target rows, and which of them keep a label."""
    n, classes = part.targets.shape
    given = {integer("node", node, least=0, most=n - 1): row for node, row in changes.items()}
    nodes = np.array(sorted(given), np.intp)
    rows = np.array([_checked_row(given[node], node, classes) for node in sorted(given)])
    return nodes, rows, np.array([given[node] is not None for node in sorted(given)])


def _checked_row(row: Any, node: int, classes: int) -> Array:
    values = finite_array(np.zeros(classes) if row is None else row, f"the labels of node {node}", ndim=1)
    if len(values) != classes:
        raise ShapeError(f"the labels of node {node} are {len(values)} numbers for {classes} classes")
    return values


def _with_labels(part: LinearPart, nodes: Array, rows: Array, kept: Array) -> tuple[LinearPart, float]:
    """The part with other labels, and the sum its weights had before they were divided by it."""
    weights, targets = np.array(part.weights, np.float64), np.array(part.targets, np.float64)
    weights[nodes] = 0.0
    weights[nodes[kept]] = _usual_weights(part, rows[kept])
    targets[nodes] = rows
    total = float(weights.sum())
    if not total > 0:
        raise ArgumentError("no label would be left to learn from; leave at least one")
    return replace(part, weights=weights / total, targets=targets), total


def _usual_weights(part: LinearPart, rows: Array) -> Array:
    """What a label like each of `rows` weighs in the part."""
    weighted = np.flatnonzero(part.weights > 0)
    weights, targets = part.weights[weighted].astype(np.float64), part.targets[weighted]
    if not len(weighted):
        return np.ones(len(rows))
    crisp = ((targets == 0) | (targets == 1)).all(1)
    otherwise = weights[crisp].mean() if crisp.any() else weights.mean()
    alike = {row.tobytes(): (targets == row).all(1) for row in rows}
    usual = {key: weights[same].mean() if same.any() else otherwise for key, same in alike.items()}
    return np.array([usual[row.tobytes()] for row in rows])


def _updated(moments: Moments, part: LinearPart, changed: Array, scale: float) -> Solution:
    X = part.Z[changed] - moments.mean
    v, w = part.weights[changed], scale * moments.weights[changed]
    gained = v[:, None] * part.targets[changed] - w[:, None] * moments.targets[changed]
    d = v - w
    shift = d @ X
    bias = scale * moments.bias + gained.sum(0)
    cross = scale * moments.cross + X.T @ gained - np.outer(shift, bias)
    moved = np.abs(d) > 1e-14 * v  # a label that only changed class leaves the matrix as it is
    W = _woodbury(moments, (scale, part.ridge or 0.0), X[moved], d[moved], cross)
    return Solution(part, W, moments.mean + shift, bias, moments, changed, scale)


def _woodbury(moments: Moments, shape: tuple[float, float], X: Array, d: Array, cross: Array) -> Array:
    """(s C + γI + X'(diag(d) − dd')X)⁻¹ times `cross`, for `shape` (s, γ)."""
    values, E = moments.spectrum
    inverse = 1 / (shape[0] * values + shape[1])[:, None]
    XE, plain = X @ E, inverse * (E.T @ cross)
    middle = np.diag(d) - np.outer(d, d)
    correction = np.linalg.solve(np.eye(len(d)) + middle @ (XE @ (inverse * XE.T)), middle @ (XE @ plain))
    return np.asarray(E @ (plain - inverse * (XE.T @ correction)))


def _softmax_slope(margins: Array, labels: Array) -> Slope:
    """First and second derivative of the mean negative log-likelihood of softmax(β margins)."""
    totals = labels.sum(1, keepdims=True)
    observed = float((labels * margins).sum()) / len(margins)

    def at(beta: float) -> tuple[float, float]:
        p = np.exp(beta * (margins - margins.max(1, keepdims=True)))
        p *= 1 / p.sum(1, keepdims=True)
        mean = (p * margins).sum(1, keepdims=True)
        variance = (p * (margins - mean) ** 2).sum(1, keepdims=True)
        return float((totals * mean).mean()) - observed, float((totals * variance).mean())

    return at


def _logistic_slope(margins: Array, labels: Array) -> Slope:
    """The same for an independent logistic(β margin) in every place."""

    def at(beta: float) -> tuple[float, float]:
        p = 0.5 + 0.5 * np.tanh(0.5 * beta * margins)
        return float(((p - labels) * margins).mean()), float((p * (1 - p) * margins**2).mean())

    return at


def _flattest(slope: Slope) -> float:
    """The β within the range where a rising slope crosses 0, or the end that is nearer to it."""
    low, high = 1 / TEMPERATURE_RANGE, TEMPERATURE_RANGE
    for end, sign in ((low, 1), (high, -1)):
        if sign * slope(end)[0] >= 0:
            return end
    beta = 1.0
    for _ in range(200):
        first, second = slope(beta)
        low, high = (beta, high) if first < 0 else (low, beta)
        step = beta - first / second if second > 0 else 0.0
        following = step if low < step < high else (low * high) ** 0.5
        if abs(following - beta) <= 1e-12 * beta:
            break
        beta = following
    return beta
