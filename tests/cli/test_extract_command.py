from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from tiny_vit import TINY

from fiveshot.cli.app import main
from fiveshot.features import FeatureSet

torch = pytest.importorskip("torch", reason="the extra 'torch' is not installed")


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    """Ten photographs of two classes, without a test split."""
    rng = np.random.default_rng(5)
    for name in ("cat", "dog"):
        (tmp_path / "pets" / name).mkdir(parents=True)
        for number in range(5):
            pixels = Image.fromarray(rng.integers(0, 256, (5, 7, 3), np.uint8)).resize((170, 120))
            pixels.save(tmp_path / "pets" / name / f"{number}.jpg")
    return tmp_path / "pets"


@pytest.fixture
def fiveshot(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path):
    """Run the command line as the console script does; return the status and both outputs."""
    monkeypatch.setenv("FIVESHOT_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("COLUMNS", "200")

    def run(*arguments: object) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["fiveshot", *map(str, arguments)])
        with pytest.raises(SystemExit) as ended:  # the command line always leaves this way
            main()
        captured = capsys.readouterr()
        return int(ended.value.code or 0), captured.out, captured.err

    return run


def test_images_become_a_feature_file(fiveshot, photos: Path, tiny_file: Path, tmp_path: Path) -> None:
    out = tmp_path / "pets.safetensors"
    command = ["extract", "--images", photos, "--out", out, "--backbone", TINY, "--weights", tiny_file]
    status, printed, _ = fiveshot(*command, "--device", "cpu")
    assert status == 0
    assert f"{out}: 8 training and 2 test vectors of 64 float16, 2 classes, {TINY}" in printed
    assert "10 images in " in printed
    assert "ONNX Runtime" in printed
    assert "images/s end to end" in printed
    assert "inside the forward pass" in printed
    assert FeatureSet.load(out).class_names == ("cat", "dog")

    status, printed, _ = fiveshot(*command, "--device", "cpu", "--out", tmp_path / "again.safetensors")
    assert status == 0
    assert "all 10 images were extracted before; nothing to do" in printed
    assert (tmp_path / "again.safetensors").read_bytes() == out.read_bytes()


@pytest.mark.parametrize("form", ["npz", "parquet"])
def test_another_form_is_refused_before_any_work(
    form: str, fiveshot, photos: Path, tiny_file: Path, tmp_path: Path
) -> None:
    command = ["extract", "--images", photos, "--backbone", TINY, "--weights", tiny_file, "--device", "cpu"]
    status, printed, said = fiveshot(*command, "--out", tmp_path / f"pets.{form}")
    assert (status, printed) == (1, "")
    assert f"then: fiveshot data convert pets.safetensors pets.{form}" in said
    assert not (tmp_path / f"pets.{form}").exists()


def test_every_option_arrives(fiveshot, photos: Path, tiny_file: Path, tmp_path: Path) -> None:
    out = tmp_path / "pets.safetensors"
    options: dict[str, object] = {
        "--images": photos,
        "--out": out,
        "--backbone": TINY,
        "--weights": tiny_file,
        "--tokens": "cls+mean",
        "--last-blocks": 2,
        "--dtype": "float32",
        "--runtime": "torch",
        "--device": "cpu",
        "--batch-size": 3,
        "--workers": 1,
        "--seed": 4,
        "--holdout": 0.4,
    }
    given = [part for option in options.items() for part in option]
    status, printed, _ = fiveshot("extract", *given, "--no-cache")
    assert status == 0
    assert "6 training and 4 test vectors of 192 float32" in printed
    assert f"PyTorch {torch.__version__} on cpu, float32" in printed
    assert not (tmp_path / "cache").exists()
    assert FeatureSet.load(out).provenance.readout == "cls+mean, last 2 blocks"


def test_a_named_dataset(fiveshot, photos: Path, tiny_file: Path, tmp_path: Path) -> None:
    (tmp_path / "data" / "cub200" / "train").mkdir(parents=True)
    photos.joinpath("cat").rename(tmp_path / "data" / "cub200" / "train" / "cat")
    status, printed, notes = fiveshot(
        *("extract", "--dataset", "cub200", "--root", tmp_path / "data", "--out", tmp_path / "a.safetensors"),
        *("--backbone", TINY, "--weights", tiny_file, "--device", "cpu"),
    )
    assert status == 0
    assert "4 training and 1 test vectors" in printed
    assert "note: " in notes, "that this is not all of it"


@pytest.mark.parametrize(("dataset", "squash"), [("cars", 224), ("cub200", None)])
def test_the_papers_preprocessing_is_that_of_the_dataset(
    fiveshot, photos: Path, tiny_file: Path, tmp_path: Path, dataset: str, squash: int | None
) -> None:
    (tmp_path / "data" / dataset).mkdir(parents=True)
    photos.rename(tmp_path / "data" / dataset / "train")
    out = tmp_path / "a.safetensors"
    status, printed, _ = fiveshot(
        *("extract", "--dataset", dataset, "--root", tmp_path / "data", "--out", out, "--preprocessing", "paper"),
        *("--backbone", TINY, "--weights", tiny_file, "--device", "cpu"),
    )
    assert status == 0
    assert "PyTorch" in printed  # 224 px are not the network's own, so it cannot be exported
    made = FeatureSet.load(out).provenance.preprocessing
    assert made["squash"] == squash


def test_bad_images_are_listed_and_left_out_only_when_asked(
    fiveshot, photos: Path, tiny_file: Path, tmp_path: Path
) -> None:
    (photos / "cat" / "0.jpg").write_text("no photograph")
    command = ["extract", "--images", photos, "--out", tmp_path / "a.safetensors", "--device", "cpu"]
    command += ["--backbone", TINY, "--weights", tiny_file]
    status, _, message = fiveshot(*command)
    assert status == 1
    assert "error: 1 of 10 images cannot be used:\n  cat/0.jpg: not a photo in a supported format" in message
    assert not (tmp_path / "a.safetensors").exists()
    status, printed, _ = fiveshot(*command, "--skip-bad")
    assert status == 0
    assert "left out 1 bad image:\n  cat/0.jpg: not a photo" in printed


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"--images": "nowhere"}, "no such folder or archive: nowhere"),
        ({"--images": "EMPTY"}, "has no images in class folders"),
        ({"--images": None}, "give either images"),
        ({"--dataset": "cub200"}, "give either images"),
        ({"--backbone": "vit_huge_patch7"}, "no backbone 'vit_huge_patch7'"),
        ({"--backbone": "test_vit2.r160_in1k"}, "does not fit test_vit2.r160_in1k"),
        ({"--weights": "none.safetensors"}, "no such file: none.safetensors"),
        ({"--weights": None}, "the weights of test_vit.r160_in1k are not on this machine"),
        ({"--adapter": "none.safetensors"}, "no such file: none.safetensors"),
        ({"--preprocessing": "papr"}, "did you mean 'paper'"),
        ({"--preprocessing": "paper", "--runtime": "onnx"}, "cannot be exported to ONNX"),
        ({"--tokens": "cls", "--last-blocks": "99"}, "has 6 blocks; last_blocks is 99"),
        ({"--device": "tpu9"}, "no device 'tpu9'"),
        ({"--precision": "bf16"}, "precision 'bf16' is for CUDA devices"),
        ({"--batch-size": "0"}, "batch_size is 0; choose 1 or more"),
        ({"--out": "no/such/folder/a.safetensors"}, "the folder no/such/folder does not exist; create it first"),
        ({"--holdout": "2"}, "holdout=2.0 must lie between 0 and 1"),
    ],
    ids=lambda value: " ".join(f"{k} {v}" for k, v in value.items()) if isinstance(value, dict) else "",
)
def test_wrong_input_is_one_sentence_and_status_1(
    fiveshot,
    photos: Path,
    tiny_file: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    change: dict[str, str | None],
    message: str,
) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    (tmp_path / "EMPTY").mkdir()
    options: dict[str, object] = {
        "--images": photos,
        "--out": tmp_path / "a.safetensors",
        "--backbone": TINY,
        "--weights": tiny_file,
        "--device": "cpu",
    }
    options |= {key: tmp_path / value if value == "EMPTY" else value for key, value in change.items()}
    given = [part for option, value in options.items() if value is not None for part in (option, value)]
    status, printed, said = fiveshot("extract", *given)
    assert status == 1
    assert said.startswith("error: ")
    assert message in said
    assert "Traceback" not in said + printed
    assert not (tmp_path / "a.safetensors").exists()
