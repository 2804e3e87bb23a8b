from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from models import held, photos

from fiveshot.errors import StorageError
from fiveshot.recognizer import Recognizer

READERS = 3


@contextmanager
def reading(path: Path) -> Iterator[subprocess.Popen[str]]:
    """Read the model in a separate process, which prints the states it sees."""
    command = [sys.executable, str(Path(__file__).parent / "reader_worker.py"), str(path)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as reader:
        try:
            yield reader
        finally:
            reader.kill()


def wait_until_seen(reader: subprocess.Popen[str], state: int) -> None:
    assert reader.stdout is not None
    for line in reader.stdout:
        if int(line) >= state:
            return
    raise AssertionError(f"a reader ended before it saw state {state}")


def test_readers_see_whole_states_while_one_writes(make: Callable[..., Recognizer]) -> None:
    model = make(base=("ani", "jay", "owl"))
    with ExitStack() as running:
        readers = [running.enter_context(reading(model.path)) for _ in range(READERS)]
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
            for reader in readers:  # so that they look while it changes, on a busy machine, too
                wait_until_seen(reader, model.refresh().state)
        model.learn_features("end", photos("end"))
        ended = []
        for reader in readers:
            reader.communicate(timeout=60)
            ended.append(reader.returncode)
    assert ended == [0] * READERS
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
    with first.live.folder.writing():
        with pytest.raises(StorageError, match="another process is writing to"):
            second.learn_features("owl", photos("owl"))
        assert second.refresh().classes == (), "reading goes on"
    second.learn_features("owl", photos("owl"))


def test_a_second_writer_waits(make: Callable[..., Recognizer], reopen: Callable[..., Recognizer]) -> None:
    first = make()
    second = reopen(first.path, timeout=30)
    waiting = threading.Thread(target=lambda: second.learn_features("owl", photos("owl")))
    with first.live.folder.writing():
        waiting.start()
        waiting.join(0.1)
        assert waiting.is_alive()
    waiting.join(30)
    assert first.refresh().classes == ("owl",)


def test_threads_share_a_recogniser(make: Callable[..., Recognizer]) -> None:
    model = make(base=("ani", "jay"))
    failed: list[BaseException] = []

    def read() -> None:
        try:
            for _ in range(40):
                labels = {one.candidates[0].label for one in model.predict_features(photos("ani", 3, seed=5))}
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
