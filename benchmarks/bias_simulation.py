"""Simulate how noise in a class mean changes distances and lengths (docs/explanation/default-head.md).

Gaussian classes in 128 dimensions have two known covariances: B between class means, Σ within classes. The head's
covariance is estimated from base classes and shrunk by the code of the default head. So the formulas are checked
as they are used, with an estimated matrix.

    python benchmarks/bias_simulation.py          # some seconds
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass

import numpy as np
import torch

from fiveshot.core.lda import Spectrum, TiedCovariance, expected_scores, kept_signal, tied_covariance
from fiveshot.heads import Prior, UnbiasedLDA

D = 128
SHOTS = (1, 2, 5, 10, 30)
DRAWS = 20_000
SEPARATION = 0.3  # of class means, relative to the noise within classes: some classes are confused, at 0.7 none


@dataclass(frozen=True, eq=False)
class Truth:
    """Roots of the two covariances: standard normal rows times a root have that covariance."""

    within: np.ndarray  # (D, D)
    between: np.ndarray  # (D, D)

    @property
    def sigma(self) -> np.ndarray:
        return self.within.T @ self.within


def draw_truth(rng: np.random.Generator) -> Truth:
    """Return covariances whose variances fall like 1/k, along different axes."""
    roots = np.sqrt(1 / np.arange(1, D + 1))[:, None]
    axes = [np.linalg.qr(rng.normal(size=(D, D)))[0] for _ in range(2)]
    return Truth(roots * axes[0], SEPARATION * roots * axes[1])


def base_covariance(truth: Truth, classes: int, samples: int, rng: np.random.Generator) -> TiedCovariance:
    """Estimate Σ from a number of classes, as the default head does."""
    X = rng.normal(size=(classes, samples, D)) @ truth.within
    X -= X.mean(axis=1, keepdims=True)
    rows = torch.from_numpy(X.reshape(-1, D))
    scatter, dof = rows.T @ rows, classes * (samples - 1)
    none = torch.zeros_like(scatter)
    return tied_covariance(scatter, dof, none, 0, spread=1.0, shrinkage=None, pool_new=True)


def whitened(rows: np.ndarray, covariance: TiedCovariance) -> np.ndarray:
    return np.linalg.solve(covariance.cholesky.numpy(), rows.T).T


def noises(truth: Truth, rng: np.random.Generator) -> None:
    """Print the noise per direction, u = tr(Σ̂⁻¹ Σ) / d: in the sample, left out one by one, and true."""
    print("\n| base classes x samples | in sample | left out one by one | true |\n|---|---|---|---|")
    for classes, samples in ((10, 10), (20, 15), (50, 30), (100, 60)):
        found = []
        for _ in range(20):
            X = rng.normal(size=(classes, samples, D)) @ truth.within
            rows = torch.from_numpy((X - X.mean(axis=1, keepdims=True)).reshape(-1, D))
            dof = classes * (samples - 1)
            S = rows.T @ rows
            estimate = tied_covariance(S, dof, S * 0, 0, spread=1.0, shrinkage=None, pool_new=True)
            precision = torch.cholesky_inverse(estimate.cholesky).numpy()
            inside = np.trace(precision @ S.numpy()) / dof / D
            found.append((inside, float(estimate.noise), np.trace(precision @ truth.sigma) / D))
        inside, left_out, true = np.mean(found, axis=0)
        print(f"| {classes} x {samples} | {inside:.3f} | {left_out:.3f} | {true:.3f} |")


def distances(truth: Truth, covariance: TiedCovariance, rng: np.random.Generator) -> None:
    """Print what the noise of the mean adds to squared distances, and d u / n."""
    print("\n| n | distance to the true mean | to the mean of n | difference | d u / n |\n|---|---|---|---|---|")
    for n in SHOTS:
        e = whitened(rng.normal(size=(DRAWS, D)) @ truth.within, covariance)
        noise = whitened(rng.normal(size=(DRAWS, D)) @ truth.within, covariance) / np.sqrt(n)
        exact, estimated = (e**2).sum(axis=1).mean(), ((e - noise) ** 2).sum(axis=1).mean()
        formula = D * float(covariance.noise) / n
        print(f"| {n} | {exact:.1f} | {estimated:.1f} | {estimated - exact:.1f} | {formula:.1f} |")


def scores(truth: Truth, covariance: TiedCovariance, rng: np.random.Generator) -> None:
    """Print lengths of posterior means and scores of own samples, and tr(K²B) and m(n)."""
    print(
        "\n| n | length² of K x̄ | less u tr(K²)/n | tr(K²B) | own score, plain length | corrected | m(n) |"
        "\n|---|---|---|---|---|---|---|"
    )
    B = np.cov(whitened(rng.normal(size=(DRAWS, D)) @ truth.between, covariance), rowvar=False)
    values, vectors = np.linalg.eigh(B)
    spectrum = Spectrum(torch.from_numpy(vectors), torch.from_numpy(values), 0.0)
    for n in (*SHOTS, 1000):
        noise = torch.tensor([covariance.noise], dtype=torch.float64) / n
        keep, rest = kept_signal(spectrum, noise, Prior())
        K = keep[0].numpy()
        mu = whitened(rng.normal(size=(DRAWS, D)) @ truth.between, covariance) @ vectors
        e = whitened(rng.normal(size=(2 * DRAWS, D)) @ truth.within, covariance) @ vectors
        guess = K * (mu + e[:DRAWS] / np.sqrt(n))
        squared = (guess**2).sum(axis=1)
        inflation = (K**2).sum() * float(noise)
        product = ((mu + e[DRAWS:]) * guess).sum(axis=1)
        plain = (product / np.sqrt(squared)).mean()
        corrected = (product / np.sqrt(np.maximum(squared - inflation, 0.02 * squared.mean()))).mean()
        expected = float(expected_scores(spectrum, keep, rest))
        print(
            f"| {n} | {squared.mean():.1f} | {squared.mean() - inflation:.1f} | {(K**2 * values).sum():.1f} "
            f"| {plain:.2f} | {corrected:.2f} | {expected:.2f} |"
        )


HEADS = {
    "plain length, own means": {"offset": 0.0, "prior": Prior(bias=0, posterior=False)},
    "corrected length, own means": {"offset": 0.0, "prior": Prior(posterior=False)},
    "corrected length, posterior means": {"offset": 0.0},
    "the same and 0.6 of the gap": {"offset": 0.6},
    "offset by episodes (the default)": {},
}


def errors(truth: Truth, rng: np.random.Generator, repeats: int) -> None:
    """Print the accuracy on 60 classes of 30 samples and 60 of 5, and how many cross to the other kind."""
    print("\n| head | 30-sample classes | 5-sample classes | 5 taken for 30 | 30 taken for 5 |")
    print("|---" * 5 + "|")
    found: dict[str, list[tuple[float, ...]]] = {name: [] for name in HEADS}
    y = np.arange(120)
    for _ in range(repeats):
        centres = rng.normal(size=(120, D)) @ truth.between

        def sample(labels: np.ndarray, centres: np.ndarray = centres) -> np.ndarray:
            return centres[labels] + rng.normal(size=(len(labels), D)) @ truth.within

        base, new, asked = np.repeat(y[:60], 30), np.repeat(y[60:], 5), np.repeat(y, 20)
        sessions, X = [(sample(base), base), (sample(new), new)], sample(asked)
        few = asked >= 60
        for name, parameters in HEADS.items():
            head = UnbiasedLDA(0, **parameters).fit(*sessions[0]).partial_fit(*sessions[1])
            answer = head.predict(X)
            right, to_few = answer == asked, answer >= 60
            found[name].append((right[~few].mean(), right[few].mean(), (~to_few[few]).mean(), to_few[~few].mean()))
    for name, figures in found.items():
        print(f"| {name} | " + " | ".join(f"{100 * value:.1f}" for value in np.mean(figures, axis=0)) + " |")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--repeats", type=int, default=5, help="draws of the last table")
    options = parser.parse_args()
    rng = np.random.default_rng(options.seed)
    truth = draw_truth(rng)
    noises(truth, rng)
    covariance = base_covariance(truth, 20, 15, rng)
    distances(truth, covariance, rng)
    scores(truth, covariance, rng)
    errors(truth, rng, options.repeats)


if __name__ == "__main__":
    main()
