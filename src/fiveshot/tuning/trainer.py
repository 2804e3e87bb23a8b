"""One tuning run: epochs over the training images, and what is needed to go on after a kill."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fiveshot.backbones import Preprocessing
from fiveshot.errors import InputError
from fiveshot.tuning.augment import Batch, augment
from fiveshot.tuning.execution import Execution, arithmetic, autocast
from fiveshot.tuning.network import TuningNetwork
from fiveshot.tuning.optimization import (
    MovingAverage,
    learning_rate,
    make_optimizer,
    optimizer_state,
    restore_optimizer,
    set_learning_rate,
    trained_parameters,
)
from fiveshot.tuning.plan import plan_epoch
from fiveshot.tuning.randomness import own_randomness
from fiveshot.tuning.recipe import TuneRecipe
from fiveshot.tuning.step import GraphedStep, TrainStep
from fiveshot.tuning.views import Views, share_of

Integers = NDArray[np.int64]
OnStep = Callable[[int, int, float, float], None]  # images done, images in all, loss, accuracy
_REPORT_SECONDS = 0.5  # reading numbers off a GPU makes it wait, so not after every step


@dataclass(frozen=True)
class EpochStats:
    """What an epoch of training gave."""

    loss: float
    accuracy: float
    images: int
    seconds: float

    @property
    def rate(self) -> float:
        """Images per second."""
        return self.images / self.seconds


class Trainer:
    """Trains the adapters of a network on some rows of the views, epoch by epoch.

    ``labels`` are the classes 0, 1, ... of the rows. An epoch depends on the weights, the optimizer's state and
    its own number alone, so ``state`` after an epoch is all that a later process needs to go on.
    """

    def __init__(
        self,
        network: TuningNetwork,
        views: Views,
        rows: Integers,
        labels: Integers,
        *,
        recipe: TuneRecipe,
        execution: Execution,
        preprocessing: Preprocessing,
        accelerator: Any = None,
    ) -> None:
        self.network, self.views, self.rows = network, views, rows
        self.recipe, self.execution, self.preprocessing = recipe, execution, preprocessing
        self.device = network.classifier.weight.device
        self.labels = torch.from_numpy(labels).to(self.device)
        self.accelerator = accelerator
        self.part = (accelerator.process_index, accelerator.num_processes) if accelerator else (0, 1)
        self.named = trained_parameters(network)
        graphed = bool(execution.cuda_graph) and accelerator is None
        self.optimizer = make_optimizer(network, recipe, capturable=graphed)
        step = TrainStep(network, self.optimizer, recipe, execution, self.device, accelerator)
        self.step: TrainStep | GraphedStep = GraphedStep(step, recipe.batch_size) if graphed else step
        self.average = MovingAverage(self.named, recipe.ema) if recipe.ema else None

    def epoch(self, number: int, *, on_step: OnStep | None = None) -> EpochStats:
        """Train for one epoch, counted from 0."""
        started = reported = time.perf_counter()
        self.network.train()
        self.step.sums.clear()
        seeds = (self.recipe.seed, number, self.part[0])
        with arithmetic(self.execution, self.device), own_randomness(seeds, self.device):
            for batch, n_done, n_all in self.batches(number):
                self.step(batch)
                if self.average is not None:
                    self.average.update()
                if on_step is not None and time.perf_counter() - reported > _REPORT_SECONDS:
                    reported = time.perf_counter()
                    own = n_done / self.part[1]  # of this process; the figures of the epoch are those of all
                    on_step(n_done, n_all, float(self.step.sums.loss) / own, float(self.step.sums.hits) / own)
            loss, hits = (float(total) / n_all for total in self._totals())
        if not np.isfinite(loss):
            raise InputError(f"the loss became {loss} in epoch {number + 1}; lower lr={self.recipe.lr:g}")
        return EpochStats(loss, hits, n_all, time.perf_counter() - started)

    def batches(self, number: int) -> Iterator[tuple[Batch, int, int]]:
        """Yield this process's part of every batch, with the images done by then and in all."""
        plan = plan_epoch(self.recipe, len(self.rows), epoch=number, processes=self.part[1])
        arrays = (plan.order, plan.partners, plan.turns, plan.colours, plan.shares, plan.patches)
        order, partners, turns, colours, shares, patches = (torch.from_numpy(a).to(self.device) for a in arrays)
        views = self.views.train(self.rows, plan, self.recipe, part=self.part)
        for index, (whole, images) in enumerate(zip(plan.batches, views, strict=True)):
            step = number * len(plan.batches) + index
            rate = learning_rate(self.recipe, step, steps_per_epoch=len(plan.batches))
            set_learning_rate(self.optimizer, rate)
            own = share_of(whole, self.part)
            # Images are mixed within a process: with its part reversed where it is not the whole batch.
            mates = partners[own] if self.part[1] == 1 else torch.arange(len(images), device=self.device).flip(0)
            weight = self.part[1] * len(images) / (whole.stop - whole.start)
            batch = Batch.plain(images, self.labels[order[own]], weight=weight)
            yield (
                augment(
                    batch,
                    self.recipe,
                    self.preprocessing,
                    turns=turns[own],
                    colours=colours[own],
                    partners=mates,
                    share=shares[index],
                    centre=patches[index],
                ),
                whole.stop,
                len(plan.order),
            )

    def _totals(self) -> tuple[Tensor, Tensor]:
        sums = torch.stack([self.step.sums.loss, self.step.sums.hits])
        if self.accelerator is not None:
            sums = self.accelerator.reduce(sums, reduction="sum")
        return sums[0], sums[1]

    @contextmanager
    def measuring(self) -> Iterator[None]:
        """Put the network into the state that is kept: eval mode, averaged weights."""
        self.network.eval()
        if self.average is not None:
            self.average.swap()
        try:
            yield
        finally:
            if self.average is not None:
                self.average.swap()

    def features(self, rows: Integers, *, batch_size: int = 256) -> Tensor:
        """Return the features (n, width) of the rows, in float32."""
        width = self.network.classifier.weight.shape[1]
        parts = [torch.empty(0, width, device=self.device)]
        with torch.no_grad(), arithmetic(self.execution, self.device):
            for images in self.views.measure(rows, batch_size=batch_size):
                with autocast(self.execution, self.device):
                    parts.append(
                        self.network.features(images.contiguous(memory_format=torch.channels_last)).float()
                    )
        return torch.cat(parts)

    def state(self) -> dict[str, Tensor]:
        """Return everything that changes from epoch to epoch, by name."""
        state = {f"parameters/{name}": p.detach() for name, p in self.named.items()}
        state |= {f"optimizer/{k}": v for k, v in optimizer_state(self.optimizer, self.named).items()}
        if self.average is not None:
            state |= {f"average/{name}": tensor for name, tensor in self.average.averages.items()}
            state["average_steps"] = torch.tensor(self.average.steps)
        return state

    def restore(self, state: Mapping[str, Tensor]) -> None:
        """Put a state from ``state`` back."""
        with torch.no_grad():
            for name, parameter in self.named.items():
                parameter.copy_(state[f"parameters/{name}"])
            if self.average is not None:
                for name, average in self.average.averages.items():
                    average.copy_(state[f"average/{name}"])
                self.average.steps = int(state["average_steps"])
        prefix = "optimizer/"
        own = {key.removeprefix(prefix): value for key, value in state.items() if key.startswith(prefix)}
        restore_optimizer(self.optimizer, self.named, own)
