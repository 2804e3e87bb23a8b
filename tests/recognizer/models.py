"""Models without a backbone, and what they hold in plain NumPy: shared by the tests of storage."""

from __future__ import annotations

import io
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from hashlib import sha256
from pathlib import Path

import numpy as np
from PIL import Image

from fiveshot.recognizer import Recognizer
from fiveshot.recognizer.creation import learn_base
from fiveshot.recognizer.recognition.snapshot import head_record
from fiveshot.recognizer.store.folder import create_model
from fiveshot.recognizer.store.manifest import BackboneRecord, Manifest, Options
from fiveshot.values import Prediction

WIDTH = 12


def photos(name: str, count: int = 5, *, width: int = WIDTH, seed: int = 0) -> np.ndarray:
    """Return features of a class: drawn from its name, so that every test and process has the same."""
    own = [*sha256(name.encode()).digest()[:8]]
    center = np.random.default_rng(own).normal(size=width) * 4
    return (center + np.random.default_rng([seed, *own]).normal(size=(count, width))).astype(np.float32)


def chances(prediction: Prediction) -> dict[str, float]:
    """Return the probabilities of the candidates by class."""
    return {one.label: one.probability for one in prediction.candidates}


def picture(side: int = 32, kind: str = "JPEG", color: str = "teal", **saving: object) -> bytes:
    """Return an encoded picture, which a thumbnail has to be."""
    buffer = io.BytesIO()
    Image.new("RGB", (side, side), color).save(buffer, kind, **saving)
    return buffer.getvalue()


def new_model(
    path: Path,
    *,
    base: tuple[str, ...] = (),
    width: int = WIDTH,
    head: str = "c-fecam",  # its statistics are of the features themselves, and its scores the same on any way
    fingerprint: str = "a" * 64,
    options: Options = Options(),  # noqa: B008  # a frozen value
    **opening: object,
) -> Recognizer:
    """Make a model whose features come from nowhere, with base classes of 30 photos each, and open it."""
    backbone = BackboneRecord("none", width, fingerprint)
    manifest = Manifest(backbone, head_record(head), options=options)
    if not base:
        create_model(path, manifest)
        return Recognizer.open(path, **opening)
    X = np.concatenate([photos(name, 30, width=width) for name in base])
    learned = learn_base(X, np.repeat(base, 30).tolist(), head=manifest.head, options=manifest.options)
    complete = Manifest(backbone, learned.head, options=options, rejection=learned.rejection)
    create_model(path, complete, base=learned.base)
    return Recognizer.open(path, **opening)


def held(model: Recognizer) -> dict[str, object]:
    """Return everything a model holds as plain bytes, so that equal values mean equal bits."""
    contents = model.refresh().contents
    memory = contents.memory
    classes = {
        label: (summary.count, summary.mean.tobytes(), summary.factor.tobytes(), new)
        for label, summary, new in memory
    }
    stored = {
        one.name: (one.id, one.base, one.sha256s, one.features.tobytes(), one.photos.names)
        for one in contents.classes.values()
    }
    return {"classes": classes, "photos": stored, "manifest": contents.manifest.to_toml()}


def files_with(folder: Path, needle: bytes) -> list[str]:
    """Return the files of a folder that hold these bytes anywhere."""
    return [file.name for file in sorted(folder.iterdir()) if needle in file.read_bytes()]


def with_place(side: int = 32) -> bytes:
    """Return a small JPEG that says where it was taken."""
    facts = Image.Exif()
    facts[0x8825] = {1: "N", 2: (52.0, 31.0, 0.0)}  # GPS
    return picture(side, exif=facts)


@contextmanager
def a_reader(path: Path) -> Iterator[None]:
    """Read one state of a model all the time, so that later changes have to stay in the log."""
    with closing(sqlite3.connect(path / "classes.sqlite", isolation_level=None)) as connection:
        connection.execute("BEGIN")
        connection.execute("SELECT count(*) FROM classes").fetchone()
        yield
