"""Get a named dataset: download its archives, unpack them, count what is there.

pooch is not used because it restarts an interrupted download from the beginning. This code resumes a download if
the server still has the same file, retries while it makes progress, and refuses one that would fill the disk.
"""

from __future__ import annotations

import http.client
import os
import re
import shutil
import tarfile
import time
import urllib.error
import urllib.request
import zipfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, closing
from dataclasses import dataclass
from pathlib import Path
from typing import IO, cast

from fiveshot.data.archives import (
    ARCHIVE_LIMITS,
    CHUNK,
    ArchiveLimits,
    StrictTarInfo,
    damage_reported,
    decompressed,
    is_zip,
    tar_members,
    write_all,
    zip_members,
)
from fiveshot.data.dataset import ImageDataset
from fiveshot.data.registry import DatasetSpec, Download, dataset_spec, is_published, open_dataset
from fiveshot.errors import InputError, StorageError
from fiveshot.storage import attempting, part_beside

BytesProgress = Callable[[int, int | None], None]  # bytes so far; total bytes, or None if unknown
PIECE = 1 << 17  # small, so that an interrupted download keeps almost all bytes that arrived
_CONTENT_RANGE = re.compile(r"bytes (?:(\d+)-\d+|\*)/(\d+)")


class DownloadError(InputError):
    """A file cannot be downloaded, or differs from the published file."""


@dataclass(frozen=True)
class RetryPolicy:
    """How long to wait for a server, and how often to retry without progress."""

    timeout: float = 30.0  # seconds without a byte
    tries: int = 5
    pause: float = 1.0  # seconds before the second try, doubled before each further one


@dataclass(frozen=True)
class Fetched:
    """A dataset on disk.

    Parameters
    ----------
    folder : Path
        Its folder.
    dataset : ImageDataset
        The images; ``dataset.differences`` lists differences from the official dataset.

    Examples
    --------
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
    name: str | DatasetSpec, root: Path, *, progress: BytesProgress | None = None, retry: RetryPolicy | None = None
) -> Fetched:
    """Download a dataset into ``root/<name>``, or open it if it is already there.

    The archives are removed after unpacking. The next call resumes an interrupted download.

    Parameters
    ----------
    name : str or DatasetSpec
        The dataset.
    root : Path
        Where to put it.
    progress : callable, optional
        Called with the bytes so far and the total bytes (None if the server does not tell).
    retry : RetryPolicy, optional
        How long to wait for a server.

    Returns
    -------
    Fetched
        The dataset.

    Raises
    ------
    InputError
        When the dataset is unknown, cannot be downloaded or differs from the published one.
    StorageError
        When it cannot be written.

    Examples
    --------
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
    spec = name if isinstance(name, DatasetSpec) else dataset_spec(name)
    if not spec.downloads:
        raise DownloadError(f"{spec.title} cannot be downloaded", hint=spec.layout_help)
    folder = Path(root) / spec.name
    if not folder.exists():
        _download_and_unpack(spec, folder, progress, retry)
    # Official layouts include a split, so the seed has no effect.
    return Fetched(folder, open_dataset(spec, folder, seed=0))


def _download_and_unpack(
    spec: DatasetSpec, folder: Path, progress: BytesProgress | None, retry: RetryPolicy | None
) -> None:
    root = folder.parent
    with attempting(f"create {root}"):
        root.mkdir(parents=True, exist_ok=True)
    already = set(root.iterdir())
    try:
        archives = [download(item, root, progress=progress, retry=retry) for item in spec.downloads]
    except DownloadError as error:
        hints = (error.hint, spec.layout_help)
        raise DownloadError(error.message, hint=". ".join(hint for hint in hints if hint)) from error
    extract_safely(archives, folder)
    for archive in set(archives) - already:  # keep archives that the user put there
        archive.unlink()


def download(
    item: Download, folder: Path, *, progress: BytesProgress | None = None, retry: RetryPolicy | None = None
) -> Path:
    """Download into ``folder`` and return the file. It gets its final name only when it is complete and checked.

    An interrupted download leaves ``<file>.part``. The next call resumes it if the server still has the same
    file. After a wrong checksum the download starts again, once.
    """
    target, part = folder / item.file, folder / f"{item.file}.part"
    if target.is_file():
        if not is_published(item, target):
            message = f"{target} is not the published file (size or checksum differ)"
            raise DownloadError(message, hint="remove it first")
        return target
    for _ in range(2):
        _complete(item, part, progress or (lambda done, total: None), retry or RetryPolicy())
        if is_published(item, part):
            with _writing(part):
                part.replace(target)
                _validator_file(part).unlink(missing_ok=True)
            return target
        _discard(part)
    raise DownloadError(f"{item.url} is not the published file (size or checksum differ, twice); nothing was kept")


def _complete(item: Download, part: Path, progress: BytesProgress, retry: RetryPolicy) -> None:
    failures, furthest = 0, _size(part)
    while True:
        try:
            return _continue(item, part, progress, retry.timeout)
        except StorageError:
            raise
        except urllib.error.HTTPError as error:
            error.close()
            if error.code < 500 and error.code not in (408, 425, 429):
                raise DownloadError(f"{item.url} is not available: HTTP {error.code} {error.reason}") from error
            reason: Exception = error
        except (OSError, http.client.HTTPException) as error:
            reason = error
        failures = 0 if _size(part) > furthest else failures + 1
        furthest = max(furthest, _size(part))
        if failures >= retry.tries:
            raise DownloadError(
                f"cannot download {item.url}: {reason}",
                hint=f"repeat the command later; it resumes from {part}",
            ) from reason
        time.sleep(retry.pause * 2 ** max(0, failures - 1))


def _continue(item: Download, part: Path, progress: BytesProgress, timeout: float) -> None:
    """Request the missing bytes and append them; raise if the connection ends early."""
    done, validator = _resumable(item, part)
    headers = {"User-Agent": "fiveshot", "Accept-Encoding": "identity"}
    if done:
        headers["Range"] = f"bytes={done}-"
        if validator:  # if the file has changed, the server sends all of it
            headers["If-Range"] = validator
    try:
        response = urllib.request.urlopen(urllib.request.Request(item.url, headers=headers), timeout=timeout)
    except urllib.error.HTTPError as error:
        if error.code != 416:
            raise
        error.close()
        if done != _range(error.headers.get("Content-Range"))[1]:
            _discard(part)  # longer than the file: not a part of it
            raise ConnectionError("the file on the server has changed") from error
        return  # all bytes have arrived
    with response:
        start, total = 0, response.headers.get("Content-Length")
        if response.status == http.client.PARTIAL_CONTENT:
            start, total = _range(response.headers.get("Content-Range"))
            if start != done:
                _discard(part)
                raise ConnectionError(f"requested bytes from {done}, received bytes from {start}")
        _receive(response, part, start, None if total is None else int(total), progress)


def _receive(
    response: http.client.HTTPResponse, part: Path, start: int, total: int | None, progress: BytesProgress
) -> None:
    with _writing(part):
        free = shutil.disk_usage(part.parent).free
        if total is not None and total - start > free:
            raise StorageError(
                f"{part.parent} has {free:,} bytes free, but {total - start:,} are needed", hint="free some space"
            )
        _validator_file(part).write_text(_validator(response) or "", "utf-8")
        file = part.open("ab" if start else "wb", buffering=0)
    with file:
        progress(start, total)
        while chunk := response.read(PIECE):
            with _writing(part):
                write_all(file, chunk)
            start += len(chunk)
            progress(start, total)
        with _writing(part):
            os.fsync(file.fileno())
    if total is not None and start != total:
        raise ConnectionError(f"the connection ended after {start:,} of {total:,} bytes")


def _resumable(item: Download, part: Path) -> tuple[int, str | None]:
    """Return how many bytes of a partial file to keep, and the validator of the file on the server."""
    file = _validator_file(part)
    validator = file.read_text("utf-8") if file.is_file() else ""
    if not validator and not (item.md5 or item.sha256):
        return 0, None  # we could not detect two halves of different files
    return _size(part), validator or None


def _validator(response: http.client.HTTPResponse) -> str | None:
    etag = response.headers.get("ETag")
    return etag if etag and not etag.startswith("W/") else response.headers.get("Last-Modified")


def _validator_file(part: Path) -> Path:
    return part.with_name(f"{part.name}.from")


def _range(header: str | None) -> tuple[int, int | None]:
    match = _CONTENT_RANGE.match(header or "")
    return (int(match[1] or 0), int(match[2])) if match else (0, None)


def _size(part: Path) -> int:
    return part.stat().st_size if part.is_file() else 0


def _discard(part: Path) -> None:
    part.unlink(missing_ok=True)
    _validator_file(part).unlink(missing_ok=True)


def _writing(part: Path) -> AbstractContextManager[None]:
    hint = "free some space or choose another folder, then repeat the command: it resumes"
    return attempting(f"write {part}", hint=hint)


def extract_safely(archives: Sequence[Path], folder: Path, limits: ArchiveLimits = ARCHIVE_LIMITS) -> None:
    """Unpack the plain files of archives into one new folder, all of them or none.

    It makes the same checks as ``fiveshot.data.archives.open_archive``. It ignores permissions, owners and times.
    """
    if folder.exists():
        raise StorageError(f"{folder} exists already", hint="remove it, or choose another folder")
    temporary = part_beside(folder)
    with attempting(f"write {folder}"):
        temporary.mkdir()
    try:
        with attempting(f"unpack into {folder}", hint="nothing was left behind"):
            for archive in archives:
                for name, stream in _streams(archive, limits):
                    (temporary / name).parent.mkdir(parents=True, exist_ok=True)
                    with closing(stream), (temporary / name).open("wb", buffering=0) as file:
                        for chunk in _chunks(stream, archive, name):
                            write_all(file, chunk)
            temporary.rename(folder)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _streams(archive: Path, limits: ArchiveLimits) -> Iterator[tuple[str, IO[bytes]]]:
    with damage_reported(archive):
        if is_zip(archive):
            with zipfile.ZipFile(archive) as packed:
                for name, info in zip_members(archive, packed, limits):
                    yield name, packed.open(info)
            return
        # "r|" reads from start to end, so a compressed tar is decompressed once and never stored.
        with (
            decompressed(archive, limits) as plain,
            tarfile.open(fileobj=plain, mode="r|", tarinfo=StrictTarInfo) as tar,
        ):
            for name, member in tar_members(archive, tar, limits):
                yield name, cast("IO[bytes]", tar.extractfile(member))  # all of them are plain files
            while plain.read(CHUNK):  # a compressed file has its checksum after the last member
                pass


def _chunks(stream: IO[bytes], archive: Path, name: str) -> Iterator[bytes]:
    with damage_reported(archive, name):
        while chunk := stream.read(CHUNK):
            yield chunk
