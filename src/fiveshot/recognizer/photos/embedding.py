"""From photos to features: the backbone of a model, and one decoding for all that is kept of a photo."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from threading import Lock

import numpy as np

from fiveshot.backbones import (
    RUNTIMES,
    BackboneSpec,
    Embedder,
    NotFiniteError,
    Preprocessing,
    choose_device,
    default_workers,
    load_embedder,
)
from fiveshot.data import BadImage, ImageError, Reduced, decoders
from fiveshot.data.checking import SHOWN
from fiveshot.errors import InputError, StorageError, unknown_name
from fiveshot.progress import Progress
from fiveshot.recognizer.photos.photo import Parts, Photo
from fiveshot.recognizer.store.contents import file_sha256
from fiveshot.recognizer.store.manifest import BackboneRecord
from fiveshot.recognizer.store.rows import PhotoRecord
from fiveshot.storage import FilePath


def backbone_record(runner: Embedder, *, weights: FilePath | None = None) -> BackboneRecord:
    """Return what names this backbone; its adapter is added when its file has a place."""
    own = runner
    return BackboneRecord(
        own.name,
        own.width,
        runner.fingerprint,
        own.preprocessing.to_json(),
        own.spec.tokens,
        own.spec.last_blocks,
        own.weights_hash,
        "" if weights is None else str(Path(weights).absolute()),
    )


def check_place(device: str, runtime: str) -> None:
    """Refuse a device that this machine has not, or an unknown runtime, before a model is opened for it."""
    if device != "auto":
        choose_device(device)
    if runtime not in RUNTIMES:
        raise unknown_name("runtime", runtime, RUNTIMES)


def open_backbone(
    record: BackboneRecord,
    folder: Path,
    *,
    weights: FilePath | None = None,
    device: str = "auto",
    runtime: str = "auto",
) -> Embedder:
    """Load the backbone a model was made with; another one, or another adapter, is refused.

    Features are computed in float32 on every device, so that a model may move between machines.
    """
    preprocessing = Preprocessing.from_json(record.preprocessing)
    decoders().start(Parts(preprocessing))  # while the backbone is loaded
    adapter = None
    if record.adapter:
        adapter = folder / record.adapter
        if not adapter.is_file() or file_sha256(adapter) != record.adapter_sha256:
            raise StorageError(f"{adapter} is missing or damaged", hint="restore the model from a copy")
    file = weights or record.weights or None
    if file is not None and not Path(file).is_file():
        raise StorageError(
            f"the weights of {record.name} are not at {file}",
            hint="say where they are with weights=FILE (--weights FILE)",
        )
    spec = BackboneSpec(
        record.name,
        weights=file,
        adapter=adapter,
        preprocessing=preprocessing,
        tokens=record.tokens,
        last_blocks=record.last_blocks,
        device=device,
        runtime=runtime,
        precision="float32",
    )
    runner = load_embedder(spec)
    if runner.fingerprint != record.fingerprint:
        raise different_backbone(runner, record)
    return runner


def different_backbone(runner: Embedder, record: BackboneRecord) -> InputError:
    """Return the error for a backbone that makes other features than those the model has learned."""
    own = runner
    if own.weights_hash != record.weights_hash:
        found = f"weights {own.weights_hash[:12]}, not {record.weights_hash[:12]}"
        return InputError(
            f"this is not the {record.name} that the model was made with ({found})",
            hint="name the right file with weights=FILE (--weights FILE), or make a new model with this backbone",
            code="other_backbone",
        )
    return InputError(
        f"{own.name} does not make the features that the model was made with (fingerprint "
        f"{runner.fingerprint[:12]}, not {record.fingerprint[:12]})",
        hint="use the release that made it, or make a new model",
        code="other_backbone",
    )


def see_photos(
    runner: Embedder,
    photos: Sequence[Photo],
    *,
    thumbnails: bool = False,
    originals: bool = False,
    progress: Progress | None = None,
) -> list[PhotoRecord]:
    """Return the features of photos, in order; what cannot be decoded raises one error that lists it all."""
    streams = runner.streams(default_workers())
    size = max(1, min(runner.batch_size, -(-len(photos) // streams)))
    batches = [photos[start : start + size] for start in range(0, len(photos), size)]
    seen: list[PhotoRecord] = []
    bad: list[BadImage] = []
    with QUIET, ThreadPoolExecutor(streams) as pool:
        for good, refused in pool.map(_Look(runner, thumbnails, originals), batches):
            seen += good
            bad += refused
            if progress is not None:
                progress(len(seen) + len(bad), len(photos))
    if bad:
        raise _refusal(bad, len(photos))
    return seen


class _Quiet:
    """No warnings as long as any thread looks at photos.

    Decoding silences them, which is a setting of the whole process: threads that change it and put it back in
    turns would leave it wrong. So the first one sets it and the last one puts it back.
    """

    def __init__(self) -> None:
        self._lock = Lock()
        self._users = 0
        self._held = ExitStack()

    def __enter__(self) -> None:
        with self._lock:
            if self._users == 0:
                self._held.enter_context(warnings.catch_warnings(action="ignore"))
            self._users += 1

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._users -= 1
            if self._users == 0:
                self._held.close()


QUIET = _Quiet()


@dataclass(frozen=True, eq=False)
class _Look:
    runner: Embedder
    thumbnails: bool
    originals: bool

    def __call__(self, photos: Sequence[Photo]) -> tuple[list[PhotoRecord], list[BadImage]]:
        parts = Parts(self.runner.preprocessing, self.thumbnails)
        kept: list[tuple[Photo, Reduced]] = []
        bad: list[BadImage] = []
        for photo in photos:
            try:
                held = photo.loaded() if self.originals else photo  # what is kept is what was decoded
                kept.append((held, decoders().reduce(held.source, parts)))
            except ImageError as error:
                bad.append(BadImage(error.name, error.reason))
        if not kept:
            return [], bad
        pixels = np.stack([self.runner.preprocessing.from_bytes(reduced.parts[0]) for _, reduced in kept])
        try:
            vectors = self.runner.features(pixels)
        except NotFiniteError as error:
            raise NotFiniteError(error.row, kept[error.row][0].name) from error
        seen = [
            PhotoRecord(
                reduced.sha256,
                vector,
                reduced.parts[1],
                held.read() if self.originals else None,
                name=held.name,
            )
            for (held, reduced), vector in zip(kept, vectors, strict=True)
        ]
        return seen, bad


def _refusal(bad: Sequence[BadImage], total: int) -> InputError:
    if total == 1:
        return ImageError(bad[0].name, bad[0].reason)
    lines = [f"  {photo.name}: {photo.reason}" for photo in bad[:SHOWN]]
    more = [f"  and {len(bad) - SHOWN} more"] if len(bad) > SHOWN else []
    head = f"{len(bad)} of {total} photos cannot be used:"
    return InputError(
        "\n".join([head, *lines, *more, "repair them or leave them out; nothing was changed"]), code="bad_photos"
    )
