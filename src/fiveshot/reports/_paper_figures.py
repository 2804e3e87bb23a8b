"""The paper's figures and the ablations' curves, as files that matplotlib writes.

Figures 1 and 3 paint the charts of :mod:`fiveshot.reports._drawings`. Drawing needs no window and changes no
global state, and the same data give the same files.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from fiveshot.benchmark import Protocol, Summary
from fiveshot.core import ClassStatistics, class_statistics
from fiveshot.errors import InputError
from fiveshot.extras import import_extra
from fiveshot.features import FeatureSet
from fiveshot.metrics import Spread
from fiveshot.reports._drawings import Drawing, Shape, base_new_chart, session_chart, variant_styles
from fiveshot.reports._styles import Style, styles
from fiveshot.reports._variants import Variant, method_label
from fiveshot.storage import atomic_path

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Panels = Mapping[str, Sequence[Variant]]  # title: what is compared under it
Series = Mapping[str, Sequence[tuple[float, Summary]]]  # by method: each value with what was measured

STYLE: dict[str, Any] = {
    "font.family": "DejaVu Sans",  # part of matplotlib, so it is always available
    "font.size": 8,
    "axes.titlesize": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#dddddd",
    "grid.linewidth": 0.6,
    "legend.frameon": False,
    "legend.fontsize": 8,
    "svg.hashsalt": "fiveshot",  # otherwise element names are random
}
DPI = 200
PANEL_WIDTH, PANEL_HEIGHT = 3.5, 2.6  # inches; a column of a two-column page
NEUTRAL, GRID, LIGHT = "#444444", "#dddddd", 0.22  # colors without a method, and the opacity of light bars


@dataclass(frozen=True, eq=False)
class SimilarityPoints:
    """Whether near classes have similar covariances: one point per pair of a new and a base class."""

    distance: NDArray[np.float64]  # (n_new, n_base), between the prototypes
    similarity: NDArray[np.float64]  # (n_new, n_base), of the covariances

    @cached_property
    def correlation(self) -> float:
        """Pearson's coefficient of distance and similarity over all pairs."""
        return float(np.corrcoef(self.distance.ravel(), self.similarity.ravel())[0, 1])

    @cached_property
    def trend(self) -> tuple[float, float]:
        """Slope and intercept of the line fitted by least squares."""
        slope, intercept = np.polyfit(self.distance.ravel(), self.similarity.ravel(), 1)
        return float(slope), float(intercept)


@contextmanager
def drawing() -> Iterator[None]:
    """Draw and save in one style, independent of the user's settings."""
    mpl = import_extra("matplotlib", extra="plots")
    with mpl.rc_context():
        mpl.rcdefaults()
        mpl.rcParams.update(STYLE)
        yield


def save_figure(figure: Figure, stem: Path) -> tuple[Path, Path]:
    """Write ``stem.png`` and ``stem.svg``, completely or not at all, and return both paths."""
    found = []
    for kind, metadata in (("png", {"Software": None}), ("svg", {"Date": None})):
        target = stem.with_name(f"{stem.name}.{kind}")
        with atomic_path(target) as path, drawing():
            figure.savefig(path, format=kind, dpi=DPI, metadata=metadata)
        found.append(target)
    return found[0], found[1]


def old_new_bars(variants: Panels) -> Figure:
    """Figure 1: per method, the accuracy after the last session on base classes and on all later ones."""
    with drawing():
        from matplotlib.patches import Patch

        figure = _painted({title: base_new_chart(entries) for title, entries in variants.items()})
        kinds = [
            Patch(facecolor=NEUTRAL, edgecolor=NEUTRAL, label="base classes"),
            Patch(facecolor=(NEUTRAL, LIGHT), edgecolor=NEUTRAL, label="new classes"),
        ]
        figure.legend(handles=kinds, loc="outside upper center", ncols=2)
        figure.supxlabel("accuracy after the last session (%)", fontsize=8)
    return figure


def session_curves(variants: Panels) -> Figure:
    """Figure 3: the accuracy on all classes seen so far, after each session, with the spread over seeds."""
    with drawing():
        from matplotlib.lines import Line2D

        figure = _painted({title: session_chart(entries) for title, entries in variants.items()})
        looks: dict[str, Style] = {}
        for entries in variants.values():
            looks |= dict(zip((entry.label for entry in entries), variant_styles(entries), strict=True))
        _legend(figure, {label: Line2D([], [], **_line_look(style)) for label, style in looks.items()})
        figure.supylabel("accuracy (%)", fontsize=8)
    return figure


def similarity_scatter(points: Mapping[str, SimilarityPoints]) -> Figure:
    """Figure 2: similarity of covariances against the distance of prototypes, with the fitted line."""
    with drawing():
        figure, axes = _panels(len(points))
        for ax, (title, found) in zip(axes, points.items(), strict=True):
            new, base = found.distance.shape
            ax.scatter(found.distance, found.similarity, s=7, color="#0072b2", alpha=0.45, linewidths=0)
            slope, intercept = found.trend
            ends = np.array([found.distance.min(), found.distance.max()])
            ax.plot(ends, slope * ends + intercept, color="#d55e00", linewidth=1.8, label="least-squares line")
            ax.set_title(f"{title}\n{new} new × {base} base classes, r = {found.correlation:.2f}")
            ax.set_xlabel("distance between prototypes")
            ax.legend(loc="best")
        axes[0].set_ylabel("similarity of covariances")
    return figure


def ablation_curves(symbol: str, series: Series, *, title: str = "") -> Figure:
    """Mean A_HM, A_last and A_inc of each method against the varied value."""
    measures = {"mean A_HM": "a_hm_mean", "A_last": "a_last", "A_inc": "a_inc"}
    with drawing():
        figure, axes = _panels(len(measures))
        handles: dict[str, object] = {}
        values = sorted({value for points in series.values() for value, _ in points})
        for ax, (name, measure) in zip(axes, measures.items(), strict=True):
            for (method, points), style in zip(series.items(), styles(list(series)), strict=True):
                label = method_label(method, points[0][1].flavor)
                spreads = [getattr(summary, measure) for _, summary in points]
                handles.setdefault(label, _curve(ax, [value for value, _ in points], spreads, style, label))
            if min(values) > 0 and max(values) / min(values) >= 10:
                ax.set_xscale("log")
            ax.set_xticks(values, [f"{value:g}" for value in values])
            ax.minorticks_off()
            ax.set_title(name)
            ax.set_xlabel(symbol)
        axes[0].set_ylabel("%")
        figure.suptitle(title, fontsize=9)
        _legend(figure, handles)
    return figure


def similarity_points(protocol: Protocol, features: FeatureSet) -> SimilarityPoints:
    """Compare the new classes of session 1 with the base classes, using all training images."""
    if len(protocol.session_classes) < 2:
        raise InputError(f"protocol {protocol.name!r} has no session after the base session to compare with it")
    base, new = (_statistics(features, classes) for classes in protocol.session_classes[:2])
    distance = np.linalg.norm(new.means[:, None] - base.means[None], axis=2)
    return SimilarityPoints(distance, covariance_similarity(new, base))


def covariance_similarity(first: ClassStatistics, second: ClassStatistics) -> NDArray[np.float64]:
    """Return for each pair of classes the cosine of their covariances as vectors, (n_first, n_second).

    cos(Σ₁, Σ₂) = ⟨Σ₁, Σ₂⟩ / (‖Σ₁‖ ‖Σ₂‖) with the Frobenius inner product ⟨Σ₁, Σ₂⟩ = trace(Σ₁ Σ₂). It is 1 for
    covariances of the same shape, regardless of scale, and 0 if the classes vary in orthogonal directions. In
    factored form, Σ = AᵀA, no d × d matrix is needed: ⟨A₁ᵀA₁, A₂ᵀA₂⟩ = ‖A₁ A₂ᵀ‖².

    >>> flat = class_statistics(np.array([[1.0, 0.0], [-1.0, 0.0]]), [0, 0])
    >>> round_ = class_statistics(np.array([[1.0, 0.0], [-1.0, 0.0], [0.0, 1.0], [0.0, -1.0]]), [0] * 4)
    >>> covariance_similarity(flat, round_).round(3)
    array([[0.707]])
    """
    for statistics in (first, second):
        for label, summary in zip(statistics.labels, statistics.summaries, strict=True):
            if not summary.factor.any():
                raise InputError(f"class {label!r} has no covariance: it needs two different images")
    cosines: NDArray[np.float64] = _inner(first, second) / np.outer(_norms(first), _norms(second))
    return cosines


def _panels(count: int, *, height: float = PANEL_HEIGHT) -> tuple[Figure, list[Axes]]:
    """Return a figure with ``count`` panels side by side."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(PANEL_WIDTH * count, height), layout="constrained")
    FigureCanvasAgg(figure)
    return figure, list(figure.subplots(1, count, squeeze=False)[0])


def _painted(charts: Mapping[str, Drawing]) -> Figure:
    """Return a figure with a panel for each chart, under its title."""
    most = max(chart.height / chart.width for chart in charts.values())
    figure, axes = _panels(len(charts), height=PANEL_WIDTH * most + 0.6)
    for ax, (title, chart) in zip(axes, charts.items(), strict=True):
        ax.set(xlim=(0, chart.width), ylim=(chart.height, 0), aspect="equal", title=title)
        ax.set_axis_off()
        for place, shape in enumerate(chart.shapes):
            _paint(ax, shape, zorder=place)
    return figure


def _paint(ax: Axes, shape: Shape, *, zorder: int) -> None:
    """Paint one shape of a chart, over those before it."""
    from matplotlib.patches import Rectangle

    x, y = (list(values) for values in zip(*shape.points, strict=True))
    color = shape.style.color if shape.style else GRID if shape.role == "grid" else NEUTRAL
    if shape.kind == "text":
        side = "right" if shape.role.startswith("end") else "center" if shape.role.startswith("middle") else "left"
        ax.text(x[0], y[0], shape.words, ha=side, va="baseline", fontsize=7, zorder=zorder)
    elif shape.kind == "area":
        ax.fill(x, y, color=color, alpha=0.18, linewidth=0, zorder=zorder)
    elif shape.kind == "box":
        light = LIGHT if "new" in shape.role else 1.0
        box = Rectangle((x[0], y[0]), x[1] - x[0], y[1] - y[0], facecolor=(color, light), edgecolor=color)
        ax.add_patch(box).set(linewidth=0.8, zorder=zorder)
    elif shape.style is None:
        ax.plot(x, y, color=color, linewidth=0.6 if shape.role == "grid" else 0.8, zorder=zorder)
    else:
        look = _line_look(shape.style)
        look |= {"linestyle": ""} if shape.kind == "marker" else {"marker": ""}
        ax.plot(x, y, zorder=zorder, **look)


def _line_look(style: Style) -> dict[str, Any]:
    """Return how matplotlib draws the line of a method."""
    return {
        "color": style.color,
        "marker": style.marker,
        "markersize": 4,
        "markeredgecolor": "white",
        "markeredgewidth": 0.5,
        "linewidth": 1.5,
        "linestyle": "--" if style.dashed else "-",
    }


def _curve(ax: Axes, x: Sequence[float], spreads: Sequence[Spread | None], style: Style, label: str) -> object:
    """Draw a line, with gaps for missing values."""
    mean = 100 * np.array([np.nan if spread is None else spread.mean for spread in spreads])
    std = 100 * np.array([0.0 if spread is None else spread.std or 0.0 for spread in spreads])
    (line,) = ax.plot(x, mean, label=label, **_line_look(style))
    if std.any():
        ax.fill_between(x, mean - std, mean + std, color=style.color, alpha=0.18, linewidth=0)
    return line


def _legend(figure: Figure, handles: Mapping[str, object]) -> None:
    """Add a legend of the methods below all panels."""
    figure.legend(
        handles=list(handles.values()),
        labels=list(handles),
        loc="outside lower center",
        ncols=len(handles) if len(figure.axes) > 1 else 3,
    )


def _inner(first: ClassStatistics, second: ClassStatistics) -> NDArray[np.float64]:
    """Return the Frobenius inner products of all pairs of covariances."""
    stacked, owners = second.stacked_factors  # (R, d), (R,)
    starts = np.searchsorted(owners, np.arange(len(second)))
    rows = [np.square(stacked @ summary.covariance_factor.T).sum(axis=1) for summary in first.summaries]
    return np.stack([np.add.reduceat(row, starts) for row in rows])


def _norms(statistics: ClassStatistics) -> NDArray[np.float64]:
    """Return the Frobenius norm of each covariance, (n_classes,)."""
    factors = (summary.covariance_factor for summary in statistics.summaries)
    return np.array([np.linalg.norm(factor @ factor.T) for factor in factors])


def _statistics(features: FeatureSet, classes: tuple[int, ...]) -> ClassStatistics:
    """Return the statistics of some classes, from all of their training images."""
    rows = np.flatnonzero(np.isin(features.train_y, classes))
    vectors = np.asarray(features.train_x[rows], dtype=np.float64)
    return class_statistics(vectors, features.train_y[rows])
