"""From images to a feature file: streaming, cached, and continued where it was stopped."""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np

from fiveshot.backbones import Embedder, default_workers
from fiveshot.data import ImageDataset
from fiveshot.errors import StorageError
from fiveshot.features.cache import FeatureCache
from fiveshot.features.extraction_index import find_extraction, remember
from fiveshot.features.extraction_job import ExtractionJob
from fiveshot.features.extraction_report import Extraction
from fiveshot.features.extraction_run import Pace, compute_parts
from fiveshot.features.feature_assembly import FeatureAssembly
from fiveshot.features.feature_set import FeatureSet
from fiveshot.features.partial_features import PartialFeatures
from fiveshot.features.work_folder import work_folder
from fiveshot.progress import Progress
from fiveshot.storage import atomic_path

PARTS = "partial"  # folder of the cache where finished parts are kept until all are
PART_SECONDS = 5.0  # the most that a kill costs


def extract(
    dataset: ImageDataset,
    embedder: Embedder,
    *,
    out: str | os.PathLike[str] | None = None,
    cache: FeatureCache | None = None,
    batch_size: int | None = None,
    workers: int | None = None,
    skip_bad: bool = False,
    dtype: str = "float16",
    progress: Progress | None = None,
) -> FeatureSet:
    """Return the features of all images of a dataset, in its order; ``run_extraction`` says what each option does.

    >>> import tempfile
    >>> from pathlib import Path
    >>> from PIL import Image
    >>> from fiveshot.backbones import load_embedder
    >>> from fiveshot.data import open_images
    >>> from fiveshot.features import extract
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     for file in (Path(folder, "colours", c, f"{n}.png") for c in ("red", "blue") for n in range(2)):
    ...         file.parent.mkdir(parents=True, exist_ok=True)
    ...         Image.new("RGB", (64, 64), file.parent.name).save(file)
    ...     extract(open_images(Path(folder, "colours"), seed=0), load_embedder())
    FeatureSet('colours': 2 training and 2 test vectors of 384 float16, 2 classes)
    """
    return run_extraction(
        dataset,
        embedder,
        out=out,
        cache=cache,
        batch_size=batch_size,
        workers=workers,
        skip_bad=skip_bad,
        dtype=dtype,
        progress=progress,
    ).features


def run_extraction(
    dataset: ImageDataset,
    embedder: Embedder,
    *,
    out: str | os.PathLike[str] | None = None,
    cache: FeatureCache | None = None,
    batch_size: int | None = None,
    workers: int | None = None,
    skip_bad: bool = False,
    dtype: str = "float16",
    progress: Progress | None = None,
    part_seconds: float = PART_SECONDS,
) -> Extraction:
    """Compute the features of all images of a dataset, or find them in the cache, and say how that went.

    Finished parts are kept every ``part_seconds``, in the cache or beside ``out``; a run after a kill checks
    that their images have not changed and computes the rest. The vectors never are in memory together: they
    are mapped from ``out`` or from the cache, and read into memory only where neither is given.

    Images that cannot be decoded raise one error that lists them all, or are left out with ``skip_bad``. The
    number of ``workers`` (one for each core unless given) changes no vector. ``dtype`` is that of the stored
    vectors, float16 or float32. ``progress`` gets the images done and in all.

    >>> import tempfile
    >>> import numpy as np
    >>> from fiveshot.backbones import load_embedder
    >>> from fiveshot.data import ArraySource, ImageDataset, ImageSplit
    >>> from fiveshot.features import FeatureCache, run_extraction
    >>> night, day = (ArraySource(np.full((160, 160, 3), grey, np.uint8), f"{grey}") for grey in (9, 250))
    >>> split = ImageSplit((night, day), np.array([0, 1]))
    >>> skies = ImageDataset("skies", ("night", "day"), split, split)
    >>> embedder = load_embedder()
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     first, again = (run_extraction(skies, embedder, cache=FeatureCache(folder)) for _ in range(2))
    >>> first.computed, again.computed
    (4, 0)
    """
    job = ExtractionJob(dataset, embedder, dtype)
    pace = Pace(
        batch_size=embedder.batch_size if batch_size is None else batch_size,
        workers=default_workers() if workers is None else workers,
        skip_bad=skip_bad,
        progress=progress or (lambda done, total: None),
        part_seconds=part_seconds,
    )
    target = None if out is None else _checked_target(Path(out))
    if cache is not None:
        extraction = _through_cache(job, cache, pace)
        return extraction if target is None else _copied(extraction, target)
    if target is not None:
        folder = target.parent / f".{target.name}.{job.listing_key.digest[:16]}.partial"
        with work_folder(folder):
            extraction, _ = _computed(job, pace, folder, lambda content: target)
            return extraction
    with tempfile.TemporaryDirectory() as name:
        extraction, _ = _computed(job, pace, Path(name), lambda content: Path(name) / "features.safetensors")
        return replace(extraction, path=None, features=_in_memory(extraction.features))


def _through_cache(job: ExtractionJob, cache: FeatureCache, pace: Pace) -> Extraction:
    found = find_extraction(job, cache, skip_bad=pace.skip_bad, readers=pace.workers)
    if found is not None:
        return found
    folder = cache.folder / PARTS / job.listing_key.digest
    with work_folder(folder):
        # Another process may have finished the same work while this one waited for the folder.
        found = find_extraction(job, cache, skip_bad=pace.skip_bad, readers=0)
        if found is not None:
            return found
        extraction, content = _computed(job, pace, folder, lambda content: cache.path(job.content_key(content)))
        remember(job, cache, content)
        return extraction


def _computed(
    job: ExtractionJob, pace: Pace, folder: Path, place: Callable[[str], Path]
) -> tuple[Extraction, str]:
    """Compute what is missing in ``folder`` and write the file to the ``place`` of these contents."""
    runtime = job.embedder.runtime  # makes it ready, before the clock starts
    began = time.perf_counter()
    store = PartialFeatures(folder)
    computed = compute_parts(job, store, pace)
    assembly = FeatureAssembly(job, store)
    path = place(assembly.content)
    assembly.write(path)
    extraction = Extraction(
        FeatureSet.load(path),
        path,
        images=len(job.images),
        computed=computed.images,
        bad=assembly.bad,
        runtime=runtime if computed.images else None,
        seconds=time.perf_counter() - began,
        stages=computed.stages,
        streams=job.embedder.streams(pace.workers),
    )
    return extraction, assembly.content


def _checked_target(path: Path) -> Path:
    """Refuse, before any work is done, a file that could not be written at the end."""
    if not path.parent.is_dir():
        raise StorageError(f"cannot write {path}: the folder {path.parent} does not exist; create it first")
    if path.is_dir():
        raise StorageError(f"cannot write {path}: it is a folder; name a file, such as features.safetensors")
    if not os.access(path.parent, os.W_OK):
        raise StorageError(f"cannot write {path}: the folder {path.parent} cannot be written to")
    if path.exists():
        try:
            FeatureSet.load(path)
        except StorageError as error:
            raise StorageError(f"{path} exists and is no feature file; name another file to write") from error
    return path


def _copied(extraction: Extraction, target: Path) -> Extraction:
    with atomic_path(target) as temporary:
        shutil.copyfile(extraction.kept_path, temporary)
    return replace(extraction, path=target, features=FeatureSet.load(target))


def _in_memory(features: FeatureSet) -> FeatureSet:
    return replace(
        features,
        train_x=np.array(features.train_x),
        train_y=np.array(features.train_y),
        test_x=np.array(features.test_x),
        test_y=np.array(features.test_y),
        vectors_checked=True,
    )
