"""Diffusion rows and vectors of a graph that has grown, from those it had before."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import scipy.sparse as sp

from fastgrl.checks import Array
from fastgrl.diffusion import Diffusion, diffuse, scaled_rows
from fastgrl.graph import Graph
from fastgrl.kernels import CSR
from fastgrl.push import KEEP, LEAST_DEGREE, Walker
from fastgrl.spaces import Space


def with_new_nodes(
    space: Space, graph: Graph, out: Any, into: Any, *, damping: float, keep: int = KEEP
) -> tuple[Space, Array]:
    """The space with p further nodes, and the share of each new row that the fitted subspace holds.

    A walk from a new node u takes one step to nodes that are known, and goes on as theirs do:
    π_u = (1 − a) e_u + a t_u P, with t_u its weights divided by their sum. So all hops are there, and nothing
    is pushed. `out` and `into` are sparse p×n weights of edges from and to the new nodes.
    """
    old = space.diffusion
    unit = 1.0 if graph.weights is None else float(graph.weights.mean()) or 1.0
    d_out, d_in = (np.maximum(_sums(side) / unit, LEAST_DEGREE) for side in (out, into))
    own = (1 - damping) / np.sqrt((d_out + d_in) / 2)
    rows = _first_step(out, old.left, damping, keep)
    columns = rows if old.symmetric else _first_step(into, old.right, damping, keep)
    left, right, trust = _placed(space, rows, columns, d_out, d_in)
    grown_left = _appended(old.left, rows, own)
    diffusion = Diffusion(
        grown_left,
        grown_left if old.symmetric else _appended(old.right, columns, own),
        np.concatenate([old.out_degrees, d_out]),
        np.concatenate([old.in_degrees, d_in]),
        old.volume,  # or the scores of pairs that are known would move
    )
    near = _near(old, out), _near(old, into)
    grown = replace(
        space,
        diffusion=diffusion,
        left=np.concatenate([space.left, left]),
        right=np.concatenate([space.right, right]),
        near=(np.concatenate([space.near[0], near[0]]), np.concatenate([space.near[1], near[1]])),
    )
    return grown, trust


def _near(old: Diffusion, links: Any) -> Array:
    """The mean log degree of the nodes that each new one is joined to."""
    pattern = sp.csr_array((np.ones(links.nnz), links.indices, links.indptr), shape=links.shape)
    return np.asarray(pattern @ np.log(old.middle) / np.maximum(np.diff(links.indptr), 1))


def _sums(rows: Any) -> Array:
    return np.asarray(rows.sum(axis=1), np.float64).ravel()


def _first_step(links: Any, rows: CSR, damping: float, keep: int) -> sp.csr_array:
    """The part a t_u Q of the new rows, its largest entries."""
    sums = _sums(links)
    shares = sp.csr_array(links * (1 / np.where(sums > 0, sums, 1))[:, None])
    found = sp.csr_array((damping * shares).astype(np.float32) @ rows.as_scipy)
    found.sort_indices()
    for u in np.flatnonzero(np.diff(found.indptr) > keep - 1):
        part = found.data[found.indptr[u] : found.indptr[u + 1]]
        part[np.argsort(-part, kind="stable")[keep - 1 :]] = 0
    found.eliminate_zeros()
    return found


def _placed(
    space: Space, rows: sp.csr_array, columns: sp.csr_array, d_out: Array, d_in: Array
) -> tuple[Array, Array, Array]:
    """Left and right vectors of new rows and columns of log(1 + n G): projections onto what was fitted."""
    old, n = space.diffusion, space.size
    half, root_out, root_in = old.middle**0.5, old.out_degrees**0.5, old.in_degrees**0.5
    row = _logs(rows, n * d_out**0.5, half / root_in)
    column = row if rows is columns and old.symmetric else _logs(columns, n * d_in**0.5, half / root_out)
    s = np.where(space.singular_values > 0, space.singular_values, 1)
    inside = np.asarray(row @ space.right) / np.sqrt(s)
    left = inside / np.sqrt(s)
    right = np.asarray(column @ space.left) / s
    energy = np.asarray(row.multiply(row).sum(axis=1), np.float64).ravel()
    trust = (inside.astype(np.float64) ** 2).sum(1) / np.where(energy > 0, energy, 1)
    kind = space.left.dtype
    return left.astype(kind), right.astype(kind), np.clip(trust, 0, 1)


def _logs(rows: sp.csr_array, row_scale: Array, column_scale: Array) -> sp.csr_array:
    scaled = sp.csr_array((rows * column_scale[None, :]) * row_scale[:, None])
    scaled.data = np.log1p(scaled.data)
    return scaled


def _appended(old: CSR, rows: sp.csr_array, own: Array) -> CSR:
    """The old rows, then the new ones, each with itself as its last column."""
    n, p = old.shape[0], rows.shape[0]
    new = sp.hstack([rows, sp.diags_array(own.astype(np.float32))], format="csr")
    indptr = np.concatenate([old.indptr, old.indptr[-1] + new.indptr[1:].astype(np.int64)])
    assert old.values is not None
    return CSR(
        indptr,
        np.concatenate([old.indices, new.indices.astype(np.int32)]),
        np.concatenate([old.values, new.data.astype(np.float32)]),
        (n + p, n + p),
        old.dtype,
    )


def regrown_diffusion(
    old: Diffusion, graph: Graph, changed: Array, *, damping: float, keep: int = KEEP
) -> tuple[Diffusion, int]:
    """The diffusion of a graph whose nodes `changed` have other edges than before, and the rows computed.

    Only rows that reach a changed node are pushed again. The unit of weights depends on all of them, so a
    weighted graph is pushed whole.
    """
    n = graph.num_nodes
    if graph.weights is not None:
        return diffuse(graph, damping=damping, keep=keep), n * (1 + graph.directed)
    walker = Walker.of(graph, damping=damping, keep=keep)
    scale = ((walker.degrees + walker.backward.degrees) / 2) ** -0.5
    left, count = _repushed(old.left, walker, changed, scale)
    right = left
    if graph.directed:
        right, more = _repushed(old.right, walker.backward, changed, scale)
        count += more
    return Diffusion.of(left, right, walker.degrees, walker.backward.degrees), count


def _repushed(old: CSR, walker: Walker, changed: Array, scale: Array) -> tuple[CSR, int]:
    n = len(walker.degrees)
    mark = np.zeros(n, bool)
    mark[changed] = True
    reached = np.zeros(n, bool)
    reached[old.shape[0] :] = True
    hits = np.repeat(np.arange(old.shape[0]), np.diff(old.indptr))[mark[old.indices]]
    reached[hits] = True
    reached[changed] = True
    fresh = scaled_rows(walker.rows(np.flatnonzero(reached).astype(np.int32)), scale)
    order = np.empty(n, np.int64)
    order[~reached], order[reached] = np.flatnonzero(~reached), old.shape[0] + np.arange(reached.sum())
    both = sp.vstack([_widened(old, n), fresh.as_scipy], format="csr")[order]
    rows = sp.csr_array(both)
    result = CSR(
        rows.indptr.astype(np.int64), rows.indices.astype(np.int32, copy=False), rows.data, (n, n), old.dtype
    )
    return result, int(reached.sum())


def _widened(rows: CSR, columns: int) -> sp.csr_array:
    values: Any = rows.values
    return sp.csr_array((values, rows.indices, rows.indptr), shape=(rows.shape[0], columns))
