"""``fiveshot review`` and ``sort``: check learned photos, and sort photos without labels."""

from __future__ import annotations

import sys
from collections import Counter
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from typer import Argument, Option

from fiveshot.cli import completion, options
from fiveshot.cli.classes import note_misspelled
from fiveshot.cli.output import CommandOutput, answering, answering_with, image_bar, percent, status
from fiveshot.cli.photos import check_into, tell_placed
from fiveshot.errors import InputError, command, counted, some_of
from fiveshot.storage import require_writable
from fiveshot.values import FINDINGS, FOUND, shown_photo, to_json

if TYPE_CHECKING:
    from fiveshot.data import Photo
    from fiveshot.recognizer import Recognizer
    from fiveshot.values import Review, Sorting, Suggestion

CLASSES, PAIRS, SUGGESTIONS, GROUPS, QUESTIONS, PHOTOS = 20, 10, 20, 20, 5, 3  # how many to list


def review(
    model: options.Model,
    apply: Annotated[
        list[str] | None,
        Option(
            "--apply",
            metavar="FINDING",
            help="Follow the firm suggestions on mixed-up, duplicates or outliers; repeatable.",
            autocompletion=completion.findings,
        ),
    ] = None,
    keep: Annotated[
        list[str] | None,
        Option("--keep", metavar="ID", help="Keep this photo: do not suggest it until its class changes."),
    ] = None,
    kept: Annotated[bool, Option("--kept", help="Include photos that you decided about.")] = False,
    yes: Annotated[bool, Option("--yes", "-y", help="Apply without asking.")] = False,
    page: Annotated[
        Path | None, Option("--page", metavar="FILE.html", help="Write a page that shows the photos.")
    ] = None,
    as_json: options.AsJson = False,
) -> None:
    """Check the learned photos: confused classes, photos to move or remove, and whether there are enough.

    Each photo is tested with a model that has not learned it. Nothing changes without --apply.

    Example: fiveshot review birds

    Example: fiveshot review birds --page review.html

    Example: fiveshot review birds --apply mixed-up
    """
    from fiveshot.recognizer import check_kinds, picture
    from fiveshot.recognizer import review as review_model

    check_kinds(apply or ())
    if page is not None:
        require_writable(page)
    if apply and keep:
        raise InputError("--apply and --keep exclude each other", hint="keep photos first, then apply the rest")
    opened = answering_with("review", model, as_json=as_json, readonly=not (apply or keep))
    with opened as (answer, recognizer):
        with status("checking the learned photos"):
            found = review_model(recognizer, kept=kept)
        answer.result = {"review": to_json(found)}
        if page is not None:
            from fiveshot.reports import write_review

            with status("writing the page"):
                shown = write_review(page, found, partial(picture, recognizer), model=model)
            answer.result["page"] = str(shown)
            answer.say(f"the photos are shown in {page}")
        if keep:
            _keep(answer, recognizer, found, keep)
        elif apply:
            _apply(answer, recognizer, found, apply, model, yes=yes)
        else:
            _tell_review(answer, found, model)
            firm = next((one for one in found.suggestions if one.firm), None)
            if firm is not None:
                answer.say(f"follow what is suggested with: {command('review', model, '--apply', firm.kind)}")
            if found.suggestions:
                first = found.suggestions[0].photo
                answer.say(f"keep a photo with: {command('review', model, '--keep', first)}")
                if page is None:
                    answer.say(f"see the photos: {command('review', model, '--page', 'review.html')}")


def _keep(answer: CommandOutput, recognizer: Recognizer, found: Review, ids: list[str]) -> None:
    from fiveshot.recognizer import keep_photos

    kinds = {one.photo: one.kind for one in reversed(found.suggestions)}  # the first finding about each photo
    strange = [one for one in ids if one not in kinds]
    if strange:
        raise InputError(
            f"nothing is suggested about {', '.join(strange)}",
            hint="the review lists the ids of suggested photos; nothing was kept",
            code="no_finding",
        )
    for kind in FINDINGS:
        wanted = [one for one in ids if kinds[one] == kind]
        if wanted:
            keep_photos(recognizer, wanted, kind)
            answer.say(f"kept: {', '.join(wanted)}")
    answer.say("not suggested again, until the class changes much")
    answer.result["kept"] = ids


def _apply(
    answer: CommandOutput, recognizer: Recognizer, found: Review, kinds: list[str], model: Path, *, yes: bool
) -> None:
    from fiveshot.recognizer import apply_review

    wanted = found.of(kinds, firm=True)
    undecided = len(found.of(kinds)) - len(wanted)
    if undecided:
        answer.note(f"{counted(undecided, 'photo')} left for you to decide: use move, remove or review --keep")
    if not wanted:
        answer.result["applied"] = None
        answer.say(f"none of these suggestions is firm ({', '.join(kinds)}); the model did not change")
        return
    _tell_suggestions(answer, wanted, most=len(wanted))
    if not yes:
        if answer.as_json or not sys.stdin.isatty():
            raise InputError(
                f"a terminal is needed to confirm the change of {counted(len(wanted), 'photo')}",
                hint="look at them first (--page FILE.html shows them), then add --yes",
                code="not_asked",
            )
        typer.confirm(f"change {counted(len(wanted), 'photo')} as listed?", abort=True)
    done = apply_review(recognizer, wanted)
    answer.result["applied"] = to_json(done)
    back = command("undo", model)
    answer.say(f"changed {counted(len(done.ids), 'photo')}; undo it with: {back}")
    for name, count in done.counts.items():
        answer.say(f"{name}: {counted(count, 'photo')} now")


def _tell_review(answer: CommandOutput, found: Review, model: Path) -> None:
    if found.accuracy is None:
        answer.say("too few photos to test: two classes are needed, one of them with two photos or more")
    else:
        answer.say(f"recognized when left out    {percent(found.accuracy)} of {counted(found.judged, 'photo')}")
    if found.expected:
        one, two, five = (percent(share) for share in found.expected[1:])
        answer.say(
            f"expected with more photos   {one} with one more of each class, {two} with two, {five} with five"
        )
        _tell_classes(answer, found)
    for pair in found.pairs[:PAIRS]:
        first, second = pair.classes
        answer.say(f"confused: {first} and {second}, {counted(pair.count, 'photo')}")
        if pair.alike:
            answer.say(f"  {pair.advice}")
            answer.say(f"  join them with: {command('move', model, '--all-of', first, '--to', second)}")
            continue
        for photo in pair.photos[:PHOTOS]:
            beside = f", most like {shown_photo(photo.beside, photo.beside_name)}" if photo.beside else ""
            shown = shown_photo(photo.photo, photo.name)
            answer.say(f"  {shown} of {photo.label}: taken for {photo.taken_for}{beside}")
    _tell_suggestions(answer, found.suggestions, most=SUGGESTIONS)
    if found.kept:
        answer.say(f"not suggested again, as you decided about them: {found.kept} (--kept lists them)")


def _tell_classes(answer: CommandOutput, found: Review) -> None:
    listed = found.classes[:CLASSES]
    width = max(len(one.name) for one in listed)
    answer.say(
        f"{'class':{width}}  photos  left out  expected  with 1 more  2 more  5 more"
        "   (a photo helps the first class most)"
    )
    for one in listed:
        more = "  ".join(f"{percent(share, 0):>6}" for share in one.expected[2:])
        left_out, now, next_ = (percent(share, 0) for share in (one.accuracy, *one.expected[:2]))
        answer.say(f"{one.name:{width}}  {one.photos:6,}  {left_out:>8}  {now:>8}  {next_:>11}  {more}")
    if len(found.classes) > len(listed):
        answer.say(f"and {len(found.classes) - len(listed):,} more classes")


def _tell_suggestions(answer: CommandOutput, suggestions: tuple[Suggestion, ...], *, most: int) -> None:
    for kind, title in FOUND.items():
        own = [one for one in suggestions if one.kind == kind]
        if own:
            answer.say(f"{kind}: {counted(len(own), 'photo')} that {title if len(own) > 1 else _single(title)}")
        for one in own[:most]:
            action = f"move to {one.to}" if one.to else "remove"
            advice = action if one.firm else f"look at this, perhaps {action}"
            answer.say(f"  {shown_photo(one.photo, one.name)} of {one.label}: {advice}; {one.reason}")
        if len(own) > most:
            answer.say(f"  and {len(own) - most:,} more")


def _single(title: str) -> str:
    """Return the singular of a title.

    >>> _single("are unlike the rest of their class"), _single("fit another class better")
    ('is unlike the rest of its class', 'fits another class better')
    """
    verb, rest = title.split(" ", 1)
    return f"{'is' if verb == 'are' else verb + 's'} {rest.replace('their', 'its')}"


def sort(
    model: options.Model,
    folder: Annotated[Path, Argument(metavar="FOLDER", help="Folder of photos without labels.")],
    name: Annotated[
        list[str] | None,
        Option(
            "--name",
            metavar="ID=NAME",
            help="Learn a group (g3), a question (q3) or a photo (3) as NAME; repeatable.",
        ),
    ] = None,
    ask: Annotated[bool, Option("--ask", help="Ask for the name of each group, and learn it.")] = False,
    page: Annotated[
        Path | None, Option("--page", metavar="FILE.html", help="Write a page that shows the photos.")
    ] = None,
    resume: Annotated[bool, Option(help="Cache the vectors of photos, so that a stopped run continues.")] = True,
    into: options.Into = None,
    by: options.By = None,
    dry_run: options.DryRun = False,
    device: options.Device = "auto",
    runtime: options.Runtime = "auto",
    weights: options.Weights = None,
    as_json: options.AsJson = False,
) -> None:
    """Sort photos without labels into known classes and groups of similar photos.

    Only what you name is learned. With --into, photos of known classes go to folders of their classes, and the
    others to _unknown/g3 and so on. A model without classes groups all photos.

    Example: fiveshot sort birds holiday --page sorted.html

    Example: fiveshot sort birds holiday --name g3=wren --name g17="barn owl" --into sorted
    """
    from fiveshot.recognizer import place_sorted, sort_photos

    names = dict(map(named, name or ()))
    if ask and (as_json or not sys.stdin.isatty()):
        raise InputError("--ask needs a terminal", hint="give names with --name ID=NAME", code="not_asked")
    if page is not None:
        require_writable(page)
    with answering("sort", model, as_json=as_json) as answer:
        check_into(into, by, dry_run=dry_run)
        opened = answer.open_model(device=device, runtime=runtime, weights=weights, readonly=not (names or ask))
        with opened as recognizer:
            photos = folder if into is None else _not_placed(folder, into)
            with image_bar(f"looking at the photos in {folder}") as progress:
                found = sort_photos(recognizer, photos, resume=resume, progress=progress)
            answer.result = {"sorting": to_json(found)}
            _note(answer, found)
            if page is not None:
                from fiveshot.reports import write_sorting

                with status("writing the page"):
                    shown = write_sorting(page, found, model=model, folder=folder)
                answer.result["page"] = str(shown)
                answer.say(f"the photos are shown in {page}")
            if ask:
                names |= _asked(found)
            if names:
                _learn(answer, recognizer, found, names, model)
            elif not ask:
                _tell_sorting(answer, found, model, folder)
        if into is not None:
            way = by or "copy"
            placed = place_sorted(found, into, way, names=names, dry_run=dry_run)
            tell_placed(answer, placed, into, way, dry_run=dry_run)
        answer.leave_out(found.bad, status=0)


def _not_placed(folder: Path, into: Path) -> Path | list[Photo]:
    """Return a folder, or its photos without those in ``into``, if that folder is in it."""
    from fiveshot.recognizer import ClassFolders, PhotoStream

    if folder.resolve() not in (into.resolve(), *into.resolve().parents):
        return folder
    folders = ClassFolders(into, dry_run=True)
    left = [photo for photo in PhotoStream(str(folder), but=[into]) if not folders.has(photo)]
    if not left:
        raise InputError(f"all photos in {folder} were sorted before", hint="add some", code="no_photos")
    return left


def named(given: str) -> tuple[str, str]:
    """Return the two parts of ``ID=NAME``.

    >>> named("g3=barn owl")
    ('g3', 'barn owl')
    """
    place, equals, name = given.partition("=")
    if not equals or not place or not name.strip():
        raise InputError(f"{given!r} is not ID=NAME", hint="for example g3=wren", code="no_name")
    return place.strip(), name


def _asked(found: Sorting) -> dict[str, str]:
    """Ask for names, the largest group first. Enter skips a group, a dot ends."""
    names = {}
    for group in found.groups:
        shown = some_of([found.photos[number] for number in group.photos], PHOTOS)
        text = f"{group.id}, {counted(len(group.photos), 'photo')} ({shown}); name, Enter to skip, . to end"
        given = typer.prompt(text, default="", show_default=False).strip()
        if given == ".":
            break
        if given:
            names[group.id] = given
    return names


def _learn(
    answer: CommandOutput, recognizer: Recognizer, found: Sorting, names: dict[str, str], model: Path
) -> None:
    from fiveshot.recognizer import learn_sorted

    known = recognizer.snapshot.classes
    with image_bar("learning the named photos") as progress:
        reports = learn_sorted(recognizer, found, names, progress=progress)
    answer.result["learned"] = to_json(reports)
    for report in reports:
        answer.say(f"{report.name}: learned {counted(report.added, 'photo')}, {report.photos} in all")
        for warning in report.warnings:
            answer.say(f"  look again: {warning}")
    note_misspelled(answer, [report.name for report in reports], known, model)
    answer.say("sort again for the rest; 'undo' undoes the learning")


def _note(answer: CommandOutput, found: Sorting) -> None:
    since = found.since
    if since is not None and (since.new or since.gone or since.changed):
        answer.note(f"since the last time: {since.new:,} new, {since.gone:,} gone, {since.changed:,} changed")
    if found.meanwhile:
        count = counted(len(found.meanwhile), "photo")
        answer.note(f"{count} arrived meanwhile ({some_of(found.meanwhile, PHOTOS)}): sort again to include them")
    if found.copies:
        answer.note(f"skipped {counted(found.copies, 'photo')} with the same content as others")


def _tell_sorting(answer: CommandOutput, found: Sorting, model: Path, folder: Path) -> None:
    def shown(photos: tuple[int, ...]) -> str:
        return some_of([found.photos[number] for number in photos], PHOTOS)

    known = Counter(one.label for one in found.known)
    answer.say(f"{counted(len(found.photos), 'photo')}: {len(found.known):,} of known classes")
    for label, count in known.most_common():
        own = [one for one in found.known if one.label == label]
        chances = [one.probability for one in own if one.probability is not None]
        sure = f", {percent(sum(chances) / count, 0)} sure" if chances else ""
        unsure = sum(bool(one.between) for one in own)
        sure += f", {unsure:,} unsure" if unsure else ""
        answer.say(f"  {label}: {counted(count, 'photo')}{sure} ({shown((own[0].photo,))})")
    unknown = sum(len(group.photos) for group in found.groups)
    answer.say(f"unknown: {counted(unknown, 'photo')} in {counted(len(found.groups), 'group')}")
    for group in found.groups[:GROUPS]:
        answer.say(f"  {group.id}: {counted(len(group.photos), 'photo')} ({shown(group.photos)})")
    if len(found.groups) > GROUPS:
        answer.say(f"  and {len(found.groups) - GROUPS:,} smaller groups; --json names all")
    if found.queue:
        answer.say("most useful to name:")
    for one in found.queue[:QUESTIONS]:
        guess = f"; may be {one.guess}" if one.guess else ""
        more = f" and {counted(len(one.companions), 'photo')} like it" if one.companions else ""
        answer.say(f"  q{one.photo}: {found.photos[one.photo]}{more}{guess}")
    if found.groups or found.queue:
        first = found.groups[0].id if found.groups else f"q{found.queue[0].photo}"
        naming = command("sort", model, folder, "--name", f"{first}=NAME")
        answer.say(f"name what you know: {naming}, or --ask")
