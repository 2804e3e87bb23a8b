"""What runs on a GPU runs here on the CPU: the same code, with Pillow in place of the GPU's decoder of JPEG."""

from __future__ import annotations

import importlib.util
import io
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image, ImageOps

from fiveshot.backbones import PAPER_PREPROCESSING, BackboneSpec, Preprocessing, device_pixels, load_embedder
from fiveshot.backbones.device_pixels import DevicePixels, jpeg_decoder, quick_scaling, upright
from fiveshot.data import ArraySource, FileSource, ImageSource
from fiveshot.data.decoding import JpegFile
from fiveshot.features.stream import BatchStream, ImageBatch, read_batch, read_on_device, usual_photos

CPU = torch.device("cpu")
CUDA = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
SIZES = ((150, 200), (90, 31), (400, 330), (60, 60))


def smooth(height: int, width: int, seed: int = 0) -> np.ndarray:
    coarse = np.random.default_rng(seed).integers(0, 256, (8, 10, 3), np.uint8)
    return np.asarray(Image.fromarray(coarse).resize((width, height), Image.Resampling.BICUBIC))


def by_pillow(files: Sequence[JpegFile], places: Sequence[torch.Tensor]) -> bool:
    for file, place in zip(files, places, strict=True):
        try:
            pixels = np.asarray(Image.open(io.BytesIO(file.data)).convert("RGB"))
        except OSError:
            return False
        place.copy_(torch.tensor(pixels).permute(2, 0, 1))
    return True


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
    sources = [ArraySource(picture, f"{number}") for number, picture in enumerate(pictures)]
    found = DevicePixels(wanted, CPU).squares(sources)
    assert found is not None
    expected = np.stack([wanted.pixels(picture) for picture in pictures])
    difference = np.abs(found.numpy().astype(int) - expected)
    assert (found.dtype, found.shape) == (torch.uint8, expected.shape)
    assert difference.max() <= 2
    assert difference.mean() < 0.1  # where sums are halves, which simple ratios make often
    monkeypatch.setattr(device_pixels, "MOST_PIXELS", 200 * 400)  # in several groups
    in_groups = DevicePixels(wanted, CPU).squares(sources)
    assert in_groups is not None
    assert torch.equal(in_groups, found)


def differences(wanted: Preprocessing, device: torch.device, sizes: Sequence[tuple[int, int]]) -> np.ndarray:
    """Return how far gray levels of squares made on a device are from Pillow's."""
    pictures = [smooth(*size, seed=number) for number, size in enumerate(sizes)]
    found = DevicePixels(wanted, device).squares([ArraySource(picture, "") for picture in pictures])
    assert found is not None
    return np.abs(found.cpu().numpy().astype(int) - np.stack([wanted.pixels(picture) for picture in pictures]))


@pytest.fixture
def interpreted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Run the GPU's program for scaling here, step by step, as Triton interprets it."""
    language = pytest.importorskip("triton.language", reason="Triton is not installed")
    from triton.runtime.interpreter import InterpretedFunction

    monkeypatch.setenv("TRITON_INTERPRET", "1")
    for name in ("sum", "zeros"):  # programs themselves
        monkeypatch.setattr(language, name, InterpretedFunction(getattr(language, name).fn))
    spec = importlib.util.find_spec("fiveshot.backbones._gpu_scaling")
    assert spec is not None
    assert spec.loader is not None
    program = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(program)
    monkeypatch.setattr(device_pixels, "quick_scaling", lambda _: program.scale_centers)


@pytest.mark.skipif(torch.cuda.is_available(), reason="a GPU runs it itself")
@pytest.mark.filterwarnings("ignore:invalid value encountered:RuntimeWarning")  # outside of the output
@pytest.mark.parametrize(
    "wanted",
    [
        Preprocessing(size=40, resize=44, views=4),
        Preprocessing(size=16, resize=16, interpolation="lanczos"),
        Preprocessing(size=16, resize=20, interpolation="bilinear", squash=24),
    ],
    ids=str,
)
@pytest.mark.usefixtures("interpreted")
def test_the_program_of_a_gpu_gives_the_squares_of_pillow(wanted: Preprocessing) -> None:
    difference = differences(wanted, CPU, ((90, 140), (31, 20)))
    assert difference.max() <= 1
    assert difference.mean() < 0.1  # where sums are halves, which simple ratios make often


@CUDA
def test_a_gpu_scales_as_pillow_does() -> None:
    wanted = Preprocessing(size=64, resize=72, views=4)
    device = torch.device("cuda")
    assert quick_scaling(device) is not None
    difference = differences(wanted, device, (*SIZES, (7, 5), (1, 1), (2000, 300)))
    assert difference.max() <= 1
    assert difference.mean() < 0.03


@CUDA
def test_a_gpu_without_a_compiler_scales_by_products(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    device, wanted = torch.device("cuda"), Preprocessing(size=64, resize=72, views=2)
    monkeypatch.setitem(sys.modules, "fiveshot.backbones._gpu_scaling", None)
    quick_scaling.cache_clear()
    difference = differences(wanted, device, SIZES)
    quick_scaling.cache_clear()
    assert "scaled by matrix products" in caplog.text
    assert difference.max() <= 2


@pytest.mark.parametrize("orientation", range(1, 9))
def test_photos_are_turned_as_pillow_turns_them(orientation: int) -> None:
    picture = Image.fromarray(smooth(5, 7))
    picture.getexif()[274] = orientation
    turned = upright(torch.tensor(smooth(5, 7)).permute(2, 0, 1), orientation)
    np.testing.assert_array_equal(turned.permute(1, 2, 0).numpy(), np.asarray(ImageOps.exif_transpose(picture)))


def jpeg(height: int, width: int, **options: object) -> bytes:
    buffer = io.BytesIO()
    Image.fromarray(smooth(height, width)).save(buffer, "JPEG", **options)
    return buffer.getvalue()


@CUDA
@pytest.mark.parametrize("options", [{}, {"progressive": True}], ids=["baseline", "progressive"])
@pytest.mark.parametrize("subsampling", [0, 1, 2])
def test_a_gpu_decodes_as_pillow_does(subsampling: int, options: dict[str, object]) -> None:
    """Colors that are stored smaller than the picture are interpolated, as Pillow has it."""
    decode = jpeg_decoder(torch.device("cuda"))
    assert decode is not None
    sizes = ((375, 500), (333, 499), (64, 64), (31, 90), (17, 16), (1, 1))
    for data in (jpeg(*size, subsampling=subsampling, **options) for size in sizes):
        file = JpegFile.of(data)
        assert file is not None
        ours = torch.zeros(3, file.facts.height, file.facts.width, dtype=torch.uint8, device="cuda")
        theirs = torch.zeros_like(ours, device="cpu")
        assert decode([file], [ours])
        assert by_pillow([file], [theirs])
        difference = (ours.cpu().int() - theirs.int()).abs().float()
        assert difference.max() <= 3
        assert difference.mean() < 0.1


@CUDA
def test_a_gpu_decodes_photos_of_all_kinds_at_once_and_refuses_what_is_none() -> None:
    decode = jpeg_decoder(torch.device("cuda"))
    assert decode is not None
    usual = jpeg(120, 160)
    files = [JpegFile.of(data) for data in (usual, jpeg(120, 160, progressive=True), usual)]
    places = [torch.zeros(3, 120, 160, dtype=torch.uint8, device="cuda") for _ in files]
    assert decode(files, places)
    assert torch.equal(places[0], places[2])
    assert (places[0].int() - places[1].int()).abs().max() <= 3
    broken = JpegFile(usual[:50], files[0].sha256, files[0].facts)
    assert not decode([files[0], broken], places[:2])
    assert decode(files, places), "the next photos are decoded as ever"


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


def on_device(images: list[ImageSource], stop: int, wanted: Preprocessing) -> ImageBatch:
    return read_on_device(images, 0, stop, usual_photos(images, 0, stop), DevicePixels(wanted, CPU, by_pillow))


def test_a_batch_is_that_of_the_decoders(mixed: list[ImageSource]) -> None:
    wanted = Preprocessing(size=64, resize=72, views=2)
    ours = on_device(mixed, len(mixed), wanted)
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
    ours = on_device(mixed, 3, wanted)
    theirs = read_batch(mixed, 0, 3, wanted)
    assert (ours.kept.tolist(), ours.bad) == (theirs.kept.tolist(), theirs.bad)
    np.testing.assert_array_equal(ours.pixels.numpy()[-1], theirs.pixels[-1])


def test_features_are_those_of_the_cpu(mixed: list[ImageSource]) -> None:
    embedder = load_embedder(BackboneSpec(device="cpu"))
    wanted = embedder.preprocessing
    ours = embedder.features(on_device(mixed, 2, wanted).pixels.numpy())
    theirs = embedder.features(read_batch(mixed, 0, 2, wanted).pixels)
    cosines = (ours * theirs).sum(1) / np.linalg.norm(ours, axis=1) / np.linalg.norm(theirs, axis=1)
    assert cosines.min() > 0.9999


def test_batches_come_in_order_and_bad_photos_end_the_work(
    mixed: list[ImageSource], monkeypatch: pytest.MonkeyPatch
) -> None:
    embedder = load_embedder(BackboneSpec(device="cpu", runtime="torch", views=1))
    plain = BatchStream(mixed, embedder, workers=2, dtype=np.float32)
    ranges = [(0, 2), (2, 3), (3, 5), (5, 6)]
    theirs = list(plain.run(ranges))
    pixels = DevicePixels(embedder.preprocessing, CPU, by_pillow)
    monkeypatch.setattr(type(embedder), "device_pixels", property(lambda _: pixels))
    ours = list(BatchStream(mixed, embedder, workers=2, dtype=np.float32).run(ranges))
    assert [(one.start, one.stop) for one in ours] == ranges
    for one, other in zip(ours, theirs, strict=True):
        assert one.bad == other.bad
        assert one.kept.tolist() == other.kept.tolist()
        norms = np.linalg.norm(one.vectors, axis=1) * np.linalg.norm(other.vectors, axis=1)
        assert ((one.vectors * other.vectors).sum(1) / norms > 0.9999).all()
    decoding = BatchStream(mixed, embedder, workers=2, dtype=np.float32)
    decoding.decode_only.set()
    assert all(one.vectors is None for one in decoding.run(ranges))
