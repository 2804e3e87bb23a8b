"""Change what was learned: remove, move and correct photos, forget and rename classes."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from fiveshot.core import ClassStatistics
from fiveshot.core.labels import python_labels
from fiveshot.errors import InputError, command, counted, some_of
from fiveshot.recognizer._learning import require_backbone, store_photos
from fiveshot.recognizer.change import Change, ConflictError
from fiveshot.recognizer.names import NONE
from fiveshot.recognizer.recognition.levels import levels_of
from fiveshot.recognizer.store.contents import Contents, StoredClass
from fiveshot.recognizer.store.history import (
    ClassChange,
    drop_erased,
    erase,
)
from fiveshot.recognizer.store.rows import (
    ClassRecord,
    PhotoRecord,
    decide,
    photo_id,
    read_kept,
    summary_to_bytes,
)
from fiveshot.recognizer.store.sightings import (
    drop_erased_sightings,
    erase_sighting_names,
    name_only,
)
from fiveshot.values import PhotoChange

if TYPE_CHECKING:
    from fiveshot.data import Photo

ID = re.compile(r"p?([1-9][0-9]{0,17})")
NO_PHOTO = "list the ids of a class with: fiveshot show MODEL NAME"
BY_HAND = "by hand"  # stored instead of a finding: a user has moved or corrected the photo


def is_photo_id(text: str) -> bool:
    """Return whether a text is the id of a photo, or the number in an id.

    >>> is_photo_id("p17"), is_photo_id("17"), is_photo_id("owl.jpg")
    (True, True, False)
    """
    return ID.fullmatch(text) is not None


def remove_photos(change: Change, ids: str | Iterable[str], *, of: str | None, for_good: bool) -> PhotoChange:
    """Remove photos from their classes. ``for_good`` erases all traces, also of photos removed earlier."""
    numbers = photo_numbers(ids, change.before)
    found = _photos_by_class(change, numbers, of=of, removed_too=for_good)
    _refuse_last(found)
    if for_good:
        change.tables.delete_photos(numbers)
        change.restate(row.id for row in found)
        drop_erased(change.connection)
        drop_erased_sightings(change.connection)
        change.erases = True
    else:
        for row, own in found.items():
            change.lose(row, own)
    change.record("remove", undoable=not for_good)
    counts = {row.name: row.total.count - len(own) for row, own in found.items()}
    return PhotoChange("remove", tuple(map(photo_id, numbers)), counts)


def move_photos(change: Change, ids: str | Iterable[str], to: str, *, of: str | None) -> PhotoChange:
    """Move photos to another class, known or new. A class without photos is deleted."""
    numbers = photo_numbers(ids, change.before)
    found = _photos_by_class(change, numbers, of=of)
    counts = move_to_class(change, found, to)
    change.record("move")
    _decide(change, numbers)
    return PhotoChange("move", tuple(map(photo_id, numbers)), counts)


def join_class(change: Change, name: str, to: str) -> PhotoChange:
    """Move all photos of a class to another known class, and delete the first."""
    for one in (name, to):
        if one not in change.before:
            hint = "use rename to give a class a new name; nothing was changed"
            raise InputError(f"there is no class {one!r}", hint=hint, code="no_class")
    if name == to:
        raise InputError(f"{name!r} cannot be joined with itself", hint="name two classes", code="same_class")
    if name in change.before.base_file:
        other = "" if to in change.before.base_file else f"; join {to!r} with it instead"
        raise InputError(
            f"{name!r} is a base class; photos of base classes are not stored, so it cannot move",
            hint=f"nothing was changed{other}",
            code="base_photos",
        )
    row = change.before.by_name[name]
    counts = move_to_class(change, {row: list(row.photos.ids)}, to)
    change.record("move")
    return PhotoChange("move", tuple(map(photo_id, row.photos.ids)), counts)


def apply_changes(change: Change, by_target: Mapping[str | None, Iterable[str]]) -> PhotoChange:
    """Move photos to the given classes, or remove them for None, as one entry of the history."""
    wanted = {to: photo_numbers(ids, change.before) for to, ids in by_target.items()}
    leaving = {to: _photos_by_class(change, numbers, of=None) for to, numbers in wanted.items()}
    lost = defaultdict[StoredClass, list[int]](list)
    for part in leaving.values():
        for row, own in part.items():
            lost[row] += own
    _refuse_last(lost, of_base=True)
    counts = {row.name: row.total.count - len(own) for row, own in lost.items()}
    for to, part in leaving.items():
        if to is not None:
            move_to_class(change, part, to)
            counts[to] = counts.get(to, _count(change, to)) + len(wanted[to])
            continue
        for row, own in part.items():
            change.lose(row, own)
    change.record("review")
    numbers = [number for own in wanted.values() for number in own]
    _decide(change, numbers)
    return PhotoChange("review", tuple(map(photo_id, numbers)), counts)


def require_class(change: Change, photo: str, name: str) -> None:
    """Refuse a photo that is no longer in the class."""
    _photos_by_class(change, photo_numbers(photo, change.before), of=name)


def keep_photos(change: Change, ids: str | Iterable[str], finding: str) -> PhotoChange:
    """Remember to keep photos: a review does not suggest them again until their class changes much."""
    numbers = photo_numbers(ids, change.before)
    known = read_kept(change.connection)
    fresh = [number for number in numbers if number not in known]
    for row, own in _photos_by_class(change, numbers, of=None).items():
        decide(change.connection, row.id, [number for number in own if number in fresh], finding)
    change.record("keep", detail={"photos": fresh, "finding": finding})
    return PhotoChange("keep", tuple(map(photo_id, numbers)), {})


def _decide(change: Change, numbers: Iterable[int]) -> None:
    """Note that a user has confirmed the present class of photos."""
    by_class = defaultdict[int, list[int]](list)
    for number in numbers:
        place = change.tables.find_photo(number)
        if place is not None and place[0] is not None:
            by_class[place[0]].append(number)
    for class_id, own in by_class.items():
        decide(change.connection, class_id, own, BY_HAND)


def move_to_class(
    change: Change, found: Mapping[StoredClass, list[int]], to: str, *, begun: int | None = None
) -> dict[str, int]:
    """Move photos, given by class, to another class; return the number of photos of each class afterwards.

    ``begun`` is the number of the target class if this change created it.
    """
    target = change.before.named.get(to)
    if target is not None and target in found:
        there = some_of([photo_id(number) for number in found[target]])
        raise InputError(
            f"{there} {'is' if len(found[target]) == 1 else 'are'} in {to!r} already",
            hint="leave it out; nothing was moved",
            code="same_class",
        )
    numbers = [number for own in found.values() for number in own]
    if to == NONE:
        require_classes(change)
    class_id = begun if target is None else target.id
    if class_id is None:
        first = next(iter(found))  # a placeholder until the statistics of the photos are computed
        record = ClassRecord(to, first.summary, base=to in change.before.base_file, created=change.at)
        class_id = change.tables.insert_class(record).id
        change.done.append(ClassChange("added", to, class_id))
    assert class_id is not None
    change.done.append(ClassChange("came", to, class_id, photos=len(numbers)))
    for row, own in found.items():
        change.lose(row, own, to_another=True)
    change.tables.give_photos(class_id, numbers)
    counts = {row.name: row.total.count - len(own) for row, own in found.items()}
    return counts | {to: _count(change, to) + len(numbers)}


def require_classes(change: Change) -> None:
    """Refuse photos of no class as long as the model has no class."""
    if not len(change.before.memory.labels):
        raise InputError(
            "the model knows no class yet, so it cannot learn photos that show no class",
            hint="teach it one first",
            code="no_classes",
        )


def correct_photos(change: Change, seen: Sequence[PhotoRecord], name: str, *, made_by: str | None) -> PhotoChange:
    """Learn what photos show, or that they show none of the classes.

    New photos are learned. Photos of another class are moved. Photos that are already right stay.
    """
    require_backbone(change, made_by)
    return correct_by_name(change, {name: seen})


def correct_by_name(change: Change, wanted: Mapping[str, Sequence[PhotoRecord]]) -> PhotoChange:
    """Do the same for several classes, as one entry of the history."""
    _refuse_two_names(wanted)
    if NONE in wanted:
        require_classes(change)
    lost = defaultdict[StoredClass, list[int]](list)
    there, learned, gained = list[int](), list[int](), Counter[str]()
    for name, seen in wanted.items():
        own, elsewhere, fresh = _places(change, seen, name)
        ids = list(store_photos(change, name, fresh)) if fresh else []
        if elsewhere:
            move_to_class(change, elsewhere, name, begun=change.done[-1].class_id if fresh else None)
        for row, moving in elsewhere.items():
            lost[row] += moving
        moved = [number for moving in elsewhere.values() for number in moving]
        there += own
        learned += [*moved, *ids]
        gained[name] = len(moved) + len(ids)
    if len(wanted) > 1:
        _refuse_last(lost, of_base=True)
    gained.subtract({row.name: len(own) for row, own in lost.items()})
    counts = {name: _count(change, name) + gained[name] for name in [*(row.name for row in lost), *wanted]}
    action = "none" if set(wanted) == {NONE} else "correct"
    if learned:
        change.record(action)
    _decide(change, learned)
    return PhotoChange(action, tuple(map(photo_id, [*there, *learned])), counts)


def _places(
    change: Change, seen: Sequence[PhotoRecord], name: str
) -> tuple[list[int], dict[StoredClass, list[int]], list[PhotoRecord]]:
    """Return which photos a class has already, which ones other classes have, and which were not learned."""
    shown = {photo.sha256: photo for photo in seen}
    target, learned = change.before.named.get(name), set[str]()
    elsewhere, there = dict[StoredClass, list[int]](), list[int]()
    for row in change.before.rows.values():
        own = row.numbers_of(shown)
        learned |= set(row.sha256s) & shown.keys()
        if row is target:
            there = own
        elif own:
            elsewhere[row] = own
    return there, elsewhere, [photo for sha256, photo in shown.items() if sha256 not in learned]


def _refuse_two_names(wanted: Mapping[str, Sequence[PhotoRecord]]) -> None:
    names = dict[str, str]()
    for name, seen in wanted.items():
        for photo in seen:
            if names.setdefault(photo.sha256, name) != name:
                raise InputError(
                    f"{photo.name} is one photo, and cannot be {names[photo.sha256]!r} and {name!r}",
                    hint="give it one name; nothing was changed",
                    code="two_names",
                )


def _count(change: Change, name: str) -> int:
    row = change.before.named.get(name)
    if name == NONE:
        return 0 if row is None else len(row.photos.ids)
    return change.before.memory.statistics[name].count if name in change.before else 0


def photo_numbers(ids: str | Iterable[str], contents: Contents) -> list[int]:
    """Return the numbers in ids such as ``p17``, each once. A file name that only one photo has stands for it."""
    given = [ids] if isinstance(ids, str) else list(ids)
    if not given:
        raise InputError("no photos were named", hint=NO_PHOTO, code="no_photos")
    return list(dict.fromkeys(_number(one, contents) for one in given))


def ids_of(photos: Iterable[Photo], contents: Contents) -> list[str]:
    """Return the ids of the photos that were learned from these files. A file that was not learned is refused."""
    by_digest = defaultdict[str, list[str]](list)
    for row in contents.rows.values():
        for number, sha256 in zip(row.photos.ids, row.sha256s, strict=True):
            by_digest[sha256].append(photo_id(number))
    ids = list[str]()
    for photo in photos:
        if photo.sha256 not in by_digest:
            raise InputError(
                f"{photo.name} was never learned",
                hint=f"a file that was changed is a different photo; {NO_PHOTO}",
                code="no_photo",
            )
        ids += by_digest[photo.sha256]
    return list(dict.fromkeys(ids))


def _number(given: object, contents: Contents) -> int:
    match = ID.fullmatch(given.strip().lower()) if isinstance(given, str) else None
    if match is not None:
        return int(match[1])
    named = [
        number
        for row in contents.rows.values()
        for number, name in zip(row.photos.ids, row.photos.names, strict=True)
        if name is not None and name == given
    ]
    if len(named) == 1:
        return named[0]
    if named:
        raise InputError(
            f"{counted(len(named), 'photo')} are called {given!r}: {some_of([photo_id(one) for one in named])}",
            hint="give ids instead",
            code="several_photos",
        )
    if given in contents.base_file:
        raise InputError(
            f"{given!r} is a base class; photos of base classes are not stored, so they cannot be removed",
            hint="forget the class, or make a new model from other photos",
            code="base_photos",
        )
    hint = f"{NO_PHOTO}; use forget to remove a class" if given in contents else NO_PHOTO
    raise InputError(
        f"{given!r:.80} is neither the id of a photo, such as p17, nor the name of its file",
        hint=hint,
        code="bad_id",
    )


def _photos_by_class(
    change: Change, numbers: Iterable[int], *, of: str | None, removed_too: bool = False
) -> dict[StoredClass, list[int]]:
    """Return photos by class. ``of`` is the class that the caller expects all of them to be in."""
    found = defaultdict[StoredClass, list[int]](list)
    for number in numbers:
        place = change.tables.find_photo(number)
        if place is None or (place[0] is None and not removed_too):
            raise _no_photo(number, was_removed=place is not None)
        if place[0] is None:
            continue
        row = change.before.rows[place[0]]
        if of is not None and row.name != of:
            raise ConflictError(
                f"{photo_id(number)} is a photo of {row.name!r}, not of {of!r}",
                hint="it may have been moved in the meantime; nothing was changed: check it first",
                code="other_class",
            )
        found[row].append(number)
    return dict(found)


def _no_photo(number: int, *, was_removed: bool) -> InputError:
    shown = photo_id(number)
    if was_removed:
        return InputError(
            f"{shown} was removed already", hint="undo brings it back; nothing was done", code="removed_photo"
        )
    return InputError(f"there is no photo {shown} in this model", hint=NO_PHOTO, code="no_photo")


def _refuse_last(found: Mapping[StoredClass, list[int]], *, of_base: bool = False) -> None:
    for row, own in found.items():
        if (of_base or not row.base) and row.name != NONE and len(own) == len(row.photos.ids):
            raise InputError(
                f"{row.name!r} would have no photos left",
                hint="forget the class instead",
                code="last_photo",
            )


def forget_class(change: Change, name: str, *, for_good: bool) -> None:
    """Remove a class from the database and the base file. ``for_good`` erases all traces in the folder."""
    row, of_base = change.before.by_name.get(name), name in change.base_file
    erased = for_good and erase(change.connection, name, map(str, change.before.base_file.labels))
    if not erased:
        change.before.require(name)
    if for_good:
        if row is not None:
            change.tables.delete_class(row.id)
        drop_erased(change.connection)
        drop_erased_sightings(change.connection)
        left = {level for one in change.before.memory.labels if one != name for level in levels_of(str(one))}
        name_only(change.connection, left.__contains__)
        change.erases = True
    else:
        if row is not None:
            change.lose(row, row.photos.ids)
        if of_base:
            summary = change.base_file[name]
            packed = summary_to_bytes(summary)
            change.done.append(ClassChange("removed", name, base=True, photos=summary.count, before=packed))
    if of_base:
        change.base = change.base_file.drop([name])
    change.record("forget", undoable=not for_good)


def rename(change: Change, old: str, new: str) -> None:
    """Give a class another name."""
    change.before.require(old)
    if new == old:
        raise InputError(f"the class is called {old!r} already", hint="give it another name")
    if new in change.before:
        join = command("move", change.folder, "--all-of", old, "--to", new)
        raise InputError(
            f"there is a class {new!r} already",
            hint=f"choose another name, or join the two: {join}",
            code="known_class",
        )
    rename_all(change, {old: new})


def rename_all(change: Change, names: Mapping[str, str]) -> None:
    """Rename classes: new names by present names. All new names are free."""
    for old, new in names.items():
        row = change.before.by_name.get(old)
        if row is not None:
            change.tables.rename_class(row.id, new)
            change.done.append(ClassChange("renamed", new, row.id, old_name=old))
        if old in change.base_file:
            change.base = with_renamed(change.base_file, old, new)
            change.done.append(ClassChange("renamed", new, base=True, old_name=old))
    change.record("rename")


def set_options(change: Change, **wanted: float | bool | None) -> None:
    """Change the options that are not None. ``names=False`` erases the names that were kept."""
    given: dict[str, Any] = {name: value for name, value in wanted.items() if value is not None}
    if not given:
        raise InputError("no setting was given", hint=f"give one of {', '.join(sorted(wanted))}")
    before = change.before.manifest
    options = replace(before.options, **given)
    change.manifest = replace(before, options=options)
    change.erases = before.options.names and not options.names
    if change.erases:
        change.tables.erase_names()
        erase_sighting_names(change.connection)
    detail = {
        "options": {name: getattr(options, name) for name in given},
        "before": {name: getattr(before.options, name) for name in given},
    }
    change.record("set", undoable=not change.erases, detail=detail)


def with_renamed(base: ClassStatistics, old: str, new: str) -> ClassStatistics:
    """Return statistics of a base in which a class has another name."""
    summaries = dict(zip(python_labels(base.labels), base.summaries, strict=True))
    summaries[new] = summaries.pop(old)
    return ClassStatistics.of(summaries)
