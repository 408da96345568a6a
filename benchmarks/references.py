"""Plain NumPy and SciPy beside parts of fastgrl, on the same inputs: the lines of check.py."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from common import inverse_degrees, link_dataset
from numpy.typing import NDArray
from scipy.sparse.linalg import svds
from svd import algorithm_1, walk_operator, walk_products

import fastgrl as fg
from fastgrl.datasets import rmat
from fastgrl.diffusion import diffuse, log_matrix
from fastgrl.kernels import csr_from_scipy, multiply
from fastgrl.node_evaluation import known_only
from fastgrl.push import Walker

Array = NDArray[Any]
Run = Callable[[], Any]
Line = tuple[str, Run, Run]

DATASET = "ppi"
RANK, WINDOW, ROUNDS = 32, 5, 5
DAMPING, STEPS, KEEP, SOURCES = 0.85, 30, 400, 256
IMPORTS = "import numpy, scipy.sparse, sklearn.base"


def inside(folder: Path) -> Iterator[Line]:
    """Lines that are timed in one process: name, the plain reference, ours."""
    adjacency = link_dataset(DATASET)
    yield from products("in cache", adjacency)
    yield from products("out of cache", scipy_of(rmat(17, edge_factor=8)))
    yield walk_svd(adjacency)
    yield push(adjacency)
    yield logarithm(adjacency)
    yield reading(folder)
    yield assembling()
    yield small_embedding()
    yield links(adjacency)
    yield ridge()


def scipy_of(graph: fg.Graph) -> sp.csr_array:
    ones = np.ones(len(graph.indices), np.float32)
    return sp.csr_array((ones, graph.indices, graph.indptr), shape=(graph.num_nodes, graph.num_nodes))


def graph_of(adjacency: sp.csr_array) -> fg.Graph:
    return fg.Graph.from_scipy(adjacency, directed=False)


def products(where: str, adjacency: sp.csr_array) -> Iterator[Line]:
    matrix = csr_from_scipy(adjacency)
    for columns in (16, 64):
        X = np.random.default_rng(0).standard_normal((adjacency.shape[1], columns), dtype=np.float32)
        name = f"product, {columns} columns, {where}: SciPy"
        yield name, partial(adjacency.__matmul__, X), partial(multiply, matrix, X)


def walk_svd(adjacency: sp.csr_array) -> Line:
    forward, backward = walk_products(adjacency, WINDOW)
    operator = walk_operator(adjacency, WINDOW)
    plain = partial(algorithm_1, forward, backward, adjacency.shape[0], ROUNDS)
    return "rank-32 SVD of the walk matrix: Algorithm 1", plain, partial(fg.fsvd, operator, RANK)


def push(adjacency: sp.csr_array) -> Line:
    sources = np.arange(SOURCES, dtype=np.int32)
    walker = Walker.of(graph_of(adjacency), damping=DAMPING)
    return "diffusion rows: SciPy", partial(plain_rows, adjacency, sources), partial(walker.rows, sources)


def plain_rows(adjacency: sp.csr_array, sources: Array) -> Array:
    """(1-a) Σ aⁱ Tⁱ of some rows, step by step, and all but the largest entries of each set to 0."""
    back = (sp.diags_array(inverse_degrees(adjacency)) @ adjacency).T.tocsr()
    X = np.zeros((adjacency.shape[0], len(sources)), np.float32)
    X[sources, np.arange(len(sources))] = 1
    total = (1 - DAMPING) * X
    for step in range(1, STEPS):
        X = back @ X
        total += (1 - DAMPING) * DAMPING**step * X
    least = np.partition(total, -KEEP, axis=0)[-KEEP]
    return np.where(total >= least, total, 0)


def logarithm(adjacency: sp.csr_array) -> Line:
    diffusion = diffuse(graph_of(adjacency), damping=DAMPING)
    root = diffusion.middle**0.5
    G = (sp.diags_array(root) @ diffusion.left.as_scipy).astype(np.float32).tocsr()
    return "logarithm of the diffusion: SciPy", partial(plain_log, G), partial(log_matrix, diffusion)


def plain_log(G: sp.csr_array) -> sp.csr_array:
    larger = G.maximum(G.T.tocsr()).tocsr()
    larger.setdiag(0)
    larger.data = np.log1p(larger.shape[0] * larger.data)
    return larger


def reading(folder: Path) -> Line:
    path = folder / "many.csv"
    np.savetxt(path, np.random.default_rng(0).integers(30_000, size=(300_000, 2)), fmt="%d", delimiter=",")

    def plain() -> sp.csr_array:
        ids, codes = np.unique(np.loadtxt(path, delimiter=",", dtype=np.int64), return_inverse=True)
        return plain_rows_of(*codes.reshape(-1, 2).T, len(ids))

    return "reading 300,000 edges: loadtxt, unique, SciPy", plain, partial(fg.read_graph, path)


def plain_rows_of(u: Array, v: Array, num_nodes: int) -> sp.csr_array:
    ones, ends = np.ones(2 * len(u), np.int8), (np.append(u, v), np.append(v, u))
    return sp.coo_array((ones, ends), shape=(num_nodes, num_nodes)).tocsr()


def assembling() -> Line:
    u, v = np.random.default_rng(0).integers(20_000, size=(2, 200_000)).astype(np.int32)
    ours = partial(fg.Graph.from_codes, u, v, num_nodes=20_000)
    return "pairs to rows: SciPy", partial(plain_rows_of, u, v, 20_000), ours


def small_embedding() -> Line:
    graph = rmat(8, edge_factor=6)
    matrix = scipy_of(graph)
    ours = fg.LinkPredictor(design="degree-walk", n_components=16, select=False)
    return (
        "embedding of a thousand edges: svds of A",
        partial(svds, matrix, 16, rng=0),
        partial(ours.fit, graph),
    )


def links(adjacency: sp.csr_array) -> Line:
    graph, size = graph_of(adjacency), adjacency.shape[0]
    plain = partial(algorithm_1, *walk_products(adjacency, WINDOW), size, 20)
    return "log-diffusion: Algorithm 1, 20 rounds", plain, partial(fg.LinkPredictor(select=False).fit, graph)


def ridge() -> Line:
    cora = fg.load_dataset("cora")
    y = known_only(cora.y, cora.train)
    ours = fg.NodeClassifier(select=False)

    def plain() -> Array:
        A = scipy_of(cora.graph) + sp.eye_array(cora.graph.num_nodes, dtype=np.float32)
        root = sp.diags_array(1 / np.sqrt(A.sum(1)))
        hops = root @ A @ root
        Z = (hops @ (hops @ cora.X)).toarray()
        known, targets = Z[cora.train], np.eye(1 + cora.y.max(), dtype=np.float32)[cora.y[cora.train]]
        return Z @ np.linalg.solve(known.T @ known + np.eye(Z.shape[1], dtype=np.float32), known.T @ targets)

    return "co-ridge on cora: ridge on two hops", plain, partial(ours.fit, cora.graph, y, features=cora.X)


def commands(folder: Path) -> Iterator[tuple[str, list[str], list[str]]]:
    """Lines that are timed as processes, in CPU seconds."""
    bare = [sys.executable, "-c", IMPORTS]
    few = folder / "few.csv"
    np.savetxt(few, np.random.default_rng(0).integers(300, size=(1000, 2)), fmt="%d", delimiter=",")
    ours = [sys.executable, "-m", "fastgrl"]
    options = ["--design", "degree-walk", "--rank", "16", "--threads", "1", "--quiet", "--force"]
    yield "start: bare imports of NumPy, SciPy, scikit-learn", bare, [*ours, "--version"]
    vectors = ["-o", str(folder / "few.npy"), *options]
    yield "embed on a thousand edges: bare imports", bare, [*ours, "embed", str(few), *vectors]
