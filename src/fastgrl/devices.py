"""Where models do their large products: here with NumPy, on a device of PyTorch, or on a cluster.

`with working_on("cuda"):` is all that a model says. Inside, `fsvd` and a few functions below the models ask
`current_place()`; what they hand back are NumPy arrays, so that nobody else has to know.
"""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from importlib import import_module
from typing import Any

import numpy as np

from fastgrl.checks import Array, shown
from fastgrl.errors import ArgumentError, MissingExtraError
from fastgrl.linalg import NUMPY
from fastgrl.seams import Seam, known_seam

MISSING = "device= needs PyTorch: pip install 'fastgrl[torch]'"


@dataclass(frozen=True, eq=False)
class Place:
    """A device of PyTorch, or a cluster: `moved` gives an operator whose arrays lie there, `seam` computes.

    Random numbers of the seam are those of NumPy's, so that results agree to rounding, converged or not.
    `send` brings an array with a row for every node there, `near` a few rows to where k×k matrices are, and
    `push` is what takes the place of `Walker.rows`.
    """

    seam: Seam
    moved: Callable[[Any], Any]
    send: Callable[[Array], Any] | None = None
    near: Callable[[Any], Any] = lambda rows: rows
    push: Callable[[Any, Array], Any] | None = None
    _kept: dict[int, Any] = field(default_factory=dict)

    def put(self, array: Array) -> Any:
        """An array of the host with a row for every node, there."""
        return self.small(array) if self.send is None else self.send(array)

    def small(self, array: Array) -> Any:
        """A small array, as the seam computes with it."""
        return self.seam.put(array, array.dtype)

    def kept(self, array: Array) -> Any:
        """The same of an array that will not change: it stays there while it is needed here."""
        key = id(array)
        if key not in self._kept:
            self._kept[key] = self.put(array)
            weakref.finalize(array, self._kept.pop, key, None)
        return self._kept[key]

    def host(self, tensor: Any) -> Array:
        """A tensor as an array of the host."""
        return np.asarray(self.seam.host(tensor))

    def leave(self) -> None:
        """Give back what was kept."""
        self._kept.clear()


_current: ContextVar[Place | None] = ContextVar("fastgrl_device", default=None)


def current_place() -> Place | None:
    """Where large products are to be done; None is here, with NumPy."""
    return _current.get()


@contextmanager
def working_on(device: Any) -> Iterator[None]:
    """Do the large products of the body on a device of PyTorch, given as a string or a `torch.device`.

    None changes nothing.
    """
    if device is None:
        yield
        return
    with working_at(_place_on(device)):
        yield


@contextmanager
def working_at(place: Place) -> Iterator[None]:
    """Do the large products of the body at a place."""
    with _at(place):
        try:
            yield
        finally:
            place.leave()


def working_here() -> AbstractContextManager[None]:
    """Do the large products of the body here, wherever its caller works."""
    return _at(None)


def carried(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function, working where its maker works on whatever thread it is called."""
    place = current_place()

    @functools.wraps(function)
    def there(*arguments: Any) -> Any:
        with _at(place):
            return function(*arguments)

    return there


def applied(operator: Any, X: Array) -> Array:
    """`operator @ X`, wherever products are done, as an array of the host."""
    place = current_place()
    if place is None:
        return np.asarray(operator @ X)
    return place.host(place.moved(operator) @ place.put(X))


@contextmanager
def _at(place: Place | None) -> Iterator[None]:
    token = _current.set(place)
    try:
        yield
    finally:
        _current.reset(token)


def _place_on(device: Any) -> Place:
    like = _number_on(device)
    seam = known_seam(like)
    assert seam is not None
    mover = import_module("fastgrl.frameworks.moving").Mover(seam, seam.kind(like))
    return Place(replace(seam, random=functools.partial(_random, seam.put)), mover.moved)


def _random(put: Callable[..., Any], rows: int, columns: int, dtype: Any, seed: int, stream: int) -> Any:
    return put(NUMPY.random(rows, columns, dtype, seed, stream), dtype)


def _number_on(device: Any) -> Any:
    """A number in double precision, which all sums are made in, on a device that PyTorch knows and has."""
    try:
        torch = import_module("torch")
    except ImportError as error:
        raise MissingExtraError(MISSING) from error
    try:
        wanted = torch.device(device) if isinstance(device, str) else device
    except RuntimeError:
        wanted = None
    if not isinstance(wanted, torch.device):
        raise ArgumentError(
            f'device must be one of PyTorch\'s, such as "cpu", "cuda", "cuda:1" or "mps", got {shown(device)}'
        )
    if wanted.type == "meta":
        raise ArgumentError(f"device {str(wanted)!r} holds no numbers to compute with")
    try:
        return torch.zeros(1, dtype=torch.float64, device=wanted)
    except (RuntimeError, AssertionError, TypeError, NotImplementedError, ImportError) as error:
        reason = str(error).strip().split("\n", 1)[0] or type(error).__name__
        raise ArgumentError(f"device {str(wanted)!r} cannot be used here: {reason}") from error


def refuse_both(device: Any, max_memory: Any) -> None:
    """A plan for memory counts NumPy's arrays, not those of a device."""
    if device is not None and max_memory is not None:
        raise ArgumentError(
            "max_memory counts the memory of NumPy's arrays: leave it out, or leave out device"
        )
