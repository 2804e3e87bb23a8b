"""The contract of all heads: sessions in, one score function, everything a user asks for derived from it."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from copy import copy
from typing import Any, ClassVar, Self

import numpy as np
from array_api_compat import is_array_api_obj, is_numpy_array

from fiveshot.core import ClassStatistics, Memory, class_statistics
from fiveshot.core.arrays import Array, as_numpy, chunks, namespace, placed, softmax
from fiveshot.core.labels import Label, Labels, as_label_list, as_labels, python_labels
from fiveshot.errors import InputError, is_number
from fiveshot.extras import import_extra
from fiveshot.heads.estimator import Estimator, dispatches, not_fitted
from fiveshot.heads.inputs import as_features, as_session_labels, flat_labels

ROWS_AT_ONCE = 8192  # scores are computed for so many samples at a time, which bounds the memory


class FewShotHead(Estimator):
    """A classifier that learns classes session by session from feature vectors.

    A subclass stores its parameters, ``temperature`` and ``device`` among them, and says two things: how it
    derives its model from the memory (``_derive``) and how it scores samples against classes (``_class_scores``).
    Where new classes leave the scores of old ones alone it says so in ``_class_tokens``.
    :func:`~fiveshot.heads.check_head` checks the rest of the contract.

    >>> from fiveshot.heads import FewShotHead, make_head
    >>> head = make_head("ncm").fit([[1.0, 0.0], [0.0, 1.0]], ["owl", "wren"])
    >>> isinstance(head, FewShotHead)
    True
    >>> head.partial_fit([[1.0, 1.0]], ["kite"]).predict([[0.8, 0.9], [0.1, 0.9]]).tolist()
    ['kite', 'wren']
    """

    unused_fields: ClassVar[tuple[str, ...]] = ()  # of a calibration or other value, which this head does not read

    temperature: float
    device: Any  # None: where the data are; "cuda" and the like: on that device, by torch
    n_features_in_: int
    feature_names_in_: Any
    memory_: Memory
    model_: Any
    classes_: Labels

    @abstractmethod
    def _derive(self, memory: Memory, X: Array, y: Labels, previous: Any) -> Any:
        """Return the model of ``memory``, which has just learned X and y (both empty after forgetting).

        ``previous`` is the model before, or None. It must not be changed: copies of the head share it.
        """

    @abstractmethod
    def _class_scores(self, X: Array, labels: list[Label]) -> Array:
        """Return scores, (n_samples, len(labels)); the highest wins."""

    def _class_tokens(self) -> Mapping[Label, object]:
        """Return for each class the object that its scores depend on; the same object means the same scores.

        The whole model unless a head says otherwise, so that every session changes all scores.
        """
        return dict.fromkeys(python_labels(self.classes_), self.model_)

    def fit(self, X: Any, y: Any) -> Self:
        """Learn the base session, forgetting everything before.

        >>> from fiveshot.heads import make_head
        >>> head = make_head("ncm").fit([[1.0, 0.0], [0.0, 1.0]], ["owl", "wren"])
        >>> head.classes_.tolist()
        ['owl', 'wren']
        """
        with self._unchanged_on_error():
            return self._learn(as_features(self, X, reset=True), y, None, Memory(), None)

    def partial_fit(self, X: Any, y: Any, classes: Any = None) -> Self:
        """Learn a session: the first is the base session, later ones bring new classes or more samples.

        ``classes`` is optional. Given, it announces the classes of this session, and one without a sample is
        an error.

        >>> from fiveshot.heads import make_head
        >>> head = make_head("ncm").fit([[1.0, 0.0], [0.0, 1.0]], ["owl", "wren"])
        >>> head.partial_fit([[5.0, 5.0], [6.0, 5.0]], ["kite", "kite"]).predict([[4.0, 4.0]]).tolist()
        ['kite']
        >>> head.base_classes_.tolist()
        ['owl', 'wren']
        """
        with self._unchanged_on_error():
            fitted = hasattr(self, "memory_")
            features = as_features(self, X, reset=not fitted)
            memory, model = (self.memory_, self.model_) if fitted else (Memory(), None)
            return self._learn(features, y, classes, memory, model)

    def forget(self, labels: Label | Iterable[Label]) -> Self:
        """Remove one class, or several: afterwards the head equals one that never saw them.

        >>> from fiveshot.heads import make_head
        >>> head = make_head("ncm").fit([[1.0, 0.0], [0.0, 1.0]], ["owl", "wren"])
        >>> head.forget("owl").predict([[1.0, 0.0]]).tolist()
        ['wren']
        """
        self._require_fitted()
        with self._unchanged_on_error():
            memory = self.memory_.forget(as_label_list(labels))
            return self._adopt(memory, self._derive(memory, *nothing(memory), self.model_))

    def adopt(self, memory: Memory, settings: Mapping[str, Any] | None = None) -> Self:
        """Take up statistics that were learned elsewhere, as if their sessions had been learned here.

        ``settings`` are those of the head that saw the base session (its ``settings()``). Called again with a
        memory that shares summaries with the one before, only what changed is derived anew.

        >>> from fiveshot.heads import make_head
        >>> head = make_head("ncm").fit([[1.0, 0.0], [0.0, 1.0]], ["owl", "wren"])
        >>> other = make_head("teen").adopt(head.memory_, head.settings())
        >>> other.predict([[0.9, 0.2]]).tolist()
        ['owl']
        """
        with self._unchanged_on_error():
            previous = getattr(self, "model_", None)
            if settings is not None and dict(settings) != (self.settings() if previous is not None else {}):
                self._apply_settings(settings)
                previous = None
            self.n_features_in_ = self._width(memory)
            return self._adopt(memory, self._derive(memory, *nothing(memory), previous))

    def sketch(self, memory: Memory) -> Self:
        """Return a head that knows the classes of ``memory``, which differs in few of them from this head's.

        What all classes share may stay as it is here, so that a look at a class costs little. For most heads
        it is simply a copy that has adopted the memory.

        >>> from fiveshot.heads import make_head
        >>> head = make_head("ncm").fit([[1.0, 0.0], [0.0, 1.0]], ["owl", "wren"])
        >>> without_owls = head.sketch(head.memory_.forget(["owl"]))
        >>> without_owls.classes_.tolist(), head.classes_.tolist()
        (['wren'], ['owl', 'wren'])
        """
        return copy(self).adopt(memory)

    def settings(self) -> dict[str, Any]:
        """Return what was chosen on the base session and does not follow from the statistics, as JSON values.

        >>> from fiveshot.heads import make_head
        >>> head = make_head("ncm").fit([[1.0, 0.0], [0.0, 1.0]], ["owl", "wren"])
        >>> head.settings()
        {}
        >>> sorted(make_head("ulda").fit([[1.0, 0.0], [0.0, 1.0]], ["owl", "wren"]).settings())
        ['center', 'choice', 'n_random', 'seed']
        """
        return {}

    def _apply_settings(self, settings: Mapping[str, Any]) -> None:
        if settings:
            raise InputError(f"{type(self).__name__} has no settings, got {dict(settings)}; leave them out")

    def embed(self, X: Array) -> Array:
        """Return the vectors that this head keeps statistics of, (n_samples, d); the features themselves for most.

        A ``Memory`` for ``adopt`` holds statistics of these.

        >>> import numpy as np
        >>> from fiveshot.heads import make_head
        >>> make_head("ncm").embed(np.array([[3.0, 4.0]])).tolist()
        [[3.0, 4.0]]
        >>> make_head("ulda").embed(np.array([[3.0, 4.0]])).tolist()
        [[0.6, 0.8]]
        """
        return X

    def familiarity(self, X: Any) -> Any:
        """Return how much each sample is like the class it is most like, (n_samples,); low means unknown.

        >>> from fiveshot.heads import make_head
        >>> head = make_head("ncm").fit([[1.0, 0.0], [0.0, 1.0]], ["owl", "wren"])
        >>> known, unknown = head.familiarity([[0.9, 0.1], [7.0, 7.0]])
        >>> bool(known > unknown)
        True
        """
        scores = self._scores(X)
        return self._given_back(namespace(scores).max(scores, axis=1), X)

    @property
    def statistics_(self) -> ClassStatistics:
        """Raw statistics of all classes."""
        return self.memory_.statistics

    @property
    def base_classes_(self) -> Labels:
        """The classes of the base session."""
        return self.memory_.base.labels

    def class_scores(self, X: Any) -> Any:
        """Return the score of each class, (n_samples, n_classes), in the order of ``classes_``; the highest wins.

        >>> from fiveshot.heads import make_head
        >>> head = make_head("ncm").fit([[1.0, 0.0], [0.0, 1.0]], ["owl", "wren"])
        >>> head.class_scores([[2.0, 0.0]]).argmax(axis=1).tolist(), head.class_scores([[2.0, 0.0]]).shape
        ([0], (1, 2))
        """
        return self._given_back(self._scores(X), X)

    def decision_function(self, X: Any) -> Any:
        """Return scores as scikit-learn defines them: with two classes, one number for the second.

        >>> from fiveshot.heads import make_head
        >>> head = make_head("ncm").fit([[1.0, 0.0], [0.0, 1.0]], ["owl", "wren"])
        >>> bool(head.decision_function([[0.2, 0.9]])[0] > 0)
        True
        """
        scores = self.class_scores(X)
        return scores[:, 1] - scores[:, 0] if scores.shape[1] == 2 else scores

    def predict(self, X: Any) -> Any:
        """Return the label of the highest score.

        >>> from fiveshot.heads import make_head
        >>> head = make_head("ncm").fit([[1.0, 0.0], [0.0, 1.0]], ["owl", "wren"])
        >>> head.predict([[0.9, 0.1], [0.2, 0.7]]).tolist()
        ['owl', 'wren']
        """
        scores = self._scores(X)
        return self._given_back(self.classes_[as_numpy(namespace(scores).argmax(scores, axis=1))], X)

    def predict_proba(self, X: Any) -> Any:
        """Return softmax(score / temperature), consistent with ``predict``; calibrated where the head says so.

        >>> from fiveshot.heads import make_head
        >>> head = make_head("ncm").fit([[1.0, 0.0], [0.0, 1.0]], ["owl", "wren"])
        >>> head.predict_proba([[0.5, 0.5], [1.0, 0.0]]).round(3).tolist()
        [[0.5, 0.5], [1.0, 0.0]]
        """
        return self._given_back(softmax(self._scores(X) * self._softmax_factor()), X)

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Return the share of samples whose predicted label is right.

        >>> from fiveshot.heads import make_head
        >>> head = make_head("ncm").fit([[1.0, 0.0], [0.0, 1.0]], ["owl", "wren"])
        >>> head.score([[0.9, 0.1], [0.2, 0.7]], ["owl", "owl"])
        0.5
        """
        right = as_numpy(self.predict(X)) == as_labels(flat_labels(y))
        weights = None if sample_weight is None else as_numpy(sample_weight)
        return float(np.average(right, weights=weights))

    def _scores(self, X: Any) -> Array:
        self._require_fitted()
        features = self._placed(as_features(self, X, reset=False))
        labels = python_labels(self.classes_)
        found = [self._class_scores(part, labels) for part in chunks(features, ROWS_AT_ONCE)]
        return found[0] if len(found) == 1 else namespace(*found).concat(found)

    def _learn(self, X: Array, y: Any, classes: Any, memory: Memory, model: Any) -> Self:
        known = memory.labels
        labels = as_session_labels(self, y, n_samples=len(X), known=known, classes=classes)
        X = placed(X, memory.statistics.means) if len(known) else on_device(X, self.device)
        if not len(known):
            self._begin(X, labels)
        memory = memory.learn(class_statistics(self.embed(X), labels))
        return self._adopt(memory, self._derive(memory, X, labels, model))

    def _require_fitted(self) -> None:
        if not hasattr(self, "memory_"):
            raise not_fitted(self)

    def __sklearn_is_fitted__(self) -> bool:
        """Tell scikit-learn whether the head has learned."""
        return hasattr(self, "memory_")

    @staticmethod
    def _given_back(values: Array, X: Any) -> Any:
        """Return values as NumPy has them, or in the library of X where scikit-learn was told to keep to it."""
        if dispatches() and is_array_api_obj(X):
            return values if is_numpy_array(values) and values.dtype.kind == "U" else same_library(values, X)
        return as_numpy(values)

    def _begin(self, X: Array, y: Labels) -> None:
        """Prepare for the base session, whose samples are given."""
        self._softmax_factor()

    def _width(self, memory: Memory) -> int:
        """Return the number of features that samples must have, given statistics of what was embedded."""
        return memory.statistics.n_features

    def _softmax_factor(self) -> float:
        """Return what scores are multiplied by to become the logits of probabilities."""
        if not (is_number(self.temperature) and 0 < self.temperature < math.inf):
            raise InputError(f"temperature must be positive, got {self.temperature}; the default is 1/16")
        return 1 / self.temperature

    def _adopt(self, memory: Memory, model: Any) -> Self:
        self.memory_, self.model_, self.classes_ = memory, model, memory.labels
        return self

    def _extra_state(self) -> tuple[dict[str, Array], dict[str, Any]]:
        """Return what a file must hold beside the memory: tensors and JSON values."""
        return {}, {}

    def _restore(self, memory: Memory, tensors: dict[str, Array], extra: dict[str, Any]) -> None:
        """Take up the state that was saved."""
        self._adopt(memory, self._derive(memory, *nothing(memory), None))

    def _placed(self, X: Array) -> Array:
        return placed(X, self.memory_.statistics.means)

    @contextmanager
    def _unchanged_on_error(self) -> Iterator[None]:
        # Everything learned is an immutable value, so the old attributes are the old state.
        before = dict(self.__dict__)
        try:
            yield
        except BaseException:
            self.__dict__.clear()
            self.__dict__.update(before)
            raise


def nothing(memory: Memory) -> tuple[Array, Labels]:
    """Return a session without samples."""
    return memory.statistics.means[:0], memory.labels[:0]


def check_bias(bias: float) -> None:
    """Refuse a share of the correction for few samples that makes no sense."""
    if not (is_number(bias) and 0 <= bias < math.inf):
        raise InputError(f"bias must be finite and not negative, got {bias}; 1 removes the expected bias, 0 none")


def on_device(X: Array, device: Any) -> Array:
    """Return features where a head is to compute: as they are without a device, else by torch on that one."""
    if device is None or (is_numpy_array(X) and str(device) == "cpu"):
        return X
    torch = import_extra("torch", extra="torch")
    if is_numpy_array(X):
        X = torch.from_numpy(X if X.flags.writeable else X.copy())
    return X.to(device)


def same_library(values: Array, X: Any) -> Array:
    """Return values in the library, and on the device, of the samples they are about."""
    if is_numpy_array(X):
        return as_numpy(values)
    xp = namespace(X)
    return xp.asarray(as_numpy(values), device=X.device)
