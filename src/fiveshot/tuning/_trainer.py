"""The network with adapters and a temporary classifier, and its training steps and epochs."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

from fiveshot.backbones import Backbone, Readout, adapters, attach_adapters, quick_vit, read_features
from fiveshot.errors import InputError
from fiveshot.extras import import_extra
from fiveshot.tuning._recipes import TuneRecipe
from fiveshot.tuning._views import Views, plan_epoch, share_of
from fiveshot.tuning.execution import Execution, arithmetic, log_without_compiling, own_randomness
from fiveshot.tuning.results import EpochRecord

_log = logging.getLogger(__name__)
Integers = NDArray[np.int64]
OnStep = Callable[[int, int, float, float], None]  # images done, all images, loss, accuracy
_REPORT_SECONDS = 0.5  # reading numbers off a GPU makes it wait, so not after every step
_MEASURED_AT_ONCE = 256  # images
_WARM_UP = 3  # eager steps before recording, in which libraries choose their kernels


def trained_parameters(network: TuningNetwork) -> dict[str, nn.Parameter]:
    """Return the trained parameters by name: adapters and temporary classifier."""
    return {name: p for name, p in network.named_parameters() if p.requires_grad}


def make_optimizer(
    network: TuningNetwork, recipe: TuneRecipe, *, capturable: bool = False
) -> torch.optim.Optimizer:
    """Return the recipe's optimizer for the adapters and the classifier."""
    trained = list(trained_parameters(network).values())
    # Inside a CUDA graph the rate must be read from memory to change from step to step.
    rate = torch.tensor(recipe.lr, device=trained[0].device) if capturable else recipe.lr
    options: dict[str, Any] = {"weight_decay": recipe.weight_decay, "fused": trained[0].is_cuda or None}
    if recipe.optimizer == "sgd":
        return torch.optim.SGD(trained, rate, momentum=recipe.momentum, **options)
    return torch.optim.AdamW(trained, rate, capturable=capturable, **options)


def learning_rate(recipe: TuneRecipe, step: int, *, steps_per_epoch: int) -> float:
    """Return the learning rate of a step, counted from 0 over all epochs.

    >>> paper = TuneRecipe(lr=1.0, epochs=4, schedule="cosine-per-epoch")
    >>> [round(learning_rate(paper, step, steps_per_epoch=2), 3) for step in range(8)]
    [1.0, 1.0, 0.854, 0.854, 0.5, 0.5, 0.146, 0.146]
    """
    if recipe.schedule == "cosine-per-epoch":
        step -= step % steps_per_epoch
    return recipe.lr * (1 + math.cos(math.pi * step / (recipe.epochs * steps_per_epoch))) / 2


def set_learning_rate(optimizer: torch.optim.Optimizer, rate: float) -> None:
    """Set the rate of the next step."""
    (group,) = optimizer.param_groups
    if isinstance(group["lr"], Tensor):
        group["lr"].fill_(rate)
    else:
        group["lr"] = rate


class TrainStep:
    """Trains on a batch; loss and right answers are added to ``sums``."""

    def __init__(
        self,
        network: TuningNetwork,
        optimizer: torch.optim.Optimizer,
        recipe: TuneRecipe,
        execution: Execution,
        accelerator: Any = None,
    ) -> None:
        self.network, self.optimizer, self.recipe, self.accelerator = network, optimizer, recipe, accelerator
        # Sums of losses and of right answers; they stay on the device until they are read.
        self.sums = torch.zeros(2, device=network.classifier.weight.device)
        self.forward: Any = network if accelerator is None else accelerator.prepare_model(network)
        # Compiled only for full batches: every other size would be compiled again.
        self.whole: Any = torch.compile(self.forward, dynamic=False) if execution.compile else self.forward

    def __call__(self, batch: Batch) -> None:
        """Take one step."""
        if self.whole is self.forward or len(batch) != self.recipe.batch_size:
            self._step(self.forward, batch)
            return
        try:
            self._step(self.whole, batch)
        except Exception as error:
            log_without_compiling(error)
            self.whole = self.forward
            self._step(self.forward, batch)

    def _step(self, forward: nn.Module, batch: Batch) -> None:
        self.optimizer.zero_grad(set_to_none=True)
        cosines = forward(batch.images)
        loss = tuning_loss(cosines, self.network.classifier.scale, batch, self.recipe)
        if self.accelerator is None:
            torch.autograd.backward(loss)
        else:
            self.accelerator.backward(loss * batch.weight)
        self.optimizer.step()
        with torch.no_grad():
            self.sums[0].add_(loss.detach(), alpha=len(batch))
            self.sums[1].add_((cosines.argmax(dim=1) == batch.labels).sum())


class GraphedStep:
    """The same step, recorded once and replayed, without gaps between its hundreds of small kernels."""

    def __init__(self, step: TrainStep, batch_size: int) -> None:
        self.step, self.batch_size, self.sums = step, batch_size, step.sums
        self._taken = 0
        self._recorded: Callable[[Batch], None] | None = None

    def __call__(self, batch: Batch) -> None:
        """Take one step; batches of another size are not replayed."""
        if len(batch) != self.batch_size:
            self.step(batch)
        elif self._taken < _WARM_UP:
            self._taken += 1
            _aside(self.step, batch)
        else:
            self._recorded = self._recorded or self._record(batch)
            self._recorded(batch)

    def _record(self, batch: Batch) -> Callable[[Batch], None]:
        """Record the step without running it; return its replay function, or the step if recording fails."""
        loaded = replace(batch, images=batch.images.clone(), labels=batch.labels.clone())
        self.step.optimizer.zero_grad(set_to_none=True)
        graph = torch.cuda.CUDAGraph()
        try:
            with torch.cuda.graph(graph):
                self.step(loaded)
        except RuntimeError as error:
            _log.warning("the step cannot be recorded (%s); continuing without recording", error)
            return self.step

        def replay(batch: Batch) -> None:
            loaded.images.copy_(batch.images)
            loaded.labels.copy_(batch.labels)
            graph.replay()

        return replay


def _aside(step: TrainStep, batch: Batch) -> None:
    """Take a step on a separate stream, which is needed before recording."""
    stream: Any = torch.cuda.Stream()  # type: ignore[no-untyped-call]
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        step(batch)
    torch.cuda.current_stream().wait_stream(stream)


class Trainer:
    """Trains the adapters of a network on some rows of the views, epoch by epoch.

    ``labels`` are the classes 0, 1, ... of the rows. An epoch depends only on the weights, the optimizer's state
    and its own number. So a later process needs only ``state`` to continue.
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
        accelerator: Any = None,
    ) -> None:
        self.network, self.views, self.rows = network, views, rows
        self.recipe, self.execution = recipe, execution
        self.device = network.classifier.weight.device
        self.labels = torch.from_numpy(labels).to(self.device)
        self.accelerator = accelerator
        self.part = (accelerator.process_index, accelerator.num_processes) if accelerator else (0, 1)
        self.named = trained_parameters(network)
        if recipe.classifier_start == "means":
            network.classifier.start_at_means(self.features(rows), self.labels)
        graphed = bool(execution.cuda_graph) and accelerator is None
        self.optimizer = make_optimizer(network, recipe, capturable=graphed)
        step = TrainStep(network, self.optimizer, recipe, execution, accelerator)
        self.step: TrainStep | GraphedStep = GraphedStep(step, recipe.batch_size) if graphed else step

    def epoch(self, number: int, *, on_step: OnStep | None = None) -> EpochRecord:
        """Train for one epoch, counted from 0."""
        started = reported = time.perf_counter()
        self.network.train()
        self.step.sums.zero_()
        seeds = (self.recipe.seed, number, self.part[0])
        with arithmetic(self.execution, self.device), own_randomness(seeds, self.device):
            for batch, n_done, n_all in self.batches(number):
                self.step(batch)
                if on_step is not None and time.perf_counter() - reported > _REPORT_SECONDS:
                    reported = time.perf_counter()
                    own = n_done / self.part[1]  # images of this process
                    on_step(n_done, n_all, *(float(total) / own for total in self.step.sums))
            sums = self.step.sums
            if self.accelerator is not None:
                sums = self.accelerator.reduce(sums, reduction="sum")
            loss, accuracy = (float(total) / n_all for total in sums)
        if not np.isfinite(loss):
            raise InputError(f"the loss became {loss} in epoch {number + 1}", hint=f"lower lr={self.recipe.lr:g}")
        rate = n_all / (time.perf_counter() - started)
        return EpochRecord(number + 1, loss, accuracy, images_per_second=rate)

    def batches(self, number: int) -> Iterator[tuple[Batch, int, int]]:
        """Yield this process's part of every batch, with the number of images done and of all images."""
        plan = plan_epoch(self.recipe, len(self.rows), epoch=number, processes=self.part[1])
        order = torch.from_numpy(plan.order).to(self.device)
        views = self.views.train(self.rows, plan, self.recipe, part=self.part)
        for index, (whole, images) in enumerate(zip(plan.batches, views, strict=True)):
            step = number * len(plan.batches) + index
            rate = learning_rate(self.recipe, step, steps_per_epoch=len(plan.batches))
            set_learning_rate(self.optimizer, rate)
            labels = self.labels[order[share_of(whole, self.part)]]
            weight = self.part[1] * len(images) / (whole.stop - whole.start)
            yield Batch(images, labels, weight), whole.stop, len(plan.order)

    def features(self, rows: Integers) -> Tensor:
        """Return the features (n, width) of the rows, in float32, with dropout off."""
        self.network.eval()
        width = self.network.classifier.weight.shape[1]
        parts = [torch.empty(0, width, device=self.device)]
        with torch.no_grad(), arithmetic(self.execution, self.device):
            for images in self.views.measure(rows, batch_size=_MEASURED_AT_ONCE):
                parts.append(self.network.features(images).float())
        return torch.cat(parts)

    def state(self) -> dict[str, Tensor]:
        """Return everything that changes from epoch to epoch, by name: parameters and the optimizer's state."""
        state = {f"parameters/{name}": p.detach() for name, p in self.named.items()}
        for name, parameter in self.named.items():
            for key, value in self.optimizer.state.get(parameter, {}).items():
                if isinstance(value, Tensor):
                    state[f"optimizer/{name}/{key}"] = value
        return state

    def restore(self, state: Mapping[str, Tensor]) -> None:
        """Restore the result of ``state``."""
        options = self.optimizer.defaults
        counts_on_device = bool(options.get("fused") or options.get("capturable"))
        with torch.no_grad():
            for name, parameter in self.named.items():
                parameter.copy_(state[f"parameters/{name}"])
        for key, value in state.items():
            kind, _, rest = key.partition("/")
            if kind == "optimizer":
                name, _, entry = rest.rpartition("/")
                on_device = entry != "step" or counts_on_device
                place = self.named[name].device if on_device else "cpu"
                self.optimizer.state[self.named[name]][entry] = value.to(place).clone()


@dataclass(frozen=True, eq=False)
class Batch:
    """Images and their classes."""

    images: Tensor  # (n, 3, side, side), normalized
    labels: Tensor  # (n,)
    weight: float = 1.0  # of this part of a batch, if processes have parts of unequal size

    def __len__(self) -> int:
        """Return the number of images."""
        return len(self.images)


def tuning_loss(cosines: Tensor, scale: Tensor, batch: Batch, recipe: TuneRecipe) -> Tensor:
    """Return the mean cross-entropy of a batch of cosines (n, n_classes), scaled and with smoothed labels."""
    if recipe.margin:
        cosines = cosines - recipe.margin * F.one_hot(batch.labels, cosines.shape[1])
    return F.cross_entropy(scale * cosines, batch.labels, label_smoothing=recipe.label_smoothing)


class CosineClassifier(nn.Module):
    """scale · cos(feature, weight of the class), with a learned or fixed scale."""

    def __init__(
        self, width: int, n_classes: int, *, scale: float, learnable: bool, generator: torch.Generator
    ) -> None:
        """Draw the weights uniformly between ±1/√width from the generator."""
        super().__init__()
        self.weight = nn.Parameter(torch.empty(n_classes, width))
        nn.init.uniform_(self.weight, -1 / math.sqrt(width), 1 / math.sqrt(width), generator=generator)
        if learnable:
            self.scale: Tensor = nn.Parameter(torch.tensor(scale))
        else:
            self.register_buffer("scale", torch.tensor(scale))

    def start_at_means(self, features: Tensor, labels: Tensor) -> None:
        """Set the weights to the directions of the class means; a class without features keeps its own."""
        members = F.one_hot(labels, len(self.weight)).to(features)  # (n, n_classes)
        present = members.any(dim=0)
        with torch.no_grad():
            self.weight[present] = F.normalize(members.T @ features)[present]

    def cosines(self, features: Tensor) -> Tensor:
        """Return the cosines (n, n_classes) in float32."""
        with torch.autocast(features.device.type, enabled=False):
            return F.linear(F.normalize(features.float()), F.normalize(self.weight))

    def forward(self, features: Tensor) -> Tensor:
        """Return the logits (n, n_classes)."""
        return self.scale * self.cosines(features)


class TuningNetwork(nn.Module):
    """Images to logits; only adapters and classifier have gradients.

    Neither the images nor the weights before the first adapter need a gradient. So automatic differentiation
    starts at the first adapter; the stem, the patch embedding and the first block's attention and MLP run without
    it.
    """

    def __init__(
        self,
        model: nn.Module,
        readout: Readout,
        classifier: CosineClassifier,
        *,
        number_format: torch.dtype = torch.float32,
        autocast: bool = False,
    ) -> None:
        super().__init__()
        self.model, self.readout, self.classifier = model, readout, classifier
        self.number_format, self.autocast = number_format, autocast

    def train(self, mode: bool = True) -> TuningNetwork:
        """Put adapters and classifier into training mode; the frozen parts stay in eval mode."""
        super().train(False)
        for adapter in adapters(self.model):
            adapter.train(mode)
        for module in self.model.modules():
            if isinstance(module, _tiny_attention()):
                module.train()  # without dropout; in eval mode it keeps a tensor that recorded steps would outlive
        self.classifier.train(mode)
        return self

    def features(self, images: Tensor) -> Tensor:
        """Return the features (n, width) of normalized images."""
        images = images.to(self.number_format, memory_format=torch.channels_last)
        with torch.autocast("cuda", torch.bfloat16) if self.autocast else nullcontext():
            return read_features(self.model, images, self.readout)

    def forward(self, images: Tensor) -> Tensor:
        """Return the cosines (n, n_classes) to the classes' weights."""
        return self.classifier.cosines(self.features(images))


def _tiny_attention() -> type[nn.Module]:
    kind: type[nn.Module] = import_extra("timm.models.tiny_vit").Attention
    return kind


def make_network(
    backbone: Backbone, n_classes: int, recipe: TuneRecipe, *, precision: str = "float32"
) -> TuningNetwork:
    """Attach fresh adapters and a fresh classifier to the backbone.

    In bf16 the frozen parts come from a copy that is faster on a GPU; it shares the backbone's adapters.
    """
    model: Any = backbone.model
    attach_adapters(model, recipe.bottleneck, recipe.scale, recipe.dropout, seed=recipe.seed)
    classifier = CosineClassifier(
        backbone.width,
        n_classes,
        scale=recipe.head_scale,
        learnable=recipe.head_scale_learnable,
        generator=torch.Generator().manual_seed(recipe.seed + 1),
    )
    quick = quick_vit(model, backbone.readout, trains=True) if precision == "bf16" else None
    return TuningNetwork(
        model if quick is None else quick,
        backbone.readout,
        classifier.to(backbone.device),
        number_format=torch.float32 if quick is None else torch.bfloat16,
        autocast=precision == "bf16" and quick is None,
    ).train()
