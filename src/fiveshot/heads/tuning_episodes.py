"""Episodes for tuning: few-shot sessions played inside the base classes, and what heads score on them."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fiveshot.core.arrays import Array, as_numpy, positions
from fiveshot.core.draws import derived_seed
from fiveshot.core.episodes import DEPTHS, Episode, balanced_accuracy, known_at, play_episodes, usable_classes
from fiveshot.core.labels import Labels, python_labels
from fiveshot.heads.estimator import clone
from fiveshot.heads.fecam import FeCAM
from fiveshot.heads.head import FewShotHead, check_bias
from fiveshot.heads.ranpac import RanPAC

MOST_CLASSES = 60  # per episode, drawn anew for each: bounds the time
MOST_PROJECTIONS = 1000  # of RanPAC in an episode: what suits a tenth of its random features suits all of them


@dataclass(frozen=True, eq=False)
class TuningEpisode:
    """An episode over what a head keeps statistics of, and the samples behind it as they are."""

    played: Episode
    asked: Array  # (n, d)
    X: Array  # (N, d): what the rows of the episode count in
    y: Labels  # (N,)


@dataclass(frozen=True, eq=False)
class Shared:
    """What candidates have in common on one episode, by the parameters that it follows from."""

    metrics: dict[str, tuple[NDArray[Any], NDArray[Any]]] = field(default_factory=dict)  # scores, inflations
    ridges: dict[str, RanPAC] = field(default_factory=dict)  # after the base session


def tuning_episodes(
    head: FewShotHead, X: Array, y: Labels, *, shots: int, episodes: int, seed: int
) -> Iterator[TuningEpisode]:
    """Yield seeded episodes, each over classes drawn anew."""
    usable = usable_classes(y, shots)
    for number in range(episodes):
        rng = np.random.default_rng([derived_seed(seed, "classes of episodes"), number])
        rows = np.flatnonzero(np.isin(y, rng.permutation(usable)[:MOST_CLASSES]))
        samples = X[positions(rows, X)]
        plain, embedded = (
            next(play_episodes(vectors, y[rows], shots=shots, episodes=1, seed=seed + number))
            for vectors in (samples, head.embed(samples))
        )
        yield TuningEpisode(embedded, plain.X, samples, y[rows])


def candidate_scores(
    heads: Sequence[FewShotHead], episode: TuningEpisode, settings: Mapping[str, Any] | None
) -> list[float]:
    """Return the mean of accuracy and A_HM of each head on one episode, averaged over its depths."""
    shared = Shared()
    tables = (class_scores(head, episode, settings, shared) for head in heads)
    return [float(np.mean([score_at(scores, episode.played, depth) for depth in DEPTHS])) for scores in tables]


def class_scores(
    head: FewShotHead, episode: TuningEpisode, settings: Mapping[str, Any] | None, shared: Shared
) -> NDArray[Any]:
    """Return the scores of a candidate; what candidates have in common is made once and kept in ``shared``."""
    if isinstance(head, RanPAC):
        return _ridge_scores(head, episode, shared)
    if isinstance(head, FeCAM):
        return _metric_scores(head, episode, shared)
    return as_numpy(head.adopt(episode.played.memory, settings).class_scores(episode.asked))


def _metric_scores(head: FeCAM, episode: TuningEpisode, shared: Shared) -> NDArray[Any]:
    """Return FeCAM's scores; the metrics serve all candidates that differ in the bias alone."""
    check_bias(head.bias)
    key = _parameters_but(head, "bias")
    if key not in shared.metrics:
        whole: FeCAM = clone(head).set_params(bias=1.0).adopt(episode.played.memory)
        metrics = whole.model_.of(python_labels(whole.classes_))
        found = as_numpy(whole.class_scores(episode.asked))
        shared.metrics[key] = found, np.array([metric.inflation for metric in metrics])
    scores, inflations = shared.metrics[key]
    return scores - (1 - head.bias) * inflations


def _ridge_scores(head: RanPAC, episode: TuningEpisode, shared: Shared) -> NDArray[Any]:
    """Return RanPAC's scores, learned from samples; one base session serves all that differ in the calibration."""
    fewer = clone(head).set_params(n_projections=min(head.n_projections, MOST_PROJECTIONS))
    key = _parameters_but(fewer, "calibration")
    base, new = episode.played.base_rows, episode.played.new_rows
    if key not in shared.ridges:
        shared.ridges[key] = fewer.fit(episode.X[positions(base, episode.X)], episode.y[base])
    fitted = copy(shared.ridges[key])
    fitted.calibration = head.calibration
    fitted.partial_fit(episode.X[positions(new, episode.X)], episode.y[new])
    return as_numpy(fitted.class_scores(episode.asked))


def _parameters_but(head: FewShotHead, name: str) -> str:
    """Return the other parameters as a key; a list is one too, which could not be a key itself."""
    return repr(sorted((key, value) for key, value in head.get_params(deep=False).items() if key != name))


def score_at(scores: NDArray[Any], episode: Episode, depth: float) -> float:
    """Return (accuracy + A_HM) / 2 with a share of the new classes."""
    known = known_at(episode.new, depth)
    counted = known[episode.codes]
    answers = np.where(known, scores[counted], -math.inf).argmax(axis=1)
    return balanced_accuracy(answers == episode.codes[counted], episode.new[episode.codes[counted]])
