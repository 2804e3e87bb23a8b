"""The stages of an extraction as plain functions of batches: read, decode, forward. They know nothing of Ray.

Processes that only read are started by the dozen and import this module too, so nothing heavy is imported here.
"""

from __future__ import annotations

import pickle
import time
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fiveshot.backbones import BackboneSpec, NotFiniteError, Preprocessing, load_embedder
from fiveshot.data import BytesSource
from fiveshot.errors import InputError
from fiveshot.features.stream import read_batch
from fiveshot.scale.extraction.batches import END, IDENTITY, Batch, usable
from fiveshot.scale.sources.shards import Shard

ROWS_AT_ONCE = 128
BYTES_AT_ONCE = 8 << 20
READ_COLUMNS = (*IDENTITY, "data", "read_s")
Column = NDArray[Any]


def read_shards(batch: Batch) -> Iterator[Batch]:
    """Yield the encoded images of pickled shards, some at a time, and a marker at the end of each shard."""
    for data in batch["shard"]:
        yield from read_shard(pickle.loads(data))


def read_shard(shard: Shard) -> Iterator[Batch]:
    """Yield the encoded images of a shard, and last a row that says how many there were."""
    rows: list[tuple[Any, ...]] = []
    size = row = 0
    began = time.perf_counter()
    for image in shard.reader.images():
        seconds = time.perf_counter() - began
        rows.append((shard.number, row, image.split, image.name, image.label, image.reason, image.data, seconds))
        row, size = row + 1, size + len(image.data)
        if len(rows) >= ROWS_AT_ONCE or size >= BYTES_AT_ONCE:
            yield _batch(rows)
            rows, size = [], 0
        began = time.perf_counter()
    yield _batch([*rows, (shard.number, row, END, "", "", "", b"", 0.0)])


def _batch(rows: list[tuple[Any, ...]]) -> Batch:
    """Return rows as columns; texts and bytes stay Python objects, whatever their length."""
    kinds = {"shard": np.int64, "row": np.int64, "split": np.int64, "read_s": np.float32}
    batch = {}
    for name, values in zip(READ_COLUMNS, zip(*rows, strict=True), strict=True):
        column = np.empty(len(rows), kinds.get(name, object))
        column[:] = values
        batch[name] = column
    return batch


class Decode:
    """Turns encoded images into pixels for the network; what cannot be decoded gets a reason instead."""

    def __init__(self, preprocessing: Preprocessing) -> None:
        warnings.simplefilter("ignore")  # about metadata, from every decoder there is
        self._preprocessing = preprocessing

    def __call__(self, batch: Batch) -> Batch:
        """Decode a batch."""
        rows = usable(batch)
        images = [BytesSource(batch["data"][i], str(batch["name"][i])) for i in rows]
        decoded = read_batch(images, 0, len(images), self._preprocessing)
        count = len(batch["row"])
        pixels = np.zeros((count, *self._preprocessing.shape), np.uint8)
        if len(decoded.kept):
            pixels[rows[decoded.kept]] = decoded.pixels
        reasons = batch["reason"].copy()
        for position, image in decoded.bad:
            reasons[rows[position]] = image.reason
        seconds = decoded.decode_seconds + decoded.transform_seconds
        return {
            **{name: batch[name] for name in (*IDENTITY, "read_s")},
            "reason": reasons,
            "pixels": pixels,
            "decode_s": _shared(seconds, rows, count),
        }


class Forward:
    """Turns pixels into vectors with a backbone of its own, loaded once."""

    def __init__(self, spec: BackboneSpec, *, fingerprint: str, dtype: str) -> None:
        self._embedder = load_embedder(spec)
        if self._embedder.fingerprint != fingerprint:
            raise InputError(
                f"this node loads another {self._embedder.name} than the machine that asked for it",
                hint="install the same release of fiveshot everywhere, and give the same weights and adapter",
                code="other_backbone",
            )
        self._embedder.runtime  # noqa: B018  # made ready before the first batch comes
        self._dtype = np.dtype(dtype)

    def __call__(self, batch: Batch) -> Batch:
        """Compute the vectors of a batch; rows without a usable image have a vector of zeros."""
        rows, count = usable(batch), len(batch["row"])
        vectors = np.zeros((count, self._embedder.width), self._dtype)
        began = time.perf_counter()
        if len(rows):
            vectors[rows] = self._vectors(batch["pixels"][rows], batch["name"][rows])
        seconds = time.perf_counter() - began
        kept = {name: batch[name] for name in (*IDENTITY, "read_s", "decode_s")}
        return {**kept, "vectors": vectors, "forward_s": _shared(seconds, rows, count)}

    def _vectors(self, pixels: Column, names: Column) -> Column:
        try:
            values = self._embedder.features(pixels)
        except NotFiniteError as error:
            raise NotFiniteError(error.row, str(names[error.row])) from error
        return stored(values, names, self._dtype)


def stored(values: Column, names: Column, dtype: np.dtype[Any]) -> Column:
    """Return vectors (n, d) in the type they are stored in, or name the first image whose values do not fit."""
    with np.errstate(over="ignore"):
        vectors = values.astype(dtype)
    good = np.isfinite(vectors).all(axis=1)
    if not good.all():
        raise InputError(
            f"the vector of {names[int(good.argmin())]} has values too large for {dtype.name}",
            hint="store float32 (--dtype float32)",
            code="too_large",
        )
    return vectors


def _shared(seconds: float, rows: Column, count: int) -> Column:
    """Return the seconds of a batch, shared among the rows that took them."""
    column = np.zeros(count, np.float32)
    column[rows] = seconds / max(1, len(rows))
    return column
