"""Everything a cluster run learned about classes, as one value and one file."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fiveshot.data import BadImage
from fiveshot.errors import InputError, StorageError
from fiveshot.features import Provenance
from fiveshot.scale.class_sample import ClassSample
from fiveshot.scale.packed import PackedStatistics, unpack
from fiveshot.scale.ridge_sums import RidgeSums
from fiveshot.scale.shard_file import decode_texts, encode_texts
from fiveshot.scale.tied import TiedStatistics, tie
from fiveshot.statistics import ClassStatistics
from fiveshot.storage import read_tensors, write_tensors

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

    There are ``classes`` (a covariance for each class) or ``tied`` (one for all), and what else was asked for.

    >>> import numpy as np
    >>> from fiveshot.features import Provenance
    >>> from fiveshot.scale import ClusterStatistics, Wanted
    >>> from fiveshot.scale.rows import Rows
    >>> rows = Rows(np.float32([[1, 0], [3, 0], [0, 5]]), np.array(["owl", "owl", "wren"]), ("1", "2", "3"))
    >>> parts = {name: reduction.reduce(rows) for name, reduction in Wanted().reductions().items()}
    >>> found = ClusterStatistics(Provenance.unknown("birds"), {}, images=3, **parts)
    >>> found.statistics.means.tolist(), found.pooled.covariance.round(3).tolist()
    ([[2.0, 0.0], [0.0, 5.0]], [[2.0, 0.0], [0.0, 0.0]])
    """

    provenance: Provenance
    identity: Mapping[str, Any]  # of the backbone: everything that decides its vectors
    images: int
    bad: tuple[BadImage, ...] = ()
    classes: PackedStatistics | None = None
    tied: TiedStatistics | None = None
    sample: ClassSample | None = None
    ridge: RidgeSums | None = None
    head: str = ""  # whose vectors ``classes`` and ``tied`` are about; empty: the backbone's own
    settings: Mapping[str, Any] = field(default_factory=dict)  # of that head
    notes: Mapping[str, Any] = field(default_factory=dict)  # JSON values

    @property
    def statistics(self) -> ClassStatistics:
        """The statistics with a covariance for each class, as heads take them."""
        if self.classes is None:
            raise InputError("one covariance was made for all classes; reduce again with covariance='class'")
        return unpack(self.classes)

    @property
    def pooled(self) -> TiedStatistics:
        """The statistics with one covariance for all classes; they follow from those with one for each."""
        if self.tied is not None:
            return self.tied
        if self.classes is None:
            raise InputError("these statistics have no covariance at all")
        return tie(self.classes)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write everything into one file; it is complete or absent."""
        tensors, texts = {}, {}
        for part in PARTS:
            value = getattr(self, part)
            for entry in fields(value) if value is not None else ():
                tensors[f"{part}.{entry.name}"], kind = _stored(getattr(value, entry.name))
                texts[f"{part}.{entry.name}"] = kind
        meta = {
            "provenance": self.provenance.as_dict(),
            "identity": dict(self.identity),
            "images": self.images,
            "bad": [[image.name, image.reason] for image in self.bad],
            "kinds": texts,
            "head": self.head,
            "settings": dict(self.settings),
            "notes": dict(self.notes),
        }
        write_tensors(path, tensors, kind=KIND, version=VERSION, meta=meta)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> ClusterStatistics:
        """Read a file written by ``save``."""
        file = read_tensors(path, kind=KIND, version=VERSION)
        try:
            meta, parts = file.meta, {}
            for part, make in PARTS.items():
                if f"{part}.labels" in file.tensors:
                    names = [f"{part}.{entry.name}" for entry in fields(make)]
                    parts[part] = make(*(_restored(file.tensors[n], meta["kinds"][n]) for n in names))
            bad = tuple(BadImage(name, reason) for name, reason in meta["bad"])
            provenance = Provenance.from_dict(meta["provenance"])
            rest = {name: meta[name] for name in ("head", "settings", "notes")}
            return cls(provenance, meta["identity"], int(meta["images"]), bad, **parts, **rest)
        except (KeyError, TypeError, ValueError) as error:
            raise StorageError(f"{path} is damaged ({error}); get a fresh copy of it") from error


def _stored(array: NDArray[Any]) -> tuple[NDArray[Any], str]:
    """Return an array of a type that files have, and the type to give back."""
    if array.dtype.kind == "U":
        return encode_texts(array.tolist()), "text"
    return array, array.dtype.name


def _restored(array: NDArray[Any], kind: str) -> NDArray[Any]:
    return np.array(decode_texts(array), dtype=np.str_) if kind == "text" else array
