"""What an array library must offer to `fsvd` and to the operators, one value per library.

A *block* is a tall dense array, a *basis* a growing set of orthonormal columns. Everything small (k×k) is a
float64 NumPy array on the host, or, while a library only traces what it will compute later, an array of
that library.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastgrl.errors import DtypeError

Host = NDArray[np.floating[Any]]
Block = Any
Basis = Any

# Where the seams of other libraries' arrays live, by the package that the type of an array comes from: the
# module is imported when the first such array is met, and that package with it was imported long before.
_HOMES = {
    "torch": "fastgrl.frameworks.torch",
    "jax": "fastgrl.frameworks.jax",
    "jaxlib": "fastgrl.frameworks.jax",
    "tensorflow": "fastgrl.frameworks.tensorflow",
}


@dataclass(frozen=True)
class Seam:
    """What an array library must offer; `Q` is a basis, `Y` a block, capitals otherwise k×k on the host."""

    name: str
    # The iteration.
    random: Callable[..., Block]  # (rows, columns, dtype, seed, stream): standard normal numbers
    basis: Callable[..., Basis]  # (rows, capacity, dtype): no columns yet
    append: Callable[[Basis, Block], Basis]
    as_basis: Callable[[Block], Basis]  # orthonormal columns, taken over
    columns: Callable[[Basis, int, int], Block]
    grams: Callable[[Basis, Block], Host]  # [Q, Y]'Y
    probes: Callable[[Basis, Block], Host]  # [QΓ, Y]'Y for a few random columns Γ
    combine: Callable[..., Block]  # (Q, C, Y, D): Q C + Y D; `overwrite` allows it to go to Y's memory
    span: Callable[[Basis, Host], Block]  # Q C
    cross: Callable[[Block, Block], Host]  # X'Y
    times: Callable[..., Block]  # (Y, D): Y D, with `overwrite` likewise
    by_panels: Callable[..., Block]  # (product, X, rows, width, consume): `width` columns at a time
    peak: Callable[[Block], float]  # largest absolute entry
    signs: Callable[[Block], Host]  # sign of each column's largest entry
    unit_peaks: Callable[[Block, Any], Block]  # (Y, dtype): columns with 1 as their largest entry
    scaled: Callable[[Block, Any], Block]  # Y diag(d), perhaps in Y's memory
    sync: Callable[[Block], Block]  # the block must exist now, and is a constant from now on
    # The operators.
    matmul: Callable[[Any, Block], Block]  # a dense or sparse matrix times a block
    inner: Callable[[Block, Block], Block]  # X'Y as an array of the library, of Y's type
    column_sums: Callable[[Block], Any]
    repeat_row: Callable[[int, Any, Block], Block]  # 1 row', of the block's kind
    take_rows: Callable[[Block, Any], Block]  # Y[rows]
    spread_rows: Callable[[Block, Any, int], Block]  # (Y, rows, count): its transpose
    concatenate: Callable[[Sequence[Block], int], Block]  # along an axis
    transposed: Callable[[Any], Any]
    # The door.
    is_dense: Callable[[Any], bool]
    kind: Callable[[Any], np.dtype[Any]]  # the type of an array's numbers
    checked: Callable[[Any, str, int], Any]  # (array, name, dimensions): floats without NaN or Inf
    like: Callable[[Any, Block], Block]  # what a function returned, as a block of the library
    put: Callable[[Host, Any], Any]  # (array, dtype): from the host
    put_sparse: Callable[[Any, Any], Any]  # (CSR, dtype): a sparse matrix from the host
    host: Callable[[Any], Host]  # to the host
    # What only some libraries have.
    cast: Callable[[Any, Any], Any] = lambda array, dtype: array.astype(dtype, copy=False)
    # (U, s, V, inverse, Y): V diag(inverse) U'Y as a function of UΣV' and Y, for those that differentiate
    pseudo_inverse: Callable[..., Block] | None = None
    # (array, dtype): in the wider of both types, for libraries that do not mix types by themselves
    widened: Callable[[Any, Any], Any] = lambda array, _dtype: array
    # (facts): a factorisation begins, of which products may be remembered
    began: Callable[[dict[str, Any]], None] = lambda _facts: None
    # (number, product): the block that `product()` gives, or what is remembered of it
    remembered: Callable[[int, Callable[[], Block]], Block] = lambda _number, product: product()
    # (function, values): a function of an array of numbers, one by one
    elementwise: Callable[[Callable[[Any], Any], Any], Any] = lambda function, values: function(values)
    small: Any = np  # the namespace of k×k arrays
    sums: Any = np.float64  # the type that Grams are summed in
    qr: Callable[[Block], tuple[Block, Host]] | None = None  # for those that cannot look at numbers
    working: Callable[[], AbstractContextManager[Any]] = (
        nullcontext  # on the device, in the arrays' precision
    )
    detached: Callable[[], AbstractContextManager[Any]] = nullcontext  # likewise; nothing is differentiated
    attached: Callable[[Any, Any], Any] = lambda _operator, svd: svd  # the SVD with its derivatives
    note: str = ""  # what a certificate should say

    @property
    def traces(self) -> bool:
        """Whether numbers are not known yet, and may not be asked for."""
        return self.qr is not None


_seams: dict[type, Callable[[Any], Seam]] = {}


def register_seam(array_type: type, seam_for: Callable[[Any], Seam]) -> None:
    """Make blocks of `array_type` go through the seam that `seam_for` finds for such an array."""
    _seams[array_type] = seam_for
    _registered.cache_clear()


@functools.cache
def _registered(kind: type) -> Callable[[Any], Seam] | None:
    for parent in kind.__mro__:
        home = _HOMES.get(parent.__module__.split(".", 1)[0])
        if home is not None:
            import_module(home)
            break
    return next((_seams[parent] for parent in kind.__mro__ if parent in _seams), None)


def known_seam(value: Any) -> Seam | None:
    """The seam of an array, and None for what is no array that is known here."""
    kind: Any = type(value)
    find = _registered(kind)
    return None if find is None else find(value)


def seams_of(values: Iterator[Any]) -> list[Seam]:
    """The different seams of the arrays among `values`."""
    found: dict[str, Seam] = {}
    for seam in filter(None, map(known_seam, values)):
        if seam.name not in found or seam.traces:
            found[seam.name] = seam
    return list(found.values())


def only_seam(values: Iterator[Any], what: str) -> Seam | None:
    """The one seam of the arrays among `values`, None if there are none; two do not mix."""
    found = seams_of(values)
    if len(found) > 1:
        names = " and ".join(sorted(seam.name for seam in found))
        raise DtypeError(f"{what} holds arrays of {names}: convert them to one of these")
    return found[0] if found else None
