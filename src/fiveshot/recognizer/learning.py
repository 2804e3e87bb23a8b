"""Learn classes from features: into the database, exactly, with a report of what was seen."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from copy import copy
from dataclasses import replace

import torch

from fiveshot.data.listing import some_of
from fiveshot.errors import InputError
from fiveshot.heads import FewShotHead
from fiveshot.heads.memory import Memory
from fiveshot.recognizer.change import Change
from fiveshot.recognizer.class_record import ClassRecord, kept_photos, pack
from fiveshot.recognizer.conflict import ConflictError
from fiveshot.recognizer.contents import Contents
from fiveshot.recognizer.history import ClassChange
from fiveshot.recognizer.insight import LearnReport, inspect_class
from fiveshot.recognizer.likeness import KnownPhotos
from fiveshot.recognizer.rows import insert_class, insert_photos, update_class
from fiveshot.recognizer.shots import Shots
from fiveshot.statistics import ClassStatistics, summarize


def check_known(contents: Contents, names: Collection[str], *, add: bool) -> list[str]:
    """Return which of the classes are known; that is refused unless ``add`` allows to add photos to them."""
    known = [name for name in names if name in contents]
    if known and not add:
        raise _known_already(known, among=len(names))
    return known


def learn_shots(
    change: Change, shots: Sequence[Shots], *, add: bool, made_by: str | None = None
) -> list[LearnReport]:
    """Store classes, or more photos of known ones where ``add`` allows it, as one entry of the history.

    ``made_by`` is the fingerprint of the runner that made the features, where it is known.
    """
    if made_by is not None and change.before.manifest.backbone.fingerprint != made_by:
        raise ConflictError("the model was tuned meanwhile, so these features do not fit it; learn again")
    known = check_known(change.before, [one.name for one in shots], add=add)
    reports = _reports(change, shots)
    for one in shots:
        _store(change, one)
    change.record("add" if len(known) == len(shots) else "learn")
    return reports


def _known_already(known: Sequence[str], *, among: int) -> InputError:
    """Return the error for classes that are known, among those that were to be learned.

    >>> print(_known_already(["owl"], among=1))
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
    is_first = not len(memory.base) and not len(memory.new)
    return Memory(new=session) if is_first else memory.learn(session)


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
