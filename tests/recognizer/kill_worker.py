"""A process that imports once and forks a writer for every kill: run by test_kill.py, one line a writer."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from models import photos

from fiveshot.recognizer import Recognizer

POOL = ("dotterel", "egretta", "fieldfare", "goshawk", "hoopoe")  # the classes of the model that is merged
# Verb, name and new name, to be done in this order from an empty model, which is empty again in the end.
STEPS = (
    ("learn", "avocet", ""),
    ("learn", "bittern", ""),
    ("merge", "", ""),
    ("add", "avocet", ""),
    ("erase", "bittern", ""),
    ("rename", "avocet", "curlew"),
    *(("erase", name, "") for name in POOL),
    ("forget", "curlew", ""),
    ("undo", "curlew", ""),
    ("erase", "curlew", ""),
)


def act(model: Recognizer, step: int, other: Path) -> None:
    """Make one change: one transaction each."""
    verb, name, new_name = STEPS[step]
    if verb in ("learn", "add"):
        model.learn_features(name, photos(name, 5, seed=verb == "add"), add=verb == "add")
    elif verb == "merge":
        model.merge(other)
    elif verb == "rename":
        model.rename(name, new_name)
    elif verb == "undo":
        model.undo()
    else:
        model.forget(name, for_good=verb == "erase")


def write(path: Path, first: int, other: Path) -> None:
    """Make the changes from one on, saying so after each, until the kill."""
    with Recognizer.open(path, timeout=30) as model:
        os.write(1, b"open\n")
        for step in range(first, len(STEPS)):
            act(model, step, other)
            os.write(1, b"%d\n" % step)
        os.write(1, b"end\n")


def main() -> None:
    """Fork a writer for each line ``path first other``; print its number first, and ``gone`` when it is dead."""
    for line in sys.stdin:
        path, first, other = line.split()
        child = os.fork()
        if child == 0:
            try:
                os.write(1, b"pid %d\n" % os.getpid())
                write(Path(path), int(first), Path(other))
            except BaseException as error:
                os.write(1, f"failed {error!r}\n".encode())
            os._exit(0)
        os.waitpid(child, 0)
        os.write(1, b"gone\n")


if __name__ == "__main__":
    main()
