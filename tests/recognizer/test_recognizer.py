"""The recogniser with real image files and a tiny ViT: photos in, classes out."""

from __future__ import annotations

import io
import os
import shutil
import warnings
import zlib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from file_limits import no_file_may_grow_beyond
from models import held, photos
from PIL import Image
from tiny_vit import TINY, write_weights

torch = pytest.importorskip("torch", reason="the extra 'torch' is not installed")

from fiveshot.backbones import BackboneSpec, load_backbone, read_adapter
from fiveshot.data.sources import content_mark
from fiveshot.errors import FiveshotError, InputError, StorageError
from fiveshot.recognizer import Recognizer, evaluate, import_file, thumbnails
from fiveshot.recognizer.creation import MAY_BE_SEEN, base_images, with_unseen
from fiveshot.recognizer.photos import embedding
from fiveshot.recognizer.store.contents import same_statistics
from fiveshot.tuning import TuneRecipe, create_tuned, retune, tune
from fiveshot.values import to_json

COLOURS = {"blue": (40, 60, 200), "green": (50, 180, 60), "red": (200, 50, 40), "grey": (128, 128, 128)}
SETTINGS = {"epochs": 1, "bottleneck": 4, "batch_size": 8}


@pytest.fixture
def create(tmp_path: Path, tiny_file: Path) -> Callable[..., Recognizer]:
    def create(
        name: str = "model", make: Callable[..., Recognizer] = Recognizer.create, **given: object
    ) -> Recognizer:
        return make(tmp_path / name, backbone=TINY, weights=tiny_file, device="cpu", runtime="torch", **given)

    return create


def draw(folder: Path, name: str, count: int, *, seed: int = 0) -> Path:
    """Draw noisy pictures in a class's color."""
    (folder / name).mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng([seed, zlib.crc32(name.encode())])
    for number in range(count):
        pixels = np.array(COLOURS.get(name, (99, 99, 99))) + rng.normal(0, 25, (40, 50, 3))
        file = folder / name / f"{seed}-{number}.png"
        Image.fromarray(np.clip(pixels, 0, 255).astype(np.uint8)).save(file)
    return folder / name


def test_learn_predict_forget(create: Callable[..., Recognizer], tmp_path: Path) -> None:
    with create() as model:
        report = model.learn("red", draw(tmp_path / "p", "red", 5))
        assert (report.name, report.photos, report.accuracy) == ("red", 5, None)
        reports = model.learn_many({name: draw(tmp_path / "p", name, 5) for name in ("blue", "green")})
        assert [one.name for one in reports] == ["blue", "green"]
        test = [draw(tmp_path / "t", name, 1, seed=1) for name in ("blue", "green", "red")]
        seen: list[tuple[int, int]] = []
        found = model.predict(test, top=2, progress=lambda *now: seen.append(now))
        assert seen[-1] == (3, 3)
        assert [one.candidates[0].label for one in found] == ["blue", "green", "red"]
        assert found[0].photo == str(test[0] / "1-0.png")
        model.forget("red", for_good=True)
        assert model.predict(test[2])[0].candidates[0].label != "red"
        assert model.check() == []


def test_it_says_what_it_is(create: Callable[..., Recognizer], tmp_path: Path) -> None:
    with create(tmp_path / "model") as model:
        model.learn("owl", Image.new("RGB", (64, 64), "red"))
        said = f"<Recognizer {tmp_path / 'model'}, 1 class>"
        assert repr(model) == said
    assert repr(model) == said  # also of one that is closed


def test_opening_needs_no_backbone(
    create: Callable[..., Recognizer], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with create() as model:
        model.learn("red", draw(tmp_path / "p", "red", 2))

    def loaded(*_: object, **__: object) -> None:
        raise AssertionError("the backbone was loaded")

    monkeypatch.setattr(embedding, "open_backbone", loaded)
    with Recognizer.open(tmp_path / "model", readonly=True) as again:
        assert again.show().classes[0].name == "red"
        assert again.snapshot.manifest.backbone.name == TINY


def test_a_folder_of_folders_is_learned_as_a_whole(create: Callable[..., Recognizer], tmp_path: Path) -> None:
    for name in COLOURS:
        draw(tmp_path / "p", name, 3)
    seen: list[tuple[int, int]] = []
    with create() as model:
        reports = model.learn_many(tmp_path / "p", progress=lambda done, total: seen.append((done, total)))
        assert [one.name for one in reports] == sorted(COLOURS)
        assert seen[-1] == (12, 12)
        assert all(one.nearest is not None for one in reports), "classes learned together are compared too"
        copied = next((tmp_path / "p" / "red").iterdir()).read_bytes()
        twins = model.learn_many({"crimson": copied, "scarlet": [copied, copied[:]]})
        assert {(one.name, found.label) for one in twins for found in one.duplicates} >= {
            ("crimson", "red"),
            ("scarlet", "scarlet"),
        }
        model.undo()
        (tmp_path / "p" / "red" / "bad.png").write_bytes(b"not a picture")
        before = held(model)
        with pytest.raises(InputError, match=r"1 of 13 photos cannot be used:\n.*bad.png: not a photo"):
            model.learn_many(tmp_path / "p", add=True)
        assert held(model) == before
        with pytest.raises(InputError, match=r"known already: 4 of 4 classes \('blue', "):
            model.learn_many(tmp_path / "p")
        assert model.undo().classes == tuple(sorted(COLOURS))


@pytest.mark.parametrize(
    "given",
    [b"", b"no photo", b"\xff\xd8\xff\xe0 cut", "nothing/*.jpg", "no such file.jpg", [], 7, None, "."],
    ids=repr,
)
def test_what_is_no_photo(
    create: Callable[..., Recognizer], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, given: object
) -> None:
    with create() as model:
        (tmp_path / "empty").mkdir()
        monkeypatch.chdir(tmp_path / "empty")
        for ask in (lambda: model.learn("red", given), lambda: model.predict(given)):
            with pytest.raises(FiveshotError):
                ask()
        assert model.snapshot.classes == ()


def test_thumbnails_hide_what_the_camera_wrote(create: Callable[..., Recognizer], tmp_path: Path) -> None:
    exif = Image.Exif()
    exif[0x010E] = "taken at home"
    buffer = io.BytesIO()
    Image.new("RGB", (600, 300), "red").save(buffer, "JPEG", exif=exif)
    assert b"taken at home" in buffer.getvalue()
    with create(keep_photos=False) as model:
        model.learn("red", [buffer.getvalue(), Image.new("RGB", (30, 30), "darkred")])
        small = thumbnails(model, "red")
        assert [Image.open(io.BytesIO(data)).size for data in small] == [(128, 64), (30, 30)]
    for file in (tmp_path / "model").iterdir():
        assert b"taken at home" not in file.read_bytes()
    with create("without", thumbnails=False) as model:
        model.learn("red", buffer.getvalue())
        assert thumbnails(model, "red") == []


def test_threads_leave_the_process_as_it_was(create: Callable[..., Recognizer], tmp_path: Path) -> None:
    with create() as model:
        model.learn_many({name: draw(tmp_path / "p", name, 3) for name in ("blue", "red")})
        model.predict(tmp_path / "p" / "red")
        before = torch.get_num_threads(), list(warnings.filters)
        torch.set_num_threads(2)
        try:
            with ThreadPoolExecutor(4) as pool:
                found = list(pool.map(lambda _: model.predict(tmp_path / "p")[0].label, range(24)))
            assert set(found) <= {"blue", None}
            assert torch.get_num_threads() == 2
        finally:
            torch.set_num_threads(before[0])
        assert list(warnings.filters) == before[1]


def test_a_base_and_what_evaluation_says(create: Callable[..., Recognizer], tmp_path: Path) -> None:
    for name in ("blue", "green"):
        draw(tmp_path / "base", name, 12)
    for name in COLOURS:
        draw(tmp_path / "test", name, 4, seed=2)
    with create(base=tmp_path / "base") as model:
        assert (model.show().base_classes, model.show().new_classes) == (2, 0)
        model.learn("red", draw(tmp_path / "p", "red", 5))
        result = evaluate(model, tmp_path / "test")
    assert (result.photos, result.unknown_photos) == (12, 4)
    right = sum(one.right for one in result.classes)
    assert result.accuracy == right / 12
    assert [one.name for one in result.classes] == ["blue", "green", "red"]
    assert sum(one.count for one in result.confusions) == 12 - right
    rejected = sum(one.rejected for one in result.classes)
    assert result.false_rejection == rejected / 12
    assert 0 <= result.unknown_auroc <= 1
    assert to_json(result)["classes"][0]["accuracy"] == result.classes[0].accuracy
    known = [one for one in result.wrong if one.name in ("blue", "green", "red")]
    assert sum(one.shown_as is None for one in known) == rejected
    accepted = 12 - rejected
    assert accepted - sum(one.shown_as is not None for one in known) == pytest.approx(
        accepted * (result.accepted_accuracy or 0)
    )
    assert len(result.wrong) - len(known) == pytest.approx(4 * (1 - result.unknown_rejection))
    assert all(one.photo.startswith(str(tmp_path / "test" / one.name)) for one in result.wrong)
    assert [one.shown_as is None for one in result.wrong] == sorted(one.shown_as is None for one in result.wrong)


def test_evaluation_says_what_it_rests_on(create: Callable[..., Recognizer], tmp_path: Path) -> None:
    with create() as model:
        model.learn("blue", draw(tmp_path / "p", "blue", 3))
        model.learn("red", draw(tmp_path / "p", "red", 3))
        for name in ("blue", "red", "grey"):
            draw(tmp_path / "test", name, 2, seed=2)
        clean = evaluate(model, tmp_path / "test")
        shutil.copy(tmp_path / "p" / "red" / "0-0.png", tmp_path / "test" / "red" / "another name.png")
        shutil.copy(tmp_path / "p" / "blue" / "0-1.png", tmp_path / "test" / "grey" / "misplaced.png")
        (tmp_path / "test" / "blue").rename(tmp_path / "test" / "BLUE")
        shutil.copytree(tmp_path / "test" / "BLUE", tmp_path / "test" / "reds")
        result = evaluate(model, tmp_path / "test")
    assert (clean.learned_photos, [str(one) for one in clean.other_folders]) == (0, ["grey"])
    assert (result.photos, result.unknown_photos, result.learned_photos) == (3, 7, 2)
    assert [str(one) for one in result.other_folders] == ["BLUE (like 'blue'?)", "grey", "reds (like 'red'?)"]
    said = to_json(result)
    assert said["other_folders"][0] == {"name": "BLUE", "photos": 2, "like": "blue"}
    assert said["learned_photos"] == 2
    assert result.accuracy == sum(one.right for one in result.classes) / 3  # the learned one counts as before


def test_new_only_learns_what_is_not_known(create: Callable[..., Recognizer], tmp_path: Path) -> None:
    folders = {name: draw(tmp_path / "p", name, 2) for name in ("blue", "green", "red")}
    with create() as model:
        model.learn("green", folders["green"])
        with pytest.raises(InputError, match=r"known already: 1 of 3 classes \('green'\); .*--new-only.*--add"):
            model.learn_many(tmp_path / "p")
        with pytest.raises(InputError, match="contradict each other"):
            model.learn_many(tmp_path / "p", add=True, new_only=True)
        assert [one.name for one in model.learn_many(tmp_path / "p", new_only=True)] == ["blue", "red"]
        state = model.snapshot.state
        assert model.learn_many(tmp_path / "p", new_only=True) == []
        assert model.refresh().state == state
        with pytest.raises(InputError, match="probably classes"):
            model.learn("all", tmp_path / "p")


def test_a_base_of_one_class_is_refused(create: Callable[..., Recognizer], tmp_path: Path) -> None:
    draw(tmp_path / "base", "red", 3)
    with pytest.raises(InputError, match="one class in the base, 'red', but a base needs two or more"):
        create(base=tmp_path / "base")
    with pytest.raises(InputError, match="no head 'ranpak'; did you mean 'ranpac'"):
        create(head="ranpak")
    with pytest.raises(InputError, match="cannot be built from class statistics"):
        create(head="ranpac")
    with pytest.raises(InputError, match="give base=DIR with it"):
        create_tuned(tmp_path / "model", None)
    with pytest.raises(InputError, match="cannot be built from class statistics"):
        create_tuned(tmp_path / "model", tmp_path / "base", head="ranpac")
    assert not (tmp_path / "model").exists()


def test_another_backbone_is_refused(create: Callable[..., Recognizer], tmp_path: Path) -> None:
    red = draw(tmp_path / "p", "red", 2)
    with create() as model:
        model.learn("red", red)
    other = write_weights(tmp_path / "other.safetensors", seed=2)
    opening = {"device": "cpu", "runtime": "torch"}
    with Recognizer.open(tmp_path / "model", weights=other, **opening) as model:
        with pytest.raises(InputError, match=r"not the test_vit.r160_in1k that the model was made with"):
            model.predict(red)
        with pytest.raises(InputError, match="not the"):
            model.learn("blue", red)
        assert model.snapshot.classes == ("red",)
    lost = Recognizer.open(tmp_path / "model", weights=tmp_path / "moved", **opening)
    with lost, pytest.raises(StorageError, match=r"are not at .*moved; give their place with weights=FILE"):
        lost.predict(red)


def test_tuning_switches_everything_at_once(
    create: Callable[..., Recognizer], tmp_path: Path, reopen: Callable[..., Recognizer]
) -> None:
    for name in ("blue", "green"):
        draw(tmp_path / "base", name, 6)
    with create(base=tmp_path / "base", keep_photos=True) as model:
        for name in ("red", "grey"):
            model.learn(name, draw(tmp_path / "p", name, 3))
        model.learn("blue", draw(tmp_path / "p", "blue", 2, seed=3), add=True)
        model.learn("one", next((tmp_path / "p" / "red").iterdir()))  # too few to train on, kept nevertheless
        reader = reopen(model.path, readonly=True, device="cpu", runtime="torch")
        before, early = held(model), model.snapshot
        with pytest.raises(InputError, match=r"2 base classes, whose photos are not in it.*base=DIR"):
            retune(model, settings=SETTINGS)
        assert held(model) == before
        result = retune(model, base=tmp_path / "base", settings=SETTINGS)
        assert result.best_epoch == 1
        assert model.snapshot.manifest.backbone.adapter.startswith("adapter-")
        assert model.snapshot.classes == early.classes
        counts = model.snapshot.memory.statistics.counts
        assert np.array_equal(counts, early.memory.statistics.counts)
        assert not np.array_equal(model.snapshot.memory.statistics.means, early.memory.statistics.means)
        assert model.check() == []
        test = draw(tmp_path / "t", "red", 3, seed=4)
        assert reader.predict(test) == model.predict(test), "a reader takes up the new backbone with the features"
        with pytest.raises(InputError, match=r"tune, cannot be undone.*exported copy"):
            model.undo()
        model.learn("red", test, add=True)
        assert model.undo().action == "add"
        retune(model, base=tmp_path / "base", settings=SETTINGS)
        assert len(list(model.path.glob("adapter-*"))) == 1, "the adapter before is gone"


def test_tuning_needs_the_photos(create: Callable[..., Recognizer], tmp_path: Path) -> None:
    with create() as model:
        for name in ("red", "grey"):
            model.learn(name, draw(tmp_path / "p", name, 2))
        with pytest.raises(InputError, match=r"2 classes were not kept: 'red', 'grey'.*keep_photos=True"):
            retune(model, settings=SETTINGS)


@pytest.mark.parametrize("limit", [1000, 60_000], ids=["checkpoint", "adapter or database"])
def test_retuning_without_room_leaves_the_model_as_it_was(
    create: Callable[..., Recognizer], tmp_path: Path, limit: int
) -> None:
    with create(keep_photos=True) as model:
        for name in ("red", "grey"):
            model.learn(name, draw(tmp_path / "p", name, 2))
        before, files = held(model), sorted(path.name for path in model.path.iterdir())
        with no_file_may_grow_beyond(limit), pytest.raises(StorageError):
            retune(model, settings=SETTINGS)
        assert held(model) == before
        assert sorted(path.name for path in model.path.iterdir()) == files
        assert model.check() == []
        retune(model, settings=SETTINGS)
        assert held(model) != before


def test_a_change_during_tuning_is_not_lost(
    create: Callable[..., Recognizer], tmp_path: Path, reopen: Callable[..., Recognizer]
) -> None:
    with create(keep_photos=True) as model:
        for name in ("red", "grey"):
            model.learn(name, draw(tmp_path / "p", name, 2))
        second = reopen(model.path)

        def learn_meanwhile(_: object) -> None:
            if "blue" not in second.refresh().classes:
                second.learn_features("blue", photos("blue", 2, width=second.snapshot.contents.width))

        with pytest.raises(InputError, match="changed while it was tuned; nothing was switched"):
            retune(model, settings=SETTINGS, on_tuning=learn_meanwhile)
        assert model.refresh().classes == ("blue", "grey", "red")
        assert list(model.path.glob("adapter-*")) == []
        assert model.check() == []


def test_thresholds_are_set_on_what_a_separate_tuning_held_back(
    create: Callable[..., Recognizer], tiny_file: Path, tmp_path: Path
) -> None:
    names = [f"class {number}" for number in range(10)]
    for name in names:
        draw(tmp_path / "base", name, 9)
    adapter, backbone = tmp_path / "adapter.safetensors", load_backbone(BackboneSpec(TINY, weights=tiny_file))
    tune(backbone, base_images(tmp_path / "base"), recipe=TuneRecipe(**SETTINGS), held_out=0.34, out=adapter)
    held = read_adapter(adapter).held_back
    assert held is not None
    (tmp_path / "base").rename(tmp_path / "moved")
    images = with_unseen(base_images(tmp_path / "moved"), adapter)
    assert {content_mark(image) for image in images.test.images} == held
    assert np.bincount(images.test.labels).tolist() == [3] * 10  # where a model itself would choose two
    assert np.bincount(images.train.labels).tolist() == [6] * 10
    with create(base=tmp_path / "moved", adapter=adapter) as model:
        assert model.show().rejection == "set on 30 held-out photos of 10 base classes"
        assert {one.photos for one in model.show().classes} == {9}


def test_an_adapter_that_does_not_say_what_it_has_seen_is_noted(
    create: Callable[..., Recognizer], tiny_file: Path, tmp_path: Path
) -> None:
    for number in range(10):
        draw(tmp_path / "base", f"class {number}", 8)
    adapter, backbone = tmp_path / "adapter.safetensors", load_backbone(BackboneSpec(TINY, weights=tiny_file))
    tune(backbone, base_images(tmp_path / "base"), recipe=TuneRecipe(**SETTINGS), held_out=0, out=adapter)
    assert read_adapter(adapter).held_back is None
    with create(base=tmp_path / "base", adapter=adapter) as model:
        assert model.show().rejection == f"set on 20 held-out photos of 10 base classes; {MAY_BE_SEEN}"
    with create("plain", base=tmp_path / "base") as model:
        assert model.show().rejection == "set on 20 held-out photos of 10 base classes"


def test_an_adapter_made_for_the_base(
    create: Callable[..., Recognizer], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from fiveshot.tuning import TUNE_RECIPES, TuneProgress, TuneRecipe

    monkeypatch.setitem(TUNE_RECIPES, "ours", TuneRecipe(**SETTINGS))
    for name in ("blue", "green"):
        draw(tmp_path / "base", name, 6)
    tuned: list[TuneProgress] = []
    seen: list[tuple[int, int]] = []
    with create(
        base=tmp_path / "base",
        make=create_tuned,
        on_tuning=tuned.append,
        progress=lambda *now: seen.append(now),
    ) as model:
        # A photo of each class is held back: thresholds are set on what the adapter has not seen.
        assert (tuned[0].phase, tuned[0].total) == ("decode", 10)
        assert seen[-1] == (12, 12)
        (adapter,) = model.path.glob("adapter-*")
        expected = model.snapshot.memory.base
        assert model.predict(draw(tmp_path / "t", "blue", 1))[0].candidates[0].label == "blue"
    with create("second", base=tmp_path / "base", adapter=adapter) as again:
        assert again.snapshot.manifest.backbone == model.snapshot.manifest.backbone
        base = again.snapshot.memory.base
        assert all(same_statistics(base[name], expected[name]) for name in ("blue", "green"))
        again.learn("red", draw(tmp_path / "p", "red", 2))
        file = again.export(tmp_path / "file")
    os.truncate(adapter, 100)
    opening = {"device": "cpu", "runtime": "torch"}
    with (
        Recognizer.open(model.path, **opening) as damaged,
        pytest.raises(StorageError, match="missing or damaged"),
    ):
        damaged.predict(tmp_path / "t" / "blue")
    weights = again.snapshot.manifest.backbone.weights
    with import_file(file, tmp_path / "there", weights=weights, **opening) as there:
        assert there.predict(tmp_path / "t")[0].candidates[0].label == "blue"
