from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from sklearn.metrics import confusion_matrix as reference
from toys import base_session_only

from fiveshot.benchmark import RunRecord
from fiveshot.reports import experiments
from fiveshot.reports._drawings import (
    Drawing,
    base_new_chart,
    class_groups,
    confusion_chart,
    confusion_matrix,
    confusions_in_words,
    session_chart,
    trade_off_chart,
)


def ticks(drawing: Drawing, axis: int) -> np.ndarray:
    """Return the line through the numbers on a chart's axis: value = a place + b."""
    places = [shape.points[0][axis] for shape in drawing.shapes if shape.role == "grid"]
    roles = {0: "middle", 1: "end"}
    numbers = [s.words for s in drawing.shapes if s.kind == "text" and s.role == roles[axis] and s.words.isdigit()]
    return np.polyfit(places, [float(number) for number in numbers[: len(places)]], 1)


def test_curves_go_through_the_accuracies_with_a_band(bird_records: list[RunRecord]) -> None:
    (birds,) = experiments(bird_records)
    drawing = session_chart(birds.variants)
    scale = ticks(drawing, axis=1)
    lines = [shape for shape in drawing.shapes if shape.kind == "line" and shape.style]
    bands = [shape for shape in drawing.shapes if shape.kind == "area"]
    for variant, line, band in zip(birds.variants, lines, bands, strict=True):
        accuracy = variant.summary.accuracy
        shown = np.polyval(scale, [y for _, y in line.points])
        np.testing.assert_allclose(shown, [100 * spread.mean for spread in accuracy])
        top = np.polyval(scale, [y for _, y in band.points[: len(accuracy)]])
        np.testing.assert_allclose(top, [100 * (spread.mean + spread.std) for spread in accuracy])


def test_calibration_is_drawn_after_each_session(bird_records: list[RunRecord]) -> None:
    (birds,) = experiments(bird_records)
    drawing = session_chart(birds.variants, "calibration")
    scale = ticks(drawing, axis=1)
    lines = [shape for shape in drawing.shapes if shape.kind == "line" and shape.style]
    for variant, line in zip(birds.variants, lines, strict=True):
        shown = np.polyval(scale, [y for _, y in line.points])
        np.testing.assert_allclose(shown, [100 * spread.mean for spread in variant.summary.calibration])


def test_a_head_stands_on_its_curve_of_base_against_new(bird_records: list[RunRecord]) -> None:
    seed = [record for record in bird_records if record.seed == 0]
    (birds,) = experiments(seed)
    drawing = trade_off_chart(birds.variants)
    up = ticks(drawing, axis=1)
    for variant, line, marker in zip(
        birds.variants,
        [shape for shape in drawing.shapes if shape.kind == "line" and shape.style],
        [shape for shape in drawing.shapes if shape.kind == "marker"],
        strict=True,
    ):
        curve = variant.records[0].trade_off
        np.testing.assert_allclose(
            np.polyval(up, [y for _, y in line.points]), 100 * np.array(curve.new), atol=1e-9
        )
        across = np.polyfit([x for x, _ in line.points], curve.base, 1)
        base, new = variant.base_new
        ((x, y),) = marker.points
        assert np.polyval(across, x) == pytest.approx(base.mean)
        assert np.polyval(up, y) == pytest.approx(100 * new.mean)
        # The curve is kept in steps, and falls between them; two images more or less are its rounding.
        step = int(np.searchsorted(curve.base, base.mean))
        assert curve.new[step] - 0.015 <= new.mean <= curve.new[step - 1] + 0.015
    assert trade_off_chart(experiments([base_session_only(seed[0])])[0].variants) is None


def test_bars_have_the_lengths_of_the_accuracies(bird_records: list[RunRecord]) -> None:
    (birds,) = experiments(bird_records)
    drawing = base_new_chart(birds.variants)
    bars = [shape for shape in drawing.shapes if shape.kind == "box"]
    shown = np.polyval(ticks(drawing, axis=0), [bar.points[1][0] for bar in bars])
    expected = [100 * spread.mean for v in birds.variants for spread in v.base_new if spread]
    np.testing.assert_allclose(shown, expected)
    assert [bar.role for bar in bars] == ["bar base", "bar new"] * len(birds.variants)
    labels = [shape.words for shape in drawing.shapes if shape.role == "end"]
    assert labels == ["NCM", "C-FeCAM", "RanPAC"]


def test_one_seed_has_no_band_and_no_whiskers(bird_records: list[RunRecord]) -> None:
    for seeds, spread in ((1, False), (2, True)):
        (birds,) = experiments([record for record in bird_records if record.seed < seeds])
        assert any(shape.kind == "area" for shape in session_chart(birds.variants).shapes) is spread
        assert any(shape.role == "whisker" for shape in base_new_chart(birds.variants).shapes) is spread


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
    drawing = confusion_chart(found, "NCM")
    assert np.isfinite([point for shape in drawing.shapes for point in shape.points]).all()
    assert not any("nan" in shape.words for shape in drawing.shapes)


def test_the_largest_confusions_are_said(paper_records: list[RunRecord]) -> None:
    matrix = confusion_matrix([paper_records[0]])
    off = matrix.shares - np.diag(np.diag(matrix.shares))
    true, predicted = np.unravel_index(off.argmax(), off.shape)
    names = ["base", *(f"session {number}" for number in range(1, 7))]
    assert (
        f"largest confusions: {names[true]} taken for {names[predicted]} in {100 * off.max():.1f} %"
        in confusions_in_words(matrix)
    )
