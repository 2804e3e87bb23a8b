"""``fiveshot sort``: a folder of photos without labels, sorted, and learned by the names of its groups."""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fiveshot.cli.commands.photos import tell_placed
from fiveshot.cli.options import AsJson, By, Device, DryRun, Into, Model, Runtime, Weights, refuse_unused
from fiveshot.cli.output import Answer, answering, percent
from fiveshot.cli.progress import image_bar
from fiveshot.errors import InputError, counted, some_of

if TYPE_CHECKING:
    from fiveshot.recognizer import Recognizer, Sorting

GROUPS, QUESTIONS, PHOTOS = 20, 5, 3  # that are listed at most


def sort(
    ctx: typer.Context,
    model: Model,
    folder: Annotated[
        Path,
        typer.Argument(metavar="FOLDER", help="Photos without labels, in any folders below.", show_default=False),
    ],
    name: Annotated[
        list[str] | None,
        typer.Option(
            "--name",
            metavar="ID=NAME",
            help="Learn a group (g3), a question (q3) or a photo (3) under a name; any number of times.",
        ),
    ] = None,
    ask: Annotated[bool, typer.Option("--ask", help="Ask for the name of each group, and learn them.")] = False,
    resume: Annotated[
        bool, typer.Option(help="Keep what was seen of photos in the cache, to go on where sorting was stopped.")
    ] = True,
    into: Into = None,
    by: By = "copy",
    dry_run: DryRun = False,
    device: Device = "auto",
    runtime: Runtime = "auto",
    weights: Weights = None,
    as_json: AsJson = False,
) -> None:
    """Sort photos without labels: known classes, groups of the others, and what to name first.

    Nothing is learned unless it is named, and no photo is moved without --into DIR --by move, which puts known
    photos into the folders of their classes, and the others into _unknown/g3 by their groups. A model without any
    class groups all photos.

    Example: fiveshot sort birds holiday

    Example: fiveshot sort birds holiday --name g3=wren --name g17="barn owl" --into sorted
    """
    from fiveshot.recognizer import Recognizer

    names = dict(map(_named, name or ()))
    if ask and (as_json or not sys.stdin.isatty()):
        raise InputError("nobody can be asked here", hint="give names with --name ID=NAME", code="not_asked")
    with answering("sort", model, as_json=as_json) as answer:
        if into is None:
            refuse_unused(ctx, "is for --into", "by", "dry_run")
        opened = Recognizer.open(
            model, device=device, runtime=runtime, weights=weights, readonly=not (names or ask)
        )
        with opened as recognizer:
            with image_bar(f"looking at the photos in {folder}") as progress:
                found = recognizer.sort(folder, resume=resume, progress=progress)
            answer.result = {"sorting": found.as_dict()}
            _note(answer, found)
            if ask:
                names |= _asked(found)
            if names:
                _learn(answer, recognizer, found, names)
            elif not ask:
                _tell(answer, found, model, folder)
        if into is not None:
            placed = found.place(into, by, names=names, dry_run=dry_run)
            tell_placed(answer, placed, into, by, dry_run=dry_run)
        answer.leave_out(found.bad, status=0)


def _named(given: str) -> tuple[str, str]:
    place, equals, name = given.partition("=")
    if not equals or not place or not name.strip():
        raise InputError(f"{given!r} is not of the form ID=NAME", hint="for example g3=wren", code="no_name")
    return place.strip(), name


def _asked(found: Sorting) -> dict[str, str]:
    """Ask for names, the largest group first; an empty answer passes over one, a dot ends."""
    names = {}
    for group in found.groups:
        shown = some_of([found.photos[number] for number in group.photos], PHOTOS)
        text = f"{group.id}, {counted(len(group.photos), 'photo')} ({shown}); name, Enter to pass over, . to end"
        given = typer.prompt(text, default="", show_default=False).strip()
        if given == ".":
            break
        if given:
            names[group.id] = given
    return names


def _learn(answer: Answer, recognizer: Recognizer, found: Sorting, names: dict[str, str]) -> None:
    with image_bar("learning what was named") as progress:
        reports = recognizer.learn_sorted(found, names, progress=progress)
    answer.result["learned"] = [report.as_dict() for report in reports]
    for report in reports:
        answer.say(f"{report.name}: learned {counted(report.added, 'photo')}, {report.photos} in all")
        for warning in report.warnings:
            answer.say(f"  look again: {warning}")
    answer.say("sort again for what is left; undo takes back what was learned")


def _note(answer: Answer, found: Sorting) -> None:
    since = found.since
    if since is not None and (since.new or since.gone or since.changed):
        answer.note(
            f"since the last time {since.new:,} came, {since.gone:,} are gone, {since.changed:,} have changed"
        )
    if found.meanwhile:
        count = counted(len(found.meanwhile), "photo")
        answer.note(f"{count} came meanwhile ({some_of(found.meanwhile, PHOTOS)}): sort again to have them")
    if found.copies:
        answer.note(f"{counted(found.copies, 'photo')} left out: another one has the same content")


def _tell(answer: Answer, found: Sorting, model: Path, folder: Path) -> None:
    def shown(photos: tuple[int, ...]) -> str:
        return some_of([found.photos[number] for number in photos], PHOTOS)

    known = Counter(one.label for one in found.known)
    answer.say(f"{counted(len(found.photos), 'photo')}: {len(found.known):,} of known classes")
    for label, count in known.most_common():
        own = [one for one in found.known if one.label == label]
        sure = sum(one.probability for one in own) / count
        answer.say(f"  {label}: {counted(count, 'photo')}, {percent(sure, 0)} sure ({shown((own[0].photo,))})")
    unknown = sum(len(group.photos) for group in found.groups)
    answer.say(f"unknown: {counted(unknown, 'photo')} in {counted(len(found.groups), 'group')}")
    for group in found.groups[:GROUPS]:
        answer.say(f"  {group.id}: {counted(len(group.photos), 'photo')} ({shown(group.photos)})")
    if len(found.groups) > GROUPS:
        answer.say(f"  and {len(found.groups) - GROUPS:,} smaller groups; --json names all")
    if found.queue:
        answer.say("what teaches most:")
    for one in found.queue[:QUESTIONS]:
        guess = f"; may be {one.guess}" if one.guess else ""
        more = f" and {counted(len(one.companions), 'photo')} like it" if one.companions else ""
        answer.say(f"  q{one.photo}: {found.photos[one.photo]}{more}{guess}")
    if found.groups or found.queue:
        first = found.groups[0].id if found.groups else f"q{found.queue[0].photo}"
        answer.say(f"name what you know: fiveshot sort {model} {folder} --name {first}=NAME, or --ask")
