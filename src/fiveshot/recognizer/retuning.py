"""Adapt the backbone to everything learned so far, recompute all features, and switch to them in one step."""

from __future__ import annotations

import sqlite3
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fiveshot.backbones import BackboneSpec, Embedder, load_embedder
from fiveshot.core.labels import python_labels
from fiveshot.data import BytesSource, ImageDataset, ImageSource, ImageSplit
from fiveshot.errors import InputError, counted, some_of
from fiveshot.recognizer.change import Change, ConflictError, LiveModel
from fiveshot.recognizer.creation import (
    NO_IMAGES,
    BaseSession,
    Work,
    base_images,
    extracted,
    learn_base,
    tune_adapter,
    with_held_back,
)
from fiveshot.recognizer.names import NONE
from fiveshot.recognizer.photos.embedding import backbone_record, see_photos
from fiveshot.recognizer.photos.photo import Photo
from fiveshot.recognizer.recognition.head import head_record, restored_head
from fiveshot.recognizer.store.contents import Contents
from fiveshot.recognizer.store.folder import place_adapter
from fiveshot.recognizer.store.rows import (
    ClassRecord,
    number_bytes,
    photo_digest,
    photo_features,
    photo_summary,
    read_class,
    update_class,
)
from fiveshot.storage import FilePath

if TYPE_CHECKING:
    from fiveshot.heads import FewShotHead
    from fiveshot.tuning import TuneResult


@dataclass(frozen=True, eq=False)
class Retuned:
    """A model after tuning that has not taken its place yet."""

    result: TuneResult
    embedder: Embedder
    records: tuple[ClassRecord, ...]  # with the new features
    session: BaseSession  # with the new features
    state: int  # of the model it was made from


@contextmanager
def retuned_model(
    model: LiveModel,
    spec: BackboneSpec,
    *,
    base: FilePath | None,
    recipe: str,
    settings: Mapping[str, Any] | None,
    work: Work,
) -> Iterator[Retuned]:
    """Tune on all photos and recompute all features; the adapter's file is there until the block ends.

    ``spec`` is the backbone of the model without its adapter.
    """
    contents = model.refresh().contents
    options = contents.manifest.options
    with model.folder.reading() as connection:
        records = _kept_records(connection, contents)
    with tempfile.TemporaryDirectory() as folder:
        images = _base_images(base, contents)
        if images is not None:
            images = with_held_back(images, seed=options.seed)
        adapter = Path(folder) / "adapter.safetensors"
        split = _split(records, images.train if images else NO_IMAGES, images.class_names if images else ())
        result = tune_adapter(spec, split, adapter, seed=options.seed, work=work, recipe=recipe, settings=settings)
        embedder = load_embedder(spec.replace(adapter=adapter))
        session = BaseSession(head_record(contents.manifest.head.name))
        if images is not None:
            session = learn_base(*extracted(images, embedder, work), head=session.head, options=options)
        head = restored_head(session.head)
        fresh = tuple(_seen_again(record, embedder, head) for record in records)
        yield Retuned(result, embedder, fresh, session, contents.state)


def switch(change: Change, retuned: Retuned) -> None:
    """Put the tuned model in the place of the one before, all of it in one transaction."""
    if change.before.state != retuned.state:
        raise ConflictError("the model was changed while it was tuned", hint="nothing was switched: tune again")
    for record in retuned.records:
        assert record.id is not None
        update_class(change.connection, record.id, record.summary, state=change.state)
        change.connection.executemany(
            "UPDATE photos SET feature = ?, digest = ? WHERE id = ?",
            [(number_bytes(photo.feature), photo_digest(photo), photo.id) for photo in record.photos],
        )
    # What the history could restore are features of the backbone before: nothing may mix with the new ones.
    change.connection.execute("UPDATE changes SET before = NULL")
    change.connection.execute("DELETE FROM photos WHERE held_by IS NOT NULL")
    assert retuned.embedder.spec.adapter is not None
    name, content = place_adapter(change.folder, retuned.embedder.spec.adapter)
    change.written.append(change.folder / name)
    before, session = change.before.manifest, retuned.session
    backbone = replace(backbone_record(retuned.embedder), adapter=name, adapter_sha256=content)
    change.manifest = replace(before, backbone=backbone, head=session.head, rejection=session.rejection)
    if len(change.before.base_file):
        change.base = session.base
    change.record("retune", undoable=False, detail={"recipe": retuned.result.recipe.to_json()})


def _kept_records(connection: sqlite3.Connection, contents: Contents) -> tuple[ClassRecord, ...]:
    """Return the stored classes with their photos; all photos must have been kept."""
    records = tuple(read_class(connection, number, contents.width, originals=True) for number in contents.rows)
    lacking = [record.name for record in records if any(photo.original is None for photo in record.photos)]
    if lacking:
        shown, classes = some_of([repr(name) for name in lacking]), counted(len(lacking), "class")
        raise InputError(
            f"tuning needs the photos themselves, and those of {classes} were not kept: {shown}",
            hint="make a model with keep_photos=True (--keep-photos) and learn them there",
        )
    return records


def _base_images(base: FilePath | None, contents: Contents) -> ImageDataset | None:
    """Return the photos of the base classes, where there are any: those classes and no others."""
    if not len(contents.base_file):
        return None
    if base is None:
        raise InputError(
            f"the model has {len(contents.base_file)} base classes, whose photos are not in it",
            hint="say where they are with base=DIR (--base DIR)",
        )
    images = base_images(base)
    if missing := set(python_labels(contents.base_file.labels)) ^ set(images.class_names):
        raise InputError(
            f"{base} does not hold the base classes of this model: "
            f"{sorted(map(str, missing))[0]!r} is in one alone",
            hint="give the folder the model was made from, with the classes it has now",
        )
    return images


def _split(records: Sequence[ClassRecord], base: ImageSplit, base_names: tuple[str, ...]) -> ImageSplit:
    """Return all photos with one label for each class; a class of a single photo is not trained on."""
    images: list[ImageSource] = list(base.images)
    labels = base.labels.tolist()
    numbers = {name: number for number, name in enumerate(base_names)}
    for record in records:
        if record.name == NONE:
            continue
        number = numbers.setdefault(record.name, len(numbers))
        images += [photo.source for photo in _photos(record)]
        labels += [number] * len(record.photos)
    counts = np.bincount(labels, minlength=1) if labels else np.zeros(1, np.int64)
    split = ImageSplit(tuple(images), np.array(labels, dtype=np.int64))
    return split.select(np.flatnonzero(counts[split.labels] > 1))


def _photos(record: ClassRecord) -> list[Photo]:
    named = ((photo.original or b"", f"{record.name}/{number}") for number, photo in enumerate(record.photos, 1))
    return [Photo(BytesSource(data, name)) for data, name in named]


def _seen_again(record: ClassRecord, embedder: Embedder, head: FewShotHead) -> ClassRecord:
    seen = see_photos(embedder, _photos(record))
    photos = tuple(replace(photo, feature=again.feature) for photo, again in zip(record.photos, seen, strict=True))
    return replace(record, photos=photos, summary=photo_summary(head.embed, photo_features(photos)))
