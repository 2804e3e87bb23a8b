"""Read the stored classes and photos of an open model, and describe it."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Self

from fiveshot.core.labels import python_labels
from fiveshot.recognizer import correction
from fiveshot.recognizer.names import NONE, known_name
from fiveshot.recognizer.recognition._held_out import leaving_of
from fiveshot.recognizer.recognition.rejection import thresholds_note
from fiveshot.recognizer.recognition.snapshot import Snapshot
from fiveshot.recognizer.store.contents import Contents, StoredClass
from fiveshot.recognizer.store.folder import ModelFolder
from fiveshot.recognizer.store.history import next_to_undo, read_history
from fiveshot.recognizer.store.rows import (
    Floats,
    PhotoFacts,
    Tables,
    count_pictures,
    count_thumbnails,
    photo_facts,
    photo_id,
    read_kept,
    read_picture,
    read_thumbnail,
)
from fiveshot.recognizer.store.sightings import count_sightings, read_sighting_picture, read_sightings
from fiveshot.storage import FilePath
from fiveshot.values import ClassInfo, HistoryEntry, ModelInfo, PhotoInfo, SightingInfo
from fiveshot.work import one_thread

if TYPE_CHECKING:
    from fiveshot.recognizer._recognizer import Recognizer


class ModelReader:
    """Reads from the database of a model, and changes nothing.

    A snapshot has the classes of a state; the reader has their stored data. The recognizer has a reader for its
    own connection. The service opens another one, which does not wait for a change in progress. Threads may share
    a reader.

    Parameters
    ----------
    folder : ModelFolder
        The open directory of the model.

    Examples
    --------
    >>> import tempfile
    >>> import numpy as np
    >>> from fiveshot import Recognizer
    >>> from fiveshot.recognizer import ModelReader
    >>> owls = np.random.default_rng(0).normal(size=(3, 320))
    >>> with Recognizer.create(tempfile.mkdtemp()) as birds:
    ...     _ = birds.learn_features("owl", owls)
    ...     reader = ModelReader.open(birds.path)
    ...     found = [photo.id for photo in reader.photos(birds.snapshot, "owl")]
    ...     reader.close()
    >>> found
    ['p1', 'p2', 'p3']
    """

    def __init__(self, folder: ModelFolder) -> None:
        self._folder = folder

    @classmethod
    def open(cls, path: FilePath) -> Self:
        """Open a separate connection to the model at a path."""
        return cls(ModelFolder(Path(path), readonly=True))

    def close(self) -> None:
        """Close the connection."""
        self._folder.close()

    def require_model(self) -> None:
        """Raise ``LostModelError`` unless the model is still at its path."""
        with self._folder.reading():
            pass

    def photos(self, snapshot: Snapshot, name: str) -> list[PhotoInfo]:
        """Return the photos of a class, or of ``none of these``; photos of base classes are not stored."""
        row = _stored(snapshot, name)
        if row is None:
            return []
        with self._folder.reading() as connection:
            facts = photo_facts(connection, row.id)
        return _photo_infos(snapshot, row, facts)

    def thumbnails(self, snapshot: Snapshot, name: str) -> list[bytes]:
        """Return the stored small copies of the photos of a class."""
        row = _stored(snapshot, name)
        if row is None:
            return []
        with self._folder.reading() as connection:
            photos = Tables(connection, snapshot.contents.width).read_photos(row.id)
        return [photo.thumbnail for photo in photos if photo.thumbnail is not None]

    def thumbnail(self, snapshot: Snapshot, name: str, number: int) -> bytes | None:
        """Return the small copy of one photo of a class, counted from 0."""
        row = _stored(snapshot, name)
        if row is None:
            return None
        with self._folder.reading() as connection:
            return read_thumbnail(connection, row.id, number)

    def count_thumbnails(self, snapshot: Snapshot, names: Iterable[str]) -> dict[str, int]:
        """Return how many photos of some classes have a small copy."""
        rows = {name: _stored(snapshot, name) for name in names}
        with self._folder.reading() as connection:
            return {name: 0 if row is None else count_thumbnails(connection, row.id) for name, row in rows.items()}

    def picture(self, number: int, *, kept: bool = False) -> bytes | None:
        """Return the small copy of a photo, or its stored file; None if there is none."""
        with self._folder.reading() as connection:
            return read_picture(connection, number, kept=kept)

    def sightings(self, snapshot: Snapshot) -> tuple[list[SightingInfo], Floats, int]:
        """Return the sightings, the newest first, their features, and the bytes that they take."""
        with self._folder.reading() as connection:
            _, _, size = count_sightings(connection)
            return *read_sightings(connection, snapshot.contents.width), size

    def count_sightings(self) -> tuple[int, int, int]:
        """Return how many sightings there are, the number of the last one, and their bytes."""
        with self._folder.reading() as connection:
            return count_sightings(connection)

    def sighting_picture(self, number: int, *, kept: bool = False) -> bytes | None:
        """Return the small copy of a sighting, or the photo itself; None if there is no such sighting."""
        with self._folder.reading() as connection:
            return read_sighting_picture(connection, number, kept=kept)

    def kept(self) -> frozenset[int]:
        """Return the photos that a user decided about; a review does not suggest them again."""
        with self._folder.reading() as connection:
            return read_kept(connection)

    def info(self, snapshot: Snapshot) -> ModelInfo:
        """Return a description of the model."""
        with self._folder.reading() as connection:
            return _model_info(self._folder.path, snapshot.contents, connection)

    def history(self, limit: int | None = None) -> list[HistoryEntry]:
        """Return the changes, the latest first."""
        with self._folder.reading() as connection:
            return read_history(connection, limit=limit)

    def next_to_undo(self) -> HistoryEntry | None:
        """Return the change that ``undo`` would revert."""
        with self._folder.reading() as connection:
            return next_to_undo(connection)


def _photo_infos(snapshot: Snapshot, row: StoredClass, facts: Iterable[PhotoFacts]) -> list[PhotoInfo]:
    """Describe the photos of a stored class, from ``photo_facts``."""
    scores = {} if row.name == NONE else _left_out_scores(snapshot, row)
    return [
        PhotoInfo(
            photo_id(number),
            row.name,
            added,
            sha256,
            *scores.get(number, (None, None)),
            bool(small),
            bool(whole),
            name,
        )
        for number, added, sha256, small, whole, name in facts
    ]


def _left_out_scores(snapshot: Snapshot, row: StoredClass) -> dict[int, tuple[float | None, str | None]]:
    with one_thread():
        leaving = leaving_of(snapshot.head, snapshot.memory, snapshot.contents, {row.name})
        judged = leaving.judge([row.name])[leaving.of(row.name)]
    if not judged.known.any():
        return {}
    strongest = python_labels(leaving.labels[judged.taken_for])
    taken = [None if right else str(label) for right, label in zip(judged.right, strongest, strict=True)]
    return dict(zip(row.photos.ids, zip(judged.share.tolist(), taken, strict=True), strict=True))


def _model_info(path: Path, contents: Contents, connection: sqlite3.Connection) -> ModelInfo:
    """Describe a model in one state, without its head."""
    manifest = contents.manifest
    created = dict(connection.execute("SELECT name, created FROM classes"))
    pictures = count_pictures(connection)
    statistics = contents.memory.statistics
    classes = []
    for label, summary in zip(python_labels(statistics.labels), statistics.summaries, strict=True):
        name, row = str(label), contents.by_name.get(str(label))
        is_base = name in contents.base_file
        classes.append(
            ClassInfo(
                name,
                summary.count,
                is_base,
                0 if row is None else len(row.sha256s),
                *(pictures.get(row.id, (0, 0)) if row is not None else (0, 0)),
                created=None if is_base else created.get(name),
            )
        )
    own = [one for one in contents.classes.values() if not one.base]
    taken = sum(one.summary.mean.nbytes + one.summary.factor.nbytes + one.features.nbytes for one in own)
    return ModelInfo(
        path=str(path),
        state=contents.state,
        classes=tuple(classes),
        backbone=manifest.backbone.name,
        adapter=bool(manifest.backbone.adapter),
        negatives=0 if contents.negatives is None else len(contents.negatives.photos.ids),
        width=manifest.backbone.width,
        views=int(manifest.backbone.preprocessing.get("views", 1)),
        head=manifest.head.name,
        keep_photos=manifest.options.keep_photos,
        thumbnails=manifest.options.thumbnails,
        names=manifest.options.names,
        false_rejection=manifest.options.false_rejection,
        wrong_answers=manifest.options.wrong_answers,
        rejection=thresholds_note(contents),
        bytes_on_disk=sum(file.stat().st_size for file in path.iterdir() if file.is_file()),
        bytes_per_class=taken // len(own) if own else 0,
        made_with=manifest.made_with,
        settings=manifest.head.settings,
    )


def thumbnails(model: Recognizer, name: str) -> list[bytes]:
    """Return the stored small copies of the photos of a class.

    Parameters
    ----------
    model : Recognizer
        The model.
    name : str
        Name of the class.

    Returns
    -------
    list of bytes
        JPEG files, in the order in which the photos were learned.

    Raises
    ------
    InputError
        If there is no such class.

    Examples
    --------
    >>> import io
    >>> import tempfile
    >>> from PIL import Image
    >>> from fiveshot import Recognizer
    >>> from fiveshot.recognizer import thumbnails
    >>> with Recognizer.create(tempfile.mkdtemp()) as colors:
    ...     _ = colors.learn("red", Image.new("RGB", (640, 320), "red"))
    ...     (small,) = thumbnails(colors, "red")
    >>> Image.open(io.BytesIO(small)).size
    (128, 64)
    """
    return model.reader.thumbnails(model.refresh(), known_name(name))


def picture(model: Recognizer, id: str) -> bytes | None:
    """Return the small copy of a learned photo.

    Parameters
    ----------
    model : Recognizer
        The model.
    id : str
        Id of the photo, such as ``p17``.

    Returns
    -------
    bytes or None
        A JPEG file; None if no small copy is stored, or there is no such photo.

    Raises
    ------
    InputError
        If this is not the id of a photo.

    Examples
    --------
    >>> import tempfile
    >>> from PIL import Image
    >>> from fiveshot import Recognizer
    >>> from fiveshot.recognizer import picture
    >>> with Recognizer.create(tempfile.mkdtemp()) as colors:
    ...     _ = colors.learn("red", Image.new("RGB", (640, 320), "red"))
    ...     picture(colors, "p1")[:2]
    b'\\xff\\xd8'
    """
    (number,) = correction.photo_numbers(id, model.snapshot.contents)
    return model.reader.picture(number)


def _stored(snapshot: Snapshot, name: str) -> StoredClass | None:
    """Return the stored row of a class, without the base file."""
    contents = snapshot.contents
    if name == NONE:
        return contents.negatives
    contents.require(name)
    return contents.by_name.get(name)
