"""Compressed tars as streams of bounded length, and as a temporary plain tar for random access."""

from __future__ import annotations

import bz2
import gzip
import lzma
import os
import tempfile
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Lock
from typing import IO, cast

from fiveshot.data.chunks import CHUNK, write_all
from fiveshot.data.limits import Limits, Meter
from fiveshot.errors import StorageError

_OPENERS: dict[bytes, Callable[[Path], object]] = {
    b"\x1f\x8b": gzip.GzipFile,
    b"\xfd7zXZ\x00": lzma.LZMAFile,
    b"BZh": bz2.BZ2File,
}


def is_zip(path: Path) -> bool:
    """Tell a zip from a tar by its first bytes, whatever its name says."""
    return _first_bytes(path).startswith(b"PK")


def is_compressed(path: Path) -> bool:
    """Tell whether a tar is compressed by its first bytes, whatever its name says."""
    return _opener(path) is not None


@contextmanager
def decompressed(path: Path, limits: Limits) -> Iterator[IO[bytes]]:
    """Open a tar, compressed or not, for reading from start to end under the limits."""
    opener = _opener(path)
    stream = cast("IO[bytes]", opener(path)) if opener else path.open("rb")
    with stream:
        yield cast("IO[bytes]", _Metered(stream, Meter(path, limits)))


class TemporaryTar:
    """A compressed tar, unpacked into a nameless temporary file: it goes with the process, however that ends."""

    def __init__(self, path: Path, limits: Limits) -> None:
        self.file = cast("IO[bytes]", tempfile.TemporaryFile(buffering=0))  # noqa: SIM115 lives as long as this
        weakref.finalize(self, self.file.close)
        self._lock = Lock()
        with decompressed(path, limits) as stream:
            while chunk := stream.read(CHUNK):
                self._append(path, chunk)

    def _append(self, path: Path, chunk: bytes) -> None:
        try:
            write_all(self.file, chunk)
        except OSError as error:
            raise StorageError(
                f"cannot unpack {path} into {tempfile.gettempdir()}: {error.strerror or error}; nothing was left"
            ) from error

    def read_at(self, offset: int, size: int) -> bytes:
        """Return bytes from the middle, also while other threads and forked processes do."""
        if hasattr(os, "pread"):
            return os.pread(self.file.fileno(), size, offset)
        with self._lock:  # Windows, which does not fork
            self.file.seek(offset)
            return self.file.read(size)


class _Metered:
    def __init__(self, stream: IO[bytes], meter: Meter) -> None:
        self._stream = stream
        self._meter = meter

    def read(self, size: int = CHUNK) -> bytes:
        data = self._stream.read(size)
        self._meter.unpacked(len(data), "(compressed stream)")
        return data


def _opener(path: Path) -> Callable[[Path], object] | None:
    first = _first_bytes(path)
    return next((opener for magic, opener in _OPENERS.items() if first.startswith(magic)), None)


def _first_bytes(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(6)
