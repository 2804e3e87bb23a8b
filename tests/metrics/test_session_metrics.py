from __future__ import annotations

import json

import numpy as np
import pytest
from sklearn.metrics import accuracy_score

from fiveshot.errors import InputError
from fiveshot.metrics import SessionPredictions, a_inc, a_last, accuracy_matrix, forgetting, run_metrics

hypothesis = pytest.importorskip("hypothesis", reason="hypothesis is not installed")
given, settings, st = hypothesis.given, hypothesis.settings, hypothesis.strategies


@st.composite
def runs(draw) -> list[SessionPredictions]:
    """Sessions of one to three classes, every class tested after each session, anything predicted."""
    sizes = draw(st.lists(st.integers(1, 3), min_size=1, max_size=4))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    order = rng.permutation(sum(sizes)) + 10
    found, end = [], 0
    for size in sizes:
        classes, end = order[end : end + size], end + size
        true = rng.permutation(np.concatenate([order[:end], rng.choice(order[:end], 5)]))
        wrong = rng.random(len(true)) < 0.4
        predicted = np.where(wrong, rng.choice(order[:end], len(true)), true)
        found.append(SessionPredictions(tuple(classes.tolist()), true, predicted))
    return found


@settings(deadline=None)
@given(runs())
def test_accuracy_matrix_is_accuracy_of_each_part(run):
    matrix = accuracy_matrix(run)
    assert matrix.shape == (len(run), len(run))
    for i, after in enumerate(run):
        for j, introduced in enumerate(run):
            part = np.array([label in introduced.classes for label in after.y_true])
            if j > i:
                assert np.isnan(matrix[i, j])
            else:
                assert matrix[i, j] == accuracy_score(after.y_true[part], after.y_pred[part])


@settings(deadline=None)
@given(runs())
def test_run_metrics_follow_their_definitions(run):
    found = run_metrics(run)
    overall = [accuracy_score(part.y_true, part.y_pred) for part in run]
    assert [session.accuracy for session in found.sessions] == overall
    assert found.a_last == overall[-1]
    assert found.a_inc == pytest.approx(sum(overall) / len(overall))
    matrix = accuracy_matrix(run)
    for i, session in enumerate(found.sessions):
        assert session.number == i
        assert session.a_new == matrix[i, i]
        if i == 0:
            assert session.a_old is None
            assert session.a_hm is None
            continue
        old = ~np.isin(run[i].y_true, run[i].classes)
        assert session.a_old == accuracy_score(run[i].y_true[old], run[i].y_pred[old])
        total = session.a_old + session.a_new
        assert session.a_hm == pytest.approx(2 * session.a_old * session.a_new / total if total else 0)
    last = run[-1]
    assert [label for label, _ in found.per_class] == [label for part in run for label in part.classes]
    for label, value in found.per_class:
        own = last.y_true == label
        assert value == np.mean(last.y_pred[own] == label)
    assert sum(found.confusion.as_dict().values()) == len(last.y_true)


@settings(deadline=None)
@given(runs())
def test_forgetting_is_the_best_earlier_value_less_the_last(run):
    matrix = accuracy_matrix(run)
    found = forgetting(matrix)
    last = len(run) - 1
    expected = [max(matrix[i, j] for i in range(j, last)) - matrix[last, j] for j in range(last)]
    assert found.per_session == pytest.approx(expected)
    assert found.mean == (pytest.approx(sum(expected) / last) if last else None)


def test_forgetting_of_a_known_run():
    matrix = [[0.9, np.nan, np.nan], [0.8, 0.5, np.nan], [0.85, 0.75, 0.6]]
    found = forgetting(matrix)
    # Session 0 was best at 0.9 and ends at 0.85; session 1 ended better than ever before.
    assert found.per_session == pytest.approx((0.05, -0.25))
    assert found.mean == pytest.approx(-0.1)


@settings(deadline=None)
@given(runs())
def test_metrics_survive_json(run):
    values = run_metrics(run).as_dict()
    assert json.loads(json.dumps(values, allow_nan=False)) == values


def test_published_example_of_a_run():
    # Two base classes of 4 samples, then one new class of 2: counted by hand.
    base = SessionPredictions((0, 1), np.array([0, 0, 1, 1]), np.array([0, 0, 1, 0]))
    new = SessionPredictions((2,), np.array([0, 0, 1, 1, 2, 2]), np.array([0, 2, 1, 0, 2, 0]))
    found = run_metrics([base, new])
    assert (found.a_last, found.a_inc) == (0.5, 0.625)
    assert (found.sessions[1].a_old, found.sessions[1].a_new, found.sessions[1].a_hm) == (0.5, 0.5, 0.5)
    assert found.matrix == ((0.75,), (0.5, 0.5))
    assert found.forgetting.mean == 0.25
    assert found.confusion.as_dict() == {
        "base_right": 2,
        "base_to_base": 1,
        "base_to_new": 1,
        "new_right": 1,
        "new_to_new": 0,
        "new_to_base": 1,
    }


def test_class_without_test_samples_has_no_accuracy():
    only = SessionPredictions((0, 1), np.array([0]), np.array([0]))
    assert run_metrics([only]).per_class == ((0, 1.0), (1, None))


ONE = SessionPredictions((0,), np.array([0]), np.array([0]))


@pytest.mark.parametrize(
    ("run", "message"),
    [
        ([], "no sessions"),
        ([ONE, ONE], r"session 1 introduces classes a second time: \[0\]"),
        ([SessionPredictions((0, 0), [0], [0])], "session 0 introduces classes a second time"),
        ([SessionPredictions((0,), [0, 1], [0, 0])], r"session 0 tests classes not seen yet: \[1\]"),
        ([SessionPredictions((0,), [0, 0], [0, 1])], r"session 0 predicts classes not seen yet: \[1\]"),
        ([ONE, SessionPredictions((1,), [1], [1])], "session 1 has no test samples of the classes of session 0"),
    ],
)
def test_sessions_that_contradict_each_other_are_refused(run, message):
    with pytest.raises(InputError, match=message):
        run_metrics(run)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: SessionPredictions((), [0], [0]), "at least one class"),
        (lambda: a_last([]), "between 0 and 1"),
        (lambda: a_inc([0.5, 70.2]), "between 0 and 1"),
        (lambda: forgetting([[1.0, 0.5]]), "square"),
        (lambda: forgetting([[np.nan]]), "no value for a learned session"),
    ],
)
def test_unusable_values_are_refused(call, message):
    with pytest.raises(InputError, match=message):
        call()
