"""Whether statistics of general photographs tell other things from the classes of a model that has few photos.

    python benchmarks/background.py --general general.tar --cifar cifar100.npz

Half of the general photographs give a center and a covariance of unit features; features are centered and whitened
by it, with an equal share of the sphere. How much a photo is like a class is its largest cosine with the mean of a
class there. One threshold for classes of one photo, and one for classes of more, are the same for all models. For
each row 40 draws of classes of CUB-200 or CIFAR-100, training photos alone: how many other photos of these classes
are rejected, how many photos of other classes of the same set, and how many of the other half of the general
photographs. Models do not use this yet.
"""

from __future__ import annotations

import argparse
import io
import tarfile
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from fiveshot.backbones import load_embedder
from fiveshot.core.arrays import unit_rows
from fiveshot.features import embedded_features
from fiveshot.recognizer.photos.embedding import photo_records
from fiveshot.recognizer.photos.inputs import gather_photos
from fiveshot.recognizer.store.rows import photo_features

Floats = NDArray[np.floating]
SINGLE, SEVERAL = 0.25, 0.35  # thresholds for classes of one photo and of more
DRAWS, EACH, OTHERS = 40, 10, 50
CIFAR_PHOTOS = 15  # of each class


def seen(pictures: list[Image.Image]) -> NDArray[np.float32]:
    """Return the features of pictures, as the embedded backbone makes them."""
    return photo_features(photo_records(load_embedder(), gather_photos(pictures)))


def general_features(file: Path) -> NDArray[np.float32]:
    with tarfile.open(file) as tar:
        members = sorted((one for one in tar if one.isfile()), key=lambda one: one.name)
        contents = [tar.extractfile(one).read() for one in members]
    return seen([Image.open(io.BytesIO(content)).convert("RGB") for content in contents])


def cifar_features(file: Path) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    data, rng = np.load(file), np.random.default_rng(0)
    labels = data["train_labels"]
    rows = [rng.permutation(np.flatnonzero(labels == one))[:CIFAR_PHOTOS] for one in np.unique(labels)]
    chosen = np.concatenate(rows)
    return seen([Image.fromarray(image) for image in data["train_images"][chosen]]), labels[chosen]


class Background:
    """The center and the covariance of general photographs."""

    def __init__(self, X: Floats) -> None:
        self.center = unit_rows(X).mean(axis=0)
        values, self.directions = np.linalg.eigh(np.cov(unit_rows(X).T))
        self.scale = np.sqrt(values + values.mean())

    def white(self, X: Floats) -> Floats:
        """Return features of length one in the space where general photographs differ alike in all directions."""
        return unit_rows((unit_rows(X) - self.center) @ self.directions / self.scale)


def measure(
    background: Background, X: Floats, y: NDArray[np.int64], general: Floats, classes: int, shots: int
) -> list[float]:
    found = []
    for draw in range(DRAWS):
        rng = np.random.default_rng([classes, shots, draw])
        known = rng.permutation(np.unique(y))[:classes]
        orders = [rng.permutation(np.flatnonzero(y == one)) for one in known]
        means = unit_rows(np.stack([background.white(X[rows[:shots]]).mean(axis=0) for rows in orders]))
        more = np.concatenate([rows[shots : shots + EACH] for rows in orders])
        others = rng.permutation(np.flatnonzero(~np.isin(y, known)))[:OTHERS]
        like = [(background.white(each) @ means.T).max(axis=1) for each in (X[more], X[others], general)]
        threshold = SINGLE if shots == 1 else SEVERAL
        found.append([float((each < threshold).mean()) for each in like])
    return list(np.mean(found, axis=0))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--general", type=Path, required=True, help="archive of photographs of anything")
    parser.add_argument("--cifar", type=Path, required=True)
    options = parser.parse_args()
    general = np.random.default_rng(0).permutation(general_features(options.general))
    background, rest = Background(general[::2]), general[1::2]
    birds = embedded_features("cub200")
    sets = {"CUB-200": (np.asarray(birds.train_x, dtype=np.float32), birds.train_y)}
    sets["CIFAR-100"] = cifar_features(options.cifar)
    print("| set | classes | photos of each | known rejected | other classes of the set | general photographs |")
    print("|---|---|---|---|---|---|")
    for name, (X, y) in sets.items():
        for classes in (1, 2, 4):
            for shots in (1, 2, 3, 5):
                shares = measure(background, X, y, rest, classes, shots)
                cells = [name, str(classes), str(shots), *(f"{100 * share:.1f} %" for share in shares)]
                print("| " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    main()
