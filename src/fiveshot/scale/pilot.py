"""A look at some images before all of them: what a head chooses on its base session is chosen on these.

Statistics are of what a head makes of vectors, and it centres them, say. So that must be known before the first
vector is reduced. With no more images than are looked at here, it is what the head would have chosen on all.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

import numpy as np
import torch

from fiveshot.errors import InputError
from fiveshot.heads import make_head
from fiveshot.scale.catalog import Catalog
from fiveshot.scale.listed_images import ListedReader
from fiveshot.scale.raw_image import TRAIN, RawImage, Shard, ShardReader
from fiveshot.scale.rows import Rows, concatenate, good_rows

IMAGES = 20_000
SHARDS = 64  # of those whose images are not known one by one


@dataclass(frozen=True, eq=False)
class FirstImages:
    """The first images of a shard, and no more of it is read."""

    reader: ShardReader
    count: int

    def images(self) -> Iterator[RawImage]:
        """Yield them."""
        return islice(self.reader.images(), self.count)


def pilot_shards(catalog: Catalog, images: int = IMAGES) -> list[Shard]:
    """Return shards with about so many images, from all over a catalog.

    Listed images are sorted by class, so every n-th of them is taken; other shards are mixed as a rule, so the
    first images of some are.
    """
    shards = catalog.shards
    listed = [shard for shard in shards if isinstance(shard.reader, ListedReader)]
    others = [shard for shard in shards if not isinstance(shard.reader, ListedReader)]
    found = []
    entries = [entry for shard in listed for entry in _of(shard).entries if entry[2] == TRAIN]
    if entries:
        step = -(-len(entries) // images)
        found.append(replace(listed[0], reader=ListedReader(tuple(entries[::step]))))
    if others:
        chosen = others[:: -(-len(others) // SHARDS)]
        found += [replace(shard, reader=FirstImages(shard.reader, -(-images // len(chosen)))) for shard in chosen]
    return [replace(shard, number=number) for number, shard in enumerate(found)]


def pilot_rows(dataset: Any) -> Rows:
    """Return the training vectors of a Ray dataset of finished rows, in the order of their shards."""
    batches = list(dataset.iter_batches(batch_size=None, batch_format="numpy"))
    if not batches:
        raise InputError("no images were found; name a folder, parquet files or tars that hold some")
    batch = concatenate(batches)
    order = np.lexsort((batch["row"], batch["shard"]))
    return good_rows({name: column[order] for name, column in batch.items()}, splits=(TRAIN,))


def chosen_settings(head: str, rows: Rows) -> dict[str, Any]:
    """Return what a head chooses on these vectors as its base session."""
    classes: Sequence[Any] = np.unique(rows.labels).tolist()
    if len(classes) < 2:
        raise InputError(f"statistics for a model need two classes at least, found {classes}")
    return make_head(head).fit(torch.from_numpy(rows.vectors), rows.labels).settings()


def _of(shard: Shard) -> ListedReader:
    reader = shard.reader
    assert isinstance(reader, ListedReader)
    return reader
