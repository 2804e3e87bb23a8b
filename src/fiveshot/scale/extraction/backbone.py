"""A backbone as a value that travels: every worker loads its own, and must get the same one."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from fiveshot.backbones import DEFAULT, Preprocessing
from fiveshot.errors import InputError, unknown_name
from fiveshot.features import Provenance, Runner, load_runner
from fiveshot.features.extraction_job import DTYPES, readout_in_words
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
        """Return the spec with its device chosen for a cluster with or without GPUs."""
        if self.device.startswith("cuda") and not gpus:
            raise InputError("the cluster has no GPU", hint="leave --device out, or choose cpu", code="no_gpu")
        device = ("cuda" if gpus else "cpu") if self.device == "auto" else self.device.partition(":")[0]
        return replace(self, device=device)

    def load(self) -> Runner:
        """Load the backbone here."""
        return load_runner(**{name: getattr(self, name) for name in self.__dataclass_fields__})


@dataclass(frozen=True, eq=False)
class BackboneFacts:
    """What the driver knows of the vectors before there are any."""

    preprocessing: Preprocessing
    width: int
    fingerprint: str
    provenance: Provenance
    dtype: str  # of the vectors: float16 or float32
    identity: dict[str, Any]

    @property
    def key(self) -> str:
        """What decides the vectors of given images."""
        return f"{self.fingerprint} {self.dtype}"


def backbone_facts(spec: BackboneSpec, dtype: str, *, dataset: str) -> BackboneFacts:
    """Load the backbone on this machine's CPU and tell what the workers' vectors will be like."""
    if dtype not in DTYPES:
        raise unknown_name("type of vectors", dtype, DTYPES)
    on_cpu = replace(spec, device="cpu", runtime="torch", precision=None).load()
    precision = spec.precision or ("bf16" if spec.device == "cuda" else "float32")
    runner = Runner(on_cpu.backbone, "torch", precision)
    identity = runner.identity()
    provenance = Provenance(
        dataset=dataset,
        backbone=runner.name,
        weights_hash=identity["weights_hash"],
        preprocessing=identity["preprocessing"],
        adapter=identity["adapter_hash"],
        readout=readout_in_words(**identity["readout"]),
        precision=identity["precision"],
    )
    return BackboneFacts(runner.preprocessing, runner.width, runner.fingerprint, provenance, dtype, identity)
