"""Forgetting where the contract leaves a choice: a ridge head may decline, and says when."""

from __future__ import annotations

import numpy as np
import pytest
from cases import BASE, FIRST, Case, draw, learned, queries, without

from fiveshot.core.scorers import ScoreTable
from fiveshot.errors import InputError
from fiveshot.heads import FewShotHead

NEW = {25: 3, 5: 1, 60: 4}


def assert_refused(head: FewShotHead, label: int) -> None:
    """A class that is part of a sum cannot be taken out: the head says so and stays as it was."""
    before = head.class_scores(queries())
    with pytest.raises(InputError, match=rf"cannot forget {label}: .*; fit a new head without it"):
        head.forget([label])
    assert label in head.classes_
    np.testing.assert_array_equal(head.class_scores(queries()), before)


def summed(case: Case, label: int) -> bool:
    """Tell whether the class's rows are part of a sum, from which a head cannot take them out.

    With 30 random features the 47 base rows are; with 52 those of the new classes too, once there are 55. What
    Deep SLDA and LoRanPAC keep is always a sum.
    """
    if case.recipe in ("deep-slda", "loranpac"):
        return True
    if case.recipe == "ranpac":
        return case.width == 52 or (case.width == 30 and label in BASE)
    return case.sampled and case.width == 30 and label in BASE


@pytest.mark.parametrize("label", [5, 10])  # a new one that was seen once, and a base class
def test_a_class_is_forgotten_unless_its_rows_are_part_of_a_sum(case: Case, label: int) -> None:
    base, new = draw(BASE), draw(NEW)
    head = learned(case, base, new)
    if summed(case, label):
        assert_refused(head, label)
        return
    if "forgetting base" in case.broken and label in BASE:
        pytest.skip("not promised")
    never = learned(case, without(base, label), without(new, label))
    case.close(head.forget(label).class_scores(queries()), never.class_scores(queries()))
    if case.ridge:
        assert head.lambda_ == never.lambda_


def test_more_samples_are_forgotten_with_their_class(case: Case) -> None:
    base, new, X = draw(BASE), draw(FIRST), queries()
    more = draw({25: 2, 30: 4}, seed=3)
    one = learned(case, base, new, more)
    if case.recipe in ("deep-slda", "loranpac") or (case.recipe == "ranpac" and case.width == 52):
        assert_refused(one, 25)
        return
    never = learned(case, base, without(new, 25), {30: more[30]})
    # The base class was updated in both, in the same way.
    case.close(one.forget(25).class_scores(X), never.class_scores(X))


def test_a_table_of_scores_follows(case: Case) -> None:
    if summed(case, 25):
        assert_refused(learned(case, draw(BASE), draw(NEW)), 25)
        return
    X = queries()
    head = learned(case, draw(BASE), draw(NEW))
    table = ScoreTable(X)
    table.scores(head.scorer_)
    head.forget(25)
    np.testing.assert_allclose(table.scores(head.scorer_), head.class_scores(X), rtol=1e-9, atol=1e-9)
