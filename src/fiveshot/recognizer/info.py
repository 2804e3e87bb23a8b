"""What a model holds, for people: classes, sizes, how it was made."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from fiveshot.core.labels import python_labels
from fiveshot.recognizer.names import NONE
from fiveshot.recognizer.recognition._held_out import leaving_of
from fiveshot.recognizer.recognition.rejection import thresholds_note
from fiveshot.recognizer.recognition.snapshot import Snapshot
from fiveshot.recognizer.store.contents import Contents, StoredClass
from fiveshot.recognizer.store.rows import PhotoFacts, count_pictures, photo_id
from fiveshot.work import one_thread


@dataclass(frozen=True)
class ClassInfo:
    """A class, and what is stored of its photos.

    Attributes
    ----------
    name : str
        Name of the class.
    photos : int
        Photos it was learned from.
    base : bool
        Whether it is a base class.
    features, thumbnails, kept_photos : int
        Photos whose features, small copies, or files are stored. Of the photos of a base there are none.
    created : str or None
        When it was learned, in UTC; None for a base class.

    Examples
    --------
    >>> import tempfile
    >>> import numpy as np
    >>> from fiveshot import Recognizer
    >>> owls = np.random.default_rng(0).normal(size=(5, 320))
    >>> with Recognizer.create(tempfile.mkdtemp()) as birds:
    ...     _ = birds.learn_features("owl", owls)
    ...     (owl,) = birds.show().classes
    >>> owl.name, owl.photos, owl.base, owl.features, owl.thumbnails, owl.kept_photos
    ('owl', 5, False, 5, 0, 0)
    """

    name: str
    photos: int
    base: bool
    features: int = 0
    thumbnails: int = 0
    kept_photos: int = 0
    created: str | None = None


@dataclass(frozen=True)
class PhotoInfo:
    """A photo that a class was learned from.

    Attributes
    ----------
    id : str
        Its id, by which it can be removed or moved: ``p`` and a number that no other photo of the model ever has.
    label : str
        Its class.
    added : str
        When it was learned, in UTC.
    sha256 : str
        Digest of the file that was given.
    score : float or None
        Probability of its class against the strongest other one, by a model that has not seen the photo; None
        where there is nothing to compare with: a single class, or a class of one photo.
    taken_for : str or None
        The class that it is taken for then; None where it is recognized.
    thumbnail, kept : bool
        Whether there is a small copy of it, and whether the file itself was kept.

    Examples
    --------
    >>> import tempfile
    >>> import numpy as np
    >>> from fiveshot import Recognizer
    >>> owls = np.random.default_rng(0).normal(size=(3, 320))
    >>> with Recognizer.create(tempfile.mkdtemp()) as birds:
    ...     _ = birds.learn_features("owl", owls), birds.learn_features("wren", -owls)
    ...     [photo.id for photo in birds.photos("wren")]
    ['p4', 'p5', 'p6']
    """

    id: str
    label: str
    added: str
    sha256: str
    score: float | None = None
    taken_for: str | None = None
    thumbnail: bool = False
    kept: bool = False

    def as_dict(self) -> dict[str, Any]:
        """Return plain JSON values."""
        return asdict(self)


@dataclass(frozen=True)
class ModelInfo:
    """A model at a glance.

    Attributes
    ----------
    path : str
        The directory.
    state : int
        Number of the state, one more with every change.
    classes : tuple of ClassInfo
        The classes, sorted by name.
    backbone, head : str
        Their names.
    adapter : bool
        Whether the backbone is adapted.
    negatives : int
        Photos that show none of the classes.
    width : int
        Length of a feature vector.
    views : int
        How many views of a photo are averaged.
    keep_photos, thumbnails, false_rejection
        What was chosen when the model was made: see :meth:`Recognizer.create`.
    rejection : str
        On what the thresholds of rejection rest, or why there are none.
    bytes_on_disk : int
        What the directory takes.
    bytes_per_class : int
        What statistics and features of a class learned after the base take, on average.
    made_with : str
        The release that made the model.
    settings : mapping
        What the head chose on the base session.

    Examples
    --------
    >>> import tempfile
    >>> from fiveshot import Recognizer
    >>> with Recognizer.create(tempfile.mkdtemp(), false_rejection=0.1) as birds:
    ...     info = birds.show()
    >>> info.backbone, info.false_rejection, info.as_dict()["new_classes"]
    ('tiny_vit_5m_224.dist_in22k', 0.1, 0)
    """

    path: str
    state: int
    classes: tuple[ClassInfo, ...]
    backbone: str
    adapter: bool
    negatives: int
    width: int
    views: int
    head: str
    keep_photos: bool
    thumbnails: bool
    false_rejection: float
    rejection: str
    bytes_on_disk: int
    bytes_per_class: int
    made_with: str
    settings: Mapping[str, Any] = field(default_factory=dict, hash=False)

    @property
    def base_classes(self) -> int:
        """Number of base classes."""
        return sum(one.base for one in self.classes)

    @property
    def new_classes(self) -> int:
        """Number of classes learned after the base."""
        return len(self.classes) - self.base_classes

    def as_dict(self) -> dict[str, Any]:
        """Return plain JSON values."""
        return {**asdict(self), "base_classes": self.base_classes, "new_classes": self.new_classes}


def photo_infos(snapshot: Snapshot, row: StoredClass, facts: Iterable[PhotoFacts]) -> list[PhotoInfo]:
    """Describe the photos of a stored class, of which ``photo_facts`` tells."""
    scores = {} if row.name == NONE else _left_out_scores(snapshot, row)
    return [
        PhotoInfo(
            photo_id(number), row.name, added, sha256, *scores.get(number, (None, None)), bool(small), bool(whole)
        )
        for number, added, sha256, small, whole in facts
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


def model_info(path: Path, contents: Contents, connection: sqlite3.Connection) -> ModelInfo:
    """Describe a model in one state; no head is made for it."""
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
        false_rejection=manifest.options.false_rejection,
        rejection=thresholds_note(contents),
        bytes_on_disk=sum(file.stat().st_size for file in path.iterdir() if file.is_file()),
        bytes_per_class=taken // len(own) if own else 0,
        made_with=manifest.made_with,
        settings=manifest.head.settings,
    )
