"""Skip-gram with negative sampling in one set of vectors, trained by Adam on mini-batches, in plain NumPy.

Reference: Mikolov, Sutskever, Chen, Corrado, Dean, *Distributed Representations of Words and Phrases and
their Compositionality*, 2013; Kingma, Ba, *Adam: A Method for Stochastic Optimization*, 2015.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp
from scipy.special import expit

from fastgrl.baselines.outcomes import Progress
from fastgrl.checks import Array
from fastgrl.parallel import parallel_map

# Pairs whose vectors are gathered at a time, rows of a step of Adam, and parts of a batch whose gradients
# are added at the end: few enough to stay in the cache, and the same for any number of threads.
_PAIRS, _ROWS, _PARTS = 4096, 2048, 2
_KEEP_MEAN, _KEEP_SQUARE, _EPSILON = 0.9, 0.999, 1e-8  # Adam's own


def skip_gram(
    contexts: Callable[[np.random.Generator], Array],
    num_nodes: int,
    *,
    rank: int,
    negative: int,
    epochs: int,
    seed: int,
    learning_rate: float = 0.01,
    batch_size: int = 128,
    scale: float = 0.1,
    progress: Progress | None = None,
) -> Array:
    """Vectors z, n×k, that make −log σ(z_u·z_v) small for contexts v of u, −log σ(−z_u·z_w) for others w.

    `contexts` is called once for each epoch and gives the contexts v of each node, n×m node numbers (−1:
    none); w are `negative` times as many nodes, each as likely as any other. Both sums are means over a batch
    of nodes u, and vectors begin with normal entries of deviation `scale`. The same seed gives the same bits
    for any number of threads.
    """
    rng = np.random.Generator(np.random.Philox(seed))
    adam = _Adam.of(np.float32(scale) * rng.standard_normal((num_nodes, rank), np.float32), learning_rate)
    for epoch in range(epochs):
        near = contexts(rng)
        nodes = rng.permutation(np.flatnonzero((near >= 0).any(1)))
        for first in range(0, len(nodes), batch_size):
            u = nodes[first : first + batch_size]
            far = rng.integers(num_nodes, size=(len(u), negative * near.shape[1]), dtype=np.int64)
            adam.step(_gradient(adam.vectors, u, near[u], far))
        if progress is not None:
            progress(epoch + 1, epochs)
    return adam.vectors


@dataclass(frozen=True, eq=False)
class _Part:
    """Some nodes of a batch with their contexts and others; what a pair counts is by kind."""

    nodes: Array
    near: Array
    far: Array
    shares: tuple[float, float]

    def gradient(self, Z: Array) -> Array:
        """n×k: of the pairs' other ends by one sparse product, of the nodes themselves on the way."""
        others = np.concatenate([np.maximum(self.near, 0), self.far], axis=1)
        count, size = others.shape
        slopes, own = np.empty((count, size), np.float32), np.empty((count, Z.shape[1]), np.float32)
        width = max(1, _PAIRS // size)
        for piece in (slice(first, first + width) for first in range(0, count, width)):
            z = Z[others[piece]]
            slopes[piece] = self._slopes(
                np.matmul(z, Z[self.nodes[piece], :, None])[..., 0], self.near[piece]
            )
            own[piece] = np.matmul(slopes[piece, None, :], z)[:, 0]
        rows = np.arange(0, others.size + 1, size)
        pairs = sp.csr_array((slopes.ravel(), others.ravel(), rows), shape=(count, len(Z)))
        found: Array = pairs.T @ Z[self.nodes]
        found[self.nodes] += own  # a node is in a batch once
        return found

    def _slopes(self, products: Array, near: Array) -> Array:
        slopes, m = expit(products), near.shape[1]
        slopes[:, :m] = np.where(near >= 0, slopes[:, :m] - 1, 0)
        slopes[:, :m] *= self.shares[0]
        slopes[:, m:] *= self.shares[1]
        return slopes


def _gradient(Z: Array, nodes: Array, near: Array, far: Array) -> Array:
    shares = 1 / max(1, int((near >= 0).sum())), 1 / max(1, far.size)
    cuts = [cut for cut in np.array_split(np.arange(len(nodes)), _PARTS) if len(cut)]
    parts = [_Part(nodes[cut], near[cut], far[cut], shares) for cut in cuts]
    first, *rest = parallel_map(lambda part: part.gradient(Z), parts)
    for other in rest:
        first += other
    return first


@dataclass(eq=False)
class _Adam:
    vectors: Array
    learning_rate: float
    mean: Array
    square: Array
    steps: int = 0

    @classmethod
    def of(cls, vectors: Array, learning_rate: float) -> _Adam:
        return cls(vectors, learning_rate, np.zeros_like(vectors), np.zeros_like(vectors))

    def step(self, gradient: Array) -> None:
        self.steps += 1
        length = self.learning_rate * np.sqrt(1 - _KEEP_SQUARE**self.steps) / (1 - _KEEP_MEAN**self.steps)
        cuts = [slice(first, first + _ROWS) for first in range(0, len(gradient), _ROWS)]
        parallel_map(lambda rows: self._step(gradient[rows], rows, np.float32(length)), cuts)

    def _step(self, gradient: Array, rows: slice, length: np.float32) -> None:
        mean, square = self.mean[rows], self.square[rows]
        mean += np.float32(1 - _KEEP_MEAN) * (gradient - mean)
        gradient *= gradient
        square += np.float32(1 - _KEEP_SQUARE) * (gradient - square)
        self.vectors[rows] -= length * mean / (np.sqrt(square) + np.float32(_EPSILON))
