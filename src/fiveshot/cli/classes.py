"""``fiveshot learn``, ``forget``, ``rename``, ``correct``, ``undo`` and others: change classes and photos."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from typer import Argument, Option

from fiveshot.cli import completion, options
from fiveshot.cli.output import CommandOutput, answering, answering_with, image_bar, percent, status
from fiveshot.cli.photos import (
    BY_NESTED,
    note_classes_left_out,
    note_no_rejection,
    note_others,
    parts_asked,
    parts_of_classes,
    refuse_bad,
    total,
)
from fiveshot.errors import InputError, command, counted, some_of
from fiveshot.recognizer import NONE, similar_name
from fiveshot.values import to_json

if TYPE_CHECKING:
    from fiveshot.data import Photo
    from fiveshot.recognizer import Recognizer
    from fiveshot.values import HistoryEntry, LearnReport, PhotoChange

LISTED = 20  # up to this number of classes are listed; of more, only those with warnings

Name = Annotated[str, Argument(metavar="NAME", help="Name of the class.", autocompletion=completion.classes)]
Ids = Annotated[
    list[str],
    Argument(
        metavar="ID", help="Photos: ids such as p17 or file names (see 'fiveshot show MODEL NAME'), or the files."
    ),
]
MovedIds = Annotated[
    list[str] | None,
    Argument(metavar="ID", help="Photos: ids such as p17, file names, or the files that were learned."),
]
Of = Annotated[
    str | None,
    Option(
        "--of",
        metavar="NAME",
        help="Do nothing unless the photos are in this class.",
        autocompletion=completion.classes,
    ),
]


def learn(
    model: options.Model,
    name: Annotated[
        str,
        Argument(
            metavar="NAME|FOLDER",
            help="Class, or folder of class folders.",
            autocompletion=completion.classes_to_add_to,
        ),
    ],
    photos: Annotated[
        list[str] | None,
        Argument(metavar="[PHOTOS]...", help="Files, folders, patterns, or - for standard input."),
    ] = None,
    add: Annotated[bool, Option("--add", help="Add the photos to a known class.")] = False,
    new_only: Annotated[bool, Option("--new-only", help="Skip known classes of the folder.")] = False,
    none: Annotated[bool, Option("--none", help="Photos of none of the classes; no NAME.")] = False,
    nested: options.Nested = False,
    box: options.InBox = None,
    confidence: options.Confidence = 0.2,
    device: options.Device = "auto",
    runtime: options.Runtime = "auto",
    weights: options.Weights = None,
    as_json: options.AsJson = False,
) -> None:
    """Learn a class from about five photos, or all classes in a folder.

    Example: fiveshot learn birds owl photos/owl

    Example: fiveshot learn birds photos
    """
    with answering("learn", model, as_json=as_json) as answer:
        if none and (add or new_only or nested):
            raise InputError("--none excludes --add, --new-only and --nested", hint="leave them out")
        found = (
            {NONE: found_photos(answer, [options.at_home(name), *(photos or [])])}
            if none
            else _classes(answer, name, photos, nested)
        )
        classes, bad = parts_of_classes(answer, found, parts_asked(box, confidence))
        refuse_bad(bad)
        count = total(classes)
        opened = answer.open_model(device=device, runtime=runtime, weights=weights)
        with opened as recognizer, image_bar(f"looking at {counted(count, 'photo')}") as progress:
            if none:
                done = recognizer.correct(classes[NONE], NONE, progress=progress)
                answer.result = to_json(done)
                tell_counts(answer, done)
                return
            known = recognizer.snapshot.classes
            reports = recognizer.learn_many(classes, add=add, new_only=new_only, progress=progress)
        if add and photos:  # otherwise a new name is expected
            note_misspelled(answer, classes, known, model)
        learned = {report.name for report in reports}
        passed_over = [known for known in classes if known not in learned]
        answer.result = {"classes": to_json(reports), "passed_over": passed_over}
        _tell(answer, reports)
        if passed_over:
            answer.say(f"skipped, already known: {some_of(passed_over, LISTED)}")
        note_no_rejection(answer, recognizer)


def _classes(answer: CommandOutput, name: str, photos: list[str] | None, nested: bool) -> dict[str, list[Photo]]:
    from fiveshot.recognizer import check_name, find_classes, find_photos

    if photos:
        if nested:
            raise InputError(
                "--nested needs a folder of class folders",
                hint="leave it out, or give the folder without a NAME",
                code="unused_option",
            )
        _refuse_missing_name(name, photos)
        checked, one = check_name(name), find_photos(photos, one_class=True)
        note_others(answer, one.others)
        return {checked: one.photos}
    name = options.at_home(name)
    if not Path(name).exists():
        raise InputError(
            f"there are no photos for {name!r}, and no folder has this name",
            hint="give NAME and PHOTOS, or a folder of class folders",
        )
    found = find_classes(name, nested=nested)
    note_classes_left_out(answer, found, way=BY_NESTED)
    return found.classes


def _refuse_photo_as_name(name: str, order: str, usage: str) -> None:
    from fiveshot.data import is_image

    if is_image(name) and Path(name).is_file():
        raise InputError(f"{name} is a photo: {order}", hint=f"give both: fiveshot {usage}", code="no_name")


def _refuse_missing_name(name: str, photos: list[str]) -> None:
    """Refuse a photo or a folder in the place of a class name."""
    _refuse_photo_as_name(name, "the name of the class comes first, then its photos", "learn MODEL NAME PHOTOS")
    elsewhere = [one for one in photos if Path(one).is_dir() and not Path(one).is_relative_to(name)]
    if "/" in name and Path(name).is_dir() and len(elsewhere) == len(photos):
        raise InputError(
            f"{name} is a folder, but the class name must come before the photos",
            hint=f"give a name: fiveshot learn MODEL NAME PHOTOS; or learn every folder in {Path(name).parent} "
            f"as a class: {command('learn', 'MODEL', Path(name).parent)}",
            code="no_name",
        )


def _tell(answer: CommandOutput, reports: list[LearnReport]) -> None:
    for report in reports:
        if len(reports) <= LISTED or report.warnings:
            answer.say(describe_report(report))
            for warning in report.warnings:
                answer.say(f"  look again: {warning}")
    if len(reports) > 1:
        photos = sum(report.added for report in reports)
        answer.say(f"learned {counted(len(reports), 'class')} from {counted(photos, 'photo')}")


def describe_report(report: LearnReport) -> str:
    """Return one line about a class that was learned."""
    added = "" if report.added == report.photos else f" more, {report.photos} in all"
    learned = f"{report.name}: {counted(report.added, 'photo')}{added}"
    if report.separability is None:
        return learned
    return (
        f"{learned}; {report.verdict} (separability {report.separability:.2f}, "
        f"{percent(report.accuracy, 0)} recognized when left out, nearest class {report.nearest})"
    )


def forget(
    model: options.Model,
    name: Name,
    for_good: Annotated[bool, Option("--for-good", help="Erase it completely; this cannot be undone.")] = False,
    as_json: options.AsJson = False,
) -> None:
    """Forget a class. 'undo' brings it back, except after --for-good.

    Example: fiveshot forget birds owl
    """
    with answering_with("forget", model, as_json=as_json) as (answer, recognizer):
        with status(f"forgetting {name}"):  # may wait for readers
            recognizer.forget(name, for_good=for_good)
        answer.result = {"name": name, "for_good": for_good}
        answer.say(f"forgot {name}" + ("" if for_good else f"; bring it back with: {command('undo', model)}"))


def rename(
    model: options.Model,
    old: Annotated[str, Argument(metavar="OLD", help="Present name.", autocompletion=completion.classes)],
    new: Annotated[str, Argument(metavar="NEW", help="New name.")],
    as_json: options.AsJson = False,
) -> None:
    """Give a class another name.

    Example: fiveshot rename birds owl "barn owl"
    """
    with answering_with("rename", model, as_json=as_json) as (answer, recognizer):
        recognizer.rename(old, new)
        answer.result = {"old": old, "new": new}
        answer.say(f"{old} is now {new}")


def group(
    model: options.Model,
    taxonomy: Annotated[Path, Argument(metavar="FILE", help="CSV file with the columns name and parent.")],
    as_json: options.AsJson = False,
) -> None:
    """Put classes into groups. Names become paths, such as owl/barn owl.

    If the class of a photo is not sure, the answer is then its group.

    Example: fiveshot group birds taxonomy.csv
    """
    from fiveshot.recognizer import group_classes, read_parents, short_name

    with answering_with("group", model, as_json=as_json) as (answer, recognizer):
        parents = read_parents(taxonomy)
        renamed = group_classes(recognizer, parents)
        answer.result = {"renamed": [{"old": old, "new": new} for old, new in renamed.items()]}
        for old, new in list(renamed.items())[:LISTED]:
            answer.say(f"{old} is now {new}")
        more = len(renamed) - LISTED
        if more > 0:
            answer.say(f"and {counted(more, 'class')} more")
        if not renamed:
            answer.say("nothing to change: all classes of the file are in their groups")
        classes = recognizer.snapshot.classes
        others = [name for name in classes if short_name(name) not in parents]
        if others:
            left = f"{len(others):,} of {counted(len(classes), 'class')}"
            stay = "it stays as it is" if len(others) == 1 else "they stay as they are"
            answer.note(f"{taxonomy} does not name {left}, so {stay}: {some_of(others)}")


def undo(
    model: options.Model,
    past_forget: Annotated[
        bool, Option("--past-forget", help="Skip erased classes and photos, which cannot be restored.")
    ] = False,
    as_json: options.AsJson = False,
) -> None:
    """Undo the last change.

    Example: fiveshot undo birds
    """
    with answering_with("undo", model, as_json=as_json) as (answer, recognizer):
        entry = recognizer.undo(past_forget=past_forget)
        answer.result = {"undone": to_json(entry)}
        answer.say(f"undone: {describe_change(entry)}")


def history(
    model: options.Model,
    limit: Annotated[int | None, Option(metavar="N", help="Show at most N changes.", min=1)] = None,
    as_json: options.AsJson = False,
) -> None:
    """List the changes of a model, the latest first.

    Example: fiveshot history birds --limit 5
    """
    with answering_with("history", model, as_json=as_json, readonly=True) as (answer, recognizer):
        entries = recognizer.history(limit)
        answer.result = {"entries": to_json(entries)}
        for entry in entries:
            undone = " (undone)" if entry.undone_by is not None else ""
            answer.say(f"{entry.seq:5} {entry.at} {describe_change(entry)}{undone}")


def describe_change(entry: HistoryEntry, shown: int = 5) -> str:
    """Describe a change in a few words."""
    if entry.action == "set":
        now, before = entry.detail["options"], entry.detail["before"]
        return ", ".join(
            f"set {name.replace('_', '-')} {_setting(value)} (before: {_setting(before[name])})"
            for name, value in now.items()
        )
    if entry.action == "dismiss":
        return f"dismiss {counted(len(entry.detail['sightings']), 'sighting')}"
    photos = f" ({counted(entry.photos, 'photo')})" if entry.photos else ""
    action = "learn" if entry.action == "none" else entry.action  # its class is "none of these"
    return f"{action} {some_of(entry.classes, shown)}{photos}".rstrip()


def _setting(value: bool | float) -> str:
    """Return the value of a setting in words.

    >>> _setting(True), _setting(0.05)
    ('on', '5.0 %')
    """
    return ("on" if value else "off") if isinstance(value, bool) else percent(value)


def correct(
    model: options.Model,
    photo: Annotated[
        str, Argument(metavar="PHOTO", help="Photo, or a folder or pattern of photos that show the same.")
    ],
    name: Annotated[
        str,
        Argument(
            metavar="NAME",
            help="Class, known or new, or 'none of these'.",
            autocompletion=completion.classes,
        ),
    ],
    device: options.Device = "auto",
    runtime: options.Runtime = "auto",
    weights: options.Weights = None,
    as_json: options.AsJson = False,
) -> None:
    """Say what a photo shows. It is learned for this class, or moved to it.

    Example: fiveshot correct birds garden.jpg wren
    """
    where = {"device": device, "runtime": runtime, "weights": weights}
    with answering_with("correct", model, as_json=as_json, **where) as (answer, recognizer):
        _refuse_photo_as_name(name, "the photo comes first, then what it shows", "correct MODEL PHOTO NAME")
        found = found_photos(answer, [photo])
        with image_bar(f"looking at {counted(len(found), 'photo')}") as progress:
            before, known = recognizer.history(1), recognizer.snapshot.classes
            done = recognizer.correct(found, name, progress=progress)
        answer.result = to_json(done)
        unchanged = " already, so nothing was changed" if recognizer.history(1) == before else ""
        answer.say(f"{_photos(done)}: {name}{unchanged}")
        tell_counts(answer, done)
        note_misspelled(answer, done.counts, known, model)


def remove(
    model: options.Model,
    ids: Ids,
    of: Of = None,
    for_good: Annotated[bool, Option("--for-good", help="Erase them completely; this cannot be undone.")] = False,
    as_json: options.AsJson = False,
) -> None:
    """Remove photos from their classes. 'undo' brings them back.

    Example: fiveshot remove birds p17 p21

    Example: fiveshot remove birds photos/wren/7.jpg
    """
    with answering_with("remove", model, as_json=as_json) as (answer, recognizer):
        with status("removing photos"):  # may wait for readers
            done = recognizer.remove(_ids(answer, recognizer, ids), of=of, for_good=for_good)
        answer.result = to_json(done) | {"for_good": for_good}
        answer.say(f"{'erased' if for_good else 'removed'} {_photos(done)}")
        tell_counts(answer, done)
        if not for_good:
            answer.say(f"bring {'it' if len(done.ids) == 1 else 'them'} back with: {command('undo', model)}")


def move(
    model: options.Model,
    to: Annotated[
        str,
        Option(
            "--to",
            help="Class, known or new, or 'none of these'.",
            autocompletion=completion.classes,
        ),
    ],
    ids: MovedIds = None,
    of: Of = None,
    all_of: Annotated[
        str | None,
        Option(
            "--all-of",
            metavar="NAME",
            help="Join this class with --to: all of its photos move.",
            autocompletion=completion.classes,
        ),
    ] = None,
    as_json: options.AsJson = False,
) -> None:
    """Move photos to another class, or join two classes.

    Example: fiveshot move birds p17 p21 --to wren

    Example: fiveshot move birds --all-of "barn owl" --to owl
    """
    with answering_with("move", model, as_json=as_json) as (answer, recognizer):
        known = recognizer.snapshot.classes
        if all_of is None:
            done = recognizer.move(_ids(answer, recognizer, ids or []), to=to, of=of)
        else:
            done = recognizer.move(ids or (), to=to, of=of, all_of=all_of)
        answer.result = to_json(done) | {"to": to}
        answer.say(f"moved {_photos(done)} to {to}")
        tell_counts(answer, done)
        if all_of is not None:
            answer.say(f"take it back with: {command('undo', model)}")
        note_misspelled(answer, done.counts, known, model)


def found_photos(answer: CommandOutput, inputs: list[str]) -> list[Photo]:
    """Return the photos in files, folders or patterns; note files that are not photos."""
    from fiveshot.recognizer import find_photos

    found = find_photos(inputs, one_class=True)
    note_others(answer, found.others)
    return found.photos


def _ids(answer: CommandOutput, recognizer: Recognizer, given: list[str]) -> list[str]:
    """Return the ids of photos; a file stands for the photos learned from it."""
    from fiveshot.recognizer import is_photo_id, photo_ids

    ids = list[str]()
    for one in given:
        is_file = not is_photo_id(one) and Path(one).is_file()
        ids += photo_ids(recognizer, found_photos(answer, [one])) if is_file else [one]
    return ids


def _photos(done: PhotoChange) -> str:
    return f"{counted(len(done.ids), 'photo')} ({some_of(done.ids)})"


def tell_counts(answer: CommandOutput, done: PhotoChange) -> None:
    """Print how many photos the classes have now."""
    for name, count in done.counts.items():
        answer.say(
            f"{name}: {counted(count, 'photo')} now" if count else f"{name}: gone, as it has no photos left"
        )


def note_misspelled(answer: CommandOutput, names: Iterable[str], known: Sequence[str], model: Path) -> None:
    """Note new classes whose names are almost those of known classes."""
    for name in names:
        meant = None if name in known or name == NONE else similar_name(name, known)
        if meant is not None:
            answer.note(f"{name!r} is a new class; if you meant {meant!r}, undo it with: {command('undo', model)}")
