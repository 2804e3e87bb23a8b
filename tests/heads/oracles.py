"""Every head once more, from the paper's formulas: dense covariances, inverses and loops, in float64 NumPy.

Samples come as dictionaries label → rows; scores come back with one column per label, in sorted order.
"""

from __future__ import annotations

import numpy as np

from fiveshot.core import Calibration

Rows = dict[object, np.ndarray]


def covariance(rows: np.ndarray) -> np.ndarray:
    """Return the covariance with n − 1, zero for a single sample."""
    d = rows.shape[1]
    return np.cov(rows, rowvar=False).reshape(d, d) if len(rows) > 1 else np.zeros((d, d))


def unit(rows: np.ndarray) -> np.ndarray:
    return rows / np.linalg.norm(rows, axis=-1, keepdims=True)


def gaussian(rows: np.ndarray, base: Rows, calibration: Calibration | None) -> tuple[np.ndarray, np.ndarray]:
    """Equations (1) to (4); ``calibration=None`` leaves the class as it is."""
    mean, own = rows.mean(axis=0), covariance(rows)
    if calibration is None:
        return mean, own
    means = np.stack([part.mean(axis=0) for part in base.values()])
    if calibration.prototypes == "unit":
        mean, means = unit(mean), unit(means)
    products = means @ mean
    if calibration.similarity == "cosine":
        products = products / (np.linalg.norm(means, axis=1) * np.linalg.norm(mean))
    powers = np.exp(calibration.tau * (products - products.max()))
    weights = powers / powers.sum()
    borrowed = weights @ means
    if calibration.prototypes == "unit":
        borrowed = unit(borrowed)
    mean = calibration.alpha * mean + (1 - calibration.alpha) * borrowed
    if calibration.beta is None:
        return mean, own
    lent = sum(w * covariance(part) for w, part in zip(weights, base.values(), strict=True))
    return mean, calibration.beta * (own + lent)


def gaussians(base: Rows, new: Rows, calibration: Calibration | None) -> list[tuple[np.ndarray, np.ndarray]]:
    """Return mean and covariance of every class, in the order of the labels."""
    both = {label: gaussian(rows, base, None) for label, rows in base.items()}
    both |= {label: gaussian(rows, base, calibration) for label, rows in new.items()}
    return [both[label] for label in sorted(both)]


def ncm_scores(
    base: Rows, new: Rows, X: np.ndarray, *, metric: str, calibration: Calibration | None
) -> np.ndarray:
    means = np.stack([mean for mean, _ in gaussians(base, new, calibration)])
    if metric == "cosine":
        return np.array([[unit(x) @ unit(mean) for mean in means] for x in X])
    return np.array([[-np.sum((x - mean) ** 2) for mean in means] for x in X])


def normalised(S: np.ndarray, normalization: str) -> np.ndarray:
    """N of the paper, or what the published code does for it."""
    if normalization == "correlation":
        s = np.sqrt(np.diag(S))
        return S / np.outer(s, s)
    return np.corrcoef(S) if normalization == "rows" else S


def fecam_scores(
    base: Rows,
    new: Rows,
    X: np.ndarray,
    *,
    gamma: float,
    normalization: str,
    normalize: bool,
    calibration: Calibration | None,
) -> np.ndarray:
    """Return −(x − μ)ᵀ N(Σ + γI)⁻¹ (x − μ); the row correlations are singular, hence their pseudo-inverse."""
    scores = []
    for mean, sigma in gaussians(base, new, calibration):
        N = normalised(sigma + gamma * np.eye(len(mean)), normalization)
        inverse = np.linalg.pinv(N, rcond=1e-12, hermitian=True) if normalization == "rows" else np.linalg.inv(N)
        differences = (unit(X) - unit(mean)) if normalize else X - mean
        scores.append([-difference @ inverse @ difference for difference in differences])
    return np.array(scores).T


def ridge_weights(H: np.ndarray, Y: np.ndarray, lam: float, mass: np.ndarray | None = None) -> np.ndarray:
    """Return (G + λI)⁻¹ C, (M, classes), with G = Σ m h hᵀ and C = Σ m h yᵀ; a row's mass m is 1 unless given."""
    m = np.ones(len(H)) if mass is None else mass
    G = sum(m[i] * np.outer(H[i], H[i]) for i in range(len(H)))
    return np.linalg.solve(G + lam * np.eye(H.shape[1]), H.T @ (m[:, None] * Y))


def one_hot(rows: Rows) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return features, targets and the number of rows of each sample's class, classes in the order of labels."""
    X = np.concatenate([rows[label] for label in sorted(rows)])
    counts = [len(rows[label]) for label in sorted(rows)]
    return X, np.repeat(np.eye(len(rows)), counts, axis=0), np.repeat(counts, counts)


def ranpac_scores(
    rows: Rows,
    X: np.ndarray,
    *,
    projection: np.ndarray,
    lam: float,
    scoring: str,
    mass: float | None = None,
) -> np.ndarray:
    """Return φ(x W) (G + λI)⁻¹ c_y of ``rows``, real or sampled; ``mass`` is each class's total weight."""
    features, targets, counts = one_hot(rows)
    masses = None if mass is None else mass / counts
    W = ridge_weights(np.maximum(features @ projection, 0), targets, lam, masses)
    H = np.maximum(X @ projection, 0)
    return unit(H) @ unit(W.T).T if scoring == "cosine" else H @ W


def best_lambda(
    H: np.ndarray, Y: np.ndarray, train: np.ndarray, held_out: np.ndarray, lambdas: list[float], mass: np.ndarray
) -> float:
    """Return the λ of least weighted squared error on the held-out rows, one solve after the other."""
    errors = []
    for lam in lambdas:
        W = ridge_weights(H[train], Y[train], lam, mass[train])
        errors.append(np.sum(mass[held_out, None] * (Y[held_out] - H[held_out] @ W) ** 2))
    return lambdas[int(np.argmin(errors))]
