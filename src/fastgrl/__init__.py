"""Learning from graphs by solving linear problems: any graph in, the SVD of matrices that are never formed.

Each public name is imported from its module when it is first used: the command line starts before NumPy and
SciPy are loaded, and can be interrupted while they are.
"""

import sys
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fastgrl.certificates import Certificate as Certificate
    from fastgrl.certificates import certificate as certificate
    from fastgrl.datasets import load_dataset as load_dataset
    from fastgrl.errors import FastgrlError as FastgrlError
    from fastgrl.fsvd import SVD as SVD
    from fastgrl.fsvd import fsvd as fsvd
    from fastgrl.fsvd import pinv_apply as pinv_apply
    from fastgrl.graph import Graph as Graph
    from fastgrl.io import read_graph as read_graph
    from fastgrl.kernels import kernel_info as kernel_info
    from fastgrl.leaves import Diagonal as Diagonal
    from fastgrl.leaves import Function as Function
    from fastgrl.leaves import Identity as Identity
    from fastgrl.leaves import LowRank as LowRank
    from fastgrl.leaves import Matrix as Matrix
    from fastgrl.leaves import Ones as Ones
    from fastgrl.link_prediction import LinkPredictor as LinkPredictor
    from fastgrl.link_prediction import cross_validate as cross_validate
    from fastgrl.link_runs import embed as embed
    from fastgrl.models import load as load
    from fastgrl.node_classification import NodeClassifier as NodeClassifier
    from fastgrl.node_features import NodeFeatures as NodeFeatures
    from fastgrl.normalisations import renormalised as renormalised
    from fastgrl.normalisations import symmetric as symmetric
    from fastgrl.normalisations import transition as transition
    from fastgrl.operators import HStack as HStack
    from fastgrl.operators import Operator as Operator
    from fastgrl.operators import Polynomial as Polynomial
    from fastgrl.operators import VStack as VStack
    from fastgrl.operators import as_operator as as_operator

__version__ = "0.1.0"

_HOMES = {
    "certificates": ("Certificate", "certificate"),
    "datasets": ("load_dataset",),
    "errors": ("FastgrlError",),
    "fsvd": ("SVD", "fsvd", "pinv_apply"),
    "graph": ("Graph",),
    "io": ("read_graph",),
    "kernels": ("kernel_info",),
    "leaves": ("Diagonal", "Function", "Identity", "LowRank", "Matrix", "Ones"),
    "link_prediction": ("LinkPredictor", "cross_validate"),
    "link_runs": ("embed",),
    "models": ("load",),
    "node_classification": ("NodeClassifier",),
    "node_features": ("NodeFeatures",),
    "normalisations": ("renormalised", "symmetric", "transition"),
    "operators": ("HStack", "Operator", "Polynomial", "VStack", "as_operator"),
}
__all__ = sorted(name for names in _HOMES.values() for name in names)
# Modules that are documented by themselves: `fg.metrics.roc_auc` needs no further import.
_MODULES = frozenset({"datasets", "distributed", "metrics", "splits", "walks"})


def __getattr__(name: str) -> Any:
    for home, names in _HOMES.items():
        if name in names:
            value = getattr(import_module(f"fastgrl.{home}"), name)
            globals()[name] = value
            return value
    if name in _MODULES:
        return import_module(f"fastgrl.{name}")
    raise AttributeError(f"module 'fastgrl' has no attribute {name!r}")


def __dir__() -> list[str]:
    return [*globals(), *__all__]


class _Package(ModuleType):
    def __setattr__(self, name: str, value: object) -> None:
        # Importing fastgrl.fsvd, the module, must not hide fastgrl.fsvd, the function.
        if not (isinstance(value, ModuleType) and name in __all__):
            super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package
