from __future__ import annotations

import io
from typing import Any

import numpy as np
import pytest
from PIL import Image, ImageOps

from fiveshot.data.decoding import JpegFacts, plain_jpeg

PICTURE = Image.fromarray(np.random.default_rng(0).integers(0, 256, (30, 50, 3), np.uint8))


def file(picture: Image.Image = PICTURE, kind: str = "JPEG", **options: Any) -> bytes:
    buffer = io.BytesIO()
    picture.save(buffer, kind, **options)
    return buffer.getvalue()


@pytest.mark.parametrize("options", [{}, {"progressive": True}, {"subsampling": 0}, {"icc_profile": b"x" * 100}])
def test_a_usual_photo_says_its_size(options: dict[str, Any]) -> None:
    facts = JpegFacts(width=50, height=30, baseline="progressive" not in options)
    assert plain_jpeg(file(**options)) == facts
    assert plain_jpeg(file(**options) + bytes(3)) == facts, "padding at the end"


@pytest.mark.parametrize("orientation", range(1, 9))
def test_a_photo_says_how_it_is_turned(orientation: int) -> None:
    exif = Image.Exif()
    exif[274] = orientation
    found = plain_jpeg(file(exif=exif))
    assert found is not None
    turned = ImageOps.exif_transpose(Image.open(io.BytesIO(file(exif=exif)))).size
    assert found.orientation == orientation
    assert turned == ((50, 30) if orientation < 5 else (30, 50))


def test_anything_unusual_is_left_to_the_decoders_with_limits() -> None:
    usual = file()
    frame = usual.index(b"\xff\xc0")
    length = 2 + int.from_bytes(usual[frame + 2 : frame + 4], "big")
    others = {
        "no JPEG": file(kind="PNG"),
        "empty": b"",
        "gray": file(PICTURE.convert("L")),
        "four colors": file(PICTURE.convert("CMYK")),
        "red, green and blue": file(keep_rgb=True),
        "a strip": file(Image.new("RGB", (1010, 10))),
        "truncated": usual[:-20],
        "no scan": usual[:frame] + usual[-2:],
        "two frames": usual[:frame] + 2 * usual[frame : frame + length] + usual[frame + length :],
        "no height": usual[: frame + 5] + b"\0\0" + usual[frame + 7 :],
        "too large": usual[: frame + 5] + b"\xff\xff\xff\xff" + usual[frame + 9 :],
        "colors of a quarter of the width": usual[: frame + 11] + b"\x41" + usual[frame + 12 :],
        "several pictures": usual[:2] + b"\xff\xe2\x00\x06MPF\0" + usual[2:],
    }
    assert {name: plain_jpeg(data) for name, data in others.items()} == dict.fromkeys(others)


def test_no_bytes_make_it_fail() -> None:
    """Every cut and every changed byte gives facts or None."""
    usual, rng = file(Image.new("RGB", (16, 16), "red")), np.random.default_rng(1)
    for place in range(len(usual)):
        changed = usual[:place] + bytes([rng.integers(256)]) + usual[place + 1 :]
        for data in (usual[:place], usual[:place] + b"\xff\xd9", changed):
            found = plain_jpeg(data)
            assert found is None or found.width * found.height > 0
