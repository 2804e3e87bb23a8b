from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import hmean
from sklearn.metrics import accuracy_score, confusion_matrix, recall_score

from fiveshot.errors import InputError
from fiveshot.metrics import (
    accuracy,
    base_new_confusion,
    harmonic_mean,
    old_new_accuracy,
    per_class_accuracy,
)

hypothesis = pytest.importorskip("hypothesis", reason="hypothesis is not installed")
given, settings, st = hypothesis.given, hypothesis.settings, hypothesis.strategies

N_CLASSES, N_BASE = 6, 3
pairs = st.lists(
    st.tuples(st.integers(0, N_CLASSES - 1), st.integers(0, N_CLASSES - 1)), min_size=1, max_size=40
).map(lambda found: tuple(np.array(side) for side in zip(*found, strict=True)))
fractions = st.tuples(st.integers(0, 500), st.integers(1, 500)).map(lambda pair: min(pair) / max(pair))


@settings(deadline=None)
@given(pairs)
def test_accuracy_is_scikit_learns(pair):
    assert accuracy(*pair) == accuracy_score(*pair)


@settings(deadline=None)
@given(pairs)
def test_label_values_do_not_matter(pair):
    names = np.array([f"bird {label}" for label in "zyxwvu"])
    true, predicted = pair
    assert accuracy(names[true], names[predicted]) == accuracy(true, predicted)
    as_texts = old_new_accuracy(names[true], names[predicted], names[N_BASE:])
    assert as_texts == old_new_accuracy(true, predicted, range(N_BASE, N_CLASSES))


@settings(deadline=None)
@given(pairs)
def test_old_and_new_accuracy_are_those_of_the_parts(pair):
    true, predicted = pair
    found = old_new_accuracy(true, predicted, new_classes=[4, 5])
    for value, part in ((found.old, true < 4), (found.new, true >= 4)):
        if part.any():
            assert value == accuracy_score(true[part], predicted[part])
        else:
            assert value is None


@settings(deadline=None)
@given(pairs)
def test_overall_accuracy_is_the_weighted_mean_of_old_and_new(pair):
    true, predicted = pair
    old, new = old_new_accuracy(true, predicted, new_classes=[4, 5])
    share = np.mean(true >= 4)
    assert (old or 0) * (1 - share) + (new or 0) * share == pytest.approx(accuracy(true, predicted))


@settings(deadline=None)
@given(fractions, fractions)
def test_harmonic_mean_is_scipys_and_lies_between(old, new):
    found = harmonic_mean(old, new)
    assert found == pytest.approx(float(hmean([old, new])), rel=1e-12)
    assert found == harmonic_mean(new, old)
    assert found <= (old + new) / 2 * (1 + 1e-12)


def test_harmonic_mean_of_nothing_is_nothing():
    assert harmonic_mean(0.0, 0.0) == 0.0
    assert harmonic_mean(0.0, 0.9) == 0.0


@pytest.mark.parametrize("pair", [(-0.1, 0.5), (88.48, 66.2), (float("nan"), 0.5)])
def test_harmonic_mean_takes_fractions_only(pair):
    with pytest.raises(InputError, match="between 0 and 1"):
        harmonic_mean(*pair)


@settings(deadline=None)
@given(pairs)
def test_accuracy_per_class_is_recall(pair):
    true, predicted = pair
    labels = list(range(N_CLASSES))
    expected = recall_score(true, predicted, labels=labels, average=None, zero_division=np.nan)
    np.testing.assert_allclose(per_class_accuracy(true, predicted, labels), expected)


@settings(deadline=None)
@given(pairs)
def test_base_new_confusion_is_the_confusion_matrix_in_blocks(pair):
    table = confusion_matrix(*pair, labels=range(N_CLASSES))
    right, base, new = np.diag(table), slice(0, N_BASE), slice(N_BASE, None)
    found = base_new_confusion(*pair, base_classes=range(N_BASE), new_classes=range(N_BASE, N_CLASSES))
    assert found.as_dict() == {
        "base_right": right[base].sum(),
        "base_to_base": table[base, base].sum() - right[base].sum(),
        "base_to_new": table[base, new].sum(),
        "new_right": right[new].sum(),
        "new_to_new": table[new, new].sum() - right[new].sum(),
        "new_to_base": table[new, base].sum(),
    }
    assert sum(found.as_dict().values()) == len(pair[0])


def test_long_class_names_are_not_cut_to_the_length_of_the_labels():
    assert old_new_accuracy(["ani"], ["ani"], new_classes=["anis"]).new is None


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: accuracy([], []), "at least one entry"),
        (lambda: accuracy([1], [1, 2]), r"shapes \(1,\) and \(2,\)"),
        (lambda: accuracy([[1]], [[1]]), "must be vectors"),
        (lambda: accuracy([1], ["1"]), "true labels are int64, predicted ones <U1"),
        (lambda: old_new_accuracy([1], [1], ["1"]), "classes are <U1, labels int64"),
        (lambda: base_new_confusion([0], [-1], [0], [1]), "the label .*-1.* belongs neither to a base class"),
    ],
)
def test_unusable_labels_are_refused(call, message):
    with pytest.raises(InputError, match=message):
        call()
