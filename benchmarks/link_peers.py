"""Other libraries' embeddings as functions of a `fastgrl.Graph`, with every setting worth trying.

Turning the graph into what a peer wants is part of its function, and so on its clock. What a fit gives is a
set of scores by name: functions from node numbers of pairs to one number each. Vectors score by dot product
and by cosine; whoever compares takes the better of the two.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

import fastgrl as fg
from fastgrl.baselines import netmf, node2vec
from fastgrl.metrics import roc_auc
from fastgrl.parallel import thread_count

Array = NDArray[Any]
Score = Callable[[Array], Array]  # node numbers of pairs → one number each
Scores = dict[str, Score]  # by the name of the score

DIMENSIONS = 64
WINDOWS = {"soc-facebook": 5, "ppi": 5, "ca-HepTh": 20, "ca-AstroPh": 20}
CLEORA_ITERATIONS = (1, 2, 3, 4, 5, 8, 10, 20, 40)


@dataclass(frozen=True)
class Entry:
    """One setting of one contender."""

    name: str
    setting: str
    fit: Callable[[fg.Graph], Scores]
    slow: bool = False


def dot_product(left: Array, right: Array, pairs: Array) -> Array:
    return np.einsum("ij,ij->i", left[pairs[:, 0]], right[pairs[:, 1]])


def vector_scores(vectors: Array) -> Scores:
    units = vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)
    return {"dot": partial(dot_product, vectors, vectors), "cosine": partial(dot_product, units, units)}


def vectors_of(method: Callable[..., Array], **settings: Any) -> Callable[[fg.Graph], Scores]:
    return lambda graph: vector_scores(method(graph, DIMENSIONS, **settings))


def test_auc(score: Score, data: Any) -> float:
    return 100 * roc_auc(score(data.test), score(data.test_negatives))


def cleora(graph: fg.Graph, *, iterations: int, whiten: bool, propagation: str) -> Scores:
    from pycleora import SparseMatrix, embed

    lines = (f"{u} {v}" for u, v in graph.edge_codes().tolist())
    matrix = SparseMatrix.from_iterator(lines, "complex::reflexive::node")
    found = embed(matrix, DIMENSIONS, iterations, propagation=propagation, whiten=whiten)
    vectors = np.zeros((graph.num_nodes, DIMENSIONS), np.float32)
    vectors[[int(node) for node in matrix.entity_ids]] = found
    return vector_scores(vectors)


def cleora_entries() -> Iterator[Entry]:
    """Whitening after every iteration is what its documentation recommends; without it is far faster."""
    for whiten, name in ((True, "pycleora"), (False, "pycleora, unwhitened")):
        for propagation in ("left", "symmetric"):
            for count in CLEORA_ITERATIONS:
                fit = partial(cleora, iterations=count, whiten=whiten, propagation=propagation)
                yield Entry(name, f"{propagation}, {count} iterations", fit)


def network(graph: fg.Graph, *, kind: str, **settings: Any) -> Scores:
    import sknetwork.embedding

    model = getattr(sknetwork.embedding, kind)(DIMENSIONS, **settings)
    return vector_scores(model.fit_transform(sp.csr_matrix(graph.to_scipy())))


def network_entries() -> Iterator[Entry]:
    for kind in ("Spectral", "GSVD"):
        # Of unit length as recommended, where dot and cosine are the same, and of their own length.
        for normalized in (True, False):
            fit = partial(network, kind=kind, normalized=normalized)
            yield Entry(f"scikit-network {kind}", "unit length" if normalized else "own length", fit)


def projection_entries() -> Iterator[Entry]:
    """Its defaults are 3 iterations and α = ½, along A; more iterations, longer walks, and along D⁻¹A."""
    for random_walk, matrix in ((False, "A"), (True, "D⁻¹A")):
        for alpha in (0.5, 1.0):
            for count in (3, 10):
                settings = {"alpha": alpha, "n_iter": count, "random_walk": random_walk, "random_state": 0}
                yield Entry(
                    "scikit-network projection",
                    f"{matrix}, α = {alpha:g}, {count} iterations",
                    partial(network, kind="RandomProjection", normalized=False, **settings),
                )


def node2vec_entries(name: str) -> Iterator[Entry]:
    for epochs in (1, 2, 5, 10):
        settings = {"window": WINDOWS[name], "epochs": epochs, "n_threads": thread_count()}
        yield Entry(
            "gensim node2vec", f"C = {WINDOWS[name]}, {epochs} epochs", vectors_of(node2vec, **settings), True
        )


def netmf_entries(name: str) -> Iterator[Entry]:
    for variant in ("exact", "eigen"):
        fit = vectors_of(netmf, window=WINDOWS[name], variant=variant)
        yield Entry(f"NetMF {variant}", f"C = {WINDOWS[name]}", fit, name != "ppi")


def truncated(graph: fg.Graph, **settings: Any) -> Scores:
    from sklearn.decomposition import TruncatedSVD

    model = TruncatedSVD(DIMENSIONS, random_state=0, **settings)
    return vector_scores(model.fit_transform(sp.csr_matrix(graph.to_scipy())))


def truncated_entries() -> Iterator[Entry]:
    """Of the adjacency matrix; its default is randomized with 5 iterations."""
    for count in (0, 2, 5, 10):
        fit = partial(truncated, algorithm="randomized", n_iter=count)
        yield Entry("sklearn TruncatedSVD", f"randomized, {count} iterations", fit)
    yield Entry("sklearn TruncatedSVD", "arpack", partial(truncated, algorithm="arpack"))


def installed(optional: Iterable[tuple[str, Callable[[], Iterator[Entry]]]]) -> list[Entry]:
    """The entries of packages that are there; importing them is not on the clock."""
    found: list[Entry] = []
    for package, make in optional:
        try:
            importlib.import_module(package)
        except ImportError:
            print(f"not installed: {package}")
        else:
            found += make()
    return found
