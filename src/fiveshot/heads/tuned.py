"""Parameters chosen by few-shot sessions played inside the base classes, and a head that chooses its own."""

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

Candidate = Mapping[str, Any]  # parameters to set, by their short names
MOST_CLASSES = 60  # per episode, drawn for each: bounds the time
MOST_IN_EPISODES = 1000  # random features: what suits a tenth of them suits all


@dataclass(frozen=True)
class SearchValues:
    """Values of a parameter to try beside its own: these, or its own times some factors."""

    values: tuple[float, ...] = ()
    factors: tuple[float, ...] = ()

    def beside(self, own: Any) -> list[float]:
        """Return them; none where a factor meets a parameter without a value."""
        if self.values:
            return [value for value in self.values if value != own]
        return [] if own is None else [factor * own for factor in self.factors]


HALF_AND_DOUBLE = SearchValues(factors=(0.5, 2.0))
ALPHAS = SearchValues((0.5, 0.75, 0.9, 1.0))
SHARES = SearchValues((0.0, 0.25, 0.5, 0.75, 1.0))
SEARCHED: dict[type[Scorer], dict[str, SearchValues]] = {  # by short name, what episodes may choose
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
    """Return what may be chosen of a scorer, by short name; nothing of one that is not listed."""
    return next((SEARCHED[kind] for kind in type(scorer).__mro__ if kind in SEARCHED), {})


def values_to_try(scorer: Scorer, name: str) -> list[float]:
    """Return the values of one parameter that episodes try beside the scorer's own.

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
        hint=f"give it a value; what can be chosen: {', '.join(known) or 'nothing'}",
    )


def is_auto(scorer: Scorer, name: str, value: object) -> bool:
    """Tell whether a value asks for a choice by episodes; where a word can be a value, ``"auto"`` is one.

    >>> from fiveshot.core.scorers import make_scorer
    >>> is_auto(make_scorer("ncm"), "bias", "auto"), is_auto(make_scorer(), "offset", "auto")
    (True, False)
    """
    asked = isinstance(value, str) and value == "auto"
    return asked and (name in searched(scorer) or is_number(parameter(scorer, name)))


def default_candidates(scorer: Scorer) -> Sequence[Candidate]:
    """Return the changes of parameters that :func:`tune_on_base` tries unless told others."""
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
    raise InputError(
        f"no candidates are known for {method_name(scorer)}", hint="name some with candidates=[{...}]"
    )


def _calibrations(scorer: NCMScorer | FeCAMScorer, *, bias: float) -> list[Candidate]:
    """Return other calibrations, where there is one, each with this share of the bias."""
    calibration = scorer.calibration
    if calibration is None:
        return []
    moved: list[Candidate] = [{"alpha": alpha} for alpha in (0.75, 1.0)]
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
    """Return the scores of a candidate on an episode, whose rows count in X and y.

    What candidates have in common is made once and kept in ``shared``.
    """
    check_parameters(scorer)
    asked = X[positions(episode.asked_rows, X)]
    if isinstance(scorer, FeCAMScorer):  # the metrics serve all that differ in the bias alone
        key = _described_without(scorer, "bias")
        if key not in shared:
            whole = with_parameters(scorer, {"bias": 1.0}).adopt(episode.memory)
            inflations = [metric.inflation for metric in whole.model.models.values()]
            shared[key] = as_numpy(whole.scores(asked)), np.array(inflations)
        scores, inflations = shared[key]
        return scores - (1 - scorer.bias) * inflations
    if isinstance(scorer, RanPACScorer):  # one base session serves all that differ in the calibration
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
    """Return all parameters but one as a text; the same text means the same values."""
    return repr(sorted((key, value) for key, value in own_parameters(scorer).items() if key != name))


class TunedHead(FewShotHead):
    """Another head, with the parameters named in ``auto`` chosen on the base session.

    ``make_head("c-fecam", alpha="auto")`` returns one. :func:`~fiveshot.heads.choose_parameters` says how a choice
    is made. After ``fit``, ``chosen_`` holds what was chosen, and ``head_`` the head that has it.

    Parameters
    ----------
    head : FewShotHead
        Its values are where the choice starts, and what stays with fewer than ten base classes.
    auto : sequence of str
        The parameters to choose.
    shots : int
        Samples of a class that is played as new.
    episodes : int
        How many are played.
    random_state, device : optional
        Those of ``head`` unless given.

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
        """Return the scorer of the head, with what was chosen."""
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
        """The head with what was chosen, fitted."""
        head = self._head_with(self.chosen_)
        head.scorer_, head.n_features_in_ = self.scorer_, self.n_features_in_
        return head

    def adopt(self, memory: Memory, settings: Mapping[str, Any] | None = None) -> Self:
        """Take up statistics; without ``settings`` with the values that the choice would have started from."""
        with self._unchanged_on_error():
            chosen = getattr(self, "chosen_", {}) if settings is None else dict(settings["chosen"])
            if chosen != getattr(self, "chosen_", None):
                self.__dict__.pop("scorer_", None)
            self.chosen_ = chosen
            return super().adopt(memory, None if settings is None else settings["head"])

    def settings(self) -> dict[str, Any]:
        """Return what was chosen, and what the head itself chose on the base session."""
        check_is_fitted(self)
        return {"chosen": self.chosen_, "head": self.scorer_.settings()}

    def _head_with(self, chosen: Mapping[str, Any]) -> FewShotHead:
        """Return the head with these values, on the device and with the seed of this one."""
        if not isinstance(self.head, FewShotHead) or isinstance(self.head, TunedHead):
            raise InputError(f"head must be a head to choose parameters for, got {self.head!r}; for example NCM()")
        shared = {"device": self.device, "random_state": self.random_state}
        known = parameter_names(self.head.unlearned_scorer())
        given = {name: value for name, value in shared.items() if name in known and value is not None}
        head: FewShotHead = clone(self.head)
        return head.set_params(**given, **chosen)


def plain_head(head: FewShotHead) -> FewShotHead:
    """Return the head inside one that tunes itself, and any other as it is.

    >>> from fiveshot.heads import make_head
    >>> type(plain_head(make_head("teen", alpha="auto"))).__name__, type(plain_head(make_head("fecam"))).__name__
    ('NCM', 'FeCAM')
    """
    return head.head if isinstance(head, TunedHead) else head


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
        Parameters to change, by their short names; the usual ones of the head unless given.
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
    start = head.unlearned_scorer()
    changes: list[Candidate] = [{}, *(default_candidates(start) if candidates is None else candidates)]
    scorers = [with_parameters(start, change) for change in changes]
    features, labels = clone(head).validated_session(X, y)
    features = on_device(features, start.device)
    if len(usable_classes(labels, shots)) < LEAST_CLASSES:
        return Tuned(clone(head), 0)
    settings: Mapping[str, Any] | None = None
    if type(start).settings is not Scorer.settings:
        # What it chooses on the base session is chosen once, not for each candidate.
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
    """Choose parameters one after the other, each by :func:`tune_on_base` with those before it in force.

    Parameters
    ----------
    head : FewShotHead
        Where the search starts.
    X, y : arrays
        Features and labels of the base classes.
    names : sequence of str
        Parameters for which values to try are known.
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
    start = head.unlearned_scorer()
    grids = {name: values_to_try(start, name) for name in names}  # refuses all names before anything is played
    chosen: dict[str, Any] = {}
    for name, values in grids.items():
        candidates = [{name: value} for value in values]
        tuned = tune_on_base(head, X, y, candidates=candidates, shots=shots, episodes=episodes, seed=seed)
        head, chosen[name] = tuned.head, parameter(tuned.head.unlearned_scorer(), name)
    return chosen


def tuning_episodes(
    scorer: Scorer, X: Array, y: Labels, *, shots: int, episodes: int, seed: int
) -> Iterator[tuple[Episode, Array, Labels]]:
    """Yield seeded episodes, each over other classes, with the samples and labels that their rows count in."""
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
    """Return the mean of accuracy and A_HM of each scorer on one episode, averaged over its depths."""
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
    """Return the best column, or the first where the gain on it is within one standard error."""
    best = int(table.mean(axis=0).argmax())
    gains = table[:, best] - table[:, 0]
    error = float(gains.std(ddof=1)) / math.sqrt(len(gains)) if len(gains) > 1 else 0.0
    return best if float(gains.mean()) > error else 0
