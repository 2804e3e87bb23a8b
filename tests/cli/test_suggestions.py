"""Commands that are suggested can be typed as they are, whatever models, folders and classes are called."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from fiveshot import Recognizer, cli
from fiveshot.cli.app import COMMANDS
from fiveshot.errors import command

Run = Callable[..., tuple[int, str, str]]
MODEL, PHOTOS = "my model; x", "Anna's photos"


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A model of two classes and a folder of photos, with names that a shell would take apart."""
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    with Recognizer.create(MODEL, views=1) as model:
        for name in ("snowy owl", "wren"):
            model.learn_features(name, rng.normal(size=(5, model.snapshot.contents.width)))
    for name in ("owl", "wren"):
        Path(PHOTOS, name).mkdir(parents=True)
        Image.new("RGB", (64, 64), "red").save(Path(PHOTOS, name, "1.png"))
    return tmp_path


def suggested(text: str) -> list[list[str]]:
    """Return the words of all commands that a text suggests, as a shell reads them."""
    return [shlex.split(found) for found in re.findall(r"fiveshot [^\n]*", text)]


def test_every_word_of_a_command_is_quoted() -> None:
    assert shlex.split(command("learn", Path(MODEL), "a b", "$HOME")) == [
        "fiveshot",
        "learn",
        MODEL,
        "a b",
        "$HOME",
    ]
    assert command("show", Path("-x")) == "fiveshot show ./-x"


def test_a_new_model(run: Run, here: Path) -> None:
    assert suggested(run("new", "other model")[1]) == [["fiveshot", "learn", "other model", "NAME", "PHOTOS"]]


@pytest.mark.parametrize("words", [["forget", MODEL, "wren"], ["remove", MODEL, "p1"]])
def test_what_can_be_undone(run: Run, here: Path, words: list[str]) -> None:
    assert suggested(run(*words)[1]) == [["fiveshot", "undo", MODEL]]


def test_folders_in_hints(run: Run, here: Path) -> None:
    _, _, said = run("learn", MODEL, "owl", PHOTOS)
    assert f"(fiveshot learn MODEL {shlex.quote(PHOTOS)})" in said
    assert f"give {shlex.quote(PHOTOS + '/*/')}" in said
    _, _, said = run("import", PHOTOS, "new")
    assert suggested(said) == [["fiveshot", "export", PHOTOS, "FILE"]]
    _, _, said = run("report", PHOTOS)
    assert suggested(said) == [["fiveshot", "bench", "--out", PHOTOS]]


def test_sorting(run: Run, here: Path) -> None:
    _, printed, _ = run("sort", MODEL, PHOTOS, "--no-resume", "--into", "a b")
    naming, back = suggested(printed)
    assert naming[:4] == ["fiveshot", "sort", MODEL, PHOTOS]
    assert back == ["fiveshot", "put-back", "a b"]


def test_a_review(run: Run, here: Path) -> None:
    with Recognizer.open(MODEL) as model:
        rng = np.random.default_rng(1)
        twice = rng.normal(size=(1, model.snapshot.contents.width))
        model.learn_features("kite", np.concatenate([twice] * 5))
    _, printed, _ = run("review", MODEL, "--page", "review.html")
    commands = suggested(printed)
    assert commands
    assert all(words[:3] == ["fiveshot", "review", MODEL] for words in commands)


def test_nothing_suggests_a_command_that_is_not_quoted() -> None:
    """Whoever writes a new hint uses ``command``."""
    source = Path(cli.__file__).parents[1]
    ours = "|".join(map(re.escape, COMMANDS))
    plain = re.compile(rf"fiveshot ({ours})( [A-Z]+| --?[a-z]+)* \{{")
    found = [
        f"{file.name}: {line.strip()}"
        for file in sorted(source.rglob("*.py"))
        for line in file.read_text(encoding="utf-8").splitlines()
        if plain.search(line)
    ]
    assert found == []
