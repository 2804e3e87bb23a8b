"""Run commands of fiveshot one after the other in one process, and say how each ended and what memory it took.

The commands come as JSON on standard input, a list of lists; a line of JSON about each goes to standard output.
With ``--no-network`` pixels stand for features, and a photo may take a second: what a hostile file does, it does
before the network sees it.
"""

from __future__ import annotations

import contextlib
import io
import json
import sys
import traceback
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from fiveshot.backbones import embedded
from fiveshot.cli.app import main
from fiveshot.data import decoders

SECONDS = 1  # that a hostile photo may take: the same limit as everywhere, only shorter


class Pixels:
    """A session of ONNX Runtime that takes no time."""

    def run(self, _: object, given: Mapping[str, np.ndarray]) -> list[np.ndarray]:
        flat = given["images"].reshape(len(given["images"]), -1)
        return [flat[:, : embedded.WIDTH].copy()]


def use_no_network() -> None:
    weights = embedded.read_weights(embedded.EMBEDDED_FILE)
    digest = embedded.hash_arrays(weights)
    embedded.read_weights = lambda _: weights
    embedded.hash_arrays = lambda _: digest
    embedded.open_session = lambda *_: Pixels()


def peak() -> int:
    """Return the most memory that this process has had, in bytes."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM:"))


def ended(arguments: list[str]) -> dict[str, object]:
    sys.argv = ["fiveshot", *arguments]
    said = io.TextIOWrapper(io.BytesIO(), "utf-8", errors="surrogateescape", write_through=True)
    status = 0
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
        "peak": peak(),
    }


if __name__ == "__main__":
    if sys.argv[1:2] == ["--no-network"]:
        decoders()._seconds = SECONDS
        use_no_network()
        del sys.argv[1]
    if len(sys.argv) > 1:  # one command that does not end: the service
        main()
    for command in json.load(sys.stdin):
        print(json.dumps(ended(command)), flush=True)  # noqa: T201
