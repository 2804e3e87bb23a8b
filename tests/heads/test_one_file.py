"""A head of the package is one file: put into a copy of the package, it is found wherever heads are looked for."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).parents[2]
TAXI = '''
"""Nearest class mean by the sum of absolute differences."""

from fiveshot.core.arrays import namespace
from fiveshot.heads.head import FewShotHead, Recipe, Style


class Taxi(FewShotHead):
    """Nearest class mean as a taxi drives."""

    def __init__(self, *, temperature=1 / 16, device=None):
        self.temperature = temperature
        self.device = device

    @classmethod
    def recipes(cls):
        """Return the one there is."""
        look = Style("#123456", "#abcdef", "d", True)
        return (Recipe("taxi", "as a taxi drives", cls, label="Taxi!", style=look),)

    def derive(self, memory, X, y, previous):
        """Return the statistics."""
        return memory.statistics

    def score_classes(self, X, labels):
        """Return negative distances."""
        xp = namespace(X)
        means = [self.model_[label].mean for label in labels]
        return -xp.stack([xp.sum(xp.abs(X - mean), axis=1) for mean in means], axis=1) / X.shape[1]
'''
ASKED = """
import json, sys
import numpy as np
from fiveshot.cli.completion import methods, model_heads
from fiveshot.heads import RECIPES, Taxi, check_head, load_head, make_head, save_head
from fiveshot.reports._variants import method_label, styles

head = make_head("taxi").fit(np.eye(3), ["a", "b", "c"])
save_head(head, sys.argv[1])
print(json.dumps({
    "class": type(make_head("taxi")) is Taxi,
    "file": load_head(sys.argv[1]).predict(np.eye(3)).tolist(),
    "contract": [len(check_head(RECIPES["taxi"].make, library=one)) for one in ("numpy", "torch")],
    "completion": ["ncm,taxi" in methods("ncm,"), "taxi" in model_heads()],
    "label": method_label("taxi"),
    "color": styles(["taxi"])[0].color,
}))
"""


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the package as it is, and one file more in ``heads``."""
    folder = tmp_path_factory.mktemp("copy")
    source, copied = ROOT / "src" / "fiveshot", folder / "fiveshot"
    (copied / "heads").mkdir(parents=True)
    for place in (source, source / "heads"):
        for entry in place.iterdir():
            if entry.name not in ("heads", "__pycache__"):
                (copied / entry.relative_to(source)).symlink_to(entry)
    (copied / "heads" / "taxi.py").write_text(TAXI)
    return folder


def python(copy: Path, *arguments: object) -> str:
    words = [sys.executable, *map(str, arguments)]
    environment = {**os.environ, "PYTHONPATH": str(copy), "COLUMNS": "200"}
    found = subprocess.run(words, env=environment, capture_output=True, text=True, timeout=300, check=False)
    assert found.returncode == 0, found.stderr
    return found.stdout


def test_it_is_made_saved_checked_completed_and_drawn(copy: Path, tmp_path: Path) -> None:
    pytest.importorskip("torch", reason="the extra 'torch' is not installed")
    found = json.loads(python(copy, "-c", ASKED, tmp_path / "head"))
    assert found["class"]
    assert found["file"] == ["a", "b", "c"]
    assert found["contract"][0] == found["contract"][1] > 10
    assert found["completion"] == [True, True]
    assert (found["label"], found["color"]) == ("Taxi!", "#123456")


def test_the_command_line_lists_helps_and_runs_it(copy: Path, tmp_path: Path) -> None:
    assert "as a taxi drives" in python(copy, "-m", "fiveshot", "bench", "--list")
    assert "taxi" in python(copy, "-m", "fiveshot", "bench", "--help")
    assert "taxi" in python(copy, "-m", "fiveshot", "new", "--help")
    rows, labels = np.repeat(np.eye(12), 6, axis=0), np.repeat(np.arange(12), 6)
    np.savez(tmp_path / "small.npz", train_x=rows, train_y=labels, test_x=rows, test_y=labels)
    words = ("bench", "--features", tmp_path / "small.npz", "--methods", "taxi", "--out", tmp_path / "runs")
    words = (*words, "--seeds", 1, "--format", "markdown")
    assert "| Taxi! |" in python(copy, "-m", "fiveshot", *words)


def test_the_reference_shows_it(copy: Path) -> None:
    pytest.importorskip("mkdocs")
    spec = spec_from_file_location("reference_pages", ROOT / "docs" / "hooks" / "reference_pages.py")
    assert spec is not None
    assert spec.loader is not None
    pages = module_from_spec(spec)
    spec.loader.exec_module(pages)
    page = pages.module_page("heads", copy / "fiveshot" / "heads" / "__init__.py")
    assert "::: fiveshot.heads.taxi.Taxi\n" in page
    assert "taxi" not in pages.module_page("heads", ROOT / "src" / "fiveshot" / "heads" / "__init__.py")
