"""Run an extraction: find its result in the cache, or compute the missing parts and join all parts."""

from __future__ import annotations

import json
import shutil
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from fiveshot.backbones import BackboneSpec, Embedder, default_workers, load_embedder
from fiveshot.data import BadImage, ImageDataset, Photo, bad_images_error
from fiveshot.errors import StorageError
from fiveshot.features.feature_set import FEATURE_ARRAYS, FeatureSet, refuse_other_forms
from fiveshot.features.job import (
    CacheKey,
    ExtractionJob,
    ExtractionSettings,
    FeatureCache,
    content_marks,
    digest,
    open_labeled_images,
)
from fiveshot.features.parts import ImageBatch, PartFolder, Range, gaps, join_parts, work_folder
from fiveshot.features.seeing import bad_photos, see_batches
from fiveshot.storage import FilePath, atomic_path, make_folder, require_writable
from fiveshot.work import Progress

PARTS_FOLDER = "partial"  # cache folder for finished parts of an unfinished extraction
INDEX = "index"  # cache folder that maps files to their contents
STATES_KEPT = 16  # how many states of the same files are remembered
BLOCK = 64  # images that a thread reads at a time


@dataclass(frozen=True)
class Stages:
    """Seconds spent in each stage, added up over all workers."""

    decode: float = 0.0  # reading and scaling included
    forward: float = 0.0

    def __add__(self, other: Stages) -> Stages:
        return Stages(self.decode + other.decode, self.forward + other.forward)


@dataclass(frozen=True, eq=False)
class Extraction:
    """Features and how they were computed; ``seconds`` and ``stages`` cover only the images computed in this run.

    Parameters
    ----------
    features : FeatureSet
        Mapped from the file, or in memory if there is no file.
    path : pathlib.Path or None
        Their file.
    images : int
        Number of images, bad ones included.
    computed : int
        Images computed in this run; the others were already done.
    bad : tuple of BadImage
        Images that were left out.
    runtime : str or None
        What ran the network; None when nothing had to be computed.
    seconds : float
        Time from the first image to the finished file.
    stages : Stages
        Seconds of each stage, added up over all workers.
    streams : int
        Forward passes at a time.

    Examples
    --------
    >>> import numpy as np
    >>> from fiveshot.features import Extraction, FeatureSet, Provenance
    >>> x, y = np.eye(2, dtype=np.float16), np.array([0, 1])
    >>> features = FeatureSet(x, y, x, y, ("wren", "rook"), Provenance.unknown("birds"))
    >>> done = Extraction(features, None, images=4, computed=4, bad=(), runtime="PyTorch on cpu", seconds=0.5)
    >>> done.rate
    8.0
    """

    features: FeatureSet
    path: Path | None
    images: int
    computed: int
    bad: tuple[BadImage, ...]
    runtime: str | None
    seconds: float = 0.0
    stages: Stages = field(default_factory=Stages)
    streams: int = 1

    @property
    def kept_path(self) -> Path:
        """The file; an error if the features are only in memory."""
        if self.path is None:
            raise StorageError("these features are only in memory", hint="give a cache or an output file")
        return self.path

    @property
    def rate(self) -> float | None:
        """Images per second from files to vectors, or None when nothing was computed."""
        return self.computed / self.seconds if self.computed and self.seconds else None

    @property
    def forward_rate(self) -> float | None:
        """Images per second if the forward passes had run one after another without waiting for images.

        It is computed from the time spent in the forward passes of this run. On a CPU each pass has its own core,
        so this is the rate of the network alone, except that decoding on other cores may slow down the shared
        memory.
        """
        forward = self.stages.forward / self.streams
        return self.computed / forward if self.computed and forward else None


def extract(
    dataset: ImageDataset,
    embedder: Embedder,
    settings: ExtractionSettings = ExtractionSettings(),  # noqa: B008  # frozen
    *,
    out: FilePath | None = None,
    cache: FeatureCache | None = None,
    progress: Progress | None = None,
) -> Extraction:
    """Compute the features of all images of a dataset, or find them in the cache.

    Finished parts are saved every few seconds, in the cache or next to ``out``. After an interruption, the next
    run checks that their images have not changed and computes the rest. The vectors are mapped from ``out`` or
    from the cache. They are all in memory only if neither is given.

    Parameters
    ----------
    dataset : ImageDataset
        The images; the result is in their order.
    embedder : Embedder
        Turns photos into vectors.
    settings : ExtractionSettings, optional
        Settings of the extraction.
    out : str or path, optional
        A feature file to write.
    cache : FeatureCache, optional
        Cache of finished features.
    progress : callable, optional
        Gets the number of images done and in all.

    Returns
    -------
    Extraction
        The features, their file, and the time it took.

    Raises
    ------
    InputError
        When images cannot be decoded; one error lists all of them.
    StorageError
        When a file cannot be written.

    Examples
    --------
    >>> import tempfile
    >>> import numpy as np
    >>> from fiveshot.backbones import load_embedder
    >>> from fiveshot.data import ArraySource, ImageDataset, ImageSplit
    >>> from fiveshot.features import FeatureCache, extract
    >>> night, day = (ArraySource(np.full((160, 160, 3), grey, np.uint8), f"{grey}") for grey in (9, 250))
    >>> split = ImageSplit((night, day), np.array([0, 1]))
    >>> skies = ImageDataset("skies", ("night", "day"), split, split)
    >>> embedder = load_embedder()
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     first, again = (extract(skies, embedder, cache=FeatureCache(folder)) for _ in range(2))
    >>> first.computed, again.computed
    (4, 0)
    >>> first.features
    FeatureSet('skies': 2 training and 2 test vectors of 320 float16, 2 classes)
    """
    job = ExtractionJob(dataset, embedder, settings)
    told = progress or (lambda done, total: None)
    target = None if out is None else _checked_target(Path(out))
    if cache is not None:
        extraction = _through_cache(job, cache, told)
        return extraction if target is None else _copied(extraction, target)
    if target is not None:
        with work_folder(target.parent / f".{target.name}.{job.listing_key.digest[:16]}.partial") as folder:
            return _computed(job, told, folder, lambda content: target)[0]
    with tempfile.TemporaryDirectory() as name:
        extraction, _ = _computed(job, told, Path(name), lambda content: Path(name) / "features.safetensors")
        arrays: dict[str, Any] = {key: np.array(getattr(extraction.features, key)) for key in FEATURE_ARRAYS}
        in_memory = replace(extraction.features, **arrays, vectors_checked=True)
        return replace(extraction, path=None, features=in_memory)


def extracted_features(
    images: FilePath | ImageDataset,
    spec: BackboneSpec = BackboneSpec(),  # noqa: B008  # frozen
    settings: ExtractionSettings = ExtractionSettings(),  # noqa: B008  # frozen
    *,
    seed: int,
    holdout: float = 0.2,
    cache: FeatureCache | None = None,
    progress: Progress | None = None,
) -> Path:
    """Return the cached feature file of images; compute it if it is missing.

    Parameters
    ----------
    images : str, path or ImageDataset
        A folder or an archive of class folders, or a dataset.
    spec : BackboneSpec, optional
        The backbone; by default the embedded one.
    settings : ExtractionSettings, optional
        Settings of the extraction.
    seed, holdout
        Used to draw test images if there is no test split: see :func:`open_labeled_images`.
    cache : FeatureCache, optional
        By default the user's cache.
    progress : callable, optional
        Gets the number of images done and in all.

    Returns
    -------
    pathlib.Path
        The feature file.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> from PIL import Image
    >>> from fiveshot.features import FeatureCache, extracted_features, load_features
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     for file in (Path(folder, "colors", c, f"{n}.png") for c in ("red", "blue") for n in range(2)):
    ...         file.parent.mkdir(parents=True, exist_ok=True)
    ...         Image.new("RGB", (64, 64), file.parent.name).save(file)
    ...     cache = FeatureCache(folder)
    ...     load_features(extracted_features(Path(folder, "colors"), seed=0, cache=cache))
    FeatureSet('colors': 2 training and 2 test vectors of 320 float16, 2 classes)
    """
    dataset = images
    if not isinstance(dataset, ImageDataset):
        dataset = open_labeled_images(dataset, seed=seed, holdout=holdout)
    done = extract(dataset, load_embedder(spec), settings, cache=cache or FeatureCache(), progress=progress)
    return done.kept_path


def _through_cache(job: ExtractionJob, cache: FeatureCache, progress: Progress) -> Extraction:
    found = _find(job, cache, readers=job.settings.readers)
    if found is not None:
        return found
    with work_folder(cache.folder / PARTS_FOLDER / job.listing_key.digest) as folder:
        # Another process may have finished the same work while we waited for the folder.
        found = _find(job, cache, readers=0)
        if found is not None:
            return found
        extraction, content = _computed(
            job, progress, folder, lambda content: cache.path(job.content_key(content))
        )
        _remember(job, cache, content)
        return extraction


def _computed(
    job: ExtractionJob, progress: Progress, folder: Path, place: Callable[[str], Path]
) -> tuple[Extraction, str]:
    """Compute the parts that are missing in ``folder``, and write the feature file."""
    runtime = job.embedder.runtime  # loads the network before the clock starts
    began = time.perf_counter()
    store = PartFolder(folder, job)
    computed, stages = _compute_parts(job, store, progress)
    content = digest(np.concatenate([part.marks["content"].copy() for part in store.parts()]))
    bad = tuple(image for part in store.parts() for _, image in part.bad)
    path = place(content)
    features = join_parts(
        store.parts,
        path,
        provenance=replace(job.provenance, note=f"{job.settings.dtype} vectors; {runtime}"),
        width=job.embedder.width,
        dtype=job.settings.dtype,
        class_names=job.dataset.class_names,
    )
    extraction = Extraction(
        features,
        path,
        images=len(job.images),
        computed=computed,
        bad=bad,
        runtime=runtime if computed else None,
        seconds=time.perf_counter() - began,
        stages=stages,
        streams=job.embedder.streams(job.settings.readers),
    )
    return extraction, content


def _compute_parts(job: ExtractionJob, store: PartFolder, progress: Progress) -> tuple[int, Stages]:
    """Compute and save what the usable parts in ``store`` do not cover; return how many images were computed.

    Unless bad images are skipped, no vector is computed after the first bad image. The remaining images are only
    decoded, so that the error lists all bad ones. Finished parts stay in ``store``.
    """
    places: list[Range] = []
    bad: list[tuple[int, BadImage]] = []
    for place, part in store.usable():
        places.append(place)
        bad += part.bad
    finished, total = sum(stop - start for start, stop in places), len(job.images)
    progress(finished, total)
    missing = list(gaps(places, total, job.batch_size))
    computed, stages = 0, Stages()
    if not bad or job.settings.skip_bad:
        photos = ([Photo(image) for image in job.images[start:stop]] for start, stop in missing)
        try:
            with closing(see_batches(job.embedder, photos, workers=job.settings.readers)) as batches:
                for (start, _), seen in zip(missing, batches, strict=True):
                    batch = ImageBatch.of(start, seen.found, job)
                    store.add(batch)
                    bad += batch.bad
                    computed += len(seen.found)
                    stages += Stages(seen.decode_seconds, seen.forward_seconds)
                    progress(finished + computed, total)
                    if bad and not job.settings.skip_bad:
                        break
        finally:
            store.flush()
    if bad and not job.settings.skip_bad:
        left = [position for start, stop in missing for position in range(start, stop)][computed:]
        rest = [Photo(job.images[position]) for position in left]
        found = bad_photos(rest, job.embedder.preprocessing, workers=job.settings.readers)
        bad += [(left[at], image) for at, image in found.items()]
        raise bad_images_error([image for _, image in sorted(bad, key=lambda found: found[0])], total)
    return computed, stages


def _find(job: ExtractionJob, cache: FeatureCache, *, readers: int) -> Extraction | None:
    """Return the features of these images from the cache, or None.

    The index maps quick marks to contents. If files have new times or another folder, but the names of images
    that were extracted before, their contents are read and compared. Files with new names are not read here:
    their contents are hashed during extraction. ``readers`` is the number of threads that read images; with 0
    no image is read.
    """
    key = _known_key(job, cache, readers)
    features = None if key is None else cache.get(key)
    if key is None or features is None:
        return None
    bad = _left_out(job, features)
    if bad is None:
        return None
    if bad and not job.settings.skip_bad:
        raise bad_images_error(bad, len(job.images))
    return Extraction(features, cache.path(key), len(job.images), computed=0, bad=bad, runtime=None)


def _remember(job: ExtractionJob, cache: FeatureCache, content: str) -> None:
    """Record the contents of the images under their current quick marks."""
    path = _index_file(job, cache)
    known = {**_index(path), digest(job.quick): content}
    make_folder(path.parent)
    with atomic_path(path) as temporary:
        temporary.write_text(json.dumps(dict(list(known.items())[-STATES_KEPT:]), indent=1))


def _known_key(job: ExtractionJob, cache: FeatureCache, readers: int) -> CacheKey | None:
    known = _index(_index_file(job, cache))
    if not known:
        return None
    content = known.get(digest(job.quick))
    if content is None:
        content = _content(job, readers) if readers else None
        if content is None or content not in known.values():
            return None
        _remember(job, cache, content)
    return job.content_key(content)


def _left_out(job: ExtractionJob, features: FeatureSet) -> tuple[BadImage, ...] | None:
    """Return the bad images that cached features leave out, or None if one of them has become usable."""
    train, test = set(features.train_names or ()), set(features.test_names or ())
    absent = [image for image in job.dataset.train.images if image.name not in train]
    absent += [image for image in job.dataset.test.images if image.name not in test]
    bad = tuple(bad_photos([Photo(image) for image in absent], job.embedder.preprocessing).values())
    return bad if len(bad) == len(absent) else None


def _index_file(job: ExtractionJob, cache: FeatureCache) -> Path:
    return cache.folder / INDEX / f"{job.listing_key.digest}.json"


def _index(path: Path) -> dict[str, str]:
    try:
        known = json.loads(path.read_text())
    except (OSError, ValueError):  # a lost index costs one extraction, never a wrong result
        return {}
    return known if isinstance(known, dict) else {}


def _content(job: ExtractionJob, readers: int) -> str:
    blocks = [job.images[start : start + BLOCK] for start in range(0, len(job.images), BLOCK)]
    with ThreadPoolExecutor(readers) as pool:
        return digest(np.concatenate(list(pool.map(content_marks, blocks))))


def _checked_target(path: Path) -> Path:
    """Refuse a file that cannot be written, before any work is done."""
    refuse_other_forms(path)
    if require_writable(path).exists():
        try:
            FeatureSet.load(path)
        except StorageError as error:
            raise StorageError(
                f"{path} exists and is not a feature file", hint="name another file to write"
            ) from error
    return path


def _copied(extraction: Extraction, target: Path) -> Extraction:
    with atomic_path(target) as temporary:
        shutil.copyfile(extraction.kept_path, temporary)
    return replace(extraction, path=target, features=FeatureSet.load(target))


def extraction_seconds(
    dataset: ImageDataset,
    embedder: Embedder,
    settings: ExtractionSettings = ExtractionSettings(),  # noqa: B008  # frozen
    *,
    cache: FeatureCache,
    rate: float | None = None,
) -> float:
    """Estimate the time of an extraction on this machine; 0 if the features are in the cache.

    Parameters
    ----------
    dataset, embedder, settings, cache
        As in :func:`extract`.
    rate : float, optional
        Images per second of the network; by default it is measured for a second.

    Returns
    -------
    float
        Seconds. Photos that take longer to decode than to embed take longer.

    Examples
    --------
    >>> import tempfile
    >>> import numpy as np
    >>> from fiveshot.backbones import load_embedder
    >>> from fiveshot.data import ArraySource, ImageDataset, ImageSplit
    >>> from fiveshot.features import FeatureCache, extraction_seconds
    >>> split = ImageSplit((ArraySource(np.zeros((8, 8, 3), np.uint8), "night"),), np.array([0]))
    >>> skies = ImageDataset("skies", ("night",), split, split)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     extraction_seconds(skies, load_embedder(), cache=FeatureCache(folder), rate=4.0)
    0.5
    """
    job = ExtractionJob(dataset, embedder, settings)
    if _find(job, cache, readers=settings.readers) is not None:
        return 0.0
    measured = rate or bare_rate(embedder, batch_size=settings.batch_size, workers=settings.workers, seconds=1.0)
    return len(job.images) / measured


def bare_rate(
    embedder: Embedder, *, batch_size: int | None = None, workers: int | None = None, seconds: float = 3.0
) -> float:
    """Measure the speed of the network alone.

    Parameters
    ----------
    embedder : Embedder
        The embedder to measure.
    batch_size, workers : int, optional
        As in an extraction, with the same number of parallel forward passes.
    seconds : float, default 3
        How long to measure, after one warm-up pass for each worker.

    Returns
    -------
    float
        Images per second, for a batch in memory.

    Examples
    --------
    >>> from fiveshot.backbones import load_embedder
    >>> from fiveshot.features import bare_rate
    >>> bare_rate(load_embedder(), batch_size=1, workers=1, seconds=0.1) > 0
    True
    """
    size = batch_size or embedder.batch_size
    streams = embedder.streams(workers or default_workers())
    noise: Any = np.random.default_rng(0).integers(0, 256, (size, *embedder.preprocessing.shape), np.uint8)
    if not embedder.on_cpu:
        import torch

        noise = torch.from_numpy(noise).to(embedder.device)

    def passes(until: float) -> int:
        done = 0
        while done == 0 or time.perf_counter() < until:
            embedder.features(noise)
            done += 1
        return done

    with ThreadPoolExecutor(streams) as pool:
        list(pool.map(passes, [0.0] * streams))
        began = time.perf_counter()
        done = sum(pool.map(passes, [began + seconds] * streams))
        return done * size / (time.perf_counter() - began)
