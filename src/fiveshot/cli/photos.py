"""``fiveshot predict``, ``evaluate`` and ``put-back``: recognize photos, and measure how well."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import Argument, Option

from fiveshot.cli import options
from fiveshot.cli.output import (
    INCOMPLETE,
    CommandOutput,
    answering,
    answering_with,
    answers_bar,
    image_bar,
    percent,
)
from fiveshot.data import Box
from fiveshot.errors import InputError, command, counted, some_of
from fiveshot.storage import require_writable
from fiveshot.values import shown_photo, to_json

if TYPE_CHECKING:
    from fiveshot.data import BadImage, Photo
    from fiveshot.recognizer import (
        ClassResult,
        Delivered,
        Evaluation,
        FoundClasses,
        OutputTargets,
        Placed,
        Recognizer,
        Regions,
        Way,
        WrongPhoto,
    )
    from fiveshot.values import Prediction

BOX_FILES = (".csv", ".json", ".txt")
WHY = 3  # similar learned photos to show
SHOWN = 10  # confusions and wrong photos to list
BY_NESTED = "; with --nested each becomes a class"
CLASSES = 20  # classes to list, the worst first


def predict(
    model: options.Model,
    photos: Annotated[
        list[str], Argument(metavar="PHOTOS...", help="Files, folders, patterns, or - for standard input.")
    ],
    top: Annotated[int, Option(metavar="N", help="Show at most N candidates.")] = 3,
    sure: options.Sure = None,
    why: Annotated[bool, Option("--why", help="Show the most similar learned photos.")] = False,
    box: options.InBox = None,
    confidence: options.Confidence = 0.2,
    bad_photos: options.BadPhotos = "report",
    out: Annotated[Path | None, Option(metavar="FILE", help="Add answers to a .csv, .jsonl or .parquet.")] = None,
    utf8_mark: Annotated[bool, Option("--utf8-mark", help="Begin a .csv with a mark for spreadsheets.")] = False,
    into: options.Into = None,
    by: options.By = None,
    dry_run: options.DryRun = False,
    xmp: Annotated[bool, Option("--xmp", help="Write labels to XMP files beside photos.")] = False,
    annotate: Annotated[
        Path | None, Option(metavar="FOLDER", help="Write copies with the answers drawn on them.")
    ] = None,
    device: options.Device = "auto",
    runtime: options.Runtime = "auto",
    weights: options.Weights = None,
    as_json: options.AsJson = False,
) -> None:
    """Say what photos show, with probabilities; photos unlike all classes are unknown.

    Example: fiveshot predict birds holiday/*.jpg
    """
    with answering("predict", model, as_json=as_json) as answer:
        check_into(into, by, dry_run=dry_run)
        if utf8_mark and out is None:
            raise InputError("--utf8-mark needs --out", hint="name a .csv file", code="unused_option")
        parts = parts_asked(box, confidence)
        if into is not None and by == "move" and parts:
            raise InputError(
                "a photo with several parts cannot be moved to several folders",
                hint="use --by copy or --by link",
                code="unused_option",
            )
        _start_decoders(model, Path(photos[0]))
        from fiveshot.recognizer import Delivery, OutputTargets

        places = OutputTargets(out, False, utf8_mark, into, by or "copy", dry_run, xmp, annotate)
        made = [folder for folder in (into, annotate) if folder is not None]
        found, count, bad = _asked(answer, photos, parts, made)
        if out is not None:
            answer.kept = f"{out} has the answers so far; the same command continues"
        opened = answer.open_model(device=device, runtime=runtime, weights=weights, readonly=True)
        strict = bad_photos == "refuse"
        if strict:
            refuse_bad(bad)
        shown: list[dict[str, Any]] = []
        with (
            opened as recognizer,
            answers_bar(f"looking at {counted(count, 'photo')}", printed=out is None) as progress,
        ):
            delivery = Delivery(recognizer, places, top=top, sure=sure, why=WHY * why, strict=strict)
            for one in delivery.run(found, total=count, progress=progress):
                if out is None or dry_run:
                    answer.say(describe(one))
                    for near in one.why:
                        answer.say(
                            f"  like {shown_photo(near.id, near.name)} of {near.label}: {near.likeness:.2f}"
                        )
                if as_json and out is None:
                    shown.append(to_json(one))
            note_no_rejection(answer, recognizer)
        done = delivery.delivered
        done.bad[:0] = bad
        if not done.answers and not done.earlier:
            refuse_bad(done.bad)
        answer.result = {"predictions": shown} if out is None else {"out": str(out), "answers": done.answers}
        tell_delivered(answer, done, places)
        answer.leave_out(done.bad, status=0 if bad_photos == "skip" else INCOMPLETE)


def _start_decoders(model: Path, first: Path) -> None:
    """Start the decoders while the rest is imported and the model is opened."""
    from fiveshot.data import decoders

    with suppress(OSError):  # errors are reported on use
        if model.is_dir() and first.exists():
            decoders().start()


def describe(prediction: Prediction) -> str:
    """Return one line about a photo, or a part of one."""
    best = prediction.candidates[0].label
    named_as = prediction.photo if prediction.box is None else f"{prediction.photo} [{Box(*prediction.box)}]"
    if prediction.unknown:
        return f"{named_as}: unknown (most like {best})"
    named = [_with_chance(one.label, one.probability) for one in prediction.candidates]
    if prediction.label is None:
        return f"{named_as}: unsure: {' or '.join(prediction.between)} ({', '.join(named)})"
    answer = f"{named_as}: {_with_chance(prediction.label, prediction.probability)}"
    if prediction.answer == "group":
        return f"{answer} (most like {', '.join(named)})"
    return answer + (f" (then {', '.join(named[1:])})" if named[1:] else "")


def _with_chance(label: str, probability: float | None) -> str:
    """Return a name with its probability; the only class of a model has none."""
    return label if probability is None else f"{label} {percent(probability)}"


def note_no_rejection(answer: CommandOutput, recognizer: Recognizer) -> None:
    """Note that a model with few photos calls no photo unknown, or only completely different things."""
    from fiveshot.recognizer import can_reject, rejects_other_things, thresholds_note

    contents = recognizer.snapshot.contents
    if not can_reject(contents) and not answer.as_json:
        named = "look-alikes get" if rejects_other_things(contents) else "every photo gets"
        answer.note(f"{thresholds_note(contents)}; until then {named} the name of a class")


def tell_delivered(answer: CommandOutput, done: Delivered, places: OutputTargets) -> None:
    """Say where the answers are."""
    if places.out is not None and not places.dry_run:
        answer.result["earlier"] = done.earlier
        before = f", after {counted(done.earlier, 'earlier answer')}" if done.earlier else ""
        answer.say(f"{places.out}: {counted(done.answers, 'answer')}{before}")
    if done.placed is not None and places.into is not None:
        tell_placed(answer, done.placed, places.into, places.way, dry_run=places.dry_run)
    if places.xmp:
        answer.result["sidecars"] = done.sidecars
        answer.say(f"wrote {counted(done.sidecars, 'sidecar')}")
    if places.pictures is not None:
        answer.result["pictures"] = done.pictures
        answer.say(f"{places.pictures}: {counted(done.pictures, 'picture')}")


def tell_placed(answer: CommandOutput, placed: Placed, into: Path, way: Way, *, dry_run: bool) -> None:
    """Say which folders the photos are in."""
    folders = dict(sorted(placed.folders.items()))
    answer.result["into"] = {"folder": str(into), "way": way, "folders": folders}
    verb = {"copy": "copied", "link": "linked", "move": "moved"}[way]
    would = "would be " if dry_run else ""
    for name, count in folders.items():
        answer.say(f"{into}/{name}: {counted(count, 'photo')} {would}{verb}")
    if placed.there:
        answer.say(f"{counted(placed.there, 'photo')} were there before")
    if not dry_run and folders:
        answer.say(f"undo it with: {command('put-back', into)}")


def put_back(
    folder: Annotated[Path, Argument(metavar="FOLDER", help="Folder that was given to --into.")],
    trust: Annotated[bool, Option("--trust", help="Trust a journal of another user or machine.")] = False,
    dry_run: Annotated[bool, Option("--dry-run", help="Only say what would be done.")] = False,
    as_json: options.AsJson = False,
) -> None:
    """Undo --into: delete copies and links, and move photos back.

    Example: fiveshot put-back sorted
    """
    from fiveshot.recognizer import put_back as undo

    with answering("put-back", as_json=as_json) as answer:
        done = undo(folder, trusted=trust, dry_run=dry_run)
        answer.result = {"undone": done.undone, "left": [list(one) for one in done.left]}
        answer.say(f"{counted(done.undone, 'photo')} {'would be ' if dry_run else ''}put back")
        for place, reason in done.left:
            answer.note(f"left {folder / place}: {reason}")
        if done.left:
            answer.status = INCOMPLETE


def evaluate(
    model: options.Model,
    folder: Annotated[
        Path,
        Argument(
            metavar="FOLDER",
            help="Class folders with photos that were not learned. Unknown classes test the rejection.",
        ),
    ],
    nested: options.Nested = False,
    box: options.InBox = None,
    confidence: options.Confidence = 0.2,
    mistakes: Annotated[
        Path | None, Option(metavar="FILE.html", help="Write a page with pictures of the mistakes.")
    ] = None,
    bad_photos: options.BadPhotos = "report",
    device: options.Device = "auto",
    runtime: options.Runtime = "auto",
    weights: options.Weights = None,
    as_json: options.AsJson = False,
) -> None:
    """Measure a model on a folder of class folders.

    Example: fiveshot evaluate birds test-photos

    Example: fiveshot evaluate birds test-photos --mistakes mistakes.html
    """
    from fiveshot.recognizer import find_classes

    if mistakes is not None:
        require_writable(mistakes)
    where = {"device": device, "runtime": runtime, "weights": weights}
    with answering_with("evaluate", model, as_json=as_json, readonly=True, **where) as (answer, recognizer):
        from fiveshot.recognizer import evaluate as evaluate_model
        from fiveshot.recognizer import picture, without_labels

        found = find_classes(folder, nested=nested, without_labels=without_labels(model, folder))
        note_classes_left_out(answer, found, way=BY_NESTED)
        classes, bad = parts_of_classes(answer, found.classes, parts_asked(box, confidence))
        strict = bad_photos == "refuse"
        if strict:
            refuse_bad(bad)
        with image_bar(f"looking at {counted(total(classes), 'photo')}") as progress:
            measured = evaluate_model(
                recognizer, classes, progress=progress, on_bad=None if strict else bad.extend
            )
        answer.result = to_json(measured)
        _tell(answer, measured)
        if mistakes is not None:
            from fiveshot.reports import write_mistakes

            photos = (photo for own in classes.values() for photo in own)
            answer.result["mistakes"] = str(
                write_mistakes(mistakes, measured, photos, partial(picture, recognizer))
            )
            answer.say(f"the mistakes are shown in {mistakes}")
        _note(answer, measured)
        answer.leave_out(bad, status=0 if bad_photos == "skip" else INCOMPLETE)


def _note(answer: CommandOutput, measured: Evaluation) -> None:
    """Warn about folders that are not classes, and about photos that were learned."""
    if measured.other_folders:
        answer.note(
            f"folders that are not classes: {some_of([str(one) for one in measured.other_folders], SHOWN)}"
        )
    if measured.learned_photos:
        photos = counted(measured.photos + measured.unknown_photos, "photo")
        were = "was" if measured.learned_photos == 1 else "were"
        answer.note(
            f"{measured.learned_photos:,} of {photos} {were} learned, so these figures are too good; "
            "use photos that were not learned"
        )


def _tell(answer: CommandOutput, measured: Evaluation) -> None:
    answer.say(f"photos of known classes    {measured.photos:,}")
    answer.say(f"accuracy                   {percent(measured.accuracy)}")
    answer.say(f"  of those not rejected    {percent(measured.accepted_accuracy)}")
    answer.say(f"called unknown             {percent(measured.false_rejection)}")
    answer.say(f"unsure between two         {percent(measured.unsure)}")
    if measured.levels is None and measured.named is not None:
        named = measured.named
        answer.say(f"answered with a name       {percent(named.share)}, of these right {percent(named.right)}")
    if measured.levels is not None:
        by_class, by_group = measured.levels.by_class, measured.levels.by_group
        answer.say(f"accuracy of the groups     {percent(measured.levels.group_accuracy)}")
        answer.say(
            f"answered with a class      {percent(by_class.share)}, of these right {percent(by_class.right)}"
        )
        answer.say(
            f"answered with a group      {percent(by_group.share)}, of these right {percent(by_group.right)}"
        )
    answer.say(f"calibration error          {percent(measured.calibration_error)}")
    if measured.unknown_photos:
        answer.say(f"photos of other classes    {measured.unknown_photos:,}")
        answer.say(f"called unknown             {percent(measured.unknown_rejection)}")
    if measured.unknown_auroc is not None:
        answer.say(f"known from unknown, AUROC  {measured.unknown_auroc:.3f}")
    for pair in measured.confusions[:SHOWN]:
        answer.say(f"{pair.count:5} of {pair.name} taken for {pair.taken_for}")
    _tell_classes(answer, measured.classes)
    _tell_wrong(answer, measured.wrong)


def _tell_classes(answer: CommandOutput, classes: Sequence[ClassResult]) -> None:
    worst = sorted(classes, key=lambda one: (one.accuracy, -one.rejected / one.photos, one.name))
    width = max(map(len, ["class", *(one.name for one in worst[:CLASSES])]))
    if worst:
        answer.say(f"{'class':{width}}  photos  accuracy  called unknown")
    for one in worst[:CLASSES]:
        rejected = percent(one.rejected / one.photos)
        answer.say(f"{one.name:{width}}  {one.photos:6,}  {percent(one.accuracy):>8}  {rejected:>14}")
    if len(worst) > CLASSES:
        answer.say(f"and {len(worst) - CLASSES:,} more classes, none worse")


def _tell_wrong(answer: CommandOutput, wrong: Sequence[WrongPhoto]) -> None:
    for one in wrong[:SHOWN]:
        unknown = one.shown_as is None and not one.between
        answer.say(f"{one.photo}: {one.answer}{f' (most like {one.most_like})' if unknown else ''}")
    if len(wrong) > SHOWN:
        answer.say(f"and {len(wrong) - SHOWN:,} more photos without the right answer; --json names all")


@dataclass(frozen=True)
class PartsAsked:
    """The parts of photos to use: the same boxes for all photos, or those in a file."""

    boxes: Sequence[Box] = ()
    file: Path | None = None
    confidence: float = 0.0

    def __bool__(self) -> bool:
        return bool(self.boxes) or self.file is not None

    def of(self, photos: Iterable[Photo]) -> Regions:
        """Return the parts of photos."""
        from fiveshot.recognizer import read_boxes, regions_in, regions_of

        if self.file is None:
            return regions_in(photos, self.boxes)
        return regions_of(photos, read_boxes(self.file, confidence=self.confidence))


def parts_asked(given: Sequence[str] | None, confidence: float) -> PartsAsked:
    """Read what --box was given: boxes, or one file of them.

    >>> str(parts_asked(["0,0,10,20"], 0.2).boxes[0])
    '0,0,10,20'
    >>> parts_asked(["boxes.csv"], 0.2).file.name
    'boxes.csv'
    """
    given = given or ()
    files = [text for text in given if Path(text).suffix.lower() in BOX_FILES or Path(text).exists()]
    if not files:
        return PartsAsked(tuple(map(Box.parse, given)))
    if len(given) > 1:
        raise InputError(f"--box {files[0]} is a file", hint="give one file, or boxes", code="unused_option")
    return PartsAsked(file=Path(files[0]), confidence=confidence)


def check_into(into: Path | None, by: str | None, *, dry_run: bool) -> None:
    """Refuse options of --into without it."""
    if into is None and (by is not None or dry_run):
        option = "--dry-run" if by is None else "--by"
        raise InputError(f"{option} needs --into", hint="add --into FOLDER, or leave it out", code="unused_option")


def _asked(
    answer: CommandOutput, inputs: Sequence[str], parts: PartsAsked, made: Sequence[Path]
) -> tuple[Iterable[Photo], int, list[BadImage]]:
    """Return the photos or parts to recognize, their number, and the boxes that cannot be used.

    Folders in ``made`` are skipped: earlier runs wrote to them.
    """
    from fiveshot.recognizer import PhotoStream

    stream = PhotoStream(inputs, but=made)
    note_others(answer, stream.others)
    if not parts:
        return stream, stream.total, []
    found = parts.of(stream)
    _note_without(answer, found)
    if not found.photos and not found.bad:
        raise InputError(f"{parts.file} has no box for these photos", hint="see what it names", code="no_box")
    return found.photos, len(found.photos), found.bad


def parts_of_classes(
    answer: CommandOutput, classes: dict[str, list[Photo]], parts: PartsAsked
) -> tuple[dict[str, list[Photo]], list[BadImage]]:
    """Return the parts to use of the photos of classes, and the boxes that cannot be used."""
    if not parts:
        return classes, []
    from fiveshot.recognizer import class_regions

    by_class, found = class_regions(classes, parts.of)
    _note_without(answer, found)
    return by_class, found.bad


def _note_without(answer: CommandOutput, found: Regions) -> None:
    if found.without:
        answer.note(f"skipped {counted(len(found.without), 'photo')} without a box: {some_of(found.without)}")


def refuse_bad(bad: Sequence[BadImage]) -> None:
    """Refuse boxes that cannot be used."""
    if bad:
        from fiveshot.recognizer import refusal

        raise refusal(bad, len(bad))


def note_classes_left_out(answer: CommandOutput, found: FoundClasses, *, way: str = "") -> None:
    """Note what was skipped in a folder of class folders, and which folders were joined.

    ``way`` says how folders in class folders become classes.
    """
    if found.inside:
        folders = some_of([f"{name} ({counted(count, 'photo')})" for name, count in found.inside.items()])
        answer.note(f"folders in class folders belong to the class: {folders}{way}")
    if found.loose:
        lie = "lies" if len(found.loose) == 1 else "lie"
        photos = counted(len(found.loose), "photo")
        answer.note(f"skipped {photos} that {lie} beside the class folders: {some_of(found.loose)}")
    note_others(answer, found.others)


def note_others(answer: CommandOutput, others: Counter[str]) -> None:
    """Note the skipped files, so that photos in other formats do not go unnoticed."""
    if others:
        kinds = ", ".join(f"{suffix} ({count})" for suffix, count in sorted(others.items()))
        are = "is not a photo" if others.total() == 1 else "are not photos"
        answer.note(f"skipped {counted(others.total(), 'file')} that {are} by name: {kinds}")


def total(classes: Mapping[str, Sequence[Photo]]) -> int:
    """Return the number of photos in all classes."""
    return sum(map(len, classes.values()))
