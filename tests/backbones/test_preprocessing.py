from __future__ import annotations

import json
import random
from dataclasses import replace

import numpy as np
import pytest
import timm
import torch
from PIL import Image
from scipy import stats
from timm.data import create_transform, resolve_model_data_config
from torchvision import transforms as v1

from fiveshot.backbones import BackboneSpec, Preprocessing, paper_preprocessing
from fiveshot.backbones._networks import weights_preprocessing
from fiveshot.backbones.backbone import normalize_tensor
from fiveshot.data.reduction import random_crop_box
from fiveshot.errors import InputError


@pytest.fixture(params=[(300, 200), (97, 180), (224, 224)])
def photo(request: pytest.FixtureRequest) -> Image.Image:
    width, height = request.param
    rng = np.random.default_rng(0)
    coarse = rng.integers(0, 256, (height // 8, width // 8, 3), dtype=np.uint8)
    return Image.fromarray(coarse).resize((width, height), Image.Resampling.BICUBIC)


def prepared(preprocessing: Preprocessing, photo: Image.Image) -> torch.Tensor:
    (pixels,) = replace(preprocessing, views=1).pixels(photo)
    return torch.from_numpy(preprocessing.normalize(pixels))


def rows_first(size: tuple[int, int], mode: v1.InterpolationMode) -> list:
    """Torchvision's resize to (height, width), the rows first: Pillow 13 sometimes begins with the columns."""
    return [
        v1.Lambda(lambda image: v1.functional.resize(image, [image.height, size[1]], mode)),
        v1.Resize(size, mode),
    ]


@pytest.mark.parametrize(
    "name",
    [
        "vit_base_patch16_224.augreg_in21k_ft_in1k",
        "vit_base_patch16_siglip_224.webli",
        "test_vit",
        "resnet18.tv_in1k",
    ],
)
def test_the_weights_preprocessing_equals_timms_own_transform(name, photo):
    with torch.device("meta"):
        model = timm.create_model(name)
    oracle = create_transform(**resolve_model_data_config(model), is_training=False)
    ours = weights_preprocessing(model, name=name)
    torch.testing.assert_close(prepared(ours, photo), oracle(photo))
    assert (ours.name, ours.views) == ("weights", 2)


@pytest.mark.parametrize(
    ("name", "squash"), [("paper:cub200", False), ("paper:cars", True), ("paper:aircraft", True)]
)
def test_the_papers_photographs_get_imagenet_statistics(name, squash, photo):
    bilinear = v1.InterpolationMode.BILINEAR
    normalize = v1.Normalize([0.485, 0.456, 0.406], [0.229, 0.224, 0.225])
    steps = rows_first((224, 224), bilinear) if squash else []
    oracle = v1.Compose([*steps, v1.Resize(256), v1.CenterCrop(224), v1.ToTensor(), normalize])
    torch.testing.assert_close(prepared(paper_preprocessing(name), photo), oracle(photo))


@pytest.mark.parametrize("interpolation", ["bicubic", "bilinear", "lanczos"])
def test_pixels_are_those_of_torchvision(interpolation):
    """Resizing and cropping by turns, against a resize of everything and a crop, on 60 shapes of photographs."""
    rng = np.random.default_rng(5)
    mode = v1.InterpolationMode(interpolation)
    ours = Preprocessing(size=224, resize=256, interpolation=interpolation)
    for _ in range(60):
        width, height = (int(side) for side in np.exp(rng.uniform(np.log(40), np.log(900), 2)))
        coarse = Image.fromarray(rng.integers(0, 256, (height // 8 + 2, width // 8 + 2, 3), np.uint8))
        photo = coarse.resize((width, height), Image.Resampling.BICUBIC)
        short = min(width, height)
        scaled = int(256 * height / short), int(256 * width / short)
        oracle = v1.Compose([*rows_first(scaled, mode), v1.CenterCrop(224)])
        expected = np.asarray(oracle(photo)).transpose(2, 0, 1)
        np.testing.assert_array_equal(ours.pixels(photo), expected[None])


def test_what_is_cropped_already_is_left_alone():
    photo = np.random.default_rng(0).integers(0, 256, (224, 224, 3), np.uint8)
    (found,) = Preprocessing(size=224, resize=224).pixels(photo)
    np.testing.assert_array_equal(found, photo.transpose(2, 0, 1))
    np.testing.assert_array_equal(Preprocessing(size=224, resize=224).pixels(Image.fromarray(photo)), found[None])
    other = np.random.default_rng(0).integers(0, 256, (256, 300, 3), np.uint8)
    (crop,) = Preprocessing(size=224, resize=256).pixels(other)
    np.testing.assert_array_equal(crop, other[16:240, 38:262].transpose(2, 0, 1))


@pytest.mark.parametrize("size", [(1, 60_000), (60_000, 1), (10, 1001)])
def test_strips_are_refused(size):
    with pytest.raises(InputError) as caught:
        Preprocessing(size=224, resize=256).pixels(Image.new("RGB", size))
    assert caught.value.code == "too_long"
    assert caught.value.hint


@pytest.mark.parametrize("wrong", [np.zeros((4, 4), np.uint8), np.zeros((4, 4, 3), np.float32), "photo.jpg"])
def test_what_is_not_a_photo_is_refused(wrong):
    with pytest.raises(InputError, match="a photo must be a PIL image or a uint8 array"):
        Preprocessing(size=8, resize=8).pixels(wrong)


def test_the_papers_cifar_is_not_normalised(photo):
    bicubic = v1.InterpolationMode.BICUBIC
    oracle = v1.Compose([v1.Resize(256, interpolation=bicubic), v1.CenterCrop(224), v1.ToTensor()])
    cifar = paper_preprocessing("paper:cifar100")
    torch.testing.assert_close(prepared(cifar, photo), oracle(photo))
    assert cifar.random_square((0,)).scale == (0.05, 1.0)


def test_plain_paper_is_that_of_cub_and_typos_are_named():
    assert paper_preprocessing("paper") == paper_preprocessing("paper:cub200")
    with pytest.raises(InputError, match="did you mean 'paper:cars'"):
        BackboneSpec(preprocessing="paper:car")


def test_json_round_trip_and_unknown_keys():
    original = replace(paper_preprocessing("paper:cars"), train_scale=(0.2, 0.9))
    text = json.dumps(original.to_json())
    assert Preprocessing.from_json(json.loads(text)) == original
    with pytest.raises(InputError, match="did you mean 'resize'"):
        Preprocessing.from_json({"size": 224, "resized": 256})


def test_impossible_values_are_refused():
    with pytest.raises(InputError, match="center crop of 224 px"):
        Preprocessing(size=224, resize=200)
    with pytest.raises(InputError, match="did you mean 'bicubic'"):
        Preprocessing(size=224, resize=256, interpolation="cubic")


def test_inputs_timm_pads_are_refused():
    with torch.device("meta"):
        model = timm.create_model("test_vit")
    model.pretrained_cfg = {**model.pretrained_cfg, "crop_mode": "border"}
    with pytest.raises(InputError, match="crop mode 'border'"):
        weights_preprocessing(model, name="test_vit")


def test_normalize_takes_batches_of_bytes_only():
    plain = Preprocessing(size=8, resize=8, mean=(0.5, 0.25, 0.0), std=(0.5, 0.25, 1.0))
    pixels = np.broadcast_to(np.array([0, 51, 255], np.uint8).reshape(3, 1, 1), (2, 3, 8, 8))
    normalized = plain.normalize(pixels)
    assert normalized.shape == (2, 3, 8, 8)
    np.testing.assert_allclose(normalized[1, :, 4, 4], [-1.0, -0.2, 1.0], rtol=1e-6)
    with pytest.raises(InputError, match="give uint8"):
        plain.normalize(pixels.astype(np.float32))


def test_normalize_is_the_same_to_the_bit_in_torch():
    imagenet = paper_preprocessing("paper")
    pixels = np.arange(3 * 256, dtype=np.uint8).reshape(3, 16, 16)
    in_torch = normalize_tensor(torch.from_numpy(pixels), imagenet)
    np.testing.assert_array_equal(imagenet.normalize(pixels), in_torch.numpy())


def test_random_views_depend_on_the_generator_alone(photo):
    before = random.getstate()
    views = [paper_preprocessing("paper").random_square((3, draw))(photo) for draw in (1, 1, 2)]
    assert random.getstate() == before
    assert views[0][0].size == (224, 224)
    assert views[0] == views[1] != views[2]


def test_a_random_view_is_a_resized_crop_of_the_image(photo):
    plain = Preprocessing(size=64, resize=64, interpolation="bilinear", mean=(0, 0, 0), std=(1, 1, 1))
    augment = plain.random_square((9,), scale=(0.3, 0.6), flip=1.0)
    height, width = photo.height, photo.width
    box = random_crop_box(height, width, scale=(0.3, 0.6), ratio=(3 / 4, 4 / 3), rng=random.Random("9"))
    top, left, box_height, box_width = box
    crop = photo.crop((left, top, left + box_width, top + box_height)).resize((64, 64), Image.Resampling.BILINEAR)
    (view,) = augment(photo)
    np.testing.assert_array_equal(np.asarray(view), np.asarray(crop)[:, ::-1])


def test_a_random_view_may_be_the_whole_image(photo):
    plain = Preprocessing(size=64, resize=64, interpolation="bilinear")
    (view,) = plain.random_square((9,), flip=0.0, whole=1.0)(photo)
    np.testing.assert_array_equal(np.asarray(view), np.asarray(photo.resize((64, 64), Image.Resampling.BILINEAR)))


def test_views_are_the_parts_of_the_photo_that_they_are_called_by(photo):
    """Against torchvision, from the photo itself: squeezed, the center at 256 and at 341, and mirrored."""
    mode = v1.InterpolationMode.BICUBIC
    short = min(photo.size)

    def center(resize: int) -> np.ndarray:
        scaled = int(resize * photo.height / short), int(resize * photo.width / short)
        return np.asarray(v1.Compose([*rows_first(scaled, mode), v1.CenterCrop(224)])(photo)).transpose(2, 0, 1)

    whole = np.asarray(v1.Compose(rows_first((224, 224), mode))(photo)).transpose(2, 0, 1)
    four = Preprocessing(size=224, resize=256, views=4).pixels(photo)
    np.testing.assert_array_equal(four, np.stack([whole, center(341), center(256), center(256)[:, :, ::-1]]))
    np.testing.assert_array_equal(Preprocessing(size=224, resize=256, views=2).pixels(photo), four[:2])
    np.testing.assert_array_equal(Preprocessing(size=224, resize=256).pixels(photo), four[2:3])


@pytest.mark.parametrize("wrong", [0, 3, "2", True, 2.0])
def test_other_numbers_of_views_are_refused(wrong):
    with pytest.raises(InputError, match="choose 1, 2 or 4"):
        Preprocessing(size=8, resize=8, views=wrong)


def test_crop_boxes_have_the_distribution_of_torchvisions():
    rng = random.Random(0)
    scale, ratio = (0.08, 1.0), (3 / 4, 4 / 3)
    ours = np.array([random_crop_box(180, 240, scale=scale, ratio=ratio, rng=rng) for _ in range(10_000)])
    image = torch.empty(3, 180, 240)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        theirs = np.array([v1.RandomResizedCrop.get_params(image, scale, ratio) for _ in range(10_000)])
    assert (ours[:, :2] >= 0).all()
    assert (ours[:, 0] + ours[:, 2] <= 180).all()
    assert (ours[:, 1] + ours[:, 3] <= 240).all()
    for column in range(4):
        assert stats.ks_2samp(ours[:, column], theirs[:, column]).pvalue > 0.01
    areas = [boxes[:, 2] * boxes[:, 3] for boxes in (ours, theirs)]
    assert stats.ks_2samp(*areas).pvalue > 0.01


def test_very_long_images_get_the_largest_centred_box():
    box = random_crop_box(10, 400, scale=(0.9, 1.0), ratio=(3 / 4, 4 / 3), rng=random.Random(0))
    assert box == (0, 193, 10, 13)
