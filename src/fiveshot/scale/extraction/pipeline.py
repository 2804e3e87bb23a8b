"""The stages as one Ray Data pipeline, streamed under back-pressure: encoded images in, blocks of vectors out."""

from __future__ import annotations

import logging
import pickle
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from fiveshot.backbones import BackboneSpec, Preprocessing, load_embedder
from fiveshot.backbones.embedder import fingerprint_of
from fiveshot.errors import InputError, unknown_name
from fiveshot.extras import import_extra
from fiveshot.features import Provenance
from fiveshot.features.job import DTYPES
from fiveshot.scale.cluster import ClusterSettings, Resources, Workers, connected, own_errors, share_out
from fiveshot.scale.extraction.batches import Batch
from fiveshot.scale.extraction.stages import Decode, Forward, read_shards
from fiveshot.scale.sources.shards import Shard

BLOCK_BYTES = 32 << 20  # of pixels, which are the largest thing between two stages
STORE_SHARE = 24  # so many blocks fit into the object stores together, at the least
CPU_BATCH, GPU_BATCH = 16, 128


@dataclass(frozen=True, eq=False)
class VectorFacts:
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


@dataclass(frozen=True, eq=False)
class VectorPipeline:
    """What turns shards into vectors on the cluster that this process is connected to."""

    spec: BackboneSpec
    facts: VectorFacts
    resources: Resources
    workers: Workers
    batch_size: int | None = None

    def vectors(self, shards: Sequence[Shard]) -> Any:
        """Return the lazy Ray dataset of the shards' vectors."""
        data = import_extra("ray.data", extra="ray")
        items = [{"shard": pickle.dumps(shard)} for shard in shards]
        workers = self.workers
        return (
            data.from_items(items, override_num_blocks=len(items))
            .map_batches(
                read_shards,
                batch_size=1,
                num_cpus=workers.read_cpus,
                concurrency=min(workers.readers, len(items)),
            )
            .map_batches(
                Decode,
                fn_constructor_args=(self.facts.preprocessing,),
                batch_size=CPU_BATCH,
                compute=_pool(data, workers.decode),
                num_cpus=workers.decode_cpus,
            )
            .map_batches(
                Forward,
                fn_constructor_args=(self.spec,),
                fn_constructor_kwargs={"fingerprint": self.facts.fingerprint, "dtype": self.facts.dtype},
                batch_size=self.batch_size or (GPU_BATCH if workers.forward_gpus else CPU_BATCH),
                compute=_pool(data, workers.forward),
                num_cpus=workers.forward_cpus or None,
                num_gpus=workers.forward_gpus or None,
            )
        )


@contextmanager
def vector_pipeline(spec: BackboneSpec, settings: ClusterSettings, *, dataset: str) -> Iterator[VectorPipeline]:
    """Connect to a cluster and return the pipeline for it; errors of workers arrive as if raised here."""
    with connected(settings.address) as resources, own_errors(), data_context(resources):
        here = placed(spec, gpus=resources.gpus > 0)
        facts = vector_facts(here, settings.dtype, dataset=dataset)
        workers = share_out(resources, gpus=here.device == "cuda", workers=settings.workers)
        yield VectorPipeline(here, facts, resources, workers, settings.batch_size)


def placed(spec: BackboneSpec, *, gpus: bool) -> BackboneSpec:
    """Return a backbone with its device chosen for a cluster with or without GPUs.

    >>> placed(BackboneSpec(), gpus=False).device, placed(BackboneSpec(), gpus=True).device
    ('cpu', 'cuda')
    """
    if spec.device.startswith("cuda") and not gpus:
        raise InputError("the cluster has no GPU", hint="leave --device out, or choose cpu", code="no_gpu")
    device = ("cuda" if gpus else "cpu") if spec.device == "auto" else spec.device.partition(":")[0]
    return spec.replace(device=device)


def vector_facts(spec: BackboneSpec, dtype: str, *, dataset: str) -> VectorFacts:
    """Load the backbone on this machine's CPU and tell what the workers' vectors will be like."""
    if dtype not in DTYPES:
        raise unknown_name("type of vectors", dtype, DTYPES)
    here = load_embedder(spec.replace(device="cpu", precision=None))
    identity = here.identity()
    if spec.runtime != "int8":  # which is for the CPU, and there is no other there
        identity["precision"] = spec.precision or ("bf16" if spec.device == "cuda" else "float32")
    provenance = Provenance.of(dataset, identity)
    return VectorFacts(here.preprocessing, here.width, fingerprint_of(identity), provenance, dtype, identity)


@contextmanager
def data_context(resources: Resources) -> Iterator[None]:
    """Set the size of blocks by the memory there is, and keep Ray Data's own bars and notes off the screen."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # its settings warn about themselves
        DataContext = import_extra("ray.data", extra="ray").DataContext
        context = DataContext.get_current().copy()
    context.enable_progress_bars = False
    context.target_max_block_size = block_bytes(resources)
    logger = logging.getLogger("ray.data")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with DataContext.current(context):
            yield
    finally:
        logger.setLevel(level)


def block_bytes(resources: Resources) -> int:
    """Return how large a block may be in a cluster with these object stores.

    >>> block_bytes(Resources(2, 0, 240e6)), block_bytes(Resources(64, 8, 1e11)) >> 20
    (10000000, 32)
    """
    return int(min(BLOCK_BYTES, max(1 << 20, resources.object_store / STORE_SHARE)))


def numpy_batch(block: Any) -> Batch:
    """Return a block as columns of NumPy."""
    accessor = import_extra("ray.data.block", extra="ray").BlockAccessor.for_block(block)
    columns: Batch = accessor.to_batch_format("numpy")
    return columns


def _pool(data: Any, size: int) -> Any:
    # One actor is enough to go on with: when a node is lost, its actors may find no other place.
    return data.ActorPoolStrategy(min_size=1, max_size=size, initial_size=size)
