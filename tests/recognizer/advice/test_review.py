"""What a review finds is what was planted, what it expects comes true, and what it does is one change."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from models import held, new_model, photos
from numpy.typing import NDArray

from fiveshot.core import NO_CLASSES, Memory, class_statistics
from fiveshot.core.scorers import make_scorer
from fiveshot.errors import InputError
from fiveshot.recognizer import (
    ConflictError,
    PhotoRecord,
    Recognizer,
    apply_review,
    correct_seen,
    keep_photos,
    review,
)
from fiveshot.recognizer.advice.review import review_photos
from fiveshot.recognizer.recognition._held_out import HeldOutHeads
from fiveshot.recognizer.store.contents import KnownPhotos
from fiveshot.recognizer.store.rows import number_bytes
from fiveshot.values import to_json

BIRDS = ("crow", "owl", "swift", "wren")


@pytest.fixture
def birds(tmp_path: Path) -> Iterator[Recognizer]:
    """A model of four classes; one photo of an owl was learned as a wren (p24), one of the crow's twice (p25)."""
    with new_model(tmp_path / "birds", head="unbiased-lda", width=48) as model:
        for name in BIRDS:
            model.learn_features(name, photos(name, 6, width=48)[: 5 if name == "owl" else 6])
        model.learn_features("wren", photos("owl", 6, width=48)[5:], add=True)
        model.learn_features("crow", photos("crow", 6, width=48)[:1] * 1.0001, add=True)
        yield model


def test_planted_mistakes_are_found_and_put_right_in_one_change(birds: Recognizer) -> None:
    found = review(birds)
    (mixed,) = found.of(["mixed-up"])
    assert (mixed.photo, mixed.label, mixed.action, mixed.to) == ("p24", "wren", "move", "owl")
    assert mixed.beside in {one.id for one in birds.photos("owl")}
    (twice,) = found.of(["duplicates"])
    assert (twice.photo, twice.beside, twice.action, twice.to) == ("p25", "p1", "remove", None)
    before = held(birds)
    done = apply_review(birds, found.of(["mixed-up", "duplicates"]))
    assert done.counts == {"wren": 6, "owl": 6, "crow": 6}
    again = review(birds)
    assert again.accuracy == 1.0
    assert not again.of(["mixed-up", "duplicates"])
    assert birds.history(1)[0].action == "review"
    assert birds.undo().action == "review"
    assert held(birds)["classes"] == before["classes"]
    assert birds.check() == []


def test_harm_is_looked_for_as_long_as_others_can_be_left_out(tmp_path: Path) -> None:
    """Two harmful photos of a class of three: without both, its last one could not be judged."""
    rng = np.random.default_rng(5)
    plane = rng.normal(size=(3, 384))
    with new_model(tmp_path / "things", head="unbiased-lda", width=384) as model:
        for number in range(30):
            shots = rng.normal(size=(1, 3)) + 0.8 * rng.normal(size=(3, 3))
            model.learn_features(f"{number}", shots @ plane + 0.3 * rng.normal(size=(3, 384)))
        harmful = [one.label for one in review(model).of(["harmful"])]
    assert harmful
    assert len(set(harmful)) == len(harmful)  # one of three at most


def test_what_is_kept_is_not_suggested_again_until_that_is_undone(birds: Recognizer) -> None:
    keep_photos(birds, ["p24"], "mixed-up")
    found = review(birds)
    assert (found.of(["mixed-up"]), found.kept) == ((), 1)
    assert [(one.photo, one.firm) for one in review(birds, kept=True).of(["mixed-up"])] == [("p24", False)]
    assert birds.undo().action == "keep"
    assert [(one.photo, one.firm) for one in review(birds).of(["mixed-up"])] == [("p24", True)]
    with pytest.raises(InputError) as missing:
        keep_photos(birds, ["p99"], "mixed-up")
    assert missing.value.code == "no_photo"
    with pytest.raises(InputError):
        keep_photos(birds, ["p24"], "boring")


def test_nothing_is_suggested_about_photos_that_somebody_moved_or_corrected(birds: Recognizer) -> None:
    birds.move("p24", to="swift")  # wrong, but somebody said so
    assert "p24" not in {one.photo for one in review(birds).suggestions}
    assert "p24" in {one.photo for one in review(birds, kept=True).suggestions}
    birds.undo()
    assert "p24" in {
        one.photo for one in review(birds).suggestions
    }  # it is in the class again where nobody put it
    wren = photos("wren", 8, width=48)[7]
    sha256 = hashlib.sha256(number_bytes(wren)).hexdigest()
    correct_seen(birds, [PhotoRecord(sha256, wren)], "swift")
    (told,) = [one.id for one in birds.photos("swift") if one.sha256 == sha256]
    assert told not in {one.photo for one in review(birds).suggestions}
    assert told in {one.photo for one in review(birds, kept=True).suggestions}


def test_a_decision_holds_until_the_class_changes_much(birds: Recognizer) -> None:
    keep_photos(birds, "p24", "mixed-up")
    more = photos("wren", 30, width=48, seed=3)
    birds.learn_features("wren", more[:6], add=True)  # 7 photos, then 13
    assert "p24" not in {one.photo for one in review(birds).suggestions}
    birds.learn_features("wren", more[6:7], add=True)  # 14
    assert "p24" in {one.photo for one in review(birds).suggestions}
    keep_photos(birds, "p24", "mixed-up")
    assert "p24" not in {one.photo for one in review(birds).suggestions}
    birds.remove([one.id for one in birds.photos("wren") if one.id != "p24"][:7])
    assert "p24" in {one.photo for one in review(birds).suggestions}


def test_two_people_decide_at_once(birds: Recognizer) -> None:
    with Recognizer.open(birds.path) as elsewhere:
        found = review(birds)
        keep_photos(elsewhere, "p24", "mixed-up")
        keep_photos(birds, "p24", "outliers")  # once more does no harm
        assert "p24" not in {one.photo for one in review(birds).suggestions}
        elsewhere.move(all_of="wren", to="owl")
        with pytest.raises(InputError):
            apply_review(birds, found.of(["mixed-up"]))


def test_what_a_suggestion_rests_on_is_said_and_few_photos_make_none_firm(birds: Recognizer) -> None:
    (mixed,) = review(birds).of(["mixed-up"])
    assert mixed.firm
    assert mixed.reason == "5 of the 5 nearest photos are of 'owl'; left out, it is called 'owl' with over 99 %"
    (twice,) = review(birds).of(["duplicates"])
    assert twice.firm
    birds.remove([one.id for one in birds.photos("owl")][:3])  # two owls are left
    (mixed,) = review(birds).of(["mixed-up"])
    assert (mixed.to, mixed.firm) == ("owl", False)
    assert mixed.reason.startswith("2 of the 5 nearest photos are of 'owl'; left out, it is called 'owl' with ")
    assert review(birds).of(["mixed-up"], firm=True) == ()


def test_a_hard_photo_is_shown_and_not_firm(tmp_path: Path) -> None:
    """A photo between two classes: it fits the other one a little better, which proves nothing."""
    owls, wrens = photos("owl", 8, width=48), photos("wren", 8, width=48)
    between = (0.45 * wrens[7] + 0.55 * owls[7])[None]
    with new_model(tmp_path / "birds", head="unbiased-lda", width=48) as model:
        for name in ("crow", "swift", "kite", "rook"):
            model.learn_features(name, photos(name, 6, width=48))
        model.learn_features("owl", owls[:5])
        model.learn_features("wren", np.concatenate([wrens[:5], between]))
        told = [one for one in review(model).suggestions if one.label == "wren"]
    assert told
    assert not any(one.firm for one in told)


def test_nothing_is_firm_about_classes_that_are_hardly_recognized(tmp_path: Path) -> None:
    """The same wrong photo, first with owls of one kind, then with owls that are recognized as something else."""
    crows, owls = photos("crow", 12, width=48), photos("owl", 8, width=48)
    for own, firm in ((crows[:5], True), (np.concatenate([crows[:2], photos("swift", 9, width=48)[6:]]), False)):
        with new_model(tmp_path / f"birds {firm}", head="unbiased-lda", width=48) as model:
            for name in ("swift", "kite", "rook", "jay"):
                model.learn_features(name, photos(name, 6, width=48))
            model.learn_features("owl", owls[:6])
            model.learn_features("crow", np.concatenate([own, owls[7:]]))  # its last photo shows an owl
            wrong = model.photos("crow")[-1].id
            (told,) = [one for one in review(model).of(["mixed-up"]) if one.photo == wrong]
        assert (told.to, told.firm) == ("owl", firm)


def alike(tmp_path: Path) -> Recognizer:
    """Two names for one bird, and three other classes."""
    model = new_model(tmp_path / "alike", head="unbiased-lda", width=48)
    for name in ("crow", "swift", "wren"):
        model.learn_features(name, photos(name, 6, width=48))
    both = photos("owl", 10, width=48, seed=1)
    model.learn_features("barn owl", both[::2])
    model.learn_features("owl", both[1::2])
    return model


def test_two_classes_that_look_like_one_are_told_once(tmp_path: Path) -> None:
    with alike(tmp_path) as model:
        found = review(model)
        (pair,) = [one for one in found.pairs if one.alike]
        assert pair.classes == ("barn owl", "owl")
        assert pair.advice.startswith("these two are told apart no better than by chance (")
        assert pair.advice.endswith("join them, or add photos that differ")
        assert not [one for one in found.of(["mixed-up"]) if {one.label, one.to} == {"owl", "barn owl"}]
        right = sum(one.taken_for is None for name in pair.classes for one in model.photos(name))
        assert f"({right} of 10 photos left out" in pair.advice
        model.move(all_of="barn owl", to="owl")
        assert not any(one.alike for one in review(model).pairs)


def test_classes_that_differ_are_not_called_alike(birds: Recognizer) -> None:
    assert not any(one.alike for one in review(birds).pairs)


def test_a_photo_that_was_moved_meanwhile_is_left_alone(birds: Recognizer) -> None:
    found = review(birds)
    birds.move("p24", to="swift")
    with pytest.raises(ConflictError):
        apply_review(birds, found.of(["mixed-up"]))
    with pytest.raises(InputError) as nothing:
        apply_review(birds, [])
    assert nothing.value.code == "nothing_to_apply"


def test_a_class_of_two_strangers_keeps_one_of_them(tmp_path: Path) -> None:
    with new_model(tmp_path / "birds", head="unbiased-lda", width=48) as model:
        for name in BIRDS:
            model.learn_features(name, photos(name, 6, width=48))
        model.learn_features("stork", [photos("owl", 8, width=48)[7], photos("wren", 8, width=48)[7]])
        suggested = [one for one in review(model).of(["mixed-up"]) if one.label == "stork"]
        assert len(suggested) == 2
        apply_review(model, suggested)
        assert len(model.photos("stork")) == 1


def test_models_that_say_little_are_reviewed_as_well(tmp_path: Path) -> None:
    with new_model(tmp_path / "birds", head="unbiased-lda") as model:
        with pytest.raises(InputError) as nothing:
            review(model)
        assert nothing.value.code == "no_classes"
        model.learn_features("owl", photos("owl", 3))
        alone = review(model)
        assert (alone.accuracy, alone.expected, alone.pairs) == (None, (), ())
        model.learn_features("wren", photos("wren", 1))
        found = review(model)
        assert {one.name: one.accuracy is None for one in found.classes} == {"owl": False, "wren": True}
        json.dumps(to_json(found), allow_nan=False)


def test_photos_added_to_a_base_class_are_judged_beside_its_statistics(tmp_path: Path) -> None:
    base = tuple(f"bird {number}" for number in range(12))
    with new_model(tmp_path / "birds", base=base, head="unbiased-lda") as model:
        model.learn_features("owl", photos("owl", 5))
        model.learn_features("bird 3", [*photos("bird 3", 1, seed=1), photos("owl", 7)[6]], add=True)
        found = review(model)
        assert [(one.photo, one.to) for one in found.of(["mixed-up"])] == [("p7", "owl")]
        assert found.judged == 7
        apply_review(model, found.of(["mixed-up"]))
        assert review(model).accuracy == 1.0


def test_recognized_when_left_out_is_one_number(tmp_path: Path) -> None:
    rng = np.random.default_rng(4)
    centers = rng.normal(size=(6, 48))
    shots = {f"bird {n}": 0.5 * center + rng.normal(size=(5, 48)) for n, center in enumerate(centers)}
    with new_model(tmp_path / "birds", head="unbiased-lda", width=48) as model:
        for name, rows in list(shots.items())[:-1]:
            model.learn_features(name, rows)
        last = model.learn_features("bird 5", shots["bird 5"][:2])
        last = model.learn_features("bird 5", shots["bird 5"][2:], add=True)
        reviewed = {one.name: one.accuracy for one in review(model).classes}
        shown = {name: np.mean([one.taken_for is None for one in model.photos(name)]) for name in shots}
    assert reviewed == pytest.approx(shown)
    assert last.accuracy == pytest.approx(reviewed["bird 5"])
    assert 0 < np.mean(list(reviewed.values())) < 1


def test_no_photo_is_known_by_heart_in_a_large_model() -> None:
    """Hundreds of classes of noise cannot be told apart, with any shortcut."""
    rng = np.random.default_rng(0)
    labels = np.repeat([f"{number:03}" for number in range(120)], 3)
    X = rng.normal(size=(360, 300)).astype(np.float32)
    head = make_scorer("unbiased-lda")
    memory = Memory(NO_CLASSES, class_statistics(head.embed(X), labels))
    assert HeldOutHeads(head.adopt(memory), memory, known(labels, X)).judge().right.mean() < 0.05


def known(labels: NDArray[np.str_], X: NDArray[np.float32]) -> KnownPhotos:
    return KnownPhotos(tuple(labels.tolist()), tuple(map(str, range(len(X)))), X)


@pytest.mark.parametrize("name", ["ncm", "c-fecam", "unbiased-lda"])
def test_a_photo_is_judged_by_a_head_that_has_not_learned_it(name: str) -> None:
    labels = np.repeat(np.array(BIRDS), 3)
    X = np.concatenate([photos(one, 3) for one in BIRDS])
    head = make_scorer(name)
    memory = Memory(NO_CLASSES, class_statistics(head.embed(X), labels))
    judged = HeldOutHeads(head.adopt(memory), memory, known(labels, X)).judge()
    in_order = np.concatenate(
        [sorted(range(start, start + 3), key=lambda r: X[r].tobytes()) for start in (0, 3, 6, 9)]
    )
    for turn in range(3):  # of three photos each is left out alone, the same one of every class together
        left_out = np.isin(np.arange(12), in_order[turn::3])
        other = make_scorer(name)
        other = other.adopt(Memory(NO_CLASSES, class_statistics(other.embed(X[~left_out]), labels[~left_out])))
        chances = other.probabilities(X[left_out])
        expected = chances[np.arange(4), np.searchsorted(other.classes, labels[left_out])]
        np.testing.assert_allclose(judged.own[left_out], expected, rtol=1e-4, atol=1e-6)


def test_more_photos_are_expected_to_help_where_there_are_mistakes() -> None:
    rng = np.random.default_rng(0)
    centers = {name: rng.normal(size=24) for name in BIRDS}
    centers["hawk"] = centers["owl"] + 0.1 * rng.normal(size=24)
    labels = np.repeat(np.array(list(centers)), 6)
    X = np.array([centers[name] + 0.5 * rng.normal(size=24) for name in labels], np.float32)
    head = make_scorer("unbiased-lda")
    memory = Memory(NO_CLASSES, class_statistics(head.embed(X), labels))
    found = review_photos(
        head.adopt(memory), memory, known(labels, X), [str(n) for n in range(30)], state=1, seed=0
    )
    assert {one.name for one in found.classes[:2]} == {"hawk", "owl"}
    assert found.pairs[0].classes == ("hawk", "owl")
    assert list(found.expected) == sorted(found.expected)
    for one in found.classes:
        assert one.gain == pytest.approx(one.expected[1] - one.expected[0])
        assert 0 <= one.gain <= 1


def test_the_nearest_learned_photos_say_why(birds: Recognizer) -> None:
    (answer,) = birds.predict_features(photos("owl", 6, width=48)[:1], why=3)
    assert answer.why[0].id == birds.photos("owl")[0].id
    assert answer.why[0].label == "owl"
    assert answer.why[0].likeness == pytest.approx(1.0, abs=1e-6)
    assert [one.likeness for one in answer.why] == sorted((one.likeness for one in answer.why), reverse=True)
    assert to_json(answer)["why"][0]["id"] == answer.why[0].id
    (plain,) = birds.predict_features(photos("owl", 6, width=48)[:1])
    assert plain.why == ()
    with pytest.raises(InputError):
        birds.predict_features(photos("owl", 1, width=48), why=-1)
