"""Python values as JSON has them, and back with their types.

None, booleans, numbers, text, lists and dictionaries by text are written as they are. What JSON lacks becomes
a dictionary of one word: {"tuple": […]}, {"bytes": "hex"}, {"float": "nan"} or {"dict": [[key, value], …]}.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from fastgrl.checks import Array, shown
from fastgrl.errors import ArgumentError
from fastgrl.ids import objects
from fastgrl.stored_ids import described

_WORDS = frozenset(("tuple", "bytes", "float", "dict"))
_NUMBERS = frozenset(
    (*(f"{kind}{bits}" for kind in ("int", "uint") for bits in (8, 16, 32, 64)), "float32", "float64", "bool")
)


def coded(value: Any, what: str) -> Any:
    """`value` as JSON has it; ArgumentError names `what` where that cannot be.

    >>> coded({"views": ("l", "i"), "seed": 3}, "chosen")
    {'views': {'tuple': ['l', 'i']}, 'seed': 3}
    """
    try:
        return _coded(value)
    except (TypeError, RecursionError):
        raise ArgumentError(
            f"{what} {described(value)} cannot be stored; use numbers, text, tuples, lists and dictionaries"
        ) from None


def _coded(value: Any) -> Any:
    if isinstance(value, np.generic) and not isinstance(value.item(), np.generic):
        return _coded(value.item())
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else {"float": repr(float(value))}
    for kind, code in _CODERS.items():
        if isinstance(value, kind):
            return code(value)
    raise TypeError


def _coded_dict(value: dict[Any, Any]) -> dict[str, Any]:
    if all(type(key) is str for key in value) and not (len(value) == 1 and _WORDS & value.keys()):
        return {key: _coded(item) for key, item in value.items()}
    return {"dict": [[_coded(key), _coded(item)] for key, item in value.items()]}


_CODERS: dict[type, Any] = {
    int: int,
    str: str,
    bytes: lambda value: {"bytes": value.hex()},
    tuple: lambda value: {"tuple": [_coded(item) for item in value]},
    list: lambda value: [_coded(item) for item in value],
    dict: _coded_dict,
}


def decoded(value: Any) -> Any:
    """What `coded` was given; ValueError or TypeError where it cannot have been.

    >>> decoded({"views": {"tuple": ["l", "i"]}, "seed": 3})
    {'views': ('l', 'i'), 'seed': 3}
    """
    if isinstance(value, list):
        return [decoded(item) for item in value]
    if not isinstance(value, dict):
        return value
    if len(value) == 1 and _WORDS & value.keys():
        [(word, content)] = value.items()
        return _DECODERS[word](content)
    return {key: decoded(item) for key, item in value.items()}


_DECODERS: dict[str, Any] = {
    "tuple": lambda items: tuple(decoded(item) for item in items),
    "bytes": bytes.fromhex,
    "float": float,
    "dict": lambda pairs: {decoded(key): decoded(item) for key, item in pairs},
}


def coded_names(names: Array, what: str) -> dict[str, Any]:
    """Distinct names of any kind, with the kind of array that they are in.

    >>> coded_names(np.array(["no", "yes"]), "classes")
    {'kind': 'U', 'names': ['no', 'yes']}
    """
    kind = names.dtype.name if names.dtype.name in _NUMBERS else names.dtype.kind
    items = names.tolist()
    if any(isinstance(item, float) and not math.isfinite(item) for item in items):
        raise ArgumentError(f"{what} contains a number that is not finite, which cannot be a name")
    return {"kind": kind if kind in _NUMBERS | {"U", "S"} else "O", "names": coded(items, what)}


def decoded_names(stored: Any) -> Array:
    """What `coded_names` was given; ValueError or TypeError where it cannot have been."""
    kind, items = stored["kind"], decoded(stored["names"])
    if not isinstance(items, list) or len(set(items)) < len(items):
        raise ValueError(f"{shown(items)} are not distinct names")
    if kind == "O":
        return objects(items)
    wanted = {"U": str, "S": bytes}.get(kind)
    if wanted is None and kind not in _NUMBERS:
        raise ValueError(f"{shown(kind)} is not a kind of names")
    names: Array = np.array(items, kind)
    if len(items) and (names.ndim != 1 or names.tolist() != items):
        raise ValueError(f"{shown(items)} are not names of kind {shown(kind)}")
    return names
