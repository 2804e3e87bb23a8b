"""Heads: scikit-learn estimators around scorers that learn classes session by session from features."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, ClassVar, Self

import numpy as np
from array_api_compat import is_array_api_obj, is_numpy_array, is_torch_array
from sklearn import get_config
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.validation import check_is_fitted, column_or_1d, validate_data

from fiveshot.core import ClassStatistics, Memory
from fiveshot.core.arrays import Array, as_numpy, namespace
from fiveshot.core.labels import Label, Labels, as_labels, python_labels, refuse_other_kind
from fiveshot.core.scorers import (
    Answer,
    Scorer,
    as_features,
    changed_parameters,
    field_parameters,
    own_parameters,
    with_parameters,
)
from fiveshot.errors import InputError


class FewShotHead(ClassifierMixin, BaseEstimator):
    """A classifier that learns classes session by session from feature vectors.

    It checks data and parameters like scikit-learn's classifiers. A scorer does the rest
    (:class:`fiveshot.core.scorers.Scorer`); after ``fit`` it is ``scorer_``. NumPy computes on NumPy arrays, torch
    on tensors on their device; ``device="cuda"`` moves arrays there.

    Examples
    --------
    >>> from fiveshot.heads import FewShotHead, make_head
    >>> head = make_head("ncm").fit([[1.0, 0.0], [0.0, 1.0]], ["owl", "wren"])
    >>> isinstance(head, FewShotHead)
    True
    >>> head.partial_fit([[1.0, 1.0]], ["kite"]).predict([[0.8, 0.9], [0.1, 0.9]]).tolist()
    ['kite', 'wren']
    """

    scorer_class: ClassVar[type[Scorer]] = Scorer  # has the same parameters
    scorer_: Scorer
    n_features_in_: int
    feature_names_in_: Any

    def unlearned_scorer(self) -> Scorer:
        """Return an unlearned scorer with the parameters of this head."""
        return self.scorer_class(**self.get_params(deep=False))

    def first_scorer(self, X: Array, y: Labels) -> Scorer:
        """Return the scorer for the base session with these samples."""
        return self.unlearned_scorer()

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return the parameters by name.

        Parameters
        ----------
        deep : bool
            Add the parameters of nested estimators and dataclasses, as ``name__parameter``.

        Returns
        -------
        dict
            The parameters as the constructor stored them.

        Examples
        --------
        >>> from fiveshot.heads import FeCAM, make_head
        >>> FeCAM(gamma=10.0).get_params()["gamma"]
        10.0
        >>> make_head("teen").get_params()["calibration__alpha"]
        0.9
        """
        found: dict[str, Any] = super().get_params(deep=deep)
        own = super().get_params(deep=False)
        return found | field_parameters(own, self.scorer_class) if deep else found

    def set_params(self, **params: Any) -> Self:
        """Set parameters by name.

        Parameters
        ----------
        **params
            New values, which apply from the next session on. ``name__parameter`` sets a parameter of a nested
            estimator or dataclass. A field of a dataclass also works by its own name, as in ``make_head``.

        Returns
        -------
        self

        Raises
        ------
        InputError
            A parameter that the estimator does not have, or a value that a dataclass refuses. Then nothing is set.

        Examples
        --------
        >>> from fiveshot.heads import FeCAM, make_head
        >>> FeCAM().set_params(gamma=10.0).gamma
        10.0
        >>> make_head("teen").set_params(calibration__alpha=0.5, tau=8.0).calibration
        Calibration(alpha=0.5, beta=1.0, tau=8.0, similarity='cosine', prototypes='raw')
        """
        own = super().get_params(deep=False)
        of_estimators = {
            key: value
            for key, value in params.items()
            if "__" in key and isinstance(own.get(key.partition("__")[0]), BaseEstimator)
        }
        changes = {key: value for key, value in params.items() if key not in of_estimators}
        changed = changed_parameters(own, changes, self.scorer_class, f"estimator {type(self).__name__}")
        for name, value in changed.items():
            setattr(self, name, value)
        if of_estimators:
            super().set_params(**of_estimators)
        return self

    def fit(self, X: Any, y: Any) -> Self:
        """Learn the base session; everything learned before is forgotten.

        Parameters
        ----------
        X : array of shape (n_samples, n_features)
            Features: NumPy arrays, lists, data frames or torch tensors.
        y : array of shape (n_samples,)
            Labels: strings, integers or booleans.

        Returns
        -------
        self

        Raises
        ------
        InputError
            Data or parameters that cannot be used; the head stays as it was.

        Examples
        --------
        >>> from fiveshot.heads import make_head
        >>> head = make_head("ncm").fit([[1.0, 0.0], [0.0, 1.0]], ["owl", "wren"])
        >>> head.classes_.tolist()
        ['owl', 'wren']
        """
        with self._unchanged_on_error():
            features, labels = self.validated_session(X, y)
            self.scorer_ = self.first_scorer(features, labels).learn(features, labels)
        return self

    def partial_fit(self, X: Any, y: Any, classes: Any = None) -> Self:
        """Learn a session: the first is the base session, later ones add new classes or more samples.

        Parameters
        ----------
        X : array of shape (n_samples, n_features)
            Features.
        y : array of shape (n_samples,)
            Labels.
        classes : array of shape (n_classes,), optional
            All classes of all sessions, as in scikit-learn. A label that is not in this list is an error.

        Returns
        -------
        self

        Raises
        ------
        InputError
            Data or parameters that cannot be used; the head stays as it was.

        Examples
        --------
        >>> from fiveshot.heads import make_head
        >>> head = make_head("ncm").fit([[1.0, 0.0], [0.0, 1.0]], ["owl", "wren"])
        >>> head.partial_fit([[5.0, 5.0], [6.0, 5.0]], ["kite", "kite"]).predict([[4.0, 4.0]]).tolist()
        ['kite']
        >>> head.base_classes_.tolist()
        ['owl', 'wren']
        """
        with self._unchanged_on_error():
            fitted = hasattr(self, "scorer_")
            features = self._validated(X, reset=not fitted)
            labels = self._labels(y, classes)
            before = self._current_scorer() if fitted else self.first_scorer(features, labels)
            self.scorer_ = before.learn(features, labels)
        return self

    def forget(self, labels: Label | Iterable[Label]) -> Self:
        """Remove one or several classes; afterwards the head equals one that never saw them.

        Parameters
        ----------
        labels : str, int or a list of them
            The classes.

        Returns
        -------
        self

        Raises
        ------
        InputError
            An unknown class, or one that this head cannot remove.

        Examples
        --------
        >>> from fiveshot.heads import make_head
        >>> head = make_head("ncm").fit([[1.0, 0.0], [0.0, 1.0]], ["owl", "wren"])
        >>> head.forget("owl").predict([[1.0, 0.0]]).tolist()
        ['wren']
        """
        check_is_fitted(self)
        self.scorer_ = self._current_scorer().forget(labels)
        return self

    def adopt(self, memory: Memory, settings: Mapping[str, Any] | None = None) -> Self:
        """Take over statistics that were learned elsewhere, as if their sessions had been learned here.

        Parameters
        ----------
        memory : Memory
            Statistics, such as ``memory_`` of another head.
        settings : mapping, optional
            The :meth:`settings` of the head that saw the base session.

        Returns
        -------
        self

        Raises
        ------
        InputError
            A head that needs more than statistics, or settings that do not fit it.

        Examples
        --------
        >>> from fiveshot.heads import make_head
        >>> head = make_head("ncm").fit([[1.0, 0.0], [0.0, 1.0]], ["owl", "wren"])
        >>> other = make_head("teen").adopt(head.memory_, head.settings())
        >>> other.predict([[0.9, 0.2]]).tolist()
        ['owl']
        """
        before = self._current_scorer() if hasattr(self, "scorer_") else self.unlearned_scorer()
        self.scorer_ = before.adopt(memory, settings)
        self.n_features_in_ = self.scorer_.n_features
        return self

    def settings(self) -> dict[str, Any]:
        """Return values that were chosen on the base session and cannot be computed from the statistics, for JSON.

        Examples
        --------
        >>> from fiveshot.heads import make_head
        >>> make_head("ncm").fit([[1.0, 0.0], [0.0, 1.0]], ["owl", "wren"]).settings()
        {}
        """
        check_is_fitted(self)
        return self.scorer_.settings()

    @property
    def classes_(self) -> Labels:
        """All classes, sorted."""
        return self.scorer_.classes

    @property
    def memory_(self) -> Memory:
        """Raw statistics of the base classes and of the new classes."""
        return self.scorer_.memory

    @property
    def statistics_(self) -> ClassStatistics:
        """Raw statistics of all classes."""
        return self.memory_.statistics

    @property
    def base_classes_(self) -> Labels:
        """The classes of the base session."""
        return self.memory_.base.labels

    def answer(self, X: Any) -> Answer:
        """Return scores, probabilities and familiarity of samples from one pass.

        Parameters
        ----------
        X : array of shape (n_samples, n_features)
            Features.

        Returns
        -------
        Answer

        Examples
        --------
        >>> from fiveshot.heads import make_head
        >>> head = make_head("ncm").fit([[1.0, 0.0], [0.0, 1.0]], ["owl", "wren"])
        >>> head.answer([[0.5, 0.5]]).probabilities.round(3).tolist()
        [[0.5, 0.5]]
        """
        features = self._asked(X)
        found = self.scorer_.answer(features)
        values = (found.scores, found.probabilities, found.familiarity)
        return Answer(self.classes_, *(_given_back(value, X) for value in values))

    def familiarity(self, X: Any) -> Any:
        """Return how similar each sample is to its most similar class, (n_samples,); low means unknown.

        Examples
        --------
        >>> from fiveshot.heads import make_head
        >>> head = make_head("ncm").fit([[1.0, 0.0], [0.0, 1.0]], ["owl", "wren"])
        >>> known, unknown = head.familiarity([[0.9, 0.1], [7.0, 7.0]])
        >>> bool(known > unknown)
        True
        """
        features = self._asked(X)
        return _given_back(self.scorer_.familiarity(features), X)

    def class_scores(self, X: Any) -> Any:
        """Return the score of each class, (n_samples, n_classes), in the order of ``classes_``; the highest wins.

        Examples
        --------
        >>> from fiveshot.heads import make_head
        >>> head = make_head("ncm").fit([[1.0, 0.0], [0.0, 1.0]], ["owl", "wren"])
        >>> head.class_scores([[2.0, 0.0]]).argmax(axis=1).tolist(), head.class_scores([[2.0, 0.0]]).shape
        ([0], (1, 2))
        """
        features = self._asked(X)
        return _given_back(self.scorer_.scores(features), X)

    def decision_function(self, X: Any) -> Any:
        """Return scores as scikit-learn defines them: with two classes, one number for the second class.

        Examples
        --------
        >>> from fiveshot.heads import make_head
        >>> head = make_head("ncm").fit([[1.0, 0.0], [0.0, 1.0]], ["owl", "wren"])
        >>> bool(head.decision_function([[0.2, 0.9]])[0] > 0)
        True
        """
        scores = self.class_scores(X)
        return scores[:, 1] - scores[:, 0] if scores.shape[1] == 2 else scores

    def predict(self, X: Any) -> Any:
        """Return the label of the highest score.

        Examples
        --------
        >>> from fiveshot.heads import make_head
        >>> head = make_head("ncm").fit([[1.0, 0.0], [0.0, 1.0]], ["owl", "wren"])
        >>> head.predict([[0.9, 0.1], [0.2, 0.7]]).tolist()
        ['owl', 'wren']
        """
        features = self._asked(X)
        return _given_back(self.scorer_.classify(features), X)

    def predict_proba(self, X: Any) -> Any:
        """Return softmax(score / temperature), consistent with ``predict``; only some heads calibrate it.

        Examples
        --------
        >>> from fiveshot.heads import make_head
        >>> head = make_head("ncm").fit([[1.0, 0.0], [0.0, 1.0]], ["owl", "wren"])
        >>> head.predict_proba([[0.5, 0.5], [1.0, 0.0]]).round(3).tolist()
        [[0.5, 0.5], [1.0, 0.0]]
        """
        features = self._asked(X)
        return _given_back(self.scorer_.probabilities(features), X)

    def predict_log_proba(self, X: Any) -> Any:
        """Return the logarithm of :meth:`predict_proba`; it is finite even if a probability rounds to 0.

        Examples
        --------
        >>> from fiveshot.heads import make_head
        >>> head = make_head("ncm").fit([[1.0, 0.0], [0.0, 1.0]], ["owl", "wren"])
        >>> head.predict_log_proba([[0.5, 0.5], [90.0, 0.0]]).round(3).tolist()
        [[-0.693, -0.693], [0.0, -2880.0]]
        """
        features = self._asked(X)
        return _given_back(self.scorer_.log_probabilities(features), X)

    def validated_session(self, X: Any, y: Any) -> tuple[Array, Labels]:
        """Check features and labels of a base session, and store the number of features."""
        return self._validated(X, reset=True), self._labels(y, None)

    def _current_scorer(self) -> Scorer:
        """Return the learned scorer with the current parameters."""
        return self.scorer_.reconfigured(own_parameters(self.unlearned_scorer()))

    def _asked(self, X: Any) -> Array:
        check_is_fitted(self)
        return self._validated(X, reset=False)

    def _validated(self, X: Any, *, reset: bool) -> Array:
        """Return X as a matrix of numbers; with ``reset`` its number of features is stored, else it must match.

        The scorer refuses NaN and infinity. Torch tensors stay on their device.
        """
        if is_torch_array(X):
            features = as_features(X, None if reset else self.n_features_in_, type(self).__name__)
            if reset:
                self.n_features_in_ = int(features.shape[1])
                self.__dict__.pop("feature_names_in_", None)
            return features
        if getattr(X, "dtype", None) == np.float16:
            X = np.asarray(X, dtype=np.float32)
        try:
            return validate_data(
                self, X, reset=reset, dtype=[np.float64, np.float32], order="C", ensure_all_finite=False
            )
        except ValueError as error:
            raise InputError(str(error)) from error

    def _labels(self, y: Any, classes: Any) -> Labels:
        """Return the labels of a session, one per sample, with the type of the known classes.

        ``classes`` may list all classes of all sessions; a label that is not in it is an error.
        """
        if y is None:
            raise InputError(f"{type(self).__name__} requires y to be passed, but the target y is None")
        if getattr(y, "ndim", 1) == 2 and y.shape[1] == 1:
            y = column_or_1d(as_numpy(y), warn=True)
        labels = as_labels(y)
        if classes is not None:
            announced = as_labels(classes)
            refuse_other_kind(announced, labels)
            unexpected = python_labels(np.setdiff1d(labels, announced))
            if unexpected:
                raise InputError(f"label {unexpected[0]!r} is not in classes=", hint="add it there")
        return labels

    @contextmanager
    def _unchanged_on_error(self) -> Iterator[None]:
        # All learned values are immutable, so restoring the old attributes restores the old state.
        before = dict(self.__dict__)
        try:
            yield
        except BaseException:
            self.__dict__.clear()
            self.__dict__.update(before)
            raise


class ScorerHead(FewShotHead):
    """An estimator around any scorer, such as one of your own.

    Parameters
    ----------
    scorer : Scorer
        An unlearned scorer; its parameters are available as ``scorer__name`` and as ``name``.

    Examples
    --------
    >>> from fiveshot.core.scorers import StreamingLDAScorer
    >>> from fiveshot.heads import ScorerHead
    >>> head = ScorerHead(StreamingLDAScorer()).set_params(shrinkage=0.01)
    >>> head.fit([[0.0, 0.0], [1.0, 0.0], [5.0, 5.0], [5.0, 6.0]], [0, 0, 1, 1]).predict([[4.0, 4.0]]).tolist()
    [1]
    """

    def __init__(self, scorer: Scorer) -> None:
        self.scorer = scorer

    def unlearned_scorer(self) -> Scorer:
        """Return a copy of the scorer."""
        if not isinstance(self.scorer, Scorer):
            raise InputError(f"scorer must be a Scorer, got {self.scorer!r}", hint="for example NCMScorer()")
        return with_parameters(self.scorer, {})


def _given_back(values: Array, X: Any) -> Any:
    """Return values as NumPy arrays, or in the library of X if scikit-learn dispatches array APIs."""
    if not get_config()["array_api_dispatch"] or not is_array_api_obj(X) or is_numpy_array(X):
        return as_numpy(values)
    if is_numpy_array(values) and values.dtype.kind == "U":  # tensors hold no text
        return values
    return namespace(X).asarray(as_numpy(values), device=X.device)
