"""Where feature vectors come from: enough to tell whether two sets may be mixed or compared."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from fiveshot.errors import InputError

UNKNOWN = "unknown"


@dataclass(frozen=True)
class Provenance:
    """How a set of feature vectors was made. What is not known says ``unknown`` and is never guessed.

    Parameters
    ----------
    dataset : str
        The dataset the images are of.
    backbone : str
        Exact name of the backbone.
    weights_hash : str
        The backbone's own hash of its weights.
    preprocessing : mapping
        Whatever describes resizing, cropping and normalization, as JSON values.
    adapter : str, optional
        The backbone's own hash of its adapter; None without one.
    readout : str
        What was read from the network; ``cls`` is the class token after the final norm.
    note : str
        Anything else worth knowing.
    precision : str
        That of the forward pass: ``float32``, ``tf32`` or ``bf16``.

    Examples
    --------
    >>> from fiveshot.features import Provenance
    >>> made = Provenance("birds", "vit.ours", weights_hash="ab12", preprocessing={"size": (224, 224)})
    >>> made.preprocessing
    {'size': [224, 224]}
    """

    dataset: str
    backbone: str
    weights_hash: str
    preprocessing: Mapping[str, Any] = field(default_factory=dict, hash=False)
    adapter: str | None = None
    readout: str = "cls"
    note: str = ""
    precision: str = UNKNOWN

    def __post_init__(self) -> None:
        for name in ("dataset", "backbone", "weights_hash", "readout", "note", "precision"):
            if not isinstance(getattr(self, name), str):
                raise InputError(f"provenance: {name} must be a text, not {getattr(self, name)!r}")
        if self.adapter is not None and not isinstance(self.adapter, str):
            raise InputError(f"provenance: adapter must be a text or None, not {self.adapter!r}")
        try:
            stored = json.loads(json.dumps(dict(self.preprocessing), allow_nan=False))
        except (TypeError, ValueError) as error:
            raise InputError(f"provenance: preprocessing must be a dictionary of JSON values ({error})") from error
        object.__setattr__(self, "preprocessing", stored)

    @classmethod
    def unknown(cls, dataset: str, *, note: str = "") -> Provenance:
        """Return the provenance of vectors that came without one.

        >>> Provenance.unknown("birds").backbone
        'unknown'
        """
        return cls(dataset, UNKNOWN, UNKNOWN, {}, None, UNKNOWN, note)

    @classmethod
    def of(cls, dataset: str, identity: Mapping[str, Any]) -> Provenance:
        """Return the provenance of vectors that an embedder with this ``identity()`` makes.

        >>> from fiveshot.backbones import load_embedder
        >>> Provenance.of("birds", load_embedder().identity()).precision
        'float32'
        """
        return cls(
            dataset,
            identity["name"],
            identity["weights_hash"],
            identity["preprocessing"],
            identity["adapter_hash"],
            readout_in_words(**identity["readout"]),
            precision=identity["precision"],
        )

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Provenance:
        """Rebuild a provenance from ``as_dict()``; missing and unknown entries are errors."""
        expected = {entry.name for entry in fields(cls)}
        if {*values, "precision"} != expected:
            missing, extra = sorted(expected - {*values, "precision"}), sorted(set(values) - expected)
            raise InputError(f"provenance with missing entries {missing} and unknown entries {extra}")
        return cls(**values)

    def as_dict(self) -> dict[str, Any]:
        """Return all entries, ready for JSON; an unknown precision is left out."""
        entries = {entry.name: getattr(self, entry.name) for entry in fields(self)}
        if self.precision == UNKNOWN:
            del entries["precision"]
        return {**entries, "preprocessing": dict(self.preprocessing)}

    def differences(self, other: Provenance) -> tuple[str, ...]:
        """Name the entries, the note aside, in which two provenances differ, with both values.

        A precision that one of them does not know does not count.

        >>> ours = Provenance("birds", "vit", "ab12")
        >>> ours.differences(Provenance("birds", "cnn", "ab12", note="tried once more"))
        ("backbone is 'cnn', not 'vit'",)
        """
        ignored = {"note", "precision"} if UNKNOWN in (self.precision, other.precision) else {"note"}
        names = [entry.name for entry in fields(self) if entry.name not in ignored]
        return tuple(
            f"{name} is {getattr(other, name)!r}, not {getattr(self, name)!r}"
            for name in names
            if getattr(self, name) != getattr(other, name)
        )


def readout_in_words(tokens: str, last_blocks: int) -> str:
    """Return what is read from a network as a provenance says it.

    >>> readout_in_words("cls", 1), readout_in_words("mean", 4)
    ('cls', 'mean, last 4 blocks')
    """
    return tokens if last_blocks == 1 else f"{tokens}, last {last_blocks} blocks"
