"""The backbone of a model, and photos with their features in the form that is stored."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import TypeAlias

from fiveshot.backbones import (
    TORCH,
    BackboneSpec,
    Embedder,
    Preprocessing,
    choose_device,
    load_embedder,
    needs_torch,
)
from fiveshot.data import BadImage, ImageError, Photo, PixelsAndCopies, bad_image_lines, decoders
from fiveshot.errors import InputError, StorageError
from fiveshot.extras import require_extra
from fiveshot.features import KEEP_NOTHING, Keep, PhotoVector, bad_photos, see_photos
from fiveshot.recognizer.store.contents import file_sha256
from fiveshot.recognizer.store.manifest import BackboneRecord, check_folder, read_manifest
from fiveshot.recognizer.store.rows import PhotoRecord
from fiveshot.storage import FilePath
from fiveshot.work import Progress

OnBad: TypeAlias = "Callable[[Sequence[BadImage]], None]"
"""A function that is called with photos that cannot be used, one or more times."""


def check_place(device: str, runtime: str) -> None:
    """Refuse an unknown runtime, or a device that this machine does not have, before a model is opened."""
    choose_device(BackboneSpec(device=str(device), runtime=runtime).device)


def backbone_record(embedder: Embedder) -> BackboneRecord:
    """Return the record of a backbone. Its adapter is added when the adapter's file is stored."""
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
    """Return the specification of the backbone in a record, without its adapter, for a device and a runtime."""
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
    """Refuse a folder that is not a model, or a model that needs missing libraries. Nothing is loaded."""
    check_folder(path)
    record = read_manifest(path).backbone
    if needs_torch(backbone_spec(record, weights=weights, device=device, runtime=runtime)):
        require_extra(*TORCH)


def open_backbone(
    record: BackboneRecord,
    folder: Path,
    *,
    weights: FilePath | None = None,
    device: str = "auto",
    runtime: str = "auto",
) -> Embedder:
    """Load the backbone of a model; refuse another backbone or another adapter."""
    spec = backbone_spec(record, weights=weights, device=device, runtime=runtime)
    decoders().start(PixelsAndCopies(Preprocessing.from_json(record.preprocessing).squares))
    if record.adapter:
        adapter = folder / record.adapter
        if not adapter.is_file() or file_sha256(adapter) != record.adapter_sha256:
            raise StorageError(f"{adapter} is missing or damaged", hint="restore the model from a copy")
        spec = spec.replace(adapter=adapter)
    if spec.weights is not None and not Path(spec.weights).exists():  # a file, or the folder of a bundle
        raise StorageError(
            f"the weights of {record.name} are not at {spec.weights}",
            hint="give their place with weights=FILE (--weights FILE)",
        )
    embedder = load_embedder(spec)
    return own_embedder(embedder, record)


def own_embedder(embedder: Embedder, record: BackboneRecord) -> Embedder:
    """Return an embedder that was given for a model; refuse one that does not make the model's features."""
    if embedder.fingerprint != record.fingerprint:
        raise different_backbone(embedder, record)
    return embedder


def different_backbone(embedder: Embedder, record: BackboneRecord) -> InputError:
    """Return the error for a backbone whose features differ from those of the model."""
    if embedder.weights_hash != record.weights_hash:
        found = f"weights {embedder.weights_hash[:12]}, not {record.weights_hash[:12]}"
        return InputError(
            f"this is not the {record.name} that the model was made with ({found})",
            hint="give the right file with weights=FILE (--weights FILE), or make a new model with this backbone",
            code="other_backbone",
        )
    return InputError(
        f"{embedder.name} does not make the features that the model was made with (fingerprint "
        f"{embedder.fingerprint[:12]}, not {record.fingerprint[:12]})",
        hint="use the release that made it, or make a new model",
        code="other_backbone",
    )


def photo_records(
    embedder: Embedder,
    photos: Sequence[Photo],
    keep: Keep = KEEP_NOTHING,
    *,
    progress: Progress | None = None,
    on_bad: OnBad | None = None,
) -> list[PhotoRecord]:
    """Return photos with their features, in order.

    ``on_bad`` is called with photos that cannot be decoded. Without it, the backbone stops at the first bad photo.
    The rest are only decoded, and one error lists all bad photos.
    """
    if on_bad is None:
        return _all_good(embedder, photos, keep, progress)
    return _without_bad(records_or_bad(embedder, photos, keep, progress=progress), on_bad)


def _all_good(
    embedder: Embedder, photos: Sequence[Photo], keep: Keep, progress: Progress | None
) -> list[PhotoRecord]:
    seen: list[PhotoVector | BadImage] = []
    bad: list[BadImage] = []
    with closing(see_photos(embedder, photos, keep)) as batches:
        for found in batches:
            seen += found
            bad = [one for one in found if isinstance(one, BadImage)]
            if bad:
                break
            if progress is not None:
                progress(len(seen), len(photos))
    if bad:
        bad += bad_photos(photos[len(seen) :], embedder.preprocessing).values()
        raise refusal(bad, len(photos))
    return [photo_record(one) for one in seen if isinstance(one, PhotoVector)]


def records_or_bad(
    embedder: Embedder, photos: Sequence[Photo], keep: Keep = KEEP_NOTHING, *, progress: Progress | None = None
) -> list[PhotoRecord | BadImage]:
    """Return photos with their features, in order. A photo that cannot be decoded is replaced by the reason."""
    seen: list[PhotoRecord | BadImage] = []
    for found in see_photos(embedder, photos, keep):
        seen += [one if isinstance(one, BadImage) else photo_record(one) for one in found]
        if progress is not None:
            progress(len(seen), len(photos))
    return seen


def stream_records(
    embedder: Embedder, photos: Iterable[Photo], on_bad: OnBad | None = None
) -> Iterator[list[PhotoRecord]]:
    """Yield photos with their features in small batches, so only a few are in memory at a time."""
    for found in see_photos(embedder, photos):
        seen = [one if isinstance(one, BadImage) else photo_record(one) for one in found]
        yield _without_bad(seen, on_bad)


def photo_record(seen: PhotoVector) -> PhotoRecord:
    """Return a photo in the form that is stored."""
    photo = seen.photo
    return PhotoRecord(seen.sha256, seen.vector, seen.thumbnail, seen.original, name=photo.name, box=photo.box)


def _without_bad(found: Sequence[PhotoRecord | BadImage], on_bad: OnBad | None) -> list[PhotoRecord]:
    bad = [one for one in found if isinstance(one, BadImage)]
    if bad:
        if on_bad is None:
            raise refusal(bad, len(found))
        on_bad(bad)
    return [one for one in found if isinstance(one, PhotoRecord)]


def refusal(bad: Sequence[BadImage], total: int) -> InputError:
    """Return the one error for all photos that cannot be used."""
    if total == 1:
        return ImageError(bad[0].name, bad[0].reason, code=bad[0].code)
    head = f"{len(bad)} of {total} photos cannot be used:"
    way_out = "repair them or leave them out; nothing was changed"
    return InputError("\n".join([head, *bad_image_lines(bad), way_out]), code="bad_photos")
