"""Wrong input: an error that names the value and the way out, and a head that is exactly as it was."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
from cases import BASE, CASES, FIRST, Case, draw, flat, learned, queries
from sklearn.exceptions import NotFittedError

from fiveshot.errors import FiveshotError, InputError
from fiveshot.heads import NCM, FewShotHead


@contextmanager
def refused(head: FewShotHead, message: str, error: type[Exception] = InputError) -> Iterator[None]:
    """Expect an error and an unchanged head: the same objects, the same bits."""
    before, scores = dict(head.__dict__), head.class_scores(queries())
    with pytest.raises(error, match=message) as caught:
        yield
    assert isinstance(caught.value, FiveshotError)
    assert head.__dict__.keys() == before.keys()
    assert all(head.__dict__[name] is value for name, value in before.items())
    np.testing.assert_array_equal(head.class_scores(queries()), scores)


def spoiled(value: float, row: int = 2) -> np.ndarray:
    X = flat(draw({70: 4}))[0]
    X[row, 3] = value
    return X


def refuses_what_is_not_finite(head: FewShotHead, X: Any) -> None:
    message = r"row is 2; leave it out or extract|in row 2; leave that row out"
    for attempt in (head.fit, head.partial_fit):
        with refused(head, message):
            attempt(X, [70] * 4)
    for question in (head.predict, head.class_scores, head.decision_function, head.predict_proba):
        with refused(head, message):
            question(X)


def test_numbers_that_are_not_finite(kind: Case) -> None:
    head = learned(kind, draw(BASE), draw(FIRST))
    for value in (math.nan, math.inf, -math.inf):
        refuses_what_is_not_finite(head, spoiled(value))


def test_tensors_that_are_not_finite(kind: Case) -> None:
    torch = pytest.importorskip("torch", reason="the extra 'torch' is not installed")
    head = learned(kind, draw(BASE), draw(FIRST))
    refuses_what_is_not_finite(head, torch.from_numpy(spoiled(math.nan)))


def test_a_session_with_another_number_of_features(kind: Case) -> None:
    head = learned(kind, draw(BASE))
    for X in (np.ones((2, 15)), np.ones((2, 17))):
        expected = rf"X has {X.shape[1]} features, but {type(head).__name__} is expecting 16 features"
        with refused(head, expected):
            head.partial_fit(X, [1, 1])
        with refused(head, expected):
            head.predict(X)


def test_nothing_at_all(kind: Case) -> None:
    head = learned(kind, draw(BASE))
    message = r"expected features of shape|Found array with 0 (sample|feature)|X has 0 features"
    for X in (np.empty((0, 16)), np.empty((3, 0))):
        for attempt in (head.fit, head.partial_fit):
            with refused(head, message):
                attempt(X, [1] * len(X))
        with refused(head, message):
            head.predict(X)


@pytest.mark.parametrize("shape", [(16,), (2, 2, 16)])
def test_features_that_are_no_matrix(shape: tuple[int, ...]) -> None:
    head = learned(CASES[0], draw(BASE))
    with refused(head, r"[Ee]xpected (2D array|features of shape)|Found array with dim 3"):
        head.predict(np.ones(shape))


@pytest.mark.parametrize("shape", [(17,), (0, 16), (3, 0), (2, 17), (2, 2, 16)])
def test_tensors_of_another_shape(shape: tuple[int, ...]) -> None:
    torch = pytest.importorskip("torch", reason="the extra 'torch' is not installed")
    head = learned(CASES[0], draw(BASE))
    with refused(head, r"expected features of shape|X has (0|17) features|Found array with (0|dim 3)"):
        head.predict(torch.ones(shape))


def test_more_or_fewer_labels_than_rows(kind: Case) -> None:
    head = learned(kind, draw(BASE))
    for labels in ([70, 70], [70] * 5, []):
        with refused(head, f"X has 4 rows, but y has {len(labels)} labels; give one label per row"):
            head.partial_fit(flat(draw({70: 4}))[0], labels)
    with refused(head, f"{type(head).__name__} requires y to be passed, but the target y is None"):
        head.partial_fit(flat(draw({70: 4}))[0], None)


def test_announced_classes_need_not_have_come(kind: Case) -> None:
    head, plain = (learned(kind, draw(BASE)) for _ in range(2))
    X, y = flat(draw({70: 2, 80: 1}))
    head.partial_fit(X, y, classes=[*BASE, 70, 80, 90])
    plain.partial_fit(X, y)
    assert head.classes_.tolist() == plain.classes_.tolist() == sorted([*BASE, 70, 80])
    np.testing.assert_array_equal(head.class_scores(queries()), plain.class_scores(queries()))
    with refused(head, "label 80 is not in classes=; add it there"):
        head.partial_fit(X, y, classes=[70])
    with refused(head, "label 70 does not fit"):
        head.partial_fit(X, y, classes=["70", "80"])


def test_asking_before_learning(kind: Case) -> None:
    for question in ("predict", "class_scores", "decision_function", "predict_proba", "answer"):
        with pytest.raises(NotFittedError, match="not fitted yet"):
            getattr(kind.make(), question)(queries())
    with pytest.raises(NotFittedError, match="not fitted yet"):
        kind.make().forget(3)


def test_a_failed_first_fit_leaves_an_unfitted_head(kind: Case) -> None:
    head = kind.make()
    before = dict(head.__dict__)
    with pytest.raises(InputError):
        head.fit(spoiled(math.nan), [70] * 4)
    with pytest.raises(InputError):
        head.partial_fit(np.ones((2, 3)), ["a", 1])
    assert head.__dict__ == before
    with pytest.raises(NotFittedError):
        head.predict(queries())
    np.testing.assert_array_equal(
        head.fit(*flat(draw(BASE))).class_scores(queries()), learned(kind, draw(BASE)).class_scores(queries())
    )


def test_forgetting_an_unknown_class(kind: Case) -> None:
    head = learned(kind, draw(BASE), draw(FIRST))
    for labels in (99, [25, 99], np.int64(99)):
        with refused(head, r"no class 99; known classes are 5, 10, 20, 25, 30, 40, 50"):
            head.forget(labels)
    with refused(head, "no class 'owl'; known classes are 5"):
        head.forget("owl")


def test_forgetting_an_unknown_name_suggests_the_nearest() -> None:
    head = NCM().fit(queries(2), ["wren", "owl"])
    with refused(head, r"no class 'wrn'; did you mean 'wren'\? choose from owl, wren"):
        head.forget("wrn")


def test_forgetting_all_base_classes(kind: Case) -> None:
    head = learned(kind, draw(BASE), draw(FIRST))
    for labels in (list(BASE), [*BASE, 25], [*BASE, *BASE], [*BASE, 10]):
        with refused(head, "no base class would be left; fit a new head instead"):
            head.forget(labels)


def test_labels_of_mixed_or_other_type(kind: Case) -> None:
    head = learned(kind, draw(BASE))
    X = flat(draw({70: 2}))[0]
    with refused(head, "labels mix types: 'owl' is a string, 70 is not; use one type for all classes"):
        head.partial_fit(X, ["owl", 70])
    with refused(head, r"label 'owl' does not fit: .* integers \(for example 10\); use one label type throughout"):
        head.partial_fit(X, ["owl", "owl"])
    with refused(head, r"continuous value .*0\.5.*; classes are named by strings or integers"):
        head.partial_fit(X, [0.5, 1.0])
    with refused(head, "y contains NaN or infinity; every sample needs a label"):
        head.partial_fit(X, [math.nan, 1.0])
    with refused(head, r"label True does not fit: .* integers \(for example 10\); use one label type throughout"):
        head.partial_fit(X, np.array([True, False]))
    words = kind.make().fit(*(lambda x, y: (x, y.astype(str)))(*flat(draw(BASE))))
    with refused(words, r"label 70 does not fit: .* strings \(for example '10'\)"):
        words.partial_fit(X, [70, 70])


def test_an_error_in_the_middle_of_learning_changes_nothing(kind: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    """An interrupt at the last moment, then the same session again."""
    head, untouched = learned(kind, draw(BASE), draw(FIRST)), learned(kind, draw(BASE), draw(FIRST))

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    before = dict(head.__dict__)
    with monkeypatch.context() as patched:
        patched.setattr(type(head.scorer_), "holding", interrupted)
        with pytest.raises(KeyboardInterrupt):
            head.partial_fit(*flat(draw({60: 4})))
    assert all(head.__dict__[name] is value for name, value in before.items())
    expected = untouched.partial_fit(*flat(draw({60: 4}))).class_scores(queries())
    kind.close(head.partial_fit(*flat(draw({60: 4}))).class_scores(queries()), expected)
