"""Loggers for benchmarks and tuning: CSV and TensorBoard.

A logger is opened from ``KIND=PLACE``. It starts a run and logs values by step; all data stay on this machine.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from typing import Any, Protocol

from fiveshot.errors import InputError, unknown_name
from fiveshot.extras import import_extra

Log = Callable[[int, Mapping[str, float | None]], None]  # step, values; None means not measured
COLUMNS = ("run", "kind", "step", "name", "value")


class RunLogger(Protocol):
    """The interface of all loggers.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> from fiveshot.loggers import CSVLogger, RunLogger
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     logger: RunLogger = CSVLogger(Path(folder) / "log.csv")
    ...     with logger.run("birds/ncm", {"seed": 0}) as log:
    ...         log(1, {"accuracy": 0.5})
    ...     print(Path(folder, "log.csv").read_text(), end="")
    run,kind,step,name,value
    birds/ncm,parameter,,seed,0
    birds/ncm,value,1,accuracy,0.5
    """

    def run(self, name: str, parameters: Mapping[str, Any]) -> AbstractContextManager[Log]:
        """Start a run; the returned function logs values until the block ends."""


class CSVLogger:
    """Adds rows to one file: a parameter or a value in each."""

    def __init__(self, place: Path) -> None:
        if place.is_dir():
            raise InputError(f"{place} is a folder", hint="name a file: --log csv=runs.csv")
        self.place = place

    @contextmanager
    def run(self, name: str, parameters: Mapping[str, Any]) -> Iterator[Log]:
        """Begin a run."""
        with _told(self.place), self.place.open("a", newline="", encoding="utf-8") as file:
            writer = csv.writer(file, lineterminator="\n")
            if file.tell() == 0:
                writer.writerow(COLUMNS)
            writer.writerows((name, "parameter", "", key, value) for key, value in _plain(parameters).items())

            def log(step: int, values: Mapping[str, float | None]) -> None:
                writer.writerows((name, "value", step, key, value) for key, value in _known(values).items())
                file.flush()  # so that the file can be read during a long run

            yield log


class TensorBoardLogger:
    """Writes an event file for each run, in a folder with the run's name."""

    def __init__(self, place: Path) -> None:
        self._summary = import_extra("tensorboard.summary", extra="tensorboard")
        self.place = place

    @contextmanager
    def run(self, name: str, parameters: Mapping[str, Any]) -> Iterator[Log]:
        """Begin a run."""
        folder = self.place / name
        with _told(folder):
            writer = self._summary.Writer(str(folder))
            # Parameters go to a separate file, because event files hold only scalars and pictures.
            (folder / "parameters.json").write_text(json.dumps(_plain(parameters), indent=1), encoding="utf-8")

            def log(step: int, values: Mapping[str, float | None]) -> None:
                for key, value in _known(values).items():
                    writer.add_scalar(key, value, step)
                writer.flush()

            try:
                yield log
            finally:
                writer.close()


KINDS: dict[str, Callable[[Path], RunLogger]] = {
    "csv": CSVLogger,
    "tensorboard": TensorBoardLogger,
}


class Loggers:
    """Several loggers as one.

    Parameters
    ----------
    places : sequence of str or RunLogger
        Texts of the form ``KIND=PLACE``, or your own loggers; an empty sequence logs nothing.

    Raises
    ------
    InputError
        If there is no such kind, or its library is not installed.

    Examples
    --------
    >>> from fiveshot.loggers import Loggers
    >>> with Loggers([]).run("birds/ncm", {}) as log:
    ...     log(1, {"accuracy": 0.5})
    >>> Loggers(["tensorbord=logs"])
    Traceback (most recent call last):
    fiveshot.errors.InputError: no logger 'tensorbord'; did you mean 'tensorboard'? choose from ...
    """

    def __init__(self, places: Sequence[str | RunLogger]) -> None:
        self._loggers = [_opened(place) if isinstance(place, str) else place for place in places]

    @contextmanager
    def run(self, name: str, parameters: Mapping[str, Any]) -> Iterator[Log]:
        """Start a run in every logger."""
        with ExitStack() as stack:
            logs = [stack.enter_context(logger.run(name, parameters)) for logger in self._loggers]

            def log(step: int, values: Mapping[str, float | None]) -> None:
                for one in logs:
                    one(step, values)

            yield log


def _opened(text: str) -> RunLogger:
    kind, equals, place = text.partition("=")
    if not equals or not place:
        raise InputError(f"--log takes KIND=PLACE, got {text!r}", hint="for example --log csv=runs.csv")
    if kind not in KINDS:
        raise unknown_name("logger", kind, KINDS)
    return KINDS[kind](Path(place))


def flat(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return nested parameters under dotted names.

    >>> flat({"gamma": 100, "calibration": {"alpha": 0.9}})
    {'gamma': 100, 'calibration.alpha': 0.9}
    """
    found: dict[str, Any] = {}
    for key, value in values.items():
        found |= flat(value, f"{prefix}{key}.") if isinstance(value, Mapping) else {f"{prefix}{key}": value}
    return found


def _plain(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return parameters under dotted names, with values that every logger accepts."""
    pairs = flat(values).items()
    return {key: value if isinstance(value, str | int | float | bool) else str(value) for key, value in pairs}


def _known(values: Mapping[str, float | None]) -> dict[str, float]:
    return {key: float(value) for key, value in values.items() if value is not None}


@contextmanager
def _told(place: Path) -> Iterator[None]:
    """Name the log in the error if it cannot be written."""
    from fiveshot.storage import attempting  # here, because it brings NumPy

    with attempting(f"log to {place}", hint="choose another --log"):
        place.parent.mkdir(parents=True, exist_ok=True)
        yield
