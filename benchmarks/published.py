"""The published procedure, transcribed plainly for comparison: one function per head, slow on purpose.

Each takes the sessions as (features, labels) pairs, the first one being the base session, and yields scores of
the test features after every session. Nothing here is used by the package.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import mse_loss, normalize, one_hot

Sessions = Sequence[tuple[Tensor, Tensor]]


def _means_and_covariances(X: Tensor, y: Tensor) -> tuple[Tensor, list[Tensor]]:
    groups = [X[y == label] for label in y.unique()]
    return torch.stack([group.mean(0) for group in groups]), [torch.cov(group.T) for group in groups]


def ncm(sessions: Sessions, test: Tensor, calibrate: bool) -> Iterator[Tensor]:
    prototypes: list[Tensor] = []
    for number, (X, y) in enumerate(sessions):
        means = torch.stack([X[y == label].mean(0) for label in y.unique()])
        if number == 0:
            base = normalize(means)
        elif calibrate:
            means = normalize(means)
            weights = torch.softmax(16 * means @ base.T, 1)
            means = 0.9 * means + 0.1 * normalize(weights @ base)
        prototypes.append(means)
        yield normalize(test) @ normalize(torch.cat(prototypes)).T


def fecam(sessions: Sessions, test: Tensor, calibrate: bool, classes: int | None = None) -> Iterator[Tensor]:
    """``classes`` limits the classes that are scored at each evaluation (to time a part)."""
    prototypes: list[Tensor] = []
    correlations: list[Tensor] = []
    for number, (X, y) in enumerate(sessions):
        means, covariances = _means_and_covariances(X, y)
        if number == 0:
            base, base_covariances = normalize(means), covariances
        elif calibrate:
            means = normalize(means)
            weights = torch.softmax(16 * means @ base.T, 1)
            for i in range(len(covariances)):
                borrowed = (weights[i].view(-1, 1, 1) * torch.stack(base_covariances)).sum(0)
                covariances[i] = covariances[i] + borrowed
            means = 0.9 * means + 0.1 * normalize(weights @ base)
        prototypes.append(means)
        eye = torch.eye(X.shape[1])
        correlations += [torch.corrcoef(covariance + 100 * eye) for covariance in covariances]
        known = normalize(torch.cat(prototypes))
        columns = []
        for label in range(len(known) if classes is None else classes):
            difference = normalize(test) - known[label]
            left = difference @ torch.linalg.pinv(correlations[label])
            columns.append(-torch.diagonal(left @ difference.T))  # an n × n matrix, for its diagonal
        yield torch.stack(columns, 1)


def ranpac(
    sessions: Sessions, test: Tensor, calibrate: bool, width: int, n_classes: int, seed: int = 0
) -> Iterator[Tensor]:
    rng = np.random.default_rng(seed)
    generator = torch.Generator().manual_seed(seed)
    projection = torch.randn(test.shape[1], width, generator=generator)
    G, Q = torch.zeros(width, width), torch.zeros(width, n_classes)
    seen = 0
    for number, (X, y) in enumerate(sessions):
        means, covariances = _means_and_covariances(X, y)
        if number == 0:
            base, base_covariances = means, covariances
        elif calibrate:
            weights = torch.softmax(16 * means @ base.T, 1)
            means = 0.9 * means + 0.1 * weights @ base
            drawn = []
            for i in range(len(covariances)):
                borrowed = (weights[i].view(-1, 1, 1) * torch.stack(base_covariances)).sum(0)
                covariance = 0.5 * (covariances[i] + borrowed)
                drawn.append(rng.multivariate_normal(means[i].numpy(), covariance.numpy(), 800))
            X = torch.tensor(np.concatenate(drawn), dtype=torch.float32)
            y = y.unique().repeat_interleave(800)
        seen += len(means)
        Y = one_hot(y, n_classes).float()
        H = torch.relu(X @ projection)
        Q = Q + H.T @ Y
        G = G + H.T @ H
        if number == 0:
            ridge = _best_ridge(H, Y)
        W = torch.linalg.solve(G + ridge * torch.eye(width), Q)[:, :seen]
        yield normalize(torch.relu(test @ projection)) @ normalize(W, dim=0)


def _best_ridge(H: Tensor, Y: Tensor) -> float:
    order = torch.randperm(len(H), generator=torch.Generator().manual_seed(0))
    H, Y = H[order], Y[order]
    cut = int(0.8 * len(H))
    G, Q = H[:cut].T @ H[:cut], H[:cut].T @ Y[:cut]
    ridges = [10.0**k for k in range(1, 9)]
    losses = []
    for ridge in ridges:
        W = torch.linalg.solve(G + ridge * torch.eye(len(G)), Q)
        losses.append(float(mse_loss(H[cut:] @ W, Y[cut:])))
    return ridges[int(np.argmin(losses))]
