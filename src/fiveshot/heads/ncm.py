"""Nearest class mean and TEEN as estimators; the mathematics are in ``fiveshot.core.scorers.nearest_mean``."""

from __future__ import annotations

from typing import Any

from fiveshot.core import Calibration
from fiveshot.core.scorers import NCMScorer
from fiveshot.core.scorers.nearest_mean import Metric
from fiveshot.heads.head import FewShotHead


class NCM(FewShotHead):
    """Nearest class mean: a sample belongs to the class whose mean is nearest.

    Parameters
    ----------
    metric : {"cosine", "euclidean"}
        ``"cosine"`` is the published code's, ``"euclidean"`` the paper's text.
    calibration : Calibration, optional
        Moves the means of new classes towards similar base classes, which makes it TEEN.
    bias : float
        The share that is subtracted of what the noise of a mean adds to squared distances, and to the squared
        length of a prototype in a cosine. 0 is the paper's, 1 makes classes of few and of many samples alike in
        expectation.
    temperature : float
        Probabilities are softmax(score / temperature).
    device : str, optional
        Where arrays are moved to; None computes where they are.

    Examples
    --------
    >>> from fiveshot.heads import NCM
    >>> head = NCM(metric="euclidean").fit([[0.0, 0.0], [4.0, 4.0]], ["wren", "owl"])
    >>> head.partial_fit([[9.0, 0.0], [9.0, 2.0]], ["kite", "kite"]).predict([[8.0, 1.0]]).tolist()
    ['kite']
    """

    scorer_class = NCMScorer

    def __init__(
        self,
        metric: Metric = "cosine",
        *,
        calibration: Calibration | None = None,
        bias: float = 0.0,
        temperature: float = 1 / 16,
        device: Any = None,
    ) -> None:
        self.metric = metric
        self.calibration = calibration
        self.bias = bias
        self.temperature = temperature
        self.device = device
