from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from models import held, photos

from fiveshot.errors import StorageError
from fiveshot.recognizer import Recognizer

READERS = 3


def test_readers_see_whole_states_while_one_writes(make: Callable[..., Recognizer]) -> None:
    model = make(base=("ani", "jay", "owl"))
    script = Path(__file__).parent / "reader_worker.py"
    with subprocess.Popen(
        [sys.executable, str(script), str(model.path), str(READERS)],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    ) as readers:
        said = [readers.stdout.readline().strip() for _ in range(READERS)]
        assert said == ["ready"] * READERS
        for number in range(12):
            model.learn_features(f"c{number}", photos(f"c{number}"))
            model.learn_features(f"c{number}", photos(f"c{number}", 2, seed=1), add=True)
            model.rename("owl", "tawny") if number == 3 else model.learn_features(
                "jay", photos("jay", 1, seed=number), add=True
            )
            if number % 3 == 2:
                model.forget(f"c{number - 1}", for_good=True)
            if number == 8:
                model.forget("tawny", for_good=True)  # replaces the base file under the readers
        model.learn_features("end", photos("end"))
        seen = [line.split() for line in readers.stdout.read().splitlines()]
    assert [words[0] for words in seen] == ["read"] * READERS, seen
    assert min(int(words[1]) for words in seen) >= 5, "they looked while it changed"
    assert model.check() == []


def test_two_writers_take_turns(make: Callable[..., Recognizer], reopen: Callable[..., Recognizer]) -> None:
    first = make()
    second = reopen(first.path)
    for number in range(6):
        (first, second)[number % 2].learn_features(f"c{number}", photos(f"c{number}"))
    assert first.refresh().classes == second.refresh().classes == tuple(f"c{number}" for number in range(6))
    assert held(first) == held(second)
    assert second.undo().classes == ("c5",)
    assert first.undo().classes == ("c4",)


def test_a_second_writer_gets_a_clear_error(
    make: Callable[..., Recognizer], reopen: Callable[..., Recognizer]
) -> None:
    first = make()
    second = reopen(first.path, timeout=0.1)
    with first._model.folder.writing():
        started = time.monotonic()
        with pytest.raises(StorageError, match="another process is writing to"):
            second.learn_features("owl", photos("owl"))
        assert time.monotonic() - started < 5
        assert second.refresh().classes == (), "reading goes on"
    second.learn_features("owl", photos("owl"))


def test_a_second_writer_waits(make: Callable[..., Recognizer], reopen: Callable[..., Recognizer]) -> None:
    first = make()
    second = reopen(first.path, timeout=30)
    waiting = threading.Thread(target=lambda: second.learn_features("owl", photos("owl")))
    with first._model.folder.writing():
        waiting.start()
        time.sleep(0.1)
        assert first.snapshot.classes == ()
    waiting.join(30)
    assert first.refresh().classes == ("owl",)


def test_threads_share_a_recogniser(make: Callable[..., Recognizer]) -> None:
    model = make(base=("ani", "jay"))
    failed: list[BaseException] = []

    def read() -> None:
        try:
            for _ in range(40):
                labels = {one.candidates[0][0] for one in model.predict_features(photos("ani", 3, seed=5))}
                assert labels == {"ani"}
        except BaseException as error:
            failed.append(error)

    readers = [threading.Thread(target=read) for _ in range(3)]
    for reader in readers:
        reader.start()
    for number in range(8):
        model.learn_features(f"c{number}", photos(f"c{number}"))
    for reader in readers:
        reader.join(30)
    assert failed == []
