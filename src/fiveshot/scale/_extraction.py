"""Extraction on a cluster: images in, vectors out, stored by shard; finished shards are not computed again."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from fiveshot.backbones import BackboneSpec
from fiveshot.data import BadImage, bad_images_error
from fiveshot.errors import StorageError, counted
from fiveshot.features import FeatureSet, Part, join_parts, part_key, refuse_other_forms, work_folder
from fiveshot.scale._catalog import Catalog
from fiveshot.scale._pipeline import (
    COUNT_ROW,
    Batch,
    VectorFacts,
    VectorPipeline,
    bad_node,
    checked,
    concatenate,
    images_of,
    select,
    tally,
    vector_pipeline,
)
from fiveshot.scale._shards import Shard
from fiveshot.scale.cluster import (
    ClusterProgress,
    ClusterSettings,
    OnClusterProgress,
    Tally,
    Workers,
    retried,
    silent,
)
from fiveshot.storage import FilePath, atomic_path, make_folder, require_writable

VERSION = 1  # of the manifest
MANIFEST = "manifest.json"
KEPT_COLUMNS = ("row", "split", "name", "label", "reason", "vectors")


@dataclass(frozen=True, eq=False)
class ClusterExtraction:
    """The result of an extraction on a cluster.

    Attributes
    ----------
    folder : ShardFolder
        The folder of the shards.
    shards : tuple of Shard
        All shards, computed in this run or before.
    images : int
        All images, bad ones included.
    bad : tuple of BadImage
        The images that were left out.
    tally : Tally
        The images computed in this run.
    seconds : float
        How long that took.
    workers : Workers
        The number of processes.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> import numpy as np
    >>> from fiveshot.data import ArraySource, ImageDataset, ImageSplit
    >>> from fiveshot.scale import ClusterSettings, StatisticsPlan, dataset_catalog, extract_shards, reduce_shards
    >>> grays = [ArraySource(np.full((32, 32, 3), 60 * n, np.uint8), str(n)) for n in range(4)]
    >>> split = ImageSplit(tuple(grays), np.array([0, 0, 1, 1]))
    >>> catalog = dataset_catalog(ImageDataset("grays", ("dark", "light"), split, split.select([])))
    >>> with TemporaryDirectory() as folder:  # doctest: +SKIP
    ...     done = extract_shards(catalog, f"{folder}/shards", settings=ClusterSettings(workers=1))
    ...     found = reduce_shards(f"{folder}/shards", f"{folder}/grays.safetensors", plan=StatisticsPlan("tied"))
    >>> done.images, len(done.shards), done.bad, done.runtime  # doctest: +SKIP
    (4, 1, (), 'Ray, backbone on 1 ... worker')
    >>> found.pooled.labels.tolist(), found.pooled.covariance.shape  # doctest: +SKIP
    (['dark', 'light'], (320, 320))
    """

    folder: ShardFolder
    shards: tuple[Shard, ...]
    images: int
    bad: tuple[BadImage, ...]
    tally: Tally
    seconds: float
    workers: Workers

    @property
    def rate(self) -> float | None:
        """Images per second from files to vectors, or None when nothing was computed."""
        return self.tally.images / self.seconds if self.tally.images and self.seconds else None

    @property
    def runtime(self) -> str:
        """Description of what computed the vectors."""
        kind = "GPU" if self.workers.forward_gpus else "CPU"
        return f"Ray, backbone on {counted(self.workers.forward, f'{kind} worker')}"


def extract_shards(
    catalog: Catalog,
    folder: FilePath,
    *,
    spec: BackboneSpec | None = None,
    settings: ClusterSettings | None = None,
    progress: OnClusterProgress | None = None,
) -> ClusterExtraction:
    """Compute the vectors of a catalog's images on a cluster, and store them in a folder, one file for each shard.

    Finished shards of the same images and backbone are kept.

    Parameters
    ----------
    catalog : Catalog
        The images.
    folder : path
        Folder for the shards; it is created if it does not exist.
    spec : BackboneSpec, optional
        The backbone; by default the embedded one.
    settings : ClusterSettings, optional
        How to run on the cluster.
    progress : callable, optional
        Called with a ``ClusterProgress`` from time to time.

    Returns
    -------
    ClusterExtraction
        What was done.

    Raises
    ------
    InputError
        At the end, if images are bad and ``settings.skip_bad`` is False.
    StorageError
        If the folder cannot be written to, or images cannot be reached.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> import numpy as np
    >>> from fiveshot.data import ArraySource, ImageDataset, ImageSplit
    >>> from fiveshot.scale import ClusterSettings, StatisticsPlan, dataset_catalog, extract_shards, reduce_shards
    >>> grays = [ArraySource(np.full((32, 32, 3), 60 * n, np.uint8), str(n)) for n in range(4)]
    >>> split = ImageSplit(tuple(grays), np.array([0, 0, 1, 1]))
    >>> catalog = dataset_catalog(ImageDataset("grays", ("dark", "light"), split, split.select([])))
    >>> with TemporaryDirectory() as folder:  # doctest: +SKIP
    ...     done = extract_shards(catalog, f"{folder}/shards", settings=ClusterSettings(workers=1))
    ...     found = reduce_shards(f"{folder}/shards", f"{folder}/grays.safetensors", plan=StatisticsPlan("tied"))
    >>> done.images, len(done.shards), done.bad, done.runtime  # doctest: +SKIP
    (4, 1, (), 'Ray, backbone on 1 ... worker')
    >>> found.pooled.labels.tolist(), found.pooled.covariance.shape  # doctest: +SKIP
    (['dark', 'light'], (320, 320))
    """
    settings = settings or ClusterSettings()
    place = make_folder(Path(folder))
    began = time.perf_counter()
    with vector_pipeline(spec or BackboneSpec(), settings, dataset=catalog.name) as pipeline:
        store = ShardFolder(place, pipeline.facts)
        run = ShardRun(catalog, store, pipeline, progress or silent)
        retried(run.compute_missing)
    found = list(store.parts(catalog.shards))
    bad = tuple(image for shard in found for _, image in shard.bad)
    images = sum(shard.images for shard in found)
    if bad and not settings.skip_bad:
        raise bad_images_error(bad, images)
    store.write_manifest(catalog.shards, images=images, bad=bad)
    seconds = time.perf_counter() - began if run.done.images else 0.0
    return ClusterExtraction(store, catalog.shards, images, bad, run.done, seconds, pipeline.workers)


def extract_file(
    catalog: Catalog,
    out: FilePath,
    *,
    spec: BackboneSpec | None = None,
    settings: ClusterSettings | None = None,
    progress: OnClusterProgress | None = None,
) -> tuple[FeatureSet, ClusterExtraction]:
    """Compute a catalog's vectors on a cluster and write the feature file that a single machine would write.

    Finished shards are stored next to ``out`` until it is written.

    Parameters
    ----------
    catalog : Catalog
        The images.
    out : path
        The feature file to write.
    spec : BackboneSpec, optional
        The backbone; by default the embedded one.
    settings : ClusterSettings, optional
        How to run on the cluster.
    progress : callable, optional
        Called with a ``ClusterProgress`` from time to time.

    Returns
    -------
    features : FeatureSet
        The vectors, mapped from the file.
    done : ClusterExtraction
        What was done.

    Raises
    ------
    InputError
        At the end, if images are bad and ``settings.skip_bad`` is False.
    StorageError
        If the file cannot be written, or images cannot be reached.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> import numpy as np
    >>> from fiveshot.data import ArraySource, ImageDataset, ImageSplit
    >>> from fiveshot.scale import ClusterSettings, dataset_catalog, extract_file
    >>> grays = [ArraySource(np.full((32, 32, 3), 60 * n, np.uint8), str(n)) for n in range(4)]
    >>> split = ImageSplit(tuple(grays), np.array([0, 0, 1, 1]))
    >>> catalog = dataset_catalog(ImageDataset("grays", ("dark", "light"), split, split.select([])))
    >>> settings = ClusterSettings(workers=1)
    >>> with TemporaryDirectory() as folder:  # doctest: +SKIP
    ...     features, done = extract_file(catalog, f"{folder}/grays.safetensors", settings=settings)
    >>> features  # doctest: +SKIP
    FeatureSet('grays': 4 training and 0 test vectors of 320 float16, 2 classes)
    """
    refuse_other_forms(out)
    target = require_writable(out)
    with work_folder(target.parent / f".{target.name}.{catalog.digest[:16]}.shards") as folder:
        done = extract_shards(catalog, folder, spec=spec, settings=settings, progress=progress)
        features = done.folder.join(done.shards, target, runtime=done.runtime)
    return features, done


@dataclass(eq=False)
class ShardRun:
    """Computes the shards of a catalog that a folder does not hold yet."""

    catalog: Catalog
    store: ShardFolder
    pipeline: VectorPipeline
    progress: OnClusterProgress
    done: Tally = field(default_factory=Tally)

    def compute_missing(self) -> None:
        """Compute the missing shards; each one is written as soon as it is complete."""
        shards = self.store.missing(self.catalog.shards)
        if not shards:
            return
        collector = ShardCollector({shard.number: shard for shard in shards}, self.store)
        missing, everything = {shard.number for shard in shards}, len(self.catalog.shards)
        kept = [shard for shard in self.catalog.shards if shard.number not in missing]
        before = max(0, sum(part.images for part in self.store.parts(kept)) - self.done.images)
        for batch in self.pipeline.vectors(shards).iter_batches(batch_size=None, batch_format="numpy"):
            collector.add(checked(batch, self.store.facts))
            self.done += tally(batch)
            finished = len(kept) + collector.finished
            self.progress(
                ClusterProgress(self.done, before, self.catalog.n_images, shards=finished, all_shards=everything)
            )
        if collector.finished < len(shards):
            raise bad_node(
                f"{collector.finished} of {len(shards)} shards, and {collector.held_rows} rows of others"
            )


@dataclass(frozen=True, eq=False)
class ShardFolder:
    """Shard files of one catalog and one backbone; each file is complete or absent."""

    folder: Path
    facts: VectorFacts

    def path(self, shard: Shard) -> Path:
        """Return the file of a shard."""
        return self.folder / f"shard-{shard.number:06}.safetensors"

    def missing(self, shards: Sequence[Shard]) -> list[Shard]:
        """Return the shards whose file is missing, damaged, or of other images or another backbone."""
        return [shard for shard in shards if part_key(self.path(shard)) != self._key(shard)]

    def write(self, shard: Shard, batch: Batch) -> None:
        """Write the rows of a shard, which may come in any order."""
        images = images_of(batch)
        images = select(images, np.argsort(images["row"], kind="stable"))
        good = images["reason"].astype(str) == ""
        # The label of an entry that is not an image, such as the damaged end of a tar, is empty.
        classes, codes = np.unique(images["label"].astype(str), return_inverse=True)
        part = Part(
            images["vectors"][good],
            images["row"][good].astype(np.int64),
            images["split"][good].astype(np.int64),
            codes[good].astype(np.int64),
            tuple(images["name"][good].tolist()),
            tuple(classes.tolist()),
            tuple(zip(images["row"][~good].tolist(), tally(images).bad, strict=True)),
            key=self._key(shard),
        )
        part.save(self.path(shard))

    def parts(self, shards: Sequence[Shard]) -> Iterator[Part]:
        """Yield the finished parts in the order of their shards."""
        return (Part.load(self.path(shard)) for shard in shards)

    def join(self, shards: Sequence[Shard], out: FilePath, *, runtime: str) -> FeatureSet:
        """Write the same feature file as a single machine would, and map it."""
        facts = self.facts
        provenance = replace(facts.provenance, note=f"{facts.dtype} vectors; {runtime}")
        parts = partial(self.parts, shards)
        return join_parts(parts, out, provenance=provenance, width=facts.width, dtype=facts.dtype)

    def write_manifest(self, shards: Sequence[Shard], *, images: int, bad: Sequence[BadImage]) -> None:
        """Write the manifest, which lists the contents of the folder; it exists only if every shard does."""
        about = {
            "format": VERSION,
            "provenance": self.facts.provenance.as_dict(),
            "identity": self.facts.identity,
            "dtype": self.facts.dtype,
            "width": self.facts.width,
            "images": images,
            "bad": [[image.name, image.reason] for image in bad],
            "shards": [self.path(shard).name for shard in shards],
        }
        with atomic_path(self.folder / MANIFEST) as path:
            path.write_text(json.dumps(about, indent=1), encoding="utf-8")

    def _key(self, shard: Shard) -> str:
        return hashlib.sha256(f"{shard.key} {self.facts.key}".encode()).hexdigest()


class ShardCollector:
    """Collects rows in any order, and writes each shard as soon as it is complete."""

    def __init__(self, shards: Mapping[int, Shard], folder: ShardFolder) -> None:
        self._shards = shards
        self._folder = folder
        self._held: dict[int, list[Batch]] = {}
        self.finished = 0

    @property
    def held_rows(self) -> int:
        """Number of rows that wait for the rest of their shard."""
        return sum(int((part["split"] != COUNT_ROW).sum()) for held in self._held.values() for part in held)

    def add(self, batch: Batch) -> None:
        """Take rows of one or more shards."""
        for number in np.unique(batch["shard"]).tolist():
            if number not in self._shards:
                raise bad_node(f"rows of shard {number}, which it was not given")
            own = batch["shard"] == number
            held = self._held.setdefault(number, [])
            held.append({name: batch[name][own] for name in KEPT_COLUMNS})
            rows, splits = (np.concatenate([part[name] for part in held]) for name in ("row", "split"))
            rows, expected = rows[splits != COUNT_ROW], rows[splits == COUNT_ROW]
            if len(rows) == expected.max(initial=-1):
                if not np.array_equal(np.sort(rows), np.arange(len(rows))):
                    raise bad_node(f"rows of shard {number} that are not all of its rows")
                self._folder.write(self._shards[number], concatenate(self._held.pop(number)))
                self.finished += 1


def read_manifest(folder: FilePath) -> dict[str, Any]:
    """Return the manifest of a folder with all its shards."""
    path = Path(folder) / MANIFEST
    try:
        about: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise StorageError(
            f"{folder} has no {MANIFEST}: it is not a folder of shards, or not finished", code="not_finished"
        ) from None
    except (OSError, ValueError) as error:
        raise StorageError(f"{path} is damaged ({error})", hint="the same command writes it again") from error
    return about
