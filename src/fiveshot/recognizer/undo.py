"""Undo the last change of a model, from the history in its database."""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

from fiveshot.core import ClassStatistics
from fiveshot.errors import InputError, StorageError
from fiveshot.recognizer.change import Change, ConflictError
from fiveshot.recognizer.correction import with_renamed
from fiveshot.recognizer.store.history import ClassChange, changes_of, last_to_undo
from fiveshot.recognizer.store.rows import CHECK, ClassRecord, photo_summary, read_features, summary_from_bytes
from fiveshot.recognizer.store.sightings import show_again
from fiveshot.values import HistoryEntry

PAST_FORGET = "to undo the change before it, use past_forget=True (--past-forget)"


class NotUndoableError(InputError):
    """Raised when the last change cannot be undone; ``action`` names the change.

    Examples
    --------
    >>> import tempfile
    >>> import numpy as np
    >>> from fiveshot.recognizer import NotUndoableError, Recognizer
    >>> with Recognizer.create(tempfile.mkdtemp()) as birds:
    ...     _ = birds.learn_features("owl", np.random.default_rng(0).normal(size=(5, 320)))
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
        "set": ("the names of photos were erased for good", PAST_FORGET),
        "retune": ("the photos' features were recomputed", "go back to an exported copy of the model"),
    }

    def __init__(self, action: str) -> None:
        reason, hint = self.REASONS.get(action, ("the history does not hold it", ""))
        super().__init__(f"the last change, {action}, cannot be undone: {reason}", hint=hint)
        self.action = action


def undo_last(change: Change, *, past_forget: bool, state: int | None) -> HistoryEntry:
    """Undo the last change that was not undone yet, and note it in the history. With ``state``, only in that
    state."""
    if state is not None and change.before.state != state:
        raise ConflictError(
            f"the model was changed since state {state}, it is in state {change.before.state} now",
            hint="nothing was undone: look at the model first",
        )
    entry = last_to_undo(change.connection, past_forget=past_forget)
    if entry is None:
        raise InputError("there is nothing to undo", code="nothing_to_undo")
    seq, action = entry.seq, entry.action
    if not entry.undoable:
        raise NotUndoableError(action)
    change.connection.execute("PRAGMA defer_foreign_keys = ON")  # photos may come back before their class
    changed = {number for one in reversed(changes_of(change.connection, seq)) for number in _revert(change, one)}
    change.restate(changed)
    show_again(change.connection, seq)
    if action == "keep":
        kept = [(photo, entry.detail["finding"]) for photo in entry.detail["photos"]]
        change.connection.executemany("DELETE FROM kept WHERE photo_id = ? AND finding = ?", kept)
    if action == "set":
        options = replace(change.before.manifest.options, **entry.detail["before"])
        change.manifest = replace(change.before.manifest, options=options)
    undo = change.record("undo", undoable=False, detail={"undid": seq, "action": action})
    change.connection.execute("UPDATE history SET undone_by = ? WHERE seq = ?", (undo, seq))
    return entry


def _revert(change: Change, done: ClassChange) -> list[int]:
    """Undo the change of one class; return the numbers of the classes whose photos changed."""
    if done.base:
        if done.before is None:
            change.base = with_renamed(change.base_file, done.name, str(done.old_name))
        else:
            back = {done.name: summary_from_bytes(done.photos, done.before)}
            change.base = change.base_file.merge(ClassStatistics.of(back))
        return []
    if done.class_id is None or done.id is None:
        raise StorageError("an entry of the history is incomplete", hint=CHECK)
    tables, number = change.tables, done.class_id
    if done.kind == "added":
        tables.delete_class(number)
        return []
    if done.kind == "renamed":
        tables.rename_class(number, str(done.old_name))
        return []
    if done.kind == "grown":
        tables.delete_photos(done.touched)
    elif done.kind == "left":
        tables.give_photos(number, done.touched)
    elif done.kind == "reduced" and tables.return_photos(done.id, number) != done.photos:
        raise StorageError("an entry of the history lacks photos of the class", hint=CHECK)
    elif done.kind == "removed":
        _put_back(change, done, number)
    return [number]


def _put_back(change: Change, done: ClassChange, number: int) -> None:
    """Restore a removed class whose photos are still stored."""
    photos = read_features(change.connection, change.before.width, [number]).get(number)
    if photos is None:  # all of them were erased in the meantime
        return
    summary = photo_summary(change.snapshot.embed, photos.features)
    of_base = done.name in change.base_file
    record = ClassRecord(done.name, summary, base=of_base, created=done.created or change.at, id=number)
    change.tables.insert_class(record)
