"""What long work shows on a terminal: a line that says what is going on, then a bar. A pipe gets neither.

Nothing is drawn with rich, nor is it imported, before work has lasted half a second.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from fiveshot.cli.output import echo, erase_line, printable, show_line

if TYPE_CHECKING:
    from rich.progress import Progress as RichProgress
    from rich.progress import ProgressColumn

    from fiveshot.scale.cluster import OnClusterProgress
    from fiveshot.tuning import TuneProgress
    from fiveshot.work import Progress

PATIENCE = 0.5  # seconds before a bar is drawn

MakeColumns = Callable[[], Sequence["ProgressColumn"]]


class Bar:
    """A line of text while work begins, and a bar once it has lasted a while; both vanish at the end."""

    def __init__(self, text: str, columns: MakeColumns, *, shown: bool = True) -> None:
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
        """Show how far the work is; ``fields`` are what the columns show besides."""
        if not self._shown:
            return
        if self._drawn is None:
            if time.monotonic() - self._begun < PATIENCE:
                return
            self._drawn = self._start()
            # What was finished before the first call must not count as speed.
            self._drawn.add_task(self._text, total=total, completed=done, **fields)  # type: ignore[arg-type]
        self._drawn.update(self._drawn.task_ids[0], completed=done, total=total, **fields)

    def say(self, text: str) -> None:
        """Print a line on standard error, above the bar."""
        if self._drawn is not None:
            self._drawn.console.print(printable(text), markup=False, highlight=False, soft_wrap=True)
            return
        echo(text, err=True)
        if self._shown:
            show_line(self._text)

    def _start(self) -> RichProgress:
        from rich.console import Console
        from rich.progress import Progress

        erase_line()
        drawn = Progress(*self._columns(), console=Console(stderr=True), transient=True)
        drawn.start()
        return drawn


def status(text: str, *, shown: bool = True) -> Bar:
    """Say what is going on where no steps can be counted, until the block ends."""
    return Bar(text, tuple, shown=shown)


@contextmanager
def image_bar(text: str = "looking at images", *, shown: bool = True) -> Iterator[Progress]:
    """Show how many images are done, and how many a second."""

    def columns() -> Sequence[ProgressColumn]:
        from rich.progress import BarColumn, MofNCompleteColumn, ProgressColumn, Task, TimeRemainingColumn
        from rich.text import Text

        class Rate(ProgressColumn):
            """Images per second."""

            def render(self, task: Task) -> Text:
                return Text(f"{task.speed:,.1f} images/s" if task.speed else "")

        return BarColumn(), MofNCompleteColumn(), Rate(), TimeRemainingColumn()

    with Bar(text, columns, shown=shown) as bar:
        yield bar.update


@contextmanager
def answers_bar(text: str, *, told: bool) -> Iterator[Progress]:
    """Show the same, unless answers are told on the terminal meanwhile, which show it too."""
    if told and sys.stdout.isatty():
        with status(text):
            yield lambda done, total: None
    else:
        with image_bar(text) as progress:
            yield progress


@contextmanager
def download_bar(name: str) -> Iterator[Callable[[int, int | None], None]]:
    """Show how much of a file has come, and how fast."""

    def columns() -> Sequence[ProgressColumn]:
        from rich.progress import BarColumn, DownloadColumn, TimeRemainingColumn, TransferSpeedColumn

        return BarColumn(), DownloadColumn(), TransferSpeedColumn(), TimeRemainingColumn()

    with Bar(f"fetching {name}", columns) as bar:
        yield bar.update


@contextmanager
def cluster_bar() -> Iterator[OnClusterProgress]:
    """Show the progress of an extraction on a cluster, and what its stages manage."""

    def columns() -> Sequence[ProgressColumn]:
        from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn

        return BarColumn(), MofNCompleteColumn(), TextColumn("{task.fields[stages]}"), TimeRemainingColumn()

    with Bar("starting the cluster", columns) as bar:
        yield lambda now: bar.update(now.done, now.total, stages=now.stages())


@contextmanager
def tuning_bar(*, shown: bool) -> Iterator[Callable[[TuneProgress], None]]:
    """Show decoding and training: loss, accuracy, images per second, time left."""

    def columns() -> Sequence[ProgressColumn]:
        from rich.progress import BarColumn, TaskProgressColumn, TextColumn

        phase, text = TextColumn("{task.fields[phase]}"), TextColumn("{task.fields[text]}")
        return phase, BarColumn(), TaskProgressColumn(), text

    with Bar("reading the photos", columns, shown=shown) as bar:

        def show(now: TuneProgress) -> None:
            total, done = now.total, now.done
            if now.epochs:
                done, total = (now.epoch - 1) * now.total + now.done, now.epochs * now.total
            bar.update(done, total, phase=now.phase, text=_figures(now))

        yield show


def run_bar(text: str = "running") -> Bar:
    """Show how much of a benchmark's work is done, how many of its runs, and how long the rest takes."""

    def columns() -> Sequence[ProgressColumn]:
        from rich.progress import BarColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn

        described, runs = TextColumn("{task.description}"), TextColumn("{task.fields[runs]}")
        return described, BarColumn(), runs, TimeElapsedColumn(), TextColumn("left:"), TimeRemainingColumn()

    return Bar(text, columns)


def _figures(now: TuneProgress) -> str:
    if now.loss is None or now.accuracy is None:
        return f"{now.done}/{now.total} images"
    minutes, seconds = divmod(round(now.seconds_left or 0), 60)
    return (
        f"epoch {now.epoch}/{now.epochs}  loss {now.loss:.3f}  accuracy {100 * now.accuracy:.1f} %  "
        f"{now.images_per_second:.0f} images/s  {minutes}:{seconds:02d} left"
    )
