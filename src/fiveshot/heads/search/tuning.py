"""Choose a head's parameters on its base classes: few-shot sessions are played inside them."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fiveshot.core.arrays import Array, as_numpy, positions
from fiveshot.core.draws import derived_seed
from fiveshot.core.episodes import (
    DEPTHS,
    LEAST_CLASSES,
    Episode,
    balanced_accuracy,
    known_at,
    play_episodes,
    usable_classes,
)
from fiveshot.core.labels import Labels
from fiveshot.errors import InputError
from fiveshot.heads.estimator import as_features, as_session_labels, clone
from fiveshot.heads.head import Candidate, FewShotHead, on_device
from fiveshot.heads.parameters import parameter, values_to_try, with_parameters

MOST_CLASSES = 60  # per episode, drawn for each: bounds the time


@dataclass(frozen=True)
class CandidateScore:
    """Parameters that were tried, and (accuracy + A_HM) / 2 over the episodes."""

    parameters: Candidate
    mean: float
    spread: float | None  # sample standard deviation over episodes; None of a single one


@dataclass(frozen=True, eq=False)
class Tuned:
    """The head with the parameters that were picked, unfitted, and what the pick rests on.

    Attributes
    ----------
    head : FewShotHead
        With the parameters that were picked.
    picked : int
        Which candidate; 0 is the head as it was given.
    scores : tuple of CandidateScore
        Of each candidate; empty without episodes.
    single_picks : tuple of int
        The best of each episode alone: how far they scatter is how far the pick can be trusted.

    Examples
    --------
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

    Parameters
    ----------
    head : FewShotHead
        Where the search starts.
    X, y : arrays
        Features and labels of the base classes.
    candidates : sequence of mappings, optional
        Parameters to change, by their short names; those of the head unless given.
    shots : int
        Samples of a class that is played as new.
    episodes : int
        How many are played.
    seed : int
        Of the episodes.

    Returns
    -------
    Tuned

    Examples
    --------
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
    tried: list[Candidate] = [{}, *(head.candidates() if candidates is None else candidates)]
    heads = [with_parameters(head, candidate) for candidate in tried]
    fitted = clone(head)
    features = on_device(as_features(fitted, X, reset=True), head.device)
    labels = as_session_labels(fitted, y, n_samples=len(features), known=np.empty(0, dtype=np.int64), classes=None)
    if len(usable_classes(labels, shots)) < LEAST_CLASSES:
        return Tuned(clone(head), 0)
    settings: Mapping[str, Any] | None = None
    if type(head).settings is not FewShotHead.settings:
        # What it chooses on the base session is chosen once, not for each candidate.
        settings = fitted.fit(features, labels).settings()
    played = tuning_episodes(fitted, features, labels, shots=shots, episodes=episodes, seed=seed)
    # (episodes, candidates)
    table = np.array([_scores(heads, *episode, settings) for episode in played])
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

    Parameters
    ----------
    head : FewShotHead
        Where the search starts.
    X, y : arrays
        Features and labels of the base classes.
    names : sequence of str
        Parameters that the head says may be tried (its ``tried``).
    shots : int
        Samples of a class that is played as new.
    episodes : int
        How many are played.
    seed : int
        Of the episodes.

    Returns
    -------
    dict
        The value of each name.

    Raises
    ------
    InputError
        A name that cannot be chosen.

    Examples
    --------
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


def tuning_episodes(
    head: FewShotHead, X: Array, y: Labels, *, shots: int, episodes: int, seed: int
) -> Iterator[tuple[Episode, Array, Labels]]:
    """Yield seeded episodes, each over other classes, with the samples and labels that their rows count in."""
    usable = usable_classes(y, shots)
    for number in range(episodes):
        rng = np.random.default_rng([derived_seed(seed, "classes of episodes"), number])
        rows = np.flatnonzero(np.isin(y, rng.permutation(usable)[:MOST_CLASSES]))
        samples = X[positions(rows, X)]
        (episode,) = play_episodes(head.embed(samples), y[rows], shots=shots, episodes=1, seed=seed + number)
        yield episode, samples, y[rows]


def _scores(
    heads: Sequence[FewShotHead], episode: Episode, X: Array, y: Labels, settings: Mapping[str, Any] | None
) -> list[float]:
    """Return the mean of accuracy and A_HM of each head on one episode, averaged over its depths."""
    shared: dict[str, Any] = {}
    tables = (as_numpy(head.episode_scores(episode, X, y, settings=settings, shared=shared)) for head in heads)
    return [float(np.mean([score_at(scores, episode, depth) for depth in DEPTHS])) for scores in tables]


def score_at(scores: NDArray[Any], episode: Episode, depth: float) -> float:
    """Return (accuracy + A_HM) / 2 with a share of the new classes."""
    known = known_at(episode.new, depth)
    counted = known[episode.codes]
    answers = np.where(known, scores[counted], -math.inf).argmax(axis=1)
    return balanced_accuracy(answers == episode.codes[counted], episode.new[episode.codes[counted]])


def _pick(table: NDArray[np.float64]) -> int:
    """Return the best column, or the first where the gain on it is within one standard error."""
    best = int(table.mean(axis=0).argmax())
    gains = table[:, best] - table[:, 0]
    error = float(gains.std(ddof=1)) / math.sqrt(len(gains)) if len(gains) > 1 else 0.0
    return best if float(gains.mean()) > error else 0
