"""Export a model as one file, and import such files. Nothing in an imported file is trusted without a check."""

from __future__ import annotations

import json
import math
import re
import sqlite3
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from hashlib import sha256
from itertools import accumulate
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from fiveshot.backbones import AdapterFile, BackboneSpec, Preprocessing, read_adapter
from fiveshot.core import ClassStatistics, Memory, summarize
from fiveshot.core.statistics import statistics_arrays
from fiveshot.data import MAX_PHOTO_BYTES
from fiveshot.errors import FiveshotError, InputError, StorageError, command, is_number
from fiveshot.recognizer._learning import check_digest, check_thumbnail
from fiveshot.recognizer.names import NONE, check_name, target_name
from fiveshot.recognizer.recognition.rejection import Rejection
from fiveshot.recognizer.recognition.snapshot import check_width, head_record, restored_head
from fiveshot.recognizer.store.contents import (
    Contents,
    check_array,
    checked_statistics,
    file_sha256,
    read_base,
    same_statistics,
)
from fiveshot.recognizer.store.folder import create_model
from fiveshot.recognizer.store.manifest import MANIFEST, BackboneRecord, Manifest, Options
from fiveshot.recognizer.store.rows import ClassRecord, PhotoRecord, Tables, photo_features
from fiveshot.recognizer.store.schema import DATABASE
from fiveshot.storage import (
    FRESH_COPY,
    FilePath,
    begins_as_ours,
    file_kind,
    read_tensors,
    require_replaceable,
    write_tensors,
)

Arrays: TypeAlias = "dict[str, NDArray[Any]]"
KIND, VERSION = "recognizer", 1
PICTURES = ("thumbnail", "original")
DIGESTS = "original.sha256"  # a kept photo may differ from the original file, so it has its own digest
MAX_SIDE = 4096  # of images on the way to a network
MAX_WIDTH = 1 << 14  # of a feature vector
MAX_MANIFEST = 1 << 22  # characters; settings may hold as many numbers as a feature vector
MAX_TEXT = 1000  # characters
_LISTS = ("names", "created", "base", "photos")
_META = {"manifest", *_LISTS}
_ADAPTER_META = {"backbone", "weights_hash", "bottleneck", "scale", "dropout", "training"}
_NETWORK = re.compile(
    r"[A-Za-z0-9][\w.+-]{0,199}"  # of timm, or a bundle in a file
    r"|python:[A-Za-z0-9][\w.+-]{0,99}"  # a Python function
    # a bundle on the hub:
    r"|hf://[A-Za-z0-9][\w.-]{0,95}/[A-Za-z0-9][\w.-]{0,95}@[0-9a-f]{40}(/[\w-][\w.-]{0,95}){1,4}",
    re.ASCII,
)


def check_target(
    target: Path, is_export: Callable[[Path], bool], *, beside: Path | None = None, overwrite: bool = False
) -> None:
    """Raise an error for a target inside a model's directory, or one that would replace something else.

    An earlier export (``is_export``) is replaced, another file only with ``overwrite``, a folder or device never.
    ``beside`` is the file that the user named, if this one is written together with it.
    """
    shown = str(target) if beside is None else f"{target}, which is written beside {beside.name},"
    for place in (target.parent.resolve() / target.name, target.resolve()):  # a link and its target
        refuse_inside(place, shown, hint="name a file outside of it")
    require_replaceable(target, is_export, overwrite=overwrite, shown=shown)


def refuse_inside(place: Path, shown: str, *, hint: str) -> None:
    """Raise an error for a path inside the directory of any model."""
    for around in place.parents:
        if (around / MANIFEST).is_file() and (around / DATABASE).is_file():
            raise InputError(f"{shown} lies inside the model {around}, which an export must not change", hint=hint)


def write_portable(
    path: FilePath,
    folder: Path,
    contents: Contents,
    connection: sqlite3.Connection,
    *,
    originals: bool,
    thumbnails: bool = True,
) -> None:
    """Write the model to one file, atomically; equal models give equal bytes. The history is not exported."""
    rows = sorted(contents.rows.values(), key=lambda row: row.name)
    tables = Tables(connection, contents.width)
    records = [tables.read_class(row.id, originals=originals) for row in rows]
    photos = [photo for record in records for photo in record.photos]
    if not thumbnails:
        photos = [replace(photo, thumbnail=None) for photo in photos]
    arrays = {
        **statistics_arrays(ClassStatistics.of({record.name: record.summary for record in records})),
        **photo_arrays(photos, contents.width, originals),
    }
    manifest = contents.manifest
    for key, file in (("base", manifest.base.file), ("adapter", manifest.backbone.adapter)):
        if file:
            arrays[f"file.{key}"] = as_bytes([_content(folder / file)])
    meta: dict[str, Any] = {
        "manifest": manifest.to_toml(),
        "names": [record.name for record in records],
        "created": [record.created for record in records],
        "base": [record.base for record in records],
        "photos": [[photo.sha256, photo.added] for photo in photos],
    }
    write_tensors(path, arrays, kind=KIND, version=VERSION, meta=meta, seal=True)


def is_portable(path: Path) -> bool:
    """Tell whether any version of ``write_portable`` wrote a file."""
    return file_kind(path) == KIND


def photo_arrays(photos: list[PhotoRecord], width: int, originals: bool) -> Arrays:
    """Return features and pictures of photos as arrays; a picture of length 0 is missing."""
    arrays: Arrays = {"features": photo_features(photos) if photos else np.zeros((0, width), np.float32)}
    for kind in PICTURES if originals else PICTURES[:1]:
        parts = [getattr(photo, kind) or b"" for photo in photos]
        arrays[f"{kind}.lengths"] = np.array([len(part) for part in parts], dtype=np.int64)
        arrays[f"{kind}.bytes"] = as_bytes(parts)
        if kind == "original":
            arrays[DIGESTS] = as_bytes(sha256(part).digest() for part in parts).reshape(-1, 32)
    return arrays


def _content(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        reason = error.strerror or error
        raise StorageError(f"cannot read {path}: {reason}", hint="try again, or run: fiveshot check") from error


def as_bytes(parts: Iterable[bytes]) -> NDArray[np.uint8]:
    """Return bytes as an array."""
    return np.frombuffer(b"".join(parts), dtype=np.uint8)


def pictures(arrays: Arrays, kind: str) -> list[bytes | None]:
    """Return the pictures from the arrays of ``photo_arrays``, whose lengths have been checked."""
    lengths = arrays[f"{kind}.lengths"].tolist()
    data, ends = arrays[f"{kind}.bytes"], list(accumulate(lengths))
    return [data[end - n : end].tobytes() if n else None for n, end in zip(lengths, ends, strict=True)]


def import_model(file: FilePath, path: FilePath) -> Manifest:
    """Make a model from an exported file; if anything in it is wrong, raise an error and make nothing."""
    source = Path(file)
    with _telling(source), tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as name:
        if source.is_dir():
            raise StorageError(
                f"{source} is a folder, not an exported file",
                hint=f"if it is a model, copy the folder, or export it first: {command('export', source, 'FILE')}",
            )
        if source.is_file() and not begins_as_ours(source):
            raise StorageError(
                f"{source} is not an export of fiveshot, or its beginning is damaged",
                hint="give a file that 'fiveshot export' wrote",
            )
        content = read_tensors(source, kind=KIND, version=VERSION, sealed=True)
        with _refusing(source):
            manifest = _checked_manifest(content.meta)
            files = _unpacked(content.tensors, manifest, Path(name))
            base = read_base(Path(name), manifest.base)
            for label in base.labels:
                check_name(str(label))
            classes = list(imported_classes(content.tensors, content.meta, manifest=manifest, base=base))
            _check_head(manifest, base, classes)
        manifest = replace(
            manifest, backbone=replace(manifest.backbone, weights="", adapter="", adapter_sha256="")
        )
        return create_model(
            path, manifest, base=base, adapter=files.get("adapter"), classes=classes, action="import"
        )


@contextmanager
def _telling(source: Path) -> Iterator[None]:
    """Add the name of the imported file to an error of the system."""
    try:
        yield
    except StorageError:
        raise
    except OSError as error:
        reason = error.strerror or error
        raise StorageError(f"cannot import {source}: {reason}", hint="nothing was left behind") from error


@contextmanager
def _refusing(source: Path) -> Iterator[None]:
    """Turn every error that a hostile file can cause into one error."""
    try:
        yield
    except StorageError as error:
        raise StorageError(
            f"refused to import {source}: {error.message}", hint=error.hint or FRESH_COPY, code="refused_import"
        ) from error
    except (FiveshotError, LookupError, TypeError, ValueError, RuntimeError, OverflowError) as error:
        raise StorageError(
            f"refused to import {source}: {error}", hint=FRESH_COPY, code="refused_import"
        ) from error


def _checked_manifest(meta: dict[str, Any]) -> Manifest:
    if set(meta) != _META or not isinstance(meta["manifest"], str):
        raise ValueError(f"its metadata has other entries than {', '.join(sorted(_META))}")
    if not all(isinstance(meta[key], list) for key in _LISTS):
        raise ValueError(f"one of {', '.join(_LISTS)} is not a list")
    if len(meta["manifest"]) > MAX_MANIFEST:
        raise ValueError(f"its manifest has more than {MAX_MANIFEST:,} characters")
    manifest = Manifest.from_toml(meta["manifest"], where="its manifest")
    _check_text(manifest.made_with, "the release that made it")
    _check_backbone(manifest.backbone)
    _check_hash(manifest.base.origin, "its base's origin")
    if dict(head_record(manifest.head.name).parameters) != dict(manifest.head.parameters):
        raise ValueError(f"its {manifest.head.name!r} head has parameters that this release does not use")
    if manifest.rejection:
        rejection = Rejection.from_dict(manifest.rejection)
        _check_same(rejection.as_dict(), manifest.rejection, "thresholds")
        _check_text(rejection.note, "the note of its thresholds")
    return manifest


def _check_backbone(record: BackboneRecord) -> None:
    """Raise an error for an impossible backbone, without loading it."""
    if not _NETWORK.fullmatch(record.name):
        raise ValueError(f"a backbone cannot be called {record.name[:40]!r}")
    if not 1 <= record.width <= MAX_WIDTH:
        raise ValueError(f"features of {record.width} numbers are not supported")
    _check_hash(record.fingerprint, "the fingerprint of its backbone", may_be_empty=False)
    _check_hash(record.weights_hash, "the hash of its weights")
    prepared = Preprocessing.from_json(record.preprocessing) if record.preprocessing else None
    if prepared is not None:
        _check_preprocessing(prepared)
        _check_same(prepared.to_json(), record.preprocessing, "preprocessing")
    spec = BackboneSpec(
        record.name,
        preprocessing=prepared,
        tokens=record.tokens,
        last_blocks=record.last_blocks,
    )
    if spec.readout.vectors > record.width:
        raise ValueError(f"features of {record.width} numbers cannot consist of {spec.readout.vectors} vectors")


def _check_preprocessing(prepared: Preprocessing) -> None:
    sides = [prepared.size, prepared.resize, *([] if prepared.squash is None else [prepared.squash])]
    if not all(type(side) is int and 1 <= side <= MAX_SIDE for side in sides):
        raise ValueError(f"images of {str(sides)[:80]} px are not supported")
    for values, count, name in (
        (prepared.mean, 3, "mean"),
        (prepared.std, 3, "std"),
        (prepared.train_scale, 2, "train_scale"),
    ):
        if not isinstance(values, tuple) or len(values) != count:
            raise ValueError(f"{name} of its preprocessing is not {count} numbers")
        if not all(is_number(value) and math.isfinite(value) for value in values):
            raise ValueError(f"{name} of its preprocessing holds a number that is not finite")
    if min(prepared.std) <= 0 or not 0 < prepared.train_scale[0] <= prepared.train_scale[1] <= 1:
        raise ValueError("std of its preprocessing must be positive, and train_scale shares that rise")
    _check_text(prepared.name, "the name of its preprocessing")


def _check_hash(text: str, what: str, *, may_be_empty: bool = True) -> None:
    if text or not may_be_empty:
        check_digest(text, what)


def _check_text(text: Any, what: str) -> None:
    """Raise an error for a text that is too long or holds control characters."""
    if not isinstance(text, str) or len(text) > MAX_TEXT or not text.isprintable():
        raise ValueError(f"{what} is not a text of at most {MAX_TEXT:,} printable characters")


def _check_same(read: Mapping[str, Any], given: Mapping[str, Any], what: str) -> None:
    """Raise an error if values were changed by reading: unknown keys, 1.5 for 1, True for 1."""
    one, other = (json.dumps(values, sort_keys=True, default=list) for values in (read, given))
    if one != other:
        raise ValueError(f"its {what} are not as this release writes them")


def _unpacked(arrays: Arrays, manifest: Manifest, folder: Path) -> dict[str, Path]:
    """Check the hashes of the embedded files, and write them under the names that a model uses."""
    files = {}
    wanted = {
        "base": (manifest.base.file, manifest.base.sha256),
        "adapter": (manifest.backbone.adapter, manifest.backbone.adapter_sha256),
    }
    for key, (name, content) in wanted.items():
        if bool(name) != (f"file.{key}" in arrays):
            raise ValueError(f"its {key} file or its name is missing")
        if not name:
            continue
        if Path(name).name != name or not name.startswith(f"{key}-") or not name.endswith(".safetensors"):
            raise ValueError(f"its {key} file is called {name!r}")
        check_array(arrays, f"file.{key}", (arrays[f"file.{key}"].size,), np.uint8)
        files[key] = folder / name
        files[key].write_bytes(arrays[f"file.{key}"].tobytes())
        if file_sha256(files[key]) != content:
            raise ValueError(f"its {key} file is damaged")
    if "adapter" in files:
        _check_adapter(read_adapter(files["adapter"]), manifest.backbone)
    return files


def _check_adapter(adapter: AdapterFile, backbone: BackboneRecord) -> None:
    if not all(np.isfinite(array).all() for array in adapter.tensors.values()):
        raise ValueError("its adapter holds NaN or infinity")
    if set(adapter.meta) - _ADAPTER_META or len(json.dumps(adapter.meta)) > MAX_MANIFEST:
        raise ValueError(f"its adapter has more metadata than {', '.join(sorted(_ADAPTER_META))}")
    numbers = (adapter.meta["scale"], adapter.meta["dropout"])
    if not all(is_number(value) and math.isfinite(value) for value in numbers):
        raise ValueError("scale or dropout of its adapter is not a finite number")
    if adapter.meta["weights_hash"] != backbone.weights_hash:
        raise ValueError("its adapter was made for other weights than its backbone's")


def _check_head(manifest: Manifest, base: ClassStatistics, classes: Sequence[ClassRecord]) -> None:
    """Derive the head and compute scores once, so that bad settings fail now and not at the first photo."""
    head = restored_head(manifest.head)
    check_width(head, manifest)
    rows = np.eye(2, manifest.backbone.width, dtype=np.float32) + 1
    embedded = head.embed(rows)
    width = embedded.shape[1]
    new = {record.name: record.summary for record in classes if not record.base and record.name != NONE}
    if not len(base) and not new:  # a made-up class shows whether the head can learn its first class
        new = {"": summarize(embedded)}
    if len(base) and base.n_features != width:
        raise ValueError(f"its base has statistics of {base.n_features} numbers, and its head makes {width}")
    with np.errstate(all="ignore"):  # overflow is detected below
        learned = head.adopt(Memory(base, ClassStatistics.of(new)), dict(manifest.head.settings) or None)
        answer = learned.answer(rows)
    if not np.isfinite(answer.probabilities).all() or not np.isfinite(answer.familiarity).all():
        raise ValueError("its head gives scores that are not numbers")


def imported_classes(
    arrays: Arrays, meta: dict[str, Any], *, manifest: Manifest, base: ClassStatistics
) -> Iterator[ClassRecord]:
    """Yield the classes of an exported file, after checking shapes, lengths, names, numbers and pictures."""
    names, m = meta["names"], len(meta["photos"])
    if names != sorted(set(names)) or any(target_name(name) != name for name in names):
        raise ValueError("classes are out of order or repeated, or their names are not normalized")
    statistics = checked_statistics(names, arrays)
    _check_photo_arrays(arrays, m, manifest.backbone.width)
    if not len(meta["created"]) == len(meta["base"]) == len(names) or int(statistics.counts.sum()) != m:
        raise ValueError("the numbers of classes and photos do not fit")
    photos = list(_photos(arrays, meta["photos"], manifest.options))
    embedded = restored_head(manifest.head).embed(arrays["features"]) if m else arrays["features"]
    first = 0
    for name, summary, grows, created in zip(
        names, statistics.summaries, meta["base"], meta["created"], strict=True
    ):
        if grows is not (name in base):
            raise ValueError(
                f"the class {name!r} is marked as part of the base and is not, or the other way round"
            )
        last = first + summary.count
        if not same_statistics(summary, summarize(embedded[first:last])):
            raise ValueError(f"the statistics of {name!r} are not those of its photos")
        yield ClassRecord(name, summary, tuple(photos[first:last]), base=grows, created=_moment(created))
        first = last


def _check_photo_arrays(arrays: Arrays, m: int, width: int) -> None:
    """Raise an error for features and pictures whose shapes do not fit ``m`` photos, and for unknown arrays."""
    check_array(arrays, "features", (m, width), np.float32)
    kinds = [kind for kind in PICTURES if f"{kind}.lengths" in arrays]
    for kind in kinds:
        check_array(arrays, f"{kind}.lengths", (m,), np.int64)
        lengths = arrays[f"{kind}.lengths"]
        if (lengths < 0).any() or (lengths > MAX_PHOTO_BYTES).any():
            raise ValueError(f"a {kind} has an impossible length")
        check_array(arrays, f"{kind}.bytes", (int(lengths.sum()),), np.uint8)
    known = {"counts", "means", "ranks", "factors", "features", "file.base", "file.adapter"}
    known |= {f"{kind}.{part}" for kind in kinds for part in ("lengths", "bytes")}
    if "original" in kinds:
        check_array(arrays, DIGESTS, (m, 32), np.uint8)
        known.add(DIGESTS)
    if set(arrays) - known or PICTURES[0] not in kinds:
        raise ValueError("it holds arrays that no model has")


def _photos(arrays: Arrays, entries: Sequence[Any], options: Options) -> Iterator[PhotoRecord]:
    nothing: list[bytes | None] = [None] * len(entries)
    small = pictures(arrays, "thumbnail") if options.thumbnails else nothing
    large = pictures(arrays, "original") if options.keep_photos and DIGESTS in arrays else nothing
    features = arrays["features"]
    for i, (given, added) in enumerate(entries):
        check_digest(given, f"photo {i}")
        thumbnail, original = small[i], large[i]
        if thumbnail is not None:
            check_thumbnail(thumbnail, f"photo {i}")
        if original is not None and sha256(original).digest() != arrays[DIGESTS][i].tobytes():
            raise ValueError(f"photo {i} is not the one its SHA-256 names")
        yield PhotoRecord(given, features[i].copy(), thumbnail, original, _moment(added))


def _moment(text: Any) -> str:
    """Return a date and time in the format of our files."""
    if not isinstance(text, str) or len(text) > 40:
        raise ValueError(f"{str(text)[:40]!r} is not a date")
    if datetime.fromisoformat(text).astimezone(UTC).isoformat(timespec="milliseconds") != text:
        raise ValueError(f"{text!r} is not a time in UTC with milliseconds")
    return text
