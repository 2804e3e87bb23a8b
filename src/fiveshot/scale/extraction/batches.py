"""Batches of rows as they flow between the stages: a column for each thing known about an image."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fiveshot.core.labels import Labels
from fiveshot.data import BadImage
from fiveshot.errors import FiveshotError
from fiveshot.scale.progress import Tally

Batch = dict[str, NDArray[Any]]
STAGES = ("read", "decode", "forward")  # each has a column of the seconds it took, such as ``read_s``
END = 2  # in the column ``split``: not an image, but the number of rows of its shard, in the column ``row``
IDENTITY = ("shard", "row", "split", "name", "label", "reason")


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


def checked(batch: Batch, *, width: int, dtype: str) -> Batch:
    """Return a batch that a node has made, or refuse it: it says what it likes, and one that is broken may lie."""
    missing = {*IDENTITY, "vectors"} - set(batch)
    if missing:
        raise bad_node(f"a batch without {', '.join(sorted(missing))}")
    sizes = {name: len(batch[name]) for name in (*IDENTITY, "vectors")}
    if len(set(sizes.values())) > 1:
        raise bad_node(f"columns of different lengths ({sizes})")
    vectors = batch["vectors"]
    if vectors.dtype != dtype or vectors.shape[1:] != (width,):
        raise bad_node(f"vectors of {vectors.dtype} {vectors.shape[1:]} instead of {dtype} ({width},)")
    if not np.isfinite(vectors[usable(batch)]).all():
        raise bad_node("vectors with NaN or infinite values")
    return batch


def bad_node(what: str) -> FiveshotError:
    """Return the error for what no node returns that works."""
    hint = "finished work is kept: run it again, and without the node that does this, if it happens again"
    return FiveshotError(f"a node of the cluster returned {what}", hint=hint, code="bad_node")


def concatenate(batches: Iterable[Batch]) -> Batch:
    """Return batches with the same columns as one."""
    given = list(batches)
    return {name: np.concatenate([batch[name] for batch in given]) for name in given[0]}


def select(batch: Batch, chosen: NDArray[np.bool_] | NDArray[np.intp]) -> Batch:
    """Return the rows that are marked, or those at these positions."""
    return {name: column[chosen] for name, column in batch.items()}


def images_of(batch: Batch) -> Batch:
    """Return the rows that stand for images, without the markers."""
    return select(batch, batch["split"] != END)


def usable(batch: Batch) -> NDArray[np.intp]:
    """Return the positions of the images that had no trouble so far."""
    return np.flatnonzero((batch["split"] != END) & (batch["reason"].astype(str) == ""))


def tally(batch: Batch) -> Tally:
    """Count the images of a finished batch."""
    images = images_of(batch)
    bad = select(images, images["reason"].astype(str) != "")
    ends = batch["row"][batch["split"] == END]
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
