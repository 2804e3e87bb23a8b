"""Give a model an adapter that was tuned on its own photos: compute all features again, and switch in one step."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from fiveshot.backbones import Embedder, load_embedder
from fiveshot.core.labels import python_labels
from fiveshot.core.scorers import Scorer
from fiveshot.data import BadImage, BytesSource, ImageDataset, ImageSource, ImageSplit, Photo
from fiveshot.errors import InputError, counted, some_of
from fiveshot.recognizer.change import Change, ConflictError
from fiveshot.recognizer.creation import (
    NO_IMAGES,
    BaseSession,
    BaseWork,
    base_images,
    extracted,
    learn_base,
    with_held_back,
)
from fiveshot.recognizer.names import NONE
from fiveshot.recognizer.photos.embedding import backbone_record, photo_records
from fiveshot.recognizer.recognition.snapshot import head_record, restored_head
from fiveshot.recognizer.store.contents import Contents
from fiveshot.recognizer.store.folder import place_adapter
from fiveshot.recognizer.store.rows import (
    ClassRecord,
    PhotoRecord,
    Tables,
    number_bytes,
    photo_digest,
    photo_features,
    photo_summary,
)
from fiveshot.recognizer.store.sightings import sighting_records, update_features
from fiveshot.storage import FilePath
from fiveshot.work import Progress

if TYPE_CHECKING:
    from fiveshot.recognizer._recognizer import Recognizer


@dataclass(frozen=True, eq=False)
class TrainingPhotos:
    """The photos of a model that an adapter can be tuned on.

    Attributes
    ----------
    images : ImageSplit
        Photos of all classes with two or more photos.
    base : ImageDataset or None
        The base classes; their test split is held back, so that thresholds of rejection can be set on it.
    records : tuple of ClassRecord
        The stored classes that were learned after the base.
    state : int
        State of the model.
    """

    images: ImageSplit
    base: ImageDataset | None
    records: tuple[ClassRecord, ...]
    state: int


def training_photos(model: Recognizer, base: FilePath | None = None) -> TrainingPhotos:
    """Return the photos that a model keeps, and those of its base.

    Parameters
    ----------
    model : Recognizer
        The model; it must have been made with ``keep_photos=True``.
    base : str or path, optional
        Folder with the photos of the base classes, if there are any.

    Returns
    -------
    TrainingPhotos
        The photos.

    Raises
    ------
    InputError
        If photos were not kept, or those of the base do not fit.

    Examples
    --------
    >>> import tempfile
    >>> from PIL import Image
    >>> from fiveshot import Recognizer
    >>> from fiveshot.recognizer import training_photos
    >>> photos = {name: 2 * [Image.new("RGB", (64, 64), name)] for name in ("red", "blue")}
    >>> with Recognizer.create(tempfile.mkdtemp(), keep_photos=True) as colors:
    ...     _ = colors.learn_many(photos)
    ...     len(training_photos(colors).images)
    4
    """
    contents = model.refresh().contents
    with model.live.folder.reading() as connection:
        records = _kept_records(connection, contents)
    images = _base_images(base, contents)
    if images is not None:
        images = with_held_back(images, seed=contents.manifest.options.seed)
    split = _split(records, images.train if images else NO_IMAGES, images.class_names if images else ())
    return TrainingPhotos(split, images, records, contents.state)


def adopt_adapter(
    model: Recognizer,
    adapter: FilePath,
    photos: TrainingPhotos,
    *,
    progress: Progress | None = None,
    skip_bad: bool = False,
    on_bad: Callable[[Sequence[BadImage]], None] | None = None,
    detail: Mapping[str, Any] | None = None,
) -> None:
    """Compute all features with an adapter, and switch the model to them in one step. It cannot be undone.

    Parameters
    ----------
    model : Recognizer
        The model. It stays in use until the switch.
    adapter : str or path
        File of an adapter for the backbone of the model.
    photos : TrainingPhotos
        What ``training_photos`` returned.
    progress : callable, optional
        Called with the number of base photos done and the number of all.
    skip_bad : bool
        Whether to leave out photos of the base that cannot be read, instead of raising an error.
    on_bad : callable, optional
        Called with the photos that were left out.
    detail : mapping, optional
        What the history says about the adapter.

    Raises
    ------
    ConflictError
        If the model was changed in the meantime.
    """
    manifest = model.snapshot.manifest
    embedder = load_embedder(model.spec.replace(adapter=adapter))
    session = BaseSession(head_record(manifest.head.name))
    if photos.base is not None:
        found = extracted(photos.base, embedder, BaseWork(skip_bad, on_bad, progress))
        session = learn_base(*found, head=session.head, options=manifest.options)
    head = restored_head(session.head)
    fresh = [_seen_again(record, embedder, head) for record in photos.records]
    with model.live.folder.reading() as connection:
        sighted = _sightings_seen_again(connection, manifest.backbone.width, embedder, {})
    with model.live.change() as change:
        if change.before.state != photos.state:
            raise ConflictError(
                "the model was changed while it was tuned", hint="nothing was switched: tune again"
            )
        # A watch may have kept some meanwhile.
        sighted = _sightings_seen_again(change.connection, change.before.width, embedder, sighted)
        _switch(change, embedder, fresh, sighted, session, detail)


def _switch(
    change: Change,
    embedder: Embedder,
    records: Sequence[ClassRecord],
    sighted: Mapping[int, PhotoRecord],
    session: BaseSession,
    detail: Mapping[str, Any] | None,
) -> None:
    """Replace the features and the adapter in one transaction."""
    for record in records:
        assert record.id is not None
        change.tables.update_class(record.id, record.summary)
        change.connection.executemany(
            "UPDATE photos SET feature = ?, digest = ? WHERE id = ?",
            [(number_bytes(photo.feature), photo_digest(photo), photo.id) for photo in record.photos],
        )
    # The history has features of the former backbone, which must not mix with the new ones.
    change.connection.execute("UPDATE changes SET before = NULL")
    change.connection.execute("DELETE FROM photos WHERE held_by IS NOT NULL")
    change.connection.execute("DELETE FROM sightings WHERE hidden_by IS NOT NULL")
    update_features(change.connection, sighted)
    assert embedder.spec.adapter is not None
    name, content = place_adapter(change.folder, embedder.spec.adapter)
    change.written.append(change.folder / name)
    before = change.before.manifest
    backbone = replace(backbone_record(embedder), adapter=name, adapter_sha256=content)
    change.manifest = replace(before, backbone=backbone, head=session.head, rejection=session.rejection)
    if len(change.before.base_file):
        change.base = session.base
    change.record("retune", undoable=False, detail=detail)


def _kept_records(connection: sqlite3.Connection, contents: Contents) -> tuple[ClassRecord, ...]:
    """Return the stored classes with their photos; all photos must have been kept."""
    tables = Tables(connection, contents.width)
    records = tuple(tables.read_class(number, originals=True) for number in contents.rows)
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
            hint="give their folder with base=DIR (--base DIR)",
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


def _seen_again(record: ClassRecord, embedder: Embedder, head: Scorer) -> ClassRecord:
    seen = photo_records(embedder, _photos(record))
    photos = tuple(replace(photo, feature=again.feature) for photo, again in zip(record.photos, seen, strict=True))
    return replace(record, photos=photos, summary=photo_summary(head.embed, photo_features(photos)))


def _sightings_seen_again(
    connection: sqlite3.Connection, width: int, embedder: Embedder, done: Mapping[int, PhotoRecord]
) -> dict[int, PhotoRecord]:
    """Return the open sightings by number, with features of another backbone; ``done`` are not computed again."""
    found = dict[int, PhotoRecord]()
    for number, sighting in sighting_records(connection, width):
        known = done.get(number)
        if known is None:
            (again,) = photo_records(embedder, [Photo(BytesSource(sighting.original or b"", sighting.name))])
            known = replace(sighting, feature=again.feature)
        found[number] = known
    return found
