"""What the noise of an estimated mean adds to squared distances and lengths, in expectation.

The mean of n samples is off by noise of covariance Σ/n, and E‖x − x̄‖² = E‖x − μ‖² + tr(Σ)/n: a class of five
samples looks farther away than one of thirty. The same holds in any fixed metric M, with tr(MΣ)/n. After mean
calibration, x̄ ↦ α x̄ + ..., the noise is α² as large; that the weights of the base classes depend on x̄ is left out.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from fiveshot.errors import InputError, is_number
from fiveshot.statistics import Calibration, ClassStatistics, ClassSummary
from fiveshot.statistics.factor import compress


@dataclass(frozen=True, eq=False)
class WithinSpread:
    """Covariance within base classes as a factor, (r, d): what is expected of a class before it is seen."""

    factor: Tensor

    @property
    def trace(self) -> float:
        """Mean squared distance of a sample from its class mean."""
        return float(self.factor.square().sum())

    def of_class(self, summary: ClassSummary) -> float:
        """Return the trace of one class: its own, with the base classes' counting as one sample more.

        A trace is linear in the scatter, so the class's own is unbiased however few samples there are.
        """
        return (float(summary.factor.square().sum()) + self.trace) / summary.count


def within_spread(base: ClassStatistics, like: Tensor) -> WithinSpread:
    """Pool the scatter within base classes; without any the spread is zero.

    >>> from fiveshot.statistics import class_statistics
    >>> X = torch.tensor([[0.0, 0.0], [2.0, 0.0], [5.0, 5.0], [5.0, 9.0]])
    >>> within_spread(class_statistics(X, [0, 0, 1, 1]), X).trace
    5.0
    """
    dof = sum(summary.count - 1 for summary in base.summaries)
    if not dof:
        return WithinSpread(like.new_zeros(0, like.shape[-1]))
    return WithinSpread(compress(torch.cat([summary.factor for summary in base.summaries])) / math.sqrt(dof))


def kept_share(calibration: Calibration | None, base: ClassStatistics) -> float:
    """Return α, the share of the class's own mean in the calibrated one."""
    return calibration.alpha if calibration is not None and len(base) else 1.0


def unit_noise(rows: Tensor, mean: Tensor) -> Tensor:
    """Return what noise vectors of a mean become when it is scaled to length one, to first order."""
    length = torch.linalg.vector_norm(mean).clamp_min(1e-12)
    direction = mean / length
    across: Tensor = (rows - (rows @ direction)[:, None] * direction) / length
    return across


def check_bias(bias: float) -> None:
    """Refuse a share of the correction that makes no sense."""
    if not (is_number(bias) and 0 <= bias < math.inf):
        raise InputError(f"bias must be finite and not negative, got {bias}; 1 removes the expected bias, 0 none")
