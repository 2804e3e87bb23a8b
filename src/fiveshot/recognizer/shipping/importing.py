"""Take in a model from a file that may come from anywhere: believe nothing, check everything."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fiveshot.backbones import Preprocessing
from fiveshot.backbones.adapter import KIND as ADAPTER_KIND
from fiveshot.backbones.adapter import VERSION as ADAPTER_VERSION
from fiveshot.core import ClassStatistics, summarize
from fiveshot.core.memory import Memory
from fiveshot.data import MAX_PHOTO_BYTES
from fiveshot.errors import FiveshotError, StorageError
from fiveshot.recognizer.names import check_name
from fiveshot.recognizer.photos.photo import check_digest, check_thumbnail
from fiveshot.recognizer.recognition.rejection import Rejection
from fiveshot.recognizer.recognition.snapshot import check_width, head_record, restored_head
from fiveshot.recognizer.shipping.portable import DIGESTS, KIND, PICTURES, VERSION, pictures
from fiveshot.recognizer.store.contents import (
    check_tensor,
    file_sha256,
    read_base,
    same_statistics,
    tensor_summaries,
)
from fiveshot.recognizer.store.folder import create_model
from fiveshot.recognizer.store.manifest import HeadRecord, Manifest, Options
from fiveshot.recognizer.store.rows import ClassRecord, PhotoRecord
from fiveshot.storage import FilePath, begins_as_ours, read_tensors

MAX_SIDE = 4096  # of images on the way to a network
MAX_WIDTH = 1 << 14  # of a feature vector
FRESH_COPY = "get a fresh copy of it"
_META = {"manifest", "names", "created", "base", "photos"}


def import_model(file: FilePath, path: FilePath) -> Manifest:
    """Make a model from an exported file; anything in it that does not fit is refused and nothing is made."""
    source = Path(file)
    with _telling(source), tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as name:
        if source.is_file() and not begins_as_ours(source):
            raise StorageError(
                f"{source} is not an export of fiveshot", hint="give a file that 'fiveshot export' wrote"
            )
        content = read_tensors(source, kind=KIND, version=VERSION)
        with _refusing(source):
            tensors = {name: torch.from_numpy(array) for name, array in content.tensors.items()}
            manifest = _checked_manifest(content.meta)
            files = _unpacked(tensors, manifest, Path(name))
            base = read_base(Path(name), manifest.base)
            classes = list(imported_classes(tensors, content.meta, manifest=manifest, base=base))
            _check_head(manifest, base, classes)
        manifest = replace(
            manifest, backbone=replace(manifest.backbone, weights="", adapter="", adapter_sha256="")
        )
        return create_model(
            path, manifest, base=base, adapter=files.get("adapter"), classes=classes, action="import"
        )


@contextmanager
def _telling(source: Path) -> Iterator[None]:
    """Add to an error of the system which file was imported; errors of the model's place say so themselves."""
    try:
        yield
    except StorageError:
        raise
    except OSError as error:
        reason = error.strerror or error
        raise StorageError(f"cannot import {source}: {reason}", hint="nothing was left behind") from error


@contextmanager
def _refusing(source: Path) -> Iterator[None]:
    """Turn every error that a made-up file can cause into one refusal."""
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
    manifest = Manifest.from_toml(meta["manifest"], where="its manifest")
    backbone = manifest.backbone
    if not 1 <= backbone.width <= MAX_WIDTH:
        raise ValueError(f"features of {backbone.width} numbers are not supported")
    prepared = Preprocessing.from_json(backbone.preprocessing) if backbone.preprocessing else None
    if prepared is not None and max(prepared.resize, prepared.squash or 0) > MAX_SIDE:
        raise ValueError(f"images of {prepared.resize} px are not supported")
    _check_head_record(manifest.head)
    if manifest.rejection:
        Rejection.from_dict(manifest.rejection)
    return manifest


def _unpacked(tensors: dict[str, Tensor], manifest: Manifest, folder: Path) -> dict[str, Path]:
    """Write the files inside the file under the names that a model gives them, if their hashes are right."""
    files = {}
    wanted = {
        "base": (manifest.base.file, manifest.base.sha256),
        "adapter": (manifest.backbone.adapter, manifest.backbone.adapter_sha256),
    }
    for key, (name, content) in wanted.items():
        if bool(name) != (f"file.{key}" in tensors):
            raise ValueError(f"its {key} file is missing, or not named")
        if not name:
            continue
        if Path(name).name != name or not name.startswith(f"{key}-") or not name.endswith(".safetensors"):
            raise ValueError(f"its {key} file is called {name!r}")
        check_tensor(tensors, f"file.{key}", (tensors[f"file.{key}"].numel(),), torch.uint8)
        files[key] = folder / name
        files[key].write_bytes(tensors[f"file.{key}"].numpy().tobytes())
        if file_sha256(files[key]) != content:
            raise ValueError(f"its {key} file is damaged")
    if "adapter" in files:
        adapter = read_tensors(files["adapter"], kind=ADAPTER_KIND, version=ADAPTER_VERSION).tensors
        if not all(np.isfinite(array).all() for array in adapter.values()):
            raise ValueError("its adapter holds NaN or infinity")
    return files


def _check_head_record(head: HeadRecord) -> None:
    known = head_record(head.name)
    if dict(known.parameters) != dict(head.parameters):
        raise ValueError(f"its {head.name!r} head has parameters that this release does not use")


def _check_head(manifest: Manifest, base: ClassStatistics, classes: Sequence[ClassRecord]) -> None:
    """Derive the head and score once: settings that it does not take must not wait for the first photo."""
    head = restored_head(manifest.head)
    check_width(head, manifest)
    rows = torch.eye(2, manifest.backbone.width) + 1
    embedded = head.embed(rows)
    width = embedded.shape[1]
    new = {record.name: record.summary for record in classes if not record.base}
    if not len(base) and not new:  # a class of our own shows whether it can learn its first
        new = {"": summarize(embedded)}
    if len(base) and base.n_features != width:
        raise ValueError(f"its base has statistics of {base.n_features} numbers, and its head makes {width}")
    head.adopt(Memory(base, ClassStatistics.of(new)), dict(manifest.head.settings) or None)
    if not np.isfinite(head.predict_proba(rows)).all() or not np.isfinite(head.familiarity(rows)).all():
        raise ValueError("its head gives scores that are not numbers")


def imported_classes(
    tensors: dict[str, Tensor], meta: dict[str, Any], *, manifest: Manifest, base: ClassStatistics
) -> Iterator[ClassRecord]:
    """Yield the classes of an exported file; shapes, lengths, names, numbers and pictures are all checked."""
    names, m = meta["names"], len(meta["photos"])
    summaries = tensor_summaries(tensors, len(names))
    _check_photo_tensors(tensors, m, manifest.backbone.width)
    if not len(meta["created"]) == len(meta["base"]) == len(names) or sum(one.count for one in summaries) != m:
        raise ValueError("the numbers of classes and photos do not fit")
    if names != sorted(set(names)):
        raise ValueError("classes are out of order or there twice")
    photos = list(_photos(tensors, meta["photos"], manifest.options))
    embedded = restored_head(manifest.head).embed(tensors["features"]) if m else tensors["means"]
    first = 0
    for name, summary, grows, created in zip(names, summaries, meta["base"], meta["created"], strict=True):
        if check_name(name) != name or grows is not (name in base):
            raise ValueError(f"the class {str(name)[:40]!r} is not in normal form, or not of the base it claims")
        last = first + summary.count
        if not same_statistics(summary, summarize(embedded[first:last])):
            raise ValueError(f"the statistics of {name!r} are not those of its photos")
        yield ClassRecord(name, summary, tuple(photos[first:last]), base=grows, created=_moment(created))
        first = last


def _check_photo_tensors(tensors: dict[str, Tensor], m: int, width: int) -> None:
    """Refuse features and pictures of other shapes than ``m`` photos have, and tensors that a model has not."""
    check_tensor(tensors, "features", (m, width), torch.float32)
    kinds = [kind for kind in PICTURES if f"{kind}.lengths" in tensors]
    for kind in kinds:
        check_tensor(tensors, f"{kind}.lengths", (m,), torch.int64)
        lengths = tensors[f"{kind}.lengths"]
        if bool((lengths < 0).any()) or bool((lengths > MAX_PHOTO_BYTES).any()):
            raise ValueError(f"a {kind} has an impossible length")
        check_tensor(tensors, f"{kind}.bytes", (int(lengths.sum()),), torch.uint8)
    known = {"counts", "means", "ranks", "factors", "features", "file.base", "file.adapter"}
    known |= {f"{kind}.{part}" for kind in kinds for part in ("lengths", "bytes")}
    if "original" in kinds:
        check_tensor(tensors, DIGESTS, (m, 32), torch.uint8)
        known.add(DIGESTS)
    if set(tensors) - known or PICTURES[0] not in kinds:
        raise ValueError("it holds other tensors than a model has")


def _photos(tensors: dict[str, Tensor], entries: Sequence[Any], options: Options) -> Iterator[PhotoRecord]:
    nothing: list[bytes | None] = [None] * len(entries)
    small = pictures(tensors, "thumbnail") if options.thumbnails else nothing
    large = pictures(tensors, "original") if options.keep_photos and DIGESTS in tensors else nothing
    features = tensors["features"].numpy()
    for i, (given, added) in enumerate(entries):
        check_digest(given, f"photo {i}")
        thumbnail, original = small[i], large[i]
        if thumbnail is not None:
            check_thumbnail(thumbnail, f"photo {i}")
        if original is not None and sha256(original).digest() != tensors[DIGESTS][i].numpy().tobytes():
            raise ValueError(f"photo {i} is not the one its SHA-256 names")
        yield PhotoRecord(given, features[i].copy(), thumbnail, original, _moment(added))


def _moment(text: Any) -> str:
    if not isinstance(text, str) or len(text) > 40:
        raise ValueError(f"{str(text)[:40]!r} is not a date")
    datetime.fromisoformat(text)
    return text
