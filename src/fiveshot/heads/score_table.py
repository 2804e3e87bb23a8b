"""Scores of one set of samples, kept from session to session: only what changed is computed again."""

from __future__ import annotations

from typing import Any

from numpy.typing import NDArray

from fiveshot.core.arrays import Array, as_numpy, namespace, placed, softmax
from fiveshot.core.labels import Label, Labels, python_labels
from fiveshot.heads.estimator import as_features
from fiveshot.heads.head import FewShotHead


class ScoreTable:
    """Evaluates a head on the same samples after every session.

    In NCM and FeCAM a class's scores do not depend on other classes, so an old class costs nothing when new
    ones arrive; in RanPAC every session changes all of them, but not the random features of the samples.

    Parameters
    ----------
    head : FewShotHead
        Fitted; it may go on learning.
    X : array of shape (n_samples, n_features)
        The samples, which are copied.

    Examples
    --------
    >>> from fiveshot.heads import NCM, ScoreTable
    >>> head = NCM().fit([[1.0, 0.0], [0.0, 1.0]], ["a", "b"])
    >>> table = ScoreTable(head, [[0.9, 0.2], [0.7, 0.7]])
    >>> table.predict().tolist(), table.computed
    (['a', 'a'], 2)
    >>> _ = head.partial_fit([[0.5, 0.5]], ["c"])
    >>> table.predict().tolist(), table.computed
    (['a', 'c'], 3)
    """

    def __init__(self, head: FewShotHead, X: Any) -> None:
        head.require_fitted()
        self.head = head
        self.computed = 0  # class columns computed so far
        # A copy: columns of different sessions must be of the same samples, whatever happens to X.
        features = placed(as_features(head, X, reset=False), head.memory_.statistics.means)
        self._X = namespace(features).asarray(features, copy=True)
        self._base: object = None
        self._columns: dict[Label, tuple[object, Array]] = {}

    def scores(self) -> Array:
        """Return the scores of all samples and all classes known now, (n_samples, n_classes)."""
        tokens = self.head.class_tokens()
        # Distances are taken from an origin, the mean of all classes, so that columns of different sessions differ
        # in rounding. New classes move it little; another base may move it far: all are computed again.
        if self._base is not self.head.memory_.base:
            self._base, self._columns = self.head.memory_.base, {}
            self._scores_of = self.head.scores_of(self._X)
        kept = {label: self._columns.get(label) for label in tokens}
        stale = [label for label, column in kept.items() if column is None or column[0] is not tokens[label]]
        if stale:
            fresh = namespace(self._X).asarray(self._scores_of(stale).T, copy=True)  # one row per class
            self.computed += len(stale)
            self._columns.update({label: (tokens[label], fresh[i]) for i, label in enumerate(stale)})
        self._columns = {label: self._columns[label] for label in python_labels(self.head.classes_)}
        return namespace(self._X).stack([column for _, column in self._columns.values()], axis=1)

    def probabilities(self) -> NDArray[Any]:
        """Return probabilities as ``head.predict_proba`` would, (n_samples, n_classes)."""
        return as_numpy(softmax(self.scores() * self.head.softmax_factor()))

    def predict(self) -> Labels:
        """Return the predicted label of every sample, as ``head.predict`` would."""
        scores = self.scores()
        winners: Labels = self.head.classes_[as_numpy(namespace(scores).argmax(scores, axis=1))]
        return winners
