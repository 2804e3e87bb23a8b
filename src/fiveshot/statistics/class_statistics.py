"""What a class leaves behind when its samples are gone: a count, a mean and a factored scatter."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property, reduce
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor
from torch.nn.functional import normalize

from fiveshot.errors import InputError, unknown_name
from fiveshot.statistics.factor import canonical, scatter_factor, stack
from fiveshot.statistics.labels import (
    Label,
    Labels,
    as_labels,
    python_label,
    python_labels,
    refuse_other_kind,
)


@dataclass(frozen=True, eq=False)
class ClassSummary:
    """One class: everything its samples say about mean and covariance.

    >>> import torch
    >>> from fiveshot.statistics import summarize
    >>> both = summarize(torch.tensor([[0.0, 0.0], [2.0, 0.0]])).merge(summarize(torch.tensor([[4.0, 3.0]])))
    >>> both.count, both.mean
    (3, tensor([2., 1.]))
    """

    count: int
    mean: Tensor  # (d,)
    factor: Tensor  # (r, d) with factorᵀ · factor = scatter, r ≤ min(count, d)

    @property
    def covariance_factor(self) -> Tensor:
        """Canonical factor of the covariance, scatter / (n − 1); a class seen once has none (zero rows)."""
        return canonical(self.factor) / math.sqrt(max(self.count - 1, 1))  # (r, d)

    def merge(self, other: ClassSummary) -> ClassSummary:
        """Return the summary of both sample sets joined, exactly (Chan, Golub and LeVeque, 1983)."""
        n = self.count + other.count
        mean = (self.count * self.mean + other.count * other.mean) / n
        # The scatter of the joined set has one term more: the two means' own scatter, of rank one.
        between = math.sqrt(self.count * other.count / n) * (self.mean - other.mean)
        return ClassSummary(n, mean, stack([self.factor, other.factor, between[None]]))


@dataclass(frozen=True, eq=False)
class ClassStatistics:
    """Summaries of any number of classes, kept in the order of their labels.

    A value, never changed: every operation returns another one that shares the summaries it did not touch.

    >>> import torch
    >>> from fiveshot.statistics import class_statistics
    >>> early = class_statistics(torch.eye(4)[:2], ["wren", "owl"])
    >>> late = class_statistics(torch.eye(4)[2:], ["owl", "owl"])
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
        if label not in self._position:
            raise unknown_class(label, self.labels)
        return self.summaries[self._position[label]]

    @classmethod
    def of(cls, summaries: Mapping[Any, ClassSummary]) -> ClassStatistics:
        """Return the summaries of classes, by label; no classes for an empty mapping."""
        if not summaries:
            return NO_CLASSES
        labels = sorted(summaries)
        return cls(np.array(labels), tuple(summaries[label] for label in labels))

    @cached_property
    def _position(self) -> dict[object, int]:
        return {label: index for index, label in enumerate(python_labels(self.labels))}

    @cached_property
    def counts(self) -> Tensor:
        """Number of samples per class, (n_classes,)."""
        return torch.tensor([summary.count for summary in self.summaries], dtype=torch.int64)

    @cached_property
    def means(self) -> Tensor:
        """Class means, (n_classes, d)."""
        if not self.summaries:
            raise InputError("no class is known, so there are no means; add samples first")
        return torch.stack([summary.mean for summary in self.summaries])

    @cached_property
    def unit_means(self) -> Tensor:
        """Class means scaled to length one, (n_classes, d)."""
        return normalize(self.means, dim=1)

    @cached_property
    def stacked_factors(self) -> tuple[Tensor, Tensor]:
        """All covariance factors, one below the other, (Σ r, d), and the class index of each row, (Σ r,)."""
        factors = [summary.covariance_factor for summary in self.summaries]
        ranks = torch.tensor([len(factor) for factor in factors])
        return torch.cat(factors), torch.repeat_interleave(ranks).to(factors[0].device)

    @property
    def n_features(self) -> int:
        """Dimension of the feature vectors."""
        return self.means.shape[1]

    @property
    def nbytes(self) -> int:
        """Memory the summaries take."""
        return sum(s.mean.nbytes + s.factor.nbytes for s in self.summaries)

    def merge(self, other: ClassStatistics) -> ClassStatistics:
        """Return the statistics of both sample sets joined; classes known to both are merged exactly."""
        if not len(self) or not len(other):
            return self if len(self) else other
        refuse_other_kind(self.labels, other.labels)
        if self.n_features != other.n_features:
            raise InputError(
                f"cannot merge statistics of {self.n_features} and of {other.n_features} features; "
                "both must come from the same backbone"
            )
        joined = dict(zip(python_labels(self.labels), self.summaries, strict=True))
        for label, summary in zip(python_labels(other.labels), other.summaries, strict=True):
            joined[label] = joined[label].merge(summary) if label in joined else summary
        return _ordered(joined)

    def add(self, features: Tensor, labels: ArrayLike | Tensor) -> ClassStatistics:
        """Return the statistics after more samples, of known or of new classes."""
        return self.merge(class_statistics(features, labels))

    def drop(self, labels: Iterable[Label]) -> ClassStatistics:
        """Return the statistics without these classes."""
        unwanted = set(labels)
        for label in unwanted:
            self[label]
        return self.restrict(label for label in python_labels(self.labels) if label not in unwanted)

    def restrict(self, labels: Iterable[Label]) -> ClassStatistics:
        """Return the statistics of these classes alone."""
        return _ordered({python_label(label): self[label] for label in labels})

    def to(self, device: torch.device | str) -> ClassStatistics:
        """Return the statistics on another device."""
        moved = tuple(ClassSummary(s.count, s.mean.to(device), s.factor.to(device)) for s in self.summaries)
        return ClassStatistics(self.labels, moved)


NO_CLASSES = ClassStatistics(np.empty(0, dtype=np.int64), ())
"""Statistics of no class at all, with which learning begins; merged with others, it gives those others."""


def class_statistics(features: Tensor, labels: ArrayLike | Tensor) -> ClassStatistics:
    """Summarise each class of labelled feature vectors.

    >>> import torch
    >>> from fiveshot.statistics import class_statistics
    >>> class_statistics(torch.tensor([[1.0, 3.0], [3.0, 5.0]]), [7, 7]).means
    tensor([[2., 4.]])
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
    by_class = np.argsort(codes, kind="stable")
    ordered = features[torch.as_tensor(by_class, device=features.device)]
    groups = torch.split(ordered, np.bincount(codes).tolist())
    return ClassStatistics(classes, tuple(summarize(group) for group in groups))


def statistics_of_batches(batches: Iterable[tuple[Tensor, ArrayLike | Tensor]]) -> ClassStatistics:
    """Summarise batches of labelled features one after the other, in memory independent of their number.

    >>> import torch
    >>> from fiveshot.statistics import statistics_of_batches
    >>> batches = [(torch.eye(2), ["owl", "wren"]), (torch.eye(2), ["owl", "owl"])]
    >>> known = statistics_of_batches(batches)
    >>> known.labels.tolist(), known.counts.tolist()
    (['owl', 'wren'], [3, 1])
    """
    return reduce(lambda known, batch: known.add(*batch), batches, NO_CLASSES)


def summarize(samples: Tensor) -> ClassSummary:
    """Summarise the samples of one class, (n, d).

    >>> import torch
    >>> from fiveshot.statistics import summarize
    >>> shots = summarize(torch.tensor([[1.0, 0.0, 2.0], [3.0, 0.0, 2.0]]))
    >>> shots.count, shots.mean, shots.factor.shape
    (2, tensor([2., 0., 2.]), torch.Size([1, 3]))
    """
    return ClassSummary(len(samples), samples.mean(dim=0), scatter_factor(samples))


def unknown_class(label: Label, known: Labels) -> InputError:
    """Return the error for a class that is not known."""
    if known.dtype.kind == "U" and isinstance(label, str):
        return unknown_name("class", label, known.tolist()) if len(known) <= 50 else _unlisted(label, known)
    return _unlisted(label, known)


def _unlisted(label: Label, known: Labels) -> InputError:
    shown = ", ".join(repr(value) for value in known[:10].tolist())
    more = f", ... ({len(known)} in all)" if len(known) > 10 else ""
    return InputError(f"no class {label!r}; known classes are {shown}{more}")


def _ordered(summaries: dict[Label, ClassSummary]) -> ClassStatistics:
    if not summaries:
        return NO_CLASSES
    labels = np.array(sorted(summaries))  # all strings or all integers
    return ClassStatistics(labels, tuple(summaries[label] for label in python_labels(labels)))
