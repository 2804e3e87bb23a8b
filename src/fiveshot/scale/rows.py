"""What finished rows tell: how many images, which bad ones, how long each stage took, and the vectors."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fiveshot.data import BadImage
from fiveshot.scale.columns import END, STAGES, Batch
from fiveshot.statistics.labels import Labels


@dataclass(frozen=True)
class Tally:
    """What has been done: images, the bad ones among them, and the seconds each stage was busy with them."""

    images: int = 0
    bad: tuple[BadImage, ...] = ()
    seconds: Mapping[str, float] = field(default_factory=dict)

    def __add__(self, other: Tally) -> Tally:
        names = dict.fromkeys((*self.seconds, *other.seconds))
        return Tally(
            self.images + other.images,
            self.bad + other.bad,
            {name: self.seconds.get(name, 0.0) + other.seconds.get(name, 0.0) for name in names},
        )

    def rates(self) -> dict[str, float]:
        """Return images per second of each stage, for one worker that is never kept waiting."""
        return {name: self.images / seconds for name, seconds in self.seconds.items() if seconds > 0}


@dataclass(frozen=True, eq=False)
class Rows:
    """Vectors of images that could be read."""

    vectors: NDArray[np.floating[Any]]  # (n, d)
    labels: Labels  # (n,)
    names: tuple[str, ...]

    def select(self, chosen: NDArray[np.bool_]) -> Rows:
        """Return the rows marked in ``chosen`` (n,)."""
        names = tuple(name for name, wanted in zip(self.names, chosen, strict=True) if wanted)
        return Rows(self.vectors[chosen], self.labels[chosen], names)


def concatenate(batches: Iterable[Batch]) -> Batch:
    """Return batches with the same columns as one."""
    given = list(batches)
    return {name: np.concatenate([batch[name] for batch in given]) for name in given[0]}


def without_markers(batch: Batch) -> Batch:
    """Return the rows that stand for images."""
    return _chosen(batch, batch["split"] != END)


def tally(batch: Batch) -> Tally:
    """Count the images of a finished batch, markers aside."""
    images = without_markers(batch)
    bad = _chosen(images, images["reason"].astype(str) != "")
    return Tally(
        len(images["row"]),
        tuple(BadImage(str(name), str(why)) for name, why in zip(bad["name"], bad["reason"], strict=True)),
        {stage: float(images[f"{stage}_s"].sum(dtype=np.float64)) for stage in STAGES if f"{stage}_s" in images},
    )


def good_rows(batch: Batch, *, splits: tuple[int, ...]) -> Rows:
    """Return the vectors of a finished batch, in float32, without bad images and other splits."""
    kept = _chosen(batch, np.isin(batch["split"], splits) & (batch["reason"].astype(str) == ""))
    labels = kept["label"].astype(str)
    return Rows(kept["vectors"].astype(np.float32), labels, tuple(kept["name"].tolist()))


def _chosen(batch: Batch, chosen: NDArray[np.bool_]) -> Batch:
    return {name: column[chosen] for name, column in batch.items()}
