"""Statistics of a class, which replace its samples: a count, a mean and a factored scatter.

A scatter matrix AᵀA, d × d, is stored as its factor A, r × d. Five samples in 768 dimensions have a scatter of
rank four: its factor has 4 rows, its dense form 768.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, reduce
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fiveshot.core.arrays import (
    Array,
    as_numpy,
    empty,
    mean_row,
    namespace,
    parts,
    positions,
    product_into,
    triangle,
    unit_rows,
    values_like,
)
from fiveshot.core.labels import Label, Labels, as_labels, python_label, python_labels, refuse_other_kind
from fiveshot.errors import InputError, unknown_name

SCATTERS_AT_ONCE = 1 << 24  # numbers in scatter matrices that are kept, 64 MB in single precision


@dataclass(frozen=True, eq=False)
class ClassSummary:
    """One class: the count, the mean and the scatter of its samples.

    Attributes
    ----------
    count : int
        Number of samples.
    mean : array of shape (d,)
        Their mean.
    factor : array of shape (r, d)
        A, with AᵀA their scatter around it.

    Examples
    --------
    >>> import numpy as np
    >>> from fiveshot.core import summarize
    >>> both = summarize(np.array([[0.0, 0.0], [2.0, 0.0]])).merge(summarize(np.array([[4.0, 3.0]])))
    >>> both.count, both.mean.tolist()
    (3, [2.0, 1.0])
    """

    count: int
    mean: Array  # (d,)
    factor: Array  # (r, d) with factorᵀ · factor = scatter, r ≤ min(count, d)

    @property
    def covariance_factor(self) -> Array:
        """Canonical factor of the covariance, scatter / (n − 1); with one sample it has no rows."""
        return canonical(self.factor) / math.sqrt(max(self.count - 1, 1))  # (r, d)

    def merge(self, other: ClassSummary) -> ClassSummary:
        """Return the summary of both sample sets joined, exactly (Chan, Golub and LeVeque, 1983)."""
        n = self.count + other.count
        mean = (self.count * self.mean + other.count * other.mean) / n
        # The scatter of the joined set has one more term: the scatter of the two means, of rank one.
        between = math.sqrt(self.count * other.count / n) * (self.mean - other.mean)
        return ClassSummary(n, mean, stack([self.factor, other.factor, between[None]]))


@dataclass(frozen=True, eq=False)
class ClassStatistics:
    """Summaries of classes, in the order of their labels.

    The value is immutable: every operation returns a new one that shares the unchanged summaries.

    Attributes
    ----------
    labels : array of shape (n_classes,)
        The classes, sorted.
    summaries : tuple of ClassSummary
        One for each class.

    Examples
    --------
    >>> import numpy as np
    >>> from fiveshot.core import class_statistics
    >>> early = class_statistics(np.eye(4)[:2], ["wren", "owl"])
    >>> late = class_statistics(np.eye(4)[2:], ["owl", "owl"])
    >>> both = early.merge(late)
    >>> both.labels.tolist(), both.counts.tolist()
    (['owl', 'wren'], [3, 1])
    """

    labels: Labels  # (n_classes,), sorted
    summaries: tuple[ClassSummary, ...]

    def __len__(self) -> int:
        return len(self.summaries)

    def __contains__(self, label: object) -> bool:
        return label in self._position

    def __getitem__(self, label: Label) -> ClassSummary:
        return self.summaries[self._place(label)]

    def _place(self, label: Label) -> int:
        """Return the index of a class; raise an error if it is unknown."""
        place = self._position.get(label)
        if place is None:
            raise unknown_class(label, self.labels)
        return place

    @classmethod
    def of(cls, summaries: Mapping[Any, ClassSummary]) -> ClassStatistics:
        """Return statistics from summaries by label; an empty mapping gives no classes."""
        if not summaries:
            return NO_CLASSES
        labels = sorted(summaries)
        return cls(np.array(labels), tuple(summaries[label] for label in labels))

    @cached_property
    def _position(self) -> dict[object, int]:
        return {label: index for index, label in enumerate(python_labels(self.labels))}

    @cached_property
    def counts(self) -> Array:
        """Number of samples per class, (n_classes,)."""
        counts = np.array([summary.count for summary in self.summaries], dtype=np.int64)
        return positions(counts, self.summaries[0].mean) if self.summaries else counts

    @cached_property
    def n_samples(self) -> int:
        """Number of samples of all classes."""
        return sum(summary.count for summary in self.summaries)

    @cached_property
    def means(self) -> Array:
        """Class means, (n_classes, d)."""
        if not self.summaries:
            raise InputError("no class is known, so there are no means; add samples first")
        return namespace(self.summaries[0].mean).stack([summary.mean for summary in self.summaries])

    @cached_property
    def center(self) -> Array:
        """Mean of the class means, (d,)."""
        return mean_row(self.means)

    @property
    def like(self) -> Array:
        """One of the means, (d,): shows the library, the precision and the device of all."""
        if not self.summaries:
            raise InputError("no class is known, so there are no means; add samples first")
        return self.summaries[0].mean

    @cached_property
    def unit_means(self) -> Array:
        """Class means scaled to length one, (n_classes, d)."""
        return unit_rows(self.means)

    @cached_property
    def stacked_factors(self) -> tuple[Array, Array]:
        """All covariance factors, one below the other, (Σ r, d), and the class index of each row, (Σ r,)."""
        factors = [summary.covariance_factor for summary in self.summaries]
        owners = np.repeat(np.arange(len(factors)), [len(factor) for factor in factors])
        return namespace(factors[0]).concat(factors), positions(owners, factors[0])

    def scatters(self) -> Iterable[Array]:
        """Return the scatter matrices, some rows of all of them at a time, (n_classes, rows, up to the diagonal).

        They are computed on use, and kept if they are few.
        """
        whole = len(self) * self.n_features**2 <= SCATTERS_AT_ONCE
        return self._kept_scatters if whole else self._made_scatters()

    @cached_property
    def _kept_scatters(self) -> list[Array]:
        return list(self._made_scatters())

    def _made_scatters(self) -> Iterator[Array]:
        width, d = len(self), self.n_features
        size = max(1, min(128, SCATTERS_AT_ONCE // (width * d)))
        for start in range(0, d, size):
            stop = min(start + size, d)
            rows = empty((width, stop - start, stop), self.means)
            for summary, own in zip(self.summaries, rows, strict=True):
                product_into(summary.factor[:, start:stop].T, summary.factor[:, :stop], own)
            yield rows

    @property
    def n_features(self) -> int:
        """Dimension of the feature vectors."""
        return int(self.like.shape[0])

    @property
    def nbytes(self) -> int:
        """Size of the summaries in bytes."""
        return sum(s.mean.nbytes + s.factor.nbytes for s in self.summaries)

    def merge(self, other: ClassStatistics) -> ClassStatistics:
        """Return the statistics of both sample sets joined; classes in both are merged exactly."""
        if not len(self) or not len(other):
            return self if len(self) else other
        refuse_other_kind(self.labels, other.labels)
        if self.n_features != other.n_features:
            raise InputError(
                f"cannot merge statistics of {self.n_features} and of {other.n_features} features; "
                "both must come from the same backbone"
            )
        places = np.searchsorted(self.labels, other.labels)
        known = self.labels[np.minimum(places, len(self) - 1)] == other.labels
        wide = self.labels.astype(np.promote_types(self.labels.dtype, other.labels.dtype), copy=False)
        labels = self.labels if known.all() else np.insert(wide, places[~known], other.labels[~known])
        # The classes between are taken in one slice each, so merging few classes with many is fast.
        joined, done = list[ClassSummary](), 0
        for place, is_known, summary in zip(places.tolist(), known.tolist(), other.summaries, strict=True):
            joined += self.summaries[done:place]
            joined.append(self.summaries[place].merge(summary) if is_known else summary)
            done = place + is_known
        return ClassStatistics(labels, (*joined, *self.summaries[done:]))

    def add(self, features: Array, labels: Any) -> ClassStatistics:
        """Return the statistics after more samples, of known or of new classes."""
        return self.merge(class_statistics(features, labels))

    def drop(self, labels: Iterable[Label]) -> ClassStatistics:
        """Return the statistics without these classes."""
        places = sorted({self._place(label) for label in labels})
        if len(places) == len(self):
            return NO_CLASSES
        kept, done = list[ClassSummary](), 0
        for place in places:
            kept += self.summaries[done:place]
            done = place + 1
        return ClassStatistics(np.delete(self.labels, places), (*kept, *self.summaries[done:]))

    def restrict(self, labels: Iterable[Label]) -> ClassStatistics:
        """Return the statistics of only these classes."""
        places, wanted = self._position, [python_label(label) for label in labels]
        for label in wanted:
            if label not in places:
                raise unknown_class(label, self.labels)
        return _ordered({label: self.summaries[places[label]] for label in wanted})


NO_CLASSES = ClassStatistics(np.empty(0, dtype=np.int64), ())
"""Statistics without classes, where learning begins; merging them with others gives the others."""


def class_statistics(features: Array, labels: Any) -> ClassStatistics:
    """Summarize each class of labeled feature vectors.

    Parameters
    ----------
    features : array of shape (n, d)
        A NumPy array or a torch tensor.
    labels : array of shape (n,)
        Strings or integers.

    Returns
    -------
    ClassStatistics
        In the library of the features.

    Examples
    --------
    >>> import numpy as np
    >>> from fiveshot.core import class_statistics
    >>> class_statistics(np.array([[1.0, 3.0], [3.0, 5.0]]), [7, 7]).means.tolist()
    [[2.0, 4.0]]
    """
    labels = as_labels(labels)
    if features.ndim != 2 or len(features) != len(labels):
        raise InputError(
            f"features of shape {tuple(features.shape)} do not fit {len(labels)} labels; "
            "give one row of features per label"
        )
    if not len(labels):
        return NO_CLASSES
    classes, codes = np.unique(labels, return_inverse=True)
    by_class = parts(np.argsort(codes, kind="stable"), np.bincount(codes).tolist())
    # One class at a time: a sorted copy of all features would take as much memory as the features.
    groups = (features[positions(rows, features)] for rows in by_class)
    return ClassStatistics(classes, tuple(summarize(group) for group in groups))


def statistics_of_batches(batches: Iterable[tuple[Array, Any]]) -> ClassStatistics:
    """Summarize batches of labeled features one by one; the memory does not grow with their number.

    Parameters
    ----------
    batches : iterable of (features, labels)
        As in :func:`class_statistics`.

    Returns
    -------
    ClassStatistics

    Examples
    --------
    >>> import numpy as np
    >>> from fiveshot.core import statistics_of_batches
    >>> batches = [(np.eye(2), ["owl", "wren"]), (np.eye(2), ["owl", "owl"])]
    >>> known = statistics_of_batches(batches)
    >>> known.labels.tolist(), known.counts.tolist()
    (['owl', 'wren'], [3, 1])
    """
    return reduce(lambda known, batch: known.add(*batch), batches, NO_CLASSES)


def summarize(samples: Array) -> ClassSummary:
    """Summarize the samples of one class.

    Parameters
    ----------
    samples : array of shape (n, d)
        The samples.

    Returns
    -------
    ClassSummary

    Examples
    --------
    >>> import numpy as np
    >>> from fiveshot.core import summarize
    >>> shots = summarize(np.array([[1.0, 0.0, 2.0], [3.0, 0.0, 2.0]]))
    >>> shots.count, shots.mean.tolist(), shots.factor.shape
    (2, [2.0, 0.0, 2.0], (1, 3))
    """
    mean = mean_row(samples)
    return ClassSummary(len(samples), mean, _contrasts(samples - mean))


def _contrasts(centered: Array) -> Array:
    """Return the factor of samples whose mean is zero, (n, d) → (min(n − 1, d), d)."""
    n, d = centered.shape
    if n > d:
        return compress(centered)
    # Helmert's contrasts, an orthonormal basis of the space orthogonal to the mean: row k compares sample k + 1
    # with the mean of the k samples before it, √(k / (k + 1)) · (x_{k+1} − x̄_k). No decomposition is needed.
    k = np.arange(1, n)[:, None]  # (n − 1, 1)
    earlier = namespace(centered).cumulative_sum(centered, axis=0)[:-1] / values_like(k, centered)
    return (centered[1:] - earlier) * values_like(np.sqrt(k / (k + 1)), centered)


def canonical(factor: Array) -> Array:
    """Return the factor of the same matrix that is triangular with a positive diagonal.

    A factor is unique up to a rotation, which depends on how the samples arrived (at once, in parts, in which
    order). Samples drawn with a factor must not depend on that.
    """
    found = triangle(factor)  # (min(r, d), d)
    xp = namespace(found)
    signs = xp.where(xp.linalg.diagonal(found) < 0, values_like(-1.0, found), values_like(1.0, found))
    return signs[:, None] * found


def stack(factors: Sequence[Array]) -> Array:
    """Return the factor of a sum of scatter matrices: their stacked factors."""
    return compress(namespace(factors[0]).concat(list(factors)))


def compress(factor: Array) -> Array:
    """Return a factor of the same matrix with at most as many rows as columns (QR keeps AᵀA = RᵀR)."""
    rows, columns = factor.shape
    return factor if rows <= columns else triangle(factor)


def statistics_arrays(statistics: ClassStatistics) -> dict[str, NDArray[Any]]:
    """Return statistics as four arrays for a file, without the labels, which may be strings.

    Parameters
    ----------
    statistics : ClassStatistics
        The statistics.

    Returns
    -------
    dict
        ``counts`` (n_classes,), ``means`` (n_classes, d), ``ranks`` (n_classes,) and ``factors`` (Σ ranks, d);
        empty without classes.

    Examples
    --------
    >>> import numpy as np
    >>> from fiveshot.core import class_statistics
    >>> known = class_statistics(np.eye(3), ["owl", "owl", "wren"])
    >>> {name: array.tolist() for name, array in statistics_arrays(known).items() if name != "factors"}["ranks"]
    [1, 0]
    """
    if not len(statistics):
        return {}
    factors = [as_numpy(summary.factor) for summary in statistics.summaries]
    return {
        "counts": as_numpy(statistics.counts),
        "means": as_numpy(statistics.means),
        "ranks": np.array([len(factor) for factor in factors]),
        "factors": np.concatenate(factors),
    }


def statistics_from_arrays(
    labels: Sequence[Label], arrays: Mapping[str, Array], prefix: str = ""
) -> ClassStatistics:
    """Return the statistics from the arrays of :func:`statistics_arrays`.

    Parameters
    ----------
    labels : sequence of str or of int
        The classes, sorted.
    arrays : mapping
        The arrays by name, of any library; the statistics are views of them.
    prefix : str
        The prefix of each name.

    Returns
    -------
    ClassStatistics

    Raises
    ------
    ValueError
        If the arrays do not fit the labels or each other.

    Examples
    --------
    >>> import numpy as np
    >>> from fiveshot.core import class_statistics
    >>> known = class_statistics(np.eye(3), ["owl", "owl", "wren"])
    >>> statistics_from_arrays(["owl", "wren"], statistics_arrays(known))["owl"].count
    2
    """
    if not len(labels):
        return NO_CLASSES
    counts, means, ranks, factors = (arrays[prefix + name] for name in ("counts", "means", "ranks", "factors"))
    own = parts(factors, ranks.tolist())
    if list(labels) != sorted(labels) or not len(labels) == len(counts) == len(means) == len(own):
        raise ValueError(f"{len(labels)} labels for {len(counts)} classes")
    if sum(map(len, own)) != len(factors):
        raise ValueError(f"{len(factors)} rows of factors for ranks of {ranks.tolist()}")
    summaries = (ClassSummary(*values) for values in zip(counts.tolist(), means, own, strict=True))
    return ClassStatistics(np.array(labels), tuple(summaries))


def unknown_class(label: Label, known: Labels) -> InputError:
    """Return the error for an unknown class."""
    if known.dtype.kind == "U" and isinstance(label, str):
        return unknown_name("class", label, known.tolist()) if len(known) <= 50 else _unlisted(label, known)
    return _unlisted(label, known)


def _unlisted(label: Label, known: Labels) -> InputError:
    if not len(known):
        return InputError(f"no class {label!r}; no class is known yet")
    shown = ", ".join(repr(value) for value in known[:10].tolist())
    more = f", ... ({len(known)} in all)" if len(known) > 10 else ""
    return InputError(f"no class {label!r}; known classes are {shown}{more}")


def _ordered(summaries: dict[Label, ClassSummary]) -> ClassStatistics:
    if not summaries:
        return NO_CLASSES
    labels = np.array(sorted(summaries))  # all strings or all integers
    return ClassStatistics(labels, tuple(summaries[label] for label in python_labels(labels)))
