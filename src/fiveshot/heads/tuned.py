"""Parameters chosen by few-shot sessions played inside the base classes, and a head that chooses its own."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from fiveshot.core import ClassStatistics, Memory
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
from fiveshot.core.labels import Label, Labels
from fiveshot.errors import InputError
from fiveshot.heads.estimator import (
    as_features,
    as_session_labels,
    clone,
    parameter,
    parameter_names,
    values_to_try,
    with_parameters,
)
from fiveshot.heads.head import Candidate, FewShotHead, Workload, on_device

TRIALS = 20  # candidates in all the episodes together cost about so many runs of a head
MOST_CLASSES = 60  # per episode, drawn for each: bounds the time


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

    head_: FewShotHead
    chosen_: dict[str, Any]

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

    @property
    def temperature(self) -> float:  # type: ignore[override]
        """That of the head."""
        return self.head.temperature

    def adopt(self, memory: Memory, settings: Mapping[str, Any] | None = None) -> Self:
        """Take up statistics; without ``settings`` with the values that the choice would have started from."""
        if not hasattr(self, "head_"):
            self._choose({})
        if self.head_.needs_samples:
            self.head_.adopt(memory)  # refuses: it does not follow from statistics
        return super().adopt(memory, settings)

    def settings(self) -> dict[str, Any]:
        """Return what was chosen, and what the head itself chose on the base session."""
        return {"chosen": self.chosen_, "head": self.head_.settings()}

    def embed(self, X: Array) -> Array:
        """Return the vectors that the head keeps statistics of."""
        return (self.head_ if hasattr(self, "head_") else self._placed_head({})).embed(X)

    def familiarity_of(self, X: Array, scores: Array) -> Array:
        """Return the familiarity of samples as the head has it."""
        return self.head_.familiarity_of(X, scores)

    def memory_needed(self, work: Workload) -> int:
        """Return what the head needs."""
        return self.head.memory_needed(work)

    def operations(self, work: Workload) -> float:
        """Return what the head needs, many times over."""
        return TRIALS * self.head.operations(work)

    def learn_session(self, X: Array, y: Any, classes: Any, memory: Memory, model: Any) -> Self:
        """Learn on the device of the head, unless this one has its own."""
        place = self.device or getattr(self.head, "device", None)
        return super().learn_session(on_device(X, place), y, classes, memory, model)

    def begin(self, X: Array, y: Labels) -> None:
        """Choose the parameters."""
        if isinstance(self.auto, str):
            raise InputError(f"auto must be a list of names, got {self.auto!r}; for example [{self.auto!r}]")
        start = self._placed_head({})
        seed = start.get_params(deep=False).get("random_state", self.random_state or 0)
        chosen = choose_parameters(
            start, X, y, names=self.auto, shots=self.shots, episodes=self.episodes, seed=int(seed)
        )
        self._choose(chosen)
        self.head_.begin(X, y)

    def summarized(self, X: Array, y: Labels, *, first: bool) -> ClassStatistics:
        """Return the statistics that the head keeps."""
        return self.head_.summarized(X, y, first=first)

    def derive(self, memory: Memory, X: Array, y: Labels, previous: Any) -> Any:
        """Return the model of the head."""
        return self.head_.derive(memory, X, y, previous)

    def score_classes(self, X: Array, labels: list[Label]) -> Array:
        """Return the scores of the head."""
        return self.head_.score_classes(X, labels)

    def score_all(self, X: Array) -> Array:
        """Return those of all classes."""
        return self.head_.score_all(X)

    def class_tokens(self) -> Mapping[Label, object]:
        """Return the tokens of the head."""
        return self.head_.class_tokens()

    def softmax_factor(self) -> float:
        """Return the factor of the head."""
        return self.head_.softmax_factor()

    def input_width(self, memory: Memory) -> int:
        """Return the number of features that the head wants."""
        return self.head_.input_width(memory)

    def hold(self, memory: Memory, model: Any) -> Self:
        """Take up a memory and a model, in the head too."""
        inner = copy(self.head_)  # copies of this head share the one before
        inner.n_features_in_ = self.n_features_in_
        self.head_ = inner.hold(memory, model)
        return super().hold(memory, model)

    def apply_settings(self, settings: Mapping[str, Any]) -> None:
        """Take up what was chosen."""
        self._choose(settings["chosen"])
        self.head_.apply_settings(settings["head"])

    def extra_state(self) -> tuple[dict[str, Array], dict[str, Any]]:
        """Return what the head must save, and what was chosen."""
        arrays, extra = self.head_.extra_state()
        return arrays, {"chosen": self.chosen_, "head": extra}

    def restore(self, memory: Memory, arrays: dict[str, Array], extra: dict[str, Any]) -> None:
        """Take up the state that was saved."""
        self._choose(extra["chosen"])
        self.head_.n_features_in_ = self.n_features_in_
        self.head_.restore(memory, arrays, extra["head"])
        self.hold(memory, self.head_.model_)

    def _choose(self, chosen: Mapping[str, Any]) -> None:
        self.head_, self.chosen_ = self._placed_head(chosen), dict(chosen)

    def _placed_head(self, chosen: Mapping[str, Any]) -> FewShotHead:
        """Return the head with these values, on the device and with the seed of this one."""
        if not isinstance(self.head, FewShotHead) or isinstance(self.head, TunedHead):
            raise InputError(f"head must be a head to choose parameters for, got {self.head!r}; for example NCM()")
        shared = {"device": self.device, "random_state": self.random_state}
        known = parameter_names(self.head)
        given = {name: value for name, value in shared.items() if name in known and value is not None}
        return with_parameters(self.head, {**given, **chosen})


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
