"""Reduce blocks of vectors to statistics, and merge these: the algebra of a cluster run.

Merging is exact, so neither the blocks nor their order matter. ``StatisticsPlan`` says what a run computes.

Statistics are sent as arrays, without copies. They hold the same numbers as ``fiveshot.core.ClassStatistics``,
which has one object for each class. A covariance for each class takes width² numbers a class; with a million
classes only a shared one fits into a machine.
"""

from __future__ import annotations

import hashlib
import json
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Literal, Protocol, get_args

import numpy as np
from numpy.typing import NDArray

from fiveshot.core import NO_CLASSES, ClassStatistics, class_statistics
from fiveshot.core.draws import RandomFeatures, random_features
from fiveshot.core.labels import Labels, python_labels, refuse_other_kind
from fiveshot.core.ranges import OneOf
from fiveshot.core.ridge import GramSums, RowBlock, given
from fiveshot.core.scorers import Scorer, make_scorer
from fiveshot.core.statistics import compress, statistics_arrays, statistics_from_arrays
from fiveshot.errors import InputError
from fiveshot.scale._pipeline import Rows

BUCKETS = 16
SAMPLE = 40  # vectors of each class that are kept in addition to a covariance for each class
Floats = NDArray[np.floating[Any]]
Integers = NDArray[np.int64]
Covariance = Literal["class", "tied"]


class Reduction(Protocol):
    """A way to reduce rows.

    Classes are divided into ``buckets`` that are merged separately, so no single merge holds all classes.
    """

    @property
    def buckets(self) -> int:
        """Number of parts of the classes."""

    def reduce(self, rows: Rows) -> Any:
        """Reduce the rows of a block."""

    def merge(self, parts: Sequence[Any]) -> Any:
        """Merge reductions of different rows, of the same classes or of others."""


Reductions = Mapping[str, Reduction]


@dataclass(frozen=True)
class StatisticsPlan:
    """The statistics that a run computes.

    Parameters
    ----------
    covariance : {"class", "tied"}
        A covariance for each class, or one for all of them.
    head : str, optional
        A head; the statistics then describe the vectors after this head's embedding, as a model with this head
        needs. The settings of the embedding are first chosen on a few thousand images.
    sample : int, optional
        Vectors of each class to keep: by default 40 with a covariance for each class, none with a tied one.
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
        """Return the reductions by name.

        A head that cannot be derived from statistics is refused. ``settings`` are those of the head.
        """
        if self.head is not None:
            # Only the driver plans; workers reduce, and need no recognizer.
            from fiveshot.recognizer import require_statistics_head

            require_statistics_head(self.head)
        OneOf(get_args(Covariance)).check("covariance", self.covariance)
        name = "classes" if self.covariance == "class" else "tied"
        chosen: dict[str, Any] = {name: PerClass() if name == "classes" else Tied()}
        if self.head is not None and settings:
            chosen[name] = Embedded(chosen[name], self.head, json.dumps(settings, sort_keys=True))
        usual = SAMPLE if self.covariance == "class" else 0
        if sample := usual if self.sample is None else self.sample:
            chosen["sample"] = Sample(sample)
        if self.ridge is not None:
            chosen["ridge"] = self.ridge
        return chosen

    @property
    def notes(self) -> dict[str, Any]:
        """Facts about how the statistics were made that are needed later."""
        return {} if self.ridge is None else {"random_state": self.ridge.random_state}


@dataclass(frozen=True, eq=False)
class OfClasses:
    """Base of values with one entry for each class; empty if nothing was seen."""

    labels: Labels  # sorted: (C,), or (n,) with one for each sample

    def __len__(self) -> int:
        return len(self.labels)


@dataclass(frozen=True, eq=False)
class PackedStatistics(OfClasses):
    """Counts, means and scatter factors of classes, in the order of their labels."""

    counts: Integers  # (C,)
    means: Floats  # (C, d)
    ranks: Integers  # (C,): rows of each class's factor
    factors: Floats  # (Σ ranks, d): the factors one below the other


@dataclass(frozen=True, eq=False)
class TiedStatistics(OfClasses):
    """Counts and means of classes, and the scatter of all samples about the means of their classes."""

    counts: Integers  # (C,)
    means: Floats  # (C, d)
    scatter: Floats  # (d, d), float64; (0, 0) where there is no class

    @property
    def covariance(self) -> Floats:
        """The pooled covariance, scatter / Σ (n − 1), (d, d)."""
        pooled: Floats = self.scatter / max(1, int((self.counts - 1).sum()))
        return pooled

    def split(self, *, seed: int) -> ClassStatistics:
        """Return statistics of each class whose scatters add up to the pooled one: what a tied head needs.

        The assignment of parts to classes has no meaning. The scatter is first rotated at random, so that the
        parts are similar and forgetting a class removes an even share.
        """
        width = self.means.shape[1]
        values, vectors = np.linalg.eigh(self.scatter)
        turn, _ = np.linalg.qr(np.random.default_rng(seed).standard_normal((width, width)))
        factor = (turn * np.sqrt(np.maximum(values, 0))) @ vectors.T  # factorᵀ · factor = scatter
        ranks = np.bincount(np.arange(width) % len(self), minlength=len(self))
        if (ranks > np.minimum(self.counts, width)).any():
            raise InputError(
                f"{len(self)} classes of at least {self.counts.min()} samples are too few to share one covariance",
                hint="reduce with covariance='class'",
                code="too_few_classes",
            )
        factors = factor.astype(np.float32)
        return unpack(PackedStatistics(self.labels, self.counts, self.means.astype(np.float32), ranks, factors))


def pack(statistics: ClassStatistics) -> PackedStatistics:
    """Return class statistics as arrays.

    >>> from fiveshot.core import class_statistics
    >>> packed = pack(class_statistics(np.eye(3), ["owl", "owl", "wren"]))
    >>> packed.labels.tolist(), packed.counts.tolist(), packed.ranks.tolist()
    (['owl', 'wren'], [2, 1], [1, 0])
    """
    if not len(statistics):
        return NO_STATISTICS
    return PackedStatistics(statistics.labels, **statistics_arrays(statistics))


def unpack(packed: PackedStatistics) -> ClassStatistics:
    """Return arrays as class statistics, which share their memory."""
    return statistics_from_arrays(python_labels(packed.labels), vars(packed))


def tie(packed: PackedStatistics) -> TiedStatistics:
    """Sum the scatters of all classes; return statistics with this one scatter."""
    factors = packed.factors.astype(np.float64)
    return TiedStatistics(packed.labels, packed.counts, packed.means, factors.T @ factors)


class JoinedMeans:
    """Counts and means of many classes, joined part by part, and the scatter that lies between the parts.

    The formula is that of Chan, Golub and LeVeque; sums are kept in double precision.
    """

    def __init__(self, labels: Sequence[Labels], *, width: int) -> None:
        """Prepare for parts with these labels, each with at least one, and vectors of this ``width``."""
        for own in labels[1:]:
            refuse_other_kind(labels[0], own)
        self.labels: Labels = np.unique(np.concatenate(labels))  # (C,)
        self.counts: Integers = np.zeros(len(self.labels), np.int64)
        self.means: Floats = np.zeros((len(self.labels), width))

    def add(self, labels: Labels, counts: Integers, means: Floats) -> tuple[Integers, Floats, Integers]:
        """Join one part; return its classes' positions, rows of scatter to earlier parts, and their classes."""
        if means.shape[1] != self.means.shape[1]:
            raise InputError(
                f"cannot merge statistics of {self.means.shape[1]} and of {means.shape[1]} features",
                hint="both must come from the same backbone",
                code="other_width",
            )
        own = np.searchsorted(self.labels, labels).astype(np.int64)
        before = self.counts[own]
        total = before + counts
        difference = means - self.means[own]  # (c, d)
        self.means[own] += (counts / total)[:, None] * difference
        self.counts[own] = total
        known = before > 0
        # Scatters add up, and with them n m / (n + m) δδᵀ, where δ is the difference of the means.
        weight = np.sqrt(before[known] / total[known] * counts[known])
        return own, weight[:, None] * difference[known], own[known]


def _by_owner(rows: Floats, owners: Integers, n_classes: int) -> tuple[Floats, Integers]:
    """Return the rows class by class, at most as many as there are columns for each, and how many each has."""
    ranks = np.bincount(owners, minlength=n_classes)
    rows = rows[np.argsort(owners, kind="stable")]
    if ranks.max() <= rows.shape[1]:
        return rows, ranks
    split = np.split(rows, np.cumsum(ranks)[:-1])
    compressed = [compress(part) for part in split]
    return np.concatenate(compressed), np.minimum(ranks, rows.shape[1])


NO_STATISTICS = PackedStatistics(
    NO_CLASSES.labels, np.zeros(0, np.int64), np.zeros((0, 0), np.float32), np.zeros(0, np.int64), np.zeros((0, 0))
)


@dataclass(frozen=True)
class PerClass:
    """A covariance for each class: what ``fiveshot.core.ClassStatistics`` holds.

    >>> blocks = [Rows(np.array([[x]]), np.array(["owl"]), (f"{x}.jpg",)) for x in (1.0, 2.0, 6.0)]
    >>> merged = PerClass().merge([PerClass().reduce(rows) for rows in blocks])
    >>> float(merged.means[0, 0]), round(float(merged.factors[0, 0] ** 2), 6)
    (3.0, 14.0)
    """

    buckets: int = BUCKETS

    def reduce(self, rows: Rows) -> PackedStatistics:
        """Summarize each class of a block."""
        return pack(class_statistics(rows.vectors, rows.labels))

    def merge(self, parts: Sequence[PackedStatistics]) -> PackedStatistics:
        """Return the exact statistics of all samples together."""
        filled = [part for part in parts if len(part)]
        if len(filled) < 2:
            return filled[0] if filled else parts[0]
        joined = JoinedMeans([part.labels for part in filled], width=filled[0].means.shape[1])
        rows, owners = [], []
        for part in filled:
            own, between, whose = joined.add(part.labels, part.counts, part.means)
            rows += [part.factors, between.astype(part.factors.dtype)]
            owners += [np.repeat(own, part.ranks), whose]
        factors, ranks = _by_owner(np.concatenate(rows), np.concatenate(owners), len(joined.labels))
        means = joined.means.astype(filled[0].means.dtype)
        return PackedStatistics(joined.labels, joined.counts, means, ranks, factors)


@dataclass(frozen=True)
class Tied:
    """One covariance for all classes; it fits into memory even with a million classes.

    >>> vectors, labels = np.array([[1.0], [3.0], [9.0]]), np.array(["owl", "owl", "wren"])
    >>> tied = Tied().reduce(Rows(vectors, labels, ("1.jpg", "2.jpg", "3.jpg")))
    >>> tied.means.tolist(), tied.scatter.tolist()
    ([[2.0], [9.0]], [[2.0]])
    """

    buckets: int = BUCKETS

    def reduce(self, rows: Rows) -> TiedStatistics:
        """Summarize a block."""
        vectors = rows.vectors
        if not len(vectors):
            # Most buckets of a block with few classes are empty: full-size zeros would fill the object stores.
            return TiedStatistics(NO_CLASSES.labels, np.zeros(0, np.int64), vectors, np.zeros((0, 0)))
        classes, codes, counts = np.unique(rows.labels, return_inverse=True, return_counts=True)
        ordered = vectors[np.argsort(codes, kind="stable")]
        starts = np.cumsum(counts) - counts
        means = np.add.reduceat(ordered, starts, axis=0, dtype=np.float64) / counts[:, None]
        means = means.astype(vectors.dtype)
        centered = ordered - np.repeat(means, counts, axis=0)
        return TiedStatistics(classes, counts, means, (centered.T @ centered).astype(np.float64))

    def merge(self, parts: Sequence[TiedStatistics]) -> TiedStatistics:
        """Return the exact statistics of all samples together."""
        filled = [part for part in parts if len(part)]
        if len(filled) < 2:
            return filled[0] if filled else parts[0]
        joined = JoinedMeans([part.labels for part in filled], width=filled[0].means.shape[1])
        scatter = np.zeros_like(filled[0].scatter)
        for part in filled:
            _, between, _ = joined.add(part.labels, part.counts, part.means)
            scatter += part.scatter + between.T @ between
        return TiedStatistics(joined.labels, joined.counts, joined.means.astype(filled[0].means.dtype), scatter)


@dataclass(frozen=True)
class Embedded:
    """Another reduction, applied to the vectors after a head's embedding."""

    inner: Reduction
    head: str
    settings: str  # JSON; they decide how the head embeds

    @property
    def buckets(self) -> int:
        """Number of buckets of the inner reduction."""
        return self.inner.buckets

    def reduce(self, rows: Rows) -> Any:
        """Embed a block and reduce it."""
        head = _embedding_head(self.head, self.settings)
        return self.inner.reduce(replace(rows, vectors=head.embed(rows.vectors)))

    def merge(self, parts: Sequence[Any]) -> Any:
        """Merge with the inner reduction."""
        return self.inner.merge(parts)


@lru_cache(maxsize=2)
def _embedding_head(name: str, settings: str) -> Scorer:
    """Return an unlearned head that embeds with these settings."""
    return make_scorer(name).with_settings(json.loads(settings))


@dataclass(frozen=True)
class Sample:
    """A few vectors of each class.

    Thresholds and other choices need held-out vectors; they cannot be computed from sums.

    >>> rows = Rows(np.eye(3), np.array(["owl", "owl", "wren"]), ("1.jpg", "2.jpg", "3.jpg"))
    >>> Sample(per_class=1).reduce(rows).labels.tolist()
    ['owl', 'wren']
    """

    per_class: int = 20
    buckets: int = BUCKETS

    def reduce(self, rows: Rows) -> ClassSample:
        """Keep the vectors with the smallest hashed names of each class; these do not depend on the blocks."""
        names = (name.encode("utf-8", "surrogateescape") for name in rows.names)
        digests = (hashlib.blake2b(name, digest_size=8).digest() for name in names)
        keys = np.array([int.from_bytes(digest, "big") for digest in digests], dtype=np.uint64)
        return ClassSample(rows.labels, keys, rows.vectors).first(self.per_class)

    def merge(self, parts: Sequence[ClassSample]) -> ClassSample:
        """Sample the samples."""
        filled = [part for part in parts if len(part)]
        if not filled:
            return parts[0]
        for part in filled[1:]:
            refuse_other_kind(filled[0].labels, part.labels)
        fields = ("labels", "keys", "vectors")
        joined = ClassSample(*(np.concatenate([getattr(part, name) for part in filled]) for name in fields))
        return joined.first(self.per_class)


@dataclass(frozen=True, eq=False)
class ClassSample(OfClasses):
    """Vectors with their labels and the keys they were chosen by, in the order of both."""

    keys: NDArray[np.uint64]  # (n,)
    vectors: Floats  # (n, d)

    def select(self, chosen: NDArray[np.bool_] | NDArray[np.intp]) -> ClassSample:
        """Return the vectors marked in ``chosen`` (n,), or at these positions."""
        return ClassSample(self.labels[chosen], self.keys[chosen], self.vectors[chosen])

    def first(self, per_class: int | Integers) -> ClassSample:
        """Return the vectors with the smallest keys of each class, ``per_class`` of each."""
        order = np.lexsort((self.keys, self.labels))
        _, counts = np.unique(self.labels, return_counts=True)
        starts = np.repeat(np.cumsum(counts) - counts, counts)
        return self.select(order[np.arange(len(order)) - starts < per_class])


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
    >>> from fiveshot.scale._pipeline import Rows
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
        vectors, width = rows.vectors, self.n_projections
        feature_map = _feature_map(vectors.shape[1], width, self.random_state)
        sums = GramSums(np.zeros((width, width), vectors.dtype), {})
        classes = np.unique(rows.labels)
        own = {label: vectors[rows.labels == label] for label in python_labels(classes)}
        blocks = [RowBlock(label, None, len(part), 1.0, given(part)) for label, part in own.items()]
        if not blocks:
            return RidgeSums(NO_CLASSES.labels, np.zeros((0, width), vectors.dtype), sums.gram)
        sums.add_(blocks, feature_map)
        return RidgeSums(classes, np.stack([sums.targets[label] for label in own]), sums.gram)

    def merge(self, parts: Sequence[RidgeSums]) -> RidgeSums:
        """Return the sums over all samples together."""
        filled = [part for part in parts if len(part)]
        if len(filled) < 2:
            return filled[0] if filled else parts[0]
        shape = filled[0].gram.shape
        for part in filled[1:]:
            refuse_other_kind(filled[0].labels, part.labels)
            if part.gram.shape != shape:
                message = f"cannot merge sums of {shape[0]} and of {part.gram.shape[0]} random features"
                raise InputError(message, code="other_width")
        labels: Labels = np.unique(np.concatenate([part.labels for part in filled]))
        targets = np.zeros((len(labels), shape[0]), filled[0].targets.dtype)
        gram = np.zeros_like(filled[0].gram)
        for part in filled:
            targets[np.searchsorted(labels, part.labels)] += part.targets
            gram += part.gram
        return RidgeSums(labels, targets, gram)


@lru_cache(maxsize=2)
def _feature_map(n_features: int, width: int, seed: int) -> RandomFeatures:
    return random_features(n_features, width, seed=seed, like=np.zeros(1, np.float32))


@dataclass(frozen=True, eq=False)
class RidgeSums(OfClasses):
    """G = Σ φφᵀ in its lower triangle, and the sum of φ over each class's samples, all of weight one."""

    targets: Floats  # (C, M)
    gram: Floats  # (M, M)

    def folded(self) -> GramSums:
        """Return the sums as a ridge head keeps them; the memory is the head's own."""
        return GramSums(self.gram.copy(), dict(zip(python_labels(self.labels), self.targets.copy(), strict=True)))


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
