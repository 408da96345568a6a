"""Approximate search for the largest dot products, with the extra `[ann]` (usearch: a navigable graph, HNSW).

The index only proposes: what it finds is scored again in float64 and ranked as the exact search ranks. What
it misses is missed, so measure it: `measured_recall`. An index built by one thread is the same each time, bit
for bit; built by several it depends on which thread was first. Searching does not change with threads.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import Any

import numpy as np

from fastgrl.checks import Array, finite_array, integer, shown, size
from fastgrl.errors import ArgumentError, InputError, MissingExtraError, ShapeError, UnavailableError
from fastgrl.graph import Graph
from fastgrl.io.atomic import StrPath, named, whole_file
from fastgrl.parallel import thread_count, use_threads
from fastgrl.ranking import Best, best_candidates, dot_block, node_numbers

# Nodes that need this share of all candidates or more, to have k left beside their known links, are ranked
# exactly: there a walk through the index costs as much as a matrix product.
_EXACT_SHARE = 1 / 8

_BLOCK_BYTES = 64 << 20
_WRITTEN_BYTES = 1 << 20


def build_index(right: Any, *, connectivity: int = 16, expansion: int = 128, n_threads: int = 1) -> Any:
    """An index of the rows of `right` (n×d), kept as float32, for the largest dot products with them.

    connectivity: links per row in the index, and expansion: candidates weighed when a row is put in. More of
        either finds more, takes longer, and connectivity takes memory.
    n_threads: with 1 the same rows give the same index; with more it is built faster.

    >>> from fastgrl.neighbours import build_index
    >>> len(build_index(np.eye(5)))
    5
    """
    vectors = _vectors(right, "right")
    index = _index_class()(
        ndim=vectors.shape[1],
        metric="ip",
        dtype="f32",
        connectivity=integer("connectivity", connectivity, least=2),
        expansion_add=integer("expansion", expansion, least=1),
    )
    threads = integer("n_threads", n_threads, least=1)
    if len(vectors):
        index.add(np.arange(len(vectors), dtype=np.uint64), vectors, threads=threads)
    return index


def search(index: Any, vectors: Any, *, count: int, n_threads: int | None = None) -> Array:
    """Rows that the index finds for the largest dot products with each vector: (q, count), -1 if fewer.

    >>> from fastgrl.neighbours import build_index, search
    >>> search(build_index(np.diag([1.0, 2.0, 3.0])), np.ones((1, 3)), count=4)
    array([[ 2,  1,  0, -1]])
    """
    queries, count = _vectors(vectors, "vectors"), integer("count", count, least=1)
    if queries.shape[1] != index.ndim:
        raise ShapeError(f"the index holds vectors of {index.ndim} numbers, got {size(queries.shape)}")
    codes = np.full((len(queries), count), -1)
    wanted = min(count, len(index))
    if codes.size and wanted:
        # One query alone would be answered in another form than several.
        asked = np.vstack([queries, queries[:1]])
        with use_threads(n_threads):
            found = index.search(asked, wanted, threads=thread_count())
        valid = np.arange(wanted) < np.asarray(found.counts)[:-1, None]
        codes[:, :wanted] = np.where(valid, found.keys[:-1].astype(np.int64), -1)
    return codes


def approximate_candidates(
    index: Any,
    queries: Any,
    *,
    left: Any,
    right: Any,
    k: int,
    known: Graph | None,
    symmetric: bool = True,
    n_threads: int | None = None,
) -> Best:
    """For each query about the k candidates with the largest left_u · right_v; known links are left out.

    The index is asked for k and as many more as the query has known links. Scores are dot products in
    float64. Queries with very many links, or for which the index finds too few, are ranked exactly. Arguments
    and result are those of `best_candidates`; `index` was built of `right`.

    >>> from fastgrl.neighbours import approximate_candidates, build_index
    >>> x, graph = np.diag([1.0, 2.0, 3.0]) + 1, fg.Graph.from_edges([(0, 2)], nodes=range(3))
    >>> approximate_candidates(build_index(x), [0], left=x, right=x, k=2, known=graph).codes
    array([[ 1, -1]])
    """
    L, R = _pair_of_sides(index, left, right)
    rows, k = node_numbers(queries, "queries", len(R)), integer("k", k, least=1)
    best = Best(np.full((len(rows), k), -1), np.full((len(rows), k), -np.inf))
    fetched = _links_to_skip(rows, len(R), known, symmetric) + k + 1
    quick = np.flatnonzero(fetched <= _EXACT_SHARE * len(R))
    for count, places in _groups(fetched, quick, _BLOCK_BYTES // (8 * max(1, R.shape[1]))):
        nodes = rows[places]
        codes = search(index, L[nodes], count=count, n_threads=n_threads)
        hidden = _hidden(codes, nodes, known, symmetric)
        best.codes[places], best.scores[places] = _ranked(codes, hidden, L[nodes], R, k)
    short = np.flatnonzero(best.codes[:, -1] < 0)
    exact = best_candidates(
        dot_block(L, R),
        rows[short],
        num_nodes=len(R),
        k=k,
        known=known,
        symmetric=symmetric,
        n_threads=n_threads,
    )
    best.codes[short], best.scores[short] = exact.codes, exact.scores
    return best


def measured_recall(
    index: Any,
    left: Any,
    right: Any,
    *,
    k: int,
    sample: int = 200,
    seed: int = 0,
    n_threads: int | None = None,
) -> float:
    """The share of the exact k best candidates that the approximate search finds, over `sample` random nodes.

    >>> from fastgrl.neighbours import build_index, measured_recall
    >>> x = np.random.default_rng(0).standard_normal((200, 4))
    >>> measured_recall(build_index(x), x, x, k=5) > 0.9
    True
    """
    L, R = _pair_of_sides(index, left, right)
    count = min(integer("sample", sample, least=1), len(R))
    rng = np.random.Generator(np.random.Philox(integer("seed", seed, least=0)))
    nodes = rng.choice(len(R), count, replace=False)
    truth = best_candidates(dot_block(L, R), nodes, num_nodes=len(R), k=k, known=None, n_threads=n_threads)
    found = approximate_candidates(index, nodes, left=L, right=R, k=k, known=None, n_threads=n_threads)
    total = int((truth.codes >= 0).sum())
    hits = sum(len(np.intersect1d(a[a >= 0], b)) for a, b in zip(truth.codes, found.codes, strict=True))
    return hits / total if total else 1.0


def save_index(index: Any, path: StrPath) -> str:
    """Write the index to a file, whole or not at all, and return the SHA-256 that `load_index` asks for."""
    content = memoryview(index.save())
    with whole_file(path) as file:
        for begin in range(0, len(content), _WRITTEN_BYTES):
            file.write(content[begin : begin + _WRITTEN_BYTES])
    return hashlib.sha256(content).hexdigest()


def load_index(path: StrPath, *, shape: tuple[int, int], sha256: str) -> Any:
    """The index of a file, mapped rather than read; it must be that of `shape` vectors and of that SHA-256.

    The sum comes first: usearch follows the links in the file as they are, and one wrong byte can end the
    process.
    """
    if _digest(path) != sha256:
        raise InputError(
            f"{named(path)} is not the index that was saved: its SHA-256 differs; build it again"
        )
    try:
        index = _index_class().restore(path, view=True)
    except (RuntimeError, ValueError) as error:
        raise InputError(f"{named(path)} is not an index: {shown(str(error), limit=80)}") from error
    found = (len(index), index.ndim)
    if found != tuple(shape):
        raise InputError(f"{named(path)} is an index of {size(found)} vectors, not {size(shape)}")
    return index


def _digest(path: StrPath) -> str:
    try:
        with open(path, "rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except FileNotFoundError:
        raise InputError(f"there is no file {named(path)}") from None
    except OSError as error:
        raise UnavailableError(f"{named(path)} cannot be read: {error.strerror}") from error


def _index_class() -> Any:
    try:
        from usearch.index import Index
    except ImportError:
        raise MissingExtraError("approximate search needs usearch: pip install 'fastgrl[ann]'") from None
    return Index


def _vectors(values: Any, name: str) -> Array:
    vectors = finite_array(values, name, ndim=2)
    if not vectors.shape[1]:
        raise ShapeError(f"{name} must have at least one column, got {size(vectors.shape)}")
    with np.errstate(over="ignore"):
        single = np.ascontiguousarray(vectors, dtype=np.float32)
    if not np.isfinite(single).all():
        raise ArgumentError(f"{name} has numbers that float32 cannot hold; divide it by a constant")
    return single


def _pair_of_sides(index: Any, left: Any, right: Any) -> tuple[Array, Array]:
    L, R = finite_array(left, "left", ndim=2), finite_array(right, "right", ndim=2)
    if L.shape != R.shape or R.shape != (len(index), index.ndim):
        shapes = f"left is {size(L.shape)}, right {size(R.shape)}"
        raise ShapeError(f"{shapes}, and the index holds {size((len(index), index.ndim))}; they must agree")
    return L, R


def _links_to_skip(rows: Array, num_nodes: int, known: Graph | None, symmetric: bool) -> Array:
    if known is None:
        return np.zeros(len(rows), np.int64)
    if known.num_nodes != num_nodes:
        raise ShapeError(f"known has {known.num_nodes} nodes, but there are {num_nodes} vectors")
    counts: Array = np.diff(known.indptr)[rows]
    if known.directed and symmetric:
        counts = counts + np.bincount(known.indices, minlength=known.num_nodes)[rows]
    return counts


def _groups(fetched: Array, places: Array, most: int) -> Iterator[tuple[int, Array]]:
    """Queries that are asked for equally many, a power of two, in blocks of at most `most` answers."""
    counts = 2 ** np.ceil(np.log2(fetched[places])).astype(np.int64)
    for count in np.unique(counts).tolist():
        alike, step = places[counts == count], max(1, most // count)
        for begin in range(0, len(alike), step):
            yield count, alike[begin : begin + step]


def _hidden(codes: Array, nodes: Array, known: Graph | None, symmetric: bool) -> Array:
    """Answers that are none, the query itself, or a known link of it."""
    queries, answers = np.repeat(nodes, codes.shape[1]), np.maximum(codes, 0).ravel()
    hidden = (codes.ravel() < 0) | (answers == queries)
    if known is not None:
        hidden |= known.has_edges(queries, answers)
        if known.directed and symmetric:
            hidden |= known.has_edges(answers, queries)
    shaped: Array = hidden.reshape(codes.shape)
    return shaped


def _ranked(codes: Array, hidden: Array, left: Array, right: Array, k: int) -> tuple[Array, Array]:
    found = right[np.maximum(codes, 0)].astype(np.float64)
    scores = np.einsum("qd,qcd->qc", left.astype(np.float64), found)
    scores[hidden] = -np.inf
    codes = np.where(hidden, -1, codes)
    order = np.lexsort((codes, -scores), axis=1)[:, :k]
    return np.take_along_axis(codes, order, axis=1), np.take_along_axis(scores, order, axis=1)
