"""What is done to whole batches on the device: colours, quarter turns, mixtures."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from fiveshot.backbones import Preprocessing
from fiveshot.tuning.recipe import TuneRecipe

_GREY = (0.299, 0.587, 0.114)


@dataclass(frozen=True, eq=False)
class Batch:
    """Images with two classes each and the share of the first; without mixing both are the same."""

    images: Tensor  # (n, 3, side, side), normalised
    first: Tensor  # (n,)
    second: Tensor  # (n,)
    share: Tensor  # (n,)
    weight: float = 1.0  # of this part of a batch, where several processes have parts of unequal size

    def __len__(self) -> int:
        """Return the number of images."""
        return len(self.images)

    @classmethod
    def plain(cls, images: Tensor, labels: Tensor, *, weight: float = 1.0) -> Batch:
        """Return a batch without mixtures."""
        return cls(images, labels, labels, torch.ones(len(labels), device=images.device), weight)


def augment(
    batch: Batch,
    recipe: TuneRecipe,
    preprocessing: Preprocessing,
    *,
    turns: Tensor,
    colours: Tensor,
    partners: Tensor,
    share: Tensor,
    centre: Tensor,
) -> Batch:
    """Return the batch with what the recipe asks for done to it."""
    if recipe.colour_jitter:
        batch = replace(batch, images=jitter_colours(batch.images, colours, preprocessing))
    if recipe.rotation_classes > 1:
        labels = batch.first * recipe.rotation_classes + turns // (4 // recipe.rotation_classes)
        batch = replace(batch, images=turn(batch.images, turns), first=labels, second=labels)
    if recipe.mixing == "mixup":
        return mixup(batch, partners, share)
    if recipe.mixing == "cutmix":
        return cutmix(batch, partners, share, centre)
    return batch


def jitter_colours(images: Tensor, factors: Tensor, preprocessing: Preprocessing) -> Tensor:
    """Return normalised images with brightness, contrast and saturation multiplied by ``factors`` (n, 3)."""
    mean, std = (images.new_tensor(v).view(3, 1, 1) for v in (preprocessing.mean, preprocessing.std))
    grey = images.new_tensor(_GREY).view(3, 1, 1)
    brightness, contrast, saturation = factors.to(images.dtype).view(-1, 3, 1, 1, 1).unbind(dim=1)
    pixels = ((images * std + mean) * brightness).clamp(0, 1)
    level = (pixels * grey).sum(dim=1, keepdim=True).mean(dim=(2, 3), keepdim=True)
    pixels = (level + contrast * (pixels - level)).clamp(0, 1)
    luma = (pixels * grey).sum(dim=1, keepdim=True)
    pixels = (luma + saturation * (pixels - luma)).clamp(0, 1)
    return (pixels - mean) / std


def turn(images: Tensor, turns: Tensor) -> Tensor:
    """Return the images (n, 3, side, side) turned by ``turns`` (n,) quarters, counter-clockwise."""
    turned = [torch.rot90(images, quarter, dims=(2, 3)) for quarter in range(1, 4)]
    for quarter, rotated in enumerate(turned, start=1):
        images = torch.where((turns == quarter).view(-1, 1, 1, 1), rotated, images)
    return images


def mixup(batch: Batch, partners: Tensor, share: Tensor) -> Batch:
    """Blend each image with its partner; ``share`` () is what it keeps of itself."""
    images = share * batch.images + (1 - share) * batch.images[partners]
    return replace(batch, images=images, second=batch.first[partners], share=share.expand(len(batch)))


def cutmix(batch: Batch, partners: Tensor, share: Tensor, centre: Tensor) -> Batch:
    """Paste a patch of its partner into each image: 1 − ``share`` of the area, where that fits the image."""
    side = batch.images.shape[-1]
    half = side * (1 - share).sqrt() / 2
    place = torch.arange(side, device=share.device)
    low, high = (centre * side - half).round(), (centre * side + half).round()  # (2,)
    inside = (place >= low[:, None]) & (place < high[:, None])  # (2, side)
    patch = inside[0][:, None] & inside[1][None, :]
    images = torch.where(patch, batch.images[partners], batch.images)
    kept = 1 - patch.float().mean()
    return replace(batch, images=images, second=batch.first[partners], share=kept.expand(len(batch)))
