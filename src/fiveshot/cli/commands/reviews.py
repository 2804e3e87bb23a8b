"""``fiveshot review``: a second look at what a model has learned, and what to do about it."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fiveshot.cli.options import AsJson, Model
from fiveshot.cli.output import Answer, answering, percent
from fiveshot.cli.progress import status
from fiveshot.errors import InputError, counted

if TYPE_CHECKING:
    from fiveshot.recognizer import Recognizer, Review, Suggestion

CLASSES, PAIRS, SUGGESTIONS, PHOTOS = 20, 10, 20, 3  # that are listed at most
TITLES = {
    "mixed-up": "fit another class better",
    "harmful": "keep others from being recognized",
    "duplicates": "are there twice",
    "outliers": "are unlike the rest of their class",
}


def review(
    model: Model,
    apply: Annotated[
        list[str] | None,
        typer.Option(
            "--apply",
            metavar="FINDING",
            help="Do what is suggested, after asking: mixed-up, harmful, duplicates or outliers; more than once.",
            autocompletion=lambda: list(TITLES),
        ),
    ] = None,
    keep: Annotated[
        list[str] | None,
        typer.Option(
            "--keep", metavar="ID", help="Keep this photo: it is not suggested again for what was found."
        ),
    ] = None,
    kept: Annotated[bool, typer.Option("--kept", help="Suggest again what was kept.")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Apply without asking.")] = False,
    as_json: AsJson = False,
) -> None:
    """Look again at what was learned: confused classes, photos to move or remove, and whether it is enough.

    Every photo is asked of a model that has not learned it. Nothing changes unless told; undo takes it back.

    Example: fiveshot review birds

    Example: fiveshot review birds --apply mixed-up
    """
    from fiveshot.recognizer import Recognizer
    from fiveshot.recognizer.review import check_kinds

    check_kinds(apply or ())
    if apply and keep:
        raise InputError("--apply and --keep contradict each other", hint="keep photos first, then apply the rest")
    opened = answering("review", model, as_json=as_json)
    with opened as answer, Recognizer.open(model, readonly=not (apply or keep)) as recognizer:
        with status("looking at what was learned"):
            found = recognizer.review(kept=kept)
        answer.result = {"review": found.as_dict()}
        if keep:
            _keep(answer, recognizer, found, keep)
        elif apply:
            _apply(answer, recognizer, found, apply, yes=yes)
        else:
            _tell(answer, found)
            _tell_what_to_do(answer, found, model)


def _tell_what_to_do(answer: Answer, found: Review, model: Path) -> None:
    if found.suggestions:
        first = found.suggestions[0]
        answer.say(f"follow what is suggested with: fiveshot review {model} --apply {first.kind}")
        answer.say(f"or keep a photo with: fiveshot review {model} --keep {first.photo}")


def _keep(answer: Answer, recognizer: Recognizer, found: Review, ids: list[str]) -> None:
    for kind in TITLES:
        wanted = [one.photo for one in found.of([kind]) if one.photo in ids]
        if wanted:
            recognizer.keep(wanted, kind)
            answer.say(f"kept, whatever looks {kind}: {', '.join(wanted)}")
    strange = [one for one in ids if one not in {each.photo for each in found.suggestions}]
    if strange:
        raise InputError(
            f"nothing is suggested about {', '.join(strange)}",
            hint="the ids of photos that are suggested stand in the review",
            code="no_finding",
        )
    answer.result["kept"] = ids


def _apply(answer: Answer, recognizer: Recognizer, found: Review, kinds: list[str], *, yes: bool) -> None:
    wanted = found.of(kinds, sure=True)
    unsure = len(found.of(kinds)) - len(wanted)
    if unsure:
        answer.note(f"{counted(unsure, 'photo')} left for you to decide: use move, remove, or review --keep")
    if not wanted:
        answer.result["applied"] = None
        answer.say(f"nothing is surely {' or '.join(kinds)}; the model is as it was")
        return
    _tell_suggestions(answer, wanted, most=len(wanted))
    if not yes:
        if answer.as_json or not sys.stdin.isatty():
            raise InputError(
                f"nobody can be asked whether to change {counted(len(wanted), 'photo')}",
                hint="look at them first, then add --yes",
                code="not_asked",
            )
        typer.confirm(f"change {counted(len(wanted), 'photo')} as listed?", abort=True)
    done = recognizer.apply(wanted)
    answer.result["applied"] = done.as_dict()
    answer.say(f"changed {counted(len(done.ids), 'photo')}; take it back with: fiveshot undo {recognizer.path}")
    for name, count in done.counts.items():
        answer.say(f"{name}: {counted(count, 'photo')} now")


def _tell(answer: Answer, found: Review) -> None:
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
        for photo in pair.photos[:PHOTOS]:
            beside = f", most like {photo.beside}" if photo.beside else ""
            answer.say(f"  {photo.photo} of {photo.label}: taken for {photo.taken_for}{beside}")
    _tell_suggestions(answer, found.suggestions, most=SUGGESTIONS)
    if found.kept:
        answer.say(f"not suggested again, because they were kept: {found.kept} (--kept lists them)")


def _tell_classes(answer: Answer, found: Review) -> None:
    listed = found.classes[:CLASSES]
    width = max(len(one.name) for one in listed)
    answer.say(
        f"{'class':{width}}  photos  left out  with 1 more  2 more  5 more   (one more helps the first most)"
    )
    for one in listed:
        more = "  ".join(f"{percent(share, 0):>6}" for share in one.expected[2:])
        now, next_ = percent(one.accuracy, 0), percent(one.expected[1], 0)
        answer.say(f"{one.name:{width}}  {one.photos:6,}  {now:>8}  {next_:>11}  {more}")
    if len(found.classes) > len(listed):
        answer.say(f"and {len(found.classes) - len(listed):,} more classes")


def _tell_suggestions(answer: Answer, suggestions: tuple[Suggestion, ...], *, most: int) -> None:
    for kind, title in TITLES.items():
        own = [one for one in suggestions if one.kind == kind]
        if own:
            answer.say(f"{kind}: {counted(len(own), 'photo')} that {title if len(own) > 1 else _single(title)}")
        for one in own[:most]:
            action = f"move to {one.to}" if one.to else "remove"
            answer.say(f"  {one.photo} of {one.label}: {'' if one.sure else 'perhaps '}{action}; {one.reason}")
        if len(own) > most:
            answer.say(f"  and {len(own) - most:,} more")


def _single(title: str) -> str:
    """Return what several photos do, of one.

    >>> _single("are there twice"), _single("fit another class better")
    ('is there twice', 'fits another class better')
    """
    verb, rest = title.split(" ", 1)
    return f"{'is' if verb == 'are' else verb + 's'} {rest}"
