"""``fiveshot evaluate``: how well a model recognises labelled photos."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fiveshot.cli.answer import AsJson, Model, answering, percent
from fiveshot.cli.photo_arguments import Device, Runtime, Weights

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fiveshot.cli.answer import Answer
    from fiveshot.recognizer.evaluation import ClassResult, Evaluation, WrongPhoto

SHOWN = 10  # confusions and wrong photos that are listed
CLASSES = 20  # classes that are listed, the worst first


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
    device: Device = "auto",
    runtime: Runtime = "auto",
    weights: Weights = None,
    as_json: AsJson = False,
) -> None:
    """Measure a model on a folder of class folders.

    Example: fiveshot evaluate birds test-photos
    """
    from fiveshot.cli.extract import extraction_bar
    from fiveshot.cli.photo_arguments import note_classes_left_out, open_to_look, total
    from fiveshot.recognizer.class_folders import class_folders

    with answering("evaluate", model, as_json=as_json) as answer:
        count = total(class_folders(folder))
        note_classes_left_out(answer, folder)
        looking = open_to_look(model, photos=count, device=device, runtime=runtime, weights=weights, readonly=True)
        with looking as recognizer, extraction_bar() as progress:
            measured = recognizer.evaluate(folder, progress=progress)
        answer.result = measured.as_dict()
        _tell(answer, measured)
        _note(answer, measured)


def _note(answer: Answer, measured: Evaluation) -> None:
    """Say what the figures rest on, where that may not be what was meant."""
    from fiveshot.data.listing import some_of
    from fiveshot.errors import counted

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
