"""A backbone as a value that travels: every worker loads its own, and must get the same one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from fiveshot.backbones import BackboneSpec, Preprocessing, load_embedder
from fiveshot.backbones.embedder import fingerprint_of
from fiveshot.errors import InputError, unknown_name
from fiveshot.features import Provenance
from fiveshot.features.extraction.job import DTYPES


def placed(spec: BackboneSpec, *, gpus: bool) -> BackboneSpec:
    """Return a backbone with its device chosen for a cluster with or without GPUs.

    >>> placed(BackboneSpec(), gpus=False).device, placed(BackboneSpec(), gpus=True).device
    ('cpu', 'cuda')
    """
    if spec.device.startswith("cuda") and not gpus:
        raise InputError("the cluster has no GPU", hint="leave --device out, or choose cpu", code="no_gpu")
    device = ("cuda" if gpus else "cpu") if spec.device == "auto" else spec.device.partition(":")[0]
    return spec.replace(device=device)


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
    here = load_embedder(spec.replace(device="cpu", precision=None))
    precision = spec.precision or ("bf16" if spec.device == "cuda" else "float32")
    identity = {**here.identity(), "precision": precision}
    provenance = Provenance.of(dataset, identity)
    return BackboneFacts(here.preprocessing, here.width, fingerprint_of(identity), provenance, dtype, identity)
