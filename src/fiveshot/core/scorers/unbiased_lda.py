"""UnbiasedLDA: one covariance for all classes, posterior class means, no penalty for classes with few samples."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import KW_ONLY, asdict, dataclass, fields, replace
from typing import Any, ClassVar, Literal, Self, get_args

import numpy as np
from numpy.typing import NDArray

from fiveshot.core import ClassStatistics, Memory, class_statistics
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
from fiveshot.core.episodes import Choice, PlayedEpisode, choose, few_of_each, play_episodes
from fiveshot.core.few_shots import (
    few_enough,
    few_shot_model,
    few_shot_offset,
    has_no_base,
    is_small,
    share_of_sharpness,
)
from fiveshot.core.labels import Label, Labels, python_labels
from fiveshot.core.lda import (
    ClassFit,
    LinearScorer,
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
from fiveshot.core.scorers.inputs import on_device
from fiveshot.core.scorers.scorer import Scorer, nothing, refuse_forgetting
from fiveshot.errors import InputError

Pooled = Literal["all", "base"]
Kept = Literal["classes", "sums"]
DEFAULT_PRIOR = Prior()
NO_CHOICE = Choice()  # the defaults of offset and sharpness
SCORED_AT_ONCE = 1024  # samples mapped at a time; limits the memory
# For familiarity, with a base and without one: the factor of B, the weight of the cosine with the mean of the
# class and the weight of the second-best score. Chosen on training photos, see docs/explanation/default-head.md.
FAMILIARITY_WITH_BASE, FAMILIARITY_WITHOUT_BASE = (0.25, 0.0, 0.3), (1.0, 1.5, 0.0)
MOST_FEATURES = 1 << 14  # for one vector; limits the memory of random features before they are drawn
SHOTS = 5  # of classes treated as new in episodes; the gap scales the result to other numbers
MOST_CHOSEN = 1e9  # for values of a choice in a file; larger ones overflow scores
PLAYED_SAMPLES = 24  # samples of a base class in episodes, if memory must not grow with the samples


@dataclass(frozen=True, eq=False)
class LdaBasis:
    """What the base session fixes: the embedding, the choice by episodes, and the sum of its scatter."""

    embedding: Embedding
    choice: Choice = NO_CHOICE
    folded: Scatter | None = None  # only if the base classes have no factors


@dataclass(eq=False)
class UnbiasedLDAScorer(Scorer):
    """Linear discriminant analysis for classes with five samples next to classes with hundreds.

    The covariance is pooled over all classes, including new ones; the equations are in ``fiveshot.core.lda``.

    Its parameters are described in :class:`fiveshot.heads.UnbiasedLDA`.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> y = np.repeat([0, 1, 2, 3], 20)
    >>> four = UnbiasedLDAScorer().learn(np.eye(8)[y] + 0.1 * rng.normal(size=(80, 8)), y)
    >>> five = four.learn(np.eye(8)[5] + 0.1 * rng.normal(size=(5, 8)), [9] * 5)
    >>> five.classify(np.eye(8)[[5, 2]]).tolist()
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

    n_random: int = 1000
    _: KW_ONLY
    random_weight: float = 0.4
    prior: Prior | None = None
    offset: float | Literal["auto"] = "auto"
    sharpness: float | Literal["auto"] = "auto"
    center: bool = True
    pooled: Pooled = "all"
    kept: Kept = "classes"
    episodes: int = 6
    together: int = 0
    random_state: int = 0
    device: Any = None

    def start(self, X: Array, y: Labels) -> tuple[LdaBasis, ClassStatistics]:
        """Choose the center and the random features, then offset and sharpness by episodes."""
        n_classes = len(np.unique(y))
        few = is_small(len(X), n_classes, X.shape[1])  # treated as if there were no base
        center = mean_row(X) if self.center and not few else zeros((X.shape[1],), X)
        width = self.n_random if len(X) - n_classes > self.n_random and not few else 0
        embedding = make_embedding(center, width, seed=self._seed, shortened=few)
        choice = self._chosen(embedding, X, y) if not few else NO_CHOICE
        if self.kept == "classes" or few:
            return LdaBasis(embedding, choice), class_statistics(embedding(X), y)
        found, folded = summed_classes(X, y, embedding, embedding.spaces)
        return LdaBasis(embedding, choice, folded), found

    def _chosen(self, embedding: Embedding, X: Array, y: Labels) -> Choice:
        """Choose offset and sharpness by episodes, unless they are given."""
        if self.offset != "auto" and self.sharpness != "auto":
            return NO_CHOICE
        if self.kept == "sums":
            rows = few_of_each(y, PLAYED_SAMPLES, seed=self._seed)
            X, y = X[positions(rows, X)], y[rows]
        return choose(self._played(embedding, X, y))

    def default_basis(self, width: int, like: Array) -> LdaBasis:
        """Return the embedding of a scorer without a base: no center, no random features."""
        return LdaBasis(make_embedding(zeros((width,), like), 0, seed=0, shortened=True))

    def embed(self, X: Array) -> Array:
        """Return the transformed features, see ``fiveshot.core.scatter.Embedding``."""
        basis = self.basis or self.default_basis(X.shape[1], X)
        embedding = basis.embedding.beside(X)
        center = embedding.center
        if X.shape[1] != len(center):  # a center of one number would be broadcast
            raise InputError(f"features of {X.shape[1]} numbers do not fit a center of {len(center)}")
        return embedding(placed(X, center))

    def settings(self) -> dict[str, Any]:
        """Return the center and what the episodes chose."""
        if self.basis.folded is not None:
            raise InputError(
                "statistics of a head with kept='sums' do not say how samples of a base class differ",
                hint="fit it with kept='classes'",
            )
        return {"center": self._embedding.center.tolist(), **self._settings_but_center()}

    def _settings_but_center(self) -> dict[str, Any]:
        return {
            "n_random": self._embedding.n_random,
            "seed": self._seed,
            "shortened": self._embedding.shortened,
            "choice": asdict(self._settled()),
        }

    def read_settings(self, settings: Mapping[str, Any]) -> LdaBasis:
        """Return the center and what the episodes chose."""
        kept = read_settings(settings, n_random=self.n_random)
        center = on_device(kept.center, self.device)
        embedding = make_embedding(center, kept.n_random, seed=kept.seed, shortened=kept.shortened)
        return LdaBasis(embedding, kept.choice)

    @property
    def _embedding(self) -> Embedding:
        """The embedding, on the device of the statistics."""
        embedding: Embedding = self.basis.embedding
        return embedding.beside(self.memory.statistics.like) if self.learned else embedding

    @property
    def choice(self) -> Choice:
        """Offset and sharpness: given, chosen on the base session, or the defaults."""
        choice = self._settled()
        if self.learned and self.sharpness == "auto":
            share = share_of_sharpness(self.memory.statistics.n_samples)
            choice = replace(choice, sharpness=choice.sharpness * share)
        if self.learned and self.model.few and self.offset == "auto":
            choice = replace(choice, offset=few_shot_offset(len(self.classes)))
        return choice

    def _settled(self) -> Choice:
        """Return the choice without what depends on the learned classes."""
        chosen: Choice = self.basis.choice if self.basis is not None else NO_CHOICE
        offset = chosen.offset if self.offset == "auto" else float(self.offset)
        sharpness = chosen.sharpness if self.sharpness == "auto" else float(self.sharpness)
        return Choice(offset, sharpness, chosen.offset_spread, chosen.episodes)

    def familiarity_of(self, X: Array, scores: Array) -> Array:
        """Return how well samples fit their best class; with a base, also how they relate to the other classes.

        The fit is φ of ``fiveshot.core.lda`` in the first space. A base shows how classes relate to each other,
        and so whether a sample lies between them; the score of the second-best class counts against it. Without a
        base, features are not centered, and the cosine with the mean of the class detects completely different
        things.
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
        return FAMILIARITY_WITHOUT_BASE if self.model.few else FAMILIARITY_WITH_BASE

    def _own(self, classes: NDArray[np.intp]) -> ClassFit:
        """Return the fit to classes, given by their indices."""
        space, statistics, base = self.model.spaces[0], self.memory.statistics, self.memory.base
        chosen = [statistics.summaries[place] for place in classes]
        means = namespace(statistics.like).stack([one.mean[self._embedding.spaces[0]] for one in chosen])
        counts = values_like([one.count for one in chosen], means)
        new = mask([label not in base for label in python_labels(statistics.labels[classes])], means)
        strength, near, _ = self._own_weights
        own = own_likeness(space, means, counts, new=new, strength=strength, near=near)
        return own if self.model.few else with_surroundings(own, space, means)

    def sketch(self, memory: Memory) -> Self:
        """Return a quick scorer of the classes in ``memory``, with both covariances of this scorer."""
        model = self.model
        spaces = sketched_spaces(model.spaces, self._embedding.spaces, self.memory, memory)
        return self.holding(memory, replace(model, spaces=spaces))

    def whiten(self, X: Array) -> Array:
        """Return samples whitened by the covariance of the first space, that of the features."""
        found: Array = self.model.spaces[0].shared.covariance.whiten(X)
        return found

    def linear(self) -> LinearScorer:
        """Return the matrices for scores, probabilities and familiarity, for other runtimes."""
        model, choice = self.model, self.choice
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
            own=self._own(np.arange(len(self.classes))),
            shortened=self._embedding.shortened,
        )

    def input_width(self, memory: Memory) -> int:
        """Return the length of the center."""
        width: int = self.basis.embedding.n_features
        return width

    def derive(self, memory: Memory, X: Array, y: Labels, previous: TiedModel | None) -> TiedModel:
        """Return the model of all classes in both spaces."""
        folded = self.basis.folded
        if folded is not None and previous is not None:
            reason = "its samples are part of a sum over all base classes"
            refuse_forgetting(self.memory.base, memory.base, reason)
        return self._model(memory, self.basis.embedding.beside(memory.statistics.like), previous, folded)

    def score_classes(self, X: Array, labels: list[Label]) -> Array:
        """Return the scores of these classes."""
        scores = self.score_all(X)
        if len(labels) == len(self.classes):
            return scores
        return scores[:, positions(np.searchsorted(self.classes, labels), X)]

    def score_all(self, X: Array) -> Array:
        """Return scores plus the chosen share of the gaps."""
        model, embedding, gaps = self.model, self._embedding, self.choice.offset * self._gaps(self.model)
        rows = [self._combined(model, embedding.parts(part)) + gaps for part in chunks(X, SCORED_AT_ONCE)]
        return namespace(X).concat(rows)

    def moved_by(self, X: Any) -> Self:
        """Return this scorer with class means moved by samples that are predicted together; nothing is learned.

        As in a mixture model, a sample counts in every class with its probability; the next round uses the
        probabilities of the moved means. Both covariances stay.

        Parameters
        ----------
        X : array of shape (n_samples, n_features)
            All samples to predict, without labels.

        Returns
        -------
        UnbiasedLDAScorer
            A scorer that scores each sample alone; this scorer if ``together`` is 0.

        Examples
        --------
        >>> import numpy as np
        >>> rng = np.random.default_rng(0)
        >>> y = np.repeat([0, 1, 2], 20)
        >>> scorer = UnbiasedLDAScorer(together=3).learn(np.eye(8)[y] + 0.1 * rng.normal(size=(60, 8)), y)
        >>> scorer = scorer.learn(np.eye(8)[[5]] + 0.3, [9])
        >>> asked = np.eye(8)[[5] * 20] + 0.1 * rng.normal(size=(20, 8))
        >>> scorer.moved_by(asked).memory.statistics[9].count > 15
        True
        """
        if not self.together:
            return self
        alone = copy(self)
        alone.together = 0
        features, moved = self._checked(X), alone
        embedded = namespace(features).concat([self.embed(part) for part in chunks(features, SCORED_AT_ONCE)])
        for _ in range(self.together):
            shares = softmax(moved.score_checked(features) * self.softmax_factor())  # (n, C)
            weights = as_numpy(namespace(shares).sum(shares, axis=0))
            moved = alone.sketch(moved_means(self.memory, weights, shares.T @ embedded))
        return moved

    def score_checked(self, X: Array) -> Array:
        """Return the scores of all classes; if samples are predicted together, after the means have moved."""
        return super().score_checked(X) if not self.together else self.moved_by(X).score_checked(X)

    def softmax_factor(self) -> float:
        """Return the sharpness."""
        return self.choice.sharpness

    def state_to_save(self) -> tuple[dict[str, Array], dict[str, Any]]:
        """Return the center, the choice by episodes, and the sums if they are kept."""
        arrays = {"center": self._embedding.center}
        for number, matrix in enumerate(self.basis.folded.matrices if self.basis.folded is not None else ()):
            arrays[f"folded.{number}"] = matrix
        return arrays, self._settings_but_center()

    def restored(self, memory: Memory, arrays: dict[str, Array], values: dict[str, Any]) -> Self:
        """Return the scorer with the saved center and choice, and derive the rest."""
        seed, n_random = int(values["seed"]), int(values["n_random"])
        embedding = make_embedding(arrays["center"], n_random, seed=seed, shortened=bool(values["shortened"]))
        sums = [array for name, array in sorted(arrays.items()) if name.startswith("folded.")]
        folded = Scatter(tuple(sums), 0) if sums else None
        after = copy(self)
        after.basis = LdaBasis(embedding, read_choice(values["choice"]), folded)
        return after.holding(memory, after.derive(memory, *nothing(memory), None))

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

    def _played(self, embedding: Embedding, X: Array, y: Labels) -> list[PlayedEpisode]:
        found = []
        for episode in play_episodes(embedding(X), y, shots=SHOTS, episodes=self.episodes, seed=self._seed):
            model = self._model(episode.memory, embedding, None)
            scores = self._combined(model, [episode.X[:, columns] for columns in embedding.spaces])
            n_samples = episode.memory.statistics.n_samples
            found.append(PlayedEpisode(scores, self._gaps(model), episode.codes, episode.new, n_samples))
        return found


def moved_means(memory: Memory, weights: NDArray[Any], sums: Array) -> Memory:
    """Return statistics with unlabeled samples added, given the share of each sample in each class."""

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
    """The center of the features, the number of random features, and the choice by episodes."""

    center: NDArray[np.float32]  # (d,)
    n_random: int
    seed: int
    shortened: bool
    choice: Choice


def read_settings(settings: Mapping[str, Any], *, n_random: int) -> LdaSettings:
    """Check and return the settings of a head with ``n_random`` random features.

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
    """Check and return a choice from its plain values."""
    _expect_entries(values, Choice, "choice")
    for name in ("offset", "sharpness", "offset_spread"):
        if not _is_number(values[name]) or not 0 <= values[name] <= MOST_CHOSEN:
            raise InputError(f"{name} is {values[name]!r}; it must be a number from 0 to {MOST_CHOSEN:g}")
    if type(values["episodes"]) is not int or values["episodes"] < 0:
        raise InputError(f"episodes is {values['episodes']!r}; it must be an integer of at least 0")
    return Choice(**values)


def _read_center(values: Any) -> NDArray[np.float32]:
    if not isinstance(values, list) or not 1 <= len(values) <= MOST_FEATURES:
        raise InputError(f"the center is not a list of 1 to {MOST_FEATURES} numbers")
    if not all(map(_is_number, values)):
        raise InputError("the center holds a value that is not a finite number")
    with np.errstate(over="ignore"):
        center = np.array(values, dtype=np.float32)
    if not np.isfinite(center).all():
        raise InputError("the center holds a number too large for float32")
    return center


def _expect_entries(values: Any, kind: type[Any], what: str) -> None:
    expected = {entry.name for entry in fields(kind)}
    if not isinstance(values, Mapping) or set(values) != expected:
        found = sorted(map(str, values))[:9] if isinstance(values, Mapping) else repr(values)[:40]
        raise InputError(f"the {what} must have the entries {sorted(expected)}, got {found}")


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
