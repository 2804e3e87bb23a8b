"""Photos prepared by ``preprocessor_config.json``, beside what ``transformers`` makes of the same file."""

from __future__ import annotations

import io
import json
import tarfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from processors import CLIP, HALF, PROCESSORS

from fiveshot.backbones import Preprocessing
from fiveshot.backbones.bundles.processor import read_processor
from fiveshot.data.synthetic import draw_samples
from fiveshot.errors import InputError

transformers = pytest.importorskip("transformers")

SIZES = [(320, 240), (241, 322), (640, 425), (225, 500), (257, 255)]  # odd and even remainders after scaling
WIDE = [(256, 256), (256, 171), (256, 225), (256, 144)]  # cut out of square photographs
LARGE = {
    "convnext, squeezed": PROCESSORS["convnext"] | {"size": {"shortest_edge": 384}},
    "deit": {
        **HALF,
        "size": {"height": 256, "width": 256},
        "crop_size": 224,
        "image_processor_type": "DeiTImageProcessor",
    },
    "no rescaling, no normalization": PROCESSORS["vit"] | {"do_rescale": False, "do_normalize": False},
    "another scale": PROCESSORS["vit"] | {"rescale_factor": 1 / 127.5, "image_mean": 1.0, "image_std": 0.5},
    "defaults": {"image_processor_type": "CLIPImageProcessor"},
    "lanczos": PROCESSORS["dinov2"] | {"resample": 1},
}


@pytest.fixture(scope="session")
def pictures(tmp_path_factory: pytest.TempPathFactory) -> list[Image.Image]:
    """Twenty pictures of things with the grain of a camera, in five sizes."""
    folder = tmp_path_factory.mktemp("drawn") / "samples"
    draw_samples(folder, seed=0)
    rng, found = np.random.default_rng(0), []
    for number, file in enumerate(sorted((folder / "learn").rglob("*.jpg"))[:20]):
        with Image.open(file) as opened:
            drawn = np.asarray(opened.convert("RGB").resize(SIZES[number % len(SIZES)], Image.Resampling.BICUBIC))
        grain = rng.normal(scale=4, size=drawn.shape)
        found.append(Image.fromarray(np.clip(drawn + grain, 0, 255).astype(np.uint8)))
    return found


def oracle(config: dict[str, Any], picture: Image.Image, folder: Path) -> np.ndarray:
    """Return what the library's own processor gives for a picture, (3, side, side)."""
    (folder / "preprocessor_config.json").write_text(json.dumps(config))
    processor = transformers.AutoImageProcessor.from_pretrained(folder, use_fast=False)
    return np.asarray(processor(picture, return_tensors="np")["pixel_values"][0], np.float32)


def differences(config: dict[str, Any], photos: list[Image.Image], folder: Path) -> np.ndarray:
    """Return how far all pixels are from those of the library's own processor, in gray levels."""
    ours = read_processor(config)
    levels = np.array(ours.std)[:, None, None] * 255
    found = [ours.normalize(ours.pixels(photo)[0]) - oracle(config, photo, folder) for photo in photos]
    return np.abs(np.stack(found) * levels)


def check_drawn(levels: np.ndarray) -> None:
    """Check pixels of drawings, whose edges are sharper than those of photographs.

    Pillow 13, which transformers calls, sometimes scales columns before rows, and we never do. The picture in
    between is rounded and clipped, so beside a sharp edge one pixel in 100,000 differs by a few levels.
    """
    assert levels.max() < 5
    assert (levels > 1.001).mean() < 1e-4


@pytest.mark.parametrize("name", PROCESSORS)
def test_pixels_equal_those_of_transformers_within_one_gray_level(name, pictures, tmp_path):
    assert len(pictures) == 20
    check_drawn(differences(PROCESSORS[name], pictures, tmp_path))


@pytest.mark.parametrize("name", LARGE)
def test_so_do_those_of_rarer_settings(name, pictures, tmp_path):
    check_drawn(differences(LARGE[name], pictures[:5], tmp_path))


@pytest.mark.real
@pytest.mark.parametrize("name", PROCESSORS)
def test_pixels_of_real_photographs_do_so_too(name, many_photographs, tmp_path):
    assert len(many_photographs) == 20
    assert differences(PROCESSORS[name], many_photographs, tmp_path).max() < 1.01


@pytest.mark.real
@pytest.mark.parametrize("name", PROCESSORS)
def test_so_do_nearly_all_of_tall_photographs(name, many_photographs, tmp_path):
    """Pillow 13 may scale the columns of these before their rows, and we never do."""
    tall = [photo.rotate(90, expand=True) for photo in many_photographs]
    levels = differences(PROCESSORS[name], tall, tmp_path)
    assert levels.max() < 16
    assert (levels > 1.01).mean() < 1e-3


@pytest.fixture(scope="session")
def many_photographs() -> list[Image.Image]:
    archive = Path(__file__).resolve().parents[4] / "shared" / "data" / "general-photos.tar"
    if not archive.is_file():
        pytest.skip("the real material is not beside the checkout")
    with tarfile.open(archive) as tar:
        files = [member for member in tar.getmembers() if member.isfile()][::50]
        photos = [Image.open(io.BytesIO(tar.extractfile(file).read())).convert("RGB") for file in files]
    # They are squares; photographs usually are not.
    return [one.crop((0, 0, *WIDE[number % len(WIDE)])) for number, one in enumerate(photos)]


def test_dinov3_whose_own_processor_computes_on_torch_gets_the_same_pixels(pictures, tmp_path):
    config = {"image_processor_type": "DINOv3ViTImageProcessorFast", "size": {"height": 224, "width": 224}}
    ours = read_processor(config)
    processor = transformers.DINOv3ViTImageProcessor(size={"height": 224, "width": 224})
    for picture in pictures[:5]:
        theirs = processor(picture, return_tensors="pt")["pixel_values"][0].numpy()
        difference = np.abs(ours.normalize(ours.pixels(picture)[0]) - theirs) * np.array(ours.std)[:, None, None]
        assert difference.max() * 255 < 1.001


def test_a_file_that_does_not_name_its_processor_is_read_by_the_kind_of_network():
    assert read_processor({}, "clip_vision_model") == Preprocessing(
        size=224,
        resize=224,
        mean=tuple(CLIP["image_mean"]),
        std=tuple(CLIP["image_std"]),
        name="weights",
        rounding="down",
    )


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"do_resize": False}, "does not resize"),
        ({"do_pad": True}, "pads"),
        ({"resample": 0}, "'nearest'"),
        ({"resample": 7}, "'7'"),
        ({"size": {"height": 224, "width": 448}}, "224 x 448"),
        ({"size": {"shortest_edge": 224, "longest_edge": 500}}, "longest_edge"),
        ({"size": {"shortest_edge": 224}}, "cuts no square"),
        ({"size": {"height": 9_000, "width": 9_000}}, "9000"),
        ({"size": "224"}, "'224'|224"),
        ({"do_center_crop": True, "crop_size": 300}, "pads them"),
        ({"image_mean": [0.5, 0.5]}, "three numbers"),
        ({"image_std": [0.5, 0, 0.5]}, "image_std"),
        ({"rescale_factor": -1}, "rescale_factor"),
        ({"image_processor_type": "DonutImageProcessor"}, "'DonutImageProcessor'"),
        ({"image_processor_type": None}, "does not name its processor"),
        ({"image_mean": [1e300, 0, 0]}, "three numbers"),
        ({"image_std": [1e-300, 1, 1]}, "image_std"),
        ({"image_processor_type": "ConvNextImageProcessor"}, "shortest_edge"),
        ({"image_processor_type": "ConvNextImageProcessor", "size": 224, "do_center_crop": True}, "no crop_size"),
        ({"image_processor_type": "DINOv3ViTImageProcessorFast", "resample": 3}, "possible are bilinear"),
    ],
)
def test_what_cannot_be_followed_is_refused_with_a_way_out(changes, words):
    with pytest.raises(InputError, match=words) as caught:
        read_processor(PROCESSORS["vit"] | changes)
    assert "Preprocessing(" in caught.value.hint
