from __future__ import annotations

import numpy as np
import pytest
import torch
from torchvision.transforms.v2 import functional as tv

from fiveshot.backbones import Preprocessing
from fiveshot.tuning import TuneRecipe
from fiveshot.tuning.augment import Batch, augment, cutmix, jitter_colours, mixup, turn
from fiveshot.tuning.objective import tuning_loss
from fiveshot.tuning.plan import plan_epoch

WANTED = Preprocessing(size=16, resize=16, mean=(0.4, 0.5, 0.6), std=(0.2, 0.3, 0.25))


def pixels(n: int = 3) -> torch.Tensor:
    return torch.rand(n, 3, 16, 16, generator=torch.Generator().manual_seed(0))


def normalised(images: torch.Tensor) -> torch.Tensor:
    return tv.normalize(images, WANTED.mean, WANTED.std)


def test_colours_change_as_torchvision_changes_them() -> None:
    images = pixels()
    factors = torch.tensor([[1.3, 0.7, 1.2], [0.6, 1.4, 0.5], [1.0, 1.0, 1.0]])
    ours = jitter_colours(normalised(images), factors, WANTED)
    for image, factor, view in zip(images, factors.tolist(), ours, strict=True):
        oracle = tv.adjust_brightness(image, factor[0])
        oracle = tv.adjust_saturation(tv.adjust_contrast(oracle, factor[1]), factor[2])
        assert torch.allclose(view, normalised(oracle), atol=2e-3)


def test_turns_are_quarters() -> None:
    images = pixels(4)
    turned = turn(images, torch.arange(4))
    for quarter in range(4):
        assert torch.equal(turned[quarter], torch.rot90(images[quarter], quarter, dims=(1, 2)))


def test_turned_images_are_classes_of_their_own() -> None:
    recipe = TuneRecipe(rotation_classes=2, batch_size=4)
    plan = plan_epoch(recipe, 40, epoch=0)
    assert set(plan.turns.tolist()) == {0, 2}
    turns = torch.tensor([0, 2, 0, 2])
    batch = augment(
        Batch.plain(pixels(4), torch.tensor([0, 0, 1, 1])),
        recipe,
        WANTED,
        turns=turns,
        colours=torch.ones(4, 3),
        partners=torch.arange(4),
        share=torch.tensor(1.0),
        centre=torch.tensor([0.5, 0.5]),
    )
    assert batch.first.tolist() == [0, 1, 2, 3]
    assert torch.equal(batch.images, turn(pixels(4), turns))


def test_mixup_blends_images_and_labels() -> None:
    images, labels, partners = pixels(), torch.tensor([4, 5, 6]), torch.tensor([2, 0, 1])
    mixed = mixup(Batch.plain(images, labels), partners, torch.tensor(0.3))
    assert torch.allclose(mixed.images[0], 0.3 * images[0] + 0.7 * images[2])
    assert mixed.second.tolist() == [6, 4, 5]
    assert torch.allclose(mixed.share, torch.full((3,), 0.3))


@pytest.mark.parametrize("centre", [(0.5, 0.5), (0.05, 0.9)])
def test_cutmix_s_share_is_the_area_that_is_left(centre: tuple[float, float]) -> None:
    zeros, ones = torch.zeros(1, 3, 16, 16), torch.ones(1, 3, 16, 16)
    batch = Batch.plain(torch.cat([zeros, ones]), torch.tensor([0, 1]))
    mixed = cutmix(batch, torch.tensor([1, 0]), torch.tensor(0.75), torch.tensor(centre))
    assert mixed.images[0].mean().item() == pytest.approx(1 - mixed.share[0].item())
    assert 0 < mixed.images[0].mean() <= 0.25
    pasted = mixed.images[0, 0].nonzero()
    sides = pasted.max(dim=0).values - pasted.min(dim=0).values + 1
    assert len(pasted) == sides.prod()  # one rectangle


def test_the_loss_spelled_out() -> None:
    rng = np.random.default_rng(0)
    cosines = rng.uniform(-1, 1, (5, 4))
    first, second, share = rng.integers(4, size=5), rng.integers(4, size=5), rng.random(5)
    recipe = TuneRecipe(margin=0.2, label_smoothing=0.1, mixing="mixup")

    def loss(row: int, label: int) -> float:
        logits = 7.0 * (cosines[row] - 0.2 * (np.arange(4) == label))
        log_p = logits - np.log(np.exp(logits).sum())
        return float(-(0.9 * log_p[label] + 0.1 * log_p.mean()))

    expected = np.mean(
        [
            s * loss(i, a) + (1 - s) * loss(i, b)
            for i, (a, b, s) in enumerate(zip(first, second, share, strict=True))
        ]
    )
    batch = Batch(torch.zeros(5, 0), *(torch.from_numpy(a) for a in (first, second, share)))
    ours = tuning_loss(torch.from_numpy(cosines), torch.tensor(7.0, dtype=torch.float64), batch, recipe)
    assert ours.item() == pytest.approx(expected, rel=1e-6)
