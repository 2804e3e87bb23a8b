"""Processes that read a model over and over while another one writes: run by test_processes.py."""

from __future__ import annotations

import os
import sys
import time
import traceback
from pathlib import Path

import numpy as np
from models import photos

from fiveshot.recognizer import Recognizer


def read(path: Path) -> tuple[int, int]:
    """Look at the model until it has the class ``end``; return how many states were seen, and how many looks."""
    states: set[int] = set()
    looks, last = 0, 0
    deadline = time.monotonic() + 60
    with Recognizer.open(path, readonly=True) as model:
        while time.monotonic() < deadline:
            snapshot = model.refresh()
            looks += 1
            assert snapshot.state >= last, "time runs forward"
            last = snapshot.state
            states.add(last)
            for one in snapshot.contents.classes.values():
                whole = photos(one.name, len(one.sha256s) if one.base else 5)
                assert len(one.features) == one.summary.count, "photos and statistics of one state"
                first = one.features[np.argsort(one.photos.ids)[:5]]
                assert one.base or first.tobytes() == whole.tobytes()
            if snapshot.classes:
                snapshot.predict_features(photos("owl", 2))
            if "end" in snapshot.classes:
                return len(states), looks
    raise TimeoutError("the writer never came to the end")


def main() -> None:
    """Fork ``count`` readers of ``path``; print what each has seen."""
    path, count = Path(sys.argv[1]), int(sys.argv[2])
    children = []
    for _ in range(count):
        child = os.fork()
        if child == 0:
            try:
                os.write(1, b"ready\n")
                states, looks = read(path)
                os.write(1, b"read %d %d\n" % (states, looks))
            except BaseException:
                os.write(1, f"failed {traceback.format_exc()!r}\n".encode())
            os._exit(0)
        children.append(child)
    for child in children:
        os.waitpid(child, 0)


if __name__ == "__main__":
    main()
