"""Simulate few-shot sessions inside the base classes (episodes), and choose the offset of new classes by them.

In an episode some base classes have only a few samples, like new classes later. Only training samples of base
classes are used, so the choice does not depend on test images or later classes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fiveshot.core.arrays import Array, as_numpy, log_softmax, namespace, positions
from fiveshot.core.draws import derived_seed, stratified_split
from fiveshot.core.few_shots import share_of_sharpness
from fiveshot.core.labels import Labels
from fiveshot.core.memory import Memory
from fiveshot.core.statistics import class_statistics

LEAST_CLASSES = 10  # with fewer base classes a choice by episodes is worse than a default
HELD_OUT = 0.3
MOST_ASKED = 4096  # the most test samples of an episode, which bounds the time
DEPTHS = (1 / 3, 1.0)  # shares of the new classes after which an episode is scored
DEFAULT_OFFSET = 0.6  # a little over half of the gap between old and new classes
DEFAULT_SHARPNESS = 15.0  # for many samples; chosen on training photos, see docs/explanation/default-head.md
CLASSES_TO_TRUST = 20  # with so many classes the sharpness is halfway between the default and the best value
OFFSETS = np.arange(0, 1.55, 0.05)
SHARPNESSES = np.geomspace(2, 80, 40)


@dataclass(frozen=True, eq=False)
class Episode:
    """A memory that a head would have after training, and test samples."""

    memory: Memory
    X: Array  # (n, d)
    codes: NDArray[np.intp]  # (n,): index of each sample's class in the memory's labels
    new: NDArray[np.bool_]  # (n_classes,): which classes of the memory are treated as new
    base_rows: NDArray[np.intp]  # training samples of the memory's base classes
    new_rows: NDArray[np.intp]  # training samples of its new classes
    asked_rows: NDArray[np.intp]  # test samples


def play_episodes(X: Array, y: Labels, *, shots: int, episodes: int, seed: int) -> Iterator[Episode]:
    """Yield seeded episodes: half of the classes are new, with ``shots`` samples each.

    Test samples are held out of every class. With fewer than ten classes that have enough samples for both,
    nothing is yielded.
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
    """Draw at most ``most`` samples of each class; return their indices in ascending order."""
    rng = np.random.default_rng(derived_seed(seed, "few of each"))
    drawn = rng.permutation(len(y))
    order = drawn[np.argsort(y[drawn], kind="stable")]
    _, counts = np.unique(y, return_counts=True)
    return np.sort(np.concatenate([own[:most] for own in np.split(order, np.cumsum(counts)[:-1])]))


def usable_classes(y: Labels, shots: int) -> Labels:
    """Return the classes with enough samples for ``shots`` and for testing."""
    names, counts = np.unique(y, return_counts=True)
    return names[counts >= shots + 2]


def balanced_accuracy(right: NDArray[np.bool_], of_new: NDArray[np.bool_]) -> float:
    """Return (accuracy + A_HM) / 2 from which answers are right and which samples are of new classes.

    >>> balanced_accuracy(np.array([True, True, False, True]), np.array([False, False, True, True]))
    0.7083333333333333
    """
    old_right, new_right = float(right[~of_new].mean()), float(right[of_new].mean())
    both = old_right + new_right
    return (float(right.mean()) + (2 * old_right * new_right / both if both else 0.0)) / 2


def known_at(new: NDArray[np.bool_], depth: float) -> NDArray[np.bool_]:
    """Return which classes are known after a share of the new ones."""
    known = np.ones(len(new), dtype=np.bool_)
    places = np.flatnonzero(new)
    known[places[max(1, round(depth * len(places))) :]] = False
    return known


@dataclass(frozen=True, eq=False)
class PlayedEpisode:
    """Scores of one episode before any offset."""

    scores: Array  # (n, n_classes)
    gaps: Array  # (n_classes,)
    codes: NDArray[np.intp]  # (n,)
    new: NDArray[np.bool_]  # (n_classes,)
    n_samples: int  # of all classes, to learn from


@dataclass(frozen=True)
class Choice:
    """The chosen values, their spread over single episodes, and the number of episodes.

    The sharpness is that of a scorer with many samples; with fewer, ``share_of_sharpness`` of it is used.
    """

    offset: float = DEFAULT_OFFSET
    sharpness: float = DEFAULT_SHARPNESS
    offset_spread: float = 0.0
    episodes: int = 0


def choose(played: Sequence[PlayedEpisode]) -> Choice:
    """Return the offset with the best mean of accuracy and A_HM, and the sharpness with the highest likelihood.

    Both criteria are averaged over the episodes first; that of the offset also over neighboring candidates,
    because single ones are noisy. The result lies between the default and the best value: the classes of an
    episode are base classes, which an adapted backbone separates better than later classes. The offset is halfway;
    the sharpness is nearer to the best value with more classes, because it is less noisy then.
    """
    if not played:
        return Choice()
    curves = np.stack([_offset_curve(episode) for episode in played])  # (episodes, candidates)
    offset = (DEFAULT_OFFSET + _peak(curves.mean(axis=0))) / 2
    single = np.array([_peak(curve) for curve in curves])
    likelihoods = np.stack([_likelihoods(episode, offset) for episode in played]).mean(axis=0)
    share = float(np.mean([share_of_sharpness(episode.n_samples) for episode in played]))
    best = float(SHARPNESSES[int(likelihoods.argmax())]) / share
    n_classes = len(played[0].new)
    trust = n_classes / (n_classes + CLASSES_TO_TRUST)
    sharpness = DEFAULT_SHARPNESS ** (1 - trust) * best**trust
    return Choice(offset, sharpness, float(single.std()), len(played))


def _peak(curve: NDArray[np.float64]) -> float:
    smooth = np.convolve(np.pad(curve, 2, mode="edge"), np.full(5, 0.2), mode="valid")
    return float(OFFSETS[int(smooth.argmax())])


def _offset_curve(episode: PlayedEpisode) -> NDArray[np.float64]:
    curve: NDArray[np.float64] = np.mean([_depth_curve(episode, depth) for depth in DEPTHS], axis=0)
    return curve


def _depth_curve(episode: PlayedEpisode, depth: float) -> NDArray[np.float64]:
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


def _likelihoods(episode: PlayedEpisode, offset: float) -> NDArray[np.float64]:
    scores = episode.scores + offset * episode.gaps
    xp = namespace(scores)
    rows, codes = (positions(values, scores) for values in (np.arange(len(scores)), episode.codes))
    return np.array(
        [float(xp.mean(log_softmax(scores * sharpness)[rows, codes])) for sharpness in SHARPNESSES.tolist()]
    )
