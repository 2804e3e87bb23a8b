"""Heads as modules that can be traced: features in; scores, probabilities and familiarity out."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor, nn

from fiveshot.heads import FeCAM, FewShotHead
from fiveshot.heads.mahalanobis import CholeskyMetric, LowRankMetric, Metric
from fiveshot.statistics.labels import python_labels

Outputs = tuple[Tensor, Tensor, Tensor]


def scorer(head: FewShotHead) -> nn.Module:
    """Return the head's scoring as a module: features (n, d) to scores, probabilities and familiarity.

    A head that has a method ``scorer`` gives its own; of others the score function itself is traced.
    """
    own = getattr(head, "scorer", None)
    module: nn.Module = own() if own is not None else TracedScores(head)
    return module.eval()


class TracedScores(nn.Module):
    """The score function of a head whose probabilities are softmax(score / temperature)."""

    def __init__(self, head: FewShotHead) -> None:
        super().__init__()
        self.head = head
        self.labels = python_labels(head.classes_)
        self.metrics = MetricScores(head) if isinstance(head, FeCAM) else None

    def forward(self, features: Tensor) -> Outputs:
        """Return scores and probabilities (n, classes) and familiarity (n,)."""
        features = features.to(self.head.memory_.statistics.means)
        if self.metrics is not None:
            scores = self.metrics(features)
        else:
            scores = self.head._class_scores(features, self.labels)
        return scores, torch.softmax(scores * self.head._softmax_factor(), dim=1), scores.amax(dim=1)


class MetricScores(nn.Module):
    """FeCAM's distances without solving systems and without writing in place, neither of which ONNX has.

    Every metric is Σⱼ aⱼ(x − μ)ⱼ² ± ‖E(x − μ)‖². Classes whose E has as many rows are computed together.
    """

    def __init__(self, head: FeCAM) -> None:
        super().__init__()
        self.embed = head._embedded
        metrics = head.model_.of(python_labels(head.classes_))
        # Distances from a point among the means lose fewer digits than from zero.
        self.origin = torch.stack([metric.mean for metric in metrics]).mean(dim=0)
        parts = [_quadratic(metric) for metric in metrics]
        means = torch.stack([metric.mean for metric in metrics]) - self.origin  # (k, d)
        self.diagonals = torch.stack([diagonal for diagonal, _, _ in parts])  # (k, d)
        self.linear = self.diagonals * means
        self.constants = (self.linear * means).sum(dim=1)
        self.inflations = means.new_tensor([metric.inflation for metric in metrics])
        ranks = np.array([len(rows) for _, rows, _ in parts])
        self.groups = [
            _Group([parts[i][1] for i in members], means[torch.as_tensor(members)], [parts[i][2] for i in members])
            for members in (np.flatnonzero(ranks == rank) for rank in np.unique(ranks))
        ]
        order = np.concatenate([np.flatnonzero(ranks == rank) for rank in np.unique(ranks)])
        self.positions = torch.as_tensor(np.argsort(order))

    def forward(self, features: Tensor) -> Tensor:
        """Return scores (n, classes), the negative squared distances."""
        X = self.embed(features) - self.origin
        axes = X.square() @ self.diagonals.T - 2 * X @ self.linear.T + self.constants
        projected = torch.cat([group.signed_lengths(X) for group in self.groups], dim=1)[:, self.positions]
        return self.inflations - (axes + projected).clamp_min(0)


class _Group:
    def __init__(self, rows: Sequence[Tensor], means: Tensor, signs: Sequence[float]) -> None:
        self.shape = (len(rows), len(rows[0]))  # classes, rows of each
        self.rows = torch.cat(list(rows))  # (k · r, d)
        self.offsets = torch.cat([own @ mean for own, mean in zip(rows, means, strict=True)])
        self.signs = means.new_tensor(signs)

    def signed_lengths(self, X: Tensor) -> Tensor:
        projected = (X @ self.rows.T - self.offsets).square()  # (n, k · r)
        return projected.reshape(-1, *self.shape).sum(dim=2) * self.signs


def _quadratic(metric: Metric) -> tuple[Tensor, Tensor, float]:
    """Return a (d,), E (r, d) and the sign between their parts."""
    if isinstance(metric, LowRankMetric):
        # A class seen once has no covariance of its own; a row of zeros stands for it.
        rows = metric.projection if len(metric.projection) else torch.zeros_like(metric.mean)[None]
        return metric.scale.square() / metric.gamma, rows / metric.gamma**0.5, -1.0
    if isinstance(metric, CholeskyMetric):
        identity = torch.eye(len(metric.cholesky)).to(metric.cholesky)
        inverse = torch.linalg.solve_triangular(metric.cholesky, identity, upper=False)
        return torch.zeros_like(metric.mean), inverse * metric.scale, 1.0
    return torch.zeros_like(metric.mean), metric.whitener, 1.0
