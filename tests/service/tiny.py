"""Models of a tiny ViT, and drawn photos: shared by the tests of the service."""

from __future__ import annotations

import io
import zlib
from pathlib import Path

import numpy as np
from PIL import Image
from tiny_vit import TINY

from fiveshot.recognizer import Recognizer


def tiny_model(path: Path, weights: Path, **given: object) -> Path:
    Recognizer.create(path, backbone=TINY, weights=weights, device="cpu", runtime="torch", **given).close()
    return path


def picture(name: str, number: int = 0, size: tuple[int, int] = (64, 48)) -> Image.Image:
    """Return a noisy picture in a colour that the name decides."""
    colour = np.random.default_rng(zlib.crc32(name.encode())).integers(20, 236, 3)
    noise = np.random.default_rng([number, zlib.crc32(name.encode())]).normal(0, 20, (size[1], size[0], 3))
    return Image.fromarray(np.clip(colour + noise, 0, 255).astype(np.uint8))


def encoded(image: Image.Image, kind: str = "JPEG", **given: object) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, kind, **given)
    return buffer.getvalue()


def photo(name: str, number: int = 0) -> bytes:
    return encoded(picture(name, number))


def parts(name: str, count: int = 3, first: int = 0) -> list[tuple[str, tuple[str, bytes, str]]]:
    """Return photos of a class as httpx wants them."""
    return [
        ("photos", (f"{name[:20]}-{number}.jpg", photo(name, number), "image/jpeg"))
        for number in range(first, first + count)
    ]
