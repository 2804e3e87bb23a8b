"""Measure the gain of cropping photos to CUB-200's bounding boxes: five photos of each class, whole and cropped.

    python benchmarks/cropping.py CUB_200_2011 --draws 5

The folder is the official archive, unpacked: images/, images.txt, image_class_labels.txt, train_test_split.txt and
bounding_boxes.txt (--boxes names another file of boxes). The network sees every photo twice, whole and cropped.
Each draw learns five other photos of each class from the training split and recognizes all test photos among all
classes. A model of whole photos predicts whole photos, a model of cropped photos predicts cropped ones.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from fiveshot import make_head
from fiveshot.backbones import BackboneSpec, load_embedder
from fiveshot.data import BadImage, Box, FileSource, Photo
from fiveshot.features import see_photos

SHOTS = 5


def read_columns(file: Path) -> dict[int, list[str]]:
    """Return the values of one of CUB's files by image number."""
    lines = (line.split() for line in file.read_text().splitlines() if line.strip())
    return {int(number): values for number, *values in lines}


def read_cub(folder: Path, boxes: Path, per_class: int) -> tuple[list[Photo], np.ndarray, np.ndarray]:
    """Return the photos with their boxes, their classes, and which of them are for training."""
    names, labels = read_columns(folder / "images.txt"), read_columns(folder / "image_class_labels.txt")
    split, corners = read_columns(folder / "train_test_split.txt"), read_columns(boxes)
    taken: dict[tuple[str, str], int] = {}
    chosen = []
    for number in sorted(names):
        group = labels[number][0], split[number][0]
        taken[group] = taken.get(group, 0) + 1
        if taken[group] <= per_class:
            chosen.append(number)
    photos = [
        Photo(
            FileSource(folder / "images" / names[number][0], names[number][0]),
            Box(*(float(value) for value in corners[number])),
        )
        for number in chosen
    ]
    classes = np.array([int(labels[number][0]) for number in chosen])
    return photos, classes, np.array([split[number][0] == "1" for number in chosen])


def features(photos: Sequence[Photo]) -> np.ndarray:
    """Return the features of the embedded backbone; an unusable photo ends the benchmark."""
    rows = []
    for part in see_photos(load_embedder(BackboneSpec()), photos):
        for one in part:
            if isinstance(one, BadImage):
                raise SystemExit(f"{one.name}: {one.reason}")
            rows.append(one.vector)
    return np.stack(rows)


def accuracy(x: np.ndarray, y: np.ndarray, train: np.ndarray, seed: int) -> float:
    """Return the share of test photos that a model of five photos of each class recognizes."""
    rng = np.random.default_rng(seed)
    own = [rng.permutation(np.flatnonzero(train & (y == label)))[:SHOTS] for label in np.unique(y)]
    shots = np.concatenate(own)
    head = make_head().fit(x[shots], y[shots])
    return float((head.predict(x[~train]) == y[~train]).mean())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--boxes", type=Path, help="bounding_boxes.txt of the folder unless given")
    parser.add_argument("--draws", type=int, default=5)
    parser.add_argument(
        "--per-class", type=int, default=10_000, help="at most this many photos of each class and split"
    )
    arguments = parser.parse_args()
    boxes = arguments.boxes or arguments.folder / "bounding_boxes.txt"
    photos, y, train = read_cub(arguments.folder, boxes, arguments.per_class)
    whole = features([Photo(photo.source) for photo in photos])
    cut = features(photos)
    rows = {"whole photos": whole, "cut out": cut}
    found = {name: [accuracy(x, y, train, seed) for seed in range(arguments.draws)] for name, x in rows.items()}
    tested, draws = int((~train).sum()), arguments.draws
    print(f"{len(np.unique(y))} classes, {SHOTS} photos each, {tested} test photos, {draws} draws")
    print("\n| | accuracy | spread |\n|---|---:|---:|")
    for name, values in found.items():
        print(f"| {name} | {100 * np.mean(values):.1f} % | {100 * np.std(values):.1f} |")
    gains = np.subtract(found["cut out"], found["whole photos"])
    print(f"| gain | {100 * gains.mean():+.1f} points | {100 * gains.std():.1f} |")


if __name__ == "__main__":
    main()
