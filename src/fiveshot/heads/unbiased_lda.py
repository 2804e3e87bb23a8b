"""UnbiasedLDA: one covariance for all classes, class means as well as five samples allow, no penalty for them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import asdict
from typing import Any, Literal, Self, get_args

import numpy as np

from fiveshot.core import Memory
from fiveshot.core.arrays import Array, chunks, log_softmax, mean_row, namespace, placed, positions, zeros
from fiveshot.core.episodes import Choice, Played, choose, play_episodes
from fiveshot.core.labels import Label, Labels
from fiveshot.core.lda import LinearScorer, Prior, TiedModel, sketched_spaces, tied_model
from fiveshot.core.scatter import Embedding, make_embedding, pooled_scatter
from fiveshot.errors import InputError, is_number, unknown_name
from fiveshot.heads.head import FewShotHead, on_device
from fiveshot.heads.lda_settings import read_choice, read_settings

Pooled = Literal["all", "base"]
DEFAULT_PRIOR = Prior()
SCORED_AT_ONCE = 1024  # samples mapped at a time, which bounds the memory
DOUBT = 0.2  # more finds more of the similar unknown classes, and fewer of the quite different ones
SHOTS = 5  # of the classes that are played as new; the gap scales the result to other numbers


class UnbiasedLDA(FewShotHead):
    """Linear discriminant analysis for classes of five samples beside classes of hundreds.

    >>> import numpy as np
    >>> from fiveshot.heads import UnbiasedLDA
    >>> rng = np.random.default_rng(0)
    >>> centers = np.eye(8)[:4]
    >>> y = np.repeat([0, 1, 2, 3], 20)
    >>> head = UnbiasedLDA().fit(centers[y] + 0.1 * rng.normal(size=(80, 8)), y)
    >>> new = np.eye(8)[5] + 0.1 * rng.normal(size=(5, 8))
    >>> head.partial_fit(new, [9] * 5).predict([np.eye(8)[5], np.eye(8)[2]]).tolist()
    [9, 2]

    The covariance is pooled over all classes, new ones too; the equations are in
    ``fiveshot.core.lda``.

    Parameters: ``n_random`` random ReLU features form a second space, whose scores count
    ``random_weight``; they are used where a base session of more samples than that gives their covariance.
    ``prior`` regularizes. ``offset`` is the share of the expected gap between old and new classes that is closed,
    ``sharpness`` the factor of the scores in ``predict_proba``; ``"auto"`` chooses both by ``episodes`` played
    inside the base classes, and takes stated defaults where there are fewer than ten. ``center=False`` leaves
    features uncentered, ``pooled="base"`` leaves new classes out of the covariance.
    """

    model_: TiedModel

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
        episodes: int = 6,
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
        self.episodes = episodes
        self.random_state = random_state
        self.device = device

    def embed(self, X: Array) -> Array:
        """Return the vectors that statistics are taken of; see ``fiveshot.core.scatter.Embedding``."""
        if not hasattr(self, "_embedding"):
            self._embedding = make_embedding(zeros((X.shape[1],), X), 0, seed=0)
        embedding = self._embedding.beside(X)
        center = embedding.center
        if X.shape[1] != len(center):  # a center of one number would fit any
            raise InputError(f"features of {X.shape[1]} numbers do not fit a center of {len(center)}")
        return embedding(placed(X, center))

    def settings(self) -> dict[str, Any]:
        """Return the center and what the episodes chose."""
        embedding = self._embedding
        return {
            "center": embedding.center.tolist(),
            "n_random": embedding.n_random,
            "seed": self._seed,
            "choice": asdict(self.choice_),
        }

    @property
    def choice_(self) -> Choice:
        """Offset and sharpness in force: given, chosen on the base session, or the defaults."""
        chosen: Choice = getattr(self, "_chosen", Choice())
        offset = chosen.offset if self.offset == "auto" else float(self.offset)
        sharpness = chosen.sharpness if self.sharpness == "auto" else float(self.sharpness)
        return Choice(offset, sharpness, chosen.offset_spread, chosen.episodes)

    def familiarity(self, X: Any) -> Any:
        """Return the best score with the whole gap closed, less a part of the doubt which class it is.

        A class then scores 1 on its own samples, however few it is known from. The doubt, −log p of the best
        class, helps with unknown classes that resemble several known ones.
        """
        scores, gaps = self._scores(X), self._gaps(self.model_)
        xp = namespace(scores)
        closed = xp.max(scores + (1 - self.choice_.offset) * gaps, axis=1)
        sure = xp.max(log_softmax(scores * self._softmax_factor()), axis=1)
        return self._given_back(closed + DOUBT * sure, X)

    def sketch(self, memory: Memory) -> Self:
        """Return a head that knows the classes of ``memory``, with both covariances as they are here."""
        prior = self.prior or DEFAULT_PRIOR
        spaces = sketched_spaces(self.model_.spaces, self._embedding.spaces, self.memory_, memory, prior=prior)
        return copy(self)._adopt(memory, TiedModel(self.model_.pooled, spaces))

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
            doubt=DOUBT,
        )

    def _begin(self, X: Array, y: Labels) -> None:
        self._check_parameters()
        center = mean_row(X) if self.center else zeros((X.shape[1],), X)
        width = self.n_random if len(X) - len(np.unique(y)) > self.n_random else 0
        self._embedding = make_embedding(center, width, seed=self._seed)
        self._chosen = Choice()
        if self.offset == "auto" or self.sharpness == "auto":
            self._chosen = choose(self._played(self._embedding(X), y))

    def _apply_settings(self, settings: Mapping[str, Any]) -> None:
        kept = read_settings(settings, n_random=self.n_random)
        self._embedding = make_embedding(on_device(kept.center, self.device), kept.n_random, seed=kept.seed)
        self._chosen = kept.choice

    def _width(self, memory: Memory) -> int:
        if not hasattr(self, "_embedding"):
            self.embed(memory.statistics.means[:0])
        return self._embedding.n_features

    def _derive(self, memory: Memory, X: Array, y: Labels, previous: TiedModel | None) -> TiedModel:
        self._check_parameters()
        self._embedding = self._embedding.beside(memory.statistics.means)
        return self._model(memory, self._embedding, previous)

    def _class_scores(self, X: Array, labels: list[Label]) -> Array:
        model, gaps = self.model_, self.choice_.offset * self._gaps(self.model_)
        rows = [self._combined(model, self._embedding.parts(part)) + gaps for part in chunks(X, SCORED_AT_ONCE)]
        scores = namespace(X).concat(rows)
        if len(labels) == len(self.classes_):
            return scores
        return scores[:, positions(np.searchsorted(self.classes_, labels), X)]

    def _softmax_factor(self) -> float:
        return self.choice_.sharpness

    def _extra_state(self) -> tuple[dict[str, Array], dict[str, Any]]:
        return {"center": self._embedding.center}, {k: v for k, v in self.settings().items() if k != "center"}

    def _restore(self, memory: Memory, tensors: dict[str, Array], extra: dict[str, Any]) -> None:
        self._embedding = make_embedding(tensors["center"], int(extra["n_random"]), seed=int(extra["seed"]))
        self._chosen = read_choice(extra["choice"])
        super()._restore(memory, {}, {})

    @property
    def _seed(self) -> int:
        return int(self.random_state)

    def _model(self, memory: Memory, embedding: Embedding, previous: TiedModel | None) -> TiedModel:
        pooled = pooled_scatter(memory, embedding.spaces, previous.pooled if previous else None)
        prior = self.prior or DEFAULT_PRIOR
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

    def _check_parameters(self) -> None:
        if not is_number(self.n_random, whole=True):
            raise InputError(f"n_random must be an integer, got {self.n_random!r}; 0 uses none")
        if self.n_random < 0:
            raise InputError(f"n_random must not be negative, got {self.n_random}; 0 uses none")
        if not (is_number(self.random_weight) and 0 <= self.random_weight <= 1):
            raise InputError(f"random_weight must lie in [0, 1], got {self.random_weight}")
        for name in ("offset", "sharpness"):
            value = getattr(self, name)
            if value != "auto" and not (is_number(value) and value >= 0):
                raise InputError(f"{name} must be 'auto' or a number of at least 0, got {value!r}")
        if self.pooled not in get_args(Pooled):
            raise unknown_name("choice of pooled classes", self.pooled, get_args(Pooled))
        if not isinstance(self.random_state, int | np.integer):
            raise InputError(f"random_state must be an integer, got {self.random_state!r}; for example 0")
