"""The contract of all scorers: learn sessions, and derive all answers from one score function."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from copy import copy
from dataclasses import dataclass
from typing import Any, ClassVar, Self

from numpy.typing import NDArray

from fiveshot.core.arrays import Array, as_numpy, chunks, log_softmax, namespace, placed, softmax
from fiveshot.core.labels import Label, Labels, as_label_list, as_labels, python_labels, refuse_other_kind
from fiveshot.core.memory import Memory
from fiveshot.core.ranges import Allowed, Range
from fiveshot.core.scorers.inputs import as_features, on_device
from fiveshot.core.scorers.parameters import check_parameters
from fiveshot.core.statistics import ClassStatistics, class_statistics
from fiveshot.errors import InputError

ROWS_AT_ONCE = 8192  # samples scored at a time; limits the memory
# Share of the penalty of classes with few samples that is removed.
BIAS = Range(0, hint="1 removes the expected bias, 0 none")


@dataclass(frozen=True, eq=False)
class Answer:
    """Scores, probabilities and familiarity of samples, from one pass.

    Attributes
    ----------
    classes : ndarray
        The classes in the order of the columns, (n_classes,).
    scores : array
        The score of each class, (n_samples, n_classes); the highest wins.
    probabilities : array
        The probability of each class, (n_samples, n_classes).
    familiarity : array
        How well each sample fits its best class, (n_samples,); low means unknown.

    Examples
    --------
    >>> import numpy as np
    >>> from fiveshot.core.scorers import make_scorer
    >>> answer = make_scorer("ncm").learn(np.eye(2), ["owl", "wren"]).answer(np.array([[0.9, 0.1]]))
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
        return best_classes(self.classes, self.scores)


class Scorer:
    """Scores feature vectors against classes that it learns session by session.

    A scorer is a value: :meth:`learn`, :meth:`forget` and :meth:`adopt` return another one and do not change it.
    NumPy computes NumPy arrays, and torch computes tensors on their device; ``device="cuda"`` moves arrays there.

    A subclass is a dataclass of its parameters, including ``temperature`` and ``device``, and must have two
    methods: :meth:`derive` makes a model from the memory, and :meth:`score_classes` scores samples with it. All
    other methods have defaults. The most useful ones to override are:

    - :meth:`start`, if the base session fixes something (:attr:`basis`), and :meth:`embed`, if the statistics
      describe transformed features; then also :meth:`settings` and :meth:`read_settings`, so that a model can
      store the basis;
    - :meth:`familiarity_of` and :meth:`softmax_factor`, for another familiarity and other probabilities;
    - :meth:`class_tokens`, if new classes do not change the scores of old ones;
    - :meth:`state_to_save` and :meth:`restored`, if the model cannot be derived from the memory.

    ``ranges`` has the allowed parameters; ``needs_samples`` means that the model cannot be derived from
    statistics. :func:`~fiveshot.heads.check_head` checks the contract.

    Attributes
    ----------
    memory : Memory
        Statistics of all classes; empty before anything is learned.
    model : object
        The result of :meth:`derive`.
    basis : object
        What the base session fixed, or None.
    n_features : int
        The number of features that samples must have.

    Examples
    --------
    >>> import numpy as np
    >>> from fiveshot.core.scorers import make_scorer
    >>> two = make_scorer("ncm").learn(np.eye(2), ["owl", "wren"])
    >>> three = two.learn(np.ones((1, 2)), ["kite"])
    >>> three.classify(np.array([[0.8, 0.9], [0.1, 0.9]])).tolist(), two.classes.tolist()
    (['kite', 'wren'], ['owl', 'wren'])
    """

    ranges: ClassVar[Mapping[str, Allowed]] = {"temperature": Range(0, positive=True, hint="the default is 1/16")}
    # The value that a parameter of None stands for, and fields of dataclasses that this scorer does not read.
    stands_for: ClassVar[Mapping[str, Any]] = {}
    unused_fields: ClassVar[tuple[str, ...]] = ()
    needs_samples: ClassVar[bool] = False

    temperature: float
    device: Any  # None: the device of the data; "cuda" and others: torch on that device
    memory: Memory = Memory()
    model: Any = None
    basis: Any = None
    n_features: int = 0

    def derive(self, memory: Memory, X: Array, y: Labels, previous: Any) -> Any:
        """Return the model of ``memory``, which has just learned X and y (empty after forgetting).

        ``previous`` is the model before, or None. It must not be changed: scorers share it.
        """
        raise NotImplementedError

    def score_classes(self, X: Array, labels: list[Label]) -> Array:
        """Return scores, (n_samples, len(labels)); the highest wins."""
        raise NotImplementedError

    def start(self, X: Array, y: Labels) -> tuple[Any, ClassStatistics]:
        """Return what the base session fixes, and the statistics of that session."""
        return None, class_statistics(X, y)

    def embed(self, X: Array) -> Array:
        """Return the transformed features, (n_samples, d); most scorers do not change them.

        The statistics in a ``Memory`` describe these.

        Examples
        --------
        >>> import numpy as np
        >>> from fiveshot.core.scorers import make_scorer
        >>> make_scorer("ncm").embed(np.array([[3.0, 4.0]])).tolist()
        [[3.0, 4.0]]
        >>> make_scorer().embed(np.array([[3.0, 4.0]])).round(6).tolist()
        [[0.6, 0.8]]
        """
        return X

    def settings(self) -> dict[str, Any]:
        """Return :attr:`basis` as JSON values: choices that cannot be derived from the statistics.

        Examples
        --------
        >>> import numpy as np
        >>> from fiveshot.core.scorers import make_scorer
        >>> make_scorer("ncm").learn(np.eye(2), ["owl", "wren"]).settings()
        {}
        >>> sorted(make_scorer().learn(np.eye(2), ["owl", "wren"]).settings())
        ['center', 'choice', 'n_random', 'seed', 'shortened']
        """
        return {}

    def read_settings(self, settings: Mapping[str, Any]) -> Any:
        """Return the basis from the :meth:`settings` of another scorer."""
        if settings:
            raise InputError(f"{type(self).__name__} has no settings, got {dict(settings)}", hint="leave them out")
        return None

    def default_basis(self, width: int, like: Array) -> Any:
        """Return the basis of a scorer without a base session; ``like`` is any vector of this width."""
        return None

    def familiarity_of(self, X: Array, scores: Array) -> Array:
        """Return the familiarity of samples, (n_samples,), given their scores, (n_samples, n_classes)."""
        return namespace(scores).max(scores, axis=1)

    def softmax_factor(self) -> float:
        """Return the factor that turns scores into logits."""
        return 1 / self.temperature

    def class_tokens(self) -> Mapping[Label, object]:
        """Return the object that the scores of each class depend on; the same object means the same scores.

        By default it is the whole model, so every session changes all scores.
        """
        return dict.fromkeys(python_labels(self.classes), self.model)

    def state_to_save(self) -> tuple[dict[str, Array], dict[str, Any]]:
        """Return the arrays and JSON values that a file needs in addition to the memory."""
        return {}, {}

    def restored(self, memory: Memory, arrays: dict[str, Array], values: dict[str, Any]) -> Self:
        """Return the scorer with the saved state."""
        return self.holding(memory, self.derive(memory, *nothing(memory), None))

    def prepare(self, X: Array) -> Any:
        """Return values that depend only on the samples and the base, for :meth:`score_prepared`."""
        return X

    def score_prepared(self, prepared: Any, labels: list[Label]) -> Array:
        """Return the scores of prepared samples, (n_samples, len(labels))."""
        found = [self.score_classes(part, labels) for part in chunks(prepared, ROWS_AT_ONCE)]
        return namespace(prepared).concat(found)

    def score_all(self, X: Array) -> Array:
        """Return the scores of all classes, in order; some scorers compute this without a list of labels."""
        return self.score_classes(X, python_labels(self.classes))

    def score_checked(self, X: Array) -> Array:
        """Return the scores of all classes, computed in blocks of samples."""
        found = [self.score_all(part) for part in chunks(X, ROWS_AT_ONCE)]
        return found[0] if len(found) == 1 else namespace(*found).concat(found)

    def sketch(self, memory: Memory) -> Self:
        """Return a quick scorer of the classes in ``memory``, most of which this scorer knows.

        It may keep everything that all classes share, so that looking at one class is fast. For most scorers this
        is the same as :meth:`adopt`.

        Examples
        --------
        >>> import numpy as np
        >>> from fiveshot.core.scorers import make_scorer
        >>> both = make_scorer("ncm").learn(np.eye(2), ["owl", "wren"])
        >>> both.sketch(both.memory.forget(["owl"])).classes.tolist()
        ['wren']
        """
        return self.adopt(memory)

    def whiten(self, X: Array) -> Array | None:
        """Return samples in a space in which the samples of a class vary equally in all directions, (n, d).

        The features have length one. None for a scorer that has not learned such a space.
        """
        return None

    @property
    def classes(self) -> Labels:
        """All classes, sorted."""
        return self.memory.labels

    @property
    def learned(self) -> bool:
        """Whether any class was learned."""
        return len(self.classes) > 0

    def learn(self, X: Any, y: Any) -> Self:
        """Return the scorer after a session: the first is the base session.

        Parameters
        ----------
        X : array of shape (n_samples, n_features)
            Features, of NumPy or a tensor of torch.
        y : array of shape (n_samples,)
            Labels: strings, integers or booleans.

        Returns
        -------
        Scorer

        Raises
        ------
        InputError
            If data or parameters cannot be used.

        Examples
        --------
        >>> import numpy as np
        >>> from fiveshot.core.scorers import make_scorer
        >>> birds = make_scorer("ncm").learn(np.eye(2), ["owl", "wren"])
        >>> birds.learn(np.array([[5.0, 5.0], [6.0, 5.0]]), ["kite", "kite"]).classes.tolist()
        ['kite', 'owl', 'wren']
        """
        check_parameters(self)
        labels = as_labels(y)
        X = as_features(X, self.n_features if self.learned else None, type(self).__name__)
        if len(labels) != len(X):
            raise InputError(f"X has {len(X)} rows, but y has {len(labels)} labels", hint="give one label per row")
        refuse_other_kind(self.classes, labels)
        after = copy(self)
        if self.learned:
            X = placed(X, self.memory.statistics.like)
            session = class_statistics(self.embed(X), labels)
        else:
            X = on_device(X, self.device)
            after.n_features = int(X.shape[1])
            after.basis, session = self.start(X, labels)
        memory = self.memory.learn(session)
        return after.holding(memory, after.derive(memory, X, labels, self.model))

    def forget(self, labels: Label | Iterable[Label]) -> Self:
        """Return the scorer that has never seen these classes.

        Parameters
        ----------
        labels : str, int or a list of them
            The classes.

        Returns
        -------
        Scorer

        Raises
        ------
        InputError
            If a class is unknown, or this scorer cannot forget it.

        Examples
        --------
        >>> import numpy as np
        >>> from fiveshot.core.scorers import make_scorer
        >>> make_scorer("ncm").learn(np.eye(2), ["owl", "wren"]).forget("owl").classes.tolist()
        ['wren']
        """
        memory = self.memory.forget(as_label_list(labels))
        return self.holding(memory, self.derive(memory, *nothing(memory), self.model))

    def adopt(self, memory: Memory, settings: Mapping[str, Any] | None = None) -> Self:
        """Return the scorer for statistics from elsewhere, as if it had learned the same sessions.

        For summaries that this scorer already has, nothing is computed again.

        Parameters
        ----------
        memory : Memory
            Statistics of the results of :meth:`embed`.
        settings : mapping, optional
            The :meth:`settings` of the scorer that learned the base session.

        Returns
        -------
        Scorer

        Raises
        ------
        InputError
            If this scorer cannot be derived from statistics, or the settings do not fit.

        Examples
        --------
        >>> import numpy as np
        >>> from fiveshot.core.scorers import make_scorer
        >>> birds = make_scorer("ncm").learn(np.eye(2), ["owl", "wren"])
        >>> make_scorer("teen").adopt(birds.memory).classify(np.array([[0.9, 0.2]])).tolist()
        ['owl']
        """
        if self.needs_samples:
            raise InputError(
                f"{type(self).__name__} cannot be built from class statistics: it needs the samples; "
                "fit it on them, or choose a head that follows from statistics, such as 'unbiased-lda'"
            )
        check_parameters(self)
        after, previous, like = copy(self), self.model, memory.statistics.like
        if settings is not None and dict(settings) != (self.settings() if self.learned else {}):
            after.basis, previous = self.read_settings(settings), None
        if after.basis is None:
            after.basis = self.default_basis(len(like), like)
        after.n_features = after.input_width(memory)
        return after.holding(memory, after.derive(memory, *nothing(memory), previous))

    def input_width(self, memory: Memory) -> int:
        """Return the number of features of samples, given statistics of transformed features."""
        return memory.statistics.n_features

    def with_settings(self, settings: Mapping[str, Any]) -> Self:
        """Return an unlearned scorer with these settings."""
        made = copy(self)
        made.basis = self.read_settings(settings)
        return made

    def reconfigured(self, parameters: Mapping[str, Any]) -> Self:
        """Return the scorer in the same state with changed parameters."""
        made = copy(self)
        for name, value in parameters.items():
            setattr(made, name, value)
        return made

    def holding(self, memory: Memory, model: Any) -> Self:
        """Return the scorer with a memory and its model."""
        made = copy(self)
        made.memory, made.model = memory, model
        return made

    def scores(self, X: Any) -> Array:
        """Return the score of each class, (n_samples, n_classes), in the order of :attr:`classes`."""
        return self.score_checked(self._checked(X))

    def probabilities(self, X: Any) -> Array:
        """Return softmax(score / temperature), (n_samples, n_classes); calibrated if the scorer can."""
        return softmax(self.scores(X) * self.softmax_factor())

    def log_probabilities(self, X: Any) -> Array:
        """Return the logarithms of the probabilities, which are finite even for tiny probabilities."""
        return log_softmax(self.scores(X) * self.softmax_factor())

    def familiarity(self, X: Any) -> Array:
        """Return how well each sample fits its best class, (n_samples,); low means unknown."""
        X = self._checked(X)
        return self.familiarity_of(X, self.score_checked(X))

    def classify(self, X: Any) -> Labels:
        """Return the class of the highest score of each sample, (n_samples,)."""
        return best_classes(self.classes, self.scores(X))

    def answer(self, X: Any) -> Answer:
        """Return scores, probabilities and familiarity of samples from one pass."""
        X = self._checked(X)
        scores = self.score_checked(X)
        probabilities = softmax(scores * self.softmax_factor())
        return Answer(self.classes, scores, probabilities, self.familiarity_of(X, scores))

    def _checked(self, X: Any) -> Array:
        if not self.learned:
            raise InputError(f"{type(self).__name__} has learned no class yet", hint="call learn or adopt first")
        return placed(as_features(X, self.n_features, type(self).__name__), self.memory.statistics.like)


def best_classes(classes: Labels, scores: Array) -> Labels:
    """Return the class of the highest score of each row."""
    winners: Labels = classes[as_numpy(namespace(scores).argmax(scores, axis=1))]
    return winners


def nothing(memory: Memory) -> tuple[Array, Labels]:
    """Return a session without samples."""
    return memory.statistics.means[:0], memory.labels[:0]


def refuse_forgetting(before: ClassStatistics, now: ClassStatistics, reason: str) -> None:
    """Raise an error if a class is missing now that cannot be removed."""
    gone = [label for label in python_labels(before.labels) if label not in now]
    if gone:
        raise InputError(f"cannot forget {gone[0]!r}: {reason}", hint="fit a new head without it")


class ScoreTable:
    """The scores of the same samples after every session.

    In NCM and FeCAM the scores of a class do not depend on other classes, so old classes cost nothing when new
    ones arrive. In RanPAC every session changes all scores, but not the random features of the samples.

    Parameters
    ----------
    X : array of shape (n_samples, n_features)
        The samples, which are copied.

    Examples
    --------
    >>> import numpy as np
    >>> from fiveshot.core.scorers import ScoreTable, make_scorer
    >>> scorer = make_scorer("ncm").learn(np.eye(2), ["a", "b"])
    >>> table = ScoreTable(np.array([[0.9, 0.2], [0.7, 0.7]]))
    >>> table.classify(scorer).tolist(), table.computed
    (['a', 'a'], 2)
    >>> table.classify(scorer.learn(np.array([[0.5, 0.5]]), ["c"])).tolist(), table.computed
    (['a', 'c'], 3)
    """

    def __init__(self, X: Any) -> None:
        self.computed = 0  # class columns computed so far
        # A copy: the caller may change X between sessions.
        X = as_features(X, None, "ScoreTable")
        self._X = namespace(X).asarray(X, copy=True)
        self._base: object = None
        self._prepared: Any = None
        self._columns: dict[Label, tuple[object, Array]] = {}

    def scores(self, scorer: Scorer) -> Array:
        """Return the scores of all samples and all classes of a scorer, (n_samples, n_classes)."""
        tokens = scorer.class_tokens()
        # Distances are computed relative to the mean of all classes, so columns of different sessions differ in
        # rounding. New classes move this mean little. Another base may move it far, so all are computed again.
        if self._base is not scorer.memory.base:
            self._base, self._columns = scorer.memory.base, {}
            like = scorer.memory.statistics.like
            self._prepared = scorer.prepare(placed(as_features(self._X, scorer.n_features, "the scorer"), like))
        kept = {label: self._columns.get(label) for label in tokens}
        stale = [label for label, column in kept.items() if column is None or column[0] is not tokens[label]]
        if stale:
            fresh = scorer.score_prepared(self._prepared, stale).T  # one row per class
            fresh = namespace(fresh).asarray(fresh, copy=True)
            self.computed += len(stale)
            self._columns.update({label: (tokens[label], fresh[i]) for i, label in enumerate(stale)})
        self._columns = {label: self._columns[label] for label in python_labels(scorer.classes)}
        columns = [column for _, column in self._columns.values()]
        return namespace(*columns).stack(columns, axis=1)

    def probabilities(self, scorer: Scorer) -> NDArray[Any]:
        """Return the probabilities of the scorer, (n_samples, n_classes)."""
        return as_numpy(softmax(self.scores(scorer) * scorer.softmax_factor()))

    def classify(self, scorer: Scorer) -> Labels:
        """Return the class of every sample."""
        return best_classes(scorer.classes, self.scores(scorer))
