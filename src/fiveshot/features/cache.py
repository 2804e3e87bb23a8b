"""A cache of extracted features, keyed by everything that decides their values."""

from __future__ import annotations

import hashlib
import json
import os
import re
from dataclasses import dataclass
from pathlib import Path

from fiveshot.errors import InputError, StorageError
from fiveshot.features.feature_set import FeatureSet, Provenance
from fiveshot.storage import FilePath

CACHE_VARIABLE = "FIVESHOT_CACHE"
CACHED_FILE = re.compile(r"[0-9a-f]{64}\.safetensors")


def default_cache_folder() -> Path:
    """Return where features are cached.

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
    # The XDG specification says that relative paths are to be ignored.
    return (base if base.is_absolute() else Path.home() / ".cache") / "fiveshot" / "features"


@dataclass(frozen=True)
class CacheKey:
    """What decides the values of extracted features: the images and how they are turned into vectors.

    Parameters
    ----------
    images : str
        A text that stands for the images, their order and labels.
    provenance : Provenance
        How the vectors are made; everything counts but the note.

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
    """Feature files in a folder, found again by :class:`CacheKey`, so that nothing is extracted twice.

    Parameters
    ----------
    folder : str or path, optional
        Where they are; :func:`default_cache_folder` unless given. It is made when something is put into it.

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
        """Return where the features of this key are, or would be."""
        return self.folder / f"{key.digest}.safetensors"

    def get(self, key: CacheKey) -> FeatureSet | None:
        """Return the cached features, mapped into memory, or None; a file that belies its key is an error."""
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
                f"the cached file {path} holds other features than asked for: {'; '.join(wrong)}",
                hint="delete it to extract them again",
            )
        return found

    def put(self, key: CacheKey, features: FeatureSet) -> FeatureSet:
        """Store features under a key they belong to and return them as mapped from the cache."""
        wrong = key.provenance.differences(features.provenance)
        if wrong:
            raise InputError(f"these features do not belong under this cache key: {'; '.join(wrong)}")
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise StorageError(
                f"cannot make the cache folder {self.folder}: {error.strerror or error}",
                hint=f"choose another with {CACHE_VARIABLE}",
            ) from error
        features.save(self.path(key))
        return FeatureSet.load(self.path(key))

    def clear(self) -> int:
        """Delete all cached feature files, nothing else, and return how many there were."""
        files = [file for file in self.folder.glob("*.safetensors") if CACHED_FILE.fullmatch(file.name)]
        for file in files:
            file.unlink(missing_ok=True)
        return len(files)
