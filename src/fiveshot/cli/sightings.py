"""``fiveshot sightings``: name, confirm or erase photos that ``watch --keep`` has kept."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from typer import Option

from fiveshot.cli import options
from fiveshot.cli.classes import note_misspelled
from fiveshot.cli.output import CommandOutput, answering_with, file_size
from fiveshot.cli.second_look import named
from fiveshot.errors import InputError, command, counted, some_of
from fiveshot.storage import atomic_path
from fiveshot.values import to_json

if TYPE_CHECKING:
    from fiveshot.recognizer import Recognizer
    from fiveshot.values import Sightings

GROUPS, PHOTOS = 20, 3  # how many to list
ALL = "all"
Ids = list[str] | None


def sightings(
    model: options.Model,
    name: Annotated[
        Ids,
        Option("--name", metavar="ID=NAME", help="Learn a sighting (s3) or a group (g3) as NAME; repeatable."),
    ] = None,
    right: Annotated[
        Ids, Option("--right", metavar="ID", help="Learn it as what is suggested; repeatable.")
    ] = None,
    none: Annotated[
        Ids, Option("--none", metavar="ID", help="Learn it as none of these classes; repeatable.")
    ] = None,
    dismiss: Annotated[
        Ids, Option("--dismiss", metavar="ID", help="Put it aside without learning; repeatable.")
    ] = None,
    forget: Annotated[
        Ids, Option("--forget", metavar="ID|all", help="Erase it from the disk, not undoable; repeatable.")
    ] = None,
    save: Annotated[
        Path | None, Option("--save", metavar="FOLDER", help="Write the photos to files, to look at them.")
    ] = None,
    as_json: options.AsJson = False,
) -> None:
    """List photos without a name that 'watch --keep' has kept, in groups of similar ones, and name them.

    Example: fiveshot sightings birds

    Example: fiveshot sightings birds --name g3=owl --name s17=wren --right g5 --none s9

    Example: fiveshot sightings birds --forget all
    """
    from fiveshot.recognizer import NONE, dismiss_sightings, forget_sightings
    from fiveshot.recognizer import sightings as list_sightings

    names = list(map(named, name or ()))
    teaches = bool(names or right or none)
    if teaches + bool(dismiss) + bool(forget) > 1:
        raise InputError(
            "naming, --dismiss and --forget exclude each other", hint="give several commands", code="unused_option"
        )
    readonly = not (teaches or dismiss or forget)
    with answering_with("sightings", model, as_json=as_json, readonly=readonly) as (answer, recognizer):
        if forget and save is None and not any(place.startswith("g") for place in forget):
            # The list is not read: what is to be erased may be damaged.
            _tell_erased(answer, forget_sightings(recognizer, None if ALL in forget else forget))
            return
        found = list_sightings(recognizer)
        if save is not None:
            _save(answer, recognizer, found, save)
        if teaches:
            wanted = [(found.ids_of(place), label) for place, label in names]
            wanted += [((one,), label) for one, label in _suggested(found, right or ())]
            wanted += [(found.ids_of(place), NONE) for place in none or ()]
            _learn(answer, recognizer, wanted, model)
        elif dismiss:
            done = dismiss_sightings(recognizer, _ids(found, dismiss))
            answer.result["changed"] = to_json(done)
            back = command("undo", model)
            answer.say(f"dismissed {counted(len(done.ids), 'sighting')}; undo it with: {back}")
        elif forget:
            _tell_erased(answer, forget_sightings(recognizer, None if ALL in forget else _ids(found, forget)))
        else:
            answer.result["sightings"] = to_json(found)
            _tell(answer, found, model)


def _ids(found: Sightings, places: Iterable[str]) -> list[str]:
    return [one for place in places for one in found.ids_of(place)]


def _suggested(found: Sightings, places: Iterable[str]) -> list[tuple[str, str]]:
    """Return ids with the classes that are suggested for them."""
    suggestions = {one.id: one.suggestion for one in found.sightings}
    wanted = []
    for one in _ids(found, places):
        if one not in suggestions:
            raise InputError(
                f"there is no sighting {one}",
                hint="list the sightings again; nothing was changed",
                code="no_sighting",
            )
        label = suggestions[one]
        if label is None:
            raise InputError(
                f"no class is suggested for {one}",
                hint=f"give it a name: --name {one}=NAME; nothing was learned",
                code="no_suggestion",
            )
        wanted.append((one, label))
    return wanted


def _learn(
    answer: CommandOutput, recognizer: Recognizer, wanted: Iterable[tuple[Iterable[str], str]], model: Path
) -> None:
    from fiveshot.recognizer import learn_sightings

    by_name: dict[str, list[str]] = {}
    for ids, label in wanted:
        by_name.setdefault(label, []).extend(ids)
    known = recognizer.snapshot.classes
    done = learn_sightings(recognizer, by_name)
    answer.result["changed"] = to_json(done)
    answer.say(f"learned {counted(len(done.ids), 'photo')}; undo it with: {command('undo', model)}")
    for label, count in done.counts.items():
        answer.say(f"{label}: {counted(count, 'photo')} now")
    note_misspelled(answer, list(by_name), known, model)


def _tell_erased(answer: CommandOutput, count: int) -> None:
    answer.result["erased"] = count
    answer.say(f"erased {counted(count, 'sighting')}")


def _save(answer: CommandOutput, recognizer: Recognizer, found: Sightings, folder: Path) -> None:
    from fiveshot.data import is_image
    from fiveshot.recognizer import sighting_picture

    folder.mkdir(parents=True, exist_ok=True)
    for one in found.sightings:
        data = sighting_picture(recognizer, one.id, kept=True)
        if data is None:  # a watch has erased it meanwhile
            continue
        kind = ".png" if data.startswith(b"\x89PNG") else ".jpg"  # what a copy of a region may be
        if one.prediction.box is None and is_image(one.prediction.photo):
            kind = Path(one.prediction.photo).suffix
        with atomic_path(folder / f"{one.id}{kind}") as part:
            part.write_bytes(data)
    answer.say(f"wrote {counted(len(found.sightings), 'photo')} to {folder}")


def _tell(answer: CommandOutput, found: Sightings, model: Path) -> None:
    count = counted(len(found.sightings), "sighting")
    answer.say(f"{count}, {file_size(found.bytes)}" if found.bytes else f"{count}; keep some with: watch --keep")
    newest = {one.id: one for one in found.sightings}
    for group in found.groups[:GROUPS]:
        last = newest[group.ids[0]]
        where = f"{last.source}, {last.region}" if last.region else last.source
        answer.say(
            f"{group.id}: {counted(len(group.ids), 'photo')}, {group.label or 'unknown'} "
            f"({some_of(list(group.ids), PHOTOS)}), last {last.seen} from {where}"
        )
    if len(found.groups) > GROUPS:
        answer.say(f"and {len(found.groups) - GROUPS:,} more groups; --json lists all")
    right = next((group.id for group in found.groups if group.label is not None), None)
    other = next((group.id for group in found.groups if group.label is None), right)
    if right is not None:
        answer.say(f"if that is right: {command('sightings', model, '--right', right)}")
    if other is not None:
        answer.say(f"say what it is: {command('sightings', model, '--name', f'{other}=NAME')}")
        answer.say(f"look at the photos: {command('sightings', model, '--save', 'look')}")
