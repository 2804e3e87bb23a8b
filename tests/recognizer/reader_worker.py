"""A process that reads a model over and over while another one writes: run by test_processes.py."""

from __future__ import annotations

import sys

import numpy as np
from models import photos

from fiveshot.recognizer import Recognizer


def main() -> None:
    """Look at the model until it has the class ``end``; print every state that is seen."""
    last = -1
    with Recognizer.open(sys.argv[1], readonly=True) as model:
        while True:
            snapshot = model.refresh()
            assert snapshot.state >= last, "time runs forward"
            for one in snapshot.contents.classes.values():
                whole = photos(one.name, len(one.sha256s) if one.base else 5)
                assert len(one.features) == one.summary.count, "photos and statistics of one state"
                first = one.features[np.argsort(one.photos.ids)[:5]]
                assert one.base or first.tobytes() == whole.tobytes()
            if snapshot.classes:
                snapshot.predict_features(photos("owl", 2))
            if snapshot.state != last:
                last = snapshot.state
                print(last, flush=True)
            if "end" in snapshot.classes:
                return


if __name__ == "__main__":
    main()
