"""Statistics of vectors that lie in shards: every worker reads its own, and no backbone is needed any more."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from fiveshot.data import BadImage
from fiveshot.errors import StorageError
from fiveshot.features import Provenance
from fiveshot.scale.block_reducer import BlockReducer
from fiveshot.scale.cluster import connected, own_errors
from fiveshot.scale.cluster_statistics import ClusterStatistics
from fiveshot.scale.columns import Batch
from fiveshot.scale.pilot import IMAGES, chosen_settings
from fiveshot.scale.pipeline import block_bytes
from fiveshot.scale.progress import ClusterProgress, OnProgress, silent
from fiveshot.scale.raw_image import TRAIN
from fiveshot.scale.rows import Rows
from fiveshot.scale.shard_file import read_manifest, read_shard_file
from fiveshot.scale.wanted import Wanted


@dataclass(frozen=True)
class StoredShards:
    """A finished folder of shards."""

    folder: Path
    manifest: dict[str, Any]

    @classmethod
    def open(cls, folder: str | os.PathLike[str]) -> StoredShards:
        """Open a folder that ``fiveshot extract --result shards`` has finished."""
        return cls(Path(folder), read_manifest(folder))

    @property
    def paths(self) -> list[str]:
        """The shards' files in their order, as every node finds them."""
        return [str(self.folder.absolute() / entry["file"]) for entry in self.manifest["shards"]]

    def some_rows(self, images: int = IMAGES) -> Rows:
        """Return every n-th training vector, about so many in all, in their order."""
        step = max(1, -(-int(self.manifest["images"]) // images))
        vectors, labels, names = [], [], []
        for path in self.paths:
            batch = shard_rows(path)
            rows = np.flatnonzero(batch["split"] == TRAIN)[::step]
            vectors.append(batch["vectors"][rows].astype(np.float32))
            labels.append(batch["label"][rows].astype(str))
            names += batch["name"][rows].tolist()
        return Rows(np.concatenate(vectors), np.concatenate(labels), tuple(names))


def shard_rows(path: str) -> Batch:
    """Return the rows of a shard's file, bad images aside."""
    shard = read_shard_file(path)
    return {
        "row": shard.rows,
        "split": shard.splits,
        "name": np.array(shard.names, dtype=object),
        "label": np.array(shard.class_names, dtype=object)[shard.codes],
        "reason": np.full(len(shard.rows), "", dtype=object),
        "vectors": shard.vectors,
    }


def reduce_shards(
    folder: str | os.PathLike[str],
    out: str | os.PathLike[str],
    *,
    wanted: Wanted | None = None,
    address: str | None = None,
    workers: int | None = None,
    progress: OnProgress | None = None,
) -> ClusterStatistics:
    """Reduce the training vectors of a folder of shards to statistics on a cluster, and write them to a file.

    All nodes must see the folder. ``workers`` is the number of tasks at a time, as many as there are processors
    unless given.

    >>> from tempfile import TemporaryDirectory
    >>> import numpy as np
    >>> from fiveshot.data import ArraySource, ImageDataset, ImageSplit
    >>> from fiveshot.scale import BackboneSpec, Wanted, dataset_catalog, extract_shards, reduce_shards
    >>> greys = [ArraySource(np.full((32, 32, 3), 60 * n, np.uint8), str(n)) for n in range(4)]
    >>> split = ImageSplit(tuple(greys), np.array([0, 0, 1, 1]))
    >>> catalog = dataset_catalog(ImageDataset("greys", ("dark", "light"), split, split.select([])))
    >>> spec = BackboneSpec(runtime="torch")
    >>> with TemporaryDirectory() as folder:  # doctest: +SKIP
    ...     done = extract_shards(catalog, f"{folder}/shards", spec=spec, workers=1)
    ...     found = reduce_shards(f"{folder}/shards", f"{folder}/greys.safetensors", wanted=Wanted("tied"))
    >>> found.pooled.labels.tolist(), found.pooled.covariance.shape  # doctest: +SKIP
    (['dark', 'light'], (384, 384))
    """
    stored, asked, target = StoredShards.open(folder), wanted or Wanted(), Path(out)
    asked.reductions()  # refuses what cannot be made before anything is computed
    if not target.parent.is_dir() or target.is_dir():
        raise StorageError(f"cannot write {target}: name a file in a folder that exists")
    settings = chosen_settings(asked.head, stored.some_rows()) if asked.head else {}
    with connected(address) as resources, own_errors():
        values = _reduced(
            stored,
            BlockReducer(
                asked.reductions(settings),
                splits=(TRAIN,),
                task_cpus=0.1 if workers else 1.0,
                group_bytes=2 * block_bytes(resources),
                at_once=workers or max(1, int(resources.cpus)),
                load=shard_rows,
            ),
            progress or silent,
        )
    about = stored.manifest
    found = ClusterStatistics(
        Provenance.from_dict(about["provenance"]),
        about["identity"],
        int(about["images"]),
        tuple(BadImage(name, reason) for name, reason in about["bad"]),
        **values,
        head=asked.head or "",
        settings=settings,
        notes={"random_state": asked.ridge.random_state} if asked.ridge is not None else {},
    )
    found.save(target)
    return found


def _reduced(stored: StoredShards, reducer: BlockReducer, progress: OnProgress) -> dict[str, Any]:
    paths: Sequence[str] = stored.paths
    for number, path in enumerate(paths, start=1):
        reducer.add(path, Path(path).stat().st_size)
        progress(
            ClusterProgress(
                reducer.tally, total=int(stored.manifest["images"]), shards=number, all_shards=len(paths)
            )
        )
    return reducer.result()
