"""Optimizer, learning-rate schedule and moving average, from a recipe."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from fiveshot.tuning.network import TuningNetwork
from fiveshot.tuning.recipe import TuneRecipe


def trained_parameters(network: TuningNetwork) -> dict[str, nn.Parameter]:
    """Return what is trained, by name: the adapters and the temporary classifier."""
    return {name: p for name, p in network.named_parameters() if p.requires_grad}


def make_optimizer(
    network: TuningNetwork, recipe: TuneRecipe, *, capturable: bool = False
) -> torch.optim.Optimizer:
    """Return the recipe's optimizer: one group for the adapters, one for the classifier."""
    named = trained_parameters(network)
    head = [p for name, p in named.items() if name.startswith("classifier.")]
    body = [p for name, p in named.items() if not name.startswith("classifier.")]
    on_gpu = next(iter(named.values())).is_cuda
    groups: list[dict[str, Any]] = [{"params": body, "factor": 1.0}, {"params": head, "factor": recipe.head_lr}]
    for group in groups:
        rate = recipe.lr * group["factor"]
        # Inside a CUDA graph the rate must be read from memory to change from step to step.
        group["lr"] = torch.tensor(rate, device=named["classifier.weight"].device) if capturable else rate
    if recipe.optimizer == "sgd":
        return torch.optim.SGD(
            groups, momentum=recipe.momentum, weight_decay=recipe.weight_decay, fused=on_gpu or None
        )
    return torch.optim.AdamW(groups, weight_decay=recipe.weight_decay, fused=on_gpu or None, capturable=capturable)


def learning_rate(recipe: TuneRecipe, step: int, *, steps_per_epoch: int) -> float:
    """Return the learning rate of a step, counted from 0 over all epochs.

    >>> paper = TuneRecipe(lr=1.0, epochs=4, schedule="cosine-per-epoch")
    >>> [round(learning_rate(paper, step, steps_per_epoch=2), 3) for step in range(8)]
    [1.0, 1.0, 0.854, 0.854, 0.5, 0.5, 0.146, 0.146]
    """
    total = recipe.epochs * steps_per_epoch
    rising = recipe.warmup * total
    if step < rising:
        return recipe.lr * (step + 1) / (rising + 1)
    if recipe.schedule == "constant":
        return recipe.lr
    if recipe.schedule == "cosine-per-epoch":
        step -= step % steps_per_epoch
    done = max(0.0, step - rising) / (total - rising)
    return recipe.lr * (1 + math.cos(math.pi * done)) / 2


def set_learning_rate(optimizer: torch.optim.Optimizer, rate: float) -> None:
    """Set the rate of every group, each in its own proportion."""
    for group in optimizer.param_groups:
        if isinstance(group["lr"], Tensor):
            group["lr"].fill_(rate * group["factor"])
        else:
            group["lr"] = rate * group["factor"]


def optimizer_state(optimizer: torch.optim.Optimizer, named: Mapping[str, nn.Parameter]) -> dict[str, Tensor]:
    """Return the optimizer's tensors by the names of their parameters."""
    return {
        f"{name}/{key}": value
        for name, parameter in named.items()
        for key, value in optimizer.state.get(parameter, {}).items()
        if isinstance(value, Tensor)
    }


def restore_optimizer(
    optimizer: torch.optim.Optimizer, named: Mapping[str, nn.Parameter], state: Mapping[str, Tensor]
) -> None:
    """Put tensors from ``optimizer_state`` back."""
    for key, value in state.items():
        name, _, entry = key.rpartition("/")
        parameter = named[name]
        on_device = entry != "step" or bool(
            optimizer.defaults.get("fused") or optimizer.defaults.get("capturable")
        )
        optimizer.state[parameter][entry] = value.to(parameter.device if on_device else "cpu").clone()


class MovingAverage:
    """An exponential moving average of the trained parameters, faster at the start."""

    def __init__(self, named: Mapping[str, nn.Parameter], decay: float) -> None:
        self.decay, self.steps = decay, 0
        self.parameters = list(named.values())
        self.averages = {name: p.detach().clone() for name, p in named.items()}

    def update(self) -> None:
        """Take the present weights in."""
        self.steps += 1
        decay = min(self.decay, self.steps / (self.steps + 9))
        current = [p.detach() for p in self.parameters]
        torch._foreach_lerp_(list(self.averages.values()), current, 1 - decay)

    def swap(self) -> None:
        """Exchange the averages and the network's weights; a second call exchanges them back."""
        with torch.no_grad():
            for parameter, average in zip(self.parameters, self.averages.values(), strict=True):
                kept = parameter.detach().clone()
                parameter.copy_(average)
                average.copy_(kept)
