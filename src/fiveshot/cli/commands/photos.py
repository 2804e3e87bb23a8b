"""``fiveshot predict`` and ``evaluate``: what photos show, and how well a model sees it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fiveshot.cli.options import AsJson, Device, Model, Nested, Runtime, Sure, Weights
from fiveshot.cli.output import Answer, answering, percent
from fiveshot.cli.progress import image_bar
from fiveshot.errors import counted, some_of

if TYPE_CHECKING:
    from fiveshot.recognizer import Prediction
    from fiveshot.recognizer.evaluation import ClassResult, Evaluation, WrongPhoto
    from fiveshot.recognizer.photos.inputs import FoundClasses
    from fiveshot.recognizer.photos.photo import Photo

SHOWN = 10  # confusions and wrong photos that are listed
CLASSES = 20  # classes that are listed, the worst first


def predict(
    model: Model,
    photos: Annotated[
        list[str],
        typer.Argument(metavar="PHOTOS...", help="Files, folders, patterns, or - for standard input."),
    ],
    top: Annotated[int, typer.Option(help="Candidates that are named.")] = 3,
    sure: Sure = None,
    device: Device = "auto",
    runtime: Runtime = "auto",
    weights: Weights = None,
    as_json: AsJson = False,
) -> None:
    """Say what photos show, how sure that is, and which are unlike every class.

    Example: fiveshot predict birds holiday/*.jpg
    """
    from fiveshot.recognizer import Recognizer

    with answering("predict", model, as_json=as_json) as answer:
        found = gathered(answer, photos)
        opened = Recognizer.open(model, device=device, runtime=runtime, weights=weights, readonly=True)
        with opened as recognizer, image_bar(f"looking at {counted(len(found), 'photo')}") as progress:
            predictions = recognizer.predict(found, top=top, sure=sure, progress=progress)
        answer.result = {"predictions": [prediction.as_dict() for prediction in predictions]}
        for prediction in predictions:
            answer.say(describe(prediction))


def describe(prediction: Prediction) -> str:
    """Return one line about a photo."""
    best = prediction.candidates[0][0]
    if prediction.unknown:
        return f"{prediction.photo}: unknown (most like {best})"
    named = [f"{label} {percent(chance)}" for label, chance in prediction.candidates]
    if prediction.label is None:
        return f"{prediction.photo}: unsure (most like {', '.join(named)})"
    answer = f"{prediction.photo}: {prediction.label} {percent(prediction.probability)}"
    if prediction.answer == "group":
        return f"{answer} (most like {', '.join(named)})"
    return answer + (f" (then {', '.join(named[1:])})" if named[1:] else "")


def evaluate(
    model: Model,
    folder: Annotated[
        Path,
        typer.Argument(
            metavar="FOLDER",
            help="Class folders with photos the model has not learned; unknown classes test the rejection.",
            show_default=False,
        ),
    ],
    nested: Nested = False,
    device: Device = "auto",
    runtime: Runtime = "auto",
    weights: Weights = None,
    as_json: AsJson = False,
) -> None:
    """Measure a model on a folder of class folders.

    Example: fiveshot evaluate birds test-photos
    """
    from fiveshot.recognizer import Recognizer
    from fiveshot.recognizer.photos.inputs import find_classes

    with answering("evaluate", model, as_json=as_json) as answer:
        found = find_classes(folder, nested=nested)
        note_classes_left_out(answer, found)
        count = total(found.classes)
        opened = Recognizer.open(model, device=device, runtime=runtime, weights=weights, readonly=True)
        with opened as recognizer, image_bar(f"looking at {counted(count, 'photo')}") as progress:
            measured = recognizer.evaluate(found.classes, progress=progress)
        answer.result = measured.as_dict()
        _tell(answer, measured)
        _note(answer, measured)


def _note(answer: Answer, measured: Evaluation) -> None:
    """Say what the figures rest on, where that may not be what was meant."""
    if measured.other_folders:
        answer.note(f"folders that are no class: {some_of([str(one) for one in measured.other_folders], SHOWN)}")
    if measured.learned_photos:
        photos = counted(measured.photos + measured.unknown_photos, "photo")
        were = "was" if measured.learned_photos == 1 else "were"
        answer.note(
            f"{measured.learned_photos:,} of {photos} {were} learned, so the figures promise too much; "
            "measure on photos that the model has not seen"
        )


def _tell(answer: Answer, measured: Evaluation) -> None:
    answer.say(f"photos of known classes    {measured.photos:,}")
    answer.say(f"accuracy                   {percent(measured.accuracy)}")
    answer.say(f"  of those not rejected    {percent(measured.accepted_accuracy)}")
    answer.say(f"called unknown             {percent(measured.false_rejection)}")
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


def _tell_classes(answer: Answer, classes: Sequence[ClassResult]) -> None:
    worst = sorted(classes, key=lambda one: (one.accuracy, -one.rejected / one.photos, one.name))
    width = max(map(len, ["class", *(one.name for one in worst[:CLASSES])]))
    if worst:
        answer.say(f"{'class':{width}}  photos  accuracy  called unknown")
    for one in worst[:CLASSES]:
        rejected = percent(one.rejected / one.photos)
        answer.say(f"{one.name:{width}}  {one.photos:6,}  {percent(one.accuracy):>8}  {rejected:>14}")
    if len(worst) > CLASSES:
        answer.say(f"and {len(worst) - CLASSES:,} more classes, none worse")


def _tell_wrong(answer: Answer, wrong: Sequence[WrongPhoto]) -> None:
    for one in wrong[:SHOWN]:
        shown = f"shown as {one.shown_as}" if one.shown_as else f"called unknown (most like {one.most_like})"
        answer.say(f"{one.photo}: {shown}")
    if len(wrong) > SHOWN:
        answer.say(f"and {len(wrong) - SHOWN:,} more wrong photos; --json names all")


def gathered(answer: Answer, inputs: Sequence[str]) -> list[Photo]:
    """Return the photos that files, folders, patterns or ``-`` stand for, noting files that are not photos."""
    from fiveshot.recognizer.photos.inputs import find_photos

    found = find_photos(inputs)
    note_others(answer, found.others)
    return found.photos


def note_classes_left_out(answer: Answer, found: FoundClasses) -> None:
    """Say what was passed over in a folder of class folders: photos beside them, and other files."""
    if found.loose:
        lie = "lies" if len(found.loose) == 1 else "lie"
        photos = counted(len(found.loose), "photo")
        answer.note(f"passed over {photos} that {lie} beside the class folders: {some_of(found.loose)}")
    note_others(answer, found.others)


def note_others(answer: Answer, others: Counter[str]) -> None:
    """Say which files in folders were passed over: a photo in a format we do not read must not vanish."""
    if others:
        kinds = ", ".join(f"{suffix} ({count})" for suffix, count in sorted(others.items()))
        none = "is no photo" if others.total() == 1 else "are no photos"
        answer.note(f"passed over {counted(others.total(), 'file')} that {none} by name: {kinds}")


def total(classes: Mapping[str, Sequence[Photo]]) -> int:
    """Return the number of photos in all classes."""
    return sum(map(len, classes.values()))
