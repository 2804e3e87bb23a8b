"""What a command answers: sentences for people, or one JSON object of one shape for programs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fiveshot.cli.echo import echo, echo_json
from fiveshot.cli.stopping import Stopped
from fiveshot.cli.stored import stored_state
from fiveshot.cli.system_errors import system_errors_told
from fiveshot.errors import FiveshotError, counted

if TYPE_CHECKING:
    from fiveshot.data import BadImage

SHOWN = 5  # photos that a note names

AsJson = Annotated[
    bool,
    typer.Option("--json", help="Print one JSON object: command, model, ok (true or false), and result or error."),
]
Model = Annotated[Path, typer.Argument(metavar="MODEL", help="The directory of the model.", show_default=False)]


@dataclass
class Answer:
    """Collects what a command found: ``result`` goes to programs, what is said to people."""

    command: str
    as_json: bool
    result: dict[str, Any] = field(default_factory=dict)
    failed: bool = False

    def say(self, text: str) -> None:
        """Print a line for people."""
        if not self.as_json:
            echo(text)

    def note(self, text: str) -> None:
        """Print a remark on standard error, where it is in nobody's way."""
        echo(f"note: {text}", err=True)

    def note_bad(self, bad: Sequence[BadImage]) -> None:
        """Say which photos were left out because they cannot be read."""
        named = "; ".join(f"{photo.name} ({photo.reason})" for photo in bad[:SHOWN])
        more = f"; and {len(bad) - SHOWN} more" if len(bad) > SHOWN else ""
        self.note(f"left out {counted(len(bad), 'photo')}: {named}{more}")

    def fail(self) -> None:
        """End with status 1, although there is a result."""
        self.failed = True


@contextmanager
def answering(command: str, model: Path | None = None, *, as_json: bool) -> Iterator[Answer]:
    """Print the answer when the block ends; errors keep the shape, ``ok`` tells which it is.

    A command that is not about a model has ``null`` in its place.
    """
    answer = Answer(command, as_json)
    shape: dict[str, Any] = {"command": command, "model": None if model is None else str(model)}
    before = None if model is None else stored_state(model)
    try:
        with system_errors_told(model):
            yield answer
    except KeyboardInterrupt:
        if model is None:
            raise
        raise Stopped(_outcome(model, before)) from None
    except FiveshotError as error:
        if not as_json:
            raise
        kind = next(base.__name__ for base in type(error).__mro__ if base.__name__ in _KINDS)
        shape |= {"ok": False, "error": {"kind": kind, "message": str(error)}}
        echo_json(shape)
        raise typer.Exit(1) from error
    if as_json:
        echo_json({**shape, "ok": not answer.failed, "result": answer.result})
    if answer.failed:
        raise typer.Exit(1)


_KINDS = ("InputError", "StorageError", "FiveshotError")


def _outcome(model: Path, before: int | None) -> str:
    """Say what has become of a model that was in this state: a change is there as a whole, or not at all."""
    if stored_state(model) != before:
        return f"see what was done: fiveshot history {model}"
    return f"{model} is as it was" if model.exists() else f"{model} was not made"


def percent(share: float | None, digits: int = 1) -> str:
    """Return a share as people read it.

    >>> percent(0.934), percent(None), percent(0.05, 0)
    ('93.4 %', '-', '5 %')
    """
    return "-" if share is None else f"{100 * share:.{digits}f} %"


def file_size(size: int) -> str:
    """Return a number of bytes as people read it.

    >>> file_size(1_234), file_size(62_120_000)
    ('1.2 kB', '62.1 MB')
    """
    return f"{size / 1e3:.1f} kB" if size < 1e6 else f"{size / 1e6:.1f} MB"
