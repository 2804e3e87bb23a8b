"""Scores of photos by a head that has not seen them: each photo against its class without it."""

from __future__ import annotations

from copy import copy
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from fiveshot.core import ClassStatistics, ClassSummary, Memory, summarize
from fiveshot.recognizer.store.rows import Floats

if TYPE_CHECKING:
    from fiveshot.heads import FewShotHead

FOLDS = 10  # up to so many photos each is left out alone; of more, a tenth at a time
JOINT_FROM = 100  # known classes from which on one class more or less hardly moves what classes share


@dataclass(frozen=True, eq=False)
class HeldOutScores:
    """How photos of one class score for it, and for all others."""

    own: NDArray[np.float64]  # (n,)
    others: NDArray[np.float64]  # (n, n_others), in the order of the other classes' labels
    share: NDArray[np.float64]  # (n,): probability of the own class against the strongest other one

    @property
    def recognized(self) -> NDArray[np.bool_]:
        """Whether each photo scores better for its class than for every other, (n,)."""
        better: NDArray[np.bool_] = self.own > self.others.max(axis=1)
        return better


def fold_numbers(count: int) -> NDArray[np.intp]:
    """Return the fold of each of ``count`` photos, evenly spread.

    >>> fold_numbers(3).tolist(), fold_numbers(12).tolist()
    ([0, 1, 2], [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 0, 1])
    """
    return np.arange(count) % min(max(count, 1), FOLDS)


def without_fold(X: Floats, folds: NDArray[np.intp], fold: int, known: ClassSummary | None) -> ClassSummary:
    """Return the summary of a class that lacks one fold of its photos; ``known`` are photos beside X."""
    kept = X[folds != fold]
    if not len(kept):
        if known is None:
            raise ValueError("nothing would be left of the class")
        return known
    return summarize(kept) if known is None else known.merge(summarize(kept))


def held_out_scores(
    head: FewShotHead, others: Memory, X: Floats, *, known: ClassSummary | None = None
) -> HeldOutScores | None:
    """Score each photo by a head that knows the other classes and this one without the photo.

    ``head`` is fitted on any memory and stays as it is. Without at least one photo to compare with, None.
    """
    folds = fold_numbers(len(X))
    if known is None and folds.max() == 0:
        return None
    embedded = head.embed(X)
    variants = [without_fold(embedded, folds, fold, known) for fold in range(folds.max() + 1)]
    joint = len(others.labels) >= JOINT_FROM
    groups = [list(range(len(variants)))] if joint else [[fold] for fold in range(len(variants))]
    own, share = np.empty(len(X)), np.empty(len(X))
    rest = np.empty((len(X), len(others.labels)))
    probe = copy(head)  # what a head has learned is immutable and replaced, so the original keeps its own
    for group in groups:
        # No class name may hold a control character, so these are not names; they sort before all names.
        labels = np.array([f"\x01{fold}" for fold in group])
        present = ClassStatistics(labels, tuple(variants[fold] for fold in group))
        memory = Memory(others.base, others.new.merge(present))
        probe = head.sketch(memory) if joint else probe.adopt(memory)
        rows = np.flatnonzero(np.isin(folds, group))
        columns = np.searchsorted(group, folds[rows])
        answer, each = probe.answer(X[rows]), np.arange(len(rows))
        own[rows], rest[rows] = answer.scores[each, columns], answer.scores[:, len(group) :]
        share[rows] = _shares(answer.probabilities[each, columns], answer.probabilities[:, len(group) :])
    return HeldOutScores(own, rest, share)


def _shares(own: NDArray[Any], others: NDArray[Any]) -> NDArray[np.float64]:
    if not others.shape[1]:
        return np.ones(len(own))
    both = own + others.max(axis=1)
    shares: NDArray[np.float64] = np.divide(own, both, out=np.full(len(own), 0.5), where=both > 0)
    return shares
