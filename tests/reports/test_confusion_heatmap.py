from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from sklearn.metrics import confusion_matrix as reference

from fiveshot.benchmark import RunRecord
from fiveshot.reports.confusion import class_groups, confusion_matrix
from fiveshot.reports.heatmap import heatmap, in_words


def test_few_classes_are_shown_one_by_one_as_scikit_learn_counts(bird_records: list[RunRecord]) -> None:
    pair = bird_records[:2]
    found = confusion_matrix(pair)
    order = [label for classes in pair[0].session_classes for label in classes]
    true = np.concatenate([record.y_true for record in pair])
    predicted = np.concatenate([record.predictions[-1] for record in pair])
    np.testing.assert_allclose(found.shares, reference(true, predicted, labels=order, normalize="true"))
    assert found.kind == "class"
    assert [group.name for group in found.groups] == [pair[0].class_names[label] for label in order]


def test_many_classes_are_shown_by_session(paper_records: list[RunRecord]) -> None:
    record = paper_records[0]
    found = confusion_matrix([record])
    assert (found.kind, len(found.groups)) == ("session", 7)
    session = np.empty(196, dtype=int)
    for number, classes in enumerate(record.session_classes):
        session[list(classes)] = number
    expected = reference(session[record.y_true], session[record.predictions[-1]], normalize="true")
    np.testing.assert_allclose(found.shares, expected)


@pytest.mark.parametrize(
    ("sessions", "per_session", "kind"), [(5, 2, "class"), (9, 9, "session"), (90, 3, "sessions")]
)
def test_groups_hold_every_class_once_and_are_few(sessions: int, per_session: int, kind: str) -> None:
    order = np.random.default_rng(0).permutation(sessions * per_session).reshape(sessions, per_session).tolist()
    found, groups = class_groups(order, [str(n) for n in range(sessions * per_session)])
    assert found == kind
    assert len(groups) <= 40
    assert [label for group in groups for label in group.classes] == [label for part in order for label in part]
    assert kind == "class" or groups[0].name == "base"


def test_a_class_without_test_images_is_left_blank(bird_records: list[RunRecord]) -> None:
    first = bird_records[0]
    gone = first.session_classes[1][0]
    kept = first.y_true != gone
    found = confusion_matrix([replace(first, y_true=first.y_true[kept], predictions=first.predictions[:, kept])])
    assert np.isnan(found.shares).all(axis=1).sum() == 1
    assert "nan" not in heatmap(found, "NCM").lower()


def test_the_largest_confusions_are_said(paper_records: list[RunRecord]) -> None:
    matrix = confusion_matrix([paper_records[0]])
    off = matrix.shares - np.diag(np.diag(matrix.shares))
    true, predicted = np.unravel_index(off.argmax(), off.shape)
    names = ["base", *(f"session {number}" for number in range(1, 7))]
    assert (
        f"largest confusions: {names[true]} taken for {names[predicted]} in {100 * off.max():.1f} %"
        in in_words(matrix)
    )
