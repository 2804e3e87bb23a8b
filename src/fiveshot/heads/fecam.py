"""FeCAM and C-FeCAM as estimators; the mathematics is in ``fiveshot.core.scorers.fecam``."""

from __future__ import annotations

from typing import Any

from fiveshot.core import Calibration
from fiveshot.core.distances import Normalization
from fiveshot.core.scorers import FeCAMScorer
from fiveshot.heads.head import FewShotHead


class FeCAM(FewShotHead):
    """Nearest class by Mahalanobis distance with a shrunk, normalized covariance per class.

    Parameters
    ----------
    gamma : float
        Added to the variances.
    normalization : {"correlation", "rows", "none"}
        ``"correlation"`` is the paper's, ``"rows"`` the published code's correlation between covariance rows.
    normalize : bool
        Scale features and means to length one before computing distances; covariances are those of the raw
        features.
    calibration : Calibration, optional
        Calibration of new classes; with it the head is C-FeCAM.
    bias : float
        The noise of a mean increases squared distances; this share of the increase is subtracted. 0 in the paper.
    temperature : float
        Probabilities are softmax(score / temperature).
    device : str, optional
        Device to move arrays to; None computes where they are.

    Examples
    --------
    >>> from fiveshot.heads import FeCAM
    >>> head = FeCAM(normalize=False).fit([[0.0, 0.0], [1.0, 0.0], [5.0, 5.0], [5.0, 6.0]], [0, 0, 1, 1])
    >>> head.predict([[4.0, 4.0]]).tolist()
    [1]
    """

    scorer_class = FeCAMScorer

    def __init__(
        self,
        gamma: float = 100.0,
        *,
        normalization: Normalization = "correlation",
        normalize: bool = True,
        calibration: Calibration | None = None,
        bias: float = 0.0,
        temperature: float = 1 / 16,
        device: Any = None,
    ) -> None:
        self.gamma = gamma
        self.normalization = normalization
        self.normalize = normalize
        self.calibration = calibration
        self.bias = bias
        self.temperature = temperature
        self.device = device
