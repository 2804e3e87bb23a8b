"""Encoded images in, blocks of vectors out: stages that map batches, joined in one Ray Data pipeline.

Many processes that only read images import this module too, so it has no heavy imports.
"""

from __future__ import annotations

import logging
import pickle
import time
import warnings
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fiveshot.backbones import BackboneSpec, Preprocessing, fingerprint_of, is_bundle, load_embedder
from fiveshot.core.labels import Labels
from fiveshot.data import BadImage, BytesSource, Photo
from fiveshot.errors import FiveshotError, InputError, unknown_name
from fiveshot.extras import import_extra
from fiveshot.features import STORED_DTYPES, Provenance, Seen, decode_photos, embed, stored_vectors
from fiveshot.scale._shards import Shard
from fiveshot.scale.cluster import ClusterSettings, Resources, Tally, Workers, connected, own_errors, share_out

BLOCK_BYTES = 32 << 20  # of pixels, which are the largest thing between two stages
STORE_SHARE = 24  # at least this many blocks fit into the object stores together
CPU_BATCH, GPU_BATCH = 16, 128
ROWS_AT_ONCE = 128
BYTES_AT_ONCE = 8 << 20
Column = NDArray[Any]
Batch = dict[str, NDArray[Any]]
STAGES = ("read", "decode", "forward")  # each has a column of the seconds it took, such as ``read_s``
COUNT_ROW = 2  # in the column ``split``: not an image, but the number of rows of its shard, in the column ``row``
IDENTITY = ("shard", "row", "split", "name", "label", "reason")
READ_COLUMNS = (*IDENTITY, "data", "read_s")


@dataclass(frozen=True, eq=False)
class VectorFacts:
    """What the driver knows about the vectors before they are computed."""

    preprocessing: Preprocessing
    width: int
    fingerprint: str
    provenance: Provenance
    dtype: str  # of the vectors: float16 or float32
    identity: dict[str, Any]

    @property
    def key(self) -> str:
        """Identifies everything that affects the vectors of given images."""
        return f"{self.fingerprint} {self.dtype}"


@dataclass(frozen=True, eq=False)
class VectorPipeline:
    """Turns shards into vectors on the connected cluster."""

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
    """Connect to a cluster and return its pipeline; errors of workers are raised here."""
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
    if is_bundle(spec.name):  # on CPUs; every node uses the same place or revision
        return load_embedder(spec).spec
    if spec.device.startswith("cuda") and not gpus:
        raise InputError("the cluster has no GPU", hint="leave --device out, or choose cpu", code="no_gpu")
    device = ("cuda" if gpus else "cpu") if spec.device == "auto" else spec.device.partition(":")[0]
    return spec.replace(device=device)


def vector_facts(spec: BackboneSpec, dtype: str, *, dataset: str) -> VectorFacts:
    """Load the backbone on this machine's CPU, and describe the vectors that the workers will compute."""
    if dtype not in STORED_DTYPES:
        raise unknown_name("type of vectors", dtype, STORED_DTYPES)
    runtime = "auto" if spec.runtime == "compiled" else spec.runtime
    here = load_embedder(spec.replace(device="cpu", precision=None, runtime=runtime))
    identity = here.identity()
    identity["precision"] = spec.precision or ("bf16" if spec.device == "cuda" else "float32")
    provenance = Provenance.of(dataset, identity)
    return VectorFacts(here.preprocessing, here.width, fingerprint_of(identity), provenance, dtype, identity)


@contextmanager
def data_context(resources: Resources) -> Iterator[None]:
    """Set the block size by the available memory, and silence Ray Data's own progress bars and notes."""
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
    # One actor is the minimum: if a node is lost, its actors may not fit elsewhere.
    return data.ActorPoolStrategy(min_size=1, max_size=size, initial_size=size)


def read_shards(batch: Batch) -> Iterator[Batch]:
    """Yield the encoded images of pickled shards, some at a time, and a marker at the end of each shard."""
    for data in batch["shard"]:
        yield from read_shard(pickle.loads(data))


def read_shard(shard: Shard) -> Iterator[Batch]:
    """Yield the encoded images of a shard, and at the end a row with their number."""
    rows: list[tuple[Any, ...]] = []
    size = row = 0
    began = time.perf_counter()
    for image in shard.reader.images():
        seconds = time.perf_counter() - began
        rows.append((shard.number, row, image.split, image.name, image.label, image.reason, image.data, seconds))
        row, size = row + 1, size + len(image.data)
        if len(rows) >= ROWS_AT_ONCE or size >= BYTES_AT_ONCE:
            yield _batch(rows)
            rows, size = [], 0
        began = time.perf_counter()
    yield _batch([*rows, (shard.number, row, COUNT_ROW, "", "", "", b"", 0.0)])


def _batch(rows: list[tuple[Any, ...]]) -> Batch:
    """Return rows as columns; texts and bytes stay Python objects."""
    kinds = {"shard": np.int64, "row": np.int64, "split": np.int64, "read_s": np.float32}
    batch = {}
    for name, values in zip(READ_COLUMNS, zip(*rows, strict=True), strict=True):
        column = np.empty(len(rows), kinds.get(name, object))
        column[:] = values
        batch[name] = column
    return batch


class Decode:
    """Turns encoded images into pixels for the network; an image that cannot be decoded gets a reason instead."""

    def __init__(self, preprocessing: Preprocessing) -> None:
        self._preprocessing = preprocessing

    def __call__(self, batch: Batch) -> Batch:
        """Decode a batch."""
        rows = usable(batch)
        photos = [Photo(BytesSource(batch["data"][i], str(batch["name"][i]))) for i in rows]
        began = time.perf_counter()
        decoded = decode_photos(photos, self._preprocessing)
        seconds = time.perf_counter() - began
        count = len(batch["row"])
        pixels = np.zeros((count, *self._preprocessing.shape), np.uint8)
        reasons = batch["reason"].copy()
        for row, one in zip(rows, decoded, strict=True):
            if isinstance(one, BadImage):
                reasons[row] = one.reason
            else:
                pixels[row] = one.pixels
        return {
            **{name: batch[name] for name in (*IDENTITY, "read_s")},
            "reason": reasons,
            "pixels": pixels,
            "decode_s": _shared(seconds, rows, count),
        }


class Forward:
    """Turns pixels into vectors with its own backbone, loaded once."""

    def __init__(self, spec: BackboneSpec, *, fingerprint: str, dtype: str) -> None:
        self._embedder = load_embedder(spec)
        if self._embedder.fingerprint != fingerprint:
            raise InputError(
                f"the {self._embedder.name} on this node differs from that of the machine that started the run",
                hint="install the same release of fiveshot everywhere, and give the same weights and adapter",
                code="other_backbone",
            )
        self._embedder.runtime  # noqa: B018  # loads the network before the first batch
        self._dtype = np.dtype(dtype)

    def __call__(self, batch: Batch) -> Batch:
        """Compute the vectors of a batch; rows without a usable image have a vector of zeros."""
        rows, count = usable(batch), len(batch["row"])
        vectors = np.zeros((count, self._embedder.width), self._dtype)
        began = time.perf_counter()
        if len(rows):
            vectors[rows] = self._vectors(batch["pixels"][rows], batch["name"][rows])
        seconds = time.perf_counter() - began
        kept = {name: batch[name] for name in (*IDENTITY, "read_s", "decode_s")}
        return {**kept, "vectors": vectors, "forward_s": _shared(seconds, rows, count)}

    def _vectors(self, pixels: Column, names: Column) -> Column:
        values = embed(self._embedder, [Seen(str(name), one) for name, one in zip(names, pixels, strict=True)])
        return stored_vectors(values, names.tolist(), self._dtype)


def _shared(seconds: float, rows: Column, count: int) -> Column:
    """Divide the seconds of a batch evenly among its rows."""
    column = np.zeros(count, np.float32)
    column[rows] = seconds / max(1, len(rows))
    return column


@dataclass(frozen=True, eq=False)
class Rows:
    """Vectors of images that could be read."""

    vectors: NDArray[np.floating[Any]]  # (n, d)
    labels: Labels  # (n,)
    names: tuple[str, ...]

    def select(self, chosen: NDArray[np.bool_]) -> Rows:
        """Return the rows marked in ``chosen`` (n,)."""
        names = tuple(name for name, is_chosen in zip(self.names, chosen, strict=True) if is_chosen)
        return Rows(self.vectors[chosen], self.labels[chosen], names)


def checked(batch: Batch, facts: VectorFacts) -> Batch:
    """Check a batch from a node, which may be broken, and return it."""
    missing = {*IDENTITY, "vectors"} - set(batch)
    if missing:
        raise bad_node(f"a batch without {', '.join(sorted(missing))}")
    sizes = {name: len(batch[name]) for name in (*IDENTITY, "vectors")}
    if len(set(sizes.values())) > 1:
        raise bad_node(f"columns of different lengths ({sizes})")
    vectors = batch["vectors"]
    if vectors.dtype != facts.dtype or vectors.shape[1:] != (facts.width,):
        raise bad_node(f"vectors of {vectors.dtype} {vectors.shape[1:]} instead of {facts.dtype} ({facts.width},)")
    if not np.isfinite(vectors[usable(batch)]).all():
        raise bad_node("vectors with NaN or infinite values")
    return batch


def bad_node(what: str) -> FiveshotError:
    """Return the error for a result that a working node never returns."""
    hint = "finished work is kept: run it again; if the error returns, remove that node"
    return FiveshotError(f"a node of the cluster returned {what}", hint=hint, code="bad_node")


def concatenate(batches: Iterable[Batch]) -> Batch:
    """Return batches with the same columns as one."""
    given = list(batches)
    return {name: np.concatenate([batch[name] for batch in given]) for name in given[0]}


def select(batch: Batch, chosen: NDArray[np.bool_] | NDArray[np.intp]) -> Batch:
    """Return the rows that are marked, or those at these positions."""
    return {name: column[chosen] for name, column in batch.items()}


def images_of(batch: Batch) -> Batch:
    """Return the rows of images, without the markers."""
    return select(batch, batch["split"] != COUNT_ROW)


def usable(batch: Batch) -> NDArray[np.intp]:
    """Return the positions of the images without an error so far."""
    return np.flatnonzero((batch["split"] != COUNT_ROW) & (batch["reason"].astype(str) == ""))


def tally(batch: Batch) -> Tally:
    """Count the images of a finished batch."""
    images = images_of(batch)
    bad = select(images, images["reason"].astype(str) != "")
    ends = batch["row"][batch["split"] == COUNT_ROW]
    return Tally(
        len(images["row"]),
        tuple(BadImage(str(name), str(why)) for name, why in zip(bad["name"], bad["reason"], strict=True)),
        {stage: float(images[f"{stage}_s"].sum(dtype=np.float64)) for stage in STAGES if f"{stage}_s" in images},
        promised=int(ends.sum()),
    )


def good_rows(batch: Batch, *, splits: tuple[int, ...]) -> Rows:
    """Return the vectors of a finished batch, in float32, without bad images and other splits."""
    kept = select(batch, np.isin(batch["split"], splits) & (batch["reason"].astype(str) == ""))
    labels = kept["label"].astype(str)
    return Rows(kept["vectors"].astype(np.float32), labels, tuple(kept["name"].tolist()))
