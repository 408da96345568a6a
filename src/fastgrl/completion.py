"""What a shell may complete: names that are known here. Files are the shell's own; NumPy is not loaded."""

from __future__ import annotations

import os
import tomllib
from collections.abc import Callable, Iterable
from pathlib import Path

_CATALOGUE = Path(__file__).with_name("datasets") / "catalogue.toml"
_MODEL_FILE = "model.json"
EXPERIMENTS = ("table-nodes", "table-links", "figure-time", "figure-depth", "figure-rank", "all")


def words(allowed: Iterable[str]) -> Callable[[str], list[str]]:
    """A completion from a list.

    >>> words(["walk", "shrunken"])("w")
    ['walk']
    """
    known = tuple(allowed)

    def complete(incomplete: str) -> list[str]:
        return [word for word in known if word.startswith(incomplete)]

    return complete


def datasets(incomplete: str) -> list[tuple[str, str]]:
    """Datasets by name, with their titles; read from the catalogue itself, as its module loads NumPy."""
    known = tomllib.loads(_CATALOGUE.read_text("utf-8"))
    return [(name, facts["title"]) for name, facts in known.items() if name.startswith(incomplete)]


def models(incomplete: str) -> list[str]:
    """Folders of models, in the folder that has been typed so far."""
    folder, start = os.path.split(incomplete)
    return [os.path.join(folder, name) for name in models_in(folder) if name.startswith(start)]


def models_in(folder: str) -> list[str]:
    """Names of the models in a folder; none if it cannot be read."""
    try:
        entries = os.listdir(folder or ".")
    except OSError:
        return []
    return sorted(name for name in entries if os.path.exists(os.path.join(folder, name, _MODEL_FILE)))
