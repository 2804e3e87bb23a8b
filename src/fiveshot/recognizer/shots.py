"""What is to be learned: photos of a class, or their features, with all that is kept of them."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor

from fiveshot.errors import InputError
from fiveshot.recognizer.arguments import listed
from fiveshot.recognizer.class_record import Floats, PhotoRecord, number_bytes
from fiveshot.recognizer.extraction import QUIET, SeenPhoto
from fiveshot.recognizer.photo import MAX_BYTES, check_digest, check_thumbnail


@dataclass(frozen=True, eq=False)
class Shots:
    """Photos of one class that are to be learned."""

    name: str  # of the class
    photos: tuple[PhotoRecord, ...]
    names: tuple[str, ...]  # of the photos, to speak of them

    @property
    def features(self) -> Tensor:
        """Features of the photos, (n, d)."""
        return torch.from_numpy(np.stack([photo.feature for photo in self.photos]))


def seen_shots(name: str, seen: Sequence[SeenPhoto]) -> Shots:
    """Return photos that the backbone has seen as shots of a class."""
    records = tuple(PhotoRecord(one.sha256, one.feature, one.thumbnail, one.original) for one in seen)
    return Shots(name, records, tuple(one.name for one in seen))


def feature_shots(
    name: str,
    rows: Floats,
    *,
    sha256s: Sequence[str] | None,
    thumbnails: Sequence[bytes | None] | None,
    originals: Sequence[bytes | None] | None,
    photos: Sequence[str] | None,
) -> Shots:
    """Return rows of features as shots of a class; digests of the rows stand in for those of photos."""
    n = len(rows)
    numbered = [f"photo {number}" for number in range(1, n + 1)]
    names = numbered if photos is None else listed(photos, "photos")
    digests = (
        [hashlib.sha256(number_bytes(row)).hexdigest() for row in rows]
        if sha256s is None
        else listed(sha256s, "sha256s")
    )
    small = [None] * n if thumbnails is None else listed(thumbnails, "thumbnails")
    large = [None] * n if originals is None else listed(originals, "originals")
    if any(len(column) != n for column in (names, digests, small, large)):
        raise InputError(f"{n} rows of features, but another number of digests, pictures or names")
    for number, shown in zip(numbered, names, strict=True):
        if not isinstance(shown, str):
            raise InputError(f"the name of {number} is no text, but {_what(shown)}")
    records = tuple(
        PhotoRecord(
            digest, row, _picture(thumbnail, f"thumbnail of {shown}"), _picture(original, f"file of {shown}")
        )
        for shown, digest, row, thumbnail, original in zip(names, digests, rows, small, large, strict=True)
    )
    with QUIET:
        for record, shown in zip(records, names, strict=True):
            _check_photo(record, shown)
    return Shots(name, records, tuple(names))


def checked_features(features: ArrayLike | Tensor, width: int) -> Floats:
    """Return features as finite float32 rows of the model's width."""
    values = features.detach().cpu().numpy() if isinstance(features, Tensor) else np.asarray(features)
    if values.ndim != 2 or not len(values) or values.shape[1] != width or values.dtype.kind not in "fiu":
        raise InputError(
            f"features of shape {values.shape} do not fit this model; give numbers of shape (n, {width})"
        )
    with np.errstate(over="ignore"):
        rows: Floats = np.ascontiguousarray(values, dtype=np.float32)
    if not np.isfinite(rows).all():
        row = int(np.flatnonzero(~np.isfinite(rows).all(axis=1))[0])
        raise InputError(f"the features of row {row} hold NaN or infinity; leave it out")
    return rows


def _picture(data: Any, shown: str) -> bytes | None:
    if data is not None and not isinstance(data, bytes | bytearray | memoryview):
        raise InputError(f"the {shown} is no bytes, but {_what(data)}; give the content of a file")
    return None if data is None else bytes(data)


def _what(value: object) -> str:
    return f"{value!r:.80} ({type(value).__name__})"


def _check_photo(photo: PhotoRecord, name: str) -> None:
    """Refuse what could be stored and exported, but not be imported."""
    check_digest(photo.sha256, name)
    if photo.thumbnail is not None:
        check_thumbnail(photo.thumbnail, name)
    if photo.original is not None and not 1 <= len(photo.original) <= MAX_BYTES:
        raise InputError(f"the file of {name} is empty, or larger than {MAX_BYTES:,} bytes")
