"""A wall clock that jumps by years, to and fro: order, undo and deadlines follow other clocks."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from corpus import photo
from serving import serving

from fiveshot import Recognizer
from fiveshot.recognizer import check_model

HERE = Path(__file__).parent
DRIVER = HERE / "drive.py"
YEAR = 31_557_600
JUMPS = (0, -20 * YEAR, 200 * YEAR, -80 * YEAR, 1)  # Python itself has no time after the year 2262
pytestmark = pytest.mark.skipif(
    not sys.platform.startswith("linux") or shutil.which("cc") is None,
    reason="a library that moves the clock is compiled and preloaded: Linux and a C compiler are needed",
)
WORKER = """
import sys
from datetime import datetime
from pathlib import Path
import numpy as np
from fiveshot import Recognizer

path, offset, *jumps = sys.argv[1:]
with Recognizer.open(path) as model:
    for number, jump in enumerate(jumps):
        Path(offset).write_text(jump)
        features = np.random.default_rng(number).normal(size=(3, model.snapshot.contents.width))
        model.learn_features(f"class {number}", features)
    print([entry.seq for entry in model.history()], len({entry.at[:4] for entry in model.history()}))
    print([model.undo().classes[0] for _ in jumps[1:]])
    model.export(Path(path).with_name("export.fiveshot"))
"""


@pytest.fixture(scope="module")
def moved(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Return an environment whose clock can be moved."""
    folder = tmp_path_factory.mktemp("clock")
    subprocess.run(
        ["cc", "-shared", "-fPIC", "-o", folder / "clock.so", HERE / "jumping_clock.c", "-ldl"], check=True
    )
    return {**os.environ, "LD_PRELOAD": str(folder / "clock.so"), "CLOCK_OFFSET": str(folder / "offset")}


@pytest.fixture
def model(tmp_path: Path) -> Path:
    Recognizer.create(tmp_path / "model").close()
    return tmp_path / "model"


def test_history_and_undo_follow_the_order_of_changes(model: Path, moved: dict[str, str]) -> None:
    command = [sys.executable, "-c", WORKER, str(model), moved["CLOCK_OFFSET"], *map(str, JUMPS)]
    done = subprocess.run(command, env=moved, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    seqs, years, *undone = done.stdout.replace("]", "]\n", 1).split("\n")[:3]
    numbers = json.loads(seqs)
    assert numbers == sorted(numbers, reverse=True)
    assert int(years) >= 4  # so the clock did jump
    assert undone == [str([f"class {number}" for number in range(len(JUMPS) - 1, 0, -1)])]
    assert check_model(model) == []
    with Recognizer.import_file(model.with_name("export.fiveshot"), model.with_name("copy")) as copy:
        assert set(copy.snapshot.classes) == {"class 0"}


def test_a_service_goes_on(model: Path, moved: dict[str, str]) -> None:
    """Deadlines and rates are not those of the wall clock; what is acknowledged meanwhile is there."""
    offset = Path(moved["CLOCK_OFFSET"])
    offset.write_text("0")
    command = [sys.executable, str(DRIVER), "--no-network", "serve", "model", "--port", "0"]
    photos = {"photos": ("1.jpg", photo("JPEG"), "image/jpeg")}
    with serving(command, model.parent, timeout=120, env=moved) as (client, _):
        for number, jump in enumerate(JUMPS):
            offset.write_text(str(jump))
            learned = client.post(f"/v1/classes/class {number}/photos", files=photos)
            assert learned.status_code == 200, learned.text
            assert client.post("/v1/predict", files=photos).status_code == 200
            assert client.get("/v1/ready").status_code == 200
    with Recognizer.open(model) as opened:
        assert len(opened.snapshot.classes) == len(JUMPS)
        assert np.all([entry.undoable for entry in opened.history(len(JUMPS))])
