"""Example data without a download: feature vectors of Gaussian classes, and drawn pictures of things.

Gaussian classes have the structure that calibration relies on. They come in families: within a family the means
are close *and* the covariances are similar. So a class with five shots can borrow the covariance of base classes
with similar means.
"""

from __future__ import annotations

import io
import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from fiveshot.errors import InputError
from fiveshot.extras import import_extra
from fiveshot.storage import attempting, part_beside

if TYPE_CHECKING:
    from PIL.Image import Image

Features = NDArray[np.float32]
Labels = NDArray[np.int64]
SIZE = 256
LEARNED_EACH, TESTED_EACH = 5, 3  # photos of each thing
Color = tuple[int, int, int]
Draw = Any  # PIL.ImageDraw.ImageDraw


@dataclass(frozen=True)
class GaussianParameters:
    """The true distribution of every class: N(mean, factor factorᵀ + noise² I)."""

    families: Labels  # (n_classes,)
    means: NDArray[np.float64]  # (n_classes, n_features)
    factors: NDArray[np.float64]  # (n_classes, n_features, rank)
    noise: float

    def covariance(self, label: int) -> NDArray[np.float64]:
        """Return the true covariance of one class, (n_features, n_features)."""
        factor = self.factors[label]
        covariance: NDArray[np.float64] = factor @ factor.T + self.noise**2 * np.eye(len(factor))
        return covariance


def gaussian_parameters(
    *,
    n_classes: int,
    n_features: int,
    seed: int,
    n_families: int | None = None,
    separation: float = 4.0,
    rank: int = 8,
    spread: float = 2.5,
    noise: float = 0.5,
    perturbation: float = 0.3,
) -> GaussianParameters:
    """Draw the class distributions.

    Parameters
    ----------
    n_classes, n_features : int
        How many classes, in how many dimensions.
    seed : int
        Decides the distributions.
    n_families : int, optional
        Number of families; by default one for every ten classes.
    separation : float
        Approximate distance between two means of one family; two families are about twice as far apart.
    rank : int
        Number of directions along which a family varies most.
    spread : float
        Standard deviation along each of these directions.
    noise : float
        Standard deviation along every axis.
    perturbation : float
        How much the directions of a class differ from its family's, from 0 (one shared covariance) to 1.

    Returns
    -------
    GaussianParameters
        The distribution of every class.

    Raises
    ------
    InputError
        When a number is out of range.

    Examples
    --------
    >>> parameters = gaussian_parameters(n_classes=20, n_features=16, seed=0)
    >>> parameters.means.shape, parameters.families.max() + 1
    ((20, 16), np.int64(2))
    """
    n_families = max(1, n_classes // 10) if n_families is None else n_families
    rank = min(rank, n_features)
    _check(n_classes, n_features, n_families, perturbation)
    rng = np.random.default_rng([seed, 0])
    # Families are assigned in turn, so that the first half of the classes already contains every family.
    families = np.arange(n_classes, dtype=np.int64) % n_families
    length = separation / np.sqrt(2 * n_features)
    centers = 2 * length * rng.standard_normal((n_families, n_features))
    means = centers[families] + length * rng.standard_normal((n_classes, n_features))
    shared = rng.standard_normal((n_families, n_features, rank))
    own = rng.standard_normal((n_classes, n_features, rank))
    mixed = np.sqrt(1 - perturbation**2) * shared[families] + perturbation * own
    return GaussianParameters(families, means, spread / np.sqrt(n_features) * mixed, noise)


def gaussian_classes(
    *,
    n_classes: int,
    n_features: int,
    train_per_class: int,
    test_per_class: int,
    seed: int,
    **distribution: Any,
) -> tuple[Features, Labels, Features, Labels]:
    """Draw training and test features with labels 0, 1, ..., class by class in label order.

    The distributions depend only on the seed and the shape, not on the number of images per class.

    Parameters
    ----------
    n_classes, n_features : int
        How many classes, in how many dimensions.
    train_per_class, test_per_class : int
        How many vectors of each class.
    seed : int
        Random seed.
    **distribution
        Further arguments of :func:`gaussian_parameters`.

    Returns
    -------
    train_x, train_y, test_x, test_y : ndarray
        Features in float32 and labels in int64.

    Raises
    ------
    InputError
        When a number is out of range.

    Examples
    --------
    >>> train_x, train_y, test_x, test_y = gaussian_classes(
    ...     n_classes=3, n_features=4, train_per_class=5, test_per_class=2, seed=0)
    >>> train_x.shape, train_x.dtype, test_y.tolist()
    ((15, 4), dtype('float32'), [0, 0, 1, 1, 2, 2])
    """
    if min(train_per_class, test_per_class) < 0:
        raise InputError("train_per_class and test_per_class cannot be negative")
    parameters = gaussian_parameters(n_classes=n_classes, n_features=n_features, seed=seed, **distribution)
    train = sample_classes(parameters, per_class=train_per_class, rng=np.random.default_rng([seed, 1]))
    test = sample_classes(parameters, per_class=test_per_class, rng=np.random.default_rng([seed, 2]))
    return *train, *test


def sample_classes(
    parameters: GaussianParameters, *, per_class: int, rng: np.random.Generator
) -> tuple[Features, Labels]:
    """Draw ``per_class`` features of every class, with their labels."""
    n_classes, n_features, rank = parameters.factors.shape
    features = np.empty((n_classes, per_class, n_features), dtype=np.float32)
    for label in range(n_classes):
        along = rng.standard_normal((per_class, rank)) @ parameters.factors[label].T
        around = parameters.noise * rng.standard_normal((per_class, n_features))
        features[label] = parameters.means[label] + along + around
    labels = np.repeat(np.arange(n_classes, dtype=np.int64), per_class)
    return features.reshape(-1, n_features), labels


def _check(n_classes: int, n_features: int, n_families: int, perturbation: float) -> None:
    if min(n_classes, n_features, n_families) < 1:
        raise InputError(
            f"n_classes={n_classes}, n_features={n_features} and n_families={n_families} must be at least 1"
        )
    if n_families > n_classes:
        raise InputError(f"n_families={n_families} exceeds n_classes={n_classes}", hint="ask for fewer families")
    if not 0 <= perturbation <= 1:
        raise InputError(f"perturbation={perturbation} must be between 0 and 1")


def draw_samples(folder: str | os.PathLike[str], *, seed: int) -> dict[str, int]:
    """Draw ``learn/<thing>/``, ``test/<thing>/`` and ``strange/`` into a new folder; return how many of each part.

    The folder appears with all pictures or not at all. A folder that already holds these pictures stays unchanged.

    >>> import tempfile
    >>> draw_samples(Path(tempfile.mkdtemp()) / "samples", seed=0)
    {'learn': 25, 'test': 15, 'strange': 3}
    """
    import_extra("PIL")
    top = Path(folder)
    work = part_beside(top)
    try:
        with attempting(f"make {top}", hint="nothing was left behind"):
            _draw_parts(work, np.random.default_rng(seed))
            if not top.exists():
                work.rename(top)
            elif not all(_same(file, top / file.relative_to(work)) for file in work.rglob("*.jpg")):
                raise InputError(f"{top} exists already", hint="name a new folder", code="exists")
    finally:
        shutil.rmtree(work, ignore_errors=True)
    return {part: len(list((top / part).rglob("*.jpg"))) for part in ("learn", "test", "strange")}


def drawn_pictures(*, seed: int) -> list[Image]:
    """Return one picture of each of the five things.

    >>> [picture.size for picture in drawn_pictures(seed=0)]
    [(256, 256), (256, 256), (256, 256), (256, 256), (256, 256)]
    """
    rng = np.random.default_rng(seed)
    return [_picture(name, rng) for name in THINGS]


def _same(file: Path, there: Path) -> bool:
    return there.is_file() and there.read_bytes() == file.read_bytes()


def _draw_parts(top: Path, rng: np.random.Generator) -> None:
    for part, count in (("learn", LEARNED_EACH), ("test", TESTED_EACH)):
        for name in THINGS:
            _draw_all(top / part / name, name, count, rng)
    _draw_all(top / "strange", "chessboard", TESTED_EACH, rng)


def _draw_all(folder: Path, name: str, count: int, rng: np.random.Generator) -> None:
    folder.mkdir(parents=True)
    for number in range(1, count + 1):
        encoded = io.BytesIO()  # PIL does not notice when a disk accepts only a part of what it writes
        _picture(name, rng).save(encoded, "JPEG", quality=90)
        (folder / f"{number}.jpg").write_bytes(encoded.getvalue())


def _picture(name: str, rng: np.random.Generator) -> Image:
    """Draw a thing with a random position, size and angle on a random background."""
    from PIL import Image, ImageDraw

    noise = rng.integers(110, 240, (4, 4, 3), dtype=np.uint8)
    scene = Image.fromarray(noise).resize((SIZE, SIZE), Image.Resampling.BICUBIC)
    layer = Image.new("RGBA", (SIZE, SIZE))
    (THINGS | UNKNOWN_THINGS)[name](ImageDraw.Draw(layer), lambda *base: _near(base, rng))
    side = int(rng.integers(170, 240))
    layer = layer.rotate(float(rng.uniform(-15, 15)), Image.Resampling.BICUBIC).resize((side, side))
    left, top = (int(value) for value in rng.integers(0, SIZE - side, 2))
    scene.paste(layer, (left, top), layer)
    return scene


def _near(base: tuple[int, ...], rng: np.random.Generator) -> Color:
    red, green, blue = (int(np.clip(value + rng.integers(-30, 31), 0, 255)) for value in base)
    return red, green, blue


def _apple(draw: Draw, near: Callable[..., Color]) -> None:
    draw.ellipse((48, 72, 208, 232), near(200, 35, 40))
    draw.line((128, 84, 140, 36), near(90, 60, 30), 9)
    draw.ellipse((140, 40, 190, 66), near(60, 150, 60))


def _fish(draw: Draw, near: Callable[..., Color]) -> None:
    skin = near(60, 110, 190)
    draw.ellipse((30, 78, 186, 178), skin)
    draw.polygon([(170, 128), (236, 76), (236, 180)], skin)
    draw.ellipse((58, 108, 76, 126), (255, 255, 255))
    draw.ellipse((63, 113, 71, 121), (0, 0, 0))


def _house(draw: Draw, near: Callable[..., Color]) -> None:
    draw.rectangle((56, 116, 200, 228), near(225, 205, 165))
    draw.polygon([(40, 120), (128, 36), (216, 120)], near(150, 60, 45))
    draw.rectangle((112, 166, 146, 228), near(95, 60, 40))
    for left in (70, 158):
        draw.rectangle((left, 138, left + 28, 166), near(150, 200, 230))


def _tree(draw: Draw, near: Callable[..., Color]) -> None:
    draw.rectangle((114, 150, 142, 236), near(110, 75, 45))
    leaves = near(45, 130, 60)
    for box in ((56, 76, 140, 166), (116, 76, 200, 166), (82, 28, 174, 120)):
        draw.ellipse(box, leaves)


def _sunflower(draw: Draw, near: Callable[..., Color]) -> None:
    draw.line((128, 120, 128, 244), near(60, 130, 50), 10)
    petals = near(240, 190, 40)
    for turn in np.linspace(0, 2 * np.pi, 12, endpoint=False):
        x, y = 128 + 58 * np.cos(turn), 100 + 58 * np.sin(turn)
        draw.ellipse((x - 22, y - 22, x + 22, y + 22), petals)
    draw.ellipse((88, 60, 168, 140), near(100, 65, 35))


def _chessboard(draw: Draw, near: Callable[..., Color]) -> None:
    dark, light = near(45, 45, 45), near(225, 225, 215)
    for row in range(8):
        for column in range(8):
            x, y = 24 + 26 * column, 24 + 26 * row
            draw.rectangle((x, y, x + 25, y + 25), dark if (row + column) % 2 else light)


THINGS: dict[str, Callable[[Draw, Callable[..., Color]], None]] = {
    "apple": _apple,
    "fish": _fish,
    "house": _house,
    "sunflower": _sunflower,
    "tree": _tree,
}
UNKNOWN_THINGS = {"chessboard": _chessboard}
