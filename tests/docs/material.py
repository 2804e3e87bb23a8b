"""What the directory of a page holds before its first command.

Always: ``photos/`` with the folders ``wren``, ``owl`` and ``kite`` of five drawn pictures each, and
``garden.jpg``. Only where a command of the page names them:

- ``benchmarks``, ``tests``: the folders of the repository;
- ``birds.statistics``: class statistics as a cluster writes them;
- ``cub200-features.npz``: the vectors of the embedded feature pack;
- ``mine.npz``: features of eight classes, twelve values each;
- ``inbox``, ``clips``: a folder with one photo, called as Frigate calls its snapshots;
- ``features``: a folder with features of 200 classes, as CUB-200 has, eight values each.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
from pages import ROOT

from fiveshot.data.synthetic import gaussian_classes
from fiveshot.features import embedded_features

THINGS = {"wren": "apple", "owl": "house", "kite": "fish"}  # what is drawn under each name


def draw_photos(folder: Path) -> None:
    """Draw what every page has."""
    from fiveshot.data import draw_samples

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


def write_statistics(path: Path) -> None:
    """Write what a cluster makes of many images, here of three classes of thirty made-up vectors."""
    from fiveshot.backbones import BackboneSpec
    from fiveshot.scale import ClusterStatistics, StatisticsPlan
    from fiveshot.scale._pipeline import Rows, vector_facts
    from fiveshot.scale._reductions import Sample
    from fiveshot.scale._statistics import choose_settings

    facts = vector_facts(BackboneSpec(), "float32", dataset="birds")
    codes = np.repeat(np.arange(len(THINGS)), 30)
    rng = np.random.default_rng(0)
    vectors = rng.normal(size=(len(THINGS), facts.width))[codes] + rng.normal(size=(len(codes), facts.width))
    names = tuple(f"{number}.jpg" for number in range(len(codes)))
    rows = Rows(vectors.astype(np.float32), np.array(list(THINGS))[codes], names)
    settings = choose_settings("unbiased-lda", rows)
    parts = {
        name: way.reduce(rows)
        for name, way in StatisticsPlan("class", "unbiased-lda").reductions(settings).items()
    }
    parts["sample"] = Sample(20).reduce(rows)
    found = ClusterStatistics(
        facts.provenance, facts.identity, len(codes), **parts, head="unbiased-lda", settings=settings
    )
    found.save(path)


def _link(name: str, path: Path) -> None:
    path.symlink_to(ROOT / name)


def _put_photo(path: Path) -> None:
    path.mkdir()
    shutil.copy(path.parent / "garden.jpg", path / "feeder-1718987129.308396-fqk5ka.jpg")


NAMED: dict[str, Callable[[Path], None]] = {
    "benchmarks": partial(_link, "benchmarks"),
    "tests": partial(_link, "tests"),
    "birds.statistics": write_statistics,
    "cub200-features.npz": write_pack,
    "inbox": _put_photo,
    "clips": _put_photo,
    "mine.npz": partial(write_features, classes=8, width=12),
    "features": lambda path: write_features(path / "cub200.npz", classes=200, width=8),
}


def furnish(folder: Path, photos: Path | None, typed: str) -> None:
    """Fill the directory of a page; ``typed`` is all that is run in it."""
    if photos is not None:
        shutil.copytree(photos, folder, dirs_exist_ok=True)
    for name, make in NAMED.items():
        if re.search(rf"(?<![\w./-]){re.escape(name)}(?![\w-])", typed):
            make(folder / name)
