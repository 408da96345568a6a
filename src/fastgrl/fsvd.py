"""The truncated singular value decomposition of a matrix that is never formed.

Both methods build an orthonormal basis Q for the range of M out of products alone, and end alike: with
`M'Q = P K` for orthonormal P, the SVD of the small K gives the singular triplets of QQ'M.

Reference: Abu-El-Haija, Crespi, Ver Steeg, Galstyan, *Fast Graph Learning with Unique Optimal Solutions*,
2021 (Algorithm 1); Halko, Martinsson, Tropp, *Finding structure with randomness*, 2011; Musco, Musco,
*Randomized block Krylov methods*, 2015.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from typing import Any, Literal, cast

import numpy as np

from fastgrl.checks import integer, shown, size
from fastgrl.devices import current_place
from fastgrl.errors import ArgumentError, DtypeError, FastgrlError, NotFiniteError, ShapeError, TransposeError
from fastgrl.leaves import Function
from fastgrl.linalg import seam_of
from fastgrl.operators import Operator, as_operator, dense_array, held_seam, leaves
from fastgrl.orthonormal import orthonormalise, orthonormalise_blindly
from fastgrl.parallel import single_threaded_blas, use_threads
from fastgrl.seams import Basis, Block, Host, Seam
from fastgrl.spilling import panel_columns, spilling

Method = Literal["krylov", "subspace"]
Progress = Callable[[int, int], None]

# Products of wide blocks go through in panels of about this many bytes, so that a composite's
# intermediate blocks stay small beside the block itself.
_PANEL_BYTES = 8 << 20
_PANEL_COLUMNS = 16
LARGEST_SEED = 2**64 - 1
PROBE_STREAM = 2**32  # random streams of probes, far from those of the iteration


@dataclass(frozen=True, eq=False)
class SVD:
    """U diag(s) Vt, which unpacks: `U, s, Vt = svd`. What `fsvd` returns.

    The sign of each pair of vectors is fixed: the entry of largest absolute value of a column of U is
    positive.

    Attributes:
        U: left singular vectors, r×k with orthonormal columns.
        s: the k largest singular values, largest first.
        Vt: right singular vectors, k×c with orthonormal rows.
        rounds: how many rounds were done after the first.

    >>> svd = fg.fsvd(np.diag([3.0, 2.0, 1.0]), 2)
    >>> svd.U.shape, svd.s.round(6).tolist(), svd.Vt.shape
    ((3, 2), [3.0, 2.0], (2, 3))
    """

    U: Any
    s: Any
    Vt: Any
    rounds: int = 0

    def __iter__(self) -> Iterator[Any]:
        return iter((self.U, self.s, self.Vt))

    def __repr__(self) -> str:
        shape, count = f"{self.U.shape[0]}×{self.Vt.shape[1]}", self.s.shape[0]
        if len(self.s.shape) != 1:
            return f"SVD(a stack of U {size(self.U.shape)}, s {size(self.s.shape)}, Vt {size(self.Vt.shape)})"
        if seam_of(self.s).traces:
            return f"SVD({shape}, rank {count}, traced)"
        values = seam_of(self.s).host(self.s)
        first, last = float(values[0]), float(values[-1])
        return f"SVD({shape}, rank {count}, s = {first:.4g} … {last:.4g}, {self.rounds} rounds)"


def fsvd(
    operator: Any,
    rank: int,
    *,
    method: Method = "krylov",
    n_iter: int | None = None,
    block_size: int | None = None,
    tol: float | None = None,
    start: Any = None,
    seed: int = 0,
    check: bool = True,
    refill: bool = True,
    progress: Progress | None = None,
    n_threads: int | None = None,
) -> SVD:
    """Compute the `rank` largest singular triplets of a matrix M from its products: M ≈ U diag(s) Vt.

    M is never formed. An operator that holds tensors of PyTorch, JAX or TensorFlow gives tensors of the same
    library, type and device, which can be differentiated.

    Args:
        operator: M, r×c: an operator, or anything `as_operator` takes.
        rank: how many triplets, at most min(r, c).
        method: "krylov" keeps every block of a small-block Krylov iteration, "subspace" is Algorithm 1 of the
            paper. Krylov needs several times fewer products, subspace less memory.
        n_iter: rounds after the first (default 8 for krylov, 10 for subspace); each costs one product with M
            and one with M' for every column of the block.
        block_size: columns multiplied at a time (default for krylov max(8, rank / 2), or rank if n_iter is 0;
            for subspace 2 rank).
        tol: stop as soon as no singular value moved by more than this, relative to itself, in a round.
        start: a c×p array, or an earlier `SVD`, whose right vectors begin the iteration.
        seed: same seed, same bits, for any number of threads.
        check: probe operators made of functions for a transpose that does not belong to its product, which is
            a `TransposeError`.
        refill: replace columns that become dependent by random ones, and begin another `n_iter` rounds from
            random columns when as many equal values as the block has columns stand above the last, so that
            repeated singular values are all found; False does neither.
        progress: called as `progress(done, total)` after each product; `total` grows when rounds are added.
        n_threads: threads for the products (default: the CPUs this process may use).

    >>> U, s, Vt = fg.fsvd(np.diag([3.0, 2.0, 1.0]), 2)
    >>> s.round(12)
    array([3., 2.])

    Reference: Abu-El-Haija, Crespi, Ver Steeg, Galstyan, *Fast Graph Learning with Unique Optimal Solutions*,
    2021; Musco, Musco, *Randomized block Krylov methods*, 2015.
    """
    given, seed = as_operator(operator), integer("seed", seed, least=0, most=LARGEST_SEED)
    operator = _where_work_is_done(given)
    plan = _plan(operator, rank, method=method, n_iter=n_iter, block_size=block_size, tol=tol)
    run = _Run(operator, seed, refill, progress, 2 * (plan.n_iter + 1))
    find = _krylov if method == "krylov" else _subspace
    if run.seam.traces and tol is not None:
        raise ArgumentError(
            "tol looks at numbers that are not there yet while a program is traced: set n_iter"
        )
    with use_threads(n_threads), single_threaded_blas():
        with run.seam.detached():
            if check:
                check_transpose(operator, seed=seed)
            run.seam.began({"matrix": repr(operator), "method": method, "seed": seed} | asdict(plan))
            svd = _triplets(run, find(run, plan, _starting_block(run, plan, start)), plan.rank)
        svd = cast(SVD, run.seam.attached(operator, svd))
    return svd if operator is given else _brought_home(run.seam, svd)


def _where_work_is_done(operator: Operator) -> Operator:
    """The operator, or, while a model works on another device, the same with its NumPy arrays there."""
    place = current_place()
    return operator if place is None else cast(Operator, place.moved(operator))


def _brought_home(seam: Seam, svd: SVD) -> SVD:
    U, s, Vt = (seam.host(part) for part in svd)
    return SVD(U, s, Vt, svd.rounds)


def pinv_apply(svd: SVD | tuple[Any, Any, Any], Y: Any, *, rcond: float | None = None) -> Any:
    """Apply the pseudo-inverse, M†Y = V diag(1/s) U'Y, where singular values that are zero give zero.

    `svd` is that of an r×c matrix M, and `Y` is r×p; the result is c×p. Zero means at most `rcond` times the
    largest (default: a hundred times the rounding unit). If the rows of M are independent and the rank
    suffices, W = M†Y is the least-norm solution of M W = Y. Of tensors it can be differentiated.

    >>> fg.pinv_apply(fg.fsvd(np.diag([4.0, 0.0]), 2), np.ones((2, 1))).round(12)
    array([[0.25], [0.  ]])
    """
    U, s, Vt = svd
    Y = dense_array(Y, "Y", ndim=2)
    if Y.shape[0] != U.shape[0]:
        raise ShapeError(f"the pseudo-inverse takes a block of {U.shape[0]} rows, got shape {tuple(Y.shape)}")
    seam = seam_of(U)
    if seam_of(Y).name != seam.name:
        raise DtypeError(f"Y is of {seam_of(Y).name}, but the SVD of {seam.name}")
    with seam.working():
        inverse, V = _inverse_values(seam, s, rcond), seam.transposed(Vt)
        if seam.pseudo_inverse is not None:
            return seam.pseudo_inverse(U, s, V, inverse, Y)
        return seam.times(V, inverse[:, None] * seam.cross(U, Y))


def _inverse_values(seam: Seam, s: Any, rcond: float | None) -> Host:
    """1/s, and 0 for those that are zero."""
    values, small = seam.host(s), seam.small
    limit = 100 * np.finfo(values.dtype).eps if rcond is None else _number("rcond", rcond)
    zero = values <= small.max(values, initial=0) * limit
    inverse: Host = small.where(zero, 0.0, 1.0 / small.where(zero, 1.0, values.astype(seam.sums)))
    return inverse


def check_transpose(operator: Operator, *, seed: int = 0) -> None:
    """Raise `TransposeError` unless ⟨M u, v⟩ = ⟨u, M'v⟩ for a few random u and v.

    Only functions can break the law, so an expression without one costs nothing.
    """
    if not any(isinstance(leaf, Function) for leaf in leaves(operator)):
        return
    seam, (rows, columns), dtype = _seam_for(operator), operator.shape, _working_dtype(operator)
    if seam.traces:
        return
    u = seam.random(columns, 4, dtype, seed, PROBE_STREAM)
    v = seam.random(rows, 4, dtype, seed, PROBE_STREAM + 1)
    Mu, Mv = seam.sync(operator @ u), seam.sync(operator.T @ v)
    _check_finite(operator, Mu, "M X")
    _check_finite(operator, Mv, "M'X")
    scale = taming_scale(max(seam.peak(Mu), seam.peak(Mv)), dtype)
    Mu, Mv = seam.scaled(Mu, scale), seam.scaled(Mv, scale)
    one, other = np.diag(seam.cross(Mu, v)), np.diag(seam.cross(u, Mv))
    a, b, c, d = (np.sqrt(np.diag(seam.cross(X, X))) for X in (Mu, v, u, Mv))
    allowed = 100 * np.finfo(dtype).eps * (a * b + c * d)
    if (np.abs(one - other) > allowed).any():
        worst = int((np.abs(one - other) - allowed).argmax())
        raise TransposeError(
            f"the two products of {operator!r} are not the transpose of each other: "
            f"⟨M u, v⟩ = {one[worst] / scale:.6g} but ⟨u, M'v⟩ = {other[worst] / scale:.6g} for random u, v; "
            f"mend the backward product, or pass check=False if this is meant"
        )


@dataclass(frozen=True)
class _Plan:
    """The arguments of a call, checked and with their defaults filled in."""

    rank: int
    n_iter: int
    block_size: int
    tol: float | None
    eps: float


def _plan(
    operator: Operator,
    rank: int,
    *,
    method: str,
    n_iter: int | None,
    block_size: int | None,
    tol: float | None,
) -> _Plan:
    if method not in ("krylov", "subspace"):
        raise ArgumentError(f'method must be "krylov" or "subspace", got {method!r}')
    krylov, limit = method == "krylov", min(operator.shape)
    rank = integer("rank", rank, least=1)
    if rank > limit:
        raise ArgumentError(f"rank {rank} is above min(shape) = {limit} of {operator!r}")
    tol = None if tol is None else _number("tol", tol)
    if tol is not None and not tol > 0:
        raise ArgumentError(f"tol must be above 0, got {tol!r}")
    rounds = integer("n_iter", (8 if krylov else 10) if n_iter is None else n_iter, least=0)
    usual = max(8, -(-rank // min(2, rounds + 1))) if krylov else 2 * rank
    width = integer("block_size", usual if block_size is None else block_size, least=1)
    columns = width * (rounds + 1 if krylov else 1)
    if columns < rank:
        raise ArgumentError(
            f"block_size={width} with n_iter={rounds} gives {columns} columns for rank {rank}"
        )
    return _Plan(rank, rounds, min(width, limit), tol, float(np.finfo(_working_dtype(operator)).eps))


def _number(name: str, value: Any) -> float:
    """A number, or an array of one."""
    try:
        return float(value)
    except (TypeError, ValueError):
        raise ArgumentError(f"{name} must be a number, got {shown(value)}") from None


@dataclass
class _Run:
    """The two products of one call and the random streams beside them."""

    operator: Operator
    seed: int
    refill: bool
    progress: Progress | None
    total: int
    done: int = 0
    scale: float | None = None  # a power of two that keeps squares inside the floating-point range
    streams: Iterator[int] = field(default_factory=itertools.count)

    def __post_init__(self) -> None:
        self.seam, self.dtype = _seam_for(self.operator), _working_dtype(self.operator)
        self.transpose = self.operator.T

    def forward(self, X: Block, *, consume: bool = False) -> Block:
        """M X; `consume` lets a square M put the product where X was."""
        return self._product(self.operator, X, consume)

    def backward(self, Y: Block, *, consume: bool = False) -> Block:
        """M'Y, likewise."""
        return self._product(self.transpose, Y, consume)

    def orthonormal(self, Y: Block, basis: Basis, source: str = "start") -> tuple[Block, Host]:
        """qr(Y), orthogonal to the basis; never more columns than there are dimensions left."""
        width = min(Y.shape[1], Y.shape[0] - basis.columns)
        if self.seam.traces:
            return orthonormalise_blindly(self.seam, Y, basis, width=width)
        fresh = functools.partial(self.random, Y.shape[0]) if self.refill else None
        try:
            return orthonormalise(self.seam, Y, basis, width=width, fresh=fresh)
        except FloatingPointError as error:
            _check_finite(self.operator, Y, source)
            raise FastgrlError(
                f"{source} spans too many orders of magnitude: scale {self.operator!r}"
            ) from error

    def random(self, rows: int, columns: int) -> Block:
        return self.seam.random(rows, columns, self.dtype, self.seed, next(self.streams))

    def empty(self, rows: int, capacity: int) -> Basis:
        return self.seam.basis(rows, min(rows, capacity), self.dtype)

    def _product(self, M: Operator, X: Block, consume: bool) -> Block:
        def product() -> Block:
            return _in_panels(self.seam, M, X, self.dtype, consume)

        Y = self.seam.sync(self.seam.remembered(self.done, product))
        self.done += 1
        if self.progress is not None:
            self.progress(self.done, self.total)
        if self.scale is None and self.seam.traces:
            self.scale = 1.0
        if self.scale is None:
            self.scale = taming_scale(self.seam.peak(Y), self.dtype)
        return Y if self.scale == 1 else self.seam.scaled(Y, self.scale)


def _in_panels(seam: Seam, M: Operator, X: Block, dtype: np.dtype[Any], consume: bool) -> Block:
    """M X, a few columns at a time when the block is large."""
    largest = max(M.shape) * dtype.itemsize
    width = panel_columns(_PANEL_COLUMNS * max(1, _PANEL_BYTES // max(largest * _PANEL_COLUMNS, 1)))
    if X.shape[1] <= width and not spilling():
        return M @ X
    return seam.by_panels(lambda panel: M @ panel, X, M.shape[0], width, consume)


def taming_scale(peak: float, dtype: Any) -> float:
    """1, or the power of two that brings numbers whose squares or inverses would overflow near 1."""
    limit = 1e10 if dtype == np.float32 else 1e70
    if not math.isfinite(peak) or peak == 0 or 1 / limit < peak < limit:
        return 1.0
    return math.ldexp(1.0, min(1023, -math.frexp(peak)[1]))


def _check_finite(operator: Operator, Y: Block, name: str) -> None:
    if not math.isfinite(seam_of(Y).peak(Y)):
        raise NotFiniteError(f"the product {name} returned NaN or Inf, for M = {operator!r}")


def _seam_for(operator: Operator) -> Seam:
    """The seam of the arrays that the operator holds."""
    found, place = held_seam(operator) or seam_of(), current_place()
    return place.seam if place is not None and place.seam.name == found.name else found


def _working_dtype(operator: Operator) -> np.dtype[Any]:
    return np.dtype(np.float64) if operator.dtype is None else operator.dtype


def _starting_block(run: _Run, plan: _Plan, start: Any) -> Block:
    columns, seam = run.operator.shape[1], run.seam
    if start is None:
        return run.random(columns, plan.block_size)
    block = _right_vectors(start)
    place = current_place()
    if place is not None and place.seam.name == seam.name and isinstance(block, np.ndarray):
        block = place.put(block)
    if seam_of(block).name != seam.name:
        raise DtypeError(f"start is of {seam_of(block).name}, but {run.operator!r} of {seam.name}")
    block = block[:, : min(run.operator.shape)]
    if block.shape[0] != columns:
        raise ShapeError(f"start must have {columns} rows, one per column of M, got shape {block.shape}")
    block = seam.unit_peaks(block, run.dtype)
    missing = plan.block_size - block.shape[1]
    return seam.concatenate([block, run.random(columns, missing)], 1) if missing > 0 else block


def _right_vectors(start: Any) -> Block:
    """The columns that `start` gives: a block, or the right vectors of an SVD."""
    if not isinstance(start, SVD | tuple):
        return dense_array(start, "start", ndim=2)
    if len(parts := tuple(start)) != 3:
        raise ArgumentError(f"start must be a block of columns or an SVD (U, s, Vt), got {len(parts)} parts")
    right = dense_array(parts[2], "start", ndim=2)
    return seam_of(right).transposed(right)


@dataclass(frozen=True)
class _Range:
    """An orthonormal Q for the range of M, with M'Q = P K; `small` is the namespace of K."""

    Q: Basis
    P: Basis
    K: Host
    small: Any

    @functools.cached_property
    def triplets(self) -> tuple[Host, Host, Host]:
        """B, s, A' with K = B diag(s) A'."""
        B, s, At = self.small.linalg.svd(self.K, full_matrices=False)
        return B, s, At

    @property
    def values(self) -> Host:
        return self.triplets[1]


def _subspace(run: _Run, plan: _Plan, X: Block) -> _Range:
    """Algorithm 1 of the paper: X ← qr(M X), X ← qr(M'X), `n_iter` times, and once more for the answer."""
    rows, columns = run.operator.shape
    before, values = None, None
    for done in range(plan.n_iter + 1):
        # One name for every block, so that each is given back as soon as the next one exists.
        X = run.forward(X, consume=True)
        X, R = run.orthonormal(X, run.empty(rows, 0), "M X")
        if plan.tol is not None:
            before, values = values, np.linalg.svd(R, compute_uv=False)
        if done == plan.n_iter or _settled(before, values, plan):
            break
        X = run.backward(X, consume=True)
        X, _ = run.orthonormal(X, run.empty(columns, 0), "M'X")
    P, K = run.orthonormal(run.backward(X), run.empty(columns, 0), "M'X")
    return _Range(run.seam.as_basis(X), run.seam.as_basis(P), K, run.seam.small)


def _krylov(run: _Run, plan: _Plan, X: Block) -> _Range:
    """Block Golub-Kahan that keeps every block, begun anew with random columns if copies may be missing."""
    rows, columns = run.operator.shape
    # A basis grows when it must; with `tol` nobody knows how far.
    capacity = X.shape[1] * ((plan.n_iter if plan.tol is None else min(plan.n_iter, 4)) + 1)
    Q, P = run.empty(rows, capacity), run.empty(columns, capacity + X.shape[1])
    found = _expand(run, plan, _Range(Q, P, np.zeros((0, 0)), run.seam.small), X)
    for _ in range(-(-plan.rank // plan.block_size)):
        whole = found.Q.columns == min(run.operator.shape)
        blind = run.seam.traces or not run.refill
        if whole or blind or not _may_have_missed_copies(found, plan):
            break
        run.total += 2 * (plan.n_iter + 1)
        found = _expand(run, plan, _compressed(run, found, plan.rank), run.random(columns, plan.block_size))
    return found


def _expand(run: _Run, plan: _Plan, found: _Range, X: Block) -> _Range:
    """Q_j ← qr(M P_j), P_j+1 ← qr(M'Q_j) from P_0 = qr(X) on, each orthogonal to everything before it."""
    Q, P, K, append = found.Q, found.P, found.K, run.seam.append
    # After a compression the leading values stand still until the new columns have met M twice.
    patience = 2 if K.size else 1
    X, _ = run.orthonormal(X, P)
    P = append(P, X)
    for done in range(plan.n_iter + 1):
        if Q.columns == run.operator.shape[0] or not X.shape[1]:
            break
        X, _ = run.orthonormal(run.forward(X), Q, "M X")
        Q = append(Q, X)
        X, coefficients = run.orthonormal(run.backward(X), P, "M'X")
        P, K = append(P, X), _with_columns(run.seam.small, K, coefficients)
        before, found = found, _Range(Q, P, K, run.seam.small)
        if plan.tol is not None and done >= patience and _settled(before.values, found.values, plan):
            break
    return found


def _with_columns(small: Any, K: Host, coefficients: Host) -> Host:
    taller = small.pad(K, ((0, coefficients.shape[0] - K.shape[0]), (0, 0)))
    grown: Host = small.concatenate([taller, coefficients], axis=1)
    return grown


def _settled(before: Host | None, values: Host | None, plan: _Plan) -> bool:
    """No singular value moved by more than `tol`, relative to itself, or by more than rounding."""
    if plan.tol is None or before is None or values is None or len(before) < plan.rank:
        return False
    a, b = before[: plan.rank], values[: plan.rank]
    return bool((np.abs(a - b) <= plan.tol * b + 10 * plan.eps * b.max()).all())


def _may_have_missed_copies(found: _Range, plan: _Plan) -> bool:
    """A block of b columns finds at most b copies of a singular value: b or more equal ones are suspect.

    Only above the cut: when the last value kept is one of them, further copies would change nothing.
    """
    close, b = 1e-3, plan.block_size
    kept = found.values[: plan.rank]
    above = kept[kept > max(kept[-1] * (1 + close), kept[0] * 100 * plan.eps)]
    first, last = above[: max(0, len(above) - b + 1)], above[b - 1 :]
    return bool((first - last <= close * last).any())


def _compressed(run: _Run, found: _Range, rank: int) -> _Range:
    """The `rank` leading singular triplets as the whole range: M'U = V s."""
    A, s, B = _leading(found, rank)
    Q, P = run.empty(run.operator.shape[0], rank), run.empty(run.operator.shape[1], rank)
    span, append = run.seam.span, run.seam.append
    return _Range(append(Q, span(found.Q, A)), append(P, span(found.P, B)), np.diag(s), run.seam.small)


def _leading(found: _Range, rank: int) -> tuple[Host, Host, Host]:
    """A, s, B with K = B s A', `rank` of each: M'Q = P K gives QQ'M = (Q A) s (P B)'."""
    B, s, At = found.triplets
    if len(s) < rank:
        raise ArgumentError(f"only {len(s)} independent directions found for rank {rank}; leave refill on")
    return At[:rank].T, s[:rank], B[:, :rank]


def _triplets(run: _Run, found: _Range, rank: int) -> SVD:
    A, s, B = _leading(found, rank)
    Q, P = found.Q, found.P
    del found
    U = run.seam.span(Q, A)
    del Q  # half of the memory, given back before V is made
    signs = run.seam.signs(U)
    V = run.seam.span(P, B * signs)
    values = run.seam.put(s / (run.scale or 1.0), run.dtype)
    U, Vt = run.seam.scaled(U, signs.astype(run.dtype)), run.seam.transposed(V)
    return SVD(U, values, Vt, run.done // 2 - 1)
