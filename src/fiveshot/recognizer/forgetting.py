"""Forget, rename, set and undo: changes of what is there, or was."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import ClassVar

from fiveshot.core import ClassStatistics
from fiveshot.core.labels import python_labels
from fiveshot.errors import InputError, StorageError
from fiveshot.recognizer.change import Change, ConflictError
from fiveshot.recognizer.store.history import (
    ClassChange,
    HistoryEntry,
    changes_of,
    drop_erased,
    erase,
    last_to_undo,
    read_entry,
)
from fiveshot.recognizer.store.rows import (
    CHECK,
    ClassRecord,
    class_from_bytes,
    class_to_bytes,
    delete_class,
    delete_photos,
    give_photos,
    hold_photos,
    insert_class,
    photo_summary,
    read_features,
    rename_class,
    return_photos,
    stored_class,
    touched_photos,
)

PAST_FORGET = "what came before is undone with past_forget=True (--past-forget)"


class NotUndoableError(InputError):
    """Raised when the last change that stands left no history to undo it with; ``action`` is what it was.

    Examples
    --------
    >>> import tempfile
    >>> import numpy as np
    >>> from fiveshot.recognizer import NotUndoableError, Recognizer
    >>> with Recognizer.create(tempfile.mkdtemp()) as birds:
    ...     _ = birds.learn_features("owl", np.random.default_rng(0).normal(size=(5, 1664)))
    ...     birds.forget("owl", for_good=True)
    ...     try:
    ...         birds.undo()
    ...     except NotUndoableError as error:
    ...         print(error.action)
    forget
    """

    default_code = "not_undoable"
    REASONS: ClassVar[dict[str, tuple[str, str]]] = {
        "forget": ("the class was erased for good", PAST_FORGET),
        "remove": ("the photos were erased for good", PAST_FORGET),
        "retune": ("the photos' features were recomputed", "go back to an exported copy of the model"),
    }

    def __init__(self, action: str) -> None:
        reason, hint = self.REASONS.get(action, ("it left no history", ""))
        super().__init__(f"the last change, {action}, cannot be undone: {reason}", hint=hint)
        self.action = action


def forget_class(change: Change, name: str, *, for_good: bool) -> None:
    """Remove a class from the database and the base file; for good, from every byte of the folder."""
    if not for_good:
        change.require(name)
        change.done += _held(change, name)
        seq, row = change.record("forget"), change.before.by_name.get(name)
        if row is not None:
            hold_photos(change.connection, row.id, seq)
        _remove(change, name)
        return
    if not erase(change.connection, name, map(str, change.before.base_file.labels)):
        change.require(name)
    _remove(change, name)
    drop_erased(change.connection)
    change.erases = True
    change.record("forget", undoable=False)


def rename(change: Change, old: str, new: str) -> None:
    """Give a class another name."""
    change.require(old)
    if new == old:
        raise InputError(f"the class is called {old!r} already", hint="give it another name")
    change.require_free(new)
    rename_all(change, {old: new})


def rename_all(change: Change, names: Mapping[str, str]) -> None:
    """Give classes other names, by their present ones; all of these are free."""
    for old, new in names.items():
        _rename(change, old, new)
    change.record("rename")


def set_options(change: Change, *, false_rejection: float) -> None:
    """Change what the owner of the model chose."""
    before = change.before.manifest
    options = replace(before.options, false_rejection=false_rejection)
    detail = {"false_rejection": options.false_rejection, "before": before.options.false_rejection}
    change.manifest = replace(before, options=options)
    change.record("set", detail=detail)


def undo_last(change: Change, *, past_forget: bool, state: int | None) -> HistoryEntry:
    """Take back the last change that stands, and note that in the history; with ``state``, only in that state."""
    if state is not None and change.before.state != state:
        raise ConflictError(
            f"the model was changed since state {state}, it is in state {change.before.state} now",
            hint="nothing was taken back: look at it again first",
        )
    found = last_to_undo(change.connection, past_forget=past_forget)
    if found is None:
        raise InputError(
            "there is nothing to undo: the history holds no change that stands", code="nothing_to_undo"
        )
    seq, action, undoable = found
    if not undoable:
        raise NotUndoableError(action)
    entry = read_entry(change.connection, seq)
    change.connection.execute("PRAGMA defer_foreign_keys = ON")  # photos may come back before their class
    changed = {number for one in reversed(changes_of(change.connection, seq)) for number in _revert(change, one)}
    change.restate(changed)
    if action == "keep":
        kept = [(photo, entry.detail["finding"]) for photo in entry.detail["photos"]]
        change.connection.executemany("DELETE FROM kept WHERE photo_id = ? AND finding = ?", kept)
    if action == "set":
        options = replace(change.before.manifest.options, false_rejection=entry.detail["before"])
        change.manifest = replace(change.before.manifest, options=options)
    undo = change.record("undo", undoable=False, detail={"undid": seq, "action": action})
    change.connection.execute("UPDATE history SET undone_by = ? WHERE seq = ?", (undo, seq))
    return entry


def _held(change: Change, name: str) -> Iterator[ClassChange]:
    """Return what it takes to bring a class back."""
    row = change.before.by_name.get(name)
    if row is not None:
        created = stored_class(change.connection, row.id).created
        yield ClassChange("removed", name, row.id, photos=row.summary.count, created=created)
    if name in change.base_file:
        summary = change.base_file[name]
        yield ClassChange(
            "removed", name, base=True, photos=summary.count, before=class_to_bytes(ClassRecord(name, summary))
        )


def _remove(change: Change, name: str) -> None:
    row = change.before.by_name.get(name)
    if row is not None:
        delete_class(change.connection, row.id)
    if name in change.base_file:
        change.base = change.base_file.drop([name])


def _rename(change: Change, old: str, new: str) -> None:
    row = change.before.by_name.get(old)
    if row is not None:
        rename_class(change.connection, row.id, new, state=change.state)
        change.done.append(ClassChange("renamed", new, row.id, old_name=old))
    if old in change.base_file:
        change.base = _renamed(change.base_file, old, new)
        change.done.append(ClassChange("renamed", new, base=True, old_name=old))


def _revert(change: Change, done: ClassChange) -> list[int]:
    """Take back what was done to one class; return the stored classes whose photos are others now."""
    if done.base:
        record = class_from_bytes(done.before) if done.before is not None else None
        change.base = _base_before(change.base_file, done, record)
        return []
    if done.class_id is None or done.id is None:
        raise StorageError("an entry of the history is incomplete", hint=CHECK)
    connection, number = change.connection, done.class_id
    if done.kind == "added":
        delete_class(connection, number)
        return []
    if done.kind == "renamed":
        rename_class(connection, number, str(done.old_name), state=change.state)
        return []
    if done.kind == "grown":
        delete_photos(connection, touched_photos(connection, done.id))
    elif done.kind == "left":
        give_photos(connection, number, touched_photos(connection, done.id))
    elif done.kind in ("reduced", "removed") and return_photos(connection, done.id, number) != done.photos:
        raise StorageError("an entry of the history lacks photos of the class", hint=CHECK)
    if done.kind == "removed":
        _put_back(change, done, number)
    return [number]


def _put_back(change: Change, done: ClassChange, number: int) -> None:
    """Store a class again that was removed; its photos are there."""
    photos = read_features(change.connection, change.before.width, [number]).get(number)
    if photos is None:  # all of them were erased meanwhile
        return
    summary = photo_summary(change.snapshot.embed, photos.features)
    of_base = done.name in change.base_file
    record = ClassRecord(done.name, summary, base=of_base, created=done.created or change.at, id=number)
    insert_class(change.connection, record, state=change.state)


def _base_before(base: ClassStatistics, done: ClassChange, record: ClassRecord | None) -> ClassStatistics:
    if record is not None:
        return base.merge(ClassStatistics.of({record.name: record.summary}))
    return _renamed(base, done.name, str(done.old_name))


def _renamed(base: ClassStatistics, old: str, new: str) -> ClassStatistics:
    summaries = dict(zip(python_labels(base.labels), base.summaries, strict=True))
    summaries[new] = summaries.pop(old)
    return ClassStatistics.of(summaries)
