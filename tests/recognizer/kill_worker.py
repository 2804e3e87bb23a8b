"""A writer to be killed: run by test_kill.py."""

from __future__ import annotations

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


def main() -> None:
    """Make the changes from one on, saying so after each, until the kill."""
    path, first, other = sys.argv[1:]
    with Recognizer.open(path, timeout=30) as model:
        print("open", flush=True)
        for step in range(int(first), len(STEPS)):
            act(model, step, Path(other))
            print(step, flush=True)


if __name__ == "__main__":
    main()
