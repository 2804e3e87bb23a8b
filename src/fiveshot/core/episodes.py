"""Play few-shot sessions inside the base classes, and choose by them how much of the gap of new classes is closed.

In an episode some of the base classes are known from a few samples, as new ones will be. Only training samples of
base classes are used, so what is chosen by episodes has seen no test image and no later class.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fiveshot.core.arrays import Array, as_numpy, log_softmax, namespace, positions
from fiveshot.core.draws import derived_seed, stratified_split
from fiveshot.core.labels import Labels
from fiveshot.core.memory import Memory
from fiveshot.core.statistics import class_statistics

LEAST_CLASSES = 10  # with fewer base classes a choice by episodes is worse than a default
HELD_OUT = 0.3
MOST_ASKED = 4096  # samples that an episode is asked about: more would cost their number times that of the classes
DEPTHS = (1 / 3, 1.0)  # shares of the new classes at which an episode is scored: sessions come one after the other
DEFAULT_OFFSET = 0.6  # a little over half of the gap, which is the middle between old and new classes
DEFAULT_SHARPNESS = 12.0
OFFSETS = np.arange(0, 1.55, 0.05)
SHARPNESSES = np.geomspace(2, 80, 40)


@dataclass(frozen=True, eq=False)
class Episode:
    """What a head would have learned, and samples to ask it about."""

    memory: Memory
    X: Array  # (n, d)
    codes: NDArray[np.intp]  # (n,): index of each sample's class in the memory's labels
    new: NDArray[np.bool_]  # (n_classes,): which classes of the memory are played as new
    base_rows: NDArray[np.intp]  # the samples that the memory's base classes were learned from
    new_rows: NDArray[np.intp]  # those of its new ones
    asked_rows: NDArray[np.intp]  # and those it is asked about


def play_episodes(X: Array, y: Labels, *, shots: int, episodes: int, seed: int) -> Iterator[Episode]:
    """Yield seeded episodes: half of the classes are new, known from ``shots`` of their samples.

    Samples to ask about are held out of every class. Nothing is yielded where there are fewer than ten classes
    with enough samples for both.
    """
    usable = usable_classes(y, shots)
    if len(usable) < LEAST_CLASSES:
        return
    rows = np.flatnonzero(np.isin(y, usable))
    for number in range(episodes):
        rng = np.random.default_rng([derived_seed(seed, "episodes"), number])
        train, asked = (rows[part] for part in stratified_split(y[rows], held_out=HELD_OUT, seed=seed + number))
        new = rng.permutation(usable)[: len(usable) // 2]
        drawn = np.concatenate([rng.permutation(train[y[train] == label])[:shots] for label in new])
        old = train[~np.isin(y[train], new)]
        memory = Memory(
            class_statistics(X[positions(old, X)], y[old]), class_statistics(X[positions(drawn, X)], y[drawn])
        )
        if len(asked) > MOST_ASKED:
            asked = np.sort(rng.permutation(asked)[:MOST_ASKED])
        codes = np.searchsorted(memory.labels, y[asked])
        yield Episode(memory, X[positions(asked, X)], codes, np.isin(memory.labels, new), old, drawn, asked)


def few_of_each(y: Labels, most: int, *, seed: int) -> NDArray[np.intp]:
    """Return the places of at most so many samples of each class, drawn, in ascending order."""
    rng = np.random.default_rng(derived_seed(seed, "few of each"))
    drawn = rng.permutation(len(y))
    order = drawn[np.argsort(y[drawn], kind="stable")]
    _, counts = np.unique(y, return_counts=True)
    return np.sort(np.concatenate([own[:most] for own in np.split(order, np.cumsum(counts)[:-1])]))


def usable_classes(y: Labels, shots: int) -> Labels:
    """Return the classes with enough samples to be played as new ones and be asked about."""
    names, counts = np.unique(y, return_counts=True)
    return names[counts >= shots + 2]


def balanced_accuracy(right: NDArray[np.bool_], of_new: NDArray[np.bool_]) -> float:
    """Return (accuracy + A_HM) / 2, given which answers are right and which samples are of new classes.

    >>> balanced_accuracy(np.array([True, True, False, True]), np.array([False, False, True, True]))
    0.7083333333333333
    """
    old_right, new_right = float(right[~of_new].mean()), float(right[of_new].mean())
    both = old_right + new_right
    return (float(right.mean()) + (2 * old_right * new_right / both if both else 0.0)) / 2


def known_at(new: NDArray[np.bool_], depth: float) -> NDArray[np.bool_]:
    """Return which classes are known when a share of the new ones has come."""
    known = np.ones(len(new), dtype=np.bool_)
    places = np.flatnonzero(new)
    known[places[max(1, round(depth * len(places))) :]] = False
    return known


@dataclass(frozen=True, eq=False)
class Played:
    """Scores of one episode before any offset."""

    scores: Array  # (n, n_classes)
    gaps: Array  # (n_classes,)
    codes: NDArray[np.intp]  # (n,)
    new: NDArray[np.bool_]  # (n_classes,)


@dataclass(frozen=True)
class Choice:
    """What was chosen, the spread of the choice over single episodes, and how many there were."""

    offset: float = DEFAULT_OFFSET
    sharpness: float = DEFAULT_SHARPNESS
    offset_spread: float = 0.0
    episodes: int = 0


def choose(played: Sequence[Played]) -> Choice:
    """Return the offset of the best mean of accuracy and A_HM, and the sharpness of the highest likelihood.

    Both are averaged over the episodes before the best is taken, the offset over neighboring candidates too,
    because single ones are noisy. Both then go half of the way from their defaults: the classes of an episode are
    base classes, which an adapted backbone tells apart better than those that will come.
    """
    if not played:
        return Choice()
    curves = np.stack([_offset_curve(episode) for episode in played])  # (episodes, candidates)
    offset = (DEFAULT_OFFSET + _peak(curves.mean(axis=0))) / 2
    single = np.array([_peak(curve) for curve in curves])
    likelihoods = np.stack([_likelihoods(episode, offset) for episode in played]).mean(axis=0)
    sharpness = float(DEFAULT_SHARPNESS * SHARPNESSES[int(likelihoods.argmax())]) ** 0.5
    return Choice(offset, sharpness, float(single.std()), len(played))


def _peak(curve: NDArray[np.float64]) -> float:
    smooth = np.convolve(np.pad(curve, 2, mode="edge"), np.full(5, 0.2), mode="valid")
    return float(OFFSETS[int(smooth.argmax())])


def _offset_curve(episode: Played) -> NDArray[np.float64]:
    curve: NDArray[np.float64] = np.mean([_depth_curve(episode, depth) for depth in DEPTHS], axis=0)
    return curve


def _depth_curve(episode: Played, depth: float) -> NDArray[np.float64]:
    """Return (accuracy + A_HM) / 2 for every candidate, with a share of the new classes."""
    kept = np.flatnonzero(known_at(episode.new, depth))
    asked = np.isin(episode.codes, kept)
    xp = namespace(episode.scores)
    columns = positions(kept, episode.scores)
    scores = episode.scores[positions(np.flatnonzero(asked), episode.scores)][:, columns]
    gaps = episode.gaps[columns]
    codes = np.searchsorted(kept, episode.codes[asked])
    of_new = episode.new[kept][codes]
    values = []
    for offset in OFFSETS.tolist():
        answers: NDArray[Any] = as_numpy(xp.argmax(scores + offset * gaps, axis=1))
        values.append(balanced_accuracy(answers == codes, of_new))
    return np.array(values)


def _likelihoods(episode: Played, offset: float) -> NDArray[np.float64]:
    scores = episode.scores + offset * episode.gaps
    xp = namespace(scores)
    rows, codes = (positions(values, scores) for values in (np.arange(len(scores)), episode.codes))
    return np.array(
        [float(xp.mean(log_softmax(scores * sharpness)[rows, codes])) for sharpness in SHARPNESSES.tolist()]
    )
