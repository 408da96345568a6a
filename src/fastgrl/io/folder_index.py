"""graph.json: what a graph on disk is and which files hold it, sealed by a SHA-256 of its own fields."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np

from fastgrl.checks import shown
from fastgrl.errors import InputError

FORMAT, VERSION = "fastgrl-graph", 1
INDEX_FILE = "graph.json"
INDPTR, WEIGHTS, TEXT, OFFSETS = "indptr.i64", "weights.f64", "ids.utf8", "ids.offsets.i64"
CODES = {
    f"{kind}{8 * size}": f"<{kind}{size}"
    for kind in "iuf"
    for size in (1, 2, 4, 8)
    if kind + str(size) != "f1"
}
_SMALL = 2**31
_MOST_NOTES = 32

Kind = TypeVar("Kind")


@dataclass(frozen=True)
class FolderIndex:
    """The fields of graph.json. `ids` is "text" or the type of the numbers; `files` has bytes and digests."""

    nodes: int
    edges: int
    stored: int
    self_loops: int
    repeats: int
    rows: int
    directed: bool
    weighted: bool
    ids: str
    ids_bytes: int
    layout: dict[str, str]
    digests: dict[str, str]

    @property
    def indices_file(self) -> str:
        """Named after its type: 64 bits only where 32 would not do."""
        return "indices.i32" if self.nodes < _SMALL else "indices.i64"

    @property
    def ids_file(self) -> str:
        """The file of the ids themselves."""
        return TEXT if self.ids == "text" else f"ids.{self.ids}"

    @property
    def sizes(self) -> dict[str, int]:
        """Every file but graph.json, with its bytes."""
        n, width = self.nodes, 4 if self.nodes < _SMALL else 8
        sizes = {INDPTR: 8 * (n + 1), self.indices_file: width * self.stored}
        if self.weighted:
            sizes[WEIGHTS] = 8 * self.stored
        if self.ids == "text":
            return sizes | {TEXT: self.ids_bytes, OFFSETS: 8 * (n + 1)}
        return sizes | {self.ids_file: np.dtype(CODES[self.ids]).itemsize * n}

    def to_bytes(self) -> bytes:
        """The text of graph.json."""
        fields = self._fields()
        return json.dumps(fields | {"checksum": _checksum(fields)}, indent=1).encode() + b"\n"

    def _fields(self) -> dict[str, Any]:
        counts = ("nodes", "edges", "stored", "self_loops", "repeats", "rows", "directed", "weighted", "ids")
        files = {name: {"bytes": size, "sums": self.digests[name]} for name, size in self.sizes.items()}
        return {
            "format": FORMAT,
            "version": VERSION,
            **{name: getattr(self, name) for name in counts},
            "sorted_ids": True,
            "layout": self.layout,
            "files": files,
            "fingerprint": hashlib.sha256(
                "".join(self.digests[name] for name in sorted(files)).encode()
            ).hexdigest(),
        }

    @classmethod
    def of(cls, raw: bytes) -> FolderIndex:
        """Read the text of a graph.json; InputError says what is wrong with it."""
        fields = _parsed(raw)
        checksum = fields.pop("checksum", None)
        if checksum != _checksum(fields):
            raise damaged("it was damaged or edited: its checksum does not match")
        try:
            index = cls._of(fields)
            same = index._fields() == fields
        except (KeyError, TypeError, ValueError) as error:
            raise damaged(f"its fields are not those of a graph ({shown(str(error))})") from None
        if not same:
            raise damaged("its fields contradict each other")
        return index

    @classmethod
    def _of(cls, fields: dict[str, Any]) -> FolderIndex:
        counts = {
            name: _count(fields[name])
            for name in ("nodes", "edges", "stored", "self_loops", "repeats", "rows")
        }
        files = _typed(fields["files"], dict)
        ids = _typed(fields["ids"], str)
        if ids != "text" and ids not in CODES:
            raise ValueError(f"ids of {shown(ids)}")
        index = cls(
            **counts,
            directed=_typed(fields["directed"], bool),
            weighted=_typed(fields["weighted"], bool),
            ids=ids,
            ids_bytes=_count(files[TEXT]["bytes"]) if ids == "text" else 0,
            layout={_typed(k, str): _typed(v, str) for k, v in _typed(fields["layout"], dict).items()},
            digests={name: _typed(entry["sums"], str) for name, entry in files.items()},
        )
        doubled = index.edges if index.directed else 2 * index.edges - index.self_loops
        if index.stored != doubled or index.self_loops > index.nodes or len(index.layout) > _MOST_NOTES:
            raise ValueError("its counts")
        return index


def damaged(what: str) -> InputError:
    """The error for a graph that is not as it was written."""
    return InputError(f"{what}; restore the folder from a copy, or import the graph again")


def _checksum(fields: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(fields, sort_keys=True).encode()).hexdigest()


def _parsed(raw: bytes) -> dict[str, Any]:
    try:
        fields = json.loads(raw.decode())
    except (ValueError, RecursionError) as error:
        raise damaged(f"it is damaged and cannot be read as JSON ({shown(str(error))})") from None
    if not isinstance(fields, dict) or fields.get("format") != FORMAT:
        raise InputError(f'it is not a graph of fastgrl: it has no "format": "{FORMAT}"')
    version = fields.get("version")
    if type(version) is int and version > VERSION:
        raise InputError(
            f"it was written by a newer fastgrl (format {shown(version)}); this one reads format {VERSION}: "
            "upgrade fastgrl"
        )
    if type(version) is not int or version != VERSION:
        raise damaged(f"it is damaged: {shown(version)} is not a format version")
    return fields


def _typed(value: Any, kind: type[Kind]) -> Kind:
    if type(value) is not kind:
        raise TypeError(f"{shown(value, limit=20)} is not of {kind.__name__}")
    return value


def _count(value: Any) -> int:
    if not 0 <= _typed(value, int) < 2**56:
        raise ValueError(f"{shown(value, limit=20)} is not a count")
    return int(value)
