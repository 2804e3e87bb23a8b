"""When an answer is sure: a threshold on its probability, so that few of the given answers are wrong.

An answer is the narrowest level, class or group, whose probability reaches the threshold. How many such answers
are wrong is counted on photos that the model had not learned when it was asked about them.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from fiveshot.recognizer.recognition.levels import Groups, is_within
from fiveshot.values import Candidate

MOST_THRESHOLDS = 200  # thresholds that are tried, evenly spread over the photos
EXPECTED = 20  # the expected wrong answers, from the probabilities, count as much as this many photos
Table = tuple[tuple[float, float], ...]  # rate of wrong answers and threshold, the rates rising


def surest_without_photos(rate: float) -> float:
    """Return the threshold that needs no photos: each single answer is wrong with at most this probability.

    >>> surest_without_photos(0.05)
    0.95
    """
    return 1.0 - rate


def sure_threshold(chains: Sequence[Sequence[Candidate]], truth: Sequence[str], rate: float) -> float:
    """Return the lowest probability from which on at most ``rate`` of the answers are wrong.

    ``chains`` has the most probable levels of each photo, the widest first; ``truth`` has the class that it shows.
    The share of wrong answers is counted on these photos. A few photos say little. So the share that their
    probabilities predict counts, too, as much as ``EXPECTED`` photos. The result is never stricter than the
    threshold without photos.

    >>> chains = [[Candidate("owl", p)] for p in (0.9, 0.8, 0.6, 0.4)]
    >>> sure_threshold(chains, ["owl", "owl", "owl", "wren"], 0.3)
    0.6
    """
    strictest = surest_without_photos(rate)
    if not len(truth):
        return strictest
    chances, right = _levels(chains, truth)
    found = np.unique(chances[(chances >= 0) & (chances < strictest)])
    for threshold in found[:: max(1, -(-len(found) // MOST_THRESHOLDS))]:
        enough = chances >= threshold
        said = enough.any(axis=1)
        narrowest = chances.shape[1] - 1 - enough[:, ::-1].argmax(axis=1)
        each = np.flatnonzero(said), narrowest[said]
        wrong, expected = int((~right[each]).sum()), float((1 - chances[each]).mean())
        if wrong + EXPECTED * expected <= rate * (said.sum() + EXPECTED):
            return float(threshold)
    return strictest


def _levels(
    chains: Sequence[Sequence[Candidate]], truth: Sequence[str]
) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """Return the probability of each level and whether it is right, (n, most levels); -1 for a missing level."""
    shape = len(chains), max(map(len, chains))
    chances, right = np.full(shape, -1.0), np.zeros(shape, dtype=bool)
    for row, (chain, name) in enumerate(zip(chains, truth, strict=True)):
        for column, level in enumerate(chain):
            chances[row, column] = level.probability
            right[row, column] = is_within(name, level.label)
    return chances, right


def chains_of(classes: Sequence[str], probabilities: NDArray[np.floating]) -> list[tuple[Candidate, ...]]:
    """Return the most probable levels of each photo; without groups, its most probable class alone."""
    if not len(probabilities):
        return []
    chains = Groups.of(classes).chains(probabilities)
    best = probabilities.argmax(axis=1)
    return [
        chain or (Candidate(classes[number], float(row[number])),)
        for chain, number, row in zip(chains, best, probabilities, strict=True)
    ]


def threshold_in(table: Table, rate: float) -> float:
    """Return the threshold of a table at a rate, linear between its rates.

    >>> table = ((0.01, 0.9), (0.05, 0.5))
    >>> round(threshold_in(table, 0.03), 2), threshold_in(table, 0.005), threshold_in(table, 0.2)
    (0.7, 0.995, 0.5)
    """
    if not table or rate < table[0][0]:
        return surest_without_photos(rate)
    return float(np.interp(rate, *np.transpose(table)))


def is_table(table: Table) -> bool:
    """Tell whether the rates of a table rise, and rates and thresholds are probabilities.

    >>> is_table(((0.01, 0.9), (0.05, 0.5))), is_table(((0.05, 0.9), (0.01, 0.5)))
    (True, False)
    """
    rising = all(one < other for (one, _), (other, _) in pairwise(table))
    return rising and all(0 <= value <= 1 for pair in table for value in pair)
