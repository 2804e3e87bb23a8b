"""Reports of tuning: progress, one record per epoch, and the result."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from fiveshot.loggers import Log, Loggers
from fiveshot.tuning._recipes import TuneRecipe


@dataclass(frozen=True)
class TuneProgress:
    """The progress of a run.

    Parameters
    ----------
    phase : str
        ``decode``, ``selection-2`` (the second fold) or ``tuning``.
    epoch, epochs : int
        The epoch, from 1, and the number of epochs; 0 while decoding.
    done, total : int
        Images of this epoch.
    loss, accuracy : float, optional
        On the training views, so far in this epoch.
    images_per_second, seconds_left : float, optional
        How fast it goes.
    finished : EpochRecord, optional
        All measures of the epoch; given once, at its end.

    Examples
    --------
    >>> from fiveshot.tuning import TuneProgress
    >>> now = TuneProgress("tuning", epoch=2, epochs=40, done=128, total=512)
    >>> f"{now.phase}, epoch {now.epoch} of {now.epochs}: {now.done / now.total:.0%}"
    'tuning, epoch 2 of 40: 25%'
    """

    phase: str
    epoch: int
    epochs: int
    done: int
    total: int
    loss: float | None = None
    accuracy: float | None = None
    images_per_second: float | None = None
    seconds_left: float | None = None
    finished: EpochRecord | None = None


OnProgress = Callable[[TuneProgress], None]


@dataclass(frozen=True)
class FewShotScore:
    """Accuracies over all classes, from 0 to 1, with some base classes treated as new.

    Parameters
    ----------
    new : float
        Accuracy on the classes treated as new.
    old : float or None
        Accuracy on the others; None if none of their images was held out.
    harmonic : float
        Their harmonic mean; ``new`` if ``old`` is None.

    Examples
    --------
    >>> from fiveshot.tuning import FewShotScore
    >>> FewShotScore(new=0.5, old=1.0, harmonic=2 / 3).of("new")
    0.5
    """

    new: float
    old: float | None
    harmonic: float

    def of(self, metric: str) -> float:
        """Return the accuracy for this metric."""
        value: float = getattr(self, metric)
        return value


@dataclass(frozen=True)
class EpochRecord:
    """Measures of one epoch.

    Parameters
    ----------
    epoch : int
        Its number; 0 is the untrained adapter, which changes nothing.
    loss, train_accuracy : float, optional
        On the training views.
    held_out_accuracy : float, optional
        On images that were not trained on.
    few_shot : FewShotScore, optional
        With the left-out classes treated as new.
    images_per_second : float, optional
        How fast it went.

    Examples
    --------
    >>> from fiveshot.tuning import EpochRecord
    >>> record = EpochRecord(3, loss=0.7, held_out_accuracy=0.9)
    >>> record.score("held-out", "harmonic"), record.score("few-shot", "harmonic")
    (0.9, None)
    >>> EpochRecord.from_json(record.to_json()) == record
    True
    """

    epoch: int
    loss: float | None = None
    train_accuracy: float | None = None
    held_out_accuracy: float | None = None
    few_shot: FewShotScore | None = None
    images_per_second: float | None = None

    def score(self, choice: str, metric: str) -> float | None:
        """Return the measure for choosing an epoch; None if it was not measured."""
        if choice == "few-shot":
            return None if self.few_shot is None else self.few_shot.of(metric)
        return self.held_out_accuracy if choice == "held-out" else float(self.epoch)

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON values."""
        return asdict(self)

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> EpochRecord:
        """Read what ``to_json`` wrote."""
        score = values["few_shot"]
        return cls(**{**values, "few_shot": FewShotScore(**score) if score else None})


@dataclass(frozen=True)
class TuneResult:
    """A finished tuning; the frozen adapters are in the backbone and, if given, in the file ``out``.

    Parameters
    ----------
    recipe : TuneRecipe
        The recipe of the training.
    history : tuple of EpochRecord
        Epochs of the run whose adapters are kept.
    best_epoch : int
        Number of epochs of the kept adapters.
    images_per_second, seconds : float
        How fast it went, and the time of the whole call.
    out : Path, optional
        The adapter file.
    selection : tuple of tuple of EpochRecord
        Epochs of the selection runs, one tuple for each fold.

    Examples
    --------
    >>> from fiveshot.tuning import EpochRecord, TuneResult, get_recipe
    >>> history = EpochRecord(1, held_out_accuracy=0.9), EpochRecord(2, held_out_accuracy=0.8)
    >>> result = TuneResult(get_recipe("ours"), history, best_epoch=1, images_per_second=100.0, seconds=60.0)
    >>> result.best.held_out_accuracy
    0.9
    """

    recipe: TuneRecipe
    history: tuple[EpochRecord, ...]
    best_epoch: int
    images_per_second: float
    seconds: float
    out: Path | None = None
    selection: tuple[tuple[EpochRecord, ...], ...] = ()

    @property
    def best(self) -> EpochRecord:
        """Measures of the kept adapters."""
        return next(record for record in self.history if record.epoch == self.best_epoch)

    def to_json(self) -> dict[str, Any]:
        """Return the JSON values that the adapter file keeps about its training."""
        return {
            "recipe": self.recipe.to_json(),
            "best_epoch": self.best_epoch,
            "history": [record.to_json() for record in self.history],
            "selection": [[record.to_json() for record in run] for run in self.selection],
            "images_per_second": self.images_per_second,
            "seconds": self.seconds,
        }


class TuningLog:
    """Logs every epoch once, at its end, in a run for each phase, such as ``adapter/tuning``.

    On a cluster not every epoch is reported while it runs; :meth:`complete` logs the missing ones.

    Parameters
    ----------
    loggers : Loggers
        The loggers.
    name : str
        Name of the runs.
    recipe : TuneRecipe
        Parameters to log with the runs.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> from fiveshot.loggers import Loggers
    >>> from fiveshot.tuning import EpochRecord, TuneProgress, TuningLog, get_recipe
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with TuningLog(Loggers([f"csv={folder}/log.csv"]), "birds", get_recipe("ours")) as log:
    ...         log(TuneProgress("tuning", 1, 1, 8, 8, finished=EpochRecord(1, loss=0.7)))
    ...     print(Path(folder, "log.csv").read_text().splitlines()[-1])
    birds/tuning,value,1,loss,0.7
    """

    def __init__(self, loggers: Loggers, name: str, recipe: TuneRecipe) -> None:
        self._loggers, self._name, self._recipe = loggers, name, recipe
        self._stack = ExitStack()
        self._phase = ""
        self._log: Log | None = None
        self._written: set[tuple[str, int]] = set()

    def __enter__(self) -> TuningLog:
        return self

    def __exit__(self, *error: Any) -> None:
        self._stack.__exit__(*error)

    def __call__(self, now: TuneProgress) -> None:
        """Log an epoch if it has just ended."""
        if now.finished is not None:
            self._write(now.phase, now.finished)

    def complete(self, result: TuneResult) -> None:
        """Log the epochs of a finished tuning that were not reported."""
        phases = {f"selection-{number}": run for number, run in enumerate(result.selection, start=1)}
        if result.history not in result.selection:
            phases["tuning"] = result.history
        for phase, history in phases.items():
            for record in history:
                self._write(phase, record)

    def _write(self, phase: str, record: EpochRecord) -> None:
        if (phase, record.epoch) in self._written:
            return
        if self._log is None or phase != self._phase:
            self._stack.close()
            run = self._loggers.run(f"{self._name}/{phase}", self._recipe.to_json())
            self._phase, self._log = phase, self._stack.enter_context(run)
        self._written.add((phase, record.epoch))
        names = ("loss", "train_accuracy", "held_out_accuracy", "images_per_second")
        values: dict[str, float | None] = {name: getattr(record, name) for name in names}
        if record.few_shot is not None:
            values |= {f"few_shot_{name}": value for name, value in asdict(record.few_shot).items()}
        self._log(record.epoch, values)
