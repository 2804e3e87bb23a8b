"""The contract of all heads: sessions in, one score function, everything a user asks for derived from it."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import copy
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Self

import numpy as np
from array_api_compat import is_array_api_obj, is_numpy_array
from numpy.typing import NDArray

from fiveshot.core import ClassStatistics, Memory, class_statistics
from fiveshot.core.arrays import Array, as_numpy, chunks, log_softmax, namespace, placed, positions, softmax
from fiveshot.core.episodes import Episode
from fiveshot.core.labels import Label, Labels, as_label_list, as_labels, python_labels
from fiveshot.core.ranges import Allowed, Range
from fiveshot.errors import InputError
from fiveshot.extras import import_extra
from fiveshot.heads.estimator import (
    Estimator,
    as_features,
    as_session_labels,
    clone,
    dispatches,
    flat_labels,
    not_fitted,
)

Flavor = Literal["paper", "published"]
Candidate = Mapping[str, Any]  # parameters to set, by their short names
ROWS_AT_ONCE = 8192  # scores are computed for so many samples at a time, which bounds the memory
BIAS = Range(0, hint="1 removes the expected bias, 0 none")  # of the penalty that classes of few samples have


@dataclass(frozen=True)
class Style:
    """How a method is drawn: a look that differs in color, marker and dash.

    Parameters
    ----------
    color : str
        On white. Color-blind readers must tell it from the others.
    night_color : str
        On a dark screen.
    marker : str
        As matplotlib names them.
    dashed : bool
        A calibrated method has a whole line, so that print without color works as well.

    Examples
    --------
    >>> from fiveshot.heads import RECIPES
    >>> RECIPES["ncm"].style
    Style(color='#6b6b6b', night_color='#a8a8a8', marker='o', dashed=True)
    """

    color: str
    night_color: str
    marker: str
    dashed: bool


@dataclass(frozen=True)
class Recipe:
    """A head by name: what is made, and how it is shown.

    Parameters
    ----------
    name : str
        What :func:`~fiveshot.heads.make_head`, the command line and models call it.
    description : str
        One line.
    paper : callable
        Returns the unfitted head as the paper's text has it.
    published : callable, optional
        Returns it as the published code has it, where that differs.
    label : str, optional
        The name as readers know it; ``name`` unless given.
    style : Style, optional
        Its look in charts.
    place : int
        Where it stands in lists; the paper's methods come first.

    Examples
    --------
    >>> from fiveshot.heads import RECIPES
    >>> RECIPES["teen"].label, RECIPES["teen"].make().metric, RECIPES["teen"].make("published").metric
    ('TEEN', 'euclidean', 'cosine')
    """

    name: str
    description: str
    paper: Callable[[], FewShotHead]
    published: Callable[[], FewShotHead] | None = None
    label: str = ""
    style: Style | None = None
    place: int = 1000

    def make(self, flavor: Flavor = "paper") -> FewShotHead:
        """Return the unfitted head."""
        return self.published() if flavor == "published" and self.published is not None else self.paper()


@dataclass(frozen=True)
class Tried:
    """Values of a parameter that are tried beside its own: these, or its own times some factors."""

    values: tuple[float, ...] = ()
    factors: tuple[float, ...] = ()

    def beside(self, own: Any) -> list[float]:
        """Return them; none where a factor meets a parameter without a value."""
        if self.values:
            return [value for value in self.values if value != own]
        return [] if own is None else [factor * own for factor in self.factors]


@dataclass(frozen=True)
class Workload:
    """The sizes that decide what a run costs."""

    base_rows: int
    base_classes: int
    new_classes: int
    shots: int
    sessions: int
    n_features: int
    test_rows: int

    @property
    def rows(self) -> int:
        """Training rows in all."""
        return self.base_rows + self.new_classes * self.shots

    @property
    def classes(self) -> int:
        """Classes in all."""
        return self.base_classes + self.new_classes


@dataclass(frozen=True, eq=False)
class Answer:
    """What a head says about samples, from one pass.

    Attributes
    ----------
    classes : ndarray
        The classes in the order of the columns, (n_classes,).
    scores : ndarray
        The score of each class, (n_samples, n_classes); the highest wins.
    probabilities : ndarray
        Those of each class, (n_samples, n_classes).
    familiarity : ndarray
        How much each sample is like the class it is most like, (n_samples,); low means unknown.

    Examples
    --------
    >>> from fiveshot.heads import make_head
    >>> head = make_head("ncm").fit([[1.0, 0.0], [0.0, 1.0]], ["owl", "wren"])
    >>> answer = head.answer([[0.9, 0.1]])
    >>> answer.labels.tolist(), answer.scores.shape, answer.familiarity.shape
    (['owl'], (1, 2), (1,))
    """

    classes: Labels
    scores: Any
    probabilities: Any
    familiarity: Any

    @property
    def labels(self) -> Labels:
        """The class of the highest score of each sample, (n_samples,)."""
        winners: Labels = self.classes[as_numpy(namespace(self.scores).argmax(self.scores, axis=1))]
        return winners


class FewShotHead(Estimator):
    """A classifier that learns classes session by session from feature vectors.

    It follows scikit-learn's protocol of estimators. NumPy arrays are computed by NumPy, tensors of torch where
    they lie; ``device="cuda"`` moves arrays there.

    A subclass stores its parameters, ``temperature`` and ``device`` among them, and says two things: how it
    derives its model from the memory (:meth:`derive`) and how it scores samples against classes
    (:meth:`score_classes`). What else is known of it stands in its class: ``recipes`` (its names and looks),
    ``ranges`` (what its parameters may be), ``tried`` (what may be chosen by episodes), ``needs_samples`` and
    :meth:`memory_needed`. Where new classes leave the scores of old ones alone it says so in
    :meth:`class_tokens`. :func:`~fiveshot.heads.check_head` checks the contract.

    Examples
    --------
    >>> from fiveshot.heads import FewShotHead, make_head
    >>> head = make_head("ncm").fit([[1.0, 0.0], [0.0, 1.0]], ["owl", "wren"])
    >>> isinstance(head, FewShotHead)
    True
    >>> head.partial_fit([[1.0, 1.0]], ["kite"]).predict([[0.8, 0.9], [0.1, 0.9]]).tolist()
    ['kite', 'wren']
    """

    ranges: ClassVar[Mapping[str, Allowed]] = {"temperature": Range(0, positive=True, hint="the default is 1/16")}
    tried: ClassVar[Mapping[str, Tried]] = {}  # by short name, what episodes may choose
    needs_samples: ClassVar[bool] = False  # whether it does not follow from the statistics of its classes

    temperature: float
    device: Any  # None: where the data are; "cuda" and the like: on that device, by torch
    n_features_in_: int
    feature_names_in_: Any
    memory_: Memory
    model_: Any
    classes_: Labels

    @classmethod
    def recipes(cls) -> tuple[Recipe, ...]:
        """Return the names under which heads of this class are known."""
        return ()

    @abstractmethod
    def derive(self, memory: Memory, X: Array, y: Labels, previous: Any) -> Any:
        """Return the model of ``memory``, which has just learned X and y (both empty after forgetting).

        ``previous`` is the model before, or None. It must not be changed: copies of the head share it.
        """

    @abstractmethod
    def score_classes(self, X: Array, labels: list[Label]) -> Array:
        """Return scores, (n_samples, len(labels)); the highest wins."""

    def score_all(self, X: Array) -> Array:
        """Return the scores of all classes, in order; a head that needs no names for it makes no list of them."""
        return self.score_classes(X, python_labels(self.classes_))

    def scores_of(self, X: Array) -> Callable[[list[Label]], Array]:
        """Return the scores of samples as a function of classes, to be asked again as the head learns.

        What follows from the samples alone may be computed once; it holds as long as the base session does.
        """
        xp = namespace(X)
        return lambda labels: xp.concat([self.score_classes(part, labels) for part in chunks(X, ROWS_AT_ONCE)])

    def class_tokens(self) -> Mapping[Label, object]:
        """Return for each class the object that its scores depend on; the same object means the same scores.

        The whole model unless a head says otherwise, so that every session changes all scores.
        """
        return dict.fromkeys(python_labels(self.classes_), self.model_)

    def memory_needed(self, work: Workload) -> int:
        """Return the bytes that the model of a run takes at its peak, beside the samples."""
        return 0

    def operations(self, work: Workload) -> float:
        """Return about how many multiplications and additions a whole run needs."""
        # Statistics of every class by QR, and the distance of every test image to every class.
        d = work.n_features
        return 6.0 * work.rows * d * d + 2.0 * work.test_rows * d * work.classes

    def candidates(self) -> Sequence[Candidate]:
        """Return the changes of parameters that :func:`~fiveshot.heads.tune_on_base` tries unless told others."""
        raise InputError(
            f"no candidates are known for {type(self).__name__}", hint="name some with candidates=[{...}]"
        )

    def episode_scores(
        self, episode: Episode, X: Array, y: Labels, *, settings: Mapping[str, Any] | None, shared: dict[str, Any]
    ) -> Array:
        """Return the scores of a candidate on an episode, whose rows count in X and y.

        What candidates have in common is made once and kept in ``shared``.
        """
        if self.needs_samples:
            fitted = clone(self).fit(X[positions(episode.base_rows, X)], y[episode.base_rows])
            fitted.partial_fit(X[positions(episode.new_rows, X)], y[episode.new_rows])
            return fitted.class_scores(X[positions(episode.asked_rows, X)])
        return self.adopt(episode.memory, settings).class_scores(X[positions(episode.asked_rows, X)])

    def fit(self, X: Any, y: Any) -> Self:
        """Learn the base session, forgetting everything before.

        Parameters
        ----------
        X : array of shape (n_samples, n_features)
            Features: NumPy, lists, data frames or tensors of torch.
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
            return self.learn_session(as_features(self, X, reset=True), y, None, Memory(), None)

    def partial_fit(self, X: Any, y: Any, classes: Any = None) -> Self:
        """Learn a session: the first is the base session, later ones bring new classes or more samples.

        Parameters
        ----------
        X : array of shape (n_samples, n_features)
            Features.
        y : array of shape (n_samples,)
            Labels.
        classes : array of shape (n_classes,), optional
            All classes that will ever come, as scikit-learn has it. A label that is not among them is an error;
            a class that has not come yet is not.

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
            fitted = hasattr(self, "memory_")
            features = as_features(self, X, reset=not fitted)
            memory, model = (self.memory_, self.model_) if fitted else (Memory(), None)
            return self.learn_session(features, y, classes, memory, model)

    def forget(self, labels: Label | Iterable[Label]) -> Self:
        """Remove one class, or several: afterwards the head equals one that never saw them.

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
            An unknown class, or one that this head cannot take out again.

        Examples
        --------
        >>> from fiveshot.heads import make_head
        >>> head = make_head("ncm").fit([[1.0, 0.0], [0.0, 1.0]], ["owl", "wren"])
        >>> head.forget("owl").predict([[1.0, 0.0]]).tolist()
        ['wren']
        """
        self.require_fitted()
        with self._unchanged_on_error():
            memory = self.memory_.forget(as_label_list(labels))
            return self.hold(memory, self.derive(memory, *nothing(memory), self.model_))

    def adopt(self, memory: Memory, settings: Mapping[str, Any] | None = None) -> Self:
        """Take up statistics that were learned elsewhere, as if their sessions had been learned here.

        Called again with a memory that shares summaries with the one before, only what changed is derived again.

        Parameters
        ----------
        memory : Memory
            Statistics of what :meth:`embed` returns.
        settings : mapping, optional
            Those of the head that saw the base session (its :meth:`settings`).

        Returns
        -------
        self

        Raises
        ------
        InputError
            A head that does not follow from statistics, or settings that do not fit it.

        Examples
        --------
        >>> from fiveshot.heads import make_head
        >>> head = make_head("ncm").fit([[1.0, 0.0], [0.0, 1.0]], ["owl", "wren"])
        >>> other = make_head("teen").adopt(head.memory_, head.settings())
        >>> other.predict([[0.9, 0.2]]).tolist()
        ['owl']
        """
        if self.needs_samples:
            raise InputError(
                f"{type(self).__name__} cannot be built from class statistics: it needs the samples; "
                "fit it on them, or choose a head that follows from statistics, such as 'unbiased-lda'"
            )
        with self._unchanged_on_error():
            self.check_parameters()
            previous = getattr(self, "model_", None)
            if settings is not None and dict(settings) != (self.settings() if previous is not None else {}):
                self.apply_settings(settings)
                previous = None
            self.n_features_in_ = self.input_width(memory)
            return self.hold(memory, self.derive(memory, *nothing(memory), previous))

    def sketch(self, memory: Memory) -> Self:
        """Return a head that knows the classes of ``memory``, which differs in few of them from this head's.

        What all classes share may stay as it is here, so that a look at a class costs little. For most heads
        it is simply a copy that has adopted the memory.

        Parameters
        ----------
        memory : Memory
            Statistics of the classes.

        Returns
        -------
        FewShotHead

        Examples
        --------
        >>> from fiveshot.heads import make_head
        >>> head = make_head("ncm").fit([[1.0, 0.0], [0.0, 1.0]], ["owl", "wren"])
        >>> without_owls = head.sketch(head.memory_.forget(["owl"]))
        >>> without_owls.classes_.tolist(), head.classes_.tolist()
        (['wren'], ['owl', 'wren'])
        """
        return copy(self).adopt(memory)

    def whiten(self, X: Array) -> Array | None:
        """Return samples in a space in which those of one class differ alike in all directions.

        Parameters
        ----------
        X : array of shape (n, d)
            Features of length one.

        Returns
        -------
        array of shape (n, d) or None
            None for a head that has learned no such space.

        Examples
        --------
        >>> from fiveshot.heads import make_head
        >>> make_head("ncm").fit([[1.0, 0.0], [0.0, 1.0]], ["owl", "wren"]).whiten([[1.0, 0.0]]) is None
        True
        """
        return None

    def settings(self) -> dict[str, Any]:
        """Return what was chosen on the base session and does not follow from the statistics, as JSON values.

        Examples
        --------
        >>> from fiveshot.heads import make_head
        >>> head = make_head("ncm").fit([[1.0, 0.0], [0.0, 1.0]], ["owl", "wren"])
        >>> head.settings()
        {}
        >>> sorted(make_head().fit([[1.0, 0.0], [0.0, 1.0]], ["owl", "wren"]).settings())
        ['center', 'choice', 'n_random', 'seed', 'shortened']
        """
        return {}

    def apply_settings(self, settings: Mapping[str, Any]) -> None:
        """Take up what :meth:`settings` of another head returned."""
        if settings:
            raise InputError(f"{type(self).__name__} has no settings, got {dict(settings)}", hint="leave them out")

    def embed(self, X: Array) -> Array:
        """Return the vectors that this head keeps statistics of, (n_samples, d); the features themselves for most.

        A ``Memory`` for :meth:`adopt` holds statistics of these.

        Examples
        --------
        >>> import numpy as np
        >>> from fiveshot.heads import make_head
        >>> make_head("ncm").embed(np.array([[3.0, 4.0]])).tolist()
        [[3.0, 4.0]]
        >>> make_head().embed(np.array([[3.0, 4.0]])).round(6).tolist()
        [[0.6, 0.8]]
        """
        return X

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
        features = self._features(X)
        scores = self._scores_of(features)
        probabilities = softmax(scores * self.softmax_factor())
        values = (scores, probabilities, self.familiarity_of(features, scores))
        return Answer(self.classes_, *(self._given_back(value, X) for value in values))

    def familiarity(self, X: Any) -> Any:
        """Return how much each sample is like the class it is most like, (n_samples,); low means unknown.

        Examples
        --------
        >>> from fiveshot.heads import make_head
        >>> head = make_head("ncm").fit([[1.0, 0.0], [0.0, 1.0]], ["owl", "wren"])
        >>> known, unknown = head.familiarity([[0.9, 0.1], [7.0, 7.0]])
        >>> bool(known > unknown)
        True
        """
        features = self._features(X)
        return self._given_back(self.familiarity_of(features, self._scores_of(features)), X)

    def familiarity_of(self, X: Array, scores: Array) -> Array:
        """Return the familiarity of samples, (n_samples,), given their scores, (n_samples, n_classes)."""
        return namespace(scores).max(scores, axis=1)

    def class_scores(self, X: Any) -> Any:
        """Return the score of each class, (n_samples, n_classes), in the order of ``classes_``; the highest wins.

        Examples
        --------
        >>> from fiveshot.heads import make_head
        >>> head = make_head("ncm").fit([[1.0, 0.0], [0.0, 1.0]], ["owl", "wren"])
        >>> head.class_scores([[2.0, 0.0]]).argmax(axis=1).tolist(), head.class_scores([[2.0, 0.0]]).shape
        ([0], (1, 2))
        """
        return self._given_back(self._scores_of(self._features(X)), X)

    def decision_function(self, X: Any) -> Any:
        """Return scores as scikit-learn defines them: with two classes, one number for the second.

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
        scores = self._scores_of(self._features(X))
        return self._given_back(self.classes_[as_numpy(namespace(scores).argmax(scores, axis=1))], X)

    def predict_proba(self, X: Any) -> Any:
        """Return softmax(score / temperature), consistent with ``predict``; calibrated where the head says so.

        Examples
        --------
        >>> from fiveshot.heads import make_head
        >>> head = make_head("ncm").fit([[1.0, 0.0], [0.0, 1.0]], ["owl", "wren"])
        >>> head.predict_proba([[0.5, 0.5], [1.0, 0.0]]).round(3).tolist()
        [[0.5, 0.5], [1.0, 0.0]]
        """
        return self._given_back(softmax(self._scores_of(self._features(X)) * self.softmax_factor()), X)

    def predict_log_proba(self, X: Any) -> Any:
        """Return the logarithm of :meth:`predict_proba`, which is finite also where a probability is almost 0.

        Examples
        --------
        >>> from fiveshot.heads import make_head
        >>> head = make_head("ncm").fit([[1.0, 0.0], [0.0, 1.0]], ["owl", "wren"])
        >>> head.predict_log_proba([[0.5, 0.5], [90.0, 0.0]]).round(3).tolist()
        [[-0.693, -0.693], [0.0, -2880.0]]
        """
        return self._given_back(log_softmax(self._scores_of(self._features(X)) * self.softmax_factor()), X)

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Return the share of samples whose predicted label is right.

        Examples
        --------
        >>> from fiveshot.heads import make_head
        >>> head = make_head("ncm").fit([[1.0, 0.0], [0.0, 1.0]], ["owl", "wren"])
        >>> head.score([[0.9, 0.1], [0.2, 0.7]], ["owl", "owl"])
        0.5
        """
        right = as_numpy(self.predict(X)) == as_labels(flat_labels(y))
        weights = None if sample_weight is None else as_numpy(sample_weight)
        return float(np.average(right, weights=weights))

    def check_parameters(self) -> None:
        """Refuse parameters that are not what the class says they may be.

        Raises
        ------
        InputError
            The first such parameter, with what it may be.

        Examples
        --------
        >>> from fiveshot.heads import make_head
        >>> make_head("ncm", bias=-1.0).check_parameters()
        Traceback (most recent call last):
        fiveshot.errors.InputError: bias must be finite and not negative, got -1.0; 1 removes ...
        """
        own = self.get_params(deep=False)
        for kind in reversed(type(self).__mro__):
            for name, allowed in vars(kind).get("ranges", {}).items():
                if name in own:
                    allowed.check(name, own[name])

    def begin(self, X: Array, y: Labels) -> None:
        """Prepare for the base session, whose samples are given."""

    def input_width(self, memory: Memory) -> int:
        """Return the number of features that samples must have, given statistics of what was embedded."""
        return memory.statistics.n_features

    def softmax_factor(self) -> float:
        """Return what scores are multiplied by to become the logits of probabilities."""
        FewShotHead.ranges["temperature"].check("temperature", self.temperature)
        return 1 / self.temperature

    def hold(self, memory: Memory, model: Any) -> Self:
        """Take up a memory and the model that was derived from it."""
        self.memory_, self.model_, self.classes_ = memory, model, memory.labels
        return self

    def extra_state(self) -> tuple[dict[str, Array], dict[str, Any]]:
        """Return what a file must hold beside the memory: arrays and JSON values."""
        return {}, {}

    def restore(self, memory: Memory, arrays: dict[str, Array], extra: dict[str, Any]) -> None:
        """Take up the state that was saved."""
        self.hold(memory, self.derive(memory, *nothing(memory), None))

    def require_fitted(self) -> None:
        """Raise scikit-learn's ``NotFittedError`` where nothing was learned."""
        if not hasattr(self, "memory_"):
            raise not_fitted(self)

    def __sklearn_is_fitted__(self) -> bool:
        """Tell scikit-learn whether the head has learned."""
        return hasattr(self, "memory_")

    def learn_session(self, X: Array, y: Any, classes: Any, memory: Memory, model: Any) -> Self:
        """Learn checked features, after ``memory`` and the model derived from it."""
        self.check_parameters()
        known = memory.labels
        labels = as_session_labels(self, y, n_samples=len(X), known=known, classes=classes)
        X = placed(X, memory.statistics.means) if len(known) else on_device(X, self.device)
        if not len(known):
            self.begin(X, labels)
        memory = memory.learn(self.summarized(X, labels, first=not len(known)))
        return self.hold(memory, self.derive(memory, X, labels, model))

    def summarized(self, X: Array, y: Labels, *, first: bool) -> ClassStatistics:
        """Return the statistics of a session, the first of all or a later one."""
        return class_statistics(self.embed(X), y)

    def _features(self, X: Any) -> Array:
        self.require_fitted()
        return placed(as_features(self, X, reset=False), self.memory_.statistics.like)

    def _scores_of(self, features: Array) -> Array:
        found = [self.score_all(part) for part in chunks(features, ROWS_AT_ONCE)]
        return found[0] if len(found) == 1 else namespace(*found).concat(found)

    @staticmethod
    def _given_back(values: Array, X: Any) -> Any:
        """Return values as NumPy has them, or in the library of X where scikit-learn was told to keep to it."""
        if dispatches() and is_array_api_obj(X):
            return values if is_numpy_array(values) and values.dtype.kind == "U" else same_library(values, X)
        return as_numpy(values)

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


def refuse_forgetting(before: ClassStatistics, now: ClassStatistics, reason: str) -> None:
    """Refuse to go on without a class that cannot be taken out again."""
    gone = [label for label in python_labels(before.labels) if label not in now]
    if gone:
        raise InputError(f"cannot forget {gone[0]!r}: {reason}", hint="fit a new head without it")


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
    return namespace(X).asarray(as_numpy(values), device=X.device)


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
