"""The contents of a model in one state: the base file and the rows. Unchanged parts are shared between states."""

from __future__ import annotations

import hashlib
import json
import math
import sqlite3
from collections.abc import Collection, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from fiveshot.core import NO_CLASSES, ClassStatistics, ClassSummary, Memory
from fiveshot.core.arrays import unit_rows
from fiveshot.core.labels import python_labels
from fiveshot.core.statistics import statistics_arrays, statistics_from_arrays, unknown_class
from fiveshot.errors import StorageError
from fiveshot.recognizer.names import NONE, known_name
from fiveshot.recognizer.store.manifest import MANIFEST, BaseRecord, Manifest
from fiveshot.recognizer.store.rows import (
    ClassPhotos,
    Floats,
    PhotoRecord,
    class_of,
    class_rows,
    photo_features,
    read_features,
)
from fiveshot.storage import read_tensors, write_tensors

KIND, VERSION = "recognizer base", 1  # of the base file
TOLERANCE = 1e-4  # relative: the sum of 32-bit rounding errors over many merges
SAME = 0.999  # from this cosine of their features on, two photos are near copies


@dataclass(frozen=True)
class Twin:
    """A photo that was learned before: its class, and whether it is the same file or a near copy."""

    label: str
    same_file: bool
    likeness: float = 1.0


def likest(likeness: Iterable[tuple[str, Floats]]) -> Twin | None:
    """Return the most similar photo, if it is similar enough, from classes and the similarity of their photos.

    >>> likest([("owl", np.array([0.2, 0.9995])), ("wren", np.array([0.9993]))]).label
    'owl'
    """
    found = [Twin(label, same_file=False, likeness=float(values.max())) for label, values in likeness]
    best = max(found, key=lambda twin: twin.likeness, default=None)
    return best if best is not None and best.likeness > SAME else None


@dataclass(frozen=True, eq=False)
class KnownPhotos:
    """The photos that a model has learned; their order depends only on the photos."""

    labels: tuple[str, ...]  # (m,)
    sha256s: tuple[str, ...]  # (m,)
    features: Floats  # (m, d)

    def of(self, name: str) -> Floats:
        """Return the features of one class's photos, in order."""
        own: Floats = self.features[np.array(self.labels, dtype=np.str_) == name]
        return own

    def twins(self, photos: Sequence[PhotoRecord], *, but: str | None = None) -> list[Twin | None]:
        """Return for each photo the learned photo that is the same file or a near copy; ``but`` skips a class."""
        rows = [row for row, label in enumerate(self.labels) if label != but]
        if not rows:
            return [None] * len(photos)
        files = {self.sha256s[row]: self.labels[row] for row in reversed(rows)}  # the first of equal photos
        products = unit_rows(photo_features(photos)) @ unit_rows(self.features[rows]).T  # (n, m)
        found: list[Twin | None] = []
        for photo, likeness in zip(photos, products, strict=True):
            if photo.sha256 in files:
                found.append(Twin(files[photo.sha256], same_file=True))
            else:
                nearest = int(likeness.argmax())
                found.append(likest([(self.labels[rows[nearest]], likeness[nearest, None])]))
        return found


@dataclass(frozen=True, eq=False)
class StoredClass:
    """A row of the database: a class learned after the base, or what was added to a base class."""

    id: int
    name: str
    base: bool
    changed: int  # the state in which it was last written
    summary: ClassSummary  # of the photos in the database
    total: ClassSummary  # of these photos and, for a base class, those of the base file
    photos: ClassPhotos

    @property
    def sha256s(self) -> tuple[str, ...]:
        """Digests of the photos, (n,)."""
        return self.photos.sha256s

    @property
    def features(self) -> Floats:
        """Features of the photos, (n, d)."""
        return self.photos.features

    def numbers_of(self, sha256s: Collection[str]) -> list[int]:
        """Return the numbers of the photos that have one of these digests."""
        return [one for one, sha256 in zip(self.photos.ids, self.sha256s, strict=True) if sha256 in sha256s]


@dataclass(frozen=True, eq=False)
class Contents:
    """All statistics of a model in one state. Summaries that did not change are the same objects as before."""

    state: int
    manifest: Manifest
    base_file: ClassStatistics
    base: ClassStatistics  # the classes of the file with the photos added to them
    rows: dict[int, StoredClass]  # by number, the negatives among them
    named: dict[str, StoredClass]  # the same by name
    known: ClassStatistics | None = None  # statistics of the classes outside of the base, if they were combined
    since: int = 0  # the state that was read before,
    touched: frozenset[int] = frozenset()  # and the numbers of the rows added, changed or deleted since

    @cached_property
    def classes(self) -> dict[int, StoredClass]:
        """The stored classes by number."""
        if self.negatives is None:
            return self.rows
        return {number: one for number, one in self.rows.items() if one.name != NONE}

    @property
    def negatives(self) -> StoredClass | None:
        """The photos that show none of the classes, stored like a class."""
        return self.named.get(NONE)

    @cached_property
    def memory(self) -> Memory:
        """What a head works on."""
        if self.known is not None:
            return Memory(self.base, self.known)
        new = {one.name: one.summary for one in self.classes.values() if not one.base}
        return Memory(self.base, ClassStatistics.of(new))

    @cached_property
    def by_name(self) -> dict[str, StoredClass]:
        """The stored classes by name."""
        if self.negatives is None:
            return self.named
        return {one.name: one for one in self.classes.values()}

    def same_photos(self, other: Contents) -> bool:
        """Return whether another state has exactly the same classes and photos."""
        same = self.rows.keys() == other.rows.keys() and self.base is other.base
        return same and all(one is other.rows[number] for number, one in self.rows.items())

    def __contains__(self, name: object) -> bool:
        return name in self.by_name or name in self.base_file

    def require(self, name: str) -> None:
        """Refuse an unknown class."""
        if name not in self:
            raise unknown_class(name, self.memory.labels)

    @property
    def photos(self) -> KnownPhotos:
        """The photos in the database, class by class. They are a second copy, so they are combined only on
        request."""
        parts = sorted(self.classes.values(), key=lambda one: one.name)
        labels = tuple(one.name for one in parts for _ in one.sha256s)
        sha256s = tuple(digest for one in parts for digest in one.sha256s)
        features = np.concatenate([np.zeros((0, self.width), np.float32), *(one.features for one in parts)])
        return KnownPhotos(labels, sha256s, features)

    @property
    def width(self) -> int:
        """Length of a feature vector."""
        return self.manifest.backbone.width


def state_number(text: str | None) -> int:
    """Return the number of a state in the database; refuse a damaged one."""
    if text is None or not (text.isascii() and text.isdecimal()):
        raise StorageError(f"the number of the model's state is damaged ({text!r})", hint="restore it from a copy")
    return int(text)


def read_contents(connection: sqlite3.Connection, folder: Path, previous: Contents | None) -> Contents:
    """Read the state that the connection's transaction sees, reusing unchanged parts of ``previous``."""
    meta = dict(connection.execute("SELECT key, value FROM meta"))
    state, text = state_number(meta.get("state")), meta["manifest"]
    if previous is not None and previous.manifest.to_toml() == text:
        manifest = previous.manifest
    else:
        manifest = Manifest.from_toml(text, where=folder / MANIFEST)
    width = manifest.backbone.width
    if previous is None or _makes(previous.manifest) != _makes(manifest):
        base_file = read_base(folder, manifest.base)
        rows, _ = _rows(connection, width, base_file, {}, 0)
        named = {one.name: one for one in rows.values()}
        return Contents(state, manifest, base_file, _overlaid(base_file, rows), rows, named)
    # Few of many classes have changed, so the combined statistics are updated, not computed again.
    rows, touched = _rows(connection, width, previous.base_file, previous.rows, previous.state)
    gone = [previous.rows[number] for number in touched if number in previous.rows]
    come = [rows[number] for number in touched if number in rows]
    grown = any(one.base for one in (*gone, *come))
    base = _overlaid(previous.base_file, rows) if grown else previous.base
    named = dict(previous.named)
    for one in gone:
        del named[one.name]
    named |= {one.name: one for one in come}
    new = _changed_statistics(previous.memory.new, gone, come)
    since = previous.state
    return Contents(state, manifest, previous.base_file, base, rows, named, new, since, frozenset(touched))


def _makes(manifest: Manifest) -> tuple[object, ...]:
    """Return everything but photos that statistics depend on. States that differ in it share nothing."""
    return manifest.base, manifest.backbone, manifest.head


def _changed_statistics(
    known: ClassStatistics, gone: Sequence[StoredClass], come: Sequence[StoredClass]
) -> ClassStatistics:
    dropped = [one.name for one in gone if not one.base and one.name != NONE]
    added = {one.name: one.summary for one in come if not one.base and one.name != NONE}
    return (known.drop(dropped) if dropped else known).merge(ClassStatistics.of(added))


def _rows(
    connection: sqlite3.Connection,
    width: int,
    base_file: ClassStatistics,
    known: dict[int, StoredClass],
    since: int,
) -> tuple[dict[int, StoredClass], set[int]]:
    """Return all rows, and the numbers of those that were added, changed or deleted."""
    found = class_rows(connection, since=since)
    with ThreadPoolExecutor(1) as aside:  # verifying checksums takes as long as reading
        checked = aside.submit(lambda: [class_of(row) for row in found])
        shown = read_features(connection, width, [row[0] for row in found] if since else None)
        changed = {row[0]: one for row, one in zip(found, checked.result(), strict=True)}
    classes = _left(connection, known, changed)
    touched = known.keys() - classes.keys() if len(classes) < len(known) else set()
    for number, one in changed.items():
        before, summary = known.get(number), one.summary
        if before is not None and same_bits(before.summary, summary):
            summary, total = before.summary, before.total  # only the name is new
        else:
            total = base_file[one.name].merge(summary) if one.base else summary
        photos = shown.get(number) or ClassPhotos((), (), np.zeros((0, width), np.float32))
        classes[number] = StoredClass(number, one.name, one.base, one.changed, summary, total, photos)
    return classes, touched | changed.keys()


def _left(
    connection: sqlite3.Connection, known: dict[int, StoredClass], changed: Collection[int]
) -> dict[int, StoredClass]:
    """Return the known classes that still exist, in the order of their numbers."""
    (count,) = connection.execute("SELECT COUNT(*) FROM classes").fetchone()
    if count == len(known) + sum(number not in known for number in changed):  # numbers are never reused
        return dict(known)
    present = {number for (number,) in connection.execute("SELECT id FROM classes")}
    return {number: one for number, one in known.items() if number in present}


def same_bits(first: ClassSummary, second: ClassSummary) -> bool:
    """Return whether two summaries are equal to the last bit."""
    return (
        first.count == second.count
        and np.array_equal(first.mean, second.mean)
        and np.array_equal(first.factor, second.factor)
    )


def _overlaid(file: ClassStatistics, rows: dict[int, StoredClass]) -> ClassStatistics:
    """Return the statistics of the base file, including photos that were added to its classes."""
    grown = {one.name: one.total for one in rows.values() if one.base}
    if not grown:
        return file
    summaries = tuple(grown.get(str(label), own) for label, own in zip(file.labels, file.summaries, strict=True))
    return ClassStatistics(file.labels, summaries)


def same_statistics(first: ClassSummary, second: ClassSummary) -> bool:
    """Return whether two summaries describe the same samples, up to rounding.

    Factors of one scatter matrix differ by a rotation. So the matrices are compared without computing them:
    ‖AᵀA − BᵀB‖² = ‖AAᵀ‖² + ‖BBᵀ‖² − 2 ‖ABᵀ‖².

    >>> from fiveshot.core import summarize
    >>> X = np.eye(4, dtype=np.float32)
    >>> same_statistics(summarize(X), summarize(X[:2]).merge(summarize(X[2:])))
    True
    """
    if first.count != second.count or first.mean.shape != second.mean.shape:
        return False
    mean, other, a, b = (
        np.asarray(values, np.float64) for values in (first.mean, second.mean, first.factor, second.factor)
    )
    scale = float(np.linalg.norm(other) + np.linalg.norm(b)) + 1e-12
    if float(np.linalg.norm(mean - other)) > TOLERANCE * scale:
        return False
    apart = sum(sign * float(np.square(x @ y.T).sum()) for sign, x, y in ((1, a, a), (1, b, b), (-2, a, b)))
    return math.sqrt(max(apart, 0.0)) <= TOLERANCE * scale**2


def write_base(folder: Path, statistics: ClassStatistics) -> BaseRecord:
    """Write the base file and return its record. Equal statistics give equal bytes and the same name."""
    if not len(statistics):
        return BaseRecord()
    labels, arrays = python_labels(statistics.labels), statistics_arrays(statistics)
    content = hashlib.sha256(json.dumps(labels).encode())
    for key in sorted(arrays):
        content.update(np.ascontiguousarray(arrays[key]).data)
    name = f"base-{content.hexdigest()[:16]}.safetensors"
    write_tensors(folder / name, arrays, kind=KIND, version=VERSION, meta={"labels": labels})
    return BaseRecord(name, file_sha256(folder / name), len(labels))


def read_base(folder: Path, record: BaseRecord) -> ClassStatistics:
    """Read the base file that a manifest names; refuse a missing, changed or damaged file."""
    if not record.file:
        return NO_CLASSES
    path = folder / record.file
    if not path.is_file():
        raise StorageError(f"no such file: {path}", hint="the model is incomplete: restore it from a copy")
    if file_sha256(path) != record.sha256:
        raise StorageError(
            f"{path} is damaged or was replaced (its SHA-256 differs)", hint="restore it from a copy"
        )
    file = read_tensors(path, kind=KIND, version=VERSION)
    try:
        labels = file.meta["labels"]
        if labels != sorted(set(labels)) or any(known_name(label) != label for label in labels):
            raise ValueError("names are not sorted, not unique or not in normal form")
        if len(labels) != record.classes:
            raise ValueError(f"it holds {len(labels)} classes, not {record.classes}")
        return checked_statistics(labels, file.tensors)
    except (KeyError, TypeError, ValueError, RuntimeError) as error:
        raise StorageError(
            f"{path} does not hold the base classes' statistics ({error})", hint="restore it from a copy"
        ) from error


def checked_statistics(labels: list[str], arrays: Mapping[str, NDArray[Any]]) -> ClassStatistics:
    """Return the statistics in an untrusted file, after checking every shape, type and value."""
    if not labels:
        return NO_CLASSES
    n, width = len(labels), arrays["means"].shape[-1]
    check_array(arrays, "counts", (n,), np.int64)
    check_array(arrays, "ranks", (n,), np.int64)
    check_array(arrays, "means", (n, width), np.float32)
    counts, ranks = arrays["counts"], arrays["ranks"]
    if (counts < 1).any() or (ranks < 0).any() or (ranks > np.minimum(counts, width)).any():
        raise ValueError("counts and ranks do not fit")
    check_array(arrays, "factors", (int(ranks.sum()), width), np.float32)
    return statistics_from_arrays(labels, arrays)


def check_array(arrays: Mapping[str, NDArray[Any]], key: str, shape: tuple[int, ...], dtype: DTypeLike) -> None:
    """Refuse an array with another shape or type, or with NaN or infinity."""
    found = arrays[key]
    if found.shape != shape or found.dtype != dtype:
        raise ValueError(
            f"{key} has shape {found.shape} and type {found.dtype}, not {shape} and {np.dtype(dtype)}"
        )
    if found.dtype.kind == "f" and not np.isfinite(found).all():
        raise ValueError(f"{key} holds NaN or infinity")


def file_sha256(path: Path) -> str:
    """Return the SHA-256 of a file."""
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise StorageError(f"cannot read {path}: {error.strerror or error}") from error
