"""Estimate the time and memory of a run from the sizes of its data and the scorer."""

from __future__ import annotations

from dataclasses import dataclass

from fiveshot.core.ridge import ROWS_AT_ONCE
from fiveshot.core.scorers import (
    FeCAMScorer,
    KernelLDAScorer,
    LoRanPACScorer,
    RanPACScorer,
    RefittedScorer,
    Scorer,
    StreamingLDAScorer,
    UnbiasedLDAScorer,
)
from fiveshot.core.scorers.kernel_lda import MOST_IN_TRIALS
from fiveshot.core.scorers.ranpac import KEPT_AT_MOST
from fiveshot.core.scorers.refitted import RIDGE_ALPHAS

TRIALS = 20  # choosing parameters by episodes costs about this many runs
STEPS = 40  # average number of steps of a logistic regression


@dataclass(frozen=True)
class Workload:
    """The sizes that decide the cost of a run."""

    base_rows: int
    base_classes: int
    new_classes: int
    shots: int
    sessions: int
    n_features: int
    test_rows: int

    @property
    def rows(self) -> int:
        """Total number of training rows."""
        return self.base_rows + self.new_classes * self.shots

    @property
    def classes(self) -> int:
        """Total number of classes."""
        return self.base_classes + self.new_classes


def operations(scorer: Scorer, work: Workload) -> float:
    """Estimate the number of multiplications and additions of a whole run.

    >>> from fiveshot.core.scorers import make_scorer
    >>> work = Workload(3000, 100, 100, 5, 11, n_features=384, test_rows=5000)
    >>> operations(make_scorer("ncm"), work) < operations(make_scorer("fecam"), work)
    True
    """
    # Statistics of every class by QR, and the distance of every test image to every class.
    d = work.n_features
    everyone = 6.0 * work.rows * d * d + 2.0 * work.test_rows * d * work.classes
    return everyone + _more_operations(scorer, work)


def _more_operations(scorer: Scorer, work: Workload) -> float:
    d, rows = work.n_features, work.rows
    match scorer:
        case FeCAMScorer():
            # The projections of every test image, and the factors of calibrated classes.
            rank = min(d, work.base_rows / work.base_classes)
            # A triangle is solved, not multiplied.
            new_rank = d / 2 if scorer.calibration is not None else min(d, work.shots)
            asked = 2.0 * work.test_rows * d * (work.base_classes * rank + work.new_classes * new_rank)
            return asked + work.new_classes * new_rank * d * d
        case RanPACScorer():
            # The mapped rows and their sums, the choice of λ by eigenvalues, and a solution for each session.
            m = scorer.n_projections
            per_class = scorer.sampling.per_class if scorer.sampling else work.shots
            rows = work.base_rows + work.new_classes * per_class
            summed = rows * m * (2.0 * d + min(rows, m))
            chosen = min(work.base_rows, m) ** 3 * 10.0
            solved = min(rows, m) ** 3 / 3 + 2.0 * work.test_rows * m * (d + work.classes)
            return summed + chosen + work.sessions * solved
        case UnbiasedLDAScorer():
            # The random features, and a covariance of them for each session.
            m = scorer.n_random if work.base_rows - work.base_classes > scorer.n_random else 0
            per_session = 10.0 * m**3 + 2.0 * work.test_rows * d * m
            return rows * m * (2.0 * d + 6.0 * m) + work.sessions * per_session
        case KernelLDAScorer():
            # The mapped rows and their products, the trials of γ, and a solution for each session.
            m = scorer.n_projections
            mapped = 2.0 * d * m * (rows + work.sessions * work.test_rows)
            solved = m**3 / 3 + 2.0 * m * work.classes * (m + work.test_rows)
            trials = len(scorer.gammas) * work.base_rows * min(m, MOST_IN_TRIALS) ** 2
            return mapped + rows * m * m + trials + work.sessions * solved
        case LoRanPACScorer():
            # The mapped rows, their products, and a decomposition for each session, all in double precision.
            m = scorer.n_projections
            kept = min(rows, m)
            each = 6.0 * kept**3 + 3.0 * kept**2 * m + 2.0 * m * work.test_rows * (d + work.classes)
            return 2.0 * rows * d * m + work.sessions * each
        case StreamingLDAScorer():
            # The sum of products, and a solution for each session.
            solved = d**3 / 3 + 2.0 * d * d * work.classes + 2.0 * work.test_rows * d * work.classes
            return rows * d * d + work.sessions * solved
        case RefittedScorer():
            # A fit on all samples for each session, counted at its final size.
            fit = {
                "ridge": rows * d * (20.0 * d + 2 * len(RIDGE_ALPHAS) * work.classes),
                "logistic": STEPS * 4.0 * rows * d * work.classes,
                "lda": 2.0 * rows * d * d + d**3 / 3,
                "knn": 2.0 * work.test_rows * rows * d,
            }[scorer.classifier]
            return work.sessions * fit
        case _:
            return 0.0


def memory_needed(scorer: Scorer, work: Workload) -> int:
    """Return the peak memory of a run's model in bytes, without the samples.

    >>> from fiveshot.core.scorers import make_scorer
    >>> memory_needed(make_scorer("ncm"), Workload(3000, 100, 100, 5, 11, n_features=384, test_rows=5000))
    0
    """
    match scorer:
        case FeCAMScorer():  # one covariance per class
            return 4 * work.n_features**2 * work.classes
        case RanPACScorer():  # the sums and mapped rows
            m = scorer.n_projections
            return 6 * m**2 + 4 * (2 * ROWS_AT_ONCE * m + min(work.test_rows * m, KEPT_AT_MOST))
        case KernelLDAScorer():  # the covariance, in both precisions, and the mapped samples
            m = scorer.n_projections
            return 24 * m**2 + 4 * m * (work.rows + work.classes)
        case LoRanPACScorer():  # the rows in double precision, their products and the eigenvectors
            rows = min(work.rows, scorer.n_projections)
            return 8 * (3 * rows * scorer.n_projections + 3 * rows**2)
        case _:
            return 0
