"""How well general photographs as a background tell other things, for models of too few photos for a threshold.

    python benchmarks/background.py --general general.tar --cifar cifar100.npz --save
    python benchmarks/background.py --general general.tar --cifar cifar100.npz

With ``--save``, 500 general photographs give the file that comes with fiveshot, and the quantiles are printed by
which its threshold was chosen: on training photos of the classes 0..99 of CUB-200 and 0..49 of CIFAR-100, and 250
other general photographs. Without it, the rule is measured as it is shipped: on test photos of the other classes
and on the last 250 general photographs. A row is 100 draws of classes and photos.
"""

from __future__ import annotations

import argparse
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path

import numpy as np
from no_base import opened
from numpy.typing import NDArray
from PIL import Image

from fiveshot.backbones import load_embedder
from fiveshot.features import FeatureSet, embedded_features
from fiveshot.recognizer.photos.embedding import photo_records
from fiveshot.recognizer.photos.inputs import gather_photos
from fiveshot.recognizer.recognition.background import FILE, LEAST_LIKENESS, Background, general_background
from fiveshot.recognizer.store.rows import photo_features

Floats = NDArray[np.floating]
DRAWS, EACH, OTHERS = 100, 10, 250
STATISTICS, CHOICE = 500, 750  # general photographs: those before, and those from there to the next number
CELLS = [
    (classes, shots) for classes in (1, 2, 4) for shots in (1, 2, 3, 5) if classes * shots < 19 or classes == 1
]


@dataclass(frozen=True, eq=False)
class Half:
    """Photos of some of the classes of a set."""

    name: str
    X: Floats  # (n, d)
    y: NDArray[np.int64]  # (n,)

    @classmethod
    def of(cls, name: str, found: FeatureSet, *, choice: bool) -> Half:
        X, y = (found.train_x, found.train_y) if choice else (found.test_x, found.test_y)
        own = (y < len(found.class_names) // 2) == choice
        return cls(name, np.asarray(X[own], dtype=np.float32), y[own])


def general_features(file: Path) -> Floats:
    """Return the features of an archive of photographs; an array in a file, (n, d), is taken as it is."""
    if file.suffix == ".npy":
        found: Floats = np.load(file)
        return found
    with tarfile.open(file) as tar:
        members = sorted((one for one in tar if one.isfile()), key=lambda one: one.name)
        contents = [tar.extractfile(one).read() for one in members]
    pictures = [Image.open(BytesIO(content)).convert("RGB") for content in contents]
    return photo_features(photo_records(load_embedder(), gather_photos(pictures)))


def likeness(
    background: Background, half: Half, rest: list[Floats], classes: int, shots: int
) -> Iterator[list[Floats]]:
    """Yield for each draw the likeness of known photos, of other classes of the set, and of the rest."""
    for draw in range(DRAWS):
        rng = np.random.default_rng([classes, shots, draw])
        known = rng.permutation(np.unique(half.y))[:classes]
        orders = [rng.permutation(np.flatnonzero(half.y == one)) for one in known]
        means = background.means([half.X[rows[:shots]] for rows in orders])
        more = np.concatenate([rows[shots : shots + EACH] for rows in orders])
        others = rng.permutation(np.flatnonzero(~np.isin(half.y, known)))[:OTHERS]
        yield [background.likeness(each, means) for each in (half.X[more], half.X[others], *rest)]


def measured(found: list[list[Floats]]) -> list[str]:
    shares = np.array([[(each < LEAST_LIKENESS).mean() for each in one] for one in found])
    known = shares[:, 0]
    return [
        f"{100 * share:.1f} %"
        for share in (
            known.mean(),
            (known > 0.1).mean(),
            np.quantile(known, 0.9),
            known.max(),
            *shares[:, 1:].mean(axis=0),
        )
    ]


def quantiles(found: list[list[Floats]]) -> list[str]:
    known, _, general, other = (np.concatenate(each) for each in zip(*found, strict=True))
    chosen = (
        *np.quantile(known, (0.01, 0.02, 0.05)),
        *np.quantile(general, (0.98, 0.99)),
        np.quantile(other, 0.99),
    )
    return [f"{value:.3f}" for value in chosen]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--general", type=Path, required=True, help="archive of photographs of anything")
    parser.add_argument("--cifar", required=True, help="images of CIFAR-100, or their features")
    parser.add_argument("--save", action="store_true", help="write the file, and print what the choice rests on")
    options = parser.parse_args()
    general = np.random.default_rng(0).permutation(general_features(options.general))
    if options.save:
        Background.of(general[:STATISTICS].astype(np.float64)).save(FILE, load_embedder().fingerprint)
        rest, columns = (
            general[STATISTICS:CHOICE],
            "known: 1 % | 2 % | 5 % | general: 98 % | 99 % | other set: 99 %",
        )
    else:
        rest, columns = (
            general[CHOICE:],
            "known rejected | draws above 10 % | a tenth of the draws above | worst draw",
        )
        columns += " | same set | general | other set"
    sets = (("CUB-200", embedded_features("cub200")), ("CIFAR-100", opened(options.cifar)))
    birds, things = (Half.of(name, found, choice=options.save) for name, found in sets)
    print(f"| set | classes | photos of each | {columns} |")
    print("|" + "---|" * (3 + columns.count("|") + 1))
    for half, other in ((birds, things), (things, birds)):
        for classes, shots in CELLS:
            found = list(likeness(general_background(), half, [rest, other.X[::5]], classes, shots))
            cells = quantiles(found) if options.save else measured(found)
            print("| " + " | ".join([half.name, str(classes), str(shots), *cells]) + " |", flush=True)


if __name__ == "__main__":
    main()
