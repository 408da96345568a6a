"""How rows are cut into blocks: whole chunks of 4096, the same chunks as in one process."""

from __future__ import annotations

import functools
import itertools
from dataclasses import dataclass

from fastgrl.linalg import CHUNK_ROWS


@dataclass(frozen=True)
class RowPlan:
    """`cuts` are where blocks of the rows 0 … `rows` begin, and last of all `rows` itself."""

    rows: int
    cuts: tuple[int, ...]

    @classmethod
    def even(cls, rows: int, blocks: int) -> RowPlan:
        """About as many chunks in each block, and a chunk at least.

        >>> RowPlan.even(10_000, 2).cuts, RowPlan.even(10_000, 9).cuts
        ((0, 4096, 10000), (0, 4096, 8192, 10000))
        """
        chunks = max(1, -(-rows // CHUNK_ROWS))
        blocks = min(blocks, chunks)
        return cls(rows, tuple(min(rows, CHUNK_ROWS * (chunks * i // blocks)) for i in range(blocks + 1)))

    @property
    def bounds(self) -> list[tuple[int, int]]:
        """First and last row of every block."""
        return list(itertools.pairwise(self.cuts))

    @functools.cached_property
    def chunks(self) -> int:
        """Chunks in all."""
        return max(1, -(-self.rows // CHUNK_ROWS))

    @property
    def height(self) -> int:
        """Rows of a chunk that is stored by columns."""
        return min(CHUNK_ROWS, max(self.rows, 1))

    def overlaps(self, begin: int, end: int) -> list[tuple[int, int, int]]:
        """The blocks that hold rows `begin` to `end` - 1: number, and first and last row within the block."""
        return [
            (number, max(begin, first) - first, min(end, last) - first)
            for number, (first, last) in enumerate(self.bounds)
            if max(begin, first) < min(end, last)
        ]
