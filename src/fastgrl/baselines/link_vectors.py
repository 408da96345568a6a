"""What methods that give every node a vector share: how a pair scores, and the outcome of a run."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from fastgrl.baselines.outcomes import Outcome
from fastgrl.checks import Array, integer, shown
from fastgrl.datasets.records import LinkDataset
from fastgrl.errors import ArgumentError
from fastgrl.parallel import use_threads
from fastgrl.summaries import peak_memory

Score = Literal["dot", "cosine"]


def pair_scores(vectors: Array, pairs: Array, *, score: Score = "dot") -> Array:
    """z_u·z_v of each pair, or the cosine of the angle between the two (0 if one of them is zero).

    >>> from fastgrl.baselines.link_vectors import pair_scores
    >>> vectors = np.array([[3.0, 4.0], [6.0, 8.0]])
    >>> pair_scores(vectors, np.array([[0, 1]])), pair_scores(vectors, np.array([[0, 1]]), score="cosine")
    (array([50.]), array([1.]))
    """
    if score not in ("dot", "cosine"):
        raise ArgumentError(f'score must be "dot" or "cosine", got {shown(score)}')
    if score == "cosine":
        lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
        vectors = np.divide(vectors, lengths, out=np.zeros_like(vectors), where=lengths > 0)
    pairs = pairs.reshape(-1, 2)
    products: Array = np.einsum("ik,ik->i", vectors[pairs[:, 0]], vectors[pairs[:, 1]])
    return products


@dataclass(frozen=True, eq=False)
class VectorRun:
    """A method to be run on a dataset: `vectors()` trains, and pairs score by `score`."""

    vectors: Callable[[], Array]
    score: Score
    settings: dict[str, Any]
    epochs: int | None = None

    def on(self, dataset: LinkDataset, *, threads: int | None) -> Outcome:
        """Train, score the test edges and non-edges, and say what it took."""
        began = time.perf_counter()
        none = np.empty((0, 2), np.int64)
        pair_scores(np.empty((0, 1)), none, score=self.score)  # refused before the training, not after
        with use_threads(threads if threads is None else integer("threads", threads, least=1)):
            vectors = self.vectors()
        trained = time.perf_counter()
        pairs = np.concatenate([dataset.test.reshape(-1, 2), dataset.test_negatives.reshape(-1, 2)])
        scores = pair_scores(vectors, pairs, score=self.score)
        seconds = {"train": trained - began, "total": time.perf_counter() - began}
        return Outcome(
            scores=scores,
            predictions=None,
            validation=None,
            seconds=seconds,
            settings=self.settings,
            epochs=self.epochs,
            peak_memory_bytes=peak_memory(),
        )
