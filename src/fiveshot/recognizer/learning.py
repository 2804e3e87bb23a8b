"""Learn classes from features: into the database, exactly, with a report of what was seen."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor

from fiveshot.data.listing import some_of
from fiveshot.errors import InputError
from fiveshot.heads import FewShotHead
from fiveshot.heads.memory import Memory
from fiveshot.recognizer.change import Change
from fiveshot.recognizer.class_record import ClassRecord, Floats, PhotoRecord, kept_photos, number_bytes, pack
from fiveshot.recognizer.extraction import QUIET, SeenPhoto
from fiveshot.recognizer.history import ClassChange
from fiveshot.recognizer.insight import LearnReport, inspect_class
from fiveshot.recognizer.likeness import KnownPhotos
from fiveshot.recognizer.photo import MAX_BYTES, check_digest, check_thumbnail
from fiveshot.recognizer.rows import insert_class, insert_photos, update_class
from fiveshot.statistics import ClassStatistics, summarize
from fiveshot.statistics.labels import python_labels


@dataclass(frozen=True, eq=False)
class Shots:
    """Photos of one class that are to be learned."""

    name: str  # of the class
    photos: tuple[PhotoRecord, ...]
    names: tuple[str, ...]  # of the photos, to speak of them

    @property
    def features(self) -> Tensor:
        """Features of the photos, (n, d)."""
        return torch.from_numpy(np.stack([photo.feature for photo in self.photos]))


def seen_shots(name: str, seen: Sequence[SeenPhoto]) -> Shots:
    """Return photos that the backbone has seen as shots of a class."""
    records = tuple(PhotoRecord(one.sha256, one.feature, one.thumbnail, one.original) for one in seen)
    return Shots(name, records, tuple(one.name for one in seen))


def feature_shots(
    name: str,
    rows: Floats,
    *,
    sha256s: Sequence[str] | None,
    thumbnails: Sequence[bytes | None] | None,
    originals: Sequence[bytes | None] | None,
    photos: Sequence[str] | None,
) -> Shots:
    """Return rows of features as shots of a class; digests of the rows stand in for those of photos."""
    n = len(rows)
    given: list[Any] = [
        [hashlib.sha256(number_bytes(row)).hexdigest() for row in rows] if sha256s is None else sha256s,
        rows,
        [None] * n if thumbnails is None else thumbnails,
        [None] * n if originals is None else originals,
        [f"photo {number}" for number in range(1, n + 1)] if photos is None else photos,
    ]
    if any(len(column) != n for column in given):
        raise InputError(f"{n} rows of features, but another number of digests, pictures or names")
    *columns, names = given
    records = tuple(PhotoRecord(*values) for values in zip(*columns, strict=True))
    with QUIET:
        for record, shown in zip(records, names, strict=True):
            _check_photo(record, shown)
    return Shots(name, records, tuple(names))


def _check_photo(photo: PhotoRecord, name: str) -> None:
    """Refuse what could be stored and exported, but not be imported."""
    check_digest(photo.sha256, name)
    if photo.thumbnail is not None:
        check_thumbnail(photo.thumbnail, name)
    if photo.original is not None and not 1 <= len(photo.original) <= MAX_BYTES:
        raise InputError(f"the file of {name} is empty, or larger than {MAX_BYTES:,} bytes")


def checked_features(features: ArrayLike | Tensor, width: int) -> Floats:
    """Return features as finite float32 rows of the model's width."""
    values = features.detach().cpu().numpy() if isinstance(features, Tensor) else np.asarray(features)
    if values.ndim != 2 or not len(values) or values.shape[1] != width or values.dtype.kind not in "fiu":
        raise InputError(
            f"features of shape {values.shape} do not fit this model; give numbers of shape (n, {width})"
        )
    with np.errstate(over="ignore"):
        rows: Floats = np.ascontiguousarray(values, dtype=np.float32)
    if not np.isfinite(rows).all():
        row = int(np.flatnonzero(~np.isfinite(rows).all(axis=1))[0])
        raise InputError(f"the features of row {row} hold NaN or infinity; leave it out")
    return rows


def known_already(known: Sequence[str], *, among: int) -> InputError:
    """Return the error for classes that are known, among those that were to be learned.

    >>> print(known_already(["owl"], among=1))
    there is a class 'owl' already; add photos to it with add=True (--add), or choose another name
    """
    if among == 1:
        return InputError(
            f"there is a class {known[0]!r} already; add photos to it with add=True (--add), "
            "or choose another name"
        )
    listed = some_of([repr(name) for name in known])
    others = "learn only the others with new_only=True (--new-only), or " if len(known) < among else ""
    return InputError(
        f"known already: {len(known):,} of {among:,} classes ({listed}); "
        f"{others}add photos to what is known with add=True (--add)"
    )


def learn_shots(change: Change, shots: Sequence[Shots], *, add: bool) -> list[LearnReport]:
    """Store classes, or more photos of known ones where ``add`` allows it, as one entry of the history."""
    known = [one.name for one in shots if one.name in change.before]
    if known and not add:
        raise known_already(known, among=len(shots))
    reports = _reports(change, shots)
    for one in shots:
        _store(change, one)
    change.record("add" if len(known) == len(shots) else "learn")
    return reports


def _store(change: Change, shots: Shots) -> None:
    """Add photos to a class, or begin one; what a base class gains lies beside the base file."""
    wanted = kept_photos(shots.photos, change.before.manifest.options)
    photos = tuple(replace(photo, added=change.at) for photo in wanted)
    summary = summarize(change.snapshot.embed(shots.features))
    row = change.before.by_name.get(shots.name)
    if row is None:
        record = ClassRecord(
            shots.name, summary, photos, base=shots.name in change.before.base_file, created=change.at
        )
        number = insert_class(change.connection, record, state=change.state).id
        change.done.append(ClassChange("added", shots.name, number, photos=len(photos)))
        return
    before = pack(ClassRecord(row.name, row.summary, base=row.base, id=row.id))
    update_class(change.connection, row.id, row.summary.merge(summary), state=change.state)
    stored = insert_photos(change.connection, row.id, photos)
    change.done.append(
        ClassChange("grown", row.name, row.id, photos=len(photos), first_photo=stored[0].id, before=before)
    )


def _reports(change: Change, shots: Sequence[Shots]) -> list[LearnReport]:
    """Look at each class beside all others, those learned at the same time included."""
    memory, head, known = change.before.memory, change.snapshot.nearby_head, change.before.photos
    if len(shots) == 1:
        return [_report(head, memory, shots[0], known)]
    together = _with(memory, head, shots)
    head = copy(head).adopt(together)
    everything = _joined(known, shots)
    reports, first = [], len(known.labels)
    for one in shots:
        last = first + len(one.photos)
        reports.append(_report(head, _before(together, memory, one.name), one, _left_out(everything, first, last)))
        first = last
    return reports


def _report(head: FewShotHead, memory: Memory, shots: Shots, earlier: KnownPhotos) -> LearnReport:
    digests = [photo.sha256 for photo in shots.photos]
    return inspect_class(
        head, memory, shots.name, shots.features, photos=shots.names, sha256s=digests, earlier=earlier
    )


def _with(memory: Memory, head: FewShotHead, shots: Sequence[Shots]) -> Memory:
    """Return the memory that has learned these too; what is not of the base is new, even the first class."""
    session = ClassStatistics.of({one.name: summarize(head.embed(one.features)) for one in shots})
    of_base = [label for label in python_labels(session.labels) if label in memory.base]
    base = memory.base.merge(session.restrict(of_base)) if of_base else memory.base
    return Memory(base, memory.new.merge(session.drop(of_base)))


def _before(together: Memory, memory: Memory, name: str) -> Memory:
    """Return a memory in which one class is as it was before, or not there, and all others are as they are."""
    if name in memory.base:
        kept = together.base.drop([name]).merge(memory.base.restrict([name]))
        return Memory(kept, together.new)
    new = together.new.drop([name])
    return Memory(together.base, new.merge(memory.new.restrict([name])) if name in memory.new else new)


def _joined(known: KnownPhotos, shots: Sequence[Shots]) -> KnownPhotos:
    labels = tuple(one.name for one in shots for _ in one.photos)
    sha256s = tuple(photo.sha256 for one in shots for photo in one.photos)
    features = torch.cat([known.features, *(one.features for one in shots)])
    return KnownPhotos(known.labels + labels, known.sha256s + sha256s, features)


def _left_out(photos: KnownPhotos, first: int, last: int) -> KnownPhotos:
    return KnownPhotos(
        photos.labels[:first] + photos.labels[last:],
        photos.sha256s[:first] + photos.sha256s[last:],
        torch.cat([photos.features[:first], photos.features[last:]]),
    )
