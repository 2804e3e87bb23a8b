"""kill -9 at random points of learn, forget, rename, merge and undo: the state before or after, nothing else."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
from kill_worker import POOL, STEPS, act
from models import files_with, new_model, photos

from fiveshot.recognizer import Recognizer

KILLS = 56  # 4 in each step
WRITER = Path(__file__).parent / "kill_worker.py"
State = dict[str, bytes]  # name and features of each class


def states() -> list[State]:
    """Return the states before, between and after the steps, from plain Python."""

    def features(name: str, seed: int = 0) -> bytes:
        return photos(name, 5, seed=seed).tobytes()

    found: list[State] = [{}]
    for verb, name, new_name in STEPS:
        now = dict(found[-1])
        if verb == "learn":
            now[name] = features(name)
        elif verb == "add":
            now[name] += features(name, 1)
        elif verb == "merge":
            now |= {one: features(one) for one in POOL}
        elif verb == "rename":
            now[new_name] = now.pop(name)
        elif verb == "undo":
            now = found[-2]
        else:
            now.pop(name)
        found.append(now)
    return found


def stored(path: Path) -> State:
    with Recognizer.open(path, readonly=True) as model:
        classes = model.snapshot.contents.classes.values()
        return {one.name: one.features[np.argsort(one.photos.ids)].tobytes() for one in classes}


def prepared(folder: Path, other: Path) -> tuple[list[Path], list[float]]:
    """Return a closed model before each step, and the seconds of each step."""
    models, seconds = [], []
    new_model(folder / "model").close()
    for step in range(len(STEPS)):
        models.append(shutil.copytree(folder / "model", folder / f"before-{step}"))
        with Recognizer.open(folder / "model") as model:
            model.refresh()
            began = time.perf_counter()
            act(model, step, other)
            seconds.append(time.perf_counter() - began)
    return models, seconds


def killed(path: Path, first: int, other: Path, delay: float) -> int:
    """Let a writer begin with a step, kill it after a while, and return the last step it confirmed."""
    command = [sys.executable, str(WRITER), str(path), str(first), str(other)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as writer:
        assert writer.stdout is not None
        assert writer.stdout.readline() == "open\n"
        time.sleep(delay)
        writer.kill()
        confirmed = writer.stdout.read().split()
    assert writer.returncode in (0, -signal.SIGKILL)
    return int(confirmed[-1]) if confirmed else first - 1


def test_a_kill_leaves_the_state_before_or_after(tmp_path: Path) -> None:
    """After a kill at any time the state must be complete; the delays only spread the kills."""
    path, other = tmp_path / "killed", tmp_path / "other"
    with new_model(other) as pool:
        for name in POOL:
            pool.learn_features(name, photos(name, 5))
    models, seconds = prepared(tmp_path, other)
    expected = states()
    rng = np.random.default_rng(0)
    for number in range(KILLS):
        first = number % len(STEPS)
        shutil.copytree(models[first], path)
        last = killed(path, first, other, delay=float(rng.uniform(0, 2 * seconds[first])))
        found = stored(path)
        after = expected[last + 1 : last + 3]
        assert found in after, f"kill {number}: step {last} was confirmed, then killed"
        # On any machine, busy or not, about half of them fall in the step.
        seconds[first] *= 1.6 if last < first else 0.6
        with Recognizer.open(path) as model:  # the next writer, on top of what the kill left in files and log
            verb, name, _ = STEPS[last] if last >= 0 else ("", "", "")
            if verb == "erase" and found == after[0]:
                assert files_with(path, name.encode()) == [], "erased: if not before the kill, then now"
            if number % 4 == 0:
                assert [one for one in model.check() if one.severity == "error"] == []
                model.learn_features("next", photos("next"))
        shutil.rmtree(path)
