"""Models whose features a Python function computes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from fiveshot.backbones import BackboneSpec, Embedder, Preprocessing, load_embedder
from fiveshot.cli.app import main
from fiveshot.data.synthetic import draw_samples
from fiveshot.errors import InputError
from fiveshot.features import ExtractionSettings, extract, open_labeled_images
from fiveshot.recognizer import Recognizer, export_onnx, export_web, import_file

SIDE = 8


def small_pictures(images: list[Image.Image]) -> np.ndarray:
    """Return each picture in a few pixels: a plain function from PIL images to vectors."""
    return np.stack([np.asarray(image.resize((SIDE, SIDE))).reshape(-1) / 255 for image in images])


@pytest.fixture
def embedder() -> Embedder:
    return Embedder.from_callable(small_pictures, size=64, name="small-pictures")


@pytest.fixture
def photos(tmp_path: Path) -> dict[str, list[Path]]:
    draw_samples(tmp_path / "samples", seed=0)
    learn = tmp_path / "samples" / "learn"
    return {name: sorted((learn / name).iterdir()) for name in ("apple", "fish")}


def test_a_model_learns_and_answers_with_a_function(embedder, photos, tmp_path):
    with Recognizer.create(tmp_path / "things", embedder=embedder) as things:
        things.learn_many(photos)
        assert (things.show().backbone, things.show().width) == ("python:small-pictures", 3 * SIDE**2)
        expected = [one.candidates for one in things.predict(photos["fish"])]
        things.export(tmp_path / "things.fiveshot")
    with Recognizer.open(tmp_path / "things", embedder=embedder) as again:
        assert [one.candidates for one in again.predict(photos["fish"])] == expected
    with import_file(tmp_path / "things.fiveshot", tmp_path / "copy", embedder=embedder) as copy:
        assert [one.candidates for one in copy.predict(photos["fish"])] == expected


def test_the_function_sees_the_scaled_center_of_a_photo():
    seen = []

    def keep(images: list[Image.Image]) -> np.ndarray:
        seen.extend(images)
        return np.zeros((len(images), 1))

    embedder = Embedder.from_callable(keep, size=50, name="keep")
    halves = Image.new("RGB", (300, 100), "white")
    halves.paste("black", (90, 0, 210, 100))  # more than the center, because pixels are smoothed
    seen.clear()
    embedder.features(embedder.pixels(halves)[None])
    assert [(image.size, image.mode, image.getextrema()) for image in seen] == [((50, 50), "RGB", ((0, 0),) * 3)]


def test_features_are_extracted_with_a_function(embedder, photos, tmp_path):
    images = open_labeled_images(tmp_path / "samples" / "learn", seed=0)
    found = extract(images, embedder, ExtractionSettings(dtype="float32")).features
    assert found.n_features == 3 * SIDE**2
    assert found.provenance.backbone == "python:small-pictures"


def test_tensors_of_torch_are_taken_and_a_processor_fits_in(tmp_path):
    torch, transforms = pytest.importorskip("torch"), pytest.importorskip("torchvision.transforms")
    layer = torch.nn.Linear(3 * SIDE**2, 5)
    prepare = transforms.Compose([transforms.Resize(SIDE), transforms.ToTensor(), torch.flatten])
    embedder = Embedder.from_callable(
        lambda images: layer(torch.stack([prepare(image) for image in images])), size=64, name="layer"
    )
    pixels = np.random.default_rng(0).integers(0, 256, (2, 1, 3, 64, 64), np.uint8)
    pictures = [Image.fromarray(one[0].transpose(1, 2, 0)) for one in pixels]
    expected = layer(torch.stack([prepare(picture) for picture in pictures])).detach().numpy()
    np.testing.assert_allclose(embedder.features(pixels), expected, atol=1e-6)


def test_the_command_line_says_that_the_function_is_needed(embedder, photos, tmp_path, monkeypatch, capsys):
    Recognizer.create(tmp_path / "things", embedder=embedder).close()
    monkeypatch.setattr(
        "sys.argv", ["fiveshot", "learn", str(tmp_path / "things"), "fish", str(photos["fish"][0])]
    )
    with pytest.raises(SystemExit) as ended:
        main()
    said = capsys.readouterr().err
    assert (ended.value.code, "'small-pictures'" in said, "Recognizer.open(path, embedder=" in said) == (
        1,
        True,
        True,
    )


def test_another_function_is_refused(embedder, tmp_path):
    Recognizer.create(tmp_path / "things", embedder=embedder).close()
    other = Embedder.from_callable(small_pictures, size=64, name="other")
    with pytest.raises(InputError, match="not the python:small-pictures") as caught:
        Recognizer.open(tmp_path / "things", embedder=other)
    assert caught.value.code == "other_backbone"


def test_a_function_cannot_be_exported_as_a_graph(embedder, photos, tmp_path):
    pytest.importorskip("onnx", reason="the extra 'onnx' is not installed")
    with Recognizer.create(tmp_path / "things", embedder=embedder) as things:
        things.learn_many(photos)
        for export in (export_onnx, export_web):
            with pytest.raises(InputError, match="is a Python function, which cannot be written as ONNX"):
                export(things, tmp_path / "out.onnx")
    assert not (tmp_path / "out.onnx").exists()


def test_a_loaded_backbone_can_be_given_too(photos, tmp_path):
    with Recognizer.create(
        tmp_path / "things", embedder=load_embedder(BackboneSpec(views=1, device="cpu"))
    ) as things:
        things.learn_many(photos)
        expected = [one.label for one in things.predict(photos["fish"])]
    with Recognizer.open(tmp_path / "things") as again:
        assert [one.label for one in again.predict(photos["fish"])] == expected
        assert again.show().views == 1


@pytest.mark.parametrize(
    "make",
    [
        lambda: Embedder.from_callable("no function", size=64, name="x"),
        lambda: Embedder.from_callable(small_pictures, size=64, name="a b"),
        lambda: Embedder.from_callable(lambda images: np.zeros(3), size=64, name="x"),
        lambda: Embedder.from_callable(lambda images: np.zeros((1, 3)), size=64, name="x"),
        lambda: Embedder.from_callable(lambda images: np.zeros((len(images), 0)), size=64, name="x"),
        lambda: Embedder.from_callable(
            small_pictures, size=64, name="x", preprocessing=Preprocessing(size=32, resize=32)
        ),
    ],
)
def test_what_is_no_function_from_pictures_to_vectors_is_refused(make: Callable[[], Embedder]) -> None:
    with pytest.raises(InputError) as caught:
        make()
    assert caught.value.hint


def test_an_embedder_and_a_name_exclude_each_other(embedder, tmp_path):
    with pytest.raises(InputError, match="other values of a backbone"):
        Recognizer.create(tmp_path / "things", embedder=embedder, views=2)
    assert not (tmp_path / "things").exists()
