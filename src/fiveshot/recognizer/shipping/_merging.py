"""Merge models that started from the same base and learned on different machines."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from fiveshot.errors import InputError, some_of
from fiveshot.recognizer._learning import store_photos
from fiveshot.recognizer.change import Change
from fiveshot.recognizer.names import NONE, check_name
from fiveshot.recognizer.shipping._portable import import_model
from fiveshot.recognizer.store.contents import Contents, StoredClass, read_contents, same_bits
from fiveshot.recognizer.store.folder import ModelFolder
from fiveshot.recognizer.store.history import ClassChange
from fiveshot.recognizer.store.manifest import Manifest
from fiveshot.recognizer.store.rows import PhotoRecord, Tables, kept_photos


@dataclass(frozen=True)
class MergeReport:
    """What came from the other model.

    Attributes
    ----------
    added : tuple of str
        New classes.
    same : tuple of str
        Classes that both models had, with identical statistics.
    photos : int
        Photos of the new classes.
    negatives : int
        New photos of none of the classes.

    Examples
    --------
    >>> import tempfile
    >>> import numpy as np
    >>> from fiveshot import Recognizer
    >>> owls = np.random.default_rng(0).normal(size=(5, 320))
    >>> with Recognizer.create(tempfile.mkdtemp()) as here, Recognizer.create(tempfile.mkdtemp()) as there:
    ...     _ = there.learn_features("owl", owls)
    ...     here.merge(there.path), here.merge(there.path).same
    (MergeReport(added=('owl',), same=(), photos=5, negatives=0), ('owl',))
    """

    added: tuple[str, ...]
    same: tuple[str, ...]
    photos: int
    negatives: int = 0


@dataclass(frozen=True, eq=False)
class OtherModel:
    """Another model in one state, with the tables of its classes."""

    path: Path
    contents: Contents
    tables: Tables


@contextmanager
def other_model(path: Path) -> Iterator[OtherModel]:
    """Open another model or an exported file for reading; its state is fixed while it is open."""
    with ExitStack() as held:
        if path.is_file():
            unpacked = Path(held.enter_context(tempfile.TemporaryDirectory())) / "model"
            import_model(path, unpacked)
            path = unpacked
        folder = held.enter_context(closing(ModelFolder(path, readonly=True)))
        connection = held.enter_context(folder.reading())
        contents = read_contents(connection, path, None)
        yield OtherModel(path, contents, Tables(connection, contents.width))


def merge_classes(change: Change, other: OtherModel) -> MergeReport:
    """Add the classes of another model with their exact statistics; raise an error if they do not fit."""
    before = change.before
    _refuse_other_origin(before.manifest, other)
    rows = sorted(other.contents.classes.values(), key=lambda row: row.name)
    same = [row for row in rows if row.name in before.by_name and _equal(before.by_name[row.name], row)]
    names = {row.name for row in same}
    fresh = [row for row in rows if row.name not in names]
    for row in fresh:
        check_name(row.name)  # another release may have allowed more names
    _refuse_conflicts(before, fresh, other.path)
    photos = 0
    for row in fresh:
        theirs = other.tables.read_class(row.id, originals=before.manifest.options.keep_photos)
        photos_here = kept_photos(theirs.photos, before.manifest.options)
        record = replace(theirs, id=None, photos=tuple(replace(photo, id=None) for photo in photos_here))
        number = change.tables.insert_class(record).id
        change.done.append(ClassChange("added", record.name, number, photos=len(record.photos)))
        photos += len(record.photos)
    negatives = _further_negatives(before, other, fresh)
    if negatives:
        store_photos(change, NONE, negatives)
    if fresh or negatives:
        change.record("merge")
    return MergeReport(tuple(row.name for row in fresh), tuple(row.name for row in same), photos, len(negatives))


def _further_negatives(before: Contents, other: OtherModel, fresh: Sequence[StoredClass]) -> list[PhotoRecord]:
    """Return the other model's photos of none of the classes that this model does not know."""
    theirs = other.contents.negatives
    if theirs is None:
        return []
    known = {sha256 for row in [*before.rows.values(), *fresh] for sha256 in row.sha256s}
    photos = other.tables.read_class(theirs.id, originals=before.manifest.options.keep_photos).photos
    return [replace(photo, id=None) for photo in photos if photo.sha256 not in known]


def _refuse_other_origin(ours: Manifest, other: OtherModel) -> None:
    theirs = other.contents.manifest
    if ours.backbone.fingerprint != theirs.backbone.fingerprint:
        raise InputError(
            f"cannot merge {other.path}: its features are made by another backbone or adapter "
            f"({theirs.backbone.name}, fingerprint {theirs.backbone.fingerprint[:12]}; here {ours.backbone.name}, "
            f"{ours.backbone.fingerprint[:12]})",
            hint="learn its photos here instead",
        )
    if ours.base.origin != theirs.base.origin:
        here, there = (_base_in_words(one) for one in (ours, theirs))
        raise InputError(
            f"cannot merge {other.path}: it began with {there}, and the model here with {here}",
            hint="only models that began with the same base can be merged",
        )
    if ours.head != theirs.head:
        raise InputError(
            f"cannot merge {other.path}: its head {theirs.head.name!r} keeps other statistics than the one here, "
            f"{ours.head.name!r} (kind, parameters or settings differ)",
            hint="learn its photos here instead",
        )


def _refuse_conflicts(before: Contents, rows: list[StoredClass], path: Path) -> None:
    taken = [row.name for row in rows if row.name in before and (not row.base or row.name in before.by_name)]
    lost = [row.name for row in rows if row.base and row.name not in before.base_file]
    if lost:
        raise InputError(
            f"cannot merge {path}: photos were added there to the base class {lost[0]!r}, "
            "which was forgotten or renamed here",
            hint="undo that in one of the two models",
        )
    if taken:
        shown = some_of([repr(name) for name in taken])
        raise InputError(
            f"cannot merge {path}: {len(taken)} of its classes have names that are taken here by classes with "
            f"other photos: {shown}",
            hint="rename them in one of the two models, or forget them in one",
        )


def _base_in_words(manifest: Manifest) -> str:
    base = manifest.base
    return f"another base ({base.classes} classes, {base.origin[:12]})" if base.origin else "no base"


def _equal(ours: StoredClass, theirs: StoredClass) -> bool:
    return (
        ours.base == theirs.base
        and ours.sha256s == theirs.sha256s
        and same_bits(ours.summary, theirs.summary)
        and np.array_equal(ours.features, theirs.features)
    )
