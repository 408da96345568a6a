"""Which settings of co-ridge are tried, and which are taken where nothing is chosen.

The values were found on random splits of citation graphs, outside their standard test nodes.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from fastgrl.co_ridge import Setting, is_linear
from fastgrl.errors import ArgumentError
from fastgrl.node_models import NodeSettings
from fastgrl.views import FeatureMap

FEW_NODES, SOME_NODES = 10_000, 100_000
RESTARTS, ROUNDS = (0.1, 0.2), (2, 5)
DEFAULT_RESTART, DEFAULT_BALANCE, DEFAULT_ROUNDS = 0.15, 0.75, 5

ViewSets = tuple[tuple[str, ...], ...]


@dataclass(frozen=True)
class Recipe:
    """What suits graphs of a size: directions kept, the grid, and the defaults."""

    rank: int
    view_sets: ViewSets
    ridges: tuple[float, ...]
    balances: tuple[float, ...]
    default_views: tuple[str, ...]
    default_ridge: float


_RIDGES, _BALANCES = (0.003, 0.01, 0.03, 0.1), (0.5, 1.0)
_TWO, _THREE = (("l",), ("l", "i")), (("l",), ("l", "i"), ("k", "l", "i"))
SMALL = Recipe(128, _THREE, _RIDGES, _BALANCES, ("k", "l", "i"), 0.02)
# Comparing all pairs of nodes would take longer than all the rest.
LARGE = Recipe(128, _TWO, _RIDGES, _BALANCES, ("l",), 0.003)
# Fewer of everything, since a setting takes a minute and not a moment.
HUGE = Recipe(100, _TWO, (0.003, 0.01, 0.03), (0.75,), ("l",), 0.003)


def recipe_for(num_nodes: int) -> Recipe:
    """The recipe for a graph of that size."""
    return SMALL if num_nodes < FEW_NODES else LARGE if num_nodes < SOME_NODES else HUGE


@dataclass(frozen=True)
class Grid:
    """What is tried along each axis; an axis the caller has fixed has one value."""

    views: ViewSets
    restarts: tuple[float, ...]
    ridges: tuple[float, ...]
    balances: tuple[float, ...]
    rounds: tuple[int, ...]
    usual: Setting

    @classmethod
    def of(cls, settings: NodeSettings, features: FeatureMap, num_nodes: int) -> Grid:
        """The axes that the caller has left open, for features of this kind."""
        recipe = recipe_for(num_nodes)
        sets, views = _views(settings, features, recipe)
        usual = Setting(views, DEFAULT_RESTART, recipe.default_ridge, DEFAULT_BALANCE, DEFAULT_ROUNDS)

        def axis(given: Any, grid: tuple[Any, ...], default: Any) -> tuple[Any, ...]:
            return (given,) if given is not None else grid if settings.select else (default,)

        return cls(
            sets if settings.select else (views,),
            axis(settings.restart, RESTARTS, usual.restart),
            axis(settings.ridge, recipe.ridges, usual.ridge),
            axis(settings.balance, recipe.balances, usual.balance),
            axis(settings.rounds, ROUNDS, usual.rounds),
            usual,
        )

    @property
    def linear(self) -> bool:
        """All of it is one linear solve."""
        return is_linear(self.settings())

    def settings(self) -> Sequence[Setting]:
        """Every combination."""
        return [
            Setting(*each)
            for each in itertools.product(self.views, self.restarts, self.ridges, self.balances, self.rounds)
        ]

    def defaults(self) -> Setting:
        """The usual value along each axis that is open."""

        def pick(axis: tuple[Any, ...], usual: Any) -> Any:
            return usual if len(axis) > 1 else axis[0]

        return Setting(
            pick(self.views, self.usual.views),
            pick(self.restarts, self.usual.restart),
            pick(self.ridges, self.usual.ridge),
            pick(self.balances, self.usual.balance),
            pick(self.rounds, self.usual.rounds),
        )


def _views(settings: NodeSettings, features: FeatureMap, recipe: Recipe) -> tuple[ViewSets, tuple[str, ...]]:
    """Sets of views to choose from, and the usual one."""
    if "s" in features.views:
        return (("s",),), ("s",)
    if settings.views is None:
        return recipe.view_sets, recipe.default_views
    if "s" in settings.views:
        raise ArgumentError('views: "s" is that of a graph without features; choose from l, i and k')
    return (settings.views,), settings.views
