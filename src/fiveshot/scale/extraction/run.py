"""Extraction on a cluster: images in, vectors out; what is finished is never computed again."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from fiveshot.backbones import BackboneSpec
from fiveshot.data import BadImage, bad_images_error
from fiveshot.errors import StorageError, counted
from fiveshot.features import FeatureSet
from fiveshot.features.parts import work_folder
from fiveshot.scale.cluster import ClusterSettings, Workers, check_target, retried
from fiveshot.scale.extraction.batches import bad_node, checked, tally
from fiveshot.scale.extraction.pipeline import VectorPipeline, vector_pipeline
from fiveshot.scale.extraction.shard_folder import ShardCollector, ShardFolder
from fiveshot.scale.progress import ClusterProgress, OnClusterProgress, Tally, silent
from fiveshot.scale.sources.catalog import Catalog
from fiveshot.scale.sources.shards import Shard
from fiveshot.storage import FilePath


@dataclass(frozen=True, eq=False)
class ClusterExtraction:
    """What an extraction on a cluster did.

    Attributes
    ----------
    folder : ShardFolder
        Where the shards lie.
    shards : tuple of Shard
        All shards, whether computed this time or before.
    images : int
        All images, bad ones included.
    bad : tuple of BadImage
        The images that were left out.
    tally : Tally
        The images computed this time.
    seconds : float
        How long that took.
    workers : Workers
        How many processes computed.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> import numpy as np
    >>> from fiveshot.data import ArraySource, ImageDataset, ImageSplit
    >>> from fiveshot.scale import ClusterSettings, dataset_catalog, extract_shards
    >>> grays = [ArraySource(np.full((32, 32, 3), 60 * n, np.uint8), str(n)) for n in range(4)]
    >>> split = ImageSplit(tuple(grays), np.array([0, 0, 1, 1]))
    >>> catalog = dataset_catalog(ImageDataset("grays", ("dark", "light"), split, split.select([])))
    >>> with TemporaryDirectory() as folder:  # doctest: +SKIP
    ...     done = extract_shards(catalog, folder, settings=ClusterSettings(workers=1))
    >>> done.images, len(done.shards), done.bad, done.runtime  # doctest: +SKIP
    (4, 1, (), 'Ray, backbone on 1 ... worker')
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
        """What computed the vectors."""
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
    """Compute the vectors of a catalog's images on a cluster and keep them in a folder, one file for each shard.

    Finished shards of the same images and backbone stay as they are.

    Parameters
    ----------
    catalog : Catalog
        The images.
    folder : path
        Where to keep the shards; it is made if it does not exist.
    spec : BackboneSpec, optional
        The backbone; the embedded one unless given.
    settings : ClusterSettings, optional
        How to run on the cluster.
    progress : callable, optional
        Called with a ``ClusterProgress`` now and then.

    Returns
    -------
    ClusterExtraction
        What was done.

    Raises
    ------
    InputError
        If images are bad, once all is done, unless ``settings.skip_bad`` leaves them out.
    StorageError
        If the folder cannot be written to, or images cannot be reached.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> import numpy as np
    >>> from fiveshot.data import ArraySource, ImageDataset, ImageSplit
    >>> from fiveshot.scale import ClusterSettings, dataset_catalog, extract_shards
    >>> grays = [ArraySource(np.full((32, 32, 3), 60 * n, np.uint8), str(n)) for n in range(4)]
    >>> split = ImageSplit(tuple(grays), np.array([0, 0, 1, 1]))
    >>> catalog = dataset_catalog(ImageDataset("grays", ("dark", "light"), split, split.select([])))
    >>> with TemporaryDirectory() as folder:  # doctest: +SKIP
    ...     done = extract_shards(catalog, folder, settings=ClusterSettings(workers=1))
    >>> done.images, len(done.shards), done.bad, done.runtime  # doctest: +SKIP
    (4, 1, (), 'Ray, backbone on 1 ... worker')
    """
    settings = settings or ClusterSettings()
    place = Path(folder)
    try:
        place.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StorageError(f"cannot make the folder {place}: {error.strerror or error}") from error
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

    Finished shards lie beside ``out`` until it is written.

    Parameters
    ----------
    catalog : Catalog
        The images.
    out : path
        The feature file to write.
    spec : BackboneSpec, optional
        The backbone; the embedded one unless given.
    settings : ClusterSettings, optional
        How to run on the cluster.
    progress : callable, optional
        Called with a ``ClusterProgress`` now and then.

    Returns
    -------
    features : FeatureSet
        The vectors, mapped from the file.
    done : ClusterExtraction
        What was done.

    Raises
    ------
    InputError
        If images are bad, once all is done, unless ``settings.skip_bad`` leaves them out.
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
    FeatureSet('grays': 4 training and 0 test vectors of 1664 float16, 2 classes)
    """
    target = Path(out)
    check_target(target)
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
        before = self._finished_images(shards)
        everything = len(self.catalog.shards)
        for batch in self.pipeline.vectors(shards).iter_batches(batch_size=None, batch_format="numpy"):
            collector.add(checked(batch, width=self.store.facts.width, dtype=self.store.facts.dtype))
            self.done += tally(batch)
            finished = everything - len(shards) + collector.finished
            self.progress(
                ClusterProgress(self.done, before, self.catalog.n_images, shards=finished, all_shards=everything)
            )
        if collector.finished < len(shards):
            raise bad_node(
                f"{collector.finished} of {len(shards)} shards, and {collector.held_rows} rows of others"
            )

    def _finished_images(self, missing: Sequence[Shard]) -> int:
        """Return how many images an earlier run has finished."""
        numbers = {shard.number for shard in missing}
        kept = [shard for shard in self.catalog.shards if shard.number not in numbers]
        return max(0, sum(shard.images for shard in self.store.parts(kept)) - self.done.images)
