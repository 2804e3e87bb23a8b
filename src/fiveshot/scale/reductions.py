"""What blocks of vectors are reduced to, and how reductions are merged: the algebra of a cluster run.

Merging is exact, so neither the blocks nor their order matter. ``StatisticsPlan`` says what a run makes.
"""

from __future__ import annotations

import hashlib
import json
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Literal, Protocol, get_args

import numpy as np
from numpy.typing import NDArray

from fiveshot.core import NO_CLASSES
from fiveshot.core.draws import RandomFeatures, random_features
from fiveshot.core.labels import Labels, python_labels, refuse_other_kind
from fiveshot.core.ridge import FeatureMap, GramSums, RowBlock, given
from fiveshot.errors import InputError, unknown_name
from fiveshot.heads import FewShotHead, make_head
from fiveshot.scale.classes import (
    Floats,
    PackedStatistics,
    TiedStatistics,
    merge_packed,
    merge_tied,
    packed_statistics,
    tied_statistics,
)
from fiveshot.scale.pipeline import Rows

BUCKETS = 16
SAMPLE = 40  # vectors of each class that are kept beside a covariance for each
Covariance = Literal["class", "tied"]


class Reduction(Protocol):
    """A way to reduce rows.

    Classes are shared out to ``buckets`` that are merged apart: no single merge has to hold all classes.
    """

    @property
    def buckets(self) -> int:
        """Number of parts that the classes are shared out to."""

    def reduce(self, rows: Rows) -> Any:
        """Reduce the rows of a block."""

    def merge(self, parts: Sequence[Any]) -> Any:
        """Merge reductions of different rows, of the same classes or of others."""


Reductions = Mapping[str, Reduction]


@dataclass(frozen=True)
class StatisticsPlan:
    """Which statistics a run makes.

    Parameters
    ----------
    covariance : {"class", "tied"}
        A covariance for each class, or one for all of them.
    head : str, optional
        A head; the statistics are then of what it makes of the vectors, as a model with this head needs them. How
        it does that is chosen on a few thousand images first.
    sample : int, optional
        Vectors of each class to keep: 40 beside a covariance for each class, none beside a tied one, unless given.
    ridge : Ridge, optional
        Adds the sums of a RanPAC base session.

    Examples
    --------
    >>> from fiveshot.scale import Ridge, StatisticsPlan
    >>> StatisticsPlan("tied", sample=5).reductions()
    {'tied': Tied(buckets=16), 'sample': Sample(per_class=5, buckets=16)}
    >>> list(StatisticsPlan(ridge=Ridge(2000)).reductions())
    ['classes', 'sample', 'ridge']
    """

    covariance: Covariance = "class"
    head: str | None = None
    sample: int | None = None
    ridge: Ridge | None = None

    def reductions(self, settings: Mapping[str, Any] | None = None) -> Reductions:
        """Return what the blocks are reduced to, by the names that statistics give them.

        A head that cannot be derived from statistics is refused. ``settings`` are those of the head.
        """
        if self.head is not None:
            # Only the driver plans; workers reduce, and need no recognizer.
            from fiveshot.recognizer.recognition.snapshot import require_statistics_head

            require_statistics_head(self.head)
        if self.covariance not in get_args(Covariance):
            raise unknown_name("covariance", self.covariance, get_args(Covariance))
        name = "classes" if self.covariance == "class" else "tied"
        chosen: dict[str, Any] = {name: PerClass() if name == "classes" else Tied()}
        if self.head is not None and settings:
            chosen[name] = Embedded(chosen[name], self.head, json.dumps(settings, sort_keys=True))
        sample = self.sample
        if sample is None:
            sample = SAMPLE if self.covariance == "class" else 0
        if sample:
            chosen["sample"] = Sample(sample)
        if self.ridge is not None:
            chosen["ridge"] = self.ridge
        return chosen

    @property
    def notes(self) -> dict[str, Any]:
        """What must be known later about how the statistics were made."""
        return {} if self.ridge is None else {"random_state": self.ridge.random_state}


@dataclass(frozen=True)
class PerClass:
    """A covariance for each class: what ``fiveshot.core.ClassStatistics`` holds."""

    buckets: int = BUCKETS

    def reduce(self, rows: Rows) -> PackedStatistics:
        """Summarize each class of a block."""
        return packed_statistics(rows.vectors, rows.labels)

    def merge(self, parts: Sequence[PackedStatistics]) -> PackedStatistics:
        """Merge exactly."""
        return merge_packed(parts)


@dataclass(frozen=True)
class Tied:
    """One covariance for all classes: what fits into memory with a million of them."""

    buckets: int = BUCKETS

    def reduce(self, rows: Rows) -> TiedStatistics:
        """Summarize a block."""
        return tied_statistics(rows.vectors, rows.labels)

    def merge(self, parts: Sequence[TiedStatistics]) -> TiedStatistics:
        """Merge exactly."""
        return merge_tied(parts)


@dataclass(frozen=True)
class Embedded:
    """Another reduction of what a head makes of the vectors: heads keep statistics of that."""

    inner: Reduction
    head: str
    settings: str  # JSON; they decide how the head embeds

    @property
    def buckets(self) -> int:
        """Those of the reduction inside."""
        return self.inner.buckets

    def reduce(self, rows: Rows) -> Any:
        """Embed a block and reduce it."""
        head = _embedding_head(self.head, self.settings)
        return self.inner.reduce(replace(rows, vectors=head.embed(rows.vectors)))

    def merge(self, parts: Sequence[Any]) -> Any:
        """Merge as the reduction inside does."""
        return self.inner.merge(parts)


@lru_cache(maxsize=2)
def _embedding_head(name: str, settings: str) -> FewShotHead:
    """Return a head that embeds as its settings say, and has learned nothing."""
    head = make_head(name)
    head.apply_settings(json.loads(settings))
    return head


@dataclass(frozen=True)
class Sample:
    """A few vectors of each class.

    Thresholds and other choices that need held-out vectors cannot be made from sums; they are made on these.
    """

    per_class: int = 20
    buckets: int = BUCKETS

    def reduce(self, rows: Rows) -> ClassSample:
        """Sample a block."""
        return class_sample(rows.vectors, rows.labels, rows.names, per_class=self.per_class)

    def merge(self, parts: Sequence[ClassSample]) -> ClassSample:
        """Sample the samples."""
        filled = [part for part in parts if len(part)]
        if not filled:
            return parts[0] if parts else NO_SAMPLE
        for part in filled[1:]:
            refuse_other_kind(filled[0].labels, part.labels)
        fields = ("labels", "keys", "vectors")
        joined = ClassSample(*(np.concatenate([getattr(part, name) for part in filled]) for name in fields))
        return joined.first(self.per_class)


@dataclass(frozen=True, eq=False)
class ClassSample:
    """Vectors with their labels and the keys they were chosen by, in the order of both."""

    labels: Labels  # (n,)
    keys: NDArray[np.uint64]  # (n,)
    vectors: Floats  # (n, d)

    def __len__(self) -> int:
        return len(self.labels)

    def select(self, chosen: NDArray[np.bool_] | NDArray[np.intp]) -> ClassSample:
        """Return the vectors marked in ``chosen`` (n,), or at these positions."""
        return ClassSample(self.labels[chosen], self.keys[chosen], self.vectors[chosen])

    def first(self, per_class: int) -> ClassSample:
        """Return the vectors with the smallest keys of each class."""
        order = np.lexsort((self.keys, self.labels))
        _, counts = np.unique(self.labels, return_counts=True)
        starts = np.repeat(np.cumsum(counts) - counts, counts)
        return self.select(order[np.arange(len(order)) - starts < per_class])


NO_SAMPLE = ClassSample(NO_CLASSES.labels, np.zeros(0, np.uint64), np.zeros((0, 0), np.float32))


def class_sample(vectors: Floats, labels: Labels, names: Iterable[str], *, per_class: int) -> ClassSample:
    """Keep the vectors of the ``per_class`` smallest hashed names of each class: the same ones from any blocks.

    >>> labels = np.array(["owl", "owl", "wren"])
    >>> class_sample(np.eye(3), labels, ["1.jpg", "2.jpg", "3.jpg"], per_class=1).labels.tolist()
    ['owl', 'wren']
    """
    digests = (hashlib.blake2b(name.encode("utf-8", "surrogateescape"), digest_size=8).digest() for name in names)
    keys = np.array([int.from_bytes(digest, "big") for digest in digests], dtype=np.uint64)
    return ClassSample(labels, keys, vectors).first(per_class)


@dataclass(frozen=True)
class Ridge:
    """The sums of a RanPAC head's base session.

    Parameters
    ----------
    n_projections : int, default 10,000
        Random features of the head.
    random_state : int, default 0
        Seed of the head, which decides the random features.

    Examples
    --------
    >>> import numpy as np
    >>> from fiveshot.scale import Ridge
    >>> from fiveshot.scale.pipeline import Rows
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


@lru_cache(maxsize=2)
def _feature_map(n_features: int, width: int, seed: int) -> RandomFeatures:
    return random_features(n_features, width, seed=seed, like=np.zeros(1, np.float32))


@dataclass(frozen=True, eq=False)
class RidgeSums:
    """G = Σ φφᵀ in its lower triangle, and the sum of φ over each class's samples, all of weight one."""

    labels: Labels  # (C,), sorted
    targets: Floats  # (C, M)
    gram: Floats  # (M, M)

    def __len__(self) -> int:
        return len(self.labels)

    def folded(self) -> GramSums:
        """Return the sums as a ridge head keeps them; the memory is the head's own."""
        return GramSums(self.gram.copy(), dict(zip(python_labels(self.labels), self.targets.copy(), strict=True)))


def ridge_sums(vectors: Floats, labels: Labels, feature_map: FeatureMap, *, width: int) -> RidgeSums:
    """Sum the mapped features of a block of samples, (n, d) and (n,); the map has ``width`` features.

    >>> sums = ridge_sums(np.eye(2), np.array(["owl", "wren"]), lambda X, out: np.copyto(out, 2 * X), width=2)
    >>> sums.targets.tolist(), np.tril(sums.gram).tolist()
    ([[2.0, 0.0], [0.0, 2.0]], [[4.0, 0.0], [0.0, 4.0]])
    """
    sums = GramSums(np.zeros((width, width), vectors.dtype), {})
    if not len(labels):
        return RidgeSums(NO_CLASSES.labels, np.zeros((0, width), vectors.dtype), sums.gram)
    classes = np.unique(labels)
    own = {label: vectors[labels == label] for label in python_labels(classes)}
    sums.add_([RowBlock(label, None, len(rows), 1.0, given(rows)) for label, rows in own.items()], feature_map)
    return RidgeSums(classes, np.stack([sums.targets[label] for label in own]), sums.gram)


def merge_ridge(parts: Sequence[RidgeSums]) -> RidgeSums:
    """Return the sums over all samples together."""
    filled = [part for part in parts if len(part)]
    if len(filled) < 2:
        return filled[0] if filled else parts[0]
    shape = filled[0].gram.shape
    for part in filled[1:]:
        refuse_other_kind(filled[0].labels, part.labels)
        if part.gram.shape != shape:
            raise InputError(
                f"cannot merge sums of {shape[0]} and of {part.gram.shape[0]} random features", code="other_width"
            )
    labels: Labels = np.unique(np.concatenate([part.labels for part in filled]))
    targets = np.zeros((len(labels), shape[0]), filled[0].targets.dtype)
    gram = filled[0].gram.copy()
    for part in filled:
        targets[np.searchsorted(labels, part.labels)] += part.targets
    for part in filled[1:]:
        gram += part.gram
    return RidgeSums(labels, targets, gram)


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
