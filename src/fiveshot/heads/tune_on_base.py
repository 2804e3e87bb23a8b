"""Choose a head's parameters on its base classes: few-shot sessions are played inside them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fiveshot.core.episodes import LEAST_CLASSES, usable_classes
from fiveshot.errors import InputError
from fiveshot.heads.estimator import clone
from fiveshot.heads.head import FewShotHead, on_device
from fiveshot.heads.inputs import as_features, as_session_labels
from fiveshot.heads.parameters import parameter, with_parameters
from fiveshot.heads.tuning_candidates import Candidate, default_candidates, values_to_try
from fiveshot.heads.tuning_episodes import candidate_scores, tuning_episodes
from fiveshot.heads.unbiased_lda import UnbiasedLDA


@dataclass(frozen=True)
class CandidateScore:
    """Parameters that were tried, and (accuracy + A_HM) / 2 over the episodes."""

    parameters: Candidate
    mean: float
    spread: float | None  # sample standard deviation over episodes; None of a single one


@dataclass(frozen=True, eq=False)
class Tuned:
    """The head with the parameters that were picked, unfitted, and what the pick rests on.

    ``scores[0]`` is the head as it was given. ``single_picks`` has the best candidate of each episode alone:
    how far they scatter is how far the pick can be trusted. Without episodes both are empty.

    >>> from fiveshot.data import gaussian_classes
    >>> from fiveshot.heads import NCM, tune_on_base
    >>> X, y, _, _ = gaussian_classes(n_classes=12, n_features=8, train_per_class=20, test_per_class=1, seed=0)
    >>> tuned = tune_on_base(NCM("euclidean"), X, y, candidates=[{"bias": 0.5}], episodes=3)
    >>> [score.parameters for score in tuned.scores], tuned.head.bias == tuned.parameters.get("bias", 0.0)
    ([{}, {'bias': 0.5}], True)
    """

    head: FewShotHead
    picked: int
    scores: tuple[CandidateScore, ...] = ()
    single_picks: tuple[int, ...] = ()

    @property
    def parameters(self) -> Candidate:
        """What was changed in the head, nothing where it was kept."""
        return self.scores[self.picked].parameters if self.scores else {}


def tune_on_base(
    head: FewShotHead,
    X: Any,
    y: Any,
    *,
    candidates: Sequence[Candidate] | None = None,
    shots: int = 5,
    episodes: int = 8,
    seed: int = 0,
) -> Tuned:
    """Return the head with the best of some parameter changes, judged by episodes inside the base classes.

    A candidate replaces the head as given only where it is better by more than one standard error of the paired
    difference. With fewer than ten base classes of ``shots`` + 2 samples the head is returned as it was given:
    its defaults are then the better guess.

    >>> from fiveshot.data import gaussian_classes
    >>> from fiveshot.heads import NCM, tune_on_base
    >>> X, y, _, _ = gaussian_classes(n_classes=12, n_features=8, train_per_class=20, test_per_class=1, seed=0)
    >>> tuned = tune_on_base(NCM("euclidean"), X, y, candidates=[{"bias": 0.5}, {"metric": "cosine"}], episodes=3)
    >>> len(tuned.scores), len(tuned.single_picks)
    (3, 3)
    >>> head = tuned.head.fit(X, y)
    """
    if shots < 1 or episodes < 1:
        raise InputError(f"shots and episodes must be at least 1, got {shots} and {episodes}")
    tried: list[Candidate] = [{}, *(default_candidates(head) if candidates is None else candidates)]
    heads = [with_parameters(head, candidate) for candidate in tried]
    fitted = clone(head)
    features = on_device(as_features(fitted, X, reset=True), head.device)
    labels = as_session_labels(fitted, y, n_samples=len(features), known=np.empty(0, dtype=np.int64), classes=None)
    if len(usable_classes(labels, shots)) < LEAST_CLASSES:
        return Tuned(clone(head), 0)
    settings: Mapping[str, Any] | None = None
    if isinstance(head, UnbiasedLDA):  # what it chooses on the base session is chosen once, not per candidate
        settings = fitted.fit(features, labels).settings()
    played = tuning_episodes(fitted, features, labels, shots=shots, episodes=episodes, seed=seed)
    # (episodes, candidates)
    table = np.array([candidate_scores(heads, episode, settings) for episode in played])
    picked = _pick(table)
    scores = tuple(
        CandidateScore(
            candidate,
            float(table[:, i].mean()),
            float(table[:, i].std(ddof=1)) if len(table) > 1 else None,
        )
        for i, candidate in enumerate(tried)
    )
    return Tuned(with_parameters(head, tried[picked]), picked, scores, tuple(int(i) for i in table.argmax(axis=1)))


def choose_parameters(
    head: FewShotHead,
    X: Any,
    y: Any,
    *,
    names: Sequence[str],
    shots: int = 5,
    episodes: int = 8,
    seed: int = 0,
) -> dict[str, Any]:
    """Choose parameters one after the other, each by :func:`tune_on_base` with those before it in force.

    ``alpha``, ``beta`` and ``tau`` of the calibration, ``gamma``, ``bias`` and the default head's ``shrinkage``,
    ``strength`` and ``smoothing`` can be chosen, where the head has them.

    >>> from fiveshot.data import gaussian_classes
    >>> from fiveshot.heads import choose_parameters, make_head
    >>> X, y, _, _ = gaussian_classes(n_classes=12, n_features=8, train_per_class=20, test_per_class=1, seed=0)
    >>> sorted(choose_parameters(make_head("teen"), X, y, names=["alpha", "bias"], episodes=3))
    ['alpha', 'bias']
    """
    tried = {name: values_to_try(head, name) for name in names}  # refuses all names before anything is played
    chosen: dict[str, Any] = {}
    for name, values in tried.items():
        candidates = [{name: value} for value in values]
        tuned = tune_on_base(head, X, y, candidates=candidates, shots=shots, episodes=episodes, seed=seed)
        head, chosen[name] = tuned.head, parameter(tuned.head, name)
    return chosen


def _pick(table: NDArray[np.float64]) -> int:
    """Return the best column, or the first where the gain on it is within one standard error."""
    best = int(table.mean(axis=0).argmax())
    gains = table[:, best] - table[:, 0]
    error = float(gains.std(ddof=1)) / math.sqrt(len(gains)) if len(gains) > 1 else 0.0
    return best if float(gains.mean()) > error else 0
