from __future__ import annotations

import sys
from pathlib import Path
from xml.etree import ElementTree as ET

import numpy as np
import pytest
from PIL import Image

from fiveshot.benchmark.ablation import get_ablation
from fiveshot.errors import InputError
from fiveshot.reports import experiments
from fiveshot.reports.canvas import save_figure
from fiveshot.reports.figures import ablation_curves, old_new_bars, session_curves, similarity_scatter
from fiveshot.reports.similarity import SimilarityPoints


def drawings(records):
    (birds,) = experiments(records)
    points = SimilarityPoints(np.arange(12.0).reshape(3, 4), 1 - np.arange(12.0).reshape(3, 4) / 20)
    series = {v.summary.method: [(1, v.summary), (16, v.summary)] for v in birds.variants}
    return {
        "bars": lambda: old_new_bars({"birds": birds.variants, "again": birds.variants}),
        "curves": lambda: session_curves({"birds": birds.variants}),
        "scatter": lambda: similarity_scatter({"birds": points}),
        "ablation": lambda: ablation_curves(get_ablation("tau"), series, title="birds"),
    }


@pytest.mark.parametrize("name", ["bars", "curves", "scatter", "ablation"])
def test_the_same_data_give_the_same_files(name: str, bird_records, tmp_path: Path) -> None:
    draw = drawings(bird_records)[name]
    first, second = (save_figure(draw(), tmp_path / stem) for stem in ("first", "second"))
    for one, other in zip(first, second, strict=True):
        assert one.read_bytes() == other.read_bytes()
    png, svg = first
    pixels = np.asarray(Image.open(png).convert("L"))
    assert 0.02 < (pixels < 200).mean() < 0.6  # ink on a page, neither blank nor black
    assert ET.parse(svg).getroot().tag.endswith("svg")
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "first.png",
        "first.svg",
        "second.png",
        "second.svg",
    ]


def test_bars_have_the_heights_of_the_accuracies(bird_records) -> None:
    (birds,) = experiments(bird_records)
    (ax,) = old_new_bars({"birds": birds.variants}).axes
    heights = [patch.get_height() for patch in ax.patches]
    expected = [100 * spread.mean for v in birds.variants for spread in v.base_new if spread]
    assert heights == pytest.approx(expected)
    assert [label.get_text() for label in ax.get_xticklabels()] == ["NCM", "C-FeCAM", "RanPAC"]


def test_curves_go_through_the_accuracies_with_a_band(bird_records) -> None:
    (birds,) = experiments(bird_records)
    (ax,) = session_curves({"birds": birds.variants}).axes
    for line, variant in zip(ax.lines, birds.variants, strict=True):
        assert line.get_ydata() == pytest.approx([100 * spread.mean for spread in variant.summary.accuracy])
    assert len(ax.collections) == len(birds.variants)
    top = max(ax.collections[0].get_paths()[0].vertices[:, 1])
    assert top == pytest.approx(max(100 * (s.mean + s.std) for s in birds.variants[0].summary.accuracy))


def test_one_seed_has_no_band_and_no_whiskers(bird_records) -> None:
    (birds,) = experiments([record for record in bird_records if record.seed == 0])
    (curves,) = session_curves({"birds": birds.variants}).axes
    (bars,) = old_new_bars({"birds": birds.variants}).axes
    assert not curves.collections
    assert not bars.collections


def test_the_scatter_says_its_correlation() -> None:
    points = SimilarityPoints(np.array([[1.0, 2.0, 3.0]]), np.array([[0.5, 0.4, 0.3]]))
    (ax,) = similarity_scatter({"birds": points}).axes
    assert "1 new × 3 base classes, r = -1.00" in ax.get_title()
    (line,) = ax.lines
    assert line.get_ydata() == pytest.approx([0.5, 0.3])


def test_drawing_leaves_the_users_matplotlib_alone(bird_records) -> None:
    import matplotlib as mpl

    before = dict(mpl.rcParams)
    drawings(bird_records)["bars"]()
    assert dict(mpl.rcParams) == before


def test_without_matplotlib_the_way_out_is_said(bird_records, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(InputError, match=r"pip install 'fiveshot\[plots\]'"):
        drawings(bird_records)["curves"]()
