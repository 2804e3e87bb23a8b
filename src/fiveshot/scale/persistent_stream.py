"""Reading over connections that break: what fails is tried again, and what keeps failing is no damaged file."""

from __future__ import annotations

import io
import time
from collections.abc import Callable
from contextlib import suppress
from typing import IO, Any, TypeVar

from fiveshot.data.chunks import CHUNK
from fiveshot.errors import FiveshotError, StorageError

ATTEMPTS = 4
WAIT_SECONDS = 0.5  # before the second attempt; twice as long before each further one

Result = TypeVar("Result")


def persistently(action: Callable[[], Result], path: str) -> Result:
    """Return what an action returns, tried again a few times after errors of a driver.

    ``FileNotFoundError`` is an answer, and raised at once.

    >>> persistently(lambda: b"an owl", "s3://photos/owl.jpg")
    b'an owl'
    """
    attempt = 1
    while True:
        try:
            return action()
        except (FileNotFoundError, FiveshotError):
            raise
        except Exception as error:  # every driver has errors of its own
            if attempt == ATTEMPTS:
                raise StorageError(
                    f"cannot read {path}, tried {ATTEMPTS} times: {str(error) or type(error).__name__}; "
                    "its shard is not finished: the same command reads it again"
                ) from error
        time.sleep(WAIT_SECONDS * 2 ** (attempt - 1))
        attempt += 1


class PersistentStream(io.RawIOBase):
    """The bytes of a file that ``opened`` opens; after an error it is opened again, and read on where it was."""

    def __init__(self, opened: Callable[[], IO[bytes]], path: str) -> None:
        self._opened = opened
        self._path = path
        self._stream: IO[bytes] | None = None  # at the position, where there is one
        self._position = 0

    def read(self, size: int = -1) -> bytes:
        """Return so many bytes, fewer only at the end of the file; all that are left unless given."""
        data = self._tried(lambda stream: self._piece(stream, size))
        self._position += len(data)
        return data

    def readinto(self, buffer: Any) -> int:
        """Fill a buffer; return how many bytes there were."""
        data = self.read(len(buffer))
        buffer[: len(data)] = data
        return len(data)

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Go elsewhere; return where that is."""
        self._position = self._tried(lambda stream: stream.seek(offset, whence))
        return self._position

    def tell(self) -> int:
        """Return where the next byte comes from."""
        return self._position

    def readable(self) -> bool:
        """Tell that it can be read."""
        return True

    def seekable(self) -> bool:
        """Tell that it can be read from anywhere."""
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
            raise StorageError(f"cannot read {self._path}: it is not there any more; start again") from error

    def _piece(self, stream: IO[bytes], size: int) -> bytes:
        data = stream.read(size)
        whole = getattr(stream, "size", None)  # as most drivers know it
        end = self._position + len(data)
        # Some drivers take a connection that ends early for the end of the file.
        if isinstance(whole, int) and end < whole and (size < 0 or len(data) < size):
            raise EOFError(f"the connection ended after {end:,} of {whole:,} bytes")
        return data

    def _opened_at(self, position: int) -> IO[bytes]:
        stream = self._opened()
        try:
            if position:
                stream.seek(position)
        except (OSError, ValueError):  # a server that sends files from their beginning only
            while position and (data := stream.read(min(position, CHUNK))):
                position -= len(data)
        return stream

    def _drop(self) -> None:
        stream, self._stream = self._stream, None
        if stream is not None:
            with suppress(Exception):  # of a connection that is broken anyway
                stream.close()
