from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from models import photos as photos_named

from fiveshot.core import NO_CLASSES, Memory, class_statistics
from fiveshot.core.draws import hold_back
from fiveshot.core.scorers import Scorer, make_scorer
from fiveshot.errors import InputError
from fiveshot.recognizer import Recognizer
from fiveshot.recognizer.recognition import rejection as rejection_module
from fiveshot.recognizer.recognition.rejection import (
    Rejection,
    can_reject,
    fit_rejection,
    leave_out,
    photos_needed,
    quantile_threshold,
    rejection_at,
)
from fiveshot.recognizer.store.contents import KnownPhotos

WIDTH = 12


def photos_of(classes: int, each: int, seed: int, start: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Draw photos of numbered classes; the same number is the same class under every seed."""
    centers = [2.0 * np.random.default_rng([7, i]).normal(size=WIDTH) for i in range(start, start + classes)]
    rng = np.random.default_rng(seed)
    rows = np.concatenate([center + rng.normal(size=(each, WIDTH)) for center in centers])
    return rows.astype(np.float32), np.repeat([f"{i:03d}" for i in range(start, start + classes)], each)


HEADS = ["ncm", "unbiased-lda"]


def rejected(head: Scorer, found: Rejection, X: np.ndarray) -> np.ndarray:
    counts = {label: summary.count for label, summary, _ in head.memory}
    thresholds = found.thresholds_of([counts[label] for label in head.classify(X)])
    return head.familiarity(X) < thresholds


@pytest.mark.parametrize("name", HEADS)
def test_the_stated_rate_is_kept_and_strangers_are_rejected(name: str) -> None:
    X, y = photos_of(40, 40, seed=1)
    head = make_scorer(name).learn(X, y)
    found = fit_rejection(head, X, y, false_rejection=0.1, seed=0)
    shots, names = photos_of(10, 5, seed=2, start=40)
    head = head.learn(shots, names)
    many, _ = photos_of(40, 20, seed=3)
    few, _ = photos_of(10, 80, seed=4, start=40)
    strange, _ = photos_of(30, 20, seed=5, start=60)
    assert rejected(head, found, many).mean() == pytest.approx(0.1, abs=0.05)
    assert rejected(head, found, few).mean() == pytest.approx(0.1, abs=0.07)
    assert rejected(head, found, strange).mean() > 0.5


@pytest.mark.parametrize("name", HEADS)
def test_thresholds_are_the_same_for_the_same_seed_and_leave_the_head_alone(name: str) -> None:
    X, y = photos_of(12, 40, seed=1)
    head = make_scorer(name).learn(X, y)
    memory, scores = head.memory, head.scores(X[:9])
    first = fit_rejection(head, X, y, seed=4)
    assert first == fit_rejection(head, X, y, seed=4)
    assert first != fit_rejection(head, X, y, seed=5)
    assert first.counts == (1, 2, 3, 5, 10, 20, 30)
    assert "120 held-out photos of 12 base classes" in first.note
    assert head.memory is memory
    assert np.array_equal(head.scores(X[:9]), scores)


def test_shots_beyond_what_the_base_has_are_left_out() -> None:
    X, y = photos_of(12, 8, seed=1)
    found = fit_rejection(make_scorer("ncm").learn(X, y), X, y, seed=0)
    assert found.counts in ((3, 5, 6), (2, 3, 5, 6), (1, 2, 3, 5, 6))  # six are kept of each to learn from
    assert found.false_rejection == 0.05


def test_a_base_of_too_few_photos_rejects_nothing() -> None:
    X, y = photos_of(12, 5, seed=1)
    found = fit_rejection(make_scorer("ncm").learn(X, y), X, y, seed=0)
    assert found.threshold(5) == -np.inf
    assert found.note == "nothing can be called unknown: the base leaves 12 photos to hold out, 19 are needed"


def test_a_base_of_few_classes_sets_no_threshold_for_others() -> None:
    X, y = photos_of(9, 40, seed=1)
    found = fit_rejection(make_scorer("ncm").learn(X, y), X, y, seed=0)
    assert not found.counts
    assert "fewer than 10 classes" in found.note


def test_single_photos_of_base_classes_are_kept_to_learn_from() -> None:
    X, y = photos_of(30, 1, seed=1)
    assert fit_rejection(make_scorer("ncm").learn(X, y), X, y, seed=0).counts == ()


def shots(head: Scorer, memory: Memory, photos: KnownPhotos, rate: float = 0.05) -> Rejection:
    """Return the thresholds from learned photos only."""
    return rejection_at(leave_out(head, memory, photos, photos.features[:0]), rate, None)


@pytest.mark.parametrize("name", HEADS)
def test_learned_photos_alone_set_a_threshold(name: str) -> None:
    X, y = photos_of(30, 5, seed=1)
    memory = Memory(NO_CLASSES, class_statistics(make_scorer(name).embed(X), y))
    head = make_scorer(name).adopt(memory)
    photos = KnownPhotos(tuple(y), tuple(map(str, range(len(y)))), X)
    found = shots(head, memory, photos, 0.1)
    assert "150 learned photos" in found.note
    known, _ = photos_of(30, 40, seed=2)
    strange, _ = photos_of(30, 40, seed=3, start=60)
    share = rejected(head, found, known).mean()
    assert share < 0.15  # with all photos a class is known better than with one left out
    assert rejected(head, found, strange).mean() > 4 * share
    assert head.memory is memory
    turned = KnownPhotos(photos.labels[::-1], photos.sha256s[::-1], X[::-1])
    assert shots(head, memory, turned, 0.1).thresholds == pytest.approx(found.thresholds, rel=0.2)


def test_leaving_out_in_turn_by_the_formula_spelled_out() -> None:
    X, y = photos_of(7, 3, seed=1)
    memory = Memory(NO_CLASSES, class_statistics(X, y))
    photos = KnownPhotos(tuple(y), tuple(map(str, range(len(y)))), X)
    found = shots(make_scorer("ncm").adopt(memory), memory, photos, 0.2)
    familiar = []
    for turn in range(3):
        left = np.arange(len(y)) % 3 == turn
        means = np.stack([X[(y == label) & ~left].mean(axis=0) for label in np.unique(y)])
        familiar += [-np.square(row - means).sum(axis=1).min() for row in X[left]]
    # Of 21 photos, the 4th smallest: 4 / 22 is the largest share that does not exceed 0.2.
    assert found.thresholds == pytest.approx((np.sort(familiar)[3],), rel=1e-4)


def test_too_few_learned_photos_reject_nothing() -> None:
    X, y = photos_of(9, 2, seed=1)
    memory = Memory(NO_CLASSES, class_statistics(X, y))
    photos = KnownPhotos(tuple(y), tuple(map(str, range(len(y)))), X)
    found = shots(make_scorer("ncm").adopt(memory), memory, photos)
    assert found.thresholds == ()
    missing = "19 photos in classes of two or more are needed; the model has 18"
    assert found.note == f"nothing can be called unknown yet: {missing}"


def test_of_many_classes_an_even_sample_is_left_out() -> None:
    X, y = photos_of(450, 2, seed=1)
    memory = Memory(NO_CLASSES, class_statistics(X, y))
    photos = KnownPhotos(tuple(y), tuple(map(str, range(len(y)))), X)
    rows = rejection_module._rows_by_class(memory.new, photos)
    (turn,) = rejection_module._turns({label: len(own) for label, own in rows.items()})
    assert len(turn) == 150
    assert [label for label, _ in turn[:3]] == ["000", "003", "006"]
    found = shots(make_scorer("ncm").adopt(memory), memory, photos)
    assert "150 learned photos" in found.note


def test_thresholds_between_counts_are_linear_in_their_logarithm() -> None:
    found = Rejection(0.05, (1, 5, 20), (-3.0, -2.0, -1.0))
    assert found.threshold(5) == -2.0
    assert found.threshold(10) == pytest.approx(-1.5)
    assert found.threshold(500) == -1.0
    values = found.thresholds_of(np.arange(1, 30))
    assert all(a <= b for a, b in pairwise(values))


def test_a_rejection_survives_json() -> None:
    table = ((0.01, (-5.0, -4.0)), (0.05, (-3.25, -2.0)))
    found = Rejection(0.05, (1, 5), (-3.25, -2.0), "set somewhere", table)
    assert Rejection.from_dict(json.loads(json.dumps(found.as_dict()))) == found


@pytest.mark.parametrize(
    "change",
    [
        {"thresholds": [1.0]},
        {"counts": [5, 1]},
        {"counts": [0, 1]},
        {"thresholds": [float("nan"), 1.0]},
        {"false_rejection": 1.5},
        {"false_rejection": "much"},
        {"counts": None},
        {"table": [[0.05, [1.0]]]},
        {"table": [[0.05, [1.0, 2.0]], [0.01, [1.0, 2.0]]]},
        {"table": [[0.05, [1.0, "x"]]]},
    ],
)
def test_damaged_thresholds_are_refused(change: dict[str, object]) -> None:
    values = Rejection(0.05, (1, 5), (-3.25, -2.0)).as_dict() | change
    with pytest.raises(InputError):
        Rejection.from_dict(values)


@pytest.mark.parametrize(("rate", "needed"), [(0.05, 19), (0.1, 9), (0.01, 99), (0.5, 1), (0.3, 3)])
def test_the_smallest_sample_that_can_keep_a_rate(rate: float, needed: int) -> None:
    assert photos_needed(rate) == needed
    assert quantile_threshold(np.arange(needed), rate) == 0
    with pytest.raises(InputError, match="too few"):
        quantile_threshold(np.arange(needed - 1), rate)


@pytest.mark.parametrize("size", [19, 37, 400])
def test_a_new_value_falls_below_the_threshold_at_most_at_the_rate(size: int) -> None:
    rng = np.random.default_rng(size)
    draws = rng.standard_cauchy(size=(4000, size + 1))
    below = [row[-1] < quantile_threshold(row[:-1], 0.05) for row in draws]
    assert np.mean(below) <= 0.05 + 3 * np.sqrt(0.05 * 0.95 / 4000)
    assert np.mean(below) > 0.02


@pytest.mark.parametrize("rate", [0, 1, -0.1, float("nan")])
def test_a_rate_that_makes_no_sense(rate: float) -> None:
    with pytest.raises(InputError, match="between 0 and 1"):
        fit_rejection(make_scorer("ncm"), np.zeros((1, 2), np.float32), ["a"], false_rejection=rate, seed=0)


@pytest.mark.parametrize("name", HEADS)
def test_thresholds_at_other_rates_are_those_of_a_base_made_for_them(name: str) -> None:
    X, y = photos_of(12, 40, seed=1)
    head = make_scorer(name).learn(X, y)
    found = fit_rejection(head, X, y, false_rejection=0.05, seed=0)
    other = fit_rejection(head, X, y, false_rejection=0.1, seed=0)
    assert found.at(0.1).thresholds == other.thresholds
    assert found.at(0.05) == found
    between = found.at(0.07)
    assert all(a <= b <= c for a, b, c in zip(found.thresholds, between.thresholds, other.thresholds, strict=True))
    assert found.at(1e-5).thresholds == ()


def test_photos_of_none_of_the_classes_sharpen_the_rejection() -> None:
    """Unknown photos lie around one place; after some were taught, fewer than half of the others are missed."""
    place, missed = 3.0 * np.random.default_rng(5).normal(size=WIDTH), []
    for seed in range(4):
        X, y = photos_of(12, 5, seed=seed)
        memory = Memory(NO_CLASSES, class_statistics(make_scorer().embed(X), y))
        head = make_scorer().adopt(memory)
        photos = KnownPhotos(tuple(y), tuple(map(str, range(len(y)))), X)
        strange = place + 2.0 * np.random.default_rng(seed).normal(size=(420, WIDTH))
        strange = strange.astype(np.float32)
        left = leave_out(head, memory, photos, strange[:20])
        found = rejection_at(left, 0.1, None)
        assert "60 learned photos" in found.note
        assert "20 photos of none of these" in found.note
        strangers = rejection_module.Strangers(head, strange[:20])
        standing = strangers.standing(strange[20:])
        missed.append([(standing >= found.standing).mean(), 1 - rejected(head, found, strange[20:]).mean()])
        known, _ = photos_of(12, 40, seed=seed + 50)
        assert (strangers.standing(known) < found.standing).mean() < 0.2
        rejected_photos, rejected_strangers = left.rejected(found)
        assert rejected_photos <= 6
        assert 0 <= rejected_strangers <= 20
    with_strangers, without = np.mean(missed, axis=0)
    assert with_strangers < without / 2


def test_standing_beside_strangers_by_the_formula_spelled_out() -> None:
    X, y = photos_of(4, 3, seed=1)
    head = make_scorer("ncm").adopt(Memory(NO_CLASSES, class_statistics(X, y)))
    strange, _ = photos_of(1, 6, seed=2, start=70)
    means = np.stack([X[y == label].mean(axis=0) for label in np.unique(y)])
    X = np.concatenate([X, strange + 0.1])
    found = rejection_module.Strangers(head, strange).standing(X)
    known, each = (-np.square(X[:, None] - rows[None]).sum(axis=2, dtype=np.float64) for rows in (means, strange))
    meant, other = (np.exp(scores * head.softmax_factor()).sum(axis=1) for scores in (known, each))
    chance = meant / (meant + other)
    assert (chance < 0.1).any()
    assert (chance > 0.1).any()
    length, of_strangers = (np.log(np.linalg.norm(rows, axis=1)) for rows in (X, strange))
    longer = length - of_strangers.mean()
    assert (np.abs(longer) < 0.1).any()
    assert (np.abs(longer) > 0.1).any()
    expected = known.max(axis=1) + 0.3 * np.log(np.maximum(chance, 0.1))
    expected += 2.0 * np.minimum(np.maximum(longer, -0.1), 0.1)
    np.testing.assert_allclose(found, expected, rtol=1e-3)


def test_photos_of_none_of_the_classes_set_a_threshold_where_there_are_few_others() -> None:
    X, y = photos_of(3, 4, seed=1)
    memory = Memory(NO_CLASSES, class_statistics(X, y))
    head = make_scorer("ncm").adopt(memory)
    photos = KnownPhotos(tuple(y), tuple(map(str, range(len(y)))), X)
    strange, _ = photos_of(3, 2, seed=2, start=70)
    left = leave_out(head, memory, photos, strange)
    found = rejection_at(left, 0.05, None)
    assert found.thresholds == ()
    least, strangers = left.standing.min(), np.sort(left.strange_standing)
    assert strangers[-1] < least
    assert found.standing == pytest.approx((least + strangers[-1]) / 2)
    among = replace(left, strange_standing=strangers + (least - strangers[2]) + 0.5)
    assert rejection_at(among, 0.05, None).standing == pytest.approx((least + among.strange_standing[1]) / 2)
    above = replace(left, strange_standing=least + np.abs(strangers))
    assert rejection_at(above, 0.05, None).standing == least
    assert "one known photo in 13" in found.note
    assert rejection_at(leave_out(head, memory, photos, strange[:0]), 0.05, None).standing is None


def test_strangers_that_tell_nothing_are_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    X, y = photos_of(8, 5, seed=1)
    memory = Memory(NO_CLASSES, class_statistics(X, y))
    head = make_scorer("ncm").adopt(memory)
    photos = KnownPhotos(tuple(y), tuple(map(str, range(len(y)))), X)
    strange, _ = photos_of(4, 3, seed=2, start=70)
    assert leave_out(head, memory, photos, strange).standing is not None
    monkeypatch.setattr(rejection_module, "CLEARLY", -2.0)  # no way of judging is that much better
    left = leave_out(head, memory, photos, strange)
    found = rejection_at(left, 0.05, None)
    assert (left.standing, found.standing) == (None, None)
    assert found == shots(head, memory, photos)
    assert left.rejected(found) == (int((left.familiar < found.threshold(5)).sum()), 12)


def test_thresholds_on_photos_an_adapter_has_not_seen_keep_the_rate() -> None:
    """Photos that an adapter has seen lie nearer to their class than others do; those held back do not."""
    X, y = photos_of(40, 40, seed=1)
    held = hold_back(y, seed=0)
    centers = np.stack([X[y == label].mean(axis=0) for label in np.unique(y)])[
        np.unique(y, return_inverse=True)[1]
    ]
    X[~held] = (centers + 0.6 * (X - centers))[~held]  # as tuning draws them together
    head = make_scorer("ncm").learn(X, y)
    strict = fit_rejection(head, X, y, false_rejection=0.1, seed=3)  # three in four of its photos were seen
    right = fit_rejection(head, X, y, false_rejection=0.1, seed=3, held=held)
    others, _ = photos_of(40, 20, seed=3)
    assert rejected(head, strict, others).mean() > 0.2
    assert rejected(head, right, others).mean() == pytest.approx(0.1, abs=0.05)


def test_whether_anything_is_rejected_is_known_without_thresholds(make: Callable[..., Recognizer]) -> None:
    model = make(head="unbiased-lda")
    for number, name in enumerate(("ani", "kite", "owl", "rook"), start=1):
        model.learn_features(name, photos_named(name))
        assert can_reject(model.snapshot.contents) == bool(model.snapshot.rejection.counts) == (number == 4)
