"""``fiveshot backbones`` and ``fiveshot backbone``: what is printed, for people and for programs."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("timm", reason="the extra 'torch' is not installed")

from tiny_vit import TINY

from fiveshot.backbones import EMBEDDED, PAPER_BACKBONE

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def tiny_graph(run: Run, tiny_file: Path, tmp_path: Path) -> Path:
    status, _, said = run("backbone", "export", TINY, tmp_path / "tiny.onnx", "--weights", tiny_file)
    assert status == 0, said
    return tmp_path / "tiny.onnx"


def test_backbones_are_listed_for_choosing(run: Run) -> None:
    status, printed, _ = run("backbones", EMBEDDED, PAPER_BACKBONE, TINY)
    assert status == 0
    head, embedded, paper, tiny = printed.splitlines()
    assert head.split() == [
        "backbone",
        "download",
        "weights",
        "parameters",
        "GMACs",
        "license",
        "needs",
        "good",
        "at",
    ]
    assert embedded.split()[:8] == [EMBEDDED, "none", "here", "5.1", "M", "1.3", "MIT", "nothing"]
    assert paper.split()[1:3] == ["346", "MB"]
    assert "Apache-2.0  fiveshot[torch]  everyday photos; the paper's network" in paper
    assert "to download" in tiny


def test_backbones_as_json(run: Run) -> None:
    status, printed, _ = run("backbones", "--json", "--measure", EMBEDDED, TINY)
    assert status == 0
    found = json.loads(printed)
    assert (found["command"], found["model"], found["ok"]) == ("backbones", None, True)
    embedded, tiny = found["result"]["backbones"]
    assert (tiny["name"], tiny["width"], tiny["input_size"], tiny["milliseconds"]) == (TINY, 64, 160, None)
    assert embedded["milliseconds"] > 0


def test_an_unknown_backbone_is_refused(run: Run) -> None:
    status, _, said = run("backbones", "vit_base_patch16_225")
    assert status == 1
    assert "no backbone 'vit_base_patch16_225'; nearest: vit_base_patch16_224" in said


def test_a_file_is_written_and_shown(run: Run, tiny_graph: Path) -> None:
    status, printed, _ = run("backbone", "show", tiny_graph)
    assert status == 0
    lines = printed.splitlines()
    assert lines[0] == f"{tiny_graph}: {TINY}, a graph that runs without torch"
    about = {line[:14].strip(): line[14:] for line in lines[1:]}
    assert (about["vector"], about["adapter"], about["license"]) == ("64 values", "none", "not known")
    assert about["input"].startswith("160 px, 2 views, ")
    shown = json.loads(run("backbone", "show", tiny_graph, "--json")[1])
    assert shown["command"] == "backbone show"
    assert (shown["result"]["backbone"], shown["result"]["kind"]) == (TINY, "onnx")
    assert shown["result"]["preprocessing"]["size"] == 160
    assert shown["result"]["weights_hash"] == about["weights hash"]


def test_exporting_says_what_was_made(run: Run, tiny_file: Path, tmp_path: Path) -> None:
    given = ("backbone", "export", TINY, tmp_path / "tiny.safetensors", "--weights", tiny_file, "--json")
    status, printed, _ = run(*given)
    result = json.loads(printed)["result"]
    assert (status, result["file"], result["kind"]) == (0, str(tmp_path / "tiny.safetensors"), "weights")


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (("export", TINY, "tiny.bin"), "bad_input"),
        (("export", TINY, "nowhere/tiny.onnx"), "storage"),
        (("export", "test_vut", "tiny.onnx"), "bad_input"),
        (("export", EMBEDDED, "tiny.safetensors", "--half"), "bad_input"),
        (("export", EMBEDDED, "tiny.safetensors", "--quick"), "unused_option"),
        (("export", EMBEDDED, "taken.onnx"), "exists"),
        (("show", "none.onnx"), "no_file"),
        (("show", "taken.onnx"), "bad_bundle"),
        (("show", "taken.txt"), "bad_input"),
    ],
)
def test_errors_are_a_sentence_and_leave_nothing(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...], code: str
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("taken.onnx", "taken.txt"):
        Path(name).write_text("of somebody else")
    status, printed, _ = run("backbone", *words, "--json")
    error = json.loads(printed)["error"]
    assert (status, error["code"]) == (1, code)
    assert error["hint"] or "nearest" in error["message"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["taken.onnx", "taken.txt"]


def test_without_torch_the_list_is_complete_and_files_are_shown(
    run_apart: Callable[..., Any], tiny_graph: Path, tmp_path: Path
) -> None:
    listed = run_apart("backbones", "--json", cwd=tmp_path)
    found = {one["name"]: one for one in json.loads(listed.printed)["result"]["backbones"]}
    assert found[EMBEDDED]["local"] is True
    assert found[PAPER_BACKBONE]["parameters"] == 85_798_656
    shown = run_apart("backbone", "show", tiny_graph, cwd=tmp_path)
    assert shown.status == 0
    assert TINY in shown.printed
    refused = run_apart("backbone", "export", EMBEDDED, "b.onnx", "--json", cwd=tmp_path)
    error = json.loads(refused.printed)["error"]
    assert (error["code"], error["hint"]) == (
        "missing_library",
        "install it with: pip install 'fiveshot[torch]'",
    )
    assert [path.name for path in tmp_path.iterdir()] == ["tiny.onnx"]
