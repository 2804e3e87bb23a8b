"""A few vectors of each class, chosen by their names: the same few however the samples were dealt out.

Thresholds and other choices that need held-out vectors cannot be made from sums; this is what they are made on.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fiveshot.statistics import NO_CLASSES
from fiveshot.statistics.labels import Labels, refuse_other_kind

Floats = NDArray[np.floating[Any]]
Keys = NDArray[np.uint64]


@dataclass(frozen=True, eq=False)
class ClassSample:
    """Vectors with their labels and the keys they were chosen by, in the order of both."""

    labels: Labels  # (n,)
    keys: Keys  # (n,)
    vectors: Floats  # (n, d)

    def __len__(self) -> int:
        return len(self.labels)

    def select(self, chosen: NDArray[np.bool_] | NDArray[np.intp]) -> ClassSample:
        """Return the vectors marked in ``chosen`` (n,), or at these positions."""
        return ClassSample(self.labels[chosen], self.keys[chosen], self.vectors[chosen])


def class_sample(vectors: Floats, labels: Labels, names: Iterable[str], *, per_class: int) -> ClassSample:
    """Keep the vectors of the ``per_class`` smallest hashed names of each class.

    >>> labels = np.array(["owl", "owl", "wren"])
    >>> class_sample(np.eye(3), labels, ["1.jpg", "2.jpg", "3.jpg"], per_class=1).labels.tolist()
    ['owl', 'wren']
    """
    keys = np.array([_key(name) for name in names], dtype=np.uint64)
    return _first(ClassSample(labels, keys, vectors), per_class)


def merge_samples(parts: Sequence[ClassSample], *, per_class: int) -> ClassSample:
    """Return the sample of all parts' samples together."""
    filled = [part for part in parts if len(part)]
    if not filled:
        return parts[0] if parts else NO_SAMPLE
    for part in filled[1:]:
        refuse_other_kind(filled[0].labels, part.labels)
    return _first(
        ClassSample(
            np.concatenate([part.labels for part in filled]),
            np.concatenate([part.keys for part in filled]),
            np.concatenate([part.vectors for part in filled]),
        ),
        per_class,
    )


def _first(sample: ClassSample, per_class: int) -> ClassSample:
    order = np.lexsort((sample.keys, sample.labels))
    _, counts = np.unique(sample.labels, return_counts=True)
    starts = np.repeat(np.cumsum(counts) - counts, counts)
    return sample.select(order[np.arange(len(order)) - starts < per_class])


def _key(name: str) -> int:
    digest = hashlib.blake2b(name.encode("utf-8", "surrogateescape"), digest_size=8).digest()
    return int.from_bytes(digest, "big")


NO_SAMPLE = ClassSample(NO_CLASSES.labels, np.zeros(0, np.uint64), np.zeros((0, 0), np.float32))
