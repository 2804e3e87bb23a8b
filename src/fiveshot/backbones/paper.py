"""The paper's own transforms, data set by data set, whatever the weights were trained with."""

from __future__ import annotations

from fiveshot.backbones.preprocessing import Preprocessing
from fiveshot.errors import unknown_name

_IMAGENET_MEAN = (0.485, 0.456, 0.406)
_IMAGENET_STD = (0.229, 0.224, 0.225)


def _photographs(name: str, squash: int | None) -> Preprocessing:
    return Preprocessing(
        size=224,
        resize=256,
        interpolation="bilinear",
        mean=_IMAGENET_MEAN,
        std=_IMAGENET_STD,
        squash=squash,
        name=name,
    )


PAPER_PREPROCESSING = {
    "paper:cub200": _photographs("paper:cub200", squash=None),
    "paper:cars": _photographs("paper:cars", squash=224),
    "paper:aircraft": _photographs("paper:aircraft", squash=224),
    "paper:cifar100": Preprocessing(
        size=224,
        resize=256,
        interpolation="bicubic",
        mean=(0.0, 0.0, 0.0),  # no normalisation at all: pixels stay in 0..1
        std=(1.0, 1.0, 1.0),
        train_scale=(0.05, 1.0),
        train_interpolation="bilinear",
        name="paper:cifar100",
    ),
}
"""The paper's preprocessing of each of its data sets, by the name that ``load_backbone`` takes.

>>> from fiveshot.backbones import PAPER_PREPROCESSING
>>> PAPER_PREPROCESSING["paper:cub200"].resize
256
"""


def preprocessing_for(wanted: str | None, dataset: str | None) -> str | None:
    """Return the preprocessing to use for a dataset: a plain ``paper`` is the paper's for that dataset.

    >>> preprocessing_for("paper", "cars"), preprocessing_for("paper", None), preprocessing_for("weights", "cars")
    ('paper:cars', 'paper', 'weights')
    """
    own = f"paper:{dataset}"
    return own if wanted == "paper" and own in PAPER_PREPROCESSING else wanted


def paper_preprocessing(name: str) -> Preprocessing:
    """Return the paper's preprocessing: ``paper:cub200`` and so on; plain ``paper`` is that of CUB-200.

    >>> paper_preprocessing("paper:cars").squash
    224
    """
    name = "paper:cub200" if name == "paper" else name
    if name not in PAPER_PREPROCESSING:
        raise unknown_name("preprocessing", name, [*PAPER_PREPROCESSING, "paper", "weights"])
    return PAPER_PREPROCESSING[name]
