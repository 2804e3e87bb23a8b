"""The contract suite, second part: a forgotten class was never there."""

from __future__ import annotations

import numpy as np
import pytest
from cases import BASE, FIRST, SECOND, Case, draw, flat, learned, queries, without

from fiveshot.errors import InputError
from fiveshot.heads import FewShotHead, ScoreTable

NEW = {25: 3, 5: 1, 60: 4}


def assert_refused(head: FewShotHead, label: int) -> None:
    """A class that is part of a sum cannot be taken out: the head says so and stays as it was."""
    before = head.class_scores(queries())
    with pytest.raises(
        InputError, match=rf"cannot forget {label}: .*; fit a new head without it, or raise n_proj"
    ):
        head.forget([label])
    assert label in head.classes_
    np.testing.assert_array_equal(head.class_scores(queries()), before)


def summed(case: Case, label: int) -> bool:
    """Tell whether the class's rows are part of a sum, from which a ridge head cannot take them out.

    With 30 random features the 47 base rows are; with 52 those of the new classes too, once there are 55.
    """
    if case.recipe == "ranpac":
        return case.width == 52 or (case.width == 30 and label in BASE)
    return case.sampled and case.width == 30 and label in BASE


@pytest.mark.parametrize("label", [25, 5, 60, 10, 30])  # new ones, one of them seen once, and base classes
def test_a_forgotten_class_was_never_there(case: Case, label: int) -> None:
    base, new, X = draw(BASE), draw(NEW), queries()
    head = learned(case, base, new)
    if summed(case, label):
        assert_refused(head, label)
        return
    never = learned(case, without(base, label), without(new, label))
    assert head.forget(label) is head
    assert head.classes_.tolist() == never.classes_.tolist()
    assert head.base_classes_.tolist() == never.base_classes_.tolist()
    case.close(head.class_scores(X), never.class_scores(X))
    if case.ridge:
        assert head.lambda_ == never.lambda_


def test_several_classes_are_forgotten_at_once(case: Case) -> None:
    if summed(case, 10):
        assert_refused(learned(case, draw(BASE), draw(NEW)), 10)
        return
    base, new, X = draw(BASE), draw(NEW), queries()
    never = learned(case, without(base, 10, 50), without(new, 25)).class_scores(X)
    for labels in ([10, 25, 50], (50, 25, 10), {10, 25, 50}, np.array([25, 50, 10]), [10, 10, 25, 50, 50]):
        case.close(learned(case, base, new).forget(labels).class_scores(X), never)
    step_by_step = learned(case, base, new).forget(50).forget(25).forget(np.int64(10))
    case.close(step_by_step.class_scores(X), never)


def test_a_class_can_be_learned_again(case: Case) -> None:
    if summed(case, 25):
        assert_refused(learned(case, draw(BASE), draw(NEW)), 25)
        return
    base, new, X = draw(BASE), draw(NEW), queries()
    expected = learned(case, base, new).class_scores(X)
    again = learned(case, base, new).forget(25).partial_fit(*flat({25: new[25]}))
    case.close(again.class_scores(X), expected)
    other = draw({25: 4}, seed=7)
    case.close(
        learned(case, base, new).forget([25]).partial_fit(*flat(other)).class_scores(X),
        learned(case, base, new | other).class_scores(X),
    )


def test_a_base_class_learned_again_is_a_new_class(case: Case) -> None:
    if summed(case, 10):
        assert_refused(learned(case, draw(BASE), draw(NEW)), 10)
        return
    base, X = draw(BASE), queries()
    head = learned(case, base, draw(FIRST)).forget(10).partial_fit(*flat({10: base[10][:3]}))
    never = learned(case, without(base, 10), draw(FIRST), {10: base[10][:3]})
    case.close(head.class_scores(X), never.class_scores(X))
    assert 10 not in head.base_classes_


def test_forgetting_then_going_on_equals_never_having_seen_it(case: Case) -> None:
    base, X = draw(BASE), queries()
    head = learned(case, base, draw(FIRST)).forget(25).partial_fit(*flat(draw(SECOND)))
    never = learned(case, base, without(draw(FIRST), 25), draw(SECOND))
    case.close(head.class_scores(X), never.class_scores(X))


def test_more_samples_are_forgotten_with_their_class(case: Case) -> None:
    base, new, X = draw(BASE), draw(FIRST), queries()
    more = draw({25: 2, 30: 4}, seed=3)
    one = learned(case, base, new, more)
    if case.recipe == "ranpac" and case.width == 52:
        assert_refused(one, 25)
        return
    never = learned(case, base, without(new, 25), {30: more[30]})
    # The base class was updated in both, in the same way.
    case.close(one.forget(25).class_scores(X), never.class_scores(X))


def test_nothing_forgotten_is_nothing_changed(case: Case) -> None:
    head = learned(case, draw(BASE), draw(FIRST))
    before = head.class_scores(queries())
    head.forget([])
    case.close(head.class_scores(queries()), before)


def test_a_table_of_scores_follows(case: Case) -> None:
    if summed(case, 25):
        assert_refused(learned(case, draw(BASE), draw(NEW)), 25)
        return
    X = queries()
    head = learned(case, draw(BASE), draw(NEW))
    table = ScoreTable(head, X)
    table.scores()
    head.forget(25)
    np.testing.assert_allclose(table.scores(), head.class_scores(X), rtol=1e-9, atol=1e-9)
