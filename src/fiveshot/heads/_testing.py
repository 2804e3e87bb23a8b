"""Tests that every head must pass, over NumPy and torch; authors of new heads run them with ``check_head``."""

from __future__ import annotations

import copy
import pickle
import tempfile
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone

from fiveshot.core import NO_CLASSES, Memory
from fiveshot.core.arrays import as_numpy
from fiveshot.core.scorers import Scorer, ScoreTable, load_scorer, require_scorer, save_scorer
from fiveshot.errors import InputError, unknown_name
from fiveshot.extras import import_extra
from fiveshot.heads._files import described, restored_head
from fiveshot.heads._making import head_of
from fiveshot.heads.head import FewShotHead, ScorerHead

# Tolerance relative to the largest score: another order of summation may change this much.
ROUNDING = {np.dtype(np.float64): 1e-6, np.dtype(np.float32): 1e-4}
Rows = dict[int, NDArray[Any]]  # label → (n, d)
Make = Callable[[], FewShotHead]

N_FEATURES = 16
BASE = {10: 7, 30: 20, 50: 6, 20: 9, 40: 5}  # class → samples; one class has more samples than features
FIRST = {25: 3, 5: 1}  # new classes sort before, between and after the base classes; one has one sample
SECOND = {60: 4}
_library: ContextVar[str] = ContextVar("library", default="numpy")


def check_head(
    make: Callable[[], FewShotHead | Scorer],
    *,
    without: Collection[str] = (),
    library: Literal["numpy", "torch"] = "numpy",
) -> tuple[str, ...]:
    """Check that a head keeps the contract of all heads.

    Parameters
    ----------
    make : callable
        Returns the unfitted head, or the unlearned scorer: its class, or a function.
    without : collection of str
        Promises that the head does not make. A head that draws samples for a class by its label cannot promise
        ``"label values"``; a head that chooses a parameter on some of the samples cannot promise
        ``"sample order"``.
    library : {"numpy", "torch"}
        Library of the features.

    Returns
    -------
    tuple of str
        The promises that the head keeps.

    Raises
    ------
    AssertionError
        Names the first broken promise, and how it was broken.

    Examples
    --------
    >>> from fiveshot.heads import NCM
    >>> check_head(NCM)[:3]
    ('parameters', 'scores', 'inputs')
    """
    for name in without:
        if name not in PROMISES:
            raise unknown_name("promise", name, PROMISES)
    kept = tuple(name for name in PROMISES if name not in without)
    for name in kept:
        try:
            with features_of(library):
                PROMISES[name](lambda: _as_head(make()))
        except Exception as error:
            error.add_note(f"This was the promise {name!r}: {PROMISES[name].__doc__}")
            raise
    return kept


def _as_head(made: FewShotHead | Scorer) -> FewShotHead:
    return made if isinstance(made, FewShotHead) else head_of(require_scorer(made))


def parameters_are_stored(make: Make) -> None:
    """The constructor stores its parameters as given, and they can be written to a file."""
    head = make()
    require_scorer(head.unlearned_scorer())
    try:
        clone(head)
    except RuntimeError as error:
        require(False, head, f"changes its parameters; store them in __init__ as given ({error})")


def scores_are_numbers(make: Make) -> None:
    """Scores have a column for each class and are finite; the scores of a sample depend only on that sample."""
    X, head = queries(), learned(make, draw(BASE), draw(FIRST))
    scores = head.class_scores(X)
    wanted = (len(X), len(head.classes_))
    require(scores.shape == wanted, head, f"returns scores {scores.shape}, not (samples, classes) {wanted}")
    require_finite(head)
    require_close(head, head.class_scores(X[:1]), scores[:1], "scores of a sample depend on other samples")


def inputs_stay(make: Make) -> None:
    """Samples and labels are not changed."""
    sessions = [joined(draw(part, dtype=np.float32)) for part in (BASE, FIRST, SECOND)]
    X = joined(draw(dict.fromkeys(BASE, 3), seed=99, dtype=np.float32))[0]
    arrays = [array for pair in (*sessions, (X,)) for array in pair]
    before = [array.copy() for array in arrays]
    head = make()
    for features, labels in sessions:
        head.partial_fit(made(features), labels)  # tensors share the memory
    head.predict_proba(made(X))
    same = all(np.array_equal(old, new) for old, new in zip(before, arrays, strict=True))
    require(same, head, "changes the samples it is given; work on a copy")


def class_order_is_irrelevant(make: Make) -> None:
    """Classes may come in any order within a session."""
    base, new = draw(BASE), draw(FIRST | SECOND)
    backwards = learned(make, dict(reversed(base.items())), dict(reversed(new.items())))
    require_same(backwards, learned(make, base, new), "the order of classes in a session changes the scores")


def sample_order_is_irrelevant(make: Make) -> None:
    """The samples of a class may come in any order."""
    base, new = draw(BASE), draw(FIRST | SECOND)
    mixed = make().fit(*shuffled(base)).partial_fit(*shuffled(new))
    require_same(mixed, learned(make, base, new), "the order of a class's samples changes the scores")


def label_values_are_irrelevant(make: Make) -> None:
    """Classes may have any names, which only decide the order of the columns."""
    base, new, X = draw(BASE), draw(FIRST | SECOND), queries()
    head, named = learned(make, base, new), make()
    names = {label: f"class {99 - label}" for label in base | new}  # sorted the other way round
    for part in (base, new):
        features, labels = flat(part)
        named.partial_fit(features, [names[label] for label in labels.tolist()])
    columns = [named.classes_.tolist().index(names[label]) for label in head.classes_.tolist()]
    renamed = named.class_scores(X)[:, columns]
    require_close(head, renamed, head.class_scores(X), "other names for the classes change the scores")


def few_samples_suffice(make: Make) -> None:
    """A class with one sample works, new or base; so do a base session of such classes, and a single class."""
    for sessions in ((BASE, {60: 1}), (BASE | {10: 1}, FIRST), (dict.fromkeys(BASE, 1), FIRST)):
        require_finite(learned(make, *map(draw, sessions)))
    alone = learned(make, draw({10: 5}))
    require(
        bool((alone.predict_proba(queries()) == 1).all()), alone, "does not give the only class a probability of 1"
    )


def sessions_equal_one(make: Make) -> None:
    """New classes may come in one session, or in several in any order."""
    base, first, second = draw(BASE), draw(FIRST), draw(SECOND)
    at_once = learned(make, base, first | second)
    one_by_one = [{label: rows} for label, rows in (first | second).items()]
    for order in ((first, second), (second, first), one_by_one):
        require_same(
            learned(make, base, *order), at_once, "new classes in two sessions get other scores than in one"
        )


def more_samples_equal_all_at_once(make: Make) -> None:
    """More samples of a new class may come in a later session."""
    base, new = draw(BASE), draw({25: 5, 60: 20})
    in_parts = learned(make, base, *halves(new))
    require_same(in_parts, learned(make, base, new), "samples in two sessions give other scores than in one")


def forgotten_was_never_there(make: Make) -> None:
    """A new class that is forgotten leaves nothing behind, and can be learned again."""
    base, new = draw(BASE), draw(FIRST | SECOND)
    for label in new:
        head = require_forgotten(make, (base, new), (base, without(new, label)), label)
        if head is not None:
            head.partial_fit(*flat({label: new[label]}))
            require_same(
                head, learned(make, base, new), "a forgotten class that is learned again gets other scores"
            )


def forgotten_base_was_never_there(make: Make) -> None:
    """Forgotten base classes leave nothing behind either, also several at once; relearned ones are new classes."""
    base, new = draw(BASE), draw(FIRST)
    for label in (10, 30):
        head = require_forgotten(make, (base, new), (without(base, label), new), label)
        if head is not None:
            again = {label: base[label][:3]}
            head.partial_fit(*flat(again))
            sentence = "a forgotten base class is not learned as a new one"
            require_same(head, learned(make, without(base, label), new, again), sentence)
    require_forgotten(make, (base, new), (without(base, 10, 50), without(new, 25)), 10, 25, 50)


def old_classes_stay(make: Make) -> None:
    """New classes do not change the statistics of old classes, and forgetting no class changes nothing."""
    head = learned(make, draw(BASE))
    before = {label: head.statistics_[label] for label in BASE}
    copies = {label: (as_numpy(s.mean).copy(), as_numpy(s.factor).copy()) for label, s in before.items()}
    head.partial_fit(*flat(draw(FIRST))).partial_fit(*flat(draw(SECOND)))
    for label, values in copies.items():
        same = head.statistics_[label] is before[label]
        kept = zip(values, (before[label].mean, before[label].factor), strict=True)
        same = same and all(np.array_equal(old, as_numpy(now)) for old, now in kept)
        require(same, head, f"new classes change the statistics of {label}")
    scores = head.class_scores(queries())
    require_close(head, head.forget([]).class_scores(queries()), scores, "forgetting no class changes scores")


def answers_agree(make: Make) -> None:
    """Labels, probabilities and decisions follow from one score, also with two classes."""
    X = queries()
    for head in (learned(make, draw(BASE), draw(FIRST)), learned(make, draw({10: 5, 20: 5}))):
        answer = head.answer(X)
        scores, decision = head.class_scores(X), head.decision_function(X)
        shown = scores[:, 1] - scores[:, 0] if len(head.classes_) == 2 else scores
        powers = np.exp((scores - scores.max(axis=1, keepdims=True)) * head.scorer_.softmax_factor())
        shares = powers / powers.sum(axis=1, keepdims=True)
        require_close(head, decision, shown, "decision_function is not its scores")
        require_close(head, answer.scores, scores, "answer() has other scores")
        require_close(head, answer.probabilities, shares, "probabilities do not follow from scores")
        require_close(head, head.predict_proba(X), shares, "predict_proba does not follow from scores")
        require_close(head, head.familiarity(X), answer.familiarity, "familiarity differs from answer()")
        winners = head.classes_[scores.argmax(axis=1)].tolist()
        same = head.predict(X).tolist() == winners == answer.labels.tolist()
        require(same, head, "predict does not return the class of the highest score")


def starting_over_is_starting(make: Make) -> None:
    """``fit`` forgets everything learned before; a clone is unfitted and learns the same."""
    base, X = draw(BASE), queries()
    expected = learned(make, base)
    again = learned(make, draw({7: 9, 8: 9}), draw(FIRST)).fit(*flat(base))
    require_same(again, expected, "fit does not forget what was learned before")
    twin = clone(expected)
    require(not hasattr(twin, "classes_"), expected, "a clone is not unfitted")
    require_close(
        twin, twin.fit(*flat(base)).class_scores(X), expected.class_scores(X), "a clone learns something else"
    )


def files_keep_everything(make: Make) -> None:
    """A saved and loaded head gives exactly the same scores."""
    for dtype in (np.float32, np.float64):
        X, head = queries(dtype=dtype), make()
        for session in (BASE, FIRST, {30: 2, 25: 2}):
            head.partial_fit(*flat(draw(session, seed=len(session), dtype=dtype)))
            back = _saved_and_loaded(head)
            sentence = "gives different scores after loading; save everything that derive cannot compute again"
            require_close(head, back.class_scores(X), head.class_scores(X), sentence)
            same = np.array_equal(back.class_scores(X), head.class_scores(X))
            require(same or not is_exact(), head, sentence)


def loaded_heads_go_on(make: Make) -> None:
    """A loaded head continues as if it had never been saved, and can be fitted again."""
    head = learned(make, draw(BASE), draw(FIRST))
    back = _saved_and_loaded(head)
    for session in (SECOND, {25: 2}, {30: 3, 70: 2}):
        head.partial_fit(*flat(draw(session, seed=8)))
        back.partial_fit(*flat(draw(session, seed=8)))
        require_same(back, head, "learns something else after loading")
    other = draw({7: 9, 8: 9})
    require_same(back.fit(*flat(other)), learned(make, other), "cannot be fitted again after loading")


def copies_are_apart(make: Make) -> None:
    """What a copy learns does not change the original."""
    ways: tuple[Callable[[FewShotHead], FewShotHead], ...] = (copy.copy, copy.deepcopy, _pickled)
    for copied in ways:
        head = learned(make, draw(BASE), draw(FIRST))
        before = head.class_scores(queries())
        twin = copied(head).partial_fit(*flat(draw(SECOND)))
        same = np.array_equal(head.class_scores(queries()), before)
        require(same, head, "changes when a copy of it learns; derive must not change the previous model")
        require_same(twin, learned(make, draw(BASE), draw(FIRST), draw(SECOND)), "a copy learns something else")


def _pickled(head: FewShotHead) -> FewShotHead:
    back: FewShotHead = pickle.loads(pickle.dumps(head))
    return back


def _saved_and_loaded(head: FewShotHead) -> FewShotHead:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "head"
        save_scorer(head.scorer_, path, beside=described(head), any_class=True)
        return restored_head(*load_scorer(path, kind=type(head.scorer_)))


def tokens_are_honest(make: Make) -> None:
    """A class whose token is the same object has the same scores, so a benchmark does not score it again."""
    head = learned(make, draw(BASE))
    table = ScoreTable(queries())
    for session in (FIRST, SECOND, {30: 2, 25: 2}):
        table.scores(head.scorer_)
        head.partial_fit(*flat(draw(session, seed=5)))
        found, expected = as_numpy(table.scores(head.scorer_)), head.class_scores(queries())
        require_close(head, found, expected, "class_tokens keeps the object of a class whose scores changed")


def statistics_suffice(make: Make) -> None:
    """The head can be rebuilt from the statistics of its classes, which a model stores, or says that it cannot."""
    head = learned(make, draw(BASE, dtype=np.float32), draw(FIRST, dtype=np.float32))  # what a model keeps
    settings = head.settings() or None
    try:
        adopted = make().adopt(head.memory_, settings)
    except InputError:
        return
    require_same(
        adopted, head, "gives different scores from the statistics of its classes than from their samples"
    )
    require_finite(make().adopt(Memory(NO_CLASSES, head.memory_.statistics), settings))  # a model without a base


PROMISES: dict[str, Callable[[Make], None]] = {
    "parameters": parameters_are_stored,
    "scores": scores_are_numbers,
    "inputs": inputs_stay,
    "class order": class_order_is_irrelevant,
    "sample order": sample_order_is_irrelevant,
    "label values": label_values_are_irrelevant,
    "few samples": few_samples_suffice,
    "sessions": sessions_equal_one,
    "more samples": more_samples_equal_all_at_once,
    "answers": answers_agree,
    "old classes": old_classes_stay,
    "starting over": starting_over_is_starting,
    "forgetting": forgotten_was_never_there,
    "forgetting base": forgotten_base_was_never_there,
    "files": files_keep_everything,
    "loaded heads": loaded_heads_go_on,
    "copies": copies_are_apart,
    "tokens": tokens_are_honest,
    "statistics": statistics_suffice,
}


def learned(make: Make, *sessions: Rows) -> FewShotHead:
    """Return a head that has learned the sessions one after the other."""
    head = make()
    for session in sessions:
        head.partial_fit(*flat(session))
    return head


def require(kept: bool, head: FewShotHead, sentence: str) -> None:
    """Raise an AssertionError, even if Python runs without assertions."""
    if not kept:
        kind = type(head.unlearned_scorer() if isinstance(head, ScorerHead) else head)
        raise AssertionError(f"{kind.__name__}: {sentence}")


def require_finite(head: FewShotHead) -> None:
    """Refuse scores that are not finite."""
    bad = head.classes_[~np.isfinite(head.class_scores(queries())).all(axis=0)].tolist()
    seen = {label: head.statistics_[label].count for label in bad}
    require(
        not bad,
        head,
        f"scores are not finite for classes with few samples ({seen}); does the code divide by n − 1?",
    )


def require_close(head: FewShotHead, found: NDArray[Any], expected: NDArray[Any], sentence: str) -> None:
    """Refuse scores that differ by more than rounding."""
    require(found.shape == expected.shape, head, f"{sentence}: shape {found.shape} instead of {expected.shape}")
    apart = np.abs(found - expected).max()
    allowed = ROUNDING[expected.dtype] * max(1.0, np.abs(expected).max())
    require(bool(apart <= allowed), head, f"{sentence}, by up to {apart:.2g}; rounding explains {allowed:.1g}")


def require_same(head: FewShotHead, other: FewShotHead, sentence: str) -> None:
    """Refuse two heads that score differently."""
    require_close(head, head.class_scores(queries()), other.class_scores(queries()), sentence)


def require_forgotten(
    make: Make, seen: tuple[Rows, ...], never_seen: tuple[Rows, ...], *labels: int
) -> FewShotHead | None:
    """Require that a head without some classes equals one that never saw them; None if it declines to forget."""
    head = learned(make, *seen)
    before = head.class_scores(queries())
    try:
        head.forget(labels)
    except InputError:
        require(np.array_equal(head.class_scores(queries()), before), head, "changes when it declines to forget")
        return None
    never = learned(make, *never_seen)
    require_same(head, never, "a forgotten class leaves something behind")
    require(
        head.base_classes_.tolist() == never.base_classes_.tolist(), head, "keeps the name of a forgotten class"
    )
    return head


def draw(counts: dict[int, int], *, seed: int = 0, n_features: int = N_FEATURES, dtype: Any = np.float64) -> Rows:
    """Draw correlated samples; a class's distribution depends only on its label, its samples also on the seed.

    >>> {label: rows.shape for label, rows in draw(FIRST).items()}
    {25: (3, 16), 5: (1, 16)}
    """
    return {label: _drawn(label, count, seed, n_features).astype(dtype) for label, count in counts.items()}


@cache
def _drawn(label: int, count: int, seed: int, n_features: int) -> Any:
    own = np.random.default_rng([label, 1])
    mean, mixing = 10 + 6 * own.normal(size=n_features), own.normal(size=(n_features, n_features))
    noise = np.random.default_rng([label, 2, seed]).normal(size=(count, n_features))
    return mean + noise @ mixing * 2


@contextmanager
def features_of(name: str) -> Iterator[None]:
    """Make features with this library inside the block."""
    before = _library.set(name)
    try:
        yield
    finally:
        _library.reset(before)


def made(array: NDArray[Any]) -> Any:
    """Return an array in the tested library; it shares the memory."""
    return array if _library.get() == "numpy" else import_extra(_library.get(), extra="torch").from_numpy(array)


def is_exact() -> bool:
    """Tell whether a file must restore exactly the same bits: for NumPy arrays."""
    return _library.get() == "numpy"


def joined(rows: Rows) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return features and labels as NumPy arrays, class by class."""
    return np.concatenate(list(rows.values())), np.repeat(list(rows), [len(part) for part in rows.values()])


def flat(rows: Rows) -> tuple[Any, NDArray[Any]]:
    """Return features and labels, class by class."""
    X, y = joined(rows)
    return made(X), y


def shuffled(rows: Rows, seed: int = 0) -> tuple[Any, NDArray[Any]]:
    """Return features and labels in a random order."""
    X, y = joined(rows)
    order = np.random.default_rng(seed).permutation(len(y))
    return made(X[order]), y[order]


def halves(rows: Rows) -> tuple[Rows, Rows]:
    """Return the first half of every class's samples, which may be one larger, and the second half."""
    middle = {label: (len(part) + 1) // 2 for label, part in rows.items()}
    return {k: v[: middle[k]] for k, v in rows.items()}, {k: v[middle[k] :] for k, v in rows.items()}


def without(rows: Rows, *labels: int) -> Rows:
    """Return the samples of all other classes."""
    return {label: part for label, part in rows.items() if label not in labels}


def queries(n: int = 23, dtype: Any = np.float64) -> Any:
    """Return samples to score, of all classes."""
    rows = draw(dict.fromkeys((*BASE, *FIRST, *SECOND), n // 8 + 1), seed=99, dtype=dtype)
    return made(joined(rows)[0][:n])
