"""Run commands of fiveshot one after the other in one process, and say how each ended and what memory it took.

The commands come as JSON on standard input, a list of lists; a line of JSON about each goes to standard output.
"""

from __future__ import annotations

import contextlib
import io
import json
import sys
import time
import traceback
from pathlib import Path

from fiveshot.cli.app import main
from fiveshot.data import decoders

SECONDS = 2  # that a photo may take: the same limit as everywhere, only shorter


def peak() -> int:
    """Return the most memory that this process has had, in bytes."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM:"))


def ended(arguments: list[str]) -> dict[str, object]:
    sys.argv = ["fiveshot", *arguments]
    said = io.TextIOWrapper(io.BytesIO(), "utf-8", errors="surrogateescape", write_through=True)
    began, status = time.monotonic(), 0
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
        try:
            main()
        except SystemExit as leaving:
            status = leaving.code if isinstance(leaving.code, int) else 1
        except BaseException:
            status = 99
            traceback.print_exc()
    said.seek(0)
    return {
        "status": status,
        "said": said.buffer.getvalue().decode("utf-8", "backslashreplace"),  # type: ignore[attr-defined]
        "seconds": time.monotonic() - began,
        "peak": peak(),
    }


if __name__ == "__main__":
    decoders()._seconds = SECONDS
    if len(sys.argv) > 1:  # one command that does not end: the service
        main()
    for command in json.load(sys.stdin):
        print(json.dumps(ended(command)), flush=True)  # noqa: T201
