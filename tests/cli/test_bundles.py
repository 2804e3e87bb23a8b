"""ONNX bundles on the command line, on a machine without PyTorch."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

pytest.importorskip("transformers", reason="the extra 'dev' is not installed")

from bundles import WIDTH, make_bundles

from fiveshot.data.synthetic import draw_samples
from fiveshot.recognizer import Recognizer


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a bundle and sample photos."""
    top = tmp_path_factory.mktemp("bundle")
    make_bundles(top, "dinov2")
    draw_samples(top / "samples", seed=0)
    return top


def test_everyday_commands_run_with_a_bundle_and_without_torch(
    run_in_turn: Callable[..., list], place: Path
) -> None:
    given = ("--backbone", "dinov2")
    ended = run_in_turn(
        ("new", "things", *given, "--json"),
        ("learn", "things", "samples/learn", "--new-only"),
        ("predict", "things", "samples/test/fish/1.jpg", "--json"),
        ("export", "things", "--web", "site"),
        ("extract", *given, "--images", "samples/learn", "--out", "features.safetensors", "--tokens", "cls+mean"),
        ("backbones", "dinov2"),
        ("new", "other", "--backbone", "samples/learn"),
        ("new", "means", *given, "--tokens", "cls+mean"),
        ("learn", "means", "samples/learn", "--new-only"),
        ("tune", *given, "--images", "samples/learn", "--out", "adapter.safetensors"),
        ("new", "tuned", *given, "--base", "samples/learn", "--tune"),
        cwd=place,
    )
    assert [one.status for one in ended] == [0, 0, 0, 0, 0, 0, 1, 0, 0, 1, 1], [one.said for one in ended]
    made, _, predicted, _, extracted, listed, refused, _, _, *not_tuned = ended
    assert all("is an ONNX bundle" in one.said for one in not_tuned)
    assert not (place / "adapter.safetensors").exists()
    assert not (place / "tuned").exists()
    with Recognizer.open(place / "means") as means:
        assert means.embedder.width == 2 * WIDTH
    assert json.loads(made.printed)["result"]["backbone"] == "dinov2.onnx"
    assert len(json.loads(predicted.printed)["result"]["predictions"]) == 1
    assert f"vectors of {2 * WIDTH} " in extracted.printed
    assert "read: class token of last_hidden_state" in listed.printed
    assert "no ONNX file" in refused.said
    assert not (place / "other").exists()
    assert (place / "site" / "index.html").is_file()
    assert not made.packages("torch timm transformers")
