"""Run one head through the sessions of a protocol."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fiveshot.benchmark.job import Job, fingerprint, open_features, protocol_head, run_config
from fiveshot.benchmark.protocol import Protocol, Session, listed_sessions, sessions
from fiveshot.benchmark.record import UNSEEN, RunRecord
from fiveshot.core.arrays import as_numpy
from fiveshot.data.sessions import match_names, read_session_lists
from fiveshot.errors import InputError
from fiveshot.features import FeatureSet
from fiveshot.heads import FewShotHead, ScoreTable, TunedHead
from fiveshot.metrics import TradeOff, expected_calibration_error, trade_off
from fiveshot.work import Progress


def run(
    protocol: Protocol, features: FeatureSet, head: FewShotHead | str, *, progress: Progress | None = None
) -> RunRecord:
    """Learn the protocol's sessions one after the other and predict all seen classes after each.

    Parameters
    ----------
    protocol : Protocol
        Which classes come when.
    features : FeatureSet
        Training and test vectors.
    head : FewShotHead or str
        A head given by name is made as a job makes it, and gives the same numbers; any other runs as it is.
    progress : Progress, optional
        Called after each session.

    Returns
    -------
    RunRecord
        Predictions and measures.

    Examples
    --------
    >>> from fiveshot.benchmark import Protocol, run
    >>> from fiveshot.features import embedded_features
    >>> birds = embedded_features("cub200").restrict(["001.Black_footed_Albatross", "002.Laysan_Albatross"])
    >>> protocol = Protocol("two birds", "cub200", n_classes=2, base_classes=1, increment=1)
    >>> run(protocol, birds, "ncm").metrics.sessions[0].accuracy
    1.0
    """
    name = head if isinstance(head, str) else type(head).__name__
    head = protocol_head(head, protocol) if isinstance(head, str) else head
    config = run_config(protocol, name, head, features=fingerprint(features))
    steps = protocol_sessions(protocol, features)
    return _record(config, features, head, steps, progress)


def run_job(job: Job, *, progress: Progress | None = None) -> RunRecord:
    """Run a job: open its features, make its head, and learn its sessions one after the other.

    Parameters
    ----------
    job : Job
        What to run.
    progress : Progress, optional
        Called after each session.

    Returns
    -------
    RunRecord
        Predictions and measures.

    Examples
    --------
    >>> from fiveshot.benchmark import Job, get_protocol, run_job
    >>> record = run_job(Job(get_protocol("cub200/big"), "ncm", "embedded:cub200"))
    >>> len(record.metrics.sessions), round(record.metrics.a_last, 2)
    (11, 0.51)
    """
    features = open_features(job.features)
    if job.sessions is None:
        steps = protocol_sessions(job.protocol, features)
    else:
        steps = official_sessions(Path(job.sessions), features)
    return _record(job.config(), features, job.head(), steps, progress)


def protocol_sessions(protocol: Protocol, features: FeatureSet) -> tuple[Session, ...]:
    """Return the sessions of a protocol on some features."""
    return sessions(protocol, features.train_y, features.test_y, features.class_names, features.train_names)


def official_sessions(folder: Path, features: FeatureSet) -> tuple[Session, ...]:
    """Return the sessions given by a folder of session lists, matched to the features by image name."""
    if features.train_names is None:
        raise InputError(
            "these features do not say which image each vector is of, so session lists cannot be matched",
            hint="extract them again from the images",
        )
    rows = match_names(read_session_lists(folder).train, features.train_names)
    return listed_sessions(rows, features.train_y, features.test_y, features.class_names)


def _record(
    config: Mapping[str, Any],
    features: FeatureSet,
    head: FewShotHead,
    steps: Sequence[Session],
    progress: Progress | None,
) -> RunRecord:
    """Teach the head session by session, and record what it predicts after each."""
    predictions = np.full((len(steps), len(features.test_y)), UNSEEN, dtype=np.int64)
    table: ScoreTable | None = None
    calibration: list[float] = []
    seconds = 0.0
    for step in steps:
        start = time.perf_counter()
        rows = step.train_indices
        head.partial_fit(_vectors(features.train_x[rows]), features.train_y[rows])
        table = table or ScoreTable(head, _vectors(features.test_x))
        predictions[step.number, step.test_indices] = table.predict()[step.test_indices]
        seconds += time.perf_counter() - start
        calibration.append(_calibration_error(head, table, features.test_y, step))
        if progress is not None:
            progress(step.number + 1, len(steps))
    return RunRecord(
        config=config,
        class_names=features.class_names,
        session_classes=tuple(step.classes for step in steps),
        y_true=features.test_y,
        predictions=predictions,
        train_counts=tuple(len(step.train_indices) for step in steps),
        seconds=seconds,
        provenance=features.provenance.as_dict(),
        calibration=tuple(calibration),
        trade_off=_trade_off(head, table, features.test_y, steps) if table and len(steps) > 1 else None,
        chosen=head.chosen_ if isinstance(head, TunedHead) else {},
    )


def _calibration_error(head: FewShotHead, table: ScoreTable, test_y: NDArray[Any], step: Session) -> float:
    """Measure the probabilities after a session."""
    rows = step.test_indices
    return expected_calibration_error(table.probabilities()[rows], np.searchsorted(head.classes_, test_y[rows]))


def _trade_off(head: FewShotHead, table: ScoreTable, test_y: NDArray[Any], steps: Sequence[Session]) -> TradeOff:
    """Measure how base and new classes weigh against each other after the last session."""
    rows = steps[-1].test_indices
    new = ~np.isin(head.classes_, steps[0].classes)
    return trade_off(as_numpy(table.scores())[rows], np.searchsorted(head.classes_, test_y[rows]), new)


def _vectors(array: NDArray[Any]) -> NDArray[Any]:
    """Return vectors as heads compute: stored halves become single precision, doubles stay."""
    return np.asarray(array, dtype=np.float64 if array.dtype == np.float64 else np.float32)
