"""A class as it is stored: its statistics and its photos, and the bytes that stand for them."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, replace
from hashlib import blake2b
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor

from fiveshot.errors import StorageError
from fiveshot.recognizer.manifest import Options
from fiveshot.statistics import ClassSummary

Floats = NDArray[np.float32]
LITTLE = np.dtype("<f4")  # as numbers lie in the database, on every machine


@dataclass(frozen=True, eq=False)
class PhotoRecord:
    """A photo that was learned: its feature, and as much of the picture as the owner wants kept.

    ``sha256`` names the file that was given, and so tells the same file learned twice. ``original`` need not
    be that file: the service keeps a copy without metadata. What guards its bytes is ``photo_digest``.
    """

    sha256: str
    feature: Floats  # (d,)
    thumbnail: bytes | None = None
    original: bytes | None = None
    added: str = ""
    id: int | None = None  # None until it is stored


@dataclass(frozen=True, eq=False)
class ClassRecord:
    """A class with everything that is known about it; ``base`` marks what was added to a base class."""

    name: str
    summary: ClassSummary
    photos: tuple[PhotoRecord, ...] = ()
    base: bool = False
    created: str = ""
    id: int | None = None


def kept_photos(photos: Iterable[PhotoRecord], options: Options) -> tuple[PhotoRecord, ...]:
    """Return photos without the pictures that the owner of the model does not want kept."""
    return tuple(
        replace(
            photo,
            thumbnail=photo.thumbnail if options.thumbnails else None,
            original=photo.original if options.keep_photos else None,
        )
        for photo in photos
    )


def number_bytes(values: Tensor | Floats) -> bytes:
    """Return the numbers as they are stored: 32-bit floats, little-endian, row after row."""
    array = values.detach().cpu().numpy() if isinstance(values, Tensor) else values
    return np.ascontiguousarray(array, dtype=LITTLE).tobytes()


def stored_numbers(data: bytes, width: int) -> Floats:
    """Return stored numbers as rows of ``width``, (n, width); another length is damage."""
    if len(data) % (4 * width):
        raise StorageError(f"{len(data)} bytes of numbers do not make rows of {width}")
    rows: Floats = np.frombuffer(data, dtype=LITTLE).astype(np.float32, copy=True).reshape(-1, width)
    return rows


def summary_digest(summary: ClassSummary) -> bytes:
    """Return a check sum over a class's statistics."""
    return digest(str(summary.count).encode(), number_bytes(summary.mean), number_bytes(summary.factor))


def photo_digest(photo: PhotoRecord) -> bytes:
    """Return a check sum over all that is stored of a photo, the original among it where one is kept."""
    kept = () if photo.original is None else (photo.original,)
    return digest(number_bytes(photo.feature), photo.thumbnail, *kept)


def digest(*parts: bytes | None) -> bytes:
    """Return a check sum over parts of known order; a missing part differs from an empty one."""
    sum_ = blake2b(digest_size=16)
    for part in parts:
        sum_.update(b"-" if part is None else b"%d:" % len(part))
        sum_.update(part or b"")
    return sum_.digest()


def stored_summary(count: int, mean: bytes, factor: bytes, width: int) -> ClassSummary:
    """Return the statistics that lie in these bytes."""
    (row,) = stored_numbers(mean, width)
    return ClassSummary(count, torch.from_numpy(row), torch.from_numpy(stored_numbers(factor, width)))


def pack(record: ClassRecord) -> bytes:
    """Return a class as bytes that ``unpack`` reads back to the bit: what ``undo`` needs."""
    tensors = {"mean": record.summary.mean, "factor": record.summary.factor}
    entries = []
    for number, photo in enumerate(record.photos):
        tensors[f"photo.{number}.feature"] = torch.from_numpy(photo.feature)
        for part in ("thumbnail", "original"):
            data = getattr(photo, part)
            if data is not None:
                tensors[f"photo.{number}.{part}"] = torch.frombuffer(bytearray(data), dtype=torch.uint8)
        entries.append({key: getattr(photo, key) for key in ("id", "sha256", "added")})
    header: dict[str, Any] = {key: getattr(record, key) for key in ("id", "name", "base", "created")}
    header |= {"count": record.summary.count, "photos": entries}
    contiguous = {key: tensor.detach().cpu().contiguous() for key, tensor in tensors.items()}
    return save(contiguous, metadata={"class": json.dumps(header)})


def unpack(data: bytes) -> ClassRecord:
    """Read what ``pack`` wrote."""
    try:
        tensors = load(data)
        length = int.from_bytes(data[:8], "little")
        header = json.loads(json.loads(data[8 : 8 + length])["__metadata__"]["class"])
        summary = ClassSummary(header["count"], tensors["mean"], tensors["factor"])
        photos = tuple(
            PhotoRecord(
                feature=tensors[f"photo.{number}.feature"].numpy(),
                thumbnail=_bytes(tensors.get(f"photo.{number}.thumbnail")),
                original=_bytes(tensors.get(f"photo.{number}.original")),
                **entry,
            )
            for number, entry in enumerate(header["photos"])
        )
        return ClassRecord(
            header["name"], summary, photos, base=header["base"], created=header["created"], id=header["id"]
        )
    except (SafetensorError, KeyError, TypeError, ValueError) as error:
        raise StorageError(f"an entry of the history is damaged ({error!r}); run: fiveshot check MODEL") from error


def _bytes(tensor: Tensor | None) -> bytes | None:
    return None if tensor is None else tensor.numpy().tobytes()
