"""All measures of one run, computed from its predictions after every session."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fiveshot.metrics.accuracy import (
    BaseNewConfusion,
    accuracy,
    base_new_confusion,
    harmonic_mean,
    old_new_accuracy,
    per_class_accuracy,
)
from fiveshot.metrics.sessions import (
    Forgetting,
    SessionPredictions,
    a_inc,
    a_last,
    accuracy_matrix,
    forgetting,
)


@dataclass(frozen=True)
class SessionMetrics:
    """What is measured after one session.

    ``a_old`` and ``a_hm`` are None for session 0: nothing is old then (the published code writes 0 there).

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
    """What is measured over a whole run; fractions, unrounded.

    ``matrix[i][j]`` is the accuracy after session i on the classes of session j, for j <= i. Confusion and
    accuracy per class are those after the last session; a class without test samples has None.

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
    confusion: BaseNewConfusion
    per_class: tuple[tuple[Any, float | None], ...]  # (class, accuracy), in the order classes arrived

    def as_dict(self) -> dict[str, Any]:
        """Return everything as dictionaries, lists and numbers, ready for JSON."""
        values = asdict(self)
        values["sessions"] = list(values["sessions"])
        values["matrix"] = [list(row) for row in self.matrix]
        values["forgetting"]["per_session"] = list(self.forgetting.per_session)
        values["per_class"] = [[label, value] for label, value in self.per_class]
        return values


def run_metrics(predictions: Sequence[SessionPredictions]) -> RunMetrics:
    """Compute all measures of a run from its predictions after session 0, 1, ...

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
        confusion=base_new_confusion(last.y_true, last.y_pred, predictions[0].classes, later),
        per_class=_per_class(last, [*predictions[0].classes, *later]),
    )


def _session_metrics(number: int, part: SessionPredictions) -> SessionMetrics:
    old, new = old_new_accuracy(part.y_true, part.y_pred, part.classes)
    both = harmonic_mean(old, new) if old is not None and new is not None else None
    return SessionMetrics(number, accuracy(part.y_true, part.y_pred), old, new, both)


def _per_class(last: SessionPredictions, classes: list[Any]) -> tuple[tuple[Any, float | None], ...]:
    values: NDArray[np.float64] = per_class_accuracy(last.y_true, last.y_pred, classes)
    plain = [label.item() if isinstance(label, np.generic) else label for label in classes]
    return tuple(zip(plain, (None if np.isnan(v) else float(v) for v in values), strict=True))
