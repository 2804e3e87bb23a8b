"""Open the base images for a tuning: decode them once, refuse or leave out bad ones, choose where they lie."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from fiveshot.backbones import Backbone
from fiveshot.data import ImageSplit, bad_images_error
from fiveshot.errors import InputError
from fiveshot.tuning.few_shot import FewShotTest
from fiveshot.tuning.images.pixels import decode_all, whole_images
from fiveshot.tuning.images.views import LoadedViews, PooledViews, Views
from fiveshot.tuning.results import OnProgress, TuneProgress
from fiveshot.tuning.training.execution import Execution

Integers = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Material:
    """What all runs of a tuning share.

    Parameters
    ----------
    backbone : Backbone
        The network to adapt.
    views : Views
        Where the images come from.
    names : tuple of str
        Names of the images.
    labels : ndarray of shape (n_images,)
        Classes of the images.
    execution : Execution
        How to compute, with every automatic choice made.
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
    names: tuple[str, ...]
    labels: Integers  # (n_images,)
    execution: Execution
    few_shot: FewShotTest = field(default_factory=FewShotTest)
    accelerator: Any = None

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
    """Decode every image once, and keep all of them on the device where that is asked for and they fit.

    Parameters
    ----------
    backbone : Backbone
        The network to adapt.
    split : ImageSplit
        The base images.
    execution : Execution
        How to compute, with its automatic choices made (``Execution.resolved``).
    few_shot : FewShotTest, optional
        How classes are played as new ones.
    skip_bad : bool
        Whether to leave unreadable images out.
    accelerator : accelerate.Accelerator, optional
        Shares the work among several processes.
    progress : callable, optional
        Told how far the decoding is.

    Returns
    -------
    Material
        What runs are made from.

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
        views = PooledViews(decoded.pool, wanted, device)
    else:
        views = LoadedViews(split.images, wanted, device, workers=execution.workers)
    return Material(backbone, views, split.names, split.labels, execution, few_shot or FewShotTest(), accelerator)


def device_budget(execution: Execution, device: torch.device) -> float:
    """Return how many bytes of images may lie on the device."""
    if execution.device_budget is not None:
        return execution.device_budget
    return torch.cuda.mem_get_info(device)[0] / 2 if device.type == "cuda" else float("inf")


def check_classes(split: ImageSplit) -> None:
    """Refuse fewer than two classes, and classes of a single image."""
    classes, counts = np.unique(split.labels, return_counts=True)
    if len(classes) < 2:
        raise InputError(f"tuning needs images of at least 2 classes; there are {len(classes)}")
    if counts.min() < 2:
        lonely = split.images[int(np.flatnonzero(split.labels == classes[counts.argmin()])[0])]
        raise InputError(
            f"{(counts < 2).sum()} of {len(classes)} classes have a single image, such as {lonely.name}",
            hint="every class needs at least 2: one to train on and one to hold out",
        )
