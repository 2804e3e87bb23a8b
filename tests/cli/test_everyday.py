"""The everyday path on a machine without PyTorch, command by command, and what each of them imports."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

TORCH = "torch timm torchvision"
HEAVY = "torch timm torchvision sklearn scipy onnxruntime httpx paho watchfiles"


@pytest.fixture(scope="module")
def folder(
    tmp_path_factory: pytest.TempPathFactory, run_in_turn: Callable[..., Any], run_apart: Callable[..., Any]
) -> Path:
    """A folder with drawn pictures, and a model that has learned three of five things."""
    folder = tmp_path_factory.mktemp("everyday")
    made = run_in_turn(("data", "samples", "samples"), ("new", "things", "--quick"), cwd=folder)
    names = sorted(path.name for path in (folder / "samples" / "learn").iterdir())
    alone = run_apart("learn", "things", names[0], f"samples/learn/{names[0]}", cwd=folder)
    assert not alone.packages("sklearn rich")
    more = run_in_turn(*(("learn", "things", name, f"samples/learn/{name}") for name in names[1:3]), cwd=folder)
    for ended in (*made, alone, *more):
        assert ended.status == 0, ended.said
        assert not ended.packages(TORCH)
    return folder


@pytest.fixture
def ask(folder: Path, run_in_turn: Callable[..., Any]) -> Callable[..., list[Any]]:
    """Run commands in turn, which must all end well; return their results."""

    def run(*commands: tuple[object, ...]) -> list[Any]:
        results = []
        for ended in run_in_turn(*((*arguments, "--json") for arguments in commands), cwd=folder):
            assert (ended.status, ended.said) == (0, "")
            assert not ended.packages(f"{TORCH} httpx paho watchfiles")
            found = json.loads(ended.printed)
            assert found["ok"]
            results.append(found["result"])
        return results

    return run


def test_every_command_of_the_everyday_path_runs_without_pytorch(
    ask: Callable[..., list[Any]], folder: Path, run_apart: Callable[..., Any]
) -> None:
    names = sorted(path.name for path in (folder / "samples" / "learn").iterdir())
    photos = [f"samples/test/{name}/1.jpg" for name in names[:3]]
    alone = run_apart("predict", "things", *photos, "--json", cwd=folder)
    assert not alone.packages(f"{TORCH} sklearn rich httpx paho watchfiles")
    found = json.loads(alone.printed)["result"]["predictions"]
    assert [prediction["label"] for prediction in found] == names[:3]

    results = ask(
        ("show", "things"),
        ("forget", "things", names[0]),
        ("undo", "things"),
        ("new", "others", "--quick"),
        ("learn", "others", names[3], f"samples/learn/{names[3]}"),
        ("merge", "things", "others"),
        ("learn", "things", names[4], f"samples/learn/{names[4]}"),
        ("evaluate", "things", "samples/test"),
        ("export", "things", "things.fiveshot"),
        ("import", "things.fiveshot", "copy"),
        ("check", "things"),
        ("check", "copy"),
        ("predict", "copy", *photos),
        ("rename", "things", names[0], "renamed"),
        ("history", "things", "--limit", 1),
        ("forget", "things", "renamed"),
        ("show", "things"),
    )
    shown, _, undone, _, _, merged, learned, measured, _, _, *checked, predicted, _, last, _, left = results
    assert [one["name"] for one in shown["classes"]] == names[:3]
    assert undone["undone"]["classes"] == [names[0]]
    assert merged["added"] == [names[3]]
    assert [one["name"] for one in learned["classes"]] == [names[4]]
    assert measured["accuracy"] > 0.9
    assert [result["findings"] for result in checked] == [[], []]
    assert [prediction["label"] for prediction in predicted["predictions"]] == names[:3]
    assert last["entries"][0]["action"] == "rename"
    assert [one["name"] for one in left["classes"]] == names[1:5]


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        ("show nowhere", "no_model"),
        ("history nowhere", "no_model"),
        ("predict nowhere samples/test/fish/1.jpg", "no_model"),
        ("predict things missing.jpg", "no_file"),
        ("predict things broken.jpg", "bad_image"),
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
        ("backbone export tiny_vit_5m_224.dist_in22k tiny.onnx", "torch"),
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
