from __future__ import annotations

import csv
import hashlib
import json
import runpy
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import timm
import torch
from PIL import Image
from safetensors.torch import save_file
from tiny_vit import TINY
from typer.testing import CliRunner

from fiveshot.backbones import BackboneSpec, load_adapter, load_backbone, read_adapter
from fiveshot.benchmark import get_protocol
from fiveshot.cli.app import app
from fiveshot.cli.tune import base_images
from fiveshot.errors import FiveshotError, InputError
from fiveshot.tuning import get_recipe

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def weights(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("weights") / "tiny.safetensors"
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        save_file(timm.create_model(TINY).state_dict(), path)
    return path


def write_images(folder: Path, classes: list[str], per_class: int, *, side: int = 24) -> Path:
    rng = np.random.default_rng(0)
    for number, name in enumerate(classes):
        (folder / name).mkdir(parents=True)
        colour = rng.integers(0, 256, 3)
        for image in range(per_class):
            pixels = np.clip(colour + rng.normal(0, 20, (side, side, 3)), 0, 255).astype(np.uint8)
            Image.fromarray(pixels).save(folder / name / f"{number}-{image}.png")
    return folder


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    return write_images(tmp_path / "photos", ["crow", "finch", "owl"], 6)


def fiveshot(*arguments: object) -> str:
    """Run the command; what goes wrong in it is raised here."""
    result = CliRunner().invoke(app, ["tune", *map(str, arguments)], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.output


def test_a_folder_is_tuned(photos: Path, weights: Path, tmp_path: Path) -> None:
    out = tmp_path / "adapter.safetensors"
    output = fiveshot(
        *("--images", photos, "--out", out, "--backbone", TINY, "--weights", weights, "--device", "cpu"),
        *("--recipe", "paper", "--set", "epochs=2", "--set", "crop_scale=0.5,1", "--seed", 3, "--held-out", 0.2),
        *("--log", f"csv={tmp_path / 'log.csv'}"),
    )
    assert f"{out}: 3 base classes, 2 epochs" in output
    assert "accuracy on held-out training images" in output
    meta = load_adapter(out, load_backbone(BackboneSpec(TINY, weights=weights)))
    expected = get_recipe("paper").replace(epochs=2, crop_scale=(0.5, 1.0), seed=3)
    assert meta["training"]["recipe"] == expected.to_json()
    rows = list(csv.DictReader((tmp_path / "log.csv").read_text().splitlines()))
    logged = {(row["step"], row["name"]): row["value"] for row in rows if row["kind"] == "value"}
    assert {row["run"] for row in rows} == {"adapter/tuning"}
    for record in meta["training"]["history"]:
        for name in ("loss", "held_out_accuracy"):
            assert float(logged[str(record["epoch"]), name]) == record[name]
    assert len(logged) == 2 * 4


def test_of_a_folder_a_quarter_is_held_back_and_named_in_the_file(
    photos: Path, weights: Path, tmp_path: Path
) -> None:
    out = tmp_path / "adapter.safetensors"
    fiveshot(
        *("--images", photos, "--out", out, "--backbone", TINY, "--weights", weights, "--device", "cpu"),
        *("--set", "epochs=1", "--set", "bottleneck=4"),
    )
    held = read_adapter(out).held_back
    assert held is not None
    classes = [path.parent.name for path in photos.glob("*/*") if digest(path) in held]
    assert sorted(classes) == ["crow", "finch", "owl"]


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()[:16]


def test_the_papers_recipe_trains_on_all_images(photos: Path, weights: Path, tmp_path: Path) -> None:
    output = fiveshot(
        *("--images", photos, "--out", tmp_path / "adapter.safetensors", "--backbone", TINY, "--weights", weights),
        *("--device", "cpu", "--recipe", "paper", "--set", "epochs=1"),
    )
    assert "3 base classes, 1 epoch, " in output
    assert "held-out" not in output


def test_a_protocol_is_tuned_on_its_base_classes(tmp_path: Path) -> None:
    names = [f"{label:03d}.bird" for label in range(1, 201)]
    root = tmp_path / "cub200"
    write_images(root / "train", names, 2, side=2)
    write_images(root / "test", names, 1, side=2)
    dataset = base_images("cub200/small", tmp_path, seed=0)
    base = get_protocol("cub200/small").session_classes[0]
    assert dataset.class_names == tuple(names[label] for label in base)
    assert len(dataset.train) == 40
    assert {name.split("/")[1] for name in dataset.train.names} == set(dataset.class_names)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--recipe", "our"], "no recipe 'our'; did you mean 'ours'"),
        (["--set", "epoch=1"], "no recipe value 'epoch'; did you mean 'epochs'"),
        (["--set", "lr"], "write key=value"),
        (["--device", "gpu"], "no device 'gpu'"),
        (["--root", "."], "--root is for protocols, and .* is a folder; leave it out"),
    ],
)
def test_wrong_options_are_named(
    photos: Path, weights: Path, tmp_path: Path, arguments: list[str], message: str
) -> None:
    with pytest.raises(FiveshotError, match=message):
        fiveshot(
            *("--images", photos, "--out", tmp_path / "a.safetensors", "--backbone", TINY, "--weights", weights),
            *arguments,
        )


def test_a_place_without_images_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no folder or protocol 'cub200/bigg'; did you mean 'cub200/big'"):
        fiveshot("--images", "cub200/bigg", "--out", tmp_path / "a.safetensors")
    with pytest.raises(InputError, match="name the folder of its images with --root"):
        fiveshot("--images", "cub200/big", "--out", tmp_path / "a.safetensors")


@pytest.fixture
def run_benchmark(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """Run a script of benchmarks/ as a program in this process, which has everything imported already."""

    def run(script: str, *arguments: object) -> str:
        monkeypatch.setattr(sys, "argv", [script, *map(str, arguments)])
        with torch.random.fork_rng(devices=[]):
            runpy.run_path(str(ROOT / "benchmarks" / script), run_name="__main__")
        return capsys.readouterr().out

    return run


def test_the_throughput_benchmark_runs_on_a_cpu(run_benchmark: Callable[..., str]) -> None:
    arguments = "--device cpu --model test_vit --images 24 --steps 1 --batches 8 --plain-batch 8 --plain-workers 0"
    found = json.loads(run_benchmark("tuning.py", *arguments.split(), "--json"))
    assert found["plain"]["images_s"] > 0
    ours = found["ours"]["8"]
    assert ours["images_s"] > 0
    assert ours["gflop_per_image"] > 0.1
    assert set(ours["milliseconds"]) == {"augment", "forward", "backward", "update", "whole_step"}


def test_the_adapter_search_runs_on_a_cpu(
    tmp_path: Path, weights: Path, run_benchmark: Callable[..., str]
) -> None:
    names = [f"{label:03d}.bird" for label in range(1, 201)]
    base = [names[label] for label in get_protocol("cub200/small").session_classes[0]]
    write_images(tmp_path / "birds" / "train", base, 6, side=4)
    write_images(tmp_path / "birds" / "train", sorted(set(names) - set(base)), 2, side=4)
    write_images(tmp_path / "birds" / "test", names, 1, side=4)
    variants = tmp_path / "variants.json"
    entry = {"name": "quick", "set": {"batch_size": 32, "epochs": 1}, "grid": {"lr": [1e-3]}}
    variants.write_text(json.dumps([entry]))
    arguments = ["--data", tmp_path / "birds", "--variants", variants, "--starts", "cub200/small", "--folds", 1]
    arguments += ["--draws", 2, "--backbone", TINY, "--weights", weights, "--device", "cpu"]
    arguments += ["--log", tmp_path / "log.jsonl"]
    lines = run_benchmark("adapter_search.py", *arguments).splitlines()
    assert [line.split()[:3] for line in lines[1:]] == [["cub200/small", "quick", "lr=0.001"]]
    log = [json.loads(line) for line in (tmp_path / "log.jsonl").read_text().splitlines()]
    assert all(0 <= entry[key] <= 1 for entry in log for key in ("ncm_new", "ncm_hm", "lda_hm"))


WITHOUT_TORCH = """
import sys
sys.modules["torch"] = None  # importing it fails, as where it is not installed
from fiveshot.tuning import TUNE_RECIPES, TuneResult, parse_setting
assert "ours" in TUNE_RECIPES and parse_setting("epochs=2") == ("epochs", 2)
from fiveshot.cli.app import main
sys.argv = ["fiveshot", "tune", "--images", "nowhere", "--out", "nowhere/adapter.safetensors"]
main()
"""


def test_without_torch_the_command_says_what_to_install() -> None:
    done = subprocess.run([sys.executable, "-c", WITHOUT_TORCH], capture_output=True, text=True, check=False)
    assert "pip install 'fiveshot[torch]'" in done.stderr
    assert "Traceback" not in done.stderr
    assert done.returncode == 1
