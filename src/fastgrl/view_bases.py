"""Coordinates of all nodes in each view: smoothed features in a subspace of the largest variation."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any

import numpy as np

from fastgrl.certificates import Certificate, certificate
from fastgrl.checks import Array
from fastgrl.devices import applied, current_place
from fastgrl.filters import (
    averaging_matrix,
    filter_coefficients,
    filtered,
    flows,
    renormalised_matrix,
    smoothed,
    typed,
    undirected,
)
from fastgrl.fsvd import SVD, fsvd
from fastgrl.linalg import NUMPY, map_chunks, sum_over_chunks
from fastgrl.node_models import HopBasis, NodeInputs
from fastgrl.operators import Operator, as_operator
from fastgrl.similarity import similar_nodes
from fastgrl.views import FeatureMap

NEIGHBOUR_WEIGHT = 0.2
# Of the filter whose result is to be represented: fewer steps than the filters of the views have, since only
# a subspace is sought (25 steps and more iterations gave the same accuracy on random splits).
PROJECTION: dict[str, Any] = {"restart": 0.15, "steps": 8}
MOST_EXACT_COLUMNS = 600
_ITERATIONS = 2


@dataclass(frozen=True, eq=False)
class Frame:
    """What makes coordinates of smoothed rows of unit norm: Z = (rows − centre) / scale."""

    centre: Array
    scale: float


@dataclass(frozen=True, eq=False)
class Coordinates:
    """Z (n×k, float32), the norms rows were divided by, and the frame."""

    Z: Array
    norms: Array
    frame: Frame


@dataclass(frozen=True, eq=False)
class Surroundings:
    """The matrices that a graph and the features of its nodes give, each made once."""

    inputs: NodeInputs
    features: FeatureMap
    dtype: Any = np.float32

    @functools.cached_property
    def averaging(self) -> Operator:
        """D̃⁻¹(A+I), along which beliefs are smoothed; its values are those of Â if there are any."""
        return averaging_matrix(self._flows, dtype=np.float32)

    @functools.cached_property
    def _flows(self) -> Any:
        return typed(flows(self.inputs.graph), self.dtype)

    @functools.cached_property
    def _plain(self) -> Operator:
        return renormalised_matrix(self._flows, dtype=self.dtype)

    @functools.cached_property
    def _with_similar(self) -> Operator:
        similar = NEIGHBOUR_WEIGHT * similar_nodes(self.of("i"))
        return renormalised_matrix(undirected(self.inputs.graph) + similar, dtype=self.dtype)

    def warm(self) -> None:
        """Make what several threads are going to need, once."""
        self._plain, self.averaging  # noqa: B018

    def operator(self, view: str) -> Operator:
        """Â of a view."""
        return self._with_similar if view == "k" else self._plain

    def of(self, view: str) -> Any:
        """F of a view."""
        return self.features.features(self.inputs, view, dtype=self.dtype)

    def projected(self, view: str, projection: Array) -> Array:
        """B = F V, n×k, an array of its own."""
        F = self.of(view)
        if is_identity(projection):
            return _dense(F, self.dtype)
        return applied(as_operator(F), projection.astype(self.dtype))

    def coordinates(self, view: str, B: Array, *, restart: float, frame: Frame | None = None) -> Coordinates:
        """Z of a view from B, in its memory; with a frame that was found before, or one found here.

        That has mean 0 and RMS norm 1.
        """
        H = smoothed(self.operator(view), B, restart=restart, overwrite=True)
        norms = _unit_rows(H)
        found = _frame(H) if frame is None else frame
        _put_in_frame(H, found)
        return Coordinates(H, norms, found)

    def basis(self, view: str, projection: Array, restart: float, frame: Frame) -> HopBasis:
        """How the coordinates come about, hop by hop."""
        return HopBasis(
            self.operator(view),
            self.of(view),
            filter_coefficients(restart),
            projection.astype(self.dtype),
            unit_rows=True,
            centre=frame.centre,
            scale=frame.scale,
            kinds=("structure",) * len(projection) if view == "s" else None,
        )


def _unit_rows(H: Array) -> Array:
    """Scale the rows of H in place, rows of zeros excepted; what they were divided by."""
    norms = np.empty(len(H))

    def rows(begin: int, end: int) -> None:
        h = H[begin:end]
        squares = np.einsum("ij,ij->i", h, h)
        norms[begin:end] = np.where(squares > 0, np.sqrt(squares, dtype=np.float64), 1.0)
        h /= norms[begin:end, None].astype(H.dtype)

    map_chunks(rows, len(H), 4 * H.size)
    return norms


def _put_in_frame(H: Array, frame: Frame) -> None:
    centre, scale = frame.centre.astype(H.dtype), H.dtype.type(frame.scale)

    def rows(begin: int, end: int) -> None:
        h = H[begin:end]
        h -= centre
        h /= scale

    map_chunks(rows, len(H), 4 * H.size)


def _frame(H: Array) -> Frame:
    n = len(H)
    centre = NUMPY.column_sums(H) / n

    def squares(begin: int, end: int) -> Array:
        return np.array([np.einsum("ij,ij->", H[begin:end], H[begin:end])], np.float64)

    total = float(sum_over_chunks(squares, n, 4 * H.size)[0])
    spread = np.sqrt(max(total / n - float(centre @ centre), 0.0))
    return Frame(centre, float(spread) if spread > 1e-6 else 1.0)


def projection_of(surroundings: Surroundings, view: str, *, rank: int, seed: int) -> Array:
    """V (d×k): the leading right singular vectors of g_.15(Â)F, 8 steps, exact for up to 600 columns.

    No more than `rank`, and no fewer than there are if they are fewer than `rank`: V is then the identity.
    """
    d = surroundings.inputs.num_columns
    if d <= rank:
        return np.eye(d, dtype=np.float32)
    F, S, n = surroundings.of(view), surroundings.operator(view), surroundings.inputs.num_nodes
    if d <= MOST_EXACT_COLUMNS:
        H = _dense(F, np.float32)
        del F
        H = smoothed(S, H, **PROJECTION, overwrite=True)
        vectors = np.linalg.eigh(_gram(H))[1][:, ::-1][:, :rank]
        return np.ascontiguousarray(vectors * NUMPY.signs(vectors), np.float32)
    rank = min(rank, n)
    return np.ascontiguousarray(_factorised(S, F, rank, seed)[1].Vt.T, np.float32)


def _gram(H: Array) -> Array:
    """H'H in float64."""
    place = current_place()
    if place is None:
        return NUMPY.cross(H, H)
    there = place.put(H)
    return place.seam.cross(there, there)


def _factorised(S: Operator, F: Any, rank: int, seed: int) -> tuple[Operator, SVD]:
    M = filtered(S, F, **PROJECTION)
    return M, fsvd(M, rank, n_iter=_ITERATIONS, seed=seed)


def certify_projection(surroundings: Surroundings, view: str, projection: Array) -> Certificate:
    """How much of the smoothed features the subspace holds, measured."""
    M = filtered(surroundings.operator(view), surroundings.of(view), **PROJECTION)
    V = projection.astype(M.dtype)
    Y = M @ V
    squares, W = np.linalg.eigh(NUMPY.cross(Y, Y))
    largest = float(squares[-1])
    kept = np.flatnonzero(squares > 1e-10 * largest)[::-1]  # of the others only rounding is known
    kept = kept if largest > 0 else np.array([len(squares) - 1])  # features that say nothing
    values, W = np.sqrt(np.maximum(squares[kept], 0.0)), W[:, kept]
    U = Y @ (W / np.where(values > 0, values, 1.0)).astype(M.dtype)
    return certificate(M, SVD(U, values.astype(M.dtype), np.ascontiguousarray((V @ W.astype(M.dtype)).T)))


def is_identity(projection: Array) -> bool:
    """Whether a projection leaves features as they are: there are no more of them than may be kept."""
    rows, columns = projection.shape
    return rows == columns and bool((projection == np.eye(rows)).all())


def _dense(F: Any, kind: Any) -> Array:
    """F, which nobody else has, as an array by rows."""
    return np.ascontiguousarray(F if isinstance(F, np.ndarray) else F.toarray(), kind)
