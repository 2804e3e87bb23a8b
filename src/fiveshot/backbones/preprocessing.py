"""Turn a photo into the squares of pixels that a network takes; the settings are stored with the features.

It uses only Pillow and NumPy, so the pixels are identical for every runtime.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from fiveshot.data import ROUNDINGS, VIEWS, RandomSquare, Squares
from fiveshot.errors import InputError, unknown_name

if TYPE_CHECKING:
    from PIL.Image import Image

Pixels: TypeAlias = NDArray[np.uint8]
INTERPOLATIONS = ("bicubic", "bilinear", "lanczos")
Triple = tuple[float, float, float]


@dataclass(frozen=True)
class Preprocessing:
    """Resizing, cropping and normalization that fit the weights.

    Parameters
    ----------
    size : int
        Side of the square that the network takes, in pixels.
    resize : int
        Length of the short side before the center crop of ``size``.
    interpolation : {"bicubic", "bilinear", "lanczos"}
        How pixels are resampled.
    mean, std : tuple of three floats
        Mean to subtract from red, green and blue in 0..1, and standard deviation to divide by.
    squash : int, optional
        If given, both sides are first scaled to this length, which may change the proportions.
    views : {1, 2, 4}
        Number of squares made from a photo; their features are averaged. One: the center crop. Two: the whole
        photo squeezed to a square, and the inner three quarters of the center crop. Four: these two, the center
        crop and its mirror image.
    train_scale : tuple of two floats
        Share of the area that a random crop covers in training.
    train_interpolation : str, optional
        Interpolation in training, if it differs.
    name : str
        Name of these settings; it has no effect.
    rounding : {"even", "down"}
        Where the center square begins if its corner lies between two pixels: at the even one, as in torchvision,
        or at the first one, as in transformers.

    Examples
    --------
    >>> from fiveshot.backbones import Preprocessing
    >>> plain = Preprocessing(size=224, resize=256)
    >>> Preprocessing.from_json(plain.to_json()) == plain
    True
    """

    size: int
    resize: int
    interpolation: str = "bicubic"
    mean: Triple = (0.5, 0.5, 0.5)
    std: Triple = (0.5, 0.5, 0.5)
    squash: int | None = None
    views: int = 1
    train_scale: tuple[float, float] = (0.08, 1.0)
    train_interpolation: str | None = None
    name: str = "custom"
    rounding: str = "even"

    def __post_init__(self) -> None:
        if not 0 < self.size <= self.resize:
            raise InputError(f"a center crop of {self.size} px needs a short side of at least that: {self.resize}")
        for interpolation in (self.interpolation, self.train_interpolation or self.interpolation):
            if interpolation not in INTERPOLATIONS:
                raise unknown_name("interpolation", interpolation, INTERPOLATIONS)
        if type(self.views) is not int or self.views not in VIEWS:
            raise InputError(f"views={self.views!r} is not possible", hint="choose 1, 2 or 4")
        if self.rounding not in ROUNDINGS:
            raise unknown_name("rounding", self.rounding, ROUNDINGS)

    def pixels(self, image: Image | Pixels) -> Pixels:
        """Scale and crop a photo to the squares that the network takes.

        For the center crop, the short side becomes ``resize`` pixels long, the long one in proportion (rounded
        down), and the center is cut out. The memory is bounded for photos of every shape.

        Parameters
        ----------
        image : PIL.Image.Image or uint8 array (height, width, 3)
            The photo, in RGB.

        Returns
        -------
        uint8 array (views, 3, size, size)
            The pixels, channel by channel.

        Raises
        ------
        InputError
            When the long side is more than 100 times the short one (``code`` is ``too_long``).

        Examples
        --------
        >>> import PIL.Image
        >>> from fiveshot.backbones import Preprocessing
        >>> Preprocessing(size=224, resize=256, views=2).pixels(PIL.Image.new("RGB", (500, 375))).shape
        (2, 3, 224, 224)
        """
        return self.from_bytes(b"".join(view.tobytes() for view in self.squares(_picture(image))))

    @property
    def squares(self) -> Squares:
        """The reduction that scales and crops a photo in the decoder process."""
        return Squares(self.size, self.resize, self.interpolation, self.squash, self.views, self.rounding)

    @property
    def shape(self) -> tuple[int, int, int, int]:
        """The shape of a photo's pixels.

        >>> Preprocessing(size=224, resize=256).shape
        (1, 3, 224, 224)
        """
        return self.views, 3, self.size, self.size

    def from_bytes(self, data: bytes | None) -> Pixels:
        """Return the pixels (views, 3, size, size) from the bytes of squares, which are stored pixel by pixel.

        >>> Preprocessing(size=2, resize=2).from_bytes(bytes(12)).shape
        (1, 3, 2, 2)
        """
        squares = np.frombuffer(data or b"", np.uint8).reshape(self.views, self.size, self.size, 3)
        return np.ascontiguousarray(squares.transpose(0, 3, 1, 2))

    def normalize(self, pixels: Pixels) -> NDArray[np.float32]:
        """Return uint8 pixels (..., 3, height, width) as normalized float32 numbers.

        >>> Preprocessing(size=1, resize=1).normalize(np.array([[[0]], [[255]], [[0]]], np.uint8)).ravel()
        array([-1.,  1., -1.], dtype=float32)
        """
        if pixels.dtype != np.uint8:
            raise InputError(f"pixels of type {pixels.dtype} cannot be normalized", hint="give uint8, 0..255")
        mean, std = (np.array(values, np.float32).reshape(3, 1, 1) for values in (self.mean, self.std))
        normalized = pixels.astype(np.float32)
        normalized /= 255
        normalized -= mean
        normalized /= std
        return normalized

    def random_square(
        self,
        draw: tuple[int, ...],
        *,
        scale: tuple[float, float] | None = None,
        ratio: tuple[float, float] = (3 / 4, 4 / 3),
        flip: float = 0.5,
        whole: float = 0.0,
    ) -> RandomSquare:
        """Return the reduction that cuts a random view for training out of a photo.

        >>> Preprocessing(size=32, resize=36).random_square((1, 2)).scale
        (0.08, 1.0)
        """
        mode = self.train_interpolation or self.interpolation
        return RandomSquare(self.size, draw, mode, self.squash, scale or self.train_scale, ratio, flip, whole)

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON values."""
        return {key: list(value) if isinstance(value, tuple) else value for key, value in asdict(self).items()}

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Preprocessing:
        """Read what :meth:`to_json` wrote; unknown keys fail."""
        known = {field.name for field in fields(cls)}
        for key in values:
            if key not in known:
                raise unknown_name("preprocessing value", key, known)
        arguments: dict[str, Any] = {
            key: tuple(value) if isinstance(value, list) else value for key, value in values.items()
        }
        return cls(**arguments)

    def decisive(self) -> dict[str, Any]:
        """Return the values that affect the pixels of a feature: without the name and the training values."""
        without = {"name"} if self.rounding != "even" else {"name", "rounding"}  # feature files do not name "even"
        return {
            key: value
            for key, value in self.to_json().items()
            if key not in without and not key.startswith("train_")
        }


def _picture(image: Image | Pixels) -> Image:
    """Return an array as a picture, and a picture in RGB unchanged."""
    import PIL.Image

    if isinstance(image, PIL.Image.Image):
        return image if image.mode == "RGB" else image.convert("RGB")
    if not isinstance(image, np.ndarray) or image.dtype != np.uint8 or image.ndim != 3 or image.shape[2] != 3:
        found = f"{image.dtype} of shape {image.shape}" if isinstance(image, np.ndarray) else type(image).__name__
        raise InputError(f"a photo must be a PIL image or a uint8 array (height, width, 3), not {found}")
    return PIL.Image.fromarray(image)


_PHOTOGRAPHS = Preprocessing(
    size=224,
    resize=256,
    interpolation="bilinear",
    mean=(0.485, 0.456, 0.406),  # of ImageNet
    std=(0.229, 0.224, 0.225),
    name="paper:cub200",
)
_CIFAR100 = Preprocessing(
    size=224,
    resize=256,
    mean=(0.0, 0.0, 0.0),  # no normalization at all: pixels stay in 0..1
    std=(1.0, 1.0, 1.0),
    train_scale=(0.05, 1.0),
    train_interpolation="bilinear",
    name="paper:cifar100",
)
_SQUASHED = [replace(_PHOTOGRAPHS, squash=224, name=f"paper:{dataset}") for dataset in ("cars", "aircraft")]
PAPER_PREPROCESSING = {chosen.name: chosen for chosen in (_PHOTOGRAPHS, *_SQUASHED, _CIFAR100)}
"""The paper's preprocessing of each of its datasets, by the name that a ``BackboneSpec`` takes.

>>> from fiveshot.backbones import PAPER_PREPROCESSING
>>> PAPER_PREPROCESSING["paper:cub200"].resize
256
"""


def preprocessing_for(wanted: str | None, dataset: str | None) -> str | None:
    """Return the name of the preprocessing for a dataset; ``paper`` becomes the paper's for that dataset.

    >>> preprocessing_for("paper", "cars"), preprocessing_for("paper", None), preprocessing_for("weights", "cars")
    ('paper:cars', 'paper', 'weights')
    """
    own = f"paper:{dataset}"
    return own if wanted == "paper" and own in PAPER_PREPROCESSING else wanted


def paper_preprocessing(name: str) -> Preprocessing:
    """Return the paper's preprocessing of one of its datasets.

    Parameters
    ----------
    name : str
        ``paper:cub200`` and so on; ``paper`` means that of CUB-200.

    Returns
    -------
    Preprocessing
        The values of the paper's code.

    Raises
    ------
    InputError
        When the paper has no such dataset.

    Examples
    --------
    >>> from fiveshot.backbones import paper_preprocessing
    >>> paper_preprocessing("paper:cars").squash
    224
    """
    name = "paper:cub200" if name == "paper" else name
    if name not in PAPER_PREPROCESSING:
        raise unknown_name("preprocessing", name, [*PAPER_PREPROCESSING, "paper", "weights"])
    return PAPER_PREPROCESSING[name]
