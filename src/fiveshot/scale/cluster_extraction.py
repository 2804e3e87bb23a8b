"""Extraction on a cluster: images in, sharded feature files out; what is finished is never computed again."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from fiveshot.data import BadImage, bad_images_error
from fiveshot.errors import StorageError, counted
from fiveshot.features.feature_set import FeatureSet
from fiveshot.features.work_folder import work_folder
from fiveshot.scale.backbone_spec import BackboneSpec
from fiveshot.scale.catalog import Catalog
from fiveshot.scale.cluster import Workers, connected, deal_out, own_errors
from fiveshot.scale.pipeline import data_context
from fiveshot.scale.progress import OnProgress, silent
from fiveshot.scale.raw_image import Shard
from fiveshot.scale.rows import Tally
from fiveshot.scale.shard_file import ShardFolder
from fiveshot.scale.shard_join import join_shards
from fiveshot.scale.shard_run import ShardRun


@dataclass(frozen=True, eq=False)
class ClusterExtraction:
    """What a run did. ``tally`` and ``seconds`` are about the images computed this time.

    >>> from tempfile import TemporaryDirectory
    >>> import numpy as np
    >>> from fiveshot.data import ArraySource, ImageDataset, ImageSplit
    >>> from fiveshot.scale import BackboneSpec, dataset_catalog, extract_shards
    >>> greys = [ArraySource(np.full((32, 32, 3), 60 * n, np.uint8), str(n)) for n in range(4)]
    >>> split = ImageSplit(tuple(greys), np.array([0, 0, 1, 1]))
    >>> catalog = dataset_catalog(ImageDataset("greys", ("dark", "light"), split, split.select([])))
    >>> spec = BackboneSpec(runtime="torch")
    >>> with TemporaryDirectory() as folder:  # doctest: +SKIP
    ...     done = extract_shards(catalog, folder, spec=spec, workers=1)
    >>> done.images, len(done.shards), done.bad, done.runtime  # doctest: +SKIP
    (4, 1, (), 'Ray, backbone on 1 ... worker')
    """

    folder: ShardFolder
    shards: tuple[Shard, ...]
    images: int  # bad ones included
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
    folder: str | os.PathLike[str],
    *,
    spec: BackboneSpec | None = None,
    address: str | None = None,
    workers: int | None = None,
    batch_size: int | None = None,
    dtype: str = "float16",
    skip_bad: bool = False,
    progress: OnProgress | None = None,
) -> ClusterExtraction:
    """Compute the vectors of a catalog's images on a cluster and keep them in a folder, one file for a shard.

    Without an ``address`` a cluster is started on this machine. Finished shards of the same images and backbone
    stay as they are. Bad images are listed, and unless ``skip_bad`` they are an error once all is done.

    >>> from tempfile import TemporaryDirectory
    >>> import numpy as np
    >>> from fiveshot.data import ArraySource, ImageDataset, ImageSplit
    >>> from fiveshot.scale import BackboneSpec, dataset_catalog, extract_shards
    >>> greys = [ArraySource(np.full((32, 32, 3), 60 * n, np.uint8), str(n)) for n in range(4)]
    >>> split = ImageSplit(tuple(greys), np.array([0, 0, 1, 1]))
    >>> catalog = dataset_catalog(ImageDataset("greys", ("dark", "light"), split, split.select([])))
    >>> spec = BackboneSpec(runtime="torch")
    >>> with TemporaryDirectory() as folder:  # doctest: +SKIP
    ...     done = extract_shards(catalog, folder, spec=spec, workers=1)
    >>> done.images, len(done.shards), done.bad, done.runtime  # doctest: +SKIP
    (4, 1, (), 'Ray, backbone on 1 ... worker')
    """
    place = _made(Path(folder))
    began = time.perf_counter()
    with connected(address) as resources, own_errors(), data_context(resources):
        chosen = (spec or BackboneSpec()).placed(gpus=resources.gpus > 0)
        facts = chosen.described(dtype, dataset=catalog.name)
        dealt = deal_out(resources, gpus=chosen.device == "cuda", workers=workers)
        store = ShardFolder(place, facts)
        run = ShardRun(catalog, store, chosen, dealt, batch_size, progress or silent)
        done = run.until_finished()
    found = list(store.shards(catalog.shards))
    bad = tuple(image for shard in found for image in shard.bad)
    images = sum(shard.n_images for shard in found)
    if bad and not skip_bad:
        raise bad_images_error(bad, images)
    store.write_manifest(catalog.shards, replace(done, bad=bad))
    return ClusterExtraction(
        store, catalog.shards, images, bad, done, time.perf_counter() - began if done.images else 0.0, dealt
    )


def extract_file(
    catalog: Catalog, out: str | os.PathLike[str], **running: Any
) -> tuple[FeatureSet, ClusterExtraction]:
    """Compute a catalog's vectors on a cluster and write the feature file a single machine would write.

    ``running`` are the keywords of ``extract_shards``. Finished shards lie beside ``out`` until it is written.

    >>> from tempfile import TemporaryDirectory
    >>> import numpy as np
    >>> from fiveshot.data import ArraySource, ImageDataset, ImageSplit
    >>> from fiveshot.scale import BackboneSpec, dataset_catalog, extract_file
    >>> greys = [ArraySource(np.full((32, 32, 3), 60 * n, np.uint8), str(n)) for n in range(4)]
    >>> split = ImageSplit(tuple(greys), np.array([0, 0, 1, 1]))
    >>> catalog = dataset_catalog(ImageDataset("greys", ("dark", "light"), split, split.select([])))
    >>> spec = BackboneSpec(runtime="torch")
    >>> with TemporaryDirectory() as folder:  # doctest: +SKIP
    ...     features, done = extract_file(catalog, f"{folder}/greys.safetensors", spec=spec, workers=1)
    >>> features  # doctest: +SKIP
    FeatureSet('greys': 4 training and 0 test vectors of 384 float16, 2 classes)
    """
    target = Path(out)
    if not target.parent.is_dir():
        raise StorageError(f"cannot write {target}: the folder {target.parent} does not exist; create it first")
    if target.is_dir():
        raise StorageError(f"cannot write {target}: it is a folder; name a file, such as features.safetensors")
    with work_folder(target.parent / f".{target.name}.{catalog.digest[:16]}.shards") as folder:
        done = extract_shards(catalog, folder, **running)
        features = join_shards(
            lambda: done.folder.shards(done.shards), done.folder.facts, target, runtime=done.runtime
        )
    return features, done


def _made(folder: Path) -> Path:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StorageError(f"cannot make the folder {folder}: {error.strerror or error}") from error
    return folder
