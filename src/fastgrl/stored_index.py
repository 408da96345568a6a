"""model.json: what a model is and what its tensor file holds, sealed by a SHA-256 of its own bytes."""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import dataclass
from typing import Any, NoReturn, TypeVar

from fastgrl.checks import shown
from fastgrl.errors import ArgumentError, InputError
from fastgrl.stored_ids import described
from fastgrl.stored_tensors import SUMS, Tensor, header_of, lay_out

FORMAT, VERSION = "fastgrl-model", 1
TENSOR_FILE = re.compile(r"tensors-[0-9a-f]{16}\.safetensors")
LONGEST = 1 << 26

_SEAL = b',\n "checksum": "'
_HEX = re.compile(r"[0-9a-f]{64}")

Kind = TypeVar("Kind")


@dataclass(frozen=True, eq=False)
class Index:
    """The fields of model.json; `sums` and `sha256` are digests of the tensor file."""

    kind: str
    parameters: dict[str, Any]
    facts: dict[str, Any]
    ids_kind: str
    ids_count: int
    tensors: tuple[Tensor, ...]
    sums: str
    sha256: str

    @property
    def tensor_file(self) -> str:
        """Named after its content, so that it need never be changed."""
        return f"tensors-{self.sha256[:16]}.safetensors"

    @property
    def num_bytes(self) -> int:
        """Size of the tensor file."""
        return len(header_of(self.tensors)) + (self.tensors[-1].end if self.tensors else 0)

    def to_bytes(self) -> bytes:
        """The text of model.json."""
        fields = {
            "format": FORMAT,
            "version": VERSION,
            "kind": self.kind,
            "parameters": _json_able("parameters", self.parameters),
            "facts": _json_able("facts", self.facts),
            "node_ids": {"kind": self.ids_kind, "count": self.ids_count},
            "arrays": {t.name: {"dtype": t.dtype.name, "shape": list(t.shape)} for t in self.tensors},
            "tensors": self._file_facts(),
        }
        body = json.dumps(fields, indent=1, allow_nan=False).removesuffix("\n}").encode() + _SEAL
        if len(body) > LONGEST // 2:
            raise ArgumentError(f"parameters and facts make {len(body):,} bytes of JSON; use arrays for them")
        return body + _seal_of(body)

    @classmethod
    def of(cls, raw: bytes) -> Index:
        """Read the text of a model.json; InputError says what is wrong with it."""
        fields = _parsed(raw)
        _check_version(fields)
        body, seal, rest = raw.rpartition(_SEAL)
        if rest != _seal_of(body + seal):
            raise damaged("it was damaged or edited: its checksum does not match")
        try:
            return cls._of(fields)
        except (KeyError, TypeError, ValueError) as error:
            raise damaged(f"its fields are not those of a model ({shown(str(error))})") from error

    @classmethod
    def _of(cls, fields: dict[str, Any]) -> Index:
        ids, file = _typed(fields["node_ids"], dict), _typed(fields["tensors"], dict)
        index = cls(
            kind=_typed(fields["kind"], str),
            parameters=_typed(fields["parameters"], dict),
            facts=_typed(fields["facts"], dict),
            ids_kind=_typed(ids["kind"], str),
            ids_count=_length(ids["count"]),
            tensors=lay_out({name: _entry(entry) for name, entry in _typed(fields["arrays"], dict).items()}),
            sums=_digest(file[SUMS]),
            sha256=_digest(file["sha256"]),
        )
        if file != index._file_facts():
            raise ValueError("tensors")
        return index

    def _file_facts(self) -> dict[str, Any]:
        return {"file": self.tensor_file, "bytes": self.num_bytes, "sha256": self.sha256, SUMS: self.sums}


def damaged(what: str) -> InputError:
    """The error for a model that is not as it was saved."""
    return InputError(f"{what}; restore the folder from a copy, or fit and save the model again")


def _json_able(what: str, values: dict[str, Any]) -> dict[str, Any]:
    for key, value in values.items():
        try:
            same = json.loads(json.dumps({key: value}, allow_nan=False)) == {key: value}
        except (TypeError, ValueError, RecursionError):
            same = False
        if not same:
            raise ArgumentError(
                f"{what}[{shown(key)}] is {described(value)}, which JSON cannot hold; "
                "use None, booleans, finite numbers, text, lists, and dictionaries by text"
            )
    return values


def _seal_of(body: bytes) -> bytes:
    return hashlib.sha256(body).hexdigest().encode() + b'"\n}\n'


def _parsed(raw: bytes) -> dict[str, Any]:
    try:
        fields = json.loads(raw.decode(), parse_constant=_refuse)
    except (ValueError, RecursionError) as error:
        raise damaged(f"it is damaged and cannot be read as JSON ({shown(str(error))})") from error
    if not isinstance(fields, dict) or fields.get("format") != FORMAT:
        raise InputError(f'it is not of fastgrl: it has no "format": "{FORMAT}"')
    return fields


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not a number")


def _check_version(fields: dict[str, Any]) -> None:
    version = fields.get("version")
    if type(version) is int and version > VERSION:
        raise InputError(
            f"it was written by a newer fastgrl (format {shown(version)}); this one reads format {VERSION}: "
            "upgrade fastgrl"
        )
    if type(version) is not int or version != VERSION:
        raise damaged(f"it is damaged: {shown(version)} is not a format version")


def _typed(value: Any, kind: type[Kind]) -> Kind:
    if type(value) is not kind:
        raise TypeError(f"{shown(value, limit=20)} is not of {kind.__name__}")
    return value


def _length(value: Any) -> int:
    if _typed(value, int) < 0:
        raise ValueError("a negative length")
    return int(value)


def _digest(value: Any) -> str:
    if not _HEX.fullmatch(_typed(value, str)):
        raise ValueError("a digest of another form")
    return str(value)


def _entry(entry: Any) -> tuple[str, tuple[int, ...]]:
    fields = _typed(entry, dict)
    return _typed(fields["dtype"], str), tuple(map(_length, _typed(fields["shape"], list)))
