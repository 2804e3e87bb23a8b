"""The record of a run: configuration, raw predictions and measures, as a value and as a directory."""

from __future__ import annotations

import json
import platform
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from importlib import metadata
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np
from numpy.typing import NDArray

from fiveshot import __version__
from fiveshot.errors import StorageError
from fiveshot.metrics import RunMetrics, SessionPredictions, run_metrics
from fiveshot.storage import atomic_path

FORMAT = 1
UNSEEN = -1  # in ``predictions``: the sample's class had not come yet


@dataclass(frozen=True, eq=False)
class RunRecord:
    """One finished run. Its accuracies are computed from the predictions.

    >>> from fiveshot.benchmark import get_protocol, run
    >>> from fiveshot.features import embedded_features
    >>> record = run(get_protocol("cub200/big"), embedded_features(), "ncm")
    >>> record.method, record.seed, record.predictions.shape
    ('ncm', 0, (11, 5794))
    >>> round(record.metrics.a_last, 2)
    0.49
    """

    config: Mapping[str, Any]
    class_names: tuple[str, ...]
    session_classes: tuple[tuple[int, ...], ...]
    y_true: NDArray[np.int64]  # (n_test,)
    predictions: NDArray[np.int64]  # (n_sessions, n_test), UNSEEN where not tested
    seconds: float
    provenance: Mapping[str, Any] = field(default_factory=dict)
    versions: Mapping[str, str] = field(default_factory=lambda: installed_versions())
    calibration_error: float | None = None  # of the probabilities after the last session
    chosen: Mapping[str, Any] = field(default_factory=dict)  # by a head that chooses parameters itself

    @cached_property
    def metrics(self) -> RunMetrics:
        """All measures of the run."""
        return run_metrics(
            [
                SessionPredictions(classes, self.y_true[row != UNSEEN], row[row != UNSEEN])
                for classes, row in zip(self.session_classes, self.predictions, strict=True)
            ]
        )

    @property
    def method(self) -> str:
        """Name of the method."""
        return str(self.config["method"])

    @property
    def seed(self) -> int:
        """Seed of the shots."""
        return int(self.config["protocol"]["shot_seed"])

    def save(self, folder: Path) -> None:
        """Write the run into a folder; ``metrics.json`` comes last and marks it as finished.

        That of an earlier run goes first: what is stopped in between is a mixture, and not finished.
        """
        try:
            folder.mkdir(parents=True, exist_ok=True)
            (folder / "metrics.json").unlink(missing_ok=True)
        except OSError as error:
            raise StorageError(f"cannot write runs to {folder}: {error.strerror}; choose another --out") from error
        about = {
            "format": FORMAT,
            "config": self.config,
            "class_names": self.class_names,
            "session_classes": self.session_classes,
            "seconds": self.seconds,
            "provenance": self.provenance,
            "versions": self.versions,
            "calibration_error": self.calibration_error,
            "chosen": self.chosen,
        }
        with atomic_path(folder / "run.json") as path:
            path.write_text(json.dumps(about, indent=1), encoding="utf-8")
        with atomic_path(folder / "predictions.npz") as path, path.open("wb") as file:
            np.savez_compressed(file, y_true=self.y_true, predictions=self.predictions)
        with atomic_path(folder / "metrics.json") as path:
            path.write_text(json.dumps(self.metrics.as_dict(), indent=1), encoding="utf-8")

    @classmethod
    def load(cls, folder: Path) -> RunRecord:
        """Read a finished run."""
        if not is_finished(folder):
            raise StorageError(f"{folder} holds no finished run; start it again with the same command")
        try:
            about = json.loads((folder / "run.json").read_text(encoding="utf-8"))
            if about["format"] > FORMAT:
                raise StorageError(f"{folder} was written by a newer release; upgrade fiveshot to read it")
            # Opened here, because numpy leaves a file that is no archive open.
            with (folder / "predictions.npz").open("rb") as file, np.load(file, allow_pickle=False) as arrays:
                y_true, predictions = arrays["y_true"], arrays["predictions"]
            return cls(
                about["config"],
                tuple(about["class_names"]),
                tuple(map(tuple, about["session_classes"])),
                y_true,
                predictions,
                about["seconds"],
                about["provenance"],
                about["versions"],
                about.get("calibration_error"),  # runs of earlier releases have none
                about.get("chosen", {}),
            )
        except (OSError, ValueError, KeyError, TypeError, BadZipFile) as error:
            if isinstance(error, StorageError):
                raise
            raise StorageError(f"the run in {folder} is damaged ({error}); remove it and run again") from error


def is_finished(folder: Path) -> bool:
    """Tell whether a folder holds a finished run."""
    return (folder / "metrics.json").is_file()


def find_runs(folder: Path) -> list[RunRecord]:
    """Return all finished runs below a folder, in order of their paths.

    >>> from pathlib import Path
    >>> from tempfile import TemporaryDirectory
    >>> from fiveshot.benchmark import Job, find_runs, get_protocol, run_job
    >>> job = Job(get_protocol("cub200/big"), "ncm", "embedded:cub200")
    >>> with TemporaryDirectory() as folder:
    ...     run_job(job).save(Path(folder) / job.folder)
    ...     [(record.method, record.seed) for record in find_runs(Path(folder))]
    [('ncm', 0)]
    """
    if not folder.is_dir():
        raise StorageError(f"no such folder: {folder}; give the --out folder of a benchmark")
    found = sorted(path.parent for path in folder.rglob("metrics.json") if (path.parent / "run.json").is_file())
    if not found:
        raise StorageError(f"no finished run below {folder}; make one with: fiveshot bench --out {folder}")
    return [RunRecord.load(path) for path in found]


def installed_versions() -> dict[str, str]:
    """Return the versions a result may depend on."""
    names = ("torch", "numpy", "scipy", "scikit-learn")
    versions = {name: metadata.version(name) for name in names}
    # Its own number from the package itself: run from a source folder, it is not installed.
    return {"python": platform.python_version(), "fiveshot": __version__, **versions}
