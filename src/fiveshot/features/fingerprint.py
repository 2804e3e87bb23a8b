"""The identity of a dataset: a hash over its images, whatever their order and wherever they lie."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias

from fiveshot.errors import InputError, StorageError

FilePolicy: TypeAlias = Literal["content", "stat"]


@dataclass(frozen=True, order=True)
class ImageIdentity:
    """One image of a dataset: its name, where it belongs, and a mark that changes when it changes.

    >>> from dataclasses import replace
    >>> from fiveshot.features import ImageIdentity, bytes_mark, dataset_fingerprint
    >>> photo = ImageIdentity("wren/1.jpg", split="train", label="wren", mark=bytes_mark(b"the photo"))
    >>> retouched = replace(photo, mark=bytes_mark(b"the photo, brighter"))
    >>> dataset_fingerprint([photo]) == dataset_fingerprint([retouched])
    False
    """

    name: str
    split: str
    label: str
    mark: str


def bytes_mark(data: bytes) -> str:
    """Return the mark of an image held in memory or in an archive.

    >>> bytes_mark(b"")[:19]
    'sha256:e3b0c44298fc'
    """
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


def file_mark(path: str | os.PathLike[str], policy: FilePolicy = "content") -> str:
    """Return the mark of a file: its SHA-256, or with the ``policy`` ``stat`` its size and time of last change.

    ``stat`` reads nothing, but cannot see a change that leaves both as they were, and takes a fresh copy
    of a dataset for another one.

    >>> import tempfile
    >>> from pathlib import Path
    >>> from fiveshot.features import bytes_mark, file_mark
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = Path(folder, "1.jpg").write_bytes(b"the photo")
    ...     file_mark(f"{folder}/1.jpg") == bytes_mark(b"the photo"), file_mark(f"{folder}/1.jpg", "stat")
    (True, 'stat:9:...')
    """
    path = Path(path)
    try:
        if policy == "content":
            with path.open("rb") as file:
                return f"sha256:{hashlib.file_digest(file, 'sha256').hexdigest()}"
        if policy == "stat":
            found = path.stat()
            return f"stat:{found.st_size}:{found.st_mtime_ns}"
    except OSError as error:
        raise StorageError(f"cannot read {path}: {error.strerror or error}") from error
    raise InputError(f"no policy {policy!r}; choose from content, stat")


def dataset_fingerprint(images: Iterable[ImageIdentity]) -> str:
    """Return the SHA-256 over names, splits, labels and marks, independent of the order of the images.

    >>> wren = ImageIdentity("a.jpg", "train", "wren", bytes_mark(b"1"))
    >>> rook = ImageIdentity("b.jpg", "train", "rook", bytes_mark(b"2"))
    >>> dataset_fingerprint([wren, rook]) == dataset_fingerprint([rook, wren])
    True
    """
    total = hashlib.sha256()
    for image in sorted(images):
        for text in (image.name, image.split, image.label, image.mark):
            data = text.encode("utf-8", "surrogateescape")
            total.update(len(data).to_bytes(8, "little") + data)  # lengths: no two lists read the same
    return total.hexdigest()
