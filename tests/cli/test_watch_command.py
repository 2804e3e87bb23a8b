"""``fiveshot watch`` as a process of its own: lines for people and programs, a clean end, nothing unused."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from fiveshot.recognizer import Recognizer

jsonschema = pytest.importorskip("jsonschema", reason="jsonschema is not installed")
pytest.importorskip("watchfiles", reason="the extra 'watch' is not installed")

ROOT = Path(__file__).parents[2]
COLORS = {"red": (220, 30, 30), "blue": (30, 30, 220)}


def draw(path: Path, name: str, number: int = 0) -> None:
    noise = np.random.default_rng(number).integers(-25, 25, (48, 64, 3)) + np.array(COLORS[name])
    Image.fromarray(noise.clip(0, 255).astype(np.uint8)).save(path)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("watched")
    for name in COLORS:
        (folder / "photos" / name).mkdir(parents=True)
        for number in range(3):
            draw(folder / "photos" / name / f"{number}.png", name, number)
    with Recognizer.create(folder / "model", views=1) as made:
        made.learn_many(folder / "photos")
    return folder / "model"


@contextmanager
def process(*arguments: object) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-m", "fiveshot", "watch", *map(str, arguments)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as started:
        try:
            yield started
        finally:
            started.kill()


def lines_schema() -> dict[str, object]:
    """Return the schema of the documentation, without additional properties."""
    page = (ROOT / "docs" / "reference" / "json.md").read_text(encoding="utf-8")
    text = page.partition("## watch")[2].partition("```json\n")[2].partition("```")[0]
    schema = json.loads(text)
    for kind in schema["oneOf"]:
        kind["additionalProperties"] = False
    return dict(schema)


def test_lines_follow_the_schema_and_a_signal_ends_it_well(model: Path, tmp_path: Path) -> None:
    (tmp_path / "inbox").mkdir()
    draw(tmp_path / "inbox" / "a.png", "red", 9)
    out = tmp_path / "seen.jsonl"
    options = ("--existing", "--settle", "0.1", "--frames", "1", "--json", "--out", out)
    with process(model, tmp_path / "inbox", *options) as started:
        assert started.stdout is not None
        first = json.loads(started.stdout.readline())
        (tmp_path / "inbox").rename(tmp_path / "away")
        trouble = json.loads(started.stdout.readline())
        (tmp_path / "away").rename(tmp_path / "inbox")
        over = json.loads(started.stdout.readline())
        started.send_signal(signal.SIGTERM)
        printed, said = started.communicate(timeout=30)
    assert (started.returncode, printed, said) == (0, "", "")
    assert (first["event"], first["label"], first["photo"]) == ("photo", "red", str(tmp_path / "inbox" / "a.png"))
    assert [(one["event"], one["about"]) for one in (trouble, over)] == [
        ("trouble", "source"),
        ("recovered", "source"),
    ]
    schema = lines_schema()
    for line in (first, trouble, over):
        jsonschema.validate(line, schema)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({**first, "more": 1}, schema)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({**first, "answer": "perhaps"}, schema)
    assert [json.loads(line) for line in out.read_text().splitlines()] == [first, trouble, over]


def test_lines_for_people_until_ctrl_c(model: Path, tmp_path: Path) -> None:
    (tmp_path / "inbox").mkdir()
    for number in range(3):
        draw(tmp_path / "inbox" / f"{number}.png", "blue", number + 10)
        os.utime(tmp_path / "inbox" / f"{number}.png", (number + 1, number + 1))
    with process(model, tmp_path / "inbox", "--existing", "--settle", "0.1", "--frames", "3") as started:
        assert started.stdout is not None
        printed = [started.stdout.readline() for _ in range(3)]
        started.send_signal(signal.SIGINT)
        _, said = started.communicate(timeout=60)
    assert started.returncode == 0
    assert [line.partition("[")[2] for line in printed] == ["undecided]\n", "blue, 2 of 3]\n", "blue, 3 of 3]\n"]
    assert "watched 3 photos" in said


@pytest.mark.parametrize(
    "arguments",
    [
        ("inbox", "--on-change"),
        ("inbox", "--certificate", "own.pem"),
        ("inbox", "--credentials", "login.txt"),
        ("inbox", "--every", "3"),
        ("http://127.0.0.1:9/a.jpg", "--existing"),
        ("http://ann:secret@127.0.0.1:9/a.jpg",),
        ("inbox", "--mqtt", "mqtt://ann:secret@127.0.0.1"),
        ("nowhere",),
        ("inbox", "--run", "no-such-program-anywhere"),
        ("inbox", "--sure", "7"),
        ("inbox", "--keep-days", "7"),
        ("inbox", "--keep", "all", "--keep-most", "0"),
        ("inbox", "--out", "no/such/folder/a.jsonl"),
    ],
)
def test_what_cannot_be_meant_is_refused(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run: object, arguments: tuple[str, ...]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("inbox").mkdir()
    status, printed, said = run("watch", model, *arguments)  # type: ignore[operator]
    assert (status, printed) == (1, "")
    assert "error:" in said
    assert "secret" not in said
    status, printed, said = run("watch", model, *arguments, "--json")  # type: ignore[operator]
    answer = json.loads(printed)
    assert (status, answer["ok"], said) == (1, False, "")
    assert set(answer["error"]) == {"code", "message", "hint"}
