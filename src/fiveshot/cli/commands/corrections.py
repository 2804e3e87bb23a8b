"""``fiveshot remove`` and ``move``: photos that were learned by mistake, or as something else."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from fiveshot.cli import completion
from fiveshot.cli.options import AsJson, Model
from fiveshot.cli.output import Answer, answering
from fiveshot.cli.progress import status
from fiveshot.errors import counted, some_of

if TYPE_CHECKING:
    from fiveshot.recognizer import PhotoChange

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
        _tell_counts(answer, done)
        if not for_good:
            answer.say(f"bring {'it' if len(done.ids) == 1 else 'them'} back with: fiveshot undo {model}")


def move(
    model: Model,
    ids: Ids,
    to: Annotated[
        str,
        typer.Option(
            "--to",
            help="The class that gets them, known or new.",
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
        _tell_counts(answer, done)


def _photos(done: PhotoChange) -> str:
    return f"{counted(len(done.ids), 'photo')} ({some_of(done.ids)})"


def _tell_counts(answer: Answer, done: PhotoChange) -> None:
    for name, count in done.counts.items():
        answer.say(f"{name}: {counted(count, 'photo')} now" if count else f"{name}: gone, it has no photo left")
