"""Random crop and flip for training, drawn from a generator that the caller owns."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from torch import Tensor

from fiveshot.backbones.backbone import normalize_tensor
from fiveshot.extras import import_extra

if TYPE_CHECKING:
    import numpy as np

    from fiveshot.backbones.preprocessing import Preprocessing

Box = tuple[int, int, int, int]  # top, left, height, width

_TRIES = 10


def random_crop_box(
    height: int,
    width: int,
    *,
    scale: tuple[float, float],
    ratio: tuple[float, float],
    rng: np.random.Generator,
) -> Box:
    """Draw the box of a random resized crop: its share of the area, its proportions, its place.

    Share uniform in ``scale``, proportions log-uniform in ``ratio``. Boxes that stick out are drawn again;
    after ten tries the largest centered box with allowed proportions is taken.
    """
    for _ in range(_TRIES):
        area = height * width * rng.uniform(*scale)
        aspect = math.exp(rng.uniform(math.log(ratio[0]), math.log(ratio[1])))
        box_height, box_width = round(math.sqrt(area / aspect)), round(math.sqrt(area * aspect))
        if 0 < box_height <= height and 0 < box_width <= width:
            top = int(rng.integers(height - box_height + 1))
            left = int(rng.integers(width - box_width + 1))
            return top, left, box_height, box_width
    aspect = min(max(width / height, ratio[0]), ratio[1])
    box_height = min(height, round(width / aspect))
    box_width = min(width, round(height * aspect))
    return (height - box_height) // 2, (width - box_width) // 2, box_height, box_width


@dataclass(frozen=True)
class RandomCropFlip:
    """A random resized crop to the network's input, flipped by chance, then normalized."""

    preprocessing: Preprocessing
    scale: tuple[float, float]
    ratio: tuple[float, float]
    flip: float  # probability of mirroring left and right

    def __call__(self, image: Any, *, rng: np.random.Generator) -> Tensor:
        """Return one random view (3, size, size) of a PIL RGB image or uint8 tensor."""
        v2 = import_extra("torchvision.transforms.v2")
        wanted = self.preprocessing
        mode = v2.InterpolationMode(wanted.train_interpolation or wanted.interpolation)
        if wanted.squash is not None:
            image = v2.functional.resize(image, [wanted.squash, wanted.squash], interpolation=mode)
        height, width = v2.functional.get_size(image)
        box = random_crop_box(height, width, scale=self.scale, ratio=self.ratio, rng=rng)
        image = v2.functional.resized_crop(image, *box, [wanted.size, wanted.size], interpolation=mode)
        if rng.random() < self.flip:
            image = v2.functional.horizontal_flip(image)
        return normalize_tensor(v2.functional.to_image(image).as_subclass(Tensor), wanted)
