"""The classes in a file that may come from anywhere: shapes, lengths, names, numbers and pictures, all checked."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from hashlib import sha256
from typing import Any

import torch
from torch import Tensor

from fiveshot.data import BytesSource
from fiveshot.recognizer.class_record import ClassRecord, PhotoRecord
from fiveshot.recognizer.consistency import same_statistics
from fiveshot.recognizer.manifest import Manifest, Options
from fiveshot.recognizer.names import check_name
from fiveshot.recognizer.photo import MAX_BYTES, Photo, check_digest, check_kept, check_thumbnail
from fiveshot.recognizer.portable import DIGESTS, PICTURES, pictures
from fiveshot.recognizer.snapshot import restored_head
from fiveshot.statistics import ClassStatistics, ClassSummary, summarize

_FLOATS = ("means", "factors", "features")


def imported_classes(
    tensors: dict[str, Tensor], meta: dict[str, Any], *, manifest: Manifest, base: ClassStatistics
) -> Iterator[ClassRecord]:
    """Yield the classes of an exported file; whatever does not fit raises."""
    n, m = len(meta["names"]), len(meta["photos"])
    _check_shapes(tensors, n, m, manifest)
    if len(meta["created"]) != n or len(meta["base"]) != n or int(tensors["counts"].sum()) != m:
        raise ValueError("the numbers of classes and photos do not fit")
    photos = list(_photos(tensors, meta["photos"], manifest.options))
    embedded = restored_head(manifest.head).embed(tensors["features"]) if m else tensors["means"]
    first = row = 0
    before = ""
    for i, name in enumerate(meta["names"]):
        grows = meta["base"][i]
        if check_name(name) != name or name <= before or grows is not (name in base) or type(grows) is not bool:
            raise ValueError(f"the class {str(name)[:40]!r} is out of order, there twice or not in normal form")
        count, rank = int(tensors["counts"][i]), int(tensors["ranks"][i])
        summary = ClassSummary(count, tensors["means"][i].clone(), tensors["factors"][row : row + rank].clone())
        if count < 1 or not same_statistics(summary, summarize(embedded[first : first + count])):
            raise ValueError(f"the statistics of {name!r} are not those of its photos")
        yield ClassRecord(
            name, summary, tuple(photos[first : first + count]), base=grows, created=_moment(meta["created"][i])
        )
        first, row, before = first + count, row + rank, name


def _check_shapes(tensors: dict[str, Tensor], n: int, m: int, manifest: Manifest) -> None:
    width = tensors["means"].shape[-1]
    shapes: dict[str, tuple[int, ...]] = {
        "counts": (n,),
        "means": (n, width),
        "ranks": (n,),
        "features": (m, manifest.backbone.width),
    }
    for key, shape in shapes.items():
        expect(tensors, key, shape, torch.float32 if key in _FLOATS else torch.int64)
    ranks = tensors["ranks"]
    if bool((ranks < 0).any()) or bool((ranks > width).any()) or bool((tensors["counts"] < 1).any()):
        raise ValueError("counts or ranks are out of range")
    expect(tensors, "factors", (int(ranks.sum()), width), torch.float32)
    check_finite({key: tensors[key] for key in _FLOATS})
    kinds = [kind for kind in PICTURES if f"{kind}.lengths" in tensors]
    for kind in kinds:
        expect(tensors, f"{kind}.lengths", (m,), torch.int64)
        lengths = tensors[f"{kind}.lengths"]
        if bool((lengths < 0).any()) or bool((lengths > MAX_BYTES).any()):
            raise ValueError(f"a {kind} has an impossible length")
        expect(tensors, f"{kind}.bytes", (int(lengths.sum()),), torch.uint8)
    known = {*shapes, "factors", "file.base", "file.adapter"}
    known |= {f"{kind}.{part}" for kind in kinds for part in ("lengths", "bytes")}
    if "original" in kinds and DIGESTS in tensors:
        expect(tensors, DIGESTS, (m, 32), torch.uint8)
        known.add(DIGESTS)
    if set(tensors) - known or PICTURES[0] not in kinds:
        raise ValueError("it holds other tensors than a model has")


def _photos(tensors: dict[str, Tensor], entries: Sequence[Any], options: Options) -> Iterator[PhotoRecord]:
    nothing: list[bytes | None] = [None] * len(entries)
    small = pictures(tensors, "thumbnail") if options.thumbnails else nothing
    large = pictures(tensors, "original") if options.keep_photos and "original.bytes" in tensors else nothing
    own = [row.numpy().tobytes() for row in tensors[DIGESTS]] if DIGESTS in tensors else nothing
    features = tensors["features"].numpy()
    for i, (given, added) in enumerate(entries):
        check_digest(given, f"photo {i}")
        thumbnail, original = small[i], large[i]
        if thumbnail is not None:
            check_thumbnail(thumbnail, f"photo {i}")
        if original is not None:
            _check_original(original, i, given, own[i])
        yield PhotoRecord(given, features[i].copy(), thumbnail, original, _moment(added))


def _check_original(data: bytes, number: int, given: str, own: bytes | None) -> None:
    """Compare a kept photo with its own digest; the first files had none but that of the file given."""
    if own is None:
        check_kept(Photo(BytesSource(data, f"photo {number}")), given)
    elif sha256(data).digest() != own:
        raise ValueError(f"photo {number} is not the one its SHA-256 names")


def _moment(text: Any) -> str:
    if not isinstance(text, str) or len(text) > 40:
        raise ValueError(f"{str(text)[:40]!r} is no date")
    datetime.fromisoformat(text)
    return text


def expect(tensors: dict[str, Tensor], key: str, shape: tuple[int, ...], dtype: torch.dtype) -> None:
    """Refuse a tensor of another shape or type."""
    found = tensors[key]
    if tuple(found.shape) != shape or found.dtype != dtype:
        raise ValueError(f"{key} has shape {tuple(found.shape)} and type {found.dtype}, not {shape} and {dtype}")


def check_finite(tensors: dict[str, Tensor]) -> None:
    """Refuse tensors with numbers that are none."""
    for key, tensor in tensors.items():
        if not bool(torch.isfinite(tensor).all()):
            raise ValueError(f"{key} holds NaN or infinity")
