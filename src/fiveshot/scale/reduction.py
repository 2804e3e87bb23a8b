"""What blocks of vectors are reduced to, and how reductions are merged: the algebra a cluster run is made of."""

from __future__ import annotations

import json
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from fiveshot.heads import FewShotHead, make_head
from fiveshot.heads.sampling import RandomFeatures, random_features
from fiveshot.scale.class_sample import ClassSample, class_sample, merge_samples
from fiveshot.scale.packed import PackedStatistics, merge_packed, packed_statistics
from fiveshot.scale.ridge_sums import RidgeSums, merge_ridge, ridge_sums
from fiveshot.scale.rows import Rows
from fiveshot.scale.tied import TiedStatistics, merge_tied, tied_statistics
from fiveshot.statistics.labels import Labels

BUCKETS = 16


class Reduction(Protocol):
    """A way to reduce rows. Merging is exact, so neither the blocks nor their order matter.

    Classes are dealt out to ``buckets`` that are merged apart: no single merge has to hold all classes.
    """

    @property
    def buckets(self) -> int:
        """Number of parts that the classes are dealt out to."""

    def reduce(self, rows: Rows) -> Any:
        """Reduce the rows of a block."""

    def merge(self, parts: Sequence[Any]) -> Any:
        """Merge reductions of different rows, of the same classes or of others."""


@dataclass(frozen=True)
class PerClass:
    """A covariance for each class: what ``fiveshot.statistics.ClassStatistics`` holds."""

    buckets: int = BUCKETS

    def reduce(self, rows: Rows) -> PackedStatistics:
        """Summarise each class of a block."""
        return packed_statistics(rows.vectors, rows.labels)

    def merge(self, parts: Sequence[PackedStatistics]) -> PackedStatistics:
        """Merge exactly."""
        return merge_packed(parts)


@dataclass(frozen=True)
class Tied:
    """One covariance for all classes: what fits into memory with a million of them."""

    buckets: int = BUCKETS

    def reduce(self, rows: Rows) -> TiedStatistics:
        """Summarise a block."""
        return tied_statistics(rows.vectors, rows.labels)

    def merge(self, parts: Sequence[TiedStatistics]) -> TiedStatistics:
        """Merge exactly."""
        return merge_tied(parts)


@dataclass(frozen=True)
class Sample:
    """A few vectors of each class."""

    per_class: int = 20
    buckets: int = BUCKETS

    def reduce(self, rows: Rows) -> ClassSample:
        """Sample a block."""
        return class_sample(rows.vectors, rows.labels, rows.names, per_class=self.per_class)

    def merge(self, parts: Sequence[ClassSample]) -> ClassSample:
        """Sample the samples."""
        return merge_samples(parts, per_class=self.per_class)


@dataclass(frozen=True)
class Ridge:
    """The sums of a RanPAC head's base session; the random features are those of a head with this seed.

    >>> import numpy as np
    >>> from fiveshot.scale import Ridge
    >>> from fiveshot.scale.rows import Rows
    >>> ridge = Ridge(n_projections=16, random_state=1)
    >>> rows = Rows(np.eye(3, dtype=np.float32), np.array(["owl", "owl", "wren"]), ("1", "2", "3"))
    >>> parts = [ridge.reduce(rows.select(rows.labels == label)) for label in ("owl", "wren")]
    >>> np.allclose(ridge.merge(parts).gram, ridge.reduce(rows).gram)
    True
    """

    n_projections: int = 10_000
    random_state: int = 0
    buckets: int = 1  # the Gram matrix is about all classes

    def reduce(self, rows: Rows) -> RidgeSums:
        """Sum the mapped features of a block."""
        feature_map = _feature_map(rows.vectors.shape[1], self.n_projections, self.random_state)
        return ridge_sums(rows.vectors, rows.labels, feature_map, width=self.n_projections)

    def merge(self, parts: Sequence[RidgeSums]) -> RidgeSums:
        """Add up."""
        return merge_ridge(parts)


@dataclass(frozen=True)
class Embedded:
    """Another reduction of what a head makes of the vectors: heads keep statistics of that."""

    inner: Reduction
    head: str
    settings: str  # JSON; they fix how the head embeds

    @property
    def buckets(self) -> int:
        """Those of the reduction inside."""
        return self.inner.buckets

    def reduce(self, rows: Rows) -> Any:
        """Embed a block and reduce it."""
        head = embedding_head(self.head, self.settings)
        return self.inner.reduce(replace(rows, vectors=head.embed(torch.from_numpy(rows.vectors)).numpy()))

    def merge(self, parts: Sequence[Any]) -> Any:
        """Merge as the reduction inside does."""
        return self.inner.merge(parts)


def reduce_rows(reduction: Reduction, rows: Rows) -> list[Any]:
    """Return one reduction for each bucket."""
    if reduction.buckets == 1:
        return [reduction.reduce(rows)]
    owner = bucket_of(rows.labels, reduction.buckets)
    return [reduction.reduce(rows.select(owner == number)) for number in range(reduction.buckets)]


def bucket_of(labels: Labels, buckets: int) -> NDArray[np.int64]:
    """Return the bucket of each label, the same in every process.

    >>> bucket_of(np.array(["owl", "wren", "owl"]), 4).tolist()
    [1, 2, 1]
    """
    classes, codes = np.unique(labels, return_inverse=True)
    table = [zlib.crc32(str(label).encode("utf-8", "surrogateescape")) % buckets for label in classes]
    return np.array(table, dtype=np.int64)[codes] if len(table) else np.zeros(0, np.int64)


@lru_cache(maxsize=2)
def embedding_head(name: str, settings: str) -> FewShotHead:
    """Return a head that embeds as its settings say, and has learned nothing."""
    head = make_head(name)
    head._apply_settings(json.loads(settings))
    return head


@lru_cache(maxsize=2)
def _feature_map(n_features: int, width: int, seed: int) -> RandomFeatures:
    return random_features(n_features, width, seed=seed, like=torch.zeros(1))
