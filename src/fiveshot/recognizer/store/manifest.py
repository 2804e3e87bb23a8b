"""The manifest of a model, ``model.toml``: read strictly, always written in the same form."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_origin

from fiveshot import __version__
from fiveshot.errors import InputError, StorageError, is_number
from fiveshot.recognizer.names import similar_name
from fiveshot.values import make_converter, read_value

if TYPE_CHECKING:
    from cattrs import Converter

FORMAT = 1  # of the directory
MANIFEST = "model.toml"
REPAIR = "restore it from a copy, or run: fiveshot check MODEL --repair"


@dataclass(frozen=True)
class BackboneRecord:
    """The network that computes the features: how to load it, and how to recognize it."""

    name: str
    width: int  # length of a feature vector
    fingerprint: str  # SHA-256 of everything that the features depend on
    preprocessing: Mapping[str, Any] = field(default_factory=dict, hash=False)
    tokens: str = "own"
    last_blocks: int = 1
    weights_hash: str = ""
    weights: str = ""  # path of the local file the weights came from; empty: named by `name`
    adapter: str = ""  # file in the directory; empty: none
    adapter_sha256: str = ""


@dataclass(frozen=True)
class HeadRecord:
    """The head, its parameters, and the values that it chose on the base session."""

    name: str
    parameters: Mapping[str, Any] = field(default_factory=dict, hash=False)
    settings: Mapping[str, Any] = field(default_factory=dict, hash=False)


@dataclass(frozen=True)
class BaseRecord:
    """The file of the base classes' statistics; no file: a model without a base."""

    file: str = ""
    sha256: str = ""
    classes: int = 0
    origin: str = ""  # SHA-256 of the original file: models with the same original base can be merged


@dataclass(frozen=True)
class Options:
    """Options that the user chose for the model."""

    keep_photos: bool = False
    thumbnails: bool = True
    false_rejection: float = 0.05
    seed: int = 0
    names: bool = True  # whether photos keep their file names
    wrong_answers: float = 0.05

    def __post_init__(self) -> None:
        """Refuse wrong types: a text such as ``"no"`` would otherwise count as true."""
        for name in ("keep_photos", "thumbnails", "names"):
            if not isinstance(getattr(self, name), bool):
                raise InputError(
                    f"{name}={getattr(self, name)!r} is neither True nor False", hint="give one of the two"
                )
        for name in ("false_rejection", "wrong_answers"):
            check_rate(getattr(self, name), name)
        if not is_number(self.seed, whole=True) or self.seed < 0:
            raise InputError(f"seed={self.seed!r} is not a whole number of at least 0", hint="give one such as 0")
        # Numbers of other libraries become Python numbers, as in the manifest.
        object.__setattr__(self, "false_rejection", float(self.false_rejection))
        object.__setattr__(self, "wrong_answers", float(self.wrong_answers))
        object.__setattr__(self, "seed", int(self.seed))


def check_rate(rate: float, name: str = "false_rejection") -> float:
    """Return a valid rate, of false rejections unless another name is given, or raise an error."""
    if not is_number(rate) or not 0 < rate < 1:
        in_percent = is_number(rate) and 1 <= rate < 100
        meant = f"for {rate:g} % give {rate / 100:g}; " if in_percent else ""
        raise InputError(
            f"{name}={rate!r} is not a number between 0 and 1 (both excluded)",
            hint=f"{meant}the default is 0.05",
        )
    return rate


ENTRIES = ("format", "made_with", "rejection")
SECTIONS = {"backbone": BackboneRecord, "head": HeadRecord, "base": BaseRecord, "options": Options}
ALL_NAMES = {*ENTRIES, *SECTIONS} | {f"{key}.{one.name}" for key, kind in SECTIONS.items() for one in fields(kind)}


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
    rejection: Mapping[str, Any] = field(default_factory=dict, hash=False)  # of the base; may be empty
    made_with: str = f"fiveshot {__version__}"
    format: int = FORMAT

    def with_base(self, base: BaseRecord) -> Manifest:
        """Return the manifest of the same model with another base file; the original base stays noted."""
        return replace(self, base=replace(base, origin=self.base.origin or base.sha256))

    def to_toml(self) -> str:
        """Return the text of ``model.toml``; equal manifests give equal texts."""
        lines = ["# A fiveshot model. Change it with fiveshot's commands, never by hand.", ""]
        lines += [f"{key} = {_toml(getattr(self, key))}" for key in ENTRIES]
        for section in SECTIONS:
            lines += ["", f"[{section}]"]
            lines += [f"{key} = {_toml(value)}" for key, value in asdict(getattr(self, section)).items()]
        return "\n".join(lines) + "\n"

    @classmethod
    def from_toml(cls, text: str, *, where: object = MANIFEST) -> Manifest:
        """Read the text of ``to_toml``; refuse another format, damage and unknown entries."""
        try:
            values = tomllib.loads(text)
        except (ValueError, RecursionError) as error:  # the second for very deep nesting
            raise _damaged(where, str(error)) from error
        found = values.get("format")
        if isinstance(found, int) and found != FORMAT:
            raise StorageError(
                f"{where} has format {found}, this release reads {FORMAT}",
                hint="use the release that made it, or upgrade with: pip install --upgrade fiveshot",
                code="other_format",
            )
        try:
            manifest = read_value(_strict_converter(), cls, values)
        except InputError as error:
            raise _damaged(where, error.message) from error
        missing = ALL_NAMES - _names(values)
        if missing:
            raise _damaged(where, f"missing: {', '.join(sorted(missing))}")
        return manifest


@cache
def _strict_converter() -> Converter:
    """Return a converter that refuses unknown entries. Mappings are JSON texts, as in ``to_toml``."""
    converter = make_converter(forbid_extra_keys=True)
    converter.register_structure_hook_func(
        _is_mapping, lambda text, _: converter.structure(json.loads(text), dict)
    )
    return converter


def _names(values: Mapping[str, Any]) -> set[str]:
    """Return the names of all entries, those in a section with its name before them."""
    inner = {f"{key}.{name}" for key, value in values.items() if isinstance(value, dict) for name in value}
    return {*values, *inner}


def _is_mapping(kind: Any) -> bool:
    return get_origin(kind) is Mapping


def _toml(value: Any) -> str:
    if isinstance(value, Mapping):
        value = json.dumps(value, sort_keys=True, ensure_ascii=False, allow_nan=False)
    text = json.dumps(value, ensure_ascii=False, allow_nan=False)
    return text.replace("\x7f", "\\u007f")  # TOML has the other escapes of JSON


def _damaged(where: object, reason: str) -> StorageError:
    return StorageError(
        f"{where} is damaged or was changed by hand ({reason})", hint=REPAIR, code="damaged_manifest"
    )


def check_folder(path: Path) -> None:
    """Refuse a path that is not the directory of a model."""
    make = "make one with: fiveshot new MODEL"
    if not path.exists():
        near = similar_name(path.name, _models_beside(path))
        meant = f"did you mean {path.with_name(near)}? " if near else ""
        raise StorageError(f"no such model: {path}", hint=f"{meant}{make}", code="no_model")
    if not path.is_dir():
        raise StorageError(
            f"{path} is a file, and a model is a directory",
            hint="to import an exported model: fiveshot import FILE MODEL",
            code="no_model",
        )
    if not (path / MANIFEST).is_file():
        raise StorageError(f"{path} is not a fiveshot model: it has no {MANIFEST}", hint=make, code="no_model")


def _models_beside(path: Path) -> list[str]:
    try:
        return [one.name for one in path.parent.iterdir() if (one / MANIFEST).is_file()]
    except OSError:
        return []


def read_manifest(path: Path) -> Manifest:
    """Return the manifest in ``model.toml``; refuse a damaged or newer one."""
    return Manifest.from_toml(read_manifest_text(path), where=path / MANIFEST)


def read_manifest_text(path: Path) -> str:
    """Return the text of ``model.toml``, whatever it is."""
    file = path / MANIFEST
    try:
        return file.read_bytes().decode()
    except OSError as error:
        raise StorageError(f"cannot read {file}: {error.strerror or error}") from error
    except UnicodeDecodeError:
        return "\0"  # not TOML: refused like any other damage
