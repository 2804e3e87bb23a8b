"""A command may be started without standard streams, or with some that cannot encode every name."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from PIL import Image

OWL = "\N{OWL}"
ALWAYS_FULL = pytest.mark.skipif(
    not Path("/dev/full").exists(), reason="a disk that is always full is a device of Linux"
)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with photos of two classes, and a model that has learned them."""
    from fiveshot.recognizer import Recognizer

    folder = tmp_path_factory.mktemp("streams")
    for name, color in (("owl", "red"), ("wren", "green")):
        (folder / "photos" / name).mkdir(parents=True)
        for number in range(2):
            Image.new("RGB", (64 + number, 64), color).save(folder / "photos" / name / f"{number}.png")
    with Recognizer.create(folder / "model", views=1) as new:
        new.learn_many(folder / "photos")
    return folder


def shell(words: str, folder: Path, streams: str = "", **environment: str) -> subprocess.CompletedProcess[str]:
    command = f"{shlex.quote(sys.executable)} -m fiveshot {words} {streams}"
    return subprocess.run(
        ["sh", "-c", command],
        cwd=folder,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=120,
    )


def test_photos_are_answered_without_standard_error(made: Path) -> None:
    ended = shell("predict model photos/owl/0.png", made, "2>&-")
    assert (ended.returncode, ended.stderr) == (0, "")
    assert ended.stdout.startswith("photos/owl/0.png: owl")


@pytest.mark.parametrize("streams", ["2>&-", ">&-", "<&- >&- 2>&-"])
def test_the_status_is_the_same_without_a_stream(made: Path, streams: str) -> None:
    assert shell("check model", made, streams).returncode == 0
    assert shell("check nowhere", made, streams).returncode == 1
    assert shell("check --typo", made, streams).returncode == 2


@ALWAYS_FULL
def test_notes_that_cannot_be_written_stop_no_work(made: Path, tmp_path: Path) -> None:
    shutil.copytree(made, tmp_path, dirs_exist_ok=True)
    ended = shell("predict model photos/owl/0.png", tmp_path, "2>/dev/full")  # it has a note before the answer
    assert ended.returncode == 0
    assert ended.stdout.startswith("photos/owl/0.png: owl")
    assert shell("check nowhere", tmp_path, "2>/dev/full").returncode == 1


@ALWAYS_FULL
def test_notes_that_cannot_be_written_stop_no_watch(made: Path, tmp_path: Path) -> None:
    pytest.importorskip("watchfiles", reason="the extra 'watch' is not installed")
    shutil.copytree(made, tmp_path, dirs_exist_ok=True)
    ended = shell("watch model photos --existing --settle 0.1 --limit 4", tmp_path, "2>/dev/full")
    assert (ended.returncode, ended.stdout.count("\n")) == (0, 4)


def test_what_is_learned_without_any_stream_is_there(made: Path, tmp_path: Path) -> None:
    shutil.copytree(made, tmp_path, dirs_exist_ok=True)
    ended = shell("learn model kite photos/owl", tmp_path, "<&- >&- 2>&-")
    assert ended.returncode == 0
    assert "kite" in shell("show model", tmp_path).stdout
    assert shell("check model", tmp_path).returncode == 0


def test_a_model_is_not_exported_to_an_output_that_is_missing(made: Path) -> None:
    ended = shell("export model -", made, ">&-")
    assert ended.returncode == 1
    assert "there is no standard output" in ended.stderr


def test_a_photo_whose_name_cannot_be_encoded_is_answered(made: Path, tmp_path: Path) -> None:
    shutil.copy(made / "photos" / "owl" / "0.png", tmp_path / f"{OWL}.png")
    model = shlex.quote(str(made / "model"))
    ended = shell(f"predict {model} {OWL}.png", tmp_path, PYTHONIOENCODING="latin-1:strict")
    assert ended.returncode == 0
    assert ended.stderr.startswith("note: nothing can be called unknown yet")
    assert ended.stdout.startswith(r"\U0001f989.png: owl")


@pytest.mark.parametrize("encoding", ["latin-1", "ascii:strict", "cp1252:surrogateescape"])
def test_no_encoding_of_the_output_ends_in_a_traceback(made: Path, tmp_path: Path, encoding: str) -> None:
    shutil.copytree(made / "model", tmp_path / OWL)
    sound = shell(f"check {OWL}", tmp_path, PYTHONIOENCODING=encoding)
    assert (sound.returncode, sound.stderr) == (0, "")
    assert sound.stdout.strip() in {rf"{name} is sound" for name in (OWL, r"\U0001f989")}
    missing = shell(f"check {OWL * 2}", tmp_path, PYTHONIOENCODING=encoding)
    assert missing.returncode == 1
    assert "Traceback" not in missing.stderr
