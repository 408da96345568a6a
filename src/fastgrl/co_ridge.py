"""co-ridge, fitted: ridge regressions on smoothed views of the features, whose beliefs are averaged."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from fastgrl.checks import Array
from fastgrl.errors import ShapeError
from fastgrl.fsvd import SVD
from fastgrl.graph import Graph
from fastgrl.jkn_features import fold_structure, structure_of
from fastgrl.linear_parts import Solution
from fastgrl.node_models import LinearPart, NodeInputs, NodeModel, shaped
from fastgrl.ridge import RidgeFit
from fastgrl.self_training import Round, Squash
from fastgrl.view_bases import Coordinates, Frame, Surroundings
from fastgrl.views import NUMBERS, STRUCTURE, WORDS, FeatureMap

# How the walk vectors of nodes without features are made.
STRUCTURE_WALK: dict[str, Any] = {"window": 5, "negative": 1.0}
_TINY = 1e-12


@dataclass(frozen=True)
class Setting:
    """One configuration: which views, how far features are smoothed, γ, κ, and rounds of self-training."""

    views: tuple[str, ...]
    restart: float
    ridge: float
    balance: float
    rounds: int

    def told(self) -> dict[str, Any]:
        """As users read it."""
        return {
            "views": list(self.views),
            "restart": self.restart,
            "ridge": self.ridge,
            "balance": self.balance,
            "rounds": self.rounds,
        }


@dataclass(frozen=True, eq=False)
class Member:
    """A setting, and the last round that was solved with it."""

    setting: Setting
    round: Round


@dataclass(frozen=True, eq=False)
class CoRidgeModel(NodeModel):
    """The members, and how their coordinates are made: the scaling of features, V and frame of each view."""

    features: FeatureMap
    projections: dict[str, Array]
    frames: dict[tuple[str, float], Frame]
    members: tuple[Member, ...]
    multilabel: bool = False
    walk: SVD | None = None

    @property
    def exact(self) -> bool:  # type: ignore[override]
        """One view, one setting and no self-training: the scores are one linear solve."""
        return is_linear([member.setting for member in self.members])

    @property
    def size(self) -> tuple[int, int]:
        n, C = self.members[0].round.targets.shape
        return n, C

    @property
    def basis_ignores_labels(self) -> bool:
        return self.exact

    @functools.cached_property
    def structure(self) -> Array | None:
        """[L, R] of the fitted nodes where they have no features."""
        return (
            None if self.walk is None else structure_of(self.walk, np.float64 if self.exact else np.float32)
        )

    def fold_in(self, graph: Graph, new: Any, *, incoming: Any = None) -> tuple[Array, Array]:
        assert self.walk is not None
        return fold_structure(self.walk, graph, "jkn", new=new, incoming=incoming, **STRUCTURE_WALK)

    def resolved(self, solutions: Sequence[Solution]) -> tuple[CoRidgeModel, Array]:
        left = iter(solutions)
        total: Array | None = None
        members = []
        for member in self.members:
            solved = [next(left) for _ in member.setting.views]
            fits = tuple(RidgeFit(one.coefficients, one.mean, one.bias) for one in solved)
            part = solved[0].part
            last = replace(member.round, weights=part.weights, targets=part.targets, solutions=fits)
            members.append(replace(member, round=last))
            for one, squash in zip(solved, member.round.squashes, strict=True):
                P = one.scores()
                P = P if self.exact else squash(P)
                total = P * one.part.share if total is None else total + P * one.part.share
        assert total is not None
        return replace(self, members=tuple(members)), total if self.exact else combined(
            total, self.multilabel
        )

    def scores(self, inputs: NodeInputs) -> Array:
        around = self.surroundings(inputs)
        total: Array | None = None
        for restart in sorted({member.setting.restart for member in self.members}):
            members = [member for member in self.members if member.setting.restart == restart]
            for view in dict.fromkeys(view for member in members for view in member.setting.views):
                Z = self._coordinates(around, view, restart).Z
                for member in members:
                    if view in member.setting.views:
                        beliefs = self._scored(member, view, Z)
                        total = beliefs if total is None else total + beliefs
        assert total is not None
        return total if self.exact else combined(total, self.multilabel)

    def _scored(self, member: Member, view: str, Z: Array) -> Array:
        place = member.setting.views.index(view)
        fit, squash = member.round.solutions[place], member.round.squashes[place]
        if self.exact:
            return fit.scores(Z).astype(np.float64)
        beliefs = squash(fit.scores(Z))
        return beliefs.astype(np.float64) / (len(member.setting.views) * len(self.members))

    def surroundings(self, inputs: NodeInputs) -> Surroundings:
        """What coordinates are made from."""
        if self.walk is not None and inputs.structure is None:
            inputs = replace(inputs, structure=self.structure)
        return Surroundings(inputs, self.features, np.float64 if self.exact else np.float32)

    def _coordinates(self, around: Surroundings, view: str, restart: float) -> Coordinates:
        B = around.projected(view, self.projections[view])
        return around.coordinates(view, B, restart=restart, frame=self.frames[view, restart])

    def parts(self, inputs: NodeInputs) -> tuple[LinearPart, ...]:
        """The last round of every member: one part for each of its views."""
        around = self.surroundings(inputs)
        bases: dict[tuple[str, float], Any] = {}
        parts = []
        for member in self.members:
            for view in member.setting.views:
                key = view, member.setting.restart
                if key not in bases:
                    bases[key] = self._basis(around, *key)
                parts.append(
                    LinearPart(
                        bases[key],
                        member.round.weights,
                        member.round.targets,
                        member.round.ridge,
                        1 / (len(member.setting.views) * len(self.members)),
                    )
                )
        return tuple(parts)

    def _basis(self, around: Surroundings, view: str, restart: float) -> Any:
        frame = self.frames[view, restart]
        basis = around.basis(view, self.projections[view], restart, frame)
        found = self._coordinates(around, view, restart)
        return replace(basis, computed=(found.Z, found.norms))

    def arrays(self) -> dict[str, Array]:
        stored = {"shift": self.features.shift, "factor": self.features.factor}
        stored |= {f"projection.{view}": V for view, V in self.projections.items()}
        for number, ((_, _), frame) in enumerate(self.frames.items()):
            stored[f"frame.{number}"] = frame.centre
        for number, member in enumerate(self.members):
            last, name = member.round, f"member.{number}"
            stored |= {f"{name}.weights": last.weights, f"{name}.targets": last.targets}
            for place, fit in enumerate(last.solutions):
                stored |= {
                    f"{name}.{place}.{part}": getattr(fit, part) for part in ("coefficients", "mean", "bias")
                }
        if self.walk is not None:
            U, s, Vt = self.walk
            stored |= {"walk_left": U, "walk_values": s, "walk_right": np.ascontiguousarray(Vt.T)}
        return stored

    def facts(self) -> dict[str, Any]:
        frames = [
            {"view": view, "restart": restart, "scale": frame.scale}
            for (view, restart), frame in self.frames.items()
        ]
        members = [
            {
                **member.setting.told(),
                "last_ridge": member.round.ridge,
                "squashes": [[one.scale, one.centre and list(one.centre)] for one in member.round.squashes],
            }
            for member in self.members
        ]
        return {
            "features": self.features.kind,
            "views": list(self.projections),
            "frames": frames,
            "members": members,
            "multilabel": self.multilabel,
        }

    @classmethod
    def of_stored(cls, arrays: dict[str, Array], facts: dict[str, Any]) -> CoRidgeModel:
        features = FeatureMap(facts["features"], arrays["shift"], arrays["factor"])
        frames = {
            (told["view"], float(told["restart"])): Frame(arrays[f"frame.{number}"], float(told["scale"]))
            for number, told in enumerate(facts["frames"])
        }
        members = tuple(
            _member_of(f"member.{number}", arrays, told) for number, told in enumerate(facts["members"])
        )
        projections = {view: arrays[f"projection.{view}"] for view in facts["views"]}
        walk = None
        if "walk_left" in arrays:
            walk = SVD(arrays["walk_left"], arrays["walk_values"], arrays["walk_right"].T)
        model = cls(features, projections, frames, members, bool(facts["multilabel"]), walk)
        _check(model)
        return model


def _check(model: CoRidgeModel) -> None:
    """That everything a stored model is made of fits together."""
    if not model.members or model.features.kind not in (WORDS, NUMBERS, STRUCTURE):
        raise ShapeError("a model has members, and features of a known kind")
    n, C = shaped(model.members[0].round.targets, None, None).shape
    columns = len(shaped(model.features.shift, None))
    shaped(model.features.factor, columns)
    if model.walk is not None:
        U, s, Vt = model.walk
        r = len(shaped(s, None))
        shaped(U, n, r), shaped(Vt, r, n)
        columns = 2 * r
    if (model.walk is None) != (model.features.kind != STRUCTURE):
        raise ShapeError("walk vectors are kept exactly if there are no features")
    for V in model.projections.values():
        shaped(V, columns, None)
    for (view, _), frame in model.frames.items():
        shaped(frame.centre, model.projections[view].shape[1])
        _positive(frame.scale)
    for member in model.members:
        _check_member(member, model, (n, C))


def _check_member(member: Member, model: CoRidgeModel, size: tuple[int, int]) -> None:
    how, last = member.setting, member.round
    shaped(last.weights, size[0]), shaped(last.targets, *size)
    _positive(last.ridge)
    if len(last.squashes) != len(how.views) or not how.views or how.rounds < 0:
        raise ShapeError("a member has a squash for each of its views")
    for view, fit, squash in zip(how.views, last.solutions, last.squashes, strict=True):
        k = len(model.frames[view, how.restart].centre)
        shaped(fit.coefficients, k, size[1]), shaped(fit.mean, k), shaped(fit.bias, size[1])
        _positive(squash.scale)
        if (squash.centre is None) == model.multilabel or len(squash.centre or ()) not in (0, size[1]):
            raise ShapeError("labels are centred exactly if there may be several")


def _positive(number: float) -> None:
    if not 0 < number < np.inf:
        raise ShapeError(f"{number} is not a positive number")


def _member_of(name: str, arrays: dict[str, Array], told: dict[str, Any]) -> Member:
    views = tuple(told["views"])
    fits = tuple(
        RidgeFit(*(arrays[f"{name}.{place}.{part}"] for part in ("coefficients", "mean", "bias")))
        for place in range(len(views))
    )
    squashes = tuple(
        Squash(float(scale), None if centre is None else tuple(map(float, centre)))
        for scale, centre in told["squashes"]
    )
    setting = Setting(
        views, float(told["restart"]), float(told["ridge"]), float(told["balance"]), int(told["rounds"])
    )
    weights, targets = arrays[f"{name}.weights"], arrays[f"{name}.targets"]
    return Member(
        setting, Round(weights, targets, float(told["last_ridge"]), fits, squashes, np.empty((0, 0)))
    )


def is_linear(settings: Sequence[Setting]) -> bool:
    """Whether settings amount to one linear solve."""
    return len(settings) == 1 and settings[0].rounds == 0 and len(settings[0].views) == 1


def combined(beliefs: Array, multilabel: bool) -> Array:
    """Mean beliefs as scores: their logarithms, whose softmax they are; of several labels as they are."""
    wide = np.asarray(beliefs, np.float64)
    return wide if multilabel else np.log(np.maximum(wide, _TINY))
