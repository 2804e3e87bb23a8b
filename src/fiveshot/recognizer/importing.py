"""Take in a model from a file that may come from anywhere: believe nothing, check everything."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fiveshot.backbones import Preprocessing
from fiveshot.backbones.adapterfile import KIND as ADAPTER_KIND
from fiveshot.backbones.adapterfile import VERSION as ADAPTER_VERSION
from fiveshot.errors import FiveshotError, StorageError
from fiveshot.heads.memory import Memory
from fiveshot.recognizer.base_file import file_sha256, read_base
from fiveshot.recognizer.class_record import ClassRecord
from fiveshot.recognizer.creation import create_model
from fiveshot.recognizer.imported_classes import check_finite, expect, imported_classes
from fiveshot.recognizer.manifest import HeadRecord, Manifest
from fiveshot.recognizer.portable import KIND, VERSION
from fiveshot.recognizer.snapshot import check_width, head_record, restored_head
from fiveshot.recognizer.threshold import Rejection
from fiveshot.statistics import NO_CLASSES, ClassStatistics, summarize
from fiveshot.storage import begins_as_ours, read_tensors

MAX_SIDE = 4096  # of images on the way to a network
MAX_WIDTH = 1 << 14  # of a feature vector
_META = {"manifest", "names", "created", "base", "photos"}


def import_model(file: str | os.PathLike[str], path: str | os.PathLike[str]) -> Manifest:
    """Make a model from an exported file; anything in it that does not fit is refused and nothing is made."""
    source = Path(file)
    with _telling(source), tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as name:
        if source.is_file() and not begins_as_ours(source):
            raise StorageError(f"{source} is not an export of fiveshot; give a file that 'fiveshot export' wrote")
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
    """Say of an error of the system what it was in the way of; what the model's place is to blame for says so."""
    try:
        yield
    except StorageError:
        raise
    except OSError as error:
        reason = error.strerror or error
        raise StorageError(f"cannot import {source}: {reason}; nothing was left behind") from error


@contextmanager
def _refusing(source: Path) -> Iterator[None]:
    """Turn whatever a made-up file runs into, into one refusal."""
    try:
        yield
    except StorageError as error:
        raise StorageError(f"refused to import {source}: {error}") from error
    except (FiveshotError, LookupError, TypeError, ValueError, RuntimeError, OverflowError) as error:
        raise StorageError(f"refused to import {source}: {error}; get a fresh copy of it") from error


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
    if not 0 < manifest.options.false_rejection < 1 or manifest.options.seed < 0:
        raise ValueError("its options are out of range")
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
        expect(tensors, f"file.{key}", (tensors[f"file.{key}"].numel(),), torch.uint8)
        files[key] = folder / name
        files[key].write_bytes(tensors[f"file.{key}"].numpy().tobytes())
        if file_sha256(files[key]) != content:
            raise ValueError(f"its {key} file is damaged")
    if "adapter" in files:
        adapter = read_tensors(files["adapter"], kind=ADAPTER_KIND, version=ADAPTER_VERSION)
        check_finite({name: torch.from_numpy(array) for name, array in adapter.tensors.items()})
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
    labels = sorted(new)
    own = ClassStatistics(np.array(labels), tuple(new[label] for label in labels)) if labels else NO_CLASSES
    head.adopt(Memory(base, own), dict(manifest.head.settings) or None)
    if not np.isfinite(head.predict_proba(rows)).all() or not np.isfinite(head.familiarity(rows)).all():
        raise ValueError("its head gives scores that are no numbers")
