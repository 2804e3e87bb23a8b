"""Measures over a sequence of sessions: last, incremental mean, accuracy matrix, forgetting."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fiveshot.errors import InputError
from fiveshot.metrics.accuracy import label_pair


@dataclass(frozen=True, eq=False)
class SessionPredictions:
    """Predictions after a session, on the test samples of all classes seen so far.

    ``classes`` are those this session introduced.

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
    """How much each session's classes lost since they were known best, and the mean over sessions.

    >>> import numpy as np
    >>> from fiveshot.metrics import forgetting
    >>> lost = forgetting([[1.0, np.nan, np.nan], [0.75, 1.0, np.nan], [0.75, 0.5, 1.0]])
    >>> lost.per_session, lost.mean
    ((0.25, 0.5), 0.375)
    """

    per_session: tuple[float, ...]  # one for every session but the last
    mean: float | None  # None when there is only one session


def a_last(accuracies: Sequence[float]) -> float:
    """Return A_last: the accuracy after the last session, on all classes.

    >>> from fiveshot.metrics import a_last
    >>> a_last([0.9, 0.8, 0.7])
    0.7
    """
    return float(_checked(accuracies)[-1])


def a_inc(accuracies: Sequence[float]) -> float:
    """Return A_inc: the mean of the accuracies after every session, the base session included.

    >>> from fiveshot.metrics import a_inc
    >>> a_inc([0.5, 0.25])
    0.375
    """
    return float(np.mean(_checked(accuracies)))


def accuracy_matrix(predictions: Sequence[SessionPredictions]) -> NDArray[np.float64]:  # (sessions, sessions)
    """Return R with R[i, j] = accuracy after session i on the classes introduced in session j.

    All classes seen by session i are candidates. NaN above the diagonal, where the classes are not yet known.

    >>> import numpy as np
    >>> from fiveshot.metrics import SessionPredictions, accuracy_matrix
    >>> first = SessionPredictions((0,), np.array([0, 0]), np.array([0, 0]))
    >>> second = SessionPredictions((1,), np.array([0, 0, 1]), np.array([0, 1, 1]))
    >>> accuracy_matrix([first, second])
    array([[1. , nan],
           [0.5, 1. ]])
    """
    check_sequence(predictions)
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

    T is the last session and R the ``accuracy_matrix``. Negative when the classes of j were never known
    better than at the end.

    >>> import numpy as np
    >>> from fiveshot.metrics import forgetting
    >>> forgetting([[1.0, np.nan], [0.25, 1.0]])
    Forgetting(per_session=(0.75,), mean=0.75)
    """
    table = np.asarray(matrix, dtype=np.float64)
    if table.ndim != 2 or table.shape[0] != table.shape[1] or len(table) == 0:
        raise InputError(f"an accuracy matrix is square with at least one session, not of shape {table.shape}")
    if np.isnan(table[np.tril_indices(len(table))]).any():
        raise InputError("the accuracy matrix has no value for a session that had been learned")
    lost = [float(table[j:-1, j].max() - table[-1, j]) for j in range(len(table) - 1)]
    return Forgetting(tuple(lost), float(np.mean(lost)) if lost else None)


def check_sequence(predictions: Sequence[SessionPredictions]) -> None:
    """Require sessions that only add classes, and test samples of all classes' sessions and of no others."""
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
    values = np.asarray(accuracies, dtype=np.float64)
    if values.ndim != 1 or len(values) == 0 or not ((values >= 0) & (values <= 1)).all():
        raise InputError(f"accuracies after each session must lie between 0 and 1, not {accuracies!r}")
    return values
