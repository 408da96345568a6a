"""The implicit walk matrices of link prediction, their factors, and the rows of nodes that come later.

With H = c₁I + c₂T + … + c_C T^(C-1) the weighted walk of C steps is H T, and λA = λD T is one of its products
already. So each matrix below costs C sparse products per block, in either direction, and nothing n×n is
ever stored.

Reference: Abu-El-Haija, Crespi, Ver Steeg, Galstyan, *Fast Graph Learning with Unique Optimal Solutions*,
2021.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, cast, get_args

import numpy as np
import scipy.sparse as sp

from fastgrl.checks import Array, checked_dtype, integer, shown, size
from fastgrl.errors import ArgumentError, DtypeError, NotFiniteError, ShapeError
from fastgrl.fsvd import SVD, Progress, fsvd
from fastgrl.fused import Fused
from fastgrl.graph import Graph
from fastgrl.kernels import CSR, csr_from_scipy, multiply
from fastgrl.leaves import Diagonal, Identity, Matrix, Ones
from fastgrl.linalg import seam_of
from fastgrl.normalisations import adjacency, power_or_zero, transition
from fastgrl.operators import Operator, Polynomial, settle
from fastgrl.parallel import single_threaded_blas, use_threads
from fastgrl.polynomials import polynomial

Design = Literal["walk", "degree-walk", "as-released"]
DEFAULT_NEGATIVE: dict[str, float] = {"walk": 1.0, "degree-walk": 3.0, "as-released": 3.0}

# Sums of products with random blocks stay this far below the largest number of the type.
_HEADROOM = 2.0**10
_PANEL_BYTES = 32 << 20
_PANEL_COLUMNS = 16


def window_weights(window: int) -> Array:
    """cᵢ = C − i + 1 for i = 1 … C, C being `window`: the nearer, the heavier.

    >>> from fastgrl.walks import window_weights
    >>> window_weights(3)
    array([3., 2., 1.])
    """
    return np.arange(integer("window", window, least=1), 0, -1.0)


def walk(graph: Graph, *, window: int = 5, negative: float = 1.0, dtype: Any = "float32") -> Operator:
    """M = Σ cᵢTⁱ − λ(11' − A), i = 1 … C, as the paper prints it, as an operator.

    `window` is C, `negative` is λ; cᵢ = C − i + 1 and T = D⁻¹A. It is computed as (H + λD) T − λ11', in C
    sparse products per block of type `dtype`, in either direction.

    >>> from fastgrl.walks import walk
    >>> graph = fg.Graph.from_edges([("a", "b")])
    >>> walk(graph, window=2, negative=1.0) @ np.eye(2)
    array([[0., 2.], [2., 0.]])
    """
    d = _degrees(graph, window, negative, dtype)
    c = window_weights(window)
    formula = f"({_hops_formula(c)} + {negative:g}·D) T − {negative:g}·11'"
    return _Walk(transition(graph, dtype=dtype), tuple(c), float(negative), formula, extra=negative * d)


def degree_walk(graph: Graph, *, window: int = 5, negative: float = 3.0, dtype: Any = "float32") -> Operator:
    """M = D Σ cᵢTⁱ − λ(11' − A), i = 1 … C, with walks that start in proportion to degree, as an operator.

    `window` is C, `negative` is λ; computed as D (H + λI) T − λ11'. Symmetric for an undirected graph, where
    one product serves both directions. D holds the row sums of A if the graph is directed. `dtype` is that of
    its products.

    >>> from fastgrl.walks import degree_walk
    >>> star = fg.Graph.from_edges([("a", "b"), ("a", "c")])
    >>> degree_walk(star, window=1, negative=0.0) @ np.eye(3)
    array([[0., 1., 1.], [1., 0., 0.], [1., 0., 0.]])
    """
    d = _degrees(graph, window, negative, dtype, times_degree=True)
    first, *later = window_weights(window).tolist()
    c = (first + negative, *later)  # λA = λD T
    formula = f"D ({_hops_formula(np.array(c))}) T − {negative:g}·11'"
    T = transition(graph, dtype=dtype)
    return _Walk(T, c, float(negative), formula, post=d, symmetric=not graph.directed)


@dataclass(frozen=True, eq=False, repr=False)
class _Walk(Fused):
    """diag(post) (Σ c_i T^(i-1) + diag(extra)) T − λ11', with all that is added in the passes over T."""

    step: Operator
    coefficients: tuple[float, ...]
    negative: float
    formula: str
    extra: Array | None = None
    post: Array | None = None
    symmetric: bool = False
    transposed: bool = False

    def __post_init__(self) -> None:
        kind = self.step.dtype
        scales = {
            name: None if value is None else value.astype(kind)
            for name, value in (("extra", self.extra), ("post", self.post))
        }
        settle(self, shape=self.step.shape, dtype=kind, **scales)

    def _multiply(self, X: Any) -> Any:
        shift = -self.negative * seam_of(X).column_sums(X)
        T, c = cast(Matrix, self.step), np.array(self.coefficients)
        if not self.transposed:
            scales: dict[str, Any] = {"row_scale": T.row_scale, "extra": self.extra, "post": self.post}
            return polynomial(T.a, X, c, shift=shift, **scales)
        # T' = a'R with R = diag(row_scale), so T'(Σ c_i T'^(i-1) + E) = a'(Σ c_i (R a')^(i-1) + E) R
        for scale in (self.post, T.row_scale):
            X = X if scale is None else scale[:, None] * X
        Z = polynomial(T.a.transposed, X, c, row_scale=T.row_scale, extra=self.extra, walked=False)
        return multiply(T.a.transposed, Z, shift=shift)

    @property
    def T(self) -> Operator:
        if self.symmetric:
            return self
        formula = self.formula[1:-2] if self.transposed else f"({self.formula})'"
        return replace(self, formula=formula, transposed=not self.transposed)

    @property
    def spelt_out(self) -> Operator:
        """(H + diag(extra)) T, times diag(post) from the left, less λ11': C products with T as well."""
        H = _weighted_hops(self.step, self.coefficients)
        H = H if self.extra is None else H + Diagonal(self.extra)
        walks: Operator = H @ self.step
        walks = walks if self.post is None else Diagonal(self.post) @ walks
        M = walks - self.negative * Ones(self.shape)
        return M.T if self.transposed else M


def _hops_formula(coefficients: Array) -> str:
    """c₁I + c₂T + … as mathematics writes it."""
    if len(coefficients) == 1:
        return f"{coefficients[0]:g}I"
    later = Polynomial(Matrix(np.zeros((1, 1)), name="T"), coefficients[1:].tolist()).formula
    return f"{coefficients[0]:g}I + {later}"


def as_released(graph: Graph, *, window: int = 5, negative: float = 3.0, dtype: Any = "float32") -> Operator:
    """The two products of the published program, which are not the transpose of each other.

    Forward Σ cᵢTⁱD − λ(11' − A), backward D Σ cᵢTⁱ − λ(11' − A), i = 1 … C. Factorise it with `fsvd(…,
    method="subspace", n_iter=20, block_size=2 * rank, check=False)` and score `U[u] * s @ V[v]` to get the
    published rows. `window` is C, `negative` is λ, `dtype` that of the products. The `graph` must be
    undirected.

    >>> from fastgrl.walks import as_released
    >>> as_released(fg.Graph.from_edges([("a", "b"), ("a", "c")]), window=1).shape
    (3, 3)
    """
    if graph.directed:
        raise ArgumentError(f'as-released knows undirected graphs only, not {graph!r}; use "degree-walk"')
    backward = degree_walk(graph, window=window, negative=negative, dtype=dtype)
    d = _degrees(graph, window, negative, dtype, times_degree=True)
    T, A = transition(graph, dtype=dtype), adjacency(graph, dtype=dtype)
    forward = Polynomial(T, window_weights(window).tolist()) @ Diagonal(d.astype(dtype)) - negative * (
        Ones(T.shape) - A
    )
    return TwoProducts(forward, backward)


@dataclass(frozen=True, eq=False, repr=False)
class TwoProducts(Operator):
    """The product of one matrix forwards, and of another as if it were the transpose."""

    forward: Operator
    backward: Operator

    def __post_init__(self) -> None:
        shape, formula = self.forward.shape, self.forward.formula
        settle(self, shape=shape, dtype=self.backward.dtype, formula=formula)

    def _multiply(self, X: Any) -> Any:
        return self.forward._multiply(X)

    @property
    def T(self) -> Operator:
        return TwoProducts(self.backward, self.forward)


def degree_power(graph: Graph, *, power: float, dtype: Any = "float32") -> Operator:
    """D^-a A D^-a as an operator, `power` being a; rows of nodes without edges are zero.

    A directed graph has row degrees on the left and column degrees on the right.

    >>> from fastgrl.walks import degree_power
    >>> star = fg.Graph.from_edges([("a", "b"), ("a", "c")])
    >>> degree_power(star, power=0.5, dtype="float64") @ np.ones((3, 1))
    array([[1.41421356], [0.70710678], [0.70710678]])
    """
    kind, a = _float(dtype), finite_number("power", power)
    with np.errstate(over="ignore", invalid="ignore"):
        left, right = (power_or_zero(d, -a) for d in (graph.degrees, graph.in_degrees))
        if graph.weights is None:
            rows, columns = left.astype(kind), right.astype(kind)
            product: Operator = Matrix(graph.csr, row_scale=rows, name="(D^-a A)") @ Diagonal(columns)
            return product
        values = graph.weights * np.repeat(left, np.diff(graph.indptr)) * right[graph.indices]
        values = values.astype(kind)
    _refuse_size(graph, float(np.abs(values).max(initial=0)), kind, f"power = {a:g}")
    return Matrix(CSR(graph.indptr, graph.indices, values, graph.csr.shape, kind), name="(D^-a A D^-a)")


def _hops(T: Operator, window: int) -> Operator:
    """H with the weights of a window."""
    return _weighted_hops(T, window_weights(window).tolist())


def _weighted_hops(T: Operator, coefficients: Sequence[float]) -> Operator:
    """H = c₁I + c₂T + … + c_C T^(C-1)."""
    first, *later = coefficients
    start: Operator = first * Identity(T.shape[0], T.dtype)
    return start + Polynomial(T, later) if later else start


def _degrees(graph: Graph, window: int, negative: float, dtype: Any, *, times_degree: bool = False) -> Array:
    """The degrees, if M as a whole fits into the working type."""
    kind, lam = _float(dtype), finite_number("negative", negative, least=0.0)
    total, (smallest, largest) = float(window_weights(window).sum()), graph.degree_span
    reach = (total + lam) * largest if times_degree else total + lam * largest
    _refuse_size(graph, reach + lam * graph.num_nodes, kind, f"λ = {lam:g}")
    least = float(np.finfo(np.float64).tiny)
    if smallest < least or (times_degree and 0 < largest < np.finfo(kind).tiny):
        what = f"a node's weights add up to {min(smallest, largest):.3g}, too little for {kind}"
        raise ArgumentError(f"{what} (the largest weight is {_largest(graph)}); multiply them by a constant")
    return graph.degrees


def _refuse_size(graph: Graph, reach: float, kind: np.dtype[Any], setting: str) -> None:
    if not reach < float(np.finfo(kind).max) / _HEADROOM:
        raise ArgumentError(
            f"entries of about {reach:.3g} are too large for {kind}; divide the weights by a constant "
            f"(the largest weight is {_largest(graph)}, {setting})"
        )


def _largest(graph: Graph) -> str:
    return f"{graph.largest_weight:.3g}"


def _float(dtype: Any) -> np.dtype[Any]:
    kind = checked_dtype(dtype)
    if kind is None:
        raise ArgumentError("dtype must be float32 or float64")
    return kind


def finite_number(name: str, value: Any, *, least: float = -np.inf) -> float:
    """`value` as a float that is neither NaN nor infinite, nor below `least`."""
    real = isinstance(value, int | float | np.integer | np.floating) and not isinstance(value, bool)
    if not real or not np.isfinite(value) or value < least:
        limit = f" of at least {least:g}" if np.isfinite(least) else ""
        raise ArgumentError(f"{name} must be a finite number{limit}, got {shown(value)}")
    return float(value)


@dataclass(frozen=True, eq=False)
class Factors:
    """M ≈ left right', n×rank each: the pair (u, v) scores `left[u] · right[v]`.

    `svd` is that of `operator`, which is M. left = U s^½ and right = V s^½ of a walk, or U s and V as
    released.
    """

    operator: Operator
    svd: SVD
    left: Array
    right: Array


_OPERATORS: dict[str, Callable[..., Operator]] = {
    "walk": walk,
    "degree-walk": degree_walk,
    "as-released": as_released,
}


def checked_design(design: Any) -> Design:
    """One of "walk", "degree-walk" and "as-released"."""
    if design not in get_args(Design):
        names = ", ".join(f'"{name}"' for name in get_args(Design))
        raise ArgumentError(f"design must be one of {names}, got {shown(design)}")
    known: Design = design
    return known


def factorise(
    graph: Graph,
    design: Design = "walk",
    *,
    rank: int,
    window: int = 5,
    negative: float | None = None,
    seed: int = 0,
    start: Any = None,
    n_iter: int | None = None,
    progress: Progress | None = None,
    n_threads: int | None = None,
) -> Factors:
    """The factors of rank `rank` of the walk matrix of a `graph`, for `window` C and `negative` λ.

    `negative` None is the design's own λ: 1 for walk, 3 for the others. `start` is an earlier SVD (or n×p
    block) to begin from; `n_iter`, `seed`, `progress` and `n_threads` are those of `fsvd`. "as-released" runs
    the published program's own iteration: 20 rounds of Algorithm 1 with 2 rank columns.

    >>> from fastgrl.walks import factorise
    >>> factors = factorise(fg.Graph.from_edges([(0, 1), (1, 2), (2, 0), (2, 3)]), rank=2)
    >>> factors.left.shape, factors.right.shape
    ((4, 2), (4, 2))
    """
    how: dict[str, Any] = {"seed": seed, "start": start, "n_iter": n_iter, "progress": progress}
    M, svd = walk_svd(graph, design, rank=rank, window=window, negative=negative, n_threads=n_threads, **how)
    s, share = svd.s, _left_share(design)
    return Factors(M, svd, svd.U * s**share, svd.Vt.T * s ** (1 - share))


def walk_svd(
    graph: Graph,
    design: Design = "walk",
    *,
    rank: int,
    window: int = 5,
    negative: float | None = None,
    n_iter: int | None = None,
    **how: Any,
) -> tuple[Operator, SVD]:
    """The walk matrix and its singular value decomposition, as `factorise` does it; `how` goes to `fsvd`."""
    lam = DEFAULT_NEGATIVE[checked_design(design)] if negative is None else negative
    M = _OPERATORS[design](graph, window=window, negative=lam)
    if design == "as-released":
        how |= {"method": "subspace", "n_iter": 20 if n_iter is None else n_iter, "check": False}
        how["block_size"] = 2 * integer("rank", rank, least=1)
    else:
        how["n_iter"] = n_iter
    return M, fsvd(M, rank, **how)


def _left_share(design: str) -> float:
    """The p of left = U s^p, right = V s^(1-p)."""
    return 1.0 if design == "as-released" else 0.5


def fold_in(
    factors: Factors,
    graph: Graph,
    *,
    new: Any,
    incoming: Any = None,
    design: Design = "walk",
    window: int = 5,
    negative: float | None = None,
    n_threads: int | None = None,
) -> tuple[Array, Array, Array]:
    """Vectors for new nodes, through all hops, without a refit: `(left, right, trust)`.

    `factors` are those of `graph`, made with the same `design`, `window` and `negative`. `new` is a sparse
    p×n array of the weights from new nodes to those of `graph`; a directed graph takes the other direction in
    `incoming`, p×n too. With a_u such a row, d_u its sum and t_u = a_u / d_u, the new row of M is m_u = t_u H
    − λ(1 − a_u) (times d_u in front of H for "degree-walk"), the new column likewise, left_u = m_u V s^-½ and
    right_u = s^-½ U' m^u. A copy of an old node gets that node's vectors.

    `trust` is ‖m_u V‖² / ‖m_u‖², the share of the new row that the fitted subspace holds: 0 to 1. Nodes
    without an edge get zeros.

    >>> from fastgrl.walks import factorise, fold_in
    >>> graph = fg.Graph.from_edges([(0, 1), (1, 2), (2, 0), (2, 3)])
    >>> copy = graph.to_scipy()[[3]]
    >>> left, right, trust = fold_in(factorise(graph, rank=2), graph, new=copy)
    >>> np.allclose(left, factorise(graph, rank=2).left[3], atol=1e-5)
    True
    """
    lam = DEFAULT_NEGATIVE[checked_design(design)] if negative is None else negative
    fold = _Fold.of(factors, graph, design, window, lam)
    out = _new_rows(new, graph, "new", fold.kind)
    into = out if incoming is None else _new_rows(incoming, graph, "incoming", fold.kind)
    if graph.directed == (incoming is None) or out.shape != into.shape:
        raise ArgumentError(
            f"new is {size(out.shape)}, incoming {'None' if incoming is None else size(into.shape)}: a "
            "directed graph needs both, of one shape, and an undirected one takes new alone"
        )
    width = max(_PANEL_COLUMNS, _PANEL_BYTES // max(1, graph.num_nodes * fold.kind.itemsize))
    with use_threads(n_threads), single_threaded_blas():
        cuts = [slice(first, first + width) for first in range(0, max(1, out.shape[0]), width)]
        left, right, trust = zip(*(fold.panel(out[cut], into[cut]) for cut in cuts), strict=True)
    return np.concatenate(left), np.concatenate(right), np.concatenate(trust)


@dataclass(frozen=True, eq=False)
class _Fold:
    """What new rows of M meet: H, the degrees of the old nodes as a column, and the fitted subspace."""

    svd: SVD
    H: Operator
    degrees: Array
    directed: bool
    times_degree: bool
    negative: float
    share: float

    @classmethod
    def of(cls, factors: Factors, graph: Graph, design: str, window: int, negative: float) -> _Fold:
        svd, n = factors.svd, graph.num_nodes
        if svd.U.shape[0] != n:
            raise ShapeError(f"factors of {svd.U.shape[0]} nodes do not belong to {graph!r}")
        times_degree = design != "walk"
        _degrees(graph, window, negative, svd.U.dtype, times_degree=times_degree)
        H = _hops(transition(graph, dtype=svd.U.dtype), window)
        d = graph.degrees[:, None]
        return cls(svd, H, d, graph.directed, times_degree, float(negative), _left_share(design))

    @property
    def kind(self) -> np.dtype[Any]:
        """The number type of the factors."""
        kind: np.dtype[Any] = self.svd.U.dtype
        return kind

    def panel(self, out: sp.csr_array, into: sp.csr_array) -> tuple[Array, Array, Array]:
        """The vectors of a few new nodes; their rows of M are the columns of an n×p block here."""
        U, s, Vt = self.svd
        s = np.where(s > 100 * np.finfo(s.dtype).eps * s.max(initial=0), s, 0)  # 1 / rounding is no answer
        with np.errstate(over="ignore", invalid="ignore"):
            row, column = self._rows_and_columns(out, into)
            inside = Vt @ row
            left = inside.T * power_or_zero(s, self.share - 1)
            right = (U.T @ column).T * power_or_zero(s, -self.share)
        _refuse_infinite(left, right, out, into)
        left[alone := np.diff(out.indptr) + np.diff(into.indptr) == 0] = 0
        right[alone] = 0
        held, energy = _squares(inside), _squares(row)
        trust = np.divide(held, energy, out=np.zeros_like(held), where=(energy > 0) & ~alone)
        return left, right, np.clip(trust, 0, 1)

    def _rows_and_columns(self, out: sp.csr_array, into: sp.csr_array) -> tuple[Array, Array]:
        """m_u and m^u of each new node."""
        d_new = out.sum(axis=1)
        walks = self.H.T @ self._block(out, power_or_zero(d_new, -1))
        # Both ends of reversibility, d_u (T^i)_ux = d_x (T^i)_xu: no second pass for the columns.
        weighted = walks * d_new
        row = self._without_rest(weighted if self.times_degree else walks, out)
        if not self.directed:
            back = weighted if self.times_degree else weighted * power_or_zero(self.degrees, -1)
            return row, self._without_rest(back, into)
        back = self.H @ self._block(into, power_or_zero(self.degrees, -1))
        return row, self._without_rest(self.degrees * back if self.times_degree else back, into)

    def _without_rest(self, walks: Array, a: sp.csr_array) -> Array:
        """The new rows of M, as columns: walks − λ(1 − a)."""
        return (walks - self.negative * (1 - self._block(a, 1.0))).astype(self.kind)

    def _block(self, rows: sp.csr_array, scale: Any) -> Array:
        """The rows as the columns of a block in the working type, times `scale`."""
        return np.ascontiguousarray(rows.T.toarray() * scale, dtype=self.kind)


def _new_rows(values: Any, graph: Graph, name: str, kind: np.dtype[Any]) -> sp.csr_array:
    if not sp.issparse(values):
        raise DtypeError(f"{name} must be a SciPy sparse array, not {type(values).__name__}")
    rows = csr_from_scipy(values).as_scipy.astype(np.float64)
    rows.eliminate_zeros()
    if rows.shape[1] != graph.num_nodes:
        raise ShapeError(f"{name} must have {graph.num_nodes} columns, one per node, got {size(rows.shape)}")
    limit = float(np.finfo(kind).max) / _HEADROOM
    lowest, highest = rows.data.min(initial=1), rows.data.max(initial=1)
    if lowest < np.finfo(np.float64).tiny or not highest < limit:
        raise ArgumentError(
            f"{name}: weights must be above 0 and fit {kind}, but they go from {lowest:.3g} to {highest:.3g}"
        )
    return rows


def _refuse_infinite(left: Array, right: Array, out: sp.csr_array, into: sp.csr_array) -> None:
    if not (np.isfinite(left).all() and np.isfinite(right).all()):
        largest = max(float(rows.data.max(initial=0)) for rows in (out, into))
        raise NotFiniteError(
            f"the rows of new nodes overflow: the largest new weight is {largest:.3g}, too far from the old "
            "ones; divide the new weights by a constant"
        )


def _squares(block: Array) -> Array:
    """Squared length of every column."""
    squares: Array = np.einsum("ij,ij->j", block, block, dtype=np.float64)
    return squares
