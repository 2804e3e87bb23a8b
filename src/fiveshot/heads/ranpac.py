"""RanPAC, RanPAC* and C-RanPAC as estimators; the mathematics is in ``fiveshot.core.scorers.ranpac``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fiveshot.core import Calibration
from fiveshot.core.draws import Sampling
from fiveshot.core.scorers import LAMBDAS, RanPACScorer
from fiveshot.core.scorers.ranpac import Mass, Scoring
from fiveshot.heads.head import FewShotHead


class RanPAC(FewShotHead):
    """Ridge regression from random features of the sample to its class.

    Parameters
    ----------
    n_projections : int
        Number of random features, M in the paper.
    calibration : Calibration, optional
        Calibrates the Gaussians of new classes before sampling; with it the head is C-RanPAC.
    sampling : Sampling, optional
        Replaces the features of new classes by Gaussian samples.
    scoring : {"cosine", "linear"}
        ``"cosine"`` scales each class's weights to length one, as in the published code; ``"linear"`` follows the
        paper's text.
    mass : {"samples", "balanced"}
        ``"balanced"`` gives each class the same weight, regardless of its number of rows.
    lambdas : sequence of float
        Values to try on 20 % of the base session; the best is used.
    random_state : int
        Seed of all draws.
    temperature : float
        Probabilities are softmax(score / temperature).
    device : str, optional
        Device to move arrays to; None computes where they are.

    Examples
    --------
    >>> from fiveshot.heads import RanPAC
    >>> head = RanPAC(n_projections=64).fit([[0.0, 1.0], [0.1, 1.0], [1.0, 0.0], [1.0, 0.1]], ["a", "a", "b", "b"])
    >>> head.predict([[0.2, 1.0]]).tolist()
    ['a']
    """

    scorer_class = RanPACScorer
    scorer_: RanPACScorer

    def __init__(
        self,
        n_projections: int = 10_000,
        *,
        calibration: Calibration | None = None,
        sampling: Sampling | None = None,
        scoring: Scoring = "cosine",
        mass: Mass = "samples",
        lambdas: Sequence[float] = LAMBDAS,
        random_state: int = 0,
        temperature: float = 1 / 16,
        device: Any = None,
    ) -> None:
        self.n_projections = n_projections
        self.calibration = calibration
        self.sampling = sampling
        self.scoring = scoring
        self.mass = mass
        self.lambdas = lambdas
        self.random_state = random_state
        self.temperature = temperature
        self.device = device

    @property
    def lambda_(self) -> float:
        """The regularization chosen on the base session."""
        return self.scorer_.lam
