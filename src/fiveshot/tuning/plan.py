"""What an epoch does, drawn before it starts: order, crops, flips, colours, mixtures.

Everything comes from the seed and the epoch's number. A run that is resumed at an epoch therefore draws what the
uninterrupted one would have drawn, with no generator state to restore, and a GPU never waits for a draw.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fiveshot.tuning.recipe import TuneRecipe

Floats = NDArray[np.float32]
Integers = NDArray[np.int64]
ORDER, CROPS = 0, 1  # purposes of an epoch's generators
_TRIES = 10


@dataclass(frozen=True, eq=False)
class EpochPlan:
    """Choices for the images of one epoch, in the order in which they are shown."""

    epoch: int
    order: Integers  # (n,), positions among the training images
    partners: Integers  # (n,), whom each image is mixed with: a position in its own batch
    shares: Floats  # (n_batches,), what an image keeps of itself when mixed
    patches: Floats  # (n_batches, 2), centre of the patch that cutmix pastes, in 0..1
    turns: Integers  # (n,), quarter turns
    colours: Floats  # (n, 3), factors of brightness, contrast and saturation
    batch_size: int

    @property
    def batches(self) -> list[slice]:
        """Positions in the order that make up each batch; the last may be smaller."""
        n = len(self.order)
        return [slice(start, min(start + self.batch_size, n)) for start in range(0, n, self.batch_size)]


def epoch_rng(seed: int, epoch: int, purpose: int) -> np.random.Generator:
    """Return the generator of one epoch for one purpose; they are independent of each other."""
    return np.random.default_rng([seed, epoch, purpose])


def plan_epoch(recipe: TuneRecipe, n_images: int, *, epoch: int, processes: int = 1) -> EpochPlan:
    """Draw the plan of an epoch; a last batch with fewer images than processes is left out.

    >>> plan = plan_epoch(TuneRecipe(batch_size=4), 10, epoch=3)
    >>> sorted(plan.order.tolist()) == list(range(10)), [len(plan.order[b]) for b in plan.batches]
    (True, [4, 4, 2])
    """
    rng = epoch_rng(recipe.seed, epoch, ORDER)
    order = rng.permutation(n_images)
    tail = n_images % recipe.batch_size
    n_images -= tail if tail < processes else 0
    starts = range(0, n_images, recipe.batch_size)
    partners = [rng.permutation(min(recipe.batch_size, n_images - start)) for start in starts]
    alpha, jitter = recipe.mixing_alpha, recipe.colour_jitter
    turn = 4 // recipe.rotation_classes
    return EpochPlan(
        epoch=epoch,
        order=order[:n_images],
        partners=np.concatenate(partners),
        shares=rng.beta(alpha, alpha, size=len(starts)).astype(np.float32),
        patches=rng.random((len(starts), 2), dtype=np.float32),
        turns=turn * rng.integers(recipe.rotation_classes, size=n_images),
        colours=rng.uniform(1 - jitter, 1 + jitter, size=(n_images, 3)).astype(np.float32),
        batch_size=recipe.batch_size,
    )


def random_crop_boxes(
    heights: Integers,
    widths: Integers,
    *,
    scale: tuple[float, float],
    ratio: tuple[float, float],
    rng: np.random.Generator,
) -> Integers:  # (n, 4): top, left, height, width
    """Draw a random resized crop for every image, distributed as ``fiveshot.backbones`` draws a single one."""
    n = len(heights)
    areas = heights * widths * rng.uniform(*scale, size=(_TRIES, n))
    aspects = np.exp(rng.uniform(np.log(ratio[0]), np.log(ratio[1]), size=(_TRIES, n)))
    tall, wide = np.rint(np.sqrt(areas / aspects)), np.rint(np.sqrt(areas * aspects))
    fits = (tall > 0) & (tall <= heights) & (wide > 0) & (wide <= widths)
    first = fits.argmax(axis=0), np.arange(n)
    # Where no try fits: the largest centred box with allowed proportions.
    aspect = np.clip(widths / heights, *ratio)
    lost = ~fits.any(axis=0)
    tall = np.where(lost, np.minimum(heights, np.rint(widths / aspect)), tall[first]).astype(np.int64)
    wide = np.where(lost, np.minimum(widths, np.rint(heights * aspect)), wide[first]).astype(np.int64)
    places = rng.random((2, n))
    top = np.where(lost, (heights - tall) // 2, np.floor(places[0] * (heights - tall + 1)))
    left = np.where(lost, (widths - wide) // 2, np.floor(places[1] * (widths - wide + 1)))
    return np.stack([top, left, tall, wide], axis=1).astype(np.int64)
