"""Download one file: resumed where it stopped, checked before it gets its name."""

from __future__ import annotations

import http.client
import os
import re
import shutil
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from fiveshot.data.chunks import write_all
from fiveshot.data.spec import Download, is_published
from fiveshot.errors import InputError, StorageError

BytesProgress = Callable[[int, int | None], None]  # bytes so far, bytes in all where the server tells
PIECE = 1 << 17  # small, so that an interrupted download has kept almost all that had arrived
_CONTENT_RANGE = re.compile(r"bytes (?:(\d+)-\d+|\*)/(\d+)")


class DownloadError(InputError):
    """A file cannot be downloaded, or is not the one that was published."""


@dataclass(frozen=True)
class Patience:
    """How long to wait for a server, and how often to try again without getting any further."""

    timeout: float = 30.0  # seconds without a byte
    tries: int = 5
    pause: float = 1.0  # seconds before the second try, doubled before each further one


def download(
    item: Download, folder: Path, *, progress: BytesProgress | None = None, patience: Patience | None = None
) -> Path:
    """Download into ``folder`` and return the file; it bears its name only once it is whole and checked.

    An interrupted download leaves ``<file>.part``, which the next call continues, provided the server still
    has the same file. A wrong checksum starts over from nothing, once.
    """
    target, part = folder / item.file, folder / f"{item.file}.part"
    if target.is_file():
        if not is_published(item, target):
            raise DownloadError(f"{target} is not the published file (size or checksum differ); remove it first")
        return target
    for _ in range(2):
        _complete(item, part, progress or (lambda done, total: None), patience or Patience())
        if is_published(item, part):
            with _writing(part):
                part.replace(target)
                _validator_file(part).unlink(missing_ok=True)
            return target
        _discard(part)
    raise DownloadError(
        f"{item.url} does not give the published file (size or checksum differ, twice); nothing was kept"
    )


def _complete(item: Download, part: Path, progress: BytesProgress, patience: Patience) -> None:
    failures, furthest = 0, _size(part)
    while True:
        try:
            return _continue(item, part, progress, patience.timeout)
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
        if failures >= patience.tries:
            raise DownloadError(
                f"cannot download {item.url}: {reason}; what has arrived is kept in {part}, "
                "so try the same command again later"
            ) from reason
        time.sleep(patience.pause * 2 ** max(0, failures - 1))


def _continue(item: Download, part: Path, progress: BytesProgress, timeout: float) -> None:
    """Ask for what is missing and append it; raise when the connection ends early."""
    done, validator = _resumable(item, part)
    headers = {"User-Agent": "fiveshot", "Accept-Encoding": "identity"}
    if done:
        headers["Range"] = f"bytes={done}-"
        if validator:  # the server sends the whole file instead when it has changed
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
        return  # all of it had arrived
    with response:
        start, total = 0, response.headers.get("Content-Length")
        if response.status == http.client.PARTIAL_CONTENT:
            start, total = _range(response.headers.get("Content-Range"))
            if start != done:
                _discard(part)
                raise ConnectionError(f"asked for the bytes from {done}, got those from {start}")
        _receive(response, part, start, None if total is None else int(total), progress)


def _receive(
    response: http.client.HTTPResponse, part: Path, start: int, total: int | None, progress: BytesProgress
) -> None:
    with _writing(part):
        free = shutil.disk_usage(part.parent).free
        if total is not None and total - start > free:
            raise StorageError(
                f"{part.parent} has {free:,} bytes free, but {total - start:,} are still to come; make room"
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
    """Return how much of a part to keep, and what identifies the file it is a part of."""
    file = _validator_file(part)
    validator = file.read_text("utf-8") if file.is_file() else ""
    if not validator and not (item.md5 or item.sha256):
        return 0, None  # nothing would tell if the two halves were of different files
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


@contextmanager
def _writing(part: Path) -> Iterator[None]:
    try:
        yield
    except StorageError:
        raise
    except OSError as error:
        raise StorageError(
            f"cannot write {part}: {error.strerror or error}; make room or choose another folder, then repeat "
            "the command: it continues from there"
        ) from error
