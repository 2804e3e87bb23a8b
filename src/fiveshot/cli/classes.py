"""``fiveshot forget``, ``rename``, ``undo`` and ``history``: classes come and go."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from fiveshot.cli import completion
from fiveshot.cli.answer import AsJson, Model, answering
from fiveshot.errors import counted

if TYPE_CHECKING:
    from fiveshot.recognizer import HistoryEntry

Name = Annotated[
    str,
    typer.Argument(
        metavar="NAME",
        help="The name of the class.",
        show_default=False,
        autocompletion=completion.classes,
    ),
]


def forget(
    model: Model,
    name: Name,
    keep_history: Annotated[
        bool, typer.Option("--keep-history", help="Keep it in the history, so that undo brings it back.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Forget a class for good: no byte of it stays in the model, unless its history is kept.

    Example: fiveshot forget birds owl
    """
    from fiveshot.recognizer import Recognizer

    with answering("forget", model, as_json=as_json) as answer, Recognizer.open(model) as recognizer:
        recognizer.forget(name, keep_history=keep_history)
        answer.result = {"name": name, "keep_history": keep_history}
        answer.say(f"forgot {name}" + (f"; bring it back with: fiveshot undo {model}" if keep_history else ""))


def rename(
    model: Model,
    old: Annotated[
        str,
        typer.Argument(metavar="OLD", help="Its name now.", show_default=False, autocompletion=completion.classes),
    ],
    new: Annotated[str, typer.Argument(metavar="NEW", help="Its name from now on.", show_default=False)],
    as_json: AsJson = False,
) -> None:
    """Give a class another name.

    Example: fiveshot rename birds owl "barn owl"
    """
    from fiveshot.recognizer import Recognizer

    with answering("rename", model, as_json=as_json) as answer, Recognizer.open(model) as recognizer:
        recognizer.rename(old, new)
        answer.result = {"old": old, "new": new}
        answer.say(f"{old} is now {new}")


def undo(
    model: Model,
    past_forget: Annotated[
        bool,
        typer.Option("--past-forget", help="Pass over a class forgotten for good, which cannot come back."),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Take back the last change.

    Example: fiveshot undo birds
    """
    from fiveshot.recognizer import Recognizer

    with answering("undo", model, as_json=as_json) as answer, Recognizer.open(model) as recognizer:
        entry = recognizer.undo(past_forget=past_forget)
        answer.result = {"undone": entry.as_dict()}
        answer.say(f"took back: {describe(entry)}")


def history(
    model: Model,
    limit: Annotated[int | None, typer.Option(help="So many of the latest changes.", min=1)] = None,
    as_json: AsJson = False,
) -> None:
    """List the changes of a model, the latest first.

    Example: fiveshot history birds --limit 5
    """
    from fiveshot.recognizer import Recognizer

    opened = answering("history", model, as_json=as_json)
    with opened as answer, Recognizer.open(model, readonly=True) as recognizer:
        entries = recognizer.history(limit)
        answer.result = {"entries": [entry.as_dict() for entry in entries]}
        for entry in entries:
            undone = " (taken back)" if entry.undone_by is not None else ""
            answer.say(f"{entry.seq:5} {entry.at} {describe(entry)}{undone}")


def describe(entry: HistoryEntry, shown: int = 5) -> str:
    """Return what a change was, in a few words."""
    from fiveshot.data.listing import some_of

    photos = f" ({counted(entry.photos, 'photo')})" if entry.photos else ""
    return f"{entry.action} {some_of(entry.classes, shown)}{photos}".rstrip()
