"""Everything a cluster run learned about classes, as one value and one file."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fiveshot.core import ClassStatistics
from fiveshot.data import BadImage
from fiveshot.errors import InputError, StorageError
from fiveshot.features import Provenance
from fiveshot.scale.statistics.classes import PackedStatistics, TiedStatistics, tie, unpack
from fiveshot.scale.statistics.reductions import ClassSample, RidgeSums
from fiveshot.storage import FilePath, read_tensors, write_tensors

KIND, VERSION = "cluster-statistics", 1
PARTS: dict[str, Any] = {
    "classes": PackedStatistics,
    "tied": TiedStatistics,
    "sample": ClassSample,
    "ridge": RidgeSums,
}


@dataclass(frozen=True, eq=False)
class ClusterStatistics:
    """Statistics of the training images, with the backbone they were made by and the images left out.

    Attributes
    ----------
    provenance : Provenance
        How the vectors were made.
    identity : mapping
        Everything about the backbone that decides its vectors.
    images : int
        All images, bad ones included.
    bad : tuple of BadImage
        The images that were left out.
    classes : PackedStatistics or None
        Statistics with a covariance for each class, where the plan asked for them.
    tied : TiedStatistics or None
        Statistics with one covariance for all, where the plan asked for them.
    sample : ClassSample or None
        A few vectors of each class.
    ridge : RidgeSums or None
        The sums of a RanPAC base session.
    head : str
        The head whose vectors ``classes`` and ``tied`` are about; empty for the backbone's own.
    settings : mapping
        Settings of that head.
    notes : mapping
        What else is known, as JSON values.

    Examples
    --------
    >>> import numpy as np
    >>> from fiveshot.features import Provenance
    >>> from fiveshot.scale import ClusterStatistics, StatisticsPlan
    >>> from fiveshot.scale.extraction.batches import Rows
    >>> rows = Rows(np.float32([[1, 0], [3, 0], [0, 5]]), np.array(["owl", "owl", "wren"]), ("1", "2", "3"))
    >>> parts = {name: reduction.reduce(rows) for name, reduction in StatisticsPlan().reductions().items()}
    >>> found = ClusterStatistics(Provenance.unknown("birds"), {}, images=3, **parts)
    >>> found.statistics.means.tolist(), found.pooled.covariance.round(3).tolist()
    ([[2.0, 0.0], [0.0, 5.0]], [[2.0, 0.0], [0.0, 0.0]])
    """

    provenance: Provenance
    identity: Mapping[str, Any]
    images: int
    bad: tuple[BadImage, ...] = ()
    classes: PackedStatistics | None = None
    tied: TiedStatistics | None = None
    sample: ClassSample | None = None
    ridge: RidgeSums | None = None
    head: str = ""
    settings: Mapping[str, Any] = field(default_factory=dict)
    notes: Mapping[str, Any] = field(default_factory=dict)

    @property
    def statistics(self) -> ClassStatistics:
        """The statistics with a covariance for each class, as heads take them."""
        if self.classes is None:
            raise InputError(
                "one covariance was made for all classes", hint="reduce again with covariance='class'"
            )
        return unpack(self.classes)

    @property
    def pooled(self) -> TiedStatistics:
        """The statistics with one covariance for all classes; they follow from those with one for each."""
        if self.tied is not None:
            return self.tied
        if self.classes is None:
            raise InputError("these statistics have no covariance at all")
        return tie(self.classes)

    def save(self, path: FilePath) -> None:
        """Write everything into one file; it is complete or absent."""
        arrays, texts = {}, []
        for part in PARTS:
            value = getattr(self, part)
            for entry in fields(value) if value is not None else ():
                name, array = f"{part}.{entry.name}", getattr(value, entry.name)
                if array.dtype.kind == "U":
                    texts.append(name)
                    array = _encoded(array.tolist())
                arrays[name] = array
        meta = {
            "provenance": self.provenance.as_dict(),
            "identity": dict(self.identity),
            "images": self.images,
            "bad": [[image.name, image.reason] for image in self.bad],
            "texts": texts,
            "head": self.head,
            "settings": dict(self.settings),
            "notes": dict(self.notes),
        }
        write_tensors(path, arrays, kind=KIND, version=VERSION, meta=meta)

    @classmethod
    def load(cls, path: FilePath) -> ClusterStatistics:
        """Read a file written by ``save``."""
        file = read_tensors(path, kind=KIND, version=VERSION)
        try:
            meta, parts = file.meta, {}
            texts = {name: np.array(_decoded(file.tensors[name]), dtype=np.str_) for name in meta["texts"]}
            arrays = {**file.tensors, **texts}
            for part, make in PARTS.items():
                if f"{part}.labels" in arrays:
                    parts[part] = make(*(arrays[f"{part}.{entry.name}"] for entry in fields(make)))
            bad = tuple(BadImage(name, reason) for name, reason in meta["bad"])
            provenance = Provenance.from_dict(meta["provenance"])
            rest = {name: meta[name] for name in ("head", "settings", "notes")}
            return cls(provenance, meta["identity"], int(meta["images"]), bad, **parts, **rest)
        except (KeyError, TypeError, ValueError) as error:
            raise StorageError(f"{path} is damaged ({error})", hint="get a fresh copy of it") from error


def _encoded(texts: Sequence[str]) -> NDArray[np.uint8]:
    """Return texts of any number and kind as bytes."""
    return np.frombuffer(bytearray(json.dumps(list(texts)).encode()), np.uint8)


def _decoded(data: NDArray[np.uint8]) -> tuple[str, ...]:
    """Return the texts that ``_encoded`` was given."""
    return tuple(json.loads(data.tobytes()))
