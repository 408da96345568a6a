"""What a long run has computed, in a folder that all machines share: a run that died goes on from there.

A run is a sequence of large results, each a deterministic function of what came before: blocks of the graph,
products of the iteration. Each is written by the workers when it is first made, and read from then on, in
this run (so that a lost worker costs no more than a file) and in any later one with the same settings. What
is small, or cheap beside a product, is simply done again. Results have the same bits either way.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from fastgrl.distributed.addresses import Address
from fastgrl.distributed.engines import Pending
from fastgrl.distributed.plans import RowPlan
from fastgrl.errors import ArgumentError, UnavailableError

if TYPE_CHECKING:
    from fastgrl.distributed.clusters import Cluster
    from fastgrl.distributed.rows import DistributedRows
    from fastgrl.distributed.talls import Tall

_FACTS = "facts.json"


@dataclass(frozen=True, eq=False)
class Checkpoint:
    """A folder of results; `stage` names the sequence that is being computed now."""

    folder: Address
    _stages: Any = field(default_factory=itertools.count)
    _current: list[Address] = field(default_factory=list)

    @classmethod
    def at(cls, folder: Any) -> Checkpoint:
        """In a folder, which is made if it is not there."""
        path = Address.of(folder)
        try:
            path.make_folder()
        except OSError as error:
            raise UnavailableError(f"no checkpoint can be kept in {path}: {error}") from error
        return cls(path)

    def begin(self, facts: dict[str, Any]) -> Address:
        """Begin the next stage; `facts` must be those that it was begun with before, if it was."""
        stage = self.folder / f"stage-{next(self._stages):03}"
        said = json.loads(json.dumps(facts))
        known = _read(stage / _FACTS)
        if known is not None and known != said:
            odd = next(name for name in said.keys() | known.keys() if said.get(name) != known.get(name))
            raise ArgumentError(
                f"{self.folder} is the checkpoint of another run ({odd} was {known.get(odd)!r}, and is "
                f"{said.get(odd)!r} now): name another folder, or delete it"
            )
        _make(stage)
        _write(stage / _FACTS, said)
        self._current[:] = [stage]
        return stage

    def plan_of(self, blocks: int) -> int:
        """Into how many blocks rows are cut: as when the first results were written."""
        known = _read(self.folder / "blocks.json")
        if known is None:
            _write(self.folder / "blocks.json", {"blocks": blocks})
            return blocks
        return int(known["blocks"])

    def block(self, name: str, make: Callable[[], Tall], cluster: Cluster) -> Tall:
        """A tall block: what `make` gives, or what was written of it."""
        from fastgrl.distributed.shards import read_whole_block, write_block
        from fastgrl.distributed.talls import Tall

        folder = self._current[0] / name
        known = _read(folder / _FACTS)
        if known is None:
            made = make()
            _make(folder)
            paths = _paths(folder, len(made.parts), "npy")
            pairs = zip(paths, made.futures, strict=True)
            cluster.gather([Pending(write_block, (path, future)) for path, future in pairs])
            known = {"cuts": made.plan.cuts, "columns": made.columns, "dtype": made.dtype.str}
            _write(folder / _FACTS, known)
        plan = RowPlan(known["cuts"][-1], tuple(known["cuts"]))
        parts: list[Any] = [
            Pending(read_whole_block, (path,)) for path in _paths(folder, len(plan.bounds), "npy")
        ]
        return Tall(cluster, plan, parts, known["columns"], np.dtype(known["dtype"]))

    def rows(self, name: str, make: Callable[[], DistributedRows], cluster: Cluster) -> DistributedRows:
        """Sparse rows, likewise."""
        from fastgrl.distributed.rows import DistributedRows
        from fastgrl.distributed.shards import read_rows, write_rows

        folder = self._current[0] / name
        known = _read(folder / _FACTS)
        if known is None:
            made = make()
            _make(folder)
            pairs = zip(_paths(folder, len(made.parts), "npz"), made.futures, strict=True)
            cluster.gather([Pending(write_rows, (path, future)) for path, future in pairs])
            kind = None if made.dtype is None else made.dtype.str
            known = {"cuts": made.plan.cuts, "shape": made.shape, "dtype": kind, "symmetric": made.symmetric}
            _write(folder / _FACTS, known)
        plan = RowPlan(known["cuts"][-1], tuple(known["cuts"]))
        parts: list[Any] = [Pending(read_rows, (path,)) for path in _paths(folder, len(plan.bounds), "npz")]
        dtype = None if known["dtype"] is None else np.dtype(known["dtype"])
        rows, columns = known["shape"]
        return DistributedRows(cluster, plan, parts, (rows, columns), dtype, known["symmetric"])


def _paths(folder: Address, count: int, ending: str) -> list[Address]:
    return [folder / f"part-{number:05}.{ending}" for number in range(count)]


def _make(folder: Address) -> None:
    try:
        folder.make_folder()
    except OSError as error:
        raise UnavailableError(f"the checkpoint {folder} cannot be written: {error}") from error


def _read(path: Address) -> Any:
    try:
        with path.opened() as file:
            return json.load(file)
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise UnavailableError(
            f"{path} cannot be read: {error}; delete the checkpoint to begin anew"
        ) from error


def _write(path: Address, facts: dict[str, Any]) -> None:
    try:
        path.write(lambda file: file.write(json.dumps(facts).encode()))
    except OSError as error:
        raise UnavailableError(f"the checkpoint {path} cannot be written: {error}") from error
