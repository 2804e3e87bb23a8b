"""Measures of a run: after each session, over all sessions, and over several seeds."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fiveshot.errors import InputError
from fiveshot.metrics._accuracy import (
    BaseNewConfusion,
    accuracy,
    base_new_confusion,
    checked_matrix,
    generalized_accuracy,
    harmonic_mean,
    label_pair,
    old_new_accuracy,
    per_class_accuracy,
)


@dataclass(frozen=True, eq=False)
class SessionPredictions:
    """Predictions after a session, on the test samples of all classes seen so far.

    Parameters
    ----------
    classes : tuple of labels
        The new classes of this session.
    y_true, y_pred : ndarray of shape (n_test,)
        True and predicted labels.

    Raises
    ------
    InputError
        If the labels cannot be compared, or the session introduces no class.

    Examples
    --------
    >>> import numpy as np
    >>> from fiveshot.metrics import SessionPredictions, accuracy
    >>> after = SessionPredictions(("owl", "wren"), np.array(["owl", "wren"]), np.array(["owl", "owl"]))
    >>> accuracy(after.y_true, after.y_pred)
    0.5
    """

    classes: tuple[Any, ...]
    y_true: NDArray[Any]  # (n_test,)
    y_pred: NDArray[Any]  # (n_test,)

    def __post_init__(self) -> None:
        """Require labels that can be compared, and at least one class."""
        true, predicted = label_pair(self.y_true, self.y_pred)
        object.__setattr__(self, "classes", tuple(self.classes))
        object.__setattr__(self, "y_true", true)
        object.__setattr__(self, "y_pred", predicted)
        if not self.classes:
            raise InputError("a session must introduce at least one class")


@dataclass(frozen=True)
class Forgetting:
    """How much accuracy the classes of each session lost since their best session.

    Attributes
    ----------
    per_session : tuple of float
        One value for every session except the last.
    mean : float or None
        Their mean; None when there is only one session.

    Examples
    --------
    >>> import numpy as np
    >>> from fiveshot.metrics import forgetting
    >>> lost = forgetting([[1.0, np.nan, np.nan], [0.75, 1.0, np.nan], [0.75, 0.5, 1.0]])
    >>> lost.per_session, lost.mean
    ((0.25, 0.5), 0.375)
    """

    per_session: tuple[float, ...]
    mean: float | None


@dataclass(frozen=True)
class SessionMetrics:
    """Measures after one session.

    Attributes
    ----------
    number : int
        The session, from 0.
    accuracy : float
        On all classes seen so far.
    a_old, a_new, a_hm : float or None
        ``a_old`` and ``a_hm`` are None for session 0, which has no old classes (the published code writes 0).

    Examples
    --------
    >>> import numpy as np
    >>> from fiveshot.metrics import SessionPredictions, run_metrics
    >>> base = SessionPredictions((0, 1), np.array([0, 1]), np.array([0, 0]))
    >>> run_metrics([base]).sessions[0]
    SessionMetrics(number=0, accuracy=0.5, a_old=None, a_new=0.5, a_hm=None)
    """

    number: int
    accuracy: float
    a_old: float | None
    a_new: float | None
    a_hm: float | None


@dataclass(frozen=True)
class RunMetrics:
    """Measures of a whole run, as unrounded fractions.

    Attributes
    ----------
    sessions : tuple of SessionMetrics
        The measures after each session.
    a_last, a_inc : float
        The accuracy after the last session, and the mean over all sessions.
    matrix : tuple of tuple of float
        ``matrix[i][j]`` is the accuracy after session i on the classes of session j, for j <= i.
    forgetting : Forgetting
        The forgetting of each session's classes.
    g_acc : float or None
        :func:`generalized_accuracy`, its area; None when there is only one session.
    confusion : BaseNewConfusion
        After the last session.
    per_class : tuple of (class, float or None)
        Accuracy after the last session, in the order classes arrived; None without test samples.

    Examples
    --------
    >>> import numpy as np
    >>> from fiveshot.metrics import SessionPredictions, run_metrics
    >>> base = SessionPredictions((0, 1), np.array([0, 1]), np.array([0, 1]))
    >>> later = SessionPredictions((2,), np.array([0, 1, 2, 2]), np.array([0, 2, 2, 2]))
    >>> measured = run_metrics([base, later])
    >>> measured.matrix, measured.forgetting.mean
    (((1.0,), (0.5, 1.0)), 0.5)
    >>> measured.as_dict()["per_class"]
    [[0, 1.0], [1, 0.0], [2, 1.0]]
    """

    sessions: tuple[SessionMetrics, ...]
    a_last: float
    a_inc: float
    matrix: tuple[tuple[float, ...], ...]
    forgetting: Forgetting
    g_acc: float | None
    confusion: BaseNewConfusion
    per_class: tuple[tuple[Any, float | None], ...]

    def as_dict(self) -> dict[str, Any]:
        """Return everything as dictionaries, lists and numbers, ready for JSON."""
        values = asdict(self)
        values["sessions"] = list(values["sessions"])
        values["matrix"] = [list(row) for row in self.matrix]
        values["forgetting"]["per_session"] = list(self.forgetting.per_session)
        values["per_class"] = [[label, value] for label, value in self.per_class]
        return values


class Spread(NamedTuple):
    """Mean and sample standard deviation of several values.

    Attributes
    ----------
    mean : float
        The mean.
    std : float or None
        The deviation; None when there is only one value.
    n : int
        Number of values.

    Examples
    --------
    >>> from fiveshot.metrics import mean_std
    >>> measured = mean_std([0.5, 0.75, 1.0])
    >>> f"{measured.mean:.2f} ± {measured.std:.2f} over {measured.n} seeds"
    '0.75 ± 0.25 over 3 seeds'
    """

    mean: float
    std: float | None
    n: int


def run_metrics(predictions: Sequence[SessionPredictions]) -> RunMetrics:
    """Compute all measures of a run.

    Parameters
    ----------
    predictions : sequence of SessionPredictions
        Those after session 0, 1, and so on.

    Returns
    -------
    RunMetrics
        The measures.

    Raises
    ------
    InputError
        If a class is introduced twice, or a session is tested on later classes.

    Examples
    --------
    >>> import numpy as np
    >>> from fiveshot.metrics import SessionPredictions, run_metrics
    >>> first = SessionPredictions((0, 1), np.array([0, 1]), np.array([0, 1]))
    >>> second = SessionPredictions((2,), np.array([0, 1, 2, 2]), np.array([0, 2, 2, 2]))
    >>> found = run_metrics([first, second])
    >>> found.a_last, found.a_inc, found.sessions[1].a_hm
    (0.75, 0.875, 0.6666666666666666)
    """
    matrix = accuracy_matrix(predictions)
    sessions = tuple(_session_metrics(number, part) for number, part in enumerate(predictions))
    accuracies = [session.accuracy for session in sessions]
    last = predictions[-1]
    later = [label for part in predictions[1:] for label in part.classes]
    return RunMetrics(
        sessions=sessions,
        a_last=a_last(accuracies),
        a_inc=a_inc(accuracies),
        matrix=tuple(tuple(row[: number + 1].tolist()) for number, row in enumerate(matrix)),
        forgetting=forgetting(matrix),
        g_acc=_g_acc(matrix, predictions),
        confusion=base_new_confusion(last.y_true, last.y_pred, predictions[0].classes, later),
        per_class=_per_class(last, [*predictions[0].classes, *later]),
    )


def a_last(accuracies: Sequence[float]) -> float:
    """Return A_last: the accuracy after the last session, on all classes.

    Parameters
    ----------
    accuracies : sequence of float
        The accuracy after each session.

    Returns
    -------
    float
        The last of them.

    Examples
    --------
    >>> from fiveshot.metrics import a_last
    >>> a_last([0.9, 0.8, 0.7])
    0.7
    """
    return float(_checked(accuracies)[-1])


def a_inc(accuracies: Sequence[float]) -> float:
    """Return A_inc: the mean of the accuracies after every session, the base session included.

    Parameters
    ----------
    accuracies : sequence of float
        The accuracy after each session.

    Returns
    -------
    float
        Their mean.

    Examples
    --------
    >>> from fiveshot.metrics import a_inc
    >>> a_inc([0.5, 0.25])
    0.375
    """
    return float(np.mean(_checked(accuracies)))


def accuracy_matrix(predictions: Sequence[SessionPredictions]) -> NDArray[np.float64]:  # (sessions, sessions)
    """Return R with R[i, j] = accuracy after session i on the classes introduced in session j.

    All classes seen by session i are candidates.

    Parameters
    ----------
    predictions : sequence of SessionPredictions
        Those after session 0, 1, and so on.

    Returns
    -------
    ndarray of shape (n_sessions, n_sessions)
        NaN above the diagonal, where the classes are not known yet.

    Examples
    --------
    >>> import numpy as np
    >>> from fiveshot.metrics import SessionPredictions, accuracy_matrix
    >>> first = SessionPredictions((0,), np.array([0, 0]), np.array([0, 0]))
    >>> second = SessionPredictions((1,), np.array([0, 0, 1]), np.array([0, 1, 1]))
    >>> accuracy_matrix([first, second])
    array([[1. , nan],
           [0.5, 1. ]])
    """
    _check_sequence(predictions)
    session_of = {label: number for number, part in enumerate(predictions) for label in part.classes}
    matrix = np.full((len(predictions), len(predictions)), np.nan)
    for row, part in enumerate(predictions):
        # np.unique: one dictionary look-up per class, not one per sample.
        labels, position = np.unique(part.y_true, return_inverse=True)
        group = np.array([session_of[label] for label in labels.tolist()])[position]
        right = part.y_true == part.y_pred
        for column in range(row + 1):
            matrix[row, column] = right[group == column].mean()
    return matrix


def forgetting(matrix: ArrayLike) -> Forgetting:
    """Return for each session j but the last f_j = max over i < T of R[i, j], minus R[T, j], and their mean.

    T is the last session. A value is negative when the classes of j are known best at the end.

    Parameters
    ----------
    matrix : array-like of shape (n_sessions, n_sessions)
        R, the :func:`accuracy_matrix`.

    Returns
    -------
    Forgetting
        The values and their mean.

    Raises
    ------
    InputError
        If the matrix is not square, or lacks a value on or below its diagonal.

    Examples
    --------
    >>> import numpy as np
    >>> from fiveshot.metrics import forgetting
    >>> forgetting([[1.0, np.nan], [0.25, 1.0]])
    Forgetting(per_session=(0.75,), mean=0.75)
    """
    table = checked_matrix(matrix)
    lost = [float(table[j:-1, j].max() - table[-1, j]) for j in range(len(table) - 1)]
    return Forgetting(tuple(lost), float(np.mean(lost)) if lost else None)


def mean_std(values: Iterable[float]) -> Spread:
    """Return mean and sample standard deviation (divisor n - 1) of values measured with several seeds.

    Parameters
    ----------
    values : iterable of float
        One value per seed.

    Returns
    -------
    Spread
        With one value the deviation is None, not zero, because it is unknown.

    Raises
    ------
    InputError
        If there is no value, or one that is not finite.

    Examples
    --------
    >>> from fiveshot.metrics import mean_std
    >>> mean_std([0.5, 0.75, 1.0])
    Spread(mean=0.75, std=0.25, n=3)
    >>> mean_std([0.5])
    Spread(mean=0.5, std=None, n=1)
    """
    found = np.array(list(values), dtype=np.float64)
    if len(found) == 0 or not np.isfinite(found).all():
        raise InputError(f"mean and deviation need at least one value, and finite ones, not {found.tolist()}")
    return Spread(float(found.mean()), float(found.std(ddof=1)) if len(found) > 1 else None, len(found))


def _session_metrics(number: int, part: SessionPredictions) -> SessionMetrics:
    """Measure the predictions after one session."""
    old, new = old_new_accuracy(part.y_true, part.y_pred, part.classes)
    both = harmonic_mean(old, new) if old is not None and new is not None else None
    return SessionMetrics(number, accuracy(part.y_true, part.y_pred), old, new, both)


def _g_acc(matrix: NDArray[np.float64], predictions: Sequence[SessionPredictions]) -> float | None:
    """Return the area of gAcc; the largest weight of the base session is its ratio of classes."""
    if len(predictions) == 1:
        return None
    later = [len(part.classes) for part in predictions[1:]]
    return generalized_accuracy(matrix, len(predictions[0].classes) * len(later) / sum(later)).area


def _per_class(last: SessionPredictions, classes: list[Any]) -> tuple[tuple[Any, float | None], ...]:
    """Return each class with its accuracy, as plain Python values."""
    values: NDArray[np.float64] = per_class_accuracy(last.y_true, last.y_pred, classes)
    plain = [label.item() if isinstance(label, np.generic) else label for label in classes]
    return tuple(zip(plain, (None if np.isnan(v) else float(v) for v in values), strict=True))


def _check_sequence(predictions: Sequence[SessionPredictions]) -> None:
    """Require that sessions only add classes, and are tested on all sessions so far and no others."""
    if not predictions:
        raise InputError("no sessions to measure")
    seen: set[Any] = set()
    for number, part in enumerate(predictions):
        again = seen & set(part.classes)
        if again or len(set(part.classes)) != len(part.classes):
            raise InputError(f"session {number} introduces classes a second time: {sorted(again or part.classes)}")
        seen |= set(part.classes)
        tested = set(np.unique(part.y_true).tolist())
        for what, labels in (("tests", tested), ("predicts", set(np.unique(part.y_pred).tolist()))):
            if labels - seen:
                raise InputError(f"session {number} {what} classes not seen yet: {sorted(labels - seen)[:8]}")
        for earlier, other in enumerate(predictions[: number + 1]):
            if tested.isdisjoint(other.classes):
                raise InputError(f"session {number} has no test samples of the classes of session {earlier}")


def _checked(accuracies: Sequence[float]) -> NDArray[np.float64]:
    """Return the accuracies after each session as a vector of fractions."""
    values = np.asarray(accuracies, dtype=np.float64)
    if values.ndim != 1 or len(values) == 0 or not ((values >= 0) & (values <= 1)).all():
        raise InputError(f"accuracies after each session must lie between 0 and 1, not {accuracies!r}")
    return values
