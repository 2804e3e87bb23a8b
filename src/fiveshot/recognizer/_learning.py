"""Learn classes: gather the photos, compute their features, and store them in one change with a report."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike

from fiveshot.backbones import Embedder
from fiveshot.core import ClassStatistics, Memory, summarize
from fiveshot.core.arrays import as_numpy
from fiveshot.core.scorers import Scorer
from fiveshot.data import MAX_PHOTO_BYTES, THUMBNAIL_SIZE, BytesSource, Photo, decode_only, decoders, is_thumbnail
from fiveshot.errors import InputError, some_of
from fiveshot.features import Keep
from fiveshot.recognizer.advice.insight import StoredPhotos, inspect_class
from fiveshot.recognizer.change import Change, ConflictError, LiveModel
from fiveshot.recognizer.names import check_name
from fiveshot.recognizer.photos.embedding import photo_records
from fiveshot.recognizer.photos.inputs import ClassInputs, gather_classes
from fiveshot.recognizer.recognition._held_out import leaving_of
from fiveshot.recognizer.recognition.snapshot import Snapshot
from fiveshot.recognizer.store.contents import Contents, KnownPhotos, Twin
from fiveshot.recognizer.store.history import ClassChange
from fiveshot.recognizer.store.rows import (
    MAX_THUMBNAIL,
    ClassRecord,
    Floats,
    PhotoRecord,
    kept_photos,
    number_bytes,
    photo_features,
    photo_summary,
)
from fiveshot.values import LearnReport
from fiveshot.work import Progress

SeenClasses: TypeAlias = "Mapping[str, Sequence[PhotoRecord]]"


def learn_photos(
    model: LiveModel,
    embedder_of: Callable[[Snapshot], Embedder],
    classes: ClassInputs,
    *,
    add: bool,
    new_only: bool,
    nested: bool,
    progress: Progress | None,
) -> list[LearnReport]:
    """Learn classes in one change. Everything that can be checked before the backbone runs is checked first.

    ``embedder_of`` returns the backbone of a state and loads it at the first call.
    """
    if add and new_only:
        raise InputError(
            "add=True (--add) and new_only=True (--new-only) contradict each other", hint="choose one"
        )
    gathered = gather_classes(classes, nested=nested)
    for name in gathered:
        check_name(name)
    snapshot = model.refresh()
    if new_only:
        gathered = {name: photos for name, photos in gathered.items() if name not in snapshot.contents}
        if not gathered:
            return []
    check_known(snapshot.contents, gathered, add=add)
    embedder = embedder_of(snapshot)
    # All classes at once, so that batches are full.
    everything = [photo for photos in gathered.values() for photo in photos]
    seen = iter(records_to_store(snapshot, embedder, everything, progress))
    by_class = {name: list(islice(seen, len(photos))) for name, photos in gathered.items()}
    with model.change() as change:
        return learn_classes(change, by_class, add=add, made_by=embedder.fingerprint)


def records_to_store(
    snapshot: Snapshot, embedder: Embedder, photos: Sequence[Photo], progress: Progress | None
) -> list[PhotoRecord]:
    """Return photos with their features, and with the pictures that the model stores."""
    options = snapshot.manifest.options
    keep = Keep(options.thumbnails, "file" if options.keep_photos else None)
    return photo_records(embedder, photos, keep, progress=progress)


def check_known(contents: Contents, names: Collection[str], *, add: bool) -> list[str]:
    """Return which of the classes are known; refuse known classes unless ``add`` is true."""
    known = [name for name in names if name in contents]
    if known and not add:
        raise _known_already(known, among=len(names))
    return known


def learn_classes(
    change: Change, classes: SeenClasses, *, add: bool, made_by: str | None = None
) -> list[LearnReport]:
    """Store new classes, or with ``add`` more photos of known ones, as one entry of the history.

    ``made_by`` is the fingerprint of the backbone that made the features, if it is known.
    """
    require_backbone(change, made_by)
    known = check_known(change.before, classes, add=add)
    reports = _reports(change, classes)
    for name, photos in classes.items():
        store_photos(change, name, photos)
    shown = {photo.sha256 for photos in classes.values() for photo in photos}
    negatives = change.before.negatives
    if negatives is not None:  # a photo of a class is no longer one of "none of these"
        belied = negatives.numbers_of(shown)
        if belied:
            change.lose(negatives, belied)
    change.record("add" if len(known) == len(classes) else "learn")
    return reports


def require_backbone(change: Change, made_by: str | None) -> None:
    """Refuse features of a backbone that is no longer the model's."""
    require_fingerprint(change.before, made_by)


def require_fingerprint(contents: Contents, made_by: str | None) -> None:
    """Refuse features of a backbone that is not that of a state."""
    if made_by is not None and contents.manifest.backbone.fingerprint != made_by:
        raise ConflictError("these features do not fit the model: it was tuned since", hint="learn again")


def feature_records(
    features: ArrayLike,
    width: int,
    *,
    names: Sequence[str] | None = None,
    sha256s: Sequence[str] | None = None,
    thumbnails: Sequence[bytes | None] | None = None,
    originals: Sequence[bytes | None] | None = None,
) -> list[PhotoRecord]:
    """Return rows of features as photos to learn; without digests of photos, digests of the rows are used."""
    rows = checked_features(features, width)
    n = len(rows)
    numbered = [f"photo {number}" for number in range(1, n + 1)]
    names = numbered if names is None else list(names)
    digests = [hashlib.sha256(number_bytes(row)).hexdigest() for row in rows] if sha256s is None else list(sha256s)
    small = [None] * n if thumbnails is None else list(thumbnails)
    large = [None] * n if originals is None else list(originals)
    if any(len(column) != n for column in (names, digests, small, large)):
        raise InputError(f"{n} rows of features, but another number of digests, pictures or names")
    for number, name in zip(numbered, names, strict=True):
        if not isinstance(name, str):
            raise InputError(f"the name of {number} is not text, but {_shown(name)}")
    records = [
        PhotoRecord(
            digest, row, _bytes(small, f"thumbnail of {name}"), _bytes(large, f"file of {name}"), name=name
        )
        for name, digest, row, small, large in zip(names, digests, rows, small, large, strict=True)
    ]
    check_pictures(records)
    return records


def check_pictures(photos: Sequence[PhotoRecord]) -> None:
    """Refuse pictures that could be stored and exported, but not imported."""
    for photo in photos:
        check_digest(photo.sha256, photo.name)
        if photo.thumbnail is not None:
            check_thumbnail(photo.thumbnail, photo.name)
        if photo.original is not None and not 1 <= len(photo.original) <= MAX_PHOTO_BYTES:
            raise InputError(f"the file of {photo.name} is empty, or larger than {MAX_PHOTO_BYTES:,} bytes")


def check_digest(sha256: object, name: str) -> None:
    """Refuse text that is not a SHA-256 in our format: 64 digits, lowercase."""
    if not isinstance(sha256, str) or len(sha256) != 64 or set(sha256) - set("0123456789abcdef"):
        raise InputError(f"the SHA-256 of {name} is not 64 hexadecimal digits, but {str(sha256)[:70]!r}")


def check_thumbnail(data: bytes, name: str) -> None:
    """Refuse a small copy in another format than ours."""
    if len(data) > MAX_THUMBNAIL or not is_thumbnail(data):
        raise InputError(
            f"the thumbnail of {name} is not a JPEG without metadata of at most "
            f"{THUMBNAIL_SIZE} x {THUMBNAIL_SIZE} pixels",
            hint="make a smaller one without metadata, or leave it out",
        )
    decoders().reduce(BytesSource(data, f"thumbnail of {name}"), decode_only, max_pixels=THUMBNAIL_SIZE**2)


def checked_features(features: ArrayLike, width: int) -> Floats:
    """Return features as finite float32 rows of the model's width."""
    values = as_numpy(features)
    if values.ndim != 2 or not len(values) or values.shape[1] != width or values.dtype.kind not in "fiu":
        raise InputError(
            f"features of shape {values.shape} do not fit this model", hint=f"give numbers of shape (n, {width})"
        )
    with np.errstate(over="ignore"):
        rows: Floats = np.ascontiguousarray(values, dtype=np.float32)
    if not np.isfinite(rows).all():
        row = int(np.flatnonzero(~np.isfinite(rows).all(axis=1))[0])
        raise InputError(f"the features of row {row} hold NaN or infinity", hint="leave it out")
    return rows


def _bytes(data: Any, shown: str) -> bytes | None:
    if data is not None and not isinstance(data, bytes | bytearray | memoryview):
        raise InputError(f"the {shown} is not bytes, but {_shown(data)}", hint="give the content of a file")
    return None if data is None else bytes(data)


def _shown(value: object) -> str:
    return f"{value!r:.80} ({type(value).__name__})"


def _known_already(known: Sequence[str], *, among: int) -> InputError:
    """Return the error for known classes among the classes to learn.

    >>> print(_known_already(["owl"], among=1))
    there is a class 'owl' already; add photos to it with add=True (--add), or choose another name
    """
    if among == 1:
        return InputError(
            f"there is a class {known[0]!r} already",
            hint="add photos to it with add=True (--add), or choose another name",
            code="known_class",
        )
    listed = some_of([repr(name) for name in known])
    others = "learn only the others with new_only=True (--new-only), or " if len(known) < among else ""
    return InputError(
        f"known already: {len(known):,} of {among:,} classes ({listed})",
        hint=f"{others}add photos to known classes with add=True (--add)",
        code="known_class",
    )


def store_photos(change: Change, name: str, seen: Sequence[PhotoRecord]) -> tuple[int, ...]:
    """Add photos to a known or new class, and return their numbers.

    Photos added to a base class are stored in the database, not in the base file.
    """
    wanted = kept_photos(seen, change.before.manifest.options)
    photos = tuple(replace(photo, added=change.at) for photo in wanted)
    row, embed = change.before.named.get(name), change.snapshot.embed
    if row is None:
        summary = photo_summary(embed, photo_features(seen))
        record = ClassRecord(name, summary, photos, base=name in change.before.base_file, created=change.at)
        begun = change.tables.insert_class(record)
        change.done.append(ClassChange("added", name, begun.id, photos=len(photos)))
        return tuple(photo.id for photo in begun.photos if photo.id is not None)
    # Computed from all photos, not merged: a class has the same bits in every order of learning.
    summary = photo_summary(embed, np.concatenate([row.features, photo_features(seen)]))
    change.tables.update_class(row.id, summary)
    stored = change.tables.insert_photos(row.id, photos)
    touched = tuple(photo.id for photo in stored if photo.id is not None)
    change.done.append(ClassChange("grown", row.name, row.id, photos=len(photos), touched=touched))
    return touched


def _reports(change: Change, classes: SeenClasses) -> list[LearnReport]:
    """Compare each class with all others, including those learned at the same time."""
    memory, head = change.before.memory, change.snapshot.nearby_head
    known = StoredPhotos(change.before, change.duplicates, change.connection)
    together = _with(memory, head, classes)
    learned = {name: photo_features(photos) for name, photos in classes.items()}
    leaving = leaving_of(head, together, change.before, classes.keys(), learned)
    judged, labels = leaving.judge(classes), [str(label) for label in together.labels]
    if len(classes) > 1:
        head = head.adopt(together)
    everything = _all_photos(classes)
    return [
        inspect_class(
            head,
            _before(together, memory, name),
            name,
            photos,
            judged[leaving.of(name)],
            labels,
            earlier=_OtherPhotos(known, everything, name),
        )
        for name, photos in classes.items()
    ]


@dataclass(frozen=True, eq=False)
class _OtherPhotos:
    """Photos that were learned earlier, and those of other classes that are learned at the same time."""

    known: StoredPhotos
    together: KnownPhotos
    name: str  # of the class

    def of(self, name: str) -> Floats:
        return self.known.of(name)

    def twins(self, photos: Sequence[PhotoRecord]) -> list[Twin | None]:
        found = zip(self.known.twins(photos), self.together.twins(photos, but=self.name), strict=True)
        return [max((one for one in both if one), key=_closeness, default=None) for both in found]


def _closeness(twin: Twin) -> tuple[bool, float]:
    return twin.same_file, twin.likeness


def _with(memory: Memory, head: Scorer, classes: SeenClasses) -> Memory:
    """Return the memory with these classes, too; classes outside of the base are new, even the first one."""
    session = ClassStatistics.of(
        {name: summarize(head.embed(photo_features(photos))) for name, photos in classes.items()}
    )
    is_first = not len(memory.base) and not len(memory.new)
    return Memory(new=session) if is_first else memory.learn(session)


def _before(together: Memory, memory: Memory, name: str) -> Memory:
    """Return a memory with the former state of one class, or without it, and the present state of all others."""
    if name in memory.base:
        kept = together.base.drop([name]).merge(memory.base.restrict([name]))
        return Memory(kept, together.new)
    new = together.new.drop([name])
    return Memory(together.base, new.merge(memory.new.restrict([name])) if name in memory.new else new)


def _all_photos(classes: SeenClasses) -> KnownPhotos:
    labels = tuple(name for name, photos in classes.items() for _ in photos)
    sha256s = tuple(photo.sha256 for photos in classes.values() for photo in photos)
    return KnownPhotos(labels, sha256s, np.concatenate([*map(photo_features, classes.values())]))
