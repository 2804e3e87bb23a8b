"""From photos to features: the backbone of a model, and one decoding for all that is kept of a photo."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from itertools import islice
from pathlib import Path
from threading import Barrier, BrokenBarrierError, Lock
from typing import TypeAlias

import numpy as np

from fiveshot.backbones import (
    BackboneSpec,
    Embedder,
    NotFiniteError,
    Preprocessing,
    choose_device,
    default_workers,
    load_embedder,
)
from fiveshot.backbones.embedder import TORCH, needs_torch
from fiveshot.data import BadImage, ImageError, Reduced, decoders
from fiveshot.data.dataset import bad_lines
from fiveshot.data.photo import Photo, by_source, reduced
from fiveshot.data.reduction import Parts
from fiveshot.errors import InputError, StorageError
from fiveshot.extras import require_extra
from fiveshot.recognizer.store.contents import file_sha256
from fiveshot.recognizer.store.manifest import BackboneRecord, Manifest, check_folder, read_manifest_file
from fiveshot.recognizer.store.rows import Floats, PhotoRecord
from fiveshot.storage import FilePath
from fiveshot.work import Progress

OnBad: TypeAlias = "Callable[[Sequence[BadImage]], None]"
"""Called with photos that cannot be used, once or several times."""
STREAMED = 2  # batches for each thread that are in work together when photos are streamed
_COPIES = 1 << 20  # bytes of a file from which on a copy of its part may be twice as large


def check_place(device: str, runtime: str) -> None:
    """Refuse a device that this machine does not have, or an unknown runtime, before a model is opened for it."""
    choose_device(BackboneSpec(device=str(device), runtime=runtime).device)


def backbone_record(embedder: Embedder) -> BackboneRecord:
    """Return what names this backbone; its adapter is added when its file has a place."""
    spec = embedder.spec
    return BackboneRecord(
        embedder.name,
        embedder.width,
        embedder.fingerprint,
        embedder.preprocessing.to_json(),
        spec.tokens,
        spec.last_blocks,
        embedder.weights_hash,
        "" if spec.weights is None else str(Path(spec.weights).absolute()),
    )


def backbone_spec(
    record: BackboneRecord, *, weights: FilePath | None = None, device: str = "auto", runtime: str = "auto"
) -> BackboneSpec:
    """Return the backbone that a record describes, without an adapter, to run where it is asked for."""
    return BackboneSpec(
        record.name,
        weights=weights or record.weights or None,
        preprocessing=Preprocessing.from_json(record.preprocessing),
        tokens=record.tokens,
        last_blocks=record.last_blocks,
        device=device,
        runtime=runtime,
        precision="float32",  # on every device, so that a model may move between machines
    )


def check_openable(
    path: Path, *, weights: FilePath | None = None, device: str = "auto", runtime: str = "auto"
) -> None:
    """Refuse what is not a model, and a model whose backbone needs missing libraries; nothing is loaded."""
    check_folder(path)
    record = Manifest.from_toml(read_manifest_file(path)).backbone
    if needs_torch(backbone_spec(record, weights=weights, device=device, runtime=runtime)):
        require_extra(*TORCH)


def open_backbone(
    record: BackboneRecord,
    folder: Path,
    *,
    weights: FilePath | None = None,
    device: str = "auto",
    runtime: str = "auto",
    first: Photo | None = None,
) -> Embedder:
    """Load the backbone a model was made with; another one, or another adapter, is refused.

    The ``first`` photo that ``look_at`` will be asked for is decoded meanwhile.
    """
    spec = backbone_spec(record, weights=weights, device=device, runtime=runtime)
    parts = Parts(Preprocessing.from_json(record.preprocessing).squares)
    # Of a photo with boxes, several parts may be asked for together.
    decoders().start(parts, None if first is None or first.box is not None else first.source)
    if record.adapter:
        adapter = folder / record.adapter
        if not adapter.is_file() or file_sha256(adapter) != record.adapter_sha256:
            raise StorageError(f"{adapter} is missing or damaged", hint="restore the model from a copy")
        spec = spec.replace(adapter=adapter)
    if spec.weights is not None and not Path(spec.weights).is_file():
        raise StorageError(
            f"the weights of {record.name} are not at {spec.weights}",
            hint="say where they are with weights=FILE (--weights FILE)",
        )
    embedder = load_embedder(spec)
    if embedder.fingerprint != record.fingerprint:
        raise different_backbone(embedder, record)
    return embedder


def different_backbone(embedder: Embedder, record: BackboneRecord) -> InputError:
    """Return the error for a backbone that makes other features than those the model has learned."""
    if embedder.weights_hash != record.weights_hash:
        found = f"weights {embedder.weights_hash[:12]}, not {record.weights_hash[:12]}"
        return InputError(
            f"this is not the {record.name} that the model was made with ({found})",
            hint="name the right file with weights=FILE (--weights FILE), or make a new model with this backbone",
            code="other_backbone",
        )
    return InputError(
        f"{embedder.name} does not make the features that the model was made with (fingerprint "
        f"{embedder.fingerprint[:12]}, not {record.fingerprint[:12]})",
        hint="use the release that made it, or make a new model",
        code="other_backbone",
    )


def see_photos(
    embedder: Embedder,
    photos: Sequence[Photo],
    *,
    thumbnails: bool = False,
    originals: bool = False,
    progress: Progress | None = None,
    meanwhile: Callable[[], object] | None = None,
    on_bad: OnBad | None = None,
) -> list[PhotoRecord]:
    """Return photos with their features, in order.

    What cannot be decoded is told to ``on_bad``; where nobody is to be told, one error lists it all.
    """
    found = look_at(
        embedder,
        photos,
        thumbnails=thumbnails,
        originals=originals,
        progress=progress,
        meanwhile=meanwhile,
        strict=on_bad is None,
    )
    return told_good(found, on_bad, total=len(photos))


def look_at(
    embedder: Embedder,
    photos: Sequence[Photo],
    *,
    thumbnails: bool = False,
    originals: bool = False,
    progress: Progress | None = None,
    meanwhile: Callable[[], object] | None = None,
    strict: bool = False,
) -> list[PhotoRecord | BadImage]:
    """Return photos with their features, in order, and in the place of each that cannot be decoded, why.

    Each thread of one pool decodes a batch and runs the network on it, so that no more photos are in memory
    than threads can work on. The network is loaded after the first batches are decoded; where this is ``strict``
    and one of their photos is bad, it is not loaded at all, and what is returned of good photos is not whole.
    ``meanwhile`` is what this thread can do while the network is loaded and runs.
    """
    workers = default_workers()
    size = max(1, min(embedder.batch_size, -(-len(photos) // workers)))
    batches = [photos[start : start + size] for start in range(0, len(photos), size)]
    first = min(workers, len(batches))
    seen: list[PhotoRecord | BadImage] = []
    gate, done = _Gate(first, strict=strict), 0
    with QUIET, ThreadPoolExecutor(max(1, first)) as pool, gate:
        look = partial(_seen_batch, embedder, thumbnails, originals, gate)
        found = pool.map(look, (number < first for number in range(len(batches))), batches)
        if gate.opens() and meanwhile is not None:
            meanwhile()
        try:
            for batch, looked_at in zip(batches, found, strict=True):
                seen += looked_at
                done += len(batch)
                if progress is not None:
                    progress(done, len(photos))
        except BaseException:  # an interrupt: nobody waits for what has not begun
            pool.shutdown(wait=False, cancel_futures=True)
            raise
    return seen


def told_good(found: Sequence[PhotoRecord | BadImage], on_bad: OnBad | None, *, total: int) -> list[PhotoRecord]:
    """Return the photos that were seen, after telling of the others; nobody to tell makes these an error.

    ``total`` is how many were given: of good photos beside bad ones, some may not have been looked at.
    """
    bad = [one for one in found if isinstance(one, BadImage)]
    if bad:
        if on_bad is None:
            raise refusal(bad, total)
        on_bad(bad)
    return [one for one in found if isinstance(one, PhotoRecord)]


def look_through(
    embedder: Embedder, photos: Iterable[Photo], *, meanwhile: Callable[[], object] | None = None
) -> Iterator[list[PhotoRecord | BadImage]]:
    """Do what ``look_at`` does for some photos at a time: however many come, few are in memory."""
    left, size = iter(photos), STREAMED * default_workers() * embedder.batch_size
    while chunk := list(islice(left, size)):
        yield look_at(embedder, chunk, meanwhile=meanwhile)
        meanwhile = None


class _Gate:
    """In front of the network: it opens when the first batches are decoded and one of their photos is good.

    Where it is strict, it stays closed if one of them is bad.
    """

    def __init__(self, batches: int, *, strict: bool) -> None:
        self._all = Barrier(batches + 1)  # those who decode them, and whoever waits for all
        self._good = self._bad = False
        self._strict = strict

    def opens(self, *, good: bool = False, bad: bool = False, wait: bool = True) -> bool:
        """Tell whether the network may run, after waiting for the others of the first batches."""
        self._good |= good
        self._bad |= bad and self._strict
        try:
            if wait:
                self._all.wait()
        except BrokenBarrierError:  # an error elsewhere, of which all will hear
            return False
        return self._good and not self._bad

    def __enter__(self) -> _Gate:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None:
            self._all.abort()  # nobody waits for those who were stopped by an error


def _seen_batch(
    embedder: Embedder, thumbnails: bool, originals: bool, gate: _Gate, first: bool, photos: Sequence[Photo]
) -> list[PhotoRecord | BadImage]:
    parts = Parts(embedder.preprocessing.squares, thumbnails)
    found: list[tuple[Photo, Reduced] | BadImage] = []
    with gate:
        for same in by_source(photos):
            found += _decoded(same, parts, originals)
    kept = [one for one in found if not isinstance(one, BadImage)]
    if not gate.opens(good=bool(kept), bad=len(kept) < len(found), wait=first) or not kept:
        return [one for one in found if isinstance(one, BadImage)]
    pixels = np.stack([embedder.preprocessing.from_bytes(reduced.parts[0]) for _, reduced in kept])
    try:
        vectors = iter(embedder.features(pixels))
    except NotFiniteError as error:
        raise NotFiniteError(error.row, kept[error.row][0].name) from error
    return [
        one if isinstance(one, BadImage) else _record(*one, next(vectors), originals=originals) for one in found
    ]


def _decoded(same: Sequence[Photo], parts: Parts, originals: bool) -> Iterator[tuple[Photo, Reduced] | BadImage]:
    """Yield what is made of the parts of one photo, and of each that cannot be used, why."""
    try:
        if originals:  # what is kept is what was decoded
            source = same[0].loaded().source
            same = [replace(photo, source=source) for photo in same]
            parts = replace(parts, copy_of=None if same[0].box is None else _COPIES)
        made = reduced(same, parts)
    except ImageError as error:
        made = [Reduced(error=error)] * len(same)
    for photo, one in zip(same, made, strict=True):
        bad = one.error
        yield (photo, one) if bad is None else BadImage(bad.name, bad.reason, bad.code)


def _record(photo: Photo, reduced: Reduced, vector: Floats, *, originals: bool) -> PhotoRecord:
    original = None
    if originals:  # of a part of a file, a copy of that part is kept
        original = photo.read() if photo.box is None else reduced.parts[2]
    digest = photo.digest(reduced.sha256)
    return PhotoRecord(digest, vector, reduced.parts[1], original, name=photo.name, box=photo.box)


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


def refusal(bad: Sequence[BadImage], total: int) -> InputError:
    """Return the one error for all photos that cannot be used."""
    if total == 1:
        return ImageError(bad[0].name, bad[0].reason, code=bad[0].code)
    head = f"{len(bad)} of {total} photos cannot be used:"
    way_out = "repair them or leave them out; nothing was changed"
    return InputError("\n".join([head, *bad_lines(bad), way_out]), code="bad_photos")
