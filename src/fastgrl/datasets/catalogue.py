"""The catalogue of datasets: what there is, where it comes from and what loading it must find."""

from __future__ import annotations

import difflib
import functools
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources
from types import MappingProxyType
from typing import Any

from fastgrl.checks import shown
from fastgrl.errors import ArgumentError


@dataclass(frozen=True)
class FileInfo:
    """One file of a dataset; `url` is None if it cannot be downloaded as it is."""

    name: str
    url: str | None
    sha256: str
    bytes: int


@dataclass(frozen=True)
class DatasetInfo:
    """What the catalogue knows about a dataset.

    `task` is "links" or "nodes". `expected` holds the counts that loading must find, under the same names
    as `counts` of the loaded dataset, and `published` what the reference paper's table says, where it
    lists the dataset; for a links dataset the published edges are to be compared with `all_edges`. `window`
    is the number of steps of a walk that the paper used for it, `metric` how links are measured.
    """

    name: str
    title: str
    task: str
    reader: str
    folder: str
    files: tuple[FileInfo, ...]
    licence: str
    citation: str
    note: str
    expected: Mapping[str, int]
    published: Mapping[str, int] | None
    window: int | None = None
    metric: str = "roc_auc"

    @property
    def bytes(self) -> int:
        """Size of all files together."""
        return sum(file.bytes for file in self.files)


def list_datasets() -> tuple[str, ...]:
    """Names of all datasets that `load_dataset` knows.

    >>> from fastgrl.datasets import list_datasets
    >>> "cora" in list_datasets()
    True
    """
    return tuple(catalogue())


def describe(name: str) -> DatasetInfo:
    """What the catalogue knows about the dataset called `name`; no file is touched.

    >>> from fastgrl.datasets import describe
    >>> describe("ppi").expected["nodes"]
    3852
    """
    known = catalogue()
    if not isinstance(name, str) or name not in known:
        raise ArgumentError(f"there is no dataset {shown(name)}; {_suggestion(name, list(known))}")
    return known[name]


def _suggestion(name: Any, known: list[str]) -> str:
    lower = {item.lower(): item for item in known}
    close = difflib.get_close_matches(str(name)[:40].lower(), lower, n=1)
    return f"did you mean {lower[close[0]]}?" if close else f"choose from {', '.join(known)}"


@functools.cache
def catalogue() -> Mapping[str, DatasetInfo]:
    """Every dataset by name."""
    text = resources.files("fastgrl.datasets").joinpath("catalogue.toml").read_text("utf-8")
    return MappingProxyType({name: _info(name, entry) for name, entry in tomllib.loads(text).items()})


def _info(name: str, entry: dict[str, Any]) -> DatasetInfo:
    address = entry.get("address")
    files = tuple(
        FileInfo(file, address and address + file, facts["sha256"], facts["bytes"])
        for file, facts in entry.get("files", {}).items()
    )
    return DatasetInfo(
        name=name,
        title=entry["title"],
        task=entry["task"],
        reader=entry["reader"],
        folder=entry.get("folder", ""),
        files=files,
        licence=entry["licence"],
        citation=entry["citation"],
        note=entry.get("note", ""),
        expected=MappingProxyType(entry["expected"]),
        published=MappingProxyType(entry["published"]) if "published" in entry else None,
        window=entry.get("window"),
        metric=entry.get("metric", "roc_auc"),
    )
