"""What tuning is for, measured without new classes: some base classes are played as few-shot ones."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import normalize

from fiveshot.errors import InputError, unknown_name

Labels = NDArray[np.int64]


@dataclass(frozen=True)
class FewShotTest:
    """How classes are played as new ones, and which accuracy counts: ``new`` or ``harmonic``.

    >>> from fiveshot.tuning import FewShotTest, Selection
    >>> Selection("few-shot-classes", test=FewShotTest(shots=1, metric="new")).test
    FewShotTest(shots=1, draws=20, metric='new')
    """

    shots: int = 5
    draws: int = 20
    metric: Literal["new", "harmonic"] = "harmonic"

    def __post_init__(self) -> None:
        """Refuse tests of nothing."""
        if self.shots < 1 or self.draws < 1:
            raise InputError(f"a test needs shots ≥ 1 and draws ≥ 1, not {self.shots} and {self.draws}")
        if self.metric not in ("new", "harmonic"):
            raise unknown_name("metric", self.metric, ("new", "harmonic"))


@dataclass(frozen=True)
class FewShotScore:
    """Accuracies over all classes, 0 to 1: of the classes played as new, of the others, and their harmonic mean.

    ``old`` is None where no image of the others was held out; ``harmonic`` is then ``new``.

    >>> from fiveshot.tuning import FewShotScore
    >>> FewShotScore(new=0.5, old=1.0, harmonic=2 / 3).of("new")
    0.5
    """

    new: float
    old: float | None
    harmonic: float

    def of(self, metric: str) -> float:
        """Return the value that is selected by."""
        value: float = getattr(self, metric)
        return value


def draw_episodes(labels: Labels, *, shots: int, draws: int, rng: np.random.Generator) -> Labels:
    """Return the positions (draws, n_classes, shots) of the shots, classes in the order of their labels."""
    classes = np.unique(labels)
    members = [np.flatnonzero(labels == label) for label in classes]
    for label, own in zip(classes, members, strict=True):
        if len(own) <= shots:
            raise InputError(
                f"class {label} has {len(own)} images; playing it as a new one takes {shots} shots and at least "
                "one image to test on: use fewer shots or another selection"
            )
    return np.array([[rng.permutation(own)[:shots] for own in members] for _ in range(draws)], dtype=np.int64)


def few_shot_score(
    base: Tensor,
    base_labels: Labels,
    new: Tensor,
    new_labels: Labels,
    held_out: Tensor,
    held_out_labels: Labels,
    *,
    shots: int = 5,
    draws: int = 20,
    rivals: bool = True,
    rng: np.random.Generator,
) -> FewShotScore:
    """Score features by nearest mean over all classes, the new ones known from a few shots each.

    ``base`` (n, d) are the features that the base classes' means come from, ``held_out`` those they are tested
    on. Of the ``new`` features, each draw takes some as shots and tests on the rest. Features are centred by
    the base mean and brought to unit length; the score is the cosine, averaged over the draws. Without
    ``rivals`` a new image is told apart from other new classes only.

    >>> import numpy as np, torch
    >>> from fiveshot.tuning import few_shot_score
    >>> base, base_labels = torch.eye(3)[[0, 0, 1, 1]], np.array([0, 0, 1, 1])
    >>> new, new_labels = torch.eye(3)[[2, 2, 2]], np.array([2, 2, 2])
    >>> held_out, held_out_labels = torch.eye(3)[[0, 2]], np.array([0, 1])  # the second looks like class 2
    >>> rng = np.random.default_rng(0)
    >>> few_shot_score(base, base_labels, new, new_labels, held_out, held_out_labels, shots=1, rng=rng)
    FewShotScore(new=1.0, old=0.5, harmonic=0.66...)
    """
    episodes = torch.from_numpy(draw_episodes(new_labels, shots=shots, draws=draws, rng=rng)).to(new.device)
    origin = base.mean(dim=0)
    base, new, held_out = (normalize(x - origin) for x in (base, new, held_out))
    means = normalize(_class_means(base, base_labels))  # (n_base, d)
    prototypes = normalize(new[episodes].mean(dim=2), dim=2)  # (draws, n_new, d)

    own = torch.from_numpy(np.unique(new_labels, return_inverse=True)[1]).to(new.device)
    cosines = new @ prototypes.transpose(1, 2)  # (draws, n, n_new)
    best, predicted = cosines.max(dim=2)
    right = predicted == own
    if rivals:
        right &= best > (new @ means.T).max(dim=1).values
    tested = torch.ones_like(right).scatter_(1, episodes.flatten(1), False)
    accuracy_new = float((right & tested).sum() / tested.sum())
    if not len(held_out):
        return FewShotScore(accuracy_new, None, accuracy_new)

    truth = torch.from_numpy(np.searchsorted(np.unique(base_labels), held_out_labels)).to(new.device)
    best, predicted = (held_out @ means.T).max(dim=1)
    others = (held_out @ prototypes.transpose(1, 2)).max(dim=2).values  # (draws, n)
    accuracy_old = float(((predicted == truth) & (best >= others)).float().mean())
    total = accuracy_new + accuracy_old
    return FewShotScore(accuracy_new, accuracy_old, 2 * accuracy_new * accuracy_old / total if total else 0.0)


def _class_means(features: Tensor, labels: Labels) -> Tensor:
    index = torch.from_numpy(np.unique(labels, return_inverse=True)[1]).to(features.device)
    # A matrix product is deterministic on a GPU, unlike index_add_.
    members = torch.nn.functional.one_hot(index).to(features.dtype)  # (n, n_classes)
    return members.T @ features / members.sum(dim=0)[:, None]
