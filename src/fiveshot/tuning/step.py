"""One step of training: forward, backward, update; eager, compiled, or recorded as a CUDA graph."""

from __future__ import annotations

import logging
from dataclasses import dataclass, fields, replace
from typing import Any

import torch
from torch import Tensor, nn

from fiveshot.tuning.augment import Batch
from fiveshot.tuning.execution import Execution, autocast
from fiveshot.tuning.network import TuningNetwork
from fiveshot.tuning.objective import tuning_loss
from fiveshot.tuning.recipe import TuneRecipe

_log = logging.getLogger(__name__)
_WARM_UP = 3  # eager steps before recording, in which libraries make their choices
_TENSORS = tuple(field.name for field in fields(Batch) if field.name != "weight")


@dataclass(frozen=True, eq=False)
class Sums:
    """Sums over an epoch that stay on the device until somebody asks."""

    loss: Tensor  # ()
    hits: Tensor  # ()

    @classmethod
    def zero(cls, device: torch.device) -> Sums:
        """Return sums of nothing."""
        return cls(torch.zeros((), device=device), torch.zeros((), device=device))

    def clear(self) -> None:
        """Start again from zero."""
        self.loss.zero_()
        self.hits.zero_()


class TrainStep:
    """Takes a batch and changes the trained parameters; loss and hits are added to ``sums``."""

    def __init__(
        self,
        network: TuningNetwork,
        optimizer: torch.optim.Optimizer,
        recipe: TuneRecipe,
        execution: Execution,
        device: torch.device,
        accelerator: Any = None,
    ) -> None:
        self.network, self.optimizer, self.recipe = network, optimizer, recipe
        self.execution, self.device, self.accelerator = execution, device, accelerator
        self.sums = Sums.zero(device)
        self.forward: Any = network if accelerator is None else accelerator.prepare_model(network)
        # Compiled for whole batches alone: every other size would be compiled anew.
        self.whole: Any = torch.compile(self.forward, dynamic=False) if execution.compile else self.forward
        self.trained = [p for p in network.parameters() if p.requires_grad]

    def __call__(self, batch: Batch) -> None:
        """Take one step."""
        if self.whole is self.forward or len(batch) != self.recipe.batch_size:
            self._step(self.forward, batch)
            return
        try:
            self._step(self.whole, batch)
        except Exception as error:
            if not type(error).__module__.startswith(("torch._dynamo", "torch._inductor", "triton")):
                raise
            _log.warning("compiling failed (%s); going on without it", type(error).__name__)
            self.whole = self.forward
            self._step(self.forward, batch)

    def _step(self, forward: nn.Module, batch: Batch) -> None:
        self.optimizer.zero_grad(set_to_none=True)
        with autocast(self.execution, self.device):
            cosines = forward(batch.images.contiguous(memory_format=torch.channels_last))
        loss = tuning_loss(cosines, self.network.classifier.scale, batch, self.recipe)
        if self.accelerator is None:
            torch.autograd.backward(loss)
        else:
            self.accelerator.backward(loss * batch.weight)
        if self.recipe.grad_clip:
            nn.utils.clip_grad_norm_(self.trained, self.recipe.grad_clip, foreach=True)
        self.optimizer.step()
        with torch.no_grad():
            self.sums.loss.add_(loss.detach(), alpha=len(batch))
            self.sums.hits.add_((cosines.argmax(dim=1) == batch.first).sum())


class GraphedStep:
    """The same step recorded once and replayed: no time lost between its hundreds of small kernels."""

    def __init__(self, step: TrainStep, batch_size: int) -> None:
        self.step, self.batch_size, self.sums = step, batch_size, step.sums
        self._graph: torch.cuda.CUDAGraph | None = None
        self._batch: Batch | None = None
        self._taken, self._refused = 0, False

    def __call__(self, batch: Batch) -> None:
        """Take one step; batches of another size are not replayed."""
        if len(batch) != self.batch_size:
            self.step(batch)
        elif self._taken < _WARM_UP:
            self._taken += 1
            _aside(self.step, batch)
        else:
            self._load(batch)
            if self._graph is None and not self._record():
                self.step(batch)
            elif self._graph is not None:
                self._graph.replay()

    def _load(self, batch: Batch) -> None:
        if self._batch is None:
            self._batch = replace(batch, **{name: getattr(batch, name).clone() for name in _TENSORS})
        for name in _TENSORS:
            getattr(self._batch, name).copy_(getattr(batch, name))

    def _record(self) -> bool:
        """Record the step, which runs nothing yet; return whether that worked."""
        if self._refused or self._batch is None:
            return False
        self.step.optimizer.zero_grad(set_to_none=True)
        graph = torch.cuda.CUDAGraph()
        try:
            with torch.cuda.graph(graph):
                self.step(self._batch)
        except RuntimeError as error:
            _log.warning("the step cannot be recorded (%s); going on without", error)
            self._refused = True
            return False
        self._graph = graph
        return True


def _aside(step: TrainStep, batch: Batch) -> None:
    """Take a step on a stream of its own, as steps that are recorded later must be."""
    stream: Any = torch.cuda.Stream()  # type: ignore[no-untyped-call]
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        step(batch)
    torch.cuda.current_stream().wait_stream(stream)
