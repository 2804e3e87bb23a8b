"""The everyday path on a machine without PyTorch, command by command, and what each of them imports."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

TORCH = "torch timm torchvision"
HEAVY = "torch timm torchvision sklearn scipy onnxruntime pydantic httpx paho watchfiles"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, run_apart: Callable[..., Any]) -> Path:
    """A folder with drawn pictures, and a model that has learned three of five things."""
    folder = tmp_path_factory.mktemp("everyday")

    def must(*arguments: object) -> Any:
        ended = run_apart(*arguments, cwd=folder)
        assert ended.status == 0, ended.said
        assert not ended.packages(TORCH)
        return ended

    must("data", "samples", "samples")
    names = sorted(path.name for path in (folder / "samples" / "learn").iterdir())
    must("new", "things", "--quick")
    for name in names[:3]:
        learned = must("learn", "things", name, f"samples/learn/{name}")
        assert not learned.packages("sklearn rich")
    return folder


@pytest.fixture
def ask(folder: Path, run_apart: Callable[..., Any]) -> Callable[..., Any]:
    """Run a command that must end well; return its result, and what it imported."""

    def run(*arguments: object) -> Any:
        ended = run_apart(*arguments, "--json", cwd=folder)
        assert (ended.status, ended.said) == (0, "")
        assert not ended.packages(f"{TORCH} httpx paho watchfiles")
        found = json.loads(ended.printed)
        assert found["ok"]
        return found["result"], ended

    return run


def test_every_command_of_the_everyday_path_runs_without_pytorch(ask: Any, folder: Path) -> None:
    names = sorted(path.name for path in (folder / "samples" / "learn").iterdir())
    photos = [f"samples/test/{name}/1.jpg" for name in names[:3]]
    result, ended = ask("predict", "things", *photos)
    assert [prediction["label"] for prediction in result["predictions"]] == names[:3]
    assert not ended.packages("sklearn rich")

    result, _ = ask("show", "things")
    assert [one["name"] for one in result["classes"]] == names[:3]
    ask("forget", "things", names[0])
    result, _ = ask("undo", "things")
    assert result["undone"]["classes"] == [names[0]]

    ask("new", "others", "--quick")
    ask("learn", "others", names[3], f"samples/learn/{names[3]}")
    result, _ = ask("merge", "things", "others")
    assert result["added"] == [names[3]]
    result, _ = ask("learn", "things", names[4], f"samples/learn/{names[4]}")
    assert [one["name"] for one in result["classes"]] == [names[4]]

    result, _ = ask("evaluate", "things", "samples/test")
    assert result["accuracy"] > 0.9
    ask("export", "things", "things.fiveshot")
    ask("import", "things.fiveshot", "copy")
    for model in ("things", "copy"):
        result, _ = ask("check", model)
        assert result["findings"] == []
    result, _ = ask("predict", "copy", *photos)
    assert [prediction["label"] for prediction in result["predictions"]] == names[:3]

    ask("rename", "things", names[0], "renamed")
    result, _ = ask("history", "things", "--limit", 1)
    assert result["entries"][0]["action"] == "rename"
    ask("forget", "things", "renamed")
    result, _ = ask("show", "things")
    assert [one["name"] for one in result["classes"]] == names[1:5]


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        ("show nowhere", "no_model"),
        ("history nowhere", "no_model"),
        ("predict nowhere samples/test/fish/1.jpg", "no_model"),
        ("predict things missing.jpg", "no_file"),
        ("predict things broken.jpg", "bad_image"),
        ("predict things samples/test/fish/1.jpg samples/test/fish/2.jpg broken.jpg --strict", "bad_photos"),
        ("learn things gull broken.jpg", "bad_image"),
        ("learn nowhere gull samples/test/fish", "no_model"),
        ("learn things gull nothing", "no_file"),
        ("evaluate things nothing", "no_file"),
        ("retune things", "bad_input"),
    ],
)
def test_an_error_comes_before_anything_heavy_is_loaded(
    folder: Path, run_apart: Callable[..., Any], arguments: str, code: str
) -> None:
    (folder / "broken.jpg").write_text("not a photo")
    ended = run_apart(*arguments.split(), "--json", cwd=folder)
    error = json.loads(ended.printed)["error"]
    assert (ended.status, error["code"]) == (1, code)
    assert ended.packages(HEAVY) == set()


@pytest.mark.parametrize(
    ("arguments", "extra"),
    [
        ("new other --backbone vit_tiny_patch16_224", "torch"),
        ("export things things.onnx --onnx", "onnx"),
        ("backbones vit_tiny_patch16_224", "torch"),
        ("watch things samples", "watch"),
    ],
)
def test_a_missing_extra_is_one_line_and_nothing_is_left_behind(
    folder: Path, run_apart: Callable[..., Any], arguments: str, extra: str
) -> None:
    before = sorted(path.name for path in folder.iterdir())
    ended = run_apart(*arguments.split(), "--json", cwd=folder, absent=f"{TORCH} onnx paho")
    error = json.loads(ended.printed)["error"]
    assert (ended.status, error["code"]) == (1, "missing_library")
    assert error["hint"] == f"install it with: pip install 'fiveshot[{extra}]'"
    assert not ended.packages("onnxruntime sklearn")
    assert sorted(path.name for path in folder.iterdir()) == before
