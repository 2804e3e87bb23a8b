from __future__ import annotations

import random

import numpy as np
import pytest
import torch
from PIL import Image
from torchvision.transforms import v2

from fiveshot.backbones import Preprocessing
from fiveshot.backbones.backbone import normalize_tensor
from fiveshot.data import ArraySource
from fiveshot.data.reduction import WholePhoto, random_crop_box, size_of
from fiveshot.tuning._crops import crop_axis, resample
from fiveshot.tuning._views import PooledViews, decode_all, random_crop_boxes, whole_images

CPU = torch.device("cpu")


def smooth_image(height: int, width: int, seed: int) -> np.ndarray:
    coarse = np.random.default_rng(seed).integers(0, 256, (6, 8, 3), dtype=np.uint8)
    return np.asarray(Image.fromarray(coarse).resize((width, height), Image.Resampling.BICUBIC))


def pooled(preprocessing: Preprocessing, *images: np.ndarray, short_side: int | None = None) -> PooledViews:
    sources = [ArraySource(image, str(i)) for i, image in enumerate(images)]
    decoded = decode_all(sources, WholePhoto(short_side, preprocessing.squash), budget=1e9)
    assert decoded.pool is not None
    return PooledViews(decoded.pool, preprocessing, CPU)


@pytest.mark.parametrize("interpolation", ["bilinear", "bicubic"])
@pytest.mark.parametrize("box", [(3, 5, 40, 31), (0, 0, 90, 120), (11, 2, 70, 64)])
def test_a_crop_is_torchvision_s_on_exact_numbers(interpolation: str, box: tuple[int, int, int, int]) -> None:
    image = smooth_image(90, 120, seed=1)
    top, left, height, width = box
    window = torch.from_numpy(image.copy())[top : top + height, left : left + width][None]
    axes = [crop_axis(torch.tensor([0]), torch.tensor([n]), size=32, extent=n) for n in (height, width)]
    ours = resample(window, *(axis.weights(32, interpolation) for axis in axes))[0]
    oracle = torch.nn.functional.interpolate(
        window.permute(0, 3, 1, 2).double(), size=(32, 32), mode=interpolation, antialias=True
    )[0]
    assert torch.allclose(ours.double(), oracle.clamp(0, 255), atol=2e-3)


@pytest.mark.parametrize("flip", [False, True])
def test_crops_of_a_batch_are_those_of_the_cpu_transform(flip: bool) -> None:
    wanted = Preprocessing(size=32, resize=36)
    images = [smooth_image(60, 47, seed=2), smooth_image(33, 80, seed=3)]
    boxes = np.array([[4, 6, 50, 41], [1, 30, 20, 19]])
    views = pooled(wanted, *images).crop(
        torch.tensor([0, 1]), torch.from_numpy(boxes), torch.tensor([flip, flip]), extent=(50, 41)
    )
    for image, box, view in zip(images, boxes.tolist(), views, strict=True):
        expected = v2.functional.resized_crop(
            Image.fromarray(image), *box, [32, 32], interpolation=v2.InterpolationMode.BICUBIC
        )
        expected = v2.functional.horizontal_flip(expected) if flip else expected
        oracle = normalize_tensor(v2.functional.pil_to_tensor(expected), wanted)
        assert (view - oracle).abs().max() <= 2 / 127.5  # the transform rounds twice to whole grey levels


@pytest.mark.parametrize("squash", [None, 36])
def test_measured_views_are_those_of_the_extraction(squash: int | None) -> None:
    wanted = Preprocessing(size=32, resize=36, squash=squash)
    images = [smooth_image(90, 61, seed=4), smooth_image(25, 30, seed=5), smooth_image(36, 37, seed=6)]
    views = next(iter(pooled(wanted, *images).measure(np.arange(3), batch_size=3)))
    for image, view in zip(images, views, strict=True):
        oracle = torch.from_numpy(wanted.normalize(wanted.pixels(image)))
        assert (view - oracle).abs().max() <= 3 / 127.5


def test_large_images_are_kept_smaller() -> None:
    wanted = Preprocessing(size=32, resize=36)
    picture = Image.fromarray(smooth_image(200, 300, seed=7))
    for margin, size in ((1.5, (72, 48)), (0, (300, 200)), (1.0, (54, 36))):  # the last is what measuring needs
        made = whole_images(wanted, margin=margin)(picture)
        assert (size_of(made["size"]), len(made["pixels"])) == (size, 3 * size[0] * size[1])


def test_boxes_follow_the_distribution_of_the_cpu_transform() -> None:
    n, shape = 4000, (60, 90)
    arguments = {"scale": (0.3, 1.0), "ratio": (3 / 4, 4 / 3)}
    rng, other = np.random.default_rng(0), random.Random(0)
    ours = random_crop_boxes(np.full(n, shape[0]), np.full(n, shape[1]), rng=rng, **arguments)
    oracle = np.array([random_crop_box(*shape, rng=other, **arguments) for _ in range(n)])
    assert (ours[:, :2] >= 0).all()
    assert (ours[:, :2] + ours[:, 2:] <= shape).all()
    error = np.hypot(ours.std(axis=0), oracle.std(axis=0)) / np.sqrt(n)
    assert (np.abs(ours.mean(axis=0) - oracle.mean(axis=0)) < 4 * error).all()
    assert np.allclose(ours.std(axis=0), oracle.std(axis=0), rtol=0.08)


def test_a_box_that_never_fits_is_the_largest_in_the_middle() -> None:
    rng = np.random.default_rng(0)
    boxes = random_crop_boxes(np.array([10]), np.array([300]), scale=(1.0, 1.0), ratio=(3 / 4, 4 / 3), rng=rng)
    assert boxes.tolist() == [[0, 143, 10, 13]]
