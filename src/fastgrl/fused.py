"""Operators whose product is one loop over NumPy arrays, and how other array libraries multiply by them."""

from __future__ import annotations

from abc import abstractmethod

from fastgrl.operators import Operator


class Fused(Operator):
    """A matrix that a compiled loop multiplies by in fewer passes than its parts would take.

    The loop reads NumPy arrays. Whoever multiplies blocks of another library needs the parts.
    """

    @property
    @abstractmethod
    def spelt_out(self) -> Operator:
        """The same matrix as a composition of operators that every array library can multiply by."""
