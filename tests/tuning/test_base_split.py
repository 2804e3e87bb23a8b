from __future__ import annotations

import numpy as np
import pytest

from fiveshot.errors import InputError
from fiveshot.tuning import Fold
from fiveshot.tuning.material import class_folds, fold_without, hold_out_rows

LABELS = np.repeat([3, 4, 9], [10, 2, 7])


def test_every_class_gives_a_share_and_keeps_some() -> None:
    train, held = hold_out_rows(LABELS, share=0.3, seed=0)
    assert sorted([*train, *held]) == list(range(len(LABELS)))
    assert [int((LABELS[held] == label).sum()) for label in (3, 4, 9)] == [3, 1, 2]
    again = hold_out_rows(LABELS, share=0.3, seed=0)[1]
    assert np.array_equal(held, again)
    assert not np.array_equal(held, hold_out_rows(LABELS, share=0.3, seed=1)[1])


def test_nothing_held_out() -> None:
    train, held = hold_out_rows(LABELS, share=0.0, seed=0)
    assert (len(train), len(held)) == (len(LABELS), 0)
    with pytest.raises(InputError, match="held_out=1"):
        hold_out_rows(LABELS, share=1.0, seed=0)


def test_what_thresholds_are_set_on_is_held_out() -> None:
    labels = np.repeat([0, 1, 2], [3, 8, 100])
    train, held = hold_out_rows(labels, share="auto", seed=0)
    assert np.bincount(labels[held]).tolist() == [0, 2, 20]
    assert sorted([*train, *held]) == list(range(len(labels)))
    with pytest.raises(InputError, match="held_out=quarter must be 0"):
        hold_out_rows(labels, share="quarter", seed=0)  # type: ignore[arg-type]


def test_folds_leave_different_classes_out() -> None:
    labels = np.repeat(np.arange(9), 6)
    folds = class_folds(labels, share=1 / 3, folds=3, least_images=6, seed=0)
    assert sorted(np.concatenate(folds)) == list(range(9))
    more = class_folds(labels, share=1 / 3, folds=4, least_images=6, seed=0)
    assert np.array_equal(more[3], more[0])  # round again


def test_only_classes_with_enough_images_are_played_as_new() -> None:
    labels = np.repeat([0, 1, 2, 3], [9, 3, 9, 3])
    folds = class_folds(labels, share=0.25, folds=5, least_images=6, seed=0)
    assert {int(label) for fold in folds for label in fold} == {0, 2}
    few = np.repeat([0, 1, 2, 3, 4, 5], [9, 3, 9, 3, 3, 3])
    with pytest.raises(InputError, match="2 of them with 6 images or more"):
        class_folds(few, share=0.5, folds=1, least_images=6, seed=0)


def test_two_classes_are_too_few_to_leave_one_out() -> None:
    with pytest.raises(InputError, match="too few to treat some as new ones"):
        class_folds(np.repeat([0, 1], 9), share=0.5, folds=1, least_images=6, seed=0)


def test_a_fold_trains_on_no_image_of_a_new_class() -> None:
    train, held = hold_out_rows(LABELS, share=0.3, seed=0)
    fold = fold_without(LABELS, Fold.of(train, held), np.array([9]))
    assert set(LABELS[fold.train]) == set(LABELS[fold.held_out]) == {3, 4}
    assert set(LABELS[fold.new]) == {9}
    assert len(fold.new) == 7
    assert not set(fold.train) & set(fold.held_out)
