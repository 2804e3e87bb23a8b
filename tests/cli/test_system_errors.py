"""What the system refuses where nobody foresaw it is one sentence; what the program does wrong is a traceback."""

from __future__ import annotations

import contextlib
import json
import sqlite3
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

import pytest

from fiveshot.cli.output import answering
from fiveshot.recognizer import Recognizer
from fiveshot.recognizer.recognition.snapshot import head_record
from fiveshot.recognizer.store.folder import create_model
from fiveshot.recognizer.store.manifest import BackboneRecord, Manifest

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def birds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty model in the working folder."""
    monkeypatch.chdir(tmp_path)
    create_model("birds", Manifest(BackboneRecord("none", 4, "a" * 64), head_record("ncm")))
    return Path("birds")


def failing_with(error: Exception) -> Callable[..., NoReturn]:
    def fail(*_: object, **__: object) -> NoReturn:
        raise error

    return fail


STRAY = [
    (OSError(28, "No space left on device", "birds/log"), "cannot use birds/log: No space left on device"),
    (OSError(28, "No space left on device"), "cannot continue with birds: No space left on device"),
    (OSError("encoder error -2\n when writing"), "cannot continue with birds: encoder error -2 when writing"),
    (sqlite3.DatabaseError("file is not a database"), "classes.sqlite cannot be read (file is not a database)"),
]


@pytest.mark.parametrize(("error", "message"), STRAY)
def test_a_stray_error_of_the_system_is_one_sentence(
    run: Run, birds: Path, monkeypatch: pytest.MonkeyPatch, error: Exception, message: str
) -> None:
    monkeypatch.setattr(Recognizer, "show", failing_with(error))
    status, printed, said = run("show", birds)
    assert (status, printed, said.count("\n")) == (1, "", 1)
    assert said.startswith("error: ")
    assert message in said
    status, printed, said = run("show", birds, "--json")
    found = json.loads(printed)
    assert (status, said, found["ok"]) == (1, "", False)
    assert found["error"]["code"] == "storage"
    assert message in found["error"]["message"]


def test_a_name_too_long_for_the_system(run: Run, birds: Path) -> None:
    status, printed, _ = run("learn", birds, "x" * 5000, "--json")
    assert status == 1
    assert json.loads(printed)["error"]["message"].endswith("x: File name too long")


def test_commands_without_a_model_have_it_too(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    for error, message in (
        (PermissionError(13, "Permission denied", b"runs"), "error: cannot use runs: Permission denied\n"),
        (sqlite3.OperationalError("disk I/O error"), "error: a database cannot be used: disk I/O error\n"),
    ):
        monkeypatch.setattr("fiveshot.benchmark.choose_features", failing_with(error))
        assert run("bench") == (1, "", message)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="a disk that is always full is a device of Linux")
@pytest.mark.parametrize("options", [(), ("--json",)])
def test_an_answer_that_cannot_be_printed(
    run: Run, birds: Path, monkeypatch: pytest.MonkeyPatch, options: tuple[str, ...]
) -> None:
    full = Path("/dev/full").open("w")  # noqa: SIM115  # closing it fails too
    monkeypatch.setattr(sys, "stdout", full)
    status, _, said = run("show", birds, *options)
    with contextlib.suppress(OSError):
        full.close()
    assert (status, said.count("\n")) == (1, 1)
    assert said.startswith("error: cannot continue")
    assert said.endswith(": No space left on device\n")


@pytest.mark.parametrize("error", [TypeError("no"), KeyError("no"), sqlite3.ProgrammingError("closed")])
@pytest.mark.parametrize("options", [(), ("--json",)])
def test_an_error_of_the_program_keeps_its_traceback(
    run: Run, birds: Path, monkeypatch: pytest.MonkeyPatch, error: Exception, options: tuple[str, ...]
) -> None:
    monkeypatch.setattr(Recognizer, "show", failing_with(error))
    with pytest.raises(type(error)):
        run("show", birds, *options)


def test_a_reader_that_has_seen_enough_is_no_error(birds: Path) -> None:
    with pytest.raises(BrokenPipeError), answering("show", birds, as_json=True):
        raise BrokenPipeError(32, "Broken pipe")
