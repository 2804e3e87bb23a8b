"""``fiveshot review`` and ``sort``: a second look at what was learned, a first one at photos without labels."""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from typer import Argument, Context, Option

from fiveshot.cli import completion, options
from fiveshot.cli.classes import note_misspelled
from fiveshot.cli.output import Answer, answering, answering_with, image_bar, percent, status
from fiveshot.cli.photos import tell_placed
from fiveshot.errors import InputError, command, counted, some_of
from fiveshot.storage import require_writable

if TYPE_CHECKING:
    from fiveshot.recognizer import Recognizer, Review, Sorting, Suggestion
    from fiveshot.recognizer.photos.photo import Photo

CLASSES, PAIRS, SUGGESTIONS, GROUPS, QUESTIONS, PHOTOS = 20, 10, 20, 20, 5, 3  # that are listed at most


def review(
    model: options.Model,
    apply: Annotated[
        list[str] | None,
        Option(
            "--apply",
            metavar="FINDING",
            help="Do what is suggested firmly, after asking: mixed-up, duplicates or outliers; more than once.",
            autocompletion=completion.findings,
        ),
    ] = None,
    keep: Annotated[
        list[str] | None,
        Option("--keep", metavar="ID", help="Keep this photo: it is not suggested again until its class changes."),
    ] = None,
    kept: Annotated[bool, Option("--kept", help="Suggest again what you decided about.")] = False,
    yes: Annotated[bool, Option("--yes", "-y", help="Apply without asking.")] = False,
    page: Annotated[
        Path | None, Option("--page", metavar="FILE.html", help="Write a page that shows the photos as pictures.")
    ] = None,
    as_json: options.AsJson = False,
) -> None:
    """Look again at what was learned: confused classes, photos to move or remove, and whether it is enough.

    Every photo is asked of a model that has not learned it. Nothing changes unless told; undo takes it back.

    Example: fiveshot review birds

    Example: fiveshot review birds --page review.html

    Example: fiveshot review birds --apply mixed-up
    """
    from fiveshot.recognizer.review import check_kinds

    check_kinds(apply or ())
    if page is not None:
        require_writable(page)
    if apply and keep:
        raise InputError("--apply and --keep contradict each other", hint="keep photos first, then apply the rest")
    opened = answering_with("review", model, as_json=as_json, readonly=not (apply or keep))
    with opened as (answer, recognizer):
        with status("looking at what was learned"):
            found = recognizer.review(kept=kept)
        answer.result = {"review": found.as_dict()}
        if page is not None:
            from fiveshot.reports.page import write_review

            with status("writing the page"):
                shown = write_review(page, found, recognizer.picture, model=model)
            answer.result["page"] = str(shown)
            answer.say(f"the photos are shown in {page}")
        if keep:
            _keep(answer, recognizer, found, keep)
        elif apply:
            _apply(answer, recognizer, found, apply, yes=yes)
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


def _keep(answer: Answer, recognizer: Recognizer, found: Review, ids: list[str]) -> None:
    from fiveshot.recognizer.review import KINDS

    kinds = {one.photo: one.kind for one in reversed(found.suggestions)}  # the first finding about each photo
    strange = [one for one in ids if one not in kinds]
    if strange:
        raise InputError(
            f"nothing is suggested about {', '.join(strange)}",
            hint="the ids of photos that are suggested stand in the review; nothing was kept",
            code="no_finding",
        )
    for kind in KINDS:
        wanted = [one for one in ids if kinds[one] == kind]
        if wanted:
            recognizer.keep(wanted, kind)
            answer.say(f"kept: {', '.join(wanted)}")
    answer.say("not suggested again, until the class changes much")
    answer.result["kept"] = ids


def _apply(answer: Answer, recognizer: Recognizer, found: Review, kinds: list[str], *, yes: bool) -> None:
    wanted = found.of(kinds, firm=True)
    open_ = len(found.of(kinds)) - len(wanted)
    if open_:
        answer.note(f"{counted(open_, 'photo')} left for you to decide: use move, remove, or review --keep")
    if not wanted:
        answer.result["applied"] = None
        answer.say(f"no suggestion about {' or '.join(kinds)} photos is firm; the model is as it was")
        return
    _tell_suggestions(answer, wanted, most=len(wanted))
    if not yes:
        if answer.as_json or not sys.stdin.isatty():
            raise InputError(
                f"nobody can be asked whether to change {counted(len(wanted), 'photo')}",
                hint="look at them first (--page FILE.html shows them), then add --yes",
                code="not_asked",
            )
        typer.confirm(f"change {counted(len(wanted), 'photo')} as listed?", abort=True)
    done = recognizer.apply(wanted)
    answer.result["applied"] = done.as_dict()
    back = command("undo", recognizer.path)
    answer.say(f"changed {counted(len(done.ids), 'photo')}; take it back with: {back}")
    for name, count in done.counts.items():
        answer.say(f"{name}: {counted(count, 'photo')} now")


def _tell_review(answer: Answer, found: Review, model: Path) -> None:
    if found.accuracy is None:
        answer.say("nothing can be left out: two classes are needed, one of them with two photos or more")
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
            beside = f", most like {photo.beside}" if photo.beside else ""
            answer.say(f"  {photo.photo} of {photo.label}: taken for {photo.taken_for}{beside}")
    _tell_suggestions(answer, found.suggestions, most=SUGGESTIONS)
    if found.kept:
        answer.say(f"not suggested again, because you decided about them: {found.kept} (--kept lists them)")


def _tell_classes(answer: Answer, found: Review) -> None:
    listed = found.classes[:CLASSES]
    width = max(len(one.name) for one in listed)
    answer.say(
        f"{'class':{width}}  photos  left out  expected  with 1 more  2 more  5 more"
        "   (one more helps the first most)"
    )
    for one in listed:
        more = "  ".join(f"{percent(share, 0):>6}" for share in one.expected[2:])
        left_out, now, next_ = (percent(share, 0) for share in (one.accuracy, *one.expected[:2]))
        answer.say(f"{one.name:{width}}  {one.photos:6,}  {left_out:>8}  {now:>8}  {next_:>11}  {more}")
    if len(found.classes) > len(listed):
        answer.say(f"and {len(found.classes) - len(listed):,} more classes")


def _tell_suggestions(answer: Answer, suggestions: tuple[Suggestion, ...], *, most: int) -> None:
    from fiveshot.recognizer.review import FOUND

    for kind, title in FOUND.items():
        own = [one for one in suggestions if one.kind == kind]
        if own:
            answer.say(f"{kind}: {counted(len(own), 'photo')} that {title if len(own) > 1 else _single(title)}")
        for one in own[:most]:
            action = f"move to {one.to}" if one.to else "remove"
            advice = action if one.firm else f"look at this, perhaps {action}"
            answer.say(f"  {one.photo} of {one.label}: {advice}; {one.reason}")
        if len(own) > most:
            answer.say(f"  and {len(own) - most:,} more")


def _single(title: str) -> str:
    """Return what several photos do, of one.

    >>> _single("are there twice"), _single("fit another class better")
    ('is there twice', 'fits another class better')
    """
    verb, rest = title.split(" ", 1)
    return f"{'is' if verb == 'are' else verb + 's'} {rest}"


def sort(
    ctx: Context,
    model: options.Model,
    folder: Annotated[Path, Argument(metavar="FOLDER", help="Photos without labels, in any folders below.")],
    name: Annotated[
        list[str] | None,
        Option(
            "--name",
            metavar="ID=NAME",
            help="Learn a group (g3), a question (q3) or a photo (3) under a name; any number of times.",
        ),
    ] = None,
    ask: Annotated[bool, Option("--ask", help="Ask for the name of each group, and learn them.")] = False,
    resume: Annotated[
        bool, Option(help="Keep what was seen of photos in the cache, to go on where sorting was stopped.")
    ] = True,
    into: options.Into = None,
    by: options.By = "copy",
    dry_run: options.DryRun = False,
    device: options.Device = "auto",
    runtime: options.Runtime = "auto",
    weights: options.Weights = None,
    as_json: options.AsJson = False,
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
            options.refuse_unused(ctx, "is for --into", "by", "dry_run")
        opened = Recognizer.open(
            model, device=device, runtime=runtime, weights=weights, readonly=not (names or ask)
        )
        with opened as recognizer:
            photos = folder if into is None else _not_placed(folder, into)
            with image_bar(f"looking at the photos in {folder}") as progress:
                found = recognizer.sort(photos, resume=resume, progress=progress)
            answer.result = {"sorting": found.as_dict()}
            _note(answer, found)
            if ask:
                names |= _asked(found)
            if names:
                _learn(answer, recognizer, found, names, model)
            elif not ask:
                _tell_sorting(answer, found, model, folder)
        if into is not None:
            placed = found.place(into, by, names=names, dry_run=dry_run)
            tell_placed(answer, placed, into, by, dry_run=dry_run)
        answer.leave_out(found.bad, status=0)


def _not_placed(folder: Path, into: Path) -> Path | list[Photo]:
    """Return a folder, or its photos without those that were put into another one which is, or lies, in it."""
    from fiveshot.recognizer.answers.folders import ClassFolders
    from fiveshot.recognizer.photos.inputs import PhotoStream

    if folder.resolve() not in (into.resolve(), *into.resolve().parents):
        return folder
    folders = ClassFolders(into, dry_run=True)
    left = [photo for photo in PhotoStream(str(folder), but=[into]) if not folders.has(photo)]
    if not left:
        raise InputError(f"all photos in {folder} were put there before", hint="add some", code="no_photos")
    return left


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


def _learn(answer: Answer, recognizer: Recognizer, found: Sorting, names: dict[str, str], model: Path) -> None:
    known = recognizer.snapshot.classes
    with image_bar("learning what was named") as progress:
        reports = recognizer.learn_sorted(found, names, progress=progress)
    answer.result["learned"] = [report.as_dict() for report in reports]
    for report in reports:
        answer.say(f"{report.name}: learned {counted(report.added, 'photo')}, {report.photos} in all")
        for warning in report.warnings:
            answer.say(f"  look again: {warning}")
    note_misspelled(answer, [report.name for report in reports], known, model)
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


def _tell_sorting(answer: Answer, found: Sorting, model: Path, folder: Path) -> None:
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
        naming = command("sort", model, folder, "--name", f"{first}=NAME")
        answer.say(f"name what you know: {naming}, or --ask")
