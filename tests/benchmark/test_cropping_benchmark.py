"""The benchmark of cropping on a made-up CUB: a small colored square before noise, which its box alone shows."""

from __future__ import annotations

import re
import runpy
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

SCRIPT = Path(__file__).resolve().parents[2] / "benchmarks" / "cropping.py"
COLORS = ((230, 40, 40), (40, 200, 60), (50, 60, 220))


@pytest.fixture(scope="module")
def cub(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder, rng, number = tmp_path_factory.mktemp("CUB_200_2011"), np.random.default_rng(0), 0
    lines: dict[str, list[str]] = {
        "images": [],
        "image_class_labels": [],
        "train_test_split": [],
        "bounding_boxes": [],
    }
    for label, color in enumerate(COLORS, 1):
        (folder / "images" / f"{label:03}.Bird").mkdir(parents=True)
        for index in range(6):
            number += 1
            pixels = rng.integers(0, 256, (180, 240, 3), dtype=np.uint8)
            left, top = (int(value) for value in rng.integers(0, (210, 150)))
            pixels[top : top + 30, left : left + 30] = color
            name = f"{label:03}.Bird/{index}.png"
            Image.fromarray(pixels).save(folder / "images" / name)
            lines["images"].append(f"{number} {name}")
            lines["image_class_labels"].append(f"{number} {label}")
            lines["train_test_split"].append(f"{number} {int(index < 5)}")
            lines["bounding_boxes"].append(f"{number} {left}.0 {top}.0 30.0 30.0")
    for name, own in lines.items():
        (folder / f"{name}.txt").write_text("\n".join(own) + "\n")
    return folder


def test_cropping_is_measured(
    cub: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", [str(SCRIPT), str(cub), "--draws", "2"])
    runpy.run_path(str(SCRIPT), run_name="__main__")
    printed = capsys.readouterr().out
    assert printed.startswith("3 classes, 5 photos each, 3 test photos, 2 draws")
    found = {name: float(value) for name, value in re.findall(r"\| (whole photos|cut out) \| ([\d.]+) %", printed)}
    assert found["cut out"] == 100
    assert found["whole photos"] <= found["cut out"]
