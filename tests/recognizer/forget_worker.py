"""A process that forgets two classes and says what memory it took: run by test_large_forgetting.py."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import torch

from fiveshot.recognizer import Recognizer


def peak() -> int:
    """Return the most memory that this process has held since the last look, in MB."""
    status = Path("/proc/self/status").read_text()
    Path("/proc/self/clear_refs").write_text("5")
    return int(status.partition("VmHWM:")[2].split()[0]) // 1000


def main() -> None:
    """Forget the classes named after the path, and print the memory before and the peak of each."""
    torch.set_num_threads(1)
    path, *names = sys.argv[1:]
    with Recognizer.open(path) as model:
        peak()
        os.write(1, b"%d\n" % peak())
        for name in names:
            model.forget(name)
            os.write(1, b"%d\n" % peak())


if __name__ == "__main__":
    main()
