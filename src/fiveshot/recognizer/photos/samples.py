"""Drawn photos of a few things, so that a first try needs neither photos nor a download."""

from __future__ import annotations

import io
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fiveshot.errors import InputError, StorageError
from fiveshot.extras import import_extra
from fiveshot.storage import part_beside

if TYPE_CHECKING:
    from PIL.Image import Image


SIZE = 256
LEARN, TEST = 5, 3  # photos of each thing
Color = tuple[int, int, int]
Draw = Any  # PIL.ImageDraw.ImageDraw


def draw_samples(folder: str | os.PathLike[str], *, seed: int) -> dict[str, int]:
    """Draw ``learn/<thing>/``, ``test/<thing>/`` and ``strange/`` into a new folder; return how many of each part.

    The folder is there with all pictures, or not at all. One that holds these pictures already stays as it is.

    >>> import tempfile
    >>> draw_samples(Path(tempfile.mkdtemp()) / "samples", seed=0)
    {'learn': 25, 'test': 15, 'strange': 3}
    """
    import_extra("PIL")
    top = Path(folder)
    work = part_beside(top)
    try:
        _draw_parts(work, np.random.default_rng(seed))
        if not top.exists():
            work.rename(top)
        elif not all(_same(file, top / file.relative_to(work)) for file in work.rglob("*.jpg")):
            raise InputError(f"{top} exists already", hint="name a new folder", code="exists")
    except OSError as error:
        raise StorageError(f"cannot make {top}: {error.strerror or error}; nothing was left behind") from error
    finally:
        shutil.rmtree(work, ignore_errors=True)
    return {part: len(list((top / part).rglob("*.jpg"))) for part in ("learn", "test", "strange")}


def _same(file: Path, there: Path) -> bool:
    return there.is_file() and there.read_bytes() == file.read_bytes()


def _draw_parts(top: Path, rng: np.random.Generator) -> None:
    for part, count in (("learn", LEARN), ("test", TEST)):
        for name in THINGS:
            _draw_all(top / part / name, name, count, rng)
    _draw_all(top / "strange", "chessboard", TEST, rng)


def _draw_all(folder: Path, name: str, count: int, rng: np.random.Generator) -> None:
    folder.mkdir(parents=True)
    for number in range(1, count + 1):
        encoded = io.BytesIO()  # PIL overlooks that a disk took only a part of what it wrote
        _picture(name, rng).save(encoded, "JPEG", quality=90)
        (folder / f"{number}.jpg").write_bytes(encoded.getvalue())


def _picture(name: str, rng: np.random.Generator) -> Image:
    """Draw a thing at a random place, size and angle before a random background."""
    from PIL import Image, ImageDraw

    noise = rng.integers(110, 240, (4, 4, 3), dtype=np.uint8)
    scene = Image.fromarray(noise).resize((SIZE, SIZE), Image.Resampling.BICUBIC)
    layer = Image.new("RGBA", (SIZE, SIZE))
    (THINGS | STRANGE)[name](ImageDraw.Draw(layer), lambda *base: _near(base, rng))
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
STRANGE = {"chessboard": _chessboard}
