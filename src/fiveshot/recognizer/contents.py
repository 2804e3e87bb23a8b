"""What a model holds at one moment, read from its database; what did not change is not read again."""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from fiveshot.heads.memory import Memory
from fiveshot.recognizer.base_file import read_base
from fiveshot.recognizer.likeness import KnownPhotos
from fiveshot.recognizer.manifest import MANIFEST, Manifest
from fiveshot.recognizer.rows import read_features, read_summaries
from fiveshot.statistics import ClassStatistics, ClassSummary


@dataclass(frozen=True, eq=False)
class StoredClass:
    """A row of the database: a class learned after the base, or what was added to a base class."""

    id: int
    name: str
    base: bool
    changed: int  # the state in which it was last written
    summary: ClassSummary  # of the photos in the database
    total: ClassSummary  # of these and, for a base class, those of the base file
    sha256s: tuple[str, ...]  # (n,) of the photos
    features: Tensor  # (n, d) of the photos


@dataclass(frozen=True, eq=False)
class Contents:
    """All statistics of a model in one state. Summaries that did not change are the same objects as before."""

    state: int
    manifest: Manifest
    base_file: ClassStatistics
    base: ClassStatistics  # the file's classes with what was added to them
    classes: dict[int, StoredClass]

    @cached_property
    def memory(self) -> Memory:
        """What a head works on."""
        new = {one.name: one.summary for one in self.classes.values() if not one.base}
        return Memory(self.base, ClassStatistics.of(new))

    @cached_property
    def by_name(self) -> dict[str, StoredClass]:
        """The rows by name."""
        return {one.name: one for one in self.classes.values()}

    def __contains__(self, name: object) -> bool:
        return name in self.by_name or name in self.base_file

    @property
    def photos(self) -> KnownPhotos:
        """The photos in the database, class by class; put together when asked for, because it is a second copy."""
        parts = list(self.classes.values())
        labels = tuple(one.name for one in parts for _ in one.sha256s)
        sha256s = tuple(digest for one in parts for digest in one.sha256s)
        features = torch.cat([one.features for one in parts]) if parts else torch.zeros(0, self.width)
        return KnownPhotos(labels, sha256s, features)

    @property
    def width(self) -> int:
        """Length of a feature vector."""
        return self.manifest.backbone.width


def read_contents(connection: sqlite3.Connection, folder: Path, previous: Contents | None) -> Contents:
    """Read the state that the connection's transaction sees, reusing what ``previous`` has of it."""
    meta = dict(connection.execute("SELECT key, value FROM meta"))
    state = int(meta["state"])
    manifest = previous.manifest if previous is not None else None
    if previous is None or previous.manifest.to_toml() != meta["manifest"]:
        manifest = Manifest.from_toml(meta["manifest"], where=folder / MANIFEST)
    assert manifest is not None
    same_file = previous is not None and previous.manifest.base == manifest.base
    same_space = previous is not None and (previous.manifest.backbone, previous.manifest.head) == (
        manifest.backbone,
        manifest.head,
    )
    base_file = previous.base_file if previous is not None and same_file else read_base(folder, manifest.base)
    known = previous.classes if previous is not None and same_file and same_space else {}
    since = previous.state if known and previous is not None else 0
    classes = _classes(connection, manifest.backbone.width, base_file, known, since)
    grown = {one.name: one.total for one in classes.values() if one.base}
    unchanged = previous is not None and same_file and _same_objects(grown, previous)
    base = previous.base if previous is not None and unchanged else _overlaid(base_file, grown)
    return Contents(state, manifest, base_file, base, classes)


def _classes(
    connection: sqlite3.Connection,
    width: int,
    base_file: ClassStatistics,
    known: dict[int, StoredClass],
    since: int,
) -> dict[int, StoredClass]:
    changed = read_summaries(connection, since=since)
    shown = read_features(connection, width, changed if since else None)
    classes = {}
    for number, state in connection.execute("SELECT id, changed FROM classes ORDER BY id"):
        if number not in changed:
            classes[number] = known[number]
            continue
        name, base, summary = changed[number]
        before = known.get(number)
        if before is not None and same_bits(before.summary, summary):
            summary, total = before.summary, before.total  # a new name alone
        else:
            total = base_file[name].merge(summary) if base else summary
        sha256s, features = shown.get(number, ((), np.zeros((0, width), np.float32)))
        rows = torch.from_numpy(features)
        classes[number] = StoredClass(number, name, base, state, summary, total, sha256s, rows)
    return classes


def same_bits(first: ClassSummary, second: ClassSummary) -> bool:
    """Tell whether two summaries are equal to the last bit."""
    return first.count == second.count and first.mean.equal(second.mean) and first.factor.equal(second.factor)


def _same_objects(grown: dict[str, ClassSummary], previous: Contents) -> bool:
    before = {one.name: one.total for one in previous.classes.values() if one.base}
    return grown.keys() == before.keys() and all(grown[name] is before[name] for name in grown)


def _overlaid(file: ClassStatistics, grown: dict[str, ClassSummary]) -> ClassStatistics:
    if not grown:
        return file
    summaries = tuple(grown.get(str(label), own) for label, own in zip(file.labels, file.summaries, strict=True))
    return ClassStatistics(file.labels, summaries)
