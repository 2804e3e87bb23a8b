"""Unbiased LDA as an estimator; the mathematics is in ``fiveshot.core.scorers.unbiased_lda``."""

from __future__ import annotations

from typing import Any, Literal

from fiveshot.core.episodes import Choice
from fiveshot.core.lda import Prior
from fiveshot.core.scorers import UnbiasedLDAScorer
from fiveshot.core.scorers.unbiased_lda import Kept, Pooled
from fiveshot.heads.head import FewShotHead


class UnbiasedLDA(FewShotHead):
    """Linear discriminant analysis for classes with five samples next to classes with hundreds.

    The covariance is pooled over all classes, including new ones; the equations are in ``fiveshot.core.lda``.

    Parameters
    ----------
    n_random : int
        Number of random ReLU features, which form a second space. They are used only if the base session has more
        samples than that, because their covariance comes from it.
    random_weight : float
        Weight of the scores of the second space.
    prior : Prior, optional
        Regularization.
    offset : float or "auto"
        The share of the expected gap between old and new classes that is closed. ``"auto"`` chooses it by episodes
        inside the base classes; with fewer than ten base classes it uses a default.
    sharpness : float or "auto"
        The factor of the scores in ``predict_proba``; ``"auto"`` as for ``offset``, and less with fewer than 1,000
        samples.
    center : bool
        False leaves features uncentered.
    pooled : {"all", "base"}
        ``"base"`` leaves new classes out of the covariance.
    kept : {"classes", "sums"}
        What is kept of the base session. ``"classes"`` keeps the scatter of each class, with as many rows as
        samples. So any class can be forgotten exactly, which a model of other people's photos needs. ``"sums"``
        keeps the mean of each class, and the scatter of all classes as one sum. Then memory does not grow with the
        samples, but only new classes can be forgotten. Answers are the same, except that ``"auto"`` uses at most
        24 samples of a class in its episodes.
    episodes : int
        Number of episodes.
    together : int
        Rounds in which samples that are predicted together move the means of their predicted classes. Answers then
        depend on the other samples (transduction); with 0 each sample is predicted alone.
    random_state : int
        Seed of all draws.
    device : str, optional
        Device to move arrays to; None computes where they are.

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

    scorer_class = UnbiasedLDAScorer
    scorer_: UnbiasedLDAScorer

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

    @property
    def choice_(self) -> Choice:
        """Offset and sharpness in use: given, chosen on the base session, or the defaults."""
        return self.scorer_.choice
