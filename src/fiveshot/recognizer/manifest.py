"""What a model is made of: the text of ``model.toml``, read strictly and written in one form."""

from __future__ import annotations

import json
import math
import tomllib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any

from fiveshot import __version__
from fiveshot.errors import StorageError

FORMAT = 1  # of the directory; a release reads this one and those before it
MANIFEST = "model.toml"
REPAIR = "; restore it from a copy, or run: fiveshot check MODEL --repair"


@dataclass(frozen=True)
class BackboneRecord:
    """Which network makes the features: enough to load it again and to tell whether it is the same one."""

    name: str
    width: int  # length of a feature vector
    fingerprint: str  # SHA-256 of everything that decides the features
    preprocessing: Mapping[str, Any] = field(default_factory=dict, hash=False)
    tokens: str = "cls"
    last_blocks: int = 1
    weights_hash: str = ""
    weights: str = ""  # path of the local file the weights came from; empty: named by `name`
    adapter: str = ""  # file in the directory; empty: none
    adapter_sha256: str = ""


@dataclass(frozen=True)
class HeadRecord:
    """Which head, with the values it has, and what it chose on the base session."""

    name: str
    parameters: Mapping[str, Any] = field(default_factory=dict, hash=False)
    settings: Mapping[str, Any] = field(default_factory=dict, hash=False)


@dataclass(frozen=True)
class BaseRecord:
    """The file of the base classes' statistics; no file: a model without a base."""

    file: str = ""
    sha256: str = ""
    classes: int = 0
    origin: str = ""  # SHA-256 of the first file: models that began with the same one can be merged


@dataclass(frozen=True)
class Options:
    """What the owner of the model chose."""

    keep_photos: bool = False
    thumbnails: bool = True
    false_rejection: float = 0.05
    seed: int = 0


@dataclass(frozen=True)
class Manifest:
    """Everything about a model that is not a class.

    >>> made = Manifest(BackboneRecord("vit", 4, "ab"), HeadRecord("ncm", {"temperature": 0.5}))
    >>> Manifest.from_toml(made.to_toml()) == made
    True
    """

    backbone: BackboneRecord
    head: HeadRecord
    base: BaseRecord = BaseRecord()
    options: Options = Options()
    rejection: Mapping[str, Any] = field(default_factory=dict, hash=False)  # of the base; empty: from the shots
    made_with: str = f"fiveshot {__version__}"
    format: int = FORMAT

    def with_base(self, base: BaseRecord) -> Manifest:
        """Return the manifest of the same model with another base file; where it came from stays."""
        return replace(self, base=replace(base, origin=self.base.origin or base.sha256))

    def to_toml(self) -> str:
        """Return the text of ``model.toml``; equal manifests give equal texts."""
        lines = ["# A fiveshot model. Change it with fiveshot's commands, never by hand.", ""]
        lines += [f"format = {self.format}", f"made_with = {_toml(self.made_with)}"]
        lines.append(f"rejection = {_toml(_plain_json(self.rejection))}")
        for section in ("backbone", "head", "base", "options"):
            lines += ["", f"[{section}]"]
            for key, value in asdict(getattr(self, section)).items():
                lines.append(f"{key} = {_toml(_plain_json(value) if isinstance(value, dict) else value)}")
        return "\n".join(lines) + "\n"

    @classmethod
    def from_toml(cls, text: str, *, where: object = MANIFEST) -> Manifest:
        """Read what ``to_toml`` wrote; a newer format, damage and unknown entries are refused."""
        try:
            values = tomllib.loads(text)
        except tomllib.TOMLDecodeError as error:
            raise _damaged(where, str(error)) from error
        found = values.get("format")
        if isinstance(found, int) and found > FORMAT:
            raise StorageError(
                f"{where} has format {found}, this release reads up to {FORMAT}; "
                "upgrade with: pip install --upgrade fiveshot"
            )
        if found != FORMAT:
            raise _damaged(where, f"format is {found!r}")
        try:
            values["rejection"] = json.loads(values["rejection"])
            sections = {"backbone": BackboneRecord, "head": HeadRecord, "base": BaseRecord, "options": Options}
            parts = {name: _record(kind, values.pop(name)) for name, kind in sections.items()}
            manifest: Manifest = _record(cls, {**values, **parts})
            return manifest
        except (KeyError, TypeError, ValueError) as error:
            raise _damaged(where, repr(error)) from error


def _record(kind: Any, values: Any) -> Any:
    """Build a record from values of exactly its entries and types."""
    expected = {entry.name: entry.type for entry in fields(kind)}
    if set(values) != set(expected):
        raise ValueError(f"entries {sorted(set(values) ^ set(expected))} are missing or unknown")
    for name, declared in expected.items():
        value = values[name]
        if declared == "Mapping[str, Any]" and isinstance(value, str):
            values[name] = value = json.loads(value)
        wanted = _TYPES.get(str(declared))
        if wanted is not None and type(value) is not wanted:
            raise ValueError(f"{name} is {value!r}, not of type {wanted.__name__}")
        if isinstance(value, float) and not math.isfinite(value):
            raise ValueError(f"{name} is {value!r}")
    return kind(**values)


_TYPES: dict[str, type] = {"str": str, "int": int, "float": float, "bool": bool, "Mapping[str, Any]": dict}


def _plain_json(value: Mapping[str, Any]) -> str:
    return json.dumps(value, sort_keys=True, ensure_ascii=False, allow_nan=False)


def _toml(value: Any) -> str:
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")  # the escapes of JSON are TOML's
    return json.dumps(value, allow_nan=False)


def _damaged(where: object, reason: str) -> StorageError:
    return StorageError(f"{where} is damaged or was changed by hand ({reason}){REPAIR}")
