"""A cluster as the rest sees it: tall blocks whose rows lie on workers, and what is done with them."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from fastgrl.checks import Array, integer
from fastgrl.distributed import tasks
from fastgrl.distributed.addresses import Address
from fastgrl.distributed.checkpoints import Checkpoint
from fastgrl.distributed.engines import Engine, Pending, handed_over
from fastgrl.distributed.plans import RowPlan
from fastgrl.errors import FastgrlError, ShapeError, UnavailableError
from fastgrl.linalg import sum_of_subtrees
from fastgrl.seams import Host, Seam

if TYPE_CHECKING:
    from fastgrl.distributed.talls import Tall

# Blocks for each task that can run at a time: one that is late then delays the others less.
_BLOCKS_PER_SLOT = 2


@dataclass(frozen=True, eq=False)
class Cluster:
    """Workers, and into how many blocks rows are cut for them; `blocks` None is two for each worker's thread.

    Bits depend on neither. `most_bytes` is what a caller may be sent back as one array, `storage` a folder
    from which workers read what a caller sends them, `checkpoint` where results of a long run are kept.
    """

    engine: Engine
    blocks: int | None = None
    most_bytes: int | None = None
    storage: Address | None = None
    checkpoint: Checkpoint | None = None
    _folders: Any = field(default_factory=itertools.count)

    @functools.cached_property
    def _blocks(self) -> int:
        """Fixed when first asked for: workers come and go, and blocks of one run must fit together."""
        usual = _BLOCKS_PER_SLOT * max(1, self.engine.slots())
        blocks = integer("blocks", usual if self.blocks is None else self.blocks, least=1)
        return blocks if self.checkpoint is None else self.checkpoint.plan_of(blocks)

    def plan(self, rows: int) -> RowPlan:
        """How so many rows are cut."""
        return RowPlan.even(rows, self._blocks)

    def new_folder(self) -> Address:
        """A folder of its own on the storage that workers read."""
        if self.storage is None:
            raise FastgrlError("this cluster has no folder that its workers share with the caller")
        folder = self.storage / f"shared-{next(self._folders):06}"
        try:
            folder.make_folder()
        except OSError as error:
            raise UnavailableError(f"{folder} cannot be made: {error}") from error
        return folder

    @functools.cached_property
    def seam(self) -> Seam:
        """The seam of blocks that lie here."""
        from fastgrl.distributed.seam import seam_on

        return seam_on(self)

    def submit(self, calls: Sequence[Any]) -> list[Any]:
        """Futures of calls."""
        return handed_over(self.engine, list(calls))

    def gather(self, calls: Sequence[Any]) -> list[Any]:
        """What calls or futures give."""
        return self.engine.gather(self.submit(calls))

    def total(self, pieces: Sequence[Any], plan: RowPlan) -> Host:
        """The sum over all chunks of what tasks have summed over those of a block."""
        found: dict[Any, Host] = {}
        for some in self.gather(pieces):
            found |= some
        return sum_of_subtrees(found, plan.chunks)

    def rows_of(self, sources: Sequence[tuple[Tall, int, int]]) -> Tall:
        """Rows `begin` to `end` - 1 of each source, one below the other, cut anew."""
        from fastgrl.distributed.talls import Tall

        first = sources[0][0]
        parts: list[tuple[Any, int, int]] = []  # futures, and which of their rows
        for tall, begin, end in sources:
            futures = tall.futures
            parts += [(futures[number], a, b) for number, a, b in tall.plan.overlaps(begin, end)]
        ends = np.cumsum([0] + [b - a for _, a, b in parts])
        plan = self.plan(int(ends[-1]))
        calls = []
        for begin, end in plan.bounds:
            here = [
                [future, a + max(begin - start, 0), min(b, a + end - start)]
                for (future, a, b), start, stop in zip(
                    parts, ends[:-1].tolist(), ends[1:].tolist(), strict=True
                )
                if start < end and stop > begin
            ]
            empty = Pending(tasks.zero_rows, (0, first.columns or 0, first.dtype))
            calls.append(Pending(tasks.joined_rows, (here,)) if here else empty)
        return Tall(self, plan, calls, first.columns, first.dtype)

    def spread(self, array: Array) -> Tall:
        """An array of the caller's on the workers, as arguments of tasks: for what is small."""
        from fastgrl.distributed.talls import Tall

        if array.ndim not in (1, 2):
            raise ShapeError(f"a block on a cluster has 1 or 2 dimensions, got shape {array.shape}")
        plan = self.plan(len(array))
        parts = [Pending(np.array, (array[begin:end],)) for begin, end in plan.bounds]
        return Tall(self, plan, parts, array.shape[1] if array.ndim == 2 else None, array.dtype)
