"""Node classification from folder to folder: co-ridge with one view and one setting, on workers.

The steps are those of `view_bases` and `self_training`; what is done to the rows of a chunk is done by the
same functions, and what is left to the caller are k×k systems and the labels that are known.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from fastgrl.checks import Array, integer
from fastgrl.co_ridge import STRUCTURE_WALK
from fastgrl.co_ridge_grids import (
    DEFAULT_BALANCE,
    DEFAULT_RESTART,
    DEFAULT_ROUNDS,
    FEW_NODES,
    LARGE,
    RESTARTS,
    recipe_for,
)
from fastgrl.distributed.addresses import Address
from fastgrl.distributed.clusters import Cluster
from fastgrl.distributed.engines import Pending
from fastgrl.distributed.features import feature_map, load_features, scaled_features
from fastgrl.distributed.graphs import DistributedGraph
from fastgrl.distributed.known_labels import Known, read_held_out, read_known
from fastgrl.distributed.loading import load_graph
from fastgrl.distributed.rows import DistributedRows
from fastgrl.distributed.talls import Tall
from fastgrl.distributed.writing import Result, write_blocks, write_columns
from fastgrl.errors import ArgumentError
from fastgrl.filters import filtered, smoothed
from fastgrl.fsvd import fsvd
from fastgrl.io.layout import Options
from fastgrl.jkn_features import WALK_RANK
from fastgrl.leaves import Diagonal, Identity, Matrix
from fastgrl.node_models import row_norms
from fastgrl.normalisations import power_or_zero
from fastgrl.operators import Operator, as_operator
from fastgrl.progress import Progress, portions
from fastgrl.ridge import RidgeFit, moments_of, solved
from fastgrl.self_training import (
    LABELLED_SHARE,
    LATER_RIDGE,
    SMOOTHING,
    Squash,
    _above_mean,
    _sureness,
)
from fastgrl.stopwatch import Stopwatch
from fastgrl.view_bases import _ITERATIONS, MOST_EXACT_COLUMNS, PROJECTION
from fastgrl.walks import walk

NOT_CHOSEN = (
    "on a cluster nothing is chosen without validation nodes: one view and the usual settings, probabilities "
    "as they come"
)


@dataclass(frozen=True)
class Recipe:
    """One setting of co-ridge."""

    rank: int
    restart: float
    ridge: float
    balance: float
    rounds: int

    @classmethod
    def of(cls, num_nodes: int, **given: Any) -> Recipe:
        """The usual values for a large graph, where none are given."""
        usual = recipe_for(max(num_nodes, FEW_NODES))
        values = {"rank": usual.rank, "restart": DEFAULT_RESTART, "ridge": usual.default_ridge}
        values |= {"balance": DEFAULT_BALANCE, "rounds": DEFAULT_ROUNDS}
        return cls(**values | {name: value for name, value in given.items() if value is not None})

    def alternatives(self, given: dict[str, Any]) -> list[Recipe]:
        """Every restart and ridge to choose from, where none are given."""
        restarts = RESTARTS if given.get("restart") is None else (self.restart,)
        ridges = LARGE.ridges if given.get("ridge") is None else (self.ridge,)
        return [replace(self, restart=a, ridge=gamma) for a in restarts for gamma in ridges]


def classify_folder(
    cluster: Cluster,
    edges: str,
    out: str,
    *,
    labels: str,
    validation: str | None = None,
    features: str | None = None,
    id_column: str | None = None,
    label_columns: tuple[str | None, str | None] = (None, None),
    missing_features: str | None = None,
    directed: bool = False,
    options: Options | None = None,
    seed: int = 0,
    force: bool = False,
    progress: Progress | None = None,
    **given: Any,
) -> dict[str, Any]:
    """Classify the nodes of a folder of Parquet edge lists: a folder of tables with id, class, probability.

    `labels` is a file of ids and labels, `features` a folder of Parquet files with a row for every node.
    `validation` is another file of ids and labels, of nodes that are not trained on: restart and ridge are
    those that tell them best. Rank, balance and rounds, and without `validation` these two as well, are the
    usual ones unless `given`. A node has one class.
    """
    result = Result(out, force, inputs=(edges, features))
    result.check()
    watch = Stopwatch()
    graph = load_graph(cluster, edges, options=options, directed=directed)
    known = read_known(graph, labels, label_columns)
    held = None if validation is None else read_held_out(graph, validation, label_columns, known)
    known = known if held is None else known.without(held.nodes)
    recipe = Recipe.of(graph.num_nodes, **given)
    integer("rank", recipe.rank, least=1)
    watch.stop("read")
    flow = Flow.of(graph)
    fitting, training = portions(progress, [2, 1])
    if features is None:
        F: Tall | DistributedRows = _walk_rows(graph, seed, fitting)
    else:
        X = load_features(graph, features, id_column=id_column, missing=missing_features)
        F = scaled_features(X, feature_map(X))
    figures: dict[str, Any] | None = None
    if held is None:
        beliefs = trained(flow, coordinates(flow, F, recipe, seed=seed), known, recipe, training)
    else:
        beliefs, recipe, accuracy = best_of(
            recipe.alternatives(given), flow, F, known, held, training, seed=seed
        )
        figures = {"accuracy": accuracy, "nodes": len(held.nodes)}
    watch.stop("fit")
    files = _written(graph, beliefs, known, result)
    watch.stop("write")
    return {
        "nodes": graph.num_nodes,
        "edges": graph.num_edges,
        "labelled": len(known.nodes),
        "classes": list(known.classes),
        "features": None if features is None else F.shape[1],
        "design": "co-ridge",
        "chosen": recipe.__dict__,
        "validation": figures,
        "seed": seed,
        "blocks": len(graph.csr.parts),
        "out": out,
        "files": files,
        "seconds": watch.seconds,
        "notices": [NOT_CHOSEN] if held is None else [],
    }


@dataclass(frozen=True, eq=False)
class Flow:
    """The matrices along which features and beliefs flow: Â, and the mean over a node and its neighbours."""

    symmetric: Operator
    averaging: Operator

    @classmethod
    def of(cls, graph: DistributedGraph) -> Flow:
        """Of a graph, both ways along its edges."""
        if graph.directed and graph.weighted:
            raise ArgumentError(
                "on a cluster directed graphs are classified without weights: pass unweighted"
            )
        A: Operator = Matrix(graph.csr, name="A")
        d: Any = graph.degrees
        if graph.weighted:
            mean = (
                float(graph.degrees.sum(functools.partial(np.sum, axis=0, keepdims=True))[0])
                / graph.facts.stored
            )
            A = Matrix(graph.csr.scaled(np.dtype(np.float32)), name="A") / mean
            d = d / mean
        if graph.directed:
            A, d = A + Matrix(graph.csr.transposed, name="A'"), d + graph.in_degrees
        looped, n = 1.0 + d, graph.num_nodes
        root, inverse = (looped.map(how, columns=None, dtype=np.float32) for how in (_root, _inverse))
        both = A + Identity(n)
        return cls(Diagonal(root) @ both @ Diagonal(root), Diagonal(inverse) @ both)


def _root(d: Array) -> Array:
    return power_or_zero(d, -0.5).astype(np.float32)


def _inverse(d: Array) -> Array:
    return power_or_zero(d, -1.0).astype(np.float32)


def _walk_rows(graph: DistributedGraph, seed: int, progress: Progress | None) -> Tall:
    """The walk vectors of nodes without features, rows to unit norm."""
    rank = min(WALK_RANK, graph.num_nodes)
    svd = fsvd(walk(graph, **STRUCTURE_WALK), rank, seed=seed, progress=progress)  # type: ignore[arg-type]
    roots = np.sqrt(svd.s)
    both = graph.cluster.seam.concatenate([svd.U * roots, svd.Vt.T * roots], 1)
    return both.map(unit_rows, columns=both.columns, dtype=np.float32)  # type: ignore[no-any-return]


def unit_rows(rows: Array) -> Array:
    """Rows of unit norm, rows of zeros excepted."""
    return np.asarray(rows / row_norms(rows)[:, None].astype(rows.dtype))


def coordinates(flow: Flow, F: Tall | DistributedRows, recipe: Recipe, *, seed: int) -> Tall:
    """Z: smoothed features in a subspace of the largest variation, rows of unit norm, centred, RMS norm 1."""
    B = _projected(flow, F, recipe.rank, seed)
    smooth: Any = smoothed(flow.symmetric, B, restart=recipe.restart)
    H: Tall = smooth.map(unit_rows, columns=B.columns, dtype=np.float32)
    _ = H.futures
    seam, n = H.cluster.seam, len(H)
    centre = seam.column_sums(H) / n
    total = float(H.sum(sum_of_squares)[0])
    spread = np.sqrt(max(total / n - float(centre @ centre), 0.0))
    scale = float(spread) if spread > 1e-6 else 1.0
    Z = H.map(functools.partial(framed, centre=centre, scale=scale), columns=H.columns, dtype=np.float32)
    _ = Z.futures
    return Z


def sum_of_squares(rows: Array) -> Array:
    """All squares, as an array of one."""
    return np.array([np.einsum("ij,ij->", rows, rows)], np.float64)


def framed(rows: Array, centre: Array, scale: float) -> Array:
    """(rows − centre) / scale."""
    return np.asarray((rows - centre.astype(rows.dtype)) / rows.dtype.type(scale))


def _projected(flow: Flow, F: Tall | DistributedRows, rank: int, seed: int) -> Tall:
    """F V for the leading right singular vectors V of the smoothed features; F itself if it is narrow."""
    d, seam = F.shape[1], F.cluster.seam
    operator = as_operator(F)
    if d <= rank:
        return F if isinstance(F, Tall) else operator @ F.cluster.spread(np.eye(d, dtype=np.float32))
    if d <= MOST_EXACT_COLUMNS:
        dense = F if isinstance(F, Tall) else operator @ F.cluster.spread(np.eye(d, dtype=np.float32))
        H = smoothed(flow.symmetric, dense, **PROJECTION)
        V = np.linalg.eigh(seam.cross(H, H))[1][:, ::-1][:, :rank].astype(np.float32)
    else:
        M = filtered(flow.symmetric, F, **PROJECTION)
        V = seam.host(
            fsvd(M, min(rank, len(F.plan.bounds) and F.shape[0]), n_iter=_ITERATIONS, seed=seed).Vt
        ).T
    return operator @ F.cluster.spread(np.ascontiguousarray(V, np.float32))  # type: ignore[no-any-return]


@dataclass(frozen=True, eq=False)
class _Labelled:
    """The labels as blocks: n×C labels, n×1 who is labelled, n×1 weights that sum to 1."""

    labels: Tall
    mask: Tall
    weights: Tall

    @classmethod
    def of(cls, like: Tall, known: Known) -> _Labelled:
        seam, n, m = like.cluster.seam, len(like), len(known.nodes)

        def spread(rows: Array) -> Tall:
            found: Tall = seam.spread_rows(like.cluster.spread(rows), known.nodes, n)
            return found

        return cls(
            spread(known.labels),
            spread(np.ones((m, 1), np.float32)),
            spread(np.full((m, 1), 1 / m, np.float64)),
        )


def trained(flow: Flow, Z: Tall, known: Known, recipe: Recipe, progress: Progress | None) -> Tall:
    """n×C beliefs after all rounds of self-training."""
    labelled = _Labelled.of(Z, known)
    beliefs = _believed(Z, labelled.weights, labelled.labels, recipe.ridge, known)
    for done in range(recipe.rounds):
        Q = _clamped(smoothed(flow.averaging, _clamped(beliefs, labelled), **SMOOTHING), labelled)
        w = _weights(Q, labelled, recipe.balance)
        beliefs = _believed(Z, w, Q, LATER_RIDGE * recipe.ridge, known)
        if progress is not None:
            progress(done + 1, recipe.rounds)
    return beliefs


def best_of(
    recipes: Sequence[Recipe],
    flow: Flow,
    F: Tall | DistributedRows,
    known: Known,
    held: Known,
    progress: Progress | None,
    *,
    seed: int,
) -> tuple[Tall, Recipe, float]:
    """Beliefs, recipe and accuracy of the one that tells most validation nodes, the first of equals."""
    truth, best = held.labels.argmax(axis=1), None
    coordinates_at = functools.lru_cache(maxsize=1)(
        lambda restart: coordinates(flow, F, replace(recipes[0], restart=restart), seed=seed)
    )
    for recipe, part in zip(recipes, portions(progress, [1] * len(recipes)), strict=True):
        beliefs = trained(flow, coordinates_at(recipe.restart), known, recipe, part)
        seam = beliefs.cluster.seam
        told = seam.host(seam.take_rows(beliefs, held.nodes)).argmax(axis=1)
        accuracy = float((told == truth).mean())
        if best is None or accuracy > best[2]:
            best = beliefs, recipe, accuracy
    assert best is not None
    return best


def _believed(Z: Tall, w: Tall, Q: Tall, ridge: float, known: Known) -> Tall:
    """Solve the weighted ridge, and make beliefs of its scores."""
    C = len(known.classes)
    moments = Z.sum(weighted_moments, w, Q)
    fit = solved(moments, w.sum(weighted_sums, Q), ridge=ridge)
    P = Z.map(functools.partial(scores_of, fit=fit), columns=C, dtype=np.float32)
    _ = P.futures
    seam, free = P.cluster.seam, len(P) - len(known.nodes)
    total = float(P.sum(_above_mean)[0])
    own = float(_above_mean(seam.host(seam.take_rows(P, known.nodes)))[0])
    scale = (total - own) / free if free else total / len(P)
    beliefs = P.map(Squash(max(scale, 1e-6)), columns=C, dtype=np.float32)
    _ = beliefs.futures
    return beliefs


def scores_of(rows: Array, fit: RidgeFit) -> Array:
    """The scores of some nodes."""
    return fit.scores(rows)


def weighted_moments(Z: Array, w: Array, Q: Array) -> Array:
    """[Z'diag(w)Z, Z'w, Z'diag(w)Q] of some rows."""
    return moments_of(Z, np.sqrt(w).astype(Z.dtype), Q)


def weighted_sums(w: Array, Q: Array) -> Array:
    """Q'w of some rows."""
    return np.asarray(w[:, 0] @ Q.astype(np.float64))


def _clamped(Q: Tall, labelled: _Labelled) -> Tall:
    """Known labels in the place of beliefs."""
    made = Q.map(clamped, labelled.labels, labelled.mask, columns=Q.columns, dtype=np.float32)
    _ = made.futures
    return made


def clamped(Q: Array, labels: Array, mask: Array) -> Array:
    """Rows of labels where the mask says so."""
    return np.where(mask > 0, labels, Q).astype(np.float32)


def _weights(Q: Tall, labelled: _Labelled, balance: float) -> Tall:
    """.7 for all unlabelled nodes together, by how sure they are, .3 for the labelled; then the balance."""
    sure = Q.map(sureness, labelled.mask, columns=1, dtype=np.float64)
    total = float(sure.sum(column_sum)[0])
    share = LABELLED_SHARE if total > 0 else 1.0
    w = (sure * ((1 - share) / total) if total > 0 else sure) + labelled.weights * share
    _ = w.futures
    if balance > 0:
        sizes = w.sum(weighted_sums, Q)
        factors = np.where(sizes > 0, np.maximum(sizes, 1e-12) ** -balance, 0.0)
        w = w.map(functools.partial(balanced, factors=factors), Q, columns=1, dtype=np.float64)
    w = w / float(w.sum(column_sum)[0])
    _ = w.futures
    return w  # type: ignore[no-any-return]


def sureness(Q: Array, mask: Array) -> Array:
    """How sure a belief is, 0 for labelled nodes."""
    return np.where(mask[:, 0] > 0, 0.0, _sureness(Q, False))[:, None]


def column_sum(w: Array) -> Array:
    """The sum of some weights."""
    return np.asarray(w.sum(axis=0, dtype=np.float64))


def balanced(w: Array, Q: Array, factors: Array) -> Array:
    """w_i Σ_c Q_ic N_c^-κ."""
    return np.asarray(w * (Q @ factors)[:, None])


def _written(graph: DistributedGraph, beliefs: Tall, known: Known, result: Result) -> list[str]:
    ids, blocks = graph.ids, beliefs.futures
    return write_blocks(
        graph.cluster,
        result,
        lambda i, path: Pending(write_classes, (path, ids[i], blocks[i], known.classes)),
        len(blocks),
    )


def write_classes(path: Address, ids: Array, beliefs: Array, classes: Sequence[str]) -> None:
    """Classes and probabilities of a block of nodes as a Parquet file."""
    chosen = beliefs.argmax(axis=1)
    names = np.empty(len(classes), object)
    names[:] = list(classes)
    sure = beliefs[np.arange(len(chosen)), chosen].astype(np.float64)
    write_columns(path, {"id": ids, "class": names[chosen], "probability": sure})
