from __future__ import annotations

import sys
from pathlib import Path
from xml.etree import ElementTree as ET

import numpy as np
import pytest
from PIL import Image

from fiveshot.errors import InputError
from fiveshot.reports import experiments
from fiveshot.reports._drawings import base_new_chart, session_chart
from fiveshot.reports._paper_figures import (
    SimilarityPoints,
    ablation_curves,
    old_new_bars,
    save_figure,
    session_curves,
    similarity_scatter,
)

pytest.importorskip("matplotlib", reason="the extra 'plots' is not installed")


def drawings(records):
    (birds,) = experiments(records)
    points = SimilarityPoints(np.arange(12.0).reshape(3, 4), 1 - np.arange(12.0).reshape(3, 4) / 20)
    series = {v.summary.method: [(1, v.summary), (16, v.summary)] for v in birds.variants}
    return {
        "bars": lambda: old_new_bars({"birds": birds.variants, "again": birds.variants}),
        "curves": lambda: session_curves({"birds": birds.variants}),
        "scatter": lambda: similarity_scatter({"birds": points}),
        "ablation": lambda: ablation_curves("τ", series, title="birds"),
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


def test_every_shape_of_a_chart_is_painted_where_it_is(bird_records) -> None:
    (birds,) = experiments(bird_records)
    (ax,) = old_new_bars({"birds": birds.variants}).axes
    shapes = base_new_chart(birds.variants).shapes
    boxes = [shape.points for shape in shapes if shape.kind == "box"]
    assert [patch.get_bbox().get_points().tolist() for patch in ax.patches] == [
        pytest.approx(np.array(corners)) for corners in boxes
    ]
    assert [text.get_text() for text in ax.texts] == [shape.words for shape in shapes if shape.kind == "text"]
    (ax,) = session_curves({"birds": birds.variants}).axes
    drawn = [shape.points for shape in session_chart(birds.variants).shapes if shape.kind in ("line", "marker")]
    assert [line.get_xydata().tolist() for line in ax.lines] == [pytest.approx(np.array(line)) for line in drawn]


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
