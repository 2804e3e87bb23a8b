"""Statistics of images on a cluster: vectors are reduced where they are made and never kept."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

from fiveshot.data import bad_images_error
from fiveshot.errors import StorageError
from fiveshot.scale.backbone_spec import BackboneSpec
from fiveshot.scale.catalog import Catalog
from fiveshot.scale.cluster import connected, deal_out, own_errors
from fiveshot.scale.cluster_statistics import ClusterStatistics
from fiveshot.scale.pipeline import data_context
from fiveshot.scale.progress import OnProgress, silent
from fiveshot.scale.wanted import Wanted
from fiveshot.scale.waves import KeptStatistics, Waves

WAVE_SHARDS, WAVES = 256, 32  # a wave has so many shards, or more where there would be more waves than this


def reduce_images(
    catalog: Catalog,
    out: str | os.PathLike[str],
    *,
    wanted: Wanted | None = None,
    spec: BackboneSpec | None = None,
    address: str | None = None,
    workers: int | None = None,
    batch_size: int | None = None,
    dtype: str = "float16",
    skip_bad: bool = False,
    wave_shards: int | None = None,
    progress: OnProgress | None = None,
) -> ClusterStatistics:
    """Reduce the training images of a catalog to statistics on a cluster and write them to a file.

    After every wave of ``wave_shards`` shards (256, or a 32nd of all) the statistics so far are kept beside
    ``out``; the same call goes on from there. Bad images are listed, and unless ``skip_bad`` they are an
    error once all is done.

    >>> from tempfile import TemporaryDirectory
    >>> import numpy as np
    >>> from fiveshot.data import ArraySource, ImageDataset, ImageSplit
    >>> from fiveshot.scale import BackboneSpec, dataset_catalog, reduce_images
    >>> greys = [ArraySource(np.full((32, 32, 3), 60 * n, np.uint8), str(n)) for n in range(4)]
    >>> split = ImageSplit(tuple(greys), np.array([0, 0, 1, 1]))
    >>> catalog = dataset_catalog(ImageDataset("greys", ("dark", "light"), split, split.select([])))
    >>> spec = BackboneSpec(runtime="torch")
    >>> with TemporaryDirectory() as folder:  # doctest: +SKIP
    ...     found = reduce_images(catalog, f"{folder}/greys.safetensors", spec=spec, workers=1)
    >>> found.images, found.statistics.labels.tolist(), found.statistics.counts.tolist()  # doctest: +SKIP
    (4, ['dark', 'light'], [2, 2])
    """
    target = Path(out)
    if not target.parent.is_dir() or target.is_dir():
        raise StorageError(f"cannot write {target}: name a file in a folder that exists")
    asked = wanted or Wanted()
    asked.reductions()  # refuses what cannot be made before anything is computed
    with connected(address) as resources, own_errors(), data_context(resources):
        chosen = (spec or BackboneSpec()).placed(gpus=resources.gpus > 0)
        facts = chosen.described(dtype, dataset=catalog.name)
        dealt = deal_out(resources, gpus=chosen.device == "cuda", workers=workers)
        kept = KeptStatistics(target.with_name(f".{target.name}.partial"), facts, asked, catalog.digest)
        run = Waves(catalog, kept, chosen, dealt, resources, batch_size, progress or silent)
        statistics = run.until_finished(wave_shards or max(WAVE_SHARDS, len(catalog.shards) // WAVES))
    if statistics.bad and not skip_bad:
        raise bad_images_error(statistics.bad, statistics.images)
    notes = {"seconds": statistics.notes["seconds"]}
    if asked.ridge is not None:
        notes["random_state"] = asked.ridge.random_state
    finished = replace(statistics, notes=notes)
    finished.save(target)
    kept.path.unlink(missing_ok=True)
    return finished
