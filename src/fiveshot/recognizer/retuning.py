"""Adapt the backbone to everything learned so far, make all features anew, and switch in one step."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from fiveshot.backbones import Preprocessing
from fiveshot.data import BytesSource, ImageSource, ImageSplit
from fiveshot.data.listing import some_of
from fiveshot.errors import InputError, counted
from fiveshot.features import Runner, load_runner
from fiveshot.heads import FewShotHead
from fiveshot.recognizer.backbone import backbone_record
from fiveshot.recognizer.change import Change
from fiveshot.recognizer.class_record import ClassRecord, number_bytes, photo_digest
from fiveshot.recognizer.contents import Contents
from fiveshot.recognizer.creation import place_adapter
from fiveshot.recognizer.extraction import see_photos
from fiveshot.recognizer.making import (
    NO_IMAGES,
    Learned,
    OnBad,
    Progress,
    base_images,
    extracted,
    learn_base,
    tune_adapter,
)
from fiveshot.recognizer.manifest import BackboneRecord
from fiveshot.recognizer.photo import Photo
from fiveshot.recognizer.rows import read_class, update_class
from fiveshot.recognizer.snapshot import head_record, restored_head
from fiveshot.statistics import NO_CLASSES, summarize
from fiveshot.statistics.labels import python_labels
from fiveshot.tuning import TuneResult
from fiveshot.tuning.result import OnProgress

FilePath = str | os.PathLike[str]


@dataclass(frozen=True, eq=False)
class Retuned:
    """A model after tuning that has not taken its place yet."""

    result: TuneResult
    runner: Runner
    adapter: Path
    records: tuple[ClassRecord, ...]  # with the new features
    learned: Learned  # the base session with the new features
    state: int  # of the model it was made from


def kept_records(connection: sqlite3.Connection, contents: Contents) -> tuple[ClassRecord, ...]:
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


def retune(
    contents: Contents,
    records: Sequence[ClassRecord],
    folder: Path,
    *,
    base: FilePath | None,
    weights: FilePath | None,
    device: str,
    runtime: str,
    recipe: str,
    settings: Mapping[str, Any] | None,
    tuning: OnProgress | None,
    progress: Progress | None,
    skip_bad: bool = False,
    on_bad: OnBad | None = None,
) -> Retuned:
    """Tune on all photos and compute all features anew; files are written to ``folder`` alone."""
    backbone, options = contents.manifest.backbone, contents.manifest.options
    images = None
    if len(contents.base_file):
        images = base_images(_required_base(base, contents))
        if missing := set(python_labels(contents.base_file.labels)) ^ set(images.class_names):
            raise InputError(
                f"{base} does not hold the base classes of this model: {sorted(map(str, missing))[0]!r} is in one "
                "alone; give the folder the model was made from, with the classes it has now"
            )
    adapter = folder / "adapter.safetensors"
    loading = _loading(backbone, weights, device, runtime)
    result = tune_adapter(
        load_runner(**loading),
        _split(records, images.train if images else NO_IMAGES, images.class_names if images else ()),
        adapter,
        seed=options.seed,
        recipe=recipe,
        settings=settings,
        progress=tuning,
        skip_bad=skip_bad,
    )
    runner = load_runner(**loading, adapter=adapter)
    record = head_record(contents.manifest.head.name)
    learned = Learned(NO_CLASSES, record, {})
    if images is not None:
        found = extracted(images, runner, progress, skip_bad=skip_bad, on_bad=on_bad)
        learned = learn_base(*found, head=record, options=options)
    head = restored_head(learned.head)
    fresh = tuple(_seen_anew(one, runner, head) for one in records)
    return Retuned(result, runner, adapter, fresh, learned, contents.state)


def switch(change: Change, retuned: Retuned) -> None:
    """Put the tuned model in the place of the one before, all of it in one transaction."""
    if change.before.state != retuned.state:
        raise InputError("the model was changed while it was tuned; nothing was switched: tune again")
    for record in retuned.records:
        assert record.id is not None
        update_class(change.connection, record.id, record.summary, state=change.state)
        change.connection.executemany(
            "UPDATE photos SET feature = ?, digest = ? WHERE id = ?",
            [(number_bytes(photo.feature), photo_digest(photo), photo.id) for photo in record.photos],
        )
    # What the history could restore are features of the backbone before: nothing may mix with the new ones.
    change.connection.execute("UPDATE changes SET before = NULL")
    before = change.before.manifest
    name, content = place_adapter(change.folder, retuned.adapter)
    change.written.append(change.folder / name)
    weights = before.backbone.weights or None
    backbone = replace(backbone_record(retuned.runner, weights=weights), adapter=name, adapter_sha256=content)
    change.manifest = replace(
        before, backbone=backbone, head=retuned.learned.head, rejection=retuned.learned.rejection
    )
    if len(change.before.base_file):
        change.base = retuned.learned.base
    change.record("tune", undoable=False, detail={"recipe": retuned.result.recipe.to_json()})


def _required_base(base: FilePath | None, contents: Contents) -> FilePath:
    if base is None:
        raise InputError(
            f"the model has {len(contents.base_file)} base classes, whose photos are not in it; "
            "say where they are with base=DIR (--base DIR)"
        )
    return base


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
