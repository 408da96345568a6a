"""Operators made of NumPy arrays, moved to another array library."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from fastgrl.checks import FLOATS
from fastgrl.errors import ArgumentError
from fastgrl.fused import Fused
from fastgrl.kernels import CSR
from fastgrl.leaves import Function
from fastgrl.linalg import seam_of
from fastgrl.operators import Operator
from fastgrl.seams import Seam, known_seam


def moved(operator: Operator, like: Any) -> Operator:
    """The same matrix, with every NumPy array it holds put where `like` is: its library, on its device.

    Numbers keep their type, or take the one that the library has (JAX without x64); a pattern that stands
    alone, without any, takes that of `like`. Row numbers stay on the host, arrays of other libraries where
    they are. An operator made of functions cannot be moved, since nobody knows what they hold.

    >>> import torch
    >>> from fastgrl.frameworks.moving import moved
    >>> moved(2 * fg.Diagonal(np.array([1.0, 3.0])), torch.zeros(0)) @ torch.ones((2, 1), dtype=torch.float64)
    tensor([[2.],
            [6.]], dtype=torch.float64)
    """
    return Mover(seam_of(like), seam_of(like).kind(like)).moved(operator)


@dataclass(frozen=True, eq=False)
class Mover:
    """Puts operators where a seam puts arrays; `usual` is the type of a pattern that stands alone.

    Sparse matrices are put there once, for as long as they are in use here: a graph has many operators, and
    one pattern. `fused` are operators that multiply there as they do here, not by their parts.
    """

    seam: Seam
    usual: np.dtype[Any]
    fused: tuple[type, ...] = ()
    _sparse: WeakKeyDictionary[CSR, dict[Any, Any]] = field(default_factory=WeakKeyDictionary)

    def moved(self, operator: Operator) -> Operator:
        """The operator with its arrays moved; itself if it holds none."""
        wanted = operator.dtype or self.usual
        return self._moved(operator, self.seam.kind(self.seam.put(np.zeros(0), wanted)))

    def _moved(self, operator: Operator, dtype: Any) -> Operator:
        if isinstance(operator, Fused) and not isinstance(operator, self.fused):
            return self._moved(operator.spelt_out, dtype)
        if isinstance(operator, Function):
            return self._known(operator)
        parts = {part.name: getattr(operator, part.name) for part in dataclasses.fields(operator)}  # type: ignore[arg-type]
        there = {name: self._part(value, dtype) for name, value in parts.items()}
        changed = {name: value for name, value in there.items() if value is not parts[name]}
        found: Operator = dataclasses.replace(operator, **changed) if changed else operator  # type: ignore[type-var]
        return found

    def _part(self, value: Any, dtype: Any) -> Any:
        if isinstance(value, Operator):
            return self._moved(value, dtype)
        if isinstance(value, tuple) and any(isinstance(part, Operator) for part in value):
            return tuple(self._moved(part, dtype) for part in value)
        if isinstance(value, CSR):
            placed = self._sparse.setdefault(value, {})
            if dtype not in placed:
                placed[dtype] = self.seam.put_sparse(value, dtype)
            return placed[dtype]
        if isinstance(value, np.dtype):
            return dtype
        if isinstance(value, np.ndarray) and value.dtype in FLOATS:
            return self.seam.put(value, dtype)
        return value

    def _known(self, operator: Function) -> Operator:
        seam = known_seam(operator.like)
        if seam is None or seam.name != self.seam.name:
            raise ArgumentError(
                f"{operator!r} is made of functions, and what they hold cannot be put to {self.seam.name}: "
                "write them for blocks of that library, and pass one of its arrays as like="
            )
        return operator
