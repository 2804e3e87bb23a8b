"""Keep what C++ code prints away from standard output."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

STANDARD_OUTPUT = 1  # its file descriptor


@contextmanager
def silent_output() -> Iterator[None]:
    """Drop what this process writes to standard output inside the block, also below Python.

    The ONNX exporter prints its whole graph when it fails, and ``redirect_stdout`` does not reach it.

    >>> import os
    >>> with silent_output():
    ...     _ = os.write(1, b"hundreds of lines")
    """
    if sys.stdout is not None:
        sys.stdout.flush()
    try:
        kept = os.dup(STANDARD_OUTPUT)
    except OSError:  # closed: nobody would see it
        yield
        return
    nowhere = os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(nowhere, STANDARD_OUTPUT)
        yield
    finally:
        os.dup2(kept, STANDARD_OUTPUT)
        os.close(nowhere)
        os.close(kept)
