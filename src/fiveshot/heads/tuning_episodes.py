"""Episodes for tuning: few-shot sessions played inside the base classes, and what heads score on them."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.base import clone
from torch import Tensor

from fiveshot.heads.episodes import Episode, play_episodes
from fiveshot.heads.fecam import FeCAM
from fiveshot.heads.head import FewShotHead
from fiveshot.heads.mean_noise import check_bias
from fiveshot.heads.sampling import derived_seed
from fiveshot.statistics.labels import Labels, python_labels

MOST_CLASSES = 60  # per episode, drawn anew for each: bounds the time
DEPTHS = (1 / 3, 1.0)  # shares of the new classes at which an episode is scored, since sessions come in turn


def tuning_episodes(
    head: FewShotHead, X: Tensor, y: Labels, *, shots: int, episodes: int, seed: int
) -> Iterator[tuple[Episode, Tensor]]:
    """Yield episodes over what the head keeps statistics of, and the samples to ask about as they are."""
    names, counts = np.unique(y, return_counts=True)
    usable = names[counts >= shots + 2]
    for number in range(episodes):
        rng = np.random.default_rng([derived_seed(seed, "classes of episodes"), number])
        rows = np.flatnonzero(np.isin(y, rng.permutation(usable)[:MOST_CLASSES]))
        samples = X[torch.as_tensor(rows, device=X.device)]
        plain, embedded = (
            next(play_episodes(vectors, y[rows], shots=shots, episodes=1, seed=seed + number))
            for vectors in (samples, head.embed(samples))
        )
        yield embedded, plain.X


def candidate_scores(
    heads: Sequence[FewShotHead], episode: Episode, asked: Tensor, settings: Mapping[str, Any] | None
) -> list[float]:
    """Return the mean of accuracy and A_HM of each head on one episode, averaged over its depths."""
    shared: dict[object, tuple[NDArray[Any], NDArray[Any]]] = {}
    tables = (_class_scores(head, episode, asked, settings, shared) for head in heads)
    return [float(np.mean([score_at(scores, episode, depth) for depth in DEPTHS])) for scores in tables]


def _class_scores(
    head: FewShotHead,
    episode: Episode,
    asked: Tensor,
    settings: Mapping[str, Any] | None,
    shared: dict[object, tuple[NDArray[Any], NDArray[Any]]],
) -> NDArray[Any]:
    """Return the scores of a candidate; FeCAM's metrics are made once for all that differ in the bias alone."""
    if not isinstance(head, FeCAM):
        return head.adopt(episode.memory, settings).class_scores(asked)
    check_bias(head.bias)
    key = tuple((name, value) for name, value in sorted(head.get_params(deep=False).items()) if name != "bias")
    if key not in shared:
        whole: FeCAM = clone(head).set_params(bias=1.0).adopt(episode.memory)
        metrics = whole.model_.of(python_labels(whole.classes_))
        shared[key] = whole.class_scores(asked), np.array([metric.inflation for metric in metrics])
    scores, inflations = shared[key]
    return scores - (1 - head.bias) * inflations


def score_at(scores: NDArray[Any], episode: Episode, depth: float) -> float:
    """Return (accuracy + A_HM) / 2 with a share of the new classes."""
    new = np.flatnonzero(episode.new)
    known = np.ones(len(episode.new), dtype=bool)
    known[new[max(1, round(depth * len(new))) :]] = False
    counted = known[episode.codes]
    answers = np.where(known, scores[counted], -math.inf).argmax(axis=1)
    right, of_new = answers == episode.codes[counted], episode.new[episode.codes[counted]]
    old_right, new_right = float(right[~of_new].mean()), float(right[of_new].mean())
    both = old_right + new_right
    return (float(right.mean()) + (2 * old_right * new_right / both if both else 0.0)) / 2
