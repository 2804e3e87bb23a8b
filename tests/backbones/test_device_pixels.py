"""What runs on a GPU runs here on the CPU: the same code, with another decoder of JPEG behind torchvision."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image, ImageOps

from fiveshot.backbones import PAPER_PREPROCESSING, BackboneSpec, Preprocessing, device_pixels, load_embedder
from fiveshot.backbones.device_pixels import DevicePixels, upright
from fiveshot.data import ArraySource, FileSource, ImageSource
from fiveshot.features.stream import read_batch, read_on_device

# Extraction silences warnings: torchvision says that another library will decode some day.
pytestmark = pytest.mark.filterwarnings("ignore:The image decoding:DeprecationWarning")
CPU = torch.device("cpu")
SIZES = ((150, 200), (90, 31), (400, 330), (60, 60))


def smooth(height: int, width: int, seed: int = 0) -> np.ndarray:
    coarse = np.random.default_rng(seed).integers(0, 256, (8, 10, 3), np.uint8)
    return np.asarray(Image.fromarray(coarse).resize((width, height), Image.Resampling.BICUBIC))


@pytest.mark.parametrize(
    "wanted",
    [
        *(Preprocessing(size=64, resize=72, views=views) for views in (1, 2, 4)),
        Preprocessing(size=64, resize=64, interpolation="lanczos"),
        Preprocessing(size=64, resize=72, interpolation="bilinear", squash=80, views=2),
        PAPER_PREPROCESSING["paper:cars"],
    ],
    ids=str,
)
def test_squares_are_those_of_pillow(wanted: Preprocessing, monkeypatch: pytest.MonkeyPatch) -> None:
    pictures = [smooth(*size, seed=number) for number, size in enumerate(SIZES)]
    found = DevicePixels(wanted, CPU).squares(pictures)
    assert found is not None
    expected = np.stack([wanted.pixels(picture) for picture in pictures])
    difference = np.abs(found.numpy().astype(int) - expected)
    assert (found.dtype, found.shape) == (torch.uint8, expected.shape)
    assert difference.max() <= 2
    assert difference.mean() < 0.1  # where sums are halves, which simple ratios make often
    monkeypatch.setattr(device_pixels, "MOST_PIXELS", 200 * 400)  # in several groups
    in_groups = DevicePixels(wanted, CPU).squares(pictures)
    assert in_groups is not None
    assert torch.equal(in_groups, found)


@pytest.mark.parametrize("orientation", range(1, 9))
def test_photos_are_turned_as_pillow_turns_them(orientation: int) -> None:
    picture = Image.fromarray(smooth(5, 7))
    picture.getexif()[274] = orientation
    turned = upright(torch.tensor(smooth(5, 7)).permute(2, 0, 1), orientation)
    np.testing.assert_array_equal(turned.permute(1, 2, 0).numpy(), np.asarray(ImageOps.exif_transpose(picture)))


@pytest.fixture
def mixed(tmp_path: Path) -> list[ImageSource]:
    """A usual photo, one on its side, one in another format, a broken one, an array, and one cut short."""
    names = ["usual.jpg", "turned.jpg", "other.png", "broken.jpg", "short.jpg"]
    turned = Image.Exif()
    turned[274] = 6
    for number, name in enumerate(names):
        picture = Image.fromarray(smooth(120, 160, seed=number))
        picture.save(tmp_path / name, exif=turned if name == "turned.jpg" else Image.Exif())
    (tmp_path / "broken.jpg").write_bytes(b"\xff\xd8\xff\xd9")
    (tmp_path / "short.jpg").write_bytes((tmp_path / "short.jpg").read_bytes()[:-200])
    return [*(FileSource(tmp_path / name, name) for name in names), ArraySource(smooth(32, 32), "array")]


def test_a_batch_is_that_of_the_decoders(mixed: list[ImageSource]) -> None:
    wanted = Preprocessing(size=64, resize=72, views=2)
    ours = read_on_device(mixed, 0, len(mixed), wanted, DevicePixels(wanted, CPU))
    theirs = read_batch(mixed, 0, len(mixed), wanted)
    assert ours.kept.tolist() == theirs.kept.tolist() == [0, 1, 2, 5]
    assert [(at, bad.name) for at, bad in ours.bad] == [(3, "broken.jpg"), (4, "short.jpg")]
    assert ours.bad == theirs.bad
    np.testing.assert_array_equal(ours.marks, theirs.marks)
    assert np.abs(ours.pixels.numpy().astype(int) - theirs.pixels).mean() < 0.5


def test_photos_that_are_refused_go_to_the_decoders(mixed: list[ImageSource], tmp_path: Path) -> None:
    """A file that says another size than it has: nothing of what the decoder made is used."""
    data = bytearray((tmp_path / "usual.jpg").read_bytes())
    frame = data.index(b"\xff\xc0")
    damaged = data[: frame + 20] + data[frame + 40 :]
    (tmp_path / "usual.jpg").write_bytes(damaged)
    wanted = Preprocessing(size=64, resize=72)
    ours = read_on_device(mixed, 0, 3, wanted, DevicePixels(wanted, CPU))
    theirs = read_batch(mixed, 0, 3, wanted)
    assert (ours.kept.tolist(), ours.bad) == (theirs.kept.tolist(), theirs.bad)
    np.testing.assert_array_equal(ours.pixels.numpy()[-1], theirs.pixels[-1])


def test_features_are_those_of_the_cpu(mixed: list[ImageSource]) -> None:
    embedder = load_embedder(BackboneSpec(device="cpu"))
    wanted = embedder.preprocessing
    ours = embedder.features(read_on_device(mixed, 0, 2, wanted, DevicePixels(wanted, CPU)).pixels.numpy())
    theirs = embedder.features(read_batch(mixed, 0, 2, wanted).pixels)
    cosines = (ours * theirs).sum(1) / np.linalg.norm(ours, axis=1) / np.linalg.norm(theirs, axis=1)
    assert cosines.min() > 0.9999
