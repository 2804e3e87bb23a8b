"""Names of files come from anywhere: none of them may command the terminal, or spoil what is drawn on it."""

from __future__ import annotations

import ast
import json
import os
import pty
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from tiny_vit import TINY

from fiveshot import cli
from fiveshot.data.synthetic import gaussian_classes

Run = Callable[..., tuple[int, str, str]]
TITLE = "\x1b]0;title\x07\x1b[31m"  # sets the window's title, then writes in red
SHOWN = r"\x1b]0;title\x07\x1b[31m"


@pytest.fixture(scope="module")
def made(tiny_file: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Photos of two classes, one with a hostile name, and a model that has learned them."""
    from fiveshot.recognizer import Recognizer

    folder = tmp_path_factory.mktemp("hostile")
    rng = np.random.default_rng(5)
    for name, colour in (("owl", (200, 40, 40)), ("wren", (40, 200, 40))):
        (folder / "photos" / name).mkdir(parents=True)
        for number in range(3):
            noise = rng.integers(-40, 40, (6, 8, 3)) + np.array(colour)
            image = Image.fromarray(noise.clip(0, 255).astype(np.uint8)).resize((170, 165))
            image.save(folder / "photos" / name / (f"{number}.png" if number else f"{TITLE}.png"))
    given = {"backbone": TINY, "weights": tiny_file, "device": "cpu", "runtime": "torch"}
    with Recognizer.create(folder / "model", **given) as new:
        new.learn_many(folder / "photos")
    return folder


@pytest.fixture
def photos(made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working folder with copies of model and photos."""
    for name in ("model", "photos"):
        shutil.copytree(made / name, tmp_path / name)
    monkeypatch.setenv("FIVESHOT_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    return tmp_path / "photos"


@pytest.fixture
def spoilt(photos: Path) -> Path:
    """The same, with files of hostile names that are not photos."""
    for file in photos.glob(f"*/{TITLE}.png"):
        file.write_text("no photo")
    return photos


@pytest.fixture
def shown(run: Run) -> Callable[..., str]:
    """Run a command that speaks of a hostile name, and return what it says to people."""

    def ask(*arguments: object, status: int = 0) -> str:
        ended, printed, said = run(*arguments)
        assert ended == status, printed + said
        assert not {"\x1b", "\x07"} & set(printed + said)
        assert SHOWN in printed + said
        return printed + said

    return ask


def test_names_that_a_model_keeps(run: Run, photos: Path) -> None:
    _, listed, _ = run("show", "model", "owl")
    _, printed, _ = run("predict", "model", photos / "owl" / "1.png", "--why")
    assert "]0;title[31m.png" in listed
    assert not {"\x1b", "\x07"} & set(listed + printed)


def test_a_name_is_not_a_line_of_its_own(run: Run, photos: Path) -> None:
    """A photo may be named like an answer, or like an error."""
    forged = "1.png: owl (100.0 %)"
    (photos / "owl" / "1.png").rename(photos / "owl" / f"a\n{forged}.png")
    (photos / "wren" / "1.png").write_text("no photo")
    (photos / "wren" / "1.png").rename(photos / "wren" / f"a\n{forged}.png")
    shown = [
        *run("predict", "model", photos)[1:],
        run("learn", "model", "kite", photos / "wren")[2],
        run("show", f"nowhere\n{forged}")[2],
        run("show", "model", f"--no\n{forged}")[2],
    ]
    assert all(rf"a\n{forged}" in one for one in shown[:3])
    lines = [line for one in shown for line in one.splitlines()]
    assert not any(line.startswith(forged) for line in lines)


NO_TEXT = os.fsdecode(b"\xff \xfe")


def test_names_that_are_no_text(run: Run, photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Names of folders and files are bytes, and need not be UTF-8."""
    folder = tmp_path / NO_TEXT
    folder.mkdir()
    for name in ("model", "photos"):
        (tmp_path / name).rename(folder / name)
    shutil.copy(folder / "photos" / "owl" / "1.png", folder / "photos" / "owl" / f"{NO_TEXT}.png")
    monkeypatch.chdir(folder)
    for command in (
        ("learn", "model", "kite", "photos/owl"),
        ("predict", "model", "photos", "--out", "answers.csv", "--into", "sorted"),
        ("put-back", "sorted"),
        ("sort", "model", "photos"),
        ("sort", folder / "model", folder / "photos", "--page", "sorted.html"),
        ("watch", "model", "photos", "--existing", "--settle", 0.1, "--limit", 7),
        ("export", "model", "model.fiveshot"),
        ("import", "model.fiveshot", "imported"),
        ("check", "model"),
    ):
        ended, printed, said = run(*command)
        assert ended == 0, (command, printed, said)
        assert (printed + said).replace("\n", "").isprintable()


EXTRACT = ("extract", "--images", "photos", "--out", "a.safetensors", "--device", "cpu", "--backbone", TINY)


def test_good_photos(shown: Callable[..., str], run: Run, photos: Path) -> None:
    shown("predict", "model", photos / "owl")
    shutil.copytree(photos / "owl", photos / "kite")
    shutil.copy(photos / "owl" / f"{TITLE}.png", photos / "wren" / f"wrong {TITLE}.png")
    shown("evaluate", "model", photos)
    (photos / "owl" / f"{TITLE}.png").rename(photos / "owl" / f"{TITLE}\x7f\udcff.png")
    _, printed, _ = run("predict", "model", photos / "owl", "--json")
    named = {one["photo"] for one in json.loads(printed)["result"]["predictions"]}
    assert str(photos / "owl" / f"{TITLE}\x7f\udcff.png") in named, "programs get names as they are"
    assert printed.replace("\n", " ").isprintable()


def test_photos_that_are_none(shown: Callable[..., str], spoilt: Path, tiny_file: Path) -> None:
    for command in ("predict", "evaluate"):
        shown(command, "model", spoilt, status=3)
        shown(command, "model", spoilt, "--bad", "refuse", status=1)
    shown("learn", "model", "kite", spoilt / "owl", status=1)
    new = ("new", "birds", "--base", spoilt, "--backbone", TINY, "--weights", tiny_file, "--device", "cpu")
    shown(*new, status=1)
    assert "left out 2 photos" in shown(*new, "--skip-bad")


def test_images_that_are_none(shown: Callable[..., str], spoilt: Path, tiny_file: Path) -> None:
    (spoilt / f"{TITLE}.png").touch()
    assert "outside the class folders" in shown(*EXTRACT, "--weights", tiny_file, status=1)
    assert "left out 2 bad images" in shown(*EXTRACT, "--weights", tiny_file, "--skip-bad")


def test_places(shown: Callable[..., str], photos: Path) -> None:
    shown("learn", "model", f"{TITLE}owl", photos / "owl", status=1)
    shown("show", f"{TITLE}model", status=1)
    shown("report", TITLE, status=1)
    shown("bench", "--features", f"{TITLE}.npz", status=1)
    shown("tune", "--images", TITLE, "--out", "a.safetensors", status=1)
    shutil.copytree("model", f"{TITLE}model")
    shown("show", f"{TITLE}model")
    shown("check", f"{TITLE}model")
    shown("data", "samples", f"{TITLE}samples")


def test_options_that_a_pattern_made(shown: Callable[..., str]) -> None:
    shown("predict", "model", f"--{TITLE}.png", status=2)
    shown("extract", "--tokens", TITLE, "--out", "a.safetensors", status=2)


@pytest.mark.parametrize(
    ("name", "output", "safe"),
    [(TITLE, "terminal", SHOWN), (TITLE, "csv", SHOWN), ("[red]", "terminal", "[red]")],
    ids=["terminal", "csv", "markup"],
)
def test_tables(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, output: str, safe: str
) -> None:
    monkeypatch.chdir(tmp_path)
    arrays = gaussian_classes(n_classes=4, n_features=8, train_per_class=6, test_per_class=2, seed=0)
    np.savez(f"{name}.npz", **dict(zip(("train_x", "train_y", "test_x", "test_y"), arrays, strict=True)))
    command = ("bench", "--features", f"{name}.npz", "--methods", "ncm", "--seeds", 1, "--format", output)
    status, printed, said = run(*command)
    assert status == 0, said
    assert not {"\x1b", "\x07"} & set(printed + said)
    assert safe in said
    assert safe in printed or output == "csv"


def test_a_terminal_gets_no_commands_either(read_all: Callable[[int], bytes]) -> None:
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "fiveshot", "predict", "model", f"--{TITLE}.png"]
    with subprocess.Popen(command, stdout=theirs, stderr=theirs, env={**os.environ, "TERM": "xterm"}) as process:
        os.close(theirs)
        said = read_all(ours)
    assert process.returncode == 2, said
    assert SHOWN.encode() in said
    assert b"\x1b]0;" not in said
    assert b"\x07" not in said


def test_nothing_is_printed_past_the_guard() -> None:
    for file in Path(cli.__file__).parent.rglob("*.py"):
        calls = [node for node in ast.walk(ast.parse(file.read_text())) if isinstance(node, ast.Call)]
        named = {ast.unparse(call.func) for call in calls}
        assert "print" not in named, file
        assert file.stem == "output" or not named & {"typer.echo", "typer.secho", "sys.stdout.write"}, file
