"""The message after Ctrl-C: every kind of command says what happened to its work."""

from __future__ import annotations

import contextlib
import fcntl
import importlib
import signal
import subprocess
import sys
import termios
import time
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any, NoReturn

import numpy as np
import pytest

from fiveshot.recognizer import Recognizer
from fiveshot.recognizer.recognition.snapshot import head_record
from fiveshot.recognizer.store.folder import create_model
from fiveshot.recognizer.store.manifest import BackboneRecord, Manifest
from fiveshot.tuning import models

Run = Callable[..., tuple[int, str, str]]


def interrupt(*_: object, **__: object) -> NoReturn:
    raise KeyboardInterrupt


@pytest.fixture
def birds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A model that knows owls, in the working folder."""
    monkeypatch.chdir(tmp_path)
    create_model("birds", Manifest(BackboneRecord("none", 4, "a" * 64), head_record("ncm")))
    with Recognizer.open("birds") as model:
        model.learn_features("owl", np.eye(4)[:3])
    return Path("birds")


@pytest.mark.parametrize(
    ("arguments", "place", "said"),
    [
        (("extract", "--images", "x", "--out", "y"), "fiveshot.features.open_labeled_images", "the same command"),
        (("paper", "table1"), "fiveshot.reports.make_paper", "the same command"),
        (("data", "fetch", "cub200"), "fiveshot.data.fetch", "the same command"),
        (("bench",), "fiveshot.benchmark.choose_features", "the same command without --fresh"),
        (("tune", "--images", "x", "--out", "y"), "fiveshot.tuning.get_recipe", "add --resume to continue"),
    ],
)
def test_work_that_is_kept_is_named_with_the_way_to_go_on(
    run: Run, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...], place: str, said: str
) -> None:
    if arguments[0] == "tune":
        pytest.importorskip("torch", reason="the extra 'torch' is not installed")
    module, _, name = place.rpartition(".")
    monkeypatch.setattr(importlib.import_module(module), name, interrupt)
    status, printed, told = run(*arguments)
    assert (status, printed) == (130, "")
    assert told.lstrip().startswith("stopped; ")
    assert f"kept; {said}" in told


def test_nothing_is_promised_where_there_is_nothing_to_say(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.import_module("fiveshot.reports"), "write_report", interrupt)
    assert run("report", "runs") == (130, "", "stopped\n")


@pytest.mark.parametrize(
    ("arguments", "owner", "name"),
    [
        (("rename", "birds", "owl", "barn owl"), Recognizer, "rename"),
        (("forget", "birds", "owl"), Recognizer, "forget"),
        (("undo", "birds"), Recognizer, "undo"),
        (("retune", "birds"), models, "training_photos"),
        (("show", "birds"), Recognizer, "show"),
    ],
)
def test_a_model_that_was_left_alone_is_as_it_was(
    run: Run, birds: Path, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...], owner: Any, name: str
) -> None:
    monkeypatch.setattr(owner, name, interrupt)
    status, printed, told = run(*arguments)
    assert (status, printed, told.strip()) == (130, "", "stopped; birds did not change")


def test_a_model_that_was_not_made(run: Run, birds: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Recognizer, "create", interrupt)
    assert run("new", "fresh") == (130, "", "stopped; fresh was not created\n")


def test_a_change_that_was_made_before_is_not_denied(
    run: Run, birds: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def rename_and_interrupt(self: Recognizer, *names: str) -> None:
        rename(self, *names)
        raise KeyboardInterrupt

    rename = Recognizer.rename
    monkeypatch.setattr(Recognizer, "rename", rename_and_interrupt)
    assert run("rename", "birds", "owl", "wren") == (
        130,
        "",
        "stopped; see the last changes: fiveshot history birds\n",
    )
    with Recognizer.open(birds, readonly=True) as model:
        assert model.snapshot.classes == ("wren",)


def hear_interrupts() -> None:
    """A shell that runs the tests in the background has its children ignore Ctrl-C."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def wait_until_read(pipe: IO[bytes]) -> None:
    """Wait until the other side has read all that was written, and a moment more, after which it waits itself."""
    ends = time.monotonic() + 60
    while int.from_bytes(fcntl.ioctl(pipe, termios.FIONREAD, bytes(4)), sys.byteorder):
        assert time.monotonic() < ends, "it does not read"
        time.sleep(0.01)
    time.sleep(0.1)


def end(process: subprocess.Popen[bytes]) -> None:
    """Press Ctrl-C, again if it came between two reads, because then the next read still waits."""
    for _ in range(20):
        process.send_signal(signal.SIGINT)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(10)  # the end itself may take a while on a busy machine
            return
    process.kill()


def test_a_real_interrupt_while_learning(birds: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-m", "fiveshot", "learn", "birds", "wren", "-"],
        stdin=subprocess.PIPE,
        stderr=subprocess.PIPE,
        preexec_fn=hear_interrupts,
    ) as process:
        assert process.stdin is not None
        assert process.stderr is not None
        # More than a pipe holds, so that it is written only when the command reads its photo, which never ends.
        process.stdin.write(bytes(1_000_000))
        process.stdin.flush()
        wait_until_read(process.stdin)
        end(process)
        told = process.stderr.read().decode()
    assert (process.returncode, told) == (130, "stopped; birds did not change\n")
    with Recognizer.open(birds, readonly=True) as model:
        assert model.snapshot.classes == ("owl",)
