"""An extraction job, marks that show whether an image has changed, and the cache of finished features."""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fiveshot.backbones import Embedder, default_workers
from fiveshot.data import (
    ArchiveSource,
    FileSource,
    ImageDataset,
    ImageError,
    ImageSource,
    image_digest,
    open_dataset,
    open_images,
)
from fiveshot.errors import InputError, StorageError, unknown_name
from fiveshot.features.feature_set import FeatureSet, Provenance
from fiveshot.storage import FilePath, attempting

STORED_DTYPES = ("float16", "float32")
PART_SECONDS = 5.0  # at most this much work is lost when a run is killed
QUICK_BYTES, CONTENT_BYTES = 16, 32
UNREADABLE = bytes(CONTENT_BYTES)  # instead of the content of an image that cannot be read

Marks = NDArray[np.uint8]
CACHE_VARIABLE = "FIVESHOT_CACHE"
CACHED_FILE = re.compile(r"[0-9a-f]{64}\.safetensors")


@dataclass(frozen=True)
class ExtractionSettings:
    """Settings of an extraction; only ``dtype`` changes the vectors.

    Parameters
    ----------
    batch_size : int, optional
        Images in a forward pass; by default a size that suits the device.
    workers : int, optional
        Images that are read in parallel and, on a CPU, parallel forward passes; by default one for each core.
    skip_bad : bool, default False
        Leave out images that cannot be decoded, instead of raising an error that lists them all.
    dtype : {"float16", "float32"}
        Type of the stored vectors.
    part_seconds : float
        Seconds between two saved parts: at most this much work is lost when a run is killed.

    Raises
    ------
    InputError
        When a value is not valid.

    Examples
    --------
    >>> from fiveshot.features import ExtractionSettings
    >>> ExtractionSettings(dtype="float32", workers=4).skip_bad
    False
    """

    batch_size: int | None = None
    workers: int | None = None
    skip_bad: bool = False
    dtype: str = "float16"
    part_seconds: float = PART_SECONDS

    def __post_init__(self) -> None:
        for name in ("batch_size", "workers"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise InputError(f"{name} is {value}", hint="choose 1 or more")
        if self.dtype not in STORED_DTYPES:
            raise unknown_name("type of vectors", self.dtype, STORED_DTYPES)

    @property
    def readers(self) -> int:
        """The number of workers."""
        return default_workers() if self.workers is None else self.workers


@dataclass(frozen=True, eq=False)
class ExtractionJob:
    """All images of a dataset, an embedder, and the settings."""

    dataset: ImageDataset
    embedder: Embedder
    settings: ExtractionSettings

    @property
    def batch_size(self) -> int:
        """Images in a forward pass."""
        return self.settings.batch_size or self.embedder.batch_size

    @cached_property
    def images(self) -> tuple[ImageSource, ...]:
        """The training images, then the test images: a position in this list identifies an image."""
        return self.dataset.train.images + self.dataset.test.images

    @cached_property
    def labels(self) -> NDArray[np.int64]:
        """The labels of all images."""
        return np.concatenate([self.dataset.train.labels, self.dataset.test.labels])

    @cached_property
    def quick(self) -> Marks:
        """The images' quick marks (n_images, 16), computed on first use."""
        return quick_marks(self.images)

    @cached_property
    def provenance(self) -> Provenance:
        """How the vectors are made."""
        return Provenance.of(self.dataset.name, self.embedder.identity())

    @cached_property
    def listing_key(self) -> CacheKey:
        """The key without the images' contents: their names, order and labels, and how vectors are made."""
        data = self.dataset
        listing = listing_digest(
            (image.name, name, data.class_names[label], str(position))
            for name, split in (("train", data.train), ("test", data.test))
            for position, (image, label) in enumerate(zip(split.images, split.labels, strict=True))
        )
        # The provenance does not contain the type of the vectors.
        return CacheKey(f"{listing} {self.settings.dtype} {self.embedder.fingerprint}", self.provenance)

    def content_key(self, content: str) -> CacheKey:
        """Return the complete key; ``content`` is the ``digest`` of the images' content marks."""
        return CacheKey(f"{self.listing_key.images} {content}", self.provenance)


def open_labeled_images(
    images: FilePath | None = None,
    *,
    dataset: str | None = None,
    root: FilePath | None = None,
    seed: int,
    holdout: float = 0.2,
) -> ImageDataset:
    """Open a folder or an archive of class folders, or a dataset by its name.

    Parameters
    ----------
    images : str or path, optional
        The folder or archive.
    dataset : str, optional
        Instead of ``images``: the name of a dataset.
    root : str or path, optional
        The folder of that dataset.
    seed : int
        Seed for drawing the test images if there is no test split.
    holdout : float, default 0.2
        The share of every class that is drawn.

    Returns
    -------
    ImageDataset
        The images, not yet read.

    Raises
    ------
    InputError
        When neither or both are given.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> from fiveshot.features import open_labeled_images
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     for photo in (Path(folder, name, f"{number}.jpg") for name in ("cat", "dog") for number in range(5)):
    ...         photo.parent.mkdir(exist_ok=True)
    ...         photo.touch()
    ...     dataset = open_labeled_images(folder, seed=0, holdout=0.4)
    >>> dataset.class_names, len(dataset.train), len(dataset.test)
    (('cat', 'dog'), 6, 4)
    """
    if images is not None and dataset is None and root is None:
        return open_images(Path(images), seed=seed, holdout=holdout)
    if images is None and dataset is not None and root is not None:
        return open_dataset(dataset, Path(root), seed=seed, holdout=holdout)
    raise InputError("give either images (--images DIR) or a dataset and its folder (--dataset NAME --root DIR)")


def quick_marks(images: Sequence[ImageSource]) -> Marks:
    """Return one quick mark for each image (n_images, 16), without reading the images.

    A mark covers the path, the size and the times of the last change of the file or archive. One of these times
    (ctime) cannot be set by hand. Images in memory are marked by content.

    >>> import numpy as np
    >>> from fiveshot.data import ArraySource
    >>> black = ArraySource(np.zeros((1, 1, 3), np.uint8), "black")
    >>> quick_marks([black, black]).shape
    (2, 16)
    """
    marks = b"".join(_quick(image) for image in images)
    return np.frombuffer(marks, np.uint8).reshape(len(images), QUICK_BYTES)


def content_marks(images: Sequence[ImageSource]) -> Marks:
    """Read all images and return their contents' marks (n_images, 32)."""
    marks = b"".join(_content(image) for image in images)
    return np.frombuffer(marks, np.uint8).reshape(len(images), CONTENT_BYTES)


def digest(marks: Marks) -> str:
    """Return one SHA-256 for all marks in their order."""
    return hashlib.sha256(np.ascontiguousarray(marks).data).hexdigest()


def listing_digest(rows: Iterable[tuple[str, ...]]) -> str:
    """Return the SHA-256 over rows of texts; their order does not matter.

    >>> wren, rook = ("a.jpg", "train", "wren"), ("b.jpg", "train", "rook")
    >>> listing_digest([wren, rook]) == listing_digest([rook, wren]) != listing_digest([rook])
    True
    """
    total = hashlib.sha256()
    for row in sorted(rows):
        for text in row:
            data = text.encode("utf-8", "surrogateescape")
            total.update(len(data).to_bytes(8, "little") + data)  # lengths keep different lists apart
    return total.hexdigest()


def _quick(image: ImageSource) -> bytes:
    if isinstance(image, FileSource):
        text = _status(image.path)
    elif isinstance(image, ArchiveSource):
        text = f"{_status(image.archive)} {image.member}"
    else:
        return _content(image)[:QUICK_BYTES]
    return hashlib.blake2b(text.encode("utf-8", "surrogateescape"), digest_size=QUICK_BYTES).digest()


def _status(path: Path) -> str:
    try:
        found = path.stat()
    except OSError:
        return f"{path.absolute()} unreadable"
    return f"{path.absolute()} {found.st_size} {found.st_mtime_ns} {found.st_ctime_ns}"


def _content(image: ImageSource) -> bytes:
    try:
        return image_digest(image)
    except ImageError:
        return UNREADABLE


def default_cache_folder() -> Path:
    """Return the folder of cached features.

    Returns
    -------
    pathlib.Path
        ``$FIVESHOT_CACHE/features``, else a folder in the user's XDG cache folder.

    Examples
    --------
    >>> import os
    >>> from unittest.mock import patch
    >>> with patch.dict(os.environ, FIVESHOT_CACHE="/data/cache"):
    ...     default_cache_folder().as_posix()
    '/data/cache/features'
    """
    if chosen := os.environ.get(CACHE_VARIABLE):
        return Path(chosen).expanduser() / "features"
    base = Path(os.environ.get("XDG_CACHE_HOME", ""))
    # The XDG specification says to ignore relative paths.
    return (base if base.is_absolute() else Path.home() / ".cache") / "fiveshot" / "features"


@dataclass(frozen=True)
class CacheKey:
    """Everything that decides the values of extracted features: the images and how vectors are made from them.

    Parameters
    ----------
    images : str
        A text that identifies the images, their order and their labels.
    provenance : Provenance
        How the vectors are made; the note does not count.

    Examples
    --------
    >>> from fiveshot.features import CacheKey, Provenance
    >>> key = CacheKey("51ab", Provenance("birds", "vit", "ab12"))
    >>> key.digest == CacheKey("51ab", Provenance("birds", "vit", "ab12", note="monday")).digest
    True
    >>> key.digest == CacheKey("51ab", Provenance("birds", "vit", "ab13")).digest
    False
    """

    images: str
    provenance: Provenance

    @property
    def digest(self) -> str:
        """The SHA-256 that names the file."""
        parts = {**self.provenance.as_dict(), "note": "", "images": self.images}
        return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


class FeatureCache:
    """A folder of feature files, each found by its :class:`CacheKey`, so that nothing is extracted twice.

    Parameters
    ----------
    folder : str or path, optional
        The folder; by default :func:`default_cache_folder`. It is created when the first file is stored.

    Examples
    --------
    >>> import tempfile
    >>> import numpy as np
    >>> from fiveshot.features import CacheKey, FeatureCache, FeatureSet, Provenance
    >>> key = CacheKey("51ab", Provenance("birds", "vit", "ab12"))
    >>> x, y = np.eye(2, dtype=np.float16), np.array([0, 1])
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     cache = FeatureCache(folder)
    ...     before = cache.get(key)
    ...     _ = cache.put(key, FeatureSet(x, y, x, y, ("wren", "rook"), key.provenance))
    ...     before, cache.get(key)
    (None, FeatureSet('birds': 2 training and 2 test vectors of 2 float16, 2 classes))
    """

    def __init__(self, folder: FilePath | None = None) -> None:
        self.folder = default_cache_folder() if folder is None else Path(folder)

    def path(self, key: CacheKey) -> Path:
        """Return the path for the features of this key; the file need not exist."""
        return self.folder / f"{key.digest}.safetensors"

    def get(self, key: CacheKey) -> FeatureSet | None:
        """Return the cached features, mapped into memory, or None; raise if the file does not fit its key."""
        path = self.path(key)
        if not path.exists():
            return None
        try:
            found = FeatureSet.load(path)
        except StorageError as error:
            raise StorageError(
                f"the cached features cannot be used: {error.message}", hint=f"delete {path} to extract them again"
            ) from error
        wrong = key.provenance.differences(found.provenance)
        if wrong:
            raise StorageError(
                f"the cached file {path} holds other features: {'; '.join(wrong)}",
                hint="delete it to extract them again",
            )
        return found

    def put(self, key: CacheKey, features: FeatureSet) -> FeatureSet:
        """Store features under their key and return them, mapped from the cache."""
        wrong = key.provenance.differences(features.provenance)
        if wrong:
            raise InputError(f"these features do not belong under this cache key: {'; '.join(wrong)}")
        with attempting(f"make the cache folder {self.folder}", hint=f"choose another with {CACHE_VARIABLE}"):
            self.folder.mkdir(parents=True, exist_ok=True)
        features.save(self.path(key))
        return FeatureSet.load(self.path(key))

    def clear(self) -> int:
        """Delete all cached feature files, nothing else, and return how many there were."""
        files = [file for file in self.folder.glob("*.safetensors") if CACHED_FILE.fullmatch(file.name)]
        for file in files:
            file.unlink(missing_ok=True)
        return len(files)
