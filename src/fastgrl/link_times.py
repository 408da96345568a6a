"""What the fit of a link design does, step by step, in units whose rates can be measured.

n is the number of nodes, k the rank, b the columns of a block, q the rounds after the first: 2 (q + 1)
products, and as many blocks made orthonormal against all that came before on their side.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Protocol

from fastgrl.costs import (
    BOTH_DIRECTIONS,
    DAMPINGS,
    HOLD_OUTS,
    ROUNDS,
    USUAL_DAMPING,
    Factorisation,
)
from fastgrl.rates import Work

# A pass over a basis costs as much as so many columns of a block, so that narrow blocks are dear; what else
# is done to a number of a block, likewise; and multiply-adds that cost as much as one of the small SVD.
_PASS, _BLOCK_COLUMNS, _SMALL = 16, 48, 12
# Hold-outs: share of the edges, and the most pairs that are judged.
_HELD_OUT, _MOST_PAIRS = 0.2, 100_000
# Columns of the feature sets F1 to F4, of the plain dot product, and improvements that are refitted.
_FEATURE_SETS, _DOT_FEATURES, _REFITS = (2, 6, 11, 19), 6, 2
# The selection of walks: λ by window, finalists and their rounds; of the shrunken spectrum: powers, outers
# and shrinkages, rounds, and blocks that a rank is divided into.
_NEGATIVES, _FINALISTS, _WARM_ROUNDS = 10, 3, 4
_POWERS, _OUTERS, _SHRINKAGES, _SPECTRUM_ROUNDS, _SPECTRUM_BLOCKS = 4, 7, 7, 12, 4
# Entries of a row by damping, beside those for the usual one.
_LENGTHS = {0.5: 0.5, 0.7: 0.75, 0.85: 1.0, 0.92: 1.1}


class LinkCost(Protocol):
    """As much of an `Estimate` as its time depends on."""

    @property
    def num_nodes(self) -> int: ...

    @property
    def num_stored(self) -> int: ...

    @property
    def design(self) -> str: ...

    @property
    def rank(self) -> int: ...

    @property
    def window(self) -> int: ...

    @property
    def windows(self) -> tuple[int, ...]: ...

    @property
    def itemsize(self) -> int: ...

    @property
    def directed(self) -> bool: ...

    @property
    def select(self) -> bool: ...

    @property
    def row_length(self) -> float: ...

    @property
    def factorisation(self) -> Factorisation: ...


def factorised(
    svd: Factorisation, entries: float, *, steps: float = 1.0, step: str = "product"
) -> Iterator[Work]:
    """One functional SVD of a matrix whose product reads `entries` for every column, `steps` times."""
    calls = svd.products * steps * -(-svd.block_size // svd.panel)
    units = (entries + svd.num_nodes) * svd.columns * steps
    yield Work(step, units * svd.itemsize / 4, calls)
    yield Work("dense", dense_units(svd))


def dense_units(svd: Factorisation) -> float:
    """Multiply-adds of dense blocks in a functional SVD, the small matrix among them."""
    n, b, rounds = float(svd.num_nodes), svd.block_size, svd.n_iter + 1
    krylov = svd.method == "krylov"
    kept = min(n, b * rounds) if krylov else float(b)
    # Twice (0 + 1 + … + q) b columns are met on the left, and (1 + … + q + 1) b on the right.
    met = 2 * min(b * rounds**2, 2 * n * rounds) if krylov else 0.0
    blocks = (2 * rounds + 2) * b * (b + _BLOCK_COLUMNS)
    return n * ((b + _PASS) * met + blocks + (svd.rank + _PASS) * 2 * kept) + _SMALL * kept**3


def link_work(cost: LinkCost, row_lengths: Mapping[float, float]) -> tuple[Work, ...]:
    """All that fitting the design does."""
    return tuple(_fit(cost, row_lengths))


def _fit(cost: LinkCost, row_lengths: Mapping[float, float]) -> Iterator[Work]:
    yield Work("survey", cost.num_stored + cost.num_nodes)
    if cost.design == "log-diffusion":
        yield from _diffusion(cost, row_lengths)
    elif cost.design == "shrunken":
        yield from _shrunken(cost)
    else:
        yield from _walk(cost)


def _edges(cost: LinkCost) -> float:
    return cost.num_stored / (1 if cost.directed else 2)


def _pairs(cost: LinkCost) -> float:
    """Pairs of a hold-out, links and others."""
    return 2 * min(_HELD_OUT * _edges(cost), _MOST_PAIRS)


def _split(cost: LinkCost) -> Work:
    return Work("split", _edges(cost) + cost.num_nodes)


def _diffusion(cost: LinkCost, row_lengths: Mapping[float, float]) -> Iterator[Work]:
    """A space for each hold-out and damping that is tried, a scorer for each set of features, and the fit."""
    dampings = DAMPINGS if cost.select else (USUAL_DAMPING,)
    held = HOLD_OUTS if cost.select else 1
    pairs = held * _pairs(cost)
    for damping in dampings:
        for _ in range(held):
            yield from _space(cost, damping, row_lengths)
        yield Work("log rows", held * _entries(cost, damping, row_lengths))
        yield Work("features", pairs, held)
    sets = _FEATURE_SETS if cost.select else _FEATURE_SETS[-1:]
    columns = len(dampings) * sum(sets) + 2 * _REFITS * (_FEATURE_SETS[-1] + _DOT_FEATURES) / 2
    yield Work("scorer", pairs * columns, 2 * len(dampings) * len(sets) + 2 * _REFITS)
    for _ in range(held):
        yield _split(cost)
    yield from _space(cost, USUAL_DAMPING, row_lengths)


def _space(cost: LinkCost, damping: float, row_lengths: Mapping[float, float]) -> Iterator[Work]:
    """Push every row, take logarithms, factorise."""
    entries = _entries(cost, damping, row_lengths)
    yield Work(f"push {damping:g}", cost.num_nodes * (1 + cost.directed))
    yield Work("logarithm", entries * (1 + cost.directed))
    logarithm = min(BOTH_DIRECTIONS * entries, float(cost.num_nodes) ** 2)
    yield from factorised(cost.factorisation, logarithm, step="log product")


def _entries(cost: LinkCost, damping: float, row_lengths: Mapping[float, float]) -> float:
    if damping in row_lengths:
        return cost.num_nodes * row_lengths[damping]
    return cost.num_nodes * cost.row_length * _LENGTHS[damping]


def _walk(cost: LinkCost) -> Iterator[Work]:
    """The fit; where window and λ are chosen, a shared subspace, the finalists and a fit to judge by."""
    usual = sum(cost.windows) / len(cost.windows) if cost.windows else cost.window
    svd, extra = cost.factorisation, 0.5 if cost.design == "as-released" else 0.0
    for _ in range(1 + bool(cost.windows)):
        yield from factorised(svd, cost.num_stored, steps=usual + extra)
    if not cost.windows:
        return
    yield _split(cost)
    k, n, entries, longest = svd.rank, svd.num_nodes, cost.num_stored, max(cost.windows)
    twice = min(2 * k, n)
    wide = Factorisation(n, twice, "krylov", ROUNDS["krylov"], max(8, -(-twice // 2)), svd.itemsize)
    for window in (longest, 2):
        yield from factorised(wide, entries, steps=window)
    shared = min(2 * twice + 1, n)
    yield Work("product", (entries + n) * shared * longest, longest)
    yield Work("dense", float(n) * shared * (4.0 * shared + 2.0 * shared * (longest + 1)), longest + 3)
    settings = _NEGATIVES * len(cost.windows)
    yield Work("dense", settings * (2.0 * n * shared * (k + _PASS) + 2 * _SMALL * float(shared) ** 3), 0)
    yield Work("judge", (settings + _FINALISTS) * _pairs(cost) * (k + 4), settings + _FINALISTS)
    last = Factorisation(n, k, "krylov", _WARM_ROUNDS, k, svd.itemsize)
    for _ in range(_FINALISTS):
        yield from factorised(last, entries, steps=usual)


def _shrunken(cost: LinkCost) -> Iterator[Work]:
    """A factorisation with many rounds and the eigenpairs in its span; with selection one for each power."""
    n, k = cost.num_nodes, cost.rank
    svd = Factorisation(n, k, "krylov", _SPECTRUM_ROUNDS, max(8, -(-k // _SPECTRUM_BLOCKS)), cost.itemsize)
    both = min(2 * k, n)
    for _ in range(1 + _POWERS * cost.select):
        yield from factorised(svd, cost.num_stored)
        yield Work("product", (cost.num_stored + n) * both)
        yield Work("dense", float(n) * both * (4 * both + k) + _SMALL * float(both) ** 3)
    if cost.select:
        yield _split(cost)
        columns = _POWERS * (k + 4 * _OUTERS * _SHRINKAGES)
        yield Work("judge", columns * _pairs(cost), _POWERS * _OUTERS * _SHRINKAGES)
