"""The output of commands: lines, tables, JSON for programs, progress bars, and messages when stopped.

Names of files and classes may hold control codes, which must not reach a terminal. So all text for people is made
printable, also in a pipe. With ``--json`` programs get names unchanged. Progress is shown on a terminal only. rich
is imported only if work takes longer than half a second.
"""

from __future__ import annotations

import io
import json
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import wraps
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Literal, ParamSpec, TextIO, TypeVar

import typer

from fiveshot.errors import FiveshotError, StorageError, command, counted
from fiveshot.values import to_json

if TYPE_CHECKING:
    from rich.progress import Progress as RichProgress

    from fiveshot.data import BadImage
    from fiveshot.recognizer import Recognizer
    from fiveshot.reports import Table
    from fiveshot.scale import ClusterProgress
    from fiveshot.tuning import TuneProgress
    from fiveshot.work import Progress

SHOWN = 5  # photos to name in a note
TEXT_FORMATS = ("markdown", "latex", "csv")
FORMATS = ("terminal", "json", *TEXT_FORMATS)
ERASE = "\r\x1b[2K"  # go to the beginning of the line, and empty it
INCOMPLETE = 3  # exit status if some photos have no answer
LISTING = ("bad_photos", "bad_images")  # codes of errors that list photos, one in a line
MOST_LISTED = 1000  # left-out photos to list
CANNOT_ENCODE_ALL = ("strict", "surrogateescape")  # error handlers that fail on characters outside the encoding
PIPE_WIDTH = 200  # columns of a table in a pipe


_line_is_shown = False
Given = ParamSpec("Given")
Result = TypeVar("Result")

OnTuning = Callable[["TuneProgress"], None]
WORK_KEPT = "finished work is kept; the same command continues"
BAR_DELAY = 0.5  # seconds before a bar is drawn


def prepare_streams() -> None:
    """Make sure that everything can be printed.

    A command may be started without standard streams (``2>&-``). Missing streams are opened on the null device, so
    that no other file, such as a database, gets their numbers. Characters outside the encoding are printed as
    escapes.
    """
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            opened = os.open(os.devnull, os.O_RDWR)  # gets the lowest free number, which is this one
            os.set_inheritable(opened, True)
    streams: tuple[tuple[str, Literal["r", "w"]], ...] = (("stdin", "r"), ("stdout", "w"), ("stderr", "w"))
    for name, mode in streams:
        stream = getattr(sys, name)
        if stream is None:
            setattr(sys, name, nowhere(mode))
        elif mode == "w" and isinstance(stream, io.TextIOWrapper) and stream.errors in CANNOT_ENCODE_ALL:
            stream.reconfigure(errors="backslashreplace")


def nowhere(mode: Literal["r", "w"]) -> TextIO:
    """Open the null device in place of a standard stream."""
    return Path(os.devnull).open(mode, encoding="utf-8", errors="backslashreplace")


def is_missing(stream: IO[str]) -> bool:
    """Tell whether the command was started without this stream."""
    return getattr(stream, "name", None) == os.devnull


def echo(text: object, *, err: bool = False) -> None:
    """Print one line on standard output, or on standard error. A note that cannot be written stops no work."""
    erase_line()
    try:
        typer.echo(printable(str(text)), err=err)
    except OSError:
        if not err:
            raise
        sys.stderr = nowhere("w")  # as if the command had been started without it


def show_line(text: str) -> None:
    """Show the present step on a terminal; the next output replaces this line."""
    global _line_is_shown
    if sys.stderr.isatty():
        sys.stderr.write(f"{ERASE}{printable(text)} ...")
        sys.stderr.flush()
        _line_is_shown = True


def erase_line() -> None:
    """Erase the line with the present step."""
    global _line_is_shown
    if _line_is_shown:
        sys.stderr.write(ERASE)
        sys.stderr.flush()
        _line_is_shown = False


def echo_json(value: object) -> None:
    """Print a value as JSON, in ASCII, so that names arrive exactly and without control codes."""
    erase_line()
    # DEL is the only control code that JSON does not escape.
    text = json.dumps(value, indent=1).replace("\x7f", "\\u007f")
    typer.echo(text)


def echo_error(error: FiveshotError) -> None:
    """Print an error and its hint on standard error."""
    lines = f"error: {error}".split("\n") if error.code in LISTING else [f"error: {error}"]
    for line in lines:
        echo(line, err=True)


def printable(text: str) -> str:
    """Return text as one line that is safe for a terminal: line ends, control codes and odd bytes become escapes.

    >>> printable("a\\x1b[31m\\n\\udcff.jpg")
    'a\\\\x1b[31m\\\\n\\\\udcff.jpg'
    """
    return "".join(one if one.isprintable() else ascii(one)[1:-1] for one in text)


def percent(share: float | None, digits: int = 1) -> str:
    """Return a share in percent.

    >>> percent(0.934), percent(None), percent(0.05, 0)
    ('93.4 %', '-', '5 %')
    """
    return "-" if share is None else f"{100 * share:.{digits}f} %"


def file_size(size: int) -> str:
    """Return a number of bytes in readable form.

    >>> file_size(1_234), file_size(62_120_000)
    ('1.2 kB', '62.1 MB')
    """
    return f"{size / 1e3:.1f} kB" if size < 1e6 else f"{size / 1e6:.1f} MB"


@dataclass
class CommandOutput:
    """Collects the ``result`` of a command for programs, and prints lines for people."""

    command: str
    as_json: bool
    model: Path | None = None
    state: int | None = None  # of the model when it was opened
    result: dict[str, Any] = field(default_factory=dict)
    status: int = 0  # exit status
    kept: str = ""  # what was kept if the command is stopped

    def open_model(self, **opening: Any) -> Recognizer:
        """Open the model that the command is about; ``opening`` is as for ``Recognizer.open``."""
        from fiveshot.recognizer import Recognizer

        assert self.model is not None
        opened = Recognizer.open(self.model, **opening)
        self.state = opened.snapshot.state
        return opened

    def say(self, text: str) -> None:
        """Print a line for people."""
        if not self.as_json:
            echo(text)

    def note(self, text: str) -> None:
        """Print a note on standard error."""
        echo(f"note: {text}", err=True)

    def note_bad(self, bad: Sequence[BadImage]) -> None:
        """Name the photos that were skipped because they cannot be read."""
        named = "; ".join(f"{photo.name} ({photo.reason})" for photo in bad[:SHOWN])
        more = f"; and {len(bad) - SHOWN} more" if len(bad) > SHOWN else ""
        self.note(f"left out {counted(len(bad), 'photo')}: {named}{more}")

    def leave_out(self, bad: Sequence[BadImage], *, status: int = INCOMPLETE) -> None:
        """List the photos that cannot be used, and set the exit status."""
        self.result["left_out"] = to_json(bad)
        for photo in bad[:MOST_LISTED]:
            echo(f"left out: {photo.name}: {photo.reason}", err=True)
        more = f"; the first {MOST_LISTED:,} are listed, --json names all" if len(bad) > MOST_LISTED else ""
        if bad:
            self.status = status
            self.note(f"{counted(len(bad), 'photo')} cannot be used{more}")


@contextmanager
def answering(command: str, model: Path | None = None, *, as_json: bool) -> Iterator[CommandOutput]:
    """Print the answer as JSON when the block ends. Errors have the same shape, with ``ok`` false.

    ``model`` is ``null`` for commands without a model.
    """
    answer = CommandOutput(command, as_json, model)
    shape: dict[str, Any] = {"command": command, "model": None if model is None else str(model)}
    began_with_model = False
    if model is not None:
        from fiveshot.recognizer import is_model

        began_with_model = is_model(model)
    try:
        with report_system_errors(model):
            yield answer
    except KeyboardInterrupt:
        if model is None:
            raise
        kept = f"; {answer.kept}" if answer.kept else ""
        raise Stopped(_outcome(model, answer.state, began_with_model) + kept) from None
    except FiveshotError as error:
        if not as_json:
            raise
        echo_json({**shape, "ok": False, "error": error.as_dict()})
        raise typer.Exit(1) from error
    if as_json:
        echo_json({**shape, "ok": not answer.status, "result": answer.result})
    if answer.status:
        raise typer.Exit(answer.status)


@contextmanager
def answering_with(
    command: str, model: Path, *, as_json: bool, **opening: Any
) -> Iterator[tuple[CommandOutput, Recognizer]]:
    """Do the same with an open model; ``opening`` is as for ``Recognizer.open``."""
    with answering(command, model, as_json=as_json) as answer, answer.open_model(**opening) as recognizer:
        yield answer, recognizer


def _outcome(model: Path, opened: int | None, began_with_model: bool) -> str:
    """Say whether the model has changed.

    ``opened`` is its state when it was opened, None if it was not.
    """
    from fiveshot.recognizer import stored_state

    if not (began_with_model and opened is None) and stored_state(model) != opened:
        return f"see the last changes: {command('history', model)}"
    return f"{model} did not change" if model.exists() else f"{model} was not created"


def check_format(output: str) -> str:
    """Return a format of tables; refuse an unknown one."""
    if output not in FORMATS:
        from fiveshot.errors import unknown_name

        raise unknown_name("format", output, FORMATS)
    return output


def print_table(table: Table, output: str) -> None:
    """Print a table of results on standard output, in one of the formats."""
    from fiveshot import reports

    if check_format(output) == "terminal":
        from rich.console import Console

        Console(width=None if sys.stdout.isatty() else PIPE_WIDTH).print(reports.as_rich(_readable(table)))
    else:
        written = {"markdown": reports.as_markdown, "latex": reports.as_latex, "csv": reports.as_csv}
        for line in written[output](table).split("\n"):
            echo(line)


def _readable(table: Table) -> Table:
    """Return the table with printable names, before column widths are computed."""
    from dataclasses import replace

    from fiveshot.reports import Row

    def safe(row: Row) -> Row:
        cells = tuple(printable(cell) if isinstance(cell, str) else cell for cell in row.cells)
        return Row(cells, printable(row.block))

    columns = (
        replace(column, name=printable(column.name), group=printable(column.group)) for column in table.columns
    )
    return replace(
        table,
        title=printable(table.title),
        columns=tuple(columns),
        rows=tuple(map(safe, table.rows)),
        notes=tuple(map(printable, table.notes)),
    )


class Stopped(Exception):  # noqa: N818  # an interrupt is not an error
    """A command was stopped by Ctrl-C; the text says what was kept."""


def when_stopped(text: str) -> Callable[[Callable[Given, Result]], Callable[Given, Result]]:
    """Let a command print this text when it is stopped.

    >>> @when_stopped("half of the table is laid")
    ... def lay_the_table():
    ...     raise KeyboardInterrupt
    >>> lay_the_table()
    Traceback (most recent call last):
    fiveshot.cli.output.Stopped: half of the table is laid
    """

    def decorate(command: Callable[Given, Result]) -> Callable[Given, Result]:
        @wraps(command)
        def run(*arguments: Given.args, **options: Given.kwargs) -> Result:
            try:
                return command(*arguments, **options)
            except KeyboardInterrupt:
                raise Stopped(text) from None

        return run

    return decorate


@contextmanager
def report_system_errors(model: Path | None = None) -> Iterator[None]:
    """Turn errors of the system in this block into a ``StorageError`` with the file and the reason.

    Errors of the program keep their traceback.

    >>> with report_system_errors():
    ...     open("no/such/file")
    Traceback (most recent call last):
    fiveshot.errors.StorageError: cannot use no/such/file: No such file or directory
    """
    try:
        yield
    except (FiveshotError, BrokenPipeError):  # a broken pipe is not an error: the reader has ended
        raise
    except Exception as error:
        told = _of_files(error, model) if isinstance(error, OSError) else _of_database(error, model)
        if told is None:
            raise
        raise told from error


def _of_files(error: OSError, model: Path | None) -> StorageError:
    reason = " ".join((error.strerror or str(error) or type(error).__name__).split())
    if isinstance(error.filename, str | bytes):
        return StorageError(f"cannot use {os.fsdecode(error.filename)}: {reason}")
    return StorageError(f"cannot continue{f' with {model}' if model else ''}: {reason}")


def _of_database(error: Exception, model: Path | None) -> StorageError | None:
    sqlite3 = sys.modules.get("sqlite3")  # without the import there are no database errors
    if sqlite3 is None or not isinstance(error, sqlite3.Error):
        return None
    if isinstance(error, sqlite3.ProgrammingError | sqlite3.InterfaceError):
        return None
    if model is None:
        return StorageError(f"a database cannot be used: {error}")
    from fiveshot.recognizer import database_error

    return database_error(model, error)


class Bar:
    """Progress on a terminal: first a line of text, later a bar; both are erased at the end.

    The columns are names of rich classes, or texts with fields of the task.
    """

    def __init__(self, text: str, *columns: str, shown: bool = True) -> None:
        self._text, self._columns = text, columns
        self._shown = shown and sys.stderr.isatty()
        self._begun = time.monotonic()
        self._drawn: RichProgress | None = None

    def __enter__(self) -> Bar:
        if self._shown:
            show_line(self._text)
        return self

    def __exit__(self, *_: object) -> None:
        erase_line()
        if self._drawn is not None:
            self._drawn.stop()

    def update(self, done: float, total: float | None, **fields: Any) -> None:
        """Show the progress; ``fields`` are values for the columns."""
        if not self._shown:
            return
        if self._drawn is None:
            if time.monotonic() - self._begun < BAR_DELAY:
                return
            self._drawn = self._start()
            # Work done before the first call must not count as speed.
            self._drawn.add_task(self._text, total=total, completed=done, rate="", **fields)  # type: ignore[arg-type]
        (task,) = self._drawn.tasks
        rate = f"{task.speed:,.1f} images/s" if task.speed else ""
        self._drawn.update(task.id, completed=done, total=total, rate=rate, **fields)

    def say(self, text: str) -> None:
        """Print a line on standard error, above the bar."""
        if self._drawn is not None:
            self._drawn.console.print(printable(text), markup=False, highlight=False, soft_wrap=True)
            return
        echo(text, err=True)
        if self._shown:
            show_line(self._text)

    def _start(self) -> RichProgress:
        from rich import progress
        from rich.console import Console

        erase_line()
        columns = [getattr(progress, one)() if hasattr(progress, one) else one for one in self._columns]
        drawn = progress.Progress(*columns, console=Console(stderr=True), transient=True)
        drawn.start()
        return drawn


def status(text: str) -> Bar:
    """Show a text until the block ends."""
    return Bar(text)


@contextmanager
def image_bar(text: str = "reading images", *, shown: bool = True) -> Iterator[Progress]:
    """Show the number of finished images, and images per second."""
    columns = ("BarColumn", "MofNCompleteColumn", "{task.fields[rate]}", "TimeRemainingColumn")
    with Bar(text, *columns, shown=shown) as bar:
        yield bar.update


@contextmanager
def answers_bar(text: str, *, printed: bool) -> Iterator[Progress]:
    """Show the same, unless answers are printed on the terminal, which show the progress, too."""
    if printed and sys.stdout.isatty():
        with status(text):
            yield lambda done, total: None
    else:
        with image_bar(text) as progress:
            yield progress


@contextmanager
def download_bar(name: str) -> Iterator[Callable[[int, int | None], None]]:
    """Show the progress and speed of a download."""
    columns = ("BarColumn", "DownloadColumn", "TransferSpeedColumn", "TimeRemainingColumn")
    with Bar(f"fetching {name}", *columns) as bar:
        yield bar.update


@contextmanager
def cluster_bar() -> Iterator[Callable[[ClusterProgress], None]]:
    """Show the progress of an extraction on a cluster, and the speed of its stages."""
    columns = ("BarColumn", "MofNCompleteColumn", "{task.fields[stages]}", "TimeRemainingColumn")
    with Bar("starting the cluster", *columns) as bar:
        yield lambda now: bar.update(now.done, now.total, stages=now.stages())


@contextmanager
def tuning_bar(*, shown: bool, log: OnTuning | None = None) -> Iterator[OnTuning]:
    """Show loss, accuracy, images per second and time left of a training; also call ``log``."""
    columns = ("{task.fields[phase]}", "BarColumn", "TaskProgressColumn", "{task.fields[text]}")
    with Bar("reading the photos", *columns, shown=shown) as bar:

        def show(now: TuneProgress) -> None:
            total, done = now.total, now.done
            if now.epochs:
                done, total = (now.epoch - 1) * now.total + now.done, now.epochs * now.total
            bar.update(done, total, phase=now.phase, text=_figures(now))
            if log is not None:
                log(now)

        yield show


def run_bar(text: str = "running") -> Bar:
    """Show the progress of a benchmark, its finished runs and the time left."""
    columns = ("BarColumn", "{task.fields[runs]}", "TimeElapsedColumn", "left:", "TimeRemainingColumn")
    return Bar(text, "{task.description}", *columns)


def _figures(now: TuneProgress) -> str:
    if now.loss is None or now.accuracy is None:
        return f"{now.done}/{now.total} images"
    minutes, seconds = divmod(round(now.seconds_left or 0), 60)
    return (
        f"epoch {now.epoch}/{now.epochs}  loss {now.loss:.3f}  accuracy {100 * now.accuracy:.1f} %  "
        f"{now.images_per_second:.0f} images/s  {minutes}:{seconds:02d} left"
    )
