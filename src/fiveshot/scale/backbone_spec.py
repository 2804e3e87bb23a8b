"""A backbone as a value that travels: every worker loads its own, and must get the same one."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from fiveshot.backbones import DEFAULT, Preprocessing
from fiveshot.data import ImageDataset, ImageSplit
from fiveshot.errors import InputError
from fiveshot.features import Provenance, Runner, load_runner
from fiveshot.features.extraction_job import ExtractionJob
from fiveshot.storage import FilePath


@dataclass(frozen=True)
class BackboneSpec:
    """The arguments of ``fiveshot.features.load_runner``; files must be readable on every node.

    >>> from fiveshot.scale import BackboneSpec
    >>> spec = BackboneSpec(tokens="mean", precision="float32")
    >>> spec.placed(gpus=False).device, spec.placed(gpus=True).device
    ('cpu', 'cuda')
    """

    backbone: str = DEFAULT
    weights: FilePath | None = None
    adapter: FilePath | None = None
    preprocessing: Preprocessing | str | None = None
    tokens: str = "cls"
    last_blocks: int = 1
    device: str = "auto"
    runtime: str = "auto"
    precision: str | None = None

    def placed(self, *, gpus: bool) -> BackboneSpec:
        """Return the spec with its device chosen for a cluster that has GPUs, or none."""
        if self.device.startswith("cuda") and not gpus:
            raise InputError("the cluster has no GPU; leave --device out, or choose cpu")
        device = ("cuda" if gpus else "cpu") if self.device == "auto" else self.device.partition(":")[0]
        return replace(self, device=device)

    def load(self) -> Runner:
        """Load the backbone here."""
        return load_runner(**{name: getattr(self, name) for name in self.__dataclass_fields__})

    def described(self, dtype: str, *, dataset: str) -> BackboneFacts:
        """Load the backbone on this machine's CPU and tell what the workers' vectors will be like."""
        on_cpu = replace(self, device="cpu", runtime="torch", precision=None).load()
        precision = self.precision or ("bf16" if self.device == "cuda" else "float32")
        runner = Runner(on_cpu.backbone, "torch", precision)
        empty = ImageSplit((), np.zeros(0, np.int64))
        job = ExtractionJob(ImageDataset(dataset, (), empty, empty), runner, dtype)
        return BackboneFacts(
            runner.preprocessing, runner.width, runner.fingerprint, job.provenance, dtype, runner.identity()
        )


@dataclass(frozen=True, eq=False)
class BackboneFacts:
    """What the driver knows of the vectors before there is one."""

    preprocessing: Preprocessing
    width: int
    fingerprint: str
    provenance: Provenance
    dtype: str  # of the vectors: float16 or float32
    identity: dict[str, Any]

    @cached_property
    def key(self) -> str:
        """What decides the vectors of given images."""
        return f"{self.fingerprint} {self.dtype}"
