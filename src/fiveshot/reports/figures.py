"""The paper's figures and the ablations' curves, from what was measured."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from fiveshot.benchmark.ablation import Ablation
from fiveshot.metrics import Spread
from fiveshot.reports.ablation_table import Series
from fiveshot.reports.canvas import drawing, panels
from fiveshot.reports.markers import variant_styles
from fiveshot.reports.method_style import MethodStyle, method_label, styles
from fiveshot.reports.similarity import SimilarityPoints
from fiveshot.reports.variants import Variant

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Panels = Mapping[str, Sequence[Variant]]  # title: what is compared under it
NEUTRAL = "#444444"


def old_new_bars(variants: Panels) -> Figure:
    """Figure 1: per method, the accuracy after the last session on base classes and on all later ones."""
    with drawing():
        from matplotlib.patches import Patch

        figure, axes = panels(len(variants), height=2.9)
        for ax, (title, entries) in zip(axes, variants.items(), strict=True):
            for place, (entry, style) in enumerate(zip(entries, variant_styles(entries), strict=True)):
                for shift, spread, filled in ((-0.2, entry.base_new[0], True), (0.2, entry.base_new[1], False)):
                    if spread is not None:
                        _bar(ax, place + shift, spread, style, filled=filled)
            ax.set_xticks(range(len(entries)), [entry.label for entry in entries], rotation=25, ha="right")
            ax.set_title(title)
            ax.set_ylim(0, 108)
            ax.set_yticks(range(0, 101, 20))
            ax.grid(axis="x", visible=False)
        axes[0].set_ylabel("accuracy after the last session (%)")
        kinds = [
            Patch(facecolor=NEUTRAL, edgecolor=NEUTRAL, label="base classes"),
            Patch(facecolor="white", edgecolor=NEUTRAL, hatch="////", label="new classes"),
        ]
        figure.legend(handles=kinds, loc="outside upper center", ncols=2)
    return figure


def session_curves(variants: Panels) -> Figure:
    """Figure 3: the accuracy on all classes seen so far, after each session, with the spread over seeds."""
    with drawing():
        from matplotlib.ticker import MaxNLocator

        figure, axes = panels(len(variants))
        handles: dict[str, object] = {}
        for ax, (title, entries) in zip(axes, variants.items(), strict=True):
            for entry, style in zip(entries, variant_styles(entries), strict=True):
                sessions = list(range(len(entry.summary.accuracy)))
                handles.setdefault(entry.label, _curve(ax, sessions, entry.summary.accuracy, style, entry.label))
            ax.set_title(title)
            ax.set_xlabel("session")
            ax.xaxis.set_major_locator(MaxNLocator(integer=True))
        axes[0].set_ylabel("accuracy (%)")
        _legend(figure, handles)
    return figure


def similarity_scatter(points: Mapping[str, SimilarityPoints]) -> Figure:
    """Figure 2: similarity of covariances against the distance of prototypes, with the fitted line."""
    with drawing():
        figure, axes = panels(len(points))
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


def ablation_curves(ablation: Ablation, series: Series, *, title: str = "") -> Figure:
    """Mean A_HM, A_last and A_inc of each method against the varied value."""
    measures = {"mean A_HM": "a_hm_mean", "A_last": "a_last", "A_inc": "a_inc"}
    with drawing():
        figure, axes = panels(len(measures))
        handles: dict[str, object] = {}
        values = sorted({value for points in series.values() for value, _ in points})
        for ax, (name, measure) in zip(axes, measures.items(), strict=True):
            for (method, points), style in zip(series.items(), styles(list(series)), strict=True):
                label = method_label(method, points[0][1].flavour)
                spreads = [getattr(summary, measure) for _, summary in points]
                handles.setdefault(label, _curve(ax, [value for value, _ in points], spreads, style, label))
            if min(values) > 0 and max(values) / min(values) >= 10:
                ax.set_xscale("log")
            ax.set_xticks(values, [f"{value:g}" for value in values])
            ax.minorticks_off()
            ax.set_title(name)
            ax.set_xlabel(ablation.symbol)
        axes[0].set_ylabel("%")
        figure.suptitle(title, fontsize=9)
        _legend(figure, handles)
    return figure


def _bar(ax: Axes, place: float, spread: Spread, style: MethodStyle, *, filled: bool) -> None:
    height = 100 * spread.mean
    ax.bar(
        place,
        height,
        0.38,
        yerr=None if spread.std is None else 100 * spread.std,
        facecolor=style.colour if filled else "white",
        edgecolor=style.colour,
        hatch=None if filled else "////",
        error_kw={"elinewidth": 0.8, "capsize": 2},
    )
    top = height + (100 * spread.std if spread.std else 0)
    ax.annotate(f"{height:.0f}", (place, top), (0, 2), textcoords="offset points", ha="center", fontsize=7)


def _curve(
    ax: Axes, x: Sequence[float], spreads: Sequence[Spread | None], style: MethodStyle, label: str
) -> object:
    """Draw a line, with a gap where nothing was measured."""
    mean = 100 * np.array([np.nan if spread is None else spread.mean for spread in spreads])
    std = 100 * np.array([0.0 if spread is None else spread.std or 0.0 for spread in spreads])
    (line,) = ax.plot(
        x,
        mean,
        color=style.colour,
        marker=style.marker,
        markersize=4,
        markeredgecolor="white",
        markeredgewidth=0.5,
        linewidth=1.5,
        linestyle="--" if style.dashed else "-",
        label=label,
    )
    if std.any():
        ax.fill_between(x, mean - std, mean + std, color=style.colour, alpha=0.18, linewidth=0)
    return line


def _legend(figure: Figure, handles: Mapping[str, object]) -> None:
    figure.legend(
        handles=list(handles.values()),
        labels=list(handles),
        loc="outside lower center",
        ncols=len(handles) if len(figure.axes) > 1 else 3,
    )
