"""UnbiasedLDA: one covariance for all classes, class means as well as five samples allow, no penalty for them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import asdict, dataclass, fields, replace
from typing import Any, ClassVar, Literal, Self, get_args

import numpy as np
from numpy.typing import NDArray

from fiveshot.core import ClassStatistics, Memory
from fiveshot.core.arrays import (
    Array,
    as_numpy,
    chunks,
    mask,
    mean_row,
    namespace,
    placed,
    positions,
    softmax,
    values_like,
    zeros,
)
from fiveshot.core.episodes import Choice, Played, choose, few_of_each, play_episodes
from fiveshot.core.few_shots import few_enough, few_shot_model, few_shot_offset, has_no_base, is_small
from fiveshot.core.labels import Label, Labels, python_labels
from fiveshot.core.lda import (
    LinearScorer,
    Own,
    Prior,
    TiedModel,
    own_likeness,
    rival_scores,
    sketched_spaces,
    tied_model,
    with_surroundings,
)
from fiveshot.core.ranges import Allowed, Flag, OneOf, Range
from fiveshot.core.scatter import Embedding, Scatter, make_embedding, pooled_scatter, summed_classes
from fiveshot.errors import InputError
from fiveshot.heads.head import (
    Candidate,
    FewShotHead,
    Recipe,
    Style,
    Tried,
    Workload,
    on_device,
    refuse_forgetting,
)

Pooled = Literal["all", "base"]
Kept = Literal["classes", "sums"]
DEFAULT_PRIOR = Prior()
SCORED_AT_ONCE = 1024  # samples mapped at a time, which bounds the memory
# Of familiarity, with a base and without one: the factor of B, and the weights of the cosine with the class's mean
# and of the rival's score, chosen on training photos, see docs/explanation/default-head.md.
OWN, OWN_FEW = (0.25, 0.0, 0.3), (1.0, 1.5, 0.0)
MOST_FEATURES = 1 << 14  # of a vector: bounds the memory of the random features before they are drawn
SHOTS = 5  # of the classes that are played as new; the gap scales the result to other numbers
PLAYED = 24  # samples of a base class that episodes are played with where memory must not grow with them


class UnbiasedLDA(FewShotHead):
    """Linear discriminant analysis for classes of five samples beside classes of hundreds.

    The covariance is pooled over all classes, new ones too; the equations are in ``fiveshot.core.lda``.

    Parameters
    ----------
    n_random : int
        Random ReLU features that form a second space. They are used where a base session of more samples than
        that gives their covariance.
    random_weight : float
        How much the scores of the second space count.
    prior : Prior, optional
        Regularizes.
    offset : float or "auto"
        The share of the expected gap between old and new classes that is closed. ``"auto"`` chooses it by episodes
        played inside the base classes, and takes a stated default where there are fewer than ten.
    sharpness : float or "auto"
        The factor of the scores in ``predict_proba``, chosen likewise.
    center : bool
        False leaves features uncentered.
    pooled : {"all", "base"}
        ``"base"`` leaves new classes out of the covariance.
    kept : {"classes", "sums"}
        What is kept of the base session. ``"classes"`` keeps the scatter of each class, as many rows as it has
        samples: any class can be forgotten exactly, as a model of other people's photos must. ``"sums"`` keeps the
        mean of each class, and the scatter of all as one sum: memory does not grow with the samples, but base
        classes can no longer be forgotten; new ones can. Answers are the same, except that ``"auto"`` plays its
        episodes with at most 24 samples of a class.
    episodes : int
        How many are played.
    together : int
        Rounds in which samples that are asked about at once move the means of the classes they are taken for.
        Answers then depend on what else is asked (transduction); 0 looks at each sample alone.
    random_state : int
        Seed of all draws.
    device : str, optional
        Where arrays are moved to; None computes where they are.

    Examples
    --------
    >>> import numpy as np
    >>> from fiveshot.heads import UnbiasedLDA
    >>> rng = np.random.default_rng(0)
    >>> centers = np.eye(8)[:4]
    >>> y = np.repeat([0, 1, 2, 3], 20)
    >>> head = UnbiasedLDA().fit(centers[y] + 0.1 * rng.normal(size=(80, 8)), y)
    >>> new = np.eye(8)[5] + 0.1 * rng.normal(size=(5, 8))
    >>> head.partial_fit(new, [9] * 5).predict([np.eye(8)[5], np.eye(8)[2]]).tolist()
    [9, 2]
    """

    ranges: ClassVar[Mapping[str, Allowed]] = {
        "n_random": Range(0, whole=True, hint="0 uses none"),
        "random_weight": Range(0, 1),
        "offset": Range(0, words=("auto",)),
        "sharpness": Range(0, words=("auto",)),
        "center": Flag(),
        "pooled": OneOf(get_args(Pooled), kind="choice of pooled classes"),
        "kept": OneOf(get_args(Kept), kind="choice of what is kept"),
        "episodes": Range(0, whole=True),
        "together": Range(0, whole=True, hint="0 looks at each sample alone"),
        "random_state": Range(whole=True, hint="for example 0"),
    }
    stands_for: ClassVar[Mapping[str, Any]] = {"prior": DEFAULT_PRIOR}
    tried: ClassVar[Mapping[str, Tried]] = {
        "shrinkage": Tried((0.15, 0.3, 0.6)),
        "smoothing": Tried((0.4, 0.7, 0.9)),
        "bias": Tried((0.0, 0.25, 0.5, 0.75, 1.0)),
        "strength": Tried(factors=(0.4, 4.0)),
    }
    model_: TiedModel
    _folded: Scatter | None = None  # of the base session, where its classes have no factors

    def __init__(
        self,
        n_random: int = 1000,
        *,
        random_weight: float = 0.4,
        prior: Prior | None = None,
        offset: float | Literal["auto"] = "auto",
        sharpness: float | Literal["auto"] = "auto",
        center: bool = True,
        pooled: Pooled = "all",
        kept: Kept = "classes",
        episodes: int = 6,
        together: int = 0,
        random_state: int = 0,
        device: Any = None,
    ) -> None:
        self.n_random = n_random
        self.random_weight = random_weight
        self.prior = prior
        self.offset = offset
        self.sharpness = sharpness
        self.center = center
        self.pooled = pooled
        self.kept = kept
        self.episodes = episodes
        self.together = together
        self.random_state = random_state
        self.device = device

    @classmethod
    def recipes(cls) -> tuple[Recipe, ...]:
        """Return the default head; the paper has no such head, so both flavors are the same."""
        return (
            Recipe(
                "unbiased-lda",
                "one covariance for all classes, posterior means, no penalty for few samples",
                paper=lambda: cls(),
                label="Unbiased LDA",
                style=Style("#000000", "#f5f5f5", "*", False),
                place=110,
            ),
        )

    def operations(self, work: Workload) -> float:
        """Add the random features, and a covariance of them for each session."""
        m, d = (self.n_random if work.base_rows - work.base_classes > self.n_random else 0), work.n_features
        per_session = 10.0 * m**3 + 2.0 * work.test_rows * d * m
        return super().operations(work) + work.rows * m * (2.0 * d + 6.0 * m) + work.sessions * per_session

    def candidates(self) -> list[Candidate]:
        """Return other priors."""
        tried = {"strength": (0.1, 1.0), "smoothing": (0.4, 0.9), "shrinkage": (0.15, 0.6)}
        return [{name: value} for name, values in tried.items() for value in values]

    def embed(self, X: Array) -> Array:
        """Return the vectors that statistics are taken of; see ``fiveshot.core.scatter.Embedding``."""
        if not hasattr(self, "_embedding"):
            self._embedding = make_embedding(zeros((X.shape[1],), X), 0, seed=0, shortened=True)
        embedding = self._embedding.beside(X)
        center = embedding.center
        if X.shape[1] != len(center):  # a center of one number would fit any
            raise InputError(f"features of {X.shape[1]} numbers do not fit a center of {len(center)}")
        return embedding(placed(X, center))

    def settings(self) -> dict[str, Any]:
        """Return the center and what the episodes chose."""
        if self._folded is not None:
            raise InputError(
                "statistics of a head with kept='sums' do not say how samples of a base class differ",
                hint="fit it with kept='classes'",
            )
        return self._plain_settings()

    def _plain_settings(self) -> dict[str, Any]:
        embedding = self._embedding
        return {
            "center": embedding.center.tolist(),
            "n_random": embedding.n_random,
            "seed": self._seed,
            "shortened": embedding.shortened,
            "choice": asdict(self._settled()),
        }

    @property
    def choice_(self) -> Choice:
        """Offset and sharpness in force: given, chosen on the base session, or the defaults."""
        settled = self._settled()
        if self.offset != "auto" or not (hasattr(self, "model_") and self.model_.few):
            return settled
        return replace(settled, offset=few_shot_offset(len(self.classes_)))

    def _settled(self) -> Choice:
        """Return the choice as far as it does not depend on how many classes there are."""
        chosen: Choice = getattr(self, "_chosen", Choice())
        offset = chosen.offset if self.offset == "auto" else float(self.offset)
        sharpness = chosen.sharpness if self.sharpness == "auto" else float(self.sharpness)
        return Choice(offset, sharpness, chosen.offset_spread, chosen.episodes)

    def familiarity_of(self, X: Array, scores: Array) -> Array:
        """Return how much samples are like their best class, and with a base how they lie to the others.

        The likeness is φ of ``fiveshot.core.lda`` in the first space. A base shows how classes lie to each other,
        and so whether a sample lies between them, and the score of the second best class counts against it.
        Without one features are not centered, and the cosine with the mean of the class tells what is quite
        another kind of thing.
        """
        xp = namespace(scores)
        best = as_numpy(xp.argmax(scores, axis=1))
        asked, places = np.unique(best, return_inverse=True)
        own, codes = self._own(asked), positions(places, scores)
        parts = zip(chunks(X, SCORED_AT_ONCE), chunks(codes, SCORED_AT_ONCE), strict=True)
        likeness = xp.concat([own(self._embedding.unit(part), part_codes) for part, part_codes in parts])
        *_, rival = self._own_weights
        return likeness - rival * rival_scores(scores, positions(best, scores)) if rival else likeness

    @property
    def _own_weights(self) -> tuple[float, float, float]:
        return OWN_FEW if self.model_.few else OWN

    def _own(self, classes: NDArray[np.intp]) -> Own:
        """Return the likeness to some classes, by their places."""
        space, statistics, base = self.model_.spaces[0], self.memory_.statistics, self.memory_.base
        chosen = [statistics.summaries[place] for place in classes]
        means = namespace(statistics.like).stack([one.mean[self._embedding.spaces[0]] for one in chosen])
        counts = values_like([one.count for one in chosen], means)
        new = mask([label not in base for label in python_labels(statistics.labels[classes])], means)
        strength, near, _ = self._own_weights
        own = own_likeness(space, means, counts, new=new, strength=strength, near=near)
        return own if self.model_.few else with_surroundings(own, space, means)

    def sketch(self, memory: Memory) -> Self:
        """Return a head that knows the classes of ``memory``, with both covariances as they are here."""
        model = self.model_
        spaces = sketched_spaces(model.spaces, self._embedding.spaces, self.memory_, memory)
        return copy(self).hold(memory, replace(model, spaces=spaces))

    def whiten(self, X: Array) -> Array:
        """Return samples whitened by the covariance of the first space, that of the features."""
        return self.model_.spaces[0].shared.covariance.whiten(X)

    def scorer(self) -> LinearScorer:
        """Return the matrices from which scores, probabilities and familiarity follow, for other runtimes."""
        model, choice = self.model_, self.choice_
        weighted = list(zip(self._weights(model), model.spaces, strict=True))
        drawn = self._embedding.projection
        return LinearScorer(
            center=self._embedding.center,
            projection=None if drawn is None else drawn.projection,
            weights=tuple(weight * space.weights for weight, space in weighted),
            shifts=tuple(weight * (space.weights @ space.origin) for weight, space in weighted),
            gaps=self._gaps(model),
            offset=choice.offset,
            sharpness=choice.sharpness,
            rival=self._own_weights[-1],
            own=self._own(np.arange(len(self.classes_))),
            shortened=self._embedding.shortened,
        )

    def begin(self, X: Array, y: Labels) -> None:
        """Choose the center, the random features, and by episodes offset and sharpness."""
        n_classes = len(np.unique(y))
        few = is_small(len(X), n_classes, X.shape[1])  # treated as if there were no base
        center = mean_row(X) if self.center and not few else zeros((X.shape[1],), X)
        width = self.n_random if len(X) - n_classes > self.n_random and not few else 0
        self._embedding = make_embedding(center, width, seed=self._seed, shortened=few)
        self._chosen, self._folded = Choice(), None
        if not few and (self.offset == "auto" or self.sharpness == "auto"):
            if self.kept == "sums":
                rows = few_of_each(y, PLAYED, seed=self._seed)
                X, y = X[positions(rows, X)], y[rows]
            self._chosen = choose(self._played(self._embedding(X), y))

    def summarized(self, X: Array, y: Labels, *, first: bool) -> ClassStatistics:
        """Return the statistics of a session; of a large base session only means, where sums are to be kept."""
        if self.kept == "classes" or not first or self._embedding.shortened:
            return super().summarized(X, y, first=first)
        found, self._folded = summed_classes(X, y, self.embed, self._embedding.spaces)
        return found

    def apply_settings(self, settings: Mapping[str, Any]) -> None:
        """Take up the center and what the episodes chose."""
        kept = read_settings(settings, n_random=self.n_random)
        center = on_device(kept.center, self.device)
        self._embedding = make_embedding(center, kept.n_random, seed=kept.seed, shortened=kept.shortened)
        self._chosen, self._folded = kept.choice, None

    def input_width(self, memory: Memory) -> int:
        """Return the length of the center."""
        if not hasattr(self, "_embedding"):
            self.embed(memory.statistics.means[:0])
        return self._embedding.n_features

    def derive(self, memory: Memory, X: Array, y: Labels, previous: TiedModel | None) -> TiedModel:
        """Return the model of all classes in both spaces."""
        if self._folded is not None and previous is not None:
            reason = "its samples are part of a sum over all base classes"
            refuse_forgetting(self.memory_.base, memory.base, reason)
        self._embedding = self._embedding.beside(memory.statistics.means)
        return self._model(memory, self._embedding, previous, self._folded)

    def score_classes(self, X: Array, labels: list[Label]) -> Array:
        """Return the scores of these classes."""
        scores = self.score_all(X)
        if len(labels) == len(self.classes_):
            return scores
        return scores[:, positions(np.searchsorted(self.classes_, labels), X)]

    def score_all(self, X: Array) -> Array:
        """Return scores with the chosen share of the gaps closed."""
        model, gaps = self.model_, self.choice_.offset * self._gaps(self.model_)
        rows = [self._combined(model, self._embedding.parts(part)) + gaps for part in chunks(X, SCORED_AT_ONCE)]
        return namespace(X).concat(rows)

    def moved_by(self, X: Any) -> Self:
        """Return this head with its class means moved by samples that are asked about together, nothing learned.

        As in a mixture model, a sample counts in every class by its probability there, and in the next round by
        what the moved means say of it. Both covariances stay.

        Parameters
        ----------
        X : array of shape (n_samples, n_features)
            All samples that are asked about, without labels.

        Returns
        -------
        UnbiasedLDA
            It looks at each sample alone; itself where ``together`` is 0.

        Examples
        --------
        >>> import numpy as np
        >>> from fiveshot.heads import UnbiasedLDA
        >>> rng = np.random.default_rng(0)
        >>> y = np.repeat([0, 1, 2], 20)
        >>> head = UnbiasedLDA(together=3).fit(np.eye(8)[y] + 0.1 * rng.normal(size=(60, 8)), y)
        >>> _ = head.partial_fit(np.eye(8)[[5]] + 0.3, [9])
        >>> asked = np.eye(8)[[5] * 20] + 0.1 * rng.normal(size=(20, 8))
        >>> head.moved_by(asked).memory_.statistics[9].count > 15
        True
        """
        if not self.together:
            return self
        alone = copy(self)
        alone.together = 0
        features, moved = self._features(X), alone
        embedded = namespace(features).concat([self.embed(part) for part in chunks(features, SCORED_AT_ONCE)])
        for _ in range(self.together):
            shares = softmax(moved._scores_of(features) * self.softmax_factor())  # (n, C)
            weights = as_numpy(namespace(shares).sum(shares, axis=0))
            moved = alone.sketch(moved_means(self.memory_, weights, shares.T @ embedded))
        return moved

    def _scores_of(self, features: Array) -> Array:
        if not self.together:
            return super()._scores_of(features)
        return self.moved_by(features)._scores_of(features)

    def softmax_factor(self) -> float:
        """Return the sharpness."""
        return self.choice_.sharpness

    def extra_state(self) -> tuple[dict[str, Array], dict[str, Any]]:
        """Return the center, what the episodes chose, and the sums where they are kept."""
        arrays = {"center": self._embedding.center}
        for number, matrix in enumerate(self._folded.matrices if self._folded is not None else ()):
            arrays[f"folded.{number}"] = matrix
        return arrays, {k: v for k, v in self._plain_settings().items() if k != "center"}

    def restore(self, memory: Memory, arrays: dict[str, Array], extra: dict[str, Any]) -> None:
        """Take up the center and the choice, and derive the rest."""
        seed, n_random = int(extra["seed"]), int(extra["n_random"])
        self._embedding = make_embedding(arrays["center"], n_random, seed=seed, shortened=bool(extra["shortened"]))
        self._chosen = read_choice(extra["choice"])
        sums = [array for name, array in sorted(arrays.items()) if name.startswith("folded.")]
        self._folded = Scatter(tuple(sums), 0) if sums else None
        super().restore(memory, {}, {})

    @property
    def _seed(self) -> int:
        return int(self.random_state)

    def _model(
        self, memory: Memory, embedding: Embedding, previous: TiedModel | None, folded: Scatter | None = None
    ) -> TiedModel:
        prior = self.prior or DEFAULT_PRIOR
        few = self.pooled == "all" and prior.shrinkage is None and len(embedding.spaces) == 1
        few = few and has_no_base(memory, embedding.n_features)
        if few and few_enough(memory.statistics.summaries, embedding.n_features):
            return TiedModel(None, (few_shot_model(memory, None, prior=prior),), few)
        pooled = pooled_scatter(memory, embedding.spaces, previous.pooled if previous else None, folded)
        if few:
            return TiedModel(pooled, (few_shot_model(memory, pooled, prior=prior),), few)
        return tied_model(memory, embedding.spaces, pooled, prior=prior, pool_new=self.pooled == "all")

    def _weights(self, model: TiedModel) -> Sequence[float]:
        return (1.0,) if len(model.spaces) == 1 else (1 - self.random_weight, self.random_weight)

    def _combined(self, model: TiedModel, parts: Sequence[Array]) -> Array:
        scored = zip(self._weights(model), model.spaces, parts, strict=True)
        return sum(weight * space.scores(part) for weight, space, part in scored)

    def _gaps(self, model: TiedModel) -> Array:
        return sum(weight * space.gaps for weight, space in zip(self._weights(model), model.spaces, strict=True))

    def _played(self, embedded: Array, y: Labels) -> list[Played]:
        found = []
        for episode in play_episodes(embedded, y, shots=SHOTS, episodes=self.episodes, seed=self._seed):
            model = self._model(episode.memory, self._embedding, None)
            scores = self._combined(model, [episode.X[:, columns] for columns in self._embedding.spaces])
            found.append(Played(scores, self._gaps(model), episode.codes, episode.new))
        return found


def moved_means(memory: Memory, weights: NDArray[Any], sums: Array) -> Memory:
    """Return statistics with samples of unknown class added: for each class their shares in it, and their sum."""

    def moved(part: ClassStatistics) -> ClassStatistics:
        places = np.searchsorted(memory.labels, part.labels).tolist()
        found = {}
        for label, known, place in zip(python_labels(part.labels), part.summaries, places, strict=True):
            more = float(weights[place])
            mean = (known.count * known.mean + sums[place]) / (known.count + more)
            found[label] = replace(known, count=known.count + round(more), mean=mean)
        return ClassStatistics.of(found)

    return Memory(moved(memory.base), moved(memory.new))


@dataclass(frozen=True, eq=False)
class LdaSettings:
    """The center of the features, the random features beside them, and what the episodes chose."""

    center: NDArray[np.float32]  # (d,)
    n_random: int
    seed: int
    shortened: bool
    choice: Choice


def read_settings(settings: Mapping[str, Any], *, n_random: int) -> LdaSettings:
    """Return settings of a head with so many random features; whatever does not fit is refused.

    >>> choice = {"offset": 0.5, "sharpness": 9.0, "offset_spread": 0.1, "episodes": 6}
    >>> settings = {"center": [0.5, 1], "n_random": 0, "seed": 0, "shortened": False, "choice": choice}
    >>> read_settings(settings, n_random=1000).choice
    Choice(offset=0.5, sharpness=9.0, offset_spread=0.1, episodes=6)
    """
    _expect_entries(settings, LdaSettings, "settings")
    if type(settings["n_random"]) is not int or settings["n_random"] not in (0, n_random):
        raise InputError(f"n_random is {settings['n_random']!r}; this head has 0 or {n_random} random features")
    if type(settings["seed"]) is not int:
        raise InputError(f"seed is {settings['seed']!r}; it must be an integer")
    if type(settings["shortened"]) is not bool:
        raise InputError(f"shortened is {settings['shortened']!r}; it must be true or false")
    center, choice = _read_center(settings["center"]), read_choice(settings["choice"])
    return LdaSettings(center, settings["n_random"], settings["seed"], settings["shortened"], choice)


def read_choice(values: Any) -> Choice:
    """Return a choice from its plain values; whatever does not fit is refused."""
    _expect_entries(values, Choice, "choice")
    for name in ("offset", "sharpness", "offset_spread"):
        if not _is_number(values[name]) or values[name] < 0:
            raise InputError(f"{name} is {values[name]!r}; it must be a finite number of at least 0")
    if type(values["episodes"]) is not int or values["episodes"] < 0:
        raise InputError(f"episodes is {values['episodes']!r}; it must be an integer of at least 0")
    return Choice(**values)


def _read_center(values: Any) -> NDArray[np.float32]:
    if not isinstance(values, list) or not 1 <= len(values) <= MOST_FEATURES:
        raise InputError(f"the center is not a list of 1 to {MOST_FEATURES} numbers")
    if not all(map(_is_number, values)):
        raise InputError("the center holds something that is not a finite number")
    with np.errstate(over="ignore"):
        center = np.array(values, dtype=np.float32)
    if not np.isfinite(center).all():
        raise InputError("the center holds a number beyond 32 bits")
    return center


def _expect_entries(values: Any, kind: type[Any], what: str) -> None:
    expected = {entry.name for entry in fields(kind)}
    if not isinstance(values, Mapping) or set(values) != expected:
        found = sorted(map(str, values))[:9] if isinstance(values, Mapping) else repr(values)[:40]
        raise InputError(f"the {what} must have the entries {sorted(expected)}, got {found}")


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
