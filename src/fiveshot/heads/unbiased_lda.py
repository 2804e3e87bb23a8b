"""UnbiasedLDA: one covariance for all classes, class means as well as five samples allow, no penalty for them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import asdict, dataclass
from typing import Any, Literal, Self, get_args

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from fiveshot.errors import InputError, is_number, unknown_name
from fiveshot.heads.embedding import Embedding, make_embedding
from fiveshot.heads.episodes import play_episodes
from fiveshot.heads.head import FewShotHead
from fiveshot.heads.lda_settings import read_choice, read_settings
from fiveshot.heads.linear_scorer import LinearScorer
from fiveshot.heads.memory import Memory
from fiveshot.heads.offset import Choice, Played, choose
from fiveshot.heads.pooled_scatter import PooledScatter, pooled_scatter
from fiveshot.heads.sketch import sketched_spaces
from fiveshot.heads.tied_covariance import tied_covariance
from fiveshot.heads.two_covariance import Prior, SpaceModel, space_model
from fiveshot.statistics.labels import Label, Labels

Pooled = Literal["all", "base"]
DEFAULT_PRIOR = Prior()
SCORED_AT_ONCE = 1024  # samples mapped at a time, which bounds the memory
DOUBT = 0.2  # more finds more of the similar unknown classes, and fewer of the quite different ones
SHOTS = 5  # of the classes that are played as new; the gap scales the result to other numbers


@dataclass(frozen=True, eq=False)
class TiedModel:
    """One model per space, and the sums it was derived from."""

    pooled: PooledScatter
    spaces: tuple[SpaceModel, ...]


class UnbiasedLDA(FewShotHead):
    """Linear discriminant analysis for classes of five samples beside classes of hundreds.

    >>> import numpy as np
    >>> from fiveshot.heads import UnbiasedLDA
    >>> rng = np.random.default_rng(0)
    >>> centres = np.eye(8)[:4]
    >>> y = np.repeat([0, 1, 2, 3], 20)
    >>> head = UnbiasedLDA().fit(centres[y] + 0.1 * rng.normal(size=(80, 8)), y)
    >>> new = np.eye(8)[5] + 0.1 * rng.normal(size=(5, 8))
    >>> head.partial_fit(new, [9] * 5).predict([np.eye(8)[5], np.eye(8)[2]]).tolist()
    [9, 2]

    The covariance is pooled over all classes, new ones too; the equations are in
    ``fiveshot.heads.two_covariance``.

    Parameters: ``n_random`` random ReLU features form a second space, whose scores count
    ``random_weight``; they are used where a base session of more samples than that gives their covariance.
    ``prior`` regularises. ``offset`` is the share of the expected gap between old and new classes that is closed,
    ``sharpness`` the factor of the scores in ``predict_proba``; ``"auto"`` chooses both by ``episodes`` played
    inside the base classes, and takes stated defaults where there are fewer than ten. ``centre=False`` leaves
    features uncentred, ``pooled="base"`` leaves new classes out of the covariance.
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
        centre: bool = True,
        pooled: Pooled = "all",
        episodes: int = 6,
        random_state: int = 0,
        device: str | torch.device | None = None,
    ) -> None:
        self.n_random = n_random
        self.random_weight = random_weight
        self.prior = prior
        self.offset = offset
        self.sharpness = sharpness
        self.centre = centre
        self.pooled = pooled
        self.episodes = episodes
        self.random_state = random_state
        self.device = device

    def embed(self, X: Tensor) -> Tensor:
        """Return the vectors that statistics are taken of; see ``fiveshot.heads.embedding.Embedding``."""
        if not hasattr(self, "_embedding"):
            self._embedding = make_embedding(X.new_zeros(X.shape[1]), 0, seed=0)
        centre = self._embedding.centre
        if X.shape[1] != len(centre):  # a centre of one number would fit any
            raise InputError(f"features of {X.shape[1]} numbers do not fit a centre of {len(centre)}")
        return self._embedding(X.to(centre))

    def settings(self) -> dict[str, Any]:
        """Return the centre and what the episodes chose."""
        embedding = self._embedding
        width = embedding.projection.projection.shape[1] if embedding.projection is not None else 0
        choice = asdict(self.choice_)
        return {"centre": embedding.centre.tolist(), "n_random": width, "seed": self._seed, "choice": choice}

    @property
    def choice_(self) -> Choice:
        """Offset and sharpness in force: given, chosen on the base session, or the defaults."""
        chosen: Choice = getattr(self, "_chosen", Choice())
        offset = chosen.offset if self.offset == "auto" else float(self.offset)
        sharpness = chosen.sharpness if self.sharpness == "auto" else float(self.sharpness)
        return Choice(offset, sharpness, chosen.offset_spread, chosen.episodes)

    def familiarity(self, X: ArrayLike | Tensor) -> NDArray[Any]:
        """Return the best score with the whole gap closed, less a part of the doubt which class it is.

        A class then scores 1 on its own samples, however few it is known from. The doubt, −log p of the best
        class, helps with unknown classes that resemble several known ones.
        """
        scores, gaps = self._scores(X), self._gaps(self.model_)
        closed = (scores + (1 - self.choice_.offset) * gaps).amax(dim=1)
        sure = torch.log_softmax(scores * self._softmax_factor(), dim=1).amax(dim=1)
        values: NDArray[Any] = (closed + DOUBT * sure).cpu().numpy()
        return values

    def sketch(self, memory: Memory) -> Self:
        """Return a head that knows the classes of ``memory``, with both covariances as they are here."""
        prior = self.prior or DEFAULT_PRIOR
        spaces = sketched_spaces(self.model_.spaces, self._embedding.spaces, self.memory_, memory, prior=prior)
        return copy(self)._adopt(memory, TiedModel(self.model_.pooled, spaces))

    def scorer(self) -> LinearScorer:
        """Return scores, probabilities and familiarity as a module that can be exported."""
        model, choice = self.model_, self.choice_
        return LinearScorer(
            self._embedding,
            model.spaces,
            self._weights(model),
            gaps=self._gaps(model),
            offset=choice.offset,
            sharpness=choice.sharpness,
            doubt=DOUBT,
        )

    def _begin(self, X: Tensor, y: Labels) -> None:
        self._check_parameters()
        centre = X.mean(dim=0) if self.centre else X.new_zeros(X.shape[1])
        width = self.n_random if len(X) - len(np.unique(y)) > self.n_random else 0
        self._embedding = make_embedding(centre, width, seed=self._seed)
        self._chosen = Choice()
        if self.offset == "auto" or self.sharpness == "auto":
            self._chosen = choose(self._played(self._embedding(X), y))

    def _apply_settings(self, settings: Mapping[str, Any]) -> None:
        kept = read_settings(settings, n_random=self.n_random)
        self._embedding = make_embedding(kept.centre.to(self.device or "cpu"), kept.n_random, seed=kept.seed)
        self._chosen = kept.choice

    def _width(self, memory: Memory) -> int:
        if not hasattr(self, "_embedding"):
            self.embed(memory.statistics.means[:0])
        return self._embedding.n_features

    def _derive(self, memory: Memory, X: Tensor, y: Labels, previous: TiedModel | None) -> TiedModel:
        self._check_parameters()
        return self._model(memory, self._embedding, previous)

    def _class_scores(self, X: Tensor, labels: list[Label]) -> Tensor:
        model, gaps = self.model_, self.choice_.offset * self._gaps(self.model_)
        rows = [
            self._combined(model, self._embedding.parts(part)) + gaps for part in torch.split(X, SCORED_AT_ONCE)
        ]
        scores = torch.cat(rows)
        if len(labels) == len(self.classes_):
            return scores
        return scores[:, torch.as_tensor(np.searchsorted(self.classes_, labels), device=X.device)]

    def _softmax_factor(self) -> float:
        return self.choice_.sharpness

    def _extra_state(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        return {"centre": self._embedding.centre}, {k: v for k, v in self.settings().items() if k != "centre"}

    def _restore(self, memory: Memory, tensors: dict[str, Tensor], extra: dict[str, Any]) -> None:
        self._embedding = make_embedding(tensors["centre"], int(extra["n_random"]), seed=int(extra["seed"]))
        self._chosen = read_choice(extra["choice"])
        super()._restore(memory, {}, {})

    @property
    def _seed(self) -> int:
        return int(self.random_state)

    def _model(self, memory: Memory, embedding: Embedding, previous: TiedModel | None) -> TiedModel:
        prior = self.prior or DEFAULT_PRIOR
        pooled = pooled_scatter(memory, embedding.spaces, previous.pooled if previous else None)
        statistics = memory.statistics
        means, counts = statistics.means, statistics.counts.to(statistics.means)
        anchor = (memory.base.means if len(memory.base) else means).mean(dim=0)
        new = torch.as_tensor(np.isin(statistics.labels, memory.new.labels), device=means.device)
        models = []
        for part, base, added in zip(embedding.spaces, pooled.base.matrices, pooled.new.matrices, strict=True):
            origin, own = anchor[part], means[:, part]
            covariance = tied_covariance(
                base,
                pooled.base.dof,
                added,
                pooled.new.dof,
                spread=float((own - origin).square().mean()),
                shrinkage=prior.shrinkage,
                pool_new=self.pooled == "all",
            )
            models.append(space_model(own, counts, covariance, new=new, origin=origin, prior=prior))
        return TiedModel(pooled, tuple(models))

    def _weights(self, model: TiedModel) -> Sequence[float]:
        return (1.0,) if len(model.spaces) == 1 else (1 - self.random_weight, self.random_weight)

    def _combined(self, model: TiedModel, parts: Sequence[Tensor]) -> Tensor:
        scored = zip(self._weights(model), model.spaces, parts, strict=True)
        return sum((w * space.scores(part) for w, space, part in scored), start=parts[0].new_zeros(()))

    def _gaps(self, model: TiedModel) -> Tensor:
        parts = zip(self._weights(model), model.spaces, strict=True)
        return sum((w * space.gaps for w, space in parts), start=model.spaces[0].gaps.new_zeros(()))

    def _played(self, embedded: Tensor, y: Labels) -> list[Played]:
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
