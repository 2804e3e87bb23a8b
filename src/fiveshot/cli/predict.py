"""``fiveshot predict``: what photos show."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from fiveshot.cli.answer import AsJson, Model, answering, percent
from fiveshot.cli.photo_arguments import Device, Runtime, Weights

if TYPE_CHECKING:
    from fiveshot.recognizer import Prediction


def predict(
    model: Model,
    photos: Annotated[
        list[str],
        typer.Argument(metavar="PHOTOS...", help="Files, folders, patterns, or - for standard input."),
    ],
    top: Annotated[int, typer.Option(help="Candidates that are named.")] = 3,
    device: Device = "auto",
    runtime: Runtime = "auto",
    weights: Weights = None,
    as_json: AsJson = False,
) -> None:
    """Say what photos show, how sure that is, and which are unlike every class.

    Example: fiveshot predict birds holiday/*.jpg
    """
    from fiveshot.cli.extract import extraction_bar
    from fiveshot.cli.photo_arguments import gathered, open_to_look

    with answering("predict", model, as_json=as_json) as answer:
        found = gathered(answer, photos)
        looking = open_to_look(
            model, photos=len(found), device=device, runtime=runtime, weights=weights, readonly=True
        )
        with looking as recognizer, extraction_bar() as progress:
            predictions = recognizer.predict(found, top=top, progress=progress)
        answer.result = {"predictions": [prediction.as_dict() for prediction in predictions]}
        for prediction in predictions:
            answer.say(describe(prediction))


def describe(prediction: Prediction) -> str:
    """Return one line about a photo."""
    (best, chance), *others = prediction.candidates
    if prediction.unknown:
        return f"{prediction.photo}: unknown (most like {best})"
    then = ", ".join(f"{label} {percent(other)}" for label, other in others)
    return f"{prediction.photo}: {best} {percent(chance)}" + (f" (then {then})" if then else "")
