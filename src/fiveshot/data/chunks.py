"""Bytes in pieces, written without a buffer: what is written is written, what fails leaves nothing to flush."""

from __future__ import annotations

from typing import IO

CHUNK = 1 << 20


def write_all(file: IO[bytes], chunk: bytes) -> None:
    """Write every byte to an unbuffered file, which may take only some of them at a time."""
    rest = memoryview(chunk)
    while rest:
        rest = rest[file.write(rest) :]
