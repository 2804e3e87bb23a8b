"""The vectors of one shard in one file, and the folder that such files lie in."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fiveshot.data import BadImage
from fiveshot.errors import StorageError
from fiveshot.scale.backbone_spec import BackboneFacts
from fiveshot.scale.columns import Batch
from fiveshot.scale.raw_image import Shard
from fiveshot.scale.rows import Tally, tally, without_markers
from fiveshot.storage import atomic_path, read_tensors, write_tensors

KIND, VERSION = "feature-shard", 1
MANIFEST = "manifest.json"


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
        images = without_markers(batch)
        images = {name: column[np.argsort(images["row"], kind="stable")] for name, column in images.items()}
        good = images["reason"].astype(str) == ""
        # The label of an entry that is no image, such as the damaged end of a tar, is empty.
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

    def write_manifest(self, shards: Sequence[Shard], done: Tally) -> None:
        """Say in one file what the folder holds; it is there only when every shard is."""
        about = {
            "format": VERSION,
            "provenance": self.facts.provenance.as_dict(),
            "identity": self.facts.identity,
            "dtype": self.facts.dtype,
            "width": self.facts.width,
            "images": sum(shard.n_images for shard in self.shards(shards)),
            "bad": [[image.name, image.reason] for image in done.bad],
            "shards": [{"file": self.path(shard).name, "key": self._key(shard)} for shard in shards],
        }
        with atomic_path(self.folder / MANIFEST) as path:
            path.write_text(json.dumps(about, indent=1), encoding="utf-8")

    def shards(self, shards: Sequence[Shard]) -> Iterator[FeatureShard]:
        """Yield the finished shards in their order."""
        return (read_shard_file(self.path(shard)) for shard in shards)

    def _is_finished(self, shard: Shard) -> bool:
        try:
            return bool(_read(self.path(shard)).meta.get("key") == self._key(shard))
        except StorageError:  # absent, or damaged and computed again like one that never was
            return False

    def _key(self, shard: Shard) -> str:
        return hashlib.sha256(f"{shard.key} {self.facts.key}".encode()).hexdigest()


def read_shard_file(path: str | os.PathLike[str]) -> FeatureShard:
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
        raise StorageError(f"{path} is damaged ({error}); remove it to compute it again") from error


def read_manifest(folder: str | os.PathLike[str]) -> dict[str, Any]:
    """Return the manifest of a folder whose shards are all there."""
    path = Path(folder) / MANIFEST
    try:
        about: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise StorageError(f"{folder} has no {MANIFEST}: it is no folder of shards, or not finished") from None
    except (OSError, ValueError) as error:
        raise StorageError(f"{path} is damaged ({error}); the same command writes it again") from error
    return about


def encode_texts(texts: Sequence[str]) -> NDArray[np.uint8]:
    """Return texts of any number and kind as bytes."""
    return np.frombuffer(bytearray(json.dumps(list(texts)).encode()), np.uint8)


def decode_texts(data: NDArray[np.uint8]) -> tuple[str, ...]:
    """Return the texts that ``encode_texts`` was given."""
    return tuple(json.loads(data.tobytes()))


def _read(path: str | os.PathLike[str]) -> Any:
    return read_tensors(path, kind=KIND, version=VERSION)
