"""The vectors of shards in a folder: a finished part for each shard, and a manifest once all of them are there."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from fiveshot.data import BadImage
from fiveshot.errors import StorageError
from fiveshot.features import FeatureSet
from fiveshot.features.parts import Part, join_parts, part_key
from fiveshot.scale.extraction.batches import END, Batch, bad_node, concatenate, images_of, select, tally
from fiveshot.scale.extraction.pipeline import VectorFacts
from fiveshot.scale.sources.shards import Shard
from fiveshot.storage import FilePath, atomic_path

VERSION = 1  # of the manifest
MANIFEST = "manifest.json"
KEPT_COLUMNS = ("row", "split", "name", "label", "reason", "vectors")


@dataclass(frozen=True, eq=False)
class ShardFolder:
    """Shard files of one catalog and one backbone; each of them is whole or absent."""

    folder: Path
    facts: VectorFacts

    def path(self, shard: Shard) -> Path:
        """Return the file of a shard."""
        return self.folder / f"shard-{shard.number:06}.safetensors"

    def missing(self, shards: Sequence[Shard]) -> list[Shard]:
        """Return the shards that have no file yet, a damaged one, or one of other images or another backbone."""
        return [shard for shard in shards if part_key(self.path(shard)) != self._key(shard)]

    def write(self, shard: Shard, batch: Batch) -> None:
        """Keep the rows of a shard, which may come in any order."""
        images = images_of(batch)
        images = select(images, np.argsort(images["row"], kind="stable"))
        good = images["reason"].astype(str) == ""
        # The label of an entry that is not an image, such as the damaged end of a tar, is empty.
        classes, codes = np.unique(images["label"].astype(str), return_inverse=True)
        part = Part(
            images["vectors"][good],
            images["row"][good].astype(np.int64),
            images["split"][good].astype(np.int64),
            codes[good].astype(np.int64),
            tuple(images["name"][good].tolist()),
            tuple(classes.tolist()),
            tuple(zip(images["row"][~good].tolist(), tally(images).bad, strict=True)),
            key=self._key(shard),
        )
        part.save(self.path(shard))

    def parts(self, shards: Sequence[Shard]) -> Iterator[Part]:
        """Yield the finished parts in the order of their shards."""
        return (Part.load(self.path(shard)) for shard in shards)

    def join(self, shards: Sequence[Shard], out: FilePath, *, runtime: str) -> FeatureSet:
        """Write the feature file that one machine would have written, and map it."""
        facts = self.facts
        provenance = replace(facts.provenance, note=f"{facts.dtype} vectors; {runtime}")
        parts = partial(self.parts, shards)
        return join_parts(parts, out, provenance=provenance, width=facts.width, dtype=facts.dtype)

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
            "shards": [self.path(shard).name for shard in shards],
        }
        with atomic_path(self.folder / MANIFEST) as path:
            path.write_text(json.dumps(about, indent=1), encoding="utf-8")

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
            if number not in self._shards:
                raise bad_node(f"rows of shard {number}, which it was not given")
            own = batch["shard"] == number
            part = {name: batch[name][own] for name in KEPT_COLUMNS}
            marker = part["split"] == END
            if marker.any():
                self._expected[number] = int(part["row"][marker][0])
            self._held.setdefault(number, []).append(part)
            self._rows[number] = self._rows.get(number, 0) + int((~marker).sum())
            if self._rows[number] == self._expected.get(number):
                whole = concatenate(self._held.pop(number))
                if np.array_equal(np.sort(images_of(whole)["row"]), np.arange(self._expected[number])):
                    self._folder.write(self._shards[number], whole)
                else:
                    raise bad_node(f"rows of shard {number} that are not all of its rows")
                del self._rows[number], self._expected[number]
                self.finished += 1


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
