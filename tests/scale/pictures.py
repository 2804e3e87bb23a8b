"""Small photographs in folders and tars, all different."""

from __future__ import annotations

import io
import tarfile
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from PIL import Image

CLASSES = ("ani", "rook", "wren")


def encoded(rng: np.random.Generator) -> bytes:
    """Return a small JPEG that is unlike any other."""
    coarse = Image.fromarray(rng.integers(0, 256, (6, 8, 3), np.uint8))
    buffer = io.BytesIO()
    coarse.resize((200, 150), Image.Resampling.BICUBIC).save(buffer, "JPEG", quality=92)
    return buffer.getvalue()


@dataclass(frozen=True)
class Delayed:
    """A photo that cannot be read as long as a file is there."""

    data: bytes
    barrier: Path
    name: str = "delayed.jpg"

    def read(self) -> bytes:
        """Wait until the file is gone, and return the photo."""
        while self.barrier.exists():
            time.sleep(0.05)
        return self.data


def draw_folder(folder: Path, *, per_class: int, seed: int, splits: tuple[str, ...] = ("train", "test")) -> Path:
    rng = np.random.default_rng(seed)
    for split in splits:
        for name in CLASSES:
            (folder / split / name).mkdir(parents=True)
            for number in range(per_class):
                (folder / split / name / f"{number:03}.jpg").write_bytes(encoded(rng))
    return folder


def write_tar(path: Path, members: dict[str, bytes]) -> Path:
    with tarfile.open(path, "w") as tar:
        for name, data in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    return path
