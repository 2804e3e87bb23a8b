"""Photos that look the same, and photos that look like none of the others."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import normalize

SAME = 0.999  # cosine of two features from which on two photos show the same
# How much less like the rest a photo may be than the others are, in cosines of centred features. Of five photos
# of one CUB-200 class, one set in 25 has such a photo; a stranger among four of a class is found half the time.
OUTLIER_GAP = 0.5
OUTLIERS_FROM = 4  # photos: three cannot tell which of them is the odd one out


@dataclass(frozen=True, eq=False)
class KnownPhotos:
    """The photos a model has learned so far, in any order."""

    labels: tuple[str, ...]  # (m,)
    sha256s: tuple[str, ...]  # (m,)
    features: Tensor  # (m, d)

    def of(self, name: str) -> Tensor:
        """Return the features of one class's photos, in order."""
        return self.features[[row for row, label in enumerate(self.labels) if label == name]]


@dataclass(frozen=True)
class Duplicate:
    """A photo that is there twice: ``label`` is the class of the other one, ``of`` its name where it is known."""

    photo: str
    label: str
    same_file: bool
    of: str | None = None


def find_duplicates(
    name: str,
    X: Tensor,
    *,
    photos: Sequence[str],
    sha256s: Sequence[str],
    earlier: KnownPhotos | None = None,
) -> tuple[Duplicate, ...]:
    """Return the photos of a class that repeat one before them, or one that was learned earlier.

    >>> X = torch.tensor([[1.0, 0.0], [0.0, 1.0], [2.0, 0.0]])
    >>> find_duplicates("owl", X, photos=["a", "b", "c"], sha256s=["1", "2", "3"])
    (Duplicate(photo='c', label='owl', same_file=False, of='a'),)
    """
    unit = normalize(X, dim=1)
    likeness = (unit @ unit.T).tril(-1)  # (n, n): with those before it
    found = []
    for i, photo in enumerate(photos):
        twin = _twin(sha256s[i], sha256s[:i], likeness[i, :i])
        if twin is not None:
            found.append(Duplicate(photo, name, sha256s[i] == sha256s[twin], photos[twin]))
    if earlier is not None and len(earlier.labels):
        repeated = {duplicate.photo for duplicate in found}
        products = unit @ normalize(earlier.features.to(X), dim=1).T  # (n, m)
        for i, photo in enumerate(photos):
            twin = _twin(sha256s[i], earlier.sha256s, products[i])
            # One in another class is told even so: it is not superfluous but misplaced.
            if twin is not None and (photo not in repeated or earlier.labels[twin] != name):
                found.append(Duplicate(photo, earlier.labels[twin], sha256s[i] == earlier.sha256s[twin]))
    return tuple(dict.fromkeys(found))


def find_outliers(X: Tensor, *, centre: Tensor | None = None) -> list[int]:
    """Return the rows far less like the rest than the other rows are; ``centre`` is common to all classes.

    >>> find_outliers(torch.tensor([[1.0, 0.1], [1.0, 0.2], [1.0, 0.0], [1.0, -0.1], [-0.2, 1.0]]))
    [4]
    """
    n = len(X)
    if n < OUTLIERS_FROM:
        return []
    unit = normalize(X if centre is None else X - centre, dim=1)
    total = unit.sum(dim=0)
    gram, to_total = unit @ unit.T, unit @ total  # (n, n), (n,)
    # The cosine of row j and the sum of all rows but i and j; on the diagonal but i alone, which is its own.
    apart = 1 - torch.eye(n).to(X)
    products = to_total[None] - 1 - gram * apart
    sums = total - unit  # (n, d)
    lengths = (
        (sums.square().sum(dim=1)[:, None] + apart * (1 - 2 * (to_total[None] - gram))).clamp_min(1e-12).sqrt()
    )
    likeness = products / lengths
    own = likeness.diagonal()
    others = (likeness.sum(dim=1) - own) / (n - 1)
    return [int(row) for row in torch.nonzero(others - own > OUTLIER_GAP).flatten()]


def _twin(sha256: str, known: Sequence[str], likeness: Tensor) -> int | None:
    """Return the first photo that is the same file, or else the most alike one, if it is alike enough."""
    if sha256 in known:
        return known.index(sha256)
    nearest = int(likeness.argmax()) if len(likeness) else None
    return nearest if nearest is not None and float(likeness[nearest]) > SAME else None
