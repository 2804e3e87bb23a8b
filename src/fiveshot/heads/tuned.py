"""Choose parameters by few-shot episodes inside the base classes; and a head that does so itself."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.utils.validation import check_is_fitted

from fiveshot.core import Memory
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
from fiveshot.core.scorers import (
    FeCAMScorer,
    NCMScorer,
    RanPACScorer,
    Scorer,
    UnbiasedLDAScorer,
    check_parameters,
    method_name,
    on_device,
    own_parameters,
    parameter,
    parameter_names,
    with_parameters,
)
from fiveshot.errors import InputError, is_number
from fiveshot.heads.head import FewShotHead

ParameterValues = Mapping[str, Any]  # parameters to set, by their short names
MOST_CLASSES = 60  # classes drawn for an episode; bounds the time
MOST_IN_EPISODES = 1000  # random features; parameters that suit a tenth of them suit all


@dataclass(frozen=True)
class SearchValues:
    """Values of a parameter to try in addition to its own: these values, or its own times some factors."""

    values: tuple[float, ...] = ()
    factors: tuple[float, ...] = ()

    def beside(self, own: Any) -> list[float]:
        """Return the values to try; empty if there are factors but ``own`` is None."""
        if self.values:
            return [value for value in self.values if value != own]
        return [] if own is None else [factor * own for factor in self.factors]


HALF_AND_DOUBLE = SearchValues(factors=(0.5, 2.0))
ALPHAS = SearchValues((0.5, 0.75, 0.9, 1.0))
SHARES = SearchValues((0.0, 0.25, 0.5, 0.75, 1.0))
SEARCHED: dict[type[Scorer], dict[str, SearchValues]] = {  # parameters that episodes may choose, by short name
    NCMScorer: {"alpha": ALPHAS, "bias": SHARES, "tau": HALF_AND_DOUBLE},
    FeCAMScorer: {
        "alpha": ALPHAS,
        "bias": SHARES,
        "tau": HALF_AND_DOUBLE,
        "beta": HALF_AND_DOUBLE,
        "gamma": SearchValues(factors=(0.1, 10.0)),
    },
    RanPACScorer: {"alpha": ALPHAS, "tau": HALF_AND_DOUBLE, "beta": HALF_AND_DOUBLE},
    UnbiasedLDAScorer: {
        "shrinkage": SearchValues((0.15, 0.3, 0.6)),
        "smoothing": SearchValues((0.4, 0.7, 0.9)),
        "bias": SHARES,
        "strength": SearchValues(factors=(0.4, 4.0)),
    },
}


def searched(scorer: Scorer) -> dict[str, SearchValues]:
    """Return the parameters of a scorer that may be chosen, by short name; empty for an unlisted scorer."""
    return next((SEARCHED[kind] for kind in type(scorer).__mro__ if kind in SEARCHED), {})


def values_to_try(scorer: Scorer, name: str) -> list[float]:
    """Return the values of one parameter that episodes try in addition to the scorer's own.

    >>> from fiveshot.core.scorers import make_scorer
    >>> values_to_try(make_scorer("c-fecam"), "alpha"), values_to_try(make_scorer("c-fecam"), "gamma")
    ([0.5, 0.75, 1.0], [10.0, 1000.0])
    """
    listed, own = searched(scorer), parameter(scorer, name)
    found = listed[name].beside(own) if name in listed else []
    if found:
        return found
    known = [
        one for one in parameter_names(scorer) if one in listed and listed[one].beside(parameter(scorer, one))
    ]
    raise InputError(
        f"{name!r} of {method_name(scorer)} cannot be chosen by episodes",
        hint=f"give it a value; parameters that can be chosen: {', '.join(known) or 'none'}",
    )


def is_auto(scorer: Scorer, name: str, value: object) -> bool:
    """Tell whether a value requests a choice by episodes; for a parameter whose values are words it never does.

    >>> from fiveshot.core.scorers import make_scorer
    >>> is_auto(make_scorer("ncm"), "bias", "auto"), is_auto(make_scorer(), "offset", "auto")
    (True, False)
    """
    asked = isinstance(value, str) and value == "auto"
    return asked and (name in searched(scorer) or is_number(parameter(scorer, name)))


def default_candidates(scorer: Scorer) -> Sequence[ParameterValues]:
    """Return the parameter changes that :func:`tune_on_base` tries by default."""
    if isinstance(scorer, NCMScorer):
        return [*({"bias": share} for share in (0.25, 0.5, 0.75, 1.0)), *_calibrations(scorer, bias=0.5)]
    if isinstance(scorer, FeCAMScorer):
        grid = [
            {"gamma": scorer.gamma * factor, **bias}
            for factor in (0.1, 1.0, 10.0)
            for bias in ({}, {"bias": 0.5}, {"bias": 1.0})
        ]
        return [*grid, *_calibrations(scorer, bias=0.5)]
    if isinstance(scorer, RanPACScorer):
        names = [] if scorer.calibration is None else ["alpha", "tau", "beta"]
        return [{name: value} for name in names for value in values_to_try(scorer, name)]
    if isinstance(scorer, UnbiasedLDAScorer):
        priors = {"strength": (0.1, 1.0), "smoothing": (0.4, 0.9), "shrinkage": (0.15, 0.6)}
        return [{name: value} for name, values in priors.items() for value in values]
    raise InputError(f"{method_name(scorer)} has no default candidates", hint="give some with candidates=[{...}]")


def _calibrations(scorer: NCMScorer | FeCAMScorer, *, bias: float) -> list[ParameterValues]:
    """Return changes of the calibration, if there is one, each with this ``bias``."""
    calibration = scorer.calibration
    if calibration is None:
        return []
    moved: list[ParameterValues] = [{"alpha": alpha} for alpha in (0.75, 1.0)]
    if isinstance(scorer, FeCAMScorer) and calibration.beta is not None:
        moved.append({"beta": calibration.beta / 2})
    else:
        moved += [{"tau": calibration.tau * factor} for factor in (0.5, 2.0)]
    return [{**change, "bias": bias} for change in moved]


def episode_scores(
    scorer: Scorer,
    episode: Episode,
    X: Array,
    y: Labels,
    *,
    settings: Mapping[str, Any] | None,
    shared: dict[str, Any],
) -> Array:
    """Return the scores of a candidate on an episode, whose rows are indices into X and y.

    Intermediate results that candidates have in common are computed once and kept in ``shared``.
    """
    check_parameters(scorer)
    asked = X[positions(episode.asked_rows, X)]
    if isinstance(scorer, FeCAMScorer):  # candidates that differ only in the bias share the metrics
        key = _described_without(scorer, "bias")
        if key not in shared:
            whole = with_parameters(scorer, {"bias": 1.0}).adopt(episode.memory)
            inflations = [metric.inflation for metric in whole.model.models.values()]
            shared[key] = as_numpy(whole.scores(asked)), np.array(inflations)
        scores, inflations = shared[key]
        return scores - (1 - scorer.bias) * inflations
    if isinstance(scorer, RanPACScorer):  # candidates that differ only in the calibration share the base session
        fewer = with_parameters(scorer, {"n_projections": min(scorer.n_projections, MOST_IN_EPISODES)})
        key = _described_without(fewer, "calibration")
        if key not in shared:
            shared[key] = fewer.learn(X[positions(episode.base_rows, X)], y[episode.base_rows])
        based = shared[key].reconfigured(own_parameters(fewer))
        return based.learn(X[positions(episode.new_rows, X)], y[episode.new_rows]).scores(asked)
    if scorer.needs_samples:
        learned = scorer.learn(X[positions(episode.base_rows, X)], y[episode.base_rows])
        return learned.learn(X[positions(episode.new_rows, X)], y[episode.new_rows]).scores(asked)
    return scorer.adopt(episode.memory, settings).scores(asked)


def _described_without(scorer: Scorer, name: str) -> str:
    """Return all parameters except one as a text; equal texts mean equal values."""
    return repr(sorted((key, value) for key, value in own_parameters(scorer).items() if key != name))


class TunedHead(FewShotHead):
    """A head whose parameters in ``auto`` are chosen on the base session.

    ``make_head("c-fecam", alpha="auto")`` returns one. :func:`~fiveshot.heads.choose_parameters` describes the
    choice. After ``fit``, ``chosen_`` holds the chosen values, and ``head_`` the head with these values.

    Parameters
    ----------
    head : FewShotHead
        The choice starts from its values. With fewer than ten base classes they stay unchanged.
    auto : sequence of str
        The parameters to choose.
    shots : int
        Samples of a class that an episode treats as new.
    episodes : int
        Number of episodes.
    random_state, device : optional
        By default those of ``head``.

    Examples
    --------
    >>> from fiveshot.data import gaussian_classes
    >>> from fiveshot.heads import NCM, TunedHead
    >>> X, y, _, _ = gaussian_classes(n_classes=12, n_features=8, train_per_class=20, test_per_class=1, seed=0)
    >>> head = TunedHead(NCM("euclidean"), ["bias"], episodes=4).fit(X, y)
    >>> list(head.chosen_), head.head_.bias == head.chosen_["bias"]
    (['bias'], True)
    >>> head.partial_fit([[9.0] * 8] * 5, [12] * 5).predict([[8.0] * 8]).tolist()
    [12]
    """

    def __init__(
        self,
        head: FewShotHead,
        auto: Sequence[str] = (),
        *,
        shots: int = 5,
        episodes: int = 8,
        random_state: int | None = None,
        device: Any = None,
    ) -> None:
        self.head = head
        self.auto = auto
        self.shots = shots
        self.episodes = episodes
        self.random_state = random_state
        self.device = device

    def unlearned_scorer(self) -> Scorer:
        """Return the scorer of the head, with the chosen values."""
        return self._head_with(getattr(self, "chosen_", {})).unlearned_scorer()

    def first_scorer(self, X: Array, y: Labels) -> Scorer:
        """Choose the parameters."""
        if isinstance(self.auto, str):
            raise InputError(f"auto must be a list of names, got {self.auto!r}; for example [{self.auto!r}]")
        start = self._head_with({})
        seed = own_parameters(start.unlearned_scorer()).get("random_state", self.random_state or 0)
        self.chosen_ = choose_parameters(
            start, X, y, names=self.auto, shots=self.shots, episodes=self.episodes, seed=int(seed)
        )
        return self.unlearned_scorer()

    @property
    def head_(self) -> FewShotHead:
        """The fitted head with the chosen values."""
        head = self._head_with(self.chosen_)
        head.scorer_, head.n_features_in_ = self.scorer_, self.n_features_in_
        return head

    def adopt(self, memory: Memory, settings: Mapping[str, Any] | None = None) -> Self:
        """Take over statistics; without ``settings`` the values of ``head`` stay unchanged."""
        with self._unchanged_on_error():
            chosen = getattr(self, "chosen_", {}) if settings is None else dict(settings["chosen"])
            if chosen != getattr(self, "chosen_", None):
                self.__dict__.pop("scorer_", None)
            self.chosen_ = chosen
            return super().adopt(memory, None if settings is None else settings["head"])

    def settings(self) -> dict[str, Any]:
        """Return the chosen values, and those that the head itself chose on the base session."""
        check_is_fitted(self)
        return {"chosen": self.chosen_, "head": self.scorer_.settings()}

    def _head_with(self, chosen: Mapping[str, Any]) -> FewShotHead:
        """Return the head with these values, and with the device and the seed of this object."""
        if not isinstance(self.head, FewShotHead) or isinstance(self.head, TunedHead):
            raise InputError(f"head must be a FewShotHead, got {self.head!r}; for example NCM()")
        shared = {"device": self.device, "random_state": self.random_state}
        known = parameter_names(self.head.unlearned_scorer())
        given = {name: value for name, value in shared.items() if name in known and value is not None}
        head: FewShotHead = clone(self.head)
        return head.set_params(**given, **chosen)


def plain_head(head: FewShotHead) -> FewShotHead:
    """Return the inner head of a :class:`TunedHead`; any other head is returned unchanged.

    >>> from fiveshot.heads import make_head
    >>> type(plain_head(make_head("teen", alpha="auto"))).__name__, type(plain_head(make_head("fecam"))).__name__
    ('NCM', 'FeCAM')
    """
    return head.head if isinstance(head, TunedHead) else head


@dataclass(frozen=True)
class CandidateScore:
    """Tried parameters, and their mean of (accuracy + A_HM) / 2 over the episodes."""

    parameters: ParameterValues
    mean: float
    spread: float | None  # sample standard deviation over episodes; None for a single episode


@dataclass(frozen=True, eq=False)
class Tuned:
    """The unfitted head with the picked parameters, and the scores of all candidates.

    Attributes
    ----------
    head : FewShotHead
        The head with the picked parameters.
    picked : int
        Index of the picked candidate; 0 is the given head.
    scores : tuple of CandidateScore
        Score of each candidate; empty without episodes.
    single_picks : tuple of int
        The best candidate of each episode; if they differ much, do not trust the pick.

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
    def parameters(self) -> ParameterValues:
        """The changed parameters; empty if the head was kept."""
        return self.scores[self.picked].parameters if self.scores else {}


def tune_on_base(
    head: FewShotHead,
    X: Any,
    y: Any,
    *,
    candidates: Sequence[ParameterValues] | None = None,
    shots: int = 5,
    episodes: int = 8,
    seed: int = 0,
) -> Tuned:
    """Return the head with the best of some parameter changes, judged by episodes inside the base classes.

    A candidate replaces the given head only if it is better by more than one standard error of the paired
    difference. With fewer than ten base classes of ``shots`` + 2 samples the given head is returned unchanged,
    because its defaults are then the better guess.

    Parameters
    ----------
    head : FewShotHead
        Where the search starts.
    X, y : arrays
        Features and labels of the base classes.
    candidates : sequence of mappings, optional
        Parameters to change, by their short names; the usual ones of the head unless given.
    shots : int
        Samples of a class that an episode treats as new.
    episodes : int
        Number of episodes.
    seed : int
        Random seed of the episodes.

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
    start = head.unlearned_scorer()
    changes: list[ParameterValues] = [{}, *(default_candidates(start) if candidates is None else candidates)]
    scorers = [with_parameters(start, change) for change in changes]
    features, labels = clone(head).validated_session(X, y)
    features = on_device(features, start.device)
    if len(usable_classes(labels, shots)) < LEAST_CLASSES:
        return Tuned(clone(head), 0)
    settings: Mapping[str, Any] | None = None
    if type(start).settings is not Scorer.settings:
        # The scorer's own choices on the base session are made once, not for each candidate.
        start = start.learn(features, labels)
        settings = start.settings()
    played = tuning_episodes(start, features, labels, shots=shots, episodes=episodes, seed=seed)
    table = np.array([_scores(scorers, *episode, settings) for episode in played])  # (episodes, candidates)
    picked = _pick(table)
    scores = tuple(
        CandidateScore(
            change,
            float(table[:, i].mean()),
            float(table[:, i].std(ddof=1)) if len(table) > 1 else None,
        )
        for i, change in enumerate(changes)
    )
    chosen = clone(head).set_params(**changes[picked])
    return Tuned(chosen, picked, scores, tuple(int(i) for i in table.argmax(axis=1)))


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
    """Choose parameters one after the other by :func:`tune_on_base`, each with the values chosen before it.

    Parameters
    ----------
    head : FewShotHead
        Where the search starts.
    X, y : arrays
        Features and labels of the base classes.
    names : sequence of str
        Parameters for which values to try are known.
    shots : int
        Samples of a class that an episode treats as new.
    episodes : int
        Number of episodes.
    seed : int
        Random seed of the episodes.

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
    start = head.unlearned_scorer()
    grids = {name: values_to_try(start, name) for name in names}  # raises for a bad name before the first episode
    chosen: dict[str, Any] = {}
    for name, values in grids.items():
        candidates = [{name: value} for value in values]
        tuned = tune_on_base(head, X, y, candidates=candidates, shots=shots, episodes=episodes, seed=seed)
        head, chosen[name] = tuned.head, parameter(tuned.head.unlearned_scorer(), name)
    return chosen


def tuning_episodes(
    scorer: Scorer, X: Array, y: Labels, *, shots: int, episodes: int, seed: int
) -> Iterator[tuple[Episode, Array, Labels]]:
    """Yield seeded episodes, each over other classes, with the samples and labels that their rows refer to."""
    usable = usable_classes(y, shots)
    for number in range(episodes):
        rng = np.random.default_rng([derived_seed(seed, "classes of episodes"), number])
        rows = np.flatnonzero(np.isin(y, rng.permutation(usable)[:MOST_CLASSES]))
        samples = X[positions(rows, X)]
        (episode,) = play_episodes(scorer.embed(samples), y[rows], shots=shots, episodes=1, seed=seed + number)
        yield episode, samples, y[rows]


def _scores(
    scorers: Sequence[Scorer], episode: Episode, X: Array, y: Labels, settings: Mapping[str, Any] | None
) -> list[float]:
    """Return (accuracy + A_HM) / 2 of each scorer on one episode, averaged over its depths."""
    shared: dict[str, Any] = {}
    tables = (
        as_numpy(episode_scores(scorer, episode, X, y, settings=settings, shared=shared)) for scorer in scorers
    )
    return [float(np.mean([score_at(scores, episode, depth) for depth in DEPTHS])) for scores in tables]


def score_at(scores: NDArray[Any], episode: Episode, depth: float) -> float:
    """Return (accuracy + A_HM) / 2 with a share of the new classes."""
    known = known_at(episode.new, depth)
    counted = known[episode.codes]
    answers = np.where(known, scores[counted], -math.inf).argmax(axis=1)
    return balanced_accuracy(answers == episode.codes[counted], episode.new[episode.codes[counted]])


def _pick(table: NDArray[np.float64]) -> int:
    """Return the best column, or column 0 if the gain is within one standard error."""
    best = int(table.mean(axis=0).argmax())
    gains = table[:, best] - table[:, 0]
    error = float(gains.std(ddof=1)) / math.sqrt(len(gains)) if len(gains) > 1 else 0.0
    return best if float(gains.mean()) > error else 0
