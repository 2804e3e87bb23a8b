"""Unbiased LDA as an estimator; the mathematics are in ``fiveshot.core.scorers.unbiased_lda``."""

from __future__ import annotations

from typing import Any, Literal

from fiveshot.core.episodes import Choice
from fiveshot.core.lda import Prior
from fiveshot.core.scorers import UnbiasedLDAScorer
from fiveshot.core.scorers.unbiased_lda import Kept, Pooled
from fiveshot.heads.head import FewShotHead


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
        """Offset and sharpness in force: given, chosen on the base session, or the defaults."""
        return self.scorer_.choice
