"""The vectors of shards in a folder, one file for each, and how they are joined into one feature file."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fiveshot.data import BadImage
from fiveshot.errors import InputError, StorageError, counted
from fiveshot.features.checks import listing
from fiveshot.features.feature_file import write_feature_file
from fiveshot.features.feature_set import FeatureSet
from fiveshot.scale.extraction.backbone import BackboneFacts
from fiveshot.scale.extraction.batches import END, Batch, concatenate, images_of, select, tally
from fiveshot.scale.sources.shard import TEST, TRAIN, Shard
from fiveshot.storage import Blocks, FilePath, atomic_path, read_tensors, write_tensors

KIND, VERSION = "feature-shard", 1
MANIFEST = "manifest.json"
KEPT_COLUMNS = ("row", "split", "name", "label", "reason", "vectors")
SPLITS = {"train": TRAIN, "test": TEST}


@dataclass(frozen=True, eq=False)
class FeatureShard:
    """Vectors in the order of the shard's images, without the bad ones."""

    vectors: NDArray[np.floating[Any]]  # (n, d), mapped
    rows: NDArray[np.int64]  # (n,): positions in the shard
    splits: NDArray[np.int64]  # (n,): TRAIN or TEST
    codes: NDArray[np.int64]  # (n,): indices into class_names
    class_names: tuple[str, ...]  # of all its images, bad ones too
    names: tuple[str, ...]
    bad: tuple[BadImage, ...]

    @property
    def n_images(self) -> int:
        """Number of images, bad ones included."""
        return len(self.rows) + len(self.bad)


@dataclass(frozen=True, eq=False)
class ShardFolder:
    """Shard files of one catalog and one backbone; each of them is whole or absent."""

    folder: Path
    facts: BackboneFacts

    def path(self, shard: Shard) -> Path:
        """Return the file of a shard."""
        return self.folder / f"shard-{shard.number:06}.safetensors"

    def missing(self, shards: Sequence[Shard]) -> list[Shard]:
        """Return the shards that have no file yet, or one of other images or another backbone."""
        return [shard for shard in shards if not self._is_finished(shard)]

    def write(self, shard: Shard, batch: Batch) -> None:
        """Keep the rows of a shard, which may come in any order."""
        images = images_of(batch)
        images = select(images, np.argsort(images["row"], kind="stable"))
        good = images["reason"].astype(str) == ""
        # The label of an entry that is not an image, such as the damaged end of a tar, is empty.
        classes, codes = np.unique(images["label"].astype(str), return_inverse=True)
        write_tensors(
            self.path(shard),
            {
                "vectors": images["vectors"][good],
                "rows": images["row"][good],
                "splits": images["split"][good],
                "codes": codes[good].astype(np.int64),
                "names": encode_texts(images["name"][good].tolist()),
            },
            kind=KIND,
            version=VERSION,
            meta={
                "key": self._key(shard),
                "class_names": classes.tolist(),
                "bad": [[bad.name, bad.reason] for bad in tally(images).bad],
            },
        )

    def shards(self, shards: Sequence[Shard]) -> Iterator[FeatureShard]:
        """Yield the finished shards in their order."""
        return (read_shard_file(self.path(shard)) for shard in shards)

    def write_manifest(self, shards: Sequence[Shard], *, images: int, bad: Sequence[BadImage]) -> None:
        """Say in one file what the folder holds; it is there only when every shard is."""
        about = {
            "format": VERSION,
            "provenance": self.facts.provenance.as_dict(),
            "identity": self.facts.identity,
            "dtype": self.facts.dtype,
            "width": self.facts.width,
            "images": images,
            "bad": [[image.name, image.reason] for image in bad],
            "shards": [{"file": self.path(shard).name, "key": self._key(shard)} for shard in shards],
        }
        with atomic_path(self.folder / MANIFEST) as path:
            path.write_text(json.dumps(about, indent=1), encoding="utf-8")

    def _is_finished(self, shard: Shard) -> bool:
        try:
            return bool(_read(self.path(shard)).meta.get("key") == self._key(shard))
        except StorageError:  # absent, or damaged and so computed again
            return False

    def _key(self, shard: Shard) -> str:
        return hashlib.sha256(f"{shard.key} {self.facts.key}".encode()).hexdigest()


class ShardCollector:
    """Collects rows in any order and writes every shard that is complete; it holds no others."""

    def __init__(self, shards: Mapping[int, Shard], folder: ShardFolder) -> None:
        self._shards = shards
        self._folder = folder
        self._held: dict[int, list[Batch]] = {}
        self._rows: dict[int, int] = {}
        self._expected: dict[int, int] = {}
        self.finished = 0

    @property
    def held_rows(self) -> int:
        """Number of rows that wait for the rest of their shard."""
        return sum(self._rows.values())

    def add(self, batch: Batch) -> None:
        """Take rows of one or more shards."""
        for number in np.unique(batch["shard"]).tolist():
            own = batch["shard"] == number
            part = {name: batch[name][own] for name in KEPT_COLUMNS}
            marker = part["split"] == END
            if marker.any():
                self._expected[number] = int(part["row"][marker][0])
            self._held.setdefault(number, []).append(part)
            self._rows[number] = self._rows.get(number, 0) + int((~marker).sum())
            if self._rows[number] == self._expected.get(number):
                self._folder.write(self._shards[number], concatenate(self._held.pop(number)))
                del self._rows[number], self._expected[number]
                self.finished += 1


def read_shard_file(path: FilePath) -> FeatureShard:
    """Map the file of one shard."""
    file = _read(path)
    try:
        arrays = {name: file.tensors[name] for name in ("vectors", "rows", "splits", "codes")}
        return FeatureShard(
            **arrays,
            class_names=tuple(file.meta["class_names"]),
            names=decode_texts(file.tensors["names"]),
            bad=tuple(BadImage(name, reason) for name, reason in file.meta["bad"]),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise StorageError(f"{path} is damaged ({error})", hint="remove it to compute it again") from error


def read_manifest(folder: FilePath) -> dict[str, Any]:
    """Return the manifest of a folder whose shards are all there."""
    path = Path(folder) / MANIFEST
    try:
        about: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise StorageError(
            f"{folder} has no {MANIFEST}: it is not a folder of shards, or not finished", code="not_finished"
        ) from None
    except (OSError, ValueError) as error:
        raise StorageError(f"{path} is damaged ({error})", hint="the same command writes it again") from error
    return about


def encode_texts(texts: Sequence[str]) -> NDArray[np.uint8]:
    """Return texts of any number and kind as bytes."""
    return np.frombuffer(bytearray(json.dumps(list(texts)).encode()), np.uint8)


def decode_texts(data: NDArray[np.uint8]) -> tuple[str, ...]:
    """Return the texts that ``encode_texts`` was given."""
    return tuple(json.loads(data.tobytes()))


def _read(path: FilePath) -> Any:
    return read_tensors(path, kind=KIND, version=VERSION)


Shards = Callable[[], Iterable[FeatureShard]]  # the same ones at every call


def join_shards(shards: Shards, facts: BackboneFacts, out: FilePath, *, runtime: str) -> FeatureSet:
    """Write the feature file that one machine would have written, one shard in memory at a time, and map it.

    Classes are numbered in the order of their names; every class needs a training image that could be read.
    """
    class_names = tuple(sorted({name for shard in shards() for name in shard.class_names} - {""}))
    number = {name: label for label, name in enumerate(class_names)}
    arrays: dict[str, NDArray[Any] | Blocks] = {}
    names: dict[str, tuple[str, ...]] = {}
    for split, code in SPLITS.items():
        labels = [_labels(shard, number)[shard.splits == code] for shard in shards()]
        joined = np.concatenate([*labels, np.zeros(0, np.int64)])
        if split == "train":
            _check_classes(class_names, joined)
        shape = (len(joined), facts.width)
        arrays[f"{split}_x"] = Blocks(np.dtype(facts.dtype), shape, _vectors(shards, code))
        arrays[f"{split}_y"] = joined
        names[f"{split}_names"] = tuple(_names(shards(), code))
    provenance = replace(facts.provenance, note=f"{facts.dtype} vectors; {runtime}")
    write_feature_file(out, arrays, names, class_names=class_names, provenance=provenance)
    return FeatureSet.load(out)


def _labels(shard: FeatureShard, number: dict[str, int]) -> NDArray[np.int64]:
    table = np.array([number.get(name, -1) for name in shard.class_names], dtype=np.int64)
    return table[shard.codes] if len(table) else shard.codes


def _vectors(shards: Shards, code: int) -> Iterator[NDArray[Any]]:
    return (shard.vectors[shard.splits == code] for shard in shards())


def _names(shards: Iterable[FeatureShard], code: int) -> Iterator[str]:
    for shard in shards:
        yield from (name for name, split in zip(shard.names, shard.splits.tolist(), strict=True) if split == code)


def _check_classes(class_names: tuple[str, ...], labels: NDArray[np.int64]) -> None:
    gone = np.setdiff1d(np.arange(len(class_names)), labels)
    if len(gone):
        names = listing([class_names[i] for i in gone])
        raise InputError(
            f"{counted(len(gone), 'class')} without a usable training image: {names}",
            hint="repair some of them, or remove the classes",
            code="empty_class",
        )
