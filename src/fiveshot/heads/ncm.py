"""Nearest class mean and TEEN as estimators; the mathematics is in ``fiveshot.core.scorers.nearest_mean``."""

from __future__ import annotations

from typing import Any

from fiveshot.core import Calibration
from fiveshot.core.scorers import NCMScorer
from fiveshot.core.scorers.nearest_mean import MetricName
from fiveshot.heads.head import FewShotHead


class NCM(FewShotHead):
    """Nearest class mean: a sample belongs to the class whose mean is nearest.

    Parameters
    ----------
    metric : {"cosine", "euclidean"}
        ``"cosine"`` as in the published code, ``"euclidean"`` as in the paper's text.
    calibration : Calibration, optional
        Moves the means of new classes towards similar base classes; with it the head is TEEN.
    bias : float
        The noise of a mean increases squared distances, and the squared length of a prototype in a cosine. This
        share of the increase is subtracted. The paper uses 0; with 1, classes of few and of many samples are
        treated alike in expectation.
    temperature : float
        Probabilities are softmax(score / temperature).
    device : str, optional
        Device to move arrays to; None computes where they are.

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
        metric: MetricName = "cosine",
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
