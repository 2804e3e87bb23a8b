"""Get a named dataset: download its archives, unpack them, count what is there."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from fiveshot.data.dataset import ImageDataset
from fiveshot.data.download import BytesProgress, DownloadError, Patience, download
from fiveshot.data.extract import extract_safely
from fiveshot.data.registry import dataset_spec, open_spec
from fiveshot.data.spec import DatasetSpec
from fiveshot.errors import StorageError


@dataclass(frozen=True)
class Fetched:
    """A dataset on disk; ``dataset.differences`` says where it is not the official one.

    >>> import tempfile
    >>> from pathlib import Path
    >>> from fiveshot.data import fetch
    >>> with tempfile.TemporaryDirectory() as root:
    ...     for photo in (Path(root, "aircraft", part, "A380", "1.jpg") for part in ("train", "test")):
    ...         photo.parent.mkdir(parents=True)
    ...         photo.touch()
    ...     fetched = fetch("aircraft", Path(root))
    >>> fetched.folder.name, fetched.dataset.class_names, fetched.dataset.differences[0]
    ('aircraft', ('A380',), '1 class, officially 100')
    """

    folder: Path
    dataset: ImageDataset


def fetch(
    name: str, root: Path, *, progress: BytesProgress | None = None, patience: Patience | None = None
) -> Fetched:
    """Download the dataset ``name`` into ``root/<name>``; one that is there already is only opened.

    The archives go again once they are unpacked. What was interrupted is continued by the next call.
    ``progress`` gets the bytes so far and in all. ``patience`` is how long to wait for a server.

    >>> import tempfile
    >>> from pathlib import Path
    >>> from fiveshot.data import fetch
    >>> with tempfile.TemporaryDirectory() as root:
    ...     for photo in (Path(root, "cub200", part, "wren", "1.jpg") for part in ("train", "test")):
    ...         photo.parent.mkdir(parents=True)
    ...         photo.touch()
    ...     fetch("cub200", Path(root)).dataset.differences[0]  # there already: nothing is downloaded
    '1 class, officially 200'
    """
    return fetch_spec(dataset_spec(name), root, progress=progress, patience=patience)


def fetch_spec(
    spec: DatasetSpec, root: Path, *, progress: BytesProgress | None = None, patience: Patience | None = None
) -> Fetched:
    """Do what ``fetch`` does for a dataset that has a specification, but no place in this package."""
    if not spec.downloads:
        raise DownloadError(f"{spec.title} cannot be downloaded. {spec.layout_help}")
    folder = Path(root) / spec.name
    if not folder.exists():
        _download_and_unpack(spec, folder, progress, patience)
    # Official layouts come with their split: no seed has any effect.
    return Fetched(folder, open_spec(spec, folder, seed=0))


def _download_and_unpack(
    spec: DatasetSpec, folder: Path, progress: BytesProgress | None, patience: Patience | None
) -> None:
    root = folder.parent
    try:
        root.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StorageError(f"cannot create {root}: {error.strerror or error}") from error
    already = [root / item.file for item in spec.downloads if (root / item.file).exists()]
    try:
        archives = [download(item, root, progress=progress, patience=patience) for item in spec.downloads]
    except DownloadError as error:
        raise DownloadError(f"{error}. {spec.layout_help}") from error
    extract_safely(archives, folder)
    for archive in archives:
        if archive not in already:  # what the user had put there stays
            archive.unlink()
