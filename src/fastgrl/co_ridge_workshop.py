"""Coordinates of the views of co-ridge, made when a fit first needs them and shared by all its settings."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from fastgrl.checks import Array
from fastgrl.co_ridge import CoRidgeModel
from fastgrl.devices import carried
from fastgrl.node_models import HopBasis, NodeInputs, Targets
from fastgrl.parallel import parallel_map, use_threads
from fastgrl.self_training import SMALL_VIEW, Trainer
from fastgrl.view_bases import Coordinates, Surroundings, projection_of

# Coordinates of all restarts are kept while they take less than this; beyond, those of one restart.
KEPT_BYTES = 1 << 29


@dataclass(eq=False)
class Workshop:
    """Coordinates of the views, made when they are first needed."""

    around: Surroundings
    rank: int
    seed: int
    projections: dict[str, Array] = field(default_factory=dict)
    made: dict[tuple[str, float], Coordinates] = field(default_factory=dict)
    frames: dict[tuple[str, float], Any] = field(default_factory=dict)

    @classmethod
    def of(cls, model: CoRidgeModel, inputs: NodeInputs) -> Workshop:
        """With the projections and frames of a model."""
        rank = max(V.shape[1] for V in model.projections.values())
        return cls(model.surroundings(inputs), rank, 0, dict(model.projections), {}, dict(model.frames))

    def coordinates(self, view: str, restart: float) -> Coordinates:
        """Z of a view."""
        key = view, restart
        if key not in self.made:
            if view not in self.projections:
                self.projections[view] = self._projection(view)
            self._make_room(restart)
            B = self.around.projected(view, self.projections[view])
            found = self.around.coordinates(view, B, restart=restart, frame=self.frames.get(key))
            self.made[key], self.frames[key] = found, found.frame
        return self.made[key]

    @property
    def small(self) -> bool:
        """Whether whole runs, and not rows, are shared out among threads."""
        return self.around.inputs.num_nodes * self.rank <= SMALL_VIEW

    def prepare(self, views: Iterable[str], restarts: Sequence[float]) -> None:
        """Make coordinates of several views at once."""
        views = tuple(views)
        self.around.warm()
        missing = [
            view for view in dict.fromkeys(_own(view) for view in views) if view not in self.projections
        ]
        jobs = [*missing, *(["similar"] if "k" in views else [])]
        made = parallel_map(alone(self._prepared), jobs)
        self.projections |= dict(zip(missing, made, strict=False))
        parallel_map(alone(lambda key: self.coordinates(*key)), list(itertools.product(views, restarts)))

    def _prepared(self, job: str) -> Any:
        return self.around.operator("k") if job == "similar" else self._projection(job)

    def _projection(self, view: str) -> Array:
        """V of a view; k has the features of l, and smooths them little differently."""
        if _own(view) != view:
            if _own(view) not in self.projections:
                self.projections[_own(view)] = self._projection(_own(view))
            return self.projections[_own(view)]
        return projection_of(self.around, view, rank=self.rank, seed=self.seed)

    def _make_room(self, restart: float) -> None:
        if sum(found.Z.nbytes for found in self.made.values()) > KEPT_BYTES:
            self.made = {key: found for key, found in self.made.items() if key[1] == restart}

    def trainer(self, views: tuple[str, ...], restart: float, targets: Targets) -> Trainer:
        """What settings with these views share."""
        coordinates = [self.coordinates(view, restart).Z for view in views]
        return Trainer(coordinates, targets, self.around.averaging)

    def basis(self, view: str, restart: float) -> HopBasis:
        """Coordinates with how they came about."""
        found = self.coordinates(view, restart)
        basis = self.around.basis(view, self.projections[view], restart, found.frame)
        return replace(basis, computed=(found.Z, found.norms))


def _own(view: str) -> str:
    """The view whose projection a view has."""
    return "l" if view == "k" else view


def each(run: Callable[[Any], None], runs: Sequence[Any], shop: Workshop) -> None:
    """On a small graph one thread for each run; on a large one, rows are shared out among them."""
    if shop.small:
        parallel_map(alone(run), runs)
        return
    for how in runs:
        run(how)


def alone(run: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """One thread for each run: the pool is busy with other runs."""

    def on_one_thread(how: Any) -> Any:
        with use_threads(1):
            return run(how)

    return carried(on_one_thread)
