"""``fiveshot correct``, ``remove`` and ``move``: photos that were learned by mistake, or as something else."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from fiveshot.cli import completion
from fiveshot.cli.commands.photos import note_others
from fiveshot.cli.options import AsJson, Device, Model, Runtime, Weights
from fiveshot.cli.output import Answer, answering
from fiveshot.cli.progress import image_bar, status
from fiveshot.errors import counted, some_of

if TYPE_CHECKING:
    from fiveshot.recognizer import PhotoChange
    from fiveshot.recognizer.photos.photo import Photo

Ids = Annotated[
    list[str],
    typer.Argument(metavar="ID", help="Ids of photos, such as p17: 'fiveshot show MODEL NAME' lists them."),
]
Of = Annotated[
    str | None,
    typer.Option(
        "--of", help="The class they are taken to be in: else nothing is done.", autocompletion=completion.classes
    ),
]


def correct(
    model: Model,
    photo: Annotated[
        str,
        typer.Argument(
            metavar="PHOTO",
            help="A photo, or a folder or pattern of photos that show the same.",
            show_default=False,
        ),
    ],
    name: Annotated[
        str,
        typer.Argument(
            metavar="NAME",
            help="What it shows: a class, known or new, or 'none of these'.",
            show_default=False,
            autocompletion=completion.classes,
        ),
    ],
    device: Device = "auto",
    runtime: Runtime = "auto",
    weights: Weights = None,
    as_json: AsJson = False,
) -> None:
    """Say what a photo shows: it is learned, or moved from where it was learned before.

    Example: fiveshot correct birds garden.jpg wren
    """
    from fiveshot.recognizer import Recognizer

    with answering("correct", model, as_json=as_json) as answer:
        found = found_photos(answer, [photo])
        opened = Recognizer.open(model, device=device, runtime=runtime, weights=weights)
        with opened as recognizer, image_bar(f"looking at {counted(len(found), 'photo')}") as progress:
            done = recognizer.correct(found, name, progress=progress)
        answer.result = done.as_dict()
        answer.say(f"{_photos(done)}: {name}")
        tell_counts(answer, done)


def remove(
    model: Model,
    ids: Ids,
    of: Of = None,
    for_good: Annotated[
        bool, typer.Option("--for-good", help="Erase them to the last byte: this cannot be undone.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Take photos out of the classes they were learned for; undo brings them back.

    Example: fiveshot remove birds p17 p21
    """
    from fiveshot.recognizer import Recognizer

    with answering("remove", model, as_json=as_json) as answer:
        with status("removing photos"), Recognizer.open(model) as recognizer:  # may wait for those who read
            done = recognizer.remove(ids, of=of, for_good=for_good)
        answer.result = done.as_dict() | {"for_good": for_good}
        answer.say(f"{'erased' if for_good else 'removed'} {_photos(done)}")
        tell_counts(answer, done)
        if not for_good:
            answer.say(f"bring {'it' if len(done.ids) == 1 else 'them'} back with: fiveshot undo {model}")


def move(
    model: Model,
    ids: Ids,
    to: Annotated[
        str,
        typer.Option(
            "--to",
            help="The class that gets them, known or new; or 'none of these'.",
            autocompletion=completion.classes,
            show_default=False,
        ),
    ],
    of: Of = None,
    as_json: AsJson = False,
) -> None:
    """Give photos to another class, as if they had been learned for it.

    Example: fiveshot move birds p17 p21 --to wren
    """
    from fiveshot.recognizer import Recognizer

    with answering("move", model, as_json=as_json) as answer, Recognizer.open(model) as recognizer:
        done = recognizer.move(ids, to=to, of=of)
        answer.result = done.as_dict() | {"to": to}
        answer.say(f"moved {_photos(done)} to {to}")
        tell_counts(answer, done)


def found_photos(answer: Answer, inputs: list[str]) -> list[Photo]:
    """Return the photos that files, folders or patterns stand for, noting files that are not photos."""
    from fiveshot.recognizer.photos.inputs import find_photos

    found = find_photos(inputs, one_class=True)
    note_others(answer, found.others)
    return found.photos


def _photos(done: PhotoChange) -> str:
    return f"{counted(len(done.ids), 'photo')} ({some_of(done.ids)})"


def tell_counts(answer: Answer, done: PhotoChange) -> None:
    """Say how many photos the classes have now."""
    for name, count in done.counts.items():
        answer.say(f"{name}: {counted(count, 'photo')} now" if count else f"{name}: gone, it has no photo left")
