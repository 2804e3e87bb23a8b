"""From a decoded RGB image to the tensor a network expects, as a value that travels with the features."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, fields
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from fiveshot.errors import InputError, unknown_name
from fiveshot.extras import import_extra

if TYPE_CHECKING:
    from fiveshot.backbones.augmentation import RandomCropFlip

INTERPOLATIONS = ("bicubic", "bilinear", "lanczos", "nearest")
Triple = tuple[float, float, float]


@dataclass(frozen=True)
class Preprocessing:
    """Resize, crop and normalise, as the weights were trained with.

    >>> plain = Preprocessing(size=224, resize=256)
    >>> Preprocessing.from_json(plain.to_json()) == plain
    True
    """

    size: int  # side of the square the network takes
    resize: int  # short side before the centre crop of `size`
    interpolation: str = "bicubic"
    mean: Triple = (0.5, 0.5, 0.5)
    std: Triple = (0.5, 0.5, 0.5)
    squash: int | None = None  # first of all, both sides to this length, whatever the proportions
    train_scale: tuple[float, float] = (0.08, 1.0)  # share of the area that a random crop covers
    train_interpolation: str | None = None  # None: as for testing
    name: str = "custom"

    def __post_init__(self) -> None:
        """Refuse sizes that cannot be cropped and unknown interpolations."""
        if not 0 < self.size <= self.resize:
            raise InputError(f"a centre crop of {self.size} px needs a short side of at least that: {self.resize}")
        for interpolation in (self.interpolation, self.train_interpolation or self.interpolation):
            if interpolation not in INTERPOLATIONS:
                raise unknown_name("interpolation", interpolation, INTERPOLATIONS)

    def transform(self) -> Callable[[Any], Tensor]:
        """Return the transform for features and tests: a PIL RGB image or uint8 tensor to (3, size, size)."""
        v2 = import_extra("torchvision.transforms.v2")
        composed: Callable[[Any], Tensor] = v2.Compose([self.pixel_transform(), self.normalise])
        return composed

    def pixel_transform(self) -> Callable[[Any], Tensor]:
        """Return ``transform()`` short of its last step, which is cheaper on a whole batch.

        >>> import PIL.Image
        >>> pixels = Preprocessing(size=224, resize=256).pixel_transform()(PIL.Image.new("RGB", (500, 375)))
        >>> pixels.shape, pixels.dtype
        (torch.Size([3, 224, 224]), torch.uint8)
        """
        v2 = import_extra("torchvision.transforms.v2")
        mode = v2.InterpolationMode(self.interpolation)
        steps = []
        if self.squash is not None:
            steps.append(v2.Resize((self.squash, self.squash), interpolation=mode))
        if self.squash != self.resize:
            steps.append(v2.Resize(self.resize, interpolation=mode))
        steps += [v2.CenterCrop(self.size), v2.ToImage(), v2.ToPureTensor()]
        composed: Callable[[Any], Tensor] = v2.Compose(steps)
        return composed

    def train_transform(
        self,
        *,
        scale: tuple[float, float] | None = None,
        ratio: tuple[float, float] = (3 / 4, 4 / 3),
        flip: float = 0.5,
    ) -> RandomCropFlip:
        """Return the transform for training: called with an image and a random generator."""
        from fiveshot.backbones.augmentation import RandomCropFlip

        return RandomCropFlip(self, scale=scale or self.train_scale, ratio=ratio, flip=flip)

    def normalise(self, images: Tensor) -> Tensor:
        """Return uint8 images (..., 3, height, width) as normalised float32, on the device they are on."""
        if images.dtype != torch.uint8:
            raise InputError(f"images of type {images.dtype} cannot be normalised; give uint8, 0..255")
        mean, std = (images.new_tensor(v, dtype=torch.float32).view(3, 1, 1) for v in (self.mean, self.std))
        return (images.to(torch.float32) / 255 - mean) / std

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON values."""
        return {key: list(value) if isinstance(value, tuple) else value for key, value in asdict(self).items()}

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Preprocessing:
        """Read what ``to_json()`` wrote; unknown keys fail."""
        known = {field.name for field in fields(cls)}
        for key in values:
            if key not in known:
                raise unknown_name("preprocessing value", key, known)
        arguments: dict[str, Any] = {
            key: tuple(value) if isinstance(value, list) else value for key, value in values.items()
        }
        return cls(**arguments)


def weights_preprocessing(model: Any, *, name: str) -> Preprocessing:
    """Return the preprocessing that timm records for the model's weights."""
    config = import_extra("timm.data").resolve_model_data_config(model)
    channels, height, width = config["input_size"]
    if channels != 3 or height != width or config["crop_mode"] not in ("center", "squash"):
        raise InputError(
            f"{name} wants {channels} x {height} x {width} images, crop mode {config['crop_mode']!r}; "
            "only square RGB inputs with a centre crop are supported: choose another backbone"
        )
    resize = math.floor(height / config["crop_pct"])
    return Preprocessing(
        size=height,
        resize=resize,
        interpolation=config["interpolation"],
        mean=tuple(config["mean"]),
        std=tuple(config["std"]),
        squash=resize if config["crop_mode"] == "squash" else None,
        name="weights",
    )
