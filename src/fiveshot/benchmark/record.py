"""The record of a run (configuration, raw predictions, measures), and summaries over several seeds."""

from __future__ import annotations

import json
import platform
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, fields
from functools import cached_property
from importlib import metadata
from pathlib import Path
from typing import Any, NamedTuple
from zipfile import BadZipFile

import numpy as np
from numpy.typing import NDArray

from fiveshot import __version__
from fiveshot.errors import InputError, StorageError, command, is_number
from fiveshot.heads import TunedHead
from fiveshot.metrics import (
    RunMetrics,
    SessionPredictions,
    Spread,
    TradeOff,
    mean_std,
    resampled_measures,
    run_metrics,
)
from fiveshot.storage import atomic_path, attempting

FORMAT = 3
ARRAYS = ("y_true", "predictions")  # in a file of their own
UNSEEN = -1  # in ``predictions``: the sample's class was not learned yet
SEEDS = ("random_state",)  # parameters that are set to the seed of the shots
EPISODE_DEFAULTS = {"shots": 5, "episodes": 8}  # defaults of heads that tune themselves


class SessionImages(NamedTuple):
    """The number of images of a session's own classes; published splits of one dataset differ in it.

    Attributes
    ----------
    train, test : int
        Images to learn from, and to be tested on.

    Examples
    --------
    >>> from fiveshot.benchmark import SessionImages
    >>> SessionImages(3000, 2864).test
    2864
    """

    train: int
    test: int


@dataclass(frozen=True, eq=False)
class RunRecord:
    """One finished run. Its accuracies are computed from the predictions.

    Attributes
    ----------
    config : mapping
        Everything that affects the numbers.
    class_names : tuple of str
        The names of all classes.
    session_classes : tuple of tuple of int
        Label indices of the new classes of each session.
    y_true : ndarray of shape (n_test,)
        True labels.
    predictions : ndarray of shape (n_sessions, n_test)
        Predicted labels after each session; -1 if the sample's class was not learned yet.
    train_counts : tuple of int
        Training images of each session.
    seconds : float
        Time for learning and predicting.
    provenance, versions : mapping
        Origin of the features, and versions of the libraries.
    calibration : tuple of float
        Expected calibration error of the probabilities after each session.
    trade_off : TradeOff or None
        Between base and new classes after the last session; None without new classes.
    chosen : mapping
        Parameters that the head has chosen itself.

    Examples
    --------
    >>> from fiveshot.benchmark import get_protocol, run
    >>> from fiveshot.features import embedded_features
    >>> record = run(get_protocol("cub200/big"), embedded_features(), "ncm")
    >>> record.method, record.seed, record.predictions.shape
    ('ncm', 0, (11, 5794))
    >>> round(record.metrics.a_last, 2)
    0.72
    >>> record.images[:2]
    (SessionImages(train=2997, test=2885), SessionImages(train=50, test=296))
    """

    config: Mapping[str, Any]
    class_names: tuple[str, ...]
    session_classes: tuple[tuple[int, ...], ...]
    y_true: NDArray[np.int64]
    predictions: NDArray[np.int64]
    train_counts: tuple[int, ...]
    seconds: float
    provenance: Mapping[str, Any] = field(default_factory=dict)
    versions: Mapping[str, str] = field(default_factory=lambda: installed_versions())
    calibration: tuple[float, ...] = ()
    trade_off: TradeOff | None = None
    chosen: Mapping[str, Any] = field(default_factory=dict)

    @cached_property
    def metrics(self) -> RunMetrics:
        """All measures of the run."""
        return run_metrics(
            [
                SessionPredictions(classes, self.y_true[row != UNSEEN], row[row != UNSEEN])
                for classes, row in zip(self.session_classes, self.predictions, strict=True)
            ]
        )

    @cached_property
    def resampled(self) -> dict[str, NDArray[np.float64]]:
        """Measures on resampled test images; all heads tested on these images use the same resamples."""
        rng = np.random.default_rng(0)
        return resampled_measures(self.y_true, self.predictions, self.session_classes, rng=rng)

    @property
    def images(self) -> tuple[SessionImages, ...]:
        """Training and test images of the new classes of each session."""
        pairs = zip(self.train_counts, self.session_classes, strict=True)
        return tuple(SessionImages(count, int(np.isin(self.y_true, own).sum())) for count, own in pairs)

    @property
    def area(self) -> float | None:
        """Area under the base/new trade-off, or None without new classes."""
        return None if self.trade_off is None else self.trade_off.area

    @property
    def method(self) -> str:
        """Name of the method."""
        return str(self.config["method"])

    @property
    def flavor(self) -> str:
        """Form of the method's recipe."""
        return str(self.config["flavor"])

    @property
    def seed(self) -> int:
        """Seed of the shots."""
        return int(self.config["protocol"]["shot_seed"])

    @property
    def head(self) -> tuple[str, dict[str, Any]]:
        """Class and parameters of the head without seeds; for a self-tuning head, those of the inner head."""
        head = self.config["head"]
        kind, parameters = head["class"], dict(head["parameters"])
        if kind == TunedHead.__name__:
            inside = dict(parameters["head"])
            played = {key: parameters[key] for key in EPISODE_DEFAULTS}
            kind = inside.pop("type")
            parameters = {
                **_with_auto(inside, parameters["auto"]),
                **({} if played == EPISODE_DEFAULTS else played),
            }
        return kind, {key: value for key, value in parameters.items() if key not in SEEDS}

    def logged(self) -> Iterator[tuple[int, dict[str, float | None]]]:
        """Yield the measures after each session, for loggers; the last also has those of the whole run."""
        metrics, last = self.metrics, len(self.session_classes) - 1
        for session in metrics.sessions:
            values: dict[str, float | None] = {
                name: getattr(session, name) for name in ("accuracy", "a_old", "a_new", "a_hm")
            }
            values["calibration_error"] = self.calibration[session.number] if self.calibration else None
            if session.number == last:
                values |= {"a_last": metrics.a_last, "a_inc": metrics.a_inc, "a_hm_mean": mean_hm(metrics)}
                values |= {"g_acc": metrics.g_acc, "forgetting": metrics.forgetting.mean, "seconds": self.seconds}
                values["trade_off_area"] = self.area
            yield session.number, values

    def save(self, folder: Path) -> None:
        """Write the run into a folder; ``metrics.json`` is written last and marks the run as finished.

        An earlier ``metrics.json`` is removed first, so that a mixture of two runs never counts as finished.
        """
        with attempting(f"write runs to {folder}", hint="choose another --out"):
            folder.mkdir(parents=True, exist_ok=True)
            (folder / "metrics.json").unlink(missing_ok=True)
        about = {entry.name: getattr(self, entry.name) for entry in fields(self) if entry.name not in ARRAYS}
        about |= {"format": FORMAT, "trade_off": self.trade_off and asdict(self.trade_off)}
        with atomic_path(folder / "run.json") as path:
            path.write_text(json.dumps(about, indent=1), encoding="utf-8")
        with atomic_path(folder / "predictions.npz") as path, path.open("wb") as file:
            np.savez_compressed(file, **{name: getattr(self, name) for name in ARRAYS})
        with atomic_path(folder / "metrics.json") as path:
            path.write_text(json.dumps(self.metrics.as_dict(), indent=1), encoding="utf-8")

    @classmethod
    def load(cls, folder: Path) -> RunRecord:
        """Read a finished run."""
        if not is_finished(folder):
            raise StorageError(f"{folder} holds no finished run", hint="start it again with the same command")
        try:
            about = json.loads((folder / "run.json").read_text(encoding="utf-8"))
            if about["format"] != FORMAT:
                raise StorageError(f"{folder} was written by another release", hint="remove it and run again")
            # Opened here, because NumPy leaves a file open if it is not an archive.
            with (folder / "predictions.npz").open("rb") as file, np.load(file, allow_pickle=False) as arrays:
                about |= {name: arrays[name] for name in ARRAYS}
            about |= {name: tuple(about[name]) for name in ("class_names", "train_counts", "calibration")}
            about["session_classes"] = tuple(map(tuple, about["session_classes"]))
            about["trade_off"] = about["trade_off"] and TradeOff(**about["trade_off"])
            return cls(**{entry.name: about[entry.name] for entry in fields(cls)})
        except StorageError:
            raise
        except (OSError, ValueError, KeyError, TypeError, BadZipFile) as error:
            raise StorageError(
                f"the run in {folder} is damaged ({error})", hint="remove it and run again"
            ) from error


@dataclass(frozen=True)
class Summary:
    """A method's row in a table: fractions and seconds with their spread over seeds.

    Attributes
    ----------
    method, flavor : str
        The method and the form of its recipe.
    seeds : tuple of int
        Seeds of the shots.
    a_hm : tuple of Spread or None
        After session 1, 2, ...
    a_hm_mean : Spread or None
        Averaged over the sessions of a run; None when there is only session 0.
    accuracy : tuple of Spread
        After session 0, 1, ...
    a_old, a_new : Spread or None
        After the last session; None if it is not defined.
    a_last, a_inc, seconds : Spread
        Over the whole run.
    g_acc, forgetting, area : Spread or None
        gAcc, average forgetting, and the area of the base/new trade-off.
    calibration : tuple of Spread
        Expected calibration error after session 0, 1, ...
    alpha : float or None
        Alpha of the method's calibration, if it has one.
    images : tuple of SessionImages
        Training and test images of the classes of session 0, 1, ...
    versions : tuple of str
        Versions of fiveshot that made the runs.

    Examples
    --------
    >>> from fiveshot.benchmark import get_protocol, run, summarize_runs
    >>> from fiveshot.features import embedded_features
    >>> summary = summarize_runs([run(get_protocol("cub200/big"), embedded_features(), "ncm")])
    >>> summary.method, summary.seeds, len(summary.a_hm), len(summary.accuracy)
    ('ncm', (0,), 10, 11)
    """

    method: str
    flavor: str
    seeds: tuple[int, ...]
    a_hm: tuple[Spread | None, ...]
    a_hm_mean: Spread | None
    accuracy: tuple[Spread, ...]
    a_old: Spread | None
    a_new: Spread | None
    a_last: Spread
    a_inc: Spread
    seconds: Spread
    g_acc: Spread | None = None
    forgetting: Spread | None = None
    area: Spread | None = None
    calibration: tuple[Spread, ...] = ()
    alpha: float | None = None
    images: tuple[SessionImages, ...] = ()
    versions: tuple[str, ...] = ()


def summarize_runs(records: Sequence[RunRecord]) -> Summary:
    """Summarize runs that differ only in the seed.

    Parameters
    ----------
    records : sequence of RunRecord
        At least one run.

    Returns
    -------
    Summary
        Mean and deviation of each measure.

    Raises
    ------
    InputError
        If there are no runs.

    Examples
    --------
    >>> from fiveshot.benchmark import get_protocol, run, summarize_runs
    >>> from fiveshot.features import embedded_features
    >>> protocols = [get_protocol("cub200/big").replace(shot_seed=seed) for seed in (0, 1)]
    >>> summary = summarize_runs([run(protocol, embedded_features(), "ncm") for protocol in protocols])
    >>> summary.seeds, f"{summary.a_last.mean:.2f} ± {summary.a_last.std:.2f}"
    ((0, 1), '0.72 ± 0.00')
    """
    if not records:
        raise InputError("no runs to summarize")
    metrics = [record.metrics for record in records]
    later = range(1, len(metrics[0].sessions))
    first = records[0]
    return Summary(
        method=first.method,
        flavor=first.flavor,
        seeds=tuple(record.seed for record in records),
        a_hm=tuple(_spread([m.sessions[number].a_hm for m in metrics]) for number in later),
        a_hm_mean=_spread([mean_hm(m) for m in metrics]),
        accuracy=tuple(
            mean_std(s.accuracy for s in same) for same in zip(*(m.sessions for m in metrics), strict=True)
        ),
        a_old=_spread([m.sessions[-1].a_old for m in metrics]),
        a_new=_spread([m.sessions[-1].a_new for m in metrics]),
        a_last=mean_std([m.a_last for m in metrics]),
        a_inc=mean_std([m.a_inc for m in metrics]),
        seconds=mean_std([record.seconds for record in records]),
        g_acc=_spread([m.g_acc for m in metrics]),
        forgetting=_spread([m.forgetting.mean for m in metrics]),
        area=_spread([record.area for record in records]),
        calibration=tuple(map(mean_std, zip(*(record.calibration for record in records), strict=True))),
        alpha=_alpha(first),
        images=first.images,
        versions=tuple(sorted({record.versions.get("fiveshot", "unknown") for record in records})),
    )


def summarize_all(records: Sequence[RunRecord]) -> list[Summary]:
    """Group runs that differ only in the seed, in order of appearance, and summarize each group.

    Parameters
    ----------
    records : sequence of RunRecord
        Runs of any methods.

    Returns
    -------
    list of Summary
        One for each group.

    Examples
    --------
    >>> from fiveshot.benchmark import Protocol, run, summarize_all
    >>> from fiveshot.features import embedded_features
    >>> birds = embedded_features("cub200").restrict(["001.Black_footed_Albatross", "002.Laysan_Albatross"])
    >>> protocol = Protocol("two birds", "cub200", n_classes=2, base_classes=1, increment=1)
    >>> runs = [(method, protocol.replace(shot_seed=seed)) for method in ("ncm", "teen") for seed in (0, 1)]
    >>> summaries = summarize_all([run(protocol, birds, method) for method, protocol in runs])
    >>> [(summary.method, summary.seeds) for summary in summaries]
    [('ncm', (0, 1)), ('teen', (0, 1))]
    """
    groups: dict[str, list[RunRecord]] = {}
    for record in records:
        groups.setdefault(_without_seed(record), []).append(record)
    return [summarize_runs(group) for group in groups.values()]


def is_finished(folder: Path) -> bool:
    """Tell whether a folder holds a finished run."""
    return (folder / "metrics.json").is_file()


def find_runs(folder: Path) -> list[RunRecord]:
    """Return all finished runs below a folder, in order of their paths.

    Parameters
    ----------
    folder : Path
        The ``--out`` folder of a benchmark, or a part of it.

    Returns
    -------
    list of RunRecord
        The runs.

    Raises
    ------
    StorageError
        If the folder does not exist, has no finished run, or has a damaged one.

    Examples
    --------
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
        raise StorageError(f"no such folder: {folder}", hint="give the --out folder of a benchmark")
    found = sorted(path.parent for path in folder.rglob("metrics.json") if (path.parent / "run.json").is_file())
    if not found:
        raise StorageError(
            f"no finished run below {folder}", hint=f"make one with: {command('bench', '--out', folder)}"
        )
    return [RunRecord.load(path) for path in found]


def installed_versions() -> dict[str, str]:
    """Return the versions of the installed libraries that a result may depend on."""
    versions = {"python": platform.python_version(), "fiveshot": __version__}
    for name in ("numpy", "scipy", "scikit-learn", "torch"):
        with suppress(metadata.PackageNotFoundError):
            versions[name] = metadata.version(name)
    return versions


def _with_auto(parameters: Mapping[str, Any], names: Sequence[str]) -> dict[str, Any]:
    """Return parameters with ``auto`` instead of the chosen values."""
    return {
        key: "auto" if key in names else _with_auto(value, names) if isinstance(value, Mapping) else value
        for key, value in parameters.items()
    }


def _spread(values: Sequence[float | None]) -> Spread | None:
    """Return mean and deviation over the runs, or None if a run lacks the measure."""
    measured = [value for value in values if value is not None]
    return mean_std(measured) if len(measured) == len(values) else None


def mean_hm(metrics: RunMetrics) -> float | None:
    """Return A_HM averaged over the sessions after session 0, or None if one lacks it."""
    values = [session.a_hm for session in metrics.sessions[1:]]
    measured = [value for value in values if value is not None]
    return sum(measured) / len(values) if values and len(measured) == len(values) else None


def _without_seed(record: RunRecord) -> str:
    """Return the configuration without the seed; it is the same for all runs of a group."""
    config = dict(record.config)
    config["protocol"] = {**config["protocol"], "shot_seed": None}
    head = config["head"]
    config["head"] = {**head, "parameters": {**head["parameters"], **dict.fromkeys(SEEDS)}}
    return json.dumps(config, sort_keys=True)  # JSON, because a loaded run has lists and a fresh one has tuples


def _alpha(record: RunRecord) -> float | None:
    """Return the alpha of the head's calibration; None if it was chosen or there is no calibration."""
    calibration = record.head[1].get("calibration")  # in a user's own head it may be anything
    alpha = calibration.get("alpha") if isinstance(calibration, Mapping) else None
    return alpha if is_number(alpha) else None
