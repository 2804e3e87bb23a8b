"""Forgetting in a large model: little memory, and nothing left behind by a kill in the middle."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

from models import files_with, photos

from fiveshot.recognizer import Recognizer

SIZES = {"kept": 70_000_000, "avocet": 30_000_000}  # bytes of five kept photos


def grown(make: Callable[..., Recognizer]) -> Path:
    """Return a closed model with two large classes and a small one."""
    with make() as model:
        for name in ("kept", "avocet", "bittern"):
            model.learn_features(name, photos(name))
    with closing(sqlite3.connect(model.path / "classes.sqlite")) as connection, connection:
        connection.executemany(
            "INSERT INTO images (photo_id, original) SELECT photos.id, randomblob(?) "
            "FROM photos JOIN classes ON classes.id = class_id WHERE classes.name = ?",
            [(size // 5, name) for name, size in SIZES.items()],
        )
    return model.path


def test_forgetting_in_a_large_model(make: Callable[..., Recognizer], tmp_path: Path) -> None:
    path, temporary = grown(make), tmp_path / "temporary"
    temporary.mkdir()
    script = Path(__file__).parent / "forget_worker.py"
    process = subprocess.run(
        [sys.executable, str(script), str(path), "avocet", "bittern"],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1", "SQLITE_TMPDIR": str(temporary)},
        timeout=120,
        check=False,
    )
    before, after, *more = process.stdout.splitlines()
    assert int(after) - int(before) < 20, (
        "MB: neither all that is kept nor all that is forgotten is held in memory"
    )
    assert (process.returncode, more) == (-signal.SIGKILL, []), "killed while the database was rewritten"
    with closing(sqlite3.connect(path / "classes.sqlite")) as connection:
        assert connection.execute("SELECT value FROM meta WHERE key = 'unsettled'").fetchall() == [("erase",)]
    assert list(temporary.iterdir()) == [], "the temporary file has no name that a kill could leave"
    with Recognizer.open(path) as model:  # the next writer
        assert model.snapshot.classes == ("kept",)
        assert files_with(path, b"avocet") == files_with(path, b"bittern") == []
