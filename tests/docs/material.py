"""What the directory of a page holds before its first command.

Always: ``photos/`` with the folders ``wren``, ``owl`` and ``kite`` of five drawn pictures each, and
``garden.jpg``. Only where a command of the page names them:

- ``benchmarks``, ``tests``: the folders of the repository;
- ``cub200-features.npz``: the vectors of the embedded feature pack;
- ``mine.npz``: features of eight classes, twelve values each;
- ``features``: a folder with features of 200 classes, as CUB-200 has, eight values each;
- ``tiny.safetensors``: weights for timm's smallest ViT, for commands that train.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
from pages import ROOT

from fiveshot.data.gaussian import gaussian_classes
from fiveshot.features import embedded_features

THINGS = {"wren": "apple", "owl": "house", "kite": "fish"}  # what is drawn under each name
TINY = "test_vit.r160_in1k"


def draw_photos(folder: Path) -> None:
    """Draw what every page has."""
    from fiveshot.recognizer.samples import draw_samples

    drawn = folder / "drawn"
    draw_samples(drawn, seed=0)
    for name, thing in THINGS.items():
        shutil.copytree(drawn / "learn" / thing, folder / "photos" / name)
    shutil.copy(drawn / "test" / THINGS["wren"] / "1.jpg", folder / "garden.jpg")
    shutil.rmtree(drawn)


def write_features(path: Path, *, classes: int, width: int) -> None:
    """Write a feature file of Gaussian classes."""
    path.parent.mkdir(exist_ok=True)
    train_x, train_y, test_x, test_y = gaussian_classes(
        n_classes=classes, n_features=width, train_per_class=7, test_per_class=3, seed=0
    )
    np.savez(path, train_x=train_x, train_y=train_y, test_x=test_x, test_y=test_y)


def write_pack(path: Path) -> None:
    """Write the embedded vectors of CUB-200 as they were kept before they became a feature file."""
    pack = embedded_features("cub200")
    fields = {name: getattr(pack, name) for name in ("train_x", "train_y", "test_x", "test_y")}
    np.savez(path, class_names=np.array(pack.class_names), **fields)


def write_weights(path: Path) -> None:
    """Write random weights for the smallest ViT."""
    import timm
    import torch
    from safetensors.torch import save_file

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        save_file(timm.create_model(TINY).state_dict(), path)


def _link(name: str, path: Path) -> None:
    path.symlink_to(ROOT / name)


NAMED: dict[str, Callable[[Path], None]] = {
    "benchmarks": partial(_link, "benchmarks"),
    "tests": partial(_link, "tests"),
    "cub200-features.npz": write_pack,
    "mine.npz": partial(write_features, classes=8, width=12),
    "features": lambda path: write_features(path / "cub200.npz", classes=200, width=8),
    "tiny.safetensors": write_weights,
}


def furnish(folder: Path, photos: Path | None, typed: str) -> None:
    """Fill the directory of a page; ``typed`` is all that is run in it."""
    if photos is not None:
        shutil.copytree(photos, folder, dirs_exist_ok=True)
    for name, make in NAMED.items():
        if re.search(rf"(?<![\w./-]){re.escape(name)}(?![\w-])", typed):
            make(folder / name)
