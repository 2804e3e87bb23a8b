"""Figures of matplotlib, without a window and without global state; the same data give the same files."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fiveshot.errors import InputError
from fiveshot.storage import atomic_path

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

STYLE: dict[str, Any] = {
    "font.family": "DejaVu Sans",  # comes with matplotlib, so that it is there
    "font.size": 8,
    "axes.titlesize": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#dddddd",
    "grid.linewidth": 0.6,
    "hatch.linewidth": 0.6,
    "legend.frameon": False,
    "legend.fontsize": 8,
    "svg.hashsalt": "fiveshot",  # else element names are drawn at random
}
DPI = 200
PANEL_WIDTH, PANEL_HEIGHT = 3.5, 2.6  # inches; a column of a two-column page


@contextmanager
def drawing() -> Iterator[None]:
    """Draw and save in one style, whatever the user's own settings are."""
    mpl = _matplotlib()
    with mpl.rc_context():
        mpl.rcdefaults()
        mpl.rcParams.update(STYLE)
        yield


def panels(count: int, *, height: float = PANEL_HEIGHT) -> tuple[Figure, list[Axes]]:
    """Return a figure of so many panels side by side."""
    _matplotlib()
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(PANEL_WIDTH * count, height), layout="constrained")
    FigureCanvasAgg(figure)
    return figure, list(figure.subplots(1, count, squeeze=False)[0])


def save_figure(figure: Figure, stem: Path) -> tuple[Path, Path]:
    """Write ``stem.png`` and ``stem.svg``, whole or not at all, and return both paths."""
    found = []
    for kind, metadata in (("png", {"Software": None}), ("svg", {"Date": None})):
        target = stem.with_name(f"{stem.name}.{kind}")
        with atomic_path(target) as path, drawing():
            figure.savefig(path, format=kind, dpi=DPI, metadata=metadata)
        found.append(target)
    return found[0], found[1]


def _matplotlib() -> Any:
    try:
        import matplotlib as mpl
    except ImportError as error:
        raise InputError("figures need matplotlib; install it with: pip install 'fiveshot[plots]'") from error
    return mpl
