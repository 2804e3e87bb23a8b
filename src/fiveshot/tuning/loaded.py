"""Views made one by one with the CPU's transforms, in this process or in workers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from fiveshot.backbones import Preprocessing
from fiveshot.data import ImageSource, decode
from fiveshot.tuning.plan import CROPS, EpochPlan
from fiveshot.tuning.recipe import TuneRecipe
from fiveshot.tuning.views import Rows, share_of


class LoadedViews:
    """Images decoded and transformed one by one, in this process or in workers, with the CPU's transforms."""

    def __init__(
        self,
        sources: Sequence[ImageSource],
        preprocessing: Preprocessing,
        device: torch.device,
        *,
        workers: int = 0,
    ) -> None:
        self.sources, self.preprocessing, self.device, self.workers = sources, preprocessing, device, workers
        self._crops: tuple[Any, _Batches, Any] | None = None  # a transform and its loader, whose workers live on

    def train(
        self, rows: Rows, plan: EpochPlan, recipe: TuneRecipe, *, part: tuple[int, int] = (0, 1)
    ) -> Iterator[Tensor]:
        """Yield what the preprocessing's own training transform makes."""
        shown = rows[plan.order]
        transform = self.preprocessing.train_transform(
            scale=recipe.crop_scale, ratio=recipe.crop_ratio, flip=recipe.flip
        )
        if self._crops is None or self._crops[0] != transform:
            batches = _Batches()
            loader = self._loader(_RandomViews(self.sources, transform), batches, stay=self.workers > 0)
            self._crops = transform, batches, loader
        _, batches, loader = self._crops
        batches.content = [
            [(recipe.seed, plan.epoch, int(row)) for row in shown[share_of(batch, part)]] for batch in plan.batches
        ]
        yield from self._moved(loader)

    def measure(self, rows: Rows, *, batch_size: int) -> Iterator[Tensor]:
        """Yield what the preprocessing's own transform makes."""
        content = [rows[start : start + batch_size].tolist() for start in range(0, len(rows), batch_size)]
        dataset = _FixedViews(self.sources, self.preprocessing.transform())
        yield from self._moved(self._loader(dataset, _Batches(content), stay=False))

    def _loader(self, dataset: Dataset[Tensor], batches: _Batches, *, stay: bool) -> Any:
        return DataLoader(
            dataset,
            batch_sampler=batches,
            num_workers=self.workers,
            persistent_workers=stay,
            pin_memory=self.device.type == "cuda",
            generator=torch.Generator(),  # or else it draws from the global one
        )

    def _moved(self, loader: Any) -> Iterator[Tensor]:
        for images in loader:
            yield images.to(self.device, non_blocking=self.device.type == "cuda")


@dataclass
class _Batches:
    """A sampler whose batches are exchanged from epoch to epoch."""

    content: list[list[Any]] = field(default_factory=list)

    def __iter__(self) -> Iterator[list[Any]]:
        return iter(self.content)

    def __len__(self) -> int:
        return len(self.content)


class _RandomViews(Dataset[Tensor]):
    def __init__(self, sources: Sequence[ImageSource], transform: Any) -> None:
        self.sources, self.transform = sources, transform

    def __getitem__(self, key: tuple[int, int, int]) -> Tensor:
        # A generator of the image's own: the view does not depend on which worker makes it, or after what.
        seed, epoch, row = key
        rng = np.random.default_rng([seed, epoch, CROPS, row])
        view: Tensor = self.transform(decode(self.sources[row]), rng=rng)
        return view


class _FixedViews(Dataset[Tensor]):
    def __init__(self, sources: Sequence[ImageSource], transform: Any) -> None:
        self.sources, self.transform = sources, transform

    def __getitem__(self, row: int) -> Tensor:
        view: Tensor = self.transform(decode(self.sources[row]))
        return view
