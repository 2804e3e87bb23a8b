"""Adapt the backbone to everything learned so far, and make all features anew."""

from __future__ import annotations

import sqlite3
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from fiveshot.backbones import Preprocessing
from fiveshot.data import BytesSource, ImageDataset, ImageSource, ImageSplit
from fiveshot.data.listing import some_of
from fiveshot.errors import InputError, counted
from fiveshot.features import Runner, load_runner
from fiveshot.heads import FewShotHead
from fiveshot.progress import Progress
from fiveshot.recognizer.change import LiveModel
from fiveshot.recognizer.class_record import ClassRecord
from fiveshot.recognizer.contents import Contents
from fiveshot.recognizer.extraction import see_photos
from fiveshot.recognizer.making import (
    NO_IMAGES,
    Learned,
    OnBad,
    base_images,
    extracted,
    learn_base,
    tune_adapter,
)
from fiveshot.recognizer.manifest import BackboneRecord
from fiveshot.recognizer.photo import Photo
from fiveshot.recognizer.rows import read_class
from fiveshot.recognizer.snapshot import head_record, restored_head
from fiveshot.recognizer.switching import Retuned
from fiveshot.statistics import NO_CLASSES, summarize
from fiveshot.statistics.labels import python_labels
from fiveshot.storage import FilePath

if TYPE_CHECKING:
    from fiveshot.tuning.results import OnProgress


@contextmanager
def retuned_model(
    model: LiveModel,
    *,
    base: FilePath | None,
    weights: FilePath | None,
    device: str,
    runtime: str,
    recipe: str,
    settings: Mapping[str, Any] | None,
    tuning: OnProgress | None,
    progress: Progress | None,
    skip_bad: bool,
    on_bad: OnBad | None,
) -> Iterator[Retuned]:
    """Tune on all photos and compute all features anew; the adapter's file is there until the block ends."""
    contents = model.refresh().contents
    with model.folder.reading() as connection:
        records = _kept_records(connection, contents)
    with tempfile.TemporaryDirectory() as folder:
        images = _base_images(base, contents)
        adapter = Path(folder) / "adapter.safetensors"
        loading = _loading(contents.manifest.backbone, weights, device, runtime)
        result = tune_adapter(
            load_runner(**loading),
            _split(records, images.train if images else NO_IMAGES, images.class_names if images else ()),
            adapter,
            seed=contents.manifest.options.seed,
            recipe=recipe,
            settings=settings,
            progress=tuning,
            skip_bad=skip_bad,
        )
        runner = load_runner(**loading, adapter=adapter)
        head = head_record(contents.manifest.head.name)
        learned = Learned(NO_CLASSES, head, {})
        if images is not None:
            found = extracted(images, runner, progress, skip_bad=skip_bad, on_bad=on_bad)
            learned = learn_base(*found, head=head, options=contents.manifest.options)
        fitted = restored_head(learned.head)
        fresh = tuple(_seen_anew(one, runner, fitted) for one in records)
        yield Retuned(result, runner, adapter, fresh, learned, contents.state)


def _kept_records(connection: sqlite3.Connection, contents: Contents) -> tuple[ClassRecord, ...]:
    """Return the stored classes with their photos; all photos must have been kept."""
    records = tuple(read_class(connection, number, contents.width) for number in contents.classes)
    lacking = [record.name for record in records if any(photo.original is None for photo in record.photos)]
    if lacking:
        shown, classes = some_of([repr(name) for name in lacking]), counted(len(lacking), "class")
        raise InputError(
            f"tuning needs the photos themselves, and those of {classes} were not kept: {shown}; "
            "make a model with keep_photos=True (--keep-photos) and learn them there"
        )
    return records


def _base_images(base: FilePath | None, contents: Contents) -> ImageDataset | None:
    """Return the photos of the base classes, where there are any: those classes and no others."""
    if not len(contents.base_file):
        return None
    if base is None:
        raise InputError(
            f"the model has {len(contents.base_file)} base classes, whose photos are not in it; "
            "say where they are with base=DIR (--base DIR)"
        )
    images = base_images(base)
    if missing := set(python_labels(contents.base_file.labels)) ^ set(images.class_names):
        raise InputError(
            f"{base} does not hold the base classes of this model: {sorted(map(str, missing))[0]!r} is in one "
            "alone; give the folder the model was made from, with the classes it has now"
        )
    return images


def _loading(record: BackboneRecord, weights: FilePath | None, device: str, runtime: str) -> dict[str, Any]:
    return {
        "backbone": record.name,
        "weights": weights or record.weights or None,
        "preprocessing": Preprocessing.from_json(record.preprocessing),
        "tokens": record.tokens,
        "last_blocks": record.last_blocks,
        "device": device,
        "runtime": runtime,
        "precision": "float32",
    }


def _split(records: Sequence[ClassRecord], base: ImageSplit, base_names: tuple[str, ...]) -> ImageSplit:
    """Return all photos with one label for each class; a class of a single photo is not trained on."""
    images: list[ImageSource] = list(base.images)
    labels = base.labels.tolist()
    numbers = {name: number for number, name in enumerate(base_names)}
    for record in records:
        number = numbers.setdefault(record.name, len(numbers))
        images += [photo.source for photo in _photos(record)]
        labels += [number] * len(record.photos)
    counts = np.bincount(labels, minlength=1) if labels else np.zeros(1, np.int64)
    split = ImageSplit(tuple(images), np.array(labels, dtype=np.int64))
    return split.select(np.flatnonzero(counts[split.labels] > 1))


def _photos(record: ClassRecord) -> list[Photo]:
    named = ((photo.original or b"", f"{record.name}/{number}") for number, photo in enumerate(record.photos, 1))
    return [Photo(BytesSource(data, name)) for data, name in named]


def _seen_anew(record: ClassRecord, runner: Runner, head: FewShotHead) -> ClassRecord:
    seen = see_photos(runner, _photos(record))
    photos = tuple(replace(photo, feature=again.feature) for photo, again in zip(record.photos, seen, strict=True))
    features = torch.from_numpy(np.stack([photo.feature for photo in photos]))
    return replace(record, photos=photos, summary=summarize(head.embed(features)))
