"""Annotated pictures: a copy of a photo, with the answer written on it and a frame around each part."""

from __future__ import annotations

import io
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from fiveshot.data import Box, decoders
from fiveshot.errors import StorageError
from fiveshot.recognizer.photos.photo import Photo
from fiveshot.recognizer.recognition.snapshot import Prediction

if TYPE_CHECKING:
    from PIL.Image import Image

LONGEST_SIDE = 1600  # pixels of an annotated picture
COLORS = ("#e6194b", "#3cb44b", "#4363d8", "#f58231", "#911eb4", "#008080", "#9a6324", "#800000")
_TEXT = 60  # characters of a caption


@dataclass(frozen=True)
class Annotated:
    """Draws frames and captions on a picture, and returns it as JPEG."""

    notes: tuple[tuple[Box | None, str, str], ...]  # the part, what is said of it, a color

    def __call__(self, image: Image) -> tuple[bytes]:
        """Return the annotated picture."""
        from PIL import ImageDraw, ImageFont

        scale = min(1.0, LONGEST_SIDE / max(image.size))
        size = tuple(max(1, round(side * scale)) for side in image.size)
        drawn = image.resize((size[0], size[1])) if scale < 1 else image.copy()
        draw = ImageDraw.Draw(drawn)
        height = max(11, min(size) // 25)
        font = ImageFont.load_default(height)
        for box, text, color in self.notes:
            left, top, right, bottom = (0, 0, *image.size) if box is None else box.pixels(image.size)
            corner = (left * scale, top * scale)
            if box is not None:
                edge = (*corner, max(corner[0], right * scale - 1), max(corner[1], bottom * scale - 1))
                draw.rectangle(edge, outline=color, width=max(2, height // 8))
            around = draw.textbbox(corner, text, font=font)
            # Above the frame where there is room, else in it.
            up = min(around[3] - corner[1] + 4, corner[1])
            draw.rectangle((corner[0], corner[1] - up, around[2] + 4, around[3] - up + 4), fill=color)
            draw.text((corner[0] + 2, corner[1] - up + 2), text, fill="white", font=font)
        buffer = io.BytesIO()
        drawn.save(buffer, "JPEG", quality=90)
        return (buffer.getvalue(),)


def annotate(photo: Photo, predictions: Sequence[Prediction], folder: Path) -> Path:
    """Write a copy of a photo with its answers to a folder, under a name that nothing has there; return it."""
    notes = tuple(
        (None if one.box is None else Box(*one.box), _caption(one), COLORS[number % len(COLORS)])
        for number, one in enumerate(predictions)
    )
    (data,) = decoders().reduce(photo.source, Annotated(notes)).parts
    stem, number = Path(photo.name).name, 1
    target = folder / f"{stem}.jpg"
    while True:
        try:
            folder.mkdir(parents=True, exist_ok=True)
            with target.open("xb") as file:
                file.write(data or b"")
            return target
        except FileExistsError:
            number += 1
            target = folder / f"{stem} ({number}).jpg"
        except OSError as error:
            if os.path.lexists(target):
                target.unlink(missing_ok=True)
            raise StorageError(f"cannot write {target}: {error.strerror or error}", code="not_written") from error


def _caption(one: Prediction) -> str:
    """Return what is said of a photo in a few words."""
    if one.label is None:
        return f"{one.answer}?"[:_TEXT]
    return f"{one.label[:_TEXT]} {100 * one.probability:.0f} %"
