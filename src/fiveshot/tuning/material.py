"""The base images of a tuning: splits that treat some base classes as new, few-shot tests of these, and loading.

So tuning is measured without images of real new classes.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import normalize

from fiveshot.backbones import Backbone
from fiveshot.core.draws import LEAST_TO_HOLD_BACK, hold_back
from fiveshot.core.ranges import OneOf
from fiveshot.data import ImageSource, ImageSplit, bad_images_error
from fiveshot.errors import InputError, is_number
from fiveshot.metrics import harmonic_mean
from fiveshot.tuning._views import LoadedViews, PooledViews, Views, decode_all, whole_images
from fiveshot.tuning.execution import Execution
from fiveshot.tuning.results import FewShotScore, OnProgress, TuneProgress

Integers = NDArray[np.int64]
HeldOut = float | Literal["auto"]


@dataclass(frozen=True, eq=False)
class Fold:
    """Rows of one run.

    Parameters
    ----------
    train : ndarray of int64
        Rows to train on.
    held_out : ndarray of int64
        Rows of the same classes that are not trained on.
    new : ndarray of int64
        Rows of the classes that are treated as new.

    Examples
    --------
    >>> import numpy as np
    >>> from fiveshot.tuning import Fold
    >>> fold = Fold.of(train=np.array([0, 1, 3]), held_out=np.array([2]))
    >>> len(fold.train), len(fold.held_out), len(fold.new)
    (3, 1, 0)
    """

    train: Integers
    held_out: Integers
    new: Integers

    @classmethod
    def of(cls, train: Integers, held_out: Integers) -> Fold:
        """Return a fold that leaves no class out."""
        return cls(train, held_out, np.empty(0, dtype=np.int64))


def hold_out_rows(labels: Integers, *, share: HeldOut, seed: int) -> tuple[Integers, Integers]:
    """Split the rows of every class into training rows and a held-out share, at least one of each.

    ``"auto"`` holds out the rows for rejection thresholds, and none of classes with fewer than four rows.

    >>> train, held = hold_out_rows(np.array([0, 0, 0, 0, 1, 1]), share=0.25, seed=0)
    >>> len(train), len(held)
    (4, 2)
    """
    if share == "auto":
        back = hold_back(labels, seed=seed, least=LEAST_TO_HOLD_BACK)
        return np.flatnonzero(~back), np.flatnonzero(back)
    if not (is_number(share) and 0 <= share < 1):
        raise InputError(f"held_out={share} must be 0 (nothing), a share below 1, such as 0.1, or 'auto'")
    if share == 0:
        return np.arange(len(labels)), np.empty(0, dtype=np.int64)
    held = []
    for label in np.unique(labels):
        own = np.flatnonzero(labels == label)
        count = min(max(1, round(share * len(own))), len(own) - 1)
        held.append(np.random.default_rng([seed, int(label)]).permutation(own)[:count])
    held_out = np.sort(np.concatenate(held))
    return np.setdiff1d(np.arange(len(labels)), held_out), held_out


def class_folds(
    labels: Integers, *, share: float, folds: int, least_images: int, seed: int
) -> list[Integers]:  # of labels
    """Return the classes that each fold leaves out of training: different classes as long as possible.

    Only classes with at least ``least_images`` images are left out, and at least two others remain.

    >>> labels = np.arange(8).repeat(6)
    >>> [fold.tolist() for fold in class_folds(labels, share=0.25, folds=2, least_images=6, seed=0)]
    [[1, 3], [6, 7]]
    """
    classes, counts = np.unique(labels, return_counts=True)
    able = classes[counts >= least_images]
    count = min(max(1, round(share * len(classes))), len(classes) - 2)
    if count < 1 or len(able) < count:
        raise InputError(
            f"{len(classes)} base classes, {len(able)} of them with {least_images} images or more, are too few to "
            "treat some as new ones",
            hint="use selection='held-out-images' or 'none', or fewer shots",
        )
    order = np.random.default_rng([seed, 1]).permutation(able)
    return [np.sort(np.take(order, range(i * count, (i + 1) * count), mode="wrap")) for i in range(folds)]


def fold_without(labels: Integers, fold: Fold, new_classes: Integers) -> Fold:
    """Return the rows of a run whose training leaves ``new_classes`` out."""
    is_new = np.isin(labels, new_classes)
    return Fold(fold.train[~is_new[fold.train]], fold.held_out[~is_new[fold.held_out]], np.flatnonzero(is_new))


@dataclass(frozen=True)
class FewShotTest:
    """How classes are tested as new ones, and which accuracy counts.

    Parameters
    ----------
    shots : int
        Training images of a new class.
    draws : int
        How often the shots are drawn; the score is the mean over the draws.
    metric : {"harmonic", "new"}
        What counts: the accuracy on new classes, or its harmonic mean with that on the others.

    Examples
    --------
    >>> from fiveshot.tuning import FewShotTest, Selection
    >>> Selection("few-shot-classes", test=FewShotTest(shots=1, metric="new")).test
    FewShotTest(shots=1, draws=20, metric='new')
    """

    shots: int = 5
    draws: int = 20
    metric: Literal["new", "harmonic"] = "harmonic"

    def __post_init__(self) -> None:
        """Refuse empty tests."""
        if self.shots < 1 or self.draws < 1:
            raise InputError(f"a test needs shots ≥ 1 and draws ≥ 1, not {self.shots} and {self.draws}")
        OneOf(("new", "harmonic")).check("metric", self.metric)


def draw_episodes(labels: Integers, *, shots: int, draws: int, rng: np.random.Generator) -> Integers:
    """Return the positions (draws, n_classes, shots) of the shots, classes in the order of their labels."""
    classes = np.unique(labels)
    members = [np.flatnonzero(labels == label) for label in classes]
    for label, own in zip(classes, members, strict=True):
        if len(own) <= shots:
            raise InputError(
                f"class {label} has {len(own)} images, but a test as a new class needs {shots} shots and at "
                "least one test image",
                hint="use fewer shots or another selection",
            )
    return np.array([[rng.permutation(own)[:shots] for own in members] for _ in range(draws)], dtype=np.int64)


def few_shot_score(
    base: Tensor,
    base_labels: Integers,
    new: Tensor,
    new_labels: Integers,
    held_out: Tensor,
    held_out_labels: Integers,
    *,
    shots: int = 5,
    draws: int = 20,
    rivals: bool = True,
    rng: np.random.Generator,
) -> FewShotScore:
    """Score features by nearest mean over all classes; the new classes have a few shots each.

    Features are centered by the base mean and brought to unit length; the score is the cosine.

    Parameters
    ----------
    base, base_labels : Tensor of shape (n, d), ndarray of shape (n,)
        Features for the means of the base classes.
    new, new_labels : Tensor, ndarray
        Features of the new classes. Each draw takes some as shots and tests on the rest.
    held_out, held_out_labels : Tensor, ndarray
        Test features of the base classes.
    shots, draws : int
        As in :class:`FewShotTest`.
    rivals : bool
        Whether base classes compete for an image of a new class.
    rng : numpy.random.Generator
        Draws the shots.

    Returns
    -------
    FewShotScore
        Accuracies, averaged over the draws.

    Raises
    ------
    InputError
        When a new class has no image left to test on.

    Examples
    --------
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
    return FewShotScore(accuracy_new, accuracy_old, harmonic_mean(accuracy_old, accuracy_new))


def _class_means(features: Tensor, labels: Integers) -> Tensor:
    index = torch.from_numpy(np.unique(labels, return_inverse=True)[1]).to(features.device)
    # A matrix product is deterministic on a GPU, unlike index_add_.
    members = torch.nn.functional.one_hot(index).to(features.dtype)  # (n, n_classes)
    return members.T @ features / members.sum(dim=0)[:, None]


@dataclass(frozen=True, eq=False)
class Material:
    """The backbone, images and settings that all runs of a tuning share.

    Parameters
    ----------
    backbone : Backbone
        The network to adapt.
    views : Views
        The source of the images.
    images : tuple of ImageSource
        The images themselves.
    labels : ndarray of shape (n_images,)
        Classes of the images.
    execution : Execution
        How to run the computation, with all automatic choices made.
    few_shot : FewShotTest
        How classes are played as new ones.
    accelerator : accelerate.Accelerator, optional
        Shares the work among several processes.

    Examples
    --------
    >>> import numpy as np, timm
    >>> from fiveshot.backbones import Backbone, Preprocessing
    >>> from fiveshot.data import ArraySource, ImageSplit
    >>> from fiveshot.tuning import Execution, FewShotTest, open_material
    >>> vit = timm.create_model("test_vit", img_size=32, num_classes=0)
    >>> backbone = Backbone(vit, "test_vit", Preprocessing(size=32, resize=36))
    >>> black, white = (ArraySource(np.full((40, 40, 3), gray, np.uint8), str(gray)) for gray in (0, 255))
    >>> split = ImageSplit((black, white) * 4, np.array([0, 1] * 4))
    >>> execution = Execution().resolved(backbone.device, images=len(split))
    >>> material = open_material(backbone, split, execution, few_shot=FewShotTest(shots=1))
    >>> material.labels.tolist(), material.few_shot.shots, material.is_main
    ([0, 1, 0, 1, 0, 1, 0, 1], 1, True)
    """

    backbone: Backbone
    views: Views
    images: tuple[ImageSource, ...]
    labels: Integers  # (n_images,)
    execution: Execution
    few_shot: FewShotTest = field(default_factory=FewShotTest)
    accelerator: Any = None

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the images."""
        return tuple(image.name for image in self.images)

    @property
    def is_main(self) -> bool:
        """Whether this process writes files."""
        return self.accelerator is None or bool(self.accelerator.is_main_process)


def open_material(
    backbone: Backbone,
    split: ImageSplit,
    execution: Execution,
    *,
    few_shot: FewShotTest | None = None,
    skip_bad: bool = False,
    accelerator: Any = None,
    progress: OnProgress | None = None,
) -> Material:
    """Decode every image once, and keep all of them on the device if that is requested and they fit.

    Parameters
    ----------
    backbone : Backbone
        The network to adapt.
    split : ImageSplit
        The base images.
    execution : Execution
        How to run the computation, with all automatic choices made (``Execution.resolved``).
    few_shot : FewShotTest, optional
        How classes are played as new ones.
    skip_bad : bool
        Whether to leave unreadable images out.
    accelerator : accelerate.Accelerator, optional
        Shares the work among several processes.
    progress : callable, optional
        Called with the progress of the decoding.

    Returns
    -------
    Material
        The material for the runs.

    Raises
    ------
    InputError
        When an image cannot be read, or when there are too few classes, or classes with a single image.

    Examples
    --------
    >>> import numpy as np, timm
    >>> from fiveshot.backbones import Backbone, Preprocessing
    >>> from fiveshot.data import ArraySource, ImageSplit
    >>> from fiveshot.tuning import Execution, open_material
    >>> vit = timm.create_model("test_vit", img_size=32, num_classes=0)
    >>> backbone = Backbone(vit, "test_vit", Preprocessing(size=32, resize=36))
    >>> black, white = (ArraySource(np.full((40, 40, 3), gray, np.uint8), str(gray)) for gray in (0, 255))
    >>> split = ImageSplit((black, white) * 4, np.array([0, 1] * 4))
    >>> material = open_material(backbone, split, Execution().resolved(backbone.device, images=len(split)))
    >>> material.names
    ('0', '255', '0', '255', '0', '255', '0', '255')
    """
    check_classes(split)
    wanted, device = backbone.preprocessing, backbone.device

    def report(done: int, total: int) -> None:
        if progress is not None:
            progress(TuneProgress("decode", 0, 0, done, total))

    decoded = decode_all(
        split.images,
        whole_images(wanted, margin=execution.short_side),
        budget=device_budget(execution, device) if execution.data == "device" else 0,
        workers=execution.workers,
        on_progress=report,
    )
    if decoded.bad and not skip_bad:
        raise bad_images_error(decoded.bad, len(split))
    split = split.select(decoded.good)
    check_classes(split)
    views: Views
    if decoded.pool is not None:
        views = PooledViews(decoded.pool, wanted, device, compiled=bool(execution.compile))
    else:
        views = LoadedViews(split.images, wanted, device, workers=execution.workers)
    return Material(backbone, views, split.images, split.labels, execution, few_shot or FewShotTest(), accelerator)


def device_budget(execution: Execution, device: torch.device) -> float:
    """Return how many bytes of images may be kept on the device."""
    if execution.device_budget is not None:
        return execution.device_budget
    return torch.cuda.mem_get_info(device)[0] / 2 if device.type == "cuda" else float("inf")


def check_classes(split: ImageSplit) -> None:
    """Refuse fewer than two classes, and classes with a single image."""
    classes, counts = np.unique(split.labels, return_counts=True)
    if len(classes) < 2:
        raise InputError(f"tuning needs images of at least 2 classes; there are {len(classes)}")
    if counts.min() < 2:
        lonely = split.images[int(np.flatnonzero(split.labels == classes[counts.argmin()])[0])]
        raise InputError(
            f"{(counts < 2).sum()} of {len(classes)} classes have a single image, such as {lonely.name}",
            hint="every class needs at least 2: one to train on and one to hold out",
        )
