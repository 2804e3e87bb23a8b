"""``fiveshot learn``: one class from photos, or many from a folder of folders."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from fiveshot.cli import completion
from fiveshot.cli.answer import AsJson, Model, answering, percent
from fiveshot.cli.photo_arguments import Device, Runtime, Weights
from fiveshot.errors import counted

if TYPE_CHECKING:
    from fiveshot.cli.answer import Answer
    from fiveshot.recognizer import LearnReport
    from fiveshot.recognizer.photo import Photo

LISTED = 20  # classes that are told one by one; of more, those with warnings


def learn(
    model: Model,
    name: Annotated[
        str,
        typer.Argument(
            metavar="NAME|FOLDER",
            help="The name of the class; or, alone, a folder of class folders to learn all of them.",
            show_default=False,
            autocompletion=completion.classes_to_add_to,
        ),
    ],
    photos: Annotated[
        list[str] | None,
        typer.Argument(metavar="[PHOTOS]...", help="Files, folders, patterns, or - for standard input."),
    ] = None,
    add: Annotated[bool, typer.Option("--add", help="Add the photos to a class that is known already.")] = False,
    new_only: Annotated[
        bool, typer.Option("--new-only", help="Of a folder, learn only the classes not known yet.")
    ] = False,
    device: Device = "auto",
    runtime: Runtime = "auto",
    weights: Weights = None,
    as_json: AsJson = False,
) -> None:
    """Learn a class from about five photos, or every class of a folder of folders: all of them or none.

    A name that begins with a dash comes after --.

    Example: fiveshot learn birds owl photos/owl

    Example: fiveshot learn birds photos
    """
    from fiveshot.cli.extract import extraction_bar
    from fiveshot.cli.photo_arguments import open_to_look, total
    from fiveshot.data.listing import some_of

    with answering("learn", model, as_json=as_json) as answer:
        classes = _classes(answer, name, photos)
        looking = open_to_look(model, photos=total(classes), device=device, runtime=runtime, weights=weights)
        with looking as recognizer, extraction_bar() as progress:
            reports = recognizer.learn_many(classes, add=add, new_only=new_only, progress=progress)
        learned = {report.name for report in reports}
        passed_over = [known for known in classes if known not in learned]
        answer.result = {"classes": [report.as_dict() for report in reports], "passed_over": passed_over}
        _tell(answer, reports)
        if passed_over:
            answer.say(f"passed over, known already: {some_of(passed_over, LISTED)}")


def _classes(answer: Answer, name: str, photos: list[str] | None) -> dict[str, list[Photo]]:
    from pathlib import Path

    from fiveshot.cli.photo_arguments import note_classes_left_out, note_left_out
    from fiveshot.errors import InputError
    from fiveshot.recognizer.class_folders import class_folders
    from fiveshot.recognizer.names import check_name
    from fiveshot.recognizer.photo_inputs import class_photos

    if photos:
        one_class = {check_name(name): class_photos(photos)}
        note_left_out(answer, photos)
        return one_class
    if not Path(name).exists():
        raise InputError(
            f"no photos of {name!r} were given, and there is no folder of that name; "
            "give NAME and PHOTOS, or a folder of class folders"
        )
    classes = class_folders(name)
    note_classes_left_out(answer, Path(name))
    return classes


def _tell(answer: Answer, reports: list[LearnReport]) -> None:
    for report in reports:
        if len(reports) <= LISTED or report.warnings:
            answer.say(describe(report))
            for warning in report.warnings:
                answer.say(f"  look again: {warning}")
    if len(reports) > 1:
        photos = sum(report.added for report in reports)
        answer.say(f"learned {counted(len(reports), 'class')} from {counted(photos, 'photo')}")


def describe(report: LearnReport) -> str:
    """Return one line about a class that was learned."""
    added = "" if report.added == report.photos else f" more, {report.photos} in all"
    learned = f"{report.name}: {counted(report.added, 'photo')}{added}"
    if report.separability is None:
        return learned
    return (
        f"{learned}; {report.verdict} (separability {report.separability:.2f}, "
        f"{percent(report.accuracy, 0)} recognised when left out, nearest class {report.nearest})"
    )
