from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from fiveshot import Recognizer
from fiveshot.backbones import load_embedder
from fiveshot.data import draw_samples
from fiveshot.features import embedded_features
from fiveshot.recognizer import can_reject, rejects_other_things
from fiveshot.recognizer.recognition.background import (
    FILE,
    LEAST_LIKENESS,
    Background,
    background_fingerprint,
    general_background,
)

WIDTH = 6


def rows(count: int, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(count, WIDTH)) * np.arange(1, WIDTH + 1) + 0.5


@pytest.fixture(scope="module")
def samples(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("drawn") / "samples"
    draw_samples(folder, seed=0)
    return folder


def test_likeness_is_the_mean_cosine_with_the_photos_of_a_class_after_whitening() -> None:
    general, classes, asked = rows(40, 0), [rows(1, 1), rows(4, 2)], rows(7, 3)
    background = Background.of(general)

    unit = [one / np.linalg.norm(one) for one in general]
    center = sum(unit) / len(unit)
    covariance = sum(np.outer(one - center, one - center) for one in unit) / (len(unit) - 1)
    shrunk = covariance + np.trace(covariance) / WIDTH * np.eye(WIDTH)
    inverse = np.linalg.inv(shrunk)

    def cosine(a: np.ndarray, b: np.ndarray) -> float:
        a, b = a / np.linalg.norm(a) - center, b / np.linalg.norm(b) - center
        return float(a @ inverse @ b / np.sqrt((a @ inverse @ a) * (b @ inverse @ b)))

    expected = [max(np.mean([cosine(one, photo) for photo in X]) for X in classes) for one in asked]
    np.testing.assert_allclose(background.likeness(asked, background.means(classes)), expected, atol=1e-10)


def test_a_photo_left_out_is_compared_with_the_other_photos_of_its_class() -> None:
    background, classes = Background.of(rows(40, 0)), [rows(1, 1), rows(3, 2), rows(2, 3)]
    expected = []
    for number in (1, 2):  # a class of one photo has none to leave out
        for place in range(len(classes[number])):
            rest = [*classes[:number], np.delete(classes[number], place, axis=0), *classes[number + 1 :]]
            expected.append(background.likeness(classes[number][[place]], background.means(rest))[0])
    np.testing.assert_allclose(background.left_out(classes), expected, atol=1e-10)


def test_the_file_comes_back_as_it_was_written(tmp_path: Path) -> None:
    background = Background.of(rows(40, 0))
    background.save(tmp_path / "background.safetensors", "print")
    read = Background.load(tmp_path / "background.safetensors")
    np.testing.assert_allclose(read.center, background.center, rtol=1e-3)
    np.testing.assert_allclose(read.whitening, background.whitening, rtol=1e-3, atol=1e-6)


def test_the_file_that_comes_with_fiveshot_is_for_the_embedded_network() -> None:
    assert background_fingerprint() == load_embedder().fingerprint
    assert FILE.stat().st_size < 250_000
    assert general_background().whitening.shape == (320, 320)


def test_two_classes_of_two_pictures_tell_quite_other_things(samples: Path, tmp_path: Path) -> None:
    with Recognizer.create(tmp_path / "model") as model:
        for name in ("apple", "tree"):
            model.learn(name, [samples / "learn" / name / f"{n}.jpg" for n in (1, 2)])
        strange = model.predict(samples / "strange")
        assert [one.answer for one in strange] == ["unknown"] * 3
        for name in ("apple", "tree"):
            found = model.predict(samples / "test" / name)
            assert [one.label for one in found] == [name] * len(found)
        assert {(one.can_be_unknown, one.threshold) for one in [*strange, *found]} == {(True, LEAST_LIKENESS)}
        assert not can_reject(model.snapshot.contents)
        assert rejects_other_things(model.snapshot.contents)
        said = "so far only photos of completely different things are called unknown: to reject look-alikes, 19"
        assert model.show().rejection.startswith(said)
        assert model.snapshot.rejected_at(0.05).note == model.snapshot.rejection.note == model.show().rejection


def test_a_single_class_tells_quite_other_things_and_has_no_percentage(samples: Path, tmp_path: Path) -> None:
    with Recognizer.create(tmp_path / "model") as model:
        model.learn("tree", [samples / "learn" / "tree" / "1.jpg"])
        strange = model.predict(samples / "strange")
        known = model.predict(samples / "test" / "tree")
    assert [(one.answer, one.probability) for one in strange] == [("unknown", None)] * 3
    assert {(one.answer, one.probability) for one in known} == {("class", None)}


def test_nineteen_photos_give_a_threshold_of_their_own(tmp_path: Path) -> None:
    birds = embedded_features("cub200")
    with Recognizer.create(tmp_path / "model") as model:
        for number, photos in enumerate((9, 9, 1)):
            own = np.asarray(birds.train_x[birds.train_y == number], dtype=np.float32)
            model.learn_features(f"bird {number}", own[:photos])
        assert model.snapshot.rejection.background == LEAST_LIKENESS
        assert model.snapshot.rejected_at(0.05).photos == 18
        assert model.snapshot.rejected_at(0.1).note.startswith("set on 18 learned photos")
        model.learn_features("bird 2", own[1:2], add=True)
        assert model.snapshot.rejection.background is None
        assert model.snapshot.rejection.note.startswith("set on 20 learned photos")


@pytest.mark.parametrize("given", [{"views": 1}, {"false_rejection": 0.001}])
def test_other_features_and_very_small_rates_reject_nothing_early(given: dict[str, float], tmp_path: Path) -> None:
    with Recognizer.create(tmp_path / "model", **given) as model:
        model.learn_features("owl", np.ones((2, 320)) + np.eye(2, 320))
        (found,) = model.predict_features(-np.ones((1, 320)))
        assert (found.label, found.can_be_unknown) == ("owl", False)
        assert model.show().rejection.startswith("nothing can be called unknown yet")
