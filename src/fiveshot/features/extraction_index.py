"""Find cached features again without reading the images, as long as no file has changed."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np

from fiveshot.data import BadImage, bad_images_error, check_images
from fiveshot.errors import StorageError
from fiveshot.features.cache import CacheKey, FeatureCache
from fiveshot.features.extraction_job import ExtractionJob, digest
from fiveshot.features.extraction_report import Extraction
from fiveshot.features.feature_set import FeatureSet
from fiveshot.features.image_marks import content_marks
from fiveshot.storage import atomic_path

FOLDER = "index"
KEPT = 16  # states of the same files that are remembered
BLOCK = 64  # images that a thread reads at a time


def find_extraction(job: ExtractionJob, cache: FeatureCache, *, skip_bad: bool, readers: int) -> Extraction | None:
    """Return the features of these very images from the cache, or None.

    The index maps quick marks to contents. Where files have other times, or lie elsewhere, but have the names
    of images extracted before, their contents are read and decide. Names that were never extracted cost
    nothing: their contents are marked while they are extracted. ``readers`` is the number of threads that
    read images; with 0 none is read.
    """
    key = _key(job, cache, readers)
    features = None if key is None else cache.get(key)
    if key is None or features is None:
        return None
    bad = _left_out(job, features)
    if bad is None:
        return None
    if bad and not skip_bad:
        raise bad_images_error(bad, len(job.images))
    return Extraction(features, cache.path(key), len(job.images), computed=0, bad=bad, runtime=None)


def remember(job: ExtractionJob, cache: FeatureCache, content: str) -> None:
    """Note what the images, as their quick marks are now, have as contents."""
    path = _file(job, cache)
    known = {**_read(path), digest(job.quick): content}
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StorageError(f"cannot make the folder {path.parent}: {error.strerror or error}") from error
    with atomic_path(path) as temporary:
        temporary.write_text(json.dumps(dict(list(known.items())[-KEPT:]), indent=1))


def _key(job: ExtractionJob, cache: FeatureCache, readers: int) -> CacheKey | None:
    known = _read(_file(job, cache))
    if not known:
        return None
    content = known.get(digest(job.quick))
    if content is None:
        content = _content(job, readers) if readers else None
        if content is None or content not in known.values():
            return None
        remember(job, cache, content)
    return job.content_key(content)


def _left_out(job: ExtractionJob, features: FeatureSet) -> tuple[BadImage, ...] | None:
    """Return the bad images that cached features lack, or None where they can be decoded by now."""
    train, test = set(features.train_names or ()), set(features.test_names or ())
    absent = [image for image in job.dataset.train.images if image.name not in train]
    absent += [image for image in job.dataset.test.images if image.name not in test]
    _, bad = check_images(absent, skip_bad=True)
    return bad if len(bad) == len(absent) else None


def _file(job: ExtractionJob, cache: FeatureCache) -> Path:
    return cache.folder / FOLDER / f"{job.listing_key.digest}.json"


def _read(path: Path) -> dict[str, str]:
    try:
        known = json.loads(path.read_text())
    except (OSError, ValueError):  # a lost index costs one extraction, never a wrong result
        return {}
    return known if isinstance(known, dict) else {}


def _content(job: ExtractionJob, readers: int) -> str:
    blocks = [job.images[start : start + BLOCK] for start in range(0, len(job.images), BLOCK)]
    with ThreadPoolExecutor(readers) as pool:
        return digest(np.concatenate(list(pool.map(content_marks, blocks))))
