"""Files by path or URL, through fsspec: a disk, S3-style stores, HTTP, or any other fsspec driver.

Connections break. A failed read is tried again. If it keeps failing, it is reported as a read error, not as a
damaged file.
"""

from __future__ import annotations

import io
import itertools
import re
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import IO, Any, TypeVar

from fiveshot.data import MAX_PHOTO_BYTES, ImageError, is_hidden
from fiveshot.errors import FiveshotError, InputError, StorageError
from fiveshot.extras import import_extra

ATTEMPTS = 4
SKIPPED_AT_ONCE = 1 << 20  # bytes
WAIT_SECONDS = 0.5  # before the second attempt; doubled before each further one
_RANGE = re.compile(r"\{(\d+)\.\.(\d+)\}")
_MARKS = ("size", "mtime", "created", "LastModified", "last_modified", "ETag", "etag", "md5Hash", "crc")

Result = TypeVar("Result")


@dataclass(frozen=True, eq=False)
class StoredFile:
    """A file that any process with the same drivers and credentials can open; it can serve as an image source."""

    filesystem: Any
    path: str
    name: str  # relative to the requested folder
    mark: str  # changes when the file does
    size: int = 0  # as it was listed

    def open(self) -> PersistentStream:
        """Open the file for reading; a broken connection is opened again."""
        return PersistentStream(lambda: self.filesystem.open(self.path, "rb"), self.path)

    def read(self) -> bytes:
        """Return the bytes of an image, or raise ``fiveshot.data.ImageError`` if it cannot be used."""
        if reason := too_large(self.size):
            raise ImageError(self.name, reason, code="image_too_large")
        try:
            data: bytes = persistently(lambda: self.filesystem.cat_file(self.path), self.path)
        except FileNotFoundError as error:
            raise ImageError(self.name, f"cannot read {self.path}: {error}") from error
        return data


def is_url(where: str) -> bool:
    """Tell whether this is a URL and not a path.

    >>> is_url("s3://photos/birds"), is_url("photos/birds")
    (True, False)
    """
    return "://" in where or "::" in where


def find_files(where: str) -> list[StoredFile]:
    """Return the file, all files below the folder, or those that match ``*`` and ``{000..127}``, by path."""
    found: dict[str, StoredFile] = {}
    core = import_extra("fsspec.core", extra="ray")
    for pattern in expand_ranges(where):
        try:
            filesystem, path = core.url_to_fs(pattern)
        except (ImportError, ValueError) as error:
            raise InputError(f"cannot open {pattern}: {error}") from error
        try:
            listed = _listing(filesystem, path)
        except FileNotFoundError:
            listed = {}
        except Exception as error:
            raise InputError(f"cannot list {where}: {error}") from error
        start = _folder(path, listed)
        for file, info in listed.items():
            name = file.removeprefix(start)
            if not is_hidden(name):
                mark = " ".join(f"{key}={info[key]}" for key in _MARKS if info.get(key) is not None)
                found[file] = StoredFile(filesystem, file, name, mark, int(info.get("size") or 0))
    if not found:
        raise InputError(f"no such folder, file or pattern: {where}")
    return [found[name] for name in sorted(found)]


def expand_ranges(pattern: str) -> list[str]:
    """Expand number ranges in braces.

    >>> expand_ranges("birds-{08..10}.tar")
    ['birds-08.tar', 'birds-09.tar', 'birds-10.tar']
    """
    parts = _RANGE.split(pattern)
    texts, ranges = parts[::3], zip(parts[1::3], parts[2::3], strict=True)
    choices = [[f"{n:0{len(low)}}" for n in range(int(low), int(high) + 1)] for low, high in ranges]
    return [
        "".join(itertools.chain(*itertools.zip_longest(texts, chosen, fillvalue="")))
        for chosen in itertools.product(*choices)
    ]


def _listing(filesystem: Any, path: str) -> dict[str, dict[str, Any]]:
    if any(sign in path for sign in "*?["):
        found: dict[str, dict[str, Any]] = filesystem.glob(path, detail=True)
        return {name: info for name, info in found.items() if info["type"] == "file"}
    if filesystem.isdir(path):
        found = filesystem.find(path, detail=True)
        return found
    return {path: filesystem.info(path)}


def _folder(path: str, listed: dict[str, Any]) -> str:
    """Return the folder that names are relative to, with its slash."""
    whole = path.rstrip("/")
    if path in listed or any(sign in path for sign in "*?["):
        whole = re.split(r"[*?[]", path)[0].rpartition("/")[0]
    return f"{whole}/" if whole else ""


def too_large(size: int) -> str:
    """Return why an image of this size cannot be used, or an empty text.

    >>> too_large(100_000), too_large(2**30)
    ('', 'too large: 1,073,741,824 bytes, the limit is 268,435,456')
    """
    return f"too large: {size:,} bytes, the limit is {MAX_PHOTO_BYTES:,}" if size > MAX_PHOTO_BYTES else ""


def persistently(action: Callable[[], Result], path: str) -> Result:
    """Run an action and return its result; after an error of a driver, try again a few times.

    ``FileNotFoundError`` is an answer, so it is raised at once.

    >>> persistently(lambda: b"an owl", "s3://photos/owl.jpg")
    b'an owl'
    """
    attempt = 1
    while True:
        try:
            return action()
        except (FileNotFoundError, FiveshotError):
            raise
        except Exception as error:  # every driver has its own errors
            if attempt == ATTEMPTS:
                raise StorageError(
                    f"cannot read {path}, tried {ATTEMPTS} times: {str(error) or type(error).__name__}",
                    hint="repeat the command: it reads the unfinished shard again",
                    code="connection",
                ) from error
        time.sleep(WAIT_SECONDS * 2 ** (attempt - 1))
        attempt += 1


class PersistentStream(io.RawIOBase):
    """The bytes of a file that ``opened`` opens; after an error it is opened again at the same position."""

    def __init__(self, opened: Callable[[], IO[bytes]], path: str) -> None:
        self._opened = opened
        self._path = path
        self._stream: IO[bytes] | None = None  # at the current position, if it is open
        self._position = 0

    def read(self, size: int = -1) -> bytes:
        """Return ``size`` bytes, fewer only at the end of the file; without a size, all remaining bytes."""
        data = self._tried(lambda stream: self._piece(stream, size))
        self._position += len(data)
        return data

    def readinto(self, buffer: Any) -> int:
        """Fill a buffer; return how many bytes there were."""
        data = self.read(len(buffer))
        buffer[: len(data)] = data
        return len(data)

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Move to a position; return it."""
        self._position = self._tried(lambda stream: stream.seek(offset, whence))
        return self._position

    def tell(self) -> int:
        """Return the position of the next byte."""
        return self._position

    def readable(self) -> bool:
        """Return True."""
        return True

    def seekable(self) -> bool:
        """Return True."""
        return True

    def close(self) -> None:
        """Close the file."""
        self._drop()
        super().close()

    def _tried(self, action: Callable[[IO[bytes]], Result]) -> Result:
        def attempt() -> Result:
            try:
                self._stream = self._stream or self._opened_at(self._position)
                return action(self._stream)
            except Exception:
                self._drop()
                raise

        try:
            return persistently(attempt, self._path)
        except FileNotFoundError as error:
            raise StorageError(f"cannot read {self._path}: it is gone", hint="start again") from error

    def _piece(self, stream: IO[bytes], size: int) -> bytes:
        data = stream.read(size)
        whole = getattr(stream, "size", None)  # most drivers know it
        end = self._position + len(data)
        # Some drivers treat a connection that ends early as the end of the file.
        if isinstance(whole, int) and end < whole and (size < 0 or len(data) < size):
            raise EOFError(f"the connection ended after {end:,} of {whole:,} bytes")
        return data

    def _opened_at(self, position: int) -> IO[bytes]:
        stream = self._opened()
        try:
            if position:
                stream.seek(position)
        except (OSError, ValueError):  # a server that sends files only from the beginning
            while position and (data := stream.read(min(position, SKIPPED_AT_ONCE))):
                position -= len(data)
        return stream

    def _drop(self) -> None:
        stream, self._stream = self._stream, None
        if stream is not None:
            with suppress(Exception):  # of a connection that is broken anyway
                stream.close()
