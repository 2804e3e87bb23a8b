"""The stages that compute, as plain callables on batches: decode, forward. Nothing here knows of Ray."""

from __future__ import annotations

import time
import warnings
from typing import Any

import numpy as np
import torch

from fiveshot.backbones import Preprocessing
from fiveshot.data import BytesSource
from fiveshot.errors import InputError
from fiveshot.features.batch_stream import device_of
from fiveshot.features.extraction_job import DTYPES
from fiveshot.features.image_batches import read_batch
from fiveshot.scale.backbone_spec import BackboneSpec
from fiveshot.scale.columns import END, IDENTITY, Batch


class Decode:
    """Turns encoded images into pixels, ready for the network; what cannot be decoded gets a reason instead."""

    def __init__(self, preprocessing: Preprocessing) -> None:
        torch.set_num_threads(1)
        warnings.simplefilter("ignore")  # about metadata, from every decoder there is
        self._size = preprocessing.size
        self._transform = preprocessing.pixel_transform()

    def __call__(self, batch: Batch) -> Batch:
        """Decode a batch."""
        whole = np.flatnonzero((batch["split"] != END) & (batch["reason"].astype(str) == ""))
        images = [BytesSource(batch["data"][i], str(batch["name"][i])) for i in whole]
        decoded = read_batch(images, 0, len(images), self._transform)
        count = len(batch["row"])
        pixels = np.zeros((count, 3, self._size, self._size), np.uint8)
        if len(decoded.kept):
            pixels[whole[decoded.kept]] = decoded.pixels.numpy()
        reasons = batch["reason"].copy()
        for position, image in decoded.bad:
            reasons[whole[position]] = image.reason
        seconds = decoded.decode_seconds + decoded.transform_seconds
        identity = {name: batch[name] for name in IDENTITY}
        return {
            **identity,
            "reason": reasons,
            "pixels": pixels,
            "read_s": batch["read_s"],
            "decode_s": _shared(seconds, whole, count),
        }


class Forward:
    """Turns pixels into vectors with a backbone of its own, loaded once."""

    def __init__(self, spec: BackboneSpec, *, fingerprint: str, dtype: str) -> None:
        torch.set_num_threads(1)
        self._runner = spec.load()
        if self._runner.fingerprint != fingerprint:
            raise InputError(
                f"this node loads another {self._runner.name} than the machine that asked for it; install the "
                "same release of fiveshot everywhere, and give the same weights and adapter"
            )
        self._runner.extractor  # noqa: B018  # made ready before the first batch comes
        self._dtype = DTYPES[dtype]

    def __call__(self, batch: Batch) -> Batch:
        """Compute the vectors of a batch; rows that hold no image have a vector of zeros."""
        whole = np.flatnonzero((batch["split"] != END) & (batch["reason"].astype(str) == ""))
        count = len(batch["row"])
        vectors = np.zeros((count, self._runner.width), self._dtype)
        began = time.perf_counter()
        if len(whole):
            pixels = torch.from_numpy(batch["pixels"][whole]).to(device_of(self._runner))
            values = self._runner.features(self._runner.preprocessing.normalise(pixels)).cpu().numpy()
            with np.errstate(over="ignore"):
                vectors[whole] = values
            self._check(vectors[whole], batch["name"][whole])
        seconds = time.perf_counter() - began
        kept = {name: batch[name] for name in (*IDENTITY, "read_s", "decode_s")}
        return {**kept, "vectors": vectors, "forward_s": _shared(seconds, whole, count)}

    def _check(self, vectors: Any, names: Any) -> None:
        good = np.isfinite(vectors).all(axis=1)
        if not good.all():
            raise InputError(
                f"the vector of {names[int(good.argmin())]} is not finite in {np.dtype(self._dtype).name}; "
                "store float32 (--dtype float32), or check the backbone's weights"
            )


def _shared(seconds: float, rows: Any, count: int) -> Any:
    """Return the seconds of a batch, dealt out to the rows that took them."""
    column = np.zeros(count, np.float32)
    column[rows] = seconds / max(1, len(rows))
    return column
