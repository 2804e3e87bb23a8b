"""Classifiers of scikit-learn, fitted again after every session on all samples so far: joint training.

This is what a user would try first, and the upper bound for learning in sessions: all samples are kept and used
together, so nothing is forgotten. Sample x_i of class y_i has the weight w_i = 1 or, balanced, n over the number
of classes and over the number of samples of its class:

    ridge:     min Σ w_i ‖t_i − W x_i − b‖² + α ‖W‖²,   t_i = 1 for its class and −1 for the others;
    logistic:  min Σ w_i (−log softmax(W x_i + b)[y_i]) + ‖W‖² / 2C,   on standardized features;
    lda:       s_c(x) = x·Σ⁻¹μ_c − ½ μ_c·Σ⁻¹μ_c + log π_c,   Σ = Σ_c π_c Σ_c, with π_c the share of the samples or,
               balanced, one over the number of classes, and each Σ_c shrunk as Ledoit and Wolf do;
    knn:       the five nearest samples vote, each by the inverse of its distance.

α is chosen by leaving out one sample, after every session. C is 1 unless given, as in the library. The
discriminant analysis is scikit-learn's, without writing out a covariance for each class.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass
from typing import Any, ClassVar, Literal, Self, get_args

import numpy as np
from numpy.typing import NDArray

from fiveshot.core import Memory
from fiveshot.core.arrays import Array, as_numpy, parts, positions, values_like
from fiveshot.core.labels import Label, Labels, python_labels
from fiveshot.core.ranges import Allowed, Flag, OneOf, Range
from fiveshot.core.ridge import Evidence
from fiveshot.core.scorers.scorer import Scorer, nothing

Classifier = Literal["ridge", "logistic", "lda", "knn"]
RIDGE_ALPHAS = tuple(10.0**k for k in range(-2, 7))
NEIGHBORS = 5
ITERATIONS = 1000  # of the logistic regression, at most
NO_VOTE = 1e-3  # share of the votes for a class without votes, so that its logarithm is finite


@dataclass(frozen=True, eq=False)
class RefittedModel:
    """All samples, and the classifier fitted on them."""

    evidence: Evidence
    classifier: Any  # None for a single class


@dataclass(eq=False)
class RefittedScorer(Scorer):
    """A classifier of scikit-learn that is fitted after every session on all samples of all sessions.

    Parameters
    ----------
    classifier : {"ridge", "logistic", "lda", "knn"}
        Ridge regression, logistic regression, linear discriminant analysis with shrinkage, or nearest neighbors.
    balanced : bool
        Every class has the same total weight. Nearest neighbors ignore this.
    strength : float
        C of the logistic regression.
    temperature : float
        Probabilities are softmax(score / temperature); with 1 those of the logistic regression and of the
        discriminant analysis are scikit-learn's.
    device : str, optional
        The device to move scores to; NumPy computes them on the CPU.

    Examples
    --------
    >>> import numpy as np
    >>> rows = np.array([[0.0, 1.0], [0.1, 1.0], [1.0, 0.0], [1.0, 0.1]])
    >>> two = RefittedScorer("knn").learn(rows, ["a", "a", "b", "b"])
    >>> three = two.learn(np.array([[-1.0, -1.1], [-1.1, -1.0]]), ["c", "c"])
    >>> three.classify(np.array([[0.2, 1.0], [-1.0, -1.0]])).tolist()
    ['a', 'c']
    """

    needs_samples = True
    ranges: ClassVar[Mapping[str, Allowed]] = {
        "classifier": OneOf(get_args(Classifier)),
        "balanced": Flag(),
        "strength": Range(0, positive=True, hint="the default is 1"),
    }

    classifier: Classifier = "logistic"
    _: KW_ONLY
    balanced: bool = False
    strength: float = 1.0
    temperature: float = 1.0
    device: Any = None

    def derive(self, memory: Memory, X: Array, y: Labels, previous: RefittedModel | None) -> RefittedModel:
        """Fit the classifier on all samples."""
        labels = python_labels(memory.labels)
        evidence = previous.evidence if previous is not None else Evidence()
        evidence = evidence.without(set(evidence.rows) - set(labels))
        for label in python_labels(np.unique(y)):
            evidence = evidence.add(label, as_numpy(X[positions(np.flatnonzero(y == label), X)]))
        return RefittedModel(evidence, self._fitted(*joined([evidence.rows[label] for label in labels])))

    def score_classes(self, X: Array, labels: list[Label]) -> Array:
        """Return logits, regression values, or logarithms of shares of the votes."""
        scores = decisions(self.model.classifier, as_numpy(X))
        return values_like(scores[:, np.searchsorted(self.classes, labels)], X)

    def state_to_save(self) -> tuple[dict[str, Array], dict[str, Any]]:
        """Return the samples."""
        rows = self.model.evidence.rows
        counts = [(label, len(part)) for label, part in rows.items()]
        return {"rows": np.concatenate(list(rows.values()))}, {"rows": counts}

    def restored(self, memory: Memory, arrays: dict[str, Array], values: dict[str, Any]) -> Self:
        """Return the scorer, fitted again on the saved samples."""
        counts = dict(values["rows"])
        rows = dict(zip(counts, parts(as_numpy(arrays["rows"]), counts.values()), strict=True))
        return self.holding(memory, self.derive(memory, *nothing(memory), RefittedModel(Evidence(rows), None)))

    def _fitted(self, X: NDArray[Any], codes: NDArray[np.intp]) -> Any:
        """Fit a classifier on samples and the indices of their classes; None for a single class."""
        n_classes = int(codes[-1]) + 1
        if n_classes == 1:
            return None
        if self.classifier == "lda" and len(X) > n_classes:
            return shrinkage_lda(X, codes, balanced=self.balanced)
        return self._classifier(len(X)).fit(X, codes)

    def _classifier(self, n: int) -> Any:
        from sklearn.linear_model import LogisticRegression, RidgeClassifierCV
        from sklearn.neighbors import KNeighborsClassifier
        from sklearn.pipeline import make_pipeline
        from sklearn.preprocessing import StandardScaler

        weight = "balanced" if self.balanced else None
        if self.classifier == "ridge":
            return RidgeClassifierCV(RIDGE_ALPHAS, class_weight=weight)
        if self.classifier == "logistic":
            logistic = LogisticRegression(C=self.strength, class_weight=weight, max_iter=ITERATIONS)
            return make_pipeline(StandardScaler(), logistic)
        # Also for classes with one sample, which have no covariance: the nearest sample is the nearest mean.
        return KNeighborsClassifier(min(NEIGHBORS, n), weights="distance")


@dataclass(frozen=True, eq=False)
class Discriminants:
    """Scores x·w − b of a linear discriminant analysis."""

    weights: NDArray[Any]  # (n_classes, d)
    shifts: NDArray[Any]  # (n_classes,)

    def decision_function(self, X: NDArray[Any]) -> NDArray[Any]:
        """Return a column for each class."""
        found: NDArray[Any] = X @ self.weights.T - self.shifts
        return found


def shrinkage_lda(X: NDArray[Any], codes: NDArray[np.intp], *, balanced: bool) -> Discriminants:
    """Return the discriminants of ``LinearDiscriminantAnalysis(solver="lsqr", shrinkage="auto")``.

    It shrinks Σ_c in features of standard deviation one, D = diag(σ): Σ_c = (1 − ρ) S_c + ρ m D², with m the share
    of features that vary. Their sum over classes is one product of all samples, each weighted, and a diagonal.
    """
    from scipy.linalg import LinAlgError, lstsq, solve

    counts = np.bincount(codes)
    shares = np.full(len(counts), 1 / len(counts)) if balanced else counts / len(codes)
    means = np.stack([X[codes == code].mean(axis=0) for code in range(len(counts))])
    deviations, diagonal = X - means[codes], np.zeros(X.shape[1])
    for code in np.flatnonzero(counts > 1):  # a class with one sample has no spread
        own = codes == code
        scale = deviations[own].std(axis=0)
        scale[scale < 10 * np.finfo(np.float64).eps * np.abs(means[code])] = 0.0  # constant up to rounding
        safe = np.where(scale == 0, 1.0, scale)
        rho, level = ledoit_wolf(deviations[own] / safe)
        deviations[own] *= np.sqrt(shares[code] * (1 - rho) / counts[code])
        diagonal += shares[code] * rho * level * safe**2
    covariance = deviations.T @ deviations
    covariance[np.diag_indices_from(covariance)] += diagonal
    try:
        weights = solve(covariance, means.T, assume_a="pos").T
    except LinAlgError:  # no shrinkage: the solution of least norm
        weights = lstsq(covariance, means.T)[0].T
    return Discriminants(weights, (weights * means).sum(axis=1) / 2 - np.log(shares))


def ledoit_wolf(Z: NDArray[Any]) -> tuple[float, float]:
    """Return the shrinkage ρ and the level m for centered samples, from products of samples alone.

    With S = ZᵀZ / n, m = tr S / d and δ = ‖S‖² − d m², ρ = min(1, (Σ_i ‖z_i‖⁴ / n − ‖S‖²) / n / δ).
    """
    n, d = Z.shape
    products = Z @ Z.T
    squared = float((products**2).sum()) / n**2  # ‖S‖²
    level = float(np.trace(products)) / n / d
    apart = squared - d * level**2
    spread = (float((np.diag(products) ** 2).sum()) / n - squared) / n
    return (min(spread / apart, 1.0) if apart > 0 and spread > 0 else 0.0), level


def joined(rows: list[NDArray[Any]]) -> tuple[NDArray[Any], NDArray[np.intp]]:
    """Return the samples of all classes in double precision, and the index of the class of each."""
    X = np.concatenate(rows).astype(np.float64)
    return X, np.repeat(np.arange(len(rows)), [len(part) for part in rows])


def decisions(classifier: Any, X: NDArray[Any]) -> NDArray[Any]:
    """Return a column of scores for each class."""
    if classifier is None:
        return np.zeros((len(X), 1))
    X = X.astype(np.float64)
    found: NDArray[Any]
    if not hasattr(classifier, "decision_function"):
        found = np.log(classifier.predict_proba(X) + NO_VOTE)
    else:
        found = classifier.decision_function(X)
    return found if found.ndim == 2 else np.stack([-found / 2, found / 2], axis=1)
